// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/collective.h"
#include "sim/params.h"

namespace trainyard {

/// The `collectives` block of a scenario, shared by all algorithms.
const std::vector<ParamSpec>& collective_params();

/// Picks by `algorithm`; with auto, the first registered algorithm that supports the kind.
std::unique_ptr<CollectiveSelector> make_collective_selector(const Params& params);

}  // namespace trainyard
