// SPDX-License-Identifier: MIT
// A leader and its follower, disturbed: only one of them, or both in either order, at every instant
// at which anything is told and in the middle of what is skipped; by messages, by links, ports and
// NICs that fail, by GPUs that are slow or stop.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "faults/gpu_faults.h"
#include "tests/memo/random_job.h"

namespace trainyard::test {
namespace {

struct Told {
  Time at;
  TransferId id = 0;
  bool delivered = false;
  bool operator==(const Told&) const = default;
};

struct Story {
  std::vector<Told> told;
  uint64_t fingerprint = 0;
  std::vector<std::string> links;  ///< what each has done
  FabricTotals totals;
  FastPathStats stats;
};

struct Timed {
  Time at;
  Transfer transfer;
};

/// Two islands of four hosts each, alike.
Topology islands() {
  Topology t;
  for (uint32_t h = 0; h < 8; ++h) t.add_node("host" + std::to_string(h), NodeKind::host);
  for (uint32_t i = 0; i < 2; ++i) t.add_node("leaf" + std::to_string(i), NodeKind::leaf);
  for (uint32_t h = 0; h < 8; ++h) t.add_link(h, 8 + h / 4, Rate::gbps(100), Time::ns(500));
  t.add_link(8, 9, Rate::gbps(100), Time::ns(500));  // every host reaches every other
  t.finish();
  return t;
}

Transfer message(uint32_t island, uint32_t src, uint32_t dst, int64_t bytes, uint32_t channel) {
  Transfer t;
  t.src = 4 * island + src;
  t.dst = 4 * island + dst;
  t.size = Bytes(bytes);
  t.channel = channel;
  return t;
}

Story run(const Topology& topology, const PacketConfig& config, std::vector<Timed> inputs,
          bool memo, const std::vector<FabricChange>& changes = {}) {
  std::stable_sort(inputs.begin(), inputs.end(),
                   [](const Timed& a, const Timed& b) { return a.at < b.at; });
  FastPathOptions options;
  options.partition = options.memo = options.jumps = memo;
  DomainFabric fabric(topology, config, options);
  for (const FabricChange& change : changes) fabric.schedule(change);
  Story r;
  std::vector<Completion> out;
  const auto advance = [&](Time limit) {
    for (;;) {
      out.clear();
      const Time reached = fabric.advance(limit, out);
      for (const Completion& c : out) {
        r.told.push_back({c.at, c.id, c.what == Completion::What::delivered});
      }
      if (out.empty() && (reached >= limit || fabric.next_event() == Time::infinity())) return;
    }
  };
  for (const Timed& t : inputs) {
    advance(t.at);
    fabric.start(t.transfer, t.at);
  }
  advance(Time::infinity());
  EXPECT_EQ(fabric.outstanding(), 0U);
  fabric.check_conservation();
  r.fingerprint = fabric.fingerprint();
  r.totals = fabric.totals();
  for (const LinkRecord& l : fabric.links()) {
    if (l.packets == 0) continue;
    r.links.push_back(l.from + ">" + l.to + " " + std::to_string(l.packets) + " " +
                      std::to_string(l.bytes) + " " + std::to_string(l.busy.ps()) + " " +
                      std::to_string(l.peak_queue_bytes) + " " + std::to_string(l.drops));
  }
  std::sort(r.links.begin(), r.links.end());
  r.stats = fabric.stats();
  return r;
}

/// Two messages in each island, the second island a little later.
std::vector<Timed> twins(Time later) {
  std::vector<Timed> out;
  for (uint32_t island = 0; island < 2; ++island) {
    const Time start = island == 0 ? Time() : later;
    out.push_back({start, message(island, 0, 1, 150'000, 1)});
    out.push_back({start + Time::us(2), message(island, 2, 1, 90'000, 1)});
    out.push_back({start + Time::us(9), message(island, 0, 3, 40'000, 2)});
  }
  return out;
}

class Disturbed : public testing::TestWithParam<int64_t> {};

TEST_P(Disturbed, AtEveryInstant) {
  const Topology topology = islands();
  PacketConfig config = base_config(CongestionControl::none);
  config.payload = 1000;
  config.header = 48;
  config.window = WindowRule::none;
  const Time later = Time::ns(GetParam());
  const Story calm = run(topology, config, twins(later), true);
  const Story calm_off = run(topology, config, twins(later), false);
  ASSERT_EQ(calm.told, calm_off.told);
  EXPECT_EQ(calm.stats.followed, 1U);
  std::set<Time> instants;
  for (const Told& t : calm.told) instants.insert({t.at, t.at + Time::ps(1)});
  for (const Timed& t : twins(later)) instants.insert({t.at, t.at + Time::ns(700)});
  uint64_t materialised = 0;
  for (const Time at : instants) {
    for (int who = 0; who < 4; ++who) {
      std::vector<Timed> inputs = twins(later);
      const auto disturb = [&](uint32_t island, Time when) {
        inputs.push_back({when, message(island, 3, 1, 30'000, 7)});
      };
      if (who != 1) disturb(0, at);                                    // the leader
      if (who == 1) disturb(1, at);                                    // the follower
      if (who == 2) disturb(1, at + Time::ns(300));                    // then the follower
      if (who == 3) disturb(1, std::max(Time(), at - Time::ns(300)));  // first the follower
      const Story memo = run(topology, config, inputs, true);
      const Story off = run(topology, config, inputs, false);
      ASSERT_EQ(memo.told, off.told) << "at " << at.ps() << " ps, who " << who;
      ASSERT_EQ(memo.fingerprint, off.fingerprint) << "at " << at.ps() << " ps, who " << who;
      materialised += memo.stats.materialised;
    }
  }
  EXPECT_GT(materialised, 0U);
}

INSTANTIATE_TEST_SUITE_P(Offsets, Disturbed, testing::Values(0, 1, 400, 5000, 12'345, 400'000));

// ---------------------------------------------------------------- broken parts

/// Two islands of four GPUs in one server each, every NIC with a port on either leaf of its island.
Topology dual_islands(bool dual) {
  Topology t;
  for (uint32_t h = 0; h < 8; ++h) {
    t.add_node("node" + std::to_string(h / 4) + ".gpu" + std::to_string(h % 4), NodeKind::host);
  }
  for (uint32_t i = 0; i < 4; ++i) t.add_node("leaf" + std::to_string(i), NodeKind::leaf);
  for (uint32_t h = 0; h < 8; ++h) {
    t.add_link(h, 8 + h / 4 * 2, Rate::gbps(100), Time::ns(500));
    if (dual) t.add_link(h, 9 + h / 4 * 2, Rate::gbps(100), Time::ns(500));
  }
  t.add_link(8, 10, Rate::gbps(100), Time::ns(500));
  t.add_link(9, 11, Rate::gbps(100), Time::ns(500));
  if (!dual) {
    t.add_link(8, 9, Rate::gbps(100), Time::ns(500));
    t.add_link(10, 11, Rate::gbps(100), Time::ns(500));
  }
  t.finish();
  return t;
}

/// What breaks, about one host, and is mended some time later.
struct Breakage {
  const char* name;
  bool dual, backup;
  uint32_t times;     ///< down and up
  uint64_t rate_q32;  ///< not down, but at this rate
  int64_t length_us;
};
void PrintTo(const Breakage& b, std::ostream* out) {
  *out << b.name;
}

std::vector<FabricChange> breaks(const Breakage& b, uint32_t host, Time at) {
  using Kind = FabricChange::Kind;
  std::vector<FabricChange> out;
  FabricChange c;
  const auto add = [&](Kind kind, uint32_t link, Time when, uint64_t value = 0) {
    c.kind = kind;
    c.link = link;
    c.at = when;
    c.value_q32 = value;
    out.push_back(c);
  };
  const uint32_t cable = b.dual ? 2 * host : host;
  const Time length = Time::us(b.length_us);
  if (b.rate_q32 != 0) {
    add(Kind::link_rate, cable, at, b.rate_q32);
    add(Kind::link_rate, cable, at + length, uint64_t{1} << 32);
    return out;
  }
  for (uint32_t i = 0; i < b.times; ++i, at += length + length) {
    if (b.backup) add(Kind::backup_on, cable, at);
    add(Kind::link_down, cable, at);
    if (b.backup) add(Kind::backup_off, cable, at + length);
    add(Kind::link_up, cable, at + length);
  }
  return out;
}

class Broken : public testing::TestWithParam<Breakage> {};

TEST_P(Broken, AtEveryInstant) {
  const Breakage& b = GetParam();
  const Topology topology = dual_islands(b.dual);
  PacketConfig config = base_config(CongestionControl::none);
  config.payload = 1000;
  config.header = 48;
  config.window = WindowRule::none;
  config.rto_ps = 40'000'000;
  config.nack_interval_ps = 5'000'000;
  config.convergence_ps = 4'000'000;
  std::vector<Timed> inputs;
  const Time later = Time::ns(12'345);
  for (uint32_t island = 0; island < 2; ++island) {
    const Time start = island == 0 ? Time() : later;
    inputs.push_back({start, message(island, 0, 1, 400'000, 1)});
    inputs.push_back({start + Time::us(2), message(island, 2, 3, 90'000, 1)});
    inputs.push_back({start + Time::us(50), message(island, 0, 2, 200'000, 2)});
  }
  const Story calm = run(topology, config, inputs, true);
  EXPECT_GE(calm.stats.followed, 1U);
  EXPECT_GE(calm.stats.jumps, 1U);
  // Everything between two things told is skipped by jumps or by following, or was never needed.
  std::set<Time> instants;
  Time before;
  for (const Told& t : calm.told) {
    const Time middle = Time::ps((before.ps() + t.at.ps()) / 2);
    instants.insert({t.at, t.at + Time::ps(1), middle});
    before = t.at;
  }
  for (const Timed& t : inputs) instants.insert({t.at, t.at + Time::ns(700)});
  uint64_t drops = 0;
  uint64_t reroutes = 0;
  uint64_t disturbances = 0;
  for (const Time at : instants) {
    // The leader's sender, the follower's receiver, both, one after the other.
    for (int who = 0; who < 3; ++who) {
      std::vector<FabricChange> changes;
      if (who != 1) changes = breaks(b, 0, at);
      if (who != 0) {
        const auto more = breaks(b, 5, at + (who == 2 ? Time::ns(300) : Time()));
        changes.insert(changes.end(), more.begin(), more.end());
      }
      const Story memo = run(topology, config, inputs, true, changes);
      const Story off = run(topology, config, inputs, false, changes);
      ASSERT_EQ(memo.told, off.told) << "at " << at.ps() << " ps, who " << who;
      ASSERT_EQ(memo.fingerprint, off.fingerprint) << "at " << at.ps() << " ps, who " << who;
      ASSERT_EQ(memo.links, off.links) << "at " << at.ps() << " ps, who " << who;
      ASSERT_EQ(memo.totals.reroutes, off.totals.reroutes) << "at " << at.ps() << ", who " << who;
      drops += memo.totals.drops;
      reroutes += memo.totals.reroutes;
      disturbances += memo.stats.disturbances;
    }
  }
  EXPECT_GE(disturbances, instants.size());
  if (b.rate_q32 == 0) {
    EXPECT_GT(drops, 0U);
  }
  if (b.dual || b.backup) {
    EXPECT_GT(reroutes, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Parts, Broken,
    testing::Values(Breakage{"LinkDown", false, false, 1, 0, 30},
                    Breakage{"LinkFlap", false, false, 3, 0, 3},
                    Breakage{"LinkSlow", false, false, 1, uint64_t{1} << 31, 20},
                    Breakage{"PortFailover", true, false, 1, 0, 30},
                    Breakage{"PortFlap", true, false, 2, 0, 6},
                    Breakage{"BackupNic", false, true, 1, 0, 30}),
    [](const testing::TestParamInfo<Breakage>& test) { return std::string(test.param.name); });

/// Ring steps of two servers' pairs that repeat themselves; one GPU is slow or stops for a while at
/// every instant at which a collective begins or ends, and in between.
class Straggler : public testing::TestWithParam<const char*> {};

TEST_P(Straggler, AtEveryInstant) {
  const bool stops = std::string(GetParam()) == "stops";
  OracleCase spec = parse_oracle_case(
      "servers=2 gpus=2 leaves=2 spines=1 nic=100 up=1 leaf=0/1/0/1 delay=200/200/200/200 "
      "steps=1:0:20000:0:9000:999/0:1:9000:0:5000:999/1:0:20000:0:9000:999/1:2:8000:0:7000:999");
  const RandomCase c = build(spec);
  const GpuFaults nobody;
  const Outcome calm = run_case(c, Way::memo, &nobody);
  ASSERT_EQ(calm.error, "");
  EXPECT_GT(calm.stats.followed, 0U);
  std::set<Time> instants;
  Time before;
  std::vector<Time> sorted = calm.instants;
  std::sort(sorted.begin(), sorted.end());
  for (const Time at : sorted) {
    instants.insert({at, at + Time::ps(1), Time::ps((before.ps() + at.ps()) / 2)});
    before = at;
  }
  ASSERT_GT(instants.size(), 20U);
  size_t moved = 0;
  for (const Time at : instants) {
    for (const uint32_t rank : {0U, 3U}) {
      GpuFaults faults;
      if (stops)
        faults.stop(rank, at, at + Time::us(7));
      else
        faults.slow(rank, at, at + Time::us(15), 1.7);
      const Outcome off = run_case(c, Way::off, &faults);
      const std::string where = std::to_string(at.ps()) + " ps, rank " + std::to_string(rank);
      ASSERT_EQ(difference(off, run_case(c, Way::memo, &faults)), "") << where;
      ASSERT_EQ(difference(off, run_case(c, Way::none, &faults)), "") << where;
      moved += off.timeline != calm.timeline ? 1 : 0;
    }
  }
  EXPECT_GT(moved, instants.size());
}

INSTANTIATE_TEST_SUITE_P(Gpus, Straggler, testing::Values("lags", "stops"),
                         [](const testing::TestParamInfo<const char*>& test) {
                           return std::string(test.param);
                         });

/// What is alike follows, also under another offset in time and from another place.
TEST(Memo, FollowsAcrossPlacesAndTimes) {
  const Topology topology = islands();
  PacketConfig config = base_config(CongestionControl::dcqcn);
  config.window = WindowRule::none;  // the islands are not joined
  std::vector<Timed> inputs;
  for (uint32_t i = 0; i < 20; ++i) {
    inputs.push_back({Time::us(500 * static_cast<int64_t>(i)), message(i % 2, 0, 1, 1'000'000, 1)});
  }
  const Story memo = run(topology, config, inputs, true);
  const Story off = run(topology, config, inputs, false);
  EXPECT_EQ(memo.told, off.told);
  EXPECT_EQ(memo.fingerprint, off.fingerprint);
  // The first of all leads, and the first whose NIC remembers whom it served last.
  EXPECT_EQ(memo.stats.followed, 18U);
  EXPECT_LT(memo.stats.events, off.stats.events / 10);
}

/// A store that may hold next to nothing forgets, and stays right.
TEST(Memo, StaysWithinItsLimit) {
  const Topology topology = islands();
  PacketConfig config = base_config(CongestionControl::none);
  config.window = WindowRule::none;
  FastPathOptions options;
  options.memo_bytes = 4096;
  options.jumps = false;
  DomainFabric fabric(topology, config, options);
  std::vector<Completion> out;
  for (int64_t i = 0; i < 50; ++i) {
    fabric.start(message(0, 0, 1, 10'000 + 100 * i, 1), Time::us(100 * i));
  }
  while (fabric.next_event() != Time::infinity()) fabric.advance(Time::infinity(), out);
  EXPECT_EQ(out.size(), 100U);
  EXPECT_GT(fabric.stats().evicted, 0U);
  EXPECT_LE(fabric.stats().memo_bytes, 4096U);
}

TEST(Memo, DeclinesByName) {
  PacketConfig config = base_config(CongestionControl::none);
  EXPECT_FALSE(fast_path_declines(config));
  config.persistent_qps = false;
  EXPECT_EQ(*fast_path_declines(config), "queue pairs of a message each");
}

}  // namespace
}  // namespace trainyard::test
