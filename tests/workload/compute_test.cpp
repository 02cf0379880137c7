// SPDX-License-Identifier: MIT
// Compute times against hand values of an H100: 989.4 TFLOPS dense BF16, 3350 GB/s.
#include "sim/compute_model.h"

#include <gtest/gtest.h>

#include "sim/errors.h"
#include "tests/workload/on_rails.h"
#include "workload/roofline.h"
#include "workload/roofline_params.h"

namespace trainyard {
namespace {

using test::make_compute;

Time duration_of(const ComputeModel& model, const Op& op) {
  OpGraph g;
  g.streams = {{"compute", StreamOrder::fifo}};
  g.ops = {op};
  g.ops[0].name = g.intern("op");
  g.finish();
  const Time t = model.duration(g, 0, 0);
  EXPECT_EQ(t, model.duration(g, 0, 4711));  // the same on every rank
  return t;
}

Op make_op(OpKind kind, int64_t flops, int64_t bytes, Time duration = Time()) {
  Op op;
  op.kind = kind;
  op.flops = flops;
  op.bytes = bytes;
  op.duration = duration;
  return op;
}

TEST(Roofline, LongerOfComputeAndMemory) {
  const auto model = make_compute("roofline");
  EXPECT_EQ("roofline (uncalibrated)", model->source());
  const auto t = [&](int64_t flops, int64_t bytes) {
    return duration_of(*model, make_op(OpKind::compute, flops, bytes));
  };
  EXPECT_EQ(Time::s(1), t(989'400'000'000'000, 0));
  EXPECT_EQ(Time::s(1), t(0, 3'350'000'000'000));
  EXPECT_EQ(Time::ps(1'010'713'564), t(1'000'000'000'000, 0));  // 1e12 / 989.4e12 s = 1.0107... ms
  EXPECT_EQ(Time::ns(1), t(0, 3350));
  EXPECT_EQ(Time::ms(1), t(989'400'000'000, 3'349'000'000));
  EXPECT_EQ(Time::ms(2), t(989'400'000'000, 6'700'000'000));
  EXPECT_EQ(Time::ms(2), t(1'978'800'000'000, 6'699'999'999));
}

TEST(Roofline, EfficiencyScalesThePeakNotTheMemory) {
  const auto model = make_compute("roofline", "0.5");
  EXPECT_EQ(Time::s(2), duration_of(*model, make_op(OpKind::compute, 989'400'000'000'000, 0)));
  EXPECT_EQ(Time::s(1), duration_of(*model, make_op(OpKind::compute, 0, 3'350'000'000'000)));
  EXPECT_THROW((void)make_compute("roofline", "0"), UserError);
  EXPECT_THROW((void)make_compute("roofline", "1.5"), UserError);
}

TEST(Roofline, IgnoresTheTracedDurationUnlessThereIsNothingElse) {
  const auto model = make_compute("roofline");
  EXPECT_EQ(Time::ns(1), duration_of(*model, make_op(OpKind::compute, 0, 3350, Time::us(9))));
  EXPECT_EQ(Time::us(9), duration_of(*model, make_op(OpKind::compute, 0, 0, Time::us(9))));
}

TEST(TraceModel, TakesWhatTheTraceSays) {
  const auto model = make_compute("trace");
  EXPECT_EQ("trace", model->source());
  EXPECT_EQ(Time::us(9),
            duration_of(*model, make_op(OpKind::compute, 989'400'000'000'000, 3350, Time::us(9))));
  EXPECT_EQ(Time(), duration_of(*model, make_op(OpKind::compute, 1'000'000, 3350)));
}

TEST(TraceModel, MemoryWithoutDurationGoesByBytes) {
  const auto model = make_compute("trace");
  EXPECT_EQ(Time::ns(2), duration_of(*model, make_op(OpKind::memory, 0, 6700)));
  EXPECT_EQ(Time::us(5), duration_of(*model, make_op(OpKind::memory, 0, 6700, Time::us(5))));
}

/// Round numbers, so that every time can be read off.
DeviceCard round_card() {
  DeviceCard c;
  c.name = "round";
  c.tflops = 1000;
  c.fp8_tflops = 2000;
  c.tf32_tflops = 500;
  c.vector_tflops = 50;
  c.special_tops = 4;
  c.hbm_gbytes_per_s = 2000;
  return c;
}

Kernel kernel(Kernel::Kind kind, int64_t flops, int64_t bytes, int64_t special = 0) {
  Kernel k;
  k.kind = kind;
  k.flops = flops;
  k.bytes = bytes;
  k.special = special;
  return k;
}

TEST(Roofs, TheSlowestUnitSetsTheTime) {
  const DeviceCard c = round_card();
  const auto gemm = kernel(Kernel::Kind::gemm, 1'000'000'000'000, 1'000'000'000);
  EXPECT_EQ(Time::ms(1), roofline_time(gemm, c, {}));  // memory: half of that
  EXPECT_EQ("tensor", roofline_bound(gemm, c, {}));
  const auto wide = kernel(Kernel::Kind::gemm, 1'000'000'000'000, 4'000'000'000);
  EXPECT_EQ(Time::ms(2), roofline_time(wide, c, {}));
  EXPECT_EQ("memory", roofline_bound(wide, c, {}));
  // 8e9 exponentials at 4e12 per second.
  const auto core = kernel(Kernel::Kind::attention, 1'000'000'000'000, 0, 8'000'000'000);
  EXPECT_EQ(Time::ms(2), roofline_time(core, c, {}));
  EXPECT_EQ("special", roofline_bound(core, c, {}));
  // Outside the tensor cores: 1e11 at 50 TFLOPS.
  const auto pointwise = kernel(Kernel::Kind::elementwise, 100'000'000'000, 2'000'000'000);
  EXPECT_EQ(Time::ms(2), roofline_time(pointwise, c, {}));
  EXPECT_EQ("vector", roofline_bound(pointwise, c, {}));
}

TEST(Roofs, APeakPerPrecision) {
  const DeviceCard c = round_card();
  Kernel k = kernel(Kernel::Kind::gemm, 1'000'000'000'000, 0);
  EXPECT_EQ(Time::ms(1), roofline_time(k, c, {}));
  k.precision = Kernel::Precision::fp8;
  EXPECT_EQ(Time::us(500), roofline_time(k, c, {}));
  k.precision = Kernel::Precision::tf32;
  EXPECT_EQ(Time::ms(2), roofline_time(k, c, {}));
  DeviceCard old = c;
  old.fp8_tflops = 0;
  k.precision = Kernel::Precision::fp8;
  try {
    (void)roofline_time(k, old, {});
    ADD_FAILURE() << "fp8 on a device without it";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("round has no fp8"), std::string::npos) << e.what();
  }
}

TEST(Roofs, SharesAndLaunchByClass) {
  Params p(roofline_params());
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"efficiency", "0.9"},
                                                        {"gemm_efficiency", "0.8"},
                                                        {"memory_efficiency", "0.5"},
                                                        {"elementwise_efficiency", "1/4"},
                                                        {"launch", "3us"}}) {
    p.set(name, value, {});
  }
  const RooflineShares shares = roofline_shares(p);
  EXPECT_EQ(0.9, shares.attention);  // auto: efficiency
  const DeviceCard c = round_card();
  EXPECT_EQ(Time::us(1253),
            roofline_time(kernel(Kernel::Kind::gemm, 1'000'000'000'000, 0), c, shares));
  EXPECT_EQ(Time::us(2003), roofline_time(kernel(Kernel::Kind::gemm, 0, 2'000'000'000), c, shares));
  EXPECT_EQ(Time::us(4003),
            roofline_time(kernel(Kernel::Kind::elementwise, 0, 2'000'000'000), c, shares));
  // 3.6e9 exponentials at 0.9 x 4e12 per second.
  EXPECT_EQ(Time::us(1003),
            roofline_time(kernel(Kernel::Kind::attention, 0, 0, 3'600'000'000), c, shares));
}

// A:F42: on H100, exponentials of heads of 128 take half the cycles of the products.
TEST(Roofs, ExponentialsOfAttentionOnH100) {
  DeviceCard c;
  c.tflops = 989;
  c.special_tops = 3.9;
  c.hbm_gbytes_per_s = 3350;
  const int64_t scores = int64_t{1} << 34;
  const auto time = [&](int64_t head, bool products) {
    return roofline_time(kernel(Kernel::Kind::attention, products ? scores * 4 * head : 0, 0,
                                products ? 0 : scores),
                         c, {})
        .seconds();
  };
  EXPECT_NEAR(0.495, time(128, false) / time(128, true), 0.001);
  EXPECT_NEAR(0.99, time(64, false) / time(64, true), 0.001);
}

TEST(Roofs, AnOpTakesTheSumOfItsKernels) {
  OpGraph g;
  g.streams = {{"compute", StreamOrder::fifo}};
  Op op = make_op(OpKind::compute, 3'000, 3'000);
  op.name = g.intern("op");
  op.kernels = 2;
  g.ops = {op};
  g.kernels = {kernel(Kernel::Kind::gemm, 1'000'000'000'000, 0),
               kernel(Kernel::Kind::elementwise, 0, 2'000'000'000)};
  g.finish();
  const DeviceCard c = round_card();
  Params p(roofline_params());
  p.set("launch", "2us", {});
  const auto model =
      Registry::instance().factory<ComputeFactory>("compute", "roofline")(p, {c, "", {}});
  EXPECT_EQ(Time::us(2004), model->duration(g, 0, 0));
}

}  // namespace
}  // namespace trainyard
