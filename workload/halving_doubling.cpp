// SPDX-License-Identifier: MIT
// Recursive halving and doubling: in step b a member exchanges with the one whose number differs in
// bit b. Reduce-scatter sends the half that it does not keep, nearest neighbours (and the largest
// halves) first; all-gather goes the same way back; all-reduce is both.
//
// Where the number of members n is no power of two, p is the largest one below it and the first
// 2 (n - p) members form pairs: the even one hands its data to the odd one, which stands for both
// and hands back the result (Thakur, Rabenseifner and Gropp 2005).
#include <algorithm>
#include <bit>

#include "sim/collective.h"
#include "sim/registry.h"
#include "workload/collective_params.h"
#include "workload/message_plan.h"
#include "workload/planned_run.h"

namespace trainyard {
namespace {

class Exchange {
 public:
  explicit Exchange(const CollectiveRequest& r)
      : r_(r),
        n_(static_cast<uint32_t>(r.members->size())),
        p_(std::bit_floor(n_)),
        pairs_(n_ - p_),
        bits_(static_cast<uint32_t>(std::countr_zero(p_))),
        own_(p_),
        received_(n_),
        plan_(n_) {
    const int64_t parts = gathers_only() ? 1 : scatters_only() ? n_ : p_;
    for (uint32_t i = 0; i < p_; ++i) {
      if (gathers_only()) {
        own_[i] = r.bytes * (i < pairs_ ? 2 : 1);
      } else if (scatters_only() && i < pairs_) {
        own_[i] = part_of(r.bytes, parts, 2 * i) + part_of(r.bytes, parts, 2 * i + 1);
      } else {
        own_[i] = part_of(r.bytes, parts, scatters_only() ? i + pairs_ : i);
      }
    }
  }

  MessagePlan make() {
    for (uint32_t i = 0; i < pairs_; ++i) send(2 * i, 2 * i + 1, r_.bytes);
    if (!gathers_only()) {
      for (uint32_t b = 0; b < bits_; ++b) step(b, true);
    }
    if (!scatters_only()) {
      for (uint32_t b = bits_; b-- > 0;) step(b, false);
    }
    for (uint32_t i = 0; i < pairs_; ++i) {
      int64_t bytes = r_.bytes;
      if (gathers_only()) bytes = r_.bytes * (n_ - 1);
      if (scatters_only()) bytes = part_of(r_.bytes, n_, 2 * i);
      send(2 * i + 1, 2 * i, bytes);
    }
    return std::move(plan_);
  }

 private:
  [[nodiscard]] bool gathers_only() const { return r_.kind == CollectiveKind::all_gather; }
  [[nodiscard]] bool scatters_only() const {
    return r_.kind == CollectiveKind::reduce_scatter ||
           r_.kind == CollectiveKind::reduce_scatter_block;
  }
  /// The member that takes part as number `i` of p.
  [[nodiscard]] uint32_t member(uint32_t i) const { return i < pairs_ ? 2 * i + 1 : i + pairs_; }

  void send(uint32_t from, uint32_t to, int64_t bytes) {
    received_[to].push_back(plan_.add(from, to, bytes, 0, received_[from]));
  }

  /// All p exchange blocks across bit b: the blocks whose low b + 1 bits are those of the receiver
  /// while reducing, of the sender while gathering.
  void step(uint32_t b, bool reduce) {
    const uint32_t low = (2U << b) - 1;
    std::vector<int64_t> sum(low + 1, 0);
    for (uint32_t i = 0; i < p_; ++i) sum[i & low] += own_[i];
    std::vector<uint32_t> sent(p_);
    for (uint32_t i = 0; i < p_; ++i) {
      const uint32_t to = i ^ (1U << b);
      sent[i] =
          plan_.add(member(i), member(to), sum[(reduce ? to : i) & low], 0, received_[member(i)]);
    }
    for (uint32_t i = 0; i < p_; ++i) received_[member(i ^ (1U << b))].push_back(sent[i]);
  }

  const CollectiveRequest& r_;
  uint32_t n_, p_, pairs_, bits_;
  std::vector<int64_t> own_;  // by number of p: bytes of its block
  // By member: all that it received. The last is not enough, senders being different ones.
  std::vector<std::vector<uint32_t>> received_;
  MessagePlan plan_;
};

class HalvingDoubling final : public CollectiveAlgorithm {
 public:
  [[nodiscard]] std::string name() const override { return "halving-doubling"; }
  [[nodiscard]] bool supports(CollectiveKind k) const override {
    return k == CollectiveKind::all_reduce || k == CollectiveKind::all_gather ||
           k == CollectiveKind::reduce_scatter || k == CollectiveKind::reduce_scatter_block ||
           k == CollectiveKind::barrier;
  }
  [[nodiscard]] std::unique_ptr<CollectiveRun> begin(const CollectiveRequest& r) const override {
    return std::make_unique<PlannedRun>(Exchange(r).make());
  }
  [[nodiscard]] int64_t sent_per_member(const CollectiveRequest& r) const override {
    const auto n = static_cast<int64_t>(r.members->size());
    const auto pairs = n - static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)));
    if (r.kind == CollectiveKind::all_gather) return (n - 1) * r.bytes;
    const __int128 once = static_cast<__int128>(r.bytes) * (n - 1);
    if (r.kind == CollectiveKind::all_reduce || r.kind == CollectiveKind::barrier) {
      return static_cast<int64_t>(2 * once / n);
    }
    // Handing back a block costs beside the optimum.
    return static_cast<int64_t>((once + static_cast<__int128>(r.bytes) * pairs / n) / n);
  }
};

const RegisterModel<CollectiveFactory> kRegistration{
    {"collective", "halving-doubling",
     "Recursive halving (reduce-scatter) and doubling (all-gather), all-reduce from both; other "
     "numbers of members than powers of two by pairs.",
     "A: 126 (recursive doubling and halving); Thakur, Rabenseifner and Gropp 2005",
     collective_params()},
    [](const Params&) { return std::make_unique<HalvingDoubling>(); }};

}  // namespace
}  // namespace trainyard
