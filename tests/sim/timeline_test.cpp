// SPDX-License-Identifier: MIT
// The timeline over a fabric of known delays, and over the packet engine.
#include "sim/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "network/packet/packet_fabric.h"
#include "sim/errors.h"
#include "sim/registry.h"
#include "workload/collective_params.h"

namespace trainyard {
namespace {

// --- stand-ins ----------------------------------------------------------------------------------

/// Every transfer takes latency + bytes / rate, whatever else moves; its ACK comes back later.
class FixedFabric final : public Fabric {
 public:
  explicit FixedFabric(Time latency = Time::us(1), Rate rate = Rate::gbps(8),
                       Time ack = Time::us(3))
      : latency_(latency), rate_(rate), ack_(ack) {}

  TransferId start(const Transfer& t, Time at) override {
    EXPECT_NE(t.src, t.dst);
    EXPECT_GT(t.size.count(), 0);
    EXPECT_GE(at, now_);
    const auto id = static_cast<TransferId>(records_.size());
    TransferRecord r;
    r.src = t.src;
    r.dst = t.dst;
    r.owner = t.owner;
    r.bytes = t.size.count();
    r.start = at;
    r.delivered = at + latency_ + transmission_time(t.size, rate_);
    r.acknowledged = r.delivered + ack_;
    r.transmissions = 1;
    records_.push_back(r);
    pending_.emplace(std::pair{r.delivered, id}, Completion::What::delivered);
    pending_.emplace(std::pair{r.acknowledged, id}, Completion::What::acknowledged);
    ++outstanding_;
    return id;
  }
  [[nodiscard]] Time next_event() const override {
    return pending_.empty() ? Time::infinity() : pending_.begin()->first.first;
  }
  Time advance(Time limit, std::vector<Completion>& out) override {
    if (next_event() > limit) return now_;
    now_ = next_event();
    while (next_event() == now_) {
      const auto it = pending_.begin();
      out.push_back({now_, it->first.second, it->second});
      if (it->second == Completion::What::acknowledged) --outstanding_;
      pending_.erase(it);
    }
    return now_;
  }
  [[nodiscard]] size_t outstanding() const override { return outstanding_; }
  [[nodiscard]] std::string describe_stall() const override { return "stalled"; }
  void check_conservation() const override {}
  [[nodiscard]] const std::vector<TransferRecord>& transfers() const override { return records_; }
  [[nodiscard]] std::vector<LinkRecord> links() const override { return {}; }
  [[nodiscard]] FabricTotals totals() const override { return {}; }
  [[nodiscard]] uint64_t fingerprint() const override { return 0; }

 private:
  Time latency_;
  Rate rate_;
  Time ack_;
  Time now_;
  std::vector<TransferRecord> records_;
  std::multimap<std::pair<Time, TransferId>, Completion::What> pending_;
  size_t outstanding_ = 0;
};

/// Compute takes its stated duration, memory a nanosecond per byte.
class FixedCompute final : public ComputeModel {
 public:
  [[nodiscard]] Time duration(const OpGraph& graph, uint32_t op, uint32_t) const override {
    const Op& o = graph.ops[op];
    return o.kind == OpKind::memory ? Time::ns(o.bytes) : o.duration;
  }
  [[nodiscard]] std::string source() const override { return "fixed"; }
};

class Spans final : public Recorder {
 public:
  void span(const Span& s) override { all.push_back(s); }
  /// The only span of that name and kind on a rank.
  [[nodiscard]] Span find(uint32_t rank, const std::string& name, Span::Kind kind) const {
    Span found;
    int n = 0;
    for (const Span& s : all) {
      if (s.rank != rank || s.name != name || s.kind != kind) continue;
      found = s;
      ++n;
    }
    EXPECT_EQ(1, n) << "spans '" << name << "' on rank " << rank;
    return found;
  }
  [[nodiscard]] Span compute(const std::string& name, uint32_t rank = 0) const {
    return find(rank, name, Span::Kind::compute);
  }
  std::vector<Span> all;
};

constexpr uint32_t kCompute = 0, kComm = 1, kHost = 2, kReady = 3, kFifoComm = 4;
using Deps = std::vector<uint32_t>;

/// Builds a job op by op. Group 0 is everybody.
class JobMaker {
 public:
  explicit JobMaker(uint32_t ranks) : graphs_(ranks), bindings_(ranks) {
    Group world{"world", {}};
    for (uint32_t r = 0; r < ranks; ++r) {
      world.members.push_back(r);
      graphs_[r].streams = {{"compute", StreamOrder::fifo},
                            {"communication", StreamOrder::free},
                            {"host", StreamOrder::ready},
                            {"one at a time", StreamOrder::ready},
                            {"stream 20", StreamOrder::fifo}};
    }
    groups_.push_back(world);
  }
  uint32_t group(const std::string& name, std::vector<uint32_t> members) {
    groups_.push_back({name, std::move(members)});
    return static_cast<uint32_t>(groups_.size() - 1);
  }
  uint32_t compute(uint32_t rank, const std::string& name, Time duration, const Deps& deps = {},
                   uint32_t stream = kCompute) {
    Op op;
    op.kind = OpKind::compute;
    op.duration = duration;
    return add(rank, name, op, stream, deps);
  }
  uint32_t memory(uint32_t rank, const std::string& name, int64_t bytes, const Deps& deps = {}) {
    Op op;
    op.kind = OpKind::memory;
    op.bytes = bytes;
    return add(rank, name, op, kComm, deps);
  }
  uint32_t nothing(uint32_t rank, const std::string& name, const Deps& deps = {},
                   uint32_t stream = kComm) {
    return add(rank, name, Op(), stream, deps);
  }
  uint32_t collective(uint32_t rank, const std::string& name, CollectiveKind kind, int64_t bytes,
                      const Deps& deps = {}, uint32_t group = 0, uint32_t stream = kComm) {
    Op op;
    op.kind = OpKind::collective;
    op.collective = kind;
    op.bytes = bytes;
    op.group_slot = slot(bindings_[rank].groups, group);
    return add(rank, name, op, stream, deps);
  }
  uint32_t all_reduce(uint32_t rank, const std::string& name, int64_t bytes, const Deps& deps = {},
                      uint32_t group = 0) {
    return collective(rank, name, CollectiveKind::all_reduce, bytes, deps, group);
  }
  uint32_t send(uint32_t rank, const std::string& name, uint32_t to, int64_t bytes,
                const Deps& deps = {}, uint64_t tag = 0) {
    return message(OpKind::send, rank, name, to, bytes, deps, tag);
  }
  uint32_t recv(uint32_t rank, const std::string& name, uint32_t from, int64_t bytes,
                const Deps& deps = {}, uint64_t tag = 0) {
    return message(OpKind::recv, rank, name, from, bytes, deps, tag);
  }
  /// A binding by hand; slots may repeat a peer.
  RankBinding& binding(uint32_t rank) { return bindings_[rank]; }
  OpGraph& graph(uint32_t rank) { return graphs_[rank]; }

