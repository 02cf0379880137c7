// SPDX-License-Identifier: MIT
// faults: of a scenario, and traffic beside a job, through the command.
#include "chakra/writer.h"
#include "tests/cli/cli_test_util.h"

namespace trainyard::cli_test {
namespace {

/// Two leaves, one spine with four cables to each; 4 MB across the spine for every GPU.
const char* const kClos =
    "cluster: {nodes: 4, gpus_per_node: 2}\n"
    "fabric:\n"
    "  topology: {kind: leaf-spine, leaf_radix: 8, oversubscription: 1, nic: {rate: 100Gbps},\n"
    "             scale_up: {kind: none}}\n"
    "  transport: {retransmit_timeout: 500us, nack_interval: 10us,\n"
    "              load_balancing: {convergence: 100us}}\n"
    "traffic: [{pattern: permutation, shift: 4, size: 4MB}]\n";

/// Four GPUs on one switch with a small buffer.
const char* const kStar =
    "cluster: {nodes: 4, gpus_per_node: 1}\n"
    "fabric:\n"
    "  topology: {kind: single-switch, nic: {rate: 100Gbps}}\n"
    "  transport: {retransmit_timeout: 2ms, nack_interval: 10us, congestion: {kind: none}}\n"
    "  switch: {buffer: 1MiB}\n";

class FaultsCli : public CliTest {
 protected:
  /// Runs `scenario` with the entries of `faults:`; results in the folder `name`.
  Outcome run(const std::string& name, const std::string& scenario,
              const std::vector<std::string>& faults, const std::vector<std::string>& more = {}) {
    std::string text = scenario;
    if (!faults.empty()) text += "faults:\n";
    for (const auto& f : faults) text += "  - {" + f + "}\n";
    put(name + ".yaml", text);
    std::vector<std::string> words = {"run", name + ".yaml", "-q", "--out", name};
    words.insert(words.end(), more.begin(), more.end());
    return cli(words);
  }
  /// The same, and it must come to a good end with every byte delivered.
  nlohmann::ordered_json good(const std::string& name, const std::string& scenario,
                              const std::vector<std::string>& faults,
                              const std::vector<std::string>& more = {}) {
    const Outcome o = run(name, scenario, faults, more);
    EXPECT_EQ(o.code, 0) << name << ": " << o.err;
    auto doc = result(name);
    EXPECT_EQ(doc["flows"]["delivered_count"], doc["flows"]["flow_count"]) << name;
    return doc;
  }
  static double fct(const std::vector<std::map<std::string, std::string>>& flows, size_t i) {
    return std::stod(flows.at(i).at("fct_ns"));
  }
  std::vector<std::map<std::string, std::string>> flows(const std::string& name) const {
    return read_csv(dir_ / name / "flows.csv");
  }
};

TEST_F(FaultsCli, LinksThatFailAreRoutedAroundAfterConvergence) {
  const auto base = good("base", kClos, {});
  EXPECT_TRUE(base["faults"].empty());
  EXPECT_EQ(base["totals"]["reroutes"], 0);
  // Of the four cables of leaf 0 one after the other: some flow was on it.
  uint64_t reroutes = 0, drops = 0;
  for (int port = 4; port < 8; ++port) {
    const std::string name = "p" + std::to_string(port);
    const auto doc =
        good(name, kClos,
             {"at: 50us, kind: link-down, where: 'leaf0:port" + std::to_string(port) + "'"});
    EXPECT_EQ(doc["totals"]["payload_bytes"], 32'000'000);
    reroutes += doc["totals"]["reroutes"].get<uint64_t>();
    drops += doc["totals"]["drops"].get<uint64_t>();
    ASSERT_EQ(doc["faults"].size(), 1U);
    EXPECT_EQ(doc["faults"][0]["kind"], "link-down");
    EXPECT_EQ(doc["faults"][0]["at_ns"], 50'000);
    EXPECT_TRUE(doc["faults"][0]["until_ns"].is_null());
    for (const auto& check : doc["checks"]) {
      EXPECT_TRUE(check["equal"].get<bool>() || !check["note"].get<std::string>().empty()) << check;
    }
  }
  EXPECT_GE(reroutes, 8U);  // four flows and their ACKs each way
  EXPECT_GT(drops, 100U);
  // Nobody notices: nothing is rerouted.
  const auto stalled = good("stall", kClos,
                            {"at: 50us, kind: link-down, where: 'link(leaf0,spine0)', for: 200us, "
                             "reaction: stall"});
  EXPECT_EQ(stalled["totals"]["reroutes"], 0);
  EXPECT_GT(stalled["totals"]["drops"].get<uint64_t>(), 0U);
  EXPECT_GT(stalled["end_ns"].get<double>(), base["end_ns"].get<double>());
}

TEST_F(FaultsCli, WithoutAnotherPathTrafficStallsUntilTheLinkIsBackOrRetriesEnd) {
  const std::string where = "at: 50us, kind: link-down, where: 'link(leaf0,spine0)'";
  const auto base = good("base", kClos, {});
  const auto back = good("back", kClos, {where + ", for: 300us"});
  EXPECT_GT(back["end_ns"].get<double>(), base["end_ns"].get<double>() + 200'000);
  EXPECT_EQ(back["totals"]["payload_bytes"], 32'000'000);
  const Outcome never = run("never", kClos, {where}, {"--set", "fabric.transport.retry_limit=2"});
  expect_error(never, 3, {"2 retransmission timeouts without progress"});
  const auto partial = result("never");
  EXPECT_EQ(partial["complete"], false);
  EXPECT_EQ(partial["faults"].size(), 1U);
  EXPECT_LT(partial["totals"]["payload_bytes"].get<int64_t>(), 32'000'000);
  // Flows that start during the outage wait as well, or give up by name.
  std::string two = kClos;
  two.replace(two.find("traffic: ["), std::string::npos,
              "traffic:\n  - {pattern: incast, dst: 7, fan_in: 1, size: 64KiB, start: 100us}\n");
  const auto late = good("late", two, {where + ", for: 300us"});
  EXPECT_GE(fct(flows("late"), 0), 250'000);
  EXPECT_LE(fct(flows("late"), 0), 800'000);
  EXPECT_GE(late["totals"]["timeouts"].get<int>(), 1);
  expect_error(run("late2", two, {where}, {"--set", "fabric.transport.retry_limit=2"}), 3,
               {"rank 0 to rank 7 failed", "0 of 65536 bytes acknowledged"});
}

TEST_F(FaultsCli, AFlapRecovers) {
  const auto base = good("base", kClos, {});
  const auto doc = good("flap", kClos,
                        {"at: 20us, kind: link-flap, where: 'link(leaf0,spine0)', period: 100us, "
                         "duty: 30%, count: 3"});
  ASSERT_EQ(doc["faults"].size(), 3U);
  EXPECT_EQ(doc["faults"][1]["at_ns"], 120'000);
  EXPECT_EQ(doc["faults"][1]["until_ns"], 150'000);
  EXPECT_GT(doc["totals"]["drops"].get<uint64_t>(), 0U);
  EXPECT_GT(doc["end_ns"].get<double>(), base["end_ns"].get<double>());
  // Until `for` is over, and the last one cut short by it.
  const auto until = good("until", kClos,
                          {"at: 20us, kind: link-flap, where: 'link(leaf0,spine0)', period: 100us, "
                           "duty: 50%, for: 230us"});
  ASSERT_EQ(until["faults"].size(), 3U);
  EXPECT_EQ(until["faults"][2]["until_ns"], 250'000);
}

TEST_F(FaultsCli, DegradedLinksTakeTheRatioLonger) {
  const std::string one =
      std::string(kStar) + "traffic: [{pattern: incast, dst: 3, fan_in: 1, size: 4MB}]\n";
  const double base = fct((good("base", one, {}), flows("base")), 0);
  const double half = fct(
      (good("half", one, {"kind: link-degrade, where: node0.nic0, rate: 50%"}), flows("half")), 0);
  EXPECT_NEAR(half / base, 2, 0.03);
  // For 100 us at half the rate: 50 us are lost.
  const double part = fct((good("part", one,
                                {"at: 50us, kind: link-degrade, where: node0.nic0, rate: 50%, "
                                 "for: 100us"}),
                           flows("part")),
                          0);
  EXPECT_NEAR(part - base, 50'000, 1'000);
  // Overlapping faults: the lower rate holds.
  const double both = fct((good("both", one,
                                {"kind: link-degrade, where: node0.nic0, rate: 50%",
                                 "kind: link-degrade, where: node0.nic0, rate: 80%"}),
                           flows("both")),
                          0);
  EXPECT_EQ(both, half);
}

TEST_F(FaultsCli, LossAndBitErrorsDropPackets) {
  const std::string one =
      std::string(kStar) + "traffic: [{pattern: incast, dst: 3, fan_in: 1, size: 40MB}]\n";
  const auto loss = good("loss", one, {"kind: link-loss, where: node0.nic0, probability: 1%"});
  // Data and ACKs: about two draws for every data packet sent.
  const double sent = loss["totals"]["data_packets"].get<double>() +
                      loss["totals"]["retransmitted_packets"].get<double>();
  EXPECT_NEAR(loss["totals"]["drops"].get<double>() / sent, 0.015, 0.007);
  EXPECT_GT(loss["totals"]["retransmitted_packets"].get<double>(), 0);
  // 4096 + 82 bytes at 1e-6 per bit: 3.29 %.
  const auto ber = good("ber", one, {"kind: link-ber, where: node0.nic0, ber: 1e-6"});
  EXPECT_TRUE(has(ber["faults"][0]["what"].get<std::string>(), "4178 bytes is lost with 0.0329"))
      << ber["faults"];
  EXPECT_GT(ber["totals"]["drops"].get<double>(), loss["totals"]["drops"].get<double>());
}

TEST_F(FaultsCli, NicPortsFailOver) {
  std::string planes = kClos;
  planes.replace(planes.find("kind: leaf-spine"), 16, "kind: leaf-spine, planes: 2");
  const auto base = good("base", planes, {});
  // The GPU's port in the other plane takes over.
  uint64_t reroutes = 0;
  for (const char* port : {"0", "1"}) {
    const auto doc = good(std::string("port") + port, planes,
                          {"at: 50us, kind: nic-down, where: 'node0.nic0:port" + std::string(port) +
                           "', reaction: failover"});
    EXPECT_EQ(doc["totals"]["payload_bytes"], 32'000'000);
    reroutes += doc["totals"]["reroutes"].get<uint64_t>();
  }
  EXPECT_GE(reroutes, 1U);
  EXPECT_EQ(base["totals"]["reroutes"], 0);
  // The whole NIC, for good: nothing is left.
  expect_error(run("all", planes, {"at: 50us, kind: nic-down, where: node0.nic0"},
                   {"--set", "fabric.transport.retry_limit=2"}),
               3, {"without progress"});
  const auto back =
      good("back", planes, {"at: 50us, kind: nic-down, where: node0.nic0, for: 300us"});
  EXPECT_GT(fct(flows("back"), 0), 350'000);
  const auto tor = good("spine", planes, {"at: 50us, kind: switch-down, where: plane0.leaf0"});
  EXPECT_EQ(tor["totals"]["payload_bytes"], 32'000'000);
}

TEST_F(FaultsCli, StormsPauseUpstreamAndWatchdogsEndThem) {
  const std::string three = std::string(kStar) +
                            "traffic: [{pattern: permutation, shift: 1, size: 4MB}]\n"
                            "output: {telemetry: {pauses: true}}\n";
  const auto base = good("base", three, {});
  EXPECT_TRUE(read_csv(dir_ / "base" / "pauses.csv").empty());
  const auto storm =
      good("storm", three, {"at: 50us, kind: pfc-storm, where: node3.nic0, for: 400us"});
  // Its neighbour cannot send, and is stopped by the switch; the others are not in its way.
  const auto pauses = read_csv(dir_ / "storm" / "pauses.csv");
  ASSERT_GE(pauses.size(), 2U);
  EXPECT_EQ(pauses[0].at("from_ns"), "50000.000");
  EXPECT_EQ(pauses[0].at("to_ns"), "450000.000");
  EXPECT_TRUE(has(pauses[0].at("stopped_link"), "-> node3.gpu0")) << pauses[0].at("stopped_link");
  EXPECT_EQ(pauses[0].at("because_link"), "");
  EXPECT_TRUE(has(pauses[1].at("stopped_link"), "node2.gpu0 -> ")) << pauses[1].at("stopped_link");
  EXPECT_EQ(pauses[1].at("because_link"), pauses[0].at("stopped_link"));
  EXPECT_GT(fct(flows("storm"), 2), fct(flows("base"), 2) + 350'000);
  EXPECT_NEAR(fct(flows("storm"), 0), fct(flows("base"), 0), 1'000);
  EXPECT_EQ(storm["totals"]["drops"], 0);
  EXPECT_EQ(storm["totals"]["watchdog_events"], 0);
  EXPECT_EQ(base["totals"]["pfc_pauses"], 0);
}

TEST_F(FaultsCli, ASlowReceiverPausesItsSwitchAndRecovers) {
  const std::string one =
      std::string(kStar) + "traffic: [{pattern: incast, dst: 3, fan_in: 1, size: 4MB}]\n";
  good("base", one, {});
  const auto doc = good("slow", one,
                        {"at: 20us, kind: slow-receiver, where: node3.nic0, rate: 10Gbps, "
                         "for: 200us"});
  EXPECT_GE(doc["totals"]["pfc_pauses"].get<int>(), 1);
  EXPECT_EQ(doc["totals"]["retransmitted_packets"], 0);  // in order when it is fast again
  const double longer = fct(flows("slow"), 0) - fct(flows("base"), 0);
  EXPECT_GT(longer, 60'000);
  EXPECT_LT(longer, 250'000);
}

/// A trace of one compute op per rank, then an all-reduce.
const char* const kTrace =
    "workload: {chakra: t}\n"
    "compute: {model: trace}\n";

class FaultyJob : public FaultsCli {
 protected:
  void SetUp() override {
    FaultsCli::SetUp();
    for (int r = 0; r < 4; ++r) {
      chakra::Node compute;
      compute.id = 1;
      compute.name = "gemm";
      compute.type = chakra::NodeType::comp;
      compute.duration_us = 100;
      chakra::Node sum;
      sum.id = 2;
      sum.name = "sum";
      sum.type = chakra::NodeType::comm_coll;
      sum.comm_type = 0;
      sum.comm_size = 1'000'000;
      sum.data_deps = {1};
      chakra::RankTrace t;
      t.nodes = {compute, sum};
      chakra::write_rank((dir_ / ("t." + std::to_string(r) + ".et")).string(), t);
    }
  }
};

TEST_F(FaultyJob, SlowGpusStretchByExactlyTheOverlap) {
  const std::string job = std::string(kStar) + kTrace;
  // The all-reduce starts when the last GPU is done.
  const auto start = [&](const std::string& name, const std::vector<std::string>& faults) {
    return good(name, job, faults)["collectives"][0]["start_ns"].get<double>();
  };
  EXPECT_EQ(start("base", {}), 100'000);
  // Twice as slow from 40 us on: the remaining 60 us take 120.
  EXPECT_EQ(start("late", {"at: 40us, kind: gpu-slow, where: rank2, factor: 2"}), 160'000);
  EXPECT_GT(result("late")["step_time_ns"].get<double>(),
            result("base")["step_time_ns"].get<double>() + 59'000);
  // For 20 us only: they do the work of 10.
  EXPECT_EQ(start("part", {"at: 40us, kind: gpu-slow, where: rank2, factor: 2, for: 20us"}),
            110'000);
  // Two at once multiply; another rank is in nobody's way.
  EXPECT_EQ(start("two", {"at: 40us, kind: gpu-slow, where: rank2, factor: 2, for: 20us",
                          "at: 40us, kind: gpu-slow, where: node2.*, factor: 2, for: 20us",
                          "at: 40us, kind: gpu-slow, where: rank1, factor: 1.5, for: 20us"}),
            115'000);
  // A stop is a pause of the same length.
  EXPECT_EQ(start("stop", {"at: 40us, kind: gpu-stop, where: rank2, for: 20us"}), 120'000);
  EXPECT_EQ(start("after", {"at: 1s, kind: gpu-stop, where: rank2"}), 100'000);
  EXPECT_TRUE(result("after")["faults"].empty());  // it never happened
}

TEST_F(FaultyJob, AStoppedGpuHangsTheJobUntilTheTimeout) {
  const std::string job = std::string(kStar) + kTrace + "collectives: {timeout: 2s}\n";
  const Outcome o = run("stop", job, {"at: 40us, kind: gpu-stop, where: node2.gpu0"});
  expect_error(o, 3,
               {"collective timeout of 2s", "GPU of rank 2 has stopped for good", "ranks 0 1 3",
                "wait for ranks 2"});
  const auto doc = result("stop");
  EXPECT_EQ(doc["complete"], false);
  EXPECT_EQ(doc["end_ns"], 2'000'100'000);
  EXPECT_EQ(doc["faults"].size(), 1U);
  // In the middle of the collective.
  const Outcome middle = run("middle", job, {"at: 130us, kind: gpu-stop, where: rank2"});
  expect_error(middle, 3, {"collective timeout of 2s", "GPU of rank 2 has stopped for good"});
  const auto pause = good("pause", job, {"at: 130us, kind: gpu-stop, where: rank2, for: 500us"});
  EXPECT_GT(pause["step_time_ns"].get<double>(), 630'000);
}

TEST_F(FaultyJob, BackgroundTrafficSlowsTheJobAndDoesNotHoldItUp) {
  const std::string job = std::string(kStar) + kTrace;
  const auto base = good("base", job, {});
  const auto doc = good("beside",
                        job +
                            "traffic:\n"
                            "  - {pattern: permutation, shift: 1, size: 1MB, start: 50us,"
                            " background: true, repeat: true}\n",
                        {});
  EXPECT_GT(doc["step_time_ns"].get<double>(), base["step_time_ns"].get<double>() + 10'000);
  EXPECT_EQ(doc["flows"]["flow_count"], base["flows"]["flow_count"]);
  EXPECT_GT(doc["background"]["flow_count"].get<int>(), 4);
  EXPECT_EQ(base["background"]["flow_count"], 0);
  const auto rows = read_csv(dir_ / "beside" / "background.csv");
  ASSERT_GT(rows.size(), 4U);
  EXPECT_EQ(rows[0].at("start_ns"), "50000.000");
  EXPECT_EQ(rows[0].at("owner"), "flow 0");
  EXPECT_TRUE(rows.back().at("fct_ns").empty());  // cut off
  // Every 30 us, done or not.
  const auto periodic = good("periodic",
                             job +
                                 "traffic:\n"
                                 "  - {pattern: incast, dst: 1, fan_in: 1, size: 4KB, start: 10us,"
                                 " background: true, repeat: 30us}\n",
                             {});
  const auto starts = read_csv(dir_ / "periodic" / "background.csv");
  ASSERT_GE(starts.size(), 3U);
  EXPECT_EQ(starts[2].at("start_ns"), "70000.000");
  EXPECT_EQ(starts.size(),
            static_cast<size_t>((periodic["end_ns"].get<double>() - 10'000) / 30'000) + 1);
  // In a class of its own behind strict priority it hurts less.
  const auto apart =
      good("apart",
           job +
               "traffic:\n"
               "  - {pattern: permutation, shift: 1, size: 1MB, start: 50us, class: 1,"
               " background: true, repeat: true}\n",
           {}, {"--set", "fabric.switch.classes=2"});
  EXPECT_LE(apart["step_time_ns"].get<double>(), doc["step_time_ns"].get<double>());
  // Traffic that is not in the background is waited for.
  const auto waited = good("waited",
                           job +
                               "traffic:\n  - {pattern: incast, dst: 1, fan_in: 1, size: 1MB,"
                               " start: 3ms}\n",
                           {});
  EXPECT_GT(waited["end_ns"].get<double>(), 3'000'000);
  EXPECT_EQ(waited["step_time_ns"], base["step_time_ns"]);
  EXPECT_EQ(waited["flows"]["flow_count"].get<int>(), base["flows"]["flow_count"].get<int>() + 1);
}

TEST_F(FaultsCli, CollectivesBesideOtherPatterns) {
  const std::string coll = std::string(kStar) +
                           "traffic:\n"
                           "  - {pattern: collective, collective: all-reduce, size: 4MB}\n";
  const auto alone = good("alone", coll, {});
  const auto both =
      good("both", coll + "  - {pattern: incast, dst: 0, fan_in: 3, size: 1MB, start: 20us}\n", {});
  EXPECT_EQ(both["flows"]["flow_count"].get<int>(), alone["flows"]["flow_count"].get<int>() + 3);
  EXPECT_EQ(both["totals"]["payload_bytes"].get<int64_t>(),
            alone["totals"]["payload_bytes"].get<int64_t>() + 3'000'000);
  EXPECT_GT(both["collectives"][0]["time_ns"].get<double>(),
            alone["collectives"][0]["time_ns"].get<double>());
  for (const auto& check : both["checks"]) EXPECT_EQ(check["equal"], true) << check;
  // It begins when it is told to.
  const auto later = good("later",
                          std::string(kStar) +
                              "traffic:\n"
                              "  - {pattern: collective, size: 4MB, start: 300us}\n",
                          {});
  EXPECT_EQ(later["collectives"][0]["first_arrival_ns"], 300'000);
  EXPECT_EQ(later["collectives"][0]["time_ns"], alone["collectives"][0]["time_ns"]);
  // A GPU that stops in the middle.
  expect_error(run("stop", coll, {"at: 50us, kind: gpu-stop, where: rank1"}), 3,
               {"collective timeout of 30min", "GPU of rank 1 has stopped for good"});
}

TEST_F(FaultsCli, TheTraceAndThePageShowThem) {
  put("f.yaml", std::string(kClos) +
                    "output: {trace: perfetto}\nfaults:\n"
                    "  - {at: 50us, kind: link-down, where: 'link(leaf0,spine0)', for: 100us}\n");
  const Outcome o = cli({"run", "f.yaml", "--out", "f"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(has(o.out, "Faults that happened (1 of 1)")) << o.out;
  EXPECT_TRUE(has(o.out, "from 50us to 150us")) << o.out;
  EXPECT_TRUE(has(o.out, "reroutes") || has(o.out, "retransmissions")) << o.out;
  EXPECT_TRUE(has(slurp(dir_ / "f" / "report.html"), "Faults that happened"));
  bool told = false;
  const auto doc = result("f");
  for (const auto& note : doc["trust"]) told = told || note["topic"] == "faults";
  EXPECT_TRUE(told);
}

TEST_F(FaultsCli, BadInputIsRefusedWithItsLine) {
  struct Row {
    const char* fault;
    std::vector<std::string> parts;
  };
  const Row rows[] = {
      {"kind: link-dwn, where: leaf0", {"unknown fault 'link-dwn'", "gpu-slow", "switch-down"}},
      {"at: 1us, where: leaf0", {"a fault needs a kind", "link-down"}},
      {"kind: link-down", {"a fault needs 'where'"}},
      {"kind: link-down, where: leaf9", {"'leaf9' matches nothing"}},
      {"kind: link-down, where: leaf0, rate: 5", {"unknown key 'rate'"}},
      {"kind: link-degrade, where: leaf0, rate: 0%", {"rate"}},
      {"kind: link-flap, where: leaf0", {"needs 'count' or 'for'"}},
      {"kind: nic-down, where: 'leaf0:port7'", {"which is no NIC's"}},
      {"kind: switch-down, where: node0.gpu0", {"which is no switch"}},
      {"kind: gpu-slow, where: rank0", {"nothing computes in this scenario"}},
      {"kind: gpu-stop, where: rank0", {"flows only"}},
      {"kind: link-down, where: leaf0, for: 0ns", {"for"}},
      {"kind: link-down, where: leaf0, at: soon", {"soon"}},
  };
  for (const Row& row : rows) {
    std::vector<std::string> parts = row.parts;
    parts.emplace_back("x.yaml:9: ");
    expect_error(run("x", kClos, {row.fault}), 2, parts);
  }
  for (const char* engine : {"flow", "analytic"}) {
    expect_error(
        run("x", kClos, {"kind: link-down, where: leaf0"},
            {"--set", std::string("simulation.engine=") + engine}),
        2,
        {"x.yaml:9: ", std::string("engine ") + engine + " does not model link-down during a run"});
  }
  expect_error(run("x", kClos, {}, {"--set", "faults=1"}), 2, {"faults must be a list"});
  expect_error(run("x", std::string(kStar) + "traffic: [{pattern: incast, repeat: true}]\n", {}), 2,
               {"x.yaml:6: ", "would never end"});
  expect_error(
      run("x", std::string(kStar) + "traffic: [{pattern: incast, background: true}]\n", {}), 2,
      {"x.yaml:6: ", "all traffic is in the background"});
  expect_error(run("x", std::string(kStar) + "traffic: [{pattern: incast, class: 1}]\n", {}), 2,
               {"x.yaml:6: ", "class 1 does not exist", "fabric.switch.classes"});
  expect_error(run("x", kClos, {}, {"--set", "collectives.class=2"}), 2,
               {"class 2 does not exist"});
  for (const char* kind : {"link-down", "link-flap", "link-degrade", "link-loss", "link-ber",
                           "nic-down", "switch-down", "pfc-storm", "slow-receiver",
                           "pcie-downgrade", "nvlink-degrade", "gpu-slow", "gpu-stop"}) {
    const Outcome o = cli({"explain", kind});
    EXPECT_EQ(o.code, 0) << kind;
    EXPECT_TRUE(has(o.out, std::string(kind) + " (fault)") && has(o.out, "where")) << o.out;
  }
}

}  // namespace
}  // namespace trainyard::cli_test
