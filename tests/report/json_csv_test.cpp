// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/report/synthetic_result.h"
#include "tools/report/report.h"
#include "tools/report/text.h"

namespace trainyard {
namespace {

using testing::synthetic_result;
using testing::traffic_only_result;

/// A reader of JSON that is independent of the library behind the writer: it checks the grammar and
/// notes the text of every scalar under its path ("links.hottest[0].busy_ns").
class JsonReader {
 public:
  explicit JsonReader(const std::string& text) : s_(text) {
    value("");
    blanks();
    if (i_ != s_.size()) ok = false;
  }
  bool ok = true;
  std::vector<std::pair<std::string, std::string>> scalars;

  [[nodiscard]] std::string at(const std::string& path) const {
    for (const auto& [key, text] : scalars) {
      if (key == path) return text;
    }
    return "absent";
  }

 private:
  void blanks() { i_ = std::min(s_.find_first_not_of(" \n", i_), s_.size()); }
  bool take(char c) {
    blanks();
    if (i_ >= s_.size() || s_[i_] != c) return false;
    ++i_;
    return true;
  }
  void need(char c) { ok = take(c) && ok; }
  std::string string() {
    need('"');
    const size_t begin = i_;
    while (ok && i_ < s_.size() && s_[i_] != '"') {
      if (static_cast<unsigned char>(s_[i_]) < 0x20) ok = false;
      i_ += s_[i_] == '\\' ? 2U : 1U;
    }
    const std::string out = s_.substr(begin, i_ - begin);
    need('"');
    return out;
  }
  void value(const std::string& path) {
    blanks();
    if (!ok || i_ >= s_.size()) {
      ok = false;
    } else if (s_[i_] == '{') {
      need('{');
      std::set<std::string> keys;
      if (take('}')) return;
      do {
        const std::string key = string();
        ok = keys.insert(key).second && ok;
        need(':');
        value(path.empty() ? key : path + "." + key);
      } while (ok && take(','));
      need('}');
    } else if (s_[i_] == '[') {
      need('[');
      if (take(']')) return;
      int n = 0;
      do value(path + "[" + std::to_string(n++) + "]");
      while (ok && take(','));
      need(']');
    } else if (s_[i_] == '"') {
      scalars.emplace_back(path, "\"" + string() + "\"");
    } else {
      const size_t end = std::min(s_.find_first_of(",]} \n", i_), s_.size());
      scalars.emplace_back(path, s_.substr(i_, end - i_));
      i_ = end;
    }
  }
  const std::string& s_;
  size_t i_ = 0;
};

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

size_t fields(const std::string& line) {
  return static_cast<size_t>(std::count(line.begin(), line.end(), ',')) + 1;
}

TEST(ResultJson, ParsesAndCarriesExactValues) {
  const std::string text = result_json(synthetic_result());
  const JsonReader json(text);
  ASSERT_TRUE(json.ok) << text;
  EXPECT_EQ(json.at("schema_version"), "1");
  EXPECT_EQ(json.at("complete"), "true");
  EXPECT_EQ(json.at("incomplete_reason"), "null");
  EXPECT_EQ(json.at("fingerprint"), "\"00ab12cd34ef5678\"");
  EXPECT_EQ(json.at("step_time_ns"), "1000000.001");
  EXPECT_EQ(json.at("end_ns"), "1234567.891");
  EXPECT_EQ(json.at("totals.link_transmissions"), "1200");
  EXPECT_EQ(json.at("rank_times[3].compute_ns"), "600000");
  EXPECT_EQ(json.at("rank_times[3].idle_ns"), "120000.001");
  EXPECT_EQ(json.at("rank_times[3].sum_ns"), "1000000.001");
  EXPECT_EQ(json.at("rank_times[3].total_comm_ns"), "300000");
  EXPECT_EQ(json.at("collectives[7].time_ns"), "15000");
  EXPECT_EQ(json.at("links.directed_link_count"), "40");
  EXPECT_EQ(json.at("links.hottest[0].busy_ns"), "390000");
  EXPECT_EQ(json.at("links.hottest[19].busy_ns"), "200000");
  EXPECT_EQ(json.at("links.hottest[20].busy_ns"), "absent");
  EXPECT_EQ(json.at("trust[1].caution"), "true");
  EXPECT_EQ(json.at("flows.fct_max_ns"), "300.3");
  for (const char* check : {"checks[0].equal", "checks[1].equal", "checks[2].equal"}) {
    EXPECT_EQ(json.at(check), "true");
  }
}

TEST(ResultJson, EveryNumberHasAUnitOrIsACount) {
  const std::string text = result_json(synthetic_result());
  const JsonReader json(text);
  const std::set<std::string> plain = {"schema_version",
                                       "seed",
                                       "rank",
                                       "index",  // names of things, not quantities
                                       "ranks",
                                       "rank_classes",
                                       "nodes",
                                       "switches",
                                       "links",
                                       "events",
                                       "transfers",
                                       "packets",
                                       "link_transmissions",
                                       "data_packets",
                                       "ack_packets",
                                       "cnp_packets",
                                       "pfc_frames",
                                       "pfc_pauses",
                                       "pfc_resumes",
                                       "ecn_marks",
                                       "drops",
                                       "retransmitted_packets",
                                       "timeouts",
                                       "nacks",
                                       "rate_changes",
                                       "out_of_order_packets",
                                       "pfc_refreshes",
                                       "watchdog_events",
                                       "reroutes",
                                       "cyclic_waits"};
  for (const auto& [path, value] : json.scalars) {
    if (value[0] == '"' || value == "true" || value == "false" || value == "null") continue;
    const std::string key = path.substr(path.rfind('.') + 1);
    bool unit = plain.count(key) > 0;
    for (const std::string suffix : {"_ns", "_bytes", "_bps", "_s", "_ratio", "_count"}) {
      unit = unit || (key.size() > suffix.size() &&
                      key.compare(key.size() - suffix.size(), suffix.size(), suffix) == 0);
    }
    EXPECT_TRUE(unit) << path;
  }
}

TEST(ResultJson, OnlyTheHostObjectDependsOnTheMachine) {
  const std::string a = result_json(synthetic_result());
  EXPECT_EQ(a, result_json(synthetic_result()));
  Result other = synthetic_result();
  other.wall_s = 17.5;
  other.setup_wall_s = 3;
  other.load_wall_s = 2;
  other.peak_rss_bytes = 1;
  other.build_type = "Debug";
  const std::string b = result_json(other);
  const size_t host = a.find("\n  \"host\": {");
  ASSERT_NE(host, std::string::npos);
  EXPECT_EQ(a.substr(0, host), b.substr(0, host));
  EXPECT_NE(a, b);
}

TEST(ResultJson, SurvivesAwkwardInput) {
  Result r = synthetic_result();
  r.scenario_name = "bad \xFF\xC0 utf8, \"quotes\" \\ and\ncontrol \x01";
  r.collectives[0].algbw_gbytes_per_s = std::numeric_limits<double>::quiet_NaN();
  r.collectives[0].busbw_gbytes_per_s = std::numeric_limits<double>::infinity();
  const std::string text = result_json(r);
  const JsonReader json(text);
  EXPECT_TRUE(json.ok) << text;
  EXPECT_EQ(json.at("collectives[0].algbw_gbytes_per_s"), "null");
  const std::string empty = result_json(Result{});
  EXPECT_TRUE(JsonReader(empty).ok) << empty;
}

TEST(ResultJson, TrafficOnlyAndIncompleteRuns) {
  Result r = traffic_only_result();
  r.complete = false;
  r.incomplete_reason = "interrupted";
  r.flows.back().delivered = Time();
  r.flows.back().acknowledged = Time();
  const std::string text = result_json(r);
  const JsonReader json(text);
  ASSERT_TRUE(json.ok);
  EXPECT_EQ(json.at("complete"), "false");
  EXPECT_EQ(json.at("incomplete_reason"), "\"interrupted\"");
  EXPECT_EQ(json.at("step_time_ns"), "null");
  EXPECT_EQ(json.at("shares.compute_ratio"), "null");
  EXPECT_EQ(json.at("flows.flow_count"), "300");
  EXPECT_EQ(json.at("flows.delivered_count"), "299");
}

TEST(ExactNs, NoRounding) {
  EXPECT_EQ(report::exact_ns(Time::ps(1), false), "0.001");
  EXPECT_EQ(report::exact_ns(Time::ps(1500), false), "1.5");
  EXPECT_EQ(report::exact_ns(Time::ps(1500), true), "1.500");
  EXPECT_EQ(report::exact_ns(Time::ps(-1500), false), "-1.5");
  EXPECT_EQ(report::exact_ns(Time(), false), "0");
  // Beyond what a double can hold to the picosecond.
  EXPECT_EQ(report::exact_ns(Time::infinity(), false), "9223372036854775.807");
  EXPECT_EQ(report::exact_ns(Time::ps(std::numeric_limits<int64_t>::min()), false),
            "-9223372036854775.808");
}

TEST(Csv, RowsAndColumns) {
  const Result r = synthetic_result();
  const auto flows = lines(flows_csv(r));
  ASSERT_EQ(flows.size(), 301U);
  EXPECT_EQ(flows[0].rfind("flow_id,owner,src,dst,size_bytes,start_ns,delivered_ns,"
                           "acknowledged_ns,fct_ns,hops,packets,retransmitted,"
                           "link_transmissions,cnps",
                           0),
            0U);
  EXPECT_EQ(flows[2],
            "1,all-reduce #1,1,2,4096,1.000,300.299,305.299,299.299,2,1,0,4,0,"
            "node1.gpu0,node2.gpu0");
  for (const auto& line : flows) EXPECT_EQ(fields(line), fields(flows[0]));

  const auto links = lines(links_csv(r));
  ASSERT_EQ(links.size(), 41U);
  for (const auto& line : links) EXPECT_EQ(fields(line), fields(links[0]));
  EXPECT_NE(links[0].find("utilisation_ratio"), std::string::npos);
  EXPECT_NE(links[0].find("paused_ns"), std::string::npos);
  EXPECT_NE(links[0].find("peak_queue_bytes"), std::string::npos);

  const auto ranks = lines(ranks_csv(r));
  ASSERT_EQ(ranks.size(), 5U);
  EXPECT_EQ(ranks[1],
            "0,node0.gpu0,990000.000,600000.000,50000.000,200000.000,30000.000,120000.001,"
            "1000000.001,100000.000,300000.000,0.000");
}

TEST(Csv, QuotesAsInRfc4180) {
  const auto rows = lines(collectives_csv(synthetic_result()));
  ASSERT_EQ(rows.size(), 9U);
  EXPECT_EQ(rows[1],
            "0,\"grads, \"\"bucket\"\" 0\",all-reduce,ring,world,4,1048576,10000.000,12000.000,"
            "20000.000,8000.000,2000.000,24,6291456,3072,131.072,196.608,0,,,,9000.000");
  EXPECT_EQ(rows[2].rfind("1,grads <1>,all-gather,", 0), 0U);
}

TEST(Csv, ClearToSendLatenciesStandWhereThereWereSuchMessages) {
  Result r = synthetic_result();
  r.collectives[1].cts_count = 12;
  r.collectives[1].cts_p50 = Time::us(2);
  r.collectives[1].cts_p90 = Time::us(4);
  r.collectives[1].cts_p99 = Time::ns(4500);
  const auto rows = lines(collectives_csv(r));
  EXPECT_NE(rows[2].find(",12,2000.000,4000.000,4500.000"), std::string::npos) << rows[2];
  const auto doc = nlohmann::json::parse(result_json(r));
  EXPECT_EQ(doc["collectives"][1]["cts_count"], 12);
  EXPECT_EQ(doc["collectives"][1]["cts_p90_ns"], 4000.0);
  EXPECT_TRUE(doc["collectives"][0]["cts_p90_ns"].is_null());
}

TEST(Csv, LeavesOutInstantsThatWereNotReached) {
  Result r = synthetic_result();
  r.flows.resize(2);
  r.flows[0].delivered = Time();     // never set
  r.flows[1].acknowledged = Time();  // delivered, but the ACK is on its way
  const auto rows = lines(flows_csv(r));
  EXPECT_EQ(rows[1].rfind("0,all-reduce #0,0,1,4096,0.000,,,,2,", 0), 0U) << rows[1];
  EXPECT_EQ(rows[2].rfind("1,all-reduce #1,1,2,4096,1.000,300.299,,299.299,2,", 0), 0U) << rows[2];
}

}  // namespace
}  // namespace trainyard
