// SPDX-License-Identifier: MIT
// Predictions beside published training runs: every row that can be expressed becomes a scenario
// (compute: {model: fitted}, workload.software), is simulated, and its step time is set against the
// measured one; of the others the reason is printed. docs/validation.md, "Published runs".
//
//   bench_published [--reference DIR] [--only TEXT] [--sources A,B] [--sample N] [--limit SECONDS]
//                   [--budget SECONDS] [--cache FILE]... [--part K/N] [--rows] [--scenario ID]
//                   [--export DIR --device CARD] [--picture FILE]
//
// A run is simulated with the fewest replicas that its layout needs and with two numbers of
// micro-batches; more of them add in a line. The fabric is given the share of its nominal rates
// that the fit found (tools/published/predict.h). --sample takes so many rows in an order that
// depends on ids alone. --cache reads and appends results (id, digest of scenario, card and
// software, seconds), so that a run can be stopped and go on; the last file named is written.
// --budget stops before a further row after so many seconds. --scenario prints the scenario of a
// row in full.
// --picture draws predicted over measured time by the number of GPUs as SVG.
// --export writes the rows of one device as scenarios and steps.csv for 'trainyard calibrate'.
//
// The table is not part of the repository: $TRAINYARD_SHARED/reference/published-runs, or
// --reference. Last line: one JSON object; errors are those of rows whose source was not fitted.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tools/published/predict.h"
#include "tools/tables/quantile.h"

namespace fs = std::filesystem;
using namespace trainyard;

