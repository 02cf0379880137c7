// SPDX-License-Identifier: MIT
// Load and queueing per tier: by hand, and from runs.
#include "network/tier_stats.h"

#include <map>

#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

using namespace test;

std::map<std::string, TierLoad> by_name(const std::vector<TierLoad>& loads) {
  std::map<std::string, TierLoad> out;
  for (const TierLoad& l : loads) out[l.tier + " " + l.direction] = l;
  return out;
}

LinkRecord carried(const Topology& t, const std::string& from, const std::string& to, int64_t bytes,
                   double queue_pairs) {
  for (uint32_t port = 0; port < 2 * t.links().size(); ++port) {
    LinkRecord r;
    r.from_node = t.from(port);
    r.to_node = t.to(port);
    r.from = t.nodes()[r.from_node].name;
    r.to = t.nodes()[r.to_node].name;
    if (r.from != from || r.to != to) continue;
    r.tier = t.tier(port);
    r.bytes = bytes + 77;  // ACKs, headers
    r.data_bytes = bytes;
    r.queue_pairs = queue_pairs;
    return r;
  }
  throw std::runtime_error("no link from " + from + " to " + to);
}

// Two leaves, three spines: six links up, six down. Up carry 600, 300, 0 of leaf 0 and 100, 100,
// 100 of leaf 1: mean 200, so 3 and (600 - 0) / 200; parallel ones 600 / 300 = 2 and 1.
TEST(TierStats, LoadByHand) {
  const Topology t = two_tiers(2, 2, 3);
  const auto loads = by_name(
      tier_loads(t, {carried(t, "leaf0", "spine0", 600, 4), carried(t, "leaf0", "spine1", 300, 2),
                     carried(t, "leaf1", "spine0", 100, 1), carried(t, "leaf1", "spine1", 100, 0.5),
                     carried(t, "leaf1", "spine2", 100, 0.5), carried(t, "spine0", "leaf1", 50, 0),
                     carried(t, "spine1", "leaf1", 100, 0), carried(t, "spine0", "leaf0", 0, 0)}));
  ASSERT_EQ(loads.size(), 2U);  // nothing came to the other links
  const TierLoad& up = loads.at("leaf-spine up");
  EXPECT_EQ(up.links, 6U);
  EXPECT_EQ(up.used, 5U);
  EXPECT_EQ(up.bytes.total, 1200);
  EXPECT_EQ(up.bytes.max_to_mean, 3);
  EXPECT_EQ(up.bytes.skew, 3);
  EXPECT_EQ(up.bytes.group_max, 2);
  EXPECT_EQ(up.bytes.group_mean, 1.5);
  EXPECT_EQ(up.bytes.group, "leaf0");
  EXPECT_EQ(up.queue_pairs.total, 8);
  EXPECT_EQ(up.queue_pairs.max_to_mean, 3);
  EXPECT_EQ(up.queue_pairs.group_max, 2);
  EXPECT_EQ(up.queue_pairs.group_mean, (2 + 1.5) / 2);
  const TierLoad& down = loads.at("leaf-spine down");
  EXPECT_EQ(down.links, 6U);
  EXPECT_EQ(down.used, 2U);
  EXPECT_EQ(down.bytes.max_to_mean, 4);
  EXPECT_EQ(down.bytes.group, "leaf1");  // leaf 0 got nothing: no group
  EXPECT_EQ(down.bytes.group_max, 2);
  EXPECT_EQ(down.bytes.group_mean, 2);
  EXPECT_EQ(down.queue_pairs.max_to_mean, 0);
  EXPECT_EQ(down.queue_pairs.group, "");
}

// All links in use: the skew counts from the least one.
TEST(TierStats, SkewCountsFromTheLeast) {
  const Topology t = two_tiers(1, 2, 2);
  const auto loads = by_name(tier_loads(
      t, {carried(t, "leaf0", "spine0", 300, 1), carried(t, "leaf0", "spine1", 100, 1)}));
  EXPECT_EQ(loads.at("leaf-spine up").bytes.skew, 1);
  EXPECT_EQ(loads.at("leaf-spine up").bytes.max_to_mean, 1.5);
  EXPECT_EQ(loads.at("leaf-spine up").queue_pairs.skew, 0);
}

