// SPDX-License-Identifier: MIT
// Who is served next where there are several data classes: strict priority or deficit weighted
// round robin among the classes that have something to send now, at switches and NICs alike; in a
// class of a NIC, its queue pairs in turn.
#include <algorithm>
#include <array>
#include <bit>

#include "network/packet/domain.h"

namespace trainyard {

/// Deficit weighted round robin among the classes whose bits are set in `ready`, of which there is
/// one at least. `size`: bytes on the wire of the next packet of a class.
template <class Size>
uint32_t PacketDomain::by_deficit(uint32_t pi, uint32_t ready, Size size) {
  Port& p = ports_[pi];
  for (;;) {
    const uint32_t c = p.turn;
    LaneState& state = lane_states_[lane_index(pi, c)];
    if ((ready >> c & 1) != 0) {
      const int32_t bytes = size(c);
      if (state.deficit >= bytes) {
        state.deficit -= bytes;
        return c;
      }
    } else {
      state.deficit = 0;
    }
    // The next class takes its turn with a fresh quantum: a full packet per unit of weight.
    p.turn = (c + 1) % classes_;
    if ((ready >> p.turn & 1) != 0) {
      lane_states_[lane_index(pi, p.turn)].deficit += static_cast<int32_t>(
          config_.weights[p.turn] * static_cast<uint32_t>(config_.payload + config_.header));
    }
  }
}

/// @returns the class that a switch port serves next; kNil: none can be.
uint32_t PacketDomain::class_of_switch(uint32_t pi) {
  uint32_t ready = 0;
  for (uint32_t c = 0; c < classes_; ++c) {
    const Lane& l = lane(pi, c);
    if (!l.paused && l.data.head != kNil) ready |= 1U << c;
  }
  if (ready == 0) return kNil;
  if (!config_.dwrr) return static_cast<uint32_t>(std::countr_zero(ready));
  return by_deficit(pi, ready,
                    [&](uint32_t c) -> int32_t { return packets_[lane(pi, c).data.head].wire; });
}

/// @returns the queue pair that a NIC serves next; kNil: none can be, and the NIC looks again when
/// the pace of the first one allows.
uint32_t PacketDomain::queue_pair_of_nic(uint32_t pi) {
  const uint32_t si = ports_[pi].sender;
  if (senders_[si].paced) find_due(pi);
  std::array<uint32_t, kMaxClasses> first{};
  uint32_t ready = 0;
  for (uint32_t c = 0; c < classes_ && (ready == 0 || config_.dwrr); ++c) {
    if (lane(pi, c).paused) continue;
    first[c] = next_in_class(si, c);
    if (first[c] != kNil) ready |= 1U << c;
  }
  if (ready == 0) {
    const int64_t soonest = next_pace(pi);
    if (soonest != kNever) schedule_transmit(pi, soonest);
    return kNil;
  }
  auto c = static_cast<uint32_t>(std::countr_zero(ready));
  if (config_.dwrr) {
    c = by_deficit(pi, ready, [&](uint32_t of) {
      const uint32_t qi = first[of];
      const QueuePair& q = qps_[qi];
      int64_t seq = q.next;
      uint32_t state = q.send_transfer;
      if (selective() && !selective_[qi].repeat.empty()) {
        seq = selective_[qi].repeat.front() * config_.payload;
        state = q.ack_transfer;
        while (states_[state].end <= seq) state = states_[state].next;
      }
      return static_cast<int32_t>(payload_at(seq, state) + config_.header);
    });
  }
  senders_[si].last_served[c] = qps_[first[c]].rank;
  senders_[si].served |= static_cast<uint8_t>(1U << c);
  return first[c];
}

/// The first queue pair of a class, after the one served last, that may send now; kNil: none.
uint32_t PacketDomain::next_in_class(uint32_t si, uint32_t c) {
  Sender& sender = senders_[si];
  auto& list = sender.paced ? pacings_[si].due : sender.active;
  const auto index = [&](uint32_t of, uint32_t rank) {
    return static_cast<size_t>(position(list, of, rank) - list.begin());
  };
  const size_t begin = index(c, 0);
  size_t end = index(c + 1, 0);
  const uint32_t last = sender.last_served[c];
  size_t at = last == kNil ? begin : index(c, last + 1);
  for (size_t left = end - begin; left > 0; --left) {
    if (at == end) at = begin;
    const uint32_t qi = list[at];
    const QueuePair& q = qps_[qi];
    if (q.next_send > now_) {
      if (sender.paced) {
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
        pace(si, qi);
        --end;
      } else {
        ++at;
      }
      continue;
    }
    if (selective()) {
      if (has_repeat(q, qi)) return qi;
      if (q.next == q.posted) {
        deactivate(qi);  // nothing to repeat after all
        --end;
        continue;
      }
    }
    if (q.next == q.posted || (q.window != 0 && q.next - q.una >= window_of(q, qi))) {
      ++at;  // an ACK will kick
      continue;
    }
    return qi;
  }
  return kNil;
}

/// When the pace of the first queue pair that waits for nothing else allows it to send; kNever:
/// there is none.
int64_t PacketDomain::next_pace(uint32_t pi) const {
  int64_t soonest = kNever;
  for (const uint32_t qi : senders_[ports_[pi].sender].active) {
    const QueuePair& q = qps_[qi];
    if (classes_ > 1 && lane(pi, q.traffic_class).paused) continue;
    const bool repeats = selective() && !selective_[qi].repeat.empty();
    if (!repeats && (q.next == q.posted || (q.window != 0 && q.next - q.una >= window_of(q, qi)))) {
      continue;
    }
    if (q.next_send > now_) soonest = std::min(soonest, q.next_send);
  }
  return soonest;
}

}  // namespace trainyard
