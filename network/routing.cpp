// SPDX-License-Identifier: MIT
#include "network/routing.h"

#include <algorithm>
#include <array>
#include <map>

#include "sim/dice.h"

namespace trainyard {
namespace {

/// Murmur3 (32-bit, whole words): Austin Appleby's public-domain mixing constants.
uint32_t murmur3(const std::array<uint32_t, 3>& words, uint32_t seed) {
  uint32_t h = seed;
  for (uint32_t k : words) {
    k *= 0xcc9e2d51U;
    k = (k << 15) | (k >> 17);
    k *= 0x1b873593U;
    h ^= k;
    h = (h << 13) | (h >> 19);
    h = h * 5 + 0xe6546b64U;
  }
  h ^= 12;  // length in bytes
  h ^= h >> 16;
  h *= 0x85ebca6bU;
  h ^= h >> 13;
  h *= 0xc2b2ae35U;
  h ^= h >> 16;
  return h;
}

/// The address plan that the published path tables were computed with (reference README).
uint32_t address(uint32_t node) {
  return 0x0b000001U + (node / 256) * 0x10000U + (node % 256) * 0x100U;
}

}  // namespace

Routing::Routing(const Topology& topology, RoutingConfig config)
    : topology_(topology), pcie_(has_pcie_servers(topology)), config_(config) {
  const auto n = static_cast<uint32_t>(topology.nodes().size());
  component_.assign(n, kNone);
  position_.assign(n, 0);
  group_.assign(n, kNone);
  first_hop_.assign(n + 1, 0);
  for (uint32_t u = 0; u < n; ++u) {
    first_hop_[u] = static_cast<uint32_t>(hops_.size());
    if (topology.kind(u) == NodeKind::host) continue;
    for (const uint32_t p : topology.nodes()[u].ports) {
      const uint32_t v = topology.to(p);
      if (topology.kind(v) != NodeKind::host) hops_.push_back({p, v});  // positions come below
    }
  }
  first_hop_[n] = static_cast<uint32_t>(hops_.size());
  for (uint32_t root = 0; root < n; ++root) {
    if (topology.kind(root) == NodeKind::host || component_[root] != kNone) continue;
    const auto id = static_cast<uint32_t>(component_first_.size());
    component_first_.push_back(static_cast<uint32_t>(component_nodes_.size()));
    component_[root] = id;
    component_nodes_.push_back(root);
    for (size_t i = component_first_[id]; i < component_nodes_.size(); ++i) {
      const uint32_t u = component_nodes_[i];
      position_[u] = static_cast<uint32_t>(i) - component_first_[id];
      for (const Hop* h = hops_begin(u); h != hops_end(u); ++h) {
        if (component_[h->position] != kNone) continue;
        component_[h->position] = id;
        component_nodes_.push_back(h->position);
      }
    }
  }
  component_first_.push_back(static_cast<uint32_t>(component_nodes_.size()));
  for (Hop& h : hops_) h.position = position_[h.position];
}

// ---------------------------------------------------------------- tables

uint32_t Routing::group_of(uint32_t node) {
  if (group_[node] != kNone) return group_[node];
  std::vector<uint32_t> neighbours;
  for (const Hop* h = hops_begin(node); h != hops_end(node); ++h) {
    if (link_up(h->port >> 1)) neighbours.push_back(h->position);
  }
  std::sort(neighbours.begin(), neighbours.end());
  neighbours.erase(std::unique(neighbours.begin(), neighbours.end()), neighbours.end());
  uint64_t hash = component_[node];
  for (const uint32_t v : neighbours) hash = dice(hash, 0, v, 0);
  const auto [first, last] = group_by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    Group& g = groups_[it->second];
    if (g.component != component_[node] || g.neighbours != neighbours) continue;
    ++g.members;
    return group_[node] = it->second;
  }
  uint32_t id = 0;
  if (free_groups_.empty()) {
    id = static_cast<uint32_t>(groups_.size());
    groups_.emplace_back();
  } else {
    id = free_groups_.back();
    free_groups_.pop_back();
  }
  Group& g = groups_[id];
  g.component = component_[node];
  g.members = 1;
  g.hash = hash;
  g.neighbours = std::move(neighbours);
  group_by_hash_.emplace(hash, id);
  return group_[node] = id;
}

