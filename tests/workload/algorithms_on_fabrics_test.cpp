// SPDX-License-Identifier: MIT
// Every collective algorithm through the timeline on rails, packet by packet: it ends, balances,
// repeats itself, and the exact fast path changes no bit of it.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "memo/domain_fabric.h"
#include "network/packet/packet_fabric.h"
#include "sim/dice.h"
#include "sim/registry.h"
#include "sim/timeline.h"
#include "tests/memo/random_job.h"
#include "workload/collective_params.h"
#include "workload/placement.h"

namespace trainyard::test {
namespace {

class Uneven final : public Exchanges {
 public:
  [[nodiscard]] std::shared_ptr<const std::vector<int64_t>> sizes(
      uint32_t group, uint32_t members, uint32_t exchange) const override {
    auto out = std::make_shared<std::vector<int64_t>>(size_t{members} * members);
    for (size_t i = 0; i < out->size(); ++i) {
      const uint64_t d = dice(group, 5, exchange, i);
      (*out)[i] = d % 4 == 0 ? 0 : static_cast<int64_t>(d % 60'000);
    }
    return out;
  }
  [[nodiscard]] uint64_t load_q32(uint32_t, uint32_t, uint32_t, uint32_t) const override {
    return uint64_t{1} << 32;
  }
};

struct Setting {
  std::string topology = "rail-optimized";
  std::string algorithm;
  CollectiveKind kind = CollectiveKind::all_reduce;
  uint32_t nodes = 3, gpus = 4;
  std::vector<std::vector<uint32_t>> groups = {};  ///< empty: all ranks
  uint32_t without = UINT32_MAX;  ///< rank that takes no part: servers of unlike size
  bool uneven = false;            ///< shares of an all-to-all
  bool together = false;          ///< all ranks come at once; else at times of their own
};

Topology topology_of(const Setting& s) {
  const auto& r = Registry::instance();
  TopologyRequest request;
  request.gpus_per_node = request.nics_per_node = s.gpus;
  request.nodes = s.nodes;
  return r.factory<TopologyFactory>("topology", s.topology)(
      request, Params(r.get("topology", s.topology).params));
}

/// The collective three times, of all ranks but one.
Job job_of(const Setting& s) {
  Job job;
  job.name = "collectives";
  const uint32_t ranks = s.nodes * s.gpus;
  std::vector<uint32_t> group_of(ranks, 0);
  for (const auto& members : s.groups) {
    for (const uint32_t r : members) group_of[r] = static_cast<uint32_t>(job.groups.size());
    job.groups.push_back({"group" + std::to_string(job.groups.size()), members});
  }
  if (s.groups.empty()) job.groups.push_back({"all", {}});
  for (uint32_t r = 0; r < ranks && s.groups.empty(); ++r) {
    if (r != s.without) job.groups[0].members.push_back(r);
  }
  if (s.uneven) job.exchanges = std::make_shared<Uneven>();
  for (uint32_t r = 0; r < ranks; ++r) {
    auto g = std::make_shared<OpGraph>();
    g->streams = {{"compute", StreamOrder::fifo}, {"comm", StreamOrder::fifo}};
    const auto add = [&](Op op) {
      op.source_id = g->ops.size();
      op.name = g->intern("op" + std::to_string(g->ops.size()));
      g->ops.push_back(op);
      return static_cast<uint32_t>(g->ops.size() - 1);
    };
    Op compute;
    compute.kind = OpKind::compute;
    compute.duration = Time::us(s.together ? 1 : 1 + (r * 7) % 5);
    uint32_t last = add(compute);
    for (uint32_t k = 0; k < (s.together ? 1 : 3) && r != s.without; ++k) {
      Op op;
      op.kind = OpKind::collective;
      op.collective = s.kind;
      op.bytes = s.kind == CollectiveKind::all_gather ? 30'011 : 300'011;
      op.exchange = s.uneven ? 1 + k : 0;
      op.stream = 1;
      const uint32_t id = add(op);
      g->add_dependency(last, id);
      last = id;
    }
    g->finish();
    RankProgram p;
    p.graph = g;
    p.binding.groups = {group_of[r]};
    job.ranks.push_back(p);
  }
  return job;
}

struct Result {
  Time end;
  uint64_t fingerprint = 0, fabric = 0;
  int64_t payload = 0;
  std::vector<std::string> links, algorithms;
};

Result run(const Setting& s, Way way) {
  const Topology topology = topology_of(s);
  const PacketConfig config = make_packet_config(
      {Params(transport_params()), "dcqcn", Params(dcqcn_params()), "ecmp", Params(ecmp_params()),
       Params(buffer_params()), Params(pfc_params()), Params(ecn_params()), 1});
  std::unique_ptr<Fabric> fabric;
  DomainFabric* domains = nullptr;
  if (way == Way::none) {
    fabric = std::make_unique<PacketFabric>(topology, config);
  } else {
    FastPathOptions how;
    how.partition = how.memo = how.jumps = way == Way::memo;
    auto owned = std::make_unique<DomainFabric>(topology, config, how);
    domains = owned.get();
    fabric = std::move(owned);
  }
  Params params(collective_params());
  params.set("algorithm", s.algorithm, {});
  const auto selector = make_collective_selector(params);
  const auto compute = Registry::instance().factory<ComputeFactory>("compute", "trace")(
      Params(), {DeviceCard(), "", {}});
  const Job job = job_of(s);
  TimelineOptions options;
  options.placement = placement_on(topology);
  options.host = domains;
  Timeline timeline(job, *fabric, *compute, *selector, options);
  EXPECT_TRUE(timeline.run());
  std::vector<Completion> ignored;
  while (fabric->next_event() != Time::infinity()) fabric->advance(Time::infinity(), ignored);
  fabric->check_conservation();
  Result out;
  out.end = timeline.end();
  out.fingerprint = timeline.fingerprint();
  out.fabric = fabric->fingerprint();
  out.payload = fabric->totals().payload_bytes;
  EXPECT_EQ(0U, fabric->totals().drops);
  for (const LinkRecord& l : fabric->links()) {
    if (l.packets == 0) continue;
    out.links.push_back(l.from + ">" + l.to + " " + std::to_string(l.packets) + " " +
                        std::to_string(l.bytes) + " " + std::to_string(l.busy.ps()));
  }
  std::sort(out.links.begin(), out.links.end());
  for (const auto& c : timeline.collectives()) out.algorithms.push_back(c.algorithm);
  return out;
}

std::vector<std::pair<const char*, CollectiveKind>> everything() {
  using K = CollectiveKind;
  return {{"tree", K::all_reduce},
          {"tree", K::broadcast},
          {"tree", K::reduce},
          {"tree", K::barrier},
          {"halving-doubling", K::all_reduce},
          {"halving-doubling", K::all_gather},
          {"halving-doubling", K::reduce_scatter},
          {"pairwise", K::all_to_all},
          {"nvls-tree", K::all_reduce},
          {"hierarchical", K::all_reduce},
          {"hierarchical", K::all_gather},
          {"hierarchical", K::reduce_scatter},
          {"hierarchical", K::all_to_all}};
}

void expect_same(const Result& a, const Result& b) {
  EXPECT_EQ(a.end, b.end);
  EXPECT_EQ(a.fingerprint, b.fingerprint);
  EXPECT_EQ(a.fabric, b.fabric);
  EXPECT_EQ(a.payload, b.payload);
  EXPECT_EQ(a.links, b.links);
}

class OnFabrics : public ::testing::TestWithParam<size_t> {};

TEST_P(OnFabrics, EndsBalancesRepeatsAndJumpsExactly) {
  const auto [algorithm, kind] = everything()[GetParam()];
  for (const uint32_t without : {UINT32_MAX, 5U}) {
    for (const bool uneven : {false, true}) {
      if (uneven && kind != CollectiveKind::all_to_all) continue;
      Setting s;
      s.algorithm = algorithm;
      s.kind = kind;
      s.without = without;
      s.uneven = uneven;
      SCOPED_TRACE(::testing::Message()
                   << algorithm << " " << collective_name(kind)
                   << (without != UINT32_MAX ? ", a rank less" : "") << (uneven ? ", uneven" : ""));
      const Result plain = run(s, Way::none);
      EXPECT_EQ(std::vector<std::string>(3, algorithm), plain.algorithms);
      EXPECT_GT(plain.payload, 0);
      expect_same(plain, run(s, Way::none));
      const Result hosted = run(s, Way::memo);
      expect_same(run(s, Way::off), hosted);
      EXPECT_EQ(plain.payload, hosted.payload);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OnFabrics, ::testing::Range(size_t{0}, everything().size()));

// Without a host queue pairs open with their first message, hosted in the order of the plan. Where
// these are the same, so is everything that the timeline sees.
TEST(OnFabrics, OfOneStartTheHostChangesNothing) {
  for (const auto& [algorithm, kind] : everything()) {
    const bool in_turn = std::string(algorithm) == "pairwise" ||
                         kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce;
    if (in_turn) continue;
    Setting s;
    s.algorithm = algorithm;
    s.kind = kind;
    s.together = true;
    SCOPED_TRACE(::testing::Message() << algorithm << " " << collective_name(kind));
    const Result plain = run(s, Way::none);
    const Result hosted = run(s, Way::memo);
    EXPECT_EQ(plain.end, hosted.end);
    EXPECT_EQ(plain.fingerprint, hosted.fingerprint);
    EXPECT_EQ(plain.links, hosted.links);
  }
}

TEST(Nvls, OnOneServer) {
  Setting s;
  s.algorithm = "nvls";
  s.nodes = 1;
  s.gpus = 8;
  const Result plain = run(s, Way::none);
  EXPECT_EQ(std::vector<std::string>(3, "nvls"), plain.algorithms);
  EXPECT_EQ(3 * (8 * 300'011 + 300'011), plain.payload);
  expect_same(run(s, Way::off), run(s, Way::memo));
}

// Rails that meet in servers only: what changes its rail outside of them has no path.
TEST(RailOnly, HierarchicalReachesEveryPair) {
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                    CollectiveKind::reduce_scatter, CollectiveKind::all_to_all}) {
    for (const uint32_t without : {UINT32_MAX, 5U}) {
      Setting s;
      s.topology = "rail-only";
      s.algorithm = "hierarchical";
      s.kind = kind;
      s.without = without;
      SCOPED_TRACE(::testing::Message() << collective_name(kind) << " without " << without);
      const Result plain = run(s, Way::none);
      EXPECT_EQ(std::vector<std::string>(3, "hierarchical"), plain.algorithms);
      const Result hosted = run(s, Way::memo);
      expect_same(run(s, Way::off), hosted);
      EXPECT_EQ(plain.payload, hosted.payload);
    }
  }
  Setting s;
  s.topology = "rail-only";
  s.algorithm = "pairwise";
  s.kind = CollectiveKind::all_to_all;
  EXPECT_THROW(run(s, Way::none), UserError);
}

// Groups alike in servers that differ in rails must not share what was remembered of one.
TEST(RailOnly, GroupsOfUnlikeRailsAreToldApart) {
  Setting s;
  s.topology = "rail-only";
  s.algorithm = "hierarchical";
  s.kind = CollectiveKind::all_to_all;
  s.nodes = 2;
  s.groups = {{0, 1, 4, 5}, {2, 3, 7, 6}};
  expect_same(run(s, Way::off), run(s, Way::memo));
}

// Small random jobs of several groups and streams; see tests/memo.
TEST(RandomJobs, JumpExactly) {
  for (const char* algorithm :
       {"tree", "halving-doubling", "pairwise", "hierarchical", "nvls", "nvls-tree"}) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      RandomCase c = random_case(seed, Flavour::plain);
      c.algorithm = algorithm;
      const Outcome none = run_case(c, Way::none);
      const Outcome off = run_case(c, Way::off);
      const Outcome memo = run_case(c, Way::memo);
      EXPECT_EQ("", none.error) << algorithm << " " << c.text;
      EXPECT_EQ(none.payload, memo.payload) << algorithm << " " << c.text;
      EXPECT_EQ(off.end, memo.end) << algorithm << " " << c.text;
      EXPECT_EQ(off.timeline, memo.timeline) << algorithm << " " << c.text;
      EXPECT_EQ(off.links, memo.links) << algorithm << " " << c.text;
      EXPECT_EQ(off.fabric, memo.fabric) << algorithm << " " << c.text;
      if (HasFailure()) return;
    }
  }
}

// Credits are granted in the order of the plan: no algorithm may wait for itself.
TEST(Credits, NoAlgorithmHangs) {
  for (const auto& [algorithm, kind] : everything()) {
    Setting s;
    s.algorithm = algorithm;
    s.kind = kind;
    const Topology topology = topology_of(s);
    const PacketConfig config = make_packet_config(
        {Params(transport_params()), "dcqcn", Params(dcqcn_params()), "ecmp", Params(ecmp_params()),
         Params(buffer_params()), Params(pfc_params()), Params(ecn_params()), 1});
    PacketFabric fabric(topology, config);
    Params params(collective_params());
    params.set("algorithm", algorithm, {});
    params.set("admission", "credits", {});
    params.set("outstanding", "1", {});
    const auto selector = make_collective_selector(params);
    const auto compute = Registry::instance().factory<ComputeFactory>("compute", "trace")(
        Params(), {DeviceCard(), "", {}});
    const Job job = job_of(s);
    TimelineOptions options;
    options.placement = placement_on(topology);
    Timeline timeline(job, fabric, *compute, *selector, options);
    EXPECT_NO_THROW(timeline.run()) << algorithm << " " << collective_name(kind);
  }
}

}  // namespace
}  // namespace trainyard::test
