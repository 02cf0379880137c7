// SPDX-License-Identifier: MIT
// GPUs that slow down, stop and come back. Speeds are constant between the ends of intervals, so
// the end of an op is found by walking over them; whole picoseconds, and integers of 32 fraction
// bits for the factors.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sim/fault_source.h"

namespace trainyard {

class GpuFaults final : public FaultSource {
 public:
  /// Work takes `factor` times as long in [from, until). Factors of overlapping intervals multiply.
  void slow(uint32_t rank, Time from, Time until, double factor);
  /// Nothing runs in [from, until).
  void stop(uint32_t rank, Time from, Time until);

  [[nodiscard]] bool empty() const { return ranks_.empty(); }
  [[nodiscard]] Time end_of_compute(uint32_t rank, Time begin, Time work) const override;
  [[nodiscard]] Time runs_from(uint32_t rank, Time at) const override;

 private:
  static constexpr uint64_t kOne = uint64_t{1} << 32;
  struct Interval {
    Time from, until;
    uint64_t factor_q32 = kOne;  // 0: stopped
  };
  /// Factor at `at` (0: stopped) and the next instant at which it may be another.
  [[nodiscard]] uint64_t factor_at(uint32_t rank, Time at, Time& until) const;

  std::map<uint32_t, std::vector<Interval>> ranks_;
};

}  // namespace trainyard
