// SPDX-License-Identifier: MIT
// A training job as a user describes it: model, parallel layout, schedule, batch, precision.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/errors.h"
#include "sim/op_graph.h"
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

/// A data-parallel replica whose tensor-parallel groups compute with fewer ranks than layout.tp:
/// nonuniform tensor parallelism (A: 1.5 #94). The last ranks of each group are idle.
struct UnlikeReplica {
  int64_t replica = 0;       ///< its place along dp
  int64_t stage = -1;        ///< of the pipeline; below 0: in all of them
  int64_t tp = 1;            ///< ranks that compute
  int64_t microbatches = 0;  ///< of a step
  double boost = 1;          ///< speed of its GPUs over that of the others (A:F63)
};

/// Resolved: every number is known and they fit together.
struct Training {
  /// What all tensor-parallel ranks together work on: where heads or columns do not divide, the
  /// model padded so that each rank has as many as the fullest.
  ModelCard model;
  ModelCard card;  ///< the model itself

  // layout; ranks = tp * cp * pp * dp
  int64_t ranks = 0;
  int64_t tp = 1, cp = 1, pp = 1, dp = 1;
  int64_t ep = 1;         ///< lies inside the ranks of tp * cp * dp
  int64_t expert_tp = 1;  ///< tensor parallelism of experts
  int64_t vpp = 1;        ///< chunks of layers per stage
  int zero = 1;
  int64_t shard = 0;  ///< ranks that shard what zero shards, a divisor of cp * dp
  bool sequence_parallel = false;
  bool gather_again = false;  ///< sequence parallel: inputs, of which ranks keep their part only
  bool scatter_gather = false;
  ContextKind context = ContextKind::ring;
  std::vector<std::string> order;     ///< dimensions, the fastest first: tp, cp, ep, dp, pp
  std::vector<UnlikeReplica> unlike;  ///< in order of replica and stage; the others are alike
  /// Ranks of a tensor-parallel group that sum gradients with other replicas: the smallest tp of
  /// all replicas; of_replica() knows that of its stage. Where a group has more, the others hand
  /// them their part of the gradients.
  int64_t sync_tp = 1;
  [[nodiscard]] bool reshards() const { return sync_tp < tp; }
  /// Ranks of a tensor-parallel group that compute.
  [[nodiscard]] int64_t tp_of(int64_t replica, int64_t stage) const;
  [[nodiscard]] int64_t sync_tp_of(int64_t stage) const;
  /// The same job with other tensor parallelism: the model padded so that every rank has as many
  /// heads and columns as the fullest (A:F46).
  [[nodiscard]] Training with_tp(int64_t ranks_of_group) const;
  /// What the ranks of one stage of a replica do: their tp and micro-batches.
  [[nodiscard]] Training of_replica(int64_t replica, int64_t stage = 0) const;
  /// One replica that is like layout.tp says; below 0: there is none.
  [[nodiscard]] int64_t alike_replica() const;
  std::vector<int64_t> layers_of;  ///< virtual stage (chunk * pp + stage) -> layers
  [[nodiscard]] int64_t first_layer(int64_t virtual_stage) const;
  /// Chunks of layers on a rank: vpp, of a bidirectional pipeline two.
  [[nodiscard]] int64_t chunks() const { return schedule == ScheduleKind::dualpipe ? 2 : vpp; }
  /// Parts that the model is cut into, and which of them a chunk of a stage is.
  [[nodiscard]] int64_t virtual_stages() const { return pp * vpp; }
  [[nodiscard]] int64_t virtual_stage(int64_t stage, int64_t chunk) const {
    if (chunk == 1 && turned()) return virtual_stages() - 1 - stage;
    return chunk * pp + stage;
  }
  /// Chunk 1 lies the other way round: activations come from the next stage.
  [[nodiscard]] bool turned() const {
    return schedule == ScheduleKind::dualpipe || schedule == ScheduleKind::dualpipe_v;
  }
  /// Ranks that hold the same parameters: copies of a stage lie on two ranks of a replica.
  [[nodiscard]] int64_t copies() const { return schedule == ScheduleKind::dualpipe ? 2 : 1; }
  [[nodiscard]] int64_t replicas() const { return cp * dp * copies(); }
  [[nodiscard]] int64_t expert_replicas() const { return expert_dp() * copies(); }

  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int64_t global_batch = 0, micro_batch = 1, sequence = 0, microbatches = 0, steps = 1;
  // documents in sequences
  int64_t document = 0;       ///< median length in tokens; 0: a sequence is one document
  double document_sigma = 0;  ///< of its logarithm
  bool balance_sequences = false;
  Recompute recompute = Recompute::none;
  int64_t recompute_milli = 1000;  ///< full: thousandths of the layers, spread evenly
  /// Whether a layer is computed again as a whole in the backward pass.
  [[nodiscard]] bool recomputes(int64_t layer) const {
    return recompute == Recompute::full &&
           (layer + 1) * recompute_milli / 1000 > layer * recompute_milli / 1000;
  }
  bool causal = true;
  bool stored_scores = false;  ///< the square of attention goes through memory and is kept

