// SPDX-License-Identifier: MIT
#include "tools/calibrate/calibrate.h"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <sstream>
#include <utility>

#include "tools/calibrate/step_profile.h"
#include "tools/report/report.h"
#include "tools/scenario/run.h"
#include "tools/tables/csv_table.h"
#include "tools/tables/quantile.h"

namespace trainyard {
namespace fs = std::filesystem;
namespace {

constexpr double kRobust = 0.08, kPriorWeight = 4;

/// A constant of a fit by its name on the card.
struct FitKey {
  const char* name;
  double DeviceFit::*at;  ///< null: launch
};
constexpr FitKey kKeys[] = {{"gemm.half", &DeviceFit::gemm_half},
                            {"gemm.fp8", &DeviceFit::gemm_fp8},
                            {"gemm.mxfp8", &DeviceFit::gemm_fp8_blocks},
                            {"gemm.fp4", &DeviceFit::gemm_fp4},
                            {"gemm_columns", &DeviceFit::gemm_columns},
                            {"gemm_inner", &DeviceFit::gemm_inner},
                            {"grouped", &DeviceFit::grouped},
                            {"attention", &DeviceFit::attention},
                            {"attention_backward", &DeviceFit::attention_backward},
                            {"attention_queries", &DeviceFit::attention_queries},
                            {"attention_head64", &DeviceFit::attention_head64},
                            {"unfused", &DeviceFit::unfused},
                            {"unfused_misaligned", &DeviceFit::unfused_misaligned},
                            {"memory", &DeviceFit::memory},
                            {"cast.fp8", &DeviceFit::cast},
                            {"cast.mxfp8", &DeviceFit::cast_blocks},
                            {"launch", nullptr},
                            {"straggle", &DeviceFit::straggle}};

double get(const DeviceFit& f, const FitKey& key) {
  return key.at != nullptr ? f.*key.at : f.launch.seconds() * 1e6;
}

/// The range that a card accepts.
double in_range(const FitKey& key, double value) {
  const std::string name = key.name;
  const bool share = name.rfind("gemm.", 0) == 0 || name == "attention" || name == "memory";
  return std::clamp(value, share ? 0.01 : 0.0, share ? 1.0 : 1e5);
}

void set(DeviceFit& f, const FitKey& key, double value) {
  if (key.at != nullptr)
    f.*key.at = in_range(key, value);
  else
    f.launch = Time::ps(std::llround(value * 1e6));
}

struct Prior {
  double value = 0, sigma = 0;
};

std::map<std::string, Prior> read_priors(const std::string& given) {
  const std::string file = given.empty() ? config_dir() + "/calibration/priors.yaml" : given;
  const ConfigNode root = load_yaml(file, Origin::Kind::preset);
  std::map<std::string, Prior> out;
  const auto number = [](const ConfigNode& node, const char* key) {
    const ConfigNode* n = node.find(key);
    std::istringstream in(n == nullptr ? "" : n->text);
    double x = 0;
    if (!(in >> x) || !in.eof() || !(x > 0)) {
      throw UserError(n == nullptr ? node.origin.pos : n->origin.pos,
                      std::string("a prior needs ") + key + ", a number above 0");
    }
    return x;
  };
  for (const auto& e : root.entries) {
    const bool known =
        e.key == "software" || std::any_of(std::begin(kKeys), std::end(kKeys),
                                           [&](const FitKey& k) { return e.key == k.name; });
    if (!known) throw UserError(e.key_pos, "unknown constant '" + e.key + "'");
    out[e.key] = {number(e.value, "value"), number(e.value, "sigma")};
  }
  for (const FitKey& k : kKeys) {
    if (out.count(k.name) == 0) {
      throw UserError(SourcePos{file, 0}, std::string("no prior of ") + k.name);
    }
  }
  if (out.count("software") == 0) throw UserError(SourcePos{file, 0}, "no prior of software");
  return out;
}

/// A simulated step and its kernels.
struct Part {
  Scenario scenario;
  std::optional<StepProfile> profile;
  double share = 1;  ///< of it in the step
};

struct Row {
  CalibratedStep step;
  SourcePos pos;
  double weight = 1, added_s = 0;
  std::vector<Part> parts;
  size_t software = 0;     ///< index into State::software
  double simulated_s = 0;  ///< T0
  double kernels_s = 0;    ///< K0
};

/// What is fitted.
struct State {
  DeviceCard card;
  std::vector<SoftwareFactors> software;
};

double kernels_of(const Row& row, const State& q) {
  double sum = 0;
  for (const Part& p : row.parts) {
    sum += p.share * p.profile->seconds(q.card, q.software[row.software]);
  }
  return sum;
}

double predicted(const Row& row, const State& q) {
  // Far from where it was simulated the line may fall below what is possible.
  return std::max(0.05 * row.simulated_s, row.simulated_s + kernels_of(row, q) - row.kernels_s);
}

void simulate(std::vector<Row>& rows, const State& q) {
  for (Row& row : rows) {
    row.simulated_s = row.added_s;
    for (Part& p : row.parts) {
      p.scenario.device = q.card;
      p.scenario.software = q.software[row.software];
      const Result r = run_scenario(p.scenario);
      if (!r.complete) {
        throw UserError(row.pos, "scenario " + p.scenario.file + ": " + r.incomplete_reason);
      }
      row.simulated_s +=
          p.share * r.step_time.seconds() / static_cast<double>(p.scenario.training->steps);
    }
    if (row.simulated_s <= 0) {
      throw UserError(row.pos, "the parts of this step sum to no time: check factor and added_s");
    }
    row.kernels_s = kernels_of(row, q);
  }
}

/// The minimiser: parameters are logarithms.
class Fitter {
 public:
  Fitter(const State& start, const std::map<std::string, Prior>& priors) : q_(start) {
    for (const FitKey& key : kKeys) {
      const double value = get(start.card.fit, key);
      if (value <= 0) continue;  // not of this device
      add(key.name, value, priors.at(key.name).sigma,
          [&key](State& q, double v) { set(q.card.fit, key, v); });
    }
    for (size_t i = 0; i < start.software.size(); ++i) {
      if (start.software[i].name == "none") continue;
      add("software " + start.software[i].name, start.software[i].kernels,
          priors.at("software").sigma, [i](State& q, double v) { q.software[i].kernels = v; });
    }
  }

