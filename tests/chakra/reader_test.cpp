// SPDX-License-Identifier: MIT
// Reader and writer: encodings, damaged files, finding the files of a set.
#include "chakra/reader.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <random>

#include "chakra/writer.h"
#include "sim/errors.h"
#include "tests/chakra/chakra_test_util.h"

namespace trainyard::chakra::test {
namespace {

class Reader : public ScratchTest {
 protected:
  RankTrace read(const std::string& content) const { return read_rank(put("t.0.et", content)); }
  /// The message of the UserError that reading `content` must give.
  [[nodiscard]] std::string failure(const std::string& content) const {
    return message_of([&] { read(content); });
  }
  template <typename Call>
  static std::string message_of(const Call& call) {
    try {
      call();
    } catch (const UserError& error) {
      const std::string text = error.what();
      EXPECT_EQ(std::string::npos, text.find('\n')) << text;
      return text;
    }
    ADD_FAILURE() << "no UserError";
    return {};
  }
};

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE(std::string::npos, (text).find(part)) << "in: " << (text)

std::string gzip(const std::string& plain) {
  z_stream z{};
  deflateInit2(&z, Z_BEST_COMPRESSION, Z_DEFLATED, MAX_WBITS + 16, 9, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, plain.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  z.avail_in = static_cast<uInt>(plain.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

RankTrace full_trace() {
  RankTrace trace;
  trace.version = "0.0.4";
  Node comp;
  comp.id = 5;
  comp.name = "gemm \xc3\xa9";
  comp.type = NodeType::comp;
  comp.duration_us = 1234567;
  comp.num_ops = 1LL << 40;
  comp.tensor_size = 1 << 30;
  comp.is_cpu_op = true;
  comp.stream = 7;
  trace.nodes.push_back(comp);
  Node coll;
  coll.id = 1ULL << 63;
  coll.name = "reduce";
  coll.type = NodeType::comm_coll;
  coll.ctrl_deps = {5, 300};
  coll.data_deps = {5};
  coll.comm_type = 0;
  coll.comm_size = 3LL << 32;
  coll.pg_name = "tp0";
  trace.nodes.push_back(coll);
  Node send;
  send.id = 7;
  send.name = "send";
  send.type = NodeType::comm_send;
  send.comm_size = 8;
  send.comm_src = 0;
  send.comm_dst = 1;
  send.comm_tag = -3;
  trace.nodes.push_back(send);
  Node big_tag = send;
  big_tag.id = 8;
  big_tag.type = NodeType::comm_recv;
  big_tag.comm_tag = 1LL << 40;
  trace.nodes.push_back(big_tag);
  Node meta_node;
  meta_node.id = 9;
  meta_node.name = "## process_group:init ##";
  meta_node.type = NodeType::metadata;
  meta_node.inputs = R"(['[{"pg_name": "3", "ranks": [0, 2]}, {"pg_name": "0", "ranks": []}]'])";
  trace.nodes.push_back(meta_node);
  return trace;
}

void expect_same(const Node& a, const Node& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.ctrl_deps, b.ctrl_deps);
  EXPECT_EQ(a.data_deps, b.data_deps);
  EXPECT_EQ(a.duration_us, b.duration_us);
  EXPECT_EQ(a.is_cpu_op, b.is_cpu_op);
  EXPECT_EQ(a.num_ops, b.num_ops);
  EXPECT_EQ(a.tensor_size, b.tensor_size);
  EXPECT_EQ(a.comm_type, b.comm_type);
  EXPECT_EQ(a.comm_size, b.comm_size);
  EXPECT_EQ(a.comm_src, b.comm_src);
  EXPECT_EQ(a.comm_dst, b.comm_dst);
  EXPECT_EQ(a.comm_tag, b.comm_tag);
  EXPECT_EQ(a.pg_name, b.pg_name);
  EXPECT_EQ(a.stream, b.stream);
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_TRUE(b.notes.empty());
}

// --- round trip -------------------------------------------------------------------------------

TEST_F(Reader, RoundTripPlainAndGzip) {
  const RankTrace written = full_trace();
  for (const char* name : {"a.0.et", "a.0.et.gz"}) {
    SCOPED_TRACE(name);
    write_rank(path(name), written);
    const RankTrace read = read_rank(path(name));
    EXPECT_EQ("0.0.4", read.version);
    EXPECT_EQ(path(name), read.file);
    ASSERT_EQ(written.nodes.size(), read.nodes.size());
    for (size_t i = 0; i < read.nodes.size(); ++i) expect_same(written.nodes[i], read.nodes[i]);
    ASSERT_EQ(2U, read.groups.size());
    EXPECT_EQ("3", read.groups[0].name);
    EXPECT_EQ((std::vector<uint32_t>{0, 2}), read.groups[0].ranks);
    EXPECT_TRUE(read.groups[1].ranks.empty());
  }
  EXPECT_EQ('\x1f', slurp(path("a.0.et.gz"))[0]);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir_)) {
    EXPECT_EQ(std::string::npos, entry.path().string().find(".tmp"));
    ++files;
  }
  EXPECT_EQ(2, files);
}

TEST_F(Reader, WriterUsesTheKindsOfTheFeeder) {
  write_rank(path("a.0.et"), full_trace());
  const std::string bytes_written = slurp(path("a.0.et"));
  for (const std::string& expected :
       {attr("num_ops", num(9, 1ULL << 40)), attr("tensor_size", num(13, 1 << 30)),
        attr("comm_type", num(9, 0)), attr("comm_size", num(9, 8)), attr("comm_src", num(7, 0)),
        attr("comm_dst", num(7, 1)), attr("is_cpu_op", num(27, 1)),
        attr("pg_name", bytes(29, "tp0"))}) {
    EXPECT_NE(std::string::npos, bytes_written.find(expected)) << expected.substr(4, 14);
  }
}

TEST_F(Reader, WriterFailsAsAWhole) {
  EXPECT_THROW(write_rank(path("none/a.0.et"), full_trace()), UserError);
  RankTrace bad = full_trace();
  bad.nodes.back().name = "\xff";
  EXPECT_THROW(write_rank(path("b.0.et"), bad), UserError);
  bad.nodes.back().name = "x";
  bad.nodes[0].tensor_size = -1;
  EXPECT_THROW(write_rank(path("b.0.et"), bad), UserError);
  EXPECT_TRUE(std::filesystem::is_empty(dir_));
}

TEST_F(Reader, GroupFileRoundTripKeepsTheOrder) {
  write_group_file(path("comm_group.json"), {{"z\"1", {3, 1, 2}}, {"a", {}}});
  const auto groups = read_group_file(path("comm_group.json"));
  ASSERT_EQ(2U, groups.size());
  EXPECT_EQ("z\"1", groups[0].name);
  EXPECT_EQ((std::vector<uint32_t>{3, 1, 2}), groups[0].ranks);
  EXPECT_EQ("a", groups[1].name);
  write_group_file(path("comm_group.json"), {});
  EXPECT_TRUE(read_group_file(path("comm_group.json")).empty());
}

TEST_F(Reader, BadGroupFiles) {
  const auto fail = [&](const std::string& text) {
    return message_of([&] { read_group_file(put("g.json", text)); });
  };
  EXPECT_CONTAINS(fail("{\n\"1\": [0,\n]}"), "g.json:3: ");
  EXPECT_CONTAINS(fail(""), "not valid JSON");
  EXPECT_CONTAINS(fail("[1]"), "not a JSON object");
  EXPECT_CONTAINS(fail("{\"1\": 3}"), "not a list");
  EXPECT_CONTAINS(fail("{\"1\": [-1]}"), "no rank");
  EXPECT_CONTAINS(fail("{\"1\": [1.0]}"), "no rank");
  EXPECT_CONTAINS(fail("{\"1\": [4294967296]}"), "no rank");
  EXPECT_CONTAINS(fail("{\"1\": [0], \"1\": [1]}"), "defined twice");
  EXPECT_CONTAINS(fail(std::string(100000, '[')), "not valid JSON");
  EXPECT_THROW(read_group_file(path("absent.json")), UserError);
}

// --- encodings --------------------------------------------------------------------------------

TEST_F(Reader, GzipIsToldByContent) {
  const std::string plain = meta() + record(num(1, 4) + num(3, 4));
  EXPECT_EQ(4U, read(gzip(plain)).nodes.at(0).id);
  EXPECT_EQ(4U, read_rank(put("p.0.et.gz", plain)).nodes.at(0).id);
  const RankTrace members = read(gzip(meta()) + gzip(record(num(1, 4))) + gzip(record(num(1, 5))));
  EXPECT_EQ(2U, members.nodes.size());
}

struct Kind {
  const char* name;
  std::string value;  // encodes 6
  bool noted;
};

TEST_F(Reader, EveryScalarKindGivesTheSameValue) {
  const std::vector<Kind> kinds = {
      {"double", fixed64(3, std::bit_cast<uint64_t>(6.0)), true},
      {"float", fixed32(5, std::bit_cast<uint32_t>(6.0F)), true},
      {"int32", num(7, 6), false},
      {"int64", num(9, 6), false},
      {"uint32", num(11, 6), false},
      {"uint64", num(13, 6), false},
      {"sint32", num(15, 12), false},
      {"sint64", num(17, 12), false},
      {"fixed32", fixed32(19, 6), false},
      {"fixed64", fixed64(21, 6), false},
      {"sfixed32", fixed32(23, 6), false},
      {"sfixed64", fixed64(25, 6), false},
      {"string", bytes(29, "6"), true},
      {"bytes", bytes(31, "6"), true},
  };
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.name);
    std::string message = num(1, 1) + num(3, 7);
    for (const char* name : {"num_ops", "tensor_size", "comm_type", "comm_size", "comm_src",
                             "comm_dst", "comm_tag", "stream", "is_cpu_op"}) {
      message += attr(name, kind.value);
    }
    const Node node = read(meta() + record(message)).nodes.at(0);
    EXPECT_EQ(6, node.num_ops);
    EXPECT_EQ(6, node.tensor_size);
    EXPECT_EQ(6, node.comm_type);
    EXPECT_EQ(6, node.comm_size);
    EXPECT_EQ(6, node.comm_src);
    EXPECT_EQ(6, node.comm_dst);
    EXPECT_EQ(6, node.comm_tag);
    EXPECT_EQ(6, node.stream);
    EXPECT_TRUE(node.is_cpu_op);
    EXPECT_EQ(kind.noted ? 9U : 0U, node.notes.size());
  }
}