// Two flows of one leaf, two spines: the hash puts them on one or on both.
TEST(TierStats, TwoFlowsOnOneOfTwoLinks) {
  const Topology t = two_tiers(2, 2, 2);
  bool together = false, apart = false;
  for (int seed = 1; seed <= 30 && !(together && apart); ++seed) {
    const Outcome o = run(t, hpcc_sizes().set("seed", std::to_string(seed)).make(),
                          {{0, 2, 50'000, Time()}, {1, 3, 50'000, Time()}});
    const auto loads = by_name(tier_loads(t, o.links));
    const TierLoad& up = loads.at("leaf-spine up");
    int64_t most = 0;
    for (const LinkRecord& l : o.links) {
      if (l.from == "leaf0" && l.to.rfind("spine", 0) == 0) most = std::max(most, l.data_bytes);
    }
    const bool one = most == 100'000;
    if (!one) {
      EXPECT_EQ(most, 50'000);
    }
    const double expected = one ? 2 : 1;
    EXPECT_EQ(up.bytes.group_max, expected);
    EXPECT_EQ(up.bytes.max_to_mean, 2 * expected);  // leaf 1 sends no data up
    EXPECT_EQ(up.queue_pairs.group_max, expected);
    EXPECT_EQ(up.queue_pairs.max_to_mean, 2 * expected);
    // host-leaf: one of two hosts' links per queue pair and direction.
    EXPECT_EQ(loads.at("host-leaf up").queue_pairs.max_to_mean, 2);
    EXPECT_EQ(loads.at("host-leaf down").queue_pairs.max_to_mean, 2);
    together = together || one;
    apart = apart || !one;
  }
  EXPECT_TRUE(together);
  EXPECT_TRUE(apart);
}

// A sprayed queue pair counts in parts that sum to one at every hop.
TEST(TierStats, SprayedQueuePairsCountInParts) {
  const Topology t = two_tiers(2, 1, 4);
  const Outcome o = run(t,
                        hpcc_sizes()
                            .set("transport.loss_recovery", "selective-repeat")
                            .set("balancing", "spray")
                            .set("ecmp.paths", "64")
                            .make(),
                        {{0, 1, 4'000'000, Time()}});
  const auto loads = by_name(tier_loads(t, o.links));
  for (const char* tier : {"host-leaf up", "leaf-spine up", "leaf-spine down", "host-leaf down"}) {
    EXPECT_EQ(loads.at(tier).queue_pairs.total, 1) << tier;
  }
  EXPECT_LT(loads.at("leaf-spine up").bytes.group_max, 1.7);
  // Packets follow the paths.
  EXPECT_NEAR(loads.at("leaf-spine up").bytes.group_max,
              loads.at("leaf-spine up").queue_pairs.group_max, 0.15);
}

TEST(TierStats, Directions) {
  Topology t;
  t.add_node("host0", NodeKind::host);
  t.add_node("leaf0", NodeKind::leaf, {1, 0, 0, -1});
  t.add_node("spine0", NodeKind::spine, {2, 0, 0, -1});
  t.add_node("core0", NodeKind::spine, {3, 0, -1, -1});
  t.add_node("core1", NodeKind::spine, {3, 0, -1, -1});
  for (uint32_t n = 0; n + 1 < 5; ++n) t.add_link(n, n + 1, Rate::gbps(100), Time::us(1));
  t.finish();
  for (uint32_t n = 0; n < 3; ++n) {
    EXPECT_STREQ(link_direction(t, n, n + 1), "up");
    EXPECT_STREQ(link_direction(t, n + 1, n), "down");
  }
  EXPECT_STREQ(link_direction(t, 3, 4), "across");
}

LinkSeries::Row carried_in(int64_t window, int64_t payload) {
  LinkSeries::Row row;
  row.window = window;
  row.bytes = payload + 77;  // ACKs, headers
  row.payload_bytes = payload;
  return row;
}

// Two leaves, three spines: six links up. Window 0 as in LoadByHand; in window 3 one link carries
// 400; in window 5 all six 100; in window 6 five of them 100 and one 400: mean 150, so 400 / 150
// and (400 - 100) / 150; in window 8 nothing but ACKs.
TEST(TierStats, WindowsByHand) {
  const Topology t = two_tiers(2, 2, 3);
  std::vector<LinkRecord> links;
  for (const char* leaf : {"leaf0", "leaf1"}) {
    for (const char* spine : {"spine0", "spine1", "spine2"}) {
      links.push_back(carried(t, leaf, spine, 1, 1));
    }
  }
  links.push_back(carried(t, "spine2", "leaf0", 1, 1));
  LinkSeries series;
  series.asked = series.window = Time::ns(100);
  series.links = {{carried_in(0, 600), carried_in(5, 100), carried_in(6, 100)},
                  {carried_in(0, 300), carried_in(3, 400), carried_in(5, 100), carried_in(6, 100)},
                  {carried_in(5, 100), carried_in(6, 100)},
                  {carried_in(0, 100), carried_in(5, 100), carried_in(6, 400)},
                  {carried_in(0, 100), carried_in(5, 100), carried_in(6, 100), carried_in(8, 0)},
                  {carried_in(0, 100), carried_in(5, 100), carried_in(6, 100)},
                  {carried_in(8, 0)}};
  const TierLoadSeries s = tier_load_series(t, links, series);
  EXPECT_EQ(s.window, Time::ns(100));
  ASSERT_EQ(s.tiers.size(), 1U);  // down: ACKs
  EXPECT_EQ(s.tiers[0].tier, "leaf-spine");
  EXPECT_EQ(s.tiers[0].direction, "up");
  EXPECT_EQ(s.tiers[0].links, 6U);
  struct Expected {
    int64_t window, bytes, max;
    uint32_t used, busiest;
    double mmr, skew, group_mean, group_max;
    const char* group;
  };
  const std::vector<Expected> expected = {{0, 1200, 600, 5, 0, 3, 3, 1.5, 2, "leaf0"},
                                          {3, 400, 400, 1, 1, 6, 6, 3, 3, "leaf0"},
                                          {5, 600, 100, 6, 0, 1, 0, 1, 1, "leaf0"},
                                          {6, 900, 400, 6, 3, 400 / 150.0, 2, 1.5, 2, "leaf1"}};
  const auto& rows = s.tiers[0].rows;
  ASSERT_EQ(rows.size(), expected.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const Expected& e = expected[i];
    EXPECT_EQ(rows[i].window, e.window);
    EXPECT_EQ(rows[i].bytes, e.bytes) << e.window;
    EXPECT_EQ(rows[i].max_bytes, e.max) << e.window;
    EXPECT_EQ(rows[i].used, e.used) << e.window;
    EXPECT_EQ(rows[i].busiest, e.busiest) << e.window;
    EXPECT_DOUBLE_EQ(rows[i].max_to_mean, e.mmr) << e.window;
    EXPECT_DOUBLE_EQ(rows[i].skew, e.skew) << e.window;
    EXPECT_DOUBLE_EQ(rows[i].group_mean, e.group_mean) << e.window;
    EXPECT_DOUBLE_EQ(rows[i].group_max, e.group_max) << e.window;
    EXPECT_EQ(t.nodes()[rows[i].group].name, e.group) << e.window;
  }
  // The busiest links of the windows have 600 + 400 + 100 + 400 of means that sum to 3100 / 6.
  auto loads = tier_loads(t, links);
  add_windows(s, loads);
  const TierLoad up = by_name(loads).at("leaf-spine up");
  EXPECT_EQ(up.windows.count, 4U);
  EXPECT_DOUBLE_EQ(up.windows.p50, 400 / 150.0);  // of 1, 2.67, 3, 6
  EXPECT_EQ(up.windows.max, 6);
  EXPECT_EQ(up.windows.worst, Time::ns(300));
  EXPECT_DOUBLE_EQ(up.windows.mean, 1500 * 6 / 3100.0);
  EXPECT_EQ(up.windows.group_count, 4U);
  EXPECT_EQ(up.windows.group_p50, 2);  // of 1, 2, 2, 3
  EXPECT_EQ(up.windows.group_max, 3);
  EXPECT_EQ(by_name(loads).at("leaf-spine down").windows.count, 0U);
  EXPECT_TRUE(tier_load_series(t, links, {}).tiers.empty());
}

// Two flows of one leaf that the hash puts on different uplinks, one after the other: even over the
// run, on one of two links at any time.
TEST(TierStats, TakingTurnsShowsInWindowsOnly) {
  const Topology t = two_tiers(2, 2, 2);
  int seen = 0;
  for (int seed = 1; seed <= 30; ++seed) {
    PacketFabric fabric(t, hpcc_sizes().set("seed", std::to_string(seed)).make());
    fabric.record_links(Time::us(1));
    start(fabric, {0, 2, 50'000, Time()});
    start(fabric, {1, 3, 50'000, Time::us(100)});
    drain(fabric);
    const auto links = fabric.links();
    const LinkSeries series = fabric.take_link_series();
    auto loads = tier_loads(t, links);
    const TierLoadSeries s = tier_load_series(t, links, series);
    add_windows(s, loads);
    const TierLoad up = by_name(loads).at("leaf-spine up");
    if (up.bytes.group_max != 1) continue;
    ++seen;
    EXPECT_EQ(up.windows.group_p50, 2);
    EXPECT_EQ(up.windows.group_max, 2);
    EXPECT_EQ(up.windows.p50, 4);  // leaf 1 sends no data up
    EXPECT_DOUBLE_EQ(up.windows.mean, 4);
    EXPECT_EQ(up.bytes.max_to_mean, 2);
    for (const auto& tier : s.tiers) {
      int64_t sum = 0;
      for (const auto& row : tier.rows) sum += row.bytes;
      EXPECT_EQ(sum, 100'000) << tier.tier << " " << tier.direction;
    }
  }
  EXPECT_GT(seen, 3);
}

// A hundred packets that waited 1 .. 100 ns on their way down, the odd ones were lost there.
TEST(TierStats, QueueingByHand) {
  const Topology t = star(2);
  const std::vector<LinkRecord> links = {carried(t, "host0", "leaf0", 1, 1),
                                         carried(t, "leaf0", "host1", 1, 1)};
  PacketSamples samples;
  for (int64_t i = 100; i >= 1; --i) {
    PacketSample p;
    p.hops = {{0, 0, 5}, {1, i * 1000, 5}};
    p.fate = i % 2 == 0 ? PacketSample::Fate::delivered : PacketSample::Fate::lost;
    samples.packets.push_back(p);
  }
  const auto q = tier_queueing(t, links, samples);
  ASSERT_EQ(q.size(), 2U);
  EXPECT_EQ(q[0].tier, "host-leaf");
  EXPECT_EQ(q[0].direction, "down");
  EXPECT_EQ(q[0].count, 100U);
  EXPECT_EQ(q[0].p50, Time::ns(50));
  EXPECT_EQ(q[0].p99, Time::ns(99));
  EXPECT_EQ(q[0].max, Time::ns(100));
  EXPECT_EQ(q[1].tier, "whole path");
  EXPECT_EQ(q[1].count, 50U);
  EXPECT_EQ(q[1].p50, Time::ns(50));
  EXPECT_EQ(q[1].p99, Time::ns(100));
  EXPECT_TRUE(tier_queueing(t, links, {}).empty());
}

}  // namespace
}  // namespace trainyard
