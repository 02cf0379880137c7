// SPDX-License-Identifier: MIT
// Rooted collectives: broadcast and reduce as a pipelined chain, gather and scatter straight
// between the root and the others (NCCL's ring broadcast/reduce and grouped send/recv). The root
// is the first member of the communicator: Chakra carries no root.
#include <algorithm>

#include "sim/collective.h"
#include "sim/registry.h"
#include "workload/collective_params.h"

namespace trainyard {
namespace {

// Pipelining hides the length of the chain; NCCL's default slice is half a 4 MiB / 8 chunk.
constexpr int64_t kSliceBytes = 256 * 1024;
constexpr int64_t kMaxSlices = 64;

/// Member p passes slice after slice to member p + 1; reduce runs from the last member to the root.
class ChainRun final : public CollectiveRun {
 public:
  explicit ChainRun(const CollectiveRequest& r)
      : bytes_(r.bytes),
        n_(static_cast<uint32_t>(r.members->size())),
        slices_(static_cast<uint32_t>(
            std::clamp<int64_t>((r.bytes + kSliceBytes - 1) / kSliceBytes, 1, kMaxSlices))),
        reduce_(r.kind == CollectiveKind::reduce),
        here_(n_, 0),
        sent_(n_, 0),
        received_(n_, 0),
        left_(n_, 2 * slices_) {
    received_[0] = slices_;  // the start of the chain has everything
    left_[0] = left_[n_ - 1] = slices_;
  }

  void arrived(uint32_t member, std::vector<CollectiveSend>& sends,
               std::vector<uint32_t>&) override {
    const uint32_t p = position(member);
    here_[p] = 1;
    pump(p, sends);
    if (p > 0) pump(p - 1, sends);
  }

  void delivered(const CollectiveSend& send, std::vector<CollectiveSend>& sends,
                 std::vector<uint32_t>& done) override {
    const uint32_t to = position(send.dst);
    ++received_[to];
    pump(to, sends);
    for (const uint32_t p : {to - 1, to}) {
      if (--left_[p] == 0) done.push_back(position(p));
    }
  }

  bool receives(uint32_t member, std::vector<CollectiveReceive>& out) const override {
    const uint32_t p = position(member);
    if (p > 0) out.push_back({position(p - 1), 0, slices_});
    return true;
  }

 private:
  [[nodiscard]] uint32_t position(uint32_t member) const {
    return reduce_ ? n_ - 1 - member : member;  // its own inverse
  }
  void pump(uint32_t p, std::vector<CollectiveSend>& sends) {
    if (p + 1 >= n_ || here_[p] == 0 || here_[p + 1] == 0) return;
    for (; sent_[p] < received_[p]; ++sent_[p]) {
      const auto edge = [&](int64_t k) {
        return static_cast<int64_t>(static_cast<__int128>(bytes_) * k / slices_);
      };
      const int64_t size = std::max<int64_t>(1, edge(sent_[p] + 1) - edge(sent_[p]));
      sends.push_back({position(p), position(p + 1), size, 0, sent_[p]});
    }
  }

  int64_t bytes_;
  uint32_t n_, slices_;
  bool reduce_;
  std::vector<char> here_;  // by position in the chain
  std::vector<uint32_t> sent_, received_, left_;
};

/// The root exchanges a message with every other member.
class StarRun final : public CollectiveRun {
 public:
  explicit StarRun(const CollectiveRequest& r)
      : bytes_(r.bytes),
        n_(static_cast<uint32_t>(r.members->size())),
        gather_(r.kind == CollectiveKind::gather),
        here_(n_, 0),
        left_root_(n_ - 1) {}

  void arrived(uint32_t member, std::vector<CollectiveSend>& sends,
               std::vector<uint32_t>&) override {
    here_[member] = 1;
    for (uint32_t m = 1; m < n_; ++m) {
      const bool now = member == 0 ? here_[m] != 0 : m == member && here_[0] != 0;
      if (now) {
        sends.push_back({gather_ ? m : 0, gather_ ? 0 : m, share(m), 0, 0});
      }
    }
  }

  void delivered(const CollectiveSend& send, std::vector<CollectiveSend>&,
                 std::vector<uint32_t>& done) override {
    done.push_back(gather_ ? send.src : send.dst);
    if (--left_root_ == 0) done.push_back(0);
  }

  bool receives(uint32_t member, std::vector<CollectiveReceive>& out) const override {
    if (!gather_ && member != 0) out.push_back({0, 0, 1});
    for (uint32_t m = 1; gather_ && member == 0 && m < n_; ++m) out.push_back({m, 0, 1});
    return true;
  }

 private:
  /// gather: `bytes` is what each rank contributes; scatter: what the root hands out in all.
  [[nodiscard]] int64_t share(uint32_t m) const {
    if (gather_) return bytes_;
    const auto edge = [&](int64_t k) {
      return static_cast<int64_t>(static_cast<__int128>(bytes_) * k / n_);
    };
    return std::max<int64_t>(1, edge(m + 1) - edge(m));
  }

  int64_t bytes_;
  uint32_t n_;
  bool gather_;
  std::vector<char> here_;
  uint32_t left_root_;
};

class Chain final : public CollectiveAlgorithm {
 public:
  [[nodiscard]] std::string name() const override { return "chain"; }
  [[nodiscard]] bool supports(CollectiveKind k) const override {
    return k == CollectiveKind::broadcast || k == CollectiveKind::reduce;
  }
  [[nodiscard]] std::unique_ptr<CollectiveRun> begin(const CollectiveRequest& r) const override {
    return std::make_unique<ChainRun>(r);
  }
  [[nodiscard]] int64_t sent_per_member(const CollectiveRequest& r) const override {
    return r.bytes;  // all but the end of the chain
  }
};

class Star final : public CollectiveAlgorithm {
 public:
  [[nodiscard]] std::string name() const override { return "star"; }
  [[nodiscard]] bool supports(CollectiveKind k) const override {
    return k == CollectiveKind::gather || k == CollectiveKind::scatter;
  }
  [[nodiscard]] std::unique_ptr<CollectiveRun> begin(const CollectiveRequest& r) const override {
    return std::make_unique<StarRun>(r);
  }
  [[nodiscard]] int64_t sent_per_member(const CollectiveRequest& r) const override {
    // gather: every member but the root; scatter: the root's share per receiver.
    return r.kind == CollectiveKind::gather ? r.bytes
                                            : r.bytes / static_cast<int64_t>(r.members->size());
  }
};

const RegisterModel<CollectiveFactory> kChain{
    {"collective", "chain",
     "Broadcast and reduce as a pipelined chain through the members, root first (or last).",
     "NCCL ring broadcast and reduce", collective_params()},
    [](const Params&) { return std::make_unique<Chain>(); }};

const RegisterModel<CollectiveFactory> kStar{
    {"collective", "star",
     "Gather and scatter as direct messages between the root and every other member.",
     "NCCL grouped send/recv", collective_params()},
    [](const Params&) { return std::make_unique<Star>(); }};

}  // namespace
}  // namespace trainyard
