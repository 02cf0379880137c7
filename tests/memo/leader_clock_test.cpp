// SPDX-License-Identifier: MIT
#include "memo/leader_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "sim/dice.h"

namespace trainyard {
namespace {

// Beside a list that is looked through.
TEST(LeaderClock, IsThatOfALinearSearch) {
  struct Entry {
    int64_t at = LeaderClock::kNever, tells = LeaderClock::kNever;
    bool ready = false;
  };
  LeaderClock clock;
  std::map<uint32_t, Entry> list;
  for (uint32_t i = 0; i < 20'000; ++i) {
    const auto draw = [&](uint32_t what) { return dice(7, 1, what, i); };
    const auto domain = static_cast<uint32_t>(draw(1) % 37);
    switch (list.contains(domain) ? draw(2) % 8 : 8) {
      case 0:
        clock.remove(domain);
        list.erase(domain);
        break;
      case 8:
        clock.add(domain);
        list[domain] = {};
        [[fallthrough]];
      default: {
        Entry e;
        if (draw(3) % 9 != 0) e.at = static_cast<int64_t>(draw(4) % 50);
        e.ready = draw(5) % 2 == 0;
        if (e.at != LeaderClock::kNever) e.tells = e.at + static_cast<int64_t>(draw(6) % 5);
        clock.set(domain, e.at, e.ready, e.tells);
        list[domain] = e;
      }
    }
    const auto first = clock.first();
    int64_t at = LeaderClock::kNever;
    bool all_ready = true;
    for (const auto& [d, e] : list) {
      if (e.at < at) {
        at = e.at;
        all_ready = e.ready;
      } else if (e.at == at) {
        all_ready = all_ready && e.ready;
      }
    }
    ASSERT_EQ(first.at, at);
    if (at == LeaderClock::kNever) continue;
    ASSERT_EQ(list.at(first.domain).at, at);
    ASSERT_EQ(first.ready, all_ready);
    int64_t tells = LeaderClock::kNever;
    std::vector<uint32_t> due;
    for (const auto& [d, e] : list) {
      if (d != first.domain) tells = std::min(tells, e.tells);
      if (e.at == at) due.push_back(d);
    }
    ASSERT_EQ(clock.tells_but(first.domain), tells);
    if (!all_ready) continue;
    std::vector<uint32_t> found;
    clock.due(at, found);
    std::sort(found.begin(), found.end());
    ASSERT_EQ(found, due);
  }
}

}  // namespace
}  // namespace trainyard
