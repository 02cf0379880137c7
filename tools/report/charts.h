// SPDX-License-Identifier: MIT
// The inline SVG charts of report.html. Colours come from CSS classes of the page, so that one
// drawing serves light and dark mode. Internal to tools/report.
#pragma once

#include <string>

#include "tools/report/result.h"

namespace trainyard::report {

/// A chart and what was merged or left out to draw it.
struct Chart {
  std::string svg;   ///< empty when there is nothing to draw
  std::string note;  ///< plain text
};

/// Lanes per rank and stream; at most kMaxBars rectangles.
inline constexpr size_t kMaxBars = 8000;
Chart timeline(const Result& result);
/// One stacked bar per rank.
Chart rank_bars(const Result& result);
/// One cell per directed link, or per run of neighbouring links beyond kMaxCells.
inline constexpr size_t kMaxCells = 2000;
Chart link_heat_map(const Result& result);
/// Utilisation and queue of the 8 busiest links over time; empty without a time series.
Chart link_sparklines(const Result& result);
/// The key to the colours of link_heat_map, as HTML.
std::string heat_legend();

}  // namespace trainyard::report
