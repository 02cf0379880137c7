// SPDX-License-Identifier: MIT
// Nodes and cables. Immutable once built; shared by all engines and contention domains.
//
// Node order is the order of the ids in the input: indices are dense, so an order-preserving
// renumbering of a file gives the same Topology.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/registry.h"
#include "sim/units.h"

namespace trainyard {

enum class NodeKind : uint8_t {
  host,     ///< an endpoint: a GPU with its NIC ports; never transit
  leaf,     ///< first switch above a NIC
  spine,    ///< any switch above
  scale_up  ///< NVLink-class switch inside a server; never a rank
};

const char* node_kind_name(NodeKind kind);

struct TopologyNode {
  std::string name;  ///< "node3.gpu5", "leaf2", ...
  NodeKind kind = NodeKind::host;
  std::vector<uint32_t> ports;  ///< directed ports that leave this node, in cabling order
};

/// A full-duplex cable. Its two directed ports are 2 * index (a to b) and 2 * index + 1.
struct TopologyLink {
  uint32_t a = 0, b = 0;
  Rate rate;  ///< per direction
  Time delay;
  double loss_rate = 0;  ///< probability that a packet is lost, per traversal
};

class Topology {
 public:
  uint32_t add_node(std::string name, NodeKind kind);
  uint32_t add_link(uint32_t a, uint32_t b, Rate rate, Time delay, double loss_rate = 0);

  /// Call once after the last link: lists the hosts (rank = position among hosts) and checks that
  /// every host has a link and that all hosts can reach each other without transit through a host.
  /// Throws UserError naming the first pair that cannot.
  void finish();

  [[nodiscard]] const std::vector<TopologyNode>& nodes() const { return nodes_; }
  [[nodiscard]] const std::vector<TopologyLink>& links() const { return links_; }
  [[nodiscard]] const std::vector<uint32_t>& hosts() const { return hosts_; }  ///< rank -> node
  [[nodiscard]] uint32_t count(NodeKind kind) const;

  [[nodiscard]] uint32_t from(uint32_t port) const {
    const auto& l = links_[port >> 1];
    return (port & 1) != 0 ? l.b : l.a;
  }
  [[nodiscard]] uint32_t to(uint32_t port) const { return from(port ^ 1); }
  [[nodiscard]] const TopologyLink& link_of(uint32_t port) const { return links_[port >> 1]; }
  /// "scale-up", "host-leaf", "leaf-spine", "host-host", ... (lower tier first)
  [[nodiscard]] std::string tier(uint32_t port) const;
  /// Slowest NIC port: a host's port that does not lead to a scale-up switch. Zero when there is
  /// none (a single server).
  [[nodiscard]] Rate nic_rate() const { return nic_rate_; }
  /// Server of each rank: ranks behind one scale-up switch share it, others are alone.
  [[nodiscard]] const std::vector<uint32_t>& servers() const { return servers_; }

 private:
  std::vector<TopologyNode> nodes_;
  std::vector<TopologyLink> links_;
  std::vector<uint32_t> hosts_, servers_;
  Rate nic_rate_;
};

/// What a topology kind is built from beside its own parameters.
struct TopologyRequest {
  uint32_t nodes = 1;          ///< servers
  bool nodes_auto = false;     ///< the scenario does not say how many: a kind with a size of its
                               ///< own may fill itself
  uint32_t gpus_per_node = 8;  ///< ranks per server
  uint32_t nics_per_node = 8;
  std::string base_dir;  ///< for relative paths of files
  SourcePos pos;         ///< of the topology block
};

/// Factory of category "topology".
using TopologyFactory = std::function<Topology(const TopologyRequest&, const Params&)>;

}  // namespace trainyard
