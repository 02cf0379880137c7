// SPDX-License-Identifier: MIT
// Micro-batches of failed pipeline workers in the bubbles of their peers (ReCycle), in slots.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace trainyard {

/// What a job of pipelines does with a failed worker's micro-batches: workers of the same stage in
/// other replicas take them. A slot is a forward, and each half of a backward; messages take no
/// time. Needs replicas with whole copies of parameters and optimizer: not with zero or FSDP.
struct Rerouting {
  uint32_t stages = 1, replicas = 1, microbatches = 1;  ///< micro-batches: of a replica
  std::vector<std::pair<uint32_t, uint32_t>> failed;    ///< (replica, stage)
  bool split_backward = false;  ///< weight halves wait for a slot in which nothing else can run
  bool staggered = false;  ///< a stage begins its next step when all its workers have ended theirs
};

struct ReroutedSteps {
  int64_t first = 0;              ///< slots of the first step
  int64_t period = 0;             ///< from the end of the last but one step to that of the last
  std::vector<int64_t> bubbles;   ///< idle slots of the first step per stage, of live workers
  std::vector<int64_t> executed;  ///< slots of work per stage, of all steps
  bool operator==(const ReroutedSteps&) const = default;
};

/// Runs so many steps. A worker takes the backward that is ready first, then a forward while it
/// holds no more micro-batches than 1F1B does (in proportion to its share), then weight halves,
/// whose activations are not limited.
/// Throws UserError where no worker of a stage is left or one that failed is not of the job.
ReroutedSteps rerouted_steps(const Rerouting& job, uint32_t steps);

}  // namespace trainyard
