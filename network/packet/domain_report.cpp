// SPDX-License-Identifier: MIT
// Records, balances, who waits for whom.
#include <algorithm>
#include <utility>

#include "network/link_record.h"
#include "network/packet/domain.h"

namespace trainyard {

std::string PacketDomain::port_name(uint32_t pi) const {
  return topology_.nodes()[topology_.from(ports_[pi].global)].name;
}

std::string PacketDomain::link_name(uint32_t pi) const {
  return port_name(pi) + " -> " + topology_.nodes()[topology_.to(ports_[pi].global)].name;
}

const std::vector<TransferRecord>& PacketDomain::transfers() {
  // Counts of a period under way begin anew.
  if (period_) period_->has_reference = false;
  for (QueuePair& q : qps_) {
    if (q.receive_transfer != kNil) {
      TransferRecord& r = records_[states_[q.receive_transfer].record];
      r.packets += q.receive_packets;
      r.transmissions += q.receive_transmissions;
      q.receive_packets = q.receive_transmissions = 0;
    }
    if (q.ack_transfer != kNil) {
      TransferRecord& r = records_[states_[q.ack_transfer].record];
      r.transmissions += q.ack_transmissions;
      r.cnps += q.ack_cnps;
      q.ack_transmissions = q.ack_cnps = 0;
    }
  }
  return records_;
}

/// A queue waits for the queues, one switch further, that hold packets which came through it.
std::vector<std::string> PacketDomain::cyclic_wait() const {
  const auto lanes = static_cast<uint32_t>(ports_.size()) * classes_;
  // Stopped queues with work, and for each the queues at its other end that hold its packets.
  std::vector<std::vector<uint32_t>> waits_for(lanes);
  for (uint32_t pi = 0; pi < ports_.size(); ++pi) {
    for (uint32_t c = 0; c < classes_; ++c) {
      const Lane& l = lane(pi, c);
      if (!l.paused || ports_[pi].from_host) continue;
      for (uint32_t k = l.data.head; k != kNil; k = packets_[k].next) {
        const uint32_t in = lane_index(paths_[packets_[k].path - 1], c);
        auto& list = waits_for[in];
        if (list.empty() || list.back() != lane_index(pi, c)) list.push_back(lane_index(pi, c));
      }
    }
  }
  // Depth first; grey nodes are on the way from the root.
  std::vector<uint8_t> colour(lanes, 0);
  std::vector<std::pair<uint32_t, size_t>> way;
  for (uint32_t root = 0; root < lanes; ++root) {
    if (colour[root] != 0 || !lane(root / classes_, root % classes_).paused) continue;
    way.assign(1, {root, 0});
    colour[root] = 1;
    while (!way.empty()) {
      auto& [at, edge] = way.back();
      if (edge == waits_for[at].size()) {
        colour[at] = 2;
        way.pop_back();
        continue;
      }
      const uint32_t to = waits_for[at][edge++];
      if (colour[to] == 0) {
        colour[to] = 1;
        way.emplace_back(to, 0);
      } else if (colour[to] == 1) {
        std::vector<std::string> names;
        bool inside = false;
        for (const auto& step : way) {
          inside = inside || step.first == to;
          if (inside) names.push_back(link_name(step.first / classes_));
        }
        return names;
      }
    }
  }
  return {};
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
    if (ports_[q.port].down) out += " (its NIC's link is down)";
    if (lane(q.port, q.traffic_class).paused) out += " (its NIC is paused)";
    ++shown;
  }
  size_t paused = 0;
  std::string first;
  for (uint32_t i = 0; i < ports_.size(); ++i) {
    bool stopped = false;
    for (uint32_t c = 0; c < classes_; ++c) stopped = stopped || lane(i, c).paused;
    if (!stopped) continue;
    if (paused++ == 0) first = link_name(i);
  }
  if (paused > 0) {
    out += "; " + std::to_string(paused) + " paused links, first " + first;
    const auto cycle = cyclic_wait();
    if (!cycle.empty()) {
      out += "; deadlock, queues wait for each other in a circle: ";
      for (const auto& name : cycle) out += name + ", ";
      out += "and so on";
    }
  }
  return out.empty() ? "nothing is outstanding" : out;
}

