// SPDX-License-Identifier: MIT
// Stragglers, power and cost from the scenario file to the result.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tools/report/report.h"
#include "tools/scenario/energy_figures.h"
#include "tools/scenario/power_meter.h"
#include "tools/scenario/run.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

double figure(const std::vector<TrainingFigure>& list, const std::string& key) {
  for (const auto& f : list) {
    if (f.key == key) return f.value;
  }
  ADD_FAILURE() << "no figure " << key;
  return 0;
}

bool has_note(const Result& r, const std::string& topic, const std::string& part) {
  return std::any_of(r.trust.begin(), r.trust.end(),
                     [&](const TrustNote& n) { return n.topic == topic && has(n.text, part); });
}

class ComputeScenario : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("trainyard_stragglers_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  Scenario load(const std::string& text, const std::vector<std::string>& settings = {}) {
    std::ofstream(folder_ / "s.yaml") << text;
    ScenarioOverrides overrides;
    overrides.settings = settings;
    return load_scenario((folder_ / "s.yaml").string(), overrides);
  }
  std::string problem(const std::string& text) {
    try {
      (void)run_scenario(load(text));
    } catch (const UserError& e) {
      const std::string what = e.what();
      return what.substr(std::min(what.size(), what.find("s.yaml")));
    }
    return "";
  }
  fs::path folder_;
};

const char* const kSmall =
    "cluster: {nodes: 2, gpus_per_node: 4}\n"
    "workload:\n"
    "  model: {layers: 4, hidden: 1024, heads: 16, vocab: 8192}\n"
    "  layout: {tp: 2, dp: 4}\n"
    "  batch: {global: 8, sequence: 512}\n"
    "simulation: {engine: flow}\n";

TEST_F(ComputeScenario, SlowRanksComputeLongerAndEverybodyWaits) {
  const Result plain = run_scenario(load(kSmall));
  const Result slow = run_scenario(load(
      std::string(kSmall) +
      "compute:\n  slow:\n    - {where: rank3, factor: 2}\n    - {where: node1.*, factor: 1.5}\n"
      "    - {where: node1.gpu0, factor: 2}\n"));
  ASSERT_TRUE(plain.complete && slow.complete);
  const double factors[] = {1, 1, 1, 2, 3, 1.5, 1.5, 1.5};
  for (size_t r = 0; r < 8; ++r) {
    const auto expected = static_cast<double>(plain.rank_times[r].compute.ps()) * factors[r];
    EXPECT_NEAR(expected, static_cast<double>(slow.rank_times[r].compute.ps()), 200) << r;
  }
  EXPECT_GT(slow.step_time, plain.step_time);
  EXPECT_GT(slow.rank_times[0].wait, plain.rank_times[0].wait);
  EXPECT_NE(plain.fingerprint, slow.fingerprint);
  EXPECT_TRUE(has_note(slow, "stragglers", "rank 4 computes longest"));
  EXPECT_FALSE(has_note(plain, "stragglers", ""));
}

TEST_F(ComputeScenario, JitterFollowsTheSeed) {
  const std::string text =
      std::string(kSmall) + "compute: {jitter: {kind: lognormal, sigma: 2%}}\n";
  const Result a = run_scenario(load(text));
  EXPECT_EQ(a.fingerprint, run_scenario(load(text)).fingerprint);
  EXPECT_NE(a.fingerprint, run_scenario(load(text, {"seed=2"})).fingerprint);
  const Result plain = run_scenario(load(kSmall));
  EXPECT_EQ(plain.fingerprint, run_scenario(load(text, {"compute.jitter.sigma=0"})).fingerprint);
  EXPECT_NE(plain.fingerprint, a.fingerprint);
  EXPECT_TRUE(has_note(a, "seed", "compute.jitter is random"));
  EXPECT_FALSE(has_note(a, "seed", "no random draw"));
  for (size_t r = 0; r < 8; ++r) {
    EXPECT_NEAR(1, a.rank_times[r].compute.seconds() / plain.rank_times[r].compute.seconds(), 0.02);
  }
}

TEST_F(ComputeScenario, OverlapSlowsComputeOnlyWhereBytesMove) {
  const Result plain = run_scenario(load(kSmall));
  const Result slow =
      run_scenario(load(std::string(kSmall) + "compute: {overlap_slowdown: 50%}\n"));
  ASSERT_TRUE(slow.complete);
  const RankTimes& a = plain.rank_times[0];
  const RankTimes& b = slow.rank_times[0];
  ASSERT_GT(a.hidden_comm, Time());
  EXPECT_GT(b.compute, a.compute);
  // What was hidden was slow: of h seconds beside bytes, h / 3 are the loss.
  EXPECT_NEAR((b.compute - a.compute).seconds(), b.hidden_comm.seconds() / 3, 1e-9);
  EXPECT_TRUE(has_note(slow, "compute times", "overlap_slowdown"));
}

