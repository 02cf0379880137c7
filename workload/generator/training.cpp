// SPDX-License-Identifier: MIT
#include "workload/generator/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>

namespace trainyard {

const std::vector<ParamSpec>& training_params() {
  using PT = ParamType;
  static const std::vector<ParamSpec> specs = {
      {"layout.tp", PT::integer, "1", "1", "1024", {}, "tensor parallelism", "A: 1.5 #63"},
      {"layout.pp", PT::integer, "1", "1", "1024", {}, "pipeline stages", "A: 1.5 #65"},
      {"layout.dp",
       PT::integer,
       "auto",
       "1",
       "1048576",
       {"auto"},
       "data parallelism, replicas of the model; auto: GPUs / (tp x cp x pp)",
       "A:F36"},
      {"layout.cp",
       PT::integer,
       "1",
       "1",
       "1024",
       {},
       "context parallelism: a sequence is split over so many ranks",
       "A: 1.5 #74"},
      {"layout.ep",
       PT::integer,
       "1",
       "1",
       "4096",
       {},
       "expert parallelism; lies inside the ranks of a pipeline stage (tp x cp x dp)",
       "A: 1.5 #76"},
      {"layout.expert_tp",
       PT::integer,
       "auto",
       "1",
       "1024",
       {"auto"},
       "tensor parallelism of experts; auto: tp",
       "Megatron-LM --expert-tensor-parallel-size"},
      {"layout.zero",
       PT::integer,
       "1",
       "0",
       "3",
       {},
       "what data-parallel ranks share: nothing (0, gradients are all-reduced), optimizer state "
       "(1), gradients too (2), parameters too (3, FSDP)",
       "A:F17, A:F18"},
      {"layout.shard",
       PT::integer,
       "auto",
       "1",
       "1048576",
       {"auto"},
       "ranks over which zero shards, the others hold replicas (hybrid sharding); auto: all",
       "A:F19"},
      {"layout.sequence_parallel",
       PT::boolean,
       "true",
       "",
       "",
       {},
       "all-gather and reduce-scatter around tensor-parallel blocks in place of all-reduce",
       "A:F38"},
      {"layout.gather_again",
       PT::boolean,
       "false",
       "",
       "",
       {},
       "sequence parallelism: backward gathers the inputs of a block's first weights and of the "
       "output layer again for their gradients, beside the gradient of the input; ranks keep their "
       "part only, which is what the memory formula counts; false: these gathers are left out, as "
       "A:F38 does",
       "Megatron-LM LinearWithGradAccumulationAndAsyncCommunication; arXiv:2205.05198, 4.2.2"},
      {"layout.scatter_gather",
       PT::boolean,
       "false",
       "",
       "",
       {},
       "without sequence parallelism: each tensor-parallel rank sends its part of an activation to "
       "the next stage, which gathers",
       "A:F33, A:F39"},
      {"layout.uneven_tp",
       PT::boolean,
       "false",
       "",
       "",
       {},
       "heads and columns need not divide over tp: every rank works as long as the fullest does, "
       "as where a tensor-parallel group has lost a GPU",
       "A:F46; A: 1.5 #87"},
      {"layout.unlike",
       PT::text,
       "none",
       "",
       "",
       {},
       "data-parallel replicas that have lost GPUs and go on with fewer ranks per tensor-parallel "
       "group, as '[{replica: 0, tp: 7}]'; replica: one, or 2-5; stage: of the pipeline (left out: "
       "all); tp: ranks that compute, the others are idle; batch: sequences of its step, the rest "
       "is shared by the replicas that "
       "give none (left out: as many as the others); boost: speed of its GPUs, auto is layout.tp "
       "/ tp (left out: 1)",
       "A: 1.5 #94, #95; A:F63, A:F64"},
      {"layout.context",
       PT::choice,
       "ring",
       "",
       "",
       {"ring", "all-gather", "all-to-all"},
       "how context-parallel ranks get each other's keys and values",
       "A: 1.5 #74, #75"},
      {"layout.order",
       PT::text,
       "auto",
       "",
       "",
       {},
       "dimensions by rank, neighbours first, or whose order it is: megatron, megatron-pp-first, "
       "deepspeed, torchtitan, colossalai; auto: that of 'framework'",
       "Megatron-LM parallel_state, --use-tp-pp-dp-mapping; A: 1.5 #64"},
      {"layout.layers",
       PT::text,
       "auto",
       "",
       "",
       {},
       "layers per pipeline stage (per chunk where interleaved), e.g. '7 8 8 7'; auto: even, or "
       "one "
       "fewer on the last or on the first and last stage, or the rest spread from the middle",
       "A: 1.5 #85"},
      {"framework",
       PT::choice,
       "megatron",
       "",
       "",
       {"megatron", "deepspeed", "ddp", "fsdp", "colossalai"},
       "whose defaults layout.order, gradients.bucket, gradients.primitive and gradients.copies "
       "take where they are auto",
       "A: 1.4 #45, 1.5 #62, #64, #90"},
      {"software",
       PT::text,
       "none",
       "",
       "",
       {},
       "training software, a file of configs/software: factors that compute.model: fitted takes, "
       "and values of keys that the scenario leaves out; none: no factor, no values",
       "docs/workloads.md, software"},
      {"step_overhead",
       PT::time,
       "0ns",
       "0ns",
       "1h",
       {},
       "what a step takes on every rank beside what is modelled: data loader, logging, gradient "
       "clipping on the host",
       "none without a measurement; the files of configs/software have fitted ones"},
      {"schedule.kind",
       PT::choice,
       "1f1b",
       "",
       "",
       {"gpipe", "1f1b", "interleaved", "split-backward", "dualpipe", "dualpipe-v"},
       "order of micro-batches in a pipeline stage; dualpipe: from both ends, through two copies "
       "of "
       "the model; dualpipe-v: the same along a V, one copy",
       "A:F31, A:F32, A:F34"},
      {"schedule.chunks",
       PT::integer,
       "auto",
       "1",
       "1024",
       {"auto"},
       "interleaved: chunks of layers per stage; auto: 2",
       "A:F32"},
      {"batch.global",
       PT::integer,
       "auto",
       "1",
       "100000000",
       {"auto"},
       "sequences of a step; auto: dp x micro x pp",
       "DESIGN 9.1"},
      {"batch.micro",
       PT::integer,
       "1",
       "1",
       "65536",
       {},
       "sequences of a micro-batch",
       "A: 1.5 #81"},
      {"batch.sequence",
       PT::integer,
       "2048",
       "1",
       "100000000",
       {},
       "tokens of a sequence",
       "A:F21"},
      {"batch.document",
       PT::integer,
       "auto",
       "1",
       "100000000",
       {"auto"},
       "median length of the documents that sequences are packed with; attention stays inside of "
       "them; auto: a sequence is one document",
       "A: 1.5 #86; A:F40"},
      {"batch.document_sigma",
       PT::real,
       "0",
       "0",
       "4",
       {},
       "spread of their lengths, log-normal, drawn anew for every sequence and step",
       "A: 1.5 #86"},
      {"batch.balance",
       PT::choice,
       "none",
       "",
       "",
       {"none", "greedy"},
       "greedy: the sequences of a step are dealt to data-parallel ranks and micro-batches so that "
       "the sums of squares are alike",
       "A:N058"},
      {"batch.microbatches",
       PT::integer,
       "auto",
       "1",
       "1000000",
       {"auto"},
       "micro-batches of a step; auto: global / (dp x micro)",
       "DESIGN 9.1"},
      {"recompute",
       PT::choice,
       "none",
       "",
       "",
       {"none", "selective", "full"},
       "what the backward pass computes again instead of keeping it",
       "A:F24, A:F26"},
      {"recompute_layers",
       PT::real,
       "1",
       "0.001",
       "1",
       {},
       "recompute full: share of the layers that are computed again, spread evenly, to a "
       "thousandth",
       "Megatron-LM --recompute-num-layers; selective checkpointing of blocks in fms and "
       "torchtitan"},
      {"steps", PT::integer, "1", "1", "1000", {}, "training steps", "DESIGN 9.1"},
      {"causal",
       PT::boolean,
       "true",
       "",
       "",
       {},
       "attention computes half of its square, as flash attention does",
       "A:F41"},
      {"attention",
       PT::choice,
       "flash",
       "",
       "",
       {"flash", "scores"},
       "flash keeps nothing of the size of its square; scores keeps softmax and dropout mask, and "
       "takes them through memory",
       "A:F21, A:F41"},
      {"precision.compute",
       PT::choice,
       "bf16",
       "",
       "",
       {"bf16", "fp16", "fp8", "mxfp8", "fp4"},
       "operands of matrix products; fp8, mxfp8 (a scale per block) and fp4: activations between "
       "layers stay bf16; fp4 operands are counted as a byte, scales included",
       "A: 1.4 #54, #55"},
      {"precision.output",
       PT::choice,
       "auto",
       "",
       "",
       {"auto", "bf16"},
       "operands of the output layer; auto: as compute. Frameworks leave it in bf16 in fp8 recipes",
       "A: 1.4 #54"},
      {"precision.gradients",
       PT::choice,
       "auto",
       "",
       "",
       {"auto", "fp32", "bf16", "fp8"},
       "gradients, kept and on the wire; auto: fp32, with compute fp16 2 bytes",
       "Megatron-LM accumulates in fp32 with bf16; A:F16 has 2 bytes"},
      {"precision.dispatch",
       PT::choice,
       "bf16",
       "",
       "",
       {"bf16", "fp8"},
       "activations on their way to experts",
       "A: 1.4 #57"},
      {"precision.optimizer",
       PT::bytes,
       "12B",
       "0B",
       "64B",
       {},
       "state per parameter: master copy and moments",
       "A:F16"},
      {"gradients.bucket",
       PT::bytes,
       "auto",
       "1B",
       "1TiB",
       {"auto"},
       "gradients are reduced when so many bytes of them are there, by whole layers; auto, by "
       "framework: megatron 40 million parameters, or 1 million per data-parallel rank if that is "
       "more; deepspeed 500 million parameters; ddp and fsdp 25 MiB; colossalai 12 MiB",
       "Megatron-LM DistributedDataParallelConfig, DeepSpeed reduce_bucket_size, PyTorch "
       "bucket_cap_mb (A:N105), ColossalAI reduce_bucket_size_in_m"},
      {"gradients.primitive",
       PT::choice,
       "auto",
       "",
       "",
       {"auto", "all-reduce", "reduce-scatter"},
       "zero 1 and 2: what reduces gradients. DeepSpeed all-reduces unless told otherwise; each "
       "rank then keeps its share; auto: all-reduce with framework deepspeed",
       "A: 1.5 #90"},
      {"gradients.unit",
       PT::integer,
       "1",
       "1",
       "1000",
       {},
       "zero 3: layers that are gathered and reduced together; embedding and output layer are "
       "units of their own",
       "A: 1.4 #47; A:N089"},
      {"gradients.padding",
       PT::real,
       "0",
       "0",
       "1",
       {},
       "zero 3: what padding adds to what is gathered and reduced",
       "A: 1.4 #50; A:N088: up to 33 %"},
      {"gradients.copies",
       PT::choice,
       "auto",
       "",
       "",
       {"auto", "on", "off"},
       "zero 3: kernels that copy parameters out of the gathered buffer and gradients into the "
       "one that is reduced, as with sharding by parameter; auto: with framework fsdp",
       "A: 1.4 #50; A:N087"},
      {"gradients.overlap",
       PT::boolean,
       "true",
       "",
       "",
       {},
       "gradients are reduced behind the last backward; false: after it",
       "A: 1.5 #62, #91"},
      {"gradients.norm",
       PT::boolean,
       "false",
       "",
       "",
       {},
       "before the optimizer all ranks sum up the square of their gradients' norm, an all-reduce "
       "of "
       "4 bytes, as clipping needs it: whoever is early waits there for the last rank of the job",
       "Megatron-LM clip_grads.py, with the distributed optimizer; A:N118"},
      {"gradients.average_loss",
       PT::boolean,
       "false",
       "",
       "",
       {},
       "the last stage averages the loss of every micro-batch over its data-parallel ranks, an "
       "all-reduce of 8 bytes; not with bidirectional schedules",
       "Megatron-LM loss_func; A:N118"},
      {"gradients.gather_overlap",
       PT::boolean,
       "true",
       "",
       "",
       {},
       "zero 1 and 2: the next step begins with the layers whose parameters are there; false: with "
       "all of them",
       "A: 1.5 #91"},
      {"gradients.prefetch",
       PT::integer,
       "1",
       "0",
       "1000",
       {},
       "zero 3: layers whose parameters are gathered ahead",
       "A: 1.4 #48"},
      {"gradients.rate_limit",
       PT::integer,
       "2",
       "1",
       "1000",
       {},
       "zero 3: gathered layers held or on their way at most, prefetch included",
       "A: 1.4 #49"},
      {"overlap.tensor",
       PT::integer,
       "1",
       "1",
       "64",
       {},
       "pieces into which a tensor-parallel collective and the matrix product next to it are cut, "
       "so that they overlap; 1: one after the other",
       "A: 1.5 #91"},
      {"overlap.pipeline",
       PT::boolean,
       "true",
       "",
       "",
       {},
       "a stage goes on while what it sent is on its way; false: it waits for it",
       "A: 1.5 #91"},
      {"overlap.context",
       PT::boolean,
       "true",
       "",
       "",
       {},
       "context ring: blocks travel beside the attention of the ones before; false: between",
       "A: 1.5 #74"},
      {"experts.sigma",
       PT::real,
       "0",
       "0",
       "4",
       {},
       "spread of the experts' load, log-normal, drawn anew for every layer and step; 0: even",
       "A: 1.5 #76; A: 1.6 #112"},
      {"experts.source_sigma",
       PT::real,
       "0",
       "0",
       "4",
       {},
       "the same, drawn for every sender and micro-batch on top",
       "A: 1.6 #112"},
      {"experts.dispatch",
       PT::choice,
       "direct",
       "",
       "",
       {"direct", "two-hop"},
       "direct: an all-to-all sends a token to each of its experts; two-hop: it goes once to every "
       "node that has some of them, to the rank in the sender's place, and is passed on there; "
       "results are summed in the node on their way back",
       "A: 1.5 #79 (DeepSeek-V3)"},
      {"experts.node_ranks",
       PT::integer,
       "8",
       "1",
       "1024",
       {},
       "two-hop: expert-parallel ranks of a node",
       "8 GPUs per server"},
      {"experts.nodes_per_token",
       PT::integer,
       "auto",
       "1",
       "1024",
       {"auto"},
       "two-hop: nodes whose experts a token may visit; DeepSeek-V3: 4; auto: all",
       "A: 1.5 #78; A:N098"},
      {"experts.counts",
       PT::boolean,
       "false",
       "",
       "",
       {},
       "before tokens are sent, all ranks that share the experts tell each other how many go to "
       "which, an all-gather of 8 bytes per expert in every layer's forward: whoever is early "
       "waits",
       "Megatron-LM token_dispatcher.py, alltoall: tokens per expert over the tensor and expert "
       "parallel group; A:N118"},
      {"experts.capacity",
       PT::real,
       "0",
       "0",
       "1000",
       {},
       "tokens that a sender gives an expert at most, over its even share; more are dropped; 0: "
       "nothing is dropped",
       "published runs: capacity factor 1"},
      {"dataset.token_bytes",
       PT::bytes,
       "0B",
       "0B",
       "1MiB",
       {},
       "read from storage for every token by the first and last stage; 0B: reading the data set is "
       "left out; tokens are 2 or 4 bytes, pictures thousands",
       "B: 2.11 I1"},
      {"dataset.prefetch",
       PT::integer,
       "2",
       "0",
       "100000",
       {},
       "micro-batches that are read ahead",
       "PyTorch DataLoader prefetch_factor: 2"},
      {"dataset.readers",
       PT::choice,
       "first",
       "",
       "",
       {"first", "all"},
       "first: the first of the tensor-parallel ranks reads and broadcasts; all: every rank reads",
       "Megatron-LM broadcast_data"},
      {"checkpoint.every",
       PT::integer,
       "0",
       "0",
       "1000000",
       {},
       "steps from one checkpoint to the next; 0: none is written",
       "DESIGN 9.1"},
      {"checkpoint.kind",
       PT::choice,
       "sync",
       "",
       "",
       {"sync", "async"},
       "sync: training stops until the checkpoint is written; async: until it is copied into the "
       "hosts' memory, and again where the one before is not written yet",
       "B: 2.11 I12; C: MEGASCALE, ACME-NSDI"},
      {"checkpoint.writers",
       PT::choice,
       "all",
       "",
       "",
       {"all", "first"},
       "all: every data-parallel rank writes an equal share; first: the first writes all of it",
       "PyTorch distributed checkpoints; Megatron-LM before them"},
      {"checkpoint.bytes",
       PT::bytes,
       "auto",
       "0B",
       "64B",
       {"auto"},
       "per parameter; auto: the parameter and its optimizer state, 14 B with bf16",
       "A:F16 without gradients"},
      {"checkpoint.copy_rate",
       PT::rate,
       "25GBps",
       "1Mbps",
       "",
       {},
       "from a GPU into its host's memory",
       "our choice: under half of PCIe 5.0 x16; MegaScale copies within seconds"},
      {"checkpoint.load",
       PT::boolean,
       "false",
       "",
       "",
       {},
       "the run begins with loading a checkpoint, as after a restart: every rank loads what it "
       "holds",
       "B: 2.11 I1, I2"},
      {"kernels",
       PT::choice,
       "fused",
       "",
       "",
       {"fused", "single"},
       "fused: one op of the timeline holds all kernels between two communications; single: every "
       "kernel is an op; times are the same",
       "our choice"},
  };
  return specs;
}

int64_t Training::first_layer(int64_t virtual_stage) const {
  return std::accumulate(layers_of.begin(), layers_of.begin() + virtual_stage, int64_t{0});
}

double Training::nodes_of_token() const {
  const int64_t nodes = ep / expert_node;
  const int64_t each = model.experts / nodes;
  // None of the topk experts, of those on the nodes allowed, is on a given one of these.
  double none = 1;
  for (int64_t i = 0; i < model.topk; ++i) {
    none *= static_cast<double>(std::max<int64_t>(0, (nodes_per_token - 1) * each - i)) /
            static_cast<double>(nodes_per_token * each - i);
  }
  return static_cast<double>(nodes_per_token) * (1 - none);
}

int64_t Training::padded_vocab() const {
  const int64_t multiple = 128 * tp;
  return (model.vocab + multiple - 1) / multiple * multiple;
}

namespace {

/// Ranks hold whole heads, with grouped queries whole groups, and whole columns.
void pad_shapes(ModelCard& m, int64_t tp) {
  const auto padded = [&](int64_t n) { return (n + tp - 1) / tp * tp; };
  if (m.mla() || m.kv_heads >= tp) {
    const int64_t group = m.heads / m.kv_heads;
    if (m.mla()) {
      m.heads = m.kv_heads = padded(m.heads);
    } else {
      m.kv_heads = padded(m.kv_heads);
      m.heads = m.kv_heads * group;
    }
  }
  m.ffn = padded(m.ffn);
  m.shared_ffn = padded(m.shared_ffn);
}

}  // namespace

int64_t Training::tp_of(int64_t replica, int64_t stage) const {
  for (const UnlikeReplica& u : unlike) {
    if (u.replica == replica && (u.stage < 0 || u.stage == stage)) return u.tp;
  }
  return tp;
}

int64_t Training::sync_tp_of(int64_t stage) const {
  int64_t least = tp;
  for (const UnlikeReplica& u : unlike) {
    if (u.stage < 0 || u.stage == stage) least = std::min(least, u.tp);
  }
  return least;
}

int64_t Training::alike_replica() const {
  int64_t next = 0;
  for (const UnlikeReplica& u : unlike) {
    if (u.replica > next) break;
    if (u.replica == next) ++next;
  }
  return next < dp ? next : -1;
}

Training Training::with_tp(int64_t ranks_of_group) const {
  if (ranks_of_group == tp) return *this;
  Training t = *this;
  t.tp = t.expert_tp = ranks_of_group;
  t.model = card;
  pad_shapes(t.model, t.tp);
  t.sequence_parallel = sequence_parallel && t.tp > 1;
  t.gather_again = gather_again && t.sequence_parallel;
  t.tensor_chunks = t.tp > 1 ? tensor_chunks : 1;
  t.first_reads = first_reads && t.tp > 1;
  return t;
}

Training Training::of_replica(int64_t replica, int64_t stage) const {
  Training t = with_tp(tp_of(replica, stage));
  t.sync_tp = unlike.empty() ? t.tp : sync_tp_of(stage);
  for (const UnlikeReplica& u : unlike) {
    if (u.replica == replica) t.microbatches = u.microbatches;
  }
  return t;
}

std::pair<int64_t, int64_t> Training::dense_parts(int64_t which) const {
  const ModelCard& m = model;
  const int64_t norm = m.hidden * (m.biases ? 2 : 1);
  if (which == 0) return {m.positions * m.hidden, padded_vocab() / tp * m.hidden};
  if (which == m.layers + 1) {
    // Where the first and the last stage share a rank, it holds them once.
    const bool own = !m.tied_embeddings || (pp > 1 && !turned());
    return {norm, own ? padded_vocab() / tp * m.hidden : 0};
  }
  const int64_t layer = which - 1;
  int64_t whole = 2 * norm;
  int64_t split = 0;
  if (m.mla()) {
    const LatentAttention& a = m.latent;
    const int64_t down = m.hidden * (a.q_rank + a.kv_rank + a.rope) + a.q_rank + a.kv_rank;
    whole += down;
    split += m.attention_parameters() - down;
  } else {
    // Fewer key-value heads than ranks: some hold the same ones.
    const int64_t kv = std::max<int64_t>(m.kv_heads, tp) * 2 * m.head_size;
    const int64_t rows = m.heads * m.head_size + kv;
    split += m.hidden * rows + m.heads * m.head_size * m.hidden + (m.biases ? rows : 0);
    whole += m.biases ? m.hidden : 0;
  }
  const int64_t mlp_bias = m.biases ? m.hidden : 0;  // of the second matrix: not split
  if (m.moe(layer)) {
    whole += m.hidden * m.experts;
    if (m.shared_ffn > 0) {
      split += m.mlp_parameters(m.shared_ffn) - mlp_bias;
      whole += mlp_bias;
    }
  } else {
    split += m.mlp_parameters(m.ffn) - mlp_bias;
    whole += mlp_bias;
  }
  return {whole, split / tp};
}

int64_t Training::experts_on_rank(int64_t which) const {
  if (which == 0 || which == model.layers + 1) return 0;
  return model.experts_of_layer(which - 1) / (ep * expert_tp);
}

namespace {

class Resolver {
 public:
  Resolver(const ModelCard& model, const Params& params, SourcePos pos)
      : p_(params), pos_(std::move(pos)) {
    t_.model = t_.card = model;
  }

