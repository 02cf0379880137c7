// SPDX-License-Identifier: MIT
// What single ops of a run took and moved, summed up: durations by kernel, stream and rank, sizes
// of calls by parallel dimension.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/op_graph.h"
#include "tools/report/result.h"

namespace trainyard {

/// Name of an op without what numbers it: "B15 L119 gradients" is "gradients".
std::string kernel_name(const std::string& op_name);

/// Many times, exactly as long as few of them differ; then to 9 significant bits.
class Distribution {
 public:
  void add(Time t, uint64_t times = 1);
  void add(const Distribution& other);
  [[nodiscard]] uint64_t count() const { return count_; }
  [[nodiscard]] Time total() const { return total_; }
  /// Nearest rank.
  [[nodiscard]] Time percentile(uint32_t percent) const;

 private:
  static constexpr size_t kMostValues = 512;
  void coarsen();

  std::vector<std::pair<int64_t, uint64_t>> values_;  // ascending
  uint64_t count_ = 0;
  Time total_;
  size_t last_ = 0;  // of values_
  bool coarse_ = false;
};

class OpMeter {
 public:
  /// Up to so many ranks each has rows of its own.
  static constexpr uint32_t kMostRanks = 1024;
  static constexpr size_t kMostKernels = 4096;

  explicit OpMeter(uint32_t ranks) : per_rank_(ranks <= kMostRanks) {}
  void add(uint32_t rank, const OpGraph& graph, uint32_t op, Time length);
  /// All ranks together first, by falling total time; then rank by rank.
  [[nodiscard]] std::vector<DurationRow> take() const;

 private:
  bool per_rank_;
  std::vector<std::pair<std::string, std::string>> kernels_;  // name, stream
  std::unordered_map<std::string, uint32_t> index_;
  std::unordered_map<const OpGraph*, std::vector<uint32_t>> of_graph_;  // op -> kernel
  const OpGraph* last_graph_ = nullptr;
  const std::vector<uint32_t>* last_ = nullptr;
  std::vector<Distribution> all_;                   // by kernel
  std::vector<std::vector<Distribution>> by_rank_;  // rank, kernel
};

/// Communication calls of all ranks by dimension, kind and size, in steps of powers of two.
std::vector<CallSizeRow> call_sizes(const Job& job);

}  // namespace trainyard
