// SPDX-License-Identifier: MIT
#include "workload/compute_variation.h"

#include <utility>

#include "sim/dice.h"
#include "sim/errors.h"

namespace trainyard {
namespace {

constexpr uint32_t kJitterDice = 220;

/// Rounded to nearest; throws UserError beyond 2^63 ps.
Time times(Time t, uint64_t factor_q32) {
  const unsigned __int128 product = static_cast<unsigned __int128>(t.ps()) * factor_q32;
  const unsigned __int128 rounded = (product + (uint64_t{1} << 31)) >> 32;
  if (rounded >> 63 != 0) throw UserError("a slowed-down operation takes longer than 106 days");
  return Time::ps(static_cast<int64_t>(rounded));
}

class Varied final : public ComputeModel {
 public:
  Varied(std::unique_ptr<ComputeModel> model, ComputeVariation variation)
      : model_(std::move(model)), v_(std::move(variation)) {}
  [[nodiscard]] Time duration(const OpGraph& graph, uint32_t op, uint32_t rank) const override {
    Time t = model_->duration(graph, op, rank);
    if (graph.streams[graph.ops[op].stream].name == "host") return t;
    if (rank < v_.slow_q32.size()) t = times(t, v_.slow_q32[rank]);
    if (v_.jitter != nullptr) {
      t = times(t, v_.jitter->factor_q32(dice(v_.seed, kJitterDice, rank, op)));
    }
    return t;
  }
  [[nodiscard]] std::optional<uint64_t> kind_of(uint32_t rank) const override {
    if (v_.jitter != nullptr || model_->kind_of(rank) != uint64_t{0}) return std::nullopt;
    return rank < v_.slow_q32.size() ? v_.slow_q32[rank] : 0;
  }
  [[nodiscard]] std::string source() const override { return model_->source(); }
  std::vector<ComputeRemark> prepare(const Job& job) override { return model_->prepare(job); }

 private:
  std::unique_ptr<ComputeModel> model_;
  ComputeVariation v_;
};

}  // namespace

std::unique_ptr<ComputeModel> vary_compute(std::unique_ptr<ComputeModel> model,
                                           ComputeVariation variation) {
  if (variation.jitter == nullptr && variation.slow_q32.empty()) return model;
  return std::make_unique<Varied>(std::move(model), std::move(variation));
}

}  // namespace trainyard
