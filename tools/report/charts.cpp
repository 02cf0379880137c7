// SPDX-License-Identifier: MIT
#include "tools/report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/report/analysis.h"
#include "tools/report/text.h"

namespace trainyard::report {
namespace {

constexpr double kLabelWidth = 148;
constexpr double kPlotWidth = 880;

std::string pretty(Time t) {
  return typeset(print_time(t, 5));
}
std::string pretty(int64_t bytes) {
  return typeset(volume(static_cast<uint64_t>(bytes)));
}

/// Instants of an axis over [begin, end] at 1, 2 or 5 times a power of ten, and how to write them.
struct Axis {
  Time begin, end;
  int64_t step_ps = 1;
  TimeScale scale;

  bool fluid = false;  ///< x in percent of a plot that shrinks with the window, else in pixels

  Axis(Time from, Time to, int max_ticks, bool percent) : begin(from), end(to), fluid(percent) {
    const int64_t range = std::max<int64_t>(1, (to - from).ps());
    const auto fits = [&](int64_t step) { return range / step <= max_ticks; };
    while (!fits(step_ps * 5) && step_ps <= range) step_ps *= 10;
    for (const int64_t factor : {1, 2, 5}) {
      if (!fits(step_ps * factor)) continue;
      step_ps *= factor;
      break;
    }
    scale = time_scale(to);
    scale.decimals = 0;
    for (int64_t unit = scale.unit_ps; unit > step_ps && unit % 10 == 0; unit /= 10) {
      ++scale.decimals;
    }
  }
  [[nodiscard]] double x(Time t) const {
    const double range = std::max(1.0, static_cast<double>((end - begin).ps()));
    return static_cast<double>((t - begin).ps()) / range * (fluid ? 100 : kPlotWidth);
  }
  [[nodiscard]] std::vector<Time> ticks() const {
    std::vector<Time> out;
    int64_t at = begin.ps() / step_ps * step_ps;
    if (at < begin.ps()) at += step_ps;
    for (; at <= end.ps(); at += step_ps) out.push_back(Time::ps(at));
    return out;
  }
  [[nodiscard]] std::string label(Time t) const {
    return in_scale(t, scale) + "\xC2\xA0" + scale.symbol;
  }
  /// Grid lines from `top` to `bottom` and labels on the baseline `text_y`.
  void draw(double top, double bottom, double text_y, std::string& svg) const {
    const char* unit = fluid ? "%" : "";
    bool odd = false;
    for (const Time t : ticks()) {
      fmt::format_to(std::back_inserter(svg),
                     "<line class=\"grid\" x1=\"{0:.2f}{4}\" x2=\"{0:.2f}{4}\" y1=\"{1:.0f}\" "
                     "y2=\"{2:.0f}\"/><text class=\"tick{5}\" x=\"{0:.2f}{4}\" y=\"{3:.0f}\" "
                     "text-anchor=\"{6}\">{7}</text>\n",
                     x(t), top, bottom, text_y, unit, odd && fluid ? " odd" : "", anchor(t),
                     label(t));
      odd = !odd;
    }
  }
  /// The first and last label would be cut at the edge of the drawing if they were centred.
  [[nodiscard]] const char* anchor(Time t) const {
    const double share = x(t) / (fluid ? 100 : kPlotWidth);
    return share < 0.02 ? "start" : share > (fluid ? 0.95 : 0.98) ? "end" : "middle";
  }
};

/// Labels stay in view while the plot beside them scrolls.
std::string beside(const std::string& name, const std::string& labels, const std::string& plot,
                   double height, bool fluid) {
  const std::string width = fluid ? "class=\"fluid\"" : fmt::format("width=\"{:.0f}\"", kPlotWidth);
  return fmt::format(
      "<div class=\"chart\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\">"
      "<svg class=\"labels\" width=\"{1:.0f}\" height=\"{3:.0f}\" aria-hidden=\"true\">{4}</svg>"
      "<svg {2} height=\"{3:.0f}\" role=\"img\" aria-label=\"{0}\">\n{5}</svg>"
      "</div>\n",
      escape_html(name), kLabelWidth, width, height, labels, plot);
}

void label(double x, double y, const char* css, const char* anchor, const std::string& text,
           std::string& out) {
  fmt::format_to(std::back_inserter(out),
                 "<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", css,
                 x, y, anchor, escape_html(text));
}

/// At most `count` of `ranks`: those in `wanted` and an even choice of the others.
std::vector<uint32_t> choose_ranks(const std::vector<uint32_t>& ranks, size_t count,
                                   const std::set<uint32_t>& wanted) {
  if (ranks.size() <= count) return ranks;
  std::set<uint32_t> chosen;
  for (const uint32_t rank : wanted) {
    if (chosen.size() < count && std::binary_search(ranks.begin(), ranks.end(), rank)) {
      chosen.insert(rank);
    }
  }
  const size_t even = count - chosen.size();
  for (size_t i = 0; i < even; ++i) {
    chosen.insert(ranks[even == 1 ? 0 : i * (ranks.size() - 1) / (even - 1)]);
  }
  return {chosen.begin(), chosen.end()};
}

/// The ranks that a reader asks about first: the one that ends last, the one that waits longest.
std::set<uint32_t> notable_ranks(const Result& result) {
  if (result.rank_times.empty()) return {};
  const auto by = [&](const auto& member) {
    return std::max_element(
               result.rank_times.begin(), result.rank_times.end(),
               [&](const RankTimes& a, const RankTimes& b) { return a.*member < b.*member; })
        ->rank;
  };
  return {by(&RankTimes::finish), by(&RankTimes::wait)};
}

// ---------------------------------------------------------------------------------------------
// Timeline

enum Look : uint8_t { compute_look, memory_look, comm_look, wait_look };
constexpr std::array<const char*, 4> kLookClass = {"s-comp", "s-mem", "s-comm", "s-wait"};
constexpr std::array<const char*, 4> kLookName = {"compute", "memory", "communication", "wait"};

Look look_of(Span::Kind kind) {
  switch (kind) {
    case Span::Kind::compute:
      return compute_look;
    case Span::Kind::memory:
    case Span::Kind::storage:
      return memory_look;
    case Span::Kind::wait:
      return wait_look;
    case Span::Kind::collective:
    case Span::Kind::send:
    case Span::Kind::recv:
      break;
  }
  return comm_look;
}

struct Lane {
  uint32_t rank = 0;
  Look first_look = compute_look;
  std::string name;
  std::vector<const Span*> spans;  ///< by begin
};

/// What is drawn as one rectangle: one span, or several that would be narrower than a pixel.
struct Bar {
  Time begin, end;
  const Span* only = nullptr;  ///< null when merged
  uint64_t count = 0;
  std::array<int64_t, 4> ps{};  ///< time per look
  [[nodiscard]] Look look() const {
    return static_cast<Look>(std::max_element(ps.begin(), ps.end()) - ps.begin());
  }
};

constexpr size_t kMaxLanes = 96;

/// Lanes by rank and stream; by rank and {compute, communication} when there are many streams.
std::vector<Lane> make_lanes(const Result& result, bool by_stream,
                             const std::set<uint32_t>& ranks) {
  std::map<std::pair<uint32_t, std::string>, Lane> lanes;
  for (const Span& span : result.spans) {
    if (!ranks.empty() && ranks.count(span.rank) == 0) continue;
    const Look look = look_of(span.kind);
    std::string name = by_stream                                     ? span.stream
                       : look == compute_look || look == memory_look ? "compute"
                                                                     : "comm";
    Lane& lane = lanes[{span.rank, name}];
    if (lane.spans.empty()) {
      lane.rank = span.rank;
      lane.name = std::move(name);
      lane.first_look = look;
    }
    lane.first_look = std::min(lane.first_look, look);
    lane.spans.push_back(&span);
  }
  std::vector<Lane> out;
  for (auto& entry : lanes) out.push_back(std::move(entry.second));
  std::stable_sort(out.begin(), out.end(), [](const Lane& a, const Lane& b) {
    return std::pair(a.rank, a.first_look) < std::pair(b.rank, b.first_look);
  });
  for (Lane& lane : out) {
    std::stable_sort(lane.spans.begin(), lane.spans.end(),
                     [](const Span* a, const Span* b) { return a->begin < b->begin; });
  }
  return out;
}

std::vector<Bar> make_bars(const Lane& lane, const Axis& axis, double min_width) {
  std::vector<Bar> bars;
  double bucket = -1;  // of the merged bar at the back, or -1
  for (const Span* span : lane.spans) {
    const double x = axis.x(span->begin);
    const bool narrow = axis.x(span->end) - x < min_width;
    const double own = std::floor(x / min_width);
    if (!narrow || bucket < 0 || own != bucket) {
      bars.push_back({span->begin, span->end, span, 0, {}});
      bucket = narrow ? own : -1;
    }
    Bar& bar = bars.back();
    bar.end = std::max(bar.end, span->end);
    bar.ps[look_of(span->kind)] += (span->end - span->begin).ps();
    if (++bar.count > 1) bar.only = nullptr;
  }
  return bars;
}

std::string tooltip(const Lane& lane, const Bar& bar) {
  const std::string where = fmt::format("rank {}, {}\n{} to {}", lane.rank, printable(lane.name),
                                        pretty(bar.begin), pretty(bar.end));
  if (bar.only != nullptr) {
    return fmt::format("{} ({}), {}\n{}", printable(bar.only->name), span_kind_name(bar.only->kind),
                       pretty(bar.end - bar.begin), where);
  }
  std::string parts;
  for (size_t look = 0; look < bar.ps.size(); ++look) {
    if (bar.ps[look] == 0) continue;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", kLookName[look],
                         pretty(Time::ps(bar.ps[look])));
  }
  return fmt::format("{} spans drawn as one: {}\n{}", grouped(bar.count), parts, where);
}

/// escape_html turns line breaks into blanks; in a tooltip they are wanted.
std::string escape_lines(const std::string& text) {
  std::string out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out +=
        (begin == 0 ? "" : "\n") + escape_html(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace

Chart timeline(const Result& result) {
  Chart chart;
  if (result.spans.empty()) return chart;

  std::set<uint32_t> all_ranks;
  std::set<std::pair<uint32_t, std::string>> streams;
  Time begin = Time::infinity(), end = result.end;
  for (const Span& span : result.spans) {
    all_ranks.insert(span.rank);
    streams.insert({span.rank, span.stream});
    begin = std::min(begin, span.begin);
    end = std::max(end, span.end);
  }
  // A short stretch before the first op is part of the story, a long one only wastes the width.
  if (begin.ps() < end.ps() / 5) begin = Time();

  const bool by_stream = streams.size() <= kMaxLanes;
  const Axis axis(begin, end, 9, false);
  const std::vector<uint32_t> ranks(all_ranks.begin(), all_ranks.end());
  std::vector<Lane> lanes;
  std::vector<std::vector<Bar>> bars;
  std::set<uint32_t> shown;  // empty: all
  double min_width = 1;
  // Fewer ranks come before coarser bars: a rank left out resembles one that is drawn, but a wait
  // merged into its collective is lost.
  size_t count = by_stream ? ranks.size() : std::min(ranks.size(), kMaxLanes / 2);
  for (;;) {
    shown.clear();
    if (count < ranks.size()) {
      const auto chosen = choose_ranks(ranks, count, notable_ranks(result));
      shown.insert(chosen.begin(), chosen.end());
    }
    lanes = make_lanes(result, by_stream, shown);
    const bool last_choice = count <= 8;
    size_t drawn = 0;
    for (min_width = 1;; min_width *= 1.5) {
      bars.clear();
      drawn = 0;
      for (const Lane& lane : lanes) {
        bars.push_back(make_bars(lane, axis, min_width));
        drawn += bars.back().size();
      }
      if (drawn <= kMaxBars || (!last_choice && min_width > 2)) break;
    }
    if (drawn <= kMaxBars) break;
    count = std::max<size_t>(8, count * 2 / 3);
  }

  constexpr double kTop = 22, kLane = 13, kBar = 11, kRankGap = 5;
  std::string labels, rects, names;
  double y = kTop;
  uint64_t merged = 0, merged_bars = 0, spans = 0;
  for (size_t l = 0; l < lanes.size(); ++l) {
    const Lane& lane = lanes[l];
    if (l == 0 || lanes[l - 1].rank != lane.rank) {
      if (l > 0) y += kRankGap;
      label(0, y + 9.5, "rank", "start", fmt::format("rank {}", lane.rank), labels);
    }
    label(kLabelWidth - 6, y + 9.5, "stream", "end", shortened(printable(lane.name), 14, "\u2026"),
          labels);
    fmt::format_to(
        std::back_inserter(rects),
        "<rect class=\"lane\" x=\"0\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\"/>\n", y,
        kPlotWidth, kBar);
    // Waits first: where streams overlap in one lane, what moves shows above who waits.
    std::stable_sort(bars[l].begin(), bars[l].end(), [](const Bar& a, const Bar& b) {
      return (a.look() == wait_look) > (b.look() == wait_look);
    });
    for (const Bar& bar : bars[l]) {
      spans += bar.count;
      if (bar.only == nullptr) {
        merged += bar.count;
        ++merged_bars;
      }
      const double x = axis.x(bar.begin);
      double width = axis.x(bar.end) - x;
      // A hairline between neighbours of one colour; a floor so that nothing vanishes.
      width = width > 4 ? width - 0.6 : std::max(width, 0.7);
      const double left = std::min(x, kPlotWidth - width);
      fmt::format_to(std::back_inserter(rects),
                     "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.0f}\" width=\"{:.2f}\" "
                     "height=\"{:.0f}\"><title>{}</title></rect>\n",
                     // Too narrow a bar shows nothing of a hatch.
                     bar.look() == wait_look && width < 6 ? "s-thin" : kLookClass[bar.look()], left,
                     y, width, kBar, escape_lines(tooltip(lane, bar)));
      if (bar.only == nullptr) continue;
      const std::string name = printable(bar.only->name);
      const bool fits = static_cast<double>(columns(name)) * 5.3 + 8 < width;
      if (fits && !name.empty() && bar.look() != wait_look) {
        label(x + 4, y + 8.6, bar.look() == compute_look ? "in-bar on-dark" : "in-bar", "start",
              name, names);
      }
    }
    y += kLane;
  }
  std::string plot;
  axis.draw(16, y + 2, 11, plot);
  plot += rects + names;
  if (y > 400) {
    for (const Time t : axis.ticks()) {
      label(axis.x(t), y + 14, "tick", axis.anchor(t), axis.label(t), plot);
    }
    y += 16;
  }
  chart.svg = beside("Timeline of simulated time, one lane per rank and stream", labels, plot,
                     y + 4, false);

  chart.note =
      fmt::format("{} in {} over {} to {} of simulated time.", counted(spans, "span", "spans"),
                  counted(lanes.size(), "lane", "lanes"), pretty(begin), pretty(end));
  if (merged > 0) {
    chart.note += fmt::format(
        " {} spans narrower than {} were merged with their neighbours into {}, coloured by what "
        "takes most of the time.",
        grouped(merged), min_width == 1 ? "a pixel" : fmt::format("{:.3g} pixels", min_width),
        counted(merged_bars, "bar", "bars"));
  }
  if (!by_stream) chart.note += " Streams are grouped into compute and communication.";
  if (!shown.empty()) {
    chart.note += fmt::format(
        " {} of {} ranks are shown: an even choice, with the rank that ends last and the one that "
        "waits longest.",
        shown.size(), grouped(all_ranks.size()));
  }
  if (result.spans_dropped > 0) {
    chart.note += fmt::format(" {} had been left out by the run before.",
                              counted(result.spans_dropped, "span", "spans"));
  }
  return chart;
}

// ---------------------------------------------------------------------------------------------
// Ranks

Chart rank_bars(const Result& result) {
  Chart chart;
  if (result.rank_times.empty()) return chart;
  constexpr size_t kMaxRanks = 64;
  std::map<uint32_t, const RankTimes*> by_rank;
  Time longest;
  for (const RankTimes& rank : result.rank_times) {
    by_rank[rank.rank] = &rank;
    longest = std::max(longest, sum_of_parts(rank));
  }
  std::vector<uint32_t> ranks;
  for (const auto& entry : by_rank) ranks.push_back(entry.first);
  const std::vector<uint32_t> shown = choose_ranks(ranks, kMaxRanks, notable_ranks(result));

  constexpr double kTop = 22, kRow = 17, kBar = 13;
  const Axis axis(Time(), longest, 6, true);
  std::string labels, rects;
  double y = kTop;
  for (const uint32_t number : shown) {
    const RankTimes& rank = *by_rank[number];
    label(0, y + 10.5, "rank", "start", fmt::format("rank {}", number), labels);
    const std::string node = endpoint_name(result, number);
    if (number < result.endpoint_names.size()) {
      label(kLabelWidth - 6, y + 10.5, "stream", "end", shortened(printable(node), 14, "\u2026"),
            labels);
    }
    const std::pair<Time, std::pair<const char*, const char*>> parts[] = {
        {rank.compute, {"s-comp", "compute"}},
        {rank.host, {"s-host", "host"}},
        {rank.exposed_comm, {"s-comm", "exposed communication"}},
        {rank.storage, {"s-mem", "storage"}},
        {rank.wait, {"s-wait", "wait for peers"}},
        {rank.idle, {"s-idle", "idle"}}};
    const Time sum = sum_of_parts(rank);
    Time at;
    for (const auto& [time, style] : parts) {
      if (time <= Time()) continue;
      const double x = axis.x(at), width = axis.x(at + time) - x;
      at += time;
      fmt::format_to(
          std::back_inserter(rects),
          "<rect class=\"{}\" x=\"{:.3f}%\" y=\"{:.0f}\" width=\"{:.3f}%\" height=\"{:.0f}\">"
          "<title>{}</title></rect>\n",
          style.first, x, y, width, kBar,
          escape_lines(fmt::format(
              "rank {}: {}\n{} ({} %)\nhidden communication: {}", number, style.second,
              pretty(time), percent(static_cast<double>(time.ps()) / static_cast<double>(sum.ps())),
              pretty(rank.hidden_comm))));
    }
    y += kRow;
  }
  std::string plot;
  axis.draw(16, y, 11, plot);
  plot += rects;
  chart.svg = beside("Time of each rank by what it does", labels, plot, y + 4, true);
  if (shown.size() < ranks.size()) {
    chart.note = fmt::format(
        "{} of {} ranks are shown: an even choice, with the rank that ends last and the one that "
        "waits longest. All are in ranks.csv.",
        shown.size(), grouped(ranks.size()));
  }
  return chart;
}

// ---------------------------------------------------------------------------------------------
// Links

namespace {

constexpr std::array<double, 7> kHeatBounds = {0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 1e9};

/// 0 for an unused link, 1 to 7 by utilisation.
size_t heat_class(double utilisation, bool used) {
  if (!used) return 0;
  size_t i = 0;
  while (i + 1 < kHeatBounds.size() && utilisation >= kHeatBounds[i]) ++i;
  return i + 1;
}

bool used(const LinkRecord& link) {
  return link.packets > 0 || link.busy > Time();
}

struct Cell {
  std::vector<size_t> links;
};
struct HeatRow {
  std::string name;
  std::vector<Cell> cells;
};
struct Tier {
  std::string name;
  std::vector<size_t> links;  ///< by source node
  std::vector<HeatRow> rows;
};

/// "node3.nic5" -> "node.nic": what kind of node it is, as far as the name tells.
std::string stem(std::string node) {
  node.erase(std::remove_if(node.begin(), node.end(),
                            [](unsigned char c) { return c >= '0' && c <= '9'; }),
             node.end());
  return node;
}

/// Links by tier and direction ("leaf-spine, leaf -> spine"). Where names say nothing about the
/// kind of node, that would give a block per node, so then by tier only.
std::vector<Tier> group_links(const Result& result, bool by_direction) {
  std::vector<Tier> tiers;
  std::map<std::string, size_t> index;
  std::set<std::string> names;
  for (size_t i = 0; i < result.links.size(); ++i) {
    const LinkRecord& link = result.links[i];
    std::string name = link.tier.empty() ? "links" : link.tier;
    names.insert(name);
    if (by_direction) name += ", " + stem(link.from) + " \u2192 " + stem(link.to);
    const auto [at, added] = index.try_emplace(name, tiers.size());
    if (added) tiers.push_back({name, {}, {}});
    tiers[at->second].links.push_back(i);
  }
  return by_direction && tiers.size() > 4 * names.size() ? group_links(result, false) : tiers;
}

/// "node3.nic5" belongs to "node3".
std::string parent(const std::string& node) {
  return node.substr(0, node.rfind('.'));
}

std::string link_title(const Result& result, const LinkRecord& link) {
  std::string text =
      fmt::format("{} \u2192 {} ({}, {})\nutilisation {} %\n{} on the wire", printable(link.from),
                  printable(link.to), printable(link.tier), typeset(print_rate(link.rate)),
                  percent(utilisation(link, result)), pretty(link.bytes));
  if (!result.packets_modelled) return text;
  text += ", peak queue " + pretty(link.peak_queue_bytes);
  text += fmt::format("\n{}, paused for {}", counted(link.pauses_received, "pause", "pauses"),
                      pretty(link.paused));
  text += fmt::format("\n{}, {}", counted(link.ecn_marks, "ECN mark", "ECN marks"),
                      counted(link.drops, "drop", "drops"));
  return text;
}

/// A row per source node (or per host, for its NICs) while that makes a readable grid, else one
/// block of cells in order of source node.
void make_rows(const Result& result, Tier& tier, size_t links_per_cell) {
  std::map<std::string, size_t> row_of;
  if (links_per_cell == 1) {
    for (const size_t i : tier.links) {
      const std::string name = parent(result.links[i].from);
      const auto [at, added] = row_of.try_emplace(name, tier.rows.size());
      if (added) tier.rows.push_back({name, {}});
      tier.rows[at->second].cells.push_back({{i}});
    }
    if (tier.rows.size() <= 80 && tier.links.size() >= 2 * tier.rows.size()) return;
    tier.rows.clear();
  }
  HeatRow row;
  const std::string first = result.links[tier.links.front()].from;
  const std::string last = result.links[tier.links.back()].from;
  row.name = first == last ? first : first + " \u2026 " + last;
  for (size_t i = 0; i < tier.links.size(); i += links_per_cell) {
    const size_t end = std::min(i + links_per_cell, tier.links.size());
    row.cells.push_back({{tier.links.begin() + static_cast<std::ptrdiff_t>(i),
                          tier.links.begin() + static_cast<std::ptrdiff_t>(end)}});
  }
  tier.rows.push_back(std::move(row));
}

}  // namespace

Chart link_heat_map(const Result& result) {
  Chart chart;
  if (result.links.empty()) return chart;

  std::vector<Tier> tiers = group_links(result, true);
  size_t links_per_cell = 1;
  const auto cells_needed = [&] {
    size_t n = 0;
    for (const Tier& tier : tiers) n += (tier.links.size() + links_per_cell - 1) / links_per_cell;
    return n;
  };
  while (cells_needed() > kMaxCells && cells_needed() > tiers.size()) ++links_per_cell;
  for (Tier& tier : tiers) {
    std::stable_sort(tier.links.begin(), tier.links.end(), [&](size_t a, size_t b) {
      const LinkRecord& la = result.links[a];
      const LinkRecord& lb = result.links[b];
      return std::pair(la.from_node, la.to_node) < std::pair(lb.from_node, lb.to_node);
    });
    make_rows(result, tier, links_per_cell);
  }

  constexpr double kWidth = kLabelWidth + kPlotWidth, kCell = 15, kSide = 13, kName = 118;
  std::string svg;
  double y = 0;
  for (const Tier& tier : tiers) {
    double sum = 0, peak = 0;
    for (const size_t i : tier.links) {
      const double u = utilisation(result.links[i], result);
      sum += u;
      peak = std::max(peak, u);
    }
    const std::string title =
        fmt::format("{}: {}, mean {} %, hottest {} %", printable(tier.name),
                    counted(tier.links.size(), "directed link", "directed links"),
                    percent(sum / static_cast<double>(tier.links.size())), percent(peak));
    label(0, y + 13, "tier", "start", title, svg);
    y += 21;

    // A single block has a range for a name, which needs a line of its own.
    const bool block = tier.rows.size() == 1;
    if (block) {
      label(0, y + 10, "stream", "start", "from " + printable(tier.rows[0].name), svg);
      y += 15;
    }
    const double name_width = block ? 0 : kName;
    size_t widest = 1;
    for (const HeatRow& row : tier.rows) widest = std::max(widest, row.cells.size());
    const auto per_line = static_cast<size_t>((kWidth - name_width) / kCell);
    const double panel = name_width + static_cast<double>(std::min(widest, per_line)) * kCell + 16;
    const auto panels = std::max<size_t>(1, static_cast<size_t>((kWidth + 16) / panel));
    const size_t lines_per_row = (widest + per_line - 1) / per_line;
    const size_t rows_per_panel = (tier.rows.size() + panels - 1) / panels;
    for (size_t r = 0; r < tier.rows.size(); ++r) {
      const HeatRow& row = tier.rows[r];
      const double left = static_cast<double>(r / rows_per_panel) * panel;
      const double top = y + static_cast<double>(r % rows_per_panel * lines_per_row) * kCell;
      if (!block) {
        label(left + kName - 6, top + 10.5, "stream", "end",
              shortened(printable(row.name), 18, "\u2026"), svg);
      }
      for (size_t c = 0; c < row.cells.size(); ++c) {
        const std::vector<size_t>& links = row.cells[c].links;
        const size_t hottest = *std::max_element(
            links.begin(), links.end(),
            [&](size_t a, size_t b) { return result.links[a].busy < result.links[b].busy; });
        const double u = utilisation(result.links[hottest], result);
        bool any_used = false, paused = false;
        double total = 0;
        for (const size_t i : links) {
          any_used = any_used || used(result.links[i]);
          paused = paused || result.links[i].pauses_received > 0;
          total += utilisation(result.links[i], result);
        }
        std::string tip = link_title(result, result.links[hottest]);
        if (links.size() > 1) {
          tip = fmt::format("{} links, mean {} %; hottest:\n{}", links.size(),
                            percent(total / static_cast<double>(links.size())), tip);
        }
        const double x = left + name_width + static_cast<double>(c % per_line) * kCell;
        const double cy = top + static_cast<double>(c / per_line) * kCell;
        const size_t heat = heat_class(u, any_used);
        fmt::format_to(std::back_inserter(svg),
                       "<rect class=\"h{}\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" "
                       "height=\"{:.0f}\"><title>{}</title></rect>\n",
                       heat, x, cy, kSide, kSide, escape_lines(tip));
        if (paused) {
          fmt::format_to(std::back_inserter(svg),
                         "<circle class=\"p{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\"/>\n",
                         heat >= 4 ? 1 : 0, x + kSide / 2, cy + kSide / 2);
        }
      }
    }
    y += static_cast<double>(rows_per_panel * lines_per_row) * kCell + 14;
  }
  const char* name = "Utilisation of links, one cell per directed link";
  chart.svg = fmt::format(
      "<div class=\"chart\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\"><svg "
      "width=\"{1:.0f}\" height=\"{2:.0f}\" role=\"img\" aria-label=\"{0}\">\n{3}</svg></div>\n",
      name, kWidth, y, svg);
  chart.note =
      links_per_cell == 1
          ? "One cell is one directed link, in the row of the node that it leaves."
          : fmt::format(
                "{} links are more than can be drawn one by one: a cell stands for up to {} "
                "neighbouring links and shows the hottest of them. All are in links.csv.",
                grouped(result.links.size()), links_per_cell);
  return chart;
}

Chart link_sparklines(const Result& result) {
  const LinkSeries& series = result.link_series;
  Chart chart;
  std::vector<size_t> shown;
  int64_t windows = 0;
  for (const size_t i : hottest_links(result, 8)) {
    if (i >= series.links.size() || series.links[i].empty()) continue;
    shown.push_back(i);
    windows = std::max(windows, series.links[i].back().window + 1);
  }
  if (shown.empty()) return chart;
  // A bin is a whole number of windows and at least two pixels wide.
  const int64_t per_bin = std::max<int64_t>(1, (windows + 399) / 400);
  const auto bins = static_cast<size_t>((windows + per_bin - 1) / per_bin);
  const Time bin_time = series.window * per_bin;
  const Axis axis(Time(), bin_time * static_cast<int64_t>(bins), 9, false);

  constexpr double kBusy = 24, kQueue = 14, kRow = 50;
  std::string labels, plot;
  const double bottom = 18 + kRow * static_cast<double>(shown.size());
  axis.draw(16, bottom, 11, plot);
  double y = 18;
  for (const size_t i : shown) {
    const LinkRecord& link = result.links[i];
    std::vector<int64_t> bytes(bins), queue(bins), paused(bins);
    int64_t standing = 0, deepest = 1;
    size_t filled = 0;
    for (const LinkSeries::Row& row : series.links[i]) {
      const auto bin = static_cast<size_t>(row.window / per_bin);
      for (; filled <= bin; ++filled) queue[filled] = standing;
      bytes[bin] += row.bytes;
      paused[bin] += row.paused_ps;
      queue[bin] = std::max(queue[bin], row.queue_max_bytes);
      standing = row.queue_bytes;
      deepest = std::max(deepest, row.queue_max_bytes);
    }
    const auto area = [&](const char* css, double base, double height, const auto& ratio) {
      std::string path;
      for (size_t b = 0; b < bins; ++b) {
        const double h = height * std::clamp(ratio(b), 0.0, 1.0);
        if (h < 0.05) continue;
        fmt::format_to(std::back_inserter(path), "M{:.1f} {:.1f}v-{:.1f}H{:.1f}v{:.1f}z",
                       axis.x(bin_time * static_cast<int64_t>(b)), base, h,
                       axis.x(bin_time * static_cast<int64_t>(b + 1)), h);
      }
      if (!path.empty()) {
        fmt::format_to(std::back_inserter(plot), "<path class=\"{}\" d=\"{}\"/>\n", css, path);
      }
    };
    const double full = static_cast<double>(link.rate.bps()) / 8 * bin_time.seconds();
    fmt::format_to(std::back_inserter(plot), "<g><title>{}</title>\n",
                   escape_lines(link_title(result, link)));
    fmt::format_to(std::back_inserter(plot),
                   "<rect class=\"lane\" x=\"0\" y=\"{:.0f}\" width=\"{:.0f}\" "
                   "height=\"{:.0f}\"/>\n",
                   y, kPlotWidth, kBusy);
    area("s-comp", y + kBusy, kBusy,
         [&](size_t b) { return static_cast<double>(bytes[b]) / full; });
    area("s-comm", y + kBusy + 3 + kQueue, kQueue,
         [&](size_t b) { return static_cast<double>(queue[b]) / static_cast<double>(deepest); });
    area("s-thin", y + kBusy + 3, 3, [&](size_t b) {
      return static_cast<double>(paused[b]) / static_cast<double>(bin_time.ps());
    });
    plot += "</g>\n";
    label(kLabelWidth - 6, y + 12, "rank", "end",
          shortened(printable(link.from), 24, "\u2026") + " \u2192", labels);
    label(kLabelWidth - 6, y + 25, "rank", "end", shortened(printable(link.to), 24, "\u2026"),
          labels);
    label(kLabelWidth - 6, y + 38, "stream", "end", "queue up to " + pretty(deepest), labels);
    y += kRow;
  }
  chart.svg = beside("Busiest links over time", labels, plot, bottom + 4, false);
  chart.note = fmt::format(
      "Upper band: part of the line rate in use, up to 100 %. Lower band: largest egress queue, "
      "each link on a scale of its own. One step is {}. All is in link_series.csv.",
      pretty(bin_time));
  return chart;
}

std::string heat_legend() {
  std::string out = "<p class=\"legend\"><span><i class=\"k h0\"></i>unused</span>";
  for (size_t i = 0; i < kHeatBounds.size(); ++i) {
    const double low = i == 0 ? 0 : kHeatBounds[i - 1];
    const bool last = i + 1 == kHeatBounds.size();
    out += fmt::format("<span><i class=\"k h{}\"></i>{}</span>", i + 1,
                       i == 0 ? fmt::format("under {:.0f} %", kHeatBounds[0] * 100)
                       : last ? fmt::format("{:.0f} % and more", low * 100)
                              : fmt::format("{:.0f} to {:.0f} %", low * 100, kHeatBounds[i] * 100));
  }
  return out + "<span><i class=\"k dot\"></i>paused by PFC</span></p>\n";
}

}  // namespace trainyard::report
