// SPDX-License-Identifier: MIT
#include "workload/generator/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sim/errors.h"
#include "workload/generator/grid.h"
#include "workload/generator/layer_work.h"
#include "workload/generator/sequence_lengths.h"
#include "workload/generator/stage_builder.h"

namespace trainyard {

GeneratedJob generate_job(const Training& t, const std::string& name, uint64_t seed) {
  GeneratedJob out;
  Job& job = out.job;
  job.name = name;
  if (t.model.experts > 0) {
    MoeRoutingConfig config;
    config.seed = seed;
    config.experts = static_cast<uint32_t>(t.model.experts);
    config.topk = static_cast<uint32_t>(t.model.topk);
    config.layers = static_cast<uint32_t>(t.model.layers);
    config.microbatches = static_cast<uint32_t>(t.microbatches);
    config.tokens = t.sequence_tokens();
    config.token_bytes = t.model.hidden * t.dispatch_bytes;
    config.combine_bytes = t.model.hidden * t.activation_bytes;
    config.sigma = t.expert_sigma;
    config.source_sigma = t.source_sigma;
    config.capacity = t.capacity;
    out.routing = std::make_shared<MoeRouting>(config);
    job.exchanges = out.routing;
  }

  if (t.document > 0) {
    job.exchanges =
        std::make_shared<JobExchanges>(out.routing, std::make_shared<SequenceLengths>(t, seed));
  }

  const Grid dense = dense_grid(t);
  std::vector<StageProgram> stages;
  std::vector<size_t> program_of;  // rank -> place in `stages`; empty: by stage
  if (t.unlike.empty()) {
    const LayerWork work(t);
    for (int64_t stage = 0; stage < t.pp; ++stage) {
      stages.push_back(StageBuilder(t, work, out.routing.get(), stage).build());
    }
  } else {
    // By stage, tp and micro-batches, part in the sum, and what neighbouring stages have.
    std::map<std::array<int64_t, 7>, size_t> kinds;
    program_of.resize(static_cast<size_t>(t.ranks));
    for (uint32_t r = 0; r < t.ranks; ++r) {
      if (!takes_part(t, dense, r)) continue;
      const int64_t stage = dense.coordinate(r, "pp");
      const int64_t replica = replica_of(dense, r);
      const Training mine = t.of_replica(replica, stage);
      UnlikePlace place;
      place.hands_on = dense.coordinate(r, "tp") >= mine.sync_tp;
      place.previous_tp = t.tp_of(replica, (stage + t.pp - 1) % t.pp);
      place.next_tp = t.tp_of(replica, (stage + 1) % t.pp);
      place.split = t.sequence_parallel;
      const bool even = place.previous_tp == mine.tp && place.next_tp == mine.tp;
      if (!even) place.position = dense.coordinate(r, "tp");
      const auto [it, added] = kinds.emplace(
          std::array<int64_t, 7>{stage, mine.tp, mine.microbatches, place.hands_on ? 1 : 0,
                                 place.position, place.previous_tp, place.next_tp},
          stages.size());
      program_of[r] = it->second;
      if (!added) continue;
      const LayerWork work(mine);
      stages.push_back(StageBuilder(mine, work, out.routing.get(), stage, place).build());
    }
  }
  // Stages that do the same with the same slots share a graph, too.
  for (size_t i = 1; i < stages.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (stages[i].groups == stages[j].groups && stages[i].peers == stages[j].peers &&
          stages[i].graph->hash() == stages[j].graph->hash() &&
          stages[i].graph->equals(*stages[j].graph)) {
        stages[i].graph = stages[j].graph;
        break;
      }
    }
  }
  std::map<const OpGraph*, int> distinct;
  for (const StageProgram& s : stages) distinct[s.graph.get()] = 1;
  out.rank_classes = distinct.size();

