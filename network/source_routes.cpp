// SPDX-License-Identifier: MIT
#include "network/source_routes.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "network/topology_select.h"

namespace trainyard {
namespace {

// Dice of marks count 64 hops.
constexpr size_t kMostHops = 63;
constexpr size_t kMostChecked = 4096;
constexpr uint64_t kMostCompared = 4096;

std::string trimmed(const std::string& s) {
  const size_t first = s.find_first_not_of(" \t\r");
  return first == std::string::npos ? std::string()
                                    : s.substr(first, s.find_last_not_of(" \t\r") - first + 1);
}

/// Parts between separators that stand in no bracket.
std::vector<std::string> split(const std::string& line, const std::string& separators) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : line) {
    depth += c == '(' || c == '[' ? 1 : c == ')' || c == ']' ? -1 : 0;
    if (depth <= 0 && separators.find(c) != std::string::npos)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

bool number(const std::string& text) {
  return !text.empty() && text.size() <= 9 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

std::string words(const std::vector<std::string>& list) {
  std::string out;
  for (const auto& w : list) out += (out.empty() ? "" : ", ") + w;
  return out;
}

std::vector<uint32_t> hosts_of(const Topology& t, const std::string& pattern,
                               const SourcePos& pos) {
  std::vector<uint32_t> hosts;
  for (const uint32_t n : select_nodes(t, pattern, pos)) {
    if (t.kind(n) == NodeKind::host) hosts.push_back(n);
  }
  if (hosts.empty()) {
    throw UserError(pos, "'" + pattern + "' names no host",
                    "a route begins and ends at GPUs: node3.gpu5, rank17, node[0-3].*");
  }
  return hosts;
}

uint64_t pair_of(const FlowTuple& tuple) {
  return static_cast<uint64_t>(tuple.src_node) << 32 | tuple.dst_node;
}

}  // namespace

std::vector<PinnedRoute> read_pinned_routes(const std::string& file, const SourcePos& pos) {
  std::ifstream in(file);
  if (!in || std::filesystem::is_directory(file)) {
    throw UserError(pos, "cannot open the routes file " + file,
                    "the path is relative to the scenario file");
  }
  std::vector<PinnedRoute> routes;
  bool first = true;
  int line_number = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    auto cells = split(line, ",");
    for (auto& c : cells) c = trimmed(c);
    const bool heading = first && cells[0] == "from";
    first = false;
    if (heading) continue;
    PinnedRoute r;
    r.pos = {file, line_number};
    if (cells.size() != 4) {
      throw UserError(r.pos,
                      "a route has four columns, this row has " + std::to_string(cells.size()),
                      "write from,to,qp,via: node0.gpu0,node4.gpu0,,spine2");
    }
    r.from = cells[0];
    r.to = cells[1];
    if (!cells[2].empty()) {
      if (!number(cells[2])) {
        throw UserError(r.pos, "'" + cells[2] + "' is no number of a queue pair",
                        "count from 0, or leave the column empty for all");
      }
      r.qp = std::stoll(cells[2]);
    }
    if (number(cells[3])) {
      r.path = std::stoll(cells[3]);
    } else {
      for (const auto& w : split(cells[3], " \t")) {
        if (!w.empty()) r.via.push_back(w);
      }
    }
    routes.push_back(std::move(r));
  }
  if (routes.empty()) throw UserError(pos, "the routes file " + file + " holds no route");
  return routes;
}

SourceRoutes::SourceRoutes(const Topology& topology, const RoutingConfig& routing,
                           SourceRoutesConfig config)
    : topology_(&topology), config_(std::move(config)) {
  if (config_.rule == RouteRule::modulo) {
    for (uint32_t r = 0; r < topology.hosts().size(); ++r) rank_[topology.hosts()[r]] = r;
  }
  if (config_.pinned.empty()) return;
  as_built_ = std::make_unique<Routing>(topology, routing);
  for (uint32_t i = 0; i < config_.pinned.size(); ++i) {
    const PinnedRoute& r = config_.pinned[i];
    Pin pin;
    const std::vector<uint32_t> from = hosts_of(topology, r.from, r.pos);
    pin.to = hosts_of(topology, r.to, r.pos);
    if ((r.path >= 0) == !r.via.empty()) {
      throw UserError(r.pos, "a route needs either 'via' or 'path'",
                      "name the switches or cables on the way, or the number of an equal path");
    }
    for (const std::string& name : r.via) {
      Pin::Waypoint w;
      if (name.rfind("link(", 0) == 0 || name.find(":port") != std::string::npos) {
        const auto links = select_links(topology, name, r.pos);
        if (links.size() != 1) {
          throw UserError(
              r.pos,
              "'" + name + "' names " + std::to_string(links.size()) + " cables, a route takes one",
              "name it by its port: leaf0:port4");
        }
        w.link = links[0];
      } else {
        const auto nodes = select_nodes(topology, name, r.pos);
        if (nodes.size() != 1 || topology.kind(nodes[0]) == NodeKind::host) {
          throw UserError(r.pos, "'" + name + "' is not one switch",
                          "a route passes switches or cables (hosts do not forward): leaf0, "
                          "spine2, link(leaf0,spine2), leaf0:port4");
        }
        w.node = nodes[0];
      }
      pin.via.push_back(w);
    }
    pins_.push_back(std::move(pin));
    for (const uint32_t src : from) pins_of_[src].push_back(i);
    // Errors before the run, not in it.
    size_t checked = 0;
    for (const uint32_t src : from) {
      for (const uint32_t dst : pins_[i].to) {
        if (src == dst || checked == kMostChecked) continue;
        ++checked;
        const auto qp = static_cast<uint16_t>(std::max<int64_t>(0, r.qp));
        const FlowTuple tuple{src, dst, static_cast<uint16_t>(kSourcePortBase + qp),
                              kDestinationPort};
        (void)pinned(tuple, qp);
      }
    }
    if (checked == 0) {
      throw UserError(r.pos,
                      "the route from '" + r.from + "' to '" + r.to + "' joins no two hosts");
    }
  }
}

/// The pinned route of a queue pair as built; null: it has none.
const std::vector<uint32_t>* SourceRoutes::pinned(const FlowTuple& tuple, uint32_t qp) {
  const auto found = pins_of_.find(tuple.src_node);
  if (found == pins_of_.end()) return nullptr;
  for (const uint32_t i : found->second) {
    const PinnedRoute& r = config_.pinned[i];
    if (r.qp >= 0 && r.qp != qp) continue;
    if (!std::binary_search(pins_[i].to.begin(), pins_[i].to.end(), tuple.dst_node)) continue;
    const auto [it, added] = built_.try_emplace({i, pair_of(tuple)});
    if (added) it->second = build(i, tuple);
    // Inside a scale-up domain nothing is pinned: nobody sends by NIC what NVLink carries.
    return it->second.empty() ? nullptr : &it->second;
  }
  return nullptr;
}

std::vector<uint32_t> SourceRoutes::build(uint32_t index, const FlowTuple& tuple) {
  const PinnedRoute& r = config_.pinned[index];
  const auto nodes = topology_->nodes();
  const auto fail = [&](const std::string& why) {
    throw UserError(r.pos, "no route from " + nodes[tuple.src_node].name + " to " +
                               nodes[tuple.dst_node].name +
                               (r.via.empty() ? "" : " via " + words(r.via)) + ": " + why);
  };
  std::vector<uint32_t> path;
  const auto go = [&](uint32_t from, uint32_t to, std::vector<uint32_t>& out) {
    try {
      as_built_->path({from, to, tuple.src_port, tuple.dst_port}, out);
    } catch (const UserError& e) {
      fail(e.what());
    }
  };
  go(tuple.src_node, tuple.dst_node, path);
  for (const uint32_t p : path) {
    if (topology_->kind(topology_->to(p)) == NodeKind::scale_up) return {};
  }
  path.clear();
  if (r.path >= 0) {
    const uint64_t n = as_built_->count_paths(tuple.src_node, tuple.dst_node);
    if (static_cast<uint64_t>(r.path) >= n) {
      fail("path " + std::to_string(r.path) + " is asked for, there are " + std::to_string(n) +
           ", numbered from 0");
    }
    as_built_->path_by_number(tuple, static_cast<uint64_t>(r.path), path);
    return path;
  }
  uint32_t at = tuple.src_node;
  for (const Pin::Waypoint& w : pins_[index].via) {
    if (w.node != UINT32_MAX) {
      if (w.node != at) go(at, w.node, path);
      at = w.node;
      continue;
    }
    const TopologyLink& l = topology_->links()[w.link];
    if (at != l.a && at != l.b) {
      // To the nearer end. An end that is a host can only be the source or the destination.
      std::vector<uint32_t> to_a, to_b;
      const bool a = topology_->kind(l.a) != NodeKind::host;
      const bool b = topology_->kind(l.b) != NodeKind::host;
      if (!a && !b) fail("hosts do not forward");
      if (a) go(at, l.a, to_a);
      if (b) go(at, l.b, to_b);
      if (a && b && to_a.size() == to_b.size()) {
        fail("both ends of " + nodes[l.a].name + " - " + nodes[l.b].name +
             " are equally far; name the switch before it, too");
      }
      const bool take_a = a && (!b || to_a.size() < to_b.size());
      const auto& more = take_a ? to_a : to_b;
      path.insert(path.end(), more.begin(), more.end());
      at = take_a ? l.a : l.b;
    }
    path.push_back(2 * w.link + (at == l.a ? 0 : 1));
    at = topology_->to(path.back());
    if (topology_->kind(at) == NodeKind::host && at != tuple.dst_node) {
      fail(nodes[at].name + " does not forward");
    }
  }
  if (at != tuple.dst_node) go(at, tuple.dst_node, path);
  if (path.size() > kMostHops) fail("it is longer than " + std::to_string(kMostHops) + " links");
  std::vector<uint32_t> passed{tuple.src_node};
  for (const uint32_t p : path) passed.push_back(topology_->to(p));
  std::sort(passed.begin(), passed.end());
  const auto twice = std::adjacent_find(passed.begin(), passed.end());
  if (twice != passed.end()) fail("it passes " + nodes[*twice].name + " twice");
  return path;
}

/// The number of the path of a queue pair that opens.
uint64_t SourceRoutes::choose(Routing& routing, const FlowTuple& tuple, uint32_t qp) {
  if (config_.rule == RouteRule::modulo) {
    const uint64_t sum = static_cast<uint64_t>(rank_[tuple.src_node]) + rank_[tuple.dst_node] + qp;
    return sum % routing.count_paths(tuple.src_node, tuple.dst_node);
  }
  if (config_.rule == RouteRule::round_robin) return routing.number_in_turn(tuple, turns_);
  std::vector<uint32_t> path;
  // The sum of the squares of what links have grows least. Links that all paths share do not
  // matter.
  uint64_t best = 0;
  uint64_t least = UINT64_MAX;
  const uint64_t n = std::min(kMostCompared, routing.count_paths(tuple.src_node, tuple.dst_node));
  for (uint64_t i = 0; i < n; ++i) {
    path.clear();
    routing.path_by_number(tuple, i, path);
    uint64_t sum = 0;
    for (const uint32_t p : path) {
      const auto it = used_.find(p);
      sum += it == used_.end() ? 0 : it->second;
    }
    if (sum >= least) continue;
    least = sum;
    best = i;
  }
  path.clear();
  routing.path_by_number(tuple, best, path);
  for (const uint32_t p : path) ++used_[p];
  return best;
}

void SourceRoutes::path(Routing& routing, const FlowTuple& tuple, std::vector<uint32_t>& path) {
  const bool data = tuple.dst_port == kDestinationPort;
  if (!data || (pins_.empty() && config_.rule == RouteRule::hash)) {
    routing.path(tuple, path);
    return;
  }
  const auto qp = static_cast<uint16_t>(tuple.src_port - kSourcePortBase);
  if (const auto* pin = pinned(tuple, qp); pin != nullptr) {
    if (std::all_of(pin->begin(), pin->end(), [&](uint32_t p) { return routing.link_up(p >> 1); }))
      path.insert(path.end(), pin->begin(), pin->end());
    else
      routing.path(tuple, path);
    return;
  }
  if (config_.rule == RouteRule::hash) {
    routing.path(tuple, path);
    return;
  }
  const Key key{pair_of(tuple), qp};
  auto it = chosen_.find(key);
  if (it == chosen_.end()) {
    if (routing.count_paths(tuple.src_node, tuple.dst_node) == 0) {
      routing.path(tuple, path);  // says why, or nothing
      return;
    }
    it = chosen_.emplace(key, choose(routing, tuple, qp)).first;
  }
  routing.path_by_number(tuple, it->second, path);
}

}  // namespace trainyard
