// SPDX-License-Identifier: MIT
#include "tools/scenario/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "chakra/writer.h"
#include "tests/cli/cli_test_util.h"
#include "tools/scenario/run.h"

namespace trainyard {
namespace {

using cli_test::has;
using Json = nlohmann::json;

class PlanTest : public cli_test::CliTest {
 protected:
  [[nodiscard]] Scenario load(const std::string& text,
                              const std::vector<std::string>& settings = {}) const {
    put("s.yaml", text);
    return load_scenario((dir_ / "s.yaml").string(), {settings, "", ""});
  }

  /// Plans and runs; nothing may be repeated, paused or notified, so that all figures are equal.
  Plan expect_equal_to_run(const Scenario& s) {
    const Plan p = make_plan(s);
    const Result r = run_scenario(s);
    EXPECT_TRUE(r.complete) << r.incomplete_reason;
    EXPECT_EQ(p.payload, r.totals.payload_bytes);
    EXPECT_EQ(p.messages, r.flows.size());
    EXPECT_EQ(r.totals.retransmitted + r.totals.pfc_frames + r.totals.cnp_packets, 0U);
    EXPECT_EQ(p.data_packets, static_cast<int64_t>(r.totals.data_packets));
    EXPECT_EQ(p.ack_packets, static_cast<int64_t>(r.totals.ack_packets));
    EXPECT_EQ(p.transmissions, static_cast<int64_t>(r.totals.transmissions));
    EXPECT_GE(r.end.seconds(), p.busiest_s);

    int64_t wire = 0;
    int64_t pairs = 0;
    int64_t server_pairs = 0;
    for (const auto& t : p.tiers) wire += t.wire;
    for (const auto& e : p.pairs) pairs += e.payload;
    for (const auto& e : p.server_pairs) server_pairs += e.payload;
    EXPECT_EQ(wire, r.totals.wire_bytes);
    EXPECT_EQ(pairs, p.payload);
    EXPECT_EQ(server_pairs, p.payload);
    EXPECT_EQ(p.inside_servers + p.on_one_rail + p.across_rails, p.payload);
    EXPECT_FALSE(p.busiest.empty());
    for (const auto& l : p.busiest) {
      // Parallel cables have the same names.
      const bool found = std::any_of(r.links.begin(), r.links.end(), [&](const LinkRecord& x) {
        return x.from == l.from && x.to == l.to && x.data_bytes == l.payload && x.bytes == l.wire &&
               static_cast<int64_t>(x.packets) == l.transmissions;
      });
      EXPECT_TRUE(found) << l.from << " -> " << l.to << " does not carry " << l.payload;
    }
    return p;
  }
};

TEST_F(PlanTest, QuickstartMovesWhatThePlanSays) {
  const Plan p = expect_equal_to_run(load_scenario(source("scenarios/quickstart.yaml")));
  EXPECT_EQ(p.gpus, 16U);
  EXPECT_EQ(p.servers, 2U);
  EXPECT_EQ(p.rank_classes, 1U);
  EXPECT_EQ(p.across_rails, 0);
  EXPECT_GT(p.on_one_rail, 0);
  EXPECT_GT(p.inside_servers, 0);
}

TEST_F(PlanTest, EveryPatternMovesWhatThePlanSays) {
  put("flows.csv",
      "flow_id,src,dst,size_bytes,start_ns\n0,0,5,100001,900\n1,5,0,7,0\n2,0,5,9000,100\n"
      "3,7,1,4096,0\n4,0,1,4097,0\n");
  const std::string rails =
      "cluster: {nodes: 4, gpus_per_node: 2}\n"
      "fabric: {topology: {kind: rail-optimized, leaf_radix: 4}}\n";
  const std::string spines =
      "cluster: {nodes: 4, gpus_per_node: 4}\n"
      "fabric: {topology: {kind: leaf-spine, leaf_radix: 8, scale_up: {kind: none}}}\n";
  for (const std::string& fabric : {rails, spines}) {
    for (std::string pattern : Registry::instance().names("traffic")) {
      if (pattern == "file") pattern += ", path: flows.csv";
      const std::string size = pattern[0] == 'f' ? "" : ", size: 20001B";
      for (const char* rule : {"fabric.transport.ack_interval=1", "fabric.transport.ack_interval=3",
                               "fabric.transport.queue_pairs=per-message"}) {
        SCOPED_TRACE(fabric + pattern + " " + rule);
        const Plan p = expect_equal_to_run(
            load(fabric + "traffic: [{pattern: " + pattern + size + "}]\n", {rule}));
        EXPECT_EQ(p.has_rails, &fabric != &spines && p.servers == 4) << p.servers;
      }
    }
  }
}

TEST_F(PlanTest, EveryCollectiveAndMessageMovesWhatThePlanSays) {
  const auto write = [&](int64_t comm_type, int64_t bytes) {
    for (uint32_t r = 0; r < 4; ++r) {
      chakra::RankTrace t;
      chakra::Node coll;
      coll.id = 1;
      coll.name = "collective";
      coll.type = chakra::NodeType::comm_coll;
      coll.comm_type = comm_type;
      coll.comm_size = bytes;
      chakra::Node again = coll;
      again.id = 2;
      again.data_deps = {1, 4};
      chakra::Node pause;  // long enough that all ranks come to the second call at once
      pause.id = 4;
      pause.name = "gemm";
      pause.type = chakra::NodeType::comp;
      pause.duration_us = 1000;
      t.nodes = {coll, again, pause};
      if (r < 2) {
        chakra::Node p2p;
        p2p.id = 3;
        p2p.name = "activations";
        p2p.type = r == 0 ? chakra::NodeType::comm_send : chakra::NodeType::comm_recv;
        p2p.comm_src = 0;
        p2p.comm_dst = 1;
        p2p.comm_tag = 1;
        p2p.comm_size = 12345;
        p2p.data_deps = {2};
        t.nodes.push_back(p2p);
      }
      chakra::write_rank((dir_ / ("t." + std::to_string(r) + ".et")).string(), t);
    }
  };
  size_t built = 0;
  for (int64_t kind = 0; kind < 10; ++kind) {
    for (const int64_t bytes : {3, 100'003}) {
      SCOPED_TRACE(std::to_string(kind) + " of " + std::to_string(bytes));
      write(kind, bytes);
      const Scenario s = load(
          "cluster: {gpus_per_node: 2}\nfabric: {switch: {ecn: {mark_at: off}}}\n"
          "workload: {chakra: t}\n");
      std::string problem;
      try {
        (void)make_plan(s);
      } catch (const UserError& e) {
        problem = e.what();
      }
      if (has(problem, "is not built yet")) continue;  // refused as in a run
      ASSERT_EQ(problem, "");
      const Plan p = expect_equal_to_run(s);
      ++built;
      ASSERT_EQ(p.kinds.size(), 2U);
      for (const auto& k : p.kinds) {
        EXPECT_EQ(k.calls, k.name == "send/receive" ? 1U : 2U) << k.name;
        EXPECT_EQ(k.payload == 12345, k.name == "send/receive") << k.name;
      }
      ASSERT_EQ(p.groups.size(), 1U);
      EXPECT_EQ(p.groups[0].payload + 12345, p.payload);
      EXPECT_EQ(p.groups[0].members, 4U);
    }
  }
  EXPECT_GE(built, 8U);
}

TEST_F(PlanTest, ClearToSendMessagesAreCounted) {
  for (const std::string admission : {"none", "credits"}) {
    const Plan p = expect_equal_to_run(
        load("cluster: {nodes: 3, gpus_per_node: 2}\n"
             "fabric:\n"
             "  topology: {kind: rail-optimized}\n"
             "  switch: {classes: 2}\n"
             "collectives: {admission: " +
             admission +
             ", outstanding: 2}\n"
             "traffic:\n"
             "  - {pattern: collective, collective: all-to-all, size: 60KB}\n"
             "  - {pattern: collective, collective: all-reduce, size: 60KB}\n"));
    // Between servers: 24 of 30 messages, then two rings of which three hops each leave a server.
    const uint64_t data = 30 + 2 * 6 * 10;
    EXPECT_EQ(p.messages, data + (admission == "credits" ? 24U + 2 * 3 * 10U : 0U));
  }
}

TEST_F(PlanTest, OriginsOfAllValuesAreListed) {
  const Scenario s = load(
      "cluster: {nodes: 2, gpus_per_node: 2}\n"
      "fabric: {transport: {preset: rocev2}}\n"
      "traffic:\n"
      "  - {pattern: incast, size: 64KiB}\n",
      {"seed=7"});
  const Plan p = make_plan(s);
  EXPECT_EQ(p.settings.size(), s.settings.size() + 1);  // and the device card
  const auto origin = [&](const std::string& key) {
    for (const Setting& x : p.settings) {
      if (x.key == key) return origin_text(x.origin) + "; " + x.source;
    }
    return std::string("missing");
  };
  EXPECT_EQ(origin("cluster.nodes"), "line 1; ");
  EXPECT_EQ(origin("traffic[0].size"), "line 4; ");
  EXPECT_EQ(origin("seed"), "command line; ");
  EXPECT_TRUE(has(origin("fabric.transport.payload"), "preset rocev2.yaml:"));
  EXPECT_EQ(origin("fabric.transport.retry_limit"), "default; verbs retry_cnt");
  EXPECT_EQ(origin("cluster.device"), "default; DESIGN 9.1");
  EXPECT_EQ(origin("fabric.topology.kind"), "default; DESIGN 9.1");
  EXPECT_EQ(origin("simulation.threads"), "default; DESIGN 2");
  const std::string text = plan_text(p);
  for (const Setting& x : p.settings) EXPECT_TRUE(has(text, "  " + x.key + " ")) << x.key;
  EXPECT_TRUE(has(text, "default (verbs retry_cnt)")) << text;
}

/// Names of numbers: a unit, or a count of what the name says.
void expect_units(const Json& node, const std::string& name) {
  static const std::set<std::string> counts = {"schema_version",
                                               "seed",
                                               "gpus",
                                               "servers",
                                               "switches",
                                               "links",
                                               "ranks",
                                               "rank_classes",
                                               "members",
                                               "calls",
                                               "messages",
                                               "src_server",
                                               "dst_server",
                                               "src_rank",
                                               "dst_rank",
                                               "directed_links",
                                               "line",
                                               "queue_pairs",
                                               "data_packets",
                                               "ack_packets",
                                               "flows",
                                               "compute",
                                               "collective",
                                               "link_transmissions",
                                               "inside_servers_pair_count",
                                               "on_one_rail_pair_count",
                                               "across_rails_pair_count"};
  if (node.is_number()) {
    const bool unit = has(name, "_bytes") || has(name, "_s");
    EXPECT_TRUE(unit || counts.count(name) == 1) << name;
  }
  if (node.is_object()) {
    for (const auto& [key, child] : node.items()) expect_units(child, key);
  } else if (node.is_array()) {
    for (const auto& child : node) expect_units(child, name);
  }
}

TEST_F(PlanTest, JsonHasTheMatrixAndUnitsInItsKeys) {
  const Plan p = make_plan(load_scenario(source("scenarios/quickstart.yaml")));
  const Json doc = Json::parse(plan_json(p));
  expect_units(doc, "");
  EXPECT_EQ(doc["traffic"]["payload_bytes"], p.payload);
  EXPECT_EQ(doc["traffic"]["rank_pairs_complete"], true);
  EXPECT_EQ(doc["traffic"]["rank_pairs"].size(), p.pairs.size());
  EXPECT_EQ(doc["traffic"]["servers"].size(), 4U);
  EXPECT_EQ(doc["settings"].size(), p.settings.size());

  const Plan large =
      make_plan(load("cluster: {nodes: 1030, gpus_per_node: 1}\n"
                     "fabric: {topology: {kind: single-switch}}\n"
                     "traffic: [{pattern: permutation}]\n"));
  const Json cut = Json::parse(plan_json(large));
  EXPECT_EQ(cut["traffic"]["rank_pairs_complete"], false);
  EXPECT_EQ(cut["traffic"]["rank_pairs"].size(), 1024U);
  EXPECT_TRUE(has(plan_text(large), "too many for a matrix"));
}

TEST_F(PlanTest, NamesTooLongForTheFileSystemAreRefused) {
  const std::string name(5000, 'x');
  const std::vector<std::string> texts = {
      "cluster: {device: " + name + "}\ntraffic: [{pattern: incast}]\n",
      "fabric: {transport: {preset: " + name + "}}\ntraffic: [{pattern: incast}]\n",
      "fabric: {transport: {preset: ../transport/rocev2}}\ntraffic: [{pattern: incast}]\n",
      "fabric: {topology: {kind: file, path: " + name + "}}\ntraffic: [{pattern: incast}]\n",
      "traffic: [{pattern: file, path: " + name + "}]\n",
      "workload: {chakra: " + name + "}\n"};
  for (const std::string& text : texts) {
    EXPECT_THROW((void)make_plan(load(text)), UserError) << text.substr(0, 40);
  }
}

TEST_F(PlanTest, CommandPrintsWritesJsonAndExitsWithTwoForBadInput) {
  put("s.yaml", "cluster: {nodes: 4, gpus_per_node: 1}\ntraffic: [{pattern: incast}]\n");
  const auto good = cli({"plan", "s.yaml", "--json", "plan.json", "--set", "traffic[0]=1"});
  cli_test::expect_error(good, 2, {"traffic[0]"});
  const auto fine = cli({"plan", "s.yaml", "--json", "plan.json", "--set", "seed=3"});
  EXPECT_EQ(fine.code, 0) << fine.err;
  EXPECT_EQ(fine.err, "");
  EXPECT_TRUE(has(fine.out, "link transmissions")) << fine.out;
  EXPECT_TRUE(has(fine.out, "M transmissions per second")) << fine.out;
  EXPECT_EQ(Json::parse(cli_test::slurp(dir_ / "plan.json"))["seed"], 3);
  size_t files = 0;
  for (const auto& e : cli_test::fs::directory_iterator(dir_)) {
    files += e.path().filename().string()[0] == '.' ? 0 : 1;
  }
  EXPECT_EQ(files, 2U) << "a plan leaves nothing behind";

  cli_test::expect_error(cli({"plan"}), 2, {"scenario"});
  cli_test::expect_error(cli({"plan", "missing.yaml"}), 2, {"missing.yaml"});
  cli_test::expect_error(cli({"plan", "s.yaml", "--trace", "nothing/here"}), 2, {});
  cli_test::expect_error(cli({"plan", "s.yaml", "--json", "no/such/dir/p.json"}), 2, {"p.json"});
  put("huge.yaml",
      "cluster: {nodes: 4, gpus_per_node: 1}\ntraffic: [{pattern: incast, size: 4000000TiB}]\n");
  cli_test::expect_error(cli({"plan", "huge.yaml"}), 2, {"2^63"});
}

}  // namespace
}  // namespace trainyard
