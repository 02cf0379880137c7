// SPDX-License-Identifier: MIT
#include "workload/storage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace trainyard {
namespace {

StorageConfig config(uint32_t servers, uint32_t nodes) {
  StorageConfig c;
  c.servers = servers;
  c.read_bps = 8'000'000'000;      // 1 GB/s
  c.write_bps = 4'000'000'000;     // 0.5 GB/s
  c.client_bps = 800'000'000'000;  // 100 GB/s: no limit
  c.piece = 1'000'000;
  c.queue = 1;
  for (uint32_t n = 0; n < nodes; ++n) c.node_of.push_back(n);
  return c;
}

/// Runs until nothing is left; request -> end.
std::map<uint32_t, Time> run(Storage& storage) {
  std::map<uint32_t, Time> end;
  std::vector<uint32_t> done;
  std::vector<StorageMove> moves;
  while (storage.next_event() != Time::infinity()) {
    const Time now = storage.next_event();
    storage.advance(now, done, moves);
    for (const uint32_t id : done) end[id] = now;
  }
  return end;
}

TEST(Storage, OneServerTakesBytesOverRate) {
  StorageConfig c = config(1, 1);
  c.queue = 2;
  const auto storage = make_storage(c);
  storage->submit({0, StorageAction::load, 10'000'000}, Time());
  // The last piece passes the port when the server is through with it.
  EXPECT_EQ(Time::ms(10) + Time::us(10), run(*storage).at(0));
  const StorageStats& s = storage->stats()[static_cast<size_t>(StorageAction::load)];
  EXPECT_EQ(1U, s.requests);
  EXPECT_EQ(10U, s.pieces);
  EXPECT_EQ(10'000'000, s.bytes);
  EXPECT_NEAR(0.009, s.queue_s, 0.001);  // the second of two pieces waits, but for the last
}

TEST(Storage, WritesGoAtTheirOwnRateAndPiecesNeedNotDivide) {
  const auto storage = make_storage(config(1, 1));
  storage->submit({0, StorageAction::write, 2'500'000}, Time());
  // Each piece passes the port first: 10 us, 10 us and 5 us.
  EXPECT_EQ(Time::ms(5) + Time::us(25), run(*storage).at(0));
}

TEST(Storage, ANodesPortLimitsItsRanks) {
  StorageConfig c = config(64, 1);
  c.node_of = {0, 0};  // two ranks of one node
  c.client_bps = 1'600'000'000;
  c.queue = 8;
  const auto storage = make_storage(c);
  for (uint32_t r = 0; r < 2; ++r) storage->submit({r, StorageAction::read, 50'000'000}, Time());
  const Time last = std::max(run(*storage).at(0), Time());
  EXPECT_NEAR(0.5, last.seconds(), 0.01);  // 100 MB at 0.2 GB/s
}

TEST(Storage, RequestsAreServedInOrderOfArrival) {
  const auto storage = make_storage(config(2, 8));
  std::vector<uint32_t> ids;
  for (uint32_t r = 0; r < 8; ++r) {
    ids.push_back(storage->submit({r, StorageAction::read, 1'000'000}, Time()));
  }
  const auto end = run(*storage);
  for (uint32_t i = 2; i < 8; ++i) {
    EXPECT_EQ(end.at(ids[i - 2]) + Time::ms(1), end.at(ids[i])) << i;
  }
}

// A:N056, B:V152: of 2.03 s of a write 1.89 s are queueing, 93.1 %. In a closed system of C pieces
// and S servers a piece waits for 1 - S/C of its time: 29 writers and 2 servers.
TEST(Storage, QueueingDominatesAWriteBurst) {
  EXPECT_NEAR(0.931, 1.89 / 2.03, 0.0005);
  const auto storage = make_storage(config(2, 29));
  for (uint32_t r = 0; r < 29; ++r) {
    storage->submit({r, StorageAction::write, 400'000'000}, Time());
  }
  run(*storage);
  const StorageStats& s = storage->stats()[static_cast<size_t>(StorageAction::write)];
  EXPECT_NEAR(1 - 2.0 / 29, s.queue_ratio(), 0.003);
  EXPECT_NEAR(0.931, s.queue_ratio(), 0.003);
  // Twice the rate changes nothing about the share (B: Q30), twice the servers do.
  StorageConfig fast = config(2, 29);
  fast.write_bps *= 2;
  StorageConfig many = config(4, 29);
  const auto share = [](const StorageConfig& c) {
    const auto other = make_storage(c);
    for (uint32_t r = 0; r < 29; ++r) {
      other->submit({r, StorageAction::write, 400'000'000}, Time());
    }
    run(*other);
    return other->stats()[static_cast<size_t>(StorageAction::write)].queue_ratio();
  };
  EXPECT_NEAR(s.queue_ratio(), share(fast), 0.003);
  EXPECT_NEAR(1 - 4.0 / 29, share(many), 0.003);
}

// B:V149 and V150: the defaults move what 504 GPUs were seen to move, not the peak.
TEST(Storage, DefaultsAreTheRatesSeenInProduction) {
  const StorageConfig c = storage_config(Params(storage_params()));
  EXPECT_NEAR(150.8, c.servers * static_cast<double>(c.read_bps) / 8e9, 1);
  EXPECT_NEAR(40, c.servers * static_cast<double>(c.write_bps) / 8e9, 0.1);
  // 21.5 % and 16 % of the peaks of 700 and 250 GB/s.
  EXPECT_NEAR(0.215, 150.8 / 700, 0.001);
  EXPECT_NEAR(0.16, 40.0 / 250, 0.001);
}

TEST(Storage, OnTheFabricPiecesGoToTheServerWithTheFewest) {
  StorageConfig c = config(3, 2);
  c.endpoints = {10, 11, 12};
  c.queue = 3;
  const auto storage = make_storage(c);
  storage->submit({1, StorageAction::write, 3'000'000}, Time());
  std::vector<uint32_t> done;
  std::vector<StorageMove> moves;
  storage->advance(storage->next_event(), done, moves);
  ASSERT_EQ(3U, moves.size());
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(1U, moves[i].src);
    EXPECT_EQ(10 + i, moves[i].dst);
    EXPECT_EQ(1'000'000, moves[i].bytes);
  }
  EXPECT_EQ(Time::infinity(), storage->next_event());
  for (const StorageMove& m : moves) storage->moved(m.token, Time::ms(1));
  EXPECT_EQ(Time::ms(3), storage->next_event());  // all three at once: 2 ms each
  storage->advance(Time::ms(3), done, moves);
  EXPECT_EQ(std::vector<uint32_t>{0}, done);
}

