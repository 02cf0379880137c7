// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tools/report/text.h"
#include "tools/scenario/plan.h"

namespace trainyard {
namespace {

using report::grouped;
using report::printable;

constexpr uint32_t kMostServers = 32;
constexpr size_t kTop = 10;
constexpr size_t kTopGroups = 20;

std::string volume(int64_t bytes) {
  return report::volume(static_cast<uint64_t>(bytes));
}
std::string count(int64_t n) {
  return grouped(static_cast<uint64_t>(n));
}
std::string share(int64_t part, int64_t whole) {
  return whole == 0 ? "0.0"
                    : report::percent(static_cast<double>(part) / static_cast<double>(whole));
}

using Rows = std::vector<std::vector<std::string>>;

/// Columns as wide as their content; the first `left` ones are aligned to the left.
void table(const Rows& rows, size_t left, std::string& out) {
  std::vector<size_t> width;
  for (const auto& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], report::columns(row[c]));
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string pad(width[c] - report::columns(row[c]), ' ');
      line += "  " + (c < left ? row[c] + pad : pad + row[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
}

std::string where(const Setting& s) {
  return origin_text(s.origin) + (s.source.empty() ? "" : " (" + s.source + ")");
}

void calls(const std::string& title, const std::vector<Plan::Calls>& list, bool groups,
           std::string& out) {
  if (list.empty()) return;
  std::vector<Plan::Calls> sorted = list;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.payload > b.payload; });
  const size_t shown = groups ? std::min(kTopGroups, sorted.size()) : sorted.size();
  out += "\n" + title;
  if (shown < sorted.size()) out += fmt::format(" ({} of {})", shown, grouped(sorted.size()));
  out += "\n";
  Rows rows = {{groups ? "group" : "kind", groups ? "members" : "algorithm", "calls", "messages",
                "payload"}};
  for (size_t i = 0; i < shown; ++i) {
    const Plan::Calls& c = sorted[i];
    rows.push_back({report::shortened(printable(c.name), 40, "..."),
                    groups ? std::to_string(c.members) : c.algorithm, grouped(c.calls),
                    grouped(c.messages), volume(c.payload)});
  }
  table(rows, 2, out);
}

void traffic(const Plan& p, std::string& out) {
  out += "\nTraffic (payload bytes)\n";
  const auto row = [&](const char* name, int64_t bytes, uint64_t pairs) {
    return std::vector<std::string>{name, volume(bytes), share(bytes, p.payload) + " %",
                                    report::counted(pairs, "pair", "pairs")};
  };
  Rows parts = {{"all messages", volume(p.payload)},
                row("inside servers", p.inside_servers, p.pairs_inside_servers)};
  if (p.has_rails) {
    parts.push_back(row("between servers, on one rail", p.on_one_rail, p.pairs_on_one_rail));
    parts.push_back(row("between servers, across rails", p.across_rails, p.pairs_across_rails));
  } else {
    parts.push_back(row("between servers", p.on_one_rail + p.across_rails,
                        p.pairs_on_one_rail + p.pairs_across_rails));
  }
  table(parts, 1, out);
  if (!p.has_rails) out += "  (no scale-up domain: every GPU counts as a server)\n";
  if (p.server_pairs.empty()) return;

  if (p.servers <= kMostServers) {
    out += "\nFrom server (rows) to server (columns)\n";
    Rows rows(p.servers + 1, std::vector<std::string>(p.servers + 1, "-"));
    rows[0][0] = "";
    for (uint32_t i = 0; i < p.servers; ++i) rows[0][i + 1] = rows[i + 1][0] = std::to_string(i);
    for (const auto& e : p.server_pairs) rows[e.src + 1][e.dst + 1] = volume(e.payload);
    table(rows, 0, out);
  } else {
    out += fmt::format("\n  {} servers are too many for a matrix; --json FILE has it\n", p.servers);
  }

  std::vector<Plan::Pair> top = p.pairs;
  std::stable_sort(top.begin(), top.end(),
                   [](const auto& a, const auto& b) { return a.payload > b.payload; });
  const size_t shown = std::min(kTop, top.size());
  out += fmt::format("\nLargest pairs ({} of {})\n", shown, grouped(top.size()));
  Rows rows;
  for (size_t i = 0; i < shown; ++i) {
    rows.push_back(
        {printable(p.endpoint_names[top[i].src]) + " -> " + printable(p.endpoint_names[top[i].dst]),
         volume(top[i].payload), share(top[i].payload, p.payload) + " %"});
  }
  table(rows, 1, out);
}

void links(const Plan& p, std::string& out) {
  out += "\nLinks by tier (directed; bytes with headers and ACKs)\n";
  Rows rows = {{"tier", "links", "bytes", "payload", "transmissions"}};
  for (const auto& t : p.tiers) {
    rows.push_back(
        {t.tier, grouped(t.links), volume(t.wire), volume(t.payload), count(t.transmissions)});
  }
  table(rows, 1, out);
  if (p.busiest.empty()) return;
  out += "\nBusiest links, over the paths that ECMP takes\n";
  rows = {{"link", "tier", "rate", "bytes", "payload", "at line rate"}};
  for (const auto& l : p.busiest) {
    const double seconds = 8.0 * static_cast<double>(l.wire) / static_cast<double>(l.rate.bps());
    rows.push_back({printable(l.from) + " -> " + printable(l.to), l.tier, print_rate(l.rate),
                    volume(l.wire), volume(l.payload), fmt::format("{:.4g} us", seconds * 1e6)});
  }
  table(rows, 2, out);
}

}  // namespace