void Routing::leave_group(uint32_t node) {
  const uint32_t id = group_[node];
  if (id == kNone) return;
  group_[node] = kNone;
  Group& g = groups_[id];
  if (--g.members > 0) return;
  const auto [first, last] = group_by_hash_.equal_range(g.hash);
  for (auto it = first; it != last; ++it) {
    if (it->second != id) continue;
    group_by_hash_.erase(it);
    break;
  }
  g = Group();
  free_groups_.push_back(id);
}

/// Distance from every switch to a member of the group, for all but the member itself: breadth
/// first from its neighbours, which are at 1.
void Routing::fill(Group& group) const {
  const uint32_t first = component_first_[group.component];
  group.distance.assign(component_first_[group.component + 1] - first, kUnreachable);
  std::vector<uint32_t> todo = group.neighbours;
  for (const uint32_t v : todo) group.distance[v] = 1;
  for (size_t i = 0; i < todo.size(); ++i) {
    const auto next = static_cast<uint16_t>(group.distance[todo[i]] + 1);
    const uint32_t u = component_nodes_[first + todo[i]];
    for (const Hop* h = hops_begin(u); h != hops_end(u); ++h) {
      uint16_t& d = group.distance[h->position];
      if (d != kUnreachable || !link_up(h->port >> 1)) continue;
      d = next;
      todo.push_back(h->position);
    }
  }
}

const uint16_t* Routing::distances(uint32_t node) {
  Group& g = groups_[group_of(node)];
  if (g.distance.empty()) fill(g);
  return g.distance.data();
}

/// Whether the distances of a group stay as they are when a link between switches a and b changed.
bool Routing::survives(const Group& group, uint32_t a, uint32_t b, bool up) const {
  uint32_t da = group.distance[position_[a]];
  uint32_t db = group.distance[position_[b]];
  if (da > db) {
    std::swap(a, b);
    std::swap(da, db);
  }
  if (up) return db - da <= 1 || da == kUnreachable;
  if (db == da) return true;
  // The farther end keeps its distance when another link leads it as near.
  for (const Hop* h = hops_begin(b); h != hops_end(b); ++h) {
    if (group.distance[h->position] == da && link_up(h->port >> 1)) return true;
  }
  return false;
}

void Routing::set_link_state(uint32_t link, bool up) {
  TRAINYARD_ASSERT(link < topology_.links().size());
  if (link_up(link) == up) return;
  if (down_.empty()) down_.assign(topology_.links().size(), 0);
  down_[link] = up ? 0 : 1;
  n_down_ += up ? -1 : 1;
  const TopologyLink& l = topology_.links()[link];
  if (component_[l.a] == kNone || component_[l.b] == kNone) return;  // at a host: no table has it
  leave_group(l.a);
  leave_group(l.b);
  for (Group& g : groups_) {
    if (g.component != component_[l.a] || g.distance.empty() || survives(g, l.a, l.b, up)) continue;
    g.distance = std::vector<uint16_t>();
  }
}

uint64_t Routing::table_bytes() const {
  uint64_t bytes = hops_.size() * sizeof(Hop) +
                   sizeof(uint32_t) * (component_.size() + position_.size() + group_.size() +
                                       first_hop_.size() + component_nodes_.size());
  for (const Group& g : groups_) {
    bytes += sizeof(Group) + g.neighbours.size() * sizeof(uint32_t) +
             g.distance.size() * sizeof(uint16_t);
  }
  return bytes;
}

// ---------------------------------------------------------------- paths

void Routing::find_targets(uint32_t dst) {
  targets_.clear();
  if (topology_.kind(dst) != NodeKind::host) {
    targets_.push_back({dst, component_[dst], nullptr});
    return;
  }
  for (const uint32_t p : topology_.nodes()[dst].ports) {
    const uint32_t v = topology_.to(p);
    if (component_[v] == kNone || !link_up(p >> 1)) continue;
    const bool known =
        std::any_of(targets_.begin(), targets_.end(), [&](const Target& t) { return t.node == v; });
    if (!known) targets_.push_back({v, component_[v], nullptr});
  }
}

/// Links from a switch to the nearest target.
uint32_t Routing::to_target(uint32_t node) {
  uint32_t best = kUnreachable;
  for (Target& t : targets_) {
    if (t.component != component_[node]) continue;
    if (t.node == node) return 0;
    if (t.distance == nullptr) t.distance = distances(t.node);
    best = std::min<uint32_t>(best, t.distance[position_[node]]);
  }
  return best;
}

