// SPDX-License-Identifier: MIT
// Names and numbers of the collectives of schema 0.0.4 (attribute comm_type).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace trainyard::chakra {

enum class CommType : uint8_t {
  all_reduce = 0,
  reduce = 1,
  all_gather = 2,
  gather = 3,
  scatter = 4,
  broadcast = 5,
  all_to_all = 6,
  reduce_scatter = 7,
  reduce_scatter_block = 8,
  barrier = 9
};

inline constexpr std::array<const char*, 10> kCommTypeNames = {
    "all_reduce", "reduce",         "all_gather",           "gather", "scatter", "broadcast",
    "all_to_all", "reduce_scatter", "reduce_scatter_block", "barrier"};

/// "all_reduce", or nullptr for a number that is no collective.
inline const char* comm_type_name(int64_t type) {
  if (type < 0 || type >= static_cast<int64_t>(kCommTypeNames.size())) return nullptr;
  return kCommTypeNames[static_cast<size_t>(type)];
}

/// Number of "ALL_REDUCE" / "all_reduce".
inline std::optional<int64_t> parse_comm_type(std::string_view text) {
  for (size_t i = 0; i < kCommTypeNames.size(); ++i) {
    const std::string_view name = kCommTypeNames[i];
    if (name.size() != text.size()) continue;
    bool same = true;
    for (size_t c = 0; c < name.size() && same; ++c) {
      const char lower =
          text[c] >= 'A' && text[c] <= 'Z' ? static_cast<char>(text[c] - 'A' + 'a') : text[c];
      same = lower == name[c];
    }
    if (same) return static_cast<int64_t>(i);
  }
  return std::nullopt;
}

}  // namespace trainyard::chakra
