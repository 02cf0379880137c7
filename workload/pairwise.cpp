// SPDX-License-Identifier: MIT
// Pairwise all-to-all(v): in round k = 1 .. n - 1 a member sends to the one k places on and
// receives from the one k places back. It begins a round when what it sent and received in the
// round before is delivered, so that a receiver hears one sender at a time as long as they keep
// step. Empty shares are left out: the member goes on to its next round.
#include "sim/collective.h"
#include "sim/registry.h"
#include "workload/collective_params.h"
#include "workload/message_plan.h"
#include "workload/planned_run.h"

namespace trainyard {
namespace {

MessagePlan make_plan(const CollectiveRequest& r) {
  const auto n = static_cast<uint32_t>(r.members->size());
  MessagePlan plan(n);
  std::vector<std::vector<uint32_t>> last(n);  // by member: its last round that was not empty
  std::vector<std::vector<uint32_t>> now(n);
  for (uint32_t k = 1; k < n; ++k) {
    for (uint32_t m = 0; m < n; ++m) {
      const uint32_t to = (m + k) % n;
      const uint32_t i = plan.add(m, to, exchange_share(r, m, to), 0, last[m]);
      if (i == MessagePlan::kNone) continue;
      now[m].push_back(i);
      now[to].push_back(i);
    }
    for (uint32_t m = 0; m < n; ++m) {
      if (now[m].empty()) continue;
      last[m].swap(now[m]);
      now[m].clear();
    }
  }
  return plan;
}

class Pairwise final : public CollectiveAlgorithm {
 public:
  [[nodiscard]] std::string name() const override { return "pairwise"; }
  [[nodiscard]] bool supports(CollectiveKind k) const override {
    return k == CollectiveKind::all_to_all;
  }
  [[nodiscard]] std::unique_ptr<CollectiveRun> begin(const CollectiveRequest& r) const override {
    return std::make_unique<PlannedRun>(make_plan(r));
  }
  [[nodiscard]] int64_t sent_per_member(const CollectiveRequest& r) const override {
    return exchange_sent(r);
  }
};

const RegisterModel<CollectiveFactory> kRegistration{
    {"collective", "pairwise",
     "All-to-all(v) in n - 1 rounds, in each of which a member sends to one other and receives "
     "from one.",
     "MPI pairwise exchange: Thakur, Rabenseifner and Gropp 2005", collective_params()},
    [](const Params&) { return std::make_unique<Pairwise>(); }};

}  // namespace
}  // namespace trainyard
