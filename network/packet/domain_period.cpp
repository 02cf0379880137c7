// SPDX-License-Identifier: MIT
// Period jump: where the state of a domain returns relative to now and to each flow's sequence
// numbers, whole periods are skipped. Exact: a period counts only while no draw, mark, drop, rate
// change or timer falls into it, and a jump ends a period before the first thing that is not
// periodic: the end of a message, a timer, the limit that the caller gave.
//
// The state is looked at when one flow, the anchor, has sent a packet, and compared by a 128-bit
// hash with a reference, which is renewed at powers of two (Brent). Looks cost no more than a
// share of the events executed since; what cannot be afforded is skipped, so that a multiple of
// the period may be found instead.
#include <algorithm>

#include "network/packet/domain.h"
#include "network/packet/domain_dice.h"
#include "sim/hash128.h"

namespace trainyard {

void PacketDomain::use_period_jumps() {
  // Pauses that expire, stamps of packets and windows of bits do not return.
  const bool plain = config_.pause_quanta == 0 && config_.paths == PathChoice::per_flow &&
                     config_.receive_bps == 0 && !selective() &&
                     config_.recovery == LossRecovery::go_back_n &&
                     config_.dcqcn.byte_counter == 0 &&
                     (config_.congestion == CongestionControl::none ||
                      config_.congestion == CongestionControl::dcqcn);
  if (plain) period_ = std::make_unique<PeriodFinder>();
}

void PacketDomain::period_pause(const TraceEntry& entry) {
  if (period_->has_reference) period_->pauses.push_back(entry);
}

/// A new message: looks begin anew where it is long enough.
void PacketDomain::period_begins(uint32_t qi) {
  PeriodFinder& f = *period_;
  const QueuePair& q = qps_[qi];
  const bool idle = f.anchor == kNil || qps_[f.anchor].next == qps_[f.anchor].posted;
  f.has_reference = false;
  f.power = 32;
  f.boundaries = 0;
  if (idle || q.posted - q.next > qps_[f.anchor].posted - qps_[f.anchor].next) {
    f.anchor = q.posted - q.next > PeriodFinder::kShortest * config_.payload ? qi : kNil;
    f.seen = q.next;
  }
  period_anchor_ = f.anchor;
}

/// Hash of all that decides what happens next but timers, relative to now and to what each queue
/// pair has sent. @returns the number of items in it.
uint64_t PacketDomain::hash_state(Hash128& h) const {
  uint64_t items = 0;
  const auto relative = [&](int64_t t) { return t <= now_ ? int64_t{-1} : t - now_; };
  const auto list = [&](const List& l, bool wire) {
    for (uint32_t k = l.head; k != kNil; k = packets_[k].next) {
      const Packet& p = packets_[k];
      h.add(static_cast<uint64_t>(p.path) << 32 | p.qp);
      h.add(static_cast<uint64_t>(p.wire) << 16 | static_cast<uint64_t>(p.type) << 8 | p.flags);
      h.add_signed(p.qp == kNil || p.type == kCnp ? p.seq : p.seq - qps_[p.qp].next);
      if (wire && p.next != kNil) h.add_signed(p.next_arrival - now_);
      ++items;
    }
    h.add(0x7fffffffffffffffULL);
  };
  for (uint32_t pi = 0; pi < ports_.size(); ++pi) {
    const Port& p = ports_[pi];
    h.add_signed(relative(p.busy_until));
    h.add_signed(p.wake == kNever ? -1 : p.wake - now_);
    list(p.wire, true);
    list(p.control, false);
    h.add(p.turn);
    h.add(p.mark_credit_q32);
    if (p.sender != kNil) {
      const Sender& s = senders_[p.sender];
      for (uint32_t c = 0; c < classes_; ++c) h.add(s.last_served[c]);
      h.add(static_cast<uint64_t>(s.paced));
      if (s.paced) {
        for (const uint32_t qi : pacings_[p.sender].due) h.add(qi);
      }
    }
    for (uint32_t c = 0; c < classes_; ++c) {
      const Lane& l = lane(pi, c);
      list(l.data, false);
      h.add(static_cast<uint64_t>(static_cast<uint32_t>(l.used)) << 32 |
            static_cast<uint32_t>(l.headroom_used));
      h.add(static_cast<uint64_t>(l.paused) << 1 | static_cast<uint64_t>(l.pause_sent));
      h.add_signed(lane_states_[lane_index(pi, c)].deficit);
    }
    ++items;
  }
  for (const QueuePair& q : qps_) {
    h.add_signed(q.next - q.una);
    h.add_signed(q.next - q.received);
    h.add_signed(q.high_water - q.next);
    h.add_signed(q.una_best - q.una);
    h.add_signed(relative(q.next_send));
    h.add_signed(q.rate);
    h.add_signed(q.since_ack);
    h.add(static_cast<uint64_t>(q.is_active) << 2 | static_cast<uint64_t>(q.notify) << 1 |
          static_cast<uint64_t>(q.rto_pending));
    h.add(static_cast<uint64_t>(q.retries));
    ++items;
  }
  // Arrivals and looks of transmitters, in whatever order they are kept.
  uint64_t a = 0;
  uint64_t b = 0;
  events_.for_each([&](const Event& e) {
    const auto kind = static_cast<Kind>(e.key >> kKindShift);
    if (kind != kArrive && kind != kTransmit) return;
    if (kind == kTransmit && ports_[e.arg].wake != e.time_ps) return;  // stale
    Hash128 one;
    one.add_signed(e.time_ps - now_);
    one.add(e.key);
    a += one.a;
    b += one.b;
    ++items;
  });
  h.add(a);
  h.add(b);
  return items;
}

/// The anchor has sent a packet.
void PacketDomain::look_for_period(int64_t limit) {
  PeriodFinder& f = *period_;
  const QueuePair& anchor = qps_[f.anchor];
  f.seen = anchor.next;
  if (anchor.posted - anchor.next < PeriodFinder::kShortest * config_.payload) {
    f.anchor = period_anchor_ = kNil;
    f.has_reference = false;
    return;
  }
  ++f.boundaries;
  if (f.boundaries > PeriodFinder::kGiveUp) {
    f.anchor = period_anchor_ = kNil;
    return;
  }
  // Hashing an item costs about a tenth of an event.
  if (f.spent > 512 + (totals_.events - f.allowed_from)) return;
  if (f.has_reference && f.boundaries < f.power && live_packets_ != f.live) return;
  Hash128 h;
  f.spent += hash_state(h);
  const bool undisturbed =
      f.has_reference && f.draws == dice_draws_ && f.marks == totals_.ecn_marks &&
      f.drops == totals_.drops && f.rate_changes == totals_.rate_changes &&
      f.timeouts == totals_.timeouts && f.nacks == totals_.nacks && f.cnps == totals_.cnp_packets;
  if (undisturbed && f.hash == h) {
    jump(limit);
    return;
  }
  if (f.has_reference && undisturbed && f.boundaries < f.power) return;
  // A new reference.
  f.power = undisturbed ? 2 * f.power : std::max<uint64_t>(32, f.power);
  f.boundaries = f.has_reference && undisturbed ? f.boundaries : 0;
  if (f.boundaries >= f.power) f.power = 2 * f.boundaries;
  f.has_reference = true;
  f.hash = h;
  f.time = now_;
  f.live = live_packets_;
  f.draws = dice_draws_;
  f.marks = totals_.ecn_marks;
  f.drops = totals_.drops;
  f.rate_changes = totals_.rate_changes;
  f.timeouts = totals_.timeouts;
  f.nacks = totals_.nacks;
  f.cnps = totals_.cnp_packets;
  f.totals = totals_;
  f.ended_transmissions = ended_transmissions_;
  f.ended_bytes = ended_bytes_;
  f.ports.clear();
  f.paused.clear();
  for (uint32_t pi = 0; pi < ports_.size(); ++pi) {
    const Port& p = ports_[pi];
    f.ports.push_back({p.packets, p.pauses, p.bytes, p.payload, p.busy});
    for (uint32_t c = 0; c < classes_; ++c) f.paused.push_back(paused_so_far(pi, c));
  }
  f.qps.clear();
  for (const QueuePair& q : qps_) {
    f.qps.push_back({q.next, q.send_transfer, q.receive_transfer, q.ack_transfer, q.receive_packets,
                     q.receive_transmissions, q.ack_transmissions, q.sent_packets});
  }
  f.pauses.clear();
}

int64_t PacketDomain::paused_so_far(uint32_t pi, uint32_t c) const {
  const LaneState& s = lane_states_[lane_index(pi, c)];
  return s.paused_total + (lane(pi, c).paused ? now_ - s.paused_since : 0);
}

/// The state is that of the reference: skips as many periods as fit before `limit`, the first
/// timer and the last period of any message.
void PacketDomain::jump(int64_t limit) {
  PeriodFinder& f = *period_;
  const int64_t period = now_ - f.time;
  f.has_reference = false;
  f.power = 32;
  f.boundaries = 0;
  if (period <= 0 || ports_.size() != f.ports.size() || qps_.size() != f.qps.size()) return;
  // A pause starts a watchdog of its own.
  if (config_.watchdog_ps > 0) {
    if (!f.pauses.empty()) return;
    for (uint32_t i = 0; i < ports_.size() * classes_; ++i) {
      if (lane(i / classes_, i % classes_).paused) return;
    }
  }
  int64_t until = limit;
  events_.for_each([&](const Event& e) {
    const auto kind = static_cast<Kind>(e.key >> kKindShift);
    if (kind == kArrive || kind == kTransmit || kind == kTimeout) return;
    if (kind == kIncrease &&
        (qps_[e.arg].increase_next != e.time_ps || qps_[e.arg].una == qps_[e.arg].posted)) {
      return;  // stale, or of an idle queue pair: nothing happens
    }
    until = std::min(until, e.time_ps);
  });
  // Even the latest of a period's events stays before it.
  int64_t k = until == kNever ? INT64_MAX : (until - now_) / period - 1;
  for (uint32_t qi = 0; qi < qps_.size(); ++qi) {
    const QueuePair& q = qps_[qi];
    const int64_t sent = q.next - f.qps[qi].next;
    if (sent == 0) continue;
    if (q.send_transfer == kNil || q.send_transfer != f.qps[qi].transfer ||
        q.receive_transfer != q.send_transfer || q.ack_transfer != q.send_transfer ||
        // Counts begin anew with a message.
        f.qps[qi].receiving != q.send_transfer || f.qps[qi].acknowledging != q.send_transfer ||
        sent < 0) {
      return;
    }
    const int64_t left = states_[q.send_transfer].end - q.next - 2 * config_.payload;
    k = std::min(k, left / sent - 1);
  }
  if (k < 1 || k == INT64_MAX) return;

  const int64_t skip = k * period;
  const int64_t before = now_;
  // What the fingerprint would have got.
  for (int64_t i = 1; i <= k; ++i) {
    for (const TraceEntry& t : f.pauses) {
      now_ = t.time_ps + i * period;
      trace(t.what, t.object, t.value, ports_[t.object].rank, static_cast<uint64_t>(t.value));
    }
  }
  now_ = before + skip;
  std::vector<Event> events;
  events.reserve(events_.size());
  events_.for_each([&](Event e) {
    const auto kind = static_cast<Kind>(e.key >> kKindShift);
    if (kind == kArrive || kind == kTransmit || kind == kTimeout) e.time_ps += skip;
    // An idle queue pair's increase that passed meanwhile is caught up with when it starts.
    if (e.time_ps >= now_) events.push_back(e);
  });
  events_ = EventQueue();
  for (const Event& e : events) events_.push(e.time_ps, e.key, e.arg);
  turn_ = events_.turn();

  const auto by = [k](uint64_t& counter, uint64_t reference) {
    counter += static_cast<uint64_t>(k) * (counter - reference);
  };
  const auto by_signed = [k](int64_t& counter, int64_t reference) {
    counter += k * (counter - reference);
  };
  const auto by_32 = [k](uint32_t& counter, uint32_t reference) {
    counter += static_cast<uint32_t>(k) * (counter - reference);
  };
  std::vector<int64_t> moved(qps_.size());
  for (uint32_t qi = 0; qi < qps_.size(); ++qi) {
    QueuePair& q = qps_[qi];
    const PeriodFinder::QpCount& c = f.qps[qi];
    moved[qi] = k * (q.next - c.next);
    q.next += moved[qi];
    q.una += moved[qi];
    q.received += moved[qi];
    q.high_water += moved[qi];
    q.una_best += moved[qi];
    if (q.next_send > before) q.next_send += skip;
    q.rto_deadline += skip;
    q.last_sent += skip;
    by_32(q.receive_packets, c.receive_packets);
    by_32(q.receive_transmissions, c.receive_transmissions);
    by_32(q.ack_transmissions, c.ack_transmissions);
    by(q.sent_packets, c.sent_packets);
  }
  const auto list = [&](const List& l) {
    for (uint32_t n = l.head; n != kNil; n = packets_[n].next) {
      Packet& p = packets_[n];
      p.next_arrival += skip;
      if (p.qp != kNil && p.type != kCnp) p.seq += moved[p.qp];
    }
  };
  uint64_t transmissions = 0;
  for (uint32_t pi = 0; pi < ports_.size(); ++pi) {
    Port& p = ports_[pi];
    const PeriodFinder::PortCount& c = f.ports[pi];
    list(p.wire);
    list(p.control);
    if (p.busy_until > before) p.busy_until += skip;
    if (p.wake != kNever) p.wake += skip;
    if (p.sender != kNil && senders_[p.sender].paced) {
      // As the send times that they repeat; old entries stay old.
      for (auto& entry : pacings_[p.sender].later) {
        if (entry.first > before) entry.first += skip;
      }
    }
    transmissions += static_cast<uint64_t>(k) * (p.packets - c.packets);
    by(p.packets, c.packets);
    by(p.pauses, c.pauses);
    by_signed(p.bytes, c.bytes);
    by_signed(p.payload, c.payload);
    by_signed(p.busy, c.busy);
    for (uint32_t cls = 0; cls < classes_; ++cls) {
      list(lane(pi, cls).data);
      LaneState& s = lane_states_[lane_index(pi, cls)];
      // So far means until `before`: the pause in force has been shifted with everything else.
      const int64_t so_far = s.paused_total + (lane(pi, cls).paused ? before - s.paused_since : 0);
      s.paused_total += k * (so_far - f.paused[lane_index(pi, cls)]);
      s.paused_since += skip;
    }
  }
  by(totals_.data_packets, f.totals.data_packets);
  by(totals_.ack_packets, f.totals.ack_packets);
  by(totals_.pfc_frames, f.totals.pfc_frames);
  by(totals_.pfc_pauses, f.totals.pfc_pauses);
  by(totals_.pfc_resumes, f.totals.pfc_resumes);
  jumps_.payload += k * (totals_.payload_bytes - f.totals.payload_bytes);
  by_signed(totals_.payload_bytes, f.totals.payload_bytes);
  by(ended_transmissions_, f.ended_transmissions);
  by_signed(ended_bytes_, f.ended_bytes);
  ++jumps_.jumps;
  jumps_.periods += static_cast<uint64_t>(k);
  jumps_.transmissions += transmissions;
  jumps_.events_saved += static_cast<uint64_t>(k) * (totals_.events - f.totals.events);
  f.seen = qps_[f.anchor].next;
  f.spent = 0;
  f.allowed_from = totals_.events;
}

}  // namespace trainyard
