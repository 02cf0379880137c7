// SPDX-License-Identifier: MIT
// Queues, what leaves them, marks; pauses that are not modelled.
#include <algorithm>

#include "memo/stepping/hazard.h"
#include "memo/stepping/stepped_fabric.h"
#include "sim/dice.h"
#include "sim/errors.h"

namespace trainyard {
namespace {

constexpr uint32_t kDiceMark = 1;  // as in the packet engine
// Downstream learns of a change of what leaves a queue when it is a 2^-8 of it; ACKs when it is a
// 2^-5, for they are a twentieth of the data at most.
constexpr int kTellShift = 8, kTellAcksShift = 5;
constexpr uint64_t kMostScale = 1 << 24;
constexpr int kBinsAhead = 12;

}  // namespace

// ---------------------------------------------------------------- queues

/// Growth of the queue in bit/s. What exceeds the line by less than 2^-12 of it is rounding.
int64_t SteppedFabric::slope(const Port& p) {
  const int64_t over = p.in - p.carries;
  if (p.queue == 0 && over <= p.carries >> 12) return 0;
  return over;
}

int64_t SteppedFabric::offset(const Port& p) const {
  // Packets arrive as wholes: of each flow half a packet more waits than the fluid says. Marking
  // looks at what is left when a packet begins to leave; on arrival that packet counts.
  const auto half_packets =
      static_cast<int64_t>(p.members.size()) - (config_.ecn == EcnMark::dequeue ? 2 : 0);
  return half_packets * static_cast<int64_t>(full_ >> (kQueueShift + 1));
}

/// -1 below the band, kBins above it. `queue` includes offset().
int SteppedFabric::bin_of(const Port& p, int64_t queue) const {
  if (queue <= p.kmin) return -1;
  if (queue > p.kmax) return kBins;
  return static_cast<int>(std::min<int64_t>(kBins - 1, (queue - p.kmin) / p.bin));
}

/// ps until the queue leaves its bin, at most `most`, at least 1.
int64_t SteppedFabric::step_to_next_bin(const Port& p, int64_t queue, int bin, int64_t m,
                                        int64_t most) const {
  int64_t way = 0;
  if (m > 0) {
    if (bin == kBins) return most;
    const int64_t upper = bin < 0 ? p.kmin : bin == kBins - 1 ? p.kmax : p.kmin + (bin + 1) * p.bin;
    way = upper - queue + 1;
  } else if (m < 0) {
    if (bin < 0) return most;
    way = queue - (bin == kBins ? p.kmax : p.kmin + bin * p.bin) + (bin == kBins ? 0 : 1);
  } else {
    return most;
  }
  const Wide ps =
      (static_cast<Wide>(std::max<int64_t>(way, 1)) << kQueueShift) / (m > 0 ? m : -m) + 1;
  return ps < most ? static_cast<int64_t>(ps) : most;
}

/// Queue and clocks up to now.
void SteppedFabric::settle(Port& p) {
  int64_t left = now_ - p.since;
  if (left <= 0) return;
  p.since = now_;
  const int64_t m = slope(p);
  p.volume += static_cast<Wide>(p.scale_q16) * left;
  if (m == 0 && p.queue == 0) return;
  const auto grow = [&](int64_t ps) {
    p.queue += static_cast<int64_t>(static_cast<Wide>(m) * ps >> kQueueShift);
    if (p.queue < 0) p.queue = 0;
  };
  if (p.heap.empty()) {
    grow(left);
  } else {
    const int64_t add = offset(p);
    while (left > 0) {
      const int bin = bin_of(p, p.queue + add);
      const int64_t step = step_to_next_bin(p, p.queue + add, bin, m, left);
      if (bin >= 0) {
        drew_dice_ = drew_dice_ || !config_.dithered;
        if (config_.dithered) {
          // 2^32 x packets' worth, in 1e-12 bit.
          const auto out = static_cast<Wide>(p.head) * static_cast<int64_t>(p.scale_q16) >> 16;
          p.pooled += out * step * hazards_[bin];
        }
        p.hazard +=
            static_cast<Wide>(hazards_[bin]) * static_cast<int64_t>(p.scale_q16) * step >> 16;
      }
      grow(step);
      left -= step;
    }
  }
  p.peak = std::max(p.peak, p.queue);
}

/// What is left for the queue, in bit/s.
int64_t SteppedFabric::data_line(const Port& p) const {
  return config_.ack_in_data_class ? p.carries : std::max(p.carries / 2, p.carries - p.acks);
}

/// ps until so much has left, in queue units.
int64_t SteppedFabric::drains_in(const Port& p, int64_t queue) const {
  return static_cast<int64_t>((static_cast<Wide>(queue) << kQueueShift) / data_line(p));
}

/// What waits at `at`, not long from now, in ps of the line.
int64_t SteppedFabric::wait_ps(const Port& p, int64_t at) const {
  int64_t queue =
      p.queue + static_cast<int64_t>(static_cast<Wide>(slope(p)) * (at - p.since) >> kQueueShift);
  if (queue <= 0) return 0;
  if (p.members.size() > 1) {
    queue += static_cast<int64_t>(p.members.size() - 1) *
             static_cast<int64_t>(full_ >> (kQueueShift + 1));
  }
  return drains_in(p, queue);
}

/// Sets the next event of the port.
void SteppedFabric::reschedule(uint32_t pi) {
  Port& p = ports_[pi];
  const int64_t m = slope(p);
  int64_t at = kNever;
  const auto reach = [&](int64_t way) {
    const Wide ps =
        ((static_cast<Wide>(way) << kQueueShift) + (m > 0 ? m : -m) - 1) / (m > 0 ? m : -m);
    return now_ + static_cast<int64_t>(std::min<Wide>(ps, kNever / 4));
  };
  if (p.queue > 0 && m < 0) at = reach(p.queue);
  if (m > 0 && p.watch != kNever) at = std::min(at, reach(std::max<int64_t>(0, p.watch - p.queue)));
  if (!p.heap.empty()) {
    const int64_t add = offset(p);
    int64_t queue = p.queue;
    int64_t t = now_;
    Wide need = hops_[p.heap[0]].due - p.hazard;
    Wide pooled = (full_ << 32) - p.pooled;
    for (int i = 0; i < kBinsAhead && t < at; ++i) {
      const int bin = bin_of(p, queue + add);
      if (bin < 0 && m <= 0) {
        t = at;
        break;
      }
      const int64_t step = step_to_next_bin(p, queue + add, bin, m, kNever / 4);
      if (bin >= 0) {
        Wide ps = 0;
        Wide gain = 0;
        if (config_.dithered) {
          const auto out = static_cast<Wide>(p.head) * static_cast<int64_t>(p.scale_q16) >> 16;
          gain = std::max<Wide>(1, out * hazards_[bin]);
          ps = pooled <= 0 ? 0 : (pooled + gain - 1) / gain;
          pooled -= gain * step;
        } else {
          gain = std::max<Wide>(
              1, static_cast<Wide>(hazards_[bin]) * static_cast<int64_t>(p.scale_q16) >> 16);
          ps = need <= 0 ? 0 : (need + gain - 1) / gain;
          need -= gain * step;
        }
        if (ps <= step) {
          t += static_cast<int64_t>(ps);
          break;
        }
      }
      if (step >= kNever / 4 || t - now_ >= kNever / 4) {
        t = at;
        break;
      }
      t += step;
      queue += static_cast<int64_t>(static_cast<Wide>(m) * step >> kQueueShift);
    }
    at = std::min(at, t);
  }
  if (at == kNever || p.wake <= at) return;  // an earlier look finds this too
  p.wake = at;
  if (p.queued.announce(at)) events_.push(at, key(kPort, pi), 0);
}

void SteppedFabric::on_port(uint32_t pi) {
  const int64_t wake = ports_[pi].wake;
  ports_[pi].queued.popped();
  if (wake != now_) {
    if (wake != kNever && ports_[pi].queued.announce(wake)) events_.push(wake, key(kPort, pi), 0);
    return;
  }
  ports_[pi].wake = kNever;
  settle(ports_[pi]);
  rescale(pi, kNil);
  Port& p = ports_[pi];
  if (!p.heap.empty()) {
    if (config_.dithered) {
      while (p.pooled >= full_ << 32) {
        p.pooled -= full_ << 32;
        mark(pi, p.heap[0], false);
      }
    } else {
      while (!p.heap.empty() && hops_[p.heap[0]].due <= p.hazard) mark(pi, p.heap[0], false);
    }
  }
  if (p.queue < p.rearm) {
    p.watch = p.rearm;
    p.rearm = -1;
    p.held += p.holds;
    p.holds = 0;
  }
  if (p.queue >= p.watch) look_for_pause(pi);
  reschedule(pi);
}

/// A flow arrives at another rate.
void SteppedFabric::on_front(uint32_t hi) {
  Hop& h = hops_[hi];
  const uint32_t pi = h.port;
  Port& p = ports_[pi];
  const int64_t rate = h.arriving.pop();
  --qps_[h.qp].under_way;
  if (p.alone != kNil) join_others(p.alone);
  settle(p);
  if (h.member == kNil) {
    h.member = static_cast<uint32_t>(p.members.size());
    p.members.push_back(hi);
  }
  p.in += rate - h.in;
  h.in = rate;
  if (p.queue == 0 && h.leaving.empty()) {
    set_head(hi, rate);
  } else {
    h.leaving.push(rate);
    ++qps_[h.qp].under_way;
    events_.push(now_ + drains_in(p, p.queue), key(kLeave, hi), 0);
  }
  rescale(pi, hi);
  reschedule(pi);
}

/// What arrived at another rate leaves the queue.
void SteppedFabric::on_leave(uint32_t hi) {
  Hop& h = hops_[hi];
  const uint32_t pi = h.port;
  settle(ports_[pi]);
  --qps_[h.qp].under_way;
  set_head(hi, h.leaving.pop());
  rescale(pi, hi);
  reschedule(pi);
}

void SteppedFabric::set_head(uint32_t hi, int64_t rate) {
  Hop& h = hops_[hi];
  Port& p = ports_[h.port];
  if (p.marks && config_.congestion == CongestionControl::dcqcn && qps_[h.qp].controlled) {
    // Hazard and packet boundaries go on from where they are.
    if (h.head > 0) {
      h.phase = phase_of(p, h);
      if (!h.rests) {
        const Wide left = (h.due - p.hazard) * h.head / full_;
        h.patience = left > 0 ? static_cast<int64_t>(left) : 0;
      }
    }
    h.volume = p.volume;
    if (h.head == 0) {
      // Who comes at one instant comes one packet behind the other.
      p.joined = p.joined_at == now_ ? p.joined + 1 : 0;
      p.joined_at = now_;
      h.begins = now_ + p.joined * p.full_ps;
      h.phase = 0;
    }
    // A rest that was as long as packets were rare.
    if (rate / 2 > h.head) h.rests = false;
    if (rate == 0) {
      if (h.heap != kNil) heap_remove(p, hi);
    } else if (!h.rests) {
      if (h.patience < 0) draw(h);
      h.due = p.hazard + h.patience * full_ / rate;
      heap_set(p, hi);
    }
  }
  p.head += rate - h.head;
  h.head = rate;
  if (rate == 0 && h.in == 0 && h.leaving.empty()) {
    const uint32_t last = p.members.back();
    p.members[h.member] = last;
    hops_[last].member = h.member;
    p.members.pop_back();
    h.member = kNil;
    tell(hi);
  }
}

/// What leaves a port may be another share of what arrived. `changed`: that flow has changed.
void SteppedFabric::rescale(uint32_t pi, uint32_t changed) {
  Port& p = ports_[pi];
  uint64_t scale = 1 << 16;
  if (p.queue > 0 || slope(p) > 0) {
    // ACKs of the data class have a share like a flow; those of the control class go first.
    const int64_t arrived = config_.ack_in_data_class ? p.head + p.acks_head : p.head;
    const int64_t line = data_line(p);
    scale = arrived == 0 ? kMostScale
                         : static_cast<uint64_t>((static_cast<Wide>(line) << 16) / arrived);
    scale = std::min(scale, kMostScale);
  }
  p.scale_q16 = scale;
  const uint64_t off = scale > p.told_q16 ? scale - p.told_q16 : p.told_q16 - scale;
  // Where many flows meet, each moves the others a little, and one the other way.
  const uint64_t much = std::min(
      p.told_q16 >> 4, std::max(p.told_q16 >> kTellShift, p.told_q16 * p.members.size() >> 10));
  const bool all = off > (p.to_host ? p.told_q16 >> kTellAcksShift : much);
  if (all) {
    p.told_q16 = scale;
    // By index: telling may lead back here, but neither adds nor removes flows.
    for (size_t i = 0; i < ports_[pi].members.size(); ++i) tell(ports_[pi].members[i]);
    if (config_.ack_in_data_class) {
      for (uint32_t ri = ports_[pi].ack_hops; ri != kNil; ri = reverse_[ri].after) tell_acks(ri);
    }
  } else if (changed != kNil) {
    tell(changed);
  }
}

/// The next hop of a flow learns at what rate it comes.
void SteppedFabric::tell(uint32_t hi) {
  Hop& h = hops_[hi];
  const Port& p = ports_[h.port];
  const auto out =
      static_cast<int64_t>(static_cast<Wide>(h.head) * static_cast<int64_t>(p.scale_q16) >> 16);
  if (out == h.out) return;
  if (p.to_host) {
    h.out = out;
    told_receiver(h.qp, out);
    return;
  }
  const int64_t off = out > h.out ? out - h.out : h.out - out;
  if (out != 0 && h.out != 0 && off < h.out >> kTellShift) return;
  h.out = out;
  hops_[hi + 1].arriving.push(out);
  ++qps_[h.qp].under_way;
  events_.push(now_ + p.full_ps + p.delay_ps, key(kFront, hi + 1), 0);
}

/// Data arrive at this rate: so do ACKs on the way back.
void SteppedFabric::told_receiver(uint32_t qi, int64_t rate) {
  QueuePair& q = qps_[qi];
  const int64_t off = rate > q.delivered_rate ? rate - q.delivered_rate : q.delivered_rate - rate;
  if (off == 0 || (rate != 0 && off <= q.delivered_rate >> kTellAcksShift)) return;
  q.delivered_rate = rate;
  pass_acks(qi, q.reverse, rate);
}

/// ACKs for data of this rate arrive at hop `ri` of the way back, and at those behind it up to the
/// first queue that they wait in.
void SteppedFabric::pass_acks(uint32_t qi, uint32_t ri, int64_t rate) {
  const QueuePair& q = qps_[qi];
  for (; ri < q.reverse + q.reverse_hops; ++ri) {
    AckHop& h = reverse_[ri];
    const uint32_t pi = h.port;
    Port& p = ports_[pi];
    const int64_t change = acks_of(p, rate) - acks_of(p, h.in);
    h.in = rate;
    p.acked = acked(p);
    p.acks_since = now_;
    p.ack_rate += change;
    if (ri == q.reverse) {
      Nic& nic = nics_[p.nic];
      nic.acks += change;
      if (nic.active.empty()) continue;
      const int64_t moved =
          nic.acks > nic.shared_acks ? nic.acks - nic.shared_acks : nic.shared_acks - nic.acks;
      const bool full_now = nic.wanted + nic.acks > nic.line;
      if (full_now != nic.full || (full_now && moved > nic.line >> kTellShift)) {
        share(p.nic, kNil);
      }
      continue;
    }
    // Where nothing else goes there is nothing to follow.
    const bool rests = p.members.empty() && p.queue == 0 && p.in + change <= p.carries;
    if (!rests) settle(p);
    p.acks += change;
    p.in += change;
    if (!h.listed && config_.ack_in_data_class) list(p, ri);
    if (config_.ack_in_data_class && (p.queue > 0 || !h.leaving.empty())) {
      h.leaving.push(rate);
      events_.push(now_ + drains_in(p, p.queue), key(kAcksLeave, ri), 0);
      rescale(pi, kNil);
      reschedule(pi);
      return;
    }
    p.acks_head += acks_of(p, rate) - acks_of(p, h.head);
    h.head = rate;
    if (!rests) {
      rescale(pi, kNil);
      reschedule(pi);
    }
    if (rate == 0 && h.listed) unlist(p, ri);
    if (!tells(p, h)) return;
    rate = h.out;
  }
}

/// ACKs that arrived at another rate leave the queue.
void SteppedFabric::on_acks_leave(uint32_t ri) {
  AckHop& h = reverse_[ri];
  Port& p = ports_[h.port];
  settle(p);
  const int64_t rate = h.leaving.pop();
  p.acks_head += acks_of(p, rate) - acks_of(p, h.head);
  h.head = rate;
  rescale(h.port, kNil);
  reschedule(h.port);
  tell_acks(ri);
  if (h.head == 0 && h.in == 0 && h.leaving.empty() && h.listed) unlist(p, ri);
}

/// The next hop learns at what rate ACKs come, if that has changed.
void SteppedFabric::tell_acks(uint32_t ri) {
  AckHop& h = reverse_[ri];
  if (tells(ports_[h.port], h)) pass_acks(h.qp, ri + 1, h.out);
}

bool SteppedFabric::tells(const Port& p, AckHop& h) const {
  const auto out = config_.ack_in_data_class
                       ? static_cast<int64_t>(
                             static_cast<Wide>(h.head) * static_cast<int64_t>(p.scale_q16) >> 16)
                       : h.head;
  const int64_t off = out > h.out ? out - h.out : h.out - out;
  if (off == 0 || (out != 0 && off <= h.out >> kTellAcksShift)) return false;
  h.out = out;
  return true;
}

int64_t SteppedFabric::acks_of(const Port& p, int64_t data) {
  return static_cast<int64_t>(static_cast<Wide>(data) * p.ack_share_q40 >> 40);
}

/// Those whose ACKs pass a port, the last to come first.
void SteppedFabric::list(Port& p, uint32_t ri) {
  AckHop& h = reverse_[ri];
  h.listed = true;
  h.before = kNil;
  h.after = p.ack_hops;
  if (h.after != kNil) reverse_[h.after].before = ri;
  p.ack_hops = ri;
}

void SteppedFabric::unlist(Port& p, uint32_t ri) {
  AckHop& h = reverse_[ri];
  h.listed = false;
  (h.before == kNil ? p.ack_hops : reverse_[h.before].after) = h.after;
  if (h.after != kNil) reverse_[h.after].before = h.before;
}

// ---------------------------------------------------------------- marks

/// When the flow is marked next, from now on.
void SteppedFabric::draw(Hop& h) {
  if (config_.dithered) {
    h.patience = int64_t{1} << 32;
    return;
  }
  const QueuePair& q = qps_[h.qp];
  const auto hop = static_cast<uint64_t>(&h - &hops_[q.forward]);
  h.patience = minus_ln_q32(dice(config_.seed, kDiceMark, q.noise, h.draws++ * 64 + hop));
}

/// What of the packet that leaves now has left, in 1e-12 bit; negative before the first packet.
SteppedFabric::Wide SteppedFabric::phase_of(const Port& p, Hop& h) const {
  if (h.begins > 0) {
    const Wide out = static_cast<Wide>(h.head) * static_cast<int64_t>(p.scale_q16) >> 16;
    const Wide phase = out * (now_ - h.begins);
    if (phase < 0) return phase;
    h.begins = 0;
    h.phase = phase;
    h.volume = p.volume;
  }
  return (h.phase + (h.head * (p.volume - h.volume) >> 16)) % full_;
}

/// The queue goes through more than a 32nd of the marking band in that time, or what leaves it may
/// change.
bool SteppedFabric::moves(const Port& p, int64_t ps) {
  if (ps > 10'000'000) return true;
  const int64_t m = slope(p);
  const Wide way = static_cast<Wide>(m > 0 ? m : -m) * ps >> kQueueShift;
  return way > p.bin * (kBins / 32);
}

/// A packet of the flow is marked. Later ones whose news would come before the controller's next
/// decision are found here too, with the queue as it is now. `next`: none that has begun to leave.
void SteppedFabric::mark(uint32_t pi, uint32_t hi, bool next) {
  Port& p = ports_[pi];
  Hop& h = hops_[hi];
  QueuePair& q = qps_[h.qp];
  const bool vendor = config_.dcqcn.order == DcqcnOrder::vendor;
  const int bin = bin_of(p, p.queue + offset(p));
  const auto out = static_cast<int64_t>(
      std::max<Wide>(1, static_cast<Wide>(h.head) * static_cast<int64_t>(p.scale_q16) >> 16));
  const auto spacing = static_cast<int64_t>(full_ / out);
  // The hazard of half a packet before and half a packet after its beginning is that of a packet:
  // it is the nearest one. A beginning that is past is still ahead of its notification.
  const Wide phase = phase_of(p, h);
  int64_t begins = static_cast<int64_t>(
      (2 * phase < full_ && !(next && phase > 0) ? -phase : full_ - phase) / out);
  // Times are counted from now; what is on its way takes as long as the first.
  const int64_t to_receiver = at_receiver(hi, now_ + begins) - begins;
  const int64_t to_sender = back_at_sender(q, to_receiver + begins, config_.cnp_packets) - begins;
  const bool heard =
      !config_.cnp_packets || to_receiver + begins - q.last_cnp >= config_.cnp_interval_ps;
  int64_t rest = begins + spacing / 2;
  if (!heard) {
    rest = std::max(rest, q.last_cnp + config_.cnp_interval_ps - to_receiver);
    ++p.marked;
  } else if (config_.cnp_packets) {
    q.last_cnp = to_receiver + begins;
    ++totals_.cnp_packets;
    ++p.marked;
    rest = std::max(rest, begins + config_.cnp_interval_ps);
  }
  uint32_t notices = 0;
  int64_t first = 0;
  if (heard) {
    const int64_t at = std::max(now_, to_sender + begins);
    if (vendor) {
      if (q.first_notify < 0 || at < q.first_notify) q.first_notify = at;
    }
    q.notices.push_in_order(at);
    notices = 1;
    first = at;
  }
  if (heard && vendor && !config_.dithered && bin >= 0 && !config_.cnp_packets) {
    const int64_t tick = config_.dcqcn.alpha_timer_ps;
    const int64_t cut = config_.dcqcn.cut_timer_ps;
    const int64_t origin = q.first_notify;
    int64_t at = first;
    const int64_t decision = next_cut(q, at);
    const Wide gain = std::max<Wide>(1, static_cast<Wide>(hazards_[bin]) * out);
    // What waits on the way grows or drains meanwhile: news is spread out, or comes all at once.
    const int64_t spread = std::clamp(
        back_at_sender(q, at_receiver(hi, now_ + begins + cut), false) - to_sender - begins,
        cut >> 6, cut << 6);
    const int64_t from = begins;
    const auto heard_at = [&](int64_t begin) {
      return to_sender + from +
             static_cast<int64_t>(static_cast<Wide>(begin - from) * spread / cut);
    };
    ++p.marked;
    while (true) {
      // Until the alpha timer ticks, further marks change nothing.
      const int64_t until = origin + (at - origin + tick - 1) / tick * tick - at;
      rest = std::max(rest, begins + static_cast<int64_t>(static_cast<Wide>(until) * cut / spread));
      draw(h);
      const auto wait = static_cast<int64_t>(std::min<Wide>(kNever / 4, h.patience * full_ / gain));
      // The nearest beginning to that.
      const int64_t packets = std::max<int64_t>(1, (rest + wait - begins + spacing / 2) / spacing);
      const int64_t later = begins + packets * spacing;
      if (heard_at(later) >= decision || later > 2 * cut) break;
      begins = later;
      at = std::max(now_, heard_at(begins));
      rest = begins + spacing / 2;
      q.notices.push_in_order(at);
      ++notices;
      ++p.marked;
    }
  } else {
    draw(h);
  }
  if (heard) announce(h.qp, first, notices);
  rest = std::max<int64_t>(rest, 0);
  Wide passed = 0;
  if (config_.dithered) {
    passed = h.due - p.hazard;  // its turn is over, not its time
  } else if (rest > 0 && (bin == kBins || moves(p, rest))) {
    // The hazard of now says little about that time.
    h.rests = true;
    h.resumes = now_ + rest;
    if (h.heap != kNil) heap_remove(p, hi);
    events_.push(h.resumes, key(kResume, hi), 0);
    return;
  } else if (bin >= 0) {
    passed = static_cast<Wide>(hazards_[bin]) * static_cast<int64_t>(p.scale_q16) * rest >> 16;
  }
  h.due = p.hazard + passed + h.patience * full_ / h.head;
  heap_set(p, hi);
}

/// The controller will know of marks: at its next cut in vendor order, else at once.
void SteppedFabric::announce(uint32_t qi, int64_t first, uint32_t notices) {
  QueuePair& q = qps_[qi];
  const DcqcnParams& d = config_.dcqcn;
  if (d.order != DcqcnOrder::vendor) {
    events_.push(first, key(kNotify, qi), notices);
    return;
  }
  const int64_t cut = next_cut(q, first);
  if (cut == q.cut_wake) return;
  q.cut_wake = cut;
  events_.push(cut, key(kCut, qi), 0);
}

/// The first tick of the cut timer after a notification at `at`.
int64_t SteppedFabric::next_cut(const QueuePair& q, int64_t at) const {
  const DcqcnParams& d = config_.dcqcn;
  const int64_t first = q.first_notify + d.cut_timer_ps + d.cut_offset_ps;
  return at < first ? first : first + ((at - first) / d.cut_timer_ps + 1) * d.cut_timer_ps;
}

/// Marks count again.
void SteppedFabric::on_resume(uint32_t hi) {
  Hop& h = hops_[hi];
  Port& p = ports_[h.port];
  if (!h.rests || h.resumes != now_) return;
  h.rests = false;
  if (h.head == 0) return;
  settle(p);
  if (bin_of(p, p.queue + offset(p)) == kBins) {
    mark(h.port, hi, true);
  } else {
    h.due = p.hazard + h.patience * full_ / h.head;
    heap_set(p, hi);
  }
  reschedule(h.port);
}

/// When what leaves the hop at `at` will be at the receiver.
int64_t SteppedFabric::at_receiver(uint32_t hi, int64_t at) const {
  const QueuePair& q = qps_[hops_[hi].qp];
  for (uint32_t i = hi;;) {
    const Port& p = ports_[hops_[i].port];
    at += p.full_ps + p.delay_ps;
    if (++i == q.forward + q.hops) return at;
    at += wait_ps(ports_[hops_[i].port], at);
  }
}

/// When the answer to what is at the receiver at `at` will be back.
int64_t SteppedFabric::back_at_sender(const QueuePair& q, int64_t at, bool control) const {
  for (uint32_t i = 0; i < q.reverse_hops; ++i) {
    const Port& p = ports_[reverse_[q.reverse + i].port];
    if (i > 0 && !control && config_.ack_in_data_class) at += wait_ps(p, at);
    at += p.ack_ps + p.delay_ps;
  }
  return at;
}

// ---------------------------------------------------------------- pauses

/// What packets would have held up at other ports waits here instead: others that share its way are
/// too fast by as much, and the longer queue marks more. Right for a few, wrong for many.
bool SteppedFabric::tolerates(Port& port, int64_t over_ps) {
  const int64_t held = port.held + std::max(port.holds, over_ps);
  if (static_cast<Wide>(held) * 1'000'000 > static_cast<Wide>(now_ - began_) * tolerated_ppm_) {
    return false;
  }
  if (port.rearm < 0) ++pauses_not_followed_;
  port.holds = std::max(port.holds, over_ps);
  return true;
}

/// Would packets have met a pause, or a full buffer, in the switch of this port?
void SteppedFabric::look_for_pause(uint32_t pi) {
  Port& port = ports_[pi];
  const Node& n = nodes_[port.owner];
  constexpr int64_t kUnit = 8 * kPsPerSecond;
  const auto bytes = [](int64_t queue) {
    return static_cast<int64_t>((static_cast<Wide>(queue) << kQueueShift) / kUnit);
  };
  // What waits, by ingress: every flow of a queue has its share of it.
  std::vector<std::pair<uint32_t, int64_t>> used;
  for (const uint32_t out : n.ports) {
    Port& p = ports_[out];
    settle(p);
    if (p.queue == 0) continue;
    Wide rates = 0;
    for (const uint32_t h : p.members) rates += hops_[h].in + hops_[h].head;
    if (rates == 0) continue;
    for (const uint32_t h : p.members) {
      const uint32_t in = hops_[h - 1].port;
      const auto share = static_cast<int64_t>(
          bytes(p.queue) * static_cast<Wide>(hops_[h].in + hops_[h].head) / rates);
      auto it =
          std::find_if(used.begin(), used.end(), [in](const auto& u) { return u.first == in; });
      if (it == used.end()) it = used.insert(used.end(), {in, 0});
      it->second += share;
    }
  }
  int64_t shared = 0;
  for (const auto& u : used) shared += std::max<int64_t>(0, u.second - config_.reserve);
  int64_t margin = INT64_MAX;
  for (const auto& u : used) {
    const int64_t threshold = config_.pfc == PfcMode::static_threshold
                                  ? n.xoff
                                  : (n.pool - shared) * ports_[u.first].alpha_q16 >> 16;
    margin = std::min(margin, threshold - std::max<int64_t>(0, u.second - config_.reserve));
  }
  if (margin <= 0 && config_.pfc != PfcMode::off &&
      tolerates(port, transmission_time(Bytes(1 - margin), Rate::bps(port.carries)).ps())) {
    // It would be over an eighth below where it begins.
    if (port.rearm < 0) port.rearm = port.queue - port.queue / 8;
    margin = 1 - margin;
  } else if (margin <= 0) {
    decline((config_.pfc == PfcMode::off ? "packets would be dropped in "
                                         : "PFC would pause ports of ") +
            topology_.nodes()[n.global].name + " at " + print_time(Time::ps(now_)));
    port.watch = kNever;
    return;
  }
  // Look again when a quarter of the margin is gone; looks are not free.
  const int64_t more =
      std::max<int64_t>(16 * 1024, std::min<int64_t>(margin / 4, int64_t{1} << 40));
  port.watch = port.queue + static_cast<int64_t>(static_cast<Wide>(more) * kUnit >> kQueueShift);
}

// ---------------------------------------------------------------- heap of hops by due

void SteppedFabric::sift_up(Port& p, uint32_t at) {
  const uint32_t hop = p.heap[at];
  const auto before = [&](uint32_t a, uint32_t b) {
    return hops_[a].due != hops_[b].due ? hops_[a].due < hops_[b].due : a < b;
  };
  while (at > 0) {
    const uint32_t parent = (at - 1) / 4;
    if (!before(hop, p.heap[parent])) break;
    p.heap[at] = p.heap[parent];
    hops_[p.heap[at]].heap = at;
    at = parent;
  }
  p.heap[at] = hop;
  hops_[hop].heap = at;
}

void SteppedFabric::sift_down(Port& p, uint32_t at) {
  const uint32_t hop = p.heap[at];
  const auto n = static_cast<uint32_t>(p.heap.size());
  const auto before = [&](uint32_t a, uint32_t b) {
    return hops_[a].due != hops_[b].due ? hops_[a].due < hops_[b].due : a < b;
  };
  while (4 * at + 1 < n) {
    uint32_t best = 4 * at + 1;
    for (uint32_t c = best + 1; c < std::min(n, 4 * at + 5); ++c) {
      if (before(p.heap[c], p.heap[best])) best = c;
    }
    if (!before(p.heap[best], hop)) break;
    p.heap[at] = p.heap[best];
    hops_[p.heap[at]].heap = at;
    at = best;
  }
  p.heap[at] = hop;
  hops_[hop].heap = at;
}

void SteppedFabric::heap_set(Port& p, uint32_t hop) {
  if (hops_[hop].heap == kNil) {
    p.heap.push_back(hop);
    hops_[hop].heap = static_cast<uint32_t>(p.heap.size() - 1);
    sift_up(p, hops_[hop].heap);
    return;
  }
  sift_up(p, hops_[hop].heap);
  sift_down(p, hops_[hop].heap);
}

void SteppedFabric::heap_remove(Port& p, uint32_t hop) {
  const uint32_t at = hops_[hop].heap;
  hops_[hop].heap = kNil;
  const uint32_t last = p.heap.back();
  p.heap.pop_back();
  if (last == hop) return;
  p.heap[at] = last;
  hops_[last].heap = at;
  sift_up(p, at);
  sift_down(p, hops_[last].heap);
}

}  // namespace trainyard
