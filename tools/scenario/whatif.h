// SPDX-License-Identifier: MIT
// Straggler what-if: the same run with the ops of chosen ranks, or of one kernel, as long as on a
// healthy GPU (C: F2.11; A: 36).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/scenario/run.h"

namespace trainyard {

struct WhatIfOptions {
  std::vector<std::string> where;  ///< patterns of GPUs that are healed together; empty: none
  size_t top = 8;                  ///< ranks and kernels that are healed one by one
};

struct WhatIf {
  std::string name;
  Time step;   ///< as it is
  Time ideal;  ///< all healthy
  /// S = T / T_ideal; 1 - 1/S of the GPU time is wasted.
  [[nodiscard]] double slowdown() const { return step.seconds() / ideal.seconds(); }
  /// P of C: F2.12 (tools/report/symptoms.h): near 1 somebody computes longer, near 0 the network
  /// is slow. None where collectives are not simulated message by message, or none takes longer.
  std::optional<double> p;
  struct Row {
    std::string what;  ///< "rank 17 (node2.gpu1)", "attention", the patterns asked for
    Time step;         ///< with this healthy, all else as it is
  };
  std::vector<Row> asked;    ///< at most one
  std::vector<Row> ranks;    ///< those that compute longest beyond their healthy times
  std::vector<Row> kernels;  ///< likewise, on all ranks
  uint32_t stragglers = 0;   ///< ranks that compute longer than healthy
  /// What a row wins, as a share of what all would win; 0 where nothing is lost.
  [[nodiscard]] double share(const Row& row) const;
};

/// Runs the scenario 2 + (ranks) + (kernels) times. Throws UserError where nothing makes a GPU slow
/// (compute.slow, compute.jitter, gpu-slow), SimulationError where a run does not end.
WhatIf what_if(const Scenario& scenario, const WhatIfOptions& options, const RunHooks& hooks = {});

std::string whatif_text(const WhatIf& result);
std::string whatif_json(const WhatIf& result);

}  // namespace trainyard
