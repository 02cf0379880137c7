// SPDX-License-Identifier: MIT
#include "sim/event_queue.h"

#include <algorithm>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace trainyard {
namespace {

using Item = std::tuple<int64_t, uint32_t, uint32_t>;

/// The queue beside a reference that is sorted by (time, key, arg).
class Pair {
 public:
  void push(int64_t time, uint32_t key, uint32_t arg) {
    queue_.push(time, key, arg);
    reference_.emplace(time, key, arg);
  }
  /// Returns the time popped.
  int64_t pop() {
    const Event e = queue_.pop();
    const Item got{e.time_ps, e.key, e.arg};
    EXPECT_EQ(got, *reference_.begin());
    reference_.erase(reference_.begin());
    EXPECT_EQ(queue_.size(), reference_.size());
    return e.time_ps;
  }
  void peek() { EXPECT_EQ(queue_.next_time(), std::get<0>(*reference_.begin())); }
  [[nodiscard]] size_t size() const { return reference_.size(); }
  [[nodiscard]] bool empty() const {
    EXPECT_EQ(queue_.empty(), reference_.empty());
    return reference_.empty();
  }
  void drain() {
    int64_t last = INT64_MIN;
    while (!empty()) {
      peek();
      const int64_t t = pop();
      EXPECT_GE(t, last);
      last = t;
      if (::testing::Test::HasFailure()) return;  // one difference makes thousands
    }
  }

 private:
  EventQueue queue_;
  std::multiset<Item> reference_;
};

TEST(EventQueue, EmptyAndSize) {
  EventQueue q;
  EXPECT_TRUE(q.empty());
  q.push(5, 1, 2);
  EXPECT_FALSE(q.empty());
  EXPECT_EQ(q.size(), 1U);
  EXPECT_EQ(q.next_time(), 5);
  EXPECT_EQ(q.size(), 1U);  // a look takes nothing
  const Event e = q.pop();
  EXPECT_EQ(e.time_ps, 5);
  EXPECT_EQ(e.key, 1U);
  EXPECT_EQ(e.arg, 2U);
  EXPECT_TRUE(q.empty());
}

// Equal times are settled by key, then arg, whatever the order of insertion; 20 events stay in the
// heap, 2,000 start the calendar.
TEST(EventQueue, TiesByKeyThenArg) {
  for (const uint32_t n : {20U, 2'000U}) {
    for (const bool backwards : {false, true}) {
      Pair q;
      for (uint32_t i = 0; i < n; ++i) {
        const uint32_t j = backwards ? n - 1 - i : i;
        q.push(1'000'000, j / 4, j % 4);
        q.push(1'000'000, j / 4, j % 4);  // twins are allowed
      }
      q.drain();
    }
  }
}

// The calendar covers some 100 us; seconds ahead wait elsewhere and come back in order.
TEST(EventQueue, FarHorizons) {
  std::mt19937_64 random(2);
  Pair q;
  const std::vector<int64_t> spans{1, 30'000, 40'000, 134'000'000, 135'000'000, 300'000'000,
                                   67'108'864'000, 10'000'000'000'000};
  for (int i = 0; i < 4'000; ++i) {
    const int64_t span = spans[static_cast<size_t>(i) % spans.size()];
    q.push(static_cast<int64_t>(random() % static_cast<uint64_t>(2 * span)),
           static_cast<uint32_t>(random() % 3), static_cast<uint32_t>(i));
  }
  q.drain();
}

// A look far ahead moves the calendar; new work may still start before what was seen.
TEST(EventQueue, PushBeforeAPeekedTime) {
  std::mt19937_64 random(3);
  Pair q;
  for (uint32_t i = 0; i < 300; ++i) q.push(100 + i, 0, i);  // enough to start the calendar
  int64_t now = 0;
  for (int round = 0; round < 300; ++round) {
    while (q.size() > 1) now = q.pop();
    q.push(now + 67'000'000'000, 5, 0);  // timers far ahead, several rounds of the calendar
    q.push(now + 67'000'000'000 + 134'217'728, 5, 1);
    now = std::max(now, q.pop());
    q.peek();
    // Closer and closer to `now`, so that each push is before the last peek.
    for (int64_t gap = 60'000'000'000; gap > 1; gap /= 1 + static_cast<int64_t>(random() % 50)) {
      if (gap == 1) break;
      q.push(now + gap, 1, static_cast<uint32_t>(round));
      q.peek();
      gap = std::max<int64_t>(gap / 2, 1);
    }
    if (HasFailure()) return;
  }
  q.drain();
}

// Pushes and pops at random, never before the last pop, with bursts at one instant and the number
// pending going up through 256 (the calendar has started by then) and back to zero.
TEST(EventQueue, RandomAgainstReference) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t n) { return random() % n; };
    Pair q;
    int64_t now = 0;
    bool growing = true;
    for (int step = 0; step < 20'000; ++step) {
      if (q.size() > 1'500) growing = false;
      if (q.size() == 0) growing = true;
      const bool push = q.size() == 0 || below(10) < (growing ? 6U : 4U);
      if (!push) {
        if (below(2) == 0) q.peek();
        now = q.pop();
      } else {
        int64_t at = now;
        switch (below(6)) {
          case 0: break;                                                   // now
          case 1: at += static_cast<int64_t>(below(32'768)); break;        // this bucket or next
          case 2: at += static_cast<int64_t>(below(4'000'000)); break;     // a wire
          case 3: at += static_cast<int64_t>(below(200'000'000)); break;   // about the horizon
          case 4: at += static_cast<int64_t>(below(80'000'000'000)); break;  // a timeout
          default: at += 134'217'728 * static_cast<int64_t>(below(4)); break;  // whole rounds
        }
        const uint64_t burst = below(50) == 0 ? 40 : 1;
        for (uint64_t i = 0; i < burst; ++i) {
          q.push(at, static_cast<uint32_t>(below(8)), static_cast<uint32_t>(below(4)));
        }
      }
      if (HasFailure()) FAIL() << "seed " << seed << ", step " << step;
    }
    q.drain();
  }
}

// Crowded and empty stretches in turn, each long enough for the calendar to change its bucket width
// several times, with a timer far ahead throughout.
TEST(EventQueue, DenseAndSparseInTurn) {
  std::mt19937_64 random(5);
  Pair q;
  int64_t now = 0;
  q.push(90'000'000'000'000, 9, 9);
  for (uint32_t i = 0; i < 400; ++i) q.push(static_cast<int64_t>(i), 0, i);
  const std::vector<uint64_t> gaps{100'000'000, 4'000, 20'000'000'000, 4'000'000, 100, 300'000'000};
  for (const uint64_t gap : gaps) {
    for (uint32_t i = 0; i < 30'000; ++i) {
      now = q.pop();
      q.push(now + static_cast<int64_t>(random() % gap), static_cast<uint32_t>(random() % 4), i);
      if (i % 64 == 0) {
        q.peek();
        q.push(now, 7, i);  // before what the look may have moved to
        now = q.pop();
      }
    }
    if (HasFailure()) FAIL() << "gap " << gap;
  }
  q.drain();
}

// All ones in the key are as good as any other key.
TEST(EventQueue, KeysAreUnsigned) {
  Pair q;
  q.push(7, 0xffffffffU, 0);
  q.push(7, 0x80000000U, 0);
  q.push(7, 0x7fffffffU, 0xffffffffU);
  q.push(7, 0x7fffffffU, 0);
  q.drain();
}

}  // namespace
}  // namespace trainyard