TEST_F(Reader, NegativeValuesOfEverySignedKind) {
  for (const std::string& value :
       {num(7, static_cast<uint64_t>(-5)), num(9, static_cast<uint64_t>(-5)), num(15, 9),
        num(17, 9), fixed32(23, static_cast<uint32_t>(-5)), fixed64(25, static_cast<uint64_t>(-5)),
        fixed64(3, std::bit_cast<uint64_t>(-5.0)), bytes(29, "-5")}) {
    EXPECT_EQ(-5, read(meta() + record(num(1, 1) + attr("comm_tag", value))).nodes.at(0).comm_tag);
  }
}

TEST_F(Reader, OtherFormsOfValues) {
  const auto node = [&](const std::string& attributes) {
    return read(meta() + record(num(1, 1) + num(3, 7) + attributes)).nodes.at(0);
  };
  EXPECT_EQ(0, node(attr("comm_type", bytes(29, "ALL_REDUCE"))).comm_type);
  EXPECT_EQ(7, node(attr("comm_type", bytes(29, "reduce_scatter"))).comm_type);
  EXPECT_EQ(1, node(attr("comm_size", num(27, 1))).comm_size);
  EXPECT_EQ(std::nullopt, node(attr("comm_size", "")).comm_size);
  EXPECT_EQ(9, node(attr("comm_size", num(9, 8)) + attr("comm_size", num(9, 9))).comm_size);
  EXPECT_EQ(9, node(attr("comm_size", num(9, 8) + num(13, 9))).comm_size);
  EXPECT_EQ(4, node(bytes(10, num(9, 4) + bytes(1, "comm_size"))).comm_size);  // value before name
  EXPECT_TRUE(node(attr("is_cpu_op", bytes(29, "true"))).is_cpu_op);
  EXPECT_FALSE(node(attr("is_cpu_op", num(7, 0))).is_cpu_op);
  EXPECT_EQ("1.0", node(attr("pg_name", bytes(29, "1.0"))).pg_name);
  EXPECT_EQ("3", node(attr("pg_name", num(7, 3))).pg_name);
  EXPECT_EQ("4", node(attr("comm_group", num(7, 4))).pg_name);
  EXPECT_EQ("x", node(attr("pg_name", bytes(29, "x")) + attr("comm_group", num(7, 4))).pg_name);
  EXPECT_EQ(1U,
            node(attr("involved_dim", bytes(28, bytes(1, std::string("\1\0", 2))))).notes.size());
  EXPECT_TRUE(node(attr("involved_dim", bytes(28, bytes(1, "\1\1")))).notes.empty());
  // Lists of attributes that nobody asks for.
  EXPECT_TRUE(node(attr("inputs", bytes(30, bytes(1, "a")))).notes.empty());
  EXPECT_EQ(1U, node(attr("seq_id", num(9, ~0ULL))).id);
}

