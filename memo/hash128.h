// SPDX-License-Identifier: MIT
// A running 128-bit hash of what happened to a domain. Two histories that differ collide with
// probability 2^-128 per pair: far below that of a memory error.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trainyard {

struct Hash128 {
  uint64_t a = 0x243f6a8885a308d3ULL, b = 0x13198a2e03707344ULL;

  void add(uint64_t x) {
    a = mix(a ^ x, 0x9e3779b97f4a7c15ULL);
    b = mix(b + x, 0xc2b2ae3d27d4eb4fULL);
  }
  void add(const Hash128& h) {
    add(h.a);
    add(h.b);
  }
  void add_signed(int64_t x) { add(static_cast<uint64_t>(x)); }
  bool operator==(const Hash128&) const = default;

 private:
  static uint64_t mix(uint64_t x, uint64_t k) {
    // Both halves of a full product, so that every bit of x reaches every bit of the result.
    const auto p = static_cast<unsigned __int128>(x ^ k) * (k | 1);
    x = static_cast<uint64_t>(p) ^ static_cast<uint64_t>(p >> 64);
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ULL;
    return x ^ (x >> 32);
  }
};

struct Hash128Hash {
  size_t operator()(const Hash128& h) const { return static_cast<size_t>(h.a); }
};

}  // namespace trainyard
