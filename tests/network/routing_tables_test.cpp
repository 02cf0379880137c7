// SPDX-License-Identifier: MIT
// Routing keeps distances between switches, by group. It must give, bit for bit, the paths of the
// plain rule: breadth first from every destination, hosts not being transit.
#include <deque>
#include <optional>
#include <set>

#include <gtest/gtest.h>

#include "network/routing.h"
#include "sim/dice.h"
#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

using namespace test;

/// The plain rule, with links that are down left out.
class PlainRouting {
 public:
  PlainRouting(const Topology& topology, RoutingConfig config)
      : topology_(topology), config_(config) {}

  std::set<uint32_t> down;

  std::vector<int> distances(uint32_t dst) const {
    std::vector<int> d(topology_.nodes().size(), -1);
    d[dst] = 0;
    std::deque<uint32_t> todo{dst};
    while (!todo.empty()) {
      const uint32_t u = todo.front();
      todo.pop_front();
      if (u != dst && topology_.kind(u) == NodeKind::host) continue;
      for (const uint32_t p : topology_.nodes()[u].ports) {
        const uint32_t v = topology_.to(p);
        if (down.count(p >> 1) != 0 || d[v] >= 0) continue;
        d[v] = d[u] + 1;
        todo.push_back(v);
      }
    }
    return d;
  }
  std::vector<uint32_t> candidates(const std::vector<int>& d, uint32_t u, uint32_t dst) const {
    std::vector<uint32_t> found;
    for (const uint32_t p : topology_.nodes()[u].ports) {
      const uint32_t v = topology_.to(p);
      if (down.count(p >> 1) == 0 && d[v] >= 0 && d[v] + 1 == d[u] &&
          (v == dst || topology_.kind(v) != NodeKind::host)) {
        found.push_back(p);
      }
    }
    // A host prefers its scale-up domain.
    const auto scale_up = [&](uint32_t p) {
      return topology_.kind(topology_.to(p)) == NodeKind::scale_up;
    };
    if (topology_.kind(u) == NodeKind::host &&
        std::any_of(found.begin(), found.end(), scale_up)) {
      found.erase(std::remove_if(found.begin(), found.end(),
                                 [&](uint32_t p) { return !scale_up(p); }),
                  found.end());
    }
    if (config_.order == NextHopOrder::descending_peer) {
      std::stable_sort(found.begin(), found.end(),
                       [&](uint32_t a, uint32_t b) { return topology_.to(a) > topology_.to(b); });
    }
    return found;
  }
  /// Empty when there is none.
  std::vector<uint32_t> path(const FlowTuple& t) const {
    const auto d = distances(t.dst_node);
    std::vector<uint32_t> path;
    if (d[t.src_node] < 0) return path;
    for (uint32_t u = t.src_node; u != t.dst_node; u = topology_.to(path.back())) {
      const auto c = candidates(d, u, t.dst_node);
      const uint64_t flow = (static_cast<uint64_t>(t.src_node) << 32) | t.dst_node;
      const uint64_t ports = (static_cast<uint64_t>(t.src_port) << 16) | t.dst_port;
      path.push_back(
          c[c.size() == 1
                ? 0
                : dice(config_.seed, config_.per_switch_seed ? u : 0, flow, ports) % c.size()]);
    }
    return path;
  }
  uint64_t count(uint32_t src, uint32_t dst) const {
    const auto d = distances(dst);
    if (d[src] < 0) return 0;
    std::map<uint32_t, uint64_t> layer{{src, 1}};
    while (layer.count(dst) == 0) {
      std::map<uint32_t, uint64_t> next;
      for (const auto& [u, n] : layer) {
        for (const uint32_t p : candidates(d, u, dst)) next[topology_.to(p)] += n;
      }
      layer = next;
    }
    return layer[dst];
  }

 private:
  const Topology& topology_;
  RoutingConfig config_;
};

