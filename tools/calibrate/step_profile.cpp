// SPDX-License-Identifier: MIT
#include "tools/calibrate/step_profile.h"

#include <algorithm>
#include <map>
#include <utility>

#include "workload/fitted.h"
#include "workload/generator/generate.h"

namespace trainyard {

StepProfile::StepProfile(const Scenario& s) {
  const Training& t = *s.training;
  const Job job = generate_job(t, s.name, s.seed).job;
  std::map<const OpGraph*, size_t> known;  // looked up only
  for (const RankProgram& rank : job.ranks) {
    const OpGraph& graph = *rank.graph;
    const auto [it, added] = known.emplace(&graph, classes_.size());
    if (added) {
      Class& c = classes_.emplace_back();
      std::map<std::pair<uint32_t, uint32_t>, double> count;
      for (const Op& op : graph.ops) {
        if (op.kind == OpKind::compute && op.kernels > 0) {
          count[{op.first_kernel, op.kernels}] += 1.0 / static_cast<double>(t.steps);
        }
      }
      for (const auto& [range, n] : count) {
        const auto first = graph.kernels.begin() + range.first;
        c.runs.push_back({{first, first + range.second}, n});
      }
    }
    classes_[it->second].ranks += 1;
  }
  const bool split = t.schedule == ScheduleKind::split_backward;
  bubble_ = static_cast<double>(t.pp - 1) / static_cast<double>(t.vpp * t.microbatches) *
            (split ? 0.4 : 1);
  const Params& p = s.compute.params;
  gpus_ = p.has_spec("ranks") && !p.is_word("ranks", "auto") ? p.integer("ranks") : t.ranks;
}

double StepProfile::seconds(const DeviceCard& card, const SoftwareFactors& software) const {
  double most = 0;
  double sum = 0;
  double ranks = 0;
  for (const Class& c : classes_) {
    double own = 0;
    for (const Run& run : c.runs) {
      double s = 0;
      for (const Kernel& k : run.kernels) s += fitted_seconds(k, card, software);
      own += run.count * fitted_op_seconds(s, run.kernels.data(), run.kernels.size(), software);
    }
    most = std::max(most, own);
    sum += own * c.ranks;
    ranks += c.ranks;
  }
  return (most + bubble_ * sum / ranks) * straggle_factor(card.fit.straggle, gpus_);
}

}  // namespace trainyard
