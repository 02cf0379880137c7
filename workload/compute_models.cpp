// SPDX-License-Identifier: MIT
// Compute time from the trace, or from a roofline.
#include "sim/compute_model.h"
#include "sim/registry.h"
#include "workload/roofline.h"
#include "workload/roofline_params.h"

namespace trainyard {
namespace {

class Trace final : public ComputeModel {
 public:
  explicit Trace(DeviceCard card) : card_(std::move(card)) {}
  [[nodiscard]] Time duration(const OpGraph& graph, uint32_t op, uint32_t) const override {
    const Op& o = graph.ops[op];
    if (o.duration.ps() == 0 && o.kind == OpKind::memory) {
      return roofline_time(whole_op(o, Kernel::Precision::half), card_, {});
    }
    return o.duration;
  }
  [[nodiscard]] std::optional<uint64_t> kind_of(uint32_t) const override { return 0; }
  [[nodiscard]] std::string source() const override { return "trace"; }

 private:
  DeviceCard card_;
};

class Roofline final : public ComputeModel {
 public:
  Roofline(DeviceCard card, const Params& params)
      : card_(std::move(card)),
        shares_(roofline_shares(params)),
        precision_(roofline_precision(params)) {}
  [[nodiscard]] Time duration(const OpGraph& graph, uint32_t op, uint32_t) const override {
    const Op& o = graph.ops[op];
    // Host operations have no FLOPs; their traced duration is all there is.
    if (o.flops == 0 && o.bytes == 0) return o.duration;
    if (o.kernels == 0) return roofline_time(whole_op(o, precision_), card_, shares_);
    Time sum;
    for (uint32_t i = o.first_kernel; i < o.first_kernel + o.kernels; ++i) {
      sum += roofline_time(graph.kernels[i], card_, shares_);
    }
    return sum;
  }
  [[nodiscard]] std::optional<uint64_t> kind_of(uint32_t) const override { return 0; }
  [[nodiscard]] std::string source() const override { return "roofline (uncalibrated)"; }

 private:
  DeviceCard card_;
  RooflineShares shares_;
  Kernel::Precision precision_;
};

const RegisterModel<ComputeFactory> kTrace{
    {"compute",
     "trace",
     "Every op takes the duration that the trace states (whole microseconds in Chakra).",
     "formats 1.1",
     {}},
    [](const Params&, const ComputeRequest& r) { return std::make_unique<Trace>(r.device); }};

const RegisterModel<ComputeFactory> kRoofline{
    {"compute", "roofline",
     "A kernel takes the longest of FLOPs / tensor peak in its precision, vector work / vector "
     "peak, exponentials / special-function rate and bytes / memory rate of the device card. Real "
     "kernels are slower: treat absolute step times as a lower bound.",
     "roofline model; A: 1.4 #60; formats 1.7", roofline_params()},
    [](const Params& p, const ComputeRequest& r) {
      return std::make_unique<Roofline>(r.device, p);
    }};

}  // namespace
}  // namespace trainyard