  /// @returns the state that fits `rows`, those with `use` alone
  State fit(const std::vector<Row>& rows, const std::vector<char>& use) {
    const auto n = static_cast<Eigen::Index>(names_.size());
    std::map<std::string, double> of_source;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (use[i] != 0) of_source[rows[i].step.source] += 1;
    }
    rows_.clear();
    weights_.clear();
    for (size_t i = 0; i < rows.size(); ++i) {
      if (use[i] == 0) continue;
      rows_.push_back(&rows[i]);
      weights_.push_back(rows[i].weight / std::sqrt(std::sqrt(of_source[rows[i].step.source])));
    }
    Eigen::VectorXd v = mean_;
    Eigen::VectorXd r = residuals(v);
    double cost = cost_of(v, r);
    double damping = 1e-2;
    for (int round = 0; round < 30; ++round) {
      const auto m = static_cast<Eigen::Index>(rows_.size());
      Eigen::MatrixXd jacobian(m, n);
      for (Eigen::Index j = 0; j < n; ++j) {
        Eigen::VectorXd u = v;
        u[j] += 0.01;
        jacobian.col(j) = (residuals(u) - r) / 0.01;
      }
      Eigen::VectorXd w(m);
      for (Eigen::Index i = 0; i < m; ++i) {
        w[i] = weights_[static_cast<size_t>(i)] / std::sqrt(1 + r[i] * r[i] / (kRobust * kRobust)) /
               (kRobust * kRobust);
      }
      const Eigen::VectorXd stiff = kPriorWeight * sigma_.array().square().inverse();
      Eigen::MatrixXd a = jacobian.transpose() * w.asDiagonal() * jacobian;
      a.diagonal() += stiff;
      const Eigen::VectorXd slope =
          jacobian.transpose() * w.cwiseProduct(r) + stiff.cwiseProduct(v - mean_);
      bool better = false;
      double next = cost;
      for (int attempt = 0; attempt < 8 && !better; ++attempt) {
        Eigen::MatrixXd damped = a;
        damped.diagonal() += damping * a.diagonal();
        Eigen::VectorXd d = -damped.ldlt().solve(slope);
        d = d.cwiseMax(-0.5).cwiseMin(0.5);
        const Eigen::VectorXd u = v + d;
        const Eigen::VectorXd ru = residuals(u);
        next = cost_of(u, ru);
        if (next < cost) {
          v = u;
          r = ru;
          better = true;
        } else {
          damping *= 5;
        }
      }
      if (!better) break;
      damping = std::max(damping / 4, 1e-4);
      const double gain = cost - next;
      cost = next;
      if (gain < 1e-6 * cost) break;
    }
    last_ = v;
    return state(v);
  }

