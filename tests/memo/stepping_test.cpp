// SPDX-License-Identifier: MIT
// Controller-event stepping against the packet engine.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "memo/stepping/hazard.h"
#include "memo/stepping/stepped_fabric.h"
#include "network/engine.h"
#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

using test::Flow;
using test::hpcc_sizes;
using test::star;
using test::two_tiers;

struct Ran {
  std::vector<TransferRecord> records;
  std::vector<Completion> completions;
  std::vector<RateEvent> rates;
  FabricTotals totals;
  uint64_t fingerprint = 0;
  std::string declined;
};

template <class Engine>
Ran run(const Topology& topology, const PacketConfig& config, const std::vector<Flow>& flows) {
  Engine fabric(topology, config);
  Ran r;
  fabric.record_rates(&r.rates);
  for (const Flow& f : flows) {
    Transfer t;
    t.src = f.src;
    t.dst = f.dst;
    t.size = Bytes(f.bytes);
    t.channel = f.channel;
    fabric.start(t, f.start);
  }
  while (fabric.next_event() != Time::infinity()) fabric.advance(Time::infinity(), r.completions);
  EXPECT_EQ(fabric.outstanding(), 0U) << fabric.describe_stall();
  fabric.check_conservation();
  r.records = fabric.transfers();
  r.totals = fabric.totals();
  r.fingerprint = fabric.fingerprint();
  if constexpr (std::is_same_v<Engine, SteppedFabric>) r.declined = fabric.declined();
  return r;
}

double mean_us(const Ran& r) {
  double sum = 0;
  for (const auto& t : r.records) sum += (t.acknowledged - t.start).micros();
  return sum / static_cast<double>(r.records.size());
}

std::vector<Flow> incast(uint32_t n, int64_t bytes) {
  std::vector<Flow> flows;
  for (uint32_t i = 0; i < n; ++i) flows.push_back({i, n, bytes, {}, 0});
  return flows;
}

test::Scenario dcqcn() {
  test::Scenario s = hpcc_sizes();
  s.set("congestion", "dcqcn").set("ecn.kmin", "400KB").set("ecn.kmax", "1600KB");
  s.set("ecn.pmax", "0.2");
  return s;
}

TEST(Hazard, LogarithmsAreThoseOfTheLibrary) {
  for (const uint64_t x : {uint64_t{1}, uint64_t{3}, uint64_t{1} << 20, uint64_t{1} << 63,
                           uint64_t{0x0123456789abcdef}, ~uint64_t{0}}) {
    const double expected = -(std::log(static_cast<double>(x)) - 64 * std::log(2.0));
    EXPECT_NEAR(static_cast<double>(minus_ln_q32(x)) / 4294967296.0, expected, 1e-8) << x;
  }
  for (const double p : {0.0, 1e-6, 0.001, 0.2, 0.5, 0.99}) {
    const auto q32 = static_cast<uint64_t>(p * 4294967296.0);
    EXPECT_NEAR(static_cast<double>(hazard_q32(q32)) / 4294967296.0,
                -std::log1p(-static_cast<double>(q32) / 4294967296.0), 1e-7)
        << p;
  }
  EXPECT_EQ(hazard_q32(uint64_t{1} << 32), int64_t{40} << 32);
}

