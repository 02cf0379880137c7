// SPDX-License-Identifier: MIT
// First use of ports, nodes and queue pairs; paths.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "network/packet/domain.h"
#include "sim/dice.h"

namespace trainyard {

PacketDomain::PacketDomain(const Topology& topology, const PacketConfig& config,
                           DomainRegistry* registry)
    : topology_(topology),
      config_(config),
      classes_(config.classes),
      stamps_(config.congestion == CongestionControl::hpcc),
      heeds_marks_(config.congestion == CongestionControl::dcqcn ||
                   config.congestion == CongestionControl::dctcp),
      carries_(stamps_ || config.congestion == CongestionControl::timely),
      own_routing_(registry == nullptr ? std::make_unique<Routing>(topology, config.routing)
                                       : nullptr),
      routing_(registry == nullptr ? own_routing_.get() : &registry->routing()),
      registry_(registry),
      routes_(topology, config.routing, config.routes) {
  TRAINYARD_ASSERT(classes_ >= 1 && classes_ <= kMaxClasses && config_.qps <= kMaxQps);
  selective_window_ = static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(64, config_.selective_window))));
}

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

uint32_t PacketDomain::visit(uint32_t global_port) {
  const uint32_t even = global_port & ~1U;
  const auto [it, added] = port_index_.emplace(even, static_cast<uint32_t>(ports_.size()));
  if (!added) return it->second + (global_port & 1U);
  const uint32_t local = it->second;
  const uint32_t rank = registry_ == nullptr ? local : 2 * registry_->link_order(even / 2);
  TRAINYARD_ASSERT(rank < 1U << kRankBits);
  rank_index_.emplace(rank, local);
  const TopologyLink& link = topology_.link_of(even);
  const bool scale_up = topology_.nodes()[link.a].kind == NodeKind::scale_up ||
                        topology_.nodes()[link.b].kind == NodeKind::scale_up;
  for (uint32_t dir = 0; dir < 2; ++dir) {
    Port p;
    p.global = even + dir;
    p.rank = rank + dir;
    p.rate_bps = link.rate.bps();
    p.delay_ps = link.delay.ps();
    p.owner = visit_node(topology_.from(p.global));
    p.peer = visit_node(topology_.to(p.global));
    p.from_host = nodes_[p.owner].host;
    p.to_host = nodes_[p.peer].host;
    p.marks = config_.ecn != EcnMark::off && !p.from_host && !scale_up;
    const EcnBand band = ecn_band(config_, link.rate, p.marks);
    p.kmin = band.kmin;
    p.kmax = band.kmax;
    p.headroom =
        config_.pfc == PfcMode::off ? 0 : static_cast<int32_t>(headroom_bytes(config_, link));
    p.alpha_q16 = static_cast<int32_t>(alpha_q16(config_, link.rate, topology_.nic_rate()));
    p.loss_q32 = static_cast<uint64_t>(std::ldexp(link.loss_rate, 32));
    p.lossy = p.loss_q32 != 0;
    if (p.from_host) {
      p.sender = static_cast<uint32_t>(senders_.size());
      senders_.emplace_back();
      senders_.back().port = local + dir;
      senders_.back().receive_bps = scale_up ? 0 : config_.receive_bps;
    }
    p.slow = p.to_host && !scale_up && config_.receive_bps > 0;
    ports_.push_back(p);
  }
  lanes_.resize(ports_.size() * (classes_ - 1));
  lane_states_.resize(ports_.size() * classes_);
  if (stamps_) tx_before_.resize(ports_.size());
  for (uint32_t i = local; registry_ != nullptr && i < local + 2; ++i) {
    const PortMemory m = registry_->port_memory(ports_[i].global);
    ports_[i].loss_draws = m.loss_draws;
    if (stamps_) tx_before_[i] = m.tx_bytes;
    if (ports_[i].sender != kNil) senders_[ports_[i].sender].last_served = m.last_served;
    ports_[i].turn = m.turn;
    ports_[i].mark_credit_q32 = m.mark_credit_q32;
    for (uint32_t c = 0; c < classes_; ++c) lane_states_[lane_index(i, c)].deficit = m.deficit[c];
  }
  for (uint32_t dir = 0; dir < 2; ++dir) {
    Node& n = nodes_[ports_[local + dir].owner];
    if (n.host || n.pool != 0) continue;
    const SharedPool pool = shared_pool(config_, topology_, n.global);
    n.pool = pool.bytes;
    n.xoff = pool.xoff;
  }
  return local + (global_port & 1U);
}