TEST_F(Reader, ValuesThatAreNoWholeNumbers) {
  const auto fail = [&](const std::string& value) {
    return failure(meta() + record(num(1, 12) + attr("comm_size", value)));
  };
  EXPECT_CONTAINS(fail(fixed64(3, std::bit_cast<uint64_t>(1.5))), "node 12: attribute comm_size");
  EXPECT_CONTAINS(fail(fixed64(3, std::bit_cast<uint64_t>(1e30))), "not a whole number");
  EXPECT_CONTAINS(fail(fixed32(5, 0x7fc00000)), "not a whole number");  // NaN
  EXPECT_CONTAINS(fail(bytes(29, "many\n")), "the string \"many?\"");
  EXPECT_CONTAINS(fail(bytes(29, "")), "the string");
  EXPECT_CONTAINS(fail(num(13, ~0ULL)), "exceeds 2^63");
  EXPECT_CONTAINS(fail(bytes(10, "")), "is a list");
}

TEST_F(Reader, FieldsInAnyOrderPackedOrNot) {
  const std::string packed = num(1, 9) + bytes(2, "n") + num(3, 4) +
                             bytes(4, varint(1) + varint(300)) + bytes(5, varint(2)) + num(7, 8) +
                             attr("num_ops", num(9, 3));
  const std::string shuffled = attr("num_ops", num(9, 3)) + num(4, 1) + num(7, 8) + num(5, 2) +
                               num(3, 4) + bytes(2, "n") + bytes(4, varint(300)) + num(1, 9);
  const Node a = read(meta() + record(packed)).nodes.at(0);
  const Node b = read(meta() + record(shuffled)).nodes.at(0);
  expect_same(a, b);
  EXPECT_EQ((std::vector<uint64_t>{1, 300}), b.ctrl_deps);
  EXPECT_EQ(std::vector<uint64_t>{2}, b.data_deps);
}

TEST_F(Reader, UnknownFieldsAreSkipped) {
  const std::string group = tag(40, 3) + num(1, 5) + tag(40, 4);
  const Node node = read(meta() + record(num(1, 9) + num(3, 4) + bytes(99, "x") + fixed32(98, 1) +
                                         fixed64(97, 1) + num(96, 1) + group + num(7, 2)))
                        .nodes.at(0);
  EXPECT_EQ(9U, node.id);
  EXPECT_EQ(2U, node.duration_us);
  // Even where an old schema has its attributes, once the file has shown that it is 0.0.4.
  const std::string like_old = bytes(11, bytes(1, "x") + num(2, 1) + num(5, 1));
  EXPECT_EQ(1U,
            read(meta() + record(num(1, 9) + attr("num_ops", num(9, 1)) + like_old)).nodes.size());
}

TEST_F(Reader, EmptyRecords) {
  const RankTrace trace = read(record("") + record("") + record(num(1, 1)));
  ASSERT_EQ(2U, trace.nodes.size());
  EXPECT_EQ(0U, trace.nodes[0].id);
  EXPECT_EQ(NodeType::invalid, trace.nodes[0].type);
  EXPECT_EQ("", trace.version);
  EXPECT_TRUE(read(record("")).nodes.empty());
}

TEST_F(Reader, FileWithoutMetadata) {
  const std::string node =
      record(num(1, 3) + bytes(2, "n") + num(3, 4) + attr("num_ops", num(9, 1)));
  EXPECT_EQ(2U, read(node + node).nodes.size());
  // A name alone is a node, too; a metadata record has attributes there.
  EXPECT_EQ(1U, read(record(bytes(2, "name"))).nodes.size());
  EXPECT_EQ(0U, read(record(bytes(2, bytes(1, "schema") + bytes(29, "1")))).nodes.size());
}

