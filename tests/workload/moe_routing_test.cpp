// SPDX-License-Identifier: MIT
#include "workload/generator/moe_routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/registry.h"
#include "workload/collective_params.h"

namespace trainyard {
namespace {

MoeRoutingConfig config(double sigma, double source = 0, double capacity = 0) {
  MoeRoutingConfig c;
  c.seed = 7;
  c.experts = 64;
  c.topk = 2;
  c.layers = 4;
  c.microbatches = 8;
  c.tokens = 4096;
  c.token_bytes = 100;
  c.combine_bytes = 200;
  c.sigma = sigma;
  c.source_sigma = source;
  c.capacity = capacity;
  return c;
}

TEST(MoeRouting, PowersOfTwoInIntegers) {
  for (const double x : {-3.7, -1.0, -0.25, 0.0, 0.1, 0.5, 1.0, 2.9, 10.3}) {
    const auto y = static_cast<double>(exp2_q32(std::llround(x * 4294967296.0))) / 4294967296.0;
    EXPECT_NEAR(1, y / std::exp2(x), 1e-8) << x;
  }
}

TEST(MoeRouting, EveryTokenGoesSomewhere) {
  const MoeRouting r(config(0.8));
  const auto tokens = r.tokens(0, 8, r.exchange(0, 0, 0, false));
  for (int m = 0; m < 8; ++m) {
    EXPECT_EQ(2 * 4096,
              std::accumulate(tokens.begin() + m * 64, tokens.begin() + (m + 1) * 64, int64_t{0}));
  }
  const auto there = r.sizes(0, 8, r.exchange(0, 0, 0, false));
  const auto back = r.sizes(0, 8, r.exchange(0, 0, 0, true));
  uint64_t load = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    for (uint32_t j = 0; j < 8; ++j) {
      EXPECT_EQ(2 * (*there)[i * 8 + j], (*back)[j * 8 + i]);  // bytes of a token differ
    }
    load += r.load_q32(0, 8, r.exchange(0, 0, 0, false), i);
  }
  EXPECT_NEAR(8.0, static_cast<double>(load) / 4294967296.0, 1e-6);
}

TEST(MoeRouting, LoadsHaveTheSpreadThatWasAskedFor) {
  for (const double sigma : {0.2, 0.5, 1.0}) {
    const MoeRouting r(config(sigma));
    double sum = 0;
    double squares = 0;
    int n = 0;
    for (uint32_t step = 0; step < 50; ++step) {
      const auto tokens = r.tokens(0, 1, r.exchange(step, 0, 1, false));
      for (const int64_t t : tokens) {
        const double x = static_cast<double>(t) / 128;  // over the even share
        sum += x;
        squares += x * x;
        ++n;
      }
    }
    EXPECT_NEAR(1, sum / n, 0.02);
    // Coefficient of variation of a log-normal.
    const double expected = std::sqrt(std::exp(sigma * sigma) - 1);
    EXPECT_NEAR(1, std::sqrt(squares / n - 1) / expected, 0.15) << sigma;
  }
}

TEST(MoeRouting, DrawnAnewPerLayerAndStepAndAlikeInAllMicrobatches) {
  const MoeRouting r(config(0.5));
  const auto load = [&](uint32_t step, uint32_t mb, uint32_t layer) {
    return r.load_q32(0, 8, r.exchange(step, mb, layer, false), 3);
  };
  EXPECT_EQ(load(0, 0, 1), load(0, 5, 1));
  EXPECT_NE(load(0, 0, 1), load(1, 0, 1));
  EXPECT_NE(load(0, 0, 1), load(0, 0, 2));
  const MoeRouting own(config(0.5, 0.3));
  EXPECT_NE(own.load_q32(0, 8, own.exchange(0, 0, 1, false), 3),
            own.load_q32(0, 8, own.exchange(0, 5, 1, false), 3));
  EXPECT_NE(own.load_q32(0, 8, own.exchange(0, 0, 1, false), 3),
            own.load_q32(1, 8, own.exchange(0, 0, 1, false), 3));
}

TEST(MoeRouting, CapacityDropsTokens) {
  const MoeRouting r(config(1.0, 0, 1));
  const auto tokens = r.tokens(0, 8, r.exchange(0, 0, 0, false));
  EXPECT_EQ(128, *std::max_element(tokens.begin(), tokens.end()));
}

// ---- all-to-all(v)

TEST(DirectAllToAll, SendsUnequalSharesAndNothingWhereThereIsNothing) {
  const std::vector<uint32_t> members{10, 11, 12, 13};
  // Member 3 neither sends nor receives.
  const auto sizes = std::make_shared<std::vector<int64_t>>(
      std::vector<int64_t>{9, 5, 0, 0, 7, 9, 1, 0, 0, 2, 9, 0, 0, 0, 0, 9});
  CollectiveRequest request{CollectiveKind::all_to_all, 16, &members, {}, sizes};
  const auto selector = make_collective_selector(Params(collective_params()));
  const auto run = selector->choose(request).begin(request);
  std::vector<CollectiveSend> sends;
  std::vector<uint32_t> done;
  for (const uint32_t m : {3U, 0U, 1U}) run->arrived(m, sends, done);
  EXPECT_TRUE(done.empty());
  run->arrived(2, sends, done);
  EXPECT_EQ(std::vector<uint32_t>{3}, done);
  int64_t sum = 0;
  for (size_t i = 0; i < sends.size(); ++i) {
    const CollectiveSend send = sends[i];
    EXPECT_EQ((*sizes)[send.src * 4 + send.dst], send.bytes);
    sum += send.bytes;
    run->delivered(send, sends, done);
  }
  EXPECT_EQ(5 + 7 + 1 + 2, sum);
  std::sort(done.begin(), done.end());
  EXPECT_EQ((std::vector<uint32_t>{0, 1, 2, 3}), done);
  std::vector<CollectiveReceive> coming;
  run->receives(2, coming);
  ASSERT_EQ(1U, coming.size());
  EXPECT_EQ(1U, coming[0].src);
}

}  // namespace
}  // namespace trainyard
