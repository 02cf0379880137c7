// SPDX-License-Identifier: MIT
// What a domain tells its observers, and what it has counted beside.
#include <algorithm>
#include <tuple>
#include <utility>

#include "network/packet/domain.h"

namespace trainyard {

void PacketDomain::observe(const ObserveOptions& options) {
  TRAINYARD_ASSERT(now_ == 0 && qps_.empty());
  observer_.reset();
  if (options.any()) {
    observer_ = std::make_unique<Observer>();
    if (options.qp_window > Time()) {
      observer_->qps = std::make_unique<QpTelemetry>(options.qp_window);
    }
    if (options.sample_q32 > 0) {
      observer_->packets = std::make_unique<PacketTracer>(options.sample_q32, options.seed);
      carries_ = true;  // a packet must be in the pool until it is known to have arrived
    }
    if (options.flows) observer_->flows = std::make_unique<FlowCounter>();
  }
  watched_ = telemetry_ != nullptr || observer_ != nullptr;
}

void PacketDomain::watch_queued(uint32_t pi, uint32_t k) {
  const Packet& packet = packets_[k];
  if (telemetry_ != nullptr) telemetry_->queued(pi, now_, lane(pi, class_of(packet)).data_bytes);
  if (observer_ == nullptr || observer_->packets == nullptr || packet.type != kData) return;
  observer_->packets->queued(k, now_);
}

void PacketDomain::watch_sent(uint32_t pi, uint32_t k, int64_t duration) {
  const Port& p = ports_[pi];
  const Packet& packet = packets_[k];
  if (telemetry_ != nullptr) {
    const int64_t payload = packet.type == kData ? packet.wire - config_.header : 0;
    telemetry_->sent(pi, now_, duration, packet.wire, payload, p.lane.data_bytes);
  }
  if (observer_ == nullptr || packet.type >= kPause) return;
  const Observer& o = *observer_;
  if (packet.type == kData) {
    if (p.from_host) {
      const QueuePair& q = qps_[packet.qp];
      const int64_t payload = packet.wire - config_.header;
      if (o.qps != nullptr) o.qps->sent(packet.qp, now_, payload, q.rate);
      if (o.packets != nullptr) {
        o.packets->sent(k, packet.qp, q.dice_object, packet.seq, payload, now_);
      }
    }
    if (o.packets != nullptr) o.packets->hop(k, pi, now_, duration + p.delay_ps);
  }
  if (o.flows != nullptr && !p.from_host) {
    o.flows->sent(packet.path, packet.qp, packet.type != kData, packet.wire, now_);
  }
}

void PacketDomain::watch_ended(uint32_t k, bool delivered) {
  if (observer_ == nullptr || observer_->packets == nullptr || packets_[k].type != kData) return;
  observer_->packets->ended(k, now_,
                            delivered ? PacketSample::Fate::delivered : PacketSample::Fate::lost);
}

/// See LinkRecord::queue_pairs.
std::vector<double> PacketDomain::queue_pairs_by_port() const {
  std::vector<double> out(ports_.size(), 0);
  std::vector<uint32_t> uses(ports_.size(), 0);  // paths of one queue pair
  for (const QueuePair& q : qps_) {
    const auto each = [&](const auto& act) {
      for (uint32_t n = 0; n < q.path_count; ++n) {
        for (uint32_t i = 0; i < q.hops; ++i) act(paths_[q.forward + n * q.stride + i]);
      }
    };
    each([&](uint32_t port) { ++uses[port]; });
    each([&](uint32_t port) {
      out[port] += static_cast<double>(uses[port]) / q.path_count;
      uses[port] = 0;
    });
  }
  return out;
}

Observations PacketDomain::take_observations() {
  Observations out;
  for (const Sender& s : senders_) {
    const NicCounters& c = s.counters;
    out.nics.push_back({s.port, c.out_of_sequence, c.ack_timeouts, c.nacks_sent, c.nacks_received,
                        c.cnps_sent, c.cnps_received, c.pauses_sent, ports_[s.port].pauses,
                        c.link_downs, c.waiting_peak});
  }
  for (const Node& n : nodes_) {
    if (n.host || n.pool == 0) continue;
    out.switches.push_back({n.global, topology_.nodes()[n.global].name, n.pool, n.peak});
  }
  for (uint32_t pi = 0; pi < ports_.size(); ++pi) {
    for (uint32_t c = 0; c < classes_; ++c) {
      const int64_t peak = lane_states_[lane_index(pi, c)].headroom_peak;
      if (peak > 0) out.headrooms.push_back({pi, c, ports_[pi].headroom, peak});
    }
  }
  if (observer_ == nullptr) return out;
  const auto observer = std::move(observer_);
  watched_ = telemetry_ != nullptr;
  for (const QueuePair& q : qps_) {
    out.qps.push_back({q.src, q.dst, q.channel, static_cast<uint16_t>(kSourcePortBase + q.nth),
                       q.traffic_class, q.path_count});
  }
  if (observer->qps != nullptr) out.qp_series = observer->qps->finish(qps_.size());
  if (observer->packets != nullptr) out.samples = observer->packets->finish();
  if (observer->flows == nullptr) return out;
  out.flows.asked = true;
  auto& rows = out.flows.rows;
  const auto& counts = observer->flows->counts();
  for (uint32_t at = 0; at < counts.size(); ++at) {
    const FlowCounter::Count& c = counts[at];
    if (c.packets == 0) continue;
    rows.push_back(
        {paths_[at - 1], paths_[at], c.qp, c.control, c.packets, c.bytes, c.first_ps, c.last_ps});
  }
  // Paths of one queue pair share ports; what they carried there is one flow.
  const auto who = [](const SwitchFlowRecord& r) {
    return std::tuple(r.out_link, r.in_link, r.qp, r.control);
  };
  std::sort(rows.begin(), rows.end(),
            [&](const SwitchFlowRecord& a, const SwitchFlowRecord& b) { return who(a) < who(b); });
  size_t kept = 0;
  for (const SwitchFlowRecord& row : rows) {
    if (kept > 0 && who(rows[kept - 1]) == who(row)) {
      SwitchFlowRecord& first = rows[kept - 1];
      first.packets += row.packets;
      first.bytes += row.bytes;
      first.first_ps = std::min(first.first_ps, row.first_ps);
      first.last_ps = std::max(first.last_ps, row.last_ps);
    } else {
      rows[kept++] = row;
    }
  }
  rows.resize(kept);
  return out;
}

}  // namespace trainyard