uint32_t PacketDomain::add_path(const FlowTuple& tuple, uint32_t& hops) {
  scratch_path_.clear();
  routes_.path(*routing_, tuple, scratch_path_);
  hops = static_cast<uint32_t>(scratch_path_.size());
  const auto first = static_cast<uint32_t>(paths_.size());
  for (const uint32_t gp : scratch_path_) paths_.push_back(visit(gp));
  paths_.push_back(kNil);
  paths_.push_back(hops);
  return first;
}

/// Paths from the fabric as it is now; false when there is none.
bool PacketDomain::find_paths(QueuePair& q) {
  q.leaves_elsewhere = q.enters_elsewhere = false;
  return find_paths_between(q, topology_.hosts()[q.src], topology_.hosts()[q.dst], 0) ||
         (!crossings_.empty() && find_backup(q));
}

/// `entropy` keeps apart what shares addresses.
bool PacketDomain::find_paths_between(QueuePair& q, uint32_t src_node, uint32_t dst_node,
                                      uint32_t entropy) {
  const auto src_port = [&](uint32_t e) {
    return static_cast<uint16_t>(kSourcePortBase + q.nth + entropy * 8209 + e * 4099);
  };
  uint32_t hops = 0;
  uint32_t reverse_hops = 0;
  const uint32_t forward = add_path({src_node, dst_node, src_port(0), kDestinationPort}, hops);
  if (hops == 0) return false;
  const uint32_t wanted = config_.paths == PathChoice::per_flow ? 1 : config_.path_count;
  uint32_t count = 1;
  for (uint32_t e = 1; e < wanted; ++e) {
    uint32_t other = 0;
    add_path({src_node, dst_node, src_port(e), kDestinationPort}, other);
    if (other != hops ||
        ports_[paths_[paths_.size() - hops - 2]].sender != ports_[paths_[forward]].sender) {
      // All paths of a queue pair are alike and leave by one NIC port.
      paths_.resize(paths_.size() - other - 2);
      continue;
    }
    ++count;
  }
  const uint32_t reverse =
      add_path({dst_node, src_node, kDestinationPort, src_port(0)}, reverse_hops);
  if (reverse_hops == 0) return false;
  q.forward = forward;
  q.hops = hops;
  q.reverse = reverse;
  q.reverse_hops = reverse_hops;
  q.path_count = static_cast<uint8_t>(count);
  q.stride = static_cast<uint16_t>(hops + 2);
  q.port = paths_[forward];
  return true;
}

/// For who is cut off: the way there would be. Its timer counts until a link comes back.
bool PacketDomain::find_paths_as_built(QueuePair& q) {
  for (const uint32_t link : known_down_) routing_->set_link_state(link, true);
  const bool found = find_paths(q);
  for (const uint32_t link : known_down_) routing_->set_link_state(link, false);
  return found;
}

int64_t PacketDomain::pair_bdp(const QueuePair& q, int64_t* rtt_out) const {
  int64_t rtt = 0;
  int64_t rate = INT64_MAX;
  for (uint32_t i = 0; i < q.hops; ++i) {
    const Port& p = ports_[paths_[q.forward + i]];
    const Rate built = topology_.link_of(p.global).rate;
    rtt += 2 * p.delay_ps +
           transmission_time(Bytes(config_.payload), built, Time::ps(config_.resolution_ps)).ps();
    rate = std::min(rate, built.bps());
  }
  if (rtt_out != nullptr) *rtt_out = rtt;
  return bytes_in(Rate::bps(rate), Time::ps(rtt)).count();
}

