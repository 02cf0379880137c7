// SPDX-License-Identifier: MIT
// Events, transmission, switch buffers and endpoints.
#include "network/packet/domain.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "network/packet/domain_dice.h"
#include "sim/dice.h"

namespace trainyard {
namespace {

/// A domain with fewer ports is in the first-level cache anyway.
constexpr size_t kFetchFrom = 64;

}  // namespace

void PacketDomain::mix(uint32_t what, uint64_t a, uint64_t b) {
  // A sum, so that the value does not depend on the order in which independent parts were run.
  fingerprint_ += dice(static_cast<uint64_t>(now_), what, a, b);
}

void PacketDomain::trace(uint32_t what, uint32_t object, int64_t value, uint64_t a, uint64_t b) {
  mix(what, a, b);
  if (trace_sink_ != nullptr) trace_sink_->push_back({now_, what, object, value});
  if (what == kTracePause && period_ != nullptr) period_pause({now_, what, object, value});
}

// ---------------------------------------------------------------- events

Time PacketDomain::next_event() const {
  return events_.empty() ? Time::infinity() : Time::ps(events_.next_time());
}

Time PacketDomain::advance(Time limit, std::vector<Completion>& out) {
  completions_ = &out;
  const size_t before = out.size();
  // A part of a run ends when it comes to rest; its owner has to know the instant.
  const bool may_rest = registry_ != nullptr && !idle();
  bool rests = false;
  for (int64_t next = next_event().ps(); next <= limit.ps() && next != kNever;) {
    now_ = next;
    next = run_instant();
    if (out.size() != before) break;
    if (period_anchor_ != kNil && qps_[period_anchor_].next != period_->seen) {
      look_for_period(limit.ps());
      next = next_event().ps();
    }
    rests = may_rest && idle();
    if (rests) break;
  }
  sort_completions(out, before);
  completions_ = nullptr;
  if (out.size() == before && !rests && limit != Time::infinity()) {
    now_ = std::max(now_, limit.ps());
  }
  return Time::ps(now_);
}

/// All events of this instant. @returns that of the next ones, kNever: there are none.
int64_t PacketDomain::run_instant() {
  for (;;) {
    if (events_.empty()) return kNever;
    const int64_t next = events_.next_time();
    if (next != now_) return next;
    const Event e = events_.pop();
    ++totals_.events;
    if (events_.turn() != turn_) prefetch();
    switch (static_cast<Kind>(e.key >> kKindShift)) {
      case kChange:
        on_change(e.key & kOrderMask);
        break;
      case kStart:
        on_start(e.key & kOrderMask);
        break;
      case kCut:
        on_cut(e.arg);
        break;
      case kIncrease:
        on_increase(e.arg);
        break;
      case kArrive:
        on_arrive(e.arg);
        break;
      case kTransmit:
        if (ports_[e.arg].wake == now_) {
          ports_[e.arg].wake = kNever;
          transmit(e.arg);
        }
        break;
      case kTimeout:
        on_timeout(e.arg);
        break;
      case kTimer:
        on_timer(e.key & kOrderMask, e.arg);
        break;
    }
  }
}

/// A bucket of events was taken out of the queue. What events touch lies behind a chain of indices,
/// so it is fetched link by link, a bucket earlier each: ports, then the packets at their heads,
/// then what those lead to.
void PacketDomain::prefetch() {
  turn_ = events_.turn();  // here: a function that only fetches is one that compilers leave out
  if (ports_.size() < kFetchFrom) return;
  const auto fetch_port = [this](uint32_t pi) {
    const char* p = reinterpret_cast<const char*>(&ports_[pi]);
    __builtin_prefetch(p);
    __builtin_prefetch(p + 64);
  };
  const auto head = [this](const Event& e) {
    const uint32_t kind = e.key >> kKindShift;
    if (kind == kArrive) return ports_[e.arg].wire.head;
    if (kind == kTransmit) return ports_[e.arg].lane.data.head;
    return kNil;
  };
  events_.look_beyond([&](const Event& e) {
    const uint32_t kind = e.key >> kKindShift;
    if (kind == kArrive || kind == kTransmit) fetch_port(e.arg);
  });
  for (const Event& e : events_.staged()) {
    const uint32_t k = head(e);
    if (k != kNil) __builtin_prefetch(&packets_[k]);
  }
  for (const Event* e = events_.current_begin(); e != events_.current_end(); ++e) {
    const uint32_t k = head(*e);
    if (k == kNil) continue;
    const Packet& packet = packets_[k];
    if (packet.type >= kPause) continue;
    if (e->key >> kKindShift == kTransmit) {
      if (!ports_[e->arg].from_host) fetch_port(paths_[packet.path - 1]);
      continue;
    }
    const uint32_t next = paths_[packet.path + 1];
    if (next != kNil) {
      fetch_port(next);
    } else {
      const char* q = reinterpret_cast<const char*>(&qps_[packet.qp]);
      __builtin_prefetch(q);
      __builtin_prefetch(q + 192);
    }
  }
}

void PacketDomain::on_start(uint32_t si) {
  --starts_pending_;
  const uint32_t record = states_[si].record;
  const uint32_t qi = open_qp(states_[si], records_[record].src, records_[record].dst);
  TransferState& s = states_[si];
  QueuePair& q = qps_[qi];
  records_[record].hops = q.hops;
  s.qp = qi;
  const bool idle = q.una == q.posted;
  q.posted += s.bytes;
  if (selective()) {
    const int64_t whole = (s.bytes + config_.payload - 1) / config_.payload * config_.payload;
    q.posted += whole - s.bytes;
    q.padding += whole - s.bytes;
  }
  s.end = q.posted;
  if (q.last_transfer != kNil && states_[q.last_transfer].end > q.una) {
    states_[q.last_transfer].next = si;
  }
  if (q.send_transfer == kNil) q.send_transfer = si;
  if (q.ack_transfer == kNil) q.ack_transfer = si;
  if (q.receive_transfer == kNil) q.receive_transfer = si;
  q.last_transfer = si;
  if (idle) {
    q.next_send = std::max(q.next_send, now_);
    if (q.leaves_elsewhere) begin_crossing(q);
    q.retries = 0;
    if (q.increase_running && q.increase_next <= now_) {
      // Timer periods that passed while nobody looked.
      const int64_t n = (now_ - q.increase_next) / config_.dcqcn.increase_timer_ps + 1;
      dcqcn_[qi].age_increase(config_.dcqcn, n);
      q.rate = dcqcn_[qi].rate();
      arm_increase(qi, q.increase_next + n * config_.dcqcn.increase_timer_ps);
    }
  }
  activate(qi);
  if (period_ != nullptr) period_begins(qi);
  kick(q.port);
}

/// On a link that is down, or was, or has errors.
bool PacketDomain::is_lost(Port& p, const Packet& packet) {
  if (p.doomed > 0) {
    --p.doomed;
    p.lossy = p.loss_q32 != 0 || p.down || p.doomed > 0 || p.drops_nth;
    return true;
  }
  dice_draws_ += p.loss_q32 != 0 ? 1 : 0;
  const bool nth = p.drops_nth && is_nth(p, packet);
  return p.down || nth ||
         ((p.loss_kinds >> packet.type & 1) != 0 &&
          dice_below(dice(config_.seed, kDiceLoss, p.global, p.loss_draws++), p.loss_q32));
}

/// Counts a packet for the faults that lose every n-th one.
[[gnu::noinline]] bool PacketDomain::is_nth(const Port& p, const Packet& packet) {
  const auto pi = static_cast<uint32_t>(&p - ports_.data());
  bool lost = false;
  for (NthDrop& d : drops_) {
    if (d.port != pi || (d.kinds >> packet.type & 1) == 0) continue;
    lost = ++d.seen % d.every == 0 || lost;
  }
  return lost;
}

void PacketDomain::on_arrive(uint32_t pi) {
  Port& p = ports_[pi];
  const uint32_t k = take(p.wire);
  Packet& packet = packets_[k];
  if (p.wire.head != kNil) {
    events_.push(packet.next_arrival, key(kArrive, p.rank), pi);
    __builtin_prefetch(&packets_[p.wire.head], 1, 2);
  }
  if (p.lossy && is_lost(p, packet)) {
    ++p.drops;
    drop(pi, k, true);
    return;
  }
  if (packet.type >= kPause) {
    receive_pfc(pi, k);
    return;
  }
  const uint32_t next = paths_[packet.path + 1];
  if (next != kNil) {
    const bool control = packet.type == kCnp || ((packet.type == kAck || packet.type == kNack) &&
                                                 !config_.ack_in_data_class);
    if (control) {
      ++packet.path;
      append(ports_[next].control, k);
    } else {
      if (!admit(p, k)) {
        ++p.drops;
        drop(pi, k, true);
        return;
      }
      ++packets_[k].path;  // a pause may have made the pool grow
      enqueue_data(ports_[next], k);
    }
    kick_here(next);
    return;
  }
  if (!p.slow || packet.type != kData) {
    deliver(k);
    return;
  }
  // A slow receiver: the packet waits in the NIC.
  const uint32_t nic = ports_[pi ^ 1].sender;
  Sender& s = senders_[nic];
  if (!s.serving && intake_bps(s, k) == 0) {
    deliver(k);
    return;
  }
  append(s.waiting, k);
  s.waiting_bytes += packet.wire;
  const uint32_t c = class_of(packet);
  const Bytes size(packet.wire);
  if (config_.pfc == PfcMode::off || lane(pi, c).excused) {
    if (s.waiting_bytes > config_.receive_buffer) {
      // The last one appended is the one that does not fit.
      uint32_t before = s.waiting.head;
      if (before == k) {
        s.waiting.head = kNil;
      } else {
        while (packets_[before].next != k) before = packets_[before].next;
        packets_[before].next = kNil;
        s.waiting.tail = before;
      }
      s.waiting_bytes -= size.count();
      ++p.drops;
      drop(pi, k, true);
      return;
    }
  } else if (s.waiting_bytes > config_.receive_buffer) {
    throw SimulationError("packet dropped in the lossless class at " + print_time(Time::ps(now_)) +
                          " in the NIC of " + topology_.nodes()[nodes_[p.peer].global].name +
                          ": its receive buffer of " + print_bytes(Bytes(config_.receive_buffer)) +
                          " is full; raise fabric.transport.receive_buffer");
  } else if (s.waiting_bytes > config_.receive_buffer / 2) {
    // All classes share the buffer.
    for (uint32_t i = 0; i < classes_; ++i) {
      if (!lane(pi, i).pause_sent) send_pause(pi, i, kNil);
    }
  }
  s.counters.waiting_peak = std::max(s.counters.waiting_peak, s.waiting_bytes);
  if (!s.serving) {
    s.serving = true;
    set_timer(now_ + transmission_time(size, Rate::bps(intake_bps(s, k)), Time::ps(1)).ps(),
              kServed, nic, 0);
  }
}

/// The host has taken the first packet that waits.
void PacketDomain::serve(uint32_t si) {
  Sender& s = senders_[si];
  const uint32_t in = s.port ^ 1;
  const uint32_t k = take(s.waiting);
  s.waiting_bytes -= packets_[k].wire;
  s.serving = s.waiting.head != kNil;
  if (s.serving) {
    const int64_t intake = intake_bps(s, s.waiting.head);
    const int64_t rate = intake > 0 ? intake : ports_[in].rate_bps;
    set_timer(
        now_ + transmission_time(Bytes(packets_[s.waiting.head].wire), Rate::bps(rate), Time::ps(1))
                   .ps(),
        kServed, si, 0);
  } else {
    ports_[in].slow = s.receive_bps > 0 || s.lends;
  }
  if (s.waiting_bytes <= config_.receive_buffer / 4) {
    for (uint32_t c = 0; c < classes_; ++c) {
      if (lane(in, c).pause_sent && !lane_states_[lane_index(in, c)].storm) send_resume(in, c);
    }
  }
  deliver(k);
}

void PacketDomain::deliver(uint32_t k) {
  if (packets_[k].type == kData) {
    if (selective())
      receive_selective(k);
    else
      receive_data(k);
  } else {
    receive_ack(k);
  }
}

// ---------------------------------------------------------------- transmission

int64_t PacketDomain::transmission_ps(Port& p, int64_t bytes) const {
  if (bytes == p.size_a) return p.time_a;
  if (bytes == p.size_b) return p.time_b;
  p.size_b = p.size_a;
  p.time_b = p.time_a;
  p.size_a = static_cast<uint16_t>(bytes);
  p.time_a =
      transmission_time(Bytes(bytes), Rate::bps(p.rate_bps), Time::ps(config_.resolution_ps)).ps();
  return p.time_a;
}

void PacketDomain::schedule_transmit(uint32_t pi, int64_t time) {
  Port& p = ports_[pi];
  if (p.wake <= time) return;  // an earlier look finds this too
  p.wake = time;
  events_.push(time, key(kTransmit, p.rank), pi);
}

void PacketDomain::kick(uint32_t pi) {
  kick_here(pi);
}

[[gnu::always_inline]] inline void PacketDomain::kick_here(uint32_t pi) {
  Port& p = ports_[pi];
  if (p.wake <= now_) return;  // chooses at the end of this instant
  if (p.busy_until > now_)
    schedule_transmit(pi, p.busy_until);
  else
    transmit(pi);
}

void PacketDomain::enqueue(uint32_t pi, uint32_t k, bool control) {
  if (control)
    append(ports_[pi].control, k);
  else
    enqueue_data(ports_[pi], k);
}

[[gnu::always_inline]] inline void PacketDomain::enqueue_data(Port& p, uint32_t k) {
  const Packet& packet = packets_[k];
  const auto pi = static_cast<uint32_t>(&p - ports_.data());
  Lane& l = lane(pi, class_of(packet));
  if (l.discards) {
    discard(p, k);
    return;
  }
  append(l.data, k);
  l.data_bytes += packet.wire;
  p.peak = std::max(p.peak, l.data_bytes);
  if (watched_) watch_queued(pi, k);
}

/// The watchdog of a queue has given up on it.
[[gnu::noinline]] void PacketDomain::discard(Port& p, uint32_t k) {
  const Packet& packet = packets_[k];
  if (!p.from_host) release(paths_[packet.path - 1], packet.wire, class_of(packet));
  ++p.drops;
  drop(static_cast<uint32_t>(&p - ports_.data()), k, false);
}

[[gnu::always_inline]] inline bool PacketDomain::has_work(uint32_t pi) const {
  const Port& p = ports_[pi];
  if (p.control.head != kNil || p.sending) return true;
  if (p.lane.data.head != kNil && (!p.lane.paused || p.from_host)) return true;
  for (uint32_t c = 1; c < classes_; ++c) {
    const Lane& l = lane(pi, c);
    if (l.data.head != kNil && (!l.paused || p.from_host)) return true;
  }
  return false;
}

void PacketDomain::transmit(uint32_t pi) {
  Port& p = ports_[pi];
  if (p.busy_until > now_) {
    schedule_transmit(pi, p.busy_until);
    return;
  }
  uint32_t k = kNil;
  if (p.control.head != kNil)
    k = take(p.control);
  else
    k = p.from_host ? take_from_nic(pi) : take_from_switch(pi);
  if (k == kNil) return;
  Port& port = ports_[pi];
  Packet& packet = packets_[k];
  const int64_t duration = transmission_ps(port, packet.wire);
  port.busy_until = now_ + duration;
  port.busy += duration;
  ++port.packets;
  port.bytes += packet.wire;
  if (watched_) watch_sent(pi, k, duration);
  if (packet.type == kData) port.payload += packet.wire - config_.header;
  const int64_t arrival = port.busy_until + port.delay_ps;
  if (port.wire.head == kNil)
    events_.push(arrival, key(kArrive, port.rank), pi);
  else
    packets_[port.wire.tail].next_arrival = arrival;
  append(port.wire, k);
  if (!has_work(pi)) return;
  int64_t next = port.busy_until;
  if (port.from_host && port.control.head == kNil) {
    const int64_t ready = nic_ready(pi);
    if (ready == kNever) return;
    next = std::max(next, ready);
  }
  schedule_transmit(pi, next);
}

/// When a NIC without control packets may have something to send, as far as can be told now: what
/// changes that (an ACK, a resume, new work) looks again. Saves the look at the end of every
/// transmission of a paced or window-limited sender.
int64_t PacketDomain::nic_ready(uint32_t pi) const {
  const Port& p = ports_[pi];
  for (uint32_t c = 0; c < classes_; ++c) {
    if (lane(pi, c).data.head != kNil) return now_;  // ACKs
  }
  const auto& active = senders_[p.sender].active;
  if (active.size() > 8) return now_;
  int64_t soonest = kNever;
  for (const uint32_t qi : active) {
    const QueuePair& q = qps_[qi];
    if (lane(pi, q.traffic_class).paused) continue;
    const bool repeats = selective() && !selective_[qi].repeat.empty();
    if (!repeats && (q.next == q.posted || (q.window != 0 && q.next - q.una >= window_of(q, qi)))) {
      continue;
    }
    soonest = std::min(soonest, q.next_send);
  }
  return soonest;
}

uint32_t PacketDomain::take_from_switch(uint32_t pi) {
  if (classes_ > 1) return take_by_class(pi);
  const Lane& l = ports_[pi].lane;
  if (l.paused || l.data.head == kNil) return kNil;
  return take_lane(pi, 0);
}

[[gnu::always_inline]] inline uint32_t PacketDomain::take_lane(uint32_t pi, uint32_t c) {
  Port& p = ports_[pi];
  Lane& l = lane(pi, c);
  const uint32_t k = take(l.data);
  if (l.data.head != kNil) __builtin_prefetch(&packets_[l.data.head], 1, 2);
  Packet& packet = packets_[k];
  l.data_bytes -= packet.wire;
  if (config_.ecn == EcnMark::dequeue) mark_by_queue(p, k, l.data_bytes);
  if (stamps_ && packet.type == kData) stamp(p, k);
  release(paths_[packet.path - 1], packet.wire, c);
  return k;
}

[[gnu::noinline]] uint32_t PacketDomain::take_by_class(uint32_t pi) {
  const uint32_t c = class_of_switch(pi);
  return c == kNil ? kNil : take_lane(pi, c);
}

void PacketDomain::mark_by_queue(Port& out, uint32_t k, int64_t queued) {
  Packet& packet = packets_[k];
  if (queued <= out.kmin || !out.marks || packet.type != kData) return;
  if (queued <= out.kmax) {
    const auto probability_q32 =
        static_cast<uint64_t>((static_cast<unsigned __int128>(config_.pmax_q32) *
                               static_cast<uint64_t>(queued - out.kmin)) /
                              static_cast<uint64_t>(out.kmax - out.kmin));
    if (config_.dithered) {
      // Error diffusion: what one packet was short of a mark goes to the next.
      out.mark_credit_q32 += probability_q32;
      if (out.mark_credit_q32 < uint64_t{1} << 32) return;
      out.mark_credit_q32 -= uint64_t{1} << 32;
    } else {
      const QueuePair& q = qps_[packet.qp];
      uint32_t hop = packet.path - q.forward;
      if (hop >= q.hops) hop = hops_done(packet) - 1;  // another path of this queue pair
      // One draw per packet and hop; no path is longer than 64 links.
      const uint64_t counter = static_cast<uint64_t>(packet.seq - q.noise_from) * 64 + hop;
      ++dice_draws_;
      ++mark_draws_;
      if (!dice_below(dice(config_.seed, kDiceMark, q.noise, counter), probability_q32)) {
        return;
      }
    }
  }
  packet.flags |= kMarked;
  ++out.marked;
  ++totals_.ecn_marks;
}

void PacketDomain::stamp(const Port& out, uint32_t k) {
  Stamps& s = stamps_of_[k];
  if (s.n >= Hpcc::kMaxHops) return;
  int64_t queued = 0;
  const auto pi = static_cast<uint32_t>(&out - ports_.data());
  for (uint32_t c = 0; c < classes_; ++c) queued += lane(pi, c).data_bytes;
  s.hops[s.n++] = {now_, tx_before_[pi] + out.bytes, queued, out.rate_bps};
}

uint32_t PacketDomain::choose_path(QueuePair& q) {
  uint32_t choice = q.path_choice;
  if (config_.paths == PathChoice::spray) {
    const uint64_t n = q.sent_packets++;
    ++dice_draws_;
    choice =
        config_.round_robin
            ? static_cast<uint32_t>((q.dice_object + n) % q.path_count)
            : static_cast<uint32_t>(dice(config_.seed, kDicePath, q.dice_object, n) % q.path_count);
  } else if (now_ - q.last_sent > config_.flowlet_gap_ps && q.high_water > 0) {
    ++dice_draws_;
    choice = static_cast<uint32_t>(dice(config_.seed, kDicePath, q.dice_object, q.flowlets++) %
                                   q.path_count);
  }
  q.last_sent = now_;
  q.path_choice = choice;
  return q.forward + choice * q.stride;
}

void PacketDomain::fill_data(uint32_t k, uint32_t qi, int64_t seq, uint32_t state) {
  QueuePair& q = qps_[qi];
  const int64_t payload = payload_at(seq, state);
  Packet& packet = packets_[k];
  packet.seq = seq;
  packet.qp = qi;
  packet.path = q.path_count == 1 ? q.forward : choose_path(q);
  packet.wire = static_cast<uint16_t>(payload + config_.header);
  packet.type = kData;
  packet.flags = static_cast<uint8_t>(q.traffic_class << kClassShift);
  if (stamps_) stamps_of_[k].n = 0;
  if (!sent_at_.empty()) sent_at_[k] = now_;
  if (q.pace_rate != q.rate || q.pace_bytes != packet.wire) {
    q.pace_rate = q.rate;
    q.pace_bytes = packet.wire;
    q.pace_time = transmission_time(Bytes(packet.wire), Rate::bps(q.pace_rate),
                                    Time::ps(config_.resolution_ps))
                      .ps();
  }
  q.next_send = now_ + q.pace_time;
  if (q.leaves_elsewhere) cross(q, packet.wire);
  ++totals_.data_packets;
  // Counted from the first packet after a rest, whatever an old event in the queue is set to.
  if (!q.rto_pending || q.high_water == q.una) q.rto_deadline = now_ + config_.rto_ps;
  if (!q.rto_pending) {
    q.rto_pending = true;
    events_.push(q.rto_deadline, key(kTimeout, q.rank), qi);
  }
}

/// The next packet of a queue pair, which has one.
[[gnu::always_inline]] inline uint32_t PacketDomain::send_next(uint32_t qi) {
  QueuePair& q = qps_[qi];
  const uint32_t k = new_packet();
  const uint32_t state = q.send_transfer;
  fill_data(k, qi, q.next, state);
  if (q.next < q.high_water) {
    ++records_[states_[state].record].retransmitted;
    ++totals_.retransmitted;
  }
  const Packet& packet = packets_[k];
  q.next += selective() ? config_.payload : packet.wire - config_.header;
  q.high_water = std::max(q.high_water, q.next);
  if (q.next == states_[state].end) {
    q.send_transfer = states_[state].next;
    if (q.next == q.posted && !(selective() && !selective_[qi].repeat.empty())) deactivate(qi);
  }
  if (config_.dcqcn.byte_counter != 0 && config_.congestion == CongestionControl::dcqcn &&
      q.controlled && dcqcn_[qi].sent(config_.dcqcn, packet.wire)) {
    set_rate(qi, dcqcn_[qi].rate(), dcqcn_[qi].target(), false);
  }
  return k;
}

uint32_t PacketDomain::take_from_nic(uint32_t pi) {
  Port& p = ports_[pi];
  bool all_paused = true;
  for (uint32_t c = 0; c < classes_; ++c) {
    Lane& l = lane(pi, c);
    if (l.data.head != kNil && !(l.paused && config_.ack_pausable)) {
      const uint32_t k = take(l.data);
      l.data_bytes -= packets_[k].wire;
      return k;
    }
    all_paused = all_paused && l.paused;
  }
  if (all_paused || !p.sending) return kNil;
  if (classes_ > 1) return take_by_class_of_nic(pi);
  // Round robin: first eligible queue pair after the one served last.
  Sender& sender = senders_[p.sender];
  if (sender.paced) return take_paced(pi);
  auto& active = sender.active;
  uint32_t& last = sender.last_served[0];
  size_t at = 0;
  if (last != kNil) {
    at = static_cast<size_t>(position(active, last + 1) - active.begin());
  }
  int64_t soonest = kNever;
  for (size_t i = 0; i < active.size(); ++i, ++at) {
    if (at >= active.size()) at = 0;
    const uint32_t qi = active[at];
    QueuePair& q = qps_[qi];
    const bool repeats = selective() && !selective_[qi].repeat.empty();
    if (!repeats) {
      if (q.next == q.posted) continue;
      if (q.window != 0 && q.next - q.una >= window_of(q, qi)) continue;  // an ACK will kick
    }
    if (q.next_send > now_) {
      soonest = std::min(soonest, q.next_send);
      continue;
    }
    last = q.rank;
    if (repeats) {
      const uint32_t k = next_repeat(q, qi);
      if (k != kNil) return k;
      if (q.next == q.posted || (q.window != 0 && q.next - q.una >= window_of(q, qi))) {
        // Nothing to repeat after all, nothing new to send.
        if (q.next == q.posted) {
          q.is_active = false;
          active.erase(active.begin() + static_cast<std::ptrdiff_t>(at));
          p.sending = !active.empty();
          return take_from_nic(pi);
        }
        continue;
      }
    }
    return send_next(qi);
  }
  if (soonest != kNever) schedule_transmit(pi, soonest);
  return kNil;
}

/// The same with several classes.
[[gnu::noinline]] uint32_t PacketDomain::take_by_class_of_nic(uint32_t pi) {
  const uint32_t qi = queue_pair_of_nic(pi);
  if (qi == kNil) return kNil;
  QueuePair& q = qps_[qi];
  const bool repeats = selective() && !selective_[qi].repeat.empty();
  const uint32_t k = repeats ? next_repeat(q, qi) : send_next(qi);
  const uint32_t si = ports_[pi].sender;
  if (senders_[si].paced && q.is_active && q.rate < q.line) {
    auto& due = pacings_[si].due;
    const auto place = position(due, q);
    if (place != due.end() && *place == qi) due.erase(place);
    pace(si, qi);
  }
  return k;
}

/// A queue pair has become active, or has another send time.
void PacketDomain::pace(uint32_t sender, uint32_t qi) {
  Pacing& s = pacings_[sender];
  const int64_t at = qps_[qi].next_send;
  if (at > now_) {
    s.later.emplace_back(at, qi);
    std::push_heap(s.later.begin(), s.later.end(), std::greater<>());
    return;
  }
  const auto place = position(s.due, qps_[qi]);
  if (place == s.due.end() || *place != qi) s.due.insert(place, qi);
}

/// Of a NIC with many queue pairs, those whose time has come.
void PacketDomain::find_due(uint32_t pi) {
  const uint32_t si = ports_[pi].sender;
  Pacing& s = pacings_[si];
  const auto is_old = [&](const std::pair<int64_t, uint32_t>& entry) {
    const QueuePair& q = qps_[entry.second];
    return !q.is_active || q.port != pi || q.next_send != entry.first;
  };
  while (!s.later.empty()) {
    const auto entry = s.later.front();
    const bool old = is_old(entry);
    if (!old && entry.first > now_) break;
    std::pop_heap(s.later.begin(), s.later.end(), std::greater<>());
    s.later.pop_back();
    if (!old) pace(si, entry.second);
  }
}

/// take_from_nic() for many queue pairs: the same choice without a look at those whose time has
/// not come.
uint32_t PacketDomain::take_paced(uint32_t pi) {
  find_due(pi);
  const uint32_t si = ports_[pi].sender;
  Sender& sender = senders_[si];
  Pacing& s = pacings_[si];
  uint32_t& last = sender.last_served[0];
  size_t at = 0;
  if (last != kNil) {
    at = static_cast<size_t>(position(s.due, last + 1) - s.due.begin());
  }
  for (size_t left = s.due.size(); left > 0; --left) {
    if (at >= s.due.size()) at = 0;
    const uint32_t qi = s.due[at];
    const QueuePair& q = qps_[qi];
    if (q.next_send > now_) {
      s.due.erase(s.due.begin() + static_cast<std::ptrdiff_t>(at));
      pace(si, qi);
      continue;
    }
    if (q.next == q.posted || (q.window != 0 && q.next - q.una >= window_of(q, qi))) {
      ++at;
      continue;
    }
    last = q.rank;
    const uint32_t k = send_next(qi);
    // At line rate its time has come when the port is free again.
    if (q.rate < q.line && q.is_active) {
      s.due.erase(s.due.begin() + static_cast<std::ptrdiff_t>(at));
      pace(si, qi);
    }
    return k;
  }
  int64_t soonest = kNever;
  if (!s.due.empty() || config_.window != WindowRule::none ||
      config_.congestion == CongestionControl::hpcc) {
    soonest = next_pace(pi);
  } else if (!s.later.empty()) {
    soonest = s.later.front().first;
  }
  if (soonest != kNever) schedule_transmit(pi, soonest);
  return kNil;
}

// ---------------------------------------------------------------- switch

int64_t PacketDomain::threshold(const Port& in, const Node& n) const {
  if (config_.pfc == PfcMode::static_threshold) return n.xoff;
  return ((n.pool - n.shared_used) * in.alpha_q16) >> 16;  // 31 bits by 27 bits
}

[[gnu::always_inline]] inline bool PacketDomain::admit(Port& in, uint32_t k) {
  const auto in_index = static_cast<uint32_t>(&in - ports_.data());
  Node& n = nodes_[in.peer];
  const Packet& packet = packets_[k];  // not beyond send_pause(): the pool may grow
  const uint32_t c = class_of(packet);
  const uint32_t out = paths_[packet.path + 1];
  Lane& l = lane(in_index, c);
  const int32_t size = packet.wire;
  const auto reserve = static_cast<int32_t>(config_.reserve);
  const int32_t shared = std::max(0, l.used - reserve);
  const int64_t limit = threshold(in, n);
  if (config_.pfc == PfcMode::off) {
    if (shared + size > limit) {
      n.touchy = pool_changed_ = true;
      return false;
    }
  } else if (size + l.headroom_used > in.headroom && size + shared > limit) {
    if (l.excused) return false;
    lossless_drop(in_index, n, l, limit);
  }
  const int32_t after = l.used + size;
  if (after - reserve > in.over) {
    in.over = after - reserve;
    pool_changed_ = true;
  }
  if (after <= reserve) {
    l.used = after;
  } else if (config_.pfc != PfcMode::off && after - reserve > limit) {
    l.headroom_used += size;
    int32_t& peak = lane_states_[lane_index(in_index, c)].headroom_peak;
    peak = std::max(peak, l.headroom_used);
  } else {
    l.used = after;
    n.shared_used += std::min(size, after - reserve);
    if (n.shared_used > n.peak) new_pool_peak(n);
  }
  if (config_.pfc != PfcMode::off && !l.pause_sent &&
      (l.headroom_used > 0 || std::max(0, l.used - reserve) >= threshold(in, n))) {
    send_pause(in_index, c, out);
  }
  if (config_.ecn == EcnMark::enqueue) {
    mark_by_queue(ports_[out], k, lane(out, c).data_bytes + size);
  }
  return true;
}

[[gnu::always_inline]] inline void PacketDomain::release(uint32_t in_index, int32_t size,
                                                         uint32_t c) {
  Port& in = ports_[in_index];
  Node& n = nodes_[in.peer];
  Lane& l = lane(in_index, c);
  const auto reserve = static_cast<int32_t>(config_.reserve);
  const int32_t from_headroom = std::min(l.headroom_used, size);
  const int32_t from_shared = std::min(size - from_headroom, std::max(0, l.used - reserve));
  l.headroom_used -= from_headroom;
  l.used -= size - from_headroom;
  n.shared_used -= from_shared;
  if (!l.pause_sent || l.headroom_used > 0) return;
  const int64_t shared = std::max(0, l.used - reserve);
  if (shared == 0 || shared + config_.resume_offset <= threshold(in, n)) send_resume(in_index, c);
}

/// `sent`: it has been sent on the link of `pi`; false: it was queued for it.
void PacketDomain::drop(uint32_t pi, uint32_t k, bool sent) {
  const Packet& packet = packets_[k];
  if (packet.type >= kPause) {
    ended_transmissions_ += sent ? 1 : 0;
    ended_bytes_ += sent ? packet.wire : 0;
    free_packet(k);
    return;
  }
  if (watched_) watch_ended(k, false);
  QueuePair& q = qps_[packet.qp];
  ++totals_.drops;
  const uint32_t hops = hops_done(packet) - (sent ? 0 : 1);
  ended_transmissions_ += hops;
  ended_bytes_ += static_cast<int64_t>(hops) * packet.wire;
  if (q.ack_transfer != kNil)
    q.ack_transmissions += hops;
  else
    records_[states_[q.last_transfer].record].transmissions += hops;
  trace(kTraceDrop, pi, packet.qp, ports_[pi].rank, q.dice_object);
  free_packet(k);
}

uint32_t PacketDomain::hops_done(const Packet& p) const {
  uint32_t end = p.path;
  while (paths_[end] != kNil) ++end;
  return paths_[end + 1] - (end - p.path) + 1;
}

// ---------------------------------------------------------------- endpoints

uint32_t PacketDomain::new_packet() {
  ++live_packets_;
  if (free_ != kNil) {
    const uint32_t k = free_;
    free_ = packets_[k].next;
    return k;
  }
  packets_.emplace_back();
  if (stamps_) stamps_of_.emplace_back();
  if (config_.congestion == CongestionControl::timely) sent_at_.push_back(0);
  if (selective()) selective_ack_.push_back(-1);
  return static_cast<uint32_t>(packets_.size() - 1);
}

/// `cause`: the data packet that it answers, still in the pool; kNil: none.
void PacketDomain::send_control(QueuePair& q, uint32_t qi, Type type, int64_t seq, bool flag,
                                uint32_t cause) {
  const uint32_t k = new_packet();
  Packet& packet = packets_[k];
  packet.seq = seq;
  packet.qp = qi;
  packet.path = q.reverse;
  packet.wire = static_cast<uint16_t>(type == kCnp ? config_.cnp_bytes : config_.ack_bytes);
  packet.type = type;
  packet.flags = static_cast<uint8_t>((flag ? kNotify : 0) | q.traffic_class << kClassShift);
  if (cause != kNil) {
    if (stamps_) stamps_of_[k] = stamps_of_[cause];
    if (!sent_at_.empty()) sent_at_[k] = sent_at_[cause];
    if (selective()) selective_ack_[k] = packets_[cause].seq / config_.payload;
  } else {
    if (stamps_) stamps_of_[k].n = 0;
  }
  if (type == kCnp)
    ++totals_.cnp_packets;
  else
    ++totals_.ack_packets;
  const uint32_t port = paths_[q.reverse];
  // A NIC serves its ACKs before its data; a CNP goes in the control class.
  enqueue(port, k, type == kCnp);
  kick(port);
}

/// Payload that the receiver can hand on: `bytes` of the sequence space, `payload` of the message.
void PacketDomain::receive_in_order(QueuePair& q, int64_t bytes, int64_t payload) {
  const uint32_t current = q.receive_transfer;
  q.received += bytes;
  ++q.receive_packets;
  totals_.payload_bytes += payload;
  if (q.received != states_[current].end) return;
  TransferRecord& r = records_[states_[current].record];
  r.packets += q.receive_packets;
  r.transmissions += q.receive_transmissions;
  q.receive_packets = q.receive_transmissions = 0;
  q.receive_transfer = states_[current].next;
  hand_over(current);
}

/// What every data packet at its receiver is counted for, and what its mark leads to.
void PacketDomain::book_arrival(QueuePair& q, const Packet& packet) {
  const uint32_t hops = paths_[packet.path + 2];
  ended_transmissions_ += hops;
  ended_bytes_ += static_cast<int64_t>(hops) * packet.wire;
  if (q.receive_transfer != kNil)
    q.receive_transmissions += hops;
  else
    records_[states_[q.last_transfer].record].transmissions += hops;
  if ((packet.flags & kMarked) != 0 && q.controlled && heeds_marks_) {
    if (!config_.cnp_packets) {
      if (!q.notify) ++counters_at(packet).cnps_sent;  // with the next ACK
      q.notify = true;
    } else if (now_ - q.last_cnp >= config_.cnp_interval_ps) {
      q.last_cnp = now_;
      ++counters_at(packet).cnps_sent;
      send_control(q, packet.qp, kCnp, 0, true, kNil);
    }
  }
}

void PacketDomain::receive_data(uint32_t k) {
  const Packet packet = packets_[k];
  const uint32_t qi = packet.qp;
  QueuePair& q = qps_[qi];
  const int64_t payload = packet.wire - config_.header;
  book_arrival(q, packet);
  // The packet stays in the pool until its answer has taken over what it carries, unless nothing
  // is carried: then its place is the answer's.
  if (!carries_)
    free_packet(k);
  else if (watched_)
    watch_ended(k, true);
  const uint32_t cause = carries_ ? k : kNil;
  if (packet.seq < q.received && config_.recovery == LossRecovery::go_back_0 &&
      q.receive_transfer != kNil && packet.seq == message_start(q, q.receive_transfer)) {
    // The sender began the message anew: what has come of it counts no more.
    totals_.payload_bytes -= q.received - packet.seq;
    q.received = packet.seq;
  }
  if (packet.seq == q.received) {
    const uint32_t current = q.receive_transfer;
    ++q.since_ack;
    receive_in_order(q, payload, payload);
    if (q.receive_transfer != current || q.since_ack >= config_.ack_interval) {
      q.since_ack = 0;
      send_control(q, qi, kAck, q.received, q.notify, cause);
      q.notify = false;
    }
  } else if (packet.seq > q.received) {
    ++counters_at(packet).out_of_sequence;
    if (config_.recovery == LossRecovery::go_back_0 && q.receive_transfer != kNil) {
      const int64_t begin = message_start(q, q.receive_transfer);
      totals_.payload_bytes -= q.received - begin;
      q.received = begin;
    }
    if (q.last_nack_seq != q.received || now_ - q.last_nack >= config_.nack_interval_ps) {
      q.last_nack_seq = q.received;
      q.last_nack = now_;
      ++totals_.nacks;
      ++counters_at(packet).nacks_sent;
      send_control(q, qi, kNack, q.received, q.notify, cause);
      q.notify = false;
    }
  } else {
    // A repeat: the sender missed an ACK. Silence here is what hangs other simulators.
    send_control(q, qi, kAck, q.received, q.notify, cause);
    q.notify = false;
  }
  if (carries_) free_packet(k);
}

/// First byte, in the sequence space, of a transfer that is on `q`.
int64_t PacketDomain::message_start(const QueuePair&, uint32_t state) const {
  return states_[state].end - states_[state].bytes;
}

/// All bytes below `seq` are known to have arrived.
void PacketDomain::acknowledge_up_to(QueuePair& q, uint32_t qi, int64_t seq) {
  if (seq <= q.una) return;
  q.una = seq;
  if (q.next < q.una) {
    // An old ACK overtook a rewind: nothing below it needs repeating.
    q.next = q.una;
    while (q.send_transfer != kNil && states_[q.send_transfer].end <= q.next) {
      q.send_transfer = states_[q.send_transfer].next;
    }
    if (q.next == q.posted) deactivate(qi);
  }
  q.rto_deadline = now_ + config_.rto_ps;
  if (q.una > q.una_best) {
    // What go-back-0 reaches again is no progress.
    q.una_best = q.una;
    q.retries = 0;
  }
  while (q.ack_transfer != kNil && states_[q.ack_transfer].end <= q.una) {
    const uint32_t done = q.ack_transfer;
    TransferRecord& r = records_[states_[done].record];
    r.transmissions += q.ack_transmissions;
    r.cnps += q.ack_cnps;
    q.ack_transmissions = q.ack_cnps = 0;
    q.ack_transfer = states_[done].next;
    complete(done, Completion::What::acknowledged);
  }
}

void PacketDomain::receive_ack(uint32_t k) {
  const Packet packet = packets_[k];
  const uint32_t qi = packet.qp;
  {
    QueuePair& q = qps_[qi];
    const uint32_t hops = paths_[packet.path + 2];
    ended_transmissions_ += hops;
    ended_bytes_ += static_cast<int64_t>(hops) * packet.wire;
    const bool notified = (packet.flags & kNotify) != 0;
    if (q.ack_transfer != kNil) {
      q.ack_transmissions += hops;
      q.ack_cnps += notified ? 1 : 0;
    } else {
      TransferRecord& r = records_[states_[q.last_transfer].record];
      r.transmissions += hops;
      r.cnps += notified ? 1 : 0;
    }
    if (notified) {
      ++counters_at(packet).cnps_received;
      notify(qi);
    }
    if (packet.type == kCnp) {
      free_packet(k);
      return;
    }
    if (selective())
      acknowledge_selective(q, qi, k);
    else
      acknowledge_up_to(q, qi, packet.seq);
    if (packet.type == kNack) ++counters_at(packet).nacks_received;
    if (packet.type == kNack && !selective() &&
        (packet.seq >= q.una || config_.recovery == LossRecovery::go_back_0)) {
      rewind(qi, packet.seq);
    }
    if (q.controlled && config_.congestion > CongestionControl::dcqcn) feed_controller(qi, k);
    free_packet(k);
  }
  const QueuePair& q = qps_[qi];
  if (q.is_active) kick(q.port);
}

/// Sends again from `seq` on, which is `una`, or with go-back-0 the beginning of the message.
void PacketDomain::rewind(uint32_t qi, int64_t seq) {
  QueuePair& q = qps_[qi];
  if (q.ack_transfer == kNil || q.next == q.una) return;
  if (config_.recovery == LossRecovery::go_back_0) {
    q.una = std::min(q.una, std::max(seq, message_start(q, q.ack_transfer)));
  }
  q.next = q.una;
  q.send_transfer = q.ack_transfer;
  activate(qi);
}

void PacketDomain::activate(uint32_t qi) {
  QueuePair& q = qps_[qi];
  if (q.is_active) return;
  if (q.next == q.posted && !(selective() && !selective_[qi].repeat.empty())) return;
  q.is_active = true;
  const uint32_t si = ports_[q.port].sender;
  Sender& sender = senders_[si];
  auto& active = sender.active;
  active.insert(position(active, q), qi);
  ports_[q.port].sending = true;
  if (sender.paced) {
    pace(si, qi);
  } else if (active.size() >= kPacedFrom && !selective()) {
    sender.paced = true;
    if (pacings_.size() <= si) pacings_.resize(si + 1);
    for (const uint32_t other : active) pace(si, other);
  }
}

void PacketDomain::deactivate(uint32_t qi) {
  QueuePair& q = qps_[qi];
  if (!q.is_active) return;
  q.is_active = false;
  const uint32_t si = ports_[q.port].sender;
  Sender& sender = senders_[si];
  auto& active = sender.active;
  active.erase(position(active, q));
  ports_[q.port].sending = !active.empty();
  if (!sender.paced) return;
  Pacing& s = pacings_[si];
  const auto place = position(s.due, q);
  if (place != s.due.end() && *place == qi) s.due.erase(place);
  if (active.size() > kPacedTo) return;
  sender.paced = false;
  s.due.clear();
  s.later.clear();
}

/// The last byte of a message is in the NIC.
[[gnu::noinline]] void PacketDomain::hand_over(uint32_t state) {
  int64_t delay = config_.receive_delay_ps;
  const QueuePair& q = qps_[states_[state].qp];
  if (q.enters_elsewhere) delay += crossing(q.dst)->delay_ps;
  if (delay > 0)
    set_timer(now_ + delay, kHostSees, state, 0);
  else
    complete(state, Completion::What::delivered);
}

void PacketDomain::complete(uint32_t state, Completion::What what) {
  const uint32_t id = states_[state].record;
  const bool delivered = what == Completion::What::delivered;
  if (config_.qps > 1) {
    uint8_t& left = parts_left_[id];
    left = static_cast<uint8_t>(left - (delivered ? 1 : 16));
    if ((delivered ? left & 15 : left >> 4) != 0) return;
  }
  // The last ACK may be back before the receiving host has seen the message.
  TransferRecord& r = records_[id];
  if ((delivered ? r.acknowledged : r.delivered) > r.start) --outstanding_;
  (delivered ? r.delivered : r.acknowledged) = Time::ps(now_);
  const uint32_t qi = states_[state].qp;
  trace(delivered ? kTraceDelivered : kTraceAcked, qi, states_[state].end - qps_[qi].base,
        qps_[qi].dice_object, static_cast<uint64_t>(states_[state].end));
  if (completions_ != nullptr) completions_->push_back({Time::ps(now_), id, what});
}

void PacketDomain::on_timeout(uint32_t qi) {
  QueuePair& q = qps_[qi];
  q.rto_pending = false;
  // The next packet starts it again when nothing is under way; a sender that is stopped for good
  // must not keep the run alive.
  if (q.una == q.posted || q.high_water <= q.una) return;
  if (now_ < q.rto_deadline) {
    q.rto_pending = true;  // progress since
    events_.push(q.rto_deadline, key(kTimeout, q.rank), qi);
    return;
  }
  ++totals_.timeouts;
  ++senders_[ports_[q.port].sender].counters.ack_timeouts;
  if (++q.retries > config_.retry_limit) {
    throw SimulationError("transfer of rank " + std::to_string(q.src) + " to rank " +
                          std::to_string(q.dst) + " failed at " + print_time(Time::ps(now_)) +
                          ": " + std::to_string(config_.retry_limit) +
                          " retransmission timeouts without progress; " + describe_stall());
  }
  if (selective())
    repeat_all(q, qi);
  else
    rewind(qi, 0);
  q.rto_deadline = now_ + config_.rto_ps;
  q.rto_pending = true;
  events_.push(q.rto_deadline, key(kTimeout, q.rank), qi);
  kick(q.port);
}

}  // namespace trainyard
