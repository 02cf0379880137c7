// SPDX-License-Identifier: MIT
// Figures per tier and direction: how evenly its links were loaded, how long packets queued there.
#pragma once

#include <vector>

#include "network/topology.h"
#include "sim/fabric.h"
#include "sim/observations.h"

namespace trainyard {

/// One entry per tier and direction that carried data, ordered by tier and direction. Links of
/// `topology` that are not in `links` were idle and count as such. ACKs do not count: a group of
/// links that carries nothing else has little to balance.
std::vector<TierLoad> tier_loads(const Topology& topology, const std::vector<LinkRecord>& links);

/// The same per window. `series` is in the order of `links`.
TierLoadSeries tier_load_series(const Topology& topology, const std::vector<LinkRecord>& links,
                                const LinkSeries& series);

/// Fills in `windows` of tier_loads() from tier_load_series() of the same run.
void add_windows(const TierLoadSeries& series, std::vector<TierLoad>& loads);

/// Queueing of the followed packets per tier and direction, ordered by both; then over whole paths
/// of those that were delivered. NICs are left out: nothing queues in them. Empty without samples.
std::vector<TierQueueing> tier_queueing(const Topology& topology,
                                        const std::vector<LinkRecord>& links,
                                        const PacketSamples& samples);

/// "up", "down" or "across": which way a link goes between its nodes.
const char* link_direction(const Topology& topology, uint32_t from, uint32_t to);

}  // namespace trainyard