  [[nodiscard]] std::vector<CalibratedParameter> parameters() const {
    std::vector<CalibratedParameter> out;
    for (size_t i = 0; i < names_.size(); ++i) {
      const auto j = static_cast<Eigen::Index>(i);
      out.push_back({names_[i], std::exp(mean_[j]), sigma_[j], std::exp(last_[j])});
    }
    return out;
  }

 private:
  void add(const std::string& name, double value, double sigma,
           std::function<void(State&, double)> setter) {
    const auto n = static_cast<Eigen::Index>(names_.size());
    names_.push_back(name);
    setters_.push_back(std::move(setter));
    mean_.conservativeResize(n + 1);
    sigma_.conservativeResize(n + 1);
    mean_[n] = std::log(value);
    sigma_[n] = sigma;
    last_ = mean_;
  }
  [[nodiscard]] State state(const Eigen::VectorXd& v) const {
    State q = q_;
    for (size_t i = 0; i < setters_.size(); ++i) {
      setters_[i](q, std::exp(v[static_cast<Eigen::Index>(i)]));
    }
    return q;
  }
  [[nodiscard]] Eigen::VectorXd residuals(const Eigen::VectorXd& v) const {
    const State q = state(v);
    Eigen::VectorXd r(static_cast<Eigen::Index>(rows_.size()));
    for (size_t i = 0; i < rows_.size(); ++i) {
      r[static_cast<Eigen::Index>(i)] =
          std::log(predicted(*rows_[i], q) / rows_[i]->step.measured_s);
    }
    return r;
  }
  [[nodiscard]] double cost_of(const Eigen::VectorXd& v, const Eigen::VectorXd& r) const {
    double sum = 0;
    for (Eigen::Index i = 0; i < r.size(); ++i) {
      sum += weights_[static_cast<size_t>(i)] * 2 *
             (std::sqrt(1 + r[i] * r[i] / (kRobust * kRobust)) - 1);
    }
    return sum + kPriorWeight * (v - mean_).cwiseQuotient(sigma_).squaredNorm();
  }

