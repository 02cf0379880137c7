// SPDX-License-Identifier: MIT
#include "network/topology_select.h"

#include <gtest/gtest.h>

#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

using namespace test;

TEST(Select, Patterns) {
  struct Row {
    const char *pattern, *text;
    bool matches;
  };
  const std::vector<Row> rows{
      {"leaf3", "leaf3", true},
      {"leaf3", "leaf33", false},
      {"leaf*", "leaf33", true},
      {"*", "", true},
      {"node[0-3].nic*", "node3.nic7", true},
      {"node[0-3].nic*", "node4.nic7", false},
      {"node[0-3].nic*", "node30.nic7", false},
      {"node[1,4,8-10]", "node9", true},
      {"node[1,4,8-10]", "node4", true},
      {"node[1,4,8-10]", "node5", false},
      {"node[1,4,8-10]", "node", false},
      {"*.rail[0-1]*", "group3.rail1.tor0", true},
      {"a*b*c", "aXbYbZc", true},
      {"a*b*c", "aXbYbZ", false},
      {"node[x]", "node1", false},
      {"node[0-", "node[0-", true},
  };
  for (const Row& r : rows) {
    EXPECT_EQ(matches_pattern(r.pattern, r.text), r.matches) << r.pattern << " " << r.text;
  }
}

/// 4 servers x 2 GPUs, two planes, 2 groups of 2 rails.
Topology fabric() {
  TopologyRequest r;
  r.nodes = 4;
  r.gpus_per_node = r.nics_per_node = 2;
  return make_topology("rail-optimized", r,
                       {{"leaf_radix", "4"}, {"planes", "2"}, {"spine_radix", "8"}});
}

TEST(Select, NodesAndLinks) {
  const Topology t = fabric();
  const auto nodes = [&](const char* p) { return select_nodes(t, p, {}).size(); };
  const auto links = [&](const char* p) { return select_links(t, p, {}).size(); };
  EXPECT_EQ(nodes("node1.gpu0"), 1U);
  EXPECT_EQ(nodes("node1"), 3U);  // 2 GPUs and their NVSwitch
  EXPECT_EQ(nodes("node*.gpu0"), 4U);
  EXPECT_EQ(nodes("rank[2-4]"), 3U);
  EXPECT_EQ(nodes("plane1.group0"), 2U);
  EXPECT_EQ(nodes("plane0"), 4U + 1U);  // one 8-port spine takes 4 leaves x 2 uplinks
  EXPECT_EQ(links("node1.nic0"), 2U);
  EXPECT_EQ(links("node1.nic0:port1"), 1U);
  EXPECT_EQ(t.nodes()[t.links()[select_links(t, "node1.nic0:port1", {})[0]].b].name,
            "plane1.group0.rail0");
  EXPECT_EQ(links("node*.nic*"), 16U);
  EXPECT_EQ(links("plane0.group1.rail1"), 4U);
  EXPECT_EQ(links("plane0.group1.rail1:port[0-1]"), 2U);
  EXPECT_EQ(links("link(plane0.group1.rail1,plane0.spine0)"), 2U);
  EXPECT_EQ(links("link(plane0.spine0, plane0.group[0,1].rail1)"), 4U);
  for (const char* wrong : {"node9.nic0", "node1.nic0:port2", "leaf0", "link(plane0.spine0,plane1)",
                            "link(plane0.spine0)", "rank8", "pod0", ""}) {
    EXPECT_THROW((void)select_links(t, wrong, {"s.yaml", 3}), UserError) << wrong;
  }
  expect_contains(error_of<UserError>([&] {
                    (void)select_nodes(t, "nope*", {"s.yaml", 3});
                  }),
                  {"s.yaml:3", "'nope*' matches nothing", "node0.gpu0", "node0.nic0"});
}

// A pod is its switches and the GPUs that are cabled to them.
TEST(Select, Pods) {
  TopologyRequest r;
  r.nodes = 16;
  r.gpus_per_node = r.nics_per_node = 1;
  const Topology tree = make_topology("fat-tree", r, {{"k", "4"}});
  EXPECT_EQ(select_nodes(tree, "pod1", {}).size(), 4U + 2U + 2U);
  const Topology clos = make_topology("leaf-spine", r, {{"leaf_radix", "4"}, {"tiers", "3"}});
  EXPECT_EQ(select_nodes(clos, "pod[0-1]", {}).size(), 2 * (4U + 2U + 2U));
  EXPECT_EQ(select_nodes(clos, "pod3.leaf7", {}).size(), 1U);
}

}  // namespace
}  // namespace trainyard
