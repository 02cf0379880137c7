// SPDX-License-Identifier: MIT
// What changes when, as far as ranks are concerned: GPUs that slow down, stop and come back.
// Implemented in faults/. What happens to links reaches the fabric directly.
#pragma once

#include <cstdint>

#include "sim/units.h"

namespace trainyard {

class FaultSource {
 public:
  virtual ~FaultSource() = default;
  /// When an op of `rank` that begins at `begin` and takes `work` on a healthy GPU ends: it is
  /// stretched for the part that overlaps a slow-down. Infinity: never.
  [[nodiscard]] virtual Time end_of_compute(uint32_t rank, Time begin, Time work) const = 0;
  /// The first instant from `at` on at which the GPU of `rank` takes on work. Infinity: never.
  [[nodiscard]] virtual Time runs_from(uint32_t rank, Time at) const = 0;
};

}  // namespace trainyard
