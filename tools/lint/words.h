// SPDX-License-Identifier: MIT
// Numbers as findings print them.
#pragma once

#include <cmath>
#include <string>

#include "sim/units.h"

namespace trainyard::lint {

inline std::string size(int64_t bytes) {
  return bytes < 0 ? "-" + print_bytes(Bytes(-bytes), 4) : print_bytes(Bytes(bytes), 4);
}
inline std::string size(double bytes) {
  return size(static_cast<int64_t>(std::llround(bytes)));
}
inline std::string span(int64_t ps) {
  return print_time(Time::ps(ps), 4);
}
inline std::string speed(int64_t bps) {
  return print_rate(Rate::bps(bps), 4);
}
inline std::string speed(Rate rate) {
  return print_rate(rate, 4);
}

}  // namespace trainyard::lint
