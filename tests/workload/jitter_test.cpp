// SPDX-License-Identifier: MIT
// Scattered compute times: the normal deviates behind them, their moments, and who gets which.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "sim/dice.h"
#include "sim/errors.h"
#include "sim/registry.h"
#include "workload/compute_variation.h"
#include "workload/normal_quantile.h"

namespace trainyard {
namespace {

constexpr double kOne = 4294967296.0;

double upper_tail(double z) {
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

TEST(NormalDeviates, HaveTheTailsOfTheNormalDistribution) {
  // A draw below 2^63 is the tail probability in 1/2^64.
  for (const double p : {0.49, 0.4, 0.3, 0.2501, 0.2, 0.1234, 0.05, 0.01, 1e-3, 3e-5, 1e-6, 5e-8}) {
    const double z =
        static_cast<double>(normal_q32(static_cast<uint64_t>(p * 18446744073709551616.0))) / kOne;
    EXPECT_NEAR(1, upper_tail(z) / p, 5e-4) << p;
  }
  for (const uint64_t draw : {uint64_t{1}, uint64_t{12345}, uint64_t{0x3243f6a8885a308d}}) {
    EXPECT_EQ(normal_q32(draw), -normal_q32(draw | uint64_t{1} << 63));
  }
  int64_t last = normal_q32(0);  // falls as the tail grows
  EXPECT_NEAR(6.2, static_cast<double>(last) / kOne, 0.2);
  for (uint64_t i = 1; i < 4096; ++i) {
    const int64_t z = normal_q32(i << 51);
    EXPECT_LE(z, last);
    last = z;
  }
  EXPECT_NEAR(0, static_cast<double>(normal_q32((uint64_t{1} << 63) - 1)) / kOne, 1e-6);
}

std::unique_ptr<Jitter> make(const std::string& kind, const std::string& sigma) {
  Params p(Registry::instance().get("jitter", kind).params);
  p.set("sigma", sigma, {});
  return Registry::instance().factory<JitterFactory>("jitter", kind)(p);
}

TEST(Jitter, MomentsOverManyDraws) {
  constexpr int kDraws = 400'000;
  for (const char* kind : {"lognormal", "normal"}) {
    const auto jitter = make(kind, "10%");
    double sum = 0, squares = 0, cubes = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double f =
          static_cast<double>(jitter->factor_q32(dice(1, 999, 7, static_cast<uint64_t>(i)))) / kOne;
      sum += f - 1;
      squares += (f - 1) * (f - 1);
      cubes += (f - 1) * (f - 1) * (f - 1);
    }
    const double sd = std::sqrt(squares / kDraws);
    EXPECT_NEAR(0, sum / kDraws, 5 * 0.1 / std::sqrt(kDraws)) << kind;
    EXPECT_NEAR(0.1, sd, 0.001) << kind;
    // Lognormal: (exp(s^2) + 2) sqrt(exp(s^2) - 1) = 0.302 for s = 0.1.
    const double skew = cubes / kDraws / (sd * sd * sd);
    EXPECT_NEAR(std::string(kind) == "lognormal" ? 0.302 : 0, skew, 0.03) << kind;
  }
}

TEST(Jitter, NoneIsNoModelAndZeroIsOne) {
  EXPECT_EQ(nullptr, Registry::instance().factory<JitterFactory>("jitter", "none")(Params()));
  EXPECT_EQ(uint64_t{1} << 32, make("lognormal", "0")->factor_q32(12345));
  EXPECT_EQ(uint64_t{1} << 32, make("normal", "0")->factor_q32(12345));
  EXPECT_THROW((void)make("lognormal", "2"), UserError);
  // Far out a normal factor would be negative.
  EXPECT_EQ((uint64_t{1} << 32) / 10, make("normal", "25%")->factor_q32(uint64_t{1} << 63));
}

/// Bit for bit on every machine.
TEST(Jitter, PinnedFactors) {
  const auto lognormal = make("lognormal", "1%");
  const auto normal = make("normal", "1%");
  EXPECT_EQ(4'260'967'940U, lognormal->factor_q32(dice(1, 220, 0, 0)));
  EXPECT_EQ(4'370'250'138U, lognormal->factor_q32(dice(1, 220, 17, 5)));
  EXPECT_EQ(4'369'812'712U, normal->factor_q32(dice(1, 220, 17, 5)));
}

class Fixed final : public ComputeModel {
 public:
  [[nodiscard]] Time duration(const OpGraph& graph, uint32_t op, uint32_t) const override {
    return graph.ops[op].duration;
  }
  [[nodiscard]] std::string source() const override { return "fixed"; }
};

OpGraph two_streams() {
  OpGraph g;
  g.streams = {{"compute", StreamOrder::fifo}, {"host", StreamOrder::ready}};
  for (const uint32_t stream : {0U, 1U, 0U}) {
    Op op;
    op.kind = OpKind::compute;
    op.name = g.intern("op");
    op.stream = stream;
    op.duration = Time::us(100);
    g.ops.push_back(op);
  }
  g.finish();
  return g;
}

TEST(Variation, SlowRanksByTheirFactorHostsNever) {
  const OpGraph g = two_streams();
  const uint64_t one = uint64_t{1} << 32;
  const auto model =
      vary_compute(std::make_unique<Fixed>(), {nullptr, 1, {one, one + one / 10, one * 2}});
  EXPECT_EQ("fixed", model->source());
  EXPECT_EQ(Time::us(100), model->duration(g, 0, 0));
  EXPECT_EQ(Time::us(110), model->duration(g, 0, 1));
  EXPECT_EQ(Time::us(200), model->duration(g, 2, 2));
  EXPECT_EQ(Time::us(100), model->duration(g, 1, 2));
}

TEST(Variation, DiceOfSeedRankAndOp) {
  const OpGraph g = two_streams();
  const auto with_seed = [](uint64_t seed) {
    return vary_compute(std::make_unique<Fixed>(), {make("normal", "5%"), seed, {}});
  };
  const auto a = with_seed(1), again = with_seed(1), other = with_seed(2);
  EXPECT_EQ(a->duration(g, 0, 3), again->duration(g, 0, 3));
  EXPECT_NE(a->duration(g, 0, 3), a->duration(g, 0, 4));
  EXPECT_NE(a->duration(g, 0, 3), a->duration(g, 2, 3));
  EXPECT_NE(a->duration(g, 0, 3), other->duration(g, 0, 3));
  EXPECT_EQ(Time::us(100), a->duration(g, 1, 3));
}

}  // namespace
}  // namespace trainyard
