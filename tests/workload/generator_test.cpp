// SPDX-License-Identifier: MIT
#include "workload/generator/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/workload/on_rails.h"
#include "tests/workload/training_test_util.h"
#include "workload/generator/flops.h"
#include "workload/generator/grid.h"
#include "workload/generator/memory.h"
#include "workload/generator/volume.h"

namespace trainyard {
namespace {

using test::gpt;
using test::ops_of;
using test::Settings;
using test::training;
using test::with;

int64_t sent(const Job& job, Dimension d, uint32_t rank = 0) {
  return dimension_volumes(job, rank)[static_cast<size_t>(d)].sent;
}

// ---- cards

// 12 L h^2 (1 + 13/(12h) + (V + s)/(12 L h)), arXiv:2104.04473 (2), and the final norm.
TEST(ModelCard, GptHasTheParametersOfTheFormula) {
  for (const char* name : {"gpt3-7b", "gpt3-13b", "gpt3-175b", "opt-175b"}) {
    const ModelCard m = load_model_card(name, {});
    const int64_t h = m.hidden;
    EXPECT_EQ(m.layers * (12 * h * h + 13 * h) + (m.vocab + m.positions) * h + 2 * h,
              m.parameters())
        << name;
  }
  EXPECT_NEAR(174.6e9, static_cast<double>(load_model_card("gpt3-175b", {}).parameters()), 0.1e9);
}

TEST(ModelCard, PublishedSizes) {
  const struct {
    const char* name;
    double all, active;  // billions; as the model cards print them
  } rows[] = {{"llama3-8b", 8.03, 8.03},        {"llama3-70b", 70.55, 70.55},
              {"llama3-405b", 405.85, 405.85},  {"mixtral-8x7b", 46.70, 12.88},
              {"mixtral-8x22b", 140.62, 39.15}, {"deepseek-v3", 671.0, 37.5},
              {"kimi-k2", 1026.4, 32.9}};
  for (const auto& row : rows) {
    const ModelCard m = load_model_card(row.name, {});
    EXPECT_NEAR(row.all, static_cast<double>(m.parameters()) * 1e-9, 0.005 * row.all) << row.name;
    EXPECT_NEAR(row.active, static_cast<double>(m.active_parameters()) * 1e-9, 0.01 * row.active)
        << row.name;
  }
}

TEST(ModelCard, RanksTogetherHoldTheModel) {
  const Training t = training("deepseek-v3", {{"layout.ep", "8"}, {"layout.dp", "8"}});
  int64_t sum = 0;
  for (int64_t u = 0; u < t.units(); ++u) sum += t.dense_on_rank(u) + 8 * t.experts_on_rank(u);
  const int64_t padding = 2 * (t.padded_vocab() - t.model.vocab) * t.model.hidden;
  EXPECT_EQ(t.model.parameters() + padding, sum);
}

// ---- layouts

TEST(Training, DataParallelismFollowsFromTheCluster) {
  // A:F36: MegaScale's 175B on 12,288 GPUs with 8 x 8 has 192 replicas.
  const Training t = training(
      "gpt3-175b", {{"layout.tp", "8"}, {"layout.pp", "8"}, {"batch.global", "6144"}}, 12288);
  EXPECT_EQ(192, t.dp);
  EXPECT_EQ(32, t.microbatches);
}

void expect_refused(const std::string& card, const Settings& settings, int64_t gpus,
                    const std::vector<std::string>& parts) {
  try {
    training(card, settings, gpus);
    FAIL() << "accepted, expected: " << parts.front();
  } catch (const UserError& e) {
    for (const auto& part : parts) {
      EXPECT_NE(std::string::npos, std::string(e.what()).find(part)) << e.what();
    }
  }
}

TEST(Training, ContradictionsShowTheArithmetic) {
  expect_refused("gpt3-13b", {{"layout.tp", "8"}, {"layout.pp", "3"}}, 128,
                 {"128 GPUs are no multiple of tp 8 x cp 1 x pp 3 = 24"});
  expect_refused("gpt3-13b", {{"layout.tp", "8"}, {"layout.dp", "32"}}, 128,
                 {"tp 8 x cp 1 x pp 1 x dp 32 = 256 ranks, the cluster has 128 GPUs"});
  expect_refused("gpt3-13b", {{"layout.tp", "8"}, {"batch.global", "50"}, {"batch.micro", "2"}},
                 128, {"global 50 / (dp 16 x micro 2)", "a multiple of 32 works"});
  expect_refused("gpt3-13b",
                 {{"layout.tp", "8"}, {"batch.global", "64"}, {"batch.microbatches", "8"}}, 128,
                 {"microbatches = global 64 / (dp 16 x micro 1) = 4, not 8"});
  expect_refused("gpt3-13b", {{"layout.tp", "16"}}, 128, {"40 heads", "tp 16"});
  expect_refused("gpt3-13b", {}, 0, {"dp: auto"});
  expect_refused("gpt3-13b", {{"layout.ep", "2"}}, 8, {"no experts"});
  expect_refused("mixtral-8x7b", {{"layout.ep", "3"}}, 24, {"8 experts", "ep 3"});
  expect_refused("mixtral-8x7b", {{"layout.ep", "8"}, {"layout.tp", "2"}}, 8,
                 {"tp 2 x cp 1 x dp 4 = 8 ranks of a stage", "expert_tp 2 x ep 8 = 16"});
  expect_refused("gpt3-13b",
                 {{"layout.pp", "8"},
                  {"schedule.kind", "interleaved"},
                  {"layout.dp", "1"},
                  {"batch.global", "12"}},
                 0, {"a multiple of pp 8 micro-batches", "= 12"});
  expect_refused("gpt3-13b", {{"layout.order", "tp-pp-dp"}}, 8,
                 {"tp, cp, ep, dp and pp once each"});
}

TEST(Training, LayersSpreadOverStages) {
  const auto layers = [](int64_t pp, const std::string& text = "auto") {
    return training(
               "llama3-405b",
               {{"layout.pp", std::to_string(pp)}, {"layout.dp", "1"}, {"layout.layers", text}})
        .layers_of;
  };
  EXPECT_EQ((std::vector<int64_t>{63, 63}), layers(2));
  // 126 = 14 x 8 + 2 x 7: Llama 3's own split, one fewer beside embedding and output layer.
  std::vector<int64_t> llama(16, 8);
  llama.front() = llama.back() = 7;
  EXPECT_EQ(llama, layers(16));
  EXPECT_EQ((std::vector<int64_t>{31, 32, 32, 31}), layers(4));
  EXPECT_EQ((std::vector<int64_t>{60, 66}), layers(2, "60 66"));
  EXPECT_THROW(layers(2, "60 60"), UserError);
}

TEST(Grid, MegatronOrderAndItsOption) {
  Settings s = {{"layout.tp", "2"}, {"layout.cp", "2"}, {"layout.pp", "2"}, {"layout.dp", "2"}};
  const Grid usual = dense_grid(training("gpt3-7b", s));
  EXPECT_EQ(1, usual.coordinate(1, "tp"));
  EXPECT_EQ(1, usual.coordinate(2, "cp"));
  EXPECT_EQ(1, usual.coordinate(4, "dps"));
  EXPECT_EQ(8U, usual.moved(0, "pp", 1));
  s.emplace_back("layout.order", "tp-cp-ep-pp-dp");
  EXPECT_EQ(4U, dense_grid(training("gpt3-7b", s)).moved(0, "pp", 1));
}

TEST(Generator, EveryRankIsWhereItsGroupsSay) {
  const Training t = training("mixtral-8x7b", {{"layout.tp", "2"},
                                               {"layout.cp", "2"},
                                               {"layout.pp", "2"},
                                               {"layout.ep", "4"},
                                               {"layout.expert_tp", "1"},
                                               {"layout.dp", "2"},
                                               {"layout.context", "all-gather"}});
  const Job job = generate_job(t, "j", 1).job;
  ASSERT_EQ(16U, job.ranks.size());
  for (uint32_t r = 0; r < 16; ++r) {
    const RankBinding& b = job.ranks[r].binding;
    ASSERT_EQ(b.groups.size(), b.positions.size());
    for (size_t i = 0; i < b.groups.size(); ++i) {
      EXPECT_EQ(r, job.groups[b.groups[i]].members[b.positions[i]]);
    }
  }
  // Expert parallelism folds over tensor and context ranks: ranks 0 to 3 of a stage hold all
  // experts.
  bool found = false;
  for (const Group& g : job.groups) {
    if (g.name == "ep0") found = g.members == std::vector<uint32_t>{0, 1, 2, 3};
  }
  EXPECT_TRUE(found);
}

// ---- sharing

TEST(Generator, RanksOfAStageShareOneGraph) {
  const Settings s = {{"layout.tp", "8"}, {"layout.pp", "4"}, {"batch.global", "256"}};
  const GeneratedJob g = generate_job(training("gpt3-13b", s, 1024), "j", 1);
  EXPECT_EQ(1024U, g.job.ranks.size());
  EXPECT_EQ(4U, g.rank_classes);
  std::set<const OpGraph*> graphs;
  for (const auto& r : g.job.ranks) graphs.insert(r.graph.get());
  EXPECT_EQ(4U, graphs.size());
}

TEST(Generator, A131072RanksAreAFewNumbersEach) {
  const GeneratedJob g = generate_job(
      training("llama3-405b", {{"layout.tp", "8"}, {"layout.pp", "16"}, {"batch.global", "16384"}},
               131072),
      "j", 1);
  ASSERT_EQ(131072U, g.job.ranks.size());
  EXPECT_GE(16U, g.rank_classes);
  for (const auto& r : g.job.ranks) {
    ASSERT_GE(8U, r.binding.groups.size() + r.binding.peers.size());
  }
}

// ---- volumes

const Settings kOneStage = {{"layout.tp", "4"}, {"layout.dp", "1"}, {"batch.global", "2"}};

// A:F37: 4 all-reduces per layer and micro-batch, 6 with full recompute. A:F39: each of b s h
// elements.
TEST(Generator, TensorParallelVolume) {
  const ModelCard m = gpt(4, 1024, 16);
  const int64_t message = 2048 * 1024 * 2;
  for (const auto& [recompute, per_layer] : {std::pair{"none", 4}, {"full", 6}}) {
    Settings s = with(kOneStage, {{"recompute", recompute}});
    s.emplace_back("layout.sequence_parallel", "false");
    const Job plain = generate_job(training(m, s), "j", 1).job;
    size_t layers = 0;
    for (const Op& op : ops_of(plain, 0, [](const Op&o, const Stream&st) {
           return o.kind == OpKind::collective && st.dimension == Dimension::tensor;
         })) {
      if (op.bytes == message) ++layers;
    }
    // Beside the layers: embedding and output layer, once each per micro-batch.
    EXPECT_EQ(2U * (4U * static_cast<size_t>(per_layer) + 2), layers);
    // A:F38: sequence parallelism adds no bytes.
    s.back().second = "true";
    const Job split = generate_job(training(m, s), "j", 1).job;
    const int64_t loss = 2 * 12 * 2048 * 2 * 3 / 4;
    EXPECT_EQ(2 * (4 * per_layer + 2) * 2 * message * 3 / 4 + loss, sent(plain, Dimension::tensor));
    EXPECT_EQ(sent(plain, Dimension::tensor), sent(split, Dimension::tensor));
  }
}

TEST(Generator, AShareOfTheLayersIsComputedAgain) {
  const ModelCard m = gpt(4, 1024, 16);
  const auto calls = [&](const char* share) {
    Settings s = with(kOneStage, {{"recompute", "full"}, {"recompute_layers", share}});
    const Job job = generate_job(training(m, s), "j", 1).job;
    return ops_of(job, 0,
                  [](const Op& o, const Stream& st) {
                    return o.kind == OpKind::collective && st.dimension == Dimension::tensor;
                  })
        .size();
  };
  // Four calls (gather and scatter of two blocks) of each layer and of both micro-batches.
  EXPECT_EQ(calls("1") - calls("0.5"), 2U * 2 * 4);
  EXPECT_EQ(calls("0.75") - calls("0.5"), 2U * 1 * 4);
  const auto resolved = [&](const char* share) {
    return training(m, with(kOneStage, {{"recompute", "full"}, {"recompute_layers", share}}));
  };
  const Training none = training(m, kOneStage);
  const double model = step_flops(none).hardware;
  EXPECT_NEAR(step_flops(resolved("0.5")).hardware - model,
              (step_flops(resolved("1")).hardware - model) / 2, 1);
  EXPECT_EQ(2 * stage_activations(resolved("0.5"), 0),
            stage_activations(none, 0) + stage_activations(resolved("1"), 0));
  EXPECT_THROW((void)training(m, with(kOneStage, {{"recompute_layers", "0.5"}})), UserError);
}

// What a rank has not kept it gathers again: before the gradient of the weights, beside that of the
// input (arXiv:2205.05198, 4.2.2).
TEST(Generator, SequenceParallelGathersInputsAgain) {
  const ModelCard m = gpt(4, 1024, 16);
  for (const auto& [key, value] : {std::pair{"recompute", "none"},
                                   {"recompute", "full"},
                                   {"recompute", "selective"},
                                   {"schedule.kind", "split-backward"}}) {
    const Settings s = with(kOneStage, {{key, value}});
    std::map<std::string, int64_t> calls[2];
    for (const int again : {0, 1}) {
      const Job job =
          generate_job(
              training(m, with(s, {{"layout.gather_again", again == 1 ? "true" : "false"}})), "j",
              1)
              .job;
      for (const Op& op : ops_of(job, 0, [](const Op&o, const Stream&st) {
             return o.kind == OpKind::collective && st.dimension == Dimension::tensor;
           })) {
        if (op.collective == CollectiveKind::all_gather) {
          EXPECT_EQ(2048 * 1024 * 2 / 4, op.bytes);
        }
        ++calls[again][collective_name(op.collective)];
      }
    }
    // Two per layer and one of the output layer, in each of two micro-batches.
    calls[0]["all-gather"] += 2 * (2 * 4 + 1);
    EXPECT_EQ(calls[0], calls[1]) << key << " " << value;
  }
  EXPECT_THROW(training(m, with(kOneStage, {{"layout.sequence_parallel", "false"},
                                            {"layout.gather_again", "true"}})),
               UserError);
}

TEST(Generator, InputsAreGatheredBesideTheProductThatDoesNotNeedThem) {
  const Settings base = with(kOneStage, {{"layout.gather_again", "true"}});
  const Job job = generate_job(training(gpt(4, 1024, 16), base), "j", 1).job;
  const OpGraph& graph = *job.ranks[0].graph;
  const auto feeds = [&](uint32_t op, uint32_t later) {
    return std::find(graph.successors_begin(op), graph.successors_end(op), later) !=
           graph.successors_end(op);
  };
  int seen = 0;
  for (uint32_t i = 0; i < graph.ops.size(); ++i) {
    if (graph.name_of(i).find(" again") == std::string::npos) continue;
    ++seen;
    // The gradient of the input, its reduction, the gradient of the weights.
    ASSERT_EQ(OpKind::compute, graph.ops[i + 1].kind);
    ASSERT_EQ(CollectiveKind::reduce_scatter, graph.ops[i + 2].collective);
    ASSERT_EQ(OpKind::compute, graph.ops[i + 3].kind);
    EXPECT_FALSE(feeds(i, i + 1)) << graph.name_of(i);
    EXPECT_TRUE(feeds(i, i + 3)) << graph.name_of(i);
  }
  EXPECT_EQ(2 * (2 * 4 + 1), seen);
}

// A:F33, A:F39
TEST(Generator, PipelineVolume) {
  const ModelCard m = load_model_card("gpt3-175b", {});
  const auto pipeline = [&](const Settings& more) {
    const Job job =
        generate_job(
            training(m,
                     with({{"layout.pp", "4"}, {"layout.dp", "1"}, {"batch.global", "8"}}, more)),
            "j", 1)
            .job;
    // A middle stage sends activations on and gradients back.
    return dimension_volumes(
        job, static_cast<uint32_t>(job.ranks.size() / 2))[static_cast<size_t>(Dimension::pipeline)];
  };
  const DimensionVolume base = pipeline({});
  EXPECT_EQ(16U, base.calls);
  EXPECT_EQ(16 * 50'331'648, base.sent);  // A:F39: 50.3 MB
  const DimensionVolume twice =
      pipeline({{"schedule.kind", "interleaved"}, {"schedule.chunks", "2"}});
  EXPECT_EQ(2 * base.sent, twice.sent);
  // With tensor parallelism every rank sends all of it, or its part.
  const Settings tp = {{"layout.tp", "8"}};
  EXPECT_EQ(base.sent, pipeline(with(tp, {{"layout.sequence_parallel", "false"}})).sent);
  EXPECT_EQ(base.sent / 8, pipeline(tp).sent);
  EXPECT_EQ(
      base.sent / 8,
      pipeline(with(tp, {{"layout.sequence_parallel", "false"}, {"layout.scatter_gather", "true"}}))
          .sent);
}

// A:F18: 2P elements for zero 0 to 2, 3P for zero 3, in one micro-batch.
TEST(Generator, ZeroVolume) {
  const ModelCard m = gpt(4, 1024, 16);
  std::map<int, int64_t> volume;
  int64_t elements = 0;
  for (const int zero : {0, 1, 2, 3}) {
    const Training t = training(m, {{"layout.dp", "8"},
                                    {"layout.zero", std::to_string(zero)},
                                    {"batch.global", "8"},
                                    {"precision.gradients", "bf16"}});
    const Job job = generate_job(t, "j", 1).job;
    volume[zero] = sent(job, Dimension::data);
    elements = 0;
    for (int64_t u = 0; u < t.units(); ++u) elements += t.dense_on_rank(u);
  }
  const auto two = static_cast<double>(2 * elements * 2 * 7 / 8);
  EXPECT_NEAR(1.0, static_cast<double>(volume[0]) / two, 1e-4);
  EXPECT_NEAR(1.0, static_cast<double>(volume[1]) / two, 1e-4);
  EXPECT_NEAR(1.0, static_cast<double>(volume[2]) / two, 1e-4);
  // The embedding takes no part in backward gathers.
  const double embedding = 51200.0 * 1024 * 2 * 7 / 8;
  EXPECT_NEAR(1.5, (static_cast<double>(volume[3]) + embedding) / two, 1e-3);
}

TEST(Generator, HybridShardingReducesTwice) {
  const ModelCard m = gpt(4, 1024, 16);
  const Training t =
      training(m, {{"layout.dp", "8"}, {"layout.shard", "4"}, {"batch.global", "8"}});
  const Job job = generate_job(t, "j", 1).job;
  std::map<std::string, int> calls;
  for (const Op& op : ops_of(job, 0, [](const Op&o, const Stream&s) {
         return o.kind == OpKind::collective && s.dimension == Dimension::data;
       })) {
    const Group& g = job.groups[job.ranks[0].binding.groups[op.group_slot]];
    ++calls[std::string(collective_name(op.collective)) + " " + std::to_string(g.members.size())];
  }
  ASSERT_EQ(3U, calls.size());
  EXPECT_EQ(calls["reduce-scatter 4"], calls["all-reduce 2"]);
  EXPECT_EQ(calls["reduce-scatter 4"], calls["all-gather 4"]);
}

// A: 1.5 #76: two all-to-alls per MoE layer in each direction.
TEST(Generator, ExpertVolume) {
  ModelCard m = load_model_card("mixtral-8x7b", {});
  m.layers = 3;
  const Job job =
      generate_job(training(m, {{"layout.ep", "8"}, {"layout.dp", "8"}, {"batch.global", "16"}}),
                   "j", 1)
          .job;
  const auto volumes = dimension_volumes(job, 0)[static_cast<size_t>(Dimension::expert)];
  EXPECT_EQ(2U * 3 * 4, volumes.calls);
  EXPECT_EQ(2 * 3 * 4 * (2048LL * 2 * 4096 * 2) * 7 / 8, volumes.sent);
}

TEST(Generator, ContextVolume) {
  const ModelCard m = gpt(2, 1024, 16);
  const auto context = [&](const std::string& kind) {
    const Job job = generate_job(training(m, {{"layout.cp", "4"},
                                              {"layout.dp", "1"},
                                              {"batch.global", "1"},
                                              {"layout.context", kind}}),
                                 "j", 1)
                        .job;
    return sent(job, Dimension::context);
  };
  const int64_t kv = 512 * 2 * 1024 * 2;
  EXPECT_EQ(2 * (3 * kv + 3 * 2 * kv), context("ring"));
  EXPECT_EQ(2 * 3 * 3 * kv, context("all-gather"));
  EXPECT_EQ(2 * 2 * (kv + kv / 2 + kv / 2) * 3 / 4, context("all-to-all"));
}

TEST(Generator, NormAndMeanLossHoldTheRanksTogether) {
  const ModelCard m = gpt(2, 1024, 16);
  Settings s{{"layout.tp", "2"},   {"layout.pp", "2"},    {"layout.dp", "4"},
             {"layout.zero", "1"}, {"batch.global", "8"}, {"steps", "3"}};
  const auto group_sizes = [](const Job& job, uint32_t rank, int64_t bytes) {
    std::vector<size_t> out;
    for (const Op& op : ops_of(job, rank, [&](const Op&o, const Stream&) {
           return o.kind == OpKind::collective && o.collective == CollectiveKind::all_reduce &&
                  o.bytes == bytes;
         })) {
      out.push_back(job.groups[job.ranks[rank].binding.groups[op.group_slot]].members.size());
    }
    return out;
  };
  const Job plain = generate_job(training(m, s), "j", 1).job;
  s.emplace_back("gradients.norm", "true");
  s.emplace_back("gradients.average_loss", "true");
  const Job job = generate_job(training(m, s), "j", 1).job;
  for (const uint32_t rank : {0U, 15U}) {
    EXPECT_TRUE(group_sizes(plain, rank, 4).empty());
    EXPECT_TRUE(group_sizes(plain, rank, 8).empty());
    // Of all 16 ranks, in each of 3 steps; of the 4 replicas of the last stage, per micro-batch.
    EXPECT_EQ(group_sizes(job, rank, 4), std::vector<size_t>(3, 16));
    EXPECT_EQ(group_sizes(job, rank, 8), std::vector<size_t>(rank == 15 ? 6 : 0, 4));
  }
  s.emplace_back("schedule.kind", "dualpipe");
  s.emplace_back("batch.global", "16");
  try {
    training(m, s);
    FAIL() << "a mean loss over both ends of the pipeline";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("bidirectional"), std::string::npos) << e.what();
  }
}

// A layer of 8 experts tells all 2 x 4 ranks that share them how many tokens go where.
TEST(Generator, TokenCountsAreGatheredByAllWhoShareTheExperts) {
  ModelCard m = gpt(2, 1024, 16);
  m.experts = 8;
  m.topk = 2;
  m.expert_ffn = 1024;
  Settings s{{"layout.tp", "2"},
             {"layout.dp", "8"},
             {"layout.ep", "4"},
             {"layout.expert_tp", "2"},
             {"batch.global", "16"}};
  for (const bool counts : {false, true}) {
    if (counts) s.emplace_back("experts.counts", "true");
    const Job job = generate_job(training(m, s), "j", 1).job;
    const auto calls = ops_of(job, 5, [](const Op& o, const Stream&) {
      return o.collective == CollectiveKind::all_gather && o.kind == OpKind::collective &&
             o.bytes == 64;
    });
    EXPECT_EQ(calls.size(), counts ? 4U : 0U);  // 2 layers, 2 micro-batches, forward only
    for (const Op& op : calls) {
      const auto& group = job.groups[job.ranks[5].binding.groups[op.group_slot]].members;
      EXPECT_EQ(group, (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
    }
  }
}

// ---- runs

int64_t flops_of(const Job& job, uint32_t rank) {
  int64_t sum = 0;
  for (const Op& op : job.ranks[rank].graph->ops) sum += op.flops;
  return sum;
}

TEST(Generator, RunsToTheEndInEveryDialect) {
  const ModelCard dense = gpt(4, 256, 8, 1024);
  ModelCard moe = dense;
  moe.experts = 4;
  moe.topk = 2;
  moe.expert_ffn = 512;
  moe.shared_ffn = 256;
  moe.dense_layers = 1;
  const Settings base = {{"batch.sequence", "128"}, {"steps", "2"}};
  const std::vector<std::pair<const ModelCard*, Settings>> cases = {
      {&dense, {{"layout.tp", "2"}, {"layout.pp", "2"}, {"layout.dp", "2"}, {"batch.global", "8"}}},
      {&dense,
       {{"layout.pp", "2"},
        {"layout.dp", "2"},
        {"batch.global", "8"},
        {"schedule.kind", "interleaved"},
        {"recompute", "full"}}},
      {&dense,
       {{"layout.pp", "4"},
        {"layout.dp", "1"},
        {"batch.global", "8"},
        {"schedule.kind", "split-backward"},
        {"recompute", "selective"}}},
      {&dense,
       {{"layout.pp", "4"},
        {"layout.dp", "1"},
        {"batch.global", "4"},
        {"schedule.kind", "gpipe"},
        {"layout.zero", "0"}}},
      {&dense,
       {{"layout.tp", "2"},
        {"layout.pp", "2"},
        {"layout.dp", "1"},
        {"batch.global", "8"},
        {"layout.gather_again", "true"},
        {"schedule.kind", "split-backward"}}},
      {&dense,
       {{"layout.tp", "2"},
        {"layout.pp", "2"},
        {"layout.dp", "1"},
        {"batch.global", "8"},
        {"layout.gather_again", "true"},
        {"overlap.tensor", "2"},
        {"recompute", "full"}}},
      {&dense, {{"layout.dp", "4"}, {"batch.global", "8"}, {"layout.zero", "3"}}},
      {&dense,
       {{"layout.dp", "4"},
        {"batch.global", "8"},
        {"layout.zero", "2"},
        {"gradients.gather_overlap", "false"}}},
      {&dense, {{"layout.dp", "4"}, {"layout.shard", "2"}, {"layout.zero", "3"}}},
      {&dense, {{"layout.cp", "2"}, {"layout.dp", "2"}, {"layout.tp", "2"}}},
      {&dense, {{"layout.cp", "2"}, {"layout.dp", "1"}, {"layout.context", "all-to-all"}}},
      {&dense,
       {{"layout.cp", "2"},
        {"layout.dp", "1"},
        {"layout.context", "all-gather"},
        {"gradients.overlap", "false"}}},
      {&dense,
       {{"layout.tp", "2"},
        {"layout.pp", "2"},
        {"layout.dp", "1"},
        {"layout.sequence_parallel", "false"},
        {"layout.scatter_gather", "true"}}},
      {&moe, {{"layout.ep", "4"}, {"layout.dp", "4"}, {"experts.sigma", "0.7"}}},
      {&moe,
       {{"layout.tp", "2"},
        {"layout.ep", "2"},
        {"layout.dp", "2"},
        {"experts.source_sigma", "0.5"},
        {"experts.capacity", "1"}}},
      {&moe,
       {{"layout.pp", "2"},
        {"layout.ep", "2"},
        {"layout.dp", "2"},
        {"schedule.kind", "split-backward"},
        {"batch.global", "8"}}},
      {&moe, {{"layout.ep", "2"}, {"layout.dp", "4"}, {"layout.zero", "3"}}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const Training t = training(*cases[i].first, with(base, cases[i].second));
    const GeneratedJob g = generate_job(t, "j", 1);
    test::OnRails run(g.job, "roofline");
    run.run();
    // One op per kernel instead of one between communications: the same times.
    Training single = t;
    single.single_kernels = true;
    const GeneratedJob fine = generate_job(single, "j", 1);
    test::OnRails again(fine.job, "roofline");
    again.run();
    if (g.routing == nullptr) {
      EXPECT_EQ(run.timeline.end(), again.timeline.end());
    } else {  // scaled by load, every op is rounded
      EXPECT_NEAR(1, run.timeline.end().seconds() / again.timeline.end().seconds(), 1e-6);
    }
    for (uint32_t r = 0; r < g.job.ranks.size(); ++r) {
      EXPECT_EQ(flops_of(g.job, r), flops_of(fine.job, r));
    }
  }
}

// The work does not depend on the schedule.
TEST(Generator, SchedulesDoTheSameWork) {
  std::set<int64_t> sums;
  for (const char* kind : {"gpipe", "1f1b", "interleaved", "split-backward"}) {
    const Job job = generate_job(training(gpt(8, 256, 8, 1024), {{"layout.pp", "4"},
                                                                 {"layout.dp", "1"},
                                                                 {"batch.global", "8"},
                                                                 {"schedule.kind", kind}}),
                                 "j", 1)
                        .job;
    int64_t sum = 0;
    for (uint32_t r = 0; r < 4; ++r) sum += flops_of(job, r);
    sums.insert(sum);
  }
  EXPECT_EQ(1U, sums.size());
}

// ---- bidirectional pipelines (A:F34)

TEST(Generator, DualPipeHoldsTwoStagesAndSharesThemWithItsMirror) {
  const ModelCard m = gpt(8, 256, 8);
  const Settings s = {{"layout.pp", "4"},
                      {"layout.dp", "2"},
                      {"layout.zero", "0"},
                      {"batch.global", "16"},
                      {"batch.sequence", "128"}};
  const Training one = training(m, with(s, {{"schedule.kind", "1f1b"}}));
  const Training two = training(m, with(s, {{"schedule.kind", "dualpipe"}}));
  EXPECT_EQ(2, two.copies());
  EXPECT_EQ(2 * two.cp * two.dp, two.replicas());
  // Twice the parameters: those of a stage and of its mirror; the tied embedding is there once.
  const int64_t tied = two.padded_vocab() * m.hidden;
  for (int64_t stage = 0; stage < 4; ++stage) {
    const int64_t both =
        stage_memory(one, stage).parameters + stage_memory(one, 3 - stage).parameters;
    const bool end = stage == 0 || stage == 3;
    EXPECT_EQ(both - (end ? tied * one.parameter_bytes : 0), stage_memory(two, stage).parameters);
  }
  const Job job = generate_job(two, "dualpipe", 1).job;
  for (uint32_t r = 0; r < 8; ++r) {
    const auto reductions = ops_of(job, r, [](const Op& op, const Stream& stream) {
      return op.kind == OpKind::collective && stream.dimension == Dimension::data;
    });
    ASSERT_FALSE(reductions.empty());
    int64_t bytes = 0;
    for (const Op& op : reductions) {
      const Group& g = job.groups[job.ranks[r].binding.groups[op.group_slot]];
      EXPECT_EQ(4U, g.members.size());
      EXPECT_EQ(CollectiveKind::all_reduce, op.collective);
      bytes += op.bytes;
    }
    EXPECT_EQ(stage_memory(two, r / 2).gradients, bytes);  // order tp-cp-ep-dp-pp
  }
}

}  // namespace
}  // namespace trainyard
