// SPDX-License-Identifier: MIT
// Parts of a rank's program that nobody outside a communicator can influence once they have begun:
// its collectives, and the computation between them. Layers of a model repeat, and so do these.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/op_graph.h"

namespace trainyard {

/// Ops [first, last] of a program, of which
///   - the first is a collective, which the first computation waits for, and the last is
///     computation;
///   - all collectives are on one group and one fifo stream, all computation on another one;
///   - no one but the last has a successor outside, and none waits for more than the first did;
///   - all end before the last does.
struct Stretch {
  uint32_t first = 0, last = 0;
  uint32_t group_slot = 0;
  uint32_t communication = 0, computation = 0;  ///< streams
  uint32_t first_compute = 0;                   ///< the first of its ops on `computation`
  uint32_t collectives = 0;
};

/// The longest ones, apart from each other, in order; those with two collectives or more.
std::vector<Stretch> find_stretches(const OpGraph& graph);

}  // namespace trainyard