// A message alone takes as long as its packets do, to within one of them.
TEST(Stepped, AnUncontendedMessageTakesAsLongAsItsPackets) {
  const PacketConfig config = dcqcn().make();
  const int64_t packet = transmission_time(Bytes(1048), Rate::gbps(100)).ps();
  for (const Topology& t : {star(3), two_tiers(2, 2, 2), test::fat_tree(4)}) {
    const auto last = static_cast<uint32_t>(t.hosts().size() - 1);
    for (const int64_t bytes : {1, 999, 1000, 1001, 2000, 65'536, 1'000'000, 20'000'000}) {
      const std::vector<Flow> flows = {{0, last, bytes, Time::us(3), 0}};
      const Ran p = run<PacketFabric>(t, config, flows);
      const Ran s = run<SteppedFabric>(t, config, flows);
      EXPECT_LE(std::abs((s.records[0].delivered - p.records[0].delivered).ps()), packet) << bytes;
      EXPECT_LE(std::abs((s.records[0].acknowledged - p.records[0].acknowledged).ps()), packet)
          << bytes;
      EXPECT_EQ(s.records[0].packets, p.records[0].packets);
      EXPECT_EQ(s.totals.transmissions, p.totals.transmissions);
      EXPECT_EQ(s.totals.wire_bytes, p.totals.wire_bytes);
      EXPECT_EQ(s.totals.ecn_marks, 0U);
      EXPECT_TRUE(s.declined.empty()) << s.declined;
    }
  }
}

// Links of falling rate: the second queues nothing, the slow one holds the message back.
TEST(Stepped, MessagesOfOneQueuePairFollowEachOther) {
  const PacketConfig config = dcqcn().make();
  const Topology t = star(3);
  const std::vector<Flow> flows = {{0, 2, 300'000, {}, 0},
                                   {0, 2, 500, {}, 0},
                                   {0, 2, 1'000'000, Time::us(1), 0},
                                   {0, 2, 70'000, Time::us(400), 0},
                                   {0, 1, 5'000, Time::us(500), 0}};
  const Ran p = run<PacketFabric>(t, config, flows);
  const Ran s = run<SteppedFabric>(t, config, flows);
  for (size_t i = 0; i < flows.size(); ++i) {
    EXPECT_LE(std::abs((s.records[i].delivered - p.records[i].delivered).ps()), 200'000) << i;
    EXPECT_LE(std::abs((s.records[i].acknowledged - p.records[i].acknowledged).ps()), 200'000) << i;
  }
}

// Data in both directions: ACKs take 60 / 1108 of every link.
TEST(Stepped, AcksTakeTheirShareOfARing) {
  const PacketConfig config = dcqcn().make();
  const Topology t = star(4);
  std::vector<Flow> flows;
  for (uint32_t i = 0; i < 4; ++i) flows.push_back({i, (i + 1) % 4, 10'000'000, {}, 0});
  const Ran p = run<PacketFabric>(t, config, flows);
  const Ran s = run<SteppedFabric>(t, config, flows);
  EXPECT_NEAR(mean_us(s) / mean_us(p), 1, 0.003);
  EXPECT_GT(mean_us(s), 10'000'000 * 1.048 * 8e-5 * 1.05);
}

// Messages that have their path to themselves need no queues: a handful of events each, though ACKs
// of others share all their links.
TEST(Stepped, MessagesAloneCostAHandfulOfEvents) {
  const PacketConfig config = dcqcn().make();
  const Topology t = two_tiers(2, 2, 4);
  std::vector<Flow> flows;
  for (uint32_t step = 0; step < 10; ++step) {
    for (uint32_t i = 0; i < 4; ++i) {
      flows.push_back({i, (i + 1) % 4, 2'000'000 + 1000 * i, Time::us(200 * step + 7 * i), 0});
    }
  }
  const Ran p = run<PacketFabric>(t, config, flows);
  const Ran s = run<SteppedFabric>(t, config, flows);
  EXPECT_LE(s.totals.events, 6 * flows.size());
  EXPECT_EQ(s.totals.wire_bytes, p.totals.wire_bytes);
  for (size_t i = 0; i < flows.size(); ++i) {
    const double took = (p.records[i].delivered - p.records[i].start).micros();
    // ACKs that come on one port of the way and then on another are not added up: 0.4 us of 168.
    EXPECT_NEAR((s.records[i].delivered - s.records[i].start).micros() / took, 1, 0.003) << i;
  }
}

// One that is alone becomes one of two when another comes on its way, in the middle of its message
// or while its first bytes are still under way; and is alone again with its next message.
TEST(Stepped, WhoIsAloneSharesWhenAnotherComes) {
  test::Scenario scenario = dcqcn();
  scenario.set("congestion", "none").set("pfc.mode", "off").set("ecn.mark_at", "off");
  const PacketConfig config = scenario.make();
  for (const Topology& t : {star(4), two_tiers(2, 2, 1)}) {
    for (const double at_us : {0.2, 1.5, 3.0, 100.0, 399.0, 850.0}) {
      const Time at = Time::ps(static_cast<int64_t>(at_us * 1e6));
      const std::vector<Flow> flows = {
          {0, 2, 10'000'000, {}, 0}, {1, 2, 3'000'000, at, 0}, {0, 2, 2'000'000, Time::ms(3), 0}};
      const Ran p = run<PacketFabric>(t, config, flows);
      const Ran s = run<SteppedFabric>(t, config, flows);
      for (size_t i = 0; i < flows.size(); ++i) {
        const double took = (p.records[i].delivered - p.records[i].start).micros();
        EXPECT_NEAR((s.records[i].delivered - s.records[i].start).micros() / took, 1, 0.005)
            << i << " with another at " << at_us << " us";
      }
    }
  }
}

// A sender that gets no data has no ACKs to send and fills its line; on the port of its receiver,
// which passes the data on, they make a queue that marks, however alone the messages are.
TEST(Stepped, AcksMakeAQueueThatMarks) {
  const PacketConfig config = dcqcn().make();
  const Topology t = star(3);
  for (const int messages : {1, 40}) {
    std::vector<Flow> flows;
    for (int i = 0; i < messages; ++i) {
      flows.push_back({0, 1, 40'000'000 / messages, {}, 0});
      flows.push_back({1, 2, 40'000'000 / messages, {}, 0});
    }
    const Ran p = run<PacketFabric>(t, config, flows);
    const Ran s = run<SteppedFabric>(t, config, flows);
    EXPECT_GT(p.totals.ecn_marks, 0U);
    EXPECT_GT(s.totals.ecn_marks, 0U) << messages;
    const auto end = [](const Ran& r) {
      Time last;
      for (const auto& record : r.records) last = std::max(last, record.delivered);
      return last.micros();
    };
    EXPECT_NEAR(end(s) / end(p), 1, 0.03) << messages;
  }
}

// Two flows, one bottleneck, no dice: the first decisions of each are those of packets.
TEST(Stepped, TwoFlowsDecideAsTheirPacketsDo) {
  test::Scenario scenario = dcqcn();
  scenario.set("ecn.marking", "dithered");
  const PacketConfig config = scenario.make();
  const Topology t = star(3);
  const std::vector<Flow> flows = {{0, 2, 50'000'000, {}, 0}, {1, 2, 50'000'000, {}, 0}};
  const Ran p = run<PacketFabric>(t, config, flows);
  const Ran s = run<SteppedFabric>(t, config, flows);
  // The first one to be marked, and what that does to it; which of two alternating packets the
  // credit falls on later is no more the same.
  ASSERT_GE(p.rates.size(), 100U);
  ASSERT_GE(s.rates.size(), 100U);
  EXPECT_NEAR(static_cast<double>(s.rates[0].time_ps), static_cast<double>(p.rates[0].time_ps),
              100e3);
  EXPECT_NEAR(static_cast<double>(s.rates[0].rate_bps) / static_cast<double>(p.rates[0].rate_bps),
              1, 0.01);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(s.rates[i].cut, p.rates[i].cut) << i;
    EXPECT_NEAR(static_cast<double>(s.rates[i].time_ps), static_cast<double>(p.rates[i].time_ps),
                10e6)
        << i;
  }
  EXPECT_NEAR(mean_us(s) / mean_us(p), 1, 0.02);
  EXPECT_LT(s.totals.events * 20, p.totals.transmissions);
}

// Random marking: ensembles of seeds agree, on one port and where flows meet on several.
TEST(Stepped, EnsemblesOfSeedsAgreeWithPackets) {
  struct Case {
    Topology topology;
    std::vector<Flow> flows;
    double tolerance;
  };
  std::vector<Case> cases;
  cases.push_back({star(9), incast(8, 2'000'000), 0.05});
  cases.push_back({star(5), incast(4, 10'000'000), 0.05});
  std::vector<Flow> crossing;
  for (uint32_t i = 0; i < 8; ++i) crossing.push_back({i, (3 * i + 5) % 8, 4'000'000, {}, 0});
  crossing.push_back({1, 7, 2'000'000, Time::us(100), 0});
  cases.push_back({two_tiers(4, 2, 1), crossing, 0.05});
  for (const Case& c : cases) {
    double p = 0;
    double s = 0;
    for (int seed = 1; seed <= 12; ++seed) {
      test::Scenario scenario = dcqcn();
      scenario.set("seed", std::to_string(seed));
      const PacketConfig config = scenario.make();
      const Ran stepped = run<SteppedFabric>(c.topology, config, c.flows);
      EXPECT_TRUE(stepped.declined.empty()) << stepped.declined;
      EXPECT_GT(stepped.totals.rate_changes, 0U);
      p += mean_us(run<PacketFabric>(c.topology, config, c.flows));
      s += mean_us(stepped);
    }
    EXPECT_NEAR(s / p, 1, c.tolerance) << c.flows.size() << " flows";
  }
}

/// Two flows each way over one link between two leaves of two hosts: what waits in either direction
/// meets the ACKs of the other.
struct BothWays {
  Topology topology = two_tiers(2, 2, 1, Rate::gbps(400), Time::ns(500));
  std::vector<Flow> flows = {{0, 2, 6'400'000, {}, 0},
                             {1, 3, 6'400'000, {}, 0},
                             {2, 0, 6'400'000, {}, 0},
                             {3, 1, 6'400'000, {}, 0}};
};

PacketConfig both_ways(const std::string& congestion, const std::string& ack_class,
                       const std::string& ack_size, int seed) {
  test::Scenario s({{"transport.payload", "4096B"}, {"transport.header", "96B"}});
  s.set("congestion", congestion).set("ecn.kmin", "1MB").set("ecn.kmax", "4MB");
  s.set("ecn.pmax", "0.2").set("switch.buffer", "64MiB").set("transport.ack_size", ack_size);
  s.set("transport.ack_class", ack_class).set("seed", std::to_string(seed));
  return s.make();
}

// ACKs of the data class come at the rate at which the queue before lets them out.
TEST(Stepped, AcksWaitBehindDataOrGoFirst) {
  const BothWays b;
  for (const std::string ack_class : {"data", "control"}) {
    const PacketConfig config = both_ways("none", ack_class, "256B", 1);
    const Ran p = run<PacketFabric>(b.topology, config, b.flows);
    const Ran s = run<SteppedFabric>(b.topology, config, b.flows);
    EXPECT_TRUE(s.declined.empty()) << s.declined;
    for (size_t i = 0; i < b.flows.size(); ++i) {
      EXPECT_NEAR(s.records[i].delivered.micros() / p.records[i].delivered.micros(), 1, 0.005)
          << ack_class << ", flow " << i;
    }
    EXPECT_NEAR(mean_us(s) / mean_us(p), 1, 0.003) << ack_class;
  }
}

// Where news of marks waits behind data its distance changes as the queue does, and with it how
// many cuts come of it; ACKs of the control class leave less of the line to what is marked.
TEST(Stepped, NewsOfMarksComesAsDenseAsWithPackets) {
  const BothWays b;
  for (const std::string ack_class : {"data", "control"}) {
    double p = 0, s = 0;
    uint64_t p_cuts = 0, s_cuts = 0;
    const auto cuts = [](const Ran& r) {
      return static_cast<uint64_t>(
          std::count_if(r.rates.begin(), r.rates.end(), [](const RateEvent& e) { return e.cut; }));
    };
    for (int seed = 1; seed <= 400; ++seed) {
      const PacketConfig config = both_ways("dcqcn", ack_class, "256B", seed);
      const Ran packets = run<PacketFabric>(b.topology, config, b.flows);
      const Ran stepped = run<SteppedFabric>(b.topology, config, b.flows);
      ASSERT_TRUE(stepped.declined.empty()) << stepped.declined;
      p += mean_us(packets);
      s += mean_us(stepped);
      p_cuts += cuts(packets);
      s_cuts += cuts(stepped);
    }
    EXPECT_NEAR(static_cast<double>(s_cuts) / static_cast<double>(p_cuts), 1, 0.04)
        << ack_class << ": " << p_cuts << " and " << s_cuts << " cuts";
    EXPECT_NEAR(s / p, 1, 0.015) << ack_class;
  }
}

// A packet that is due waits for the one that its NIC is sending, and the next is due an interval
// later: what a paced queue pair gets beside one at line rate is less than its rate.
TEST(Stepped, QueuePairsTakeTurnsAtTheirNic) {
  const Topology t = star(5, Rate::gbps(400), Time::ns(500));
  const std::vector<Flow> flows = {{0, 3, 60'000'000, {}, 0},
                                   {1, 3, 8'000'000, {}, 0},
                                   {2, 3, 4'000'000, {}, 0},
                                   {0, 4, 60'000'000, {}, 0}};
  double p = 0, s = 0;
  for (int seed = 1; seed <= 400; ++seed) {
    const PacketConfig config = both_ways("dcqcn", "data", "64B", seed);
    const Ran stepped = run<SteppedFabric>(t, config, flows);
    ASSERT_TRUE(stepped.declined.empty()) << stepped.declined;
    p += run<PacketFabric>(t, config, flows).records[3].delivered.micros();
    s += stepped.records[3].delivered.micros();
  }
  EXPECT_NEAR(s / p, 1, 0.02);
}

// Orders that cut at once, CNP packets, a byte counter.
TEST(Stepped, ThePublishedOrderAgreesWithPackets) {
  double p = 0;
  double s = 0;
  for (int seed = 1; seed <= 8; ++seed) {
    test::Scenario scenario = dcqcn();
    scenario.set("cc.order", "paper").set("seed", std::to_string(seed));
    const PacketConfig config = scenario.make();
    ASSERT_TRUE(config.cnp_packets);
    ASSERT_GT(config.dcqcn.byte_counter, 0);
    p += mean_us(run<PacketFabric>(star(5), config, incast(4, 20'000'000)));
    s += mean_us(run<SteppedFabric>(star(5), config, incast(4, 20'000'000)));
  }
  EXPECT_NEAR(s / p, 1, 0.05);
}

TEST(Stepped, WindowsHoldAQueueDown) {
  test::Scenario scenario = dcqcn();
  scenario.set("transport.window", "bdp-longest");
  const PacketConfig config = scenario.make();
  const Ran p = run<PacketFabric>(star(9), config, incast(8, 2'000'000));
  const Ran s = run<SteppedFabric>(star(9), config, incast(8, 2'000'000));
  EXPECT_NEAR(mean_us(s) / mean_us(p), 1, 0.01);
}

// A message over several queue pairs is done when all its parts are.
TEST(Stepped, PartsOfAMessageAreJoined) {
  test::Scenario scenario = dcqcn();
  scenario.set("ecmp.qps", "4");
  const PacketConfig config = scenario.make();
  const std::vector<Flow> flows = {{0, 3, 4'000'000, {}, 0}, {1, 2, 3'500, {}, 0}};
  const Ran p = run<PacketFabric>(two_tiers(2, 2, 2), config, flows);
  const Ran s = run<SteppedFabric>(two_tiers(2, 2, 2), config, flows);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(s.records[i].delivered.micros(), p.records[i].delivered.micros(), 0.5) << i;
    EXPECT_EQ(s.records[i].packets, p.records[i].packets);
  }
  EXPECT_EQ(s.completions.size(), 4U);
}

TEST(Stepped, TheSameSeedGivesTheSameRun) {
  const PacketConfig one = dcqcn().make();
  test::Scenario other = dcqcn();
  other.set("seed", "2");
  const auto flows = incast(8, 2'000'000);
  const Ran a = run<SteppedFabric>(star(9), one, flows);
  const Ran b = run<SteppedFabric>(star(9), one, flows);
  const Ran c = run<SteppedFabric>(star(9), other.make(), flows);
  EXPECT_EQ(a.fingerprint, b.fingerprint);
  EXPECT_EQ(a.totals.events, b.totals.events);
  EXPECT_NE(a.fingerprint, c.fingerprint);
  // Who else is there does not matter to those who share nothing with them.
  std::vector<Flow> more = incast(8, 2'000'000);
  more.push_back({9, 10, 5'000'000, Time::us(7), 0});
  const Ran d = run<SteppedFabric>(star(11), one, more);
  const Ran e = run<SteppedFabric>(star(11), one, flows);
  for (size_t i = 0; i < flows.size(); ++i) {
    EXPECT_EQ(d.records[i].acknowledged, e.records[i].acknowledged) << i;
  }
}

TEST(Stepped, WhatItCannotExpressIsRefusedByName) {
  EXPECT_FALSE(stepping_declines(dcqcn().make()).has_value());
  EXPECT_FALSE(stepping_declines(hpcc_sizes().make()).has_value());
  const std::vector<std::pair<test::Settings, std::string>> cases = {
      {{{"congestion", "hpcc"}}, "acts on every ACK"},
      {{{"congestion", "timely"}}, "acts on every ACK"},
      {{{"transport.loss_recovery", "selective-repeat"}}, "selective"},
      {{{"transport.receive_rate", "50Gbps"}}, "receivers are slower"},
      {{{"switch.classes", "2"}}, "several data classes"},
  };
  for (const auto& [settings, phrase] : cases) {
    test::Scenario scenario = hpcc_sizes();
    for (const auto& [name, text] : settings) scenario.set(name, text);
    const PacketConfig config = scenario.make();
    const auto why = stepping_declines(config);
    ASSERT_TRUE(why.has_value()) << phrase;
    test::expect_contains(*why, {phrase});
    const Topology t = star(2);
    test::expect_contains(test::error_of<UserError>([&] { SteppedFabric f(t, config); }),
                          {"the stepped engine cannot run this because", phrase});
  }
  PacketConfig spray = dcqcn().make();
  spray.paths = PathChoice::spray;
  ASSERT_TRUE(stepping_declines(spray).has_value());
  test::expect_contains(*stepping_declines(spray), {"spraying"});
}

TEST(Stepped, ARunThatWouldPauseSaysSo) {
  test::Scenario scenario = hpcc_sizes();
  scenario.set("switch.buffer", "2MiB");
  const PacketConfig config = scenario.make();
  const Ran p = run<PacketFabric>(star(9), config, incast(8, 2'000'000));
  ASSERT_GT(p.totals.pfc_pauses, 0U);
  const Ran s = run<SteppedFabric>(star(9), config, incast(8, 2'000'000));
  test::expect_contains(s.declined, {"PFC would pause ports of leaf0"});
  // As an engine of a scenario it stops.
  const Topology t = star(9);
  const auto fabric = Registry::instance().factory<EngineFactory>("engine", "stepped")(
      t, config, Params(Registry::instance().get("engine", "stepped").params));
  for (const Flow& f : incast(8, 2'000'000)) {
    Transfer transfer;
    transfer.src = f.src;
    transfer.dst = f.dst;
    transfer.size = Bytes(f.bytes);
    fabric->start(transfer, Time());
  }
  std::vector<Completion> out;
  test::expect_contains(test::error_of<SimulationError>([&] {
                          while (fabric->outstanding() > 0) fabric->advance(Time::infinity(), out);
                        }),
                        {"does not hold for this run", "PFC would pause", "engine: packet"});
  // Links that lose packets.
  const Ran lossy = run<SteppedFabric>(star(2, Rate::gbps(100), Time::us(1), 0.01), config,
                                       {{0, 1, 1000, {}, 0}});
  test::expect_contains(lossy.declined, {"lose packets"});
}

}  // namespace
}  // namespace trainyard
