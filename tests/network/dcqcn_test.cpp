// SPDX-License-Identifier: MIT
#include "network/packet/dcqcn.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/network/fluid_test_util.h"
#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

using namespace test;

constexpr int64_t kUs = 1'000'000;
constexpr int64_t kG = 1'000'000'000;

/// Parameters as the engine gets them.
DcqcnParams params_of(const Settings& settings) {
  Scenario scenario(settings);
  return scenario.set("congestion", "dcqcn").make().dcqcn;
}
DcqcnParams vendor(const Settings& more = {}) {
  Settings s = more;
  s.emplace_back("cc.order", "vendor");
  return params_of(s);
}
DcqcnParams paper(const Settings& more = {}) {
  Settings s = more;
  s.emplace_back("cc.order", "paper");
  return params_of(s);
}
Dcqcn at_line_rate(const DcqcnParams& p, int64_t line) {
  Dcqcn d;
  d.init(p, line);
  return d;
}

// Protocols 5.2: paper 55/55 us, 10 MB, F 5, 40 Mb/s; vendor 1/4/300 us, none, F 1, 5 and 50 Mb/s
// per 25G.
TEST(Dcqcn, DefaultsOfBothOrders) {
  const DcqcnParams v = vendor();
  EXPECT_EQ(v.alpha_timer_ps, kUs);
  EXPECT_EQ(v.cut_timer_ps, 4 * kUs);
  EXPECT_EQ(v.increase_timer_ps, 300 * kUs);
  EXPECT_EQ(v.byte_counter, 0);
  EXPECT_EQ(v.fast_recovery_steps, 1);
  EXPECT_EQ(v.g, Dcqcn::kOne / 256);
  EXPECT_FALSE(v.clamp_target);
  const DcqcnParams p = paper();
  EXPECT_EQ(p.alpha_timer_ps, 55 * kUs);
  EXPECT_EQ(p.increase_timer_ps, 55 * kUs);
  EXPECT_EQ(p.byte_counter, 10'000'000);
  EXPECT_EQ(p.fast_recovery_steps, 5);
  EXPECT_EQ(p.additive_bps, 40'000'000);
  EXPECT_TRUE(p.clamp_target);
}

// Protocols 5.3.1 and pains 44: cut with alpha = 1, then raise alpha, which stays 1.
TEST(Dcqcn, PaperCutsAtOnceToHalf) {
  const DcqcnParams p = paper();
  Dcqcn d = at_line_rate(p, 100 * kG);
  EXPECT_FALSE(d.active());
  d.paper_notify(p, 123 * kUs);
  EXPECT_TRUE(d.active());
  EXPECT_EQ(d.rate(), 50 * kG);
  EXPECT_EQ(d.target(), 100 * kG);
  EXPECT_EQ(d.alpha(), Dcqcn::kOne);
}

