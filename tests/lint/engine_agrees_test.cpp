// SPDX-License-Identifier: MIT
// What lint computes, the packet engine does.
#include "tests/lint/lint_test_util.h"
#include "tools/scenario/run.h"

namespace trainyard::lint_test {
namespace {

using S = LintSeverity;

class LintEngine : public LintTest {
 protected:
  [[nodiscard]] Result run(const std::string& yaml) const {
    return run_scenario(load_scenario(put("run.yaml", yaml)));
  }
};

TEST_F(LintEngine, HeadroomBelowWhatMayArriveDropsAndAboveDoesNot) {
  // 400 Gb/s, 150 ns: 15,000 + 2 x 4178 + 84 = 23,440 may arrive after a pause.
  const auto with = [](const std::string& headroom) {
    return one_switch(9, "400Gbps", "150ns",
                      "  transport: {congestion: {kind: none}}\n  switch: {buffer: 2MiB, ecn: "
                      "{mark_at: off}, pfc: {headroom: " +
                          headroom + "}}\n",
                      kIncast8);
  };
  EXPECT_TRUE(only(scenario(with("18000B")), "pfc-headroom", S::error));
  const Result dropped = run(with("18000B"));
  EXPECT_FALSE(dropped.complete);
  EXPECT_TRUE(has(dropped.incomplete_reason, "headroom")) << dropped.incomplete_reason;

  EXPECT_TRUE(only(scenario(with("30KB")), "pfc-headroom", S::warning));
  const Result kept = run(with("30KB"));
  EXPECT_TRUE(kept.complete) << kept.incomplete_reason;
  EXPECT_GT(kept.totals.pfc_pauses, 0U);
  EXPECT_EQ(kept.totals.drops, 0U);
}

TEST_F(LintEngine, MarksComeFirstFromTheDegreeThatLintNames) {
  // Pool 2,000,000 - 9 x 54,096; an ingress port pauses at 155.4 KB with 2 active, 130.2 KB with
  // 4: 310.8 KB are in the hot queue when 2 senders pause, 520.8 KB with 4. kmin lies between.
  const auto with = [](int senders, const std::string& size) {
    return one_switch(
        9, "100Gbps", "1us",
        "  transport: {congestion: {kind: none}}\n  switch: {buffer: 2MB, pfc: "
        "{headroom: 50KB}, ecn: {kmin: 400KB, kmax: 400KB, pmax: 1}}\n",
        "{pattern: incast, dst: 8, fan_in: " + std::to_string(senders) + ", size: " + size + "}");
  };
  const auto r = scenario(with(2, "1MB"));
  EXPECT_TRUE(has(words_of(r, "ecn-before-pfc"), "marks first from 3-to-1 on"))
      << words_of(r, "ecn-before-pfc");
  const Result two = run(with(2, "350KB"));  // about 350 KB in the queue
  EXPECT_GT(two.totals.pfc_pauses, 0U);
  EXPECT_EQ(two.totals.ecn_marks, 0U);
  const Result four = run(with(4, "150KB"));  // about 450 KB
  EXPECT_EQ(four.totals.pfc_pauses, 0U);
  EXPECT_GT(four.totals.ecn_marks, 0U);
}

TEST_F(LintEngine, WindowsThatFitTheBufferPauseNobody) {
  const auto with = [](const std::string& window) {
    return one_switch(9, "100Gbps", "1us",
                      "  transport: {window: " + window +
                          ", window_scaling: false, congestion: {kind: none}}\n"
                          "  switch: {buffer: 1MB, ecn: {mark_at: off}}\n",
                      kIncast8);
  };
  EXPECT_TRUE(of_rule(scenario(with("40KB")), "incast-buffer").empty());
  EXPECT_EQ(run(with("40KB")).totals.pfc_pauses, 0U);
  EXPECT_TRUE(only(scenario(with("80KB")), "incast-buffer", S::note));
  EXPECT_GT(run(with("80KB")).totals.pfc_pauses, 0U);
}

TEST_F(LintEngine, AWindowBelowTheAckIntervalWaitsForTheTimer) {
  const auto with = [](const std::string& interval) {
    return one_switch(2, "100Gbps", "1us",
                      "  transport: {window: bdp, window_scaling: false, retransmit_timeout: 1ms, "
                      "retry_limit: 1000000, congestion: {kind: none}, ack_interval: " +
                          interval + "}\n",
                      "{pattern: incast, dst: 1, fan_in: 1, size: 200KB}");
  };
  EXPECT_TRUE(of_rule(scenario(with("15")), "window-bdp").empty());
  EXPECT_EQ(run(with("15")).totals.timeouts, 0U);
  EXPECT_TRUE(only(scenario(with("16")), "window-bdp", S::error));
  EXPECT_GT(run(with("16")).totals.timeouts, 0U);
}

}  // namespace
}  // namespace trainyard::lint_test
