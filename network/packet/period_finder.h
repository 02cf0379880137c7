// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "network/packet/domain_registry.h"
#include "sim/fabric.h"
#include "sim/hash128.h"

namespace trainyard {

/// The search for a period of a packet domain, see domain_period.cpp.
struct PeriodFinder {
  static constexpr uint32_t kNil = 0xffffffffU;
  static constexpr int64_t kShortest = 64;      // packets left in a message, to be worth a look
  static constexpr uint64_t kGiveUp = 1 << 16;  // boundaries without a return

  uint32_t anchor = kNil;
  int64_t seen = 0;  // `next` of the anchor at the last look
  uint64_t power = 32;
  uint64_t spent = 0, allowed_from = 0;  // state hashed; events when counting began

  bool has_reference = false;
  Hash128 hash;
  int64_t time = 0;
  uint64_t live = 0, boundaries = 0;
  // Counters at the reference.
  uint64_t draws = 0, marks = 0, drops = 0, rate_changes = 0, timeouts = 0, nacks = 0, cnps = 0;
  FabricTotals totals;
  uint64_t ended_transmissions = 0;
  int64_t ended_bytes = 0;
  struct PortCount {
    uint64_t packets, pauses;
    int64_t bytes, payload, busy;
  };
  std::vector<PortCount> ports;
  std::vector<int64_t> paused;  // per lane
  struct QpCount {
    int64_t next;
    uint32_t transfer, receiving, acknowledging, receive_packets, receive_transmissions,
        ack_transmissions;
    uint64_t sent_packets;
  };
  std::vector<QpCount> qps;
  std::vector<TraceEntry> pauses;  // what was added to the fingerprint since
};

}  // namespace trainyard
