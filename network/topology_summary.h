// SPDX-License-Identifier: MIT
// Counts of a fabric, and what is wrong with its rails.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "network/topology.h"

namespace trainyard {

struct FabricSummary {
  struct Plane {
    uint32_t leaves = 0, spines = 0, cores = 0;
    uint64_t cables = 0;      ///< outside of scale-up domains
    int64_t nic_bps = 0;      ///< all cables of hosts together, per direction
    int64_t leaf_up_bps = 0;  ///< all cables from leaves upward
    int64_t core_bps = 0;     ///< all cables to cores
  };
  std::vector<Plane> planes;
  uint32_t hosts = 0, scale_up_domains = 0, pods = 0;
  uint32_t most_in_domain = 0;  ///< GPUs of the largest scale-up domain
  uint64_t cables = 0;          ///< outside of scale-up domains
  uint64_t transceivers = 0;    ///< one at each end of these
  /// Down capacity divided by up capacity over all leaves that have uplinks: least and most; zero
  /// where no leaf has any.
  double least_oversubscription = 0, most_oversubscription = 0;
  /// Half of the smallest total capacity between two tiers that all traffic may have to cross, per
  /// direction: no cut into equal halves carries more. A lower cut may exist in a file's graph.
  int64_t bisection_bps = 0;
};

FabricSummary summarise(const Topology& topology);

/// A NIC port that is cabled to a leaf of another rail.
struct RailCrossing {
  uint32_t host = 0, port = 0;  ///< port: of the NIC
  uint32_t leaf = 0;
  int32_t belongs = 0, is = 0;  ///< rails
};

struct RailReport {
  uint32_t rails = 0;     ///< 0: the fabric has none
  bool inferred = false;  ///< from the majority on each leaf, where the fabric does not say
  std::vector<RailCrossing> crossings;
};

/// Compares the rail of every NIC (its position in its server) with the rail of its leaf (B:T5).
RailReport check_rails(const Topology& topology);

/// All of it as lines of text.
std::string fabric_text(const Topology& topology);

}  // namespace trainyard
