// SPDX-License-Identifier: MIT
// Follows some data packets: their path and what they waited at each hop. Which ones is decided by
// counter-based dice of their own, so that nothing else draws differently.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/observations.h"

namespace trainyard {

class PacketTracer {
 public:
  static constexpr size_t kMostHops = 2'000'000;

  /// Follows every packet with probability ratio_q32 / 2^32; less where there would be more than
  /// `most_hops` hops.
  PacketTracer(uint64_t ratio_q32, uint64_t seed, size_t most_hops = kMostHops);

  /// Packet `slot` of the pool is a fresh data packet, the next of queue pair `qp`, whose dice are
  /// `dice_object`'s.
  void sent(uint32_t slot, uint32_t qp, uint64_t dice_object, int64_t seq, int64_t payload,
            int64_t now);
  /// It stands in an egress queue from now on.
  void queued(uint32_t slot, int64_t now) {
    if (uint32_t* at = followed(slot)) active_[*at].queued_ps = now;
  }
  /// It is sent on `link`, which takes `line_ps` until its last bit is at the other end.
  void hop(uint32_t slot, uint32_t link, int64_t now, int64_t line_ps);
  void ended(uint32_t slot, int64_t now, PacketSample::Fate fate);

  /// Hands the samples over. Call once.
  PacketSamples finish();

 private:
  static constexpr uint32_t kNone = 0xffffffffU;
  struct Sample {
    PacketSample s;
    uint32_t draw = 0;  // its dice, 32 bits
  };
  struct Active {
    uint32_t sample = 0;
    int64_t queued_ps = -1;  // -1: it stands in no queue
    int64_t arrival_ps = 0;  // at the end of its last link
  };
  uint32_t* followed(uint32_t slot) {
    return slot < of_slot_.size() && of_slot_[slot] != kNone ? &of_slot_[slot] : nullptr;
  }
  void thin();

  const uint64_t asked_q32_;
  uint64_t ratio_q32_;
  const uint64_t seed_;
  const size_t most_hops_;
  size_t hops_ = 0;
  std::vector<uint64_t> counts_;   // data packets sent, per queue pair
  std::vector<uint32_t> of_slot_;  // into active_
  std::vector<Active> active_;
  std::vector<uint32_t> free_;  // of active_
  std::vector<Sample> samples_;
};

}  // namespace trainyard