/// Path, empty when there is none now; nullopt when there never was one.
std::optional<std::vector<uint32_t>> path_of(Routing& routing, const FlowTuple& t) {
  std::vector<uint32_t> path;
  try {
    routing.path(t, path);
  } catch (const UserError&) {
    return std::nullopt;
  }
  return path;
}

/// Compares all pairs of hosts, or `sample` of them.
void expect_plain_paths(const Topology& t, Routing& routing, const PlainRouting& plain,
                        uint32_t sample = 0) {
  const auto& hosts = t.hosts();
  const auto n = static_cast<uint32_t>(hosts.size());
  const uint32_t pairs = sample == 0 ? n * n : sample;
  for (uint32_t i = 0; i < pairs; ++i) {
    const uint32_t x =
        sample == 0 ? i : static_cast<uint32_t>(dice(7, 1, i, 0) % (uint64_t{n} * n));
    const uint32_t a = hosts[x / n];
    const uint32_t b = hosts[x % n];
    if (a == b) continue;
    const FlowTuple tuple{a, b, static_cast<uint16_t>(10000 + i % 5), 100};
    const auto expected = plain.path(tuple);
    const auto path = path_of(routing, tuple);
    if (!path) {
      EXPECT_TRUE(expected.empty()) << a << " " << b;
      continue;
    }
    ASSERT_EQ(*path, expected) << t.nodes()[a].name << " to " << t.nodes()[b].name;
    if (i % 16 == 0) {
      ASSERT_EQ(routing.count_paths(a, b), plain.count(a, b)) << a << " " << b;
    }
  }
}

const std::vector<RoutingConfig>& configs() {
  static const std::vector<RoutingConfig> all{
      {EcmpHash::mix64, NextHopOrder::cabling, true, 1},
      {EcmpHash::mix64, NextHopOrder::descending_peer, false, 5}};
  return all;
}

void expect_plain(const Topology& t, uint32_t sample = 0) {
  for (const RoutingConfig& c : configs()) {
    Routing routing(t, c);
    expect_plain_paths(t, routing, PlainRouting(t, c), sample);
  }
}

/// A connected or unconnected jumble: switches with random cables, parallel ones among them, hosts
/// on one to three switches, some host to host.
Topology jumble(uint64_t seed) {
  auto draw = [&, counter = uint64_t{0}](uint64_t n) mutable {
    return static_cast<uint32_t>(dice(seed, 99, 0, counter++) % n);
  };
  Topology t;
  const uint32_t hosts = 3 + draw(10);
  const uint32_t switches = 1 + draw(9);
  std::vector<uint32_t> host_nodes, switch_nodes;
  for (uint32_t i = 0; i < hosts + switches; ++i) {
    const bool host =
        switch_nodes.size() == switches || (host_nodes.size() < hosts && draw(2) == 0);
    const NodeKind kind = host           ? NodeKind::host
                          : draw(5) == 0 ? NodeKind::scale_up
                                         : NodeKind::leaf;
    (host ? host_nodes : switch_nodes).push_back(t.add_node("n" + std::to_string(i), kind));
  }
  const auto cable = [&](uint32_t a, uint32_t b) {
    if (a != b) t.add_link(a, b, Rate::gbps(100), Time::us(1));
  };
  for (const uint32_t h : host_nodes) {
    for (uint32_t k = 1 + draw(3); k > 0; --k) cable(h, switch_nodes[draw(switches)]);
    if (draw(6) == 0) cable(h, host_nodes[draw(hosts)]);
  }
  for (uint32_t k = draw(3 * switches + 1); k > 0; --k) {
    cable(switch_nodes[draw(switches)], switch_nodes[draw(switches)]);
  }
  // A jumble in pieces is wanted, too: only the ports have to be in order.
  try {
    t.finish();
  } catch (const UserError&) {
  }
  return t;
}

TEST(RoutingTables, PlainPathsInJumbles) {
  uint32_t in_pieces = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    const Topology t = jumble(seed);
    expect_plain(t);
    Routing routing(t, {});
    in_pieces += path_of(routing, {t.hosts()[0], t.hosts()[1], 1, 2}) ? 0 : 1;
  }
  EXPECT_GT(in_pieces, 5U);
  EXPECT_LT(in_pieces, 120U);
}

