// SPDX-License-Identifier: MIT
// Servers whose GPUs meet over PCIe: which way a pair takes, and what shares it.
#include "network/pcie_server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "network/routing.h"
#include "network/topology_summary.h"
#include "tools/scenario/run.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class PcieServer : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(dir_); }
  void TearDown() override { fs::remove_all(dir_); }

  Scenario load(const std::string& text) {
    std::ofstream(dir_ / "s.yaml") << text;
    return load_scenario((dir_ / "s.yaml").string());
  }
  /// Two servers of eight GPUs, two per switch; `scale_up` and `more` are added.
  Scenario eight(const std::string& scale_up, const std::string& more = "") {
    return load(
        "cluster: {nodes: 2, gpus_per_node: 8}\n"
        "fabric: {topology: {kind: rail-optimized, scale_up: {kind: pcie" +
        scale_up + "}}}\ntraffic: [{pattern: permutation, shift: 1, size: 64KiB}]\n" + more);
  }
  Topology build(const std::string& scale_up, const std::string& more = "") {
    return build_topology(eight(scale_up, more), 0);
  }
  template <class Body>
  static std::string problem(Body body) {
    try {
      body();
    } catch (const UserError& e) {
      return e.what();
    }
    return {};
  }
  fs::path dir_ = fs::temp_directory_path() / ("trainyard_pcie_" + std::to_string(getpid()));
};

/// Ways from GPU 0 to GPU 1 (its switch), 2 (its socket) and 4 (the other socket).
std::string ways(const Topology& t) {
  std::string out;
  for (const uint32_t peer : {1U, 2U, 4U}) {
    const ServerPath way = server_path(t, t.hosts()[0], t.hosts()[peer]);
    EXPECT_EQ(way, server_path(t, t.hosts()[peer], t.hosts()[0]));
    out += (out.empty() ? "" : " ") + std::string(server_path_name(way));
  }
  return out;
}

/// Nodes between two ranks, without the name of their server.
std::string between(const Topology& t, Routing& routing, uint32_t a, uint32_t b) {
  std::vector<uint32_t> path;
  routing.path({t.hosts()[a], t.hosts()[b], kSourcePortBase, kDestinationPort}, path);
  std::string out;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    const std::string& name = t.nodes()[t.to(path[i])].name;
    out +=
        (i == 0 ? "" : " ") + (name.rfind("node", 0) == 0 ? name.substr(name.find('.') + 1) : name);
  }
  return out;
}

std::string between(const Topology& t, uint32_t a, uint32_t b) {
  Routing routing(t, {});
  return between(t, routing, a, b);
}

TEST_F(PcieServer, PairsGoAsFarAsPeersMayAndElseThroughMemoryOrNic) {
  EXPECT_EQ(ways(build("")), "PIX SHM SHM");  // NCCL's default
  EXPECT_EQ(ways(build(", p2p_level: NVL")), "SHM SHM SHM");
  EXPECT_EQ(ways(build(", p2p_level: PIX")), "PIX SHM SHM");
  EXPECT_EQ(ways(build(", p2p_level: PHB")), "PIX PHB SHM");
  EXPECT_EQ(ways(build(", p2p_level: SYS")), "PIX PHB SYS");
  EXPECT_EQ(ways(build(", p2p_level: NVL, shared_memory: false")), "NET NET NET");
  EXPECT_EQ(ways(build(", p2p_level: PHB, shared_memory: false")), "PIX PHB NET");
  // On the socket itself: its host bridge is between all.
  EXPECT_EQ(ways(build(", gpus_per_switch: 1, p2p_level: PXB")), "SHM SHM SHM");
  EXPECT_EQ(ways(build(", gpus_per_switch: 1, p2p_level: PHB")), "PHB PHB SHM");
}

