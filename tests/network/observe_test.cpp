// SPDX-License-Identifier: MIT
// What a run can be asked to look at: series of queue pairs, followed packets, flow records of
// switches, counters of NICs, peaks of buffers. Cases by hand, balances against what is counted
// anyway, and that looking changes nothing.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "network/packet/observe_packets.h"
#include "network/packet/observe_qps.h"
#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

using namespace test;
using Kind = FabricChange::Kind;

constexpr uint64_t kAll = uint64_t{1} << 32;
// A packet of 1048 B at 100 Gb/s, and an ACK of 60 B.
constexpr int64_t kPacket = 83'840, kAck = 4'800, kUs = 1'000'000;

ObserveOptions everything(Time window = Time::ns(700)) {
  ObserveOptions o;
  o.qp_window = window;
  o.sample_q32 = kAll;
  o.flows = true;
  return o;
}

struct Seen {
  Outcome outcome;
  Observations o;
};

Seen look(const Topology& topology, const PacketConfig& config, const std::vector<Flow>& flows,
          const ObserveOptions& options, const std::vector<FabricChange>& changes = {}) {
  PacketFabric fabric(topology, config);
  fabric.observe(options);
  std::vector<RateEvent> rates;
  fabric.record_rates(&rates);
  for (const FabricChange& c : changes) fabric.schedule(c);
  for (const Flow& f : flows) start(fabric, f);
  Seen s;
  auto completions = drain(fabric);
  s.outcome = outcome_of(fabric);
  s.outcome.completions = std::move(completions);
  s.outcome.rates = std::move(rates);
  s.o = fabric.take_observations();
  return s;
}

FabricChange change(Kind kind, uint32_t link, int64_t at_ps, uint64_t value = 0) {
  FabricChange c;
  c.kind = kind;
  c.link = link;
  c.at = Time::ps(at_ps);
  c.value_q32 = value;
  return c;
}

std::vector<Flow> incast(uint32_t senders, int64_t bytes) {
  std::vector<Flow> flows;
  for (uint32_t h = 0; h < senders; ++h) flows.push_back({h, senders, bytes, Time()});
  return flows;
}

Scenario pausing() {
  return hpcc_sizes()
      .set("pfc.mode", "static")
      .set("pfc.xoff", "10000B")
      .set("pfc.reserve", "0B")
      .set("pfc.headroom", "100KB");
}

Scenario dcqcn() {
  return hpcc_sizes().set("congestion", "dcqcn").set("ecn.kmin", "10KB").set("ecn.kmax", "40KB");
}

Scenario spraying() {
  return hpcc_sizes()
      .set("transport.loss_recovery", "selective-repeat")
      .set("balancing", "spray")
      .set("ecmp.paths", "16");
}

/// Networks that show all that is observed: name, topology, configuration, flows, changes.
struct Case {
  const char* name;
  Topology topology;
  PacketConfig config;
  std::vector<Flow> flows;
  std::vector<FabricChange> changes;
};

