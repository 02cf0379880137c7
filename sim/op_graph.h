// SPDX-License-Identifier: MIT
// What each rank does: the one representation for generated workloads and imported traces.
//
// Ranks that do the same share one immutable OpGraph (a rank class). What differs between them,
// the members of their groups and the peers they talk to, lives in a small binding: an op names a
// *slot*, the binding says what is in it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/exchange.h"
#include "sim/storage.h"
#include "sim/units.h"

namespace trainyard {

enum class OpKind : uint8_t { compute, collective, send, recv, memory, metadata, storage };

/// Chakra's numbering (schema 0.0.4), which all importers map to.
enum class CollectiveKind : uint8_t {
  all_reduce = 0,
  reduce = 1,
  all_gather = 2,
  gather = 3,
  scatter = 4,
  broadcast = 5,
  all_to_all = 6,
  reduce_scatter = 7,
  reduce_scatter_block = 8,
  barrier = 9
};

/// "all-reduce", "all-gather", ...
const char* collective_name(CollectiveKind kind);

/// How the ops of one stream of one rank take turns.
enum class StreamOrder : uint8_t {
  fifo,   ///< strictly in issue order, one at a time (a CUDA stream)
  ready,  ///< one at a time, the ready op with the lowest issue index first (no stream known)
  free    ///< any number at a time, each as soon as its dependencies allow
};

/// What a communication stream serves: times are split by it in reports.
enum class Dimension : uint8_t { none, tensor, context, expert, pipeline, data };
inline constexpr size_t kDimensions = 6;
/// "none", "tensor", ...
const char* dimension_name(Dimension dimension);

struct Stream {
  std::string name;  ///< "compute", "host", "stream 7"
  StreamOrder order = StreamOrder::fifo;
  Dimension dimension = Dimension::none;
};

/// A kernel of a compute op that stands for several: its time is the sum of theirs.
struct Kernel {
  enum class Kind : uint8_t { gemm, attention, elementwise };
  /// Of operands. half: bf16 or fp16; fp8_blocks: fp8 with a scale per block of 32 (mxfp8).
  enum class Precision : uint8_t { half, fp8, tf32, fp8_blocks, fp4 };
  Kind kind = Kind::gemm;
  int64_t flops = 0;            ///< elementwise: outside the tensor cores
  int64_t bytes = 0;            ///< of device memory, read and written
  int64_t m = 0, n = 0, k = 0;  ///< shape of a GEMM; of attention: queries, keys, heads x size
  int64_t special = 0;          ///< results of special functions: the exponentials of a softmax
  Precision precision = Precision::half;
  bool backward = false;  ///< attention, whose backward kernel has the same shape
  // What the fitted model tells kernels apart by (docs/compute.md); a roofline does not.
  int64_t groups = 1;  ///< matrices of a grouped product, which share out m, or k with group_inner
  bool group_inner = false;
  bool optimizer = false;    ///< elementwise, over parameters
  int64_t pieces = 1;        ///< of a product cut along its rows; this is one of them
  int64_t whole_bytes = 0;   ///< with pieces: of the product uncut
  int64_t queries = 0;       ///< attention: of one sequence on this rank
  int64_t head = 0;          ///< attention: size of a head
  int64_t scores = 0;        ///< attention that is not fused: elements of its whole square
  int64_t square_flops = 0;  ///< likewise: FLOPs of its products, masked or not
  bool operator==(const Kernel&) const = default;
};

/// One operation. Fields beyond `kind` and `stream` are used by the kinds named beside them.
struct Op {
  uint64_t source_id = 0;  ///< id in the trace, for messages to the user
  uint32_t name = 0;       ///< index into OpGraph::strings
  uint32_t stream = 0;     ///< index into OpGraph::streams
  OpKind kind = OpKind::metadata;
  StorageAction action = StorageAction::read;  // storage
  /// storage: only the first member of the group does it, it costs the others nothing.
  bool first_member = false;
  /// storage: the step does not end with it and no rank is held up by it, but by what depends on
  /// it.
  bool background = false;
  CollectiveKind collective = CollectiveKind::all_reduce;  // collective
  uint32_t group_slot = 0;  // collective, exchange, first_member: index into RankBinding::groups
  uint32_t peer_slot = 0;   // send, recv: index into RankBinding::peers
  uint64_t tag = 0;         // send, recv: matched in order of issue per (src, dst, tag)
  Time duration;            // compute, memory: as traced; zero when unknown. metadata, storage
                            // snapshot: a delay
  int64_t flops = 0;        // compute; with kernels: their sum
  uint32_t first_kernel = 0, kernels = 0;  // compute: range of OpGraph::kernels; may be empty
  /// all-to-all: shares are those of this exchange of Job::exchanges. compute: the time is scaled
  /// by what this rank received in it. 0: equal shares, no scaling.
  uint32_t exchange = 0;
  /// compute, memory: bytes touched. collective: Chakra's convention, the bytes that one rank
  /// contributes (all-reduce, reduce-scatter: whole input buffer; all-gather: own shard;
  /// all-to-all: whole send buffer, own share included). send, recv: message size. storage: what
  /// the rank moves.
  int64_t bytes = 0;
};

/// Immutable after finish(). Op index = issue order within the rank.
class OpGraph {
 public:
  std::vector<std::string> strings;
  std::vector<Stream> streams;
  std::vector<Op> ops;
  std::vector<Kernel> kernels;

