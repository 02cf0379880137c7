// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/report/synthetic_result.h"
#include "tools/report/analysis.h"
#include "tools/report/charts.h"
#include "tools/report/report.h"
#include "tools/report/text.h"

namespace trainyard {
namespace {

using testing::synthetic_result;
using testing::traffic_only_result;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

/// Every element is closed in the right order. Void elements of the page: meta.
std::string first_nesting_error(const std::string& html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    if (end == std::string::npos) return "'<' without '>'";
    const std::string tag = html.substr(at + 1, end - at - 1);
    const bool closing = tag[0] == '/';
    const std::string name = tag.substr(closing ? 1 : 0, tag.find_first_of(" /", 1) - closing);
    if (tag[0] == '!' || name == "meta" || tag.back() == '/') continue;
    if (!closing) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return "</" + name + "> at " + std::to_string(at) +
             ", open: " + (open.empty() ? "nothing" : open.back());
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : "never closed: " + open.back();
}

TEST(Html, IsSelfContained) {
  const std::string html = report_html(synthetic_result());
  for (const char* part : {"http://", "https://", "<script", "<link", "@import", "src=", "<img"}) {
    EXPECT_FALSE(has(html, part)) << part;
  }
  EXPECT_EQ(html.rfind("<!DOCTYPE html>", 0), 0U);
  EXPECT_EQ(first_nesting_error(html), "");
  EXPECT_EQ(html, report_html(synthetic_result()));
}

TEST(Html, TrustComesBeforeTheFigures) {
  const std::string html = report_html(synthetic_result());
  const size_t trust = html.find("How far to trust this");
  ASSERT_NE(trust, std::string::npos);
  EXPECT_LT(trust, html.find("Key figures"));
  EXPECT_LT(trust, html.find("id=\"timeline\""));
  EXPECT_TRUE(
      has(html, "<li class=\"caution\"><span class=\"topic\"><b>Caution</b> compute times"));
  EXPECT_TRUE(has(html, "(uncalibrated"));
  EXPECT_FALSE(has(html, "Incomplete run"));
}

TEST(Html, EscapesNames) {
  const std::string html = report_html(synthetic_result());
  EXPECT_TRUE(has(html, "<h1>two &lt;nodes&gt; &amp; &quot;one&quot; switch</h1>"));
  EXPECT_TRUE(has(html, "grads &lt;1&gt;"));
  EXPECT_TRUE(has(html, "all&lt;reduce&gt;"));
  for (const char* part : {"<nodes>", "<1>", "<reduce>", "<not>"}) EXPECT_FALSE(has(html, part));
  // A share that prints as "<0.1" is text as well.
  Result r = synthetic_result();
  for (RankTimes& rank : r.rank_times) rank.wait = Time::ns(1);
  EXPECT_EQ(first_nesting_error(report_html(r)), "");
}

TEST(Html, IncompleteRunSaysSoAtTheTop) {
  Result r = synthetic_result();
  r.complete = false;
  r.incomplete_reason = "interrupted <by> the user";
  const std::string html = report_html(r);
  const size_t banner = html.find("Incomplete run:</strong> interrupted &lt;by&gt; the user");
  ASSERT_NE(banner, std::string::npos);
  EXPECT_LT(banner, html.find("How far to trust this"));
}

TEST(Html, TrafficOnlyRunHasNoEmptySections) {
  const std::string html = report_html(traffic_only_result());
  for (const char* id : {"timeline", "ranks", "collectives"}) {
    EXPECT_FALSE(has(html, std::string("id=\"") + id + "\"")) << id;
  }
  EXPECT_FALSE(has(html, "Step time"));
  EXPECT_TRUE(has(html, "300 flows"));
  EXPECT_EQ(first_nesting_error(html), "");

  const std::string nothing = report_html(Result{});
  EXPECT_TRUE(has(nothing, "0 flows"));
  EXPECT_EQ(first_nesting_error(nothing), "");
}

TEST(Timeline, MergesSpansNarrowerThanAPixelAndKeepsTheirCount) {
  Result r = synthetic_result();
  r.spans.clear();
  for (uint32_t rank = 0; rank < 300; ++rank) {
    for (int k = 0; k < 200; ++k) {
      const Time at = Time::us(6 * k);
      r.spans.push_back({rank, Span::Kind::compute, "op", "a", at, at + Time::us(2)});
      r.spans.push_back(
          {rank, Span::Kind::collective, "op", "b", at + Time::us(2), at + Time::us(4)});
    }
  }
  const report::Chart chart = report::timeline(r);
  EXPECT_LE(count(chart.svg, "<title>"), report::kMaxBars);
  EXPECT_TRUE(has(chart.note, "of 300 ranks are shown")) << chart.note;

  // One lane with far more spans than pixels.
  r.spans.clear();
  for (int k = 0; k < 100'000; ++k) {
    r.spans.push_back({0, Span::Kind::compute, "op", "a", Time::ns(12 * k), Time::ns(12 * k + 6)});
  }
  const report::Chart dense = report::timeline(r);
  EXPECT_LE(count(dense.svg, "<title>"), 900U);
  EXPECT_TRUE(has(dense.note, "100,000 spans narrower than a pixel were merged")) << dense.note;
}

TEST(Timeline, TooltipNamesTheSpan) {
  const report::Chart chart = report::timeline(synthetic_result());
  EXPECT_EQ(count(chart.svg, "<title>"), 4U * 60U);
  EXPECT_TRUE(has(chart.svg, "<title>matmul (compute), 30\u00a0\u00b5s\nrank 0, compute\n"));
}

TEST(HeatMap, OneCellPerLinkOrRunsOfLinks) {
  Result r = synthetic_result();
  EXPECT_EQ(count(report::link_heat_map(r).svg, "<title>"), 40U);
  const LinkRecord link = r.links[0];
  r.links.assign(5000, link);
  r.links[4321].busy = r.end;
  const report::Chart chart = report::link_heat_map(r);
  EXPECT_EQ(count(chart.svg, "<title>"), 1667U);
  EXPECT_TRUE(has(chart.svg, "utilisation 100.0 %"));
  EXPECT_TRUE(has(chart.note, "up to 3 neighbouring links")) << chart.note;
}

TEST(Percentiles, NearestRankByHand) {
  std::vector<Time> v;
  for (const int64_t ns : {15, 20, 35, 40, 50}) v.push_back(Time::ns(ns));
  EXPECT_EQ(report::nearest_rank(v, 5), Time::ns(15));
  EXPECT_EQ(report::nearest_rank(v, 30), Time::ns(20));
  EXPECT_EQ(report::nearest_rank(v, 40), Time::ns(20));
  EXPECT_EQ(report::nearest_rank(v, 50), Time::ns(35));
  EXPECT_EQ(report::nearest_rank(v, 100), Time::ns(50));
  EXPECT_EQ(report::nearest_rank({}, 50), Time());

  // 300 flows of k * 1.001 ns: median is the 150th, p99 the 297th, mean 150.5 * 1.001 ns.
  const report::FlowStats stats = report::flow_stats(synthetic_result());
  EXPECT_EQ(stats.count, 300U);
  EXPECT_EQ(stats.median, Time::ps(150 * 1001));
  EXPECT_EQ(stats.p99, Time::ps(297 * 1001));
  EXPECT_EQ(stats.max, Time::ps(300 * 1001));
  EXPECT_EQ(stats.mean, Time::ps(150'650));  // 150.6505 ns, rounded down
}

TEST(Sums, PartsSumToTheStepAndLinksToTheFlows) {
  Result r = synthetic_result();
  for (const auto& check : report::sum_checks(r)) EXPECT_TRUE(check.holds()) << check.what;
  const report::Shares s = report::shares(r.rank_times);
  EXPECT_NEAR(s.compute + s.host + s.exposed_comm + s.wait + s.idle, 1, 1e-12);
  EXPECT_EQ(s.dominant().first, "compute");
  r.rank_times[2].idle += Time::ps(1);
  r.links[5].data_bytes += 1;
  const auto checks = report::sum_checks(r);
  ASSERT_EQ(checks.size(), 3U);
  EXPECT_FALSE(checks[0].holds());
  EXPECT_TRUE(checks[1].holds());
  EXPECT_FALSE(checks[2].holds());
  EXPECT_TRUE(has(report_html(r), "differ"));
}

TEST(Text, BadUtf8AndControlCharacters) {
  EXPECT_EQ(report::valid_utf8("gr\u00fc\u00df"), "gr\u00fc\u00df");
  EXPECT_EQ(report::valid_utf8("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(report::valid_utf8("\xE2\x82"), "\uFFFD\uFFFD");            // cut short
  EXPECT_EQ(report::valid_utf8("\xC0\xAF"), "\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(report::valid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // surrogate
  EXPECT_EQ(report::printable("a\x1B[2Jb\xC2\x9B"), "a [2Jb ");
  EXPECT_EQ(report::shortened("gr\u00fc\u00dfe", 4, "\u2026"), "gr\u00fc\u2026");
  EXPECT_EQ(report::grouped(1234567), "1,234,567");
  EXPECT_EQ(report::grouped(999), "999");
  EXPECT_EQ(report::percent(0.1234), "12.3");
  EXPECT_EQ(report::percent(0.0001), "<0.1");
  EXPECT_EQ(report::percent(0), "0.0");
  EXPECT_EQ(report::volume(25'165'824'000), "25.17GB");
  EXPECT_EQ(report::volume(0), "0B");
}

TEST(Summary, FitsTheTerminalAndOpensWithTrust) {
  Result r = synthetic_result();
  r.trust.push_back({"a topic of many words that will not fit at all",
                     "a reason of many words, " + std::string(300, 'x') + " and more", true});
  r.links[39].from = std::string(150, 'n');
  r.collectives[7].name = std::string(150, 'c');
  const std::string text = summary_text(r);
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) EXPECT_LE(report::columns(line), 100U) << line;
  EXPECT_LT(text.find("How far to trust this"), text.find("step time"));
  EXPECT_TRUE(has(text, "  ! compute times"));
  EXPECT_TRUE(has(text, "    engine"));
  EXPECT_TRUE(has(text, "uncalibrated"));
  EXPECT_TRUE(has(text, "00ab12cd34ef5678"));
  EXPECT_TRUE(has(text, "600 link transmissions per second"));
  EXPECT_TRUE(has(text, "Longest collectives (5 of 8)"));
  EXPECT_TRUE(has(text, "Busiest links (5 of 40)"));
  EXPECT_FALSE(has(text, "INCOMPLETE"));
}

TEST(Summary, SaysZeroFlowsAndIncomplete) {
  Result r;
  r.incomplete_reason = "interrupted";
  const std::string text = summary_text(r);
  EXPECT_TRUE(has(text, "0 flows"));
  EXPECT_LT(text.find("! INCOMPLETE: interrupted"), text.find("How far to trust this"));
}

}  // namespace
}  // namespace trainyard
