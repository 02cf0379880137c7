// SPDX-License-Identifier: MIT
// HPCC on the event order of its authors' model. Equal flows start at one instant, so events of one
// instant are the rule and their order decides every trajectory. ns-3 runs them in order of
// insertion, our engine by rank; this is the same network with either order, a page of code of its
// own around our controller and our routing. One flow per sender, nobody pauses.
//
// Completion times of alibaba-edu/High-Precision-Congestion-Control 9f4be2a: an 8-to-1 incast of
// 2 MB, and a permutation of 4 MB among 16 hosts on four leaves and four spines.
#include <gtest/gtest.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "network/packet/hpcc.h"
#include "network/routing.h"
#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

constexpr int64_t kPayload = 1000, kData = 1090, kAck = 88;
constexpr int64_t kLine = 100'000'000'000, kDelay = 1000;

int64_t transmission_ns(int64_t bytes, int64_t bps) {
  return bytes * 8'000'000'000 / bps;
}

enum class Ties { insertion, rank };

class Model {
 public:
  Model(const Topology& topology, const std::vector<test::Flow>& flows, int64_t rtt_ns, Ties ties)
      : ties_(ties), rtt_ns_(rtt_ns), ports_(2 * topology.links().size()), flows_(flows.size()) {
    params_.max_stage = 0;
    params_.additive_bps = 40'000'000;
    params_.additive_per_25g_bps = 0;
    params_.quantised = true;
    Routing routing(topology, {EcmpHash::murmur3_tuple, NextHopOrder::descending_peer, true, 1});
    int cables = 0;
    for (size_t i = 0; i < flows.size(); ++i) {
      Flow& f = flows_[i];
      f.size = flows[i].bytes;
      routing.path({flows[i].src, flows[i].dst, kSourcePortBase, kDestinationPort}, f.forward);
      routing.path({flows[i].dst, flows[i].src, kDestinationPort, kSourcePortBase}, f.reverse);
      ports_[f.forward[0]].flow = static_cast<int>(i);
      for (const auto* path : {&f.forward, &f.reverse}) {
        for (const uint32_t p : *path) {
          // In order of first use, as in the engine.
          if (ports_[p].rank < 0) {
            ports_[p & ~1U].rank = cables++ * 2;
            ports_[p | 1U].rank = ports_[p & ~1U].rank + 1;
          }
          ports_[p].host = topology.kind(topology.from(p)) == NodeKind::host;
        }
      }
    }
  }

