// SPDX-License-Identifier: MIT
#include "tools/scenario/scenario.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "chakra/writer.h"
#include "network/pcie_server.h"
#include "sim/registry.h"
#include "tools/scenario/run.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A small fabric and a small flow: complete, and done in milliseconds.
const char* const kSmall =
    "cluster: {nodes: 2, gpus_per_node: 2}\n"
    "fabric: {topology: {kind: rail-optimized}}\n"
    "traffic: [{pattern: incast, size: 64KiB}]\n";

class ScenarioTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() /
           ("trainyard_scenario_" + std::to_string(::getpid()) + "_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    file_ = (dir_ / "s.yaml").string();
  }
  void TearDown() override { fs::remove_all(dir_); }

  void put(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name) << text;
  }
  [[nodiscard]] Scenario load(const std::string& text,
                              const std::vector<std::string>& settings = {}) const {
    put("s.yaml", text);
    ScenarioOverrides overrides;
    overrides.settings = settings;
    return load_scenario(file_, overrides);
  }
  /// Error of reading `text`, with the scenario's folder cut off; "" when accepted.
  [[nodiscard]] std::string problem(const std::string& text,
                                    const std::vector<std::string>& settings = {}) const {
    try {
      (void)load(text, settings);
    } catch (const UserError& e) {
      return short_name(e.what());
    }
    return "";
  }
  /// Error of reading and running it; "" when it ran to its end.
  [[nodiscard]] std::string run_problem(const std::string& text,
                                        const std::vector<std::string>& settings = {}) const {
    try {
      const Result r = run_scenario(load(text, settings));
      return r.complete ? "" : "incomplete: " + r.incomplete_reason;
    } catch (const UserError& e) {
      return short_name(e.what());
    }
  }
  [[nodiscard]] std::string short_name(std::string text) const {
    const std::string prefix = dir_.string() + "/";
    for (size_t i = text.find(prefix); i != std::string::npos; i = text.find(prefix)) {
      text.erase(i, prefix.size());
    }
    return text;
  }
  static std::string setting(const Scenario& s, const std::string& key) {
    std::string found = "(missing)";
    size_t times = 0;
    for (const auto& [k, v] : s.settings) {
      if (k != key) continue;
      found = v;
      ++times;
    }
    return times > 1 ? "(twice)" : found;
  }

  /// Ranks that all-reduce and all-to-all once among themselves, with compute before.
  void write_trace(const std::string& prefix, uint32_t ranks) const {
    for (uint32_t r = 0; r < ranks; ++r) {
      chakra::RankTrace t;
      chakra::Node comp;
      comp.id = 1;
      comp.name = "gemm";
      comp.type = chakra::NodeType::comp;
      comp.duration_us = 3;
      comp.num_ops = 1'000'000'000;
      comp.tensor_size = 1'000'000;
      chakra::Node coll;
      coll.id = 2;
      coll.name = "reduce";
      coll.type = chakra::NodeType::comm_coll;
      coll.comm_type = 0;
      coll.comm_size = 65536;
      coll.data_deps = {1};
      chakra::Node a2a = coll;
      a2a.id = 3;
      a2a.name = "exchange";
      a2a.comm_type = 6;
      a2a.data_deps = {2};
      t.nodes = {comp, coll, a2a};
      chakra::write_rank((dir_ / (prefix + "." + std::to_string(r) + ".et")).string(), t);
    }
  }

  fs::path dir_;
  std::string file_;
};

TEST_F(ScenarioTest, SmallScenarioIsAcceptedAndRuns) {
  EXPECT_EQ(problem(kSmall), "");
  EXPECT_EQ(run_problem(kSmall), "");
}

// ---------------------------------------------------------------- the grammar of DESIGN 9.1

TEST_F(ScenarioTest, DesignExampleIsRefusedByNameUntilItsBlocksExist) {
  const std::string text =
      "name: Llama-3 70B, 128 H100, one plane against two\n"
      "seed: 1\n"
      "cluster: {nodes: 16, device: h100-sxm, gpus_per_node: 8, nics_per_node: 8,\n"
      "          placement: contiguous}\n"
      "fabric:\n"
      "  topology: {kind: rail-optimized, planes: 1, nic: {rate: 400Gbps}, leaf_radix: 64,\n"
      "             oversubscription: 1, link: {length: 30m},\n"
      "             scale_up: {kind: nvswitch, rate: 450GBps, latency: 500ns}}\n"
      "  transport: {preset: rocev2, congestion: {kind: dcqcn, order: vendor},\n"
      "              load_balancing: {kind: ecmp}, loss_recovery: go-back-n}\n"
      "  switch: {buffer: 64MiB, pfc: {alpha: 1/8, headroom: auto}, ecn: {preset: by-port-rate}}\n"
      "collectives: {algorithm: auto, protocol: auto, channels: auto, cross_nic: 0, window: auto,\n"
      "              admission: none, sms: auto, timeout: 30min}\n"
      "traffic: [{pattern: incast, size: 64KiB}]\n";
  EXPECT_EQ(problem(text), "");
  EXPECT_EQ(run_problem(text), "");
}

struct GrammarRow {
  const char* block;       ///< replaces or joins kSmall; the feature stands in the marked line
  const char* refused_as;  ///< "" when it is built
  int line;                ///< of the block's text, 1-based
};

