// SPDX-License-Identifier: MIT
#include "workload/generator/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace trainyard {
namespace {

using Work = ScheduleSlot::Work;

/// Runs a schedule with given durations and no communication time; returns the makespan.
struct Clock {
  int64_t f = 1, b = 1, w = 1;  // forward, input half and weight half, of a whole stage
};
int64_t makespan(ScheduleKind kind, uint32_t p, uint32_t m, uint32_t v, Clock c) {
  std::vector<std::vector<ScheduleSlot>> todo(p);
  for (uint32_t s = 0; s < p; ++s) todo[s] = make_schedule(kind, s, p, m, v);
  std::map<std::tuple<bool, uint32_t, uint32_t>, int64_t> done;  // (backward, virtual stage, mb)
  std::vector<size_t> next(p);
  std::vector<int64_t> now(p);
  const uint32_t last = p * v - 1;
  bool moved = true;
  while (moved) {
    moved = false;
    for (uint32_t s = 0; s < p; ++s) {
      while (next[s] < todo[s].size()) {
        const ScheduleSlot& slot = todo[s][next[s]];
        const uint32_t vs = slot.chunk * p + s;
        int64_t ready = 0;
        int64_t length = c.w;
        if (slot.work == Work::forward) {
          length = c.f;
          if (vs > 0) {
            const auto it = done.find({false, vs - 1, slot.microbatch});
            if (it == done.end()) break;
            ready = it->second;
          }
        } else if (slot.work != Work::weight) {
          length = slot.work == Work::backward ? c.b + c.w : c.b;
          const auto it = vs == last ? done.find({false, vs, slot.microbatch})
                                     : done.find({true, vs + 1, slot.microbatch});
          if (it == done.end()) break;
          ready = it->second;
        }
        now[s] = std::max(now[s], ready) + length;
        if (slot.work == Work::forward) done[{false, vs, slot.microbatch}] = now[s];
        if (slot.work == Work::backward || slot.work == Work::input) {
          done[{true, vs, slot.microbatch}] = now[s];
        }
        ++next[s];
        moved = true;
      }
    }
  }
  for (uint32_t s = 0; s < p; ++s) EXPECT_EQ(todo[s].size(), next[s]) << "stage " << s << " hangs";
  return *std::max_element(now.begin(), now.end());
}

const ScheduleKind kKinds[] = {ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                               ScheduleKind::interleaved, ScheduleKind::split_backward};

TEST(Schedule, EveryMicrobatchGoesForwardAndBackOnceThroughEveryChunk) {
  for (const ScheduleKind kind : kKinds) {
    for (const auto& [p, m] : {std::pair{1U, 1U}, {1U, 5U}, {2U, 2U}, {3U, 2U}, {4U, 12U}}) {
      const uint32_t v = kind == ScheduleKind::interleaved ? 3 : 1;
      if (kind == ScheduleKind::interleaved && m % p != 0) continue;
      for (uint32_t s = 0; s < p; ++s) {
        std::map<std::tuple<Work, uint32_t, uint32_t>, int> seen;
        for (const ScheduleSlot& slot : make_schedule(kind, s, p, m, v)) {
          ++seen[{slot.work, slot.chunk, slot.microbatch}];
        }
        const size_t works = kind == ScheduleKind::split_backward ? 3 : 2;
        EXPECT_EQ(works * m * v, seen.size());
        for (const auto& [key, n] : seen) EXPECT_EQ(1, n);
      }
    }
  }
}

// A:F31, A:F32: idle time over ideal compute time.
TEST(Schedule, BubbleIsTheClosedForm) {
  for (const uint32_t p : {2U, 4U, 8U}) {
    for (const uint32_t m : {p, 2 * p, 4 * p}) {
      // Units that a chunk of 1/2 of a stage divides.
      const Clock stage{12, 12, 12};
      const int64_t ideal = static_cast<int64_t>(m) * 36;
      for (const ScheduleKind kind : kKinds) {
        const uint32_t v = kind == ScheduleKind::interleaved ? 2 : 1;
        const Clock chunk{stage.f / v, stage.b / v, stage.w / v};
        const int64_t time = makespan(kind, p, m, v, chunk);
        EXPECT_NEAR(ideal_bubble_ratio(kind, p, m, v),
                    static_cast<double>(time - ideal) / static_cast<double>(ideal), 1e-12)
            << "kind " << static_cast<int>(kind) << ", p " << p << ", m " << m;
      }
    }
  }
}

TEST(Schedule, BubbleInBothDenominators) {
  // A:F32: p = 4, m = 4: 75 % of ideal compute, 42.9 % of the step.
  const double r = ideal_bubble_ratio(ScheduleKind::one_f_one_b, 4, 4, 1);
  EXPECT_DOUBLE_EQ(0.75, r);
  EXPECT_NEAR(0.429, bubble_share(r), 0.0005);
  // A:F31: K = 8, M = 32: 7/39 of the step.
  EXPECT_NEAR(7.0 / 39, bubble_share(ideal_bubble_ratio(ScheduleKind::gpipe, 8, 32, 1)), 1e-12);
}

// A:F35: 3 (PP - 1) DP slots of bubble per step, backward being two of them long.
TEST(Schedule, BubbleSlotsOfRecycle) {
  const int64_t time = makespan(ScheduleKind::one_f_one_b, 16, 32, 1, {1, 1, 1});
  EXPECT_EQ(2880, (time - 3 * 32) * 64);
}

/// A schedule in two directions, with its own duration of a pair; the makespan.
struct BothWays {
  ScheduleKind kind;
  uint32_t p, m;
  int64_t f, b, w, pair;  // b: the input half