TEST_F(PcieServer, PathsAreTheLinksOfTheWay) {
  const Topology peers = build(", p2p_level: SYS");
  EXPECT_EQ(between(peers, 0, 1), "pcie0");
  EXPECT_EQ(between(peers, 0, 2), "pcie0 socket0 pcie1");
  EXPECT_EQ(between(peers, 0, 4), "pcie0 socket0 socket1 pcie2");
  EXPECT_EQ(between(peers, 9, 15), "pcie0 socket0 socket1 pcie3");

  // Memory is the receiver's; the link above a switch is passed both ways by pairs of it.
  const Topology memory = build(", p2p_level: NVL");
  EXPECT_EQ(between(memory, 0, 1), "pcie0 socket0 memory0 socket0 pcie0");
  EXPECT_EQ(between(memory, 0, 4), "pcie0 socket0 socket1 memory1 socket1 pcie2");
  EXPECT_EQ(between(memory, 4, 0), "pcie2 socket1 socket0 memory0 socket0 pcie0");
  Routing routing(memory, {});
  EXPECT_EQ(routing.count_paths(memory.hosts()[0], memory.hosts()[4]), 1U);

  const Topology nic = build(", shared_memory: false");
  EXPECT_EQ(between(nic, 0, 1), "pcie0");
  EXPECT_EQ(between(nic, 0, 2), "rail0 spine0 rail2");
  // Other servers are reached by NIC whatever the servers are.
  EXPECT_EQ(between(memory, 0, 8), "rail0");
  EXPECT_EQ(between(memory, 0, 9), "rail0 spine0 rail1");
}

TEST_F(PcieServer, AWayWithABrokenPartIsNone) {
  const Topology t = build("");
  Routing routing(t, {});
  const std::string whole = between(t, routing, 0, 4);
  EXPECT_EQ(whole, "pcie0 socket0 socket1 memory1 socket1 pcie2");
  uint32_t broken = 0;
  for (uint32_t l = 0; l < t.links().size(); ++l) {
    const bool first = t.nodes()[t.links()[l].a].name == "node0.pcie2";
    if (first && t.nodes()[t.links()[l].b].name == "node0.socket1") broken = l;
  }
  ASSERT_NE(broken, 0U);
  routing.set_link_state(broken, false);
  // The way into memory is whole, the way out of it is not.
  EXPECT_EQ(between(t, routing, 0, 4), "");
  EXPECT_EQ(between(t, routing, 0, 2), "pcie0 socket0 memory0 socket0 pcie1");
  routing.set_link_state(broken, true);
  EXPECT_EQ(between(t, routing, 0, 4), whole);
}

TEST_F(PcieServer, IsOneDomainPerServer) {
  const Topology t = build("");
  for (uint32_t r = 0; r < 16; ++r) EXPECT_EQ(t.servers()[r], r / 8) << r;
  EXPECT_EQ(summarise(t).scale_up_domains, 2U);
  EXPECT_EQ(summarise(t).most_in_domain, 8U);
  const std::string text = fabric_text(t);
  EXPECT_NE(text.find("node0.gpu1     PIX   . SHM SHM SHM SHM SHM SHM"), std::string::npos) << text;
  EXPECT_EQ(text.find("node1.gpu0     "), std::string::npos) << text;
}

TEST_F(PcieServer, RatesOfLinks) {
  // 16 lanes of 16 GT/s, 128b/130b, 256 of 280 bytes.
  EXPECT_NEAR(static_cast<double>(pcie_rate(4, 16).bps()), 16e9 * 16 * 128 / 130 * 256 / 280, 1);
  EXPECT_EQ(pcie_rate(5, 8).bps(), pcie_rate(4, 16).bps());
  EXPECT_NEAR(static_cast<double>(2 * pcie_rate(3, 16).bps()),
              static_cast<double>(pcie_rate(4, 16).bps()), 1);
  const Topology t = build(", pcie_generation: 5, socket_rate: 10GBps, memory_rate: 50GBps");
  size_t lanes = 0, sockets = 0, memories = 0;
  for (const TopologyLink& l : t.links()) {
    lanes += l.rate == pcie_rate(5, 16) ? 1 : 0;
    sockets += l.rate == Rate::gbps(80) ? 1 : 0;
    memories += l.rate == Rate::gbps(400) && t.kind(l.a) == NodeKind::scale_up ? 1 : 0;
  }
  EXPECT_EQ(lanes, 2U * (8 + 4));
  EXPECT_EQ(sockets, 2U);
  EXPECT_EQ(memories, 4U);
}

/// Time of a round in which every GPU of a server of four sends 8 MiB to the one after the next.
Time round_of(const Scenario& s) {
  return run_scenario(s).end;
}

