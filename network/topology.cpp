// SPDX-License-Identifier: MIT
#include "network/topology.h"

#include <algorithm>
#include <utility>

namespace trainyard {

const char* node_kind_name(NodeKind kind) {
  switch (kind) {
    case NodeKind::host:
      return "host";
    case NodeKind::leaf:
      return "leaf";
    case NodeKind::spine:
      return "spine";
    case NodeKind::scale_up:
      return "scale-up";
  }
  return "";
}

uint32_t Topology::add_node(std::string name, NodeKind kind) {
  NodePlace place;
  place.level = kind == NodeKind::leaf ? 1 : kind == NodeKind::spine ? 2 : 0;
  return add_node(std::move(name), kind, place);
}

uint32_t Topology::add_node(std::string name, NodeKind kind, NodePlace place) {
  nodes_.push_back({std::move(name), kind, place});
  return static_cast<uint32_t>(nodes_.size() - 1);
}

uint32_t Topology::add_link(uint32_t a, uint32_t b, Rate rate, Time delay, double loss_rate) {
  TRAINYARD_ASSERT(a < nodes_.size() && b < nodes_.size() && a != b);
  const auto index = static_cast<uint32_t>(links_.size());
  links_.push_back({a, b, rate, delay, loss_rate, false});
  return index;
}

void Topology::move_end(uint32_t link, uint32_t from, uint32_t to) {
  TopologyLink& l = links_[link];
  uint32_t& end = l.a == from ? l.a : l.b;
  TRAINYARD_ASSERT(end == from && l.a != to && l.b != to);
  end = to;
}

bool Topology::is_nic_link(uint32_t link) const {
  const NodeKind a = nodes_[links_[link].a].kind;
  const NodeKind b = nodes_[links_[link].b].kind;
  return (a == NodeKind::host) != (b == NodeKind::host) && a != NodeKind::scale_up &&
         b != NodeKind::scale_up;
}

std::vector<uint32_t> Topology::nic_links(uint32_t host) const {
  std::vector<uint32_t> found;
  for (const uint32_t p : ports_of(host)) {
    if (is_nic_link(p >> 1)) found.push_back(p >> 1);
  }
  return found;
}

uint32_t Topology::count(NodeKind kind) const {
  return static_cast<uint32_t>(
      std::count_if(nodes_.begin(), nodes_.end(), [&](const auto& n) { return n.kind == kind; }));
}

std::string Topology::tier(uint32_t port) const {
  NodeKind a = nodes_[from(port)].kind;
  NodeKind b = nodes_[to(port)].kind;
  if (a == NodeKind::scale_up || b == NodeKind::scale_up) return "scale-up";
  if (b < a) std::swap(a, b);
  return std::string(node_kind_name(a)) + "-" + node_kind_name(b);
}

void Topology::order_ports() {
  first_port_.assign(nodes_.size() + 1, 0);
  for (const auto& l : links_) {
    if (l.cut) continue;
    ++first_port_[l.a + 1];
    ++first_port_[l.b + 1];
  }
  for (size_t n = 0; n < nodes_.size(); ++n) first_port_[n + 1] += first_port_[n];
  ports_.resize(first_port_.back());
  std::vector<uint32_t> next(first_port_.begin(), first_port_.end() - 1);
  for (uint32_t i = 0; i < links_.size(); ++i) {
    if (links_[i].cut) continue;
    ports_[next[links_[i].a]++] = 2 * i;
    ports_[next[links_[i].b]++] = 2 * i + 1;
  }
}

void Topology::find_servers() {
  servers_.clear();
  std::vector<uint32_t> server_of_switch(nodes_.size(), UINT32_MAX);
  uint32_t next_server = 0;
  // The switches of a PCIe server hang together, others are alone.
  const auto claim = [&](uint32_t sw, uint32_t server) {
    std::vector<uint32_t> todo{sw};
    server_of_switch[sw] = server;
    while (!todo.empty()) {
      const uint32_t u = todo.back();
      todo.pop_back();
      for (const uint32_t p : ports_of(u)) {
        const Node& v = nodes_[to(p)];
        if (nodes_[u].place.level == 0 || v.kind != NodeKind::scale_up || v.place.level == 0)
          continue;
        if (server_of_switch[to(p)] != UINT32_MAX) continue;
        server_of_switch[to(p)] = server;
        todo.push_back(to(p));
      }
    }
  };
  for (const uint32_t h : hosts_) {
    uint32_t server = UINT32_MAX;
    for (const uint32_t p : ports_of(h)) {
      if (nodes_[to(p)].kind != NodeKind::scale_up) continue;
      const uint32_t s = server_of_switch[to(p)];
      if (server == UINT32_MAX) server = s == UINT32_MAX ? next_server++ : s;
      if (s != server) claim(to(p), server);
    }
    servers_.push_back(server == UINT32_MAX ? next_server++ : server);
  }
}

std::vector<uint32_t> Topology::server_mates(uint32_t host) const {
  std::vector<uint32_t> mates;
  const std::string& name = nodes_[host].name;
  const size_t dot = name.rfind('.');
  if (dot != std::string::npos) {
    // Servers are added one after the other.
    const auto with = [&](uint32_t n) {
      return nodes_[n].kind == NodeKind::host &&
             nodes_[n].name.compare(0, dot + 1, name, 0, dot + 1) == 0;
    };
    uint32_t first = host;
    while (first > 0 && with(first - 1)) --first;
    for (uint32_t n = first; n < nodes_.size() && with(n); ++n) mates.push_back(n);
    return mates;
  }
  const auto rank = std::find(hosts_.begin(), hosts_.end(), host) - hosts_.begin();
  for (size_t r = 0; r < hosts_.size(); ++r) {
    if (servers_[r] == servers_[static_cast<size_t>(rank)]) mates.push_back(hosts_[r]);
  }
  std::sort(mates.begin(), mates.end());
  return mates;
}

void Topology::check_reach() const {
  if (hosts_.size() == 1) return;
  std::vector<char> seen(nodes_.size(), 0);
  std::vector<uint32_t> todo{hosts_[0]};
  seen[hosts_[0]] = 1;
  while (!todo.empty()) {
    const uint32_t u = todo.back();
    todo.pop_back();
    const bool transit = nodes_[u].kind != NodeKind::host || reach_ == Reach::relayed;
    if (u != hosts_[0] && !transit) continue;
    for (const uint32_t p : ports_of(u)) {
      const uint32_t v = to(p);
      if (seen[v] == 0) {
        seen[v] = 1;
        todo.push_back(v);
      }
    }
  }
  for (const uint32_t h : hosts_) {
    if (seen[h] == 0) {
      throw UserError("no path from " + nodes_[hosts_[0]].name + " to " + nodes_[h].name +
                          (reach_ == Reach::direct ? " (hosts do not forward)" : ""),
                      "connect them through a switch");
    }
  }
}

void Topology::finish(Reach reach) {
  reach_ = reach;
  order_ports();
  hosts_.clear();
  for (uint32_t n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n].kind == NodeKind::host) hosts_.push_back(n);
  }
  if (hosts_.empty()) throw UserError("the topology has no host", "add at least two hosts");
  nic_rate_ = Rate();
  for (const auto& link : links_) {
    const NodeKind a = nodes_[link.a].kind;
    const NodeKind b = nodes_[link.b].kind;
    if (a == NodeKind::scale_up || b == NodeKind::scale_up) continue;
    if ((a == NodeKind::host || b == NodeKind::host) &&
        (nic_rate_.bps() == 0 || link.rate < nic_rate_)) {
      nic_rate_ = link.rate;
    }
  }
  find_servers();
  check_reach();
}

void Topology::damage(const std::vector<LinkDamage>& list) {
  if (list.empty()) return;
  for (const LinkDamage& d : list) {
    TRAINYARD_ASSERT(d.link < links_.size() && d.rate_share > 0 && d.rate_share <= 1);
    TopologyLink& l = links_[d.link];
    l.cut = l.cut || d.down;
    l.rate = Rate::bps(std::max<int64_t>(
        1, static_cast<int64_t>(static_cast<double>(l.rate.bps()) * d.rate_share)));
    l.loss_rate = 1 - (1 - l.loss_rate) * (1 - d.loss_rate);
  }
  order_ports();
  find_servers();
}

void Topology::place_ranks(std::vector<uint32_t> node_of_rank) {
  TRAINYARD_ASSERT(node_of_rank.size() == hosts_.size());
  hosts_ = std::move(node_of_rank);
  find_servers();
}

}  // namespace trainyard
