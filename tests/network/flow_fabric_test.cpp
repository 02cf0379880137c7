// SPDX-License-Identifier: MIT
// The engines without packets, against closed forms and against the packet engine.
#include "network/flow/flow_fabric.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "network/analytic/analytic_fabric.h"
#include "network/engine.h"
#include "sim/dice.h"
#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

using test::Flow;
using test::hpcc_sizes;
using test::star;
using test::two_tiers;

constexpr int64_t kUs = 1'000'000;

std::unique_ptr<Fabric> engine(const std::string& name, const Topology& t, const PacketConfig& c,
                               const test::Settings& settings = {}) {
  Params params(Registry::instance().get("engine", name).params);
  for (const auto& [key, text] : settings) params.set(key, text, {});
  return Registry::instance().factory<EngineFactory>("engine", name)(t, c, params);
}

TransferId start(Fabric& fabric, const Flow& f) {
  Transfer t;
  t.src = f.src;
  t.dst = f.dst;
  t.size = Bytes(f.bytes);
  t.channel = f.channel;
  return fabric.start(t, f.start);
}

void drain(Fabric& fabric) {
  std::vector<Completion> out;
  while (fabric.next_event() != Time::infinity()) {
    const size_t before = out.size();
    const Time now = fabric.advance(Time::infinity(), out);
    for (size_t i = before; i < out.size(); ++i) EXPECT_EQ(out[i].at, now);
  }
  EXPECT_EQ(out.size(), 2 * fabric.transfers().size());
  EXPECT_EQ(fabric.outstanding(), 0U) << fabric.describe_stall();
  fabric.check_conservation();
}

std::vector<TransferRecord> run(Fabric& fabric, const std::vector<Flow>& flows) {
  for (const Flow& f : flows) start(fabric, f);
  drain(fabric);
  return fabric.transfers();
}

/// Bits over bits per second, in ps, rounded up as a message ends.
int64_t wire_ps(int64_t bytes, int64_t rate_bps) {
  __extension__ typedef __int128 Wide;
  const Wide bits = static_cast<Wide>(bytes) * 8 * 1'000'000'000'000;
  return static_cast<int64_t>((bits + rate_bps - 1) / rate_bps);
}

constexpr int64_t kG = 1'000'000'000;

TEST(FlowFabric, OneFlowIsTheClosedFormAndThePacketEngine) {
  const Topology t = star(2);
  const PacketConfig c = hpcc_sizes().make();
  for (const int64_t bytes : {int64_t{1}, int64_t{999}, int64_t{1000}, int64_t{10'000'000}}) {
    const int64_t packets = (bytes + 999) / 1000;
    const int64_t wire = bytes + packets * 48;
    const int64_t stored = packets > 1 ? 1048 : wire;
    const int64_t delivered = wire_ps(wire, 100 * kG) + 2 * kUs + wire_ps(stored, 100 * kG);
    const int64_t acked = delivered + 2 * kUs + 2 * wire_ps(60, 100 * kG);
    for (const char* name : {"flow", "analytic", "packet"}) {
      const auto fabric = engine(name, t, c);
      const auto records = run(*fabric, {{0, 1, bytes, Time::us(3)}});
      EXPECT_EQ((records[0].delivered - records[0].start).ps(), delivered) << name << bytes;
      EXPECT_EQ((records[0].acknowledged - records[0].start).ps(), acked) << name << bytes;
      EXPECT_EQ(records[0].hops, 2U);
      EXPECT_EQ(records[0].packets, static_cast<uint64_t>(packets));
    }
  }
}

TEST(FlowFabric, TheSlowestLinkCountsOnce) {
  Topology t;
  t.add_node("a", NodeKind::host);
  t.add_node("b", NodeKind::host);
  t.add_node("l0", NodeKind::leaf);
  t.add_node("l1", NodeKind::leaf);
  t.add_link(0, 2, Rate::gbps(400), Time::ns(100));
  t.add_link(2, 3, Rate::gbps(100), Time::ns(700));
  t.add_link(3, 1, Rate::gbps(200), Time::ns(300));
  t.finish();
  const PacketConfig c = hpcc_sizes().make();
  const int64_t expected = wire_ps(2000 * 1048, 100 * kG) + 1'100'000 + wire_ps(1048, 400 * kG) +
                           wire_ps(1048, 200 * kG);
  for (const char* name : {"flow", "analytic", "packet"}) {
    const auto fabric = engine(name, t, c);
    const auto records = run(*fabric, {{0, 1, 2'000'000, Time()}});
    EXPECT_NEAR(static_cast<double>(records[0].delivered.ps()), static_cast<double>(expected), 2)
        << name;
  }
}

