// SPDX-License-Identifier: MIT
#include "workload/generator/flops.h"

namespace trainyard {

int64_t matmul_parameters(const ModelCard& m, int64_t layer) {
  int64_t attention = 0;
  if (m.mla()) {
    const LatentAttention& a = m.latent;
    attention = a.q_rank > 0 ? m.hidden * a.q_rank + a.q_rank * m.query_width()
                             : m.hidden * m.query_width();
    attention += m.hidden * (a.kv_rank + a.rope) + a.kv_rank * m.heads * (a.nope + a.value) +
                 m.value_width() * m.hidden;
  } else {
    attention = m.hidden * (m.heads + 2 * m.kv_heads) * m.head_size + m.value_width() * m.hidden;
  }
  const int64_t matrices = m.gated ? 3 : 2;
  if (!m.moe(layer)) return attention + matrices * m.hidden * m.ffn;
  return attention + m.hidden * m.experts +
         matrices * m.hidden * (m.topk * m.expert_ffn + m.shared_ffn);
}

StepFlops step_flops(const Training& t) {
  const ModelCard& m = t.card;
  const auto tokens = static_cast<double>(t.global_batch) * static_cast<double>(t.sequence);
  double layers = 0;
  for (int64_t l = 0; l < m.layers; ++l) layers += static_cast<double>(matmul_parameters(m, l));
  const double head = static_cast<double>(m.vocab) * static_cast<double>(m.hidden);
  // Forward: 2 s (query width + value width); twice that backward.
  const double attention = 6.0 * static_cast<double>(m.layers) * static_cast<double>(t.sequence) *
                           static_cast<double>(m.query_width() + m.value_width());
  StepFlops out;
  out.model = tokens * (6 * (layers + head) + attention);
  out.causal = tokens * (6 * (layers + head) + attention / 2);
  out.parameters_only = tokens * 6 * (layers + head);
  out.all_parameters = tokens * (6 * static_cast<double>(m.active_parameters()) + attention);
  out.hardware = out.model;
  if (t.recompute == Recompute::full) {
    double again = 0;
    double count = 0;
    for (int64_t l = 0; l < m.layers; ++l) {
      if (!t.recomputes(l)) continue;
      again += static_cast<double>(matmul_parameters(m, l));
      count += 1;
    }
    out.hardware += tokens * (2 * again + attention / 3 * count / static_cast<double>(m.layers));
  }
  if (t.recompute == Recompute::selective) out.hardware += tokens * attention / 3;
  return out;
}

}  // namespace trainyard