  [[nodiscard]] uint32_t parts() const { return kind == ScheduleKind::dualpipe_v ? 2 * p : p; }
  [[nodiscard]] uint32_t part(uint32_t stage, uint32_t chunk) const {
    return chunk == 0 ? stage : parts() - 1 - stage;
  }
  [[nodiscard]] int64_t makespan() const {
    std::vector<std::vector<ScheduleSlot>> todo;
    for (uint32_t s = 0; s < p; ++s) todo.push_back(make_schedule(kind, s, p, m, 1));
    std::map<std::tuple<bool, uint32_t, uint32_t>, int64_t> done;  // (backward, part, mb)
    std::vector<size_t> next(p);
    std::vector<int64_t> now(p);
    // -1: not there yet
    const auto ready = [&](uint32_t s, const ScheduleSlot& slot) -> int64_t {
      const uint32_t at = part(s, slot.chunk);
      if (slot.work == Work::weight) return 0;
      const bool forward = slot.work == Work::forward;
      if (forward && at == 0) return 0;
      const auto it = forward             ? done.find({false, at - 1, slot.microbatch})
                      : at + 1 == parts() ? done.find({false, at, slot.microbatch})
                                          : done.find({true, at + 1, slot.microbatch});
      return it == done.end() ? -1 : it->second;
    };
    const auto book = [&](uint32_t s, const ScheduleSlot& slot) {
      if (slot.work == Work::weight) return;
      done[{slot.work != Work::forward, part(s, slot.chunk), slot.microbatch}] = now[s];
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t s = 0; s < p; ++s) {
        while (next[s] < todo[s].size()) {
          const ScheduleSlot& slot = todo[s][next[s]];
          const bool two = next[s] + 1 < todo[s].size() && todo[s][next[s] + 1].beside;
          int64_t start = ready(s, slot);
          if (start < 0) break;
          int64_t length = slot.work == Work::forward    ? f
                           : slot.work == Work::backward ? b + w
                           : slot.work == Work::input    ? b
                                                         : w;
          if (two) {
            const int64_t other = ready(s, todo[s][next[s] + 1]);
            if (other < 0) break;
            start = std::max(start, other);
            length = pair;
          }
          now[s] = std::max(now[s], start) + length;
          book(s, slot);
          if (two) book(s, todo[s][next[s] + 1]);
          next[s] += two ? 2 : 1;
          moved = true;
        }
      }
    }
    for (uint32_t s = 0; s < p; ++s) {
      EXPECT_EQ(todo[s].size(), next[s]) << "stage " << s << " of " << p << " hangs";
    }
    return *std::max_element(now.begin(), now.end());
  }
};

