// SPDX-License-Identifier: MIT
// Speed of the packet engine on one core, every check on, one ACK per packet: link transmissions
// (ACKs and pauses included) per second of wall time.
//
//   incast  8 to 1, 200 MB in all                       scenarios/bench/incast.yaml
//   ring    64 MiB all-reduce on 128 GPUs, 1000 B       scenarios/bench/ring.yaml
//   p1      fat-tree k = 8, 128 hosts, permutation 10 MB, PFC only: the golden case
//
//   bench_packet [--repeats N] [--only NAME] [--peers off] [--profile off]
//                                                                last line: one JSON object
//
// Then the same cases, and P1 with DCQCN and the ring with 9000-byte packets, beside the seconds
// and memory that independent packet simulators took for the same inputs. Their figures were
// measured on a 2-core virtual machine, one run at a time; a yardstick, a fixed piece of
// event-queue-like work whose time there is known, carries them over to the machine and the load
// of this run. Every case runs in a process of its own, so that its memory is its own.
//
// Where `perf` is installed the five functions with the most samples of P1 are printed.
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "tools/scenario/run.h"

namespace fs = std::filesystem;
using namespace trainyard;

namespace {

/// What a process that runs one case hands back.
struct Row {
  double best = 0, median = 0;  // transmissions per second
  double seconds = 0;           // CPU, of the whole run, set-up included; the median
  uint64_t transmissions = 0, events = 0, fingerprint = 0, rss = 0;
  double simulated_us = 0;
};

/// Of this process. On a machine that others use as well it says more than wall time; idle, the two
/// are alike, since everything here runs on one core.
double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

Row measure_here(const std::string& name, const Scenario& scenario, int repeats) {
  Row row;
  std::vector<double> rates, seconds;
  double total_s = 0;
  // A short case runs more often: for a second at least.
  for (int i = 0; i < repeats || (repeats > 1 && total_s < 1 && i < 50); ++i) {
    const double started = cpu_seconds();
    const Result r = run_scenario(scenario);
    seconds.push_back(cpu_seconds() - started);
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
  std::sort(seconds.begin(), seconds.end());
  row.best = rates.back();
  row.median = rates[rates.size() / 2];
  row.seconds = seconds[seconds.size() / 2];
  return row;
}

/// The same in a process of its own.
Row measure(const std::string& name, const Scenario& scenario, int repeats) {
  int ends[2];
  if (pipe(ends) != 0) throw SimulationError("no pipe");
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) throw SimulationError("no process");
  if (child == 0) {
    close(ends[0]);
    int code = 0;
    try {
      const Row row = measure_here(name, scenario, repeats);
      if (write(ends[1], &row, sizeof row) != static_cast<ssize_t>(sizeof row)) code = 1;
    } catch (const std::exception& e) {
      fmt::print(stderr, "bench_packet: {}\n", e.what());
      code = 1;
    }
    _exit(code);
  }
  close(ends[1]);
  Row row;
  const bool whole = read(ends[0], &row, sizeof row) == static_cast<ssize_t>(sizeof row);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!whole || status != 0) throw SimulationError(name + " failed");
  return row;
}

/// Seconds of a fixed piece of work of the peers' kind: a heap of events whose objects lie
/// scattered in memory. The best of five.
double yardstick() {
  constexpr uint32_t kObjects = 1U << 18;  // 16 MiB
  struct Object {
    uint64_t state[8];
  };
  std::vector<Object> objects(kObjects);
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const double started = cpu_seconds();
    uint64_t x = 88172645463325252ULL;
    const auto next = [&x] {
      x ^= x << 13;
      x ^= x >> 7;
      x ^= x << 17;
      return x;
    };
    using Entry = std::pair<uint64_t, uint32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap;
    for (uint32_t i = 0; i < 4096; ++i) heap.emplace(next() % 1000, next() % kObjects);
    for (int i = 0; i < 1'000'000; ++i) {
      const auto [time, at] = heap.top();
      heap.pop();
      Object& o = objects[at];
      o.state[0] += time;
      heap.emplace(time + 1 + next() % 1000, (o.state[i % 8] + next()) % kObjects);
    }
    best = std::min(best, cpu_seconds() - started);
  }
  return best;
}

/// Seconds of the yardstick on the machine of the peers' figures when idle, within a tenth: worked
/// out on a busy one from what P1 took there and takes when idle.
constexpr double kYardstickThere = 0.175;

/// Event-loop seconds and memory of an independent packet simulator.
struct Peer {
  const char* name;
  const char* which;  ///< our case with the same inputs
  double seconds, mib;
};
/// hpcc: alibaba-edu/High-Precision-Congestion-Control 9f4be2a. simai: aliyun/SimAI b5ff47c with
/// ns-3-alibabacloud c2bfbf4. csg-htsim: Broadcom/csg-htsim 841d9e7, a quiet run.
constexpr Peer kPeers[] = {
    {"HPCC ns-3", "p1", 31.637, 792.6},         {"SimAI ns-3", "p1", 29.181, 2878.6},
    {"csg-htsim (*)", "p1", 8.7, 41.7},         {"HPCC ns-3", "p1-dcqcn", 27.461, 365.0},
    {"SimAI ns-3", "p1-dcqcn", 31.510, 2724.7}, {"SimAI ns-3", "ring-9000", 33.876, 1667.5},
    {"SimAI ns-3", "ring", 221.118, 1689.1}};