ServerPath Routing::way(uint32_t src, uint32_t dst) const {
  return pcie_ ? server_path(topology_, src, dst) : ServerPath::other;
}

/// Candidates of a host: its ports on shortest paths, those into its scale-up domain alone where
/// there are such. GPUs of a PCIe server have a rule of their own, which may be a longer way.
void Routing::first_hops(uint32_t src, uint32_t dst) {
  candidates_.clear();
  uint32_t best = kUnreachable;
  bool direct = false;
  const ServerPath taken = way(src, dst);
  for (const uint32_t p : topology_.nodes()[src].ports) {
    if (!link_up(p >> 1)) continue;
    const uint32_t v = topology_.to(p);
    if (taken != ServerPath::other &&
        (topology_.kind(v) == NodeKind::scale_up) == (taken == ServerPath::nic)) {
      continue;
    }
    if (v == dst) {
      if (!direct) candidates_.clear();
      direct = true;
      candidates_.push_back(p);
    }
    if (direct || component_[v] == kNone) continue;
    const uint32_t d = to_target(v);
    if (d < best) {
      best = d;
      candidates_.clear();
    }
    if (d == best && d != kUnreachable) candidates_.push_back(p);
  }
  // Nobody sends by NIC what NVLink carries in as many hops.
  const auto scale_up = [&](uint32_t p) {
    return topology_.kind(topology_.to(p)) == NodeKind::scale_up;
  };
  if (std::any_of(candidates_.begin(), candidates_.end(), scale_up)) {
    candidates_.erase(std::remove_if(candidates_.begin(), candidates_.end(),
                                     [&](uint32_t p) { return !scale_up(p); }),
                      candidates_.end());
  }
}

/// Candidates of a switch.
void Routing::next_hops(uint32_t node, uint32_t dst) {
  candidates_.clear();
  const uint32_t d = to_target(node);
  if (d == kUnreachable) return;
  if (d == 0) {
    for (const uint32_t p : topology_.nodes()[dst].ports) {
      if (topology_.to(p) == node && link_up(p >> 1)) candidates_.push_back(p ^ 1);
    }
    return;
  }
  const Hop* const end = hops_end(node);
  for (const Target& t : targets_) {
    if (t.component != component_[node]) continue;
    const size_t found = candidates_.size();
    if (d == 1) {
      // The target itself, for which its group's table does not speak.
      const uint32_t at = position_[t.node];
      for (const Hop* h = hops_begin(node); h != end; ++h) {
        if (h->position == at && link_up(h->port >> 1)) candidates_.push_back(h->port);
      }
    } else {
      for (const Hop* h = hops_begin(node); h != end; ++h) {
        if (t.distance[h->position] + 1U == d && link_up(h->port >> 1)) {
          candidates_.push_back(h->port);
        }
      }
    }
    // Several targets: in order of the cables, each once.
    if (found == 0) continue;
    std::sort(candidates_.begin(), candidates_.end(),
              [](uint32_t a, uint32_t b) { return a >> 1 < b >> 1; });
    candidates_.erase(std::unique(candidates_.begin(), candidates_.end()), candidates_.end());
  }
}

bool Routing::ever_connected(uint32_t src, uint32_t dst) const {
  const auto reaches = [&](uint32_t node, auto&& accepts) {
    if (component_[node] != kNone) return accepts(node);
    for (const uint32_t p : topology_.nodes()[node].ports) {
      if (accepts(topology_.to(p))) return true;
    }
    return false;
  };
  return reaches(src, [&](uint32_t a) {
    return a == dst || (component_[a] != kNone &&
                        reaches(dst, [&](uint32_t b) { return component_[b] == component_[a]; }));
  });
}

/// The candidate that the flow's hash picks.
uint32_t Routing::pick(uint32_t node, const FlowTuple& tuple) {
  if (config_.order == NextHopOrder::descending_peer) {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [&](uint32_t a, uint32_t b) { return topology_.to(a) > topology_.to(b); });
  }
  if (candidates_.size() == 1) return candidates_[0];
  const uint32_t seed_node = config_.per_switch_seed ? node : 0;
  if (config_.hash == EcmpHash::murmur3_tuple) {
    const uint32_t ports = tuple.src_port + 65536U * tuple.dst_port;
    return candidates_[murmur3({address(tuple.src_node), address(tuple.dst_node), ports},
                               seed_node) %
                       candidates_.size()];
  }
  const uint64_t flow = (static_cast<uint64_t>(tuple.src_node) << 32) | tuple.dst_node;
  const uint64_t ports = (static_cast<uint64_t>(tuple.src_port) << 16) | tuple.dst_port;
  return candidates_[dice(config_.seed, seed_node, flow, ports) % candidates_.size()];
}