// A:F34: (PP/2 - 1)(F&B + B - 3W), B with its weight half. Along a V: PP - 1 in place of PP/2 - 1.
TEST(Schedule, BubbleOfDualPipeIsThePublishedOne) {
  for (const uint32_t p : {2U, 4U, 8U, 16U}) {
    for (const uint32_t m : {2 * p, 2 * p + 2, 4 * p}) {
      for (const int64_t pair : {30, 26}) {  // 26: a pair is faster than its halves
        const BothWays d{ScheduleKind::dualpipe, p, m, 10, 10, 10, pair};
        const BothWays v{ScheduleKind::dualpipe_v, p, m, 10, 10, 10, pair};
        // What the rank does: pairs take less than their halves.
        const auto busy = [&](const BothWays& x, uint32_t stage) {
          int64_t sum = 0;
          const auto slots = make_schedule(x.kind, stage, p, m, 1);
          for (size_t i = 0; i < slots.size(); ++i) {
            const bool two = i + 1 < slots.size() && slots[i + 1].beside;
            sum += two ? x.pair : slots[i].work == Work::backward ? x.b + x.w : x.f;
            if (two) ++i;
          }
          return sum;
        };
        const int64_t once = pair + 20 - 30;
        // Of the ranks in the middle, which have most pairs; the others have to wait less.
        EXPECT_EQ((p / 2 - 1) * once, d.makespan() - busy(d, p / 2 - 1))
            << "p " << p << ", m " << m;
        EXPECT_EQ((p - 1) * once, v.makespan() - busy(v, p - 1)) << "p " << p << ", m " << m;
        if (pair == 30) {
          EXPECT_NEAR(ideal_bubble_ratio(d.kind, p, m, 1),
                      static_cast<double>(d.makespan() - 30 * m) / (30.0 * m), 1e-12);
          // Chunks of a V are half as long: 2m of them in m micro-batches.
          EXPECT_NEAR(ideal_bubble_ratio(v.kind, p, m, 2),
                      static_cast<double>(v.makespan() - 60 * m) / (60.0 * m), 1e-12);
        }
      }
    }
  }
}

// The figure beside the formula in arXiv:2412.19437: less than half of the bubble of 1F1B and of
// ZB1P, with PP + 1 micro-batches of activations.
TEST(Schedule, DualPipeBesideTheOthers) {
  const uint32_t p = 8;
  const uint32_t m = 20;
  const double d = ideal_bubble_ratio(ScheduleKind::dualpipe, p, m, 1);
  EXPECT_LT(2 * d, ideal_bubble_ratio(ScheduleKind::one_f_one_b, p, m, 1));
  EXPECT_LT(d, ideal_bubble_ratio(ScheduleKind::split_backward, p, m, 1));
  for (uint32_t s = 0; s < p; ++s) {
    EXPECT_GE(p + 1, peak_in_flight(make_schedule(ScheduleKind::dualpipe, s, p, m, 1))) << s;
  }
  EXPECT_EQ(p + 1, peak_in_flight(make_schedule(ScheduleKind::dualpipe, 0, p, m, 1)));
}

TEST(Schedule, DualPipeDoesEverythingOnceInBothDirections) {
  for (const ScheduleKind kind : {ScheduleKind::dualpipe, ScheduleKind::dualpipe_v}) {
    for (uint32_t s = 0; s < 6; ++s) {
      const auto slots = make_schedule(kind, s, 6, 14, 1);
      std::map<std::pair<uint32_t, uint32_t>, int> forwards, inputs, weights;
      for (const ScheduleSlot& slot : slots) {
        const std::pair<uint32_t, uint32_t> key{slot.chunk, slot.microbatch};
        if (slot.work == Work::forward) ++forwards[key];
        if (slot.work == Work::backward || slot.work == Work::input) {
          EXPECT_EQ(1, forwards[key]) << "back before forth";
          ++inputs[key];
        }
        if (slot.work == Work::backward || slot.work == Work::weight) {
          EXPECT_EQ(1, inputs[key]);
          ++weights[key];
        }
      }
      const size_t each = kind == ScheduleKind::dualpipe ? 14 : 28;
      EXPECT_EQ(each, forwards.size());
      EXPECT_EQ(forwards, inputs);
      EXPECT_EQ(forwards, weights);
      for (const auto& [key, n] : forwards) {
        EXPECT_EQ(1, n);
        if (kind == ScheduleKind::dualpipe) {
          EXPECT_EQ(key.first == 1, key.second >= 7);
        }
      }
    }
  }
}

TEST(Schedule, MicrobatchesInFlight) {
  for (uint32_t s = 0; s < 4; ++s) {
    // A:F28 for 1F1B: at most as many as there are stages from here on.
    EXPECT_EQ(4 - s, peak_in_flight(make_schedule(ScheduleKind::one_f_one_b, s, 4, 16, 1)));
    EXPECT_EQ(16U, peak_in_flight(make_schedule(ScheduleKind::gpipe, s, 4, 16, 1)));
    EXPECT_GE(4U, peak_in_flight(make_schedule(ScheduleKind::split_backward, s, 4, 16, 1)));
  }
  // arXiv:2205.05198 4.2.3: L (1 + (p-1)/(p v)) layers on the first stage: 31 chunks of 8 x 3.
  EXPECT_EQ(31U, peak_in_flight(make_schedule(ScheduleKind::interleaved, 0, 8, 64, 3)));
}

}  // namespace
}  // namespace trainyard
