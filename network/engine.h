// SPDX-License-Identifier: MIT
// The engines by name: registry category "engine", chosen by `simulation.engine`.
#pragma once

#include <functional>
#include <memory>

#include "network/packet/config.h"
#include "network/topology.h"
#include "sim/fabric.h"
#include "sim/params.h"

namespace trainyard {

/// Factory of category "engine". `topology` must outlive the fabric. What an engine does not model
/// of the configuration it ignores; its help says so.
using EngineFactory = std::function<std::unique_ptr<Fabric>(
    const Topology& topology, const PacketConfig& config, const Params& params)>;

}  // namespace trainyard
