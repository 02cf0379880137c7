// SPDX-License-Identifier: MIT
// Time series of links: sums, peaks, a case by hand, and that looking changes nothing.
#include <algorithm>

#include "network/packet/telemetry.h"
#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

using namespace test;

struct Recorded {
  Outcome outcome;
  LinkSeries series;
};

Recorded run_recorded(const Topology& topology, const PacketConfig& config,
                      const std::vector<Flow>& flows, Time window) {
  PacketFabric fabric(topology, config);
  fabric.record_links(window);
  for (const Flow& f : flows) start(fabric, f);
  Recorded r;
  drain(fabric);
  r.outcome = outcome_of(fabric);
  r.series = fabric.take_link_series();
  return r;
}

const std::vector<LinkSeries::Row>& rows_of(const Recorded& r, const std::string& from,
                                            const std::string& to) {
  for (size_t i = 0; i < r.outcome.links.size(); ++i) {
    if (r.outcome.links[i].from == from && r.outcome.links[i].to == to) return r.series.links[i];
  }
  throw std::runtime_error("no link from " + from + " to " + to);
}

/// What must hold for every series beside the totals of its link.
void expect_sums(const std::vector<LinkRecord>& links, const LinkSeries& series) {
  ASSERT_EQ(links.size(), series.links.size());
  for (size_t i = 0; i < links.size(); ++i) {
    const std::string name = links[i].from + " -> " + links[i].to;
    int64_t bytes = 0, payload = 0, paused = 0, peak = 0, before = -1, queue = 0;
    for (const LinkSeries::Row& row : series.links[i]) {
      EXPECT_GT(row.window, before) << name;
      before = row.window;
      EXPECT_TRUE(row.bytes != 0 || row.paused_ps != 0 || row.queue_bytes != queue ||
                  row.queue_max_bytes != queue)
          << name << ": a row without change";
      EXPECT_GE(row.queue_max_bytes, std::max(row.queue_bytes, queue)) << name;
      EXPECT_LE(row.paused_ps, series.window.ps()) << name;
      // A packet may have begun to leave before the window: at most one byte is rounded.
      EXPECT_LE(row.bytes, bytes_in(links[i].rate, series.window).count() + 1) << name;
      EXPECT_LE(row.payload_bytes, row.bytes) << name;
      bytes += row.bytes;
      payload += row.payload_bytes;
      paused += row.paused_ps;
      peak = std::max(peak, row.queue_max_bytes);
      queue = row.queue_bytes;
    }
    EXPECT_EQ(bytes, links[i].bytes) << name;
    EXPECT_EQ(payload, links[i].data_bytes) << name;
    EXPECT_EQ(paused, links[i].paused.ps()) << name;
    EXPECT_EQ(peak, links[i].peak_queue_bytes) << name;
    EXPECT_EQ(queue, 0) << name;
  }
}

PacketConfig pausing() {
  return hpcc_sizes()
      .set("pfc.mode", "static")
      .set("pfc.xoff", "10000B")
      .set("pfc.reserve", "0B")
      .set("pfc.headroom", "100KB")
      .make();
}

std::vector<Flow> incast(uint32_t senders, int64_t bytes) {
  std::vector<Flow> flows;
  for (uint32_t h = 0; h < senders; ++h) flows.push_back({h, senders, bytes, Time()});
  return flows;
}