void print_peers(const std::vector<std::pair<std::string, Row>>& rows) {
  const double here = yardstick();
  const double scale = here / kYardstickThere;
  fmt::print(
      "\nbeside independent simulators (their event loop alone; ours: CPU of the whole run); "
      "yardstick "
      "{:.3f} s "
      "here, {:.3f} s there: their seconds x {:.2f}\n",
      here, kYardstickThere, scale);
  fmt::print("{:10} {:14} {:>9} {:>9} {:>11} {:>10} {:>12}\n", "case", "who", "seconds", "scaled",
             "times ours", "MiB", "times ours");
  for (const auto& [name, row] : rows) {
    const double mib = static_cast<double>(row.rss) / (1024.0 * 1024.0);
    bool first = true;
    for (const Peer& p : kPeers) {
      if (name != p.which) continue;
      if (first) {
        fmt::print("{:10} {:14} {:>9.2f} {:>9} {:>11} {:>10.1f}\n", name, "Trainyard", row.seconds,
                   "", 1, mib);
      }
      first = false;
      fmt::print("{:10} {:14} {:>9.2f} {:>9.2f} {:>11.1f} {:>10.1f} {:>12.1f}\n", "", p.name,
                 p.seconds, p.seconds * scale, p.seconds * scale / row.seconds, p.mib, p.mib / mib);
    }
  }
  fmt::print("(*) no marks on ACKs, no DCQCN, thresholds in packets: less work per packet\n");
}

/// Samples this program on P1 with `perf`, when there is one.
void print_profile(const char* self) {
  const fs::path data = fs::temp_directory_path() / ("bench_packet_" + std::to_string(getpid()));
  const std::string record = fmt::format(
      "perf record -q -F 499 -o '{}' '{}' --repeats 1 --only p1 --peers off --profile off > "
      "/dev/null 2>&1",
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
  bool peers = true;
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string a = argv[i];
    if (a == "--repeats")
      repeats = std::max(1, std::atoi(argv[i + 1]));
    else if (a == "--only")
      only = argv[i + 1];
    else if (a == "--peers")
      peers = std::string(argv[i + 1]) != "off";
    else if (a == "--profile")
      profile = std::string(argv[i + 1]) != "off";
    else
      throw UserError("unknown argument " + a,
                      "use --repeats N, --only incast|p1|p1-dcqcn|ring|ring-9000, --peers off, "
                      "--profile off");
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
  ScenarioOverrides p1_dcqcn = p1_inputs;
  p1_dcqcn.settings.emplace_back("fabric.switch.buffer=32MiB");
  ScenarioOverrides large;
  large.settings = {"fabric.transport.payload=9000B"};
  struct Case {
    std::string name, file;
    ScenarioOverrides overrides;
    bool for_peers_only = false;
  };
  const std::vector<Case> cases = {{"incast", "bench/incast.yaml", {}},
                                   {"p1", "golden/dumbbell-pfc-only.yaml", p1_inputs},
                                   {"p1-dcqcn", "golden/incast-dcqcn.yaml", p1_dcqcn, true},
                                   {"ring-9000", "bench/ring.yaml", large, true},
                                   {"ring", "bench/ring.yaml", {}}};
  std::vector<std::pair<std::string, Row>> rows;
  fmt::print("{:10} {:>14} {:>14} {:>14} {:>10} {:>12} {:>9}  {}\n", "case", "transmissions",
             "median /s", "best /s", "events/tx", "simulated us", "RSS MiB", "fingerprint");
  std::string json;
  for (const Case& c : cases) {
    if (only.empty() ? c.for_peers_only && !peers : only != c.name) continue;
    const Row r =
        measure(c.name, load_scenario((scenarios / c.file).string(), c.overrides), repeats);
    rows.emplace_back(c.name, r);
    const double rss = static_cast<double>(r.rss) / (1024.0 * 1024.0);
    fmt::print("{:10} {:>14} {:>14.0f} {:>14.0f} {:>10.2f} {:>12.1f} {:>9.1f}  {:016x}\n", c.name,
               r.transmissions, r.median, r.best,
               static_cast<double>(r.events) / static_cast<double>(r.transmissions), r.simulated_us,
               rss, r.fingerprint);
    json += fmt::format("{}\"{}_tx_per_s\":{:.0f}", json.empty() ? "" : ",", c.name, r.median);
    if (c.name == "p1") {
      json +=
          fmt::format(",\"p1_rss_mib\":{:.1f},\"p1_fingerprint\":\"{:016x}\"", rss, r.fingerprint);
    }
  }
  if (peers) print_peers(rows);
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