  Job finish() {
    Job job;
    job.name = "test";
    job.groups = groups_;
    for (size_t r = 0; r < graphs_.size(); ++r) {
      graphs_[r].finish();
      job.ranks.push_back(
          {std::make_shared<const OpGraph>(std::move(graphs_[r])), std::move(bindings_[r])});
    }
    return job;
  }

 private:
  static uint32_t slot(std::vector<uint32_t>& slots, uint32_t value) {
    const auto it = std::find(slots.begin(), slots.end(), value);
    if (it != slots.end()) return static_cast<uint32_t>(it - slots.begin());
    slots.push_back(value);
    return static_cast<uint32_t>(slots.size() - 1);
  }
  uint32_t message(OpKind kind, uint32_t rank, const std::string& name, uint32_t peer,
                   int64_t bytes, const Deps& deps, uint64_t tag) {
    Op op;
    op.kind = kind;
    op.bytes = bytes;
    op.tag = tag;
    op.peer_slot = slot(bindings_[rank].peers, peer);
    return add(rank, name, op, kComm, deps);
  }
  uint32_t add(uint32_t rank, const std::string& name, Op op, uint32_t stream, const Deps& deps) {
    OpGraph& g = graphs_[rank];
    const auto index = static_cast<uint32_t>(g.ops.size());
    op.name = g.intern(name);
    op.source_id = 1000 * (rank + 1) + index;
    op.stream = stream;
    g.ops.push_back(op);
    for (const uint32_t d : deps) g.add_dependency(d, index);
    return index;
  }
  std::vector<OpGraph> graphs_;
  std::vector<RankBinding> bindings_;
  std::vector<Group> groups_;
};

/// A finished run with everything that looks at it.
struct Sim {
  explicit Sim(Job j, std::unique_ptr<Fabric> f = std::make_unique<FixedFabric>(),
               TimelineOptions options = {})
      : job(std::move(j)),
        fabric(std::move(f)),
        selector(make_collective_selector(Params(collective_params()))),
        timeline(job, *fabric, compute, *selector, std::move(options)) {}
  bool go() { return timeline.run(&spans); }
  [[nodiscard]] const RankTimes& times(uint32_t rank) const { return timeline.rank_times()[rank]; }

