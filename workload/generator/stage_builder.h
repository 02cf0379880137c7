// SPDX-License-Identifier: MIT
// The op graph of one pipeline stage.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/op_graph.h"
#include "workload/generator/layer_work.h"
#include "workload/generator/moe_routing.h"
#include "workload/generator/training.h"

namespace trainyard {

/// What a group slot of a stage's graph stands for.
enum class GroupKind : uint8_t {
  tensor,
  context,
  expert,
  expert_tensor,
  data,     ///< all ranks with the same parameters
  shard,    ///< of those the ones that share what zero shards
  replica,  ///< ranks with the same shard
  expert_data,
  embedding,
  expert_rail,  ///< expert-parallel ranks in the same place of all nodes
  expert_node,  ///< of one node
  world,        ///< all ranks of the job
  routing       ///< all ranks that exchange tokens with each other's experts
};
inline constexpr size_t kGroupKinds = 13;
/// A peer slot likewise. The last three: plus i, the i-th rank of a tensor-parallel group, of the
/// rank's own stage or of a neighbour's.
enum class PeerKind : uint16_t {
  previous_stage,
  next_stage,
  previous_context,
  next_context,
  tensor = 1 << 12,
  previous_tensor = 2 << 12,
  next_tensor = 3 << 12
};
inline PeerKind tensor_peer(PeerKind of, int64_t i) {
  return static_cast<PeerKind>(static_cast<int64_t>(of) + i);
}

/// Where a rank is among replicas of unlike tensor parallelism.
struct UnlikePlace {
  /// It takes no part in the sum over replicas: it hands its gradients to those of its group that
  /// do (Training::sync_tp).
  bool hands_on = false;
  int64_t position = 0;  ///< in its tensor-parallel group; asked where neighbours have another tp
  int64_t previous_tp = 0, next_tp = 0;  ///< of the neighbouring stages; 0: its own
  bool split = false;                    ///< sequence parallel, even where tp is 1
};

struct StageProgram {
  std::shared_ptr<const OpGraph> graph;
  std::vector<GroupKind> groups;  ///< slot -> kind
  std::vector<PeerKind> peers;    ///< slot -> kind
};

class StageBuilder {
 public:
  /// `training`: of the replica.
  StageBuilder(const Training& training, const LayerWork& work, const MoeRouting* routing,
               int64_t stage, const UnlikePlace& unlike = {});
  StageProgram build();

 private:
  using Kernels = std::vector<Kernel>;

  // Where in the step we are.
  struct Bucket {
    std::vector<int64_t> units;
    int64_t dense = 0, experts = 0;  // parameters
    int64_t split = 0;               // of the dense ones those that tensor-parallel ranks share
    int64_t sync = 0;                // dense, where sync_tp ranks share them
    bool last = false;               // of the last micro-batch
  };
  struct Place {
    char phase = 'F';  ///< F forward, B backward, R recomputed forward, W weight gradients
    int64_t step = 0, microbatch = 0, unit = 0;
    bool more = false;  ///< backward: more layers of the sharded unit follow
  };
  [[nodiscard]] std::string label(const char* what) const;

  // Ops. Kernels collect until a communication or a dependency closes the op.
  void compute(const Kernels& kernels, const char* what);
  void flush();
  uint32_t add(Op op, const std::string& name);
  uint32_t stream(const std::string& name, StreamOrder order, Dimension dimension);
  uint32_t slot(GroupKind kind);
  uint32_t slot(PeerKind kind);
  /// @returns the op; it starts when all work so far is done, nothing waits for it yet
  uint32_t collective(CollectiveKind kind, GroupKind group, int64_t bytes, const char* what);
  uint32_t message(bool send, PeerKind peer, int64_t bytes, uint64_t tag, const char* what);
  /// What comes next waits for `op`.
  void need(uint32_t op) { pending_.push_back(op); }

  void run(const ScheduleSlot& slot);
  void run_beside(const ScheduleSlot& a, const ScheduleSlot& b);
  // Where activations of a chunk come from and go to.
  [[nodiscard]] PeerKind before(int64_t chunk) const {
    return t_.turned() && chunk == 1 ? PeerKind::next_stage : PeerKind::previous_stage;
  }
  [[nodiscard]] PeerKind after(int64_t chunk) const {
    return t_.turned() && chunk == 1 ? PeerKind::previous_stage : PeerKind::next_stage;
  }
  /// At the tip of the V the next part is on the same rank.
  [[nodiscard]] bool turns_here(int64_t virtual_stage) const {
    return t_.schedule == ScheduleKind::dualpipe_v && virtual_stage == t_.pp;
  }
  /// Of the message that virtual stage `to` receives.
  [[nodiscard]] uint64_t tag(int64_t chunk, int64_t to, bool gradient) const {
    const uint64_t way = t_.copies() == 2 && chunk == 1 ? uint64_t{1} << 24 : 0;
    return way + 2 * static_cast<uint64_t>(to) + (gradient ? 1 : 0);
  }

