// SPDX-License-Identifier: MIT
#include "network/packet/port_model.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "sim/errors.h"

namespace trainyard {

int64_t headroom_bytes(const PacketConfig& c, const TopologyLink& link) {
  const auto bytes = [&](int64_t ps) { return bytes_in(link.rate, Time::ps(ps)).count(); };
  switch (c.headroom_rule) {
    case HeadroomRule::fixed:
      return c.headroom_fixed;
    case HeadroomRule::rate_delay:
      return static_cast<int64_t>(
          std::floor(static_cast<double>(bytes(link.delay.ps())) * c.headroom_factor));
    case HeadroomRule::automatic:
      return bytes(2 * link.delay.ps() + c.headroom_response_ps) + 2 * (c.payload + c.header) +
             c.pfc_frame;
  }
  return 0;
}

EcnBand ecn_band(const PacketConfig& c, Rate rate, bool marks) {
  const double per_25g = static_cast<double>(rate.bps()) / 25e9;
  EcnBand band;
  band.kmin = c.kmin >= 0 ? c.kmin : std::llround(100'000 * per_25g);
  band.kmax = c.kmax >= 0 ? c.kmax : std::llround(400'000 * per_25g);
  if (marks && band.kmin > band.kmax) {
    throw UserError("ECN at " + print_rate(rate) + ": kmin " + print_bytes(Bytes(band.kmin)) +
                        " is above kmax " + print_bytes(Bytes(band.kmax)),
                    "set fabric.switch.ecn.kmin and kmax together");
  }
  return band;
}

int64_t alpha_q16(const PacketConfig& c, Rate port, Rate nic) {
  int64_t alpha = c.alpha_q16;
  if (!c.alpha_by_port_rate || nic.bps() <= 0) return alpha;
  for (int64_t r = port.bps(); r > nic.bps() && 2 * alpha <= 65536; r /= 2) alpha *= 2;
  return alpha;
}

SharedPool shared_pool(const PacketConfig& c, const Topology& topology, uint32_t index) {
  // Pools count every port of the switch, used or not, and every class.
  const auto& node = topology.nodes()[index];
  int64_t reserved = 0;
  for (const uint32_t port : node.ports) {
    if (c.pfc != PfcMode::off) reserved += headroom_bytes(c, topology.link_of(port));
    reserved += c.reserve;
  }
  reserved *= c.classes;
  SharedPool pool;
  pool.bytes = c.buffer - reserved;
  if (pool.bytes <= 0) {
    throw UserError("switch " + node.name + ": buffer " + print_bytes(Bytes(c.buffer)) +
                        " is not larger than the reserves and headrooms of its " +
                        std::to_string(node.ports.size()) + " ports, " +
                        print_bytes(Bytes(reserved)),
                    "raise fabric.switch.buffer or lower fabric.switch.pfc.headroom");
  }
  pool.xoff =
      c.xoff > 0 ? c.xoff : pool.bytes / static_cast<int64_t>(node.ports.size() * c.classes);
  return pool;
}

LongestPair longest_pair(const PacketConfig& c, const Topology& topology, Routing& routing) {
  // One path per pair is enough: equal-hop paths of the supported fabrics have equal delays. Of
  // many hosts some stand for all; large fabrics are regular.
  const auto& hosts = topology.hosts();
  const size_t step = std::max<size_t>(1, hosts.size() / 256);
  LongestPair longest;
  std::vector<uint32_t> path;
  for (size_t i = 0; i < hosts.size(); i += step) {
    for (size_t j = 0; j < hosts.size(); j += step) {
      if (i == j) continue;
      path.clear();
      routing.path({hosts[i], hosts[j], kSourcePortBase, kDestinationPort}, path);
      int64_t rtt = 0;
      int64_t rate = INT64_MAX;
      for (const uint32_t port : path) {
        const TopologyLink& l = topology.link_of(port);
        rtt += 2 * l.delay.ps() +
               transmission_time(Bytes(c.payload), l.rate, Time::ps(c.resolution_ps)).ps();
        rate = std::min(rate, l.rate.bps());
      }
      longest.bdp_bytes =
          std::max(longest.bdp_bytes, bytes_in(Rate::bps(rate), Time::ps(rtt)).count());
      longest.rtt_ps = std::max(longest.rtt_ps, rtt);
    }
  }
  return longest;
}

}  // namespace trainyard
