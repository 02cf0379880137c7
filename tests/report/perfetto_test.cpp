// SPDX-License-Identifier: MIT
// trace.json.gz against the rules of the Trace Event format, and against the Result.
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/report/synthetic_result.h"
#include "tools/report/report.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::synthetic_result;
using testing::traffic_only_result;

/// 40 links, of which every second has a row in windows 2, 3 and 5.
Result with_series() {
  Result r = synthetic_result();
  r.link_series.asked = Time::us(10);
  r.link_series.window = Time::us(20);
  for (size_t i = 0; i < r.links.size(); ++i) {
    auto& rows = r.link_series.links.emplace_back();
    if (i % 2 == 0) continue;
    rows.push_back({2, 40'000, 500, 1000, 0, 39'000});
    rows.push_back({3, 20'000, 500, 500, 5'000'000, 19'000});
    rows.push_back({5, 3'000, 0, 500, 0, 2'500});
  }
  return r;
}

/// Spans that know their collective, as a run leaves them.
Result with_causes() {
  Result r = with_series();
  for (size_t i = 0; i < r.collectives.size(); ++i) {
    r.collectives[i].owner = static_cast<uint32_t>(i);
    r.collectives[i].last_rank = 2;
  }
  std::map<uint32_t, uint32_t> nth;
  for (Span& span : r.spans) {
    if (span.kind == Span::Kind::compute) continue;
    uint32_t& n = nth[span.rank * 2 + (span.kind == Span::Kind::wait ? 1 : 0)];
    if (n < 8) span.owner = n;
    ++n;
    if (span.kind == Span::Kind::wait) span.last = 2;
  }
  return r;
}

class Perfetto : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::temp_directory_path() /
           ("trainyard_perfetto_" + std::to_string(::getpid()) + "_" + info->name());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  static std::string gunzip(const fs::path& path) {
    std::string out;
    gzFile in = gzopen(path.c_str(), "rb");
    EXPECT_NE(in, nullptr);
    if (in == nullptr) return out;
    char buffer[1 << 16];
    int n = 0;
    while ((n = gzread(in, buffer, sizeof buffer)) > 0) out.append(buffer, static_cast<size_t>(n));
    EXPECT_EQ(n, 0);
    EXPECT_EQ(gzclose(in), Z_OK);  // the trailer with CRC and length is there
    return out;
  }
  std::string text(const Result& r, const PerfettoLimits& limits = {}) const {
    const fs::path path = dir_ / "trace.json.gz";
    write_perfetto(r, path.string(), limits);
    return gunzip(path);
  }
  Json trace(const Result& r, const PerfettoLimits& limits = {}) const {
    return Json::parse(text(r, limits));
  }
  fs::path dir_;
};

int64_t ps(const Json& us) {
  return std::llround(us.get<double>() * 1e6);
}

