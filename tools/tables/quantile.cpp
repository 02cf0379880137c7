// SPDX-License-Identifier: MIT
#include "tools/tables/quantile.h"

#include <algorithm>
#include <cstddef>

namespace trainyard {

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto i = static_cast<size_t>(at);
  const double part = at - static_cast<double>(i);
  return i + 1 < values.size() ? values[i] * (1 - part) + values[i + 1] * part : values[i];
}

}  // namespace trainyard
