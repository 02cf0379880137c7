// SPDX-License-Identifier: MIT
// What the three ways of loss recovery repeat, and that none of them can hang. Unless a test says
// otherwise: hosts on one switch, 100 Gbit/s, 1 us per link, 1000 B payload, 48 B header, 60 B ACK.
#include <algorithm>
#include <cmath>

#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

using namespace test;
using Kind = FabricChange::Kind;

constexpr uint64_t kAlways = uint64_t{1} << 32;
// 1048 B and 60 B at 100 Gbit/s, in ps.
constexpr int64_t kT = 83'840;
constexpr int64_t kA = 4'800;
constexpr int64_t kDelay = 1'000'000;

/// When data packet `i` (from 0) of a lone flow from time 0 comes to the end of link `hop`.
int64_t data_arrival(int64_t i, int hop) {
  return (i + hop + 1) * kT + (hop + 1) * kDelay;
}

struct Recovered {
  TransferRecord record;
  FabricTotals totals;
};

/// One flow of 1000-byte packets from host 0 to host 1, with what `faults` does to it.
template <class Faults>
Recovered one_flow(const Scenario& scenario, int64_t bytes, Faults faults) {
  const Topology t = star(2);
  PacketFabric fabric(t, scenario.make());
  faults(fabric);
  start(fabric, {0, 1, bytes, {}, 0});
  drain(fabric);
  return {fabric.transfers()[0], fabric.totals()};
}

Scenario recovery(const std::string& kind) {
  return hpcc_sizes()
      .set("transport.loss_recovery", kind)
      .set("transport.retransmit_timeout", "100us")
      .set("transport.retry_limit", "100");
}

// --- what is repeated after one loss ----------------------------------------------------------