// Two hosts send ten packets of 1048 B each into one port: 83.84 ns on the wire, 12.5 B/ns. Both
// k-th packets are at the switch at 1083.84 + (k - 1) 83.84 ns; one leaves then, so k - 1 wait
// before the pair comes, k + 1 at most and k after one has left. The last of twenty ends at
// 2760.64 ns.
TEST(Telemetry, TwoFlowsByHand) {
  const Recorded r = run_recorded(star(3), hpcc_sizes().make(),
                                  {{0, 2, 10'000, Time()}, {1, 2, 10'000, Time()}}, Time::ns(100));
  EXPECT_EQ(r.series.window, Time::ns(100));
  EXPECT_EQ(r.series.asked, Time::ns(100));

  const auto& out = rows_of(r, "leaf0", "host2");
  ASSERT_EQ(out.size(), 18U);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t begin = 1'000'000 + 100'000 * static_cast<int64_t>(i);
    EXPECT_EQ(out[i].window, begin / 100'000);
    const int64_t expected = i == 0 ? 202 : i == 17 ? 758 : 1250;
    EXPECT_EQ(out[i].bytes, expected) << i;
    // Transmissions begun before the end of the window, and pairs that came.
    const int64_t sent = std::min<int64_t>(20, (begin + 100'000 - 1'083'840 - 1) / 83'840 + 1);
    const int64_t pairs = std::min<int64_t>(10, sent);
    EXPECT_EQ(out[i].queue_bytes, (2 * pairs - sent) * 1048) << i;
    EXPECT_EQ(out[i].paused_ps, 0) << i;
  }
  EXPECT_EQ(out[0].queue_max_bytes, 1048);   // the first packet left at once
  EXPECT_EQ(out[1].queue_max_bytes, 3144);   // 1167.68: 1048 + 2096
  EXPECT_EQ(out[8].queue_max_bytes, 11528);  // 1838.4: 9 x 1048 + 2096
  EXPECT_EQ(out[9].queue_max_bytes, 10480);  // falling: what the window began with
  EXPECT_EQ(out[17].queue_max_bytes, 0);

  const auto& in = rows_of(r, "host0", "leaf0");
  ASSERT_EQ(in.size(), 9U);
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(in[i].window, static_cast<int64_t>(i));
    EXPECT_EQ(in[i].bytes, i == 8 ? 480 : 1250);
  }
  // One packet, and 16.16 of 83.84 ns of the next: 192.7 of its 1000 B.
  EXPECT_EQ(in[0].payload_bytes, 1192);
  expect_sums(r.outcome.links, r.series);
}

