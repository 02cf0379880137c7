// SPDX-License-Identifier: MIT
// One queue, N paced senders, feedback after a delay: the smallest network on which a congestion
// controller can be seen to converge. Packets of one size; no PFC, no losses, unbounded queue.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <vector>

#include "network/packet/dcqcn.h"
#include "network/packet/int_hop.h"

namespace trainyard::test {

/// What comes back for one packet.
struct Feedback {
  int64_t ack_seq = 0;  ///< everything before this has arrived
  int64_t snd_nxt = 0;  ///< next byte the sender would send, now
  int64_t rtt_ps = 0;   ///< since the sender started to send the packet (on the way: that time)
  bool marked = false;
  IntHop hop;  ///< the queue as the packet left it
};

/// One sender's controller.
struct Sender {
  std::function<int64_t()> rate;
  std::function<int64_t()> window = [] { return int64_t{0}; };  ///< bytes; 0: none
  std::function<void(int64_t now, const Feedback&)> on_ack;
  std::function<void(int64_t now, int64_t bytes)> on_sent = [](int64_t, int64_t) {};
  std::function<void(int64_t now)> on_timer = [](int64_t) {};  ///< asked for by Network::timer
};

struct SharedQueue {
  std::vector<double> share;  ///< bytes over fair bytes, last quarter of the run
  double utilisation = 0;     ///< of the queue's link, last quarter
  int64_t peak_queue_late = 0, peak_queue = 0;
};

class Network {
 public:
  int64_t line_bps = 100'000'000'000;
  int64_t base_rtt_ps = 8'000'000;  ///< without queueing and transmission
  int64_t packet = 1'000;
  int64_t kmin = 100'000, kmax = 400'000;  ///< marking: none below, all above
  double pmax = 0.2;
  int64_t start_gap_ps = 0;  ///< between the starts of two senders
  std::vector<Sender> senders;

  /// Calls on_timer of sender `i` at `at`.
  void timer(size_t i, int64_t at) { push(at, Kind::timer, i, {}); }

  SharedQueue run(int64_t end) {
    state_.resize(senders.size());
    for (size_t i = 0; i < senders.size(); ++i) {
      push(static_cast<int64_t>(i) * start_gap_ps, Kind::send, i, {});
    }
    SharedQueue out;
    std::vector<int64_t> late(senders.size());
    const int64_t late_from = end / 4 * 3;
    const int64_t tx = packet * 8 * 1'000'000'000'000 / line_bps;
    while (!events_.empty() && events_.top().at <= end) {
      const Event e = events_.top();
      events_.pop();
      now_ = e.at;
      State& s = state_[e.flow];
      switch (e.kind) {
        case Kind::send: {
          s.scheduled = false;
          const int64_t window = senders[e.flow].window();
          if (window > 0 && s.nxt - s.una >= window) break;  // an ACK restarts it
          if (e.at < s.next_send) {
            schedule_send(e.flow);
            break;
          }
          s.nxt += packet;
          s.next_send = e.at + packet * 8 * 1'000'000'000'000 / senders[e.flow].rate();
          senders[e.flow].on_sent(e.at, packet);
          push(e.at + base_rtt_ps / 2, Kind::arrive, e.flow, {s.nxt, 0, e.at, false, {}});
          schedule_send(e.flow);
          break;
        }
        case Kind::arrive:
          fifo_.push_back({e.flow, e.feedback});
          queued_ += packet;
          out.peak_queue = std::max(out.peak_queue, queued_);
          if (e.at >= late_from) out.peak_queue_late = std::max(out.peak_queue_late, queued_);
          if (!busy_) depart(e.at, tx);
          break;
        case Kind::free:
          busy_ = false;
          if (!fifo_.empty()) depart(e.at, tx);
          break;
        case Kind::ack: {
          Feedback f = e.feedback;
          s.una = f.ack_seq;
          f.snd_nxt = s.nxt;
          f.rtt_ps = e.at - f.rtt_ps;
          if (e.at >= late_from) late[e.flow] += packet;
          senders[e.flow].on_ack(e.at, f);
          schedule_send(e.flow);
          break;
        }
        case Kind::timer:
          senders[e.flow].on_timer(e.at);
          break;
      }
    }
    double total = 0;
    for (const int64_t bytes : late) total += static_cast<double>(bytes);
    for (const int64_t bytes : late) {
      out.share.push_back(static_cast<double>(bytes) * static_cast<double>(late.size()) / total);
    }
    out.utilisation =
        total * 8e12 / static_cast<double>(line_bps) / static_cast<double>(end - late_from);
    return out;
  }