TEST_F(PcieServer, TheLinkAboveASwitchIsShared) {
  const auto scenario = [&](const std::string& scale_up, const std::string& engine) {
    return load(
        "cluster: {nodes: 1, gpus_per_node: 4}\n"
        "fabric: {topology: {kind: single-switch, scale_up: {kind: pcie, sockets: 1, memory_rate: "
        "1000GBps, p2p_level: PHB, " +
        scale_up + "}}, transport: {congestion: {kind: none}}}\nsimulation: {engine: " + engine +
        "}\ntraffic: [{pattern: permutation, shift: 2, size: 8MiB}]\n");
  };
  for (const char* engine : {"packet", "flow"}) {
    const auto alone = static_cast<double>(round_of(scenario("gpus_per_switch: 1", engine)).ps());
    const auto both = static_cast<double>(round_of(scenario("gpus_per_switch: 2", engine)).ps());
    EXPECT_NEAR(both / alone, 2, 0.05) << engine;
  }
}

TEST_F(PcieServer, NamesOfNccl) {
  const auto env = [](const std::string& names) {
    return "collectives: {nccl: {env: {" + names + "}}}\n";
  };
  EXPECT_EQ(ways(build("", env("NCCL_P2P_LEVEL: SYS"))), "PIX PHB SYS");
  EXPECT_EQ(ways(build("", env("NCCL_P2P_LEVEL: LOC"))), "SHM SHM SHM");
  EXPECT_EQ(ways(build("", env("NCCL_P2P_DISABLE: 1, NCCL_SHM_DISABLE: 1"))), "NET NET NET");
  EXPECT_EQ(ways(build("", env("NCCL_P2P_DISABLE: 0, NCCL_SHM_DISABLE: 0"))), "PIX SHM SHM");
  EXPECT_EQ(ways(build(", p2p_level: PHB", env("NCCL_P2P_LEVEL: PHB"))), "PIX PHB SHM");

  const Scenario s = eight("", env("NCCL_P2P_LEVEL: SYS"));
  const auto listed = [](const Setting& r) {
    return r.key == "fabric.topology.scale_up.p2p_level";
  };
  EXPECT_EQ(std::count_if(s.resolved.begin(), s.resolved.end(), listed), 1);
  EXPECT_EQ(std::find_if(s.resolved.begin(), s.resolved.end(), listed)->value, "SYS");

  const std::string said =
      problem([&] { (void)eight(", p2p_level: PHB", env("NCCL_P2P_LEVEL: SYS")); });
  EXPECT_NE(said.find("NCCL_P2P_LEVEL asks for scale_up.p2p_level: SYS"), std::string::npos)
      << said;
  const std::string twice =
      problem([&] { (void)eight("", env("NCCL_P2P_DISABLE: 1, NCCL_P2P_LEVEL: SYS")); });
  EXPECT_NE(twice.find("NCCL_P2P_DISABLE says NVL"), std::string::npos) << twice;
}

TEST_F(PcieServer, KeysOfOtherServersAreRefused) {
  const auto of = [&](const std::string& topology) {
    return problem([&] {
      (void)build_topology(
          load("cluster: {nodes: 1, gpus_per_node: 8}\nfabric: {topology: {kind: single-switch, "
               "scale_up: {" +
               topology + "}}}\ntraffic: [{pattern: permutation, shift: 1, size: 1KiB}]\n"),
          0);
    });
  };
  EXPECT_NE(of("kind: pcie, rate: 450GBps").find("scale_up.rate"), std::string::npos);
  EXPECT_NE(of("kind: pcie, domain: 16").find("scale_up.domain"), std::string::npos);
  EXPECT_NE(of("p2p_level: SYS").find("kind: pcie"), std::string::npos);
  EXPECT_NE(of("kind: pcie, sockets: 3").find("3 sockets"), std::string::npos);
  EXPECT_EQ(of("kind: pcie, sockets: 4"), "");
  const std::string protocol =
      problem([&] { (void)eight("", "collectives: {protocol: tuned}\n"); });
  EXPECT_NE(protocol.find("PCIe"), std::string::npos) << protocol;
}

}  // namespace
}  // namespace trainyard
