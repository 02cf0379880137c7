// SPDX-License-Identifier: MIT
// Broadcast, reduce, gather, scatter: who gets what, in any legal order of deliveries.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "sim/collective.h"
#include "workload/collective_params.h"

namespace trainyard {
namespace {

struct Ledger {
  std::vector<int64_t> sent, received;
  std::map<uint32_t, int> done;
  size_t messages = 0;
};

/// Members arrive in a random order, messages are delivered in a random order (per edge in order).
Ledger drive(CollectiveKind kind, uint32_t n, int64_t bytes, uint32_t seed) {
  std::vector<uint32_t> members(n);
  std::iota(members.begin(), members.end(), 0U);
  CollectiveRequest request;
  request.kind = kind;
  request.bytes = bytes;
  request.members = &members;
  const auto selector = make_collective_selector(Params(collective_params()));
  const auto run = selector->choose(request).begin(request);
  Ledger ledger;
  ledger.sent.assign(n, 0);
  ledger.received.assign(n, 0);
  std::mt19937 dice(seed);
  std::vector<uint32_t> order = members;
  std::shuffle(order.begin(), order.end(), dice);
  std::set<uint32_t> here;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<CollectiveSend>> edges;
  std::vector<CollectiveSend> sends;
  std::vector<uint32_t> done;
  const auto collect = [&] {
    for (const auto& s : sends) {
      EXPECT_TRUE(here.count(s.src) == 1 && here.count(s.dst) == 1) << "before both arrived";
      EXPECT_GT(s.bytes, 0);
      ledger.sent[s.src] += s.bytes;
      edges[{s.src, s.dst}].push_back(s);
      ++ledger.messages;
    }
    for (const uint32_t m : done) ++ledger.done[m];
    sends.clear();
    done.clear();
  };
  size_t next = 0;
  for (;;) {
    std::vector<std::pair<uint32_t, uint32_t>> ready;
    for (const auto& [edge, queue] : edges) {
      if (!queue.empty()) ready.push_back(edge);
    }
    if (next < n && (ready.empty() || dice() % 2 == 0)) {
      here.insert(order[next]);
      run->arrived(order[next++], sends, done);
    } else if (!ready.empty()) {
      auto& queue = edges[ready[dice() % ready.size()]];
      const CollectiveSend s = queue.front();
      queue.erase(queue.begin());
      ledger.received[s.dst] += s.bytes;
      run->delivered(s, sends, done);
    } else {
      break;
    }
    collect();
  }
  return ledger;
}

class Rooted : public testing::TestWithParam<uint32_t> {};

TEST_P(Rooted, EveryMemberFinishesOnceWithItsBytes) {
  const uint32_t n = GetParam();
  for (const int64_t bytes : {int64_t{1}, int64_t{1000}, int64_t{(1 << 20) + 3}}) {
    for (uint32_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(testing::Message() << n << " members, " << bytes << " bytes");
      // Broadcast: everyone but the root ends with all bytes, everyone but the last passes them on.
      const Ledger b = drive(CollectiveKind::broadcast, n, bytes, seed);
      for (uint32_t m = 0; m < n; ++m) {
        EXPECT_EQ(m == 0 ? 0 : bytes, b.received[m]);
        EXPECT_EQ(m == n - 1 ? 0 : bytes, b.sent[m]);
      }
      // Reduce: the same chain towards the root.
      const Ledger r = drive(CollectiveKind::reduce, n, bytes, seed);
      for (uint32_t m = 0; m < n; ++m) {
        EXPECT_EQ(m == n - 1 ? 0 : bytes, r.received[m]);
        EXPECT_EQ(m == 0 ? 0 : bytes, r.sent[m]);
      }
      // Gather: each contributes `bytes` to the root.
      const Ledger g = drive(CollectiveKind::gather, n, bytes, seed);
      EXPECT_EQ(bytes * (n - 1), g.received[0]);
      EXPECT_EQ(n - 1, g.messages);
      // Scatter: the root hands out all but its own share; at least one byte each.
      const Ledger s = drive(CollectiveKind::scatter, n, bytes, seed);
      EXPECT_EQ(0, s.received[0]);
      for (uint32_t m = 1; m < n; ++m) {
        EXPECT_NEAR(static_cast<double>(bytes) / n, static_cast<double>(s.received[m]), 1.0);
      }
      for (const Ledger* l : {&b, &r, &g, &s}) {
        ASSERT_EQ(n, l->done.size());
        for (const auto& [m, times] : l->done) EXPECT_EQ(1, times) << "member " << m;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Rooted, testing::Values(2U, 3U, 4U, 7U, 8U, 16U, 17U, 64U));

TEST(RootedChain, IsPipelined) {
  // Slices of 256 KiB: a long broadcast is not stored and forwarded whole.
  const Ledger l = drive(CollectiveKind::broadcast, 4, 4 << 20, 1);
  EXPECT_EQ(3U * 16U, l.messages);
}

}  // namespace
}  // namespace trainyard
