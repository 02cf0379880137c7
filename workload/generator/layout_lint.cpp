// SPDX-License-Identifier: MIT
#include "workload/generator/layout_lint.h"

#include <fmt/format.h>

#include <algorithm>

#include "workload/generator/grid.h"

namespace trainyard {

std::vector<std::string> layout_warnings(const Training& t, int64_t gpus_per_node) {
  std::vector<std::string> out;
  const Grid grid = dense_grid(t);
  const auto leaves_server = [&](const char* dimension) {
    const int64_t n = grid.size(dimension);
    if (n < 2) return false;
    // Members of a group are evenly apart: the last one tells.
    for (uint32_t r = 0; r < static_cast<uint32_t>(std::min<int64_t>(t.ranks, gpus_per_node));
         ++r) {
      const auto first = static_cast<int64_t>(grid.moved(r, dimension, 0));
      const auto last = static_cast<int64_t>(grid.moved(r, dimension, n - 1));
      if (first / gpus_per_node != last / gpus_per_node) return true;
    }
    return false;
  };
  if (leaves_server("tp")) {
    out.push_back(
        fmt::format("tensor parallelism (tp {}) leaves the server of {} GPUs: its all-reduces or "
                    "all-gathers, four or more per layer and micro-batch, cross the network (A: "
                    "1.5 #81)",
                    t.tp, gpus_per_node));
  }
  const double ratio =
      ideal_bubble_ratio(t.schedule, static_cast<uint32_t>(t.pp),
                         static_cast<uint32_t>(t.microbatches), static_cast<uint32_t>(t.vpp));
  if (bubble_share(ratio) > 0.2) {
    out.push_back(fmt::format(
        "{} micro-batches on {} stages: at least {:.0f} % of the step is bubble (A:F31, A:F32); "
        "more micro-batches, fewer stages or an interleaved schedule make it smaller",
        t.microbatches, t.pp, 100 * bubble_share(ratio)));
  }
  if (t.head_imbalance() > 1) {
    out.push_back(
        fmt::format("tp {} divides heads unevenly: the fullest rank has {:.2g} times as "
                    "many as the emptiest (A:F46)",
                    t.tp, t.head_imbalance()));
  }
  for (size_t i = 0; i < t.unlike.size(); ++i) {
    const UnlikeReplica& u = t.unlike[i];
    const bool told = std::any_of(t.unlike.begin(), t.unlike.begin() + static_cast<int64_t>(i),
                                  [&](const UnlikeReplica& other) { return other.tp == u.tp; });
    if (told) continue;
    const Training replica = t.of_replica(u.replica, std::max<int64_t>(0, u.stage));
    if (replica.model.heads > t.card.heads || replica.model.ffn > t.card.ffn) {
      out.push_back(fmt::format(
          "replica {} with tp {}: {} heads and {} columns of the MLP do not divide; all its ranks "
          "take as long as the fullest, with {} heads and {} columns, {:.3g} and {:.3g} times an "
          "even share (A:F46)",
          u.replica, u.tp, t.card.heads, t.card.ffn, replica.model.heads / u.tp,
          replica.model.ffn / u.tp,
          static_cast<double>(replica.model.heads) / static_cast<double>(t.card.heads),
          t.card.ffn > 0 ? static_cast<double>(replica.model.ffn) / static_cast<double>(t.card.ffn)
                         : 1.0));
    }
  }
  const auto [fewest, most] = std::minmax_element(t.layers_of.begin(), t.layers_of.end());
  if (*most > *fewest + 1) {
    out.push_back(fmt::format("stages hold {} to {} layers: the fullest sets the pace (A: 1.5 #85)",
                              *fewest, *most));
  }
  if (t.zero == 3 && t.pp > 1 && t.microbatches > 1) {
    out.push_back(
        "zero 3 with a pipeline gathers all parameters again for every micro-batch (A:F18 counts "
        "one)");
  }
  if (t.zero == 2 && t.microbatches > 1) {
    out.push_back(
        fmt::format("zero 2 reduces gradients in each of {} micro-batches, zero 1 once (A:F18 "
                    "counts one)",
                    t.microbatches));
  }
  return out;
}

}  // namespace trainyard
