// SPDX-License-Identifier: MIT
// Natural logarithms without floating point: how long a queue goes without marking.
//
// A packet that finds marking probability p is left alone with probability 1 - p = exp(-h), so that
// h = -ln(1 - p) is what it adds to the hazard of its flow. A flow is marked when its hazard
// reaches -ln(u), u uniform in (0, 1].
#pragma once

#include <cstdint>

namespace trainyard {

/// -ln(x / 2^64) in Q32, for x > 0; exact to about 2^-31. x = 0 counts as the smallest.
constexpr int64_t minus_ln_q32(uint64_t x) {
  if (x == 0) x = 1;
  const int zeros = __builtin_clzll(x);
  // x = 2^(63 - zeros) * m, 1 <= m < 2; log2(m) bit by bit, by squaring.
  uint64_t m = x << zeros;  // m in Q63
  uint64_t fraction = 0;    // log2(m) in Q32
  for (int i = 0; i < 32; ++i) {
    const auto square =
        static_cast<uint64_t>(static_cast<unsigned __int128>(m) * m >> 64);  // Q62, 1 <= . < 4
    fraction <<= 1;
    if (square >> 63 != 0) {
      fraction |= 1;
      m = square;
    } else {
      m = square << 1;
    }
  }
  const uint64_t log2_q32 = (static_cast<uint64_t>(zeros + 1) << 32) - fraction;
  constexpr uint64_t kLn2Q32 = 2977044472U;  // ln 2 x 2^32
  return static_cast<int64_t>(static_cast<unsigned __int128>(log2_q32) * kLn2Q32 >> 32);
}

/// Hazard of one packet that is marked with probability p_q32 / 2^32, in Q32; a certain mark
/// counts as 40 (what is left of it is exp(-40)).
constexpr int64_t hazard_q32(uint64_t p_q32) {
  constexpr int64_t kMost = int64_t{40} << 32;
  if (p_q32 >> 32 != 0) return kMost;
  const uint64_t left = ((uint64_t{1} << 32) - p_q32) << 31;  // (1 - p) in Q63
  const int64_t h = minus_ln_q32(left) - 2977044472;          // of Q64: ln 2 too much
  return h < 0 ? 0 : h < kMost ? h : kMost;
}

}  // namespace trainyard
