// SPDX-License-Identifier: MIT
#include "network/flow/path_book.h"

#include <algorithm>

#include "network/link_record.h"
#include "sim/dice.h"
#include "sim/errors.h"

namespace trainyard {
namespace {

enum Trace : uint32_t { kTraceDelivered = 1, kTraceAcked };

}  // namespace

PathBook::PathBook(const Topology& topology, const PacketConfig& config)
    : topology_(topology),
      config_(config),
      routing_(topology, config.routing),
      routes_(topology, config.routing, config.routes) {}

uint32_t PathBook::visit(uint32_t global_port) {
  const uint32_t even = global_port & ~1U;
  const auto [it, added] = port_index_.emplace(even, static_cast<uint32_t>(ports_.size()));
  if (added) {
    for (uint32_t dir = 0; dir < 2; ++dir) {
      Port p;
      p.global = even + dir;
      p.rate_bps = p.carries_bps = topology_.link_of(even).rate.bps();
      const int64_t full = config_.payload + config_.header;
      if (const int64_t ps = send_ps(full, p.rate_bps); config_.resolution_ps > 1 && ps > 0) {
        p.carries_bps = full * 8 * 1'000'000'000'000 / ps;
      }
      ports_.push_back(p);
    }
  }
  return it->second + (global_port & 1U);
}

void PathBook::route(const FlowTuple& tuple, std::vector<uint32_t>& out) {
  scratch_.clear();
  routes_.path(routing_, tuple, scratch_);
  for (const uint32_t port : scratch_) out.push_back(visit(port));
}

int64_t PathBook::send_ps(int64_t bytes, int64_t rate_bps) const {
  return transmission_time(Bytes(bytes), Rate::bps(rate_bps), Time::ps(config_.resolution_ps)).ps();
}

uint32_t PathBook::find(const Transfer& t) const {
  if (!config_.persistent_qps) return kNone;
  const auto it = qp_index_.find({t.src, t.dst, t.channel});
  return it == qp_index_.end() ? kNone : it->second;
}

uint32_t PathBook::queue_pair(const Transfer& t) {
  if (const uint32_t known = find(t); known != kNone) return known;
  const auto index = static_cast<uint32_t>(qps_.size());
  const uint32_t src_node = topology_.hosts()[t.src];
  const uint32_t dst_node = topology_.hosts()[t.dst];
  const uint32_t nth = pair_count_[(static_cast<uint64_t>(t.src) << 32) | t.dst]++;
  const auto src_port = static_cast<uint16_t>(kSourcePortBase + nth);
  QueuePair q;
  q.src = t.src;
  q.dst = t.dst;
  route({src_node, dst_node, src_port, kDestinationPort}, q.forward);
  route({dst_node, src_node, kDestinationPort, src_port}, q.reverse);
  q.slowest_bps = INT64_MAX;
  const int64_t full = config_.payload + config_.header;
  int64_t slowest_store = 0;
  for (const uint32_t p : q.forward) {
    q.slowest_bps = std::min(q.slowest_bps, ports_[p].carries_bps);
    q.delay_ps += topology_.link_of(ports_[p].global).delay.ps();
    const int64_t store = send_ps(full, ports_[p].rate_bps);
    q.full_store_ps += store;
    slowest_store = std::max(slowest_store, store);
  }
  q.full_store_ps -= slowest_store;
  for (const uint32_t p : q.reverse) {
    q.return_delay_ps += topology_.link_of(ports_[p].global).delay.ps() +
                         send_ps(config_.ack_bytes, ports_[p].rate_bps);
  }
  q.identity = dice(t.channel, nth, t.src, t.dst);
  qps_.push_back(std::move(q));
  if (config_.persistent_qps) qp_index_[{t.src, t.dst, t.channel}] = index;
  return index;
}

MessageCost PathBook::cost(uint32_t qp, int64_t bytes) const {
  const QueuePair& q = qps_[qp];
  MessageCost c;
  c.packets = (bytes - 1) / config_.payload + 1;
  c.acks = (c.packets - 1) / config_.ack_interval + 1;
  int64_t headers = 0;
  if (__builtin_mul_overflow(c.packets, config_.header, &headers) ||
      __builtin_add_overflow(bytes, headers, &c.wire) || c.wire > INT64_MAX / 8) {
    throw UserError("a message of " + print_bytes(Bytes(bytes)) + " is too large",
                    "the largest is about 1 EB with its headers");
  }
  c.ack_wire = c.acks * config_.ack_bytes;
  c.return_ps = q.return_delay_ps;
  c.latency_ps = q.delay_ps;
  if (c.packets > 1) {
    c.latency_ps += q.full_store_ps;
  } else {
    int64_t slowest = 0;
    for (const uint32_t p : q.forward) {
      const int64_t store = send_ps(c.wire, ports_[p].rate_bps);
      c.latency_ps += store;
      slowest = std::max(slowest, store);
    }
    c.latency_ps -= slowest;
  }
  return c;
}

TransferId PathBook::add(const Transfer& t, Time at) {
  TRAINYARD_ASSERT(t.size.count() > 0 && t.src != t.dst);
  TRAINYARD_ASSERT(t.src < topology_.hosts().size() && t.dst < topology_.hosts().size());
  TransferRecord r;
  r.src = t.src;
  r.dst = t.dst;
  r.owner = t.owner;
  r.bytes = t.size.count();
  r.start = at;
  records_.push_back(r);
  channels_.push_back(t.channel);
  ++outstanding_;
  return static_cast<TransferId>(records_.size() - 1);
}

/// @returns link transmissions of its data and ACKs.
uint64_t PathBook::book(uint32_t qp, int64_t bytes, const MessageCost& cost) {
  QueuePair& q = qps_[qp];
  q.packets += static_cast<uint64_t>(cost.packets);
  q.acks += static_cast<uint64_t>(cost.acks);
  q.wire += cost.wire;
  q.ack_wire += cost.ack_wire;
  q.payload += bytes;
  const uint64_t transmissions = static_cast<uint64_t>(cost.packets) * q.forward.size() +
                                 static_cast<uint64_t>(cost.acks) * q.reverse.size();
  totals_.data_packets += static_cast<uint64_t>(cost.packets);
  totals_.ack_packets += static_cast<uint64_t>(cost.acks);
  totals_.transmissions += transmissions;
  totals_.wire_bytes += cost.wire * static_cast<int64_t>(q.forward.size()) +
                        cost.ack_wire * static_cast<int64_t>(q.reverse.size());
  return transmissions;
}

void PathBook::carry(TransferId id, uint32_t qp, const MessageCost& cost) {
  TransferRecord& r = records_[id];
  r.hops = static_cast<uint32_t>(qps_[qp].forward.size());
  r.packets = static_cast<uint64_t>(cost.packets);
  r.transmissions = book(qp, r.bytes, cost);
}

uint64_t PathBook::carry_unrecorded(uint32_t qp, int64_t bytes, const MessageCost& cost) {
  const uint64_t transmissions = book(qp, bytes, cost);
  unrecorded_transmissions_ += transmissions;
  unrecorded_crossed_ += bytes * static_cast<int64_t>(qps_[qp].forward.size());
  unrecorded_bytes_ += bytes;
  return transmissions;
}

void PathBook::delivered(uint32_t qp, int64_t bytes, Time at) {
  totals_.payload_bytes += bytes;
  // Who and which message of it, not the number of the transfer: the order of calls at one instant
  // is no part of the trajectory.
  fingerprint_ +=
      dice(static_cast<uint64_t>(at.ps()), kTraceDelivered, qps_[qp].identity, qps_[qp].messages++);
}

void PathBook::acknowledged(uint32_t src, uint32_t dst, int64_t bytes, Time at) {
  fingerprint_ += dice(static_cast<uint64_t>(at.ps()), kTraceAcked,
                       (static_cast<uint64_t>(src) << 32) | dst, static_cast<uint64_t>(bytes));
}

void PathBook::deliver(TransferId id, uint32_t qp, Time at) {
  TransferRecord& r = records_[id];
  if (r.acknowledged > r.start) --outstanding_;  // before the host saw it
  r.delivered = at;
  delivered(qp, r.bytes, at);
}

void PathBook::acknowledge(TransferId id, Time at) {
  TransferRecord& r = records_[id];
  if (r.delivered > r.start) --outstanding_;
  r.acknowledged = at;
  acknowledged(r.src, r.dst, r.bytes, at);
}

void PathBook::deliver_unrecorded(uint32_t qp, int64_t bytes, Time delivered_at,
                                  Time acknowledged_at) {
  delivered(qp, bytes, delivered_at);
  acknowledged(qps_[qp].src, qps_[qp].dst, bytes, acknowledged_at);
}

std::string PathBook::describe_outstanding() const {
  std::string out;
  int shown = 0;
  for (const TransferRecord& r : records_) {
    if (r.acknowledged > r.start && r.delivered > r.start) continue;
    if (shown == 3) {
      out += ", ...";
      break;
    }
    out += shown == 0 ? "" : ", ";
    out += "rank " + std::to_string(r.src) + " -> rank " + std::to_string(r.dst) + ", " +
           std::to_string(r.bytes) + " bytes, " +
           (r.delivered > r.start ? "delivered, not acknowledged" : "not delivered");
    ++shown;
  }
  return out.empty() ? "nothing is outstanding" : out;
}

std::vector<PathBook::PortSums> PathBook::port_sums() const {
  std::vector<PortSums> sums(ports_.size());
  for (const QueuePair& q : qps_) {
    for (const uint32_t p : q.forward) {
      sums[p].packets += q.packets;
      sums[p].bytes += q.wire;
      sums[p].payload += q.payload;
    }
    for (const uint32_t p : q.reverse) {
      sums[p].packets += q.acks;
      sums[p].bytes += q.ack_wire;
    }
  }
  return sums;
}

std::vector<LinkRecord> PathBook::links() const {
  std::vector<LinkRecord> out;
  out.reserve(ports_.size());
  const std::vector<PortSums> sums = port_sums();
  for (size_t i = 0; i < ports_.size(); ++i) {
    const Port& p = ports_[i];
    LinkRecord r = link_record(topology_, p.global, Rate::bps(p.rate_bps));
    r.packets = sums[i].packets;
    r.bytes = sums[i].bytes;
    r.data_bytes = sums[i].payload;
    r.busy = transmission_time(Bytes(r.bytes), Rate::bps(p.carries_bps));
    out.push_back(std::move(r));
  }
  for (const QueuePair& q : qps_) {
    for (const uint32_t p : q.forward) out[p].queue_pairs += 1;
  }
  return out;
}

FabricTotals PathBook::totals(uint64_t events) const {
  FabricTotals t = totals_;
  t.events = events;
  return t;
}

void PathBook::check_conservation() const {
  const auto fail = [](const std::string& what, auto a, auto b) {
    throw SimulationError("conservation broken: " + what + ": " + std::to_string(a) + " against " +
                          std::to_string(b) + "; please report this scenario");
  };
  uint64_t transmissions = unrecorded_transmissions_;
  int64_t crossed = unrecorded_crossed_, asked = unrecorded_bytes_;
  for (const TransferRecord& r : records_) {
    transmissions += r.transmissions;
    if (r.transmissions > 0) crossed += r.bytes * static_cast<int64_t>(r.hops);
    asked += r.bytes;
  }
  uint64_t on_links = 0;
  int64_t payload = 0;
  for (const PortSums& p : port_sums()) {
    on_links += p.packets;
    payload += p.payload;
  }
  if (transmissions != on_links) fail("packets of flows and of links", transmissions, on_links);
  if (crossed != payload) fail("payload of flows and of links", crossed, payload);
  if (outstanding_ == 0 && asked != totals_.payload_bytes) {
    fail("bytes asked for and delivered", asked, totals_.payload_bytes);
  }
}

}  // namespace trainyard
