// SPDX-License-Identifier: MIT
// The exact fast path against one domain that holds everything, bit for bit, over random jobs.
//
// A job that differs is made smaller and printed as one line; TRAINYARD_ORACLE_CASE="that line", or
// "faults 17" for a seed, runs it again (KeptCases). Lines that showed something once are kept in
// kept_oracle_cases.csv. TRAINYARD_ORACLE_SEEDS=N looks at N jobs of each kind.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#include "tests/memo/random_job.h"
#include "tests/memo/shrink.h"

namespace trainyard::test {
namespace {

constexpr Flavour kFlavours[] = {Flavour::plain,       Flavour::tight,     Flavour::simultaneous,
                                 Flavour::marks,       Flavour::spraying,  Flavour::faults,
                                 Flavour::controllers, Flavour::balancers, Flavour::failover,
                                 Flavour::classes,     Flavour::layers};

/// How many jobs of each kind are run.
uint64_t jobs_of(Flavour f) {
  if (const char* more = std::getenv("TRAINYARD_ORACLE_SEEDS")) {
    return std::strtoull(more, nullptr, 10);
  }
  constexpr uint64_t kJobs[] = {150, 180, 110, 80, 50, 120, 120, 60, 40, 200, 80};
  return kJobs[static_cast<size_t>(f)];
}

// An assertion ends the process: it has to say which job it was.
char g_running[16384];
extern "C" void on_abort(int) {
  std::fputs("while running TRAINYARD_ORACLE_CASE=\"", stderr);
  std::fputs(g_running, stderr);
  std::fputs("\"\n", stderr);
}
void now_running(const OracleCase& c) {
  std::signal(SIGABRT, on_abort);
  std::snprintf(g_running, sizeof g_running, "%s", print(c).c_str());
}

/// Makes a case that differs smaller and prints it.
void report_difference(const OracleCase& c, const std::string& what) {
  const Shrunk s = shrink(c, [](const OracleCase& smaller) {
    return shows_apart([&] { return !oracle_difference(build(smaller)).empty(); });
  });
  ADD_FAILURE() << what << "\n  case: " << print(c) << "\n  smallest after " << s.tried
                << " looks, to be run again:\n  TRAINYARD_ORACLE_CASE=\"" << print(s.smallest)
                << "\"";
}

struct Sum {
  uint64_t jobs = 0;
  uint64_t followed = 0, merges = 0, pool_merges = 0, materialised = 0, pauses = 0, marks = 0;
  uint64_t drops = 0, disturbances = 0, jumps = 0, rate_changes = 0, reroutes = 0;
  int64_t calm = 0;  // bytes outside of disturbed domains where there were some
  uint64_t stretches = 0, ops_replayed = 0, conflicts = 0;
  uint64_t with_stretches = 0;  // jobs
  uint64_t near_xoff = 0;       // jobs that paused, or whose domains shared a buffer too closely
  std::map<std::string, uint64_t> followed_by;  // controller -> domains
};

const char* controller_of(const OracleCase& c) {
  switch (static_cast<CongestionControl>(c.setting("congestion", 0))) {
    case CongestionControl::none:
      return "none";
    case CongestionControl::dcqcn: {
      constexpr const char* kOrders[] = {"dcqcn vendor", "dcqcn paper", "dcqcn raise first"};
      return kOrders[c.setting("order", 0)];
    }
    case CongestionControl::hpcc:
      return c.setting("hpcc_quantised", 0) != 0 ? "hpcc quantised" : "hpcc";
    case CongestionControl::timely:
      return "timely";
    case CongestionControl::dctcp:
      return "dctcp";
  }
  return "";
}

const char* balancer_of(const OracleCase& c) {
  switch (static_cast<PathChoice>(c.setting("paths", 0))) {
    case PathChoice::flowlet:
      return "flowlet";
    case PathChoice::spray:
      return c.setting("round_robin", 0) != 0 ? "spray in turn" : "spray at random";
    case PathChoice::per_flow:
      break;
  }
  return c.setting("qps", 1) > 1 ? "several queue pairs" : "ecmp";
}

Sum compare(Flavour flavour) {
  Sum sum;
  for (uint64_t seed = 1; seed <= jobs_of(flavour); ++seed) {
    const OracleCase spec = random_oracle_case(seed, flavour);
    now_running(spec);
    const RandomCase c = build(spec);
    const Outcome off = run_case(c, Way::off);
    const Outcome apart = run_case(c, Way::apart);
    const Outcome memo = run_case(c, Way::memo);
    const std::string at = std::string(name_of(flavour)) + " seed " + std::to_string(seed) + ", ";
    std::string what = difference(off, apart);
    if (!what.empty()) what = at + "domains: " + what;
    const std::string with_memo = difference(off, memo);
    if (!with_memo.empty()) what += (what.empty() ? at : "; ") + "memo: " + with_memo;
    if (memo.ops_replayed > 0 || memo.conflict) {
      const std::string op_by_op = difference(off, run_case(c, Way::op_by_op));
      if (!op_by_op.empty()) what += (what.empty() ? at : "; ") + "without stretches: " + op_by_op;
    }
    if (!what.empty()) {
      report_difference(spec, what);
      return sum;
    }
    ++sum.jobs;
    sum.followed += memo.stats.followed;
    sum.followed_by[controller_of(spec)] += memo.stats.followed;
    sum.merges += memo.stats.merges;
    sum.pool_merges += memo.stats.pool_merges;
    sum.materialised += memo.stats.materialised;
    sum.jumps += memo.stats.jumps;
    sum.pauses += memo.pauses;
    sum.marks += memo.marks;
    sum.drops += memo.drops;
    sum.rate_changes += memo.rate_changes;
    sum.reroutes += memo.reroutes;
    sum.disturbances += memo.stats.disturbances;
    sum.stretches += memo.stats.stretches;
    sum.with_stretches += memo.stats.stretches > 0 ? 1 : 0;
    sum.ops_replayed += memo.ops_replayed;
    sum.conflicts += memo.conflict ? 1 : 0;
    sum.near_xoff += memo.pauses > 0 || memo.stats.pool_merges > 0 ? 1 : 0;
    if (memo.stats.disturbances > 0) sum.calm += memo.payload - memo.stats.bytes_disturbed;
  }
  std::printf(
      "%s: %llu jobs, %llu near XOFF; %llu domains followed, %llu materialised, %llu merges, %llu "
      "for buffers, %llu jumps; %llu pauses, %llu marks, %llu drops, %llu rate changes, %llu "
      "reroutes, %llu disturbances\n",
      name_of(flavour), static_cast<unsigned long long>(sum.jobs),
      static_cast<unsigned long long>(sum.near_xoff), static_cast<unsigned long long>(sum.followed),
      static_cast<unsigned long long>(sum.materialised),
      static_cast<unsigned long long>(sum.merges), static_cast<unsigned long long>(sum.pool_merges),
      static_cast<unsigned long long>(sum.jumps), static_cast<unsigned long long>(sum.pauses),
      static_cast<unsigned long long>(sum.marks), static_cast<unsigned long long>(sum.drops),
      static_cast<unsigned long long>(sum.rate_changes),
      static_cast<unsigned long long>(sum.reroutes),
      static_cast<unsigned long long>(sum.disturbances));
  std::printf("  %llu stretches in %llu jobs, %llu ops replayed, %llu jobs run again\n",
              static_cast<unsigned long long>(sum.stretches),
              static_cast<unsigned long long>(sum.with_stretches),
              static_cast<unsigned long long>(sum.ops_replayed),
              static_cast<unsigned long long>(sum.conflicts));
  return sum;
}

TEST(Oracle, AmpleBuffers) {
  const Sum s = compare(Flavour::plain);
  EXPECT_GT(s.followed, 0U);
  EXPECT_GT(s.merges, 0U);
  EXPECT_GT(s.materialised, 0U);
}

TEST(Oracle, ThresholdsNearXoff) {
  const Sum s = compare(Flavour::tight);
  EXPECT_GT(s.pauses, 0U);
  EXPECT_GT(s.pool_merges, 0U);
  EXPECT_GT(s.followed, 0U);
  if (std::getenv("TRAINYARD_ORACLE_SEEDS") == nullptr) {
    EXPECT_GE(s.near_xoff, 100U);
  }
}

TEST(Oracle, SimultaneousStarts) {
  const Sum s = compare(Flavour::simultaneous);
  EXPECT_GT(s.followed, 0U);
}

TEST(Oracle, MarksAndRates) {
  const Sum s = compare(Flavour::marks);
  EXPECT_GT(s.marks, 0U);
}

TEST(Oracle, Spraying) {
  compare(Flavour::spraying);
}

/// Before something breaks and after all is well again domains are apart.
TEST(Oracle, Faults) {
  const Sum s = compare(Flavour::faults);
  EXPECT_GT(s.drops, 0U);
  EXPECT_GT(s.disturbances, 60U);
  EXPECT_GT(s.calm, 0);
  EXPECT_GT(s.followed, 0U);
}

/// What an idle queue pair's controller remembers goes with it from domain to domain.
TEST(Oracle, Controllers) {
  const Sum s = compare(Flavour::controllers);
  EXPECT_GT(s.rate_changes, 0U);
  EXPECT_GT(s.marks, 0U);
  for (const char* who : {"hpcc", "timely", "dctcp"}) {
    EXPECT_GT(s.followed_by.at(who), 0U) << who;
  }
  // Rounded stamps are not relative to anything.
  EXPECT_EQ(s.followed_by.at("hpcc quantised"), 0U);
}

TEST(Oracle, Balancers) {
  const Sum s = compare(Flavour::balancers);
  EXPECT_GT(s.followed, 0U);
}

TEST(Oracle, PortsAndNicsTakeOver) {
  const Sum s = compare(Flavour::failover);
  EXPECT_GT(s.drops, 0U);
  EXPECT_GT(s.reroutes, 0U);
  EXPECT_GT(s.disturbances, 20U);
}

/// NICs serve several classes: what they remember of them lasts from one busy period to the next.
TEST(Oracle, Classes) {
  const Sum s = compare(Flavour::classes);
  EXPECT_GT(s.followed, 0U);
  EXPECT_GT(s.merges, 0U);
  EXPECT_GT(s.pauses, 0U);
}

/// Of more collectives than are kept the longest are, whichever way and order they are booked.
TEST(Oracle, TheSameCollectivesAreKept) {
  uint64_t replayed = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomCase c = random_case(seed, Flavour::layers);
    c.most_records = run_case(c, Way::memo).collectives.size() / 2;
    const Outcome off = run_case(c, Way::off);
    const Outcome memo = run_case(c, Way::memo);
    EXPECT_EQ(off.collectives, memo.collectives) << seed;
    EXPECT_EQ(memo.collectives.size(), c.most_records) << seed;
    replayed += memo.ops_replayed;
  }
  EXPECT_GT(replayed, 1000U);
}

/// Layers that repeat are followed as a whole.
TEST(Oracle, Layers) {
  const Sum s = compare(Flavour::layers);
  EXPECT_GT(s.stretches, 0U);
  EXPECT_GT(s.ops_replayed, 0U);
  EXPECT_GT(s.with_stretches, s.jobs / 2);
}

/// What the random jobs are, by their configuration.
TEST(Oracle, KindsOfJobs) {
  if (std::getenv("TRAINYARD_ORACLE_SEEDS") != nullptr) {
    GTEST_SKIP() << "counts are for the standard number of jobs";
  }
  std::map<std::string, uint64_t> controllers, balancers;
  uint64_t jobs = 0;
  uint64_t dynamic = 0;
  uint64_t together = 0;
  uint64_t sprays = 0;
  uint64_t faulty = 0;
  uint64_t windows = 0;
  uint64_t classes = 0, dwrr = 0, credits = 0, flows = 0;
  uint64_t layers = 0;
  for (const Flavour f : kFlavours) {
    for (uint64_t seed = 1; seed <= jobs_of(f); ++seed) {
      const OracleCase c = random_oracle_case(seed, f);
      ++jobs;
      ++controllers[controller_of(c)];
      ++balancers[balancer_of(c)];
      // A pool of a few ten packets beyond headroom and reserves.
      dynamic += c.setting("alpha", 0) != 0 && c.setting("buffer", 0) != 0 ? 1 : 0;
      // Nobody is late, and every collective is begun by all at one instant.
      together += std::all_of(c.steps.begin(), c.steps.end(),
                              [&](const OracleCase::Step& s) {
                                return s.kind < 2 && s.late_rank == OracleCase::kNobody &&
                                       s.compute_ns == c.steps[0].compute_ns;
                              })
                      ? 1
                      : 0;
      sprays += c.setting("paths", 0) == static_cast<int64_t>(PathChoice::spray) ? 1 : 0;
      faulty += c.faults.empty() ? 0 : 1;
      windows += c.setting("window", 0) != 0 ? 1 : 0;
      classes += c.setting("classes", 1) > 1 ? 1 : 0;
      dwrr += c.setting("dwrr", 0) != 0 ? 1 : 0;
      credits += c.credits ? 1 : 0;
      flows += c.flows.empty() ? 0 : 1;
      layers += std::any_of(c.steps.begin(), c.steps.end(),
                            [](const OracleCase::Step& s) { return s.layers > 0; })
                    ? 1
                    : 0;
    }
  }
  std::printf(
      "%llu random jobs: %llu with dynamic thresholds near XOFF, %llu with simultaneous starts, "
      "%llu that spray, %llu with faults, %llu with windows\n",
      static_cast<unsigned long long>(jobs), static_cast<unsigned long long>(dynamic),
      static_cast<unsigned long long>(together), static_cast<unsigned long long>(sprays),
      static_cast<unsigned long long>(faulty), static_cast<unsigned long long>(windows));
  std::printf(
      "  %llu with classes, %llu of them DWRR, %llu with credits, %llu with flows; %llu with "
      "layers\n",
      static_cast<unsigned long long>(classes), static_cast<unsigned long long>(dwrr),
      static_cast<unsigned long long>(credits), static_cast<unsigned long long>(flows),
      static_cast<unsigned long long>(layers));
  for (const auto* table : {&controllers, &balancers}) {
    for (const auto& [name, n] : *table) {
      std::printf("  %-20s %llu\n", name.c_str(), static_cast<unsigned long long>(n));
    }
  }
  EXPECT_GE(dynamic, 100U);
  EXPECT_GE(together, 100U);
  EXPECT_GE(sprays, 50U);
  EXPECT_GE(faulty, 100U);
  EXPECT_GE(classes, 150U);
  EXPECT_GE(dwrr, 100U);
  EXPECT_LT(dwrr, classes);
  EXPECT_GE(credits, 50U);
  EXPECT_GE(flows, 50U);
  EXPECT_GE(layers, 50U);
  for (const char* c :
       {"none", "dcqcn vendor", "dcqcn paper", "dcqcn raise first", "hpcc", "timely", "dctcp"}) {
    EXPECT_GE(controllers[c], 10U) << c;
  }
  for (const char* b :
       {"ecmp", "several queue pairs", "flowlet", "spray in turn", "spray at random"}) {
    EXPECT_GE(balancers[b], 10U) << b;
  }
}

/// Message by message under the timeline, the packet engine gives the same times. (With several
/// equal paths it may not: queue pairs of a collective are opened at once here, in the timeline
/// when they are used first, so that they may have other source ports.)
TEST(Oracle, HostedCollectivesAreThoseOfTheTimeline) {
  int compared = 0;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    const RandomCase c = random_case(seed, Flavour::plain);
    if (c.topology.count(NodeKind::spine) > 1) continue;
    const Outcome none = run_case(c, Way::none);
    const Outcome off = run_case(c, Way::off);
    EXPECT_EQ(none.transmissions, off.transmissions) << c.text;
    EXPECT_EQ(none.payload, off.payload) << c.text;
    if (none.end == off.end && none.links == off.links) ++compared;
    EXPECT_NEAR(static_cast<double>(none.end.ps()), static_cast<double>(off.end.ps()),
                0.002 * static_cast<double>(none.end.ps()))
        << c.text;
    if (HasFailure()) return;
  }
  EXPECT_GT(compared, 60);
}

