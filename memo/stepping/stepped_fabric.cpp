// SPDX-License-Identifier: MIT
// Events, senders, NICs and messages.
#include "memo/stepping/stepped_fabric.h"

#include <algorithm>

#include "sim/errors.h"

namespace trainyard {

// ---------------------------------------------------------------- events

Time SteppedFabric::next_event() const {
  return events_.empty() ? Time::infinity() : Time::ps(events_.next_time());
}

Time SteppedFabric::advance(Time limit, std::vector<Completion>& out) {
  completions_ = &out;
  const size_t before = out.size();
  // A part of a run ends when it comes to rest; its owner has to know the instant.
  const bool may_rest = registry_ != nullptr && !idle();
  bool rests = false;
  while (!events_.empty() && events_.next_time() <= limit.ps()) {
    now_ = events_.next_time();
    run_instant();
    if (out.size() != before) break;
    rests = may_rest && outstanding_ == 0 && idle();
    if (rests) break;
  }
  std::stable_sort(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(),
                   [](const Completion& a, const Completion& b) {
                     return a.id != b.id ? a.id < b.id : a.what < b.what;
                   });
  completions_ = nullptr;
  if (out.size() == before && !rests && limit != Time::infinity()) {
    now_ = std::max(now_, limit.ps());
  }
  return Time::ps(now_);
}

void SteppedFabric::run_instant() {
  while (!events_.empty() && events_.next_time() == now_) {
    const Event e = events_.pop();
    const uint32_t index = e.key & ((1U << kKindShift) - 1);
    ++totals_.events;
    switch (static_cast<Kind>(e.key >> kKindShift)) {
      case kStart:
        on_start(index);
        break;
      case kCut:
        on_cut(index);
        break;
      case kIncrease:
        on_increase(index);
        break;
      case kBytes:
        on_bytes(index);
        break;
      case kNotify:
        on_notify(index, e.arg);
        break;
      case kWindow:
        on_window(index);
        break;
      case kSender:
        on_sender(index);
        break;
      case kFront:
        on_front(index);
        break;
      case kLeave:
        on_leave(index);
        break;
      case kPort:
        on_port(index);
        break;
      case kResume:
        on_resume(index);
        break;
      case kArrive:
        on_last_packet(index);
        break;
      case kDelivered:
        on_delivered(index);
        break;
      case kAcknowledged:
        on_acknowledged(index);
        break;
      case kAcksLeave:
        on_acks_leave(index);
        break;
      case kRest:
        break;
    }
  }
  if (stop_ && !declined_.empty()) {
    throw SimulationError("the stepped engine does not hold for this run: " + declined_ +
                          "; use 'simulation: {engine: packet}'");
  }
}

void SteppedFabric::decline(const std::string& why) {
  if (declined_.empty()) declined_ = why;
}

// ---------------------------------------------------------------- senders

SteppedFabric::Wide SteppedFabric::volume_of(const Message& m) const {
  return static_cast<Wide>(m.bytes + m.packets * config_.header) * 8 * kPsPerSecond;
}

SteppedFabric::Wide SteppedFabric::last_packet_of(const Message& m) const {
  const int64_t payload = m.bytes - (m.packets - 1) * config_.payload;
  return static_cast<Wide>(payload + config_.header) * 8 * kPsPerSecond;
}

/// Books what was sent up to `at`.
void SteppedFabric::settle(QueuePair& q, int64_t at) {
  if (at <= q.since) return;
  const Wide sent = static_cast<Wide>(q.rate) * (at - q.since);
  q.left -= sent;
  carried_ += sent;
  if (config_.dcqcn.byte_counter > 0 && q.cc.active()) q.until_count -= sent;
  q.since = at;
}

void SteppedFabric::on_start(uint32_t mi) {
  const uint32_t record = messages_[mi].record;
  const uint32_t qi = messages_[mi].qp != kNil
                          ? messages_[mi].qp
                          : open_qp(messages_[mi], records_[record].src, records_[record].dst);
  Message& m = messages_[mi];
  QueuePair& q = qps_[qi];
  m.qp = qi;
  q.posted += m.bytes;
  if (q.unacked++ == 0 && q.increase_running && q.increase_next <= now_) {
    // Timer periods that passed while nobody looked.
    const int64_t n = (now_ - q.increase_next) / config_.dcqcn.increase_timer_ps + 1;
    q.cc.age_increase(config_.dcqcn, n);
    arm_increase(qi, q.increase_next + n * config_.dcqcn.increase_timer_ps);
    want(qi);
  }
  if (q.head != kNil) {
    messages_[q.tail].next = mi;
    q.tail = mi;
    return;
  }
  m.follows = q.last_out || m.packets > 1;
  settle(q, now_);
  if (!q.last_out) {
    overshoot_ -= q.left;
    q.left = 0;
    q.since = std::max(q.since, now_);
  }
  begin(q, mi);
  q.tail = mi;
  q.last_out = false;
  if (q.active) {
    schedule(qi);
    return;
  }
  q.active = true;
  if (may_be_alone(q)) {
    start_alone(qi);
    return;
  }
  const uint32_t other = ports_[path_[q.forward]].alone;
  if (other != kNil) join_others(other);
  Nic& nic = nics_[q.nic];
  nic.active.push_back(qi);
  if (q.window > 0) look_at_window(qi);
  q.wanted = allowed(q);
  nic.wanted += q.wanted;
  share(q.nic, qi);
}

/// `message` is the next to be sent.
void SteppedFabric::begin(QueuePair& q, uint32_t mi) {
  q.head = q.latest = mi;
  const Wide volume = volume_of(messages_[mi]);
  q.left += volume;
  asked_ += volume;
  q.last = last_packet_of(messages_[mi]);
}

void SteppedFabric::schedule(uint32_t qi) {
  QueuePair& q = qps_[qi];
  if (q.rate == 0) return;
  const Wide volume = q.last_out || q.alone ? q.left : q.left - q.last;
  const Wide ps = volume <= 0 ? 0 : (volume + q.rate - 1) / q.rate;
  if (ps > kNever - 1 - q.since) {
    throw UserError("a message of rank " + std::to_string(q.src) +
                    " would take longer than the clock counts (106 days)");
  }
  const int64_t at = std::max(now_, q.since + static_cast<int64_t>(ps));
  if (config_.dcqcn.byte_counter > 0) count_bytes(qi);
  if (q.wake == at) return;
  q.wake = at;
  if (q.queued.announce(at)) events_.push(at, key(kSender, qi), 0);
}

/// The last packet of a message begins, or has been sent.
void SteppedFabric::on_sender(uint32_t qi) {
  QueuePair& q = qps_[qi];
  q.queued.popped();
  if (q.wake != now_) {
    if (q.wake != kNever && q.queued.announce(q.wake)) events_.push(q.wake, key(kSender, qi), 0);
    return;
  }
  q.wake = kNever;
  if (q.alone) {
    on_sent_alone(qi);
    return;
  }
  settle(q, now_);
  if (q.last_out) {
    overshoot_ -= q.left;
    q.left = 0;
    q.last_out = false;
    q.active = false;
    Nic& nic = nics_[q.nic];
    nic.active.erase(std::find(nic.active.begin(), nic.active.end(), qi));
    nic.wanted -= q.wanted;
    set_rate(qi, 0, false);
    share(q.nic, kNil);
    return;
  }
  const uint32_t mi = q.head;
  launch(mi);
  q.head = messages_[mi].next;
  if (q.head == kNil) {
    q.tail = kNil;
    q.last_out = true;
  } else {
    messages_[q.head].follows = true;
    begin(q, q.head);
  }
  schedule(qi);
}

/// Follows the last packet of a message from here on.
void SteppedFabric::launch(uint32_t mi) {
  Message& m = messages_[mi];
  const QueuePair& q = qps_[m.qp];
  const Port& p = ports_[hops_[q.forward].port];
  const int64_t size = m.bytes - (m.packets - 1) * config_.payload + config_.header;
  m.at = 1;
  book(m);
  const int64_t arrival = now_ + send_ps(size, p.rate_bps) + p.delay_ps;
  events_.push(arrival, key(q.hops == 1 ? kDelivered : kArrive, mi), 0);
}

/// `next_packet`: from its next packet on; else at once.
void SteppedFabric::set_rate(uint32_t qi, int64_t rate, bool next_packet) {
  QueuePair& q = qps_[qi];
  if (rate == q.rate) return;
  settle(q, now_);
  if (q.since <= now_ && next_packet && q.rate > 0) {
    const Wide rest = q.last_out ? q.left : (q.left - q.last) % full_;
    if (rest > 0) settle(q, now_ + static_cast<int64_t>((rest + q.rate - 1) / q.rate));
  }
  q.rate = rate;
  send_front(qi, q.since, rate);
  if (rate > 0) schedule(qi);
}

/// Whoever is behind the NIC learns that the queue pair sends at another rate from `at` on.
void SteppedFabric::send_front(uint32_t qi, int64_t at, int64_t rate) {
  QueuePair& q = qps_[qi];
  if (q.hops == 1) {
    told_receiver(qi, rate);
    return;
  }
  const Port& p = ports_[hops_[q.forward].port];
  hops_[q.forward + 1].arriving.push(rate);
  ++q.under_way;
  events_.push(at + p.full_ps + p.delay_ps, key(kFront, q.forward + 1), 0);
}

/// The NIC divides its line among its queue pairs. `changed`: wants another rate.
void SteppedFabric::share(uint32_t ni, uint32_t changed) {
  Nic& nic = nics_[ni];
  const int64_t line = std::max(nic.line / 2, nic.line - nic.acks);
  const bool turns = nic.active.size() > 1 && nic.active.size() <= kTurns;
  const bool as_wanted = !nic.full && !nic.turns;  // so far
  nic.full = nic.wanted > line;
  nic.turns = turns;
  if (as_wanted && !nic.full && !turns) {
    if (changed != kNil) set_rate(changed, std::max<int64_t>(1, qps_[changed].wanted), true);
    return;
  }
  nic.shared_acks = nic.acks;
  if (nic.active.empty()) return;
  auto levels = std::move(levels_);  // with a direct link this may be called again below
  levels.clear();
  for (const uint32_t qi : nic.active) levels.emplace_back(qps_[qi].wanted, qi);
  if (turns) {
    take_turns(levels, line);
  } else {
    std::sort(levels.begin(), levels.end());
    int64_t left = line;
    auto n = static_cast<int64_t>(levels.size());
    for (auto& [rate, qi] : levels) {
      rate = std::max<int64_t>(1, std::min(rate, left / n));
      left -= rate;
      --n;
    }
  }
  for (const auto& [rate, qi] : levels) {
    const QueuePair& q = qps_[qi];
    if (turns && qi != changed && q.rate > 0 && std::abs(rate - q.rate) <= q.rate >> kRateShift) {
      continue;
    }
    set_rate(qi, rate, qi == changed && rate >= q.wanted - q.wanted / 4);
  }
  levels_ = std::move(levels);
}

/// A paced packet that is due waits for the one that is being sent, and its successor is due an
/// interval after it was sent: what queue pairs get of their rates is what packets in turn get.
/// In: rates that are wanted; out: rates.
void SteppedFabric::take_turns(std::vector<std::pair<int64_t, uint32_t>>& levels,
                               int64_t line) const {
  struct Turn {
    int64_t interval = 0, due = 0, first = 0, last = 0, sent = 0;  // ps; packets
  };
  // Rare packets hold up the others, and are held up themselves, by a little: they go first.
  Turn turns[kTurns];
  uint32_t which[kTurns];
  size_t many = 0;
  int64_t rest = line;
  for (size_t i = 0; i < levels.size(); ++i) {
    const int64_t wanted = levels[i].first;
    if (wanted < line >> kRareShift) {
      rest -= wanted;
    } else {
      turns[many].interval = static_cast<int64_t>(full_ / wanted);
      which[many++] = static_cast<uint32_t>(i);
    }
  }
  const auto slot = static_cast<int64_t>(full_ / rest);
  // Round robin, as the packet engine's NIC: the first that is due after the one served last.
  size_t at = 0, enough = many == 1 ? 1 : 0;
  int64_t now = 0;
  for (int sent = 0; enough < many && sent < kMostTurns; ++sent) {
    size_t next = at;
    for (size_t k = 0, i = at; k < many; ++k, i = i + 1 == many ? 0 : i + 1) {
      if (std::max(turns[i].due, now) < std::max(turns[next].due, now)) next = i;
    }
    Turn& t = turns[next];
    now = std::max(now, t.due);
    ++t.sent;
    if (t.sent == kSettled) t.first = now;
    if (t.sent == kSettled + kCounted) ++enough;
    t.last = now;
    t.due = now + t.interval;
    now += slot;
    at = next + 1 == many ? 0 : next + 1;
  }
  int64_t sum = 0;
  for (size_t i = 0; i < many; ++i) {
    const Turn& t = turns[i];
    int64_t& rate = levels[which[i]].first;
    if (t.sent > kSettled) {
      rate = std::min(rate, static_cast<int64_t>(full_ * (t.sent - kSettled) / (t.last - t.first)));
    }
    sum += rate;
  }
  if (sum <= rest) return;
  for (size_t i = 0; i < many; ++i) {
    int64_t& rate = levels[which[i]].first;
    rate = std::max<int64_t>(1, static_cast<int64_t>(static_cast<Wide>(rate) * rest / sum));
  }
}

/// The rate that controller and window of a queue pair allow.
int64_t SteppedFabric::allowed(const QueuePair& q) const {
  const int64_t rate = paced(q.controlled ? q.cc.rate() : q.line);
  return q.window_rate > 0 ? std::min(rate, q.window_rate) : rate;
}

/// Controller or window may have moved.
void SteppedFabric::want(uint32_t qi) {
  QueuePair& q = qps_[qi];
  const int64_t rate = allowed(q);
  if (rate == q.wanted) return;
  const int64_t before = q.wanted;
  q.wanted = rate;
  if (!q.active) return;
  if (q.alone) {
    set_rate_alone(qi);
    return;
  }
  nics_[q.nic].wanted += rate - before;
  share(q.nic, qi);
}

// ---------------------------------------------------------------- controllers

/// Order paper or raise_first: a notification cuts at once.
void SteppedFabric::on_notify(uint32_t qi, uint32_t notices) {
  QueuePair& q = qps_[qi];
  if (q.latest != kNil) records_[messages_[q.latest].record].cnps += notices;
  for (; notices > 0; --notices) {
    q.notices.pop();
    q.cc.paper_notify(config_.dcqcn, now_);
    arm_increase(qi, now_ + config_.dcqcn.increase_timer_ps);
    controller_moved(qi, true);
  }
}

/// Vendor order: all that was heard since the last cut counts now.
void SteppedFabric::on_cut(uint32_t qi) {
  QueuePair& q = qps_[qi];
  while (!q.notices.empty() && q.notices.front() <= now_) {
    if (q.latest != kNil) ++records_[messages_[q.latest].record].cnps;
    const int64_t cut = q.cc.vendor_notify(config_.dcqcn, q.notices.pop());
    if (cut >= 0) q.cut_due = cut;
  }
  if (q.cut_due > now_) {
    if (q.cut_due != kNever) events_.push(q.cut_due, key(kCut, qi), 0);
    return;
  }
  q.cut_due = kNever;
  q.cc.vendor_cut(config_.dcqcn, now_);
  arm_increase(qi, now_ + config_.dcqcn.increase_timer_ps);
  controller_moved(qi, true);
}

void SteppedFabric::arm_increase(uint32_t qi, int64_t at) {
  QueuePair& q = qps_[qi];
  q.increase_running = true;
  q.increase_next = at;
  if (q.increase_wake <= at) return;  // an earlier look finds this too
  q.increase_wake = at;
  events_.push(at, key(kIncrease, qi), 0);
}

void SteppedFabric::on_increase(uint32_t qi) {
  QueuePair& q = qps_[qi];
  if (q.increase_wake != now_) return;
  q.increase_wake = kNever;
  if (q.increase_next > now_) {
    arm_increase(qi, q.increase_next);
    return;
  }
  if (q.unacked == 0) return;  // on_start() catches up
  const bool settled = q.cc.recovered();
  q.cc.increase_by_timer(config_.dcqcn);
  arm_increase(qi, now_ + config_.dcqcn.increase_timer_ps);
  if (settled)
    want(qi);
  else
    controller_moved(qi, false);
}

void SteppedFabric::controller_moved(uint32_t qi, bool cut) {
  QueuePair& q = qps_[qi];
  ++totals_.rate_changes;
  if (rate_sink_ != nullptr) {
    rate_sink_->push_back({now_, qi, q.src, q.dst, cut, q.cc.rate(), q.cc.target()});
  }
  if (cut && config_.dcqcn.byte_counter > 0) {
    settle(q, now_);
    q.until_count = static_cast<Wide>(config_.dcqcn.byte_counter) * 8 * kPsPerSecond;
  }
  if (q.window > 0 && q.active) look_at_window(qi);
  want(qi);
  if (config_.dcqcn.byte_counter > 0) count_bytes(qi);
}

/// Sets the event of the byte counter.
void SteppedFabric::count_bytes(uint32_t qi) {
  QueuePair& q = qps_[qi];
  if (!q.controlled || !q.cc.active() || q.rate == 0) return;
  const Wide ps = q.until_count <= 0 ? 0 : (q.until_count + q.rate - 1) / q.rate;
  if (ps > kNever / 2) return;
  const int64_t at = std::max(now_, q.since + static_cast<int64_t>(ps));
  if (q.bytes_wake == at) return;
  q.bytes_wake = at;
  events_.push(at, key(kBytes, qi), 0);
}

void SteppedFabric::on_bytes(uint32_t qi) {
  QueuePair& q = qps_[qi];
  if (q.bytes_wake != now_) return;
  q.bytes_wake = kNever;
  settle(q, now_);
  if (q.rate == 0) return;
  if (q.until_count > 0) {
    count_bytes(qi);
    return;
  }
  q.until_count += static_cast<Wide>(config_.dcqcn.byte_counter) * 8 * kPsPerSecond;
  if (q.cc.sent(config_.dcqcn, config_.dcqcn.byte_counter)) controller_moved(qi, false);
}

/// A window lets its bytes out once per round trip, waiting included.
void SteppedFabric::look_at_window(uint32_t qi) {
  QueuePair& q = qps_[qi];
  int64_t at =
      now_ + ports_[hops_[q.forward].port].full_ps + ports_[hops_[q.forward].port].delay_ps;
  if (q.hops > 1) {
    const Port& p = ports_[hops_[q.forward + 1].port];
    at = at_receiver(q.forward + 1, at + wait_ps(p, at));
  }
  const int64_t rtt = back_at_sender(q, at, false) - now_;
  int64_t window = q.window;
  if (config_.window_scales && q.controlled && q.cc.rate() < q.line) {
    window = std::max<int64_t>(
        1, static_cast<int64_t>(static_cast<Wide>(window) * q.cc.rate() / q.line));
  }
  // A packet leaves as long as a byte of the window is free, so that it is overshot by up to one.
  const Wide packets = (static_cast<Wide>(window) + config_.payload - 1) / config_.payload;
  q.window_rate = std::max<int64_t>(1, static_cast<int64_t>(packets * full_ / rtt));
  if (!q.window_pending) {
    q.window_pending = true;
    events_.push(now_ + std::max<int64_t>(rtt / 2, 100'000), key(kWindow, qi), 0);
  }
}

void SteppedFabric::on_window(uint32_t qi) {
  QueuePair& q = qps_[qi];
  q.window_pending = false;
  if (!q.active) return;
  look_at_window(qi);
  want(qi);
}

// ---------------------------------------------------------------- messages

/// The last packet of a message is at a switch port.
void SteppedFabric::on_last_packet(uint32_t mi) {
  Message& m = messages_[mi];
  const QueuePair& q = qps_[m.qp];
  Port& p = ports_[hops_[q.forward + m.at].port];
  settle(p);
  const int64_t size =
      m.follows ? full_bytes_ : m.bytes - (m.packets - 1) * config_.payload + config_.header;
  const int64_t arrival = now_ + wait_ps(p, now_) + send_ps(size, p.rate_bps) + p.delay_ps;
  ++m.at;
  events_.push(arrival, key(m.at == q.hops ? kDelivered : kArrive, mi), 0);
}

void SteppedFabric::on_delivered(uint32_t mi) {
  const Message& m = messages_[mi];
  QueuePair& q = qps_[m.qp];
  complete(m, Completion::What::delivered);
  q.last_ack = std::max(q.last_ack, back_at_sender(q, now_, false));
  if (!m.quiet) {
    events_.push(q.last_ack, key(kAcknowledged, mi), 0);
    return;
  }
  --q.unacked;
  rests_at_ = std::max(rests_at_, q.last_ack);
  acknowledge(m, q.last_ack);
  if (outstanding_ == 0 && rests_at_ > now_) events_.push(rests_at_, key(kRest, 0), 0);
}

void SteppedFabric::on_acknowledged(uint32_t mi) {
  const Message& m = messages_[mi];
  QueuePair& q = qps_[m.qp];
  --q.unacked;
  complete(m, Completion::What::acknowledged);
}

/// Ahead of time: nobody has to be told.
void SteppedFabric::acknowledge(const Message& m, int64_t at) {
  uint8_t& left = parts_left_[m.record];
  left = static_cast<uint8_t>(left - 16);
  trace(m, Trace::acknowledged, at);
  if (left >> 4 != 0) return;
  records_[m.record].acknowledged = std::max(records_[m.record].acknowledged, Time::ps(at));
  --outstanding_;
}

}  // namespace trainyard
