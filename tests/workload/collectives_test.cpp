// SPDX-License-Identifier: MIT
// Collective algorithms driven by hand: what is sent, in what order, and what the data means.
#include "sim/collective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "sim/dice.h"
#include "sim/errors.h"
#include "sim/registry.h"
#include "workload/collective_params.h"

namespace trainyard {
namespace {

constexpr int64_t kPacket = 4096;

enum class Order { fifo, lifo, random };

const char* order_name(Order order) {
  switch (order) {
    case Order::fifo:
      return "fifo";
    case Order::lifo:
      return "lifo";
    case Order::random:
      return "random";
  }
  return "";
}

/// One call of an algorithm.
struct Call {
  CollectiveKind kind = CollectiveKind::all_reduce;
  uint32_t n = 2;
  int64_t bytes = 1000;
  std::string channels = "1";
  std::string cross_nic = "0";
  std::string window = "auto";
  std::vector<uint32_t> server_of;  ///< member -> server; empty: one rank a server
};

std::unique_ptr<CollectiveAlgorithm> make_algorithm(const Call& call) {
  Params params(collective_params());
  params.set("channels", call.channels, {});
  params.set("cross_nic", call.cross_nic, {});
  params.set("window", call.window, {});
  const char* name = call.kind == CollectiveKind::all_to_all ? "direct" : "ring";
  return Registry::instance().factory<CollectiveFactory>("collective", name)(params);
}

/// What happened, in order: a message left or came.
struct Step {
  bool delivery = false;
  size_t message = 0;  ///< index into Log::sends
};

struct Log {
  std::vector<CollectiveSend> sends;
  std::vector<Step> steps;
  std::vector<int64_t> sent, received;  ///< payload bytes per member
  size_t max_in_flight_of_one = 0;      ///< messages of one sender at a time
  int64_t closed_form = 0;              ///< sent_per_member()
};

/// Runs a call to the end and checks the contract of CollectiveRun on the way.
/// @param mixed arrivals happen between deliveries; else all members arrive first
Log drive(const Call& call, Order order, bool mixed, uint64_t seed) {
  // Rank numbers differ from member numbers, so that mixing them up shows.
  std::vector<uint32_t> members(call.n);
  for (uint32_t m = 0; m < call.n; ++m) members[m] = 3 + 2 * m;
  CollectiveRequest request;
  request.kind = call.kind;
  request.bytes = call.bytes;
  request.members = &members;
  auto servers = std::make_shared<std::vector<uint32_t>>(3 + 2 * call.n);
  std::iota(servers->begin(), servers->end(), 1000);
  for (size_t m = 0; m < call.server_of.size(); ++m) (*servers)[members[m]] = call.server_of[m];
  request.placement.server = servers;

  const auto algorithm = make_algorithm(call);
  EXPECT_TRUE(algorithm->supports(call.kind));
  Log log;
  log.closed_form = algorithm->sent_per_member(request);
  log.sent.assign(call.n, 0);
  log.received.assign(call.n, 0);
  const auto run = algorithm->begin(request);

  using Edge = std::tuple<uint32_t, uint32_t, uint32_t>;  // source, destination, channel
  std::map<Edge, std::deque<size_t>> on_edge;  // in flight; one edge and channel keeps its order
  std::deque<Edge> pending;                    // one entry per message in flight
  std::vector<char> here(call.n, 0), is_done(call.n, 0);
  std::vector<size_t> open(call.n, 0), sending(call.n, 0);
  std::vector<CollectiveSend> sends;
  std::vector<uint32_t> done;
  uint64_t draws = 0;
  bool failed = false;
  const auto fail = [&](const std::string& what) {
    if (!failed) ADD_FAILURE() << what;
    failed = true;
  };

  const auto absorb = [&] {
    for (const CollectiveSend& s : sends) {
      if (s.src >= call.n || s.dst >= call.n || s.src == s.dst || s.bytes <= 0) {
        fail("malformed message");
        return;
      }
      if (here[s.src] == 0 || here[s.dst] == 0) fail("a message left before both ends arrived");
      if (is_done[s.src] != 0 || is_done[s.dst] != 0) fail("a message of a member that was done");
      ++open[s.src];
      ++open[s.dst];
      log.max_in_flight_of_one = std::max(log.max_in_flight_of_one, ++sending[s.src]);
      log.sent[s.src] += s.bytes;
      log.steps.push_back({false, log.sends.size()});
      const Edge edge{s.src, s.dst, s.channel};
      on_edge[edge].push_back(log.sends.size());
      pending.push_back(edge);
      log.sends.push_back(s);
    }
    for (const uint32_t m : done) {
      if (m >= call.n || is_done[m] != 0) {
        fail("a member was done twice");
        return;
      }
      if (here[m] == 0) fail("a member was done before it arrived");
      if (open[m] != 0) fail("a member was done with messages in flight");
      is_done[m] = 1;
    }
    sends.clear();
    done.clear();
  };

  std::vector<uint32_t> arrivals(call.n);
  std::iota(arrivals.begin(), arrivals.end(), 0);
  for (uint32_t i = call.n - 1; i > 0; --i) {
    std::swap(arrivals[i], arrivals[dice(seed, 1, i, 0) % (i + 1)]);
  }
  size_t arrived = 0;
  while (!failed && (arrived < call.n || !pending.empty())) {
    const bool arrive =
        arrived < call.n && (pending.empty() || !mixed || dice(seed, 2, 0, ++draws) % 4 == 0);
    if (arrive) {
      here[arrivals[arrived]] = 1;
      run->arrived(arrivals[arrived], sends, done);
      ++arrived;
      absorb();
      continue;
    }
    size_t at = 0;
    if (order == Order::lifo) at = pending.size() - 1;
    if (order == Order::random) at = dice(seed, 3, 0, ++draws) % pending.size();
    const Edge edge = pending[at];
    std::swap(pending[at], order == Order::fifo ? pending.front() : pending.back());
    order == Order::fifo ? pending.pop_front() : pending.pop_back();
    auto& queue = on_edge[edge];
    const size_t message = queue.front();
    queue.pop_front();
    const CollectiveSend s = log.sends[message];
    --open[s.src];
    --open[s.dst];
    --sending[s.src];
    log.received[s.dst] += s.bytes;
    log.steps.push_back({true, message});
    run->delivered(s, sends, done);
    absorb();
  }
  if (std::count(is_done.begin(), is_done.end(), 1) != call.n) fail("a member is never done");
  return log;
}

/// A block of the buffer on its way round a ring.
struct Block {
  uint32_t origin = 0;            ///< member at which it started
  std::bitset<64> contributions;  ///< members whose data it holds
};

/// Replays the log as a ring: the k-th message of a member on a channel carries on what its
/// (k-1)-th receive brought, to which it adds its own data while reducing. Checks that this makes
/// the collective that was asked for. Knows nothing of the algorithm but the messages.
void check_ring_data(const Call& call, const Log& log) {
  const uint32_t n = call.n;
  const bool reduces = call.kind != CollectiveKind::all_gather;
  const bool gathers = call.kind != CollectiveKind::reduce_scatter;
  uint32_t channels = 0;
  for (const auto& s : log.sends) channels = std::max(channels, s.channel + 1);
  std::map<std::pair<uint32_t, uint32_t>, int64_t> size_of;         // channel, origin
  std::map<std::pair<uint32_t, uint32_t>, std::vector<Block>> got;  // channel, member
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> count, next, previous;
  std::vector<Block> payload(log.sends.size());

  for (const Step& step : log.steps) {
    const CollectiveSend& s = log.sends[step.message];
    if (step.delivery) {
      got[{s.channel, s.dst}].push_back(payload[step.message]);
      continue;
    }
    // One successor and one predecessor for ever: a ring.
    const auto [to, fresh] = next.emplace(std::pair{s.channel, s.src}, s.dst);
    ASSERT_TRUE(fresh || to->second == s.dst) << "two successors on one channel";
    const auto [from, fresh_from] = previous.emplace(std::pair{s.channel, s.dst}, s.src);
    ASSERT_TRUE(fresh_from || from->second == s.src) << "two predecessors on one channel";
    const uint32_t k = count[{s.channel, s.src}]++;
    Block b{s.src, std::bitset<64>().set(s.src)};
    if (k > 0) {
      const auto& mine = got[{s.channel, s.src}];
      ASSERT_LT(k - 1, mine.size()) << "member " << s.src << " passes on what it has not got";
      b = mine[k - 1];
      if (reduces && k < n - 1) {
        ASSERT_FALSE(b.contributions.test(s.src)) << "a contribution added twice";
        b.contributions.set(s.src);
      } else if (reduces) {
        // From here on the block is final; the sender finished it if it is the first.
        if (k == n - 1) b.contributions.set(s.src);
        ASSERT_EQ(n, b.contributions.count()) << "an unfinished block is spread";
      }
    }
    const auto [size, first] = size_of.emplace(std::pair{s.channel, b.origin}, s.bytes);
    ASSERT_TRUE(first || size->second == s.bytes) << "a block changed its size on the way";
    payload[step.message] = b;
  }

  int64_t total = 0;
  for (const auto& [key, bytes] : size_of) total += bytes;
  ASSERT_EQ(static_cast<size_t>(channels) * n, size_of.size());
  if (call.kind == CollectiveKind::all_gather) {
    EXPECT_EQ(call.bytes * n, total);  // every shard as large as asked for
  } else {
    EXPECT_EQ(std::max<int64_t>(call.bytes, n), total);  // no empty blocks
  }
  for (uint32_t c = 0; c < channels; ++c) {
    std::set<uint32_t> owned;  // reduce-scatter: who ends up with which block
    for (uint32_t m = 0; m < n; ++m) {
      std::set<uint32_t> final_blocks;
      const auto& mine = got[{c, m}];
      for (size_t k = 0; k < mine.size(); ++k) {
        Block b = mine[k];
        if (reduces && k == n - 2) b.contributions.set(m);  // the block it finishes
        if (!reduces || b.contributions.count() == n) final_blocks.insert(b.origin);
      }
      if (!reduces) final_blocks.insert(m);  // its own shard
      if (gathers) {
        ASSERT_EQ(n, final_blocks.size()) << "member " << m << " lacks blocks on channel " << c;
      } else {
        ASSERT_EQ(1U, final_blocks.size()) << "member " << m << " on channel " << c;
        ASSERT_TRUE(owned.insert(*final_blocks.begin()).second) << "two members own a block";
      }
    }
  }
}

/// All-to-all: exactly one message from everybody to everybody else.
void check_all_to_all_data(const Call& call, const Log& log) {
  std::set<std::pair<uint32_t, uint32_t>> pairs;
  std::map<uint32_t, int64_t> share;  // by destination
  for (const auto& s : log.sends) {
    ASSERT_TRUE(pairs.emplace(s.src, s.dst).second) << s.src << " sends to " << s.dst << " twice";
    const auto [it, first] = share.emplace(s.dst, s.bytes);
    ASSERT_TRUE(first || it->second == s.bytes) << "senders disagree on the share of " << s.dst;
  }
  EXPECT_EQ(static_cast<size_t>(call.n) * (call.n - 1), pairs.size());
  int64_t total = 0;
  for (const auto& [member, bytes] : share) total += bytes;
  if (call.bytes >= call.n) {
    EXPECT_EQ(call.bytes, total);  // the shares are the buffer
  }
}

size_t expected_messages(const Call& call) {
  const size_t n = call.n;
  if (call.kind == CollectiveKind::all_to_all) return n * (n - 1);
  const size_t steps = call.kind == CollectiveKind::all_reduce ? 2 * (n - 1) : n - 1;
  // A channel without a byte per block is no use.
  const int64_t block =
      call.kind == CollectiveKind::all_gather ? call.bytes : call.bytes / static_cast<int64_t>(n);
  const int64_t channels =
      std::clamp<int64_t>(std::stoll(call.channels), 1, std::max<int64_t>(1, block));
  return n * steps * static_cast<size_t>(channels);
}

/// Payload per member by the textbook, in units of 1/n bytes.
int64_t textbook_times_n(const Call& call) {
  const int64_t n = call.n;
  switch (call.kind) {
    case CollectiveKind::all_reduce:
      return 2 * (n - 1) * call.bytes;
    case CollectiveKind::all_gather:
      return n * (n - 1) * call.bytes;
    default:
      return (n - 1) * call.bytes;
  }
}

std::vector<uint32_t> group_sizes() {
  std::vector<uint32_t> sizes;
  for (uint32_t n = 2; n <= 17; ++n) sizes.push_back(n);
  sizes.push_back(64);
  return sizes;
}

void check_all(CollectiveKind kind) {
  uint64_t seed = 0;
  for (const uint32_t n : group_sizes()) {
    for (const int64_t bytes :
         std::vector<int64_t>{1, 1000, 777'777, (1 << 20) + 3, int64_t{n} * 8 * 3 * 128}) {
      for (const char* channels : {"1", "3", "8"}) {
        const Call call{kind, n, bytes, channels, "0", "auto", {}};
        for (const Order order : {Order::fifo, Order::lifo, Order::random}) {
          // The large group once per setting: its orders differ by the seed anyway.
          if (n == 64 && order != Order::random) continue;
          ++seed;
          SCOPED_TRACE(std::string(collective_name(kind)) + " n=" + std::to_string(n) +
                       " bytes=" + std::to_string(bytes) + " channels=" + channels + " " +
                       order_name(order) + " seed=" + std::to_string(seed));
          const Log log = drive(call, order, seed % 2 == 0, seed);
          EXPECT_EQ(expected_messages(call), log.sends.size());
          EXPECT_LE(std::abs(log.closed_form - textbook_times_n(call) / n), 2);
          const bool divides = bytes % (int64_t{n} * 8 * 3) == 0;
          for (uint32_t m = 0; m < n; ++m) {
            ASSERT_LE(std::abs(log.sent[m] - log.closed_form), kPacket) << "member " << m;
            ASSERT_LE(std::abs(log.received[m] - log.closed_form), kPacket) << "member " << m;
            if (divides) {
              ASSERT_EQ(textbook_times_n(call), log.sent[m] * n) << "member " << m;
              ASSERT_EQ(textbook_times_n(call), log.received[m] * n) << "member " << m;
            }
          }
          if (kind == CollectiveKind::all_to_all) {
            check_all_to_all_data(call, log);
          } else {
            check_ring_data(call, log);
          }
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(RingCollective, AllReduceReducesEverythingEverywhere) {
  check_all(CollectiveKind::all_reduce);
}
TEST(RingCollective, AllGatherGathersEveryShard) {
  check_all(CollectiveKind::all_gather);
}
TEST(RingCollective, ReduceScatterReducesOneShardEach) {
  check_all(CollectiveKind::reduce_scatter);
}
TEST(DirectCollective, AllToAllSendsEveryShareOnce) {
  check_all(CollectiveKind::all_to_all);
}

// Pains #56: not the full size on every tree or channel.
TEST(RingCollective, ChannelsShareTheBufferAndDoNotRepeatIt) {
  for (const char* channels : {"1", "2", "4", "8"}) {
    const Call call{CollectiveKind::all_reduce, 8, 1 << 20, channels, "0", "auto", {}};
    const Log log = drive(call, Order::fifo, false, 1);
    for (const int64_t sent : log.sent) EXPECT_EQ(1'835'008, sent);  // 2 x 7/8 MiB
  }
}

TEST(RingCollective, AMemberThatIsLateHoldsBackOnlyWhatNeedsIt) {
  // Members 0 to 2 of 4 are here: two edges are open, and nothing can go round.
  std::vector<uint32_t> members{0, 1, 2, 3};
  CollectiveRequest request;
  request.bytes = 4096;
  request.members = &members;
  const auto run = make_algorithm({})->begin(request);
  std::vector<CollectiveSend> sends;
  std::vector<uint32_t> done;
  run->arrived(0, sends, done);
  EXPECT_TRUE(sends.empty());
  run->arrived(1, sends, done);
  ASSERT_EQ(1U, sends.size());
  EXPECT_EQ(0U, sends[0].src);
  EXPECT_EQ(1U, sends[0].dst);
  run->arrived(2, sends, done);
  for (size_t i = 0; i < sends.size(); ++i) run->delivered(CollectiveSend(sends[i]), sends, done);
  // 0 sends one block; 1 its own and the one from 0; 2 has no receiver.
  EXPECT_EQ(3U, sends.size());
  EXPECT_TRUE(done.empty());
  const size_t before = sends.size();
  run->arrived(3, sends, done);
  EXPECT_GT(sends.size(), before);
  for (size_t i = before; i < sends.size(); ++i) {
    run->delivered(CollectiveSend(sends[i]), sends, done);
  }
  EXPECT_EQ(4U * 6, sends.size());
  EXPECT_EQ(4U, done.size());
}

TEST(DirectCollective, WindowBoundsMessagesInFlight) {
  for (const char* window : {"1", "2", "5"}) {
    Call call{CollectiveKind::all_to_all, 9, 9000, "1", "0", window, {}};
    const Log log = drive(call, Order::random, true, 7);
    EXPECT_EQ(std::stoul(window), log.max_in_flight_of_one) << window;
    check_all_to_all_data(call, log);
  }
  Call call{CollectiveKind::all_to_all, 9, 9000, "1", "0", "auto", {}};
  EXPECT_EQ(8U, drive(call, Order::fifo, false, 7).max_in_flight_of_one);
}

TEST(DirectCollective, FirstReceiversDiffer) {
  Call call{CollectiveKind::all_to_all, 8, 8000, "1", "0", "1", {}};
  const Log log = drive(call, Order::fifo, false, 3);
  std::map<uint32_t, uint32_t> first;
  for (const auto& s : log.sends) first.emplace(s.src, s.dst);
  std::set<uint32_t> receivers;
  for (const auto& [src, dst] : first) receivers.insert(dst);
  // With a window of 1 and arrivals one after the other, the very first peers may repeat; the
  // rotated order keeps one receiver from being everybody's.
  EXPECT_GE(receivers.size(), 3U);
}

// --- rails --------------------------------------------------------------------------------------

std::vector<uint32_t> in_servers(const std::vector<uint32_t>& sizes) {
  std::vector<uint32_t> server_of;
  for (uint32_t s = 0; s < sizes.size(); ++s) server_of.insert(server_of.end(), sizes[s], s);
  return server_of;
}

class Rails : public ::testing::TestWithParam<std::tuple<uint32_t, std::string, CollectiveKind>> {};

TEST_P(Rails, MessagesBetweenServersStayOnOneRail) {
  const auto [servers, channels, kind] = GetParam();
  Call call{kind, servers * 8, 3 << 20, channels, "0", "auto", {}};
  call.server_of = in_servers(std::vector<uint32_t>(servers, 8));
  const Log log = drive(call, Order::random, true, 11);
  check_ring_data(call, log);
  std::vector<int64_t> out(call.n, 0), in(call.n, 0);
  std::set<uint32_t> used;
  for (const auto& s : log.sends) {
    used.insert(s.channel);
    if (call.server_of[s.src] == call.server_of[s.dst]) continue;
    ASSERT_EQ(s.src % 8, s.dst % 8) << "channel " << s.channel << " crosses rails";
    out[s.src] += s.bytes;
    in[s.dst] += s.bytes;
  }
  EXPECT_EQ(8U, used.size());  // auto: one per member of a server
  for (uint32_t m = 0; m < call.n; ++m) {
    // Shares of channels differ by rounding only.
    EXPECT_NEAR(static_cast<double>(log.closed_form) / 8, static_cast<double>(out[m]), 256) << m;
    EXPECT_NEAR(static_cast<double>(log.closed_form) / 8, static_cast<double>(in[m]), 256) << m;
  }
}

INSTANTIATE_TEST_SUITE_P(EvenServers, Rails,
                         ::testing::Combine(::testing::Values(2U, 4U, 6U),
                                            ::testing::Values("8", "auto"),
                                            ::testing::Values(CollectiveKind::all_reduce,
                                                              CollectiveKind::all_gather,
                                                              CollectiveKind::reduce_scatter)));

// A:N117: with NCCL_CROSS_NIC=0 rings over rails stay off the spine, also over odd numbers of
// servers.
TEST(RingCollective, OddServersKeepToTheirRails) {
  for (const uint32_t servers : {3U, 5U, 7U}) {
    for (const uint32_t gpus : {3U, 4U, 8U}) {
      Call call{CollectiveKind::all_reduce,
                servers * gpus,
                3 << 20,
                std::to_string(gpus),
                "0",
                "auto",
                {}};
      call.server_of = in_servers(std::vector<uint32_t>(servers, gpus));
      const Log log = drive(call, Order::fifo, false, 11);
      check_ring_data(call, log);
      std::set<uint32_t> out, in;
      for (const auto& s : log.sends) {
        if (call.server_of[s.src] == call.server_of[s.dst]) continue;
        out.insert(s.src);
        in.insert(s.dst);
        EXPECT_EQ(s.src % gpus, s.dst % gpus) << servers << " servers of " << gpus;
      }
      EXPECT_EQ(call.n, out.size());
      EXPECT_EQ(call.n, in.size());
    }
  }
}

TEST(RingCollective, OddServersOfTwoCrossRailsInTheClosingHopOnly) {
  Call call{CollectiveKind::all_reduce, 6, 3 << 20, "2", "0", "auto", {}};
  call.server_of = in_servers({2, 2, 2});
  const Log log = drive(call, Order::fifo, false, 11);
  for (const auto& s : log.sends) {
    if (call.server_of[s.src] == call.server_of[s.dst] || s.src % 2 == s.dst % 2) continue;
    EXPECT_EQ(2U, call.server_of[s.src]);
    EXPECT_EQ(0U, call.server_of[s.dst]);
  }
}

TEST(RingCollective, CrossNicAllowsOtherRails) {
  Call call{CollectiveKind::all_reduce, 16, 3 << 20, "8", "1", "auto", {}};
  call.server_of = in_servers({8, 8});
  const Log log = drive(call, Order::fifo, false, 1);
  check_ring_data(call, log);
  std::set<uint32_t> out, in;
  size_t other_rail = 0;
  for (const auto& s : log.sends) {
    if (call.server_of[s.src] == call.server_of[s.dst]) continue;
    out.insert(s.src);
    in.insert(s.dst);
    other_rail += s.src % 8 != s.dst % 8 ? 1 : 0;
  }
  EXPECT_GT(other_rail, 0U);
  EXPECT_EQ(16U, out.size());
  EXPECT_EQ(16U, in.size());
}

// Pains #38: TP = 24 on servers of 8, and groups that do not divide a server at all.
TEST(RingCollective, GroupsThatDoNotDivideAServer) {
  const std::vector<std::vector<uint32_t>> layouts = {{8, 8, 8}, {8, 4}, {4, 8},    {8, 1},
                                                      {1, 8},    {5, 3}, {8, 8, 2}, {2, 3, 4}};
  for (const auto& layout : layouts) {
    for (const char* channels : {"auto", "1", "3", "8"}) {
      Call call{CollectiveKind::all_reduce,
                std::accumulate(layout.begin(), layout.end(), 0U),
                1 << 20,
                channels,
                "0",
                "auto",
                in_servers(layout)};
      SCOPED_TRACE(::testing::PrintToString(layout) + " channels " + channels);
      const Log log = drive(call, Order::random, true, 5);
      check_ring_data(call, log);
      // A ring enters every server once: no more hops between servers than servers.
      std::map<uint32_t, std::set<std::pair<uint32_t, uint32_t>>> hops;
      for (const auto& s : log.sends) {
        if (call.server_of[s.src] != call.server_of[s.dst]) hops[s.channel].emplace(s.src, s.dst);
      }
      for (const auto& [channel, edges] : hops) EXPECT_EQ(layout.size(), edges.size()) << channel;
      for (const int64_t sent : log.sent) EXPECT_LE(std::abs(sent - log.closed_form), kPacket);
    }
  }
}

TEST(RingCollective, MembersListedAcrossServersKeepTheListedOrder) {
  // A data-parallel group of 2 servers, listed alternately.
  Call call{CollectiveKind::all_gather, 4, 4096, "1", "0", "auto", {0, 1, 0, 1}};
  const Log log = drive(call, Order::fifo, false, 1);
  check_ring_data(call, log);
  for (const auto& s : log.sends) EXPECT_EQ((s.src + 1) % 4, s.dst);
}

TEST(RingCollective, OneServerUsesOneChannelByDefault) {
  Call call{CollectiveKind::all_reduce, 8, 1 << 20, "auto", "0", "auto", in_servers({8})};
  for (const auto& s : drive(call, Order::fifo, false, 1).sends) EXPECT_EQ(0U, s.channel);
}

// --- selection and factors ----------------------------------------------------------------------

TEST(CollectiveSelector, PicksByKindAndPreference) {
  std::vector<uint32_t> members{0, 1};
  CollectiveRequest request;
  request.bytes = 8;
  request.members = &members;
  for (const char* preferred : {"auto", "ring", "direct"}) {
    Params params(collective_params());
    params.set("algorithm", preferred, {});
    const auto selector = make_collective_selector(params);
    for (const auto kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                            CollectiveKind::reduce_scatter, CollectiveKind::reduce_scatter_block}) {
      request.kind = kind;
      EXPECT_EQ("ring", selector->choose(request).name()) << collective_name(kind);
    }
    request.kind = CollectiveKind::all_to_all;
    EXPECT_EQ("direct", selector->choose(request).name());
    request.kind = CollectiveKind::barrier;
    EXPECT_EQ("ring", selector->choose(request).name());
    for (const auto kind : {CollectiveKind::broadcast, CollectiveKind::reduce}) {
      request.kind = kind;
      EXPECT_EQ("chain", selector->choose(request).name());
    }
    for (const auto kind : {CollectiveKind::gather, CollectiveKind::scatter}) {
      request.kind = kind;
      EXPECT_EQ("star", selector->choose(request).name());
    }
  }
}

// nccl-tests, doc/PERFORMANCE.md and the GetBw functions of each test.
TEST(BusbwFactor, IsThatOfNcclTests) {
  for (const uint32_t n : {2U, 3U, 8U, 64U, 1024U}) {
    const double share = (n - 1.0) / n;
    EXPECT_DOUBLE_EQ(2 * share, busbw_factor(CollectiveKind::all_reduce, n));
    EXPECT_DOUBLE_EQ(share, busbw_factor(CollectiveKind::all_gather, n));
    EXPECT_DOUBLE_EQ(share, busbw_factor(CollectiveKind::reduce_scatter, n));
    EXPECT_DOUBLE_EQ(share, busbw_factor(CollectiveKind::reduce_scatter_block, n));
    EXPECT_DOUBLE_EQ(share, busbw_factor(CollectiveKind::all_to_all, n));
    EXPECT_DOUBLE_EQ(share, busbw_factor(CollectiveKind::gather, n));
    EXPECT_DOUBLE_EQ(share, busbw_factor(CollectiveKind::scatter, n));
    EXPECT_DOUBLE_EQ(1, busbw_factor(CollectiveKind::broadcast, n));
    EXPECT_DOUBLE_EQ(1, busbw_factor(CollectiveKind::reduce, n));
  }
}

}  // namespace
}  // namespace trainyard
