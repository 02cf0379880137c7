// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/scenario/scenario.h"
#include "workload/generator/generate.h"
#include "workload/generator/training.h"

namespace trainyard::test {

using Settings = std::vector<std::pair<std::string, std::string>>;

inline Training training(const ModelCard& card, const Settings& settings, int64_t gpus = 0) {
  Params params(training_params());
  for (const auto& [name, value] : settings) params.set(name, value, {});
  return resolve_training(card, params, gpus, {});
}
inline Training training(const std::string& card, const Settings& settings, int64_t gpus = 0) {
  return training(load_model_card(card, {}), settings, gpus);
}

inline Settings with(Settings base, const Settings& more) {
  base.insert(base.end(), more.begin(), more.end());
  return base;
}

/// GPT of any size.
inline ModelCard gpt(int64_t layers, int64_t hidden, int64_t heads, int64_t vocab = 51200) {
  ModelCard m;
  m.name = "gpt";
  m.layers = layers;
  m.hidden = hidden;
  m.ffn = 4 * hidden;
  m.heads = m.kv_heads = heads;
  m.head_size = hidden / heads;
  m.vocab = vocab;
  m.biases = m.tied_embeddings = true;
  return m;
}

/// One op of a graph for each that `match` takes.
template <class Match>
std::vector<Op> ops_of(const Job& job, uint32_t rank, const Match& match) {
  std::vector<Op> out;
  const OpGraph& graph = *job.ranks[rank].graph;
  for (const Op& op : graph.ops) {
    if (match(op, graph.streams[op.stream])) out.push_back(op);
  }
  return out;
}

}  // namespace trainyard::test
