// SPDX-License-Identifier: MIT
// TIMELY (Mittal et al., SIGCOMM'15) as pure integer arithmetic, with the rules of the HPCC ns-3
// model (alibaba-edu/High-Precision-Congestion-Control 9f4be2a, rdma-hw.cc, CC_MODE 7).
//
// Once per round trip, from its RTT sample:
//     diff = (1 - alpha) diff + alpha (rtt - last rtt),     gradient = diff / min_rtt
//     rtt < t_low:    rate += step            (also: gradient <= 0 between the thresholds)
//     rtt > t_high:   rate *= 1 - beta (1 - t_high / rtt)
//     gradient > 0:   rate *= max(0, 1 - beta gradient)
// step is `additive`, and `hyper` after `hyper_after` increases in a row.
// TIMELY sets a rate and no window.
//
// diff has 16 fraction bits of a picosecond, factors 40; rates are rounded down to whole bits per
// second. Against doubles one update differs by less than 1e-9 of the rate plus 1 b/s.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/params.h"

namespace trainyard {

struct TimelyParams {
  uint64_t alpha_q40 = 962'072'674'304;  ///< 0.875, weight of the new sample; TimelyAlpha
  uint64_t beta_q40 = 879'609'302'221;   ///< 0.8; paper section 5; TimelyBeta
  int64_t t_low_ps = 50'000'000;         ///< paper section 5; TimelyTLow
  int64_t t_high_ps = 500'000'000;       ///< paper section 5; TimelyTHigh
  int64_t min_rtt_ps = 20'000'000;       ///< normalises the gradient; TimelyMinRtt
  int64_t additive_bps = 0, hyper_bps = 0;
  /// Added to the steps per 10 Gb/s of line rate; paper delta 10 Mb/s; run.py 10*bw/10, 50*bw/10.
  int64_t additive_per_10g_bps = 10'000'000, hyper_per_10g_bps = 50'000'000;
  int hyper_after = 5;            ///< paper N = 5
  int64_t min_bps = 100'000'000;  ///< MIN_RATE
};

/// Rate state of one queue pair. Times in ps, sequence numbers in bytes from 0.
class Timely {
 public:
  static constexpr int64_t kOne = int64_t{1} << 40;

  /// Starts at line rate.
  void init(const TimelyParams& p, int64_t line_bps) {
    *this = Timely();
    line_ = rate_ = line_bps;
    const auto scaled = [&](int64_t per_10g) {
      return static_cast<int64_t>(static_cast<__int128>(per_10g) * line_bps / 10'000'000'000);
    };
    additive_ = p.additive_bps + scaled(p.additive_per_10g_bps);
    hyper_ = p.hyper_bps + scaled(p.hyper_per_10g_bps);
  }

  [[nodiscard]] int64_t rate() const { return rate_; }
  [[nodiscard]] int64_t line() const { return line_; }

  /// An ACK or NACK. `rtt_ps`: now minus the time at which the sender began to send the data packet
  /// that caused it. `ack_seq`: the byte the receiver expects next. `snd_nxt`: the byte the sender
  /// sends next, after a NACK has rewound it. Only the first ACK beyond the byte that was next to
  /// be sent at the last update counts. @returns true when the rate was set.
  bool on_ack(const TimelyParams& p, int64_t rtt_ps, int64_t ack_seq, int64_t snd_nxt) {
    if (ack_seq <= last_update_seq_) return false;
    const bool first = last_update_seq_ == 0;
    if (!first) update(p, rtt_ps);
    if (snd_nxt > last_update_seq_) {
      last_update_seq_ = snd_nxt;
      last_rtt_ = rtt_ps;
    }
    return !first;
  }

  /// It is not as init() left it.
  [[nodiscard]] bool touched() const { return last_update_seq_ != 0; }
  /// As if everything had happened `bytes` further in the sequence space.
  void shift(int64_t bytes) {
    if (last_update_seq_ != 0) last_update_seq_ += bytes;
  }
  /// Passes all that decides what it will do after the byte `posted` to `sink(uint64_t)`.
  template <class Sink>
  void digest(int64_t posted, const Sink& sink) const {
    sink(touched() ? 1 : 0);
    for (const int64_t x : {last_update_seq_ - posted, rate_, last_rtt_, diff_, line_}) {
      sink(static_cast<uint64_t>(x));
    }
    sink(static_cast<uint64_t>(stage_));
  }

 private:
  void update(const TimelyParams& p, int64_t rtt) {
    const auto alpha = static_cast<int64_t>(p.alpha_q40);
    const auto beta = static_cast<int64_t>(p.beta_q40);
    const __int128 sum =
        static_cast<__int128>(kOne - alpha) * diff_ +
        static_cast<__int128>(alpha) * (static_cast<__int128>(rtt - last_rtt_) << 16);
    diff_ = static_cast<int64_t>((sum + kOne / 2) >> 40);
    bool increase = false;
    __int128 factor = 0;  // Q40
    if (rtt < p.t_low_ps) {
      increase = true;
    } else if (rtt > p.t_high_ps) {
      factor = kOne - static_cast<__int128>(beta) * (rtt - p.t_high_ps) / rtt;
    } else if (diff_ <= 0) {
      increase = true;
    } else {
      factor = kOne - ((static_cast<__int128>(beta) * diff_ / p.min_rtt_ps) >> 16);
    }
    if (increase) {
      rate_ = std::min(line_, rate_ + (stage_ < p.hyper_after ? additive_ : hyper_));
      stage_ = std::min(stage_ + 1, 1'000'000);
      return;
    }
    factor = std::max<__int128>(factor, 0);
    rate_ = std::max(std::min(p.min_bps, line_), static_cast<int64_t>(rate_ * factor >> 40));
    stage_ = 0;
  }

  int64_t line_ = 0, rate_ = 0, additive_ = 0, hyper_ = 0;
  int64_t last_rtt_ = 0;
  int64_t diff_ = 0;  ///< ps, 16 fraction bits
  int64_t last_update_seq_ = 0;
  int stage_ = 0;
};

/// Parameters of congestion: timely, and what they come to (timely.cpp).
const std::vector<ParamSpec>& timely_params();
/// Throws UserError when t_low is above t_high.
TimelyParams make_timely_params(const Params& params);

}  // namespace trainyard
