// SPDX-License-Identifier: MIT
// All messages of one call of a collective and what each waits for, known before it begins. An
// algorithm that can write this down needs no run of its own, see PlannedRun.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/collective.h"

namespace trainyard {

class MessagePlan {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Message {
    uint32_t src = 0, dst = 0, channel = 0;
    int64_t bytes = 0;
  };

  explicit MessagePlan(uint32_t members) : members_(members) {}

  /// Adds a message that leaves when those of `after` are delivered. They were added before it, and
  /// `src` sent or received them, so that it knows; kNone among them is ignored. Messages of one
  /// sender, receiver and channel leave in the order in which they were added.
  /// @returns its index; kNone for zero bytes: nothing is sent, nobody waits for it
  uint32_t add(uint32_t src, uint32_t dst, int64_t bytes, uint32_t channel,
               const std::vector<uint32_t>& after = {});
  /// No message leaves before all members have arrived.
  void start_together() { together_ = true; }
  /// To be called once, before anything is read.
  void finish();

  [[nodiscard]] uint32_t members() const { return members_; }
  [[nodiscard]] bool together() const { return together_; }
  [[nodiscard]] const std::vector<Message>& messages() const { return messages_; }
  /// Messages that wait for `i`: [first_after(i), first_after(i + 1)) of after().
  [[nodiscard]] uint32_t first_after(uint32_t i) const { return first_after_[i]; }
  [[nodiscard]] const std::vector<uint32_t>& after() const { return after_; }
  [[nodiscard]] uint32_t waits_for(uint32_t i) const { return waits_[i]; }
  /// The next message of the same sender, receiver and channel, or kNone.
  [[nodiscard]] uint32_t next_on_edge(uint32_t i) const { return next_[i]; }
  [[nodiscard]] bool first_on_edge(uint32_t i) const { return first_[i] != 0; }

 private:
  uint32_t members_;
  bool together_ = false;
  std::vector<Message> messages_;
  std::vector<uint32_t> waits_, next_;
  std::vector<char> first_;
  std::vector<std::pair<uint32_t, uint32_t>> pairs_;  // before, after; until finish()
  std::vector<uint32_t> first_after_, after_;
};

/// Part `i` of `bytes` cut into `parts`: they differ by at most one byte and none is empty.
int64_t part_of(int64_t bytes, int64_t parts, int64_t i);

/// What `from` has for `to` in an all-to-all(v), by member. Zero with sizes only.
int64_t exchange_share(const CollectiveRequest& request, uint32_t from, uint32_t to);

/// Mean payload that a member of an all-to-all(v) sends straight to the others.
int64_t exchange_sent(const CollectiveRequest& request);

}  // namespace trainyard
