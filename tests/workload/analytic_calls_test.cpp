// SPDX-License-Identifier: MIT
// Collectives on the analytic engine as a whole beside the same ones message by message.
#include <gtest/gtest.h>

#include "tests/memo/random_job.h"

namespace trainyard::test {
namespace {

/// Which of several members that come at one instant is the last, and which of several queue pairs
/// that are opened at one instant is the first, is settled by order of messages or of members.
void without_ties(Outcome& o) {
  o.fabric = 0;
  for (std::string& row : o.collectives) {
    size_t end = row.size();
    for (int column = 0; column < 7; ++column) end = row.rfind(' ', end - 1);
    const size_t begin = row.rfind(' ', end - 1);
    row.erase(begin, end - begin);  // last_rank
  }
}

TEST(AnalyticCalls, EqualTheirMessagesOneByOne) {
  uint32_t equal = 0, cases = 0;
  size_t calls = 0;
  uint64_t transmissions = 0;
  for (const Flavour flavour : {Flavour::plain, Flavour::simultaneous, Flavour::balancers,
                                Flavour::classes, Flavour::layers}) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      RandomCase c = random_case(seed, flavour);
      c.flows.clear();  // beside which collectives run message by message
      c.changes.clear();
      Outcome one_by_one = run_case(c, Way::messages);
      Outcome whole = run_case(c, Way::whole);
      ++cases;
      if (difference(one_by_one, whole).empty()) ++equal;
      without_ties(one_by_one);
      without_ties(whole);
      EXPECT_EQ(difference(one_by_one, whole), "") << name_of(flavour) << " " << seed;
      calls += whole.collectives.size();
      transmissions += whole.transmissions;
    }
  }
  EXPECT_GT(equal, cases * 9 / 10) << "bit for bit";
  EXPECT_GT(calls, 1000U);
  EXPECT_GT(transmissions, 100'000U);
}

TEST(AnalyticCalls, EqualThemWhereTheLastAckCounts) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomCase c = random_case(seed, Flavour::plain);
    c.flows.clear();
    c.changes.clear();
    c.config.complete_at_receiver = false;
    c.config.send_delay_ps = 700'000;
    c.config.receive_delay_ps = 2'300'000;
    Outcome one_by_one = run_case(c, Way::messages);
    Outcome whole = run_case(c, Way::whole);
    without_ties(one_by_one);
    without_ties(whole);
    EXPECT_EQ(difference(one_by_one, whole), "") << seed;
  }
}

/// Two servers of four, joined by one leaf.
class Calls : public testing::Test {
 protected:
  Calls() : topology_(star()), fabric_(topology_, base_config(CongestionControl::none), {}) {}

  static Topology star() {
    Topology t;
    for (uint32_t h = 0; h < 8; ++h) t.add_node("host" + std::to_string(h), NodeKind::host);
    t.add_node("leaf", NodeKind::leaf);
    for (uint32_t h = 0; h < 8; ++h) t.add_link(h, 8, Rate::gbps(100), Time::ns(500));
    t.finish();
    return t;
  }
  HostedCall call(CollectiveKind kind, int64_t bytes, const char* algorithm) {
    Params params(collective_params());
    params.set("algorithm", algorithm, {});
    selectors_.push_back(make_collective_selector(params));
    const CollectiveRequest r{kind, bytes, &members_, {}, nullptr};
    return {&selectors_.back()->choose(r), r, 0, 0, 0};
  }
  /// When each member is through, the members coming `gap` apart.
  std::vector<Time> through(const HostedCall& what, Time gap) {
    const uint32_t number = fabric_.open(what);
    const auto n = static_cast<uint32_t>(members_.size());
    std::vector<Time> when(n);
    const auto until = [&](Time limit) {
      std::vector<Completion> none;
      std::vector<CollectiveHost::Done> done;
      while (fabric_.next_event() <= limit && fabric_.next_event() != Time::infinity()) {
        const Time at = fabric_.advance(limit, none);
        done.clear();
        fabric_.take_done(done);
        for (const auto& d : done) when[d.member] = at;
      }
      if (limit != Time::infinity()) fabric_.advance(limit, none);
    };
    for (uint32_t m = 0; m < n; ++m) {
      until(gap * m);
      fabric_.arrive(number, m, gap * m);
    }
    until(Time::infinity());
    EXPECT_EQ(fabric_.outstanding(), 0U);
    fabric_.check_conservation();
    return when;
  }

  const std::vector<uint32_t> members_ = {0, 1, 2, 3, 4, 5, 6, 7};
  Topology topology_;
  std::vector<std::unique_ptr<CollectiveSelector>> selectors_;
  AnalyticFabric fabric_;
};

TEST_F(Calls, AMemberOfAnExchangeWaitsForTheLastOne) {
  const auto when = through(call(CollectiveKind::all_to_all, 8'000'000, "direct"), Time::ms(1));
  // 1 MB at 100 Gb/s, after the last of eight has come.
  for (const Time t : when) {
    EXPECT_GT(t, Time::ms(7) + Time::us(80));
    EXPECT_LT(t, Time::ms(7) + Time::us(90));
  }
  EXPECT_EQ(fabric_.transfers().size(), 56U);
  EXPECT_EQ(fabric_.totals().payload_bytes, 56'000'000);
  EXPECT_EQ(fabric_.messages_left_out(), 0U);
}

TEST_F(Calls, ARootIsThroughBeforeTheLastOneComes) {
  const auto when = through(call(CollectiveKind::broadcast, 1'000'000, "tree"), Time::ms(1));
  EXPECT_LT(when[0], Time::ms(7));
  EXPECT_GT(when[7], Time::ms(7));
}

}  // namespace
}  // namespace trainyard::test