  Training resolve(int64_t gpus) {
    read_layout(gpus);
    read_batch();
    read_precision();
    read_rest();
    if (p_.boolean("layout.uneven_tp")) {
      pad_shapes(t_.model, t_.tp);
      if (automatic("layout.expert_tp")) {
        t_.model.expert_ffn = (t_.model.expert_ffn + t_.tp - 1) / t_.tp * t_.tp;
      }
    }
    check_shapes();
    check_experts();
    split_layers();
    t_.sync_tp = t_.tp;
    if (!p_.is_word("layout.unlike", "none")) read_unlike();
    return std::move(t_);
  }

 private:
  [[noreturn]] void fail(const std::string& key, const std::string& problem,
                         const std::string& remedy = {}) const {
    const Origin& origin = p_.origin(key);
    throw UserError(origin.pos.file.empty() ? pos_ : origin.pos, problem, remedy);
  }
  [[nodiscard]] bool automatic(const std::string& key) const { return p_.is_word(key, "auto"); }

  void read_layout(int64_t gpus) {
    t_.tp = p_.integer("layout.tp");
    t_.cp = p_.integer("layout.cp");
    t_.pp = p_.integer("layout.pp");
    t_.ep = p_.integer("layout.ep");
    const int64_t replica = t_.tp * t_.cp * t_.pp;
    const std::string product = fmt::format("tp {} x cp {} x pp {}", t_.tp, t_.cp, t_.pp);
    if (!automatic("layout.dp")) {
      t_.dp = p_.integer("layout.dp");
      if (gpus > 0 && replica * t_.dp > gpus) {
        fail("layout.dp",
             fmt::format("{} x dp {} = {} ranks, the cluster has {} GPUs", product, t_.dp,
                         replica * t_.dp, gpus),
             "leave layout.dp out or correct one of them");
      }
    } else {
      if (gpus == 0) {
        fail("layout.dp", "layout.dp: auto needs to know the number of GPUs",
             "give cluster.nodes or layout.dp");
      }
      if (gpus % replica != 0) {
        fail("layout.tp", fmt::format("{} GPUs are no multiple of {} = {}", gpus, product, replica),
             "change the layout or cluster.nodes");
      }
      t_.dp = gpus / replica;
    }
    t_.ranks = replica * t_.dp;
    if (t_.ranks > 4'000'000) {
      fail("layout.dp",
           fmt::format("{} x dp {} = {} ranks are more than 4000000", product, t_.dp, t_.ranks));
    }
    t_.zero = static_cast<int>(p_.integer("layout.zero"));
    t_.shard = automatic("layout.shard") ? t_.cp * t_.dp : p_.integer("layout.shard");
    if (t_.dp * t_.cp % t_.shard != 0 || (t_.shard < t_.cp * t_.dp && t_.dp % t_.shard != 0)) {
      fail("layout.shard", fmt::format("shard {} does not divide dp {}", t_.shard, t_.dp));
    }
    if (t_.zero == 0) t_.shard = 1;
    t_.sequence_parallel = t_.tp > 1 && p_.boolean("layout.sequence_parallel");
    t_.gather_again = p_.boolean("layout.gather_again");
    if (t_.gather_again && t_.tp > 1 && !t_.sequence_parallel) {
      fail("layout.gather_again",
           "without sequence parallelism every rank has whole inputs: nothing to gather again",
           "remove gather_again, or set layout.sequence_parallel to true");
    }
    t_.gather_again = t_.gather_again && t_.sequence_parallel;
    t_.scatter_gather = p_.boolean("layout.scatter_gather");
    if (t_.scatter_gather && t_.sequence_parallel) {
      fail("layout.scatter_gather",
           "with sequence parallelism every rank already sends its own part",
           "remove scatter_gather");
    }
    t_.context = p_.is_word("layout.context", "ring")         ? ContextKind::ring
                 : p_.is_word("layout.context", "all-gather") ? ContextKind::all_gather
                                                              : ContextKind::all_to_all;
    read_order();

    t_.schedule = p_.is_word("schedule.kind", "gpipe")         ? ScheduleKind::gpipe
                  : p_.is_word("schedule.kind", "1f1b")        ? ScheduleKind::one_f_one_b
                  : p_.is_word("schedule.kind", "interleaved") ? ScheduleKind::interleaved
                  : p_.is_word("schedule.kind", "dualpipe")    ? ScheduleKind::dualpipe
                  : p_.is_word("schedule.kind", "dualpipe-v")  ? ScheduleKind::dualpipe_v
                                                               : ScheduleKind::split_backward;
    const bool interleaved = t_.schedule == ScheduleKind::interleaved;
    const bool vee = t_.schedule == ScheduleKind::dualpipe_v;
    t_.vpp =
        automatic("schedule.chunks") ? (interleaved || vee ? 2 : 1) : p_.integer("schedule.chunks");
    if (t_.turned()) {
      const std::string& kind = p_.text("schedule.kind");
      if (t_.pp < 2 || (!vee && t_.pp % 2 != 0)) {
        fail("schedule.kind", fmt::format("schedule {} needs {} of stages, not pp {}", kind,
                                          vee ? "more than one" : "an even number", t_.pp));
      }
      if (t_.vpp != (vee ? 2 : 1)) {
        fail("schedule.chunks", fmt::format("schedule {} has its own chunks", kind),
             "leave schedule.chunks out");
      }
      if (t_.zero >= 2) {
        fail("layout.zero", fmt::format("schedule {} with zero {} is not built yet", kind, t_.zero),
             "use zero 0 or 1, as its authors do");
      }
      if (!vee && !automatic("layout.shard")) {
        fail("layout.shard", "hybrid sharding with schedule dualpipe is not built yet");
      }
      // Copies of a stage share its optimizer state, too.
      if (!vee && t_.zero > 0) t_.shard *= 2;
    } else if (!interleaved && t_.vpp > 1) {
      fail("schedule.chunks",
           fmt::format("schedule {} has one chunk per stage, not {}", p_.text("schedule.kind"),
                       t_.vpp),
           "use 'kind: interleaved'");
    }
    if (interleaved && t_.pp == 1) {
      fail("schedule.kind", "an interleaved schedule needs more than one stage (layout.pp)");
    }
  }

