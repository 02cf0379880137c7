// SPDX-License-Identifier: MIT
#include "workload/generator/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace trainyard {
namespace {

int64_t up(int64_t whole, int64_t parts) {
  return (whole + parts - 1) / parts;
}

std::vector<int64_t> units_of(const Training& t, int64_t virtual_stage) {
  std::vector<int64_t> units;
  if (virtual_stage == 0) units.push_back(0);
  const int64_t first = t.first_layer(virtual_stage);
  const int64_t n = t.layers_of[static_cast<size_t>(virtual_stage)];
  for (int64_t l = first; l < first + n; ++l) units.push_back(l + 1);
  if (virtual_stage == t.virtual_stages() - 1) units.push_back(t.model.layers + 1);
  return units;
}

std::string gigabytes(int64_t bytes) {
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) * 1e-9);
}

}  // namespace

int64_t layer_activations_whole(const Training& t, int64_t layer) {
  const ModelCard& m = t.model;
  const int64_t a = t.activation_bytes;
  const int64_t n = t.tokens();
  const int64_t ns = t.sequence_tokens();
  const int64_t h = m.hidden;
  // A:F30: inputs of two norms, of the projections and of the MLP, and masks of dropout.
  int64_t bytes = 4 * a * ns * h + (m.biases ? 2 * ns * h : 0);
  // Queries, keys, values, output.
  if (m.mla()) {
    const LatentAttention& l = m.latent;
    bytes += a * n * (l.q_rank + l.kv_rank + l.rope);
    bytes += a * n * (m.query_width() + m.heads * (l.nope + l.value) + m.value_width()) / t.tp;
  } else {
    const int64_t kv = std::max(m.kv_heads, t.tp) * 2 * m.head_size;
    bytes += a * n * (2 * m.query_width() + kv) / t.tp;
  }
  // Softmax input, output and its mask (the 5as/h of A:F21); flash attention keeps none of them.
  if (t.stored_scores) bytes += (2 * a + 1) * m.heads * n / t.tp * t.sequence;
  const int64_t wide = m.gated ? 3 : 2;  // before and after the activation
  if (!m.moe(layer)) return bytes + wide * a * n * m.ffn / t.tp;
  const int64_t copies = ns * m.topk * t.expert_tp;
  bytes += a * copies * h + wide * a * copies * m.expert_ffn / t.expert_tp;
  bytes += a * ns * m.topk * h + 4 * ns * m.experts;  // what comes back, and the router's scores
  return bytes + wide * a * n * m.shared_ffn / t.tp;
}

int64_t layer_activations(const Training& t, int64_t layer) {
  switch (t.recompute) {
    case Recompute::none:
      return layer_activations_whole(t, layer);
    case Recompute::selective: {  // A:F24
      Training without = t;
      without.stored_scores = false;
      return layer_activations_whole(without, layer);
    }
    case Recompute::full:
      if (!t.recomputes(layer)) return layer_activations_whole(t, layer);
      return t.activation_bytes * t.sequence_tokens() * t.model.hidden;
  }
  return 0;
}

int64_t stage_activations(const Training& t, int64_t stage) {
  std::vector<int64_t> chunk(static_cast<size_t>(t.chunks()));
  for (int64_t c = 0; c < t.chunks(); ++c) {
    for (const int64_t unit : units_of(t, t.virtual_stage(stage, c))) {
      if (unit == 0 || unit == t.model.layers + 1) continue;
      chunk[static_cast<size_t>(c)] += layer_activations(t, unit - 1);
    }
  }
  int64_t now = 0;
  int64_t peak = 0;
  for (const ScheduleSlot& s :
       make_schedule(t.schedule, static_cast<uint32_t>(stage), static_cast<uint32_t>(t.pp),
                     static_cast<uint32_t>(t.microbatches), static_cast<uint32_t>(t.vpp))) {
    if (s.work == ScheduleSlot::Work::forward) {
      now += chunk[s.chunk];
      peak = std::max(peak, now);
    } else if (s.work != ScheduleSlot::Work::input) {
      now -= chunk[s.chunk];
    }
  }
  return peak;
}

