// SPDX-License-Identifier: MIT
// Figures that several report writers need, computed once and in one way. Internal to tools/report.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/report/result.h"

namespace trainyard::report {

/// Nearest-rank percentile of ascending `sorted`: the smallest value that at least `percent` % of
/// all values do not exceed. Zero for an empty vector.
Time nearest_rank(const std::vector<Time>& sorted, uint32_t percent);

// A run that was interrupted leaves transfers behind whose later times were never set.
[[nodiscard]] bool was_delivered(const TransferRecord& flow);
[[nodiscard]] bool was_acknowledged(const TransferRecord& flow);

/// From start until completion as the scenario defines it (Result::complete_at_last_ack); nullopt
/// when the run ended before.
[[nodiscard]] std::optional<Time> completion_time(const Result& result, const TransferRecord& flow);

/// Flow completion times, see completion_time().
struct FlowStats {
  uint64_t count = 0, delivered = 0;
  int64_t bytes = 0;  ///< of all flows, delivered or not
  Time mean, median, p99, max;
};
FlowStats flow_stats(const Result& result, const std::vector<TransferRecord>& flows);
/// Of those that the run waited for.
FlowStats flow_stats(const Result& result);
/// Totals that most runs have none of, with their names.
std::vector<std::pair<const char*, uint64_t>> rare_totals(const FabricTotals& totals);
/// "leaf0 - spine2 at 1ms for 2ms": a fault in one line.
std::string fault_line(const FaultRecord& fault);

/// compute + host + exposed communication + storage + wait + idle: what a rank's step consists of.
Time sum_of_parts(const RankTimes& rank);

/// Parts of the time of all ranks together, as ratios that sum to 1.
struct Shares {
  double compute = 0, host = 0, exposed_comm = 0, storage = 0, wait = 0, idle = 0;
  double hidden_comm = 0;  ///< relative to the same total, but overlaps compute
  /// The largest of the five, as ("exposed communication", ratio).
  [[nodiscard]] std::pair<std::string_view, double> dominant() const;
};
Shares shares(const std::vector<RankTimes>& ranks);
/// Of the ranks of a job.
Shares shares(const Result& result, const JobResult& job);
/// Mean over ranks of every part of their time; compute + host + exposed + storage + wait + idle =
/// the step.
struct MeanParts {
  double compute_ns = 0, host_ns = 0, storage_ns = 0, idle_ns = 0;
  std::array<double, kDimensions> exposed_ns{}, wait_ns{}, hidden_ns{};  ///< by Dimension
};
MeanParts mean_parts(const std::vector<RankTimes>& ranks);
/// How much longer a job took than alone, as a ratio: 0.05 is 5 %. Only where JobResult::alone is.
double slowdown(const JobResult& job);

/// Time that a link spent transmitting, relative to the run.
double utilisation(const LinkRecord& link, const Result& result);
/// Indices of links by falling utilisation, ties in order of index; at most `count`.
std::vector<size_t> hottest_links(const Result& result, size_t count);
/// Peak use of a switch's shared pool, relative to its size.
double pool_ratio(const SwitchRecord& record);
/// Indices of switches by falling pool_ratio(), ties in order of index; at most `count`.
std::vector<size_t> fullest_switches(const Result& result, size_t count);
/// Indices of headroom records by falling share in use; likewise.
std::vector<size_t> fullest_headrooms(const Result& result, size_t count);
/// Tiers and directions in which traffic had a choice: those with parallel links.
std::vector<const TierLoad*> balanced_tiers(const Result& result);

/// Indices of collectives by falling time, ties in order of index; at most `count`.
std::vector<size_t> longest_collectives(const Result& result, size_t count);

/// Indices of the slowest flows (those that were not delivered first), at most `count`, in their
/// order.
std::vector<size_t> slowest(const Result& result, const std::vector<TransferRecord>& flows,
                            size_t count);

/// "compute", "receive", ...
const char* span_kind_name(Span::Kind kind);
/// "#3" when there is no label.
std::string owner_name(const Result& result, uint32_t owner);
/// Node of a rank, or "rank 3" when unknown.
std::string endpoint_name(const Result& result, uint32_t rank);
/// Only an absolute time that was calibrated may stand without a remark.
[[nodiscard]] bool uncalibrated(const Result& result);

/// Two ways to the same figure.
struct SumCheck {
  std::string what;
  std::string left_name, right_name;
  int64_t left = 0, right = 0;
  enum class Unit : uint8_t { bytes, picoseconds } unit = Unit::bytes;
  std::string note;  ///< why they may differ; empty when they must be equal
  [[nodiscard]] bool holds() const { return left == right; }
};
std::vector<SumCheck> sum_checks(const Result& result);

}  // namespace trainyard::report
