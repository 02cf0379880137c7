// SPDX-License-Identifier: MIT
// How a kind of fault shows, for the truth (C: 1.2).
#pragma once

#include <optional>
#include <string>

namespace trainyard {

struct Manifestation {
  std::string how;     ///< "stop", "hang", "slow"
  std::string signal;  ///< "xid", "log", "none"
};

/// Of a registered kind; none: it is not known.
std::optional<Manifestation> manifestation_of(const std::string& kind);

}  // namespace trainyard