// ---------------------------------------------------------------- kept cases, shrinking

/// Cases that showed a difference once, and the one of TRAINYARD_ORACLE_CASE.
TEST(Oracle, KeptCases) {
  std::vector<std::pair<std::string, std::string>> cases;  // what it was, line
  if (const char* given = std::getenv("TRAINYARD_ORACLE_CASE")) {
    std::string line = given;
    for (const Flavour f : kFlavours) {  // "faults 17"
      const std::string name = name_of(f);
      if (line.rfind(name + " ", 0) != 0) continue;
      line = print(random_oracle_case(std::strtoull(given + name.size(), nullptr, 10), f));
    }
    cases.emplace_back("TRAINYARD_ORACLE_CASE", line);
  } else {
    const std::string file =
        std::string(TRAINYARD_SOURCE_DIR) + "/tests/memo/kept_oracle_cases.csv";
    std::ifstream in(file);
    ASSERT_TRUE(in) << "cannot open " << file;
    for (std::string line; std::getline(in, line);) {
      if (line.empty() || line[0] == '#') continue;
      const size_t comma = line.find(',');
      ASSERT_NE(comma, std::string::npos) << "rows are what,case: " << line;
      cases.emplace_back(line.substr(0, comma), line.substr(comma + 1));
    }
    EXPECT_FALSE(cases.empty());
  }
  for (const auto& [what, line] : cases) {
    const OracleCase c = parse_oracle_case(line);
    std::string difference;
    if (shows_apart([&c = c, &difference] {
          difference = oracle_difference(build(c));
          if (!difference.empty()) std::fprintf(stderr, "%s\n", difference.c_str());
          return !difference.empty();
        })) {
      report_difference(c, what + " differs");
    }
  }
}

