// SPDX-License-Identifier: MIT
#include "tools/scenario/training_figures.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/report/analysis.h"
#include "tools/report/text.h"
#include "workload/generator/flops.h"
#include "workload/generator/grid.h"
#include "workload/generator/memory.h"
#include "workload/generator/volume.h"

namespace trainyard {
namespace {

std::string percent(double ratio) {
  return report::percent(ratio) + " %";
}

}  // namespace

std::string microbatch_arithmetic(const Training& t) {
  std::string text = fmt::format("{} micro-batches", t.microbatches);
  bool handed = false;
  int64_t told = -1;
  std::string others;
  for (const UnlikeReplica& u : t.unlike) {
    if (u.microbatches == t.microbatches || u.replica == told) continue;
    handed = true;
    told = u.replica;
    others += fmt::format(", {} in replica {}", u.microbatches, u.replica);
  }
  if (handed) return fmt::format("{}{}, global {}", text, others, t.global_batch);
  return fmt::format("{} = global {} / (dp {} x micro {})", text, t.global_batch, t.dp,
                     t.micro_batch);
}

std::vector<TrainingFigure> planned_figures(const Training& t, const Job& job) {
  std::vector<TrainingFigure> out;
  const ModelCard& m = t.card;
  const auto parameters = static_cast<double>(m.parameters());
  const auto active = static_cast<double>(m.active_parameters());
  out.push_back(
      {"parameters", "parameters",
       fmt::format("{:.4g} billion", parameters * 1e-9) +
           (m.experts > 0 ? fmt::format(", {:.4g} billion per token", active * 1e-9) : ""),
       parameters});
  out.push_back({"active_parameters", "", "", active});
  out.push_back({"layout_tp", "layout",
                 fmt::format("tp {} x cp {} x pp {} x dp {} = {} ranks, ep {}, zero {}", t.tp, t.cp,
                             t.pp, t.dp, t.ranks, t.ep, t.zero),
                 static_cast<double>(t.tp)});
  out.push_back({"microbatches", "micro-batches",
                 fmt::format("{} = global {} / (dp {} x micro {})", t.microbatches, t.global_batch,
                             t.dp, t.micro_batch),
                 static_cast<double>(t.microbatches)});
  if (!t.unlike.empty()) {
    out.back().text = microbatch_arithmetic(t);
    int64_t idle = 0;
    std::string text;
    for (const UnlikeReplica& u : t.unlike) {
      idle += (t.tp - u.tp) * (u.stage < 0 ? t.pp : 1);
      if (text.size() > 200) continue;
      text += fmt::format("replica {}{}: tp {} of {}{}; ", u.replica,
                          u.stage < 0 ? "" : fmt::format(" stage {}", u.stage), u.tp, t.tp,
                          u.boost == 1 ? "" : fmt::format(", boost {:.4g}", u.boost));
    }
    out.push_back({"idle_ranks", "unlike replicas",
                   fmt::format("{}{} of {} ranks idle, gradients summed by {} of their groups",
                               text, idle, t.ranks, t.sync_tp),
                   static_cast<double>(idle)});
  }
  const StepFlops flops = step_flops(t);
  out.push_back({"step_model_flops", "FLOPs of a step",
                 fmt::format("{:.5g} (attention whole), {:.5g} causal, {:.5g} with recompute",
                             flops.model, flops.causal, flops.hardware),
                 flops.model});
  out.push_back({"step_causal_flops", "", "", flops.causal});
  out.push_back({"step_hardware_flops", "", "", flops.hardware});
  out.push_back({"step_parameters_only_flops", "", "", flops.parameters_only});
  out.push_back({"step_all_parameters_flops", "", "", flops.all_parameters});
  const auto [fullest, stage] = fullest_replica(t);
  const int64_t bytes = stage_memory(fullest, stage).total();
  out.push_back({"memory_bytes", "memory per GPU",
                 (t.pp > 1 ? fmt::format("stage {}: ", stage) : std::string()) +
                     memory_arithmetic(fullest, stage),
                 static_cast<double>(bytes)});
  out.push_back({"device_memory_bytes", "as a driver shows it",
                 fmt::format("about {}: 15 % of what allocators reserve lies idle, and 2 GB of "
                             "context and buffers",
                             report::volume(static_cast<uint64_t>(device_memory(bytes)))),
                 static_cast<double>(device_memory(bytes))});
  const double ratio =
      ideal_bubble_ratio(t.schedule, static_cast<uint32_t>(t.pp),
                         static_cast<uint32_t>(t.microbatches), static_cast<uint32_t>(t.vpp));
  if (t.pp > 1) {
    out.push_back({"ideal_bubble_per_compute_ratio", "ideal bubble",
                   fmt::format("{} of ideal compute, {} of the step", percent(ratio),
                               percent(bubble_share(ratio))),
                   ratio});
    out.push_back({"ideal_bubble_per_step_ratio", "", "", bubble_share(ratio)});
  }
  if (job.ranks.empty()) return out;
  // The rank of a middle stage stands for all.
  const Grid grid = dense_grid(t);
  const auto volumes = dimension_volumes(job, grid.moved(0, "pp", t.pp / 2));
  for (size_t d = 1; d < kDimensions; ++d) {
    if (volumes[d].calls == 0) continue;
    const std::string name = dimension_name(static_cast<Dimension>(d));
    out.push_back({name + "_sent_bytes", "sent for " + name,
                   fmt::format("{} in {} per rank (middle stage), if bandwidth-optimal",
                               report::volume(static_cast<uint64_t>(volumes[d].sent)),
                               report::counted(volumes[d].calls, "call", "calls")),
                   static_cast<double>(volumes[d].sent)});
    out.push_back({name + "_calls", "", "", static_cast<double>(volumes[d].calls)});
  }
  return out;
}

std::vector<TrainingFigure> measured_figures(const Training& t, const DeviceCard& device, Time time,
                                             const std::vector<RankTimes>& ranks) {
  std::vector<TrainingFigure> out;
  const double seconds = time.seconds();
  if (seconds <= 0 || ranks.empty()) return out;
  const auto gpus = static_cast<double>(t.ranks);
  const auto steps = static_cast<double>(t.steps);
  const double per_step = seconds / steps;
  const double tokens =
      static_cast<double>(t.global_batch) * static_cast<double>(t.sequence) / per_step;
  const StepFlops flops = step_flops(t);
  const double peak = device.tflops * 1e12 * gpus * per_step;
  out.push_back(
      {"time_per_step_s", "time per step", print_time(Time::ps(time.ps() / t.steps), 6), per_step});
  out.push_back({"tokens_per_s", "tokens per second",
                 fmt::format("{:.5g}, {:.5g} per GPU", tokens, tokens / gpus), tokens});
  out.push_back({"tokens_per_s_per_gpu", "", "", tokens / gpus});
  out.push_back({"model_tflops_per_gpu", "model TFLOP/s per GPU",
                 fmt::format("{:.4g}, {:.4g} causal", flops.model / per_step / gpus * 1e-12,
                             flops.causal / per_step / gpus * 1e-12),
                 flops.model / per_step / gpus * 1e-12});
  // A:F01
  out.push_back(
      {"mfu_ratio", "MFU",
       fmt::format("{}, causal {}; HFU {}; of {:.4g} TFLOP/s", percent(flops.model / peak),
                   percent(flops.causal / peak), percent(flops.hardware / peak), device.tflops),
       flops.model / peak});
  out.push_back({"mfu_causal_ratio", "", "", flops.causal / peak});
  out.push_back({"hfu_ratio", "", "", flops.hardware / peak});

  const double whole = seconds * static_cast<double>(ranks.size());
  const auto share = [&](const auto& of) {
    double sum = 0;
    for (const RankTimes& r : ranks) sum += of(r).seconds();
    return sum / whole;
  };
  const double bubble = share([](const RankTimes& r) {
    return r.idle + r.wait_of[static_cast<size_t>(Dimension::pipeline)];
  });
  const double compute = share([](const RankTimes& r) { return r.compute; });
  if (t.pp > 1) {
    out.push_back({"bubble_per_step_ratio", "bubble",
                   fmt::format("{} of the step, {} of compute (idle, or waiting for a stage)",
                               percent(bubble), percent(compute > 0 ? bubble / compute : 0)),
                   bubble});
    out.push_back({"bubble_per_compute_ratio", "", "", compute > 0 ? bubble / compute : 0});
  }
  for (size_t d = 1; d < kDimensions; ++d) {
    const double exposed = share([&](const RankTimes& r) { return r.exposed_of[d]; });
    const double hidden = share([&](const RankTimes& r) { return r.hidden_of[d]; });
    const double wait = share([&](const RankTimes& r) { return r.wait_of[d]; });
    if (exposed + hidden + wait == 0) continue;
    const std::string name = dimension_name(static_cast<Dimension>(d));
    out.push_back({name + "_exposed_ratio", name + " communication",
                   fmt::format("{} exposed, {} hidden, {} waiting for peers", percent(exposed),
                               percent(hidden), percent(wait)),
                   exposed});
    out.push_back({name + "_hidden_ratio", "", "", hidden});
    out.push_back({name + "_wait_ratio", "", "", wait});
  }
  return out;
}

void add_storage_figures(const std::array<StorageStats, kStorageActions>& stats, Time start,
                         const std::vector<RankTimes>& ranks, std::vector<TrainingFigure>& out) {
  double held = 0;
  double whole = 0;
  for (const RankTimes& r : ranks) {
    held += r.storage.seconds();
    whole += report::sum_of_parts(r).seconds();
  }
  const double ratio = whole > 0 ? held / whole : 0;
  out.push_back({"storage_exposed_ratio", "storage",
                 percent(ratio) + " of the time nothing else went on", ratio});
  const std::pair<StorageAction, const char*> actions[] = {
      {StorageAction::read, "dataset_read"},
      {StorageAction::write, "checkpoint_write"},
      {StorageAction::load, "checkpoint_load"}};
  for (const auto& [action, key] : actions) {
    const StorageStats& s = stats[static_cast<size_t>(action)];
    if (s.requests == 0) continue;
    const std::string prefix = key;
    out.push_back({prefix + "_bytes", storage_action_name(action),
                   fmt::format("{} in {}, the longest {}; {} of the pieces' time at the servers "
                               "is queueing",
                               report::volume(static_cast<uint64_t>(s.bytes)),
                               report::counted(s.requests, "request", "requests"),
                               print_time(s.longest, 4), percent(s.queue_ratio())),
                   static_cast<double>(s.bytes)});
    out.push_back({prefix + "_requests", "", "", static_cast<double>(s.requests)});
    out.push_back({prefix + "_mean_s", "", "", s.sum_s / static_cast<double>(s.requests)});
    out.push_back({prefix + "_longest_s", "", "", s.longest.seconds()});
    out.push_back({prefix + "_queue_ratio", "", "", s.queue_ratio()});
    if (action == StorageAction::load) {
      out.push_back(
          {"time_to_ready_s", "time to ready",
           print_time(s.last - start, 4) + " from the start to the last rank's checkpoint",
           (s.last - start).seconds()});
    }
  }
}

}  // namespace trainyard
