// SPDX-License-Identifier: MIT
#include "workload/chakra_importer.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "chakra/graph.h"
#include "chakra/groups.h"
#include "sim/errors.h"

namespace trainyard {
namespace {

using chakra::Node;
using chakra::NodeType;

/// A send that no receive claims.
struct Unclaimed {
  uint32_t src = 0;
  int64_t tag = 0;
  const Node* send = nullptr;
};

/// The host side of a communication call: the kernel node carries the operation.
bool is_host_call(const Node& n) {
  if (!n.is_cpu_op) return false;
  return (n.type == NodeType::comm_coll && !n.comm_type) ||
         (n.type == NodeType::comm_send && !n.comm_dst) ||
         (n.type == NodeType::comm_recv && !n.comm_src);
}

/// Per receiving rank, the sends beyond the last receive of their source and tag.
std::vector<std::vector<Unclaimed>> unclaimed_sends(const chakra::TraceSet& set) {
  using Channel = std::tuple<uint32_t, int64_t, int64_t>;  // source, destination, tag
  std::map<Channel, std::vector<const Node*>> sends;
  std::map<Channel, size_t> receives;
  for (uint32_t r = 0; r < set.ranks.size(); ++r) {
    for (const Node& n : set.ranks[r].nodes) {
      if (is_host_call(n)) continue;
      const int64_t tag = n.comm_tag.value_or(0);
      if (n.type == NodeType::comm_send) sends[{r, n.comm_dst.value_or(0), tag}].push_back(&n);
      if (n.type == NodeType::comm_recv && n.comm_src.value_or(0) >= 0) {
        ++receives[{static_cast<uint32_t>(n.comm_src.value_or(0)), r, tag}];
      }
    }
  }
  std::vector<std::vector<Unclaimed>> result(set.ranks.size());
  for (auto& [channel, list] : sends) {
    const auto [src, dst, tag] = channel;
    if (dst < 0 || dst >= static_cast<int64_t>(set.ranks.size())) continue;
    std::sort(list.begin(), list.end(), [](const Node* a, const Node* b) { return a->id < b->id; });
    for (size_t k = receives[channel]; k < list.size(); ++k) {
      result[static_cast<size_t>(dst)].push_back({src, tag, list[k]});
    }
  }
  return result;
}

class RankImporter {
 public:
  RankImporter(const chakra::RankTrace& trace, uint32_t rank, const ChakraImportOptions& options,
               const chakra::GroupTable& groups, ChakraImport& result)
      : trace_(trace),
        rank_(rank),
        element_(result.element_bytes),
        launch_order_(options.launch_order),
        groups_(groups),
        result_(result),
        tid_is_stream_(std::none_of(trace.nodes.begin(), trace.nodes.end(),
                                    [](const Node& n) { return n.stream.has_value(); })) {}

  RankProgram run(const std::vector<Unclaimed>& unclaimed) {
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
    // As the validator says: sent and never claimed. Somebody has to take it from the network.
    for (const Unclaimed& u : unclaimed) {
      Op op;
      op.kind = OpKind::recv;
      op.source_id = u.send->id;
      op.name = graph_->intern("unclaimed " + u.send->name);
      op.stream = 2;
      op.peer_slot = slot(binding_.peers, u.src);
      op.tag = static_cast<uint64_t>(u.tag);
      op.bytes = bytes_of(*u.send, u.send->comm_size ? u.send->comm_size : u.send->tensor_size);
      graph_->ops.push_back(op);
    }
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
    op.duration = duration_of(n);
    if (is_host_call(n)) {
      op.kind = OpKind::compute;
      graph_->ops.push_back(op);
      return;
    }
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
        op.bytes = bytes_of(n, n.tensor_size);
        if (!n.is_cpu_op) {
          result_.has_durations = result_.has_durations || n.duration_us > 0;
          result_.has_flops = result_.has_flops || op.flops > 0;
        }
        break;
      case NodeType::mem_load:
      case NodeType::mem_store:
        op.kind = OpKind::memory;
        op.bytes = bytes_of(n, n.tensor_size);
        op.stream = 2;
        break;
      case NodeType::comm_coll:
        op.kind = OpKind::collective;
        op.collective = static_cast<CollectiveKind>(*n.comm_type);
        op.bytes = bytes_of(n, n.comm_size);
        op.group_slot = group_slot(n);
        op.duration = Time();
        if (!stream_number(n)) op.stream = 2;
        break;
      case NodeType::comm_send:
      case NodeType::comm_recv: {
        const bool sending = n.type == NodeType::comm_send;
        op.kind = sending ? OpKind::send : OpKind::recv;
        const auto peer = static_cast<uint32_t>((sending ? n.comm_dst : n.comm_src).value_or(0));
        op.peer_slot = slot(binding_.peers, peer);
        op.tag = static_cast<uint64_t>(n.comm_tag.value_or(0));
        op.bytes = bytes_of(n, n.comm_size ? n.comm_size : n.tensor_size);
        op.duration = Time();
        op.stream = 2;
        break;
      }
    }
    graph_->ops.push_back(op);
  }

  [[noreturn]] void too_large(const Node& n, const std::string& what) const {
    throw UserError(SourcePos{trace_.file, 0}, "node " + std::to_string(n.id) + " \"" + n.name +
                                                   "\": " + what + " is too large to be counted");
  }

