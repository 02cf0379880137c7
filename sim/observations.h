// SPDX-License-Identifier: MIT
// What an engine that simulates packets saw beside links and flows: plain data, in order of first
// use of links and queue pairs. A link is named by its row in Fabric::links().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/units.h"

namespace trainyard {

/// Counters of one NIC port (a host's port, named by the link that leaves it).
struct NicRecord {
  uint32_t link = 0;             ///< the directed link from the host
  uint64_t out_of_sequence = 0;  ///< data packets that came before one sent earlier
  uint64_t ack_timeouts = 0;     ///< retransmission timers that fired without progress
  uint64_t nacks_sent = 0, nacks_received = 0;
  uint64_t cnps_sent = 0, cnps_received = 0;      ///< CNP packets, or ACKs that carry the notice
  uint64_t pauses_sent = 0, pauses_received = 0;  ///< PFC frames that stop, refreshes included
  uint64_t link_downs = 0;                        ///< times that its cable lost its signal
  int64_t receive_buffer_peak_bytes = 0;  ///< data that waited for the host; 0: it never waited
};

/// Use of one switch's shared packet buffer.
struct SwitchRecord {
  uint32_t node = 0;  ///< of the topology
  std::string name;
  int64_t pool_bytes = 0;       ///< buffer less the reserves and headrooms of all its ports
  int64_t pool_peak_bytes = 0;  ///< the most that was in it
};

/// Use of the headroom of one ingress port and class; those that used none have no record.
struct HeadroomRecord {
  uint32_t link = 0;  ///< the link that ends at the port
  uint32_t traffic_class = 0;
  int64_t headroom_bytes = 0, peak_bytes = 0;
};

/// Who a queue pair is. Its data packets go to port 4791 of `dst`.
struct QpRecord {
  uint32_t src = 0, dst = 0, channel = 0;
  uint16_t source_port = 0;  ///< of its first path; further paths have other source ports
  uint8_t traffic_class = 0;
  uint32_t paths = 1;
};

/// Time series of queue pairs in windows [k * window, (k + 1) * window). A window that is missing
/// sent nothing, and the rate stayed as at the end of the row before.
struct QpSeries {
  struct Row {
    int64_t window = 0;         ///< k
    int64_t payload_bytes = 0;  ///< of data packets that began to leave in it, repeats included
    int64_t packets = 0;
    int64_t rate_bps = 0;  ///< that the controller allows, at its end; without one: the line's
  };
  Time asked;                         ///< zero: no series was asked for
  Time window;                        ///< in use; longer where the rows would have become too many
  std::vector<std::vector<Row>> qps;  ///< ascending rows per queue pair
};

/// One data packet that was followed.
struct PacketSample {
  struct Hop {
    uint32_t link = 0;
    int64_t queueing_ps = 0;  ///< from the last bit's arrival until its transmission began
    int64_t line_ps = 0;      ///< transmission and cable
  };
  enum class Fate : uint8_t { under_way, delivered, lost };
  uint32_t qp = 0;
  int64_t seq = 0;  ///< its first byte in the sequence space of the queue pair
  int64_t payload_bytes = 0;
  int64_t sent_ps = 0;           ///< its transmission at the NIC began
  int64_t delivered_ps = 0;      ///< the host has it; fate delivered
  int64_t receiver_wait_ps = 0;  ///< in a NIC whose host takes data in slowly
  Fate fate = Fate::under_way;
  std::vector<Hop> hops;  ///< links it was sent on; the first leaves the NIC, where nothing queues
};

/// Every packet was followed with probability ratio_q32 / 2^32, by dice of its own.
struct PacketSamples {
  uint64_t asked_q32 = 0;             ///< zero: not asked for
  uint64_t ratio_q32 = 0;             ///< in use; smaller where the hops would have become too many
  std::vector<PacketSample> packets;  ///< in order of sending
};

/// Packets of one queue pair that a switch passed from one port to another, over all its paths.
struct SwitchFlowRecord {
  uint32_t in_link = 0, out_link = 0;  ///< the switch stands between them
  uint32_t qp = 0;
  bool control = false;  ///< its ACKs, NACKs and CNPs, from `dst` to `src`
  uint64_t packets = 0;
  int64_t bytes = 0;                  ///< on the wire
  int64_t first_ps = 0, last_ps = 0;  ///< begin of the first and last transmission
};

/// Flow records of all switches.
struct SwitchFlows {
  bool asked = false;
  std::vector<SwitchFlowRecord> rows;
};

struct Observations {
  std::vector<NicRecord> nics;
  std::vector<SwitchRecord> switches;
  std::vector<HeadroomRecord> headrooms;
  std::vector<QpRecord> qps;  ///< only with one of those below
  QpSeries qp_series;
  PacketSamples samples;
  SwitchFlows flows;
};

/// Queueing of followed packets in one tier and direction; percentiles are nearest rank.
struct TierQueueing {
  std::string tier, direction;  ///< see TierLoad; "whole path" and "": sums over packets
  uint64_t count = 0;           ///< packets on links, or packets
  Time p50, p99, max;
};

/// How evenly one tier's links of one direction were loaded. Ratios of what carried nothing are 0.
struct TierLoad {
  /// max / mean (the MMR of B:F27) and (max - min) / mean over all links.
  struct Spread {
    double total = 0;
    double max_to_mean = 0, skew = 0;
    /// max / mean among parallel links: those of one lower switch or host. Mean and largest over
    /// the groups of two or more links that carried something.
    double group_mean = 0, group_max = 0;
    std::string group;  ///< lower switch or host of the largest; empty: no such group
  };
  std::string tier;       ///< "leaf-spine", ...
  std::string direction;  ///< "up": away from the hosts; "down"; "across": between equals
  uint32_t links = 0;     ///< of the topology, idle ones included
  uint32_t used = 0;
  Spread bytes;        ///< payload
  Spread queue_pairs;  ///< see LinkRecord::queue_pairs
  /// The ratios of TierLoadSeries over its rows; percentiles are nearest rank.
  struct Windows {
    uint64_t count = 0;  ///< with payload; 0: no series was asked for
    double p50 = 0, max = 0;
    double mean = 0;  ///< weighted by payload: sum of the busiest links over sum of the means
    Time worst;       ///< begin of the first window with `max`
    uint64_t group_count = 0;  ///< of windows, those with parallel links in use
    double group_p50 = 0, group_max = 0;
  };
  Windows windows;
};

/// How evenly the links of each tier and direction were loaded in each window of LinkSeries, by
/// payload. A window in which the tier carried none has no row.
struct TierLoadSeries {
  static constexpr uint32_t kNone = 0xffffffffU;
  struct Row {
    int64_t window = 0;                ///< k: [k * window, (k + 1) * window)
    uint32_t used = 0;                 ///< links that carried payload in it
    uint32_t busiest = 0;              ///< the first such link, in the order of the links
    int64_t bytes = 0, max_bytes = 0;  ///< of all links, of the busiest
    double max_to_mean = 0, skew = 0;  ///< as in TierLoad::Spread; idle links count
    double group_mean = 0, group_max = 0;
    uint32_t group = kNone;  ///< node; kNone: no such group
  };
  struct Tier {
    std::string tier, direction;  ///< see TierLoad
    uint32_t links = 0;           ///< of the topology
    std::vector<Row> rows;        ///< ascending in time
  };
  Time window;              ///< zero: not asked for
  std::vector<Tier> tiers;  ///< as tier_loads() orders them
};

}  // namespace trainyard
