// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

namespace trainyard {

/// What a persistent queue pair belongs to. `part`: of a connection with several, with the traffic
/// class above its lowest byte.
struct QpKey {
  uint32_t src = 0, dst = 0;  ///< ranks
  uint32_t channel = 0, part = 0;
  bool operator==(const QpKey&) const = default;
};

struct QpKeyHash {
  size_t operator()(const QpKey& k) const {
    return ((static_cast<size_t>(k.src) << 32 ^ k.dst) * 0x9e3779b97f4a7c15ULL + k.channel) *
               0x9e3779b97f4a7c15ULL +
           k.part;
  }
};

}  // namespace trainyard
