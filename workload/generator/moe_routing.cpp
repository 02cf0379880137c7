// SPDX-License-Identifier: MIT
#include "workload/generator/moe_routing.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/dice.h"
#include "sim/errors.h"

namespace trainyard {
namespace {

using u128 = unsigned __int128;

constexpr uint32_t kLoadDice = 210;
constexpr uint32_t kSourceDice = 211;
constexpr double kLog2E = 1.4426950408889634;
constexpr size_t kMostCached = 64;

/// Largest r with r * r <= x.
uint64_t root(u128 x) {
  uint64_t r = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const uint64_t candidate = r | (uint64_t{1} << bit);
    if (static_cast<u128>(candidate) * candidate <= x) r = candidate;
  }
  return r;
}

int64_t times_q32(int64_t a, int64_t b) {
  return static_cast<int64_t>((static_cast<__int128>(a) * b) >> 32);
}

}  // namespace

int64_t normal_q32(uint64_t seed, uint32_t purpose, uint64_t object, uint64_t counter) {
  int64_t sum = 0;
  for (uint64_t i = 0; i < 6; ++i) {
    const uint64_t d = dice(seed, purpose, object, counter * 6 + i);
    sum += static_cast<int64_t>(d >> 32) + static_cast<int64_t>(d & 0xffffffffU);
  }
  return sum - (int64_t{6} << 32);
}

uint64_t exp2_q32(int64_t x_q32) {
  // 2^(2^-i) in 1/2^62, by repeated square roots.
  static const std::array<uint64_t, 33> powers = [] {
    std::array<uint64_t, 33> p{};
    p[0] = uint64_t{2} << 62;
    for (size_t i = 1; i < p.size(); ++i) p[i] = root(static_cast<u128>(p[i - 1]) << 62);
    return p;
  }();
  const int64_t whole = x_q32 >> 32;  // towards minus infinity
  const auto fraction = static_cast<uint32_t>(x_q32 & 0xffffffff);
  uint64_t value = uint64_t{1} << 62;
  for (unsigned i = 1; i <= 32; ++i) {
    if ((fraction >> (32 - i) & 1U) == 0) continue;
    value = static_cast<uint64_t>((static_cast<u128>(value) * powers[i]) >> 62);
  }
  const int64_t shift = 30 - whole;  // from 1/2^62 to 1/2^32
  if (shift >= 64) return 0;
  return shift >= 0 ? value >> shift : value << std::min<int64_t>(-shift, 1);
}

MoeRouting::MoeRouting(const MoeRoutingConfig& config)
    : config_(config),
      // IEEE multiplication and rounding: the same on every machine.
      sigma_q32_(std::llround(config.sigma * kLog2E * 4294967296.0)),
      source_sigma_q32_(std::llround(config.source_sigma * kLog2E * 4294967296.0)) {
  TRAINYARD_ASSERT(config.experts > 0 && config.topk > 0 && config.layers > 0);
}

uint32_t MoeRouting::exchange(uint32_t step, uint32_t microbatch, uint32_t layer,
                              bool combine) const {
  const uint64_t n = (uint64_t{step} * config_.microbatches + microbatch) * config_.layers + layer;
  if (n >= (uint64_t{1} << 30)) {
    throw UserError("more than 2^30 exchanges between experts", "simulate fewer steps");
  }
  return static_cast<uint32_t>(1 + 2 * n + (combine ? 1 : 0));
}

