// SPDX-License-Identifier: MIT
#include "network/topology.h"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "network/routing.h"
#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

using namespace test;

TopologyRequest servers(uint32_t nodes, uint32_t gpus) {
  TopologyRequest r;
  r.nodes = nodes;
  r.gpus_per_node = r.nics_per_node = gpus;
  r.pos = {"scenario.yaml", 7};
  return r;
}

/// Number of cables per tier.
std::map<std::string, int> tiers(const Topology& t) {
  std::map<std::string, int> count;
  for (uint32_t l = 0; l < t.links().size(); ++l) {
    EXPECT_EQ(t.tier(2 * l), t.tier(2 * l + 1));
    ++count[t.tier(2 * l)];
  }
  return count;
}

using Tiers = std::map<std::string, int>;

// --- structured -------------------------------------------------------------------------------

// 2 servers x 4 GPUs: 8 NIC cables to one switch, 8 NVLink cables to 2 NVSwitches.
TEST(Topology, SingleSwitchCounts) {
  const Topology t = make_topology("single-switch", servers(2, 4),
                                   {{"nic.rate", "200Gbps"}, {"link.length", "10m"}});
  EXPECT_EQ(t.count(NodeKind::host), 8U);
  EXPECT_EQ(t.count(NodeKind::leaf), 1U);
  EXPECT_EQ(t.count(NodeKind::spine), 0U);
  EXPECT_EQ(t.count(NodeKind::scale_up), 2U);
  EXPECT_EQ(tiers(t), (Tiers{{"host-leaf", 8}, {"scale-up", 8}}));
  EXPECT_EQ(t.hosts().size(), 8U);
  EXPECT_EQ(t.servers(), (std::vector<uint32_t>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(t.nic_rate().bps(), 200'000'000'000);
  EXPECT_EQ(t.nodes()[5].name, "node1.gpu1");
  for (uint32_t l = 0; l < t.links().size(); ++l) {
    const bool nic = t.tier(2 * l) == "host-leaf";
    // 450 GB/s per direction = 3.6e12 bit/s; half of 500 ns per NVLink hop; 10 m x 5 ns/m.
    EXPECT_EQ(t.links()[l].rate.bps(), nic ? 200'000'000'000 : 3'600'000'000'000);
    EXPECT_EQ(t.links()[l].delay.ps(), nic ? 50'000 : 250'000);
  }
}

// Radix 8, oversubscription 1: 4 ports down, 4 up. 8 single-GPU servers fill 2 leaves. 8 uplinks
// fit one 8-port spine, 4 parallel cables per leaf. One GPU per server: no NVSwitch.
TEST(Topology, LeafSpineCounts) {
  const Topology t = make_topology("leaf-spine", servers(8, 1), {{"leaf_radix", "8"}});
  EXPECT_EQ(t.count(NodeKind::host), 8U);
  EXPECT_EQ(t.count(NodeKind::leaf), 2U);
  EXPECT_EQ(t.count(NodeKind::spine), 1U);
  EXPECT_EQ(t.count(NodeKind::scale_up), 0U);
  EXPECT_EQ(tiers(t), (Tiers{{"host-leaf", 8}, {"leaf-spine", 8}}));
  EXPECT_EQ(t.servers(), (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

// Radix 4, four full leaves: 2 down, 2 up, 8 uplinks on two 4-port spines, one cable per pair.
TEST(Topology, LeafSpineFullBipartite) {
  const Topology t = make_topology("leaf-spine", servers(8, 1), {{"leaf_radix", "4"}});
  EXPECT_EQ(t.count(NodeKind::leaf), 4U);
  EXPECT_EQ(t.count(NodeKind::spine), 2U);
  std::set<std::pair<uint32_t, uint32_t>> pairs;
  for (uint32_t l = 0; l < t.links().size(); ++l) {
    if (t.tier(2 * l) == "leaf-spine") pairs.insert({t.links()[l].a, t.links()[l].b});
  }
  EXPECT_EQ(pairs.size(), 8U);
}

// Radix 8, oversubscription 3: 6 down, 2 up (6/2 = 3). 12 hosts on 2 leaves; 4 uplinks on 1 spine.
// Faster uplinks: 6 x 400G / 3 = 800G = one 800G uplink.
TEST(Topology, OversubscriptionAndUplinkRate) {
  const Topology t =
      make_topology("leaf-spine", servers(12, 1), {{"leaf_radix", "8"}, {"oversubscription", "3"}});
  EXPECT_EQ(t.count(NodeKind::leaf), 2U);
  EXPECT_EQ(tiers(t), (Tiers{{"host-leaf", 12}, {"leaf-spine", 4}}));
  const Topology fast =
      make_topology("leaf-spine", servers(12, 1),
                    {{"leaf_radix", "8"}, {"oversubscription", "3"}, {"link.rate", "800Gbps"}});
  EXPECT_EQ(tiers(fast), (Tiers{{"host-leaf", 12}, {"leaf-spine", 2}}));
  EXPECT_EQ(fast.links().back().rate.bps(), 800'000'000'000);
  EXPECT_EQ(fast.nic_rate().bps(), 400'000'000'000);
}

// 4 servers x 8 GPUs, radix 64: 8 rails, 4 ports down and 4 up each, 32 uplinks on one spine.
TEST(Topology, RailOptimizedOneGroup) {
  const Topology t = make_topology("rail-optimized", servers(4, 8), {});
  EXPECT_EQ(t.count(NodeKind::host), 32U);
  EXPECT_EQ(t.count(NodeKind::leaf), 8U);
  EXPECT_EQ(t.count(NodeKind::spine), 1U);
  EXPECT_EQ(t.count(NodeKind::scale_up), 4U);
  EXPECT_EQ(tiers(t), (Tiers{{"host-leaf", 32}, {"leaf-spine", 32}, {"scale-up", 32}}));
  // NIC i of every server is on the leaf of rail i.
  for (uint32_t rank = 0; rank < 32; ++rank) {
    for (const uint32_t p : t.nodes()[t.hosts()[rank]].ports) {
      const auto& peer = t.nodes()[t.to(p)];
      if (peer.kind != NodeKind::leaf) continue;
      EXPECT_EQ(peer.name, "rail" + std::to_string(rank % 8));
    }
  }
}

// Radix 4: 2 servers per group. 4 servers x 2 GPUs: 2 groups x 2 rails = 4 leaves, 2 uplinks each,
// 8 uplinks on two 4-port spines.
TEST(Topology, RailOptimizedGroups) {
  const Topology t = make_topology("rail-optimized", servers(4, 2), {{"leaf_radix", "4"}});
  EXPECT_EQ(t.count(NodeKind::leaf), 4U);
  EXPECT_EQ(t.count(NodeKind::spine), 2U);
  EXPECT_EQ(tiers(t), (Tiers{{"host-leaf", 8}, {"leaf-spine", 8}, {"scale-up", 8}}));
}

// Radix 4 ends at 4 leaves (8 hosts); 10 hosts need 5 leaves x 2 uplinks and 2 spines of 4 ports.
TEST(Topology, TooManyLeavesNamesNumbers) {
  const std::string e = error_of<UserError>([] {
    make_topology("leaf-spine", servers(10, 1), {{"leaf_radix", "4"}});
  });
  expect_contains(e, {"scenario.yaml:7", "5 leaves", "2 uplinks", "radix 4"});
}

// 4 hosts x 400G need 16 uplinks of 100G; 4 + 16 > 8.
TEST(Topology, TooManyUplinksNamesNumbers) {
  const std::string e = error_of<UserError>([] {
    make_topology("leaf-spine", servers(8, 1), {{"leaf_radix", "8"}, {"link.rate", "100Gbps"}});
  });
  expect_contains(e, {"scenario.yaml:7", "4 down", "16 up", "leaf_radix is 8"});
}

TEST(Topology, NicsMustMatchGpus) {
  for (const char* kind : {"single-switch", "leaf-spine", "rail-optimized"}) {
    TopologyRequest r = servers(2, 8);
    r.nics_per_node = 4;
    expect_contains(error_of<UserError>([&] { make_topology(kind, r, {}); }),
                    {"nics_per_node is 4", "gpus_per_node is 8"});
  }
}

// --- built by hand ----------------------------------------------------------------------------

// Pains 28: no switch at all. One 1000 B packet over one cable and its ACK back.
TEST(Topology, TwoHostsAndOneCable) {
  Topology t;
  t.add_node("a", NodeKind::host);
  t.add_node("b", NodeKind::host);
  t.add_link(0, 1, Rate::gbps(100), Time::us(1));
  t.finish();
  EXPECT_EQ(t.tier(0), "host-host");
  EXPECT_EQ(t.nic_rate().bps(), 100'000'000'000);
  const Outcome o = run(t, hpcc_sizes().make(), {{0, 1, 1000, {}, 0}});
  // 1048 B = 83,840 ps; 60 B = 4,800 ps; twice 1 us.
  EXPECT_EQ(fct_ps(o.records[0]), 83'840 + 1'000'000 + 4'800 + 1'000'000);
  EXPECT_EQ(o.records[0].hops, 1U);
}

/// 2 GPUs on 2 NVSwitches of different width, nothing else.
Topology two_nvswitches() {
  Topology t;
  t.add_node("gpu0", NodeKind::host);
  t.add_node("gpu1", NodeKind::host);
  t.add_node("nvswitch0", NodeKind::scale_up);
  t.add_node("nvswitch1", NodeKind::scale_up);
  for (const uint32_t sw : {2U, 3U}) {
    for (const uint32_t gpu : {0U, 1U}) t.add_link(gpu, sw, Rate::gbps(800), Time::ns(250));
  }
  t.finish();
  return t;
}

// Pains 32: two flows that hash to different NVSwitches run as fast as one alone.
TEST(Topology, ParallelNvSwitchesAddUp) {
  const Topology t = two_nvswitches();
  EXPECT_EQ(t.servers(), (std::vector<uint32_t>{0, 0}));
  EXPECT_EQ(t.nic_rate().bps(), 0);  // no NIC
  constexpr int64_t kBytes = 4'000'000;
  int tried = 0;
  for (int seed = 1; seed <= 32; ++seed) {
    const PacketConfig config = hpcc_sizes().set("seed", std::to_string(seed)).make();
    const Outcome both = run(t, config, {{0, 1, kBytes, {}, 0}, {0, 1, kBytes, {}, 1}});
    const bool apart = link_between(both, "gpu0", both.links[0].to).data_bytes == kBytes;
    if (!apart) continue;
    ++tried;
    const Outcome alone = run(t, config, {{0, 1, kBytes, {}, 0}});
    // (Their ACKs may still meet.)
    EXPECT_EQ(both.records[0].delivered, alone.records[0].delivered);
    EXPECT_EQ(both.records[1].delivered, alone.records[0].delivered);
    // 4,000 packets at 800 Gbit/s, 10,480 ps each, and 500 ns of wires.
    EXPECT_EQ(alone.records[0].delivered.ps(), 4'000 * 10'480 + 10'480 + 500'000);
  }
  EXPECT_GE(tried, 8);  // about half of 32 seeds
}

// Pains 34: ranks are GPUs, whatever the number and the position of NVSwitches.
TEST(Topology, NvSwitchesAreNeverRanks) {
  Topology t;
  const uint32_t sw0 = t.add_node("nvswitch0", NodeKind::scale_up);
  std::vector<uint32_t> gpus;
  for (int g = 0; g < 8; ++g) {
    gpus.push_back(t.add_node("gpu" + std::to_string(g), NodeKind::host));
    if (g == 3) t.add_node("nvswitch1", NodeKind::scale_up);
  }
  for (const uint32_t g : gpus) {
    t.add_link(g, sw0, Rate::gbps(800), Time::ns(250));
    t.add_link(g, 5, Rate::gbps(800), Time::ns(250));
  }
  t.finish();
  EXPECT_EQ(t.hosts(), gpus);
  EXPECT_EQ(t.count(NodeKind::scale_up), 2U);
  EXPECT_EQ(t.servers(), std::vector<uint32_t>(8, 0));
}

// Pains 29: a DGX-1-like graph from an edge list: two quads, all-to-all inside (2 x 6 cables),
// 4 cables between them, and a switch that all 8 GPUs share.
TEST(Topology, EightNodeEdgeList) {
  std::string text = "9 1 24\n8\n";
  for (const int base : {0, 4}) {
    for (int i = 0; i < 4; ++i) {
      for (int j = i + 1; j < 4; ++j) {
        text += std::to_string(base + i) + " " + std::to_string(base + j) + " 200Gbps 100ns 0\n";
      }
    }
  }
  for (int i = 0; i < 4; ++i) {
    text += std::to_string(i) + " " + std::to_string(i + 4) + " 200Gbps 100ns 0\n";
  }
  for (int i = 0; i < 8; ++i) text += std::to_string(i) + " 8 100Gbps 1us 0\n";
  const Topology t = read_topology(text);
  EXPECT_EQ(tiers(t), (Tiers{{"host-host", 16}, {"host-leaf", 8}}));
  std::vector<Flow> flows;
  for (uint32_t a = 0; a < 8; ++a) {
    for (uint32_t b = 0; b < 8; ++b) {
      if (a != b) flows.push_back({a, b, 50'000, {}, 0});
    }
  }
  const Outcome o = run(t, hpcc_sizes().make(), flows);
  for (const auto& r : o.records) {
    const bool direct = r.src / 4 == r.dst / 4 || r.src % 4 == r.dst % 4;
    EXPECT_EQ(r.hops, direct ? 1U : 2U) << r.src << " " << r.dst;
  }
}

// Pains 30: 4 hosts at 100G and 6 at 200G, joined by one 400G trunk.
TEST(Topology, TwoIslandsAndATrunk) {
  std::string text = "node,100,switch\nnode,200,switch\n";
  for (int h = 0; h < 10; ++h) text += "node," + std::to_string(h) + ",host\n";
  for (int h = 0; h < 10; ++h) {
    text += "link," + std::to_string(h) + (h < 4 ? ",100,100,500\n" : ",200,200,500\n");
  }
  text += "link,100,200,400,1000\n";
  const Topology t = read_topology(text);
  EXPECT_EQ(t.hosts().size(), 10U);
  EXPECT_EQ(tiers(t), (Tiers{{"host-leaf", 10}, {"leaf-leaf", 1}}));
  EXPECT_EQ(t.nic_rate().bps(), 100'000'000'000);  // the slowest
  const Outcome o =
      run(t, hpcc_sizes().make(), {{0, 3, 1000, {}, 0}, {4, 9, 1000, {}, 0}, {1, 5, 1000, {}, 0}});
  EXPECT_EQ(o.records[0].hops, 2U);
  EXPECT_EQ(o.records[1].hops, 2U);
  EXPECT_EQ(o.records[2].hops, 3U);
  // 1048 B at 100, 400 and 200 Gbit/s; 60 B back at 200, 400 and 100; 2 us each way.
  EXPECT_EQ(fct_ps(o.records[2]), 83'840 + 20'960 + 41'920 + 2'400 + 1'200 + 4'800 + 4'000'000);
}

TEST(Topology, UnreachableHostIsNamed) {
  const auto build = [](bool chain) {
    Topology t;
    t.add_node("left", NodeKind::host);
    t.add_node("middle", NodeKind::host);
    t.add_node("right", NodeKind::host);
    t.add_link(0, 1, Rate::gbps(100), Time::us(1));
    if (chain) t.add_link(1, 2, Rate::gbps(100), Time::us(1));
    t.finish();
  };
  for (const bool chain : {false, true}) {  // hosts do not forward, so a chain is no path
    expect_contains(error_of<UserError>([&] { build(chain); }), {"left", "right", "no path"});
  }
}

TEST(Topology, NoHostIsAnError) {
  Topology t;
  t.add_node("leaf0", NodeKind::leaf);
  expect_contains(error_of<UserError>([&] { t.finish(); }), {"no host"});
}

// --- files ------------------------------------------------------------------------------------

constexpr const char* kGood =
    "4 1 3\n"
    "3\n"
    "0 3 100Gbps 0.001ms 0\n"
    "1 3 100Gbps 1us 0.01\n"
    "2 3 25Gbps 1000ns 0\n";

TEST(TopologyFile, SpaceFormat) {
  const Topology t = read_topology(kGood);
  EXPECT_EQ(t.hosts(), (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(t.nodes()[3].name, "leaf0");
  ASSERT_EQ(t.links().size(), 3U);
  for (const auto& l : t.links()) EXPECT_EQ(l.delay.ps(), 1'000'000);
  EXPECT_EQ(t.links()[1].loss_rate, 0.01);
  EXPECT_EQ(t.links()[2].rate.bps(), 25'000'000'000);
}

TEST(TopologyFile, SimaiFormat) {
  const Topology t = read_topology(
      "7 2 2 1 8 H100\n4 5 6\n"
      "0 4 2880Gbps 0.000025ms 0\n1 4 2880Gbps 0.000025ms 0\n"
      "2 5 2880Gbps 0.000025ms 0\n3 5 2880Gbps 0.000025ms 0\n"
      "0 6 400Gbps 0.0005ms 0\n1 6 400Gbps 0.0005ms 0\n"
      "2 6 400Gbps 0.0005ms 0\n3 6 400Gbps 0.0005ms 0\n");
  EXPECT_EQ(t.count(NodeKind::host), 4U);
  EXPECT_EQ(t.count(NodeKind::scale_up), 2U);
  EXPECT_EQ(t.count(NodeKind::leaf), 1U);
  EXPECT_EQ(t.nodes()[3].name, "node1.gpu1");
  EXPECT_EQ(t.servers(), (std::vector<uint32_t>{0, 0, 1, 1}));
  EXPECT_EQ(t.links()[0].delay.ps(), 25'000);
  EXPECT_EQ(t.nic_rate().bps(), 400'000'000'000);
}

TEST(TopologyFile, WindowsLineEnds) {
  std::string crlf;
  for (const char* p = kGood; *p != 0; ++p) {
    if (*p == '\n') crlf += '\r';
    crlf += *p;
  }
  const Topology t = read_topology(crlf);
  EXPECT_EQ(t.links().size(), 3U);
  EXPECT_EQ(t.links()[1].loss_rate, 0.01);
  const Topology comma =
      read_topology("node,0,host\r\nnode,1,host\r\nlink,0,1,100,1000\r\n\r\n# end\r\n");
  EXPECT_EQ(comma.links()[0].delay.ps(), 1'000'000);
}

struct BadFile {
  const char* text;
  int line;
  std::vector<std::string> says;
};

TEST(TopologyFile, ErrorsHaveFileAndLine) {
  const std::vector<BadFile> cases{
      // Header.
      {"4 1\n3\n", 1, {"first line has 2 fields", "nodes switches links"}},
      {"4 1 3 5 6\n3\n", 1, {"first line has 5 fields"}},
      {"4 one 3\n3\n", 1, {"number of switches", "'one'"}},
      {"4 5 3\n", 1, {"4 nodes", "5 switches"}},
      {"-4 1 3\n", 1, {"number of nodes", "'-4'"}},
      // Ids.
      {"4 1 3\n4\n", 2, {"switch id 4 is out of range", "4 nodes"}},
      {"4 1 1\n3\n0 9 100Gbps 1us 0\n", 3, {"link end 9 is out of range", "4 nodes"}},
      {"4 1 1\n3\n\n0 x 100Gbps 1us 0\n", 4, {"link end", "'x'"}},
      {"5 2 1\n3 3\n0 3 100Gbps 1us 0\n", 2, {"switch id 3 is listed twice"}},
      {"5 2 1 1 1 H100\n3 3\n0 3 100Gbps 1us 0\n", 2, {"switch id 3 is listed twice"}},
      // Link rows.
      {"4 1 1\n3\n2 2 100Gbps 1us 0\n", 3, {"link from node 2 to itself"}},
      {"4 1 2\n3\n0 3 100Gbps 1us 0\n1 3 fast 1us 0\n", 4, {"link rate", "fast"}},
      {"4 1 1\n3\n0 3 0Gbps 1us 0\n", 3, {"rate", "above 0"}},
      {"4 1 1\n3\n0 3 100 1us 0\n", 3, {"link rate", "100"}},
      {"4 1 1\n3\n0 3 100Gbps soon 0\n", 3, {"link delay", "soon"}},
      {"4 1 1\n3\n0 3 100Gbps 1us maybe\n", 3, {"error rate", "maybe"}},
      {"4 1 1\n3\n0 3 100Gbps 1us 1.5\n", 3, {"error rate", "1.5"}},
      // The last word of a line, with more lines to come.
      {"4 1 2\n3\n0 3 100Gbps 1us x\n1 3 100Gbps 1us 0\n", 3, {"error rate", "x"}},
      {"4 1 1\n9\n0 3 100Gbps 1us 0\n", 2, {"switch id 9 is out of range"}},
      // Amounts.
      {"4 1 3\n3\n0 3 100Gbps 1us 0\n1 3 100Gbps 1us 0\n", 4, {"declares 3 links", "has 2"}},
      {"4 1 1\n3\n0 3 100Gbps 1us\n", 3, {"ends", "error rate"}},
      {"4 1 1\n3\n0 3 100Gbps 1us 0\n1 3 100Gbps 1us 0\n", 4, {"text after the last of 1 links"}},
      // Comma format.
      {"node,0,host\nnode,1,router\n", 2, {"router", "host, switch, nvswitch"}},
      {"node,0,host\nnode,0,host\n", 2, {"node 0", "twice"}},
      {"node,0,host\nlink,0,1,100,1000\n", 2, {"node 1 is not declared"}},
      {"node,0,host\nnode,1,host\nlink,1,1,100,1000\n", 3, {"link from node 1 to itself"}},
      {"node,0,host\nnode,1,host\nlink,0,1,100Gbps,1000\n", 3, {"link rate"}},
      {"node,0,host\nnode,1,host\nlink,0,1,0,1000\n", 3, {"rate", "above 0"}},
      {"node,0,host\nnode,1,host\nlink,0,1,100,1us\n", 3, {"link delay"}},
      {"node,0,host\nnode,1,host\nlink,0,1,100,1000,2\n", 3, {"error rate", "2"}},
      {"node,0,host\nnode,1,host\n\nlink,0,1\n", 4, {"link,0,1", "expected"}},
      {"node,zero,host\nlink,0,1,100,1000\n", 1, {"node id", "zero"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    const TempFile file(c.text);
    const std::string e = error_of<UserError>([&] { load_topology(file.path()); });
    expect_contains(e, {file.path() + ":" + std::to_string(c.line) + ":"});
    expect_contains(e, c.says);
  }
}

// What is wrong with the graph as a whole names the file.
TEST(TopologyFile, UnreachableHostNamesTheFile) {
  for (const char* text : {"4 1 2\n3\n0 3 100Gbps 1us 0\n1 3 100Gbps 1us 0\n",
                           "node,0,host\nnode,1,host\nnode,2,host\nlink,0,1,100,1000\n"}) {
    const TempFile file(text);
    expect_contains(error_of<UserError>([&] { load_topology(file.path()); }),
                    {file.path(), "host0", "host2"});
  }
}

TEST(TopologyFile, EmptyMissingAndNoPath) {
  const TempFile empty("\n \n");
  expect_contains(error_of<UserError>([&] { load_topology(empty.path()); }),
                  {empty.path(), "empty"});
  expect_contains(error_of<UserError>([&] { load_topology(empty.path() + ".none"); }),
                  {"cannot open", empty.path() + ".none"});
  expect_contains(error_of<UserError>([&] { load_topology(::testing::TempDir()); }),
                  {"cannot open"});
  expect_contains(error_of<UserError>([&] { make_topology("file", {}, {}); }), {"path"});
}

TEST(TopologyFile, RelativeToTheScenario) {
  const TempFile file(kGood);
  const std::filesystem::path path(file.path());
  TopologyRequest r;
  r.base_dir = path.parent_path().string();
  EXPECT_EQ(make_topology("file", r, {{"path", path.filename().string()}}).links().size(), 3U);
}

// Ids with gaps, in the same order: the same names, indices and links, and the same run.
TEST(TopologyFile, OrderPreservingRenumbering) {
  const auto text = [](const std::vector<int>& id) {
    const auto n = [&](size_t i) { return std::to_string(id[i]); };
    std::string out;
    for (size_t h = 0; h < 6; ++h) out += "node," + n(h) + ",host\n";
    for (size_t s = 6; s < 10; ++s) out += "node," + n(s) + ",switch\n";
    for (size_t h = 0; h < 6; ++h) out += "link," + n(h) + "," + n(6 + h / 3) + ",100,1000\n";
    for (size_t l = 6; l < 8; ++l) {
      for (size_t s = 8; s < 10; ++s) out += "link," + n(l) + "," + n(s) + ",100,1000\n";
    }
    return out;
  };
  const Topology a = read_topology(text({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const Topology b = read_topology(text({3, 7, 8, 100, 5000, 5001, 5009, 70000, 70001, 900000}));
  ASSERT_EQ(a.nodes().size(), b.nodes().size());
  for (size_t i = 0; i < a.nodes().size(); ++i) {
    EXPECT_EQ(a.nodes()[i].name, b.nodes()[i].name);
    EXPECT_EQ(a.nodes()[i].kind, b.nodes()[i].kind);
    EXPECT_EQ(a.nodes()[i].ports, b.nodes()[i].ports);
  }
  std::vector<Flow> flows;
  for (uint32_t src = 0; src < 6; ++src) {
    for (uint32_t dst = 0; dst < 6; ++dst) {
      if (src != dst) flows.push_back({src, dst, 400'000, {}, 0});
    }
  }
  for (const char* hash : {"mix64", "murmur3-tuple"}) {
    const PacketConfig config = Scenario({{"congestion", "dcqcn"},
                                          {"ecn.kmin", "20KB"},
                                          {"ecn.kmax", "80KB"},
                                          {"ecmp.hash", hash}})
                                    .make();
    const Outcome x = run(a, config, flows);
    const Outcome y = run(b, config, flows);
    EXPECT_GT(x.totals.ecn_marks, 0U);
    expect_same(x, y);
  }
}

// --- public topologies ------------------------------------------------------------------------

TEST(TopologyFile, PublicSimaiTopologies) {
  const std::string summary = shared_path("traces/topologies_summary.csv");
  if (summary.empty()) {
    GTEST_SKIP() << "shared/traces not found: unproven that SimAI's public topologies load with "
                    "their counts";
  }
  const std::string folder = std::filesystem::path(summary).parent_path().string();
  int loaded = 0;
  for (const auto& row : read_csv(summary)) {
    const std::string& file = row.at("file");
    if (file.rfind("simai/topo/", 0) != 0) continue;
    SCOPED_TRACE(file);
    const Topology t = load_topology(folder + "/" + file);
    ++loaded;
    const auto number = [&](const char* column) {
      return static_cast<uint32_t>(std::stoul(row.at(column)));
    };
    EXPECT_EQ(t.nodes().size(), number("nodes"));
    EXPECT_EQ(t.hosts().size(), number("hosts"));
    EXPECT_EQ(t.count(NodeKind::scale_up), number("nvswitches"));
    EXPECT_EQ(t.count(NodeKind::leaf) + t.count(NodeKind::spine), number("switches"));
    EXPECT_EQ(t.links().size(), number("links_found"));
    size_t degree = 0;
    for (const uint32_t h : t.hosts()) degree = std::max(degree, t.nodes()[h].ports.size());
    EXPECT_EQ(degree, number("host_degree"));
    // Ranks of one server sit behind one NVSwitch.
    for (uint32_t rank = 0; rank < t.hosts().size(); ++rank) {
      EXPECT_EQ(t.servers()[rank], rank / number("gpus_per_server"));
    }
    // "128x 200Gbps 0.0005ms; ..."
    std::map<std::string, int> kinds;
    for (const auto& l : t.links()) {
      ++kinds[print_rate(l.rate) + " " + std::to_string(l.delay.ps())];
    }
    std::map<std::string, int> expected;
    std::istringstream in(row.at("link_kinds"));
    std::string kind;
    while (std::getline(in, kind, ';')) {
      std::istringstream words(kind);
      std::string count, rate, delay;
      words >> count >> rate >> delay;
      expected[print_rate(parse_rate(rate)) + " " + std::to_string(parse_time(delay).ps())] =
          std::stoi(count);
    }
    EXPECT_EQ(kinds, expected);
  }
  EXPECT_EQ(loaded, 8);
}

}  // namespace
}  // namespace trainyard

namespace trainyard {
namespace {

Topology structured(const char* kind, uint32_t nodes, bool nodes_auto,
                    const std::vector<std::pair<std::string, std::string>>& values) {
  const ModelDoc& doc = Registry::instance().get("topology", kind);
  Params params(doc.params);
  params.set("scale_up.kind", "none", {});
  for (const auto& [name, value] : values) params.set(name, value, {});
  TopologyRequest request;
  request.nodes = nodes;
  request.gpus_per_node = request.nics_per_node = 1;
  request.nodes_auto = nodes_auto;
  return Registry::instance().factory<TopologyFactory>("topology", kind)(request, params);
}

// k = 4: 16 hosts, 8 edge, 8 aggregation, 4 core; 16 + 16 + 16 links (Al-Fares et al.).
TEST(FatTree, CountsOfFour) {
  const Topology t = structured("fat-tree", 1, true, {{"k", "4"}});
  EXPECT_EQ(16U, t.hosts().size());
  EXPECT_EQ(8U, t.count(NodeKind::leaf));
  EXPECT_EQ(12U, t.count(NodeKind::spine));
  EXPECT_EQ(48U, t.links().size());
}

TEST(FatTree, SixHopsBetweenPodsTwoUnderOneEdge) {
  const Topology t = structured("fat-tree", 1, true, {{"k", "8"}});
  ASSERT_EQ(128U, t.hosts().size());
  Routing routing(t, {});
  const auto hops = [&](uint32_t a, uint32_t b) {
    std::vector<uint32_t> path;
    routing.path({a, b, 1, 2}, path);
    return path.size();
  };
  EXPECT_EQ(2U, hops(0, 3));
  EXPECT_EQ(4U, hops(0, 4));
  EXPECT_EQ(6U, hops(0, 16));
}

TEST(FatTree, OddOrTooSmallIsRefused) {
  EXPECT_THROW(structured("fat-tree", 1, true, {{"k", "5"}}), UserError);
  EXPECT_THROW(structured("fat-tree", 17, false, {{"k", "4"}}), UserError);
}

// 2 pods x (2 leaves x 4 hosts, 2 spines), 2 planes x 3 cores: links 16 + 2*2*2 + 2*2*3.
TEST(Clos3, Counts) {
  const Topology t = structured("clos3", 1, true,
                                {{"pods", "2"},
                                 {"leaves_per_pod", "2"},
                                 {"hosts_per_leaf", "4"},
                                 {"spines_per_pod", "2"},
                                 {"cores_per_spine", "3"}});
  EXPECT_EQ(16U, t.hosts().size());
  EXPECT_EQ(4U, t.count(NodeKind::leaf));
  EXPECT_EQ(4U + 6U, t.count(NodeKind::spine));
  EXPECT_EQ(16U + 8U + 12U, t.links().size());
}

}  // namespace
}  // namespace trainyard
