// SPDX-License-Identifier: MIT
// Routes that a list or a rule gives, in all engines. Two leaves with two hosts each, four spines:
// links 0-3 are the hosts', 4-7 those of leaf0 and 8-11 those of leaf1 to spines 0-3.
#include "network/source_routes.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "network/engine.h"
#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

using namespace test;

constexpr int64_t kUs = 1'000'000;

PinnedRoute route(const std::string& from, const std::string& to,
                  const std::vector<std::string>& via) {
  PinnedRoute r;
  r.from = from;
  r.to = to;
  r.via = via;
  r.pos = {"routes.csv", 7};
  return r;
}

PacketConfig with_routes(const std::vector<PinnedRoute>& routes, RouteRule rule = RouteRule::hash) {
  PacketConfig c = hpcc_sizes().set("ecmp.convergence", "50us").make();
  c.routes.pinned = routes;
  c.routes.rule = rule;
  return c;
}

/// Payload that each spine got from leaf0 and gave to leaf1.
struct Loads {
  std::vector<int64_t> up = std::vector<int64_t>(4), down = std::vector<int64_t>(4);
  bool operator==(const Loads&) const = default;
};
Loads loads(const std::vector<LinkRecord>& links) {
  Loads l;
  for (const auto& r : links) {
    if (r.from == "leaf0" && r.to[0] == 's') l.up[r.to.back() - '0'] = r.data_bytes;
    if (r.to == "leaf1" && r.from[0] == 's') l.down[r.from.back() - '0'] = r.data_bytes;
  }
  return l;
}

Loads run_engine(const std::string& name, const Topology& t, const PacketConfig& c,
                 const std::vector<Flow>& flows) {
  const auto& registry = Registry::instance();
  const auto fabric = registry.factory<EngineFactory>("engine", name)(
      t, c, Params(registry.get("engine", name).params));
  for (const Flow& f : flows) {
    Transfer transfer;
    transfer.src = f.src;
    transfer.dst = f.dst;
    transfer.size = Bytes(f.bytes);
    transfer.channel = f.channel;
    fabric->start(transfer, f.start);
  }
  std::vector<Completion> out;
  while (fabric->next_event() != Time::infinity()) fabric->advance(Time::infinity(), out);
  EXPECT_EQ(fabric->outstanding(), 0U);
  fabric->check_conservation();
  return loads(fabric->links());
}

TEST(SourceRoutes, NumbersNameEveryPathOnce) {
  const Topology t = fat_tree(4);
  Routing routing(t, {});
  const FlowTuple far{0, 15, kSourcePortBase, kDestinationPort};
  const uint64_t n = routing.count_paths(0, 15);
  ASSERT_EQ(n, 4U);
  std::set<std::vector<uint32_t>> all;
  for (uint64_t i = 0; i < 2 * n; ++i) {
    std::vector<uint32_t> path;
    routing.path_by_number(far, i, path);
    EXPECT_EQ(path.size(), 6U);
    EXPECT_EQ(t.to(path.back()), 15U);
    all.insert(path);
  }
  EXPECT_EQ(all.size(), n);
  for (uint16_t port = 0; port < 50; ++port) {
    std::vector<uint32_t> path;
    routing.path({0, 15, static_cast<uint16_t>(kSourcePortBase + port), kDestinationPort}, path);
    EXPECT_EQ(all.count(path), 1U);
  }
}