  // bytes per element
  int64_t activation_bytes = 2, parameter_bytes = 2, gradient_bytes = 4;
  int64_t gemm_bytes = 2;  ///< operands of matrix products (fp8, fp4: 1)
  Kernel::Precision gemm_precision = Kernel::Precision::half;
  Kernel::Precision output_precision = Kernel::Precision::half;  ///< of the output layer's products
  Time step_overhead;            ///< host time per step outside of kernels
  int64_t dispatch_bytes = 2;    ///< of activations sent to experts
  int64_t optimizer_bytes = 12;  ///< per parameter: master copy and two moments

  // data-parallel communication
  int64_t bucket_bytes = 0;
  bool overlap_gradients = true;
  bool gradient_norm = false;  ///< the optimizer waits for the norm over all ranks
  bool average_loss = false;   ///< over the data-parallel ranks, in every micro-batch
  bool overlap_parameters = true;
  int64_t prefetch = 1;  ///< zero 3: units gathered ahead
  int64_t unit = 1;      ///< zero 3: layers that are gathered and reduced together
  double padding = 0;    ///< zero 3: added to what is gathered and reduced, as a share of it
  bool copies_around =
      false;                 ///< zero 3: kernels that copy out of gathered and into reduced buffers
  bool all_reduced = false;  ///< zero 1 and 2: gradients are all-reduced all the same

  // what runs beside what
  int64_t tensor_chunks = 1;     ///< pieces of a tensor-parallel collective and its product
  bool overlap_pipeline = true;  ///< false: a stage waits until what it sent is there
  bool overlap_context = true;   ///< false: a ring's blocks travel between its rounds

  // storage
  int64_t token_bytes = 0;       ///< read per token of the data set; 0: nothing is read
  int64_t data_prefetch = 2;     ///< micro-batches read ahead
  bool first_reads = true;       ///< one tensor-parallel rank reads for the others
  int64_t checkpoint_every = 0;  ///< steps; 0: never
  bool async_checkpoint = false;
  bool first_writes = false;     ///< one data-parallel rank writes for the others
  int64_t checkpoint_bytes = 0;  ///< per parameter
  int64_t copy_bps = 0;          ///< from the GPU to its host; 0: takes no time
  bool load_checkpoint = false;  ///< before the first step

  // experts
  double expert_sigma = 0, source_sigma = 0, capacity = 0;
  bool token_counts = false;    ///< gathered before tokens are sent
  int64_t expert_node = 0;      ///< expert-parallel ranks of a node; ep: no second hop
  int64_t nodes_per_token = 0;  ///< nodes whose experts a token may visit
  [[nodiscard]] bool two_hops() const { return expert_node < ep; }
  /// Nodes that a token is sent to, on average over even choices.
  [[nodiscard]] double nodes_of_token() const;

  bool single_kernels = false;  ///< one op per kernel instead of one between communications

  /// Tokens of a micro-batch on a rank, before tensor parallelism.
  [[nodiscard]] int64_t tokens() const { return micro_batch * sequence / cp; }
  /// Tokens outside the tensor-parallel parts.
  [[nodiscard]] int64_t sequence_tokens() const {
    return sequence_parallel ? (tokens() + tp - 1) / tp : tokens();
  }
  [[nodiscard]] int64_t expert_dp() const { return ranks / (expert_tp * ep * pp); }
  /// Rows of the embedding, padded so that they split (Megatron: to a multiple of 128 tp).
  [[nodiscard]] int64_t padded_vocab() const;

  // Parameters on one rank. Units of a model: 0 the embedding, 1 to L the layers, L + 1 the final
  // norm and output layer (tied: the norm, and where the embedding is on another stage its copy).
  [[nodiscard]] int64_t units() const { return model.layers + 2; }
  [[nodiscard]] int64_t dense_on_rank(int64_t which) const {
    return whole_on_rank(which) + split_on_rank(which);
  }
  /// Of them those that every tensor-parallel rank has, and its part of those that they share.
  [[nodiscard]] int64_t whole_on_rank(int64_t which) const { return dense_parts(which).first; }
  [[nodiscard]] int64_t split_on_rank(int64_t which) const { return dense_parts(which).second; }
  [[nodiscard]] int64_t experts_on_rank(int64_t unit) const;

  /// Heads (or groups of them that share keys) of the fullest over those of the emptiest
  /// tensor-parallel rank; 1: they divide (A:F46).
  [[nodiscard]] double head_imbalance() const {
    const int64_t units = card.mla() ? card.heads : card.kv_heads;
    if (units % tp == 0 || tp % units == 0) return 1;
    return units < tp
               ? static_cast<double>(units)
               : static_cast<double>((units + tp - 1) / tp) / static_cast<double>(units / tp);
  }

  [[nodiscard]] bool stores() const {
    return token_bytes > 0 || checkpoint_every > 0 || load_checkpoint;
  }

 private:
  [[nodiscard]] std::pair<int64_t, int64_t> dense_parts(int64_t unit) const;
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
