// SPDX-License-Identifier: MIT
// Nodes and cables. Immutable once built; shared by all engines and contention domains.
//
// Node order is the order of the ids in the input: indices are dense, so an order-preserving
// renumbering of a file gives the same Topology.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
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

/// Where a structured fabric put a node.
struct NodePlace {
  uint8_t level = 0;   ///< 1 leaf, 2 spine, 3 core; 0 others, but for PcieRole
  uint16_t plane = 0;  ///< of a switch
  int32_t pod = -1;    ///< of a leaf or spine; -1: none
  int32_t rail = -1;   ///< rail that a leaf serves, or that a host's NIC belongs on; -1: none
};

/// Directed ports that leave a node, in cabling order.
class PortList {
 public:
  PortList(const uint32_t* first, size_t count) : first_(first), count_(count) {}
  [[nodiscard]] const uint32_t* begin() const { return first_; }
  [[nodiscard]] const uint32_t* end() const { return first_ + count_; }
  [[nodiscard]] size_t size() const { return count_; }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  uint32_t operator[](size_t i) const { return first_[i]; }
  bool operator==(const PortList& o) const {
    return std::equal(begin(), end(), o.begin(), o.end());
  }

 private:
  const uint32_t* first_;
  size_t count_;
};

/// A look at one node; valid as long as the Topology.
struct TopologyNode {
  const std::string& name;  ///< "node3.gpu5", "leaf2", ...
  NodeKind kind;
  PortList ports;  ///< after Topology::finish()
  NodePlace place;
};

/// A full-duplex cable. Its two directed ports are 2 * index (a to b) and 2 * index + 1.
struct TopologyLink {
  uint32_t a = 0, b = 0;
  Rate rate;  ///< per direction
  Time delay;
  double loss_rate = 0;  ///< probability that a packet is lost, per traversal
  bool cut = false;      ///< built, and broken: at no port, on no path
};

/// What is wrong with a cable for as long as the Topology lives.
struct LinkDamage {
  uint32_t link = 0;
  bool down = false;
  double rate_share = 1;  ///< of the rate it was built with, above 0 and up to 1
  double loss_rate = 0;   ///< beside that it was built with, independent of it
};

/// Whom hosts must be able to reach when a Topology is finished.
enum class Reach : uint8_t {
  direct,  ///< every host every other, hosts not being transit
  relayed  ///< the same with hosts as transit: rail-only networks, where a message changes its rail
           ///< inside a scale-up domain
};

class Topology {
 public:
  /// All nodes as a sequence of TopologyNode.
  class Nodes {
   public:
    explicit Nodes(const Topology& topology) : topology_(topology) {}
    [[nodiscard]] size_t size() const { return topology_.nodes_.size(); }
    TopologyNode operator[](size_t i) const {
      const Node& n = topology_.nodes_[i];
      return {n.name, n.kind, topology_.ports_of(i), n.place};
    }

   private:
    const Topology& topology_;
  };

  uint32_t add_node(std::string name, NodeKind kind);
  uint32_t add_node(std::string name, NodeKind kind, NodePlace place);
  uint32_t add_link(uint32_t a, uint32_t b, Rate rate, Time delay, double loss_rate = 0);
  /// Moves the end of cable `link` that is at node `from` to node `to`. finish() must follow.
  void move_end(uint32_t link, uint32_t from, uint32_t to);

  /// Call after the last link: orders the ports, lists the hosts (rank = position among hosts) and
  /// checks that every host has a link and that all hosts can reach each other. Throws UserError
  /// naming the first pair that cannot.
  void finish(Reach reach = Reach::direct);
  /// The fabric as routing knows it after these parts have been broken for long. Links keep their
  /// numbers; nic_rate() stays as built. After finish() and place_ranks(). Hosts that no longer
  /// reach each other are told when something goes between them.
  void damage(const std::vector<LinkDamage>& list);
  /// Gives rank r the host `node_of_rank[r]`, a permutation of hosts(). After finish().
  void place_ranks(std::vector<uint32_t> node_of_rank);

  /// Parts that fail together: selectors of network/topology_select.h, under a name that
  /// "group:NAME" stands for there.
  void add_risk_group(const std::string& name, std::vector<std::string> members) {
    risk_groups_[name] = std::move(members);
  }
  [[nodiscard]] const std::map<std::string, std::vector<std::string>>& risk_groups() const {
    return risk_groups_;
  }

  [[nodiscard]] Nodes nodes() const { return Nodes(*this); }
  [[nodiscard]] NodeKind kind(uint32_t node) const { return nodes_[node].kind; }
  [[nodiscard]] Reach reach() const { return reach_; }
  [[nodiscard]] const std::vector<TopologyLink>& links() const { return links_; }
  [[nodiscard]] const std::vector<uint32_t>& hosts() const { return hosts_; }  ///< rank -> node
  [[nodiscard]] uint32_t count(NodeKind kind) const;

  [[nodiscard]] uint32_t from(uint32_t port) const {
    const auto& l = links_[port >> 1];
    return (port & 1) != 0 ? l.b : l.a;
  }
  [[nodiscard]] uint32_t to(uint32_t port) const { return from(port ^ 1); }
  [[nodiscard]] const TopologyLink& link_of(uint32_t port) const { return links_[port >> 1]; }
  /// A cable between a host and a switch outside of its scale-up domain.
  [[nodiscard]] bool is_nic_link(uint32_t link) const;
  /// NIC cables of a host, in order of its NIC ports.
  [[nodiscard]] std::vector<uint32_t> nic_links(uint32_t host) const;
  /// "scale-up", "host-leaf", "leaf-spine", "host-host", ... (lower tier first)
  [[nodiscard]] std::string tier(uint32_t port) const;
  /// Slowest NIC port: a host's port that does not lead to a scale-up switch. Zero when there is
  /// none (a single server).
  [[nodiscard]] Rate nic_rate() const { return nic_rate_; }
  /// Hosts of the server of `host`, itself included, in order of their indices: by their names
  /// ("node3.gpu0", ...) or, where these say nothing, those behind the same scale-up switch.
  [[nodiscard]] std::vector<uint32_t> server_mates(uint32_t host) const;
  /// Server of each rank: ranks behind one scale-up switch share it, others are alone.
  [[nodiscard]] const std::vector<uint32_t>& servers() const { return servers_; }

 private:
  struct Node {
    std::string name;  // up to 15 characters take no memory of their own
    NodeKind kind;
    NodePlace place;
  };
  [[nodiscard]] PortList ports_of(size_t node) const {
    if (node + 1 >= first_port_.size()) return {nullptr, 0};
    const uint32_t first = first_port_[node];
    return {ports_.data() + first, first_port_[node + 1] - first};
  }
  void order_ports();
  void find_servers();
  void check_reach() const;

  std::vector<Node> nodes_;
  std::vector<TopologyLink> links_;
  std::vector<uint32_t> first_port_, ports_;  // ports_[first_port_[n] .. first_port_[n + 1])
  std::vector<uint32_t> hosts_, servers_;
  std::map<std::string, std::vector<std::string>> risk_groups_;
  Rate nic_rate_;
  Reach reach_ = Reach::direct;
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
