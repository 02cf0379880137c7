// SPDX-License-Identifier: MIT
#include "faults/gpu_faults.h"

#include <algorithm>
#include <cmath>

#include "network/topology_select.h"
#include "sim/dice.h"

namespace trainyard {

namespace {

constexpr uint32_t kLaunchDice = 0x6c61756e;  // a purpose of its own

bool chosen(const OpChoice& choice, const OpGraph& graph, uint32_t op) {
  if (choice.compute_only && graph.ops[op].kind == OpKind::memory) return false;
  return choice.name == "*" || matches_pattern(choice.name, graph.name_of(op));
}

}  // namespace

void GpuFaults::slow(uint32_t rank, Time from, Time until, double factor, const OpChoice& ops) {
  ranks_[rank].push_back(
      {from, until, static_cast<uint64_t>(std::llround(factor * static_cast<double>(kOne))), ops});
}

void GpuFaults::delay_launches(uint32_t rank, Time from, Time until, Time delay, bool dice,
                               uint64_t seed) {
  hosts_[rank].delays.push_back({from, until, delay, dice, seed});
}

void GpuFaults::pause(uint32_t rank, Time from, Time until, Time period, Time pause, Time phase) {
  hosts_[rank].pauses.push_back({from, until, period, pause, phase});
}

void GpuFaults::exit(uint32_t rank, Time at) {
  stop(rank, at, Time::infinity());
  Host& host = hosts_[rank];
  host.exit = std::min(host.exit, at);
}

void GpuFaults::call(uint32_t rank, Time from, Time until, const std::string& group, uint32_t nth,
                     const CollectiveCall& instead) {
  hosts_[rank].calls.push_back({from, until, group, nth, instead});
}

void GpuFaults::hang(uint32_t rank, Time from, Time until, const std::string& group) {
  hosts_[rank].calls.push_back({from, until, group, 0, {CollectiveCall::What::never}});
}

void GpuFaults::stop(uint32_t rank, Time from, Time until) {
  ranks_[rank].push_back({from, until, 0, {}});
}

uint64_t GpuFaults::factor_at(uint32_t rank, const Op& op, Time at, Time& until) const {
  until = Time::infinity();
  const auto it = ranks_.find(rank);
  if (it == ranks_.end()) return kOne;
  unsigned __int128 factor = kOne;
  for (const Interval& i : it->second) {
    if (op.graph != nullptr && !chosen(i.ops, *op.graph, op.op)) continue;
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

Time GpuFaults::end_of_op(uint32_t rank, const OpGraph& graph, uint32_t op, Time begin,
                          Time work) const {
  if (ranks_.find(rank) == ranks_.end()) return begin + work;
  Time now = begin;
  unsigned __int128 left = static_cast<unsigned __int128>(work.ps()) << 32;  // in 2^-32 ps
  for (;;) {
    Time until;
    const uint64_t factor = factor_at(rank, {&graph, op}, now, until);
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
    if (factor_at(rank, {nullptr, 0}, at, until) != 0) return at;
    if (until == Time::infinity()) return until;
    at = until;
  }
}

Time GpuFaults::launches_at(uint32_t rank, uint32_t op, Time at) const {
  const auto it = hosts_.find(rank);
  if (it == hosts_.end()) return at;
  const Host& host = it->second;
  Time launched = at;
  for (const Delay& d : host.delays) {
    if (at < d.from || at >= d.until) continue;
    if (!d.dice) {
      launched += d.delay;
      continue;
    }
    const auto draw = dice(d.seed, kLaunchDice, rank, op);
    const auto range = static_cast<unsigned __int128>(2 * d.delay.ps());
    launched += Time::ps(static_cast<int64_t>((range * draw) >> 64));
  }
  // The end of one pause may lie in another.
  for (bool moved = true; moved;) {
    moved = false;
    for (const Pause& p : host.pauses) {
      const Time first = p.from + p.phase;
      if (launched < first || launched >= p.until) continue;
      const int64_t into = (launched - first).ps() % p.period.ps();
      if (into >= p.pause.ps()) continue;
      launched = std::min(launched + Time::ps(p.pause.ps() - into), p.until);
      moved = true;
    }
  }
  return launched >= host.exit ? Time::infinity() : launched;
}

Time GpuFaults::exits_at(uint32_t rank) const {
  const auto it = hosts_.find(rank);
  return it == hosts_.end() ? Time::infinity() : it->second.exit;
}

CollectiveCall GpuFaults::call(uint32_t rank, const std::string& group, uint32_t nth,
                               Time at) const {
  const auto it = hosts_.find(rank);
  if (it == hosts_.end()) return {};
  for (const Call& c : it->second.calls) {
    if (at < c.from || at >= c.until || !matches_pattern(c.group, group)) continue;
    if (c.instead.what == CollectiveCall::What::never || c.nth == nth) return c.instead;
  }
  return {};
}

}  // namespace trainyard
