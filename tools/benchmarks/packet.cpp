// SPDX-License-Identifier: MIT
// Speed of the packet engine on one core, every check on, one ACK per packet: link transmissions
// (ACKs and pauses included) per second of wall time.
//
//   incast  8 to 1, 200 MB in all                       scenarios/bench/incast.yaml
//   ring    64 MiB all-reduce on 128 GPUs, 1000 B       scenarios/bench/ring.yaml
//   p1      fat-tree k = 8, 128 hosts, permutation 10 MB, PFC only: the golden case
//
//   bench_packet [--repeats N] [--only NAME] [--profile off]     last line: one JSON object
//
// Where `perf` is installed the five functions with the most samples of P1 are printed.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/scenario/run.h"

namespace fs = std::filesystem;
using namespace trainyard;

namespace {

struct Row {
  std::string name;
  double best = 0, median = 0;  // transmissions per second
  uint64_t transmissions = 0, events = 0, fingerprint = 0, rss = 0;
  double simulated_us = 0;
};

Row measure(const std::string& name, const Scenario& scenario, int repeats) {
  Row row;
  row.name = name;
  std::vector<double> rates;
  double total_s = 0;
  // A short case runs more often: for a second at least.
  for (int i = 0; i < repeats || (repeats > 1 && total_s < 1 && i < 50); ++i) {
    const Result r = run_scenario(scenario);
    if (!r.complete) throw SimulationError(name + ": " + r.incomplete_reason);
    rates.push_back(static_cast<double>(r.totals.transmissions) / r.wall_s);
    total_s += r.wall_s;
    row.transmissions = r.totals.transmissions;
    row.events = r.totals.events;
    row.fingerprint = r.fingerprint;
    row.rss = r.peak_rss_bytes;
    row.simulated_us = r.end.micros();
  }
  std::sort(rates.begin(), rates.end());
  row.best = rates.back();
  row.median = rates[rates.size() / 2];
  return row;
}

/// Samples this program on P1 with `perf`, when there is one.
void print_profile(const char* self) {
  const fs::path data = fs::temp_directory_path() / ("bench_packet_" + std::to_string(getpid()));
  const std::string record = fmt::format(
      "perf record -q -F 499 -o '{}' '{}' --repeats 1 --only p1 --profile off > /dev/null 2>&1",
      data.string(), self);
  if (std::system("perf version > /dev/null 2>&1") != 0 || std::system(record.c_str()) != 0) {
    fmt::print("profile: perf is not installed or may not sample here\n");
    return;
  }
  fmt::print("profile of p1, share of samples:\n");
  std::fflush(stdout);
  const std::string report = fmt::format(
      "perf report -i '{}' --stdio --percent-limit 1 2> /dev/null | grep -v '^#' | grep '%' | "
      "head -5",
      data.string());
  if (std::system(report.c_str()) != 0) fmt::print("  perf report failed\n");
  std::error_code ignored;
  fs::remove(data, ignored);
}

int run(int argc, char** argv) {
  int repeats = 3;
  bool profile = true;
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string a = argv[i];
    if (a == "--repeats")
      repeats = std::max(1, std::atoi(argv[i + 1]));
    else if (a == "--only")
      only = argv[i + 1];
    else if (a == "--profile")
      profile = std::string(argv[i + 1]) != "off";
    else
      throw UserError("unknown argument " + a,
                      "use --repeats N, --only incast|ring|p1, --profile off");
  }
  const fs::path scenarios = fs::path(TRAINYARD_SOURCE_DIR) / "scenarios";
  // Node ids and wiring of our fat-tree are those of the published topology file, so that this is
  // the golden trajectory, bit for bit (tests/golden compares the fingerprints).
  ScenarioOverrides p1_inputs;
  p1_inputs.settings = {
      "cluster={gpus_per_node: 1}",
      "fabric.topology={kind: fat-tree, k: 8, nic: {rate: 100Gbps}, link: {delay: 1us}, "
      "scale_up: {kind: none}}",
      "traffic=[{pattern: permutation, shift: 67, size: 10MB}]"};
  struct Case {
    std::string name, file;
    ScenarioOverrides overrides;
  };
  // The peak of memory is the process's: cases in order of what they take.
  const std::vector<Case> cases = {{"incast", "bench/incast.yaml", {}},
                                   {"p1", "golden/dumbbell-pfc-only.yaml", p1_inputs},
                                   {"ring", "bench/ring.yaml", {}}};
  std::vector<Row> rows;
  fmt::print("{:8} {:>14} {:>14} {:>14} {:>10} {:>12} {:>9}  {}\n", "case", "transmissions",
             "median /s", "best /s", "events/tx", "simulated us", "RSS MiB", "fingerprint");
  std::string json;
  for (const Case& c : cases) {
    if (!only.empty() && only != c.name) continue;
    const Row r =
        measure(c.name, load_scenario((scenarios / c.file).string(), c.overrides), repeats);
    const double rss = static_cast<double>(r.rss) / (1024.0 * 1024.0);
    fmt::print("{:8} {:>14} {:>14.0f} {:>14.0f} {:>10.2f} {:>12.1f} {:>9.1f}  {:016x}\n", r.name,
               r.transmissions, r.median, r.best,
               static_cast<double>(r.events) / static_cast<double>(r.transmissions), r.simulated_us,
               rss, r.fingerprint);
    json += fmt::format("{}\"{}_tx_per_s\":{:.0f}", json.empty() ? "" : ",", r.name, r.median);
    if (c.name == "p1") {
      json +=
          fmt::format(",\"p1_rss_mib\":{:.1f},\"p1_fingerprint\":\"{:016x}\"", rss, r.fingerprint);
    }
  }
  std::fflush(stdout);
  if (profile && only.empty()) print_profile(argv[0]);
  fmt::print("{{{}}}\n", json);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_packet: {}\n", e.what());
    return 2;
  }
}