TEST_F(ScenarioTest, EveryKeyOfTheGrammarIsBuiltOrRefusedByName) {
  const std::string traffic = "traffic: [{pattern: incast, size: 64KiB}]\n";
  write_trace("t", 2);
  // Blocks that stand beside `traffic`.
  const GrammarRow rows[] = {
      {"name: x\n", "", 0},
      {"seed: 7\n", "", 0},
      {"cluster: {nodes: 2}\n", "", 0},
      {"cluster: {nodes: auto}\n", "", 0},
      {"cluster: {device: h100-sxm}\n", "", 0},
      {"cluster: {gpus_per_node: 8}\n", "", 0},
      {"cluster: {nics_per_node: 8}\n", "", 0},
      {"cluster: {placement: contiguous}\n", "", 0},
      {"fabric: {topology: {kind: rail-optimized}}\n", "", 0},
      {"fabric: {topology: {planes: 1}}\n", "", 0},
      {"fabric: {topology: {nic: {rate: 400Gbps}}}\n", "", 0},
      {"fabric: {topology: {leaf_radix: 64}}\n", "", 0},
      {"fabric: {topology: {oversubscription: 1}}\n", "", 0},
      {"fabric: {topology: {link: {length: 30m}}}\n", "", 0},
      {"fabric: {topology: {scale_up: {kind: nvswitch}}}\n", "", 0},
      {"fabric: {topology: {scale_up: {rate: 450GBps}}}\n", "", 0},
      {"fabric: {topology: {scale_up: {latency: 500ns}}}\n", "", 0},
      {"fabric: {transport: {preset: rocev2}}\n", "", 0},
      {"fabric: {transport: {congestion: {kind: dcqcn, order: vendor}}}\n", "", 0},
      {"fabric: {transport: {load_balancing: {kind: ecmp}}}\n", "", 0},
      {"fabric: {transport: {load_balancing: {qps: 1}}}\n", "", 0},
      {"fabric: {transport: {load_balancing: {qps: 4}}}\n", "", 0},
      {"fabric: {transport: {loss_recovery: go-back-n}}\n", "", 0},
      {"fabric: {switch: {buffer: 64MiB}}\n", "", 0},
      {"fabric: {switch: {pfc: {alpha: 1/8, headroom: auto}}}\n", "", 0},
      {"fabric: {switch: {ecn: {preset: by-port-rate}}}\n", "", 0},
      {"workload: {model: llama3-8b, layout: {tp: 8, pp: 2, dp: 1, zero: 1, sequence_parallel: "
       "true}, schedule: {kind: 1f1b}, batch: {global: 16, micro: 1, sequence: 8192}, recompute: "
       "full, steps: 2}\nmemory: {headroom: 10%}\n",
       "", 0},
      {"workload:\n  simai: file.txt\n", "workload.simai", 2},
      {"workload:\n  goal: file.goal\n", "workload.goal", 2},
      {"workload: {chakra: t}\n", "", 0},
      {"collectives: {class: 0}\n", "", 0},
      {"collectives: {algorithm: auto}\n", "", 0},
      {"collectives: {protocol: auto}\n", "", 0},
      {"collectives: {channels: auto}\n", "", 0},
      {"collectives: {cross_nic: 0}\n", "", 0},
      {"collectives: {window: auto}\n", "", 0},
      {"collectives: {admission: none}\n", "", 0},
      {"collectives: {admission: credits, outstanding: 2, cts_class: data}\n", "", 0},
      {"collectives: {sms: auto}\n", "", 0},
      {"collectives: {timeout: 30min}\n", "", 0},
      {"compute: {model: roofline}\n", "", 0},
      {"compute: {model: table, file: kernels.csv, outside: roofline}\n", "", 0},
      {"compute:\n  model: fitted\n", "", 0},
      {"compute: {model: roofline, jitter: {kind: lognormal, sigma: 1%}}\n", "", 0},
      {"compute: {slow: [{where: rank17, factor: 1.1}]}\n", "", 0},
      {"compute: {overlap_slowdown: 20%}\n", "", 0},
      {"simulation: {engine: packet}\n", "", 0},
      {"simulation:\n  engine: flow\n", "", 0},
      {"simulation: {engine: flow, ack_load: false, fast_path: none}\n", "", 0},
      {"simulation: {engine: analytic, nic_serialization: true}\n", "", 0},
      {"simulation:\n  engine: ns3\n", "simulation.engine: ns3", 2},
      {"simulation: {fast_path: none}\n", "", 0},
      {"simulation: {fast_path: exact, memo: off}\n", "", 0},
      {"simulation: {fast_path: fast, audit: {budget: 5%}}\n", "", 0},
      {"simulation: {seeds: 1}\n", "", 0},
      {"simulation:\n  seeds: 5\n", "simulation.seeds above 1", 2},
      {"simulation: {threads: auto}\n", "", 0},
      {"simulation: {threads: 1}\n", "", 0},
      {"simulation: {until: 3ms}\n", "", 0},
      {"simulation: {threads: 8}\n", "", 0},
      {"faults:\n  - {at: 150ms, kind: nic-down, where: node3.nic5}\n", "", 0},
      {"faults:\n  - {at: 150ms, kind: nic-down, where: node3.nic5, for: 20ms, reaction: "
       "failover}\n",
       "", 0},
      {"reliability: {preset: rsc-1, trials: 1000}\n", "reliability", 1},
      {"output: {dir: out/x}\n", "", 0},
      {"output: {trace: perfetto, telemetry: {links: 10us}}\n", "", 0},
      {"output: {trace: none, telemetry: {links: off, pauses: true}}\n", "", 0},
      {"output:\n  dir: x\n  telemetry: {links: 10us, qp: 32us}\n", "", 0},
      {"output: {telemetry: {qp: off, packets: 1/1000, flows: true}}\n", "", 0},
      {"output: {telemetry: {packets: 0.1%, flows: false}}\n", "", 0},
      {"output: {telemetry: {packets: off}}\n", "", 0},
      {"check: {step_time: \"<=5.2s\"}\n", "check", 1},
      {"sweep: {fabric.topology.planes: [1, 2]}\n", "sweep", 1},
      {"wiring: {nic_order: file, swap: [[node3.nic0, node3.nic1]]}\n", "", 0},
      {"cluster: {placement: striped}\n", "", 0},
      {"cluster: {placement: \"file:ranks.txt\"}\n", "", 0},
      {"cost: {gpu_hour: 2}\n", "", 0},
      {"cost: {gpu_hour: 2, energy_kwh: 0.12, pue: 1.3}\n", "", 0},
      {"solve: {for: reliability.checkpoint.interval}\n", "solve", 1},
      // Even empty, a planned block is not swallowed.
      {"sweep: {}\n", "sweep", 1},
  };
  for (const GrammarRow& row : rows) {
    // The blank line in front tells a right line from a default of 1.
    const std::string text = "\n" + std::string(row.block) + traffic;
    const std::string message = problem(text);
    if (*row.refused_as == '\0') {
      EXPECT_EQ(message, "") << row.block;
      continue;
    }
    EXPECT_TRUE(has(message, std::string(row.refused_as) + " is not built yet"))
        << row.block << "message: " << message;
    const int line = row.line < 0 ? 3 : row.line + 1;
    EXPECT_EQ(message.rfind("s.yaml:" + std::to_string(line) + ": ", 0), 0U)
        << row.block << "message: " << message;
  }
  // Patterns of `traffic`.
  for (const char* pattern : {"incast", "outcast", "permutation", "all-to-all"}) {
    EXPECT_EQ(problem("traffic: [{pattern: " + std::string(pattern) + "}]\n"), "") << pattern;
  }
  EXPECT_EQ(problem("traffic: [{pattern: file, path: f.csv}]\n"), "");
  EXPECT_EQ(problem("traffic: [{pattern: collective}]\n"), "");
  EXPECT_TRUE(has(run_problem(std::string("cluster: {nodes: 1}\n") +
                              "workload: {chakra: t}\ntraffic: [{pattern: collective}]\n"),
                  "collectives of traffic beside a workload are not built yet"));
  EXPECT_EQ(problem("workload: {chakra: \"t.{rank}.et\"}\n"), "");
}

