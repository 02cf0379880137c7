// SPDX-License-Identifier: MIT
// Double binary tree: all-reduce as a reduction up and a broadcast down, in chunks that follow each
// other; broadcast and reduce along the same trees. The buffer is cut into a part per channel and
// tree. Servers form the trees, as NCCL builds them (src/graph/trees.cc: the second tree is the
// first one mirrored, or shifted where the number of servers is odd, so that a server is inside
// one and a leaf of the other); the members of a server hang below each other behind the one that
// talks to other servers, whose rail is that of the channel. With two servers each is the root of
// one tree, so that a NIC carries the buffer once per direction and not 2 (n - 1) / n times:
// nccl-measured 2.5 and 2.7.
//
// Rooted collectives: the first member is the root and sends one half into each tree of the other
// servers (Sanders, Speck and Träff 2009).
#include <algorithm>
#include <utility>

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
// As for chains: half of NCCL's 4 MiB buffer / 8 steps, and no more pieces than hide the depth.
constexpr int64_t kChunkBytes = 256 * 1024;
constexpr int64_t kMaxChunks = 64;

/// A spanning tree of the members.
struct Tree {
  std::vector<uint32_t> parent;                 // by member
  std::vector<std::vector<uint32_t>> children;  // by member
  std::vector<uint32_t> order;                  // parents before children
};

/// Members of `server` one below the other: `first`, then `second` (or kNone), then the others as
/// listed, forwards or backwards. @returns them in that order
std::vector<uint32_t> hang(const std::vector<uint32_t>& server, uint32_t first, uint32_t second,
                           bool backwards, Tree& tree) {
  std::vector<uint32_t> chain{first};
  if (second != kNone && second != first) chain.push_back(second);
  const size_t n = server.size();
  const auto at =
      static_cast<size_t>(std::find(server.begin(), server.end(), chain.back()) - server.begin());
  for (size_t k = 1; k < n; ++k) {
    const uint32_t m = server[(backwards ? at + n - k : at + k) % n];
    if (m != first) chain.push_back(m);
  }
  for (size_t k = 1; k < chain.size(); ++k) tree.parent[chain[k]] = chain[k - 1];
  return chain;
}

Tree make_tree(const GroupLayout& layout, uint32_t channel, uint32_t half, bool rooted) {
  Tree tree;
  const uint32_t n = layout.members();
  const uint32_t servers = layout.server_count();
  tree.parent.assign(n, kNone);
  // The member of each server that talks to other servers.
  std::vector<uint32_t> head;
  for (uint32_t s = 0; s < servers; ++s) {
    const auto& own = layout.servers[s];
    if (servers > 1 && !layout.common.empty()) {
      head.push_back(layout.member_at(s, layout.common[channel % layout.common.size()]));
    } else {
      head.push_back(own[channel % own.size()]);
    }
  }
  const bool backwards = half == 1;
  uint32_t root = 0;
  for (uint32_t s = 0; s < servers; ++s) {
    if (rooted && s == 0) {
      hang(layout.servers[0], 0, servers > 1 ? head[0] : kNone, backwards, tree);
      continue;
    }
    hang(layout.servers[s], head[s], kNone, backwards, tree);
    uint32_t up = kNone;
    if (rooted) {
      up = double_tree_parent(s - 1, servers - 1, half);
      up = up == kNone ? 0 : up + 1;
    } else {
      up = double_tree_parent(s, servers, half);
    }
    if (up == kNone) {
      root = head[s];
    } else {
      tree.parent[head[s]] = head[up];
    }
  }
  tree.children.resize(n);
  for (uint32_t m = 0; m < n; ++m) {
    if (tree.parent[m] != kNone) tree.children[tree.parent[m]].push_back(m);
  }
  tree.order.push_back(root);
  for (size_t i = 0; i < tree.order.size(); ++i) {
    for (const uint32_t child : tree.children[tree.order[i]]) tree.order.push_back(child);
  }
  TRAINYARD_ASSERT(tree.order.size() == n);
  return tree;
}

