// SPDX-License-Identifier: MIT
// Memory of a GPU by the published formulas, and what does not fit.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "workload/generator/training.h"

namespace trainyard {

/// Bytes on each rank of a pipeline stage. Parameters are those of A:F16 by precision, divided as
/// A:F17 says. Activations of a layer are those of A:F21 to A:F24, counted tensor by tensor so
/// that they also hold for grouped queries, gated MLPs and experts; kept for as many micro-batches
/// as the schedule has in flight.
struct StageMemory {
  int64_t parameters = 0, gradients = 0, optimizer = 0;
  int64_t activations = 0;  ///< kept from forward to backward
  int64_t working = 0;      ///< full recompute: the layer that is being computed again
  int64_t logits = 0;       ///< last stage: output layer's result and its gradient
  int64_t gathered = 0;     ///< zero 3: whole parameters and gradients of units at work
  [[nodiscard]] int64_t total() const {
    return parameters + gradients + optimizer + activations + working + logits + gathered;
  }
};

/// Kept by one micro-batch of one layer, with the recompute of `t`.
int64_t layer_activations(const Training& t, int64_t layer);
/// The same without recompute.
int64_t layer_activations_whole(const Training& t, int64_t layer);
/// Kept by a stage: the schedule's peak over its layers, without embedding and output layer.
int64_t stage_activations(const Training& t, int64_t stage);
StageMemory stage_memory(const Training& t, int64_t stage);
/// What a tool of the driver shows for so many bytes of tensors: a caching allocator leaves 15 % of
/// what it reserves in pieces too small to use (the mean of eight LLMs in arXiv:2401.08156; up to
/// 33 %), and 2 GB are context, libraries and communication buffers.
int64_t device_memory(int64_t tensor_bytes);
/// Communicators that a rank is in: one for each dimension with more than one rank, those that zero
/// and experts add, and the one that pipeline stages exchange over.
int64_t communicators(const Training& t);
/// What needs most: of `t` itself, or of its replicas of unlike tensor parallelism, and the stage.
std::pair<Training, int64_t> fullest_replica(const Training& t);
/// Of the stage that needs most.
int64_t fullest_stage(const Training& t);

/// "parameters 3.1GB + gradients ... = 61.2GB"
std::string memory_arithmetic(const Training& t, int64_t stage);

}  // namespace trainyard
