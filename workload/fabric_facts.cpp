// SPDX-License-Identifier: MIT
#include "workload/fabric_facts.h"

#include <algorithm>

#include "network/flow/path_book.h"

namespace trainyard {
namespace {

/// What is left of `bps` for payload in long messages: headers and the ACKs of the traffic in the
/// other direction take the rest.
int64_t payload_of(int64_t bps, const PacketConfig& c) {
  const int64_t wire = c.payload + c.header + c.ack_bytes / std::max<int64_t>(1, c.ack_interval);
  return static_cast<int64_t>(static_cast<__int128>(bps) * c.payload / wire);
}

}  // namespace

FabricFacts fabric_facts(const Topology& topology, const PacketConfig& config) {
  FabricFacts f;
  const auto& servers = topology.servers();
  const auto ranks = static_cast<uint32_t>(topology.hosts().size());
  int64_t nic = 0;
  for (const uint32_t link : topology.nic_links(topology.hosts()[0])) {
    nic += topology.links()[link].rate.bps();
  }
  f.nic_bps = nic;
  f.nic_payload_bps = payload_of(nic, config);
  f.scale_up_bps = f.scale_up_payload_bps = 0;
  PathBook book(topology, config);
  const auto wire_to = [&](uint32_t rank, int64_t* slowest) {
    Transfer t;
    t.src = 0;
    t.dst = rank;
    t.size = Bytes(8);
    const uint32_t qp = book.queue_pair(t);
    const int64_t bps = book.queue_pairs()[qp].slowest_bps;
    if (slowest != nullptr) *slowest = bps;
    const MessageCost cost = book.cost(qp, 8);
    return transmission_time(Bytes(cost.wire), Rate::bps(bps)) +
           Time::ps(cost.latency_ps + config.send_delay_ps + config.receive_delay_ps);
  };
  bool inside = false, between = false;
  for (uint32_t r = 1; r < ranks && !(inside && between); ++r) {
    if (servers[r] == servers[0] && !inside) {
      inside = true;
      f.wire_inside = wire_to(r, &f.scale_up_bps);
      f.scale_up_payload_bps = payload_of(f.scale_up_bps, config);
    } else if (servers[r] != servers[0] && !between) {
      between = true;
      f.wire_between = wire_to(r, nullptr);
    }
  }
  return f;
}

}  // namespace trainyard