MessagePlan make_plan(const CollectiveRequest& r, int64_t configured_channels, int64_t chunk) {
  const GroupLayout layout(r);
  const uint32_t n = layout.members();
  const bool up = r.kind != CollectiveKind::broadcast;
  const bool down = r.kind != CollectiveKind::reduce;
  int64_t channels = configured_channels;
  if (channels <= 0) {
    // One per rail that all servers have, so that every NIC carries its share.
    channels = layout.server_count() > 1 ? static_cast<int64_t>(layout.common.size()) : 1;
    channels = std::max<int64_t>(1, channels);
  }
  const int64_t parts = std::min<int64_t>(2 * channels, r.bytes);
  MessagePlan plan(n);
  for (int64_t part = 0; part < parts; ++part) {
    const auto channel = static_cast<uint32_t>(part / 2);
    const auto half = static_cast<uint32_t>(part % 2);
    const Tree tree = make_tree(layout, channel, half, up != down);
    // Up and down are connections of their own, as in NCCL.
    const uint32_t going_up = 4 * channel + 2 * half;
    const uint32_t going_down = going_up + 1;
    const int64_t bytes = part_of(r.bytes, parts, part);
    int64_t chunks =
        (bytes + (chunk > 0 ? chunk : kChunkBytes) - 1) / (chunk > 0 ? chunk : kChunkBytes);
    if (chunk == 0) chunks = std::min(chunks, kMaxChunks);
    std::vector<uint32_t> raised(n), lowered(n);  // messages of a chunk, by lower end
    for (int64_t k = 0; k < chunks; ++k) {
      const int64_t size = part_of(bytes, chunks, k);
      std::fill(raised.begin(), raised.end(), kNone);
      std::fill(lowered.begin(), lowered.end(), kNone);
      const auto from_below = [&](uint32_t m) {
        std::vector<uint32_t> all;
        for (const uint32_t child : tree.children[m]) all.push_back(raised[child]);
        return all;
      };
      for (size_t i = tree.order.size(); up && i-- > 1;) {
        const uint32_t m = tree.order[i];
        raised[m] = plan.add(m, tree.parent[m], size, going_up, from_below(m));
      }
      for (size_t i = 1; down && i < tree.order.size(); ++i) {
        const uint32_t m = tree.order[i];
        const uint32_t p = tree.parent[m];
        std::vector<uint32_t> after;
        if (p != tree.order[0]) {
          after.push_back(lowered[p]);
        } else if (up) {
          after = from_below(p);
        }
        lowered[m] = plan.add(p, m, size, going_down, after);
      }
    }
  }
  return plan;
}

class DoubleTree final : public CollectiveAlgorithm {
 public:
  explicit DoubleTree(const Params& p)
      : channels_(p.is_word("channels", "auto") ? 0 : p.integer("channels")),
        chunk_(p.is_word("chunk", "auto") ? 0 : p.bytes("chunk").count()) {}
  [[nodiscard]] std::string name() const override { return "tree"; }
  [[nodiscard]] bool supports(CollectiveKind k) const override {
    return k == CollectiveKind::all_reduce || k == CollectiveKind::barrier ||
           k == CollectiveKind::broadcast || k == CollectiveKind::reduce;
  }
  [[nodiscard]] std::unique_ptr<CollectiveRun> begin(const CollectiveRequest& r) const override {
    return std::make_unique<PlannedRun>(make_plan(r, channels_, chunk_));
  }
  [[nodiscard]] int64_t sent_per_member(const CollectiveRequest& r) const override {
    // Every edge of a tree carries every byte once per direction.
    const auto n = static_cast<int64_t>(r.members->size());
    const bool once = r.kind == CollectiveKind::broadcast || r.kind == CollectiveKind::reduce;
    return static_cast<int64_t>(static_cast<__int128>(r.bytes) * (n - 1) * (once ? 1 : 2) / n);
  }

 private:
  int64_t channels_, chunk_;
};

const RegisterModel<CollectiveFactory> kRegistration{
    {"collective", "tree",
     "Double binary tree between servers, chains inside them, in chunks: all-reduce, broadcast and "
     "reduce.",
     "NCCL 2.30 src/graph/trees.cc; nccl-measured 2.5, 2.7; A:N112", collective_params()},
    [](const Params& p) { return std::make_unique<DoubleTree>(p); }};

}  // namespace
}  // namespace trainyard
