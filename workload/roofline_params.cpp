// SPDX-License-Identifier: MIT
#include "workload/roofline_params.h"

namespace trainyard {

const std::vector<ParamSpec>& roofline_params() {
  using PT = ParamType;
  static const std::vector<ParamSpec> specs = {
      {"efficiency",
       PT::real,
       "1",
       "0.01",
       "1",
       {},
       "share of the peak FLOP rate that kernels reach",
       "upper bound; calibrate for real times"},
      {"gemm_efficiency",
       PT::real,
       "auto",
       "0.01",
       "1",
       {"auto"},
       "the same for matrix products alone; auto: efficiency. Large ones measure 0.8 to 0.9",
       "upper bound; A:N092"},
      {"attention_efficiency",
       PT::real,
       "auto",
       "0.01",
       "1",
       {"auto"},
       "the same for attention, of its tensor and special-function peaks; auto: efficiency. "
       "FlashAttention-3 measures 0.70 to 0.75 on H100, FlashAttention-2 0.35 there and 0.50 to "
       "0.73 on A100",
       "upper bound; A:N092"},
      {"memory_efficiency",
       PT::real,
       "1",
       "0.01",
       "1",
       {},
       "share of the memory rate that kernels reach",
       "upper bound; calibrate for real times"},
      {"elementwise_efficiency",
       PT::real,
       "auto",
       "0.01",
       "1",
       {"auto"},
       "the same for elementwise kernels alone (norms, activations, optimizer), of memory and "
       "vector rate; auto: memory_efficiency",
       "upper bound; calibrate for real times"},
      {"launch",
       PT::time,
       "0ns",
       "0ns",
       "1ms",
       {},
       "added to every kernel: its ramp up and down, and the launch where the host does not run "
       "ahead of the GPU",
       "lower bound: launches are asynchronous and hide behind the kernel before"},
      {"precision",
       PT::choice,
       "bf16",
       "",
       "",
       {"bf16", "fp16", "fp8", "tf32"},
       "operands of ops that say FLOPs and bytes only (traces); generated workloads have "
       "workload.precision",
       "DESIGN 9.1"}};
  return specs;
}

RooflineShares roofline_shares(const Params& p) {
  const auto or_else = [&](const char* name, double otherwise) {
    return p.is_word(name, "auto") ? otherwise : p.real(name);
  };
  RooflineShares s;
  s.gemm = or_else("gemm_efficiency", p.real("efficiency"));
  s.attention = or_else("attention_efficiency", p.real("efficiency"));
  s.memory = p.real("memory_efficiency");
  s.elementwise = or_else("elementwise_efficiency", s.memory);
  s.launch = p.time("launch");
  return s;
}

Kernel::Precision roofline_precision(const Params& p) {
  if (p.is_word("precision", "fp8")) return Kernel::Precision::fp8;
  if (p.is_word("precision", "tf32")) return Kernel::Precision::tf32;
  return Kernel::Precision::half;
}

}  // namespace trainyard