std::vector<Case> cases() {
  const std::vector<Flow> across = {{0, 4, 400'000, Time()},
                                    {1, 5, 400'000, Time()},
                                    {2, 4, 90'500, Time::us(3)},
                                    {5, 0, 77'000, Time::us(1)}};
  std::vector<Case> out;
  out.push_back({"pauses", star(5), pausing().make(), incast(4, 200'000), {}});
  out.push_back({"dcqcn", star(5), dcqcn().make(), incast(4, 300'000), {}});
  out.push_back(
      {"cnp packets", star(5), dcqcn().set("cc.cnp", "packet").make(), incast(4, 300'000), {}});
  out.push_back(
      {"hpcc", two_tiers(2, 4, 2), hpcc_sizes().set("congestion", "hpcc").make(), across, {}});
  out.push_back(
      {"timely", two_tiers(2, 4, 2), hpcc_sizes().set("congestion", "timely").make(), across, {}});
  out.push_back({"spray", two_tiers(2, 4, 4), spraying().make(), across, {}});
  out.push_back({"flowlets",
                 two_tiers(2, 4, 4),
                 hpcc_sizes()
                     .set("transport.loss_recovery", "selective-repeat")
                     .set("balancing", "flowlet")
                     .set("ecmp.paths", "8")
                     .set("ecmp.gap", "1us")
                     .make(),
                 across,
                 {}});
  out.push_back({"losses",
                 star(3, Rate::gbps(100), Time::us(1), 0.01),
                 hpcc_sizes()
                     .set("transport.nack_interval", "1us")
                     .set("transport.retransmit_timeout", "100us")
                     .set("transport.retry_limit", "50")
                     .make(),
                 {{0, 2, 300'000, Time()}, {1, 2, 200'000, Time()}},
                 {}});
  out.push_back({"losses, selective",
                 star(3, Rate::gbps(100), Time::us(1), 0.01),
                 hpcc_sizes()
                     .set("transport.loss_recovery", "selective-repeat")
                     .set("transport.retransmit_timeout", "100us")
                     .set("transport.retry_limit", "50")
                     .make(),
                 {{0, 2, 300'000, Time()}, {1, 2, 200'000, Time()}},
                 {}});
  out.push_back({"slow receiver",
                 star(3),
                 hpcc_sizes()
                     .set("transport.receive_rate", "20Gbps")
                     .set("transport.receive_buffer", "128KiB")
                     .make(),
                 {{0, 2, 600'000, Time()}},
                 {}});
  // Links 8 and 9 are leaf0's; both fail for a while, one after the other.
  out.push_back({"re-routes",
                 two_tiers(2, 4, 2),
                 hpcc_sizes()
                     .set("ecmp.convergence", "5us")
                     .set("transport.retransmit_timeout", "50us")
                     .set("transport.retry_limit", "50")
                     .make(),
                 across,
                 {change(Kind::link_down, 8, 10 * kUs), change(Kind::link_up, 8, 40 * kUs),
                  change(Kind::link_down, 9, 60 * kUs), change(Kind::link_up, 9, 90 * kUs)}});
  return out;
}

TEST(Observe, TrajectoryStaysTheSame) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const Seen without = look(c.topology, c.config, c.flows, {}, c.changes);
    const Seen with = look(c.topology, c.config, c.flows, everything(), c.changes);
    expect_same(without.outcome, with.outcome);
    for (size_t i = 0; i < without.outcome.links.size(); ++i) {
      EXPECT_EQ(without.outcome.links[i].bytes, with.outcome.links[i].bytes);
      EXPECT_EQ(without.outcome.links[i].peak_queue_bytes, with.outcome.links[i].peak_queue_bytes);
    }
    // What is counted always is counted without being asked.
    ASSERT_EQ(without.o.nics.size(), with.o.nics.size());
    EXPECT_TRUE(without.o.qps.empty());
    EXPECT_TRUE(without.o.qp_series.qps.empty());
    EXPECT_TRUE(without.o.samples.packets.empty());
    EXPECT_TRUE(without.o.flows.rows.empty());
    EXPECT_FALSE(with.o.samples.packets.empty());
    EXPECT_FALSE(with.o.flows.rows.empty());
  }
}

// --- queue pairs ------------------------------------------------------------------------------

// Ten packets of 1000 B leave one after the other; windows of 100 ns hold those that begin in them.
TEST(Observe, QueuePairByHand) {
  ObserveOptions options;
  options.qp_window = Time::ns(100);
  const Seen s = look(star(2), hpcc_sizes().make(), {{0, 1, 9'500, Time(), 7}}, options);
  ASSERT_EQ(s.o.qps.size(), 1U);
  EXPECT_EQ(s.o.qps[0].src, 0U);
  EXPECT_EQ(s.o.qps[0].dst, 1U);
  EXPECT_EQ(s.o.qps[0].channel, 7U);
  EXPECT_EQ(s.o.qps[0].source_port, kSourcePortBase);
  ASSERT_EQ(s.o.qp_series.qps.size(), 1U);
  std::map<int64_t, int64_t> packets, bytes;
  for (int64_t k = 0; k < 10; ++k) {
    ++packets[k * kPacket / 100'000];
    bytes[k * kPacket / 100'000] += k == 9 ? 500 : 1000;
  }
  const auto& rows = s.o.qp_series.qps[0];
  ASSERT_EQ(rows.size(), packets.size());
  for (const QpSeries::Row& row : rows) {
    EXPECT_EQ(row.packets, packets.at(row.window));
    EXPECT_EQ(row.payload_bytes, bytes.at(row.window));
    EXPECT_EQ(row.rate_bps, 100'000'000'000);
  }
}

TEST(Observe, WindowsOfQueuePairsSumToWhatWasSent) {
  for (const Case& c : cases()) {
    for (const Time window : {Time::ns(50), Time::us(3), Time::s(1)}) {
      SCOPED_TRACE(std::string(c.name) + " " + print_time(window));
      const Seen s = look(c.topology, c.config, c.flows, everything(window), c.changes);
      int64_t packets = 0, payload = 0;
      ASSERT_EQ(s.o.qp_series.qps.size(), s.o.qps.size());
      for (const auto& rows : s.o.qp_series.qps) {
        int64_t before = -1;
        for (const auto& row : rows) {
          EXPECT_GT(row.window, before);
          before = row.window;
          packets += row.packets;
          payload += row.payload_bytes;
        }
      }
      EXPECT_EQ(packets, static_cast<int64_t>(s.outcome.totals.data_packets));
      // What the first links carried.
      int64_t sent = 0;
      for (const auto& link : s.outcome.links) {
        if (link.from.rfind("host", 0) == 0) sent += link.data_bytes;
      }
      EXPECT_EQ(payload, sent);
    }
  }
}

// At the end of each window stands the rate of the last decision before it.
TEST(Observe, RatesAreThoseOfTheController) {
  for (const char* cc : {"dcqcn", "hpcc", "timely"}) {
    SCOPED_TRACE(cc);
    const PacketConfig config =
        std::string(cc) == "dcqcn" ? dcqcn().make() : hpcc_sizes().set("congestion", cc).make();
    ObserveOptions options;
    options.qp_window = Time::us(1);
    const Seen s = look(star(5), config, incast(4, 300'000), options);
    ASSERT_GT(s.outcome.rates.size(), 3U);
    size_t compared = 0;
    for (uint32_t qp = 0; qp < s.o.qp_series.qps.size(); ++qp) {
      for (const auto& row : s.o.qp_series.qps[qp]) {
        const int64_t end = (row.window + 1) * kUs;
        int64_t rate = 100'000'000'000;
        for (const RateEvent& e : s.outcome.rates) {
          if (e.qp == qp && e.time_ps < end) rate = e.rate_bps;
        }
        EXPECT_EQ(row.rate_bps, rate) << qp << " " << row.window;
        compared += rate != 100'000'000'000;
      }
    }
    EXPECT_GT(compared, 3U);
  }
}

/// Four queue pairs that send and change their rates in a pattern.
QpSeries regular(size_t most_rows, Time window) {
  QpTelemetry t(window, most_rows);
  for (int64_t k = 0; k < 3'000; ++k) {
    const auto qp = static_cast<uint32_t>(k % 4);
    const int64_t now = k * 7'000 + (k / 500) * 900'000;
    t.sent(qp, now, 100 + k % 7, 1'000 + k / 40);
    if (k % 5 == 0) t.rate((qp + 1) % 4, now, 2'000 + k / 90);
  }
  return t.finish(5);
}

TEST(Observe, TooManyRowsDoubleTheWindow) {
  const QpSeries fine = regular(1'000'000, Time::ns(10));
  EXPECT_EQ(fine.window, fine.asked);
  const QpSeries coarse = regular(1'000, Time::ns(10));
  EXPECT_EQ(coarse.asked, Time::ns(10));
  EXPECT_GT(coarse.window, Time::ns(10));
  size_t rows = 0;
  for (const auto& qp : coarse.qps) rows += qp.size();
  EXPECT_LE(rows, 1'000U);
  EXPECT_GT(rows, 250U);
  // The same as asking for the longer window at once.
  const QpSeries direct = regular(1'000'000, coarse.window);
  ASSERT_EQ(coarse.qps.size(), 5U);
  ASSERT_EQ(direct.qps.size(), 5U);
  for (size_t i = 0; i < 5; ++i) {
    ASSERT_EQ(direct.qps[i].size(), coarse.qps[i].size()) << i;
    for (size_t k = 0; k < direct.qps[i].size(); ++k) {
      EXPECT_EQ(direct.qps[i][k].window, coarse.qps[i][k].window) << i << " " << k;
      EXPECT_EQ(direct.qps[i][k].payload_bytes, coarse.qps[i][k].payload_bytes) << i << " " << k;
      EXPECT_EQ(direct.qps[i][k].packets, coarse.qps[i][k].packets) << i << " " << k;
      EXPECT_EQ(direct.qps[i][k].rate_bps, coarse.qps[i][k].rate_bps) << i << " " << k;
    }
  }
  EXPECT_TRUE(coarse.qps[4].empty());
}

// --- followed packets -------------------------------------------------------------------------

// Two hosts send ten packets each into one port. Both k-th packets are at the switch together, and
// twenty leave one after the other: those of host 0 wait for k others, those of host 1 for k + 1.
TEST(Observe, QueueingByHand) {
  ObserveOptions options;
  options.sample_q32 = kAll;
  const Seen s =
      look(star(3), hpcc_sizes().make(), {{0, 2, 10'000, Time()}, {1, 2, 10'000, Time()}}, options);
  ASSERT_EQ(s.o.samples.packets.size(), 20U);
  for (const PacketSample& p : s.o.samples.packets) {
    const int64_t k = p.seq / 1000;
    EXPECT_EQ(p.sent_ps, k * kPacket);
    EXPECT_EQ(p.payload_bytes, 1000);
    EXPECT_EQ(p.fate, PacketSample::Fate::delivered);
    ASSERT_EQ(p.hops.size(), 2U);
    EXPECT_EQ(s.outcome.links[p.hops[0].link].from, "host" + std::to_string(s.o.qps[p.qp].src));
    EXPECT_EQ(s.outcome.links[p.hops[1].link].to, "host2");
    EXPECT_EQ(p.hops[0].queueing_ps, 0);
    EXPECT_EQ(p.hops[1].queueing_ps, (k + s.o.qps[p.qp].src) * kPacket);
    for (const auto& hop : p.hops) EXPECT_EQ(hop.line_ps, kPacket + kUs);
    EXPECT_EQ(p.receiver_wait_ps, 0);
    EXPECT_EQ(p.delivered_ps, 2 * (kPacket + kUs) + (2 * k + s.o.qps[p.qp].src) * kPacket);
  }
}

TEST(Observe, DelaysAddUp) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const Seen s = look(c.topology, c.config, c.flows, everything(), c.changes);
    const auto& packets = s.o.samples.packets;
    EXPECT_EQ(packets.size(), s.outcome.totals.data_packets);
    std::map<uint32_t, int64_t> last;  // per queue pair
    std::map<uint32_t, std::pair<uint64_t, int64_t>> carried;
    uint64_t lost = 0;
    int64_t waited = 0, received = 0;
    for (const PacketSample& p : packets) {
      int64_t sum = p.receiver_wait_ps;
      ASSERT_FALSE(p.hops.empty());
      for (const auto& hop : p.hops) {
        EXPECT_GE(hop.queueing_ps, 0);
        sum += hop.queueing_ps + hop.line_ps;
        carried[hop.link].second += p.payload_bytes;
      }
      for (size_t i = 1; i < p.hops.size(); ++i) {
        EXPECT_EQ(s.outcome.links[p.hops[i - 1].link].to, s.outcome.links[p.hops[i].link].from);
      }
      waited += p.receiver_wait_ps;
      ASSERT_NE(p.fate, PacketSample::Fate::under_way);
      if (p.fate == PacketSample::Fate::lost) {
        ++lost;
        continue;
      }
      EXPECT_EQ(p.delivered_ps - p.sent_ps, sum);
      received += p.payload_bytes;
      last[p.qp] = std::max(last[p.qp], p.delivered_ps);
    }
    EXPECT_GE(received, s.outcome.totals.payload_bytes);
    EXPECT_LE(lost, s.outcome.totals.drops);
    EXPECT_EQ(lost > 0, s.outcome.totals.retransmitted > 0);
    EXPECT_EQ(waited > 0, std::string(c.name) == "slow receiver");
    for (size_t i = 0; i < s.outcome.links.size(); ++i) {
      EXPECT_EQ(carried[static_cast<uint32_t>(i)].second, s.outcome.links[i].data_bytes);
    }
    if (lost > 0) continue;
    // The last packet of each message completes it; here every message has its queue pair.
    ASSERT_EQ(s.o.qps.size(), s.outcome.records.size());
    for (const TransferRecord& r : s.outcome.records) {
      for (uint32_t q = 0; q < s.o.qps.size(); ++q) {
        if (s.o.qps[q].src == r.src && s.o.qps[q].dst == r.dst) {
          EXPECT_EQ(last[q], r.delivered.ps());
        }
      }
    }
  }
}

// A tenth of the packets is a part of all of them, about a tenth, and another one with other seeds.
TEST(Observe, SamplesAreDrawn) {
  std::vector<std::set<std::pair<uint32_t, int64_t>>> chosen;
  for (const uint64_t seed : {1U, 1U, 2U}) {
    ObserveOptions options;
    options.sample_q32 = kAll / 10;
    options.seed = seed;
    const Seen s = look(star(3), hpcc_sizes().make(),
                        {{0, 2, 5'000'000, Time()}, {1, 2, 5'000'000, Time()}}, options);
    std::set<std::pair<uint32_t, int64_t>> set;
    for (const auto& p : s.o.samples.packets) set.insert({p.qp, p.seq});
    EXPECT_EQ(set.size(), s.o.samples.packets.size());
    // 10,000 packets: 1,000 of them with a standard deviation of 30.
    EXPECT_NEAR(static_cast<double>(set.size()), 1000, 150);
    chosen.push_back(std::move(set));
  }
  EXPECT_EQ(chosen[0], chosen[1]);
  EXPECT_NE(chosen[0], chosen[2]);
}

// Too many hops: what is left is what a smaller share would have followed.
TEST(Observe, TooManyHopsThinTheSample) {
  const auto follow = [](uint64_t ratio, size_t most) {
    PacketTracer t(ratio, 5, most);
    // Three packets under way at any time.
    for (uint32_t k = 0; k < 1000; ++k) {
      if (k >= 3) t.ended(k % 3, 10 * k, PacketSample::Fate::delivered);
      t.sent(k % 3, k % 7, k % 7, k, 100, 10 * k);
      for (uint32_t h = 0; h < 4; ++h) {
        t.queued(k % 3, 10 * k + h);
        t.hop(k % 3, h, 10 * k + 2 * h, 5);
      }
    }
    return t.finish();
  };
  const PacketSamples all = follow(kAll, 1'000'000);
  EXPECT_EQ(all.packets.size(), 1000U);
  const PacketSamples thin = follow(kAll, 300);
  EXPECT_EQ(thin.asked_q32, kAll);
  EXPECT_LT(thin.ratio_q32, kAll / 8);
  size_t hops = 0;
  for (const auto& p : thin.packets) hops += p.hops.size();
  EXPECT_LE(hops, 300U);
  EXPECT_GT(hops, 50U);
  const PacketSamples direct = follow(thin.ratio_q32, 1'000'000);
  ASSERT_EQ(direct.packets.size(), thin.packets.size());
  for (size_t i = 0; i < thin.packets.size(); ++i) {
    EXPECT_EQ(direct.packets[i].seq, thin.packets[i].seq);
    EXPECT_EQ(direct.packets[i].delivered_ps, thin.packets[i].delivered_ps);
    ASSERT_EQ(direct.packets[i].hops.size(), 4U);
    for (size_t h = 0; h < 4; ++h) {
      EXPECT_EQ(thin.packets[i].hops[h].queueing_ps, static_cast<int64_t>(h));
    }
  }
}

// --- flow records -----------------------------------------------------------------------------

TEST(Observe, FlowRecordsByHand) {
  ObserveOptions options;
  options.flows = true;
  const Seen s = look(star(2), hpcc_sizes().make(), {{0, 1, 10'000, Time()}}, options);
  ASSERT_EQ(s.o.flows.rows.size(), 2U);
  for (const SwitchFlowRecord& f : s.o.flows.rows) {
    const LinkRecord& out = s.outcome.links[f.out_link];
    EXPECT_EQ(out.from, "leaf0");
    EXPECT_EQ(out.to, f.control ? "host0" : "host1");
    EXPECT_EQ(s.outcome.links[f.in_link].from, f.control ? "host1" : "host0");
    EXPECT_EQ(f.packets, 10U);
    EXPECT_EQ(f.bytes, f.control ? 600 : 10'480);
    const int64_t first = f.control ? 3 * kUs + 2 * kPacket + kAck : kUs + kPacket;
    EXPECT_EQ(f.first_ps, first);
    EXPECT_EQ(f.last_ps, first + 9 * kPacket);
  }
}

// What a switch passed on is what its links carried, whatever path packets took.
TEST(Observe, FlowRecordsAreTheLinks) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const Seen s = look(c.topology, c.config, c.flows, everything(), c.changes);
    const auto& links = s.outcome.links;
    std::vector<int64_t> out_bytes(links.size(), 0), in_bytes(links.size(), 0);
    std::vector<uint64_t> out_packets(links.size(), 0);
    std::set<std::tuple<uint32_t, uint32_t, uint32_t, bool>> keys;
    for (const SwitchFlowRecord& f : s.o.flows.rows) {
      EXPECT_TRUE(keys.insert({f.in_link, f.out_link, f.qp, f.control}).second);
      EXPECT_EQ(links[f.in_link].to, links[f.out_link].from);
      EXPECT_LE(f.first_ps, f.last_ps);
      out_bytes[f.out_link] += f.bytes;
      out_packets[f.out_link] += f.packets;
      in_bytes[f.in_link] += f.bytes;
    }
    uint64_t pauses = 0;
    int64_t pause_bytes = 0;
    for (size_t i = 0; i < links.size(); ++i) {
      const bool from_host = links[i].from.rfind("host", 0) == 0;
      EXPECT_LE(in_bytes[i], links[i].bytes);
      if (from_host) {
        EXPECT_EQ(out_packets[i], 0U);
        continue;
      }
      pauses += links[i].packets - out_packets[i];
      pause_bytes += links[i].bytes - out_bytes[i];
    }
    // Pauses are of links, not of flows. Those of a slow receiver come from its NIC.
    if (std::string(c.name) == "pauses") {
      EXPECT_GT(pauses, 0U);
      EXPECT_EQ(pauses, s.outcome.totals.pfc_frames);
      EXPECT_EQ(pause_bytes, static_cast<int64_t>(pauses) * c.config.pfc_frame);
    } else {
      EXPECT_EQ(pauses, 0U);
      EXPECT_EQ(pause_bytes, 0);
    }
    if (std::string(c.name) == "re-routes") {
      EXPECT_GT(s.outcome.totals.reroutes, 0U);
    }
  }
}

// A sprayed queue pair has a record per spine, and they share the packets.
TEST(Observe, SprayedFlowsHaveOneRecordPerWay) {
  const Seen s =
      look(two_tiers(2, 1, 4), spraying().make(), {{0, 1, 400'000, Time()}}, everything());
  std::map<std::string, uint64_t> packets;
  for (const SwitchFlowRecord& f : s.o.flows.rows) {
    if (!f.control) packets[s.outcome.links[f.out_link].from] += f.packets;
  }
  EXPECT_EQ(packets.size(), 6U);
  EXPECT_EQ(packets["leaf0"], 400U);
  EXPECT_EQ(packets["leaf1"], 400U);
  for (int spine = 0; spine < 4; ++spine) EXPECT_GT(packets["spine" + std::to_string(spine)], 20U);
}

// --- NICs -------------------------------------------------------------------------------------

const NicRecord& nic_of(const Seen& s, const std::string& host) {
  for (const NicRecord& n : s.o.nics) {
    if (s.outcome.links[n.link].from == host) return n;
  }
  throw std::runtime_error("no NIC of " + host);
}

// The eleventh of a hundred packets is lost on its way to the host. Those behind it that were sent
// before the NACK was back are out of sequence; then everything from there on comes again.
TEST(Observe, OneLostPacketByHand) {
  const int64_t arrival = 10 * kPacket + 2 * (kPacket + kUs);
  const Seen s = look(star(2), hpcc_sizes().make(), {{0, 1, 100'000, Time()}}, {},
                      {change(Kind::link_loss, 1, arrival - 10'000, kAll),
                       change(Kind::link_loss, 1, arrival + 10'000)});
  EXPECT_EQ(s.outcome.totals.drops, 1U);
  const int64_t nack_back = arrival + kPacket + 2 * (kAck + kUs);
  const int64_t sent_before = nack_back / kPacket + 1;  // numbers 0 .. nack_back / kPacket
  const NicRecord& sender = nic_of(s, "host0");
  const NicRecord& receiver = nic_of(s, "host1");
  EXPECT_EQ(receiver.out_of_sequence, static_cast<uint64_t>(sent_before - 11));
  EXPECT_EQ(receiver.nacks_sent, 1U);
  EXPECT_EQ(sender.nacks_received, 1U);
  EXPECT_EQ(sender.out_of_sequence + sender.nacks_sent + receiver.nacks_received, 0U);
  EXPECT_EQ(sender.ack_timeouts, 0U);
  EXPECT_EQ(s.outcome.totals.retransmitted, static_cast<uint64_t>(sent_before - 10));
}

TEST(Observe, NicsBalance) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const Seen s = look(c.topology, c.config, c.flows, {}, c.changes);
    uint64_t timeouts = 0, nacks = 0, nacks_back = 0, cnps = 0, cnps_back = 0, reported = 0;
    uint64_t out_of_sequence = 0;
    for (const NicRecord& n : s.o.nics) {
      EXPECT_EQ(n.pauses_received, s.outcome.links[n.link].pauses_received);
      timeouts += n.ack_timeouts;
      nacks += n.nacks_sent;
      nacks_back += n.nacks_received;
      cnps += n.cnps_sent;
      cnps_back += n.cnps_received;
      out_of_sequence += n.out_of_sequence;
    }
    for (const TransferRecord& r : s.outcome.records) reported += r.cnps;
    EXPECT_EQ(timeouts, s.outcome.totals.timeouts);
    EXPECT_EQ(nacks, s.outcome.totals.nacks);
    EXPECT_EQ(cnps_back, reported);
    const bool lossy = s.outcome.totals.drops > 0;
    if (lossy) {
      EXPECT_LE(nacks_back, nacks);
    } else {
      EXPECT_EQ(nacks_back, nacks);
      EXPECT_EQ(cnps_back, cnps);
    }
    if (std::string(c.name) == "dcqcn" || std::string(c.name) == "cnp packets") {
      EXPECT_GT(cnps, 5U);
      EXPECT_EQ(nic_of(s, "host4").cnps_sent, cnps);
      for (const TransferRecord& r : s.outcome.records) {
        EXPECT_EQ(nic_of(s, "host" + std::to_string(r.src)).cnps_received, r.cnps);
      }
      if (std::string(c.name) == "cnp packets") {
        EXPECT_EQ(s.outcome.totals.cnp_packets, cnps);
      }
    }
    if (std::string(c.name) == "losses") {
      EXPECT_GT(nacks, 0U);
      EXPECT_GE(out_of_sequence, nacks);
    }
    if (std::string(c.name) == "spray") {
      EXPECT_GT(out_of_sequence, 0U);
      EXPECT_EQ(out_of_sequence, s.outcome.totals.out_of_order);
    }
    if (std::string(c.name) == "pauses") {
      EXPECT_GT(nic_of(s, "host0").pauses_received, 0U);
      EXPECT_EQ(nic_of(s, "host0").pauses_sent, 0U);
    }
  }
}

TEST(Observe, SlowReceiverPausesAndFillsItsBuffer) {
  const Seen s = look(star(3),
                      hpcc_sizes()
                          .set("transport.receive_rate", "20Gbps")
                          .set("transport.receive_buffer", "128KiB")
                          .make(),
                      {{0, 2, 600'000, Time()}}, {});
  const NicRecord& receiver = nic_of(s, "host2");
  EXPECT_GT(receiver.pauses_sent, 0U);
  EXPECT_EQ(receiver.pauses_sent, link_between(s.outcome, "leaf0", "host2").pauses_received);
  // Pauses at a half; what comes after is a round trip's worth: 2 us at 100 Gb/s less what is
  // taken meanwhile, and the packets under way.
  EXPECT_GT(receiver.receive_buffer_peak_bytes, 64 * 1024 + 20'000 - 2 * 1048);
  EXPECT_LT(receiver.receive_buffer_peak_bytes, 64 * 1024 + 25'000);
  EXPECT_EQ(nic_of(s, "host0").receive_buffer_peak_bytes, 0);
}

TEST(Observe, LinksThatFlap) {
  const Seen s = look(star(3),
                      hpcc_sizes()
                          .set("transport.retransmit_timeout", "50us")
                          .set("transport.retry_limit", "50")
                          .make(),
                      {{0, 2, 600'000, Time()}, {1, 2, 100'000, Time()}}, {},
                      {change(Kind::link_down, 0, 10 * kUs), change(Kind::link_up, 0, 12 * kUs),
                       change(Kind::link_down, 0, 20 * kUs), change(Kind::link_up, 0, 25 * kUs)});
  EXPECT_EQ(nic_of(s, "host0").link_downs, 2U);
  EXPECT_EQ(nic_of(s, "host1").link_downs, 0U);
  EXPECT_EQ(nic_of(s, "host2").link_downs, 0U);
  EXPECT_GT(nic_of(s, "host0").ack_timeouts + nic_of(s, "host0").nacks_received, 0U);
}

// --- buffers ----------------------------------------------------------------------------------

// The case of QueueingByHand, nothing reserved: just before the tenth packet leaves the switch, the
// tenth pair has come: 20 - 9 packets are there.
TEST(Observe, PoolPeakByHand) {
  const Seen s = look(star(3), hpcc_sizes().set("pfc.reserve", "0B").make(),
                      {{0, 2, 10'000, Time()}, {1, 2, 10'000, Time()}}, {});
  ASSERT_EQ(s.o.switches.size(), 1U);
  EXPECT_EQ(s.o.switches[0].name, "leaf0");
  EXPECT_EQ(s.o.switches[0].pool_peak_bytes, 11 * 1048);
  EXPECT_GT(s.o.switches[0].pool_bytes, 60 << 20);
  EXPECT_TRUE(s.o.headrooms.empty());
}

// One host at 100 Gb/s into a port of 10 Gb/s. From the packet behind the threshold on, a pause and
// the line hold 2 us worth of data, 25,000 B, of which a tenth leaves meanwhile.
TEST(Observe, HeadroomPeakByHand) {
  Topology t;
  t.add_node("host0", NodeKind::host);
  t.add_node("host1", NodeKind::host);
  t.add_node("leaf0", NodeKind::leaf);
  t.add_link(0, 2, Rate::gbps(100), Time::us(1));
  t.add_link(1, 2, Rate::gbps(10), Time::us(1));
  t.finish();
  const Seen s = look(t, pausing().make(), {{0, 1, 200'000, Time()}}, {});
  EXPECT_GT(s.outcome.totals.pfc_pauses, 0U);
  ASSERT_EQ(s.o.headrooms.size(), 1U);
  EXPECT_EQ(s.outcome.links[s.o.headrooms[0].link].from, "host0");
  EXPECT_EQ(s.outcome.links[s.o.headrooms[0].link].to, "leaf0");
  EXPECT_EQ(s.o.headrooms[0].headroom_bytes, 100'000);
  EXPECT_GT(s.o.headrooms[0].peak_bytes, 25'000 - 2'500 - 2 * 1048);
  EXPECT_LT(s.o.headrooms[0].peak_bytes, 25'000 + 1048);
  // The pool takes what is below the threshold.
  EXPECT_GT(s.o.switches[0].pool_peak_bytes, 10'000 - 1048);
  EXPECT_LE(s.o.switches[0].pool_peak_bytes, 10'000);
}

}  // namespace
}  // namespace trainyard
