// SPDX-License-Identifier: MIT
#include "memo/call_plan.h"

#include <algorithm>
#include <deque>
#include <set>
#include <tuple>

#include "sim/errors.h"

namespace trainyard {
namespace {

std::unique_ptr<CallPlan> dry_run(const HostedCall& call) {
  auto plan = std::make_unique<CallPlan>();
  const auto n = static_cast<uint32_t>(call.request.members->size());
  const auto run = call.algorithm->begin(call.request);
  std::deque<CollectiveSend> flying;
  std::vector<CollectiveSend> sends;
  std::vector<uint32_t> done;
  std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint8_t, bool>> seen;
  std::vector<std::set<uint32_t>> near(n);
  const auto take = [&] {
    for (const CollectiveSend& s : sends) {
      ++plan->messages;
      if (!s.clear_to_send) plan->payload += s.bytes;
      near[s.src].insert(s.dst);
      near[s.dst].insert(s.src);
      if (seen.emplace(s.src, s.dst, s.channel, s.traffic_class, s.clear_to_send).second) {
        plan->edges.push_back({s.src, s.dst, s.channel, s.traffic_class, s.clear_to_send});
      }
      flying.push_back(s);
    }
    sends.clear();
  };
  for (uint32_t m = 0; m < n; ++m) {
    run->arrived(m, sends, done);
    take();
  }
  while (!flying.empty()) {
    const CollectiveSend s = flying.front();
    flying.pop_front();
    run->delivered(s, sends, done);
    take();
  }
  TRAINYARD_ASSERT(done.size() == n);
  for (auto& set : near) plan->neighbours.emplace_back(set.begin(), set.end());
  return plan;
}

}  // namespace

const CallPlan& CallPlanBook::plan(const HostedCall& call) {
  auto& recent = recent_[call.request.members];
  for (const Recent& r : recent) {
    if (r.algorithm == call.algorithm && r.kind == call.request.kind &&
        r.bytes == call.request.bytes) {
      return *r.plan;
    }
  }
  Key key{call.algorithm, call.request.kind, call.request.bytes, {}};
  std::map<uint32_t, uint32_t> number;
  for (const uint32_t m : *call.request.members) {
    const uint32_t server = call.request.placement.node_of(m);
    key.servers.push_back(
        number.emplace(server, static_cast<uint32_t>(number.size())).first->second);
  }
  auto& plan = plans_[key];
  if (!plan) {
    plan = dry_run(call);
    // The position in the book stands for the algorithm: books are per run.
    plan->digest.add(plans_.size());
  }
  recent.push_back({key.algorithm, key.kind, key.bytes, plan.get()});
  return *plan;
}

}  // namespace trainyard
