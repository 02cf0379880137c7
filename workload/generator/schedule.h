// SPDX-License-Identifier: MIT
// Pipeline schedules: in which order a stage works on which micro-batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard {

enum class ScheduleKind : uint8_t {
  gpipe,           ///< all forwards, then all backwards (A:F31)
  one_f_one_b,     ///< 1F1B with a flush (A:F32)
  interleaved,     ///< 1F1B over several chunks of layers per stage (A:F32, A:F33)
  split_backward,  ///< ZB-H1: the weight-gradient half of a backward fills bubbles
  dualpipe,        ///< half of the micro-batches go the other way through copies of all stages
  dualpipe_v       ///< the same without copies: chunks lie along a V, first and last on one rank
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
  /// Runs beside the slot before it, a forward of another micro-batch: communication of each is
  /// hidden behind compute of the other.
  bool beside = false;
  bool operator==(const ScheduleSlot&) const = default;
};

/// What `stage` of `stages` does in one step, in order. `chunks` > 1 for interleaved only, which
/// needs a multiple of `stages` micro-batches.
/// dualpipe: an even number of stages and micro-batches, of these at least 2 x stages. Chunk 0 is
/// the stage, chunk 1 the copy of stage `stages` - 1 - `stage`; the first half of the micro-batches
/// enters at stage 0 and visits chunks 0, the others enter at the last and visit chunks 1.
/// dualpipe_v: at least 2 x stages micro-batches. Of 2 x stages parts of the model chunk 0 is part
/// `stage`, chunk 1 part 2 x stages - 1 - `stage`.
/// (arXiv:2412.19437 3.2.1; steps as in github.com/deepseek-ai/DualPipe.)
std::vector<ScheduleSlot> make_schedule(ScheduleKind kind, uint32_t stage, uint32_t stages,
                                        uint32_t microbatches, uint32_t chunks);

/// Micro-batches whose activations a stage holds at most, in chunks of 1/`chunks` of the stage.
uint32_t peak_in_flight(const std::vector<ScheduleSlot>& schedule);

/// Idle time over the ideal compute time of a step, without communication, for equal stages:
/// (p-1)/m, interleaved (p-1)/(m v) (A:F32). GPipe has the same (A:F31 divides by the total).
/// Split backward: (p-1)(F+B-W) / (m(F+B+W)), a third of it where the three are equal.
/// DualPipe: (p/2-1)(F&B + B - 3W) / (m(F+B)), B both halves, F&B a pair (A:F34); with F = W = B/2
/// and F&B = F + B it is (p/2-1) 2 / 3m. Along a V p/2 becomes p and m twice as many.
double ideal_bubble_ratio(ScheduleKind kind, uint32_t stages, uint32_t microbatches,
                          uint32_t chunks);
/// The same as a share of the total time: r / (1 + r).
double bubble_share(double ratio);

}  // namespace trainyard
