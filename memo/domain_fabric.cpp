// SPDX-License-Identifier: MIT
// Inputs, domains and their identity. What goes on in them: domain_progress.cpp.
#include "memo/domain_fabric.h"

#include <algorithm>
#include <array>

#include "memo/worker_pool.h"
#include "sim/dice.h"
#include "sim/errors.h"

namespace trainyard {
namespace {

/// What precedes what in a hash, so that no two histories are written alike.
enum Word : uint64_t { kNewLink = 1, kNewNode, kNewQp, kOldQp, kTransfer, kOpen, kArrive, kChange };

constexpr uint32_t kDiceVariant = 200, kDiceShared = 201;  // purposes

}  // namespace

std::optional<std::string> fast_path_declines(const PacketConfig& c) {
  if (!c.persistent_qps) return "queue pairs of a message each";
  if (c.recovery == LossRecovery::selective) return "selective repeat";
  if (c.receive_bps > 0) return "slow receivers";
  if (c.routes.rule != RouteRule::hash || !c.routes.pinned.empty()) return "source routes";
  return std::nullopt;
}

DomainFabric::DomainFabric(const Topology& topology, const PacketConfig& config,
                           const FastPathOptions& options)
    : topology_(topology),
      config_(config),
      options_(options),
      routing_(topology, config.routing),
      store_(options.memo_bytes),
      link_order_(topology.links().size(), kNone),
      link_domain_(topology.links().size(), kNone),
      link_label_(topology.links().size(), kNone),
      tallies_(2 * topology.links().size()),
      port_memories_(2 * topology.links().size()) {
  TRAINYARD_ASSERT(!fast_path_declines(config));
}

DomainFabric::~DomainFabric() = default;

// ---------------------------------------------------------------- registry

uint32_t DomainFabric::link_order(uint32_t link) {
  uint32_t& order = link_order_[link];
  if (order == kNone) {
    order = links_used_++;
    links_in_order_.push_back(link);
  }
  return order;
}

PortMemory DomainFabric::port_memory(uint32_t port) {
  PortMemory m = port_memories_[port];
  m.tx_bytes = tallies_[port].bytes;
  return m;
}

uint32_t DomainFabric::queue_pair(const QpKey& key) {
  const auto [it, added] = qp_index_.emplace(key, static_cast<uint32_t>(qps_.size()));
  if (!added) return it->second;
  GlobalQp q;
  q.id.src = key.src;
  q.id.dst = key.dst;
  q.id.channel = key.channel;
  q.id.traffic_class = static_cast<uint8_t>(key.part >> 8);
  q.id.part = static_cast<uint8_t>(key.part);
  q.id.nth = pair_count_[(static_cast<uint64_t>(key.src) << 32) | key.dst]++;
  q.id.rank = it->second;
  q.dice_object = dice(key.channel, q.id.nth, key.src, key.dst);
  find_paths(q);
  qps_.push_back(q);
  return it->second;
}

/// As routes are now; for who is cut off, as they were built.
void DomainFabric::find_paths(GlobalQp& q) {
  q.first_port = static_cast<uint32_t>(qp_ports_.size());
  const uint32_t a = topology_.hosts()[q.id.src];
  const uint32_t b = topology_.hosts()[q.id.dst];
  const uint32_t paths = config_.paths == PathChoice::per_flow ? 1 : config_.path_count;
  const auto port = [&](uint32_t entropy) {
    return static_cast<uint16_t>(kSourcePortBase + q.id.nth + entropy * 4099);
  };
  const auto find = [&](Routing& routing) {
    for (uint32_t e = 0; e < paths; ++e) {
      routing.path({a, b, port(e), kDestinationPort}, qp_ports_);
    }
    q.forward = static_cast<uint32_t>(qp_ports_.size()) - q.first_port;
    routing.path({b, a, kDestinationPort, port(0)}, qp_ports_);
    q.ports = static_cast<uint32_t>(qp_ports_.size()) - q.first_port;
    return q.forward > 0 && q.ports > q.forward;
  };
  if (find(routing_)) return;
  qp_ports_.resize(q.first_port);
  if (!as_built_) as_built_ = std::make_unique<Routing>(topology_, config_.routing);
  find(*as_built_);
}

uint32_t DomainFabric::parts_of(const Transfer& t) const {
  const int64_t packets = (t.size.count() + config_.payload - 1) / config_.payload;
  return static_cast<uint32_t>(std::min<int64_t>(config_.qps, packets));
}

QpKey DomainFabric::qp_key(const Transfer& t, uint32_t part) const {
  const uint32_t cls = std::min<uint32_t>(t.traffic_class, config_.classes - 1);
  return {t.src, t.dst, t.channel, part | cls << 8};
}

void DomainFabric::queue_pairs(const Transfer& t, std::vector<uint32_t>& out) {
  for (uint32_t part = 0; part < parts_of(t); ++part) out.push_back(queue_pair(qp_key(t, part)));
}

/// A message for each queue pair of a call, in order of their first ones.
void DomainFabric::transfers_of(const HostedCall& call, const CallPlan& plan,
                                std::vector<Transfer>& out) const {
  for (const CallPlan::Edge& e : plan.edges) {
    CollectiveSend send;
    send.src = e.src;
    send.dst = e.dst;
    send.channel = e.channel;
    send.traffic_class = e.traffic_class;
    send.clear_to_send = e.clear_to_send;
    out.push_back(hosted_transfer(call, send));
    // Of several queue pairs a short message uses fewer.
    out.back().size = Bytes(config_.payload * config_.qps);
  }
}

std::shared_ptr<const std::vector<uint32_t>> DomainFabric::queue_pairs(const HostedCall& call,
                                                                       const CallPlan* plan) {
  const bool lasting = !call.request.sizes;
  auto& known = plan_qps_[call.channel_base];
  if (lasting) {
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const PlanQps& entry) { return entry.plan == plan; });
    if (found != known.end()) return found->qps;
  }
  auto qps = std::make_shared<std::vector<uint32_t>>();
  std::vector<Transfer> transfers;
  transfers_of(call, *plan, transfers);
  for (const Transfer& t : transfers) queue_pairs(t, *qps);
  if (lasting) known.push_back({plan, qps, nullptr});
  return qps;
}

