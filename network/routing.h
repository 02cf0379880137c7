// SPDX-License-Identifier: MIT
// Shortest paths by hop count, equal ones chosen by a hash of the flow (ECMP). Hosts are never
// transit, so a path stays in the plane that its first port leads to; a host with ports in several
// planes chooses among those that reach the destination over equally many links; where one of its
// ports leads into a scale-up domain on such a path, it takes no other.
//
// Distances are kept between switches only, one table per group of switches with the same
// neighbours (the leaves of a plane or of a pod), made on first use and as long as the connected
// part of the switch graph that the group is in. A host is handled at its edge: it is one link
// behind the switches that it is cabled to.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "network/pcie_server.h"
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

/// Not thread-safe.
class Routing {
 public:
  Routing(const Topology& topology, RoutingConfig config);

  /// Directed ports from tuple.src_node to tuple.dst_node, appended to `path`. Nothing is appended
  /// when failed links leave no path; throws UserError where there is none with all links up.
  void path(const FlowTuple& tuple, std::vector<uint32_t>& path);

  /// The same without a hash: path `number` of the equal shortest ones, as they are now. The number
  /// is read digit by digit, the first link's choice first, each among as many next hops as there
  /// are, in order of their cables; so 0 .. count_paths() - 1 are all different where every switch
  /// on the way has as many choices as its equals, and any number gives a path.
  void path_by_number(const FlowTuple& tuple, uint64_t number, std::vector<uint32_t>& path);

  /// The number of the path on which the NIC and every switch take the next of their equal next
  /// hops in turn. `turns` counts what each such set of hops has dealt out, by its first directed
  /// port, and is advanced. There must be a path.
  uint64_t number_in_turn(const FlowTuple& tuple, std::unordered_map<uint32_t, uint64_t>& turns);

  /// Takes a cable (both directions) out of service or puts it back. Paths asked for later avoid
  /// links that are down and may be longer for it; with all links up again they are those of
  /// before.
  void set_link_state(uint32_t link, bool up);
  [[nodiscard]] bool link_up(uint32_t link) const { return n_down_ == 0 || down_[link] == 0; }

  /// Number of equal shortest paths, parallel cables counted apart; 0 when there is none now.
  [[nodiscard]] uint64_t count_paths(uint32_t src_node, uint32_t dst_node);

  /// Memory of all tables, for reports.
  [[nodiscard]] uint64_t table_bytes() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint16_t kUnreachable = UINT16_MAX;

  /// A cable from one switch to another, which is named by its position in the component.
  struct Hop {
    uint32_t port, position;
  };
  /// Switches of one component with the same neighbours. They have the same distance to every
  /// switch but themselves.
  struct Group {
    uint32_t component = kNone;
    uint32_t members = 0;
    uint64_t hash = 0;
    std::vector<uint32_t> neighbours;  // positions, ascending
    std::vector<uint16_t> distance;    // by position in the component; empty until used
  };
  /// A switch that the destination is cabled to (or is).
  struct Target {
    uint32_t node, component;
    const uint16_t* distance;  // null until used
  };

  [[nodiscard]] const Hop* hops_begin(uint32_t node) const {
    return hops_.data() + first_hop_[node];
  }
  [[nodiscard]] const Hop* hops_end(uint32_t node) const {
    return hops_.data() + first_hop_[node + 1];
  }
  uint32_t group_of(uint32_t node);
  void leave_group(uint32_t node);
  const uint16_t* distances(uint32_t node);
  void fill(Group& group) const;
  [[nodiscard]] bool survives(const Group& group, uint32_t a, uint32_t b, bool up) const;

  void find_targets(uint32_t dst);
  uint32_t to_target(uint32_t node);
  void first_hops(uint32_t src, uint32_t dst);
  /// Of a pair of GPUs of one PCIe server; `other` wherever there is no such server.
  [[nodiscard]] ServerPath way(uint32_t src, uint32_t dst) const;
  void next_hops(uint32_t node, uint32_t dst);
  [[nodiscard]] bool ever_connected(uint32_t src, uint32_t dst) const;
  uint32_t pick(uint32_t node, const FlowTuple& tuple);
  template <class Pick>
  void walk(const FlowTuple& tuple, std::vector<uint32_t>& path, Pick pick);

  const Topology& topology_;
  bool pcie_;  // there are PCIe servers
  RoutingConfig config_;
  // Switches: component of the switch graph with all links up, position in it, cables to others.
  std::vector<uint32_t> component_, position_;
  std::vector<uint32_t> component_first_, component_nodes_;
  std::vector<uint32_t> first_hop_;
  std::vector<Hop> hops_;

  std::vector<uint32_t> group_;  // of a switch, kNone until used
  std::vector<Group> groups_;
  std::vector<uint32_t> free_groups_;
  std::unordered_multimap<uint64_t, uint32_t> group_by_hash_;

  std::vector<char> down_;  // by link; empty while none ever failed
  size_t n_down_ = 0;

  std::vector<Target> targets_;
  std::vector<uint32_t> candidates_;
};

}  // namespace trainyard
