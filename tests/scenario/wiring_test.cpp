// SPDX-License-Identifier: MIT
// cluster.placement and the wiring block.
#include "tools/scenario/wiring.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "network/topology_summary.h"
#include "tools/scenario/run.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class Wiring : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(dir_); }
  void TearDown() override { fs::remove_all(dir_); }
  void put(const std::string& name, const std::string& text) { std::ofstream(dir_ / name) << text; }
  Scenario load(const std::string& text) {
    put("s.yaml", text);
    return load_scenario((dir_ / "s.yaml").string());
  }
  Topology build(const std::string& text) { return build_topology(load(text), 0); }
  std::string problem(const std::string& text) {
    try {
      (void)build(text);
    } catch (const UserError& e) {
      std::string m = e.what();
      const std::string prefix = dir_.string() + "/";
      for (size_t at = m.find(prefix); at != std::string::npos; at = m.find(prefix)) {
        m.erase(at, prefix.size());
      }
      return m;
    }
    return {};
  }
  fs::path dir_ = fs::temp_directory_path() / ("trainyard_wiring_" + std::to_string(getpid()));
};

const char* const kCluster =
    "traffic: [{pattern: permutation, shift: 1, size: 64KiB}]\n"
    "fabric: {topology: {kind: rail-optimized}}\n";

std::vector<std::string> names(const Topology& t) {
  std::vector<std::string> out;
  for (const uint32_t h : t.hosts()) out.push_back(t.nodes()[h].name);
  return out;
}

TEST_F(Wiring, Placements) {
  const std::string base = kCluster;
  const auto with = [&](const std::string& placement) {
    return base + "cluster: {nodes: 2, gpus_per_node: 2, placement: \"" + placement + "\"}\n";
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(build(with("contiguous"))),
            (Names{"node0.gpu0", "node0.gpu1", "node1.gpu0", "node1.gpu1"}));
  const Topology striped = build(with("striped"));
  EXPECT_EQ(names(striped), (Names{"node0.gpu0", "node1.gpu0", "node0.gpu1", "node1.gpu1"}));
  EXPECT_EQ(striped.servers(), (std::vector<uint32_t>{0, 1, 0, 1}));
  put("ranks.txt",
      "# rank 0 first\nnode1.gpu1\n\n  node0.gpu1  # rank 1\r\nnode0.gpu0\nnode1.gpu0\n");
  const Topology file = build(with("file:ranks.txt"));
  EXPECT_EQ(names(file), (Names{"node1.gpu1", "node0.gpu1", "node0.gpu0", "node1.gpu0"}));
  EXPECT_EQ(file.servers(), (std::vector<uint32_t>{0, 1, 1, 0}));
}

TEST_F(Wiring, PlacementMistakesAreNamed) {
  const std::string text =
      std::string(kCluster) + "cluster: {nodes: 2, gpus_per_node: 2, placement: \"file:r.txt\"}\n";
  EXPECT_EQ(problem(text).rfind("s.yaml:3: cannot open placement file r.txt", 0), 0U)
      << problem(text);
  put("r.txt", "node0.gpu0\nnode7.gpu0\n");
  EXPECT_EQ(problem(text).rfind("r.txt:2: 'node7.gpu0' is not a GPU", 0), 0U) << problem(text);
  put("r.txt", "node0.gpu0\nnode0.gpu0\n");
  EXPECT_EQ(problem(text), "r.txt:2: node0.gpu0 is given twice; the first is in line 1");
  put("r.txt", "node0.gpu0\n");
  EXPECT_EQ(problem(text).rfind("s.yaml:3: the placement file names 1 GPUs, 4 ranks", 0), 0U)
      << problem(text);
}

