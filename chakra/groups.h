// SPDX-License-Identifier: MIT
// Which process group a pg_name means on a rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chakra/trace.h"

namespace trainyard::chakra {

class GroupTable {
 public:
  static constexpr int kAllRanks = -1;
  static constexpr int kUnknown = -2;

  struct Match {
    int group = kUnknown;     ///< index into TraceSet::groups, kAllRanks or kUnknown
    bool float_form = false;  ///< found as "1" although written "1.0"
  };

  explicit GroupTable(const TraceSet& set) : groups_(set.groups) {
    for (size_t i = 0; i < groups_.size(); ++i) {
      by_name_[groups_[i].name].push_back(static_cast<int>(i));
    }
  }

  /// Group names of PyTorch are unique per rank only: of several groups of one name, the one that
  /// `rank` belongs to is meant.
  [[nodiscard]] Match find(const std::optional<std::string>& pg_name, uint32_t rank) const {
    const std::string name = pg_name.value_or("");
    if (const int group = lookup(name, rank); group != kUnknown) return {group, false};
    if (const auto plain = without_fraction(name)) {
      if (const int group = lookup(*plain, rank); group != kUnknown) return {group, true};
      if (*plain == "0") return {kAllRanks, true};
    }
    if (name.empty() || name == "0") return {kAllRanks, false};
    return {};
  }

  [[nodiscard]] bool contains(int group, uint32_t rank) const {
    if (group < 0) return group == kAllRanks;
    const std::vector<uint32_t>& ranks = groups_[static_cast<size_t>(group)].ranks;
    return ranks.empty() || std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }

 private:
  [[nodiscard]] int lookup(const std::string& name, uint32_t rank) const {
    const auto it = by_name_.find(name);
    if (it == by_name_.end()) return kUnknown;
    for (const int group : it->second) {
      if (contains(group, rank)) return group;
    }
    return it->second.front();
  }

  /// "1.0" is "1".
  static std::optional<std::string> without_fraction(std::string_view name) {
    const size_t dot = name.find('.');
    if (dot == std::string_view::npos || dot == 0 || dot + 1 == name.size()) return std::nullopt;
    if (name.substr(0, dot).find_first_not_of("0123456789") != std::string_view::npos ||
        name.substr(dot + 1).find_first_not_of('0') != std::string_view::npos) {
      return std::nullopt;
    }
    return std::string(name.substr(0, dot));
  }

  const std::vector<ProcessGroup>& groups_;
  std::map<std::string, std::vector<int>> by_name_;
};

}  // namespace trainyard::chakra