  // All ranks come first, as in a job read from a trace.
  Group& world = job.groups.emplace_back();
  world.name = "world";
  for (uint32_t r = 0; r < t.ranks; ++r) world.members.push_back(r);
  const Grid expert = expert_grid(t);
  using Places = std::vector<std::pair<uint32_t, uint32_t>>;
  std::array<Places, kGroupKinds> groups;
  // Ranks that hold copies of the same stages, of a bidirectional pipeline, are one group.
  const auto paired = [&](const Grid& grid, const std::vector<std::string>& along,
                          const char* label) {
    Job halves;
    const Places of = grid.add_groups(along, label, halves);
    Places places(of.size());
    uint32_t n = 0;
    for (const Group& half : halves.groups) {
      const uint32_t first = half.members.front();
      const int64_t stage = grid.coordinate(first, "pp");
      if (stage >= t.pp / 2) continue;
      Group& group = job.groups.emplace_back();
      group.name = label + std::to_string(n++);
      group.members = half.members;
      const uint32_t other = grid.moved(first, "pp", t.pp - 1 - stage);
      const auto& more = halves.groups[of[other].first].members;
      group.members.insert(group.members.end(), more.begin(), more.end());
      for (uint32_t m = 0; m < group.members.size(); ++m) {
        places[group.members[m]] = {static_cast<uint32_t>(job.groups.size() - 1), m};
      }
    }
    return places;
  };
  // Of a tensor-parallel group those that compute; of ranks that sum gradients those that do.
  const auto without_idle = [&](GroupKind kind, const std::vector<std::string>& along,
                                const char* label) {
    Job all;
    (void)dense.add_groups(along, label, all);
    Places places(static_cast<size_t>(t.ranks));
    uint32_t n = 0;
    for (const Group& whole : all.groups) {
      Group group;
      for (const uint32_t r : whole.members) {
        const bool in = kind == GroupKind::tensor
                            ? takes_part(t, dense, r)
                            : dense.coordinate(r, "tp") < t.sync_tp_of(dense.coordinate(r, "pp"));
        if (in) group.members.push_back(r);
      }
      if (group.members.empty()) continue;
      group.name = label + std::to_string(n++);
      for (uint32_t m = 0; m < group.members.size(); ++m) {
        places[group.members[m]] = {static_cast<uint32_t>(job.groups.size()), m};
      }
      job.groups.push_back(std::move(group));
    }
    return places;
  };
  const auto add = [&](GroupKind kind, const Grid& grid, const std::vector<std::string>& along,
                       const char* label) {
    const bool used = std::any_of(stages.begin(), stages.end(), [&](const StageProgram& s) {
      return std::find(s.groups.begin(), s.groups.end(), kind) != s.groups.end();
    });
    const bool copies = t.copies() == 2 && (kind == GroupKind::data || kind == GroupKind::shard ||
                                            kind == GroupKind::expert_data);
    if (used) {
      groups[static_cast<size_t>(kind)] = copies             ? paired(grid, along, label)
                                          : t.unlike.empty() ? grid.add_groups(along, label, job)
                                                             : without_idle(kind, along, label);
    }
  };
  const bool all_sharded = t.shard >= t.cp * t.dp;
  add(GroupKind::tensor, dense, {"tp"}, "tp");
  add(GroupKind::context, dense, {"cp"}, "cp");
  add(GroupKind::expert, expert, {"ep_node", "ep_rail"}, "ep");
  add(GroupKind::expert_node, expert, {"ep_node"}, "ep_node");
  add(GroupKind::expert_rail, expert, {"ep_rail"}, "ep_rail");
  add(GroupKind::expert_tensor, expert, {"tp"}, "etp");
  add(GroupKind::data, dense, {"cp", "dps", "dpr"}, "dp");
  add(GroupKind::shard, dense,
      all_sharded ? std::vector<std::string>{"cp", "dps"} : std::vector<std::string>{"dps"},
      "shard");
  add(GroupKind::replica, dense, {"cp", "dpr"}, "replica");
  add(GroupKind::expert_data, expert, {"dp"}, "edp");
  add(GroupKind::routing, expert, {"tp", "ep_node", "ep_rail"}, "routing");
  if (t.gradient_norm) {
    auto& of = groups[static_cast<size_t>(GroupKind::world)];
    if (t.unlike.empty()) {
      for (uint32_t r = 0; r < t.ranks; ++r) of.emplace_back(0, r);
    } else {
      Group working;
      working.name = "working";
      of.resize(static_cast<size_t>(t.ranks));
      for (uint32_t r = 0; r < t.ranks; ++r) {
        if (!takes_part(t, dense, r)) continue;
        of[r] = {static_cast<uint32_t>(job.groups.size()),
                 static_cast<uint32_t>(working.members.size())};
        working.members.push_back(r);
      }
      job.groups.push_back(std::move(working));
    }
  }
  if (t.pp > 1 && t.model.tied_embeddings && !t.turned()) {
    // The first and last stage only.
    auto& of = groups[static_cast<size_t>(GroupKind::embedding)];
    of.resize(static_cast<size_t>(t.ranks));
    uint32_t n = 0;
    for (uint32_t r = 0; r < t.ranks; ++r) {
      if (dense.coordinate(r, "pp") != 0 || !takes_part(t, dense, r)) continue;
      const uint32_t last = dense.moved(r, "pp", t.pp - 1);
      of[r] = {static_cast<uint32_t>(job.groups.size()), 0};
      of[last] = {static_cast<uint32_t>(job.groups.size()), 1};
      job.groups.push_back({"embedding" + std::to_string(n++), {r, last}});
    }
  }

