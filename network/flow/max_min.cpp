// SPDX-License-Identifier: MIT
#include "network/flow/max_min.h"

#include <algorithm>
#include <functional>

#include "sim/errors.h"

namespace trainyard {

uint32_t MaxMin::add_port(int64_t capacity_bps) {
  ports_.emplace_back().capacity = capacity_bps;
  return static_cast<uint32_t>(ports_.size() - 1);
}

void MaxMin::touch(uint32_t port) {
  if (ports_[port].dirty) return;
  ports_[port].dirty = true;
  dirty_.push_back(port);
}

void MaxMin::set_capacity(uint32_t port, int64_t capacity_bps) {
  Port& p = ports_[port];
  if (p.capacity == capacity_bps) return;
  p.capacity = capacity_bps;
  if (!p.members.empty()) touch(port);
}

uint32_t MaxMin::add_flow(const std::vector<uint32_t>& ports) {
  Flow f;
  f.first = static_cast<uint32_t>(path_.size());
  f.hops = static_cast<uint32_t>(ports.size());
  path_.insert(path_.end(), ports.begin(), ports.end());
  position_.resize(path_.size());
  flows_.push_back(f);
  return static_cast<uint32_t>(flows_.size() - 1);
}

void MaxMin::set_rate(Flow& f, int64_t rate) {
  if (rate == f.rate) return;
  for (uint32_t h = f.first; h < f.first + f.hops; ++h) {
    Port& p = ports_[path_[h]];
    p.members[position_[h]].rate = rate;
    p.sum += rate - f.rate;
  }
  f.rate = rate;
}

void MaxMin::activate(uint32_t flow) {
  Flow& f = flows_[flow];
  TRAINYARD_ASSERT(!f.active);
  f.active = true;
  f.rate = 0;
  ++active_;
  for (uint32_t h = 0; h < f.hops; ++h) {
    const uint32_t port = path_[f.first + h];
    Port& p = ports_[port];
    position_[f.first + h] = static_cast<uint32_t>(p.members.size());
    p.members.push_back({flow, h, 0});
    touch(port);
  }
  fresh_.push_back(flow);
}

void MaxMin::deactivate(uint32_t flow) {
  Flow& f = flows_[flow];
  TRAINYARD_ASSERT(f.active);
  f.active = false;
  --active_;
  for (uint32_t h = 0; h < f.hops; ++h) {
    const uint32_t port = path_[f.first + h];
    Port& p = ports_[port];
    const uint32_t at = position_[f.first + h];
    const Member last = p.members.back();
    p.members[at] = last;
    position_[flows_[last.flow].first + last.hop] = at;
    p.members.pop_back();
    p.sum -= f.rate;
    touch(port);
  }
  f.rate = 0;
}

void MaxMin::list(uint32_t port) {
  Port& p = ports_[port];
  if (p.listed) return;
  p.listed = true;
  p.share = -1;
  p.rising.clear();
  listed_.push_back(port);
}

void MaxMin::join(uint32_t flow) {
  Flow& f = flows_[flow];
  if (f.repaired) return;
  f.repaired = true;
  f.before = f.rate;
  repair_.push_back(flow);
  for (uint32_t h = f.first; h < f.first + f.hops; ++h) {
    list(path_[h]);
    ports_[path_[h]].rising.push_back(flow);
  }
}

/// Progressive filling of the repaired flows over what the others leave.
void MaxMin::fill() {
  heap_.clear();
  const auto share_of = [](const Port& p) { return std::max<int64_t>(p.free, 0) / p.left; };
  for (const uint32_t port : listed_) {
    Port& p = ports_[port];
    p.share = -1;
    p.left = static_cast<uint32_t>(p.rising.size());
    if (p.left == 0) continue;
    p.free = p.capacity - p.sum;
    for (const uint32_t flow : p.rising) p.free += flows_[flow].rate;
    heap_.emplace_back(share_of(p), port);
  }
  for (const uint32_t flow : repair_) flows_[flow].stopped = false;
  work_ += repair_.size();
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  size_t left = repair_.size();
  while (left > 0) {
    // All ports of the smallest share stop their flows at once. Shares only rise, so an entry that
    // is too small is put back.
    stop_.clear();
    int64_t share = -1;
    while (!heap_.empty() && (share < 0 || heap_.front().first <= share)) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      auto& [listed_share, port] = heap_.back();
      const Port& p = ports_[port];
      if (p.left == 0) {
        heap_.pop_back();
        continue;
      }
      const int64_t now = share_of(p);
      if (now != listed_share) {
        listed_share = now;
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
        continue;
      }
      share = now;
      stop_.push_back(port);
      heap_.pop_back();
    }
    TRAINYARD_ASSERT(!stop_.empty());
    for (const uint32_t port : stop_) {
      Port& p = ports_[port];
      p.share = share;
      for (const uint32_t flow : p.rising) {
        Flow& f = flows_[flow];
        if (f.stopped) continue;
        f.stopped = true;
        f.next = share;
        --left;
        for (uint32_t h = f.first; h < f.first + f.hops; ++h) {
          Port& crossed = ports_[path_[h]];
          crossed.free -= share;
          --crossed.left;
        }
      }
    }
  }
  for (const uint32_t flow : repair_) set_rate(flows_[flow], flows_[flow].next);
}

