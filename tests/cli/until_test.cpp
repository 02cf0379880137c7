// SPDX-License-Identifier: MIT
// simulation.until through the command.
#include "tests/cli/cli_test_util.h"

namespace trainyard::cli_test {
namespace {

class UntilCli : public CliTest {
 protected:
  [[nodiscard]] Outcome run(const std::string& scenario, const std::string& until,
                            const std::string& out) const {
    return cli({"run", source(scenario), "--set", "simulation.until=" + until, "--out", out});
  }
};

TEST_F(UntilCli, CutsOffTrafficAndKeepsWhatWasDone) {
  const std::string incast = "tests/cli/data/incast.yaml";
  ASSERT_EQ(run(incast, "none", "whole").code, 0);
  expect_error(run(incast, "300us", "cut"), 3,
               {"cut off at 300us by simulation.until, with 0 of 7 flows done"});
  const auto doc = result("cut");
  EXPECT_EQ(doc["complete"], false);
  EXPECT_EQ(doc["end_ns"], 300'000.0);
  const int64_t wire = doc["totals"]["wire_bytes"];
  EXPECT_GT(wire, 1'000'000);
  EXPECT_LT(wire, result("whole")["totals"]["wire_bytes"].get<int64_t>() / 2);
  expect_whole_files(dir_ / "cut");

  ASSERT_EQ(run(incast, "1s", "late").code, 0);
  EXPECT_EQ(fingerprint("late"), fingerprint("whole"));
}

TEST_F(UntilCli, CutsOffAWorkload) {
  const std::string quickstart = "scenarios/quickstart.yaml";
  const Outcome o = run(quickstart, "1ms", "cut");
  expect_error(o, 3, {"cut off at 1ms by simulation.until, with ", " ops done"});
  EXPECT_EQ(result("cut")["complete"], false);
  EXPECT_EQ(run(quickstart, "1h", "late").code, 0);
}

}  // namespace
}  // namespace trainyard::cli_test
