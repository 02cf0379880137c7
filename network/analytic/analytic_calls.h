// SPDX-License-Identifier: MIT
// Whole collectives on the analytic engine. Messages do not meet there, so a call is worked out by
// itself, without events of the engine: as far as its time has come while members are missing,
// and to its end when the last one has come.
//
// What comes out is what the messages would have done one by one (tests/network/
// analytic_calls_test.cpp). Two things depend on what other calls do, and wait for their time: a
// queue pair that is used for the first time gets its source port, and members are told that they
// are through.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "network/flow/path_book.h"
#include "sim/collective_host.h"
#include "sim/event_queue.h"

namespace trainyard {

class AnalyticCalls {
 public:
  /// Most messages of calls that are recorded one by one.
  static constexpr size_t kMostRecords = 1'000'000;

  AnalyticCalls(PathBook& book, const PacketConfig& config);

  uint32_t open(const HostedCall& call);
  void arrive(uint32_t call, uint32_t member, int64_t at);
  /// Everything that is due at `now`, which is the earliest instant that next_event() gave.
  void run(int64_t now);
  [[nodiscard]] int64_t next_event() const;
  /// Members that got through at the instant of the last run().
  [[nodiscard]] bool any_done() const { return !done_.empty(); }
  void take_done(std::vector<CollectiveHost::Done>& out);
  [[nodiscard]] CollectiveHost::Tally tally(uint32_t call) const;

  /// Messages under way and members that have not been told yet that they are through.
  [[nodiscard]] size_t outstanding() const { return outstanding_; }
  [[nodiscard]] uint64_t events() const { return events_done_; }
  /// Of all messages, by start, or none at all where there were more than kMostRecords.
  [[nodiscard]] const std::vector<TransferRecord>& records() const { return records_; }
  [[nodiscard]] uint64_t messages() const { return messages_; }

 private:
  struct Times {
    int64_t delivered = 0, acknowledged = 0;
  };
  struct Flying {
    int64_t at = 0;       // counts as delivered
    uint32_t number = 0;  // within the call
    uint32_t qp = 0;
    Times times;
    CollectiveSend send;
  };
  struct Later {  // needs a queue pair that has not been used yet
    int64_t at = 0;
    CollectiveSend send;
  };
  /// A call under way.
  struct Call {
    HostedCall what;
    std::unique_ptr<CollectiveRun> run;
    std::vector<Flying> flying;  // a heap, the earliest first
    std::vector<Later> later;
    std::vector<Time> grants;  // how long clear-to-send messages took
    /// Queue pairs by channel, sender and receiver; null: they are looked up.
    std::vector<uint32_t>* edges = nullptr;
    uint32_t arrived = 0, members_left = 0, numbers = 0;
    int64_t wakes = INT64_MAX;  // the earliest entry in events_
  };
  struct Sums {
    int64_t payload = 0;
    uint64_t transmissions = 0;
    uint32_t transfers = 0, grants = 0;  // messages with data, messages that clear to send
  };

  Call& at(uint32_t call);
  void take(uint32_t call, Call& c, int64_t now, int64_t until);
  void go_on(uint32_t call, int64_t until);
  void carry_all(uint32_t call, Call& c, int64_t now);
  uint32_t queue_pair(const Call& c, const CollectiveSend& send, bool may_open);
  Times carry(uint32_t call, Call& c, const CollectiveSend& send, uint32_t qp, int64_t now);
  /// When a message counts as delivered.
  [[nodiscard]] int64_t counts(const Times& t) const {
    return config_.complete_at_receiver ? t.delivered : t.acknowledged;
  }
  void tell(uint32_t call, uint32_t member, int64_t when);
  void close(uint32_t call);

  PathBook& book_;
  const PacketConfig config_;
  std::vector<std::unique_ptr<Call>> open_;                      // by call; null when it is through
  std::vector<Sums> sums_;                                       // by call
  std::unordered_map<uint32_t, CollectiveHost::Tally> granted_;  // percentiles, of calls with any
  /// Call::edges by channel base, which stands for a communicator.
  std::unordered_map<uint32_t, std::vector<uint32_t>> edges_;
  mutable EventQueue events_;  // key: call; arg: member that is through, or that the call goes on
  std::vector<CollectiveHost::Done> done_;
  std::vector<TransferRecord> records_;
  size_t outstanding_ = 0;
  uint64_t messages_ = 0, events_done_ = 0;
  // Of the call at hand.
  std::vector<CollectiveSend> sends_;
  std::vector<uint32_t> members_done_;
  std::vector<int64_t> through_;
};

}  // namespace trainyard
