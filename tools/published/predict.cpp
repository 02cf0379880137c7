// SPDX-License-Identifier: MIT
#include "tools/published/predict.h"

#include <algorithm>
#include <chrono>

#include "tools/scenario/run.h"
#include "tools/scenario/training_figures.h"

namespace trainyard {
namespace {

std::optional<double> simulate(const std::string& yaml, double limit_s) {
  const Scenario s = load_scenario_text(yaml, "published.yaml");
  const auto start = std::chrono::steady_clock::now();
  bool late = false;
  RunHooks hooks;
  hooks.progress = [&](const RunProgress&) {
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    late = wall.count() >= limit_s;
    return !late;
  };
  const Result r = run_scenario(s, hooks);
  if (r.complete) return r.step_time.seconds();
  if (!late) throw UserError(r.incomplete_reason);
  return std::nullopt;
}

}  // namespace

ShortRuns short_runs(const PublishedRun& r) {
  ShortRuns s;
  // From 256 GPUs a replica on, one: unhidden_gradients() has what it sends to others.
  const bool one = r.tp * r.cp * r.pp >= 256 && r.experts == 0 && r.zero < 2;
  s.replicas = one ? 1 : fewest_replicas(r);
  s.few = r.schedule == "dualpipe" ? 2 * r.pp : r.pp;
  s.line = r.microbatches > 2 * s.few;
  return s;
}

double unhidden_gradients(const PublishedRun& r, int64_t replicas) {
  if (r.gradient_overlap || r.zero >= 2 || r.experts > 0) return 0;
  const double gradient = r.precision == "fp16" ? 2 : 4;
  const double bytes = r.dense_parameters() * (r.zero == 0 ? 2 * gradient : gradient + 2);
  const int64_t inside = std::max<int64_t>(1, 8 / r.tp);
  const double nvlink = r.scale_up_gbytes * 1e9 * kScaleUpShare;
  const double nic = r.nic_gbits / 8 * 1e9 * kNicShare;
  const auto time = [&](int64_t of) {
    const auto n = static_cast<double>(of * r.cp);
    const bool within = of * r.cp <= inside;
    const double rate = within ? nvlink : std::min(nvlink, nic * static_cast<double>(inside));
    return bytes * (n - 1) / n / rate;
  };
  return time(r.dp) - time(replicas);
}

std::optional<double> predict_step(const PublishedRun& r, double limit_s) {
  const ShortRuns runs = short_runs(r);
  const auto at = [&](int64_t microbatches) {
    return simulate(
        scenario_of(r, runs.replicas, microbatches, engine_for(r), kScaleUpShare, kNicShare),
        limit_s);
  };
  const std::optional<double> a = at(runs.line ? runs.few : r.microbatches);
  if (!a) return std::nullopt;
  double step = *a;
  if (runs.line) {
    const std::optional<double> b = at(2 * runs.few);
    if (!b) return std::nullopt;
    step +=
        static_cast<double>(r.microbatches - runs.few) * (*b - *a) / static_cast<double>(runs.few);
  }
  return step + unhidden_gradients(r, runs.replicas);
}

double predict_memory(const PublishedRun& r) {
  const Scenario s =
      load_scenario_text(scenario_of(r, r.dp, r.microbatches, "analytic", 1, 1), r.id);
  const std::string key = r.memory_of_tensors ? "memory_bytes" : "device_memory_bytes";
  for (const TrainingFigure& f : planned_figures(*s.training, {})) {
    if (f.key == key) return f.value / 1073741824.0;
  }
  return 0;
}

}  // namespace trainyard
