// SPDX-License-Identifier: MIT
// HPCC (Li et al., SIGCOMM'19) as pure integer arithmetic, with the reaction rules of its authors'
// ns-3 model (alibaba-edu/High-Precision-Congestion-Control 9f4be2a, rdma-hw.cc), which the
// reference tables measure.
//
// Per hop i of the path, from the stamps of two ACKs (tau = their distance in time, T = base RTT,
// B = port rate, W = window at line rate L):
//     u_i = tx_bytes / (B tau) + min(qlen, last qlen) / W x L / B
//     U   = U (1 - tau/T) + max_i u_i tau/T,     tau <= T that of the hop with the largest u_i
// With k = U / eta:  k >= 1 or max_stage additive rounds: rate = Rc / k + AI; else rate = Rc + AI.
// Every ACK may set the rate (fast reaction); Rc, from which it starts, moves once per round trip:
// when an ACK passes the byte that was next to be sent at the last move.
// HPCC sets a rate and a window: W x rate / L, so that a sender cannot run ahead of lost feedback.
//
// Utilisations are fixed point with 40 fraction bits, rounded to nearest; rates are whole bits per
// second, rounded down as in the model. Against doubles the rate of one update differs by less than
// 1e-9 of it plus 1 b/s, and U's recursion forgets errors, so long runs stay within 1e-6.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "network/packet/int_hop.h"
#include "sim/params.h"

namespace trainyard {

struct HpccParams {
  uint64_t eta_q40 = 1'044'536'046'387;  ///< 0.95; paper section 4, U_TARGET
  int max_stage = 5;         ///< paper section 4.4; MiThresh in the model's code. The tables use 0
  int64_t additive_bps = 0;  ///< AI
  int64_t additive_per_25g_bps = 10'000'000;  ///< added per 25 Gb/s of line rate; run.py: 10*bw/25
  int64_t min_bps = 100'000'000;              ///< tables: MIN_RATE 100 Mb/s
  bool fast_react = true;                     ///< paper section 3.2; FAST_REACT
  bool per_hop_rates = false;    ///< one Rc, U and stage per hop, the least rate wins; MULTI_RATE
  bool sample_feedback = false;  ///< fast reaction skips hops with an empty queue; SAMPLE_FEEDBACK
  bool window_varies = true;     ///< W x rate / L, otherwise W; VAR_WIN
  /// Stamps lose what the model's 64-bit wire format loses (int-header.h): time in ns modulo 2^24,
  /// bytes in units of 128 x int_multi modulo 2^20, queue in units of 80 x int_multi modulo 2^17,
  /// 5 hops. Port rates travel exactly; the model knows 25, 50, 100, 200 and 400 Gb/s only.
  bool quantised = false;
  int64_t int_multi = 0;  ///< 0: line rate / 25 Gb/s, at least 1 (run.py); INT_MULTI
};

/// Rate state of one queue pair. Times in ps, sequence numbers in bytes from 0.
class Hpcc {
 public:
  static constexpr int kMaxHops = 8;
  static constexpr int kQuantisedMaxHops = 5;
  static constexpr int64_t kOne = int64_t{1} << 40;

