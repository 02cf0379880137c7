// SPDX-License-Identifier: MIT
// NCCL's protocols on the wire. LL sends a flag of 4 bytes with 4 of data, LL128 one of 8 with 120
// (A:F49); Simple sends data alone. What they cost in software: workload/nccl_model.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trainyard {

enum class Protocol : uint8_t { ll, ll128, simple };
inline constexpr size_t kProtocols = 3;
/// "LL", "LL128", "Simple".
const char* protocol_name(Protocol protocol);

/// Wire bytes of `payload` bytes: two for one, 128 for 120, as many.
int64_t protocol_bytes(Protocol protocol, int64_t payload);

}  // namespace trainyard
