// SPDX-License-Identifier: MIT
// collectives.sms: what a collective's kernels take of the compute beside it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tools/scenario/run.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class CollectiveSms : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(dir_); }
  void TearDown() override { fs::remove_all(dir_); }

  /// Eight GPUs in data parallelism, whose gradients move beside the backward pass.
  Result run(const std::string& collectives, const std::string& compute = "") {
    std::ofstream(dir_ / "s.yaml")
        << "cluster: {nodes: 1, gpus_per_node: 8, device: h100-sxm}\n"
           "workload: {model: gpt3-7b, layout: {dp: 8}, batch: {micro: 1, global: 8}, steps: 1}\n"
           "collectives: {" +
               collectives + "}\ncompute: {model: roofline" + compute +
               "}\nsimulation: {engine: flow}\n";
    return run_scenario(load_scenario((dir_ / "s.yaml").string()));
  }
  Time compute_of(const Result& r) { return r.rank_times.at(0).compute; }

  fs::path dir_ = fs::temp_directory_path() / ("trainyard_sms_" + std::to_string(getpid()));
};

TEST_F(CollectiveSms, NoneLeavesComputeAlone) {
  const Result plain = run("");
  const Result slowed = run("", ", overlap_slowdown: 20%");
  const Result free = run("sms: 0", ", overlap_slowdown: 20%");
  EXPECT_GT(compute_of(slowed), compute_of(plain));
  EXPECT_EQ(compute_of(free), compute_of(plain));
  EXPECT_EQ(free.end, plain.end);
}

TEST_F(CollectiveSms, NOfAllAreAShareOfTheRest) {
  // 22 of 132 leave 110: a fifth longer, as overlap_slowdown says it, to the rounding of decimals.
  const Result by_share = run("", ", overlap_slowdown: 20%");
  const Result by_sms = run("sms: 22");
  EXPECT_NEAR(static_cast<double>(compute_of(by_sms).ps()),
              static_cast<double>(compute_of(by_share).ps()), 1e3);
  EXPECT_GT(compute_of(run("sms: 44")), compute_of(by_sms));
}

TEST_F(CollectiveSms, CountsByKind) {
  const Time plain = compute_of(run(""));
  const Time all = compute_of(run("sms: 22"));
  // Gradients are reduced: who gathers is free makes no difference, who reduces does.
  EXPECT_EQ(compute_of(run("sms: {all_reduce: 0, reduce_scatter: 0, all_gather: 0}",
                           ", overlap_slowdown: 20%")),
            plain);
  EXPECT_EQ(compute_of(run("sms: {all_to_all: 0}", ", overlap_slowdown: 20%")),
            compute_of(run("", ", overlap_slowdown: 20%")));
  EXPECT_GT(all, plain);
}

TEST_F(CollectiveSms, MoreThanThereAreIsRefused) {
  try {
    (void)run("sms: 132");
    FAIL() << "nothing was thrown";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("132"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace trainyard