/// Of all links by which the queue pairs, all to one host, lead to it.
int64_t DomainFabric::in_bps_of(const std::vector<uint32_t>& qps) const {
  std::vector<uint32_t> ports;
  for (const uint32_t q : qps) {
    for (uint32_t i = 0; i < qps_[q].forward; ++i) {
      const uint32_t port = qp_ports_[qps_[q].first_port + i];
      if (topology_.to(port) == topology_.hosts()[qps_[q].id.dst]) ports.push_back(port);
    }
  }
  std::sort(ports.begin(), ports.end());
  ports.erase(std::unique(ports.begin(), ports.end()), ports.end());
  int64_t sum = 0;
  for (const uint32_t port : ports) sum += topology_.link_of(port).rate.bps();
  return sum;
}

/// Of all links by which messages of the call come to a member.
std::shared_ptr<const std::vector<int64_t>> DomainFabric::inbound_bps(const Call& call) {
  PlanQps* known = nullptr;
  for (PlanQps& entry : plan_qps_[call.info.channel_base]) {
    if (entry.plan == call.plan.get() && entry.qps == call.qps) known = &entry;
  }
  if (known != nullptr && known->in_bps) return known->in_bps;
  const auto& members = *call.info.request.members;
  std::unordered_map<uint32_t, uint32_t> position;
  for (uint32_t m = 0; m < members.size(); ++m) position.emplace(members[m], m);
  std::vector<std::vector<uint32_t>> qps(members.size());
  for (const uint32_t q : *call.qps) qps[position.at(qps_[q].id.dst)].push_back(q);
  auto bps = std::make_shared<std::vector<int64_t>>();
  for (const auto& mine : qps) bps->push_back(in_bps_of(mine));
  if (known != nullptr) known->in_bps = bps;
  return bps;
}

QpMemory DomainFabric::memory(const GlobalQp& q) const {
  if (q.memory != kNone) return memories_[q.memory];
  QpMemory m;
  m.used = q.posted > 0;
  m.posted = q.posted;
  if (config_.congestion == CongestionControl::dcqcn) {
    m.rate = topology_.link_of(qp_ports_[q.first_port]).rate.bps();
    m.dcqcn.init(config_.dcqcn, m.rate);
  }
  return m;
}

// ---------------------------------------------------------------- inputs

