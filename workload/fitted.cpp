// SPDX-License-Identifier: MIT
#include "workload/fitted.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/errors.h"
#include "sim/registry.h"
#include "workload/roofline.h"

namespace trainyard {
namespace {

double d(int64_t x) {
  return static_cast<double>(x);
}

/// Share of the peak that a large product reaches.
double gemm_share(const Kernel& k, const DeviceCard& card) {
  const DeviceFit& f = card.fit;
  double share = f.gemm_half;
  const char* name = "bf16";
  switch (k.precision) {
    case Kernel::Precision::fp8:
      share = f.gemm_fp8, name = "fp8";
      break;
    case Kernel::Precision::fp8_blocks:
      share = f.gemm_fp8_blocks, name = "mxfp8";
      break;
    case Kernel::Precision::fp4:
      share = f.gemm_fp4, name = "fp4";
      break;
    case Kernel::Precision::half:
    case Kernel::Precision::tf32:
      break;
  }
  if (share <= 0 || card.peak_tflops(k.precision) <= 0) {
    throw UserError(
        "device " + card.name + " has no " + name + " rate, or no fit of it, on its card",
        "use bf16, compute.model: roofline, or another device");
  }
  return share;
}

/// `memory`: bytes per second that kernels reach.
double gemm_seconds(const Kernel& k, const DeviceCard& card, double memory) {
  const DeviceFit& f = card.fit;
  const double peak = card.peak_tflops(k.precision) * 1e12;
  // A faster precision needs larger products to be as busy.
  const double faster = card.peak_tflops(k.precision) / card.tflops;
  double slower = 1;
  const double groups = d(std::max<int64_t>(1, k.groups));
  if (k.m > 0 && k.n > 0 && k.k > 0) {
    const double m = std::max(1.0, k.group_inner ? d(k.m) : d(k.m) / groups);
    const double inner = std::max(1.0, k.group_inner ? d(k.k) / groups : d(k.k));
    slower += faster * (f.gemm_columns * (1 / m + 1 / d(k.n)) + f.gemm_inner / inner);
  }
  const double share = gemm_share(k, card) * (k.groups > 1 ? f.grouped : 1);
  double s = std::max(d(k.flops) / (peak * share) * slower, d(k.bytes) / memory);
  const bool casts = k.precision == Kernel::Precision::fp8 ||
                     k.precision == Kernel::Precision::fp8_blocks ||
                     k.precision == Kernel::Precision::fp4;
  if (casts) {
    const double cast = k.precision == Kernel::Precision::fp8 ? f.cast : f.cast_blocks;
    s += cast * d(k.bytes) / memory;
  }
  return s;
}

double attention_seconds(const Kernel& k, const DeviceCard& card, const SoftwareFactors& software,
                         double memory) {
  const DeviceFit& f = card.fit;
  const double peak = card.tflops * 1e12;
  if (k.scores > 0) {
    // The bytes of its square are counted by the scores.
    double s = d(k.square_flops) / (peak * f.gemm_half * f.unfused);
    if (k.head % 8 != 0) s *= f.unfused_misaligned;
    return s + 8 * d(k.scores) * software.scores / memory + 2 * f.launch.seconds();
  }
  double share = f.attention * software.attention(card.generation);
  if (k.head > 0 && k.head <= 64) share *= f.attention_head64;
  const int64_t queries = k.queries > 0 ? k.queries : k.m;
  if (queries > 0) share /= 1 + f.attention_queries / d(queries);
  if (k.backward) share *= f.attention_backward;
  return std::max(d(k.flops) / (peak * share), d(k.bytes) / memory);
}

}  // namespace

double fitted_seconds(const Kernel& k, const DeviceCard& card, const SoftwareFactors& software) {
  if (k.pieces > 1) {
    // As published: what cutting a product costs is in what overlap saves, and was not told apart.
    Kernel whole = k;
    whole.pieces = 1;
    whole.m *= k.pieces;
    whole.flops *= k.pieces;
    whole.bytes = k.whole_bytes;
    return fitted_seconds(whole, card, software) / d(k.pieces);
  }
  const DeviceFit& f = card.fit;
  const double memory = card.hbm_gbytes_per_s * 1e9 * f.memory;
  switch (k.kind) {
    case Kernel::Kind::gemm:
      return (gemm_seconds(k, card, memory) + f.launch.seconds()) * software.kernels;
    case Kernel::Kind::attention:
      return (attention_seconds(k, card, software, memory) + f.launch.seconds()) * software.kernels;
    case Kernel::Kind::elementwise:
      break;
  }
  if (k.optimizer) return d(k.bytes) / memory * software.optimizer;
  return (d(k.bytes) / memory * software.elementwise + 2 * f.launch.seconds()) * software.kernels;
}

Time fitted_time(const Kernel& kernel, const DeviceCard& card, const SoftwareFactors& software) {
  return Time::ps(std::llround(fitted_seconds(kernel, card, software) * 1e12));
}

double fitted_op_seconds(double seconds, const Kernel* first, size_t count,
                         const SoftwareFactors& software) {
  if (software.host <= Time() && software.host_experts <= Time()) return seconds;
  double host = 0;
  for (size_t i = 0; i < count; ++i) {
    if (first[i].optimizer) continue;  // one launch for many tensors
    host += software.host.seconds() / d(first[i].pieces);
    if (first[i].groups > 1) host += software.host_experts.seconds();
  }
  return std::max(seconds, host);
}

double straggle_factor(double straggle, int64_t gpus) {
  double doublings = 0;
  int64_t whole = 8;
  for (; whole * 2 <= gpus; whole *= 2) doublings += 1;
  if (gpus > whole) doublings += d(gpus - whole) / d(whole);
  return 1 + straggle * doublings;
}

namespace {

class Fitted final : public ComputeModel {
 public:
  Fitted(const ComputeRequest& request, const Params& params)
      : card_(request.device), software_(request.software) {
    if (!card_.fit.present()) {
      throw UserError(request.pos, "device " + card_.name + " has no 'fit' block on its card",
                      "use compute.model: roofline, or write one with 'trainyard calibrate'");
    }
    if (!params.is_word("ranks", "auto")) gpus_ = params.integer("ranks");
    factor_ = straggle_factor(card_.fit.straggle, gpus_);
    given_ = gpus_ > 0;
  }

