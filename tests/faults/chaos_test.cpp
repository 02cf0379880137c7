// SPDX-License-Identifier: MIT
// Every part of a job broken at its structural events: each run completes, fails over or aborts
// and says why; nothing hangs, nothing leaks, and the fast path does what the full run does.
#include "tools/scenario/chaos.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace trainyard {
namespace {

using Outcome = ChaosRow::Outcome;

Scenario job(int nodes, int gpus, const std::string& size, const std::string& fast_path,
             const std::string& topology = "leaf_radix: 8") {
  return load_scenario_text(
      "name: chaos\ncluster: {nodes: " + std::to_string(nodes) +
          ", gpus_per_node: " + std::to_string(gpus) +
          "}\n"
          "fabric:\n"
          "  topology: {kind: rail-optimized, nic: {rate: 400Gbps}, " +
          topology +
          ", scale_up: {kind: nvswitch, rate: 450GBps}}\n"
          "  transport: {retransmit_timeout: 60us, retry_limit: 4, nack_interval: 10us,\n"
          "              load_balancing: {convergence: 10us}}\n"
          "traffic: [{pattern: collective, collective: all-reduce, size: " +
          size +
          "}]\n"
          "collectives: {timeout: 5ms}\n"
          "simulation: {fast_path: " +
          fast_path + "}\n",
      "chaos.yaml");
}

std::string violations(const Chaos& c) {
  std::string all;
  for (const ChaosRow& r : c.rows) {
    if (r.outcome == Outcome::violation) {
      all += r.kind + " " + r.where + " at " + print_time(r.at, 9) + ": " + r.reason + "\n";
    }
  }
  return all;
}

TEST(Chaos, EveryPartAtEveryStructuralEvent) {
  ChaosOptions options;
  options.oracle = true;
  const Chaos c = run_chaos(job(4, 2, "16KiB", "exact"), options);
  EXPECT_EQ(violations(c), "");
  // 8 GPUs, 8 NICs, 4 switches in servers, 2 leaves, spines and their cables.
  std::set<std::string> kinds;
  for (const ChaosRow& r : c.rows) kinds.insert(r.kind);
  EXPECT_EQ(kinds.size(), 4U);
  EXPECT_EQ(c.rows.size(), c.parts * c.instants);
  EXPECT_GT(c.instants, 14U);  // a ring of eight in 14 steps
  for (const ChaosRow& r : c.rows) {
    if (r.kind == "gpu-stop") {
      EXPECT_EQ(r.outcome, Outcome::aborted) << r.where;
      EXPECT_NE(r.reason.find("collective timeout of 5ms"), std::string::npos) << r.reason;
    }
    // A cable between switches has others beside it, which no ring on rails needs anyway.
    if (r.kind == "link-down") {
      EXPECT_NE(r.outcome, Outcome::aborted) << r.where << r.reason;
    }
    if (r.kind == "nic-down" && r.outcome == Outcome::aborted) {
      EXPECT_NE(r.reason.find("retransmission timeouts"), std::string::npos) << r.reason;
    }
  }
  EXPECT_GT(c.count(Outcome::aborted), 0U);
}

TEST(Chaos, BackupNicsAndSecondPortsCarryOn) {
  ChaosOptions options;
  options.kinds = {"nic-down"};
  options.reaction = "backup-nic";
  options.events = 12;
  const Chaos backup = run_chaos(job(4, 2, "256KiB", "fast"), options);
  EXPECT_EQ(violations(backup), "");
  EXPECT_EQ(backup.count(Outcome::aborted), 0U);
  EXPECT_GT(backup.count(Outcome::slower), 40U);
  // Two ports on two leaves: the loss of a leaf costs, and stops nobody.
  ChaosOptions leaf;
  leaf.kinds = {"switch-down"};
  leaf.where = {"*leaf*", "*rail*"};
  leaf.events = 12;
  const Chaos dual =
      run_chaos(job(4, 2, "256KiB", "fast", "leaf_radix: 8, planes: 2, tor: dual"), leaf);
  EXPECT_EQ(violations(dual), "");
  EXPECT_EQ(dual.count(Outcome::aborted), 0U);
  EXPECT_GT(dual.count(Outcome::slower), 0U);
  // One port: it does.
  const Chaos single = run_chaos(job(4, 2, "256KiB", "fast"), leaf);
  EXPECT_EQ(violations(single), "");
  EXPECT_EQ(single.count(Outcome::aborted), single.rows.size());
}

TEST(Chaos, WhatIsOverSoonIsSurvived) {
  ChaosOptions options;
  options.duration = "100us";
  options.events = 6;
  const Chaos c = run_chaos(job(4, 2, "256KiB", "exact"), options);
  EXPECT_EQ(violations(c), "");
  EXPECT_EQ(c.count(Outcome::aborted), 0U);
}

TEST(Chaos, AJobThatIsToldEnds) {
  ChaosOptions options;
  options.events = 5;
  options.abort_after = "100ns";
  for (const char* fast_path : {"none", "exact"}) {
    const Chaos c = run_chaos(job(4, 2, "256KiB", fast_path), options);
    EXPECT_EQ(violations(c), "");
    for (const ChaosRow& r : c.rows) {
      ASSERT_EQ(r.outcome, Outcome::aborted) << r.kind << " " << r.where;
      EXPECT_NE(r.reason.find("aborted at"), std::string::npos) << r.reason;
      EXPECT_NE(r.reason.find("100ns after " + r.kind + " of " + r.where), std::string::npos);
      EXPECT_EQ(r.end - r.at, Time::ns(100)) << r.kind << " " << r.where;
    }
  }
  // Nobody is told of what is over by then, or of what comes after the end.
  options.duration = "50ns";
  EXPECT_EQ(run_chaos(job(4, 2, "256KiB", "none"), options).count(Outcome::aborted), 0U);
  options.duration.clear();
  options.abort_after = "1s";
  options.kinds = {"link-down"};
  EXPECT_EQ(run_chaos(job(4, 2, "256KiB", "none"), options).count(Outcome::aborted), 0U);
}

TEST(Chaos, ReportsAndRefusals) {
  ChaosOptions options;
  options.kinds = {"switch-down"};
  options.events = 2;
  const Chaos c = run_chaos(job(2, 2, "16KiB", "none"), options);
  const std::string text = chaos_text(c);
  EXPECT_NE(text.find("switch-down"), std::string::npos);
  EXPECT_NE(text.find("2 structural events"), std::string::npos) << text;
  const std::string csv = chaos_csv(c);
  EXPECT_EQ(static_cast<size_t>(std::count(csv.begin(), csv.end(), '\n')), c.rows.size() + 1);
  options.kinds = {"link-flap"};  // needs a count, which chaos does not give
  EXPECT_THROW(run_chaos(job(2, 2, "16KiB", "none"), options), UserError);
  options.kinds = {"link-dwn"};
  EXPECT_THROW(run_chaos(job(2, 2, "16KiB", "none"), options), UserError);
  options.kinds = {"gpu-stop"};
  options.where = {"node9.*"};
  EXPECT_THROW(run_chaos(job(2, 2, "16KiB", "none"), options), UserError);
}

// 64 GPUs: 64 of them, 64 NICs, 64 cables between switches, 20 switches.
class ChaosOf64 : public testing::TestWithParam<std::pair<const char*, size_t>> {};

TEST_P(ChaosOf64, slow_EveryPart) {
  ChaosOptions options;
  options.kinds = {GetParam().first};
  options.events = 2;
  options.oracle = true;
  const Chaos c = run_chaos(job(8, 8, "64KiB", "exact", "leaf_radix: 16"), options);
  EXPECT_EQ(violations(c), "");
  EXPECT_EQ(c.rows.size(), GetParam().second * 2);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ChaosOf64,
                         testing::Values(std::pair("gpu-stop", size_t{64}),
                                         std::pair("nic-down", size_t{64}),
                                         std::pair("link-down", size_t{64}),
                                         std::pair("switch-down", size_t{20})),
                         [](const auto& given) {
                           std::string name = given.param.first;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace trainyard
