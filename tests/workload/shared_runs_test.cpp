// SPDX-License-Identifier: MIT
// Public traces run to their end over packets, and deliver what their own sizes say.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "chakra/reader.h"
#include "sim/errors.h"
#include "tests/chakra/chakra_test_util.h"
#include "tests/workload/on_rails.h"
#include "workload/chakra_importer.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using chakra::NodeType;
using test::OnRails;

/// Payload that all ranks of a set send, from the sizes in the trace alone (formats 1.8).
struct Expected {
  int64_t total = 0;
  std::vector<double> of_rank;    ///< sent by each rank
  std::vector<int64_t> messages;  ///< operations of each rank that send
};

std::vector<uint32_t> members_of(const chakra::TraceSet& set, const chakra::Node& node) {
  std::string name = node.pg_name.value_or("");
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (const auto& g : set.groups) {
      if (g.name == name && !g.ranks.empty()) return g.ranks;
    }
    name = name.substr(0, name.find('.'));  // "1.0" is "1"
  }
  std::vector<uint32_t> all(set.ranks.size());
  for (uint32_t r = 0; r < all.size(); ++r) all[r] = r;
  return all;
}

Expected expected_payload(const chakra::TraceSet& set, int64_t element) {
  Expected e;
  e.of_rank.resize(set.ranks.size());
  e.messages.resize(set.ranks.size());
  for (uint32_t r = 0; r < set.ranks.size(); ++r) {
    for (const auto& node : set.ranks[r].nodes) {
      if (node.type == NodeType::comm_send && node.comm_dst != static_cast<int64_t>(r)) {
        const int64_t bytes = *node.comm_size * element;
        e.total += bytes;
        e.of_rank[r] += static_cast<double>(bytes);
        ++e.messages[r];
      }
      if (node.type != NodeType::comm_coll || !node.comm_type) continue;
      const auto members = members_of(set, node);
      const auto n = static_cast<int64_t>(members.size());
      const int64_t bytes = *node.comm_size * element;
      int64_t group_bytes = 0;  // sent by all members together
      switch (static_cast<CollectiveKind>(*node.comm_type)) {
        case CollectiveKind::all_reduce:
          group_bytes = 2 * (n - 1) * bytes;
          break;
        case CollectiveKind::all_gather:
          group_bytes = n * (n - 1) * bytes;
          break;
        case CollectiveKind::reduce_scatter:
        case CollectiveKind::all_to_all:
          group_bytes = (n - 1) * bytes;
          break;
        default:
          ADD_FAILURE() << "collective " << *node.comm_type << " has no closed form here";
      }
      if (members[0] == r) e.total += group_bytes;  // once per group
      e.of_rank[r] += static_cast<double>(group_bytes) / static_cast<double>(n);
      ++e.messages[r];
    }
  }
  return e;
}

class SharedRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    shared_ = test::shared_folder();
    if (shared_.empty()) {
      GTEST_SKIP() << "shared/traces not found: runs of public traces and their payload unproven";
    }
  }

  /// Runs a set and compares what arrived with the sizes in the trace.
  void run(const std::string& where, const std::string& compute, uint32_t gpus_per_node,
           int64_t element) {
    SCOPED_TRACE(where);
    const chakra::TraceSet set = chakra::read_set(shared_ + "/traces/" + where);
    const ChakraImport import = import_chakra(set, where, {});
    ASSERT_EQ(element, import.element_bytes);
    OnRails sim(import.job, compute, gpus_per_node);
    sim.run();
    uint64_t ops = 0;
    for (const auto& p : import.job.ranks) ops += p.graph->ops.size();
    EXPECT_EQ(ops, sim.timeline.ops_done());

    const Expected expected = expected_payload(set, element);
    EXPECT_EQ(expected.total, sim.fabric.totals().payload_bytes);
    std::vector<int64_t> sent(set.ranks.size());
    for (const auto& t : sim.fabric.transfers()) sent[t.src] += t.bytes;
    for (uint32_t r = 0; r < set.ranks.size(); ++r) {
      // Within one packet per operation.
      EXPECT_NEAR(expected.of_rank[r], static_cast<double>(sent[r]),
                  4096.0 * static_cast<double>(expected.messages[r]))
          << "rank " << r;
      // No rank sends faster than its scale-up and NIC ports together: 3600 + 400 Gb/s.
      EXPECT_GE(sim.timeline.end().seconds(), static_cast<double>(sent[r]) / 500e9) << "rank " << r;
    }
    Time compute_most;
    for (const RankTimes& t : sim.timeline.rank_times()) {
      compute_most = std::max(compute_most, t.compute);
    }
    EXPECT_GE(sim.timeline.end(), compute_most);
    for (const auto& c : sim.timeline.collectives()) {
      EXPECT_GE(c.finish, c.start);
      EXPECT_GE(c.start, c.first_arrival);
      if (c.bytes > 0 && c.ranks > 1) {
        EXPECT_GT(c.finish, c.start) << c.name;
      }
    }
    end_ = sim.timeline.end();
    collectives_ = sim.timeline.collectives().size();
  }

  std::string shared_;
  Time end_;
  size_t collectives_ = 0;
};

TEST_F(SharedRuns, AstraSimMicrobenchmarks) {
  int sets = 0;
  for (const auto& kind : fs::directory_iterator(shared_ + "/traces/astra-sim/microbenchmarks")) {
    std::map<uint32_t, Time> ends;
    for (const auto& set : fs::directory_iterator(kind.path())) {
      const std::string name =
          kind.path().filename().string() + "/" + set.path().filename().string();
      // 8 GPUs a server: 16 ranks are two servers, 4 ranks half of one.
      run("astra-sim/microbenchmarks/" + name, "trace", 8, 1);
      EXPECT_EQ(1U, collectives_) << name;
      // One rank a server, everything over its one 400 Gb/s NIC.
      run("astra-sim/microbenchmarks/" + name, "trace", 1, 1);
      const double sent =
          static_cast<double>(1 << 20) * (name.find("all_gather") == 0 ? 3.0 : 0.75);
      EXPECT_GE(end_.seconds(), sent / 50e9) << name;  // at least 4 ranks
      ++sets;
    }
  }
  EXPECT_EQ(12, sets);
}

TEST_F(SharedRuns, StageLlamaOn8Ranks) {
  run("stage/llama_dp2tp2pp2", "roofline", 8, 2);
  run("stage/llama_dp2tp2pp2", "roofline", 2, 2);
  // 46 collectives a rank, groups of two.
  EXPECT_EQ(46U * 8 / 2, collectives_);
}

TEST_F(SharedRuns, PytorchDlrmOn8Ranks) {
  run("chakra/pytorch_dlrm_v100x8", "trace", 8, 1);
  EXPECT_EQ(8U, collectives_);
}

TEST_F(SharedRuns, slow_StageLlamaOn64Ranks) {
  run("stage/llama_dp4tp4pp4", "roofline", 8, 2);
}

// What the validator lets through must run to its end.
TEST_F(SharedRuns, TracesThatAreOnlyWarnedAboutRun) {
  const std::string folder = shared_ + "/traces/invalid";
  int ran = 0;
  for (const auto& row : chakra::test::read_csv(folder + "/expected.csv")) {
    const std::string& name = row.at("case");
    if (row.at("expected") == "error" || !fs::is_directory(folder + "/" + name)) continue;
    SCOPED_TRACE(name + ": " + row.at("defect"));
    const ChakraImport import = import_chakra(chakra::read_set(folder + "/" + name), name, {});
    OnRails sim(import.job, "trace", 2);
    EXPECT_NO_THROW(sim.run());
    ++ran;
  }
  EXPECT_GE(ran, 15);
}

}  // namespace
}  // namespace trainyard
