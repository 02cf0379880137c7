// SPDX-License-Identifier: MIT
// What the configuration says of a port, a switch and the whole fabric. Every engine that models
// buffers asks here.
#pragma once

#include <cstdint>

#include "network/packet/config.h"
#include "network/routing.h"
#include "network/topology.h"

namespace trainyard {

/// Bytes kept for what is under way after a pause, per ingress and class.
int64_t headroom_bytes(const PacketConfig& config, const TopologyLink& link);

/// ECN marks from kmin on, all of them beyond kmax; bytes of the egress queue.
struct EcnBand {
  int64_t kmin = 0, kmax = 0;
};
/// Of a port of this rate. Throws UserError where kmin is above kmax on a port that `marks`.
EcnBand ecn_band(const PacketConfig& config, Rate rate, bool marks);

/// Share of the free pool that an ingress may hold, Q16.
int64_t alpha_q16(const PacketConfig& config, Rate port, Rate nic);

struct SharedPool {
  int64_t bytes = 0;  ///< the buffer less reserves and headrooms of all ports and classes
  int64_t xoff = 0;   ///< static threshold, bytes
};
/// Throws UserError where nothing is left to share.
SharedPool shared_pool(const PacketConfig& config, const Topology& topology, uint32_t node);

/// The largest over pairs of hosts, of which some stand for all in large fabrics.
struct LongestPair {
  int64_t bdp_bytes = -1, rtt_ps = -1;
};
LongestPair longest_pair(const PacketConfig& config, const Topology& topology, Routing& routing);

}  // namespace trainyard