TEST(FlowFabric, TwoFlowsShareAndTheSecondSpeedsUp) {
  const Topology t = star(3);
  const PacketConfig c = hpcc_sizes().make();
  FlowFabric fabric(t, c, {});
  // 1 MB and 3 MB to one host: half the link each until the first has gone.
  const auto r = run(fabric, {{0, 2, 1'000'000, Time()}, {1, 2, 3'000'000, Time()}});
  const int64_t latency = 2 * kUs + wire_ps(1048, 100 * kG);
  EXPECT_EQ(r[0].delivered.ps(), wire_ps(1000 * 1048, 50 * kG) + latency);
  EXPECT_EQ(r[1].delivered.ps(), wire_ps(4000 * 1048, 100 * kG) + latency);
  // Alpha-beta knows nothing of that, unless they leave through one NIC.
  for (const bool serial : {false, true}) {
    AnalyticFabric analytic(t, c, {serial});
    const auto a = run(analytic, {{0, 1, 1'000'000, Time()}, {0, 2, 1'000'000, Time()}});
    const int64_t alone = wire_ps(1000 * 1048, 100 * kG);
    EXPECT_EQ(a[0].delivered.ps(), alone + latency);
    EXPECT_EQ(a[1].delivered.ps(), (serial ? 2 : 1) * alone + latency);
  }
}

