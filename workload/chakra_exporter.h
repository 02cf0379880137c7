// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "chakra/trace.h"
#include "sim/op_graph.h"

namespace trainyard {

/// One rank of a job as a Chakra trace. Streams whose ops take turns become stream numbers, others
/// none; read back with LaunchOrder::free the trace runs as the job does. Throws UserError for what
/// the format cannot say: ops of several kernels (use `kernels: single`), unequal all-to-all
/// shares, durations.
chakra::RankTrace export_rank(const Job& job, uint32_t rank);

/// All ranks and comm_group.json: PREFIX.{rank}.et and comm_group.json beside them.
/// @returns the number of nodes written
uint64_t export_chakra(const Job& job, const std::string& prefix);

}  // namespace trainyard
