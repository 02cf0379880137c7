// SPDX-License-Identifier: MIT
// Data classes at a NIC: host 0 of a star sends to hosts of their own, so that its NIC is the only
// place where flows meet. 100 Gbit/s, 1 us per link, packets of 1000 B without header = 80 ns; a
// quarter of the line is a packet per 320 ns.
#include <numeric>

#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

using namespace test;

constexpr int64_t kUs = 1'000'000;
constexpr int64_t kT = 80'000;
constexpr int64_t kAlone = 2 * (kUs + kT);  // of the first packet

PacketConfig classes(uint32_t n, const std::string& scheduler, const std::string& weights = "1",
                     const Settings& more = {}) {
  Scenario s = bare({{"ecn.mark_at", "off"},
                     {"switch.classes", std::to_string(n)},
                     {"switch.scheduler", scheduler},
                     {"switch.weights", weights}});
  for (const auto& [name, text] : more) s.set(name, text);
  return s.make();
}

struct Sent {
  uint8_t traffic_class = 0;
  int64_t bytes = 0;
  Time start{};
  uint32_t channel = 0;
  uint32_t dst = 0;  // 0: a host of its own
};

void start_all(PacketFabric& fabric, const std::vector<Sent>& flows) {
  for (size_t i = 0; i < flows.size(); ++i) {
    Transfer t;
    t.src = 0;
    t.dst = flows[i].dst != 0 ? flows[i].dst : static_cast<uint32_t>(i + 1);
    t.size = Bytes(flows[i].bytes);
    t.channel = flows[i].channel;
    t.traffic_class = flows[i].traffic_class;
    fabric.start(t, flows[i].start);
  }
}

/// Packets of each flow that arrive in so many packet times from 50 us on; all last longer.
std::vector<int64_t> shares(const PacketConfig& config, const std::vector<Sent>& flows,
                            int64_t packets) {
  const Topology t = star(static_cast<uint32_t>(flows.size()) + 1);
  PacketFabric fabric(t, config);
  start_all(fabric, flows);
  std::vector<Completion> out;
  fabric.advance(Time::us(50), out);
  const auto before = fabric.transfers();
  fabric.advance(Time::us(50) + Time::ps(packets * kT), out);
  const auto after = fabric.transfers();
  EXPECT_TRUE(out.empty());
  std::vector<int64_t> counts;
  for (size_t i = 0; i < flows.size(); ++i) {
    counts.push_back(static_cast<int64_t>(after[i].packets - before[i].packets));
  }
  // The line is never idle.
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), packets);
  drain(fabric);
  return counts;
}

