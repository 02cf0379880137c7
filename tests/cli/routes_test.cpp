// SPDX-License-Identifier: MIT
// Pinned and source routes, shared-risk groups and periodic drops, through the command.
#include "tests/cli/cli_test_util.h"

namespace trainyard::cli_test {
namespace {

/// Two leaves with four cables each to one spine, eight GPUs.
std::string clos(const std::string& fabric, const std::string& transport = {}) {
  return "cluster: {nodes: 4, gpus_per_node: 2}\n"
         "fabric:\n"
         "  topology: {kind: leaf-spine, leaf_radix: 8, nic: {rate: 100Gbps},\n"
         "             scale_up: {kind: none}}\n"
         "  transport: {retransmit_timeout: 500us, nack_interval: 10us" +
         (transport.empty() ? ", load_balancing: {convergence: 100us}" : ", " + transport) + "}\n" +
         fabric + "traffic: [{pattern: permutation, shift: 4, size: 1MB}]\n";
}

class RoutesCli : public CliTest {
 protected:
  Outcome run(const std::string& name, const std::string& text,
              const std::vector<std::string>& more = {}) {
    put(name + ".yaml", text);
    std::vector<std::string> words = {"run", name + ".yaml", "-q", "--out", name};
    words.insert(words.end(), more.begin(), more.end());
    return cli(words);
  }
};

// Four routes of a file give every cable one flow; the engines agree, and the plan does.
TEST_F(RoutesCli, AFileOfRoutes) {
  std::string csv = "from,to,qp,via\n";
  for (int i = 0; i < 4; ++i) {
    csv += "rank" + std::to_string(i) + ",rank" + std::to_string(i + 4) + ",,leaf0:port" +
           std::to_string(4 + i) + " leaf1:port" + std::to_string(7 - i) + "\n";
  }
  put("routes.csv", csv);
  const std::string text =
      clos("", "load_balancing: {kind: pinned, routes: routes.csv, rest: least-used}");
  for (const char* engine : {"packet", "flow", "analytic"}) {
    const Outcome o = run(engine, text, {"--set", std::string("simulation.engine=") + engine});
    ASSERT_EQ(o.code, 0) << o.err;
    int used = 0;
    for (const auto& row : read_csv(dir_ / engine / "links.csv")) {
      if (row.at("tier") != "leaf-spine") continue;
      const std::string payload = row.at("payload_bytes");
      EXPECT_TRUE(payload == "0" || payload == "1000000") << payload;
      used += payload == "1000000" ? 1 : 0;
    }
    EXPECT_EQ(used, 16) << engine;
  }
  ASSERT_EQ(cli({"plan", "packet.yaml", "--json", "plan.json"}).code, 0);
}

TEST_F(RoutesCli, RoutesThatCannotBe) {
  const auto lb = [&](const std::string& more) {
    return clos("", "load_balancing: {kind: pinned" + more + "}");
  };
  const Outcome none = run("a", lb(""));
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_NE(slurp(dir_ / "a" / "result.json").find("pinned without routes"), std::string::npos);
  expect_error(run("b", lb(", routes: none.csv")), 2, {"b.yaml:5", "cannot open the routes file"});
  put("r.csv", "from,to,qp,via\nrank0,rank4,,leaf0:port4\nrank1,rank5,,leaf7\n");
  expect_error(run("c", lb(", routes: r.csv")), 2, {"r.csv:3: ", "'leaf7' matches nothing"});
  expect_error(run("d", lb(", routes: [{from: rank0, to: rank4, via: spine0, path: 1}]")), 2,
               {"d.yaml:5", "either 'via' or 'path'"});
  expect_error(run("e", lb(", routes: [{from: rank0, via: spine0}]")), 2,
               {"needs 'from' and 'to'"});
  expect_error(run("f", lb(", routes: [{from: rank0, to: rank4, path: 16}]")), 2,
               {"path 16 is asked for, there are 16"});
  expect_error(run("g", lb(", routes: [{from: rank0, to: rank4, over: spine0}]")), 2,
               {"unknown key 'over'"});
  expect_error(run("h", clos("", "load_balancing: {kind: ecmp, routes: r.csv}")), 2,
               {"unknown key 'routes'"});
}

// One fault on a group is the faults on its members. Brackets keep the comma of link(a,b).
TEST_F(RoutesCli, AGroupFailsAsOne) {
  const std::string fault = ", at: 20us, kind: link-down, for: 500us}\n";
  const Outcome both = run("group", clos("  risk_groups: {optic: [leaf0:port4, leaf1:port5], all: "
                                         "[link(leaf0,spine0)]}\n") +
                                        "faults:\n  - {where: 'group:optic'" + fault);
  ASSERT_EQ(both.code, 0) << both.err;
  const Outcome apart = run("apart", clos("") + "faults:\n  - {where: 'leaf0:port4'" + fault +
                                         "  - {where: 'leaf1:port5'" + fault);
  ASSERT_EQ(apart.code, 0) << apart.err;
  EXPECT_EQ(fingerprint("group"), fingerprint("apart"));
  EXPECT_GT(result("group")["totals"]["reroutes"], 0);
  EXPECT_EQ(result("group")["faults"].size(), 1U);
  EXPECT_EQ(result("group")["faults"][0]["component"], "group:optic: 2 cables");
}

TEST_F(RoutesCli, GroupsThatCannotBe) {
  const auto with = [&](const std::string& groups, const std::string& fault) {
    return clos("  risk_groups: " + groups + "\n") + "faults:\n  - {" + fault + "}\n";
  };
  expect_error(run("a", with("{g: [leaf0:port4, leaf9:port1]}", "kind: link-down, where: leaf0")),
               2, {"a.yaml:6", "'leaf9:port1' matches nothing"});
  expect_error(run("b", with("{g: [leaf0:port4]}", "kind: link-down, where: 'group:h'")), 2,
               {"b.yaml:9", "'group:h' names no shared-risk group", "known: g"});
  expect_error(run("c", with("{g: []}", "kind: link-down, where: leaf0")), 2,
               {"fabric.risk_groups.g must be a list"});
  expect_error(run("d", with("{g: ['group:g']}", "kind: link-down, where: leaf0")), 2,
               {"a group cannot hold a group"});
  expect_error(run("e", with("{g: [leaf0]}", "kind: nic-down, where: 'group:g'")), 2,
               {"which is no NIC's"});
  expect_error(run("f", with("[leaf0]", "kind: link-down, where: leaf0")), 2,
               {"must name groups and their members"});
}

// Every 100th data packet of a cable, and the run carries every byte all the same.
TEST_F(RoutesCli, EveryNthPacketIsLost) {
  const Outcome o =
      run("drop", clos("") + "faults: [{kind: link-drop, where: node0.nic0, every: 100}]\n");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto totals = result("drop")["totals"];
  uint64_t sent = 0, dropped = 0;
  for (const auto& row : read_csv(dir_ / "drop" / "links.csv")) {
    if (row.at("from") != "node0.gpu0" && row.at("to") != "node0.gpu0") continue;
    sent += std::stoull(row.at("packets"));
    dropped += std::stoull(row.at("drops"));
  }
  EXPECT_GE(dropped, 4U);  // 245 packets each way, and repeats
  EXPECT_LE(dropped, sent / 100);
  EXPECT_EQ(totals["payload_bytes"], 8'000'000);
  const Outcome pauses =
      run("pauses", clos("") + "faults: [{kind: link-drop, where: node0.nic0, every: 0}]\n");
  expect_error(pauses, 2, {"every"});
}

}  // namespace
}  // namespace trainyard::cli_test