  // Blocks
  void gather_sequence(const char* what);
  /// The input of which this rank kept its part, for the gradient of weights. needed() ends the ops
  /// that run beside it.
  void gather_again(const char* what);
  void needed();
  /// A gather and the product that needs it, in pieces that overlap.
  void gather_into(const Kernel& product, const char* gather, const char* what);
  /// A product and the reduction of its result likewise; `weights` beside the last piece.
  void reduce_from(const Kernel& product, const Kernels& weights, bool weight, const char* what,
                   const char* reduction);
  void reduce_sequence(const char* what);
  void forward_layer(int64_t layer);
  void backward_layer(int64_t layer, bool input, bool weight);
  void forward_attention();
  void backward_attention(bool input, bool weight);
  void forward_mlp(const Part& part, const char* what);
  void backward_mlp(const Part& part, bool input, bool weight, const char* what);
  /// The gradient of a block's input is reduced while the first matrix's weights get theirs.
  void reduce_beside(const Kernels& weights, bool weight, const char* what);
  void attention(const Kernels& kernels, const char* what);
  void forward_core();
  void backward_core();
  void ring(const Kernels& round, int64_t bytes);
  void forward_experts(int64_t layer);
  void backward_experts(int64_t layer, bool input, bool weight);
  void all_to_all(int64_t layer, bool combine, const char* what);
  void expert_kernels(const Kernels& kernels, int64_t layer, const char* what);
  void embed();
  void forward(int64_t chunk);
  void backward(int64_t chunk, bool input, bool weight);

  // Data parallelism
  void enter(int64_t unit, bool uses_parameters);
  void leave(int64_t unit, bool reduces);
  void plan_gathers();
  void gather_units(const std::vector<int64_t>& units);
  [[nodiscard]] std::vector<std::vector<int64_t>> sharded_units(int64_t chunk) const;
  [[nodiscard]] int64_t padded(int64_t bytes) const;
  [[nodiscard]] int64_t tensors_of(int64_t unit) const;
  void close_bucket();
  void reduce(const Bucket& bucket);
  void finish_step();
  /// Gradients, from ranks that hand them on to those that sum: @returns what the sum waits for.
  std::vector<uint32_t> reshard(const Bucket& bucket);
  /// Gradients or parameters the other way once `after` is done: @returns what arrives.
  std::vector<uint32_t> reshard_back(const Bucket& bucket, int64_t element, uint32_t after,
                                     const char* what);

  // Storage
  uint32_t storage(StorageAction action, int64_t bytes, const char* what);
  void load_checkpoint();
  void read_data();
  void write_checkpoint();
  /// Parameters of the stage on one rank, dense and of experts.
  [[nodiscard]] std::pair<int64_t, int64_t> parameters() const { return parameters(t_); }
  [[nodiscard]] std::pair<int64_t, int64_t> parameters(const Training& t) const;
  /// Those whose sum over replicas the rank has a part in, and so their optimizer's state.
  [[nodiscard]] std::pair<int64_t, int64_t> summed() const {
    return hands_on_ ? std::pair<int64_t, int64_t>{0, 0} : parameters(sync_);
  }

  [[nodiscard]] int64_t bytes_between_stages() const;
  /// Ranks of a neighbouring stage that this one exchanges activations with, and their bytes.
  [[nodiscard]] std::vector<std::pair<PeerKind, int64_t>> parts(PeerKind side, bool send) const;
  void receive(PeerKind from, uint64_t tag);
  void send(PeerKind to, uint64_t tag);
  [[nodiscard]] uint32_t exchange(int64_t layer, bool combine) const;
  [[nodiscard]] bool shards_all() const { return t_.shard >= t_.cp * t_.dp; }
  [[nodiscard]] std::vector<int64_t> units_of(int64_t chunk) const;
  [[nodiscard]] int64_t key_value_bytes() const;

  const Training& t_;
  const Training sync_;  // t_ in the layout in which replicas sum
  const UnlikePlace unlike_;
  const bool hands_on_;
  const LayerWork& w_;
  const MoeRouting* routing_;
  int64_t stage_;

  std::shared_ptr<OpGraph> graph_;
  StageProgram program_;
  std::map<std::string, uint32_t> streams_;
  std::map<std::vector<std::array<int64_t, 18>>, uint32_t> kernel_runs_;
  uint32_t compute_stream_ = 0;
  Kernels open_;
  std::string open_name_;
  uint32_t open_exchange_ = 0;
  static constexpr uint32_t kNone = 0xffffffffU;
  uint32_t last_compute_ = kNone;
  std::vector<uint32_t> pending_;
  uint32_t again_ = kNone;  // the gather under way that needed() will wait for
  bool beside_ = false;     // in the second of two slots at once
  Place place_;

  // gradients waiting for their bucket
  Bucket bucket_;
  std::vector<Bucket> buckets_;                     // of this step, as they filled
  std::vector<uint32_t> reductions_;                // what the optimizer waits for
  std::map<int64_t, std::vector<uint32_t>> ready_;  // unit -> gathers of its parameters
  std::vector<int64_t> backwards_;                  // per chunk: micro-batches done
  std::vector<ScheduleSlot> schedule_;
  // zero 3: units in the order in which the step uses their parameters
  std::vector<std::vector<int64_t>> uses_;
  size_t next_use_ = 0, next_gather_ = 0, came_along_ = 0;
  std::vector<std::vector<uint32_t>> gathered_;  // per use
  std::vector<uint32_t> reads_;                  // of the data set, per use
  size_t next_read_ = 0;
  std::vector<uint32_t> writes_;  // of the checkpoint before
};

}  // namespace trainyard
