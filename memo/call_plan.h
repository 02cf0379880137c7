// SPDX-License-Identifier: MIT
// Which members of a collective talk to each other, found by running it on a network that takes no
// time. Depends on the algorithm, kind, bytes, number of members and who shares a server with whom,
// not on who they are.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "memo/hash128.h"
#include "sim/collective_host.h"

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
  uint64_t messages = 0;
  int64_t payload = 0;  ///< bytes of all messages
  Hash128 digest;       ///< of all that it depends on
};

class CallPlanBook {
 public:
  const CallPlan& plan(const HostedCall& call);

 private:
  struct Key {
    const CollectiveAlgorithm* algorithm;
    CollectiveKind kind;
    int64_t bytes;
    std::vector<uint32_t> servers;  // of the members, numbered in order of appearance
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, std::unique_ptr<CallPlan>> plans_;
  // The last answer for a communicator, so that the usual case needs no walk over its members.
  struct Recent {
    const CollectiveAlgorithm* algorithm = nullptr;
    CollectiveKind kind = CollectiveKind::barrier;
    int64_t bytes = 0;
    const CallPlan* plan = nullptr;
  };
  std::map<const std::vector<uint32_t>*, std::vector<Recent>> recent_;
};

}  // namespace trainyard
