// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tools/report/analysis.h"
#include "tools/report/report.h"
#include "tools/report/text.h"

namespace trainyard {
namespace {

using report::columns;
using report::printable;

constexpr size_t kWidth = 100;
constexpr size_t kLabelWidth = 24;

std::string padded(const std::string& text, size_t width) {
  const size_t n = columns(text);
  return n < width ? text + std::string(width - n, ' ') : text;
}

/// `text` broken at blanks so that it fits beside `head`; continuation lines are indented to match.
void wrap(const std::string& head, const std::string& text, std::string& out) {
  const size_t indent = columns(head), width = kWidth - indent;
  std::string line;
  bool first = true;
  const auto flush = [&] {
    out += (first ? head : std::string(indent, ' ')) + line;
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
    first = false;
    line.clear();
  };
  for (size_t i = 0; i <= text.size();) {
    const size_t end = std::min(text.find(' ', i), text.size());
    std::string word = text.substr(i, end - i);
    i = end + 1;
    if (!line.empty() && columns(line) + 1 + columns(word) > width) flush();
    while (columns(word) > width) {  // a path may be longer than a line
      line = report::shortened(word, width, "");
      word.erase(0, line.size());
      flush();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  flush();
}

void figure(const std::string& label, const std::string& value, std::string& out) {
  wrap("  " + padded(label, kLabelWidth) + " ", value, out);
}

struct Column {
  std::string title;
  bool right = true;
};

/// Columns as wide as their content; the first one gives way when the line gets too long.
void table(const std::vector<Column>& head, std::vector<std::vector<std::string>> rows,
           std::string& out) {
  std::vector<size_t> width;
  size_t others = 2;
  for (size_t c = 0; c < head.size(); ++c) {
    width.push_back(columns(head[c].title));
    for (const auto& row : rows) width[c] = std::max(width[c], columns(row[c]));
    if (c > 0) others += width[c] + 2;
  }
  width[0] = std::min(width[0], kWidth > others + 12 ? kWidth - others : 12);
  std::vector<std::string> titles;
  for (const Column& column : head) titles.push_back(column.title);
  rows.insert(rows.begin(), titles);
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string cell = c == 0 ? report::shortened(row[c], width[c], "...") : row[c];
      line += c == 0 ? " " : "  ";
      line += head[c].right ? std::string(width[c] - std::min(width[c], columns(cell)), ' ') + cell
                            : padded(cell, width[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
}

std::string bandwidth(double gbytes_per_s) {
  return fmt::format("{:.2f}", gbytes_per_s);
}

void trust(const Result& result, std::string& out) {
  out += "\nHow far to trust this\n";
  if (result.trust.empty()) out += "  nothing was recorded about this run\n";
  size_t widest = 0;
  for (const TrustNote& note : result.trust) {
    widest = std::max(widest, columns(printable(note.topic)));
  }
  widest = std::min<size_t>(widest, 30);
  for (const TrustNote& note : result.trust) {
    const std::string topic = report::shortened(printable(note.topic), 30, "...");
    wrap(fmt::format("  {} {}  ", note.caution ? "!" : " ", padded(topic, widest)),
         printable(note.text), out);
  }
  for (const std::string& warning : result.warnings) {
    wrap("  ! warning: ", printable(warning), out);
  }
}

void key_figures(const Result& result, std::string& out) {
  const FabricTotals& totals = result.totals;
  out += "\nResult\n";
  if (result.step_time > Time()) {
    figure("step time",
           print_time(result.step_time) +
               (report::uncalibrated(result) ? "  ! uncalibrated, read it as relative" : ""),
           out);
  }
  figure("simulated time", print_time(result.end), out);
  if (!result.rank_times.empty()) {
    const report::Shares s = report::shares(result.rank_times);
    figure("compute", report::percent(s.compute) + " % of the step, mean over ranks", out);
    if (s.host > 0) figure("host", report::percent(s.host) + " %", out);
    figure("exposed communication",
           fmt::format("{} %  (a further {} % hidden behind compute)",
                       report::percent(s.exposed_comm), report::percent(s.hidden_comm)),
           out);
    if (s.storage > 0) figure("storage", report::percent(s.storage) + " %", out);
    figure("wait for peers", report::percent(s.wait) + " %", out);
    figure("idle", report::percent(s.idle) + " %", out);
  }
  const report::FlowStats flows = report::flow_stats(result);
  if (flows.count == 0) {
    figure("flows", "0 flows: nothing communicated", out);
  } else {
    std::string line = report::counted(flows.count, "flow", "flows");
    if (flows.delivered < flows.count) {
      line += fmt::format(" ({} not delivered)", report::grouped(flows.count - flows.delivered));
    }
    figure("flows", line, out);
  }
  if (flows.delivered > 0) {
    figure("flow completion",
           fmt::format("mean {}, median {}, p99 {}, max {}", print_time(flows.mean, 4),
                       print_time(flows.median, 4), print_time(flows.p99, 4),
                       print_time(flows.max, 4)),
           out);
  }
  if (!result.background.empty()) {
    const report::FlowStats beside = report::flow_stats(result, result.background);
    figure("background",
           fmt::format("{}, {} delivered, mean {}", report::counted(beside.count, "flow", "flows"),
                       report::grouped(beside.delivered), print_time(beside.mean, 4)),
           out);
  }
  figure("payload delivered", report::volume(static_cast<uint64_t>(totals.payload_bytes)), out);
  figure("bytes on all links",
         report::volume(static_cast<uint64_t>(totals.wire_bytes)) +
             ", headers and control packets included",
         out);
  if (!result.packets_modelled) {
    figure("PFC, ECN, drops", "not modelled by the " + printable(result.engine) + " engine", out);
    return;
  }
  figure("link transmissions", report::grouped(totals.transmissions), out);
  figure("PFC pauses", report::grouped(totals.pfc_pauses), out);
  figure("ECN marks", report::grouped(totals.ecn_marks), out);
  figure("drops", report::grouped(totals.drops), out);
  figure("retransmissions", report::grouped(totals.retransmitted), out);
  for (const auto& [name, count] : report::rare_totals(totals)) {
    if (count > 0) figure(name, report::grouped(count), out);
  }
}

void training(const Result& result, std::string& out) {
  if (result.training.empty()) return;
  out += "\nTraining\n";
  for (const TrainingFigure& f : result.training) {
    if (!f.label.empty()) figure(f.label, printable(f.text), out);
  }
}

void energy(const Result& result, std::string& out) {
  if (result.energy.empty()) return;
  out += "\nEnergy and cost\n";
  for (const TrainingFigure& f : result.energy) {
    if (!f.label.empty()) figure(f.label, printable(f.text), out);
  }
}

/// Times of every job from its own start.
void jobs(const Result& result, std::string& out) {
  if (result.jobs.empty()) return;
  out += "\nJobs\n";
  const bool alone = std::any_of(result.jobs.begin(), result.jobs.end(),
                                 [](const JobResult& j) { return j.alone > Time(); });
  std::vector<std::vector<std::string>> rows;
  for (const JobResult& j : result.jobs) {
    const report::Shares s = report::shares(result, j);
    rows.push_back({printable(j.name), std::to_string(j.ranks), std::to_string(j.traffic_class),
                    print_time(j.start, 4), print_time(j.end - j.start, 5),
                    report::percent(s.compute) + " %", report::percent(s.exposed_comm) + " %",
                    report::percent(s.wait) + " %", report::percent(s.idle) + " %"});
    if (!alone) continue;
    const bool known = j.alone > Time();
    rows.back().push_back(known ? print_time(j.alone, 5) : "");
    rows.back().push_back(known ? fmt::format("{:+.1f} %", 100 * report::slowdown(j)) : "");
  }
  std::vector<Column> head = {{"job", false}, {"ranks"},   {"class"}, {"start"}, {"time"},
                              {"compute"},    {"exposed"}, {"wait"},  {"idle"}};
  if (alone) head.insert(head.end(), {{"alone"}, {"slower by"}});
  table(head, std::move(rows), out);
  for (const JobResult& j : result.jobs) {
    out += "\nJob " + printable(j.name) + ", " + printable(j.gpus) + "\n";
    for (const auto* list : {&j.training, &j.energy}) {
      for (const TrainingFigure& f : *list) {
        if (!f.label.empty()) figure(f.label, printable(f.text), out);
      }
    }
  }
}

void faults(const Result& result, std::string& out) {
  if (result.faults.empty()) return;
  constexpr size_t kTop = 10;
  out += fmt::format("\nFaults that happened ({} of {})\n", std::min(kTop, result.faults.size()),
                     result.faults.size());
  for (size_t i = 0; i < std::min(kTop, result.faults.size()); ++i) {
    figure(result.faults[i].kind, printable(report::fault_line(result.faults[i])), out);
  }
}

void collectives(const Result& result, std::string& out) {
  if (result.collectives.empty()) return;
  constexpr size_t kTop = 5;
  out +=
      fmt::format("\nLongest collectives ({} of {})\n", std::min(kTop, result.collectives.size()),
                  report::grouped(result.collectives.size()));
  std::vector<std::vector<std::string>> rows;
  const bool admitted = std::any_of(result.collectives.begin(), result.collectives.end(),
                                    [](const CollectiveRecord& c) { return c.cts_count > 0; });
  for (const size_t i : report::longest_collectives(result, kTop)) {
    const CollectiveRecord& c = result.collectives[i];
    rows.push_back({printable(c.name), collective_name(c.kind),
                    report::shortened(printable(c.algorithm), 10, "..."), std::to_string(c.ranks),
                    print_bytes(Bytes(c.bytes), 4), print_time(c.finish - c.start, 5),
                    print_time(c.wait_max, 4), bandwidth(c.busbw_gbytes_per_s)});
    if (admitted) rows.back().push_back(c.cts_count > 0 ? print_time(c.cts_p90, 4) : "");
  }
  std::vector<Column> head = {{"name", false}, {"kind", false}, {"algo", false}, {"ranks"},
                              {"size"},        {"time"},        {"wait"},        {"busbw GB/s"}};
  if (admitted) head.push_back({"CTS p90"});
  table(head, std::move(rows), out);
}

void links(const Result& result, std::string& out) {
  std::vector<std::vector<std::string>> rows;
  constexpr size_t kTop = 5;
  for (const size_t i : report::hottest_links(result, kTop)) {
    const LinkRecord& link = result.links[i];
    if (link.packets == 0 && link.busy == Time()) continue;
    auto& row = rows.emplace_back(
        std::vector<std::string>{printable(link.from) + " -> " + printable(link.to),
                                 report::shortened(printable(link.tier), 14, "..."),
                                 report::percent(report::utilisation(link, result)) + " %",
                                 report::volume(static_cast<uint64_t>(link.bytes))});
    if (!result.packets_modelled) continue;
    row.insert(row.end(), {report::grouped(link.pauses_received), print_time(link.paused, 4),
                           report::grouped(link.ecn_marks),
                           report::volume(static_cast<uint64_t>(link.peak_queue_bytes))});
  }
  if (rows.empty()) return;
  out += fmt::format("\nBusiest links ({} of {})\n", rows.size(),
                     report::grouped(result.links.size()));
  std::vector<Column> head = {{"link", false}, {"tier", false}, {"busy"}, {"bytes"}};
  if (result.packets_modelled) {
    head.insert(head.end(), {{"pauses"}, {"paused"}, {"marks"}, {"peak queue"}});
  }
  table(head, std::move(rows), out);
}

void balance(const Result& result, std::string& out) {
  const auto tiers = report::balanced_tiers(result);
  const auto fullest = report::fullest_switches(result, 1);
  const bool buffers = !fullest.empty() && result.seen.switches[fullest[0]].pool_peak_bytes > 0;
  if (tiers.empty() && !buffers && result.tier_queueing.empty()) return;
  out += "\nBalance and buffers\n";
  constexpr size_t kTop = 6;
  for (size_t i = 0; i < std::min(kTop, tiers.size()); ++i) {
    const TierLoad& t = *tiers[i];
    std::string line = fmt::format("busiest link {:.2f} x the mean by bytes", t.bytes.max_to_mean);
    if (t.queue_pairs.total > 0) {
      line += fmt::format(", {:.2f} x by queue pairs", t.queue_pairs.max_to_mean);
    }
    line += fmt::format("; of parallel links {:.2f} x ({})", t.bytes.group_max,
                        printable(t.bytes.group));
    figure(printable(t.tier) + " " + t.direction, line, out);
    const TierLoad::Windows& w = t.windows;
    if (w.group_count == 0) continue;
    figure("  in " + report::counted(w.count, "window", "windows"),
           fmt::format("of {}: p50 {:.2f} x, max {:.2f} x by bytes; of parallel links p50 {:.2f} "
                       "x, max {:.2f} x",
                       print_time(result.tier_series.window, 4), w.p50, w.max, w.group_p50,
                       w.group_max),
           out);
  }
  if (buffers) {
    const SwitchRecord& s = result.seen.switches[fullest[0]];
    figure("fullest switch",
           fmt::format("{}: {} of its {} of shared buffer ({} %)", printable(s.name),
                       report::volume(static_cast<uint64_t>(s.pool_peak_bytes)),
                       report::volume(static_cast<uint64_t>(s.pool_bytes)),
                       report::percent(report::pool_ratio(s))),
           out);
  }
  for (const TierQueueing& t : result.tier_queueing) {
    figure("queued, " + (t.direction.empty() ? t.tier : printable(t.tier) + " " + t.direction),
           fmt::format("p50 {}, p99 {}, max {} of {} followed", print_time(t.p50, 4),
                       print_time(t.p99, 4), print_time(t.max, 4),
                       report::counted(t.count, "packet", "packets")),
           out);
  }
}

void fast_path(const Result& result, std::string& out) {
  const FastPathStats& f = *result.fast_path;
  out += f.stepping ? "\nFast path\n" : "\nFast path (exact)\n";
  const double all =
      static_cast<double>(f.bytes_simulated + f.bytes_jumped + f.bytes_followed + f.bytes_stepped);
  const auto percent = [&](int64_t bytes) {
    return fmt::format("{:.2f} %", all > 0 ? 100 * static_cast<double>(bytes) / all : 0.0);
  };
  figure("domains",
         fmt::format("{}, of which {} followed one of {} episodes", report::grouped(f.domains),
                     report::grouped(f.followed), report::grouped(f.episodes)),
         out);
  figure("payload",
         fmt::format("{} as packets, {} by {} period jumps, {} by following{}",
                     percent(f.bytes_simulated), percent(f.bytes_jumped), report::grouped(f.jumps),
                     percent(f.bytes_followed),
                     f.bytes_followed_stepped > 0
                         ? " (" + percent(f.bytes_followed_stepped) + " what was stepped)"
                         : ""),
         out);
  if (f.stretches > 0) {
    figure("stretches",
           fmt::format("{} of the payload and {} of {} ops in {} stretches followed as a whole",
                       percent(f.bytes_stretches), report::grouped(result.ops_replayed),
                       report::grouped(result.ops), report::grouped(f.stretches)),
           out);
  }
  if (f.stepping) {
    figure("stepping",
           fmt::format("{} of the payload in {} domains, {} events for {} link transmissions; {} "
                       "domains left what can be stepped, {} pauses not followed",
                       percent(f.bytes_stepped), report::grouped(f.stepped),
                       report::grouped(f.events_stepped), report::grouped(f.transmissions_stepped),
                       report::grouped(f.stepping_stopped), report::grouped(f.pauses_not_followed)),
           out);
    figure("audit",
           f.stepped == 0 ? std::string("nothing was stepped")
           : f.audit_n == 0
               ? std::string("not audited: nothing that was stepped fitted into the budget")
               : fmt::format(
                     "{} of what was stepped again as packets: {} completion times off by "
                     "{:.2f} % in the mean ({:.2f} % in size, 95 % sure of less than {:.2f} %), "
                     "at most {:.1f} %",
                     fmt::format("{:.1f} %", 100.0 * static_cast<double>(f.bytes_audited) /
                                                 static_cast<double>(f.bytes_stepped)),
                     report::grouped(f.audit_n), f.audit_mean_pct(), f.audit_mean_abs_pct(),
                     f.audit_bound_pct(), f.audit_max_pct),
           out);
  }
  if (f.disturbances > 0) {
    figure("faults",
           fmt::format("{} of the payload as packets of one domain, {}", percent(f.bytes_disturbed),
                       report::counted(f.disturbances, "time", "times")),
           out);
  }
  figure("events",
         fmt::format("{} for {} link transmissions, {} of them a second time",
                     report::grouped(f.events), report::grouped(result.totals.transmissions),
                     report::grouped(f.events_again)),
         out);
  figure("merges",
         fmt::format("{} by messages ({} went on from where they were), {} by shared buffers; {} "
                     "followers simulated after all; largest domain {} links",
                     report::grouped(f.merges), report::grouped(f.joined),
                     report::grouped(f.pool_merges), report::grouped(f.materialised),
                     report::grouped(f.largest_domain)),
         out);
}

}  // namespace

std::string summary_text(const Result& result) {
  std::string out;
  const std::string name =
      result.scenario_name.empty() ? "unnamed scenario" : printable(result.scenario_name);
  wrap("", name, out);
  std::string origin = printable(result.scenario_file);
  origin += origin.empty() ? "" : ", ";
  origin += fmt::format("{} engine, seed {}, {} in {} with {} and {}", printable(result.engine),
                        result.seed, report::counted(result.ranks, "rank", "ranks"),
                        report::counted(result.nodes, "node", "nodes"),
                        report::counted(result.switches, "switch", "switches"),
                        report::counted(result.links_count, "link", "links"));
  wrap("", origin, out);
  if (!result.complete) {
    wrap("! INCOMPLETE: ",
         fmt::format("{}. Everything below is up to {} of simulated time.",
                     result.incomplete_reason.empty() ? "the run was cut short"
                                                      : printable(result.incomplete_reason),
                     print_time(result.end)),
         out);
  }
  trust(result, out);
  key_figures(result, out);
  jobs(result, out);
  training(result, out);
  energy(result, out);
  faults(result, out);
  collectives(result, out);
  links(result, out);
  balance(result, out);

  if (result.fast_path) fast_path(result, out);

  out += "\nRun\n";
  std::string speed = fmt::format("{:.3g} s", result.wall_s);
  if (result.wall_s > 0) {
    const bool packets = result.packets_modelled;
    const uint64_t done = packets ? result.totals.transmissions : result.totals.events;
    speed += fmt::format(
        ", {} {} per second",
        report::grouped(static_cast<uint64_t>(static_cast<double>(done) / result.wall_s)),
        packets ? "link transmissions" : "events");
  }
  speed += fmt::format(", {:.3g} s setup", result.setup_wall_s);
  figure("wall time", speed, out);
  figure("peak memory", report::volume(result.peak_rss_bytes), out);
  figure("program",
         fmt::format("trainyard {} ({})", printable(result.version), printable(result.build_type)),
         out);
  figure("fingerprint", fmt::format("{:016x}", result.fingerprint), out);
  return out;
}

}  // namespace trainyard
