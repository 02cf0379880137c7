// SPDX-License-Identifier: MIT
#include "chakra/expand.h"

#include <gtest/gtest.h>

#include <string>

#include "chakra/validator.h"
#include "sim/errors.h"

namespace trainyard::chakra {
namespace {

constexpr int64_t kAllReduce = 0, kGather = 3, kAllGather = 2, kReduceScatter = 7;

/// Tensor parallelism 2 (groups 0, 1), data parallelism 2 (groups 2, 3), a message to the
/// neighbour.
TraceSet four_ranks() {
  TraceSet set;
  set.groups = {{"0", {0, 1}}, {"1", {2, 3}}, {"2", {0, 2}}, {"3", {1, 3}}};
  for (uint32_t r = 0; r < 4; ++r) {
    RankTrace t;
    t.file = "t." + std::to_string(r) + ".et";
    t.version = "0.0.4";
    const auto call = [&](int64_t kind, int64_t size, const std::string& group) {
      Node n;
      n.id = t.nodes.size();
      n.name = "call";
      n.type = NodeType::comm_coll;
      n.comm_type = kind;
      n.comm_size = size;
      n.pg_name = group;
      if (!t.nodes.empty()) n.data_deps = {n.id - 1};
      t.nodes.push_back(n);
    };
    const std::string dp = std::to_string(2 + r % 2);
    call(kAllReduce, 1000, std::to_string(r / 2));
    call(kReduceScatter, 4096, dp);
    call(kAllGather, 2048, dp);
    call(kAllReduce, 800, dp);
    Node m;
    m.id = t.nodes.size();
    m.name = "message";
    m.type = r % 2 == 0 ? NodeType::comm_send : NodeType::comm_recv;
    m.comm_src = r % 2 == 0 ? r : r - 1;
    m.comm_dst = r % 2 == 0 ? r + 1 : r;
    m.comm_tag = 5;
    m.comm_size = 300;
    t.nodes.push_back(m);
    set.ranks.push_back(t);
  }
  return set;
}

const ExpandedTotal& total(const Expanded& e, const std::string& kind, bool grown) {
  for (const ExpandedTotal& t : e.totals) {
    if (t.kind == kind && t.grown == grown) return t;
  }
  ADD_FAILURE() << "no " << kind;
  static const ExpandedTotal none;
  return none;
}

TEST(ExpandTrace, DataParallelGroupsSpanTheCopiesOthersAreCopied) {
  const Expanded e = expand(four_ranks(), {4, {"2", "3"}});
  ASSERT_EQ(16U, e.set.ranks.size());
  ASSERT_EQ(2U * 4 + 2, e.set.groups.size());
  const auto members = [&](const std::string& name) {
    for (const ProcessGroup& g : e.set.groups) {
      if (g.name == name) return g.ranks;
    }
    return std::vector<uint32_t>();
  };
  EXPECT_EQ((std::vector<uint32_t>{0, 2, 4, 6, 8, 10, 12, 14}), members("2"));
  EXPECT_EQ((std::vector<uint32_t>{0, 1}), members("0"));
  // Rank 13 is rank 1 of the last copy.
  const RankTrace& t = e.set.ranks[13];
  EXPECT_EQ((std::vector<uint32_t>{12, 13}), members(*t.nodes[0].pg_name));
  EXPECT_EQ("3", *t.nodes[1].pg_name);
  EXPECT_EQ(1000, *t.nodes[0].comm_size);
  EXPECT_EQ(4096, *t.nodes[1].comm_size);
  EXPECT_EQ(512, *t.nodes[2].comm_size);  // a quarter of the shard, four times the members
  EXPECT_EQ(800, *t.nodes[3].comm_size);
  EXPECT_EQ(12, *t.nodes[4].comm_src);
  EXPECT_EQ(13, *t.nodes[4].comm_dst);
  for (const Finding& f : validate(e.set)) EXPECT_NE(Severity::error, f.severity) << f.message;
}

TEST(ExpandTrace, BytesAreThoseOfTheClosedForm) {
  for (const uint32_t factor : {1U, 2U, 8U, 32U}) {
    const Expanded e = expand(four_ranks(), {factor, {"2", "3"}});
    const int64_t n = 2 * factor;  // members of a data-parallel group
    for (const ExpandedTotal& t : e.totals) {
      EXPECT_EQ(t.moved_expected, t.moved) << t.kind << " x " << factor;
      EXPECT_EQ(t.calls_before * factor, t.calls);
    }
    // 2 (n - 1) / n of the buffer per rank, 2 n ranks.
    EXPECT_EQ(2 * n * (2 * (n - 1) * 800 / n), total(e, "all-reduce", true).moved);
    EXPECT_EQ(2 * n * ((n - 1) * 4096 / n), total(e, "reduce-scatter", true).moved);
    EXPECT_EQ(2 * n * ((n - 1) * (2 * 2048 / n)), total(e, "all-gather", true).moved);
    EXPECT_EQ(4 * factor * 1000, total(e, "all-reduce", false).moved);
    EXPECT_EQ(2 * factor * 300, total(e, "send", false).moved);
  }
}

TEST(ExpandTrace, WithoutNamesGroupsOfEverybodyGrow) {
  TraceSet set = four_ranks();
  set.groups.push_back({"4", {0, 1, 2, 3}});
  const Expanded e = expand(set, {2, {"*"}});
  EXPECT_EQ(2U * 4 + 1, e.set.groups.size());
  EXPECT_EQ(8U, e.set.groups.back().ranks.size());
  EXPECT_TRUE(total(e, "reduce-scatter", false).calls > 0);
  for (RankTrace& t : set.ranks) t.nodes[3].pg_name.reset();
  const Expanded world = expand(set, {2, {"*"}});
  EXPECT_EQ(8U, total(world, "all-reduce", true).calls);
  EXPECT_EQ(8 * (2 * 7 * 800 / 8), total(world, "all-reduce", true).moved);
}

TEST(ExpandTrace, WhatHasNoRuleIsRefused) {
  const auto problem = [](const TraceSet& set, const ExpandOptions& options) -> std::string {
    try {
      (void)expand(set, options);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  TraceSet set = four_ranks();
  EXPECT_TRUE(has(problem(set, {2, {"7"}}), "has no group '7'"));
  EXPECT_TRUE(has(problem(set, {3, {"2", "3"}}), "does not divide"));
  EXPECT_TRUE(has(problem(set, {0, {"*"}}), "nothing to expand"));
  EXPECT_TRUE(has(problem(set, {1'000'000, {"*"}}), "more than a million"));
  set.ranks[0].nodes[3].comm_type = kGather;
  EXPECT_TRUE(has(problem(set, {2, {"2", "3"}}), "no rule"));
  set = four_ranks();
  set.ranks[0].nodes[0].pg_name.reset();
  EXPECT_TRUE(has(problem(set, {2, {"2", "3"}}), "cannot be copied without a group"));
}

}  // namespace
}  // namespace trainyard::chakra
