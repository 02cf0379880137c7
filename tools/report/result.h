// SPDX-License-Identifier: MIT
// The outcome of one run, as plain data: what the CLI prints and the report writers write.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/fabric.h"
#include "sim/op_graph.h"
#include "sim/records.h"
#include "sim/units.h"

namespace trainyard {

/// A statement about how far to trust the run, with the reason.
struct TrustNote {
  std::string topic;  ///< "compute times", "engine", "shortcuts", "presets", ...
  std::string text;
  bool caution = false;  ///< shown as a warning
};

struct Result {
  static constexpr int kSchemaVersion = 1;

  std::string scenario_name, scenario_file, version, build_type, engine;
  uint64_t seed = 1;
  bool complete = false;  ///< false: interrupted, everything below is up to `end`
  std::string incomplete_reason;
  uint64_t fingerprint = 0;
  bool complete_at_last_ack =
      false;  ///< flow completion: last ACK back, or (false) last byte there

  uint32_t ranks = 0, nodes = 0, switches = 0, links_count = 0, rank_classes = 0;
  Time end;        ///< simulated end of the run
  Time step_time;  ///< zero when the run has no workload (traffic only)
  double wall_s = 0, setup_wall_s = 0;
  uint64_t peak_rss_bytes = 0;
  std::string compute_source;  ///< "trace", "roofline (uncalibrated)", "none"

  FabricTotals totals;
  std::vector<TrustNote> trust;
  std::vector<RankTimes> rank_times;
  std::vector<CollectiveRecord> collectives;
  std::vector<TransferRecord> flows;    ///< one per transfer, in order of start
  std::vector<std::string> flow_owner;  ///< TransferRecord::owner -> label, e.g. "all-reduce #3"
  std::vector<std::string> endpoint_names;  ///< rank -> node name
  std::vector<LinkRecord> links;
  LinkSeries link_series;   ///< in the order of `links`; empty when not asked for
  std::vector<Span> spans;  ///< for the timeline; may be thinned, see spans_dropped
  uint64_t spans_dropped = 0;
  bool perfetto = false;                                      ///< write trace.json.gz
  std::vector<std::pair<std::string, std::string>> settings;  ///< resolved scenario: key -> value
  std::vector<std::string> warnings;
};

}  // namespace trainyard
