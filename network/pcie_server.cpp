// SPDX-License-Identifier: MIT
#include "network/pcie_server.h"

#include <fmt/core.h>

namespace trainyard {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

PcieRole role_of(const Topology& t, uint32_t node) {
  if (t.kind(node) != NodeKind::scale_up) return PcieRole::none;
  return static_cast<PcieRole>(t.nodes()[node].place.level);
}

bool is_socket(PcieRole role) {
  return role >= PcieRole::socket_peers_nowhere;
}

/// The first neighbour whose role `wanted` accepts.
template <class Wanted>
uint32_t neighbour(const Topology& t, uint32_t node, Wanted wanted) {
  for (const uint32_t p : t.nodes()[node].ports) {
    if (wanted(role_of(t, t.to(p)))) return t.to(p);
  }
  return kNone;
}

/// The PCIe switch, or the socket, that a host hangs on.
uint32_t above(const Topology& t, uint32_t host) {
  return neighbour(t, host, [](PcieRole r) { return r == PcieRole::pcie_switch || is_socket(r); });
}

uint32_t socket_of(const Topology& t, uint32_t host) {
  const uint32_t node = above(t, host);
  if (node == kNone || is_socket(role_of(t, node))) return node;
  return neighbour(t, node, is_socket);
}

PcieRole reach_of(const Params& p) {
  const std::string& level = p.text("scale_up.p2p_level");
  if (level == "NVL") return PcieRole::socket_peers_nowhere;
  if (level == "PHB") return PcieRole::socket_peers_on_socket;
  return level == "SYS" ? PcieRole::socket_peers_anywhere : PcieRole::socket_peers_on_switch;
}

bool stated(const Params& p, const std::string& name) {
  const Origin::Kind kind = p.origin(name).kind;
  return kind == Origin::Kind::user || kind == Origin::Kind::command_line;
}

}  // namespace

const std::vector<ParamSpec>& pcie_params() {
  using PT = ParamType;
  static const std::vector<ParamSpec> specs = {
      {"scale_up.pcie_generation",
       PT::integer,
       "4",
       "3",
       "5",
       {},
       "kind pcie: generation of the PCIe links of GPUs and switches",
       "8, 16 and 32 GT/s per lane"},
      {"scale_up.pcie_lanes",
       PT::integer,
       "16",
       "1",
       "16",
       {},
       "kind pcie: lanes of each of them",
       ""},
      {"scale_up.gpus_per_switch",
       PT::integer,
       "2",
       "1",
       "16",
       {},
       "kind pcie: GPUs below one PCIe switch, which has one link to its socket; 1: GPUs hang on "
       "the socket itself",
       ""},
      {"scale_up.sockets",
       PT::integer,
       "2",
       "1",
       "8",
       {},
       "kind pcie: CPU sockets, each with an equal part of the GPUs and joined with every other",
       ""},
      {"scale_up.socket_rate",
       PT::rate,
       "22GBps",
       "1Mbps",
       "",
       {},
       "kind pcie: rate between two sockets, per direction",
       "NCCL: SRP_QPI_BW"},
      {"scale_up.memory_rate",
       PT::rate,
       "100GBps",
       "1Mbps",
       "",
       {},
       "kind pcie: rate into the host memory of a socket, and out of it",
       "assumption: half of what 8 channels of DDR4-3200 carry"},
      {"scale_up.p2p_level",
       PT::choice,
       "PXB",
       "",
       "",
       {"NVL", "PIX", "PXB", "PHB", "SYS"},
       "kind pcie: GPUs that reach each other's memory: none, those of one PCIe switch (PIX, PXB), "
       "of one socket (PHB), all",
       "NCCL_P2P_LEVEL; NCCL's default does not cross host bridges"},
      {"scale_up.shared_memory",
       PT::boolean,
       "true",
       "",
       "",
       {},
       "kind pcie: other pairs go through host memory; false: through their NICs",
       "NCCL_SHM_DISABLE"},
  };
  return specs;
}

void check_pcie_params(const TopologyRequest& r, const Params& p) {
  if (!p.is_word("scale_up.kind", "pcie")) {
    for (const ParamSpec& spec : pcie_params()) {
      if (!stated(p, spec.name)) continue;
      throw UserError(
          p.origin(spec.name).pos,
          spec.name + " counts in PCIe servers only, scale_up.kind is " + p.text("scale_up.kind"),
          "remove it or use 'kind: pcie'");
    }
    return;
  }
  for (const char* name : {"scale_up.rate", "scale_up.domain"}) {
    if (!stated(p, name)) continue;
    throw UserError(p.origin(name).pos, std::string(name) + " does not count in PCIe servers",
                    "say scale_up.pcie_generation and pcie_lanes; a server is a domain");
  }
  const auto sockets = static_cast<uint32_t>(p.integer("scale_up.sockets"));
  if (r.gpus_per_node % sockets != 0) {
    throw UserError(p.origin("scale_up.sockets").pos,
                    std::to_string(r.gpus_per_node) + " GPUs do not divide evenly over " +
                        std::to_string(sockets) + " sockets",
                    "use a divisor of gpus_per_node");
  }
}

