// SPDX-License-Identifier: MIT
#include "workload/generator/model_card.h"

#include <fmt/format.h>

#include "sim/errors.h"

namespace trainyard {

int64_t ModelCard::query_width() const {
  return mla() ? heads * (latent.nope + latent.rope) : heads * head_size;
}
int64_t ModelCard::value_width() const {
  return mla() ? heads * latent.value : heads * head_size;
}

int64_t ModelCard::attention_parameters() const {
  if (mla()) {
    const LatentAttention& a = latent;
    const int64_t query = a.q_rank > 0 ? hidden * a.q_rank + a.q_rank + a.q_rank * query_width()
                                       : hidden * query_width();
    const int64_t key_value =
        hidden * (a.kv_rank + a.rope) + a.kv_rank + a.kv_rank * heads * (a.nope + a.value);
    return query + key_value + value_width() * hidden;
  }
  const int64_t qkv = (heads + 2 * kv_heads) * head_size;
  return hidden * qkv + heads * head_size * hidden + (biases ? qkv + hidden : 0);
}

int64_t ModelCard::mlp_parameters(int64_t width) const {
  const int64_t matrices = gated ? 3 : 2;
  return matrices * hidden * width + (biases ? (matrices - 1) * width + hidden : 0);
}

int64_t ModelCard::experts_of_layer(int64_t layer) const {
  return moe(layer) ? experts * mlp_parameters(expert_ffn) : 0;
}

int64_t ModelCard::dense_of_layer(int64_t layer) const {
  const int64_t norms = 2 * hidden * (biases ? 2 : 1);
  int64_t mlp = moe(layer) ? hidden * experts : mlp_parameters(ffn);
  if (moe(layer) && shared_ffn > 0) mlp += mlp_parameters(shared_ffn);
  return attention_parameters() + norms + mlp;
}

int64_t ModelCard::embedding_parameters() const {
  return (vocab + positions) * hidden;
}

int64_t ModelCard::parameters() const {
  int64_t sum = embedding_parameters() + hidden * (biases ? 2 : 1);
  if (!tied_embeddings) sum += vocab * hidden;
  for (int64_t l = 0; l < layers; ++l) sum += dense_of_layer(l) + experts_of_layer(l);
  return sum;
}

int64_t ModelCard::active_parameters() const {
  int64_t idle = 0;
  for (int64_t l = 0; l < layers; ++l) {
    if (moe(l)) idle += (experts - topk) * mlp_parameters(expert_ffn);
  }
  return parameters() - idle;
}

void ModelCard::check() const {
  const auto fail = [&](const std::string& problem) {
    throw UserError(fmt::format("model {}: {}", name, problem));
  };
  if (layers < 1 || hidden < 1 || heads < 1 || vocab < 1) {
    fail("layers, hidden, heads and vocab must be given");
  }
  if (!mla() && kv_heads > 0 && heads % kv_heads != 0) {
    fail(fmt::format("{} heads do not share {} key-value heads evenly", heads, kv_heads));
  }
  const bool all_moe = experts > 0 && dense_layers == 0;
  if (ffn < 1 && !all_moe) fail("ffn must be given for its dense layers");
  if (experts > 0 && (topk < 1 || topk > experts)) {
    fail(fmt::format("topk {} of {} experts", topk, experts));
  }
  if (experts > 0 && expert_ffn < 1) fail("expert_ffn must be given");
  if (dense_layers > layers) fail(fmt::format("{} dense layers of {}", dense_layers, layers));
}

}  // namespace trainyard
