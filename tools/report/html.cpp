// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "tools/report/analysis.h"
#include "tools/report/charts.h"
#include "tools/report/report.h"
#include "tools/report/style.h"
#include "tools/report/text.h"

namespace trainyard {
namespace {

using report::counted;
using report::escape_html;
using report::grouped;
using report::in_scale;
using report::percent;
using report::time_scale;
using report::TimeScale;
using report::typeset;

std::string pretty(Time t) {
  return typeset(print_time(t, 5));
}
std::string pretty(Bytes b) {
  return typeset(print_bytes(b, 4));
}
std::string volume(int64_t bytes) {
  return typeset(report::volume(static_cast<uint64_t>(std::max<int64_t>(bytes, 0))));
}

/// A table with a caption for screen readers, in a box of its own that scrolls when it is too wide.
class Table {
 public:
  struct Column {
    std::string title;
    bool text = false;  ///< numbers are aligned right
  };
  Table(const std::string& name, std::vector<Column> columns) : columns_(std::move(columns)) {
    out_ = fmt::format(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\"><table>"
        "<caption class=\"aural\">{0}</caption><thead><tr>",
        escape_html(name));
    for (const Column& c : columns_) {
      out_ += fmt::format("<th scope=\"col\"{}>{}</th>", c.text ? " class=\"t\"" : "",
                          escape_html(c.title));
    }
    out_ += "</tr></thead><tbody>\n";
  }
  /// Cells are plain text; the first one names the row.
  void row(const std::vector<std::string>& cells) {
    out_ += "<tr>";
    for (size_t c = 0; c < cells.size(); ++c) {
      const char* tag = c == 0 ? "th scope=\"row\"" : "td";
      out_ += fmt::format("<{}{}>{}</{}>", tag, columns_[c].text ? " class=\"t\"" : "",
                          escape_html(cells[c]), c == 0 ? "th" : "td");
    }
    out_ += "</tr>\n";
  }
  std::string take() { return std::move(out_) + "</tbody></table></div>\n"; }

