// SPDX-License-Identifier: MIT
// The simulated timeline as a Chakra trace: what ran, with the time that it took.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/op_graph.h"

namespace trainyard {

class TimelineExport {
 public:
  static constexpr uint64_t kMostOps = 50'000'000;

  explicit TimelineExport(const Job& job);
  void add(uint32_t rank, uint32_t op, Time length) { lengths_[rank][op] += length; }
  /// PREFIX.{rank}.et and comm_group.json beside them; nodes carry durations, to the nearest
  /// microsecond: compute from begin to end, communication without the wait for peers. Unequal
  /// all-to-alls become even ones.
  void write(const Job& job, const std::string& prefix) const;

 private:
  std::vector<std::vector<Time>> lengths_;  // rank, op
};

}  // namespace trainyard