TransferId DomainFabric::start(const Transfer& transfer, Time at) {
  TRAINYARD_ASSERT(at.ps() >= now_ && transfer.size.count() > 0 && transfer.src != transfer.dst);
  const auto id = static_cast<TransferId>(transfers_.size());
  transfers_.push_back(transfer);
  TransferRecord r;
  r.src = transfer.src;
  r.dst = transfer.dst;
  r.owner = transfer.owner;
  r.bytes = transfer.size.count();
  r.start = at;
  records_.push_back(r);
  ++transfers_open_;
  if (at.ps() > now_) {
    future_.push({at.ps(), serial_++, id, false});
    return id;
  }
  scratch_qps_.clear();
  queue_pairs(transfer, scratch_qps_);
  input({at.ps(), serial_++, round_, false, Input::Kind::transfer, id, 0}, scratch_qps_);
  return id;
}

void DomainFabric::schedule(const FabricChange& change) {
  TRAINYARD_ASSERT(change.at.ps() >= now_);
  future_.push({change.at.ps(), serial_++, static_cast<uint32_t>(changes_.size()), true});
  changes_.push_back(change);
}

/// All domains become one: a change may send anything anywhere.
void DomainFabric::disturb(uint32_t change, int64_t at) {
  // Nothing has been done at this instant yet.
  now_ = std::max(now_, at - 1);
  uint32_t domain = disturbed_;
  if (!options_.partition) {
    domain = domains_.empty() ? new_domain(now_) : 0;
  } else if (domain == kNone) {
    std::vector<uint32_t> active;
    for (uint32_t i = 0; i < domains_.size(); ++i) {
      if (domains_[i].used) active.push_back(i);
    }
    domain = active.empty() ? new_domain(now_) : merge(active);
    ++stats_.disturbances;
  }
  Domain& d = domains_[domain];
  d.disturbed = true;
  d.no_stepping = true;
  disturbed_ = domain;
  add(domain, {at, serial_++, ++round_, true, Input::Kind::change, change, 0});
}

/// Links that its queue pairs came to use by being routed anew.
void DomainFabric::adopt_links(uint32_t domain) {
  Domain& d = domains_[domain];
  for (uint32_t label = static_cast<uint32_t>(d.links.size()); label < d.run->port_count() / 2;
       ++label) {
    const uint32_t link = d.run->global_port(2 * label) / 2;
    TRAINYARD_ASSERT(link_domain_[link] == kNone);
    link_domain_[link] = domain;
    link_label_[link] = label;
    d.links.push_back(link);
  }
}

uint32_t DomainFabric::open(const HostedCall& info) {
  Call c;
  c.info = info;
  c.plan = plans_.plan(info);
  c.here.assign(info.request.members->size(), 0);
  calls_.push_back(std::move(c));
  return static_cast<uint32_t>(calls_.size() - 1);
}

void DomainFabric::arrive(uint32_t call, uint32_t member, Time at) {
  if (at.ps() < now_) {
    // Of a call that was held: what comes at one instant is one round.
    if (late_call_ != call || late_at_ != at.ps()) ++round_;
    late_call_ = call;
    late_at_ = at.ps();
  } else {
    if (late_call_ != kNone) ++round_;
    late_call_ = kNone;
    now_ = at.ps();
  }
  Call& c = calls_[call];
  c.here[member] = 1;
  if (c.begun) {
    add(c.domain, {at.ps(), serial_++, round_, false, Input::Kind::arrive, call, member});
    return;
  }
  if (c.plan->edges.empty()) {
    // Nothing moves (an all-to-all of empty shares): all are through when all are here.
    c.order.push_back(member);
    if (c.order.size() < c.here.size()) return;
    for (uint32_t m = 0; m < c.here.size(); ++m) through_at_once_.push_back({call, m});
    return;
  }
  // A message needs both its ends: until two that talk to each other are here nothing can happen,
  // and nobody has to know.
  c.order.push_back(member);
  const auto& near = c.plan->neighbours[member];
  if (std::none_of(near.begin(), near.end(), [&](uint32_t m) { return c.here[m] != 0; })) return;
  c.begun = true;
  c.qps = queue_pairs(c.info, c.plan.get());
  const std::vector<uint32_t> order = c.order;
  input({at.ps(), serial_++, round_, false, Input::Kind::open, call, 0}, *c.qps);
  const uint32_t domain = calls_[call].domain;
  for (const uint32_t m : order) {
    add(domain, {at.ps(), serial_++, round_, false, Input::Kind::arrive, call, m});
  }
}

void DomainFabric::take_done(std::vector<Done>& out) {
  out.insert(out.end(), done_.begin(), done_.end());
  done_.clear();
}

