// SPDX-License-Identifier: MIT
// A generated trace of data parallelism 2, expanded to 64, is the trace generated for 64.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "chakra/expand.h"
#include "chakra/reader.h"
#include "tests/chakra/chakra_test_util.h"
#include "tests/workload/training_test_util.h"
#include "workload/chakra_exporter.h"

namespace trainyard {
namespace {

using test::Settings;
using test::training;
using test::with;

/// What a rank communicates: name, kind, partners and size of every call.
using Calls = std::multiset<std::tuple<std::string, int64_t, std::vector<uint32_t>, int64_t>>;

Calls calls_of(const chakra::TraceSet& set, uint32_t rank) {
  Calls out;
  for (const chakra::Node& n : set.ranks[rank].nodes) {
    if (n.type == chakra::NodeType::comm_send || n.type == chakra::NodeType::comm_recv) {
      const bool send = n.type == chakra::NodeType::comm_send;
      out.insert({n.name,
                  send ? -1 : -2,
                  {static_cast<uint32_t>(send ? *n.comm_dst : *n.comm_src)},
                  *n.comm_size});
    }
    if (n.type != chakra::NodeType::comm_coll) continue;
    const auto group =
        std::find_if(set.groups.begin(), set.groups.end(), [&](const chakra::ProcessGroup& g) {
          return g.name == *n.pg_name &&
                 std::find(g.ranks.begin(), g.ranks.end(), rank) != g.ranks.end();
        });
    if (group == set.groups.end()) {
      ADD_FAILURE() << "rank " << rank << " calls on group " << *n.pg_name
                    << " without being in it";
      continue;
    }
    out.insert({n.name, *n.comm_type, group->ranks, *n.comm_size});
  }
  return out;
}

class ExpandGenerated : public chakra::test::ScratchTest {
 protected:
  chakra::TraceSet exported(const ModelCard& card, const Settings& settings, int64_t dp,
                            int64_t sequences) {
    const std::string name = "dp" + std::to_string(dp);
    const Settings all = with(settings, {{"layout.dp", std::to_string(dp)},
                                         {"batch.global", std::to_string(sequences * dp)},
                                         // copies are the slowest dimension
                                         {"layout.order", "tp-cp-ep-pp-dp"},
                                         {"kernels", "single"},
                                         // Megatron-LM's bucket grows with dp
                                         {"gradients.bucket", "256KiB"},
                                         {"batch.sequence", "64"}});
    export_chakra(generate_job(training(card, all), name, 1).job, path(name) + "/t");
    return chakra::read_set(path(name) + "/t");
  }

  void expect_same(const ModelCard& card, const Settings& settings) {
    const chakra::TraceSet two = exported(card, settings, 2, 4);
    const chakra::TraceSet many = exported(card, settings, 64, 4);
    chakra::ExpandOptions options;
    options.factor = 32;
    options.grow.clear();
    for (const chakra::ProcessGroup& g : two.groups) {
      for (const char* along : {"dp", "shard", "edp"}) {
        if (g.name.compare(0, std::string(along).size(), along) == 0) {
          options.grow.push_back(g.name);
        }
      }
    }
    ASSERT_FALSE(options.grow.empty());
    const chakra::Expanded e = chakra::expand(two, options);
    ASSERT_EQ(many.ranks.size(), e.set.ranks.size());
    size_t calls = 0;
    for (uint32_t r = 0; r < many.ranks.size(); ++r) {
      const Calls theirs = calls_of(many, r);
      ASSERT_EQ(theirs, calls_of(e.set, r)) << "rank " << r;
      calls += theirs.size();
    }
    EXPECT_LT(0U, calls);
    for (const chakra::ExpandedTotal& t : e.totals) EXPECT_EQ(t.moved_expected, t.moved) << t.kind;
  }
};

ModelCard small() {
  ModelCard m = test::gpt(4, 256, 8, 1024);
  m.biases = m.tied_embeddings = false;
  return m;
}

TEST_F(ExpandGenerated, AllReduce) {
  expect_same(small(), {{"layout.tp", "2"}, {"layout.pp", "2"}, {"layout.zero", "0"}});
}

TEST_F(ExpandGenerated, OptimizerState) {
  expect_same(small(), {{"layout.tp", "2"}, {"layout.pp", "2"}, {"layout.zero", "1"}});
}

TEST_F(ExpandGenerated, Parameters) {
  expect_same(small(), {{"layout.tp", "2"}, {"layout.zero", "3"}});
}

}  // namespace
}  // namespace trainyard