TEST(Telemetry, WindowsSumToTheTotalsOfTheirLink) {
  // Windows shorter than a packet, about as long as the pauses, and longer than the run.
  for (const Time window : {Time::ns(7), Time::ns(333), Time::us(10), Time::s(1)}) {
    SCOPED_TRACE(print_time(window));
    const Recorded r = run_recorded(star(5), pausing(), incast(4, 300'000), window);
    EXPECT_GT(r.outcome.totals.pfc_pauses, 0U);
    expect_sums(r.outcome.links, r.series);
  }
  const Recorded spread = run_recorded(
      two_tiers(2, 4, 2), hpcc_sizes().set("congestion", "dcqcn").make(),
      {{0, 4, 400'000, Time()}, {1, 4, 400'000, Time::us(3)}, {2, 4, 90'000, Time()}}, Time::us(1));
  expect_sums(spread.outcome.links, spread.series);
}

TEST(Telemetry, TrajectoryStaysTheSame) {
  for (const bool dcqcn : {false, true}) {
    PacketConfig config = pausing();
    if (dcqcn) {
      config = hpcc_sizes()
                   .set("congestion", "dcqcn")
                   .set("ecn.kmin", "10KB")
                   .set("ecn.kmax", "40KB")
                   .make();
    }
    const Topology topology = star(5);
    const Outcome without = run(topology, config, incast(4, 300'000));
    const Recorded with = run_recorded(topology, config, incast(4, 300'000), Time::ns(500));
    expect_same(without, with.outcome);
    for (size_t i = 0; i < without.links.size(); ++i) {
      EXPECT_EQ(without.links[i].bytes, with.outcome.links[i].bytes);
      EXPECT_EQ(without.links[i].paused, with.outcome.links[i].paused);
      EXPECT_EQ(without.links[i].peak_queue_bytes, with.outcome.links[i].peak_queue_bytes);
    }
  }
}

TEST(Telemetry, OffMeansEmpty) {
  const Topology topology = star(2);
  PacketFabric fabric(topology, hpcc_sizes().make());
  start(fabric, {0, 1, 5000, Time()});
  drain(fabric);
  const LinkSeries series = fabric.take_link_series();
  EXPECT_TRUE(series.links.empty());
  EXPECT_EQ(series.window, Time());
}

TEST(Telemetry, QuietWindowsLeaveNoRows) {
  const Recorded r =
      run_recorded(star(2), hpcc_sizes().make(), {{0, 1, 1000, Time()}, {0, 1, 1000, Time::ms(50)}},
                   Time::ns(100));
  const auto& rows = rows_of(r, "host0", "leaf0");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].window, 0);
  EXPECT_EQ(rows[1].window, 500'000);
  EXPECT_EQ(rows[1].bytes, 1048);
}

// A stopped run: the packet on the wire counts whole, the pause up to now.
TEST(Telemetry, StoppedInTheMiddle) {
  const Topology topology = star(5);
  const PacketConfig config = pausing();
  PacketFabric fabric(topology, config);
  fabric.record_links(Time::ns(50));
  for (const Flow& f : incast(4, 300'000)) start(fabric, f);
  std::vector<Completion> out;
  const Time stop = Time::ps(12'345'678);
  while (fabric.advance(stop, out) < stop) {
  }
  const auto links = fabric.links();
  const LinkSeries series = fabric.take_link_series();
  int64_t paused = 0;
  for (size_t i = 0; i < links.size(); ++i) {
    int64_t bytes = 0, link_paused = 0;
    for (const auto& row : series.links[i]) {
      bytes += row.bytes;
      link_paused += row.paused_ps;
    }
    EXPECT_EQ(bytes, links[i].bytes) << i;
    EXPECT_EQ(link_paused, links[i].paused.ps()) << i;
    paused += link_paused;
  }
  EXPECT_GT(paused, 0);
}

/// One port that sends 1000 B in 10 ns every 30 ns, with a queue that rises and falls.
LinkSeries regular(size_t packets, Time window, size_t most_rows) {
  LinkTelemetry t(window, most_rows);
  int64_t now = 0;
  for (size_t i = 0; i < packets; ++i, now += 30'000) {
    const auto queue = static_cast<int64_t>(i % 7 * 1000);
    t.queued(i % 3, now, queue + 1000);
    t.sent(i % 3, now, 10'000, 1000, 900, queue);
    if (i % 5 == 0) t.paused(i % 3, now + 11'000, true);
    if (i % 5 == 0) t.paused(i % 3, now + 19'000, false);
  }
  return t.finish(now, 3);
}

TEST(Telemetry, TooManyRowsDoubleTheWindow) {
  const LinkSeries fine = regular(5000, Time::ns(20), 1'000'000);
  EXPECT_EQ(fine.window, Time::ns(20));
  const LinkSeries coarse = regular(5000, Time::ns(20), 1000);
  EXPECT_EQ(coarse.asked, Time::ns(20));
  EXPECT_GT(coarse.window, Time::ns(20));
  EXPECT_EQ(coarse.window.ps() % 20'000, 0);
  size_t rows = 0;
  for (const auto& link : coarse.links) rows += link.size();
  EXPECT_LE(rows, 1000U);
  EXPECT_GT(rows, 250U);
  // The same as asking for the longer window at once.
  const LinkSeries direct = regular(5000, coarse.window, 1'000'000);
  ASSERT_EQ(direct.links.size(), coarse.links.size());
  for (size_t i = 0; i < direct.links.size(); ++i) {
    ASSERT_EQ(direct.links[i].size(), coarse.links[i].size()) << i;
    for (size_t k = 0; k < direct.links[i].size(); ++k) {
      EXPECT_EQ(direct.links[i][k].window, coarse.links[i][k].window) << i << " " << k;
      EXPECT_EQ(direct.links[i][k].bytes, coarse.links[i][k].bytes) << i << " " << k;
      EXPECT_EQ(direct.links[i][k].payload_bytes, coarse.links[i][k].payload_bytes)
          << i << " " << k;
      EXPECT_EQ(direct.links[i][k].queue_bytes, coarse.links[i][k].queue_bytes) << i << " " << k;
      EXPECT_EQ(direct.links[i][k].queue_max_bytes, coarse.links[i][k].queue_max_bytes)
          << i << " " << k;
      EXPECT_EQ(direct.links[i][k].paused_ps, coarse.links[i][k].paused_ps) << i << " " << k;
    }
  }
}

// More links than rows: one row each is the least, and it ends.
TEST(Telemetry, MoreLinksThanRows) {
  LinkTelemetry t(Time::ns(10), 4);
  for (uint32_t port = 0; port < 50; ++port) {
    for (int k = 0; k < 3; ++k) t.sent(port, 1'000'000 * k, 5'000, 100, 100, 0);
  }
  const LinkSeries series = t.finish(3'000'000, 60);
  ASSERT_EQ(series.links.size(), 60U);
  for (uint32_t port = 0; port < 60; ++port) {
    int64_t bytes = 0;
    for (const auto& row : series.links[port]) bytes += row.bytes;
    EXPECT_EQ(bytes, port < 50 ? 300 : 0);
  }
}

}  // namespace
}  // namespace trainyard