/// An input that may create a domain or join some.
void DomainFabric::input(const Input& in, const std::vector<uint32_t>& qps) {
  add(domain_for(qps, in.at), in);
}

uint32_t DomainFabric::domain_for(const std::vector<uint32_t>& qps, int64_t at) {
  if (!options_.partition) {
    if (domains_.empty()) return new_domain(at);
    return 0;
  }
  if (disturbed_ != kNone) return disturbed_;
  scratch_domains_.clear();
  for (const uint32_t q : qps) {
    for (uint32_t i = 0; i < qps_[q].ports; ++i) {
      const uint32_t d = link_domain_[qp_ports_[qps_[q].first_port + i] / 2];
      if (d == kNone) continue;
      if (scratch_domains_.empty() || scratch_domains_.back() != d) scratch_domains_.push_back(d);
    }
  }
  std::sort(scratch_domains_.begin(), scratch_domains_.end());
  scratch_domains_.erase(std::unique(scratch_domains_.begin(), scratch_domains_.end()),
                         scratch_domains_.end());
  if (scratch_domains_.empty()) return new_domain(at);
  if (scratch_domains_.size() == 1) {
    if (domains_[scratch_domains_[0]].mode == Domain::Mode::reserved) throw StretchConflict();
    return scratch_domains_[0];
  }
  stats_.merges += scratch_domains_.size() - 1;
  const std::vector<uint32_t> all = scratch_domains_;
  return can_join(all) ? join(all) : merge(all);
}

uint32_t DomainFabric::new_domain(int64_t at) {
  uint32_t index = 0;
  if (free_domains_.empty()) {
    index = static_cast<uint32_t>(domains_.size());
    domains_.emplace_back();
  } else {
    index = free_domains_.back();
    free_domains_.pop_back();
  }
  Domain& d = domains_[index];
  d.used = true;
  d.start = at;
  d.mode = Domain::Mode::pending;
  pending_.push_back(index);
  ++domains_active_;
  return index;
}

uint64_t DomainFabric::node_digest(uint32_t node) {
  const auto [it, added] = node_digests_.emplace(node, 0);
  if (!added) return it->second;
  const TopologyNode& n = topology_.nodes()[node];
  Hash128 h;
  h.add(static_cast<uint64_t>(n.kind));
  // Its pool depends on all of its ports.
  for (const uint32_t p : n.ports) {
    const TopologyLink& l = topology_.link_of(p);
    h.add_signed(l.rate.bps());
    h.add_signed(l.delay.ps());
  }
  it->second = h.a ^ h.b;
  return it->second;
}

void DomainFabric::node_into_hash(Domain& d, uint32_t node) {
  Hash128& h = d.hashes.back();
  const auto [it, added] = d.nodes.emplace(node, static_cast<uint32_t>(d.nodes.size()));
  h.add(it->second);
  if (!added) return;
  h.add(kNewNode);
  h.add(node_digest(node));
}

void DomainFabric::claim_link(Domain& d, uint32_t domain, uint32_t link) {
  Hash128& h = d.hashes.back();
  if (link_domain_[link] == domain) {
    h.add(link_label_[link]);
    return;
  }
  TRAINYARD_ASSERT(link_domain_[link] == kNone);
  link_domain_[link] = domain;
  const auto label = static_cast<uint32_t>(d.links.size());
  link_label_[link] = label;
  d.links.push_back(link);
  h.add(kNewLink);
  h.add(label);
  const uint32_t order = link_order(link);
  // Usually the last.
  const auto at = d.link_orders.empty() || d.link_orders.back() < order
                      ? d.link_orders.end()
                      : std::lower_bound(d.link_orders.begin(), d.link_orders.end(), order);
  h.add(static_cast<uint64_t>(at - d.link_orders.begin()));
  d.link_orders.insert(at, order);
  const TopologyLink& l = topology_.links()[link];
  h.add_signed(l.rate.bps());
  h.add_signed(l.delay.ps());
  h.add(l.loss_rate > 0 ? 1 : 0);
  for (const uint32_t node : {l.a, l.b}) {
    const size_t before = d.nodes.size();
    node_into_hash(d, node);
    if (d.nodes.size() == before || topology_.nodes()[node].kind == NodeKind::host) continue;
    d.switches.push_back(node);
    if (options_.partition) switch_users_[node].push_back(domain);
  }
  for (uint32_t dir = 0; dir < 2; ++dir) port_into_hash(h, 2 * link + dir);
}