  void read_order() {
    // By name: whose ranks are numbered how. DeepSpeed's topology has the axes pipe, data, model,
    // torchtitan's mesh pp, dp, cp, tp, ColossalAI's dp, pp, tp: the last one is the fastest.
    static const std::map<std::string, std::string> orders = {
        {"megatron", "tp-cp-ep-dp-pp"},   {"megatron-pp-first", "tp-cp-ep-pp-dp"},
        {"deepspeed", "tp-cp-ep-dp-pp"},  {"torchtitan", "tp-cp-ep-dp-pp"},
        {"colossalai", "tp-cp-ep-pp-dp"}, {"ddp", "tp-cp-ep-dp-pp"},
        {"fsdp", "tp-cp-ep-dp-pp"}};
    std::string text = p_.text("layout.order");
    if (text == "auto") text = p_.text("framework");
    if (const auto it = orders.find(text); it != orders.end()) text = it->second;
    std::stringstream in(text);
    for (std::string word; std::getline(in, word, '-');) t_.order.push_back(word);
    std::vector<std::string> sorted = t_.order;
    std::sort(sorted.begin(), sorted.end());
    if (sorted != std::vector<std::string>{"cp", "dp", "ep", "pp", "tp"}) {
      fail("layout.order",
           "layout.order '" + p_.text("layout.order") +
               "' must name tp, cp, ep, dp and pp once each",
           "for example tp-cp-ep-dp-pp or tp-cp-ep-pp-dp, or a name: colossalai, deepspeed, "
           "megatron, megatron-pp-first, torchtitan");
    }
  }

