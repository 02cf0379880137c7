// SPDX-License-Identifier: MIT
#include "network/packet/domain.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/dice.h"

namespace trainyard {
namespace {

enum DicePurpose : uint32_t { kDiceMark = 1, kDiceLoss = 2 };
// What a fingerprint term is about.
enum Trace : uint32_t { kTraceDelivered = 1, kTraceAcked, kTraceRate, kTracePause, kTraceDrop };

}  // namespace

PacketDomain::PacketDomain(const Topology& topology, const PacketConfig& config)
    : topology_(topology), config_(config), routing_(topology, config.routing) {}

void PacketDomain::mix(uint32_t what, uint64_t a, uint64_t b) {
  // A sum, so that the value does not depend on the order in which independent parts were run.
  fingerprint_ += dice(static_cast<uint64_t>(now_), what, a, b);
}

// ---------------------------------------------------------------- set-up

uint32_t PacketDomain::visit_node(uint32_t global_node) {
  const auto [it, added] = node_index_.emplace(global_node, static_cast<uint32_t>(nodes_.size()));
  if (!added) return it->second;
  Node n;
  n.global = global_node;
  const auto& node = topology_.nodes()[global_node];
  n.host = node.kind == NodeKind::host;
  nodes_.push_back(n);
  return it->second;
}

namespace {

int64_t headroom_bytes(const PacketConfig& c, const TopologyLink& link) {
  const auto bits_ps = [&](int64_t ps) { return bytes_in(link.rate, Time::ps(ps)).count(); };
  switch (c.headroom_rule) {
    case HeadroomRule::fixed:
      return c.headroom_fixed;
    case HeadroomRule::rate_delay:
      return static_cast<int64_t>(
          std::floor(static_cast<double>(bits_ps(link.delay.ps())) * c.headroom_factor));
    case HeadroomRule::automatic:
      return bits_ps(2 * link.delay.ps() + c.headroom_response_ps) + 2 * (c.payload + c.header) +
             c.pfc_frame;
  }
  return 0;
}

}  // namespace

uint32_t PacketDomain::visit(uint32_t global_port) {
  const uint32_t even = global_port & ~1U;
  const auto [it, added] = port_index_.emplace(even, static_cast<uint32_t>(ports_.size()));
  if (!added) return it->second + (global_port & 1U);
  const uint32_t local = it->second;
  TRAINYARD_ASSERT(local < (1U << kKindShift));
  const TopologyLink& link = topology_.link_of(even);
  const bool scale_up = topology_.nodes()[link.a].kind == NodeKind::scale_up ||
                        topology_.nodes()[link.b].kind == NodeKind::scale_up;
  for (uint32_t dir = 0; dir < 2; ++dir) {
    Port p;
    p.global = even + dir;
    p.rate_bps = link.rate.bps();
    p.delay_ps = link.delay.ps();
    p.owner = visit_node(topology_.from(p.global));
    p.peer = visit_node(topology_.to(p.global));
    p.from_host = nodes_[p.owner].host;
    p.marks = config_.ecn != EcnMark::off && !p.from_host && !scale_up;
    const double per_25g = static_cast<double>(p.rate_bps) / 25e9;
    p.kmin = config_.kmin >= 0 ? config_.kmin : std::llround(100'000 * per_25g);
    p.kmax = config_.kmax >= 0 ? config_.kmax : std::llround(400'000 * per_25g);
    if (p.marks && p.kmin > p.kmax) {
      throw UserError("ECN at " + print_rate(link.rate) + ": kmin " + print_bytes(Bytes(p.kmin)) +
                          " is above kmax " + print_bytes(Bytes(p.kmax)),
                      "set fabric.switch.ecn.kmin and kmax together");
    }
    p.headroom =
        config_.pfc == PfcMode::off ? 0 : static_cast<int32_t>(headroom_bytes(config_, link));
    p.alpha_q16 = static_cast<int32_t>(config_.alpha_q16);
    if (config_.alpha_by_port_rate && topology_.nic_rate().bps() > 0) {
      for (int64_t r = p.rate_bps; r > topology_.nic_rate().bps() && 2 * p.alpha_q16 <= 65536;
           r /= 2) {
        p.alpha_q16 *= 2;
      }
    }
    p.loss_q32 = static_cast<uint64_t>(std::ldexp(link.loss_rate, 32));
    p.lossy = p.loss_q32 != 0;
    if (p.from_host) {
      p.sender = static_cast<uint32_t>(senders_.size());
      senders_.emplace_back();
    }
    ports_.push_back(p);
  }
  // Pools count every port of the switch, used or not.
  for (uint32_t dir = 0; dir < 2; ++dir) {
    Node& n = nodes_[ports_[local + dir].owner];
    if (n.host || n.pool != 0) continue;
    const auto& node = topology_.nodes()[n.global];
    int64_t reserved = 0;
    for (const uint32_t gp : node.ports) {
      if (config_.pfc != PfcMode::off) reserved += headroom_bytes(config_, topology_.link_of(gp));
      reserved += config_.reserve;
    }
    n.pool = config_.buffer - reserved;
    if (n.pool <= 0) {
      throw UserError("switch " + node.name + ": buffer " + print_bytes(Bytes(config_.buffer)) +
                          " is not larger than the reserves and headrooms of its " +
                          std::to_string(node.ports.size()) + " ports, " +
                          print_bytes(Bytes(reserved)),
                      "raise fabric.switch.buffer or lower fabric.switch.pfc.headroom");
    }
    n.xoff = config_.xoff > 0 ? config_.xoff : n.pool / static_cast<int64_t>(node.ports.size());
  }
  return local + (global_port & 1U);
}

uint32_t PacketDomain::add_path(const FlowTuple& tuple, uint32_t& hops) {
  scratch_path_.clear();
  routing_.path(tuple, scratch_path_);
  const auto first = static_cast<uint32_t>(paths_.size());
  for (const uint32_t gp : scratch_path_) paths_.push_back(visit(gp));
  paths_.push_back(kNil);
  hops = static_cast<uint32_t>(scratch_path_.size());
  return first;
}

int64_t PacketDomain::pair_bdp(uint32_t qp) const {
  const QueuePair& q = qps_[qp];
  int64_t rtt = 0;
  int64_t rate = INT64_MAX;
  for (uint32_t i = 0; i < q.hops; ++i) {
    const Port& p = ports_[paths_[q.forward + i]];
    rtt += 2 * p.delay_ps + transmission_time(Bytes(config_.payload), Rate::bps(p.rate_bps),
                                              Time::ps(config_.resolution_ps))
                                .ps();
    rate = std::min(rate, p.rate_bps);
  }
  return bytes_in(Rate::bps(rate), Time::ps(rtt)).count();
}

int64_t PacketDomain::longest_bdp() {
  if (longest_bdp_ >= 0) return longest_bdp_;
  // One path per pair is enough: equal-hop paths of the supported fabrics have equal delays.
  const auto& hosts = topology_.hosts();
  std::vector<uint32_t> path;
  for (const uint32_t a : hosts) {
    for (const uint32_t b : hosts) {
      if (a == b) continue;
      path.clear();
      routing_.path({a, b, kSourcePortBase, kDestinationPort}, path);
      int64_t rtt = 0;
      int64_t rate = INT64_MAX;
      for (const uint32_t gp : path) {
        const TopologyLink& l = topology_.link_of(gp);
        rtt +=
            2 * l.delay.ps() +
            transmission_time(Bytes(config_.payload), l.rate, Time::ps(config_.resolution_ps)).ps();
        rate = std::min(rate, l.rate.bps());
      }
      longest_bdp_ = std::max(longest_bdp_, bytes_in(Rate::bps(rate), Time::ps(rtt)).count());
    }
  }
  return longest_bdp_;
}

uint32_t PacketDomain::open_qp(const Transfer& t) {
  if (config_.persistent_qps) {
    const auto it = qp_index_.find({t.src, t.dst, t.channel});
    if (it != qp_index_.end()) return it->second;
  }
  const auto index = static_cast<uint32_t>(qps_.size());
  TRAINYARD_ASSERT(index < (1U << kKindShift));
  qps_.emplace_back();
  const uint32_t src_node = topology_.hosts()[t.src];
  const uint32_t dst_node = topology_.hosts()[t.dst];
  // As the n-th flow of the pair it has the n-th source port.
  const uint32_t nth = pair_count_[(static_cast<uint64_t>(t.src) << 32) | t.dst]++;
  const auto src_port = static_cast<uint16_t>(kSourcePortBase + nth);
  QueuePair q;
  q.src = t.src;
  q.dst = t.dst;
  q.channel = t.channel;
  q.forward = add_path({src_node, dst_node, src_port, kDestinationPort}, q.hops);
  q.reverse = add_path({dst_node, src_node, kDestinationPort, src_port}, q.reverse_hops);
  q.port = paths_[q.forward];
  const Port& nic = ports_[q.port];
  q.cc.init(config_.dcqcn, nic.rate_bps);
  q.dice_object = dice(t.channel, nth, t.src, t.dst);
  bool scale_up = false;
  for (uint32_t i = 0; i < q.hops; ++i) {
    const uint32_t peer = nodes_[ports_[paths_[q.forward + i]].peer].global;
    scale_up = scale_up || topology_.nodes()[peer].kind == NodeKind::scale_up;
  }
  q.controlled = config_.congestion == CongestionControl::dcqcn && !scale_up;
  qps_[index] = q;
  if (!scale_up) {
    switch (config_.window) {
      case WindowRule::none:
        break;
      case WindowRule::fixed:
        qps_[index].window = config_.window_bytes;
        break;
      case WindowRule::bdp_pair:
        qps_[index].window = std::max<int64_t>(1, pair_bdp(index));
        break;
      case WindowRule::bdp_longest:
        qps_[index].window = std::max<int64_t>(1, longest_bdp());
        break;
    }
  }
  if (config_.persistent_qps) qp_index_[{t.src, t.dst, t.channel}] = index;
  return index;
}

TransferId PacketDomain::start(const Transfer& t, Time at) {
  TRAINYARD_ASSERT(at.ps() >= now_ && t.size.count() > 0 && t.src != t.dst);
  TRAINYARD_ASSERT(t.src < topology_.hosts().size() && t.dst < topology_.hosts().size());
  const auto id = static_cast<TransferId>(records_.size());
  TRAINYARD_ASSERT(id < (1U << kKindShift));
  TransferRecord r;
  r.src = t.src;
  r.dst = t.dst;
  r.owner = t.owner;
  r.bytes = t.size.count();
  r.start = at;
  records_.push_back(r);
  TransferState s;
  s.channel = t.channel;
  states_.push_back(s);
  ++outstanding_;
  events_.push(at.ps(), key(kStart, id), 0);
  return id;
}

void PacketDomain::on_start(TransferId id) {
  TransferRecord& r = records_[id];
  TransferState& s = states_[id];
  Transfer t;
  t.src = r.src;
  t.dst = r.dst;
  t.channel = s.channel;
  const uint32_t qi = open_qp(t);
  QueuePair& q = qps_[qi];
  r.hops = q.hops;
  s.qp = qi;
  const bool idle = q.una == q.posted;
  q.posted += r.bytes;
  s.end = q.posted;
  if (q.last_transfer != kNil && states_[q.last_transfer].end > q.una) {
    states_[q.last_transfer].next = id;
  }
  if (q.send_transfer == kNil) q.send_transfer = id;
  if (q.ack_transfer == kNil) q.ack_transfer = id;
  if (q.receive_transfer == kNil) q.receive_transfer = id;
  q.last_transfer = id;
  if (idle) {
    q.next_send = std::max(q.next_send, now_);
    q.rto_deadline = now_ + config_.rto_ps;
    q.retries = 0;
    if (q.increase_running && q.increase_next <= now_) {
      // Timer periods that passed while nobody looked.
      const int64_t n = (now_ - q.increase_next) / config_.dcqcn.increase_timer_ps + 1;
      q.cc.age_increase(config_.dcqcn, n);
      arm_increase(qi, q.increase_next + n * config_.dcqcn.increase_timer_ps);
    }
  }
  activate(qi);
  kick(q.port);
}

// ---------------------------------------------------------------- events

Time PacketDomain::next_event() {
  return events_.empty() ? Time::infinity() : Time::ps(events_.next_time());
}

Time PacketDomain::advance(Time limit, std::vector<Completion>& out) {
  completions_ = &out;
  const size_t before = out.size();
  while (!events_.empty() && events_.next_time() <= limit.ps()) {
    now_ = events_.next_time();
    run_instant();
    if (out.size() != before) break;
  }
  std::stable_sort(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(),
                   [](const Completion& a, const Completion& b) {
                     return a.id != b.id ? a.id < b.id : a.what < b.what;
                   });
  completions_ = nullptr;
  if (out.size() == before && limit != Time::infinity()) now_ = std::max(now_, limit.ps());
  return Time::ps(now_);
}

void PacketDomain::run_instant() {
  while (!events_.empty() && events_.next_time() == now_) {
    const Event e = events_.pop();
    ++totals_.events;
    if (events_.turn() != turn_) prefetch();
    const uint32_t index = e.key & ((1U << kKindShift) - 1);
    switch (static_cast<Kind>(e.key >> kKindShift)) {
      case kStart:
        on_start(index);
        break;
      case kCut:
        on_cut(index);
        break;
      case kIncrease:
        on_increase(index, e.arg);
        break;
      case kArrive:
        on_arrive(index);
        break;
      case kTransmit:
        if (ports_[index].wake == now_) {
          ports_[index].wake = kNever;
          transmit(index);
        }
        break;
      case kTimeout:
        on_timeout(index);
        break;
    }
  }
}

/// A bucket of events was taken out of the queue: fetches the ports of those that come after it
/// and the packets of its own.
void PacketDomain::prefetch() {
  turn_ = events_.turn();
  for (const Event& e : events_.staged()) {
    if (e.key >> kKindShift != kArrive && e.key >> kKindShift != kTransmit) continue;
    const Port* p = &ports_[e.key & ((1U << kKindShift) - 1)];
    __builtin_prefetch(p);
    __builtin_prefetch(reinterpret_cast<const char*>(p) + 64);
  }
  for (const Event* e = events_.current_begin(); e != events_.current_end(); ++e) {
    const uint32_t kind = e->key >> kKindShift;
    const uint32_t index = e->key & ((1U << kKindShift) - 1);
    if (kind == kArrive) {
      const uint32_t k = ports_[index].wire.head;
      if (k != kNil) __builtin_prefetch(&packets_[k]);
    } else if (kind == kTransmit) {
      const uint32_t k = ports_[index].data.head;
      if (k != kNil) __builtin_prefetch(&packets_[k]);
    }
  }
}

void PacketDomain::on_arrive(uint32_t pi) {
  Port& p = ports_[pi];
  const uint32_t k = take(p.wire);
  Packet& packet = packets_[k];
  if (p.wire.head != kNil) {
    events_.push(packet.next_arrival, key(kArrive, pi), 0);
    __builtin_prefetch(&packets_[p.wire.head], 1, 2);
  }
  if (packet.type >= kPause) {
    // It stops or restarts the port that sends towards where it came from.
    Port& out = ports_[pi ^ 1];
    const bool pause = packet.type == kPause;
    ended_transmissions_ += 1;
    ended_bytes_ += packet.wire;
    free_packet(k);
    mix(kTracePause, pi, pause ? 1 : 0);
    if (pause) {
      ++out.pauses;
      if (!out.paused) out.paused_since = now_;
    } else if (out.paused) {
      out.paused_total += now_ - out.paused_since;
    }
    out.paused = pause;
    if (telemetry_ != nullptr) telemetry_->paused(pi ^ 1, now_, pause);
    if (!pause) kick(pi ^ 1);
    return;
  }
  if (p.lossy && dice_below(dice(config_.seed, kDiceLoss, p.global, p.loss_draws++), p.loss_q32)) {
    ++p.drops;
    drop(pi, k);
    return;
  }
  const uint32_t next = paths_[packet.path + 1];
  if (next != kNil) {
    const bool control = packet.type == kCnp || ((packet.type == kAck || packet.type == kNack) &&
                                                 !config_.ack_in_data_class);
    if (!control && !admit(pi, k)) {
      ++p.drops;
      drop(pi, k);
      return;
    }
    ++packet.path;
    enqueue(next, k, control);
    kick(next);
    return;
  }
  if (packet.type == kData)
    receive_data(k, pi);
  else
    receive_ack(k);
}

// ---------------------------------------------------------------- transmission

int64_t PacketDomain::transmission_ps(Port& p, int64_t bytes) const {
  if (bytes == p.size_a) return p.time_a;
  if (bytes == p.size_b) return p.time_b;
  p.size_b = p.size_a;
  p.time_b = p.time_a;
  p.size_a = static_cast<int32_t>(bytes);
  p.time_a =
      transmission_time(Bytes(bytes), Rate::bps(p.rate_bps), Time::ps(config_.resolution_ps)).ps();
  return p.time_a;
}

void PacketDomain::schedule_transmit(uint32_t pi, int64_t time) {
  Port& p = ports_[pi];
  if (p.wake <= time) return;  // an earlier look finds this too
  p.wake = time;
  events_.push(time, key(kTransmit, pi), 0);
}

void PacketDomain::kick(uint32_t pi) {
  Port& p = ports_[pi];
  if (p.wake <= now_) return;  // chooses at the end of this instant
  if (p.busy_until > now_)
    schedule_transmit(pi, p.busy_until);
  else
    transmit(pi);
}

void PacketDomain::enqueue(uint32_t pi, uint32_t k, bool control) {
  Port& p = ports_[pi];
  if (control) {
    append(p.control, k);
    return;
  }
  append(p.data, k);
  p.data_bytes += packets_[k].wire;
  p.peak = std::max(p.peak, p.data_bytes);
  if (telemetry_ != nullptr) telemetry_->queued(pi, now_, p.data_bytes);
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
  if (telemetry_ != nullptr) telemetry_->sent(pi, now_, duration, packet.wire, port.data_bytes);
  if (packet.type == kData) port.payload += packet.wire - config_.header;
  const int64_t arrival = port.busy_until + port.delay_ps;
  if (port.wire.head == kNil)
    events_.push(arrival, key(kArrive, pi), 0);
  else
    packets_[port.wire.tail].next_arrival = arrival;
  append(port.wire, k);
  const bool more = port.control.head != kNil ||
                    (port.data.head != kNil && (!port.paused || port.from_host)) || port.sending;
  if (more) schedule_transmit(pi, port.busy_until);
}

uint32_t PacketDomain::take_from_switch(uint32_t pi) {
  Port& p = ports_[pi];
  if (p.paused || p.data.head == kNil) return kNil;
  const uint32_t k = take(p.data);
  if (p.data.head != kNil) __builtin_prefetch(&packets_[p.data.head], 1, 2);
  Packet& packet = packets_[k];
  p.data_bytes -= packet.wire;
  if (config_.ecn == EcnMark::dequeue) mark_by_queue(p, k, p.data_bytes);
  release(paths_[packet.path - 1], packet.wire);
  return k;
}

void PacketDomain::mark_by_queue(Port& out, uint32_t k, int64_t queued) {
  Packet& packet = packets_[k];
  if (queued <= out.kmin || !out.marks || packet.type != kData) return;
  if (queued <= out.kmax) {
    const auto probability_q32 =
        static_cast<uint64_t>((static_cast<unsigned __int128>(config_.pmax_q32) *
                               static_cast<uint64_t>(queued - out.kmin)) /
                              static_cast<uint64_t>(out.kmax - out.kmin));
    const QueuePair& q = qps_[packet.qp];
    // One draw per packet and hop; no path is longer than 64 links.
    const uint64_t counter = static_cast<uint64_t>(packet.seq) * 64 + (packet.path - q.forward);
    if (!dice_below(dice(config_.seed, kDiceMark, q.dice_object, counter), probability_q32)) return;
  }
  packet.flags |= kMarked;
  ++out.marked;
  ++totals_.ecn_marks;
}

uint32_t PacketDomain::take_from_nic(uint32_t pi) {
  Port& p = ports_[pi];
  if (p.data.head != kNil && !(p.paused && config_.ack_pausable)) {
    const uint32_t k = take(p.data);
    p.data_bytes -= packets_[k].wire;
    return k;
  }
  if (p.paused || !p.sending) return kNil;
  // Round robin: first eligible queue pair after the one served last.
  Sender& sender = senders_[p.sender];
  auto& active = sender.active;
  size_t at = 0;
  if (sender.last_served != kNil) {
    at = static_cast<size_t>(std::upper_bound(active.begin(), active.end(), sender.last_served) -
                             active.begin());
  }
  int64_t soonest = kNever;
  for (size_t i = 0; i < active.size(); ++i, ++at) {
    if (at >= active.size()) at = 0;
    const uint32_t qi = active[at];
    QueuePair& q = qps_[qi];
    if (q.window != 0) {
      int64_t w = q.window;
      if (config_.window_scales && q.cc.rate() < q.cc.line()) {
        w = std::max<int64_t>(
            1, static_cast<int64_t>(static_cast<__int128>(w) * q.cc.rate() / q.cc.line()));
      }
      if (q.next - q.una >= w) continue;  // an ACK will kick
    }
    if (q.next_send > now_) {
      soonest = std::min(soonest, q.next_send);
      continue;
    }
    // Build the packet.
    const TransferState& t = states_[q.send_transfer];
    const int64_t payload = std::min(config_.payload, t.end - q.next);
    const uint32_t k = new_packet();
    Packet& packet = packets_[k];
    packet.seq = q.next;
    packet.qp = qi;
    packet.path = q.forward;
    packet.wire = static_cast<uint16_t>(payload + config_.header);
    packet.type = kData;
    packet.flags = 0;
    if (q.next < q.high_water) {
      ++records_[q.send_transfer].retransmitted;
      ++totals_.retransmitted;
    }
    q.next += payload;
    q.high_water = std::max(q.high_water, q.next);
    if (q.pace_rate != q.cc.rate() || q.pace_bytes != packet.wire) {
      q.pace_rate = q.cc.rate();
      q.pace_bytes = packet.wire;
      q.pace_time = transmission_time(Bytes(packet.wire), Rate::bps(q.pace_rate),
                                      Time::ps(config_.resolution_ps))
                        .ps();
    }
    q.next_send = now_ + q.pace_time;
    if (q.next == t.end) {
      q.send_transfer = t.next;
      if (q.next == q.posted) {
        q.is_active = false;
        active.erase(active.begin() + static_cast<std::ptrdiff_t>(at));
        p.sending = !active.empty();
      }
    }
    sender.last_served = qi;
    ++totals_.data_packets;
    if (!q.rto_pending) {
      q.rto_pending = true;
      q.rto_deadline = now_ + config_.rto_ps;
      events_.push(q.rto_deadline, key(kTimeout, qi), 0);
    }
    if (q.controlled && q.cc.sent(config_.dcqcn, packet.wire)) rate_changed(qi, false);
    return k;
  }
  if (soonest != kNever) schedule_transmit(pi, soonest);
  return kNil;
}

// ---------------------------------------------------------------- switch

int64_t PacketDomain::threshold(const Port& in, const Node& n) const {
  if (config_.pfc == PfcMode::static_threshold) return n.xoff;
  return ((n.pool - n.shared_used) * in.alpha_q16) >> 16;  // 31 bits by 27 bits
}

bool PacketDomain::admit(uint32_t in_index, uint32_t k) {
  Port& in = ports_[in_index];
  Node& n = nodes_[in.peer];
  Packet& packet = packets_[k];
  const int32_t size = packet.wire;
  const auto reserve = static_cast<int32_t>(config_.reserve);
  const int32_t shared = std::max(0, in.used - reserve);
  const int64_t limit = threshold(in, n);
  if (config_.pfc == PfcMode::off) {
    if (shared + size > limit) return false;
  } else if (size + in.headroom_used > in.headroom && size + shared > limit) {
    throw SimulationError("packet dropped in the lossless class at " + print_time(Time::ps(now_)) +
                          " in " + topology_.nodes()[n.global].name + ", ingress from " +
                          port_name(in_index) + ": headroom " + print_bytes(Bytes(in.headroom)) +
                          " is full (" + print_bytes(Bytes(in.headroom_used)) +
                          ") and the threshold of " + print_bytes(Bytes(limit)) +
                          " is exceeded; raise fabric.switch.pfc.headroom or fabric.switch.buffer");
  }
  const int32_t after = in.used + size;
  if (after <= reserve) {
    in.used = after;
  } else if (config_.pfc != PfcMode::off && after - reserve > limit) {
    in.headroom_used += size;
  } else {
    in.used = after;
    n.shared_used += std::min(size, after - reserve);
  }
  if (config_.pfc != PfcMode::off && !in.pause_sent &&
      (in.headroom_used > 0 || std::max(0, in.used - reserve) >= threshold(in, n))) {
    in.pause_sent = true;
    ++totals_.pfc_pauses;
    send_pfc(in_index, kPause);
  }
  if (config_.ecn == EcnMark::enqueue) {
    Port& out = ports_[paths_[packet.path + 1]];
    mark_by_queue(out, k, out.data_bytes + size);
  }
  return true;
}

void PacketDomain::release(uint32_t in_index, int32_t size) {
  Port& in = ports_[in_index];
  Node& n = nodes_[in.peer];
  const auto reserve = static_cast<int32_t>(config_.reserve);
  const int32_t from_headroom = std::min(in.headroom_used, size);
  const int32_t from_shared = std::min(size - from_headroom, std::max(0, in.used - reserve));
  in.headroom_used -= from_headroom;
  in.used -= size - from_headroom;
  n.shared_used -= from_shared;
  if (!in.pause_sent || in.headroom_used > 0) return;
  const int64_t shared = std::max(0, in.used - reserve);
  if (shared == 0 || shared + config_.resume_offset <= threshold(in, n)) {
    in.pause_sent = false;
    ++totals_.pfc_resumes;
    send_pfc(in_index, kResume);
  }
}

void PacketDomain::send_pfc(uint32_t in_index, Type type) {
  const uint32_t k = new_packet();
  Packet& packet = packets_[k];
  packet.seq = 0;
  packet.qp = kNil;
  packet.path = kNil;
  packet.wire = static_cast<uint16_t>(config_.pfc_frame);
  packet.type = type;
  packet.flags = 0;
  ++totals_.pfc_frames;
  enqueue(in_index ^ 1, k, true);
  kick(in_index ^ 1);
}

void PacketDomain::drop(uint32_t pi, uint32_t k) {
  const Packet& packet = packets_[k];
  const QueuePair& q = qps_[packet.qp];
  const uint32_t first = packet.type == kData ? q.forward : q.reverse;
  ++totals_.drops;
  const uint32_t hops = packet.path - first + 1;
  ended_transmissions_ += hops;
  ended_bytes_ += static_cast<int64_t>(hops) * packet.wire;
  if (q.ack_transfer != kNil)
    records_[q.ack_transfer].transmissions += hops;
  else
    records_[q.last_transfer].transmissions += hops;
  mix(kTraceDrop, pi, packet.qp);
  free_packet(k);
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
  return static_cast<uint32_t>(packets_.size() - 1);
}

void PacketDomain::send_control(QueuePair& q, uint32_t qi, Type type, int64_t seq, bool flag) {
  const uint32_t k = new_packet();
  Packet& packet = packets_[k];
  packet.seq = seq;
  packet.qp = qi;
  packet.path = q.reverse;
  packet.wire = static_cast<uint16_t>(type == kCnp ? config_.cnp_bytes : config_.ack_bytes);
  packet.type = type;
  packet.flags = flag ? kNotify : 0;
  if (type == kCnp)
    ++totals_.cnp_packets;
  else
    ++totals_.ack_packets;
  const uint32_t port = paths_[q.reverse];
  // A NIC serves its ACKs before its data; a CNP goes in the control class.
  enqueue(port, k, type == kCnp);
  kick(port);
}

void PacketDomain::receive_data(uint32_t k, uint32_t) {
  const Packet packet = packets_[k];
  free_packet(k);
  const uint32_t qi = packet.qp;
  QueuePair& q = qps_[qi];
  ended_transmissions_ += q.hops;
  ended_bytes_ += static_cast<int64_t>(q.hops) * packet.wire;
  const int64_t payload = packet.wire - config_.header;
  const TransferId current = q.receive_transfer != kNil ? q.receive_transfer : q.last_transfer;
  records_[current].transmissions += q.hops;
  if ((packet.flags & kMarked) != 0 && q.controlled) {
    if (!config_.cnp_packets) {
      q.notify = true;
    } else if (now_ - q.last_cnp >= config_.cnp_interval_ps) {
      q.last_cnp = now_;
      send_control(q, qi, kCnp, 0, true);
    }
  }
  if (packet.seq == q.received) {
    q.received += payload;
    ++records_[current].packets;
    totals_.payload_bytes += payload;
    const bool done = q.received == states_[current].end;
    ++q.since_ack;
    if (done) {
      q.receive_transfer = states_[current].next;
      records_[current].delivered = Time::ps(now_);
      complete(current, Completion::What::delivered);
    }
    if (done || q.since_ack >= config_.ack_interval) {
      q.since_ack = 0;
      send_control(q, qi, kAck, q.received, q.notify);
      q.notify = false;
    }
  } else if (packet.seq > q.received) {
    if (q.last_nack_seq != q.received || now_ - q.last_nack >= config_.nack_interval_ps) {
      q.last_nack_seq = q.received;
      q.last_nack = now_;
      ++totals_.nacks;
      send_control(q, qi, kNack, q.received, q.notify);
      q.notify = false;
    }
  } else {
    // A repeat: the sender missed an ACK. Silence here is what hangs other simulators.
    send_control(q, qi, kAck, q.received, q.notify);
    q.notify = false;
  }
}

void PacketDomain::receive_ack(uint32_t k) {
  const Packet packet = packets_[k];
  free_packet(k);
  const uint32_t qi = packet.qp;
  {
    QueuePair& q = qps_[qi];
    ended_transmissions_ += q.reverse_hops;
    ended_bytes_ += static_cast<int64_t>(q.reverse_hops) * packet.wire;
    const TransferId current = q.ack_transfer != kNil ? q.ack_transfer : q.last_transfer;
    records_[current].transmissions += q.reverse_hops;
    if ((packet.flags & kNotify) != 0) {
      ++records_[current].cnps;
      notify(qi);
    }
    if (packet.type == kCnp) return;
    if (packet.seq > q.una) {
      q.una = packet.seq;
      if (q.next < q.una) {
        // An old ACK overtook a rewind: nothing below it needs repeating.
        q.next = q.una;
        while (q.send_transfer != kNil && states_[q.send_transfer].end <= q.next) {
          q.send_transfer = states_[q.send_transfer].next;
        }
        if (q.next == q.posted && q.is_active) {
          q.is_active = false;
          auto& active = senders_[ports_[q.port].sender].active;
          active.erase(std::lower_bound(active.begin(), active.end(), qi));
          ports_[q.port].sending = !active.empty();
        }
      }
      q.rto_deadline = now_ + config_.rto_ps;
      q.retries = 0;
      while (q.ack_transfer != kNil && states_[q.ack_transfer].end <= q.una) {
        const TransferId done = q.ack_transfer;
        q.ack_transfer = states_[done].next;
        records_[done].acknowledged = Time::ps(now_);
        --outstanding_;
        complete(done, Completion::What::acknowledged);
      }
    }
    if (packet.type == kNack && packet.seq >= q.una) rewind(qi);
  }
  const QueuePair& q = qps_[qi];
  if (q.is_active) kick(q.port);
}

void PacketDomain::rewind(uint32_t qi) {
  QueuePair& q = qps_[qi];
  if (q.next == q.una) return;
  q.next = q.una;
  q.send_transfer = q.ack_transfer;
  activate(qi);
}

void PacketDomain::activate(uint32_t qi) {
  QueuePair& q = qps_[qi];
  if (q.is_active || q.next == q.posted) return;
  q.is_active = true;
  auto& active = senders_[ports_[q.port].sender].active;
  active.insert(std::lower_bound(active.begin(), active.end(), qi), qi);
  ports_[q.port].sending = true;
}

void PacketDomain::complete(TransferId id, Completion::What what) {
  mix(what == Completion::What::delivered ? kTraceDelivered : kTraceAcked, id, 0);
  if (completions_ != nullptr) completions_->push_back({Time::ps(now_), id, what});
}

void PacketDomain::on_timeout(uint32_t qi) {
  QueuePair& q = qps_[qi];
  q.rto_pending = false;
  if (q.una == q.posted) return;
  if (now_ < q.rto_deadline || q.high_water <= q.una) {
    // Progress since, or nothing of it was ever sent.
    q.rto_pending = true;
    if (now_ >= q.rto_deadline) q.rto_deadline = now_ + config_.rto_ps;
    events_.push(q.rto_deadline, key(kTimeout, qi), 0);
    return;
  }
  ++totals_.timeouts;
  if (++q.retries > config_.retry_limit) {
    throw SimulationError("transfer of rank " + std::to_string(q.src) + " to rank " +
                          std::to_string(q.dst) + " failed at " + print_time(Time::ps(now_)) +
                          ": " + std::to_string(config_.retry_limit) +
                          " retransmission timeouts without progress; " + describe_stall());
  }
  rewind(qi);
  q.rto_deadline = now_ + config_.rto_ps;
  q.rto_pending = true;
  events_.push(q.rto_deadline, key(kTimeout, qi), 0);
  kick(q.port);
}

// ---------------------------------------------------------------- congestion control

void PacketDomain::notify(uint32_t qi) {
  QueuePair& q = qps_[qi];
  if (!q.controlled) return;
  if (config_.dcqcn.order == DcqcnOrder::vendor) {
    const int64_t at = q.cc.vendor_notify(config_.dcqcn, now_);
    if (at >= 0) events_.push(at, key(kCut, qi), 0);
    return;
  }
  q.cc.paper_notify(config_.dcqcn, now_);
  arm_increase(qi, now_ + config_.dcqcn.increase_timer_ps);
  rate_changed(qi, true);
}

void PacketDomain::on_cut(uint32_t qi) {
  QueuePair& q = qps_[qi];
  q.cc.vendor_cut(config_.dcqcn, now_);
  arm_increase(qi, now_ + config_.dcqcn.increase_timer_ps);
  rate_changed(qi, true);
}

void PacketDomain::arm_increase(uint32_t qi, int64_t at) {
  QueuePair& q = qps_[qi];
  ++q.increase_version;
  q.increase_running = true;
  q.increase_next = at;
  events_.push(at, key(kIncrease, qi), q.increase_version);
}

void PacketDomain::on_increase(uint32_t qi, uint32_t version) {
  QueuePair& q = qps_[qi];
  if (version != q.increase_version) return;
  // An idle queue pair ages without events; on_start() catches up.
  if (q.una == q.posted) return;
  const bool settled = q.cc.recovered();
  q.cc.increase_by_timer(config_.dcqcn);
  arm_increase(qi, now_ + config_.dcqcn.increase_timer_ps);
  if (!settled) rate_changed(qi, false);
}

void PacketDomain::rate_changed(uint32_t qi, bool cut) {
  const QueuePair& q = qps_[qi];
  ++totals_.rate_changes;
  mix(kTraceRate, qi, static_cast<uint64_t>(q.cc.rate()));
  if (rate_sink_ != nullptr) {
    rate_sink_->push_back({now_, qi, q.src, q.dst, cut, q.cc.rate(), q.cc.target()});
  }
}

// ---------------------------------------------------------------- results

std::string PacketDomain::port_name(uint32_t pi) const {
  return topology_.nodes()[topology_.from(ports_[pi].global)].name;
}

std::string PacketDomain::describe_stall() const {
  std::string out;
  int shown = 0;
  for (const QueuePair& q : qps_) {
    if (q.una == q.posted) continue;
    if (shown == 3) {
      out += ", ...";
      break;
    }
    out += (shown == 0 ? "" : ", ");
    out += "rank " + std::to_string(q.src) + " -> rank " + std::to_string(q.dst) + " has " +
           std::to_string(q.una) + " of " + std::to_string(q.posted) + " bytes acknowledged";
    if (ports_[q.port].paused) out += " (its NIC is paused)";
    ++shown;
  }
  size_t paused = 0;
  std::string first;
  for (uint32_t i = 0; i < ports_.size(); ++i) {
    if (!ports_[i].paused) continue;
    if (paused++ == 0) {
      first = topology_.nodes()[topology_.from(ports_[i].global)].name + " -> " +
              topology_.nodes()[topology_.to(ports_[i].global)].name;
    }
  }
  if (paused > 0) {
    out += "; " + std::to_string(paused) + " paused links, first " + first;
  }
  return out.empty() ? "nothing is outstanding" : out;
}

std::vector<LinkRecord> PacketDomain::links() const {
  std::vector<LinkRecord> out;
  out.reserve(ports_.size());
  for (const Port& p : ports_) {
    LinkRecord r;
    r.from_node = topology_.from(p.global);
    r.to_node = topology_.to(p.global);
    r.from = topology_.nodes()[r.from_node].name;
    r.to = topology_.nodes()[r.to_node].name;
    r.tier = topology_.tier(p.global);
    r.rate = Rate::bps(p.rate_bps);
    r.packets = p.packets;
    r.bytes = p.bytes;
    r.data_bytes = p.payload;
    r.ecn_marks = p.marked;
    r.pauses_received = p.pauses;
    r.paused = Time::ps(p.paused_total + (p.paused ? now_ - p.paused_since : 0));
    r.busy = Time::ps(p.busy);
    r.peak_queue_bytes = p.peak;
    r.drops = p.drops;
    out.push_back(std::move(r));
  }
  return out;
}

LinkSeries PacketDomain::take_link_series() {
  if (telemetry_ == nullptr) return {};
  const auto telemetry = std::move(telemetry_);
  return telemetry->finish(now_, ports_.size());
}

FabricTotals PacketDomain::totals() const {
  FabricTotals t = totals_;
  for (const Port& p : ports_) {
    t.transmissions += p.packets;
    t.wire_bytes += p.bytes;
  }
  return t;
}

void PacketDomain::check_conservation() const {
  // What the ports sent must be what ended its life plus what is still on its way.
  uint64_t transmissions = ended_transmissions_;
  int64_t bytes = ended_bytes_;
  uint64_t walked = 0;
  auto walk = [&](const List& list, bool on_wire) {
    for (uint32_t k = list.head; k != kNil; k = packets_[k].next) {
      const Packet& p = packets_[k];
      ++walked;
      uint32_t hops = 0;
      if (p.type >= kPause) {
        hops = on_wire ? 1 : 0;
      } else {
        const QueuePair& q = qps_[p.qp];
        hops = p.path - (p.type == kData ? q.forward : q.reverse) + (on_wire ? 1 : 0);
      }
      transmissions += hops;
      bytes += static_cast<int64_t>(hops) * p.wire;
    }
  };
  int64_t used = 0;
  int64_t paused = 0;
  for (const Port& p : ports_) {
    walk(p.control, false);
    walk(p.data, false);
    walk(p.wire, true);
    used += p.used + p.headroom_used;
    paused += p.pause_sent ? 1 : 0;
  }
  const FabricTotals t = totals();
  auto fail = [](const std::string& what, auto a, auto b) {
    throw SimulationError("conservation broken: " + what + ": " + std::to_string(a) + " against " +
                          std::to_string(b) + "; please report this scenario");
  };
  if (walked != live_packets_) fail("packets in queues and pool", walked, live_packets_);
  if (transmissions != t.transmissions) {
    fail("link transmissions of flows and of links", transmissions, t.transmissions);
  }
  if (bytes != t.wire_bytes) fail("link bytes of flows and of links", bytes, t.wire_bytes);
  if (t.pfc_pauses != t.pfc_resumes + static_cast<uint64_t>(paused)) {
    fail("pauses and resumes", t.pfc_pauses, t.pfc_resumes + static_cast<uint64_t>(paused));
  }
  if (live_packets_ == 0) {
    if (used != 0) fail("switch buffer use in an empty network", used, 0);
    for (const Node& n : nodes_) {
      if (n.shared_used != 0) fail("shared pool use in an empty network", n.shared_used, 0);
    }
  }
  int64_t acknowledged = 0;
  int64_t delivered = 0;
  for (const QueuePair& q : qps_) {
    acknowledged += q.una;
    delivered += q.received;
    if (q.una > q.received) fail("bytes acknowledged and received", q.una, q.received);
  }
  if (delivered != t.payload_bytes) fail("payload delivered", delivered, t.payload_bytes);
  if (outstanding_ == 0) {
    int64_t asked = 0;
    for (const TransferRecord& r : records_) asked += r.bytes;
    if (asked != acknowledged) fail("bytes asked for and acknowledged", asked, acknowledged);
  }
}

}  // namespace trainyard
