// SPDX-License-Identifier: MIT
// Time of a kernel from constants fitted to measured training steps: DeviceFit of a card, times
// factors of the software. docs/compute.md has the formulas.
#pragma once

#include "sim/compute_model.h"

namespace trainyard {

/// Seconds of a kernel. Sums, products, quotients and maxima of doubles alone, hence the same on
/// every machine. Throws UserError where the device has no such precision, or no fit for it.
double fitted_seconds(const Kernel& kernel, const DeviceCard& card,
                      const SoftwareFactors& software);
/// The same, rounded to picoseconds.
Time fitted_time(const Kernel& kernel, const DeviceCard& card, const SoftwareFactors& software);

/// Time of kernels that are one op, whose `seconds` are their sum: not less than the host takes to
/// launch them.
double fitted_op_seconds(double seconds, const Kernel* first, size_t count,
                         const SoftwareFactors& software);

/// How much longer compute takes where the slowest of `gpus` sets the pace: 1 + straggle per
/// doubling beyond 8 GPUs, linear in between.
double straggle_factor(double straggle, int64_t gpus);

}  // namespace trainyard
