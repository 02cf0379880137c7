// SPDX-License-Identifier: MIT
// Constants of NCCL's own performance model, by release: what a call and a step cost, and what the
// LL protocol can carry (nccl-measured, nccl-tuning.csv; facts/nccl-measured 3). PCI steps, PAT and
// CollNet are left out.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/units.h"
#include "workload/protocol.h"

namespace trainyard {

/// Families of GPUs that NCCL and measurements tell apart.
enum class Generation : uint8_t { volta, ampere, hopper, blackwell, cdna };
inline constexpr size_t kGenerations = 5;
/// "volta", ...
const char* generation_name(Generation generation);

struct StepTimes {
  Time base;     ///< of a call
  Time inside;   ///< of a step over NVLink
  Time between;  ///< of a step over the network
};

struct NcclRelease {
  std::string name;
  std::array<StepTimes, kProtocols> ring, tree;  ///< by Protocol
  Time nvls;                                     ///< of an NVLS call, inside; zero: there is none
  Time nvls_tree_between;                        ///< of a step of NVLSTree
};

/// Oldest first.
const std::vector<NcclRelease>& nccl_releases();
/// Throws UserError that lists the known ones.
const NcclRelease& nccl_release(const std::string& name);
/// The newest known release that is not newer than `version` ("2.26.6", "2.12 to 2.16": the first);
/// the oldest one if all are. Empty: `version` is no number.
std::string nearest_nccl_release(const std::string& version);

/// Bytes per second that LL carries at most, on so many scale-up domains.
int64_t ll_cap(const NcclRelease& release, Generation generation, int64_t domains);

enum class ChannelCap : uint8_t { ring_ll128, tree_ll128, tree_simple, nvls_tree };
/// Bytes per second of a channel at most, as 2.30.7 has it, on so many scale-up domains.
int64_t channel_cap(ChannelCap cap, Generation generation, int64_t domains);

/// NCCL's factor on the bandwidth of a tree for a call of `bytes`, in tenths.
int64_t tree_tenths(Protocol protocol, int64_t bytes);

}  // namespace trainyard