/// Worked out once for the whole run.
const LongestPair& PacketDomain::longest() {
  LongestPair& known = registry_ == nullptr ? longest_ : registry_->longest;
  if (known.bdp_bytes < 0) known = longest_pair(config_, topology_, *routing_);
  return known;
}

uint32_t PacketDomain::open_qp(const TransferState& s, uint32_t src, uint32_t dst) {
  const uint32_t part = s.part | static_cast<uint32_t>(s.traffic_class) << 8;
  if (config_.persistent_qps) {
    const auto it = qp_index_.find({src, dst, s.channel, part});
    if (it != qp_index_.end()) return it->second;
  }
  TRAINYARD_ASSERT(registry_ == nullptr);  // else it has been declared
  QpIdentity id;
  id.src = src;
  id.dst = dst;
  id.channel = s.channel;
  id.traffic_class = s.traffic_class;
  id.part = s.part;
  // As the n-th flow of the pair it has the n-th source port.
  id.nth = pair_count_[(static_cast<uint64_t>(src) << 32) | dst]++;
  id.rank = static_cast<uint32_t>(qps_.size());
  return make_qp(id);
}

/// What depends on the path: line rate, whether it is controlled, the window.
void PacketDomain::settle_on_path(QueuePair& q) {
  // As built: a cable that is slow at the moment is so for a while.
  q.line = topology_.link_of(ports_[q.port].global).rate.bps();
  bool scale_up = false;
  for (uint32_t i = 0; i < q.hops; ++i) {
    const uint32_t peer = nodes_[ports_[paths_[q.forward + i]].peer].global;
    scale_up = scale_up || topology_.nodes()[peer].kind == NodeKind::scale_up;
  }
  q.controlled = config_.congestion != CongestionControl::none && !scale_up;
  q.window = 0;
  if (!scale_up) {
    switch (config_.window) {
      case WindowRule::none:
        break;
      case WindowRule::fixed:
        q.window = config_.window_bytes;
        break;
      case WindowRule::bdp_pair:
        q.window = std::max<int64_t>(1, pair_bdp(q, nullptr));
        break;
      case WindowRule::bdp_longest:
        q.window = std::max<int64_t>(1, longest().bdp_bytes);
        break;
    }
  }
  if (config_.congestion == CongestionControl::hpcc && q.controlled && q.window == 0) {
    q.window = std::max<int64_t>(1, bytes_in(Rate::bps(q.line), Time::ps(hpcc_rtt())).count());
  }
  if (selective()) {
    const int64_t most = selective_window_ * config_.payload;
    q.window = q.window == 0 ? most : std::min(q.window, most);
  }
}

/// One base round trip for all, so that flows of different length converge alike.
int64_t PacketDomain::hpcc_rtt() {
  return config_.hpcc_base_rtt_ps != 0 ? config_.hpcc_base_rtt_ps : longest().rtt_ps;
}

/// At line rate, as if nothing had been sent yet.
void PacketDomain::begin_controller(QueuePair& q, uint32_t qi) {
  q.rate = q.line;
  switch (config_.congestion) {
    case CongestionControl::none:
      return;
    case CongestionControl::dcqcn:
      dcqcn_[qi].init(config_.dcqcn, q.line);
      return;
    case CongestionControl::hpcc:
      hpcc_[qi].init(config_.hpcc, q.line, std::max<int64_t>(1, hpcc_rtt()), q.window);
      return;
    case CongestionControl::timely:
      timely_[qi].init(config_.timely, q.line);
      return;
    case CongestionControl::dctcp:
      dctcp_[qi].init(q.line, config_.payload);
      return;
  }
}

