// SPDX-License-Identifier: MIT
// A replica that has lost a GPU, from the scenario file to the step time.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tools/report/analysis.h"
#include "tools/scenario/run.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class UnlikeScenario : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("trainyard_unlike_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Scenario load(const std::string& unlike, const std::string& rest = "simulation: {engine: flow}\n",
                const std::string& layout = "zero: 0", bool small = false) {
    const fs::path file = folder_ / "s.yaml";
    std::ofstream(file) << "cluster: {nodes: 2}\n"
                           "workload:\n"
                           "  model: {layers: 2, hidden: "
                        << (small ? 1792 : 7168)
                        << ", heads: 56, vocab: 7168}\n"
                           "  batch: "
                        << (small ? "{global: 4, sequence: 448}" : "{global: 56, sequence: 1792}")
                        << "\n"
                           "  layout:\n"
                           "    tp: 8\n"
                           "    dp: 2\n"
                           "    "
                        << layout << "\n"
                        << unlike << rest;
    return load_scenario(file.string());
  }
  Result run(const std::string& unlike, const std::string& rest = "simulation: {engine: flow}\n",
             const std::string& layout = "zero: 0", bool small = false) {
    Result r = run_scenario(load(unlike, rest, layout, small));
    EXPECT_TRUE(r.complete) << r.incomplete_reason;
    for (const RankTimes& t : r.rank_times) {
      EXPECT_EQ(r.step_time, report::sum_of_parts(t)) << "rank " << t.rank;
    }
    return r;
  }
  fs::path folder_;
};

double ratio(Time a, Time b) {
  return a.seconds() / b.seconds();
}

std::string entry(const std::string& more = "") {
  return "    unlike:\n      - replica: 0\n        tp: 7\n" + more;
}

// A:F63: an eighth of the computing ranks less makes a step 8/7 as long; a boost of 8/7 hides it.
TEST_F(UnlikeScenario, ALostGpuCostsAnEighthUnlessClocksMakeUpForIt) {
  const Result healthy = run("");
  const Result lost = run(entry());
  const Result boosted = run(entry("        boost: auto\n"));
  const Result given = run(entry("        boost: 1.1428571428571428\n"));
  const double slower = ratio(lost.step_time, healthy.step_time);
  EXPECT_GT(slower, 1.08);
  EXPECT_LT(slower, 8.0 / 7);
  // Not all of it: shards of gradients are an eighth larger, and resharded.
  EXPECT_LT(ratio(boosted.step_time, healthy.step_time), 1.04);
  EXPECT_LT(boosted.step_time, lost.step_time);
  EXPECT_EQ(given.fingerprint, boosted.fingerprint);
  EXPECT_EQ(Time(), lost.rank_times[7].compute);
  // The other replica computes as before and waits.
  EXPECT_EQ(healthy.rank_times[8].compute, lost.rank_times[8].compute);
  const double more = ratio(lost.rank_times[0].compute, healthy.rank_times[0].compute);
  EXPECT_GT(more, 1.12);
  EXPECT_LT(more, 1.15);
  EXPECT_NEAR(1, ratio(boosted.rank_times[0].compute, healthy.rank_times[0].compute), 0.02);
}

// A:F64: 27 of 56 sequences for 7 ranks, 29 for 8, is as even as micro-batches can be.
TEST_F(UnlikeScenario, HandingSequencesOnShortensTheStep) {
  const Result kept = run(entry());
  const Result handed = run(entry("        batch: 27\n"));
  EXPECT_LT(handed.step_time, kept.step_time);
  EXPECT_NEAR(27.0 / 28, ratio(handed.rank_times[0].compute, kept.rank_times[0].compute), 0.01);
  EXPECT_NEAR(29.0 / 28, ratio(handed.rank_times[8].compute, kept.rank_times[8].compute), 0.01);
}

// What the NICs carried: sums of seven shards, nothing of the idle rank and of the one that hands
// its part on inside of the server.
TEST_F(UnlikeScenario, NicsCarryMatchingShards) {
  for (const char* engine : {"flow", "packet"}) {
    const std::string rest =
        "simulation: {engine: " + std::string(engine) + "}\ncollectives: {algorithm: ring}\n";
    const Scenario s = load(entry(), rest, "zero: 0", true);
    const Training seven = s.training->of_replica(0);
    int64_t shard = 0;
    for (int64_t u = 0; u < seven.units(); ++u) shard += seven.dense_on_rank(u);
    const Result r = run_scenario(s);
    ASSERT_TRUE(r.complete) << r.incomplete_reason;
    double up[16] = {};
    for (const LinkRecord& l : r.links) {
      for (int i = 0; i < 16; ++i) {
        const std::string gpu = "node" + std::to_string(i / 8) + ".gpu" + std::to_string(i % 8);
        if (l.from == gpu && l.to.rfind("rail", 0) == 0) {
          up[i] += static_cast<double>(l.data_bytes);
        }
      }
    }
    const auto sum = static_cast<double>(shard * s.training->gradient_bytes);  // 2 (n - 1) / n, n 2
    for (int i = 0; i < 16; ++i) {
      if (i % 8 == 7) {
        EXPECT_LT(up[i], 0.001 * sum) << engine << " " << i;
      } else {
        EXPECT_GT(up[i], 0.999 * sum) << engine << " " << i;
        EXPECT_LT(up[i], 1.1 * sum) << engine << " " << i;  // headers
      }
    }
  }
}

