// SPDX-License-Identifier: MIT
#include "workload/placement.h"

#include <memory>
#include <utility>
#include <vector>

namespace trainyard {

Placement placement_on(const Topology& topology) {
  Placement placement;
  placement.server = std::make_shared<std::vector<uint32_t>>(topology.servers());
  std::vector<uint32_t> rails;
  for (const uint32_t host : topology.hosts()) {
    const int32_t rail = topology.nodes()[host].place.rail;
    if (rail < 0) return placement;
    rails.push_back(static_cast<uint32_t>(rail));
  }
  placement.rail = std::make_shared<std::vector<uint32_t>>(std::move(rails));
  return placement;
}

}  // namespace trainyard
