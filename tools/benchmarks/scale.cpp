// SPDX-License-Identifier: MIT
// How time and memory grow from 128 to 131,072 GPUs: one step of Llama-3 405B (TP 8, PP 16, data
// parallel over the rest) at a constant number of micro-batches. Beyond 128 replicas the optimizer
// is sharded over groups of 128 (hybrid sharding), whose sums are summed up: one ring over all
// would have n (n - 1) messages. Every size runs in a process of its own, so that its peak memory
// is its own. The last line of output is JSON.
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "sim/errors.h"
#include "tools/scenario/run.h"

namespace trainyard {
namespace {

/// What a child tells.
struct Outcome {
  bool complete = false;
  double setup_s = 0, wall_s = 0, step_s = 0;
  double packet_pct = 100;  ///< of the payload, simulated packet by packet
  double stepped_pct = 0;   ///< decisions of controllers only
  double domains = 0, episodes = 0, events = 0, ops = 0, transmissions = 0;
  char reason[200] = "";
};

struct Row {
  int64_t gpus = 0;
  Outcome outcome;
  double rss_gib = 0;
};

Outcome run_one(const std::string& file, const std::vector<std::string>& settings) {
  Outcome o;
  const auto because = [&](const std::string& text) {
    std::snprintf(o.reason, sizeof o.reason, "%s", text.c_str());
  };
  try {
    ScenarioOverrides overrides;
    overrides.settings = settings;
    const Scenario s = load_scenario(file, overrides);
    RunHooks hooks;
    hooks.progress = [&](const RunProgress& p) {
      o.ops = static_cast<double>(p.total);
      return true;
    };
    const Result r = run_scenario(s, hooks);
    o.complete = r.complete;
    because(r.incomplete_reason);
    o.setup_s = r.setup_wall_s;
    o.wall_s = r.wall_s;
    o.step_s = r.step_time.seconds();
    o.events = static_cast<double>(r.totals.events);
    o.transmissions = static_cast<double>(r.totals.transmissions);
    if (r.fast_path) {
      const FastPathStats& f = *r.fast_path;
      const auto all = static_cast<double>(f.bytes_simulated + f.bytes_jumped + f.bytes_followed +
                                           f.bytes_stepped);
      if (all > 0) {
        o.packet_pct = 100 * static_cast<double>(f.bytes_simulated) / all;
        o.stepped_pct = 100 * static_cast<double>(f.bytes_stepped) / all;
      }
      o.domains = static_cast<double>(f.domains);
      o.episodes = static_cast<double>(f.episodes);
      o.events = static_cast<double>(f.events);
    }
  } catch (const std::bad_alloc&) {
    because("out of memory");
  } catch (const std::exception& e) {
    because(e.what());
  }
  return o;
}

Row run_apart(const std::string& file, int64_t gpus, const std::vector<std::string>& settings,
              int64_t limit_s, double limit_gib) {
  Row row;
  row.gpus = gpus;
  int ends[2];
  if (pipe(ends) != 0) throw SimulationError("cannot make a pipe");
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) throw SimulationError("cannot start a process");
  if (child == 0) {
    close(ends[0]);
    const auto bytes = static_cast<rlim_t>(limit_gib * 1024 * 1024 * 1024);
    const rlimit memory{bytes, bytes};
    setrlimit(RLIMIT_AS, &memory);
    alarm(static_cast<unsigned>(limit_s));
    const Outcome o = run_one(file, settings);
    const bool told = write(ends[1], &o, sizeof o) == static_cast<ssize_t>(sizeof o);
    std::_Exit(told ? 0 : 1);
  }
  close(ends[1]);
  const bool told =
      read(ends[0], &row.outcome, sizeof row.outcome) == static_cast<ssize_t>(sizeof row.outcome);
  close(ends[0]);
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  row.rss_gib = static_cast<double>(usage.ru_maxrss) / 1024 / 1024;
  if (!told) {
    row.outcome = {};
    const bool late = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    const std::string why = late ? fmt::format("not done after {} s", limit_s) : "killed";
    std::snprintf(row.outcome.reason, sizeof row.outcome.reason, "%s", why.c_str());
  }
  return row;
}

std::string figure(const std::vector<Row>& rows, int64_t gpus, double (*of)(const Row&)) {
  for (const Row& r : rows) {
    if (r.gpus == gpus && r.outcome.complete) return fmt::format("{:.4g}", of(r));
  }
  return "null";
}

int bench(int argc, char** argv) {
  std::vector<int64_t> sizes = {128, 1024, 4096, 16384, 131072};
  std::string file = TRAINYARD_SOURCE_DIR "/scenarios/bench/llama405b.yaml";
  std::vector<std::string> more;
  int64_t limit_s = 3600, microbatches = 16;
  double limit_gib = 16;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == argc) throw UserError(word + " needs a value");
      return argv[++i];
    };
    if (word == "--only") {
      sizes = {std::atoll(value().c_str())};
    } else if (word == "--to") {
      const int64_t most = std::atoll(value().c_str());
      sizes.erase(std::remove_if(sizes.begin(), sizes.end(), [&](int64_t n) { return n > most; }),
                  sizes.end());
    } else if (word == "--limit-s") {
      limit_s = std::atoll(value().c_str());
    } else if (word == "--limit-gib") {
      limit_gib = std::atof(value().c_str());
    } else if (word == "--microbatches") {
      microbatches = std::atoll(value().c_str());
    } else if (word == "--set") {
      more.push_back(value());
    } else {
      throw UserError("unknown option " + word,
                      "known: --only GPUS, --to GPUS, --limit-s, --limit-gib, --microbatches, "
                      "--set KEY=VALUE");
    }
  }
  fmt::print(
      "Llama-3 405B, TP 8, PP 16, {} micro-batches of 8,192 tokens, optimizer sharded over at most "
      "128 replicas; at most {} s and {:g} GiB a size\n\n",
      microbatches, limit_s, limit_gib);
  fmt::print("{:>8} {:>5} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>9}  {}\n", "GPUs",
             "dp", "step s", "setup s", "wall s", "RSS GiB", "KiB/GPU", "packets %", "stepped %",
             "domains", "episodes", "");
  std::vector<Row> rows;
  for (const int64_t gpus : sizes) {
    const int64_t dp = gpus / 128;
    if (gpus < 128 || gpus % 128 != 0) throw UserError("GPUs must be a multiple of 128");
    std::vector<std::string> settings = {
        fmt::format("cluster.nodes={}", gpus / 8),
        fmt::format("workload.batch.global={}", dp * microbatches),
        fmt::format("fabric.topology.tiers={}", gpus > 4096 ? 3 : 2), "output.dir=unused"};
    if (dp > 128) settings.emplace_back("workload.layout.shard=128");
    settings.insert(settings.end(), more.begin(), more.end());
    const Row r = run_apart(file, gpus, settings, limit_s, limit_gib);
    const Outcome& o = r.outcome;
    fmt::print(
        "{:>8} {:>5} {:>9.4f} {:>9.2f} {:>9.2f} {:>9.3f} {:>9.1f} {:>9.4f} {:>10.3f} {:>9} {:>9}  "
        "{}\n",
        gpus, dp, o.step_s, o.setup_s, o.wall_s, r.rss_gib,
        r.rss_gib * 1024 * 1024 / static_cast<double>(gpus), o.packet_pct, o.stepped_pct,
        static_cast<uint64_t>(o.domains), static_cast<uint64_t>(o.episodes), o.reason);
    std::fflush(stdout);
    rows.push_back(r);
  }
  const auto wall = [](const Row& r) { return r.outcome.setup_s + r.outcome.wall_s; };
  const auto rss = [](const Row& r) { return r.rss_gib; };
  const auto packets = [](const Row& r) { return r.outcome.packet_pct; };
  fmt::print(
      "\n{{\"llama405b_16384_wall_s\":{},\"llama405b_16384_rss_gib\":{},\"gpus_131072_wall_s\":{},"
      "\"gpus_131072_rss_gib\":{},\"gpus_131072_packet_bytes_pct\":{}}}\n",
      figure(rows, 16384, wall), figure(rows, 16384, rss), figure(rows, 131072, wall),
      figure(rows, 131072, rss), figure(rows, 131072, packets));
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  try {
    return trainyard::bench(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench scale: {}\n", e.what());
    return 2;
  }
}
