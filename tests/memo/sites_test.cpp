// SPDX-License-Identifier: MIT
// Stretches as the fabric sees them: calls that follow each other, alone on their links.
#include <gtest/gtest.h>

#include "tests/memo/random_job.h"

namespace trainyard::test {
namespace {

/// Two islands of four hosts each, alike.
class Sites : public testing::Test {
 protected:
  Sites()
      : topology_(islands()),
        selector_(make_collective_selector(Params(collective_params()))),
        fabric_(topology_, config(), {}) {}

  static Topology islands() {
    Topology t;
    for (uint32_t h = 0; h < 8; ++h) t.add_node("host" + std::to_string(h), NodeKind::host);
    for (uint32_t i = 0; i < 2; ++i) t.add_node("leaf" + std::to_string(i), NodeKind::leaf);
    for (uint32_t h = 0; h < 8; ++h) t.add_link(h, 8 + h / 4, Rate::gbps(100), Time::ns(500));
    t.add_link(8, 9, Rate::gbps(100), Time::ns(500));
    t.finish();
    return t;
  }
  static PacketConfig config() {
    PacketConfig c = base_config(CongestionControl::none);
    c.payload = 1000;
    c.header = 48;
    return c;
  }
  HostedCall call(uint32_t island) {
    const CollectiveRequest r{CollectiveKind::all_gather, 100'000, &members_[island], {}, nullptr};
    return {&selector_->choose(r), r, 64 * island, 0, 0};
  }
  void until(Time limit) {
    std::vector<Completion> out;
    std::vector<CollectiveHost::Done> done;
    while (fabric_.next_event() <= limit) {
      fabric_.advance(limit, out);
      fabric_.take_done(done);
    }
    fabric_.advance(limit, out);
    fabric_.take_done(done);
  }
  /// All members come, a microsecond apart.
  uint32_t make(uint32_t island, Time first) {
    const uint32_t number = fabric_.open(call(island));
    for (uint32_t m = 0; m < 4; ++m) fabric_.arrive(number, m, first + Time::us(m));
    return number;
  }

  const std::vector<uint32_t> members_[2] = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  Topology topology_;
  std::unique_ptr<CollectiveSelector> selector_;
  DomainFabric fabric_;
};

TEST_F(Sites, WhatWasWatchedIsBooked) {
  const uint32_t first = fabric_.open_site({call(0), call(0)});
  ASSERT_LT(first, CollectiveHost::kNotYet);
  const auto before = fabric_.site_state(first);
  ASSERT_TRUE(before.has_value());
  // Held, and told later what came: as if it had been told at once.
  const uint32_t hold = fabric_.hold(first);
  EXPECT_FALSE(fabric_.site_state(first).has_value());
  until(Time::us(3));
  fabric_.let_go(hold);
  fabric_.watch(first, Time());
  const uint32_t a = make(0, Time());
  until(Time::ms(1));
  const uint32_t b = make(0, Time::ms(1));
  until(Time::ms(2));
  const auto stretch = fabric_.watched(first);
  ASSERT_NE(stretch, nullptr);
  EXPECT_EQ(fabric_.tally(a).transfers, 12U);
  EXPECT_EQ(fabric_.tally(b).payload, 12 * 100'000);
  const FabricTotals once = fabric_.totals();
  const auto after = fabric_.site_state(first);
  ASSERT_TRUE(after.has_value());

  const uint32_t second = fabric_.open_site({call(1), call(1)});
  ASSERT_EQ(fabric_.site_state(second), before);
  const uint64_t events = fabric_.stats().events;
  const uint32_t held = fabric_.hold(second);
  fabric_.replay(held, stretch, Time::ms(2));
  until(Time::ms(4));
  fabric_.replayed(held);
  const FabricTotals twice = fabric_.totals();
  EXPECT_EQ(twice.payload_bytes, 2 * once.payload_bytes);
  EXPECT_EQ(twice.transmissions, 2 * once.transmissions);
  EXPECT_EQ(twice.ack_packets, 2 * once.ack_packets);
  EXPECT_EQ(fabric_.stats().events, events);
  EXPECT_EQ(fabric_.stats().stretches, 1U);
  EXPECT_EQ(fabric_.site_state(second), after);
  fabric_.check_conservation();
}

TEST_F(Sites, WhatComesInBetweenIsAConflict) {
  const uint32_t site = fabric_.open_site({call(0), call(0)});
  fabric_.hold(site);
  Transfer t;
  t.src = 0;
  t.dst = 1;
  t.size = Bytes(1000);
  EXPECT_THROW(fabric_.start(t, Time()), StretchConflict);
}

TEST_F(Sites, AreNotFreeWhileSomethingMoves) {
  const uint32_t site = fabric_.open_site({call(0), call(0)});
  Transfer t;
  t.src = 0;
  t.dst = 1;
  t.size = Bytes(1000);
  fabric_.start(t, Time());
  EXPECT_FALSE(fabric_.site_state(site).has_value());
  until(Time::us(100));
  EXPECT_TRUE(fabric_.site_state(site).has_value());
}

// Calls that overlap are one domain: not what can be booked call by call.
TEST_F(Sites, CallsThatMeetAreNotBooked) {
  const uint32_t site = fabric_.open_site({call(0), call(0)});
  fabric_.watch(site, Time());
  make(0, Time());
  until(Time::us(4));
  make(0, Time::us(4));
  until(Time::ms(1));
  EXPECT_EQ(fabric_.watched(site), nullptr);
}

// What a later call is the first to use has no place yet in the order of first use.
TEST_F(Sites, WaitForWhatIsNew) {
  HostedCall other = call(0);
  other.channel_base = 640;
  EXPECT_EQ(fabric_.open_site({call(0), other}), CollectiveHost::kNotYet);
}

}  // namespace
}  // namespace trainyard::test
