// SPDX-License-Identifier: MIT
// First use of ports and queue pairs, as in the packet engine; results.
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <numeric>

#include "memo/stepping/hazard.h"
#include "memo/stepping/stepped_fabric.h"
#include "network/engine.h"
#include "network/link_record.h"
#include "sim/dice.h"
#include "sim/errors.h"
#include "sim/registry.h"

namespace trainyard {
namespace {}  // namespace

std::optional<std::string> stepping_declines(const PacketConfig& c) {
  if (c.congestion != CongestionControl::dcqcn && c.congestion != CongestionControl::none) {
    return "its congestion control acts on every ACK; only dcqcn and none are stepped";
  }
  if (c.paths != PathChoice::per_flow) {
    return "a queue pair takes several paths (spraying or flowlets)";
  }
  if (c.recovery == LossRecovery::selective) {
    return "loss recovery is selective, with a window in packets";
  }
  if (c.receive_bps > 0) return "receivers are slower than their links (receive_rate)";
  if (c.classes > 1) return "there are several data classes";
  return std::nullopt;
}

SteppedFabric::SteppedFabric(const Topology& topology, const PacketConfig& config,
                             DomainRegistry* registry)
    : topology_(topology),
      config_(config),
      own_routing_(registry == nullptr ? std::make_unique<Routing>(topology, config.routing)
                                       : nullptr),
      routing_(registry == nullptr ? own_routing_.get() : &registry->routing()),
      registry_(registry),
      full_bytes_(config.payload + config.header),
      full_(static_cast<Wide>(full_bytes_) * 8 * kPsPerSecond) {
  if (const auto why = stepping_declines(config)) {
    throw UserError("the stepped engine cannot run this because " + *why,
                    "use 'simulation: {engine: packet}'");
  }
  for (int i = 0; i <= kBins; ++i) {
    // The middle of the bin; beyond the band every packet is marked.
    const uint64_t p =
        i == kBins ? uint64_t{1} << 32
                   : static_cast<uint64_t>(static_cast<unsigned __int128>(config_.pmax_q32) *
                                           static_cast<uint64_t>(2 * i + 1) / (2 * kBins));
    hazards_[i] = config_.dithered ? static_cast<int64_t>(p) : hazard_q32(p);
  }
}

int64_t SteppedFabric::send_ps(int64_t bytes, int64_t rate_bps) const {
  return transmission_time(Bytes(bytes), Rate::bps(rate_bps), Time::ps(config_.resolution_ps)).ps();
}

/// What a sender paced at `rate` sends: transmission times are rounded to the resolution.
int64_t SteppedFabric::paced(int64_t rate) const {
  if (config_.resolution_ps <= 1) return rate;
  const int64_t ps = send_ps(full_bytes_, rate);
  return ps > 0 ? static_cast<int64_t>(full_ / ps) : rate;
}

uint32_t SteppedFabric::visit_node(uint32_t global_node) {
  const auto [it, added] = node_index_.emplace(global_node, static_cast<uint32_t>(nodes_.size()));
  if (!added) return it->second;
  Node n;
  n.global = global_node;
  n.host = topology_.nodes()[global_node].kind == NodeKind::host;
  if (!n.host) {
    const SharedPool pool = shared_pool(config_, topology_, global_node);
    n.pool = pool.bytes;
    n.xoff = pool.xoff;
  }
  nodes_.push_back(std::move(n));
  return it->second;
}

uint32_t SteppedFabric::visit(uint32_t global_port) {
  const uint32_t even = global_port & ~1U;
  const auto [it, added] = port_index_.emplace(even, static_cast<uint32_t>(ports_.size()));
  if (!added) return it->second + (global_port & 1U);
  const uint32_t local = it->second;
  TRAINYARD_ASSERT(local < (1U << kKindShift) - 2);
  const TopologyLink& link = topology_.link_of(even);
  const bool scale_up = topology_.nodes()[link.a].kind == NodeKind::scale_up ||
                        topology_.nodes()[link.b].kind == NodeKind::scale_up;
  for (uint32_t dir = 0; dir < 2; ++dir) {
    Port p;
    p.global = even + dir;
    p.rate_bps = p.carries = link.rate.bps();
    p.delay_ps = link.delay.ps();
    p.full_ps = send_ps(full_bytes_, p.rate_bps);
    p.ack_ps = send_ps(config_.ack_bytes, p.rate_bps);
    // By time on the link: both sizes may be rounded to the resolution.
    p.ack_share_q40 = static_cast<int64_t>((static_cast<Wide>(p.ack_ps) << 40) /
                                           std::max<int64_t>(1, p.full_ps * config_.ack_interval));
    if (config_.resolution_ps > 1 && p.full_ps > 0) {
      p.carries = static_cast<int64_t>(full_ / p.full_ps);
    }
    p.owner = visit_node(topology_.from(p.global));
    p.peer = visit_node(topology_.to(p.global));
    p.from_host = nodes_[p.owner].host;
    p.to_host = nodes_[p.peer].host;
    p.marks = config_.ecn != EcnMark::off && !p.from_host && !scale_up;
    const EcnBand band = ecn_band(config_, link.rate, p.marks);
    const auto units = [](int64_t bytes) {
      return static_cast<int64_t>(static_cast<Wide>(bytes) * 8 * kPsPerSecond >> kQueueShift);
    };
    p.kmin = units(band.kmin);
    p.kmax = units(band.kmax);
    p.bin = std::max<int64_t>(1, (p.kmax - p.kmin) / kBins);
    p.alpha_q16 = alpha_q16(config_, link.rate, topology_.nic_rate());
    if (link.loss_rate > 0) decline("links lose packets");
    Node& owner = nodes_[p.owner];
    if (p.from_host) {
      p.nic = static_cast<uint32_t>(nics_.size());
      nics_.emplace_back().line = p.carries;
    } else {
      owner.ports.push_back(local + dir);
      // A look long before anything can be paused: one queue alone is below its ingress threshold.
      const int64_t threshold = config_.pfc == PfcMode::static_threshold
                                    ? owner.xoff
                                    : (owner.pool / 2 * config_.alpha_q16) >> 16;
      p.watch = units(threshold / 4);
    }
    ports_.push_back(std::move(p));
  }
  return local + (global_port & 1U);
}

uint32_t SteppedFabric::open_qp(const Message& m, uint32_t src, uint32_t dst) {
  const uint32_t part = m.part | static_cast<uint32_t>(m.traffic_class) << 8;
  if (config_.persistent_qps) {
    const auto it = qp_index_.find({src, dst, m.channel, part});
    if (it != qp_index_.end()) return it->second;
  }
  QpIdentity id;
  id.src = src;
  id.dst = dst;
  id.channel = m.channel;
  id.part = m.part;
  id.traffic_class = m.traffic_class;
  id.nth = pair_count_[(static_cast<uint64_t>(src) << 32) | dst]++;
  return make_qp(id);
}

uint32_t SteppedFabric::declare(const QpIdentity& id, const QpMemory& memory) {
  TRAINYARD_ASSERT(registry_ != nullptr);
  const uint32_t qi = make_qp(id);
  if (!memory.used) return qi;
  QueuePair& q = qps_[qi];
  q.posted = q.before = memory.posted;
  // Not what it drew in an earlier domain.
  if (id.noise == 0) q.noise = dice(q.dice_object, 0, static_cast<uint64_t>(q.before), 0);
  if (!q.controlled) return qi;
  q.cc = memory.dcqcn;
  if (memory.increase_running) {
    q.increase_running = true;
    q.increase_next = memory.increase_next;
    if (q.increase_next > now_) arm_increase(qi, q.increase_next);
  }
  return qi;
}

bool SteppedFabric::idle() const {
  if (outstanding_ > 0 || now_ < rests_at_) return false;
  for (const QueuePair& q : qps_) {
    if (q.cut_due != kNever || !q.notices.empty()) return false;
  }
  return true;
}

QpMemory SteppedFabric::memory_of(uint32_t qi) const {
  const QueuePair& q = qps_[qi];
  QpMemory m;
  m.used = q.posted > 0;
  m.posted = q.posted;
  m.rate = q.cc.rate();
  m.increase_running = q.increase_running;
  m.increase_next = q.increase_next;
  m.dcqcn = q.cc;
  return m;
}

PortTally SteppedFabric::tally(uint32_t pi) const {
  const Port& p = ports_[pi];
  PortTally t;
  t.packets = p.packets;
  t.bytes = p.bytes;
  t.payload = p.payload;
  t.marked = p.marked;
  t.busy = transmission_time(Bytes(p.bytes), Rate::bps(p.carries)).ps();
  t.peak = static_cast<int64_t>((static_cast<Wide>(p.peak) << kQueueShift) / (8 * kPsPerSecond));
  return t;
}

uint32_t SteppedFabric::make_qp(const QpIdentity& id) {
  const uint32_t src = id.src;
  const uint32_t dst = id.dst;
  const auto index = static_cast<uint32_t>(qps_.size());
  QueuePair q;
  q.src = src;
  q.dst = dst;
  q.channel = id.channel;
  q.nth = id.nth;
  q.dice_object = dice(id.channel, q.nth, src, dst);
  q.noise = id.noise != 0 ? id.noise : q.dice_object;
  const uint32_t src_node = topology_.hosts()[src];
  const uint32_t dst_node = topology_.hosts()[dst];
  const auto src_port = static_cast<uint16_t>(kSourcePortBase + q.nth);
  bool scale_up = false;
  int64_t rtt = 0;
  int64_t slowest = INT64_MAX;
  scratch_.clear();
  routing_->path({src_node, dst_node, src_port, kDestinationPort}, scratch_);
  q.forward = static_cast<uint32_t>(hops_.size());
  q.hops = static_cast<uint32_t>(scratch_.size());
  for (const uint32_t global : scratch_) {
    Hop h;
    h.port = visit(global);
    h.qp = index;
    const Port& p = ports_[h.port];
    const NodeKind kind = topology_.nodes()[nodes_[p.peer].global].kind;
    scale_up = scale_up || kind == NodeKind::scale_up;
    rtt += 2 * p.delay_ps + send_ps(config_.payload, p.rate_bps);
    slowest = std::min(slowest, p.rate_bps);
    path_.push_back(h.port);
    acked_before_.emplace_back();
    hops_.push_back(std::move(h));
  }
  TRAINYARD_ASSERT(hops_.size() < (1U << kKindShift));
  scratch_.clear();
  routing_->path({dst_node, src_node, kDestinationPort, src_port}, scratch_);
  q.reverse = static_cast<uint32_t>(reverse_.size());
  q.reverse_hops = static_cast<uint32_t>(scratch_.size());
  for (const uint32_t global : scratch_) {
    AckHop h;
    h.port = visit(global);
    h.qp = index;
    reverse_.push_back(std::move(h));
  }
  const Port& first = ports_[path_[q.forward]];
  q.nic = first.nic;
  q.line = first.rate_bps;
  q.wanted = paced(q.line);
  q.controlled = config_.congestion == CongestionControl::dcqcn && !scale_up;
  q.cc.init(config_.dcqcn, q.line);
  q.until_count = static_cast<Wide>(config_.dcqcn.byte_counter) * 8 * kPsPerSecond;
  if (!scale_up) {
    switch (config_.window) {
      case WindowRule::none:
        break;
      case WindowRule::fixed:
        q.window = config_.window_bytes;
        break;
      case WindowRule::bdp_pair:
        q.window = std::max<int64_t>(1, bytes_in(Rate::bps(slowest), Time::ps(rtt)).count());
        break;
      case WindowRule::bdp_longest: {
        LongestPair& known = registry_ == nullptr ? longest_ : registry_->longest;
        if (known.bdp_bytes < 0) known = longest_pair(config_, topology_, *routing_);
        q.window = std::max<int64_t>(1, known.bdp_bytes);
      } break;
    }
  }
  qps_.push_back(q);
  if (config_.persistent_qps) {
    const uint32_t part = id.part | static_cast<uint32_t>(id.traffic_class) << 8;
    qp_index_[{src, dst, id.channel, part}] = index;
  }
  return index;
}

TransferId SteppedFabric::start(const Transfer& t, Time at, uint32_t qp, bool quiet) {
  TRAINYARD_ASSERT(at.ps() >= now_ && t.size.count() > 0 && t.src != t.dst);
  TRAINYARD_ASSERT(t.src < topology_.hosts().size() && t.dst < topology_.hosts().size());
  began_ = std::min(began_, at.ps());
  const bool again = !free_records_.empty();
  const auto id = again ? free_records_.back() : static_cast<TransferId>(records_.size());
  TransferRecord r;
  r.src = t.src;
  r.dst = t.dst;
  r.owner = t.owner;
  r.bytes = t.size.count();
  r.start = at;
  const int64_t packets = (r.bytes - 1) / config_.payload + 1;
  if (packets > INT64_MAX / 16 / full_bytes_) {
    throw UserError("a message of " + print_bytes(t.size) + " is too large",
                    "the largest is about 0.5 EB with its headers");
  }
  // Parts as in the packet engine: whole packets, as equal as that allows.
  const auto parts = static_cast<uint32_t>(std::min<int64_t>(config_.qps, packets));
  if (again) {
    free_records_.pop_back();
  } else {
    records_.emplace_back();
    parts_left_.emplace_back();
    first_part_.emplace_back();
  }
  records_[id] = r;
  parts_left_[id] = static_cast<uint8_t>(parts | parts << 4);
  first_part_[id] = kNil;
  ++outstanding_;
  int64_t left = r.bytes;
  for (uint32_t part = 0; part < parts; ++part) {
    uint32_t index = 0;
    if (free_messages_.empty()) {
      index = static_cast<uint32_t>(messages_.size());
      TRAINYARD_ASSERT(index < (1U << kKindShift));
      messages_.emplace_back();
    } else {
      index = free_messages_.back();
      free_messages_.pop_back();
    }
    Message m;
    m.other_part = first_part_[id];
    first_part_[id] = index;
    m.record = id;
    m.qp = parts == 1 ? qp : kNil;
    m.quiet = quiet;
    m.channel = t.channel;
    m.part = static_cast<uint8_t>(part);
    m.packets = packets / parts + (part < packets % parts ? 1 : 0);
    m.bytes = std::min(left, m.packets * config_.payload);
    left -= m.bytes;
    messages_[index] = m;
    const int64_t begins = at.ps() + config_.send_delay_ps;
    if (begins == now_)
      on_start(index);
    else
      events_.push(begins, key(kStart, index), 0);
  }
  return id;
}

void SteppedFabric::forget(TransferId id) {
  const TransferRecord& r = records_[id];
  TRAINYARD_ASSERT(parts_left_[id] == 0);
  forgotten_transmissions_ += r.transmissions;
  forgotten_bytes_ += r.bytes;
  for (uint32_t mi = first_part_[id]; mi != kNil; mi = messages_[mi].other_part) {
    Message& m = messages_[mi];
    QueuePair& q = qps_[m.qp];
    forgotten_crossed_ += m.bytes * static_cast<int64_t>(q.hops);
    if (q.latest == mi) q.latest = kNil;
    m.qp = kNil;
    free_messages_.push_back(mi);
  }
  first_part_[id] = kNil;
  records_[id] = {};
  free_records_.push_back(id);
}

/// Data and ACKs of a message on its links and in its record.
void SteppedFabric::book(const Message& m) {
  const QueuePair& q = qps_[m.qp];
  TransferRecord& r = records_[m.record];
  const auto packets = static_cast<uint64_t>(m.packets);
  const auto acks = static_cast<uint64_t>((m.packets - 1) / config_.ack_interval + 1);
  r.hops = q.hops;
  r.packets += packets;
  r.transmissions += packets * q.hops + acks * q.reverse_hops;
  for (uint32_t i = 0; i < q.hops; ++i) {
    Port& p = ports_[path_[q.forward + i]];
    p.packets += packets;
    p.bytes += m.bytes + m.packets * config_.header;
    p.payload += m.bytes;
  }
  for (uint32_t i = 0; i < q.reverse_hops; ++i) {
    Port& p = ports_[reverse_[q.reverse + i].port];
    p.packets += acks;
    p.bytes += static_cast<int64_t>(acks) * config_.ack_bytes;
  }
  totals_.data_packets += packets;
  totals_.ack_packets += acks;
}

void SteppedFabric::complete(const Message& m, Completion::What what) {
  const bool delivered = what == Completion::What::delivered;
  uint8_t& left = parts_left_[m.record];
  left = static_cast<uint8_t>(left - (delivered ? 1 : 16));
  if (delivered) totals_.payload_bytes += m.bytes;
  trace(m, delivered ? Trace::delivered : Trace::acknowledged, now_);
  if ((delivered ? left & 15 : left >> 4) != 0) return;
  if (delivered) {
    records_[m.record].delivered = Time::ps(now_);
  } else {
    records_[m.record].acknowledged = Time::ps(now_);
    --outstanding_;
  }
  completions_->push_back({Time::ps(now_), m.record, what});
}

void SteppedFabric::trace(const Message& m, Trace what, int64_t at) {
  QueuePair& q = qps_[m.qp];
  const uint32_t nth = q.messages++;
  fingerprint_ += dice(static_cast<uint64_t>(at), static_cast<uint32_t>(what), q.dice_object,
                       static_cast<uint64_t>(q.before + nth));
  if (trace_sink_ != nullptr) trace_sink_->push_back({at, static_cast<uint32_t>(what), m.qp, nth});
}

std::string SteppedFabric::describe_stall() const {
  std::string out;
  int shown = 0;
  for (const TransferRecord& r : records_) {
    if (r.acknowledged > r.start || r.bytes == 0) continue;  // done, or forgotten
    if (shown++ == 3) {
      out += ", ...";
      break;
    }
    out += (out.empty() ? "rank " : ", rank ") + std::to_string(r.src) + " -> rank " +
           std::to_string(r.dst) + ", " + std::to_string(r.bytes) + " bytes, " +
           (r.delivered > r.start ? "delivered, not acknowledged" : "not delivered");
  }
  return out.empty() ? "nothing is outstanding" : out;
}

std::vector<LinkRecord> SteppedFabric::links() const {
  std::vector<LinkRecord> out;
  out.reserve(ports_.size());
  for (const Port& p : ports_) {
    LinkRecord r = link_record(topology_, p.global, Rate::bps(p.rate_bps));
    r.packets = p.packets;
    r.bytes = p.bytes;
    r.data_bytes = p.payload;
    r.ecn_marks = p.marked;
    r.busy = transmission_time(Bytes(p.bytes), Rate::bps(p.carries));
    r.peak_queue_bytes =
        static_cast<int64_t>((static_cast<Wide>(p.peak) << kQueueShift) / (8 * kPsPerSecond));
    out.push_back(std::move(r));
  }
  return out;
}

FabricTotals SteppedFabric::totals() const {
  FabricTotals t = totals_;
  for (const Port& p : ports_) {
    t.transmissions += p.packets;
    t.wire_bytes += p.bytes;
    t.ecn_marks += p.marked;
  }
  return t;
}

void SteppedFabric::check_conservation() const {
  const auto fail = [](const std::string& what, auto a, auto b) {
    throw SimulationError("conservation broken: " + what + ": " + std::to_string(a) + " against " +
                          std::to_string(b) + "; please report this scenario");
  };
  uint64_t transmissions = forgotten_transmissions_;
  uint64_t on_links = 0;
  int64_t crossed = forgotten_crossed_;
  int64_t asked = forgotten_bytes_;
  int64_t payload = 0;
  for (const TransferRecord& r : records_) {
    transmissions += r.transmissions;
    asked += r.bytes;
  }
  for (const Message& m : messages_) {  // one that is free has none
    if (m.qp != kNil && m.at > 0) crossed += m.bytes * static_cast<int64_t>(qps_[m.qp].hops);
  }
  for (const Port& p : ports_) {
    on_links += p.packets;
    payload += p.payload;
    if (p.queue < 0) fail("a queue is negative", p.queue, 0);
  }
  if (transmissions != on_links) fail("packets of flows and of links", transmissions, on_links);
  if (crossed != payload) fail("payload of flows and of links", crossed, payload);
  if (outstanding_ == 0 && asked != totals_.payload_bytes) {
    fail("bytes asked for and delivered", asked, totals_.payload_bytes);
  }
  Wide left = 0;
  for (const QueuePair& q : qps_) left += q.left;
  // A message ends at a whole picosecond: it may send up to that much too long.
  if (carried_ + left != asked_ + overshoot_) {
    fail("volume sent and asked for", static_cast<int64_t>((carried_ + left) >> 40),
         static_cast<int64_t>((asked_ + overshoot_) >> 40));
  }
}

namespace {

const RegisterModel<EngineFactory> kStepped{
    {"engine",
     "stepped",
     "Controller-event stepping: DCQCN senders, queues and marks of the packet engine as fluids "
     "between two decisions. Approximate. Refuses what it does not model (other congestion "
     "controls, spraying, slow receivers), and a run in which packets would have met a PFC pause "
     "or a loss ends with an error.",
     "DESIGN section 6, shortcut 4; docs/fast-path.md",
     {}},
    [](const Topology& topology, const PacketConfig& config, const Params&) {
      auto fabric = std::make_unique<SteppedFabric>(topology, config);
      fabric->stop_when_declined(true);
      return fabric;
    }};

}  // namespace
}  // namespace trainyard
