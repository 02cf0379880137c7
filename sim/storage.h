// SPDX-License-Identifier: MIT
// What ranks read from and write to outside of their job: data sets and checkpoints.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/units.h"

namespace trainyard {

enum class StorageAction : uint8_t {
  read,     ///< of the data set
  write,    ///< of a checkpoint
  load,     ///< of a checkpoint, at a start
  snapshot  ///< of a checkpoint into the host's memory: no server has part in it
};
inline constexpr size_t kStorageActions = 4;
/// "dataset read", "checkpoint write", ...
const char* storage_action_name(StorageAction action);

struct StorageRequest {
  uint32_t rank = 0;
  StorageAction action = StorageAction::read;
  int64_t bytes = 0;
};

/// Bytes that a storage wants carried by the fabric.
struct StorageMove {
  uint32_t src = 0, dst = 0;  ///< endpoints of the fabric
  int64_t bytes = 0;
  uint32_t token = 0;  ///< for Storage::moved
  uint32_t rank = 0;   ///< whose request it serves
};

/// What the requests of one action came to, of a job or of all.
struct StorageStats {
  uint64_t requests = 0;  ///< of ranks
  uint64_t pieces = 0;    ///< that servers worked on
  int64_t bytes = 0;
  Time first, last;    ///< first begin, last end
  Time longest;        ///< request
  double sum_s = 0;    ///< of the requests' times
  double piece_s = 0;  ///< of the pieces' times at the servers, queueing included
  double queue_s = 0;  ///< of it waiting for a server

  [[nodiscard]] double queue_ratio() const { return piece_s > 0 ? queue_s / piece_s : 0; }
};

/// Driven by the timeline: time does not go back, equal instants are told in order of rank.
class Storage {
 public:
  virtual ~Storage() = default;
  /// @returns the request's number: 0, 1, 2, ...
  virtual uint32_t submit(const StorageRequest& request, Time now) = 0;
  /// Infinity: nothing happens by itself.
  [[nodiscard]] virtual Time next_event() const = 0;
  /// To `now`, which is at most next_event(): requests that are done, bytes to carry.
  virtual void advance(Time now, std::vector<uint32_t>& done, std::vector<StorageMove>& moves) = 0;
  /// The fabric delivered a move.
  virtual void moved(uint32_t token, Time now) = 0;
  /// Of all ranks, and of those of one job: jobs queue at the same servers.
  [[nodiscard]] virtual const std::array<StorageStats, kStorageActions>& stats() const = 0;
  [[nodiscard]] virtual const std::array<StorageStats, kStorageActions>& job_stats(
      uint32_t job) const = 0;
};

}  // namespace trainyard