TEST(Shrink, PrintedCasesAreReadBack) {
  for (const Flavour f : kFlavours) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      const OracleCase c = random_oracle_case(seed, f);
      EXPECT_EQ(parse_oracle_case(print(c)), c) << print(c);
      EXPECT_EQ(print(c).find_first_of(",\"#"), std::string::npos);
    }
  }
  EXPECT_THROW(parse_oracle_case("servers=2 gpu=1"), std::runtime_error);
  EXPECT_THROW(parse_oracle_case("servers=x"), std::runtime_error);
  EXPECT_THROW(parse_oracle_case("servers=2 gpus=1 leaf=0/0 delay=200"), std::runtime_error);
  EXPECT_THROW(parse_oracle_case("servers=1 gpus=1 leaf=0 delay=200 set=warp:9"),
               std::runtime_error);
}

size_t size_of(const OracleCase& c) {
  return c.hosts() + c.steps.size() + c.faults.size() + c.flows.size() + c.settings.size();
}

/// A difference is planted: the other run has dice of its own. What is left must still draw dice,
/// and differ when it is run again from its line.
TEST(Shrink, FindsASmallJobThatDrawsDice) {
  const auto shows = [](const OracleCase& c) {
    const RandomCase a = build(c);
    RandomCase b = build(c);
    b.config.seed += 1;
    return !difference(run_case(a, Way::off), run_case(b, Way::memo)).empty();
  };
  size_t tested = 0;
  for (uint64_t seed = 1; seed <= 20 && tested < 3; ++seed) {
    const OracleCase c = random_oracle_case(seed, Flavour::marks);
    if (!shows(c)) continue;
    ++tested;
    const Shrunk s = shrink(c, shows);
    SCOPED_TRACE(print(s.smallest));
    EXPECT_LT(size_of(s.smallest), size_of(c));
    EXPECT_LE(s.smallest.steps.size(), 2U);
    EXPECT_LE(s.smallest.settings.size(), 3U);
    const OracleCase again = parse_oracle_case(print(s.smallest));
    EXPECT_TRUE(shows(again));
    RandomCase other = build(again);
    other.config.seed += 1;
    EXPECT_GT(run_case(build(again), Way::off).marks + run_case(other, Way::off).marks, 0U);
    for (const OracleCase& smaller : simpler(again)) {
      if (s.tried >= 600) break;
      try {
        EXPECT_FALSE(shows(smaller)) << print(smaller);
      } catch (const UserError&) {
        // No case.
      }
    }
  }
  EXPECT_EQ(tested, 3U);
}

