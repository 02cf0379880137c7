// SPDX-License-Identifier: MIT
// Energy of the GPU boards of a job, by what they did, and what that and their time costs.
#pragma once

#include <vector>

#include "sim/records.h"
#include "tools/report/result.h"
#include "tools/scenario/scenario.h"

namespace trainyard {

/// Empty where the device's card has no watts. `time`: of the whole run.
std::vector<TrainingFigure> energy_figures(const Scenario& scenario,
                                           const std::optional<Training>& training, Time time,
                                           const std::vector<RankTimes>& ranks);

}  // namespace trainyard
