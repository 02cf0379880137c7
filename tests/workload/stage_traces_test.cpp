// SPDX-License-Identifier: MIT
// The public traces of STAGE, another generator, beside ours: same model, same layout, and then the
// same collectives of the same bytes, once STAGE's conventions are named and converted.
// Traces: astra-sim/stage 9ec6c02, main.py with the options beside each case. What they hold is
// written down here, so that the comparison needs no file; where shared/traces is, it is read, too.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "chakra/reader.h"
#include "tests/chakra/chakra_test_util.h"
#include "tests/workload/training_test_util.h"

namespace trainyard {
namespace {

using test::Settings;
using test::training;
using test::with;

/// Of a model; `layer`: gradients and parameters of dense weights.
enum class Part : uint8_t { embedding, attention, mlp, experts, layer, output, between };

/// One kind of call of one rank in one step.
struct Key {
  Part part = Part::layer;
  Dimension dimension = Dimension::none;
  std::string kind;  ///< "all-reduce", "send", ...
  [[nodiscard]] auto tuple() const { return std::tie(part, dimension, kind); }
  bool operator<(const Key& o) const { return tuple() < o.tuple(); }
  bool operator==(const Key& o) const { return tuple() == o.tuple(); }
};
struct Volume {
  int64_t calls = 0;
  int64_t bytes = 0;  ///< of all calls together; each by Chakra's convention, see Op::bytes
  bool operator==(const Volume&) const = default;
};
using Ledger = std::map<Key, Volume>;

std::string text(const Ledger& ledger) {
  static const char* const parts[] = {"embedding", "attention", "mlp",    "experts",
                                      "layer",     "output",    "between"};
  std::string out = "\n";
  for (const auto& [key, v] : ledger) {
    out += fmt::format("  {} {} {}: {} calls, {} bytes\n", parts[static_cast<size_t>(key.part)],
                       dimension_name(key.dimension), key.kind, v.calls, v.bytes);
  }
  return out;
}

constexpr auto kData = Dimension::data;
constexpr auto kTensor = Dimension::tensor;
constexpr auto kExpert = Dimension::expert;
constexpr auto kPipeline = Dimension::pipeline;
const char* const kAllReduce = "all-reduce";
const char* const kAllGather = "all-gather";
const char* const kReduceScatter = "reduce-scatter";

// ---- conventions of STAGE. Each turns what our generator issues into what STAGE writes, and first
// checks that ours is what it should be.

/// Sizes are counts of elements, whatever their type (formats 3.8). Ours are then compared with
/// bf16 throughout, gradients too.
constexpr int64_t kElementBytes = 2;

/// Takes calls out of a ledger that must be there with this number and these bytes.
void take(Ledger& ours, const Key& key, int64_t calls, int64_t bytes) {
  const auto it = ours.find(key);
  ASSERT_TRUE(it != ours.end()) << "not there:" << text({{key, {calls, bytes}}}) << "in"
                                << text(ours);
  EXPECT_EQ((Ledger{{key, {calls, bytes}}}), (Ledger{*it}))
      << text({*it}) << "instead of" << text({{key, {calls, bytes}}});
  ours.erase(it);
}
void put(Ledger& ours, const Key& key, int64_t calls, int64_t bytes) {
  Volume& v = ours[key];
  v.calls += calls;
  v.bytes += bytes;
}
bool holds(const Training& t, int64_t stage, Part part) {
  return stage == (part == Part::embedding ? 0 : t.pp - 1);
}

/// Weights of norms count as nothing: no gradients, no parameters. Ours has two in a layer and one
/// before the output layer.
void no_norms(const Training& t, int64_t /*stage*/, Ledger& ours) {
  for (auto& [key, v] : ours) {
    if (key.dimension != kData) continue;
    const int64_t norms = key.part == Part::layer ? 2 : key.part == Part::output ? 1 : 0;
    const int64_t parts = key.kind == kAllGather ? t.shard : 1;
    v.bytes -= v.calls * norms * t.model.hidden * kElementBytes / parts;
  }
}

/// FSDP shards layers only: embedding and output layer are held whole by every rank and their
/// gradients all-reduced. Ours gathers them and reduce-scatters their gradients like layers.
void whole_embeddings(const Training& t, int64_t /*stage*/, Ledger& ours) {
  const int64_t bytes = t.model.vocab * t.model.hidden * kElementBytes;
  for (const Part part : {Part::embedding, Part::output}) {
    const int64_t gathers = part == Part::embedding ? 1 : 2;  // the embedding: forward only
    take(ours, {part, kData, kAllGather}, gathers, gathers * bytes / t.dp);
    take(ours, {part, kData, kReduceScatter}, 1, bytes);
    put(ours, {part, kData, kAllReduce}, 1, bytes);
  }
}

/// Without sequence parallelism the output layer is split along the hidden size: whole logits are
/// all-reduced and its input's gradient is gathered. Ours is split along the vocabulary, as in
/// Megatron-LM: the input's gradient is all-reduced, and of the logits three numbers per token.
void output_along_hidden(const Training& t, int64_t /*stage*/, Ledger& ours) {
  const int64_t m = t.microbatches;
  const int64_t hidden = t.tokens() * t.model.hidden * kElementBytes;
  take(ours, {Part::output, kTensor, kAllReduce}, 2 * m, m * (hidden + 12 * t.tokens()));
  put(ours, {Part::output, kTensor, kAllReduce}, m, m * t.tokens() * t.model.vocab * kElementBytes);
  put(ours, {Part::output, kTensor, kAllGather}, m, m * hidden / t.tp);
}

/// With sequence parallelism every tensor-parallel rank holds embedding and output layer whole and
/// works on its part of the sequence; their gradients are all-reduced over both dimensions. Ours
/// splits them along the (padded) vocabulary.
void embeddings_on_every_tensor_rank(const Training& t, int64_t stage, Ledger& ours) {
  const int64_t m = t.microbatches;
  const int64_t hidden = t.tokens() * t.model.hidden * kElementBytes;
  const int64_t whole = t.model.vocab * t.model.hidden * kElementBytes;
  for (const Part part : {Part::embedding, Part::output}) {
    if (!holds(t, stage, part)) continue;
    const int64_t gathers = part == Part::output ? 2 * m : m;  // the output's input again
    take(ours, {part, kTensor, kAllGather}, gathers, gathers * hidden / t.tp);
    take(ours, {part, kTensor, kReduceScatter}, m, m * hidden);
    if (part == Part::output) {
      take(ours, {part, kTensor, kAllReduce}, m, m * 12 * t.tokens());
    }
    put(ours, {part, kTensor, kAllReduce}, 1, whole);
    if (t.dp == 1) continue;
    take(ours, {part, kData, kAllReduce}, 1,
         t.padded_vocab() / t.tp * t.model.hidden * kElementBytes);
    put(ours, {part, kData, kAllReduce}, 1, whole);
  }
}

/// Gradients of layers are all-reduced in every micro-batch, those of embedding and output layer
/// once. Ours adds them up and reduces once (zero 0).
void reduced_in_every_microbatch(const Training& t, int64_t /*stage*/, Ledger& ours) {
  Volume& v = ours.at({Part::layer, kData, kAllReduce});
  v.calls *= t.microbatches;
  v.bytes *= t.microbatches;
}

/// Expert-parallel ranks are beside the data-parallel ones, have the same sequences and repeat
/// attention; ours, as in Megatron-LM, lie inside dp and have sequences of their own. For one
/// number of GPUs and sequences theirs have ep times ours.
void expert_ranks_repeat_attention(const Training& t, int64_t /*stage*/, Ledger& ours) {
  for (auto& [key, v] : ours) {
    if (key.part == Part::attention && key.dimension == kTensor) v.bytes *= t.ep;
  }
}

/// Having the same sequences, they split the hidden size around experts: it is gathered after them
/// and after their backward, and so are the router's weights before it.
void hidden_split_over_expert_ranks(const Training& t, int64_t /*stage*/, Ledger& ours) {
  const int64_t h = t.model.hidden;
  const int64_t split = t.ep * t.sequence_tokens() * (h / t.ep);
  const int64_t router = h / t.ep * t.model.topk;  // columns: topk instead of experts
  const int64_t layers = t.model.layers;
  put(ours, {Part::experts, kExpert, kAllGather}, 3 * layers,
      layers * (2 * split + router) * kElementBytes);
}

/// Each expert has calls of its own, and gathers its input again for the gradient of its weights:
/// ours runs the experts of a rank as one grouped product whose input stays gathered. A
/// rank's experts get topk / (experts x ep) of the tokens each, ep too few: ep x as many arrive by
/// STAGE's own all-to-all.
void calls_per_expert(const Training& t, int64_t /*stage*/, Ledger& ours) {
  const int64_t here = t.model.experts / t.ep;
  const int64_t layers = t.model.layers;
  const int64_t arrived = t.sequence_tokens() * t.model.topk * t.model.hidden * kElementBytes;
  take(ours, {Part::experts, kTensor, kAllGather}, 2 * layers, 2 * layers * arrived);
  take(ours, {Part::experts, kTensor, kReduceScatter}, 2 * layers,
       2 * layers * arrived * t.expert_tp);
  const int64_t each = arrived / (here * t.ep);
  put(ours, {Part::experts, kTensor, kAllGather}, 3 * layers * here, 3 * layers * here * each);
  put(ours, {Part::experts, kTensor, kReduceScatter}, 2 * layers * here,
      2 * layers * here * each * t.expert_tp);
}

/// Gradients of a layer are one call over the data-parallel ranks, experts included, of a router
/// with topk columns split over ep. Ours reduces dense weights over all ranks that share them
/// and experts over theirs.
void experts_with_the_layer(const Training& t, int64_t /*stage*/, Ledger& ours) {
  const int64_t layers = t.model.layers;
  const int64_t h = t.model.hidden;
  const int64_t attention = 4 * h * h / t.tp;
  const int64_t experts = t.model.experts / t.ep * 2 * h * t.model.expert_ffn / t.expert_tp;
  take(ours, {Part::layer, kData, kAllReduce}, layers,
       layers * (attention + h * t.model.experts) * kElementBytes);
  take(ours, {Part::experts, kData, kAllReduce}, layers, layers * experts * kElementBytes);
  put(ours, {Part::layer, kData, kAllReduce}, layers,
      layers * (attention + h / t.ep * t.model.topk + experts) * kElementBytes);
}

/// Letters of the table in docs/validation.md, in the order in which they are applied. (a) is
/// kElementBytes.
struct Convention {
  char letter;
  void (*convert)(const Training&, int64_t, Ledger&);
};
constexpr Convention kNoNorms{'b', no_norms};
constexpr Convention kWholeEmbeddings{'c', whole_embeddings};
constexpr Convention kOutputAlongHidden{'d', output_along_hidden};
constexpr Convention kEmbeddingsEverywhere{'e', embeddings_on_every_tensor_rank};
constexpr Convention kEveryMicrobatch{'f', reduced_in_every_microbatch};
constexpr Convention kRepeatedAttention{'g', expert_ranks_repeat_attention};
constexpr Convention kSplitHidden{'h', hidden_split_over_expert_ranks};
constexpr Convention kPerExpert{'i', calls_per_expert};
constexpr Convention kWithTheLayer{'j', experts_with_the_layer};

// ---- cases

/// What a trace holds for one rank of a pipeline stage, in elements of all calls together.
struct Row {
  Part part;
  Dimension dimension;
  const char* kind;
  int64_t calls, elements;
};

struct Case {
  std::vector<std::string> traces;  ///< sets under traces/stage; several: dialects of one
  std::string layout;
  ModelCard card;
  Settings settings;
  std::vector<std::vector<Row>> stages;  ///< by pipeline stage
  std::vector<Convention> conventions;
  /// Multiplications of the matrix products of layers, of every rank; 0: not compared.
  int64_t products = 0;
};

/// STAGE's models have no biases, untied embeddings and no positions.
ModelCard card(int64_t layers, int64_t hidden, int64_t ffn, int64_t heads, bool gated) {
  ModelCard m;
  m.name = "stage";
  m.layers = layers;
  m.hidden = hidden;
  m.ffn = ffn;
  m.heads = m.kv_heads = heads;
  m.head_size = hidden / heads;
  m.vocab = 32000;
  m.gated = gated;
  return m;
}

/// Ranks are numbered with dp as the fastest (formats 3.10); no buckets; with sequence parallelism
/// inputs are gathered again in the backward pass.
Settings settings(const Settings& more, bool sequence_parallel) {
  return with({{"layout.order", "dp-tp-cp-ep-pp"},
               {"layout.sequence_parallel", sequence_parallel ? "true" : "false"},
               {"layout.gather_again", sequence_parallel ? "true" : "false"},
               {"gradients.bucket", "1B"},
               {"precision.gradients", "bf16"}},
              more);
}

const std::vector<Case>& cases() {
  using P = Part;
  // --micro_batch counts the sequences of all replicas, batch.micro those of one.
  static const std::vector<Case> all = [] {
    std::vector<Case> c;
    // --dp 8 --num_stacks 2 --batch 16 --dff 2048 --seq 256 --dmodel 512 --dvocal 32000 --head 8
    c.push_back({{"gpt_dp8"},
                 "dp 8",
                 card(2, 512, 2048, 8, false),
                 settings({{"layout.dp", "8"},
                           {"layout.zero", "0"},
                           {"batch.global", "16"},
                           {"batch.micro", "2"},
                           {"batch.sequence", "256"}},
                          false),
                 {{{P::embedding, kData, kAllReduce, 1, 16384000},
                   {P::layer, kData, kAllReduce, 2, 2 * 3145728},
                   {P::output, kData, kAllReduce, 1, 16384000}}},
                 {kNoNorms},
                 9663676416});
    // the same with --weight_sharded 1
    c.push_back({{"gpt_fsdp8"},
                 "dp 8, zero 3",
                 card(2, 512, 2048, 8, false),
                 settings({{"layout.dp", "8"},
                           {"layout.zero", "3"},
                           {"batch.global", "16"},
                           {"batch.micro", "2"},
                           {"batch.sequence", "256"}},
                          false),
                 {{{P::embedding, kData, kAllReduce, 1, 16384000},
                   {P::layer, kData, kAllGather, 4, 4 * 393216},
                   {P::layer, kData, kReduceScatter, 2, 2 * 3145728},
                   {P::output, kData, kAllReduce, 1, 16384000}}},
                 {kNoNorms, kWholeEmbeddings},
                 9663676416});
    // --tp 4 --tpsp 0 --num_stacks 2 --batch 4 --dff 2048 --seq 256 --dmodel 512
    c.push_back({{"gpt_tp4"},
                 "tp 4",
                 card(2, 512, 2048, 8, false),
                 settings({{"layout.tp", "4"},
                           {"layout.dp", "1"},
                           {"layout.zero", "0"},
                           {"batch.global", "4"},
                           {"batch.micro", "4"},
                           {"batch.sequence", "256"}},
                          false),
                 {{{P::embedding, kTensor, kAllReduce, 1, 524288},
                   {P::attention, kTensor, kAllReduce, 4, 4 * 524288},
                   {P::mlp, kTensor, kAllReduce, 4, 4 * 524288},
                   {P::output, kTensor, kAllReduce, 1, 32768000},
                   {P::output, kTensor, kAllGather, 1, 131072}}},
                 {kOutputAlongHidden},
                 4831838208});
    // --tp 8 --num_stacks 2 --batch 4 --dff 2048 --seq 256 --dmodel 512
    c.push_back({{"gpt_tp8sp"},
                 "tp 8, sp",
                 card(2, 512, 2048, 8, false),
                 settings({{"layout.tp", "8"},
                           {"layout.dp", "1"},
                           {"layout.zero", "0"},
                           {"batch.global", "4"},
                           {"batch.micro", "4"},
                           {"batch.sequence", "256"}},
                          true),
                 {{{P::embedding, kTensor, kAllReduce, 1, 16384000},
                   {P::attention, kTensor, kAllGather, 6, 6 * 65536},
                   {P::attention, kTensor, kReduceScatter, 4, 4 * 524288},
                   {P::mlp, kTensor, kAllGather, 6, 6 * 65536},
                   {P::mlp, kTensor, kReduceScatter, 4, 4 * 524288},
                   {P::output, kTensor, kAllReduce, 1, 16384000}}},
                 {kEmbeddingsEverywhere},
                 2415919104});
    // --pp 4 --num_stacks 4 --batch 8 --micro_batch 2 --dff 2048 --seq 256 --dmodel 512
    const std::vector<Row> gpt_end = {{P::between, kPipeline, "recv", 4, 4 * 262144},
                                      {P::between, kPipeline, "send", 4, 4 * 262144}};
    const std::vector<Row> gpt_middle = {{P::between, kPipeline, "recv", 8, 8 * 262144},
                                         {P::between, kPipeline, "send", 8, 8 * 262144}};
    c.push_back({{"gpt_pp4"},
                 "pp 4",
                 card(4, 512, 2048, 8, false),
                 settings({{"layout.pp", "4"},
                           {"layout.dp", "1"},
                           {"layout.zero", "0"},
                           {"batch.global", "8"},
                           {"batch.micro", "2"},
                           {"batch.sequence", "256"}},
                          false),
                 {gpt_end, gpt_middle, gpt_middle, gpt_end},
                 {},
                 19327352832});
    // --dp 2 --tp 2 --num_stacks 1 --batch 4 --dff 1024 --seq 256 --dmodel 512
    c.push_back({{"gpt_dp2tp2_json", "gpt_dp2tp2_v001"},
                 "dp 2, tp 2, sp",
                 card(1, 512, 1024, 8, false),
                 settings({{"layout.tp", "2"},
                           {"layout.dp", "2"},
                           {"layout.zero", "0"},
                           {"batch.global", "4"},
                           {"batch.micro", "2"},
                           {"batch.sequence", "256"}},
                          true),
                 {{{P::embedding, kTensor, kAllReduce, 1, 16384000},
                   {P::embedding, kData, kAllReduce, 1, 16384000},
                   {P::attention, kTensor, kAllGather, 3, 3 * 131072},
                   {P::attention, kTensor, kReduceScatter, 2, 2 * 262144},
                   {P::mlp, kTensor, kAllGather, 3, 3 * 131072},
                   {P::mlp, kTensor, kReduceScatter, 2, 2 * 262144},
                   {P::layer, kData, kAllReduce, 1, 1048576},
                   {P::output, kTensor, kAllReduce, 1, 16384000},
                   {P::output, kData, kAllReduce, 1, 16384000}}},
                 {kNoNorms, kEmbeddingsEverywhere},
                 1610612736});
    const auto llama = [](std::vector<Row> more, int64_t microbatches, int64_t shard, int64_t tp,
                          int64_t gradients, int64_t messages) {
      const int64_t m = microbatches;
      std::vector<Row> rows = {{P::attention, kTensor, kAllGather, 3 * m, 3 * m * shard},
                               {P::attention, kTensor, kReduceScatter, 2 * m, 2 * m * shard * tp},
                               {P::mlp, kTensor, kAllGather, 3 * m, 3 * m * shard},
                               {P::mlp, kTensor, kReduceScatter, 2 * m, 2 * m * shard * tp},
                               {P::layer, kData, kAllReduce, m, m * gradients},
                               {P::between, kPipeline, "recv", messages, messages * shard},
                               {P::between, kPipeline, "send", messages, messages * shard}};
      rows.insert(rows.end(), more.begin(), more.end());
      return rows;
    };
    const auto whole = [](Part part, int64_t elements) {
      return std::vector<Row>{{part, kTensor, kAllReduce, 1, elements},
                              {part, kData, kAllReduce, 1, elements}};
    };
    // --dp 2 --tp 2 --pp 2 --num_stacks 2 --batch 8 --micro_batch 2 --dff 1408 --seq 256
    // --dmodel 512 --model_type llama
    c.push_back({{"llama_dp2tp2pp2"},
                 "dp 2, tp 2, sp, pp 2",
                 card(2, 512, 1408, 8, true),
                 settings({{"layout.tp", "2"},
                           {"layout.pp", "2"},
                           {"layout.dp", "2"},
                           {"layout.zero", "0"},
                           {"batch.global", "8"},
                           {"batch.micro", "1"},
                           {"batch.sequence", "256"}},
                          true),
                 {llama(whole(P::embedding, 16384000), 4, 65536, 2, 1605632, 4),
                  llama(whole(P::output, 16384000), 4, 65536, 2, 1605632, 4)},
                 {kNoNorms, kEmbeddingsEverywhere, kEveryMicrobatch},
                 4932501504});
    // --dp 4 --tp 4 --pp 4 --num_stacks 4 --batch 16 --micro_batch 8 --seq 1024 --dmodel 4096
    // --dff 11008 --head 32 --model_type llama
    c.push_back({{"llama_dp4tp4pp4"},
                 "dp 4, tp 4, sp, pp 4",
                 card(4, 4096, 11008, 32, true),
                 settings({{"layout.tp", "4"},
                           {"layout.pp", "4"},
                           {"layout.dp", "4"},
                           {"layout.zero", "0"},
                           {"batch.global", "16"},
                           {"batch.micro", "2"},
                           {"batch.sequence", "1024"}},
                          true),
                 {llama(whole(P::embedding, 131072000), 2, 2097152, 4, 50593792, 2),
                  llama({}, 2, 2097152, 4, 50593792, 4), llama({}, 2, 2097152, 4, 50593792, 4),
                  llama(whole(P::output, 131072000), 2, 2097152, 4, 50593792, 2)},
                 {kNoNorms, kEmbeddingsEverywhere, kEveryMicrobatch},
                 621696516096});
    // --dp 2 --tp 2 --ep 2 --num_stacks 2 --batch 8 --seq 128 --dmodel 256 --dff 512 --experts 4
    // --kexperts 2 --model_type moe
    ModelCard moe = card(2, 256, 0, 8, false);
    moe.experts = 4;
    moe.topk = 2;
    moe.expert_ffn = 512;
    c.push_back({{"moe_dp2tp2ep2"},
                 "dp 2 x ep 2, tp 2, sp",
                 moe,
                 settings({{"layout.tp", "2"},
                           {"layout.ep", "2"},
                           {"layout.expert_tp", "2"},
                           {"layout.dp", "4"},
                           {"layout.zero", "0"},
                           {"batch.global", "8"},
                           {"batch.micro", "2"},
                           {"batch.sequence", "128"}},
                          true),
                 {{{P::embedding, kTensor, kAllReduce, 1, 8192000},
                   {P::embedding, kData, kAllReduce, 1, 8192000},
                   {P::attention, kTensor, kAllGather, 6, 6 * 65536},
                   {P::attention, kTensor, kReduceScatter, 4, 4 * 131072},
                   {P::experts, kTensor, kAllGather, 12, 12 * 16384},
                   {P::experts, kTensor, kReduceScatter, 8, 8 * 32768},
                   {P::experts, kExpert, kAllGather, 6, 2 * (32768 + 256 + 32768)},
                   {P::experts, kExpert, "all-to-all", 8, 8 * 65536},
                   {P::layer, kData, kAllReduce, 2, 2 * 393472},
                   {P::output, kTensor, kAllReduce, 1, 8192000},
                   {P::output, kData, kAllReduce, 1, 8192000}}},
                 {kNoNorms, kEmbeddingsEverywhere, kRepeatedAttention, kSplitHidden, kPerExpert,
                  kWithTheLayer}});
    return c;
  }();
  return all;
}

Ledger theirs_of(const Case& c, int64_t stage) {
  Ledger out;
  for (const Row& r : c.stages[static_cast<size_t>(stage)]) {
    put(out, {r.part, r.dimension, r.kind}, r.calls, r.elements * kElementBytes);
  }
  return out;
}

/// Groups and peers that one rank talks to, by dimension.
using Partners = std::map<std::pair<Dimension, std::string>, std::set<std::vector<uint32_t>>>;

Ledger ours_of(const Job& job, uint32_t rank, Partners* partners = nullptr) {
  Ledger out;
  const RankProgram& program = job.ranks[rank];
  const OpGraph& graph = *program.graph;
  for (uint32_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    const Dimension dimension = graph.streams[op.stream].dimension;
    if (op.kind == OpKind::send || op.kind == OpKind::recv) {
      const char* kind = op.kind == OpKind::send ? "send" : "recv";
      put(out, {Part::between, dimension, kind}, 1, op.bytes);
      if (partners != nullptr) {
        (*partners)[{dimension, kind}].insert({program.binding.peers[op.peer_slot]});
      }
      continue;
    }
    if (op.kind != OpKind::collective) continue;
    const Group& group = job.groups[program.binding.groups[op.group_slot]];
    if (group.members.size() < 2) continue;
    if (partners != nullptr) (*partners)[{dimension, "group"}].insert(group.members);
    // "B0 L1 attention all-gather": phase and micro-batch, unit, what.
    const std::string& name = graph.name_of(i);
    const size_t unit = name.find(' ') + 1;
    const size_t what = name.find(' ', unit) + 1;
    const auto is = [&](size_t from, const char* word) {
      return name.compare(from, std::string(word).size(), word) == 0;
    };
    Part part = Part::layer;
    if (is(unit, "embedding")) {
      part = Part::embedding;
    } else if (is(unit, "head")) {
      part = Part::output;
    } else if (is(what, "attention")) {
      part = Part::attention;
    } else if (is(what, "mlp")) {
      part = Part::mlp;
    } else if (is(what, "experts") || is(what, "dispatch") || is(what, "combine") ||
               group.name.compare(0, 3, "edp") == 0) {
      part = Part::experts;
    }
    put(out, {part, dimension, collective_name(op.collective)}, 1, op.bytes);
  }
  return out;
}

Job job_of(const Case& c) {
  return generate_job(training(c.card, c.settings), c.traces.front(), 1).job;
}

/// 1,234,567
std::string grouped(int64_t n) {
  std::string digits = std::to_string(n);
  for (size_t i = digits.size(); i > 3;) digits.insert(i -= 3, ",");
  return digits;
}

class StageTraces : public ::testing::TestWithParam<size_t> {
 protected:
  [[nodiscard]] const Case& c() const { return cases()[GetParam()]; }
};

// ---- tests

TEST_P(StageTraces, GeneratorIssuesTheSameCollectivesOnceConventionsAreConverted) {
  const Training t = training(c().card, c().settings);
  const Job job = job_of(c());
  ASSERT_EQ(t.pp, static_cast<int64_t>(c().stages.size()));
  for (uint32_t r = 0; r < t.ranks; ++r) {
    const int64_t stage = r / (t.ranks / t.pp);
    Ledger ours = ours_of(job, r);
    for (const Convention& convention : c().conventions) convention.convert(t, stage, ours);
    const Ledger theirs = theirs_of(c(), stage);
    ASSERT_EQ(theirs, ours) << "rank " << r << ": theirs" << text(theirs) << "ours" << text(ours);
  }
}

/// None of them is idle: without it the two differ.
TEST_P(StageTraces, EveryConventionIsNeeded) {
  const Training t = training(c().card, c().settings);
  const Job job = job_of(c());
  for (const Convention& convention : c().conventions) {
    bool changes = false;
    for (uint32_t r = 0; r < t.ranks; r += static_cast<uint32_t>(t.ranks / t.pp)) {
      Ledger ours = ours_of(job, r);
      for (const Convention& before : c().conventions) {
        const Ledger was = ours;
        before.convert(t, r / (t.ranks / t.pp), ours);
        if (before.letter == convention.letter) changes = changes || was != ours;
      }
    }
    EXPECT_TRUE(changes) << convention.letter;
  }
}

/// num_ops counts multiplications of a product, m n k, where FLOPs are 2 m n k. Attention is a
/// kernel of a few operations per element there, and embedding and loss are matrix products: not
/// compared.
TEST_P(StageTraces, MatrixProductsOfLayersAreTheSame) {
  if (c().products == 0) {
    EXPECT_LT(0, c().card.experts) << "not compared only where attention is repeated (g)";
    return;
  }
  const Job job =
      generate_job(training(c().card, with(c().settings, {{"kernels", "single"}})), "stage", 1).job;
  for (uint32_t r = 0; r < job.ranks.size(); ++r) {
    const OpGraph& graph = *job.ranks[r].graph;
    int64_t flops = 0;
    for (uint32_t i = 0; i < graph.ops.size(); ++i) {
      const Op& op = graph.ops[i];
      if (op.kind != OpKind::compute || graph.name_of(i).find(" L") == std::string::npos) continue;
      for (uint32_t k = op.first_kernel; k < op.first_kernel + op.kernels; ++k) {
        if (graph.kernels[k].kind == Kernel::Kind::gemm) flops += graph.kernels[k].flops;
      }
    }
    ASSERT_EQ(2 * c().products, flops) << "rank " << r;
  }
}

/// The table of docs/validation.md, over all ranks: what each side issues before any conversion.
TEST_P(StageTraces, TableOfTheDocs) {
  const Training t = training(c().card, c().settings);
  const Job job = job_of(c());
  using Line = std::pair<Dimension, std::string>;
  std::map<Line, std::pair<Volume, Volume>> lines;
  for (uint32_t r = 0; r < t.ranks; ++r) {
    for (const auto& [key, v] : theirs_of(c(), r / (t.ranks / t.pp))) {
      Volume& sum = lines[{key.dimension, key.kind}].first;
      sum.calls += v.calls;
      sum.bytes += v.bytes;
    }
    for (const auto& [key, v] : ours_of(job, r)) {
      Volume& sum = lines[{key.dimension, key.kind}].second;
      sum.calls += v.calls;
      sum.bytes += v.bytes;
    }
  }
  const std::string docs =
      chakra::test::slurp(std::string(TRAINYARD_SOURCE_DIR) + "/docs/validation.md");
  std::string letters = "a";
  for (const Convention& convention : c().conventions) letters += convention.letter;
  bool first = true;
  for (const auto& [line, sums] : lines) {
    if (line.second == "recv") continue;  // as the sends
    const std::string row =
        fmt::format("| {} | {} | {} {} | {} | {} | {} | {} | {} |\n",
                    first ? c().traces.front() : "", first ? c().layout : "",
                    dimension_name(line.first), line.second, sums.first.calls, sums.second.calls,
                    grouped(sums.first.bytes), grouped(sums.second.bytes), first ? letters : "");
    EXPECT_NE(std::string::npos, docs.find(row)) << "not in docs/validation.md: " << row;
    first = false;
  }
}

Part part_of(const std::string& name) {
  const auto has = [&](const char* word) { return name.find(word) != std::string::npos; };
  if (has("in_emb.") || has("transformer.0.input_norm.x@")) return Part::embedding;
  if (has("out_emb.") || has("loss.") || has(".ffn_res.dy@")) return Part::output;
  if (has(".mha.")) return Part::attention;
  if (has(".moe.") || has(".post_attn_norm.dy@") || has(".ffn_res.x1@")) return Part::experts;
  if (has(".ffn.")) return Part::mlp;
  if (has("._sharded_grad@") || has("._assembled_weight")) return Part::layer;
  ADD_FAILURE() << "unknown tensor " << name;
  return Part::layer;
}

TEST_P(StageTraces, TracesHoldWhatIsWrittenHereBetweenTheRanksOfOurGroups) {
  const std::string traces = chakra::test::shared_traces();
  if (traces.empty()) {
    GTEST_SKIP() << "shared/traces not found: that the stage traces hold the collectives that the "
                    "generator is compared with is unproven";
  }
  const Training t = training(c().card, c().settings);
  const Job job = job_of(c());
  for (const std::string& name : c().traces) {
    const chakra::TraceSet set = chakra::read_set(traces + "/stage/" + name + "/" + name);
    ASSERT_EQ(static_cast<size_t>(t.ranks), set.ranks.size()) << name;
    // Ranks are numbered dp, tp, ep, pp, the first the fastest; their dp has no ep inside.
    const uint32_t tp_stride = static_cast<uint32_t>(t.dp / t.ep);
    const uint32_t ep_stride = tp_stride * static_cast<uint32_t>(t.tp);
    for (uint32_t r = 0; r < set.ranks.size(); ++r) {
      Ledger found;
      Partners partners;
      int64_t products = 0;
      for (const chakra::Node& node : set.ranks[r].nodes) {
        // A product has at least 64 multiplications per element of its result, others six at most.
        if (node.type == chakra::NodeType::comp && *node.num_ops >= 16 * *node.tensor_size &&
            (node.name.find(".mha.") != std::string::npos ||
             node.name.find(".ffn.") != std::string::npos)) {
          products += *node.num_ops;
        }
        if (node.type == chakra::NodeType::comm_send || node.type == chakra::NodeType::comm_recv) {
          const bool send = node.type == chakra::NodeType::comm_send;
          put(found, {Part::between, kPipeline, send ? "send" : "recv"}, 1,
              *node.comm_size * kElementBytes);
          partners[{kPipeline, send ? "send" : "recv"}].insert(
              {static_cast<uint32_t>(send ? *node.comm_dst : *node.comm_src)});
        }
        if (node.type != chakra::NodeType::comm_coll) continue;
        const auto group = std::find_if(set.groups.begin(), set.groups.end(), [&](const auto& g) {
          return g.name == node.pg_name.value_or("");
        });
        ASSERT_TRUE(group != set.groups.end()) << node.name;
        ASSERT_LE(2U, group->ranks.size()) << node.name;
        const uint32_t stride = group->ranks[1] - group->ranks[0];
        const Dimension dimension = t.dp > t.ep && stride == 1 ? kData
                                    : stride == tp_stride      ? kTensor
                                    : stride == ep_stride      ? kExpert
                                                               : Dimension::none;
        put(found,
            {part_of(node.name), dimension,
             collective_name(static_cast<CollectiveKind>(*node.comm_type))},
            1, *node.comm_size * kElementBytes);
        partners[{dimension, "group"}].insert(group->ranks);
      }
      const Ledger written = theirs_of(c(), r / (t.ranks / t.pp));
      ASSERT_EQ(written, found) << name << " rank " << r << ": trace" << text(found) << "here"
                                << text(written);
      if (c().products > 0) {
        ASSERT_EQ(c().products, products) << name << " rank " << r;
      }
      if (t.ep > 1) continue;  // its groups differ: convention g
      Partners ours;
      ours_of(job, r, &ours);
      ASSERT_EQ(partners, ours) << name << " rank " << r;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, StageTraces, ::testing::Range<size_t>(0, cases().size()),
                         [](const auto& which) { return cases()[which.param].traces.front(); });

}  // namespace
}  // namespace trainyard
