// SPDX-License-Identifier: MIT
// Storage as a queueing system: servers with a rate work on requests in order of arrival.
//
// What a rank reads or writes is cut into pieces; so many of them are under way at a time. A piece
// passes the storage port of its rank's node, one piece after the other in each direction, and is
// worked on by the first server that is free, for `latency` and its bytes at the server's rate.
// Writes pass the port first, reads last. With `network: shared` there are no storage ports: pieces
// travel over the fabric between the rank's GPU and the server with the fewest pieces.
//
// Ranks may be of several jobs: servers and ports do not ask whose a piece is.
//
// Source: where waiting in queues takes 93 % of a write, bandwidth alone mispredicts (A:N056,
// B: 2.11 I9-I11, B:V149-V152).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/params.h"
#include "sim/storage.h"

namespace trainyard {

/// Keys of the `storage` block of a scenario.
const std::vector<ParamSpec>& storage_params();

struct StorageConfig {
  uint32_t servers = 1;
  int64_t read_bps = 0, write_bps = 0;  ///< of a server
  int64_t client_bps = 0;               ///< of a node's port, per direction
  int64_t piece = 1;                    ///< bytes
  uint32_t queue = 1;                   ///< pieces of a rank under way at most
  Time latency;                         ///< of a piece at a server
  std::vector<uint32_t> node_of;        ///< rank -> node
  std::vector<uint32_t> job_of;         ///< rank -> job, for its figures; empty: one job
  /// network: shared: endpoints of the fabric, one per server; empty: a network of its own.
  std::vector<uint32_t> endpoints;
};

/// What the keys say; `node_of` and `endpoints` are the caller's.
StorageConfig storage_config(const Params& params);

std::unique_ptr<Storage> make_storage(StorageConfig config);

}  // namespace trainyard