  State q_;
  std::vector<std::string> names_;
  std::vector<std::function<void(State&, double)>> setters_;
  Eigen::VectorXd mean_, sigma_, last_;
  std::vector<const Row*> rows_;
  std::vector<double> weights_;
};

ErrorSummary summary(const std::vector<double>& errors) {
  std::vector<double> size;
  for (const double e : errors) size.push_back(100 * std::abs(e));
  return {errors.size(), quantile(size, 0.5), quantile(size, 0.9), 100 * quantile(errors, 0.5)};
}

std::string beside(const std::string& csv, const std::string& path) {
  return fs::path(path).is_absolute() ? path : (fs::path(csv).parent_path() / path).string();
}

Part read_part(const SourcePos& pos, const std::string& file, const std::string& settings) {
  ScenarioOverrides overrides;
  std::istringstream in(settings);
  for (std::string one; std::getline(in, one, ';');) {
    if (!one.empty()) overrides.settings.push_back(one);
  }
  overrides.settings.emplace_back("compute.model=fitted");
  if (!fs::exists(file)) {
    throw UserError(pos, "no scenario " + file, "paths are relative to the CSV");
  }
  Part p{load_scenario(file, overrides), {}, 1};
  if (!p.scenario.training) {
    throw UserError(pos, "scenario " + file + " has no generated workload",
                    "calibrate fits kernels by their shapes: give 'workload: {model: NAME}'");
  }
  return p;
}

std::vector<Row> read_rows(const CalibrateOptions& o, State& q) {
  const CsvTable table = CsvTable::read(o.csv);
  for (const char* column : {"scenario", "time_s"}) {
    if (!table.has(column)) {
      throw UserError(SourcePos{o.csv, 1}, std::string("no column '") + column + "'",
                      "needed: scenario, time_s; known besides: id, source, weight, half, set, "
                      "scenario_more, factor, added_s");
    }
  }
  const std::set<std::string> heldout(o.heldout.begin(), o.heldout.end());
  std::vector<Row> rows;
  for (size_t i = 0; i < table.rows(); ++i) {
    Row row;
    row.pos = table.pos(i);
    const std::string file = beside(o.csv, table.at(i, "scenario"));
    row.parts.push_back(read_part(row.pos, file, table.at(i, "set")));
    if (!table.at(i, "scenario_more").empty()) {
      row.parts.push_back(
          read_part(row.pos, beside(o.csv, table.at(i, "scenario_more")), table.at(i, "set")));
      const double factor = table.positive(i, "factor");
      row.parts[0].share = 1 - factor;
      row.parts[1].share = factor;
    }
    const Scenario& s = row.parts[0].scenario;
    if (!table.at(i, "added_s").empty()) {
      row.added_s = table.number(i, "added_s");
    }
    row.step.id = table.at(i, "id").empty() ? s.name : table.at(i, "id");
    row.step.source = table.at(i, "source").empty() ? "measured" : table.at(i, "source");
    row.step.measured_s = table.positive(i, "time_s");
    if (!table.at(i, "weight").empty()) row.weight = table.positive(i, "weight");
    const std::string& half = table.at(i, "half");
    if (!half.empty() && half != "fit" && half != "held") {
      throw UserError(row.pos, "half '" + half + "' is not one of: fit, held");
    }
    row.step.held = half == "held" || heldout.count(row.step.source) != 0;
    if (rows.empty()) q.card = s.device;
    if (s.device.name != q.card.name || (!o.device.empty() && s.device.name != o.device)) {
      throw UserError(row.pos,
                      "scenario " + file + " runs on " + s.device.name + ", the card to fit is " +
                          (o.device.empty() ? q.card.name : o.device),
                      "one run of calibrate fits one card");
    }
    for (row.software = 0; row.software < q.software.size(); ++row.software) {
      if (q.software[row.software].name == s.software.name) break;
    }
    if (row.software == q.software.size()) q.software.push_back(s.software);
    for (Part& p : row.parts) p.profile.emplace(p.scenario);
    rows.push_back(std::move(row));
  }
  if (rows.empty()) throw UserError(SourcePos{o.csv, 1}, "no measured steps");
  return rows;
}

/// Constants that a card without a fit begins with.
void begin_with(DeviceCard& card, const std::map<std::string, Prior>& priors) {
  const bool fresh = !card.fit.present();
  for (const FitKey& key : kKeys) {
    const std::string name = key.name;
    if (!fresh && get(card.fit, key) > 0) continue;
    const bool fp8 = name == "gemm.fp8" || name == "gemm.mxfp8" || name.rfind("cast.", 0) == 0;
    if (fp8 && card.fp8_tflops <= 0) continue;
    if (name == "gemm.fp4" && card.fp4_tflops <= 0) continue;
    double value = priors.at(name).value;
    if (name == "gemm_columns" || name == "gemm_inner") value *= card.tflops / 989.4;
    set(card.fit, key, value);
  }
}

}  // namespace

