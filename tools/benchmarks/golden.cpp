// SPDX-License-Identifier: MIT
// Ours beside the published flow completion times: runs the cases of scenarios/golden/cases.csv on
// the topology and flow files of each set and compares flow by flow, or ensemble by ensemble.
//
//   bench_golden [--reference DIR] [--only TEXT] [--seeds N] [--no-random]
//
// Last line: one JSON object. Exit 1 when a tolerance is broken.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tools/benchmarks/golden_cases.h"
#include "tools/scenario/run.h"

namespace fs = std::filesystem;
using namespace trainyard;

namespace {

using golden::Case;
using golden::split;
using golden::Stats;

struct Outcome {
  size_t flows = 0, runs = 1;
  Stats ours, theirs, ours_sd, theirs_sd;  // sd: of the statistic over runs
  size_t their_runs = 1;
  double worst_pct = 0;
  double wall_s = 0;
  uint64_t transmissions = 0, fingerprint = 0;
  std::string error;
};

/// Completion times in ns of fct.csv, by (src, dst, how many-th of the pair).
std::map<std::vector<int64_t>, double> read_fct(const fs::path& file) {
  std::map<std::vector<int64_t>, double> fct;
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<int64_t, double>>> by_pair;
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    const auto f = split(line, ',');
    by_pair[{std::stoll(f[1]), std::stoll(f[2])}].emplace_back(std::stoll(f[3]), std::stod(f[7]));
  }
  for (auto& [pair, list] : by_pair) {
    std::sort(list.begin(), list.end());  // source ports count the flows of a pair
    for (size_t i = 0; i < list.size(); ++i) {
      fct[{pair.first, pair.second, static_cast<int64_t>(i)}] = list[i].second;
    }
  }
  return fct;
}

double fct_ns(const TransferRecord& r) {
  return static_cast<double>((r.acknowledged - r.start).ps()) * 1e-3;
}

class Golden {
 public:
  Golden(fs::path scenarios, fs::path reference)
      : scenarios_(std::move(scenarios)), reference_(std::move(reference)) {
    std::ifstream in(reference_ / "seed-ensembles.csv");
    std::string line;
    std::getline(in, line);
    while (std::getline(in, line)) {
      const auto f = split(line, ',');
      ensembles_[f[0] + "/" + f[1]] = f;
    }
  }

  [[nodiscard]] Outcome run(const Case& c, int seeds) const {
    Outcome o;
    const fs::path set = reference_ / c.peer / c.set;
    const auto reference = read_fct(set / "fct.csv");
    const int runs = c.kind == "random" ? seeds : 1;
    std::vector<Stats> all;
    for (int seed = 1; seed <= runs; ++seed) {
      ScenarioOverrides overrides;
      overrides.settings = c.settings;
      overrides.settings.push_back("seed=" + std::to_string(seed));
      overrides.settings.push_back("fabric.topology.path=" + (set / "topology.txt").string());
      overrides.settings.push_back(
          "traffic=[{pattern: file, path: " + (set / "flows.csv").string() + "}]");
      overrides.settings.emplace_back("output.dir=unused");
      const Result r = run_scenario(load_scenario((scenarios_ / c.scenario).string(), overrides));
      if (!r.complete) {
        o.error = r.incomplete_reason;
        return o;
      }
      std::map<std::pair<uint32_t, uint32_t>, int64_t> nth;
      std::vector<double> ours, theirs;
      for (const TransferRecord& f : r.flows) {
        const double mine = fct_ns(f);
        const auto it = reference.find({f.src, f.dst, nth[{f.src, f.dst}]++});
        if (it == reference.end()) {
          o.error =
              "the table has no flow " + std::to_string(f.src) + " -> " + std::to_string(f.dst);
          return o;
        }
        ours.push_back(mine);
        theirs.push_back(it->second);
        o.worst_pct = std::max(o.worst_pct, 100 * std::abs(mine / it->second - 1));
      }
      o.flows = ours.size();
      if (o.flows != reference.size()) o.error = "the table has more flows than the flow list";
      all.push_back(golden::stats_of(ours));
      o.theirs = golden::stats_of(theirs);
      o.wall_s += r.wall_s;
      o.transmissions += r.totals.transmissions;
      o.fingerprint += r.fingerprint;
    }
    o.runs = all.size();
    const auto over = [&](double Stats::*field, double& mean, double& sd) {
      mean = sd = 0;
      for (const Stats& s : all) mean += s.*field / static_cast<double>(all.size());
      for (const Stats& s : all) sd += (s.*field - mean) * (s.*field - mean);
      sd = all.size() > 1 ? std::sqrt(sd / static_cast<double>(all.size() - 1)) : 0;
    };
    over(&Stats::mean, o.ours.mean, o.ours_sd.mean);
    over(&Stats::median, o.ours.median, o.ours_sd.median);
    over(&Stats::p99, o.ours.p99, o.ours_sd.p99);
    if (const auto it = ensembles_.find(c.peer + "/" + c.set);
        c.kind == "random" && it != ensembles_.end()) {
      const auto& f = it->second;
      o.their_runs = std::stoul(f[2]);
      o.theirs = {std::stod(f[3]), std::stod(f[5]), std::stod(f[7])};
      o.theirs_sd = {std::stod(f[4]), std::stod(f[6]), std::stod(f[8])};
    }
    return o;
  }

