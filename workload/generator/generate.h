// SPDX-License-Identifier: MIT
// Training -> Job: one op graph per pipeline stage, shared by all its ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sim/op_graph.h"
#include "workload/generator/moe_routing.h"
#include "workload/generator/training.h"

namespace trainyard {

struct GeneratedJob {
  Job job;
  size_t rank_classes = 0;                    ///< distinct graphs
  std::shared_ptr<const MoeRouting> routing;  ///< null for dense models
};

/// Streams: "compute" (one op at a time), "tp", "ep", "dp" (one communicator kernel at a time, in
/// issue order), "cp" and "pp" (messages, any number at a time). Tensor- and expert-parallel
/// communication stands between the parts of a layer; in a backward pass the gradient of the
/// weights of a block is computed while the gradient of its input is reduced. Receives are posted
/// when the work before them is done, sends are not waited for. What data-parallel ranks do is told
/// by Training::zero and overlaps where asked for.
GeneratedJob generate_job(const Training& training, const std::string& name, uint64_t seed);

}  // namespace trainyard
