// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace trainyard {

/// Standard normal deviate in 1/2^32 from 64 random bits: a table of quantiles and integer
/// interpolation, the same on every machine. Symmetric; up to 6.3 either way (2^-33 of the mass
/// lies beyond).
int64_t normal_q32(uint64_t draw);

}  // namespace trainyard