 private:
  std::vector<Column> columns_;
  std::string out_;
};

void open_section(const char* id, const char* title, std::string& out) {
  out += fmt::format("<section aria-labelledby=\"{0}\">\n<h2 id=\"{0}\">{1}</h2>\n", id, title);
}
void close_section(std::string& out) {
  out += "</section>\n";
}

void note(const std::string& text, std::string& out) {
  if (!text.empty()) out += "<p class=\"note\">" + escape_html(text) + "</p>\n";
}

struct Key {
  const char* css;
  const char* text;
};
void legend(std::initializer_list<Key> keys, std::string& out) {
  out += "<p class=\"legend\">";
  for (const Key& key : keys) {
    out += fmt::format("<span><i class=\"k {}\"></i>{}</span>", key.css, key.text);
  }
  out += "</p>\n";
}

std::string link_name(const LinkRecord& link) {
  return link.from + " \u2192 " + link.to;
}

bool any_link_used(const Result& result) {
  return std::any_of(result.links.begin(), result.links.end(),
                     [](const LinkRecord& link) { return link.busy > Time() || link.packets > 0; });
}

/// The run in two or three sentences.
std::string headline(const Result& result) {
  const bool ranked = !result.rank_times.empty();
  std::string text;
  if (result.step_time > Time()) {
    text = fmt::format("<strong>The step takes {}</strong> on {}", pretty(result.step_time),
                       counted(result.ranks, "rank", "ranks"));
    text += report::uncalibrated(result)
                ? " <span class=\"remark\">(uncalibrated: read it as relative)</span>. "
                : ". ";
  } else if (!result.complete) {
    text = fmt::format("<strong>The run stopped at {}</strong> of simulated time. ",
                       pretty(result.end));
  }
  if (ranked) {
    const report::Shares s = report::shares(result.rank_times);
    const auto [dominant, share] = s.dominant();
    const auto shown = [](double ratio) { return escape_html(percent(ratio)) + "\u00a0%"; };
    text += fmt::format(
        "Exposed communication is {} of it, averaged over ranks, and waiting for peers {}. "
        "{}{} dominates with {}. ",
        shown(s.exposed_comm), shown(s.wait), static_cast<char>(dominant[0] - 'a' + 'A'),
        dominant.substr(1), shown(share));
  }
  const report::FlowStats flows = report::flow_stats(result);
  if (flows.count == 0) {
    text += "There are 0 flows: nothing communicated. ";
  } else if (!ranked) {
    text +=
        fmt::format("<strong>{} of {} in all, in {}</strong>",
                    counted(flows.count, "flow", "flows"), volume(flows.bytes), pretty(result.end));
    if (flows.delivered > 0) {
      text += fmt::format(": half of them complete within {}, the slowest takes {}",
                          pretty(flows.median), pretty(flows.max));
    }
    text += ". ";
  }
  if (any_link_used(result)) {
    const LinkRecord& hot = result.links[report::hottest_links(result, 1).front()];
    text += fmt::format("The busiest link is {} ({}), busy {}\u00a0% of the time.",
                        escape_html(link_name(hot)), escape_html(hot.tier),
                        escape_html(percent(report::utilisation(hot, result))));
  }
  return text;
}

void head(const Result& result, std::string& out) {
  const std::string name =
      result.scenario_name.empty() ? "Unnamed scenario" : escape_html(result.scenario_name);
  out +=
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n";
  out += fmt::format("<title>{} \u00b7 Trainyard report</title>\n<style>\n{}</style>\n</head>\n",
                     name, report::kStyle);
  // The hatch of waiting time is shared by all charts of the page.
  out +=
      "<body>\n<svg class=\"defs\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>"
      "<pattern id=\"hatch\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"rotate(45)\"><rect class=\"hatch-ground\" width=\"5\" height=\"5\"/>"
      "<rect class=\"hatch-line\" width=\"2\" height=\"5\"/></pattern></defs></svg>\n";
  out += "<main>\n<header>\n<p class=\"product\">Trainyard simulation report</p>\n";
  out += fmt::format("<h1>{}</h1>\n", name);
  if (!result.complete) {
    const std::string reason = result.incomplete_reason.empty()
                                   ? "the run was cut short"
                                   : escape_html(result.incomplete_reason);
    out += fmt::format(
        "<p class=\"banner\"><strong>Incomplete run:</strong> {}. Everything below is up to {} of "
        "simulated time.</p>\n",
        reason, pretty(result.end));
  }
  out += "<p class=\"lead\">" + headline(result) + "</p>\n<p class=\"meta\">";
  if (!result.scenario_file.empty()) {
    out += fmt::format("<span>{}</span>", escape_html(result.scenario_file));
  }
  out += fmt::format(
      "<span>{} engine</span><span>seed {}</span><span>fingerprint <code>{:016x}</code></span>"
      "<span>version {}</span></p>\n</header>\n",
      escape_html(result.engine), result.seed, result.fingerprint, escape_html(result.version));
}

void trust(const Result& result, std::string& out) {
  open_section("trust", "How far to trust this", out);
  if (result.trust.empty()) {
    note("Nothing was recorded about this run.", out);
  } else {
    // Cautions first: a reader who stops early has seen them.
    out += "<ul class=\"trust\">\n";
    for (const bool caution : {true, false}) {
      for (const TrustNote& entry : result.trust) {
        if (entry.caution != caution) continue;
        out += fmt::format("<li{}><span class=\"topic\">{}{}</span><span>{}</span></li>\n",
                           caution ? " class=\"caution\"" : "", caution ? "<b>Caution</b> " : "",
                           escape_html(entry.topic), escape_html(entry.text));
      }
    }
    out += "</ul>\n";
  }
  if (!result.warnings.empty()) {
    out += "<h3>Warnings of the run</h3>\n<ul class=\"plain\">\n";
    for (const std::string& warning : result.warnings) {
      out += "<li>" + escape_html(warning) + "</li>\n";
    }
    out += "</ul>\n";
  }
  close_section(out);
}

void percentages(const Result& result, std::string& out) {
  if (result.rank_times.empty()) return;
  note(
      "Percentages are parts of the time of all ranks together. Compute, host, exposed "
      "communication, wait and idle sum to 100 %; hidden communication runs behind compute and "
      "comes on top.",
      out);
}

void key_figures(const Result& result, std::string& out) {
  open_section("figures", "Key figures", out);
  const FabricTotals& t = result.totals;
  out += "<div class=\"cards\">\n";
  const auto open = [&](const char* name) {
    out += fmt::format("<table class=\"pairs\"><caption>{}</caption><tbody>\n", name);
  };
  const auto row = [&](const char* name, const std::string& value) {
    out += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", name, escape_html(value));
  };
  const auto close = [&] { out += "</tbody></table>\n"; };

  open("Time");
  if (result.step_time > Time()) {
    row("Step time",
        pretty(result.step_time) + (report::uncalibrated(result) ? " (uncalibrated)" : ""));
  }
  row("Simulated time", pretty(result.end));
  if (!result.rank_times.empty()) {
    const report::Shares s = report::shares(result.rank_times);
    const std::string suffix = "\u00a0%";
    row("Compute", percent(s.compute) + suffix);
    if (s.host > 0) row("Host", percent(s.host) + suffix);
    row("Exposed communication", percent(s.exposed_comm) + suffix);
    if (s.storage > 0) row("Storage", percent(s.storage) + suffix);
    row("Wait for peers", percent(s.wait) + suffix);
    row("Idle", percent(s.idle) + suffix);
    row("Hidden communication", percent(s.hidden_comm) + suffix);
  }
  if (!result.compute_source.empty()) row("Source of compute times", result.compute_source);
  close();

  open("System");
  row("Ranks", grouped(result.ranks));
  if (result.rank_classes > 0) row("Rank classes", grouped(result.rank_classes));
  row("Nodes", grouped(result.nodes));
  row("Switches", grouped(result.switches));
  row("Links", grouped(result.links_count));
  close();

  open("Traffic");
  row("Flows", grouped(result.flows.size()));
  if (!result.background.empty()) row("Background flows", grouped(result.background.size()));
  row("Collectives", grouped(result.collectives.size()));
  row("Payload delivered", volume(t.payload_bytes));
  row("Bytes on all links", volume(t.wire_bytes));
  row("Link transmissions", grouped(t.transmissions));
  row("Data packets", grouped(t.data_packets));
  row("ACK packets", grouped(t.ack_packets));
  close();

  open("Congestion and loss");
  if (!result.packets_modelled) {
    row("PFC, ECN, congestion control, losses", "not modelled by the " + result.engine + " engine");
    close();
    out += "</div>\n";
    percentages(result, out);
    close_section(out);
    return;
  }
  row("PFC pauses", grouped(t.pfc_pauses));
  row("ECN marks", grouped(t.ecn_marks));
  row("CNP packets", grouped(t.cnp_packets));
  row("Rate changes", grouped(t.rate_changes));
  row("Drops", grouped(t.drops));
  row("Retransmitted packets", grouped(t.retransmitted));
  row("Timeouts", grouped(t.timeouts));
  row("NACKs", grouped(t.nacks));
  for (const auto& [name, count] : report::rare_totals(t)) {
    std::string label = name;
    label[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(label[0])));
    if (count > 0) row(label.c_str(), grouped(count));
  }
  close();
  out += "</div>\n";
  percentages(result, out);
  close_section(out);
}

void jobs(const Result& result, std::string& out) {
  if (result.jobs.empty()) return;
  open_section("jobs", "Jobs", out);
  Table table("Jobs on this fabric", {{"Job", true},
                                      {"GPUs", true},
                                      {"Ranks"},
                                      {"Class"},
                                      {"Start"},
                                      {"Time"},
                                      {"Compute"},
                                      {"Exposed comm."},
                                      {"Wait"},
                                      {"Idle"},
                                      {"Alone"},
                                      {"Slower by"}});
  const std::string suffix = "\u00a0%";
  for (const JobResult& j : result.jobs) {
    const report::Shares s = report::shares(result, j);
    const bool alone = j.alone > Time();
    table.row({j.name, j.gpus, grouped(j.ranks), std::to_string(j.traffic_class), pretty(j.start),
               pretty(j.end - j.start), percent(s.compute) + suffix,
               percent(s.exposed_comm) + suffix, percent(s.wait) + suffix, percent(s.idle) + suffix,
               alone ? pretty(j.alone) : "not run",
               alone ? fmt::format("{:+.1f}{}", 100 * report::slowdown(j), suffix) : ""});
  }
  out += table.take();
  note(
      "Times count from the start of each job. Alone: the same job on the same GPUs without the "
      "others, where output.interference asked for it.",
      out);
  close_section(out);
}

void faults(const Result& result, std::string& out) {
  if (result.faults.empty()) return;
  open_section("faults", "Faults that happened", out);
  Table table("Faults that happened",
              {{"Kind", true}, {"Where", true}, {"What", true}, {"From"}, {"Until"}});
  constexpr size_t kMost = 500;
  for (size_t i = 0; i < std::min(kMost, result.faults.size()); ++i) {
    const FaultRecord& f = result.faults[i];
    table.row({f.kind, f.component, f.text, pretty(f.at),
               f.until == Time::infinity() ? "the end" : pretty(f.until)});
  }
  out += table.take();
  if (result.faults.size() > kMost) {
    note(grouped(result.faults.size() - kMost) + " more stand in result.json.", out);
  }
  close_section(out);
}

void timeline(const Result& result, std::string& out) {
  const report::Chart chart = report::timeline(result);
  if (chart.svg.empty()) return;
  open_section("timeline", "Timeline", out);
  const bool memory = std::any_of(result.spans.begin(), result.spans.end(),
                                  [](const Span& span) { return span.kind == Span::Kind::memory; });
  if (memory) {
    legend({{"s-comp", "compute"},
            {"s-mem", "memory"},
            {"s-comm", "communication"},
            {"hatch", "wait for peers"}},
           out);
  } else {
    legend({{"s-comp", "compute"}, {"s-comm", "communication"}, {"hatch", "wait for peers"}}, out);
  }
  out += chart.svg;
  note(chart.note, out);
  close_section(out);
}

void ranks(const Result& result, std::string& out) {
  if (result.rank_times.empty()) return;
  open_section("ranks", "Ranks", out);
  const bool host = std::any_of(result.rank_times.begin(), result.rank_times.end(),
                                [](const RankTimes& r) { return r.host > Time(); });
  if (host) {
    legend({{"s-comp", "compute"},
            {"s-host", "host"},
            {"s-comm", "exposed communication"},
            {"hatch", "wait for peers"},
            {"s-idle", "idle"}},
           out);
  } else {
    legend({{"s-comp", "compute"},
            {"s-comm", "exposed communication"},
            {"hatch", "wait for peers"},
            {"s-idle", "idle"}},
           out);
  }
  const report::Chart chart = report::rank_bars(result);
  out += chart.svg;
  note(chart.note, out);

  constexpr size_t kMaxRows = 128;
  const size_t shown = std::min(kMaxRows, result.rank_times.size());
  Time longest;
  for (const RankTimes& r : result.rank_times) longest = std::max(longest, report::sum_of_parts(r));
  const TimeScale scale = time_scale(longest);
  const std::string unit = fmt::format(" ({})", scale.symbol);
  Table table("Times of ranks", {{"Rank"},
                                 {"Node", true},
                                 {"Compute" + unit},
                                 {"Host" + unit},
                                 {"Exposed comm." + unit},
                                 {"Storage" + unit},
                                 {"Wait" + unit},
                                 {"Idle" + unit},
                                 {"Sum" + unit},
                                 {"Hidden comm." + unit},
                                 {"All comm." + unit}});
  for (size_t i = 0; i < shown; ++i) {
    const RankTimes& r = result.rank_times[i];
    table.row({std::to_string(r.rank), report::endpoint_name(result, r.rank),
               in_scale(r.compute, scale), in_scale(r.host, scale), in_scale(r.exposed_comm, scale),
               in_scale(r.storage, scale), in_scale(r.wait, scale), in_scale(r.idle, scale),
               in_scale(report::sum_of_parts(r), scale), in_scale(r.hidden_comm, scale),
               in_scale(r.exposed_comm + r.hidden_comm, scale)});
  }
  out +=
      fmt::format("<details><summary>Times of {} ranks as a table</summary>\n",
                  shown < result.rank_times.size()
                      ? fmt::format("the first {} of {}", shown, grouped(result.rank_times.size()))
                      : grouped(shown));
  out += table.take() + "</details>\n";
  close_section(out);
}

void collectives(const Result& result, std::string& out) {
  if (result.collectives.empty()) return;
  open_section("collectives", "Collectives", out);
  const std::vector<size_t> order = report::longest_collectives(result, 50);
  const CollectiveRecord& first = result.collectives[order.front()];
  Time largest = first.finish - first.start;
  for (const size_t i : order) largest = std::max(largest, result.collectives[i].wait_max);
  const TimeScale scale = time_scale(largest);
  const std::string unit = fmt::format(" ({})", scale.symbol);
  Table table("Collectives by time", {{"Name", true},
                                      {"Kind", true},
                                      {"Algorithm", true},
                                      {"Ranks"},
                                      {"Size"},
                                      {"Time" + unit},
                                      {"algbw (GB/s)"},
                                      {"busbw (GB/s)"},
                                      {"Longest wait" + unit},
                                      {"Link transmissions"}});
  const auto bandwidth = [](double v) {
    return std::isfinite(v) ? fmt::format("{:.2f}", v) : std::string("\u2013");
  };
  for (const size_t i : order) {
    const CollectiveRecord& c = result.collectives[i];
    table.row({c.name, collective_name(c.kind), c.algorithm, grouped(c.ranks),
               pretty(Bytes(c.bytes)), in_scale(c.finish - c.start, scale),
               bandwidth(c.algbw_gbytes_per_s), bandwidth(c.busbw_gbytes_per_s),
               in_scale(c.wait_max, scale), grouped(c.transmissions)});
  }
  out += table.take();
  note(fmt::format(
           "{} by time. Size is what one rank contributes. Time runs from the arrival of the last "
           "member to the end; the longest wait is how long the first member waited for the last. "
           "busbw is algbw times the factor of nccl-tests for the kind, whatever the algorithm. "
           "GB/s are 10\u2079 bytes per second.",
           order.size() < result.collectives.size()
               ? fmt::format("The {} longest of {} collectives", order.size(),
                             grouped(result.collectives.size()))
               : "All " + counted(order.size(), "collective", "collectives")),
       out);
  close_section(out);
}

void links(const Result& result, std::string& out) {
  if (result.links.empty()) return;
  const report::Chart chart = report::link_heat_map(result);
  open_section("links", "Link utilisation", out);
  out += report::heat_legend();
  out += chart.svg;
  note(chart.note + " Utilisation is the time spent transmitting, relative to the whole run.", out);
  close_section(out);

  open_section("hot-links", "Busiest links", out);
  if (!any_link_used(result)) {
    note("No link carried anything.", out);
    close_section(out);
    return;
  }
  std::vector<size_t> order = report::hottest_links(result, 20);
  Time paused;
  int64_t largest = 0, deepest = 0;
  for (const size_t i : order) {
    paused = std::max(paused, result.links[i].paused);
    largest = std::max(largest, result.links[i].bytes);
    deepest = std::max(deepest, result.links[i].peak_queue_bytes);
  }
  const TimeScale scale = time_scale(paused);
  const report::ByteScale wire = report::byte_scale(static_cast<uint64_t>(largest));
  const report::ByteScale queue = report::byte_scale(static_cast<uint64_t>(deepest));
  std::vector<Table::Column> columns = {{"Link", true},
                                        {"Tier", true},
                                        {"Rate"},
                                        {"Busy (%)"},
                                        {fmt::format("On the wire ({})", wire.symbol)}};
  if (result.packets_modelled) {
    columns.insert(columns.end(), {{"Pauses"},
                                   {fmt::format("Paused ({})", scale.symbol)},
                                   {"ECN marks"},
                                   {fmt::format("Peak queue ({})", queue.symbol)},
                                   {"Drops"}});
  }
  Table table("Links by utilisation", std::move(columns));
  size_t rows = 0;
  for (const size_t i : order) {
    const LinkRecord& link = result.links[i];
    if (link.busy == Time() && link.packets == 0) continue;
    ++rows;
    std::vector<std::string> cells = {link_name(link), link.tier, typeset(print_rate(link.rate)),
                                      percent(report::utilisation(link, result)),
                                      in_scale(static_cast<uint64_t>(link.bytes), wire)};
    if (result.packets_modelled) {
      cells.insert(
          cells.end(),
          {grouped(link.pauses_received), in_scale(link.paused, scale), grouped(link.ecn_marks),
           in_scale(static_cast<uint64_t>(link.peak_queue_bytes), queue), grouped(link.drops)});
    }
    table.row(cells);
  }
  out += table.take();
  note(fmt::format("{} of {}. All are in links.csv.", rows,
                   counted(result.links.size(), "directed link", "directed links")),
       out);
  close_section(out);

  if (!result.tier_loads.empty()) {
    open_section("load-balance", "Load balance", out);
    Table balance("Load per tier", {{"Tier", true},
                                    {"Direction", true},
                                    {"Links used"},
                                    {"Payload"},
                                    {"Max / mean, bytes"},
                                    {"Max / mean, queue pairs"},
                                    {"Parallel links, mean"},
                                    {"Parallel links, worst"},
                                    {"At", true}});
    const auto ratio = [](bool known, double value) {
      return known ? fmt::format("{:.2f}", value) : std::string("\u2013");
    };
    for (const TierLoad& t : result.tier_loads) {
      const bool groups = !t.bytes.group.empty();
      balance.row({t.tier, t.direction, fmt::format("{} of {}", grouped(t.used), grouped(t.links)),
                   volume(static_cast<int64_t>(t.bytes.total)), ratio(true, t.bytes.max_to_mean),
                   ratio(t.queue_pairs.total > 0, t.queue_pairs.max_to_mean),
                   ratio(groups, t.bytes.group_mean), ratio(groups, t.bytes.group_max),
                   t.bytes.group});
    }
    out += balance.take();
    note(
        "Data on the busiest link over the mean of all links of its tier, idle ones included. "
        "Parallel links are those of one lower switch or host, by bytes.",
        out);
    if (!result.tier_series.tiers.empty()) {
      Table windows("Load per tier in windows of time", {{"Tier", true},
                                                         {"Direction", true},
                                                         {"Windows"},
                                                         {"Max / mean, median"},
                                                         {"Mean by bytes"},
                                                         {"Max"},
                                                         {"From"},
                                                         {"Parallel links, median"},
                                                         {"Max"}});
      for (const TierLoad& t : result.tier_loads) {
        const TierLoad::Windows& w = t.windows;
        const bool groups = w.group_count > 0;
        windows.row({t.tier, t.direction, grouped(w.count), ratio(w.count > 0, w.p50),
                     ratio(w.count > 0, w.mean), ratio(w.count > 0, w.max), pretty(w.worst),
                     ratio(groups, w.group_p50), ratio(groups, w.group_max)});
      }
      out += windows.take();
      note(fmt::format("By bytes, in windows of {} in which the tier carried data; each is in "
                       "load_series.csv. Of parallel links the worst group of a window counts.",
                       pretty(result.tier_series.window)),
           out);
    }
    close_section(out);
  }
  if (!result.tier_queueing.empty()) {
    open_section("queueing", "Queueing per tier", out);
    const TimeScale waits = time_scale(result.tier_queueing.back().max);
    const std::string unit = fmt::format(" ({})", waits.symbol);
    Table queueing("Queueing of followed packets", {{"Tier", true},
                                                    {"Direction", true},
                                                    {"Packets"},
                                                    {"Median" + unit},
                                                    {"p99" + unit},
                                                    {"Max" + unit}});
    for (const TierQueueing& t : result.tier_queueing) {
      queueing.row({t.tier, t.direction, grouped(t.count), in_scale(t.p50, waits),
                    in_scale(t.p99, waits), in_scale(t.max, waits)});
    }
    out += queueing.take();
    note("Of a sample of all packets; each is in packets.csv.", out);
    close_section(out);
  }

  const report::Chart series = report::link_sparklines(result);
  if (series.svg.empty()) return;
  open_section("link-series", "Busiest links over time", out);
  legend({{"s-comp", "in use"}, {"s-comm", "queue"}, {"s-thin", "paused by PFC"}}, out);
  out += series.svg;
  note(series.note, out);
  close_section(out);
}

void flows(const Result& result, std::string& out) {
  open_section("flows", "Flows", out);
  const report::FlowStats stats = report::flow_stats(result);
  if (stats.count == 0) {
    note("0 flows: nothing communicated.", out);
    close_section(out);
    return;
  }
  const TimeScale scale = time_scale(stats.max);
  const std::string unit = fmt::format(" ({})", scale.symbol);
  Table table("Flow completion times", {{"Flows"},
                                        {"Delivered"},
                                        {"Payload"},
                                        {"Mean" + unit},
                                        {"Median" + unit},
                                        {"p99" + unit},
                                        {"Max" + unit}});
  const auto time = [&](Time t) {
    return stats.delivered > 0 ? in_scale(t, scale) : std::string("\u2013");
  };
  table.row({grouped(stats.count), grouped(stats.delivered), volume(stats.bytes), time(stats.mean),
             time(stats.median), time(stats.p99), time(stats.max)});
  out += table.take();
  note(std::string("Completion time: from the start of a flow until ") +
           (result.complete_at_last_ack ? "its last ACK is back at the sender. "
                                        : "its last byte is at the receiver. ") +
           "Percentiles are nearest rank. All flows are in flows.csv.",
       out);

  std::vector<size_t> slowest;
  for (size_t i = 0; i < result.flows.size(); ++i) {
    if (report::completion_time(result, result.flows[i])) slowest.push_back(i);
  }
  const auto fct = [&](size_t i) { return *report::completion_time(result, result.flows[i]); };
  const size_t kept = std::min<size_t>(10, slowest.size());
  std::partial_sort(slowest.begin(), slowest.begin() + static_cast<std::ptrdiff_t>(kept),
                    slowest.end(),
                    [&](size_t a, size_t b) { return fct(a) != fct(b) ? fct(a) > fct(b) : a < b; });
  slowest.resize(kept);
  if (kept > 0) {
    out += "<h3>Slowest flows</h3>\n";
    Table slow("Slowest flows",
               {{"Flow"},
                {"Of", true},
                {"From", true},
                {"To", true},
                {"Size"},
                {"Start" + std::string(" (") + time_scale(result.end).symbol + ")"},
                {"Completion" + unit},
                {"Rate (Gbit/s)"},
                {"Links"},
                {"Retransmitted"},
                {"CNPs"}});
    for (const size_t i : slowest) {
      const TransferRecord& f = result.flows[i];
      const double seconds = fct(i).seconds();
      slow.row({std::to_string(i), report::owner_name(result, f.owner),
                report::endpoint_name(result, f.src), report::endpoint_name(result, f.dst),
                pretty(Bytes(f.bytes)), in_scale(f.start, time_scale(result.end)),
                in_scale(fct(i), scale),
                fmt::format("{:.1f}", static_cast<double>(f.bytes) * 8e-9 / seconds),
                std::to_string(f.hops),
                result.packets_modelled ? grouped(f.retransmitted) : std::string("\u2013"),
                result.packets_modelled ? grouped(f.cnps) : std::string("\u2013")});
    }
    out += slow.take();
  }
  close_section(out);
}

void settings(const Result& result, std::string& out) {
  if (result.settings.empty()) return;
  open_section("settings", "Settings", out);
  out += fmt::format("<details><summary>All {} settings of the resolved scenario</summary>\n",
                     grouped(result.settings.size()));
  Table table("Settings", {{"Key", true}, {"Value", true}});
  for (const auto& [key, value] : result.settings) table.row({key, value});
  out += table.take() + "</details>\n";
  close_section(out);
}

void engine(const Result& result, std::string& out) {
  open_section("engine", "The run itself", out);
  Table table("Engine figures", {{"Figure", true}, {"Value", true}});
  table.row({"Events", grouped(result.totals.events)});
  table.row({"Wall time", fmt::format("{:.3g}\u00a0s, and {:.3g}\u00a0s setup", result.wall_s,
                                      result.setup_wall_s)});
  if (result.wall_s > 0 && result.packets_modelled) {
    table.row({"Speed", fmt::format("{} link transmissions per second of wall time",
                                    grouped(static_cast<uint64_t>(
                                        static_cast<double>(result.totals.transmissions) /
                                        result.wall_s)))});
  }
  table.row({"Peak memory", volume(static_cast<int64_t>(result.peak_rss_bytes))});
  table.row({"Program", fmt::format("trainyard {} ({}), {} engine", result.version,
                                    result.build_type, result.engine)});
  table.row({"Fingerprint of the trajectory", fmt::format("{:016x}", result.fingerprint)});
  out += table.take();

  const std::vector<report::SumCheck> checks = report::sum_checks(result);
  if (!checks.empty()) {
    out += "<h3>Sums that must agree</h3>\n";
    Table sums("Sums that must agree",
               {{"Check", true}, {"One way"}, {"Other way"}, {"Outcome", true}});
    for (const report::SumCheck& check : checks) {
      const bool bytes = check.unit == report::SumCheck::Unit::bytes;
      const auto value = [&](int64_t v) {
        return bytes ? grouped(static_cast<uint64_t>(v)) + "\u00a0B"
                     : report::exact_ns(Time::ps(v), false) + "\u00a0ns";
      };
      std::string outcome = check.holds() ? "equal" : "differ";
      if (!check.holds() && !check.note.empty()) outcome += " (" + check.note + ")";
      sums.row({fmt::format("{}: {} = {}", check.what, check.left_name, check.right_name),
                value(check.left), value(check.right), outcome});
    }
    out += sums.take();
  }
  close_section(out);
}

}  // namespace

std::string report_html(const Result& result) {
  std::string out;
  head(result, out);
  trust(result, out);
  key_figures(result, out);
  jobs(result, out);
  faults(result, out);
  timeline(result, out);
  ranks(result, out);
  collectives(result, out);
  links(result, out);
  flows(result, out);
  settings(result, out);
  engine(result, out);
  out += "</main>\n</body>\n</html>\n";
  return out;
}

}  // namespace trainyard
