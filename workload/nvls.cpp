// SPDX-License-Identifier: MIT
// All-reduce that the scale-up switch reduces (NVLS): every member reads its n-th of the sum
// through the switch, for which each member's port sends the whole buffer up, and writes it back
// once to all. So each port carries S + S / n bytes per direction instead of 2 (n - 1) / n S.
//
// A fabric moves bytes from one host to one other: it has neither reduction nor multicast. What
// stands in for both: a message of S bytes to the next member, then one of S / n bytes, all members
// starting together. Loads of ports, the two passes and the barrier are right; that a pass is
// asymmetric, and what the switch takes to add up, are not modelled. Measured: 1.06 of the scale-up
// rate on Hopper (nccl-measured 2.5), where this form allows 1.56 with 8 members.
#include "sim/collective.h"
#include "sim/registry.h"
#include "workload/collective_params.h"
#include "workload/group_layout.h"
#include "workload/message_plan.h"
#include "workload/planned_run.h"

namespace trainyard {
namespace {

MessagePlan make_plan(const CollectiveRequest& r) {
  const auto n = static_cast<uint32_t>(r.members->size());
  MessagePlan plan(n);
  plan.start_together();
  std::vector<uint32_t> reduced(n);  // by receiver
  for (uint32_t m = 0; m < n; ++m) {
    reduced[(m + 1) % n] = plan.add(m, (m + 1) % n, r.bytes, 0);
  }
  for (uint32_t m = 0; m < n; ++m) {
    plan.add(m, (m + 1) % n, part_of(r.bytes, n, m), 1, {reduced[m]});
  }
  return plan;
}

class Nvls final : public CollectiveAlgorithm {
 public:
  [[nodiscard]] std::string name() const override { return "nvls"; }
  [[nodiscard]] bool supports(CollectiveKind k) const override {
    return k == CollectiveKind::all_reduce || k == CollectiveKind::barrier;
  }
  [[nodiscard]] bool serves(const CollectiveRequest& r) const override {
    // A rank without a scale-up switch is a server of its own.
    return GroupLayout(r).server_count() == 1;
  }
  [[nodiscard]] std::unique_ptr<CollectiveRun> begin(const CollectiveRequest& r) const override {
    return std::make_unique<PlannedRun>(make_plan(r));
  }
  [[nodiscard]] int64_t sent_per_member(const CollectiveRequest& r) const override {
    return r.bytes + r.bytes / static_cast<int64_t>(r.members->size());
  }
};

const RegisterModel<CollectiveFactory> kRegistration{
    {"collective", "nvls",
     "All-reduce inside one scale-up domain whose switch reduces: every port carries S + S / n "
     "bytes. An approximation by message sizes, see docs/collectives.md.",
     "A: 105; nccl-measured 2.5", collective_params()},
    [](const Params&) { return std::make_unique<Nvls>(); }};

}  // namespace
}  // namespace trainyard