TopologyRequest servers(uint32_t nodes, uint32_t gpus) {
  TopologyRequest r;
  r.nodes = nodes;
  r.gpus_per_node = r.nics_per_node = gpus;
  return r;
}

TEST(RoutingTables, PlainPathsInStructuredFabrics) {
  struct Case {
    const char* kind;
    uint32_t nodes, gpus;
    Settings settings;
  };
  const std::vector<Case> cases{
      {"single-switch", 3, 4, {}},
      {"leaf-spine", 6, 4, {{"leaf_radix", "8"}}},
      {"leaf-spine", 12, 2, {{"leaf_radix", "8"}, {"planes", "4"}, {"oversubscription", "3"}}},
      {"leaf-spine", 12, 1, {{"leaf_radix", "8"}, {"tor", "dual"}}},
      {"leaf-spine",
       8,
       2,
       {{"leaf_radix", "8"}, {"planes", "2"}, {"tor", "dual"}, {"nic.ports", "4"}}},
      {"leaf-spine", 32, 1, {{"leaf_radix", "8"}, {"tiers", "3"}}},
      {"leaf-spine", 32, 1, {{"leaf_radix", "8"}, {"tiers", "3"}, {"pods", "4"}, {"tor", "dual"}}},
      {"leaf-spine", 16, 2, {{"leaf_radix", "8"}, {"shuffle", "2"}}},
      {"rail-optimized", 6, 4, {{"leaf_radix", "8"}, {"planes", "2"}, {"spine_radix", "32"}}},
      {"rail-optimized", 8, 4, {{"leaf_radix", "8"}, {"tiers", "3"}, {"spine_radix", "16"}}},
      {"rail-optimized", 8, 4, {{"rails", "2"}, {"tor", "dual"}, {"scale_up.domain", "8"}}},
      {"rail-only", 8, 4, {{"leaf_radix", "16"}}},
      {"rail-only", 9, 2, {{"leaf_radix", "8"}, {"tor", "dual"}}},
      {"fat-tree", 16, 1, {{"k", "4"}}},
      {"fat-tree", 4, 2, {{"k", "4"}, {"planes", "2"}, {"tor", "dual"}, {"nic.ports", "4"}}},
      {"clos3", 8, 4, {{"pods", "3"}, {"planes", "2"}}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.kind) + " " + ::testing::PrintToString(c.settings));
    expect_plain(make_topology(c.kind, servers(c.nodes, c.gpus), c.settings));
  }
}

// The nearest thing to a big fabric that the plain rule can be asked about in a test.
TEST(RoutingTables, PlainPathsInABigFatTree) {
  expect_plain(make_topology("fat-tree", servers(1024, 1), {{"k", "16"}}), 300);
}

// Links fail and come back in random order; after every step all pairs have the plain paths, and at
// the end those of the beginning.
TEST(RoutingTables, FailedLinksAreAvoidedAndComeBack) {
  const auto check = [](const Topology& t, uint64_t seed, uint32_t steps, uint32_t sample) {
    for (const RoutingConfig& c : configs()) {
      Routing routing(t, c);
      PlainRouting plain(t, c);
      const auto links = static_cast<uint32_t>(t.links().size());
      for (uint32_t i = 0; i < steps; ++i) {
        const auto link = static_cast<uint32_t>(dice(seed, 3, i, 0) % links);
        const bool up = plain.down.count(link) != 0;
        if (up) {
          plain.down.erase(link);
        } else {
          plain.down.insert(link);
        }
        routing.set_link_state(link, up);
        EXPECT_EQ(routing.link_up(link), up);
        expect_plain_paths(t, routing, plain, sample);
        if (::testing::Test::HasFatalFailure()) return;
      }
      for (const uint32_t link : plain.down) routing.set_link_state(link, true);
      plain.down.clear();
      expect_plain_paths(t, routing, plain, sample);
    }
  };
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE(seed);
    check(jumble(1000 + seed), seed, 20, 0);
  }
  check(make_topology("fat-tree", servers(16, 1), {{"k", "4"}}), 1, 60, 60);
  check(make_topology("rail-optimized", servers(6, 4),
                      {{"leaf_radix", "8"}, {"planes", "2"}, {"spine_radix", "32"}}),
        2, 60, 60);
  check(make_topology("leaf-spine", servers(12, 1), {{"leaf_radix", "8"}, {"tor", "dual"}}), 3, 60,
        60);
}

