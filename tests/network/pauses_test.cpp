// SPDX-License-Identifier: MIT
// Pauses with quanta, watchdogs, storms, provenance, deadlocks, classes. Unless a test says
// otherwise: hosts on one switch, 100 Gbit/s, 1 us per link, packets of 1000 B without header =
// 80 ns, a pause frame of 84 B = 6.72 ns. Link h of a star is host h's; its directed ports are
// 2 h to the switch and 2 h + 1 from it.
#include <algorithm>
#include <cmath>
#include <set>

#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

using namespace test;
using Kind = FabricChange::Kind;

constexpr int64_t kUs = 1'000'000;
constexpr int64_t kFrame = 6'720;  // ps on the wire
constexpr int64_t kT = 80'000;

Scenario unmarked(const Settings& more = {}) {
  Scenario s = bare({{"ecn.mark_at", "off"}});
  for (const auto& [name, text] : more) s.set(name, text);
  return s;
}

std::vector<Flow> incast(uint32_t senders, int64_t bytes) {
  std::vector<Flow> flows;
  for (uint32_t s = 0; s < senders; ++s) flows.push_back({s, senders, bytes, {}, 0});
  return flows;
}

TransferId start_in_class(PacketFabric& fabric, const Flow& f, uint8_t traffic_class) {
  Transfer t;
  t.src = f.src;
  t.dst = f.dst;
  t.size = Bytes(f.bytes);
  t.channel = f.channel;
  t.traffic_class = traffic_class;
  return fabric.start(t, f.start);
}

// --- quanta -----------------------------------------------------------------------------------

// 2000 quanta x 512 bit = 128,000 B = 10.24 us at 100 Gb/s; refreshed every 5.12 us. A NIC pauses
// its idle switch from 10 us on. What the switch's port counts as paused is:
//   resumed after 2 us                     2 us, no refresh
//   the same, resume lost                  one pause, 10.24 us
//   resumed after 8 us, resume lost        refreshed once at 5.12: 15.36 us
//   resumed after 12 us, one refresh lost  12 us: the next one, at 10.24 us, comes as the first
//   ends
TEST(Pauses, QuantaExpireAndRefreshToThePicosecond) {
  struct Row {
    int64_t length, lost_from, paused;
    uint8_t kind;
    uint64_t refreshes;
  };
  for (const Row& row : {Row{2 * kUs, 0, 2 * kUs, 0, 0},
                         Row{2 * kUs, 12 * kUs, 10'240'000, FabricChange::resumes, 0},
                         Row{8 * kUs, 18 * kUs, 15'360'000, FabricChange::resumes, 1},
                         Row{12 * kUs, 15 * kUs, 12 * kUs, FabricChange::pauses, 2}}) {
    const Topology t = star(2);
    PacketFabric fabric(t,
                        unmarked({{"pfc.pause", "quanta"}, {"pfc.pause_quanta", "2000"}}).make());
    std::vector<PauseRecord> pauses;
    fabric.record_pauses(&pauses);
    fabric.schedule(change(Kind::storm_on, 1, 10 * kUs));
    fabric.schedule(change(Kind::storm_off, 1, 10 * kUs + row.length));
    if (row.kind != 0) lose(fabric, 1, row.lost_from + kUs, row.lost_from + 2 * kUs, row.kind);
    drain(fabric);
    const Outcome o = outcome_of(fabric);
    EXPECT_EQ(link_between(o, "leaf0", "host1").paused.ps(), row.paused);
    EXPECT_EQ(o.totals.pfc_refreshes, row.refreshes);
    EXPECT_EQ(o.totals.pfc_frames, 2 + row.refreshes);
    ASSERT_EQ(pauses.size(), 1U);
    EXPECT_EQ(pauses[0].from_ps, 10 * kUs);
    EXPECT_EQ(pauses[0].to_ps, 10 * kUs + row.length);
    EXPECT_EQ(pauses[0].stopped, 3U);
  }
}

