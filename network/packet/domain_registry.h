// SPDX-License-Identifier: MIT
// What a packet domain that simulates a part of the network takes over from the whole run, and
// what it hands back: identities and order of its parts, and what they remember between two busy
// periods.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "network/packet/config.h"
#include "network/packet/dcqcn.h"
#include "network/packet/dctcp.h"
#include "network/packet/hpcc.h"
#include "network/packet/port_model.h"
#include "network/packet/timely.h"
#include "network/routing.h"

namespace trainyard {

/// Who a queue pair is.
struct QpIdentity {
  uint32_t src = 0, dst = 0;  ///< ranks
  uint32_t channel = 0;
  uint8_t traffic_class = 0, part = 0;
  uint32_t nth = 0;   ///< of the queue pairs of (src, dst): gives the source port
  uint32_t rank = 0;  ///< order of first use in the run; settles ties
  /// Whom its marks are drawn for, counted from byte `noise_from` of its sequence space on; 0:
  /// itself, from the first byte on.
  uint64_t noise = 0;
  int64_t noise_from = 0;
};

/// Of a controller that acts on every ACK; the configured one of them counts.
struct AckController {
  Hpcc hpcc;
  Timely timely;
  Dctcp dctcp;
};

/// What an idle queue pair keeps. Times are absolute, in ps.
struct QpMemory {
  int64_t posted = 0;  ///< bytes of its sequence space so far, all acknowledged
  int64_t rate = 0;    ///< 0: line rate
  int64_t next_send = 0, last_sent = 0;
  uint64_t sent_packets = 0;
  uint32_t flowlets = 0, path_choice = 0;
  int64_t last_cnp = INT64_MIN / 2, last_nack = INT64_MIN / 2, last_nack_seq = -1;
  int64_t since_ack = 0;
  bool notify = false, increase_running = false;
  int64_t increase_next = 0;
  Dcqcn dcqcn;
  std::shared_ptr<const AckController> ack_controller;  ///< null: has not acted yet, or other kind
  bool used = false;  ///< false: everything above is as at first use
};

/// What an idle directed port keeps.
struct PortMemory {
  static constexpr uint32_t kNobody = 0xffffffffU;
  /// NIC: rank of the queue pair, by class.
  std::array<uint32_t, kMaxClasses> last_served = nobody();
  uint32_t turn = 0;  ///< DWRR
  std::array<int32_t, kMaxClasses> deficit{};
  uint64_t mark_credit_q32 = 0;
  uint64_t loss_draws = 0;  ///< packets for which losses were drawn
  int64_t tx_bytes = 0;     ///< sent by it before, for telemetry stamps
  bool operator==(const PortMemory&) const = default;
  static constexpr std::array<uint32_t, kMaxClasses> nobody() {
    std::array<uint32_t, kMaxClasses> all{};
    all.fill(kNobody);
    return all;
  }
};

/// What a directed port has done.
struct PortTally {
  uint64_t packets = 0, marked = 0, pauses = 0, drops = 0;
  int64_t bytes = 0, payload = 0, busy = 0, paused = 0;
  int64_t peak = 0;
  void add(const PortTally& o) {
    packets += o.packets;
    marked += o.marked;
    pauses += o.pauses;
    drops += o.drops;
    bytes += o.bytes;
    payload += o.payload;
    busy += o.busy;
    paused += o.paused;
    peak = peak > o.peak ? peak : o.peak;
  }
};

/// One summand of the fingerprint.
struct TraceEntry {
  int64_t time_ps = 0;
  uint32_t what = 0;
  uint32_t object = 0;  ///< local queue pair, or local port for pauses
  int64_t value = 0;    ///< end of the message, rate, class and direction, local queue pair
};

/// Use of a switch's shared buffer by one domain. While the peaks of all domains that use the
/// switch sum to no more than the smallest room of them, none of their decisions would have been
/// another one had they been simulated together.
struct PoolUse {
  uint32_t port = 0;  ///< local, one that leads into the switch
  int64_t peak = 0;   ///< bytes
  int64_t room = 0;   ///< bytes; -1: it paused or dropped, so that any other use matters
};

/// The run that a domain is a part of. Asked when something is used first, never per packet.
class DomainRegistry {
 public:
  virtual ~DomainRegistry() = default;
  virtual Routing& routing() = 0;
  /// Order of first use of a link in the run, from 0; its two directions are 2n and 2n + 1.
  virtual uint32_t link_order(uint32_t link) = 0;
  virtual PortMemory port_memory(uint32_t port) = 0;

  LongestPair longest;  ///< -1: nobody has asked yet
};

}  // namespace trainyard
