// SPDX-License-Identifier: MIT
// Exact facts of the literature, each by its id, that no test of a module holds already.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include "sim/collective.h"
#include "sim/registry.h"
#include "tests/workload/training_test_util.h"
#include "tools/scenario/run.h"
#include "tools/scenario/training_figures.h"
#include "workload/collective_params.h"
#include "workload/generator/flops.h"
#include "workload/generator/generate.h"
#include "workload/generator/memory.h"
#include "workload/generator/volume.h"

namespace trainyard {
namespace {

using test::gpt;
using test::ops_of;
using test::Settings;
using test::training;

double per_sbh(const ModelCard& m, Settings s) {
  s.insert(s.end(), {{"layout.dp", "1"}, {"attention", "scores"}});
  const Training t = training(m, s);
  return static_cast<double>(layer_activations(t, 0)) /
         static_cast<double>(t.sequence * m.hidden * t.micro_batch);
}

int64_t parameters(const Training& t) {
  int64_t sum = 0;
  for (int64_t u = 0; u < t.units(); ++u) sum += t.dense_on_rank(u);
  return sum;
}

// A:F01, A:N017: 502 PFLOP/s on 3072 A100 are 163 TFLOP/s each, 52 % of 312.
TEST(Facts, UtilisationOfATrillionParameters) {
  const ModelCard m = gpt(128, 25600, 160);
  const Training t = training(m, {{"layout.tp", "8"},
                                  {"layout.pp", "64"},
                                  {"layout.dp", "6"},
                                  {"batch.global", "3072"},
                                  {"recompute", "full"}});
  EXPECT_EQ(3072, t.ranks);
  const double seconds = step_flops(t).hardware / 502e15;
  const auto figures =
      measured_figures(t, load_device("a100-sxm", {}), Time::ps(std::llround(seconds * 1e12)),
                       std::vector<RankTimes>(1));
  for (const TrainingFigure& f : figures) {
    if (f.key == "hfu_ratio") {
      EXPECT_NEAR(0.524, f.value, 0.001);
    }
  }
  EXPECT_NEAR(163.4, 502e3 / 3072, 0.1);
}

// A:N008: TP 18 x PP 134 x DP 696 = 1,678,752 GPUs.
TEST(Facts, TheLayoutOfAHundredBillionDollars) {
  const Training t = training(gpt(134, 18 * 128, 18), {{"layout.tp", "18"},
                                                       {"layout.pp", "134"},
                                                       {"layout.dp", "696"},
                                                       {"layout.sequence_parallel", "false"},
                                                       {"batch.global", "696"}});
  EXPECT_EQ(1'678'752, t.ranks);
}

// A:F16, A:N064: 16 bytes per parameter, one in eight for parameters; GPT-2 with 1.5 billion needs
// 24 GB. A:F17, A:N065, A:N066: 120 GB of 7.5 billion become 31.4, 16.6, 1.88 and 0.12 GB.
TEST(Facts, StateOfZero) {
  const auto bytes = [](const ModelCard& m, const char* zero, const char* dp) {
    const Training t =
        training(m, {{"layout.zero", zero}, {"layout.dp", dp}, {"precision.compute", "fp16"}});
    const StageMemory s = stage_memory(t, 0);
    return static_cast<double>(s.parameters + s.gradients + s.optimizer) /
           static_cast<double>(parameters(t));
  };
  const ModelCard gpt2 = gpt(48, 1600, 25);
  EXPECT_DOUBLE_EQ(16, bytes(gpt2, "0", "1"));
  const Training t = training(gpt2, {{"layout.dp", "1"}, {"precision.compute", "fp16"}});
  EXPECT_EQ(2 * parameters(t), stage_memory(t, 0).parameters);
  EXPECT_NEAR(1.5, static_cast<double>(parameters(t)) * 1e-9, 0.1);
  EXPECT_GT(16 * static_cast<double>(parameters(t)) * 1e-9, 24);
  const ModelCard m = gpt(32, 4352, 34);  // about 7.5 billion: the figures scale
  EXPECT_NEAR(120, 7.5 * bytes(m, "0", "64"), 1e-6);
  EXPECT_NEAR(31.41, 7.5 * bytes(m, "1", "64"), 0.01);
  EXPECT_NEAR(16.64, 7.5 * bytes(m, "2", "64"), 0.01);
  EXPECT_NEAR(1.875, 7.5 * bytes(m, "3", "64"), 0.001);
  EXPECT_NEAR(0.117, 7.5 * bytes(m, "3", "1024"), 0.001);
  // The limits for many ranks: 4, 8 and N_d times less.
  EXPECT_NEAR(4, 16 / bytes(m, "1", "1024"), 0.02);
  EXPECT_NEAR(8, 16 / bytes(m, "2", "1024"), 0.06);
  EXPECT_NEAR(1024, 16 / bytes(m, "3", "1024"), 0.1);
}

// A:F18, A:N066: elements moved per step: 2P, 2P and 3P.
TEST(Facts, VolumeOfZero) {
  const ModelCard m = gpt(4, 1024, 16);
  const auto elements = [&](const char* zero) {
    const Training t = training(m, {{"layout.zero", zero},
                                    {"layout.dp", "64"},
                                    {"batch.global", "64"},
                                    {"batch.sequence", "128"},
                                    {"precision.gradients", "bf16"}});
    const Job job = generate_job(t, "j", 1).job;
    const double sent =
        static_cast<double>(dimension_volumes(job, 0)[static_cast<size_t>(Dimension::data)].sent);
    return sent / 2 / static_cast<double>(parameters(t)) * 64 / 63;
  };
  EXPECT_NEAR(2, elements("1"), 0.001);
  EXPECT_NEAR(2, elements("2"), 0.001);
  // The embedding is not gathered again backward.
  EXPECT_GT(elements("3"), 2.4);
  EXPECT_LE(elements("3"), 3.001);
}

// A:F20, A:N067: an fp32 copy of 3 billion gradients in one buffer: 12 GB.
TEST(Facts, FusedBufferOfGradients) {
  const ModelCard m = gpt(36, 2560, 32);
  const Training t = training(m, {{"layout.zero", "0"},
                                  {"layout.dp", "2"},
                                  {"batch.sequence", "128"},
                                  {"gradients.bucket", "100GB"}});
  const Job job = generate_job(t, "j", 1).job;
  const auto buffers = ops_of(job, 0, [](const Op& op, const Stream& s) {
    return op.kind == OpKind::collective && s.dimension == Dimension::data;
  });
  ASSERT_EQ(1U, buffers.size());
  EXPECT_EQ(4 * parameters(t), buffers[0].bytes);
  EXPECT_NEAR(
      12, 3e9 * static_cast<double>(buffers[0].bytes) / static_cast<double>(parameters(t)) * 1e-9,
      1e-9);
}

// A:N067: checkpoints of activations divided by 16 model-parallel ranks: 33 GB become 2.
TEST(Facts, PartitionedActivations) {
  const ModelCard m = gpt(125, 8192, 64);
  const double whole = per_sbh(m, {{"recompute", "full"}});
  const double split = per_sbh(m, {{"recompute", "full"}, {"layout.tp", "16"}});
  EXPECT_DOUBLE_EQ(16, whole / split);
  EXPECT_NEAR(2.06, 33 * split / whole, 0.01);
}

// A:F21 to A:F25, A:F30, A:N068, A:N070, A:N073 for GPT-3 and MT-NLG.
TEST(Facts, ActivationsAndRecomputation) {
  const ModelCard gpt3 = gpt(96, 12288, 96);
  const ModelCard mtnlg = gpt(105, 20480, 128);
  EXPECT_DOUBLE_EQ(34 + 80, per_sbh(gpt3, {}));
  EXPECT_NEAR(2.869e9, per_sbh(gpt3, {}) * 2048 * 12288, 0.001e9);
  const Settings no_sp = {{"layout.tp", "8"}, {"layout.sequence_parallel", "false"}};
  // Not split by t: 10 sbh, with sequence parallelism an eighth of it.
  EXPECT_NEAR(10 + (24 + 80) / 8.0, per_sbh(gpt3, no_sp), 1e-9);
  EXPECT_NEAR(114 / 8.0, per_sbh(gpt3, {{"layout.tp", "8"}}), 1e-9);
  EXPECT_NEAR(10 - 10 / 8.0, per_sbh(gpt3, no_sp) - per_sbh(gpt3, {{"layout.tp", "8"}}), 1e-9);
  const double both = per_sbh(gpt3, {{"layout.tp", "8"}, {"recompute", "selective"}});
  EXPECT_NEAR(34 / 8.0, both, 1e-9);
  EXPECT_NEAR(5.41, per_sbh(gpt3, no_sp) / both, 0.01);
  EXPECT_NEAR(0.70, 1 - per_sbh(gpt3, {{"recompute", "selective"}}) / per_sbh(gpt3, {}), 0.005);
  EXPECT_NEAR(0.65, 1 - per_sbh(mtnlg, {{"recompute", "selective"}}) / per_sbh(mtnlg, {}), 0.005);
  // A:F26: s / 6h more FLOPs: 2.7 % and 1.6 %, of what the layers take.
  for (const auto& [m, percent] : {std::pair{gpt3, 2.78}, {mtnlg, 1.67}}) {
    const Training t = training(m, {{"layout.dp", "1"}, {"recompute", "selective"}});
    const StepFlops f = step_flops(t);
    const double layers = 72.0 * 2048 * static_cast<double>(m.layers * m.hidden * m.hidden) *
                          static_cast<double>(t.global_batch);
    EXPECT_NEAR(percent, 100 * 3 * (f.hardware - f.model) / layers, 0.01);
  }
}

// A:F37, A:N104: four all-reduces per layer and micro-batch, six with full recompute; experts add
// two all-to-alls each way.
TEST(Facts, CallsPerLayer) {
  const auto count = [](const Training& t, CollectiveKind kind, Dimension d) {
    const Job job = generate_job(t, "j", 1).job;
    return ops_of(job, 0,
                  [&](const Op& op, const Stream& s) {
                    return op.kind == OpKind::collective && op.collective == kind &&
                           s.dimension == d && op.bytes > 100'000;
                  })
        .size();
  };
  const Settings base = {{"layout.tp", "4"},
                         {"layout.dp", "1"},
                         {"layout.sequence_parallel", "false"},
                         {"batch.global", "1"},
                         {"batch.sequence", "1024"}};
  const auto layers = [&](const char* recompute) {
    Settings s = base;
    s.emplace_back("recompute", recompute);
    return count(training(gpt(12, 1024, 16), s), CollectiveKind::all_reduce, Dimension::tensor) -
           count(training(gpt(8, 1024, 16), s), CollectiveKind::all_reduce, Dimension::tensor);
  };
  EXPECT_EQ(4U * 4, layers("none"));
  EXPECT_EQ(4U * 6, layers("full"));
  const Training moe = training(
      "mixtral-8x7b",
      {{"layout.ep", "8"}, {"layout.dp", "8"}, {"batch.global", "8"}, {"batch.sequence", "512"}});
  EXPECT_EQ(32U * 4, count(moe, CollectiveKind::all_to_all, Dimension::expert));
}

// A:F39, A:N102: messages of b s h elements: GPT-3's 50.3 MB; 680 of 125 MB are 85 GB.
TEST(Facts, SizesOfMessages) {
  const Training t = training("gpt3-175b", {{"layout.tp", "8"},
                                            {"layout.pp", "8"},
                                            {"layout.dp", "1"},
                                            {"layout.sequence_parallel", "false"},
                                            {"batch.global", "8"}});
  const Job job = generate_job(t, "j", 1).job;
  int64_t tensor = 0;
  int64_t stage = 0;
  for (const Op& op : job.ranks[0].graph->ops) {
    const Dimension d = job.ranks[0].graph->streams[op.stream].dimension;
    if (op.kind == OpKind::collective && d == Dimension::tensor)
      tensor = std::max(tensor, op.bytes);
    if (op.kind == OpKind::send) stage = std::max(stage, op.bytes);
  }
  EXPECT_EQ(int64_t{2} * 2048 * 12288, tensor);
  EXPECT_EQ(tensor, stage);
  EXPECT_NEAR(50.3e6, static_cast<double>(tensor), 0.1e6);
  EXPECT_DOUBLE_EQ(85.0, 680 * 125e-3);
  EXPECT_NEAR(0.979, 85 / (85 + 1 + 0.741 + 0.096), 0.0005);
}

// A:F33: interleaving multiplies what stages exchange, scatter-gather divides it.
TEST(Facts, InterleavingAndScatterGather) {
  const auto sent = [](const Settings& more) {
    Settings s = {{"layout.tp", "4"},    {"layout.pp", "4"},
                  {"layout.dp", "1"},    {"layout.sequence_parallel", "false"},
                  {"batch.global", "8"}, {"batch.sequence", "1024"}};
    s.insert(s.end(), more.begin(), more.end());
    const Job job = generate_job(training(gpt(16, 512, 8), s), "j", 1).job;
    int64_t bytes = 0;
    for (const auto& rank : job.ranks) {
      for (const Op& op : rank.graph->ops) bytes += op.kind == OpKind::send ? op.bytes : 0;
    }
    return bytes;
  };
  const int64_t plain = sent({});
  // Stages - 1 borders become chunks x stages - 1.
  EXPECT_EQ(plain / 3 * 15, sent({{"schedule.kind", "interleaved"}, {"schedule.chunks", "4"}}));
  EXPECT_EQ(plain / 4, sent({{"layout.scatter_gather", "true"}}));
}

// A:F36: p t d = n. A:F44: Kimi K2, 384 experts of which 8: sparsity 48.
TEST(Facts, LayoutsAndCards) {
  const Training t = training("gpt3-175b", {{"layout.tp", "8"}, {"layout.pp", "8"}}, 12288);
  EXPECT_EQ(12288, t.pp * t.tp * t.dp);
  const ModelCard kimi = load_model_card("kimi-k2", {});
  EXPECT_EQ(48, kimi.experts / kimi.topk);
  EXPECT_EQ(384, kimi.experts);
}

// A:F51: bus bandwidth of nccl-tests.
TEST(Facts, BusBandwidth) {
  EXPECT_DOUBLE_EQ(2.0 * 7 / 8, busbw_factor(CollectiveKind::all_reduce, 8));
  for (const CollectiveKind k :
       {CollectiveKind::all_gather, CollectiveKind::reduce_scatter, CollectiveKind::all_to_all}) {
    EXPECT_DOUBLE_EQ(7.0 / 8, busbw_factor(k, 8));
  }
  EXPECT_DOUBLE_EQ(1, busbw_factor(CollectiveKind::broadcast, 8));
  EXPECT_DOUBLE_EQ(1, busbw_factor(CollectiveKind::reduce, 8));
}

// A:F42, A:N093: exponentials of attention with heads of 128 take half the cycles of its products.
TEST(Facts, ExponentialsOnH100) {
  const DeviceCard h100 = load_device("h100-sxm", {});
  EXPECT_NEAR(3.9, h100.special_tops, 1e-9);
  EXPECT_NEAR(989, h100.tflops, 1);
  const auto ratio = [&](double d) { return (1 / h100.special_tops) / (4 * d / h100.tflops); };
  EXPECT_NEAR(0.495, ratio(128), 0.001);
  EXPECT_NEAR(0.99, ratio(64), 0.002);
}

/// Messages of one member in a ring of one channel.
int64_t ring_steps(CollectiveKind kind, uint32_t n) {
  Params params(collective_params());
  params.set("channels", "1", {});
  const auto ring = Registry::instance().factory<CollectiveFactory>("collective", "ring")(params);
  std::vector<uint32_t> members(n);
  std::iota(members.begin(), members.end(), 0U);
  const auto run = ring->begin({kind, 1 << 20, &members, {}, nullptr});
  std::vector<CollectiveSend> sends;
  std::vector<uint32_t> done;
  std::deque<CollectiveSend> flying;
  std::vector<int64_t> count(n);
  const auto launch = [&] {
    for (const CollectiveSend& s : sends) {
      ++count[s.src];
      flying.push_back(s);
    }
    sends.clear();
  };
  for (uint32_t m = 0; m < n; ++m) {
    run->arrived(m, sends, done);
    launch();
  }
  while (!flying.empty()) {
    const CollectiveSend s = flying.front();
    flying.pop_front();
    run->delivered(s, sends, done);
    launch();
  }
  EXPECT_EQ(n, done.size());
  EXPECT_EQ(count[0], *std::max_element(count.begin(), count.end()));
  return count[0];
}

// A:F47: 2k - 1 primitives, the first only sends, the last only receives: 2 (k - 1) hops on the
// wire. A:F48: k - 1 for all-gather and reduce-scatter.
TEST(Facts, RingSteps) {
  for (const uint32_t k : {2U, 3U, 8U, 17U}) {
    EXPECT_EQ(2 * k - 1 - 1, ring_steps(CollectiveKind::all_reduce, k));
    EXPECT_EQ(k - 1, ring_steps(CollectiveKind::all_gather, k));
    EXPECT_EQ(k - 1, ring_steps(CollectiveKind::reduce_scatter, k));
  }
}

Result run_text(const std::string& text) {
  namespace fs = std::filesystem;
  const fs::path file = fs::temp_directory_path() / ("facts_" + std::to_string(getpid()) + ".yaml");
  std::ofstream(file) << text;
  const Result r = run_scenario(load_scenario(file.string()));
  fs::remove(file);
  EXPECT_TRUE(r.complete) << r.incomplete_reason;
  return r;
}

int64_t payload_on(const Result& r, const std::string& tier) {
  int64_t bytes = 0;
  for (const LinkRecord& l : r.links) bytes += l.tier == tier ? l.data_bytes : 0;
  return bytes;
}

// A:N117: the counter of bytes on the spine is zero for rings over 3 and 5 servers.
TEST(Facts, RailRingsStayOffTheSpine) {
  for (const char* nodes : {"3", "5"}) {
    const std::string head = "cluster: {nodes: " + std::string(nodes) +
                             "}\nsimulation: {engine: flow}\ntraffic: [{pattern: collective, "
                             "collective: all-reduce, size: 16MiB}]\n";
    const Result kept = run_text(head + "collectives: {cross_nic: 0}\n");
    const Result crossed = run_text(head + "collectives: {cross_nic: 1}\n");
    EXPECT_EQ(0, payload_on(kept, "leaf-spine")) << nodes;
    EXPECT_GT(payload_on(kept, "host-leaf"), 0) << nodes;
    EXPECT_GT(payload_on(crossed, "leaf-spine"), 0) << nodes;
  }
}

// A:F55: no all-to-all is faster than what its busiest server has to send or receive.
TEST(Facts, AllToAllIsBoundByItsBusiestServer) {
  const Result r = run_text(
      "cluster: {nodes: 2}\n"
      "simulation: {engine: flow}\n"
      "traffic: [{pattern: collective, collective: all-to-all, size: 64MiB}]\n"
      "collectives: {algorithm: {all_to_all: hierarchical}}\n");
  ASSERT_EQ(1U, r.collectives.size());
  // 8 senders of a server have half of 64 MiB for the other one, over 8 NICs of 50 GB/s.
  const double bound = 8 * 64.0 * 1048576 / 2 / (8 * 50e9);
  const double time = (r.collectives[0].finish - r.collectives[0].start).seconds();
  EXPECT_GE(time, bound);
  EXPECT_LT(time, 1.5 * bound);
}

// A:N125, A: 1.6 #128: a rank is in ten groups and more, of which each takes buffers.
TEST(Facts, CommunicatorsOfARank) {
  EXPECT_EQ(0, communicators(training("llama3-8b", {{"layout.dp", "1"}})));
  EXPECT_EQ(3, communicators(training(
                   "llama3-70b", {{"layout.tp", "8"}, {"layout.pp", "4"}, {"layout.dp", "4"}})));
  const Training t = training("deepseek-v3", {{"layout.pp", "16"},
                                              {"layout.layers", "3 4 4 4 4 4 4 4 4 4 4 4 4 4 4 2"},
                                              {"layout.tp", "2"},
                                              {"layout.dp", "32"},
                                              {"layout.ep", "16"},
                                              {"experts.dispatch", "two-hop"}});
  // Tensor, pipeline, data; experts by rail and node, tensor and data of theirs.
  EXPECT_EQ(3 + 4, communicators(t));
  const Job job = generate_job(t, "j", 1).job;
  // All but the pipeline's are groups of a rank's graph; the first stage has no experts.
  std::set<uint32_t> groups;
  for (const uint32_t g : job.ranks[64].binding.groups) {
    if (job.groups[g].members.size() > 1) groups.insert(g);
  }
  EXPECT_EQ(6U, groups.size());
}

// A:F64: replicas together process the global batch, whatever the layout.
TEST(Facts, SamplesAreConserved) {
  for (const char* dp : {"1", "4", "16"}) {
    const Training t = training("llama3-8b", {{"layout.dp", dp}, {"batch.global", "64"}});
    EXPECT_EQ(64, t.dp * t.microbatches * t.micro_batch);
  }
}

}  // namespace
}  // namespace trainyard
