// SPDX-License-Identifier: MIT
// Which of the simulated domains goes on next, and how far it may without anybody else telling
// something before. Tournament trees: a change takes time logarithmic in the number of domains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainyard {

class LeaderClock {
 public:
  static constexpr uint32_t kNone = 0xffffffffU;
  static constexpr int64_t kNever = INT64_MAX;

  struct First {
    uint32_t domain = kNone;
    int64_t at = kNever;
    bool ready = false;
  };

  /// `domain` is none of them yet; it does nothing before set().
  void add(uint32_t domain);
  void remove(uint32_t domain);
  [[nodiscard]] bool has(uint32_t domain) const {
    return domain < slots_.size() && slots_[domain] != kNone;
  }
  /// It goes on at `at`, where it is `ready` to tell what it has done; it tells nothing before
  /// `tells`.
  void set(uint32_t domain, int64_t at, bool ready, int64_t tells);

  /// The earliest; at one instant first those that have to go on.
  [[nodiscard]] First first() const;
  /// When another one than `domain` may tell something.
  [[nodiscard]] int64_t tells_but(uint32_t domain) const;
  /// Those that are ready at `at`, where nobody has to go on.
  void due(int64_t at, std::vector<uint32_t>& out) const;
  /// Those that have to go on, at `bound` or before, and not after another one may tell something;
  /// in no order.
  void going_on(int64_t bound, std::vector<First>& out) const;
  /// All, in no order.
  [[nodiscard]] const std::vector<uint32_t>& domains() const { return domains_; }

 private:
  void put(uint32_t slot, int64_t when, int64_t tells);
  void due_below(size_t node, int64_t when, std::vector<uint32_t>& out) const;
  void going_on_below(size_t node, int64_t when, std::vector<First>& out) const;
  void grow();

  std::vector<uint32_t> domains_;  // by slot
  std::vector<uint32_t> slots_;    // by domain
  size_t leaves_ = 0;              // a power of two
  // Roots at 1. when: 2 at + ready.
  std::vector<int64_t> when_, tells_;
};

}  // namespace trainyard
