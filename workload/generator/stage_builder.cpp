// SPDX-License-Identifier: MIT
#include "workload/generator/stage_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "sim/errors.h"
#include "workload/generator/sequence_lengths.h"

namespace trainyard {
namespace {

using Work = ScheduleSlot::Work;

constexpr uint64_t kContextTag = uint64_t{1} << 30;
constexpr uint64_t kReshardTag = uint64_t{1} << 29;

int64_t share(int64_t whole, int64_t parts) {
  return (whole + parts - 1) / parts;  // padded to equal shares
}

}  // namespace

StageBuilder::StageBuilder(const Training& training, const LayerWork& work,
                           const MoeRouting* routing, int64_t stage, const UnlikePlace& unlike)
    : t_(training),
      sync_(training.with_tp(training.sync_tp)),
      unlike_(unlike),
      hands_on_(unlike.hands_on),
      w_(work),
      routing_(routing),
      stage_(stage),
      graph_(std::make_shared<OpGraph>()),
      backwards_(static_cast<size_t>(training.chunks())),
      schedule_(make_schedule(
          training.schedule, static_cast<uint32_t>(stage), static_cast<uint32_t>(training.pp),
          static_cast<uint32_t>(training.microbatches), static_cast<uint32_t>(training.vpp))) {}

StageProgram StageBuilder::build() {
  // Of two slots that run beside each other the one that can goes on.
  compute_stream_ =
      stream("compute", t_.turned() ? StreamOrder::ready : StreamOrder::fifo, Dimension::none);
  for (place_.step = 0; place_.step < t_.steps; ++place_.step) {
    if (place_.step == 0 && t_.load_checkpoint) load_checkpoint();
    plan_gathers();
    std::fill(backwards_.begin(), backwards_.end(), 0);
    for (size_t i = 0; i < schedule_.size(); ++i) {
      if (i + 1 < schedule_.size() && schedule_[i + 1].beside) {
        run_beside(schedule_[i], schedule_[i + 1]);
        ++i;
      } else {
        run(schedule_[i]);
      }
    }
    finish_step();
  }
  flush();
  graph_->finish();
  program_.graph = graph_;
  return std::move(program_);
}

void StageBuilder::run(const ScheduleSlot& s) {
  place_.microbatch = s.microbatch;
  switch (s.work) {
    case Work::forward:
      forward(s.chunk);
      break;
    case Work::backward:
      backward(s.chunk, true, true);
      break;
    case Work::input:
      backward(s.chunk, true, false);
      break;
    case Work::weight:
      backward(s.chunk, false, true);
      break;
  }
}

/// Both begin where the slot before ended; the next begins when both have ended.
void StageBuilder::run_beside(const ScheduleSlot& a, const ScheduleSlot& b) {
  flush();
  const uint32_t start = last_compute_;
  const std::vector<uint32_t> before = pending_;
  run(a);
  flush();
  std::vector<uint32_t> ends = pending_;
  if (last_compute_ != kNone) ends.push_back(last_compute_);
  last_compute_ = start;
  pending_ = before;
  beside_ = true;
  run(b);
  flush();
  beside_ = false;
  pending_.insert(pending_.end(), ends.begin(), ends.end());
}

// ---- ops

std::string StageBuilder::label(const char* what) const {
  std::string unit = "L" + std::to_string(place_.unit - 1);
  if (place_.unit == 0) unit = "embedding";
  if (place_.unit == t_.model.layers + 1) unit = "head";
  return fmt::format("{}{} {} {}", place_.phase, place_.microbatch, unit, what);
}

uint32_t StageBuilder::stream(const std::string& name, StreamOrder order, Dimension dimension) {
  const auto [it, added] = streams_.emplace(name, static_cast<uint32_t>(graph_->streams.size()));
  if (added) graph_->streams.push_back({name, order, dimension});
  return it->second;
}

uint32_t StageBuilder::slot(GroupKind kind) {
  auto& slots = program_.groups;
  const auto it = std::find(slots.begin(), slots.end(), kind);
  const auto index = static_cast<uint32_t>(it - slots.begin());
  if (it == slots.end()) slots.push_back(kind);
  return index;
}

uint32_t StageBuilder::slot(PeerKind kind) {
  auto& slots = program_.peers;
  const auto it = std::find(slots.begin(), slots.end(), kind);
  const auto index = static_cast<uint32_t>(it - slots.begin());
  if (it == slots.end()) slots.push_back(kind);
  return index;
}

uint32_t StageBuilder::add(Op op, const std::string& name) {
  const auto index = static_cast<uint32_t>(graph_->ops.size());
  op.source_id = index;
  op.name = graph_->intern(name);
  graph_->ops.push_back(op);
  return index;
}

void StageBuilder::compute(const Kernels& kernels, const char* what) {
  if (kernels.empty()) return;
  if (t_.single_kernels) flush();
  if (open_.empty()) open_name_ = label(what);
  open_.insert(open_.end(), kernels.begin(), kernels.end());
}

void StageBuilder::flush() {
  if (open_.empty()) return;
  const auto close = [&](const Kernel* first, size_t count) {
    Op op;
    op.kind = OpKind::compute;
    op.stream = compute_stream_;
    op.exchange = open_exchange_;
    if (open_exchange_ != 0) {
      op.group_slot =
          slot(open_exchange_ < JobExchanges::kSequences ? GroupKind::expert : GroupKind::data);
    }
    std::vector<std::array<int64_t, 18>> key;
    for (size_t i = 0; i < count; ++i) {
      const Kernel& k = first[i];
      op.flops += k.flops;
      op.bytes += k.bytes;
      key.push_back({static_cast<int64_t>(k.kind), k.flops, k.bytes, k.m, k.n, k.k, k.special,
                     static_cast<int64_t>(k.precision), k.backward ? 1 : 0, k.groups,
                     k.group_inner ? 1 : 0, k.optimizer ? 1 : 0, k.pieces, k.whole_bytes, k.queries,
                     k.head, k.scores, k.square_flops});
    }
    const auto [it, added] =
        kernel_runs_.emplace(std::move(key), static_cast<uint32_t>(graph_->kernels.size()));
    if (added) graph_->kernels.insert(graph_->kernels.end(), first, first + count);
    op.first_kernel = it->second;
    op.kernels = static_cast<uint32_t>(count);
    const uint32_t previous = last_compute_;
    last_compute_ = add(op, open_name_);
    if (t_.turned() && previous != kNone) graph_->add_dependency(previous, last_compute_);
    for (const uint32_t before : pending_) graph_->add_dependency(before, last_compute_);
    pending_.clear();
  };
  if (t_.single_kernels) {
    for (const Kernel& k : open_) close(&k, 1);
  } else {
    close(open_.data(), open_.size());
  }
  open_.clear();
}

uint32_t StageBuilder::collective(CollectiveKind kind, GroupKind group, int64_t bytes,
                                  const char* what) {
  flush();
  Op op;
  op.kind = OpKind::collective;
  op.collective = kind;
  op.bytes = bytes;
  op.group_slot = slot(group);
  switch (group) {
    case GroupKind::tensor:
    case GroupKind::expert_tensor:
      op.stream = stream(beside_ ? "tp beside" : "tp", StreamOrder::fifo, Dimension::tensor);
      break;
    case GroupKind::context:
      op.stream = stream("cp", StreamOrder::free, Dimension::context);
      break;
    case GroupKind::expert:
    case GroupKind::expert_rail:
    case GroupKind::expert_node:
    case GroupKind::routing:
      op.stream = stream(beside_ ? "ep beside" : "ep", StreamOrder::fifo, Dimension::expert);
      break;
    case GroupKind::embedding:
      op.stream = stream("embedding", StreamOrder::fifo, Dimension::pipeline);
      break;
    default:
      op.stream = stream("dp", StreamOrder::fifo, Dimension::data);
      break;
  }
  const uint32_t index = add(op, label(what));
  if (last_compute_ != kNone) graph_->add_dependency(last_compute_, index);
  for (const uint32_t before : pending_) graph_->add_dependency(before, index);
  return index;
}

uint32_t StageBuilder::message(bool send, PeerKind peer, int64_t bytes, uint64_t tag,
                               const char* what) {
  flush();
  Op op;
  op.kind = send ? OpKind::send : OpKind::recv;
  op.bytes = bytes;
  op.tag = tag;
  op.peer_slot = slot(peer);
  const bool pipeline = peer == PeerKind::next_stage || peer == PeerKind::previous_stage ||
                        peer >= PeerKind::previous_tensor;
  op.stream = pipeline                   ? stream("pp", StreamOrder::free, Dimension::pipeline)
              : peer >= PeerKind::tensor ? stream("reshard", StreamOrder::free, Dimension::data)
                                         : stream("cp", StreamOrder::free, Dimension::context);
  const uint32_t index = add(op, label(what));
  if (last_compute_ != kNone) graph_->add_dependency(last_compute_, index);
  for (const uint32_t before : pending_) graph_->add_dependency(before, index);
  return index;
}

// ---- tensor and sequence parallelism (A:F37, A:F38)

/// Activations split over the sequence become whole.
void StageBuilder::gather_sequence(const char* what) {
  if (!t_.sequence_parallel) return;
  const int64_t bytes = t_.sequence_tokens() * t_.model.hidden * t_.activation_bytes;
  need(collective(CollectiveKind::all_gather, GroupKind::tensor, bytes, what));
}

void StageBuilder::gather_again(const char* what) {
  if (!t_.gather_again) return;
  again_ = collective(CollectiveKind::all_gather, GroupKind::tensor,
                      t_.sequence_tokens() * t_.model.hidden * t_.activation_bytes, what);
}

void StageBuilder::needed() {
  if (again_ == kNone) return;
  flush();
  need(again_);
  again_ = kNone;
}

namespace {

/// The i-th of n pieces of a matrix product, cut along its rows; each reads all weights.
Kernel piece(const Kernel& whole, int64_t i, int64_t n, int64_t weight_bytes) {
  const auto part = [&](int64_t x) { return x * (i + 1) / n - x * i / n; };
  Kernel k = whole;
  k.m = part(whole.m);
  k.flops = part(whole.flops);
  k.bytes = weight_bytes + part(whole.bytes - weight_bytes);
  k.pieces = n;
  k.whole_bytes = whole.bytes;
  return k;
}

}  // namespace

void StageBuilder::gather_into(const Kernel& product, const char* gather, const char* what) {
  const int64_t n = t_.sequence_parallel ? t_.tensor_chunks : 1;
  if (n == 1) {
    gather_sequence(gather);
    compute({product}, what);
    return;
  }
  const int64_t bytes = t_.sequence_tokens() * t_.model.hidden * t_.activation_bytes;
  std::vector<uint32_t> parts;
  for (int64_t i = 0; i < n; ++i) {
    parts.push_back(collective(CollectiveKind::all_gather, GroupKind::tensor,
                               bytes * (i + 1) / n - bytes * i / n, gather));
  }
  for (int64_t i = 0; i < n; ++i) {
    need(parts[static_cast<size_t>(i)]);
    compute({piece(product, i, n, t_.gemm_bytes * product.n * product.k)}, what);
    flush();
  }
}

void StageBuilder::reduce_from(const Kernel& product, const Kernels& weights, bool weight,
                               const char* what, const char* reduction) {
  const int64_t n = t_.tp > 1 ? t_.tensor_chunks : 1;
  if (n == 1) {
    compute({product}, what);
    reduce_beside(weights, weight, reduction);
    return;
  }
  const int64_t bytes = t_.tokens() * t_.model.hidden * t_.activation_bytes;
  std::vector<uint32_t> parts;
  for (int64_t i = 0; i < n; ++i) {
    compute({piece(product, i, n, t_.gemm_bytes * product.n * product.k)}, what);
    parts.push_back(collective(
        t_.sequence_parallel ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
        GroupKind::tensor, bytes * (i + 1) / n - bytes * i / n, reduction));
  }
  needed();
  if (weight) compute(weights, what);
  flush();
  for (const uint32_t op : parts) need(op);
}

/// Partial sums become activations.
void StageBuilder::reduce_sequence(const char* what) {
  reduce_beside({}, false, what);
}

void StageBuilder::reduce_beside(const Kernels& weights, bool weight, const char* what) {
  if (t_.tp == 1) {
    if (weight) compute(weights, what);
    return;
  }
  needed();
  const int64_t bytes = t_.tokens() * t_.model.hidden * t_.activation_bytes;
  const uint32_t op =
      collective(t_.sequence_parallel ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
                 GroupKind::tensor, bytes, what);
  if (weight) compute(weights, what);
  flush();
  need(op);
}

// ---- attention

int64_t StageBuilder::key_value_bytes() const {
  const ModelCard& m = t_.model;
  // Latent attention passes its compressed keys and values.
  const int64_t width = m.mla() ? m.latent.kv_rank + m.latent.rope
                                : std::max<int64_t>(1, m.kv_heads / t_.tp) * 2 * m.head_size;
  return t_.tokens() * width * t_.activation_bytes;
}

/// Blocks of keys and values travel round while the one at hand is used.
void StageBuilder::ring(const Kernels& round, int64_t bytes) {
  for (int64_t i = 0; i < t_.cp; ++i) {
    if (!t_.overlap_context && i + 1 < t_.cp) {
      attention(round, "attention");
      message(true, PeerKind::next_context, bytes, kContextTag, "kv send");
      need(message(false, PeerKind::previous_context, bytes, kContextTag, "kv recv"));
    } else if (i + 1 < t_.cp) {
      message(true, PeerKind::next_context, bytes, kContextTag, "kv send");
      const uint32_t coming =
          message(false, PeerKind::previous_context, bytes, kContextTag, "kv recv");
      attention(round, "attention");
      flush();
      need(coming);
    } else {
      attention(round, "attention");
    }
  }
}

/// Attention is an op of its own where its time depends on the documents of the micro-batch.
void StageBuilder::attention(const Kernels& kernels, const char* what) {
  if (t_.document == 0) {
    compute(kernels, what);
    return;
  }
  flush();
  open_exchange_ = JobExchanges::kSequences +
                   static_cast<uint32_t>(place_.step * t_.microbatches + place_.microbatch);
  compute(kernels, what);
  flush();
  open_exchange_ = 0;
}

void StageBuilder::forward_core() {
  if (t_.cp == 1) {
    attention(w_.core.forward, "attention");
    return;
  }
  switch (t_.context) {
    case ContextKind::ring:
      ring(w_.core_ring.forward, key_value_bytes());
      return;
    case ContextKind::all_gather:
      need(collective(CollectiveKind::all_gather, GroupKind::context, key_value_bytes(),
                      "kv all-gather"));
      attention(w_.core.forward, "attention");
      return;
    case ContextKind::all_to_all: {
      const int64_t query = t_.tokens() * t_.model.query_width() / t_.tp * t_.activation_bytes;
      need(collective(CollectiveKind::all_to_all, GroupKind::context, query + key_value_bytes(),
                      "heads all-to-all"));
      attention(w_.core.forward, "attention");
      need(
          collective(CollectiveKind::all_to_all, GroupKind::context, query, "sequence all-to-all"));
      return;
    }
  }
}

void StageBuilder::backward_core() {
  const bool again = t_.recompute == Recompute::selective;
  if (t_.cp == 1) {
    if (again) attention(w_.core.forward, "attention again");
    attention(w_.core.input, "attention");
    return;
  }
  switch (t_.context) {
    case ContextKind::ring:
      if (again) ring(w_.core_ring.forward, key_value_bytes());
      // Keys and values, and the gradients that they collect.
      ring(w_.core_ring.input, 2 * key_value_bytes());
      return;
    case ContextKind::all_gather:
      need(collective(CollectiveKind::all_gather, GroupKind::context, key_value_bytes(),
                      "kv all-gather"));
      if (again) attention(w_.core.forward, "attention again");
      attention(w_.core.input, "attention");
      need(collective(CollectiveKind::reduce_scatter, GroupKind::context, key_value_bytes() * t_.cp,
                      "kv reduce-scatter"));
      return;
    case ContextKind::all_to_all: {
      const int64_t query = t_.tokens() * t_.model.query_width() / t_.tp * t_.activation_bytes;
      need(collective(CollectiveKind::all_to_all, GroupKind::context, query, "heads all-to-all"));
      if (again) attention(w_.core.forward, "attention again");
      attention(w_.core.input, "attention");
      need(collective(CollectiveKind::all_to_all, GroupKind::context, query + key_value_bytes(),
                      "sequence all-to-all"));
      return;
    }
  }
}

void StageBuilder::forward_attention() {
  compute(w_.norm.forward, "norm");
  gather_into(w_.qkv.forward.front(), "attention all-gather", "attention");
  compute(Kernels(w_.qkv.forward.begin() + 1, w_.qkv.forward.end()), "attention");
  forward_core();
  reduce_from(w_.proj.forward.front(), {}, false, "attention", "attention reduce");
  compute(w_.residual.forward, "residual");
}

void StageBuilder::backward_attention(bool input, bool weight) {
  if (!input) {
    gather_again("attention all-gather again");
    compute(w_.proj.weight, "attention");
    needed();
    compute(w_.qkv.weight, "attention");
    return;
  }
  compute(w_.residual.input, "residual");
  gather_into(w_.proj.input.front(), "attention all-gather", "attention");
  if (weight) compute(w_.proj.weight, "attention");
  backward_core();
  if (weight) gather_again("attention all-gather again");
  compute(Kernels(w_.qkv.input.begin(), w_.qkv.input.end() - 1), "attention");
  reduce_from(w_.qkv.input.back(), w_.qkv.weight, weight, "attention", "attention reduce");
  compute(w_.norm.input, "norm");
}

// ---- MLP and experts

void StageBuilder::forward_mlp(const Part& part, const char* what) {
  gather_into(part.forward.front(), "mlp all-gather", what);
  compute(Kernels(part.forward.begin() + 1, part.forward.end() - 1), what);
  reduce_from(part.forward.back(), {}, false, what, "mlp reduce");
}

void StageBuilder::backward_mlp(const Part& part, bool input, bool weight, const char* what) {
  if (!input) {
    if (!t_.gather_again) {
      compute(part.weight, what);
      return;
    }
    gather_again("mlp all-gather again");
    compute(Kernels(part.weight.begin() + 1, part.weight.end()), what);
    needed();
    compute({part.weight.front()}, what);
    return;
  }
  // Last matrix first; the weights of the first one beside the reduction.
  gather_into(part.input.back(), "mlp all-gather", what);
  compute(Kernels(part.input.rbegin() + 1, part.input.rend() - 1), what);
  if (weight) gather_again("mlp all-gather again");
  if (t_.tensor_chunks == 1) {
    compute({part.input.front()}, what);
    if (weight) compute(Kernels(part.weight.begin() + 1, part.weight.end()), what);
    reduce_beside({part.weight.front()}, weight, "mlp reduce");
    return;
  }
  if (weight) compute(Kernels(part.weight.begin() + 1, part.weight.end()), what);
  reduce_from(part.input.front(), {part.weight.front()}, weight, what, "mlp reduce");
}

uint32_t StageBuilder::exchange(int64_t layer, bool combine) const {
  const bool even = t_.expert_sigma == 0 && t_.source_sigma == 0;
  if (routing_ == nullptr || even || t_.ep == 1) return 0;
  return routing_->exchange(static_cast<uint32_t>(place_.step),
                            static_cast<uint32_t>(place_.microbatch), static_cast<uint32_t>(layer),
                            combine);
}

void StageBuilder::all_to_all(int64_t layer, bool combine, const char* what) {
  if (t_.ep == 1) return;
  const int64_t token = t_.model.hidden * (combine ? t_.activation_bytes : t_.dispatch_bytes);
  const int64_t bytes = t_.sequence_tokens() * t_.model.topk * token;
  if (t_.two_hops()) {
    const auto once =
        static_cast<int64_t>(t_.nodes_of_token() * static_cast<double>(t_.sequence_tokens()));
    const auto hop = [&](bool rail) {
      need(collective(CollectiveKind::all_to_all,
                      rail ? GroupKind::expert_rail : GroupKind::expert_node,
                      rail ? once * token : bytes, what));
    };
    hop(!combine);
    hop(combine);
    return;
  }
  const uint32_t op = collective(CollectiveKind::all_to_all, GroupKind::expert, bytes, what);
  graph_->ops[op].exchange = exchange(layer, combine);
  need(op);
}

void StageBuilder::expert_kernels(const Kernels& kernels, int64_t layer, const char* what) {
  const uint32_t number = exchange(layer, false);
  if (number == 0) {
    compute(kernels, what);
    return;
  }
  flush();
  open_exchange_ = number;
  compute(kernels, what);
  flush();
  open_exchange_ = 0;
}

void StageBuilder::forward_experts(int64_t layer) {
  if (t_.model.shared_ffn > 0) forward_mlp(w_.shared_mlp, "shared experts");
  compute(w_.router.forward, "router");
  if (t_.token_counts && t_.ep * t_.expert_tp > 1) {
    need(collective(CollectiveKind::all_gather, GroupKind::routing, 8 * t_.model.experts,
                    "token counts"));
  }
  const int64_t bytes =
      t_.sequence_tokens() * t_.model.topk * t_.model.hidden * t_.activation_bytes;
  all_to_all(layer, false, "dispatch");
  if (t_.expert_tp > 1) {
    need(collective(CollectiveKind::all_gather, GroupKind::expert_tensor, bytes,
                    "experts all-gather"));
  }
  expert_kernels(w_.experts.forward, layer, "experts");
  if (t_.expert_tp > 1) {
    need(collective(CollectiveKind::reduce_scatter, GroupKind::expert_tensor, bytes * t_.expert_tp,
                    "experts reduce-scatter"));
  }
  all_to_all(layer, true, "combine");
  compute(w_.combine.forward, "combine");
}

void StageBuilder::backward_experts(int64_t layer, bool input, bool weight) {
  if (!input) {
    expert_kernels(w_.experts.weight, layer, "experts");
    compute(w_.router.weight, "router");
    if (t_.model.shared_ffn > 0) backward_mlp(w_.shared_mlp, false, true, "shared experts");
    return;
  }
  const int64_t bytes =
      t_.sequence_tokens() * t_.model.topk * t_.model.hidden * t_.activation_bytes;
  compute(w_.combine.input, "combine");
  all_to_all(layer, false, "dispatch");
  if (t_.expert_tp > 1) {
    need(collective(CollectiveKind::all_gather, GroupKind::expert_tensor, bytes,
                    "experts all-gather"));
  }
  Kernels kernels(w_.experts.input.rbegin(), w_.experts.input.rend());
  if (weight) kernels.insert(kernels.end(), w_.experts.weight.begin(), w_.experts.weight.end());
  expert_kernels(kernels, layer, "experts");
  if (t_.expert_tp > 1) {
    need(collective(CollectiveKind::reduce_scatter, GroupKind::expert_tensor, bytes * t_.expert_tp,
                    "experts reduce-scatter"));
  }
  all_to_all(layer, true, "combine");
  compute(w_.router.input, "router");
  if (weight) compute(w_.router.weight, "router");
  if (t_.model.shared_ffn > 0) backward_mlp(w_.shared_mlp, true, weight, "shared experts");
}

// ---- layers and stages

void StageBuilder::forward_layer(int64_t layer) {
  forward_attention();
  compute(w_.norm.forward, "norm");
  if (t_.model.moe(layer)) {
    forward_experts(layer);
  } else {
    forward_mlp(w_.mlp, "mlp");
  }
  compute(w_.residual.forward, "residual");
}

void StageBuilder::backward_layer(int64_t layer, bool input, bool weight) {
  if (input) compute(w_.residual.input, "residual");
  if (t_.model.moe(layer)) {
    backward_experts(layer, input, weight);
  } else {
    backward_mlp(w_.mlp, input, weight, "mlp");
  }
  if (input) compute(w_.norm.input, "norm");
  backward_attention(input, weight);
}

std::vector<int64_t> StageBuilder::units_of(int64_t chunk) const {
  const int64_t vs = t_.virtual_stage(stage_, chunk);
  std::vector<int64_t> units;
  if (vs == 0) units.push_back(0);
  const int64_t first = t_.first_layer(vs);
  for (int64_t l = first; l < first + t_.layers_of[static_cast<size_t>(vs)]; ++l) {
    units.push_back(l + 1);
  }
  if (vs == t_.virtual_stages() - 1) units.push_back(t_.model.layers + 1);
  return units;
}

/// A:F39. With sequence parallelism each rank has its part; without, all have all of it.
int64_t StageBuilder::bytes_between_stages() const {
  const int64_t whole = t_.sequence_tokens() * t_.model.hidden * t_.activation_bytes;
  return t_.scatter_gather ? share(whole, t_.tp) : whole;
}

std::vector<std::pair<PeerKind, int64_t>> StageBuilder::parts(PeerKind side, bool send) const {
  const bool previous = side == PeerKind::previous_stage;
  const int64_t other = previous ? unlike_.previous_tp : unlike_.next_tp;
  if (other == 0 || other == t_.tp) return {{side, bytes_between_stages()}};
  const PeerKind of = previous ? PeerKind::previous_tensor : PeerKind::next_tensor;
  const int64_t at = unlike_.position;
  std::vector<std::pair<PeerKind, int64_t>> out;
  if (!unlike_.split) {
    // All have all of it: a rank gets it from the one in its place, those beyond from the first.
    const int64_t bytes = t_.tokens() * t_.model.hidden * t_.activation_bytes;
    for (int64_t i = 0; i < other; ++i) {
      if (send ? i % t_.tp == at : at % other == i) out.emplace_back(tensor_peer(of, i), bytes);
    }
    return out;
  }
  // Each has its part of the tokens: what overlaps travels.
  const auto begin = [&](int64_t i, int64_t n) {
    return std::min(t_.tokens(), i * share(t_.tokens(), n));
  };
  for (int64_t i = 0; i < other; ++i) {
    const int64_t from = std::max(begin(at, t_.tp), begin(i, other));
    const int64_t to = std::min(begin(at + 1, t_.tp), begin(i + 1, other));
    if (to <= from) continue;
    out.emplace_back(tensor_peer(of, i), (to - from) * t_.model.hidden * t_.activation_bytes);
  }
  return out;
}

void StageBuilder::receive(PeerKind from, uint64_t tag) {
  std::vector<uint32_t> ops;
  for (const auto& [peer, bytes] : parts(from, false)) {
    ops.push_back(message(false, peer, bytes, tag, "recv"));
  }
  for (const uint32_t op : ops) need(op);
}

void StageBuilder::send(PeerKind to, uint64_t tag) {
  std::vector<uint32_t> ops;
  for (const auto& [peer, bytes] : parts(to, true)) {
    ops.push_back(message(true, peer, bytes, tag, "send"));
  }
  if (t_.overlap_pipeline) return;
  for (const uint32_t op : ops) need(op);
}

void StageBuilder::forward(int64_t chunk) {
  const int64_t vs = t_.virtual_stage(stage_, chunk);
  place_.phase = 'F';
  const auto units = units_of(chunk);
  if (vs > 0 && !turns_here(vs)) {
    flush();
    place_.unit = units.empty() ? 1 : units.front();
    receive(before(chunk), tag(chunk, vs, false));
    if (t_.scatter_gather && t_.tp > 1) {
      need(collective(CollectiveKind::all_gather, GroupKind::tensor, bytes_between_stages(),
                      "stage all-gather"));
    }
  }
  if (vs == 0 || vs + 1 == t_.virtual_stages()) read_data();
  for (const int64_t unit : units) {
    enter(unit, true);
    if (unit == 0) {
      compute(w_.embedding.forward, "embedding");
      reduce_sequence("embedding reduce");
    } else if (unit == t_.model.layers + 1) {
      compute(w_.norm.forward, "norm");
      gather_sequence("head all-gather");
      compute(w_.head.forward, "head");
      if (t_.tp > 1) {
        // Maximum, sum of exponentials and the label's logit of every token, in fp32.
        need(collective(CollectiveKind::all_reduce, GroupKind::tensor, 12 * t_.tokens(),
                        "loss all-reduce"));
      }
      if (t_.average_loss && t_.replicas() > 1) {
        need(collective(CollectiveKind::all_reduce, GroupKind::data, 8, "mean loss"));
      }
    } else {
      forward_layer(unit - 1);
    }
  }
  if (vs + 1 < t_.virtual_stages() && !turns_here(vs + 1)) {
    send(after(chunk), tag(chunk, vs + 1, false));
  }
}

void StageBuilder::backward(int64_t chunk, bool input, bool weight) {
  const int64_t vs = t_.virtual_stage(stage_, chunk);
  const int64_t last = t_.virtual_stages() - 1;
  place_.phase = input ? 'B' : 'W';
  auto units = units_of(chunk);
  std::reverse(units.begin(), units.end());
  const auto together = t_.zero == 3 ? sharded_units(chunk) : std::vector<std::vector<int64_t>>{};
  if (weight) ++backwards_[static_cast<size_t>(chunk)];
  const bool final =
      weight && backwards_[static_cast<size_t>(chunk)] == t_.microbatches / t_.copies();
  if (input && vs < last && !turns_here(vs + 1)) {
    flush();
    place_.unit = units.empty() ? 1 : units.front();
    receive(after(chunk), tag(chunk, vs, true));
    if (t_.scatter_gather && t_.tp > 1) {
      need(collective(CollectiveKind::all_gather, GroupKind::tensor, bytes_between_stages(),
                      "stage all-gather"));
    }
  }
  for (const int64_t unit : units) {
    enter(unit, input && unit != 0);
    if (unit == 0) {
      if (input) gather_sequence("embedding all-gather");
      if (weight) compute(w_.embedding.weight, "embedding");
    } else if (unit == t_.model.layers + 1) {
      if (weight) gather_again("head all-gather again");
      if (input) {
        compute(Kernels(w_.head.input.rbegin(), w_.head.input.rend()), "head");
        reduce_beside(w_.head.weight, weight, "head reduce");
        compute(w_.norm.input, "norm");
      } else {
        needed();
        compute(w_.head.weight, "head");
      }
    } else {
      if (input && t_.recomputes(unit - 1)) {
        place_.phase = 'R';
        forward_layer(unit - 1);
        place_.phase = 'B';
      }
      backward_layer(unit - 1, input, weight);
    }
    place_.more = std::any_of(together.begin(), together.end(), [unit](const auto& u) {
      return u.front() != unit && std::find(u.begin(), u.end(), unit) != u.end();
    });
    if (weight) leave(unit, final);
  }
  if (final || (weight && t_.zero >= 2)) close_bucket();
  if (input && vs > 0 && !turns_here(vs)) {
    send(before(chunk), tag(chunk, vs - 1, true));
  }
}

// ---- data parallelism (A:F17, A:F18)

void StageBuilder::plan_gathers() {
  uses_.clear();
  gathered_.clear();
  next_use_ = next_gather_ = 0;
  if (t_.zero < 3) return;
  for (const ScheduleSlot& s : schedule_) {
    if (s.work == Work::weight) continue;
    auto units = sharded_units(s.chunk);
    if (s.work != Work::forward) {
      std::reverse(units.begin(), units.end());
      for (auto& unit : units) std::reverse(unit.begin(), unit.end());
      units.erase(std::remove(units.begin(), units.end(), std::vector<int64_t>{0}), units.end());
    }
    uses_.insert(uses_.end(), units.begin(), units.end());
  }
  gathered_.resize(uses_.size());
}

/// Units of a chunk by what is gathered together: `unit` layers, embedding and output layer alone.
std::vector<std::vector<int64_t>> StageBuilder::sharded_units(int64_t chunk) const {
  std::vector<std::vector<int64_t>> out;
  int64_t layers = 0;
  for (const int64_t unit : units_of(chunk)) {
    const bool layer = unit > 0 && unit <= t_.model.layers;
    if (layer && layers > 0 && layers < t_.unit) {
      out.back().push_back(unit);
    } else {
      out.push_back({unit});
    }
    if (layer) layers = layers == t_.unit ? 1 : layers + 1;
  }
  return out;
}

/// Matrices of a unit, each with a scale of its own.
int64_t StageBuilder::tensors_of(int64_t unit) const {
  const ModelCard& m = t_.model;
  if (unit == 0 || unit == m.layers + 1) return 1;
  const int64_t mlp = m.gated ? 3 : 2;
  const int64_t attention = m.mla() ? 5 : 2;
  if (!m.moe(unit - 1)) return attention + mlp;
  return attention + 1 + m.experts / t_.ep * mlp + (m.shared_ffn > 0 ? mlp : 0);
}

int64_t StageBuilder::padded(int64_t bytes) const {
  return bytes + static_cast<int64_t>(t_.padding * static_cast<double>(bytes));
}

void StageBuilder::gather_units(const std::vector<int64_t>& units) {
  const int64_t now = place_.unit;
  place_.unit = units.front();
  auto& ops = gathered_[next_gather_];
  int64_t dense = 0;
  int64_t experts = 0;
  for (const int64_t unit : units) {
    dense += padded(t_.dense_on_rank(unit) * t_.parameter_bytes);
    experts += padded(t_.experts_on_rank(unit) * t_.parameter_bytes);
  }
  if (t_.shard > 1) {
    ops.push_back(collective(CollectiveKind::all_gather, GroupKind::shard, share(dense, t_.shard),
                             "parameters"));
  }
  if (experts > 0 && t_.expert_replicas() > 1) {
    ops.push_back(collective(CollectiveKind::all_gather, GroupKind::expert_data,
                             share(experts, t_.expert_replicas()), "expert parameters"));
  }
  place_.unit = now;
}

/// A unit begins.
void StageBuilder::enter(int64_t unit, bool uses_parameters) {
  place_.unit = unit;
  if (!uses_parameters) return;
  const auto it = ready_.find(unit);
  if (it != ready_.end()) {
    flush();
    for (const uint32_t op : it->second) need(op);
    ready_.erase(it);
  }
  if (t_.zero < 3) return;
  if (came_along_ > 0) {  // with the first layer of its sharded unit
    --came_along_;
    return;
  }
  flush();
  const size_t until = std::min(uses_.size(), next_use_ + static_cast<size_t>(t_.prefetch) + 1);
  for (; next_gather_ < until; ++next_gather_) gather_units(uses_[next_gather_]);
  const std::vector<int64_t>& units = uses_[next_use_];
  TRAINYARD_ASSERT(units.front() == unit);
  for (const uint32_t op : gathered_[next_use_]) need(op);
  ++next_use_;
  came_along_ = units.size() - 1;
  if (t_.copies_around && t_.replicas() > 1) {
    int64_t bytes = 0;
    for (const int64_t u : units) {
      bytes += (t_.dense_on_rank(u) + t_.experts_on_rank(u)) * t_.parameter_bytes;
    }
    compute({{Kernel::Kind::elementwise, 0, 2 * bytes, 0, 0, 0}}, "copy out");
  }
}

/// A unit's gradients of one micro-batch are there; `last`: of the last one.
void StageBuilder::leave(int64_t unit, bool last) {
  if (t_.zero < 2 && !last) return;
  bucket_.last = last;
  bucket_.units.push_back(unit);
  bucket_.dense += t_.dense_on_rank(unit);
  bucket_.split += t_.split_on_rank(unit);
  bucket_.sync += sync_.dense_on_rank(unit);
  bucket_.experts += t_.experts_on_rank(unit);
  const bool layer = unit > 0 && unit <= t_.model.layers;
  if (t_.zero == 3 && layer && place_.more) return;  // more layers of its unit follow
  // By the layout that all replicas sum in, so that they have the same buckets.
  if (t_.zero == 3 || (bucket_.sync + bucket_.experts) * t_.gradient_bytes >= t_.bucket_bytes) {
    close_bucket();
  }
}

void StageBuilder::close_bucket() {
  if (bucket_.units.empty()) return;
  flush();
  if (t_.overlap_gradients || t_.zero >= 2) reduce(bucket_);
  if (bucket_.last) buckets_.push_back(bucket_);
  bucket_ = {};
}

/// Ranks sync_tp, ... of the group send each of the first sync_tp an equal part of what they have:
/// together with their own that is the shard that they have in the smallest replica.
std::vector<uint32_t> StageBuilder::reshard(const Bucket& bucket) {
  std::vector<uint32_t> ops;
  if (!t_.reshards()) return ops;
  const int64_t bytes = share(bucket.split * t_.gradient_bytes, t_.sync_tp);
  const int64_t first = hands_on_ ? 0 : t_.sync_tp;
  const int64_t last = hands_on_ ? t_.sync_tp : t_.tp;
  for (int64_t i = first; i < last; ++i) {
    ops.push_back(message(hands_on_, tensor_peer(PeerKind::tensor, i), bytes, kReshardTag,
                          "reshard gradients"));
  }
  return ops;
}

/// All that the rank holds: what is not split was summed by the others, too.
std::vector<uint32_t> StageBuilder::reshard_back(const Bucket& bucket, int64_t element,
                                                 uint32_t after, const char* what) {
  std::vector<uint32_t> ops;
  if (!t_.reshards()) return ops;
  const int64_t bytes = share(bucket.dense * element, t_.sync_tp);
  const int64_t first = hands_on_ ? 0 : t_.sync_tp;
  const int64_t last = hands_on_ ? t_.sync_tp : t_.tp;
  for (int64_t i = first; i < last; ++i) {
    const uint32_t op =
        message(!hands_on_, tensor_peer(PeerKind::tensor, i), bytes, kReshardTag + 1, what);
    if (hands_on_) {
      ops.push_back(op);
    } else {
      graph_->add_dependency(after, op);
    }
  }
  return ops;
}

void StageBuilder::reduce(const Bucket& bucket) {
  const int64_t dense = padded(bucket.sync * t_.gradient_bytes);
  const int64_t experts = padded(bucket.experts * t_.gradient_bytes);
  place_.unit = bucket.units.back();
  if (t_.copies_around && t_.zero == 3 && t_.replicas() > 1) {
    compute({{Kernel::Kind::elementwise, 0, 2 * (bucket.dense + bucket.experts) * t_.gradient_bytes,
              0, 0, 0}},
            "copy in");
    flush();
  }
  const std::vector<uint32_t> parts = reshard(bucket);
  if (hands_on_) {
    reductions_.insert(reductions_.end(), parts.begin(), parts.end());
    if (t_.zero > 0) return;  // it gets parameters
    const auto back = reshard_back(bucket, t_.gradient_bytes, kNone, "reshard back");
    reductions_.insert(reductions_.end(), back.begin(), back.end());
    return;
  }
  const auto run = [&](CollectiveKind kind, GroupKind group, int64_t bytes) {
    reductions_.push_back(collective(kind, group, bytes, "gradients"));
    for (const uint32_t part : parts) graph_->add_dependency(part, reductions_.back());
    return reductions_.back();
  };
  if (t_.gradient_bytes == 1 && t_.replicas() > 1) {
    // All agree on the smallest scale of every tensor before they add in fp8 (A: 1.4 #56, A:F58).
    int64_t tensors = 0;
    for (const int64_t unit : bucket.units) tensors += tensors_of(unit);
    run(CollectiveKind::all_reduce, GroupKind::data, 4 * tensors);
  }
  if (t_.zero == 0 || (t_.zero < 3 && t_.all_reduced && shards_all())) {
    if (t_.replicas() > 1) run(CollectiveKind::all_reduce, GroupKind::data, dense);
    if (t_.zero == 0 && t_.reshards()) {
      reshard_back(bucket, t_.gradient_bytes, reductions_.back(), "reshard back");
    }
    if (experts > 0 && t_.expert_replicas() > 1) {
      run(CollectiveKind::all_reduce, GroupKind::expert_data, experts);
    }
    return;
  }
  if (t_.shard > 1) run(CollectiveKind::reduce_scatter, GroupKind::shard, dense);
  if (bucket.last && !shards_all() && t_.cp * t_.dp > t_.shard) {
    // In issue order on one stream: the shard is summed before the replicas are.
    run(CollectiveKind::all_reduce, GroupKind::replica, share(dense, t_.shard));
  }
  if (experts > 0 && t_.expert_replicas() > 1) {
    run(CollectiveKind::reduce_scatter, GroupKind::expert_data, experts);
  }
}

void StageBuilder::finish_step() {
  place_.phase = 'O';
  place_.microbatch = place_.step;
  flush();
  if (!t_.overlap_gradients && t_.zero < 2) {
    for (const Bucket& b : buckets_) reduce(b);
  }
  const ModelCard& m = t_.model;
  if (m.tied_embeddings && t_.pp > 1 && !t_.turned() && (stage_ == 0 || stage_ == t_.pp - 1)) {
    place_.unit = 0;
    reductions_.push_back(collective(CollectiveKind::all_reduce, GroupKind::embedding,
                                     t_.padded_vocab() / t_.tp * m.hidden * t_.gradient_bytes,
                                     "embedding gradients"));
  }
  for (const uint32_t op : reductions_) need(op);
  reductions_.clear();

  auto [dense, experts] = parameters();
  if (t_.zero > 0) {
    std::tie(dense, experts) = summed();
    dense = share(dense, t_.shard);
    experts = share(experts, t_.expert_replicas());
  }
  // Reads the gradient, reads and writes the state, writes the parameter (A:F16).
  const int64_t per = t_.gradient_bytes + 2 * t_.optimizer_bytes + t_.parameter_bytes;
  place_.unit = 0;
  if (t_.gradient_norm && t_.ranks > 1) {
    if (dense + experts > 0 || !hands_on_) {
      compute({{Kernel::Kind::elementwise, 0, (dense + experts) * t_.gradient_bytes, 0, 0, 0}},
              "gradient norm");
    }
    need(collective(CollectiveKind::all_reduce, GroupKind::world, 4, "gradient norm"));
  }
  if (dense + experts > 0 || !hands_on_) {
    Kernel update{Kernel::Kind::elementwise, 0, (dense + experts) * per, 0, 0, 0};
    update.optimizer = true;
    compute({update}, "optimizer");
  }
  flush();
  if (t_.step_overhead > Time()) {
    Op op;
    op.kind = OpKind::metadata;
    op.duration = t_.step_overhead;
    op.stream = compute_stream_;
    const uint32_t index = add(op, label("step overhead"));
    if (last_compute_ != kNone) graph_->add_dependency(last_compute_, index);
    for (const uint32_t before : pending_) graph_->add_dependency(before, index);
    pending_.clear();
    need(index);
  }

  ready_.clear();
  if (t_.zero == 1 || t_.zero == 2) {
    std::vector<uint32_t> all;
    for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket) {
      std::vector<uint32_t> ops;
      place_.unit = bucket->units.back();
      if (t_.shard > 1 && !hands_on_) {
        ops.push_back(collective(CollectiveKind::all_gather, GroupKind::shard,
                                 share(bucket->sync * t_.parameter_bytes, t_.shard), "parameters"));
      }
      const auto back = reshard_back(*bucket, t_.parameter_bytes, ops.empty() ? kNone : ops.back(),
                                     "reshard parameters");
      ops.insert(ops.end(), back.begin(), back.end());
      if (bucket->experts > 0 && t_.expert_replicas() > 1) {
        ops.push_back(collective(CollectiveKind::all_gather, GroupKind::expert_data,
                                 share(bucket->experts * t_.parameter_bytes, t_.expert_replicas()),
                                 "expert parameters"));
      }
      for (const int64_t unit : bucket->units) ready_[unit] = ops;
      all.insert(all.end(), ops.begin(), ops.end());
    }
    if (!t_.overlap_parameters) {
      ready_.clear();
      for (const uint32_t op : all) need(op);
    }
  }
  buckets_.clear();
  if (t_.checkpoint_every > 0 && (place_.step + 1) % t_.checkpoint_every == 0) write_checkpoint();
}

