// SPDX-License-Identifier: MIT
// Time of a kernel by the roofs of its device: tensor cores, vector units, special-function units
// and device memory (A: 1.4 #60). The slowest of them sets the time.
#pragma once

#include <string>

#include "sim/compute_model.h"

namespace trainyard {

/// Shares of the peaks that kernels reach, 0 to 1.
struct RooflineShares {
  double gemm = 1;         ///< of the tensor peak, matrix products
  double attention = 1;    ///< of the tensor and special-function peaks, attention
  double memory = 1;       ///< of the memory rate, matrix products and attention
  double elementwise = 1;  ///< of the memory and vector rates, everything else
  Time launch;             ///< added to every kernel
};

/// Division and rounding are IEEE operations without fused multiply-add, hence the same on every
/// machine. Throws UserError when the device has no such precision.
Time roofline_time(const Kernel& kernel, const DeviceCard& card, const RooflineShares& shares);

/// Which roof is the lowest: "tensor", "vector", "special", "memory".
std::string roofline_bound(const Kernel& kernel, const DeviceCard& card,
                           const RooflineShares& shares);

/// The kernel that an op without kernels stands for.
Kernel whole_op(const Op& op, Kernel::Precision precision);

}  // namespace trainyard
