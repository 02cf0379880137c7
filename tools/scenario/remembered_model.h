// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "sim/compute_model.h"

namespace trainyard {

/// Asks `model` once for each op of each graph: ranks that share a graph share its times. For
/// models whose times do not depend on the rank, which all are before compute_variation.
std::unique_ptr<ComputeModel> remember_durations(std::unique_ptr<ComputeModel> model);

}  // namespace trainyard
