// SPDX-License-Identifier: MIT
// Receiver-driven admission around every algorithm.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "sim/collective.h"
#include "sim/dice.h"
#include "sim/errors.h"
#include "workload/collective_params.h"

namespace trainyard {
namespace {

Params block(const std::vector<std::pair<std::string, std::string>>& values) {
  Params p(collective_params());
  for (const auto& [name, value] : values) p.set(name, value, {});
  return p;
}

struct Log {
  int64_t data_bytes = 0;
  uint64_t data = 0, grants = 0, local = 0;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int64_t> bytes_of_edge;
  size_t done = 0;
};

/// Lets members arrive and messages land in an order by dice; checks the rules on the way.
Log drive(CollectiveKind kind, uint32_t n, uint32_t per_server, const Params& params,
          uint32_t outstanding, uint64_t seed) {
  std::vector<uint32_t> members(n);
  std::iota(members.begin(), members.end(), 0);
  std::vector<uint32_t> servers;
  for (uint32_t r = 0; r < n; ++r) servers.push_back(r / per_server);
  CollectiveRequest request{kind, 100'003, &members, {}};
  request.placement.server = std::make_shared<std::vector<uint32_t>>(servers);
  const auto selector = make_collective_selector(params);
  const auto run = selector->choose(request).begin(request);
  const bool credits = params.is_word("admission", "credits");

  Log log;
  std::vector<CollectiveSend> sends, flying;
  std::vector<uint32_t> done;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int64_t> credit;  // src, dst, channel
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> open;              // receiver, channel
  std::vector<char> here(n, 0);
  const auto launch = [&] {
    for (const CollectiveSend& s : sends) {
      if (s.clear_to_send) {
        EXPECT_TRUE(here[s.src]);
        EXPECT_NE(servers[s.src], servers[s.dst]);
        EXPECT_LE((++open[{s.src, s.channel}]), outstanding);
        ++log.grants;
      } else {
        EXPECT_TRUE(here[s.src] && here[s.dst]);
        log.bytes_of_edge[{s.src, s.dst, s.channel}] += s.bytes;
        log.data_bytes += s.bytes;
        if (servers[s.src] == servers[s.dst]) {
          ++log.local;
        } else {
          ++log.data;
          if (credits) {
            EXPECT_GE((--credit[{s.src, s.dst, s.channel}]), 0);
          }
        }
      }
      flying.push_back(s);
    }
    sends.clear();
  };
  uint32_t arrived = 0;
  for (uint64_t step = 0; arrived < n || !flying.empty(); ++step) {
    if (step > 1'000'000) break;
    const uint64_t d = dice(seed, 1, step, 0);
    if (arrived < n && (flying.empty() || d % 3 == 0)) {
      uint32_t m = static_cast<uint32_t>(d / 3 % n);
      while (here[m]) m = (m + 1) % n;
      here[m] = 1;
      ++arrived;
      run->arrived(m, sends, done);
    } else {
      const size_t i = d % flying.size();
      // Messages of an edge and channel keep their order.
      size_t first = 0;
      while (flying[first].src != flying[i].src || flying[first].dst != flying[i].dst ||
             flying[first].channel != flying[i].channel ||
             flying[first].clear_to_send != flying[i].clear_to_send) {
        ++first;
      }
      const CollectiveSend s = flying[first];
      flying.erase(flying.begin() + static_cast<std::ptrdiff_t>(first));
      if (s.clear_to_send) {
        ++credit[{s.dst, s.src, s.channel}];
      } else if (credits && servers[s.src] != servers[s.dst]) {
        --open[{s.dst, s.channel}];
      }
      run->delivered(s, sends, done);
    }
    launch();
  }
  log.done = done.size();
  return log;
}

TEST(Admission, GrantsEveryMessageBetweenServersOnceAndChangesNoByte) {
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
        CollectiveKind::all_to_all, CollectiveKind::broadcast, CollectiveKind::reduce,
        CollectiveKind::gather, CollectiveKind::scatter, CollectiveKind::barrier}) {
    for (const uint32_t n : {2U, 3U, 6U, 9U}) {
      for (const uint32_t per_server : {1U, 3U}) {
        const Log plain = drive(kind, n, per_server, block({}), 0, n);
        ASSERT_EQ(plain.done, n);
        for (const uint32_t outstanding : {1U, 2U, 64U}) {
          SCOPED_TRACE(std::string(collective_name(kind)) + " n " + std::to_string(n) + " of " +
                       std::to_string(per_server) + " outstanding " + std::to_string(outstanding));
          const Log log =
              drive(kind, n, per_server,
                    block({{"admission", "credits"}, {"outstanding", std::to_string(outstanding)}}),
                    outstanding, n + outstanding);
          EXPECT_EQ(log.done, n);
          EXPECT_EQ(log.grants, log.data);
          EXPECT_EQ(log.local, plain.local);
          EXPECT_EQ(log.bytes_of_edge, plain.bytes_of_edge);
        }
      }
    }
  }
}

TEST(Admission, ClassesAndSizesFollowTheBlock) {
  const std::vector<uint32_t> members{0, 1};
  const CollectiveRequest request{CollectiveKind::all_to_all, 1000, &members, {}};
  for (const std::string word : {"control", "data"}) {
    const auto selector = make_collective_selector(
        block({{"admission", "credits"}, {"cts_class", word}, {"cts_size", "100B"}}));
    const auto run = selector->choose(request).begin(request);
    std::vector<CollectiveSend> sends;
    std::vector<uint32_t> done;
    run->arrived(0, sends, done);
    ASSERT_EQ(sends.size(), 1U);  // ahead of the sender's arrival
    const CollectiveSend cts = sends[0];
    EXPECT_TRUE(cts.clear_to_send);
    EXPECT_EQ(cts.src, 0U);
    EXPECT_EQ(cts.dst, 1U);
    EXPECT_EQ(cts.bytes, 100);
    EXPECT_EQ(cts.traffic_class, word == "control" ? 0 : 1);
    sends.clear();
    run->arrived(1, sends, done);
    ASSERT_EQ(sends.size(), 1U);
    EXPECT_TRUE(sends[0].clear_to_send);
    sends.clear();
    run->delivered(cts, sends, done);
    ASSERT_EQ(sends.size(), 1U);
    EXPECT_FALSE(sends[0].clear_to_send);
    EXPECT_EQ(sends[0].src, 1U);
    EXPECT_EQ(sends[0].bytes, 500);
    EXPECT_EQ(sends[0].traffic_class, 1);
  }
}

TEST(Admission, AWindowOfSendersBesideItIsRefused) {
  EXPECT_THROW(make_collective_selector(block({{"admission", "credits"}, {"window", "2"}})),
               UserError);
  EXPECT_NO_THROW(make_collective_selector(block({{"window", "2"}})));
}

}  // namespace
}  // namespace trainyard
