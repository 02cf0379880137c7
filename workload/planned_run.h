// SPDX-License-Identifier: MIT
// A collective in progress that follows a MessagePlan.
#pragma once

#include <vector>

#include "sim/collective.h"
#include "workload/message_plan.h"

namespace trainyard {

class PlannedRun final : public CollectiveRun {
 public:
  /// `plan` is not finished yet.
  explicit PlannedRun(MessagePlan plan);

  void arrived(uint32_t member, std::vector<CollectiveSend>& sends,
               std::vector<uint32_t>& done) override;
  void delivered(const CollectiveSend& send, std::vector<CollectiveSend>& sends,
                 std::vector<uint32_t>& done) override;
  bool receives(uint32_t member, std::vector<CollectiveReceive>& out) const override;

 private:
  void release(uint32_t member, std::vector<CollectiveSend>& sends);
  void unblock(uint32_t message, std::vector<CollectiveSend>& sends);
  void launch(uint32_t message, std::vector<CollectiveSend>& sends);

  MessagePlan plan_;
  uint32_t n_here_ = 0;
  std::vector<char> here_, silent_;
  std::vector<uint32_t> open_;               // by message: messages that it still waits for
  std::vector<char> ready_, ahead_gone_;     // by message; the one before it on its edge has left
  std::vector<uint32_t> left_;               // by member
  std::vector<std::vector<uint32_t>> held_;  // by member: messages that wait for its arrival
};

}  // namespace trainyard
