// SPDX-License-Identifier: MIT
// Writes a Result for people and machines. Every file is written to a temporary name beside its
// place and renamed, so it is there whole or not at all.
#pragma once

#include <string>

#include "tools/report/result.h"

namespace trainyard {

/// Text written to `path` atomically (AtomicFile does it piece by piece). Throws UserError (path,
/// reason) when it cannot be written.
void write_atomically(const std::string& path, const std::string& content);

/// result.json: schema-versioned, every number with its unit in its key.
std::string result_json(const Result& result);
/// One row per transfer / collective / directed link / rank; times in ns with 3 decimals
/// (integers in ps divided by 1000 exactly), sizes in bytes.
std::string flows_csv(const Result& result);
std::string background_csv(const Result& result);  ///< flows that the run did not wait for
std::string collectives_csv(const Result& result);
std::string durations_csv(const Result& result);   ///< one row per kernel, stream and rank
std::string call_sizes_csv(const Result& result);  ///< per dimension, kind and power of two
std::string links_csv(const Result& result);
std::string ranks_csv(const Result& result);
/// One row per window of a link in which something changed, see LinkSeries. Written piece by piece.
void write_link_series_csv(const Result& result, const std::string& path);
/// One row per tier, direction and window with payload, see TierLoadSeries. Written piece by piece.
void write_load_series_csv(const Result& result, const std::string& path);

/// One row per PFC pause, see PauseRow. Written piece by piece.
void write_pauses_csv(const Result& result, const std::string& path);

/// One row per NIC port, per switch, and per ingress port and class that used headroom.
std::string nics_csv(const Result& result);
std::string switches_csv(const Result& result);
std::string headroom_csv(const Result& result);
/// One row per window of a queue pair, see QpSeries; per link of a followed packet, see
/// PacketSample; per flow in a switch, see SwitchFlowRecord. Written piece by piece.
void write_qps_csv(const Result& result, const std::string& path);
void write_packets_csv(const Result& result, const std::string& path);
void write_switch_flows_csv(const Result& result, const std::string& path);

/// One row per window, see PowerSeries. Written piece by piece.
void write_power_csv(const Result& result, const std::string& path);

/// Bounds of a Perfetto trace.
struct PerfettoLimits {
  size_t arrows = 100'000;    ///< transfers drawn as arrows, the slowest first
  size_t counter_links = 32;  ///< links with counters, the busiest first
};
/// Chrome trace-event JSON, gzipped, for ui.perfetto.dev. Written piece by piece.
void write_perfetto(const Result& result, const std::string& path,
                    const PerfettoLimits& limits = {});
/// One self-contained page: headline, "How far to trust this", timeline and link heat map as
/// inline SVG, tables. No script is needed to read it.
std::string report_html(const Result& result);
/// The table for the terminal, "How far to trust this" first.
std::string summary_text(const Result& result);

/// Writes result.json, flows.csv, collectives.csv, durations.csv, call_sizes.csv, links.csv,
/// ranks.csv and report.html into
/// `dir`, which is created, nics.csv, switches.csv and headroom.csv of a simulation of packets, and
/// the time series, pauses, packets, flows of switches, power and trace.json.gz where they were
/// asked for. Files that would be empty (no collective ran) are not written.
void write_all(const Result& result, const std::string& dir);

}  // namespace trainyard