/// The rules that every viewer relies on; returns events by phase.
std::map<std::string, std::vector<Json>> checked(const Json& doc) {
  std::map<std::string, std::vector<Json>> by_phase;
  std::map<int64_t, std::string> process;
  std::map<int64_t, int64_t> process_of_thread;
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<int64_t, int64_t>>> spans;
  EXPECT_FALSE(doc.contains("displayTimeUnit"));  // would change the unit of ts
  for (const Json& e : doc.at("traceEvents")) {
    for (const char* key : {"ph", "name", "pid", "tid", "args"}) {
      EXPECT_TRUE(e.contains(key)) << e.dump();
    }
    const std::string phase = e.at("ph");
    EXPECT_EQ(phase.size(), 1U);
    EXPECT_TRUE(e.at("name").is_string() && e.at("args").is_object()) << e.dump();
    const int64_t pid = e.at("pid"), tid = e.at("tid");
    EXPECT_GT(pid, 0) << e.dump();
    for (const auto& [key, value] : e.at("args").items()) {
      EXPECT_TRUE(value.is_primitive()) << key << " in " << e.dump();
    }
    if (phase == "M") {
      if (e.at("name") == "process_name") {
        EXPECT_TRUE(process.emplace(pid, e.at("args").at("name")).second) << e.dump();
      } else if (e.at("name") == "thread_name") {
        EXPECT_TRUE(process_of_thread.emplace(tid, pid).second) << "tids are unique: " << e.dump();
      }
    } else {
      EXPECT_TRUE(e.at("ts").is_number()) << e.dump();
      EXPECT_TRUE(process.count(pid)) << e.dump();
      if (phase != "C") {
        EXPECT_EQ(process_of_thread.at(tid), pid) << e.dump();
        EXPECT_TRUE(e.at("cat").is_string());
      }
    }
    if (phase == "X") {
      EXPECT_GE(ps(e.at("dur")), 0);
      spans[{pid, tid}].emplace_back(ps(e.at("ts")), ps(e.at("ts")) + ps(e.at("dur")));
    }
    if (phase == "C") {
      EXPECT_FALSE(e.at("args").empty());
      for (const auto& [key, value] : e.at("args").items()) EXPECT_TRUE(value.is_number()) << key;
    }
    if (phase == "f") {
      EXPECT_EQ(e.at("bp"), "e");
    }
    by_phase[phase].push_back(e);
  }
  for (auto& [thread, list] : spans) {
    std::sort(list.begin(), list.end());
    for (size_t i = 1; i < list.size(); ++i) {
      EXPECT_GE(list[i].first, list[i - 1].second) << "overlap on thread " << thread.second;
    }
  }
  // Arrows: one begin and one end per id, both inside a span, in this order.
  std::map<int64_t, Json> begins, ends;
  const auto inside = [&](const Json& e) {
    const auto& list = spans[{e.at("pid"), e.at("tid")}];
    return std::any_of(list.begin(), list.end(), [&](const auto& s) {
      return s.first <= ps(e.at("ts")) && ps(e.at("ts")) < s.second;
    });
  };
  for (const Json& e : by_phase["s"]) EXPECT_TRUE(begins.emplace(e.at("id"), e).second);
  for (const Json& e : by_phase["f"]) EXPECT_TRUE(ends.emplace(e.at("id"), e).second);
  EXPECT_EQ(begins.size(), ends.size());
  for (const auto& [id, e] : begins) {
    EXPECT_TRUE(ends.count(id)) << id;
    EXPECT_TRUE(inside(e)) << e.dump();
    EXPECT_TRUE(inside(ends[id])) << ends[id].dump();
    EXPECT_LE(ps(e.at("ts")), ps(ends[id].at("ts")));
    EXPECT_EQ(e.at("name"), ends[id].at("name"));
    EXPECT_EQ(e.at("cat"), ends[id].at("cat"));
  }
  // The one span of the run tells what was left out.
  EXPECT_EQ(std::count_if(by_phase["X"].begin(), by_phase["X"].end(),
                          [](const Json& e) { return e.at("cat") == "run"; }),
            1);
  return by_phase;
}

TEST_F(Perfetto, EventsFollowTheFormatAndSpansSumPerRank) {
  const Result r = with_causes();
  const Json doc = trace(r);
  auto events = checked(doc);
  std::map<int64_t, int64_t> expected, got;
  for (const Span& span : r.spans) expected[span.rank + 1] += (span.end - span.begin).ps();
  for (const Json& e : events["X"]) {
    if (e.at("cat") != "run") got[e.at("pid")] += ps(e.at("dur"));
  }
  EXPECT_EQ(expected, got);
  EXPECT_EQ(events["X"].size(), r.spans.size() + 1);
  std::set<std::string> processes, threads;
  for (const Json& e : events["M"]) {
    if (e.at("name") == "process_name") processes.insert(e.at("args").at("name"));
    if (e.at("name") == "thread_name") threads.insert(e.at("args").at("name"));
  }
  EXPECT_TRUE(processes.count("rank 3 (node3.gpu0)"));
  EXPECT_EQ(processes.size(), 6U);  // four ranks, the run, the links
  EXPECT_EQ(threads, (std::set<std::string>{"about this trace", "compute", "nccl", "waits"}));
}

