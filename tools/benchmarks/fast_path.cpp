// SPDX-License-Identifier: MIT
// The fast path beside full packet runs: what carried the bytes, what it cost, how far off it is.
//
//   bench_fast_path [--only TEXT] [--seeds N] [--full-limit SECONDS] [--twins N]
//
// Per case: a full run (fast_path: none) where it ends within the limit (600 s by default; 0: none
// is tried), the exact and the fast path, with N seeds each. FCT: collectives and messages of the
// job, finish minus start, fast against full in the mean; beside it the spread of that mean between
// seeds of the full run, below which no error can be seen. Event ratio: link transmissions of the
// run over all events that the fast one executed, packets, controllers, simulations repeated and
// audit included. Twin bias: step times with shared against independent dice, N seeds each, in the
// mean; shared with eight sets of dice beside it. Last line: one JSON object.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "tools/scenario/run.h"

using namespace trainyard;

namespace {

struct Case {
  std::string name, scenario;
  std::vector<std::string> settings;
  bool full = true;  ///< small enough for packets
};

std::vector<Case> all_cases() {
  const std::string dense = "scenarios/bench/dense_128.yaml";
  const std::string large = "scenarios/bench/dense_1024.yaml";
  const std::string moe = "scenarios/bench/moe_128.yaml";
  const std::string tenants = "scenarios/bench/tenants_128.yaml";
  const std::string faults = "scenarios/bench/faults_128.yaml";
  const std::string windows = "scenarios/bench/windows.yaml";
  // Small enough to be run packet by packet.
  const std::vector<std::string> small = {"workload.model=gpt3-7b", "workload.batch.global=32",
                                          "workload.batch.sequence=512"};
  auto oversubscribed = small;
  oversubscribed.push_back("fabric.topology.oversubscription=2");
  return {
      {"dense (a) 128", dense, {}, true},
      {"dense (b) 1024, small", large, small, true},
      {"dense (c) 1024, small", large, oversubscribed, true},
      {"dense (b) 1024", large, {}, false},
      {"moe 128", moe, {}, true},
      {"moe 128, even loads", moe, {"workload.experts.sigma=0"}, true},
      {"dense 128, tenants", tenants, {}, true},
      {"dense 128, tenants gone", tenants, {"traffic=[]"}, true},
      {"dense 128, faults", faults, {}, true},
      {"incast, windows", windows, {}, true},
  };
}

struct Outcome {
  bool complete = false;
  double wall = 0, step_ms = 0;
  uint64_t transmissions = 0, events = 0;
  FastPathStats fast;
  std::vector<double> fct;  ///< us; collectives, then messages, in order of issue
  uint64_t fingerprint = 0;
};

Outcome run(const Case& c, const std::string& way, uint64_t seed, double limit,
            const std::vector<std::string>& more = {}) {
  ScenarioOverrides overrides;
  overrides.settings = c.settings;
  overrides.settings.push_back("simulation.fast_path=" + way);
  overrides.settings.push_back("seed=" + std::to_string(seed));
  for (const std::string& m : more) overrides.settings.push_back(m);
  RunHooks hooks;
  if (limit > 0) {
    hooks.progress = [limit](const RunProgress& p) { return p.wall_s < limit; };
  }
  const Result r = run_scenario(
      load_scenario(std::string(TRAINYARD_SOURCE_DIR) + "/" + c.scenario, overrides), hooks);
  Outcome o;
  o.complete = r.complete;
  o.wall = r.wall_s;
  o.step_ms = r.step_time.seconds() * 1e3;
  o.transmissions = r.totals.transmissions;
  o.events = r.totals.events;
  if (r.fast_path) {
    o.fast = *r.fast_path;
    o.events = r.fast_path->events + r.fast_path->audit_events;
  }
  // Collectives are numbered as they begin, which may differ between ways: by name and group.
  std::vector<std::pair<std::string, double>> named;
  for (const auto& x : r.collectives) {
    named.emplace_back(x.group + "/" + x.name, (x.finish - x.start).seconds() * 1e6);
  }
  std::stable_sort(named.begin(), named.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& x : named) o.fct.push_back(x.second);
  o.fingerprint = r.fingerprint;
  return o;
}

double mean(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x;
  return v.empty() ? 0 : sum / static_cast<double>(v.size());
}

double deviation(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += (x - mean(v)) * (x - mean(v));
  return v.size() < 2 ? 0 : std::sqrt(sum / static_cast<double>(v.size() - 1));
}

double percentile(std::vector<double> v, double p) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<size_t>(p * static_cast<double>(v.size())))];
}

