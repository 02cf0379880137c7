// SPDX-License-Identifier: MIT
#include "sim/op_graph.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "sim/dice.h"
#include "sim/errors.h"

namespace trainyard {
namespace {

/// Order-dependent hash of a sequence of integers; the same on every machine.
class Hasher {
 public:
  void add(uint64_t value) { state_ = mix64(state_ ^ mix64(value + 0x9e3779b97f4a7c15U)) + 1; }
  [[nodiscard]] uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

/// Everything of an op that runs: all but its name and the id it had in the trace.
bool runs_alike(const Op& a, const Op& b) {
  return a.stream == b.stream && a.kind == b.kind && a.collective == b.collective &&
         a.group_slot == b.group_slot && a.peer_slot == b.peer_slot && a.tag == b.tag &&
         a.duration == b.duration && a.flops == b.flops && a.bytes == b.bytes &&
         a.first_kernel == b.first_kernel && a.kernels == b.kernels && a.exchange == b.exchange &&
         a.action == b.action && a.first_member == b.first_member && a.background == b.background;
}

std::string describe(const OpGraph& graph, uint32_t op) {
  return fmt::format("{} \"{}\"", graph.ops[op].source_id, graph.name_of(op));
}

/// "1 "a" -> 2 "b" -> 1 "a"", shortened in the middle when long.
std::string describe_cycle(const OpGraph& graph, const std::vector<uint32_t>& cycle) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < cycle.size(); ++i) {
    if (cycle.size() > kShown && i == kShown - 1) {
      text += fmt::format("... {} more ... -> ", cycle.size() - kShown);
      i = cycle.size() - 1;
    }
    text += describe(graph, cycle[i]) + " -> ";
  }
  return text + describe(graph, cycle.front());
}

}  // namespace

const char* storage_action_name(StorageAction action) {
  switch (action) {
    case StorageAction::read:
      return "dataset read";
    case StorageAction::write:
      return "checkpoint write";
    case StorageAction::load:
      return "checkpoint load";
    case StorageAction::snapshot:
      return "checkpoint snapshot";
  }
  return "?";
}

const char* collective_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return "all-reduce";
    case CollectiveKind::reduce:
      return "reduce";
    case CollectiveKind::all_gather:
      return "all-gather";
    case CollectiveKind::gather:
      return "gather";
    case CollectiveKind::scatter:
      return "scatter";
    case CollectiveKind::broadcast:
      return "broadcast";
    case CollectiveKind::all_to_all:
      return "all-to-all";
    case CollectiveKind::reduce_scatter:
      return "reduce-scatter";
    case CollectiveKind::reduce_scatter_block:
      return "reduce-scatter-block";
    case CollectiveKind::barrier:
      return "barrier";
  }
  return "unknown collective";
}

const char* dimension_name(Dimension dimension) {
  switch (dimension) {
    case Dimension::none:
      return "none";
    case Dimension::tensor:
      return "tensor";
    case Dimension::context:
      return "context";
    case Dimension::expert:
      return "expert";
    case Dimension::pipeline:
      return "pipeline";
    case Dimension::data:
      return "data";
  }
  return "unknown dimension";
}

uint32_t OpGraph::intern(const std::string& text) {
  // `strings` is public: index what was added to it directly.
  for (auto i = static_cast<uint32_t>(string_index_.size()); i < strings.size(); ++i) {
    string_index_.emplace(strings[i], i);
  }
  const auto [it, added] = string_index_.emplace(text, static_cast<uint32_t>(strings.size()));
  if (added) strings.push_back(text);
  return it->second;
}

void OpGraph::add_dependency(uint32_t before, uint32_t after) {
  TRAINYARD_ASSERT(first_.empty());  // not after finish()
  edges_.emplace_back(before, after);
}

