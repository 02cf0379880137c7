// SPDX-License-Identifier: MIT
// Writes small traces that a fuzzer starts from: every node type, plain and gzip, every dialect.
#include <cstdio>
#include <fstream>
#include <string>

#include "chakra/writer.h"
#include "sim/errors.h"
#include "tests/chakra/wire_bytes.h"

namespace {

using namespace trainyard::chakra;

Node node(uint64_t id, NodeType type, const std::string& name) {
  Node n;
  n.id = id;
  n.type = type;
  n.name = name;
  if (id > 1) n.data_deps = {id - 1};
  return n;
}

RankTrace step() {
  RankTrace t;
  Node comp = node(1, NodeType::comp, "gemm");
  comp.duration_us = 7;
  comp.num_ops = 1'000'000;
  comp.tensor_size = 4096;
  comp.stream = 7;
  Node load = node(2, NodeType::mem_load, "load");
  load.tensor_size = 512;
  Node reduce = node(3, NodeType::comm_coll, "all_reduce");
  reduce.comm_type = 0;
  reduce.comm_size = 65536;
  reduce.pg_name = "0";
  Node send = node(4, NodeType::comm_send, "send");
  send.comm_src = 0;
  send.comm_dst = 0;
  send.comm_tag = 1;
  send.comm_size = 100;
  Node recv = node(5, NodeType::comm_recv, "recv");
  recv.comm_src = 0;
  recv.comm_dst = 0;
  recv.comm_tag = 1;
  recv.comm_size = 100;
  recv.data_deps = {3};
  Node host = node(6, NodeType::comp, "launch");
  host.is_cpu_op = true;
  host.ctrl_deps = {1};
  t.nodes = {comp, load, reduce, send, recv, host};
  return t;
}

// Node of 0.0.1: every attribute has its own field.
std::string flat_dialect() {
  using namespace test;
  const std::string comp = num(1, 1) + bytes(2, "gemm") + num(3, 3) + num(7, 5) + num(12, 1000);
  const std::string reduce = num(1, 2) + bytes(2, "all_reduce") + num(3, 6) + num(4, 1) +
                             num(13, 1) + num(14, 1) + num(14, 1) + num(18, 4096);
  const std::string send = num(1, 3) + num(3, 4) + num(16, 0) + num(17, 0) + num(18, 64);
  const std::string recv = num(1, 4) + num(3, 5) + num(16, 0) + num(17, 0) + num(18, 64);
  return record(comp) + record(reduce) + record(send) + record(recv);
}

// Nodes of 0.0.2, 0.0.3 and 0.0.3+uint differ in the field and the declared type of an integer, and
// in where the node types start.
std::string list_dialect(int int_field, uint64_t int_type, uint64_t comp_type) {
  using namespace test;
  const auto attribute = [&](const char* name, uint64_t value) {
    return bytes(11, bytes(1, name) + num(2, int_type) + num(int_field, value));
  };
  const std::string comp = num(1, 1) + bytes(2, "gemm") + num(3, comp_type) +
                           attribute("runtime", 5) + attribute("num_ops", 1000);
  const std::string reduce = num(1, 2) + bytes(2, "all_reduce") + num(3, comp_type + 3) +
                             num(4, 1) + attribute("comm_type", 0) + attribute("comm_size", 4096);
  const std::string send = num(1, 3) + num(3, comp_type + 1) + attribute("comm_src", 0) +
                           attribute("comm_dst", 0) + attribute("comm_size", 64);
  return record(comp) + record(reduce) + record(send);
}

void put(const std::string& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary);
  out << content;
  if (!out) throw trainyard::UserError(path + ": cannot write");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_chakra_seeds FOLDER\n");
    return 2;
  }
  const std::string folder = std::string(argv[1]) + "/";
  try {
    RankTrace t = step();
    write_rank(folder + "step.et", t);
    write_rank(folder + "step.et.gz", t);
    Node meta = node(9, NodeType::metadata, "## process_group:init ##");
    meta.inputs = R"(["[{\"pg_name\": \"0\", \"ranks\": [0]}]"])";
    meta.data_deps.clear();
    t.nodes.push_back(meta);
    write_rank(folder + "groups.et", t);
    for (size_t i = 0; i < t.nodes.size(); ++i) {
      RankTrace one;
      one.nodes = {t.nodes[i]};
      one.nodes[0].data_deps.clear();
      one.nodes[0].ctrl_deps.clear();
      write_rank(folder + "node" + std::to_string(i) + ".et", one);
    }
    put(folder + "flat.et", flat_dialect());
    put(folder + "list_int5.et", list_dialect(5, 1, 3));
    put(folder + "list_int6.et", list_dialect(6, 2, 4));
    put(folder + "list_int7.et", test::record("") + list_dialect(7, 3, 4));
  } catch (const trainyard::UserError& e) {
    std::fprintf(stderr, "make_chakra_seeds: %s\n", e.what());
    return 2;
  }
  return 0;
}