// --- old schemas ------------------------------------------------------------------------------

std::string old_attr(const std::string& name, uint64_t type, const std::string& value) {
  return bytes(11, bytes(1, name) + num(2, type) + bytes(3, "doc") + value);
}

TEST_F(Reader, Schema001) {
  const std::string coll = record(num(1, 11) + bytes(2, "x") + num(3, 6) + num(4, 10) + num(13, 2) +
                                  num(14, 1) + num(15, 3) + num(18, 1024));
  const std::string send = record(num(1, 12) + num(3, 4) + bytes(4, varint(10) + varint(11)) +
                                  num(16, 0) + num(17, 1) + num(18, 8) + num(19, 7));
  const std::string load = record(num(1, 13) + num(3, 1) + num(5, 2) + num(6, 4096));
  // The first node shows nothing: its type is known once a later one does.
  const RankTrace t = read(record(num(1, 10) + num(3, 3)) + coll + send + load +
                           record(num(1, 14) + num(3, 3) + num(7, 5) + num(12, 100)));
  EXPECT_EQ("0.0.1", t.dialect);
  ASSERT_EQ(5U, t.nodes.size());
  EXPECT_EQ(NodeType::comp, t.nodes[0].type);
  EXPECT_EQ(NodeType::comm_coll, t.nodes[1].type);
  EXPECT_EQ(6, t.nodes[1].comm_type);  // all-to-all
  EXPECT_EQ(1024, t.nodes[1].comm_size);
  EXPECT_EQ("3", t.nodes[1].pg_name);
  EXPECT_EQ(std::vector<uint64_t>{10}, t.nodes[1].data_deps);
  EXPECT_EQ(NodeType::comm_send, t.nodes[2].type);
  EXPECT_EQ((std::vector<uint64_t>{10, 11}), t.nodes[2].data_deps);
  EXPECT_EQ(0, t.nodes[2].comm_src);
  EXPECT_EQ(1, t.nodes[2].comm_dst);
  EXPECT_EQ(7, t.nodes[2].comm_tag);
  EXPECT_EQ(NodeType::mem_load, t.nodes[3].type);
  EXPECT_EQ(4096, t.nodes[3].tensor_size);
  EXPECT_EQ(5U, t.nodes[4].duration_us);
  EXPECT_EQ(100, t.nodes[4].num_ops);
  for (const Node& node : t.nodes) EXPECT_TRUE(node.notes.empty());
}

TEST_F(Reader, Schema001WithoutDecisiveFields) {
  const RankTrace t = read(record(num(1, 0) + bytes(2, "C") + num(3, 3) + num(7, 5)) +
                           record(num(1, 1) + num(3, 3) + num(4, 0) + num(7, 6)));
  EXPECT_EQ("0.0.1", t.dialect);
  EXPECT_EQ(NodeType::comp, t.nodes.at(0).type);
  EXPECT_EQ(5U, t.nodes[0].duration_us);
  EXPECT_EQ(std::vector<uint64_t>{0}, t.nodes.at(1).data_deps);
  // Local memory and unknown numbers are not passed over in silence.
  const RankTrace odd =
      read(record(num(1, 1) + num(3, 2) + num(5, 1) + num(6, 8)) +
           record(num(1, 2) + num(3, 6) + num(13, 9) + num(18, 8)) + record(num(1, 3) + num(3, 7)));
  EXPECT_EQ(1U, odd.nodes.at(0).notes.size());
  EXPECT_EQ(-1, odd.nodes.at(1).comm_type);
  EXPECT_GT(odd.nodes.at(2).type, NodeType::comm_coll);
}

TEST_F(Reader, Schemas002And003) {
  struct Case {
    std::string dialect;
    uint64_t coll_type;   // node type as written
    uint64_t declared;    // of an integer
    int integer, string;  // fields of the values
  };
  for (const Case& c :
       {Case{"0.0.2", 6, 1, 5, 6}, Case{"0.0.3", 7, 2, 6, 7}, Case{"0.0.3+uint", 7, 3, 7, 8}}) {
    SCOPED_TRACE(c.dialect);
    const auto integer = [&](const char* name, uint64_t value) {
      return old_attr(name, c.declared, num(c.integer, value));
    };
    // Nothing in the first record tells; strings stand where 0.0.4 has messages.
    const std::string first = record(num(1, 9) + num(3, c.coll_type - 3));
    const std::string coll =
        record(num(1, 10) + bytes(2, "n") + num(3, c.coll_type) + num(4, 9) + bytes(5, "[[1, 2]]") +
               bytes(8, "[]") + bytes(10, "['Tensor(float)']") + integer("comm_type", 3) +
               integer("comm_size", 64) + integer("runtime", 7) +
               old_attr("pg_name", c.declared + 1, bytes(c.string, "tp")));
    const RankTrace t = read(first + coll);
    EXPECT_EQ(c.dialect, t.dialect);
    ASSERT_EQ(2U, t.nodes.size());
    EXPECT_EQ(NodeType::comp, t.nodes[0].type);
    EXPECT_EQ(NodeType::comm_coll, t.nodes[1].type);
    EXPECT_EQ(7, t.nodes[1].comm_type);  // reduce-scatter
    EXPECT_EQ(64, t.nodes[1].comm_size);
    EXPECT_EQ(7U, t.nodes[1].duration_us);
    EXPECT_EQ("tp", t.nodes[1].pg_name);
    EXPECT_EQ(std::vector<uint64_t>{9}, t.nodes[1].data_deps);
    EXPECT_TRUE(t.nodes[1].notes.empty());
  }
}

