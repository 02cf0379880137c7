// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

namespace trainyard {

/// Quantile `q` (0 to 1) of `values`, between two of them where it falls between; 0 of none.
double quantile(std::vector<double> values, double q);

}  // namespace trainyard
