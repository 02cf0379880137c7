// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace trainyard {

/// Sizes of all-to-all(v) exchanges whose members send unequal shares, computed when asked for: a
/// job has one per layer, micro-batch and step.
class Exchanges {
 public:
  virtual ~Exchanges() = default;
  /// Bytes from member to member of a group of `members`, row-major by sender; the diagonal stays
  /// where it is. The same for all members, whatever the order of calls.
  [[nodiscard]] virtual std::shared_ptr<const std::vector<int64_t>> sizes(
      uint32_t group, uint32_t members, uint32_t exchange) const = 0;
  /// Work that `member` has with what it received, relative to an even exchange, in 1/2^32.
  [[nodiscard]] virtual uint64_t load_q32(uint32_t group, uint32_t members, uint32_t exchange,
                                          uint32_t member) const = 0;
};

}  // namespace trainyard
