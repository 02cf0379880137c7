// SPDX-License-Identifier: MIT
// What the structured fabrics have in common: servers with scale-up domains, the shape of a NIC
// (planes, ports, leaves per NIC), and the switches of one plane as a tree of two or three tiers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "network/topology.h"

namespace trainyard {

/// Parameter groups; a kind joins those it has.
std::vector<ParamSpec> join_params(const std::vector<std::vector<ParamSpec>>& groups);
const std::vector<ParamSpec>& cable_params();     ///< link.*, nic.rate
const std::vector<ParamSpec>& nic_params();       ///< planes, nic.ports, tor
const std::vector<ParamSpec>& scale_up_params();  ///< scale_up.*
const std::vector<ParamSpec>& tier_params();  ///< leaf_radix, oversubscription, tiers, pods, ...

/// How a NIC meets its leaves.
struct NicShape {
  uint32_t planes = 1;
  uint32_t ports = 1;  ///< of a NIC, all planes together
  uint32_t leaves =
      1;  ///< different leaves of one plane that a NIC is cabled to: 1, or 2 (dual ToR)
  uint32_t cables = 1;  ///< cables from a NIC to each of them
  Rate port_rate;
};
/// Throws UserError where planes, nic.ports and tor contradict each other. Kinds without these
/// parameters have one port.
NicShape nic_shape(const Params& p);

/// Refuses servers whose number of NICs is not that of their GPUs.
void check_nics(const TopologyRequest& r);

/// GPUs of all servers, rank = node * gpus_per_node + gpu, then one scale-up switch per domain.
/// `rail_of` (may be empty) says on which rail the NIC of a rank belongs.
void add_servers(Topology& t, const TopologyRequest& r, const Params& p,
                 const std::function<int32_t(uint32_t rank)>& rail_of = {});

/// A leaf and the NICs (ranks) that it serves.
struct LeafPlan {
  std::string name;  ///< without plane and pod
  int32_t rail = -1;
  std::vector<uint32_t> ranks;
};

/// Switches of one plane. Every leaf has `leaf_cables` cables to each spine of its pod; spine s of
/// every pod has `core_cables` cables to each core of group s.
struct TreePlan {
  std::vector<LeafPlan> leaves;  ///< pod by pod
  uint32_t leaves_per_pod = 0;
  uint32_t pods = 1;
  uint32_t spines_per_pod = 0;  ///< 0: no spines
  uint32_t leaf_cables = 1;
  uint32_t cores_per_spine = 0;  ///< 0: two tiers
  uint32_t core_cables = 1;
  Rate fabric_rate;            ///< of a cable between switches
  bool pods_in_names = false;  ///< "pod1.leaf5"
  std::string spine_name = "spine", core_name = "core";
};

/// Port counts of a leaf.
struct LeafSize {
  uint32_t down = 0;  ///< ports to NICs
  uint32_t up = 0;    ///< ports to spines, each of `shuffle` lanes
};
/// Ports of a leaf that may face down by leaf_down, or by leaf_radix and oversubscription.
uint32_t most_down_ports(const Params& p);
/// Uplinks for `down` used ports. Throws UserError where the leaf has not enough ports.
LeafSize leaf_size(const TopologyRequest& r, const Params& p, uint32_t down, const NicShape& nic);
/// Divides `leaves` into pods (whole multiples of `unit` leaves) and finds the numbers of spines
/// and cores that the radices allow. Throws UserError where none does.
void size_tree(const TopologyRequest& r, const Params& p, const LeafSize& leaf, uint32_t unit,
               const NicShape& nic, TreePlan& tree);

/// Adds one plane. Throws UserError for more cables than memory should be spent on.
void add_plane(Topology& t, const TopologyRequest& r, const Params& p, const NicShape& nic,
               uint32_t plane, const TreePlan& tree);

}  // namespace trainyard
