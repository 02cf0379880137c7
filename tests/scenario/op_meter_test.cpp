// SPDX-License-Identifier: MIT
#include "tools/scenario/op_meter.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace trainyard {
namespace {

TEST(OpMeter, NamesWithoutNumbers) {
  EXPECT_EQ("gradients", kernel_name("B15 L119 gradients"));
  EXPECT_EQ("attention all-gather", kernel_name("F0 L0 attention all-gather"));
  EXPECT_EQ("all-reduce", kernel_name("all-reduce 17"));
  EXPECT_EQ("COMP_NODE_layer12", kernel_name("COMP_NODE_layer12"));
  EXPECT_EQ("fp8gemm", kernel_name("fp8gemm"));
  EXPECT_EQ("F0 L1", kernel_name("F0 L1"));  // nothing would be left
  EXPECT_EQ("", kernel_name(""));
}

TEST(OpMeter, DistributionIsExactWhileFewValuesDiffer) {
  Distribution d;
  for (int i = 1; i <= 100; ++i) d.add(Time::ns(i));
  EXPECT_EQ(100U, d.count());
  EXPECT_EQ(Time::ns(5050), d.total());
  EXPECT_EQ(Time::ns(50), d.percentile(50));
  EXPECT_EQ(Time::ns(99), d.percentile(99));
  EXPECT_EQ(Time::ns(100), d.percentile(100));
  d.add(Time::ns(1), 300);
  EXPECT_EQ(Time::ns(1), d.percentile(50));
}

TEST(OpMeter, ManyValuesAreRoundedDownToNineBits) {
  Distribution d;
  for (int64_t i = 1; i <= 100'000; ++i) d.add(Time::ps(1'000'000 + 17 * i));
  EXPECT_EQ(100'000U, d.count());
  EXPECT_EQ(100'000LL * 1'000'000 + 17LL * 100'000 * 100'001 / 2, d.total().ps());
  for (const uint32_t p : {1U, 50U, 99U}) {
    const double exact = 1'000'000.0 + 17.0 * 1000 * p;
    const auto rounded = static_cast<double>(d.percentile(p).ps());
    EXPECT_LE(rounded, exact);
    EXPECT_GE(rounded, exact * (1 - 1.0 / 256));
  }
}

TEST(OpMeter, RowsOfAllRanksThenOfEach) {
  OpGraph g;
  g.streams.push_back({"compute", StreamOrder::fifo, Dimension::none});
  for (const char* name : {"F0 mlp", "F1 mlp", "F0 head"}) {
    Op op;
    op.kind = OpKind::compute;
    op.name = g.intern(name);
    g.ops.push_back(op);
  }
  g.finish();
  OpMeter meter(2);
  meter.add(0, g, 0, Time::us(1));
  meter.add(0, g, 1, Time::us(3));
  meter.add(1, g, 0, Time::us(2));
  meter.add(1, g, 2, Time::us(50));
  const auto rows = meter.take();
  ASSERT_EQ(5U, rows.size());
  EXPECT_EQ("head", rows[0].kernel);  // the most time first
  EXPECT_EQ("mlp", rows[1].kernel);
  EXPECT_EQ("compute", rows[1].stream);
  EXPECT_EQ(-1, rows[1].rank);
  EXPECT_EQ(3U, rows[1].count);
  EXPECT_EQ(Time::us(2), rows[1].p50);
  EXPECT_EQ(Time::us(3), rows[1].p99);
  EXPECT_EQ(Time::us(6), rows[1].total);
  EXPECT_EQ(0, rows[2].rank);
  EXPECT_EQ(2U, rows[2].count);
  EXPECT_EQ("head", rows[3].kernel);
  EXPECT_EQ(1, rows[3].rank);
  // Large jobs have no rows of ranks.
  OpMeter many(OpMeter::kMostRanks + 1);
  many.add(7, g, 0, Time::us(1));
  ASSERT_EQ(1U, many.take().size());
  EXPECT_EQ(-1, many.take()[0].rank);
}

TEST(OpMeter, CallSizesByDimension) {
  auto g = std::make_shared<OpGraph>();
  g->streams.push_back({"dp", StreamOrder::fifo, Dimension::data});
  g->streams.push_back({"pp", StreamOrder::free, Dimension::pipeline});
  for (const int64_t bytes : {1000, 1023, 1024}) {
    Op op;
    op.kind = OpKind::collective;
    op.collective = CollectiveKind::all_gather;
    op.bytes = bytes;
    op.name = g->intern("gradients");
    g->ops.push_back(op);
  }
  Op send;
  send.kind = OpKind::send;
  send.stream = 1;
  send.bytes = 4096;
  send.name = g->intern("send");
  g->ops.push_back(send);
  g->finish();
  Job job;
  job.ranks = {{g, {}}, {g, {}}};
  const auto rows = call_sizes(job);
  ASSERT_EQ(3U, rows.size());
  EXPECT_EQ("send", rows[0].kind);
  EXPECT_EQ(Dimension::pipeline, rows[0].dimension);
  EXPECT_EQ(4096, rows[0].from_bytes);
  EXPECT_EQ(2U, rows[0].calls);
  EXPECT_EQ(8192, rows[0].bytes);
  EXPECT_EQ(Dimension::data, rows[1].dimension);
  EXPECT_EQ(512, rows[1].from_bytes);
  EXPECT_EQ(4U, rows[1].calls);
  EXPECT_EQ(2 * 2023, rows[1].bytes);
  EXPECT_EQ(1024, rows[2].from_bytes);
  EXPECT_EQ(2U, rows[2].calls);
}

}  // namespace
}  // namespace trainyard
