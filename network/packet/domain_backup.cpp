// SPDX-License-Identifier: MIT
// Traffic of a GPU through another NIC of its server, when its own has no cable left (B: N1, N2,
// N3).
//
// The queue pairs of the GPU become queue pairs of the other NIC: they take turns with those that
// are there, at its port, so that the two GPUs share its rate. Between the GPU and that NIC lies a
// crossing (PCIe, or NVLink to the neighbour GPU): the first byte after a rest leaves `delay`
// later, a message is seen `delay` later, and where the crossing is slower than the port it paces
// what leaves the GPU, and what comes for it waits in the NIC as behind a slow receiver.
//
// Which NIC: that of the GPU whose number in the server differs in the lowest bit, then the next
// two, then the other four: the order of the costs of B: F31 (PCIe switch, root complex, socket) in
// a server of eight. On rails both ends move by the same step, so that traffic stays on one rail.
#include <algorithm>
#include <bit>

#include "network/packet/domain.h"

namespace trainyard {

/// All NIC cables of `host` are known to be down.
bool PacketDomain::is_cut_off(uint32_t host) const {
  for (const uint32_t link : topology_.nic_links(host)) {
    if (routing_->link_up(link)) return false;
  }
  return true;
}

const PacketDomain::Crossing* PacketDomain::crossing(uint32_t rank) const {
  return &crossings_.at(topology_.hosts()[rank]);
}

/// A way for `q` over other NICs, where one of its ends has lost its own; false: there is none.
bool PacketDomain::find_backup(QueuePair& q) {
  const uint32_t src = topology_.hosts()[q.src];
  const uint32_t dst = topology_.hosts()[q.dst];
  const auto moves = [this](uint32_t host) {
    const auto it = crossings_.find(host);
    return it != crossings_.end() && it->second.open && is_cut_off(host);
  };
  const bool leaves = moves(src);
  const bool enters = moves(dst);
  if (!leaves && !enters) return false;
  const auto sources = topology_.server_mates(src);
  const auto sinks = topology_.server_mates(dst);
  const auto at_source = std::find(sources.begin(), sources.end(), src) - sources.begin();
  const auto at_sink = std::find(sinks.begin(), sinks.end(), dst) - sinks.begin();
  const int32_t rail = topology_.nodes()[src].place.rail;
  const bool on_rail = rail >= 0 && rail == topology_.nodes()[dst].place.rail;
  const size_t steps = std::bit_ceil(std::max(sources.size(), sinks.size()));
  for (int round = on_rail ? 0 : 1; round < 2; ++round) {
    for (size_t step = 1; step < steps; ++step) {
      uint32_t a = src;
      uint32_t b = dst;
      if (leaves || round == 0) {
        const size_t i = static_cast<size_t>(at_source) ^ step;
        if (i >= sources.size() || is_cut_off(sources[i])) continue;
        a = sources[i];
      }
      if (enters || round == 0) {
        const size_t i = static_cast<size_t>(at_sink) ^ step;
        if (i >= sinks.size() || is_cut_off(sinks[i])) continue;
        b = sinks[i];
      }
      if (a == b || routing_->count_paths(a, b) == 0) continue;
      if (!find_paths_between(q, a, b, static_cast<uint32_t>(step))) continue;
      q.leaves_elsewhere = a != src;
      q.enters_elsewhere = b != dst;
      // An end that moves for the sake of the rail crosses as the other one does.
      const Crossing as = {crossings_.at(leaves ? src : dst).rate_bps,
                           crossings_.at(leaves ? src : dst).delay_ps, false, 0};
      if (q.leaves_elsewhere) crossings_.try_emplace(src, as);
      if (q.enters_elsewhere) crossings_.try_emplace(dst, as);
      lend(q);
      return true;
    }
  }
  return false;
}

/// The NIC by which `q` enters may have to hold back what its crossing does not take.
void PacketDomain::lend(const QueuePair& q) {
  if (!q.enters_elsewhere) return;
  const uint32_t in = paths_[q.forward + q.hops - 1];
  const int64_t rate = crossing(q.dst)->rate_bps;
  if (rate == 0 || rate >= ports_[in].rate_bps) return;
  senders_[ports_[in ^ 1].sender].lends = true;
  ports_[in].slow = true;
}

/// After queue pairs have moved.
void PacketDomain::settle_crossings() {
  for (Sender& s : senders_) {
    s.lends = false;
    ports_[s.port ^ 1].slow = s.receive_bps > 0 || s.serving;
  }
  for (const QueuePair& q : qps_) lend(q);
}

/// What has waited is not at the NIC yet.
void PacketDomain::begin_crossing(QueuePair& q) const {
  const Crossing* c = crossing(q.src);
  q.next_send = std::max({q.next_send, now_ + c->delay_ps, c->free_ps});
}

/// A packet of `q` takes its crossing: the GPU's other queue pairs there wait for it.
[[gnu::noinline]] void PacketDomain::cross(QueuePair& q, int64_t bytes) {
  Crossing& c = crossings_.at(topology_.hosts()[q.src]);
  if (c.rate_bps == 0 || c.rate_bps >= ports_[q.port].rate_bps) return;
  c.free_ps = now_ + transmission_time(Bytes(bytes), Rate::bps(c.rate_bps), Time::ps(1)).ps();
  const uint32_t si = ports_[q.port].sender;
  for (const uint32_t other : senders_[si].active) {
    QueuePair& o = qps_[other];
    if (!o.leaves_elsewhere || o.src != q.src || o.next_send >= c.free_ps) continue;
    o.next_send = c.free_ps;
    if (senders_[si].paced) pace(si, other);
  }
}

/// At which the host takes in this packet; 0: as it comes.
int64_t PacketDomain::intake_bps(const Sender& nic, uint32_t k) const {
  if (!nic.lends) return nic.receive_bps;
  const QueuePair& q = qps_[packets_[k].qp];
  if (!q.enters_elsewhere) return nic.receive_bps;
  const int64_t rate = crossing(q.dst)->rate_bps;
  if (rate == 0 || rate >= ports_[nic.port].rate_bps) return nic.receive_bps;
  return nic.receive_bps == 0 ? rate : std::min(nic.receive_bps, rate);
}

}  // namespace trainyard
