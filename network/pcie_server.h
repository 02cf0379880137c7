// SPDX-License-Identifier: MIT
// Servers whose GPUs meet over PCIe: GPUs below PCIe switches, switches below sockets, sockets
// joined with each other, host memory at each socket; all of them scale-up nodes of the graph.
// Which way a pair of GPUs of a server takes is decided as NCCL's transports are: peer to peer as
// far as p2p_level allows, else shared memory, else the NICs.
#pragma once

#include <string>
#include <vector>

#include "network/topology.h"

namespace trainyard {

/// NodePlace::level of a scale-up node in such a server; 0 in all others. A socket says how far
/// apart GPUs may be that reach each other's memory.
enum class PcieRole : uint8_t {
  none = 0,
  pcie_switch = 1,
  host_memory = 2,
  socket_peers_nowhere = 4,    ///< no peer-to-peer over PCIe
  socket_peers_on_switch = 5,  ///< NCCL's PIX and PXB
  socket_peers_on_socket = 6,  ///< PHB
  socket_peers_anywhere = 7,   ///< SYS
};

/// The way of a pair of GPUs.
enum class ServerPath : uint8_t {
  other,          ///< not of one PCIe server: what routing finds
  peer_switch,    ///< peer to peer over one PCIe switch
  peer_socket,    ///< peer to peer over the host bridge of a socket
  peer_sockets,   ///< peer to peer between sockets
  shared_memory,  ///< through host memory at the receiver's socket
  nic             ///< out of the server and back
};

/// scale_up.* that count for PCIe servers alone.
const std::vector<ParamSpec>& pcie_params();

/// Throws UserError where keys of one kind of server are set for another.
void check_pcie_params(const TopologyRequest& r, const Params& p);

/// What joins the GPUs `first` to `first + gpus_per_node - 1`, which are there.
void add_pcie_server(Topology& t, const TopologyRequest& r, const Params& p, uint32_t first);

/// Payload rate of a PCIe link: line rate less encoding (128b/130b) and headers of 24 bytes per
/// 256 (framing, four-word header, LCRC).
Rate pcie_rate(int64_t generation, int64_t lanes);

/// Whether there is any; where not, server_path() is always `other`.
bool has_pcie_servers(const Topology& t);

/// How two hosts of a finished topology reach each other, all parts working.
ServerPath server_path(const Topology& t, uint32_t host_a, uint32_t host_b);

/// Host memory at the socket of a host; UINT32_MAX where there is none.
uint32_t host_memory_of(const Topology& t, uint32_t host);

/// "PIX", "PHB", "SYS", "SHM", "NET", "-".
const char* server_path_name(ServerPath path);

/// The ways between all GPUs of the server of rank 0, one line per GPU; empty where it is no PCIe
/// server.
std::string server_paths_text(const Topology& t);

}  // namespace trainyard
