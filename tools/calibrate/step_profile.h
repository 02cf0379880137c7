// SPDX-License-Identifier: MIT
// The kernels of a step by what runs alike: enough to say how the step's compute time changes when
// constants of a card change, without simulating again.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/compute_model.h"
#include "tools/scenario/scenario.h"

namespace trainyard {

class StepProfile {
 public:
  /// Of a generated workload without jobs beside it.
  explicit StepProfile(const Scenario& scenario);

  /// Compute of the busiest ranks of a step, and what of the others' a pipeline waits for: its
  /// bubble is (pp - 1) / chunks micro-batches of the mean stage.
  [[nodiscard]] double seconds(const DeviceCard& card, const SoftwareFactors& software) const;

 private:
  struct Run {  // kernels that are one op
    std::vector<Kernel> kernels;
    double count = 0;  // in a step
  };
  struct Class {  // ranks that do the same
    std::vector<Run> runs;
    double ranks = 0;
  };
  std::vector<Class> classes_;
  double bubble_ = 0;
  int64_t gpus_ = 0;
};

}  // namespace trainyard
