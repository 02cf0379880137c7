// SPDX-License-Identifier: MIT
// What NCCL's protocols add to an algorithm: software time per step, and flags on the wire.
//
// A call takes at least base + steps inside servers x step + steps between servers x step, whatever
// its size, and else what its messages take: the longer of both, since pieces follow each other
// (nccl-measured 2.6: within 1 % at 1, 8 and 16 GiB over 2046 steps, up to 8 % low between). LL
// sends a flag of 4 bytes with 4 of data, LL128 one of 8 with 120 (A:F49); Simple sends data alone.
// The constants are those of NCCL 2.30.7's tuner (nccl-measured 3), on InfiniBand within 2 % of
// measured small all-reduces on 1 to 4 servers of 8 H100 (2.3). Known for rings, chains, trees and
// nvls.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "sim/collective.h"
#include "sim/params.h"

namespace trainyard {

enum class Protocol : uint8_t { ll, ll128, simple };
inline constexpr size_t kProtocols = 3;
/// "LL", "LL128", "Simple".
const char* protocol_name(Protocol protocol);

/// Wire bytes of `payload` bytes: two for one, 128 for 120, as many.
int64_t protocol_bytes(Protocol protocol, int64_t payload);

/// Software time of a call; zero for algorithms that NCCL's tuner does not know.
Time protocol_latency(Protocol protocol, const std::string& algorithm,
                      const CollectiveRequest& request);

/// `inner` with a protocol, which outlives it.
std::unique_ptr<CollectiveAlgorithm> with_protocol(const CollectiveAlgorithm& inner,
                                                   Protocol protocol);

/// Latency + wire bytes over bandwidth, in seconds: what a tuner compares (A:F50).
/// @param nic_bps, scale_up_bps  of a GPU; a ring or tree uses the NICs of all members of a server
double protocol_estimate(Protocol protocol, const CollectiveAlgorithm& algorithm,
                         const CollectiveRequest& request, double nic_bps, double scale_up_bps);

}  // namespace trainyard
