// SPDX-License-Identifier: MIT
// All-reduce that scale-up switches reduce and copy, joined by double binary trees between domains
// (NVLSTree). Inside a domain ports carry what nvls.cpp says, as messages to the next member; every
// lane's member sends its share of the sum up its tree and gets the result down. In pieces, every
// other one through the other tree, which follow each other.
//
// A member begins to send a piece up when it has the one that stands for the switch's sum: that
// others of its domain may be later is not waited for.
#include <algorithm>

#include "sim/collective.h"
#include "sim/registry.h"
#include "workload/collective_params.h"
#include "workload/double_tree.h"
#include "workload/group_layout.h"
#include "workload/message_plan.h"
#include "workload/planned_run.h"

namespace trainyard {
namespace {

constexpr uint32_t kNone = MessagePlan::kNone;

/// Lanes that reach from domain to domain, by domain.
std::vector<std::vector<uint32_t>> lanes_of(const GroupLayout& layout) {
  std::vector<std::vector<uint32_t>> heads(layout.server_count());
  const size_t lanes = std::max<size_t>(1, layout.common.size());
  for (uint32_t s = 0; s < layout.server_count(); ++s) {
    for (size_t l = 0; l < lanes; ++l) {
      heads[s].push_back(layout.common.empty() ? layout.servers[s][0]
                                               : layout.member_at(s, layout.common[l]));
    }
  }
  return heads;
}

MessagePlan make_plan(const CollectiveRequest& r) {
  const GroupLayout layout(r);
  const uint32_t n = layout.members(), domains = layout.server_count();
  const auto heads = lanes_of(layout);
  const auto lanes = static_cast<int64_t>(heads[0].size());
  const int64_t pieces = nvls_tree_pieces(r.bytes, lanes, n);
  // Domains from the root down, by tree.
  std::vector<uint32_t> parent[2], order[2];
  for (uint32_t half = 0; half < 2; ++half) {
    std::vector<std::vector<uint32_t>> children(domains);
    for (uint32_t s = 0; s < domains; ++s) {
      parent[half].push_back(double_tree_parent(s, domains, half));
      if (parent[half].back() == kNone) {
        order[half].push_back(s);
      } else {
        children[parent[half].back()].push_back(s);
      }
    }
    for (size_t i = 0; i < order[half].size(); ++i) {
      const auto& below = children[order[half][i]];
      order[half].insert(order[half].end(), below.begin(), below.end());
    }
    TRAINYARD_ASSERT(order[half].size() == domains);
  }
  MessagePlan plan(n);
  plan.start_together();
  std::vector<uint32_t> reduced(n);                    // by receiver
  std::vector<std::vector<uint32_t>> raised(domains);  // by parent
  std::vector<std::vector<uint32_t>> result(n);        // what brings a lane's member its share
  for (int64_t k = 0; k < pieces; ++k) {
    const int64_t size = part_of(r.bytes, pieces, k);
    const auto half = static_cast<uint32_t>(k % 2);
    std::fill(reduced.begin(), reduced.end(), kNone);
    for (auto& list : result) list.clear();
    for (const auto& server : layout.servers) {
      const size_t p = server.size();
      for (size_t i = 0; p > 1 && i < p; ++i) {
        const uint32_t to = server[(i + 1) % p];
        reduced[to] = plan.add(server[i], to, size, 0);
      }
    }
    for (int64_t l = 0; l < std::min(lanes, size); ++l) {
      const int64_t share = part_of(size, std::min(lanes, size), l);
      const auto up_channel = static_cast<uint32_t>(1 + 4 * l + 2 * half);
      const auto& tree = order[half];
      for (auto& list : raised) list.clear();
      for (size_t i = tree.size(); i-- > 1;) {
        const uint32_t s = tree[i], above = parent[half][s];
        std::vector<uint32_t> after = raised[s];
        after.push_back(reduced[heads[s][l]]);
        raised[above].push_back(plan.add(heads[s][l], heads[above][l], share, up_channel, after));
      }
      const uint32_t root = tree[0];
      for (size_t i = 1; i < tree.size(); ++i) {
        const uint32_t s = tree[i], above = parent[half][s];
        std::vector<uint32_t> after = above == root ? raised[root] : result[heads[above][l]];
        if (above == root) after.push_back(reduced[heads[root][l]]);
        result[heads[s][l]] = {
            plan.add(heads[above][l], heads[s][l], share, up_channel + 1, after)};
      }
      result[heads[root][l]] = raised[root];
    }
    for (const auto& server : layout.servers) {
      const auto p = static_cast<int64_t>(server.size());
      for (int64_t i = 0; p > 1 && i < std::min(p, size); ++i) {
        const uint32_t m = server[static_cast<size_t>(i)];
        const uint32_t to = server[static_cast<size_t>((i + 1) % p)];
        result[m].push_back(reduced[m]);
        plan.add(m, to, part_of(size, std::min(p, size), i), 3, result[m]);
      }
    }
  }
  return plan;
}

class NvlsTree final : public CollectiveAlgorithm {
 public:
  [[nodiscard]] std::string name() const override { return "nvls-tree"; }
  [[nodiscard]] bool supports(CollectiveKind k) const override {
    return k == CollectiveKind::all_reduce || k == CollectiveKind::barrier;
  }
  [[nodiscard]] bool serves(const CollectiveRequest& r) const override {
    return GroupLayout(r).server_count() > 1;
  }
  [[nodiscard]] std::unique_ptr<CollectiveRun> begin(const CollectiveRequest& r) const override {
    return std::make_unique<PlannedRun>(make_plan(r));
  }
  [[nodiscard]] int64_t sent_per_member(const CollectiveRequest& r) const override {
    // (p + 1) S inside a domain of p members, 2 (N - 1) S over the edges of the trees.
    const GroupLayout layout(r);
    int64_t buffers = 2 * (static_cast<int64_t>(layout.server_count()) - 1);
    for (const auto& server : layout.servers) {
      if (server.size() > 1) buffers += static_cast<int64_t>(server.size()) + 1;
    }
    return static_cast<int64_t>(static_cast<__int128>(r.bytes) * buffers / layout.members());
  }
};

const RegisterModel<CollectiveFactory> kRegistration{
    {"collective", "nvls-tree",
     "All-reduce of several scale-up domains whose switches reduce, joined by double binary trees. "
     "An approximation by message sizes, see docs/collectives.md.",
     "NCCL NVLSTree; nccl-measured 2.5", collective_params()},
    [](const Params&) { return std::make_unique<NvlsTree>(); }};

}  // namespace
}  // namespace trainyard
