// SPDX-License-Identifier: MIT
// Data sets and checkpoints, from the scenario file to the result.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "tools/report/analysis.h"
#include "tools/report/report.h"
#include "tools/scenario/run.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class StorageScenario : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("trainyard_storage_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// `workload`: more keys of the workload; `rest`: more blocks.
  Scenario load(const std::string& workload, const std::string& rest = {}, int nodes = 1) {
    const fs::path file = folder_ / "s.yaml";
    std::ofstream(file) << "cluster: {nodes: " << nodes << "}\n"
                        << "workload:\n"
                           "  model: {layers: 4, hidden: 1024, heads: 16, vocab: 8192}\n"
                           "  layout: {tp: 2, dp: 4, zero: 1}\n"
                           "  batch: {global: 8, sequence: 1024}\n"
                           "  steps: 2\n"
                        << workload << rest
                        << (rest.find("simulation:") == std::string::npos
                                ? "simulation: {engine: flow}\n"
                                : "");
    return load_scenario(file.string());
  }
  Result run(const std::string& workload, const std::string& rest = {}, int nodes = 1) {
    Result r = run_scenario(load(workload, rest, nodes));
    EXPECT_TRUE(r.complete) << r.incomplete_reason;
    for (const RankTimes& t : r.rank_times) {
      EXPECT_EQ(r.step_time, report::sum_of_parts(t)) << "rank " << t.rank;
    }
    return r;
  }
  std::string problem(const std::string& workload, const std::string& rest = {}) {
    try {
      load(workload, rest);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  }
  static double figure(const Result& r, const std::string& key) {
    for (const auto& f : r.training) {
      if (f.key == key) return f.value;
    }
    ADD_FAILURE() << "no figure " << key;
    return 0;
  }
  fs::path folder_;
};

TEST_F(StorageScenario, ASynchronousCheckpointStopsTraining) {
  const Result without = run("");
  const Result with = run("  checkpoint: {every: 1}\n");
  // 8 ranks write all parameters and their state, 14 bytes each, once.
  const double bytes = figure(with, "checkpoint_write_bytes") / 2;
  const Training t = *load("").training;
  int64_t stage = 0;
  for (int64_t u = 0; u < t.units(); ++u) stage += t.dense_on_rank(u);
  EXPECT_NEAR(14.0 * static_cast<double>(2 * stage), bytes, 64);
  // Copy at 25 GB/s per GPU, then 40 GB/s at the servers, 50 GB/s at the port.
  const double copy = bytes / 8 / 25e9;
  const double write = bytes / 40e9;
  const double more = (with.step_time - without.step_time).seconds();
  EXPECT_GT(more, 2 * (copy + write) * 0.98);
  EXPECT_LT(more, 2 * (copy + write) * 1.6);
  for (const RankTimes& r : with.rank_times) {
    EXPECT_NEAR(more, r.storage.seconds() + (r.wait + r.idle).seconds(), more * 0.2);
  }
  EXPECT_GT(figure(with, "storage_exposed_ratio"), 0.1);
}

TEST_F(StorageScenario, AnAsynchronousOneStopsItForTheCopyOrUntilTheOneBeforeIsWritten) {
  const double none = run("").step_time.seconds();
  const double sync = run("  checkpoint: {every: 1}\n").step_time.seconds();
  const Result slow = run("  checkpoint: {every: 1, kind: async}\n", "storage: {servers: 1}\n");
  const Result fast = run("  checkpoint: {every: 1, kind: async}\n",
                          "storage: {servers: 200, client: 100000GBps, write_rate: 10000GBps}\n");
  const double bytes = figure(fast, "checkpoint_write_bytes") / 2;
  const double copies = 2 * bytes / 8 / 25e9;
  EXPECT_NEAR(none + copies, fast.step_time.seconds(), 0.05 * copies);
  EXPECT_LT(fast.step_time.seconds(), sync);
  // One server needs longer for a checkpoint than a step takes: the second copy waits for the
  // first write; the second write ends no step.
  EXPECT_GT(slow.step_time.seconds(), bytes / 2.5e9);
  EXPECT_LT(slow.step_time.seconds(), 1.5 * bytes / 2.5e9 + none);
  EXPECT_GT(figure(slow, "storage_exposed_ratio"), 0.5);
}

TEST_F(StorageScenario, OneWriterTakesLongerThanAll) {
  const Result all = run("  checkpoint: {every: 2}\n");
  const Result first = run("  checkpoint: {every: 2, writers: first}\n");
  EXPECT_EQ(8, figure(all, "checkpoint_write_requests"));
  EXPECT_EQ(2, figure(first, "checkpoint_write_requests"));
  EXPECT_NEAR(figure(all, "checkpoint_write_bytes"), figure(first, "checkpoint_write_bytes"), 64);
  EXPECT_GT(first.step_time, all.step_time);
}

