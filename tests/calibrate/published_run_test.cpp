// SPDX-License-Identifier: MIT
// Rows of the table of published runs as scenarios. A row that is made up shows what is read; the
// table itself is counted where it is at hand.
#include "tools/published/published_run.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tools/published/predict.h"
#include "tools/scenario/run.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using Fields = std::map<std::string, std::string>;

const Fields kRow = {{"id", "korth-made-up"},
                     {"verified_how", "paper"},
                     {"gpu", "A100-80GB"},
                     {"gpus", "16"},
                     {"model", "GPT-3 7B"},
                     {"layers", "8"},
                     {"hidden", "1024"},
                     {"ffn", "4096"},
                     {"heads", "16"},
                     {"vocab", "51200"},
                     {"seq", "1024"},
                     {"tp", "4"},
                     {"pp", "2"},
                     {"dp", "2"},
                     {"global_batch_seqs", "32"},
                     {"micro_batch", "2"},
                     {"precision", "fp16"},
                     {"recompute", "full"},
                     {"iteration_time_s", "0.5"},
                     {"notes", ""}};

PublishedRun one(Fields row) {
  for (const char* column :
       {"source", "kv_heads", "experts", "topk", "cp", "vpp", "ep", "zero_stage_or_fsdp",
        "seq_parallel", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu_pct", "memory_gib",
        "nic_Gbps_per_gpu", "scale_up_GBps"}) {
    row.emplace(column, "");
  }
  const std::string file =
      (fs::temp_directory_path() / ("trainyard_runs_" + std::to_string(getpid()))).string();
  std::string head, line;
  for (const auto& [key, value] : row) {
    head += (head.empty() ? "" : ",") + key;
    line += (line.empty() ? "" : ",") + ("\"" + value + "\"");
  }
  std::ofstream(file) << head << "\n" << line << "\n";
  const auto runs = read_published_runs(file);
  fs::remove(file);
  EXPECT_EQ(runs.size(), 1U);
  return runs.at(0);
}
Fields with(Fields row, const Fields& more) {
  for (const auto& [key, value] : more) row[key] = value;
  return row;
}

TEST(PublishedRun, ARowBecomesAScenario) {
  const PublishedRun r = one(kRow);
  EXPECT_EQ(r.why_not, "");
  EXPECT_EQ(r.software, "megatron-2022");
  EXPECT_EQ(r.device, "a100-sxm");
  EXPECT_EQ(r.microbatches, 8);
  EXPECT_EQ(r.zero, 0);
  EXPECT_EQ(r.nic_gbits, 200);
  EXPECT_EQ(r.step_s, 0.5);
  EXPECT_TRUE(r.scores);
  const Scenario s =
      load_scenario_text(scenario_of(r, r.dp, r.microbatches, engine_for(r), 0.5, 0.25), r.id);
  EXPECT_EQ(s.training->ranks, 16);
  EXPECT_EQ(s.training->global_batch, 32);
  EXPECT_EQ(s.training->recompute, Recompute::full);
  EXPECT_TRUE(s.training->stored_scores);
  EXPECT_EQ(s.software.name, "megatron-2022");
  EXPECT_EQ(s.compute.params.integer("ranks"), 16);
  const Result result = run_scenario(s);
  EXPECT_TRUE(result.complete);
  EXPECT_GT(result.step_time, Time::ms(17));  // the step's overhead alone
}

TEST(PublishedRun, WhatARowLeavesOpenIsAssumedAndSaidSo) {
  const PublishedRun r = one(with(kRow, {{"micro_batch", ""}, {"vocab", ""}, {"recompute", ""}}));
  EXPECT_EQ(r.micro_batch, 1);
  EXPECT_EQ(r.vocab, 51200);
  EXPECT_EQ(r.assumed.size(), 3U);
}

TEST(PublishedRun, ARateOfFlopsBecomesATime) {
  const PublishedRun r = one(with(kRow, {{"iteration_time_s", ""}, {"tflops_per_gpu", "100"}}));
  EXPECT_TRUE(r.from_flops);
  // 6 (12 h^2 L + V h) per token and 12 L h s of attention.
  const double tokens = 32 * 1024;
  const double parameters = 12.0 * 1024 * 1024 * 8 + 51200.0 * 1024;
  const double flops = tokens * (6 * parameters + 12.0 * 8 * 1024 * 1024);
  EXPECT_NEAR(r.step_s, flops / 16 / 100e12, 1e-9);
}

TEST(PublishedRun, ReasonsAreGiven) {
  const auto why = [](const Fields& more) { return one(with(kRow, more)).why_not; };
  EXPECT_EQ(why({{"gpu", "TPU v4"}}), "no card of device TPU v4");
  EXPECT_EQ(why({{"layers", ""}}), "model sizes not published");
  EXPECT_EQ(why({{"experts", "8"}}), "top-k not published");
  EXPECT_EQ(why({{"tp", ""}}), "layout not published");
  EXPECT_EQ(why({{"global_batch_seqs", "33"}}), "batch no multiple of dp x micro-batch");
  EXPECT_EQ(why({{"iteration_time_s", ""}}), "no time, throughput or FLOP rate");
  EXPECT_EQ(why({{"id", "zb-t6-14.6b-g24-m192-zb-2p"}}), "schedule zb-2p: not built yet");
  const PublishedRun r = one(with(kRow, {{"id", "titan-x"}, {"recompute", "selective op"}}));
  EXPECT_EQ(r.recompute_share, 0.5);
  EXPECT_NE(scenario_of(r, 2, 2, "flow", 1, 1).find("recompute_layers: 0.5"), std::string::npos);
}