uint32_t PacketDomain::make_qp(const QpIdentity& id) {
  const uint32_t src = id.src;
  const uint32_t dst = id.dst;
  const auto index = static_cast<uint32_t>(qps_.size());
  TRAINYARD_ASSERT(index < (1U << kKindShift) && id.rank < (1U << kKindShift));
  QueuePair q;
  q.src = src;
  q.dst = dst;
  q.channel = id.channel;
  q.traffic_class = id.traffic_class;
  q.nth = id.nth;
  q.rank = id.rank;
  if (!find_paths(q) && !find_paths_as_built(q)) {
    throw SimulationError("rank " + std::to_string(src) + " cannot reach rank " +
                          std::to_string(dst) + " at " + print_time(Time::ps(now_)) +
                          ": no links join them");
  }
  q.dice_object = dice(id.channel, q.nth, src, dst);
  q.noise = id.noise != 0 ? id.noise : q.dice_object;
  q.noise_from = id.noise_from;
  settle_on_path(q);
  switch (config_.congestion) {
    case CongestionControl::none:
      break;
    case CongestionControl::dcqcn:
      dcqcn_.emplace_back();
      break;
    case CongestionControl::hpcc:
      hpcc_.emplace_back();
      break;
    case CongestionControl::timely:
      timely_.emplace_back();
      break;
    case CongestionControl::dctcp:
      dctcp_.emplace_back();
      break;
  }
  begin_controller(q, index);
  if (selective()) {
    Selective& r = selective_.emplace_back();
    r.got.assign(static_cast<size_t>(selective_window_ / 64), 0);
    r.acked.assign(static_cast<size_t>(selective_window_ / 64), 0);
  }
  qps_.push_back(q);
  if (config_.persistent_qps) {
    const uint32_t part = id.part | static_cast<uint32_t>(id.traffic_class) << 8;
    qp_index_[{src, dst, id.channel, part}] = index;
  }
  return index;
}

uint32_t PacketDomain::declare(const QpIdentity& id, const QpMemory& m) {
  TRAINYARD_ASSERT(registry_ != nullptr && config_.persistent_qps && !selective());
  const uint32_t qi = make_qp(id);
  if (!m.used) return qi;
  QueuePair& q = qps_[qi];
  q.base = q.posted = q.next = q.una = q.high_water = q.una_best = q.received = m.posted;
  q.next_send = m.next_send;
  q.last_sent = m.last_sent;
  q.sent_packets = m.sent_packets;
  q.flowlets = m.flowlets;
  q.path_choice = std::min(m.path_choice, q.path_count - 1U);
  q.last_cnp = m.last_cnp;
  q.last_nack = m.last_nack;
  q.last_nack_seq = m.last_nack_seq;
  q.since_ack = m.since_ack;
  q.notify = m.notify;
  if (config_.congestion == CongestionControl::dcqcn) {
    dcqcn_[qi] = m.dcqcn;
    q.rate = m.rate;
    q.increase_running = m.increase_running;
    q.increase_next = m.increase_next;
    // One that is due has passed while nobody looked: on_start() catches up.
    if (q.increase_running && q.increase_next > now_) {
      events_.push(q.increase_next, key(kIncrease, q.rank), qi);
    }
  }
  if (m.ack_controller) {
    q.rate = m.rate;
    switch (config_.congestion) {
      case CongestionControl::hpcc:
        hpcc_[qi] = m.ack_controller->hpcc;
        break;
      case CongestionControl::timely:
        timely_[qi] = m.ack_controller->timely;
        break;
      case CongestionControl::dctcp:
        dctcp_[qi] = m.ack_controller->dctcp;
        break;
      case CongestionControl::none:
      case CongestionControl::dcqcn:
        break;
    }
  }
  return qi;
}

