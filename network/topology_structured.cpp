// SPDX-License-Identifier: MIT
// Structured fabrics: single switch, leaf-spine, rail-optimized leaf-spine.
#include <algorithm>

#include "network/topology.h"

namespace trainyard {
namespace {

std::vector<ParamSpec> with(std::vector<ParamSpec> a, const std::vector<ParamSpec>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::vector<ParamSpec> kCable = {
    {"link.rate",
     ParamType::rate,
     "auto",
     "1Mbps",
     "",
     {"auto"},
     "rate of a switch-to-switch link; auto = the NIC rate",
     ""},
    {"link.length",
     ParamType::length,
     "30m",
     "0m",
     "100km",
     {},
     "length of every cable outside the servers",
     "DESIGN 9.1"},
    {"link.delay",
     ParamType::time,
     "auto",
     "0ns",
     "10ms",
     {"auto"},
     "propagation delay of every cable outside the servers; auto = length x 5 ns/m",
     "protocols 5.5"},
    {"nic.rate",
     ParamType::rate,
     "400Gbps",
     "1Mbps",
     "",
     {},
     "rate of one NIC port",
     "H100-class servers: one 400 Gb/s NIC per GPU"},
};

const std::vector<ParamSpec> kScaleUp = {
    {"scale_up.kind",
     ParamType::choice,
     "nvswitch",
     "",
     "",
     {"nvswitch", "none"},
     "what connects the GPUs of a server",
     ""},
    {"scale_up.rate",
     ParamType::rate,
     "450GBps",
     "1Mbps",
     "",
     {},
     "rate between one GPU and the scale-up switch, per direction",
     "NVLink 4: 900 GB/s is the sum of both directions"},
    {"scale_up.latency",
     ParamType::time,
     "500ns",
     "0ns",
     "100us",
     {},
     "one-way latency GPU to GPU through the scale-up switch",
     "DESIGN 9.1"},
};

const std::vector<ParamSpec> kLeafSpine = {
    {"leaf_radix",
     ParamType::integer,
     "64",
     "2",
     "1024",
     {},
     "ports of a leaf switch; half of them face down at oversubscription 1",
     "DESIGN 9.1"},
    {"spine_radix",
     ParamType::integer,
     "auto",
     "1",
     "4096",
     {"auto"},
     "ports of a spine switch; auto = leaf_radix",
     ""},
    {"oversubscription",
     ParamType::real,
     "1",
     "0.01",
     "64",
     {},
     "down capacity of a leaf divided by its up capacity",
     "DESIGN 9.1"},
};

Rate rate_or(const Params& p, const std::string& name, Rate fallback) {
  return p.is_word(name, "auto") ? fallback : p.rate(name);
}

std::string gpu_name(uint32_t node, uint32_t gpu) {
  return "node" + std::to_string(node) + ".gpu" + std::to_string(gpu);
}

/// GPUs of all servers, rank = node * gpus_per_node + gpu, then one scale-up switch per server.
void add_servers(Topology& t, const TopologyRequest& r, const Params& p) {
  for (uint32_t n = 0; n < r.nodes; ++n) {
    for (uint32_t g = 0; g < r.gpus_per_node; ++g) t.add_node(gpu_name(n, g), NodeKind::host);
  }
  if (p.is_word("scale_up.kind", "none") || r.gpus_per_node < 2) return;
  // The latency is GPU to GPU: two links.
  const Time hop = Time::ps(p.time("scale_up.latency").ps() / 2);
  for (uint32_t n = 0; n < r.nodes; ++n) {
    const uint32_t sw = t.add_node("node" + std::to_string(n) + ".nvswitch", NodeKind::scale_up);
    for (uint32_t g = 0; g < r.gpus_per_node; ++g) {
      t.add_link(n * r.gpus_per_node + g, sw, p.rate("scale_up.rate"), hop);
    }
  }
}

/// Connects `leaves` (with `down` used ports each) to spines in a full bipartite pattern, with
/// parallel links where a leaf has more uplinks than there are spines.
void add_spines(Topology& t, const TopologyRequest& r, const Params& p,
                const std::vector<uint32_t>& leaves, uint32_t down, Rate nic, Time delay) {
  if (leaves.size() < 2) return;
  const Rate rate = rate_or(p, "link.rate", nic);
  const double over = p.real("oversubscription");
  const double want = static_cast<double>(down) * static_cast<double>(nic.bps()) /
                      static_cast<double>(rate.bps()) / over;
  auto up = static_cast<uint32_t>(want);
  if (static_cast<double>(up) < want) ++up;
  const auto radix = static_cast<uint32_t>(p.integer("leaf_radix"));
  if (down + up > radix) {
    throw UserError(r.pos,
                    "a leaf needs " + std::to_string(down) + " down and " + std::to_string(up) +
                        " up ports but leaf_radix is " + std::to_string(radix),
                    "raise leaf_radix or oversubscription");
  }
  const uint32_t spine_radix =
      p.is_word("spine_radix", "auto") ? radix : static_cast<uint32_t>(p.integer("spine_radix"));
  const auto n_leaves = static_cast<uint32_t>(leaves.size());
  // The smallest number of spines that offers the ports and divides the uplinks evenly.
  uint32_t spines = (n_leaves * up + spine_radix - 1) / spine_radix;
  while (spines < up && (up % spines != 0 || n_leaves * (up / spines) > spine_radix)) ++spines;
  if (up % spines != 0 || n_leaves * (up / spines) > spine_radix) {
    throw UserError(r.pos,
                    std::to_string(n_leaves) + " leaves with " + std::to_string(up) +
                        " uplinks each do not fit spines of radix " + std::to_string(spine_radix),
                    "a third tier is needed; raise spine_radix or describe the fabric in a file");
  }
  std::vector<uint32_t> spine_nodes;
  for (uint32_t s = 0; s < spines; ++s) {
    spine_nodes.push_back(t.add_node("spine" + std::to_string(s), NodeKind::spine));
  }
  for (const uint32_t leaf : leaves) {
    for (const uint32_t spine : spine_nodes) {
      for (uint32_t k = 0; k < up / spines; ++k) t.add_link(leaf, spine, rate, delay);
    }
  }
}

/// GPUs on the leaves in rank order; hosts per leaf `down`. Returns the leaves.
std::vector<uint32_t> add_leaves(Topology& t, const Params& p, uint32_t hosts, uint32_t down) {
  std::vector<uint32_t> leaves;
  const Time delay = p.link_delay("link.delay", "link.length");
  for (uint32_t first = 0; first < hosts; first += down) {
    const uint32_t leaf = t.add_node("leaf" + std::to_string(leaves.size()), NodeKind::leaf);
    leaves.push_back(leaf);
    for (uint32_t h = first; h < std::min(hosts, first + down); ++h) {
      t.add_link(h, leaf, p.rate("nic.rate"), delay);
    }
  }
  return leaves;
}

void check_nics(const TopologyRequest& r) {
  if (r.nics_per_node != r.gpus_per_node) {
    throw UserError(r.pos,
                    "nics_per_node is " + std::to_string(r.nics_per_node) + ", gpus_per_node is " +
                        std::to_string(r.gpus_per_node),
                    "structured topologies have one NIC per GPU; describe others in a file");
  }
}

Topology rail_optimized(const TopologyRequest& r, const Params& p) {
  check_nics(r);
  if (p.integer("planes") != 1) {
    throw UserError(p.origin("planes").pos, "planes above 1 are not built yet", "use planes: 1");
  }
  Topology t;
  add_servers(t, r, p);
  const Rate nic = p.rate("nic.rate");
  const Time delay = p.link_delay("link.delay", "link.length");
  const auto radix = static_cast<uint32_t>(p.integer("leaf_radix"));
  const double over = p.real("oversubscription");
  // Down ports of a leaf such that down + down / over <= radix.
  auto down_max = static_cast<uint32_t>(static_cast<double>(radix) * over / (1.0 + over));
  down_max = std::max(1U, down_max);
  const uint32_t groups = (r.nodes + down_max - 1) / down_max;
  std::vector<uint32_t> leaves;
  for (uint32_t group = 0; group < groups; ++group) {
    for (uint32_t rail = 0; rail < r.gpus_per_node; ++rail) {
      const std::string name =
          groups == 1 ? "rail" + std::to_string(rail)
                      : "group" + std::to_string(group) + ".rail" + std::to_string(rail);
      const uint32_t leaf = t.add_node(name, NodeKind::leaf);
      leaves.push_back(leaf);
      const uint32_t last = std::min(r.nodes, (group + 1) * down_max);
      for (uint32_t n = group * down_max; n < last; ++n) {
        t.add_link(n * r.gpus_per_node + rail, leaf, nic, delay);
      }
    }
  }
  add_spines(t, r, p, leaves, std::min(r.nodes, down_max), nic, delay);
  t.finish();
  return t;
}

Topology leaf_spine(const TopologyRequest& r, const Params& p) {
  check_nics(r);
  Topology t;
  add_servers(t, r, p);
  const Rate nic = p.rate("nic.rate");
  const Time delay = p.link_delay("link.delay", "link.length");
  const auto radix = static_cast<uint32_t>(p.integer("leaf_radix"));
  const double over = p.real("oversubscription");
  const uint32_t hosts = r.nodes * r.gpus_per_node;
  auto down = static_cast<uint32_t>(static_cast<double>(radix) * over / (1.0 + over));
  down = std::max(1U, std::min(down, hosts));
  const auto leaves = add_leaves(t, p, hosts, down);
  add_spines(t, r, p, leaves, down, nic, delay);
  t.finish();
  return t;
}

Topology single_switch(const TopologyRequest& r, const Params& p) {
  check_nics(r);
  Topology t;
  add_servers(t, r, p);
  const uint32_t sw = t.add_node("leaf0", NodeKind::leaf);
  const Time delay = p.link_delay("link.delay", "link.length");
  for (uint32_t h = 0; h < r.nodes * r.gpus_per_node; ++h) {
    t.add_link(h, sw, p.rate("nic.rate"), delay);
  }
  t.finish();
  return t;
}

/// Servers of a fabric whose size is given by its own parameters: all places unless the scenario
/// says how many.
TopologyRequest sized(const TopologyRequest& r, uint32_t places, const std::string& what) {
  TopologyRequest out = r;
  if (r.nodes_auto && r.nodes * r.gpus_per_node < places) out.nodes = places / r.gpus_per_node;
  if (out.nodes == 0) out.nodes = 1;
  if (out.nodes * r.gpus_per_node > places) {
    throw UserError(r.pos,
                    what + " has " + std::to_string(places) + " places, " +
                        std::to_string(out.nodes) + " nodes x " + std::to_string(r.gpus_per_node) +
                        " GPUs need " + std::to_string(out.nodes * r.gpus_per_node),
                    "enlarge the fabric or lower cluster.nodes");
  }
  return out;
}

Topology fat_tree(const TopologyRequest& request, const Params& p) {
  check_nics(request);
  const auto k = static_cast<uint32_t>(p.integer("k"));
  if (k % 2 != 0) throw UserError(p.origin("k").pos, "k must be even, not " + std::to_string(k));
  const uint32_t half = k / 2;
  const TopologyRequest r =
      sized(request, k * half * half, "a fat-tree of k = " + std::to_string(k));
  Topology t;
  add_servers(t, r, p);
  const Rate nic = p.rate("nic.rate");
  const Rate rate = rate_or(p, "link.rate", nic);
  const Time delay = p.link_delay("link.delay", "link.length");
  const uint32_t hosts = r.nodes * r.gpus_per_node;
  std::vector<uint32_t> edge;
  std::vector<uint32_t> aggregation;
  std::vector<uint32_t> core;
  for (uint32_t i = 0; i < k * half; ++i) {
    edge.push_back(t.add_node("edge" + std::to_string(i), NodeKind::leaf));
  }
  for (uint32_t i = 0; i < k * half; ++i) {
    aggregation.push_back(t.add_node("aggregation" + std::to_string(i), NodeKind::spine));
  }
  for (uint32_t i = 0; i < half * half; ++i) {
    core.push_back(t.add_node("core" + std::to_string(i), NodeKind::spine));
  }
  for (uint32_t h = 0; h < hosts; ++h) t.add_link(h, edge[h / half], nic, delay);
  for (uint32_t pod = 0; pod < k; ++pod) {
    for (uint32_t e = 0; e < half; ++e) {
      for (uint32_t a = 0; a < half; ++a) {
        t.add_link(edge[pod * half + e], aggregation[pod * half + a], rate, delay);
      }
    }
    for (uint32_t a = 0; a < half; ++a) {
      for (uint32_t c = 0; c < half; ++c) {
        t.add_link(aggregation[pod * half + a], core[a * half + c], rate, delay);
      }
    }
  }
  t.finish();
  return t;
}

Topology clos3(const TopologyRequest& request, const Params& p) {
  check_nics(request);
  const auto pods = static_cast<uint32_t>(p.integer("pods"));
  const auto leaves_per_pod = static_cast<uint32_t>(p.integer("leaves_per_pod"));
  const auto spines_per_pod = static_cast<uint32_t>(p.integer("spines_per_pod"));
  const auto cores_per_plane = static_cast<uint32_t>(p.integer("cores_per_spine"));
  const auto down = static_cast<uint32_t>(p.integer("hosts_per_leaf"));
  const TopologyRequest r = sized(request, pods * leaves_per_pod * down, "this Clos");
  Topology t;
  add_servers(t, r, p);
  const Rate rate = rate_or(p, "link.rate", p.rate("nic.rate"));
  const Time delay = p.link_delay("link.delay", "link.length");
  const auto leaves = add_leaves(t, p, r.nodes * r.gpus_per_node, down);
  std::vector<uint32_t> cores;
  std::vector<uint32_t> spines;
  for (uint32_t i = 0; i < pods * spines_per_pod; ++i) {
    spines.push_back(t.add_node("spine" + std::to_string(i), NodeKind::spine));
  }
  for (uint32_t i = 0; i < spines_per_pod * cores_per_plane; ++i) {
    cores.push_back(t.add_node("core" + std::to_string(i), NodeKind::spine));
  }
  for (uint32_t l = 0; l < leaves.size(); ++l) {
    for (uint32_t s = 0; s < spines_per_pod; ++s) {
      t.add_link(leaves[l], spines[l / leaves_per_pod * spines_per_pod + s], rate, delay);
    }
  }
  // Spine s of every pod meets the cores of plane s.
  for (uint32_t i = 0; i < spines.size(); ++i) {
    for (uint32_t c = 0; c < cores_per_plane; ++c) {
      t.add_link(spines[i], cores[i % spines_per_pod * cores_per_plane + c], rate, delay);
    }
  }
  t.finish();
  return t;
}

const RegisterModel<TopologyFactory> kFatTree{
    {"topology", "fat-tree",
     "k-ary fat-tree: k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 cores, k^3/4 hosts "
     "filled in rank order.",
     "Al-Fares et al., SIGCOMM'08",
     with(with({{"k", ParamType::integer, "8", "4", "128", {}, "ports of every switch; even", ""}},
               kCable),
          kScaleUp)},
    fat_tree};

const RegisterModel<TopologyFactory> kClos3{
    {"topology", "clos3",
     "Three tiers: leaves and spines in pods, spine s of every pod connected to the cores of plane "
     "s.",
     "three-tier Clos",
     with(with({{"pods", ParamType::integer, "4", "1", "1024", {}, "pods", ""},
                {"leaves_per_pod", ParamType::integer, "4", "1", "1024", {}, "leaves of a pod", ""},
                {"hosts_per_leaf", ParamType::integer, "8", "1", "1024", {}, "NICs on a leaf", ""},
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
               kCable),
          kScaleUp)},
    clos3};

const RegisterModel<TopologyFactory> kRail{
    {"topology", "rail-optimized",
     "NIC i of every server goes to the leaf of rail i; leaves of all rails meet in spines. GPUs "
     "of "
     "a server share a scale-up switch.",
     "B: section 3",
     with(with(with({{"planes",
                      ParamType::integer,
                      "1",
                      "1",
                      "16",
                      {},
                      "parallel planes; a plane's port gets rate / planes",
                      "DESIGN 9.1"}},
                    kLeafSpine),
               kCable),
          kScaleUp)},
    rail_optimized};

const RegisterModel<TopologyFactory> kClos{
    {"topology", "leaf-spine", "NICs fill leaves in rank order, all leaves connect to all spines.",
     "two-tier Clos", with(with(kLeafSpine, kCable), kScaleUp)},
    leaf_spine};

const RegisterModel<TopologyFactory> kSingle{
    {"topology", "single-switch", "All NICs on one switch.", "", with(kCable, kScaleUp)},
    single_switch};

}  // namespace
}  // namespace trainyard
