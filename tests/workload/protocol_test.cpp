// SPDX-License-Identifier: MIT
#include "workload/protocol.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "sim/registry.h"
#include "tools/scenario/run.h"
#include "workload/collective_params.h"

namespace trainyard {
namespace {

CollectiveRequest on_servers(std::vector<uint32_t>& members, uint32_t servers, uint32_t gpus,
                             int64_t bytes = 1024) {
  members.resize(static_cast<size_t>(servers) * gpus);
  std::iota(members.begin(), members.end(), 0U);
  CollectiveRequest r;
  r.bytes = bytes;
  r.members = &members;
  auto node = std::make_shared<std::vector<uint32_t>>();
  for (uint32_t m = 0; m < members.size(); ++m) node->push_back(m / gpus);
  r.placement.server = node;
  return r;
}

double least_us(uint32_t servers, uint32_t gpus) {
  std::vector<uint32_t> members;
  const CollectiveRequest r = on_servers(members, servers, gpus);
  return std::min(protocol_latency(Protocol::ll, "ring", r),
                  protocol_latency(Protocol::ll, "tree", r))
      .micros();
}

// nccl-measured 2.3: min(Ring LL, Tree LL) beside measured all-reduces of up to 1 KiB on H100.
TEST(Protocol, SmallAllReducesOnInfiniBand) {
  const struct {
    uint32_t servers, gpus;
    double predicted, measured, tolerance;
  } rows[] = {{1, 8, 15.0, 15.8, 0.06},
              {2, 8, 25.2, 25.6, 0.02},
              {4, 8, 35.2, 35.6, 0.02},
              {16, 8, 55.2, 62.4, 0.13},
              {16, 4, 50.4, 57.3, 0.14}};
  for (const auto& row : rows) {
    const double us = least_us(row.servers, row.gpus);
    EXPECT_NEAR(row.predicted, us, 0.05) << row.servers << " x " << row.gpus;
    EXPECT_NEAR(1, us / row.measured, row.tolerance);
  }
  // A ring that is forced: 37.0 us predicted with older constants for 2 x 8, here 33.0.
  std::vector<uint32_t> members;
  const CollectiveRequest r = on_servers(members, 2, 8);
  EXPECT_NEAR(6.6 + 26 * 0.6 + 4 * 2.7, protocol_latency(Protocol::ll, "ring", r).micros(), 1e-6);
  EXPECT_EQ(Time(), protocol_latency(Protocol::ll, "halving-doubling", r));
}

// A:F49: LL moves 4 of 8 bytes, LL128 120 of 128, Simple all.
TEST(Protocol, PayloadPerByteOnTheWire) {
  const int64_t payload = 120 * 4096;
  EXPECT_DOUBLE_EQ(0.5, static_cast<double>(payload) /
                            static_cast<double>(protocol_bytes(Protocol::ll, payload)));
  EXPECT_DOUBLE_EQ(0.9375, static_cast<double>(payload) /
                               static_cast<double>(protocol_bytes(Protocol::ll128, payload)));
  EXPECT_EQ(payload, protocol_bytes(Protocol::simple, payload));
  EXPECT_EQ(8, protocol_bytes(Protocol::ll, 1));
  EXPECT_EQ(9, protocol_bytes(Protocol::ll128, 1));
}

Result run(const std::string& nodes, const std::string& size, const std::string& collectives,
           const std::string& simulation = "engine: flow") {
  namespace fs = std::filesystem;
  const fs::path file =
      fs::temp_directory_path() / ("protocol_" + std::to_string(getpid()) + ".yaml");
  std::ofstream(file) << "cluster: {nodes: " << nodes
                      << "}\ntraffic: [{pattern: collective, collective: all-reduce, size: " << size
                      << "}]\ncollectives: {" << collectives << "}\nsimulation: {" << simulation
                      << "}\n";
  Result r = run_scenario(load_scenario(file.string()));
  fs::remove(file);
  EXPECT_TRUE(r.complete) << r.incomplete_reason;
  return r;
}

TEST(Protocol, ACallTakesItsSoftwareTimeOrThatOfItsMessages) {
  const Result small = run("2", "1KiB", "protocol: tuned");
  ASSERT_EQ(1U, small.collectives.size());
  EXPECT_EQ("tree LL", small.collectives[0].algorithm);
  EXPECT_EQ(Time::ns(25'200), small.collectives[0].finish - small.collectives[0].start);
  const Result one = run("1", "1KiB", "protocol: tuned");
  EXPECT_EQ("ring LL", one.collectives[0].algorithm);
  EXPECT_EQ(Time::ns(15'000), one.collectives[0].finish - one.collectives[0].start);
  // Long messages hide it: as without protocols.
  const Result large = run("2", "256MiB", "algorithm: ring, protocol: simple");
  const Result bare = run("2", "256MiB", "algorithm: ring");
  EXPECT_EQ("ring Simple", large.collectives[0].algorithm);
  EXPECT_EQ(bare.step_time, large.step_time);
  // Bytes on the wire: twice as many with LL.
  const Result ll = run("2", "256MiB", "algorithm: ring, protocol: ll");
  EXPECT_EQ(2 * bare.collectives[0].wire_payload, ll.collectives[0].wire_payload);
  EXPECT_NEAR(2, ll.step_time.seconds() / bare.step_time.seconds(), 0.02);
}

// A:N110 to A:N112: LL or LL128 below 64 KiB between servers, Simple at a gigabyte; LL128 close to
// Simple inside a server; trees for small and rings for large messages.
TEST(Protocol, TheChoiceFollowsTheSize) {
  const auto chosen = [](const char* nodes, const char* size) {
    return run(nodes, size, "protocol: tuned", "engine: analytic").collectives[0].algorithm;
  };
  EXPECT_EQ("tree LL", chosen("4", "16KiB"));
  EXPECT_EQ("ring Simple", chosen("4", "8GiB"));
  EXPECT_EQ("tree LL128", chosen("4", "4MiB"));
  std::set<std::string> seen;
  for (const char* size : {"1KiB", "64KiB", "1MiB", "16MiB", "256MiB", "4GiB"}) {
    seen.insert(chosen("8", size));
  }
  EXPECT_GE(seen.size(), 3U);
  const auto time = [](const char* size, const char* protocol) {
    return run("2", size, std::string("algorithm: ring, protocol: ") + protocol).step_time;
  };
  EXPECT_LT(time("16KiB", "ll"), time("16KiB", "simple"));
  EXPECT_LT(time("16KiB", "ll128"), time("16KiB", "simple"));
  EXPECT_GT(time("256MiB", "ll"), time("256MiB", "simple"));
  EXPECT_LT(time("256MiB", "ll128").seconds(), 1.08 * time("256MiB", "simple").seconds());
}

TEST(Protocol, TheFastPathGivesTheSame) {
  for (const char* size : {"4KiB", "4MiB"}) {
    const Result plain = run("2", size, "protocol: tuned", "engine: packet");
    const Result fast = run("2", size, "protocol: tuned", "engine: packet, fast_path: exact");
    EXPECT_EQ(plain.collectives[0].algorithm, fast.collectives[0].algorithm);
    EXPECT_NEAR(plain.step_time.seconds(), fast.step_time.seconds(),
                0.001 * plain.step_time.seconds());
  }
}

}  // namespace
}  // namespace trainyard
