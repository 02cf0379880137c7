// SPDX-License-Identifier: MIT
#include "tools/report/analysis.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <numeric>

namespace trainyard::report {
namespace {

/// The first `count` of the indices 0 .. n-1 by falling key; ties keep their order.
template <typename Key>
std::vector<size_t> top(size_t n, size_t count, const Key& key) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t kept = std::min(n, count);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    [&](size_t a, size_t b) {
                      const auto ka = key(a), kb = key(b);
                      return ka != kb ? ka > kb : a < b;
                    });
  order.resize(kept);
  return order;
}

}  // namespace

Time nearest_rank(const std::vector<Time>& sorted, uint32_t percent) {
  if (sorted.empty()) return {};
  const uint64_t n = sorted.size();
  const uint64_t rank = (n * std::min(percent, 100U) + 99) / 100;
  return sorted[rank == 0 ? 0 : rank - 1];
}

bool was_delivered(const TransferRecord& flow) {
  return flow.delivered > flow.start && flow.delivered != Time::infinity();
}

bool was_acknowledged(const TransferRecord& flow) {
  return was_delivered(flow) && flow.acknowledged >= flow.delivered &&
         flow.acknowledged != Time::infinity();
}

std::optional<Time> completion_time(const Result& result, const TransferRecord& flow) {
  if (result.complete_at_last_ack) {
    if (!was_acknowledged(flow)) return std::nullopt;
    return flow.acknowledged - flow.start;
  }
  if (!was_delivered(flow)) return std::nullopt;
  return flow.delivered - flow.start;
}

FlowStats flow_stats(const Result& result) {
  return flow_stats(result, result.flows);
}

std::vector<std::pair<const char*, uint64_t>> rare_totals(const FabricTotals& t) {
  return {{"out of order", t.out_of_order},
          {"PFC refreshes", t.pfc_refreshes},
          {"watchdog events", t.watchdog_events},
          {"reroutes", t.reroutes},
          {"cyclic waits", t.cyclic_waits}};
}

std::string fault_line(const FaultRecord& fault) {
  std::string line = fault.component + ": " + fault.text + ", from " + print_time(fault.at);
  line += fault.until == Time::infinity() ? " to the end" : " to " + print_time(fault.until);
  return line;
}

FlowStats flow_stats(const Result& result, const std::vector<TransferRecord>& flows) {
  FlowStats stats;
  stats.count = flows.size();
  std::vector<Time> times;
  times.reserve(flows.size());
  __extension__ typedef __int128 Wide;  // a sum of many picosecond counts may exceed 64 bits
  Wide sum = 0;
  for (const TransferRecord& flow : flows) {
    stats.bytes += flow.bytes;
    const auto time = completion_time(result, flow);
    if (!time) continue;
    times.push_back(*time);
    sum += times.back().ps();
  }
  stats.delivered = times.size();
  if (times.empty()) return stats;
  std::sort(times.begin(), times.end());
  stats.mean = Time::ps(static_cast<int64_t>(sum / static_cast<Wide>(times.size())));
  stats.median = nearest_rank(times, 50);
  stats.p99 = nearest_rank(times, 99);
  stats.max = times.back();
  return stats;
}

Time sum_of_parts(const RankTimes& rank) {
  return rank.compute + rank.host + rank.exposed_comm + rank.storage + rank.wait + rank.idle;
}

std::pair<std::string_view, double> Shares::dominant() const {
  using Part = std::pair<std::string_view, double>;
  const Part parts[] = {
      {"compute", compute}, {"host work", host},         {"exposed communication", exposed_comm},
      {"storage", storage}, {"waiting for peers", wait}, {"idle time", idle}};
  return *std::max_element(std::begin(parts), std::end(parts),
                           [](const Part& a, const Part& b) { return a.second < b.second; });
}

Shares shares(const std::vector<RankTimes>& ranks) {
  Shares s;
  double total = 0;
  for (const RankTimes& rank : ranks) {
    s.compute += static_cast<double>(rank.compute.ps());
    s.host += static_cast<double>(rank.host.ps());
    s.exposed_comm += static_cast<double>(rank.exposed_comm.ps());
    s.hidden_comm += static_cast<double>(rank.hidden_comm.ps());
    s.storage += static_cast<double>(rank.storage.ps());
    s.wait += static_cast<double>(rank.wait.ps());
    s.idle += static_cast<double>(rank.idle.ps());
    total += static_cast<double>(sum_of_parts(rank).ps());
  }
  if (total <= 0) return {};
  for (double* part :
       {&s.compute, &s.host, &s.exposed_comm, &s.hidden_comm, &s.storage, &s.wait, &s.idle}) {
    *part /= total;
  }
  return s;
}

Shares shares(const Result& result, const JobResult& job) {
  const auto first = result.rank_times.begin() + job.first_rank;
  return shares(std::vector<RankTimes>(first, first + job.ranks));
}

MeanParts mean_parts(const std::vector<RankTimes>& ranks) {
  MeanParts m;
  if (ranks.empty()) return m;
  const double scale = 1e-3 / static_cast<double>(ranks.size());
  const auto add = [&](double& sum, Time t) { sum += static_cast<double>(t.ps()) * scale; };
  for (const RankTimes& r : ranks) {
    add(m.compute_ns, r.compute);
    add(m.host_ns, r.host);
    add(m.storage_ns, r.storage);
    add(m.idle_ns, r.idle);
    for (size_t d = 0; d < kDimensions; ++d) {
      add(m.exposed_ns[d], r.exposed_of[d]);
      add(m.wait_ns[d], r.wait_of[d]);
      add(m.hidden_ns[d], r.hidden_of[d]);
    }
  }
  return m;
}

