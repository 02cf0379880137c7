// SPDX-License-Identifier: MIT
// The HPCC controller on the event order of its authors' model. Eight equal senders start at one
// instant, so arrivals of one instant are the rule and their order decides every trajectory. ns-3
// serves them in order of insertion, our engine by rank; this is the same incast with insertion
// order, a page of code of its own around our controller. Completion times of
// alibaba-edu/High-Precision-Congestion-Control 9f4be2a, 8-to-1 incast of 2 MB, HPCC.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "network/packet/hpcc.h"
#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

constexpr int64_t kPayload = 1000, kData = 1090, kAck = 88;
constexpr int64_t kLine = 100'000'000'000, kDelay = 1000, kRtt = 4160, kWindow = 52'000;
constexpr int64_t kSize = 2'000'000;
constexpr int kSenders = 8;

int64_t transmission_ns(int64_t bytes, int64_t bps) {
  return bytes * 8'000'000'000 / bps;
}

struct Packet {
  bool ack = false;
  int flow = 0;
  int64_t seq = 0;
  IntHop hop;
};

class Incast {
 public:
  /// `by_rank`: arrivals of one instant by sender, then transmitters, as the packet engine does.
  explicit Incast(bool by_rank) : by_rank_(by_rank) {
    params_.max_stage = 0;
    params_.additive_bps = 40'000'000;
    params_.additive_per_25g_bps = 0;
    params_.quantised = true;
  }

  std::array<int64_t, kSenders> run() {
    for (int i = 0; i < kSenders; ++i) {
      at(0, 0, i, [this, i] {
        flows_[i].cc.init(params_, kLine, kRtt * 1000, kWindow);
        flows_[i].rate = kLine;
        flows_[i].begun = true;
        send(i);
      });
    }
    while (!events_.empty()) {
      const auto first = events_.begin();
      now_ = first->first.time;
      const auto f = std::move(first->second);
      events_.erase(first);
      f();
    }
    std::array<int64_t, kSenders> done{};
    for (int i = 0; i < kSenders; ++i) done[i] = flows_[i].done;
    return done;
  }

 private:
  struct Flow {
    bool begun = false;
    int64_t next = 0, una = 0, rate = 0, available = 0, done = -1, received = 0;
    bool sent = false;
    int64_t wake = -1;
    uint64_t wake_version = 0;
    Hpcc cc;
  };
  struct Key {
    int64_t time;
    int kind, rank;
    uint64_t number;
    auto operator<=>(const Key&) const = default;
  };

  void at(int64_t time, int kind, int rank, std::function<void()> f) {
    ++number_;
    events_.emplace(by_rank_ ? Key{time, kind, rank, number_} : Key{time, 0, 0, number_},
                    std::move(f));
  }
  // Transmitters: hosts 0..7, the receiver 8, then the switch's ports 9 + host.
  void transmit(int port, const Packet& p) {
    const int64_t t = transmission_ns(p.ack ? kAck : kData, kLine);
    busy_[port] = true;
    const int rank = port <= 8 ? 2 * port : 2 * (port - 9) + 1;
    at(now_ + t, 2, rank, [this, port] {
      busy_[port] = false;
      send(port);
    });
    at(now_ + t + kDelay, 1, rank, [this, port, p] { arrive(port, p); });
  }
  void arrive(int port, const Packet& p) {
    if (port <= 8) {
      const int out = 9 + (p.ack ? p.flow : 8);
      queue_[out].push_back(p);
      queued_[out] += p.ack ? kAck : kData;
      send(out);
    } else if (port == 9 + 8) {
      Packet ack = p;
      ack.ack = true;
      ack.seq = flows_[p.flow].received += kPayload;
      queue_[8].push_back(ack);
      send(8);
    } else {
      acknowledged(p);
    }
  }
  void send(int port) {
    if (busy_[port]) return;
    if (port >= 8) {
      if (queue_[port].empty()) return;
      Packet p = queue_[port].front();
      queue_[port].pop_front();
      if (port > 8) {
        const int64_t size = p.ack ? kAck : kData;
        queued_[port] -= size;
        if (!p.ack) p.hop = {now_ * 1000, sent_[port], queued_[port], kLine};
        sent_[port] += size;
      }
      transmit(port, p);
      return;
    }
    Flow& f = flows_[port];
    if (!f.begun || f.next == kSize) return;
    if (f.next - f.una < f.cc.window(params_) && f.available <= now_) {
      const Packet p{false, port, f.next, {}};
      f.next += kPayload;
      f.sent = true;
      f.available = now_ + transmission_ns(kData, f.rate);
      transmit(port, p);
    } else if (f.wake < 0 && f.available > now_) {
      wake(port, f.available);
    }
  }
  void wake(int port, int64_t time) {
    Flow& f = flows_[port];
    f.wake = time;
    const uint64_t version = ++f.wake_version;
    at(time, 2, 2 * port, [this, port, version] {
      Flow& g = flows_[port];
      if (g.wake < 0 || g.wake_version != version) return;
      g.wake = -1;
      send(port);
    });
  }
  void acknowledged(const Packet& p) {
    Flow& f = flows_[p.flow];
    f.una = p.seq;
    if (f.una == kSize) f.done = now_;
    if (f.cc.on_ack(params_, &p.hop, 1, p.seq, f.next)) {
      if (f.sent) {
        f.available += transmission_ns(kData, f.cc.rate()) - transmission_ns(kData, f.rate);
        if (f.wake >= 0 && f.available < f.wake) wake(p.flow, std::max(f.available, now_));
      }
      f.rate = f.cc.rate();
    }
    send(p.flow);
  }

  const bool by_rank_;
  HpccParams params_;
  int64_t now_ = 0;
  uint64_t number_ = 0;
  std::map<Key, std::function<void()>> events_;
  std::array<Flow, kSenders> flows_;
  std::array<bool, 18> busy_{};
  std::array<std::deque<Packet>, 18> queue_;
  std::array<int64_t, 18> queued_{}, sent_{};
};

TEST(HpccReference, TheAuthorsIncastToTheNanosecond) {
  const std::array<int64_t, kSenders> published = {1'468'852, 1'469'713, 1'419'663, 1'453'536,
                                                   1'287'910, 1'485'112, 1'084'713, 1'381'609};
  EXPECT_EQ(Incast(false).run(), published);
}

TEST(HpccReference, TheEngineDiffersByTheOrderOfTiesAlone) {
  const test::Scenario s({{"transport.payload", "1000B"},
                          {"transport.header", "48B"},
                          {"transport.ack_size", "46B"},
                          {"transport.time_resolution", "1ns"},
                          {"transport.window", "bdp-longest"},
                          {"transport.ack_pausable", "true"},
                          {"congestion", "hpcc"},
                          {"cc.max_stage", "0"},
                          {"cc.additive_increase", "40Mbps"},
                          {"cc.telemetry", "quantised"},
                          {"switch.buffer", "32MiB"},
                          {"ecn.mark_at", "off"}});
  std::vector<test::Flow> flows;
  for (uint32_t i = 0; i < kSenders; ++i) flows.push_back({i, kSenders, kSize, {}, 0});
  const auto outcome = test::run(test::star(kSenders + 1), s.make(), flows);
  const auto expected = Incast(true).run();
  for (size_t i = 0; i < kSenders; ++i) {
    EXPECT_EQ(test::fct_ps(outcome.records[i]), expected[i] * 1000) << i;
  }
}

}  // namespace
}  // namespace trainyard
