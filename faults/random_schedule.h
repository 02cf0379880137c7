// SPDX-License-Identifier: MIT
// Faults by rate: a part that fails at random instants, a mean time between failures apart.
#pragma once

#include <cstdint>
#include <vector>

#include "faults/step_faults.h"

namespace trainyard {

/// One entry of `faults:` per failure of every part that `where` names, each with `where` and `at`
/// of its own; the entry itself where it has no `mtbf`. Times between the failures of a part are
/// exponential, from integers and counter-based dice: the same on every machine, and those of a
/// part stay as they are when others are added.
/// @param entry its index in the list
std::vector<Params> random_schedule(const FaultRequest& request, FaultKind::Parts parts,
                                    const Params& params, uint64_t seed, uint32_t entry);

}  // namespace trainyard
