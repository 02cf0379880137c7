// SPDX-License-Identifier: MIT
// pcie-downgrade, nvlink-degrade, and the selector of an optic.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

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

TEST(FaultsByRate, AreExponentialAndTheSameEveryTime) {
  const auto faults_of = [](const std::string& where, const std::string& seed) {
    const Scenario s =
        load_scenario_text("name: rate\nseed: " + seed +
                               "\ncluster: {nodes: 8, gpus_per_node: 8}\n"
                               "fabric: {topology: {kind: rail-optimized, leaf_radix: 64}}\n"
                               "traffic: [{pattern: permutation, size: 1KB}]\n"
                               "faults: [{kind: link-down, where: '" +
                               where + "', mtbf: 100us, horizon: 10ms, for: 1us}]\n",
                           "rate.yaml");
    const Topology t = build_topology(s, 0);
    return build_faults(s, t, packet_config(s), nullptr).records();
  };
  const auto all = faults_of("node*.nic*", "1");
  // 64 cables, 100 failures each on the mean: 6,400 +- 80.
  EXPECT_NEAR(static_cast<double>(all.size()), 6400, 320);
  std::map<std::string, std::vector<Time>> by_part;
  for (const FaultRecord& f : all) by_part[f.component].push_back(f.at);
  EXPECT_EQ(by_part.size(), 64U);
  size_t gaps = 0;
  size_t long_ones = 0;
  for (const auto& [part, times] : by_part) {
    for (size_t i = 1; i < times.size(); ++i) {
      ++gaps;
      long_ones += times[i] - times[i - 1] > Time::us(100) ? 1 : 0;
    }
  }
  // exp(-1) of the gaps are longer than their mean.
  EXPECT_NEAR(static_cast<double>(long_ones) / static_cast<double>(gaps), 0.3679, 0.03);
  // A part fails when it does, whoever else is asked for; another seed is another life.
  const auto one = faults_of("node3.nic2", "1");
  ASSERT_FALSE(one.empty());
  std::vector<Time> alone;
  for (const FaultRecord& f : one) alone.push_back(f.at);
  EXPECT_EQ(by_part.at(one[0].component), alone);
  const auto other = faults_of("node3.nic2", "2");
  EXPECT_TRUE(other.empty() || other[0].at != one[0].at);
}

TEST(FaultsByRate, AServerIsItsGpus) {
  const Scenario s = load_scenario_text(
      "name: server\ncluster: {nodes: 2, gpus_per_node: 4}\n"
      "traffic: [{pattern: collective, collective: all-reduce, size: 1KB}]\n"
      "faults: [{kind: gpu-stop, where: node1, mtbf: 100us, horizon: 1ms, for: 1us}]\n",
      "server.yaml");
  const Topology t = build_topology(s, 0);
  std::set<std::string> names;
  for (const FaultPart& part :
       fault_parts(FaultKind::Parts::gpus, t, "node1", SourcePos{"server.yaml", 1})) {
    names.insert(part.where);
  }
  EXPECT_EQ(names, (std::set<std::string>{"node1.gpu0", "node1.gpu1", "node1.gpu2", "node1.gpu3"}));
  EXPECT_TRUE(run_scenario(s).complete);
}

TEST(FaultsByRate, ARiskGroupFailsAsOne) {
  const Scenario s = load_scenario_text(
      "name: group\ncluster: {nodes: 4, gpus_per_node: 2}\n"
      "fabric:\n  topology: {kind: leaf-spine, leaf_radix: 8}\n"
      "  risk_groups: {feed1: [node0, node1]}\n"
      "traffic: [{pattern: permutation, size: 1KB}]\n"
      "faults: [{kind: link-down, where: 'group:feed1', mtbf: 100us, horizon: 5ms, for: 1us}]\n",
      "group.yaml");
  const Topology t = build_topology(s, 0);
  const StepFaults faults = build_faults(s, t, packet_config(s), nullptr);
  EXPECT_NEAR(static_cast<double>(faults.records().size()), 50, 25);
  std::map<Time, size_t> together;
  for (const FabricChange& c : faults.changes()) {
    if (c.kind == FabricChange::Kind::link_down) ++together[c.at];
  }
  EXPECT_EQ(together.size(), faults.records().size());
  // Two GPUs in each of two servers, a NIC and a scale-up cable each.
  for (const auto& [at, cables] : together) EXPECT_EQ(cables, 8U) << print_time(at);
}

TEST(FaultsByRate, WhatIsMissingIsSaid) {
  const auto refusal = [](const std::string& keys) {
    try {
      run("{kind: link-down, where: node1.nic0, " + keys + "}", kShift, kStar);
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(refusal("mtbf: 1ms").find("mtbf needs a horizon"), std::string::npos);
  EXPECT_NE(refusal("horizon: 1ms").find("give mtbf"), std::string::npos);
  EXPECT_NE(refusal("at: before, mtbf: 1ms, horizon: 2ms").find("has no mtbf"), std::string::npos);
  EXPECT_NE(refusal("mtbf: 1ns, horizon: 1s").find("more than 100000"), std::string::npos);
}

}  // namespace
}  // namespace trainyard