  /// Up to the last ACK, in ns.
  std::vector<int64_t> run() {
    for (size_t i = 0; i < flows_.size(); ++i) {
      at(0, 0, static_cast<int>(i), [this, i] {
        Flow& f = flows_[i];
        f.cc.init(params_, kLine, rtt_ns_ * 1000, rtt_ns_ * kLine / 8'000'000'000);
        f.rate = kLine;
        f.begun = true;
        send(f.forward[0]);
      });
    }
    while (!events_.empty()) {
      const auto first = events_.begin();
      now_ = first->first.time;
      const auto f = std::move(first->second);
      events_.erase(first);
      f();
    }
    std::vector<int64_t> done;
    for (const Flow& f : flows_) done.push_back(f.done);
    return done;
  }

 private:
  struct Packet {
    bool ack = false;
    size_t flow = 0, hop = 0;
    int64_t seq = 0;
    std::vector<IntHop> stamps;
    [[nodiscard]] int64_t size() const { return ack ? kAck : kData; }
  };
  struct Flow {
    std::vector<uint32_t> forward, reverse;
    int64_t size = 0;
    bool begun = false, sent = false;
    int64_t next = 0, una = 0, rate = 0, available = 0, done = -1, received = 0;
    int64_t wake = -1;
    uint64_t wake_version = 0;
    Hpcc cc;
  };
  struct Port {
    int rank = -1, flow = -1;
    bool host = false, busy = false;
    std::deque<Packet> queue;  // of a host: ACKs
    int64_t queued = 0, sent = 0;
  };
  struct Key {
    int64_t time;
    int kind, rank;
    uint64_t number;
    auto operator<=>(const Key&) const = default;
  };

  /// Kinds: starts, arrivals, transmitters.
  void at(int64_t time, int kind, int rank, std::function<void()> f) {
    ++number_;
    events_.emplace(ties_ == Ties::rank ? Key{time, kind, rank, number_} : Key{time, 0, 0, number_},
                    std::move(f));
  }
  void transmit(uint32_t pi, Packet p) {
    Port& port = ports_[pi];
    const int64_t t = transmission_ns(p.size(), kLine);
    port.busy = true;
    at(now_ + t, 2, port.rank, [this, pi] {
      ports_[pi].busy = false;
      send(pi);
    });
    ++p.hop;
    at(now_ + t + kDelay, 1, port.rank, [this, p = std::move(p)] { arrive(p); });
  }
  void arrive(const Packet& p) {
    Flow& f = flows_[p.flow];
    const auto& path = p.ack ? f.reverse : f.forward;
    if (p.hop < path.size()) {
      Port& port = ports_[path[p.hop]];
      port.queue.push_back(p);
      port.queued += p.size();
      send(path[p.hop]);
    } else if (!p.ack) {
      f.received += kPayload;
      ports_[f.reverse[0]].queue.push_back({true, p.flow, 0, f.received, p.stamps});
      send(f.reverse[0]);
    } else {
      acknowledged(f, p);
    }
  }
  void send(uint32_t pi) {
    Port& port = ports_[pi];
    if (port.busy) return;
    if (!port.queue.empty()) {
      Packet p = std::move(port.queue.front());
      port.queue.pop_front();
      if (!port.host) {
        port.queued -= p.size();
        if (!p.ack) p.stamps.push_back({now_ * 1000, port.sent, port.queued, kLine});
        port.sent += p.size();
      }
      transmit(pi, std::move(p));
      return;
    }
    if (port.flow < 0) return;
    Flow& f = flows_[static_cast<size_t>(port.flow)];
    if (!f.begun || f.next == f.size) return;
    if (f.next - f.una < f.cc.window(params_) && f.available <= now_) {
      Packet p;
      p.flow = static_cast<size_t>(port.flow);
      f.next += kPayload;
      f.sent = true;
      f.available = now_ + transmission_ns(kData, f.rate);
      transmit(pi, std::move(p));
    } else if (f.wake < 0 && f.available > now_) {
      wake(f, f.available);
    }
  }
  void wake(Flow& f, int64_t time) {
    f.wake = time;
    const uint64_t version = ++f.wake_version;
    at(time, 2, ports_[f.forward[0]].rank, [this, &f, version] {
      if (f.wake < 0 || f.wake_version != version) return;
      f.wake = -1;
      send(f.forward[0]);
    });
  }
  void acknowledged(Flow& f, const Packet& p) {
    f.una = p.seq;
    if (f.una == f.size) f.done = now_;
    if (f.cc.on_ack(params_, p.stamps.data(), static_cast<int>(p.stamps.size()), p.seq, f.next)) {
      if (f.sent) {
        f.available += transmission_ns(kData, f.cc.rate()) - transmission_ns(kData, f.rate);
        if (f.wake >= 0 && f.available < f.wake) wake(f, std::max(f.available, now_));
      }
      f.rate = f.cc.rate();
    }
    send(f.forward[0]);
  }

  const Ties ties_;
  const int64_t rtt_ns_;
  HpccParams params_;
  int64_t now_ = 0;
  uint64_t number_ = 0;
  std::map<Key, std::function<void()>> events_;
  std::vector<Port> ports_;
  std::vector<Flow> flows_;
};

/// What the engine makes of it.
std::vector<int64_t> engine(const Topology& topology, const std::vector<test::Flow>& flows) {
  const test::Scenario s({{"transport.payload", "1000B"},
                          {"transport.header", "48B"},
                          {"transport.ack_size", "46B"},
                          {"transport.time_resolution", "1ns"},
                          {"transport.window", "bdp-longest"},
                          {"transport.ack_pausable", "true"},
                          {"ecmp.hash", "murmur3-tuple"},
                          {"ecmp.next_hops", "descending-peer"},
                          {"congestion", "hpcc"},
                          {"cc.max_stage", "0"},
                          {"cc.additive_increase", "40Mbps"},
                          {"cc.telemetry", "quantised"},
                          {"switch.buffer", "32MiB"},
                          {"ecn.mark_at", "off"}});
  std::vector<int64_t> done;
  for (const auto& r : test::run(topology, s.make(), flows).records) {
    EXPECT_EQ(test::fct_ps(r) % 1000, 0);
    done.push_back(test::fct_ps(r) / 1000);
  }
  return done;
}

TEST(HpccReference, IncastToTheNanosecond) {
  const std::vector<int64_t> published = {1'468'852, 1'469'713, 1'419'663, 1'453'536,
                                          1'287'910, 1'485'112, 1'084'713, 1'381'609};
  const Topology topology = test::star(9);
  std::vector<test::Flow> flows;
  for (uint32_t i = 0; i < 8; ++i) flows.push_back({i, 8, 2'000'000, {}, 0});
  EXPECT_EQ(Model(topology, flows, 4160, Ties::insertion).run(), published);
  // Other ties, and it is the engine's trajectory.
  const auto by_rank = Model(topology, flows, 4160, Ties::rank).run();
  EXPECT_NE(by_rank, published);
  EXPECT_EQ(engine(topology, flows), by_rank);
}

TEST(HpccReference, PermutationToTheNanosecond) {
  const std::vector<int64_t> published = {
      1'102'424, 449'234, 1'177'803, 1'120'078, 792'589, 1'175'633, 441'989, 810'766,
      464'765,   753'332, 418'033,   1'170'276, 457'013, 1'183'274, 641'224, 844'697};
  const std::vector<uint32_t> to = {4, 9, 14, 7, 8, 13, 2, 11, 12, 1, 6, 15, 0, 5, 10, 3};
  const Topology topology = test::two_tiers(4, 4, 4);
  std::vector<test::Flow> flows;
  for (uint32_t i = 0; i < 16; ++i) flows.push_back({i, to[i], 4'000'000, {}, 0});
  EXPECT_EQ(Model(topology, flows, 8320, Ties::insertion).run(), published);
  EXPECT_EQ(engine(topology, flows), Model(topology, flows, 8320, Ties::rank).run());
}

}  // namespace
}  // namespace trainyard
