// SPDX-License-Identifier: MIT
// simulation.engine through the command.
#include "tests/cli/cli_test_util.h"

namespace trainyard::cli_test {
namespace {

class EngineCli : public CliTest {
 protected:
  [[nodiscard]] Outcome run_with(const std::string& engine, const std::string& out,
                                 const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"run",   source("tests/cli/data/incast.yaml"),
                                      "--set", "simulation.engine=" + engine,
                                      "--out", out};
    words.insert(words.end(), more.begin(), more.end());
    return cli(words);
  }
};

TEST_F(EngineCli, ResultsSayWhichEngineAndNeverInventMeasurements) {
  for (const std::string engine : {"packet", "flow", "analytic"}) {
    const Outcome o = run_with(engine, engine);
    ASSERT_EQ(o.code, 0) << o.err;
    const auto doc = result(engine);
    EXPECT_EQ(doc["scenario"]["engine"], engine);
    EXPECT_EQ(doc["totals"]["payload_bytes"], 14'000'000);
    const bool packet = engine == "packet";
    for (const char* key :
         {"pfc_pauses", "pfc_resumes", "pfc_frames", "ecn_marks", "cnp_packets", "drops",
          "retransmitted_packets", "timeouts", "nacks", "rate_changes"}) {
      EXPECT_EQ(doc["totals"][key].is_null(), !packet) << engine << " " << key;
    }
    for (const auto& link : doc["links"]["hottest"]) {
      for (const char* key :
           {"ecn_marks", "pauses_received_count", "paused_ns", "peak_queue_bytes", "drops"}) {
        EXPECT_EQ(link[key].is_null(), !packet) << engine << " " << key;
      }
    }
    for (const auto& check : doc["checks"]) EXPECT_EQ(check["equal"], true) << check;
    const std::string html = slurp(dir_ / engine / "report.html");
    EXPECT_EQ(has(html, "not modelled by the " + engine + " engine"), !packet);
    EXPECT_EQ(has(html, "ECN marks"), packet);
    EXPECT_EQ(has(o.out, "ECN marks"), packet) << o.out;
    EXPECT_EQ(has(o.out, "not modelled by the " + engine + " engine"), !packet) << o.out;
    bool cautioned = false;
    for (const auto& note : doc["trust"]) {
      if (note["topic"] != "engine") continue;
      EXPECT_EQ(note["text"].get<std::string>().rfind(engine + ": ", 0), 0U) << note;
      cautioned = cautioned || note["caution"].get<bool>();
    }
    EXPECT_EQ(cautioned, !packet);
    const auto links = read_csv(dir_ / engine / "links.csv");
    ASSERT_FALSE(links.empty());
    for (const auto& row : links) EXPECT_EQ(row.at("peak_queue_bytes").empty(), !packet);
    for (const auto& row : read_csv(dir_ / engine / "flows.csv")) {
      EXPECT_EQ(row.at("cnps").empty(), !packet);
    }
  }
  // 7 to 1: the flow engine knows that they share, alpha-beta does not.
  const double packet = result("packet")["end_ns"], flow = result("flow")["end_ns"],
               analytic = result("analytic")["end_ns"];
  EXPECT_NEAR(flow / packet, 1, 0.25);
  EXPECT_LT(analytic, 0.3 * packet);
  expect_whole_files(dir_ / "flow");
}

TEST_F(EngineCli, TheFlowEngineRepeatsItself) {
  ASSERT_EQ(run_with("flow", "a").code, 0);
  ASSERT_EQ(run_with("flow", "b").code, 0);
  EXPECT_EQ(fingerprint("a"), fingerprint("b"));
  ASSERT_EQ(run_with("flow", "c", {"--set", "simulation.ack_load=false"}).code, 0);
  EXPECT_EQ(fingerprint("a"), fingerprint("c"));  // nobody sends against the ACKs of an incast
}

TEST_F(EngineCli, RefusesByName) {
  expect_error(run_with("ns3", "x"), 2, {"simulation.engine: ns3 is not built yet"});
  expect_error(run_with("htsim", "x"), 2,
               {"unknown engine 'htsim'", "analytic, flow, packet", "ns3 is not built yet"});
  expect_error(run_with("packet", "x", {"--set", "simulation.ack_load=true"}), 2,
               {"unknown key 'ack_load'"});
  expect_error(run_with("analytic", "x", {"--set", "simulation.nic_serialization=maybe"}), 2,
               {"nic_serialization"});
  expect_error(run_with("flow", "x", {"--set", "output.telemetry.links=10us"}), 2,
               {"the flow engine keeps no time series of links"});
  expect_error(run_with("flow", "x", {"--set", "fabric.transport.load_balancing.qps=4"}), 2,
               {"the flow engine gives a connection one path"});
}

TEST_F(EngineCli, ExplainVersionAndPlanNameIt) {
  for (const char* name : {"flow", "analytic", "packet"}) {
    const Outcome o = cli({"explain", name});
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(has(o.out, std::string(name) + " (engine)")) << o.out;
  }
  EXPECT_TRUE(has(cli({"explain", "flow"}).out, "ack_load"));
  EXPECT_TRUE(has(cli({"explain", "nic_serialization"}).out, "astra-sim"));
  EXPECT_TRUE(has(cli({"version"}).out, "analytic, flow, packet, stepped (ns3 is not built yet)"));
  for (const std::string engine : {"packet", "flow"}) {
    const Outcome o = cli({"plan", source("tests/cli/data/incast.yaml"), "--set",
                           "simulation.engine=" + engine, "--json", "plan.json"});
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(has(o.out, "simulation.engine")) << o.out;
    const auto doc = nlohmann::ordered_json::parse(slurp(dir_ / "plan.json"));
    EXPECT_EQ(doc["run"]["engine"], engine);
    EXPECT_EQ(doc["run"]["estimated_wall_time_s"].is_null(), engine == "flow");
  }
}

}  // namespace
}  // namespace trainyard::cli_test