  [[nodiscard]] Time duration(const OpGraph& graph, uint32_t op, uint32_t) const override {
    const Op& o = graph.ops[op];
    // Host operations have no FLOPs; their traced duration is all there is.
    if (o.flops == 0 && o.bytes == 0) return o.duration;
    double seconds = 0;
    if (o.kernels == 0) {
      seconds = fitted_seconds(whole_op(o, Kernel::Precision::half), card_, software_);
    } else {
      const Kernel* first = graph.kernels.data() + o.first_kernel;
      for (uint32_t i = 0; i < o.kernels; ++i) {
        seconds += fitted_seconds(first[i], card_, software_);
      }
      seconds = fitted_op_seconds(seconds, first, o.kernels, software_);
    }
    return Time::ps(std::llround(seconds * factor_ * 1e12));
  }

  [[nodiscard]] std::optional<uint64_t> kind_of(uint32_t) const override { return 0; }

  [[nodiscard]] std::string source() const override {
    const DeviceFit& f = card_.fit;
    if (f.heldout_rows == 0) return "fitted (" + card_.name + ", never tried on held-out steps)";
    return fmt::format("fitted ({}, error on {} held-out steps {:.1f} % median, {:.1f} % p90)",
                       card_.name, f.heldout_rows, f.heldout_median_pct, f.heldout_p90_pct);
  }

  std::vector<ComputeRemark> prepare(const Job& job) override {
    if (!given_) {
      factor_ = straggle_factor(card_.fit.straggle, static_cast<int64_t>(job.ranks.size()));
    }
    const DeviceFit& f = card_.fit;
    std::vector<ComputeRemark> out;
    std::string text = "fitted to " + std::to_string(f.rows) + " measured steps (" + f.source +
                       "), whose error is " + fmt::format("{:.1f}", f.median_pct) +
                       " % in the median";
    if (f.heldout_rows > 0) {
      text += fmt::format(", of {} held-out steps {:.1f} %, one in ten worse than {:.1f} %",
                          f.heldout_rows, f.heldout_median_pct, f.heldout_p90_pct);
    } else {
      text += ", with no held-out steps";
    }
    out.push_back({text, f.heldout_rows == 0});
    if (software_.name == "none") {
      out.push_back(
          {"no workload.software: kernels of an ideal framework, which real ones are 5 "
           "to 20 % slower than",
           true});
    } else {
      out.push_back({"software " + software_.name + " (" + software_.source + ")", false});
    }
    return out;
  }

 private:
  DeviceCard card_;
  SoftwareFactors software_;
  int64_t gpus_ = 0;
  bool given_ = false;
  double factor_ = 1;
};

const std::vector<ParamSpec>& fitted_params() {
  static const std::vector<ParamSpec> specs = {
      {"ranks",
       ParamType::integer,
       "auto",
       "1",
       "10000000",
       {"auto"},
       "GPUs whose slowest sets the pace; auto: those of the job. For a job that is simulated with "
       "fewer replicas than it has",
       "docs/compute.md, fitted"}};
  return specs;
}

const RegisterModel<ComputeFactory> kFitted{
    {"compute", "fitted",
     "A kernel takes what constants say that were fitted to measured training steps: shares of "
     "the device's peaks by shape, precision and kind (`fit` of its card), times factors of "
     "workload.software. The report gives the error on steps that the fit has not seen.",
     "docs/compute.md, fitted; docs/validation.md", fitted_params()},
    [](const Params& p, const ComputeRequest& r) { return std::make_unique<Fitted>(r, p); }};

}  // namespace
}  // namespace trainyard
