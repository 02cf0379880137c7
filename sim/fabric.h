// SPDX-License-Identifier: MIT
// The interface between the timeline and whatever moves bytes. Engines in network/ implement it;
// nothing in sim/ calls them by name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/units.h"

namespace trainyard {

/// Identifies a transfer: 0, 1, 2, ... in order of start().
using TransferId = uint32_t;

/// A message from one endpoint (rank) to another.
struct Transfer {
  uint32_t src = 0;      ///< rank
  uint32_t dst = 0;      ///< rank, different from src
  Bytes size;            ///< payload bytes, > 0
  uint32_t channel = 0;  ///< transfers of one (src, dst, channel) may share a queue pair
  uint32_t owner = 0;    ///< index given by the caller (collective or flow), kept for the records
  uint8_t traffic_class = 0;  ///< of switches and NICs; the last one where there are fewer
};

/// Progress of a transfer.
struct Completion {
  enum class What : uint8_t {
    delivered,    ///< the last byte is at the receiver
    acknowledged  ///< the sender knows it: the last ACK is back
  };
  Time at;
  TransferId id = 0;
  What what = What::delivered;
};

/// The order in which Fabric::advance() reports the completions from `first` on.
inline void sort_completions(std::vector<Completion>& out, size_t first) {
  std::stable_sort(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(),
                   [](const Completion& a, const Completion& b) {
                     return a.id != b.id ? a.id < b.id : a.what < b.what;
                   });
}

/// Outcome of one transfer, in order of start().
struct TransferRecord {
  uint32_t src = 0, dst = 0, owner = 0;
  int64_t bytes = 0;
  Time start, delivered, acknowledged;
  uint64_t packets = 0;        ///< data packets that arrived in order
  uint64_t retransmitted = 0;  ///< data packets sent more than once
  uint64_t transmissions = 0;  ///< link transmissions of its data and ACK packets
  uint32_t hops = 0;           ///< links from source to destination
  uint64_t cnps = 0;           ///< congestion notifications that the sender got
};

/// Totals of one directed link.
struct LinkRecord {
  std::string from, to;  ///< node names
  uint32_t from_node = 0, to_node = 0;
  std::string tier;  ///< "scale-up", "host-leaf", "leaf-spine", ...
  Rate rate;
  uint64_t packets = 0;    ///< data, ACK, CNP and PFC frames sent
  int64_t bytes = 0;       ///< on the wire, headers included
  int64_t data_bytes = 0;  ///< payload
  uint64_t ecn_marks = 0;
  uint64_t pauses_received = 0;  ///< PFC XOFF frames that stopped this link
  Time paused;                   ///< time during which the data class was paused
  Time busy;                     ///< time spent transmitting
  int64_t peak_queue_bytes = 0;
  uint64_t drops = 0;
  /// Queue pairs whose data goes this way, as routed last; one with n paths counts 1/n for each.
  double queue_pairs = 0;
};

/// Time series of links in windows [k * window, (k + 1) * window). A window that is missing carried
/// nothing, was not paused, and its queue stayed as at the end of the row before (0 at first).
struct LinkSeries {
  struct Row {
    int64_t window = 0;           ///< k
    int64_t bytes = 0;            ///< sent in it, headers included
    int64_t queue_bytes = 0;      ///< egress queue of the data class at its end
    int64_t queue_max_bytes = 0;  ///< the largest in it
    int64_t paused_ps = 0;        ///< time in it during which the data class was paused
    int64_t payload_bytes = 0;    ///< of `bytes`, those of messages
  };
  Time asked;   ///< window asked for; zero: no series was asked for
  Time window;  ///< window in use; longer where the rows would have become too many
  std::vector<std::vector<Row>> links;  ///< ascending rows per link, in the order of the links
};

/// Totals of a run. Everything that is reported is counted, nothing is derived from a model.
struct FabricTotals {
  uint64_t events = 0;         ///< events executed by the engine
  uint64_t transmissions = 0;  ///< one per packet per link, ACK and PFC frames included
  uint64_t data_packets = 0, ack_packets = 0, cnp_packets = 0, pfc_frames = 0;
  uint64_t ecn_marks = 0, pfc_pauses = 0, pfc_resumes = 0;
  uint64_t drops = 0;  ///< with a reason that the scenario asked for
  uint64_t retransmitted = 0, timeouts = 0, nacks = 0;
  int64_t payload_bytes = 0;  ///< delivered
  int64_t wire_bytes = 0;     ///< sum over links
  uint64_t rate_changes = 0;
  uint64_t out_of_order = 0;     ///< data packets that arrived before one sent earlier
  uint64_t pfc_refreshes = 0;    ///< pauses sent again before they expired
  uint64_t watchdog_events = 0;  ///< queues or NICs that a PFC watchdog freed
  uint64_t reroutes = 0;         ///< queue pairs that were given a new path
  uint64_t cyclic_waits = 0;     ///< looks that found queues waiting for each other in a circle
};

/// Moves transfers. Not thread-safe; any number may exist at once.
class Fabric {
 public:
  virtual ~Fabric() = default;

  /// Starts a transfer at `at`, which is not before the last instant returned by advance().
  virtual TransferId start(const Transfer& transfer, Time at) = 0;

  /// Earliest instant at which anything can change by itself; infinity when idle.
  [[nodiscard]] virtual Time next_event() const = 0;

  /// Processes whole instants up to and including `limit`, and stops after the first instant at
  /// which a transfer made progress that is reported. Appends to `out` in order of id.
  /// @returns the last instant processed.
  virtual Time advance(Time limit, std::vector<Completion>& out) = 0;

  /// Transfers not yet acknowledged.
  [[nodiscard]] virtual size_t outstanding() const = 0;
  /// One line that says who waits for what, for a run that cannot go on.
  [[nodiscard]] virtual std::string describe_stall() const = 0;

  /// Checks that bytes, packets, links and pauses balance. Throws SimulationError naming the
  /// difference. Call when nothing is outstanding.
  virtual void check_conservation() const = 0;

  [[nodiscard]] virtual const std::vector<TransferRecord>& transfers() const = 0;
  [[nodiscard]] virtual std::vector<LinkRecord> links() const = 0;
  [[nodiscard]] virtual FabricTotals totals() const = 0;
  /// Hash of the trajectory so far: order-independent sum over its decisions, so that the same
  /// trajectory gives the same value for any partition of the work.
  [[nodiscard]] virtual uint64_t fingerprint() const = 0;
};

}  // namespace trainyard
