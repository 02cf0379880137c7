// SPDX-License-Identifier: MIT
#include "network/packet/dctcp.h"

#include <cmath>
#include <random>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/network/fluid_test_util.h"

namespace trainyard {
namespace {

using namespace test;

constexpr int64_t kUs = 1'000'000;
constexpr int64_t kG = 1'000'000'000;
constexpr int64_t kLine = 100 * kG;
constexpr int64_t kPayload = 1'000;

static_assert(std::is_trivially_copyable_v<Dctcp>);

/// A sender with 16 packets in flight, one ACK per packet.
class Acks {
 public:
  explicit Acks(const DctcpParams& p = {}) : p_(p) { d_.init(kLine, kPayload); }
  bool operator()(bool marked) {
    una_ += kPayload;
    return d_.on_ack(p_, marked, una_, una_ + 15 * kPayload);
  }
  /// One round trip: 16 ACKs of which the last `marks` are marked.
  void round(int marks) {
    for (int i = 0; i < 16; ++i) (*this)(i >= 16 - marks);
  }
  [[nodiscard]] const Dctcp& dctcp() const { return d_; }
  [[nodiscard]] double alpha() const {
    return static_cast<double>(d_.alpha()) / static_cast<double>(Dctcp::kOne);
  }

 private:
  DctcpParams p_;
  Dctcp d_;
  int64_t una_ = 0;
};

// alpha starts at 1, so the first mark halves the rate; the rest of its round trip cannot cut.
TEST(Dctcp, FirstMarkHalves) {
  Acks d;
  EXPECT_TRUE(d(true));
  EXPECT_EQ(d.dctcp().rate(), 50 * kG);
  for (int i = 0; i < 15; ++i) EXPECT_FALSE(d(true)) << i;
  EXPECT_EQ(d.dctcp().rate(), 50 * kG);
  EXPECT_TRUE(d.dctcp().reduced());
}

// A quarter of the ACKs marked, g = 1/16: after n rounds alpha = 1/4 + 3/4 (15/16)^n. With one
// ACK per packet the model expects one more than it gets in flight, 16 of 15 + 1.
TEST(Dctcp, AlphaFollowsTheFractionOfMarks) {
  Acks d;
  d(false);  // first ACK opens the first round
  double alpha = 1;
  for (int n = 1; n <= 60; ++n) {
    for (int i = 0; i < 16; ++i) d(i % 4 == 3);
    // The ACK that closes a round is the 16th after the one that opened it; every 4th is marked.
    alpha = alpha * 15 / 16 + 0.25 / 16;
  }
  EXPECT_NEAR(d.alpha(), alpha, 0.25 / 16 + 1e-9);
  EXPECT_NEAR(d.alpha(), 0.25, 0.05);
}

// alpha of one closed round by hand: 16 expected, 4 marked: 15/16 + 1/16 x 4/16 = 0.953125, and
// the cut that follows takes half of it.
TEST(Dctcp, OneRoundByHand) {
  Acks d;
  d(false);                               // opens: 16 bytes x 1000 next, 17 expected
  for (int i = 0; i < 15; ++i) d(false);  // up to byte 16,000: not beyond
  EXPECT_EQ(d.alpha(), 1);
  d(false);  // 17th ACK closes the round without marks
  EXPECT_DOUBLE_EQ(d.alpha(), 15.0 / 16);
  for (int i = 0; i < 12; ++i) d(false);
  const int64_t before = d.dctcp().rate();
  ASSERT_EQ(before, kLine);
  for (int i = 0; i < 3; ++i) d(true);  // cuts once with 15/16, then is held
  EXPECT_EQ(d.dctcp().rate(), 53'125'000'000);
  d(true);  // closes: 4 of 16
  EXPECT_DOUBLE_EQ(d.alpha(), 15.0 / 16 * 15 / 16 + 4.0 / 16 / 16);
  EXPECT_EQ(d.dctcp().rate(), 53'125'000'000);  // within the round trip of the cut
}

// The defining rule: the cut is in proportion to the fraction of marks. Constant halving, or a cut
// that shrinks with more marks, fails.
TEST(Dctcp, FewMarksCutLittle) {
  DctcpParams p;
  p.min_bps = 1;
  double last = 0;
  for (const auto& [marks, rounds] : {std::pair{1, 60}, std::pair{4, 40}, std::pair{16, 5}}) {
    Acks d(p);
    for (int i = 0; i < rounds; ++i) d.round(marks);
    while (d.dctcp().reduced()) d(false);
    const auto before = static_cast<double>(d.dctcp().rate());
    ASSERT_GT(before, 1e5);
    ASSERT_TRUE(d(true));
    const double cut = 1 - static_cast<double>(d.dctcp().rate()) / before;
    EXPECT_NEAR(cut, marks / 32.0, 0.05) << marks;
    EXPECT_GT(cut, 1.5 * last);
    last = cut;
  }
}

// Without marks a round trip adds one step, and only one; up to the line.
TEST(Dctcp, AddsOncePerRoundTrip) {
  Acks d;
  d(true);
  ASSERT_EQ(d.dctcp().rate(), 50 * kG);
  for (int i = 0; i < 15; ++i) d(false);
  EXPECT_EQ(d.dctcp().rate(), 50 * kG);
  int64_t rate = 50 * kG;
  for (int round = 0; round < 100; ++round) {
    d(false);
    rate = std::min(kLine, rate + 615'000'000);
    EXPECT_EQ(d.dctcp().rate(), rate) << round;
    for (int i = 0; i < 15; ++i) d(false);
    EXPECT_EQ(d.dctcp().rate(), rate) << round;
  }
  EXPECT_EQ(d.dctcp().rate(), kLine);
}

TEST(Dctcp, MinimumRate) {
  Acks d;
  for (int i = 0; i < 2'000; ++i) d(true);
  EXPECT_EQ(d.dctcp().rate(), 100'000'000);
  EXPECT_DOUBLE_EQ(d.alpha(), 1);
}

// A NACK rewinds snd_nxt to the acknowledged byte: nothing in flight, one packet expected.
TEST(Dctcp, RewoundSender) {
  const DctcpParams p;
  Dctcp d;
  d.init(kLine, kPayload);
  d.on_ack(p, false, 1'000, 50'000);
  EXPECT_TRUE(d.on_ack(p, true, 51'000, 51'000));  // NACK: 1 of 51 marked; cut, then held
  EXPECT_DOUBLE_EQ(static_cast<double>(d.alpha()) / static_cast<double>(Dctcp::kOne),
                   15.0 / 16 + 1.0 / 51 / 16);
  d.on_ack(p, true, 52'000, 60'000);  // 1 of 1
  EXPECT_FALSE(d.alpha() > Dctcp::kOne);
  EXPECT_EQ(d.on_ack(p, true, 52'500, 60'000), false);
}

SharedQueue share(const DctcpParams& p, size_t flows, int64_t end, int64_t start_gap) {
  Network net;
  net.start_gap_ps = start_gap;
  net.kmin = net.kmax = 300'000;  // a step, as run.py sets it: 30 KB per 10 Gb/s
  std::vector<Dctcp> state(flows);
  for (Dctcp& d : state) {
    d.init(net.line_bps, net.packet);
    Sender sender;
    sender.rate = [&d] { return d.rate(); };
    sender.on_ack = [&d, &p](int64_t, const Feedback& f) {
      d.on_ack(p, f.marked, f.ack_seq, f.snd_nxt);
    };
    net.senders.push_back(sender);
  }
  return net.run(end);
}

// Eight senders, a new one every 100 us, 20 ms: within 15 % of fair, the link at least 90 % used,
// the queue near its threshold.
TEST(Dctcp, SharesABottleneck) {
  const SharedQueue shared = share({}, 8, 20'000 * kUs, 100 * kUs);
  for (const double s : shared.share) EXPECT_NEAR(s, 1, 0.15);
  EXPECT_GT(shared.utilisation, 0.9);
  EXPECT_LT(shared.peak_queue_late, 900'000);
}

TEST(Dctcp, Parameters) {
  Params params(dctcp_params());
  const DctcpParams d, p = make_dctcp_params(params);
  EXPECT_EQ(p.g, d.g);
  EXPECT_EQ(p.additive_bps, d.additive_bps);
  EXPECT_EQ(p.min_bps, d.min_bps);
  const Origin user{Origin::Kind::user, {}};
  params.set("g", "1/4", user);
  params.set("additive_increase", "1Gbps", user);
  params.set("min_rate", "2Gbps", user);
  const DctcpParams q = make_dctcp_params(params);
  EXPECT_EQ(q.g, Dctcp::kOne / 4);
  EXPECT_EQ(q.additive_bps, kG);
  EXPECT_EQ(q.min_bps, 2 * kG);
}

}  // namespace
}  // namespace trainyard
