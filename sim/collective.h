// SPDX-License-Identifier: MIT
// The interface between the timeline and collective algorithms (implemented in workload/).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/op_graph.h"
#include "sim/params.h"

namespace trainyard {

/// Where ranks are: the server (scale-up domain) of each, and the rail of its NIC.
struct Placement {
  std::shared_ptr<const std::vector<uint32_t>> server;  ///< rank -> server; null: one rank each
  std::shared_ptr<const std::vector<uint32_t>> rail = nullptr;  ///< rank -> rail; null: not known
  /// rank -> its NIC is broken and another's carries its traffic; null: nobody's is
  std::shared_ptr<const std::vector<char>> borrows = nullptr;
  [[nodiscard]] uint32_t node_of(uint32_t rank) const { return server ? (*server)[rank] : rank; }
  [[nodiscard]] uint32_t rail_of(uint32_t rank) const { return rail ? (*rail)[rank] : 0; }
  [[nodiscard]] bool borrows_nic(uint32_t rank) const { return borrows && (*borrows)[rank] != 0; }
};

/// One call of a collective on a communicator of at least two members.
struct CollectiveRequest {
  CollectiveKind kind = CollectiveKind::all_reduce;
  int64_t bytes = 0;                               ///< Chakra's convention, see Op::bytes; > 0
  const std::vector<uint32_t>* members = nullptr;  ///< ranks, in ring order
  Placement placement;
  /// all-to-all: bytes from member to member, row-major by sender; null: equal shares of `bytes`.
  std::shared_ptr<const std::vector<int64_t>> sizes = nullptr;
};

/// Bytes of a call as algorithms see it: a barrier is an all-reduce of one word per member,
/// whatever size the trace gives it. Zero: nothing moves.
inline int64_t request_bytes(CollectiveKind kind, int64_t bytes, size_t members) {
  return kind == CollectiveKind::barrier ? 4 * static_cast<int64_t>(members) : bytes;
}

/// Set in Transfer::channel of clear-to-send messages, beside the channels of data.
inline constexpr uint32_t kGrantChannel = 0x80000000U;

/// A message of a collective between two members (indices into the communicator).
struct CollectiveSend {
  uint32_t src = 0, dst = 0;
  int64_t bytes = 0;           ///< > 0
  uint32_t channel = 0;        ///< messages of one edge and channel keep their order
  uint32_t token = 0;          ///< the algorithm's own, returned in delivered()
  uint8_t traffic_class = 0;   ///< see Transfer
  bool clear_to_send = false;  ///< a grant of the receiver, no data; has a queue pair of its own
};

/// Messages that a member will receive in a row from one other.
struct CollectiveReceive {
  uint32_t src = 0;  ///< member
  uint32_t channel = 0;
  uint32_t count = 0;
};

/// A collective in progress. The timeline tells it what happened, it answers what to send next and
/// who is done. A message starts only when both its ends have arrived (receive buffers are posted
/// by the receiver's kernel).
class CollectiveRun {
 public:
  virtual ~CollectiveRun() = default;
  /// `member` has entered the collective.
  virtual void arrived(uint32_t member, std::vector<CollectiveSend>& sends,
                       std::vector<uint32_t>& done) = 0;
  /// A message is with its receiver.
  virtual void delivered(const CollectiveSend& send, std::vector<CollectiveSend>& sends,
                         std::vector<uint32_t>& done) = 0;
  /// Everybody has come and all messages have been given out: whoever is not done yet is done with
  /// the last message that it sends or receives. May be false although it is so.
  [[nodiscard]] virtual bool all_sent() const { return false; }
  /// What `member` will receive, per channel in the order in which it should make room for it.
  /// @returns false when the algorithm cannot tell ahead: room is made when a message is ready.
  virtual bool receives(uint32_t /*member*/, std::vector<CollectiveReceive>& /*out*/) const {
    return false;
  }
};

class CollectiveAlgorithm {
 public:
  virtual ~CollectiveAlgorithm() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual bool supports(CollectiveKind kind) const = 0;
  /// Whether it can run this very call of a kind that it supports.
  [[nodiscard]] virtual bool serves(const CollectiveRequest& /*request*/) const { return true; }
  /// What it sends, to whom and when may depend on kind, bytes, sizes, the number of members, and
  /// which of them share servers and rails; never on rank, server or rail numbers themselves.
  [[nodiscard]] virtual std::unique_ptr<CollectiveRun> begin(
      const CollectiveRequest& request) const = 0;
  /// Payload bytes that one member sends, the mean where members differ: the closed form that the
  /// run must match.
  [[nodiscard]] virtual int64_t sent_per_member(const CollectiveRequest& request) const = 0;
  /// Software time: what a member sends and receives begins so long after it came.
  [[nodiscard]] virtual Time delay(const CollectiveRequest& /*request*/) const { return {}; }
};

/// Factory of category "collective", from the `collectives` block of a scenario.
using CollectiveFactory = std::function<std::unique_ptr<CollectiveAlgorithm>(const Params&)>;

/// nccl-tests' factor from algbw to busbw for `n` ranks.
double busbw_factor(CollectiveKind kind, uint32_t n);

/// Chooses an algorithm per call.
class CollectiveSelector {
 public:
  virtual ~CollectiveSelector() = default;
  /// Throws UserError naming the kind when no algorithm is built for it.
  [[nodiscard]] virtual const CollectiveAlgorithm& choose(
      const CollectiveRequest& request) const = 0;
};

}  // namespace trainyard