/// What the audit costs in wall time, in percent of a run without it; the fastest of three each.
double audit_cost_pct(const Case& c) {
  double with = 1e30, without = 1e30;
  for (int i = 0; i < 3; ++i) {
    with = std::min(with, run(c, "fast", 1, 0).wall);
    without = std::min(without, run(c, "fast", 1, 0, {"simulation.audit.budget=0%"}).wall);
  }
  return 100 * (with / without - 1);
}

double share(int64_t part, const FastPathStats& f) {
  const double all =
      static_cast<double>(f.bytes_simulated + f.bytes_jumped + f.bytes_followed + f.bytes_stepped);
  return all > 0 ? 100 * static_cast<double>(part) / all : 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string only;
  uint64_t seeds = 1;
  uint64_t twins = 0;
  double limit = 600;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (i + 1 < argc && a == "--only") {
      only = argv[++i];
    } else if (i + 1 < argc && a == "--seeds") {
      seeds = std::strtoull(argv[++i], nullptr, 10);
    } else if (i + 1 < argc && a == "--twins") {
      twins = std::strtoull(argv[++i], nullptr, 10);
    } else if (i + 1 < argc && a == "--full-limit") {
      limit = std::strtod(argv[++i], nullptr);
    } else {
      fmt::print(stderr,
                 "usage: bench_fast_path [--only TEXT] [--seeds N] [--full-limit SECONDS] "
                 "[--twins N]\n");
      return 2;
    }
  }
  uint64_t mismatches = 0;
  double largest_share = 0;
  struct Summary {
    double event_ratio = 0, wall_ratio = 0, fct_pct = 0, step_pct = 0, wall = 0, audit_pct = 0;
  };
  std::vector<std::pair<std::string, Summary>> summaries;
  for (const Case& c : all_cases()) {
    if (!only.empty() && c.name.find(only) == std::string::npos) continue;
    std::vector<double> full_step, fast_step, full_fct, fast_fct, full_p99, fast_p99;
    Outcome full, exact, fast;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      fast = run(c, "fast", seed, 0);
      if (c.full && limit > 0) full = run(c, "none", seed, limit);
      if (seed == 1) exact = run(c, "exact", seed, limit > 0 ? limit : 60);
      fast_step.push_back(fast.step_ms);
      fast_fct.push_back(mean(fast.fct));
      fast_p99.push_back(percentile(fast.fct, 0.99));
      if (!full.complete) continue;
      full_step.push_back(full.step_ms);
      full_fct.push_back(mean(full.fct));
      full_p99.push_back(percentile(full.fct, 0.99));
      if (seed != 1 || !exact.complete || exact.fingerprint == full.fingerprint) continue;
      // Queue pairs are opened in another order than message by message: the oracle decides.
      const Outcome off = run(c, "exact", seed, limit, {"simulation.domains=off"});
      if (!off.complete || off.fingerprint != exact.fingerprint) ++mismatches;
    }
    const FastPathStats& f = fast.fast;
    fmt::print("{}\n", c.name);
    fmt::print("  fast   {:8.2f} s, step {:.4f} ms, {} events for {} transmissions\n", fast.wall,
               fast.step_ms, fast.events, fast.transmissions);
    fmt::print(
        "         bytes: {:.2f} % packets, {:.2f} % period jumps, {:.2f} % memo, {:.2f} % "
        "stepped\n",
        share(f.bytes_simulated, f), share(f.bytes_jumped, f), share(f.bytes_followed, f),
        share(f.bytes_stepped, f));
    fmt::print(
        "         domains {}, followed {}, episodes {}, stepped {}, materialised {}, "
        "merges {} + {}, largest {} links\n",
        f.domains, f.followed, f.episodes, f.stepped, f.materialised, f.merges, f.pool_merges,
        f.largest_domain);
    fmt::print(
        "         audit: n {}, mean {:+.3f} %, max {:.2f} %, {:.2f} % of the stepped bytes\n",
        f.audit_n, f.audit_mean_pct(), f.audit_max_pct,
        f.bytes_stepped > 0
            ? 100.0 * static_cast<double>(f.bytes_audited) / static_cast<double>(f.bytes_stepped)
            : 0.0);
    fmt::print("  exact  {:8.2f} s{}, {} events\n", exact.wall, exact.complete ? "" : " (cut off)",
               exact.events);
    Summary s;
    s.wall = fast.wall;
    s.event_ratio = static_cast<double>(fast.transmissions) /
                    static_cast<double>(std::max<uint64_t>(1, fast.events));
    if (f.audit_n > 0) {
      s.audit_pct = audit_cost_pct(c);
      fmt::print("         the audit costs {:+.1f} % of the wall time without it\n", s.audit_pct);
    }
    if (!full_step.empty()) {
      s.wall_ratio = full.wall / fast.wall;
      s.step_pct = 100 * (mean(fast_step) / mean(full_step) - 1);
      s.fct_pct = 100 * (mean(fast_fct) / mean(full_fct) - 1);
      const auto [lo, hi] = std::minmax_element(full_fct.begin(), full_fct.end());
      const std::string job =
          full.step_ms > 0
              ? fmt::format(
                    "step {:+.3f} %, FCT mean {:+.3f} % (seeds spread {:.3f} %), p99 {:+.3f} %",
                    s.step_pct, s.fct_pct, 100 * (*hi / *lo - 1),
                    100 * (mean(fast_p99) / mean(full_p99) - 1))
              : "no job";
      fmt::print(
          "  full   {:8.2f} s, step {:.4f} ms; fast against it: wall {:.1f}x, events {:.0f}x, {}\n",
          full.wall, full.step_ms, s.wall_ratio, s.event_ratio, job);
    } else {
      fmt::print("  full   {}\n", c.full && limit > 0
                                      ? fmt::format("not done after {:.0f} s", full.wall)
                                      : "not tried");
    }
    for (const int64_t bytes : {f.bytes_jumped, f.bytes_followed, f.bytes_stepped}) {
      if (c.name != "incast, windows") largest_share = std::max(largest_share, share(bytes, f));
    }
    summaries.emplace_back(c.name, s);
    std::fflush(stdout);
  }
  // Same seed, same ECMP paths: only the dice of marks differ.
  double twin_bias = 0;
  for (const Case& c : all_cases()) {
    if (twins == 0 || (c.name != "moe 128" && c.name != "dense (b) 1024, small")) continue;
    std::vector<double> own, shared, eight;
    for (uint64_t seed = 1; seed <= twins; ++seed) {
      own.push_back(run(c, "fast", seed, 0).step_ms);
      const auto bias = [&](const std::string& variants) {
        const Outcome twin =
            run(c, "fast", seed, 0,
                {"simulation.noise=shared", "simulation.noise_variants=" + variants});
        return 100 * (twin.step_ms / own.back() - 1);
      };
      shared.push_back(bias("1"));
      eight.push_back(bias("8"));
    }
    const double n = std::sqrt(static_cast<double>(twins));
    fmt::print(
        "twin bias of {}: step {:+.3f} +- {:.3f} % with shared dice, {:+.3f} +- {:.3f} % with "
        "eight sets ({} seeds, seeds spread {:.2f} %)\n",
        c.name, mean(shared), deviation(shared) / n, mean(eight), deviation(eight) / n, twins,
        100 * deviation(own) / mean(own));
    std::fflush(stdout);
    if (std::abs(mean(shared)) > std::abs(twin_bias)) twin_bias = mean(shared);
  }
  const auto of = [&](const std::string& name) {
    for (const auto& [n, s] : summaries) {
      if (n == name) return s;
    }
    return Summary();
  };
  const Summary a = of("dense (a) 128");
  const Summary b = of("dense (b) 1024, small");
  const Summary big = of("dense (b) 1024");
  const Summary moe = of("moe 128");
  fmt::print(
      "{{\"exact_mismatches\":{},\"dense_event_ratio\":{:.1f},\"dense_wall_ratio\":{:.1f},"
      "\"dense_fct_mean_pct\":{:.3f},\"dense_step_pct\":{:.3f},"
      "\"dense1024_wall_ratio\":{:.1f},\"dense1024_fct_mean_pct\":{:.3f},"
      "\"dense1024_step_pct\":{:.3f},\"moe_wall_ratio\":{:.2f},\"moe_step_pct\":{:.3f},"
      "\"max_single_shortcut_share_pct\":{:.2f},\"twin_bias_pct\":{:.3f},\"gpt13b_128_wall_s\":{:."
      "2f},"
      "\"dense_1024_wall_s\":{:.2f},\"audit_cost_pct\":{:.2f}}}\n",
      mismatches, a.event_ratio, a.wall_ratio, a.fct_pct, a.step_pct, b.wall_ratio, b.fct_pct,
      b.step_pct, moe.wall_ratio, moe.step_pct, largest_share, twin_bias, a.wall, big.wall,
      std::max({a.audit_pct, b.audit_pct, big.audit_pct, moe.audit_pct}));
  return mismatches == 0 ? 0 : 3;
}