TEST_F(Reader, OddOldAttributes) {
  // Declares an integer, carries a string.
  const RankTrace wrong =
      read(record(num(1, 1) + num(3, 1) + old_attr("string", 3, bytes(8, "12345"))));
  EXPECT_EQ("0.0.3+uint", wrong.dialect);
  EXPECT_EQ(1U, wrong.nodes.at(0).notes.size());
  // Field 8 as a number is bools in 0.0.3, unless it is no bool.
  EXPECT_EQ("0.0.3", read(record(num(1, 1) + old_attr("b", 4, num(8, 1)))).dialect);
  EXPECT_EQ("0.0.2", read(record(num(1, 1) + old_attr("i", 4, num(8, 3)))).dialect);
  EXPECT_EQ("0.0.3", read(meta() + record(num(1, 1) + old_attr("b", 4, num(8, 1)))).dialect);
  const RankTrace dims = read(record(num(1, 1) + num(3, 7) + old_attr("comm_type", 2, num(6, 0)) +
                                     old_attr("involved_dim", 4, num(8, 1) + num(8, 0))));
  EXPECT_EQ(1U, dims.nodes.at(0).notes.size());
  EXPECT_CONTAINS(failure(record(num(1, 1) + old_attr("a", 1, num(5, 1))) +
                          record(num(1, 2) + old_attr("a", 3, num(7, 1)))),
                  "another schema generation");
  EXPECT_CONTAINS(failure(meta() + record(num(1, 1) + old_attr("a", 1, num(5, 1)))),
                  "another schema generation");
}

TEST_F(Reader, OldMetadata) {
  const RankTrace t = read(record(bytes(1, bytes(1, "schema") + num(2, 4) + bytes(8, "1.0.1"))) +
                           record(num(1, 1) + num(3, 4) + old_attr("runtime", 3, num(7, 5))));
  EXPECT_EQ("0.0.3+uint", t.dialect);
  EXPECT_EQ("1.0.1", t.schema);
  EXPECT_EQ(5U, t.nodes.at(0).duration_us);
}

// --- JSON -------------------------------------------------------------------------------------

constexpr const char* kJsonNode =
    R"({"id": "5", "name": "x", "type": "COMM_COLL_NODE", "ctrlDeps": ["3", 4], "dataDeps": [2],
 "durationMicros": "7", "attr": [{"name": "comm_size", "int64Val": "64"},
 {"name": "comm_type", "uint32_val": 2}, {"name": "is_cpu_op", "boolVal": false},
 {"name": "pg_name", "stringVal": "12"}, {"name": "stream", "int64Val": "20"},
 {"name": "inputs", "stringList": {"values": ["a"]}}]})";

TEST_F(Reader, JsonForms) {
  const std::string node = kJsonNode;
  const std::string feeder =
      R"({"ngpus": 2, "workload_graph": [{"Id": 5, "Name": "x", "NodeType": 7, "runtime": 7.0,
          "ctrlDeps": [3, 4], "data_deps": [2], "comm_size": 64, "comm_type": "ALL_GATHER",
          "is_cpu_op": false, "pg_name": "12", "stream": "20"}], "soc": {"a": [1]}})";
  const std::string stage =
      R"({"nodes": [{"id": 5, "name": "x", "node_type": "coll_comm_node", "duration_micros": 7,
          "ctrl_deps": [3, 4], "data_deps": [2], "comm_size": 64.0, "comm_type": "ALL_GATHER",
          "comm_group": 12, "stream": 20, "inputs": [{"name": "a", "size": 1.0}]}]})";
  const std::string metadata =
      R"({"version": "0.0.4", "attr": [{"name": "schema", "stringVal": "s"}]})";
  struct Case {
    std::string text, dialect;
  };
  for (const Case& c : {Case{metadata + "\n" + node, "JSON stream"}, Case{node, "JSON stream"},
                        Case{"\xef\xbb\xbf [" + node + "]", "JSON array"},
                        Case{"[" + metadata + "," + node + "]\n", "JSON array"},
                        Case{feeder, "feeder JSON"}, Case{stage, "STAGE JSON"}}) {
    for (const std::string& content : {c.text, gzip(c.text)}) {
      SCOPED_TRACE(c.text);
      const RankTrace t = read(content);
      EXPECT_EQ(c.dialect, t.dialect);
      ASSERT_EQ(1U, t.nodes.size());
      const Node& n = t.nodes[0];
      EXPECT_EQ(5U, n.id);
      EXPECT_EQ("x", n.name);
      EXPECT_EQ(NodeType::comm_coll, n.type);
      EXPECT_EQ((std::vector<uint64_t>{3, 4}), n.ctrl_deps);
      EXPECT_EQ(std::vector<uint64_t>{2}, n.data_deps);
      EXPECT_EQ(7U, n.duration_us);
      EXPECT_EQ(64, n.comm_size);
      EXPECT_EQ(2, n.comm_type);
      EXPECT_EQ("12", n.pg_name);
      EXPECT_EQ(20, n.stream);
      EXPECT_TRUE(n.notes.empty());
    }
  }
  const RankTrace with_metadata = read(metadata + node + node);
  EXPECT_EQ(2U, with_metadata.nodes.size());
  EXPECT_EQ("0.0.4", with_metadata.version);
  EXPECT_EQ("s", with_metadata.schema);
  EXPECT_TRUE(read("[]").nodes.empty());
  EXPECT_TRUE(read("{\"nodes\": []}").nodes.empty());
  EXPECT_EQ(1U, read("{\"name\": \"defaults only\"}").nodes.size());
}

