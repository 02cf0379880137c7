// SPDX-License-Identifier: MIT
// Direct all-to-all: every member sends its share to every other one.
#include <algorithm>

#include "sim/collective.h"
#include "sim/registry.h"
#include "workload/collective_params.h"

namespace trainyard {
namespace {

class DirectRun final : public CollectiveRun {
 public:
  DirectRun(const CollectiveRequest& r, uint32_t window)
      : bytes_(r.bytes),
        sizes_(r.sizes),
        n_(static_cast<uint32_t>(r.members->size())),
        window_(window == 0 ? n_ : window),
        here_(n_, 0),
        left_(n_, 2 * (n_ - 1)),
        in_flight_(n_, 0),
        waiting_(n_) {
    // Peers in rotated order, so that no receiver is everybody's first.
    for (uint32_t m = 0; m < n_; ++m) {
      for (uint32_t k = 1; k < n_; ++k) {
        const uint32_t to = (m + k) % n_;
        if (share(m, to) > 0) {
          waiting_[m].push_back(to);
        } else {
          --left_[m];
          --left_[to];
        }
      }
    }
    for (uint32_t m = 0; m < n_; ++m) silent_.push_back(left_[m] == 0 ? 1 : 0);
  }

  void arrived(uint32_t member, std::vector<CollectiveSend>& sends,
               std::vector<uint32_t>& done) override {
    here_[member] = 1;
    if (++n_here_ == n_) {
      // Who neither sends nor receives is done when everybody is here.
      for (uint32_t m = 0; m < n_; ++m) {
        if (silent_[m] != 0) done.push_back(m);
      }
    }
    pump(member, sends);
    for (uint32_t m = 0; m < n_; ++m) {
      if (m != member && here_[m] != 0) pump(m, sends);
    }
  }

  void delivered(const CollectiveSend& send, std::vector<CollectiveSend>& sends,
                 std::vector<uint32_t>& done) override {
    --in_flight_[send.src];
    pump(send.src, sends);
    for (const uint32_t m : {send.src, send.dst}) {
      if (--left_[m] == 0) done.push_back(m);
    }
  }

  [[nodiscard]] bool all_sent() const override { return n_here_ == n_ && window_ + 1 >= n_; }

  bool receives(uint32_t member, std::vector<CollectiveReceive>& out) const override {
    for (uint32_t k = 1; k < n_; ++k) {
      const uint32_t from = (member + n_ - k) % n_;
      if (share(from, member) > 0) out.push_back({from, 0, 1});
    }
    return true;
  }

 private:
  [[nodiscard]] int64_t share(uint32_t from, uint32_t to) const {
    if (sizes_) return (*sizes_)[static_cast<size_t>(from) * n_ + to];
    const auto edge = [&](int64_t k) {
      return static_cast<int64_t>(static_cast<__int128>(bytes_) * k / n_);
    };
    return std::max<int64_t>(1, edge(to + 1) - edge(to));
  }

  void pump(uint32_t m, std::vector<CollectiveSend>& sends) {
    auto& peers = waiting_[m];
    for (size_t i = 0; i < peers.size() && in_flight_[m] < window_;) {
      const uint32_t to = peers[i];
      if (here_[to] == 0) {
        ++i;
        continue;
      }
      sends.push_back({m, to, share(m, to), 0, 0});
      ++in_flight_[m];
      peers.erase(peers.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  int64_t bytes_;
  std::shared_ptr<const std::vector<int64_t>> sizes_;
  uint32_t n_, window_;
  uint32_t n_here_ = 0;
  std::vector<char> here_, silent_;
  std::vector<uint32_t> left_, in_flight_;
  std::vector<std::vector<uint32_t>> waiting_;
};

class Direct final : public CollectiveAlgorithm {
 public:
  explicit Direct(const Params& p)
      : window_(p.is_word("window", "auto") ? 0 : static_cast<uint32_t>(p.integer("window"))) {}
  [[nodiscard]] std::string name() const override { return "direct"; }
  [[nodiscard]] bool supports(CollectiveKind k) const override {
    return k == CollectiveKind::all_to_all;
  }
  [[nodiscard]] std::unique_ptr<CollectiveRun> begin(const CollectiveRequest& r) const override {
    return std::make_unique<DirectRun>(r, window_);
  }
  [[nodiscard]] int64_t sent_per_member(const CollectiveRequest& r) const override {
    const auto n = static_cast<int64_t>(r.members->size());
    if (r.sizes) {  // the mean
      int64_t sum = 0;
      for (size_t i = 0; i < r.sizes->size(); ++i) {
        if (i % static_cast<size_t>(n + 1) != 0) sum += (*r.sizes)[i];
      }
      return sum / n;
    }
    return static_cast<int64_t>(static_cast<__int128>(r.bytes) * (n - 1) / n);
  }

 private:
  uint32_t window_;
};

const RegisterModel<CollectiveFactory> kRegistration{
    {"collective", "direct",
     "All-to-all(v) in which every member sends its share straight to every other, in rotated "
     "order.",
     "A: collectives (all-to-all)", collective_params()},
    [](const Params& p) { return std::make_unique<Direct>(p); }};

}  // namespace
}  // namespace trainyard
