// SPDX-License-Identifier: MIT
#include "workload/protocol.h"

namespace trainyard {

const char* protocol_name(Protocol protocol) {
  switch (protocol) {
    case Protocol::ll:
      return "LL";
    case Protocol::ll128:
      return "LL128";
    case Protocol::simple:
      break;
  }
  return "Simple";
}

int64_t protocol_bytes(Protocol protocol, int64_t payload) {
  switch (protocol) {
    case Protocol::ll:
      return (payload + 3) / 4 * 8;
    case Protocol::ll128:
      return payload + (payload + 119) / 120 * 8;
    case Protocol::simple:
      break;
  }
  return payload;
}

}  // namespace trainyard
