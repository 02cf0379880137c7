// SPDX-License-Identifier: MIT
#include "tools/scenario/power_meter.h"

#include <algorithm>
#include <utility>

namespace trainyard {

double phase_watts(const DeviceCard& device, Phase phase) {
  switch (phase) {
    case Phase::compute:
      return device.compute_watts;
    case Phase::exposed_comm:
    case Phase::wait:
      return device.communication_watts;
    case Phase::host:
    case Phase::storage:
    case Phase::idle:
      break;
  }
  return device.idle_watts;
}

void PowerMeter::add(Phase phase, Time begin, Time end) {
  auto& rows = series_.rows;
  const auto last_of = [&] { return static_cast<size_t>((end.ps() - 1) / series_.window.ps()); };
  while (last_of() >= PowerSeries::kMostWindows) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const PowerSeries::Row row = std::exchange(rows[i], {});
      for (size_t p = 0; p < kPhases; ++p) rows[i / 2].phase_ps[p] += row.phase_ps[p];
    }
    rows.resize((rows.size() + 1) / 2);
    series_.window = series_.window * 2;
  }
  const int64_t window = series_.window.ps();
  const size_t last = last_of();
  if (rows.size() <= last) rows.resize(last + 1);
  for (auto i = static_cast<size_t>(begin.ps() / window); i <= last; ++i) {
    const int64_t start = static_cast<int64_t>(i) * window;
    rows[i].phase_ps[static_cast<size_t>(phase)] +=
        std::min(end.ps(), start + window) - std::max(begin.ps(), start);
  }
}

PowerSeries PowerMeter::take(const DeviceCard& device, Time end) {
  series_.end = end;
  for (size_t i = 0; i < series_.rows.size(); ++i) {
    PowerSeries::Row& row = series_.rows[i];
    const int64_t start = static_cast<int64_t>(i) * series_.window.ps();
    const int64_t length = std::min(series_.window.ps(), end.ps() - start);
    double joules = 0;  // x 1e12
    for (size_t p = 0; p < kPhases; ++p) {
      joules += static_cast<double>(row.phase_ps[p]) * phase_watts(device, static_cast<Phase>(p));
    }
    row.watts = length > 0 ? joules / static_cast<double>(length) : 0;
  }
  return std::move(series_);
}

}  // namespace trainyard
