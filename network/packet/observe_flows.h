// SPDX-License-Identifier: MIT
// Counts what each switch sends, by queue pair and pair of ports: the flow records that sFlow or
// IPFIX would estimate, exact. A position in the engine's array of paths belongs to one queue
// pair, one of its paths and one hop for ever, so that is where it counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/errors.h"

namespace trainyard {

class FlowCounter {
 public:
  static constexpr uint32_t kNone = 0xffffffffU;
  struct Count {
    uint32_t qp = kNone;
    bool control = false;
    uint64_t packets = 0;
    int64_t bytes = 0, first_ps = 0, last_ps = 0;
  };

  /// A packet at `position` of the paths begins to leave a switch.
  void sent(uint32_t position, uint32_t qp, bool control, int64_t bytes, int64_t now) {
    if (position >= counts_.size()) counts_.resize(std::max<size_t>(position + 1, 64));
    Count& c = counts_[position];
    if (c.packets == 0) {
      c.qp = qp;
      c.control = control;
      c.first_ps = now;
    }
    TRAINYARD_ASSERT(c.qp == qp);
    ++c.packets;
    c.bytes += bytes;
    c.last_ps = now;
  }

  /// By position; entries without packets are empty.
  [[nodiscard]] const std::vector<Count>& counts() const { return counts_; }

 private:
  std::vector<Count> counts_;
};

}  // namespace trainyard
