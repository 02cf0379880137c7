// SPDX-License-Identifier: MIT
// The outcome of one run, as plain data: what the CLI prints and the report writers write.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memo/fast_path_stats.h"
#include "sim/fabric.h"
#include "sim/observations.h"
#include "sim/op_graph.h"
#include "sim/open_call.h"
#include "sim/records.h"
#include "sim/units.h"

namespace trainyard {

/// A statement about how far to trust the run, with the reason.
struct TrustNote {
  std::string topic;  ///< "compute times", "engine", "shortcuts", "presets", ...
  std::string text;
  bool caution = false;  ///< shown as a warning
};

/// One PFC pause.
struct PauseRow {
  static constexpr uint32_t kNone = 0xffffffffU;
  Time from, to;         ///< sent at the switch or NIC; infinity: it was not ended
  uint32_t stopped = 0;  ///< directed link that had to stop, see Result::port_names
  uint32_t because = 0;  ///< queue for which the packet that tipped it was bound; kNone: a host's
  uint8_t traffic_class = 0;
};

/// A figure of a generated workload, for reports: key and value go to JSON, label and text to the
/// summary.
struct TrainingFigure {
  std::string key;  ///< with its unit
  std::string label, text;
  double value = 0;
};

/// Power of all GPUs of a job over time.
struct PowerSeries {
  static constexpr size_t kMostWindows = 1'000'000;
  struct Row {
    std::array<int64_t, kPhases> phase_ps{};  ///< by Phase, summed over ranks
    double watts = 0;                         ///< mean of the window, all ranks together
  };
  Time window, asked;     ///< zero: not asked for
  Time end;               ///< of the last window
  std::vector<Row> rows;  ///< window i begins at i x window
};

/// Ops of one kernel on one stream: how long they took.
struct DurationRow {
  std::string kernel, stream;
  int64_t rank = -1;  ///< -1: all of them
  uint64_t count = 0;
  Time p50, p99, total;
};

/// Communication calls from a power of two of bytes up to the next, counted once per rank.
struct CallSizeRow {
  Dimension dimension = Dimension::none;
  std::string kind;  ///< "all-gather", "send"
  int64_t from_bytes = 0;
  uint64_t calls = 0;
  int64_t bytes = 0;  ///< as Op::bytes counts
};

/// One of several jobs that share the fabric. Its ranks are rows of Result::rank_times.
struct JobResult {
  std::string name, gpus;  ///< gpus: "node0.gpu0 to node3.gpu7"
  uint32_t first_rank = 0, ranks = 0;
  uint8_t traffic_class = 0;
  Time start, end;
  Time alone;  ///< end - start without the other jobs; zero: not asked for
  std::string compute_source;
  std::vector<TrainingFigure> training, energy;
};

struct Result {
  static constexpr int kSchemaVersion = 1;

  std::string scenario_name, scenario_file, version, build_type, engine;
  /// Queues, PFC, ECN, congestion control and losses were simulated. False: their figures in the
  /// records are not measurements, and reports say "not modelled".
  bool packets_modelled = true;
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
  double load_wall_s = 0;  ///< reading and checking the trace, a part of setup_wall_s
  uint64_t peak_rss_bytes = 0;
  std::string compute_source;  ///< "trace", "roofline (uncalibrated)", "none"

  FabricTotals totals;
  std::optional<FastPathStats> fast_path;  ///< none: every packet was simulated
  std::vector<JobResult> jobs;             ///< empty: a single workload, or none
  std::vector<TrustNote> trust;
  std::vector<RankTimes> rank_times;
  std::vector<CollectiveRecord> collectives;
  uint64_t collectives_dropped = 0;        ///< shorter ones that are not among them
  uint64_t ops = 0, ops_replayed = 0;      ///< of the job; those in stretches that were followed
  std::vector<DurationRow> durations;      ///< all ranks first, then, of small jobs, rank by rank
  std::vector<CallSizeRow> call_sizes;     ///< of the job
  std::vector<TransferRecord> flows;       ///< one per transfer, in order of start
  std::vector<TransferRecord> background;  ///< likewise, of flows that the run did not wait for
  std::vector<FaultRecord> faults;         ///< those that began before the end
  std::vector<OpenCall> open_calls;        ///< of a run that did not end: where ranks wait
  std::vector<ProcessExit> exits;          ///< processes of ranks that exited before the end
  /// Ranks in collectives, in order of `left`; only with faults, where all is simulated message by
  /// message. The first million.
  std::vector<CollectiveVisit> visits;
  Time collective_timeout;  ///< in force; infinity: none
  size_t faults_planned = 0;
  bool pauses_asked = false;
  std::vector<PauseRow> pauses;                ///< in order of `from`
  std::map<uint32_t, std::string> port_names;  ///< "leaf0 -> spine1", for pauses
  std::vector<std::string> flow_owner;  ///< TransferRecord::owner -> label, e.g. "all-reduce #3"
  std::vector<std::string> endpoint_names;  ///< rank -> node name
  std::vector<LinkRecord> links;
  LinkSeries link_series;  ///< in the order of `links`; empty when not asked for
  std::vector<TierLoad> tier_loads;
  TierLoadSeries tier_series;               ///< with `link_series`
  Observations seen;                        ///< links are rows of `links`
  std::vector<TierQueueing> tier_queueing;  ///< of seen.samples
  std::vector<Span> spans;                  ///< for the timeline; may be thinned, see spans_dropped
  uint64_t spans_dropped = 0;
  bool perfetto = false;                                      ///< write trace.json.gz
  std::vector<std::pair<std::string, std::string>> settings;  ///< resolved scenario: key -> value
  std::vector<std::string> warnings;
  std::vector<TrainingFigure> training;  ///< empty for traces and traffic
  std::vector<TrainingFigure> energy;    ///< energy and cost; empty without a job or watts
  PowerSeries power;
};

}  // namespace trainyard
