// SPDX-License-Identifier: MIT
// What one NIC port counts; touched only where something is out of the ordinary.
#pragma once

#include <cstdint>

namespace trainyard {

struct NicCounters {
  uint64_t out_of_sequence = 0, ack_timeouts = 0;
  uint64_t nacks_sent = 0, nacks_received = 0;
  uint64_t cnps_sent = 0, cnps_received = 0;
  uint64_t pauses_sent = 0;
  uint64_t link_downs = 0;
  int64_t waiting_peak = 0;  ///< bytes
};

}  // namespace trainyard
