// SPDX-License-Identifier: MIT
// Several threads simulate domains side by side: nothing that can be seen depends on how many.
#include <gtest/gtest.h>

#include <atomic>
#include <tuple>

#include "memo/worker_pool.h"
#include "tests/memo/random_job.h"

namespace trainyard::test {
namespace {

constexpr uint32_t kThreads[] = {2, 3, 8};

TEST(WorkerPool, DoesEachJobOnce) {
  for (const uint32_t threads : {1U, 2U, 5U}) {
    WorkerPool pool(threads);
    std::vector<std::atomic<uint32_t>> times(1000);
    uint64_t sum = 0;
    for (size_t round = 1; round <= 400; ++round) {
      const size_t n = 1 + round * 37 % times.size();
      std::vector<uint32_t> homes;
      for (uint32_t i = 0; i < n; ++i) homes.push_back(round % 3 == 0 ? 7 : i * 31 / 7);
      pool.run(homes, [&](uint32_t i) { times[i].fetch_add(1, std::memory_order_relaxed); });
      sum += n;
    }
    uint64_t done = 0;
    for (size_t i = 0; i < times.size(); ++i) {
      done += times[i];
      if (i > 0) {
        EXPECT_LE(times[i], times[i - 1]);
      }
    }
    EXPECT_EQ(done, sum);
  }
}

/// What was done, not only what came of it.
auto work_of(const FastPathStats& s) {
  return std::tuple(s.events, s.events_again, s.events_beside, s.domains, s.followed, s.episodes,
                    s.jumps, s.transmissions_jumped, s.merges, s.pool_merges, s.materialised,
                    s.trials, s.stepped, s.events_stepped, s.stepping_stopped, s.memo_bytes);
}

/// Random jobs of packets; faults, shared buffers and stretches among them.
TEST(Threads, PacketsAreTheSame) {
  uint64_t beside = 0;
  uint64_t pool_merges = 0;
  for (const Flavour flavour :
       {Flavour::plain, Flavour::tight, Flavour::simultaneous, Flavour::marks, Flavour::faults,
        Flavour::controllers, Flavour::classes, Flavour::layers}) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      const RandomCase c = random_case(seed, flavour);
      for (const Way way : {Way::apart, Way::memo}) {
        const Outcome one = run_case(c, way, nullptr, 1);
        beside += one.stats.events_beside;
        pool_merges += one.stats.pool_merges;
        for (const uint32_t threads : kThreads) {
          const Outcome more = run_case(c, way, nullptr, threads);
          ASSERT_EQ(difference(one, more), "") << c.text << ", " << threads << " threads";
          ASSERT_EQ(one.error, more.error) << c.text;
          ASSERT_EQ(work_of(one.stats), work_of(more.stats)) << c.text;
        }
      }
    }
  }
  EXPECT_GT(beside, 100'000U);
  EXPECT_GT(pool_merges, 0U);
}

/// Islands of eight hosts under two leaves with one link between them.
Topology islands(uint32_t n) {
  Topology t;
  for (uint32_t h = 0; h < 8 * n; ++h) t.add_node("host" + std::to_string(h), NodeKind::host);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t leaf = t.add_node("leaf" + std::to_string(i) + "a", NodeKind::leaf);
    t.add_node("leaf" + std::to_string(i) + "b", NodeKind::leaf);
    for (uint32_t h = 0; h < 8; ++h) {
      t.add_link(8 * i + h, leaf + h / 4, Rate::gbps(100), Time::ns(500));
    }
    t.add_link(leaf, leaf + 1, Rate::gbps(100), Time::ns(500));
    if (i > 0) t.add_link(leaf - 1, leaf, Rate::gbps(100), Time::ns(500));
  }
  t.finish();
  return t;
}

/// In every island two rings whose hops all cross its only uplink; islands are a little apart, and
/// in the end all have to wait for each other.
Job crossing_rings(uint32_t n, int64_t bytes, uint32_t steps) {
  Job job;
  job.name = "islands";
  job.ranks.resize(8 * n);
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < 8 * n; ++i) all.push_back(i);
  for (uint32_t i = 0; i < 8 * n; i += 8) {
    job.groups.push_back({"even" + std::to_string(i), {i, i + 4, i + 1, i + 5}});
    job.groups.push_back({"odd" + std::to_string(i), {i + 2, i + 6, i + 3, i + 7}});
  }
  job.groups.push_back({"all", all});
  for (uint32_t g = 0; g < 2 * n; ++g) {
    for (const uint32_t rank : job.groups[g].members) {
      auto graph = std::make_shared<OpGraph>();
      graph->streams = {{"compute", StreamOrder::fifo}};
      const auto add = [&](const Op& op) {
        graph->ops.push_back(op);
        const auto count = static_cast<uint32_t>(graph->ops.size());
        if (count > 1) graph->add_dependency(count - 2, count - 1);
      };
      for (uint32_t s = 0; s < steps; ++s) {
        Op compute;
        compute.kind = OpKind::compute;
        compute.name = graph->intern("compute");
        compute.duration = Time::us(20) + Time::ns((s == 0 ? 317 : 0) * g + 11 * (rank % 8 % 3));
        add(compute);
        Op op;
        op.kind = OpKind::collective;
        op.name = graph->intern("gather");
        op.collective = CollectiveKind::all_gather;
        op.bytes = bytes;
        add(op);
      }
      Op rest;  // until nothing is under way any more
      rest.kind = OpKind::compute;
      rest.name = graph->intern("compute");
      rest.duration = Time::us(20'000);
      add(rest);
      Op last;
      last.kind = OpKind::collective;
      last.name = graph->intern("all");
      last.collective = CollectiveKind::barrier;
      last.bytes = 8;
      last.group_slot = 1;
      add(last);
      graph->finish();
      job.ranks[rank] = {graph, {{g, 2 * n}, {}}};
    }
  }
  return job;
}

