// SPDX-License-Identifier: MIT
// The approximate part of the fast path beside full packet runs: where it steps, how far off it is,
// when it goes back to packets, what the audit says.
#include <gtest/gtest.h>

#include "tests/memo/random_job.h"

namespace trainyard::test {
namespace {

/// Eight hosts under two leaves, one spine.
Topology two_leaves() {
  Topology t;
  for (uint32_t h = 0; h < 8; ++h) t.add_node("host" + std::to_string(h), NodeKind::host);
  t.add_node("leaf0", NodeKind::leaf);
  t.add_node("leaf1", NodeKind::leaf);
  t.add_node("spine0", NodeKind::spine);
  for (uint32_t h = 0; h < 8; ++h) t.add_link(h, 8 + h / 4, Rate::gbps(100), Time::ns(500));
  t.add_link(8, 10, Rate::gbps(100), Time::ns(500));
  t.add_link(9, 10, Rate::gbps(100), Time::ns(500));
  t.finish();
  return t;
}

struct Step {
  CollectiveKind kind;
  int64_t bytes;
  int64_t late_ns = 0;  ///< of the second member of every group
};

/// All members of all groups do the steps, with 200 us of compute before each.
Job job_of(const std::vector<std::vector<uint32_t>>& groups, const std::vector<Step>& steps) {
  Job job;
  job.name = "fast";
  uint32_t hosts = 0;
  for (const auto& members : groups) {
    job.groups.push_back({"group" + std::to_string(job.groups.size()), members});
    for (const uint32_t m : members) hosts = std::max(hosts, m + 1);
  }
  job.ranks.resize(hosts);
  for (uint32_t g = 0; g < groups.size(); ++g) {
    for (size_t i = 0; i < groups[g].size(); ++i) {
      auto graph = std::make_shared<OpGraph>();
      graph->streams = {{"compute", StreamOrder::fifo}};
      uint32_t last = 0;
      for (const Step& s : steps) {
        Op compute;
        compute.kind = OpKind::compute;
        compute.name = graph->intern("compute");
        compute.duration = Time::us(200) + Time::ns(i == 1 ? s.late_ns : 0);
        graph->ops.push_back(compute);
        Op op;
        op.kind = OpKind::collective;
        op.name = graph->intern("collective");
        op.collective = s.kind;
        op.bytes = s.bytes;
        graph->ops.push_back(op);
        const auto n = static_cast<uint32_t>(graph->ops.size());
        if (n > 2) graph->add_dependency(last, n - 2);
        graph->add_dependency(n - 2, n - 1);
        last = n - 1;
      }
      graph->finish();
      job.ranks[groups[g][i]] = {graph, {{g}, {}}};
    }
  }
  return job;
}

struct Fast {
  std::vector<CollectiveRecord> collectives;
  Time end;
  uint64_t fingerprint = 0, pauses = 0;
  FastPathStats stats;
};

Fast run(const Topology& topology, const PacketConfig& config, const Job& job, bool stepping,
         double audit = 0) {
  FastPathOptions options;
  options.stepping = stepping;
  options.audit_budget = audit;
  DomainFabric fabric(topology, config, options);
  const auto selector = make_collective_selector(Params(collective_params()));
  const DeviceCard card;
  const auto compute =
      Registry::instance().factory<ComputeFactory>("compute", "trace")(Params(), {card, "", {}});
  TimelineOptions timeline_options;
  timeline_options.host = &fabric;
  Timeline timeline(job, fabric, *compute, *selector, timeline_options);
  EXPECT_TRUE(timeline.run());
  std::vector<Completion> ignored;
  while (fabric.next_event() != Time::infinity()) fabric.advance(Time::infinity(), ignored);
  fabric.check_conservation();
  EXPECT_EQ(fabric.outstanding(), 0U);
  return {timeline.collectives(), timeline.end(), timeline.fingerprint() + fabric.fingerprint(),
          fabric.totals().pfc_pauses, fabric.stats()};
}

PacketConfig config_of(CongestionControl congestion) {
  PacketConfig c = base_config(congestion);
  c.buffer = 256 << 20;
  return c;
}

TEST(Fast, StepsRingsThatContendAndSaysHowFarOffItIs) {
  const Topology topology = two_leaves();
  const PacketConfig config = config_of(CongestionControl::dcqcn);
  // Every hop of both rings crosses the only uplink.
  const Job job = job_of({{0, 4, 1, 5}, {2, 6, 3, 7}}, {{CollectiveKind::all_reduce, 16'000'000},
                                                        {CollectiveKind::all_gather, 4'000'000}});
  const Fast packets = run(topology, config, job, false);
  const Fast fast = run(topology, config, job, true, 1.0);
  EXPECT_EQ(packets.stats.stepped, 0U);
  EXPECT_GE(fast.stats.stepped, 1U);
  // At least the all-reduces: two rings of four, each sending 2 x 3/4 of 16 MB.
  EXPECT_GE(fast.stats.bytes_stepped, 192'000'000);
  EXPECT_LT(fast.stats.events, packets.stats.events / 4);
  ASSERT_EQ(fast.collectives.size(), packets.collectives.size());
  // Marks are dice, and four senders share a link: single runs differ by some percent.
  const double ratio = static_cast<double>(fast.end.ps()) / static_cast<double>(packets.end.ps());
  EXPECT_NEAR(ratio, 1.0, 0.08);
  const Fast again = run(topology, config, job, true);
  EXPECT_EQ(again.fingerprint, fast.fingerprint);  // and the audit changes nothing
  EXPECT_EQ(again.stats.audit_n, 0U);
}

TEST(Fast, AuditComparesWhatWasStepped) {
  const Topology topology = two_leaves();
  const PacketConfig config = config_of(CongestionControl::none);
  // Without congestion control nothing is left to dice; what two rings on disjoint links do is
  // known, the third and later times at which members come are not.
  std::vector<Step> steps;
  for (int64_t i = 0; i < 6; ++i) steps.push_back({CollectiveKind::all_gather, 3'000'000, 700 * i});
  const Job job = job_of({{0, 1, 2, 3}}, steps);
  const Fast packets = run(topology, config, job, false);
  const Fast fast = run(topology, config, job, true, 1e6);
  EXPECT_EQ(fast.stats.stepped, 4U);  // the first two were packets
  EXPECT_EQ(fast.stats.audited, 4U);
  EXPECT_EQ(fast.stats.audit_n, 16U);  // members
  EXPECT_EQ(fast.stats.bytes_audited, fast.stats.bytes_stepped);
  EXPECT_LT(fast.stats.audit_max_pct, 1.0);
  ASSERT_EQ(fast.collectives.size(), packets.collectives.size());
  for (size_t i = 0; i < fast.collectives.size(); ++i) {
    const double a = (fast.collectives[i].finish - fast.collectives[i].start).seconds();
    const double b = (packets.collectives[i].finish - packets.collectives[i].start).seconds();
    EXPECT_NEAR(a, b, 0.01 * b) << i;
    if (i < 2) {
      EXPECT_EQ(a, b) << i;
    }
    EXPECT_EQ(fast.collectives[i].wire_payload, packets.collectives[i].wire_payload) << i;
    EXPECT_EQ(fast.collectives[i].transmissions, packets.collectives[i].transmissions) << i;
  }
}

TEST(Fast, GoesBackToPacketsWhereTheyPause) {
  const Topology topology = two_leaves();
  PacketConfig config = config_of(CongestionControl::none);
  config.buffer = 4 << 20;
  const Job job = job_of({{0, 4, 1, 5}, {2, 6, 3, 7}}, {{CollectiveKind::all_gather, 8'000'000}});
  const Fast packets = run(topology, config, job, false);
  const Fast fast = run(topology, config, job, true);
  ASSERT_GT(packets.pauses, 0U);
  EXPECT_GE(fast.stats.stepping_stopped, 1U);
  EXPECT_EQ(fast.stats.stepped, 0U);
  EXPECT_EQ(fast.pauses, packets.pauses);
  EXPECT_EQ(fast.end, packets.end);
}

}  // namespace
}  // namespace trainyard::test
