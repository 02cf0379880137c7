// SPDX-License-Identifier: MIT
// The approximate part of the fast path beside full packet runs: where it steps, how far off it is,
// when it goes back to packets, what the audit says.
#include <gtest/gtest.h>

#include <map>

#include "tests/memo/random_job.h"

namespace trainyard::test {
namespace {

/// Islands of eight hosts under two leaves, with one spine each.
Topology two_leaves(uint32_t islands = 1) {
  Topology t;
  const uint32_t hosts = 8 * islands;
  for (uint32_t h = 0; h < hosts; ++h) t.add_node("host" + std::to_string(h), NodeKind::host);
  for (uint32_t i = 0; i < islands; ++i) {
    const std::string n = std::to_string(i);
    const uint32_t leaf = t.add_node("leaf" + n + "a", NodeKind::leaf);
    t.add_node("leaf" + n + "b", NodeKind::leaf);
    const uint32_t spine = t.add_node("spine" + n, NodeKind::spine);
    for (uint32_t h = 0; h < 8; ++h) {
      t.add_link(8 * i + h, leaf + h / 4, Rate::gbps(100), Time::ns(500));
    }
    t.add_link(leaf, spine, Rate::gbps(100), Time::ns(500));
    t.add_link(leaf + 1, spine, Rate::gbps(100), Time::ns(500));
    if (i > 0) t.add_link(spine - 3, spine, Rate::gbps(100), Time::ns(500));
  }
  t.finish();
  return t;
}

/// Every hop of both rings of an island crosses its only uplink.
std::vector<std::vector<uint32_t>> crossing_rings(uint32_t islands = 1) {
  std::vector<std::vector<uint32_t>> out;
  for (uint32_t i = 0; i < 8 * islands; i += 8) {
    out.push_back({i, i + 4, i + 1, i + 5});
    out.push_back({i + 2, i + 6, i + 3, i + 7});
  }
  return out;
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
         double audit = 0, int64_t ignored_pauses_ppm = 10'000) {
  FastPathOptions options;
  options.ignored_pauses_ppm = ignored_pauses_ppm;
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
  PacketConfig config = config_of(CongestionControl::dcqcn);
  const Job job = job_of(crossing_rings(), {{CollectiveKind::all_reduce, 16'000'000},
                                            {CollectiveKind::all_gather, 4'000'000}});
  // Marks are dice, and four senders share a link: single runs differ by some percent.
  double packets_us = 0, fast_us = 0;
  for (config.seed = 1; config.seed <= 24; ++config.seed) {
    packets_us += run(topology, config, job, false).end.micros();
    fast_us += run(topology, config, job, true).end.micros();
  }
  EXPECT_NEAR(fast_us / packets_us, 1.0, 0.02);
  config.seed = 1;
  const Fast packets = run(topology, config, job, false);
  const Fast fast = run(topology, config, job, true, 1.0);
  EXPECT_EQ(packets.stats.stepped, 0U);
  EXPECT_GE(fast.stats.stepped, 1U);
  // At least the all-reduces: two rings of four, each sending 2 x 3/4 of 16 MB.
  EXPECT_GE(fast.stats.bytes_stepped, 192'000'000);
  EXPECT_LT(fast.stats.events, packets.stats.events / 4);
  ASSERT_EQ(fast.collectives.size(), packets.collectives.size());
  const Fast again = run(topology, config, job, true);
  EXPECT_EQ(again.fingerprint, fast.fingerprint);  // and the audit changes nothing
  EXPECT_EQ(again.stats.audit_n, 0U);
}

/// Eight flows cross the uplink of each of two islands; a message between the islands comes later.
struct Meeting {
  std::vector<TransferRecord> flows;
  std::vector<uint64_t> bytes;  ///< by link
  FastPathStats stats;
  uint64_t fingerprint = 0;
};

Meeting meet(bool joins) {
  const Topology topology = two_leaves(2);
  FastPathOptions options;
  options.stepping = true;
  options.joins = joins;
  DomainFabric fabric(topology, config_of(CongestionControl::dcqcn), options);
  for (uint32_t island = 0; island < 2; ++island) {
    for (uint32_t h = 0; h < 4; ++h) {
      Transfer t;
      t.src = 8 * island + h;
      t.dst = 8 * island + 4 + h;
      t.size = Bytes(20'000'000 + 1'000'000 * h);
      fabric.start(t, Time());
    }
  }
  Transfer between;
  between.src = 1;
  between.dst = 14;
  between.size = Bytes(8'000'000);
  fabric.start(between, Time::us(2'500));
  std::vector<Completion> ignored;
  while (fabric.next_event() != Time::infinity()) fabric.advance(Time::infinity(), ignored);
  fabric.check_conservation();
  Meeting out{fabric.transfers(), {}, fabric.stats(), fabric.fingerprint()};
  for (const LinkRecord& l : fabric.links()) out.bytes.push_back(static_cast<uint64_t>(l.bytes));
  return out;
}

TEST(Fast, DomainsThatMeetGoOnFromWhereTheyAre) {
  const Meeting joined = meet(true);
  const Meeting again = meet(false);
  ASSERT_EQ(joined.stats.merges, 1U);
  EXPECT_EQ(joined.stats.joined, 1U);
  EXPECT_EQ(again.stats.joined, 0U);
  // Both domains were under way for longer than the rest takes.
  EXPECT_LT(joined.stats.events_again, again.stats.events_again);
  EXPECT_LT(joined.stats.events, again.stats.events);
  // The same as from the start.
  EXPECT_EQ(joined.fingerprint, again.fingerprint);
  EXPECT_EQ(joined.bytes, again.bytes);
  ASSERT_EQ(joined.flows.size(), 9U);
  for (size_t i = 0; i < joined.flows.size(); ++i) {
    EXPECT_EQ(joined.flows[i].delivered, again.flows[i].delivered) << i;
    EXPECT_EQ(joined.flows[i].cnps, again.flows[i].cnps) << i;
    EXPECT_EQ(joined.flows[i].transmissions, again.flows[i].transmissions) << i;
  }
}

TEST(Fast, AuditComparesWhatWasStepped) {
  const Topology topology = two_leaves();
  // Without congestion control nothing is left to dice, but queues grow and no state returns: the
  // first domain turns out to be costly.
  const PacketConfig config = config_of(CongestionControl::none);
  std::vector<Step> steps;
  for (int64_t i = 0; i < 4; ++i) {
    steps.push_back({CollectiveKind::all_gather, 16'000'000, 701 * i});
  }
  const Job job = job_of(crossing_rings(), steps);
  const Fast packets = run(topology, config, job, false);
  const Fast fast = run(topology, config, job, true, 1e6);
  EXPECT_EQ(packets.stats.trials, 0U);
  EXPECT_GE(fast.stats.trials, 1U);
  EXPECT_GE(fast.stats.stepped, 3U);
  EXPECT_EQ(fast.stats.audited, fast.stats.stepped);
  EXPECT_EQ(fast.stats.audit_n, 8 * fast.stats.stepped);  // members
  EXPECT_EQ(fast.stats.bytes_audited, fast.stats.bytes_stepped);
  EXPECT_LT(fast.stats.audit_max_pct, 1.0);
  ASSERT_EQ(fast.collectives.size(), packets.collectives.size());
  for (size_t i = 0; i < fast.collectives.size(); ++i) {
    const double a = (fast.collectives[i].finish - fast.collectives[i].start).seconds();
    const double b = (packets.collectives[i].finish - packets.collectives[i].start).seconds();
    // Neither is more right: without control, who is served how often is settled by chance.
    EXPECT_NEAR(a, b, 0.05 * b) << i;
    EXPECT_EQ(fast.collectives[i].wire_payload, packets.collectives[i].wire_payload) << i;
    EXPECT_EQ(fast.collectives[i].transmissions, packets.collectives[i].transmissions) << i;
  }
}

/// With shared noise domains that do the same draw alike and follow each other although dice
/// decide, as packets and stepped.
TEST(Fast, SharedNoiseMakesTwins) {
  const Topology topology = two_leaves(2);
  PacketConfig config = config_of(CongestionControl::dcqcn);
  const std::vector<Step> steps(3, {CollectiveKind::all_gather, 16'000'000});
  const Job job = job_of(crossing_rings(2), steps);
  for (const bool stepping : {false, true}) {
    config.shared_noise = false;
    config.noise_variants = 1;
    const Fast own = run(topology, config, job, stepping);
    EXPECT_GT(own.stats.dice_domains, 0U);
    EXPECT_EQ(own.stats.followed, 0U);
    config.shared_noise = true;
    const Fast shared = run(topology, config, job, stepping);
    EXPECT_GE(shared.stats.followed, 1U) << stepping;
    EXPECT_EQ(shared.stats.bytes_followed_stepped > 0, stepping);
    EXPECT_NE(shared.fingerprint, own.fingerprint);
    ASSERT_EQ(shared.collectives.size(), 12U);
    std::map<std::string, Time> finish;
    for (const auto& c : shared.collectives) finish[c.group] = std::max(finish[c.group], c.finish);
    EXPECT_EQ(finish["group0"], finish["group2"]) << stepping;
    EXPECT_EQ(finish["group1"], finish["group3"]) << stepping;
    // Sets of dice by place: islands need not be alike any more.
    config.noise_variants = 1000;
    const Fast variants = run(topology, config, job, stepping);
    EXPECT_LT(variants.stats.followed, shared.stats.followed) << stepping;
  }
}

TEST(Fast, GoesBackToPacketsWhereTheyPause) {
  const Topology topology = two_leaves();
  PacketConfig config = config_of(CongestionControl::none);
  config.buffer = 4 << 20;
  const Job job = job_of(crossing_rings(), {{CollectiveKind::all_gather, 8'000'000}});
  const Fast packets = run(topology, config, job, false);
  ASSERT_GT(packets.pauses, 0U);
  for (const int64_t ppm : {0, 10'000}) {
    const Fast fast = run(topology, config, job, true, 0, ppm);
    EXPECT_GE(fast.stats.stepping_stopped, 1U) << ppm;
    EXPECT_EQ(fast.stats.stepped, 0U) << ppm;
    EXPECT_EQ(fast.pauses, packets.pauses) << ppm;
    EXPECT_EQ(fast.end, packets.end) << ppm;
  }
  // Where more is allowed they are left out, and counted.
  const Fast fast = run(topology, config, job, true, 0, 10'000'000);
  EXPECT_EQ(fast.stats.stepping_stopped, 0U);
  EXPECT_GE(fast.stats.stepped, 1U);
  EXPECT_GE(fast.stats.pauses_not_followed, 1U);
  EXPECT_EQ(fast.pauses, 0U);
  EXPECT_NEAR(fast.end.seconds() / packets.end.seconds(), 1, 0.05);
}

}  // namespace
}  // namespace trainyard::test
