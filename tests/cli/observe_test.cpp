// SPDX-License-Identifier: MIT
// Telemetry from the scenario to the tables.
#include "tests/cli/cli_test_util.h"

namespace trainyard::cli_test {
namespace {

using ObserveCli = CliTest;

constexpr const char* kFabric =
    "cluster: {nodes: 8, gpus_per_node: 1}\n"
    "fabric:\n"
    "  topology: {kind: leaf-spine, leaf_radix: 8, nic: {rate: 100Gbps}, link: {delay: 1us},\n"
    "             scale_up: {kind: none}}\n"
    "  transport: {preset: rocev2}\n"
    "traffic: [{pattern: permutation, shift: 3, size: 1MB}]\n";

TEST_F(ObserveCli, EverythingIsWrittenAndChangesNothing) {
  put("a.yaml", std::string("name: plain\n") + kFabric);
  put("b.yaml", std::string("name: seen\n") + kFabric +
                    "output: {telemetry: {qp: 32us, packets: 1, flows: true, links: 10us, "
                    "pauses: true}}\n");
  ASSERT_EQ(cli({"run", "a.yaml", "--out", "a", "--quiet"}).code, 0);
  const Outcome o = cli({"run", "b.yaml", "--out", "b"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(has(o.out, "Balance and buffers")) << o.out;
  EXPECT_TRUE(has(o.out, "queued, whole path")) << o.out;
  EXPECT_EQ(fingerprint("a"), fingerprint("b"));
  expect_whole_files(dir_ / "a");
  const auto doc = result("b");

  std::map<std::string, int64_t> sent;
  for (const auto& row : read_csv(dir_ / "b" / "qps.csv")) {
    sent[row.at("src") + " " + row.at("dst")] += std::stoll(row.at("payload_bytes"));
  }
  ASSERT_EQ(sent.size(), 8U);
  for (const auto& [pair, bytes] : sent) EXPECT_EQ(bytes, 1'000'000) << pair;

  // Every packet was followed: its path is that of its flow.
  std::map<std::string, std::pair<double, double>> delays;  // per packet: parts, whole
  for (const auto& row : read_csv(dir_ / "b" / "packets.csv")) {
    ASSERT_EQ(row.at("fate"), "delivered");
    auto& d = delays[row.at("packet")];
    d.first += std::stod(row.at("queueing_ns")) + std::stod(row.at("line_ns"));
    d.second = std::stod(row.at("delivered_ns")) - std::stod(row.at("sent_ns"));
  }
  EXPECT_EQ(delays.size(), doc["totals"]["data_packets"].get<size_t>());
  for (const auto& [packet, d] : delays) EXPECT_NEAR(d.first, d.second, 1e-3) << packet;
  EXPECT_EQ(doc["packet_samples"]["delivered_count"].get<size_t>(), delays.size());
  EXPECT_GE(doc["packet_samples"]["queueing"].size(), 2U);

  // Flow records of what comes down to the hosts: a megabyte each, and its headers.
  std::map<std::string, int64_t> down;
  for (const auto& row : read_csv(dir_ / "b" / "switch_flows.csv")) {
    if (row.at("direction") == "data" && row.at("to").rfind("node", 0) == 0) {
      down[row.at("to")] += std::stoll(row.at("wire_bytes"));
    }
  }
  ASSERT_EQ(down.size(), 8U);
  for (const auto& [host, bytes] : down) EXPECT_EQ(bytes, 1'000'000 + 245 * 82) << host;

  const auto nics = read_csv(dir_ / "b" / "nics.csv");
  EXPECT_EQ(nics.size(), 8U);
  EXPECT_FALSE(read_csv(dir_ / "b" / "switches.csv").empty());
  // Payload of the windows of a tier is that of the run.
  std::map<std::string, int64_t> carried;
  std::map<std::string, int64_t> windows;
  for (const auto& row : read_csv(dir_ / "b" / "load_series.csv")) {
    const std::string tier = row.at("tier") + " " + row.at("direction");
    carried[tier] += std::stoll(row.at("payload_bytes"));
    ++windows[tier];
    EXPECT_NEAR(std::stod(row.at("max_bytes")),
                std::stod(row.at("max_to_mean_ratio")) * std::stod(row.at("mean_bytes")), 1e-3);
  }
  EXPECT_EQ(carried.size(), doc["load_balance"].size());
  for (const auto& tier : doc["load_balance"]) {
    const std::string name =
        tier["tier"].get<std::string>() + " " + tier["direction"].get<std::string>();
    EXPECT_EQ(carried[name], tier["payload_bytes"].get<int64_t>()) << name;
    EXPECT_EQ(windows[name], tier["windows"]["window_count"].get<int64_t>()) << name;
    EXPECT_GE(tier["windows"]["bytes_max_to_mean_max_ratio"].get<double>(),
              tier["bytes_max_to_mean_ratio"].get<double>())
        << name;
  }
  EXPECT_TRUE(result("a")["load_balance"][0]["windows"].is_null());
  EXPECT_FALSE(fs::exists(dir_ / "a" / "load_series.csv"));

  bool found = false;
  for (const auto& tier : doc["load_balance"]) {
    if (tier["tier"] != "leaf-spine" || tier["direction"] != "up") continue;
    found = true;
    EXPECT_GE(tier["bytes_max_to_mean_ratio"].get<double>(), 1);
    EXPECT_GE(tier["queue_pairs_parallel_worst_ratio"].get<double>(), 1);
  }
  EXPECT_TRUE(found);
}

TEST_F(ObserveCli, EnginesWithoutPacketsRefuseIt) {
  put("a.yaml", std::string("name: plain\n") + kFabric + "simulation: {engine: flow}\n");
  for (const char* setting : {"qp=32us", "packets=1/10", "flows=true"}) {
    const std::string key = std::string(setting).substr(0, std::string(setting).find('='));
    expect_error(
        cli({"run", "a.yaml", "--out", "x", "--set", std::string("output.telemetry.") + setting}),
        2, {"the flow engine has no packets", "remove output.telemetry." + key});
  }
  expect_error(cli({"run", "a.yaml", "--set", "output.telemetry.packets=1.5"}), 2,
               {"packets", "1.5"});
  // Its links have a balance all the same.
  ASSERT_EQ(cli({"run", "a.yaml", "--out", "f", "--quiet"}).code, 0);
  const auto doc = result("f");
  EXPECT_FALSE(doc["load_balance"].empty());
  EXPECT_TRUE(doc["nics"].is_null());
  EXPECT_FALSE(fs::exists(dir_ / "f" / "nics.csv"));
}

TEST_F(ObserveCli, ExplainKnowsTheKeys) {
  for (const char* key : {"qp", "packets", "flows"}) {
    const Outcome o = cli({"explain", std::string("output.telemetry.") + key});
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(has(o.out, key)) << o.out;
  }
}

}  // namespace
}  // namespace trainyard::cli_test
