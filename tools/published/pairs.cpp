// SPDX-License-Identifier: MIT
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "tools/published/published_run.h"

namespace trainyard {
namespace {

/// What a run is, by name.
std::vector<std::pair<std::string, std::string>> knobs(const PublishedRun& r) {
  const auto n = [](int64_t x) { return std::to_string(x); };
  return {{"family", r.family},
          {"gpu", r.gpu},
          {"layers", n(r.layers)},
          {"hidden", n(r.hidden)},
          {"ffn", n(r.ffn)},
          {"heads", n(r.heads)},
          {"vocab", n(r.vocab)},
          {"experts", n(r.experts)},
          {"sequence", n(r.sequence)},
          {"tp", n(r.tp)},
          {"cp", n(r.cp)},
          {"pp", n(r.pp)},
          {"chunks", n(r.chunks)},
          {"ep", n(r.ep)},
          {"expert_tp", n(r.expert_tp)},
          {"zero", n(r.zero)},
          {"shard", n(r.shard)},
          {"micro", n(r.micro_batch)},
          {"precision", r.precision},
          {"recompute", r.recompute},
          {"split", n(r.sequence_parallel ? 1 : 0)},
          {"schedule", r.schedule},
          {"overlap", n(r.tensor_overlap ? 1 : 0)},
          {"batch", n(r.global_batch)},
          {"gpus", n(r.gpus)},
          {"dp", n(r.dp)}};
}

struct Lever {
  const char* name;
  std::set<std::string> free;   ///< what may differ with it
  std::set<std::string> moves;  ///< one of these must; empty: any of `free`
};

const std::vector<Lever>& levers() {
  static const std::vector<Lever> all = {
      {"more GPUs", {"gpus", "dp", "batch", "shard"}, {"gpus"}},
      {"TP vs PP", {"tp", "pp", "dp", "chunks", "shard"}, {"tp", "pp"}},
      {"recompute", {"recompute", "split"}, {}},
      {"CP, sequence",
       {"cp", "sequence", "dp", "batch", "gpus", "tp", "micro", "shard"},
       {"sequence", "cp"}},
      {"EP, folding", {"ep", "expert_tp"}, {}},
      {"micro-batch", {"micro"}, {}},
      {"micro-batches", {"batch"}, {}},
      {"precision", {"precision"}, {}},
      {"schedule", {"schedule", "chunks"}, {}},
      {"ZeRO, sharding", {"zero", "shard"}, {}},
      {"depth", {"layers", "pp", "gpus", "dp", "batch"}, {"layers"}}};
  return all;
}

}  // namespace

std::vector<PublishedPair> published_pairs(const std::vector<const PublishedRun*>& runs) {
  std::vector<PublishedPair> out;
  for (const Lever& lever : levers()) {
    std::map<std::vector<std::string>, std::vector<size_t>> alike;
    for (size_t i = 0; i < runs.size(); ++i) {
      std::vector<std::string> key;
      for (const auto& [name, value] : knobs(*runs[i])) {
        if (lever.free.count(name) == 0) key.push_back(value);
      }
      if (std::string(lever.name) != "EP, folding") key.push_back(runs[i]->release);
      alike[key].push_back(i);
    }
    for (auto& [key, list] : alike) {
      std::stable_sort(list.begin(), list.end(), [&](size_t a, size_t b) {
        const auto order = [&](const PublishedRun& r) {
          return std::tie(r.gpus, r.sequence, r.tp, r.micro_batch, r.global_batch, r.schedule,
                          r.chunks, r.precision, r.zero, r.shard, r.ep);
        };
        return order(*runs[a]) < order(*runs[b]);
      });
      for (size_t i = 0; i + 1 < list.size(); ++i) {
        const auto a = knobs(*runs[list[i]]);
        const auto b = knobs(*runs[list[i + 1]]);
        bool moved = false;
        for (size_t k = 0; k < a.size(); ++k) {
          const bool counts = lever.moves.empty() || lever.moves.count(a[k].first) != 0;
          if (a[k].second != b[k].second && counts) moved = true;
        }
        if (moved) out.push_back({lever.name, list[i], list[i + 1]});
      }
    }
  }
  return out;
}

}  // namespace trainyard
