// SPDX-License-Identifier: MIT
// NICs on leaves in rank order: single switch, leaf-spine, k-ary fat-tree, three-tier Clos.
#include "network/topology_builder.h"

namespace trainyard {
namespace {

uint32_t whole(const Params& p, const std::string& name) {
  return static_cast<uint32_t>(p.integer(name));
}

/// Leaves that serve `ranks` hosts, `nics` each (pairs of leaves with a dual ToR), named
/// <base><index>; at least `least`.
std::vector<LeafPlan> fill_leaves(const NicShape& nic, uint32_t ranks, uint32_t nics,
                                  const std::string& base, uint32_t least) {
  std::vector<LeafPlan> leaves;
  for (uint32_t first = 0; first < ranks || leaves.size() < least; first += nics) {
    LeafPlan leaf;
    for (uint32_t h = first; h < std::min(ranks, first + nics); ++h) leaf.ranks.push_back(h);
    for (uint32_t tor = 0; tor < nic.leaves; ++tor) {
      leaf.name = base + std::to_string(leaves.size());
      leaves.push_back(leaf);
    }
  }
  return leaves;
}

uint32_t nics_on(const TopologyRequest& r, const NicShape& nic, uint32_t down) {
  if (down < nic.cables) {
    throw UserError(r.pos,
                    "a NIC has " + std::to_string(nic.cables) + " ports on one leaf, which has " +
                        std::to_string(down) + " that face down",
                    "raise leaf_radix or lower nic.ports");
  }
  return down / nic.cables;
}

Topology leaf_spine(const TopologyRequest& r, const Params& p) {
  check_nics(r);
  const NicShape nic = nic_shape(p);
  Topology t;
  add_servers(t, r, p);
  const uint32_t hosts = r.nodes * r.gpus_per_node;
  const uint32_t nics = std::min(hosts, nics_on(r, nic, most_down_ports(p)));
  for (uint32_t plane = 0; plane < nic.planes; ++plane) {
    TreePlan tree;
    tree.leaves = fill_leaves(nic, hosts, nics, "leaf", 0);
    if (tree.leaves.size() > 1) {
      size_tree(r, p, leaf_size(r, p, nics * nic.cables, nic), nic.leaves, nic, tree);
    }
    add_plane(t, r, p, nic, plane, tree);
  }
  t.finish();
  return t;
}

Topology single_switch(const TopologyRequest& r, const Params& p) {
  check_nics(r);
  const NicShape nic = nic_shape(p);
  Topology t;
  add_servers(t, r, p);
  const uint32_t hosts = r.nodes * r.gpus_per_node;
  TreePlan tree;
  tree.leaves = fill_leaves(nic, hosts, hosts, "leaf", 0);
  add_plane(t, r, p, nic, 0, tree);
  t.finish();
  return t;
}

/// Servers of a fabric whose size is given by its own parameters: all places unless the scenario
/// says how many.
TopologyRequest sized(const TopologyRequest& r, uint64_t places, const std::string& what) {
  TopologyRequest out = r;
  if (r.nodes_auto && uint64_t{r.nodes} * r.gpus_per_node < places) {
    out.nodes = static_cast<uint32_t>(places / r.gpus_per_node);
  }
  if (out.nodes == 0) out.nodes = 1;
  const uint64_t needed = uint64_t{out.nodes} * r.gpus_per_node;
  if (needed > places) {
    throw UserError(r.pos,
                    what + " has " + std::to_string(places) + " places, " +
                        std::to_string(out.nodes) + " nodes x " + std::to_string(r.gpus_per_node) +
                        " GPUs need " + std::to_string(needed),
                    "enlarge the fabric or lower cluster.nodes");
  }
  return out;
}

/// What fat_tree and clos3 differ in.
struct ThreeTiers {
  std::string what;
  uint32_t pods, leaves_per_pod, down, spines_per_pod, cores_per_spine;
  std::string leaf_name, spine_name;
  bool empty_leaves;  ///< build leaves without hosts, too
};

Topology three_tiers(const TopologyRequest& request, const Params& p, const ThreeTiers& shape) {
  check_nics(request);
  const NicShape nic = nic_shape(p);
  if (shape.leaves_per_pod % nic.leaves != 0) {
    throw UserError(
        p.origin("tor").pos,
        "pods of " + std::to_string(shape.leaves_per_pod) + " leaves cannot be divided into pairs",
        "use an even number of leaves per pod or tor: single");
  }
  const uint32_t nics = nics_on(request, nic, shape.down);
  const uint64_t most = uint64_t{shape.pods} * shape.leaves_per_pod;
  constexpr uint64_t kMostPlaces = 4'000'000;
  const uint64_t places = most / nic.leaves * nics;
  if (places > kMostPlaces) {
    throw UserError(request.pos, shape.what + " has " + std::to_string(places) +
                                     " places, more than " + std::to_string(kMostPlaces));
  }
  const TopologyRequest r = sized(request, places, shape.what);
  Topology t;
  add_servers(t, r, p);
  for (uint32_t plane = 0; plane < nic.planes; ++plane) {
    TreePlan tree;
    tree.leaves = fill_leaves(nic, r.nodes * r.gpus_per_node, nics, shape.leaf_name,
                              shape.empty_leaves ? static_cast<uint32_t>(most) : 0);
    tree.leaves_per_pod = shape.leaves_per_pod;
    tree.pods = shape.pods;
    tree.spines_per_pod = shape.spines_per_pod;
    tree.cores_per_spine = shape.cores_per_spine;
    tree.spine_name = shape.spine_name;
    tree.fabric_rate = p.is_word("link.rate", "auto") ? nic.port_rate : p.rate("link.rate");
    add_plane(t, r, p, nic, plane, tree);
  }
  t.finish();
  return t;
}

Topology fat_tree(const TopologyRequest& request, const Params& p) {
  const uint32_t k = whole(p, "k");
  if (k % 2 != 0) throw UserError(p.origin("k").pos, "k must be even, not " + std::to_string(k));
  const uint32_t half = k / 2;
  return three_tiers(request, p,
                     {"a fat-tree of k = " + std::to_string(k), k, half, half, half, half, "edge",
                      "aggregation", true});
}

Topology clos3(const TopologyRequest& request, const Params& p) {
  return three_tiers(
      request, p,
      {"this Clos", whole(p, "pods"), whole(p, "leaves_per_pod"), whole(p, "hosts_per_leaf"),
       whole(p, "spines_per_pod"), whole(p, "cores_per_spine"), "leaf", "spine", false});
}

const RegisterModel<TopologyFactory> kFatTree{
    {"topology", "fat-tree",
     "k-ary fat-tree: k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 cores, k^3/4 hosts "
     "filled in rank order.",
     "Al-Fares et al., SIGCOMM'08; B:F1",
     join_params(
         {{{"k", ParamType::integer, "8", "4", "128", {}, "ports of every switch; even", ""}},
          nic_params(),
          cable_params(),
          scale_up_params()})},
    fat_tree};

const RegisterModel<TopologyFactory> kClos3{
    {"topology", "clos3",
     "Three tiers: leaves and spines in pods, spine s of every pod connected to the cores of plane "
     "s.",
     "three-tier Clos",
     join_params(
         {{{"pods", ParamType::integer, "4", "1", "1024", {}, "pods", ""},
           {"leaves_per_pod", ParamType::integer, "4", "1", "1024", {}, "leaves of a pod", ""},
           {"hosts_per_leaf",
            ParamType::integer,
            "8",
            "1",
            "1024",
            {},
            "ports of a leaf that face down: NICs, where each has one port on it",
            ""},
           {"spines_per_pod",
            ParamType::integer,
            "4",
            "1",
            "1024",
            {},
            "spines of a pod; every leaf has one link to each",
            ""},
           {"cores_per_spine",
            ParamType::integer,
            "4",
            "1",
            "1024",
            {},
            "cores that a spine has one link to each",
            ""}},
          nic_params(),
          cable_params(),
          scale_up_params()})},
    clos3};

const RegisterModel<TopologyFactory> kLeafSpine{
    {"topology", "leaf-spine", "NICs fill leaves in rank order, all leaves connect to all spines.",
     "two-tier Clos",
     join_params({nic_params(), tier_params(), cable_params(), scale_up_params()})},
    leaf_spine};

const RegisterModel<TopologyFactory> kSingle{
    {"topology", "single-switch", "All NICs on one switch.", "",
     join_params({cable_params(), scale_up_params()})},
    single_switch};

}  // namespace
}  // namespace trainyard
