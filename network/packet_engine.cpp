// SPDX-License-Identifier: MIT
// Announces the packet engine.
#include "network/engine.h"
#include "network/packet/packet_fabric.h"
#include "sim/registry.h"

namespace trainyard {
namespace {

const RegisterModel<EngineFactory> kPacket{
    {"engine",
     "packet",
     "Every packet on every link: queues, PFC, ECN, congestion control, losses. The reference for "
     "the other engines.",
     "docs/engine.md",
     {}},
    [](const Topology& topology, const PacketConfig& config, const Params&) {
      return std::make_unique<PacketFabric>(topology, config);
    }};

}  // namespace
}  // namespace trainyard
