// SPDX-License-Identifier: MIT
// `trainyard lint` as a user runs it.
#include "tests/cli/cli_test_util.h"

namespace trainyard::cli_test {
namespace {

const char* const kHead =
    "cluster: {nodes: 4, gpus_per_node: 1}\n"
    "fabric:\n"
    "  topology: {kind: single-switch, scale_up: {kind: none}}\n";
const char* const kTail = "traffic: [{pattern: incast, size: 64KiB}]\n";

class LintCli : public CliTest {
 protected:
  std::string with(const std::string& fabric) const {
    return put("s.yaml", std::string(kHead) + fabric + kTail);
  }
};

TEST_F(LintCli, ExitCodesFollowTheWorstFinding) {
  const std::string file = with("  switch: {pfc: {headroom: auto}}\n");
  const Outcome good = cli({"lint", file});
  EXPECT_EQ(good.code, 0) << good.out << good.err;
  EXPECT_TRUE(has(good.out, "0 errors, 0 warnings")) << good.out;
  EXPECT_EQ(cli({"lint", "--strict", file}).code, 0);

  const std::string warn = with("  switch: {pfc: {headroom: 24KB}}\n");
  EXPECT_EQ(cli({"lint", warn}).code, 0);
  EXPECT_EQ(cli({"lint", warn, "--strict"}).code, 1);

  const std::string bad = with("  switch: {pfc: {headroom: 1KB}}\n");
  const Outcome o = cli({"lint", bad});
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(has(o.out, "s.yaml:4: error: ")) << o.out;
  EXPECT_TRUE(o.err.empty()) << o.err;
  EXPECT_EQ(cli({"lint", bad, "--set", "fabric.switch.pfc.headroom=auto"}).code, 0);

  expect_error(cli({"lint", with("  switsch: {}\n")}), 2, {"s.yaml:4", "switsch"});
  expect_error(cli({"lint", "missing.yaml"}), 2, {"missing.yaml"});
  expect_error(cli({"lint"}), 2, {"lint needs a scenario"});
}

TEST_F(LintCli, JsonSaysTheSame) {
  const Outcome o = cli({"lint", "--json", with("  switch: {pfc: {headroom: 1KB}}\n")});
  EXPECT_EQ(o.code, 1);
  const auto doc = nlohmann::ordered_json::parse(o.out, nullptr, false);
  ASSERT_FALSE(doc.is_discarded()) << o.out;
  EXPECT_EQ(doc["schema_version"], 1);
  EXPECT_EQ(doc["kind"], "scenario");
  EXPECT_EQ(doc["errors"], 1);
  const auto& f = doc["findings"][0];
  EXPECT_EQ(f["rule"], "pfc-headroom");
  EXPECT_EQ(f["severity"], "error");
  EXPECT_EQ(f["key"], "fabric.switch.pfc.headroom");
  EXPECT_EQ(f["line"], 4);
  EXPECT_EQ(f["source"], "protocols 5.5; B:F14");
  EXPECT_GE(f["arithmetic"].size(), 4U);
}

TEST_F(LintCli, ConfigurationsAreToldByTheirContent) {
  const std::string maps =
      "KMIN_MAP 2 100000000000 400 200000000000 300\n"
      "KMAX_MAP 2 100000000000 1600 200000000000 3200\n"
      "PMAX_MAP 2 100000000000 0.2 200000000000 0.2\n";
  const std::string file = put("x.conf", "ENABLE_QCN 1\n" + maps);
  for (const auto& arguments : {std::vector<std::string>{"lint", file},
                                std::vector<std::string>{"lint", "--simai", file}}) {
    const Outcome o = cli(arguments);
    EXPECT_EQ(o.code, 1) << o.out << o.err;
    EXPECT_TRUE(has(o.out, "x.conf:2: error: kmin falls")) << o.out;
  }
  put("t.txt", "3 1 2\n2\n0 2 100Gbps 5us 0\n1 2 100Gbps 5us 0\n");
  EXPECT_EQ(cli({"lint", file, "--topology", "t.txt"}).code, 1);
  expect_error(cli({"lint", file, "--topology", "none.txt"}), 2, {"none.txt"});
  expect_error(cli({"lint", file, "--set", "a=b"}), 2, {"--set"});
  expect_error(cli({"lint", "--simai", with("")}), 2, {"s.yaml:1", "'cluster:' is no key"});
  expect_error(cli({"lint", with(""), "--topology", "t.txt"}), 2, {"--topology"});
}

TEST_F(LintCli, RulesArePrintedWithTheirSources) {
  for (const auto& arguments :
       {std::vector<std::string>{"lint", "--list"}, std::vector<std::string>{"explain", "lint"}}) {
    const Outcome o = cli(arguments);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(has(o.out, "pfc-headroom")) << o.out;
    EXPECT_TRUE(has(o.out, "source: protocols 5.5; B:F14")) << o.out;
  }
  EXPECT_EQ(cli({"explain", "ecn-scaling"}).code, 0);
}

}  // namespace
}  // namespace trainyard::cli_test