// The low class, issued first, gets a packet away; then it waits until the high one is through.
TEST(NicClasses, TheHighClassGoesFirst) {
  const Topology t = star(3);
  PacketFabric fabric(t, classes(2, "strict"));
  start_all(fabric, {{1, 1'000'000}, {0, 1'000'000}});
  drain(fabric);
  const auto& flows = fabric.transfers();
  EXPECT_EQ(flows[1].delivered.ps(), kAlone + 1'000 * kT);
  EXPECT_EQ(flows[0].delivered.ps(), kAlone + 1'999 * kT);
}

// What comes later in a higher class goes ahead at the next packet.
TEST(NicClasses, AHigherClassCutsIn) {
  const Topology t = star(4);
  PacketFabric fabric(t, classes(3, "strict"));
  const Time second = Time::ps(10 * kT + kT / 2);
  const Time third = Time::ps(20 * kT + kT / 2);
  start_all(fabric, {{2, 100'000}, {1, 50'000, second}, {0, 5'000, third}});
  drain(fabric);
  const auto& flows = fabric.transfers();
  EXPECT_EQ(flows[2].delivered.ps(), kAlone + 25 * kT);
  EXPECT_EQ(flows[1].delivered.ps(), kAlone + (11 + 50 + 5 - 1) * kT);
  EXPECT_EQ(flows[0].delivered.ps(), kAlone + 154 * kT);
}

TEST(NicClasses, TheLowClassStarves) {
  using Counts = std::vector<int64_t>;
  const std::vector<Sent> flows = {{1, 4'000'000}, {0, 4'000'000}, {0, 4'000'000}};
  EXPECT_EQ(shares(classes(2, "strict"), flows, 1000), Counts({0, 500, 500}));
}

TEST(NicClasses, DwrrSharesByWeightToThePacket) {
  using Counts = std::vector<int64_t>;
  const std::vector<Sent> two = {{0, 4'000'000}, {1, 4'000'000}};
  const std::vector<Sent> three = {{2, 4'000'000}, {0, 4'000'000}, {1, 4'000'000}};
  for (const int64_t rounds : {1, 10, 200}) {
    EXPECT_EQ(shares(classes(2, "dwrr", "3:1"), two, 4 * rounds), Counts({3 * rounds, rounds}));
    EXPECT_EQ(shares(classes(2, "dwrr", "1:4"), two, 5 * rounds), Counts({rounds, 4 * rounds}));
    EXPECT_EQ(shares(classes(2, "dwrr", "1:1"), two, 2 * rounds), Counts({rounds, rounds}));
    EXPECT_EQ(shares(classes(3, "dwrr", "3:1:2"), three, 6 * rounds),
              Counts({2 * rounds, 3 * rounds, rounds}));
  }
}

// Weights are of classes, however many queue pairs they have: 2 and 3 of them share 3 / 4 and 1 / 4
// of 1200 packets. In turn over all five, each would have 240. Ranks of the classes are mixed.
TEST(NicClasses, QueuePairsOfAClassTakeTurns) {
  using Counts = std::vector<int64_t>;
  const std::vector<Sent> flows = {
      {1, 4'000'000}, {0, 4'000'000}, {1, 4'000'000}, {0, 4'000'000}, {1, 4'000'000}};
  EXPECT_EQ(shares(classes(2, "dwrr", "3:1"), flows, 1200), Counts({100, 450, 100, 450, 100}));
  EXPECT_EQ(shares(classes(2, "strict"), flows, 1200), Counts({0, 600, 0, 600, 0}));
  EXPECT_EQ(shares(classes(1, "strict"), flows, 1200), Counts({240, 240, 240, 240, 240}));
}

// As many as are kept by send time.
TEST(NicClasses, ManyQueuePairs) {
  std::vector<Sent> flows;
  for (uint32_t i = 0; i < 200; ++i) {
    flows.push_back({static_cast<uint8_t>(i % 5 < 2 ? 0 : 1), 400'000});
  }
  const std::vector<int64_t> dwrr = shares(classes(2, "dwrr", "3:1"), flows, 4800);
  const std::vector<int64_t> strict = shares(classes(2, "strict"), flows, 4800);
  for (uint32_t i = 0; i < 200; ++i) {
    const bool high = flows[i].traffic_class == 0;
    EXPECT_NEAR(static_cast<double>(dwrr[i]), high ? 3600 / 80 : 1200 / 120, 1) << i;
    EXPECT_NEAR(static_cast<double>(strict[i]), high ? 4800 / 80 : 0, 1) << i;
  }
}

// Bytes count, not packets: one class sends messages of 250 B, four packets for one of the other.
TEST(NicClasses, DwrrCountsBytes) {
  const Topology t = star(3);
  PacketFabric fabric(t, classes(2, "dwrr", "1:1"));
  std::vector<Sent> flows = {{1, 4'000'000, {}, 0, 1}};
  for (int i = 0; i < 8000; ++i) flows.push_back({0, 250, {}, 0, 2});
  start_all(fabric, flows);
  std::vector<Completion> out;
  while (fabric.advance(Time::us(150), out) < Time::us(150)) {
  }
  int64_t small = 0;
  for (const auto& r : fabric.transfers()) {
    if (r.bytes == 250 && r.delivered > Time()) small += 250;
  }
  const auto large = static_cast<int64_t>(fabric.transfers()[0].packets) * 1000;
  EXPECT_GT(large, 500'000);
  EXPECT_NEAR(static_cast<double>(small) / static_cast<double>(large), 1, 0.02);
  drain(fabric);
}

// A window of 26 packets per 4.17 us is half the line. The high class has it, and what the windows
// of the low one could fill twice gets the rest.
TEST(NicClasses, WindowsHoldTheHighClassBack) {
  const std::vector<Sent> flows = {{1, 8'000'000}, {0, 2'000'000}, {1, 8'000'000}};
  const Topology t = star(4);
  PacketFabric fabric(t, classes(2, "strict", "1", {{"transport.window", "26000B"}}));
  start_all(fabric, flows);
  std::vector<Completion> out;
  fabric.advance(Time::us(50), out);
  const auto before = fabric.transfers();
  fabric.advance(Time::us(50) + Time::ps(1000 * kT), out);
  const auto after = fabric.transfers();
  std::vector<double> share;
  for (size_t i = 0; i < 3; ++i) {
    share.push_back(static_cast<double>(after[i].packets - before[i].packets) / 1000);
  }
  EXPECT_NEAR(share[1], 26 * 0.08 / 4.17, 0.02);
  EXPECT_NEAR(share[0] + share[1] + share[2], 1, 0.01);
  EXPECT_NEAR(share[0], share[2], 0.02);
  drain(fabric);
}

// The receiver of the high class pauses it: the low one has the line until the resume.
TEST(NicClasses, APausedClassIsSkipped) {
  for (const char* scheduler : {"strict", "dwrr"}) {
    const Topology t = star(3);
    PacketFabric fabric(t, classes(2, scheduler, "1",
                                   {{"pfc.mode", "static"},
                                    {"pfc.xoff", "20KB"},
                                    {"transport.retransmit_timeout", "10ms"}}));
    // The port to host 2 stands still from the start to 200 us.
    fabric.schedule(change(FabricChange::Kind::storm_on, 2, 0));
    FabricChange off = change(FabricChange::Kind::storm_off, 2, 200 * kUs);
    fabric.schedule(off);
    start_all(fabric, {{1, 1'000'000}, {0, 1'000'000}});
    drain(fabric);
    const auto& flows = fabric.transfers();
    // What the switch took in of the other class until its pause arrived, about 20 packets and a
    // round trip, is all that went ahead.
    EXPECT_LT(flows[0].delivered.ps(), kAlone + 1'080 * kT) << scheduler;
    EXPECT_GT(flows[1].delivered.ps(), 200 * kUs) << scheduler;
    // After the resume the port waits once more until the NIC's own has come: 2 us at most.
    EXPECT_LT(flows[1].delivered.ps(), 202 * kUs + kAlone + 1'000 * kT) << scheduler;
  }
}

// With one class scheduler and weights mean nothing.
TEST(NicClasses, OneClassHasOneTurn) {
  const std::vector<Flow> flows = {
      {0, 1, 300'000, {}, 0}, {0, 2, 200'000, {}, 0}, {0, 2, 100'000, {}, 1}};
  const Topology t = star(3);
  expect_same(run(t, classes(1, "strict"), flows), run(t, classes(1, "dwrr", "5:1"), flows));
}

}  // namespace
}  // namespace trainyard