double slowdown(const JobResult& job) {
  const double alone = job.alone.seconds();
  return alone > 0 ? (job.end - job.start).seconds() / alone - 1 : 0;
}

double utilisation(const LinkRecord& link, const Result& result) {
  if (result.end <= Time()) return 0;
  return static_cast<double>(link.busy.ps()) / static_cast<double>(result.end.ps());
}

std::vector<size_t> hottest_links(const Result& result, size_t count) {
  // All ratios share their denominator, so busy time orders them without rounding.
  return top(result.links.size(), count, [&](size_t i) { return result.links[i].busy; });
}

double pool_ratio(const SwitchRecord& record) {
  return static_cast<double>(record.pool_peak_bytes) / static_cast<double>(record.pool_bytes);
}

std::vector<size_t> fullest_switches(const Result& result, size_t count) {
  return top(result.seen.switches.size(), count,
             [&](size_t i) { return pool_ratio(result.seen.switches[i]); });
}

std::vector<size_t> fullest_headrooms(const Result& result, size_t count) {
  return top(result.seen.headrooms.size(), count, [&](size_t i) {
    const HeadroomRecord& h = result.seen.headrooms[i];
    return static_cast<double>(h.peak_bytes) / static_cast<double>(h.headroom_bytes);
  });
}

std::vector<const TierLoad*> balanced_tiers(const Result& result) {
  std::vector<const TierLoad*> out;
  for (const TierLoad& load : result.tier_loads) {
    if (!load.bytes.group.empty()) out.push_back(&load);
  }
  return out;
}

std::vector<size_t> longest_collectives(const Result& result, size_t count) {
  return top(result.collectives.size(), count,
             [&](size_t i) { return result.collectives[i].finish - result.collectives[i].start; });
}

std::vector<size_t> slowest(const Result& result, const std::vector<TransferRecord>& flows,
                            size_t count) {
  std::vector<size_t> order;
  if (flows.size() > count) {
    order = top(flows.size(), count, [&](size_t i) {
      return completion_time(result, flows[i]).value_or(Time::infinity());
    });
    std::sort(order.begin(), order.end());
    return order;
  }
  order.resize(flows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

const char* span_kind_name(Span::Kind kind) {
  switch (kind) {
    case Span::Kind::compute:
      return "compute";
    case Span::Kind::collective:
      return "collective";
    case Span::Kind::send:
      return "send";
    case Span::Kind::recv:
      return "receive";
    case Span::Kind::memory:
      return "memory";
    case Span::Kind::wait:
      return "wait";
    case Span::Kind::storage:
      return "storage";
  }
  return "";
}

std::string owner_name(const Result& result, uint32_t owner) {
  if (owner < result.flow_owner.size() && !result.flow_owner[owner].empty()) {
    return result.flow_owner[owner];
  }
  return "#" + std::to_string(owner);
}

std::string endpoint_name(const Result& result, uint32_t rank) {
  if (rank < result.endpoint_names.size() && !result.endpoint_names[rank].empty()) {
    return result.endpoint_names[rank];
  }
  return "rank " + std::to_string(rank);
}

bool uncalibrated(const Result& result) {
  return result.compute_source.find("uncalibrated") != std::string::npos;
}

std::vector<SumCheck> sum_checks(const Result& result) {
  std::vector<SumCheck> checks;
  const std::string cut = result.complete ? "" : "the run was cut short";
  if (!result.rank_times.empty()) {
    SumCheck check;
    check.what = "parts of a rank's time sum to the step (rank that is furthest off)";
    check.left_name = "sum of parts";
    check.right_name = "step time";
    check.unit = SumCheck::Unit::picoseconds;
    check.right = result.step_time.ps();
    check.left = check.right;
    int64_t worst = -1;
    const auto compare = [&](size_t first, size_t count, Time step) {
      for (size_t i = first; i < first + count; ++i) {
        const int64_t sum = sum_of_parts(result.rank_times[i]).ps();
        const int64_t off = std::abs(sum - step.ps());
        if (off <= worst) continue;
        worst = off;
        check.left = sum;
        check.right = step.ps();
      }
    };
    if (result.jobs.empty()) compare(0, result.rank_times.size(), result.step_time);
    for (const JobResult& j : result.jobs) compare(j.first_rank, j.ranks, j.end - j.start);
    check.note = cut;
    checks.push_back(std::move(check));
  }
  if (!result.links.empty()) {
    SumCheck wire;
    wire.what = "bytes on the wire, headers included";
    wire.left_name = "sum over links";
    wire.right_name = "engine total";
    SumCheck payload;
    payload.what = "payload times links crossed";
    payload.left_name = "sum over links";
    payload.right_name = "sum over flows of size x hops";
    for (const LinkRecord& link : result.links) {
      wire.left += link.bytes;
      payload.left += link.data_bytes;
    }
    for (const auto* flows : {&result.flows, &result.background}) {
      for (const TransferRecord& flow : *flows) {
        payload.right += flow.bytes * static_cast<int64_t>(flow.hops);
      }
    }
    wire.right = result.totals.wire_bytes;
    payload.note = cut;
    if (result.totals.drops + result.totals.retransmitted > 0) {
      payload.note += payload.note.empty() ? "" : "; ";
      payload.note += "retransmissions cross links again, drops end early";
    }
    if (!result.background.empty()) {
      payload.note += payload.note.empty() ? "" : "; ";
      payload.note += "background traffic was cut off at the end";
    }
    if (result.totals.reroutes > 0) {
      payload.note += payload.note.empty() ? "" : "; ";
      payload.note += "flows changed their path";
    }
    checks.push_back(std::move(wire));
    checks.push_back(std::move(payload));
  }
  return checks;
}

}  // namespace trainyard::report
