// SPDX-License-Identifier: MIT
#include "workload/group_layout.h"

#include <algorithm>
#include <map>
#include <utility>

namespace trainyard {

GroupLayout::GroupLayout(const CollectiveRequest& r) {
  const auto& ranks = *r.members;
  const auto n = static_cast<uint32_t>(ranks.size());
  std::map<uint32_t, uint32_t> server_number, rail_number;
  for (uint32_t m = 0; m < n; ++m) {
    const auto [it, added] = server_number.emplace(r.placement.node_of(ranks[m]),
                                                   static_cast<uint32_t>(server_number.size()));
    if (added) servers.emplace_back();
    server_of.push_back(it->second);
    const uint32_t rail = r.placement.rail ? r.placement.rail_of(ranks[m])
                                           : static_cast<uint32_t>(servers[it->second].size());
    servers[it->second].push_back(m);
    rail_of.push_back(
        rail_number.emplace(rail, static_cast<uint32_t>(rail_number.size())).first->second);
  }
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> lane_number;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> met;  // server and rail
  for (uint32_t m = 0; m < n; ++m) {
    const uint32_t nth = met[{server_of[m], rail_of[m]}]++;
    lane_of.push_back(
        lane_number
            .emplace(std::make_pair(rail_of[m], nth), static_cast<uint32_t>(lane_number.size()))
            .first->second);
  }
  at.assign(servers.size(), std::vector<uint32_t>(lane_number.size(), kNone));
  for (uint32_t m = 0; m < n; ++m) at[server_of[m]][lane_of[m]] = m;
  for (uint32_t lane = 0; lane < lane_number.size(); ++lane) {
    const bool everywhere =
        std::all_of(at.begin(), at.end(), [&](const auto& s) { return s[lane] != kNone; });
    if (everywhere) common.push_back(lane);
  }
}

uint32_t GroupLayout::on_rail_of(uint32_t member, uint32_t server) const {
  const uint32_t same = at[server][lane_of[member]];
  if (same != kNone) return same;
  for (const uint32_t m : servers[server]) {
    if (rail_of[m] == rail_of[member]) return m;
  }
  return kNone;
}

}  // namespace trainyard