  /// Starts at line rate. `base_rtt_ps` is the round trip without queues of the longest path that
  /// shares the fabric (the reference's GLOBAL_T), or of this one; positive. `window_bytes` 0:
  /// line rate x base RTT.
  void init(const HpccParams& p, int64_t line_bps, int64_t base_rtt_ps, int64_t window_bytes = 0) {
    *this = Hpcc();
    line_ = rate_ = current_ = line_bps;
    base_rtt_ = base_rtt_ps;
    window_ = window_bytes > 0 ? window_bytes
                               : static_cast<int64_t>(static_cast<__int128>(line_bps) *
                                                      base_rtt_ps / 8'000'000'000'000);
    window_ = std::max<int64_t>(window_, 1);
    additive_ =
        p.additive_bps + static_cast<int64_t>(static_cast<__int128>(p.additive_per_25g_bps) *
                                              line_bps / 25'000'000'000);
    multi_ = p.int_multi > 0 ? p.int_multi : std::max<int64_t>(1, line_bps / 25'000'000'000);
    for (Hop& h : hops_) h.current = line_bps;
  }

  [[nodiscard]] int64_t rate() const { return rate_; }
  [[nodiscard]] int64_t line() const { return line_; }
  /// Bytes that may be in flight now; at least 1.
  [[nodiscard]] int64_t window(const HpccParams& p) const {
    if (!p.window_varies) return window_;
    return std::max<int64_t>(1,
                             static_cast<int64_t>(static_cast<__int128>(window_) * rate_ / line_));
  }
  /// Rc, the rate from which the next one is computed.
  [[nodiscard]] int64_t current_rate() const { return current_; }
  /// U with 40 fraction bits.
  [[nodiscard]] int64_t utilisation_q40() const { return u_; }

  /// An ACK or NACK with the stamps `hops[0..n)` of the data packet that caused it, in path order.
  /// `ack_seq`: the byte the receiver expects next. `snd_nxt`: the byte the sender sends next,
  /// after a NACK has rewound it. Stamps of another path (another n) or of an older packet are
  /// stored and give no rate. @returns true when the rate was set (perhaps to what it was).
  bool on_ack(const HpccParams& p, const IntHop* hops, int n, int64_t ack_seq, int64_t snd_nxt) {
    const bool full = ack_seq > last_update_seq_;
    if (!full && !p.fast_react) return false;
    if (last_update_seq_ == 0) {  // the first ACK only stores its stamps
      last_update_seq_ = snd_nxt;
      store(hops, n);
      return false;
    }
    const bool changed =
        n <= (p.quantised ? kQuantisedMaxHops : kMaxHops) && update(p, hops, n, full);
    if (full) last_update_seq_ = std::max(last_update_seq_, snd_nxt);
    return changed;
  }

  /// The path changed: the next stamps are not comparable with the last ones.
  void forget_path() { n_ = 0; }

  /// It is not as init() left it.
  [[nodiscard]] bool touched() const { return last_update_seq_ != 0 || n_ != 0; }
  /// Number of hops whose last stamps it keeps.
  [[nodiscard]] int stamped_hops() const { return n_; }
  /// As if everything had happened `ps` later and `bytes` further in the sequence space, on ports
  /// that had sent `port_bytes[0..stamped_hops())` more before.
  void shift(int64_t ps, int64_t bytes, const int64_t* port_bytes) {
    if (last_update_seq_ != 0) last_update_seq_ += bytes;
    for (int i = 0; i < n_; ++i) {
      hops_[i].last.time_ps += ps;
      hops_[i].last.tx_bytes += port_bytes[i];
    }
  }
  /// Passes all that decides what it will do after `now` and the byte `posted` to `sink(uint64_t)`,
  /// with stamps relative to what their ports have sent by now. Not for quantised stamps, whose
  /// rounding depends on absolute values.
  template <class Sink>
  void digest(int64_t now, int64_t posted, const int64_t* port_bytes, const Sink& sink) const {
    sink(static_cast<uint64_t>(n_) << 32 | static_cast<uint64_t>(stage_));
    sink(last_update_seq_ != 0 ? 1 : 0);
    for (const int64_t x : {last_update_seq_ - posted, rate_, current_, u_, base_rtt_, window_}) {
      sink(static_cast<uint64_t>(x));
    }
    for (int i = 0; i < n_; ++i) {
      const IntHop& h = hops_[i].last;
      for (const int64_t x :
           {h.time_ps - now, h.tx_bytes - port_bytes[i], h.qlen_bytes, h.rate_bps}) {
        sink(static_cast<uint64_t>(x));
      }
    }
    for (const Hop& h : hops_) {  // with per_hop_rates they outlive stamps
      sink(static_cast<uint64_t>(h.u));
      sink(static_cast<uint64_t>(h.current));
      sink(static_cast<uint64_t>(h.stage));
    }
  }

 private:
  struct Hop {
    IntHop last;
    int64_t u = kOne;     ///< per-hop U
    int64_t current = 0;  ///< per-hop Rc
    int stage = 0;
  };

  void store(const IntHop* hops, int n) {
    n_ = std::min(n, kMaxHops);
    for (int i = 0; i < n_; ++i) hops_[i].last = hops[i];
  }

  bool update(const HpccParams& p, const IntHop* hops, int n, bool full) {
    if (n != n_) {
      store(hops, n);
      return false;
    }
    int64_t most = 0, most_tau = 0;
    int64_t least_rate = line_;
    bool any = false;
    for (int i = 0; i < n; ++i) {
      Hop& h = hops_[i];
      const IntHop now = hops[i];
      const int64_t qlen = seen_qlen(p, now);
      if (p.sample_feedback && !full && qlen == 0) {
        least_rate = std::min(least_rate, h.current);
        continue;
      }
      const int64_t queue = std::min(qlen, seen_qlen(p, h.last));
      const int64_t tau = tau_ps(p, now, h.last);
      const int64_t bytes = sent_bytes(p, now, h.last);
      h.last = now;
      if (tau <= 0 || bytes < 0) {  // never from one port in order
        least_rate = std::min(least_rate, h.current);
        continue;
      }
      any = true;
      const int64_t u = saturate(ratio_q40(static_cast<__int128>(bytes) * 8'000'000'000'000,
                                           static_cast<__int128>(now.rate_bps) * tau) +
                                 ratio_q40(static_cast<__int128>(queue) * line_,
                                           static_cast<__int128>(now.rate_bps) * window_));
      if (!p.per_hop_rates) {
        if (u > most) {
          most = u;
          most_tau = tau;
        }
        continue;
      }
      h.u = smoothed(h.u, u, std::min(tau, base_rtt_));
      int stage = h.stage;
      const int64_t next = next_rate(p, h.current, h.u, stage);
      if (full) {
        h.current = next;
        h.stage = stage;
      }
      least_rate = std::min(least_rate, next);
    }
    if (!any) return false;
    if (p.per_hop_rates) {
      rate_ = least_rate;
      if (full) current_ = rate_;
      return true;
    }
    u_ = smoothed(u_, most, std::min(most_tau, base_rtt_));
    int stage = stage_;
    rate_ = next_rate(p, current_, u_, stage);
    if (full) {
      current_ = rate_;
      stage_ = stage;
    }
    return true;
  }

  /// Rate after utilisation `u`, from `current`; advances or resets `stage`.
  [[nodiscard]] int64_t next_rate(const HpccParams& p, int64_t current, int64_t u,
                                  int& stage) const {
    __int128 next = current;
    if (u >= static_cast<int64_t>(p.eta_q40) || stage >= p.max_stage) {
      // u = 0: nothing has moved for a base RTT, so anything fits.
      next = u == 0 ? static_cast<__int128>(line_)
                    : static_cast<__int128>(current) * static_cast<int64_t>(p.eta_q40) / u;
      stage = 0;
    } else {
      ++stage;
    }
    next += additive_;
    return static_cast<int64_t>(std::clamp<__int128>(next, std::min(p.min_bps, line_), line_));
  }

  [[nodiscard]] int64_t smoothed(int64_t old, int64_t sample, int64_t tau) const {
    const __int128 sum =
        static_cast<__int128>(old) * (base_rtt_ - tau) + static_cast<__int128>(sample) * tau;
    return static_cast<int64_t>((sum + base_rtt_ / 2) / base_rtt_);
  }

  static __int128 ratio_q40(__int128 numerator, __int128 denominator) {
    // More than 2^21 saturates anyway.
    const __int128 whole = std::min<__int128>(numerator / denominator, kOne);
    const __int128 rest = numerator % denominator;
    // The remainder is below the denominator; 2^40 of it may not fit, then both lose bits.
    int shift = 0;
    while ((denominator >> shift) >= (static_cast<__int128>(1) << 86)) ++shift;
    const __int128 d = denominator >> shift;
    return (whole << 40) + (((rest >> shift) << 40) + d / 2) / d;
  }
  static int64_t saturate(__int128 u) {
    return static_cast<int64_t>(std::min<__int128>(u, static_cast<__int128>(1) << 61));
  }

  [[nodiscard]] int64_t seen_qlen(const HpccParams& p, const IntHop& h) const {
    if (!p.quantised) return h.qlen_bytes;
    const int64_t unit = 80 * multi_;
    return h.qlen_bytes / unit % (1 << 17) * unit;
  }
  [[nodiscard]] static int64_t tau_ps(const HpccParams& p, const IntHop& now, const IntHop& last) {
    if (!p.quantised) return now.time_ps - last.time_ps;
    constexpr int64_t kWrap = 1 << 24;
    const int64_t ns = now.time_ps / 1000 % kWrap - last.time_ps / 1000 % kWrap;
    return (ns < 0 ? ns + kWrap : ns) * 1000;
  }
  [[nodiscard]] int64_t sent_bytes(const HpccParams& p, const IntHop& now,
                                   const IntHop& last) const {
    if (!p.quantised) return now.tx_bytes - last.tx_bytes;
    constexpr int64_t kWrap = 1 << 20;
    const int64_t unit = 128 * multi_;
    const int64_t units = now.tx_bytes / unit % kWrap - last.tx_bytes / unit % kWrap;
    return (units < 0 ? units + kWrap : units) * unit;
  }

  Hop hops_[kMaxHops];
  int64_t line_ = 0, rate_ = 0, current_ = 0, additive_ = 0;
  int64_t base_rtt_ = 1, window_ = 1, multi_ = 1;
  int64_t u_ = kOne;
  int64_t last_update_seq_ = 0;
  int stage_ = 0, n_ = 0;
};

/// Parameters of congestion: hpcc, and what they come to (hpcc.cpp).
const std::vector<ParamSpec>& hpcc_params();
HpccParams make_hpcc_params(const Params& params);

}  // namespace trainyard