namespace {

struct Options {
  std::string reference, only, scenario, folder, device, picture;
  std::set<std::string> sources;
  size_t sample = 0;
  double limit_s = 60, budget_s = 1e9;
  std::vector<std::string> caches;
  uint64_t part = 0, parts = 1;
  bool rows = false;
};

struct Prediction {
  const PublishedRun* run = nullptr;
  double step_s = 0;  ///< 0: none
  std::string why_not;
  double memory_gib = 0;
  [[nodiscard]] double error() const { return step_s / run->step_s - 1; }
};

uint64_t fnv(const std::string& text) {
  uint64_t h = 14695981039346656037ULL;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return h;
}

std::string content(const std::string& path) {
  std::ifstream in(path);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

/// The rows of one device as 'trainyard calibrate' reads them.
void write_steps(const Options& o, const std::vector<PublishedRun>& runs) {
  fs::create_directories(o.folder);
  std::ofstream csv(o.folder + "/steps.csv");
  csv << "id,source,half,scenario,scenario_more,factor,added_s,time_s\n";
  size_t rows = 0;
  for (const PublishedRun& r : runs) {
    if (!r.why_not.empty() || r.device != o.device) continue;
    if (!o.sources.empty() && o.sources.count(r.source) == 0) continue;
    const ShortRuns runs_of = short_runs(r);
    const int64_t dp = runs_of.replicas;
    const int64_t few = runs_of.few;
    const bool line = runs_of.line;
    const auto write = [&](const std::string& name, int64_t microbatches) {
      std::ofstream(o.folder + "/" + name)
          << scenario_of(r, dp, microbatches, engine_for(r), kScaleUpShare, kNicShare);
    };
    write(r.id + ".yaml", line ? few : r.microbatches);
    if (line) write(r.id + "-more.yaml", 2 * few);
    const auto more = static_cast<double>(r.microbatches - few) / static_cast<double>(few);
    csv << fmt::format("{},{},{},{}.yaml,{},{},{:.6g},{:.6g}\n", r.id, r.source,
                       fitted_source(r.source) ? "fit" : "held", r.id,
                       line ? r.id + "-more.yaml" : "", line ? fmt::format("{:.9g}", more) : "",
                       unhidden_gradients(r, dp), r.step_s);
    ++rows;
  }
  fmt::print("{} steps of {} in {}/steps.csv\n", rows, o.device, o.folder);
}

// ---- tables

struct Errors {
  std::vector<double> of;
  void add(double e) { of.push_back(100 * e); }
  [[nodiscard]] double size(double p) const {
    std::vector<double> v;
    for (const double e : of) v.push_back(std::abs(e));
    return quantile(v, p);
  }
};

void table(const char* title, const std::vector<Prediction>& all, bool held,
           const std::function<std::string(const PublishedRun&)>& key) {
  std::map<std::string, Errors> groups;
  for (const Prediction& p : all) {
    if (p.step_s > 0 && fitted_source(p.run->source) != held) groups[key(*p.run)].add(p.error());
  }
  fmt::print("\n{} ({})\n  {:<22} rows  median |error|  p90  bias, %\n", title,
             held ? "held out" : "fitted half", "");
  for (const auto& [name, e] : groups) {
    fmt::print("  {:<22} {:>4}  {:>14.1f} {:>5.1f} {:>+5.1f}\n", name, e.of.size(), e.size(0.5),
               e.size(0.9), quantile(e.of, 0.5));
  }
}

std::string scale(const PublishedRun& r) {
  constexpr int64_t kMost[] = {8, 64, 256, 1024, 4096};
  for (const int64_t n : kMost) {
    if (r.gpus <= n) return fmt::format("up to {:>5} GPUs", n);
  }
  return "more";
}

bool anchor(const PublishedRun& r) {
  for (const char* name :
       {"sc21t1-", "sc21t2-ptdp", "korth-gpt", "mtnlg", "megascale-175b-meg", "megascale-530b",
        "llama3-405b", "deepseek-v3-g2048", "mlperf3", "mlperf4"}) {
    if (r.id.rfind(name, 0) == 0) return true;
  }
  return false;
}

void reasons(const std::vector<PublishedRun>& runs, const std::vector<Prediction>& all) {
  std::map<std::string, size_t> count;
  for (const PublishedRun& r : runs) {
    if (!r.why_not.empty()) ++count[r.why_not];
  }
  fmt::print("not expressible:\n");
  for (const auto& [why, n] : count) fmt::print("  {:>4} {}\n", n, why);
  count.clear();
  for (const Prediction& p : all) {
    if (!p.why_not.empty()) ++count[p.why_not];
  }
  if (count.empty()) return;
  fmt::print("expressible, but not predicted:\n");
  for (const auto& [why, n] : count) fmt::print("  {:>4} {}\n", n, why);
}

double ratio_table(const std::vector<Prediction>& all, bool held) {
  std::vector<const PublishedRun*> runs;
  std::vector<const Prediction*> of;
  for (const Prediction& p : all) {
    if (p.step_s <= 0 || fitted_source(p.run->source) == held) continue;
    runs.push_back(p.run);
    of.push_back(&p);
  }
  std::map<std::string, Errors> levers;
  Errors together;
  std::set<std::pair<size_t, size_t>> seen;
  for (const PublishedPair& pair : published_pairs(runs)) {
    const Prediction& a = *of[pair.a];
    const Prediction& b = *of[pair.b];
    const double e = (a.step_s / b.step_s) / (a.run->step_s / b.run->step_s) - 1;
    levers[pair.lever].add(e);
    if (seen.emplace(pair.a, pair.b).second) together.add(e);
  }
  fmt::print("\nratios when one knob changes ({})\n  {:<22} pairs  median |error|  p90, %\n",
             held ? "held out" : "fitted half", "");
  for (const auto& [name, e] : levers) {
    fmt::print("  {:<22} {:>5}  {:>14.1f} {:>5.1f}\n", name, e.of.size(), e.size(0.5), e.size(0.9));
  }
  fmt::print("  {:<22} {:>5}  {:>14.1f} {:>5.1f}\n", "all", together.of.size(), together.size(0.5),
             together.size(0.9));
  return together.size(0.5);
}

std::string json_number(bool known, double x) {
  return known ? fmt::format("{:.1f}", x) : "null";
}

void report(const Options& o, const std::vector<PublishedRun>& runs,
            const std::vector<Prediction>& all) {
  reasons(runs, all);
  for (const bool held : {true, false}) {
    table("together", all, held, [](const PublishedRun&) { return std::string("all"); });
    table("by source", all, held, [](const PublishedRun& r) { return r.source; });
    table("by device", all, held, [](const PublishedRun& r) { return r.gpu; });
    table("by scale", all, held, scale);
  }
  table("by precision", all, true, [](const PublishedRun& r) { return r.precision; });
  table("by kind", all, true,
        [](const PublishedRun& r) { return r.experts > 0 ? "experts" : "dense"; });
  table("by sharding", all, true,
        [](const PublishedRun& r) { return "zero " + std::to_string(r.zero); });
  const double ratio = ratio_table(all, true);
  ratio_table(all, false);
  fmt::print("\nanchors\n  {:<72} {:>9} {:>9} error, %\n", "", "measured", "predicted");
  for (const Prediction& p : all) {
    if (!anchor(*p.run)) continue;
    const std::string half = fitted_source(p.run->source) ? "fitted" : "held out";
    if (p.step_s > 0) {
      fmt::print("  {:<72} {:>9.3f} {:>9.3f} {:>+5.1f} {}\n", p.run->id, p.run->step_s, p.step_s,
                 100 * p.error(), half);
    } else {
      fmt::print("  {:<72} {:>9.3f} {}\n", p.run->id, p.run->step_s, p.why_not);
    }
  }
  fmt::print("\noff by more than 25 %\n");
  for (const Prediction& p : all) {
    if (p.step_s <= 0 || std::abs(p.error()) <= 0.25) continue;
    fmt::print("  {:>+6.1f} {:<8} {}\n", 100 * p.error(),
               fitted_source(p.run->source) ? "fitted" : "held out", p.run->id);
  }
  if (o.rows) {
    fmt::print("\nall rows\n");
    for (const Prediction& p : all) {
      if (p.step_s > 0) {
        fmt::print("  {:>+6.1f} {}\n", 100 * p.error(), p.run->id);
      } else {
        fmt::print("       - {}: {}\n", p.run->id, p.why_not);
      }
    }
  }

  Errors held;
  size_t predicted = 0;
  for (const Prediction& p : all) {
    if (p.step_s <= 0) continue;
    ++predicted;
    if (!fitted_source(p.run->source)) held.add(p.error());
  }
  Errors memory;
  std::map<std::string, Errors> memory_by_source;
  for (const Prediction& p : all) {
    if (p.memory_gib <= 0) continue;
    memory.add(p.memory_gib / p.run->memory_gib - 1);
    memory_by_source[p.run->source].add(p.memory_gib / p.run->memory_gib - 1);
  }
  fmt::print("\nmemory per GPU\n  {:<22} rows  median |error|  p90  bias, %\n", "");
  for (const auto& [name, e] : memory_by_source) {
    fmt::print("  {:<22} {:>4}  {:>14.1f} {:>5.1f} {:>+5.1f}\n", name, e.of.size(), e.size(0.5),
               e.size(0.9), quantile(e.of, 0.5));
  }
  fmt::print(
      "\n{{\"rows\":{},\"predicted\":{},\"heldout\":{},\"heldout_median_error_pct\":{},"
      "\"heldout_p90_error_pct\":{},\"ratio_median_error_pct\":{},\"memory_median_error_pct\":{}}}"
      "\n",
      runs.size(), predicted, held.of.size(), json_number(!held.of.empty(), held.size(0.5)),
      json_number(!held.of.empty(), held.size(0.9)), json_number(!held.of.empty(), ratio),
      json_number(!memory.of.empty(), memory.size(0.5)));
}

/// Predicted over measured time against the number of GPUs, both as logarithms.
void draw(const std::string& file, const std::vector<Prediction>& all) {
  constexpr double kWidth = 760, kHeight = 420, kLeft = 60, kRight = 20, kTop = 30, kBottom = 50;
  constexpr double kMostGpus = 20000, kLeast = 0.3, kMost = 2;
  const auto x = [&](double gpus) {
    return kLeft + (kWidth - kLeft - kRight) * std::log(gpus) / std::log(kMostGpus);
  };
  const auto y = [&](double ratio) {
    const double r = std::clamp(ratio, kLeast, kMost);
    return kHeight - kBottom -
           (kHeight - kTop - kBottom) * std::log(r / kLeast) / std::log(kMost / kLeast);
  };
  std::ofstream out(file);
  out << fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  out << fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
      "fill=\"#eef3f8\"/>\n",
      kLeft, y(1.25), kWidth - kLeft - kRight, y(0.75) - y(1.25));
  for (const double r : {0.3, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0}) {
    out << fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" "
        "stroke=\"{4}\"/>\n<text x=\"{3:.1f}\" y=\"{5:.1f}\" text-anchor=\"end\">{6:.2f}"
        "</text>\n",
        kLeft, kWidth - kRight, y(r), kLeft - 6, r == 1 ? "#444444" : "#d0d0d0", y(r) + 4, r);
  }
  for (const int gpus : {1, 8, 64, 512, 4096, 16384}) {
    out << fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                       x(gpus), kHeight - kBottom + 18, gpus);
  }
  for (const bool held : {false, true}) {
    for (const Prediction& p : all) {
      if (p.step_s <= 0 || fitted_source(p.run->source) == held) continue;
      out << fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\" fill-opacity=\"0.55\"/>\n",
          x(static_cast<double>(p.run->gpus)), y(1 + p.error()), held ? "#c1440e" : "#4a7fb5");
    }
  }
  out << fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">GPUs</text>\n<text x=\"{:.1f}\" "
      "y=\"18\">predicted over measured step time; <tspan fill=\"#c1440e\">held-out sources"
      "</tspan>, <tspan fill=\"#4a7fb5\">fitted half</tspan>; band: within 25 %</text>\n</svg>\n",
      (kLeft + kWidth - kRight) / 2, kHeight - 10, kLeft);
}