// ---------------------------------------------------------------- keys, types, ranges

struct KeyRow {
  const char* text;  ///< one unknown key, in the line `line`
  int line;
  const char* key;
  const char* hint;   ///< a near miss, or nullptr
  const char* known;  ///< one of the known keys that must be listed
};

TEST_F(ScenarioTest, UnknownKeysOfEveryBlockNameLineKnownKeysAndNearMiss) {
  const KeyRow rows[] = {
      {"a: 1\nfabrik: {}\n", 1, "a", nullptr, "fabric"},
      {"name: x\nfabrik: {}\n", 2, "fabrik", "fabric", "cluster"},
      {"name: x\ncluster:\n  node: 2\n", 3, "node", "nodes", "gpus_per_node"},
      {"fabric:\n  topolgy: {}\n", 2, "topolgy", "topology", "switch"},
      {"fabric:\n  topology:\n    leaf_radx: 3\n", 3, "leaf_radx", "leaf_radix", "nic"},
      {"fabric:\n  topology:\n    nic:\n      rat: 3\n", 4, "rat", "rate", "rate"},
      {"fabric:\n  topology:\n    scale_up: {latncy: 3}\n", 3, "latncy", "latency", "kind"},
      {"fabric:\n  transport:\n    paylod: 1\n", 3, "paylod", "payload", "congestion"},
      {"fabric:\n  transport:\n    congestion:\n      ordr: paper\n", 4, "ordr", "order", "kind"},
      {"fabric:\n  transport:\n    load_balancing: {hsh: 1}\n", 3, "hsh", "hash", "qps"},
      {"fabric:\n  switch:\n    bufer: 1MiB\n", 3, "bufer", "buffer", "pfc"},
      {"fabric:\n  switch:\n    pfc: {\n      alfa: 1}\n", 4, "alfa", "alpha", "headroom"},
      {"fabric:\n  switch:\n    ecn:\n      kmn: 1\n", 4, "kmn", "kmin", "pmax"},
      {"workload:\n  chakr: x\n", 2, "chakr", "chakra", "strict"},
      {"traffic:\n- pattern: incast\n  sizes: 1MiB\n", 3, "sizes", "size", "fan_in"},
      {"traffic:\n- pattern: incast\n- pattern: outcast\n  dst: 1\n", 4, "dst", nullptr, "size"},
      {"collectives:\n  algoritm: ring\n", 2, "algoritm", "algorithm", "channels"},
      {"collectives:\n  algorithm: {\n    allreduce: ring}\n", 3, "allreduce", "all_reduce",
       "barrier"},
      {"compute:\n  modl: trace\n", 2, "modl", "model", "efficiency"},
      {"simulation:\n  engin: packet\n", 2, "engin", "engine", "fast_path"},
      {"output:\n  dirr: x\n", 2, "dirr", "dir", "telemetry"},
      {"fabric:\n  transport:\n    zzzzzzzzzzz: 1\n", 3, "zzzzzzzzzzz", nullptr, "window"},
  };
  for (const KeyRow& row : rows) {
    const std::string m = problem(row.text);
    EXPECT_TRUE(has(m, "s.yaml:" + std::to_string(row.line) + ": unknown key '" + row.key + "'"))
        << row.text << m;
    const size_t list = m.find("known: ");
    ASSERT_NE(list, std::string::npos) << row.text << m;
    EXPECT_TRUE(has(m.substr(list), row.known)) << row.text << m;
    if (row.hint != nullptr) {
      EXPECT_TRUE(has(m, "did you mean '" + std::string(row.hint) + "'?")) << row.text << m;
    } else {
      EXPECT_FALSE(has(m, "did you mean")) << row.text << m;
    }
  }
}

TEST_F(ScenarioTest, UnknownKeyOfAPresetNamesThePresetsLine) {
  const fs::path configs = dir_ / "configs";
  fs::create_directories(configs / "transport");
  fs::copy(fs::path(TRAINYARD_SOURCE_DIR) / "configs" / "devices", configs / "devices");
  put("configs/transport/mine.yaml", "# c\npayload: 1024B\npaylod: 1\n");
  ASSERT_EQ(::setenv("TRAINYARD_CONFIGS", configs.c_str(), 1), 0);
  const std::string m =
      problem("fabric: {transport: {preset: mine}}\ntraffic: [{pattern: incast}]\n");
  ::unsetenv("TRAINYARD_CONFIGS");
  EXPECT_TRUE(has(m, "configs/transport/mine.yaml:3: unknown key 'paylod'")) << m;
}

struct TypeRow {
  const char* text;
  int line;
  const char* message;
};