std::vector<LinkRecord> PacketDomain::links() const {
  std::vector<LinkRecord> out;
  out.reserve(ports_.size());
  const std::vector<double> queue_pairs = queue_pairs_by_port();
  for (uint32_t pi = 0; pi < ports_.size(); ++pi) {
    const Port& p = ports_[pi];
    int64_t paused = 0;
    for (uint32_t c = 0; c < classes_; ++c) {
      const LaneState& state = lane_states_[lane_index(pi, c)];
      paused += state.paused_total + (lane(pi, c).paused ? now_ - state.paused_since : 0);
    }
    LinkRecord r = link_record(topology_, p.global, Rate::bps(p.rate_bps));
    r.packets = p.packets;
    r.bytes = p.bytes;
    r.data_bytes = p.payload;
    r.ecn_marks = p.marked;
    r.pauses_received = p.pauses;
    r.paused = Time::ps(paused);
    r.busy = Time::ps(p.busy);
    r.peak_queue_bytes = p.peak;
    r.drops = p.drops;
    r.queue_pairs = queue_pairs[pi];
    out.push_back(std::move(r));
  }
  return out;
}

int64_t PacketDomain::no_delivery_before() const {
  if (starts_pending_ > 0 || changes_pending_ > 0 || config_.receive_delay_ps > 0) return now_;
  int64_t first = kNever;
  for (const QueuePair& q : qps_) {
    if (q.receive_transfer == kNil) continue;
    // What is missing comes through the last link, where one packet may be under way already.
    const Port& last = ports_[paths_[q.forward + q.hops - 1]];
    const int64_t missing = states_[q.receive_transfer].end - q.received - config_.payload;
    const int64_t time =
        missing <= 0
            ? 0
            : transmission_time(Bytes(missing), Rate::bps(last.rate_bps), Time::ps(1)).ps();
    first = std::min(first, now_ + time);
  }
  return first;
}

PortTally PacketDomain::tally(uint32_t pi) const {
  const Port& p = ports_[pi];
  PortTally t;
  t.packets = p.packets;
  t.marked = p.marked;
  t.pauses = p.pauses;
  t.drops = p.drops;
  t.bytes = p.bytes;
  t.payload = p.payload;
  t.busy = p.busy;
  t.peak = p.peak;
  for (uint32_t c = 0; c < classes_; ++c) {
    const LaneState& state = lane_states_[lane_index(pi, c)];
    t.paused += state.paused_total + (lane(pi, c).paused ? now_ - state.paused_since : 0);
  }
  return t;
}

void PacketDomain::pool_use(std::vector<PoolUse>& out) const {
  std::vector<uint32_t> entry(nodes_.size(), kNil);
  const size_t first = out.size();
  for (uint32_t pi = 0; pi < ports_.size(); ++pi) {
    const Port& p = ports_[pi];
    const Node& n = nodes_[p.peer];
    if (n.host) continue;
    if (entry[p.peer] == kNil) {
      entry[p.peer] = static_cast<uint32_t>(out.size() - first);
      out.push_back({pi, n.peak, n.touchy ? -1 : n.pool});
    }
    if (config_.pfc == PfcMode::static_threshold || p.over <= 0) continue;
    // The threshold is alpha times the free pool; it must stay above what the ingress held.
    const int64_t needs =
        ((static_cast<int64_t>(p.over) + 1) * 65536 + p.alpha_q16 - 1) / p.alpha_q16;
    PoolUse& use = out[first + entry[p.peer]];
    if (use.room >= 0) use.room = std::max<int64_t>(0, std::min(use.room, n.pool - needs));
  }
}

LinkSeries PacketDomain::take_link_series() {
  if (telemetry_ == nullptr) return {};
  const auto telemetry = std::move(telemetry_);
  watched_ = observer_ != nullptr;
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
        hops = hops_done(p) - (on_wire ? 0 : 1);
      }
      transmissions += hops;
      bytes += static_cast<int64_t>(hops) * p.wire;
    }
  };
  int64_t used = 0;
  int64_t paused = 0;
  for (uint32_t pi = 0; pi < ports_.size(); ++pi) {
    walk(ports_[pi].control, false);
    walk(ports_[pi].wire, true);
    for (uint32_t c = 0; c < classes_; ++c) {
      const Lane& l = lane(pi, c);
      walk(l.data, false);
      used += l.used + l.headroom_used;
      paused += l.pause_sent ? 1 : 0;
    }
  }
  for (const Sender& s : senders_) walk(s.waiting, true);
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
    acknowledged += q.una - q.base - (q.una == q.posted ? q.padding : 0);
    delivered += q.received - q.base - (q.received == q.posted ? q.padding : 0);
    if (q.una > q.received) fail("bytes acknowledged and received", q.una, q.received);
  }
  // Under selective repeat the padding of messages under way is not known here.
  if ((!selective() || outstanding_ == 0) && delivered != t.payload_bytes)
    fail("payload delivered", delivered, t.payload_bytes);
  if (outstanding_ == 0) {
    int64_t asked = 0;
    for (const TransferRecord& r : records_) asked += r.bytes;
    if (asked != acknowledged) fail("bytes asked for and acknowledged", asked, acknowledged);
  }
}

}  // namespace trainyard
