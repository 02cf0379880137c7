// SPDX-License-Identifier: MIT
#include "tools/scenario/remembered_model.h"

#include <unordered_map>
#include <utility>
#include <vector>

namespace trainyard {
namespace {

class Remembered final : public ComputeModel {
 public:
  explicit Remembered(std::unique_ptr<ComputeModel> model) : model_(std::move(model)) {}
  [[nodiscard]] Time duration(const OpGraph& graph, uint32_t op, uint32_t rank) const override {
    if (last_ != &graph) {
      std::vector<Time>& times = times_[&graph];
      times.resize(graph.ops.size(), Time::infinity());
      last_ = &graph;
      last_times_ = &times;
    }
    Time& t = (*last_times_)[op];
    if (t == Time::infinity()) t = model_->duration(graph, op, rank);
    return t;
  }
  [[nodiscard]] std::optional<uint64_t> kind_of(uint32_t rank) const override {
    return model_->kind_of(rank);
  }
  [[nodiscard]] std::string source() const override { return model_->source(); }
  std::vector<ComputeRemark> prepare(const Job& job) override { return model_->prepare(job); }

 private:
  std::unique_ptr<ComputeModel> model_;
  mutable std::unordered_map<const OpGraph*, std::vector<Time>> times_;
  mutable const OpGraph* last_ = nullptr;
  mutable std::vector<Time>* last_times_ = nullptr;
};

}  // namespace

std::unique_ptr<ComputeModel> remember_durations(std::unique_ptr<ComputeModel> model) {
  return std::make_unique<Remembered>(std::move(model));
}

}  // namespace trainyard