TEST_F(ScenarioTest, WrongTypesAndRangesAreRefusedWithTheirLine) {
  const TypeRow rows[] = {
      // a list or a map where one value is due
      {"\nname: [a]\n", 2, "name must be one value"},
      {"\nseed: {a: 1}\n", 2, "seed must be one value"},
      {"cluster:\n  nodes: [1]\n", 2, "cluster.nodes must be one value"},
      {"cluster:\n  device: {a: b}\n", 2, "cluster.device must be one value"},
      {"fabric:\n  topology:\n    kind: [a]\n", 3, "fabric.topology.kind must be one value"},
      {"fabric:\n  topology:\n    nic:\n      rate: [1]\n", 4,
       "fabric.topology.nic.rate must be one value"},
      {"fabric:\n  transport:\n    preset: [rocev2]\n", 3, "preset must be one name"},
      {"fabric:\n  transport:\n    payload: {a: 1}\n", 3, "payload must be one value"},
      {"fabric:\n  switch:\n    buffer: [1MiB]\n", 3, "buffer must be one value"},
      {"workload:\n  chakra: [x]\n", 2, "workload.chakra must be one value"},
      {"simulation:\n  engine: [packet]\n", 2, "simulation.engine must be one value"},
      {"simulation:\n  seeds: [1]\n", 2, "simulation.seeds must be one value"},
      {"output:\n  dir: [a]\n", 2, "output.dir must be one value"},
      {"traffic:\n- pattern: [incast]\n", 2, "pattern must be one value"},
      // one value or a list where a block is due
      {"\ncluster: 4\n", 2, "cluster must be a block of keys"},
      {"\nfabric: rail\n", 2, "fabric must be a block of keys"},
      {"fabric:\n  topology: rail-optimized\n", 2, "fabric.topology must be a block of keys"},
      {"fabric:\n  transport: rocev2\n", 2, "fabric.transport must be a block of keys"},
      {"fabric:\n  transport:\n    congestion: dcqcn\n", 3, "congestion must be a block of keys"},
      {"fabric:\n  switch: [a]\n", 2, "fabric.switch must be a block of keys"},
      {"fabric:\n  switch:\n    pfc: true\n", 3, "pfc must be a block of keys"},
      {"fabric:\n  topology:\n    nic: 400Gbps\n", 3, "unknown key 'nic'"},
      {"\nworkload: x\n", 2, "workload must be a block of keys"},
      {"\ncollectives: ring\n", 2, "collectives must be a block of keys"},
      {"\ncompute: roofline\n", 2, "compute must be a block of keys"},
      {"\nsimulation: packet\n", 2, "simulation must be a block of keys"},
      {"\noutput: out\n", 2, "output must be a block of keys"},
      {"\ntraffic: incast\n", 2, "traffic must be a list"},
      {"\ntraffic: {pattern: incast}\n", 2, "traffic must be a list"},
      {"traffic:\n- incast\n", 2, "traffic[0] must be a block of keys"},
      {"name: x\ntraffic:\n- pattern: incast\n-\n", 3, "traffic[1] is empty"},
      {"traffic:\n- size: 1MiB\n", 2, "a traffic entry needs a pattern"},
      // values
      {"\nseed: -1\n", 2, "seed: '-1' is outside 0"},
      {"\nseed: 1.5\n", 2, "'1.5' is not a whole number"},
      {"\nseed: 99999999999999999999\n", 2, "is not a whole number"},
      {"cluster:\n  nodes: 0\n", 2, "nodes: '0' is outside 1"},
      {"cluster:\n  nodes: 1000001\n", 2, "is outside 1 to 1000000"},
      {"cluster:\n  gpus_per_node: 0\n", 2, "is outside 1 to 1024"},
      {"cluster:\n  gpus_per_node: auto\n", 2, "'auto' is not a whole number"},
      {"cluster:\n  nics_per_node: 1025\n", 2, "is outside 1 to 1024"},
      {"cluster:\n  placement: random\n", 2, "is not one of: contiguous, striped, file:PATH"},
      {"fabric:\n  topology:\n    leaf_radix: 1\n", 3, "is outside 2 to 1024"},
      {"fabric:\n  topology:\n    nic: {rate: 400}\n", 3, "rate"},
      {"fabric:\n  topology:\n    nic: {rate: 400Gb}\n", 3, "Gbps"},
      {"fabric:\n  topology:\n    nic: {rate: 0Gbps}\n", 3, "is outside 1Mbps"},
      {"fabric:\n  topology:\n    link: {length: 200km}\n", 3, "is outside 0m to 100km"},
      {"fabric:\n  topology:\n    link: {delay: -5ns}\n", 3, "-5ns"},
      {"fabric:\n  transport:\n    payload: 63B\n", 3, "is outside 64B to 9216B"},
      {"fabric:\n  transport:\n    payload: 4KM\n", 3, "KiB"},
      {"fabric:\n  transport:\n    ack_interval: 0\n", 3, "is outside 1 to 65535"},
      {"fabric:\n  transport:\n    ack_pausable: yes\n", 3, "is not true or false"},
      {"fabric:\n  transport:\n    loss_recovery: sack\n", 3, "is not one of: go-back-n"},
      {"fabric:\n  transport:\n    retransmit_timeout: 1ns\n", 3, "is outside 1us to 100s"},
      {"fabric:\n  transport:\n    load_balancing:\n      qps: 0\n", 4, "qps: '0' is outside 1"},
      {"fabric:\n  switch:\n    buffer: 0B\n", 3, "is outside 1KiB to 1GiB"},
      {"fabric:\n  switch:\n    pfc: {alpha: 0}\n", 3, "is outside 0.0001 to 1000"},
      {"fabric:\n  switch:\n    ecn: {pmax: 101%}\n", 3, "is outside 0 to 1"},
      {"traffic:\n- {pattern: incast, size: 0B}\n", 2, "is outside 1B"},
      {"traffic:\n- {pattern: incast, fan_in: 0}\n", 2, "is outside 1"},
      {"collectives:\n  channels: 65\n", 2, "is outside 1 to 64"},
      {"collectives:\n  algorithm: bee\n", 2, "is not one of: auto, chain, custom, direct"},
      {"collectives:\n  admission: grants\n", 2, "is not one of: none, credits"},
      {"collectives:\n  outstanding: 0\n", 2, "is outside 1"},
      {"collectives:\n  cts_class: fast\n", 2, "is not one of: control, data"},
      {"compute:\n  model: roofline\n  efficiency: 0\n", 3, "is outside 0.01 to 1"},
      {"simulation:\n  seeds: many\n", 2, "'many' is not a whole number"},
      {"simulation:\n  seeds: 0\n", 2, "is outside 1"},
      {"simulation:\n  until: 0ns\n", 2, "is outside 1ns"},
      {"simulation:\n  threads: some\n", 2, "'some' is not a whole number"},
      {"workload:\n  chakra: x\n  element_bytes: 17\n", 3, "is outside 1 to 16"},
      {"workload:\n  chakra: x\n  strict: maybe\n", 3, "is not true or false"},
      {"\nworkload: {strict: true}\n", 2, "workload needs 'model: NAME' or 'chakra: PREFIX'"},
  };
  for (const TypeRow& row : rows) {
    const std::string m = problem(row.text);
    EXPECT_EQ(m.rfind("s.yaml:" + std::to_string(row.line) + ": ", 0), 0U) << row.text << m;
    EXPECT_TRUE(has(m, row.message)) << row.text << m;
    EXPECT_EQ(m.find('\n'), std::string::npos) << m;
  }
}

TEST_F(ScenarioTest, UnknownNamesListTheKnownOnes) {
  const TypeRow rows[] = {
      {"cluster:\n  device: h900\n", 2, "h100-sxm"},
      {"cluster:\n  device: ../devices/h100-sxm\n", 2, "h100-sxm"},
      {"fabric:\n  topology:\n    kind: torus\n", 3, "rail-optimized"},
      {"fabric:\n  transport:\n    preset: infiniband\n", 3,
       "rocev2, rocev2-bad-defaults, rocev2-paper"},
      {"fabric:\n  transport:\n    congestion: {kind: bbr}\n", 3,
       "dcqcn, dctcp, hpcc, none, timely"},
      {"fabric:\n  transport:\n    load_balancing: {kind: tarot}\n", 3,
       "ecmp, flowlet, pinned, source-routed, spray"},
      {"traffic:\n- {pattern: burst}\n", 2,
       "all-to-all, collective, file, incast, outcast, permutation"},
      {"compute:\n  model: magic\n", 2, "roofline, table, trace"},
      {"simulation:\n  engine: htsim\n", 2, "analytic, flow, packet"},
      {"simulation:\n  fast_path: warp\n", 2, "none"},
  };
  for (const TypeRow& row : rows) {
    const std::string m = problem(row.text);
    EXPECT_EQ(m.rfind("s.yaml:" + std::to_string(row.line) + ": unknown ", 0), 0U) << row.text << m;
    EXPECT_TRUE(has(m, row.message)) << row.text << m;
  }
}

