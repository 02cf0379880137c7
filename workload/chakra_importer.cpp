// SPDX-License-Identifier: MIT
#include "workload/chakra_importer.h"

#include <algorithm>
#include <map>

#include "chakra/graph.h"
#include "chakra/groups.h"
#include "sim/errors.h"

namespace trainyard {
namespace {

using chakra::Node;
using chakra::NodeType;

class RankImporter {
 public:
  RankImporter(const chakra::RankTrace& trace, uint32_t rank, int64_t element_bytes,
               const chakra::GroupTable& groups, ChakraImport& result)
      : trace_(trace), rank_(rank), element_(element_bytes), groups_(groups), result_(result) {}

  RankProgram run() {
    auto graph = std::make_shared<OpGraph>();
    graph_ = graph.get();
    graph_->streams = {{"compute", StreamOrder::ready},
                       {"host", StreamOrder::ready},
                       {"communication", StreamOrder::free}};
    order_.resize(trace_.nodes.size());
    for (uint32_t i = 0; i < order_.size(); ++i) order_[i] = i;
    std::sort(order_.begin(), order_.end(),
              [&](uint32_t a, uint32_t b) { return trace_.nodes[a].id < trace_.nodes[b].id; });
    for (const uint32_t i : order_) add(trace_.nodes[i]);
    connect();
    try {
      graph_->finish();
    } catch (const UserError& e) {
      throw UserError(SourcePos{trace_.file, 0}, e.what());
    }
    return {std::move(graph), std::move(binding_)};
  }

 private:
  void add(const Node& n) {
    Op op;
    op.source_id = n.id;
    op.name = graph_->intern(n.name);
    op.stream = n.is_cpu_op ? 1 : device_stream(n);
    op.duration = Time::us(static_cast<int64_t>(n.duration_us));
    switch (n.type) {
      case NodeType::invalid:
      case NodeType::metadata:
        op.kind = OpKind::metadata;
        op.stream = 2;
        op.duration = Time();
        break;
      case NodeType::comp:
        op.kind = OpKind::compute;
        op.flops = n.num_ops.value_or(0);
        op.bytes = n.tensor_size.value_or(0) * element_;
        if (!n.is_cpu_op) {
          result_.has_durations = result_.has_durations || n.duration_us > 0;
          result_.has_flops = result_.has_flops || op.flops > 0;
        }
        break;
      case NodeType::mem_load:
      case NodeType::mem_store:
        op.kind = OpKind::memory;
        op.bytes = n.tensor_size.value_or(0) * element_;
        op.stream = 2;
        break;
      case NodeType::comm_coll:
        if (n.is_cpu_op && !n.comm_type) {
          op.kind = OpKind::compute;  // the launching side of a PyTorch collective
          op.stream = 1;
          break;
        }
        op.kind = OpKind::collective;
        op.collective = static_cast<CollectiveKind>(*n.comm_type);
        op.bytes = n.comm_size.value_or(0) * element_;
        op.group_slot = group_slot(n);
        op.duration = Time();
        if (!n.stream) op.stream = 2;
        break;
      case NodeType::comm_send:
      case NodeType::comm_recv: {
        const bool sending = n.type == NodeType::comm_send;
        op.kind = sending ? OpKind::send : OpKind::recv;
        const auto peer = static_cast<uint32_t>((sending ? n.comm_dst : n.comm_src).value_or(0));
        op.peer_slot = slot(binding_.peers, peer);
        op.tag = static_cast<uint64_t>(n.comm_tag.value_or(0));
        op.bytes = n.comm_size.value_or(n.tensor_size.value_or(0)) * element_;
        op.duration = Time();
        op.stream = 2;
        break;
      }
    }
    graph_->ops.push_back(op);
  }

  uint32_t device_stream(const Node& n) {
    if (!n.stream) return 0;
    result_.has_streams = true;
    const auto [it, added] =
        streams_.emplace(*n.stream, static_cast<uint32_t>(graph_->streams.size()));
    if (added) graph_->streams.push_back({"stream " + std::to_string(*n.stream), StreamOrder::fifo});
    return it->second;
  }

  static uint32_t slot(std::vector<uint32_t>& slots, uint32_t value) {
    const auto it = std::find(slots.begin(), slots.end(), value);
    if (it != slots.end()) return static_cast<uint32_t>(it - slots.begin());
    slots.push_back(value);
    return static_cast<uint32_t>(slots.size() - 1);
  }

  uint32_t group_slot(const Node& n) {
    // Job::groups holds the world first, then the groups of the set in their order.
    const int group = groups_.find(n.pg_name, rank_).group;
    TRAINYARD_ASSERT(group != chakra::GroupTable::kUnknown);  // the validator refused it
    return slot(binding_.groups,
                group == chakra::GroupTable::kAllRanks ? 0 : static_cast<uint32_t>(group) + 1);
  }

  void connect() {
    const chakra::Dependencies deps = chakra::resolve_dependencies(trace_);
    std::vector<uint32_t> rank_of_node(order_.size());
    for (uint32_t i = 0; i < order_.size(); ++i) rank_of_node[order_[i]] = i;
    for (uint32_t node = 0; node < order_.size(); ++node) {
      for (const uint32_t p : deps.parents(node)) {
        graph_->add_dependency(rank_of_node[p], rank_of_node[node]);
      }
    }
  }

  const chakra::RankTrace& trace_;
  uint32_t rank_;
  int64_t element_;
  const chakra::GroupTable& groups_;
  ChakraImport& result_;
  OpGraph* graph_ = nullptr;
  RankBinding binding_;
  std::vector<uint32_t> order_;  // by id
  std::map<int64_t, uint32_t> streams_;
};

}  // namespace

ChakraImport import_chakra(const chakra::TraceSet& set, const std::string& name,
                           const ChakraImportOptions& options) {
  ChakraImport result;
  result.findings = chakra::validate(set);
  size_t errors = 0;
  for (const auto& f : result.findings) {
    if (f.severity == chakra::Severity::error || options.strict) ++errors;
  }
  if (errors > 0) {
    std::string remedy = "see 'trainyard trace validate'";
    if (errors > 1) remedy += " for " + std::to_string(errors - 1) + " more";
    throw UserError(result.findings.front().message, remedy);
  }
  result.summary = chakra::summarise(set);
  result.element_bytes = options.element_bytes;
  if (result.element_bytes == 0) {
    const bool stage = !set.ranks.empty() && set.ranks[0].schema == "symbolic_tensor_network";
    result.element_bytes = stage ? 2 : 1;
  }

  Job& job = result.job;
  job.name = name;
  const auto world = static_cast<uint32_t>(set.ranks.size());
  auto add_group = [&](const std::string& label, std::vector<uint32_t> members) {
    if (members.empty()) {
      for (uint32_t r = 0; r < world; ++r) members.push_back(r);
    }
    job.groups.push_back({label, std::move(members)});
  };
  add_group("world", {});
  for (const auto& g : set.groups) add_group(g.name, g.ranks);
  const chakra::GroupTable groups(set);
  for (uint32_t r = 0; r < world; ++r) {
    job.ranks.push_back(
        RankImporter(set.ranks[r], r, result.element_bytes, groups, result).run());
  }
  result.rank_classes = job.fold();
  return result;
}

}  // namespace trainyard