void DomainFabric::port_into_hash(Hash128& h, uint32_t port) const {
  const PortMemory& m = port_memories_[port];
  h.add(m.turn);
  h.add(m.mark_credit_q32);
  for (uint32_t c = 0; c < config_.classes; ++c) h.add_signed(m.deficit[c]);
}

/// The queue pair belongs to the domain from now on, with all links that it can use.
void DomainFabric::claim(Domain& d, uint32_t domain, uint32_t qp, int64_t at) {
  GlobalQp& q = qps_[qp];
  Hash128& h = d.hashes.back();
  if (q.domain == domain) {
    h.add(kOldQp);
    h.add(q.label);
    return;
  }
  TRAINYARD_ASSERT(q.domain == kNone);
  q.domain = domain;
  q.label = static_cast<uint32_t>(d.qps.size());
  d.qps.push_back(qp);
  h.add(kNewQp);
  h.add(q.ports);
  h.add(static_cast<uint64_t>(q.id.traffic_class) << 8 | q.id.part);
  const auto pos = d.qp_ranks.empty() || d.qp_ranks.back() < q.id.rank
                       ? d.qp_ranks.end()
                       : std::lower_bound(d.qp_ranks.begin(), d.qp_ranks.end(), q.id.rank);
  h.add(static_cast<uint64_t>(pos - d.qp_ranks.begin()));
  d.qp_ranks.insert(pos, q.id.rank);
  if (config_.shared_noise) {
    // By its number in the domain in which it was first used in this busy period: a merge changes
    // nothing of it.
    if (q.label == 0) {
      d.variant = dice(config_.seed, kDiceVariant, q.id.rank, 0) % config_.noise_variants;
    }
    if (q.id.noise == 0) {
      q.id.noise = dice(config_.seed, kDiceShared, d.variant, q.label) | 1U;
      q.id.noise_from = q.posted;
    }
    h.add(q.id.noise);
  }
  // Where something is broken its way need not be this one: see adopt_links().
  const bool knows = !d.disturbed || d.mode != Domain::Mode::leader;
  for (uint32_t i = 0; knows && i < q.ports; ++i) {
    const uint32_t port = qp_ports_[q.first_port + i];
    claim_link(d, domain, port / 2);
    h.add(port & 1U);
  }
  for (uint32_t i = 1; options_.stepping && i < q.forward; ++i) {
    Domain::Use& u = d.uses[qp_ports_[q.first_port + i]];
    const uint32_t nic = qp_ports_[q.first_port];
    u.shared = u.shared || (u.count > 0 && u.nic != nic);
    u.nic = nic;
    ++u.count;
    if (u.shared) d.most_sharing = std::max(d.most_sharing, u.count);
  }
  qp_into_hash(h, q, at);
}

void DomainFabric::qp_into_hash(Hash128& h, const GlobalQp& q, int64_t at) const {
  // Who of its class is served first on its NIC.
  const uint32_t last = port_memories_[qp_ports_[q.first_port]].last_served[q.id.traffic_class];
  h.add(last == PortMemory::kNobody ? 0 : q.id.rank > last ? 1 : 2);
  if (q.memory == kNone) {
    h.add(0);
    return;
  }
  const QpMemory& m = memories_[q.memory];
  h.add(1);
  h.add_signed(m.rate);
  h.add_signed(m.next_send <= at ? -1 : m.next_send - at);
  h.add_signed(config_.paths == PathChoice::flowlet ? m.last_sent - at : 0);
  h.add(m.sent_packets);
  h.add(static_cast<uint64_t>(m.flowlets) << 32 | m.path_choice);
  h.add_signed(m.last_cnp < 0 ? -1 : m.last_cnp - at);
  h.add_signed(m.since_ack);
  h.add(static_cast<uint64_t>(m.notify) << 1 | static_cast<uint64_t>(m.increase_running));
  m.dcqcn.digest(at, m.increase_next, [&h](uint64_t x) { h.add(x); });
  h.add(m.ack_controller ? 1 : 0);
  if (m.ack_controller) controller_into_hash(h, q, *m.ack_controller, at);
}