// A flow that meets such a pause goes on when it ends, to the picosecond. The pause is there at
// 1.00672 us, before its first packet, which then leaves the switch at 1.00672 + 10.24 us.
TEST(Pauses, AFlowGoesOnWhenTheQuantaEnd) {
  const Topology t = star(2);
  PacketFabric fabric(t, unmarked({{"pfc.pause", "quanta"}, {"pfc.pause_quanta", "2000"}}).make());
  fabric.schedule(change(Kind::storm_on, 1, 0));
  fabric.schedule(change(Kind::storm_off, 1, kUs));
  lose(fabric, 1, 2 * kUs, 3 * kUs, FabricChange::resumes);
  start(fabric, {0, 1, 5'000, {}, 0});
  drain(fabric);
  EXPECT_EQ(fabric.transfers()[0].delivered.ps(), kUs + kFrame + 10'240'000 + 5 * kT + kUs);
}

// A lost resume stops a link for ever, unless pauses expire.
TEST(Pauses, ALostResumeStopsALinkForEverWithoutQuanta) {
  for (const char* pause : {"until-resume", "quanta"}) {
    const Topology t = star(5);
    PacketFabric fabric(t, unmarked({{"pfc.mode", "static"},
                                     {"pfc.xoff", "20KB"},
                                     {"pfc.pause", pause},
                                     {"pfc.pause_quanta", "2000"},
                                     {"transport.retry_limit", "5"}})
                               .make());
    // From before the first resume to long after the last.
    lose(fabric, 0, 0, 10'000 * kUs, FabricChange::resumes);
    for (const Flow& f : incast(4, 500'000)) start(fabric, f);
    if (std::string(pause) == "quanta") {
      drain(fabric);
      EXPECT_GT(fabric.totals().drops + fabric.totals().pfc_refreshes, 0U);
      continue;
    }
    // All that it has sent is acknowledged, so no timer runs: nothing is left to happen.
    std::vector<Completion> out;
    while (fabric.next_event() != Time::infinity()) fabric.advance(Time::infinity(), out);
    EXPECT_EQ(fabric.outstanding(), 1U);
    expect_contains(fabric.describe_stall(), {"rank 0 -> rank 4", "its NIC is paused",
                                              "1 paused links, first host0 -> leaf0"});
    fabric.check_conservation();
  }
}

// --- watchdogs --------------------------------------------------------------------------------

// A storm from 20 us on stops the port at p = 21.00672 us. Its watchdog fires at p + 50 us and
// restores it 30 us later, when the pause still stands, and so on: at p + 50 + 80 k, five times
// until the resume arrives at 411 us; 50 us of pause each.
TEST(Pauses, WatchdogDropsOrForwardsAndRestores) {
  for (const char* action : {"drop", "forward"}) {
    const Topology t = star(3);
    PacketFabric fabric(t, unmarked({{"pfc.watchdog", "50us"},
                                     {"pfc.watchdog_action", action},
                                     {"pfc.watchdog_restore", "30us"},
                                     {"transport.window", "20000B"}})
                               .make());
    fabric.schedule(change(Kind::storm_on, 1, 20 * kUs));
    fabric.schedule(change(Kind::storm_off, 1, 410 * kUs));
    start(fabric, {0, 1, 5'000'000, {}, 0});
    start(fabric, {0, 2, 5'000'000, {}, 0});
    std::vector<Completion> out;
    std::vector<int64_t> bytes;
    for (const int64_t at : {70, 102, 410}) {
      fabric.advance(Time::us(at), out);
      bytes.push_back(link_between(outcome_of(fabric), "leaf0", "host1").data_bytes);
    }
    const FabricTotals mid = fabric.totals();
    drain(fabric);
    const Outcome o = outcome_of(fabric);
    EXPECT_EQ(o.totals.watchdog_events, 5U);
    EXPECT_EQ(link_between(o, "leaf0", "host1").paused.ps(), 250 * kUs);
    if (std::string(action) == "drop") {
      EXPECT_EQ(bytes[1], bytes[0]);
      EXPECT_EQ(bytes[2], bytes[0]);
      EXPECT_GT(mid.drops, 0U);
      EXPECT_GT(o.records[0].retransmitted, 0U);
    } else {
      // 30 us at the window's 20 kB per round trip, or half the line while the other flow runs.
      EXPECT_GT(bytes[1], bytes[0] + 50'000);
      EXPECT_EQ(o.totals.drops, 0U);
    }
    // The other flow from the same NIC has the line to itself.
    EXPECT_LT(o.records[1].delivered, o.records[0].delivered);
  }
}

// B: L12: watchdogs at the NIC (100 ms) and at the switch (200 ms) contain a storm that never ends.
TEST(Pauses, AStormIsContained) {
  for (const bool nic : {true, false}) {
    const Topology t = star(3);
    Scenario scenario = unmarked({{"pfc.watchdog", "200ms"},
                                  {"pfc.watchdog_restore", "1s"},
                                  {"transport.retransmit_timeout", "67.108864ms"},
                                  {"transport.retry_limit", "7"}});
    if (nic) scenario.set("pfc.nic_watchdog", "100ms");
    PacketFabric fabric(t, scenario.make());
    fabric.schedule(change(Kind::storm_on, 1, 20 * kUs));
    start(fabric, {0, 1, 1'000'000, {}, 0});
    start(fabric, {2, 1, 1'000'000, {}, 0});
    start(fabric, {2, 0, 1'000'000, Time::us(500), 0});
    std::vector<Completion> out;
    fabric.advance(Time::ms(90), out);
    while (fabric.next_event() <= Time::ms(90)) fabric.advance(Time::ms(90), out);
    const auto paused = [&] { return link_between(outcome_of(fabric), "leaf0", "host1").paused; };
    EXPECT_EQ(paused(), Time::ms(90) - Time::us(20) - Time::ps(kUs + kFrame));
    EXPECT_EQ(fabric.totals().watchdog_events, 0U);
    while (fabric.next_event() <= Time::ms(300)) fabric.advance(Time::ms(300), out);
    EXPECT_EQ(paused(), nic ? Time::ms(100) : Time::ms(200));
    EXPECT_EQ(fabric.totals().watchdog_events, 1U);
    if (nic) {
      drain(fabric);
    } else {
      // The switch throws away what is for the broken NIC; others are not held up.
      EXPECT_GT(fabric.totals().drops, 0U);
      EXPECT_GT(fabric.transfers()[2].delivered, Time::us(500));
      EXPECT_GT(link_between(outcome_of(fabric), "leaf0", "host0").data_bytes, 0);
    }
  }
}

// --- thresholds -------------------------------------------------------------------------------

// Protocols 5.3: static XOFF = (B - classes n headroom) / (classes n): for 12 MB, 8 classes, 32
// ports and 22.4 KB it is 24.475 KB; half the classes share half the buffer. Behind a stopped port
// the 25th packet of 1000 B is the first that reaches it, at 25 x 80 ns + 500 ns.
TEST(Pauses, StaticThresholdOfThePaper) {
  const Topology t = star(32, Rate::gbps(100), Time::ns(500));
  for (const auto& [buffer, packets] :
       std::vector<std::pair<const char*, int64_t>>{{"6000000B", 25}, {"6068000B", 26}}) {
    PacketFabric fabric(t, unmarked({{"switch.buffer", buffer},
                                     {"switch.classes", "4"},
                                     {"pfc.mode", "static"},
                                     {"pfc.headroom", "22400B"},
                                     {"pfc.reserve", "0B"}})
                               .make());
    std::vector<PauseRecord> pauses;
    fabric.record_pauses(&pauses);
    fabric.schedule(change(Kind::storm_on, 1, 0));
    fabric.schedule(change(Kind::storm_off, 1, 50 * kUs));
    start(fabric, {0, 1, 60'000, {}, 0});
    drain(fabric);
    ASSERT_EQ(pauses.size(), 5U);  // the storm has four classes
    EXPECT_EQ(pauses[4].from_ps, packets * kT + kUs / 2);
    EXPECT_EQ(pauses[4].stopped, 0U);
    EXPECT_EQ(pauses[4].because, 3U);
  }
}

// Protocols 5.5: marks come before pauses if the ECN threshold is below beta (B - 8 n headroom) /
// (8 n (beta + 1)), 21.756 KB for beta = 8 and the same switch. Here for one of its 256 queues: a
// pool of 24,475 B, of which alpha = 8. Behind a stopped port packets of 100 B = 8 ns pile up;
// 8 (24475 - q) <= q from q = 21,756 on, which is the 218th. The 217th is marked by a threshold of
// 21,600 B; one of 21,800 B comes too late.
TEST(Pauses, MarksComeBeforePausesBelowTheBoundOfThePaper) {
  const Topology t = star(32, Rate::gbps(100), Time::ns(500));
  for (const auto& [threshold, marks] :
       std::vector<std::pair<const char*, uint64_t>>{{"21600B", 1}, {"21800B", 0}}) {
    PacketFabric fabric(t, bare({{"transport.payload", "100B"},
                                 {"switch.buffer", "741275B"},  // 24,475 + 32 x 22,400
                                 {"pfc.alpha", "8"},
                                 {"pfc.alpha_scaling", "none"},
                                 {"pfc.headroom", "22400B"},
                                 {"pfc.reserve", "0B"},
                                 {"ecn.mark_at", "enqueue"},
                                 {"ecn.kmin", threshold},
                                 {"ecn.kmax", threshold}})
                               .make());
    std::vector<PauseRecord> pauses;
    fabric.record_pauses(&pauses);
    fabric.schedule(change(Kind::storm_on, 1, 0));
    fabric.schedule(change(Kind::storm_off, 1, 50 * kUs));
    start(fabric, {0, 1, 60'000, {}, 0});
    std::vector<Completion> out;
    fabric.advance(Time::ps(217 * 8'000 + kUs / 2), out);
    EXPECT_EQ(fabric.totals().ecn_marks, marks);
    EXPECT_EQ(pauses.size(), 1U);  // the storm
    fabric.advance(Time::ps(218 * 8'000 + kUs / 2), out);
    ASSERT_EQ(pauses.size(), 2U);
    EXPECT_EQ(pauses[1].from_ps, 218 * 8'000 + kUs / 2);
    drain(fabric);
  }
}

// Pauses know for which egress port the packet that tipped them was bound: 4 to 1 into host 4, with
// a bystander from host 0 to host 5.
TEST(Pauses, RecordsSayBecauseOfWhom) {
  const Topology t = star(6);
  PacketFabric fabric(t, unmarked({{"pfc.mode", "static"}, {"pfc.xoff", "20KB"}}).make());
  std::vector<PauseRecord> pauses;
  fabric.record_pauses(&pauses);
  for (const Flow& f : incast(4, 500'000)) start(fabric, f);
  drain(fabric);
  ASSERT_GT(pauses.size(), 8U);
  std::set<uint32_t> stopped;
  for (const auto& p : pauses) {
    EXPECT_EQ(p.because, 9U);
    EXPECT_GT(p.to_ps, p.from_ps);
    stopped.insert(p.stopped);
  }
  EXPECT_EQ(stopped, (std::set<uint32_t>{0, 2, 4, 6}));
  EXPECT_EQ(pauses.size(), fabric.totals().pfc_pauses);
}

// --- deadlock ---------------------------------------------------------------------------------

Topology ring(uint32_t n) {
  Topology t;
  for (uint32_t h = 0; h < n; ++h) t.add_node("host" + std::to_string(h), NodeKind::host);
  for (uint32_t s = 0; s < n; ++s) t.add_node("sw" + std::to_string(s), NodeKind::leaf);
  for (uint32_t h = 0; h < n; ++h) t.add_link(h, n + h, Rate::gbps(400), Time::us(1));
  for (uint32_t s = 0; s < n; ++s) {
    t.add_link(n + s, n + (s + 1) % n, Rate::gbps(100), Time::us(1));
  }
  t.finish();
  return t;
}

// Six switches in a ring, every host sends two switches on, clockwise: each ring link carries two
// flows at twice its rate, all buffers fill, and every link waits for the next one. The run ends
// with an error that names the circle. Three flows that do not close the circle complete.
TEST(Pauses, ACircleOfWaitingQueuesIsNamed) {
  const Topology t = ring(6);
  for (const bool whole : {true, false}) {
    PacketFabric fabric(t, unmarked({{"pfc.mode", "static"},
                                     {"pfc.xoff", "20KB"},
                                     {"pfc.cycle_check", "100us"},
                                     {"transport.retry_limit", "3"}})
                               .make());
    for (uint32_t h = 0; h < (whole ? 6U : 3U); ++h) {
      for (uint32_t i = 0; i < 4; ++i) start(fabric, {h, (h + 2) % 6, 1'000'000, {}, i});
    }
    if (!whole) {
      drain(fabric);
      EXPECT_GT(fabric.totals().pfc_pauses, 0U);
      EXPECT_EQ(fabric.totals().cyclic_waits, 0U);
      continue;
    }
    const std::string e = error_of<SimulationError>([&] { drain(fabric); });
    expect_contains(e, {"3 retransmission timeouts", "deadlock", "in a circle", "sw0 -> sw1",
                        "sw1 -> sw2", "sw2 -> sw3", "sw3 -> sw4", "sw4 -> sw5", "sw5 -> sw0"});
    EXPECT_GT(fabric.totals().cyclic_waits, 0U);
    fabric.check_conservation();
  }
}

// --- classes ----------------------------------------------------------------------------------

/// Packets of two backlogged flows of classes 0 and 1 into one port between two instants.
std::pair<int64_t, int64_t> shares(const std::string& scheduler, const std::string& weights,
                                   int64_t packets) {
  const Topology t = star(3);
  PacketFabric fabric(t, unmarked({{"switch.classes", "2"},
                                   {"switch.scheduler", scheduler},
                                   {"switch.weights", weights}})
                             .make());
  start_in_class(fabric, {0, 2, 4'000'000, {}, 0}, 0);
  start_in_class(fabric, {1, 2, 4'000'000, {}, 0}, 1);
  std::vector<Completion> out;
  fabric.advance(Time::us(50), out);
  const auto a = fabric.transfers();
  fabric.advance(Time::us(50) + Time::ps(packets * kT), out);
  const auto b = fabric.transfers();
  EXPECT_TRUE(out.empty());
  drain(fabric);
  return {static_cast<int64_t>(b[0].packets - a[0].packets),
          static_cast<int64_t>(b[1].packets - a[1].packets)};
}

TEST(Pauses, DwrrSharesByWeightToThePacket) {
  for (const int64_t rounds : {1, 10, 300}) {
    using Pair = std::pair<int64_t, int64_t>;
    EXPECT_EQ(shares("dwrr", "3:1", 4 * rounds), Pair(3 * rounds, rounds));
    EXPECT_EQ(shares("dwrr", "1:4", 5 * rounds), Pair(rounds, 4 * rounds));
    EXPECT_EQ(shares("dwrr", "1:1", 2 * rounds), Pair(rounds, rounds));
    EXPECT_EQ(shares("strict", "1:1", 4 * rounds), Pair(4 * rounds, 0));
  }
}

// Hosts 0, 1 and 4 send class 0 to host 2; host 0 also sends class 1 to host 3. Pauses of class 0
// leave class 1 alone: it has the rest of the line. In one class both are stopped together.
TEST(Pauses, ClassesPauseOnTheirOwn) {
  std::vector<int64_t> times;
  for (const char* classes : {"2", "1"}) {
    const Topology t = star(5);
    PacketFabric fabric(
        t, unmarked({{"pfc.mode", "static"}, {"pfc.xoff", "20KB"}, {"switch.classes", classes}})
               .make());
    std::vector<PauseRecord> pauses;
    fabric.record_pauses(&pauses);
    for (uint32_t s : {0U, 1U, 4U}) start_in_class(fabric, {s, 2, 2'000'000, {}, 0}, 0);
    start_in_class(fabric, {0, 3, 2'000'000, {}, 1}, 1);
    drain(fabric);
    EXPECT_GT(pauses.size(), 4U);
    for (const auto& p : pauses) {
      EXPECT_EQ(p.traffic_class, 0);
      if (std::string(classes) == "2") {
        EXPECT_EQ(p.because, 5U);
      }
    }
    times.push_back(fabric.transfers()[3].delivered.ps());
  }
  // With classes of its own: 2000 packets, the other's third of its receiver in between, which the
  // NIC sends first, and before it was paused for the first time some more of it.
  EXPECT_LT(times[0], 3'100 * kT);
  EXPECT_GT(times[1], 3'500 * kT);
}

// Error diffusion marks what the dice mark on average, to a packet: behind a window of 200 packets
// a queue stands at 148 packets (Engine.MarkingProbabilityAtAPinnedQueue): p = 0.24.
TEST(Pauses, DitheredMarksHaveTheMeanOfTheDice) {
  Topology t;
  t.add_node("a", NodeKind::host);
  t.add_node("b", NodeKind::host);
  t.add_node("leaf0", NodeKind::leaf);
  t.add_link(0, 2, Rate::gbps(400), Time::us(1));
  t.add_link(1, 2, Rate::gbps(100), Time::us(1));
  t.finish();
  const auto marks = [&](const char* marking, int64_t packets, const char* seed) {
    const Scenario scenario = unmarked({{"transport.ack_size", "64B"},
                                        {"transport.window", "200KB"},
                                        {"ecn.mark_at", "dequeue"},
                                        {"ecn.marking", marking},
                                        {"ecn.kmin", "100KB"},
                                        {"ecn.kmax", "200KB"},
                                        {"ecn.pmax", "0.5"},
                                        {"seed", seed}});
    return static_cast<int64_t>(
        run(t, scenario.make(), {{0, 1, 1'000 * packets, {}, 0}}).totals.ecn_marks);
  };
  // 10,000 more packets in the steady state: 2400 marks.
  const int64_t few = marks("dithered", 10'000, "1");
  EXPECT_NEAR(static_cast<double>(marks("dithered", 20'000, "1") - few), 2'400.0, 1.0);
  EXPECT_EQ(marks("dithered", 10'000, "2"), few);
  int64_t random = 0;
  for (const char* seed : {"1", "2", "3", "4"}) random += marks("random", 10'000, seed);
  EXPECT_NEAR(static_cast<double>(random), 4.0 * static_cast<double>(few),
              4 * std::sqrt(40'000 * 0.24 * 0.76));
}

// --- headroom ---------------------------------------------------------------------------------

TEST(Pauses, LargeIncastsLoseNothingWithTheRightHeadroom) {
  for (const uint32_t senders : {64U, 1'000U}) {
    const Topology t = star(senders + 1);
    const Scenario scenario = unmarked({{"transport.retransmit_timeout", "67ms"}});
    const Outcome o = run(t, scenario.make(), incast(senders, 6'400'000 / senders));
    EXPECT_EQ(o.totals.drops, 0U);
    EXPECT_EQ(o.totals.retransmitted, 0U);
    int64_t last = 0;
    for (const auto& r : o.records) last = std::max(last, r.delivered.ps());
    EXPECT_EQ(last, kT + 2 * kUs + 6'400 * kT);
  }
  const Topology t = star(65);
  const std::string e = error_of<SimulationError>([&] {
    run(t, unmarked({{"pfc.headroom", "20KB"}, {"switch.buffer", "4MiB"}}).make(),
        incast(64, 1'000'000));
  });
  expect_contains(e, {"dropped in the lossless class", "leaf0", "headroom 20KB", "ingress from"});
}

// A pool of packets that grows while a pause is being sent: eight at 400 Gb/s into one, with the
// least headroom that suffices for 150 ns of cable.
TEST(Pauses, PoolsThatGrowWhilePausesAreSent) {
  const Topology t = star(9, Rate::gbps(400), Time::ns(150));
  const Scenario scenario({{"ecn.mark_at", "off"},
                           {"switch.buffer", "2MiB"},
                           {"pfc.headroom", "23440B"},
                           {"pfc.headroom_response", "0ns"}});
  const Outcome o = run(t, scenario.make(), incast(8, 20'000'000));
  EXPECT_GT(o.totals.pfc_pauses, 0U);
  EXPECT_EQ(o.totals.drops, 0U);
}

}  // namespace
}  // namespace trainyard