void OpGraph::finish() {
  TRAINYARD_ASSERT(first_.empty());  // once
  const size_t n = ops.size();
  for (const Op& op : ops) {
    TRAINYARD_ASSERT(op.name < strings.size());
    TRAINYARD_ASSERT(op.stream < streams.size());
    TRAINYARD_ASSERT(uint64_t{op.first_kernel} + op.kernels <= kernels.size());
  }

  // Sorted edges: successors come out in issue order, whatever the order of add_dependency().
  std::sort(edges_.begin(), edges_.end());
  edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());

  n_deps_.assign(n, 0);
  std::vector<uint32_t> first(n + 1, 0);
  successors_.clear();
  successors_.reserve(edges_.size());
  for (const auto& [before, after] : edges_) {
    TRAINYARD_ASSERT(before < n && after < n);
    ++first[before + 1];
    ++n_deps_[after];
    successors_.push_back(after);
  }
  for (size_t i = 0; i < n; ++i) first[i + 1] += first[i];

  // Kahn's algorithm; what it cannot reach is on a cycle or behind one.
  std::vector<uint32_t> waiting = n_deps_;
  std::vector<uint32_t> ready;
  ready.reserve(n);
  for (uint32_t op = 0; op < n; ++op) {
    if (waiting[op] == 0) ready.push_back(op);
  }
  for (size_t i = 0; i < ready.size(); ++i) {
    for (uint32_t e = first[ready[i]]; e < first[ready[i] + 1]; ++e) {
      if (--waiting[successors_[e]] == 0) ready.push_back(successors_[e]);
    }
  }
  if (ready.size() < n) {
    // Every op left has a predecessor that is left: walking back must come round.
    std::vector<uint32_t> predecessor(n);
    for (const auto& [before, after] : edges_) {
      if (waiting[before] > 0) predecessor[after] = before;
    }
    uint32_t op = 0;
    while (waiting[op] == 0) ++op;
    std::vector<bool> seen(n, false);
    for (; !seen[op]; op = predecessor[op]) seen[op] = true;
    std::vector<uint32_t> cycle{op};
    for (uint32_t at = predecessor[op]; at != op; at = predecessor[at]) cycle.push_back(at);
    std::reverse(cycle.begin(), cycle.end());
    std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
    throw UserError(fmt::format("operations wait for each other in a cycle of {}: {}", cycle.size(),
                                describe_cycle(*this, cycle)),
                    "remove one of these dependencies");
  }

  first_ = std::move(first);
  edges_ = {};
  string_index_ = {};
}

uint64_t OpGraph::hash() const {
  TRAINYARD_ASSERT(!first_.empty());  // after finish()
  Hasher h;
  h.add(streams.size());
  for (const Stream& s : streams) h.add(static_cast<uint64_t>(s.order));
  h.add(ops.size());
  for (const Op& op : ops) {
    h.add(op.stream);
    h.add(static_cast<uint64_t>(op.kind) << 8 | static_cast<uint64_t>(op.collective));
    h.add(static_cast<uint64_t>(op.group_slot) << 32 | op.peer_slot);
    h.add(op.tag);
    h.add(static_cast<uint64_t>(op.duration.ps()));
    h.add(static_cast<uint64_t>(op.flops));
    h.add(static_cast<uint64_t>(op.bytes));
    h.add(static_cast<uint64_t>(op.first_kernel) << 32 | op.kernels);
    h.add(op.exchange);
    if (op.kind == OpKind::storage) {
      h.add(static_cast<uint64_t>(op.action) << 2 | static_cast<uint64_t>(op.first_member) << 1 |
            static_cast<uint64_t>(op.background));
    }
  }
  for (const Kernel& k : kernels) {
    h.add(static_cast<uint64_t>(k.kind));
    h.add(static_cast<uint64_t>(k.precision) << 1 | static_cast<uint64_t>(k.backward));
    for (const int64_t v : {k.flops, k.bytes, k.m, k.n, k.k, k.special}) {
      h.add(static_cast<uint64_t>(v));
    }
  }
  for (uint32_t f : first_) h.add(f);
  for (uint32_t s : successors_) h.add(s);
  return h.value();
}

bool OpGraph::equals(const OpGraph& other) const {
  if (this == &other) return true;
  if (ops.size() != other.ops.size() || streams.size() != other.streams.size()) return false;
  for (size_t i = 0; i < streams.size(); ++i) {
    if (streams[i].order != other.streams[i].order || streams[i].name != other.streams[i].name ||
        streams[i].dimension != other.streams[i].dimension) {
      return false;
    }
  }
  if (kernels != other.kernels) return false;
  for (uint32_t i = 0; i < ops.size(); ++i) {
    if (!runs_alike(ops[i], other.ops[i]) || ops[i].source_id != other.ops[i].source_id ||
        name_of(i) != other.name_of(i)) {
      return false;
    }
  }
  return first_ == other.first_ && successors_ == other.successors_;
}

size_t Job::fold() {
  // Both maps are only looked up, never iterated: their order cannot matter.
  std::unordered_map<const OpGraph*, std::shared_ptr<const OpGraph>> representative;
  std::unordered_map<uint64_t, std::vector<std::shared_ptr<const OpGraph>>> classes;
  std::vector<std::shared_ptr<const OpGraph>> replaced;  // alive: their addresses are keys
  size_t n_classes = 0;
  for (RankProgram& rank : ranks) {
    TRAINYARD_ASSERT(rank.graph != nullptr);
    auto [it, unknown] = representative.try_emplace(rank.graph.get());
    if (unknown) {
      auto& alike = classes[rank.graph->hash()];
      const auto twin = std::find_if(alike.begin(), alike.end(),
                                     [&](const auto& graph) { return graph->equals(*rank.graph); });
      if (twin != alike.end()) {
        it->second = *twin;
        replaced.push_back(rank.graph);
      } else {
        it->second = rank.graph;
        alike.push_back(rank.graph);
        ++n_classes;
      }
    }
    rank.graph = it->second;
  }
  return n_classes;
}

}  // namespace trainyard
