// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <vector>

#include "sim/compute_model.h"
#include "sim/op_graph.h"
#include "sim/records.h"
#include "sim/storage.h"
#include "tools/report/result.h"
#include "workload/generator/training.h"

namespace trainyard {

/// "8 micro-batches = global 16 / (dp 2 x micro 1)", and which replicas differ.
std::string microbatch_arithmetic(const Training& t);
/// What is known before a run: parameters, FLOPs, memory, bubble, communication per dimension.
/// Without what is sent where the job is empty.
std::vector<TrainingFigure> planned_figures(const Training& t, const Job& job);
/// What a run of `steps` steps in `time` adds: tokens per second, utilisation, and the step split
/// by what it was spent on.
std::vector<TrainingFigure> measured_figures(const Training& t, const DeviceCard& device, Time time,
                                             const std::vector<RankTimes>& ranks);

/// Reads and writes of storage, and how long a start, at `start`, had to wait for its checkpoint.
void add_storage_figures(const std::array<StorageStats, kStorageActions>& stats, Time start,
                         const std::vector<RankTimes>& ranks, std::vector<TrainingFigure>& out);

}  // namespace trainyard