void add_pcie_server(Topology& t, const TopologyRequest& r, const Params& p, uint32_t first) {
  const auto sockets = static_cast<uint32_t>(p.integer("scale_up.sockets"));
  const auto on_switch = static_cast<uint32_t>(p.integer("scale_up.gpus_per_switch"));
  const Rate lane =
      pcie_rate(p.integer("scale_up.pcie_generation"), p.integer("scale_up.pcie_lanes"));
  const Time hop = Time::ps(p.time("scale_up.latency").ps() / 2);
  const std::string base = "node" + std::to_string(first / r.gpus_per_node) + ".";
  const auto add = [&](const std::string& name, PcieRole role) {
    NodePlace place;
    place.level = static_cast<uint8_t>(role);
    return t.add_node(base + name, NodeKind::scale_up, place);
  };
  const uint32_t on_socket = r.gpus_per_node / sockets;
  std::vector<uint32_t> nodes;
  uint32_t switches = 0;
  for (uint32_t s = 0; s < sockets; ++s) {
    const uint32_t socket = add("socket" + std::to_string(s), reach_of(p));
    for (const uint32_t other : nodes) {
      t.add_link(other, socket, p.rate("scale_up.socket_rate"), hop);
    }
    nodes.push_back(socket);
    if (p.boolean("scale_up.shared_memory")) {
      const uint32_t memory = add("memory" + std::to_string(s), PcieRole::host_memory);
      t.add_link(socket, memory, p.rate("scale_up.memory_rate"), hop);
    }
    uint32_t parent = socket;
    for (uint32_t g = 0; g < on_socket; ++g) {
      if (on_switch > 1 && g % on_switch == 0) {
        parent = add("pcie" + std::to_string(switches++), PcieRole::pcie_switch);
        t.add_link(parent, socket, lane, hop);
      }
      t.add_link(first + s * on_socket + g, parent, lane, hop);
    }
  }
}

Rate pcie_rate(int64_t generation, int64_t lanes) {
  const int64_t line = (int64_t{8'000'000'000} << (generation - 3)) * lanes;
  return Rate::bps(line * (128 * 256) / (130 * 280));
}

bool has_pcie_servers(const Topology& t) {
  for (uint32_t n = 0; n < t.nodes().size(); ++n) {
    if (role_of(t, n) != PcieRole::none) return true;
  }
  return false;
}

ServerPath server_path(const Topology& t, uint32_t host_a, uint32_t host_b) {
  if (t.kind(host_a) != NodeKind::host || t.kind(host_b) != NodeKind::host) {
    return ServerPath::other;
  }
  const uint32_t a = above(t, host_a);
  if (a == kNone) return ServerPath::other;
  const uint32_t b = above(t, host_b);
  if (b == kNone) return ServerPath::other;
  const uint32_t socket_a = socket_of(t, host_a);
  const uint32_t socket_b = socket_of(t, host_b);
  const bool on_switch = a == b && role_of(t, a) == PcieRole::pcie_switch;
  if (socket_a == kNone || socket_b == kNone) {
    return on_switch ? ServerPath::peer_switch : ServerPath::other;
  }
  if (socket_a != socket_b) {
    bool joined = false;
    for (const uint32_t port : t.nodes()[socket_a].ports) {
      joined = joined || t.to(port) == socket_b;
    }
    if (!joined) return ServerPath::other;
  }
  const PcieRole reach = role_of(t, socket_a);
  if (on_switch && reach >= PcieRole::socket_peers_on_switch) return ServerPath::peer_switch;
  if (socket_a == socket_b && reach >= PcieRole::socket_peers_on_socket) {
    return ServerPath::peer_socket;
  }
  if (reach == PcieRole::socket_peers_anywhere) return ServerPath::peer_sockets;
  return host_memory_of(t, host_b) == kNone ? ServerPath::nic : ServerPath::shared_memory;
}

uint32_t host_memory_of(const Topology& t, uint32_t host) {
  const uint32_t socket = socket_of(t, host);
  if (socket == kNone) return kNone;
  return neighbour(t, socket, [](PcieRole r) { return r == PcieRole::host_memory; });
}

const char* server_path_name(ServerPath path) {
  switch (path) {
    case ServerPath::other:
      return "-";
    case ServerPath::peer_switch:
      return "PIX";
    case ServerPath::peer_socket:
      return "PHB";
    case ServerPath::peer_sockets:
      return "SYS";
    case ServerPath::shared_memory:
      return "SHM";
    case ServerPath::nic:
      return "NET";
  }
  return "";
}

std::string server_paths_text(const Topology& t) {
  if (t.hosts().empty() || above(t, t.hosts()[0]) == kNone) return "";
  const std::vector<uint32_t> gpus = t.server_mates(t.hosts()[0]);
  std::string out;
  for (const uint32_t a : gpus) {
    out += fmt::format("    {:14}", t.nodes()[a].name);
    for (const uint32_t b : gpus) {
      out += fmt::format(" {:>3}", a == b ? "." : server_path_name(server_path(t, a, b)));
    }
    out += "\n";
  }
  return out;
}

}  // namespace trainyard