// The engines take the same route: by a switch, a cable, a port, a number, for one queue pair only.
TEST(SourceRoutes, EveryEngineTakesThePinnedRoute) {
  const Topology t = two_tiers(2, 2, 4);
  PinnedRoute by_number = route("host0", "host2", {});
  by_number.path = 3;
  PinnedRoute second_only = route("host0", "host2", {"spine3"});
  second_only.qp = 1;
  struct Row {
    std::vector<PinnedRoute> routes;
    Loads expected;
  };
  const std::vector<Row> rows{
      {{route("host0", "host2", {"spine3"})}, {{0, 0, 0, 9'000}, {0, 0, 0, 9'000}}},
      {{route("host0", "host[2-3]", {"link(leaf0,spine1)"})}, {{0, 9'000, 0, 0}, {0, 9'000, 0, 0}}},
      {{route("host[0-1]", "host2", {"leaf0:port4"})}, {{0, 0, 9'000, 0}, {0, 0, 9'000, 0}}},
      {{route("rank0", "rank2", {"leaf0", "spine2", "leaf1"})},
       {{0, 0, 9'000, 0}, {0, 0, 9'000, 0}}},
      {{by_number}, {{0, 0, 0, 9'000}, {0, 0, 0, 9'000}}},
      // The first that fits holds.
      {{second_only, route("host0", "host2", {"spine0"}), route("host0", "host2", {"spine1"})},
       {{6'000, 0, 0, 3'000}, {6'000, 0, 0, 3'000}}},
  };
  const std::vector<Flow> flows{{0, 2, 4'000, {}, 0}, {0, 2, 3'000, {}, 1}, {0, 2, 2'000, {}, 0}};
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const char* name : {"packet", "flow", "analytic"}) {
      SCOPED_TRACE(std::to_string(i) + " " + name);
      const Loads l = run_engine(name, t, with_routes(rows[i].routes), flows);
      EXPECT_EQ(l.up, rows[i].expected.up);
      EXPECT_EQ(l.down, rows[i].expected.down);
    }
  }
}