  void read_batch() {
    t_.micro_batch = p_.integer("batch.micro");
    t_.sequence = p_.integer("batch.sequence");
    t_.steps = p_.integer("steps");
    const int64_t per = t_.dp * t_.micro_batch;
    const bool given = !automatic("batch.microbatches");
    if (given) t_.microbatches = p_.integer("batch.microbatches");
    if (automatic("batch.global")) {
      if (!given) t_.microbatches = t_.pp;
      t_.global_batch = t_.microbatches * per;
    } else {
      t_.global_batch = p_.integer("batch.global");
      const std::string arithmetic =
          fmt::format("global {} / (dp {} x micro {})", t_.global_batch, t_.dp, t_.micro_batch);
      if (t_.global_batch % per != 0) {
        fail("batch.global",
             fmt::format("{} = {:.6g} is no whole number of micro-batches", arithmetic,
                         static_cast<double>(t_.global_batch) / static_cast<double>(per)),
             fmt::format("a multiple of {} works", per));
      }
      const int64_t derived = t_.global_batch / per;
      if (given && t_.microbatches != derived) {
        fail("batch.microbatches",
             fmt::format("microbatches = {} = {}, not {}", arithmetic, derived, t_.microbatches),
             "leave batch.microbatches out or correct one of them");
      }
      t_.microbatches = derived;
    }
    if (t_.turned() &&
        (t_.microbatches < 2 * t_.pp || (t_.copies() == 2 && t_.microbatches % 2 != 0))) {
      fail("schedule.kind",
           fmt::format("schedule {} needs {}at least 2 x pp = {} micro-batches, not {}",
                       p_.text("schedule.kind"), t_.copies() == 2 ? "an even number of " : "",
                       2 * t_.pp, t_.microbatches),
           "raise batch.global");
    }
    if (t_.schedule == ScheduleKind::interleaved && t_.microbatches % t_.pp != 0) {
      fail(
          "schedule.kind",
          fmt::format("an interleaved schedule needs a multiple of pp {} micro-batches, not global "
                      "{} / (dp {} x micro {}) = {}",
                      t_.pp, t_.global_batch, t_.dp, t_.micro_batch, t_.microbatches));
    }
    if (t_.sequence % t_.cp != 0) {
      fail("batch.sequence",
           fmt::format("a sequence of {} tokens does not split over cp {}", t_.sequence, t_.cp));
    }
    if (t_.sequence_parallel && t_.tokens() % t_.tp != 0) {
      fail("batch.sequence",
           fmt::format("micro {} x sequence {} / cp {} = {} tokens do not split over tp {}",
                       t_.micro_batch, t_.sequence, t_.cp, t_.tokens(), t_.tp),
           "or set layout.sequence_parallel to false");
    }
  }

