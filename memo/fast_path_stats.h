// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace trainyard {

/// What the fast path did. Bytes are payload; a domain counts when it ends.
struct FastPathStats {
  uint64_t domains = 0, followed = 0;
  uint64_t episodes = 0;  ///< distinct ones simulated to their end
  int64_t bytes_simulated = 0, bytes_jumped = 0, bytes_followed = 0;
  uint64_t transmissions_simulated = 0, transmissions_jumped = 0, transmissions_followed = 0;
  uint64_t jumps = 0;  ///< over whole periods
  // Stretches of calls that were followed as a whole: of `followed` and bytes_followed.
  uint64_t stretches = 0, stretch_calls = 0;
  int64_t bytes_stretches = 0;
  // Stepping (fast only).
  bool stepping = false;  ///< it was allowed
  uint64_t stepped = 0;   ///< domains
  int64_t bytes_stepped = 0;
  uint64_t transmissions_stepped = 0;  ///< that the stepped messages would have taken
  uint64_t events_stepped = 0;
  int64_t bytes_followed_stepped = 0;  ///< of bytes_followed: episodes that were stepped
  uint64_t trials = 0;                 ///< domains begun as packets and then stepped
  uint64_t stepping_stopped = 0;       ///< domains that left what can be stepped: packets after all
  uint64_t pauses_not_followed = 0;    ///< while stepping, see FastPathOptions::ignored_pauses_ppm
  // Audit: stepped domains simulated again packet by packet, told the same at the same times.
  uint64_t audited = 0, audit_events = 0;
  int64_t bytes_audited = 0;
  uint64_t audit_n = 0;  ///< completion times compared
  /// Of completion times since their start, fast against packets; positive: too slow.
  [[nodiscard]] double audit_mean_pct() const { return audit_n == 0 ? 0 : audit_sum_pct / n(); }
  [[nodiscard]] double audit_mean_abs_pct() const {
    return audit_n == 0 ? 0 : audit_sum_abs_pct / n();
  }
  /// Upper end of the 95 % interval of the mean's size, as if the errors were independent.
  [[nodiscard]] double audit_bound_pct() const {
    if (audit_n < 2) return audit_max_pct;
    const double mean = audit_mean_pct();
    const double variance = (audit_sum_squares - n() * mean * mean) / (n() - 1);
    return std::abs(mean) + 1.96 * std::sqrt(std::max(0.0, variance) / n());
  }
  [[nodiscard]] double n() const { return static_cast<double>(audit_n); }
  double audit_sum_pct = 0, audit_sum_abs_pct = 0, audit_sum_squares = 0, audit_max_pct = 0;
  uint64_t events = 0;          ///< executed, those simulated again included
  uint64_t events_beside = 0;   ///< of them: while other domains could go on at the same time
  uint64_t events_again = 0;    ///< executed a second time, for followers and merges
  uint64_t materialised = 0;    ///< followers that had to be simulated after all
  uint64_t merges = 0;          ///< of domains that a new message joined
  uint64_t joined = 0;          ///< of them, those that went on from where they were
  uint64_t disturbances = 0;    ///< times that something broke: one domain then holds everything
  int64_t bytes_disturbed = 0;  ///< of bytes_simulated, in those
  uint64_t pool_merges = 0;     ///< of domains that shared a buffer too closely
  uint64_t dice_domains = 0;    ///< domains in which dice decided something
  uint64_t largest_domain = 0;  ///< links
  uint64_t evicted = 0;
  size_t memo_bytes = 0;
};

}  // namespace trainyard