TEST_F(UnlikeScenario, TheFastPathGivesTheSame) {
  const Result plain = run(entry(), "simulation: {fast_path: none}\n", "zero: 1", true);
  const Result fast = run(entry(), "simulation: {fast_path: exact}\n", "zero: 1", true);
  EXPECT_NEAR(1, ratio(fast.step_time, plain.step_time), 0.001);
  bool told = false;
  for (const auto& f : plain.training) told = told || (f.key == "idle_ranks" && f.value == 1);
  EXPECT_TRUE(told);
}

// The other stages wait for the one that is slower, and a boost of it alone makes up for that.
TEST_F(UnlikeScenario, OneSlowStageSlowsThePipeline) {
  const auto run_stage = [&](const std::string& unlike) {
    const fs::path file = folder_ / "s.yaml";
    std::ofstream(file) << "cluster: {nodes: 4}\n"
                           "workload:\n"
                           "  model: {layers: 2, hidden: 7168, heads: 56, vocab: 7168}\n"
                           "  batch: {global: 32, sequence: 1792}\n"
                           "  layout: {tp: 8, pp: 2, dp: 2, zero: 1"
                        << unlike << "}\nsimulation: {engine: flow}\n";
    Result r = run_scenario(load_scenario(file.string()));
    EXPECT_TRUE(r.complete) << r.incomplete_reason;
    return r;
  };
  const Result healthy = run_stage("");
  const Result lost = run_stage(", unlike: [{replica: 1, stage: 1, tp: 7}]");
  const Result boosted = run_stage(", unlike: [{replica: 1, stage: 1, tp: 7, boost: auto}]");
  EXPECT_GT(ratio(lost.step_time, healthy.step_time), 1.04);
  EXPECT_LT(ratio(lost.step_time, healthy.step_time), 8.0 / 7);
  EXPECT_LT(boosted.step_time, lost.step_time);
  // Only stage 1 of replica 1 computes longer: ranks 24 to 30.
  for (uint32_t r = 0; r < 32; ++r) {
    const double more = ratio(lost.rank_times[r].compute, healthy.rank_times[r].compute);
    if (r == 31) {
      EXPECT_EQ(0, more);
    } else if (r >= 24) {
      EXPECT_NEAR(8.0 / 7, more, 0.02) << r;
      EXPECT_NEAR(1, ratio(boosted.rank_times[r].compute, healthy.rank_times[r].compute), 0.02);
    } else {
      EXPECT_NEAR(1, more, 0.03) << r;  // 23 hands on its gradients and has no optimizer
    }
  }
}

// Stages, steps, checkpoints and a job beside it.
TEST_F(UnlikeScenario, StagesAndCheckpointsRunToTheEnd) {
  const std::string model = "workload: {model: {layers: 4, hidden: 768, heads: 12, vocab: 3072}, ";
  const std::string rest =
      "steps: 2, batch: {global: 16, sequence: 192}, gradients: {norm: true, bucket: 4MiB}, "
      "checkpoint: {every: 1, load: true}, dataset: {token_bytes: 4B}, ";
  for (const char* schedule : {"1f1b", "interleaved", "split-backward"}) {
    const fs::path file = folder_ / "s.yaml";
    std::ofstream(file) << "cluster: {nodes: 3}\njobs:\n  - {name: first, " << model
                        << "layout: {dp: 8}, batch: {global: 8, sequence: 192}}}\n"
                        << "  - {name: lame, " << model << rest << "schedule: {kind: " << schedule
                        << "}, layout: {tp: 4, pp: 2, dp: 2, unlike: [{replica: 1, tp: 3, "
                           "batch: 4, boost: auto}]}}}\nsimulation: {engine: flow}\n";
    const Scenario s = load_scenario(file.string());
    const Training& t = *s.jobs[1].workload.training;
    EXPECT_EQ(12, t.microbatches);
    EXPECT_EQ(4, t.of_replica(1).microbatches);
    const Result r = run_scenario(s);
    ASSERT_TRUE(r.complete) << schedule << ": " << r.incomplete_reason;
    // Ranks 8 + 4 to 8 + 7 and 8 + 12 to 8 + 15: the last of each group is idle.
    for (uint32_t rank = 8; rank < 24; ++rank) {
      const bool idle = rank == 8 + 7 || rank == 8 + 15;
      EXPECT_EQ(idle, r.rank_times[rank].compute == Time()) << schedule << " rank " << rank;
      EXPECT_EQ(r.jobs[1].end - r.jobs[1].start, report::sum_of_parts(r.rank_times[rank]))
          << schedule << " rank " << rank;
    }
  }
}

}  // namespace
}  // namespace trainyard