TEST_F(ScenarioTest, AlgorithmsOfCollectivesByWordAndByKind) {
  EXPECT_TRUE(has(problem("collectives:\n  algorithm: rng\n"), "s.yaml:2: "));
  EXPECT_TRUE(has(problem("collectives:\n  algorithm: rng\n"), "halving-doubling"));
  const std::string wrong = problem("collectives:\n  algorithm:\n    all_to_all: tree\n");
  EXPECT_TRUE(has(wrong, "s.yaml:3: ")) << wrong;
  EXPECT_TRUE(has(wrong, "hierarchical, pairwise")) << wrong;
  const std::string text =
      "cluster: {nodes: 2, gpus_per_node: 2}\n"
      "traffic:\n"
      "  - {pattern: collective, collective: all-reduce, size: 64KiB}\n"
      "  - {pattern: collective, collective: all-to-all, size: 64KiB}\n"
      "  - {pattern: collective, collective: all-gather, size: 64KiB}\n"
      "collectives: {algorithm: {all_reduce: tree, all_to_all: hierarchical}}\n";
  const auto algorithms = [&](const std::vector<std::string>& settings) {
    std::string out;
    for (const auto& c : run_scenario(load(text, settings)).collectives) out += c.algorithm + " ";
    return out;
  };
  EXPECT_EQ("tree hierarchical ring ", algorithms({}));
  EXPECT_EQ("tree pairwise ring ", algorithms({"collectives.algorithm.all_to_all=pairwise"}));
  EXPECT_EQ("halving-doubling direct halving-doubling ",
            algorithms({"collectives.algorithm=halving-doubling"}));
  // Paths stand relative to the scenario.
  EXPECT_TRUE(has(problem("collectives:\n  algorithm: {all_reduce: custom}\n  custom: mine/ar\n"),
                  "mine/ar: no such file or folder"));
}

TEST_F(ScenarioTest, NothingToSimulateIsAnError) {
  for (const char* text : {"name: x\n", "traffic: []\n", "traffic:\n", "workload:\nname: x\n"}) {
    EXPECT_TRUE(has(problem(text), "s.yaml: nothing to simulate")) << text << problem(text);
  }
}

// ---------------------------------------------------------------- presets, --set, settings

TEST_F(ScenarioTest, PresetsGoUnderUserKeysAndKeepTheirLines) {
  const Scenario s = load(
      "fabric:\n"
      "  transport:\n"
      "    payload: 1024B\n"
      "    preset: rocev2-paper\n"
      "    congestion: {min_rate: 1Gbps}\n"
      "traffic: [{pattern: incast}]\n");
  EXPECT_EQ(setting(s, "fabric.transport.payload"), "1024B  (line 3)");
  EXPECT_EQ(setting(s, "fabric.transport.preset"), "rocev2-paper  (line 4)");
  EXPECT_EQ(s.congestion.kind, "dcqcn");
  // Merged key by key: the user's min_rate, the preset's order.
  EXPECT_EQ(setting(s, "fabric.transport.congestion.min_rate"), "1Gbps  (line 5)");
  EXPECT_EQ(setting(s, "fabric.transport.congestion.order"), "paper  (preset rocev2-paper.yaml:3)");
  const Origin& order = s.congestion.params.origin("order");
  EXPECT_EQ(order.kind, Origin::Kind::preset);
  EXPECT_EQ(order.pos.str(),
            (fs::path(config_dir()) / "transport" / "rocev2-paper.yaml").string() + ":3");
  EXPECT_EQ(setting(s, "fabric.transport.loss_recovery"),
            "go-back-n  (preset rocev2-paper.yaml:5)");
  EXPECT_EQ(setting(s, "fabric.transport.header"), "82B  (default)");
  // A mistake in the user's part is still reported in the user's line.
  EXPECT_TRUE(has(problem("fabric:\n  transport:\n    preset: rocev2\n    paylod: 1\n"),
                  "s.yaml:4: unknown key 'paylod'"));
  EXPECT_TRUE(has(problem("fabric:\n  transport:\n    preset: rocev2\n    congestion:\n"
                          "      order: both\n"),
                  "s.yaml:5: order: 'both' is not one of: vendor, paper"));
}

TEST_F(ScenarioTest, SettingsOfTheCommandLineWinAndSayWhereTheyComeFrom) {
  const Scenario s = load(kSmall, {"fabric.transport.preset=rocev2-paper", "seed=9",
                                   "fabric.switch.buffer=32MiB", "cluster.nodes=4"});
  EXPECT_EQ(s.seed, 9U);
  EXPECT_EQ(s.nodes, 4U);
  EXPECT_EQ(setting(s, "seed"), "9  (command line)");
  EXPECT_EQ(setting(s, "cluster.nodes"), "4  (command line)");
  EXPECT_EQ(setting(s, "fabric.switch.buffer"), "32MiB  (command line)");
  EXPECT_EQ(setting(s, "fabric.transport.congestion.order"), "paper  (preset rocev2-paper.yaml:3)");
  EXPECT_TRUE(has(problem(kSmall, {"cluster.node=4"}), "--set cluster.node=4: unknown key 'node'"));
  EXPECT_TRUE(
      has(problem(kSmall, {"cluster.nodes=x"}), "--set cluster.nodes=x: nodes: 'x' is not"));
  EXPECT_TRUE(has(problem(kSmall, {"faults=1"}), "--set faults=1: faults must be a list"));
  EXPECT_EQ(load(kSmall, {"seed=2", "seed=3"}).seed, 3U);
  // The setting is to blame, not the line that it replaces.
  EXPECT_TRUE(has(problem(kSmall, {"fabric.topology.kind=torus"}),
                  "--set fabric.topology.kind=torus: unknown topology 'torus'"));
  EXPECT_TRUE(has(
      problem(std::string(kSmall) + "simulation: {engine: packet}\n", {"simulation.engine=ns3"}),
      "--set simulation.engine=ns3: simulation.engine: ns3 is not built yet"));
}

/// Where the parameters of a model of this category stand in a scenario.
std::string scenario_path(const ModelDoc& doc) {
  static const std::map<std::string, std::string> paths = {
      {"topology", "fabric.topology"},
      {"congestion", "fabric.transport.congestion"},
      {"load_balancing", "fabric.transport.load_balancing"},
      {"transport", "fabric.transport"},
      {"switch", "fabric.switch"},
      {"pfc", "fabric.switch.pfc"},
      {"ecn", "fabric.switch.ecn"},
      {"traffic", "traffic[0]"},
      {"compute", "compute"},
      {"jitter", "compute.jitter"},
      {"collective", "collectives"},
      {"engine", "simulation"},
  };
  const auto it = paths.find(doc.category);
  return it == paths.end() ? "" : it->second;
}

