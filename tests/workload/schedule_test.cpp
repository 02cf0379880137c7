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
