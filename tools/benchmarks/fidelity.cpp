// SPDX-License-Identifier: MIT
// The engines side by side: packets, flows and alpha-beta on the sets S2 to S5 of the golden
// tables, on collectives and on one training step. Everything is made by this repository.
//
//   bench_fidelity [--only TEXT] [--seeds N]
//
// Flow completion is until the last ACK. Of a case with several seeds the statistics are averaged.
// Errors are those of the mean completion time (traffic) or of the step time, against packets.
// Last line: one JSON object.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "tools/scenario/run.h"

using namespace trainyard;

namespace {

struct Case {
  std::string name, scenario;
  std::vector<std::string> settings;
  bool step = false;    ///< compare step times, else flow completion times
  bool random = false;  ///< marking draws dice: average over seeds
};

std::vector<Case> all_cases() {
  const std::string golden = "scenarios/golden/";
  const std::string dir = std::string(TRAINYARD_SOURCE_DIR) + "/" + golden;
  const std::vector<std::string> s3 = {"fabric.topology.path=" + dir + "dumbbell.txt",
                                       "traffic=[{pattern: file, path: " + dir + "two-flows.csv}]",
                                       "fabric.switch.buffer=32MiB"};
  const std::vector<std::string> s4 = {
      "cluster={nodes: 16, gpus_per_node: 1}",
      "fabric.topology={kind: leaf-spine, leaf_radix: 8, scale_up: {kind: none}, "
      "nic: {rate: 100Gbps}, link: {delay: 1us}}",
      "traffic=[{pattern: file, path: " + dir + "permutation16.csv}]",
      "fabric.switch.buffer=32MiB"};
  const std::vector<std::string> s5 = {
      "cluster={nodes: 16, gpus_per_node: 1}",
      "fabric.topology={kind: fat-tree, k: 4, scale_up: {kind: none}, nic: {rate: 100Gbps}, "
      "link: {delay: 1us}}",
      "traffic=[{pattern: all-to-all, size: 1MB}]", "fabric.switch.buffer=32MiB"};
  const std::string ring = "scenarios/bench/ring.yaml";
  const auto collective = [](const std::string& kind, const std::string& size) {
    return std::vector<std::string>{"traffic=[{pattern: collective, collective: " + kind +
                                    ", size: " + size + "}]"};
  };
  return {
      {"S2 incast 8:1, PFC only", golden + "incast-pfc-only.yaml", {}, false, false},
      {"S2 incast 8:1, window", golden + "incast-window.yaml", {}, false, true},
      {"S2 incast 8:1, DCQCN", golden + "incast-dcqcn.yaml", {}, false, true},
      {"S3 two flows, PFC only", golden + "dumbbell-pfc-only.yaml", {}, false, false},
      {"S3 two flows, DCQCN", golden + "incast-dcqcn.yaml", s3, false, true},
      {"S4 permutation, PFC only", golden + "dumbbell-pfc-only.yaml", s4, false, false},
      {"S4 permutation, DCQCN", golden + "incast-dcqcn.yaml", s4, false, true},
      {"S5 all-to-all, PFC only", golden + "dumbbell-pfc-only.yaml", s5, false, false},
      {"S5 all-to-all, DCQCN", golden + "incast-dcqcn.yaml", s5, false, true},
      {"all-reduce 4 MiB, 128 GPUs", ring, collective("all-reduce", "4MiB"), true, false},
      {"all-to-all 4 MiB, 128 GPUs", ring, collective("all-to-all", "4MiB"), true, false},
      {"training step, quickstart", "scenarios/quickstart.yaml", {}, true, false},
  };
}

constexpr std::array<const char*, 3> kEngines = {"packet", "flow", "analytic"};

struct Figures {
  double mean_us = 0, median_us = 0, p99_us = 0;  // of flow completion
  double step_us = 0;
  double wall_s = 0;
};

Figures measure(const Case& c, const char* engine, int seeds) {
  Figures f;
  const int runs = c.random ? seeds : 1;
  for (int seed = 1; seed <= runs; ++seed) {
    ScenarioOverrides overrides;
    overrides.settings = c.settings;
    overrides.settings.push_back("simulation.engine=" + std::string(engine));
    overrides.settings.push_back("seed=" + std::to_string(seed));
    overrides.settings.emplace_back("output.dir=unused");
    const Result r = run_scenario(
        load_scenario(std::string(TRAINYARD_SOURCE_DIR) + "/" + c.scenario, overrides));
    if (!r.complete) throw SimulationError(c.name + ", " + engine + ": " + r.incomplete_reason);
    std::vector<double> times;
    for (const TransferRecord& t : r.flows) times.push_back((t.acknowledged - t.start).micros());
    std::sort(times.begin(), times.end());
    const size_t n = times.size();
    double mean = 0;
    for (const double t : times) mean += t / static_cast<double>(n);
    f.mean_us += mean / runs;
    f.median_us += 0.5 * (times[(n - 1) / 2] + times[n / 2]) / runs;
    f.p99_us += times[(99 * n + 99) / 100 - 1] / runs;
    f.step_us += r.step_time.micros() / runs;
    f.wall_s += r.wall_s;
  }
  return f;
}

double pct(double ours, double reference) {
  return 100 * (ours / reference - 1);
}

int run_all(int argc, char** argv) {
  std::string only;
  int seeds = 5;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--only" && i + 1 < argc)
      only = argv[++i];
    else if (a == "--seeds" && i + 1 < argc)
      seeds = std::max(1, std::atoi(argv[++i]));
    else
      throw UserError("unknown argument " + a, "use --only TEXT, --seeds N");
  }
  fmt::print("{:28} {:9} {:>11} {:>11} {:>11} {:>11} {:>8} {:>8} {:>8} {:>10} {:>8}\n", "case",
             "engine", "mean us", "median us", "p99 us", "step us", "error %", "median %", "p99 %",
             "wall s", "faster");
  size_t cases = 0;
  std::array<double, 3> sum{}, most{}, wall{};
  for (const Case& c : all_cases()) {
    if (c.name.find(only) == std::string::npos) continue;
    ++cases;
    std::array<Figures, 3> f;
    for (size_t e = 0; e < 3; ++e) {
      f[e] = measure(c, kEngines[e], seeds);
      const double error =
          c.step ? pct(f[e].step_us, f[0].step_us) : pct(f[e].mean_us, f[0].mean_us);
      sum[e] += std::abs(error);
      most[e] = std::max(most[e], std::abs(error));
      wall[e] += f[e].wall_s;
      fmt::print(
          "{:28} {:9} {:>11.2f} {:>11.2f} {:>11.2f} {:>11} {:>+8.2f} {:>+8.2f} {:>+8.2f} {:>10.5f} "
          "{:>8}\n",
          e == 0 ? c.name : "", kEngines[e], f[e].mean_us, f[e].median_us, f[e].p99_us,
          c.step ? fmt::format("{:.2f}", f[e].step_us) : "-", error,
          pct(f[e].median_us, f[0].median_us), pct(f[e].p99_us, f[0].p99_us), f[e].wall_s,
          fmt::format("{:.0f}x", f[0].wall_s / f[e].wall_s));
    }
  }
  if (cases == 0) throw UserError("no case contains '" + only + "'");
  const auto n = static_cast<double>(cases);
  fmt::print(
      "{{\"cases\":{},\"flow_mean_error_pct\":{:.3f},\"flow_max_error_pct\":{:.3f},"
      "\"analytic_mean_error_pct\":{:.3f},\"analytic_max_error_pct\":{:.3f},"
      "\"flow_speedup\":{:.1f},\"analytic_speedup\":{:.1f}}}\n",
      cases, sum[1] / n, most[1], sum[2] / n, most[2], wall[0] / wall[1], wall[0] / wall[2]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_all(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_fidelity: {}\n", e.what());
    return 2;
  }
}