struct Islands {
  std::vector<std::string> collectives, transfers, links;
  Time end;
  uint64_t fingerprint = 0;
  FastPathStats stats;
  std::string error;
};

Islands run(const PacketConfig& config, const Job& job, FastPathOptions options, uint32_t threads) {
  const Topology topology = islands(static_cast<uint32_t>(job.ranks.size()) / 8);
  options.threads = threads;
  options.worth_sharing = 0;
  DomainFabric fabric(topology, config, options);
  const auto selector = make_collective_selector(Params(collective_params()));
  const auto compute =
      Registry::instance().factory<ComputeFactory>("compute", "trace")(Params(), {{}, "", {}});
  TimelineOptions timeline_options;
  timeline_options.host = &fabric;
  Islands o;
  try {
    Timeline timeline(job, fabric, *compute, *selector, timeline_options);
    EXPECT_TRUE(timeline.run());
    std::vector<Completion> ignored;
    while (fabric.next_event() != Time::infinity()) fabric.advance(Time::infinity(), ignored);
    fabric.check_conservation();
    for (const CollectiveRecord& r : timeline.collectives()) {
      o.collectives.push_back(r.group + " " + std::to_string(r.start.ps()) + " " +
                              std::to_string(r.finish.ps()) + " " +
                              std::to_string(r.transmissions));
    }
    o.end = timeline.end();
    o.fingerprint = timeline.fingerprint() + fabric.fingerprint();
  } catch (const SimulationError& e) {
    o.error = e.what();
    return o;
  }
  for (const LinkRecord& l : fabric.links()) {
    o.links.push_back(l.from + ">" + l.to + " " + std::to_string(l.packets) + " " +
                      std::to_string(l.bytes) + " " + std::to_string(l.ecn_marks) + " " +
                      std::to_string(l.busy.ps()) + " " + std::to_string(l.peak_queue_bytes));
  }
  o.stats = fabric.stats();
  return o;
}

void expect_same(const Islands& a, const Islands& b, const std::string& what) {
  EXPECT_EQ(a.error, b.error) << what;
  EXPECT_EQ(a.fingerprint, b.fingerprint) << what;
  EXPECT_EQ(a.end, b.end) << what;
  EXPECT_EQ(a.collectives, b.collectives) << what;
  EXPECT_EQ(a.links, b.links) << what;
  EXPECT_EQ(work_of(a.stats), work_of(b.stats)) << what;
  EXPECT_EQ(a.stats.audit_events, b.stats.audit_events) << what;
  EXPECT_EQ(a.stats.audit_sum_pct, b.stats.audit_sum_pct) << what;
}

/// Dice decide, so that domains are stepped after a trial; the audit looks at some.
TEST(Threads, SteppedDomainsAreTheSame) {
  PacketConfig config = base_config(CongestionControl::dcqcn);
  config.buffer = 256 << 20;
  const Job job = crossing_rings(6, 16'000'000, 2);
  for (const bool shared_noise : {false, true}) {
    config.shared_noise = shared_noise;
    config.noise_variants = 2;
    FastPathOptions options;
    options.stepping = true;
    options.audit_budget = 0.5;
    const Islands one = run(config, job, options, 1);
    EXPECT_EQ(one.error, "");
    EXPECT_EQ(one.collectives.size(), 2U * 6 * 2 + 1);
    EXPECT_GE(one.stats.trials, 1U);
    EXPECT_GE(one.stats.stepped, shared_noise ? 3U : 6U);
    EXPECT_EQ(one.stats.followed > 0, shared_noise);
    EXPECT_GE(one.stats.events_beside, 5'000U);
    for (const uint32_t threads : kThreads) {
      expect_same(one, run(config, job, options, threads),
                  std::to_string(threads) + (shared_noise ? " threads, shared" : " threads"));
    }
  }
}

/// All begin alike on the packet engine: followers beside leaders.
TEST(Threads, FollowersAreTheSame) {
  PacketConfig config = base_config(CongestionControl::none);
  config.buffer = 256 << 20;
  config.ecn = EcnMark::off;  // no dice
  const Job job = crossing_rings(4, 400'000, 4);
  const Islands one = run(config, job, {}, 1);
  EXPECT_EQ(one.error, "");
  EXPECT_GE(one.stats.followed, 1U);
  EXPECT_GE(one.stats.events_beside, 10'000U);
  for (const uint32_t threads : kThreads) {
    expect_same(one, run(config, job, {}, threads), std::to_string(threads) + " threads");
  }
}

/// Several domains fail at about the same time: it is told of the same one.
TEST(Threads, AnErrorIsThatOfOneThread) {
  PacketConfig config = base_config(CongestionControl::none);
  config.buffer = 64 << 10;
  config.headroom_rule = HeadroomRule::fixed;
  config.headroom_fixed = 0;
  const Job job = crossing_rings(6, 4'000'000, 1);
  FastPathOptions options;
  options.memo = false;
  const Islands one = run(config, job, options, 1);
  EXPECT_NE(one.error.find("dropped in the lossless class"), std::string::npos) << one.error;
  for (const uint32_t threads : kThreads) {
    EXPECT_EQ(run(config, job, options, threads).error, one.error) << threads;
  }
}

}  // namespace
}  // namespace trainyard::test