  /// Index of `text` in `strings`, added when new.
  uint32_t intern(const std::string& text);
  /// op `after` starts only when op `before` has finished. Duplicates are harmless.
  void add_dependency(uint32_t before, uint32_t after);
  /// Freezes edges into compact arrays. Throws UserError naming the ops of a cycle.
  void finish();

  [[nodiscard]] uint32_t dependency_count(uint32_t op) const { return n_deps_[op]; }
  /// Ops that wait for `op`: [successors_begin, successors_end).
  [[nodiscard]] const uint32_t* successors_begin(uint32_t op) const {
    return successors_.data() + first_[op];
  }
  [[nodiscard]] const uint32_t* successors_end(uint32_t op) const {
    return successors_.data() + first_[op + 1];
  }
  [[nodiscard]] size_t edge_count() const { return successors_.size(); }
  [[nodiscard]] const std::string& name_of(uint32_t op) const { return strings[ops[op].name]; }
  /// Content hash, equal for graphs that are equal in everything that runs.
  [[nodiscard]] uint64_t hash() const;
  /// Equal in everything that runs, and in names and source ids, which reports and messages show.
  [[nodiscard]] bool equals(const OpGraph& other) const;

 private:
  std::vector<std::pair<uint32_t, uint32_t>> edges_;        // before finish()
  std::unordered_map<std::string, uint32_t> string_index_;  // before finish()
  std::vector<uint32_t> n_deps_, first_, successors_;
};

/// A communicator: members in ring order, as listed by the user.
struct Group {
  std::string name;
  std::vector<uint32_t> members;  ///< ranks
};

/// What is in the slots of one rank.
struct RankBinding {
  std::vector<uint32_t> groups;  ///< slot -> index into Job::groups
  std::vector<uint32_t> peers;   ///< slot -> rank
  /// slot -> position of this rank among the group's members; empty: it is looked up.
  std::vector<uint32_t> positions = {};
};

struct RankProgram {
  std::shared_ptr<const OpGraph> graph;
  RankBinding binding;
};

/// One of several jobs on a fabric: ranks that begin together and share no communicator with
/// others.
struct JobPart {
  std::string name;
  uint32_t first_rank = 0, ranks = 0;
  Time start;
  uint8_t traffic_class = 0;  ///< Transfer::traffic_class of all it sends
  bool eager_sends = true;    ///< see TimelineOptions
};

/// Everything that one training job does: a program per rank and the communicators.
struct Job {
  std::string name;
  std::vector<RankProgram> ranks;
  std::vector<Group> groups;
  std::shared_ptr<const Exchanges> exchanges;  ///< null where no op names one
  /// The jobs that this holds, by rising rank, every rank in one; empty: a single one from time 0.
  std::vector<JobPart> parts = {};
  /// Replaces graphs of equal content by one shared graph; returns the number of rank classes.
  size_t fold();
};

}  // namespace trainyard
