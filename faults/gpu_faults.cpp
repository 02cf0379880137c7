// SPDX-License-Identifier: MIT
#include "faults/gpu_faults.h"

#include <algorithm>
#include <cmath>

namespace trainyard {

void GpuFaults::slow(uint32_t rank, Time from, Time until, double factor) {
  ranks_[rank].push_back(
      {from, until, static_cast<uint64_t>(std::llround(factor * static_cast<double>(kOne)))});
}

void GpuFaults::stop(uint32_t rank, Time from, Time until) {
  ranks_[rank].push_back({from, until, 0});
}

uint64_t GpuFaults::factor_at(uint32_t rank, Time at, Time& until) const {
  until = Time::infinity();
  const auto it = ranks_.find(rank);
  if (it == ranks_.end()) return kOne;
  unsigned __int128 factor = kOne;
  for (const Interval& i : it->second) {
    if (at < i.from) {
      until = std::min(until, i.from);
    } else if (at < i.until) {
      until = std::min(until, i.until);
      // 2^20 is more than any sum of slow-downs needs, and keeps products in range.
      factor = std::min<unsigned __int128>((factor * i.factor_q32) >> 32, kOne << 20);
    }
  }
  return static_cast<uint64_t>(factor);
}

Time GpuFaults::end_of_compute(uint32_t rank, Time begin, Time work) const {
  if (ranks_.find(rank) == ranks_.end()) return begin + work;
  Time now = begin;
  unsigned __int128 left = static_cast<unsigned __int128>(work.ps()) << 32;  // in 2^-32 ps
  for (;;) {
    Time until;
    const uint64_t factor = factor_at(rank, now, until);
    if (factor == 0) {
      if (until == Time::infinity()) return until;
      now = until;
      continue;
    }
    // Rounded to the nearest picosecond.
    const unsigned __int128 needed =
        ((left >> 32) * factor + ((left & (kOne - 1)) * factor >> 32) + kOne / 2) >> 32;
    const unsigned __int128 room = until == Time::infinity()
                                       ? static_cast<unsigned __int128>(INT64_MAX - now.ps() - 1)
                                       : static_cast<unsigned __int128>((until - now).ps());
    if (needed <= room) return now + Time::ps(static_cast<int64_t>(needed));
    if (until == Time::infinity()) return until;
    left -= ((room << 64) / factor);
    now = until;
  }
}

Time GpuFaults::runs_from(uint32_t rank, Time at) const {
  for (;;) {
    Time until;
    if (factor_at(rank, at, until) != 0) return at;
    if (until == Time::infinity()) return until;
    at = until;
  }
}

}  // namespace trainyard