TEST(FlowFabric, MessagesOfAQueuePairFollowEachOther) {
  const Topology t = star(2);
  const PacketConfig c = hpcc_sizes().make();
  FlowFabric fabric(t, c, {});
  const int64_t each = wire_ps(100 * 1048, 100 * kG);
  const auto r =
      run(fabric, {{0, 1, 100'000, Time()}, {0, 1, 100'000, Time()}, {0, 1, 100'000, Time::ns(5)}});
  EXPECT_EQ((r[1].delivered - r[0].delivered).ps(), each);
  EXPECT_EQ((r[2].delivered - r[1].delivered).ps(), each);
  // Other channels are queue pairs of their own and share.
  FlowFabric shared(t, c, {});
  const auto s = run(shared, {{0, 1, 100'000, Time(), 0}, {0, 1, 100'000, Time(), 1}});
  EXPECT_EQ(s[0].delivered, s[1].delivered);
  // So are messages that open a queue pair each.
  FlowFabric fresh(t, hpcc_sizes().set("transport.queue_pairs", "per-message").make(), {});
  const auto f = run(fresh, {{0, 1, 100'000, Time()}, {0, 1, 100'000, Time()}});
  EXPECT_EQ(f[0].delivered, f[1].delivered);
}

TEST(FlowFabric, AcksTakeTheirShareOfTheWayBack) {
  const Topology t = star(2);
  const PacketConfig c = hpcc_sizes().make();
  const std::vector<Flow> both_ways = {{0, 1, 10'000'000, Time()}, {1, 0, 10'000'000, Time()}};
  FlowFabric off(t, c, {false, 0}), on(t, c, {true, 0});
  const auto without = run(off, both_ways);
  const auto with = run(on, both_ways);
  const auto packet = run(*engine("packet", t, c), both_ways);
  const int64_t latency = 2 * kUs + wire_ps(1048, 100 * kG);
  EXPECT_EQ(without[0].delivered.ps(), wire_ps(10'480'000, 100 * kG) + latency);
  const double share = static_cast<double>(with[0].delivered.ps() - latency) /
                       static_cast<double>(without[0].delivered.ps() - latency);
  EXPECT_NEAR(share, 1108.0 / 1048, 1e-6);
  EXPECT_NEAR(static_cast<double>(packet[0].delivered.ps()),
              static_cast<double>(with[0].delivered.ps()),
              0.002 * static_cast<double>(packet[0].delivered.ps()));
}

/// Random flows over a fabric with ECMP, some starting at once.
std::vector<Flow> random_flows(uint32_t hosts, size_t n, uint64_t seed) {
  std::vector<Flow> flows;
  for (size_t i = 0; i < n; ++i) {
    Flow f;
    f.src = static_cast<uint32_t>(dice(seed, 1, i, 0) % hosts);
    f.dst = static_cast<uint32_t>((f.src + 1 + dice(seed, 1, i, 1) % (hosts - 1)) % hosts);
    f.bytes = 1 + static_cast<int64_t>(dice(seed, 1, i, 2) % 3'000'000);
    f.start = Time::us(static_cast<int64_t>(dice(seed, 1, i, 3) % 5) * 20);
    flows.push_back(f);
  }
  return flows;
}

TEST(FlowFabric, OrderOfCallsAtAnInstantDoesNotMatter) {
  const Topology t = two_tiers(4, 4, 2);
  const PacketConfig c = hpcc_sizes().make();
  // One flow per pair, so that no order among the messages of a queue pair is left to keep.
  std::vector<Flow> flows;
  std::map<std::pair<uint32_t, uint32_t>, bool> seen;
  for (const Flow& f : random_flows(16, 200, 3)) {
    if (!std::exchange(seen[{f.src, f.dst}], true)) flows.push_back(f);
  }
  ASSERT_GT(flows.size(), 100U);
  for (const char* name : {"flow", "analytic"}) {
    std::map<std::pair<uint32_t, uint32_t>, std::pair<Time, Time>> first;
    uint64_t fingerprint = 0;
    for (uint64_t shuffle = 0; shuffle < 4; ++shuffle) {
      std::vector<std::pair<uint64_t, Flow>> order;
      for (size_t i = 0; i < flows.size(); ++i) {
        order.emplace_back(shuffle == 0 ? i : dice(shuffle, 2, i, 0), flows[i]);
      }
      std::sort(order.begin(), order.end(),
                [](const auto& a, const auto& b) { return a.first < b.first; });
      const auto fabric = engine(name, t, c);
      for (const auto& [key, f] : order) start(*fabric, f);
      drain(*fabric);
      for (const TransferRecord& r : fabric->transfers()) {
        const auto [it, added] = first.try_emplace({r.src, r.dst}, r.delivered, r.acknowledged);
        EXPECT_EQ(it->second, std::make_pair(r.delivered, r.acknowledged)) << name;
      }
      if (shuffle == 0) fingerprint = fabric->fingerprint();
      EXPECT_EQ(fabric->fingerprint(), fingerprint) << name;
    }
    EXPECT_NE(fingerprint, 0U);
  }
}

TEST(FlowFabric, BytesBalanceAndLinksAreNotOverloaded) {
  const Topology t = two_tiers(4, 4, 2);
  const PacketConfig c = hpcc_sizes().make();
  const auto flows = random_flows(16, 400, 9);
  for (const char* name : {"flow", "analytic", "packet"}) {
    const auto fabric = engine(name, t, c);
    const auto records = run(*fabric, flows);
    int64_t asked = 0, wire = 0, crossed = 0;
    Time end;
    for (const TransferRecord& r : records) {
      asked += r.bytes;
      const int64_t packets = (r.bytes + 999) / 1000;
      wire += static_cast<int64_t>(r.hops) * (r.bytes + packets * 48 + packets * 60);
      crossed += r.bytes * static_cast<int64_t>(r.hops);
      EXPECT_GT(r.delivered, r.start);
      EXPECT_GT(r.acknowledged, r.delivered);
      EXPECT_EQ(r.packets, static_cast<uint64_t>(packets));
      end = std::max(end, r.acknowledged);
    }
    const FabricTotals totals = fabric->totals();
    EXPECT_EQ(totals.payload_bytes, asked) << name;
    // The same bytes whatever the engine, but for pause frames.
    const auto pauses = static_cast<int64_t>(totals.pfc_frames) * c.pfc_frame;
    EXPECT_EQ(totals.wire_bytes - pauses, wire) << name;
    int64_t payload = 0;
    for (const LinkRecord& l : fabric->links()) {
      payload += l.data_bytes;
      if (std::string(name) == "analytic") continue;
      EXPECT_LE(l.busy, end) << l.from << " " << l.to;
    }
    EXPECT_EQ(payload, crossed) << name;
  }
}

TEST(FlowFabric, SameRouteAsThePacketEngine) {
  const Topology t = two_tiers(4, 4, 4);
  const PacketConfig c = hpcc_sizes().make();
  const auto flows = random_flows(16, 60, 5);
  const auto packet = engine("packet", t, c), flow = engine("flow", t, c);
  run(*packet, flows);
  run(*flow, flows);
  std::map<std::pair<std::string, std::string>, int64_t> payload;
  for (const LinkRecord& l : packet->links()) payload[{l.from, l.to}] = l.data_bytes;
  for (const LinkRecord& l : flow->links()) {
    EXPECT_EQ(l.data_bytes, (payload[{l.from, l.to}])) << l.from << " -> " << l.to;
  }
}

TEST(FlowFabric, RunsInSlicesAndWithLateWork) {
  const Topology t = two_tiers(2, 4, 2);
  const PacketConfig c = hpcc_sizes().make();
  const auto flows = random_flows(8, 60, 11);
  FlowFabric whole(t, c, {}), sliced(t, c, {});
  const auto expected = run(whole, flows);
  std::vector<size_t> order(flows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return flows[a].start < flows[b].start; });
  std::vector<Completion> out;
  Time now;
  size_t given = 0;
  std::map<TransferId, size_t> index;
  while (given < flows.size() || sliced.outstanding() > 0) {
    // Each flow is told when its time has come, as a timeline does.
    while (given < flows.size() && flows[order[given]].start <= now) {
      index[start(sliced, flows[order[given]])] = order[given];
      ++given;
    }
    const Time limit = given < flows.size() ? flows[order[given]].start : now + Time::us(7);
    now = sliced.advance(limit, out);
    if (now < limit && sliced.next_event() > limit) now = sliced.advance(limit, out);
  }
  sliced.check_conservation();
  for (TransferId id = 0; id < expected.size(); ++id) {
    EXPECT_EQ(sliced.transfers()[id].bytes, expected[index[id]].bytes);
    EXPECT_EQ(sliced.transfers()[id].delivered, expected[index[id]].delivered) << id;
  }
}

/// Ring all-reduce of `bytes` over n ranks, step by step. @returns its time.
Time ring_all_reduce(Fabric& fabric, uint32_t n, int64_t bytes) {
  std::vector<uint32_t> steps(n, 0);  // sent so far, by rank
  const auto send = [&](uint32_t rank, Time at) {
    if (++steps[rank] > 2 * (n - 1)) return;
    start(fabric, {rank, (rank + 1) % n, bytes / n, at});
  };
  for (uint32_t r = 0; r < n; ++r) send(r, Time());
  std::vector<Completion> out;
  Time end;
  while (fabric.next_event() != Time::infinity()) {
    out.clear();
    fabric.advance(Time::infinity(), out);
    for (const Completion& c : out) {
      if (c.what != Completion::What::delivered) continue;
      end = c.at;
      send(fabric.transfers()[c.id].dst, c.at);
    }
  }
  fabric.check_conservation();
  EXPECT_EQ(fabric.transfers().size(), size_t{2} * (n - 1) * n);
  return end;
}

TEST(FlowFabric, RingAllReduceMeetsTheClosedForm) {
  const Topology t = star(8);
  const PacketConfig c = hpcc_sizes().make();
  const int64_t bytes = 80'000'000;
  // 2 (n - 1) / n S / B with B the payload rate; 1.5 us of latency per step is in the 2 %.
  const double closed = 2.0 * 7 / 8 * static_cast<double>(bytes) * 8 / 100e9 * 1048 / 1000;
  FlowFabric without(t, c, {false, 0});
  EXPECT_NEAR(ring_all_reduce(without, 8, bytes).seconds() / closed, 1, 0.02);
  AnalyticFabric analytic(t, c, {});
  EXPECT_NEAR(ring_all_reduce(analytic, 8, bytes).seconds() / closed, 1, 0.02);
  // With its ACKs a NIC carries 1108 bytes for 1000.
  FlowFabric with(t, c, {true, 0});
  EXPECT_NEAR(ring_all_reduce(with, 8, bytes).seconds() / (closed * 1108 / 1048), 1, 0.02);
}

TEST(FlowFabric, RingAllReduceMeetsThePacketEngine) {
  const Topology t = star(6);
  const PacketConfig c = hpcc_sizes().make();
  const auto packet = engine("packet", t, c);
  const double reference = ring_all_reduce(*packet, 6, 3'000'000).seconds();
  FlowFabric flow(t, c, {});
  EXPECT_NEAR(ring_all_reduce(flow, 6, 3'000'000).seconds() / reference, 1, 0.01);
}

TEST(FlowFabric, IncastOfThousandsSharesExactly) {
  // All ends coincide: one solution serves all.
  const uint32_t n = 2000;
  const Topology t = star(n + 1);
  const PacketConfig c = hpcc_sizes().make();
  FlowFabric fabric(t, c, {});
  std::vector<Flow> flows;
  for (uint32_t i = 0; i < n; ++i) flows.push_back({i, n, 10'000, Time()});
  const auto records = run(fabric, flows);
  const int64_t sent = wire_ps(10 * 1048, 100 * kG / n);
  for (const auto& r : records) {
    ASSERT_EQ(r.delivered.ps(), sent + 2 * kUs + wire_ps(1048, 100 * kG));
  }
  EXPECT_LE(fabric.rates_computed(), 2 * n);
}

TEST(FlowFabric, FreedCapacityCanWaitForTheNextInterval) {
  const Topology t = star(3);
  const PacketConfig c = hpcc_sizes().make();
  FlowConfig config;
  config.rate_interval_ps = 100 * kUs;
  FlowFabric fabric(t, c, config);
  const auto r = run(fabric, {{0, 2, 1'000'000, Time()}, {1, 2, 3'000'000, Time()}});
  // The first is sent at half rate in 167.68 us; until 200 us the second stays at half rate.
  const int64_t latency = 2 * kUs + wire_ps(1048, 100 * kG);
  EXPECT_EQ(r[0].delivered.ps(), wire_ps(1000 * 1048, 50 * kG) + latency);
  const int64_t left = 3000 * 1048 - 200 * kUs / 8 * 50 / 1000;  // bytes at 200 us
  EXPECT_EQ(r[1].delivered.ps(), 200 * kUs + wire_ps(left, 100 * kG) + latency);
  // Flows that begin do not wait.
  FlowFabric late(t, c, config);
  const auto l = run(late, {{0, 2, 1'000'000, Time()}, {1, 2, 1'000'000, Time::us(10)}});
  FlowFabric exact(t, c, {});
  const auto e = run(exact, {{0, 2, 1'000'000, Time()}, {1, 2, 1'000'000, Time::us(10)}});
  EXPECT_EQ(l[0].delivered, e[0].delivered);
}

TEST(FlowFabric, WholeNanosecondsMakeALinkFasterAsInThePacketEngine) {
  // 1048 bytes take 83 ns instead of 83.84.
  const Topology t = star(3);
  const PacketConfig c = hpcc_sizes().set("transport.time_resolution", "1ns").make();
  const std::vector<Flow> flows = {{0, 2, 5'000'000, Time()}, {1, 2, 5'000'000, Time()}};
  const auto packet = run(*engine("packet", t, c), flows);
  const auto flow = run(*engine("flow", t, c), flows);
  const double last = static_cast<double>(std::max(packet[0].delivered, packet[1].delivered).ps());
  EXPECT_NEAR(static_cast<double>(flow[0].delivered.ps()) / last, 1, 2e-4);
}

TEST(FlowFabric, DescribesWhatIsOutstanding) {
  const Topology t = star(2);
  FlowFabric fabric(t, hpcc_sizes().make(), {});
  EXPECT_EQ(fabric.describe_stall(), "nothing is outstanding");
  start(fabric, {0, 1, 1000, Time::us(1)});
  test::expect_contains(fabric.describe_stall(), {"rank 0 -> rank 1", "1000 bytes"});
  EXPECT_EQ(fabric.next_event(), Time::us(1));
  std::vector<Completion> out;
  EXPECT_EQ(fabric.advance(Time::ns(500), out), Time::ns(500));
  EXPECT_TRUE(out.empty());
}

}  // namespace
}  // namespace trainyard
