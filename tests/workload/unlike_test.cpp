// SPDX-License-Identifier: MIT
// Replicas of unlike tensor parallelism: who computes what, and how gradients meet.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/workload/training_test_util.h"
#include "workload/generator/grid.h"
#include "workload/generator/layer_work.h"
#include "workload/generator/layout_lint.h"
#include "workload/generator/memory.h"
#include "workload/generator/volume.h"

namespace trainyard {
namespace {

using test::gpt;
using test::ops_of;
using test::Settings;
using test::training;
using test::with;

/// Expects that every send has its receive. @returns how many there are.
size_t matched_sends(const Job& job) {
  std::multiset<std::vector<int64_t>> sends, recvs;
  for (uint32_t r = 0; r < job.ranks.size(); ++r) {
    const RankProgram& program = job.ranks[r];
    for (const Op& op : program.graph->ops) {
      if (op.kind != OpKind::send && op.kind != OpKind::recv) continue;
      const uint32_t peer = program.binding.peers[op.peer_slot];
      const bool send = op.kind == OpKind::send;
      (send ? sends : recvs)
          .insert({send ? r : peer, send ? peer : r, static_cast<int64_t>(op.tag), op.bytes});
    }
  }
  EXPECT_EQ(sends, recvs);
  return sends.size();
}

// Heads, columns and rows of the embedding divide by 7 and by 8.
ModelCard even_model(int64_t layers = 2) {
  return gpt(layers, 1792, 56, 7168);
}

Settings layout(const std::string& unlike, const Settings& more = {}) {
  return with({{"layout.tp", "8"},
               {"layout.dp", "2"},
               {"layout.zero", "0"},
               {"batch.global", "14"},
               {"batch.sequence", "56"},
               {"layout.unlike", unlike}},
              more);
}

/// Parameters of a stage that all ranks have, and of those that they share, all together.
struct Parts {
  int64_t whole = 0, split = 0;
};
Parts parts(const Training& t) {
  Parts p;
  for (int64_t u = 0; u < t.units(); ++u) {
    p.whole += t.whole_on_rank(u);
    p.split += t.split_on_rank(u) * t.tp;
  }
  return p;
}

int64_t sent(const Job& job, uint32_t rank) {
  return dimension_volumes(job, rank)[static_cast<size_t>(Dimension::data)].sent;
}

int64_t received(const Job& job, uint32_t rank) {
  int64_t bytes = 0;
  for (const Op& op : ops_of(job, rank, [](const Op&o, const Stream&s) {
         return o.kind == OpKind::recv && s.dimension == Dimension::data;
       })) {
    bytes += op.bytes;
  }
  return bytes;
}

int64_t flops(const Job& job, uint32_t rank) {
  int64_t sum = 0;
  for (const Op& op : job.ranks[rank].graph->ops) sum += op.flops;
  return sum;
}

// A:F63: what 8 ranks computed, 7 do, each an eighth more than before; the eighth is idle.
TEST(Unlike, AReducedReplicaComputesWithFewerRanks) {
  const Training t = training(even_model(), layout("[{replica: 0, tp: 7}]"));
  const Training alike = training(even_model(), layout("none"));
  const Job job = generate_job(t, "job", 1).job;
  const Job whole = generate_job(alike, "job", 1).job;
  ASSERT_EQ(16U, job.ranks.size());
  EXPECT_TRUE(job.ranks[7].graph->ops.empty());
  for (uint32_t r = 0; r < 7; ++r) {
    EXPECT_EQ(8 * flops(whole, r), 7 * flops(job, r)) << r;
    EXPECT_EQ(flops(whole, 8 + r), flops(job, 8 + r)) << r;
  }
  EXPECT_EQ(flops(whole, 15), flops(job, 15));
  // Tensor-parallel collectives run over those that compute, and nothing reaches the idle one.
  size_t sevens = 0;
  size_t eights = 0;
  for (size_t g = 1; g < job.groups.size(); ++g) {  // 0: the world
    const Group& group = job.groups[g];
    EXPECT_EQ(0, std::count(group.members.begin(), group.members.end(), 7U)) << group.name;
    if (group.name.rfind("tp", 0) != 0) continue;
    sevens += group.members.size() == 7;
    eights += group.members.size() == 8;
  }
  EXPECT_EQ(1U, sevens);
  EXPECT_EQ(1U, eights);
  // Classes: the small replica, summing ranks of the large one, the one that hands on.
  EXPECT_EQ(job.ranks[0].graph, job.ranks[6].graph);
  EXPECT_EQ(job.ranks[8].graph, job.ranks[14].graph);
  EXPECT_NE(job.ranks[0].graph, job.ranks[8].graph);
  EXPECT_NE(job.ranks[8].graph, job.ranks[15].graph);
}

// Closed forms, with S the parameters that a group shares and W those that each rank has: the last
// rank of 8 sends its S/8, in sevenths; with their own S/8 that gives the others S/7 each, the
// shard of the small replica; the sum runs over shards that match; and the last one gets back all
// that it holds.
TEST(Unlike, BytesOfASumWithoutZeroFollowTheClosedForm) {
  const Training t = training(even_model(), layout("[{replica: 0, tp: 7}]"));
  const Parts p = parts(t);
  const Parts seven = parts(t.of_replica(0));
  ASSERT_EQ(p.split, seven.split);
  ASSERT_EQ(p.whole, seven.whole);
  ASSERT_EQ(0, p.split % 56);
  ASSERT_EQ(0, p.whole % 7);
  const Job job = generate_job(t, "job", 1).job;
  const int64_t g = t.gradient_bytes;
  const int64_t sum = g * (p.whole + p.split / 7);  // 2 (n - 1) / n of it, n = 2
  const int64_t back = g * (p.whole + p.split / 8);
  for (uint32_t r = 0; r < 7; ++r) {
    EXPECT_EQ(sum, sent(job, r)) << r;
    EXPECT_EQ(0, received(job, r)) << r;
    EXPECT_EQ(sum + back / 7, sent(job, 8 + r)) << r;
    EXPECT_EQ(g * p.split / 56, received(job, 8 + r)) << r;
  }
  EXPECT_EQ(g * p.split / 8, sent(job, 15));
  EXPECT_EQ(back, received(job, 15));
  EXPECT_EQ(0, sent(job, 7));
  // Groups of ranks with matching shards, one of each replica.
  size_t pairs = 0;
  for (const Group& group : job.groups) {
    if (group.name.rfind("dp", 0) != 0) continue;
    ++pairs;
    ASSERT_EQ(2U, group.members.size());
    EXPECT_EQ(group.members[0] + 8, group.members[1]);
  }
  EXPECT_EQ(7U, pairs);
}

// With zero 1 gradients are scattered over the replicas and parameters come back, 2 bytes each.
TEST(Unlike, BytesOfZeroOneFollowTheClosedForm) {
  const Training t =
      training(even_model(), layout("[{replica: 0, tp: 7}]", {{"layout.zero", "1"}}));
  const Parts p = parts(t);
  const Job job = generate_job(t, "job", 1).job;
  const int64_t g = t.gradient_bytes;
  const int64_t b = t.parameter_bytes;
  const int64_t shard = p.whole + p.split / 7;
  const int64_t around = g * shard / 2 + b * shard / 2;  // (n - 1) / n, twice
  const int64_t back = b * (p.whole + p.split / 8);
  for (uint32_t r = 0; r < 7; ++r) {
    EXPECT_NEAR(around, sent(job, r), 8) << r;
    EXPECT_NEAR(around + back / 7, sent(job, 8 + r), 8) << r;
  }
  EXPECT_EQ(g * p.split / 8, sent(job, 15));
  EXPECT_EQ(back, received(job, 15));
  // The last rank has no optimizer's state, the others that of their larger shard.
  const auto optimizer = [&](uint32_t rank) {
    int64_t bytes = 0;
    for (const Op& op :
         ops_of(job, rank, [](const Op&o, const Stream&) { return o.kind == OpKind::compute; })) {
      const OpGraph& graph = *job.ranks[rank].graph;
      if (graph.name_of(static_cast<uint32_t>(op.source_id)).find("optimizer") !=
          std::string::npos) {
        bytes += op.bytes;
      }
    }
    return bytes;
  };
  EXPECT_EQ(0, optimizer(15));
  EXPECT_EQ(optimizer(0), optimizer(8));
  EXPECT_NEAR(static_cast<double>(shard / 2 * (g + 2 * t.optimizer_bytes + b)),
              static_cast<double>(optimizer(0)), 64);
}

// Three kinds of replicas meet in the layout of the smallest.
TEST(Unlike, TheSmallestReplicaSaysInWhichLayoutAllMeet) {
  const ModelCard m = gpt(2, 1344, 168, 128 * 168);  // divides by 6, 7 and 8
  Settings s = layout("[{replica: 2, tp: 6}, {replica: 0, tp: 7}]");
  s.emplace_back("layout.dp", "3");
  s.emplace_back("batch.global", "6");
  s.emplace_back("batch.sequence", "168");
  const Training t = training(m, s);
  EXPECT_EQ(6, t.sync_tp);
  const Parts p = parts(t);
  const Job job = generate_job(t, "job", 1).job;
  const int64_t g = t.gradient_bytes;
  // One rank of 7 hands on a seventh, two of 8 an eighth each.
  EXPECT_EQ(g * p.split / 7, sent(job, 6));
  EXPECT_EQ(g * p.split / 8, sent(job, 8 + 6));
  EXPECT_EQ(g * p.split / 8, sent(job, 8 + 7));
  for (uint32_t r = 0; r < 6; ++r) {
    EXPECT_EQ(g * p.split / 42, received(job, r));
    EXPECT_EQ(2 * g * p.split / 48, received(job, 8 + r));
    EXPECT_EQ(0, received(job, 16 + r));
    // Own part and what came make a sixth.
    EXPECT_EQ(g * p.split / 6, g * p.split / 7 + received(job, r));
    EXPECT_EQ(g * p.split / 6, g * p.split / 8 + received(job, 8 + r));
  }
  for (const uint32_t idle : {7U, 22U, 23U}) EXPECT_TRUE(job.ranks[idle].graph->ops.empty());
}

// Every send of a reshard finds its receive, in buckets of their own, over stages and steps.
TEST(Unlike, EverySendHasItsReceive) {
  for (const char* zero : {"0", "1"}) {
    Settings s = layout("[{replica: 1, tp: 5}]", {{"layout.zero", zero},
                                                  {"layout.pp", "2"},
                                                  {"steps", "2"},
                                                  {"gradients.bucket", "1MiB"},
                                                  {"gradients.norm", "true"},
                                                  {"checkpoint.every", "1"},
                                                  {"dataset.token_bytes", "4B"}});
    const Training t = training(even_model(4), s);
    const Job job = generate_job(t, "job", 1).job;
    EXPECT_GT(matched_sends(job), 100U) << "zero " << zero;
    // Checkpoints: all parameters and their state once, by those that sum.
    int64_t written = 0;
    for (uint32_t r = 0; r < job.ranks.size(); ++r) {
      for (const Op& op : job.ranks[r].graph->ops) {
        if (op.kind == OpKind::storage && op.action == StorageAction::write) written += op.bytes;
      }
    }
    const Training five = t.of_replica(1);
    int64_t held = 0;
    for (int64_t u = 0; u < five.units(); ++u) held += five.dense_on_rank(u) * 5;
    EXPECT_NEAR(static_cast<double>(2 * held * t.checkpoint_bytes), static_cast<double>(written),
                200);
  }
}

// A:F64: the sequences of a step stay the same, who computes them changes.
TEST(Unlike, OthersTakeWhatAReplicaDoesNotCompute) {
  const Training kept = training(even_model(), layout("[{replica: 0, tp: 7}]"));
  EXPECT_EQ(7, kept.of_replica(0).microbatches);
  EXPECT_EQ(7, kept.of_replica(1).microbatches);
  const Training handed = training(even_model(), layout("[{replica: 0, tp: 7, batch: 6}]"));
  EXPECT_EQ(6, handed.of_replica(0).microbatches);
  EXPECT_EQ(8, handed.of_replica(1).microbatches);
  EXPECT_EQ(14, handed.global_batch);
  const Job job = generate_job(handed, "job", 1).job;
  const auto per = [&](uint32_t rank, int64_t microbatches) {
    return static_cast<double>(flops(job, rank)) / static_cast<double>(microbatches);
  };
  EXPECT_NEAR(8.0 / 7, per(0, 6) / per(8, 8), 1e-9);
  // Gradients are summed once all the same.
  EXPECT_EQ(sent(generate_job(kept, "job", 1).job, 0), sent(job, 0));
}

// Heads that do not divide: every rank as long as the fullest (A:F46, A:N061).
TEST(Unlike, RemaindersAreThoseOfTheFullestRank) {
  const Settings s = {{"layout.tp", "8"},
                      {"layout.dp", "2"},
                      {"batch.sequence", "4096"},
                      {"layout.unlike", "[{replica: 0, tp: 7}]"}};
  const Training t = training("llama3-70b", s);
  const Training seven = t.of_replica(0);
  const LayerWork w7(seven);
  const LayerWork w8(t);
  EXPECT_EQ(2 * w8.core.forward[0].flops, w7.core.forward[0].flops);
  EXPECT_EQ((4096 + 6) / 7, seven.sequence_tokens());
  bool told = false;
  for (const std::string& text : layout_warnings(t, 8)) {
    told = told || text.find("replica 0 with tp 7: 64 heads and 28672 columns") == 0;
  }
  EXPECT_TRUE(told);
  // It needs the most memory: an eighth more of the MLP, twice the heads.
  const Training fullest = fullest_replica(t).first;
  EXPECT_EQ(7, fullest.tp);
  EXPECT_GT(stage_memory(fullest, 0).total(), stage_memory(t, 0).total());
  // A summing rank of the others holds gradients and state of that shard, parameters of its own.
  const StageMemory other = stage_memory(t, 0);
  EXPECT_EQ(stage_memory(seven, 0).gradients, other.gradients);
  EXPECT_EQ(stage_memory(seven, 0).optimizer, other.optimizer);
  EXPECT_LT(other.parameters, stage_memory(seven, 0).parameters);
}

// One stage only: the others sum as ever, and activations are cut anew on their way.
TEST(Unlike, OneStageMayBeSmallerThanItsNeighbours) {
  ModelCard m = even_model(6);
  m.tied_embeddings = false;
  for (const char* parallel : {"true", "false"}) {
    const Training t = training(
        m,
        layout("[{replica: 0, stage: 1, tp: 7}]",
               {{"layout.pp", "3"}, {"layout.sequence_parallel", parallel}, {"layout.zero", "1"}}));
    const Job job = generate_job(t, "job", 1).job;
    // Order tp, dp, pp: stage 1 begins at rank 16.
    for (uint32_t r = 0; r < 48; ++r) EXPECT_EQ(r == 23, job.ranks[r].graph->ops.empty()) << r;
    matched_sends(job);
    std::vector<int64_t> activations(48);
    for (uint32_t r = 0; r < 48; ++r) {
      for (const Op& op : ops_of(job, r, [](const Op&o, const Stream&stream) {
             return o.kind == OpKind::recv && stream.dimension == Dimension::pipeline;
           })) {
        activations[r] += op.bytes;
      }
    }
    // Both ways, 7 micro-batches of 56 tokens. Seven take 8 tokens each, eight take 7.
    const int64_t whole = 56 * 1792 * 2 * 7;
    const bool split = t.sequence_parallel;
    for (uint32_t r = 16; r < 23; ++r) EXPECT_EQ(2 * whole / (split ? 7 : 1), activations[r]) << r;
    for (uint32_t r = 24; r < 32; ++r) EXPECT_EQ(2 * whole / (split ? 8 : 1), activations[r]) << r;
    for (uint32_t r = 0; r < 8; ++r) EXPECT_EQ(whole / (split ? 8 : 1), activations[r]) << r;
    for (uint32_t r = 32; r < 40; ++r) EXPECT_EQ(whole / (split ? 8 : 1), activations[r]) << r;
    // Sums over replicas: eight pairs in stages 0 and 2, seven in stage 1.
    std::map<uint32_t, int> pairs;
    for (const Group& g : job.groups) {
      if (g.name.rfind("shard", 0) == 0) ++pairs[g.members[0] / 16];
    }
    EXPECT_EQ((std::map<uint32_t, int>{{0, 8}, {1, 7}, {2, 8}}), pairs);
    const auto reshards = [&](uint32_t rank) {
      return !ops_of(job, rank, [](const Op& o, const Stream& s) {
                return (o.kind == OpKind::send || o.kind == OpKind::recv) &&
                       s.dimension == Dimension::data;
              }).empty();
    };
    for (uint32_t r = 0; r < 48; ++r) EXPECT_EQ(r >= 24 && r < 32, reshards(r)) << r;
    const auto [fullest, stage] = fullest_replica(t);
    EXPECT_GE(stage_memory(fullest, stage).total(), stage_memory(t.of_replica(0, 1), 1).total());
  }
}

TEST(Unlike, WhatDoesNotFitIsRefusedByName) {
  const auto problem = [](const ModelCard& m, const Settings& s) -> std::string {
    try {
      (void)training(m, s);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  const auto expect = [&](const std::string& unlike, const Settings& more, const char* part) {
    const std::string text = problem(even_model(4), layout(unlike, more));
    EXPECT_NE(std::string::npos, text.find(part)) << text;
  };
  const std::string seven = "[{replica: 0, tp: 7}]";
  expect(seven, {{"layout.zero", "3"}}, "layout.unlike with zero 3 is not built yet");
  expect(seven, {{"layout.zero", "2"}}, "zero 2");
  expect(seven, {{"layout.cp", "2"}, {"batch.sequence", "64"}}, "cp 2");
  expect(seven, {{"layout.zero", "1"}, {"layout.shard", "1"}}, "hybrid sharding");
  expect(seven, {{"layout.pp", "2"}, {"schedule.kind", "dualpipe-v"}, {"batch.global", "56"}},
         "schedule dualpipe-v");
  expect(seven, {{"batch.document", "16"}}, "batch.document");
  expect(seven, {{"gradients.average_loss", "true"}}, "average_loss");
  expect("[{replica: 2, tp: 7}]", {}, "replica '2' is no whole number up to 1");
  expect("[{replica: 0, tp: 8}]", {}, "not below layout.tp 8");
  expect("[{replica: 0, tp: 7}, {replica: 0-1, tp: 6}]", {}, "replica 0 is named twice");
  expect("[{replica: 0, tp: 7}, {replica: 0, stage: 0, tp: 6}]", {}, "replica 0 is named twice");
  expect("[{replica: 0, stage: 1, tp: 7}]", {}, "stage '1' is no whole number up to 0");
  expect("[{replica: 0, stage: 1, tp: 7}]", {{"layout.pp", "2"}}, "tied embeddings");
  expect("[{replica: 0}]", {}, "needs replica and tp");
  expect("[{replica: 0, tp: 7, rank: 3}]", {}, "unknown key 'rank'");
  expect("[{replica: 0, tp: 7, boost: fast}]", {}, "boost 'fast'");
  expect("[{replica: 0, tp: 7, batch: 14}]", {}, "leaves 0");
  expect("[{replica: 0-1, tp: 7, batch: 6}]", {}, "leaves 2");
  expect("7", {}, "entries are in braces");
  ModelCard experts = even_model();
  experts.experts = 8;
  experts.topk = 2;
  experts.expert_ffn = 1792;
  EXPECT_NE(std::string::npos, problem(experts, layout(seven)).find("layout.unlike with experts"));
  ModelCard grouped = even_model();
  grouped.kv_heads = 4;
  EXPECT_NE(std::string::npos, problem(grouped, layout(seven)).find("4 key-value heads"));
}

}  // namespace
}  // namespace trainyard
