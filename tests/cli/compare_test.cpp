// SPDX-License-Identifier: MIT
// `trainyard compare` and `trainyard whatif`, as a user runs them.
#include <cmath>

#include "tests/cli/cli_test_util.h"

namespace trainyard {
namespace {

using cli_test::has;
using cli_test::Outcome;
using Json = nlohmann::json;

const char* const kScenario =
    "name: small\n"
    "cluster: {nodes: 2, gpus_per_node: 2}\n"
    "fabric: {topology: {kind: rail-optimized, nic: {rate: 100Gbps}}, transport: {preset: "
    "rocev2}}\n"
    "workload: {model: {layers: 2, hidden: 1024, heads: 8, vocab: 4096}, layout: {tp: 2, dp: 2}, "
    "batch: {global: 4, sequence: 512}}\n";

class Compare : public cli_test::CliTest {
 protected:
  void run_as(const std::string& out, const std::vector<std::string>& settings) {
    put("s.yaml", kScenario);
    std::vector<std::string> words = {"run", "s.yaml", "-q", "--out", out};
    for (const auto& s : settings) words.insert(words.end(), {"--set", s});
    const Outcome o = cli(words);
    ASSERT_EQ(0, o.code) << o.err;
  }
  Json compared(const std::string& a, const std::string& b) {
    const Outcome o = cli({"compare", a, b, "--json"});
    EXPECT_EQ(0, o.code) << o.err;
    return Json::parse(o.out);
  }
};

TEST_F(Compare, ASlowerNicShowsAsExposedDataCommunication) {
  run_as("a", {});
  run_as("b", {"fabric.topology.nic.rate=25Gbps"});
  const Json c = compared("a", "b");
  const double change = c["change_ns"].get<double>();
  EXPECT_GT(change, 0);
  EXPECT_NEAR(change, c["b"]["time_ns"].get<double>() - c["a"]["time_ns"].get<double>(), 1e-6);
  // The parts sum to the change, the largest first.
  double sum = 0, before = 1e300;
  for (const Json& p : c["parts"]) {
    sum += p["change_ns"].get<double>();
    EXPECT_LE(std::abs(p["change_ns"].get<double>()), before);
    before = std::abs(p["change_ns"].get<double>());
  }
  EXPECT_NEAR(change, sum, 1);
  EXPECT_EQ("exposed communication, data", c["parts"][0]["name"]);
  EXPECT_GT(c["parts"][0]["change_ns"].get<double>(), 0.9 * change);
  // Only one key differs.
  ASSERT_EQ(1U, c["settings"].size()) << c["settings"];
  EXPECT_EQ("fabric.topology.nic.rate", c["settings"][0]["key"]);
  EXPECT_EQ("100Gbps", c["settings"][0]["a"]);
  EXPECT_EQ("25Gbps", c["settings"][0]["b"]);
  EXPECT_FALSE(c["links"].empty());
  EXPECT_FALSE(c["kernels"].empty());
  EXPECT_NE(c["a"]["fingerprint"], c["b"]["fingerprint"]);

  const Outcome text = cli({"compare", "a", "b/result.json"});
  EXPECT_EQ(0, text.code);
  EXPECT_TRUE(has(text.out, "longer")) << text.out;
  EXPECT_TRUE(has(text.out, "exposed communication, data +")) << text.out;
  EXPECT_TRUE(has(text.out, "fabric.topology.nic.rate: 100Gbps -> 25Gbps")) << text.out;
}

TEST_F(Compare, EqualRunsDifferInNothing) {
  run_as("a", {});
  run_as("b", {});
  const Json c = compared("a", "b");
  EXPECT_EQ(0, c["change_ns"].get<double>());
  for (const char* list : {"parts", "kernels", "links", "totals", "settings"}) {
    EXPECT_TRUE(c[list].empty()) << list << ": " << c[list];
  }
  EXPECT_TRUE(has(cli({"compare", "a", "b"}).out, "The same trajectory."));
}

TEST_F(Compare, WhatIsNoResultIsRefused) {
  put("x.json", "{}");
  put("y.json", "no JSON");
  for (const char* b : {"nowhere", "x.json", "y.json"}) {
    const Outcome o = cli({"compare", b, b});
    EXPECT_EQ(2, o.code) << b;
    EXPECT_TRUE(has(o.err, b)) << o.err;
  }
}

TEST_F(Compare, WhatIfFindsTheSlowRank) {
  put("slow.yaml",
      std::string(kScenario) +
          "compute: {slow: [{where: node1.gpu1, factor: 1.5}, {where: node0.gpu0, factor: "
          "1.1}]}\n");
  const Outcome o = cli({"whatif", "slow.yaml", "--healthy", "node1", "--json"});
  ASSERT_EQ(0, o.code) << o.err;
  const Json w = Json::parse(o.out);
  // C: F2.11: S = T / T_ideal, 1 - 1/S is wasted.
  const double s = w["slowdown_ratio"].get<double>();
  EXPECT_NEAR(s, w["step_time_s"].get<double>() / w["ideal_step_time_s"].get<double>(), 1e-12);
  EXPECT_NEAR(1 - 1 / s, w["wasted_ratio"].get<double>(), 1e-12);
  EXPECT_GT(s, 1.02);
  EXPECT_LT(s, 1.5);
  EXPECT_GT(w["p_ratio"].get<double>(), 0.8);  // C: F2.12: compute, not the network
  EXPECT_EQ(2, w["slower_ranks_count"].get<int>());
  ASSERT_EQ(2U, w["ranks"].size());
  EXPECT_EQ("rank 3 (node1.gpu1)", w["ranks"][0]["what"]);
  // The other slow rank remains, so that not all of the loss goes; it alone wins next to nothing.
  EXPECT_GT(w["ranks"][0]["share_of_loss_ratio"].get<double>(), 0.7);
  EXPECT_LT(w["ranks"][1]["share_of_loss_ratio"].get<double>(), 0.1);
  // node1 holds no other slow rank.
  EXPECT_EQ(w["ranks"][0]["step_time_s"], w["asked"][0]["step_time_s"]);
  ASSERT_FALSE(w["kernels"].empty());

  // The ideal is the run without stragglers.
  run_as("ideal", {});
  const Json ideal = Json::parse(cli_test::slurp(dir_ / "ideal" / "result.json"));
  EXPECT_NEAR(ideal["step_time_ns"].get<double>() * 1e-9, w["ideal_step_time_s"].get<double>(),
              1e-12);

  EXPECT_TRUE(has(cli({"whatif", "slow.yaml"}).out, "S = T / T_ideal"));
  const Outcome none = cli({"whatif", "s.yaml"});
  EXPECT_EQ(2, none.code);
  EXPECT_TRUE(has(none.err, "nothing makes a GPU slower")) << none.err;
}

}  // namespace
}  // namespace trainyard