 private:
  fs::path scenarios_, reference_;
  std::map<std::string, std::vector<std::string>> ensembles_;
};

double pct(double ours, double theirs) {
  return 100 * (ours / theirs - 1);
}

double z_score(const Outcome& o, double Stats::*field) {
  const double variance =
      o.ours_sd.*field * (o.ours_sd.*field) / static_cast<double>(o.runs) +
      o.theirs_sd.*field * (o.theirs_sd.*field) / static_cast<double>(o.their_runs);
  return variance > 0 ? (o.ours.*field - o.theirs.*field) / std::sqrt(variance) : 0;
}

bool within(const Outcome& o, double Stats::*field, double tolerance_pct) {
  return std::abs(pct(o.ours.*field, o.theirs.*field)) <= tolerance_pct ||
         std::abs(z_score(o, field)) < 3;
}

int run_all(int argc, char** argv) {
  fs::path reference = fs::path(TRAINYARD_SOURCE_DIR) / ".." / "shared" / "reference";
  if (const char* shared = std::getenv("TRAINYARD_SHARED"))
    reference = fs::path(shared) / "reference";
  std::string only;
  int seeds = 20;
  bool random = true;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--reference" && i + 1 < argc)
      reference = argv[++i];
    else if (a == "--only" && i + 1 < argc)
      only = argv[++i];
    else if (a == "--seeds" && i + 1 < argc)
      seeds = std::stoi(argv[++i]);
    else if (a == "--no-random")
      random = false;
    else
      throw UserError("unknown argument " + a,
                      "use --reference DIR, --only TEXT, --seeds N, --no-random");
  }
  if (!fs::is_directory(reference)) {
    throw UserError("no reference tables in " + reference.string(),
                    "give their folder with --reference DIR; see docs/reproduce.md");
  }
  const fs::path scenarios = fs::path(TRAINYARD_SOURCE_DIR) / "scenarios" / "golden";
  std::vector<Case> cases;
  for (const Case& c : golden::read_cases((scenarios / "cases.csv").string())) {
    if (c.kind == "random" && !random) continue;
    if ((c.peer + "/" + c.set).find(only) == std::string::npos) continue;
    cases.push_back(c);
  }
  const Golden tables(scenarios, reference);
  std::vector<Outcome> outcomes(cases.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < cases.size(); i = next++) {
      // The largest sets have ensembles of six on the other side, too.
      const int n = cases[i].set.rfind("P1", 0) == 0 ? std::min(seeds, 6) : seeds;
      try {
        outcomes[i] = tables.run(cases[i], n);
      } catch (const std::exception& e) {
        outcomes[i].error = e.what();
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1U, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back(work);
  }
  for (auto& t : threads) t.join();

  fmt::print("{:9} {:38} {:9} {:>5} {:>12} {:>12} {:>8} {:>8} {:>8} {:>8} {:>6} {:>7}  {}\n",
             "peer", "set", "kind", "flows", "ours mean ns", "theirs", "mean %", "median %",
             "p99 %", "worst %", "z", "wall s", "verdict");
  double exact = 0;
  double step = 0;
  double sum_z = 0;
  double sum_z2 = 0;
  size_t n_random = 0;
  size_t failed = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    const Outcome& o = outcomes[i];
    if (!o.error.empty()) {
      fmt::print("{:9} {:38} {:9} {}\n", c.peer, c.set, c.kind, "FAILED: " + o.error);
      ++failed;
      continue;
    }
    bool ok = true;
    double z = 0;
    if (c.kind == "exact") {
      ok = o.worst_pct <= c.tolerance_pct;
      exact = std::max(exact, o.worst_pct);
    } else if (c.kind == "step") {
      ok = o.worst_pct <= c.tolerance_pct;
      step = std::max(step, o.worst_pct);
    } else if (c.kind == "step-mean") {
      ok = std::abs(pct(o.ours.mean, o.theirs.mean)) <= c.tolerance_pct;
    } else {
      z = z_score(o, &Stats::mean);
      sum_z += z;
      sum_z2 += z * z;
      ++n_random;
      ok = within(o, &Stats::mean, 1.5) && within(o, &Stats::median, 2.5) &&
           within(o, &Stats::p99, 4);
    }
    failed += ok ? 0 : 1;
    fmt::print(
        "{:9} {:38} {:9} {:>5} {:>12.0f} {:>12.0f} {:>+8.3f} {:>+8.3f} {:>+8.3f} {:>8.3f} "
        "{:>+6.2f} {:>7.2f}  {}\n",
        c.peer, c.set, c.kind, o.flows, o.ours.mean, o.theirs.mean, pct(o.ours.mean, o.theirs.mean),
        pct(o.ours.median, o.theirs.median), pct(o.ours.p99, o.theirs.p99), o.worst_pct, z,
        o.wall_s, ok ? "ok" : "OUT");
  }
  const double n = std::max<double>(1, static_cast<double>(n_random));
  fmt::print(
      "{{\"cases\":{},\"failed\":{},\"exact_max_flow_error_pct\":{:.4f},"
      "\"step_max_flow_error_pct\":{:.4f},\"random_sets\":{},\"random_abs_mean_z\":{:.4f},"
      "\"random_rms_z\":{:.4f}}}\n",
      cases.size(), failed, exact, step, n_random, std::abs(sum_z / n), std::sqrt(sum_z2 / n));
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_all(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_golden: {}\n", e.what());
    return 2;
  }
}