void DomainFabric::controller_into_hash(Hash128& h, const GlobalQp& q, const AckController& c,
                                        int64_t at) const {
  const auto sink = [&h](uint64_t x) { h.add(x); };
  switch (config_.congestion) {
    case CongestionControl::hpcc: {
      // Hop i is the switch port behind the i-th link.
      std::array<int64_t, Hpcc::kMaxHops> sent{};
      for (int i = 0; i < c.hpcc.stamped_hops(); ++i) {
        const auto hop = static_cast<uint32_t>(i) + 1;
        if (hop >= q.forward) break;  // of another path: has no followers
        sent[static_cast<size_t>(i)] = tallies_[qp_ports_[q.first_port + hop]].bytes;
      }
      c.hpcc.digest(at, q.posted, sent.data(), sink);
      return;
    }
    case CongestionControl::timely:
      c.timely.digest(q.posted, sink);
      return;
    case CongestionControl::dctcp:
      c.dctcp.digest(q.posted, sink);
      return;
    case CongestionControl::none:
    case CongestionControl::dcqcn:
      return;
  }
}

/// From the domain that was simulated to one that ends at `end`.
void DomainFabric::move_controller(QpMemory& m, const GlobalQp& q,
                                   const std::vector<uint32_t>& links, const Episode& e,
                                   int64_t end) const {
  AckController c = *m.ack_controller;
  const int64_t further = q.posted - m.posted;
  c.timely.shift(further);
  c.dctcp.shift(further);
  std::array<int64_t, Hpcc::kMaxHops> more{};
  for (int i = 0; i < c.hpcc.stamped_hops(); ++i) {
    const auto hop = static_cast<uint32_t>(i) + 1;
    if (hop >= q.forward) break;
    const uint32_t port = qp_ports_[q.first_port + hop];
    const auto label = std::find(links.begin(), links.end(), port / 2) - links.begin();
    const uint32_t local = 2 * static_cast<uint32_t>(label) + (port & 1U);
    more[static_cast<size_t>(i)] = tallies_[port].bytes + e.ports[local].bytes - e.tx_bytes[local];
  }
  c.hpcc.shift(end - e.end_ps, further, more.data());
  m.ack_controller = std::make_shared<const AckController>(c);
}

/// What a controller keeps can be told relative to the domain's start.
bool DomainFabric::may_be_followed() const {
  if (config_.congestion != CongestionControl::hpcc) return true;
  // Rounded stamps depend on when and after how many bytes; those of several paths mix.
  return !config_.hpcc.quantised && config_.paths == PathChoice::per_flow;
}

/// Tells the domain. Its links and queue pairs are its own, or nobody's.
void DomainFabric::add(uint32_t domain, const Input& in) {
  Domain& d = domains_[domain];
  d.inputs.push_back(in);
  d.hashes.push_back(d.hashes.empty() ? Hash128() : d.hashes.back());
  const auto say = [&](Word word) {
    Hash128& h = d.hashes.back();
    h.add(word);
    h.add_signed(in.at - d.start);
    h.add(in.before ? 1 : 0);
  };
  switch (in.kind) {
    case Input::Kind::transfer: {
      say(kTransfer);
      std::vector<uint32_t> qps;
      queue_pairs(transfers_[in.id], qps);
      for (const uint32_t q : qps) claim(d, domain, q, in.at);
      d.hashes.back().add_signed(transfers_[in.id].size.count());
      d.payload += transfers_[in.id].size.count();
      ++d.messages;
      d.transfers.push_back(in.id);
      break;
    }
    case Input::Kind::open: {
      say(kOpen);
      Call& c = calls_[in.id];
      for (const uint32_t q : *c.qps) claim(d, domain, q, in.at);
      d.hashes.back().add(c.plan->digest);
      d.hashes.back().add(c.info.traffic_class);
      d.payload += c.plan->payload;
      d.messages += static_cast<int64_t>(c.plan->messages);
      c.domain = domain;
      c.label = static_cast<uint32_t>(d.calls.size());
      d.calls.push_back(in.id);
      break;
    }
    case Input::Kind::change:
      say(kChange);
      for (uint32_t q = 0; q < qps_.size(); ++q) claim(d, domain, q, in.at);
      if (d.mode != Domain::Mode::leader) claim_link(d, domain, changes_[in.id].link);
      break;
    case Input::Kind::arrive:
      say(kArrive);
      d.hashes.back().add(calls_[in.id].label);
      d.hashes.back().add(in.member);
      break;
  }
  switch (d.mode) {
    case Domain::Mode::reserved:
      throw StretchConflict();
    case Domain::Mode::pending:
      break;
    case Domain::Mode::leader:
      if (in.kind != Input::Kind::arrive && d.run->packets() != nullptr && worth_stepping(d)) {
        // It has come to contend with others.
        begin_anew(domain);
        break;
      }
      if (d.reached > in.at && in.at >= now_) {
        // Whoever tells it has been simulated another way than when it was bounded.
        begin_anew(domain);
        d.ended = false;
        break;
      }
      feed(*d.run, in);
      clock(domain);
      if (d.disturbed) adopt_links(domain);
      if (d.recorded) {
        d.episode->log.push_back(
            {in.at - d.start, static_cast<uint32_t>(d.inputs.size() - 1), 0, Episode::Kind::input});
        d.episode->hashes.push_back(d.hashes.back());
        store_.index(d.episode);
        wake_followers(*d.episode);
      }
      break;
    case Domain::Mode::follower: {
      const Episode& e = *d.episode;
      if (d.pos < e.log.size() && e.log[d.pos].kind == Episode::Kind::input &&
          e.hashes[e.log[d.pos].label] == d.hashes.back()) {
        ++d.pos;
        set_pools(d, e.pools);  // on links that it has only now
        schedule(domain);
        break;
      }
      d.mode = Domain::Mode::pending;
      ++d.version;
      pending_.push_back(domain);
      break;
    }
  }
}

