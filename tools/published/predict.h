// SPDX-License-Identifier: MIT
// The step time of a published run, simulated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/published/published_run.h"
#include "tools/scenario/scenario.h"

namespace trainyard {

/// Share of the nominal rates of NVLink and NICs that collectives reach in training, fitted
/// together with the cards (docs/validation.md).
inline constexpr double kScaleUpShare = 0.773, kNicShare = 0.887;

/// A long step is two short ones and a line through them: more micro-batches add alike.
struct ShortRuns {
  int64_t replicas = 1;
  int64_t few = 1;    ///< micro-batches of the shorter one; the other has twice as many
  bool line = false;  ///< false: the step is so short that it is run as it is
};
ShortRuns short_runs(const PublishedRun& run);

/// Seconds that gradients which nothing hides take more with all replicas than with so many.
double unhidden_gradients(const PublishedRun& run, int64_t replicas);

/// Seconds; nothing where a simulation takes longer than `limit_s` of wall time.
std::optional<double> predict_step(const PublishedRun& run, double limit_s);

/// GiB per GPU of the full layout: as the driver or, where the source prints that, the allocator
/// counts.
double predict_memory(const PublishedRun& run);

}  // namespace trainyard
