// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

namespace trainyard {

/// What the fast path did. Bytes are payload; a domain counts when it ends.
struct FastPathStats {
  uint64_t domains = 0, followed = 0;
  uint64_t episodes = 0;  ///< distinct ones simulated to their end
  int64_t bytes_simulated = 0, bytes_followed = 0;
  uint64_t transmissions_simulated = 0, transmissions_followed = 0;
  uint64_t events = 0;              ///< executed, those simulated again included
  uint64_t events_again = 0;        ///< executed a second time, for followers and merges
  uint64_t materialised = 0;        ///< followers that had to be simulated after all
  uint64_t merges = 0;              ///< of domains that a new message joined
  uint64_t pool_merges = 0;         ///< of domains that shared a buffer too closely
  uint64_t dice_domains = 0;        ///< domains in which dice decided something
  uint64_t largest_domain = 0;      ///< links
  uint64_t evicted = 0;
  size_t memo_bytes = 0;
};

}  // namespace trainyard