// Packet 50 of 1000 is lost on the first link. Selective repeat sends it again when packet 50 + W
// has been acknowledged, and nothing else: 1001 packets.
TEST(Recovery, SelectiveRepeatRepeatsExactlyOnePacket) {
  for (const char* window : {"1", "3", "32"}) {
    for (const uint32_t link : {0U, 1U}) {
      const Recovered r =
          one_flow(recovery("selective-repeat").set("transport.reorder_window", window), 1'000'000,
                   [&](PacketFabric& f) {
                     const int64_t at = data_arrival(50, static_cast<int>(link));
                     lose(f, link, at, at, FabricChange::data);
                   });
      EXPECT_EQ(r.totals.drops, 1U);
      EXPECT_EQ(r.record.retransmitted, 1U);
      EXPECT_EQ(r.totals.data_packets, 1'001U);
      EXPECT_EQ(r.totals.timeouts, 0U);
      EXPECT_EQ(r.totals.nacks, 0U);
      // All that came between the loss and the repeat came early: one round trip, W packets.
      const int64_t round = 2 * kT + 2 * kA + 4 * kDelay;
      const auto early = static_cast<double>(r.totals.out_of_order);
      EXPECT_NEAR(early, static_cast<double>(round / kT + std::stoi(window)), 3.0);
    }
  }
}

// Go-back-N repeats what was sent in the round trip from the lost packet to its NACK: packet 51
// arrives, out of order, kT after 50 would have; its NACK is back after two more links. By then
// the sender has begun packet n = floor(t / kT), counting from 0.
TEST(Recovery, GoBackNRepeatsARoundTrip) {
  const Recovered r = one_flow(recovery("go-back-n"), 1'000'000, [&](PacketFabric& f) {
    lose(f, 0, data_arrival(50, 0), data_arrival(50, 0), FabricChange::data);
  });
  const int64_t nack = data_arrival(51, 1) + 2 * (kA + kDelay);
  const int64_t sent = nack / kT + 1;  // packets 0 .. sent - 1
  EXPECT_EQ(r.record.retransmitted, static_cast<uint64_t>(sent - 50));
  EXPECT_EQ(r.totals.nacks, 1U);
  EXPECT_EQ(r.totals.timeouts, 0U);
}

// Go-back-0 repeats all of it.
TEST(Recovery, GoBack0RepeatsFromTheBeginning) {
  const Recovered r = one_flow(recovery("go-back-0"), 1'000'000, [&](PacketFabric& f) {
    lose(f, 0, data_arrival(50, 0), data_arrival(50, 0), FabricChange::data);
  });
  const int64_t sent = (data_arrival(51, 1) + 2 * (kA + kDelay)) / kT + 1;
  EXPECT_EQ(r.record.retransmitted, static_cast<uint64_t>(sent));
  EXPECT_EQ(r.totals.payload_bytes, 1'000'000);
}

// Of three messages of one queue pair go-back-0 repeats the one that lost a packet.
TEST(Recovery, GoBack0BeginsWithItsMessage) {
  const Topology t = star(2);
  PacketFabric fabric(t, recovery("go-back-0").make());
  lose(fabric, 0, data_arrival(14, 0), data_arrival(14, 0), FabricChange::data);
  for (int i = 0; i < 3; ++i) start(fabric, {0, 1, 10'000, {}, 0});
  drain(fabric);
  // Packets 10 to 29 were all out before the NACK of packet 15 was back.
  EXPECT_EQ(fabric.totals().retransmitted, 20U);
  EXPECT_EQ(fabric.transfers()[0].retransmitted, 0U);
  EXPECT_EQ(fabric.transfers()[1].retransmitted, 10U);
  EXPECT_EQ(fabric.transfers()[2].retransmitted, 10U);
}

// --- last packets -----------------------------------------------------------------------------

// The last packet, or the last ACK, is lost: nothing comes after it, so only the timer helps, and
// exactly once. (Selective repeat and go-back-N repeat one packet; go-back-0 the message.)
TEST(Recovery, LastPacketAndLastAckCostOneTimeout) {
  for (const char* kind : {"go-back-n", "go-back-0", "selective-repeat"}) {
    for (const bool ack : {false, true}) {
      const Recovered r = one_flow(recovery(kind), 20'000, [&](PacketFabric& f) {
        const int64_t data = data_arrival(19, 1);
        const int64_t at = ack ? data + kA + kDelay : data;
        lose(f, 1, at, at, ack ? FabricChange::acks : FabricChange::data);
      });
      SCOPED_TRACE(std::string(kind) + (ack ? " ack" : " data"));
      EXPECT_EQ(r.totals.drops, 1U);
      EXPECT_EQ(r.totals.timeouts, 1U);
      // Go-back-0 begins anew at the first byte of the message; the last ACK lost makes no gap.
      const uint64_t repeated = std::string(kind) == "go-back-0" ? 20 : 1;
      EXPECT_EQ(r.record.retransmitted, repeated);
      // The last progress was the ACK before the lost one; then 100 us; then a round trip.
      const int64_t timer = data_arrival(18, 1) + 2 * (kA + kDelay) + Time::us(100).ps();
      const int64_t trip = 2 * kT + 2 * kA + 4 * kDelay;
      // A receiver that has it all says so to the first repeat.
      const int64_t packets = ack ? 0 : static_cast<int64_t>(repeated) - 1;
      EXPECT_EQ(r.record.acknowledged.ps(), timer + packets * kT + trip);
    }
  }
}

// --- loss of everything, and of every kind for a while -----------------------------------------

TEST(Recovery, AnyLossRateOnAnyLink) {
  for (const char* kind : {"go-back-n", "selective-repeat"}) {
    for (const double loss : {1e-5, 1e-3, 1e-2}) {
      for (uint32_t link = 0; link < 3; ++link) {
        const Topology t = star(3);
        PacketFabric fabric(t, recovery(kind).make());
        fabric.schedule(
            change(Kind::link_loss, link, 0, static_cast<uint64_t>(std::ldexp(loss, 32))));
        start(fabric, {0, 2, 3'000'000, {}, 0});
        start(fabric, {1, 2, 3'000'000, {}, 0});
        drain(fabric);
        if (loss == 1e-2) {
          EXPECT_GT(fabric.totals().drops, 10U);
        }
      }
    }
  }
}

// Whatever kind of packet is lost, on either link, for 400 us in the middle of an incast with
// marks, CNPs and pauses: all of it completes. Pauses in quanta repair themselves.
TEST(Recovery, EveryKindLostForAWhile) {
  const std::vector<std::pair<const char*, uint8_t>> kinds = {
      {"data", FabricChange::data},     {"acks", FabricChange::acks},
      {"nacks", FabricChange::nacks},   {"cnps", FabricChange::cnps},
      {"pauses", FabricChange::pauses}, {"resumes", FabricChange::resumes}};
  for (const char* recover : {"go-back-n", "go-back-0", "selective-repeat"}) {
    for (const auto& [name, kind] : kinds) {
      for (const uint32_t link : {0U, 4U}) {
        SCOPED_TRACE(std::string(recover) + " " + name + " " + std::to_string(link));
        const Topology t = star(5);
        Scenario scenario = recovery(recover)
                                .set("congestion", "dcqcn")
                                .set("cc.order", "paper")
                                .set("ecn.kmin", "5KB")
                                .set("ecn.kmax", "50KB")
                                .set("pfc.mode", "static")
                                .set("pfc.xoff", "20KB")
                                .set("pfc.pause", "quanta")
                                .set("pfc.pause_quanta", "4000");
        // A lost pause costs headroom.
        if (kind == FabricChange::pauses) scenario.set("pfc.headroom", "1MB");
        PacketFabric fabric(t, scenario.make());
        if (kind == FabricChange::nacks) lose(fabric, link, 50'000'000, 51'000'000, 1);
        lose(fabric, link, 52'000'000, 452'000'000, kind);
        for (uint32_t s = 0; s < 4; ++s) {
          for (uint32_t i = 0; i < 20; ++i) start(fabric, {s, 4, 30'000, {}, 0});
        }
        std::vector<Completion> out;
        while (fabric.next_event() != Time::infinity()) {
          fabric.advance(Time::infinity(), out);
          ASSERT_LT(fabric.totals().events, 5'000'000U) << fabric.describe_stall();
        }
        EXPECT_EQ(fabric.outstanding(), 0U) << fabric.describe_stall();
        fabric.check_conservation();
        EXPECT_EQ(fabric.totals().payload_bytes, 2'400'000);
      }
    }
  }
}

// --- go-back-0 against go-back-N --------------------------------------------------------------

// B: F26, V55 (S17): a message survives go-back-0 only if no packet of it is lost: (1-p)^packets.
// Messages of n packets, each alone in its queue pair; loss p on the first link only, none for
// ACKs. The number of tries of a message is geometric; its mean over 400 messages is 1 / success.
TEST(Recovery, GoBack0SucceedsWithProbabilityOfNoLoss) {
  const Topology t = star(2);
  for (const auto& [packets, loss] :
       std::vector<std::pair<int64_t, double>>{{10, 0.01}, {20, 0.03}, {50, 0.01}}) {
    constexpr int kMessages = 2'000;
    PacketFabric fabric(t, recovery("go-back-0").set("transport.nack_interval", "0ns").make());
    FabricChange on = change(Kind::link_loss, 0, 0, static_cast<uint64_t>(std::ldexp(loss, 32)));
    on.kinds = FabricChange::data;
    fabric.schedule(on);
    for (int i = 0; i < kMessages; ++i) {
      start(fabric, {0, 1, packets * 1'000, Time::us(200) * i, static_cast<uint32_t>(i)});
    }
    drain(fabric);
    int first_time = 0;
    for (const auto& r : fabric.transfers()) first_time += r.retransmitted == 0 ? 1 : 0;
    const double success = std::pow(1 - loss, static_cast<double>(packets));
    const double deviation = std::sqrt(kMessages * success * (1 - success));
    EXPECT_NEAR(first_time, kMessages * success, 4 * deviation) << packets << " " << loss;
  }
}

// B: V55: 4 MB messages at 0.4 % loss. With 1000 B packets go-back-0 never gets one through
// (0.996^4000 = 1e-7); go-back-N loses what each loss repeats, a round trip of about 50 packets.
TEST(Recovery, GoBack0LivelocksWhereGoBackNDoesNot) {
  const Topology t = star(2);
  int64_t delivered[2] = {};
  for (const bool zero : {false, true}) {
    PacketFabric fabric(
        t, recovery(zero ? "go-back-0" : "go-back-n").set("transport.nack_interval", "0ns").make());
    fabric.schedule(change(Kind::link_loss, 0, 0, static_cast<uint64_t>(std::ldexp(0.004, 32))));
    for (int i = 0; i < 20; ++i) start(fabric, {0, 1, 4'000'000, {}, 0});
    std::vector<Completion> out;
    for (int i = 0; i < 40 && fabric.next_event() <= Time::ms(4); ++i) {
      fabric.advance(Time::ms(4), out);
    }
    for (const auto& c : out) {
      if (c.what == Completion::What::delivered) delivered[zero ? 1 : 0] += 4'000'000;
    }
    fabric.check_conservation();
  }
  EXPECT_EQ(delivered[1], 0);
  // Each loss wastes about 50 packets: goodput 1 / (1 + 0.004 x 50) of 47.7 MB in 4 ms.
  EXPECT_GE(delivered[0], 28'000'000);
  EXPECT_LE(delivered[0], 44'000'000);
}

// --- selective repeat -------------------------------------------------------------------------

// Spraying over paths of unequal queues reorders; a window beyond the spread repeats nothing, a
// window of one does.
TEST(Recovery, SprayWithoutLossRepeatsNothing) {
  const Topology t = two_tiers(2, 4, 4);
  for (const char* choice : {"random", "round-robin"}) {
    for (const char* window : {"1000", "1"}) {
      Scenario scenario = recovery("selective-repeat")
                              .set("balancing", "spray")
                              .set("ecmp.choice", choice)
                              .set("transport.reorder_window", window);
      std::vector<Flow> flows;
      for (uint32_t s = 0; s < 4; ++s) flows.push_back({s, 4 + s, 2'000'000, {}, 0});
      const Outcome o = run(t, scenario.make(), flows);
      EXPECT_EQ(o.totals.drops, 0U);
      EXPECT_EQ(o.totals.timeouts, 0U);
      if (std::string(window) == "1000") {
        EXPECT_EQ(o.totals.retransmitted, 0U);
        EXPECT_EQ(o.totals.data_packets, 8'000U);
        EXPECT_GT(o.totals.out_of_order, 0U);
      } else if (std::string(choice) == "random") {
        EXPECT_GT(o.totals.retransmitted, 0U);
      }
    }
  }
}

// A repeat that is lost too has nobody to report it: the timer sends all that is not known to have
// arrived, which is that one packet.
TEST(Recovery, ALostRepeatWaitsForTheTimer) {
  const Recovered r =
      one_flow(recovery("selective-repeat").set("transport.reorder_window", "3"), 400'000,
               [&](PacketFabric& f) {
                 lose(f, 0, data_arrival(50, 0), data_arrival(50, 0), FabricChange::data);
                 // Packet 53's ACK is back here; the repeat goes out with the next packet.
                 const int64_t back = data_arrival(53, 1) + 2 * (kA + kDelay);
                 const int64_t sent = (back + kT - 1) / kT * kT;
                 lose(f, 0, sent + kT + kDelay, sent + kT + kDelay, FabricChange::data);
               });
  EXPECT_EQ(r.totals.drops, 2U);
  EXPECT_EQ(r.totals.timeouts, 1U);
  EXPECT_EQ(r.record.retransmitted, 2U);
  EXPECT_EQ(r.totals.data_packets, 402U);
}

// Messages of any size over one persistent queue pair, each with a short last packet, with loss.
TEST(Recovery, MessageBoundariesOffThePayload) {
  for (const char* kind : {"go-back-n", "go-back-0", "selective-repeat"}) {
    const Topology t = star(2);
    PacketFabric fabric(t, recovery(kind).make());
    fabric.schedule(change(Kind::link_loss, 1, 0, kAlways / 200));
    int64_t bytes = 0;
    int64_t packets = 0;
    for (int64_t i = 1; i <= 600; ++i) {
      const int64_t size = 1 + i * i * 37 % 9'999;
      start(fabric, {0, 1, size, Time::us(1) * i, 0});
      bytes += size;
      packets += (size + 999) / 1'000;
    }
    drain(fabric);
    EXPECT_EQ(fabric.totals().payload_bytes, bytes);
    uint64_t arrived = 0;
    for (const auto& r : fabric.transfers()) arrived += r.packets;
    if (std::string(kind) != "go-back-0") {
      EXPECT_EQ(arrived, static_cast<uint64_t>(packets));
    }
    EXPECT_GT(fabric.totals().drops, 5U);
    EXPECT_EQ(fabric.totals().data_packets,
              static_cast<uint64_t>(packets) + fabric.totals().retransmitted);
  }
}

// The window of selective repeat bounds what is in flight, whatever the controller allows: 64
// packets per round trip.
TEST(Recovery, SelectiveWindowBoundsTheFlight) {
  for (const char* cc : {"none", "hpcc", "dctcp", "timely"}) {
    const Topology t = star(2, Rate::gbps(400), Time::us(20));
    Scenario scenario = recovery("selective-repeat")
                            .set("congestion", cc)
                            .set("transport.selective_window", "64")
                            .set("transport.retransmit_timeout", "10ms");
    const Outcome o = run(t, scenario.make(), {{0, 1, 6'400'000, {}, 0}});
    // 100 rounds of 80 us and a little.
    EXPECT_GT(o.records[0].acknowledged, Time::ms(8)) << cc;
    EXPECT_LT(o.records[0].acknowledged, Time::us(8'400)) << cc;
    EXPECT_EQ(o.totals.retransmitted, 0U);
  }
}

// --- every n-th packet --------------------------------------------------------------------------

// Of 1000 data packets the 100th on the wire is lost, the 200th, ...: repeats count, too. The other
// direction counts ACKs on its own, and an end of the fault is an end.
TEST(Recovery, EveryNthPacketOfAKindIsLost) {
  for (const uint8_t kinds : {FabricChange::data, FabricChange::acks}) {
    const Topology t = star(2);
    PacketFabric fabric(t, hpcc_sizes()
                               .set("transport.nack_interval", "1us")
                               .set("transport.retransmit_timeout", "200us")
                               .make());
    FabricChange on = change(Kind::link_drops, 0, 0, 100);
    on.kinds = kinds;
    fabric.schedule(on);
    on = change(Kind::link_drops, 0, 500 * kDelay, 0);
    on.kinds = kinds;
    fabric.schedule(on);
    start(fabric, {0, 1, 1'000'000, {}, 0});
    start(fabric, {0, 1, 1'000'000, Time::us(600), 0});
    drain(fabric);
    const Outcome o = outcome_of(fabric);
    const auto& data = link_between(o, "host0", "leaf0");
    const auto& acks = link_between(o, "leaf0", "host0");
    if (kinds == FabricChange::data) {
      EXPECT_EQ(acks.drops, 0U);
      EXPECT_EQ(data.drops, (data.packets - 1'000) / 100);
      EXPECT_GE(data.drops, 10U);
      EXPECT_GE(o.totals.retransmitted, data.drops);
    } else {
      // A later ACK says the same: nothing is repeated.
      EXPECT_EQ(data.drops, 0U);
      EXPECT_EQ(acks.drops, 10U);
      EXPECT_LE(o.totals.retransmitted, 1U);
    }
  }
}

}  // namespace
}  // namespace trainyard
