// SPDX-License-Identifier: MIT
// pcie-downgrade, nvlink-degrade, and the selector of an optic.
#include <gtest/gtest.h>

#include <string>

#include "network/topology_select.h"
#include "tools/scenario/run.h"

namespace trainyard {
namespace {

Result run(const std::string& faults, const std::string& rest, const std::string& topology) {
  std::string text =
      "name: kinds\ncluster: {nodes: 4, gpus_per_node: 1}\n"
      "fabric:\n  topology: {" +
      topology + "}\n  transport: {congestion: {kind: none}}\n" + rest;
  if (!faults.empty()) text += "faults: [" + faults + "]\n";
  return run_scenario(load_scenario_text(text, "kinds.yaml"));
}

const char* const kStar = "kind: single-switch, nic: {rate: 100Gbps}, scale_up: {kind: none}";
const char* const kShift = "traffic: [{pattern: permutation, shift: 1, size: 10MB}]\n";

double seconds(const Result& r, uint32_t src) {
  for (const TransferRecord& f : r.flows) {
    if (f.src == src) return (f.delivered - f.start).seconds();
  }
  ADD_FAILURE() << "no flow of " << src;
  return 0;
}

TEST(FaultKinds, PcieDowngradeSlowsBothWaysAndPausesTheSwitch) {
  const Result healthy = run("", kShift, kStar);
  const Result r = run("{kind: pcie-downgrade, where: node1.nic0, rate: 25Gbps}", kShift, kStar);
  ASSERT_TRUE(healthy.complete && r.complete) << r.incomplete_reason;
  const double base = seconds(healthy, 2);
  EXPECT_NEAR(seconds(r, 1) / base, 4, 0.05);  // out of it
  EXPECT_NEAR(seconds(r, 0) / base, 4, 0.2);   // into it
  EXPECT_NEAR(seconds(r, 2) / base, 1, 0.01);
  EXPECT_EQ(healthy.totals.pfc_pauses, 0U);
  EXPECT_GT(r.totals.pfc_pauses, 0U);
}

TEST(FaultKinds, PcieDowngradeAndASlowCableTakeTheLower) {
  // The cable is slower for a while, PCIe all along: what is not sent by then goes at half rate.
  const char* const half = "{kind: pcie-downgrade, where: node1.nic0, rate: 50Gbps}";
  const char* const quarter = "{kind: link-degrade, where: node1.nic0, rate: 25%}";
  const double at_half = seconds(run(half, kShift, kStar), 1);
  const double at_quarter = seconds(run(quarter, kShift, kStar), 1);
  const Result r = run(
      std::string(half) + ", {kind: link-degrade, where: node1.nic0, rate: 25%, " + "for: 800us}",
      kShift, kStar);
  ASSERT_TRUE(r.complete);
  EXPECT_NEAR(seconds(r, 1), 800e-6 + at_half * (1 - 800e-6 / at_quarter), 10e-6);
}

TEST(FaultKinds, NvlinkDegradeSlowsItsServer) {
  const std::string server =
      "kind: rail-optimized, nic: {rate: 100Gbps}, scale_up: {kind: nvswitch, rate: 450GBps}";
  const auto ring = [&](const std::string& faults) {
    std::string text =
        "name: nvlink\ncluster: {nodes: 1, gpus_per_node: 8}\nfabric: {topology: {" + server +
        "}}\ntraffic: [{pattern: collective, collective: all-reduce, size: 64MiB}]\n";
    if (!faults.empty()) text += "faults: [" + faults + "]\n";
    return run_scenario(load_scenario_text(text, "nvlink.yaml"));
  };
  const Result healthy = ring("");
  for (const char* where : {"node0.gpu3", "node0.nvswitch"}) {
    for (const char* at : {"before", "0ns"}) {
      const Result r = ring(std::string("{at: ") + at + ", kind: nvlink-degrade, where: " + where +
                            ", lost: 9}");
      ASSERT_TRUE(r.complete);
      EXPECT_NEAR(r.step_time.seconds() / healthy.step_time.seconds(), 2, 0.1) << where << at;
    }
  }
  EXPECT_THROW(ring("{kind: nvlink-degrade, where: node0.gpu3, lost: 18}"), UserError);
  EXPECT_THROW(ring("{kind: nvlink-degrade, where: leaf0}"), UserError);
}

TEST(FaultKinds, AnOpticIsTwoPorts) {
  const Scenario s = load_scenario_text(
      "name: optic\ncluster: {nodes: 4, gpus_per_node: 2}\n"
      "fabric: {topology: {kind: leaf-spine, leaf_radix: 8, scale_up: {kind: none}}}\n"
      "traffic: [{pattern: permutation, size: 1KB}]\n",
      "optic.yaml");
  const Topology t = build_topology(s, 0);
  const SourcePos pos{"optic.yaml", 1};
  EXPECT_EQ(select_links(t, "leaf0:optic2", pos), select_links(t, "leaf0:port[4-5]", pos));
  EXPECT_EQ(select_links(t, "leaf0:optic*", pos), select_links(t, "leaf0:port*", pos));
  EXPECT_EQ(select_links(t, "leaf0:optic2", pos).size(), 2U);
  EXPECT_THROW((void)select_links(t, "leaf0:optic9", pos), UserError);
}

}  // namespace
}  // namespace trainyard
