// SPDX-License-Identifier: MIT
// Behaviour that papers report, as scenarios of scenarios/published: the shape must be theirs, the
// number near theirs or, where they leave the load unsaid, near ours. docs/published.md has both.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "network/packet/packet_fabric.h"
#include "tools/scenario/run.h"

namespace trainyard {
namespace {

const std::string kCongestion = "fabric.transport.congestion.kind=";
const std::string kPerSwitchSeed = "fabric.transport.load_balancing.per_switch_seed=";

Scenario scenario(const std::string& name, const std::vector<std::string>& settings = {}) {
  ScenarioOverrides overrides;
  overrides.settings = settings;
  return load_scenario(std::string(TRAINYARD_SOURCE_DIR) + "/scenarios/published/" + name + ".yaml",
                       overrides);
}

Result complete(const std::string& name, const std::vector<std::string>& settings = {}) {
  Result r = run_scenario(scenario(name, settings));
  EXPECT_TRUE(r.complete) << name << ": " << r.incomplete_reason;
  EXPECT_EQ(r.totals.drops, 0U) << name;
  return r;
}

double us(Time t) {
  return static_cast<double>(t.ps()) * 1e-6;
}
double fct_us(const TransferRecord& f) {
  return us(f.delivered - f.start);
}
/// Payload rate of a flow over its life.
double gbps(const TransferRecord& f) {
  return static_cast<double>(f.bytes) * 8e-3 / fct_us(f);
}
std::vector<double> sorted_fct(const Result& r, int64_t bytes) {
  std::vector<double> v;
  for (const auto& f : r.flows) {
    if (f.bytes == bytes) v.push_back(fct_us(f));
  }
  std::sort(v.begin(), v.end());
  return v;
}
double percentile(const std::vector<double>& sorted, double p) {
  return sorted[static_cast<size_t>(p * static_cast<double>(sorted.size() - 1))];
}

// B: V49: 20 of 40 Gb/s for the flow with a port of its own.
TEST(Published, PfcAloneGivesHalfToTheFlowWithItsOwnPort) {
  // 1024 of 1106 bytes on the wire are payload.
  const double line = 40.0 * 1024 / 1106;
  const Result pfc = complete("unfairness");
  EXPECT_NEAR(gbps(pfc.flows[3]), line / 2, 0.02 * line);
  for (int i = 0; i < 3; ++i) {
    // A sixth while the fourth is there, a third from then on: 4 of 9 on the whole.
    const double share = gbps(pfc.flows[i]) / line;
    EXPECT_NEAR(share, 0.25, 0.01) << i;
  }
  const Result dcqcn = complete("unfairness", {kCongestion + "dcqcn"});
  std::vector<double> rates;
  for (const auto& f : dcqcn.flows) rates.push_back(gbps(f));
  std::sort(rates.begin(), rates.end());
  EXPECT_LT(rates.back() / rates.front(), 1.25);
  EXPECT_LT(dcqcn.totals.pfc_pauses, pfc.totals.pfc_pauses / 100);
}

// B: V50: 10 to 4.5 Gb/s for a flow that crosses no congested link.
TEST(Published, PfcMakesAVictimOfAFlowOffTheCongestedPath) {
  const auto victim = [](const Result& r) { return gbps(r.flows.back()); };
  const double alone = victim(complete("victim-alone"));
  const double pfc = victim(complete("victim"));
  EXPECT_NEAR(alone, 10, 1);
  EXPECT_NEAR(pfc, 4.5, 0.5);
  const double calm = victim(complete("victim-alone", {kCongestion + "dcqcn"}));
  const double dcqcn = victim(complete("victim", {kCongestion + "dcqcn"}));
  EXPECT_GT(dcqcn, 0.9 * calm);  // more senders elsewhere do not matter
  EXPECT_GT(dcqcn, 4 * pfc);
}

// B: V55, F26: no message of 4 MB gets through 0.4 % loss when the whole is repeated.
TEST(Published, GoBackZeroIsALivelockAndGoBackNIsNot) {
  const Result zero = run_scenario(scenario("livelock"));
  EXPECT_FALSE(zero.complete);
  EXPECT_EQ(zero.incomplete_reason,
            "cut off at 100ms by simulation.until, with 0 of 10 flows done");
  // The link was busy all the while.
  const auto host = std::find_if(zero.links.begin(), zero.links.end(),
                                 [](const LinkRecord& l) { return l.from == "host0"; });
  ASSERT_NE(host, zero.links.end());
  EXPECT_GT(host->busy, Time::ms(90));
  EXPECT_NEAR(static_cast<double>(host->drops) / static_cast<double>(host->packets), 0.004, 0.0005);
  EXPECT_GT(host->data_bytes, 10 * 40'000'000);

  const Result n = run_scenario(scenario("livelock", {"fabric.transport.loss_recovery=go-back-n"}));
  ASSERT_TRUE(n.complete) << n.incomplete_reason;
  const double goodput = 10 * 4e6 * 8e-3 / us(n.end);
  EXPECT_GT(goodput, 0.9 * 40.0 * 1024 / 1106);

  // F26: (1 - p)^packets; with 4 KiB packets one in 50 succeeds, so that not even 0.4 % is zero.
  const Result large =
      run_scenario(scenario("livelock", {"fabric.transport.payload=4096B", "simulation.until=1s"}));
  EXPECT_TRUE(large.complete) << large.incomplete_reason;
  EXPECT_GT(large.totals.retransmitted, 10 * 10 * 977U);  // ten times over
}

/// Payload that ranks 0 and 1 send between two instants.
std::pair<double, double> shares(const Result& r, Time from, Time to) {
  std::pair<double, double> sum{0, 0};
  for (size_t i = 0; i < r.links.size(); ++i) {
    const bool a = r.links[i].from == "node0.gpu0", b = r.links[i].from == "node1.gpu0";
    if (!a && !b) continue;
    for (const auto& row : r.link_series.links[i]) {
      const Time begin = Time::ps(row.window * r.link_series.window.ps());
      if (begin >= from && begin < to)
        (a ? sum.first : sum.second) += static_cast<double>(row.bytes);
    }
  }
  return sum;
}

// B: L4+L5: the defaults of QCN and DCTCP do not converge with two flows.
TEST(Published, TwoFlowsConvergeWithThePapersParametersOnly) {
  for (const std::string seed : {"seed=1", "seed=2"}) {
    SCOPED_TRACE(seed);
    const auto [a, b] = shares(complete("convergence", {seed}), Time::ms(35), Time::ms(45));
    EXPECT_GT(std::min(a, b) / std::max(a, b), 0.6);
    const auto [slow, fast] = shares(complete("bad-defaults", {seed}), Time::ms(35), Time::ms(45));
    EXPECT_LT(slow / fast, 0.05);
    // The link is full in both.
    EXPECT_NEAR(a + b, 50e6, 1e6);
    EXPECT_NEAR(slow + fast, 50e6, 1e6);
  }
}

/// Busiest link of a tier and direction against the mean over all that the fabric has there.
double load_skew(const Result& r, const std::string& from, const std::string& to, size_t count) {
  double most = 0, sum = 0;
  for (const auto& l : r.links) {
    if (l.from.rfind(from, 0) != 0 || l.to.rfind(to, 0) != 0) continue;
    most = std::max(most, static_cast<double>(l.data_bytes));
    sum += static_cast<double>(l.data_bytes);
  }
  return most * static_cast<double>(count) / sum;
}

// B: F27: skew of the load over parallel links, with hashing and with spraying.
TEST(Published, SprayingFillsWhatHashingLeavesEmpty) {
  const Result same = complete("polarised");
  const Result own = complete("polarised", {kPerSwitchSeed + "true"});
  const Result spray = complete("spray");
  const auto worst = [](const Result& r) { return sorted_fct(r, 2'000'000).back(); };
  const double ideal = 2e6 * 8 / 100e3 * (4096 + 82) / 4096;  // us, at line rate
  EXPECT_GT(worst(same), 6 * ideal);
  EXPECT_LT(worst(own), 0.7 * worst(same));
  EXPECT_GT(worst(own), 2.5 * ideal);
  EXPECT_LT(worst(spray), 1.4 * ideal);

  const auto used = [](const Result& r) {
    return std::count_if(r.links.begin(), r.links.end(), [](const LinkRecord& l) {
      return l.from.rfind("aggregation", 0) == 0 && l.to.rfind("core", 0) == 0 && l.data_bytes > 0;
    });
  };
  EXPECT_LE(used(same), 32);  // of 128: the second choice repeats the first
  EXPECT_GT(used(own), 64);
  EXPECT_EQ(used(spray), 128);
  const auto skew = [](const Result& r) { return load_skew(r, "aggregation", "core", 128); };
  EXPECT_GT(skew(same), 6);
  EXPECT_LT(skew(own), skew(same));
  EXPECT_LT(skew(spray), 1.5);
}

// B: W17, V125: stable alone, unfair together.
TEST(Published, ARingAndAnExchangeHaveALongTailOnlyTogetherUnderDcqcn) {
  constexpr int64_t kRing = 16'000'000, kExchange = 512'000;
  const auto tail = [](const std::vector<double>& v) { return v.back() / percentile(v, 0.5); };
  const auto ring = sorted_fct(complete("interference-ring"), kRing);
  const auto exchange = sorted_fct(complete("interference-exchange"), kExchange);
  EXPECT_LT(tail(ring), 1.01);
  EXPECT_LT(tail(exchange), 1.05);
  const auto pfc = sorted_fct(complete("interference", {kCongestion + "none"}), kRing);
  EXPECT_LT(tail(pfc), 1.01);
  EXPECT_NEAR(pfc.back() / ring.back(), 1.25, 0.1);
  double tails = 0;
  for (const std::string seed : {"seed=1", "seed=2", "seed=3", "seed=4"}) {
    const auto both = sorted_fct(complete("interference", {seed}), kRing);
    EXPECT_GT(both.back() / both.front(), 1.7) << seed;
    EXPECT_GT(both.back() / pfc.back(), 2.2) << seed;
    tails += tail(both) / 4;
  }
  EXPECT_GT(tails, 1.4);
}

// B: V62: P90 of the clear-to-send latency falls from 43 to 4 us with a class of its own.
TEST(Published, AClassOfTheirOwnSavesClearToSendMessagesTheQueue) {
  const Result control = complete("admission");
  const Result data = complete("admission", {"collectives.cts_class=data"});
  for (const Result* r : {&control, &data}) {
    ASSERT_EQ(r->collectives.size(), 1U);
    EXPECT_EQ(r->collectives[0].cts_count, 32U * 31U);
    EXPECT_EQ(r->collectives[0].transfers, 32U * 31U);
    EXPECT_EQ(r->collectives[0].wire_payload, int64_t{32} * 31 * (16 << 20) / 32);
    EXPECT_LE(r->collectives[0].cts_p50, r->collectives[0].cts_p90);
    EXPECT_LE(r->collectives[0].cts_p90, r->collectives[0].cts_p99);
  }
  EXPECT_NEAR(us(control.collectives[0].cts_p90), 4, 1);
  EXPECT_NEAR(us(data.collectives[0].cts_p90), 43, 10);
  EXPECT_GT(us(data.collectives[0].cts_p90) / us(control.collectives[0].cts_p90), 8);
}

/// Runs storm.yaml with a NIC that sends pauses from 1 ms on. Flow 4 is the innocent one.
struct StormRun {
  std::vector<TransferRecord> flows;
  FabricTotals totals;
  Time innocent_done;  ///< infinity: not within `limit`
};
StormRun storm(const std::vector<std::string>& settings, Time ends, Time limit) {
  const Scenario s = scenario("storm", settings);
  const Topology topology = build_topology(s, 0);
  PacketFabric fabric(topology, packet_config(s));
  uint32_t link = 0;
  const uint32_t receiver = topology.hosts()[8];
  while (topology.links()[link].a != receiver && topology.links()[link].b != receiver) ++link;
  fabric.schedule({Time::ms(1), FabricChange::Kind::storm_on, link, 0, 0, {}});
  if (ends < limit) fabric.schedule({ends, FabricChange::Kind::storm_off, link, 0, 0, {}});
  uint32_t channel = 0;
  for (const Flow& f : build_flows(s, static_cast<uint32_t>(topology.hosts().size()))) {
    Transfer t;
    t.src = f.src;
    t.dst = f.dst;
    t.size = Bytes(f.bytes);
    t.channel = channel++;
    fabric.start(t, f.start);
  }
  StormRun out;
  out.innocent_done = Time::infinity();
  std::vector<Completion> done;
  while (fabric.outstanding() > 0 && fabric.next_event() <= limit) {
    done.clear();
    fabric.advance(limit, done);
    for (const Completion& c : done) {
      if (c.id == 4 && c.what == Completion::What::delivered) out.innocent_done = c.at;
    }
  }
  if (fabric.outstanding() == 0) {
    while (fabric.next_event() != Time::infinity()) fabric.advance(Time::infinity(), done);
    fabric.check_conservation();
  }
  out.flows = fabric.transfers();
  out.totals = fabric.totals();
  return out;
}

// B: L11, L12: a broken NIC stops the fabric until a watchdog of 100 ms (NIC) or 200 ms (switch).
TEST(Published, WatchdogsContainAStorm) {
  const std::string nic = "fabric.switch.pfc.nic_watchdog=100ms";
  const std::string tor = "fabric.switch.pfc.watchdog=200ms";
  const Time never = Time::infinity();
  const StormRun calm = storm({}, Time::ms(1), Time::ms(400));  // off as soon as on
  EXPECT_LT(calm.innocent_done, Time::ms(30));

  const StormRun none = storm({}, never, Time::ms(400));
  EXPECT_EQ(none.innocent_done, never);
  EXPECT_EQ(none.totals.watchdog_events, 0U);
  EXPECT_EQ(none.totals.drops, 0U);

  const StormRun by_nic = storm({nic}, never, Time::ms(400));
  EXPECT_GT(by_nic.innocent_done, Time::ms(100));
  EXPECT_LT(by_nic.innocent_done, Time::ms(130));
  EXPECT_EQ(by_nic.totals.watchdog_events, 1U);
  EXPECT_EQ(by_nic.totals.drops, 0U);  // nothing was thrown away
  for (const auto& f : by_nic.flows) EXPECT_GT(f.acknowledged, Time::ms(100));

  // The switch throws away what waits for the broken NIC, and frees the others.
  const StormRun by_tor = storm({tor}, Time::ms(300), Time::s(2));
  EXPECT_GT(by_tor.innocent_done, Time::ms(200));
  EXPECT_LT(by_tor.innocent_done, Time::ms(280));
  EXPECT_GE(by_tor.totals.watchdog_events, 1U);
  EXPECT_GT(by_tor.totals.drops, 0U);

  RecordProperty("calm_us", std::to_string(us(calm.innocent_done)));
  RecordProperty("nic_watchdog_us", std::to_string(us(by_nic.innocent_done)));
  RecordProperty("switch_watchdog_us", std::to_string(us(by_tor.innocent_done)));
  RecordProperty("switch_watchdog_drops", std::to_string(by_tor.totals.drops));

  // Both: the NIC's is first, so that the switch has nothing to do.
  const StormRun both = storm({nic, tor}, never, Time::ms(400));
  EXPECT_EQ(both.totals.watchdog_events, 1U);
  EXPECT_EQ(both.innocent_done, by_nic.innocent_done);
}

TEST(Published, IncastOf64And1000DropsNothing) {
  for (const auto& [name, senders, bytes] :
       {std::tuple<std::string, size_t, double>{"incast-64", 64, 1e6},
        {"incast-1000", 1000, 1e5}}) {
    const Result r = complete(name);
    EXPECT_EQ(r.flows.size(), senders);
    EXPECT_EQ(r.totals.retransmitted, 0U);
    EXPECT_GT(r.totals.pfc_pauses, senders);
    EXPECT_EQ(r.totals.pfc_pauses, r.totals.pfc_resumes);
    // The receiver's link is the only bottleneck, and full.
    const double packets = std::ceil(bytes / 4096);
    const double ideal = static_cast<double>(senders) * (bytes + 82 * packets) * 8 / 100e3;  // us
    EXPECT_NEAR(us(r.end) / ideal, 1, 0.01);
  }
}

}  // namespace
}  // namespace trainyard
