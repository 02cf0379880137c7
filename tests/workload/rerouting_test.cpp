// SPDX-License-Identifier: MIT
#include "workload/generator/rerouting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "sim/errors.h"
#include "workload/generator/schedule.h"

namespace trainyard {
namespace {

using Work = ScheduleSlot::Work;

/// End of a step of one replica that does what make_schedule() says, in slots: a forward takes one,
/// a backward two.
int64_t end_of_1f1b(uint32_t p, uint32_t m) {
  std::map<std::tuple<bool, uint32_t, uint32_t>, int64_t> done;  // (backward, stage, micro-batch)
  std::vector<size_t> next(p);
  std::vector<int64_t> now(p);
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t s = 0; s < p; ++s) {
      const auto schedule = make_schedule(ScheduleKind::one_f_one_b, s, p, m, 1);
      while (next[s] < schedule.size()) {
        const ScheduleSlot& slot = schedule[next[s]];
        const bool back = slot.work == Work::backward;
        int64_t from = 0;
        if (back || s > 0) {
          const bool turns = back && s + 1 == p;
          const auto it = done.find({back && !turns,
                                     turns  ? s
                                     : back ? s + 1
                                            : s - 1,
                                     slot.microbatch});
          if (it == done.end()) break;
          from = it->second;
        }
        now[s] = std::max(now[s], from) + (back ? 2 : 1);
        done[{back, s, slot.microbatch}] = now[s];
        ++next[s];
        moved = true;
      }
    }
  }
  return *std::max_element(now.begin(), now.end());
}

int64_t sum(const std::vector<int64_t>& of) {
  return std::accumulate(of.begin(), of.end(), int64_t{0});
}

// A:F35, N062: 3 (PP - 1) DP is what the workers of one stage have, counted in the schedule.
TEST(Rerouting, BubblesOfAStageAreThoseOfTheSchedule) {
  const int64_t end = end_of_1f1b(16, 32);
  const ReroutedSteps run = rerouted_steps({16, 64, 32, {}, false, false}, 1);
  EXPECT_EQ(run.first, end);
  for (const int64_t stage : run.bubbles) {
    EXPECT_EQ(stage, 64 * (end - 3 * 32));
    EXPECT_EQ(stage, 2880);
  }
  // A worker's work is 3 x 32 slots: as many workers' as 2,880 hold.
  EXPECT_EQ(run.bubbles[5] / (3 * 32), 30);
}

TEST(Rerouting, NoWorkIsLostAndLiveWorkersAreBusyOrIdle) {
  for (const bool split : {false, true}) {
    for (const bool staggered : {false, true}) {
      const Rerouting job{4, 3, 6, {{1, 2}, {0, 0}}, split, staggered};
      EXPECT_EQ(sum(rerouted_steps(job, 3).executed), 3 * 3 * 4 * 3 * 6);
      const ReroutedSteps one = rerouted_steps(job, 1);
      for (size_t s = 0; s < 4; ++s) {
        const int64_t live = s == 0 || s == 2 ? 2 : 3;
        EXPECT_EQ(one.executed[s], 3 * 3 * 6);
        EXPECT_EQ(one.bubbles[s] + one.executed[s], live * one.first);
      }
    }
  }
}

// Thirty failures in a job of 1,024 workers, at most two in a stage: split backward hides them
// behind what 1F1B leaves idle. All in one stage they are not hidden: its 34 live workers have no
// 2,880 bubbles.
TEST(Rerouting, ThirtyFailuresFitWhereTheyAreSpread) {
  Rerouting spread{16, 64, 32, {}, true, false};
  Rerouting together = spread;
  for (uint32_t i = 0; i < 30; ++i) {
    spread.failed.emplace_back(i, i % 16);
    together.failed.emplace_back(i, 5);
  }
  const int64_t healthy = end_of_1f1b(16, 32);
  EXPECT_LE(rerouted_steps(spread, 1).first, healthy);
  EXPECT_GT(rerouted_steps(together, 1).first, healthy);
  // 64 x 32 micro-batches over 34 workers, and no stage can be faster than its fullest worker.
  EXPECT_GE(rerouted_steps(together, 1).first, 3 * ((64 * 32 + 33) / 34));
}

// C:F9.53, F9.54: one of twelve workers. Each of the paper's steps helps.
TEST(Rerouting, SplitBackwardAndStaggeredOptimizerEachShortenTheStep) {
  const int64_t healthy = end_of_1f1b(4, 6);
  EXPECT_EQ(healthy, 27);
  Rerouting job{4, 3, 6, {{1, 2}}, false, false};
  const int64_t plain = rerouted_steps(job, 4).period;
  job.split_backward = true;
  const int64_t split = rerouted_steps(job, 4).period;
  job.staggered = true;
  const int64_t staggered = rerouted_steps(job, 4).period;
  // Two workers of the stage do the work of three: 3 x 6 micro-batches of 3 slots. No step can be
  // shorter; with both the stage is never idle.
  const int64_t least = 3 * 6 * 3 / 2;
  EXPECT_GT(plain, split);
  EXPECT_GT(split, staggered);
  EXPECT_EQ(staggered, least);
}

TEST(Rerouting, RefusesAStageWithNobodyLeftAndUnknownWorkers) {
  EXPECT_THROW(rerouted_steps({2, 2, 4, {{0, 1}, {1, 1}}, false, false}, 1), UserError);
  EXPECT_THROW(rerouted_steps({2, 2, 4, {{2, 1}}, false, false}, 1), UserError);
}

}  // namespace
}  // namespace trainyard