/// Planted: the other run learns of broken links later. Faults must stay, what is beside them goes.
TEST(Shrink, KeepsTheFaultThatMatters) {
  const auto shows = [](const OracleCase& c) {
    const RandomCase a = build(c);
    RandomCase b = build(c);
    b.config.convergence_ps += 50'000'000;
    return !difference(run_case(a, Way::off), run_case(b, Way::memo)).empty();
  };
  size_t tested = 0;
  for (uint64_t seed = 1; seed <= 60 && tested < 1; ++seed) {
    const OracleCase c = random_oracle_case(seed, Flavour::faults);
    if (c.faults.size() < 3 || !shows(c)) continue;
    ++tested;
    const Shrunk s = shrink(c, shows, 200);
    SCOPED_TRACE(print(s.smallest));
    EXPECT_GE(s.smallest.faults.size(), 1U);
    EXPECT_LT(s.smallest.faults.size(), c.faults.size());
    EXPECT_LT(size_of(s.smallest), size_of(c));
    EXPECT_TRUE(shows(parse_oracle_case(print(s.smallest))));
  }
  EXPECT_EQ(tested, 1U);
}

/// A test that aborts shows something, too.
TEST(Shrink, AbortsCount) {
  EXPECT_TRUE(shows_apart([]() -> bool {
    std::signal(SIGABRT, SIG_DFL);
    std::abort();
  }));
  EXPECT_TRUE(shows_apart([]() -> bool { throw std::runtime_error("broken"); }));
  EXPECT_TRUE(shows_apart([] { return true; }));
  EXPECT_FALSE(shows_apart([] { return false; }));
}

}  // namespace
}  // namespace trainyard::test