QpMemory PacketDomain::memory_of(uint32_t qi) const {
  const QueuePair& q = qps_[qi];
  QpMemory m;
  m.used = q.posted > 0;
  m.posted = q.posted;
  m.rate = q.rate;
  m.next_send = q.next_send;
  m.last_sent = q.last_sent;
  m.sent_packets = q.sent_packets;
  m.flowlets = q.flowlets;
  m.path_choice = q.path_choice;
  m.last_cnp = q.last_cnp;
  m.last_nack = q.last_nack;
  m.last_nack_seq = q.last_nack_seq;
  m.since_ack = q.since_ack;
  m.notify = q.notify;
  m.increase_running = q.increase_running;
  m.increase_next = q.increase_next;
  if (config_.congestion == CongestionControl::dcqcn) m.dcqcn = dcqcn_[qi];
  const bool acted = (config_.congestion == CongestionControl::hpcc && hpcc_[qi].touched()) ||
                     (config_.congestion == CongestionControl::timely && timely_[qi].touched()) ||
                     // A fresh one counts its first round from the first byte.
                     (config_.congestion == CongestionControl::dctcp &&
                      (dctcp_[qi].touched() || (q.controlled && q.posted > 0)));
  if (!acted) return m;
  AckController c;
  if (config_.congestion == CongestionControl::hpcc) c.hpcc = hpcc_[qi];
  if (config_.congestion == CongestionControl::timely) c.timely = timely_[qi];
  if (config_.congestion == CongestionControl::dctcp) c.dctcp = dctcp_[qi];
  m.ack_controller = std::make_shared<const AckController>(c);
  return m;
}

PortMemory PacketDomain::memory_of_port(uint32_t pi) const {
  const Port& p = ports_[pi];
  PortMemory m;
  if (p.sender != kNil) m.last_served = senders_[p.sender].last_served;
  m.turn = p.turn;
  m.mark_credit_q32 = p.mark_credit_q32;
  m.loss_draws = p.loss_draws;
  for (uint32_t c = 0; c < classes_; ++c) m.deficit[c] = lane_states_[lane_index(pi, c)].deficit;
  return m;
}

bool PacketDomain::has_served(uint32_t pi, uint32_t c) const {
  const Port& p = ports_[pi];
  if (p.sender == kNil) return false;
  return classes_ == 1 ? c == 0 && p.payload > 0 : (senders_[p.sender].served >> c & 1) != 0;
}

TransferId PacketDomain::start(const Transfer& t, Time at) {
  TRAINYARD_ASSERT(at.ps() >= now_ && t.size.count() > 0 && t.src != t.dst);
  TRAINYARD_ASSERT(t.src < topology_.hosts().size() && t.dst < topology_.hosts().size());
  const auto id = static_cast<TransferId>(records_.size());
  TransferRecord r;
  r.src = t.src;
  r.dst = t.dst;
  r.owner = t.owner;
  r.bytes = t.size.count();
  r.start = at;
  records_.push_back(r);
  // Parts are whole packets, as equal as that allows; a short message uses fewer queue pairs.
  const int64_t packets = (r.bytes + config_.payload - 1) / config_.payload;
  const auto parts = static_cast<uint32_t>(std::min<int64_t>(config_.qps, packets));
  if (config_.qps > 1) parts_left_.push_back(static_cast<uint8_t>(parts | parts << 4));
  int64_t left = r.bytes;
  for (uint32_t part = 0; part < parts; ++part) {
    const auto index = static_cast<uint32_t>(states_.size());
    TRAINYARD_ASSERT(index < (1U << kKindShift));
    TransferState s;
    s.channel = t.channel;
    s.record = id;
    s.part = static_cast<uint8_t>(part);
    s.traffic_class = std::min<uint8_t>(t.traffic_class, static_cast<uint8_t>(classes_ - 1));
    const int64_t share = (packets / parts + (part < packets % parts ? 1 : 0)) * config_.payload;
    s.bytes = std::min(left, share);
    left -= s.bytes;
    states_.push_back(s);
    ++starts_pending_;
    events_.push(at.ps() + config_.send_delay_ps, key(kStart, index), 0);
  }
  ++outstanding_;
  return id;
}

}  // namespace trainyard