/// Passes an input on to the simulated domain.
void DomainFabric::feed(DomainRun& run, const Input& in) {
  const auto declare = [&](uint32_t qp) {
    const GlobalQp& q = qps_[qp];
    if (q.label < run.qp_count()) return;
    TRAINYARD_ASSERT(q.label == run.qp_count());
    run.declare(q.id, memory(q));
  };
  switch (in.kind) {
    case Input::Kind::transfer: {
      std::vector<uint32_t> qps;
      queue_pairs(transfers_[in.id], qps);
      for (const uint32_t q : qps) declare(q);
      run.start(transfers_[in.id], Time::ps(in.at), run.stepped() != nullptr ? in_bps_of(qps) : 0);
      return;
    }
    case Input::Kind::open:
      for (const uint32_t q : *calls_[in.id].qps) declare(q);
      if (run.stepped() != nullptr) {
        const Call& c = calls_[in.id];
        run.open(c.info, {&c.plan->inbound, inbound_bps(c)});
      } else {
        run.open(calls_[in.id].info);
      }
      return;
    case Input::Kind::change:
      for (uint32_t q = 0; q < qps_.size(); ++q) declare(q);
      run.packets()->schedule(changes_[in.id]);
      return;
    case Input::Kind::arrive:
      run.arrive(calls_[in.id].label, in.member, Time::ps(in.at));
      return;
  }
}

/// The links and queue pairs of the domain are nobody's again; its place is free.
void DomainFabric::release(uint32_t domain) {
  Domain& d = domains_[domain];
  for (const uint32_t link : d.links) link_domain_[link] = kNone;
  for (const uint32_t q : d.qps) qps_[q].domain = kNone;
  for (const uint32_t node : d.switches) {
    if (!options_.partition) break;
    const auto it = switch_users_.find(node);
    std::erase(it->second, domain);
    if (it->second.empty()) switch_users_.erase(it);
  }
  leaders_.remove(domain);
  if (d.mode == Domain::Mode::pending) std::erase(pending_, domain);
  if (d.mode == Domain::Mode::leader && d.recorded && d.episode->open) {
    d.episode->open = false;
    if (d.run) d.run->record_trace(nullptr);
    wake_followers(*d.episode);
  }
  const uint32_t version = d.version + 1;
  d = Domain();
  d.version = version;
  free_domains_.push_back(domain);
  --domains_active_;
}

/// One domain of several: with all their inputs, from the first start on.
uint32_t DomainFabric::merge(const std::vector<uint32_t>& domains) {
  std::vector<Input> inputs;
  int64_t start = INT64_MAX;
  uint64_t outputs = 0;
  int64_t again = 0;
  std::unordered_map<uint64_t, int64_t> told;
  bool approximate = false;
  bool no_stepping = false;
  bool costly = false;
  for (const uint32_t i : domains) {
    Domain& d = domains_[i];
    if (d.mode == Domain::Mode::reserved) throw StretchConflict();
    told.merge(d.told);
    approximate = approximate || d.approximate;
    no_stepping = no_stepping || d.no_stepping;
    costly = costly || d.costly;
    inputs.insert(inputs.end(), d.inputs.begin(), d.inputs.end());
    start = std::min(start, d.start);
    outputs += d.outputs;
    again = std::max(again, d.again_until);
  }
  std::sort(inputs.begin(), inputs.end(),
            [](const Input& a, const Input& b) { return a.serial < b.serial; });
  for (const uint32_t i : domains) release(i);
  const uint32_t index = new_domain(start);
  for (const Input& in : inputs) add(index, in);
  domains_[index].outputs = outputs;
  domains_[index].again_until = std::max(again, now_);
  domains_[index].told = std::move(told);
  domains_[index].approximate = approximate;
  domains_[index].no_stepping = no_stepping;
  domains_[index].costly = costly;
  return index;
}

