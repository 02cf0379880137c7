// SPDX-License-Identifier: MIT
#pragma once

#include "network/topology.h"
#include "sim/fabric.h"

namespace trainyard {

/// A record of the directed link behind `port` (of the topology), with its names and its rate, at
/// `rate` where that has changed; no counts.
inline LinkRecord link_record(const Topology& topology, uint32_t port, Rate rate) {
  LinkRecord r;
  r.from_node = topology.from(port);
  r.to_node = topology.to(port);
  r.from = topology.nodes()[r.from_node].name;
  r.to = topology.nodes()[r.to_node].name;
  r.tier = topology.tier(port);
  r.rate = rate;
  return r;
}

}  // namespace trainyard