TEST(Storage, JobsQueueAtTheSameServers) {
  // Two ranks of one job, one of another, 1 MB each: 2 ms each at one server of 0.5 GB/s.
  StorageConfig c = config(1, 3);
  c.job_of = {0, 0, 1};
  const auto storage = make_storage(c);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    storage->submit({rank, StorageAction::write, 1'000'000}, Time());
  }
  const auto end = run(*storage);
  // 10 us through the port each.
  EXPECT_EQ(Time::us(2010), end.at(0));
  EXPECT_EQ(Time::us(4010), end.at(1));
  EXPECT_EQ(Time::us(6010), end.at(2));
  const auto write = static_cast<size_t>(StorageAction::write);
  const StorageStats& first = storage->job_stats(0)[write];
  const StorageStats& second = storage->job_stats(1)[write];
  EXPECT_EQ(2U, first.requests);
  EXPECT_EQ(1U, second.requests);
  EXPECT_DOUBLE_EQ((0 + 2.0) / (2 + 4), first.queue_ratio());
  EXPECT_DOUBLE_EQ(4.0 / 6, second.queue_ratio());
  EXPECT_EQ(Time::us(4010), first.last);
  EXPECT_EQ(Time::us(6010), second.longest);
  const StorageStats& all = storage->stats()[write];
  EXPECT_EQ(first.bytes + second.bytes, all.bytes);
  EXPECT_EQ(first.pieces + second.pieces, all.pieces);
  EXPECT_EQ(0U, storage->job_stats(1)[static_cast<size_t>(StorageAction::load)].requests);
}

}  // namespace
}  // namespace trainyard