TEST_F(ComputeScenario, MistakesNameTheLine) {
  const std::string slow =
      std::string(kSmall) + "compute:\n  slow:\n  - {where: rank3, factor: 2}\n";
  EXPECT_EQ("", problem(slow));
  const std::string head = std::string(kSmall) + "compute:\n  slow:\n  - ";
  EXPECT_TRUE(has(problem(head + "{where: rank99, factor: 2}\n"), "s.yaml:9: ")) << problem(head);
  EXPECT_TRUE(has(problem(head + "{where: rail0, factor: 2}\n"), "s.yaml:9: 'rail0' names no GPU"));
  EXPECT_TRUE(has(problem(head + "{where: rank3}\n"), "s.yaml:9: compute.slow[0] needs 'factor'"));
  EXPECT_TRUE(has(problem(head + "{factor: 2}\n"), "s.yaml:9: compute.slow[0] needs 'where'"));
  EXPECT_TRUE(has(problem(head + "{where: rank3, factor: 0}\n"), "s.yaml:9: "));
  EXPECT_TRUE(has(problem(head + "{where: rank3, factor: 2, for: 1s}\n"), "unknown key 'for'"));
  EXPECT_TRUE(has(problem(std::string(kSmall) + "compute: {jitter: {sigma: 1%}}\n"),
                  "s.yaml:7: compute.jitter needs a kind"));
  EXPECT_TRUE(has(problem(std::string(kSmall) + "compute: {jitter: {kind: gauss}}\n"),
                  "unknown jitter 'gauss'"));
  const std::string traffic = "traffic: [{pattern: incast, size: 1KiB}]\ncluster: {nodes: 2}\n";
  EXPECT_TRUE(has(problem(traffic + "compute: {slow: [{where: rank1, factor: 2}]}\n"),
                  "s.yaml:3: compute.slow changes compute times, and nothing computes"));
  EXPECT_TRUE(has(problem(traffic + "compute: {jitter: {kind: normal}}\n"),
                  "compute.jitter changes compute times, and nothing computes"));
}

TEST_F(ComputeScenario, FasterMatrixProductsInFp8WhereTheDeviceHasThem) {
  const Result half = run_scenario(load(kSmall));
  const Result fp8 = run_scenario(load(kSmall, {"workload.precision.compute=fp8"}));
  EXPECT_LT(fp8.rank_times[0].compute, half.rank_times[0].compute);
  EXPECT_TRUE(has(problem("cluster: {nodes: 2, gpus_per_node: 4, device: a100-sxm}\n"
                          "workload:\n"
                          "  model: {layers: 4, hidden: 1024, heads: 16, vocab: 8192}\n"
                          "  layout: {tp: 2, dp: 4}\n"
                          "  batch: {global: 8, sequence: 512}\n"
                          "  precision: {compute: fp8}\n"),
                  "s.yaml:6: device a100-sxm has no fp8 tensor cores"));
}

TEST_F(ComputeScenario, CardsWithUnverifiedValuesAreNamed) {
  const Result r = run_scenario(load(kSmall, {"cluster.device=b200-sxm"}));
  EXPECT_TRUE(has_note(r, "presets", "card of b200-sxm"));
  EXPECT_TRUE(has_note(r, "presets", "tf32_tflops"));
  EXPECT_TRUE(has_note(r, "energy", "watts.communication"));
  EXPECT_FALSE(has_note(run_scenario(load(kSmall)), "presets", ""));
  // The default of the fabric is NVLink 4.
  const Result old = run_scenario(load(kSmall, {"cluster.device=a100-sxm"}));
  EXPECT_TRUE(std::any_of(old.warnings.begin(), old.warnings.end(), [](const std::string& w) {
    return has(w, "scale_up.rate is 450GBps, a a100-sxm has 300GBps");
  }));
}

TEST(Energy, BySums) {
  Scenario s;
  s.device.tdp_watts = s.device.compute_watts = 700;
  s.device.communication_watts = 300;
  s.device.idle_watts = 70;
  s.gpu_hour_price = 3.6;
  s.kwh_price = 0.36;
  s.pue = 2;
  RankTimes t;
  t.compute = Time::s(1);
  t.exposed_comm = Time::ms(500);
  t.wait = Time::ms(250);
  t.host = Time::ms(50);
  t.idle = Time::ms(200);
  const auto f = energy_figures(s, s.training, Time::s(2), {t, t});
  // 700 + 150 + 75 + 17.5 J on each of two.
  EXPECT_DOUBLE_EQ(1885, figure(f, "energy_per_step_j"));
  EXPECT_DOUBLE_EQ(1400, figure(f, "energy_compute_per_step_j"));
  EXPECT_DOUBLE_EQ(300, figure(f, "energy_exposed_comm_per_step_j"));
  EXPECT_DOUBLE_EQ(150, figure(f, "energy_wait_per_step_j"));
  EXPECT_DOUBLE_EQ(35, figure(f, "energy_idle_per_step_j"));
  EXPECT_DOUBLE_EQ(471.25, figure(f, "mean_watts_per_gpu"));
  EXPECT_DOUBLE_EQ(4.0 / 3600, figure(f, "gpu_hours_per_step"));
  EXPECT_NEAR(0.004, figure(f, "gpu_cost_per_step"), 1e-12);  // 4 GPU-seconds at 3.6 an hour
  EXPECT_NEAR(1885 * 2 / 3.6e6 * 0.36, figure(f, "energy_cost_per_step"), 1e-12);
  // A: 22: steps to the target quality are an input, time to train is what they take.
  s.steps_to_target = 1000;
  const auto g = energy_figures(s, s.training, Time::s(2), {t, t});
  EXPECT_DOUBLE_EQ(2000, figure(g, "time_to_train_s"));
  EXPECT_DOUBLE_EQ(4.0 / 3.6, figure(g, "time_to_train_gpu_hours"));
  s.steps_to_target = 0;
  s.device = {};
  s.gpu_hour_price = -1;
  EXPECT_EQ(
      1U,
      energy_figures(s, s.training, Time::s(2), {t, t}).size());  // no watts, no prices: GPU time
  EXPECT_TRUE(energy_figures(s, s.training, Time(), {t}).empty());
}

