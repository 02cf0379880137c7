// SPDX-License-Identifier: MIT
// Writes small traces that a fuzzer starts from: every node type, plain and gzip.
#include <cstdio>
#include <string>

#include "chakra/writer.h"
#include "sim/errors.h"

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
  } catch (const trainyard::UserError& e) {
    std::fprintf(stderr, "make_chakra_seeds: %s\n", e.what());
    return 2;
  }
  return 0;
}
