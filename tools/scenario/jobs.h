// SPDX-License-Identifier: MIT
// Several jobs on one fabric, as one Job: ranks and communicators are numbered through.
#pragma once

#include <memory>
#include <vector>

#include "network/topology.h"
#include "sim/compute_model.h"
#include "sim/op_graph.h"
#include "tools/scenario/scenario.h"

namespace trainyard {

/// Puts jobs behind each other. The i-th begins at the start of the i-th part, which also says its
/// class; name, first rank and number of ranks are filled in.
Job combine_jobs(std::vector<Job> jobs, std::vector<JobPart> parts);

/// Computes by the model of the job that a rank belongs to. `first_rank` ascends from 0.
std::unique_ptr<ComputeModel> combine_models(std::vector<std::unique_ptr<ComputeModel>> models,
                                             std::vector<uint32_t> first_rank);

/// Ranks of every job of a scenario, in their order.
std::vector<uint32_t> ranks_of_jobs(const Scenario& scenario);

/// Orders the hosts by rank, for jobs of so many ranks: first come those of the jobs, one after the
/// other, then all other GPUs in their order. Throws UserError where GPUs are too few or
/// listed for two jobs.
void place_jobs(Topology& topology, const Scenario& scenario, const std::vector<uint32_t>& ranks);

}  // namespace trainyard