// ---- storage

std::pair<int64_t, int64_t> StageBuilder::parameters(const Training& t) const {
  int64_t dense = 0;
  int64_t experts = 0;
  for (int64_t chunk = 0; chunk < t_.chunks(); ++chunk) {
    for (const int64_t unit : units_of(chunk)) {
      dense += t.dense_on_rank(unit);
      experts += t.experts_on_rank(unit);
    }
  }
  return {dense, experts};
}

uint32_t StageBuilder::storage(StorageAction action, int64_t bytes, const char* what) {
  Op op;
  op.kind = OpKind::storage;
  op.action = action;
  op.bytes = bytes;
  op.stream = stream("storage", StreamOrder::free, Dimension::none);
  const uint32_t index = add(op, label(what));
  if (last_compute_ != kNone) graph_->add_dependency(last_compute_, index);
  return index;
}

/// What the rank holds: with zero 1 and 2 all parameters of the stage and its share of their state.
void StageBuilder::load_checkpoint() {
  const auto [dense, experts] = parameters();
  const int64_t state = t_.checkpoint_bytes - t_.parameter_bytes;
  const int64_t whole = t_.zero < 3 ? t_.parameter_bytes : 0;
  const int64_t divided = t_.checkpoint_bytes - whole;
  int64_t bytes = (dense + experts) * t_.checkpoint_bytes;
  if (t_.zero > 0 && state >= 0) {
    const auto [mine, my_experts] = summed();
    bytes = (dense + experts) * whole + share(mine * divided, t_.shard) +
            share(my_experts * divided, t_.expert_replicas());
  }
  place_.phase = 'S';
  place_.unit = 0;
  need(storage(StorageAction::load, bytes, "checkpoint load"));
}

