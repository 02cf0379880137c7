// SPDX-License-Identifier: MIT
// DCQCN's reaction point as pure integer arithmetic: the sender's rate, its target and alpha.
// Rates are bits per second; alpha and g are fixed point with 62 fraction bits, so that a value
// decayed lazily equals the value decayed by fired timers, bit for bit, on any machine.
//
// Three published orderings (protocols 5.3):
//   vendor  alpha ages on its own timer; a notification is remembered and the rate is cut by the
//           next tick of the cut timer, with the aged alpha. One notification at 100 Gb/s leaves
//           50.777 Gb/s. No byte counter; one additive step, then hyper steps.
//   paper   SIGCOMM'15: cut at once with the old alpha, then raise alpha. One notification leaves
//           50.0 Gb/s. Increase on a timer and on a byte counter.
//   raise_first  ns3-rdma (e8a27d0): cut at once, but alpha is raised before the cut and starts at
//           0.5. One notification leaves 74.902 Gb/s.
// The other disagreements (length of fast recovery, additive phase, hyper step, target clamp, a
// leftover of QCN) are parameters of their own, so that every mixture can be run.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainyard {

enum class DcqcnOrder : uint8_t { vendor, paper, raise_first };

/// What follows fast recovery (protocols 5.3.3).
enum class DcqcnAdditive : uint8_t {
  automatic,    ///< one_step without a byte counter, by_counters with one
  one_step,     ///< exactly one additive step, then hyper steps
  by_counters,  ///< additive while one counter is past fast recovery, hyper when both are
};

struct DcqcnParams {
  DcqcnOrder order = DcqcnOrder::vendor;
  uint64_t g = uint64_t{1} << 54;  ///< Q62; 1/256
  int64_t alpha_timer_ps = 1'000'000;
  int64_t cut_timer_ps = 4'000'000;  ///< vendor: period of the cut timer
  int64_t cut_offset_ps = 1'000;     ///< vendor: the cut timer trails the alpha timer by this
  int64_t increase_timer_ps = 300'000'000;
  int64_t byte_counter = 0;  ///< bytes per byte-counter event; 0: none
  int fast_recovery_steps = 1;
  int64_t additive_bps = 0, hyper_bps = 0;
  /// Added to the steps above per 25 Gb/s of line rate.
  int64_t additive_per_25g_bps = 0, hyper_per_25g_bps = 0;
  bool hyper_scaled = false;  ///< i x hyper step (paper) instead of a constant one
  bool clamp_target = false;  ///< target = current rate at every cut
  int64_t min_bps = 100'000'000;
  uint64_t initial_alpha = uint64_t{1} << 62;  ///< Q62; raise_first: 1/2
  DcqcnAdditive additive_phase = DcqcnAdditive::automatic;
  /// An increase event is counted first and is fast recovery while the count is below F: F - 1
  /// returns to the target instead of F (protocols 5.3.2).
  bool fast_recovery_exclusive = false;
  /// The first increase event after a cut divides a target above 10 x rate by 8 (protocols 5.3.5).
  bool qcn_leftover = false;
};

/// The defaults of ns3-rdma's sample (protocols 5.2) with its own rules.
inline DcqcnParams dcqcn_raise_first() {
  DcqcnParams p;
  p.order = DcqcnOrder::raise_first;
  p.alpha_timer_ps = 55'000'000;
  p.increase_timer_ps = 60'000'000;
  p.byte_counter = 300'000'000;
  p.fast_recovery_steps = 5;
  p.fast_recovery_exclusive = true;
  p.additive_bps = 40'000'000;
  p.hyper_bps = 200'000'000;
  p.hyper_scaled = true;
  p.clamp_target = true;
  p.qcn_leftover = true;
  p.initial_alpha = uint64_t{1} << 61;
  return p;
}

/// Rate state of one queue pair. All methods take and keep absolute times in ps.
class Dcqcn {
 public:
  static constexpr uint64_t kOne = uint64_t{1} << 62;