std::string plan_text(const Plan& p) {
  std::string out = printable(p.name) + "\n" + printable(p.file) + ", plan: nothing was run\n";
  for (const auto& w : p.warnings) out += "  ! " + printable(w) + "\n";

  out += "\nScenario\n";
  Rows rows;
  for (const Setting& s : p.settings) {
    rows.push_back({s.key, report::shortened(printable(s.value), 60, "..."), where(s)});
  }
  table(rows, 3, out);

  out += "\nFabric\n";
  table({{"GPUs", grouped(p.gpus)},
         {"servers", grouped(p.servers)},
         {"switches", grouped(p.switches)},
         {"links", grouped(p.links)}},
        1, out);

  out += p.workload ? "\nWorkload\n" : "\nTraffic patterns\n";
  rows = {{"ranks", grouped(p.ranks)}};
  if (p.workload) {
    rows.push_back({"rank classes", grouped(p.rank_classes)});
    rows.push_back({"compute times", p.compute_source});
  }
  for (const auto& o : p.ops) {
    rows.push_back({p.workload ? o.name + " ops" : o.name, grouped(o.count)});
  }
  table(rows, 1, out);
  if (!p.training.empty()) {
    out += "\nTraining\n";
    rows.clear();
    for (const TrainingFigure& f : p.training) {
      if (!f.label.empty()) rows.push_back({f.label, f.text});
    }
    table(rows, 2, out);
  }
  calls("Collectives and messages", p.kinds, false, out);
  calls("Communicators", p.groups, true, out);
  traffic(p, out);
  links(p, out);

  out += "\nWhat a run takes\n";
  table({{"engine", p.engine},
         {"messages", grouped(p.messages)},
         {"queue pairs", grouped(p.queue_pairs)},
         {"data packets", count(p.data_packets)},
         {"ACKs", count(p.ack_packets)},
         {"link transmissions", count(p.transmissions)}},
        1, out);
  out += "  not counted: retransmissions, CNPs, PFC frames\n";
  out += fmt::format("  simulated time   at least {:.4g} us (busiest link at line rate)\n",
                     p.busiest_s * 1e6);
  if (p.engine == "packet") {
    out += fmt::format("  wall time        about {:.2g} s, at {:.0f} M transmissions per second\n",
                       p.wall_s, Plan::kTransmissionsPerSecond / 1e6);
  } else {
    out += "  wall time        not estimated; the " + p.engine + " engine counts messages\n";
  }
  out += fmt::format("  memory           about {}\n", report::volume(p.memory_bytes));
  return out;
}

}  // namespace trainyard
