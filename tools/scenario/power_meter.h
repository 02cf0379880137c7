// SPDX-License-Identifier: MIT
#pragma once

#include "sim/compute_model.h"
#include "sim/records.h"
#include "tools/report/result.h"

namespace trainyard {

/// Watts of a board in a phase; 0 where its card does not say. Waiting for a peer is communication:
/// its kernels spin.
double phase_watts(const DeviceCard& device, Phase phase);

/// Adds up what ranks do in windows of time.
class PowerMeter {
 public:
  /// Windows double when there would be more than PowerSeries::kMostWindows.
  explicit PowerMeter(Time window) { series_.window = series_.asked = window; }
  [[nodiscard]] bool on() const { return series_.window > Time(); }
  void add(Phase phase, Time begin, Time end);
  /// The series up to `end`, with watts.
  [[nodiscard]] PowerSeries take(const DeviceCard& device, Time end);

 private:
  PowerSeries series_;
};

}  // namespace trainyard