/// A scenario that uses this model and runs in milliseconds; the trace "t" has 4 ranks.
std::string scenario_with(const ModelDoc& doc, bool trace) {
  std::string topology = "kind: rail-optimized";
  std::string congestion = "kind: dcqcn";
  std::string traffic = "pattern: all-to-all, size: 64KiB";
  if (doc.category == "topology") topology = "kind: " + doc.name;
  if (doc.name == "file" && doc.category == "topology") topology += ", path: topo.txt";
  if (doc.category == "congestion") congestion = "kind: " + doc.name;
  std::string balancing;
  if (doc.category == "load_balancing") balancing = ", load_balancing: {kind: " + doc.name + "}";
  if (doc.name == "spray") balancing += ", loss_recovery: selective-repeat";
  // Its rails do not meet outside of servers.
  if (doc.name == "rail-only") traffic = "pattern: permutation, shift: 2";
  if (doc.category == "traffic") traffic = "pattern: " + doc.name;
  if (doc.name == "file" && doc.category == "traffic") traffic += ", path: flows.csv";
  const bool given = doc.name == "file" && doc.category == "topology";
  std::string out = "cluster: {" + std::string(given ? "" : "nodes: 2, ") +
                    "gpus_per_node: 2}\nfabric:\n  topology: {" + topology +
                    "}\n  transport: {congestion: {" + congestion + "}" + balancing + "}\n";
  if (doc.category == "engine") out += "simulation: {engine: " + doc.name + "}\n";
  if (doc.category == "compute") {
    out +=
        "compute: {model: " + doc.name + (doc.name == "table" ? ", file: kernels.csv" : "") + "}\n";
  }
  if (doc.category == "jitter") out += "compute: {jitter: {kind: " + doc.name + "}}\n";
  out += trace ? "workload: {chakra: t}\n" : "traffic: [{" + traffic + "}]\n";
  return out;
}

bool needs_trace(const ModelDoc& doc) {
  return doc.category == "compute" || doc.category == "jitter";
}

class EveryModel : public ScenarioTest {
 protected:
  void SetUp() override {
    ScenarioTest::SetUp();
    write_trace("t", 4);
    put("topo.txt",
        "5 1 4\n4\n0 4 100Gbps 1us 0\n1 4 100Gbps 1us 0\n2 4 100Gbps 1us 0\n3 4 100Gbps 1us 0\n");
    put("flows.csv", "flow_id,src,dst,size_bytes,start_ns\n0,0,1,65536,0\n1,2,1,65536,5\n");
  }
};

TEST_F(EveryModel, SettingsListEveryParameterOnceWithItsOrigin) {
  size_t checked = 0;
  for (const ModelDoc* doc : Registry::instance().all()) {
    if (doc->category == "lint") continue;   // a rule is no part of a scenario
    if (doc->category == "fault") continue;  // an entry of a list, see tests/cli/faults_test.cpp
    const std::string path = scenario_path(*doc);
    ASSERT_NE(path, "") << "this test does not know where '" << doc->category
                        << "' stands in a scenario";
    const Scenario s = load(scenario_with(*doc, needs_trace(*doc)));
    for (const ParamSpec& p : doc->params) {
      ++checked;
      const std::string got = setting(s, path + "." + p.name);
      if (p.default_value.empty() && got == "(missing)") continue;  // has no value
      EXPECT_TRUE(got == p.default_value + "  (default)" || has(got, "  (line "))
          << path << "." << p.name << " of " << doc->name << ": " << got;
    }
  }
  EXPECT_GT(checked, 60U);
  const Scenario s = load(
      "name: n\ncluster:\n  nodes: 2\n  device: a100-sxm\nfabric:\n  topology:\n"
      "    kind: single-switch\n  transport:\n    congestion:\n      kind: none\n"
      "traffic:\n- pattern: outcast\n");
  EXPECT_EQ(setting(s, "name"), "n  (line 1)");
  EXPECT_EQ(setting(s, "cluster.nodes"), "2  (line 3)");
  EXPECT_EQ(setting(s, "cluster.device"), "a100-sxm  (line 4)");
  EXPECT_EQ(setting(s, "cluster.gpus_per_node"), "8  (default)");
  EXPECT_EQ(setting(s, "cluster.nics_per_node"), "auto  (default)");
  EXPECT_EQ(setting(s, "cluster.placement"), "contiguous  (default)");
  EXPECT_EQ(setting(s, "fabric.topology.kind"), "single-switch  (line 7)");
  EXPECT_EQ(setting(s, "fabric.transport.congestion.kind"), "none  (line 10)");
  EXPECT_EQ(setting(s, "fabric.transport.load_balancing.kind"), "ecmp  (default)");
  EXPECT_EQ(setting(s, "traffic[0].pattern"), "outcast  (line 12)");
  EXPECT_EQ(setting(s, "compute.model"), "auto  (default)");
  EXPECT_EQ(setting(s, "simulation.engine"), "packet  (default)");
  EXPECT_EQ(setting(s, "simulation.threads"), "auto  (default)");
  const Scenario w = load("workload:\n  chakra: t\n  element_bytes: 2\n");
  EXPECT_TRUE(has(setting(w, "workload.chakra"), "/t  (line 2)"));
  EXPECT_EQ(setting(w, "workload.element_bytes"), "2  (line 3)");
  EXPECT_EQ(setting(w, "workload.strict"), "false  (default)");
}

bool counts_on_pcie_only(const std::string& name) {
  const auto& own = pcie_params();
  return name.rfind("nccl.env.NCCL_P2P", 0) == 0 || name.rfind("nccl.env.NCCL_SHM", 0) == 0 ||
         std::any_of(own.begin(), own.end(), [&](const ParamSpec& p) { return p.name == name; });
}

