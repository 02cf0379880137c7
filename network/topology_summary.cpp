// SPDX-License-Identifier: MIT
#include "network/topology_summary.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "network/pcie_server.h"
#include "network/routing.h"
#include "network/topology_select.h"

namespace trainyard {

FabricSummary summarise(const Topology& t) {
  FabricSummary s;
  s.hosts = static_cast<uint32_t>(t.hosts().size());
  std::set<int32_t> pods;
  const auto n = static_cast<uint32_t>(t.nodes().size());
  const auto plane = [&](uint32_t node) -> FabricSummary::Plane& {
    const uint32_t p = t.nodes()[node].place.plane;
    if (s.planes.size() <= p) s.planes.resize(p + 1);
    return s.planes[p];
  };
  for (uint32_t u = 0; u < n; ++u) {
    const TopologyNode node = t.nodes()[u];
    if (node.kind == NodeKind::host || node.kind == NodeKind::scale_up) continue;
    if (node.place.pod >= 0) pods.insert(node.place.pod);
    auto& p = plane(u);
    ++(node.place.level == 3 ? p.cores : node.place.level == 2 ? p.spines : p.leaves);
  }
  s.pods = static_cast<uint32_t>(pods.size());
  std::map<uint32_t, uint32_t> size_of;
  for (const uint32_t d : t.servers()) ++size_of[d];
  for (const auto& [d, size] : size_of) {
    s.most_in_domain = std::max(s.most_in_domain, size);
    s.scale_up_domains += size > 1 ? 1 : 0;
  }
  std::vector<int64_t> down(n, 0);
  std::vector<int64_t> up(n, 0);
  for (const TopologyLink& l : t.links()) {
    uint32_t low = l.a;
    uint32_t high = l.b;
    if (t.kind(low) == NodeKind::scale_up || t.kind(high) == NodeKind::scale_up) continue;
    ++s.cables;
    if (t.nodes()[low].place.level > t.nodes()[high].place.level) std::swap(low, high);
    const uint8_t level = t.nodes()[high].place.level;
    auto& p = plane(high);
    ++p.cables;
    const int64_t bps = l.rate.bps();
    if (t.kind(low) == NodeKind::host) {
      p.nic_bps += bps;
      down[high] += bps;
    } else if (t.kind(low) == NodeKind::leaf && level >= 2) {
      p.leaf_up_bps += bps;
      up[low] += bps;
    } else if (level == 3) {
      p.core_bps += bps;
    }
  }
  s.transceivers = 2 * s.cables;
  for (uint32_t u = 0; u < n; ++u) {
    if (t.kind(u) != NodeKind::leaf || up[u] == 0 || down[u] == 0) continue;
    const double ratio = static_cast<double>(down[u]) / static_cast<double>(up[u]);
    if (s.least_oversubscription == 0 || ratio < s.least_oversubscription) {
      s.least_oversubscription = ratio;
    }
    s.most_oversubscription = std::max(s.most_oversubscription, ratio);
  }
  for (const auto& p : s.planes) {
    int64_t least = p.nic_bps;
    if (p.spines > 0) least = std::min(least, p.leaf_up_bps);
    if (p.cores > 0) least = std::min(least, p.core_bps);
    s.bisection_bps += least / 2;
  }
  return s;
}

RailReport check_rails(const Topology& t) {
  RailReport report;
  const auto n = static_cast<uint32_t>(t.nodes().size());
  std::vector<int32_t> rail(n, -1);
  std::set<int32_t> rails;
  for (uint32_t u = 0; u < n; ++u) {
    rail[u] = t.nodes()[u].place.rail;
    if (t.kind(u) == NodeKind::leaf && rail[u] >= 0) rails.insert(rail[u]);
  }
  if (rails.empty()) {
    // Position of every host in its server, by node; a leaf is of the rail that most of its NICs
    // have. Where a leaf has no majority there are no rails.
    report.inferred = true;
    std::map<uint32_t, std::vector<uint32_t>> members;
    for (uint32_t r = 0; r < t.hosts().size(); ++r) {
      members[t.servers()[r]].push_back(t.hosts()[r]);
    }
    for (auto& [server, hosts] : members) {
      std::sort(hosts.begin(), hosts.end());
      for (size_t i = 0; i < hosts.size(); ++i) rail[hosts[i]] = static_cast<int32_t>(i);
    }
    std::map<uint32_t, std::map<int32_t, uint32_t>> votes;
    for (const uint32_t h : t.hosts()) {
      for (const uint32_t p : t.nodes()[h].ports) {
        if (t.is_nic_link(p >> 1)) ++votes[t.to(p)][rail[h]];
      }
    }
    for (const auto& [leaf, counts] : votes) {
      uint32_t all = 0;
      std::pair<int32_t, uint32_t> best{-1, 0};
      for (const auto& [position, votes_here] : counts) {
        all += votes_here;
        if (votes_here > best.second) best = {position, votes_here};
      }
      if (2 * best.second <= all) return report;
      rail[leaf] = best.first;
      rails.insert(best.first);
    }
    if (rails.size() < 2) return report;
  }
  report.rails = static_cast<uint32_t>(rails.size());
  for (const uint32_t h : t.hosts()) {
    uint32_t port = 0;
    for (const uint32_t p : t.nodes()[h].ports) {
      if (!t.is_nic_link(p >> 1)) continue;
      const uint32_t leaf = t.to(p);
      if (rail[leaf] >= 0 && rail[leaf] != rail[h]) {
        report.crossings.push_back({h, port, leaf, rail[h], rail[leaf]});
      }
      ++port;
    }
  }
  return report;
}

std::string fabric_text(const Topology& t) {
  std::string out;
  const auto row = [&](const std::string& name, const std::string& value) {
    out += fmt::format("  {:16} {}\n", name, value);
  };
  const FabricSummary s = summarise(t);
  row("hosts", std::to_string(s.hosts));
  for (const NodeKind k : {NodeKind::scale_up, NodeKind::leaf, NodeKind::spine}) {
    if (t.count(k) > 0) row(node_kind_name(k), std::to_string(t.count(k)));
  }
  if (s.scale_up_domains > 0) {
    row("scale-up domains",
        fmt::format("{} of up to {} GPUs", s.scale_up_domains, s.most_in_domain));
  }
  if (const std::string ways = server_paths_text(t); !ways.empty()) {
    row("ways in a server",
        "PIX, PHB, SYS: peer to peer over a PCIe switch, a socket, sockets; SHM: host memory; "
        "NET: NICs");
    out += ways;
  }
  const RailReport rails = check_rails(t);
  if (rails.rails > 0) {
    row("rails", fmt::format("{}{}", rails.rails, rails.inferred ? " (by majority)" : ""));
  }
  if (s.pods > 1) row("pods", std::to_string(s.pods));
  for (size_t p = 0; p < s.planes.size(); ++p) {
    const auto& plane = s.planes[p];
    row(s.planes.size() == 1 ? "switches" : "plane " + std::to_string(p),
        fmt::format("{} leaves, {} spines, {} cores, {} cables", plane.leaves, plane.spines,
                    plane.cores, plane.cables));
  }
  std::map<std::string, std::map<std::string, size_t>> tiers;
  for (uint32_t i = 0; i < t.links().size(); ++i) {
    const auto& l = t.links()[i];
    ++tiers[t.tier(2 * i)][print_rate(l.rate) + ", " + print_time(l.delay)];
  }
  for (const auto& [tier, kinds] : tiers) {
    for (const auto& [kind, count] : kinds) row(tier, fmt::format("{} links of {}", count, kind));
  }
  row("cables", fmt::format("{} outside of servers, {} transceivers", s.cables, s.transceivers));
  if (s.most_oversubscription > 0) {
    const bool even = s.most_oversubscription - s.least_oversubscription < 1e-9;
    row("oversubscription", even ? fmt::format("{:.4g}:1 at every leaf", s.most_oversubscription)
                                 : fmt::format("{:.4g}:1 to {:.4g}:1 at a leaf",
                                               s.least_oversubscription, s.most_oversubscription));
  }
  if (s.cables > 0) {
    row("bisection",
        fmt::format("at most {} per direction", print_rate(Rate::bps(s.bisection_bps))));
  }
  // Between the first GPU and the last; on a rail-only network its like in the last server.
  Routing routing(t, {});
  const uint32_t first = t.hosts()[0];
  const auto in_last_server = std::find(t.servers().begin(), t.servers().end(), t.servers().back());
  const uint32_t like = t.hosts()[static_cast<size_t>(in_last_server - t.servers().begin())];
  for (const uint32_t last : {t.hosts().back(), like}) {
    const uint64_t paths = last == first ? 0 : routing.count_paths(first, last);
    if (paths == 0) continue;
    std::vector<uint32_t> path;
    routing.path({first, last, kSourcePortBase, kDestinationPort}, path);
    row("equal paths", fmt::format("{} of {} links from {} to {}", paths, path.size(),
                                   t.nodes()[first].name, t.nodes()[last].name));
    break;
  }
  if (rails.rails > 0) {
    row("rail crossings", std::to_string(rails.crossings.size()));
    constexpr size_t kMost = 32;
    for (size_t i = 0; i < std::min(kMost, rails.crossings.size()); ++i) {
      const RailCrossing& c = rails.crossings[i];
      out += fmt::format("    {}:port{} is on {}, rail {} instead of {}\n",
                         nic_name(t.nodes()[c.host].name), c.port, t.nodes()[c.leaf].name, c.is,
                         c.belongs);
    }
    if (rails.crossings.size() > kMost) {
      out += fmt::format("    and {} more\n", rails.crossings.size() - kMost);
    }
  }
  return out;
}

}  // namespace trainyard
