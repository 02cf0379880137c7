// SPDX-License-Identifier: MIT
// Which rank is where, and which cables are not where the plan has them: `cluster.placement` and
// the `wiring` block.
#pragma once

#include "tools/scenario/scenario.h"

namespace trainyard {

/// Cables NICs as `wiring` says: nic_order first, then the swaps in order.
void apply_wiring(Topology& topology, const Scenario& scenario);

/// Orders the hosts by rank as `cluster.placement` says. `ranks` is what the workload needs (0: no
/// workload).
void apply_placement(Topology& topology, const Scenario& scenario, uint32_t ranks);

}  // namespace trainyard
