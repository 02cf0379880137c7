// SPDX-License-Identifier: MIT
// Compute time from the trace, or from a roofline.
#include <algorithm>
#include <cmath>

#include "sim/compute_model.h"
#include "sim/registry.h"

namespace trainyard {
namespace {

/// max(FLOPs / peak, bytes / HBM rate). Division and rounding are IEEE operations without fused
/// multiply-add, hence the same on every machine.
Time roofline(int64_t flops, int64_t bytes, const DeviceCard& card, double efficiency) {
  const double compute_s = static_cast<double>(flops) / (card.tflops * 1e12 * efficiency);
  const double memory_s = static_cast<double>(bytes) / (card.hbm_gbytes_per_s * 1e9);
  return Time::ps(std::llround(std::max(compute_s, memory_s) * 1e12));
}

class Trace final : public ComputeModel {
 public:
  explicit Trace(DeviceCard card) : card_(std::move(card)) {}
  [[nodiscard]] Time duration(const OpGraph& graph, uint32_t op, uint32_t) const override {
    const Op& o = graph.ops[op];
    if (o.duration.ps() == 0 && o.kind == OpKind::memory) {
      return roofline(o.flops, o.bytes, card_, 1.0);
    }
    return o.duration;
  }
  [[nodiscard]] std::string source() const override { return "trace"; }

 private:
  DeviceCard card_;
};

class Roofline final : public ComputeModel {
 public:
  Roofline(DeviceCard card, double efficiency) : card_(std::move(card)), efficiency_(efficiency) {}
  [[nodiscard]] Time duration(const OpGraph& graph, uint32_t op, uint32_t) const override {
    const Op& o = graph.ops[op];
    // Host operations have no FLOPs; their traced duration is all there is.
    if (o.flops == 0 && o.bytes == 0) return o.duration;
    if (o.kernels == 0) return roofline(o.flops, o.bytes, card_, efficiency_);
    Time sum;
    for (uint32_t i = o.first_kernel; i < o.first_kernel + o.kernels; ++i) {
      const Kernel& k = graph.kernels[i];
      sum += roofline(k.flops, k.bytes, card_, efficiency_);
    }
    return sum;
  }
  [[nodiscard]] std::string source() const override { return "roofline (uncalibrated)"; }

 private:
  DeviceCard card_;
  double efficiency_;
};

const RegisterModel<ComputeFactory> kTrace{
    {"compute",
     "trace",
     "Every op takes the duration that the trace states (whole microseconds in Chakra).",
     "formats 1.1",
     {}},
    [](const Params&, const DeviceCard& card) { return std::make_unique<Trace>(card); }};

const RegisterModel<ComputeFactory> kRoofline{
    {"compute",
     "roofline",
     "An op takes the longer of FLOPs / peak and bytes / HBM rate of the device card. Real kernels "
     "are slower: treat absolute step times as a lower bound.",
     "roofline model; formats 1.7",
     {{"efficiency",
       ParamType::real,
       "1",
       "0.01",
       "1",
       {},
       "share of the peak FLOP rate that kernels reach",
       "upper bound; calibrate for real times"}}},
    [](const Params& p, const DeviceCard& card) {
      return std::make_unique<Roofline>(card, p.real("efficiency"));
    }};

}  // namespace
}  // namespace trainyard
