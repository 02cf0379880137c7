// SPDX-License-Identifier: MIT
#include "network/topology.h"

#include <algorithm>
#include <deque>

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
  nodes_.push_back({std::move(name), kind, {}});
  return static_cast<uint32_t>(nodes_.size() - 1);
}

uint32_t Topology::add_link(uint32_t a, uint32_t b, Rate rate, Time delay, double loss_rate) {
  TRAINYARD_ASSERT(a < nodes_.size() && b < nodes_.size() && a != b);
  const auto index = static_cast<uint32_t>(links_.size());
  links_.push_back({a, b, rate, delay, loss_rate});
  nodes_[a].ports.push_back(2 * index);
  nodes_[b].ports.push_back(2 * index + 1);
  return index;
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

void Topology::finish() {
  hosts_.clear();
  for (uint32_t n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n].kind == NodeKind::host) hosts_.push_back(n);
  }
  if (hosts_.empty()) throw UserError("the topology has no host", "add at least two hosts");
  nic_rate_ = Rate();
  for (const auto& link : links_) {
    const bool a_host = nodes_[link.a].kind == NodeKind::host;
    const bool b_host = nodes_[link.b].kind == NodeKind::host;
    const bool scale_up =
        nodes_[link.a].kind == NodeKind::scale_up || nodes_[link.b].kind == NodeKind::scale_up;
    if ((a_host || b_host) && !scale_up && (nic_rate_.bps() == 0 || link.rate < nic_rate_)) {
      nic_rate_ = link.rate;
    }
  }
  servers_.clear();
  std::vector<uint32_t> server_of_switch(nodes_.size(), UINT32_MAX);
  uint32_t next_server = 0;
  for (const uint32_t h : hosts_) {
    uint32_t server = UINT32_MAX;
    for (const uint32_t p : nodes_[h].ports) {
      if (nodes_[to(p)].kind != NodeKind::scale_up) continue;
      uint32_t& s = server_of_switch[to(p)];
      if (server == UINT32_MAX) server = s == UINT32_MAX ? next_server++ : s;
      s = server;
    }
    servers_.push_back(server == UINT32_MAX ? next_server++ : server);
  }
  if (hosts_.size() == 1) return;
  // Reachability from the first host, hosts not being transit.
  std::vector<char> seen(nodes_.size(), 0);
  std::deque<uint32_t> todo{hosts_[0]};
  seen[hosts_[0]] = 1;
  while (!todo.empty()) {
    const uint32_t u = todo.front();
    todo.pop_front();
    if (u != hosts_[0] && nodes_[u].kind == NodeKind::host) continue;
    for (const uint32_t p : nodes_[u].ports) {
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
                          " (hosts do not forward)",
                      "connect them through a switch");
    }
  }
}

}  // namespace trainyard