void StageBuilder::read_data() {
  if (t_.token_bytes == 0) return;
  flush();
  const int64_t bytes = t_.tokens() * t_.token_bytes;
  // Bidirectional: each of the two ends has half of the micro-batches, and both labels and tokens.
  const auto total = static_cast<size_t>(t_.steps * t_.microbatches *
                                         (t_.schedule == ScheduleKind::dualpipe_v ? 2 : 1));
  const size_t until = std::min(total, next_read_ + static_cast<size_t>(t_.data_prefetch) + 1);
  while (reads_.size() < until) {
    reads_.push_back(storage(StorageAction::read, bytes, "data"));
    if (t_.first_reads) {
      graph_->ops.back().first_member = true;
      graph_->ops.back().group_slot = slot(GroupKind::tensor);
    }
  }
  need(reads_[next_read_++]);
  if (t_.first_reads) {
    need(collective(CollectiveKind::broadcast, GroupKind::tensor, bytes, "data broadcast"));
  }
}

void StageBuilder::write_checkpoint() {
  flush();
  place_.unit = 0;
  const auto [dense, experts] = summed();
  const auto copy = [&](int64_t bytes, GroupKind group, int64_t ranks, std::vector<uint32_t>& out) {
    if (bytes == 0) return;
    if (!t_.first_writes) bytes = share(bytes, ranks);
    const uint32_t index = storage(StorageAction::snapshot, bytes, "checkpoint copy");
    Op& op = graph_->ops[index];
    op.duration = Time::ps(
        static_cast<int64_t>(static_cast<__int128>(bytes) * 8 * 1'000'000'000'000 / t_.copy_bps));
    if (t_.first_writes && ranks > 1) {
      op.first_member = true;
      op.group_slot = slot(group);
    }
    // Host memory holds one copy: it is free when the checkpoint before is written.
    for (const uint32_t write : writes_) graph_->add_dependency(write, index);
    out.push_back(index);
  };
  std::vector<uint32_t> copies;
  copy(dense * t_.checkpoint_bytes, GroupKind::data, t_.replicas(), copies);
  copy(experts * t_.checkpoint_bytes, GroupKind::expert_data, t_.expert_replicas(), copies);
  writes_.clear();
  for (const uint32_t before : copies) {
    const Op copied = graph_->ops[before];
    const uint32_t index = storage(StorageAction::write, copied.bytes, "checkpoint write");
    Op& op = graph_->ops[index];
    op.first_member = copied.first_member;
    op.group_slot = copied.group_slot;
    op.background = t_.async_checkpoint;
    graph_->add_dependency(before, index);
    need(t_.async_checkpoint ? before : index);
    writes_.push_back(index);
  }
}

}  // namespace trainyard
