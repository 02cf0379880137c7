// SPDX-License-Identifier: MIT
// Tree, halving-doubling, pairwise, hierarchical, NVLS and custom collectives driven by hand: bytes
// per member against closed forms written anew here, and what every member knows at the end.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <bitset>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "chakra/writer.h"
#include "sim/collective.h"
#include "sim/dice.h"
#include "sim/errors.h"
#include "sim/registry.h"
#include "tests/workload/on_rails.h"
#include "workload/collective_params.h"
#include "workload/group_layout.h"

namespace trainyard {
namespace {

constexpr int64_t kPacket = 4096;
using Known = std::bitset<64>;
using Settings = std::map<std::string, std::string>;

struct Call {
  std::string algorithm;
  CollectiveKind kind = CollectiveKind::all_reduce;
  int64_t bytes = 1000;
  std::vector<uint32_t> servers;  ///< member -> server
  std::vector<uint32_t> rails;    ///< member -> rail; empty: not known
  std::vector<int64_t> sizes;     ///< all-to-all(v)
  Settings settings;
};

struct Log {
  std::vector<CollectiveSend> sends;
  std::vector<int64_t> sent, received;
  std::vector<Known> knows;      ///< by member: whose data has reached it
  size_t most_sent_at_once = 0;  ///< by one member
  int64_t closed_form = 0;
};

std::unique_ptr<CollectiveAlgorithm> make(const std::string& name, const Settings& settings) {
  Params params(collective_params());
  for (const auto& [key, value] : settings) params.set(key, value, {});
  return Registry::instance().factory<CollectiveFactory>("collective", name)(params);
}

/// Members arrive and messages come in an order that `seed` draws; with seed 0 all arrive first and
/// messages come in order of departure.
Log drive(const Call& call, uint64_t seed) {
  const auto n = static_cast<uint32_t>(call.servers.size());
  std::vector<uint32_t> members(n);
  CollectiveRequest request;
  auto servers = std::make_shared<std::vector<uint32_t>>(3 + 2 * n, 9999);
  auto rails = std::make_shared<std::vector<uint32_t>>(3 + 2 * n, 9999);
  for (uint32_t m = 0; m < n; ++m) {
    members[m] = 3 + 2 * m;
    (*servers)[members[m]] = 70 + call.servers[m];
    if (!call.rails.empty()) (*rails)[members[m]] = call.rails[m];
  }
  request.kind = call.kind;
  request.bytes = call.bytes;
  request.members = &members;
  request.placement.server = servers;
  if (!call.rails.empty()) request.placement.rail = rails;
  if (!call.sizes.empty()) request.sizes = std::make_shared<std::vector<int64_t>>(call.sizes);
  const auto algorithm = make(call.algorithm, call.settings);
  EXPECT_TRUE(algorithm->supports(call.kind));
  EXPECT_TRUE(algorithm->serves(request));
  Log log;
  log.closed_form = algorithm->sent_per_member(request);
  log.sent.assign(n, 0);
  log.received.assign(n, 0);
  log.knows.resize(n);
  for (uint32_t m = 0; m < n; ++m) log.knows[m].set(m);
  const auto run = algorithm->begin(request);

  using Edge = std::tuple<uint32_t, uint32_t, uint32_t>;
  std::map<Edge, std::deque<size_t>> on_edge;
  std::deque<Edge> pending;
  std::vector<Known> carried;
  std::vector<char> here(n, 0), over(n, 0);
  std::vector<size_t> open(n, 0), sending(n, 0);
  std::map<Edge, uint32_t> counted, announced;
  std::vector<CollectiveSend> sends;
  std::vector<uint32_t> done;
  const auto absorb = [&] {
    for (const CollectiveSend& s : sends) {
      ASSERT_TRUE(s.src < n && s.dst < n && s.src != s.dst && s.bytes > 0);
      ASSERT_TRUE(here[s.src] != 0 && here[s.dst] != 0) << "left before both ends arrived";
      ASSERT_TRUE(over[s.src] == 0 && over[s.dst] == 0) << "of a member that was done";
      log.sent[s.src] += s.bytes;
      ++open[s.src];
      ++open[s.dst];
      log.most_sent_at_once = std::max(log.most_sent_at_once, ++sending[s.src]);
      const Edge edge{s.src, s.dst, s.channel};
      ++counted[edge];
      on_edge[edge].push_back(log.sends.size());
      pending.push_back(edge);
      log.sends.push_back(s);
      carried.push_back(log.knows[s.src]);
    }
    for (const uint32_t m : done) {
      ASSERT_TRUE(here[m] != 0 && over[m] == 0 && open[m] == 0) << "member " << m;
      over[m] = 1;
    }
    sends.clear();
    done.clear();
  };
  std::vector<uint32_t> arrivals(n);
  std::iota(arrivals.begin(), arrivals.end(), 0U);
  uint64_t draws = 0;
  const auto draw = [&](uint64_t sides) { return dice(seed, 1, 0, ++draws) % sides; };
  for (uint32_t i = n; seed != 0 && i-- > 1;) std::swap(arrivals[i], arrivals[draw(i + 1)]);
  size_t arrived = 0;
  while (arrived < n || !pending.empty()) {
    if (::testing::Test::HasFatalFailure()) return log;
    if (arrived < n && (pending.empty() || seed == 0 || draw(4) == 0)) {
      std::vector<CollectiveReceive> coming;
      EXPECT_TRUE(run->receives(arrivals[arrived], coming));
      for (const auto& c : coming) announced[{c.src, arrivals[arrived], c.channel}] += c.count;
      here[arrivals[arrived]] = 1;
      run->arrived(arrivals[arrived++], sends, done);
      absorb();
      continue;
    }
    const size_t at = seed == 0 ? 0 : draw(pending.size());
    const Edge edge = pending[at];
    if (seed == 0) {
      pending.pop_front();
    } else {
      std::swap(pending[at], pending.back());
      pending.pop_back();
    }
    const size_t i = on_edge[edge].front();
    on_edge[edge].pop_front();
    const CollectiveSend s = log.sends[i];
    --open[s.src];
    --open[s.dst];
    --sending[s.src];
    log.received[s.dst] += s.bytes;
    log.knows[s.dst] |= carried[i];
    run->delivered(s, sends, done);
    absorb();
  }
  EXPECT_EQ(n, static_cast<uint32_t>(std::count(over.begin(), over.end(), 1)));
  EXPECT_TRUE(counted == announced) << "receives() says otherwise";
  return log;
}

std::vector<uint32_t> in_servers(const std::vector<uint32_t>& sizes) {
  std::vector<uint32_t> out;
  for (uint32_t s = 0; s < sizes.size(); ++s) out.insert(out.end(), sizes[s], s);
  return out;
}

/// Servers of `n` members: one each, eights (the last one uneven), sixes and fives in turn, all.
std::vector<std::vector<uint32_t>> layouts(uint32_t n) {
  std::vector<std::vector<uint32_t>> out(4);
  out[0].assign(n, 1);
  out[3] = {n};
  for (uint32_t left = n; left > 0;) {
    out[1].push_back(std::min(left, 8U));
    left -= out[1].back();
  }
  for (uint32_t left = n, turn = 0; left > 0; ++turn) {
    out[2].push_back(std::min(left, turn % 2 == 0 ? 6U : 5U));
    left -= out[2].back();
  }
  return out;
}

std::vector<uint32_t> group_sizes() {
  std::vector<uint32_t> sizes(16);
  std::iota(sizes.begin(), sizes.end(), 2U);
  sizes.push_back(64);
  return sizes;
}

/// Sum over members of what they must send, by the textbook.
int64_t textbook_sum(const Call& call, int64_t handed_back) {
  const auto n = static_cast<int64_t>(call.servers.size());
  const int64_t s = call.bytes;
  switch (call.kind) {
    case CollectiveKind::all_reduce:
      return 2 * (n - 1) * s;
    case CollectiveKind::all_gather:
      return n * (n - 1) * s;
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
    case CollectiveKind::all_to_all:
      return (n - 1) * s;
    default:
      return (n - 1) * s + handed_back * s / n;
  }
}

void expect_all_know(const Call& call, const Log& log) {
  const auto n = static_cast<uint32_t>(call.servers.size());
  for (uint32_t m = 0; m < n; ++m) {
    if (call.kind == CollectiveKind::broadcast) {
      ASSERT_TRUE(log.knows[m].test(0)) << "member " << m;
    } else if (call.kind != CollectiveKind::reduce || m == 0) {
      ASSERT_EQ(n, log.knows[m].count()) << "member " << m;
    }
  }
}

int64_t sum(const std::vector<int64_t>& v) {
  return std::accumulate(v.begin(), v.end(), int64_t{0});
}

struct Row {
  const char* algorithm;
  CollectiveKind kind;
};
void PrintTo(const Row& row, std::ostream* out) {
  *out << row.algorithm << " " << collective_name(row.kind);
}

class Algorithms : public ::testing::TestWithParam<Row> {};

TEST_P(Algorithms, BytesAreThoseOfTheClosedForm) {
  const auto [name, kind] = GetParam();
  uint64_t seed = 0;
  for (const uint32_t n : group_sizes()) {
    for (const auto& layout : layouts(n)) {
      // Bytes that all cuts divide, an odd number, next to nothing.
      for (const int64_t bytes : {int64_t{n} * 64 * 17 * 128, int64_t{777'777}, int64_t{1}}) {
        if (n == 64 && bytes == 777'777) continue;
        Call call{name, kind, bytes, in_servers(layout), {}, {}, {}};
        SCOPED_TRACE(::testing::PrintToString(layout) + ", " + std::to_string(bytes) + " bytes");
        const Log log = drive(call, seed++ % 3);
        expect_all_know(call, log);
        if (HasFailure()) return;
        int64_t handed_back = 0;
        if (call.algorithm == "halving-doubling") handed_back = n - std::bit_floor(n);
        if (call.algorithm == "hierarchical") {
          // Servers hold unlike numbers: who is beyond the smallest server owns nothing.
          const uint32_t lanes = *std::min_element(layout.begin(), layout.end());
          handed_back = n - lanes * layout.size();
        }
        const int64_t wanted = textbook_sum(call, handed_back);
        if (kind == CollectiveKind::all_to_all && call.algorithm == "hierarchical") continue;
        EXPECT_NEAR(static_cast<double>(wanted) / n, static_cast<double>(log.closed_form), 1);
        EXPECT_NEAR(static_cast<double>(log.closed_form), static_cast<double>(sum(log.sent)) / n,
                    kPacket);
        EXPECT_EQ(sum(log.sent), sum(log.received));
        if (bytes == int64_t{n} * 64 * 17 * 128) {
          EXPECT_EQ(wanted, sum(log.sent));
        }
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Algorithms,
                         ::testing::Values(Row{"tree", CollectiveKind::all_reduce},
                                           Row{"tree", CollectiveKind::broadcast},
                                           Row{"tree", CollectiveKind::reduce},
                                           Row{"halving-doubling", CollectiveKind::all_reduce},
                                           Row{"halving-doubling", CollectiveKind::all_gather},
                                           Row{"halving-doubling", CollectiveKind::reduce_scatter},
                                           Row{"pairwise", CollectiveKind::all_to_all},
                                           Row{"hierarchical", CollectiveKind::all_reduce},
                                           Row{"hierarchical", CollectiveKind::all_gather},
                                           Row{"hierarchical", CollectiveKind::reduce_scatter},
                                           Row{"hierarchical", CollectiveKind::all_to_all}));

// --- tree ---------------------------------------------------------------------------------------

TEST(TreeCollective, TwoServersCarryTheBufferOncePerDirection) {
  // nccl-measured 2.7: two nodes beat the line rate of a ring by 2 (n - 1) / n = 1.875.
  const int64_t s = 16 << 20;
  const Log log = drive({"tree", CollectiveKind::all_reduce, s, in_servers({8, 8}), {}, {}, {}}, 1);
  std::vector<int64_t> out(2, 0);
  for (const auto& send : log.sends) {
    if (send.src / 8 == send.dst / 8) continue;
    EXPECT_EQ(send.src % 8, send.dst % 8);
    out[send.src / 8] += send.bytes;
  }
  EXPECT_EQ(s, out[0]);
  EXPECT_EQ(s, out[1]);
}

TEST(TreeCollective, NoServerIsInsideBothTrees) {
  for (uint32_t n = 3; n <= 64; ++n) {
    const int64_t s = int64_t{1} << 20;
    const Log log = drive({"tree",
                           CollectiveKind::all_reduce,
                           s,
                           in_servers(std::vector<uint32_t>(n, 1)),
                           {},
                           {},
                           {{"chunk", "1GiB"}}},
                          0);
    // Up once in each of two trees; down to two children in one of them: twice the buffer at most.
    std::vector<std::set<uint32_t>> inside(n);
    for (const auto& send : log.sends) {
      if (send.channel % 2 == 1) inside[send.src].insert(send.channel / 2);  // downwards
    }
    for (uint32_t m = 0; m < n; ++m) {
      EXPECT_LE(log.sent[m], 2 * s) << "member " << m << " of " << n;
      // But for the root of one, which has a single child, where their number is odd.
      EXPECT_LE(inside[m].size(), m == 0 && n % 2 == 1 ? 2U : 1U) << "member " << m << " of " << n;
    }
    EXPECT_EQ(4U * (n - 1), log.sends.size());
  }
}

TEST(TreeCollective, ChunksFollowEachOther) {
  // 4 MiB in two halves of 8 chunks each; the last member of the chain is busy from the start.
  const Log log =
      drive({"tree", CollectiveKind::all_reduce, 4 << 20, in_servers({4}), {}, {}, {}}, 0);
  EXPECT_EQ(2U * 8 * 2 * 3, log.sends.size());
  const Log fine = drive(
      {"tree", CollectiveKind::all_reduce, 4 << 20, in_servers({4}), {}, {}, {{"chunk", "64KiB"}}},
      0);
  EXPECT_EQ(2U * 32 * 2 * 3, fine.sends.size());
}

TEST(TreeCollective, ABroadcastLoadsNoNicWithMoreThanTheBuffer) {
  const int64_t s = 8 << 20;
  for (const uint32_t servers : {2U, 3U, 5U, 8U}) {
    const Log log = drive({"tree",
                           CollectiveKind::broadcast,
                           s,
                           in_servers(std::vector<uint32_t>(servers, 4)),
                           {},
                           {},
                           {}},
                          2);
    std::vector<int64_t> out(servers, 0), in(servers, 0);
    for (const auto& send : log.sends) {
      if (send.src / 4 == send.dst / 4) continue;
      out[send.src / 4] += send.bytes;
      in[send.dst / 4] += send.bytes;
    }
    for (uint32_t i = 0; i < servers; ++i) {
      EXPECT_LE(out[i], s) << i;
      EXPECT_EQ(i == 0 ? 0 : s, in[i]) << i;
    }
  }
}

// --- halving and doubling -----------------------------------------------------------------------

TEST(HalvingDoubling, BytesPerMember) {
  for (const uint32_t n : group_sizes()) {
    const uint32_t p = std::bit_floor(n);
    const uint32_t pairs = n - p;
    const int64_t s = int64_t{p} * n * 128;
    const Call ar{"halving-doubling",
                  CollectiveKind::all_reduce,
                  s,
                  in_servers(std::vector<uint32_t>(n, 1)),
                  {},
                  {},
                  {}};
    const Log log = drive(ar, n % 3);
    Call rs = ar;
    rs.kind = CollectiveKind::reduce_scatter;
    const Log scattered = drive(rs, n % 3);
    Call ag = ar;
    ag.kind = CollectiveKind::all_gather;
    const Log gathered = drive(ag, n % 3);
    for (uint32_t m = 0; m < n; ++m) {
      SCOPED_TRACE(::testing::Message() << "member " << m << " of " << n);
      const bool paired = m < 2 * pairs;
      const int64_t core = 2 * s / p * (p - 1);
      EXPECT_EQ(paired && m % 2 == 0 ? s : core + (paired ? s : 0), log.sent[m]);
      EXPECT_EQ(log.sent[m], log.received[m]);
      // Reduce-scatter: all but what it (or its pair) keeps; the pair's block goes back.
      const int64_t block = s / n;
      int64_t wanted = s - block * (paired ? 2 : 1) + (paired ? block : 0);
      if (paired && m % 2 == 0) wanted = s;
      EXPECT_EQ(wanted, scattered.sent[m]);
      if (paired && m % 2 == 0) {
        EXPECT_EQ(s, gathered.sent[m]);
      }
    }
    const auto steps = static_cast<uint32_t>(std::countr_zero(p));
    EXPECT_EQ(2 * p * steps + 2 * pairs, log.sends.size());
    EXPECT_EQ(p * steps + 2 * pairs, scattered.sends.size());
  }
}

TEST(HalvingDoubling, TheLargestHalvesGoToTheNearest) {
  const Log log = drive(
      {"halving-doubling", CollectiveKind::all_reduce, 1 << 20, in_servers({8, 8}), {}, {}, {}}, 0);
  int64_t between = 0;
  for (const auto& send : log.sends) {
    if (send.src / 8 == send.dst / 8) continue;
    EXPECT_EQ(send.src % 8, send.dst % 8);  // on rails
    between += send.bytes;
  }
  EXPECT_EQ(16 * 2 * (1 << 20) / 16, between);
}

// --- pairwise -----------------------------------------------------------------------------------

std::vector<int64_t> uneven_sizes(uint32_t n, uint64_t seed) {
  std::vector<int64_t> sizes(size_t{n} * n);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const uint64_t d = dice(seed, 9, 0, i);
    sizes[i] = d % 3 == 0 ? 0 : static_cast<int64_t>(d % 100'000);
  }
  return sizes;
}

TEST(Pairwise, RoundsAreInOrderAndOneAtATime) {
  for (const uint32_t n : {2U, 5U, 8U, 17U}) {
    const Log log = drive({"pairwise",
                           CollectiveKind::all_to_all,
                           17'000,
                           in_servers(std::vector<uint32_t>(n, 1)),
                           {},
                           {},
                           {}},
                          0);
    EXPECT_EQ(n * (n - 1), log.sends.size());
    EXPECT_EQ(1U, log.most_sent_at_once);
    std::vector<uint32_t> round(n, 0);
    for (const auto& send : log.sends) EXPECT_EQ((send.src + ++round[send.src]) % n, send.dst);
  }
}

TEST(UnequalShares, EveryPairGetsItsBytes) {
  for (const uint32_t n : {2U, 3U, 8U, 15U, 16U}) {
    for (const auto& layout : layouts(n)) {
      for (uint64_t seed = 1; seed <= 4; ++seed) {
        const auto sizes = uneven_sizes(n, seed);
        Call call{"pairwise", CollectiveKind::all_to_all, 1000, in_servers(layout), {}, sizes, {}};
        const Log pairwise = drive(call, seed);
        int64_t total = 0;
        for (uint32_t a = 0; a < n; ++a) {
          int64_t row = 0;
          for (uint32_t b = 0; b < n; ++b) row += a == b ? 0 : sizes[size_t{a} * n + b];
          EXPECT_EQ(row, pairwise.sent[a]);
          total += row;
        }
        EXPECT_EQ(total / n, pairwise.closed_form);
        call.algorithm = "hierarchical";
        const Log relayed = drive(call, seed);
        EXPECT_EQ(sum(relayed.sent) / n, relayed.closed_form);
        // What comes in beyond what is passed on is what was meant for a member.
        for (uint32_t b = 0; b < n; ++b) {
          int64_t column = 0;
          int64_t row = 0;
          for (uint32_t a = 0; a < n; ++a) {
            column += a == b ? 0 : sizes[size_t{a} * n + b];
            row += a == b ? 0 : sizes[size_t{b} * n + a];
          }
          EXPECT_EQ(column - row, relayed.received[b] - relayed.sent[b]);
        }
        if (HasFailure()) return;
      }
    }
  }
}

// --- hierarchical -------------------------------------------------------------------------------

TEST(Hierarchical, BytesPerMember) {
  const std::vector<std::vector<uint32_t>> all = {
      {8, 8}, {8, 8, 8}, {4, 4, 4, 4, 4}, {8, 7}, {7, 8, 8}, {1, 4}, {8}, {1, 1, 1}};
  for (const auto& layout : all) {
    const auto servers = in_servers(layout);
    const auto n = static_cast<int64_t>(servers.size());
    const auto count = static_cast<int64_t>(layout.size());
    const int64_t lanes = *std::min_element(layout.begin(), layout.end());
    const int64_t s = lanes * count * n * 1024;
    const Log ar = drive({"hierarchical", CollectiveKind::all_reduce, s, servers, {}, {}, {}}, 1);
    const Log rs =
        drive({"hierarchical", CollectiveKind::reduce_scatter, s, servers, {}, {}, {}}, 2);
    const Log ag = drive({"hierarchical", CollectiveKind::all_gather, s, servers, {}, {}, {}}, 1);
    uint32_t m = 0;
    for (const uint32_t size : layout) {
      for (uint32_t i = 0; i < size; ++i, ++m) {
        SCOPED_TRACE(::testing::PrintToString(layout) + " member " + std::to_string(m));
        const int64_t share = s / lanes;
        int64_t wanted = s;  // owns nothing: hands everything over
        if (i < lanes) {
          wanted = s - share + 2 * (count - 1) * share / count + (size - 1) * share;
        }
        EXPECT_EQ(wanted, ar.sent[m]);
        if (n == lanes * count) {  // all servers alike
          EXPECT_EQ((n - 1) * s / n, rs.sent[m]);
          EXPECT_EQ((n - 1) * s, ag.sent[m]);
        } else if (i >= lanes) {
          EXPECT_EQ(s, rs.sent[m]);
          EXPECT_EQ(s, ag.sent[m]);
        }
      }
    }
  }
}

// 7 GPUs beside 8: the GPU of rail 3 is gone in one server.
TEST(Hierarchical, StaysOnRailsWhereAServerLacksOne) {
  std::vector<uint32_t> rails{0, 1, 2, 4, 5, 6, 7};
  for (const uint32_t other : {8U, 8U}) {
    for (uint32_t r = 0; r < other; ++r) rails.push_back(r);
  }
  const auto servers = in_servers({7, 8, 8});
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                    CollectiveKind::reduce_scatter, CollectiveKind::all_to_all}) {
    const Log log = drive({"hierarchical", kind, 23 * 4096, servers, rails, {}, {}}, 5);
    std::set<uint32_t> used;
    for (const auto& send : log.sends) {
      if (servers[send.src] == servers[send.dst]) continue;
      ASSERT_EQ(rails[send.src], rails[send.dst]) << collective_name(kind);
      used.insert(rails[send.src]);
    }
    EXPECT_EQ(kind == CollectiveKind::all_to_all ? 8U : 7U, used.size());
  }
  // A tree in the same place.
  const Log log = drive({"tree", CollectiveKind::all_reduce, 1 << 20, servers, rails, {}, {}}, 5);
  for (const auto& send : log.sends) {
    if (servers[send.src] == servers[send.dst]) continue;
    ASSERT_EQ(rails[send.src], rails[send.dst]);
  }
}

TEST(Hierarchical, AllToAllGathersByRail) {
  const int64_t n = 32;
  const int64_t share = 4096;
  const auto servers = in_servers({8, 8, 8, 8});
  const Log log =
      drive({"hierarchical", CollectiveKind::all_to_all, n * share, servers, {}, {}, {}}, 3);
  std::map<std::pair<uint32_t, uint32_t>, int64_t> between;
  for (const auto& send : log.sends) {
    if (servers[send.src] != servers[send.dst]) between[{send.src, send.dst}] += send.bytes;
  }
  // A NIC speaks to its own rail only, and carries what eight members have for each.
  EXPECT_EQ(32U * 3, between.size());
  for (const auto& [pair, bytes] : between) EXPECT_EQ(8 * share, bytes);
  // 7 shares inside, 3 along the rail, 21 twice.
  EXPECT_EQ((7 + 3 + 2 * 21) * share, log.closed_form);
  for (const int64_t sent : log.sent) EXPECT_EQ(log.closed_form, sent);
}

// --- in the switch ------------------------------------------------------------------------------

TEST(Nvls, PortsCarryTheBufferAndAnNth) {
  for (const uint32_t n : group_sizes()) {
    const int64_t s = int64_t{n} * 4096;
    const Log log = drive({"nvls", CollectiveKind::all_reduce, s, in_servers({n}), {}, {}, {}}, n);
    for (uint32_t m = 0; m < n; ++m) {
      EXPECT_EQ(s + s / n, log.sent[m]);
      EXPECT_EQ(s + s / n, log.received[m]);
    }
    EXPECT_EQ(s + s / n, log.closed_form);
  }
}

// Ports carry the buffer and a share of it, lanes a tree's edges; any number of members in any
// servers.
TEST(NvlsTree, SendsTheClosedForm) {
  const std::vector<std::vector<uint32_t>> shapes = {
      {4, 4},      {8, 8, 8}, {1, 1}, {1, 1, 1, 1, 1}, {3, 5}, {1, 4}, {2, 2, 2, 2, 2, 2, 2},
      {8, 8, 8, 8}};
  for (const auto& shape : shapes) {
    const auto n = std::accumulate(shape.begin(), shape.end(), 0U);
    for (const int64_t bytes : {int64_t{1}, int64_t{1000}, int64_t{n} * (1 << 20)}) {
      Call call{"nvls-tree", CollectiveKind::all_reduce, bytes, in_servers(shape), {}, {}, {}};
      for (uint32_t m = 0, next = 0; next < shape.size(); ++next) {
        for (uint32_t i = 0; i < shape[next]; ++i, ++m) call.rails.push_back(i);
      }
      SCOPED_TRACE(::testing::Message() << n << " in " << shape.size() << ", " << bytes);
      const Log log = drive(call, n);
      int64_t buffers = 2 * (static_cast<int64_t>(shape.size()) - 1);
      for (const uint32_t p : shape) buffers += p > 1 ? p + 1 : 0;
      EXPECT_EQ(buffers * bytes, std::accumulate(log.sent.begin(), log.sent.end(), int64_t{0}));
      EXPECT_EQ(buffers * bytes / n, log.closed_form);
      EXPECT_EQ(log.sent.size(), n);
    }
  }
  EXPECT_EQ("nvls-tree", make("nvls-tree", {})->name());
}

// --- custom -------------------------------------------------------------------------------------

class CustomCollective : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() /
           ("trainyard_custom_" + std::to_string(::getpid()) + "_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  /// A ring all-gather of `n` members with shards of `bytes`.
  void write_ring(uint32_t n, int64_t bytes, int64_t last_tag = 0) const {
    for (uint32_t r = 0; r < n; ++r) {
      chakra::RankTrace t;
      uint64_t id = 0;
      const auto add = [&](chakra::NodeType type) -> chakra::Node& {
        chakra::Node node;
        node.id = id++;
        node.name = "n" + std::to_string(node.id);
        node.type = type;
        t.nodes.push_back(node);
        return t.nodes.back();
      };
      for (uint32_t step = 0; step + 1 < n; ++step) {
        auto& recv = add(chakra::NodeType::comm_recv);
        recv.comm_src = (r + n - 1) % n;
        recv.comm_tag = step;
        recv.comm_size = bytes;
        auto& send = add(chakra::NodeType::comm_send);
        send.comm_dst = (r + 1) % n;
        send.comm_tag = step + (step + 2 == n && r == 0 ? last_tag : 0);
        send.comm_size = bytes;
        if (step > 0) send.data_deps = {id - 3};  // a COMP after the receive before
        auto& comp = add(chakra::NodeType::comp);
        comp.duration_us = 7;
        comp.data_deps = {id - 3};
      }
      chakra::write_rank((dir_ / ("ring." + std::to_string(r) + ".et")).string(), t);
    }
  }
  [[nodiscard]] std::string prefix() const { return (dir_ / "ring").string(); }
  std::filesystem::path dir_;
};

TEST_F(CustomCollective, RunsWhatTheTracesSay) {
  write_ring(5, 1000);
  Call call{"custom", CollectiveKind::all_gather, 3000, in_servers({5}), {},
            {},       {{"custom", prefix()}}};
  const Log log = drive(call, 3);
  expect_all_know(call, log);
  for (const int64_t sent : log.sent) EXPECT_EQ(4 * 1000, sent);
  EXPECT_EQ(4 * 1000, log.closed_form);
  call.settings["custom_size"] = "1000B";  // written for shards of that size
  const Log scaled = drive(call, 4);
  for (const int64_t sent : scaled.sent) EXPECT_EQ(4 * 3000, sent);
  EXPECT_EQ(4 * 3000, scaled.closed_form);
  // Another number of members is not for it.
  std::vector<uint32_t> members{0, 1, 2};
  CollectiveRequest other;
  other.kind = CollectiveKind::all_gather;
  other.bytes = 8;
  other.members = &members;
  EXPECT_FALSE(make("custom", call.settings)->serves(other));
}

TEST_F(CustomCollective, ASendWithoutAReceiveIsRefused) {
  write_ring(3, 1000, 77);
  try {
    (void)make("custom", {{"custom", prefix()}});
    FAIL() << "no error";
  } catch (const UserError& e) {
    EXPECT_NE(std::string::npos, std::string(e.what()).find("SEND without a RECV")) << e.what();
    EXPECT_NE(std::string::npos, std::string(e.what()).find("ring.0.et")) << e.what();
  }
}

TEST_F(CustomCollective, TheOneOfAstraSimIsARing) {
  const std::string shared = test::shared_folder();
  if (shared.empty()) GTEST_SKIP() << "shared/traces not found: custom collectives unproven";
  const Settings settings{
      {"custom", shared + "/traces/astra-sim/custom_ring_allreduce_8npus_1MB/custom_allreduce"},
      {"custom_size", "1MiB"}};
  const Call call{"custom", CollectiveKind::all_reduce, 1 << 20, in_servers({8}), {}, {}, settings};
  const Log log = drive(call, 1);
  expect_all_know(call, log);
  EXPECT_EQ(8U * 14, log.sends.size());
  for (const int64_t sent : log.sent) EXPECT_EQ(1'835'008, sent);
  for (const auto& send : log.sends) EXPECT_EQ((send.src + 1) % 8, send.dst);
}

// --- selection ----------------------------------------------------------------------------------

std::string chosen(const Settings& settings, CollectiveKind kind, uint32_t servers = 2) {
  Params params(collective_params());
  for (const auto& [key, value] : settings) params.set(key, value, {});
  std::vector<uint32_t> members(8);
  std::iota(members.begin(), members.end(), 0U);
  CollectiveRequest request;
  request.kind = kind;
  request.bytes = 8;
  request.members = &members;
  request.placement.server = std::make_shared<std::vector<uint32_t>>(
      in_servers(std::vector<uint32_t>(servers, 8 / servers)));
  return make_collective_selector(params)->choose(request).name();
}

TEST(Selection, ByKindAndByWord) {
  using K = CollectiveKind;
  const Settings by_kind{{"algorithm.all_reduce", "tree"},
                         {"algorithm.all_to_all", "pairwise"},
                         {"algorithm.reduce_scatter", "halving-doubling"}};
  EXPECT_EQ("tree", chosen(by_kind, K::all_reduce));
  EXPECT_EQ("pairwise", chosen(by_kind, K::all_to_all));
  EXPECT_EQ("halving-doubling", chosen(by_kind, K::reduce_scatter));
  EXPECT_EQ("halving-doubling", chosen(by_kind, K::reduce_scatter_block));
  EXPECT_EQ("ring", chosen(by_kind, K::all_gather));
  EXPECT_EQ("chain", chosen(by_kind, K::broadcast));
  // One word holds where the algorithm can; elsewhere it is as with auto.
  EXPECT_EQ("tree", chosen({{"algorithm", "tree"}}, K::broadcast));
  EXPECT_EQ("direct", chosen({{"algorithm", "tree"}}, K::all_to_all));
  EXPECT_EQ("star", chosen({{"algorithm", "hierarchical"}}, K::gather));
  // Inside one scale-up domain only.
  EXPECT_EQ("nvls", chosen({{"algorithm", "nvls"}}, K::all_reduce, 1));
  EXPECT_EQ("ring", chosen({{"algorithm", "nvls"}}, K::all_reduce, 2));
}

TEST(Selection, RefusesWhatItCannotMean) {
  const auto problem = [](const Settings& settings) -> std::string {
    try {
      (void)chosen(settings, CollectiveKind::all_reduce);
    } catch (const UserError& e) {
      return e.what();
    }
    return "none";
  };
  EXPECT_NE(std::string::npos, problem({{"algorithm", "rng"}}).find("halving-doubling"));
  EXPECT_NE(std::string::npos,
            problem({{"algorithm.all_to_all", "tree"}}).find("hierarchical, pairwise"));
  EXPECT_NE(std::string::npos,
            problem({{"algorithm.all_reduce", "custom"}}).find("collectives.custom"));
  EXPECT_NE(std::string::npos, problem({{"algorithm", "custom"}}).find("{all_reduce: custom}"));
}

TEST(GroupLayout, LanesAreRailsAndPlacesOnThem) {
  // Two servers of four GPUs and two rails, the second without its last GPU.
  const std::vector<uint32_t> members{0, 1, 2, 3, 4, 5, 6};
  CollectiveRequest r;
  r.members = &members;
  r.placement.server = std::make_shared<std::vector<uint32_t>>(in_servers({4, 3}));
  r.placement.rail =
      std::make_shared<std::vector<uint32_t>>(std::vector<uint32_t>{5, 8, 5, 8, 5, 8, 5});
  const GroupLayout layout(r);
  EXPECT_EQ((std::vector<uint32_t>{0, 1, 0, 1, 0, 1, 0}), layout.rail_of);
  EXPECT_EQ((std::vector<uint32_t>{0, 1, 2, 3, 0, 1, 2}), layout.lane_of);
  EXPECT_EQ((std::vector<uint32_t>{0, 1, 2}), layout.common);
  EXPECT_EQ(5U, layout.on_rail_of(3, 1));  // not the same lane, the same rail
}

}  // namespace
}  // namespace trainyard
