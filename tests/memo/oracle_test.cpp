// SPDX-License-Identifier: MIT
// The exact fast path against one domain that holds everything, bit for bit.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/memo/random_job.h"

namespace trainyard::test {
namespace {

void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  // Of several drops, which one ends the run is not told apart.
  EXPECT_EQ(a.error.empty(), b.error.empty()) << what << ": " << a.error << b.error;
  if (!a.error.empty()) return;
  EXPECT_EQ(a.end, b.end) << what;
  EXPECT_EQ(a.timeline, b.timeline) << what;
  EXPECT_EQ(a.fabric, b.fabric) << what;
  EXPECT_EQ(a.transmissions, b.transmissions) << what;
  EXPECT_EQ(a.payload, b.payload) << what;
  EXPECT_EQ(a.pauses, b.pauses) << what;
  EXPECT_EQ(a.marks, b.marks) << what;
  EXPECT_EQ(a.drops, b.drops) << what;
  EXPECT_EQ(a.links, b.links) << what;
  for (size_t i = 0; i < a.flows.size(); ++i) EXPECT_EQ(a.flows[i], b.flows[i]) << what << " " << i;
}

struct Sum {
  uint64_t followed = 0, merges = 0, pool_merges = 0, materialised = 0, pauses = 0, marks = 0;
  uint64_t drops = 0, disturbances = 0;
  int64_t calm = 0;  // bytes outside of disturbed domains where there were some
};

Sum compare(uint64_t first, uint64_t last, Flavour flavour) {
  Sum sum;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const RandomCase c = random_case(seed, flavour);
    const Outcome off = run_case(c, Way::off);
    const Outcome apart = run_case(c, Way::apart);
    const Outcome memo = run_case(c, Way::memo);
    expect_same(off, apart, "domains: " + c.text);
    expect_same(off, memo, "memo: " + c.text);
    sum.followed += memo.stats.followed;
    sum.merges += memo.stats.merges;
    sum.pool_merges += memo.stats.pool_merges;
    sum.materialised += memo.stats.materialised;
    sum.pauses += memo.pauses;
    sum.marks += memo.marks;
    sum.drops += memo.drops;
    sum.disturbances += memo.stats.disturbances;
    if (memo.stats.disturbances > 0) sum.calm += memo.payload - memo.stats.bytes_disturbed;
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "first failing: " << c.text;
      return sum;
    }
  }
  return sum;
}

uint64_t seeds(uint64_t standard) {
  const char* more = std::getenv("TRAINYARD_ORACLE_SEEDS");
  return more == nullptr ? standard : std::strtoull(more, nullptr, 10);
}

TEST(Oracle, AmpleBuffers) {
  const Sum s = compare(1, seeds(150), Flavour::plain);
  EXPECT_GT(s.followed, 0U);
  EXPECT_GT(s.merges, 0U);
  EXPECT_GT(s.materialised, 0U);
}

TEST(Oracle, ThresholdsNearXoff) {
  const Sum s = compare(1, seeds(120), Flavour::tight);
  EXPECT_GT(s.pauses, 0U);
  EXPECT_GT(s.pool_merges, 0U);
  EXPECT_GT(s.followed, 0U);
}

TEST(Oracle, SimultaneousStarts) {
  const Sum s = compare(1, seeds(110), Flavour::simultaneous);
  EXPECT_GT(s.followed, 0U);
}

TEST(Oracle, MarksAndRates) {
  const Sum s = compare(1, seeds(80), Flavour::marks);
  EXPECT_GT(s.marks, 0U);
}

TEST(Oracle, Spraying) {
  compare(1, seeds(50), Flavour::spraying);
}

/// Before something breaks and after all is well again domains are apart.
TEST(Oracle, Faults) {
  const Sum s = compare(1, seeds(120), Flavour::faults);
  EXPECT_GT(s.drops, 0U);
  EXPECT_GT(s.disturbances, 60U);
  EXPECT_GT(s.calm, 0);
  EXPECT_GT(s.followed, 0U);
}

/// NICs serve several classes: what they remember of them lasts from one busy period to the next.
TEST(Oracle, Classes) {
  const Sum s = compare(1, seeds(200), Flavour::classes);
  EXPECT_GT(s.followed, 0U);
  EXPECT_GT(s.merges, 0U);
  EXPECT_GT(s.pauses, 0U);
}

/// Message by message under the timeline, the packet engine gives the same times. (With several
/// equal paths it may not: queue pairs of a collective are opened at once here, in the timeline
/// when they are used first, so that they may have other source ports.)
TEST(Oracle, HostedCollectivesAreThoseOfTheTimeline) {
  int compared = 0;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    const RandomCase c = random_case(seed, Flavour::plain);
    if (c.topology.count(NodeKind::spine) > 1) continue;
    const Outcome none = run_case(c, Way::none);
    const Outcome off = run_case(c, Way::off);
    EXPECT_EQ(none.transmissions, off.transmissions) << c.text;
    EXPECT_EQ(none.payload, off.payload) << c.text;
    if (none.end == off.end && none.links == off.links) ++compared;
    EXPECT_NEAR(static_cast<double>(none.end.ps()), static_cast<double>(off.end.ps()),
                0.002 * static_cast<double>(none.end.ps()))
        << c.text;
    if (HasFailure()) return;
  }
  EXPECT_GT(compared, 60);
}

}  // namespace
}  // namespace trainyard::test