TEST_F(Perfetto, TimesAreExact) {
  Result r = synthetic_result();
  r.spans = {{1, Span::Kind::compute, "op", "compute", Time::ps(9'007'199'254'740'993),
              Time::ps(9'007'199'254'740'995)}};
  EXPECT_NE(text(r).find("\"ts\":9007199254.740993,\"dur\":0.000002,"), std::string::npos);
}

TEST_F(Perfetto, SpansOfOneStreamThatOverlapGetThreadsOfTheirOwn) {
  Result r = synthetic_result();
  r.spans.clear();
  for (int k = 0; k < 3; ++k) {
    r.spans.push_back({0, Span::Kind::collective, "c", "communication", Time::us(k),
                       Time::us(k) + Time::ns(2'500)});
  }
  auto events = checked(trace(r));
  std::set<std::string> names;
  for (const Json& e : events["M"]) {
    if (e.at("name") == "thread_name") names.insert(e.at("args").at("name"));
  }
  EXPECT_TRUE(names.count("communication") && names.count("communication (2)") &&
              names.count("communication (3)"));
}

TEST_F(Perfetto, Causes) {
  auto events = checked(trace(with_causes()));
  size_t collectives = 0, waits = 0;
  for (const Json& e : events["X"]) {
    const Json& args = e.at("args");
    if (e.at("cat") == "collective" && args.contains("collective")) {
      ++collectives;
      EXPECT_EQ(args.at("algorithm"), "ring");
      EXPECT_EQ(args.at("bytes"), 1 << 20);
      EXPECT_EQ(args.at("busbw_gbytes_per_s"), 196.608);
      EXPECT_EQ(args.at("longest_wait_ns"), 2000);
      EXPECT_EQ(args.at("last_to_arrive"), "rank 2 (node2.gpu0)");
    }
    if (e.at("cat") == "wait") {
      ++waits;
      EXPECT_EQ(args.at("waits_for"), "rank 2 (node2.gpu0)");
    }
  }
  EXPECT_EQ(collectives, 4U * 8U);
  EXPECT_EQ(waits, 4U * 20U);
}

TEST_F(Perfetto, ArrowsAreCappedAndTheFileSaysSo) {
  const Result r = with_causes();
  Json doc = trace(r);
  auto events = checked(doc);
  EXPECT_EQ(events["s"].size(), 300U);
  EXPECT_EQ(doc["otherData"]["arrows"], 300);
  doc = trace(r, {100, 32});
  events = checked(doc);
  // The first transfers are the slowest ones.
  EXPECT_EQ(events["s"].size(), 100U);
  for (const Json& e : events["s"]) EXPECT_LT(e.at("args").at("transfer"), 100);
  EXPECT_EQ(doc["otherData"]["transfers"], 300);
  EXPECT_EQ(doc["otherData"]["arrows"], 100);
  EXPECT_EQ(doc["otherData"]["arrows_rule"], "the slowest 100 transfers");
  // Where the span was thinned out, there is nothing to hang an arrow on.
  Result thin = r;
  thin.spans.resize(1);
  thin.spans_dropped = 239;
  doc = trace(thin);
  events = checked(doc);
  EXPECT_EQ(events["s"].size(), 0U);
  EXPECT_EQ(doc["otherData"]["arrows_without_span"], 300);
  EXPECT_EQ(doc["otherData"]["spans_dropped"], 239);
  EXPECT_EQ(doc["otherData"]["spans"], 1);
}

TEST_F(Perfetto, CountersOfTheBusiestLinks) {
  const Result r = with_series();
  const Json doc = trace(r);
  auto events = checked(doc);
  std::map<std::string, std::vector<std::pair<int64_t, double>>> tracks;
  for (const Json& e : events["C"]) {
    tracks[e.at("name")].emplace_back(ps(e.at("ts")) / 1'000'000, *e.at("args").begin());
  }
  // 400 Gbit/s carry 1 MB in 20 us.
  using Track = std::vector<std::pair<int64_t, double>>;
  const std::string link = "leaf0 \u2192 node19.nic0";
  EXPECT_EQ(tracks[link + " busy"],
            (Track{{0, 0}, {40, 4}, {60, 2}, {80, 0}, {100, 0.3}, {120, 0}}));
  EXPECT_EQ(tracks[link + " queue"],
            (Track{{0, 0}, {40, 1000}, {60, 500}, {80, 500}, {100, 500}, {120, 0}}));
  EXPECT_EQ(doc["otherData"]["counter_links"], 16);  // of the 32 busiest, half carried something
  EXPECT_EQ(doc["otherData"]["window_ns"], 20'000);
  // Parallel links share their names, not their tracks.
  Result twins = r;
  twins.links[39].from_node = twins.links[37].from_node;
  twins.links[39].to_node = twins.links[37].to_node;
  twins.links[37].to = twins.links[39].to;
  std::set<std::string> names;
  events = checked(trace(twins));
  for (const Json& e : events["C"]) names.insert(e.at("name"));
  EXPECT_EQ(names.size(), tracks.size());
  EXPECT_TRUE(names.count(link + " #37 busy") && names.count(link + " #39 busy"));
  EXPECT_EQ(trace(r, {0, 2})["otherData"]["counter_links"], 1);
}

TEST_F(Perfetto, FlowsAreTheSpansOfARunWithoutWorkload) {
  const Result r = traffic_only_result();
  const Json doc = trace(r);
  auto events = checked(doc);
  EXPECT_EQ(events["X"].size(), 2U * 300U + 1U);
  EXPECT_EQ(events["s"].size(), 300U);
  EXPECT_EQ(events["C"].size(), 0U);
}

TEST_F(Perfetto, NamesCannotBreakTheFile) {
  Result r = synthetic_result();
  r.scenario_name = "a \"b\" \\ \x01 \xFF \xC3\xBC";
  r.spans[0].name = "op\n\t\"x\\";
  const std::string json = text(r);
  EXPECT_EQ(json.find("\\u"), std::string::npos);
  checked(Json::parse(json));
  checked(trace(Result{}));
}

TEST_F(Perfetto, WrittenWhereAskedForAndRemovedWhereNot) {
  Result r = with_series();
  r.perfetto = true;
  write_all(r, dir_.string());
  checked(Json::parse(gunzip(dir_ / "trace.json.gz")));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 9);
  std::ifstream first(dir_ / "trace.json.gz", std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(first), {});
  write_all(r, dir_.string());
  std::ifstream second(dir_ / "trace.json.gz", std::ios::binary);
  EXPECT_EQ(bytes, std::string(std::istreambuf_iterator<char>(second), {}));

  std::ifstream in(dir_ / "link_series.csv");
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line,
            "link_from,link_to,t_ns,bytes,queue_bytes,queue_max_bytes,paused_ns,link_id,"
            "payload_bytes");
  std::getline(in, line);
  EXPECT_EQ(line, "leaf0,node0.nic0,40000.000,40000,500,1000,0.000,1,39000");
  size_t rows = 1;
  while (std::getline(in, line)) ++rows;
  EXPECT_EQ(rows, 60U);

  write_all(synthetic_result(), dir_.string());
  EXPECT_FALSE(fs::exists(dir_ / "trace.json.gz"));
  EXPECT_FALSE(fs::exists(dir_ / "link_series.csv"));
  EXPECT_FALSE(fs::exists(dir_ / "load_series.csv"));
}

TEST_F(Perfetto, TheReportDrawsTheBusiestLinks) {
  const std::string page = report_html(with_series());
  EXPECT_NE(page.find("id=\"link-series\""), std::string::npos);
  EXPECT_EQ(report_html(synthetic_result()).find("id=\"link-series\""), std::string::npos);
}

}  // namespace
}  // namespace trainyard
