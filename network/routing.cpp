// SPDX-License-Identifier: MIT
#include "network/routing.h"

#include <algorithm>
#include <array>
#include <deque>

#include "sim/dice.h"

namespace trainyard {
namespace {

constexpr uint16_t kUnreachable = 0xffff;

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

const std::vector<uint16_t>& Routing::distances_to(uint32_t node) {
  auto& d = distance_[node];
  if (!d.empty()) return d;
  const auto& nodes = topology_.nodes();
  d.assign(nodes.size(), kUnreachable);
  d[node] = 0;
  std::deque<uint32_t> todo{node};
  while (!todo.empty()) {
    const uint32_t u = todo.front();
    todo.pop_front();
    if (u != node && nodes[u].kind == NodeKind::host) continue;
    for (const uint32_t p : nodes[u].ports) {
      const uint32_t v = topology_.to(p);
      if (d[v] == kUnreachable) {
        d[v] = static_cast<uint16_t>(d[u] + 1);
        todo.push_back(v);
      }
    }
  }
  return d;
}

void Routing::path(const FlowTuple& tuple, std::vector<uint32_t>& path) {
  const auto& d = distances_to(tuple.dst_node);
  const auto& nodes = topology_.nodes();
  if (d[tuple.src_node] == kUnreachable) {
    throw UserError("no path from " + nodes[tuple.src_node].name + " to " +
                    nodes[tuple.dst_node].name);
  }
  uint32_t u = tuple.src_node;
  while (u != tuple.dst_node) {
    candidates_.clear();
    for (const uint32_t p : nodes[u].ports) {
      const uint32_t v = topology_.to(p);
      if (d[v] + 1 == d[u] && (v == tuple.dst_node || nodes[v].kind != NodeKind::host)) {
        candidates_.push_back(p);
      }
    }
    TRAINYARD_ASSERT(!candidates_.empty());
    if (config_.order == NextHopOrder::descending_peer) {
      std::stable_sort(candidates_.begin(), candidates_.end(),
                       [&](uint32_t a, uint32_t b) { return topology_.to(a) > topology_.to(b); });
    }
    uint64_t pick = 0;
    if (candidates_.size() > 1) {
      const uint32_t seed_node = config_.per_switch_seed ? u : 0;
      if (config_.hash == EcmpHash::murmur3_tuple) {
        const uint32_t ports = tuple.src_port + 65536U * tuple.dst_port;
        pick = murmur3({address(tuple.src_node), address(tuple.dst_node), ports}, seed_node) %
               candidates_.size();
      } else {
        const uint64_t flow = (static_cast<uint64_t>(tuple.src_node) << 32) | tuple.dst_node;
        const uint64_t ports = (static_cast<uint64_t>(tuple.src_port) << 16) | tuple.dst_port;
        pick = dice(config_.seed, seed_node, flow, ports) % candidates_.size();
      }
    }
    path.push_back(candidates_[pick]);
    u = topology_.to(candidates_[pick]);
  }
}

}  // namespace trainyard
