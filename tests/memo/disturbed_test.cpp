// SPDX-License-Identifier: MIT
// A leader and its follower, disturbed: only one of them, or both in either order, at every instant
// at which anything is told.
#include <gtest/gtest.h>

#include <set>

#include "tests/memo/random_job.h"

namespace trainyard::test {
namespace {

struct Told {
  Time at;
  TransferId id = 0;
  bool delivered = false;
  bool operator==(const Told&) const = default;
};

struct Story {
  std::vector<Told> told;
  uint64_t fingerprint = 0;
  FastPathStats stats;
};

struct Timed {
  Time at;
  Transfer transfer;
};

/// Two islands of four hosts each, alike.
Topology islands() {
  Topology t;
  for (uint32_t h = 0; h < 8; ++h) t.add_node("host" + std::to_string(h), NodeKind::host);
  for (uint32_t i = 0; i < 2; ++i) t.add_node("leaf" + std::to_string(i), NodeKind::leaf);
  for (uint32_t h = 0; h < 8; ++h) t.add_link(h, 8 + h / 4, Rate::gbps(100), Time::ns(500));
  t.add_link(8, 9, Rate::gbps(100), Time::ns(500));  // every host reaches every other
  t.finish();
  return t;
}

Transfer message(uint32_t island, uint32_t src, uint32_t dst, int64_t bytes, uint32_t channel) {
  Transfer t;
  t.src = 4 * island + src;
  t.dst = 4 * island + dst;
  t.size = Bytes(bytes);
  t.channel = channel;
  return t;
}

Story run(const Topology& topology, const PacketConfig& config, std::vector<Timed> inputs,
          bool memo) {
  std::stable_sort(inputs.begin(), inputs.end(),
                   [](const Timed& a, const Timed& b) { return a.at < b.at; });
  FastPathOptions options;
  options.partition = options.memo = options.jumps = memo;
  DomainFabric fabric(topology, config, options);
  Story r;
  std::vector<Completion> out;
  const auto advance = [&](Time limit) {
    for (;;) {
      out.clear();
      const Time reached = fabric.advance(limit, out);
      for (const Completion& c : out) {
        r.told.push_back({c.at, c.id, c.what == Completion::What::delivered});
      }
      if (out.empty() && (reached >= limit || fabric.next_event() == Time::infinity())) return;
    }
  };
  for (const Timed& t : inputs) {
    advance(t.at);
    fabric.start(t.transfer, t.at);
  }
  advance(Time::infinity());
  EXPECT_EQ(fabric.outstanding(), 0U);
  fabric.check_conservation();
  r.fingerprint = fabric.fingerprint();
  r.stats = fabric.stats();
  return r;
}

/// Two messages in each island, the second island a little later.
std::vector<Timed> twins(Time later) {
  std::vector<Timed> out;
  for (uint32_t island = 0; island < 2; ++island) {
    const Time start = island == 0 ? Time() : later;
    out.push_back({start, message(island, 0, 1, 150'000, 1)});
    out.push_back({start + Time::us(2), message(island, 2, 1, 90'000, 1)});
    out.push_back({start + Time::us(9), message(island, 0, 3, 40'000, 2)});
  }
  return out;
}

class Disturbed : public testing::TestWithParam<int64_t> {};

TEST_P(Disturbed, AtEveryInstant) {
  const Topology topology = islands();
  PacketConfig config = base_config(CongestionControl::none);
  config.payload = 1000;
  config.header = 48;
  config.window = WindowRule::none;
  const Time later = Time::ns(GetParam());
  const Story calm = run(topology, config, twins(later), true);
  const Story calm_off = run(topology, config, twins(later), false);
  ASSERT_EQ(calm.told, calm_off.told);
  EXPECT_EQ(calm.stats.followed, 1U);
  std::set<Time> instants;
  for (const Told& t : calm.told) instants.insert({t.at, t.at + Time::ps(1)});
  for (const Timed& t : twins(later)) instants.insert({t.at, t.at + Time::ns(700)});
  uint64_t materialised = 0;
  for (const Time at : instants) {
    for (int who = 0; who < 4; ++who) {
      std::vector<Timed> inputs = twins(later);
      const auto disturb = [&](uint32_t island, Time when) {
        inputs.push_back({when, message(island, 3, 1, 30'000, 7)});
      };
      if (who != 1) disturb(0, at);                                    // the leader
      if (who == 1) disturb(1, at);                                    // the follower
      if (who == 2) disturb(1, at + Time::ns(300));                    // then the follower
      if (who == 3) disturb(1, std::max(Time(), at - Time::ns(300)));  // first the follower
      const Story memo = run(topology, config, inputs, true);
      const Story off = run(topology, config, inputs, false);
      ASSERT_EQ(memo.told, off.told) << "at " << at.ps() << " ps, who " << who;
      ASSERT_EQ(memo.fingerprint, off.fingerprint) << "at " << at.ps() << " ps, who " << who;
      materialised += memo.stats.materialised;
    }
  }
  EXPECT_GT(materialised, 0U);
}

INSTANTIATE_TEST_SUITE_P(Offsets, Disturbed, testing::Values(0, 1, 400, 5000, 12'345, 400'000));

/// What is alike follows, also under another offset in time and from another place.
TEST(Memo, FollowsAcrossPlacesAndTimes) {
  const Topology topology = islands();
  PacketConfig config = base_config(CongestionControl::dcqcn);
  config.window = WindowRule::none;  // the islands are not joined
  std::vector<Timed> inputs;
  for (uint32_t i = 0; i < 20; ++i) {
    inputs.push_back({Time::us(500 * static_cast<int64_t>(i)), message(i % 2, 0, 1, 1'000'000, 1)});
  }
  const Story memo = run(topology, config, inputs, true);
  const Story off = run(topology, config, inputs, false);
  EXPECT_EQ(memo.told, off.told);
  EXPECT_EQ(memo.fingerprint, off.fingerprint);
  // The first of all leads, and the first whose NIC remembers whom it served last.
  EXPECT_EQ(memo.stats.followed, 18U);
  EXPECT_LT(memo.stats.events, off.stats.events / 10);
}

/// A store that may hold next to nothing forgets, and stays right.
TEST(Memo, StaysWithinItsLimit) {
  const Topology topology = islands();
  PacketConfig config = base_config(CongestionControl::none);
  config.window = WindowRule::none;
  FastPathOptions options;
  options.memo_bytes = 4096;
  options.jumps = false;
  DomainFabric fabric(topology, config, options);
  std::vector<Completion> out;
  for (int64_t i = 0; i < 50; ++i) {
    fabric.start(message(0, 0, 1, 10'000 + 100 * i, 1), Time::us(100 * i));
  }
  while (fabric.next_event() != Time::infinity()) fabric.advance(Time::infinity(), out);
  EXPECT_EQ(out.size(), 100U);
  EXPECT_GT(fabric.stats().evicted, 0U);
  EXPECT_LE(fabric.stats().memo_bytes, 4096U);
}

TEST(Memo, DeclinesByName) {
  PacketConfig config = base_config(CongestionControl::none);
  EXPECT_FALSE(fast_path_declines(config));
  config.persistent_qps = false;
  EXPECT_EQ(*fast_path_declines(config), "queue pairs of a message each");
}

}  // namespace
}  // namespace trainyard::test
