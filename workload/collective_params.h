// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/collective.h"
#include "sim/params.h"
#include "workload/nccl_model.h"

namespace trainyard {

/// The `collectives` block of a scenario, shared by all algorithms.
const std::vector<ParamSpec>& collective_params();

/// collectives.sms by CollectiveKind; -1: not said.
std::vector<int64_t> collective_sms(const Params& params);

/// Picks by `algorithm` where it can run the call, else what auto means. Reads custom traces.
/// Throws UserError for names that are not known, or known but not for the kind. `facts`: of the
/// fabric, where a protocol is chosen.
std::unique_ptr<CollectiveSelector> make_collective_selector(const Params& params,
                                                             const FabricFacts& facts = {});

}  // namespace trainyard