// Where ranks are changes the time: a ring of neighbours stays in servers when they are placed one
// after the other and leaves them at every step when they are striped.
TEST_F(Wiring, PlacementMovesTraffic) {
  const auto run = [&](const std::string& placement) {
    const Result r =
        run_scenario(load(std::string(kCluster) +
                          "cluster: {nodes: 4, gpus_per_node: 4, placement: " + placement + "}\n"));
    EXPECT_TRUE(r.complete) << r.incomplete_reason;
    int64_t fabric = 0;
    for (const auto& l : r.links) fabric += l.tier == "scale-up" ? 0 : l.data_bytes;
    return fabric;
  };
  // 4 of 16 flows leave a server, over host-leaf, leaf-spine, spine-leaf, leaf-host.
  EXPECT_EQ(run("contiguous"), 4 * 4 * 65'536);
  // 12 go to the same rail of the next server, over 2 links; 4 to the next rail.
  EXPECT_EQ(run("striped"), 12 * 2 * 65'536 + 4 * 4 * 65'536);
}

TEST_F(Wiring, SwapsCrossRails) {
  const std::string base = std::string(kCluster) + "cluster: {nodes: 4, gpus_per_node: 4}\n";
  EXPECT_TRUE(check_rails(build(base)).crossings.empty());
  const Topology one = build(base + "wiring: {swap: [[node3.nic0, node3.nic1]]}\n");
  EXPECT_EQ(check_rails(one).crossings.size(), 2U);
  // The same rail of another server: no crossing. Twice: as before.
  EXPECT_TRUE(
      check_rails(build(base + "wiring: {swap: [[node3.nic0, node2.nic0]]}\n")).crossings.empty());
  const Topology twice =
      build(base + "wiring:\n  swap: [[node3.nic0, node3.nic1], [node3.nic0, node3.nic1]]\n");
  EXPECT_TRUE(check_rails(twice).crossings.empty());
  const Scenario s = load(base + "wiring: {swap: [[node3.nic0, node3.nic1]]}\n");
  bool listed = false;
  for (const auto& [key, value] : s.settings) {
    listed = listed || (key == "wiring.swap[0]" && value == "node3.nic0 with node3.nic1  (line 4)");
  }
  EXPECT_TRUE(listed);
}

TEST_F(Wiring, SwapMistakesAreNamed) {
  const std::string base = std::string(kCluster) + "cluster: {nodes: 4, gpus_per_node: 4}\n";
  const auto starts = [&](const std::string& wiring, const std::string& expected) {
    const std::string m = problem(base + "wiring:\n  swap: " + wiring + "\n");
    EXPECT_EQ(m.rfind("s.yaml:5: " + expected, 0), 0U) << m;
  };
  starts("[[node3.nic0, node4.nic1]]", "'node4.nic1' matches nothing");
  starts("[[node3.nic0, node3.nic*]]", "'node3.nic*' is not one NIC");
  starts("[[rail0, node3.nic0]]", "'rail0' is not one NIC");
  starts("[[node3.gpu0, node3.nic0]]", "'node3.gpu0' is not one NIC");
  starts("[[node3.nic0, node3.nic0]]", "cannot swap node3.nic0");
  starts("[[node3.nic0]]", "wiring.swap must be a list of pairs");
  starts("node3.nic0", "wiring.swap must be a list of pairs");
}

TEST_F(Wiring, NicOrderOfServers) {
  const std::string text =
      std::string(kCluster) +
      "cluster: {nodes: 4, gpus_per_node: 4}\nwiring: {nic_order: order.txt}\n";
  put("order.txt", "# vendor B\nnode[2-3] 1 0 2 3\nnode0 0 1 2 3\n");
  const RailReport report = check_rails(build(text));
  ASSERT_EQ(report.crossings.size(), 4U);
  EXPECT_EQ(report.crossings[0].belongs, 0);
  EXPECT_EQ(report.crossings[0].is, 1);
  put("order.txt", "node1 1 2 3 0\n");  // a cycle
  const Topology cycle = build(text);
  const RailReport around = check_rails(cycle);
  ASSERT_EQ(around.crossings.size(), 4U);
  for (const auto& c : around.crossings) EXPECT_EQ(c.is, (c.belongs + 1) % 4);
  struct Row {
    const char *file, *message;
  };
  for (const Row& r : std::vector<Row>{
           {"node1 1 2 3\n", "order.txt:1: the order of node1 must name each of its NICs, 0 to 3"},
           {"node1 1 1 2 3\n", "order.txt:1: the order of node1 must name"},
           {"node1 1 x 2 3\n", "order.txt:1: 'x' is not a NIC number"},
           {"node9 0 1 2 3\n", "order.txt:1: 'node9' matches no server"},
           {"node1 0 1 2 3\nnode* 0 1 2 3\n",
            "order.txt:2: the NIC order of node1 is given twice"}}) {
    put("order.txt", r.file);
    EXPECT_EQ(problem(text).rfind(r.message, 0), 0U) << problem(text);
  }
  fs::remove(dir_ / "order.txt");
  EXPECT_EQ(problem(text).rfind("s.yaml:4: cannot open NIC order file", 0), 0U) << problem(text);
}

}  // namespace
}  // namespace trainyard
