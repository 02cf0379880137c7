// SPDX-License-Identifier: MIT
// The published sets as traffic on the exact fast path, against one domain that holds everything
// and against the packet engine itself. Small sets come from our own generators; with
// TRAINYARD_SHARED (or shared/ beside the repository) all sets come from the published inputs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/golden/golden_inputs.h"
#include "tests/memo/result_difference.h"
#include "tools/benchmarks/golden_cases.h"
#include "tools/scenario/run.h"

namespace trainyard::test {
namespace {

namespace fs = std::filesystem;
using golden::Case;

const fs::path kGolden = fs::path(TRAINYARD_SOURCE_DIR) / "scenarios" / "golden";

class GoldenOracle : public testing::Test {
 protected:
  void SetUp() override {
    scratch_ = fs::temp_directory_path() / ("trainyard_oracle_" + std::to_string(getpid()));
    fs::create_directories(scratch_);
  }
  void TearDown() override { fs::remove_all(scratch_); }

  static Result run(const Case& c, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& more) {
    ScenarioOverrides overrides;
    overrides.settings = c.settings;
    // Every flow has a queue pair of its own either way.
    overrides.settings.emplace_back("fabric.transport.queue_pairs=persistent");
    for (const auto* list : {&inputs, &more}) {
      overrides.settings.insert(overrides.settings.end(), list->begin(), list->end());
    }
    return run_scenario(load_scenario((kGolden / c.scenario).string(), overrides));
  }
  /// Three ways of running one set.
  void compare(const Case& c, const std::vector<std::string>& inputs) {
    SCOPED_TRACE(c.peer + "/" + c.set);
    const Result exact = run(c, inputs, {"simulation.fast_path=exact"});
    ASSERT_TRUE(exact.fast_path.has_value());
    ASSERT_TRUE(exact.complete) << exact.incomplete_reason;
    const Result off = run(c, inputs, {"simulation.fast_path=exact", "simulation.domains=off"});
    EXPECT_EQ(result_difference(off, exact), "");
    const Result packets = run(c, inputs, {});
    EXPECT_EQ(result_difference(packets, off), "");
    ++sets_;
    jumps_ += exact.fast_path->jumps;
    domains_ += exact.fast_path->domains;
  }
  /// Sets of one peer whose names begin with one of these.
  void compare_small(const std::string& peer, const std::vector<std::string>& prefixes) {
    for (const Case& c : golden::read_cases((kGolden / "cases.csv").string())) {
      const bool named = std::any_of(prefixes.begin(), prefixes.end(),
                                     [&](const std::string& p) { return c.set.rfind(p, 0) == 0; });
      if (c.peer == peer && named) compare(c, golden::inputs(c.set, scratch_));
    }
    std::printf("%zu sets, %llu domains, %llu jumps\n", sets_,
                static_cast<unsigned long long>(domains_), static_cast<unsigned long long>(jumps_));
    EXPECT_GT(sets_, 0U);
  }

  fs::path scratch_;
  size_t sets_ = 0;
  uint64_t jumps_ = 0, domains_ = 0;
};

TEST_F(GoldenOracle, OneFlowAndIncast) {
  compare_small("hpcc-ns3", {"S1", "S2"});
  EXPECT_GT(jumps_, 0U);
}
TEST_F(GoldenOracle, SharedLinkAndLeafSpine) {
  compare_small("hpcc-ns3", {"S3", "S4"});
}
TEST_F(GoldenOracle, FatTree) {
  compare_small("hpcc-ns3", {"S5-pfconly", "S5-hpcc"});
}
TEST_F(GoldenOracle, slow_FatTree) {
  compare_small("hpcc-ns3", {"S5", "P1"});
}
TEST_F(GoldenOracle, slow_OtherPeer) {
  compare_small("simai-ns3", {"S1", "S2", "S3", "S4", "S5"});
}

TEST_F(GoldenOracle, slow_PublishedInputs) {
  fs::path shared = fs::path(TRAINYARD_SOURCE_DIR) / ".." / "shared";
  if (const char* dir = std::getenv("TRAINYARD_SHARED")) shared = dir;
  const fs::path reference = shared / "reference";
  if (!fs::is_directory(reference)) {
    GTEST_SKIP() << "no published inputs in " << reference
                 << ": that the fast path gives the same on them is unproven here; set "
                    "TRAINYARD_SHARED";
  }
  for (const Case& c : golden::read_cases((kGolden / "cases.csv").string())) {
    // P1 has a test of its own, and the other peer differs by four bytes of header.
    if (c.set.rfind("P1", 0) == 0) continue;
    const fs::path set = reference / c.peer / c.set;
    ASSERT_TRUE(fs::exists(set / "topology.txt")) << set;
    compare(c, {"fabric.topology.path=" + (set / "topology.txt").string(),
                "traffic=[{pattern: file, path: " + (set / "flows.csv").string() + "}]"});
  }
  EXPECT_GT(sets_, 40U);
}

}  // namespace
}  // namespace trainyard::test