// C 3.13: TFLOP/s per GPU / W x 1000 is TFLOP/s per kW; tokens are those of the step.
TEST_F(ComputeScenario, EnergyIdentities) {
  const Result r = run_scenario(
      load(std::string(kSmall) +
               "cost: {gpu_hour: 2, energy_kwh: 0.1}\noutput: {telemetry: {power: 10us}}\n",
           {"workload.steps=2"}));
  ASSERT_TRUE(r.complete);
  const double watts = figure(r.energy, "mean_watts_per_gpu");
  EXPECT_GT(watts, 70);
  EXPECT_LT(watts, 700);
  EXPECT_NEAR(figure(r.training, "model_tflops_per_gpu") / watts * 1000,
              figure(r.energy, "model_tflops_per_kw"), 1e-9);
  EXPECT_NEAR(figure(r.training, "tokens_per_s_per_gpu") / watts * 1000,
              figure(r.energy, "tokens_per_kj"), 1e-6);
  const double joules = figure(r.energy, "energy_per_step_j");
  EXPECT_NEAR(joules * 2, watts * 8 * r.step_time.seconds(), 1e-9);
  EXPECT_NEAR(joules / 3.6e6 * 0.1, figure(r.energy, "energy_cost_per_step"), 1e-15);

  // The series holds the same energy.
  ASSERT_EQ(Time::us(10), r.power.window);
  double sum = 0;
  for (size_t i = 0; i < r.power.rows.size(); ++i) {
    const Time begin = Time::us(10) * static_cast<int64_t>(i);
    const Time length = std::min(Time::us(10), r.power.end - begin);
    int64_t ranks = 0;
    for (const int64_t ps : r.power.rows[i].phase_ps) ranks += ps;
    EXPECT_EQ(8 * length.ps(), ranks) << i;
    sum += r.power.rows[i].watts * length.seconds();
  }
  EXPECT_NEAR(joules * 2, sum, 1e-9);

  write_all(r, (folder_ / "out").string());
  std::ifstream json(folder_ / "out" / "result.json");
  const std::string text((std::istreambuf_iterator<char>(json)), {});
  EXPECT_TRUE(has(text, "\"mean_watts_per_gpu\": "));
  EXPECT_TRUE(has(text, "\"peak_window_watts\": "));
  EXPECT_TRUE(fs::exists(folder_ / "out" / "power.csv"));
  EXPECT_TRUE(has(summary_text(r), "Energy and cost"));
}

TEST(PowerMeter, WindowsByHandAndDoubled) {
  DeviceCard d;
  d.compute_watts = 700;
  d.communication_watts = 300;
  d.idle_watts = 100;
  PowerMeter meter(Time::ps(10));
  meter.add(Phase::compute, Time::ps(5), Time::ps(25));
  meter.add(Phase::idle, Time(), Time::ps(5));
  meter.add(Phase::wait, Time(), Time::ps(25));
  const PowerSeries p = meter.take(d, Time::ps(25));
  ASSERT_EQ(3U, p.rows.size());
  EXPECT_EQ(5, p.rows[0].phase_ps[static_cast<size_t>(Phase::compute)]);
  EXPECT_EQ(10, p.rows[1].phase_ps[static_cast<size_t>(Phase::compute)]);
  EXPECT_DOUBLE_EQ(700, p.rows[0].watts);  // (5 x 700 + 5 x 100) / 10 + 300
  EXPECT_DOUBLE_EQ(1000, p.rows[1].watts);
  EXPECT_DOUBLE_EQ(1000, p.rows[2].watts);  // of 5 ps

  PowerMeter coarse(Time::ps(1));
  coarse.add(Phase::compute, Time(), Time::ps(3));
  const auto most = static_cast<int64_t>(PowerSeries::kMostWindows);
  coarse.add(Phase::compute, Time::ps(3), Time::ps(2 * most + 1));
  const PowerSeries doubled = coarse.take(d, Time::ps(2 * most + 1));
  EXPECT_EQ(Time::ps(1), doubled.asked);
  EXPECT_EQ(Time::ps(4), doubled.window);
  EXPECT_EQ(4, doubled.rows[0].phase_ps[0]);
  EXPECT_EQ(1, doubled.rows.back().phase_ps[0]);
}

}  // namespace
}  // namespace trainyard