TEST_F(EveryModel, EveryChoiceOfEveryParameterRunsOnce) {
  size_t runs = 0;
  for (const ModelDoc* doc : Registry::instance().all()) {
    if (doc->category == "lint") continue;   // a rule is no part of a scenario
    if (doc->category == "fault") continue;  // an entry of a list, see tests/cli/faults_test.cpp
    const std::string path = scenario_path(*doc);
    ASSERT_NE(path, "") << doc->category;
    if (doc->name == "table") continue;  // knows no shapes of traces, see compute_table_test.cpp
    const bool trace = needs_trace(*doc) || doc->category == "collective";
    const std::string text = scenario_with(*doc, trace);
    EXPECT_EQ(run_problem(text), "") << doc->category << " " << doc->name << "\n" << text;
    for (const ParamSpec& p : doc->params) {
      std::vector<std::string> words = p.choices;
      if (p.type == ParamType::boolean) words = {"true", "false"};
      // Bounds that are cheap to run are values, too.
      if (!p.min.empty() && (p.type == ParamType::integer || p.type == ParamType::real) &&
          p.min != "0.000001" && p.name != "leaf_radix" && p.name != "spine_radix" &&
          p.name != "oversubscription") {
        words.push_back(p.min);
      }
      // Without scale-up domains a rail-only network is in pieces, which is refused.
      if (doc->name == "rail-only" && p.name.rfind("scale_up", 0) == 0) continue;
      for (const std::string& word : words) {
        ++runs;
        std::string m;
        if (doc->category == "traffic") {
          std::string with = text;
          std::string setting = ", " + p.name + ": " + word;
          if (word == "true" && (p.name == "background" || p.name == "repeat")) {
            // Something in front of it has to end.
            if (p.name == "repeat") setting += ", background: true";
            with.insert(with.rfind(']'), ", {pattern: permutation, shift: 2, size: 4KiB}");
            with.insert(with.find('}', with.find("traffic:")), setting);
          } else {
            with.insert(with.rfind('}'), setting);
          }
          m = run_problem(with);
        } else {
          std::vector<std::string> settings = {path + "." + p.name + "=" + word};
          // Refused elsewhere, see pcie_server_test.cpp.
          if (counts_on_pcie_only(p.name)) {
            settings.emplace_back("fabric.topology.scale_up.kind=pcie");
          }
          m = run_problem(text, settings);
        }
        EXPECT_EQ(m, "") << path << "." << p.name << " = " << word << " of " << doc->name;
      }
    }
  }
  EXPECT_GT(runs, 80U);
}

TEST_F(EveryModel, AWordThatIsNoChoiceIsRefusedByEveryTypedParameter) {
  for (const ModelDoc* doc : Registry::instance().all()) {
    if (doc->category == "lint") continue;   // a rule is no part of a scenario
    if (doc->category == "fault") continue;  // an entry of a list, see tests/cli/faults_test.cpp
    const std::string path = scenario_path(*doc);
    ASSERT_NE(path, "") << doc->category;
    if (doc->category == "traffic") continue;
    for (const ParamSpec& p : doc->params) {
      if (p.type == ParamType::text) continue;
      const std::string m =
          problem(scenario_with(*doc, needs_trace(*doc)), {path + "." + p.name + "=nonsense"});
      EXPECT_TRUE(has(m, "'nonsense'") || has(m, "nonsense:")) << path << "." << p.name << m;
      EXPECT_TRUE(has(m, "nonsense: ")) << path << "." << p.name << ": " << m;
    }
  }
}

