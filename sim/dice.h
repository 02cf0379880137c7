// SPDX-License-Identifier: MIT
// Counter-based dice: a draw is a pure function of what it is for, so that it depends neither on
// the order of other draws nor on threads, partitions or skipped time.
#pragma once

#include <cstdint>

namespace trainyard {

/// Bijective avalanche of 64 bits: multiply-xorshift, shifts and constants of D. Stafford's
/// "Mix13" (also the finaliser of SplitMix64). Fixed for ever: results depend on it.
constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// 64 random bits. Each argument gets a full mix of its own, so that neighbouring objects or
/// counters give unrelated draws.
/// @param seed    of the scenario
/// @param purpose what is drawn (marking, jitter, ...); one constant per purpose
/// @param object  who draws (flow, port, rank, ...)
/// @param counter how many times it has drawn before
constexpr uint64_t dice(uint64_t seed, uint32_t purpose, uint64_t object, uint64_t counter) {
  // Odd increments (digits of the golden ratio, sqrt 2, e, pi) keep all-zero arguments from
  // mapping to zero, mix64's fixed point, and tell the arguments apart.
  uint64_t h = mix64(seed + 0x9e3779b97f4a7c15U);
  h = mix64(h ^ (purpose + 0x6a09e667f3bcc909U));
  h = mix64(h ^ mix64(object + 0xb7e151628aed2a6bU));
  return mix64(h ^ mix64(counter + 0x243f6a8885a308d3U));
}

/// True with probability threshold_q32 / 2^32. Integers only: 0 is never, 2^32 is always.
constexpr bool dice_below(uint64_t draw, uint64_t threshold_q32) {
  return (draw >> 32) < threshold_q32;
}

}  // namespace trainyard
