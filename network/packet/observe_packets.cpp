// SPDX-License-Identifier: MIT
#include "network/packet/observe_packets.h"

#include <utility>

#include "sim/dice.h"
#include "sim/errors.h"

namespace trainyard {
namespace {

constexpr uint32_t kDiceSample = 100;  // beside those of domain_dice.h

}  // namespace

PacketTracer::PacketTracer(uint64_t ratio_q32, uint64_t seed, size_t most_hops)
    : asked_q32_(ratio_q32), ratio_q32_(ratio_q32), seed_(seed), most_hops_(most_hops) {
  TRAINYARD_ASSERT(ratio_q32 > 0 && ratio_q32 <= uint64_t{1} << 32 && most_hops > 0);
}

void PacketTracer::sent(uint32_t slot, uint32_t qp, uint64_t dice_object, int64_t seq,
                        int64_t payload, int64_t now) {
  if (qp >= counts_.size()) counts_.resize(qp + 1, 0);
  const uint64_t draw = dice(seed_, kDiceSample, dice_object, counts_[qp]++);
  if (!dice_below(draw, ratio_q32_)) return;
  if (slot >= of_slot_.size()) of_slot_.resize(slot + 1, kNone);
  TRAINYARD_ASSERT(of_slot_[slot] == kNone);
  uint32_t at = 0;
  if (free_.empty()) {
    at = static_cast<uint32_t>(active_.size());
    active_.emplace_back();
  } else {
    at = free_.back();
    free_.pop_back();
  }
  of_slot_[slot] = at;
  active_[at] = {static_cast<uint32_t>(samples_.size()), -1, now};
  Sample& sample = samples_.emplace_back();
  sample.draw = static_cast<uint32_t>(draw >> 32);
  sample.s.qp = qp;
  sample.s.seq = seq;
  sample.s.payload_bytes = payload;
  sample.s.sent_ps = now;
}

void PacketTracer::hop(uint32_t slot, uint32_t link, int64_t now, int64_t line_ps) {
  const uint32_t* at = followed(slot);
  if (at == nullptr) return;
  Active& a = active_[*at];
  const int64_t waited = a.queued_ps < 0 ? 0 : now - a.queued_ps;
  a.queued_ps = -1;
  a.arrival_ps = now + line_ps;
  samples_[a.sample].s.hops.push_back({link, waited, line_ps});
  if (++hops_ > most_hops_) thin();
}

void PacketTracer::ended(uint32_t slot, int64_t now, PacketSample::Fate fate) {
  uint32_t* at = followed(slot);
  if (at == nullptr) return;
  PacketSample& s = samples_[active_[*at].sample].s;
  s.fate = fate;
  if (fate == PacketSample::Fate::delivered) {
    s.delivered_ps = now;
    s.receiver_wait_ps = now - active_[*at].arrival_ps;
  }
  free_.push_back(*at);
  *at = kNone;
}

/// Keeps those that a smaller ratio would have chosen.
void PacketTracer::thin() {
  while (hops_ > most_hops_ && ratio_q32_ > 1) {
    ratio_q32_ /= 2;
    std::vector<uint32_t> place(samples_.size(), kNone);
    size_t kept = 0;
    hops_ = 0;
    for (size_t i = 0; i < samples_.size(); ++i) {
      if (samples_[i].draw >= ratio_q32_) continue;
      hops_ += samples_[i].s.hops.size();
      place[i] = static_cast<uint32_t>(kept);
      if (kept != i) samples_[kept] = std::move(samples_[i]);
      ++kept;
    }
    samples_.resize(kept);
    for (uint32_t& at : of_slot_) {
      if (at == kNone) continue;
      active_[at].sample = place[active_[at].sample];
      if (active_[at].sample != kNone) continue;
      free_.push_back(at);
      at = kNone;
    }
  }
}

PacketSamples PacketTracer::finish() {
  PacketSamples out;
  out.asked_q32 = asked_q32_;
  out.ratio_q32 = ratio_q32_;
  out.packets.reserve(samples_.size());
  for (Sample& sample : samples_) out.packets.push_back(std::move(sample.s));
  samples_.clear();
  return out;
}

}  // namespace trainyard
