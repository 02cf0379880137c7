// SPDX-License-Identifier: MIT
// What redundancy buys (B: V99, V103): with two ToRs, planes or a backup NIC the loss of one costs
// what the structure says, with one the job stops.
#include <gtest/gtest.h>

#include <string>

#include "tools/scenario/run.h"

namespace trainyard {
namespace {

/// 32 GPUs, tensor parallel inside of servers, data parallel along rails.
Result train(const std::string& topology, const std::string& transport, const std::string& faults,
             const std::string& rest = {}) {
  std::string text =
      "name: redundancy\n"
      "cluster: {nodes: 4, gpus_per_node: 8, device: h100-sxm}\n"
      "fabric:\n"
      "  topology: {kind: rail-optimized, nic: {rate: 400Gbps}, spine_radix: 64,\n"
      "             scale_up: {kind: nvswitch, rate: 450GBps}, " +
      topology + "}\n  transport: {congestion: {kind: none}, " + transport +
      "}\n"
      "workload:\n"
      "  model: {layers: 2, hidden: 1024, heads: 16, vocab: 8192}\n"
      "  layout: {tp: 8, dp: 4}\n"
      "  batch: {global: 8, micro: 1, sequence: 1024}\n" +
      rest;
  if (!faults.empty()) text += "faults: [" + faults + "]\n";
  return run_scenario(load_scenario_text(text, "redundancy.yaml"));
}

const char* const kDual =
    "load_balancing: {kind: source-routed, rule: round-robin, qps: 4, convergence: 50us}, "
    "retransmit_timeout: 100us, nack_interval: 10us";
const char* const kSingle =
    "load_balancing: {kind: source-routed, rule: round-robin, qps: 4, convergence: 50us}, "
    "retransmit_timeout: 1250ms, retry_limit: 8, nack_interval: 10us";

/// Of the gradients' collectives, which alone use NICs here.
Time longest(const Result& r, uint32_t ranks) {
  Time t;
  for (const CollectiveRecord& c : r.collectives) {
    if (c.ranks == ranks) t = std::max(t, c.finish - c.start);
  }
  return t;
}

TEST(Redundancy, OneOfTwoTorsLostInMidStepHalvesItsRail) {
  for (const char* planes : {"planes: 2, tor: dual, leaf_radix: 16", "planes: 2, leaf_radix: 16"}) {
    const Result healthy = train(planes, kDual, "");
    ASSERT_TRUE(healthy.complete) << healthy.incomplete_reason;
    const std::string at =
        std::to_string(healthy.step_time.ps() / 2) + "ps, kind: switch-down, where: plane0.rail2*";
    const Result broken = train(planes, kDual, "{at: " + at + "}");
    const Result lost =
        train(planes, kDual, "{at: before, kind: switch-down, where: plane0.rail2*}");
    ASSERT_TRUE(broken.complete && lost.complete) << broken.incomplete_reason;
    EXPECT_EQ(broken.totals.drops > 0, broken.totals.retransmitted > 0);
    // The rail's ring runs at half of its rate, and the step waits for it.
    EXPECT_NEAR(longest(lost, 4).seconds() / longest(healthy, 4).seconds(), 2, 0.1) << planes;
    const double whole = lost.step_time.seconds() / healthy.step_time.seconds();
    const double half = broken.step_time.seconds() / healthy.step_time.seconds();
    EXPECT_GT(whole, 1.01);
    EXPECT_LE(half, whole + 0.02);  // less was left to lose, but for convergence and repeats
    EXPECT_GT(half, 1);
    for (const LinkRecord& l : lost.links) {
      EXPECT_FALSE(l.from.rfind("plane0.", 0) == 0 && l.to.rfind("plane1.", 0) == 0);
      EXPECT_FALSE(l.from.rfind("plane0.rail2", 0) == 0 && l.bytes > 0) << l.from;
    }
  }
}

TEST(Redundancy, EightPlanesAndTheirQueuePairs) {
  const std::string planes = "planes: 8, leaf_radix: 16";
  const std::string eight =
      "load_balancing: {kind: source-routed, rule: round-robin, qps: 8, convergence: 50us}";
  const Result healthy = train(planes, eight, "");
  const Result lost = train(planes, eight, "{at: before, kind: switch-down, where: plane3}");
  ASSERT_TRUE(healthy.complete && lost.complete) << lost.incomplete_reason;
  // Eight queue pairs over seven planes: one plane carries two of them.
  EXPECT_NEAR(longest(lost, 4).seconds() / longest(healthy, 4).seconds(), 2, 0.1);
  // Seven leave a plane idle, which is the spare.
  const std::string seven =
      "load_balancing: {kind: source-routed, rule: round-robin, qps: 7, convergence: 50us}";
  const Result spare = train(planes, seven, "");
  const Result used = train(planes, seven, "{at: before, kind: switch-down, where: plane3}");
  ASSERT_TRUE(spare.complete && used.complete);
  EXPECT_NEAR(longest(used, 4).seconds() / longest(spare, 4).seconds(), 1, 0.03);
}

TEST(Redundancy, ASingleTorStopsTheJobAfterItsRetries) {
  const Result healthy = train("leaf_radix: 16", kSingle, "");
  ASSERT_TRUE(healthy.complete);
  const Time at = Time::ps(healthy.step_time.ps() / 2);
  const Result r =
      train("leaf_radix: 16", kSingle,
            "{at: " + std::to_string(at.ps()) + "ps, kind: switch-down, where: rail2*}");
  EXPECT_FALSE(r.complete);
  EXPECT_NE(r.incomplete_reason.find("8 retransmission timeouts"), std::string::npos)
      << r.incomplete_reason;
  // 8 x 1.25 s (B: V99: after 10 s).
  EXPECT_NEAR((r.end - at).seconds(), 10, 0.1);
}

TEST(Redundancy, ABackupNicCostsItsRing) {
  const std::string one = "leaf_radix: 16";
  const Result healthy = train(one, kDual, "");
  const Result lost =
      train(one, kDual, "{at: before, kind: nic-down, where: node1.nic3, reaction: backup-nic}");
  ASSERT_TRUE(healthy.complete && lost.complete) << lost.incomplete_reason;
  EXPECT_NEAR(longest(lost, 4).seconds() / longest(healthy, 4).seconds(), 2, 0.1);
  EXPECT_GT(lost.step_time, healthy.step_time);
}

TEST(Redundancy, RebalancedChannelsLeaveTheBorrowedNicOut) {
  const auto ring = [](const std::string& fault, const std::string& collectives) {
    std::string text =
        "name: rebalance\ncluster: {nodes: 2, gpus_per_node: 8}\n"
        "fabric:\n  topology: {kind: rail-optimized, nic: {rate: 100Gbps},\n"
        "             scale_up: {kind: nvswitch, rate: 450GBps}}\n"
        "  transport: {congestion: {kind: none}}\n"
        "traffic: [{pattern: collective, collective: all-reduce, size: 16MiB}]\n" +
        collectives;
    if (!fault.empty()) text += "faults: [" + fault + "]\n";
    return run_scenario(load_scenario_text(text, "rebalance.yaml"));
  };
  const std::string fault = "{at: before, kind: nic-down, where: node0.nic4, reaction: backup-nic}";
  const std::string rebalance = "collectives: {rebalance: true}\n";
  const double healthy = ring("", "").step_time.seconds();
  EXPECT_EQ(ring("", rebalance).step_time.seconds(), healthy);
  const Result shared = ring(fault, "");
  const Result rebalanced = ring(fault, rebalance);
  ASSERT_TRUE(shared.complete && rebalanced.complete);
  EXPECT_NEAR(shared.step_time.seconds() / healthy, 2, 0.1);
  // One channel comes in by the NIC, another goes out by it: six are left.
  EXPECT_NEAR(rebalanced.step_time.seconds() / healthy, 8.0 / 6, 0.03);
  // Nothing that both need: 2 (n - 1) / n of the buffer from every member.
  EXPECT_NEAR(static_cast<double>(rebalanced.collectives.at(0).wire_payload),
              16.0 * 2 * 15 / 16 * 16 * 1024 * 1024, 16 * 30.0 * 8);
}

}  // namespace
}  // namespace trainyard
