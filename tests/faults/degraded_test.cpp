// SPDX-License-Identifier: MIT
// Step times with something broken all along: simulated once, kept, and used again only when all is
// the same.
#include "tools/scenario/degraded.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class Degraded : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("trainyard_degraded_" + std::to_string(getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static Scenario job(const std::string& rest = {}, const std::string& batch = "8") {
    return load_scenario_text(
        "name: degraded\ncluster: {nodes: 4, gpus_per_node: 2}\n"
        "fabric:\n"
        "  topology: {kind: rail-optimized, planes: 2, nic: {rate: 200Gbps}, leaf_radix: 4}\n"
        "workload:\n"
        "  model: {layers: 2, hidden: 512, heads: 8, vocab: 4096}\n"
        "  layout: {tp: 2, dp: 4}\n"
        "  batch: {global: " +
            batch +
            ", sequence: 512}\n"
            "simulation: {engine: flow}\n" +
            rest,
        "degraded.yaml");
  }
  [[nodiscard]] size_t files() const {
    if (!fs::exists(folder_)) return 0;
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

const DegradedStep& row(const DegradedTable& t, const std::string& name) {
  for (const DegradedStep& r : t.rows) {
    if (r.name == name) return r;
  }
  ADD_FAILURE() << "no row " << name;
  return t.rows.at(0);
}

TEST_F(Degraded, EveryClassOfParts) {
  const DegradedTable t = degraded_table(job(), "");
  EXPECT_EQ(files(), 0U);
  EXPECT_EQ(t.rows.at(0).name, "healthy");
  // The flow engine has no backup NICs: an answer, and it says why.
  EXPECT_NE(row(t, "a NIC, its neighbour as backup").reason.find("engine flow"), std::string::npos);
  for (const char* name :
       {"one port of a NIC", "a leaf", "a cable between leaf and spine", "a spine", "a plane"}) {
    EXPECT_EQ(row(t, name).reason, "") << name;
    EXPECT_GT(row(t, name).step, Time()) << name;
  }
  EXPECT_NE(degraded_text(t).find("stops"), std::string::npos);
  const auto doc = nlohmann::json::parse(degraded_json(t));
  EXPECT_EQ(doc["states"].size(), t.rows.size());
}

TEST_F(Degraded, ResultsAreKeptWhileAllIsTheSame) {
  const Scenario with =
      job("faults: [{at: 1us, kind: link-degrade, where: node1.nic0, rate: 10%}]\n");
  const DegradedTable first = degraded_table(with, folder_.string());
  ASSERT_EQ(first.rows.size(), 2U);
  EXPECT_GT(first.rows[1].step, first.rows[0].step);
  EXPECT_FALSE(first.rows[0].cached || first.rows[1].cached);
  EXPECT_EQ(files(), 2U);
  const DegradedTable again = degraded_table(with, folder_.string());
  EXPECT_TRUE(again.rows[0].cached && again.rows[1].cached);
  EXPECT_EQ(again.rows[1].step, first.rows[1].step);
  EXPECT_EQ(again.rows[0].step, run_scenario(job()).step_time);
  // Another batch, another share: other keys. The healthy step is the same for all faults.
  const DegradedTable other = degraded_table(
      job("faults: [{kind: link-degrade, where: node1.nic0, rate: 20%}]\n"), folder_.string());
  EXPECT_TRUE(other.rows[0].cached);
  EXPECT_FALSE(other.rows[1].cached);
  EXPECT_FALSE(degraded_table(job("", "16"), folder_.string()).rows[0].cached);
  // A name changes nothing.
  Scenario renamed = with;
  for (auto& [key, value] : renamed.settings) {
    if (key == "name") value = "another";
  }
  EXPECT_TRUE(degraded_table(renamed, folder_.string()).rows[1].cached);
}

TEST_F(Degraded, ADamagedFileIsSimulatedAgain) {
  const Scenario with = job("faults: [{kind: link-degrade, where: node1.nic0, rate: 10%}]\n");
  const DegradedTable first = degraded_table(with, folder_.string());
  for (const auto& e : fs::directory_iterator(folder_)) {
    std::ofstream(e.path(), std::ios::trunc) << "{\"step_time_ps\": 1, \"key\": \"of another\"}";
  }
  const DegradedTable again = degraded_table(with, folder_.string());
  EXPECT_FALSE(again.rows[0].cached || again.rows[1].cached);
  EXPECT_EQ(again.rows[1].step, first.rows[1].step);
}

TEST_F(Degraded, WhatStopsTheJobIsKeptToo) {
  const Scenario cut = job("faults: [{kind: nic-down, where: node1.nic0}]\n");
  for (const bool cached : {false, true}) {
    const DegradedTable t = degraded_table(cut, folder_.string());
    EXPECT_NE(t.rows.at(1).reason.find("no path"), std::string::npos) << t.rows[1].reason;
    EXPECT_EQ(t.rows[1].cached, cached);
  }
}

}  // namespace
}  // namespace trainyard
