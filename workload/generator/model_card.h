// SPDX-License-Identifier: MIT
// A transformer as its shapes: what the generator, the memory formulas and the FLOP counts need.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard {

/// Multi-head latent attention (DeepSeek-V2/V3): queries, keys and values pass through
/// low-rank projections. `kv_rank` 0: not used.
struct LatentAttention {
  int64_t q_rank = 0, kv_rank = 0;
  int64_t nope = 0, rope = 0;  ///< size of a head's query and key without and with position
  int64_t value = 0;           ///< size of a head's value
};

struct ModelCard {
  std::string name;
  int64_t layers = 0, hidden = 0;
  int64_t ffn = 0;  ///< width of a dense MLP
  int64_t heads = 0, kv_heads = 0, head_size = 0;
  int64_t vocab = 0;
  int64_t positions = 0;         ///< learned position embeddings; 0: rotary or none
  bool gated = false;            ///< SwiGLU: three matrices in an MLP instead of two
  bool biases = false;           ///< of linear layers and LayerNorm (GPT); false: RMSNorm, none
  bool tied_embeddings = false;  ///< the output layer is the input embedding

  int64_t experts = 0, topk = 0;  ///< 0: dense
  int64_t expert_ffn = 0;         ///< width of an expert
  int64_t shared_ffn = 0;         ///< width of the experts that every token visits, together
  int64_t dense_layers = 0;       ///< leading layers of an MoE model that are dense
  LatentAttention latent;
  std::string source;

  [[nodiscard]] bool moe(int64_t layer) const { return experts > 0 && layer >= dense_layers; }
  [[nodiscard]] bool mla() const { return latent.kv_rank > 0; }
  /// Width of all heads' queries and of all heads' attention output.
  [[nodiscard]] int64_t query_width() const;
  [[nodiscard]] int64_t value_width() const;

  // Parameters. `experts_of_layer`: routed experts only; `dense_of_layer`: everything else of it.
  [[nodiscard]] int64_t attention_parameters() const;
  [[nodiscard]] int64_t mlp_parameters(int64_t width) const;
  [[nodiscard]] int64_t experts_of_layer(int64_t layer) const;
  [[nodiscard]] int64_t dense_of_layer(int64_t layer) const;
  [[nodiscard]] int64_t embedding_parameters() const;  ///< input side, positions included
  [[nodiscard]] int64_t parameters() const;            ///< all of the model
  [[nodiscard]] int64_t active_parameters() const;     ///< those that one token visits

  /// Throws UserError (no position) naming what does not fit together.
  void check() const;
};

}  // namespace trainyard