TEST_F(Reader, JsonProcessGroupsAndDimensions) {
  const RankTrace t = read(
      R"([{"id": 3, "type": "METADATA_NODE", "name": "## process_group:init ##",
           "inputs": {"values": "[{\"pg_name\": \"7\", \"ranks\": [4, 5]}]"}},
          {"id": "18446744073709551615", "type": 7,
           "attr": [{"name": "involved_dim", "boolList": {"values": [true, false]}}]}])");
  ASSERT_EQ(1U, t.groups.size());
  EXPECT_EQ("7", t.groups[0].name);
  EXPECT_EQ(~0ULL, t.nodes.at(1).id);
  EXPECT_EQ(1U, t.nodes[1].notes.size());
}

TEST_F(Reader, BrokenJson) {
  EXPECT_CONTAINS(failure("[\n{\"id\": 1},\n{\"id\": x}]"), "t.0.et:3: is not valid JSON");
  EXPECT_CONTAINS(failure("[\n{\"id\": 1,\n\"name\": oops}]"), "t.0.et:3: is not valid JSON");
  EXPECT_CONTAINS(failure("[{\"id\": 1}\n"), "t.0.et:2: expected ']'");
  EXPECT_CONTAINS(failure("[{\"id\": 1"), "ends within a value");
  EXPECT_CONTAINS(failure("{\"id\": \"1"), "ends within a string");
  EXPECT_CONTAINS(failure("{\"id\": \"1\n\"}"), "does not end on its line");
  EXPECT_CONTAINS(failure("[{\"id\": [}]"), "no such bracket");
  EXPECT_CONTAINS(failure("[{\"id\": 1}] x"), "something follows");
  EXPECT_CONTAINS(failure("[{\"id\": 1}, 3]"), "expected an object");
  EXPECT_CONTAINS(failure("{\"nodes\": [], \"nodes\": []}"), "a second list of nodes");
  EXPECT_CONTAINS(failure("\n[{\"id\": -1}]"), "t.0.et:2: node 0: the id is no whole number");
  EXPECT_CONTAINS(failure("[{\"id\": 1e999}]"), "beyond all bounds");
  EXPECT_CONTAINS(failure("[{\"id\": 4, \"type\": \"SOMETHING\"}]"), "node type is not known");
  EXPECT_CONTAINS(failure("[{\"id\": 4, \"data_deps\": 3}]"), "data_deps is no list");
  EXPECT_CONTAINS(failure("[\n\n{\"id\": 4, \"comm_size\": \"big\"}]"),
                  "t.0.et:3: node 4: attribute comm_size is the string \"big\"");
  EXPECT_CONTAINS(failure("{\"a\": 1}"), "neither id nor name nor type");
  EXPECT_CONTAINS(failure("{\"schemaVersion\": 1, \"traceEvents\": []}"), "Kineto profile");
  EXPECT_CONTAINS(failure("{\"schema\": \"1.0.1\", \"pid\": 1, \"nodes\": []}"),
                  "raw PyTorch execution trace");
  const std::string node = kJsonNode;
  for (size_t size = 1; size < node.size(); ++size) {
    EXPECT_THROW(read(node.substr(0, size)), UserError) << size;
  }
}

TEST_F(Reader, JsonBombsAreRefused) {
  EXPECT_CONTAINS(failure("[{\"id\": " + std::string(1 << 20, '[')), "64 levels");
  EXPECT_CONTAINS(failure("[{\"name\": \"" + std::string(17 << 20, 'x') + "\"}]"), "16 MiB");
  std::string many = "{\"a0\": \"" + std::string(1 << 20, 'x') + "\"";
  for (int i = 1; i < 20; ++i) {
    many += ",\"a" + std::to_string(i) + "\": \"" + std::string(1 << 20, 'x') + "\"";
  }
  EXPECT_CONTAINS(failure(many + "}"), "16 MiB");
  EXPECT_CONTAINS(failure(gzip("[{" + std::string(60 << 20, ' '))), "200 times");
}

TEST_F(Reader, AnyChangedByteOfJsonIsReadOrRefused) {
  const std::string good = "[" + std::string(kJsonNode) + "]";
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char c : {'"', '}', '\xff'}) {
      std::string bad = good;
      bad[i] = c;
      try {
        read(bad);
      } catch (const UserError&) {
        continue;
      }
    }
  }
}

TEST_F(Reader, ProcessGroupsInSeveralNotations) {
  const auto groups = [&](const std::string& values) {
    return read(meta() + record(num(1, 3) + num(3, 1) + bytes(2, "## process_group:init ##") +
                                bytes(8, bytes(1, values))));
  };
  for (const char* values :
       {R"(['[{"pg_name": "7", "ranks": [4, 5]}]'])", R"([{"pg_name": "7", "ranks": [4, 5]}])",
        R"(["[{\"pg_name\": \"7\", \"ranks\": [4, 5]}]"])",
        R"([{"pg_name": 7, "ranks": [4, 5]}])"}) {
    SCOPED_TRACE(values);
    const RankTrace trace = groups(values);
    ASSERT_EQ(1U, trace.groups.size());
    EXPECT_EQ("7", trace.groups[0].name);
    EXPECT_EQ((std::vector<uint32_t>{4, 5}), trace.groups[0].ranks);
    EXPECT_TRUE(trace.nodes[0].notes.empty());
  }
  EXPECT_TRUE(groups("[]").nodes[0].notes.empty());
  for (const char* values : {"nonsense", "[{]}]", R"([{"pg_name": "7", "ranks": [-1]}])"}) {
    EXPECT_TRUE(groups(values).groups.empty());
    EXPECT_EQ(1U, groups(values).nodes[0].notes.size()) << values;
  }
}

// --- damage -----------------------------------------------------------------------------------

