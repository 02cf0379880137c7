// SPDX-License-Identifier: MIT
// The keys of a scenario that belong to no model, documented like the parameters of models: the
// scenario reader checks input against them, `trainyard explain BLOCK` prints them, and
// `trainyard plan` shows where their defaults come from.
#pragma once

#include <string>
#include <vector>

#include "sim/registry.h"

namespace trainyard {

/// One per block of a scenario, in the order of the grammar. The category is "scenario", the name
/// that of the block ("scenario" for the keys that stand in no block); keys of inner blocks have
/// dotted names ("topology.kind").
const std::vector<ModelDoc>& scenario_blocks();

/// nullptr when no block of that name has keys of its own.
const ModelDoc* find_scenario_block(const std::string& block);
/// The spec of a full key ("cluster.nodes", "seed"); nullptr for a key that belongs to a model.
const ParamSpec* find_scenario_key(const std::string& key);
/// The same for a key that is known to exist, under its own name ("nodes").
ParamSpec scenario_key(const std::string& key);

}  // namespace trainyard
