// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "workload/generator/training.h"

namespace trainyard {

/// What is unusual about a layout, with the reason: tensor parallelism that leaves the server,
/// many bubbles, uneven stages, ... (A: 1.5 #81, #85).
std::vector<std::string> layout_warnings(const Training& t, int64_t gpus_per_node);

}  // namespace trainyard
