// SPDX-License-Identifier: MIT
// Folded runs are the runs that they stand for.
#include "tools/scenario/fold.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "tools/scenario/run.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class Fold : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("trainyard_fold_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  Result run(const std::vector<std::string>& settings) {
    std::ofstream(folder_ / "s.yaml")
        << "name: many micro-batches\n"
           "cluster: {nodes: 4, gpus_per_node: 2}\n"
           "fabric: {topology: {kind: rail-optimized, nic: {rate: 100Gbps}}, transport: {preset: "
           "rocev2}}\n"
           "workload:\n"
           "  model: {layers: 4, hidden: 256, heads: 8, vocab: 1024}\n"
           "  layout: {tp: 2, pp: 2, dp: 2, zero: 1}\n"
           "  batch: {global: 100, micro: 1, sequence: 64}\n"
           "  steps: 1\n"
           "simulation: {engine: analytic}\n";
    ScenarioOverrides overrides;
    overrides.settings = settings;
    return run_scenario(load_scenario((folder_ / "s.yaml").string(), overrides));
  }
  static bool folded(const Result& r) {
    return std::any_of(r.trust.begin(), r.trust.end(),
                       [](const TrustNote& n) { return n.topic == "folded"; });
  }
  void expect_equal(const Result& whole, const Result& folded_run) {
    ASSERT_TRUE(whole.complete);
    ASSERT_TRUE(folded_run.complete);
    EXPECT_FALSE(folded(whole));
    EXPECT_TRUE(folded(folded_run));
    EXPECT_EQ(whole.step_time, folded_run.step_time);
    EXPECT_EQ(whole.end, folded_run.end);
    ASSERT_EQ(whole.rank_times.size(), folded_run.rank_times.size());
    for (size_t r = 0; r < whole.rank_times.size(); ++r) {
      const RankTimes& x = whole.rank_times[r];
      const RankTimes& y = folded_run.rank_times[r];
      EXPECT_EQ(x.finish, y.finish);
      EXPECT_EQ(x.compute, y.compute);
      EXPECT_EQ(x.exposed_comm, y.exposed_comm);
      EXPECT_EQ(x.hidden_comm, y.hidden_comm);
      EXPECT_EQ(x.wait, y.wait);
      EXPECT_EQ(x.idle, y.idle);
      EXPECT_EQ(x.exposed_of, y.exposed_of);
    }
    EXPECT_EQ(whole.totals.payload_bytes, folded_run.totals.payload_bytes);
    ASSERT_EQ(whole.links.size(), folded_run.links.size());
    for (size_t i = 0; i < whole.links.size(); ++i) {
      EXPECT_EQ(whole.links[i].bytes, folded_run.links[i].bytes);
      // Worked out from the bytes, rounded.
      EXPECT_NEAR(static_cast<double>(whole.links[i].busy.ps()),
                  static_cast<double>(folded_run.links[i].busy.ps()), 100);
    }
    ASSERT_EQ(whole.training.size(), folded_run.training.size());
    for (const TrainingFigure& f : whole.training) {
      const auto it = std::find_if(folded_run.training.begin(), folded_run.training.end(),
                                   [&](const TrainingFigure& g) { return g.key == f.key; });
      ASSERT_NE(it, folded_run.training.end()) << f.key;
      EXPECT_DOUBLE_EQ(f.value, it->value) << f.key;
    }
  }
  fs::path folder_;
};

TEST_F(Fold, MicroBatches) {
  expect_equal(run({"simulation.fold=off"}), run({"simulation.fold=8"}));
}

TEST_F(Fold, MicroBatchesOverFlowsAndWithoutPipeline) {
  expect_equal(run({"simulation.fold=off", "simulation.engine=flow", "workload.batch.global=80",
                    "workload.layout.pp=1", "workload.layout.dp=4"}),
               run({"simulation.fold=8", "simulation.engine=flow", "workload.batch.global=80",
                    "workload.layout.pp=1", "workload.layout.dp=4"}));
}

TEST_F(Fold, Steps) {
  expect_equal(run({"simulation.fold=off", "workload.steps=12", "workload.batch.global=8"}),
               run({"simulation.fold=8", "workload.steps=12", "workload.batch.global=8"}));
}

// DESIGN 3: a million identical micro-steps cost what the distinct ones cost.
TEST_F(Fold, AMillionMicroBatchesAreAsManyEventsAsFifty) {
  const Result million = run({"workload.batch.global=2000000"});
  const Result hundred = run({"workload.batch.global=2000", "simulation.fold=8"});
  EXPECT_TRUE(folded(million));
  ASSERT_EQ(million.collectives.size(), hundred.collectives.size());
  const double ratio = million.step_time.seconds() / hundred.step_time.seconds();
  EXPECT_GT(ratio, 900);
  EXPECT_LT(ratio, 1001);
}

TEST_F(Fold, WhatIsDrawnIsNotFolded) {
  EXPECT_FALSE(folded(run({"simulation.fold=8", "compute.jitter.kind=lognormal",
                           "compute.jitter.sigma=1%", "workload.batch.global=40"})));
  EXPECT_FALSE(folded(run({"workload.batch.global=40"})));  // too few by default
  EXPECT_TRUE(folded(run({"simulation.fold=8", "workload.batch.global=80"})));
  EXPECT_FALSE(folded(run({"simulation.fold=8", "workload.batch.global=80",
                           "workload.layout.unlike=[{replica: 0, tp: 1}]"})));
}

}  // namespace
}  // namespace trainyard