  void read_precision() {
    using Precision = Kernel::Precision;
    const std::string& compute = p_.text("precision.compute");
    t_.gemm_precision = compute == "fp8"     ? Precision::fp8
                        : compute == "mxfp8" ? Precision::fp8_blocks
                        : compute == "fp4"   ? Precision::fp4
                                             : Precision::half;
    t_.gemm_bytes = t_.gemm_precision == Precision::half ? 2 : 1;
    t_.output_precision =
        p_.is_word("precision.output", "bf16") ? Precision::half : t_.gemm_precision;
    const std::string& gradients = p_.text("precision.gradients");
    t_.gradient_bytes = gradients == "auto"   ? (p_.is_word("precision.compute", "fp16") ? 2 : 4)
                        : gradients == "fp32" ? 4
                        : gradients == "bf16" ? 2
                                              : 1;
    t_.dispatch_bytes = p_.is_word("precision.dispatch", "fp8") ? 1 : 2;
    t_.optimizer_bytes = p_.bytes("precision.optimizer").count();
    t_.step_overhead = p_.time("step_overhead");
  }

  void read_rest() {
    t_.recompute = p_.is_word("recompute", "none")        ? Recompute::none
                   : p_.is_word("recompute", "selective") ? Recompute::selective
                                                          : Recompute::full;
    t_.recompute_milli = std::llround(1000 * p_.real("recompute_layers"));
    if (t_.recompute != Recompute::full && t_.recompute_milli != 1000) {
      fail("recompute_layers",
           "recompute_layers is about recompute: full, this is " + p_.text("recompute"),
           "remove it, or use recompute: full");
    }
    if (!automatic("batch.document")) {
      t_.document = std::min(t_.sequence, p_.integer("batch.document"));
    } else if (p_.real("batch.document_sigma") > 0 || p_.is_word("batch.balance", "greedy")) {
      fail(p_.real("batch.document_sigma") > 0 ? "batch.document_sigma" : "batch.balance",
           "without documents all sequences are alike", "give batch.document, their median length");
    }
    t_.document_sigma = p_.real("batch.document_sigma");
    t_.balance_sequences = p_.is_word("batch.balance", "greedy");
    t_.causal = p_.boolean("causal");
    t_.stored_scores = p_.is_word("attention", "scores");
    const std::string& framework = p_.text("framework");
    t_.bucket_bytes = !automatic("gradients.bucket") ? p_.bytes("gradients.bucket").count()
                      : framework == "megatron"
                          ? std::max<int64_t>(40'000'000, 1'000'000 * t_.dp) * t_.gradient_bytes
                      : framework == "deepspeed"  ? 500'000'000 * t_.gradient_bytes
                      : framework == "colossalai" ? int64_t{12} << 20
                                                  : int64_t{25} << 20;
    t_.all_reduced = automatic("gradients.primitive")
                         ? framework == "deepspeed"
                         : p_.text("gradients.primitive") == "all-reduce";
    if (!automatic("gradients.primitive")) {
      if (t_.zero == 0 && !t_.all_reduced) {
        fail("gradients.primitive", "with zero 0 every rank needs all gradients: all-reduce",
             "use zero 1, or remove gradients.primitive");
      }
      if (t_.zero == 3 && t_.all_reduced) {
        fail("gradients.primitive", "with zero 3 gradients are reduce-scattered",
             "use zero 2, or remove gradients.primitive");
      }
    }
    t_.unit = p_.integer("gradients.unit");
    t_.padding = p_.real("gradients.padding");
    t_.copies_around =
        automatic("gradients.copies") ? framework == "fsdp" : p_.is_word("gradients.copies", "on");
    if (t_.zero < 3) {
      for (const char* key : {"gradients.unit", "gradients.padding"}) {
        if (p_.origin(key).kind != Origin::Kind::default_value) {
          fail(key,
               std::string(key) + " is about zero 3, this layout has zero " +
                   std::to_string(t_.zero),
               "remove it, or use zero 3");
        }
      }
    }
    t_.tensor_chunks = t_.tp > 1 ? p_.integer("overlap.tensor") : 1;
    t_.overlap_pipeline = p_.boolean("overlap.pipeline");
    t_.overlap_context = p_.boolean("overlap.context");
    t_.overlap_gradients = p_.boolean("gradients.overlap");
    t_.gradient_norm = p_.boolean("gradients.norm");
    t_.average_loss = p_.boolean("gradients.average_loss");
    if (t_.average_loss && t_.copies() == 2) {
      fail("gradients.average_loss", "two stages hold the end of a bidirectional pipeline",
           "use another schedule, or average_loss: false");
    }
    t_.overlap_parameters = p_.boolean("gradients.gather_overlap");
    t_.prefetch = std::min(p_.integer("gradients.prefetch"), p_.integer("gradients.rate_limit"));
    t_.token_bytes = p_.bytes("dataset.token_bytes").count();
    t_.data_prefetch = p_.integer("dataset.prefetch");
    t_.first_reads = t_.tp > 1 && p_.is_word("dataset.readers", "first");
    t_.checkpoint_every = p_.integer("checkpoint.every");
    t_.async_checkpoint = p_.is_word("checkpoint.kind", "async");
    t_.first_writes = p_.is_word("checkpoint.writers", "first");
    t_.checkpoint_bytes = automatic("checkpoint.bytes") ? t_.parameter_bytes + t_.optimizer_bytes
                                                        : p_.bytes("checkpoint.bytes").count();
    t_.copy_bps = p_.rate("checkpoint.copy_rate").bps();
    t_.load_checkpoint = p_.boolean("checkpoint.load");
    t_.expert_sigma = p_.real("experts.sigma");
    t_.source_sigma = p_.real("experts.source_sigma");
    t_.capacity = p_.real("experts.capacity");
    t_.token_counts = p_.boolean("experts.counts");
    read_dispatch();
    t_.single_kernels = p_.is_word("kernels", "single");
  }

