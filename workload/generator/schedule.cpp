// SPDX-License-Identifier: MIT
#include "workload/generator/schedule.h"

#include <algorithm>
#include <utility>

#include "sim/errors.h"

namespace trainyard {
namespace {

using Work = ScheduleSlot::Work;

std::vector<ScheduleSlot> gpipe(uint32_t m) {
  std::vector<ScheduleSlot> out;
  for (uint32_t i = 0; i < m; ++i) out.push_back({Work::forward, 0, i});
  // The last stage turns round with the newest: it is the one still at hand everywhere.
  for (uint32_t i = 0; i < m; ++i) out.push_back({Work::backward, 0, m - 1 - i});
  return out;
}

std::vector<ScheduleSlot> one_f_one_b(uint32_t stage, uint32_t p, uint32_t m) {
  const uint32_t warmup = std::min(p - 1 - stage, m);
  std::vector<ScheduleSlot> out;
  for (uint32_t i = 0; i < warmup; ++i) out.push_back({Work::forward, 0, i});
  for (uint32_t i = warmup; i < m; ++i) {
    out.push_back({Work::forward, 0, i});
    out.push_back({Work::backward, 0, i - warmup});
  }
  for (uint32_t i = m - warmup; i < m; ++i) out.push_back({Work::backward, 0, i});
  return out;
}

/// Megatron's order: chunks take turns every p micro-batches; backward visits them from the last.
std::vector<ScheduleSlot> interleaved(uint32_t stage, uint32_t p, uint32_t m, uint32_t v) {
  TRAINYARD_ASSERT(m % p == 0);
  const uint32_t total = m * v;
  const auto nth = [&](Work work, uint32_t k) {
    const uint32_t group = k / (p * v);
    const uint32_t chunk = k % (p * v) / p;
    return ScheduleSlot{work, work == Work::forward ? chunk : v - 1 - chunk, group * p + k % p};
  };
  const uint32_t warmup = m == p ? total : std::min(total, (p - 1 - stage) * 2 + (v - 1) * p);
  std::vector<ScheduleSlot> out;
  for (uint32_t k = 0; k < warmup; ++k) out.push_back(nth(Work::forward, k));
  for (uint32_t k = warmup; k < total; ++k) {
    out.push_back(nth(Work::forward, k));
    out.push_back(nth(Work::backward, k - warmup));
  }
  for (uint32_t k = total - warmup; k < total; ++k) out.push_back(nth(Work::backward, k));
  return out;
}

/// ZB-H1: 1F1B in which stage i puts the weight half off by i micro-batches, so that it holds as
/// many activations as the first stage, and no more.
std::vector<ScheduleSlot> split_backward(uint32_t stage, uint32_t p, uint32_t m) {
  std::vector<ScheduleSlot> out;
  uint32_t weights = 0;
  uint32_t inputs = 0;
  for (const ScheduleSlot& s : one_f_one_b(stage, p, m)) {
    if (s.work == Work::forward) {
      out.push_back(s);
      continue;
    }
    out.push_back({Work::input, 0, s.microbatch});
    if (++inputs > stage) out.push_back({Work::weight, 0, weights++});
  }
  while (weights < m) out.push_back({Work::weight, 0, weights++});
  return out;
}

/// One half of the ranks of a bidirectional pipeline; ranks of the other half do the same with
/// directions exchanged. `half` ranks, this is the `rank`-th from the entry of direction 0.
class DualPipe {
 public:
  DualPipe(uint32_t rank, uint32_t half, uint32_t microbatches, bool exchanged, uint32_t second)
      : rank_(rank), half_(half), n_(microbatches), exchanged_(exchanged) {
    first_[1] = second;  // micro-batches of chunk 1 follow those of chunk 0
  }

