// SPDX-License-Identifier: MIT
// From Chakra traces to jobs: streams, repairs, groups, sizes, rank classes.
#include "workload/chakra_importer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "chakra/reader.h"
#include "chakra/writer.h"
#include "sim/errors.h"
#include "tests/chakra/chakra_test_util.h"
#include "tests/workload/on_rails.h"

namespace trainyard {
namespace {

using chakra::Node;
using chakra::NodeType;
using chakra::TraceSet;
using test::OnRails;
using Ids = std::vector<uint64_t>;

Node make_node(uint64_t id, NodeType type, const std::string& name, const Ids& data = {}) {
  Node n;
  n.id = id;
  n.type = type;
  n.name = name;
  n.data_deps = data;
  return n;
}
Node comp(uint64_t id, uint64_t us, const Ids& data = {}) {
  Node n = make_node(id, NodeType::comp, "c" + std::to_string(id), data);
  n.duration_us = us;
  return n;
}
Node kernel(uint64_t id, uint64_t us, int64_t stream) {
  Node n = comp(id, us);
  n.stream = stream;
  return n;
}
Node coll(uint64_t id, CollectiveKind kind, int64_t size, const Ids& data = {}) {
  Node n = make_node(id, NodeType::comm_coll, "x" + std::to_string(id), data);
  n.comm_type = static_cast<int64_t>(kind);
  n.comm_size = size;
  return n;
}
Node message(uint64_t id, NodeType type, int64_t peer, int64_t size, int64_t tag = 0) {
  Node n = make_node(id, type, (type == NodeType::comm_send ? "s" : "r") + std::to_string(id));
  (type == NodeType::comm_send ? n.comm_dst : n.comm_src) = peer;
  n.comm_size = size;
  n.comm_tag = tag;
  return n;
}

TraceSet one_rank(std::vector<Node> nodes) {
  TraceSet set;
  set.ranks.resize(1);
  set.ranks[0].file = "t.0.et";
  set.ranks[0].nodes = std::move(nodes);
  return set;
}
TraceSet alike(uint32_t ranks, const std::vector<Node>& nodes) {
  TraceSet set;
  for (uint32_t r = 0; r < ranks; ++r) {
    set.ranks.push_back(one_rank(nodes).ranks[0]);
    set.ranks.back().file = "t." + std::to_string(r) + ".et";
  }
  return set;
}
ChakraImport import(const TraceSet& set, int64_t element_bytes = 0, bool strict = false) {
  return import_chakra(set, "test", {element_bytes, strict});
}
std::string refusal(const TraceSet& set, bool strict = false) {
  try {
    (void)import(set, 0, strict);
  } catch (const UserError& e) {
    return e.what();
  }
  ADD_FAILURE() << "not refused";
  return {};
}
bool has(const ChakraImport& i, const std::string& code) {
  return std::any_of(i.findings.begin(), i.findings.end(),
                     [&](const auto& f) { return f.code == code; });
}
const OpGraph& graph(const ChakraImport& i, uint32_t rank = 0) {
  return *i.job.ranks[rank].graph;
}
const Op& op(const ChakraImport& i, const std::string& name, uint32_t rank = 0) {
  const OpGraph& g = graph(i, rank);
  for (uint32_t k = 0; k < g.ops.size(); ++k) {
    if (g.name_of(k) == name) return g.ops[k];
  }
  ADD_FAILURE() << "no op " << name;
  return g.ops[0];
}
const Stream& stream_of(const ChakraImport& i, const std::string& name, uint32_t rank = 0) {
  return graph(i, rank).streams[op(i, name, rank).stream];
}
void expect_mentions(const std::string& text, const std::vector<std::string>& words) {
  for (const auto& w : words) EXPECT_NE(std::string::npos, text.find(w)) << w << " in: " << text;
}

// --- streams ------------------------------------------------------------------------------------

TEST(Importer, StreamsComeFromTheAttribute) {
  // File order is not issue order.
  const auto i = import(one_rank({kernel(30, 1, 20), kernel(10, 1, 7), kernel(20, 1, 7)}));
  EXPECT_TRUE(i.has_streams);
  EXPECT_EQ("stream 7", stream_of(i, "c10").name);
  EXPECT_EQ("stream 7", stream_of(i, "c20").name);
  EXPECT_EQ("stream 20", stream_of(i, "c30").name);
  EXPECT_EQ(StreamOrder::fifo, stream_of(i, "c10").order);
  ASSERT_EQ(3U, graph(i).ops.size());
  for (uint32_t k = 0; k < 3; ++k) EXPECT_EQ(10U * (k + 1), graph(i).ops[k].source_id);
}

TEST(Importer, WithoutStreamsComputeTakesTurnsAndCommunicationIsFree) {
  auto host = comp(3, 5);
  host.is_cpu_op = true;
  const auto i = import(alike(2, {comp(1, 5), coll(2, CollectiveKind::all_reduce, 64), host}));
  EXPECT_FALSE(i.has_streams);
  EXPECT_EQ(StreamOrder::ready, stream_of(i, "c1").order);
  EXPECT_EQ(StreamOrder::free, stream_of(i, "x2").order);
  EXPECT_EQ("host", stream_of(i, "c3").name);
  EXPECT_EQ(StreamOrder::ready, stream_of(i, "c3").order);
}

// Pains #13: kernels of a linked PyTorch trace have no successors.
TEST(Importer, KernelsOfAStreamRunOneAfterTheOther) {
  auto x = coll(4, CollectiveKind::all_reduce, 1 << 20);
  x.stream = 7;
  const auto i = import(alike(2, {kernel(1, 10, 7), kernel(2, 20, 7), kernel(3, 30, 7), x}));
  OnRails sim(i.job, "trace", 1);
  sim.run();
  for (uint32_t r = 0; r < 2; ++r) {
    EXPECT_EQ(Time::us(0), sim.span(r, "c1").begin);
    EXPECT_EQ(Time::us(10), sim.span(r, "c2").begin);
    EXPECT_EQ(Time::us(30), sim.span(r, "c3").begin);
    EXPECT_EQ(Time::us(60), sim.span(r, "x4").begin);  // not at t = 0
  }
  EXPECT_GT(sim.timeline.end(), Time::us(60));
}

TEST(Importer, TwoStreamsOverlap) {
  const auto i = import(one_rank({kernel(1, 10, 7), kernel(2, 10, 20), kernel(3, 5, 7)}));
  OnRails sim(i.job, "trace", 1);
  sim.run();
  EXPECT_EQ(Time::us(0), sim.span(0, "c2").begin);
  EXPECT_EQ(Time::us(15), sim.timeline.end());
}

TEST(Importer, ComputeWithoutStreamsRunsOneAtATimeByIdAndHostBesideIt) {
  auto host = comp(3, 12);
  host.is_cpu_op = true;
  const auto i = import(one_rank({comp(2, 7), host, comp(1, 5)}));
  OnRails sim(i.job, "trace", 1);
  sim.run();
  EXPECT_EQ(Time::us(0), sim.span(0, "c1").begin);
  EXPECT_EQ(Time::us(5), sim.span(0, "c2").begin);
  EXPECT_EQ(Time::us(0), sim.span(0, "c3").begin);
  EXPECT_EQ(Time::us(12), sim.timeline.rank_times()[0].compute);
  EXPECT_EQ(Time(), sim.timeline.rank_times()[0].host);  // all of it behind compute
}

Node coll_on(uint64_t id, int64_t stream, const Ids& data = {}) {
  Node n = coll(id, CollectiveKind::all_reduce, 1 << 20, data);
  n.stream = stream;
  return n;
}
ChakraImport import_with(const TraceSet& set, LaunchOrder order) {
  ChakraImportOptions options;
  options.launch_order = order;
  return import_chakra(set, "test", options);
}

// Pains #13: nothing in a linked PyTorch trace says what a communication kernel waits for.
TEST(Importer, LaunchOrderBetweenStreams) {
  const auto set = alike(
      2, {kernel(1, 10, 7), kernel(2, 25, 20), coll_on(3, 14), kernel(4, 30, 7), kernel(5, 5, 20)});
  const auto run = [&](LaunchOrder order) {
    const auto i = import_with(set, order);
    auto sim = std::make_unique<OnRails>(i.job, "trace", 1);
    sim->run();
    return sim;
  };
  const auto free = run(LaunchOrder::free);
  EXPECT_EQ(Time::us(0), free->span(0, "x3").begin);
  EXPECT_EQ(Time::us(10), free->span(0, "c4").begin);
  const auto after = run(LaunchOrder::after_compute);
  EXPECT_EQ(Time::us(25), after->span(0, "x3").begin);  // of all compute streams
  EXPECT_EQ(Time::us(10), after->span(0, "c4").begin);
  const auto blocking = run(LaunchOrder::blocking);
  EXPECT_EQ(Time::us(25), blocking->span(0, "x3").begin);
  EXPECT_EQ(blocking->span(0, "x3").end, blocking->span(0, "c4").begin);
  EXPECT_EQ(blocking->span(0, "x3").end, blocking->span(0, "c5").begin);
  EXPECT_LE(free->timeline.end(), after->timeline.end());
  EXPECT_LE(after->timeline.end(), blocking->timeline.end());
  // The default is the middle one.
  EXPECT_EQ(import(set).launch_edges, import_with(set, LaunchOrder::after_compute).launch_edges);
  EXPECT_EQ(0U, import_with(set, LaunchOrder::free).launch_edges);
}

TEST(Importer, LaunchOrderAddsFewEdges) {
  std::vector<Node> nodes;
  for (uint64_t k = 0; k < 400; ++k) {
    nodes.push_back(k % 4 == 3 ? coll_on(k, 14) : kernel(k, 1, k % 2 == 0 ? 7 : 20));
  }
  const auto set = alike(2, nodes);
  EXPECT_GE(2U * 2U * 100U, import(set).launch_edges);
  EXPECT_GE(2U * 4U * 100U, import_with(set, LaunchOrder::blocking).launch_edges);
  // Nothing new to wait for, no edge.
  EXPECT_EQ(2U, import(alike(2, {kernel(1, 1, 7), coll_on(2, 14), coll_on(3, 14)})).launch_edges);
  // Without streams nobody knows the launch order.
  EXPECT_EQ(0U,
            import(alike(2, {comp(1, 1), coll(2, CollectiveKind::all_reduce, 8)})).launch_edges);
}

TEST(Importer, LaunchOrderNeverClosesACycle) {
  // The kernel of the lower id waits for the collective of the higher one.
  auto late = kernel(1, 10, 7);
  late.data_deps = {5};
  for (const auto order : {LaunchOrder::after_compute, LaunchOrder::blocking}) {
    const auto i = import_with(alike(2, {late, kernel(3, 20, 20), coll_on(5, 14)}), order);
    OnRails sim(i.job, "trace", 1);
    sim.run();
    EXPECT_EQ(Time::us(20), sim.span(0, "x5").begin);
    EXPECT_EQ(sim.span(0, "x5").end, sim.span(0, "c1").begin);
  }
}

TEST(Importer, OldConversionsHaveTheStreamInTid) {
  auto a = comp(1, 10);
  a.tid = 7;
  auto x = coll(2, CollectiveKind::all_reduce, 1 << 20);
  x.tid = 14;
  auto host = comp(3, 5);
  host.is_cpu_op = true;
  host.tid = 1;
  const auto old = import(alike(2, {a, x, host}));
  EXPECT_TRUE(old.has_streams);
  EXPECT_EQ("stream 7", stream_of(old, "c1").name);
  EXPECT_EQ("stream 14", stream_of(old, "x2").name);
  EXPECT_EQ("host", stream_of(old, "c3").name);
  EXPECT_EQ(2U, old.launch_edges);
  // Newer ones write both: there the thread is the one that launched the kernel.
  host.stream = 0;
  const auto newer = import(alike(2, {a, x, host}));
  EXPECT_FALSE(newer.has_streams);
  EXPECT_EQ("compute", stream_of(newer, "c1").name);
}

// --- nodes --------------------------------------------------------------------------------------

TEST(Importer, HostSideOfACommunicationIsAHostOp) {
  Node x = make_node(1, NodeType::comm_coll, "c10d::allreduce_");
  Node s = make_node(2, NodeType::comm_send, "c10d::send");
  Node r = make_node(3, NodeType::comm_recv, "c10d::recv_");
  for (Node* n : {&x, &s, &r}) {
    n->is_cpu_op = true;
    n->duration_us = 11;
  }
  const auto i = import(alike(2, {x, s, r, coll(4, CollectiveKind::all_reduce, 64)}));
  EXPECT_TRUE(has(i, "comm_on_cpu"));
  for (const char* name : {"c10d::allreduce_", "c10d::send", "c10d::recv_"}) {
    EXPECT_EQ(OpKind::compute, op(i, name).kind) << name;
    EXPECT_EQ("host", stream_of(i, name).name) << name;
    EXPECT_EQ(Time::us(11), op(i, name).duration) << name;
  }
  EXPECT_EQ(OpKind::collective, op(i, "x4").kind);
  OnRails sim(i.job, "trace", 1);
  sim.run();
  EXPECT_EQ(Time::us(33), sim.timeline.end());
  EXPECT_EQ(1U, sim.timeline.collectives().size());
}

TEST(Importer, KindsOfNodes) {
  Node load = make_node(2, NodeType::mem_load, "load");
  load.tensor_size = 3350;
  Node c = comp(4, 0);
  c.num_ops = 1000;
  c.tensor_size = 10;
  const auto i = import(one_rank({make_node(1, NodeType::metadata, "meta"), load,
                                  make_node(3, NodeType::invalid, "nothing"), c}));
  EXPECT_EQ(OpKind::metadata, op(i, "meta").kind);
  EXPECT_EQ(OpKind::memory, op(i, "load").kind);
  EXPECT_EQ(3350, op(i, "load").bytes);
  EXPECT_EQ(OpKind::metadata, op(i, "nothing").kind);
  EXPECT_EQ(1000, op(i, "c4").flops);
  EXPECT_EQ(10, op(i, "c4").bytes);
  EXPECT_TRUE(i.has_flops);
  EXPECT_FALSE(i.has_durations);
  OnRails sim(i.job, "trace", 1);
  sim.run();
  EXPECT_EQ(Time::ns(1), sim.span(0, "load").end);  // 3350 B at 3350 GB/s (pains #26)
}

TEST(Importer, DurationsAreWholeMicroseconds) {
  auto host = comp(3, 9);
  host.is_cpu_op = true;
  const auto i = import(one_rank({comp(1, 0), comp(2, 864), host}));
  EXPECT_EQ(Time(), op(i, "c1").duration);
  EXPECT_EQ(Time::us(864), op(i, "c2").duration);
  EXPECT_TRUE(i.has_durations);
  // Each op is uncertain by up to 1 us; the report multiplies by their number.
  EXPECT_EQ(3U, i.summary.comp);
  EXPECT_EQ(873U, i.summary.comp_duration_us);
  EXPECT_FALSE(import(one_rank({host})).has_durations);  // host times say nothing of kernels
}

TEST(Importer, NumbersBeyondTheClockAreRefused) {
  expect_mentions(refusal(one_rank({comp(5, uint64_t{1} << 60)})),
                  {"t.0.et", "node 5", "duration"});
  Node n = comp(6, 1);
  n.tensor_size = int64_t{1} << 62;
  EXPECT_EQ(int64_t{1} << 62, op(import(one_rank({n}), 1), "c6").bytes);
  EXPECT_THROW((void)import(one_rank({n}), 2), UserError);
}

// --- dependencies -------------------------------------------------------------------------------

TEST(Importer, ControlEdgesThatCloseACycleAreDropped) {
  Node a = comp(1, 1);
  a.ctrl_deps = {2};
  const auto i = import(one_rank({a, comp(2, 1, {1})}));
  EXPECT_TRUE(has(i, "ctrl_cycle"));
  EXPECT_EQ(1U, graph(i).edge_count());
  OnRails sim(i.job, "trace", 1);
  sim.run();
  EXPECT_EQ(Time::us(1), sim.span(0, "c2").begin);
}

TEST(Importer, MissingControlParentsAreDroppedMissingDataParentsRefused) {
  Node a = comp(1, 1);
  a.ctrl_deps = {99};
  const auto i = import(one_rank({a}));
  EXPECT_TRUE(has(i, "missing_ctrl_parent"));
  EXPECT_EQ(0U, graph(i).edge_count());
  expect_mentions(refusal(one_rank({comp(1, 1, {99})})), {"t.0.et", "node 1", "99"});
}

// Pains #17.
TEST(Importer, IdZeroIsANodeLikeAnyOther) {
  Node b = comp(7, 1, {0});
  Node c = comp(8, 1);
  c.ctrl_deps = {0, 7};
  const auto i = import(one_rank({comp(0, 4), b, c}));
  EXPECT_TRUE(i.findings.empty());
  EXPECT_EQ(3U, graph(i).edge_count());
  OnRails sim(i.job, "trace", 1);
  sim.run();
  EXPECT_EQ(Time::us(4), sim.span(0, "c7").begin);
  EXPECT_EQ(Time::us(5), sim.span(0, "c8").begin);
}

TEST(Importer, ControlAndDataEdgesBothOrder) {
  Node c = comp(3, 1, {1});
  c.ctrl_deps = {2};
  Node d = comp(2, 9);
  d.stream = 5;
  const auto i = import(one_rank({comp(1, 2), d, c}));
  EXPECT_EQ(2U, graph(i).edge_count());
  OnRails sim(i.job, "trace", 1);
  sim.run();
  EXPECT_EQ(Time::us(9), sim.span(0, "c3").begin);
}

// --- groups -------------------------------------------------------------------------------------

TEST(Importer, GroupsByNameAlsoWrittenAsDecimals) {
  Node a = coll(1, CollectiveKind::all_reduce, 64);
  a.pg_name = "1.0";
  Node b = coll(2, CollectiveKind::all_gather, 64);
  Node z = coll(3, CollectiveKind::all_reduce, 64);
  z.pg_name = "0";
  TraceSet set = alike(4, {a, b, z});
  for (const uint32_t r : {2U, 3U}) set.ranks[r].nodes[0].pg_name = "2";
  set.groups = {{"1", {1, 0}}, {"2", {2, 3}}};
  const auto i = import(set);
  EXPECT_TRUE(has(i, "group_name_float"));
  const auto members = [&](uint32_t rank, const std::string& name) {
    const uint32_t slot = op(i, name, rank).group_slot;
    return i.job.groups[i.job.ranks[rank].binding.groups[slot]].members;
  };
  EXPECT_EQ((std::vector<uint32_t>{1, 0}), members(0, "x1"));  // listed order is ring order
  EXPECT_EQ((std::vector<uint32_t>{2, 3}), members(3, "x1"));
  for (const char* world : {"x2", "x3"}) {
    EXPECT_EQ((std::vector<uint32_t>{0, 1, 2, 3}), members(1, world)) << world;
  }
  EXPECT_EQ("world", i.job.groups[0].name);
  EXPECT_EQ(1U, i.rank_classes);  // only the bindings differ
}

TEST(Importer, AGroupWithoutListIsEverybody) {
  Node a = coll(1, CollectiveKind::all_reduce, 64);
  a.pg_name = "default";
  TraceSet set = alike(3, {a});
  set.groups = {{"default", {}}};
  const auto i = import(set);
  EXPECT_EQ((std::vector<uint32_t>{0, 1, 2}),
            i.job.groups[i.job.ranks[2].binding.groups[0]].members);
}

TEST(Importer, SubGroupTouchesItsMembersOnly) {  // pains #22
  Node a = coll(2, CollectiveKind::all_reduce, 1 << 20);
  a.pg_name = "1";
  TraceSet set = alike(4, {comp(1, 3), a});
  for (const uint32_t r : {0U, 2U}) set.ranks[r].nodes.pop_back();
  set.groups = {{"1", {1, 3}}};
  const auto i = import(set);
  OnRails sim(i.job, "trace", 2);
  sim.run();
  for (const auto& t : sim.fabric.transfers()) {
    EXPECT_EQ(1U, t.src % 2);
    EXPECT_EQ(1U, t.dst % 2);
  }
  EXPECT_EQ(2 << 20, sim.fabric.totals().payload_bytes);  // 2 x (N - 1) S
  EXPECT_EQ(Time::us(3), sim.timeline.rank_times()[0].finish);
}

TEST(Importer, WhatCannotRunIsRefused) {
  Node untyped = coll(1, CollectiveKind::all_reduce, 64);
  untyped.comm_type.reset();
  expect_mentions(refusal(alike(2, {untyped})), {"node 1", "comm_type"});
  Node unknown = coll(1, CollectiveKind::all_reduce, 64);
  unknown.pg_name = "77";
  expect_mentions(refusal(alike(2, {unknown})), {"node 1", "77"});
  TraceSet set = alike(2, {coll(1, CollectiveKind::all_reduce, 64)});
  set.ranks[1].nodes[0].comm_size = 65;
  expect_mentions(refusal(set), {"t.1.et", "65", "64"});
}

TEST(Importer, StrictRefusesRepairs) {
  Node a = comp(1, 1);
  a.ctrl_deps = {99};
  EXPECT_NO_THROW((void)import(one_rank({a})));
  expect_mentions(refusal(one_rank({a}), true), {"99"});
}

// --- sizes --------------------------------------------------------------------------------------

TEST(Importer, ElementBytes) {
  Node load = make_node(1, NodeType::mem_load, "load");
  load.tensor_size = 10;
  TraceSet set = alike(2, {load, coll(2, CollectiveKind::all_reduce, 100)});
  set.ranks[0].nodes.push_back(message(3, NodeType::comm_send, 1, 1000));
  set.ranks[1].nodes.push_back(message(3, NodeType::comm_recv, 0, 1000));
  const auto check = [&](const ChakraImport& i, int64_t element) {
    EXPECT_EQ(element, i.element_bytes);
    EXPECT_EQ(10 * element, op(i, "load").bytes);
    EXPECT_EQ(100 * element, op(i, "x2").bytes);
    EXPECT_EQ(1000 * element, op(i, "s3", 0).bytes);
    EXPECT_EQ(1000 * element, op(i, "r3", 1).bytes);
  };
  check(import(set), 1);
  check(import(set, 4), 4);
  for (auto& r : set.ranks) r.schema = "symbolic_tensor_network";  // STAGE counts elements
  check(import(set), 2);
  check(import(set, 1), 1);
}

TEST(Importer, MessageSizeMayStandInTensorSize) {
  TraceSet set = alike(2, {});
  for (uint32_t r = 0; r < 2; ++r) {
    Node n = message(1, r == 0 ? NodeType::comm_send : NodeType::comm_recv, 1 - r, 0);
    n.comm_size.reset();
    n.tensor_size = 4097;
    set.ranks[r].nodes = {n};
  }
  const auto i = import(set);
  OnRails sim(i.job, "trace", 1);
  sim.run();
  EXPECT_EQ(4097, sim.fabric.totals().payload_bytes);
}

class ImporterFiles : public chakra::test::ScratchTest {};

// The same attribute in another encoding must not read as 0 (ASTRA-sim #224).
TEST_F(ImporterFiles, AttributesOfEveryKindCount) {
  namespace pb = chakra::test;
  const auto zigzag = [](uint64_t v) { return 2 * v; };
  const std::vector<std::pair<const char*, std::string>> kinds = {
      {"int32", pb::num(7, 100'000)},           {"int64", pb::num(9, 100'000)},
      {"uint32", pb::num(11, 100'000)},         {"uint64", pb::num(13, 100'000)},
      {"sint32", pb::num(15, zigzag(100'000))}, {"sint64", pb::num(17, zigzag(100'000))},
      {"fixed32", pb::fixed32(19, 100'000)},    {"fixed64", pb::fixed64(21, 100'000)},
      {"sfixed32", pb::fixed32(23, 100'000)},   {"sfixed64", pb::fixed64(25, 100'000)}};
  for (const auto& [kind, size] : kinds) {
    SCOPED_TRACE(kind);
    for (int r = 0; r < 2; ++r) {
      const std::string x = pb::num(1, 3) + pb::bytes(2, "x") + pb::num(3, 7) +
                            pb::attr("comm_type", pb::num(11, 2)) + pb::attr("comm_size", size);
      (void)put("k." + std::to_string(r) + ".et", pb::meta() + pb::record(x));
    }
    const auto i = import(chakra::read_set(path("k")));
    EXPECT_EQ(CollectiveKind::all_gather, op(i, "x").collective);
    EXPECT_EQ(100'000, op(i, "x").bytes);
    OnRails sim(i.job, "trace", 1);
    sim.run();
    EXPECT_EQ(200'000, sim.fabric.totals().payload_bytes);  // N (N - 1) shards
  }
}

TEST_F(ImporterFiles, WhatTheWriterWritesRunsAlike) {
  Node a = coll(2, CollectiveKind::all_to_all, 80'000, {1});
  a.pg_name = "g";
  TraceSet set = alike(4, {comp(1, 25), a, comp(3, 5, {2})});
  set.groups = {{"g", {3, 2, 1, 0}}};
  for (uint32_t r = 0; r < 4; ++r) {
    chakra::write_rank(path("w." + std::to_string(r) + ".et"), set.ranks[r]);
  }
  chakra::write_group_file(path("comm_group.json"), set.groups);
  const auto direct = import(set);
  const auto read = import(chakra::read_set(path("w")));
  OnRails a_run(direct.job, "trace", 2);
  OnRails b_run(read.job, "trace", 2);
  a_run.run();
  b_run.run();
  EXPECT_EQ(a_run.timeline.fingerprint(), b_run.timeline.fingerprint());
  EXPECT_EQ(a_run.fabric.fingerprint(), b_run.fabric.fingerprint());
  EXPECT_EQ(4 * 3 * 20'000, b_run.fabric.totals().payload_bytes);
}

// --- messages -----------------------------------------------------------------------------------

TEST(Importer, MessagesMeetInOrderOfIds) {
  TraceSet set = alike(2, {});
  set.ranks[0].nodes = {message(9, NodeType::comm_send, 1, 5000, 3),
                        message(4, NodeType::comm_send, 1, 1000, 3)};
  set.ranks[1].nodes = {message(2, NodeType::comm_recv, 0, 1000, 3),
                        message(8, NodeType::comm_recv, 0, 5000, 3)};
  const auto i = import(set);
  OnRails sim(i.job, "trace", 1);
  sim.run();
  EXPECT_EQ(6000, sim.fabric.totals().payload_bytes);
}

// The validator warns and promises "it is sent and never claimed": the run must not hang.
TEST(Importer, UnclaimedSendIsSentAndTheRunEnds) {
  TraceSet set = alike(2, {comp(1, 10)});
  set.ranks[0].nodes.push_back(message(2, NodeType::comm_send, 1, 1000, 5));
  set.ranks[0].nodes.push_back(message(3, NodeType::comm_send, 1, 2000, 5));
  set.ranks[1].nodes.push_back(message(2, NodeType::comm_recv, 0, 1000, 5));
  const auto i = import(set);
  EXPECT_TRUE(has(i, "send_without_recv"));
  OnRails sim(i.job, "trace", 1);
  ASSERT_NO_FATAL_FAILURE(sim.run());
  EXPECT_EQ(3000, sim.fabric.totals().payload_bytes);
  EXPECT_EQ(Time::us(10), sim.timeline.end());
}

// --- rank classes -------------------------------------------------------------------------------

TEST(Importer, IdenticalRanksAreOneClass) {
  const std::vector<Node> nodes = {comp(1, 5), coll(2, CollectiveKind::all_reduce, 4096, {1}),
                                   comp(3, 6, {2})};
  TraceSet set = alike(16, nodes);
  EXPECT_EQ(1U, import(set).rank_classes);
  set.ranks[5].nodes[0].duration_us = 7;
  const auto two = import(set);
  EXPECT_EQ(2U, two.rank_classes);
  std::set<const OpGraph*> graphs;
  for (const auto& r : two.job.ranks) graphs.insert(r.graph.get());
  EXPECT_EQ(2U, graphs.size());
  EXPECT_EQ(Time::us(7), op(two, "c1", 5).duration);
  EXPECT_EQ(Time::us(5), op(two, "c1", 6).duration);
}

TEST(Importer, RanksThatDifferInPeersAndGroupsAreOneClass) {
  // 16 ranks: pairs reduce, each sends to the next pair's rank.
  TraceSet set = alike(16, {});
  for (uint32_t r = 0; r < 16; ++r) {
    Node x = coll(3, CollectiveKind::all_reduce, 4096);
    x.pg_name = std::to_string(1 + r / 2);
    set.ranks[r].nodes = {message(1, NodeType::comm_send, (r + 2) % 16, 500),
                          message(2, NodeType::comm_recv, (r + 14) % 16, 500), x};
    if (r % 2 == 0) set.groups.push_back({*x.pg_name, {r, r + 1}});
  }
  const auto i = import(set);
  EXPECT_EQ(1U, i.rank_classes);
  OnRails sim(i.job, "trace", 8);
  sim.run();
  EXPECT_EQ(16 * 500 + 8 * 2 * 4096, sim.fabric.totals().payload_bytes);
}

}  // namespace
}  // namespace trainyard
