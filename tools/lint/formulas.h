// SPDX-License-Identifier: MIT
// The arithmetic of lossless fabrics (protocols 5.4, 5.5): bytes, without rounding surprises.
#pragma once

#include <cstdint>

#include "sim/units.h"

namespace trainyard::lint {

/// Time from a decision to pause to the last byte that the sender lets go, as the vendors' rules
/// and `headroom: auto` assume it (protocols 5.5, third column of the table).
inline constexpr int64_t kResponsePs = 500'000;

/// Bytes that arrive after a pause was decided: the cable both ways, the response, one frame that
/// the switch and one that the sender had begun, and the pause frame itself.
int64_t headroom_need(Rate rate, Time delay, int64_t frame, int64_t pause_frame, Time response);
/// HPCC's and SimAI's rule: 3 x rate x delay, without frames and response.
int64_t headroom_hpcc(Rate rate, Time delay);
/// Linux mlx5: (301 + 2.16 x metres) x Gb/s + 2.72 x MTU, in integers as the driver does it; 5 ns
/// per metre.
int64_t headroom_mlx5(Rate rate, Time delay, int64_t frame);
/// B:F14: bandwidth x round trip + MTU.
int64_t headroom_textbook(Rate rate, Time delay, int64_t frame);
/// Shortest delay at which 3 x rate x delay covers headroom_need.
Time headroom_hpcc_break_even(Rate rate, int64_t frame, int64_t pause_frame, Time response);

/// Largest static threshold per port and class that cannot overrun the buffer: SIGCOMM'15,
/// (B - C n t) / (C n) with n ports, C classes and t bytes of headroom each.
double static_xoff_bound(double buffer, double headroom, int classes, int ports);
/// Marks come before pauses in the worst case (every egress queue of every class at the marking
/// threshold, all of one class from one ingress port) while the threshold is below
/// (a P + r (1 + a)) / (n (1 + a C)): pool P, `share` a of the free pool per port and class,
/// reserve r. With a = beta / 8, C = 8 and r = 0 it is the paper's beta (B - 8 n t) /
/// (8 n (beta + 1)).
double ecn_bound(double pool, double share, double reserve, int classes, int ports);
/// Bytes of an ingress port at which it pauses when `active` ports use the pool alike.
double pause_point(double pool, double share, double reserve, int active);

}  // namespace trainyard::lint
