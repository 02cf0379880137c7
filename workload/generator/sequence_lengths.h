// SPDX-License-Identifier: MIT
// Documents in sequences: attention costs the sum of the squares of their lengths.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "sim/exchange.h"
#include "workload/generator/moe_routing.h"
#include "workload/generator/training.h"

namespace trainyard {

/// A sequence is packed with documents of log-normal length, the last one is cut off; attention
/// does not cross their borders. What a micro-batch costs differs between data-parallel ranks, who
/// wait for the slowest (A:F40, A:N058).
class SequenceLengths {
 public:
  SequenceLengths(const Training& training, uint64_t seed);
  /// Attention of a micro-batch against that of whole sequences, in 1/2^32: sum of the squares of
  /// its documents over micro x sequence^2.
  [[nodiscard]] uint64_t load_q32(uint32_t step, uint32_t microbatch, uint32_t replica) const;
  /// The same of one sequence of a step.
  [[nodiscard]] uint64_t sequence_q32(uint32_t step, int64_t sequence) const;
  [[nodiscard]] int64_t replicas() const { return dp_; }
  [[nodiscard]] int64_t context() const { return cp_; }
  [[nodiscard]] int64_t microbatches() const { return microbatches_; }

 private:
  const std::vector<uint64_t>& loads(uint32_t step) const;

  uint64_t seed_;
  int64_t sequence_, document_, micro_, microbatches_, dp_, cp_;
  int64_t sigma_q32_;  // times log2(e)
  bool balance_;
  mutable std::mutex mutex_;
  mutable std::map<uint32_t, std::vector<uint64_t>> loads_;  // step -> by replica, micro-batch
};

/// All that varies in a job: exchanges of experts and, from kSequences on, attention.
class JobExchanges final : public Exchanges {
 public:
  static constexpr uint32_t kSequences = uint32_t{1} << 31;
  JobExchanges(std::shared_ptr<const MoeRouting> routing,
               std::shared_ptr<const SequenceLengths> lengths)
      : routing_(std::move(routing)), lengths_(std::move(lengths)) {}
  [[nodiscard]] std::shared_ptr<const std::vector<int64_t>> sizes(
      uint32_t group, uint32_t members, uint32_t exchange) const override {
    return routing_->sizes(group, members, exchange);
  }
  [[nodiscard]] uint64_t load_q32(uint32_t group, uint32_t members, uint32_t exchange,
                                  uint32_t member) const override;

 private:
  std::shared_ptr<const MoeRouting> routing_;
  std::shared_ptr<const SequenceLengths> lengths_;
};

}  // namespace trainyard