TEST(RoutingTables, NoPathIsLeftOrNeverWas) {
  const Topology t = star(3);
  Routing routing(t, {});
  routing.set_link_state(0, false);
  std::vector<uint32_t> path{5};
  routing.path({0, 1, 1, 2}, path);
  EXPECT_EQ(path, std::vector<uint32_t>{5});
  EXPECT_EQ(routing.count_paths(0, 1), 0U);
  routing.path({1, 2, 1, 2}, path);
  EXPECT_EQ(path.size(), 3U);
  routing.set_link_state(0, false);  // twice is once
  routing.set_link_state(0, true);
  path.clear();
  routing.path({0, 1, 1, 2}, path);
  EXPECT_EQ(path.size(), 2U);

  const Topology rails = make_topology("rail-only", servers(2, 2), {});
  Routing on_rails(rails, {});
  const auto cross = [&] { on_rails.path({0, 3, 1, 2}, path); };
  expect_contains(error_of<UserError>(cross),
                  {"no path from node0.gpu0 to node1.gpu1", "scale-up domains"});
  on_rails.set_link_state(0, false);  // what never was is no fault of the link
  error_of<UserError>(cross);
}

// All leaves of a plane share one table.
TEST(RoutingTables, OnePlaneKnowsOneTable) {
  const Topology t = make_topology("leaf-spine", servers(32, 1),
                                   {{"leaf_radix", "8"}, {"planes", "2"}, {"nic.rate", "800Gbps"}});
  Routing routing(t, {});
  const uint64_t before = routing.table_bytes();
  std::vector<uint32_t> path;
  for (uint32_t b = 1; b < 32; ++b) {
    for (uint16_t port = 0; port < 16; ++port) routing.path({0, b, port, 100}, path);
  }
  // 8 leaves and 4 spines per plane: two tables of 12 distances, not 32 of 56.
  EXPECT_LT(routing.table_bytes() - before, 400U);
}

// No path leaves the plane of its first port, and a QP's two directions may use different planes.
TEST(RoutingTables, PathsStayInTheirPlane) {
  const Topology t =
      make_topology("rail-optimized", servers(8, 4),
                    {{"leaf_radix", "8"}, {"planes", "4"}, {"tor", "dual"}, {"spine_radix", "64"}});
  Routing routing(t, {});
  std::map<uint32_t, int> used;
  int differ = 0;
  for (uint16_t port = 0; port < 400; ++port) {
    const auto plane = [&](const FlowTuple& tuple) {
      std::vector<uint32_t> path;
      routing.path(tuple, path);
      const uint32_t first = t.nodes()[t.to(path[0])].place.plane;
      for (size_t i = 0; i + 1 < path.size(); ++i) {
        EXPECT_EQ(t.nodes()[t.to(path[i])].place.plane, first);
      }
      return first;
    };
    const uint32_t there = plane({0, 13, port, 100});
    ++used[there];
    differ += plane({13, 0, 100, port}) == there ? 0 : 1;
  }
  EXPECT_EQ(used.size(), 4U);
  // 100 each within 5 standard deviations, sqrt(400 / 4 * 3 / 4) = 8.7.
  for (const auto& [plane, n] : used) EXPECT_NEAR(n, 100, 44) << plane;
  EXPECT_GT(differ, 0);
}

}  // namespace
}  // namespace trainyard