Calibration calibrate(const CalibrateOptions& o) {
  const auto priors = read_priors(o.priors);
  State start;
  // Scenarios are loaded before the card has a fit, and simulated with the one that is tried.
  std::vector<Row> rows = read_rows(o, start);
  begin_with(start.card, priors);
  Fitter fitter(start, priors);

  std::vector<char> use;
  for (const Row& row : rows) use.push_back(row.step.held ? 0 : 1);
  if (std::count(use.begin(), use.end(), 1) == 0) {
    throw UserError(SourcePos{o.csv, 1}, "all steps are held out: nothing to fit");
  }
  State q = start;
  for (int round = 0; round < std::max(1, o.rounds); ++round) {
    simulate(rows, q);
    if (round == 0) {
      for (Row& row : rows) row.step.before_s = row.simulated_s;
    }
    q = fitter.fit(rows, use);
  }
  Calibration c;
  c.parameters = fitter.parameters();

  // Errors of steps that the fit did not see, along the line of the last simulation.
  std::vector<double> unseen;
  const bool any_held = std::count(use.begin(), use.end(), 0) > 0;
  if (!any_held && rows.size() > 1) {
    std::map<std::string, std::vector<size_t>> groups;
    std::set<std::string> sources;
    for (const Row& row : rows) sources.insert(row.step.source);
    for (size_t i = 0; i < rows.size(); ++i) {
      groups[sources.size() > 1 ? rows[i].step.source : std::to_string(i)].push_back(i);
    }
    c.left_out_in_turn = true;
    for (const auto& [name, group] : groups) {
      std::vector<char> others(rows.size(), 1);
      for (const size_t i : group) others[i] = 0;
      const State without = fitter.fit(rows, others);
      for (const size_t i : group) {
        unseen.push_back(predicted(rows[i], without) / rows[i].step.measured_s - 1);
      }
    }
  }

  simulate(rows, q);
  std::vector<double> before;
  std::vector<double> after;
  for (Row& row : rows) {
    row.step.after_s = row.simulated_s;
    const double error = row.simulated_s / row.step.measured_s - 1;
    if (row.step.held) {
      unseen.push_back(error);
    } else {
      before.push_back(row.step.before_s / row.step.measured_s - 1);
      after.push_back(error);
    }
    c.steps.push_back(row.step);
  }
  c.before = summary(before);
  c.fitted = summary(after);
  c.heldout = summary(unseen);
  c.card = q.card;
  DeviceFit& f = c.card.fit;
  f.source = fmt::format("trainyard calibrate, {} steps of {}", c.fitted.rows,
                         fs::path(o.csv).filename().string());
  f.rows = static_cast<int64_t>(c.fitted.rows);
  f.median_pct = c.fitted.median_pct;
  f.p90_pct = c.fitted.p90_pct;
  f.heldout_rows = static_cast<int64_t>(c.heldout.rows);
  f.heldout_median_pct = c.heldout.median_pct;
  f.heldout_p90_pct = c.heldout.p90_pct;
  return c;
}

void write_card(const DeviceCard& card, const std::string& path) {
  const std::string old = config_dir() + "/devices/" + card.name + ".yaml";
  std::ifstream in(old);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) throw UserError(SourcePos{old, 0}, "cannot read " + old);
  write_atomically(path, with_fit(text.str(), card.fit));
}

std::string fit_block(const DeviceFit& f) {
  std::string gemm = fmt::format("half: {:.3g}", f.gemm_half);
  if (f.gemm_fp8 > 0) gemm += fmt::format(", fp8: {:.3g}", f.gemm_fp8);
  if (f.gemm_fp8_blocks > 0) gemm += fmt::format(", mxfp8: {:.3g}", f.gemm_fp8_blocks);
  if (f.gemm_fp4 > 0) gemm += fmt::format(", fp4: {:.3g}", f.gemm_fp4);
  std::string out = "fit:                      # compute.model: fitted, docs/compute.md\n";
  out += "  gemm: {" + gemm + "}\n";
  const auto line = [&](const char* key, double value) {
    out += fmt::format("  {}: {:.4g}\n", key, value);
  };
  line("gemm_columns", f.gemm_columns);
  line("gemm_inner", f.gemm_inner);
  line("grouped", f.grouped);
  line("attention", f.attention);
  line("attention_backward", f.attention_backward);
  line("attention_queries", f.attention_queries);
  line("attention_head64", f.attention_head64);
  line("unfused", f.unfused);
  line("unfused_misaligned", f.unfused_misaligned);
  line("memory", f.memory);
  if (f.cast > 0) {
    out += fmt::format("  cast: {{fp8: {:.3g}, mxfp8: {:.3g}}}\n", f.cast, f.cast_blocks);
  }
  out += fmt::format("  launch: {:.4g}us\n", f.launch.seconds() * 1e6);
  line("straggle", f.straggle);
  out += "  source: \"" + f.source + "\"\n";
  out += fmt::format(
      "  residuals: {{rows: {}, median_pct: {:.1f}, p90_pct: {:.1f}, heldout_rows: {}, "
      "heldout_median_pct: {:.1f}, heldout_p90_pct: {:.1f}}}\n",
      f.rows, f.median_pct, f.p90_pct, f.heldout_rows, f.heldout_median_pct, f.heldout_p90_pct);
  return out;
}