  void read_dispatch() {
    t_.expert_node = t_.ep;
    if (p_.is_word("experts.dispatch", "direct")) return;
    const ModelCard& m = t_.model;
    t_.expert_node = std::min(t_.ep, p_.integer("experts.node_ranks"));
    if (t_.ep % t_.expert_node != 0) {
      fail("experts.node_ranks",
           fmt::format("ep {} is no multiple of {} ranks of a node", t_.ep, t_.expert_node));
    }
    const int64_t nodes = t_.ep / t_.expert_node;
    t_.nodes_per_token = automatic("experts.nodes_per_token")
                             ? nodes
                             : std::min(nodes, p_.integer("experts.nodes_per_token"));
    if (m.experts > 0 && t_.nodes_per_token * m.experts / nodes < m.topk) {
      fail("experts.nodes_per_token",
           fmt::format("{} nodes of {} experts each cannot give a token {} experts",
                       t_.nodes_per_token, m.experts / nodes, m.topk));
    }
    if (t_.expert_sigma > 0 || t_.source_sigma > 0) {
      fail("experts.dispatch", "two-hop dispatch with uneven loads is not built yet",
           "leave experts.sigma and source_sigma out, or use dispatch: direct");
    }
  }

  // ---- replicas of unlike tensor parallelism

  /// "[{replica: 0, tp: 7}, {replica: 2-3, tp: 6, boost: auto}]" -> maps, with braces checked.
  std::vector<std::map<std::string, std::string>> unlike_entries() const {
    const std::string& text = p_.text("layout.unlike");
    const auto bad = [&](const std::string& why) {
      fail("layout.unlike", "layout.unlike '" + text + "': " + why,
           "write '[{replica: 0, tp: 7}]'; more keys: stage, batch, boost");
    };
    const auto trim = [](std::string s) {
      const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\n'; };
      while (!s.empty() && blank(s.back())) s.pop_back();
      size_t at = 0;
      while (at < s.size() && blank(s[at])) ++at;
      return s.substr(at);
    };
    std::string rest = trim(text);
    if (rest.size() >= 2 && rest.front() == '[' && rest.back() == ']') {
      rest = trim(rest.substr(1, rest.size() - 2));
    }
    std::vector<std::map<std::string, std::string>> out;
    while (!rest.empty()) {
      const size_t end = rest.find('}');
      if (rest.front() != '{' || end == std::string::npos) bad("entries are in braces");
      std::stringstream in(rest.substr(1, end - 1));
      auto& entry = out.emplace_back();
      for (std::string item; std::getline(in, item, ',');) {
        const size_t colon = item.find(':');
        if (colon == std::string::npos) bad("'" + trim(item) + "' is no key with a value");
        const std::string key = trim(item.substr(0, colon));
        if (key != "replica" && key != "stage" && key != "tp" && key != "batch" && key != "boost") {
          bad("unknown key '" + key + "'");
        }
        if (!entry.emplace(key, trim(item.substr(colon + 1))).second) bad(key + " is given twice");
      }
      if (entry.count("replica") == 0 || entry.count("tp") == 0) {
        bad("every entry needs replica and tp");
      }
      rest = trim(rest.substr(end + 1));
      if (!rest.empty()) {
        if (rest.front() != ',') bad("entries are separated by commas");
        rest = trim(rest.substr(1));
      }
    }
    if (out.empty()) bad("names no replica");
    return out;
  }

