// SPDX-License-Identifier: MIT
// A published training run: a row of a table of models, layouts, software and step times, read as
// far as the generator can express it. What the row leaves open is assumed, and said so.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace trainyard {

struct PublishedRun {
  std::string id;
  std::string family;                ///< of ids: a table of a paper, a release of a project
  std::string source;                ///< paper or project, all its tables and releases together
  std::string why_not;               ///< why it cannot be expressed; empty: it can
  std::vector<std::string> assumed;  ///< what the row does not say, or the generator leaves out
  std::string release;               ///< rows that compare within a source share this
  std::string device;                ///< card of configs/devices
  std::string gpu;                   ///< as in tables of errors: "H100", "A100-40"
  bool from_flops = false;           ///< the step time is computed from a rate of FLOPs
  double step_s = 0;
  double memory_gib = 0;           ///< printed; 0: not
  bool memory_of_tensors = false;  ///< of tensors alone, as the allocator counts

  // model
  int64_t layers = 0, hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head = 0, value = 0, vocab = 0;
  bool gated = false, latent = false;
  std::array<int64_t, 5> latent_sizes{};  ///< ranks of q and kv, nope, rope, value
  int64_t experts = 0, topk = 0, expert_ffn = 0, shared_ffn = 0, dense_layers = 0;

  // layout
  int64_t gpus = 0, tp = 1, cp = 1, pp = 1, dp = 1, ep = 1, expert_tp = 1, chunks = 1;
  int64_t zero = 0, shard = 0;  ///< shard 0: over all
  int64_t sequence = 0, global_batch = 0, micro_batch = 1, microbatches = 1;
  std::string schedule;   ///< of the generator
  std::string precision;  ///< likewise
  std::string recompute;
  double recompute_share = 1;  ///< of the layers, with recompute full
  std::string context;
  bool scores = false;  ///< attention is not fused
  bool sequence_parallel = false, tensor_overlap = false, gradient_overlap = false;
  bool whole_activations = false;  ///< every tensor-parallel rank sends all of an activation
  std::string software;            ///< file of configs/software
  std::string framework;
  // hardware
  double scale_up_gbytes = 0, nic_gbits = 0;

  /// FLOPs of a step, of all attention or of its causal half.
  [[nodiscard]] double step_flops(bool causal) const;
  /// Parameters on the fullest rank, without experts.
  [[nodiscard]] double dense_parameters() const;
};

/// All rows of runs.csv. Throws UserError for a file that is no such table.
std::vector<PublishedRun> read_published_runs(const std::string& path);

/// A scenario with `dp` replicas (a number that the experts fit) and `microbatches` of the run.
/// @param scale_up, nic  share of the nominal rates that is reached
std::string scenario_of(const PublishedRun& run, int64_t dp, int64_t microbatches,
                        const std::string& engine, double scale_up, double nic);

/// The fewest replicas that a step of the run can be simulated with: two where it has two.
int64_t fewest_replicas(const PublishedRun& run);

/// The engine that its traffic needs: messages that share a port, or none that do.
std::string engine_for(const PublishedRun& run);

/// A pair of runs that differ in one thing.
struct PublishedPair {
  std::string lever;
  size_t a = 0, b = 0;
};
std::vector<PublishedPair> published_pairs(const std::vector<const PublishedRun*>& runs);

/// Whether the constants of the cards were fitted with runs of this source.
bool fitted_source(const std::string& source);

}  // namespace trainyard
