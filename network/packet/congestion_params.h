// SPDX-License-Identifier: MIT
// Parameters of the congestion controllers HPCC, TIMELY and DCTCP: declared once, for the scenario
// reader and for `trainyard explain`.
#pragma once

#include <vector>

#include "network/packet/dctcp.h"
#include "network/packet/hpcc.h"
#include "network/packet/timely.h"
#include "sim/params.h"

namespace trainyard {

const std::vector<ParamSpec>& hpcc_params();
const std::vector<ParamSpec>& timely_params();
const std::vector<ParamSpec>& dctcp_params();

/// Checked blocks as the controllers take them. Throw UserError on contradictions (t_low above
/// t_high).
HpccParams make_hpcc_params(const Params& params);
TimelyParams make_timely_params(const Params& params);
DctcpParams make_dctcp_params(const Params& params);

/// Announces "hpcc", "timely" and "dctcp" in category "congestion". A model that is announced can
/// be selected, so only an engine that runs them may call this.
void register_congestion_models();

}  // namespace trainyard