  [[nodiscard]] int64_t unlike_number(const std::string& key, const std::string& text,
                                      int64_t most) const {
    int64_t n = 0;
    bool good = !text.empty() && text.size() < 10;
    for (const char c : text) {
      good = good && c >= '0' && c <= '9';
      if (good) n = 10 * n + (c - '0');
    }
    if (!good || n > most) {
      fail("layout.unlike",
           fmt::format("layout.unlike: {} '{}' is no whole number up to {}", key, text, most));
    }
    return n;
  }

  void read_unlike() {
    refuse_unlike();
    const auto entries = unlike_entries();
    std::map<std::pair<int64_t, int64_t>, UnlikeReplica> found;  // by replica and stage
    std::map<int64_t, int64_t> batches;  // replica -> micro-batches, where it says how many
    for (const auto& entry : entries) {
      const std::string& where = entry.at("replica");
      const size_t dash = where.find('-');
      const int64_t first = unlike_number("replica", where.substr(0, dash), t_.dp - 1);
      const int64_t last = dash == std::string::npos
                               ? first
                               : unlike_number("replica", where.substr(dash + 1), t_.dp - 1);
      UnlikeReplica u;
      u.tp = unlike_number("tp", entry.at("tp"), t_.tp);
      if (u.tp < 1 || u.tp == t_.tp) {
        fail("layout.unlike",
             fmt::format("layout.unlike: tp {} of replica {} is not below layout.tp {}", u.tp,
                         where, t_.tp),
             "leave the replica out: it is like the others");
      }
      check_unlike_shapes(u.tp);
      if (const auto it = entry.find("batch"); it != entry.end()) {
        const int64_t batch = unlike_number("batch", it->second, t_.global_batch);
        if (batch == 0 || batch % t_.micro_batch != 0) {
          fail("layout.unlike",
               fmt::format("layout.unlike: batch {} is no whole number of micro-batches of {}",
                           batch, t_.micro_batch));
        }
        u.microbatches = batch / t_.micro_batch;
      }
      if (const auto it = entry.find("boost"); it != entry.end()) {
        u.boost = it->second == "auto"
                      ? static_cast<double>(t_.tp) / static_cast<double>(u.tp)  // A:F63
                      : unlike_boost(it->second);
      }
      if (const auto it = entry.find("stage"); it != entry.end()) {
        u.stage = unlike_number("stage", it->second, t_.pp - 1);
        if (t_.scatter_gather && t_.pp > 1) {
          fail("layout.unlike", "layout.unlike: one stage with scatter_gather is not built yet",
               "leave the stage or layout.scatter_gather out");
        }
      }
      for (u.replica = first; u.replica <= last; ++u.replica) {
        const auto next = found.lower_bound({u.replica, -1});
        const bool other = next != found.end() && next->first.first == u.replica &&
                           (u.stage < 0 || next->first.second < 0);
        if (other || !found.emplace(std::make_pair(u.replica, u.stage), u).second) {
          fail("layout.unlike", fmt::format("layout.unlike: replica {} is named twice", u.replica));
        }
        if (u.microbatches == 0) continue;
        const auto [it, added] = batches.emplace(u.replica, u.microbatches);
        if (!added && it->second != u.microbatches) {
          fail("layout.unlike",
               fmt::format("layout.unlike: replica {} has two batches", u.replica));
        }
      }
    }
    int64_t given = 0;
    for (const auto& [replica, n] : batches) given += n * t_.micro_batch;
    const auto saying = static_cast<int64_t>(batches.size());
    // A:F64: what some do not compute, the others do.
    const int64_t rest = t_.global_batch - given;
    const int64_t takers = t_.dp - saying;
    if (saying > 0 &&
        (takers == 0 ? rest != 0 : rest <= 0 || rest % (takers * t_.micro_batch) != 0)) {
      fail("layout.unlike",
           fmt::format("global {} less {} sequences of unlike replicas leaves {}: no whole number "
                       "of micro-batches of {} on each of the {} other replicas",
                       t_.global_batch, given, rest, t_.micro_batch, takers),
           takers > 0 ? fmt::format("leave a multiple of {}", takers * t_.micro_batch)
                      : "let one replica give no batch");
    }
    if (saying > 0 && takers > 0) t_.microbatches = rest / takers / t_.micro_batch;
    for (auto& [place, u] : found) {
      const auto it = batches.find(u.replica);
      u.microbatches = it == batches.end() ? t_.microbatches : it->second;
      t_.sync_tp = std::min(t_.sync_tp, u.tp);
      t_.unlike.push_back(u);
    }
    for (const UnlikeReplica& u : t_.unlike) {
      if (!t_.card.tied_embeddings || t_.pp == 1) break;
      const int64_t first = t_.tp_of(u.replica, 0);
      const int64_t last = t_.tp_of(u.replica, t_.pp - 1);
      if (first == last) continue;
      fail("layout.unlike",
           fmt::format("layout.unlike: replica {} has tp {} in the first and {} in the last stage, "
                       "whose tied embeddings are summed: not built yet",
                       u.replica, first, last),
           "use a model without tied embeddings, or another stage");
    }
    if (t_.schedule != ScheduleKind::interleaved) return;
    for (int64_t r = 0; r < t_.dp; ++r) {
      if (const int64_t m = t_.of_replica(r).microbatches; m % t_.pp != 0) {
        fail("layout.unlike", fmt::format("an interleaved schedule needs a multiple of pp {} "
                                          "micro-batches, replica {} has {}",
                                          t_.pp, r, m));
      }
    }
  }

  [[nodiscard]] double unlike_boost(const std::string& text) const {
    std::stringstream in(text);
    double boost = 0;
    if (!(in >> boost) || !in.eof() || !(boost >= 0.1 && boost <= 10)) {
      fail("layout.unlike", "layout.unlike: boost '" + text + "' is no number from 0.1 to 10",
           "or auto: layout.tp / tp");
    }
    return boost;
  }