MaxMin::Top MaxMin::top_of(const Port& p) const {
  Top top;
  int64_t second = -1;
  for (const Member& m : p.members) {
    if (m.rate > top.rate) {
      second = top.rate;
      top = {m.rate, 1, false};
    } else if (m.rate == top.rate) {
      ++top.count;
    } else {
      second = std::max(second, m.rate);
    }
  }
  const auto n = static_cast<int64_t>(p.members.size());
  top.close = second >= 0 && top.rate - second < n && p.capacity - p.sum < n;
  return top;
}

/// The level of a port whose repaired flows would take all that they can get: an estimate of who
/// else will have to give way.
int64_t MaxMin::water_level(const Port& p) {
  rates_.clear();
  for (const Member& m : p.members) {
    if (!flows_[m.flow].repaired) rates_.push_back(m.rate);
  }
  std::sort(rates_.begin(), rates_.end());
  int64_t free = p.capacity;
  auto n = static_cast<int64_t>(p.members.size());
  for (const int64_t rate : rates_) {
    if (std::max<int64_t>(free, 0) / n < rate) break;
    free -= rate;
    --n;
  }
  return n > 0 ? std::max<int64_t>(free, 0) / n : 0;
}

/// The share at which a port has to stop all flows that are at or above it; -1: it lets all pass.
int64_t MaxMin::stopping_share(const Port& p) {
  rates_.clear();
  for (const Member& m : p.members) rates_.push_back(m.rate);
  std::sort(rates_.begin(), rates_.end());
  int64_t free = p.capacity;
  auto n = static_cast<int64_t>(rates_.size());
  for (size_t i = 0; i < rates_.size();) {
    const int64_t share = std::max<int64_t>(free, 0) / n;
    if (share <= rates_[i]) return share;
    size_t same = i;
    while (same < rates_.size() && rates_[same] == rates_[i]) ++same;
    free -= rates_[i] * static_cast<int64_t>(same - i);
    n -= static_cast<int64_t>(same - i);
    i = same;
  }
  return -1;
}

/// Flows of the port above a rate join the repair. @returns whether any was new.
bool MaxMin::join_above(Port& p, int64_t rate) {
  const size_t before = repair_.size();
  for (const Member& m : p.members) {
    if (m.rate > rate) join(m.flow);
  }
  return repair_.size() != before;
}

/// Checks the rule on every port of the repair. @returns whether flows had to join.
bool MaxMin::grow() {
  bool grown = false;
  const size_t ports = listed_.size();  // joining lists more
  for (size_t i = 0; i < ports; ++i) {
    Port& p = ports_[listed_[i]];
    if (p.members.empty()) continue;
    const Top top = top_of(p);
    // Flows that it stopped must not be below others.
    if (p.share >= 0 && top.rate > p.share) {
      if (!join_above(p, std::max(water_level(p), p.share))) join_above(p, p.share);
      grown = true;
      continue;
    }
    // Not more than the port has; and where the next smaller rate is less than a rounding away
    // from the largest, the port may have to stop both at the same share.
    if (p.sum > p.capacity || top.close) {
      const int64_t share = stopping_share(p);
      if (share >= 0 && share < top.rate) grown = join_above(p, share - 1) || grown;
    }
    // Others that it held back must still be held back, at the same rate.
    if (p.level >= 0 && (p.capacity - p.sum >= top.count || top.rate != p.level)) {
      for (const Member& m : p.members) {
        if (m.rate != p.level || flows_[m.flow].repaired) continue;
        join(m.flow);
        grown = true;
      }
    }
  }
  return grown;
}

const std::vector<uint32_t>& MaxMin::finish() {
  changed_.clear();
  for (const uint32_t port : listed_) {
    Port& p = ports_[port];
    p.listed = false;
    p.level = -1;
    if (p.members.empty()) continue;
    const Top top = top_of(p);
    if (p.capacity - p.sum < top.count) p.level = top.rate;
  }
  for (const uint32_t port : dirty_) ports_[port].dirty = false;
  for (const uint32_t flow : repair_) {
    Flow& f = flows_[flow];
    f.repaired = false;
    if (f.rate != f.before) changed_.push_back(flow);
  }
  dirty_.clear();
  listed_.clear();
  repair_.clear();
  fresh_.clear();
  return changed_;
}

const std::vector<uint32_t>& MaxMin::solve() {
  for (const uint32_t port : dirty_) list(port);
  for (const uint32_t flow : fresh_) {
    if (flows_[flow].active) join(flow);
  }
  while (true) {
    fill();
    if (!grow()) break;
    if (2 * repair_.size() <= active_) continue;
    // The change reaches most flows: take all, rather than learn it piece by piece.
    for (uint32_t port = 0; port < ports_.size(); ++port) {
      for (const Member& m : ports_[port].members) join(m.flow);
    }
  }
  return finish();
}

const std::vector<uint32_t>& MaxMin::solve_from_scratch() {
  for (uint32_t port = 0; port < ports_.size(); ++port) list(port);
  for (uint32_t flow = 0; flow < flows_.size(); ++flow) {
    if (flows_[flow].active) join(flow);
  }
  fill();
  return finish();
}

}  // namespace trainyard
