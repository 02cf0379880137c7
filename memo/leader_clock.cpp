// SPDX-License-Identifier: MIT
#include "memo/leader_clock.h"

#include <algorithm>

#include "sim/errors.h"

namespace trainyard {
namespace {

constexpr int64_t kNo = LeaderClock::kNever;

}  // namespace

void LeaderClock::add(uint32_t domain) {
  TRAINYARD_ASSERT(!has(domain));
  if (domain >= slots_.size()) slots_.resize(domain + 1, kNone);
  slots_[domain] = static_cast<uint32_t>(domains_.size());
  domains_.push_back(domain);
  if (domains_.size() > leaves_) grow();
}

void LeaderClock::grow() {
  const size_t before = leaves_;
  const std::vector<int64_t> when = std::move(when_);
  const std::vector<int64_t> tells = std::move(tells_);
  leaves_ = std::max<size_t>(4, 2 * leaves_);
  when_.assign(2 * leaves_, kNo);
  tells_.assign(2 * leaves_, kNo);
  for (size_t i = 0; i < before; ++i) {
    put(static_cast<uint32_t>(i), when[before + i], tells[before + i]);
  }
}

void LeaderClock::remove(uint32_t domain) {
  if (!has(domain)) return;
  const uint32_t slot = slots_[domain];
  const auto last = static_cast<uint32_t>(domains_.size() - 1);
  if (slot != last) {
    put(slot, when_[leaves_ + last], tells_[leaves_ + last]);
    domains_[slot] = domains_[last];
    slots_[domains_[slot]] = slot;
  }
  put(last, kNo, kNo);
  domains_.pop_back();
  slots_[domain] = kNone;
}

void LeaderClock::put(uint32_t slot, int64_t when, int64_t tells) {
  size_t node = leaves_ + slot;
  when_[node] = when;
  tells_[node] = tells;
  for (node /= 2; node >= 1; node /= 2) {
    const int64_t w = std::min(when_[2 * node], when_[2 * node + 1]);
    const int64_t t = std::min(tells_[2 * node], tells_[2 * node + 1]);
    if (w == when_[node] && t == tells_[node]) return;
    when_[node] = w;
    tells_[node] = t;
  }
}

void LeaderClock::set(uint32_t domain, int64_t at, bool ready, int64_t tells) {
  // Times are far below half of what fits.
  put(slots_[domain], at == kNever ? kNo : 2 * at + (ready ? 1 : 0), tells);
}

LeaderClock::First LeaderClock::first() const {
  First f;
  if (domains_.empty() || when_[1] == kNo) return f;
  size_t node = 1;
  while (node < leaves_) node = 2 * node + (when_[2 * node] == when_[node] ? 0 : 1);
  f.domain = domains_[node - leaves_];
  f.at = when_[node] >> 1;
  f.ready = (when_[node] & 1) != 0;
  return f;
}

int64_t LeaderClock::tells_but(uint32_t domain) const {
  int64_t least = kNo;
  for (size_t node = leaves_ + slots_[domain]; node > 1; node /= 2) {
    least = std::min(least, tells_[node ^ 1U]);
  }
  return least;
}

void LeaderClock::due(int64_t at, std::vector<uint32_t>& out) const {
  if (!domains_.empty()) due_below(1, 2 * at + 1, out);
}

void LeaderClock::due_below(size_t node, int64_t when, std::vector<uint32_t>& out) const {
  if (when_[node] > when) return;
  if (node >= leaves_) {
    out.push_back(domains_[node - leaves_]);
    return;
  }
  due_below(2 * node, when, out);
  due_below(2 * node + 1, when, out);
}

void LeaderClock::going_on(int64_t bound, std::vector<First>& out) const {
  if (domains_.empty()) return;
  bound = std::min(bound, tells_[1]);
  going_on_below(1, bound == kNever ? kNo - 1 : 2 * bound, out);
}

void LeaderClock::going_on_below(size_t node, int64_t when, std::vector<First>& out) const {
  if (when_[node] > when) return;
  if (node >= leaves_) {
    if ((when_[node] & 1) == 0) out.push_back({domains_[node - leaves_], when_[node] >> 1, false});
    return;
  }
  going_on_below(2 * node, when, out);
  going_on_below(2 * node + 1, when, out);
}

}  // namespace trainyard
