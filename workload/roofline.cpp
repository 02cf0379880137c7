// SPDX-License-Identifier: MIT
#include "workload/roofline.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/errors.h"

namespace trainyard {
namespace {

enum Roof : size_t { kTensor, kVector, kSpecial, kMemory, kRoofs };

/// Seconds under each roof.
std::array<double, kRoofs> roofs(const Kernel& k, const DeviceCard& card,
                                 const RooflineShares& shares) {
  std::array<double, kRoofs> s{};
  const bool elementwise = k.kind == Kernel::Kind::elementwise;
  const double share = k.kind == Kernel::Kind::attention ? shares.attention : shares.gemm;
  const auto flops = static_cast<double>(k.flops);
  if (k.flops > 0 && !elementwise) {
    const double peak = card.peak_tflops(k.precision);
    if (peak <= 0) {
      throw UserError("device " + card.name + " has no " +
                          (k.precision == Kernel::Precision::tf32  ? "tf32"
                           : k.precision == Kernel::Precision::fp4 ? "fp4"
                                                                   : "fp8") +
                          " rate on its card",
                      "use bf16, or another device");
    }
    s[kTensor] = flops / (peak * 1e12 * share);
  } else if (k.flops > 0 && card.vector_tflops > 0) {
    s[kVector] = flops / (card.vector_tflops * 1e12 * shares.elementwise);
  }
  if (k.special > 0 && card.special_tops > 0) {
    s[kSpecial] = static_cast<double>(k.special) /
                  (card.special_tops * 1e12 * (elementwise ? shares.elementwise : share));
  }
  // The product with 1 keeps every bit of a rate.
  s[kMemory] = static_cast<double>(k.bytes) /
               (card.hbm_gbytes_per_s * 1e9 * (elementwise ? shares.elementwise : shares.memory));
  return s;
}

}  // namespace

Time roofline_time(const Kernel& kernel, const DeviceCard& card, const RooflineShares& shares) {
  const auto s = roofs(kernel, card, shares);
  return Time::ps(std::llround(*std::max_element(s.begin(), s.end()) * 1e12)) + shares.launch;
}

std::string roofline_bound(const Kernel& kernel, const DeviceCard& card,
                           const RooflineShares& shares) {
  static const std::array<const char*, kRoofs> names{"tensor", "vector", "special", "memory"};
  const auto s = roofs(kernel, card, shares);
  return names[static_cast<size_t>(std::max_element(s.begin(), s.end()) - s.begin())];
}

Kernel whole_op(const Op& op, Kernel::Precision precision) {
  Kernel k;
  k.kind = op.flops > 0 ? Kernel::Kind::gemm : Kernel::Kind::elementwise;
  k.flops = op.flops;
  k.bytes = op.bytes;
  k.precision = precision;
  return k;
}

}  // namespace trainyard
