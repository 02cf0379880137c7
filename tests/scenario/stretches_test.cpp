// SPDX-License-Identifier: MIT
// Layers that are followed as a whole leave everything as it is when they run op by op.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>

#include "tools/scenario/run.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class Stretches : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("trainyard_stretches_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result run(std::vector<std::string> settings, const std::string& stretches) {
    std::ofstream(folder_ / "s.yaml")
        << "name: layers that repeat\n"
           "cluster: {nodes: 4, device: h100-sxm, gpus_per_node: 4, nics_per_node: 4}\n"
           "fabric: {topology: {kind: rail-optimized, nic: {rate: 100Gbps}}, transport: {preset: "
           "rocev2}}\n"
           "workload:\n"
           "  model: {layers: 8, hidden: 2048, heads: 16, vocab: 2048}\n"
           "  layout: {tp: 4, pp: 2, dp: 2, zero: 1, sequence_parallel: true}\n"
           "  batch: {global: 16, micro: 1, sequence: 1024}\n"
           "  steps: 2\n"
           "simulation: {fast_path: exact}\n";
    settings.push_back("simulation.stretches=" + stretches);
    ScenarioOverrides overrides;
    overrides.settings = settings;
    return run_scenario(load_scenario((folder_ / "s.yaml").string(), overrides));
  }

  static std::vector<std::tuple<uint32_t, int64_t, int64_t, int, std::string, std::string, int64_t>>
  spans_of(const Result& r) {
    std::vector<std::tuple<uint32_t, int64_t, int64_t, int, std::string, std::string, int64_t>> out;
    for (const Span& s : r.spans) {
      out.emplace_back(s.rank, s.begin.ps(), s.end.ps(), static_cast<int>(s.kind), s.name, s.stream,
                       s.last);
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  static auto collectives_of(const Result& r) {
    std::vector<std::tuple<std::string, int64_t, int64_t, int64_t, uint32_t, std::string,
                           std::string, uint64_t, int64_t, uint64_t, double>>
        out;
    for (const CollectiveRecord& c : r.collectives) {
      out.emplace_back(c.group, c.first_arrival.ps(), c.start.ps(), c.finish.ps(), c.last_rank,
                       c.name, c.algorithm, c.transfers, c.wire_payload, c.transmissions,
                       c.busbw_gbytes_per_s);
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  void expect_equal(const Result& a, const Result& b) {
    ASSERT_TRUE(a.complete) << a.incomplete_reason;
    ASSERT_TRUE(b.complete) << b.incomplete_reason;
    EXPECT_EQ(a.fingerprint, b.fingerprint);
    EXPECT_EQ(a.step_time, b.step_time);
    ASSERT_EQ(a.rank_times.size(), b.rank_times.size());
    for (size_t r = 0; r < a.rank_times.size(); ++r) {
      const RankTimes& x = a.rank_times[r];
      const RankTimes& y = b.rank_times[r];
      EXPECT_EQ(x.finish, y.finish);
      EXPECT_EQ(x.compute, y.compute);
      EXPECT_EQ(x.exposed_comm, y.exposed_comm);
      EXPECT_EQ(x.hidden_comm, y.hidden_comm);
      EXPECT_EQ(x.wait, y.wait);
      EXPECT_EQ(x.idle, y.idle);
      EXPECT_EQ(x.exposed_of, y.exposed_of);
      EXPECT_EQ(x.hidden_of, y.hidden_of);
      EXPECT_EQ(x.wait_of, y.wait_of);
    }
    EXPECT_EQ(a.totals.transmissions, b.totals.transmissions);
    EXPECT_EQ(a.totals.payload_bytes, b.totals.payload_bytes);
    EXPECT_EQ(a.totals.ack_packets, b.totals.ack_packets);
    ASSERT_EQ(a.links.size(), b.links.size());
    // Links are listed in order of first use.
    std::vector<std::tuple<std::string, std::string, uint64_t, int64_t, int64_t, int64_t>> la, lb;
    for (size_t i = 0; i < a.links.size(); ++i) {
      const auto add = [](auto& list, const LinkRecord& l) {
        list.emplace_back(l.from, l.to, l.packets, l.bytes, l.busy.ps(), l.peak_queue_bytes);
      };
      add(la, a.links[i]);
      add(lb, b.links[i]);
    }
    std::sort(la.begin(), la.end());
    std::sort(lb.begin(), lb.end());
    EXPECT_EQ(la, lb);
    EXPECT_EQ(spans_of(a), spans_of(b));
    EXPECT_EQ(collectives_of(a), collectives_of(b));
    ASSERT_EQ(a.durations.size(), b.durations.size());
    for (size_t i = 0; i < a.durations.size(); ++i) {
      EXPECT_EQ(a.durations[i].kernel, b.durations[i].kernel);
      EXPECT_EQ(a.durations[i].count, b.durations[i].count);
      EXPECT_EQ(a.durations[i].total, b.durations[i].total);
    }
    ASSERT_EQ(a.energy.size(), b.energy.size());
    for (size_t i = 0; i < a.energy.size(); ++i) EXPECT_EQ(a.energy[i].text, b.energy[i].text);
  }

  fs::path folder_;
};

TEST_F(Stretches, AreWhatRunsOpByOp) {
  const std::vector<std::vector<std::string>> variants = {
      {},
      {"workload.recompute=full", "workload.schedule.kind=gpipe"},
      {"workload.layout.sequence_parallel=false", "workload.layout.zero=0"},
      {"simulation.fast_path=fast"},
      {"collectives.algorithm.all_gather=halving-doubling"},
  };
  for (const auto& settings : variants) {
    SCOPED_TRACE(settings.empty() ? "as it is" : settings.front());
    const Result with = run(settings, "on");
    const Result without = run(settings, "off");
    expect_equal(with, without);
    EXPECT_GT(with.ops_replayed, with.ops / 8);
    EXPECT_GT(with.fast_path->stretches, 0U);
    EXPECT_EQ(without.ops_replayed, 0U);
  }
}

TEST_F(Stretches, AreThoseOfTheOracle) {
  const std::vector<std::string> one = {"workload.steps=1", "workload.batch.global=8"};
  const Result with = run(one, "on");
  EXPECT_GT(with.ops_replayed, 0U);
  auto oracle = one;
  oracle.push_back("simulation.domains=off");
  expect_equal(with, run(oracle, "on"));
}

// One rank of a group computes longer: members come one after the other, always by the same.
TEST_F(Stretches, MembersMayComeApart) {
  const std::vector<std::string> slow = {"compute.slow=[{where: rank5, factor: 1.3}]"};
  const Result with = run(slow, "on");
  expect_equal(with, run(slow, "off"));
  EXPECT_GT(with.ops_replayed, with.ops / 3);
}

TEST_F(Stretches, NeedWhatRepeats) {
  const std::vector<std::string> jitter = {"compute.jitter={kind: lognormal, sigma: 2%}",
                                           "workload.steps=1", "workload.batch.global=4",
                                           "workload.batch.sequence=128"};
  const Result with = run(jitter, "on");
  expect_equal(with, run(jitter, "off"));
  EXPECT_EQ(with.ops_replayed, 0U);
}

// Stages of 2 GPUs share a server, so that pipeline messages cross the links of the layers: nobody
// is alone there.
TEST_F(Stretches, NeedAServerOfTheirOwn) {
  const std::vector<std::string> settings = {"workload.layout.tp=2", "workload.layout.pp=4",
                                             "workload.layout.order=tp-cp-ep-pp-dp"};
  const Result with = run(settings, "on");
  expect_equal(with, run(settings, "off"));
  EXPECT_EQ(with.ops_replayed, 0U);
}

}  // namespace
}  // namespace trainyard