template <class Pick>
void Routing::walk(const FlowTuple& tuple, std::vector<uint32_t>& path, Pick pick_at) {
  const size_t before = path.size();
  if (way(tuple.src_node, tuple.dst_node) == ServerPath::shared_memory) {
    const uint32_t memory = host_memory_of(topology_, tuple.dst_node);
    walk({tuple.src_node, memory, tuple.src_port, tuple.dst_port}, path, pick_at);
    const size_t there = path.size();
    if (there == before) return;
    walk({memory, tuple.dst_node, tuple.src_port, tuple.dst_port}, path, pick_at);
    if (path.size() == there) path.resize(before);
    return;
  }
  find_targets(tuple.dst_node);
  uint32_t u = tuple.src_node;
  while (u != tuple.dst_node) {
    if (component_[u] == kNone) {
      first_hops(u, tuple.dst_node);
    } else {
      next_hops(u, tuple.dst_node);
    }
    if (candidates_.empty()) {
      TRAINYARD_ASSERT(u == tuple.src_node && path.size() == before);
      if (n_down_ > 0 && ever_connected(tuple.src_node, tuple.dst_node)) return;
      const auto nodes = topology_.nodes();
      const bool relay = topology_.reach() == Reach::relayed;
      throw UserError("no path from " + nodes[tuple.src_node].name + " to " +
                          nodes[tuple.dst_node].name + " (hosts do not forward)",
                      relay ? "rails meet inside scale-up domains only: use collectives that stay "
                              "on a rail outside of them, or a topology with shared spines"
                            : "");
    }
    const uint32_t port = pick_at(u);
    path.push_back(port);
    u = topology_.to(port);
    if (targets_.size() > 1 && component_[u] != kNone) {
      targets_.erase(std::remove_if(targets_.begin(), targets_.end(),
                                    [&](const Target& t) { return t.component != component_[u]; }),
                     targets_.end());
    }
  }
}

void Routing::path(const FlowTuple& tuple, std::vector<uint32_t>& path) {
  walk(tuple, path, [&](uint32_t node) { return pick(node, tuple); });
}

void Routing::path_by_number(const FlowTuple& tuple, uint64_t number, std::vector<uint32_t>& path) {
  walk(tuple, path, [&](uint32_t) {
    const size_t digit = number % candidates_.size();
    number /= candidates_.size();
    return candidates_[digit];
  });
}

uint64_t Routing::number_in_turn(const FlowTuple& tuple,
                                 std::unordered_map<uint32_t, uint64_t>& turns) {
  uint64_t number = 0, weight = 1;
  std::vector<uint32_t> path;
  walk(tuple, path, [&](uint32_t) {
    const size_t n = candidates_.size();
    const size_t digit = n == 1 ? 0 : turns[candidates_[0]]++ % n;
    number += digit * weight;
    weight *= n;
    return candidates_[digit];
  });
  return number;
}

uint64_t Routing::count_paths(uint32_t src_node, uint32_t dst_node) {
  if (way(src_node, dst_node) == ServerPath::shared_memory) {
    const uint32_t memory = host_memory_of(topology_, dst_node);
    return count_paths(src_node, memory) * count_paths(memory, dst_node);
  }
  find_targets(dst_node);
  std::map<uint32_t, uint64_t> layer{{src_node, 1}};
  // All nodes of a layer are equally far from the destination.
  while (layer.count(dst_node) == 0) {
    std::map<uint32_t, uint64_t> next;
    for (const auto& [u, ways] : layer) {
      if (component_[u] == kNone) {
        first_hops(u, dst_node);
      } else {
        next_hops(u, dst_node);
      }
      for (const uint32_t p : candidates_) next[topology_.to(p)] += ways;
    }
    if (next.empty()) return 0;
    layer = std::move(next);
  }
  return layer[dst_node];
}

}  // namespace trainyard
