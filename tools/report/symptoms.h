// SPDX-License-Identifier: MIT
// Truth and symptoms, apart: what was broken, and what ranks, NICs and launchers could see of it.
// Nothing here but truth_csv() reads Result::faults.
#pragma once

#include <optional>
#include <string>

#include "tools/report/result.h"

namespace trainyard {

/// One row per fault that began: what, where, from, until, how it manifests itself, which signal
/// it gives.
std::string truth_csv(const Result& result);
/// One row per thing that was seen: processes that are gone, collectives that timed out or wait,
/// with who entered, and counters of NICs that moved.
std::string symptoms_csv(const Result& result);
/// One row per collective and member, see CollectiveVisit.
std::string visits_csv(const Result& result);

/// Kind of a hang of one collective by the hang tree (C: 1.2, CCLD): "not-entered" when a member
/// never came, else "inconsistent" when one called something else, else "hardware-fault".
std::string hang_verdict(const OpenCall& call);

/// P = sum(T_max - T_min) / sum(T_max - T_base) over collectives (C: F2.12, which leaves the three
/// undefined): T_max and T_min are the longest and shortest time of a member from its launch to its
/// end in this run, T_base the shortest of the same collective in a healthy run. Near 1: somebody
/// comes late and sees its peers ready (compute); near 0: all take equally long (network). Only
/// collectives that some member spends at least 1 % longer in than T_base count; none: nothing.
std::optional<double> slow_p(const Result& run, const Result& healthy);

}  // namespace trainyard
