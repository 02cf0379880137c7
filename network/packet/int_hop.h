// SPDX-License-Identifier: MIT
// In-band telemetry of one switch egress port, as a data packet carries it to the receiver and an
// ACK brings it back.
#pragma once

#include <cstdint>

namespace trainyard {

/// Stamped when the packet leaves the egress queue to be sent.
struct IntHop {
  int64_t time_ps = 0;     ///< when
  int64_t tx_bytes = 0;    ///< sent by the port before this packet, all classes
  int64_t qlen_bytes = 0;  ///< left in the port's queues without this packet, all classes
  int64_t rate_bps = 0;    ///< of the port
};

}  // namespace trainyard
