// SPDX-License-Identifier: MIT
// A fabric that runs whole collectives by itself. The timeline says which members have come and is
// told which are through; the messages between stay below. What repeats can then be recognised as
// a whole, whatever its messages are.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/collective.h"
#include "sim/fabric.h"
#include "sim/units.h"

namespace trainyard {

/// A call of a collective on a communicator. What it points to outlives the run.
struct HostedCall {
  const CollectiveAlgorithm* algorithm = nullptr;
  CollectiveRequest request;
  uint32_t channel_base = 0;  ///< Transfer::channel = base + channel of the message modulo 64
  uint32_t owner = 0;
  uint8_t traffic_class = 0;
};

/// The transfer that carries a message of a call.
inline Transfer hosted_transfer(const HostedCall& call, const CollectiveSend& send) {
  const auto& members = *call.request.members;
  Transfer t;
  t.src = members[send.src];
  t.dst = members[send.dst];
  t.size = Bytes(send.bytes);
  t.channel = call.channel_base + send.channel % 64;
  if (send.clear_to_send) t.channel |= kGrantChannel;
  t.owner = call.owner;
  t.traffic_class = send.clear_to_send || send.traffic_class > call.traffic_class
                        ? send.traffic_class
                        : call.traffic_class;
  return t;
}

class CollectiveHost {
 public:
  virtual ~CollectiveHost() = default;

  /// @returns the number of the call: 0, 1, 2, ...
  virtual uint32_t open(const HostedCall& call) = 0;
  /// `member` has come, at the last instant returned by advance() or later.
  virtual void arrive(uint32_t call, uint32_t member, Time at) = 0;

  struct Done {
    uint32_t call = 0, member = 0;
  };
  /// Members that got through at the instant at which Fabric::advance() stopped, by call and
  /// member. advance() stops for them as for completions.
  virtual void take_done(std::vector<Done>& out) = 0;

  struct Tally {
    uint64_t transfers = 0, transmissions = 0, cts_count = 0;
    int64_t payload = 0;
    Time cts_p50, cts_p90, cts_p99;
  };
  /// Of a call whose messages are all acknowledged.
  [[nodiscard]] virtual Tally tally(uint32_t call) const = 0;
};

}  // namespace trainyard
