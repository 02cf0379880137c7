// SPDX-License-Identifier: MIT
// `at: before`: what has been broken for long is part of the fabric, for every engine, with the
// fast path, and gives what the same fault gives once the fabric has learnt of it.
#include <gtest/gtest.h>

#include <string>

#include "tools/scenario/run.h"

namespace trainyard {
namespace {

/// `topology` and `transport` are keys of these blocks, `faults` entries, `rest` more blocks.
Result run(const std::string& topology, const std::string& transport, const std::string& faults,
           const std::string& rest, const std::string& servers = "{nodes: 4, gpus_per_node: 2}") {
  std::string text = "name: broken before\ncluster: " + servers +
                     "\nfabric:\n  topology: {nic: {rate: 100Gbps}, " + topology +
                     "}\n  transport: {retransmit_timeout: 500us, nack_interval: 10us, " +
                     transport + "}\n" + rest;
  if (!faults.empty()) text += "faults: [" + faults + "]\n";
  return run_scenario(load_scenario_text(text, "before.yaml"));
}

const char* const kRails = "kind: rail-optimized, leaf_radix: 8";
const char* const kRing = "traffic: [{pattern: collective, collective: all-reduce, size: 4MiB}]\n";
const char* const kShift = "traffic: [{pattern: permutation, shift: 4, size: 1MB}]\n";

TEST(BrokenBefore, AHalfRateNicDoublesARingOnEveryEngine) {
  // DCQCN would leave a quarter of the slow port unused: its only flow comes in at twice its rate.
  const char* const none = "congestion: {kind: none}";
  for (const char* engine : {"packet", "flow", "analytic"}) {
    const std::string rest = std::string(kRing) + "simulation: {engine: " + engine + "}\n";
    const Result healthy = run(kRails, none, "", rest);
    const Result slow =
        run(kRails, none, "{at: before, kind: link-degrade, where: node1.nic0, rate: 50%}", rest);
    ASSERT_TRUE(healthy.complete && slow.complete) << slow.incomplete_reason;
    // Two channels, one per rail; the whole waits for the slower. On the analytic engine messages
    // do not wait for each other: a block passes the slow link once or twice in 14 hops.
    const bool alone = std::string(engine) == "analytic";
    EXPECT_NEAR(slow.step_time.seconds() / healthy.step_time.seconds(), alone ? 1.2 : 2, 0.07)
        << engine;
    ASSERT_EQ(slow.faults.size(), 1U);
    EXPECT_NE(slow.faults[0].text.find("since before the run"), std::string::npos);
  }
}

TEST(BrokenBefore, EqualsAFaultAtZeroThatTheFabricLearnsOfAtOnce) {
  const char* const clos = "kind: leaf-spine, leaf_radix: 8, scale_up: {kind: none}";
  struct Row {
    const char *topology, *fault;
  };
  // Without ECN: a port built at a quarter of the rate has the thresholds of such a port.
  const std::string plain = "congestion: {kind: none}";
  for (const Row& row : {Row{clos, "kind: link-down, where: 'leaf0:port[4-6]'"},
                         Row{clos, "kind: link-degrade, where: 'leaf0:port*', rate: 25%"},
                         Row{kRails, "kind: nic-down, where: node0.nic1, reaction: backup-nic"}}) {
    const std::string fault = row.fault;
    const Result before = run(row.topology, plain, "{at: before, " + fault + "}", kShift);
    const Result at_once = run(row.topology, plain + ", load_balancing: {convergence: 0ns}",
                               "{at: 0ns, " + fault + "}", kShift);
    const Result healthy = run(row.topology, plain, "", kShift);
    ASSERT_TRUE(before.complete && at_once.complete) << before.incomplete_reason;
    EXPECT_EQ(before.end, at_once.end) << fault;
    EXPECT_GT(before.end, healthy.end) << fault;
    EXPECT_EQ(before.totals.drops, 0U);
  }
}

TEST(BrokenBefore, NothingGoesOverAPlaneThatIsLost) {
  const char* const planes =
      "kind: rail-optimized, planes: 2, tor: dual, leaf_radix: 4, spine_radix: 16";
  const char* const balanced = "load_balancing: {kind: source-routed, rule: round-robin, qps: 4}";
  const Result healthy = run(planes, balanced, "", kRing);
  const Result r = run(planes, balanced, "{at: before, kind: switch-down, where: plane0}", kRing);
  ASSERT_TRUE(healthy.complete && r.complete) << r.incomplete_reason;
  int64_t lost = 0;
  int64_t kept = 0;
  for (const LinkRecord& l : r.links) {
    for (const std::string& node : {l.from, l.to}) {
      if (node.rfind("plane0.", 0) == 0) lost += l.bytes;
      if (node.rfind("plane1.", 0) == 0) kept += l.bytes;
    }
    EXPECT_FALSE(l.from.rfind("plane0.", 0) == 0 && l.to.rfind("plane1.", 0) == 0);
  }
  EXPECT_EQ(lost, 0);
  EXPECT_GT(kept, 0);
  // Half of every NIC.
  EXPECT_NEAR(r.step_time.seconds() / healthy.step_time.seconds(), 2, 0.1);
}

TEST(BrokenBefore, TheFastPathGivesTheSame) {
  const char* const fault = "{at: before, kind: link-degrade, where: node2.nic1, rate: 40%}";
  const std::string job =
      "traffic:\n"
      "  - {pattern: collective, collective: all-reduce, size: 1MiB}\n"
      "  - {pattern: collective, collective: all-reduce, size: 1MiB}\n";
  const Result full =
      run(kRails, "", fault, job + "simulation: {fast_path: exact, domains: off}\n");
  const Result fast = run(kRails, "", fault, job + "simulation: {fast_path: exact}\n");
  ASSERT_TRUE(full.complete && fast.complete);
  EXPECT_EQ(full.fingerprint, fast.fingerprint);
  EXPECT_EQ(full.end, fast.end);
  // What is broken all along disturbs nothing.
  ASSERT_TRUE(fast.fast_path.has_value());
  EXPECT_EQ(fast.fast_path->disturbances, 0U);
}

TEST(BrokenBefore, ARepairWithinTheRunIsLearntOfAsUsual) {
  const char* const clos = "kind: leaf-spine, leaf_radix: 8, scale_up: {kind: none}";
  const char* const soon = "load_balancing: {convergence: 20us}";
  const Result ends =
      run(clos, soon, "{at: before, for: 50us, kind: link-down, where: 'leaf0:port[4-6]'}", kShift);
  const Result stays =
      run(clos, soon, "{at: before, kind: link-down, where: 'leaf0:port[4-6]'}", kShift);
  ASSERT_TRUE(ends.complete && stays.complete);
  EXPECT_EQ(stays.totals.reroutes, 0U);
  EXPECT_GT(ends.totals.reroutes, 0U);
  EXPECT_EQ(ends.totals.drops, 0U);  // nothing was ever sent into them
}

TEST(BrokenBefore, WaysThatNobodyNeedsMayBeGone) {
  // Rings on rails do not go over spines; a change of rails does.
  const char* const spines = "{at: before, kind: switch-down, where: spine*}";
  for (const char* engine : {"packet", "flow"}) {
    const std::string how = std::string("simulation: {engine: ") + engine + "}\n";
    const Result healthy = run(kRails, "", "", kRing + how);
    const Result r = run(kRails, "", spines, kRing + how);
    ASSERT_TRUE(r.complete) << r.incomplete_reason;
    EXPECT_EQ(r.end, healthy.end) << engine;
    EXPECT_THROW(
        run(kRails, "", spines, "traffic: [{pattern: permutation, shift: 3, size: 1MB}]\n" + how),
        UserError);
  }
}

TEST(BrokenBefore, GpusAreSlowOnEveryEngine) {
  const std::string job =
      "workload:\n"
      "  model: {layers: 2, hidden: 512, heads: 8, vocab: 4096}\n"
      "  layout: {tp: 2, dp: 4}\n"
      "  batch: {global: 4, sequence: 512}\n";
  for (const char* engine : {"packet", "flow", "analytic"}) {
    const std::string rest = job + "simulation: {engine: " + engine + "}\n";
    const Result healthy = run(kRails, "", "", rest);
    const Result slow =
        run(kRails, "", "{at: before, kind: gpu-slow, where: rank3, factor: 3}", rest);
    ASSERT_TRUE(healthy.complete && slow.complete);
    EXPECT_NEAR(slow.rank_times[3].compute.seconds() / healthy.rank_times[3].compute.seconds(), 3,
                1e-6)
        << engine;
    EXPECT_GT(slow.step_time, healthy.step_time);
  }
}

TEST(BrokenBefore, WhatCannotBeIsRefusedWithItsLine) {
  const auto refusal = [](const std::string& fault, const std::string& rest) {
    try {
      run(kRails, "", fault, rest);
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.rfind("before.yaml:", 0) == 0 && text.find(part) != std::string::npos;
  };
  const std::string cut = refusal("{at: before, kind: nic-down, where: node0.nic1}",
                                  std::string(kShift) + "simulation: {engine: flow}\n");
  EXPECT_TRUE(has(cut, "node0.gpu1")) << cut;
  const std::string flap =
      refusal("{at: before, kind: link-flap, where: node0.nic1, count: 2}", kShift);
  EXPECT_TRUE(has(flap, "event of the run")) << flap;
  for (const char* fault : {"{at: 1us, kind: link-degrade, where: node0.nic1}",
                            "{at: before, for: 1us, kind: link-degrade, where: node0.nic1}",
                            "{at: before, kind: link-loss, where: node0.nic1}",
                            "{at: before, kind: pfc-storm, where: node0.nic1}"}) {
    const std::string said = refusal(fault, std::string(kShift) + "simulation: {engine: flow}\n");
    EXPECT_TRUE(has(said, "engine flow does not model")) << said;
  }
}

}  // namespace
}  // namespace trainyard
