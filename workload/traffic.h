// SPDX-License-Identifier: MIT
// Traffic without a model: lists of flows from patterns or files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/op_graph.h"
#include "sim/params.h"
#include "sim/registry.h"

namespace trainyard {

struct Flow {
  uint32_t src = 0, dst = 0;  ///< ranks
  int64_t bytes = 0;
  Time start;
  uint8_t traffic_class = 0;  ///< data class in switches
  bool background = false;    ///< the run does not wait for it
  bool repeat = false;        ///< background: starts again as soon as it is done
  Time period{};              ///< background: starts so often; zero: once
};

/// Sets what every pattern can say: class, background, repeat.
void apply_common(const Params& params, std::vector<Flow>& flows);

struct TrafficRequest {
  uint32_t ranks = 0;
  uint64_t seed = 1;
  std::string base_dir;
  SourcePos pos;
};

/// Factory of category "traffic".
using TrafficFactory = std::function<std::vector<Flow>(const TrafficRequest&, const Params&)>;

/// Entries of the pattern "collective" as a job without compute: every rank (or the group) issues
/// them one after the other.
Job collective_job(const std::string& name, uint32_t ranks, const std::vector<Params>& entries);

}  // namespace trainyard
