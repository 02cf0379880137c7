// SPDX-License-Identifier: MIT
// What the packet engine draws dice for, and what its fingerprint is made of.
#pragma once

#include <cstdint>

namespace trainyard {

enum DicePurpose : uint32_t { kDiceMark = 1, kDiceLoss = 2, kDicePath = 3 };
enum Trace : uint32_t { kTraceDelivered = 1, kTraceAcked, kTraceRate, kTracePause, kTraceDrop };

}  // namespace trainyard
