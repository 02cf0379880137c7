// SPDX-License-Identifier: MIT
// Communication volume per parallel dimension, counted from an op graph.
#pragma once

#include <array>
#include <cstdint>

#include "sim/op_graph.h"

namespace trainyard {

struct DimensionVolume {
  uint64_t calls = 0;  ///< collectives and sends
  int64_t bytes = 0;   ///< Op::bytes of them: what the rank contributes
  int64_t sent = 0;    ///< what a bandwidth-optimal algorithm makes the rank send
};

/// Of one rank, over all of its ops, by the dimension of their stream.
std::array<DimensionVolume, kDimensions> dimension_volumes(const Job& job, uint32_t rank);

}  // namespace trainyard
