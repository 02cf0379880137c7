// SPDX-License-Identifier: MIT
// What frameworks really issue: rank orders, buckets, primitives, units, padding, copies, pieces.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/workload/training_test_util.h"
#include "workload/generator/flops.h"
#include "workload/generator/generate.h"
#include "workload/generator/grid.h"
#include "workload/generator/layer_work.h"
#include "workload/generator/memory.h"
#include "workload/generator/sequence_lengths.h"
#include "workload/generator/volume.h"

namespace trainyard {
namespace {

using test::gpt;
using test::ops_of;
using test::Settings;
using test::training;
using test::with;

std::vector<Op> collectives(const Job& job, Dimension d, uint32_t rank = 0) {
  return ops_of(job, rank, [&](const Op& op, const Stream& stream) {
    return op.kind == OpKind::collective && stream.dimension == d;
  });
}

int64_t sent(const Job& job, Dimension d, uint32_t rank = 0) {
  return dimension_volumes(job, rank)[static_cast<size_t>(d)].sent;
}

Job job_of(const Training& t) {
  return generate_job(t, "job", 1).job;
}

// A: 1.5 #64: with (p, t, d) = (4, 2, 4) both orders keep tensor-parallel ranks neighbours. In
// DeepSpeed's a data-parallel group is 2 ranks apart, four of them in a server of 8; with pipelines
// inside a server it is 8 apart, one from each.
TEST(Frameworks, RankOrdersByName) {
  const ModelCard m = gpt(8, 256, 8);
  const Settings base = {{"layout.tp", "2"}, {"layout.pp", "4"}, {"layout.dp", "4"}};
  const auto strides = [&](const Settings& s) {
    const Grid g = dense_grid(training(m, with(base, s)));
    return std::vector<uint32_t>{g.moved(0, "tp", 1), g.moved(0, "dps", 1), g.moved(0, "pp", 1)};
  };
  EXPECT_EQ((std::vector<uint32_t>{1, 2, 8}), strides({}));
  EXPECT_EQ((std::vector<uint32_t>{1, 2, 8}), strides({{"framework", "deepspeed"}}));
  EXPECT_EQ((std::vector<uint32_t>{1, 2, 8}), strides({{"layout.order", "torchtitan"}}));
  EXPECT_EQ((std::vector<uint32_t>{1, 8, 2}), strides({{"layout.order", "megatron-pp-first"}}));
  EXPECT_EQ((std::vector<uint32_t>{1, 8, 2}), strides({{"framework", "colossalai"}}));
  EXPECT_EQ((std::vector<uint32_t>{1, 2, 8}),
            strides({{"framework", "colossalai"}, {"layout.order", "megatron"}}));
  EXPECT_THROW(training(m, with(base, {{"layout.order", "tensorflow"}})), UserError);
}

// A: 1.5 #90, A:F38: the same gradients by all-reduce cost twice the bytes of a reduce-scatter.
TEST(Frameworks, DeepSpeedAllReducesWhatZeroCouldScatter) {
  const ModelCard m = gpt(4, 512, 8);
  for (const char* zero : {"1", "2"}) {
    const Settings base = {{"layout.dp", "4"}, {"layout.zero", zero}, {"batch.sequence", "128"}};
    const Job scatter = job_of(training(m, base));
    const Job reduce = job_of(training(m, with(base, {{"framework", "deepspeed"}})));
    const Job told = job_of(training(
        m, with(base, {{"framework", "deepspeed"}, {"gradients.primitive", "reduce-scatter"}})));
    std::map<CollectiveKind, int64_t> kinds;
    for (const Op& op : collectives(reduce, Dimension::data)) kinds[op.collective] += op.bytes;
    EXPECT_EQ(0U, kinds.count(CollectiveKind::reduce_scatter)) << zero;
    EXPECT_GT(kinds[CollectiveKind::all_reduce], 0);
    EXPECT_GT(kinds[CollectiveKind::all_gather], 0) << "parameters";
    EXPECT_EQ(sent(scatter, Dimension::data), sent(told, Dimension::data));
    // Gradients count 4 bytes, parameters 2: (4 + 2) against (2 x 4 + 2).
    EXPECT_NEAR(10.0 / 6,
                static_cast<double>(sent(reduce, Dimension::data)) /
                    static_cast<double>(sent(scatter, Dimension::data)),
                1e-3);
  }
  EXPECT_THROW(
      training(
          m, {{"layout.dp", "4"}, {"layout.zero", "0"}, {"gradients.primitive", "reduce-scatter"}}),
      UserError);
  EXPECT_THROW(
      training(m,
               {{"layout.dp", "4"}, {"layout.zero", "3"}, {"gradients.primitive", "all-reduce"}}),
      UserError);
}

// A:N105: buckets of 25 MiB of PyTorch DDP against those of Megatron-LM.
TEST(Frameworks, BucketsOfDdpAreSmaller) {
  const ModelCard m = gpt(12, 1024, 16);
  const Settings base = {{"layout.dp", "8"}, {"layout.zero", "0"}, {"batch.sequence", "128"}};
  const auto ddp =
      collectives(job_of(training(m, with(base, {{"framework", "ddp"}}))), Dimension::data);
  const auto megatron = collectives(job_of(training(m, base)), Dimension::data);
  EXPECT_GT(ddp.size(), 2 * megatron.size());
  const int64_t layer = training(m, base).dense_on_rank(1) * 4;
  for (const Op& op : ddp) EXPECT_LT(op.bytes, (int64_t{25} << 20) + layer + 4 * 52'000'000);
  int64_t a = 0;
  int64_t b = 0;
  for (const Op& op : ddp) a += op.bytes;
  for (const Op& op : megatron) b += op.bytes;
  EXPECT_EQ(a, b);
}

// A: 1.4 #47: units change the size of messages, not their sum; A:N089: small ones are inefficient.
TEST(Frameworks, ShardedUnitsOfSeveralLayers) {
  const ModelCard m = gpt(8, 512, 8);
  const Settings base = {{"layout.dp", "4"},
                         {"layout.zero", "3"},
                         {"batch.global", "8"},
                         {"batch.sequence", "128"},
                         {"recompute", "full"}};
  const Training one = training(m, base);
  const Training three = training(m, with(base, {{"gradients.unit", "3"}}));
  const Job a = job_of(one);
  const Job b = job_of(three);
  EXPECT_NEAR(
      1.0,
      static_cast<double>(sent(a, Dimension::data)) / static_cast<double>(sent(b, Dimension::data)),
      1e-4);
  // Two micro-batches: embedding, head and 8 layers, or 3 units of them, forward; one fewer back.
  const auto gathers = [](const Job& j) {
    const auto all = collectives(j, Dimension::data);
    return std::count_if(all.begin(), all.end(),
                         [](const Op& op) { return op.collective == CollectiveKind::all_gather; });
  };
  EXPECT_EQ(2 * (10 + 9), gathers(a));
  EXPECT_EQ(2 * (5 + 4), gathers(b));
  const auto reductions = [](const Job& j) {
    const auto all = collectives(j, Dimension::data);
    return std::count_if(all.begin(), all.end(), [](const Op& op) {
      return op.collective == CollectiveKind::reduce_scatter;
    });
  };
  EXPECT_EQ(2 * 10, reductions(a));
  EXPECT_EQ(2 * 5, reductions(b));
  EXPECT_EQ(3 * stage_memory(one, 0).gathered, stage_memory(three, 0).gathered);
}

// A:N087, N088: kernels that copy around collectives, and padding.
TEST(Frameworks, CopiesAndPaddingOfShardedParameters) {
  const ModelCard m = gpt(4, 512, 8);
  const Settings base = {{"layout.dp", "4"}, {"layout.zero", "3"}, {"batch.sequence", "128"}};
  const Job plain = job_of(training(m, base));
  const Job padded = job_of(training(m, with(base, {{"gradients.padding", "0.33"}})));
  EXPECT_NEAR(1.33,
              static_cast<double>(sent(padded, Dimension::data)) /
                  static_cast<double>(sent(plain, Dimension::data)),
              1e-3);
  const auto memory = [](const Job& job) {
    int64_t bytes = 0;
    for (const Op& op : job.ranks[0].graph->ops) {
      if (op.kind == OpKind::compute) bytes += op.bytes;
    }
    return bytes;
  };
  const Training t = training(m, with(base, {{"framework", "fsdp"}}));
  EXPECT_TRUE(t.copies_around);
  // Out: what is gathered, twice over (forward, and all but the embedding backward), read and
  // written. In: all gradients.
  int64_t all = 0;
  for (int64_t u = 0; u < t.units(); ++u) all += t.dense_on_rank(u);
  const int64_t out = 2 * 2 * (2 * all - t.dense_on_rank(0));
  const int64_t in = 2 * 4 * all;
  EXPECT_EQ(memory(plain) + out + in, memory(job_of(t)));
}

// A: 1.4 #56, A:F58: reductions in fp8 are preceded by one of the scales, 4 bytes per tensor.
TEST(Frameworks, Fp8GradientsAgreeOnTheirScales) {
  const ModelCard m = gpt(4, 512, 8);
  const Settings base = {{"layout.dp", "4"}, {"layout.zero", "0"}, {"batch.sequence", "128"}};
  const auto fp32 = collectives(job_of(training(m, base)), Dimension::data);
  const auto fp8 = collectives(job_of(training(m, with(base, {{"precision.gradients", "fp8"}}))),
                               Dimension::data);
  int64_t wide = 0;
  int64_t narrow = 0;
  int64_t scales = 0;
  for (const Op& op : fp32) wide += op.bytes;
  for (const Op& op : fp8) (op.bytes < 1000 ? scales : narrow) += op.bytes;
  EXPECT_EQ(wide, 4 * narrow);
  EXPECT_EQ(4 * (4 * 4 + 2), scales);  // four matrices of four layers, embedding and output layer
  // A:F29: 16 bytes of gradients and optimizer state become 6: gradient and first moment in fp8,
  // second moment and master copy in fp16.
  const Training t =
      training(m, with(base, {{"precision.gradients", "fp8"}, {"precision.optimizer", "5B"}}));
  EXPECT_EQ(6, t.gradient_bytes + t.optimizer_bytes);
  const Training full = training(m, base);
  EXPECT_EQ(16, full.gradient_bytes + full.optimizer_bytes);
  EXPECT_NEAR(2.67, 16.0 / 6, 0.01);
}

// A: 1.5 #91: cutting changes when bytes move, not how many.
TEST(Frameworks, PiecesOfTensorParallelism) {
  const ModelCard m = gpt(4, 1024, 16);
  const Settings base = {{"layout.tp", "4"}, {"layout.dp", "1"}, {"batch.sequence", "1024"}};
  for (const char* sp : {"true", "false"}) {
    const Settings s = with(base, {{"layout.sequence_parallel", sp}});
    const Job whole = job_of(training(m, s));
    const Job cut = job_of(training(m, with(s, {{"overlap.tensor", "4"}})));
    EXPECT_EQ(sent(whole, Dimension::tensor), sent(cut, Dimension::tensor)) << sp;
    EXPECT_GT(collectives(cut, Dimension::tensor).size(),
              2 * collectives(whole, Dimension::tensor).size());
    int64_t a = 0;
    int64_t b = 0;
    for (const Op& op : whole.ranks[0].graph->ops) a += op.flops;
    for (const Op& op : cut.ranks[0].graph->ops) b += op.flops;
    EXPECT_EQ(a, b);
  }
}

// A: 1.5 #78, #79; A:N098: DeepSeek-V3 sends a token to 4 nodes at most, once to each.
TEST(Frameworks, TwoHopDispatchSendsATokenOnceToANode) {
  const Settings base = {{"layout.ep", "64"},
                         {"layout.dp", "64"},
                         {"layout.layers", "61"},
                         {"batch.sequence", "4096"}};
  const Training direct = training("deepseek-v3", base);
  const Training two =
      training("deepseek-v3",
               with(base, {{"experts.dispatch", "two-hop"}, {"experts.nodes_per_token", "4"}}));
  const Training all = training("deepseek-v3", with(base, {{"experts.dispatch", "two-hop"}}));
  EXPECT_FALSE(direct.two_hops());
  // 8 of 128 experts on 4 nodes of 32: a node has none with (96 over 8) / (128 over 8).
  double none = 1;
  for (int i = 0; i < 8; ++i) none *= (96.0 - i) / (128.0 - i);
  EXPECT_NEAR(4 * (1 - none), two.nodes_of_token(), 1e-12);
  EXPECT_LT(two.nodes_of_token(), 4);
  EXPECT_GT(all.nodes_of_token(), two.nodes_of_token());
  EXPECT_LT(all.nodes_of_token(), 8);
  const Job job = job_of(two);
  std::map<size_t, std::pair<int64_t, int64_t>> calls;  // members -> calls, bytes
  for (const Op& op : collectives(job, Dimension::expert)) {
    if (op.collective != CollectiveKind::all_to_all) continue;
    const Group& g = job.groups[job.ranks[0].binding.groups[op.group_slot]];
    ++calls[g.members.size()].first;
    calls[g.members.size()].second += op.bytes;
    // A rail: the same place in 8 nodes; a node: 8 neighbours.
    EXPECT_EQ(8U, g.members.size());
    const uint32_t stride = g.members[1] - g.members[0];
    EXPECT_TRUE(stride == 1 || stride == 8);
  }
  const int64_t moe = 58;
  EXPECT_EQ(moe * 4 * 2, calls[8].first);  // two ways, forward and backward, two hops
  // Between nodes 3.6 copies of a token instead of 8.
  int64_t rail = 0;
  for (const Op& op : collectives(job, Dimension::expert)) {
    const Group& g = job.groups[job.ranks[0].binding.groups[op.group_slot]];
    if (g.members[1] - g.members[0] == 8) rail += op.bytes;
  }
  int64_t flat = 0;
  for (const Op& op : collectives(job_of(direct), Dimension::expert)) flat += op.bytes;
  EXPECT_NEAR(two.nodes_of_token() / 8, static_cast<double>(rail) / static_cast<double>(flat),
              1e-3);
  EXPECT_THROW(training("deepseek-v3",
                        with(base, {{"experts.dispatch", "two-hop"}, {"experts.sigma", "0.5"}})),
               UserError);
}

// A:F46, A:N061: 8 heads of keys and values on 7 GPUs: some have two, some one. A:F63: the layer of
// a group that lost one of its 8 GPUs takes as long as its fullest rank.
TEST(Training, UnevenTensorParallelismTakesTheLargestShare) {
  const Settings base = {{"layout.dp", "1"}, {"layout.sequence_parallel", "false"}};
  EXPECT_THROW(training("llama3-70b", with(base, {{"layout.tp", "7"}})), UserError);
  const Training seven =
      training("llama3-70b", with(base, {{"layout.tp", "7"}, {"layout.uneven_tp", "true"}}));
  EXPECT_DOUBLE_EQ(2, seven.head_imbalance());
  const Training eight = training("llama3-70b", with(base, {{"layout.tp", "8"}}));
  const Training four = training("llama3-70b", with(base, {{"layout.tp", "4"}}));
  EXPECT_DOUBLE_EQ(1, eight.head_imbalance());
  const LayerWork w7(seven);
  const LayerWork w8(eight);
  const LayerWork w4(four);
  // Two groups of heads as with tp 4; columns of the MLP a seventh.
  EXPECT_EQ(w4.core.forward[0].flops, w7.core.forward[0].flops);
  EXPECT_EQ(2 * w8.core.forward[0].flops, w7.core.forward[0].flops);
  EXPECT_NEAR(
      8.0 / 7,
      static_cast<double>(w7.mlp.forward[0].flops) / static_cast<double>(w8.mlp.forward[0].flops),
      1e-3);
  // The model is the same: so are its FLOPs and what MFU counts.
  EXPECT_DOUBLE_EQ(step_flops(eight).model / static_cast<double>(eight.global_batch),
                   step_flops(seven).model / static_cast<double>(seven.global_batch));
}

// A:F40: attention of a micro-batch costs the sum of the squares of its documents.
TEST(SequenceLengths, CostsAreSumsOfSquares) {
  const ModelCard m = gpt(2, 512, 8);
  const Settings base = {{"layout.dp", "4"}, {"batch.global", "32"}, {"batch.sequence", "4096"}};
  const Training four = training(m, with(base, {{"batch.document", "1024"}}));
  const SequenceLengths even(four, 1);
  for (uint32_t d = 0; d < 4; ++d) {
    EXPECT_EQ(uint64_t{1} << 30, even.load_q32(0, 3, d)) << "four documents: a quarter";
  }
  const Training drawn =
      training(m, with(base, {{"batch.document", "512"}, {"batch.document_sigma", "1.5"}}));
  const SequenceLengths lengths(drawn, 1);
  std::set<uint64_t> different;
  uint64_t sum = 0;
  for (uint32_t d = 0; d < 4; ++d) {
    for (uint32_t mb = 0; mb < 8; ++mb) {
      const uint64_t q = lengths.load_q32(0, mb, d);
      EXPECT_GT(q, 0U);
      EXPECT_LE(q, uint64_t{1} << 32);
      different.insert(q);
      sum += q;
    }
  }
  EXPECT_GT(different.size(), 30U);
  EXPECT_NE(lengths.load_q32(0, 0, 0), lengths.load_q32(1, 0, 0)) << "anew in every step";
  // The same sequences, dealt out evenly: the sum stays, the largest share shrinks (A:N058).
  Training greedy = drawn;
  greedy.balance_sequences = true;
  const SequenceLengths balanced(greedy, 1);
  uint64_t again = 0;
  uint64_t worst = 0;
  uint64_t worst_balanced = 0;
  for (uint32_t d = 0; d < 4; ++d) {
    uint64_t a = 0;
    uint64_t b = 0;
    for (uint32_t mb = 0; mb < 8; ++mb) {
      a += lengths.load_q32(0, mb, d);
      b += balanced.load_q32(0, mb, d);
    }
    again += b;
    worst = std::max(worst, a);
    worst_balanced = std::max(worst_balanced, b);
  }
  EXPECT_EQ(sum, again);
  EXPECT_LT(worst_balanced, worst);
  EXPECT_NEAR(1.0, 4.0 * static_cast<double>(worst_balanced) / static_cast<double>(sum), 0.1);
}

TEST(SequenceLengths, OpsOfAttentionCarryThem) {
  const ModelCard m = gpt(2, 512, 8);
  const Training t = training(m, {{"layout.dp", "2"},
                                  {"layout.cp", "2"},
                                  {"batch.global", "4"},
                                  {"batch.sequence", "1024"},
                                  {"batch.document", "256"},
                                  {"batch.document_sigma", "1"}});
  const Job job = job_of(t);
  std::set<uint32_t> seen;
  for (const Op& op : job.ranks[0].graph->ops) {
    if (op.exchange == 0) continue;
    EXPECT_EQ(OpKind::compute, op.kind);
    seen.insert(op.exchange - JobExchanges::kSequences);
    const uint32_t group = job.ranks[0].binding.groups[op.group_slot];
    EXPECT_EQ(4U, job.groups[group].members.size());
  }
  EXPECT_EQ((std::set<uint32_t>{0, 1}), seen);
  // Context-parallel ranks of a replica have the same work, replicas have not.
  const auto load = [&](uint32_t member) {
    return job.exchanges->load_q32(0, 4, JobExchanges::kSequences, member);
  };
  EXPECT_EQ(load(0), load(1));
  EXPECT_EQ(load(2), load(3));
  EXPECT_NE(load(0), load(2));
}

}  // namespace
}  // namespace trainyard
