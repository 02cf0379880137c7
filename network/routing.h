// SPDX-License-Identifier: MIT
// Shortest paths by hop count, equal ones chosen by a hash of the flow (ECMP). Hosts are never
// transit. Distances are computed per destination on first use.
#pragma once

#include <cstdint>
#include <vector>

#include "network/topology.h"

namespace trainyard {

/// How a switch picks among equal next hops.
enum class EcmpHash : uint8_t {
  mix64,         ///< 64-bit mix of the flow tuple and the switch
  murmur3_tuple  ///< 32-bit Murmur3 over {src address, dst address, ports}, seed = switch
};

/// Order of the equal next hops that the hash indexes.
enum class NextHopOrder : uint8_t {
  cabling,         ///< order of the ports
  descending_peer  ///< highest peer node first
};

struct RoutingConfig {
  EcmpHash hash = EcmpHash::mix64;
  NextHopOrder order = NextHopOrder::cabling;
  bool per_switch_seed = true;  ///< false: every switch hashes alike (polarises, pains #40)
  uint64_t seed = 1;
};

/// The tuple that ECMP hashes: RoCEv2's UDP header over the hosts' addresses.
struct FlowTuple {
  uint32_t src_node = 0, dst_node = 0;
  uint16_t src_port = 0, dst_port = 0;
};

/// UDP ports of queue pairs: the n-th of a pair of hosts sends from base + n.
inline constexpr uint16_t kSourcePortBase = 10000;
inline constexpr uint16_t kDestinationPort = 100;

class Routing {
 public:
  Routing(const Topology& topology, RoutingConfig config)
      : topology_(topology), config_(config), distance_(topology.nodes().size()) {}

  /// Directed ports from tuple.src_node to tuple.dst_node, appended to `path`. Not thread-safe.
  void path(const FlowTuple& tuple, std::vector<uint32_t>& path);

 private:
  const std::vector<uint16_t>& distances_to(uint32_t node);

  const Topology& topology_;
  RoutingConfig config_;
  std::vector<std::vector<uint16_t>> distance_;  // [destination][node], empty until used
  std::vector<uint32_t> candidates_;
};

}  // namespace trainyard
