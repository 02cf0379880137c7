// SPDX-License-Identifier: MIT
#include "workload/generator/schedule.h"

#include <algorithm>

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
  return kind == ScheduleKind::split_backward ? r / 3 : r;
}

double bubble_share(double ratio) {
  return ratio / (1 + ratio);
}

}  // namespace trainyard
