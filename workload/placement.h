// SPDX-License-Identifier: MIT
#pragma once

#include "network/topology.h"
#include "sim/collective.h"

namespace trainyard {

/// Servers and, where the fabric has them, rails of all ranks.
Placement placement_on(const Topology& topology);

}  // namespace trainyard
