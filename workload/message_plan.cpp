// SPDX-License-Identifier: MIT
#include "workload/message_plan.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "sim/errors.h"

namespace trainyard {

uint32_t MessagePlan::add(uint32_t src, uint32_t dst, int64_t bytes, uint32_t channel,
                          const std::vector<uint32_t>& after) {
  TRAINYARD_ASSERT(src < members_ && dst < members_ && src != dst && bytes >= 0);
  if (bytes == 0) return kNone;
  const auto index = static_cast<uint32_t>(messages_.size());
  for (const uint32_t before : after) {
    if (before == kNone) continue;
    TRAINYARD_ASSERT(before < index);
    TRAINYARD_ASSERT(messages_[before].src == src || messages_[before].dst == src);
    pairs_.emplace_back(before, index);
  }
  messages_.push_back({src, dst, channel, bytes});
  return index;
}

void MessagePlan::finish() {
  std::sort(pairs_.begin(), pairs_.end());
  pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
  const size_t n = messages_.size();
  first_after_.assign(n + 1, 0);
  waits_.assign(n, 0);
  after_.reserve(pairs_.size());
  for (const auto& [before, after] : pairs_) {
    ++first_after_[before + 1];
    ++waits_[after];
    after_.push_back(after);
  }
  for (size_t i = 0; i < n; ++i) first_after_[i + 1] += first_after_[i];
  pairs_ = {};
  next_.assign(n, kNone);
  first_.assign(n, 1);
  std::vector<uint32_t> order(n);
  for (uint32_t i = 0; i < n; ++i) order[i] = i;
  const auto edge = [&](uint32_t i) {
    const Message& m = messages_[i];
    return std::make_tuple(m.src, m.dst, m.channel, i);
  };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return edge(a) < edge(b); });
  for (size_t k = 1; k < n; ++k) {
    const Message& a = messages_[order[k - 1]];
    const Message& b = messages_[order[k]];
    if (a.src != b.src || a.dst != b.dst || a.channel != b.channel) continue;
    next_[order[k - 1]] = order[k];
    first_[order[k]] = 0;
  }
}

int64_t part_of(int64_t bytes, int64_t parts, int64_t i) {
  const auto edge = [&](int64_t k) {
    return static_cast<int64_t>(static_cast<__int128>(bytes) * k / parts);
  };
  return std::max<int64_t>(1, edge(i + 1) - edge(i));
}

int64_t exchange_share(const CollectiveRequest& r, uint32_t from, uint32_t to) {
  const auto n = static_cast<uint32_t>(r.members->size());
  if (r.sizes) return (*r.sizes)[static_cast<size_t>(from) * n + to];
  return part_of(r.bytes, n, to);
}

int64_t exchange_sent(const CollectiveRequest& r) {
  const auto n = static_cast<int64_t>(r.members->size());
  if (!r.sizes) return static_cast<int64_t>(static_cast<__int128>(r.bytes) * (n - 1) / n);
  int64_t sum = 0;
  for (size_t i = 0; i < r.sizes->size(); ++i) {
    if (i % static_cast<size_t>(n + 1) != 0) sum += (*r.sizes)[i];
  }
  return sum / n;
}

}  // namespace trainyard
