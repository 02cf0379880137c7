// SPDX-License-Identifier: MIT
#include "workload/chakra_exporter.h"

#include <filesystem>

#include "chakra/writer.h"
#include "sim/errors.h"

namespace trainyard {

chakra::RankTrace export_rank(const Job& job, uint32_t rank) {
  const OpGraph& graph = *job.ranks[rank].graph;
  const RankBinding& binding = job.ranks[rank].binding;
  chakra::RankTrace trace;
  trace.nodes.resize(graph.ops.size());
  for (uint32_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (op.kernels > 1) {
      throw UserError("a Chakra node has no room for several kernels of one operation",
                      "set workload.kernels to single");
    }
    if (op.exchange != 0) {
      throw UserError(
          "Chakra cannot express unequal shares of an all-to-all, or attention that "
          "depends on the micro-batch",
          "set workload.experts.sigma and source_sigma to 0, leave batch.document out");
    }
    if (op.duration > Time()) {
      throw UserError("Chakra counts durations in whole microseconds: operation '" +
                          graph.name_of(i) + "' would change",
                      "export generated workloads only");
    }
    chakra::Node& n = trace.nodes[i];
    n.id = i;
    n.name = graph.name_of(i);
    const Stream& stream = graph.streams[op.stream];
    if (stream.order == StreamOrder::fifo) n.stream = op.stream;
    switch (op.kind) {
      case OpKind::compute:
        n.type = chakra::NodeType::comp;
        n.num_ops = op.flops;
        n.tensor_size = op.bytes;
        break;
      case OpKind::collective:
        n.type = chakra::NodeType::comm_coll;
        n.comm_type = static_cast<int64_t>(op.collective);
        n.comm_size = op.bytes;
        n.pg_name = job.groups[binding.groups[op.group_slot]].name;
        break;
      case OpKind::send:
      case OpKind::recv: {
        const bool sending = op.kind == OpKind::send;
        n.type = sending ? chakra::NodeType::comm_send : chakra::NodeType::comm_recv;
        const uint32_t peer = binding.peers[op.peer_slot];
        n.comm_src = sending ? rank : peer;
        n.comm_dst = sending ? peer : rank;
        n.comm_tag = static_cast<int64_t>(op.tag);
        n.comm_size = op.bytes;
        n.stream.reset();
        break;
      }
      case OpKind::memory:
        n.type = chakra::NodeType::mem_load;
        n.tensor_size = op.bytes;
        break;
      case OpKind::metadata:
        n.type = chakra::NodeType::metadata;
        break;
      case OpKind::storage:
        throw UserError("Chakra has no node for reads and writes of storage",
                        "leave out workload.dataset and workload.checkpoint");
    }
  }
  for (uint32_t i = 0; i < graph.ops.size(); ++i) {
    for (const uint32_t* next = graph.successors_begin(i); next != graph.successors_end(i);
         ++next) {
      trace.nodes[*next].data_deps.push_back(i);
    }
  }
  return trace;
}

uint64_t export_chakra(const Job& job, const std::string& prefix) {
  const std::filesystem::path folder = std::filesystem::path(prefix).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) throw UserError("cannot make " + folder.string() + ": " + error.message());
  uint64_t nodes = 0;
  for (uint32_t r = 0; r < job.ranks.size(); ++r) {
    const chakra::RankTrace trace = export_rank(job, r);
    nodes += trace.nodes.size();
    chakra::write_rank(prefix + "." + std::to_string(r) + ".et", trace);
  }
  std::vector<chakra::ProcessGroup> groups;
  for (const Group& g : job.groups) {
    if (g.name != "world") groups.push_back({g.name, g.members});  // readers add it
  }
  chakra::write_group_file((folder / "comm_group.json").string(), groups);
  return nodes;
}

}  // namespace trainyard
