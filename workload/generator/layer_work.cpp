// SPDX-License-Identifier: MIT
#include "workload/generator/layer_work.h"

#include <algorithm>

namespace trainyard {

void LayerWork::gemm(Part& part, int64_t m, int64_t n, int64_t k, int64_t copies,
                     std::optional<Kernel::Precision> precision) const {
  const int64_t g = precision == Kernel::Precision::half ? t_.activation_bytes : t_.gemm_bytes;
  const int64_t a = t_.activation_bytes;
  const int64_t flops = 2 * m * n * k;
  const int64_t weights = copies * k * n;  // of all matrices; m is the sum over them
  const auto product = [&](int64_t bytes, int64_t rows, int64_t columns, int64_t inner) {
    Kernel kernel{Kernel::Kind::gemm, flops, bytes, rows, columns, inner};
    kernel.precision = precision.value_or(t_.gemm_precision);
    kernel.groups = copies;
    return kernel;
  };
  part.forward.push_back(product(g * (m * k + weights) + a * m * n, m, n, k));
  part.input.push_back(product(g * (m * n + weights) + a * m * k, m, k, n));
  part.weight.push_back(product(g * (m * k + m * n) + 2 * t_.gradient_bytes * weights, k, n, m));
  part.weight.back().group_inner = copies > 1;
}

void LayerWork::elementwise(Part& part, int64_t forward, int64_t backward) {
  if (forward > 0) part.forward.push_back({Kernel::Kind::elementwise, 0, forward, 0, 0, 0});
  if (backward > 0) part.input.push_back({Kernel::Kind::elementwise, 0, backward, 0, 0, 0});
}

void LayerWork::mlp_of(Part& part, int64_t tokens, int64_t width, int64_t copies) const {
  const int64_t h = t_.model.hidden;
  const int64_t in = (t_.model.gated ? 2 : 1) * width;
  gemm(part, tokens, in, h, copies);
  // Activation: reads its input, writes its output; backward reads the gradient, too.
  elementwise(part, t_.activation_bytes * tokens * (in + width),
              t_.activation_bytes * tokens * (2 * in + width));
  gemm(part, tokens, h, width, copies);
}

Part LayerWork::core_of(int64_t rounds) const {
  const ModelCard& m = t_.model;
  const int64_t queries = t_.tokens();
  const int64_t keys = t_.sequence / rounds;
  const int64_t qk = m.query_width() / t_.tp;
  const int64_t v = m.value_width() / t_.tp;
  int64_t flops = 2 * queries * keys * (qk + v);
  if (t_.causal) flops /= 2;
  const int64_t kv_share =
      m.mla() ? qk + v : std::max<int64_t>(1, m.kv_heads / t_.tp) * 2 * m.head_size;
  int64_t bytes = t_.activation_bytes * (queries * (qk + v) + t_.micro_batch * keys * kv_share);
  // Scores are written and read by product, softmax and dropout.
  const int64_t square =
      t_.stored_scores ? 8 * t_.activation_bytes / 2 * (m.heads / t_.tp) * queries * keys : 0;
  bytes += square;
  // One exponential per score, and again in the backward pass, which keeps only sums (A:F42).
  int64_t scores = queries * keys * (m.heads / t_.tp);
  if (t_.causal) scores /= 2;
  Part part;
  Kernel kernel{Kernel::Kind::attention, flops, bytes, queries, keys, qk, scores};
  kernel.queries = queries / t_.micro_batch;
  kernel.head = m.mla() ? m.latent.nope + m.latent.rope : m.head_size;
  if (t_.stored_scores) {
    kernel.scores = queries * keys * (m.heads / t_.tp);
    kernel.square_flops = 2 * queries * keys * (qk + v);
  }
  part.forward.push_back(kernel);
  kernel.flops = flops / 2 * 5;
  kernel.bytes = 5 * bytes / 2;
  kernel.backward = true;
  // Without recomputing them: two products for each of the forward pass.
  kernel.scores *= 2;
  kernel.square_flops *= 2;
  part.input.push_back(kernel);
  return part;
}

LayerWork::LayerWork(const Training& t) : t_(t) {
  const ModelCard& m = t.model;
  const int64_t h = m.hidden;
  const int64_t a = t.activation_bytes;
  const int64_t n = t.tokens();
  const int64_t ns = t.sequence_tokens();

  elementwise(norm, 2 * a * ns * h, 4 * a * ns * h);
  elementwise(residual, 3 * a * ns * h, 2 * a * ns * h);

  if (m.mla()) {
    const LatentAttention& l = m.latent;
    if (l.q_rank > 0) {
      gemm(qkv, n, l.q_rank, h);
      gemm(qkv, n, m.query_width() / t.tp, l.q_rank);
    } else {
      gemm(qkv, n, m.query_width() / t.tp, h);
    }
    gemm(qkv, n, l.kv_rank + l.rope, h);
    gemm(qkv, n, m.heads * (l.nope + l.value) / t.tp, l.kv_rank);
  } else {
    const int64_t kv = std::max<int64_t>(1, m.kv_heads / t.tp) * 2;
    gemm(qkv, n, (m.heads / t.tp + kv) * m.head_size, h);
  }
  core = core_of(1);
  core_ring = core_of(t.cp);
  gemm(proj, n, h, m.value_width() / t.tp);

  if (m.ffn > 0) mlp_of(mlp, n, m.ffn / t.tp, 1);
  if (m.experts > 0) {
    if (m.shared_ffn > 0) mlp_of(shared_mlp, n, m.shared_ffn / t.tp, 1);
    gemm(router, ns, m.experts, h);
    elementwise(router, 2 * a * ns * m.topk * h, 2 * a * ns * m.topk * h);
    mlp_of(experts, ns * m.topk * t.expert_tp, m.expert_ffn / t.expert_tp, m.experts / t.ep);
    elementwise(combine, a * ns * (m.topk + 1) * h, 2 * a * ns * (m.topk + 1) * h);
  }

  elementwise(embedding, 2 * a * n * h, 0);
  embedding.weight.push_back(
      {Kernel::Kind::elementwise, 0, n * h * (a + 2 * t.gradient_bytes), 0, 0, 0});
  const int64_t v = t.padded_vocab() / t.tp;
  gemm(head, n, v, h, 1, t.output_precision);
  // Loss: logits are read in the working precision and kept in fp32.
  elementwise(head, n * v * (a + 8), n * v * (4 + a));
}

}  // namespace trainyard
