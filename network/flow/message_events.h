// SPDX-License-Identifier: MIT
// The events of engines that know messages only: one starts, has arrived, has been acknowledged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "network/flow/path_book.h"
#include "sim/errors.h"
#include "sim/event_queue.h"
#include "sim/fabric.h"

namespace trainyard {

class MessageEvents {
 public:
  explicit MessageEvents(const PacketConfig& config)
      : send_delay_ps_(config.send_delay_ps), receive_delay_ps_(config.receive_delay_ps) {}

  void start(TransferId id, Time at) {
    TRAINYARD_ASSERT(id < (1U << kKindShift));
    events_.push(at.ps() + send_delay_ps_, key(kStart, id), 0);
  }
  /// The last byte is in the NIC at `at`, whose ACK takes `return_ps`.
  void arrive(TransferId id, int64_t at, int64_t return_ps) {
    events_.push(at + receive_delay_ps_, key(kDelivered, id), 0);
    events_.push(at + return_ps, key(kAcknowledged, id), 0);
  }
  [[nodiscard]] bool empty() const { return events_.empty(); }
  [[nodiscard]] int64_t next_time() const { return events_.next_time(); }

  /// Everything that is due at `now`: `on_start(id)`, or an entry in `book` and in `out`. `qp_of`
  /// has the queue pair of a transfer. Returns the number of events.
  template <class OnStart, class QpOf>
  uint64_t run(int64_t now, PathBook& book, std::vector<Completion>& out, OnStart on_start,
               QpOf qp_of) {
    uint64_t done = 0;
    while (!events_.empty() && events_.next_time() == now) {
      const Event e = events_.pop();
      ++done;
      const TransferId id = e.key & ((1U << kKindShift) - 1);
      switch (static_cast<Kind>(e.key >> kKindShift)) {
        case kStart:
          on_start(id);
          break;
        case kDelivered:
          book.deliver(id, qp_of(id), Time::ps(now));
          out.push_back({Time::ps(now), id, Completion::What::delivered});
          break;
        case kAcknowledged:
          book.acknowledge(id, Time::ps(now));
          out.push_back({Time::ps(now), id, Completion::What::acknowledged});
          break;
      }
    }
    return done;
  }

 private:
  enum Kind : uint32_t { kStart, kDelivered, kAcknowledged };
  static constexpr uint32_t kKindShift = 30;
  static uint32_t key(Kind kind, TransferId id) { return (kind << kKindShift) | id; }

  const int64_t send_delay_ps_, receive_delay_ps_;
  mutable EventQueue events_;  // a look at the next event settles it
};

}  // namespace trainyard
