// SPDX-License-Identifier: MIT
// Where the members of a communicator are: servers, and lanes that lead from server to server
// without a change of rail.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/collective.h"

namespace trainyard {

/// Servers, rails and lanes are numbered in the order of their first member, so that communicators
/// of equal pattern have equal layouts. Where no rails are known the k-th member of every server is
/// on rail k.
struct GroupLayout {
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit GroupLayout(const CollectiveRequest& request);

  [[nodiscard]] uint32_t members() const { return static_cast<uint32_t>(server_of.size()); }
  [[nodiscard]] uint32_t server_count() const { return static_cast<uint32_t>(servers.size()); }
  /// The member of `lane` in `server`, or kNone.
  [[nodiscard]] uint32_t member_at(uint32_t server, uint32_t lane) const {
    return at[server][lane];
  }
  /// A member of `server` on the rail of `member`, of its lane where there is one; or kNone.
  [[nodiscard]] uint32_t on_rail_of(uint32_t member, uint32_t server) const;

  std::vector<std::vector<uint32_t>> servers;  ///< members of each, as listed
  std::vector<uint32_t> server_of, rail_of;    ///< by member
  /// By member: its rail, and the how-manieth of its server on that rail it is.
  std::vector<uint32_t> lane_of;
  std::vector<std::vector<uint32_t>> at;  ///< by server and lane
  std::vector<uint32_t> common;           ///< lanes with a member in every server
};

}  // namespace trainyard
