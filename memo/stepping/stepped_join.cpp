// SPDX-License-Identifier: MIT
// Two parts of a run that go on as one.
#include <algorithm>
#include <utility>

#include "memo/stepping/stepped_fabric.h"
#include "sim/errors.h"

namespace trainyard {
namespace {

void append(std::vector<uint32_t>& to, const std::vector<uint32_t>& from, uint32_t offset) {
  for (const uint32_t i : from) to.push_back(i + offset);
}

template <typename T>
void append(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

void add(FabricTotals& a, const FabricTotals& b) {
  a.events += b.events;
  a.data_packets += b.data_packets;
  a.ack_packets += b.ack_packets;
  a.cnp_packets += b.cnp_packets;
  a.payload_bytes += b.payload_bytes;
  a.rate_changes += b.rate_changes;
}

}  // namespace

void SteppedFabric::absorb(SteppedFabric& o) {
  TRAINYARD_ASSERT(registry_ != nullptr && registry_ == o.registry_ && trace_sink_ == nullptr);
  now_ = std::max(now_, o.now_);
  began_ = std::min(began_, o.began_);
  pauses_not_followed_ += o.pauses_not_followed_;
  TRAINYARD_ASSERT(events_.empty() || events_.next_time() >= now_);
  TRAINYARD_ASSERT(o.events_.empty() || o.events_.next_time() >= now_);
  const auto ports = static_cast<uint32_t>(ports_.size());
  const auto nics = static_cast<uint32_t>(nics_.size());
  const auto qps = static_cast<uint32_t>(qps_.size());
  const auto hops = static_cast<uint32_t>(hops_.size());
  const auto reverse = static_cast<uint32_t>(reverse_.size());
  const auto messages = static_cast<uint32_t>(messages_.size());
  const auto records = static_cast<uint32_t>(records_.size());
  TRAINYARD_ASSERT(messages + o.messages_.size() < (1U << kKindShift));
  TRAINYARD_ASSERT(hops + o.hops_.size() < (1U << kKindShift));
  TRAINYARD_ASSERT(reverse + o.reverse_.size() < (1U << kKindShift));
  const auto move = [](uint32_t& index, uint32_t by) {
    if (index != kNil) index += by;
  };

  // They may have switches in common, but no ports.
  std::vector<uint32_t> node(o.nodes_.size());
  for (size_t i = 0; i < o.nodes_.size(); ++i) {
    Node& n = o.nodes_[i];
    const auto [it, added] = node_index_.emplace(n.global, static_cast<uint32_t>(nodes_.size()));
    node[i] = it->second;
    if (added) {
      for (uint32_t& p : n.ports) p += ports;
      nodes_.push_back(std::move(n));
    } else {
      append(nodes_[it->second].ports, n.ports, ports);
    }
  }
  for (const auto& [global, local] : o.port_index_) {
    const bool added = port_index_.emplace(global, local + ports).second;
    TRAINYARD_ASSERT(added);
  }
  for (Port& p : o.ports_) {
    p.owner = node[p.owner];
    p.peer = node[p.peer];
    move(p.nic, nics);
    move(p.alone, qps);
    move(p.ack_hops, reverse);
    for (uint32_t& h : p.members) h += hops;
    for (uint32_t& h : p.heap) h += hops;
  }
  append(ports_, o.ports_);
  for (Nic& n : o.nics_) {
    for (uint32_t& q : n.active) q += qps;
  }
  append(nics_, o.nics_);
  for (Hop& h : o.hops_) {
    h.port += ports;
    h.qp += qps;
  }
  append(hops_, o.hops_);
  append(path_, o.path_, ports);
  append(acked_before_, o.acked_before_);
  for (AckHop& h : o.reverse_) {
    h.port += ports;
    h.qp += qps;
    move(h.before, reverse);
    move(h.after, reverse);
  }
  append(reverse_, o.reverse_);
  for (QueuePair& q : o.qps_) {
    q.forward += hops;
    q.reverse += reverse;
    q.nic += nics;
    move(q.head, messages);
    move(q.tail, messages);
    move(q.latest, messages);
  }
  append(qps_, o.qps_);
  for (const auto& [which, index] : o.qp_index_) qp_index_.emplace(which, index + qps);
  for (const auto& [pair, count] : o.pair_count_) pair_count_[pair] += count;
  for (Message& m : o.messages_) {
    m.record += records;
    move(m.qp, qps);
    move(m.next, messages);
    move(m.other_part, messages);
  }
  append(messages_, o.messages_);
  append(free_messages_, o.free_messages_, messages);
  append(records_, o.records_);
  append(parts_left_, o.parts_left_);
  for (uint32_t& m : o.first_part_) move(m, messages);
  append(first_part_, o.first_part_);
  append(free_records_, o.free_records_, records);

  while (!o.events_.empty()) {
    const Event e = o.events_.pop();
    const auto kind = static_cast<Kind>(e.key >> kKindShift);
    uint32_t index = e.key & ((1U << kKindShift) - 1);
    switch (kind) {
      case kStart:
      case kArrive:
      case kDelivered:
      case kAcknowledged:
        index += messages;
        break;
      case kFront:
      case kLeave:
      case kResume:
        index += hops;
        break;
      case kAcksLeave:
        index += reverse;
        break;
      case kPort:
        index += ports;
        break;
      case kCut:
      case kIncrease:
      case kBytes:
      case kNotify:
      case kWindow:
      case kSender:
        index += qps;
        break;
      case kRest:
        break;
    }
    events_.push(e.time_ps, key(kind, index), e.arg);
  }
  outstanding_ += o.outstanding_;
  rests_at_ = std::max(rests_at_, o.rests_at_);
  forgotten_transmissions_ += o.forgotten_transmissions_;
  forgotten_bytes_ += o.forgotten_bytes_;
  forgotten_crossed_ += o.forgotten_crossed_;
  add(totals_, o.totals_);
  fingerprint_ += o.fingerprint_;
  carried_ += o.carried_;
  asked_ += o.asked_;
  overshoot_ += o.overshoot_;
  drew_dice_ = drew_dice_ || o.drew_dice_;
  if (declined_.empty()) declined_ = o.declined_;
}

}  // namespace trainyard
