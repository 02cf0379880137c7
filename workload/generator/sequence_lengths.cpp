// SPDX-License-Identifier: MIT
#include "workload/generator/sequence_lengths.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/errors.h"

namespace trainyard {
namespace {

constexpr uint32_t kLengthDice = 212;
constexpr double kLog2E = 1.4426950408889634;

}  // namespace

SequenceLengths::SequenceLengths(const Training& t, uint64_t seed)
    : seed_(seed),
      sequence_(t.sequence),
      document_(t.document),
      micro_(t.micro_batch),
      microbatches_(t.microbatches),
      dp_(t.dp),
      cp_(t.cp),
      sigma_q32_(std::llround(t.document_sigma * kLog2E * 4294967296.0)),
      balance_(t.balance_sequences) {
  TRAINYARD_ASSERT(document_ > 0);
}

uint64_t SequenceLengths::sequence_q32(uint32_t step, int64_t sequence) const {
  unsigned __int128 squares = 0;
  int64_t left = sequence_;
  for (uint64_t d = 0; left > 0; ++d) {
    const uint64_t object = uint64_t{step} << 40 | static_cast<uint64_t>(sequence);
    const auto z = static_cast<__int128>(normal_q32(seed_, kLengthDice, object, d));
    const auto x = static_cast<int64_t>((z * sigma_q32_) >> 32);
    const uint64_t factor =
        exp2_q32(std::clamp<int64_t>(x, -(int64_t{30} << 32), int64_t{20} << 32));
    const auto drawn =
        static_cast<int64_t>((static_cast<unsigned __int128>(document_) * factor) >> 32);
    const int64_t length = std::clamp<int64_t>(drawn, 1, left);
    squares += static_cast<unsigned __int128>(length) * static_cast<uint64_t>(length);
    left -= length;
  }
  const auto whole = static_cast<unsigned __int128>(sequence_) * static_cast<uint64_t>(sequence_);
  return static_cast<uint64_t>((squares << 32) / whole);
}

const std::vector<uint64_t>& SequenceLengths::loads(uint32_t step) const {
  const auto it = loads_.find(step);
  if (it != loads_.end()) return it->second;
  if (loads_.size() >= 8) loads_.clear();
  const int64_t total = dp_ * microbatches_ * micro_;
  std::vector<uint64_t> cost(static_cast<size_t>(total));
  for (int64_t i = 0; i < total; ++i) cost[static_cast<size_t>(i)] = sequence_q32(step, i);
  std::vector<uint64_t> out(static_cast<size_t>(dp_ * microbatches_));
  const auto add = [&](int64_t replica, int64_t microbatch, uint64_t c) {
    out[static_cast<size_t>(replica * microbatches_ + microbatch)] +=
        c / static_cast<uint64_t>(micro_);
  };
  if (!balance_) {
    // As Megatron-LM samples: micro-batch by micro-batch, replica by replica.
    for (int64_t i = 0; i < total; ++i) {
      add(i / micro_ % dp_, i / micro_ / dp_, cost[static_cast<size_t>(i)]);
    }
    return loads_.emplace(step, std::move(out)).first->second;
  }
  // Longest first to the replica, and there to the micro-batch, that has least and has room.
  std::vector<int64_t> order(cost.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return cost[static_cast<size_t>(a)] > cost[static_cast<size_t>(b)];
  });
  std::vector<uint64_t> of(static_cast<size_t>(dp_));
  std::vector<int64_t> n(static_cast<size_t>(dp_));
  std::vector<int64_t> filled(out.size());
  for (const int64_t i : order) {
    const uint64_t c = cost[static_cast<size_t>(i)];
    int64_t replica = -1;
    for (int64_t d = 0; d < dp_; ++d) {
      if (n[static_cast<size_t>(d)] == microbatches_ * micro_) continue;
      if (replica < 0 || of[static_cast<size_t>(d)] < of[static_cast<size_t>(replica)]) replica = d;
    }
    int64_t best = -1;
    for (int64_t m = 0; m < microbatches_; ++m) {
      const auto at = static_cast<size_t>(replica * microbatches_ + m);
      if (filled[at] == micro_) continue;
      if (best < 0 || out[at] < out[static_cast<size_t>(replica * microbatches_ + best)]) best = m;
    }
    of[static_cast<size_t>(replica)] += c;
    ++n[static_cast<size_t>(replica)];
    ++filled[static_cast<size_t>(replica * microbatches_ + best)];
    add(replica, best, c);
  }
  return loads_.emplace(step, std::move(out)).first->second;
}

uint64_t SequenceLengths::load_q32(uint32_t step, uint32_t microbatch, uint32_t replica) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return loads(
      step)[static_cast<size_t>(replica) * static_cast<size_t>(microbatches_) + microbatch];
}

uint64_t JobExchanges::load_q32(uint32_t group, uint32_t members, uint32_t exchange,
                                uint32_t member) const {
  if (exchange < kSequences) return routing_->load_q32(group, members, exchange, member);
  const uint32_t n = exchange - kSequences;
  const auto per_step = static_cast<uint32_t>(lengths_->microbatches());
  // Members of a data-parallel group: context-parallel ranks first; copies of a stage behind.
  const auto context = static_cast<uint32_t>(lengths_->context());
  const auto replicas = static_cast<uint32_t>(lengths_->replicas());
  return lengths_->load_q32(n / per_step, n % per_step, member / context % replicas);
}

}  // namespace trainyard