  /// What replicas of unlike tensor parallelism do not go with.
  void refuse_unlike() const {
    const auto refuse = [&](bool here, const std::string& what) {
      if (!here) return;
      fail("layout.unlike", "layout.unlike with " + what + " is not built yet",
           "it goes with dense models, zero 0 or 1 over all replicas, pp, sequence parallelism");
    };
    refuse(t_.zero >= 2, fmt::format("zero {}", t_.zero));
    refuse(t_.zero == 1 && t_.shard != t_.dp, "hybrid sharding (layout.shard)");
    refuse(t_.cp > 1, fmt::format("cp {}", t_.cp));
    refuse(t_.model.experts > 0, "experts");
    refuse(t_.turned(), "schedule " + p_.text("schedule.kind"));
    refuse(t_.document > 0, "batch.document");
    refuse(t_.average_loss, "gradients.average_loss");
  }

  void check_unlike_shapes(int64_t tp) const {
    const ModelCard& m = t_.card;
    if (m.mla() || m.kv_heads >= tp) return;
    if (tp % m.kv_heads != 0 || m.heads % tp != 0) {
      fail("layout.unlike",
           fmt::format("layout.unlike: {} heads with {} key-value heads of model {} do not split "
                       "over tp {}",
                       m.heads, m.kv_heads, m.name, tp),
           fmt::format("at most {} ranks take whole groups", m.kv_heads));
    }
  }

  void check_shapes() const {
    const ModelCard& m = t_.model;
    const auto splits = [&](const char* what, int64_t n) {
      if (n % t_.tp == 0) return;
      fail("layout.tp",
           fmt::format("{} {} of model {} do not split over tp {}", n, what, m.name, t_.tp),
           "change tp, or set layout.uneven_tp: the fullest rank sets the pace");
    };
    splits("heads", m.heads);
    if (m.ffn > 0) splits("columns of the MLP", m.ffn);
    if (m.kv_heads % t_.tp != 0 && t_.tp % m.kv_heads != 0) {
      fail("layout.tp", fmt::format("{} key-value heads of model {} do not split over tp {}",
                                    m.kv_heads, m.name, t_.tp));
    }
    if (t_.cp > 1 && t_.context == ContextKind::all_to_all && m.heads / t_.tp % t_.cp != 0) {
      fail("layout.context", fmt::format("all-to-all splits heads {} / tp {} = {} over cp {}",
                                         m.heads, t_.tp, m.heads / t_.tp, t_.cp));
    }
    if (t_.cp > 1 && m.mla() && t_.context != ContextKind::all_gather &&
        t_.context != ContextKind::ring) {
      fail("layout.context", "latent attention goes with ring or all-gather");
    }
  }

  void check_experts() {
    const ModelCard& m = t_.model;
    if (m.experts == 0) {
      if (t_.ep > 1) {
        fail("layout.ep", fmt::format("ep {}: model {} has no experts", t_.ep, m.name));
      }
      t_.expert_tp = t_.tp;
      return;
    }
    t_.expert_tp = automatic("layout.expert_tp") ? t_.tp : p_.integer("layout.expert_tp");
    if (m.experts % t_.ep != 0) {
      fail("layout.ep", fmt::format("{} experts do not split over ep {}", m.experts, t_.ep));
    }
    if (m.expert_ffn % t_.expert_tp != 0) {
      fail("layout.expert_tp", fmt::format("{} columns of an expert do not split over expert_tp {}",
                                           m.expert_ffn, t_.expert_tp));
    }
    const int64_t stage = t_.tp * t_.cp * t_.dp;
    if (stage % (t_.expert_tp * t_.ep) != 0) {
      fail("layout.ep",
           fmt::format("tp {} x cp {} x dp {} = {} ranks of a stage are no multiple of expert_tp "
                       "{} x ep {} = {}",
                       t_.tp, t_.cp, t_.dp, stage, t_.expert_tp, t_.ep, t_.expert_tp * t_.ep));
    }
    if (t_.tp > 1 && !t_.sequence_parallel) {
      fail("layout.sequence_parallel", "experts with tensor parallelism need sequence parallelism",
           "set layout.sequence_parallel to true (Megatron-LM requires it, too)");
    }
    // Ranks of a stage must be the same for both kinds of layer.
    const auto pipeline = std::find(t_.order.begin(), t_.order.end(), "pp");
    int64_t dense_before = 1;
    int64_t expert_before = 1;
    for (auto it = t_.order.begin(); it != pipeline; ++it) {
      if (*it == "tp") dense_before *= t_.tp, expert_before *= t_.expert_tp;
      if (*it == "cp") dense_before *= t_.cp;
      if (*it == "ep") expert_before *= t_.ep;
      if (*it == "dp") dense_before *= t_.dp, expert_before *= t_.expert_dp();
    }
    if (dense_before != expert_before) {
      fail("layout.order",
           fmt::format("in order {} a stage's ranks are {} apart in dense layers and {} in experts",
                       fmt::join(t_.order, "-"), dense_before, expert_before),
           "make tp x cp equal expert_tp x ep or put pp last");
    }
    if (t_.shard < t_.cp * t_.dp && t_.zero > 0 && t_.ep > 1) {
      fail("layout.shard", "hybrid sharding with expert parallelism is not built yet");
    }
  }

  void split_layers() {
    const int64_t stages = t_.virtual_stages();
    const int64_t layers = t_.model.layers;
    const std::string text = p_.text("layout.layers");
    t_.layers_of.assign(static_cast<size_t>(stages), layers / stages);
    if (text != "auto") {
      t_.layers_of.clear();
      std::stringstream in(text);
      int64_t sum = 0;
      for (int64_t n = 0; in >> n;) {
        if (n < 0) fail("layout.layers", "layout.layers '" + text + "' has a negative number");
        t_.layers_of.push_back(n);
        sum += n;
      }
      if (!in.eof() || static_cast<int64_t>(t_.layers_of.size()) != stages || sum != layers) {
        fail(
            "layout.layers",
            fmt::format("layout.layers '{}' must be {} numbers (pp {} x chunks {}) that sum to the "
                        "{} layers of model {}",
                        text, stages, t_.pp, t_.vpp, layers, t_.model.name));
      }
      return;
    }
    if (layers < stages) {
      fail("layout.pp", fmt::format("{} layers of model {} are fewer than pp {} x chunks {} = {} "
                                    "stages",
                                    layers, t_.model.name, t_.pp, t_.vpp, stages));
    }
    const int64_t rest = layers % stages;
    if (rest == 0) return;
    if (rest == stages - 1) {  // the output layer counts as one
      for (int64_t i = 0; i + 1 < stages; ++i) ++t_.layers_of[static_cast<size_t>(i)];
    } else if (rest == stages - 2) {  // the embedding, too
      for (int64_t i = 1; i + 1 < stages; ++i) ++t_.layers_of[static_cast<size_t>(i)];
    } else {
      const int64_t first = (stages - rest) / 2;
      for (int64_t i = first; i < first + rest; ++i) ++t_.layers_of[static_cast<size_t>(i)];
    }
  }

  const Params& p_;
  SourcePos pos_;
  Training t_;
};

}  // namespace

Training resolve_training(const ModelCard& model, const Params& params, int64_t gpus,
                          const SourcePos& pos) {
  try {
    model.check();
  } catch (const UserError& e) {
    throw UserError(pos, e.what());
  }
  return Resolver(model, params, pos).resolve(gpus);
}

}  // namespace trainyard