  std::vector<ScheduleSlot> slots() {
    const uint32_t inner = half_ - rank_ - 1;  // ranks between this one and the middle
    for (uint32_t i = 0; i < 2 * inner; ++i) forward(0);
    for (uint32_t i = 0; i < rank_ + 1; ++i) forward(0), forward(1);
    for (uint32_t i = 0; i < inner; ++i) input(1), weight(), forward(1);
    for (uint32_t i = 0; i < n_ - 2 * half_ + rank_ + 1; ++i) {
      // In the middle what would go beside it is not there yet.
      pair(0, 1, i > 0 || inner > 0);
      pair(1, 0, true);
    }
    for (uint32_t i = 0; i < inner; ++i) backward(1), pair(1, 0, true);
    bool split = false;
    for (uint32_t i = 0; i < rank_ + 1; ++i) {
      if (i == (rank_ + 1) / 2 && rank_ % 2 == 1) split = true;
      split ? input(1) : backward(1);
      if (i == (rank_ + 1) / 2 && rank_ % 2 == 0) split = true;
      split ? input(0) : backward(0);
    }
    for (uint32_t i = 0; i < inner; ++i) weight(), input(0);
    for (uint32_t i = 0; i < rank_ + 1; ++i) weight();
    TRAINYARD_ASSERT(late_.size() == next_late_);
    return std::move(out_);
  }

 private:
  void add(Work work, uint32_t phase, uint32_t microbatch, bool beside = false) {
    const uint32_t chunk = exchanged_ ? 1 - phase : phase;
    out_.push_back({work, chunk, first_[chunk] + microbatch, beside});
  }
  void forward(uint32_t phase) { add(Work::forward, phase, forwards_[phase]++); }
  void backward(uint32_t phase, bool beside = false) {
    add(Work::backward, phase, backwards_[phase]++, beside);
  }
  void pair(uint32_t forwards, uint32_t backwards, bool beside) {
    forward(forwards);
    backward(backwards, beside);
  }
  void input(uint32_t phase) {
    late_.emplace_back(phase, backwards_[phase]);
    add(Work::input, phase, backwards_[phase]++);
  }
  void weight() {
    const auto [phase, microbatch] = late_[next_late_++];
    add(Work::weight, phase, microbatch);
  }

  uint32_t rank_, half_, n_;
  bool exchanged_;
  uint32_t first_[2] = {0, 0};  // micro-batch by chunk
  uint32_t forwards_[2] = {0, 0}, backwards_[2] = {0, 0};
  std::vector<std::pair<uint32_t, uint32_t>> late_;  // weight halves put off
  size_t next_late_ = 0;
  std::vector<ScheduleSlot> out_;
};

}  // namespace

std::vector<ScheduleSlot> make_schedule(ScheduleKind kind, uint32_t stage, uint32_t stages,
                                        uint32_t microbatches, uint32_t chunks) {
  TRAINYARD_ASSERT(stage < stages && microbatches > 0 && chunks > 0);
  switch (kind) {
    case ScheduleKind::gpipe:
      return gpipe(microbatches);
    case ScheduleKind::one_f_one_b:
      return one_f_one_b(stage, stages, microbatches);
    case ScheduleKind::interleaved:
      return interleaved(stage, stages, microbatches, chunks);
    case ScheduleKind::split_backward:
      return split_backward(stage, stages, microbatches);
    case ScheduleKind::dualpipe: {
      TRAINYARD_ASSERT(stages % 2 == 0 && microbatches % 2 == 0 && microbatches >= 2 * stages);
      const bool second = stage >= stages / 2;
      return DualPipe(second ? stages - 1 - stage : stage, stages / 2, microbatches / 2, second,
                      microbatches / 2)
          .slots();
    }
    case ScheduleKind::dualpipe_v:
      TRAINYARD_ASSERT(microbatches >= 2 * stages);
      return DualPipe(stage, stages, microbatches, false, 0).slots();
  }
  return {};
}

uint32_t peak_in_flight(const std::vector<ScheduleSlot>& schedule) {
  uint32_t now = 0;
  uint32_t peak = 0;
  for (const ScheduleSlot& s : schedule) {
    if (s.work == Work::forward) {
      peak = std::max(peak, ++now);
    } else if (s.work != Work::input) {
      --now;
    }
  }
  return peak;
}

double ideal_bubble_ratio(ScheduleKind kind, uint32_t stages, uint32_t microbatches,
                          uint32_t chunks) {
  const double r = static_cast<double>(stages - 1) / microbatches;
  if (kind == ScheduleKind::interleaved) return r / chunks;
  if (kind == ScheduleKind::dualpipe) return (stages / 2.0 - 1) * 2 / (3.0 * microbatches);
  if (kind == ScheduleKind::dualpipe_v) return (stages - 1.0) / (3.0 * microbatches);
  return kind == ScheduleKind::split_backward ? r / 3 : r;
}

double bubble_share(double ratio) {
  return ratio / (1 + ratio);
}

}  // namespace trainyard
