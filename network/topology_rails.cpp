// SPDX-License-Identifier: MIT
// Rail fabrics: the NIC at position i of every server meets the leaves of rail i. Rails meet in
// spines (rail-optimized) or only inside scale-up domains (rail-only).
#include "network/topology_builder.h"

namespace trainyard {
namespace {

/// Which rank is on which rail. Servers, or as many of them as have one NIC on every rail, are
/// blocks of `unit` ranks with `per_rail` NICs on each rail.
struct Rails {
  uint32_t count = 1, unit = 1, per_rail = 1;
  [[nodiscard]] uint32_t of(uint32_t rank) const { return rank % unit % count; }
};

Rails rails_of(const TopologyRequest& r, const Params& p) {
  Rails rails;
  const uint32_t gpus = r.gpus_per_node;
  rails.count = p.is_word("rails", "auto") ? gpus : static_cast<uint32_t>(p.integer("rails"));
  if (rails.count % gpus != 0 && gpus % rails.count != 0) {
    throw UserError(p.origin("rails").pos,
                    std::to_string(rails.count) + " rails do not fit servers of " +
                        std::to_string(gpus) + " NICs",
                    "use a multiple or a divisor of nics_per_node");
  }
  rails.unit = std::max(gpus, rails.count);
  rails.per_rail = rails.unit / rails.count;
  return rails;
}

/// Leaves of one plane for `rails`, groups of `blocks_per_leaf` blocks in order; in a group rail by
/// rail.
std::vector<LeafPlan> rail_leaves(const TopologyRequest& r, const NicShape& nic, const Rails& rails,
                                  uint32_t first_rail, uint32_t last_rail,
                                  uint32_t blocks_per_leaf) {
  const uint32_t hosts = r.nodes * r.gpus_per_node;
  const uint32_t blocks = (hosts + rails.unit - 1) / rails.unit;
  const uint32_t groups = (blocks + blocks_per_leaf - 1) / blocks_per_leaf;
  std::vector<LeafPlan> leaves;
  for (uint32_t group = 0; group < groups; ++group) {
    for (uint32_t rail = first_rail; rail < last_rail; ++rail) {
      LeafPlan leaf;
      leaf.name = (groups == 1 ? "" : "group" + std::to_string(group) + ".") + "rail" +
                  std::to_string(rail);
      leaf.rail = static_cast<int32_t>(rail);
      const uint32_t last = std::min(blocks, (group + 1) * blocks_per_leaf);
      for (uint32_t block = group * blocks_per_leaf; block < last; ++block) {
        for (uint32_t i = 0; i < rails.per_rail; ++i) {
          const uint32_t rank = block * rails.unit + rail + i * rails.count;
          if (rank < hosts) leaf.ranks.push_back(rank);
        }
      }
      const std::string name = leaf.name;
      for (uint32_t tor = 0; tor < nic.leaves; ++tor) {
        if (nic.leaves > 1) leaf.name = name + ".tor" + std::to_string(tor);
        leaves.push_back(leaf);
      }
    }
  }
  return leaves;
}

/// Blocks of servers that a leaf of `down` ports serves.
uint32_t blocks_on(const TopologyRequest& r, const Rails& rails, const NicShape& nic,
                   uint32_t down) {
  const uint32_t ports = rails.per_rail * nic.cables;
  if (down < ports) {
    throw UserError(r.pos,
                    "a server has " + std::to_string(ports) + " ports on one leaf, which has " +
                        std::to_string(down) + " that face down",
                    "raise leaf_radix or use more rails");
  }
  return down / ports;
}

/// One plane of leaves under common spines; `rails` from first to last.
void add_rails(Topology& t, const TopologyRequest& r, const Params& p, const NicShape& nic,
               uint32_t plane, const Rails& rails, uint32_t first, uint32_t last, uint32_t down,
               const std::string& spine_prefix) {
  TreePlan tree;
  const uint32_t per_leaf = blocks_on(r, rails, nic, down);
  tree.leaves = rail_leaves(r, nic, rails, first, last, per_leaf);
  tree.spine_name = spine_prefix + "spine";
  tree.core_name = spine_prefix + "core";
  const uint32_t blocks = (r.nodes * r.gpus_per_node + rails.unit - 1) / rails.unit;
  if (tree.leaves.size() > 1) {
    const uint32_t used = std::min(blocks, per_leaf) * rails.per_rail * nic.cables;
    size_tree(r, p, leaf_size(r, p, used, nic), (last - first) * nic.leaves, nic, tree);
  }
  add_plane(t, r, p, nic, plane, tree);
}

Topology start(const TopologyRequest& r, const Params& p, const Rails& rails) {
  check_nics(r);
  Topology t;
  add_servers(t, r, p, [&](uint32_t rank) { return static_cast<int32_t>(rails.of(rank)); });
  return t;
}

Topology rail_optimized(const TopologyRequest& r, const Params& p) {
  const NicShape nic = nic_shape(p);
  const Rails rails = rails_of(r, p);
  Topology t = start(r, p, rails);
  for (uint32_t plane = 0; plane < nic.planes; ++plane) {
    add_rails(t, r, p, nic, plane, rails, 0, rails.count, most_down_ports(p), "");
  }
  t.finish();
  return t;
}

Topology rail_only(const TopologyRequest& r, const Params& p) {
  const NicShape nic = nic_shape(p);
  const Rails rails = rails_of(r, p);
  Topology t = start(r, p, rails);
  const uint32_t blocks = (r.nodes * r.gpus_per_node + rails.unit - 1) / rails.unit;
  const auto radix = static_cast<uint32_t>(p.integer("leaf_radix"));
  // A rail that one leaf can serve has no uplinks: all ports face down.
  const bool one = p.is_word("leaf_down", "auto") && nic.leaves == 1 &&
                   uint64_t{blocks} * rails.per_rail * nic.cables <= radix;
  for (uint32_t plane = 0; plane < nic.planes; ++plane) {
    for (uint32_t rail = 0; rail < rails.count; ++rail) {
      add_rails(t, r, p, nic, plane, rails, rail, rail + 1, one ? radix : most_down_ports(p),
                "rail" + std::to_string(rail) + ".");
    }
  }
  t.finish(Reach::relayed);
  return t;
}

std::vector<ParamSpec> rail_params() {
  return join_params({{{"rails",
                        ParamType::integer,
                        "auto",
                        "1",
                        "1024",
                        {"auto"},
                        "rails, a divisor of the NICs of a server or a multiple (rails by position "
                        "in the rack); auto = one per NIC",
                        "B:T4, B:T8"}},
                      nic_params(),
                      tier_params(),
                      cable_params(),
                      scale_up_params()});
}

const RegisterModel<TopologyFactory> kOptimized{
    {"topology", "rail-optimized",
     "NIC i of every server goes to the leaf of rail i; leaves of all rails meet in spines. GPUs "
     "of a server share a scale-up switch.",
     "B: section 3", rail_params()},
    rail_optimized};

const RegisterModel<TopologyFactory> kOnly{
    {"topology", "rail-only",
     "NIC i of every server goes to the leaf of rail i, and every rail is a network of its own: "
     "one "
     "leaf where that is enough, a Clos otherwise. Rails meet inside scale-up domains only.",
     "B:T6, B:V20", rail_params()},
    rail_only};

}  // namespace
}  // namespace trainyard
