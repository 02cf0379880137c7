// SPDX-License-Identifier: MIT
// NCCL's environment names, where they say something that a scenario can say.
#pragma once

#include <string>
#include <vector>

#include "sim/params.h"

namespace trainyard {

/// Keys "nccl.env.*" of the `collectives` block.
const std::vector<ParamSpec>& nccl_env_params();

/// Puts what the environment says into the keys that it stands for. Throws UserError where the
/// scenario says something else there.
void apply_nccl_env(Params& collectives);

/// NCCL_P2P_DISABLE, NCCL_P2P_LEVEL and NCCL_SHM_DISABLE are about servers: puts what they say into
/// the keys scale_up.* of `topology` and returns the names of these. Throws UserError where the
/// servers have no PCIe or the scenario says something else.
std::vector<std::string> apply_nccl_server_env(const Params& collectives, Params& topology);

}  // namespace trainyard
