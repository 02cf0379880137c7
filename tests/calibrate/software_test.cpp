// SPDX-License-Identifier: MIT
// workload.software, step_overhead, collectives.launch and compute.model: fitted from the scenario
// file to the result.
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

const char* const kSmall =
    "cluster: {nodes: 1, device: h100-sxm}\n"
    "workload:\n"
    "  model: {layers: 4, hidden: 1024, heads: 16, vocab: 32000}\n"
    "  layout: {tp: 2, dp: 4}\n"
    "  batch: {global: 8, sequence: 1024}\n"
    "compute: {model: fitted}\n"
    "simulation: {engine: flow}\n";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Software : public testing::Test {
 protected:
  void SetUp() override {
    file_ =
        (fs::temp_directory_path() / ("trainyard_software_" + std::to_string(getpid()) + ".yaml"))
            .string();
  }
  void TearDown() override { fs::remove(file_); }
  Scenario load(const std::vector<std::string>& settings, const std::string& text = kSmall) {
    std::ofstream(file_) << text;
    ScenarioOverrides overrides;
    overrides.settings = settings;
    return load_scenario(file_, overrides);
  }
  Result run(const std::vector<std::string>& settings) { return run_scenario(load(settings)); }
  std::string problem(const std::vector<std::string>& settings, const std::string& text = kSmall) {
    try {
      const Scenario s = load(settings, text);
      (void)run_scenario(s);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  }
  std::string file_;
};

std::string setting(const Scenario& s, const std::string& key) {
  for (const Setting& x : s.resolved) {
    if (x.key == key) return x.value;
  }
  return "not listed";
}

TEST_F(Software, EveryFileLoadsAndSaysWhereItComesFrom) {
  const auto names = software_names();
  EXPECT_GE(names.size(), 15U);
  for (const std::string& name : names) {
    const SoftwareFactors f = load_software(name, {});
    EXPECT_FALSE(f.source.empty()) << name;
    EXPECT_GT(f.host, Time()) << name;
    EXPECT_EQ(load({"workload.software=" + name}).software.name, name);
  }
}

TEST_F(Software, FillsWhatTheScenarioLeavesOutAndNothingElse) {
  const Scenario none = load({});
  EXPECT_EQ(setting(none, "workload.step_overhead"), "0ns");
  EXPECT_EQ(setting(none, "collectives.launch"), "0us");
  EXPECT_EQ(setting(none, "workload.software"), "none");
  const Scenario s = load({"workload.software=megatron-2022", "workload.attention=flash"});
  EXPECT_EQ(setting(s, "workload.step_overhead"), "17.3ms");
  EXPECT_EQ(setting(s, "workload.precision.output"), "bf16");
  EXPECT_EQ(setting(s, "workload.attention"), "flash");  // the user's
  EXPECT_EQ(setting(s, "collectives.launch"), "15.6us");
  EXPECT_FALSE(s.training->stored_scores);
  EXPECT_TRUE(load({"workload.software=megatron-2022"}).training->stored_scores);
  EXPECT_EQ(s.training->sequence, 1024);
}

TEST_F(Software, MistakesAreNamed) {
  EXPECT_TRUE(has(problem({"workload.software=megatron-1066"}), "unknown software"));
  EXPECT_TRUE(has(problem({"workload.software=megatron-1066"}), "megatron-core"));
  EXPECT_TRUE(has(problem({"cluster.device=v100-sxm"}), "has no 'fit' block"));
  EXPECT_TRUE(has(problem({"cluster.device=a100-sxm", "workload.precision.compute=fp8"}),
                  "no fp8 tensor cores"));
  EXPECT_TRUE(has(problem({"workload.precision.compute=fp4"}), "no fp4 tensor cores"));
  EXPECT_TRUE(has(problem({"collectives.launch=10us", "collectives.protocol=simple"}),
                  "collectives.launch is for protocol: auto"));
}

TEST_F(Software, StepOverheadIsAddedToEveryStep) {
  const Result plain = run({});
  const Result with = run({"workload.step_overhead=3ms"});
  EXPECT_EQ(with.step_time - plain.step_time, Time::ms(3));
  const Result two = run({"workload.steps=2"});
  const Result two_with = run({"workload.steps=2", "workload.step_overhead=3ms"});
  EXPECT_EQ(two_with.end - two.end, Time::ms(6));
}

TEST_F(Software, LaunchIsAddedToEveryCallOnTheWay) {
  // Tensor parallelism calls 8 times a layer, one after the other; embedding and output layer call
  // besides.
  const std::vector<std::string> tensor = {"workload.layout.dp=1", "workload.batch.global=1"};
  std::vector<std::string> late = tensor;
  late.emplace_back("collectives.launch=1ms");
  const Time more = run(late).step_time - run(tensor).step_time;
  EXPECT_GE(more, Time::ms(32));
  EXPECT_LE(more, Time::ms(40));
}

TEST_F(Software, TheReportSaysHowFarAFittedTimeIsToBeTrusted) {
  const Result r = run({"workload.software=megatron-core"});
  EXPECT_TRUE(has(r.compute_source, "fitted (h100-sxm, error on ")) << r.compute_source;
  EXPECT_FALSE(has(r.compute_source, "uncalibrated"));
  const auto note = [&](const Result& x, const std::string& part) {
    return std::any_of(x.trust.begin(), x.trust.end(), [&](const TrustNote& n) {
      return n.topic == "compute times" && has(n.text, part);
    });
  };
  EXPECT_TRUE(note(r, "held-out steps"));
  EXPECT_TRUE(note(r, "software megatron-core"));
  EXPECT_TRUE(note(run({}), "no workload.software"));
  // Factors make the step longer than an ideal framework's.
  EXPECT_GT(run({"workload.software=megatron-2022", "workload.step_overhead=0ns"}).step_time,
            run({}).step_time);
  // The slowest of more GPUs.
  EXPECT_GT(run({"compute.ranks=8192"}).step_time, run({}).step_time);
}

}  // namespace
}  // namespace trainyard
