// SPDX-License-Identifier: MIT
#include "sim/dice.h"

#include <bit>
#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace trainyard {
namespace {

// Usable where a constant is needed, and the same everywhere.
static_assert(dice(1, 2, 3, 4) == dice(1, 2, 3, 4));
static_assert(dice(0, 0, 0, 0) != 0);
static_assert(mix64(0) == 0);

TEST(Dice, EveryArgumentCounts) {
  const std::set<uint64_t> draws{dice(1, 1, 1, 1), dice(2, 1, 1, 1), dice(1, 2, 1, 1),
                                 dice(1, 1, 2, 1), dice(1, 1, 1, 2), dice(2, 1, 1, 2),
                                 dice(1, 2, 2, 1), dice(2, 2, 1, 1), dice(1, 1, 2, 2)};
  EXPECT_EQ(draws.size(), 9U);
}

TEST(Dice, NoCollisionsOnAGrid) {
  // 2^64 values and 2^18 draws: a collision has a probability of 2^-29.
  std::set<uint64_t> draws;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (uint32_t purpose = 0; purpose < 4; ++purpose) {
      for (uint64_t object = 0; object < 128; ++object) {
        for (uint64_t counter = 0; counter < 128; ++counter) {
          draws.insert(dice(seed, purpose, object, counter));
        }
      }
    }
  }
  EXPECT_EQ(draws.size(), 4U * 4U * 128U * 128U);
}

// Flipping any input bit flips each output bit half of the time.
TEST(Dice, Avalanche) {
  constexpr int kDraws = 2000;
  for (int argument = 0; argument < 4; ++argument) {
    for (int bit = 0; bit < (argument == 1 ? 32 : 64); ++bit) {
      std::vector<int> flipped(64, 0);
      for (uint64_t i = 0; i < kDraws; ++i) {
        uint64_t in[4] = {7, 3, i, i * 31};
        const uint64_t before = dice(in[0], static_cast<uint32_t>(in[1]), in[2], in[3]);
        in[argument] ^= uint64_t{1} << bit;
        const uint64_t after = dice(in[0], static_cast<uint32_t>(in[1]), in[2], in[3]);
        for (size_t out = 0; out < 64; ++out) {
          flipped[out] += static_cast<int>((before ^ after) >> out & 1);
        }
      }
      for (int count : flipped) {
        // Six standard deviations of a fair coin.
        EXPECT_NEAR(count, kDraws / 2, 6 * std::sqrt(kDraws / 4.0)) << argument << " " << bit;
      }
    }
  }
}

TEST(Dice, UniformOverBuckets) {
  constexpr int kBuckets = 256;
  constexpr int kDraws = 256'000;
  for (const bool by_object : {false, true}) {
    std::vector<int> count(kBuckets, 0);
    for (uint64_t i = 0; i < kDraws; ++i) {
      const uint64_t draw = by_object ? dice(1, 1, i, 0) : dice(1, 1, 0, i);
      ++count[draw >> 56];
    }
    double chi2 = 0;
    for (int c : count) chi2 += (c - 1000.0) * (c - 1000.0) / 1000.0;
    // 255 degrees of freedom: mean 255, standard deviation 22.6.
    EXPECT_GT(chi2, 255 - 5 * 22.6);
    EXPECT_LT(chi2, 255 + 5 * 22.6);
  }
}

TEST(Dice, BelowIsExactAtTheEnds) {
  EXPECT_FALSE(dice_below(0, 0));
  EXPECT_FALSE(dice_below(~uint64_t{0}, 0));
  EXPECT_TRUE(dice_below(0, uint64_t{1} << 32));
  EXPECT_TRUE(dice_below(~uint64_t{0}, uint64_t{1} << 32));
  EXPECT_FALSE(dice_below(~uint64_t{0}, (uint64_t{1} << 32) - 1));
  EXPECT_TRUE(dice_below(0xffffffff, 1));
  EXPECT_FALSE(dice_below(uint64_t{1} << 32, 1));
}

TEST(Dice, BelowHitsItsProbability) {
  const uint64_t one_percent = (uint64_t{1} << 32) / 100;
  int hits = 0;
  for (uint64_t i = 0; i < 1'000'000; ++i) hits += dice_below(dice(9, 4, 0, i), one_percent);
  EXPECT_NEAR(hits, 10'000, 5 * std::sqrt(9'900.0));
}

}  // namespace
}  // namespace trainyard
