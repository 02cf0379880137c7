// SPDX-License-Identifier: MIT
// How balance, buffers, NICs and telemetry are written.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/report/synthetic_result.h"
#include "tools/report/report.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

/// The synthetic result with a bit of everything that can be observed.
Result observed_result() {
  Result r = testing::synthetic_result();
  r.tier_loads = {{"host-leaf", "up", 40, 20, {1000, 1, 0.5, 0, 0, ""}, {0, 0, 0, 0, 0, ""}, {}},
                  {"leaf-spine",
                   "up",
                   8,
                   6,
                   {4000, 1.5, 2, 1.25, 3, "leaf7"},
                   {12, 1.75, 2.5, 1.5, 2, "leaf<3>"},
                   {}}};
  r.seen.nics = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1000}, {2, 10, 0, 0, 0, 0, 0, 0, 0, 1, 50}};
  r.seen.switches = {{20, "leaf0", 1'000'000, 250'000}, {21, "spine0", 1'000'000, 400'000}};
  r.seen.headrooms = {{0, 1, 30'000, 15'000}};
  r.seen.qps = {{0, 1, 3, 10'000, 0, 1}, {2, 1, 0, 10'001, 1, 16}};
  r.seen.qp_series.asked = Time::us(16);
  r.seen.qp_series.window = Time::us(32);
  r.seen.qp_series.qps = {{{0, 4096, 1, 400}, {2, 8192, 2, 300}}, {{1, 100, 1, 7}}};
  r.seen.samples.asked_q32 = uint64_t{1} << 31;
  r.seen.samples.ratio_q32 = uint64_t{1} << 30;
  PacketSample p;
  p.qp = 1;
  p.seq = 4096;
  p.payload_bytes = 100;
  p.sent_ps = 1'500;
  p.delivered_ps = 9'500;
  p.receiver_wait_ps = 1;
  p.fate = PacketSample::Fate::delivered;
  p.hops = {{0, 0, 3'000}, {1, 1'999, 3'000}};
  PacketSample lost = p;
  lost.fate = PacketSample::Fate::lost;
  lost.hops.pop_back();
  r.seen.samples.packets = {p, lost};
  r.tier_queueing = {{"host-leaf", "down", 1, Time::ps(1'999), Time::ps(1'999), Time::ps(1'999)}};
  r.seen.flows.asked = true;
  r.seen.flows.rows = {{0, 1, 1, false, 5, 6'000, 1'000, 2'500}, {2, 1, 0, true, 1, 86, 7, 7}};
  return r;
}

/// With the balance of two windows of 10 us.
Result with_windows() {
  Result r = observed_result();
  r.link_series.asked = r.link_series.window = r.tier_series.window = Time::us(10);
  r.link_series.links.resize(r.links.size());
  r.tier_series.tiers = {
      {"host-leaf", "up", 40, {{0, 1, 3, 40, 40, 40, 40}}},
      {"leaf-spine",
       "up",
       8,
       {{0, 6, 1, 3000, 750, 2, 1.5, 1.25, 1.5, 20}, {3, 1, 2, 1000, 1000, 8, 8, 2, 2, 21}}}};
  r.tier_loads[0].windows = {1, 40, 40, 40, Time(), 0, 0, 0};
  r.tier_loads[1].windows = {2, 2, 8, 3.5, Time::us(30), 2, 1.5, 2};
  return r;
}

class Observed : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::temp_directory_path() /
           ("trainyard_observed_" + std::to_string(::getpid()) + "_" + info->name());
    fs::remove_all(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  [[nodiscard]] std::string content(const std::string& name) const {
    std::ifstream in(dir_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  fs::path dir_;
};

TEST_F(Observed, Tables) {
  write_all(observed_result(), dir_.string());
  EXPECT_EQ(content("nics.csv"),
            "node,link_id,to,tier,out_of_sequence,ack_timeouts,nacks_sent,nacks_received,"
            "cnps_sent,cnps_received,pauses_sent,pauses_received,link_downs,"
            "receive_buffer_peak_bytes\n"
            "node0.nic0,0,leaf0,host-leaf,1,2,3,4,5,6,7,8,9,1000\n"
            "node1.nic0,2,leaf0,host-leaf,10,0,0,0,0,0,0,0,1,50\n");
  EXPECT_EQ(content("switches.csv"),
            "switch,node,pool_bytes,pool_peak_bytes,pool_peak_ratio\n"
            "leaf0,20,1000000,250000,0.25\n"
            "spine0,21,1000000,400000,0.4\n");
  EXPECT_EQ(content("headroom.csv"),
            "switch,from,link_id,class,headroom_bytes,peak_bytes,peak_ratio\n"
            "leaf0,node0.nic0,0,1,30000,15000,0.5\n");
  EXPECT_EQ(content("qps.csv"),
            "qp,src,dst,channel,source_port,class,t_ns,payload_bytes,packets,rate_bps\n"
            "0,0,1,3,10000,0,0.000,4096,1,400\n"
            "0,0,1,3,10000,0,64000.000,8192,2,300\n"
            "1,2,1,0,10001,1,32000.000,100,1,7\n");
  EXPECT_EQ(content("packets.csv"),
            "packet,qp,src,dst,seq,payload_bytes,sent_ns,fate,delivered_ns,receiver_wait_ns,hop,"
            "link_from,link_to,link_id,queueing_ns,line_ns\n"
            "0,1,2,1,4096,100,1.500,delivered,9.500,0.001,0,node0.nic0,leaf0,0,0.000,3.000\n"
            "0,1,2,1,4096,100,1.500,delivered,9.500,0.001,1,leaf0,node0.nic0,1,1.999,3.000\n"
            "1,1,2,1,4096,100,1.500,lost,,,0,node0.nic0,leaf0,0,0.000,3.000\n");
  EXPECT_EQ(content("switch_flows.csv"),
            "switch,in_link_id,out_link_id,from,to,qp,src,dst,channel,source_port,direction,"
            "packets,wire_bytes,first_ns,last_ns\n"
            "leaf0,0,1,node0.nic0,node0.nic0,1,2,1,0,10001,data,5,6000,1.000,2.500\n"
            "leaf0,2,1,node1.nic0,node0.nic0,0,0,1,3,10000,back,1,86,0.007,0.007\n");
}

TEST_F(Observed, WhatWasNotAskedForLeavesNoFile) {
  write_all(observed_result(), dir_.string());
  Result r = observed_result();
  r.seen = {};
  r.tier_queueing.clear();
  write_all(r, dir_.string());
  for (const char* name :
       {"nics.csv", "switches.csv", "headroom.csv", "qps.csv", "packets.csv", "switch_flows.csv"}) {
    EXPECT_FALSE(fs::exists(dir_ / name)) << name;
  }
  const auto doc = nlohmann::json::parse(content("result.json"));
  for (const char* key : {"qp_series", "packet_samples", "switch_flows"}) {
    EXPECT_FALSE(doc.contains(key)) << key;
  }
}

TEST_F(Observed, BalanceOverTime) {
  write_all(with_windows(), dir_.string());
  EXPECT_EQ(content("load_series.csv"),
            "tier,direction,t_ns,link_count,used_link_count,payload_bytes,mean_bytes,max_bytes,"
            "max_to_mean_ratio,skew_ratio,busiest_link_id,parallel_mean_ratio,"
            "parallel_worst_ratio,parallel_worst_node\n"
            "host-leaf,up,0.000,40,1,40,1,40,40,40,3,,,\n"
            "leaf-spine,up,0.000,8,6,3000,375,750,2,1.5,1,1.25,1.5,20\n"
            "leaf-spine,up,30000.000,8,1,1000,125,1000,8,8,2,2,2,21\n");
  const auto doc = nlohmann::json::parse(content("result.json"));
  const auto& windows = doc["load_balance"][1]["windows"];
  EXPECT_EQ(windows["window_ns"], 10'000);
  EXPECT_EQ(windows["window_count"], 2);
  EXPECT_EQ(windows["bytes_max_to_mean_p50_ratio"], 2);
  EXPECT_EQ(windows["bytes_max_to_mean_mean_ratio"], 3.5);
  EXPECT_EQ(windows["bytes_max_to_mean_max_ratio"], 8);
  EXPECT_EQ(windows["bytes_max_to_mean_max_at_ns"], 30'000);
  EXPECT_EQ(windows["bytes_parallel_worst_p50_ratio"], 1.5);
  EXPECT_EQ(windows["bytes_parallel_worst_max_ratio"], 2);
  EXPECT_TRUE(doc["load_balance"][0]["windows"]["bytes_parallel_worst_max_ratio"].is_null());
  const std::string summary = summary_text(with_windows());
  EXPECT_NE(summary.find("p50 2.00 x, max 8.00 x"), std::string::npos) << summary;
  const std::string page = report_html(with_windows());
  EXPECT_NE(page.find("Load per tier in windows of time"), std::string::npos);

  // Without series: no file, no figures.
  write_all(observed_result(), dir_.string());
  EXPECT_FALSE(fs::exists(dir_ / "load_series.csv"));
  EXPECT_TRUE(
      nlohmann::json::parse(content("result.json"))["load_balance"][1]["windows"].is_null());
  EXPECT_EQ(report_html(observed_result()).find("in windows of time"), std::string::npos);
}

TEST(ObservedJson, BalanceBuffersAndNics) {
  const auto doc = nlohmann::json::parse(result_json(observed_result()));
  const auto& up = doc["load_balance"][1];
  EXPECT_EQ(up["tier"], "leaf-spine");
  EXPECT_EQ(up["direction"], "up");
  EXPECT_EQ(up["link_count"], 8);
  EXPECT_EQ(up["used_link_count"], 6);
  EXPECT_EQ(up["payload_bytes"], 4000);
  EXPECT_EQ(up["bytes_max_to_mean_ratio"], 1.5);
  EXPECT_EQ(up["bytes_skew_ratio"], 2);
  EXPECT_EQ(up["bytes_parallel_mean_ratio"], 1.25);
  EXPECT_EQ(up["bytes_parallel_worst_ratio"], 3);
  EXPECT_EQ(up["bytes_parallel_worst"], "leaf7");
  EXPECT_EQ(up["queue_pairs_max_to_mean_ratio"], 1.75);
  EXPECT_EQ(up["queue_pairs_parallel_worst"], "leaf<3>");
  EXPECT_TRUE(doc["load_balance"][0]["bytes_parallel_mean_ratio"].is_null());
  EXPECT_TRUE(doc["load_balance"][0]["queue_pairs_max_to_mean_ratio"].is_null());
  EXPECT_EQ(doc["nics"]["port_count"], 2);
  EXPECT_EQ(doc["nics"]["out_of_sequence_count"], 11);
  EXPECT_EQ(doc["nics"]["link_down_count"], 10);
  EXPECT_EQ(doc["nics"]["receive_buffer_peak_bytes"], 1000);
  EXPECT_EQ(doc["buffers"]["fullest_pools"][0]["switch"], "spine0");
  EXPECT_EQ(doc["buffers"]["fullest_pools"][1]["pool_peak_ratio"], 0.25);
  EXPECT_EQ(doc["buffers"]["fullest_headrooms"][0]["peak_bytes"], 15'000);
  EXPECT_EQ(doc["qp_series"]["window_ns"], 32'000);
  EXPECT_EQ(doc["qp_series"]["asked_window_ns"], 16'000);
  EXPECT_EQ(doc["qp_series"]["row_count"], 3);
  EXPECT_EQ(doc["packet_samples"]["asked_ratio"], 0.5);
  EXPECT_EQ(doc["packet_samples"]["ratio"], 0.25);
  EXPECT_EQ(doc["packet_samples"]["packet_count"], 2);
  EXPECT_EQ(doc["packet_samples"]["lost_count"], 1);
  EXPECT_EQ(doc["packet_samples"]["queueing"][0]["p99_ns"], 1.999);
  EXPECT_EQ(doc["switch_flows"]["row_count"], 2);

  Result flow = observed_result();
  flow.packets_modelled = false;
  const auto without = nlohmann::json::parse(result_json(flow));
  EXPECT_TRUE(without["nics"].is_null());
  EXPECT_TRUE(without["buffers"].is_null());
  EXPECT_EQ(without["load_balance"].size(), 2U);
}

TEST(ObservedText, SummaryAndPageNameTheWorst) {
  const std::string summary = summary_text(observed_result());
  for (const char* part :
       {"leaf-spine up", "1.50 x the mean by bytes, 1.75 x by queue pairs", "3.00 x (leaf7)",
        "spine0: 400.0KB of its 1.000MB", "queued, host-leaf down", "max 1.999ns"}) {
    EXPECT_NE(summary.find(part), std::string::npos) << part << "\n" << summary;
  }
  EXPECT_EQ(summary.find("host-leaf up"), std::string::npos);  // nothing to choose there
  EXPECT_EQ(summary_text(testing::synthetic_result()).find("Balance"), std::string::npos);
  const std::string page = report_html(observed_result());
  for (const char* part : {"Load balance", "leaf7", "6 of 8", "Queueing per tier"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(report_html(testing::synthetic_result()).find("Load balance"), std::string::npos);
}

}  // namespace
}  // namespace trainyard
