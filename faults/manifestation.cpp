// SPDX-License-Identifier: MIT
#include "faults/manifestation.h"

#include <map>

namespace trainyard {

std::optional<Manifestation> manifestation_of(const std::string& kind) {
  static const std::map<std::string, Manifestation> all = {
      {"link-down", {"stop", "log"}},
      {"link-flap", {"slow", "log"}},
      {"link-degrade", {"slow", "none"}},
      {"link-loss", {"slow", "none"}},
      {"link-ber", {"slow", "none"}},
      {"link-drop", {"slow", "none"}},
      {"switch-down", {"stop", "log"}},
      {"nic-down", {"stop", "log"}},
      {"pfc-storm", {"slow", "none"}},
      {"slow-receiver", {"slow", "none"}},
      {"pcie-downgrade", {"slow", "none"}},
      {"nvlink-degrade", {"slow", "xid"}},
      {"gpu-slow", {"slow", "none"}},
      {"gpu-throttle", {"slow", "none"}},
      {"gpu-stop", {"hang", "xid"}},
      {"gpu-hang", {"hang", "none"}},
      {"launch-delay", {"slow", "none"}},
      {"gc-pause", {"slow", "none"}},
      {"process-exit", {"stop", "log"}},
      {"collective-skip", {"hang", "none"}},
      {"collective-mismatch", {"hang", "none"}},
  };
  const auto it = all.find(kind);
  return it == all.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace trainyard
