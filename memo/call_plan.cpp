// SPDX-License-Identifier: MIT
#include "memo/call_plan.h"

#include <algorithm>
#include <deque>
#include <set>
#include <tuple>

#include "sim/errors.h"

namespace trainyard {
namespace {

std::shared_ptr<CallPlan> dry_run(const HostedCall& call) {
  auto plan = std::make_shared<CallPlan>();
  const auto n = static_cast<uint32_t>(call.request.members->size());
  const auto run = call.algorithm->begin(call.request);
  std::deque<CollectiveSend> flying;
  std::vector<CollectiveSend> sends;
  std::vector<uint32_t> done;
  std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint8_t, bool>> seen;
  std::vector<std::set<uint32_t>> near(n);
  plan->inbound.assign(n, 0);
  const auto take = [&] {
    for (const CollectiveSend& s : sends) {
      ++plan->messages;
      (s.clear_to_send ? plan->grants : plan->payload) += s.bytes;
      plan->inbound[s.dst] += s.bytes;
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

std::shared_ptr<const CallPlan> CallPlanBook::plan(const HostedCall& call) {
  if (call.request.sizes) {
    auto plan = dry_run(call);
    plan->digest.add(key_of(call).second);
    for (const int64_t size : *call.request.sizes) plan->digest.add_signed(size);
    return plan;
  }
  auto& recent = recent_[call.request.members];
  for (const Recent& r : recent) {
    if (r.algorithm == call.algorithm && r.kind == call.request.kind &&
        r.bytes == call.request.bytes) {
      return r.plan;
    }
  }
  auto [key, digest] = key_of(call);
  auto& plan = plans_[key];
  if (!plan) {
    plan = dry_run(call);
    plan->digest.add(digest);
  }
  recent.push_back({key.algorithm, key.kind, key.bytes, plan});
  return plan;
}

std::pair<CallPlanBook::Key, Hash128> CallPlanBook::key_of(const HostedCall& call) {
  Key key{call.algorithm, call.request.kind, call.request.bytes, {}, {}};
  const auto& placement = call.request.placement;
  std::map<uint32_t, uint32_t> servers, rails;
  const auto number = [](std::map<uint32_t, uint32_t>& known, uint32_t what) {
    return known.emplace(what, static_cast<uint32_t>(known.size())).first->second;
  };
  for (const uint32_t m : *call.request.members) {
    key.servers.push_back(number(servers, placement.node_of(m)));
    if (placement.rail) key.rails.push_back(number(rails, placement.rail_of(m)));
    if (placement.borrows) key.rails.push_back(placement.borrows_nic(m) ? 1 : 0);
  }
  Hash128 digest;
  digest.add(reinterpret_cast<uintptr_t>(key.algorithm));  // the same for the whole run
  digest.add(static_cast<uint64_t>(key.kind));
  digest.add_signed(key.bytes);
  for (const uint32_t server : key.servers) digest.add(server);
  for (const uint32_t rail : key.rails) digest.add(rail);
  return {std::move(key), digest};
}

}  // namespace trainyard
