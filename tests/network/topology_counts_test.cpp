// SPDX-License-Identifier: MIT
// Published counts of real fabrics, built and counted.
#include <set>

#include <gtest/gtest.h>

#include "network/routing.h"
#include "network/topology_summary.h"
#include "sim/dice.h"
#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

using namespace test;

TopologyRequest servers(uint32_t nodes, uint32_t gpus) {
  TopologyRequest r;
  r.nodes = nodes;
  r.gpus_per_node = r.nics_per_node = gpus;
  r.pos = {"scenario.yaml", 7};
  return r;
}

uint32_t switches(const Topology& t) {
  return t.count(NodeKind::leaf) + t.count(NodeKind::spine);
}

uint64_t equal_paths(const Topology& t, uint32_t a, uint32_t b) {
  return Routing(t, {}).count_paths(t.hosts()[a], t.hosts()[b]);
}

size_t leaves_of(const Topology& t, uint32_t rank) {
  std::set<uint32_t> leaves;
  for (const uint32_t l : t.nic_links(t.hosts()[rank])) leaves.insert(t.links()[l].b);
  return leaves.size();
}

// B:F1+F2+F3, B:V18: 5k^2/4 switches, k^3/4 hosts, (k/2)^2 equal paths between pods, k/2 within.
TEST(FabricCounts, FatTree) {
  for (const uint32_t k : {4U, 8U, 16U, 48U}) {
    const Topology t = make_topology("fat-tree", servers(k * k * k / 4, 1),
                                     {{"k", std::to_string(k)}, {"scale_up.kind", "none"}});
    EXPECT_EQ(t.hosts().size(), k * k * k / 4);
    EXPECT_EQ(switches(t), 5 * k * k / 4);
    EXPECT_EQ(t.links().size(), 3 * k * k * k / 4);
    EXPECT_EQ(equal_paths(t, 0, k * k * k / 4 - 1), k / 2 * (k / 2));
    EXPECT_EQ(equal_paths(t, 0, k / 2), k / 2);
    EXPECT_EQ(equal_paths(t, 0, 1), 1U);
    const FabricSummary s = summarise(t);
    EXPECT_EQ(s.pods, k);
    EXPECT_EQ(s.planes.at(0).cores, k * k / 4);
    EXPECT_EQ(s.bisection_bps, k * k * k / 8 * int64_t{400'000'000'000});
  }
  // k = 48: 27,648 hosts, 2,880 switches, 576 paths.
  EXPECT_EQ(48 * 48 * 48 / 4, 27'648);
}

// Three tiers sized from radices alone give the same tree.
TEST(FabricCounts, ThreeTiersFromRadixAreAFatTree) {
  const uint32_t k = 8;
  const Topology t = make_topology("leaf-spine", servers(k * k * k / 4, 1),
                                   {{"leaf_radix", std::to_string(k)}, {"tiers", "3"}});
  EXPECT_EQ(switches(t), 5 * k * k / 4);
  EXPECT_EQ(summarise(t).pods, k);
  EXPECT_EQ(equal_paths(t, 0, k * k * k / 4 - 1), k / 2 * (k / 2));
}

// B:F5, B:V32, B:D1: an HPN pod is 15 segments x 1,024 GPUs in two tiers and two planes; the two
// ports of every NIC go to different leaves. 60 spines per plane: the O(60) of B:T24.
TEST(FabricCounts, HpnPod) {
  const Topology t = make_topology("rail-optimized", servers(15 * 1024 / 8, 8),
                                   {{"planes", "2"},
                                    {"tor", "dual"},
                                    {"leaf_radix", "192"},
                                    {"leaf_down", "128"},
                                    {"spine_radix", "128"},
                                    {"link.rate", "400Gbps"},
                                    {"oversubscription", "16/15"}});
  EXPECT_EQ(t.hosts().size(), 15'360U);
  const FabricSummary s = summarise(t);
  ASSERT_EQ(s.planes.size(), 2U);
  for (const auto& plane : s.planes) {
    EXPECT_EQ(plane.leaves, 15U * 8U);
    EXPECT_EQ(plane.spines, 60U);
    EXPECT_EQ(plane.nic_bps, 15'360 * int64_t{200'000'000'000});
  }
  EXPECT_NEAR(s.most_oversubscription, 16.0 / 15, 1e-12);
  for (const uint32_t rank : {0U, 777U, 15'359U}) EXPECT_EQ(leaves_of(t, rank), 2U);
  // A segment: 128 servers, 1,024 GPUs, on 16 leaves.
  std::set<uint32_t> leaves;
  for (uint32_t rank = 0; rank < 1024; ++rank) {
    for (const uint32_t l : t.nic_links(t.hosts()[rank])) leaves.insert(t.links()[l].b);
  }
  EXPECT_EQ(leaves.size(), 16U);
  EXPECT_EQ(equal_paths(t, 0, 8), 2U);             // same rail, same segment: one per plane
  EXPECT_EQ(equal_paths(t, 0, 15'352), 2U * 60U);  // another segment
}

// B:F6, B:V36: an Astral pod is 8 rails of 8K GPUs.
TEST(FabricCounts, AstralRails) {
  const Topology t =
      make_topology("rail-optimized", servers(65'536 / 8, 8),
                    {{"leaf_radix", "128"}, {"tiers", "3"}, {"scale_up.kind", "none"}});
  std::vector<uint32_t> on_rail(8, 0);
  for (const uint32_t h : t.hosts()) {
    const auto rail = t.nodes()[t.links()[t.nic_links(h).at(0)].b].place.rail;
    ++on_rail.at(static_cast<size_t>(rail));
  }
  EXPECT_EQ(on_rail, std::vector<uint32_t>(8, 8'192));
  EXPECT_EQ(check_rails(t).rails, 8U);
  EXPECT_TRUE(check_rails(t).crossings.empty());
}

// B:F7, B:V20, B:V21: 32,768 GPUs. With spines 1,280 switches and 196,608 transceivers; rail-only
// with 256-GPU domains 256 switches (0.20; the stated 77 % fewer contradicts it) and 65,536
// (0.333).
TEST(FabricCounts, RailOnly) {
  const Topology with =
      make_topology("leaf-spine", servers(4'096, 8),
                    {{"leaf_radix", "128"}, {"tiers", "3"}, {"scale_up.domain", "256"}});
  EXPECT_EQ(switches(with), 1'280U);
  EXPECT_EQ(summarise(with).transceivers, 196'608U);
  const Topology only =
      make_topology("rail-only", servers(4'096, 8),
                    {{"rails", "256"}, {"leaf_radix", "128"}, {"scale_up.domain", "256"}});
  EXPECT_EQ(switches(only), 256U);
  const FabricSummary s = summarise(only);
  EXPECT_EQ(s.transceivers, 65'536U);
  EXPECT_EQ(s.scale_up_domains, 128U);
  EXPECT_EQ(s.most_in_domain, 256U);
  EXPECT_DOUBLE_EQ(256.0 / switches(with), 0.2);
  EXPECT_EQ(equal_paths(only, 5, 256 + 5), 1U);  // on a rail
  EXPECT_EQ(equal_paths(only, 5, 6), 1U);        // in a domain
  EXPECT_EQ(equal_paths(only, 5, 256 + 6), 0U);  // neither: a relay is needed
}

// B:F8, B:V25: two tiers of R-port switches hold R^2/2 hosts, 131,072 at R = 512, and no more.
TEST(FabricCounts, TwoTierCeiling) {
  for (const uint32_t radix : {4U, 16U, 64U, 512U}) {
    const uint32_t hosts = radix * radix / 2;
    const Settings settings{{"leaf_radix", std::to_string(radix)}};
    const Topology t = make_topology("leaf-spine", servers(hosts, 1), settings);
    EXPECT_EQ(t.hosts().size(), hosts);
    EXPECT_EQ(t.count(NodeKind::leaf), radix);
    EXPECT_EQ(t.count(NodeKind::spine), radix / 2);
    EXPECT_EQ(equal_paths(t, 0, hosts - 1), radix / 2);
    EXPECT_THROW(make_topology("leaf-spine", servers(hosts + 1, 1), settings), UserError);
  }
  EXPECT_EQ(512 * 512 / 2, 131'072);
}

// B:F9, B:V24: an 800G NIC is 8 ports of 100G in 8 planes that share nothing.
TEST(FabricCounts, EightPlanes) {
  const Topology t =
      make_topology("leaf-spine", servers(64, 1),
                    {{"planes", "8"}, {"nic.rate", "800Gbps"}, {"leaf_radix", "16"}});
  EXPECT_EQ(t.nic_rate().bps(), 100'000'000'000);
  EXPECT_EQ(t.nic_links(0).size(), 8U);
  const FabricSummary s = summarise(t);
  ASSERT_EQ(s.planes.size(), 8U);
  for (const auto& plane : s.planes) EXPECT_EQ(plane.cables, 64U + 64U);
  for (const auto& l : t.links()) {
    EXPECT_EQ(l.rate.bps(), 100'000'000'000);
    if (t.kind(l.a) == NodeKind::host) continue;
    EXPECT_EQ(t.nodes()[l.a].place.plane, t.nodes()[l.b].place.plane);
  }
  // 4 spines per plane, two parallel cables to each leaf.
  EXPECT_EQ(equal_paths(t, 0, 63), 8U * 4 * 2 * 2);
}

// B:F10, B:V45: with four lanes per port the same switches reach four times as far: 8,192 GPUs on
// 128 leaves and 64 spines, 32,768 on 512 and 256; 64 GPUs per leaf and 128 ports per spine in
// both.
TEST(FabricCounts, ShuffleWiring) {
  uint32_t hosts[2];
  for (const uint32_t lanes : {1U, 4U}) {
    const Topology t = make_topology(
        "leaf-spine", servers(1'024 * lanes, 8),
        {{"leaf_radix", "128"}, {"scale_up.kind", "none"}, {"shuffle", std::to_string(lanes)}});
    hosts[lanes / 4] = static_cast<uint32_t>(t.hosts().size());
    EXPECT_EQ(t.count(NodeKind::leaf), 128 * lanes);
    EXPECT_EQ(t.count(NodeKind::spine), 64 * lanes);
    const uint32_t spine = static_cast<uint32_t>(t.nodes().size()) - 1;
    ASSERT_EQ(t.kind(spine), NodeKind::spine);
    EXPECT_EQ(t.nodes()[spine].ports.size(), 128U * lanes);
    int64_t spine_bps = 0;
    for (const uint32_t p : t.nodes()[spine].ports) spine_bps += t.link_of(p).rate.bps();
    EXPECT_EQ(spine_bps, 128 * int64_t{400'000'000'000});
    EXPECT_DOUBLE_EQ(summarise(t).most_oversubscription, 1);
  }
  EXPECT_EQ(hosts[0], 8'192U);
  EXPECT_EQ(hosts[1], 4 * hosts[0]);
}

// B:F11, B:V41: 56 servers, 4 leaves, 7:1.
TEST(FabricCounts, SevenToOne) {
  const Topology t = make_topology("leaf-spine", servers(56, 8),
                                   {{"leaf_radix", "128"}, {"oversubscription", "7"}});
  EXPECT_EQ(t.count(NodeKind::leaf), 4U);
  const FabricSummary s = summarise(t);
  EXPECT_DOUBLE_EQ(s.least_oversubscription, 7);
  EXPECT_DOUBLE_EQ(s.most_oversubscription, 7);
  EXPECT_EQ(s.planes.at(0).nic_bps, 7 * s.planes.at(0).leaf_up_bps);
}

// B:V39: 100 servers, 800 GPUs, 16 leaves.
TEST(FabricCounts, SakuraOne) {
  const Topology t =
      make_topology("rail-optimized", servers(100, 8),
                    {{"nic.rate", "800Gbps"}, {"leaf_down", "50"}, {"leaf_radix", "128"}});
  EXPECT_EQ(t.hosts().size(), 800U);
  EXPECT_EQ(t.count(NodeKind::leaf), 16U);
}

// B:T22: racks of 72 GPUs on one NVLink domain, trays of 4.
TEST(FabricCounts, ScaleUpDomainIsNotTheServer) {
  const Topology t =
      make_topology("rail-optimized", servers(36, 4), {{"scale_up.domain", "72"}, {"rails", "4"}});
  EXPECT_EQ(t.count(NodeKind::scale_up), 2U);
  for (uint32_t rank = 0; rank < 144; ++rank) EXPECT_EQ(t.servers()[rank], rank / 72);
  EXPECT_EQ(summarise(t).most_in_domain, 72U);
  EXPECT_EQ(make_topology("single-switch", servers(2, 8), {{"scale_up.domain", "4"}})
                .count(NodeKind::scale_up),
            4U);
  expect_contains(error_of<UserError>([] {
                    make_topology("single-switch", servers(3, 8), {{"scale_up.domain", "12"}});
                  }),
                  {"12 GPUs cuts through servers of 8"});
}

// B:T14: two leaves per NIC. In one plane both are below the same spines; losing either leaves a
// path.
TEST(FabricCounts, DualTor) {
  for (const char* kind : {"rail-optimized", "leaf-spine", "fat-tree", "clos3", "rail-only"}) {
    SCOPED_TRACE(kind);
    const Topology t =
        make_topology(kind, servers(8, 2), {{"tor", "dual"}, {"nic.rate", "400Gbps"}});
    EXPECT_EQ(t.nic_rate().bps(), 200'000'000'000);
    Routing routing(t, {});
    for (uint32_t rank = 0; rank < 16; ++rank) {
      EXPECT_EQ(leaves_of(t, rank), 2U);
      for (const uint32_t link : t.nic_links(rank)) {
        routing.set_link_state(link, false);
        std::vector<uint32_t> path;
        routing.path({rank, (rank + 2) % 16, 1, 2}, path);
        EXPECT_FALSE(path.empty());
        for (const uint32_t p : path) EXPECT_NE(p >> 1, link);
        routing.set_link_state(link, true);
      }
    }
  }
}

TEST(FabricCounts, ContradictionsAreRefused) {
  struct Row {
    Settings settings;
    std::vector<std::string> says;
  };
  const std::vector<Row> rows{
      {{{"planes", "4"}, {"nic.ports", "6"}}, {"6 NIC ports", "4 planes"}},
      {{{"tor", "dual"}, {"nic.ports", "1"}}, {"one port", "two leaves"}},
      {{{"tor", "dual"}, {"nic.ports", "3"}}, {"3 NIC ports per plane", "two leaves"}},
      {{{"pods", "2"}}, {"several pods", "tiers: 3"}},
      {{{"rails", "3"}}, {"3 rails", "4 NICs"}},
      {{{"planes", "7"}, {"nic.rate", "100Gbps"}}, {"100Gbps", "7 ports"}},
      {{{"nic.ports", "16"}, {"leaf_radix", "16"}}, {"16 ports on one leaf"}},
  };
  for (const Row& r : rows) {
    expect_contains(
        error_of<UserError>([&] { make_topology("rail-optimized", servers(64, 4), r.settings); }),
        r.says);
  }
}

TEST(FabricCounts, TooManyCablesAreRefusedBeforeTheyAreBuilt) {
  expect_contains(error_of<UserError>([] {
                    make_topology("clos3", servers(2, 4),
                                  {{"pods", "1024"},
                                   {"spines_per_pod", "1024"},
                                   {"cores_per_spine", "1024"},
                                   {"leaves_per_pod", "1"}});
                  }),
                  {"scenario.yaml:7", "1073742856 cables or more"});
}

// NICs that are cabled to another rail's leaf are found, where the plan is known and where it has
// to be inferred from the majority (B:T5).
TEST(FabricCounts, CrossedRailsAreFound) {
  Topology t = make_topology("rail-optimized", servers(4, 4), {{"leaf_radix", "16"}});
  EXPECT_EQ(check_rails(t).rails, 4U);
  EXPECT_TRUE(check_rails(t).crossings.empty());
  const uint32_t a = t.nic_links(1)[0];
  const uint32_t b = t.nic_links(2)[0];
  t.move_end(a, 1, 2);
  t.move_end(b, 2, 1);
  t.finish();
  const RailReport report = check_rails(t);
  ASSERT_EQ(report.crossings.size(), 2U);
  EXPECT_FALSE(report.inferred);
  EXPECT_EQ(report.crossings[0].host, 1U);
  EXPECT_EQ(report.crossings[0].belongs, 1);
  EXPECT_EQ(report.crossings[0].is, 2);
  EXPECT_EQ(report.crossings[1].host, 2U);

  // The same as a file: 4 servers of 2 GPUs, two leaves, a spine; server 3 is crossed.
  const Topology file = read_topology(
      "15 2 4 3 18 H100\n8 9 10 11\n12 13 14\n"
      "0 8 1Tbps 0.1us 0\n1 8 1Tbps 0.1us 0\n2 9 1Tbps 0.1us 0\n3 9 1Tbps 0.1us 0\n"
      "4 10 1Tbps 0.1us 0\n5 10 1Tbps 0.1us 0\n6 11 1Tbps 0.1us 0\n7 11 1Tbps 0.1us 0\n"
      "0 12 400Gbps 1us 0\n1 13 400Gbps 1us 0\n2 12 400Gbps 1us 0\n3 13 400Gbps 1us 0\n"
      "4 12 400Gbps 1us 0\n5 13 400Gbps 1us 0\n6 13 400Gbps 1us 0\n7 12 400Gbps 1us 0\n"
      "12 14 400Gbps 1us 0\n13 14 400Gbps 1us 0\n");
  const RailReport inferred = check_rails(file);
  EXPECT_TRUE(inferred.inferred);
  EXPECT_EQ(inferred.rails, 2U);
  ASSERT_EQ(inferred.crossings.size(), 2U);
  EXPECT_EQ(inferred.crossings[0].host, 6U);
  EXPECT_EQ(check_rails(make_topology("leaf-spine", servers(4, 4), {{"leaf_radix", "16"}})).rails,
            0U);
}

// 131,072 endpoints: tables are small, and every path is as long as it has to be.
TEST(FabricCounts, BigFabricIsRoutable) {
  const Topology t =
      make_topology("rail-optimized", servers(16'384, 8), {{"leaf_radix", "128"}, {"tiers", "3"}});
  ASSERT_EQ(t.hosts().size(), 131'072U);
  Routing routing(t, {});
  std::vector<uint32_t> path;
  for (uint32_t i = 0; i < 20'000; ++i) {
    const auto a = static_cast<uint32_t>(dice(1, 0, i, 0) % 131'072);
    const auto b = static_cast<uint32_t>(dice(1, 1, i, 0) % 131'072);
    if (a == b) continue;
    path.clear();
    routing.path({a, b, 10'000, 100}, path);
    ASSERT_EQ(t.from(path.front()), a);
    ASSERT_EQ(t.to(path.back()), b);
    // A pod has 8 groups of 64 servers.
    const uint32_t server_a = a / 8;
    const uint32_t server_b = b / 8;
    const bool same_leaf = server_a / 64 == server_b / 64 && a % 8 == b % 8;
    const size_t expected = server_a == server_b || same_leaf  ? 2
                            : server_a / 512 == server_b / 512 ? 4
                                                               : 6;
    ASSERT_EQ(path.size(), expected) << a << " " << b;
  }
  // All-pairs tables would take 2 bytes x 131,072 x 152,576.
  EXPECT_LT(routing.table_bytes(), uint64_t{16} << 20);
}

}  // namespace
}  // namespace trainyard