TEST_F(Reader, DamagedFiles) {
  const std::string good = meta() + record(num(1, 1) + num(3, 4) + num(7, 5));
  EXPECT_CONTAINS(failure(""), "is empty");
  EXPECT_CONTAINS(failure(gzip("")), "is empty");
  EXPECT_CONTAINS(failure(good.substr(0, good.size() - 1)), "record 2 at byte 8");
  EXPECT_CONTAINS(failure(good + varint(1 << 20)), "only 0 are left");
  EXPECT_CONTAINS(failure(good + varint(1ULL << 40)), "more than any record has");
  EXPECT_CONTAINS(failure(good + std::string(11, '\xff')), "broken length");
  EXPECT_CONTAINS(failure(good + "\x80"), "broken length");
  EXPECT_CONTAINS(failure(good + record("\xff\xff\xff")), "record 3 at byte 15 is malformed");
  EXPECT_CONTAINS(failure(good + record(tag(2, 2) + varint(100) + "x")), "is malformed");
  EXPECT_CONTAINS(failure(good + record(bytes(4, "\x80"))), "control dependencies");
  EXPECT_CONTAINS(failure(good + record(bytes(5, "\x80"))), "data dependencies");
  EXPECT_CONTAINS(failure(good + record(num(1, 2) + bytes(10, "\x0a\x7f"))), "malformed attribute");
  EXPECT_CONTAINS(failure(good + meta()), "is not a node");  // two traces in one file
  EXPECT_CONTAINS(failure("{ nodes: []}"), "byte 0");
  EXPECT_CONTAINS(message_of([&] { read_rank(path("absent")); }), "cannot open");
  EXPECT_CONTAINS(message_of([&] { read_rank(dir_.string()); }), "is a folder");
}

TEST_F(Reader, DamagedGzip) {
  const std::string good = meta() + record(num(1, 1) + num(3, 4) + num(7, 5));
  const std::string packed = gzip(good);
  for (size_t size = 2; size < packed.size(); ++size) {
    EXPECT_THROW(read(packed.substr(0, size)), UserError) << size;
  }
  std::string wrong_sum = packed;
  wrong_sum[packed.size() - 8] = static_cast<char>(wrong_sum[packed.size() - 8] ^ 1);
  EXPECT_CONTAINS(failure(wrong_sum), "broken gzip data");
  EXPECT_CONTAINS(failure(packed + "tail"), "broken gzip data");
  EXPECT_CONTAINS(failure(gzip(good + varint(1 << 29) + "few")), "is cut off");
}

TEST_F(Reader, BombsAreRefusedEarly) {
  EXPECT_CONTAINS(failure(gzip(std::string(64 << 20, '\0'))), "empty records in a row");
  EXPECT_CONTAINS(failure(gzip(meta() + varint(60 << 20) + std::string(60 << 20, '\0'))),
                  "expand more than 200 times");
  EXPECT_CONTAINS(failure(std::string(1 << 20, '\0')), "empty records in a row");
}