TEST_F(StorageScenario, ALoadSaysWhenTheJobIsReady) {
  const Result r = run("  checkpoint: {load: true}\n");
  // Zero 1: all parameters, a quarter of their state: 2 + 12/4 bytes each.
  const Training t = *load("").training;
  int64_t stage = 0;
  for (int64_t u = 0; u < t.units(); ++u) stage += t.dense_on_rank(u);
  const double bytes = figure(r, "checkpoint_load_bytes");
  EXPECT_NEAR(8.0 * 5.0 * static_cast<double>(stage), bytes, 64);
  const double ready = figure(r, "time_to_ready_s");
  EXPECT_GT(ready, bytes / 50e9);  // the port of the node
  EXPECT_LT(ready, bytes / 50e9 * 1.25);
  EXPECT_NE(std::string::npos, summary_text(r).find("time to ready"));
}

TEST_F(StorageScenario, DataIsReadAheadUnlessStorageIsTooSlow) {
  const Result without = run("");
  const Result with = run("  dataset: {token_bytes: 4B}\n");
  // The first rank of each pair reads 4 bytes of 1024 tokens, twice a step.
  EXPECT_EQ(4 * 2 * 2, figure(with, "dataset_read_requests"));
  EXPECT_EQ(4 * 2 * 2 * 4096, figure(with, "dataset_read_bytes"));
  EXPECT_LT(with.step_time.seconds(), 1.02 * without.step_time.seconds());
  const Result all = run("  dataset: {token_bytes: 4B, readers: all}\n");
  EXPECT_EQ(8 * 2 * 2, figure(all, "dataset_read_requests"));
  // 1 MiB per token: 1 GiB per micro-batch and reader.
  const Result slow = run("  dataset: {token_bytes: 1MiB}\n");
  const double bytes = figure(slow, "dataset_read_bytes");
  EXPECT_GT(slow.step_time.seconds(), bytes / 50e9);
  EXPECT_GT(figure(slow, "storage_exposed_ratio"), 0.3);
}

TEST_F(StorageScenario, OnTheFabricCheckpointsMeetTraining) {
  const std::string shared = "storage: {network: shared, where: node1, rate: 9.4GBps}\n";
  for (const char* engine : {"flow", "packet"}) {
    const std::string rest = shared + "simulation: {engine: " + std::string(engine) + "}\n";
    const Result r = run("  checkpoint: {every: 2}\n", rest, 2);
    // What left node 0 is the checkpoint: its job is inside of the node.
    double up = 0;
    for (const LinkRecord& l : r.links) {
      if (l.from.rfind("node0.gpu", 0) == 0 && l.to.rfind("rail", 0) == 0) {
        up += static_cast<double>(l.data_bytes);
      }
    }
    EXPECT_GE(up, figure(r, "checkpoint_write_bytes")) << engine;
    EXPECT_LT(up, 1.02 * figure(r, "checkpoint_write_bytes")) << engine;
  }
}

TEST_F(StorageScenario, TheFastPathGivesTheSame) {
  const std::string keys =
      "  checkpoint: {every: 1, kind: async, load: true}\n"
      "  dataset: {token_bytes: 64B}\n";
  const Result plain = run(keys, "simulation: {fast_path: none}\n");
  const Result again = run(keys, "simulation: {fast_path: none}\n");
  const Result fast = run(keys, "simulation: {fast_path: exact}\n");
  EXPECT_EQ(plain.fingerprint, again.fingerprint);
  EXPECT_NEAR(plain.step_time.seconds(), fast.step_time.seconds(),
              0.001 * plain.step_time.seconds());
}

TEST_F(StorageScenario, WhatDoesNotFitIsRefused) {
  EXPECT_NE(std::string::npos, problem("", "storage: {servers: 4}\n").find("no use for it"));
  EXPECT_NE(std::string::npos, problem("  checkpoint: {every: 1}\n", "storage: {network: shared}\n")
                                   .find("where: node[16-17]"));
  EXPECT_NE(
      std::string::npos,
      problem("  checkpoint: {every: 1}\n", "storage: {where: node1}\n").find("network: shared"));
  const Scenario s =
      load("  checkpoint: {every: 1}\n", "storage: {network: shared, where: node0.gpu3}\n");
  try {
    run_scenario(s);
    FAIL() << "accepted";
  } catch (const UserError& e) {
    EXPECT_NE(std::string::npos, std::string(e.what()).find("rank 3")) << e.what();
  }
}

}  // namespace
}  // namespace trainyard
