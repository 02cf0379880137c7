// SPDX-License-Identifier: MIT
#pragma once

#include "network/packet/config.h"
#include "network/topology.h"
#include "workload/nccl_model.h"

namespace trainyard {

/// Rates and latencies of the fabric under ranks 0, 1, ..., as the first server and its neighbour
/// have them. The generation is not the fabric's: as FabricFacts has it.
FabricFacts fabric_facts(const Topology& topology, const PacketConfig& config);

}  // namespace trainyard
