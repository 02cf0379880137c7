// SPDX-License-Identifier: MIT
// Compute times that differ from rank to rank and from op to op, on top of a model that treats
// all alike.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/compute_model.h"

namespace trainyard {

struct ComputeVariation {
  std::shared_ptr<const Jitter> jitter;  ///< null: none
  uint64_t seed = 1;
  /// Rank -> factor on its compute times in 1/2^32; empty: all 1.
  std::vector<uint64_t> slow_q32;
};

/// `model` with variation. Ops of streams called "host" keep their times. The dice of an op depend
/// on seed, rank and op alone, whatever else runs.
std::unique_ptr<ComputeModel> vary_compute(std::unique_ptr<ComputeModel> model,
                                           ComputeVariation variation);

}  // namespace trainyard