TEST_F(Reader, AnyChangedByteIsReadOrRefused) {
  write_rank(path("a.0.et"), full_trace());
  write_rank(path("b.0.et.gz"), full_trace());
  int refused = 0;
  for (const char* name : {"a.0.et", "b.0.et.gz"}) {
    const std::string good = slurp(path(name));
    for (size_t i = 0; i < good.size(); ++i) {
      for (const int change : {0x01, 0x80}) {
        std::string bad = good;
        bad[i] = static_cast<char>(bad[i] ^ change);
        try {
          read(bad);
        } catch (const UserError&) {
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(refused, 100);
}

TEST_F(Reader, RandomBytesAreReadOrRefused) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): a fixed seed, so that failures repeat
  int refused = 0;
  for (int run = 0; run < 800; ++run) {
    std::string content(random() % 200, '\0');
    for (char& c : content) c = static_cast<char>(run % 2 == 0 ? random() : random() % 48);
    if (run % 3 == 0) content = meta() + content;
    try {
      read(content);
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

// --- files of a set ---------------------------------------------------------------------------

class Files : public Reader {
 protected:
  void make(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      std::filesystem::create_directories((dir_ / name).parent_path());
      (void)put(name, meta() + record(num(1, 1) + num(3, 4)));
    }
  }
  [[nodiscard]] std::vector<std::string> found(const std::string& where) const {
    std::vector<std::string> names;
    for (const std::string& file : find_rank_files(where)) {
      names.push_back(std::filesystem::path(file).filename().string());
    }
    return names;
  }
  [[nodiscard]] std::string fails(const std::string& where) const {
    return message_of([&] { find_rank_files(where); });
  }
};

TEST_F(Files, FolderPrefixPattern) {
  std::vector<std::string> names;
  for (int rank = 0; rank < 12; ++rank) names.push_back("run.a." + std::to_string(rank) + ".et");
  make(names);
  make({"summary.csv", "notes.et.txt"});
  EXPECT_EQ(names, found(dir_.string()));
  EXPECT_EQ(names, found(dir_.string() + "/"));
  EXPECT_EQ(names, found(path("run.a")));
  EXPECT_EQ(names, found(path("run.a.{rank}.et")));
  EXPECT_EQ(12U, read_set(dir_.string()).ranks.size());
}

TEST_F(Files, GzipNames) {
  make({"a.0.et.gz", "a.1.et"});
  EXPECT_EQ((std::vector<std::string>{"a.0.et.gz", "a.1.et"}), found(path("a")));
  EXPECT_EQ(std::vector<std::string>{"a.0.et.gz"}, found(path("a.{rank}.et.gz")));
  make({"b/x.0.et.gz"});
  EXPECT_EQ(std::vector<std::string>{"x.0.et.gz"}, found(path("b/x.{rank}.et")));
  make({"a.0.et"});
  EXPECT_CONTAINS(fails(path("a")), "rank 0 is there twice");
}

TEST_F(Files, OldNamesAndJson) {
  make({"eg/a.0.eg", "eg/a.1.eg.gz"});
  EXPECT_EQ((std::vector<std::string>{"a.0.eg", "a.1.eg.gz"}), found(path("eg")));
  make({"json/npu.0.json", "json/npu.1.json.gz"});
  (void)put("json/comm_group.json", "{}");
  (void)put("json/config.json", "{}");
  EXPECT_EQ((std::vector<std::string>{"npu.0.json", "npu.1.json.gz"}), found(path("json")));
  EXPECT_EQ(2U, found(path("json/npu")).size());
}

TEST_F(Files, BinaryGoesBeforeJson) {
  make({"a.0.et", "a.0.json", "b.0.json"});
  EXPECT_EQ(std::vector<std::string>{"a.0.et"}, found(dir_.string()));
  EXPECT_EQ(std::vector<std::string>{"a.0.et"}, found(path("a")));
  EXPECT_EQ(std::vector<std::string>{"a.0.json"}, found(path("a.{rank}.json")));
  EXPECT_EQ(std::vector<std::string>{"b.0.json"}, found(path("b")));
}

TEST_F(Files, OneGroupFilePerRank) {
  make({"a.0.et", "a.1.et"});
  (void)put("comm_group.0.json", R"({"1": [0], "2": [0, 1]})");
  (void)put("comm_group.1.json", R"({"1": [1], "2": [0, 1]})");
  const TraceSet set = read_set(path("a"));
  ASSERT_EQ(3U, set.groups.size());
  EXPECT_EQ(std::vector<uint32_t>{0}, set.groups[0].ranks);
  EXPECT_EQ(std::vector<uint32_t>{1}, set.groups[2].ranks);
  EXPECT_EQ(3U, read_set(path("a"), path("comm_group.{rank}.json")).groups.size());
  (void)put("comm_group.2.json", "{}");
  EXPECT_CONTAINS(message_of([&] { read_set(path("a")); }), "several group files");
}

TEST_F(Files, GapsNameTheMissingRank) {
  make({"a.0.et", "a.1.et", "a.3.et"});
  EXPECT_CONTAINS(fails(dir_.string()), "the file of rank 2 is missing");
  make({"b/a.1.et"});
  EXPECT_CONTAINS(fails(path("b")), "the file of rank 0 is missing");
  EXPECT_CONTAINS(fails(path("b/a.{rank}.et")), "the file of rank 0 is missing");
}

TEST_F(Files, WhatToDoOtherwise) {
  make({"two/a.0.et", "two/b.0.et", "deep/one/a.0.et", "plain/trace.et", "empty/x"});
  EXPECT_CONTAINS(fails(path("two")), "several trace sets: a, b");
  EXPECT_CONTAINS(fails(path("deep")), "only folders: one; name the one");
  EXPECT_CONTAINS(fails(path("plain")), "found trace.et; rename");
  EXPECT_CONTAINS(fails(path("empty")), "no *.et");
  EXPECT_CONTAINS(fails(path("two/a.0.et")), "is one file, not a trace set; name the set: ");
  EXPECT_CONTAINS(fails(path("two/c")), "the folder holds a, b");
  EXPECT_CONTAINS(fails(path("nowhere/c")), "no such file or folder");
  EXPECT_CONTAINS(fails(path("two/c.{rank}.et")), "no file matches");
  EXPECT_CONTAINS(fails(path("{rank}/a.et")), "must stand once, in the file name");
  EXPECT_CONTAINS(fails(""), "no trace named");
  make({"jobs/a/config.txt", "jobs/a.0.et"});
  EXPECT_EQ(std::vector<std::string>{"a.0.et"}, found(path("jobs/a")));
}

TEST_F(Files, GroupFileBesideTheTraces) {
  make({"a.0.et", "a.1.et"});
  EXPECT_EQ("", read_set(path("a")).group_file);
  (void)put("a.comm_group.v1.json", R"({"1": [0]})");
  EXPECT_EQ("1", read_set(path("a")).groups.at(0).name);
  (void)put("other_comm_group.json", R"({"2": [0]})");
  EXPECT_CONTAINS(message_of([&] { read_set(path("a")); }), "several group files");
  (void)put("comm_group.json", R"({"3": [0, 1]})");
  EXPECT_EQ("3", read_set(path("a")).groups.at(0).name);
  EXPECT_EQ("2", read_set(path("a"), path("other_comm_group.json")).groups.at(0).name);
  EXPECT_THROW(read_set(path("a"), path("absent.json")), UserError);
}

TEST_F(Files, GroupsOfMetadataNodesAreMerged) {
  for (int rank = 0; rank < 2; ++rank) {
    const std::string own = R"({"pg_name": "1", "ranks": [)" + std::to_string(rank) + "]}";
    (void)put(
        "m." + std::to_string(rank) + ".et",
        meta() + record(num(1, 3) + num(3, 1) +
                        bytes(8, bytes(1, R"([{"pg_name": "0", "ranks": []}, )" + own + "]"))));
  }
  const TraceSet set = read_set(path("m"));
  ASSERT_EQ(3U, set.groups.size());
  EXPECT_EQ("0", set.groups[0].name);
  EXPECT_EQ(std::vector<uint32_t>{0}, set.groups[1].ranks);
  EXPECT_EQ(std::vector<uint32_t>{1}, set.groups[2].ranks);
}

}  // namespace
}  // namespace trainyard::chakra::test
