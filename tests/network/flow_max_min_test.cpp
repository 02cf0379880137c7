// SPDX-License-Identifier: MIT
#include "network/flow/max_min.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "sim/dice.h"

namespace trainyard {
namespace {

/// What the definition asks for, checked without the solver's own books.
void expect_max_min(const MaxMin& solver, const std::vector<std::vector<uint32_t>>& paths,
                    const std::vector<int64_t>& capacity) {
  std::map<uint32_t, std::vector<int64_t>> on;  // port -> rates
  for (uint32_t f = 0; f < paths.size(); ++f) {
    if (!solver.active(f)) {
      EXPECT_EQ(solver.rate(f), 0);
      continue;
    }
    for (const uint32_t p : paths[f]) on[p].push_back(solver.rate(f));
  }
  for (const auto& [port, rates] : on) {
    const int64_t sum = std::accumulate(rates.begin(), rates.end(), int64_t{0});
    EXPECT_EQ(sum, solver.load(port));
    EXPECT_LE(sum, capacity[port]) << "port " << port << " is overloaded";
  }
  for (uint32_t f = 0; f < paths.size(); ++f) {
    if (!solver.active(f)) continue;
    bool held_back = false;
    for (const uint32_t p : paths[f]) {
      const auto& rates = on[p];
      const int64_t sum = std::accumulate(rates.begin(), rates.end(), int64_t{0});
      const int64_t largest = *std::max_element(rates.begin(), rates.end());
      // Saturated: not even one bit per second more for everybody.
      const bool saturated = capacity[p] - sum < static_cast<int64_t>(rates.size());
      held_back = held_back || (saturated && solver.rate(f) == largest);
    }
    EXPECT_TRUE(held_back) << "flow " << f << " at " << solver.rate(f) << " has no bottleneck";
  }
}

TEST(MaxMin, ThreeFlowsTwoLinks) {
  // Bertsekas and Gallager's kind of example: a long flow over both links, a short one on each.
  MaxMin m;
  const uint32_t a = m.add_port(10), b = m.add_port(4);
  const uint32_t both = m.add_flow({a, b}), on_a = m.add_flow({a}), on_b = m.add_flow({b});
  for (const uint32_t f : {both, on_a, on_b}) m.activate(f);
  m.solve();
  EXPECT_EQ(m.rate(both), 2);
  EXPECT_EQ(m.rate(on_b), 2);
  EXPECT_EQ(m.rate(on_a), 8);
  // Without the short flow of b, the long one is held back by a.
  m.deactivate(on_b);
  m.solve();
  EXPECT_EQ(m.rate(both), 4);
  EXPECT_EQ(m.rate(on_a), 6);
  m.set_capacity(b, 20);
  EXPECT_EQ(m.solve().size(), 2U);
  EXPECT_EQ(m.rate(both), 5);
  EXPECT_EQ(m.rate(on_a), 5);
}

TEST(MaxMin, FiveFlowsThreeLinksByHand) {
  // Link 0 of 12: flows 0 1 2. Link 1 of 12: flows 2 3. Link 2 of 3: flows 3 4 and 0.
  MaxMin m;
  for (const int64_t c : {12, 12, 3}) m.add_port(c);
  const std::vector<std::vector<uint32_t>> paths = {{0, 2}, {0}, {0, 1}, {1, 2}, {2}};
  for (const auto& p : paths) m.activate(m.add_flow(p));
  m.solve();
  // Link 2 stops 0, 3 and 4 at 1. Link 0 has 11 left for 1 and 2: 5 each (one bit over).
  EXPECT_EQ(m.rate(0), 1);
  EXPECT_EQ(m.rate(3), 1);
  EXPECT_EQ(m.rate(4), 1);
  EXPECT_EQ(m.rate(1), 5);
  EXPECT_EQ(m.rate(2), 5);
  expect_max_min(m, paths, {12, 12, 3});
}

TEST(MaxMin, TiesAndRoundingDoNotDependOnOrder) {
  // Link 0 has a bit to spare that flow 0 could only take if it were stopped after flow 1.
  for (const bool swapped : {false, true}) {
    MaxMin m;
    const uint32_t first = m.add_port(swapped ? 1 : 3), second = m.add_port(swapped ? 3 : 1);
    const uint32_t wide = swapped ? second : first, narrow = swapped ? first : second;
    const uint32_t one = m.add_flow({wide}), two = m.add_flow({wide, narrow});
    m.activate(two);
    m.solve();
    m.activate(one);
    m.solve();
    EXPECT_EQ(m.rate(two), 1);
    EXPECT_EQ(m.rate(one), 1);  // both links stop at the share 1, at once
  }
}

struct RandomCase {
  uint32_t ports, flows;
  int64_t most;  // capacity
};

class MaxMinRandom : public ::testing::TestWithParam<RandomCase> {};

/// Flows come and go, capacities change; every time the repaired allocation must be the one from
/// scratch, bit for bit, fair by the definition, and that of flows and ports in another order.
TEST_P(MaxMinRandom, RepairEqualsFromScratch) {
  const RandomCase c = GetParam();
  for (uint64_t round = 0; round < 20; ++round) {
    uint64_t draws = 0;
    const auto draw = [&](uint64_t below) { return dice(round, 7, c.ports, draws++) % below; };
    MaxMin repaired, scratch, renamed;
    std::vector<int64_t> capacity;
    for (uint32_t p = 0; p < c.ports; ++p) {
      capacity.push_back(1 + static_cast<int64_t>(draw(static_cast<uint64_t>(c.most))));
      repaired.add_port(capacity.back());
      scratch.add_port(capacity.back());
    }
    for (uint32_t p = 0; p < c.ports; ++p) renamed.add_port(capacity[c.ports - 1 - p]);
    std::vector<std::vector<uint32_t>> paths;
    for (uint32_t f = 0; f < c.flows; ++f) {
      std::vector<uint32_t> path;
      const uint64_t hops = 1 + draw(std::min<uint32_t>(6, c.ports));
      while (path.size() < hops) {
        const auto p = static_cast<uint32_t>(draw(c.ports));
        if (std::count(path.begin(), path.end(), p) == 0) path.push_back(p);
      }
      paths.push_back(path);
      repaired.add_flow(path);
      scratch.add_flow(path);
    }
    for (uint32_t f = c.flows; f-- > 0;) {
      std::vector<uint32_t> path;
      for (const uint32_t p : paths[f]) path.push_back(c.ports - 1 - p);
      renamed.add_flow(path);
    }
    for (int step = 0; step < 60; ++step) {
      for (uint64_t changes = 1 + draw(4); changes > 0; --changes) {
        if (draw(8) == 0) {
          const auto p = static_cast<uint32_t>(draw(c.ports));
          capacity[p] = 1 + static_cast<int64_t>(draw(static_cast<uint64_t>(c.most)));
          repaired.set_capacity(p, capacity[p]);
          scratch.set_capacity(p, capacity[p]);
          renamed.set_capacity(c.ports - 1 - p, capacity[p]);
          continue;
        }
        const auto f = static_cast<uint32_t>(draw(c.flows));
        for (MaxMin* m : {&repaired, &scratch}) m->active(f) ? m->deactivate(f) : m->activate(f);
        const uint32_t g = c.flows - 1 - f;
        renamed.active(g) ? renamed.deactivate(g) : renamed.activate(g);
      }
      std::vector<int64_t> before;
      for (uint32_t f = 0; f < c.flows; ++f) before.push_back(repaired.rate(f));
      const std::vector<uint32_t> changed = repaired.solve();
      scratch.solve_from_scratch();
      renamed.solve();
      for (uint32_t f = 0; f < c.flows; ++f) {
        ASSERT_EQ(repaired.rate(f), scratch.rate(f)) << "round " << round << " step " << step;
        ASSERT_EQ(repaired.rate(f), renamed.rate(c.flows - 1 - f));
        if (!repaired.active(f) || repaired.rate(f) == before[f]) continue;
        EXPECT_EQ(std::count(changed.begin(), changed.end(), f), 1) << "a change was not reported";
      }
      expect_max_min(repaired, paths, capacity);
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, MaxMinRandom,
                         ::testing::Values(RandomCase{4, 12, 20},    // ties and rounding everywhere
                                           RandomCase{12, 40, 100},  // the same, wider
                                           RandomCase{40, 60,
                                                      400'000'000'000},  // sparse, realistic rates
                                           RandomCase{30, 200, 1'000'000}));  // dense

TEST(MaxMin, RepairsOnlyWhatCanChange) {
  // Two groups of links that share nothing: a change in one does not compute rates in the other.
  MaxMin m;
  for (int p = 0; p < 20; ++p) m.add_port(1'000'000);
  for (uint32_t p = 0; p < 20; ++p) {
    for (int k = 0; k < 50; ++k) m.activate(m.add_flow({p}));
  }
  m.solve();
  const uint64_t before = m.rates_computed();
  m.deactivate(0);
  m.solve();
  EXPECT_EQ(m.rates_computed() - before, 49U);
  EXPECT_EQ(m.rate(1), 1'000'000 / 49);
  EXPECT_EQ(m.rate(999), 20'000);
}

}  // namespace
}  // namespace trainyard