  [[nodiscard]] Time duration_of(const Node& n) const {
    if (n.duration_us > static_cast<uint64_t>(Time::infinity().ps() / 1'000'000)) {
      too_large(n, "a duration of " + std::to_string(n.duration_us) + " us");
    }
    return Time::us(static_cast<int64_t>(n.duration_us));
  }

  [[nodiscard]] int64_t bytes_of(const Node& n, const std::optional<int64_t>& elements) const {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(elements.value_or(0), element_, &bytes)) {
      too_large(n, "a size of " + std::to_string(*elements) + " elements");
    }
    return bytes;
  }

  [[nodiscard]] std::optional<int64_t> stream_number(const Node& n) const {
    return tid_is_stream_ && !n.is_cpu_op ? n.tid : n.stream;
  }

  uint32_t device_stream(const Node& n) {
    const std::optional<int64_t> number = stream_number(n);
    if (!number) return 0;
    result_.has_streams = true;
    const auto [it, added] =
        streams_.emplace(*number, static_cast<uint32_t>(graph_->streams.size()));
    if (added) {
      graph_->streams.push_back({"stream " + std::to_string(*number), StreamOrder::fifo});
    }
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
    if (launch_order_ != LaunchOrder::free && streams_.size() > 1) {
      std::vector<chakra::Dependencies::Edge> edges;  // before, after
      for (uint32_t node = 0; node < order_.size(); ++node) {
        for (const uint32_t p : deps.parents(node)) {
          edges.emplace_back(rank_of_node[p], rank_of_node[node]);
        }
      }
      add_launch_order(std::move(edges));
    }
  }

  /// Ops in a sequence that keeps all edges and the order within streams, lowest id first: the
  /// order of ids itself unless the trace has edges against it. Empty when there is no such
  /// sequence.
  [[nodiscard]] std::vector<uint32_t> launch_sequence(
      std::vector<chakra::Dependencies::Edge> edges) const {
    const auto n = static_cast<uint32_t>(order_.size());
    if (std::all_of(edges.begin(), edges.end(),
                    [](const auto& edge) { return edge.first < edge.second; })) {
      std::vector<uint32_t> sequence(n);
      for (uint32_t i = 0; i < n; ++i) sequence[i] = i;
      return sequence;
    }
    std::map<uint32_t, uint32_t> last;
    for (uint32_t i = 0; i < n; ++i) {
      if (!is_kernel(i)) continue;
      const auto [it, first] = last.emplace(graph_->ops[i].stream, i);
      if (!first) edges.emplace_back(std::exchange(it->second, i), i);
    }
    std::sort(edges.begin(), edges.end());
    std::vector<uint32_t> waits(n, 0);
    for (const auto& [before, after] : edges) ++waits[after];
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
    for (uint32_t i = 0; i < n; ++i) {
      if (waits[i] == 0) ready.push(i);
    }
    std::vector<uint32_t> sequence;
    while (!ready.empty()) {
      const uint32_t op = ready.top();
      ready.pop();
      sequence.push_back(op);
      for (auto it =
               std::lower_bound(edges.begin(), edges.end(), chakra::Dependencies::Edge{op, 0});
           it != edges.end() && it->first == op; ++it) {
        if (--waits[it->second] == 0) ready.push(it->second);
      }
    }
    if (sequence.size() < n)
      sequence.clear();  // a stream against its edges: finish() or the run tells
    return sequence;
  }

  [[nodiscard]] bool is_kernel(uint32_t op) const {
    return graph_->streams[graph_->ops[op].stream].order == StreamOrder::fifo;
  }

  /// Streams are chains: of every stream only the last kernel before a point has to be waited for,
  /// and only by the first kernel of another stream that comes after it.
  void add_launch_order(std::vector<chakra::Dependencies::Edge> edges) {
    std::map<uint32_t, uint32_t> last_compute;  // stream, op
    std::map<uint32_t, uint32_t> last_comm;
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> waited;  // stream, other stream: op
    const auto wait_for = [&](const std::map<uint32_t, uint32_t>& others, uint32_t op) {
      const uint32_t stream = graph_->ops[op].stream;
      for (const auto& [other, before] : others) {
        if (other == stream) continue;
        const auto [it, first] = waited.emplace(std::pair{stream, other}, before);
        if (!first && it->second >= before) continue;
        it->second = before;
        graph_->add_dependency(before, op);
        ++result_.launch_edges;
      }
    };
    for (const uint32_t op : launch_sequence(std::move(edges))) {
      if (!is_kernel(op)) continue;
      const Op& kernel = graph_->ops[op];
      if (kernel.kind == OpKind::compute) {
        if (launch_order_ == LaunchOrder::blocking) wait_for(last_comm, op);
        last_compute[kernel.stream] = op;
      } else if (kernel.kind == OpKind::collective) {
        wait_for(last_compute, op);
        last_comm[kernel.stream] = op;
      }
    }
  }

  const chakra::RankTrace& trace_;
  uint32_t rank_;
  int64_t element_;
  LaunchOrder launch_order_;
  const chakra::GroupTable& groups_;
  ChakraImport& result_;
  bool tid_is_stream_;
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
  const auto unclaimed = unclaimed_sends(set);
  for (uint32_t r = 0; r < world; ++r) {
    job.ranks.push_back(RankImporter(set.ranks[r], r, options, groups, result).run(unclaimed[r]));
  }
  result.rank_classes = job.fold();
  return result;
}

}  // namespace trainyard
