// SPDX-License-Identifier: MIT
// How compute times scatter from op to op.
#include <algorithm>
#include <cmath>

#include "sim/compute_model.h"
#include "sim/registry.h"
#include "workload/generator/moe_routing.h"
#include "workload/normal_quantile.h"

namespace trainyard {
namespace {

constexpr double kOne = 4294967296.0;
constexpr double kLog2E = 1.4426950408889634;

int64_t times_q32(int64_t a, int64_t b) {
  return static_cast<int64_t>((static_cast<__int128>(a) * b) >> 32);
}

/// exp(sigma z - sigma^2 / 2)
class Lognormal final : public Jitter {
 public:
  explicit Lognormal(double sigma)
      : sigma_q32_(std::llround(sigma * kLog2E * kOne)),
        shift_q32_(std::llround(sigma * sigma * 0.5 * kLog2E * kOne)) {}
  [[nodiscard]] uint64_t factor_q32(uint64_t draw) const override {
    return exp2_q32(times_q32(normal_q32(draw), sigma_q32_) - shift_q32_);
  }

 private:
  int64_t sigma_q32_, shift_q32_;  // of log2
};

/// 1 + sigma z, not below a tenth
class Normal final : public Jitter {
 public:
  explicit Normal(double sigma) : sigma_q32_(std::llround(sigma * kOne)) {}
  [[nodiscard]] uint64_t factor_q32(uint64_t draw) const override {
    constexpr int64_t kWhole = int64_t{1} << 32;
    return static_cast<uint64_t>(
        std::max(kWhole / 10, kWhole + times_q32(normal_q32(draw), sigma_q32_)));
  }

 private:
  int64_t sigma_q32_;
};

std::vector<ParamSpec> sigma_of(const char* help, const char* max) {
  return {{"sigma",
           ParamType::real,
           "1%",
           "0",
           max,
           {},
           help,
           "DESIGN 9.1; C:F7.73: step times vary by 1 % after, 20 % before slow nodes are weeded "
           "out"}};
}

const RegisterModel<JitterFactory> kNone{
    {"jitter", "none", "Every op takes its nominal time.", "DESIGN 9.1", {}},
    [](const Params&) { return std::unique_ptr<Jitter>(); }};

const RegisterModel<JitterFactory> kLognormal{
    {"jitter", "lognormal",
     "The time of every op on every rank is multiplied by exp(sigma z - sigma^2/2), z standard "
     "normal: skewed to the right, mean 1.",
     "DESIGN 9.1", sigma_of("standard deviation of the logarithm", "1")},
    [](const Params& p) { return std::make_unique<Lognormal>(p.real("sigma")); }};

const RegisterModel<JitterFactory> kNormal{
    {"jitter", "normal",
     "The time of every op on every rank is multiplied by 1 + sigma z, z standard normal, but by "
     "no less than a tenth.",
     "DESIGN 9.1", sigma_of("standard deviation, as a share of the time", "25%")},
    [](const Params& p) { return std::make_unique<Normal>(p.real("sigma")); }};

}  // namespace
}  // namespace trainyard