  std::shared_ptr<OpGraph> nothing;
  if (!t.unlike.empty()) {
    nothing = std::make_shared<OpGraph>();
    nothing->finish();
  }
  job.ranks.resize(static_cast<size_t>(t.ranks));
  for (uint32_t r = 0; r < t.ranks; ++r) {
    if (!takes_part(t, dense, r)) {
      job.ranks[r].graph = nothing;
      continue;
    }
    const int64_t stage = dense.coordinate(r, "pp");
    const size_t which = program_of.empty() ? static_cast<size_t>(stage) : program_of[r];
    const StageProgram& program = stages[which];
    job.ranks[r].graph = program.graph;
    RankBinding& binding = job.ranks[r].binding;
    binding.groups.reserve(program.groups.size());
    binding.positions.reserve(program.groups.size());
    for (const GroupKind kind : program.groups) {
      const auto& [group, position] = groups[static_cast<size_t>(kind)][r];
      binding.groups.push_back(group);
      binding.positions.push_back(position);
    }
    binding.peers.reserve(program.peers.size());
    for (const PeerKind kind : program.peers) {
      if (kind >= PeerKind::tensor) {
        const PeerKind of = kind >= PeerKind::next_tensor       ? PeerKind::next_tensor
                            : kind >= PeerKind::previous_tensor ? PeerKind::previous_tensor
                                                                : PeerKind::tensor;
        const int64_t step = of == PeerKind::next_tensor ? 1
                             : of == PeerKind::tensor    ? 0
                                                         : t.pp - 1;
        binding.peers.push_back(dense.moved(dense.moved(r, "pp", (stage + step) % t.pp), "tp",
                                            static_cast<int64_t>(kind) - static_cast<int64_t>(of)));
        continue;
      }
      switch (kind) {
        default:  // of a tensor-parallel group: above
          break;
        case PeerKind::previous_stage:
          binding.peers.push_back(dense.moved(r, "pp", (stage + t.pp - 1) % t.pp));
          break;
        case PeerKind::next_stage:
          binding.peers.push_back(dense.moved(r, "pp", (stage + 1) % t.pp));
          break;
        case PeerKind::previous_context: {
          const int64_t c = dense.coordinate(r, "cp");
          binding.peers.push_back(dense.moved(r, "cp", (c + t.cp - 1) % t.cp));
          break;
        }
        case PeerKind::next_context: {
          const int64_t c = dense.coordinate(r, "cp");
          binding.peers.push_back(dense.moved(r, "cp", (c + 1) % t.cp));
          break;
        }
      }
    }
  }
  return out;
}

}  // namespace trainyard
