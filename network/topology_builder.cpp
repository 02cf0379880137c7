// SPDX-License-Identifier: MIT
#include "network/topology_builder.h"

#include <cmath>

#include "network/pcie_server.h"

namespace trainyard {
namespace {

// Sizes come from ratios that a user writes as decimals or fractions.
constexpr double kRounding = 1e-9;

uint32_t ceil_of(double x) {
  return static_cast<uint32_t>(std::ceil(x - kRounding));
}
uint32_t floor_of(double x) {
  return static_cast<uint32_t>(std::floor(x + kRounding));
}

uint32_t whole(const Params& p, const std::string& name) {
  return static_cast<uint32_t>(p.integer(name));
}
uint32_t whole_or(const Params& p, const std::string& name, uint32_t fallback) {
  return p.is_word(name, "auto") ? fallback : whole(p, name);
}

/// Ports that face down of `radix`, so that down + down / over <= radix.
uint32_t down_share(uint32_t radix, double over) {
  return std::max(1U, floor_of(static_cast<double>(radix) * over / (1.0 + over)));
}

}  // namespace

std::vector<ParamSpec> join_params(const std::vector<std::vector<ParamSpec>>& groups) {
  std::vector<ParamSpec> all;
  for (const auto& g : groups) all.insert(all.end(), g.begin(), g.end());
  return all;
}

const std::vector<ParamSpec>& cable_params() {
  using PT = ParamType;
  static const std::vector<ParamSpec> specs = {
      {"link.rate",
       PT::rate,
       "auto",
       "1Mbps",
       "",
       {"auto"},
       "rate of a switch-to-switch link; auto = the rate of a NIC port",
       ""},
      {"link.length",
       PT::length,
       "30m",
       "0m",
       "100km",
       {},
       "length of every cable outside the servers",
       "DESIGN 9.1"},
      {"link.delay",
       PT::time,
       "auto",
       "0ns",
       "10ms",
       {"auto"},
       "propagation delay of every cable outside the servers; auto = length x 5 ns/m",
       "protocols 5.5"},
      {"nic.rate",
       PT::rate,
       "400Gbps",
       "1Mbps",
       "",
       {},
       "rate of one NIC, all its ports together",
       "H100-class servers: one 400 Gb/s NIC per GPU"},
  };
  return specs;
}

const std::vector<ParamSpec>& nic_params() {
  using PT = ParamType;
  static const std::vector<ParamSpec> specs = {
      {"planes",
       PT::integer,
       "1",
       "1",
       "16",
       {},
       "parallel planes without links between them; every NIC has a port in each",
       "DESIGN 9.1, B:T7"},
      {"nic.ports",
       PT::integer,
       "auto",
       "1",
       "64",
       {"auto"},
       "ports of one NIC, nic.rate / ports each; auto = one per plane, two for a dual ToR in one "
       "plane",
       "B:T7, B:T14"},
      {"tor",
       PT::choice,
       "single",
       "",
       "",
       {"single", "dual"},
       "dual: the ports of a NIC go to two leaves that share nothing",
       "B:T14"},
  };
  return specs;
}

const std::vector<ParamSpec>& scale_up_params() {
  using PT = ParamType;
  static const std::vector<ParamSpec> specs = join_params(
      {{
           {"scale_up.kind",
            PT::choice,
            "nvswitch",
            "",
            "",
            {"nvswitch", "pcie", "none"},
            "what connects the GPUs of a server: an NVLink-class switch, PCIe and the CPUs, "
            "nothing",
            ""},
           {"scale_up.rate",
            PT::rate,
            "450GBps",
            "1Mbps",
            "",
            {},
            "rate between one GPU and the scale-up switch, per direction",
            "NVLink 4: 900 GB/s is the sum of both directions"},
           {"scale_up.latency",
            PT::time,
            "500ns",
            "0ns",
            "100us",
            {},
            "one-way latency GPU to GPU through the scale-up switch, that is of two links",
            "DESIGN 9.1"},
           {"scale_up.domain",
            PT::integer,
            "auto",
            "1",
            "65536",
            {"auto"},
            "GPUs of one scale-up domain, a multiple or a part of a server (72: a rack of NVL72); "
            "auto "
            "= "
            "the GPUs of a server",
            "B:T22, B:W19"},
       },
       pcie_params()});
  return specs;
}

const std::vector<ParamSpec>& tier_params() {
  using PT = ParamType;
  static const std::vector<ParamSpec> specs = {
      {"leaf_radix",
       PT::integer,
       "64",
       "2",
       "1024",
       {},
       "ports of a leaf switch; half of them face down at oversubscription 1",
       "DESIGN 9.1"},
      {"leaf_down",
       PT::integer,
       "auto",
       "1",
       "1024",
       {"auto"},
       "ports of a leaf that face down; auto = as many as leaf_radix and oversubscription allow",
       ""},
      {"spine_radix",
       PT::integer,
       "auto",
       "1",
       "4096",
       {"auto"},
       "ports of a spine switch; auto = leaf_radix",
       ""},
      {"oversubscription",
       PT::real,
       "1",
       "0.01",
       "64",
       {},
       "down capacity of a leaf divided by its up capacity",
       "DESIGN 9.1"},
      {"tiers",
       PT::integer,
       "2",
       "2",
       "3",
       {},
       "tiers of switches: 2 = leaves and spines, 3 = pods of these below cores",
       "B:T1"},
      {"pods",
       PT::integer,
       "auto",
       "1",
       "4096",
       {"auto"},
       "pods of a fabric with 3 tiers; auto = as few as the spines allow",
       "B:T16"},
      {"spine_oversubscription",
       PT::real,
       "1",
       "0.01",
       "64",
       {},
       "down capacity of a spine divided by its up capacity, with 3 tiers",
       ""},
      {"core_radix",
       PT::integer,
       "auto",
       "1",
       "4096",
       {"auto"},
       "ports of a core switch, with 3 tiers; auto = spine_radix",
       ""},
      {"shuffle",
       PT::integer,
       "1",
       "1",
       "16",
       {},
       "lanes that a shuffle box splits each port between switches into, each to another spine",
       "B:T17"},
  };
  return specs;
}

NicShape nic_shape(const Params& p) {
  NicShape s;
  s.port_rate = p.rate("nic.rate");
  if (!p.has_spec("planes")) return s;
  s.planes = whole(p, "planes");
  const bool dual = p.is_word("tor", "dual");
  s.ports = whole_or(p, "nic.ports", s.planes == 1 && dual ? 2 : s.planes);
  const SourcePos& pos = p.origin(p.is_word("nic.ports", "auto") ? "planes" : "nic.ports").pos;
  if (s.ports % s.planes != 0) {
    throw UserError(pos,
                    std::to_string(s.ports) + " NIC ports do not divide evenly over " +
                        std::to_string(s.planes) + " planes",
                    "nic.ports must be a multiple of planes");
  }
  if (dual && s.ports < 2) {
    throw UserError(p.origin("tor").pos, "a NIC with one port cannot meet two leaves",
                    "raise nic.ports to 2 or use tor: single");
  }
  const uint32_t in_plane = s.ports / s.planes;
  // One port in each of several planes meets several leaves as it is.
  if (dual && in_plane > 1) {
    if (in_plane % 2 != 0) {
      throw UserError(pos,
                      std::to_string(in_plane) +
                          " NIC ports per plane do not divide evenly over "
                          "two leaves",
                      "use an even number or tor: single");
    }
    s.leaves = 2;
  }
  s.cables = in_plane / s.leaves;
  if (s.port_rate.bps() % s.ports != 0) {
    throw UserError(pos, "a NIC of " + print_rate(s.port_rate) + " does not divide into " +
                             std::to_string(s.ports) + " ports of whole bits per second");
  }
  s.port_rate = Rate::bps(s.port_rate.bps() / s.ports);
  return s;
}

void check_nics(const TopologyRequest& r) {
  if (r.nics_per_node != r.gpus_per_node) {
    throw UserError(r.pos,
                    "nics_per_node is " + std::to_string(r.nics_per_node) + ", gpus_per_node is " +
                        std::to_string(r.gpus_per_node),
                    "structured topologies have one NIC per GPU; describe others in a file");
  }
}

void add_servers(Topology& t, const TopologyRequest& r, const Params& p,
                 const std::function<int32_t(uint32_t rank)>& rail_of) {
  const uint32_t gpus = r.nodes * r.gpus_per_node;
  for (uint32_t n = 0; n < r.nodes; ++n) {
    for (uint32_t g = 0; g < r.gpus_per_node; ++g) {
      NodePlace place;
      if (rail_of) place.rail = rail_of(n * r.gpus_per_node + g);
      t.add_node("node" + std::to_string(n) + ".gpu" + std::to_string(g), NodeKind::host, place);
    }
  }
  check_pcie_params(r, p);
  if (p.is_word("scale_up.kind", "pcie")) {
    if (r.gpus_per_node < 2) return;
    for (uint32_t first = 0; first < gpus; first += r.gpus_per_node)
      add_pcie_server(t, r, p, first);
    return;
  }
  const uint32_t domain = whole_or(p, "scale_up.domain", r.gpus_per_node);
  if (domain % r.gpus_per_node != 0 && r.gpus_per_node % domain != 0) {
    throw UserError(p.origin("scale_up.domain").pos,
                    "a scale-up domain of " + std::to_string(domain) +
                        " GPUs cuts through servers of " + std::to_string(r.gpus_per_node) +
                        " GPUs",
                    "use a multiple or a divisor of gpus_per_node");
  }
  if (p.is_word("scale_up.kind", "none") || domain < 2) return;
  // The latency is GPU to GPU: two links.
  const Time hop = Time::ps(p.time("scale_up.latency").ps() / 2);
  const std::string base = domain == r.gpus_per_node ? "node" : "domain";
  for (uint32_t first = 0; first < gpus; first += domain) {
    const uint32_t sw =
        t.add_node(base + std::to_string(first / domain) + ".nvswitch", NodeKind::scale_up);
    for (uint32_t g = first; g < std::min(gpus, first + domain); ++g) {
      t.add_link(g, sw, p.rate("scale_up.rate"), hop);
    }
  }
}

uint32_t most_down_ports(const Params& p) {
  return whole_or(p, "leaf_down", down_share(whole(p, "leaf_radix"), p.real("oversubscription")));
}

LeafSize leaf_size(const TopologyRequest& r, const Params& p, uint32_t down, const NicShape& nic) {
  LeafSize s;
  s.down = down;
  const Rate rate = p.is_word("link.rate", "auto") ? nic.port_rate : p.rate("link.rate");
  s.up = ceil_of(static_cast<double>(down) * static_cast<double>(nic.port_rate.bps()) /
                 static_cast<double>(rate.bps()) / p.real("oversubscription"));
  const uint32_t radix = whole(p, "leaf_radix");
  if (down + s.up > radix) {
    throw UserError(r.pos,
                    "a leaf needs " + std::to_string(down) + " down and " + std::to_string(s.up) +
                        " up ports but leaf_radix is " + std::to_string(radix),
                    "raise leaf_radix or oversubscription");
  }
  return s;
}

void size_tree(const TopologyRequest& r, const Params& p, const LeafSize& leaf, uint32_t unit,
               const NicShape& nic, TreePlan& tree) {
  const auto n_leaves = static_cast<uint32_t>(tree.leaves.size());
  const uint32_t lanes = whole(p, "shuffle");
  const Rate rate = p.is_word("link.rate", "auto") ? nic.port_rate : p.rate("link.rate");
  tree.fabric_rate = Rate::bps(rate.bps() / lanes);
  const bool three = whole(p, "tiers") == 3;
  const uint32_t spine_radix = whole_or(p, "spine_radix", whole(p, "leaf_radix"));
  const double spine_over = p.real("spine_oversubscription");
  const uint32_t spine_down = three ? down_share(spine_radix, spine_over) : spine_radix;
  if (!three && !p.is_word("pods", "auto") && whole(p, "pods") > 1) {
    throw UserError(p.origin("pods").pos, "several pods need something above them",
                    "use 'tiers: 3'");
  }
  tree.pods = 1;
  tree.leaves_per_pod = n_leaves;
  if (n_leaves < 2) return;
  if (three) {
    const uint32_t units = n_leaves / unit;
    const uint32_t fit = std::max(1U, spine_down * lanes / unit);  // one cable to each spine
    uint32_t per_pod = std::min(units, fit);
    if (!p.is_word("pods", "auto")) per_pod = (units + whole(p, "pods") - 1) / whole(p, "pods");
    tree.leaves_per_pod = per_pod * unit;
    tree.pods = (units + per_pod - 1) / per_pod;
    tree.pods_in_names = tree.pods > 1;
  }
  // The smallest number of spines that offers the ports and divides the uplinks evenly.
  const uint32_t up = leaf.up * lanes;
  const uint32_t room = spine_down * lanes;
  const uint64_t wanted = static_cast<uint64_t>(tree.leaves_per_pod) * up;
  auto spines = static_cast<uint32_t>((wanted + room - 1) / room);
  const auto fits = [&] {
    return up % spines == 0 && uint64_t{tree.leaves_per_pod} * (up / spines) <= room;
  };
  while (spines < up && !fits()) ++spines;
  if (!fits()) {
    throw UserError(r.pos,
                    std::to_string(tree.leaves_per_pod) + " leaves with " +
                        std::to_string(leaf.up) + " uplinks each do not fit spines of radix " +
                        std::to_string(spine_radix),
                    three ? "use more pods or raise spine_radix"
                          : "a third tier is needed: use 'tiers: 3', or raise spine_radix");
  }
  tree.spines_per_pod = spines;
  tree.leaf_cables = up / spines;
  if (tree.pods == 1) return;
  const uint32_t core_up =
      ceil_of(static_cast<double>(tree.leaves_per_pod * tree.leaf_cables) / spine_over);
  const uint32_t core_room = whole_or(p, "core_radix", spine_radix) * lanes;
  uint32_t cores = 1;
  const auto core_fits = [&] {
    return core_up % cores == 0 && uint64_t{tree.pods} * (core_up / cores) <= core_room;
  };
  while (cores < core_up && !core_fits()) ++cores;
  if (!core_fits()) {
    throw UserError(r.pos,
                    std::to_string(tree.pods) + " pods whose spines have " +
                        std::to_string(core_up) + " uplinks each do not fit cores of radix " +
                        std::to_string(core_room / lanes),
                    "raise core_radix or use larger pods");
  }
  tree.cores_per_spine = cores;
  tree.core_cables = core_up / cores;
}

void add_plane(Topology& t, const TopologyRequest& r, const Params& p, const NicShape& nic,
               uint32_t plane, const TreePlan& tree) {
  constexpr uint64_t kMostCables = 50'000'000;
  const uint64_t spines = uint64_t{tree.pods} * tree.spines_per_pod;
  const uint64_t cables = t.links().size() +
                          tree.leaves.size() * tree.spines_per_pod * tree.leaf_cables +
                          spines * tree.cores_per_spine * tree.core_cables;
  if (cables > kMostCables) {
    throw UserError(r.pos,
                    "this fabric has " + std::to_string(cables) + " cables or more, above " +
                        std::to_string(kMostCables),
                    "describe a smaller one");
  }
  const Time delay = p.link_delay("link.delay", "link.length");
  const std::string prefix = nic.planes == 1 ? "" : "plane" + std::to_string(plane) + ".";
  const auto add = [&](NodeKind kind, uint8_t level, int32_t pod, int32_t rail,
                       const std::string& name) {
    const NodePlace place{level, static_cast<uint16_t>(plane), pod, rail};
    const bool named = tree.pods_in_names && pod >= 0;
    t.add_node(prefix + (named ? "pod" + std::to_string(pod) + "." : "") + name, kind, place);
  };
  const bool several = tree.cores_per_spine > 0;
  const auto pod_of = [&](uint32_t index, uint32_t per_pod) {
    return several ? static_cast<int32_t>(index / per_pod) : -1;
  };
  const auto n_leaves = static_cast<uint32_t>(tree.leaves.size());
  const auto first_leaf = static_cast<uint32_t>(t.nodes().size());
  for (uint32_t i = 0; i < n_leaves; ++i) {
    const LeafPlan& leaf = tree.leaves[i];
    add(NodeKind::leaf, 1, pod_of(i, tree.leaves_per_pod), leaf.rail, leaf.name);
  }
  const auto first_spine = static_cast<uint32_t>(t.nodes().size());
  for (uint32_t i = 0; i < tree.pods * tree.spines_per_pod; ++i) {
    add(NodeKind::spine, 2, pod_of(i, tree.spines_per_pod), -1,
        tree.spine_name + std::to_string(i));
  }
  const auto first_core = static_cast<uint32_t>(t.nodes().size());
  for (uint32_t i = 0; i < tree.spines_per_pod * tree.cores_per_spine; ++i) {
    add(NodeKind::spine, 3, -1, -1, tree.core_name + std::to_string(i));
  }
  const auto connect = [&](uint32_t a, uint32_t b, uint32_t parallel, Rate rate) {
    for (uint32_t k = 0; k < parallel; ++k) t.add_link(a, b, rate, delay);
  };
  for (uint32_t l = 0; l < n_leaves; ++l) {
    for (const uint32_t rank : tree.leaves[l].ranks) {
      connect(rank, first_leaf + l, nic.cables, nic.port_rate);
    }
  }
  for (uint32_t pod = 0; pod < tree.pods; ++pod) {
    const uint32_t in_pod = first_spine + pod * tree.spines_per_pod;
    const uint32_t last = std::min(n_leaves, (pod + 1) * tree.leaves_per_pod);
    for (uint32_t l = pod * tree.leaves_per_pod; l < last; ++l) {
      for (uint32_t s = 0; s < tree.spines_per_pod; ++s) {
        connect(first_leaf + l, in_pod + s, tree.leaf_cables, tree.fabric_rate);
      }
    }
    for (uint32_t s = 0; s < tree.spines_per_pod; ++s) {
      for (uint32_t c = 0; c < tree.cores_per_spine; ++c) {
        connect(in_pod + s, first_core + s * tree.cores_per_spine + c, tree.core_cables,
                tree.fabric_rate);
      }
    }
  }
}

}  // namespace trainyard
