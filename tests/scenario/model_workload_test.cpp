// SPDX-License-Identifier: MIT
// `workload: {model: ...}` from the scenario file to the result.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "tools/report/report.h"
#include "tools/scenario/plan.h"
#include "tools/scenario/run.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class ModelWorkload : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("trainyard_model_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Scenario load(const std::string& text) {
    const fs::path file = folder_ / "s.yaml";
    std::ofstream(file) << text;
    return load_scenario(file.string());
  }
  std::string problem(const std::string& text) {
    try {
      load(text);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  static double figure(const std::vector<TrainingFigure>& list, const std::string& key) {
    for (const auto& f : list) {
      if (f.key == key) return f.value;
    }
    ADD_FAILURE() << "no figure " << key;
    return 0;
  }
  fs::path folder_;
};

const char* const kSmall =
    "cluster: {nodes: 2}\n"
    "workload:\n"
    "  model: {layers: 8, hidden: 1024, heads: 16, vocab: 8192}\n"
    "  layout: {tp: 2, pp: 4}\n"
    "  batch: {global: 16, sequence: 512}\n"
    "  steps: 2\n"
    "simulation: {engine: flow}\n";

TEST_F(ModelWorkload, RunsAndReports) {
  const Scenario s = load(kSmall);
  const Result r = run_scenario(s);
  ASSERT_TRUE(r.complete) << r.incomplete_reason;
  EXPECT_EQ(16U, r.ranks);
  EXPECT_EQ(4U, r.rank_classes);
  const double step = figure(r.training, "time_per_step_s");
  EXPECT_NEAR(r.step_time.seconds() / 2, step, 1e-12);
  EXPECT_NEAR(16 * 512 / step, figure(r.training, "tokens_per_s"), 1);
  EXPECT_NEAR(figure(r.training, "step_model_flops") / step / 16 / 989.4e12,
              figure(r.training, "mfu_ratio"), 1e-9);
  // p = 4, 8 micro-batches (A:F32); what communication adds comes on top.
  EXPECT_DOUBLE_EQ(3.0 / 8, figure(r.training, "ideal_bubble_per_compute_ratio"));
  EXPECT_GT(figure(r.training, "bubble_per_step_ratio"), 0.1);
  // Dimensions sum to the whole.
  for (const RankTimes& t : r.rank_times) {
    Time exposed;
    Time wait;
    Time hidden;
    for (size_t d = 0; d < kDimensions; ++d) {
      exposed += t.exposed_of[d];
      wait += t.wait_of[d];
      hidden += t.hidden_of[d];
    }
    EXPECT_EQ(t.exposed_comm, exposed);
    EXPECT_EQ(t.wait, wait);
    EXPECT_EQ(t.hidden_comm, hidden);
  }
  EXPECT_TRUE(has(result_json(r), "\"mfu_ratio\""));
  EXPECT_TRUE(has(summary_text(r), "tensor communication"));
}

// A:F34. On a fast fabric the bubble is the closed form, for a stage in which a pair takes what its
// halves take.
TEST_F(ModelWorkload, BubbleOfDualPipeOnAFastFabric) {
  for (const auto& [schedule, ratio] :
       {std::pair{"dualpipe", 2.0 / (3 * 16)}, {"dualpipe-v", 3.0 / (3 * 16)}}) {
    const Result r =
        run_scenario(load(std::string("cluster: {nodes: 1, gpus_per_node: 4}\n") +
                          "fabric: {topology: {scale_up: {rate: 40000GBps, latency: 1ns}}}\n"
                          "workload:\n"
                          "  model: {layers: 32, hidden: 2048, heads: 16, vocab: 128}\n"
                          "  layout: {pp: 4, zero: 0}\n"
                          "  schedule: {kind: " +
                          schedule +
                          "}\n"
                          "  batch: {global: 16, sequence: 2048}\n"
                          "simulation: {engine: flow}\n"));
    ASSERT_TRUE(r.complete) << r.incomplete_reason;
    EXPECT_NEAR(ratio, figure(r.training, "ideal_bubble_per_compute_ratio"), 1e-9) << schedule;
    // Forward, input and weight halves are not quite equal: attention has no weights.
    EXPECT_NEAR(ratio, figure(r.training, "bubble_per_compute_ratio"), 0.03) << schedule;
  }
}

// What DualPipe is for: all-to-all behind the compute of the other direction (arXiv:2412.19437).
TEST_F(ModelWorkload, DualPipeHidesTheAllToAllOfExperts) {
  const auto run = [&](const std::string& schedule) {
    return run_scenario(
        load("cluster: {nodes: 4}\n"
             "workload:\n"
             "  model: {layers: 8, hidden: 2048, heads: 16, vocab: 1024, experts: 16,"
             " topk: 4, expert_ffn: 1024}\n"
             "  layout: {pp: 4, ep: 8, dp: 8, zero: 1}\n"
             "  schedule: {kind: " +
             schedule +
             "}\n"
             "  batch: {global: 128, sequence: 2048}\n"
             "simulation: {engine: flow}\n"));
  };
  const Result plain = run("1f1b");
  const Result dual = run("dualpipe");
  ASSERT_TRUE(plain.complete && dual.complete) << dual.incomplete_reason;
  EXPECT_GT(figure(plain.training, "expert_exposed_ratio"), 0.1);
  EXPECT_LT(figure(dual.training, "expert_exposed_ratio"),
            0.75 * figure(plain.training, "expert_exposed_ratio"));
  EXPECT_LT(dual.step_time, plain.step_time);
}

// Without communication to speak of, idle time is the closed form (A:F31, A:F32).
TEST_F(ModelWorkload, BubbleOfAFastFabric) {
  for (const auto& [schedule, ratio] :
       {std::pair{"1f1b", 3.0 / 8}, {"gpipe", 3.0 / 8}, {"interleaved, chunks: 2", 3.0 / 16}}) {
    const Result r =
        run_scenario(load(std::string("cluster: {nodes: 1, gpus_per_node: 4}\n") +
                          "fabric: {topology: {scale_up: {rate: 40000GBps, latency: 1ns}}}\n"
                          "workload:\n"
                          "  model: {layers: 32, hidden: 2048, heads: 16, vocab: 128}\n"
                          "  layout: {pp: 4, zero: 0}\n"
                          "  schedule: {kind: " +
                          schedule +
                          "}\n"
                          "  batch: {global: 8, sequence: 8192}\n"
                          "simulation: {engine: flow}\n"));
    ASSERT_TRUE(r.complete);
    // The optimizer and the short output layer are no pipeline work: 3 % off at most.
    const double work = figure(r.training, "bubble_per_compute_ratio");
    EXPECT_NEAR(ratio, work, 0.03) << schedule;
  }
}

TEST_F(ModelWorkload, PlanShowsLayoutMemoryAndVolumes) {
  const Plan p = make_plan(load(kSmall));
  EXPECT_GT(figure(p.training, "memory_bytes"), 0);
  EXPECT_GT(figure(p.training, "tensor_sent_bytes"), 0);
  EXPECT_GT(figure(p.training, "pipeline_sent_bytes"), 0);
  const std::string text = plan_text(p);
  for (const char* part :
       {"16 ranks", "8 = global 16 / (dp 2 x micro 1)", "memory per GPU", "sent for pipeline"}) {
    EXPECT_TRUE(has(text, part)) << part;
  }
  EXPECT_TRUE(has(plan_json(p), "\"tensor_sent_bytes\""));
}

TEST_F(ModelWorkload, RefusesWhatDoesNotFit) {
  const std::string text =
      "cluster: {nodes: 1}\nworkload:\n  model: llama3-70b\n  layout: {tp: 8}\n";
  const std::string message = problem(text);
  EXPECT_TRUE(has(message, "s.yaml:3: out of memory: parameters ")) << message;
  EXPECT_TRUE(has(message, " + optimizer ")) << message;
  EXPECT_TRUE(has(message, "h100-sxm")) << message;
  const Scenario all_the_same = load(text + "memory: {headroom: off}\n");
  EXPECT_TRUE(std::any_of(all_the_same.warnings.begin(), all_the_same.warnings.end(),
                          [](const auto& w) { return has(w, "out of memory"); }));
}

TEST_F(ModelWorkload, ErrorsHaveTheirLine) {
  const std::string head = "cluster: {nodes: 2}\nworkload:\n  model: gpt3-7b\n";
  EXPECT_TRUE(has(problem(head + "  layout: {tp: 3}\n"), "s.yaml:4: 16 GPUs are no multiple"));
  EXPECT_TRUE(has(problem(head + "  batch: {global: 7}\n"), "s.yaml:4: global 7 / (dp 16"));
  EXPECT_TRUE(has(problem("workload:\n  model: gpt9\n"), "s.yaml:2: unknown model 'gpt9'"));
  EXPECT_TRUE(has(problem(head + "  layout: {tpp: 3}\n"), "unknown key 'tpp'"));
  EXPECT_TRUE(has(problem("workload:\n  layout: {tp: 8}\n"),
                  "workload.layout describes a generated workload"));
  EXPECT_TRUE(has(problem(head + "  chakra: x\n"), "unknown key 'chakra'"));
  EXPECT_TRUE(has(problem("cluster: {nodes: 1}\nworkload:\n  model: {layers: 2}\n"),
                  "layers, hidden, heads and vocab"));
}

TEST_F(ModelWorkload, LintsLayouts) {
  const auto warned = [&](const std::string& layout, const std::string& part) {
    const Scenario s =
        load("cluster: {nodes: 4}\nworkload:\n  model: {card: gpt3-7b, layers: 9}\n" + layout);
    return std::any_of(s.warnings.begin(), s.warnings.end(),
                       [&](const auto& w) { return has(w, part); });
  };
  EXPECT_TRUE(warned("  layout: {tp: 16}\n", "leaves the server"));
  EXPECT_FALSE(warned("  layout: {tp: 8}\n", "leaves the server"));
  EXPECT_TRUE(warned("  layout: {tp: 8, order: dp-tp-cp-ep-pp}\n", "leaves the server"));
  EXPECT_TRUE(warned("  layout: {tp: 8, pp: 4}\n", "bubble"));
  EXPECT_FALSE(warned("  layout: {tp: 8, pp: 4}\n  batch: {global: 64}\n", "bubble"));
}

TEST_F(ModelWorkload, EveryCardLoads) {
  const auto names = model_names();
  EXPECT_GE(names.size(), 11U);
  for (const auto& name : names) {
    const ModelCard card = load_model_card(name, {});
    EXPECT_NO_THROW(card.check()) << name;
    EXPECT_FALSE(card.source.empty()) << name;
  }
}

}  // namespace
}  // namespace trainyard
