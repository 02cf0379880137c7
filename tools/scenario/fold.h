// SPDX-License-Identifier: MIT
// Many identical micro-batches or steps cost what the distinct ones cost: three short runs, each a
// period longer than the one before. Where the third is longer than the second by exactly what the
// second is longer than the first, on every rank and in every part of its time, the run is periodic
// and the rest is that difference, times what is left.
#pragma once

#include <functional>
#include <optional>

#include "tools/report/result.h"
#include "tools/scenario/scenario.h"

namespace trainyard {

/// Why a scenario cannot be folded; nullptr: it can be tried.
const char* fold_obstacle(const Scenario& scenario);

/// The result of all micro-batches and steps; nullopt where there are too few
/// (Scenario::fold_from), something stands against it, or the short runs are not periodic. Times,
/// parts of ranks and totals are those of the whole; tables and the fingerprint are of the longest
/// short run. `run` runs a scenario as it is.
std::optional<Result> run_folded(const Scenario& scenario,
                                 const std::function<Result(const Scenario&)>& run);

}  // namespace trainyard
