// SPDX-License-Identifier: MIT
// Which members of a collective talk to each other, found by running it on a network that takes no
// time. Depends on the algorithm, kind, bytes, number of members and who shares a server or a rail
// with whom, not on who they are.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "sim/collective_host.h"
#include "sim/hash128.h"

namespace trainyard {

struct CallPlan {
  /// Queue pairs, in order of their first message.
  struct Edge {
    uint32_t src = 0, dst = 0;  ///< members
    uint32_t channel = 0;
    uint8_t traffic_class = 0;
    bool clear_to_send = false;
  };
  std::vector<Edge> edges;
  std::vector<std::vector<uint32_t>> neighbours;  ///< by member
  std::vector<int64_t> inbound;                   ///< by member: bytes of all messages to it
  uint64_t messages = 0;
  int64_t payload = 0;  ///< bytes of all messages but those that clear others to send
  int64_t grants = 0;   ///< bytes of these
  Hash128 digest;       ///< of all that it depends on
};

class CallPlanBook {
 public:
  /// A call with sizes of its own (all-to-all(v)) has a plan of its own, which the book forgets.
  std::shared_ptr<const CallPlan> plan(const HostedCall& call);

 private:
  struct Key {
    const CollectiveAlgorithm* algorithm;
    CollectiveKind kind;
    int64_t bytes;
    std::vector<uint32_t> servers;  // of the members, numbered in order of appearance
    std::vector<uint32_t> rails;    // the same; then whether they borrow a NIC
    auto operator<=>(const Key&) const = default;
  };
  static std::pair<Key, Hash128> key_of(const HostedCall& call);

  std::map<Key, std::shared_ptr<CallPlan>> plans_;
  // The last answer for a communicator, so that the usual case needs no walk over its members.
  struct Recent {
    const CollectiveAlgorithm* algorithm = nullptr;
    CollectiveKind kind = CollectiveKind::barrier;
    int64_t bytes = 0;
    std::shared_ptr<const CallPlan> plan;
  };
  std::map<const std::vector<uint32_t>*, std::vector<Recent>> recent_;
};

}  // namespace trainyard
