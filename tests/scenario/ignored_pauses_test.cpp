// SPDX-License-Identifier: MIT
// A run whose stepped domains left pauses out says so.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tools/scenario/run.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

/// Seven to one; with 2 MiB into a buffer that is far too small for them to begin at once.
Result run(const std::string& ignored, std::vector<std::string> more = {}) {
  const fs::path file =
      fs::temp_directory_path() / ("trainyard_pauses_" + std::to_string(getpid()) + ".yaml");
  std::ofstream(file) << "name: pauses left out\n"
                         "cluster: {nodes: 8, gpus_per_node: 1}\n"
                         "fabric:\n"
                         "  topology: {kind: single-switch, nic: {rate: 100Gbps}, scale_up: {kind: "
                         "none}}\n"
                         "  transport: {preset: rocev2, congestion: {kind: dcqcn}}\n"
                         "  switch: {buffer: 2MiB}\n"
                         "traffic: [{pattern: incast, dst: 0, fan_in: 7, size: 20MB}]\n"
                         "simulation: {fast_path: fast}\n";
  ScenarioOverrides overrides;
  overrides.settings = std::move(more);
  overrides.settings.push_back("simulation.ignored_pauses=" + ignored);
  Result r = run_scenario(load_scenario(file.string(), overrides));
  fs::remove(file);
  return r;
}

bool says_so(const Result& r) {
  return std::any_of(r.trust.begin(), r.trust.end(),
                     [](const TrustNote& n) { return n.topic == "pauses" && n.caution; });
}

TEST(IgnoredPauses, AreCountedAndNamed) {
  const Result followed = run("0");
  ASSERT_TRUE(followed.complete && followed.fast_path);
  EXPECT_EQ(followed.fast_path->pauses_not_followed, 0U);
  EXPECT_GT(followed.totals.pfc_pauses, 0U);
  EXPECT_FALSE(says_so(followed));

  // Many pauses in a short run: by default it is simulated as packets just the same.
  const Result usual = run("1%");
  EXPECT_EQ(usual.fingerprint, followed.fingerprint);
  EXPECT_FALSE(says_so(usual));

  const Result ignored = run("100%");
  EXPECT_GT(ignored.fast_path->pauses_not_followed, 0U);
  EXPECT_EQ(ignored.totals.pfc_pauses, 0U);
  EXPECT_TRUE(says_so(ignored));
}

/// A single run spreads by 2 %.
TEST(IgnoredPauses, FewOfThemMoveLittle) {
  double followed = 0, ignored = 0;
  for (int seed = 1; seed <= 4; ++seed) {
    const std::vector<std::string> settings = {
        "traffic=[{pattern: incast, dst: 0, fan_in: 7, size: 200MB}]", "fabric.switch.buffer=8MiB",
        "seed=" + std::to_string(seed)};
    const Result f = run("0", settings);
    const Result i = run("5%", settings);
    EXPECT_GT(f.totals.pfc_pauses, 0U) << seed;
    EXPECT_GT(i.fast_path->pauses_not_followed, 0U) << seed;
    EXPECT_LT(i.fast_path->pauses_not_followed, 5U) << seed;
    for (const TransferRecord& t : f.flows) followed += t.delivered.seconds();
    for (const TransferRecord& t : i.flows) ignored += t.delivered.seconds();
  }
  EXPECT_NEAR(ignored / followed, 1, 0.05);
}

}  // namespace
}  // namespace trainyard