  Job job;
  std::unique_ptr<Fabric> fabric;
  FixedCompute compute;
  std::unique_ptr<CollectiveSelector> selector;
  Spans spans;
  Timeline timeline;
};

/// The parts of every rank sum to the step, hidden communication lies behind compute.
void expect_parts_sum(const Timeline& t) {
  for (const RankTimes& r : t.rank_times()) {
    EXPECT_EQ(t.end().ps(), (r.compute + r.exposed_comm + r.host + r.wait + r.idle).ps())
        << "rank " << r.rank;
    EXPECT_LE(r.hidden_comm, r.compute) << "rank " << r.rank;
    EXPECT_LE(r.finish, t.end()) << "rank " << r.rank;
    for (const Time part : {r.compute, r.exposed_comm, r.host, r.wait, r.idle, r.hidden_comm}) {
      EXPECT_GE(part, Time()) << "rank " << r.rank;
    }
  }
}

std::string failure_of(Job job, TimelineOptions options = {}) {
  Sim run(std::move(job), std::make_unique<FixedFabric>(), std::move(options));
  try {
    run.go();
  } catch (const SimulationError& e) {
    return e.what();
  }
  ADD_FAILURE() << "no SimulationError";
  return {};
}

void expect_mentions(const std::string& text, const std::vector<std::string>& words) {
  for (const auto& w : words) EXPECT_NE(std::string::npos, text.find(w)) << w << " in: " << text;
}

struct Packets {
  explicit Packets(uint32_t nodes, uint32_t gpus) {
    const auto& r = Registry::instance();
    TopologyRequest request;
    request.nodes = nodes;
    request.gpus_per_node = request.nics_per_node = gpus;
    topology = std::make_unique<Topology>(r.factory<TopologyFactory>("topology", "rail-optimized")(
        request, Params(r.get("topology", "rail-optimized").params)));
  }
  [[nodiscard]] std::unique_ptr<PacketFabric> fabric() const {
    return std::make_unique<PacketFabric>(
        *topology, make_packet_config({Params(transport_params()), "dcqcn", Params(dcqcn_params()),
                                       "ecmp", Params(ecmp_params()), Params(buffer_params()),
                                       Params(pfc_params()), Params(ecn_params()), 1}));
  }
  [[nodiscard]] TimelineOptions options() const {
    TimelineOptions o;
    o.placement.server = std::make_shared<std::vector<uint32_t>>(topology->servers());
    return o;
  }
  std::unique_ptr<Topology> topology;
};

// --- order --------------------------------------------------------------------------------------

TEST(Timeline, OpsWaitForTheirDependencies) {
  JobMaker m(1);
  const auto a = m.compute(0, "a", Time::us(5), {}, kComm);
  const auto b = m.compute(0, "b", Time::us(3), {a}, kComm);
  const auto c = m.compute(0, "c", Time::us(7), {a}, kComm);
  m.compute(0, "d", Time::us(1), {b, c}, kComm);
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(Time::us(5), run.spans.compute("b").begin);
  EXPECT_EQ(Time::us(5), run.spans.compute("c").begin);  // a free stream runs both at once
  EXPECT_EQ(Time::us(12), run.spans.compute("d").begin);
  EXPECT_EQ(Time::us(13), run.timeline.end());
  EXPECT_EQ(4U, run.timeline.ops_done());
  EXPECT_EQ(Time::us(13), run.times(0).compute);  // overlapping computes count once
}

TEST(Timeline, FifoStreamKeepsIssueOrderEvenWhenItsHeadWaits) {
  JobMaker m(1);
  const auto late = m.compute(0, "late", Time::us(10), {}, kComm);
  m.compute(0, "first", Time::us(2), {late});
  m.compute(0, "second", Time::us(3));
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(Time::us(10), run.spans.compute("first").begin);
  EXPECT_EQ(Time::us(12), run.spans.compute("second").begin);
  EXPECT_EQ(Time::us(15), run.timeline.end());
}

TEST(Timeline, ReadyStreamRunsWhatIsReadyOneAtATime) {
  JobMaker m(1);
  const auto late = m.compute(0, "late", Time::us(10), {}, kComm);
  m.compute(0, "first", Time::us(2), {late}, kReady);
  m.compute(0, "second", Time::us(3), {}, kReady);
  m.compute(0, "third", Time::us(4), {}, kReady);
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(Time::us(0), run.spans.compute("second").begin);
  EXPECT_EQ(Time::us(3), run.spans.compute("third").begin);
  EXPECT_EQ(Time::us(10), run.spans.compute("first").begin);
}

TEST(Timeline, ReadyStreamPrefersTheLowestIndexNotTheLongestWait) {
  JobMaker m(1);
  const auto d1 = m.compute(0, "d1", Time::us(1), {}, kComm);
  const auto d2 = m.compute(0, "d2", Time::us(2), {}, kComm);
  m.compute(0, "running", Time::us(5), {}, kReady);
  m.compute(0, "low", Time::us(1), {d2}, kReady);   // ready at 2
  m.compute(0, "high", Time::us(1), {d1}, kReady);  // ready at 1
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(Time::us(5), run.spans.compute("low").begin);
  EXPECT_EQ(Time::us(6), run.spans.compute("high").begin);
}

// Both become ready at one instant: the rule is the lowest index, not who was released first.
TEST(Timeline, ReadyStreamPrefersTheLowestIndexAtOneInstant) {
  JobMaker m(1);
  const auto d1 = m.compute(0, "d1", Time::us(2), {}, kComm);
  const auto d2 = m.compute(0, "d2", Time::us(2), {}, kComm);
  m.compute(0, "low", Time::us(1), {d2}, kReady);
  m.compute(0, "high", Time::us(1), {d1}, kReady);
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(Time::us(2), run.spans.compute("low").begin);
  EXPECT_EQ(Time::us(3), run.spans.compute("high").begin);
}

TEST(Timeline, OpsWithoutDurationTakeNoTimeAndKeepOrder) {
  JobMaker m(1);
  const auto a = m.nothing(0, "a");
  const auto b = m.compute(0, "b", Time(), {a});
  const auto c = m.nothing(0, "c", {b}, kCompute);
  m.compute(0, "d", Time::us(1), {c});
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(Time::us(1), run.timeline.end());
  EXPECT_EQ(4U, run.timeline.ops_done());
}

TEST(Timeline, AnEmptyJobEndsAtOnce) {
  Sim run(JobMaker(3).finish());
  EXPECT_TRUE(run.go());
  EXPECT_EQ(Time(), run.timeline.end());
}

// Pains #26.
TEST(Timeline, MemoryOpsAreTimed) {
  JobMaker m(1);
  const auto load = m.memory(0, "load", 4000);
  m.compute(0, "use", Time::us(1), {load});
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(Time::us(4), run.spans.find(0, "load", Span::Kind::memory).end);
  EXPECT_EQ(Time::us(5), run.timeline.end());
  expect_parts_sum(run.timeline);
}

// --- communication ------------------------------------------------------------------------------

// Ring over 2 ranks, 2000 B: 2 steps of 1000 B, each 1 us on the way and 1 us on the wire.
TEST(Timeline, AllReduceTakesItsSteps) {
  JobMaker m(2);
  for (uint32_t r = 0; r < 2; ++r) m.all_reduce(r, "ar", 2000);
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(Time::us(4), run.timeline.end());
  ASSERT_EQ(1U, run.timeline.collectives().size());
  const CollectiveRecord& c = run.timeline.collectives()[0];
  EXPECT_EQ("ar", c.name);
  EXPECT_EQ("world", c.group);
  EXPECT_EQ("ring", c.algorithm);
  EXPECT_EQ(2U, c.ranks);
  EXPECT_EQ(4U, c.transfers);
  EXPECT_EQ(4U, c.transmissions);
  EXPECT_EQ(4000, c.wire_payload);
  EXPECT_EQ(Time::us(4), c.finish);
  EXPECT_DOUBLE_EQ(0.5, c.algbw_gbytes_per_s);  // 2000 B / 4 us
  EXPECT_DOUBLE_EQ(0.5, c.busbw_gbytes_per_s);  // x 2 (n - 1) / n = 1
  for (const auto& t : run.fabric->transfers()) {
    EXPECT_EQ("all-reduce #0", run.timeline.owners()[t.owner]);
  }
}

TEST(Timeline, AllGatherBandwidthCountsTheWholeResult) {
  JobMaker m(4);
  for (uint32_t r = 0; r < 4; ++r) m.collective(r, "ag", CollectiveKind::all_gather, 1000);
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(Time::us(6), run.timeline.end());
  const CollectiveRecord& c = run.timeline.collectives()[0];
  EXPECT_NEAR(4.0 / 6.0, c.algbw_gbytes_per_s, 1e-12);
  EXPECT_NEAR(4.0 / 6.0 * 0.75, c.busbw_gbytes_per_s, 1e-12);
}

// Pains #72: exposed + hidden = total.
TEST(Timeline, ComputeHidesCommunication) {
  for (const int64_t compute_us : {0, 1, 3, 4, 10}) {
    JobMaker m(2);
    for (uint32_t r = 0; r < 2; ++r) {
      m.compute(r, "mm", Time::us(compute_us));
      m.all_reduce(r, "ar", 2000);
    }
    Sim run(m.finish());
    ASSERT_TRUE(run.go());
    EXPECT_EQ(Time::us(std::max<int64_t>(4, compute_us)), run.timeline.end());
    for (uint32_t r = 0; r < 2; ++r) {
      EXPECT_EQ(Time::us(std::min<int64_t>(4, compute_us)), run.times(r).hidden_comm);
      EXPECT_EQ(Time::us(4), run.times(r).hidden_comm + run.times(r).exposed_comm);
      EXPECT_EQ(Time::us(compute_us), run.times(r).compute);
    }
    expect_parts_sum(run.timeline);
  }
}

TEST(Timeline, ComputeIsSlowerWhileBytesMove) {
  // A message of 1000 bytes moves from 0 to 2 us, a second one from 5 us to 7 us.
  const auto make = [] {
    JobMaker m(2);
    m.compute(0, "gemm", Time::us(10));
    const auto first = m.send(0, "a", 1, 1000);
    const auto pause = m.compute(0, "pause", Time::us(3), {first}, kReady);
    m.send(0, "b", 1, 1000, {pause}, 1);
    m.recv(1, "a", 0, 1000);
    m.recv(1, "b", 0, 1000, {}, 1);
    return m.finish();
  };
  const auto run = [&](uint64_t overlap_q32, Time& gemm, Time& pause) {
    TimelineOptions options;
    options.overlap_q32 = overlap_q32;
    Sim sim(make(), std::make_unique<FixedFabric>(), options);
    EXPECT_TRUE(sim.go());
    gemm = sim.spans.compute("gemm").end;
    pause = sim.spans.compute("pause").end;
    EXPECT_EQ(Time(), sim.spans.compute("gemm").begin);
    expect_parts_sum(sim.timeline);
    return sim.timeline.fingerprint();
  };
  Time gemm, pause;
  const uint64_t plain = run(0, gemm, pause);
  EXPECT_EQ(Time::us(10), gemm);
  EXPECT_EQ(Time::us(5), pause);
  // Twice as long while bytes move: 1 us done by 2 us, 4 by 5 us, 5 by 7 us, 10 by 12 us. What
  // runs from 2 us to 5 us meets no bytes.
  EXPECT_NE(plain, run(uint64_t{1} << 32, gemm, pause));
  EXPECT_EQ(Time::us(12), gemm);
  EXPECT_EQ(Time::us(5), pause);
  // A quarter more: 1.6 us done by 2 us, 4.6 by 5 us, 6.2 by 7 us, 10 by 10.8 us.
  (void)run(uint64_t{1} << 30, gemm, pause);
  EXPECT_EQ(Time::ns(10'800), gemm);
}

TEST(Timeline, OpsThatBeginBesideMovingBytesAreSlowAtOnce) {
  JobMaker m(2);
  const auto before = m.compute(0, "before", Time::us(1));
  m.compute(0, "gemm", Time::us(10), {before});
  m.send(0, "a", 1, 5000);  // until 6 us
  m.recv(1, "a", 0, 5000);
  m.compute(1, "on the host", Time::us(4), {}, kHost);
  TimelineOptions options;
  options.overlap_q32 = uint64_t{1} << 32;
  Sim sim(m.finish(), std::make_unique<FixedFabric>(), options);
  ASSERT_TRUE(sim.go());
  EXPECT_EQ(Time::us(2), sim.spans.compute("before").end);
  EXPECT_EQ(Time::us(14), sim.spans.compute("gemm").end);  // 2 us done by 6 us
  EXPECT_EQ(Time::us(4), sim.spans.compute("on the host", 1).end);
}

TEST(Timeline, PhasesAreThePartsOfEveryRank) {
  class Phases final : public Recorder {
   public:
    void span(const Span&) override {}
    void phase(uint32_t rank, Phase phase, Time begin, Time end) override {
      EXPECT_EQ(until[rank], begin);  // without gaps
      EXPECT_LT(begin, end);
      until[rank] = end;
      sum[rank][static_cast<size_t>(phase)] += end - begin;
    }
    std::array<Time, 2> until;
    std::array<std::array<Time, kPhases>, 2> sum;
  };
  JobMaker m(2);
  const auto late = m.compute(1, "late", Time::us(7));
  const auto mine = m.compute(0, "gemm", Time::us(2));
  m.all_reduce(0, "reduce", 4000, {mine});
  m.all_reduce(1, "reduce", 4000, {late});
  m.compute(0, "host", Time::us(1), {}, kHost);
  Sim sim(m.finish());
  Phases phases;
  ASSERT_TRUE(sim.timeline.run(&phases));
  for (uint32_t r = 0; r < 2; ++r) {
    const RankTimes& t = sim.times(r);
    EXPECT_EQ(t.compute, phases.sum[r][static_cast<size_t>(Phase::compute)]);
    EXPECT_EQ(t.exposed_comm, phases.sum[r][static_cast<size_t>(Phase::exposed_comm)]);
    EXPECT_EQ(t.host, phases.sum[r][static_cast<size_t>(Phase::host)]);
    EXPECT_EQ(t.wait, phases.sum[r][static_cast<size_t>(Phase::wait)]);
    EXPECT_EQ(t.idle, phases.sum[r][static_cast<size_t>(Phase::idle)]);
    EXPECT_EQ(sim.timeline.end(), phases.until[r]);
  }
  EXPECT_EQ(Time::us(5), sim.times(0).wait);
}

TEST(Timeline, HostWorkIsNeitherComputeNorHidesCommunication) {
  JobMaker m(2);
  for (uint32_t r = 0; r < 2; ++r) {
    m.compute(r, "python", Time::us(10), {}, kHost);
    m.all_reduce(r, "ar", 2000);
  }
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(Time(), run.times(0).compute);
  EXPECT_EQ(Time::us(4), run.times(0).exposed_comm);
  EXPECT_EQ(Time::us(6), run.times(0).host);
  expect_parts_sum(run.timeline);
}

TEST(Timeline, WaitingForALateMemberIsNotTransfer) {
  JobMaker m(4);
  const auto late = m.compute(3, "late", Time::us(50));
  for (uint32_t r = 0; r < 4; ++r) m.all_reduce(r, "ar", 4000, r == 3 ? Deps{late} : Deps{});
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  // 6 steps of 1000 B, 2 us each, from the arrival of the last member.
  EXPECT_EQ(Time::us(62), run.timeline.end());
  const CollectiveRecord& c = run.timeline.collectives()[0];
  EXPECT_EQ(Time(), c.first_arrival);
  EXPECT_EQ(Time::us(50), c.start);
  EXPECT_EQ(Time::us(50), c.wait_max);
  EXPECT_EQ(Time::us(62), c.finish);
  // Three have been in it since 0, one since 50.
  EXPECT_LE(Time::us((3 * 58 + 8) / 4), c.kernel_mean);
  EXPECT_GE(Time::ps((3 * 62'000'000LL + 12'000'000) / 4), c.kernel_mean);
  EXPECT_NEAR(4000e-9 / 12e-6, c.algbw_gbytes_per_s, 1e-12);  // without the wait
  for (uint32_t r = 0; r < 4; ++r) {
    EXPECT_EQ(r == 3 ? Time() : Time::us(50), run.times(r).wait) << r;
    EXPECT_EQ(Time::us(12), run.times(r).exposed_comm + run.times(r).idle) << r;
    EXPECT_LE(Time::us(8), run.times(r).exposed_comm) << r;
    EXPECT_EQ(Time::us(50), run.spans.find(r, "ar", Span::Kind::collective).begin) << r;
  }
  EXPECT_EQ(Time::us(50), run.spans.find(0, "ar", Span::Kind::wait).end);
  expect_parts_sum(run.timeline);
}

TEST(Timeline, LastAckCompletesMessagesWhenAskedFor) {
  TimelineOptions options;
  options.complete_at_receiver = false;
  JobMaker m(2);
  for (uint32_t r = 0; r < 2; ++r) m.all_reduce(r, "ar", 2000);
  Sim run(m.finish(), std::make_unique<FixedFabric>(), options);
  ASSERT_TRUE(run.go());
  EXPECT_EQ(Time::us(10), run.timeline.end());  // 2 x (2 us + 3 us of the ACK)
}

// Pains #22.
TEST(Timeline, SubGroupLeavesOthersAlone) {
  JobMaker m(4);
  const auto pair = m.group("tp1", {3, 1});
  for (uint32_t r = 0; r < 4; ++r) m.compute(r, "mm", Time::us(1));
  for (const uint32_t r : {1U, 3U}) m.all_reduce(r, "ar", 2000, {}, pair);
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(Time::us(4), run.timeline.end());
  EXPECT_EQ(4U, run.fabric->transfers().size());
  for (const auto& t : run.fabric->transfers()) {
    EXPECT_EQ(1U, t.src % 2);
    EXPECT_EQ(1U, t.dst % 2);
  }
  for (const uint32_t r : {0U, 2U}) {
    EXPECT_EQ(Time::us(1), run.times(r).finish);
    EXPECT_EQ(Time(), run.times(r).exposed_comm + run.times(r).hidden_comm + run.times(r).wait);
    EXPECT_EQ(Time::us(3), run.times(r).idle);
  }
  EXPECT_EQ("tp1", run.timeline.collectives()[0].group);
  EXPECT_EQ(2U, run.timeline.collectives()[0].ranks);
  expect_parts_sum(run.timeline);
}

TEST(Timeline, BarrierCostsSmallMessages) {
  JobMaker m(3);
  for (uint32_t r = 0; r < 3; ++r) m.collective(r, "sync", CollectiveKind::barrier, 0);
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  // A ring of three: 2 x 2 steps of each member, 4 bytes each.
  EXPECT_EQ(12U, run.fabric->transfers().size());
  EXPECT_EQ(48, run.timeline.collectives()[0].wire_payload);
  EXPECT_GT(run.timeline.end(), Time());
}

TEST(Timeline, ABroadcastRootNeedNotWaitForTheLastMember) {
  JobMaker m(3);
  for (uint32_t r = 0; r < 3; ++r) {
    Deps deps;
    if (r == 2) deps = {m.compute(r, "late", Time::us(500))};
    const auto first = m.collective(r, "b1", CollectiveKind::broadcast, 1000, deps);
    m.compute(r, "after", Time::us(1), {first});
    m.collective(r, "b2", CollectiveKind::broadcast, 1000, {first});
  }
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  // The root has handed on its bytes long before; the second broadcast waits for its receiver.
  EXPECT_LT(run.spans.compute("after", 0).begin, Time::us(500));
  EXPECT_GT(run.spans.compute("after", 1).begin, Time::us(500));
  EXPECT_EQ(2U, run.timeline.collectives().size());
  expect_parts_sum(run.timeline);
}

TEST(Timeline, EagerSendsMoveBeforeTheirReceive) {
  JobMaker m(2);
  m.send(0, "s", 1, 4000);
  const auto late = m.compute(1, "late", Time::us(50));
  m.recv(1, "r", 0, 4000, {late});
  const auto job = m.finish();
  TimelineOptions eager;
  eager.eager_sends = true;
  Sim early(job, std::make_unique<FixedFabric>(), eager);
  ASSERT_TRUE(early.go());
  EXPECT_EQ(Time::us(50), early.timeline.end());  // the bytes are there when the receive is posted
  Sim both(job);
  ASSERT_TRUE(both.go());
  EXPECT_GT(both.timeline.end(), Time::us(50));
  EXPECT_GT(both.times(0).wait, Time());
  EXPECT_EQ(Time(), early.times(0).wait);
  expect_parts_sum(early.timeline);
}

TEST(Timeline, ZeroBytesSynchronise) {
  for (const auto kind : {CollectiveKind::all_reduce, CollectiveKind::broadcast}) {
    JobMaker m(3);
    for (uint32_t r = 0; r < 3; ++r) {
      const auto w = m.compute(r, "work", Time::us(5 * (r + 1)));
      const auto c = m.collective(r, "sync", kind, 0, {w});
      m.compute(r, "after", Time::us(1), {c});
    }
    Sim run(m.finish());
    ASSERT_TRUE(run.go());
    EXPECT_TRUE(run.fabric->transfers().empty());
    for (uint32_t r = 0; r < 3; ++r) EXPECT_EQ(Time::us(15), run.spans.compute("after", r).begin);
    EXPECT_EQ(Time::us(10), run.times(0).wait);
    EXPECT_EQ(0U, run.timeline.collectives()[0].transfers);
    expect_parts_sum(run.timeline);
  }
}

TEST(Timeline, AGroupOfOneNeedsNobody) {
  JobMaker m(2);
  const auto alone = m.group("dp", {1});
  const auto a = m.collective(1, "ar", CollectiveKind::all_reduce, 1 << 20, {}, alone, kFifoComm);
  const auto b = m.collective(1, "bc", CollectiveKind::broadcast, 1 << 20, {a}, alone, kFifoComm);
  m.compute(1, "mm", Time::us(2), {b});
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(Time::us(2), run.timeline.end());
  EXPECT_TRUE(run.fabric->transfers().empty());
}

TEST(Timeline, CollectivesOfAGroupMeetInOrderOfIssue) {
  // Ready in opposite order on the two ranks; different kinds, so a swap would be a mismatch.
  JobMaker m(2);
  for (uint32_t r = 0; r < 2; ++r) {
    const auto slow = m.compute(r, "slow", Time::us(10), {}, kComm);
    m.collective(r, "first", CollectiveKind::all_reduce, 2000, r == 0 ? Deps{slow} : Deps{});
    m.collective(r, "second", CollectiveKind::all_gather, 500, r == 1 ? Deps{slow} : Deps{});
  }
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(2U, run.timeline.collectives().size());
  for (uint32_t r = 0; r < 2; ++r) {
    EXPECT_EQ(Time::us(14), run.spans.find(r, "first", Span::Kind::collective).end);
    EXPECT_EQ(Time::ns(11500), run.spans.find(r, "second", Span::Kind::collective).end);
  }
}

TEST(Timeline, MessagesOfOneTagMeetInOrderOfIssue) {
  JobMaker m(2);
  const auto slow = m.compute(0, "slow", Time::us(10));
  m.send(0, "s1", 1, 1000, {slow}, 7);  // the first, although posted last
  m.send(0, "s2", 1, 3000, {}, 7);
  m.send(0, "other tag", 1, 5000, {}, 8);
  m.recv(1, "other r", 0, 5000, {}, 8);
  m.recv(1, "r1", 0, 1000, {}, 7);
  m.recv(1, "r2", 0, 3000, {}, 7);
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(Time::us(12), run.spans.find(1, "r1", Span::Kind::recv).end);
  EXPECT_EQ(Time::us(10), run.spans.find(1, "r1", Span::Kind::wait).end);
  EXPECT_EQ(Time::us(4), run.spans.find(1, "r2", Span::Kind::recv).end);
  EXPECT_EQ(Time::us(4), run.spans.find(0, "s2", Span::Kind::send).end);
  EXPECT_EQ(Time::us(6), run.spans.find(1, "other r", Span::Kind::recv).end);
  expect_parts_sum(run.timeline);
}

TEST(Timeline, BothDirectionsOfOneTagAreDifferentMessages) {
  JobMaker m(2);
  for (uint32_t r = 0; r < 2; ++r) {
    m.recv(r, "in", 1 - r, 1000 + r, {}, 1);
    m.send(r, "out", 1 - r, 1001 - r, {}, 1);
  }
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(2U, run.fabric->transfers().size());
}

// A ring of two stages: the next stage is the previous one, too.
TEST(Timeline, TwoPeerSlotsOfOneRankAreOneChannel) {
  JobMaker m(2);
  for (const OpKind kind : {OpKind::send, OpKind::recv}) {
    const uint32_t rank = kind == OpKind::send ? 0 : 1;
    for (uint32_t i = 0; i < 2; ++i) {
      const int64_t bytes = 1000 * (i + 1);
      const std::string name = (rank == 0 ? "s" : "r") + std::to_string(i);
      rank == 0 ? m.send(rank, name, 1, bytes) : m.recv(rank, name, 0, bytes);
      m.graph(rank).ops.back().peer_slot = i;
    }
    m.binding(rank).peers = {1 - rank, 1 - rank};  // "next" and "previous"
  }
  Sim run(m.finish());
  ASSERT_NO_THROW(run.go());
  EXPECT_EQ(Time::us(2), run.spans.find(1, "r0", Span::Kind::recv).end);
  EXPECT_EQ(Time::us(3), run.spans.find(1, "r1", Span::Kind::recv).end);
}

TEST(Timeline, AMessageToOneselfTakesNoNetwork) {
  JobMaker m(1);
  const auto c = m.compute(0, "c", Time::us(3));
  m.send(0, "s", 0, 1 << 20, {c});
  const auto r = m.recv(0, "r", 0, 1 << 20);
  m.compute(0, "after", Time::us(1), {r});
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(Time::us(4), run.timeline.end());
  EXPECT_TRUE(run.fabric->transfers().empty());
  expect_parts_sum(run.timeline);
}

TEST(Timeline, AnEmptyMessageOnlyOrders) {
  JobMaker m(2);
  const auto c = m.compute(0, "c", Time::us(3));
  m.send(0, "s", 1, 0, {c});
  const auto r = m.recv(1, "r", 0, 0);
  m.compute(1, "after", Time::us(1), {r});
  Sim run(m.finish());
  ASSERT_TRUE(run.go());
  EXPECT_EQ(Time::us(4), run.timeline.end());
  EXPECT_EQ(Time::us(3), run.times(1).wait);
}

// --- pipeline -----------------------------------------------------------------------------------

/// GPipe: all forward micro-batches, then all backward ones, over equal stages.
Job pipeline(uint32_t stages, uint32_t micro_batches, Time forward, Time backward, int64_t bytes) {
  JobMaker m(stages);
  for (uint32_t s = 0; s < stages; ++s) {
    for (uint32_t b = 0; b < micro_batches; ++b) {
      Deps deps;
      if (s > 0) deps.push_back(m.recv(s, "act in", s - 1, bytes, {}, 1));
      const auto f = m.compute(s, "F" + std::to_string(b), forward, deps);
      if (s + 1 < stages) m.send(s, "act out", s + 1, bytes, {f}, 1);
    }
    if (backward == Time()) continue;
    for (uint32_t b = 0; b < micro_batches; ++b) {
      Deps deps;
      if (s + 1 < stages) deps.push_back(m.recv(s, "grad in", s + 1, bytes, {}, 2));
      const auto g = m.compute(s, "B" + std::to_string(b), backward, deps);
      if (s > 0) m.send(s, "grad out", s - 1, bytes, {g}, 2);
    }
  }
  return m.finish();
}

// Pains #63: the bubble emerges from the events.
TEST(Timeline, PipelineBubbleEmerges) {
  for (const uint32_t p : {2U, 4U, 8U}) {
    for (const uint32_t mb : {1U, 4U, 16U}) {
      for (const bool backward : {false, true}) {
        const Time f = Time::us(100);
        const Time b = backward ? Time::us(200) : Time();
        Sim run(pipeline(p, mb, f, b, 1000),
                std::make_unique<FixedFabric>(Time::ps(1), Rate::bps(1'000'000'000'000'000)));
        ASSERT_TRUE(run.go());
        const double step = run.timeline.end().seconds();
        EXPECT_NEAR(((f + b) * (mb + p - 1)).seconds(), step, 1e-6 * step);
        for (uint32_t s = 0; s < p; ++s) {
          const RankTimes& t = run.times(s);
          EXPECT_NEAR((p - 1.0) / (mb + p - 1.0), 1 - t.compute.seconds() / step, 1e-6)
              << p << " stages, " << mb << " micro-batches, stage " << s;
          EXPECT_EQ((f + b) * mb, t.compute);
        }
        expect_parts_sum(run.timeline);
      }
    }
  }
}

TEST(Timeline, PipelineBubbleOverPackets) {
  const Packets net(4, 1);
  Sim run(pipeline(4, 8, Time::ms(1), Time::ms(2), 65536), net.fabric(), net.options());
  ASSERT_TRUE(run.go());
  run.fabric->check_conservation();
  const double step = run.timeline.end().seconds();
  for (uint32_t s = 0; s < 4; ++s) {
    EXPECT_NEAR(3.0 / 11.0, 1 - run.times(s).compute.seconds() / step, 0.005) << s;
  }
  EXPECT_GT(run.timeline.end(), Time::ms(33));  // transfers are not free
  expect_parts_sum(run.timeline);
}

// --- failures -----------------------------------------------------------------------------------

TEST(TimelineErrors, CollectiveOfAnotherKindNamesBothOps) {
  JobMaker m(2);
  m.collective(0, "grads", CollectiveKind::all_reduce, 2000);
  m.collective(1, "params", CollectiveKind::all_gather, 2000);
  expect_mentions(failure_of(m.finish()), {"all-reduce", "all-gather", "'grads' (node 1000)",
                                           "'params' (node 2000)", "world", "rank 0", "rank 1"});
}

TEST(TimelineErrors, CollectiveOfAnotherSizeNamesBothOps) {
  JobMaker m(2);
  m.all_reduce(0, "a", 2000);
  m.all_reduce(1, "b", 2001);
  expect_mentions(failure_of(m.finish()), {"2000 bytes", "2001 bytes", "'a'", "'b'"});
}

TEST(TimelineErrors, MessageOfAnotherSizeNamesBothOps) {
  JobMaker m(2);
  m.send(0, "act", 1, 4096);
  m.recv(1, "act in", 0, 2048);
  expect_mentions(failure_of(m.finish()),
                  {"'act' (node 1000)", "'act in' (node 2000)", "4096", "2048"});
}

TEST(TimelineErrors, MissingMemberIsAHangThatSaysWhoWaits) {
  JobMaker m(4);
  const auto g = m.group("dp0", {0, 1, 2});
  m.all_reduce(0, "ar", 3000, {}, g);
  m.all_reduce(2, "ar", 3000, {}, g);
  m.compute(1, "mm", Time::us(1));
  expect_mentions(failure_of(m.finish()),
                  {"hang", "2 of 3 ops", "'ar'", "'dp0'", "ranks 0 2 wait for ranks 1"});
}

TEST(TimelineErrors, MissingReceiveAndMissingSendSayWhoWaits) {
  JobMaker m(2);
  m.send(0, "s", 1, 8, {}, 3);
  m.recv(0, "r", 1, 8, {}, 4);
  expect_mentions(failure_of(m.finish()), {"hang", "rank 0 waits in 's'", "receive on rank 1",
                                           "rank 0 waits in 'r'", "send of rank 1"});
}

TEST(TimelineErrors, GroupsInOppositeOrderHang) {
  JobMaker m(2);
  const auto a = m.group("a", {0, 1});
  const auto b = m.group("b", {0, 1});
  for (uint32_t r = 0; r < 2; ++r) {
    for (const uint32_t g : r == 0 ? std::vector<uint32_t>{a, b} : std::vector<uint32_t>{b, a}) {
      m.collective(r, "ar", CollectiveKind::all_reduce, 100, {}, g, kFifoComm);
    }
  }
  expect_mentions(failure_of(m.finish()),
                  {"'a': ranks 0 wait for ranks 1", "'b': ranks 1 wait for ranks 0"});
}

TEST(TimelineErrors, RankOutsideItsGroup) {
  JobMaker m(3);
  const auto g = m.group("tp", {0, 1});
  m.all_reduce(2, "ar", 100, {}, g);
  expect_mentions(failure_of(m.finish()), {"rank 2", "'ar'", "'tp'"});
}

// As when only rank 0 of a job is there: the member must not be looked up anywhere.
TEST(TimelineErrors, GroupWithAMemberOutsideTheJob) {
  JobMaker m(2);
  const auto g = m.group("tp", {0, 1, 7});
  for (uint32_t r = 0; r < 2; ++r) m.all_reduce(r, "ar", 100, {}, g);
  TimelineOptions options;
  options.placement.server = std::make_shared<std::vector<uint32_t>>(2, 0);
  expect_mentions(failure_of(m.finish(), options), {"'tp'", "rank 7", "2 ranks"});
}

TEST(TimelineErrors, CollectiveThatLastsTooLong) {
  const auto late_job = [] {
    JobMaker m(2);
    const auto late = m.compute(1, "late", Time::us(20));
    m.all_reduce(0, "ar", 2000);
    m.all_reduce(1, "ar", 2000, {late});
    return m.finish();
  };
  TimelineOptions options;
  options.collective_timeout = Time::us(23);  // 20 us of waiting + 4 us of transfer
  expect_mentions(failure_of(late_job(), options), {"timeout", "'ar'", "24us", "20us", "23us"});
  options.collective_timeout = Time::us(24);
  Sim run(late_job(), std::make_unique<FixedFabric>(), options);
  EXPECT_TRUE(run.go());
}

TEST(Timeline, ProgressStopsTheRun) {
  JobMaker m(1);
  for (int i = 0; i < 10; ++i) m.compute(0, "c", Time::us(1));
  TimelineOptions options;
  uint64_t seen = 0;
  Time when;
  options.progress = [&](Time now, uint64_t done) {
    EXPECT_GE(done, seen);
    EXPECT_GE(now, when);
    seen = done;
    when = now;
    return done < 4;
  };
  Sim run(m.finish(), std::make_unique<FixedFabric>(), options);
  EXPECT_FALSE(run.go());
  EXPECT_EQ(4U, run.timeline.ops_done());
  EXPECT_EQ(Time::us(4), when);
}

// --- determinism --------------------------------------------------------------------------------

/// A job with ties everywhere. `at[i]` is the rank that plays part i.
Job symmetric(const std::vector<uint32_t>& at, Time tweak = Time()) {
  const auto n = static_cast<uint32_t>(at.size());
  JobMaker m(n);
  const auto ring = m.group("ring", at);
  const auto half = m.group("half", std::vector<uint32_t>(at.begin(), at.begin() + n / 2));
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t r = at[i];
    const auto a = m.compute(r, "a", Time::us(2 + i % 2) + (i == 0 ? tweak : Time()));
    const auto b = m.compute(r, "b", Time::us(3 - i % 2), {}, kReady);
    const auto s = m.send(r, "out", at[(i + 1) % n], 1000, {a});
    const auto in = m.recv(r, "in", at[(i + n - 1) % n], 1000, {b});
    const auto c = m.all_reduce(r, "ar", 8000, {s, in}, ring);
    m.compute(r, "c", Time::us(4), {in});
    if (i < n / 2) m.collective(r, "a2a", CollectiveKind::all_to_all, 4000, {c}, half);
  }
  return m.finish();
}

TEST(Timeline, SameJobSameFingerprint) {
  const std::vector<uint32_t> straight{0, 1, 2, 3, 4, 5, 6, 7};
  std::set<uint64_t> seen;
  for (const Time tweak : {Time(), Time(), Time::ps(1)}) {
    Sim run(symmetric(straight, tweak));
    ASSERT_TRUE(run.go());
    expect_parts_sum(run.timeline);
    seen.insert(run.timeline.fingerprint());
  }
  EXPECT_EQ(2U, seen.size());
}

TEST(Timeline, RanksMayBeNumberedInAnyOrder) {
  const std::vector<uint32_t> straight{0, 1, 2, 3, 4, 5, 6, 7};
  Sim base(symmetric(straight));
  ASSERT_TRUE(base.go());
  for (const auto& at : {std::vector<uint32_t>{7, 6, 5, 4, 3, 2, 1, 0},
                         std::vector<uint32_t>{3, 0, 6, 1, 7, 2, 5, 4}}) {
    Sim other(symmetric(at));
    ASSERT_TRUE(other.go());
    EXPECT_EQ(base.timeline.end(), other.timeline.end());
    for (uint32_t i = 0; i < 8; ++i) {
      const RankTimes& x = base.times(i);
      const RankTimes& y = other.times(at[i]);
      EXPECT_EQ(x.finish, y.finish) << i;
      EXPECT_EQ(x.compute, y.compute) << i;
      EXPECT_EQ(x.exposed_comm, y.exposed_comm) << i;
      EXPECT_EQ(x.hidden_comm, y.hidden_comm) << i;
      EXPECT_EQ(x.wait, y.wait) << i;
      EXPECT_EQ(x.idle, y.idle) << i;
    }
  }
}

TEST(Timeline, RunsOverPacketsAreRepeatable) {
  const Packets net(2, 4);
  std::set<std::pair<uint64_t, uint64_t>> seen;
  std::set<int64_t> ends;
  for (int i = 0; i < 2; ++i) {
    Sim run(symmetric({0, 1, 2, 3, 4, 5, 6, 7}), net.fabric(), net.options());
    ASSERT_TRUE(run.go());
    run.fabric->check_conservation();
    EXPECT_EQ(0U, run.fabric->outstanding());
    expect_parts_sum(run.timeline);
    seen.emplace(run.timeline.fingerprint(), run.fabric->fingerprint());
    ends.insert(run.timeline.end().ps());
    // Payload by hand: 8 messages, one all-reduce over 8, one all-to-all over 4.
    EXPECT_EQ(8 * 1000 + 8 * 14000 + 4 * 3000, run.fabric->totals().payload_bytes);
  }
  EXPECT_EQ(1U, seen.size());
  EXPECT_EQ(1U, ends.size());
}

TEST(Timeline, OverlapOverPackets) {
  const Packets net(2, 2);
  Time alone;
  for (const int64_t compute_us : {0, 40, 100'000}) {
    JobMaker m(4);
    for (uint32_t r = 0; r < 4; ++r) {
      m.compute(r, "mm", Time::us(compute_us));
      m.all_reduce(r, "ar", 8 << 20);
    }
    Sim run(m.finish(), net.fabric(), net.options());
    ASSERT_TRUE(run.go());
    run.fabric->check_conservation();
    expect_parts_sum(run.timeline);
    if (compute_us == 0) {
      alone = run.timeline.end();
      // 1.5 x 8 MiB per rank over two 50 GB/s rails' worth of channels: more than 120 us.
      EXPECT_GT(alone, Time::us(120));
    }
    EXPECT_EQ(std::max(alone, Time::us(compute_us)), run.timeline.end());
    for (uint32_t r = 0; r < 4; ++r) {
      const Span bar = run.spans.find(r, "ar", Span::Kind::collective);
      EXPECT_EQ(bar.end - bar.begin, run.times(r).exposed_comm + run.times(r).hidden_comm) << r;
      EXPECT_EQ(std::min(bar.end, Time::us(compute_us)), run.times(r).hidden_comm) << r;
    }
  }
}

}  // namespace
}  // namespace trainyard
