// SPDX-License-Identifier: MIT
// Pipeline schedules: in which order a stage works on which micro-batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard {

enum class ScheduleKind : uint8_t {
  gpipe,          ///< all forwards, then all backwards (A:F31)
  one_f_one_b,    ///< 1F1B with a flush (A:F32)
  interleaved,    ///< 1F1B over several chunks of layers per stage (A:F32, A:F33)
  split_backward  ///< ZB-H1: the weight-gradient half of a backward fills bubbles
};

struct ScheduleSlot {
  enum class Work : uint8_t {
    forward,
    backward,  ///< both halves
    input,     ///< gradient of the input only: what the stage before waits for
    weight     ///< gradient of the weights
  };
  Work work = Work::forward;
  uint32_t chunk = 0;  ///< of this stage
  uint32_t microbatch = 0;
  bool operator==(const ScheduleSlot&) const = default;
};

/// What `stage` of `stages` does in one step, in order. `chunks` > 1 for interleaved only, which
/// needs a multiple of `stages` micro-batches.
std::vector<ScheduleSlot> make_schedule(ScheduleKind kind, uint32_t stage, uint32_t stages,
                                        uint32_t microbatches, uint32_t chunks);

/// Micro-batches whose activations a stage holds at most, in chunks of 1/`chunks` of the stage.
uint32_t peak_in_flight(const std::vector<ScheduleSlot>& schedule);

/// Idle time over the ideal compute time of a step, without communication, for equal stages:
/// (p-1)/m, interleaved (p-1)/(m v) (A:F32). GPipe has the same (A:F31 divides by the total).
/// Split backward: (p-1)(F+B-W) / (m(F+B+W)), a third of it where the three are equal.
double ideal_bubble_ratio(ScheduleKind kind, uint32_t stages, uint32_t microbatches,
                          uint32_t chunks);
/// The same as a share of the total time: r / (1 + r).
double bubble_share(double ratio);

}  // namespace trainyard
