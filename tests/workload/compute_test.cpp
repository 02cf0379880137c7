// SPDX-License-Identifier: MIT
// Compute times against hand values of an H100: 989.4 TFLOPS dense BF16, 3350 GB/s.
#include "sim/compute_model.h"

#include <gtest/gtest.h>

#include "sim/errors.h"
#include "tests/workload/on_rails.h"

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

}  // namespace
}  // namespace trainyard
