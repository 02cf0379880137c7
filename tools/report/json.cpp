// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "tools/report/analysis.h"
#include "tools/report/report.h"
#include "tools/report/text.h"

namespace trainyard {
namespace {

using Json = nlohmann::ordered_json;

/// Of more ranks the first, of more collectives the longest have a row; tables hold more.
constexpr size_t kMostRows = 10'000;

/// A number written digit by digit. Through a double, 0.1 + 0.2 style digits would appear and long
/// runs would lose picoseconds; JSON has no other number type to offer, so the digits travel in a
/// node type that nothing else in the document uses.
Json exact(Time t) {
  const std::string digits = report::exact_ns(t, false);
  return Json::binary({digits.begin(), digits.end()});
}
Json exact_if(bool known, Time t) {
  return known ? exact(t) : Json(nullptr);
}
Json text(const std::string& value) {
  return report::valid_utf8(value);
}
Json real(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

bool is_leaf(const Json& node) {
  return !node.is_structured() || node.empty();
}

/// Indented, except that the flat objects of a list take one line each.
void print(const Json& node, size_t indent, bool one_line, std::string& out) {
  if (node.is_binary()) {
    out.append(node.get_binary().begin(), node.get_binary().end());
    return;
  }
  if (is_leaf(node)) {
    out += node.dump();
    return;
  }
  const bool object = node.is_object();
  out += object ? '{' : '[';
  const std::string pad = one_line ? "" : "\n" + std::string(indent + 2, ' ');
  bool first = true;
  for (const auto& [key, child] : node.items()) {
    if (!first) out += one_line ? ", " : ",";
    first = false;
    out += pad;
    if (object) out += Json(key).dump() + ": ";
    bool flat = child.is_object() && !object;
    for (const Json& grandchild : child) flat = flat && is_leaf(grandchild);
    print(child, indent + 2, one_line || flat, out);
  }
  if (!one_line) out += "\n" + std::string(indent, ' ');
  out += object ? '}' : ']';
}

/// Null where the engine does not simulate packets.
template <class T>
Json modelled(const Result& result, const T& value) {
  return result.packets_modelled ? Json(value) : Json(nullptr);
}

Json totals(const Result& result) {
  const FabricTotals& t = result.totals;
  const auto packets = [&](uint64_t n) { return modelled(result, n); };
  return {{"events", t.events},
          {"link_transmissions", t.transmissions},
          {"data_packets", t.data_packets},
          {"ack_packets", t.ack_packets},
          {"cnp_packets", packets(t.cnp_packets)},
          {"pfc_frames", packets(t.pfc_frames)},
          {"pfc_pauses", packets(t.pfc_pauses)},
          {"pfc_resumes", packets(t.pfc_resumes)},
          {"ecn_marks", packets(t.ecn_marks)},
          {"drops", packets(t.drops)},
          {"retransmitted_packets", packets(t.retransmitted)},
          {"timeouts", packets(t.timeouts)},
          {"nacks", packets(t.nacks)},
          {"rate_changes", packets(t.rate_changes)},
          {"out_of_order_packets", packets(t.out_of_order)},
          {"pfc_refreshes", packets(t.pfc_refreshes)},
          {"watchdog_events", packets(t.watchdog_events)},
          {"reroutes", packets(t.reroutes)},
          {"cyclic_waits", packets(t.cyclic_waits)},
          {"payload_bytes", t.payload_bytes},
          {"wire_bytes", t.wire_bytes}};
}

Json rank_row(const Result& result, const RankTimes& r) {
  return {{"rank", r.rank},
          {"node", text(report::endpoint_name(result, r.rank))},
          {"finish_ns", exact(r.finish)},
          {"compute_ns", exact(r.compute)},
          {"host_ns", exact(r.host)},
          {"exposed_comm_ns", exact(r.exposed_comm)},
          {"storage_ns", exact(r.storage)},
          {"wait_ns", exact(r.wait)},
          {"idle_ns", exact(r.idle)},
          {"sum_ns", exact(report::sum_of_parts(r))},
          {"hidden_comm_ns", exact(r.hidden_comm)},
          {"total_comm_ns", exact(r.exposed_comm + r.hidden_comm)}};
}

Json by_dimension(const std::array<double, kDimensions>& ns) {
  Json out = Json::object();
  for (size_t d = 0; d < kDimensions; ++d) {
    if (ns[d] == 0) continue;
    out[dimension_name(static_cast<Dimension>(d)) + std::string("_ns")] = real(ns[d]);
  }
  return out;
}

Json figures(const std::vector<TrainingFigure>& list) {
  Json out = Json::object();
  for (const TrainingFigure& f : list) out[text(f.key)] = real(f.value);
  return out;
}

/// Means over ranks; they sum to the step.
Json parts(const std::vector<RankTimes>& ranks) {
  const report::MeanParts m = report::mean_parts(ranks);
  return {{"compute_ns", real(m.compute_ns)},        {"host_ns", real(m.host_ns)},
          {"storage_ns", real(m.storage_ns)},        {"exposed_comm", by_dimension(m.exposed_ns)},
          {"wait", by_dimension(m.wait_ns)},         {"idle_ns", real(m.idle_ns)},
          {"hidden_comm", by_dimension(m.hidden_ns)}};
}

Json job_object(const Result& result, const JobResult& j) {
  const auto first = result.rank_times.begin() + j.first_rank;
  Json out = {{"name", text(j.name)},
              {"ranks", j.ranks},
              {"first_rank", j.first_rank},
              {"gpus", text(j.gpus)},
              {"traffic_class", j.traffic_class},
              {"start_ns", exact(j.start)},
              {"end_ns", exact(j.end)},
              {"time_ns", exact(j.end - j.start)},
              {"alone_ns", exact_if(j.alone > Time(), j.alone)},
              {"slowdown_ratio", j.alone > Time() ? real(report::slowdown(j)) : Json(nullptr)},
              {"compute_source", text(j.compute_source)},
              {"mean_rank", parts(std::vector<RankTimes>(first, first + j.ranks))}};
  if (!j.training.empty()) out["training"] = figures(j.training);
  if (!j.energy.empty()) out["energy"] = figures(j.energy);
  return out;
}

Json collective_row(const CollectiveRecord& c) {
  return {{"index", c.index},
          {"name", text(c.name)},
          {"kind", collective_name(c.kind)},
          {"algorithm", text(c.algorithm)},
          {"group", text(c.group)},
          {"ranks", c.ranks},
          {"size_bytes", c.bytes},
          {"first_arrival_ns", exact(c.first_arrival)},
          {"start_ns", exact(c.start)},
          {"finish_ns", exact(c.finish)},
          {"time_ns", exact(c.finish - c.start)},
          {"wait_max_ns", exact(c.wait_max)},
          {"kernel_mean_ns", exact(c.kernel_mean)},
          {"transfers", c.transfers},
          {"wire_payload_bytes", c.wire_payload},
          {"link_transmissions", c.transmissions},
          {"algbw_gbytes_per_s", real(c.algbw_gbytes_per_s)},
          {"busbw_gbytes_per_s", real(c.busbw_gbytes_per_s)},
          {"cts_count", c.cts_count},
          {"cts_p50_ns", exact_if(c.cts_count > 0, c.cts_p50)},
          {"cts_p90_ns", exact_if(c.cts_count > 0, c.cts_p90)},
          {"cts_p99_ns", exact_if(c.cts_count > 0, c.cts_p99)}};
}

Json link_row(const Result& result, const LinkRecord& link) {
  return {{"from", text(link.from)},
          {"to", text(link.to)},
          {"tier", text(link.tier)},
          {"rate_bps", link.rate.bps()},
          {"utilisation_ratio", real(report::utilisation(link, result))},
          {"busy_ns", exact(link.busy)},
          {"packets", link.packets},
          {"wire_bytes", link.bytes},
          {"payload_bytes", link.data_bytes},
          {"ecn_marks", modelled(result, link.ecn_marks)},
          {"pauses_received_count", modelled(result, link.pauses_received)},
          {"paused_ns", exact_if(result.packets_modelled, link.paused)},
          {"peak_queue_bytes", modelled(result, link.peak_queue_bytes)},
          {"drops", modelled(result, link.drops)},
          {"queue_pairs_count", real(link.queue_pairs)}};
}

Json fault_row(const FaultRecord& f) {
  return {{"at_ns", exact(f.at)},
          {"until_ns", exact_if(f.until != Time::infinity(), f.until)},
          {"kind", text(f.kind)},
          {"component", text(f.component)},
          {"what", text(f.text)}};
}

Json flow_summary(const Result& result, const std::vector<TransferRecord>& flows) {
  const report::FlowStats stats = report::flow_stats(result, flows);
  const bool any = stats.delivered > 0;
  return {{"flow_count", stats.count},
          {"delivered_count", stats.delivered},
          {"size_bytes", stats.bytes},
          {"fct_mean_ns", exact_if(any, stats.mean)},
          {"fct_median_ns", exact_if(any, stats.median)},
          {"fct_p99_ns", exact_if(any, stats.p99)},
          {"fct_max_ns", exact_if(any, stats.max)}};
}

Json link_summary(const Result& result) {
  double sum = 0;
  for (const LinkRecord& link : result.links) sum += report::utilisation(link, result);
  Json top = Json::array();
  for (const size_t i : report::hottest_links(result, 20)) {
    top.push_back(link_row(result, result.links[i]));
  }
  const auto n = static_cast<double>(result.links.size());
  return {{"directed_link_count", result.links.size()},
          {"mean_utilisation_ratio", result.links.empty() ? Json(nullptr) : real(sum / n)},
          {"hottest", std::move(top)}};
}

Json load_balance(const Result& result) {
  Json list = Json::array();
  for (const TierLoad& load : result.tier_loads) {
    Json row = {{"tier", text(load.tier)},
                {"direction", text(load.direction)},
                {"link_count", load.links},
                {"used_link_count", load.used},
                {"payload_bytes", static_cast<int64_t>(load.bytes.total)}};
    const auto add = [&](const std::string& what, const TierLoad::Spread& s) {
      const bool any = s.total > 0;
      const bool groups = !s.group.empty();
      row[what + "_max_to_mean_ratio"] = any ? real(s.max_to_mean) : Json(nullptr);
      row[what + "_skew_ratio"] = any ? real(s.skew) : Json(nullptr);
      row[what + "_parallel_mean_ratio"] = groups ? real(s.group_mean) : Json(nullptr);
      row[what + "_parallel_worst_ratio"] = groups ? real(s.group_max) : Json(nullptr);
      row[what + "_parallel_worst"] = groups ? text(s.group) : Json(nullptr);
    };
    add("bytes", load.bytes);
    add("queue_pairs", load.queue_pairs);
    const TierLoad::Windows& w = load.windows;
    Json& windows = row["windows"] = nullptr;
    if (w.count > 0) {
      const bool groups = w.group_count > 0;
      windows = {{"window_ns", exact(result.tier_series.window)},
                 {"window_count", w.count},
                 {"bytes_max_to_mean_p50_ratio", real(w.p50)},
                 {"bytes_max_to_mean_mean_ratio", real(w.mean)},
                 {"bytes_max_to_mean_max_ratio", real(w.max)},
                 {"bytes_max_to_mean_max_at_ns", exact(w.worst)},
                 {"bytes_parallel_worst_p50_ratio", groups ? real(w.group_p50) : Json(nullptr)},
                 {"bytes_parallel_worst_max_ratio", groups ? real(w.group_max) : Json(nullptr)}};
    }
    list.push_back(std::move(row));
  }
  return list;
}

Json nics(const Result& result) {
  NicRecord sum;
  for (const NicRecord& n : result.seen.nics) {
    sum.out_of_sequence += n.out_of_sequence;
    sum.ack_timeouts += n.ack_timeouts;
    sum.nacks_sent += n.nacks_sent;
    sum.nacks_received += n.nacks_received;
    sum.cnps_sent += n.cnps_sent;
    sum.cnps_received += n.cnps_received;
    sum.pauses_sent += n.pauses_sent;
    sum.pauses_received += n.pauses_received;
    sum.link_downs += n.link_downs;
    sum.receive_buffer_peak_bytes =
        std::max(sum.receive_buffer_peak_bytes, n.receive_buffer_peak_bytes);
  }
  return {{"port_count", result.seen.nics.size()},
          {"out_of_sequence_count", sum.out_of_sequence},
          {"ack_timeout_count", sum.ack_timeouts},
          {"nacks_sent_count", sum.nacks_sent},
          {"nacks_received_count", sum.nacks_received},
          {"cnps_sent_count", sum.cnps_sent},
          {"cnps_received_count", sum.cnps_received},
          {"pauses_sent_count", sum.pauses_sent},
          {"pauses_received_count", sum.pauses_received},
          {"link_down_count", sum.link_downs},
          {"receive_buffer_peak_bytes", sum.receive_buffer_peak_bytes}};
}

Json buffers(const Result& result) {
  Json pools = Json::array();
  for (const size_t i : report::fullest_switches(result, 20)) {
    const SwitchRecord& s = result.seen.switches[i];
    pools.push_back({{"switch", text(s.name)},
                     {"pool_bytes", s.pool_bytes},
                     {"pool_peak_bytes", s.pool_peak_bytes},
                     {"pool_peak_ratio", real(report::pool_ratio(s))}});
  }
  Json headrooms = Json::array();
  for (const size_t i : report::fullest_headrooms(result, 20)) {
    const HeadroomRecord& h = result.seen.headrooms[i];
    const LinkRecord& link = result.links.at(h.link);
    headrooms.push_back({{"switch", text(link.to)},
                         {"from", text(link.from)},
                         {"class", h.traffic_class},
                         {"headroom_bytes", h.headroom_bytes},
                         {"peak_bytes", h.peak_bytes}});
  }
  return {{"switch_count", result.seen.switches.size()},
          {"fullest_pools", std::move(pools)},
          {"used_headroom_count", result.seen.headrooms.size()},
          {"fullest_headrooms", std::move(headrooms)}};
}

/// What only telemetry that was asked for adds.
void telemetry(const Result& result, Json& doc) {
  const QpSeries& qps = result.seen.qp_series;
  if (qps.window > Time()) {
    size_t rows = 0;
    for (const auto& qp : qps.qps) rows += qp.size();
    doc["qp_series"] = {{"window_ns", exact(qps.window)},
                        {"asked_window_ns", exact(qps.asked)},
                        {"queue_pair_count", qps.qps.size()},
                        {"row_count", rows}};
  }
  const PacketSamples& samples = result.seen.samples;
  if (samples.asked_q32 > 0) {
    constexpr double kOne = 4294967296.0;
    size_t delivered = 0, lost = 0;
    for (const PacketSample& s : samples.packets) {
      delivered += s.fate == PacketSample::Fate::delivered ? 1 : 0;
      lost += s.fate == PacketSample::Fate::lost ? 1 : 0;
    }
    Json tiers = Json::array();
    for (const TierQueueing& t : result.tier_queueing) {
      tiers.push_back({{"tier", text(t.tier)},
                       {"direction", text(t.direction)},
                       {"count", t.count},
                       {"p50_ns", exact(t.p50)},
                       {"p99_ns", exact(t.p99)},
                       {"max_ns", exact(t.max)}});
    }
    doc["packet_samples"] = {{"ratio", real(static_cast<double>(samples.ratio_q32) / kOne)},
                             {"asked_ratio", real(static_cast<double>(samples.asked_q32) / kOne)},
                             {"packet_count", samples.packets.size()},
                             {"delivered_count", delivered},
                             {"lost_count", lost},
                             {"queueing", std::move(tiers)}};
  }
  if (result.seen.flows.asked) {
    doc["switch_flows"] = {{"row_count", result.seen.flows.rows.size()}};
  }
}

Json checks(const Result& result) {
  Json list = Json::array();
  for (const report::SumCheck& check : report::sum_checks(result)) {
    const bool bytes = check.unit == report::SumCheck::Unit::bytes;
    const std::string suffix = bytes ? "_bytes" : "_ns";
    const auto value = [&](int64_t v) { return bytes ? Json(v) : exact(Time::ps(v)); };
    list.push_back({{"what", check.what},
                    {"left", check.left_name},
                    {"left" + suffix, value(check.left)},
                    {"right", check.right_name},
                    {"right" + suffix, value(check.right)},
                    {"equal", check.holds()},
                    {"note", check.note}});
  }
  return list;
}

}  // namespace

std::string result_json(const Result& result) {
  const report::Shares shares = report::shares(result.rank_times);
  const bool ranked = !result.rank_times.empty();
  const bool stepped = result.step_time > Time();
  const auto ratio = [&](double value) { return ranked ? real(value) : Json(nullptr); };

  Json doc;
  doc["schema_version"] = Result::kSchemaVersion;
  doc["trainyard_version"] = text(result.version);
  doc["scenario"] = {{"name", text(result.scenario_name)},
                     {"file", text(result.scenario_file)},
                     {"engine", text(result.engine)},
                     {"seed", result.seed},
                     {"compute_source", text(result.compute_source)}};
  doc["complete"] = result.complete;
  doc["incomplete_reason"] = result.complete ? Json(nullptr) : text(result.incomplete_reason);
  Json& trust = doc["trust"] = Json::array();
  for (const TrustNote& note : result.trust) {
    trust.push_back(
        {{"topic", text(note.topic)}, {"text", text(note.text)}, {"caution", note.caution}});
  }
  Json& warnings = doc["warnings"] = Json::array();
  for (const std::string& warning : result.warnings) warnings.push_back(text(warning));
  doc["fingerprint"] = fmt::format("{:016x}", result.fingerprint);
  doc["cluster"] = {{"ranks", result.ranks},
                    {"rank_classes", result.rank_classes},
                    {"nodes", result.nodes},
                    {"switches", result.switches},
                    {"links", result.links_count}};
  if (result.fast_path) {
    const FastPathStats& f = *result.fast_path;
    doc["fast_path"] = {{"domains", f.domains},
                        {"domains_followed", f.followed},
                        {"episodes", f.episodes},
                        {"payload_simulated_bytes", f.bytes_simulated},
                        {"payload_jumped_bytes", f.bytes_jumped},
                        {"payload_followed_bytes", f.bytes_followed},
                        {"transmissions_simulated", f.transmissions_simulated},
                        {"transmissions_jumped", f.transmissions_jumped},
                        {"transmissions_followed", f.transmissions_followed},
                        {"period_jumps", f.jumps},
                        {"stretches_followed", f.stretches},
                        {"payload_stretches_bytes", f.bytes_stretches},
                        {"ops_replayed", result.ops_replayed},
                        {"events", f.events},
                        {"events_again", f.events_again},
                        {"stepping", f.stepping},
                        {"domains_stepped", f.stepped},
                        {"payload_followed_stepped_bytes", f.bytes_followed_stepped},
                        {"stepping_trials", f.trials},
                        {"payload_stepped_bytes", f.bytes_stepped},
                        {"transmissions_stepped", f.transmissions_stepped},
                        {"events_stepped", f.events_stepped},
                        {"stepping_stopped", f.stepping_stopped},
                        {"pauses_not_followed", f.pauses_not_followed},
                        {"audit_domains", f.audited},
                        {"audit_events", f.audit_events},
                        {"audit_payload_bytes", f.bytes_audited},
                        {"audit_n", f.audit_n},
                        {"audit_mean_error_pct", f.audit_mean_pct()},
                        {"audit_max_error_pct", f.audit_max_pct},
                        {"materialised", f.materialised},
                        {"merges", f.merges},
                        {"joined", f.joined},
                        {"pool_merges", f.pool_merges},
                        {"disturbances", f.disturbances},
                        {"payload_disturbed_bytes", f.bytes_disturbed},
                        {"dice_domains", f.dice_domains},
                        {"largest_domain_links", f.largest_domain},
                        {"evicted_episodes", f.evicted},
                        {"memo_bytes", f.memo_bytes}};
  }
  doc["end_ns"] = exact(result.end);
  doc["step_time_ns"] = exact_if(stepped, result.step_time);
  doc["shares"] = {{"compute_ratio", ratio(shares.compute)},
                   {"host_ratio", ratio(shares.host)},
                   {"exposed_comm_ratio", ratio(shares.exposed_comm)},
                   {"storage_ratio", ratio(shares.storage)},
                   {"wait_ratio", ratio(shares.wait)},
                   {"idle_ratio", ratio(shares.idle)},
                   {"hidden_comm_ratio", ratio(shares.hidden_comm)}};
  if (ranked) doc["mean_rank"] = parts(result.rank_times);
  if (!result.jobs.empty()) {
    Json& jobs = doc["jobs"] = Json::array();
    for (const JobResult& j : result.jobs) jobs.push_back(job_object(result, j));
  }
  if (!result.training.empty()) doc["training"] = figures(result.training);
  if (!result.energy.empty()) doc["energy"] = figures(result.energy);
  if (result.power.window > Time()) {
    double peak = 0;
    for (const PowerSeries::Row& row : result.power.rows) peak = std::max(peak, row.watts);
    doc["power_series"] = {{"window_ns", exact(result.power.window)},
                           {"asked_window_ns", exact(result.power.asked)},
                           {"row_count", result.power.rows.size()},
                           {"peak_window_watts", real(peak)}};
  }
  doc["totals"] = totals(result);
  Json& rank_times = doc["rank_times"] = Json::array();
  for (size_t i = 0; i < std::min(kMostRows, result.rank_times.size()); ++i) {
    rank_times.push_back(rank_row(result, result.rank_times[i]));
  }
  Json& collectives = doc["collectives"] = Json::array();
  std::vector<size_t> longest = report::longest_collectives(result, kMostRows);
  std::sort(longest.begin(), longest.end());
  for (const size_t i : longest) collectives.push_back(collective_row(result.collectives[i]));
  // By count: a key more may move `rank_times` and `collectives` elsewhere.
  doc["left_out"] = {{"rank_times_count",
                      result.rank_times.size() - std::min(kMostRows, result.rank_times.size())},
                     {"collectives_count",
                      result.collectives.size() - longest.size() + result.collectives_dropped},
                     {"collectives_csv_count", result.collectives_dropped}};
  if (!result.durations.empty()) {
    Json& durations = doc["durations"] = Json::array();
    for (const DurationRow& d : result.durations) {
      if (d.rank >= 0 || durations.size() == 200) break;
      durations.push_back({{"kernel", text(d.kernel)},
                           {"stream", text(d.stream)},
                           {"ops_count", d.count},
                           {"p50_ns", exact(d.p50)},
                           {"p99_ns", exact(d.p99)},
                           {"total_ns", exact(d.total)}});
    }
  }
  doc["flows"] = flow_summary(result, result.flows);
  doc["background"] = flow_summary(result, result.background);
  Json& faults = doc["faults"] = Json::array();
  for (const FaultRecord& f : result.faults) faults.push_back(fault_row(f));
  doc["links"] = link_summary(result);
  if (result.link_series.window > Time()) {
    size_t rows = 0;
    for (const auto& link : result.link_series.links) rows += link.size();
    doc["link_series"] = {{"window_ns", exact(result.link_series.window)},
                          {"asked_window_ns", exact(result.link_series.asked)},
                          {"row_count", rows}};
  }
  doc["load_balance"] = load_balance(result);
  doc["nics"] = result.packets_modelled && !result.seen.nics.empty() ? nics(result) : Json(nullptr);
  doc["buffers"] =
      result.packets_modelled && !result.seen.switches.empty() ? buffers(result) : Json(nullptr);
  telemetry(result, doc);
  doc["checks"] = checks(result);
  Json& settings = doc["settings"] = Json::object();
  for (const auto& [key, value] : result.settings) settings[report::valid_utf8(key)] = text(value);

  // Everything that depends on the machine and not on the simulated system stands here, so that
  // the rest can be compared byte by byte.
  const auto per_second = [&](uint64_t n) {
    return result.wall_s > 0 ? real(static_cast<double>(n) / result.wall_s) : Json(nullptr);
  };
  doc["host"] = {
      {"build_type", text(result.build_type)},
      {"load_wall_s", real(result.load_wall_s)},
      {"setup_wall_s", real(result.setup_wall_s)},
      {"wall_s", real(result.wall_s)},
      {"peak_rss_bytes", result.peak_rss_bytes},
      {"link_transmissions_per_s",
       result.packets_modelled ? per_second(result.totals.transmissions) : Json(nullptr)},
      {"events_per_s", per_second(result.totals.events)}};

  std::string out;
  print(doc, 0, false, out);
  out += '\n';
  return out;
}

}  // namespace trainyard