 private:
  enum class Kind : uint8_t { free, arrive, ack, timer, send };
  struct Event {
    int64_t at;
    uint64_t order;
    Kind kind;
    size_t flow;
    Feedback feedback;
    bool operator<(const Event& o) const { return at != o.at ? at > o.at : order > o.order; }
  };
  struct State {
    int64_t nxt = 0, una = 0, next_send = 0;
    bool scheduled = false;
  };

  void push(int64_t at, Kind kind, size_t flow, const Feedback& f) {
    events_.push({at, order_++, kind, flow, f});
  }
  void schedule_send(size_t flow) {
    State& s = state_[flow];
    if (s.scheduled) return;
    s.scheduled = true;
    push(std::max(s.next_send, now_), Kind::send, flow, {});
  }
  void depart(int64_t now, int64_t tx) {
    auto [flow, f] = fifo_.front();
    fifo_.pop_front();
    queued_ -= packet;
    f.hop = {now, sent_, queued_, line_bps};  // bytes before, queue after this packet
    sent_ += packet;
    // Error diffusion: the same mean as dice.
    if (queued_ > kmax) {
      f.marked = true;
    } else if (queued_ > kmin) {
      dither_ += pmax * static_cast<double>(queued_ - kmin) / static_cast<double>(kmax - kmin);
      if (dither_ >= 1) {
        dither_ -= 1;
        f.marked = true;
      }
    }
    push(now + tx + base_rtt_ps / 2, Kind::ack, flow, f);
    busy_ = true;
    push(now + tx, Kind::free, flow, {});
  }

  std::priority_queue<Event> events_;
  std::deque<std::pair<size_t, Feedback>> fifo_;
  std::vector<State> state_;
  uint64_t order_ = 0;
  int64_t queued_ = 0, sent_ = 0, now_ = 0;
  double dither_ = 0;
  bool busy_ = false;
};

/// DCQCN on the shared queue: notifications per marked packet (vendor) or at most one per 50 us.
inline SharedQueue run_dcqcn(const DcqcnParams& p, size_t flows, int64_t end) {
  struct State {
    Dcqcn cc;
    int64_t cut_at = -1, increase_at = -1, last_cnp = INT64_MIN / 2;
  };
  Network net;
  std::vector<State> state(flows);
  for (size_t i = 0; i < flows; ++i) {
    State* s = &state[i];
    s->cc.init(p, net.line_bps);
    Sender sender;
    sender.rate = [s] { return s->cc.rate(); };
    sender.on_sent = [s, &p](int64_t, int64_t bytes) { s->cc.sent(p, bytes); };
    const auto arm_increase = [s, &net, &p, i](int64_t now) {
      s->increase_at = now + p.increase_timer_ps;
      net.timer(i, s->increase_at);
    };
    sender.on_ack = [s, &net, &p, i, arm_increase](int64_t now, const Feedback& f) {
      if (!f.marked) return;
      if (p.order == DcqcnOrder::vendor) {
        const int64_t at = s->cc.vendor_notify(p, now);
        if (at >= 0) net.timer(i, s->cut_at = at);
        return;
      }
      if (now - s->last_cnp < 50'000'000) return;
      s->last_cnp = now;
      s->cc.paper_notify(p, now);
      arm_increase(now);
    };
    sender.on_timer = [s, &p, arm_increase](int64_t now) {
      if (now == s->cut_at) {
        s->cut_at = -1;
        s->cc.vendor_cut(p, now);
        arm_increase(now);
      } else if (now == s->increase_at) {
        s->cc.increase_by_timer(p);
        arm_increase(now);
      }
    };
    net.senders.push_back(sender);
  }
  return net.run(end);
}

}  // namespace trainyard::test
