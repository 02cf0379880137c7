// SPDX-License-Identifier: MIT
// Kernel times of the fitted model against values worked out by hand, on a card with round numbers.
#include "workload/fitted.h"

#include <gtest/gtest.h>

#include "sim/errors.h"
#include "tests/workload/training_test_util.h"
#include "workload/generator/layer_work.h"
#include "workload/roofline.h"

namespace trainyard {
namespace {

DeviceCard card() {
  DeviceCard c;
  c.name = "round";
  c.generation = "hopper";
  c.tflops = 1000;
  c.fp8_tflops = 2000;
  c.hbm_gbytes_per_s = 2000;
  c.fit.gemm_half = 0.8;
  c.fit.gemm_fp8 = 0.5;
  c.fit.gemm_fp8_blocks = 0.4;
  c.fit.gemm_columns = 100;
  c.fit.gemm_inner = 50;
  c.fit.grouped = 0.5;
  c.fit.attention = 0.4;
  c.fit.attention_backward = 0.5;
  c.fit.attention_queries = 1000;
  c.fit.attention_head64 = 0.8;
  c.fit.unfused = 0.25;
  c.fit.unfused_misaligned = 3;
  c.fit.memory = 0.5;  // 1e12 bytes per second
  c.fit.cast = 0.25;
  c.fit.cast_blocks = 0.5;
  c.fit.launch = Time::us(2);
  return c;
}

Kernel gemm(int64_t m, int64_t n, int64_t k, int64_t bytes = 0) {
  return {Kernel::Kind::gemm, 2 * m * n * k, bytes, m, n, k};
}

double us(const Kernel& k, const SoftwareFactors& s = {}, const DeviceCard& c = card()) {
  return fitted_seconds(k, c, s) * 1e6;
}

TEST(Fitted, ALargeProductReachesItsShareAndASmallOneLess) {
  // 1 + 100 (1/1000 + 1/1000) + 50/1000 = 1.25 times 2e9 / 0.8e15 s.
  EXPECT_NEAR(us(gemm(1000, 1000, 1000)), 2.5 * 1.25 + 2, 1e-9);
  // Bytes of memory may take longer.
  EXPECT_NEAR(us(gemm(1000, 1000, 1000, 50'000'000)), 50 + 2, 1e-9);
  // fp8 has twice the peak, needs products twice as large, and casts a quarter of its bytes.
  Kernel low = gemm(1000, 1000, 1000, 1'000'000);
  low.precision = Kernel::Precision::fp8;
  EXPECT_NEAR(us(low), 2 * 1.5 + 0.25 + 2, 1e-9);
  low.precision = Kernel::Precision::fp8_blocks;
  EXPECT_NEAR(us(low), 2.5 * 1.5 + 0.5 + 2, 1e-9);
}

TEST(Fitted, GroupsShareOutTheRowsOrTheInnerDimension) {
  Kernel k = gemm(8000, 1000, 1000);
  k.groups = 8;  // of 1000 rows each, at half the share
  EXPECT_NEAR(us(k), 8 * 2.5 * 1.25 * 2 + 2, 1e-9);
  Kernel w = gemm(1000, 1000, 8000);
  w.groups = 8;
  w.group_inner = true;
  EXPECT_NEAR(us(w), 8 * 2.5 * 1.25 * 2 + 2, 1e-9);
}

TEST(Fitted, APieceIsItsPartOfTheWholeProduct) {
  Kernel piece = gemm(250, 1000, 1000, 20'000'000);
  piece.pieces = 4;
  piece.whole_bytes = 50'000'000;
  EXPECT_NEAR(us(piece), us(gemm(1000, 1000, 1000, 50'000'000)) / 4, 1e-9);
}

TEST(Fitted, AttentionByHeadsQueriesDirectionAndSoftware) {
  Kernel a{Kernel::Kind::attention, 4'000'000'000, 0, 4000, 4000, 4096};
  a.head = 128;
  a.queries = 1000;  // half of its share: 4e9 / 0.2e15
  EXPECT_NEAR(us(a), 20 + 2, 1e-9);
  a.backward = true;
  EXPECT_NEAR(us(a), 40 + 2, 1e-9);
  a.head = 64;
  EXPECT_NEAR(us(a), 50 + 2, 1e-9);
  SoftwareFactors old;
  old.attention_hopper = 0.5;
  old.attention_ampere = 0.1;
  EXPECT_NEAR(us(a, old), 100 + 2, 1e-9);
  DeviceCard other = card();
  other.generation = "cdna";
  EXPECT_NEAR(us(a, old, other), 50 + 2, 1e-9);
}

TEST(Fitted, UnfusedAttentionIsItsProductsAndItsScoresThroughMemory) {
  Kernel a{Kernel::Kind::attention, 1, 1, 1000, 1000, 1024};
  a.head = 64;
  a.scores = 1'000'000;
  a.square_flops = 4'000'000'000;  // at 0.8 x 0.25 of the peak: 20 us
  EXPECT_NEAR(us(a), 20 + 8 + 3 * 2, 1e-9);
  a.head = 60;
  SoftwareFactors s;
  s.scores = 1.5;
  EXPECT_NEAR(us(a, s), 60 + 12 + 3 * 2, 1e-9);
}

TEST(Fitted, ElementwiseKernelsAreScaledByTheSoftwareAndTheOptimizerByItsOwn) {
  Kernel e{Kernel::Kind::elementwise, 0, 10'000'000, 0, 0, 0};
  SoftwareFactors s;
  s.elementwise = 1.5;
  s.optimizer = 3;
  s.kernels = 2;
  EXPECT_NEAR(us(e), 10 + 4, 1e-9);
  EXPECT_NEAR(us(e, s), 2 * (15 + 4), 1e-9);
  e.optimizer = true;
  EXPECT_NEAR(us(e, s), 30, 1e-9);
  EXPECT_EQ(fitted_time(e, card(), s), Time::us(30));
}

TEST(Fitted, AnOpLastsNoLessThanTheHostLaunchesIt) {
  std::vector<Kernel> op(4, gemm(10, 10, 10));
  op[1].groups = 2;
  op[2].pieces = 2;
  op[3].optimizer = true;
  SoftwareFactors s;
  EXPECT_DOUBLE_EQ(fitted_op_seconds(5e-6, op.data(), op.size(), s), 5e-6);
  s.host = Time::us(20);
  s.host_experts = Time::us(100);
  EXPECT_DOUBLE_EQ(fitted_op_seconds(5e-6, op.data(), op.size(), s), 150e-6);
  EXPECT_DOUBLE_EQ(fitted_op_seconds(1, op.data(), op.size(), s), 1);
}

TEST(Fitted, TheSlowestOfManyGpusSetsThePace) {
  EXPECT_DOUBLE_EQ(straggle_factor(0.01, 1), 1);
  EXPECT_DOUBLE_EQ(straggle_factor(0.01, 8), 1);
  EXPECT_DOUBLE_EQ(straggle_factor(0.01, 12), 1.005);
  EXPECT_DOUBLE_EQ(straggle_factor(0.01, 16), 1.01);
  EXPECT_DOUBLE_EQ(straggle_factor(0.01, 1024), 1.07);
}

TEST(Fitted, APrecisionWithoutRateOrFitIsRefused) {
  Kernel k = gemm(1000, 1000, 1000);
  k.precision = Kernel::Precision::fp4;
  EXPECT_THROW((void)us(k), UserError);
  DeviceCard c = card();
  c.fp8_tflops = 0;
  k.precision = Kernel::Precision::fp8;
  EXPECT_THROW((void)us(k, {}, c), UserError);
}

TEST(Fitted, TheRooflineDoesNotSeeWhatTellsKernelsApart) {
  Kernel plain = gemm(1000, 1000, 1000, 1'000'000);
  Kernel told = plain;
  told.groups = 8;
  told.pieces = 4;
  told.whole_bytes = 7;
  told.queries = 5;
  told.head = 64;
  told.scores = 9;
  told.square_flops = 11;
  EXPECT_EQ(roofline_time(plain, card(), {}), roofline_time(told, card(), {}));
}

using test::gpt;
using test::training;

TEST(KernelClasses, OutputLayerAndExpertsAreTold) {
  ModelCard m = gpt(4, 1024, 16);
  m.experts = 8;
  m.topk = 2;
  m.expert_ffn = 512;
  const test::Settings fp8 = {{"layout.ep", "4"},           {"layout.dp", "4"},
                              {"batch.global", "8"},        {"batch.sequence", "512"},
                              {"precision.compute", "fp8"}, {"batch.micro", "2"}};
  const Training plain = training(m, fp8);
  const LayerWork same(plain);
  EXPECT_EQ(same.head.forward[0].precision, Kernel::Precision::fp8);
  EXPECT_EQ(same.experts.forward[0].groups, 2);
  EXPECT_FALSE(same.experts.forward[0].group_inner);
  EXPECT_EQ(same.experts.weight[0].groups, 2);
  EXPECT_TRUE(same.experts.weight[0].group_inner);
  EXPECT_EQ(same.qkv.forward[0].groups, 1);
  EXPECT_EQ(same.core.forward[0].queries, 512);
  EXPECT_EQ(same.core.forward[0].head, 64);
  EXPECT_EQ(same.core.forward[0].scores, 0);

  const Training output = training(m, test::with(fp8, {{"precision.output", "bf16"}}));
  const LayerWork split(output);
  EXPECT_EQ(split.head.forward[0].precision, Kernel::Precision::half);
  EXPECT_GT(split.head.forward[0].bytes, same.head.forward[0].bytes);
  EXPECT_EQ(split.qkv.forward[0].precision, Kernel::Precision::fp8);

  const Training blocks = training(m, test::with(fp8, {{"precision.compute", "mxfp8"}}));
  EXPECT_EQ(LayerWork(blocks).qkv.forward[0].precision, Kernel::Precision::fp8_blocks);
}

TEST(KernelClasses, StoredScoresAreTheWholeSquareMaskedOrNot) {
  const test::Settings base = {{"batch.global", "2"},
                               {"batch.micro", "2"},
                               {"batch.sequence", "256"},
                               {"layout.dp", "1"},
                               {"attention", "scores"}};
  for (const char* causal : {"true", "false"}) {
    const Training t = training(gpt(2, 512, 8), test::with(base, {{"causal", causal}}));
    const LayerWork w(t);
    const Kernel& f = w.core.forward[0];
    EXPECT_EQ(f.scores, int64_t{2} * 8 * 256 * 256) << causal;
    EXPECT_EQ(f.square_flops, 2 * 2 * int64_t{2} * 8 * 256 * 256 * 64) << causal;
    EXPECT_EQ(w.core.input[0].scores, 2 * f.scores) << causal;
    EXPECT_EQ(w.core.input[0].square_flops, 2 * f.square_flops) << causal;
  }
}

}  // namespace
}  // namespace trainyard
