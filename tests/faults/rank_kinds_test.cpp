// SPDX-License-Identifier: MIT
// Faults of ranks and their hosts: what each does to the time of a step, and to whom it shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "faults/gpu_faults.h"
#include "faults/step_faults.h"
#include "sim/registry.h"
#include "tools/report/symptoms.h"
#include "tools/scenario/run.h"
#include "tools/scenario/whatif.h"

namespace trainyard {
namespace {

const char* const kModel =
    "  model: {layers: 4, hidden: 1024, heads: 8, ffn: 4096, vocab: 32000}\n"
    "  layout: {tp: 2, pp: 1, dp: 2}\n  batch: {global: 64, micro: 1, sequence: 512}\n";

Result run(const std::string& faults) {
  std::string text = "name: ranks\ncluster: {nodes: 2, gpus_per_node: 2}\nworkload:\n" +
                     std::string(kModel) +
                     "collectives: {timeout: 10s}\nsimulation: {fast_path: none}\n";
  if (!faults.empty()) text += "faults: [" + faults + "]\n";
  return run_scenario(load_scenario_text(text, "ranks.yaml"));
}

/// Three all-reduces of four GPUs, one a node.
Result reduce(const std::string& faults) {
  std::string text =
      "name: reduce\ncluster: {nodes: 4, gpus_per_node: 1}\n"
      "fabric: {topology: {kind: single-switch, nic: {rate: 100Gbps}, scale_up: {kind: none}}}\n"
      "collectives: {timeout: 2s}\ntraffic:\n"
      "  - {pattern: collective, collective: all-reduce, size: 4MB}\n"
      "  - {pattern: collective, collective: all-reduce, size: 4MB}\n"
      "  - {pattern: collective, collective: all-reduce, size: 4MB}\n";
  if (!faults.empty()) text += "faults: [" + faults + "]\n";
  return run_scenario(load_scenario_text(text, "reduce.yaml"));
}

size_t count(const OpenCall& call, OpenCall::Member::State state) {
  return static_cast<size_t>(
      std::count_if(call.members.begin(), call.members.end(),
                    [&](const OpenCall::Member& m) { return m.state == state; }));
}

using State = OpenCall::Member::State;

TEST(RankFaults, ThrottleSlowsComputeOnlyAndARampLess) {
  const Result healthy = run("");
  const Result slow = run("{kind: gpu-slow, where: rank1, factor: 2}");
  const Result throttled = run("{kind: gpu-throttle, where: rank1, factor: 2}");
  const Result ramp = run("{kind: gpu-throttle, where: rank1, factor: 2, ramp: 1s}");
  ASSERT_TRUE(healthy.complete && slow.complete && throttled.complete && ramp.complete);
  EXPECT_LT(healthy.step_time, ramp.step_time);
  EXPECT_LT(ramp.step_time, throttled.step_time);
  EXPECT_LE(throttled.step_time, slow.step_time);
  // Twice the time of all that rank 1 computes, no more.
  EXPECT_NEAR(slow.rank_times[1].compute.seconds() / healthy.rank_times[1].compute.seconds(), 2,
              1e-6);
}

TEST(RankFaults, MemoryOpsOfATraceDoNotWaitForTheClock) {
  OpGraph g;
  g.streams.emplace_back();
  for (const OpKind kind : {OpKind::compute, OpKind::memory}) {
    Op op;
    op.kind = kind;
    op.name = g.intern(kind == OpKind::compute ? "gemm" : "copy");
    g.ops.push_back(op);
  }
  g.finish();
  GpuFaults faults;
  faults.slow(0, Time(), Time::infinity(), 2, {true, "*"});
  EXPECT_EQ(faults.end_of_op(0, g, 0, Time::us(1), Time::us(10)), Time::us(21));
  EXPECT_EQ(faults.end_of_op(0, g, 1, Time::us(1), Time::us(10)), Time::us(11));
  EXPECT_EQ(faults.end_of_op(1, g, 0, Time::us(1), Time::us(10)), Time::us(11));
}

TEST(RankFaults, SlowBackwardHidesInEqualTotals) {
  const Result healthy = run("");
  const Result r = run("{kind: gpu-slow, where: rank1, ops: 'B*', factor: 1.9}");
  ASSERT_TRUE(healthy.complete && r.complete);
  EXPECT_GT(r.rank_times[1].compute.seconds(), 1.3 * healthy.rank_times[1].compute.seconds());
  EXPECT_LT(r.rank_times[1].compute.seconds(), 1.9 * healthy.rank_times[1].compute.seconds());
  EXPECT_EQ(r.rank_times[0].compute, healthy.rank_times[0].compute);
  // The alignment effect (C: 1.2, ARGUS): all ranks end together, as slow as the slowest.
  EXPECT_GT(r.step_time.seconds(), 1.2 * healthy.step_time.seconds());
  for (const RankTimes& t : r.rank_times) {
    EXPECT_NEAR(t.finish.seconds() / r.step_time.seconds(), 1, 0.02) << t.rank;
  }
  EXPECT_THROW(run("{kind: gpu-slow, where: rank1, ops: 'nothing*', factor: 2}"), UserError);
}

TEST(RankFaults, LaunchDelayIsAddedToEveryOp) {
  const Result healthy = reduce("");
  const Result r = reduce("{kind: launch-delay, where: rank2, delay: 100us}");
  ASSERT_TRUE(healthy.complete && r.complete);
  EXPECT_NEAR((r.step_time - healthy.step_time).seconds(), 3 * 100e-6, 1e-6);
  const Result dice = reduce("{kind: launch-delay, where: rank2, delay: 100us, jitter: uniform}");
  EXPECT_GT(dice.step_time, healthy.step_time);
  EXPECT_LT((dice.step_time - healthy.step_time).seconds(), 3 * 200e-6);
  EXPECT_NE(dice.step_time, r.step_time);
}

TEST(RankFaults, PlannedPausesCostLessThanPausesApart) {
  const auto pauses = [](const char* order) {
    return run("{kind: gc-pause, where: 'rank*', period: 4ms, pause: 1ms, order: " +
               std::string(order) + "}");
  };
  const Result healthy = run("");
  const Result together = pauses("together");
  const Result apart = pauses("apart");
  ASSERT_TRUE(together.complete && apart.complete);
  EXPECT_GT(together.step_time, healthy.step_time);
  EXPECT_GT(apart.step_time, together.step_time);
  EXPECT_THROW(run("{kind: gc-pause, where: rank0, period: 1ms, pause: 1ms}"), UserError);
}

TEST(RankFaults, TheIdealTimelineHasNoneOfThem) {
  const Result healthy = run("");
  for (const char* fault : {"{kind: gpu-throttle, where: rank1, factor: 2}",
                            "{kind: launch-delay, where: rank1, delay: 50us}",
                            "{kind: gc-pause, where: rank1, period: 2ms, pause: 1ms}"}) {
    const std::string text = "name: ranks\ncluster: {nodes: 2, gpus_per_node: 2}\nworkload:\n" +
                             std::string(kModel) + "simulation: {fast_path: none}\nfaults: [" +
                             fault + "]\n";
    WhatIfOptions options;
    options.top = 0;
    const WhatIf w = what_if(load_scenario_text(text, "ranks.yaml"), options);
    EXPECT_EQ(w.ideal, healthy.step_time) << fault;
    EXPECT_GT(w.slowdown(), 1.01) << fault;
  }
}

TEST(RankFaults, HangIsNotEnteredByOneRank) {
  const Result r = reduce("{kind: gpu-hang, where: rank2}");
  ASSERT_FALSE(r.complete);
  EXPECT_NE(r.incomplete_reason.find("collective timeout of 2"), std::string::npos)
      << r.incomplete_reason;
  ASSERT_EQ(r.open_calls.size(), 1U);
  EXPECT_EQ(r.open_calls[0].members[2].state, State::not_entered);
  EXPECT_EQ(count(r.open_calls[0], State::entered), 3U);
  EXPECT_TRUE(r.exits.empty());
  EXPECT_EQ(r.incomplete_reason.find("stopped"), std::string::npos);
  EXPECT_EQ(hang_verdict(r.open_calls[0]), "not-entered");
}

TEST(RankFaults, StoppedWithinACollectiveAllHaveEntered) {
  const Result r = reduce("{at: 100us, kind: gpu-stop, where: rank2}");
  ASSERT_FALSE(r.complete);
  ASSERT_EQ(r.open_calls.size(), 1U);
  EXPECT_EQ(count(r.open_calls[0], State::not_entered), 0U);
  EXPECT_EQ(hang_verdict(r.open_calls[0]), "hardware-fault");
}

TEST(RankFaults, SkipMakesTheOthersWaitForACallThatNeverComes) {
  // Rank 1 skips the second of three equal calls: its third meets their second, and theirs is
  // never entered by a rank that has done all that it had to.
  const Result r = reduce("{kind: collective-skip, where: rank1, call: 1}");
  ASSERT_FALSE(r.complete);
  ASSERT_EQ(r.open_calls.size(), 1U);
  EXPECT_EQ(r.open_calls[0].nth, 2U);
  EXPECT_EQ(r.open_calls[0].members[1].state, State::not_entered);
  EXPECT_EQ(r.collectives.size(), 3U);
  EXPECT_THROW(reduce("{kind: collective-skip, where: rank1, call: 3}"), UserError);
  EXPECT_THROW(reduce("{kind: collective-skip, where: rank1, group: nobody}"), UserError);
}

TEST(RankFaults, MismatchIsInconsistentAndTimesOut) {
  const Result r =
      reduce("{kind: collective-mismatch, where: rank3, calls: all-gather, size: 1MB, call: 1}");
  ASSERT_FALSE(r.complete);
  ASSERT_EQ(r.open_calls.size(), 1U);
  EXPECT_EQ(hang_verdict(r.open_calls[0]), "inconsistent");
  EXPECT_GE(count(r.open_calls[0], State::other), 1U);
  EXPECT_GE(r.end.seconds(), 2);
}

TEST(RankFaults, ExitIsSeenByTheLauncherAndTimesOutThePeers) {
  const Result r = reduce("{at: 100us, kind: process-exit, where: rank0}");
  ASSERT_FALSE(r.complete);
  ASSERT_EQ(r.exits.size(), 1U);
  EXPECT_EQ(r.exits[0].rank, 0U);
  EXPECT_EQ(r.exits[0].at, Time::us(100));
  EXPECT_NE(r.incomplete_reason.find("process of rank 0 is gone"), std::string::npos);
  EXPECT_THROW(reduce("{kind: process-exit, where: rank0, for: 1ms}"), UserError);
}

TEST(Symptoms, TheTruthKnowsEveryKind) {
  const std::set<std::string> how = {"stop", "hang", "slow"};
  const std::set<std::string> signals = {"xid", "log", "none"};
  for (const std::string& kind : Registry::instance().names("fault")) {
    EXPECT_EQ(how.count(fault_kind(kind).manifestation), 1U) << kind;
    EXPECT_EQ(signals.count(fault_kind(kind).signal), 1U) << kind;
  }
  // What nobody notices gives no signal, whatever its kind.
  for (const char* reaction : {"stall", "failover"}) {
    const Result r = reduce(
        std::string("{kind: nic-down, where: node1.nic0, for: 50us, reaction: ") + reaction + "}");
    ASSERT_EQ(r.faults.size(), 1U);
    EXPECT_EQ(r.faults[0].manifestation, "stop");
    EXPECT_EQ(r.faults[0].signal, std::string(reaction) == "stall" ? "none" : "log");
  }
}

TEST(Symptoms, TellWhoEnteredAndNothingOfTheCause) {
  const Result hang = reduce("{kind: gpu-hang, where: rank2}");
  const std::string symptoms = symptoms_csv(hang);
  EXPECT_NE(symptoms.find("collective-timeout"), std::string::npos) << symptoms;
  EXPECT_NE(symptoms.find("not-entered"), std::string::npos);
  EXPECT_EQ(symptoms.find("gpu-hang"), std::string::npos);
  EXPECT_NE(truth_csv(hang).find("gpu-hang"), std::string::npos);
  EXPECT_NE(truth_csv(hang).find(",hang,none,"), std::string::npos) << truth_csv(hang);
  // A list of faults that says something else changes no symptom.
  Result blind = hang;
  blind.faults.clear();
  blind.faults_planned = 0;
  EXPECT_EQ(symptoms_csv(blind), symptoms);
}

TEST(Symptoms, PValueTellsComputeFromNetwork) {
  const Result healthy = reduce("{kind: launch-delay, where: rank0, delay: 1ns}");
  const Result compute = reduce("{kind: launch-delay, where: rank2, delay: 1ms}");
  const Result network = reduce("{kind: link-degrade, where: node2.nic0, rate: 25%}");
  ASSERT_TRUE(healthy.complete && compute.complete && network.complete);
  const auto late = slow_p(compute, healthy);
  const auto link = slow_p(network, healthy);
  ASSERT_TRUE(late && link);
  EXPECT_GT(*late, 0.95);
  EXPECT_LT(*link, 0.1);
  EXPECT_FALSE(slow_p(healthy, healthy).has_value());
}

}  // namespace
}  // namespace trainyard
