// SPDX-License-Identifier: MIT
// The arithmetic against published numbers (protocols 5.5).
#include "tools/lint/formulas.h"

#include <gtest/gtest.h>

namespace trainyard::lint {
namespace {

// SIGCOMM'15: 32 ports of 40 Gb/s, 12 MB, 8 priorities, 22.4 KB of headroom per port and priority.
constexpr double kBuffer = 12e6, kFlight = 22'400;
constexpr int kPorts = 32, kClasses = 8;

TEST(LintFormulas, PaperStaticThreshold) {
  EXPECT_NEAR(24'475, static_xoff_bound(kBuffer, kFlight, kClasses, kPorts), 0.5);
}

TEST(LintFormulas, PaperEcnBoundUnderDynamicThreshold) {
  const double pool = kBuffer - kClasses * kPorts * kFlight;
  const double beta = 8;
  const double bound = ecn_bound(pool, beta / 8, 0, kClasses, kPorts);
  EXPECT_NEAR(21'756, bound, 0.5);
  EXPECT_DOUBLE_EQ(beta * pool / (8 * kPorts * (beta + 1)), bound);
}

TEST(LintFormulas, EcnBoundIsWhereTheWorstPortPauses) {
  // At the bound the ingress port that feeds all n egress queues has exactly the threshold.
  const double pool = 3e6;
  const double reserve = 4096;
  for (const double alpha : {0.0625, 0.125, 0.5, 1.0}) {
    for (const int n : {2, 9, 64}) {
      const double held = n * ecn_bound(pool, alpha, reserve, 1, n);
      EXPECT_NEAR(alpha * (pool - (held - reserve)), held - reserve, 1e-6 * pool);
    }
  }
}

TEST(LintFormulas, PausePointIsAFixedPoint) {
  for (const int k : {1, 3, 8}) {
    const double at = pause_point(1e6, 0.125, 4096, k);
    EXPECT_NEAR(at - 4096, 0.125 * (1e6 - k * (at - 4096)), 1e-6);
  }
}

struct Row {
  int gbps, metres, mtu;
  double hpcc, mlx5, need;  // KB
};

TEST(LintFormulas, HeadroomTable) {
  for (const Row& r :
       {Row{100, 100, 9216, 18.8, 76.8, 37.2}, Row{400, 3, 4200, 2.2, 134.2, 35.0},
        Row{400, 30, 4200, 22.5, 157.4, 48.5}, Row{400, 100, 9216, 75.0, 231.9, 93.5}}) {
    SCOPED_TRACE(std::to_string(r.gbps) + "G " + std::to_string(r.metres) + " m");
    const Rate rate = Rate::gbps(r.gbps);
    const Time delay = Time::ns(5 * r.metres);
    EXPECT_NEAR(r.hpcc, static_cast<double>(headroom_hpcc(rate, delay)) / 1000, 0.06);
    EXPECT_NEAR(r.mlx5, static_cast<double>(headroom_mlx5(rate, delay, r.mtu)) / 1000, 0.06);
    const int64_t need = headroom_need(rate, delay, r.mtu, 64, Time::ps(kResponsePs));
    EXPECT_NEAR(r.need, static_cast<double>(need) / 1000, 0.06);
    EXPECT_GT(need, headroom_textbook(rate, delay, r.mtu));
  }
}

TEST(LintFormulas, BreakEvenIsWhereTheRulesMeet) {
  const Time response = Time::ps(kResponsePs);
  for (const int gbps : {25, 100, 400, 1600}) {
    const Rate rate = Rate::gbps(gbps);
    const Time at = headroom_hpcc_break_even(rate, 9052, 43, response);
    const auto short_of = [&](Time delay) {
      return headroom_need(rate, delay, 9052, 43, response) - headroom_hpcc(rate, delay);
    };
    EXPECT_LE(std::abs(short_of(at)), 1);
    EXPECT_GT(short_of(at - Time::ns(10)), 0);
    EXPECT_LT(short_of(at + Time::ns(10)), 0);
  }
}

}  // namespace
}  // namespace trainyard::lint