/// They are stepped, and none is ahead of what it has told.
bool DomainFabric::can_join(const std::vector<uint32_t>& domains) const {
  if (!options_.joins || !options_.stepping || config_.shared_noise || replaying_) return false;
  return std::all_of(domains.begin(), domains.end(), [this](uint32_t i) {
    const Domain& d = domains_[i];
    return d.mode == Domain::Mode::leader && d.run->stepped() != nullptr && d.ready.empty() &&
           !d.ended && !d.disturbed;
  });
}

/// One domain of several, which goes on from where they are. Labels are no longer in the order of
/// the inputs.
uint32_t DomainFabric::join(const std::vector<uint32_t>& domains) {
  const uint32_t first = domains[0];
  Domain& a = domains_[first];
  const auto leave_record = [this](Domain& d) {
    if (!d.recorded) return;
    d.run->record_trace(nullptr);
    d.recorded = false;
    const std::shared_ptr<Episode> e = std::move(d.episode);
    e->open = false;
    wake_followers(*e);
  };
  leave_record(a);
  a.joined = true;
  for (size_t i = 1; i < domains.size(); ++i) {
    const uint32_t other = domains[i];
    Domain& b = domains_[other];
    leave_record(b);
    a.run->absorb(*b.run);
    a.start = std::min(a.start, b.start);
    a.again_until = std::max(a.again_until, b.again_until);
    a.reached = std::max(a.reached, b.reached);
    a.outputs += b.outputs;
    a.events_seen += b.events_seen;
    a.told.merge(b.told);
    a.no_stepping = a.no_stepping || b.no_stepping;
    a.costly = a.costly || b.costly;
    a.most_sharing = std::max(a.most_sharing, b.most_sharing);
    a.payload += b.payload;
    a.messages += b.messages;
    a.uses.merge(b.uses);
    a.inputs.insert(a.inputs.end(), b.inputs.begin(), b.inputs.end());
    a.hashes.insert(a.hashes.begin(), b.hashes.begin(), b.hashes.end());
    for (const uint32_t q : b.qps) {
      qps_[q].domain = first;
      qps_[q].label = static_cast<uint32_t>(a.qps.size());
      a.qps.push_back(q);
    }
    for (const uint32_t link : b.links) {
      link_domain_[link] = first;
      link_label_[link] = static_cast<uint32_t>(a.links.size());
      a.links.push_back(link);
    }
    for (const uint32_t c : b.calls) {
      calls_[c].domain = first;
      calls_[c].label = static_cast<uint32_t>(a.calls.size());
      a.calls.push_back(c);
    }
    a.transfers.insert(a.transfers.end(), b.transfers.begin(), b.transfers.end());
    for (const auto list : {&Domain::link_orders, &Domain::qp_ranks}) {
      const size_t middle = (a.*list).size();
      (a.*list).insert((a.*list).end(), (b.*list).begin(), (b.*list).end());
      std::inplace_merge((a.*list).begin(), (a.*list).begin() + static_cast<std::ptrdiff_t>(middle),
                         (a.*list).end());
    }
    for (const auto& [node, label] : b.nodes) {
      (void)label;
      a.nodes.emplace(node, static_cast<uint32_t>(a.nodes.size()));
    }
    for (const uint32_t node : b.switches) {
      std::vector<uint32_t>& users = switch_users_[node];
      std::erase(users, other);
      if (std::find(users.begin(), users.end(), first) != users.end()) continue;
      users.push_back(first);
      a.switches.push_back(node);
    }
    leaders_.remove(other);
    const uint32_t version = b.version + 1;
    b = Domain();
    b.version = version;
    free_domains_.push_back(other);
    --domains_active_;
    ++stats_.joined;
  }
  std::sort(a.inputs.begin(), a.inputs.end(),
            [](const Input& x, const Input& y) { return x.serial < y.serial; });
  clock(first);
  return first;
}

}  // namespace trainyard
