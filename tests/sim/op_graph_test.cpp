// SPDX-License-Identifier: MIT
#include "sim/op_graph.h"

#include <gtest/gtest.h>

#include "sim/errors.h"

namespace trainyard {
namespace {

/// `n` computes on one stream, named op0, op1, ..., with source ids from 100.
OpGraph chain_of(uint32_t n) {
  OpGraph g;
  g.streams.push_back({"compute", StreamOrder::fifo});
  for (uint32_t i = 0; i < n; ++i) {
    Op op;
    op.kind = OpKind::compute;
    op.name = g.intern("op" + std::to_string(i));
    op.source_id = 100 + i;
    op.duration = Time::us(i + 1);
    g.ops.push_back(op);
  }
  return g;
}

std::vector<uint32_t> successors(const OpGraph& g, uint32_t op) {
  return {g.successors_begin(op), g.successors_end(op)};
}

TEST(OpGraph, InternFindsWhatIsThere) {
  OpGraph g;
  EXPECT_EQ(g.intern("a"), 0U);
  EXPECT_EQ(g.intern("b"), 1U);
  EXPECT_EQ(g.intern("a"), 0U);
  g.strings.push_back("c");  // the vector is public
  EXPECT_EQ(g.intern("c"), 2U);
  EXPECT_EQ(g.intern("d"), 3U);
  EXPECT_EQ(g.strings.size(), 4U);
}

TEST(OpGraph, EdgesInIssueOrderWithoutDuplicates) {
  OpGraph g = chain_of(4);
  g.add_dependency(0, 3);
  g.add_dependency(0, 1);
  g.add_dependency(0, 3);
  g.add_dependency(2, 3);
  g.finish();
  EXPECT_EQ(g.edge_count(), 3U);
  EXPECT_EQ(successors(g, 0), (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(successors(g, 1), std::vector<uint32_t>{});
  EXPECT_EQ(successors(g, 2), std::vector<uint32_t>{3});
  EXPECT_EQ(g.dependency_count(0), 0U);
  EXPECT_EQ(g.dependency_count(1), 1U);
  EXPECT_EQ(g.dependency_count(3), 2U);
  EXPECT_EQ(g.name_of(2), "op2");
}

TEST(OpGraph, EmptyGraph) {
  OpGraph g;
  g.finish();
  EXPECT_EQ(g.edge_count(), 0U);
  EXPECT_TRUE(g.equals(g));
}

TEST(OpGraph, CycleNamesItsOpsInOrderAndNoOthers) {
  OpGraph g = chain_of(6);
  g.add_dependency(0, 1);
  g.add_dependency(4, 2);
  g.add_dependency(2, 5);
  g.add_dependency(5, 4);
  g.add_dependency(4, 3);  // behind the cycle, not on it
  try {
    g.finish();
    FAIL() << "a cycle was accepted";
  } catch (const UserError& e) {
    EXPECT_NE(
        std::string(e.what()).find("102 \"op2\" -> 105 \"op5\" -> 104 \"op4\" -> 102 \"op2\""),
        std::string::npos)
        << e.what();
    EXPECT_EQ(std::string(e.what()).find("op3"), std::string::npos) << e.what();
  }
}

TEST(OpGraph, SelfDependencyIsACycle) {
  OpGraph g = chain_of(2);
  g.add_dependency(1, 1);
  EXPECT_THROW(g.finish(), UserError);
}

TEST(OpGraph, LongCycleIsShortened) {
  OpGraph g = chain_of(1000);
  for (uint32_t i = 0; i < 1000; ++i) g.add_dependency(i, (i + 1) % 1000);
  try {
    g.finish();
    FAIL() << "a cycle was accepted";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("cycle of 1000"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("992 more"), std::string::npos) << e.what();
    EXPECT_LT(std::string(e.what()).size(), 400U);
  }
}

TEST(OpGraph, HashIgnoresTheOrderOfAddDependency) {
  OpGraph a = chain_of(3);
  a.add_dependency(0, 1);
  a.add_dependency(1, 2);
  a.finish();
  OpGraph b = chain_of(3);
  b.add_dependency(1, 2);
  b.add_dependency(0, 1);
  b.add_dependency(0, 1);
  b.finish();
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_TRUE(a.equals(b));
}

TEST(OpGraph, HashSeesEverythingThatRuns) {
  const auto differs = [&](auto change) {
    OpGraph g = chain_of(3);
    g.streams.push_back({"host", StreamOrder::free});
    OpGraph plain = g;
    plain.add_dependency(0, 2);
    plain.finish();
    change(g);
    g.finish();
    return g.hash() != plain.hash() && !g.equals(plain) && !plain.equals(g);
  };
  const auto with_edge = [](auto change) {
    return [change](OpGraph& g) {
      g.add_dependency(0, 2);
      change(g);
    };
  };
  EXPECT_TRUE(differs([](OpGraph&) {}));  // edge missing
  EXPECT_TRUE(differs([](OpGraph& g) { g.add_dependency(1, 2); }));
  EXPECT_TRUE(differs(with_edge([](OpGraph& g) { g.add_dependency(1, 2); })));
  EXPECT_TRUE(differs(with_edge([](OpGraph& g) { g.ops[1].stream = 1; })));
  EXPECT_TRUE(differs(with_edge([](OpGraph& g) { g.ops[1].kind = OpKind::memory; })));
  EXPECT_TRUE(
      differs(with_edge([](OpGraph& g) { g.ops[1].collective = CollectiveKind::all_gather; })));
  EXPECT_TRUE(differs(with_edge([](OpGraph& g) { g.ops[1].group_slot = 1; })));
  EXPECT_TRUE(differs(with_edge([](OpGraph& g) { g.ops[1].peer_slot = 1; })));
  EXPECT_TRUE(differs(with_edge([](OpGraph& g) { g.ops[1].tag = 1; })));
  EXPECT_TRUE(differs(with_edge([](OpGraph& g) { g.ops[1].duration = Time::ps(1); })));
  EXPECT_TRUE(differs(with_edge([](OpGraph& g) { g.ops[1].flops = 1; })));
  EXPECT_TRUE(differs(with_edge([](OpGraph& g) { g.ops[1].bytes = 1; })));
  EXPECT_TRUE(differs(with_edge([](OpGraph& g) { g.ops.push_back(g.ops[0]); })));
  EXPECT_TRUE(differs(with_edge([](OpGraph& g) { g.streams[1].order = StreamOrder::ready; })));
}

TEST(OpGraph, NamesDoNotRunButAreShown) {
  OpGraph a = chain_of(2);
  a.finish();
  OpGraph b;
  b.intern("unused");  // other indices, same texts
  OpGraph c = chain_of(2);
  b.streams = c.streams;
  for (Op op : c.ops) {
    op.name = b.intern(c.strings[op.name]);
    b.ops.push_back(op);
  }
  b.finish();
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_TRUE(a.equals(b));

  c.ops[0].name = c.intern("other");
  c.finish();
  EXPECT_EQ(a.hash(), c.hash());
  EXPECT_FALSE(a.equals(c));

  OpGraph d = chain_of(2);
  d.ops[1].source_id = 7;
  d.finish();
  EXPECT_EQ(a.hash(), d.hash());
  EXPECT_FALSE(a.equals(d));
}

TEST(Job, FoldsEqualGraphs) {
  Job job;
  const auto make = [](int64_t bytes) {
    OpGraph g = chain_of(2);
    g.ops[1].bytes = bytes;
    g.finish();
    return std::make_shared<const OpGraph>(std::move(g));
  };
  const auto shared = make(3);
  for (int64_t bytes : {1, 2, 1, 2}) job.ranks.push_back({make(bytes), {}});
  job.ranks.push_back({shared, {}});
  job.ranks.push_back({shared, {}});
  job.ranks[2].binding.peers = {4};
  const auto first = job.ranks[0].graph;
  EXPECT_EQ(job.fold(), 3U);
  EXPECT_EQ(job.ranks[0].graph, first);
  EXPECT_EQ(job.ranks[2].graph, first);
  EXPECT_EQ(job.ranks[3].graph, job.ranks[1].graph);
  EXPECT_NE(job.ranks[1].graph, first);
  EXPECT_EQ(job.ranks[5].graph, shared);
  EXPECT_EQ(job.ranks[2].binding.peers, std::vector<uint32_t>{4});  // bindings stay
  EXPECT_EQ(job.fold(), 3U);
}

TEST(Job, FoldOfNothing) {
  Job job;
  EXPECT_EQ(job.fold(), 0U);
}

TEST(CollectiveName, AsInTheDocs) {
  EXPECT_STREQ(collective_name(CollectiveKind::all_reduce), "all-reduce");
  EXPECT_STREQ(collective_name(CollectiveKind::reduce_scatter_block), "reduce-scatter-block");
  EXPECT_STREQ(collective_name(CollectiveKind::barrier), "barrier");
}

}  // namespace
}  // namespace trainyard
