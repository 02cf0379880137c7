// SPDX-License-Identifier: MIT
// Links and NICs that fail, degrade and come back.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "network/packet/domain.h"

namespace trainyard {

void PacketDomain::schedule(const FabricChange& change) {
  TRAINYARD_ASSERT(change.at.ps() >= now_ && change.link < topology_.links().size());
  if (change.kind >= FabricChange::Kind::receive_rate) {
    const TopologyLink& l = topology_.links()[change.link];
    TRAINYARD_ASSERT(topology_.nodes()[l.a].kind == NodeKind::host ||
                     topology_.nodes()[l.b].kind == NodeKind::host);
  }
  // In a part of a run, parts get their numbers when they are told of.
  if (registry_ != nullptr) visit(change.link * 2);
  changes_.push_back(change);
  ++changes_pending_;
  events_.push(change.at.ps(), key(kChange, static_cast<uint32_t>(changes_.size() - 1)), 0);
}

void PacketDomain::on_change(uint32_t index) {
  using What = FabricChange::Kind;
  --changes_pending_;
  const FabricChange change = changes_[index];
  const uint32_t even = visit(change.link * 2);
  const auto into_host = [&] {
    // The `a` end or the other one: a host's cable has one host, or two.
    return ports_[even + 1].to_host ? even + 1 : even;
  };
  switch (change.kind) {
    case What::link_down:
    case What::link_up: {
      const bool up = change.kind == What::link_up;
      if (ports_[even].down != up) return;
      for (uint32_t dir = 0; dir < 2; ++dir) link_went(even + dir, up);
      if (up) {
        for (uint32_t dir = 0; dir < 2; ++dir) pause_again(even + dir);
        for (uint32_t dir = 0; dir < 2; ++dir) kick(even + dir);
      }
      // Until the fabric has learnt of it new flows go the old way too.
      const int64_t delay = change.known ? 0 : config_.convergence_ps;
      const LinkNews news{now_ + delay, change.link, up};
      const auto later = [](const LinkNews& a, const LinkNews& b) { return a.at_ps < b.at_ps; };
      unlearnt_.insert(std::upper_bound(unlearnt_.begin(), unlearnt_.end(), news, later), news);
      if (delay == 0)
        reroute();
      else
        set_timer(now_ + delay, kReroute, 0, 0);
      return;
    }
    case What::link_rate:
      for (uint32_t dir = 0; dir < 2; ++dir) {
        Port& p = ports_[even + dir];
        if (change.ends != FabricChange::both_ends &&
            p.to_host != (change.ends == FabricChange::other_end)) {
          continue;
        }
        const int64_t built = topology_.link_of(p.global).rate.bps();
        p.rate_bps = std::max<int64_t>(
            1, static_cast<int64_t>((static_cast<__int128>(built) * change.value_q32) >> 32));
        p.size_a = p.size_b = 0;
      }
      return;
    case What::link_loss:
      for (uint32_t dir = 0; dir < 2; ++dir) {
        Port& p = ports_[even + dir];
        p.loss_q32 = change.value_q32;
        p.loss_kinds = change.kinds;
        p.lossy = p.loss_q32 != 0 || p.down || p.doomed > 0 || p.drops_nth;
      }
      return;
    case What::link_drops:
      for (uint32_t port = even; port < even + 2; ++port) {
        std::erase_if(drops_,
                      [&](const NthDrop& d) { return d.port == port && d.kinds == change.kinds; });
        if (change.value_q32 > 0) drops_.push_back({port, change.kinds, change.value_q32, 0});
        Port& p = ports_[port];
        p.drops_nth = std::any_of(drops_.begin(), drops_.end(),
                                  [&](const NthDrop& d) { return d.port == port; });
        p.lossy = p.loss_q32 != 0 || p.down || p.doomed > 0 || p.drops_nth;
      }
      return;
    case What::receive_rate: {
      const uint32_t in = into_host();
      Sender& s = senders_[ports_[in ^ 1].sender];
      s.receive_bps = change.rate_bps;
      // Nothing overtakes what waits already; the first of it is served as it was.
      ports_[in].slow = s.receive_bps > 0 || s.serving || s.lends;
      return;
    }
    case What::storm_on: {
      const uint32_t in = into_host();
      for (uint32_t c = 0; c < classes_; ++c) {
        LaneState& state = lane_states_[lane_index(in, c)];
        state.storm = true;
        if (!lane(in, c).pause_sent) send_pause(in, c, kNil);
        if (config_.nic_watchdog_ps > 0) {
          set_timer(now_ + config_.nic_watchdog_ps, kNicWatchdog, lane_index(in, c),
                    state.sent_version);
        }
      }
      return;
    }
    case What::backup_on:
    case What::backup_off: {
      const uint32_t host = topology_.from(ports_[into_host()].global ^ 1);
      Crossing& c = crossings_[host];
      c.open = change.kind == What::backup_on;
      if (c.open) {
        c.rate_bps = change.rate_bps;
        c.delay_ps = change.delay.ps();
      }  // else who uses it goes on until it is rerouted
      return;
    }
    case What::storm_off: {
      const uint32_t in = into_host();
      for (uint32_t c = 0; c < classes_; ++c) {
        LaneState& state = lane_states_[lane_index(in, c)];
        if (!state.storm) continue;
        state.storm = false;
        if (lane(in, c).pause_sent) send_resume(in, c);
      }
      return;
    }
  }
}

bool PacketDomain::as_built() const {
  if (!unlearnt_.empty() || !known_down_.empty() || !drops_.empty()) return false;
  for (const auto& [host, c] : crossings_) {
    if (c.open) return false;
  }
  for (const Port& p : ports_) {
    const TopologyLink& built = topology_.link_of(p.global);
    if (p.down || p.slow || p.rate_bps != built.rate.bps()) return false;
    if (p.loss_q32 != static_cast<uint64_t>(std::ldexp(built.loss_rate, 32))) return false;
  }
  return std::none_of(lane_states_.begin(), lane_states_.end(),
                      [](const LaneState& s) { return s.storm; });
}

/// A cable loses or regains its signal: pauses of both sides are forgotten.
void PacketDomain::link_went(uint32_t port, bool up) {
  Port& p = ports_[port];
  p.down = !up;
  p.doomed = 0;
  if (up) {
    // Whatever is on the wire was sent before.
    for (uint32_t k = p.wire.head; k != kNil; k = packets_[k].next) ++p.doomed;
  }
  p.lossy = p.loss_q32 != 0 || p.down || p.doomed > 0 || p.drops_nth;
  if (up) return;
  if (p.from_host) ++senders_[p.sender].counters.link_downs;
  for (uint32_t c = 0; c < classes_; ++c) {
    LaneState& state = lane_states_[lane_index(port, c)];
    ++state.pause_version;
    state.wanted = false;
    unpause_lane(port, c);
    if (lane(port, c).pause_sent) {
      // Nobody is left to be stopped.
      lane(port, c).pause_sent = false;
      lane(port, c).excused = true;
      ++totals_.pfc_resumes;
      ++state.sent_version;
      state.storm = false;
      if (pause_sink_ != nullptr && state.record != kNil) {
        (*pause_sink_)[state.record].to_ps = now_;
      }
      state.record = kNil;
    }
  }
}

/// The link into `in` is back. What came before it failed may still fill its buffer.
void PacketDomain::pause_again(uint32_t in) {
  Port& p = ports_[in];
  for (uint32_t c = 0; c < classes_; ++c) {
    if (lane(in, c).pause_sent) {
      send_pfc(in, kPause, c);  // a NIC broke while the link was down
      continue;
    }
    bool full = false;
    if (p.to_host) {
      const uint32_t nic = ports_[in ^ 1].sender;
      full = p.slow && senders_[nic].waiting_bytes > config_.receive_buffer / 2;
    } else {
      const Lane& l = lane(in, c);
      const auto shared = std::max<int64_t>(0, l.used - config_.reserve);
      full = l.headroom_used > 0 || (l.used > 0 && shared >= threshold(p, nodes_[p.peer]));
    }
    if (full && config_.pfc != PfcMode::off)
      send_pause(in, c, lane_states_[lane_index(in, c)].because);
    else
      lane(in, c).excused = false;
  }
}

/// The fabric has learnt of its changes: queue pairs get the paths they would get now.
void PacketDomain::reroute() {
  if (unlearnt_.empty() || unlearnt_.front().at_ps > now_) return;  // another timer of this instant
  while (!unlearnt_.empty() && unlearnt_.front().at_ps <= now_) {
    const LinkNews& news = unlearnt_.front();
    routing_->set_link_state(news.link, news.up);
    if (news.up)
      std::erase(known_down_, news.link);
    else
      known_down_.push_back(news.link);
    unlearnt_.pop_front();
  }
  // In the order of first use in the run, whatever the order in this part of it.
  std::vector<uint32_t> order(qps_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return qps_[a].rank < qps_[b].rank; });
  for (const uint32_t qi : order) {
    QueuePair fresh = qps_[qi];
    const auto before = paths_.size();
    const bool found = find_paths(fresh);
    const QueuePair& old = qps_[qi];
    bool same = found && fresh.hops == old.hops && fresh.reverse_hops == old.reverse_hops &&
                fresh.path_count == old.path_count;
    for (uint32_t i = 0; same && i < fresh.hops; ++i) {
      same = paths_[fresh.forward + i] == paths_[old.forward + i];
    }
    for (uint32_t i = 0; same && i < fresh.reverse_hops; ++i) {
      same = paths_[fresh.reverse + i] == paths_[old.reverse + i];
    }
    for (uint32_t n = 1; same && n < fresh.path_count; ++n) {
      for (uint32_t i = 0; same && i < fresh.hops; ++i) {
        same = paths_[fresh.forward + n * fresh.stride + i] ==
               paths_[old.forward + n * old.stride + i];
      }
    }
    if (!found || same) {
      // Without a way it keeps the old one, and its timer counts.
      paths_.resize(before);
      continue;
    }
    ++totals_.reroutes;
    deactivate(qi);
    QueuePair& q = qps_[qi];
    q.forward = fresh.forward;
    q.hops = fresh.hops;
    q.reverse = fresh.reverse;
    q.reverse_hops = fresh.reverse_hops;
    q.path_count = fresh.path_count;
    q.stride = fresh.stride;
    q.port = fresh.port;
    q.leaves_elsewhere = fresh.leaves_elsewhere;
    q.enters_elsewhere = fresh.enters_elsewhere;
    if (q.leaves_elsewhere) begin_crossing(q);
    q.path_choice = std::min(q.path_choice, q.path_count - 1U);
    if (q.last_transfer != kNil) records_[states_[q.last_transfer].record].hops = q.hops;
    const int64_t line = q.line;
    const bool controlled = q.controlled;
    settle_on_path(q);
    // On a path of another kind what its controller has learnt is worth nothing.
    if (q.line != line || q.controlled != controlled) begin_controller(q, qi);
    if (config_.congestion == CongestionControl::hpcc) hpcc_[qi].forget_path();
    activate(qi);
    if (q.is_active) kick(q.port);
  }
  if (!crossings_.empty()) settle_crossings();
}

}  // namespace trainyard
