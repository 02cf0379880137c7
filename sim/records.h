// SPDX-License-Identifier: MIT
// What a timeline run leaves behind, as plain data.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/op_graph.h"
#include "sim/units.h"

namespace trainyard {

/// One bar of the timeline: an op (or a part of one) on a stream of a rank.
struct Span {
  enum class Kind : uint8_t { compute, collective, send, recv, memory, wait, storage };
  uint32_t rank = 0;
  Kind kind = Kind::compute;
  std::string name;
  std::string stream;
  Time begin, end;
  static constexpr uint32_t kNone = 0xffffffffU;
  uint32_t owner = kNone;  ///< TransferRecord::owner of what it communicates
  uint32_t last = kNone;   ///< wait: the rank that was waited for
};

/// What a rank does at an instant; the first that applies, storage before wait.
enum class Phase : uint8_t { compute, exposed_comm, host, wait, idle, storage };
inline constexpr size_t kPhases = 6;

/// Time of one rank, split so that the parts sum to the step:
/// step = compute + exposed_comm + host + storage + wait + idle. Hidden communication overlaps
/// compute.
struct RankTimes {
  uint32_t rank = 0;
  Time finish;        ///< end of its last op
  Time compute;       ///< at least one compute op running
  Time host;          ///< only CPU-side ops of a trace running
  Time storage;       ///< only storage under way, or the write of a checkpoint held work up
  Time exposed_comm;  ///< no compute, bytes of this rank moving
  Time hidden_comm;   ///< bytes moving behind compute
  Time wait;          ///< nothing running or moving, waiting for a peer in a collective or recv
  Time idle;          ///< none of these (pipeline bubble, or finished early)
  /// exposed_comm and wait by the dimension that they serve. Where several move or wait at once,
  /// the first in the order of Dimension, `none` last.
  std::array<Time, kDimensions> exposed_of{}, wait_of{}, hidden_of{};
};

/// One executed collective.
struct CollectiveRecord {
  uint32_t index = 0;
  std::string name;  ///< of the op on the first member
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::string algorithm;  ///< "ring", "direct"
  std::string group;      ///< communicator name
  uint32_t ranks = 0;
  int64_t bytes = 0;                  ///< Chakra's convention, see Op::bytes
  Time first_arrival, start, finish;  ///< start = last member arrived
  Time wait_max;                      ///< start - first_arrival: the longest wait for a peer
  Time kernel_mean;  ///< from a member's arrival to its end, mean over members: what profilers see
  uint64_t transfers = 0;
  int64_t wire_payload = 0;        ///< payload bytes moved over all its transfers
  uint64_t transmissions = 0;      ///< link transmissions of its data and ACK packets
  uint64_t cts_count = 0;          ///< clear-to-send messages; of the above only in transmissions
  Time cts_p50, cts_p90, cts_p99;  ///< from the receiver to the sender; nearest rank
  double algbw_gbytes_per_s = 0;   ///< bytes / (finish - start); all-gather: N x bytes
  double busbw_gbytes_per_s = 0;   ///< algbw x the factor of nccl-tests for the kind
  uint32_t owner = 0;              ///< TransferRecord::owner of its transfers
  uint32_t last_rank = 0;          ///< the member that arrived last
};

/// A fault that was injected.
struct FaultRecord {
  Time at;
  Time until;             ///< infinity: until the end of the run
  std::string kind;       ///< "link-down", ...
  std::string component;  ///< what it happened to, by name
  std::string text;       ///< what it did there, in words
  /// How such a fault shows (C: 1.2): "stop", "hang", "slow", "on-start", "silent"; which signal
  /// it gives: "xid", "log", "none". Empty: not said.
  std::string manifestation = {};
  std::string signal = {};
};

}  // namespace trainyard