std::string with_fit(const std::string& card_text, const DeviceFit& fit) {
  std::istringstream in(card_text);
  std::string out;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    const bool top = !line.empty() && line[0] != ' ' && line[0] != '#';
    if (top) inside = line.rfind("fit:", 0) == 0;
    if (!inside) out += line + "\n";
  }
  return out + fit_block(fit);
}

void print_calibration(const Calibration& c, std::ostream& out) {
  out << fmt::format("card {}: {} steps fitted, {} held out\n\n", c.card.name, c.fitted.rows,
                     c.left_out_in_turn ? 0 : c.heldout.rows);
  out << fmt::format("{:<28} {:>9} {:>9} {:>9}\n", "constant", "before", "sigma", "fitted");
  for (const CalibratedParameter& p : c.parameters) {
    out << fmt::format("{:<28} {:>9.4g} {:>9.2f} {:>9.4g}{}\n", p.name, p.prior, p.sigma, p.value,
                       std::abs(std::log(p.value / p.prior)) < 0.002 ? "  (hardly moved)" : "");
  }
  out << fmt::format("\n{:<44} {:>10} {:>8} {:>8}\n", "step", "measured s", "before", "after");
  std::map<std::string, std::vector<double>> by_source;
  for (const CalibratedStep& s : c.steps) {
    const double after = s.after_s / s.measured_s - 1;
    by_source[s.source].push_back(after);
    out << fmt::format("{:<44} {:>10.4g} {:>+7.1f}% {:>+7.1f}%{}\n", s.id, s.measured_s,
                       100 * (s.before_s / s.measured_s - 1), 100 * after,
                       s.held ? "  held out" : "");
  }
  out << fmt::format("\n{:<28} steps  median |error|  p90  bias, %\n", "source");
  for (const auto& [name, errors] : by_source) {
    const ErrorSummary e = summary(errors);
    out << fmt::format("{:<28} {:>5}  {:>14.1f} {:>5.1f} {:>+5.1f}\n", name, e.rows, e.median_pct,
                       e.p90_pct, e.bias_pct);
  }
  out << fmt::format("\nfitted steps: before {:.1f} % median, {:.1f} % p90; after {:.1f}, {:.1f}\n",
                     c.before.median_pct, c.before.p90_pct, c.fitted.median_pct, c.fitted.p90_pct);
  if (c.heldout.rows > 0) {
    out << fmt::format("steps that the fit did not see{}: {:.1f} % median, {:.1f} % p90\n",
                       c.left_out_in_turn ? " (each source, or step of a single source, left out "
                                            "once)"
                                          : "",
                       c.heldout.median_pct, c.heldout.p90_pct);
  } else {
    out << "one step says nothing about the error on others\n";
  }
  for (const CalibratedParameter& p : c.parameters) {
    if (p.name.rfind("software ", 0) != 0 || std::abs(p.value - p.prior) < 0.002) continue;
    out << fmt::format("configs/software/{}.yaml: kernels {:.3g} in place of {:.3g}\n",
                       p.name.substr(9), p.value, p.prior);
  }
  out << "\n" << fit_block(c.card.fit);
}

}  // namespace trainyard
