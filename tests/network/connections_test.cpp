// SPDX-License-Identifier: MIT
// Connections of several queue pairs, links that fail, slow receivers, controllers on a bottleneck,
// and very many flows. Unless a test says otherwise: 100 Gbit/s, 1 us per link, packets of 1000 B
// without header = 80 ns.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "network/engine.h"
#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

using namespace test;
using Kind = FabricChange::Kind;

constexpr int64_t kUs = 1'000'000;
constexpr int64_t kT = 80'000;
constexpr int64_t kA = 4'800;

FabricChange receive_rate(uint32_t link, int64_t at_ps, int64_t bps) {
  FabricChange c = change(Kind::receive_rate, link, at_ps);
  c.rate_bps = bps;
  return c;
}

// --- several queue pairs ----------------------------------------------------------------------

// A message of 10.5 packets over q queue pairs: whole packets each, as many bytes as asked for, and
// complete with its last part, which is the 11th packet on the line.
TEST(Connections, PartsMakeTheMessage) {
  for (const char* qps : {"1", "3", "4", "15"}) {
    for (const char* recovery : {"go-back-n", "selective-repeat"}) {
      const Outcome o =
          run(star(2), bare({{"ecmp.qps", qps}, {"transport.loss_recovery", recovery}}).make(),
              {{0, 1, 10'500, {}, 0}, {0, 1, 700, Time::us(50), 0}});
      EXPECT_EQ(o.totals.data_packets, 12U);
      EXPECT_EQ(o.totals.payload_bytes, 11'200);
      EXPECT_EQ(o.records[0].packets, 11U);
      ASSERT_EQ(o.completions.size(), 4U);
      // The short packet may come anywhere; the line is busy for 10.5 packets, and the switch
      // sends the last one again, 40 or 80 ns.
      const int64_t last = o.records[0].delivered.ps();
      EXPECT_GE(last, 2 * kUs + 10 * kT + kT / 2 + kT / 2);
      EXPECT_LE(last, 2 * kUs + 10 * kT + kT / 2 + kT);
      EXPECT_EQ(o.records[1].delivered.ps(), 50 * kUs + 2 * (kUs + 56'000));
    }
  }
}

// One part loses its last packet and waits for its timer; the message waits with it.
TEST(Connections, TheLastPartCompletesTheMessage) {
  const Topology t = star(2);
  PacketFabric fabric(t, bare({{"ecmp.qps", "4"}}).make());
  FabricChange on = change(Kind::link_loss, 0, 8 * kT + kUs, uint64_t{1} << 32);
  fabric.schedule(on);
  fabric.schedule(change(Kind::link_loss, 0, 8 * kT + kUs + 1));
  start(fabric, {0, 1, 8'000, {}, 0});
  drain(fabric);
  EXPECT_EQ(fabric.totals().drops, 1U);
  EXPECT_EQ(fabric.totals().retransmitted, 1U);
  EXPECT_GT(fabric.transfers()[0].delivered, Time::us(100));
  EXPECT_LT(fabric.transfers()[0].delivered, Time::us(108));
}

// Each queue pair has its own source port: one flow of 8 queue pairs uses several spines.
TEST(Connections, QueuePairsSpreadOverPaths) {
  const Topology t = two_tiers(2, 1, 8);
  for (const char* qps : {"1", "15"}) {
    const Outcome o = run(t, bare({{"ecmp.qps", qps}}).make(), {{0, 1, 1'500'000, {}, 0}});
    int spines = 0;
    for (const auto& l : o.links) spines += l.from == "leaf0" && l.data_bytes > 0 && l.to[0] == 's';
    if (std::string(qps) == "1") {
      EXPECT_EQ(spines, 1);
    } else {
      EXPECT_GE(spines, 4);
    }
  }
}

// --- links ------------------------------------------------------------------------------------

/// Bytes of payload that leaf0 has sent to spine `s`.
int64_t through(PacketFabric& fabric, uint32_t s) {
  const Outcome o = outcome_of(fabric);
  for (const auto& l : o.links) {
    if (l.from == "leaf0" && l.to == "spine" + std::to_string(s)) return l.data_bytes;
  }
  return 0;
}

// Links of two_tiers(2, 1, 2): hosts 0 and 1, then leaf0-spine0, leaf0-spine1. The spine in use
// fails at 100 us; routes follow 50 us later, so that 50 us of data are lost and repeated; at 400
// us it is back and 50 us later in use again. A flow that starts in between goes the same ways.
TEST(Connections, RoutesFollowALinkAfterConvergence) {
  const Topology t = two_tiers(2, 1, 2);
  uint32_t used = 0;
  {
    PacketFabric probe(t, bare().make());
    start(probe, {0, 1, 1'000, {}, 0});
    drain(probe);
    used = through(probe, 0) > 0 ? 0 : 1;
  }
  for (const char* recovery : {"go-back-n", "selective-repeat"}) {
    PacketFabric fabric(t, bare({{"ecmp.convergence", "50us"},
                                 {"transport.loss_recovery", recovery},
                                 {"transport.retransmit_timeout", "200us"}})
                               .make());
    fabric.schedule(change(Kind::link_down, 2 + used, 100 * kUs));
    fabric.schedule(change(Kind::link_up, 2 + used, 400 * kUs));
    start(fabric, {0, 1, 8'000'000, {}, 0});
    std::vector<Completion> out;
    const auto until = [&](int64_t us) {
      fabric.advance(Time::us(us), out);
      return std::pair(through(fabric, used), through(fabric, 1 - used));
    };
    const auto a = until(149);
    EXPECT_GT(a.first, 100 * 1'000'000 / 80);
    EXPECT_EQ(a.second, 0);
    EXPECT_EQ(fabric.totals().reroutes, 0U);
    const auto b = until(449);
    EXPECT_EQ(fabric.totals().reroutes, 1U);
    EXPECT_GT(b.second, 1'000'000);
    EXPECT_LT(b.first, a.first + 100'000);
    const auto c = until(600);
    EXPECT_EQ(fabric.totals().reroutes, 2U);
    EXPECT_GT(c.first, b.first + 1'000'000);
    EXPECT_GT(fabric.totals().drops, 100U);
    drain(fabric);
  }
}

// A new queue pair knows no more than the fabric does.
TEST(Connections, NewFlowsGoTheOldWayUntilConvergence) {
  const Topology t = two_tiers(2, 1, 2);
  for (const bool learnt : {false, true}) {
    PacketFabric fabric(
        t, bare({{"ecmp.convergence", "50us"}, {"transport.retransmit_timeout", "1ms"}}).make());
    for (uint32_t s = 0; s < 1; ++s) fabric.schedule(change(Kind::link_down, 2 + s, 100 * kUs));
    fabric.schedule(change(Kind::link_up, 2, 5'000 * kUs));
    // Twenty queue pairs: some of them hash to the spine that is cut off.
    for (uint32_t c = 0; c < 20; ++c) {
      start(fabric, {0, 1, 10'000, Time::us(learnt ? 160 : 110), c});
    }
    drain(fabric);
    if (learnt) {
      EXPECT_EQ(fabric.totals().drops, 0U);
      EXPECT_EQ(fabric.totals().reroutes, 0U + fabric.totals().reroutes);
    } else {
      EXPECT_GT(fabric.totals().drops, 0U);
    }
  }
}

// A host that is cut off when a flow starts: the flow waits for its link, or fails by its timer.
TEST(Connections, AFlowThatStartsCutOffWaitsForItsLink) {
  for (const bool back : {true, false}) {
    const Topology t = star(3);
    PacketFabric fabric(t,
                        bare({{"ecmp.convergence", "0ns"}, {"transport.retry_limit", "9"}}).make());
    fabric.schedule(change(Kind::link_down, 1, 10 * kUs));
    if (back) fabric.schedule(change(Kind::link_up, 1, 500 * kUs));
    start(fabric, {0, 1, 3'000, Time::us(50), 0});
    start(fabric, {2, 0, 3'000, Time::us(50), 0});
    if (back) {
      drain(fabric);
      // Timeouts every 100 us from 50 us on: the fifth finds the link.
      EXPECT_EQ(fabric.totals().timeouts, 5U);
      EXPECT_EQ(fabric.transfers()[0].delivered.ps(), 550 * kUs + 2 * kUs + 4 * kT);
    } else {
      const std::string e = error_of<SimulationError>([&] { drain(fabric); });
      expect_contains(e, {"rank 0 to rank 1 failed at 1.05ms", "9 retransmission timeouts"});
    }
    EXPECT_EQ(fabric.transfers()[1].delivered.ps(), 50 * kUs + 2 * kUs + 4 * kT);
  }
}

// What is on the wire when a link fails is lost, even if it is back before that would have arrived;
// what is sent afterwards is not. 13 packets end between 49 us and 50 us, one begins at 50 us.
TEST(Connections, AShortOutageLosesWhatIsOnTheWire) {
  const Topology t = star(2);
  PacketFabric fabric(
      t, bare({{"transport.loss_recovery", "selective-repeat"}, {"transport.reorder_window", "3"}})
             .make());
  fabric.schedule(change(Kind::link_down, 0, 50 * kUs));
  fabric.schedule(change(Kind::link_up, 0, 50 * kUs + 1'000));
  start(fabric, {0, 1, 2'000'000, {}, 0});
  drain(fabric);
  uint64_t data = 0;
  for (const auto& l : fabric.links()) data += l.from == "host0" ? l.drops : 0;
  EXPECT_EQ(data, 14U);
  EXPECT_EQ(fabric.totals().retransmitted, 14U);
  EXPECT_EQ(fabric.totals().timeouts, 0U);
}

// A link at a quarter of its rate.
TEST(Connections, ALinkDegrades) {
  const Topology t = star(2);
  PacketFabric fabric(t, bare().make());
  fabric.schedule(change(Kind::link_rate, 1, 0, uint64_t{1} << 30));
  start(fabric, {0, 1, 1'000'000, {}, 0});
  drain(fabric);
  EXPECT_EQ(fabric.transfers()[0].delivered.ps(), 2 * kUs + kT + 1'000 * 4 * kT);
}

// A link fails while its ingress is paused and its buffer full, and comes back: pauses are sent
// again; what overflows meanwhile is the outage's, no model error.
TEST(Connections, AFullBufferSurvivesAnOutage) {
  for (const int64_t length : {100, 1'000, 5'000, 20'000}) {
    const Topology t = star(5);
    PacketFabric fabric(t, bare({{"pfc.mode", "static"}, {"pfc.xoff", "30KB"}}).make());
    fabric.schedule(receive_rate(4, 0, 5'000'000'000));
    for (int64_t at = 20; at < 600; at += 45) {
      fabric.schedule(change(Kind::link_down, 0, at * kUs));
      fabric.schedule(change(Kind::link_up, 0, at * kUs + length * 1'000));
    }
    fabric.schedule(receive_rate(4, 1'000 * kUs, 0));
    for (uint32_t s = 0; s < 4; ++s) start(fabric, {s, 4, 1'000'000, {}, 0});
    drain(fabric);
    EXPECT_GT(fabric.totals().pfc_pauses, 4U);
  }
}

// --- slow receivers ---------------------------------------------------------------------------

// 10 Gb/s into the host: 1000 packets take 800 us after the first has arrived at 2.16 us; the NIC's
// buffer of 64 KB pauses its switch at a half and lets it go on at a quarter.
TEST(Connections, ASlowReceiverSetsThePace) {
  for (const bool at_start : {true, false}) {
    const Topology t = star(3);
    Scenario scenario =
        bare({{"transport.receive_buffer", "128KB"}, {"transport.retransmit_timeout", "10ms"}});
    if (at_start) scenario.set("transport.receive_rate", "10Gbps");
    PacketFabric fabric(t, scenario.make());
    std::vector<PauseRecord> pauses;
    fabric.record_pauses(&pauses);
    if (!at_start) fabric.schedule(receive_rate(1, 0, 10'000'000'000));
    start(fabric, {0, 1, 1'000'000, {}, 0});
    drain(fabric);
    EXPECT_EQ(fabric.transfers()[0].delivered.ps(), 2 * (kUs + kT) + 1'000 * 10 * kT);
    EXPECT_EQ(fabric.totals().drops, 0U);
    // Half the buffer is exceeded when 65 packets wait: 71 have come, and 6 have gone, the seventh
    // at the same instant after the arrival: 2.16 us + 70 x 80 ns.
    ASSERT_FALSE(pauses.empty());
    EXPECT_EQ(pauses[0].from_ps, 2 * (kUs + kT) + 70 * kT);
    EXPECT_EQ(pauses[0].stopped, 3U);
    // Then about 25 more come in; it goes on when 32 wait.
    EXPECT_GT(pauses.size(), 5U);
  }
}

// The buffer of a NIC is shared by its classes: all are stopped when it is half full.
TEST(Connections, ASlowReceiverStopsAllClasses) {
  const Topology t = star(3);
  PacketFabric fabric(t, bare({{"transport.receive_buffer", "128KB"},
                               {"transport.receive_rate", "10Gbps"},
                               {"transport.retransmit_timeout", "10ms"},
                               {"switch.classes", "2"}})
                             .make());
  std::vector<PauseRecord> pauses;
  fabric.record_pauses(&pauses);
  for (uint8_t c = 0; c < 2; ++c) {
    Transfer transfer;
    transfer.src = c == 0 ? 0 : 2;
    transfer.dst = 1;
    transfer.size = Bytes(1'000'000);
    transfer.traffic_class = c;
    fabric.start(transfer, Time::ps(0));
  }
  drain(fabric);
  std::vector<PauseRecord> nic;
  for (const auto& p : pauses) {
    if (p.stopped == 3) nic.push_back(p);
  }
  ASSERT_GE(nic.size(), 2U);
  EXPECT_EQ(nic[0].from_ps, nic[1].from_ps);
  EXPECT_NE(nic[0].traffic_class, nic[1].traffic_class);
}

// A host that recovers takes what waits first: nothing is overtaken, nothing repeated.
TEST(Connections, NothingOvertakesWhatWaits) {
  const Topology t = star(2);
  PacketFabric fabric(t, bare().make());
  fabric.schedule(receive_rate(1, 0, 10'000'000'000));
  fabric.schedule(receive_rate(1, 20 * kUs, 0));
  start(fabric, {0, 1, 1'000'000, {}, 0});
  drain(fabric);
  EXPECT_EQ(fabric.totals().nacks, 0U);
  EXPECT_EQ(fabric.totals().retransmitted, 0U);
  EXPECT_LT(fabric.transfers()[0].delivered, Time::us(120));
}

// Without PFC what does not fit is lost, and repeated.
TEST(Connections, ASlowReceiverInALossyClass) {
  for (const char* recovery : {"go-back-n", "selective-repeat"}) {
    const Topology t = star(2);
    const Outcome o = run(t,
                          bare({{"pfc.mode", "off"},
                                {"transport.receive_rate", "50Gbps"},
                                {"transport.receive_buffer", "16KiB"},
                                {"transport.nack_interval", "0ns"},
                                {"transport.loss_recovery", recovery}})
                              .make(),
                          {{0, 1, 300'000, {}, 0}});
    EXPECT_GT(o.totals.drops, 0U);
    EXPECT_EQ(o.totals.payload_bytes, 300'000);
    EXPECT_EQ(link_between(o, "leaf0", "host1").drops, o.totals.drops);
  }
}

// --- controllers ------------------------------------------------------------------------------

// Raise-first order (ns3-rdma): one CNP leaves 74.902 Gb/s: alpha = 1/2 x 255/256 + 1/256.
TEST(Connections, RaiseFirstCutsToThreeQuarters) {
  const Outcome o =
      run(star(5),
          bare({{"congestion", "dcqcn"},
                {"cc.order", "raise-first"},
                {"ecn.kmin", "1500B"},
                {"ecn.kmax", "1500B"}})
              .make(),
          {{0, 4, 1'000, {}, 0}, {1, 4, 1'000, {}, 0}, {2, 4, 1'000, {}, 0}, {3, 4, 1'000, {}, 0}});
  ASSERT_GE(o.rates.size(), 1U);
  EXPECT_TRUE(o.rates[0].cut);
  EXPECT_EQ((o.rates[0].rate_bps + 500'000) / 1'000'000, 74'902);
  EXPECT_EQ(o.totals.cnp_packets, 1U);
}

// Four long flows over one bottleneck: each gets about a quarter, the line is used, and the queue
// is kept where the controller wants it.
TEST(Connections, ControllersShareABottleneck) {
  for (const char* cc : {"hpcc", "timely", "dctcp", "dcqcn"}) {
    Scenario scenario({{"congestion", cc}, {"transport.window", "bdp"}});
    if (std::string(cc) == "dctcp") {
      scenario.set("ecn.kmin", "60KB");
      scenario.set("ecn.kmax", "60KB");
      scenario.set("ecn.pmax", "1");
    }
    // HPCC's additive step of 40 Mb/s per round trip of 8 us needs 5 ms for a quarter of the line.
    if (std::string(cc) == "hpcc") scenario.set("cc.additive_increase", "400Mbps");
    const Topology t = star(5);
    PacketFabric fabric(t, scenario.make());
    for (uint32_t s = 0; s < 4; ++s) start(fabric, {s, 4, 40'000'000, {}, 0});
    std::vector<Completion> out;
    fabric.advance(Time::ms(4), out);
    const auto a = fabric.transfers();
    fabric.advance(Time::ms(10), out);
    const auto b = fabric.transfers();
    EXPECT_TRUE(out.empty()) << cc;
    double sum = 0;
    double squares = 0;
    for (size_t i = 0; i < 4; ++i) {
      const double gbps =
          static_cast<double>(b[i].packets - a[i].packets) * 4096 * 8 / Time::ms(6).ps() * 1e3;
      sum += gbps;
      std::printf("%.2f ", gbps);
      squares += gbps * gbps;
    }
    std::printf("%s: %.2f Gb/s, fairness %.4f, peak queue %ld\n", cc, sum, sum * sum / 4 / squares,
                link_between(outcome_of(fabric), "leaf0", "host4").peak_queue_bytes);
    EXPECT_GT(sum, 75.0) << cc;
    EXPECT_LT(sum, 98.1) << cc;
    EXPECT_GT(sum * sum / 4 / squares, 0.9) << cc;  // Jain's index
    drain(fabric);
  }
}

// --- very many flows --------------------------------------------------------------------------

/// Peak memory of this process.
int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// A million flows are queued at once, on queue pairs of their own or on shared ones.
TEST(Connections, slow_AMillionQueuedFlowsInTwoGibibytes) {
  for (const char* qps : {"persistent", "per-message"}) {
    const int64_t before = peak_bytes();
    const Topology t = star(101);
    PacketFabric fabric(t, bare({{"transport.queue_pairs", qps},
                                 {"transport.retransmit_timeout", "10s"},
                                 {"congestion", "dcqcn"}})
                               .make());
    constexpr uint32_t kFlows = 1'000'000;
    for (uint32_t i = 0; i < kFlows; ++i) {
      const uint32_t src = i % 100;
      start(fabric, {src, (src + 1 + i / 100 % 100) % 101, 1'000, {}, 0});
    }
    std::vector<Completion> out;
    while (fabric.outstanding() > 0) {
      ASSERT_NE(fabric.next_event(), Time::infinity()) << fabric.describe_stall();
      fabric.advance(Time::infinity(), out);
    }
    EXPECT_EQ(fabric.totals().payload_bytes, int64_t{kFlows} * 1'000);
    const int64_t used = peak_bytes() - before;
    std::printf("%s: %ld MB more, peak %ld MB\n", qps, used / 1'000'000, peak_bytes() / 1'000'000);
    EXPECT_LT(peak_bytes(), int64_t{2} << 30) << qps;
  }
}

// --- the receiving host --------------------------------------------------------------------------

// The host sees a message later; ACKs, and all that the wire does, stay as they were. So it is in
// the engines without packets.
TEST(Connections, TheHostSeesAMessageAfterTheReceiveDelay) {
  const std::vector<Flow> flows{{0, 1, 20'000, {}, 0}, {0, 1, 5'000, {}, 0}, {2, 1, 700, {}, 0}};
  const Topology t = star(3);
  const auto outcome = [&](const std::string& name, const char* delay) {
    const auto fabric = Registry::instance().factory<EngineFactory>("engine", name)(
        t, bare({{"transport.receive_delay", delay}}).make(),
        Params(Registry::instance().get("engine", name).params));
    for (const Flow& f : flows) {
      Transfer transfer;
      transfer.src = f.src;
      transfer.dst = f.dst;
      transfer.size = Bytes(f.bytes);
      fabric->start(transfer, f.start);
    }
    std::vector<Completion> out;
    while (fabric->next_event() != Time::infinity()) {
      fabric->advance(Time::infinity(), out);
      // Until its host has seen it, a message is outstanding, acknowledged or not.
      size_t open = 0;
      for (const auto& r : fabric->transfers()) {
        open += r.delivered > r.start && r.acknowledged > r.start ? 0 : 1;
      }
      EXPECT_EQ(fabric->outstanding(), open);
    }
    EXPECT_EQ(out.size(), 6U);
    fabric->check_conservation();
    return fabric->transfers();
  };
  for (const char* name : {"packet", "flow", "analytic"}) {
    const auto now = outcome(name, "0ns");
    for (const auto& [delay, ps] :
         std::vector<std::pair<const char*, int64_t>>{{"300ns", 300'000}, {"9us", 9 * kUs}}) {
      const auto later = outcome(name, delay);
      for (size_t i = 0; i < flows.size(); ++i) {
        EXPECT_EQ((later[i].delivered - now[i].delivered).ps(), ps) << name;
        EXPECT_EQ(later[i].acknowledged, now[i].acknowledged) << name;
      }
    }
  }
}

// --- plug-ins ------------------------------------------------------------------------------------

// A controller of this file: DCTCP with a gain of its own. Its registration is all that the engine
// needs to know.
const RegisterModel<CongestionSetup> kPlugIn{
    {"congestion",
     "test-dctcp",
     "DCTCP with the gain as a parameter of another name.",
     "tests/network/connections_test.cpp",
     {{"gain", ParamType::real, "1/2", "0.001", "1", {}, "gain of alpha", "a test"}}},
    [](const Params& params, PacketConfig& config) {
      Params dctcp(dctcp_params());
      dctcp.set("g", params.text("gain"), {});
      config.congestion = CongestionControl::dctcp;
      config.dctcp = make_dctcp_params(dctcp);
    }};

TEST(Connections, ACongestionControllerIsARegistration) {
  const Topology t = star(5);
  const auto run_with = [&](const Scenario& scenario) {
    Scenario s = scenario;
    s.set("ecn.kmin", "5KB").set("ecn.kmax", "20KB");
    std::vector<Flow> flows;
    for (uint32_t i = 0; i < 4; ++i) flows.push_back({i, 4, 500'000, {}, 0});
    return run(t, s.make(), flows);
  };
  const Outcome known = run_with(bare().set("congestion", "dctcp").set("cc.g", "1/4"));
  const Outcome same = run_with(bare().set("congestion", "test-dctcp").set("cc.gain", "1/4"));
  const Outcome other = run_with(bare().set("congestion", "test-dctcp"));
  EXPECT_GT(known.rates.size(), 10U);
  expect_same(known, same);
  EXPECT_NE(known.fingerprint, other.fingerprint);
}

}  // namespace
}  // namespace trainyard
