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
