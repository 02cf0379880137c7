// SPDX-License-Identifier: MIT
// A training job as a user describes it: model, parallel layout, schedule, batch, precision.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/errors.h"
#include "sim/params.h"
#include "workload/generator/model_card.h"
#include "workload/generator/schedule.h"

namespace trainyard {

enum class Recompute : uint8_t {
  none,
  selective,  ///< the core of attention again in the backward pass (A:F24, A:F26)
  full        ///< whole layers again, their communication too (A:F37)
};

enum class ContextKind : uint8_t {
  ring,        ///< keys and values travel round the ranks beside the attention
  all_gather,  ///< every rank gathers all keys and values first
  all_to_all   ///< heads are split instead of the sequence (DeepSpeed-Ulysses)
};

/// Resolved: every number is known and they fit together.
struct Training {
  ModelCard model;

  // layout; ranks = tp * cp * pp * dp
  int64_t ranks = 0;
  int64_t tp = 1, cp = 1, pp = 1, dp = 1;
  int64_t ep = 1;         ///< lies inside the ranks of tp * cp * dp
  int64_t expert_tp = 1;  ///< tensor parallelism of experts
  int64_t vpp = 1;        ///< chunks of layers per stage
  int zero = 1;
  int64_t shard = 0;  ///< ranks that shard what zero shards, a divisor of cp * dp
  bool sequence_parallel = false;
  bool scatter_gather = false;
  ContextKind context = ContextKind::ring;
  std::vector<std::string> order;  ///< dimensions, the fastest first: tp, cp, ep, dp, pp
  std::vector<int64_t> layers_of;  ///< virtual stage (chunk * pp + stage) -> layers
  [[nodiscard]] int64_t first_layer(int64_t virtual_stage) const;

  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int64_t global_batch = 0, micro_batch = 1, sequence = 0, microbatches = 0, steps = 1;
  Recompute recompute = Recompute::none;
  bool causal = true;

  // bytes per element
  int64_t activation_bytes = 2, parameter_bytes = 2, gradient_bytes = 4;
  int64_t gemm_bytes = 2;        ///< operands of matrix products (fp8: 1)
  int64_t dispatch_bytes = 2;    ///< of activations sent to experts
  int64_t optimizer_bytes = 12;  ///< per parameter: master copy and two moments

  // data-parallel communication
  int64_t bucket_bytes = 0;
  bool overlap_gradients = true;
  bool overlap_parameters = true;
  int64_t prefetch = 1;  ///< zero 3: units gathered ahead

  // experts
  double expert_sigma = 0, source_sigma = 0, capacity = 0;

  bool single_kernels = false;  ///< one op per kernel instead of one between communications

  /// Tokens of a micro-batch on a rank, before tensor parallelism.
  [[nodiscard]] int64_t tokens() const { return micro_batch * sequence / cp; }
  /// Tokens outside the tensor-parallel parts.
  [[nodiscard]] int64_t sequence_tokens() const {
    return sequence_parallel ? tokens() / tp : tokens();
  }
  [[nodiscard]] int64_t expert_dp() const { return ranks / (expert_tp * ep * pp); }
  /// Rows of the embedding, padded so that they split (Megatron: to a multiple of 128 tp).
  [[nodiscard]] int64_t padded_vocab() const;

  // Parameters on one rank. Units of a model: 0 the embedding, 1 to L the layers, L + 1 the final
  // norm and output layer (tied: the norm, and where the embedding is on another stage its copy).
  [[nodiscard]] int64_t units() const { return model.layers + 2; }
  [[nodiscard]] int64_t dense_on_rank(int64_t unit) const;
  [[nodiscard]] int64_t experts_on_rank(int64_t unit) const;
};

/// Keys of the `workload` block of a scenario that has a `model`.
const std::vector<ParamSpec>& training_params();

/// Checks that model, layout, batch and number of GPUs fit together.
/// @param gpus   of the cluster; 0: not given, then layout.dp must be
/// @param pos    of the workload, for errors that belong to no key
/// Throws UserError showing the arithmetic.
Training resolve_training(const ModelCard& model, const Params& params, int64_t gpus,
                          const SourcePos& pos);

}  // namespace trainyard
