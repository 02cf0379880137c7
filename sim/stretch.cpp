// SPDX-License-Identifier: MIT
#include "sim/stretch.h"

#include <algorithm>

namespace trainyard {
namespace {

constexpr uint32_t kNone = 0xffffffffU;

class Finder {
 public:
  explicit Finder(const OpGraph& graph) : g_(graph), first_(graph.ops.size() + 1, 0) {
    const auto n = static_cast<uint32_t>(g_.ops.size());
    for (uint32_t op = 0; op < n; ++op) first_[op + 1] = first_[op] + g_.dependency_count(op);
    later_.assign(n, kNone);
    std::vector<uint32_t> latest(graph.streams.size(), kNone);
    for (uint32_t op = n; op-- > 0;) {
      later_[op] = latest[g_.ops[op].stream];
      latest[g_.ops[op].stream] = op;
    }
    before_.resize(first_[n]);
    std::vector<uint32_t> at(first_.begin(), first_.end() - 1);
    for (uint32_t op = 0; op < n; ++op) {
      for (const uint32_t* s = g_.successors_begin(op); s != g_.successors_end(op); ++s) {
        before_[at[*s]++] = op;
      }
    }
  }

  std::vector<Stretch> find() {
    std::vector<Stretch> out;
    for (uint32_t op = 0; op < g_.ops.size(); ++op) {
      if (!may_begin(op)) continue;
      const Stretch s = from(op);
      if (s.collectives < 2) continue;
      out.push_back(s);
      op = s.last;
    }
    return out;
  }

 private:
  [[nodiscard]] bool is_fifo(uint32_t stream) const {
    return g_.streams[stream].order == StreamOrder::fifo && g_.streams[stream].name != "host";
  }
  [[nodiscard]] bool may_begin(uint32_t op) const {
    const Op& o = g_.ops[op];
    if (o.kind != OpKind::collective || o.exchange != 0 || !is_fifo(o.stream)) return false;
    // Nobody may be through before all have come.
    switch (o.collective) {
      case CollectiveKind::all_reduce:
      case CollectiveKind::all_gather:
      case CollectiveKind::all_to_all:
      case CollectiveKind::reduce_scatter:
      case CollectiveKind::reduce_scatter_block:
        return true;
      default:
        return false;
    }
  }
  /// What it waits for is over when the first op begins, or inside.
  [[nodiscard]] bool waits_inside(uint32_t op, uint32_t first) const {
    for (uint32_t i = first_[op]; i < first_[op + 1]; ++i) {
      const uint32_t p = before_[i];
      if ((p < first || p >= op) && !waits_for(first, p)) return false;
    }
    return true;
  }

  [[nodiscard]] bool waits_for(uint32_t op, uint32_t before) const {
    const auto begin = before_.begin() + first_[op];
    const auto end = before_.begin() + first_[op + 1];
    return std::find(begin, end, before) != end;
  }
  /// What comes after `collective` on its stream begins when `last` is over, or later.
  [[nodiscard]] bool next_waits_for(uint32_t last, uint32_t collective) const {
    const uint32_t next = later_[collective];
    if (next == kNone) return true;
    for (uint32_t i = first_[next]; i < first_[next + 1]; ++i) {
      const uint32_t p = before_[i];
      if (p >= last && g_.ops[p].stream == g_.ops[last].stream) return true;
    }
    return false;
  }

  [[nodiscard]] Stretch from(uint32_t first) const {
    const Op& head = g_.ops[first];
    Stretch best;
    Stretch s;
    s.first = first;
    s.group_slot = head.group_slot;
    s.communication = head.stream;
    s.computation = kNone;
    uint32_t reach = 0;           // the farthest successor of those before
    uint32_t collective = first;  // the last one
    for (uint32_t op = first; op < g_.ops.size(); ++op) {
      const Op& o = g_.ops[op];
      if (o.exchange != 0 || (op != first && !waits_inside(op, first))) break;
      uint32_t farthest = 0;
      for (const uint32_t* n = g_.successors_begin(op); n != g_.successors_end(op); ++n) {
        farthest = std::max(farthest, *n);
      }
      if (o.kind == OpKind::collective) {
        // One that nobody waits for may end after the last op.
        if (o.stream != s.communication || o.group_slot != s.group_slot || farthest == 0) break;
        ++s.collectives;
        collective = op;
      } else if (o.kind == OpKind::compute || o.kind == OpKind::memory) {
        if (s.computation == kNone) {
          if (!is_fifo(o.stream) || o.stream == s.communication) break;
          // Nothing begins before all members have come.
          if (!waits_for(op, first)) break;
          s.computation = o.stream;
          s.first_compute = op;
        }
        if (o.stream != s.computation) break;
        // The streams' turns have ended all others by then: the last collective has a successor up
        // to here, which computes.
        if (reach <= op && next_waits_for(op, collective)) {
          best = s;
          best.last = op;
        }
      } else {
        break;
      }
      reach = std::max(reach, farthest);
    }
    return best;
  }

  const OpGraph& g_;
  std::vector<uint32_t> first_, before_;  // dependencies of each op
  std::vector<uint32_t> later_;           // next op of its stream
};

}  // namespace

std::vector<Stretch> find_stretches(const OpGraph& graph) {
  return Finder(graph).find();
}

}  // namespace trainyard
