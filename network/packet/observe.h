// SPDX-License-Identifier: MIT
// What a packet domain looks at beside what it counts anyway. Nothing here decides anything: with
// all of it on or off the trajectory is the same.
#pragma once

#include <cstdint>
#include <memory>

#include "network/packet/observe_flows.h"
#include "network/packet/observe_packets.h"
#include "network/packet/observe_qps.h"
#include "sim/units.h"

namespace trainyard {

struct ObserveOptions {
  Time qp_window;           ///< zero: no series of queue pairs
  uint64_t sample_q32 = 0;  ///< data packets followed, of 2^32
  bool flows = false;       ///< flow records of switches
  uint64_t seed = 1;
  [[nodiscard]] bool any() const { return qp_window > Time() || sample_q32 > 0 || flows; }
};

struct Observer {
  std::unique_ptr<QpTelemetry> qps;
  std::unique_ptr<PacketTracer> packets;
  std::unique_ptr<FlowCounter> flows;
};

}  // namespace trainyard