// Alpha ages four times before the cut tick: (255/256)^4 = 4228250625 / 2^32, so the rate is
// line * (2^33 - 4228250625) / 2^33: 50.777 Gb/s from 100, 203.107 from 400 (protocols 5.3.1).
TEST(Dcqcn, VendorCutsWithTheAgedAlpha) {
  const DcqcnParams p = vendor();
  for (const int64_t line : {100 * kG, 400 * kG}) {
    Dcqcn d = at_line_rate(p, line);
    const int64_t notified = 777'777;
    EXPECT_EQ(d.vendor_notify(p, notified), notified + 4 * kUs + 1'000);  // 4.001 us later
    EXPECT_EQ(d.rate(), line);                                            // nothing yet
    d.vendor_cut(p, notified + 4 * kUs + 1'000);
    const auto exact = static_cast<int64_t>(
        (static_cast<__int128>(line) * ((int64_t{1} << 33) - 4'228'250'625)) >> 33);
    EXPECT_EQ(d.rate(), exact);
    EXPECT_EQ((d.rate() + 500'000) / 1'000'000, line == 100 * kG ? 50'777 : 203'107);
    EXPECT_EQ(d.target(), line);
  }
}

// A vendor sender with real timers: alpha, cut and increase fire one by one. State as in the
// peers' description (peers-measured, DCQCN "Mellanox" version), arithmetic as in the header.
class TickedVendor {
 public:
  TickedVendor(const DcqcnParams& p, int64_t line) : p_(p), rate_(line), target_(line) {}

  /// Fires everything before `now`, then takes the notification. Equal times: cut tick, then
  /// notification, then alpha tick.
  void notify(int64_t now) {
    run_until(now, false);
    if (!active_) {
      active_ = true;
      alpha_ = Dcqcn::kOne;
      target_ = rate_;
      next_alpha_ = now + p_.alpha_timer_ps;
      next_cut_ = now + p_.cut_timer_ps + p_.cut_offset_ps;
      cut_due_ = true;
      return;
    }
    alpha_notified_ = cut_due_ = true;
  }
  /// Fires everything up to `now`; alpha ticks at `now` itself when `inclusive`.
  void run_until(int64_t now, bool inclusive) {
    if (!active_) return;
    while (true) {
      const bool alpha_ready = inclusive ? next_alpha_ <= now : next_alpha_ < now;
      if (alpha_ready && next_alpha_ <= next_cut_) {
        alpha_ = decay(alpha_) + (alpha_notified_ ? p_.g : 0);
        alpha_notified_ = false;
        next_alpha_ += p_.alpha_timer_ps;
      } else if (next_cut_ <= now) {
        if (cut_due_) {
          cut_due_ = false;
          rate_ = std::max(p_.min_bps, static_cast<int64_t>(static_cast<unsigned __int128>(rate_) *
                                                                ((Dcqcn::kOne << 1) - alpha_) >>
                                                            63));
          cuts_.push_back(next_cut_);
        }
        next_cut_ += p_.cut_timer_ps;
      } else {
        return;
      }
    }
  }
  [[nodiscard]] int64_t rate() const { return rate_; }
  [[nodiscard]] uint64_t alpha() const { return alpha_; }
  [[nodiscard]] const std::vector<int64_t>& cuts() const { return cuts_; }

 private:
  [[nodiscard]] uint64_t decay(uint64_t a) const {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * (Dcqcn::kOne - p_.g) >> 62);
  }
  DcqcnParams p_;
  int64_t rate_, target_;
  uint64_t alpha_ = Dcqcn::kOne;
  int64_t next_alpha_ = 0, next_cut_ = 0;
  bool active_ = false, alpha_notified_ = false, cut_due_ = false;
  std::vector<int64_t> cuts_;
};

// Alpha aged when somebody looks equals alpha aged by fired timers, bit for bit, and so does every
// cut and its time. Gaps from nothing to 100 ms, on and beside the ticks.
TEST(Dcqcn, LazyAlphaEqualsTicks) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    const DcqcnParams p = vendor({{"cc.min_rate", "1Kbps"},
                                  {"cc.g", seed % 2 == 0 ? "1/256" : "5/1024"},
                                  {"cc.alpha_timer", seed % 3 == 0 ? "700ns" : "1us"}});
    Dcqcn lazy = at_line_rate(p, 400 * kG);
    TickedVendor ticked(p, 400 * kG);
    int64_t now = static_cast<int64_t>(random() % 1'000'000);
    int64_t pending = -1;
    std::vector<int64_t> cuts;
    for (int i = 0; i < 400; ++i) {
      // At one instant a due cut comes before the notification (order of events in the engine).
      if (pending >= 0 && pending <= now) {
        lazy.vendor_cut(p, pending);
        cuts.push_back(pending);
        pending = -1;
      }
      const int64_t at = lazy.vendor_notify(p, now);
      if (pending < 0) {
        EXPECT_GT(at, now);
        pending = at;
      } else {
        EXPECT_EQ(at, -1);
      }
      ticked.notify(now);
      ASSERT_EQ(lazy.alpha(), ticked.alpha()) << "seed " << seed << ", notification " << i;
      ASSERT_EQ(lazy.rate(), ticked.rate()) << "seed " << seed << ", notification " << i;
      switch (random() % 5) {
        case 0:
          now += static_cast<int64_t>(random() % 200'000);
          break;
        case 1:
          now += static_cast<int64_t>(random() % 10) * p.alpha_timer_ps;
          break;
        case 2:
          now += static_cast<int64_t>(random() % 20'000'000);
          break;
        case 3:
          if (pending > now) now = pending;
          break;  // exactly at the cut tick
        default:
          now += static_cast<int64_t>(random() % 3'000'000'000);
          break;
      }
    }
    ticked.run_until(now, false);
    if (pending >= 0 && pending <= now) cuts.push_back(pending);
    EXPECT_EQ(cuts, ticked.cuts()) << seed;
    EXPECT_GT(cuts.size(), 50U);
  }
}

// Alpha has decayed to nothing after seconds of silence; looking must not take a million steps'
// worth of error: (255/256)^n in Q62 reaches 0, and one notification later it is g.
TEST(Dcqcn, AlphaAfterALongSilence) {
  const DcqcnParams p = vendor();
  Dcqcn d = at_line_rate(p, 100 * kG);
  d.vendor_cut(p, d.vendor_notify(p, 0));
  const int64_t rate = d.rate();
  const int64_t at = d.vendor_notify(p, 100'000 * kUs);
  d.vendor_cut(p, at);
  // The notification raised alpha to g at the tick after it and up to 4 decays followed.
  EXPECT_LE(d.alpha(), p.g);
  EXPECT_GE(d.alpha(), p.g / 256 * 252);
  EXPECT_NEAR(static_cast<double>(d.rate()), static_cast<double>(rate) * (1 - 0.5 / 256), 2e6);
}

// Paper: without notifications alpha decays once per 55 us, and the next cut uses that.
TEST(Dcqcn, PaperAlphaDecaysPerPeriod) {
  const DcqcnParams p = paper();
  Dcqcn d = at_line_rate(p, 100 * kG);
  d.paper_notify(p, 0);
  d.paper_notify(p, 3 * 55 * kUs + 1);
  // alpha = (255/256)^3 = 16581375 / 2^24; cut from 50 Gb/s by half of it.
  const auto exact = static_cast<int64_t>(
      (static_cast<__int128>(50 * kG) * ((int64_t{1} << 25) - 16'581'375)) >> 25);
  EXPECT_EQ(d.rate(), exact);
  // Notifications closer than a period never let it decay: alpha = (1-g) alpha + g.
  Dcqcn busy = at_line_rate(p, 100 * kG);
  for (int i = 0; i < 5; ++i) busy.paper_notify(p, i * 54 * kUs);
  EXPECT_EQ(busy.alpha(), Dcqcn::kOne);
  EXPECT_EQ(busy.rate(), 3'125'000'000);  // halved five times
}

// Protocols 5.3.3: F = 1 and one counter: one return to the target, exactly one additive step,
// then hyper steps. 100G: steps 20 and 200 Mb/s.
TEST(Dcqcn, VendorOneAdditiveThenHyper) {
  const DcqcnParams p = vendor({{"cc.clamp_target", "true"}});
  Dcqcn d = at_line_rate(p, 100 * kG);
  d.vendor_cut(p, d.vendor_notify(p, 0));
  d.vendor_cut(p, d.vendor_notify(p, 10 * kUs));
  int64_t target = d.target();
  int64_t rate = d.rate();
  ASSERT_LT(target, 60 * kG);
  for (const int64_t step : {0, 20, 200, 200, 200}) {
    d.increase_by_timer(p);
    target += step * 1'000'000;
    rate = (rate + target) / 2;
    EXPECT_EQ(d.target(), target);
    EXPECT_NEAR(static_cast<double>(d.rate()), static_cast<double>(rate), 8);
  }
}

// Protocols 5.3.10: five returns from one half-cut reach 100 - 50 / 2^5 = 98.4375 %.
TEST(Dcqcn, PaperFiveHalvings) {
  const DcqcnParams p = paper();
  Dcqcn d = at_line_rate(p, 100 * kG);
  d.paper_notify(p, 0);
  const std::vector<int64_t> expected{75'000'000'000, 87'500'000'000, 93'750'000'000,
                                      96'875'000'000, 98'437'500'000};
  for (const int64_t rate : expected) {
    d.increase_by_timer(p);
    EXPECT_EQ(d.rate(), rate);
    EXPECT_EQ(d.target(), 100 * kG);
  }
}

// Protocols 5.1: additive when one counter is above F, hyper with i = min(T, BC) - F when both are.
TEST(Dcqcn, PaperTwoCounters) {
  const DcqcnParams p = paper({{"cc.byte_counter", "1MB"}});
  Dcqcn d = at_line_rate(p, 100 * kG);
  d.paper_notify(p, 0);
  d.paper_notify(p, 1);  // target 50, rate 25
  ASSERT_EQ(d.target(), 50 * kG);
  ASSERT_EQ(d.rate(), 25 * kG);
  const auto bytes_event = [&] { return d.sent(p, 1'000'000); };
  for (int i = 0; i < 5; ++i) d.increase_by_timer(p);
  EXPECT_EQ(d.target(), 50 * kG);
  d.increase_by_timer(p);  // T = 6: additive
  int64_t target = 50 * kG + 40'000'000;
  EXPECT_EQ(d.target(), target);
  for (int b = 1; b <= 5; ++b) {  // max(T, BC) = 6 > 5, min <= 5: additive at each event
    EXPECT_TRUE(bytes_event());
    target += 40'000'000;
    EXPECT_EQ(d.target(), target) << b;
  }
  EXPECT_TRUE(bytes_event());  // T = BC = 6: hyper, i = 1
  target += 200'000'000;
  EXPECT_EQ(d.target(), target);
  d.increase_by_timer(p);  // T = 7, BC = 6: i = 1
  target += 200'000'000;
  EXPECT_EQ(d.target(), target);
  EXPECT_TRUE(bytes_event());  // T = BC = 7: i = 2
  target += 400'000'000;
  EXPECT_EQ(d.target(), target);
}

// The counter fires once per so many bytes, keeps the remainder, restarts at a cut, and sleeps
// until the first notification.
TEST(Dcqcn, ByteCounter) {
  const DcqcnParams p = paper({{"cc.byte_counter", "10KB"}});
  Dcqcn d = at_line_rate(p, 100 * kG);
  EXPECT_FALSE(d.sent(p, 1'000'000));
  d.paper_notify(p, 0);
  int fired = 0;
  for (int i = 1; i <= 100; ++i) {
    if (d.sent(p, 1'048)) ++fired;
    EXPECT_EQ(fired, i * 1'048 / 10'000) << i;
  }
  Dcqcn e = at_line_rate(p, 100 * kG);
  e.paper_notify(p, 0);
  EXPECT_FALSE(e.sent(p, 9'999));
  e.paper_notify(p, 1);
  EXPECT_FALSE(e.sent(p, 9'999));
  EXPECT_TRUE(e.sent(p, 1));
  // Without a counter nothing fires.
  const DcqcnParams v = vendor();
  Dcqcn f = at_line_rate(v, 100 * kG);
  f.vendor_cut(v, f.vendor_notify(v, 0));
  EXPECT_FALSE(f.sent(v, int64_t{1} << 40));
}

// Protocols 5.3.6: two cuts without an increase between them keep the target, unless clamped.
TEST(Dcqcn, ClampTarget) {
  for (const bool clamp : {false, true}) {
    const DcqcnParams p = vendor({{"cc.clamp_target", clamp ? "true" : "false"}});
    Dcqcn d = at_line_rate(p, 100 * kG);
    d.vendor_cut(p, d.vendor_notify(p, 0));
    const int64_t first = d.rate();
    d.vendor_cut(p, d.vendor_notify(p, 10 * kUs));
    EXPECT_EQ(d.target(), clamp ? first : 100 * kG);
    // After an increase both set it.
    d.increase_by_timer(p);
    const int64_t before = d.rate();
    d.vendor_cut(p, d.vendor_notify(p, 400 * kUs));
    EXPECT_EQ(d.target(), before);
  }
}

// clamp_target: false is an option of the paper's order too, and byte events count as increases.
TEST(Dcqcn, ClampTargetInThePaperOrder) {
  const DcqcnParams p = paper({{"cc.clamp_target", "false"}, {"cc.byte_counter", "10KB"}});
  Dcqcn d = at_line_rate(p, 100 * kG);
  d.paper_notify(p, 0);
  d.paper_notify(p, 1);
  EXPECT_EQ(d.rate(), 25 * kG);
  EXPECT_EQ(d.target(), 100 * kG);
  EXPECT_TRUE(d.sent(p, 10'000));
  const int64_t before = d.rate();
  d.paper_notify(p, 2);
  EXPECT_EQ(d.target(), before);
}

TEST(Dcqcn, MinimumRate) {
  for (const bool is_paper : {false, true}) {
    const DcqcnParams p =
        is_paper ? paper({{"cc.min_rate", "3Gbps"}}) : vendor({{"cc.min_rate", "3Gbps"}});
    Dcqcn d = at_line_rate(p, 100 * kG);
    int64_t now = 0;
    for (int i = 0; i < 20; ++i) {
      EXPECT_GE(d.rate(), 3 * kG);
      if (is_paper) {
        d.paper_notify(p, now += kUs);
      } else {
        const int64_t at = d.vendor_notify(p, now);
        d.vendor_notify(p, at - 1);  // keeps alpha high
        d.vendor_cut(p, at);
        now = at;
      }
    }
    EXPECT_EQ(d.rate(), 3 * kG);
  }
}

// The rate comes back to the line, but for what halving rounds off, and stays there: then nothing
// changes any more, which is what recovered() promises. A caught-up idle queue pair equals a busy
// one.
TEST(Dcqcn, RecoveryEndsAtLineRateAndCatchUpIsEqual) {
  for (const int64_t line : {100 * kG, 100 * kG + 1, 25'781'250'003, 400 * kG - 1}) {
    const DcqcnParams p = vendor();
    Dcqcn d = at_line_rate(p, line);
    d.vendor_cut(p, d.vendor_notify(p, 0));
    Dcqcn idle = d;
    for (int i = 1; i <= 200; ++i) {
      const bool before = d.recovered();
      const int64_t rate = d.rate();
      d.increase_by_timer(p);
      if (before) {
        EXPECT_EQ(d.rate(), rate);
      }
      Dcqcn late = idle;
      late.age_increase(p, i);
      EXPECT_EQ(late.rate(), d.rate()) << i;
      EXPECT_EQ(late.target(), d.target()) << i;
      EXPECT_LE(d.rate(), d.line());
    }
    EXPECT_TRUE(d.recovered());
    EXPECT_GE(d.rate(), line - 2);
    // The stage was caught up too: the next cut gives both one and the same sequence.
    idle.age_increase(p, 200);
    for (Dcqcn* x : {&d, &idle}) x->vendor_cut(p, x->vendor_notify(p, 70'000 * kUs));
    for (int i = 0; i < 5; ++i) {
      d.increase_by_timer(p);
      idle.increase_by_timer(p);
      EXPECT_EQ(idle.rate(), d.rate());
      EXPECT_EQ(idle.target(), d.target());
    }
  }
}

// ---------------------------------------------------------------- the third ordering, 5.3 variants

// Protocols 5.3.1: alpha = 1/2 is raised to 255/512 + 1/256 = 257/512 before the cut, so 767/1024
// of the rate is left: 40 -> 29.961, 100 -> 74.902 Gb/s.
TEST(Dcqcn, RaiseFirstCutsWithTheRaisedAlpha) {
  const DcqcnParams p = dcqcn_raise_first();
  for (const int64_t line : {40 * kG, 100 * kG}) {
    Dcqcn d = at_line_rate(p, line);
    d.paper_notify(p, 5 * kUs);
    EXPECT_EQ(d.rate(), line / 1024 * 767 + line % 1024 * 767 / 1024);
    EXPECT_EQ((d.rate() + 500'000) / 1'000'000, line == 40 * kG ? 29'961 : 74'902);
    EXPECT_EQ(d.alpha(), Dcqcn::kOne / 512 * 257);
    EXPECT_EQ(d.target(), line);
  }
}

// The same notification under the three orders, everything else equal (alpha starts at 1/2, one
// decay period of 1 us): paper cuts by alpha/2 = 1/4; raise_first by the raised one; vendor by the
// alpha that has aged four times. Swapping the order of any of them changes its number.
TEST(Dcqcn, OnlyTheOrderMakesTheDifference) {
  DcqcnParams p;
  p.initial_alpha = uint64_t{1} << 61;
  const auto after_one = [&](DcqcnOrder order) {
    p.order = order;
    Dcqcn d = at_line_rate(p, 100 * kG);
    if (order == DcqcnOrder::vendor) {
      d.vendor_cut(p, d.vendor_notify(p, 0));
    } else {
      d.paper_notify(p, 0);
    }
    return d.rate();
  };
  EXPECT_EQ(after_one(DcqcnOrder::paper), 75 * kG);
  EXPECT_EQ(after_one(DcqcnOrder::raise_first), 74'902'343'750);
  // 1 - (255/256)^4 / 4
  EXPECT_EQ(after_one(DcqcnOrder::vendor),
            static_cast<int64_t>(
                (static_cast<__int128>(100 * kG) * ((int64_t{1} << 34) - 4'228'250'625)) >> 34));
}

// Silence decays alpha in the third ordering too, before it is raised: 1/2 -> 257/512, three
// decays, one raise.
TEST(Dcqcn, RaiseFirstDecaysInSilence) {
  const DcqcnParams p = dcqcn_raise_first();
  Dcqcn d = at_line_rate(p, 100 * kG);
  d.paper_notify(p, 0);
  d.paper_notify(p, 3 * 55 * kUs);
  const double kept = 255.0 / 256;
  const double alpha = kept * (257.0 / 512 * kept * kept * kept) + 1.0 / 256;
  EXPECT_NEAR(static_cast<double>(d.alpha()) / static_cast<double>(Dcqcn::kOne), alpha, 1e-12);
  EXPECT_NEAR(static_cast<double>(d.rate()), 100e9 * 767 / 1024 * (1 - alpha / 2), 2);
}

// Protocols 5.3.2: with F = 5, counting first and testing "< F" returns to the target 4 times,
// otherwise 5 times. 5.3.10: five returns reach 98.4 %, four 96.9 %.
TEST(Dcqcn, FastRecoveryOffByOne) {
  for (const bool exclusive : {false, true}) {
    DcqcnParams p = paper();
    p.fast_recovery_exclusive = exclusive;
    Dcqcn d = at_line_rate(p, 100 * kG);
    d.paper_notify(p, 0);
    d.paper_notify(p, 1);  // target 50, rate 25: room for additive steps
    ASSERT_EQ(d.target(), 50 * kG);
    int returns = 0;
    for (; returns < 20; ++returns) {
      d.increase_by_timer(p);
      if (d.target() != 50 * kG) break;
    }
    EXPECT_EQ(returns, exclusive ? 4 : 5);
    EXPECT_EQ(d.target(), 50 * kG + 40'000'000);

    Dcqcn half = at_line_rate(p, 100 * kG);
    half.paper_notify(p, 0);
    for (int i = 0; i < returns; ++i) half.increase_by_timer(p);
    EXPECT_EQ(half.rate(), exclusive ? 96'875'000'000 : 98'437'500'000);
  }
}

// With the exclusive count the i of a hyper step starts at 1 as well: min(T, BC) - F + 1.
TEST(Dcqcn, ExclusiveCountScalesHyperStepsFromOne) {
  DcqcnParams p = dcqcn_raise_first();
  p.byte_counter = 1'000'000;
  Dcqcn d = at_line_rate(p, 100 * kG);
  d.paper_notify(p, 0);
  for (int i = 0; i < 8; ++i) d.paper_notify(p, i + 1);
  for (int i = 0; i < 4; ++i) d.increase_by_timer(p);
  int64_t target = d.target();
  for (int i = 0; i < 4; ++i) d.sent(p, 1'000'000);
  EXPECT_EQ(d.target(), target);  // T = BC = 4
  d.increase_by_timer(p);         // T = 5: additive
  EXPECT_EQ(d.target(), target += 40'000'000);
  d.sent(p, 1'000'000);  // both 5: i = 1
  EXPECT_EQ(d.target(), target += 200'000'000);
  d.increase_by_timer(p);  // min is still 5
  EXPECT_EQ(d.target(), target += 200'000'000);
  d.sent(p, 1'000'000);  // both 6
  EXPECT_EQ(d.target(), target += 400'000'000);
}

// Protocols 5.3.3: one additive step and then hyper steps, or additive until the other counter is
// past fast recovery too; the automatic choice goes by the byte counter.
TEST(Dcqcn, AdditivePhase) {
  const auto steps = [](DcqcnAdditive phase, int64_t byte_counter) {
    DcqcnParams p;
    p.order = DcqcnOrder::paper;
    p.additive_phase = phase;
    p.byte_counter = byte_counter;
    p.fast_recovery_steps = 2;
    p.additive_bps = 1'000'000;
    p.hyper_bps = 10'000'000;
    p.clamp_target = true;
    Dcqcn d = at_line_rate(p, 100 * kG);
    d.paper_notify(p, 0);
    d.paper_notify(p, 1);
    std::vector<int64_t> out;
    for (int i = 0; i < 6; ++i) {
      const int64_t before = d.target();
      d.increase_by_timer(p);
      out.push_back((d.target() - before) / 1'000'000);
    }
    return out;
  };
  const std::vector<int64_t> one{0, 0, 1, 10, 10, 10};
  const std::vector<int64_t> counters{0, 0, 1, 1, 1, 1};
  EXPECT_EQ(steps(DcqcnAdditive::one_step, 0), one);
  EXPECT_EQ(steps(DcqcnAdditive::one_step, 1'000'000), one);
  EXPECT_EQ(steps(DcqcnAdditive::by_counters, 0), counters);
  EXPECT_EQ(steps(DcqcnAdditive::by_counters, 1'000'000), counters);
  EXPECT_EQ(steps(DcqcnAdditive::automatic, 0), one);
  EXPECT_EQ(steps(DcqcnAdditive::automatic, 1'000'000), counters);
}

// Protocols 5.3.4: hyper steps alike or growing, whatever the order.
TEST(Dcqcn, HyperStepConstantOrScaled) {
  for (const bool scaled : {false, true}) {
    const DcqcnParams p = vendor({{"cc.hyper_step", scaled ? "scaled" : "constant"},
                                  {"cc.hyper_increase", "10Mbps"},
                                  {"cc.additive_increase", "1Mbps"},
                                  {"cc.clamp_target", "true"}});
    Dcqcn d = at_line_rate(p, 100 * kG);
    d.vendor_cut(p, d.vendor_notify(p, 0));
    d.vendor_cut(p, d.vendor_notify(p, 10 * kUs));
    d.increase_by_timer(p);
    d.increase_by_timer(p);
    int64_t target = d.target();
    for (int i = 1; i <= 4; ++i) {
      d.increase_by_timer(p);
      EXPECT_EQ(d.target(), target += (scaled ? i : 1) * 10'000'000) << i;
    }
  }
}

// Protocols 5.3.5: at the first increase event a target above 10 x rate is divided by 8. Without
// clamping, four cuts by half leave the rate at 1/16 of the target.
TEST(Dcqcn, QcnLeftover) {
  for (const bool leftover : {false, true}) {
    DcqcnParams p = paper({{"cc.clamp_target", "false"}});
    p.qcn_leftover = leftover;
    Dcqcn d = at_line_rate(p, 100 * kG);
    for (int i = 0; i < 3; ++i) d.paper_notify(p, i);
    ASSERT_EQ(d.rate(), 12'500'000'000);  // 1/8 of the target: not above 10 x
    Dcqcn early = d;
    early.increase_by_timer(p);
    EXPECT_EQ(early.target(), 100 * kG);
    d.paper_notify(p, 3);
    d.increase_by_timer(p);
    EXPECT_EQ(d.target(), leftover ? 12'500'000'000 : 100 * kG);
    EXPECT_EQ(d.rate(), leftover ? 9'375'000'000 : 53'125'000'000);
    const int64_t target = d.target();
    d.increase_by_timer(p);  // the second event never divides
    EXPECT_EQ(d.target(), target);
  }
}

// The byte counter and the timer count apart: two byte events are two stages of their own, and a
// cut returns both to the start.
TEST(Dcqcn, ByteCounterIsAStageOfItsOwn) {
  DcqcnParams p = dcqcn_raise_first();
  p.byte_counter = 10'000;
  Dcqcn d = at_line_rate(p, 100 * kG);
  for (int i = 0; i < 9; ++i) d.paper_notify(p, i);
  const int64_t target = d.target();
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 4; ++i) {
      EXPECT_FALSE(d.sent(p, 9'999));
      EXPECT_TRUE(d.sent(p, 1));
      d.increase_by_timer(p);
    }
    EXPECT_EQ(d.target(), round == 0 ? target : d.target());
    const int64_t before = d.target();
    EXPECT_TRUE(d.sent(p, 10'000));  // BC = 5: past fast recovery, T = 4 is not
    EXPECT_EQ(d.target(), before + 40'000'000);
    d.paper_notify(p, 100 + round);
  }
}

// Eight senders and one queue (fluid_test_util.h): under every order the queue stays bounded and
// the shares come within 20 % of fair, averaged over the last quarter of 40 ms.
TEST(Dcqcn, SharesABottleneck) {
  for (const DcqcnOrder order : {DcqcnOrder::vendor, DcqcnOrder::paper, DcqcnOrder::raise_first}) {
    DcqcnParams p = order == DcqcnOrder::vendor  ? vendor()
                    : order == DcqcnOrder::paper ? paper()
                                                 : dcqcn_raise_first();
    const SharedQueue shared = run_dcqcn(p, 8, 40'000 * kUs);
    for (const double share : shared.share) EXPECT_NEAR(share, 1, 0.2) << static_cast<int>(order);
    EXPECT_GT(shared.utilisation, 0.8) << static_cast<int>(order);
    EXPECT_LT(shared.peak_queue_late, 2'000'000) << static_cast<int>(order);
  }
}

}  // namespace
}  // namespace trainyard
