// SPDX-License-Identifier: MIT
// Ranks as coordinates of the parallel dimensions, and the groups along them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/op_graph.h"
#include "workload/generator/training.h"

namespace trainyard {

/// A mixed-radix number: dimensions with sizes, the fastest first.
class Grid {
 public:
  explicit Grid(std::vector<std::pair<std::string, int64_t>> dimensions);

  [[nodiscard]] int64_t ranks() const { return ranks_; }
  [[nodiscard]] int64_t size(const std::string& dimension) const;
  [[nodiscard]] int64_t coordinate(uint32_t rank, const std::string& dimension) const;
  /// The rank with another coordinate in one dimension.
  [[nodiscard]] uint32_t moved(uint32_t rank, const std::string& dimension, int64_t to) const;

  /// All groups of ranks that differ in these dimensions only, appended to `job`, members with the
  /// first dimension fastest.
  /// @returns per rank: index into Job::groups and position
  [[nodiscard]] std::vector<std::pair<uint32_t, uint32_t>> add_groups(
      const std::vector<std::string>& along, const std::string& name, Job& job) const;

 private:
  struct Axis {
    std::string name;
    int64_t size = 1, stride = 1;
  };
  [[nodiscard]] const Axis& axis(const std::string& name) const;
  std::vector<Axis> axes_;
  int64_t ranks_ = 1;
};

/// tp, cp, dps (sharding), dpr (replicas), pp.
Grid dense_grid(const Training& t);
/// Which data-parallel replica a rank of the dense grid is in.
int64_t replica_of(const Grid& dense, uint32_t rank);
/// False: idle, of a replica that computes with fewer ranks (Training::unlike).
bool takes_part(const Training& t, const Grid& dense, uint32_t rank);
/// tp, ep_node (ranks of a node), ep_rail (nodes), dp (of experts), pp.
Grid expert_grid(const Training& t);

}  // namespace trainyard
