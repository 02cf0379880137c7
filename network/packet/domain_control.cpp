// SPDX-License-Identifier: MIT
// Congestion control; pauses, their timers and watchdogs.
#include <algorithm>
#include <utility>

#include "network/packet/domain.h"
#include "network/packet/domain_dice.h"

namespace trainyard {

// ---------------------------------------------------------------- congestion control

void PacketDomain::notify(uint32_t qi) {
  QueuePair& q = qps_[qi];
  if (!q.controlled || config_.congestion != CongestionControl::dcqcn) return;
  Dcqcn& cc = dcqcn_[qi];
  if (config_.dcqcn.order == DcqcnOrder::vendor) {
    const int64_t at = cc.vendor_notify(config_.dcqcn, now_);
    if (at >= 0) {
      ++cuts_pending_;
      events_.push(at, key(kCut, q.rank), qi);
    }
    return;
  }
  cc.paper_notify(config_.dcqcn, now_);
  arm_increase(qi, now_ + config_.dcqcn.increase_timer_ps);
  set_rate(qi, cc.rate(), cc.target(), true);
}

void PacketDomain::on_cut(uint32_t qi) {
  --cuts_pending_;
  Dcqcn& cc = dcqcn_[qi];
  cc.vendor_cut(config_.dcqcn, now_);
  arm_increase(qi, now_ + config_.dcqcn.increase_timer_ps);
  set_rate(qi, cc.rate(), cc.target(), true);
}

void PacketDomain::arm_increase(uint32_t qi, int64_t at) {
  QueuePair& q = qps_[qi];
  q.increase_running = true;
  q.increase_next = at;
  events_.push(at, key(kIncrease, q.rank), qi);
}

void PacketDomain::on_increase(uint32_t qi) {
  const QueuePair& q = qps_[qi];
  if (q.increase_next != now_) return;  // armed anew since
  // An idle queue pair ages without events; on_start() catches up.
  if (q.una == q.posted) return;
  Dcqcn& cc = dcqcn_[qi];
  const bool settled = cc.recovered();
  cc.increase_by_timer(config_.dcqcn);
  arm_increase(qi, now_ + config_.dcqcn.increase_timer_ps);
  if (settled)
    qps_[qi].rate = cc.rate();
  else
    set_rate(qi, cc.rate(), cc.target(), false);
}

void PacketDomain::set_rate(uint32_t qi, int64_t rate, int64_t target, bool cut) {
  QueuePair& q = qps_[qi];
  if (config_.congestion == CongestionControl::hpcc && q.pace_bytes > 0) {
    // HPCC alone moves the send time that is pending.
    const int64_t pace_time =
        transmission_time(Bytes(q.pace_bytes), Rate::bps(rate), Time::ps(config_.resolution_ps))
            .ps();
    q.next_send += pace_time - q.pace_time;
    const uint32_t sender = ports_[q.port].sender;
    if (senders_[sender].paced && q.is_active) pace(sender, qi);
    q.pace_rate = rate;
    q.pace_time = pace_time;
  }
  q.rate = rate;
  ++totals_.rate_changes;
  trace(kTraceRate, qi, rate, q.dice_object, static_cast<uint64_t>(rate));
  if (watched_ && observer_ != nullptr && observer_->qps != nullptr) {
    observer_->qps->rate(qi, now_, rate);
  }
  if (rate_sink_ != nullptr) rate_sink_->push_back({now_, qi, q.src, q.dst, cut, rate, target});
}

/// Controllers that act on every ACK.
void PacketDomain::feed_controller(uint32_t qi, uint32_t k) {
  const QueuePair& q = qps_[qi];
  const Packet& packet = packets_[k];
  int64_t rate = q.rate;
  switch (config_.congestion) {
    case CongestionControl::hpcc: {
      const Stamps& s = stamps_of_[k];
      if (s.n == 0 || !hpcc_[qi].on_ack(config_.hpcc, s.hops, s.n, packet.seq, q.next)) return;
      rate = hpcc_[qi].rate();
      break;
    }
    case CongestionControl::timely:
      if (!timely_[qi].on_ack(config_.timely, now_ - sent_at_[k], packet.seq, q.next)) return;
      rate = timely_[qi].rate();
      break;
    case CongestionControl::dctcp:
      if (!dctcp_[qi].on_ack(config_.dctcp, (packet.flags & kNotify) != 0, packet.seq, q.next)) {
        return;
      }
      rate = dctcp_[qi].rate();
      break;
    case CongestionControl::none:
    case CongestionControl::dcqcn:
      return;
  }
  if (rate != q.rate) set_rate(qi, rate, rate, rate < q.rate);
}

/// Bytes that may be in flight; only where there is a window.
int64_t PacketDomain::window_of(const QueuePair& q, uint32_t qi) const {
  if (q.controlled && config_.congestion == CongestionControl::hpcc) {
    return std::min(q.window, hpcc_[qi].window(config_.hpcc));  // selective repeat bounds it too
  }
  if (!config_.window_scales || q.rate >= q.line) return q.window;
  return std::max<int64_t>(1,
                           static_cast<int64_t>(static_cast<__int128>(q.window) * q.rate / q.line));
}

// ---------------------------------------------------------------- pauses

void PacketDomain::lossless_drop(uint32_t in_index, const Node& n, const Lane& l,
                                 int64_t limit) const {
  throw SimulationError(
      "packet dropped in the lossless class at " + print_time(Time::ps(now_)) + " in " +
      topology_.nodes()[n.global].name + ", ingress from " + port_name(in_index) + ": headroom " +
      print_bytes(Bytes(ports_[in_index].headroom)) + " is full (" +
      print_bytes(Bytes(l.headroom_used)) + ") and the threshold of " + print_bytes(Bytes(limit)) +
      " is exceeded; raise fabric.switch.pfc.headroom or fabric.switch.buffer");
}

/// More is in the pool of `n` than ever: too much, or worth remembering.
void PacketDomain::new_pool_peak(Node& n) {
  if (n.shared_used > n.pool) {
    throw SimulationError("the buffer of " + topology_.nodes()[n.global].name + " is full at " +
                          print_time(Time::ps(now_)) +
                          " though no threshold is exceeded: " + print_bytes(Bytes(n.pool)) +
                          " are shared; lower fabric.switch.pfc.xoff or alpha");
  }
  n.peak = n.shared_used;
  pool_changed_ = true;
}

/// Length of one pause on this link.
int64_t PacketDomain::pause_ps(const Port& p) const {
  return transmission_time(Bytes(config_.pause_quanta * 64), Rate::bps(p.rate_bps), Time::ps(1))
      .ps();
}

/// Stops the sender of `in`: too much of it waits here, lately for egress port `because`.
void PacketDomain::send_pause(uint32_t in, uint32_t c, uint32_t because) {
  const uint32_t li = lane_index(in, c);
  LaneState& state = lane_states_[li];
  lane(in, c).pause_sent = true;
  nodes_[ports_[in].peer].touchy = pool_changed_ = true;
  ++totals_.pfc_pauses;
  ++state.sent_version;
  state.because = because;
  if (pause_sink_ != nullptr) {
    state.record = static_cast<uint32_t>(pause_sink_->size());
    pause_sink_->push_back({now_, -1, ports_[in].global,
                            because == kNil ? kNil : ports_[because].global,
                            static_cast<uint8_t>(c)});
  }
  if (config_.pause_quanta > 0) {
    set_timer(now_ + pause_ps(ports_[in]) / 2, kPauseRefresh, li, state.sent_version);
  }
  if (config_.cycle_check_ps > 0 && !cycle_check_pending_) {
    cycle_check_pending_ = true;
    set_timer(now_ + config_.cycle_check_ps, kCycleCheck, 0, 0);
  }
  send_pfc(in, kPause, c);
}

void PacketDomain::send_resume(uint32_t in, uint32_t c) {
  LaneState& state = lane_states_[lane_index(in, c)];
  lane(in, c).pause_sent = lane(in, c).excused = false;
  ++totals_.pfc_resumes;
  ++state.sent_version;
  if (pause_sink_ != nullptr && state.record != kNil) (*pause_sink_)[state.record].to_ps = now_;
  state.record = kNil;
  send_pfc(in, kResume, c);
}

void PacketDomain::send_pfc(uint32_t in, Type type, uint32_t c) {
  if (ports_[in].down) return;
  const uint32_t k = new_packet();
  Packet& packet = packets_[k];
  packet.seq = c;
  packet.qp = kNil;
  packet.path = kNil;
  packet.wire = static_cast<uint16_t>(config_.pfc_frame);
  packet.type = type;
  packet.flags = 0;
  ++totals_.pfc_frames;
  if (type == kPause && ports_[in].to_host) ++senders_[ports_[in ^ 1].sender].counters.pauses_sent;
  enqueue(in ^ 1, k, true);
  kick(in ^ 1);
}

/// A pause or resume has come through `pi`: it is about the port that sends the other way.
void PacketDomain::receive_pfc(uint32_t pi, uint32_t k) {
  const Packet packet = packets_[k];
  free_packet(k);
  ended_transmissions_ += 1;
  ended_bytes_ += packet.wire;
  const uint32_t out = pi ^ 1;
  const auto c = static_cast<uint32_t>(packet.seq);
  const bool pause = packet.type == kPause;
  const int64_t what = packet.seq << 1 | (pause ? 1 : 0);
  trace(kTracePause, pi, what, ports_[pi].rank, static_cast<uint64_t>(what));
  LaneState& state = lane_states_[lane_index(out, c)];
  ++state.pause_version;
  state.wanted = pause;
  if (pause) {
    ++ports_[out].pauses;
    if (config_.pause_quanta > 0) {
      set_timer(now_ + pause_ps(ports_[out]), kPauseExpires, lane_index(out, c),
                state.pause_version);
    }
    if (!state.ignores)
      pause_lane(out, c);
    else
      excuse(out, c);
  } else {
    unpause_lane(out, c);
  }
}

void PacketDomain::pause_lane(uint32_t port, uint32_t c) {
  Lane& l = lane(port, c);
  if (l.paused) return;
  l.paused = true;
  LaneState& state = lane_states_[lane_index(port, c)];
  state.paused_since = now_;
  if (telemetry_ != nullptr) telemetry_->paused(port, now_, true);
  if (config_.watchdog_ps > 0 && !ports_[port].from_host) {
    set_timer(now_ + config_.watchdog_ps, kWatchdog, lane_index(port, c), 0);
  }
}

void PacketDomain::unpause_lane(uint32_t port, uint32_t c) {
  Lane& l = lane(port, c);
  if (l.paused) {
    l.paused = false;
    LaneState& state = lane_states_[lane_index(port, c)];
    state.paused_total += now_ - state.paused_since;
    if (telemetry_ != nullptr) {
      bool other = false;
      for (uint32_t i = 0; i < classes_; ++i) other = other || lane(port, i).paused;
      telemetry_->paused(port, now_, other);
    }
  }
  kick(port);
}

/// The sender of `port` goes on in spite of a pause: what overflows at its head is no model error.
void PacketDomain::excuse(uint32_t port, uint32_t c) {
  Lane& l = lane(port, c);
  l.excused = l.excused || l.pause_sent;
}

/// A queue has been paused for as long as its watchdog allows.
void PacketDomain::on_watchdog(uint32_t li) {
  const uint32_t port = li / classes_;
  const uint32_t c = li % classes_;
  Lane& l = lane(port, c);
  LaneState& state = lane_states_[li];
  if (!l.paused || now_ - state.paused_since < config_.watchdog_ps) return;
  ++totals_.watchdog_events;
  state.ignores = true;
  if (config_.watchdog_action == WatchdogAction::drop) {
    l.discards = true;
    while (l.data.head != kNil) {
      const uint32_t k = take(l.data);
      l.data_bytes -= packets_[k].wire;
      discard(ports_[port], k);
    }
  }
  excuse(port, c);
  unpause_lane(port, c);
  set_timer(now_ + config_.watchdog_restore_ps, kRestore, li, 0);
}

void PacketDomain::on_restore(uint32_t li) {
  const uint32_t port = li / classes_;
  const uint32_t c = li % classes_;
  LaneState& state = lane_states_[li];
  state.ignores = false;
  lane(port, c).discards = false;
  if (state.wanted) pause_lane(port, c);
}

void PacketDomain::check_cycles() {
  cycle_check_pending_ = false;
  bool paused = false;
  for (uint32_t p = 0; p < ports_.size() && !paused; ++p) {
    for (uint32_t c = 0; c < classes_; ++c) paused = paused || lane(p, c).paused;
  }
  if (!paused) return;
  if (!cyclic_wait().empty()) ++totals_.cyclic_waits;
  // Without progress the queues will look the same: a new pause starts the next look.
  if (totals_.payload_bytes == checked_payload_) return;
  checked_payload_ = totals_.payload_bytes;
  cycle_check_pending_ = true;
  set_timer(now_ + config_.cycle_check_ps, kCycleCheck, 0, 0);
}

uint32_t PacketDomain::timer_rank(TimerKind kind, uint32_t index) const {
  switch (kind) {
    case kCycleCheck:
    case kReroute:
      return 0;
    case kHostSees:
      return index;
    case kServed:
      return ports_[senders_[index].port].rank * classes_;
    default:
      return ports_[index / classes_].rank * classes_ + index % classes_;
  }
}

uint32_t PacketDomain::timer_index(TimerKind kind, uint32_t rank) const {
  if (kind == kCycleCheck || kind == kReroute) return 0;
  if (kind == kHostSees) return rank;
  const uint32_t even = rank_index_.at(rank / classes_ & ~1U);
  const uint32_t port = even + (rank / classes_ & 1U);
  return kind == kServed ? ports_[port].sender : port * classes_ + rank % classes_;
}

void PacketDomain::on_timer(uint32_t rank, uint32_t arg) {
  constexpr uint32_t kMask = (1U << kVersionBits) - 1;
  const uint32_t version = arg & kMask;
  const uint32_t index = timer_index(static_cast<TimerKind>(arg >> kVersionBits), rank);
  --timers_pending_;
  switch (static_cast<TimerKind>(arg >> kVersionBits)) {
    case kPauseExpires: {
      LaneState& state = lane_states_[index];
      if ((state.pause_version & kMask) != version || !state.wanted) return;
      state.wanted = false;
      unpause_lane(index / classes_, index % classes_);
      return;
    }
    case kPauseRefresh: {
      const uint32_t port = index / classes_;
      const uint32_t c = index % classes_;
      if ((lane_states_[index].sent_version & kMask) != version || !lane(port, c).pause_sent) {
        return;
      }
      ++totals_.pfc_refreshes;
      send_pfc(port, kPause, c);
      set_timer(now_ + pause_ps(ports_[port]) / 2, kPauseRefresh, index, version);
      return;
    }
    case kWatchdog:
      on_watchdog(index);
      return;
    case kRestore:
      on_restore(index);
      return;
    case kServed:
      serve(index);
      return;
    case kCycleCheck:
      check_cycles();
      return;
    case kReroute:
      reroute();
      return;
    case kHostSees:
      complete(index, Completion::What::delivered);
      return;
    case kNicWatchdog: {
      LaneState& state = lane_states_[index];
      if ((state.sent_version & kMask) != version || !state.storm) return;
      ++totals_.watchdog_events;
      state.storm = false;
      send_resume(index / classes_, index % classes_);
      return;
    }
  }
}

}  // namespace trainyard
