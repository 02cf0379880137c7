// SPDX-License-Identifier: MIT
// Parts of a fabric by name. '*' stands for any characters, [0-3] or [0,4,6-7] for numbers.
//
//   node3.gpu5, rank17          a GPU
//   node3.nic5, node[0-3].nic*  the NIC of a GPU: all its cables; node3.nic5:port1 one of them
//   leaf3, plane0.*, node3      switches, or all nodes whose name begins with these parts
//   pod2                        all nodes of a pod
//   leaf3:port7                 the cable at a port, counted from 0
//   leaf3:optic2                the cables at ports 4 and 5: one module with two ports (B: P5)
//   link(leaf0,spine2)          all cables between two nodes
//   group:optic17               all members of a shared-risk group (fabric.risk_groups)
//
// A pattern that matches nothing is an error.
#pragma once

#include <string>
#include <vector>

#include "network/topology.h"

namespace trainyard {

bool matches_pattern(const std::string& pattern, const std::string& text);

/// Nodes that a pattern names, ascending. Throws UserError at `pos` when there are none.
std::vector<uint32_t> select_nodes(const Topology& topology, const std::string& pattern,
                                   const SourcePos& pos);

/// Cables that a pattern names, ascending: those at the nodes where it names nodes. Throws
/// UserError at `pos` when there are none.
std::vector<uint32_t> select_links(const Topology& topology, const std::string& pattern,
                                   const SourcePos& pos);

/// A selector of one cable: "leaf0:port4", of its `a` end.
std::string port_name(const Topology& topology, uint32_t link);

/// "node3.nic5" for the host "node3.gpu5", "host7.nic0" for the host "host7".
std::string nic_name(const std::string& host_name);

}  // namespace trainyard