// A detour over a third leaf is a route too, where the cables are.
TEST(SourceRoutes, ARouteMayBeLonger) {
  const Topology t = two_tiers(3, 1, 2);
  const Outcome o = run(t, with_routes({route("host0", "host1", {"spine0", "leaf2", "spine1"})}),
                        {{0, 1, 5'000, {}, 0}});
  EXPECT_EQ(o.records[0].hops, 6U);
  EXPECT_EQ(link_between(o, "spine0", "leaf2").data_bytes, 5'000);
  EXPECT_EQ(link_between(o, "leaf2", "spine1").data_bytes, 5'000);
}

TEST(SourceRoutes, WhatDoesNotExistIsRefusedAtItsLine) {
  const Topology t = two_tiers(2, 2, 4);
  const auto problem = [&](const PinnedRoute& r) {
    return error_of<UserError>([&] { PacketFabric fabric(t, with_routes({r})); });
  };
  PinnedRoute too_high = route("host0", "host2", {});
  too_high.path = 4;
  PinnedRoute neither = route("host0", "host2", {});
  const std::vector<std::pair<PinnedRoute, std::string>> rows{
      {route("host9", "host2", {"spine0"}), "'host9' matches nothing"},
      {route("leaf0", "host2", {"spine0"}), "'leaf0' names no host"},
      {route("host0", "host2", {"spine7"}), "'spine7' matches nothing"},
      {route("host0", "host2", {"spine*"}), "'spine*' is not one switch"},
      {route("host0", "host2", {"host1"}), "hosts do not forward"},
      {route("host0", "host2", {"host1:port0"}), "host1 does not forward"},
      {route("host0", "host2", {"link(leaf0,spine*)"}), "names 4 cables"},
      {route("host0", "host1", {"spine0"}), "it passes leaf0 twice"},
      {route("host0", "host0", {"leaf0"}), "joins no two hosts"},
      {too_high, "path 4 is asked for, there are 4"},
      {neither, "needs either 'via' or 'path'"},
  };
  for (const auto& [r, part] : rows) expect_contains(problem(r), {"routes.csv:7: ", part});
}

TEST(SourceRoutes, FilesAreReadAndRefusedByLine) {
  const TempFile good(
      "# a comment\nfrom,to,qp,via\nhost0,host[2,3],,leaf0 link(leaf0,spine1)\n\n"
      "host1, host2 ,3, 2 # the third path\n");
  const auto routes = read_pinned_routes(good.path(), {});
  ASSERT_EQ(routes.size(), 2U);
  EXPECT_EQ(routes[0].to, "host[2,3]");
  EXPECT_EQ(routes[0].via, (std::vector<std::string>{"leaf0", "link(leaf0,spine1)"}));
  EXPECT_EQ(routes[0].qp, -1);
  EXPECT_EQ(routes[0].pos.line, 3);
  EXPECT_EQ(routes[1].to, "host2");
  EXPECT_EQ(routes[1].qp, 3);
  EXPECT_EQ(routes[1].path, 2);
  EXPECT_EQ(routes[1].pos.line, 5);
  const auto problem = [](const std::string& text) {
    const TempFile file(text);
    return error_of<UserError>([&] { (void)read_pinned_routes(file.path(), {"s.yaml", 4}); });
  };
  expect_contains(problem("host0,host1,spine0\n"), {".txt:1: ", "this row has 3"});
  expect_contains(problem("\nhost0,host1,first,spine0\n"), {".txt:2: ", "'first' is no number"});
  expect_contains(problem("# nothing\n"), {"s.yaml:4: ", "holds no route"});
  expect_contains(error_of<UserError>([] {
                    (void)read_pinned_routes("/no/such/file", {"s.yaml", 4});
                  }),
                  {"s.yaml:4: ", "cannot open the routes file"});
}

// The cable of the route fails and comes back: lost until the fabric notices, by hash while it is
// away, and as pinned again afterwards.
TEST(SourceRoutes, AFailedRouteIsLeftToTheHashUntilItIsBack) {
  const Topology t = two_tiers(2, 2, 4);
  PacketConfig c = with_routes({route("host0", "host2", {"spine3"})});
  c.rto_ps = 100 * kUs;
  PacketFabric fabric(t, c);
  FabricChange change;
  change.link = 7;  // leaf0 - spine3
  change.at = Time::us(20);
  fabric.schedule(change);
  change.kind = FabricChange::Kind::link_up;
  change.at = Time::us(1'000);
  fabric.schedule(change);
  start(fabric, {0, 2, 1'000'000, {}, 0});
  start(fabric, {0, 2, 1'000'000, Time::us(2'000), 0});
  std::vector<Completion> out;
  const auto until = [&](int64_t us) {
    while (fabric.next_event() <= Time::us(us)) fabric.advance(Time::us(us), out);
    return loads(fabric.links()).up;
  };
  const auto before = until(20);
  EXPECT_GT(before[3], 0);
  EXPECT_EQ(before[0] + before[1] + before[2], 0);
  const auto away = until(1'000);
  EXPECT_EQ(fabric.transfers()[0].packets, 1'000U);
  EXPECT_GT(away[0] + away[1] + away[2], 500'000);
  EXPECT_EQ(fabric.totals().reroutes, 1U);
  const auto back = until(1'999);
  drain(fabric);
  EXPECT_EQ(fabric.totals().reroutes, 2U);
  EXPECT_EQ(loads(fabric.links()).up[3], back[3] + 1'000'000);
}

TEST(SourceRoutes, RulesSpreadQueuePairsEvenly) {
  const Topology t = two_tiers(2, 2, 4);
  // Eight queue pairs from leaf 0 to leaf 1.
  std::vector<Flow> flows;
  for (uint32_t i = 0; i < 8; ++i) flows.push_back({i % 2, 2 + i / 2 % 2, 1'000, {}, i / 4});
  const std::vector<int64_t> even(4, 2'000);
  for (const char* name : {"packet", "flow", "analytic"}) {
    for (const RouteRule rule : {RouteRule::round_robin, RouteRule::least_used}) {
      const Loads l = run_engine(name, t, with_routes({}, rule), flows);
      EXPECT_EQ(l.up, even) << name;
      EXPECT_EQ(l.down, even) << name;
    }
    // (src + dst + queue pair) mod 4: 2, 3, 3, 0, and one more for the second of each.
    const Loads l = run_engine(name, t, with_routes({}, RouteRule::modulo), flows);
    EXPECT_EQ(l.up, (std::vector<int64_t>{3'000, 1'000, 1'000, 3'000})) << name;
  }
}

// Two planes, and four parallel cables between each leaf and the spine of its plane: both ports of
// every NIC and all parallel cables, up and down, carry the same, whether the queue pairs of a
// connection open together or one channel of all ranks after the other.
TEST(SourceRoutes, RoundRobinUsesAllPlanesAndParallelCables) {
  TopologyRequest request;
  request.nodes = 4;
  request.gpus_per_node = request.nics_per_node = 2;
  const Topology t = make_topology(
      "rail-optimized", request, {{"planes", "2"}, {"leaf_radix", "8"}, {"scale_up.kind", "none"}});
  for (const bool together : {true, false}) {
    std::vector<Flow> flows;
    for (uint32_t i = 0; i < 32; ++i) {
      const uint32_t src = together ? i / 4 : i % 8;
      flows.push_back({src, (src + 1) % 8, 1'000, {}, together ? i % 4 : i / 8});
    }
    const Outcome o = run(t, with_routes({}, RouteRule::round_robin), flows);
    size_t seen = 0;
    for (const auto& l : o.links) {
      const bool nic = l.tier == "host-leaf";
      if (!nic && l.tier != "leaf-spine") continue;
      ++seen;
      // 4 queue pairs over 2 ports; 8 queue pairs to or from a leaf over 4 cables.
      EXPECT_EQ(l.data_bytes, 2'000) << l.from << " -> " << l.to << " " << together;
    }
    EXPECT_EQ(seen, 2U * 2 * (8 + 2 * 4));
  }
}

// Round robin sends the first queue pair of every leaf to the same spine, and there they
// meet again if they go to one leaf. The least used links are others.
TEST(SourceRoutes, LeastUsedLooksAtTheWayDownToo) {
  const Topology t = two_tiers(4, 3, 3);
  const std::vector<Flow> flows{{0, 9, 1'000, {}, 0}, {3, 10, 1'000, {}, 0}, {6, 11, 1'000, {}, 0}};
  for (const auto& [rule, worst] : std::vector<std::pair<RouteRule, int64_t>>{
           {RouteRule::round_robin, 3'000}, {RouteRule::least_used, 1'000}}) {
    const Outcome o = run(t, with_routes({}, rule), flows);
    int64_t most = 0;
    for (const auto& l : o.links) {
      if (l.to == "leaf3" && l.from[0] == 's') most = std::max(most, l.data_bytes);
    }
    EXPECT_EQ(most, worst);
  }
}

// A rule's number outlives a failure, and without routes or a rule nothing changes.
TEST(SourceRoutes, ARuleSurvivesAFailedCable) {
  const Topology t = two_tiers(2, 2, 4);
  Routing routing(t, {});
  SourceRoutes routes(t, {}, {RouteRule::round_robin, {}});
  const FlowTuple tuple{0, 2, kSourcePortBase, kDestinationPort};
  const auto path = [&] {
    std::vector<uint32_t> p;
    routes.path(routing, tuple, p);
    return p;
  };
  const auto healthy = path();
  routing.set_link_state(healthy[1] >> 1, false);
  const auto other = path();
  EXPECT_EQ(other.size(), healthy.size());
  EXPECT_NE(other, healthy);
  routing.set_link_state(healthy[1] >> 1, true);
  EXPECT_EQ(path(), healthy);
}

TEST(SourceRoutes, InsideAScaleUpDomainNothingIsPinned) {
  TopologyRequest request;
  request.nodes = 2;
  request.gpus_per_node = request.nics_per_node = 2;
  const Topology t = make_topology("rail-optimized", request, {});
  PinnedRoute r = route("*.gpu*", "*.gpu*", {});
  r.path = 0;
  const Outcome o = run(t, with_routes({r}), {{0, 1, 5'000, {}, 0}});
  for (const auto& l : o.links) {
    if (l.data_bytes > 0) {
      EXPECT_EQ(l.tier, "scale-up");
    }
  }
}

}  // namespace
}  // namespace trainyard
