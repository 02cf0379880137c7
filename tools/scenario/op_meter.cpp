// SPDX-License-Identifier: MIT
#include "tools/scenario/op_meter.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

namespace trainyard {

std::string kernel_name(const std::string& name) {
  std::string out;
  for (size_t i = 0; i < name.size();) {
    const size_t end = std::min(name.find(' ', i), name.size());
    const size_t digits = name.find_first_of("0123456789", i);
    const bool numbered = end > i && digits < end &&
                          name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ", i) >= digits &&
                          std::all_of(name.begin() + static_cast<std::ptrdiff_t>(digits),
                                      name.begin() + static_cast<std::ptrdiff_t>(end),
                                      [](char c) { return c >= '0' && c <= '9'; });
    if (!numbered && end > i) out += (out.empty() ? "" : " ") + name.substr(i, end - i);
    i = end + 1;
  }
  return out.empty() ? name : out;
}

void Distribution::add(Time t, uint64_t times) {
  count_ += times;
  total_ += Time::ps(t.ps() * static_cast<int64_t>(times));
  int64_t value = t.ps();
  if (last_ < values_.size() && values_[last_].first == value) {  // most are like the one before
    values_[last_].second += times;
    return;
  }
  if (coarse_ && value > 512) {
    const int shift = std::bit_width(static_cast<uint64_t>(value)) - 9;
    value = (value >> shift) << shift;
  }
  const auto at = std::lower_bound(values_.begin(), values_.end(), value,
                                   [](const auto& entry, int64_t v) { return entry.first < v; });
  last_ = static_cast<size_t>(at - values_.begin());
  if (at != values_.end() && at->first == value) {
    at->second += times;
    return;
  }
  values_.insert(at, {value, times});
  if (!coarse_ && values_.size() > kMostValues) coarsen();
}

void Distribution::coarsen() {
  Distribution coarse;
  coarse.coarse_ = true;
  for (const auto& [value, times] : values_) coarse.add(Time::ps(value), times);
  values_ = std::move(coarse.values_);
  coarse_ = true;
}

void Distribution::add(const Distribution& other) {
  const Time total = total_ + other.total_;  // before anything is rounded
  for (const auto& [value, times] : other.values_) add(Time::ps(value), times);
  total_ = total;
}

Time Distribution::percentile(uint32_t percent) const {
  const uint64_t wanted = std::max<uint64_t>(1, (count_ * percent + 99) / 100);
  uint64_t seen = 0;
  for (const auto& [value, times] : values_) {
    seen += times;
    if (seen >= wanted) return Time::ps(value);
  }
  return {};
}

void OpMeter::add(uint32_t rank, const OpGraph& graph, uint32_t op, Time length) {
  if (last_graph_ != &graph) {
    auto& kernels = of_graph_[&graph];
    if (kernels.empty()) {
      for (const Op& o : graph.ops) {
        std::string kernel = kernel_name(graph.strings[o.name]);
        std::string stream = graph.streams[o.stream].name;
        std::string key = kernel + '\0' + stream;
        if (index_.size() >= kMostKernels && index_.find(key) == index_.end()) {
          kernel = "all others";
          stream.clear();
          key = kernel;
        }
        const auto [it, added] = index_.emplace(std::move(key), kernels_.size());
        if (added) kernels_.emplace_back(std::move(kernel), std::move(stream));
        kernels.push_back(it->second);
      }
      all_.resize(kernels_.size());
    }
    last_graph_ = &graph;
    last_ = &kernels;
  }
  const uint32_t kernel = (*last_)[op];
  if (!per_rank_) {
    all_[kernel].add(length);
    return;
  }
  if (by_rank_.size() <= rank) by_rank_.resize(rank + 1);
  auto& mine = by_rank_[rank];
  if (mine.size() <= kernel) mine.resize(kernels_.size());
  mine[kernel].add(length);
}

std::vector<DurationRow> OpMeter::take() const {
  std::vector<Distribution> all = all_;
  for (const auto& rank : by_rank_) {
    for (size_t k = 0; k < rank.size(); ++k) all[k].add(rank[k]);
  }
  std::vector<uint32_t> order;
  for (uint32_t k = 0; k < all.size(); ++k) {
    if (all[k].count() > 0) order.push_back(k);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return all[a].total() > all[b].total(); });
  std::vector<DurationRow> rows;
  const auto row = [&](uint32_t kernel, int64_t rank, const Distribution& d) {
    rows.push_back({kernels_[kernel].first, kernels_[kernel].second, rank, d.count(),
                    d.percentile(50), d.percentile(99), d.total()});
  };
  for (const uint32_t k : order) row(k, -1, all[k]);
  for (uint32_t r = 0; r < by_rank_.size(); ++r) {
    for (const uint32_t k : order) {
      if (k < by_rank_[r].size() && by_rank_[r][k].count() > 0) row(k, r, by_rank_[r][k]);
    }
  }
  return rows;
}

std::vector<CallSizeRow> call_sizes(const Job& job) {
  std::unordered_map<const OpGraph*, uint64_t> ranks;
  std::vector<const OpGraph*> graphs;
  for (const RankProgram& p : job.ranks) {
    if (ranks[p.graph.get()]++ == 0) graphs.push_back(p.graph.get());
  }
  std::map<std::tuple<Dimension, std::string, int64_t>, CallSizeRow> rows;
  for (const OpGraph* graph : graphs) {
    for (const Op& op : graph->ops) {
      const bool collective = op.kind == OpKind::collective;
      if (!collective && op.kind != OpKind::send) continue;
      const std::string kind = collective ? collective_name(op.collective) : "send";
      const int64_t floor =
          op.bytes <= 0 ? 0 : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(op.bytes)));
      const Dimension dimension = graph->streams[op.stream].dimension;
      CallSizeRow& row = rows[{dimension, kind, floor}];
      row.dimension = dimension;
      row.kind = kind;
      row.from_bytes = floor;
      row.calls += ranks[graph];
      row.bytes += op.bytes * static_cast<int64_t>(ranks[graph]);
    }
  }
  std::vector<CallSizeRow> out;
  out.reserve(rows.size());
  for (auto& entry : rows) out.push_back(std::move(entry.second));
  return out;
}

}  // namespace trainyard
