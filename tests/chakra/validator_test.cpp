// SPDX-License-Identifier: MIT
// One small trace set per finding of the validator, and the summary.
#include "chakra/validator.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "chakra/graph.h"
#include "chakra/reader.h"
#include "chakra/writer.h"
#include "tests/chakra/chakra_test_util.h"

namespace trainyard::chakra::test {
namespace {

Node base(uint64_t id, NodeType type, std::vector<uint64_t> data_deps = {}) {
  Node node;
  node.id = id;
  node.name = "n" + std::to_string(id);
  node.type = type;
  node.data_deps = std::move(data_deps);
  return node;
}

Node comp(uint64_t id, std::vector<uint64_t> data_deps = {}) {
  Node node = base(id, NodeType::comp, std::move(data_deps));
  node.duration_us = 1;
  return node;
}

Node with_ctrl(Node node, std::vector<uint64_t> ctrl_deps) {
  node.ctrl_deps = std::move(ctrl_deps);
  return node;
}

Node coll(uint64_t id, const std::optional<std::string>& group = {},
          std::optional<int64_t> size = 1024, std::optional<int64_t> type = 0,
          std::vector<uint64_t> data_deps = {}) {
  Node node = base(id, NodeType::comm_coll, std::move(data_deps));
  node.comm_size = size;
  node.comm_type = type;
  node.pg_name = group;
  return node;
}

Node p2p(uint64_t id, NodeType type, std::optional<int64_t> peer, std::optional<int64_t> tag = 0,
         std::optional<int64_t> size = 100, std::vector<uint64_t> data_deps = {}) {
  Node node = base(id, type, std::move(data_deps));
  (type == NodeType::comm_send ? node.comm_dst : node.comm_src) = peer;
  node.comm_tag = tag;
  node.comm_size = size;
  return node;
}
Node send(uint64_t id, std::optional<int64_t> to, std::optional<int64_t> tag = 0,
          std::optional<int64_t> size = 100, std::vector<uint64_t> deps = {}) {
  return p2p(id, NodeType::comm_send, to, tag, size, std::move(deps));
}
Node receive(uint64_t id, std::optional<int64_t> from, std::optional<int64_t> tag = 0,
             std::optional<int64_t> size = 100, std::vector<uint64_t> deps = {}) {
  return p2p(id, NodeType::comm_recv, from, tag, size, std::move(deps));
}

TraceSet set_of(const std::vector<std::vector<Node>>& ranks,
                std::vector<ProcessGroup> groups = {}) {
  TraceSet set;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    RankTrace trace;
    trace.file = "t." + std::to_string(rank) + ".et";
    trace.nodes = ranks[rank];
    set.ranks.push_back(std::move(trace));
  }
  set.groups = std::move(groups);
  if (!set.groups.empty()) set.group_file = "comm_group.json";
  return set;
}

/// "error:data_cycle warning:p2p_self" in order of report, each code once.
std::string codes(const TraceSet& set) {
  std::vector<std::string> list;
  for (const Finding& f : validate(set)) {
    const std::string text = (f.severity == Severity::error ? "error:" : "warning:") + f.code;
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
  }
  std::string out;
  for (const std::string& text : list) out += (out.empty() ? "" : " ") + text;
  return out;
}

std::string first_message(const TraceSet& set) {
  const auto findings = validate(set);
  return findings.empty() ? "" : findings.front().message;
}

constexpr int64_t kGather = 2;
constexpr int64_t kBarrier = 9;

// --- one rank ---------------------------------------------------------------------------------

TEST(Validator, GoodSetHasNoFindings) {
  EXPECT_EQ("", codes(set_of({{comp(1), coll(2, {}, 1024, 0, {1}), send(3, 1, 7, 100, {2})},
                              {comp(1), coll(2, {}, 1024, 0, {1}), receive(3, 0, 7, 100, {2})}})));
  EXPECT_EQ(
      "",
      codes(set_of({{base(1, NodeType::invalid), base(2, NodeType::metadata), comp(3, {1, 1})}})));
}

TEST(Validator, StructureOfOneRank) {
  EXPECT_EQ("error:no_ranks", codes(TraceSet{}));
  EXPECT_EQ("warning:no_nodes", codes(set_of({{}})));
  EXPECT_EQ("error:duplicate_id", codes(set_of({{comp(1), comp(1)}})));
  EXPECT_EQ("error:unknown_node_type", codes(set_of({{base(1, static_cast<NodeType>(99))}})));
  EXPECT_EQ("error:missing_data_parent", codes(set_of({{comp(1, {9})}})));
  EXPECT_EQ("warning:missing_ctrl_parent", codes(set_of({{with_ctrl(comp(1), {9})}})));
  EXPECT_EQ("error:data_cycle", codes(set_of({{comp(1), comp(2, {1, 3}), comp(3, {2})}})));
  EXPECT_EQ("error:data_cycle", codes(set_of({{comp(1, {1})}})));
  EXPECT_EQ("warning:ctrl_cycle", codes(set_of({{with_ctrl(comp(1), {2}), comp(2, {1})}})));
  EXPECT_EQ("warning:ctrl_cycle", codes(set_of({{with_ctrl(comp(1), {1})}})));
  Node bad = comp(1);
  bad.name = "\xc3(";
  EXPECT_EQ("warning:bad_utf8_name", codes(set_of({{bad}})));
  Node noted = comp(1);
  noted.notes = {"attribute x is odd"};
  EXPECT_EQ("warning:odd_attribute", codes(set_of({{noted}})));
}

TEST(Validator, MessagesNameFileNodeProblemAndConsequence) {
  EXPECT_EQ(
      "t.0.et: node 1 \"n1\": data_deps names node 9, which is not in the file; it could never "
      "start",
      first_message(set_of({{comp(1, {9})}})));
  Node odd = comp(1, {9});
  odd.name = "a\n\xff";
  EXPECT_NE(std::string::npos, first_message(set_of({{odd}})).find("\"a\\x0a\\xff\""));
}

TEST(Validator, FindingsOfOneCodeAreFoldedPerFile) {
  const std::vector<Node> nodes = {with_ctrl(comp(1), {8, 9}), with_ctrl(comp(2), {8})};
  const auto findings = validate(set_of({nodes, nodes}));
  ASSERT_EQ(2U, findings.size());
  EXPECT_EQ(3U, findings[0].count);
  EXPECT_NE(std::string::npos, findings[0].message.find("first of 3"));
  EXPECT_NE(std::string::npos, findings[1].message.find("t.1.et"));
}

TEST(Validator, ErrorsComeFirst) {
  EXPECT_EQ("error:missing_data_parent warning:missing_ctrl_parent",
            codes(set_of({{with_ctrl(comp(1), {8}), comp(2, {9})}})));
}

TEST(Validator, Costs) {
  EXPECT_EQ("warning:comp_without_cost", codes(set_of({{base(1, NodeType::comp)}})));
  Node host = base(1, NodeType::comp);
  host.is_cpu_op = true;
  EXPECT_EQ("", codes(set_of({{host}})));
  Node ops = base(1, NodeType::comp);
  ops.num_ops = 5;
  EXPECT_EQ("warning:roofline_zero_tensor", codes(set_of({{ops}})));
  ops.tensor_size = 0;
  EXPECT_EQ("warning:roofline_zero_tensor", codes(set_of({{ops}})));
  ops.tensor_size = 8;
  EXPECT_EQ("", codes(set_of({{ops}})));
  ops.num_ops = -5;
  EXPECT_EQ("error:negative_value", codes(set_of({{ops}})));
  Node load = base(1, NodeType::mem_load);
  EXPECT_EQ("warning:mem_without_size", codes(set_of({{load}})));
  load.tensor_size = 4;
  EXPECT_EQ("", codes(set_of({{load}})));
}

// --- collectives ------------------------------------------------------------------------------

TEST(Validator, CollectiveAttributes) {
  const auto both = [](const Node& node) { return codes(set_of({{node}, {node}})); };
  EXPECT_EQ("error:collective_without_type", both(coll(1, {}, 1024, {})));
  EXPECT_EQ("error:collective_without_size", both(coll(1, {}, {}, 0)));
  EXPECT_EQ("warning:zero_size_collective", both(coll(1, {}, 0)));
  EXPECT_EQ("error:unknown_collective", both(coll(1, {}, 1024, 10)));
  EXPECT_EQ("error:unknown_collective", both(coll(1, {}, 1024, -1)));
  EXPECT_EQ("error:negative_value", both(coll(1, {}, -1)));
  EXPECT_EQ("", both(coll(1, {}, {}, kBarrier)));
  EXPECT_EQ("", both(coll(1, {}, 0, kBarrier)));
  Node host = coll(1, {}, {}, {});
  host.is_cpu_op = true;
  EXPECT_EQ("warning:comm_on_cpu", both(host));
  host.comm_type = 0;
  EXPECT_EQ("error:collective_without_size", both(host));
}

TEST(Validator, MembersIssueTheSame) {
  EXPECT_EQ("error:collective_size_mismatch", codes(set_of({{coll(1, {}, 1)}, {coll(1, {}, 2)}})));
  EXPECT_EQ("error:collective_type_mismatch",
            codes(set_of({{coll(1)}, {coll(1, {}, 1024, kGather)}})));
  EXPECT_EQ("error:collective_missing_on_rank", codes(set_of({{coll(1)}, {comp(1)}})));
  EXPECT_EQ("error:collective_missing_on_rank", codes(set_of({{comp(1)}, {coll(1)}})));
  EXPECT_EQ("error:collective_missing_on_rank", codes(set_of({{coll(1), coll(2)}, {coll(1)}})));
  // Order counts, and it is the order of ids, not of the file.
  EXPECT_EQ("error:collective_type_mismatch",
            codes(set_of(
                {{coll(1), coll(2, {}, 1024, kGather)}, {coll(1, {}, 1024, kGather), coll(2)}})));
  EXPECT_EQ("", codes(set_of({{coll(1), coll(2, {}, 1024, kGather)},
                              {coll(20, {}, 1024, kGather), coll(3)}})));
}

TEST(Validator, Groups) {
  const std::vector<ProcessGroup> one = {{"1", {0, 1}}};
  const auto both = [](const Node& node, const std::vector<ProcessGroup>& groups) {
    return codes(set_of({{node}, {node}}, groups));
  };
  EXPECT_EQ("", both(coll(1, "1"), one));
  EXPECT_EQ("error:unknown_group", both(coll(1, "7"), one));
  EXPECT_EQ("error:unknown_group", both(coll(1, "7"), {}));
  EXPECT_EQ("error:unknown_group", both(coll(1, "1.5"), one));
  EXPECT_EQ("warning:group_name_float", both(coll(1, "1.0"), one));
  EXPECT_EQ("", both(coll(1, "1.0"), {{"1.0", {0, 1}}}));
  EXPECT_EQ("error:group_rank_out_of_range", both(coll(1, "1"), {{"1", {0, 1, 9}}}));
  EXPECT_EQ("warning:unused_group_out_of_range", both(coll(1, "1"), {{"1", {0, 1}}, {"2", {9}}}));
  EXPECT_EQ("error:group_rank_twice", both(coll(1, "1"), {{"1", {0, 1, 0}}}));
  EXPECT_EQ("warning:ambiguous_group", both(coll(1, "1"), {{"1", {0, 1}}, {"1", {1}}}));
  EXPECT_EQ("error:rank_not_in_group",
            codes(set_of({{coll(1, "1")}, {coll(1, "1")}, {coll(1, "1")}}, {{"1", {0, 2}}})));
  EXPECT_EQ("", codes(set_of({{coll(1, "1")}}, {{"1", {0}}})));  // a group of one
}

TEST(Validator, AllRanks) {
  for (const std::optional<std::string>& name :
       {std::optional<std::string>(), std::optional<std::string>(""),
        std::optional<std::string>("0")}) {
    EXPECT_EQ("", codes(set_of({{coll(1, name)}, {coll(1, name)}})));
  }
  EXPECT_EQ("warning:group_name_float", codes(set_of({{coll(1, "0.0")}, {coll(1, "0.0")}})));
  // All names of the same ranks share one order.
  EXPECT_EQ("", codes(set_of({{coll(1, "0")}, {coll(1)}})));
  EXPECT_EQ("", codes(set_of({{coll(1, "0")}, {coll(1, "0")}}, {{"0", {}}})));
  // A defined "0" is that group.
  EXPECT_EQ("", codes(set_of({{coll(1, "0")}, {comp(1)}}, {{"0", {0}}})));
}

TEST(Validator, GroupsOfOneNameOnDifferentRanks) {
  EXPECT_EQ("", codes(set_of({{coll(1, "3")}, {coll(1, "3")}, {coll(1, "3", 7)}, {coll(1, "3", 7)}},
                             {{"3", {0, 1}}, {"3", {2, 3}}})));
}

TEST(Validator, UnknownGroupsDoNotCascade) {
  EXPECT_EQ("error:unknown_group", codes(set_of({{coll(1, "0")}, {coll(1, "1")}})));
}

TEST(Validator, RankZeroOnly) {
  EXPECT_EQ("warning:ranks_missing", codes(set_of({{coll(1), coll(2), send(3, 5)}})));
  EXPECT_EQ("warning:ranks_missing", codes(set_of({{coll(1, "1")}}, {{"1", {0, 9}}})));
  EXPECT_EQ("warning:ranks_missing", codes(set_of({{receive(1, 3)}})));
  EXPECT_EQ("", codes(set_of({{comp(1)}}, {{"1", {0}}})));
}

// --- messages between two ranks ---------------------------------------------------------------

TEST(Validator, Messages) {
  EXPECT_EQ("warning:send_without_recv", codes(set_of({{send(1, 1)}, {comp(1)}})));
  EXPECT_EQ("error:recv_without_send", codes(set_of({{comp(1)}, {receive(1, 0)}})));
  EXPECT_EQ("error:recv_without_send warning:send_without_recv",
            codes(set_of({{send(1, 1, 1)}, {receive(1, 0, 2)}})));
  EXPECT_EQ("error:p2p_size_mismatch",
            codes(set_of({{send(1, 1, 0, 100)}, {receive(1, 0, 0, 200)}})));
  EXPECT_EQ("", codes(set_of({{send(1, 1, 0, 100), send(2, 1, 0, 200)},
                              {receive(8, 0, 0, 200), receive(5, 0, 0, 100)}})));
  EXPECT_EQ("error:p2p_peer_out_of_range", codes(set_of({{send(1, 5)}, {comp(1)}})));
  EXPECT_EQ("error:p2p_peer_out_of_range", codes(set_of({{send(1, -1)}, {comp(1)}})));
  EXPECT_EQ("error:p2p_without_peer", codes(set_of({{send(1, {})}, {comp(1)}})));
  EXPECT_EQ("error:p2p_without_peer", codes(set_of({{receive(1, {})}, {comp(1)}})));
  EXPECT_EQ("error:p2p_without_size", codes(set_of({{send(1, 1, 0, {})}, {receive(1, 0, 0, {})}})));
  EXPECT_EQ("warning:zero_size_message",
            codes(set_of({{send(1, 1, 0, 0)}, {receive(1, 0, 0, 0)}})));
  EXPECT_EQ("warning:p2p_without_tag", codes(set_of({{send(1, 1, {})}, {receive(1, 0, {})}})));
  EXPECT_EQ("warning:p2p_self", codes(set_of({{send(1, 0), receive(2, 0)}})));
  Node host = send(1, {}, {}, {});
  host.is_cpu_op = true;
  EXPECT_EQ("warning:comm_on_cpu", codes(set_of({{host}, {comp(1)}})));
  Node elsewhere = send(1, 1, 0, {});
  elsewhere.tensor_size = 100;
  EXPECT_EQ("warning:p2p_size_elsewhere", codes(set_of({{elsewhere}, {receive(1, 0)}})));
  Node foreign = send(1, 1);
  foreign.comm_src = 17;
  EXPECT_EQ("warning:p2p_foreign_side", codes(set_of({{foreign}, {receive(1, 0)}})));
}

TEST(Validator, DeadlockAcrossRanks) {
  // Each rank sends only after it has received.
  EXPECT_EQ("error:cross_rank_deadlock", codes(set_of({{receive(1, 1), send(2, 1, 0, 100, {1})},
                                                       {receive(1, 0), send(2, 0, 0, 100, {1})}})));
  EXPECT_EQ("",
            codes(set_of({{receive(1, 1), send(2, 1)}, {receive(1, 0), send(2, 0, 0, 100, {1})}})));
  // Two groups in opposite order.
  EXPECT_EQ("error:cross_rank_deadlock", codes(set_of({{coll(1, "a"), coll(2, "b", 1024, 0, {1})},
                                                       {coll(1, "b"), coll(2, "a", 1024, 0, {1})}},
                                                      {{"a", {0, 1}}, {"b", {0, 1}}})));
  // A control edge that closed a cycle in one rank is gone and does no harm here.
  EXPECT_EQ("warning:ctrl_cycle",
            codes(set_of({{with_ctrl(coll(1), {2}), comp(2, {1})}, {coll(1)}})));
}

TEST(Validator, LongChainsDoNotOverflowTheStack) {
  std::vector<Node> nodes = {comp(0)};
  for (uint64_t id = 1; id < 200000; ++id) nodes.push_back(comp(id, {id - 1}));
  nodes.front().ctrl_deps = {199999};
  EXPECT_EQ("warning:ctrl_cycle", codes(set_of({nodes})));
  nodes.front().data_deps = {199999};
  EXPECT_EQ("error:data_cycle", codes(set_of({nodes})));
}

// --- repaired dependencies --------------------------------------------------------------------

TEST(Dependencies, OnlyEdgesOnACycleAreDropped) {
  RankTrace trace;
  // 1 waits for 2 by control, 2 for 1 by data: a cycle. 0 waits for 2 and is no part of it,
  // although its id is the smallest.
  trace.nodes = {with_ctrl(comp(0), {2}), with_ctrl(comp(1), {2}), comp(2, {1})};
  const Dependencies deps = resolve_dependencies(trace);
  ASSERT_EQ(1U, deps.dropped_ctrl.size());
  EXPECT_EQ(std::make_pair(1U, 2U), deps.dropped_ctrl[0]);
  EXPECT_EQ(1U, deps.parents(0).size());
  EXPECT_EQ(0U, deps.parents(1).size());
  EXPECT_EQ(1U, deps.parents(2).size());
}

TEST(Dependencies, ParentsOnceDataBeforeControl) {
  RankTrace trace;
  trace.nodes = {comp(7), comp(3), with_ctrl(comp(5, {7, 7, 3, 99}), {7, 98})};
  const Dependencies deps = resolve_dependencies(trace);
  const auto parents = deps.parents(2);
  EXPECT_EQ((std::vector<uint32_t>{0, 1}), std::vector<uint32_t>(parents.begin(), parents.end()));
  ASSERT_EQ(1U, deps.missing_data.size());
  EXPECT_EQ(99U, deps.missing_data[0].second);
  ASSERT_EQ(1U, deps.missing_ctrl.size());
  EXPECT_EQ(98U, deps.missing_ctrl[0].second);
}

// --- summary ----------------------------------------------------------------------------------

TEST(Summary, Counts) {
  Node host = comp(1);
  host.is_cpu_op = true;
  host.num_ops = 10;
  host.tensor_size = 20;
  Node load = base(2, NodeType::mem_load, {1, 77});
  load.tensor_size = 5;
  load.duration_us = 3;
  const std::vector<Node> nodes = {host,
                                   with_ctrl(load, {1, 66}),
                                   coll(3, {}, 100, 0),
                                   coll(4, {}, 50, 0),
                                   coll(5, {}, 7, kGather),
                                   send(6, 1, 0, 11),
                                   receive(7, 1, 0, 12),
                                   base(8, NodeType::metadata),
                                   coll(9, {}, 100, {})};
  const TraceSet set = set_of({nodes, {comp(1)}});
  const Summary s = summarise(set.ranks[0]);
  EXPECT_EQ(9U, s.nodes);
  EXPECT_EQ(1U, s.metadata);
  EXPECT_EQ(1U, s.mem);
  EXPECT_EQ(1U, s.comp);
  EXPECT_EQ(1U, s.send);
  EXPECT_EQ(1U, s.recv);
  EXPECT_EQ(4U, s.coll);
  EXPECT_EQ(1U, s.cpu_ops);
  EXPECT_EQ(2U, s.data_edges);
  EXPECT_EQ(2U, s.ctrl_edges);
  EXPECT_EQ(1U, s.missing_data_parents);
  EXPECT_EQ(1U, s.missing_ctrl_parents);
  EXPECT_EQ(10, s.num_ops);
  EXPECT_EQ(25, s.tensor_size);
  EXPECT_EQ(4U, s.duration_us);
  EXPECT_EQ(1U, s.comp_duration_us);
  EXPECT_EQ(11, s.bytes_send);
  EXPECT_EQ(12, s.bytes_recv);
  ASSERT_EQ(2U, s.collectives.size());
  EXPECT_EQ(std::make_pair(uint64_t{2}, int64_t{150}), s.collectives.at("all_reduce"));
  EXPECT_EQ(std::make_pair(uint64_t{1}, int64_t{7}), s.collectives.at("all_gather"));
  const Summary total = summarise(set);
  EXPECT_EQ(10U, total.nodes);
  EXPECT_EQ(2U, total.comp);
  EXPECT_EQ(5U, total.duration_us);
  EXPECT_EQ(2U, total.collectives.at("all_reduce").first);
}

TEST(Summary, SumsStopAtTheLimit) {
  Node a = comp(1);
  a.num_ops = INT64_MAX;
  a.duration_us = UINT64_MAX;
  Node b = a;
  b.id = 2;
  const Summary s = summarise(set_of({{a, b}}));
  EXPECT_EQ(INT64_MAX, s.num_ops);
  EXPECT_EQ(UINT64_MAX, s.duration_us);
}

}  // namespace
}  // namespace trainyard::chakra::test