std::vector<int64_t> MoeRouting::tokens(uint32_t group, uint32_t members, uint32_t exchange) const {
  const uint64_t call = (exchange - 1) / 2;
  const uint64_t layer = call % config_.layers;
  const uint64_t step = call / config_.layers / config_.microbatches;
  const uint32_t experts = config_.experts;
  std::vector<int64_t> popular(experts);  // log2 of the load, in 1/2^32
  for (uint32_t e = 0; e < experts; ++e) {
    const uint64_t object = step * config_.layers + layer;
    popular[e] = times_q32(normal_q32(config_.seed, kLoadDice, object, e), sigma_q32_);
  }
  const int64_t copies = config_.tokens * config_.topk;
  int64_t limit = copies;
  if (config_.capacity > 0) {
    limit = std::max<int64_t>(
        1, static_cast<int64_t>(config_.capacity * static_cast<double>(copies) / experts));
  }
  std::vector<int64_t> out(static_cast<size_t>(members) * experts);
  std::vector<uint64_t> weight(experts);
  for (uint32_t m = 0; m < members; ++m) {
    u128 sum = 0;
    for (uint32_t e = 0; e < experts; ++e) {
      int64_t x = popular[e];
      if (source_sigma_q32_ != 0) {
        const uint64_t object = (uint64_t{group} << 32 | m) ^ mix64(call);
        x += times_q32(normal_q32(config_.seed, kSourceDice, object, e), source_sigma_q32_);
      }
      weight[e] = std::max<uint64_t>(
          1, exp2_q32(std::clamp<int64_t>(x, -(int64_t{30} << 32), int64_t{20} << 32)));
      sum += weight[e];
    }
    // A token visits an expert once.
    u128 upto = 0;
    int64_t given = 0;
    for (uint32_t e = 0; e < experts; ++e) {
      upto += weight[e];
      const auto edge = static_cast<int64_t>(upto * static_cast<u128>(copies) / sum);
      int64_t& n = out[static_cast<size_t>(m) * experts + e];
      n = std::min({edge - given, config_.tokens, limit});
      given = edge;
    }
  }
  return out;
}

const MoeRouting::Cached& MoeRouting::cached(uint32_t group, uint32_t members,
                                             uint32_t exchange) const {
  // Senders that draw nothing of their own are alike in all groups and micro-batches.
  const bool shared = source_sigma_q32_ == 0;
  const uint64_t call = (exchange - 1) / 2;
  const uint64_t layer = call % config_.layers;
  const uint64_t step = call / config_.layers / config_.microbatches;
  const std::pair<uint64_t, uint64_t> key{
      shared ? members : (uint64_t{group} << 32 | members),
      2 * (shared ? step * config_.layers + layer : call) + (exchange - 1) % 2};
  const auto it = cache_.find(key);
  if (it != cache_.end()) return it->second;
  if (cache_.size() >= kMostCached) cache_.clear();
  const bool combine = (exchange - 1) % 2 == 1;
  const auto to_expert = tokens(group, members, exchange);
  const uint32_t here = config_.experts / members;  // experts per member
  auto sizes = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(members) * members);
  std::vector<int64_t> received(members);
  for (uint32_t from = 0; from < members; ++from) {
    for (uint32_t e = 0; e < config_.experts; ++e) {
      const int64_t n = to_expert[static_cast<size_t>(from) * config_.experts + e];
      const uint32_t to = e / here;
      received[to] += n;
      if (combine) {
        (*sizes)[static_cast<size_t>(to) * members + from] += n * config_.combine_bytes;
      } else {
        (*sizes)[static_cast<size_t>(from) * members + to] += n * config_.token_bytes;
      }
    }
  }
  // Counts travel, too: nobody waits for a member that says nothing.
  for (uint32_t from = 0; from < members; ++from) {
    for (uint32_t to = 0; to < members; ++to) {
      int64_t& bytes = (*sizes)[static_cast<size_t>(from) * members + to];
      if (from != to) bytes = std::max<int64_t>(1, bytes);
    }
  }
  Cached c;
  c.sizes = std::move(sizes);
  const int64_t even = config_.tokens * config_.topk;
  for (const int64_t n : received) {
    c.load_q32.push_back(static_cast<uint64_t>((static_cast<u128>(n) << 32) / even));
  }
  return cache_.emplace(key, std::move(c)).first->second;
}

std::shared_ptr<const std::vector<int64_t>> MoeRouting::sizes(uint32_t group, uint32_t members,
                                                              uint32_t exchange) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return cached(group, members, exchange).sizes;
}

uint64_t MoeRouting::load_q32(uint32_t group, uint32_t members, uint32_t exchange,
                              uint32_t member) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return cached(group, members, exchange).load_q32[member];
}

}  // namespace trainyard
