// SPDX-License-Identifier: MIT
// NCCL's environment names, where they say something that a scenario can say.
#pragma once

#include <vector>

#include "sim/params.h"

namespace trainyard {

/// Keys "nccl.env.*" of the `collectives` block.
const std::vector<ParamSpec>& nccl_env_params();

/// Puts what the environment says into the keys that it stands for. Throws UserError where the
/// scenario says something else there.
void apply_nccl_env(Params& collectives);

}  // namespace trainyard