TEST(PublishedRun, ReplicasAreReducedToWhatALayoutNeeds) {
  PublishedRun r = one(kRow);
  r.dp = 128;
  EXPECT_EQ(fewest_replicas(r), 8);  // 64 GPUs
  r.tp = 8;
  r.pp = 16;
  EXPECT_EQ(fewest_replicas(r), 2);
  r.experts = 64;
  r.ep = 32;
  r.expert_tp = 1;
  EXPECT_EQ(fewest_replicas(r), 4);
  EXPECT_EQ(engine_for(r), "flow, fast_path: exact");
}

TEST(PublishedRun, PairsDifferInOneThing) {
  const PublishedRun a = one(kRow);
  PublishedRun b = a;
  b.recompute = "selective";
  PublishedRun c = a;
  c.gpus = 32;
  c.dp = 4;
  c.global_batch = 64;
  PublishedRun other = b;
  other.family = "vtrain";
  const auto pairs = published_pairs({&a, &b, &c, &other});
  ASSERT_EQ(pairs.size(), 2U);
  EXPECT_EQ(pairs[0].lever, "more GPUs");
  EXPECT_EQ(std::max(pairs[0].a, pairs[0].b), 2U);
  EXPECT_EQ(pairs[1].lever, "recompute");
  EXPECT_EQ(pairs[1].a + pairs[1].b, 1U);
}

TEST(PublishedRun, ALongStepIsALineThroughTwoShortOnes) {
  PublishedRun r = one(kRow);
  EXPECT_TRUE(short_runs(r).line);
  const double line = predict_step(r, 60).value();
  r.microbatches = 4;
  EXPECT_FALSE(short_runs(r).line);
  const double four = predict_step(r, 60).value();
  r.microbatches = 2;
  const double two = predict_step(r, 60).value();
  // Without gradients that wait for replicas the rest is linear.
  EXPECT_NEAR(line, two + 3 * (four - two), 1e-6 * line);
  EXPECT_EQ(short_runs(r).replicas, 2);
  EXPECT_EQ(unhidden_gradients(r, 2), 0);  // all replicas were there
  r.dp = 64;
  EXPECT_GT(unhidden_gradients(r, 2), 0);
  r.gradient_overlap = true;
  EXPECT_EQ(unhidden_gradients(r, 2), 0);
}

// A few rows of sources that were not fitted, by their measured times.
TEST(PublishedRun, HeldOutStepsAreNearTheMeasuredOnes) {
  const char* shared = std::getenv("TRAINYARD_SHARED");
  const std::string file =
      shared == nullptr ? "" : std::string(shared) + "/reference/published-runs/runs.csv";
  if (!fs::exists(file)) GTEST_SKIP() << "no table of published runs: set TRAINYARD_SHARED";
  const std::map<std::string, double> within = {{"korth-gpt-22b-g8-fullrecompute", 0.05},
                                                {"korth-gpt-175b-g64-fullrecompute", 0.05},
                                                {"sc21t1-7.5b-g128", 0.12},
                                                {"mpt-3b-h100-80gb-g8-s4096-b240-amp-bf16", 0.05}};
  size_t tried = 0;
  for (const PublishedRun& r : read_published_runs(file)) {
    const auto it = within.find(r.id);
    if (it == within.end()) continue;
    ++tried;
    EXPECT_FALSE(fitted_source(r.source)) << r.id;
    const std::optional<double> step = predict_step(r, 120);
    ASSERT_TRUE(step.has_value()) << r.id;
    EXPECT_NEAR(*step / r.step_s, 1, it->second) << r.id;
  }
  EXPECT_EQ(tried, within.size());
}

TEST(PublishedRun, TheTableIsReadWhole) {
  const char* shared = std::getenv("TRAINYARD_SHARED");
  const std::string file =
      shared == nullptr ? "" : std::string(shared) + "/reference/published-runs/runs.csv";
  if (!fs::exists(file)) GTEST_SKIP() << "no table of published runs: set TRAINYARD_SHARED";
  const auto runs = read_published_runs(file);
  EXPECT_EQ(runs.size(), 940U);
  const auto expressed = std::count_if(runs.begin(), runs.end(),
                                       [](const PublishedRun& r) { return r.why_not.empty(); });
  EXPECT_GE(expressed, 850);
  size_t held = 0;
  std::map<std::string, bool> sources;
  for (const PublishedRun& r : runs) {
    sources[r.source] = fitted_source(r.source);
    if (!r.why_not.empty()) continue;
    held += fitted_source(r.source) ? 0 : 1;
    EXPECT_GT(r.step_s, 0) << r.id;
    EXPECT_NO_THROW((void)load_software(r.software, {})) << r.id;
    EXPECT_NO_THROW((void)load_scenario_text(
        scenario_of(r, fewest_replicas(r), 2 * r.pp, engine_for(r), 0.77, 0.88), r.id))
        << r.id;
  }
  const auto fitted =
      std::count_if(sources.begin(), sources.end(), [](const auto& s) { return s.second; });
  EXPECT_LE(2 * static_cast<size_t>(fitted), sources.size());  // at most half of the sources
  EXPECT_GE(2 * held, static_cast<size_t>(expressed) * 9 / 10);
}

}  // namespace
}  // namespace trainyard
