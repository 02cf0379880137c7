// SPDX-License-Identifier: MIT
// DCTCP's control law (Alizadeh et al., SIGCOMM'10) on rates instead of windows, as pure integer
// arithmetic, with the rules of the HPCC ns-3 model (alibaba-edu/High-Precision-Congestion-Control
// 9f4be2a, rdma-hw.cc, CC_MODE 8).
//
// Once per round trip: alpha = (1 - g) alpha + g F, F = marked ACKs over packets of the round.
// The first marked ACK of a round cuts: rate *= 1 - alpha / 2; no further cut until an ACK passes
// the byte that was next to be sent then. A round trip that ends outside such a time adds
// `additive`. DCTCP-like sets a rate and no window of its own; the model ran it with a window of
// the bandwidth-delay product x rate / line rate.
//
// alpha has 62 fraction bits; rates are rounded down to whole bits per second.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/params.h"

namespace trainyard {

struct DctcpParams {
  uint64_t g = uint64_t{1} << 58;      ///< Q62; 1/16: paper section 3.3; run.py 0.0625
  int64_t additive_bps = 615'000'000;  ///< run.py: one packet of 1 KB per round trip of 13 us
  int64_t min_bps = 100'000'000;       ///< MIN_RATE
};

/// Rate state of one queue pair. Sequence numbers in bytes from 0.
class Dctcp {
 public:
  static constexpr uint64_t kOne = uint64_t{1} << 62;

  /// Starts at line rate with alpha = 1. `payload_bytes`: of a full packet; turns bytes in flight
  /// into the number of ACKs to expect (one ACK per packet; with fewer F is too small).
  void init(int64_t line_bps, int64_t payload_bytes) {
    *this = Dctcp();
    line_ = rate_ = line_bps;
    payload_ = payload_bytes;
  }

  [[nodiscard]] int64_t rate() const { return rate_; }
  [[nodiscard]] int64_t line() const { return line_; }
  [[nodiscard]] uint64_t alpha() const { return alpha_; }
  /// A cut was made less than a round trip ago.
  [[nodiscard]] bool reduced() const { return reduced_; }

  /// An ACK or NACK; `marked`: the data packet that caused it had a congestion mark. `ack_seq`: the
  /// byte the receiver expects next. `snd_nxt`: the byte the sender sends next, after a NACK has
  /// rewound it. @returns true when the rate was set.
  bool on_ack(const DctcpParams& p, bool marked, int64_t ack_seq, int64_t snd_nxt) {
    if (marked) ++marks_;
    const bool round = ack_seq > last_update_seq_;
    if (round) {
      if (last_update_seq_ == 0) {
        batch_ = snd_nxt / payload_ + 1;
      } else {
        const int64_t marks = std::min(marks_, batch_);
        alpha_ =
            times(alpha_, kOne - p.g) +
            static_cast<uint64_t>(static_cast<unsigned __int128>(p.g) *
                                  static_cast<uint64_t>(marks) / static_cast<uint64_t>(batch_));
        marks_ = 0;
        batch_ = std::max<int64_t>(0, snd_nxt - ack_seq) / payload_ + 1;
      }
      last_update_seq_ = snd_nxt;
    }
    if (reduced_ && ack_seq > reduced_until_) reduced_ = false;
    bool changed = false;
    if (marked && !reduced_) {
      const auto cut = static_cast<int64_t>(
          (static_cast<unsigned __int128>(rate_) * ((kOne << 1) - alpha_)) >> 63);
      rate_ = std::max(std::min(p.min_bps, line_), cut);
      reduced_ = true;
      reduced_until_ = snd_nxt;
      changed = true;
    }
    if (round && !reduced_) {
      rate_ = std::min(line_, rate_ + p.additive_bps);
      changed = true;
    }
    return changed;
  }

  /// It is not as init() left it.
  [[nodiscard]] bool touched() const {
    return last_update_seq_ != 0 || marks_ != 0 || rate_ != line_;
  }
  /// As if everything had happened `bytes` further in the sequence space.
  void shift(int64_t bytes) {
    if (last_update_seq_ != 0) last_update_seq_ += bytes;
    reduced_until_ += bytes;
  }
  /// Passes all that decides what it will do after the byte `posted` to `sink(uint64_t)`.
  template <class Sink>
  void digest(int64_t posted, const Sink& sink) const {
    sink(static_cast<uint64_t>(last_update_seq_ != 0) << 1 | static_cast<uint64_t>(reduced_));
    sink(alpha_);
    for (const int64_t x : {last_update_seq_ - posted, reduced_ ? reduced_until_ - posted : 0,
                            rate_, marks_, batch_, line_}) {
      sink(static_cast<uint64_t>(x));
    }
  }

 private:
  static uint64_t times(uint64_t a, uint64_t b) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 62);
  }

  int64_t line_ = 0, rate_ = 0, payload_ = 1;
  uint64_t alpha_ = kOne;
  int64_t last_update_seq_ = 0, reduced_until_ = 0;
  int64_t marks_ = 0, batch_ = 1;
  bool reduced_ = false;
};

/// Parameters of congestion: dctcp, and what they come to (dctcp.cpp).
const std::vector<ParamSpec>& dctcp_params();
DctcpParams make_dctcp_params(const Params& params);

}  // namespace trainyard