TEST_F(EveryModel, EveryPresetAndDeviceLoads) {
  size_t count = 0;
  for (const auto& e : fs::directory_iterator(fs::path(config_dir()) / "transport")) {
    ++count;
    EXPECT_EQ(run_problem(kSmall, {"fabric.transport.preset=" + e.path().stem().string()}), "");
  }
  EXPECT_GE(count, 2U);
  ASSERT_GE(device_names().size(), 4U);
  for (const std::string& name : device_names()) {
    const DeviceCard card = load_device(name, {});
    EXPECT_GT(card.tflops, 10) << name;
    EXPECT_GT(card.hbm_gbytes_per_s, 100) << name;
    EXPECT_FALSE(card.source.empty()) << name;
    // Of one device: in the order that all of them have.
    EXPECT_GT(card.tflops, card.vector_tflops) << name;
    EXPECT_GT(card.vector_tflops, card.special_tops) << name;
    EXPECT_GT(card.special_tops, 1) << name;
    if (card.fp8_tflops > 0) {
      EXPECT_NEAR(card.fp8_tflops / card.tflops, 2, 0.001) << name;
    }
    EXPECT_GE(card.memory_bytes, int64_t{32} << 30) << name;
    EXPECT_GE(card.scale_up_bps, 8 * int64_t{150'000'000'000}) << name;
    EXPECT_GE(card.sms, 80) << name;
    EXPECT_GT(card.idle_watts, 0) << name;
    EXPECT_GT(card.communication_watts, card.idle_watts) << name;
    EXPECT_GE(card.compute_watts, card.communication_watts) << name;
    EXPECT_GE(card.tdp_watts, card.compute_watts) << name;
  }
}

// ---------------------------------------------------------------- contradictions and warnings

TEST_F(ScenarioTest, MoreRanksThanGpusShowsTheArithmetic) {
  write_trace("t", 5);
  const std::string m =
      run_problem("cluster: {nodes: 2, gpus_per_node: 2}\nworkload:\n  chakra: t\n");
  EXPECT_EQ(m.rfind("s.yaml:3: ", 0), 0U) << m;
  EXPECT_TRUE(has(m, "the trace has 5 ranks, the cluster 4 GPUs")) << m;
  EXPECT_TRUE(has(m, "2 nodes x 2 GPUs")) << m;
  // "auto" takes as many servers as the trace needs; more than needed is fine.
  EXPECT_EQ(run_problem("cluster: {nodes: auto, gpus_per_node: 2}\nworkload: {chakra: t}\n"), "");
  EXPECT_EQ(run_problem("cluster: {nodes: 4, gpus_per_node: 2}\nworkload: {chakra: t}\n"), "");
  const Scenario s = load("cluster: {gpus_per_node: 2}\nworkload: {chakra: t}\n");
  EXPECT_EQ(build_topology(s, 5).hosts().size(), 6U);
}

TEST_F(ScenarioTest, ClusterAgainstTopologyFile) {
  put("topo.txt", "3 1 2\n2\n0 2 100Gbps 1us 0\n1 2 100Gbps 1us 0\n");
  const std::string traffic = "traffic: [{pattern: incast, size: 1KiB}]\n";
  const std::string fabric = "fabric: {topology: {kind: file, path: topo.txt}}\n";
  const std::string m =
      run_problem("name: x\ncluster:\n  nodes: 2\n  gpus_per_node: 4\n" + fabric + traffic);
  EXPECT_EQ(m.rfind("s.yaml:", 0), 0U) << m;
  EXPECT_TRUE(has(m, "cluster says 2 nodes x 4 GPUs = 8, the topology file has 2 hosts")) << m;
  EXPECT_EQ(run_problem("cluster: {nodes: 2, gpus_per_node: 1}\n" + fabric + traffic), "");
  EXPECT_EQ(run_problem(fabric + traffic), "");
  write_trace("t", 3);
  EXPECT_TRUE(has(run_problem(fabric + "workload: {chakra: t}\n"),
                  "the trace has 3 ranks, the cluster 2 GPUs"));
}

TEST_F(ScenarioTest, StructuredFabricsNeedOneNicPerGpu) {
  const std::string m = run_problem(kSmall, {"cluster.nics_per_node=1"});
  EXPECT_TRUE(has(m, "nics_per_node is 1, gpus_per_node is 2")) << m;
}

TEST_F(ScenarioTest, KminAboveKmaxAndTooSmallABufferShowTheNumbers) {
  const std::string m = run_problem(
      "cluster: {nodes: 2, gpus_per_node: 2}\nfabric:\n  switch:\n    ecn:\n      kmin: 2MiB\n"
      "      kmax: 1MiB\ntraffic: [{pattern: incast}]\n");
  EXPECT_EQ(m.rfind("s.yaml:5: ", 0), 0U) << m;
  EXPECT_TRUE(has(m, "kmin 2MiB is above kmax 1MiB")) << m;
  EXPECT_EQ(run_problem(kSmall, {"fabric.switch.ecn.kmin=1MiB", "fabric.switch.ecn.kmax=1MiB"}),
            "");
  const std::string b = run_problem(
      kSmall, {"fabric.topology.kind=single-switch", "fabric.topology.scale_up.kind=none",
               "fabric.switch.pfc.headroom=20000B", "fabric.switch.pfc.reserve=4000B",
               "fabric.switch.buffer=96000B"});
  // 4 ports x (20,000 + 4,000) bytes.
  EXPECT_TRUE(has(b,
                  "switch leaf0: buffer 96KB is not larger than the reserves and headrooms of "
                  "its 4 ports, 96KB"))
      << b;
}

TEST_F(ScenarioTest, OneRankHasNobodyToTalkTo) {
  for (const char* pattern : {"incast", "outcast", "all-to-all", "permutation"}) {
    const std::string m = run_problem(
        "cluster: {nodes: 1, gpus_per_node: 1}\nfabric: {topology: {kind: single-switch}}\n"
        "traffic:\n- pattern: " +
        std::string(pattern) + "\n");
    EXPECT_TRUE(has(m, "s.yaml:4: traffic needs at least 2 ranks, the fabric has 1"))
        << pattern << m;
  }
}

TEST_F(ScenarioTest, TrafficOutsideTheFabricNamesRanksAndLine) {
  const std::string head = "cluster: {nodes: 2, gpus_per_node: 2}\ntraffic:\n- pattern: ";
  EXPECT_TRUE(has(run_problem(head + "incast\n  dst: 4\n"), "s.yaml:4: dst 4 is out of range"));
  EXPECT_TRUE(has(run_problem(head + "outcast\n  src: 9\n"), "the fabric has ranks 0 to 3"));
  EXPECT_TRUE(has(run_problem(head + "incast\n  fan_in: 4\n"), "fan_in 4 needs 5 ranks"));
  EXPECT_TRUE(has(run_problem(head + "permutation\n  shift: 8\n"), "sends every rank to itself"));
  EXPECT_TRUE(
      has(run_problem(head + "file\n  path: none.csv\n"), "s.yaml:4: cannot open flow file"));
  EXPECT_TRUE(has(run_problem(head + "file\n"), "needs a path"));
  put("bad.csv", "flow_id,src,dst,size_bytes,start_ns\n0,0,1,5,0\n1,0,7,5,0\n");
  EXPECT_TRUE(has(run_problem(head + "file\n  path: bad.csv\n"), "bad.csv:3: rank 7"));
}

TEST_F(ScenarioTest, RelativePathsAreRelativeToTheScenario) {
  fs::create_directories(dir_ / "sub");
  put("sub/topo.txt", "3 1 2\n2\n0 2 100Gbps 1us 0\n1 2 100Gbps 1us 0\n");
  put("sub/flows.csv", "0,0,1,4096,0\n");
  EXPECT_EQ(run_problem("fabric: {topology: {kind: file, path: sub/topo.txt}}\n"
                        "traffic: [{pattern: file, path: sub/flows.csv}]\n"),
            "");
  write_trace("sub/t", 2);
  const Scenario s = load("workload: {chakra: sub/../sub/t, groups: sub/g.json}\n");
  EXPECT_EQ(s.chakra, (dir_ / "sub" / "t").string());
  EXPECT_EQ(s.group_file, (dir_ / "sub" / "g.json").string());
  EXPECT_EQ(run_problem("workload: {chakra: sub/t}\n"), "");
  // An absolute path stays; a trace of the command line is relative to the current folder.
  EXPECT_EQ(load("workload: {chakra: /x/t}\n").chakra, "/x/t");
  ScenarioOverrides overrides;
  overrides.trace = "elsewhere/t";
  EXPECT_EQ(load_scenario(file_, overrides).chakra, "elsewhere/t");
}

TEST_F(ScenarioTest, OutputFolderFromNameOrOverride) {
  EXPECT_EQ(load(std::string(kSmall) + "name: \" A b/../C \"\n").output_dir, "out/a-b-c");
  EXPECT_EQ(load(std::string(kSmall) + "output: {dir: here}\n").output_dir, "here");
  ScenarioOverrides overrides;
  overrides.output_dir = "there";
  EXPECT_EQ(load_scenario(file_, overrides).output_dir, "there");
}

TEST_F(ScenarioTest, RatesThatLookLikeBytesAndBitsWarn) {
  const auto warnings = [&](const std::vector<std::string>& settings) {
    std::string all;
    for (const auto& w : run_scenario(load(kSmall, settings)).warnings) all += w + "\n";
    return all;
  };
  EXPECT_EQ(warnings({}), "");
  EXPECT_EQ(warnings({"fabric.topology.nic.rate=3.2Tbps"}), "");
  EXPECT_EQ(warnings({"fabric.topology.scale_up.rate=100Gbps"}), "");
  const std::string nic = warnings({"fabric.topology.nic.rate=3201Gbps"});
  EXPECT_TRUE(has(nic, "NIC rate of 3.201Tbps is above 3.2 Tbps: bits or bytes?")) << nic;
  const std::string up = warnings({"fabric.topology.scale_up.rate=99Gbps"});
  EXPECT_TRUE(has(up, "scale-up rate of 99Gbps is below 100 Gbps: bits or bytes?")) << up;
}

// ---------------------------------------------------------------- the scenarios we ship

TEST_F(ScenarioTest, ShippedScenariosLoad) {
  size_t count = 0;
  for (const auto& e : fs::directory_iterator(fs::path(TRAINYARD_SOURCE_DIR) / "scenarios")) {
    if (e.path().extension() != ".yaml") continue;
    ++count;
    EXPECT_NO_THROW((void)load_scenario(e.path().string())) << e.path();
  }
  EXPECT_GE(count, 2U);
}

}  // namespace
}  // namespace trainyard