// ---- results of earlier runs

std::string digest(const PublishedRun& r) {
  return fmt::format("{:016x}", fnv(scenario_of(r, fewest_replicas(r), r.microbatches,
                                                engine_for(r), kScaleUpShare, kNicShare) +
                                    content(config_dir() + "/devices/" + r.device + ".yaml") +
                                    content(config_dir() + "/software/" + r.software + ".yaml")));
}

std::map<std::string, double> read_caches(const std::vector<std::string>& files) {
  std::map<std::string, double> out;  // "id,digest" -> seconds; below 0: not within the limit
  for (const std::string& file : files) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      const size_t comma = line.rfind(',');
      if (comma == std::string::npos) continue;
      out[line.substr(0, comma)] = std::strtod(line.c_str() + comma + 1, nullptr);
    }
  }
  return out;
}

int run(const Options& o) {
  const std::string table_file = o.reference + "/runs.csv";
  if (!fs::exists(table_file)) {
    fmt::print("no table of published runs: set TRAINYARD_SHARED, or give --reference\n");
    return 2;
  }
  const std::vector<PublishedRun> runs = read_published_runs(table_file);
  if (!o.folder.empty()) {
    write_steps(o, runs);
    return 0;
  }
  std::vector<Prediction> all;
  for (const PublishedRun& r : runs) {
    if (!o.scenario.empty() && r.id == o.scenario) {
      fmt::print("{}", r.why_not.empty() ? scenario_of(r, r.dp, r.microbatches, engine_for(r),
                                                       kScaleUpShare, kNicShare)
                                         : "not expressible: " + r.why_not + "\n");
      return 0;
    }
    if (!r.why_not.empty() || r.id.find(o.only) == std::string::npos) continue;
    if (!o.sources.empty() && o.sources.count(r.source) == 0) continue;
    all.push_back({});
    all.back().run = &r;
  }
  if (!o.scenario.empty()) {
    fmt::print("no row '{}'\n", o.scenario);
    return 2;
  }
  // An order that says nothing about a row.
  std::vector<Prediction*> order;
  for (Prediction& p : all) order.push_back(&p);
  std::sort(order.begin(), order.end(), [](const Prediction* a, const Prediction* b) {
    return std::make_pair(fnv(a->run->id), a->run->id) <
           std::make_pair(fnv(b->run->id), b->run->id);
  });
  std::map<std::string, double> known = read_caches(o.caches);
  std::ofstream cache;
  if (!o.caches.empty()) cache.open(o.caches.back(), std::ios::app);
  const auto start = std::chrono::steady_clock::now();
  const auto spent = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  size_t done = 0;
  for (Prediction* p : order) {
    if (o.sample > 0 && done == o.sample) {
      p->why_not = "not among the sample";
      continue;
    }
    ++done;
    try {
      if (p->run->memory_gib > 0) p->memory_gib = predict_memory(*p->run);
      const std::string key = p->run->id + "," + digest(*p->run);
      auto it = known.find(key);
      if (it == known.end()) {
        if (fnv(p->run->id) / 64 % o.parts != o.part || spent() > o.budget_s) {
          p->why_not = "not run: --budget or --part";
          continue;
        }
        const double before = spent();
        const double step = predict_step(*p->run, o.limit_s).value_or(-1);
        it = known.emplace(key, step).first;
        if (cache) cache << key << ',' << fmt::format("{:.9g}", step) << std::endl;
        fmt::print(stderr, "{:>5.0f} s  {:<60} {:>6.1f} s  {:>+6.1f} %\n", spent(), p->run->id,
                   spent() - before, step > 0 ? 100 * (step / p->run->step_s - 1) : 0);
      }
      if (it->second > 0) {
        p->step_s = it->second;
      } else {
        p->why_not = "simulation not done within the limit of a row";
      }
    } catch (const std::exception& e) {
      p->why_not = e.what();
      fmt::print(stderr, "{}: {}\n", p->run->id, e.what());
    }
  }
  if (!o.picture.empty()) draw(o.picture, all);
  report(o, runs, all);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  if (const char* shared = std::getenv("TRAINYARD_SHARED"); shared != nullptr) {
    o.reference = std::string(shared) + "/reference/published-runs";
  }
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const std::string v = i + 1 < argc ? argv[i + 1] : "";
    if (a == "--rows") {
      o.rows = true;
      continue;
    }
    ++i;
    if (a == "--reference") {
      o.reference = v;
    } else if (a == "--only") {
      o.only = v;
    } else if (a == "--sources") {
      std::stringstream in(v);
      for (std::string s; std::getline(in, s, ',');) o.sources.insert(s);
    } else if (a == "--sample") {
      o.sample = std::strtoul(v.c_str(), nullptr, 10);
    } else if (a == "--limit") {
      o.limit_s = std::strtod(v.c_str(), nullptr);
    } else if (a == "--budget") {
      o.budget_s = std::strtod(v.c_str(), nullptr);
    } else if (a == "--cache") {
      o.caches.push_back(v);
    } else if (a == "--export") {
      o.folder = v;
    } else if (a == "--device") {
      o.device = v;
    } else if (a == "--picture") {
      o.picture = v;
    } else if (a == "--scenario") {
      o.scenario = v;
    } else if (a == "--part") {
      o.part = std::strtoul(v.c_str(), nullptr, 10) - 1;
      o.parts = std::max(1UL, std::strtoul(v.c_str() + v.find('/') + 1, nullptr, 10));
    } else {
      fmt::print(stderr, "unknown argument {}; see the head of published.cpp\n", a);
      return 2;
    }
  }
  return run(o);
}
