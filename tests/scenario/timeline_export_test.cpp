// SPDX-License-Identifier: MIT
// The simulated timeline, exported as Chakra, runs again as it ran.
#include "tools/scenario/timeline_export.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "tools/scenario/run.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

TEST(TimelineExport, RunsAgainToTheMicrosecondOfEveryOp) {
  const fs::path folder =
      fs::temp_directory_path() / ("trainyard_timeline_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const std::string fabric =
      "cluster: {nodes: 2, gpus_per_node: 2}\n"
      "fabric: {topology: {kind: rail-optimized, nic: {rate: 100Gbps}}, transport: {preset: "
      "rocev2}}\n"
      "simulation: {engine: flow}\n";
  std::ofstream(folder / "model.yaml")
      << fabric
      << "workload: {model: {layers: 2, hidden: 1024, heads: 8, vocab: 4096}, layout: {tp: 2, dp: "
         "2}, batch: {global: 4, sequence: 512}}\n"
      << "output: {chakra: " << (folder / "out" / "t").string() << "}\n";
  std::ofstream(folder / "again.yaml")
      << fabric << "workload: {chakra: out/t, launch_order: free}\ncompute: {model: trace}\n";
  const Result first = run_scenario(load_scenario((folder / "model.yaml").string()));
  ASSERT_TRUE(first.complete) << first.incomplete_reason;
  const Result again = run_scenario(load_scenario((folder / "again.yaml").string()));
  ASSERT_TRUE(again.complete) << again.incomplete_reason;
  EXPECT_EQ("trace", again.compute_source);
  EXPECT_EQ(first.totals.payload_bytes, again.totals.payload_bytes);
  ASSERT_EQ(first.collectives.size(), again.collectives.size());
  for (size_t i = 0; i < first.collectives.size(); ++i) {
    EXPECT_EQ(first.collectives[i].bytes, again.collectives[i].bytes);
    EXPECT_EQ(first.collectives[i].kind, again.collectives[i].kind);
  }
  // Every compute op is off by half a microsecond at most.
  uint64_t ops = 0;
  for (const DurationRow& d : first.durations) ops += d.rank == 0 ? d.count : 0;
  for (size_t r = 0; r < first.rank_times.size(); ++r) {
    EXPECT_NEAR(first.rank_times[r].compute.seconds(), again.rank_times[r].compute.seconds(),
                0.5e-6 * static_cast<double>(ops));
  }
  EXPECT_NEAR(first.step_time.seconds(), again.step_time.seconds(),
              0.5e-6 * static_cast<double>(ops));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace trainyard