StageMemory stage_memory(const Training& t, int64_t stage) {
  const Training summed = t.with_tp(t.sync_tp);
  int64_t dense = 0;
  int64_t sync = 0;  // in the layout in which unlike replicas sum gradients
  int64_t experts = 0;
  int64_t largest = 0;
  int64_t working = 0;
  bool last = false;
  for (int64_t c = 0; c < t.chunks(); ++c) {
    for (const int64_t unit : units_of(t, t.virtual_stage(stage, c))) {
      dense += t.dense_on_rank(unit);
      sync += summed.dense_on_rank(unit);
      experts += t.experts_on_rank(unit);
      largest = std::max(largest, t.dense_on_rank(unit) + t.experts_on_rank(unit));
      if (unit == t.model.layers + 1) last = true;
      if (unit > 0 && unit <= t.model.layers) {
        working = std::max(working, layer_activations_whole(t, unit - 1));
      }
    }
  }
  const auto divided = [&](int64_t bytes, int stage_of_zero) {
    if (t.zero < stage_of_zero) return (dense + experts) * bytes;
    return up(dense * bytes, t.shard) + up(experts * bytes, t.expert_replicas());
  };
  StageMemory out;
  out.parameters = divided(t.parameter_bytes, 3);
  out.gradients = divided(t.gradient_bytes, 2);
  out.optimizer = divided(t.optimizer_bytes, 1);
  if (t.reshards()) {
    // Of a rank that sums: it has the gradients of a larger shard, and with zero 1 its state.
    out.gradients = sync * t.gradient_bytes;
    if (t.zero > 0) out.optimizer = up(sync * t.optimizer_bytes, t.shard);
  }
  out.activations = stage_activations(t, stage);
  if (t.recompute == Recompute::full) out.working = working;
  if (last) out.logits = t.tokens() * t.padded_vocab() / t.tp * (2 * t.activation_bytes + 4);
  if (t.zero == 3) {
    out.gathered = largest * t.unit * ((1 + t.prefetch) * t.parameter_bytes + t.gradient_bytes);
  }
  return out;
}

int64_t communicators(const Training& t) {
  const bool hybrid = t.zero > 0 && t.shard < t.replicas();
  int64_t n = (t.tp > 1) + (t.cp > 1) + (t.pp > 1) + (t.replicas() > 1);
  if (hybrid && t.shard > 1) ++n;
  if (t.model.experts > 0) {
    n += (t.ep > 1) + (t.expert_tp > 1) + (t.expert_replicas() > 1);
    if (t.two_hops()) ++n;  // a rail and a node in place of one group
  }
  if (t.pp > 1 && t.model.tied_embeddings && !t.turned()) ++n;
  return n;
}

int64_t device_memory(int64_t tensor_bytes) {
  return tensor_bytes / 85 * 100 + 2'000'000'000;
}

std::pair<Training, int64_t> fullest_replica(const Training& t) {
  if (t.unlike.empty()) return {t, fullest_stage(t)};
  std::vector<int64_t> replicas;
  if (t.alike_replica() >= 0) replicas.push_back(t.alike_replica());
  for (const UnlikeReplica& u : t.unlike) replicas.push_back(u.replica);
  std::pair<Training, int64_t> fullest{t, 0};
  int64_t most = -1;
  for (int64_t stage = 0; stage < t.pp; ++stage) {
    std::set<std::pair<int64_t, int64_t>> seen;
    for (const int64_t r : replicas) {
      Training replica = t.of_replica(r, stage);
      if (!seen.emplace(replica.tp, replica.microbatches).second) continue;
      if (const int64_t bytes = stage_memory(replica, stage).total(); bytes > most) {
        most = bytes;
        fullest = {std::move(replica), stage};
      }
    }
  }
  return fullest;
}

int64_t fullest_stage(const Training& t) {
  int64_t fullest = 0;
  int64_t most = -1;
  for (int64_t s = 0; s < t.pp; ++s) {
    const int64_t total = stage_memory(t, s).total();
    if (total > most) {
      most = total;
      fullest = s;
    }
  }
  return fullest;
}

std::string memory_arithmetic(const Training& t, int64_t stage) {
  const StageMemory m = stage_memory(t, stage);
  std::string text = t.unlike.empty() ? "" : fmt::format("a replica of tp {}: ", t.tp);
  text += "parameters " + gigabytes(m.parameters) + " + gradients " + gigabytes(m.gradients) +
          " + optimizer " + gigabytes(m.optimizer) + " + activations " + gigabytes(m.activations);
  if (m.working > 0) text += " + recomputed layer " + gigabytes(m.working);
  if (m.logits > 0) text += " + logits " + gigabytes(m.logits);
  if (m.gathered > 0) text += " + gathered " + gigabytes(m.gathered);
  return text + " = " + gigabytes(m.total());
}

}  // namespace trainyard
