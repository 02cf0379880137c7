// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "sim/params.h"
#include "workload/roofline.h"

namespace trainyard {

/// Parameters of the roofline, shared by the models that fall back to it.
const std::vector<ParamSpec>& roofline_params();
RooflineShares roofline_shares(const Params& params);
/// Of ops that carry no kernels.
Kernel::Precision roofline_precision(const Params& params);

}  // namespace trainyard