  void init(const DcqcnParams& p, int64_t line_bps) {
    *this = Dcqcn();
    line_ = rate_ = target_ = line_bps;
    const auto scaled = [&](int64_t per_25g) {
      return static_cast<int64_t>(static_cast<__int128>(per_25g) * line_bps / 25'000'000'000);
    };
    additive_ = p.additive_bps + scaled(p.additive_per_25g_bps);
    hyper_ = p.hyper_bps + scaled(p.hyper_per_25g_bps);
  }

  [[nodiscard]] int64_t rate() const { return rate_; }
  [[nodiscard]] int64_t target() const { return target_; }
  [[nodiscard]] int64_t line() const { return line_; }
  [[nodiscard]] uint64_t alpha() const { return alpha_; }
  [[nodiscard]] bool active() const { return active_; }  ///< has ever been notified

  /// vendor: remembers the notification. @returns the time of the next cut tick to schedule, or
  /// -1 when one is already scheduled.
  int64_t vendor_notify(const DcqcnParams& p, int64_t now) {
    if (!active_) {
      active_ = true;
      alpha_ = p.initial_alpha;
      target_ = rate_;
      alpha_origin_ = now;
      alpha_ticks_ = 0;
      alpha_notified_ = false;  // the notification that starts the timers does not feed alpha
    } else {
      // Ticks strictly before now: a notification at the instant of a tick counts for that tick.
      age_alpha(p, (now - alpha_origin_ - 1) / p.alpha_timer_ps);
      alpha_notified_ = true;
    }
    if (cut_pending_) return -1;
    cut_pending_ = true;
    const int64_t first = alpha_origin_ + p.cut_timer_ps + p.cut_offset_ps;
    if (now < first) return first;
    return first + ((now - first) / p.cut_timer_ps + 1) * p.cut_timer_ps;
  }

  /// vendor: the scheduled cut tick.
  void vendor_cut(const DcqcnParams& p, int64_t now) {
    age_alpha(p, (now - alpha_origin_) / p.alpha_timer_ps);
    cut_pending_ = false;
    cut(p);
  }

  /// paper: cut at once, then raise alpha. raise_first: raise alpha, then cut at once.
  void paper_notify(const DcqcnParams& p, int64_t now) {
    if (!active_) {
      active_ = true;
      alpha_ = p.initial_alpha;
    } else {
      // No notification for a whole period decays alpha, once per period.
      for (int64_t n = (now - alpha_origin_) / p.alpha_timer_ps; n > 0 && alpha_ > 0; --n) {
        alpha_ = decayed(p, alpha_);
      }
    }
    alpha_origin_ = now;
    if (p.order == DcqcnOrder::raise_first) {
      alpha_ = decayed(p, alpha_) + p.g;
      cut(p);
    } else {
      cut(p);
      alpha_ = decayed(p, alpha_) + p.g;
    }
  }

  /// One event of the increase timer.
  void increase_by_timer(const DcqcnParams& p) {
    if (stage_ < 1'000'000) ++stage_;
    increase(p);
  }

  /// Counts sent bytes. @returns true when the byte counter fired and the rate may have changed.
  bool sent(const DcqcnParams& p, int64_t bytes) {
    if (p.byte_counter == 0 || !active_) return false;
    bytes_ += bytes;
    if (bytes_ < p.byte_counter) return false;
    bytes_ -= p.byte_counter;
    if (byte_stage_ < 1'000'000) ++byte_stage_;
    increase(p);
    return true;
  }

  /// True when further timer increases change nothing but the stage.
  [[nodiscard]] bool recovered() const {
    return rate_ >= line_ - 1 - (line_ & 1) && target_ >= line_;  // halves are rounded down
  }
  /// As if everything had happened `ps` later.
  void shift(int64_t ps) { alpha_origin_ += ps; }
  /// Passes all that decides what it will do from `now` on to `sink(uint64_t)`.
  template <class Sink>
  void digest(int64_t now, int64_t increase_next, const Sink& sink) const {
    sink(active_);
    if (!active_) return;
    for (const int64_t x : {rate_, target_, alpha_origin_ - now, alpha_ticks_, bytes_}) {
      sink(static_cast<uint64_t>(x));
    }
    sink(alpha_);
    sink(static_cast<uint64_t>(byte_stage_));
    sink(static_cast<uint64_t>(alpha_notified_) << 1 | static_cast<uint64_t>(cut_pending_));
    // Once recovered, the timer changes nothing but the stage, of which a cut asks whether it is
    // zero.
    sink(static_cast<uint64_t>(recovered() ? (stage_ != 0 ? 1 : 0) : stage_));
    if (!recovered()) sink(static_cast<uint64_t>(increase_next - now));
  }
  /// `n` timer periods passed unobserved (the queue pair was idle).
  void age_increase(const DcqcnParams& p, int64_t n) {
    for (; n > 0 && !recovered(); --n) increase_by_timer(p);
    stage_ = static_cast<int>(std::min<int64_t>(stage_ + n, 1'000'000));
  }

 private:
  static uint64_t decayed(const DcqcnParams& p, uint64_t alpha) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(alpha) * (kOne - p.g)) >> 62);
  }

  void age_alpha(const DcqcnParams& p, int64_t due) {
    while (alpha_ticks_ < due) {
      ++alpha_ticks_;
      alpha_ = decayed(p, alpha_);
      if (alpha_notified_) {
        alpha_ += p.g;
        alpha_notified_ = false;
      } else if (alpha_ == 0) {
        alpha_ticks_ = due;
      }
    }
  }

  void cut(const DcqcnParams& p) {
    const bool increased_since = stage_ != 0 || byte_stage_ != 0;
    if (p.clamp_target || increased_since) target_ = rate_;
    // rate * (1 - alpha / 2), rounded down to whole bits per second.
    const auto cut_rate = static_cast<int64_t>(
        (static_cast<unsigned __int128>(rate_) * ((kOne << 1) - alpha_)) >> 63);
    rate_ = std::max(p.min_bps, cut_rate);
    stage_ = byte_stage_ = 0;
    bytes_ = 0;
  }

  /// After an increase event: `stage_` and `byte_stage_` already count it.
  void increase(const DcqcnParams& p) {
    const int f = p.fast_recovery_steps - (p.fast_recovery_exclusive ? 1 : 0);
    const bool one_step = p.additive_phase == DcqcnAdditive::one_step ||
                          (p.additive_phase == DcqcnAdditive::automatic && p.byte_counter == 0);
    const int most = std::max(stage_, byte_stage_);
    const int least = one_step ? most - 1 : std::min(stage_, byte_stage_);
    if (p.qcn_leftover && (stage_ == 1 || byte_stage_ == 1) && target_ > 10 * rate_) {
      target_ /= 8;
    } else if (least > f) {
      target_ += hyper_ * (p.hyper_scaled ? least - f : 1);
    } else if (most > f) {
      target_ += additive_;
    }
    target_ = std::min(target_, line_);
    rate_ = std::min(line_, rate_ / 2 + target_ / 2);
  }

  int64_t line_ = 0, rate_ = 0, target_ = 0, additive_ = 0, hyper_ = 0;
  uint64_t alpha_ = kOne;
  int64_t alpha_origin_ = 0;
  int64_t alpha_ticks_ = 0;
  int64_t bytes_ = 0;
  int stage_ = 0, byte_stage_ = 0;
  bool active_ = false, alpha_notified_ = false, cut_pending_ = false;
};

}  // namespace trainyard
