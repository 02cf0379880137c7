// SPDX-License-Identifier: MIT
#include <cstdint>
#include <string>
#include <vector>

#include "chakra/writer.h"
#include "sim/registry.h"
#include "tests/cli/cli_test_util.h"
#include "tools/scenario/scenario_keys.h"

namespace trainyard::cli_test {
namespace {

const char* const kSmall =
    "cluster: {nodes: 2, gpus_per_node: 2}\n"
    "fabric: {topology: {kind: single-switch, scale_up: {kind: none}}}\n"
    "traffic: [{pattern: incast, size: 64KiB}]\n";

/// Would take hours: shows that a failure comes before the work, and is there to be interrupted.
const char* const kEndless =
    "cluster: {nodes: 4, gpus_per_node: 2}\n"
    "fabric: {topology: {kind: single-switch, scale_up: {kind: none}}}\n"
    "traffic: [{pattern: incast, size: 5TB}]\n";

chakra::Node node(uint64_t id, const std::string& name, chakra::NodeType type,
                  std::vector<uint64_t> deps = {}) {
  chakra::Node n;
  n.id = id;
  n.name = name;
  n.type = type;
  n.data_deps = std::move(deps);
  return n;
}
chakra::Node compute(uint64_t id, uint64_t us) {
  chakra::Node n = node(id, "gemm", chakra::NodeType::comp);
  n.duration_us = us;
  return n;
}
chakra::Node all_reduce(uint64_t id, const std::string& group, std::vector<uint64_t> deps = {}) {
  chakra::Node n = node(id, "all_reduce_" + group, chakra::NodeType::comm_coll, std::move(deps));
  n.comm_type = 0;
  n.comm_size = 65536;
  if (!group.empty()) n.pg_name = group;
  return n;
}

class Cli : public CliTest {
 protected:
  void write_set(const std::string& prefix,
                 const std::vector<std::vector<chakra::Node>>& ranks) const {
    for (size_t r = 0; r < ranks.size(); ++r) {
      chakra::RankTrace t;
      t.nodes = ranks[r];
      chakra::write_rank((dir_ / (prefix + "." + std::to_string(r) + ".et")).string(), t);
    }
  }
  /// Two ranks that compute and all-reduce.
  void write_good(const std::string& prefix) const {
    const std::vector<chakra::Node> nodes = {compute(1, 5), all_reduce(2, "", {1})};
    write_set(prefix, {nodes, nodes});
  }
};

// ---------------------------------------------------------------- the quickstart

class Quickstart : public CliTest {
 protected:
  [[nodiscard]] Outcome quickstart(const std::string& out) const {
    return cli({"run", source("scenarios/quickstart.yaml"), "--out", out});
  }
};

TEST_F(Quickstart, RunsWritesAllFilesAndSaysWhere) {
  const Outcome o = quickstart("q");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err, "");
  EXPECT_TRUE(has(o.out, "How far to trust this"));
  EXPECT_TRUE(has(o.out, "\nreport: q/report.html\n"));
  for (const char* file :
       {"result.json", "flows.csv", "links.csv", "collectives.csv", "ranks.csv", "report.html"}) {
    EXPECT_TRUE(fs::is_regular_file(dir_ / "q" / file)) << file;
  }
  expect_whole_files(dir_ / "q");
  const auto doc = result("q");
  EXPECT_EQ(doc["complete"], true);
  EXPECT_TRUE(doc["incomplete_reason"].is_null());
  EXPECT_EQ(doc["cluster"]["ranks"], 16);
  EXPECT_GT(doc["step_time_ns"].get<double>(), 0);
  EXPECT_EQ(read_csv(dir_ / "q" / "ranks.csv").size(), 16U);
  EXPECT_TRUE(has(slurp(dir_ / "q" / "report.html"), "How far to trust this"));
}

TEST_F(Quickstart, ThreeRunsGiveTheSameBytesExceptOfTheHost) {
  std::vector<std::string> json, prints;
  for (const char* out : {"1", "2", "3"}) {
    ASSERT_EQ(quickstart(out).code, 0);
    auto doc = result(out);
    ASSERT_TRUE(doc.contains("host"));
    const std::string text = slurp(dir_ / out / "result.json");
    const size_t host = text.find("\n  \"host\": {");
    ASSERT_NE(host, std::string::npos);
    // "host" is the last object, so all before it is compared byte by byte.
    EXPECT_EQ(std::prev(doc.end()).key(), "host");
    json.push_back(text.substr(0, host));
    prints.push_back(fingerprint(out));
  }
  EXPECT_EQ(json[0], json[1]);
  EXPECT_EQ(json[0], json[2]);
  EXPECT_EQ(prints[0], prints[1]);
  EXPECT_EQ(prints[0], prints[2]);
  EXPECT_EQ(prints[0].size(), 16U);
  for (const char* file : {"flows.csv", "links.csv", "collectives.csv", "ranks.csv"}) {
    EXPECT_EQ(slurp(dir_ / "1" / file), slurp(dir_ / "2" / file)) << file;
    EXPECT_EQ(slurp(dir_ / "1" / file), slurp(dir_ / "3" / file)) << file;
  }
}

/// Numbers with a unit in their key, counts of things that the key names, or identifiers.
void check_units(const std::string& path, const std::string& key, const nlohmann::ordered_json& v,
                 size_t& numbers) {
  if (v.is_object()) {
    for (const auto& [k, child] : v.items()) check_units(path + "." + k, k, child, numbers);
  } else if (v.is_array()) {
    for (const auto& child : v) check_units(path + "[]", key, child, numbers);
  } else if (v.is_number()) {
    ++numbers;
    static const std::vector<std::string> units = {
        "_ns",    "_hours_per_step", "_per_step_j", "_watts_per_gpu", "_bytes", "_bps",
        "_ratio", "_per_s",          "_count",      "_packets",       "_wall_s"};
    static const std::vector<std::string> counts = {"schema_version",
                                                    "seed",
                                                    "index",
                                                    "class",
                                                    "rank",  // identifiers
                                                    "ranks",
                                                    "rank_classes",
                                                    "nodes",
                                                    "switches",
                                                    "links",
                                                    "events",
                                                    "link_transmissions",
                                                    "packets",
                                                    "pfc_frames",
                                                    "pfc_pauses",
                                                    "pfc_resumes",
                                                    "ecn_marks",
                                                    "drops",
                                                    "timeouts",
                                                    "nacks",
                                                    "rate_changes",
                                                    "pfc_refreshes",
                                                    "watchdog_events",
                                                    "reroutes",
                                                    "cyclic_waits",
                                                    "transfers",
                                                    "wall_s"};
    const bool unit = std::any_of(units.begin(), units.end(), [&](const std::string& u) {
      return key.size() > u.size() && key.compare(key.size() - u.size(), u.size(), u) == 0;
    });
    EXPECT_TRUE(unit || std::count(counts.begin(), counts.end(), key) == 1)
        << path << " is a number without a unit in its key";
  }
}

TEST_F(Quickstart, EveryNumberOfTheResultHasAUnitAndTheSchemaAVersion) {
  ASSERT_EQ(quickstart("q").code, 0);
  const auto doc = result("q");
  EXPECT_EQ(doc.begin().key(), "schema_version");
  EXPECT_EQ(doc["schema_version"], 1);
  size_t numbers = 0;
  check_units("", "", doc, numbers);
  EXPECT_GT(numbers, 100U);
}

// ---------------------------------------------------------------- what a run accepts

TEST_F(Cli, SetTraceOutAndQuiet) {
  put("s.yaml", kSmall);
  const Outcome o = cli({"run", "s.yaml", "--quiet", "--out", "a", "--set", "seed=5", "--set",
                         "fabric.switch.buffer=32MiB"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "report: a/report.html\n");
  EXPECT_EQ(o.err, "");
  const auto doc = result("a");
  EXPECT_EQ(doc["scenario"]["seed"], 5);
  EXPECT_EQ(doc["settings"]["fabric.switch.buffer"], "32MiB  (command line)");
  expect_whole_files(dir_ / "a");
  // Without --out: output.dir, then the name, below the current folder.
  EXPECT_EQ(cli({"run", "s.yaml", "-q"}).code, 0);
  EXPECT_TRUE(fs::exists(dir_ / "out" / "s" / "result.json"));
  EXPECT_EQ(cli({"run", "s.yaml", "-q", "--set", "output.dir=deep/er"}).code, 0);
  EXPECT_TRUE(fs::exists(dir_ / "deep" / "er" / "result.json"));
  // A trace of the command line replaces the scenario's.
  write_good("mine");
  const Outcome t =
      cli({"run", source("scenarios/trace-on-rails.yaml"), "--trace", "mine", "-q", "--out", "t"});
  EXPECT_EQ(t.code, 0) << t.err;
  EXPECT_EQ(result("t")["cluster"]["ranks"], 2);
  EXPECT_EQ(read_csv(dir_ / "t" / "ranks.csv").size(), 2U);
}

TEST_F(Cli, HelpAndVersion) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--help"}, {"--help-all"}, {"run", "--help"}, {"trace", "info", "--help"}}) {
    const Outcome o = cli(words);
    EXPECT_EQ(o.code, 0) << words[0];
    EXPECT_EQ(o.err, "");
    EXPECT_TRUE(has(o.out, "Usage")) << o.out;
  }
  const Outcome o = cli({"version"});
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.out.rfind("trainyard ", 0), 0U);
  const size_t build = o.out.find("build ");
  ASSERT_NE(build, std::string::npos) << o.out;
  const std::string line = o.out.substr(build, o.out.find('\n', build) - build);
  EXPECT_TRUE(has(line, "Release") || has(line, "Debug") || has(line, "RelWithDebInfo")) << line;
  EXPECT_TRUE(has(o.out, "MIT"));
  put("s.yaml", kSmall);
  ASSERT_EQ(cli({"run", "s.yaml", "-q", "--out", "a"}).code, 0);
  const std::string type = result("a")["host"]["build_type"];
  EXPECT_TRUE(!type.empty() && has(line, type)) << type << " against " << line;
}

// ---------------------------------------------------------------- exit code 2

TEST_F(Cli, BadCommandLinesAreOneLineAndExit2) {
  put("s.yaml", kSmall);
  expect_error(cli({}), 2, {"see trainyard --help"});
  expect_error(
      cli({"fly"}), 2,
      {"'fly'", "run, compare, whatif, chaos, degraded, plan, lint, topo, trace, calibrate, explain, version"});
  expect_error(cli({"trace"}), 2, {});
  expect_error(cli({"trace", "fly", "x"}), 2, {"'fly'", "info, validate"});
  expect_error(cli({"run"}), 2, {"scenario"});
  expect_error(cli({"run", "s.yaml", "--fly"}), 2, {"--fly"});
  expect_error(cli({"run", "s.yaml", "again.yaml"}), 2, {"again.yaml"});
  expect_error(cli({"run", "s.yaml", "--set"}), 2, {"--set"});
  expect_error(cli({"run", "s.yaml", "--set", "seed"}), 2, {"expected key=value"});
  expect_error(cli({"run", "s.yaml", "--set", "sed=1"}), 2, {"did you mean 'seed'?"});
  expect_error(cli({"version", "--fly"}), 2, {"--fly"});
  expect_error(cli({"trace", "info"}), 2, {"trace"});
}

TEST_F(Cli, BadScenariosAreOneLineAndExit2) {
  expect_error(cli({"run", "none.yaml"}), 2, {"cannot read none.yaml"});
  expect_error(cli({"run", "."}), 2, {"cannot read ."});
  expect_error(cli({"topo", "none.yaml"}), 2, {"cannot read none.yaml"});
  put("empty.yaml", "");
  expect_error(cli({"run", "empty.yaml"}), 2, {"empty.yaml:1: expected 'key: value' lines"});
  put("bad.yaml", "name: x\nfabrik: 1\n");
  expect_error(cli({"run", "bad.yaml"}), 2, {"bad.yaml:2: unknown key 'fabrik'", "'fabric'?"});
  put("line.yaml", "\"a\\nb\": 1\n");  // a key with a line break must not break the line
  expect_error(cli({"run", "line.yaml"}), 2, {"unknown key 'a b'"});
  put("garbage.yaml", std::string("\x00\xff\x01: [\x80", 8));
  expect_error(cli({"run", "garbage.yaml"}), 2, {"garbage.yaml"});
  put("trace.yaml", "name: x\nworkload:\n  chakra: nowhere/t\n");
  expect_error(cli({"run", "trace.yaml"}), 2, {"trace.yaml:3: nowhere/t: no such file"});
  expect_error(cli({"run", "trace.yaml", "--trace", "other/t"}), 2, {"--trace: other/t: no such"});
  expect_error(cli({"run", "trace.yaml", "--set", "workload.chakra=x/t"}), 2,
               {"--set workload.chakra=x/t: x/t: no such"});
  put("small.yaml", kSmall);
  expect_error(cli({"run", "small.yaml", "--set", "fabric.switch.buffer=64KiB"}), 2,
               {"switch leaf0: buffer 64KiB is not larger than"});
  put("one.yaml",
      "cluster: {nodes: 1, gpus_per_node: 1}\nfabric: {topology: {kind: single-switch}}\n"
      "traffic: [{pattern: permutation}]\n");
  expect_error(cli({"run", "one.yaml"}), 2, {"at least 2 ranks"});
}

TEST_F(Cli, OutputFolderThatCannotBeIsToldBeforeTheSimulation) {
  put("s.yaml", kEndless);
  put("file", "x");
  expect_error(cli({"run", "s.yaml", "--out", "file/below"}), 2,
               {"cannot write to output folder file/below", "--out DIR"});
  expect_error(cli({"run", "s.yaml", "--out", "file"}), 2, {"output folder file"});
  expect_error(cli({"run", "s.yaml", "--out", "/dev/null/x"}), 2, {"/dev/null/x"});
  expect_error(cli({"run", "s.yaml", "--set", "output.dir=file/below"}), 2, {"file/below"});
  EXPECT_EQ(slurp(dir_ / "file"), "x");
}

TEST_F(Cli, ResultThatCannotBeReplacedIsAUserError) {
  put("s.yaml", kSmall);
  fs::create_directories(dir_ / "a" / "result.json" / "x");
  expect_error(cli({"run", "s.yaml", "-q", "--out", "a"}), 2, {"result.json"});
}

TEST_F(Cli, CollectiveThatAMemberNeverIssuesIsRefused) {
  write_set("h", {{compute(1, 5), all_reduce(2, "", {1})}, {compute(1, 5)}});
  put("s.yaml", "cluster: {gpus_per_node: 2}\nworkload: {chakra: h}\n");
  expect_error(cli({"run", "s.yaml"}), 2, {"s.yaml:2", "all_reduce"});
}

TEST_F(Cli, GroupsInACircleAreRefused) {
  // Each group's order is fine; together they close a circle.
  write_set("d", {{all_reduce(1, "a"), all_reduce(2, "b", {1})},
                  {all_reduce(1, "b"), all_reduce(2, "a", {1})}});
  chakra::write_group_file((dir_ / "groups.json").string(), {{"a", {0, 1}}, {"b", {0, 1}}});
  put("s.yaml", "cluster: {gpus_per_node: 2}\nworkload: {chakra: d, groups: groups.json}\n");
  EXPECT_EQ(cli({"trace", "validate", "d", "--groups", "groups.json"}).code, 2);
  expect_error(cli({"run", "s.yaml", "--out", "o"}), 2, {"s.yaml:2: ranks wait for each other"});
}

TEST_F(Cli, TracesWithoutOperationsAreRefused) {
  write_set("e", {{}, {}});
  put("s.yaml", "cluster: {gpus_per_node: 2}\nworkload: {chakra: e}\n");
  expect_error(cli({"run", "s.yaml"}), 2, {"s.yaml:2"});
}

// ---------------------------------------------------------------- exit code 3

TEST_F(Cli, SendsThatWaitForEachOtherAreAHang) {
  std::vector<std::vector<chakra::Node>> ranks;
  for (int32_t r = 0; r < 2; ++r) {
    chakra::Node send = node(1, "send", chakra::NodeType::comm_send);
    send.comm_src = r;
    send.comm_dst = 1 - r;
    send.comm_tag = 7;
    send.comm_size = 4096;
    chakra::Node recv = send;
    recv.id = 2;
    recv.name = "recv";
    recv.type = chakra::NodeType::comm_recv;
    recv.comm_src = 1 - r;
    recv.comm_dst = r;
    recv.data_deps = {1};
    ranks.push_back({send, recv});
  }
  write_set("d", ranks);
  put("s.yaml", "cluster: {gpus_per_node: 2}\nworkload: {chakra: d, sends: rendezvous}\n");
  EXPECT_EQ(cli({"trace", "validate", "d"}).code, 0);
  const Outcome o = cli({"run", "s.yaml", "--out", "o"});
  // With rendezvous a transfer starts when both sides are there, so these two wait for ever.
  expect_error(o, 3, {"s.yaml: hang", "rank 0", "rank 1"});
  EXPECT_EQ(result("o")["complete"], false);
  EXPECT_TRUE(has(result("o")["incomplete_reason"].dump(), "hang"));
  // Eager sends, the default that traces assume, do not wait.
  EXPECT_EQ(cli({"run", "s.yaml", "--set", "workload.sends=eager", "--out", "e"}).code, 0);
  EXPECT_EQ(result("e")["complete"], true);
}

TEST_F(Cli, DropInALosslessClassFailsAndLeavesAReadableResult) {
  put("s.yaml", kSmall);
  const Outcome o = cli({"run", "s.yaml", "--out", "o", "--set", "fabric.switch.pfc.headroom=0B",
                         "--set", "fabric.switch.buffer=64KiB"});
  expect_error(o, 3,
               {"s.yaml: packet dropped in the lossless class at ", "in leaf0",
                "raise fabric.switch.pfc.headroom or fabric.switch.buffer"});
  EXPECT_TRUE(has(o.out, "INCOMPLETE")) << o.out;
  const auto doc = result("o");
  EXPECT_EQ(doc["complete"], false);
  EXPECT_TRUE(has(doc["incomplete_reason"], "packet dropped in the lossless class"));
  expect_whole_files(dir_ / "o");
  // The same fabric with PFC off may drop, and recovers.
  const Outcome lossy = cli({"run", "s.yaml", "-q", "--out", "p", "--set",
                             "fabric.switch.pfc.mode=off", "--set", "fabric.switch.buffer=64KiB"});
  EXPECT_EQ(lossy.code, 0) << lossy.err;
  EXPECT_GT(result("p")["totals"]["drops"].get<uint64_t>(), 0U);
}

TEST_F(Cli, ATraceThatTakesNoTimeIsRefused) {
  write_set("z", {{compute(1, 0)}, {compute(1, 0)}});
  put("s.yaml", "cluster: {gpus_per_node: 2}\nworkload: {chakra: z}\n");
  expect_error(cli({"run", "s.yaml", "--out", "o"}), 2,
               {"s.yaml:2", "nothing takes any time in z", "no durations"});
  EXPECT_FALSE(std::filesystem::exists(dir_ / "o" / "result.json"));
}

TEST_F(Cli, WorkloadWithoutCommunicationSaysZeroFlows) {
  write_set("c", {{compute(1, 5)}, {compute(1, 7)}});
  put("s.yaml", "cluster: {gpus_per_node: 2}\nworkload: {chakra: c}\n");
  const Outcome o = cli({"run", "s.yaml", "--out", "o"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(has(o.out, "0 flows")) << o.out;
  const auto doc = result("o");
  EXPECT_TRUE(has(doc["warnings"].dump(), "0 flows"));
  EXPECT_EQ(doc["step_time_ns"], 7000);
  for (const auto& e : fs::directory_iterator(dir_ / "o")) EXPECT_GT(e.file_size(), 0U) << e.path();
  EXPECT_FALSE(fs::exists(dir_ / "o" / "flows.csv"));
}

// ---------------------------------------------------------------- interrupts

class Interrupt : public CliTest, public ::testing::WithParamInterface<int> {};

TEST_P(Interrupt, LeavesAWholeResultAndExits130) {
  put("s.yaml", kEndless);
  Process p({"run", "s.yaml", "--out", "o"}, dir_);
  for (int i = 0; i < 6000 && !p.catches(GetParam()); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(p.catches(GetParam()));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // let it move something
  ASSERT_EQ(::kill(p.pid(), GetParam()), 0);
  expect_error(p.wait(), 130, {"s.yaml: interrupted at "});
  const auto doc = result("o");
  EXPECT_EQ(doc["complete"], false);
  EXPECT_TRUE(has(doc["incomplete_reason"], "interrupted"));
  EXPECT_GT(doc["totals"]["link_transmissions"].get<uint64_t>(), 0U);
  expect_whole_files(dir_ / "o");
  // A flow that is under way has no completion time.
  const auto flows = read_csv(dir_ / "o" / "flows.csv");
  ASSERT_EQ(flows.size(), 7U);
  for (const auto& f : flows) EXPECT_EQ(f.at("fct_ns"), "");
}

INSTANTIATE_TEST_SUITE_P(Cli, Interrupt, ::testing::Values(SIGINT, SIGTERM), [](const auto& p) {
  return std::string(p.param == SIGINT ? "SIGINT" : "SIGTERM");
});

// ---------------------------------------------------------------- other commands

TEST_F(Cli, TraceInfoAndValidate) {
  write_good("good");
  const Outcome info = cli({"trace", "info", "good"});
  EXPECT_EQ(info.code, 0) << info.err;
  EXPECT_TRUE(has(info.out, "good: 2 ranks, 4 nodes")) << info.out;
  EXPECT_TRUE(has(info.out, "all_reduce")) << info.out;
  EXPECT_TRUE(has(info.out, "2 nodes, 131072 bytes as written")) << info.out;
  const Outcome valid = cli({"trace", "validate", "good.{rank}.et"});
  EXPECT_EQ(valid.code, 0) << valid.out;
  EXPECT_TRUE(has(valid.out, "2 ranks, 0 errors, ")) << valid.out;

  write_set("bad", {{compute(1, 5), all_reduce(2, "", {1})}, {compute(1, 5)}});
  const Outcome broken = cli({"trace", "validate", "bad"});
  EXPECT_EQ(broken.code, 2);
  EXPECT_EQ(broken.out.rfind("error: ", 0), 0U) << broken.out;
  EXPECT_FALSE(has(broken.out, " 0 errors")) << broken.out;
  EXPECT_EQ(broken.err, "");
  EXPECT_EQ(cli({"trace", "info", "bad"}).code, 0);  // counting needs no judgement

  write_set("quiet", {{compute(1, 5)}});
  EXPECT_TRUE(has(cli({"trace", "info", "quiet"}).out, "no node communicates"));

  for (const char* command : {"info", "validate"}) {
    expect_error(cli({"trace", command, "nowhere"}), 2, {"nowhere"});
    expect_error(cli({"trace", command, "good", "--groups", "none.json"}), 2, {"none.json"});
    put("cut.0.et", slurp(dir_ / "good.0.et").substr(0, 20));
    expect_error(cli({"trace", command, "cut"}), 2, {"cut.0.et"});
    put("noise.0.et", "this is no trace at all, only text");
    expect_error(cli({"trace", command, "noise"}), 2, {"noise.0.et"});
  }
}

TEST_F(Cli, ExplainKnowsEveryModelAndItsParameters) {
  const Outcome list = cli({"explain"});
  EXPECT_EQ(list.code, 0);
  for (const ModelDoc* doc : Registry::instance().all()) {
    EXPECT_TRUE(has(list.out, doc->name + " ")) << doc->name;
    EXPECT_TRUE(has(list.out, doc->help)) << doc->name;
    for (const std::string& name : {doc->name, doc->category}) {
      const Outcome o = cli({"explain", name});
      EXPECT_EQ(o.code, 0) << name << o.err;
      EXPECT_TRUE(has(o.out, doc->name + " (" + doc->category + ")")) << name << o.out;
      for (const ParamSpec& p : doc->params) {
        EXPECT_TRUE(has(o.out, p.name) && has(o.out, describe(p)) && has(o.out, p.help))
            << name << " " << p.name;
      }
    }
  }
  for (const char* parameter : {"kmin", "headroom", "payload", "size", "timeout", "nic.rate"}) {
    const Outcome o = cli({"explain", parameter});
    EXPECT_EQ(o.code, 0) << parameter;
    EXPECT_TRUE(has(o.out, std::string(parameter) + " of ")) << o.out;
    EXPECT_TRUE(has(o.out, "default ")) << o.out;
  }
  expect_error(cli({"explain", "flux"}), 2,
               {"nothing is called 'flux'", "dcqcn", "rail-optimized", "rocev2"});
}

TEST_F(Cli, ExplainKnowsTheBlocksOfAScenario) {
  const Outcome list = cli({"explain"});
  const Outcome all = cli({"explain", "scenario"});
  std::string names;
  for (const ModelDoc& block : scenario_blocks()) {
    names += (names.empty() ? "" : ", ") + block.name;
    EXPECT_TRUE(has(list.out, block.help)) << block.name;
    const Outcome one = cli({"explain", block.name});
    EXPECT_EQ(one.code, 0) << one.err;
    EXPECT_TRUE(has(one.out, block.name + " (scenario)\n")) << one.out;
    for (const ParamSpec& key : block.params) {
      const std::string help = key.help + " [" + key.source + "]\n";
      for (const Outcome* o : {&one, &all}) {
        EXPECT_TRUE(has(o->out, "    " + key.name + " ")) << key.name << o->out;
        EXPECT_TRUE(has(o->out, describe(key)) && has(o->out, help)) << key.name << o->out;
      }
      if (block.name == "scenario") continue;
      const Outcome full = cli({"explain", block.name + "." + key.name});
      EXPECT_EQ(full.code, 0) << full.err;
      EXPECT_TRUE(has(full.out, key.name + " of " + block.name + " (scenario)")) << full.out;
      EXPECT_TRUE(has(full.out, help)) << full.out;
    }
  }
  expect_error(cli({"explain", "clutser"}), 2, {"nothing is called 'clutser'", "blocks: " + names});
}

TEST_F(Cli, TopoCountsEachStructuredKind) {
  put("s.yaml", "cluster: {nodes: 2, gpus_per_node: 8}\ntraffic: [{pattern: incast}]\n");
  const auto topo = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> words = {"topo", "s.yaml"};
    for (const auto& s : settings) {
      words.push_back("--set");
      words.push_back(s);
    }
    const Outcome o = cli(words);
    EXPECT_EQ(o.code, 0) << o.err;
    std::string squeezed;  // runs of blanks as one
    for (const char c : o.out) {
      if (c != ' ' || squeezed.empty() || squeezed.back() != ' ') squeezed += c;
    }
    return squeezed;
  };
  // 8 rails of 2 servers; each leaf has 2 uplinks, one spine takes all 16.
  const std::string rail = topo({"fabric.topology.kind=rail-optimized"});
  for (const char* part : {" hosts 16\n", " scale-up 2\n", " leaf 8\n", " spine 1\n",
                           " host-leaf 16 links of 400Gbps, 150ns\n", " leaf-spine 16 links of ",
                           " scale-up 16 links of 3.6Tbps, 250ns\n"}) {
    EXPECT_TRUE(has(rail, part)) << part << rail;
  }
  // Radix 8: 4 hosts a leaf, 4 uplinks each, 2 spines of 8 ports.
  const std::string clos =
      topo({"fabric.topology.kind=leaf-spine", "fabric.topology.leaf_radix=8"});
  for (const char* part : {" hosts 16\n", " leaf 4\n", " spine 2\n", " leaf-spine 16 links of "}) {
    EXPECT_TRUE(has(clos, part)) << part << clos;
  }
  const std::string single =
      topo({"fabric.topology.kind=single-switch", "fabric.topology.scale_up.kind=none",
            "fabric.topology.link.length=100m"});
  for (const char* part : {" hosts 16\n", " leaf 1\n", " host-leaf 16 links of 400Gbps, 500ns\n"}) {
    EXPECT_TRUE(has(single, part)) << part << single;
  }
  EXPECT_FALSE(has(single, "leaf-spine") || has(single, "scale-up")) << single;
  const std::string crossed =
      topo({"fabric.topology.planes=2", "wiring.swap=[[node0.nic0, node0.nic1]]"});
  for (const char* part :
       {" rails 8\n", " plane 1 8 leaves, 1 spines, 0 cores, 32 cables\n",
        " cables 64 outside of servers, 128 transceivers\n",
        " oversubscription 1:1 at every leaf\n", " bisection at most 3.2Tbps per direction\n",
        // two cables to the spine and two down again, in each plane
        " equal paths 8 of 4 links from node0.gpu0 to node1.gpu7\n", " rail crossings 4\n",
        " node0.nic0:port1 is on plane1.rail1, rail 1 instead of 0\n"}) {
    EXPECT_TRUE(has(crossed, part)) << part << crossed;
  }
  const std::string rails = topo({"fabric.topology.kind=rail-only"});
  EXPECT_TRUE(has(rails, " equal paths 1 of 2 links from node0.gpu0 to node1.gpu0\n")) << rails;
  // Nothing needs to run.
  put("bare.yaml", "cluster: {nodes: 2}\n");
  EXPECT_TRUE(has(cli({"topo", "bare.yaml"}).out, " 16\n"));
  expect_error(cli({"topo", "s.yaml", "--set", "wiring.swap=[[node0.nic0, node9.nic1]]"}), 2,
               {"'node9.nic1' matches nothing", "node0.nic0"});
  put("topo.txt", "3 1 2\n2\n0 2 100Gbps 1us 0\n1 2 200Gbps 2us 0\n");
  put("f.yaml", "fabric: {topology: {kind: file, path: topo.txt}}\ntraffic: [{pattern: incast}]\n");
  const Outcome file = cli({"topo", "f.yaml"});
  EXPECT_TRUE(has(file.out, "1 links of 100Gbps, 1us")) << file.out;
  EXPECT_TRUE(has(file.out, "1 links of 200Gbps, 2us")) << file.out;
  put("topo.txt", "3 1 2\n2\n0 2 100Gbps 1us 0\n1 9 200Gbps 2us 0\n");
  expect_error(cli({"topo", "f.yaml"}), 2, {"topo.txt:4", "9 is out of range"});
}

// ---------------------------------------------------------------- sums that must agree

TEST_F(Cli, LinkBytesAreTheBytesOfTheFlows) {
  constexpr int64_t kHeader = 82, kAck = 86, kPause = 84, kPayload = 4096;
  put("s.yaml",
      "cluster: {nodes: 4, gpus_per_node: 4}\n"
      "fabric: {topology: {kind: rail-optimized}}\n"
      "traffic: [{pattern: all-to-all, size: 100000B}, {pattern: incast, size: 1000001B}]\n");
  for (const char* congestion : {"none", "dcqcn"}) {
    ASSERT_EQ(cli({"run", "s.yaml", "-q", "--out", congestion, "--set",
                   std::string("fabric.transport.congestion.kind=") + congestion})
                  .code,
              0);
    const auto doc = result(congestion);
    const auto& totals = doc["totals"];
    int64_t payload = 0, wire = 0, transmissions = 0, acks = 0;
    size_t flows = 0, longest = 0;
    for (const auto& f : read_csv(dir_ / congestion / "flows.csv")) {
      ++flows;
      const int64_t bytes = std::stoll(f.at("size_bytes")), hops = std::stoll(f.at("hops"));
      const int64_t packets = std::stoll(f.at("packets"));
      EXPECT_EQ(packets, (bytes + kPayload - 1) / kPayload);
      EXPECT_EQ(f.at("retransmitted"), "0");
      longest = std::max(longest, static_cast<size_t>(hops));
      payload += bytes * hops;
      wire += (bytes + packets * kHeader + packets * kAck) * hops;
      transmissions += std::stoll(f.at("link_transmissions"));
      EXPECT_EQ(std::stoll(f.at("link_transmissions")), 2 * packets * hops);
      acks += packets;
    }
    EXPECT_EQ(flows, 16U * 15U + 15U);
    EXPECT_EQ(longest, 4U);  // host, rail, spine, rail, host
    const int64_t pauses = totals["pfc_frames"].get<int64_t>();
    EXPECT_EQ(totals["cnp_packets"], 0);
    EXPECT_EQ(totals["ack_packets"], acks);
    int64_t link_payload = 0, link_wire = 0, link_packets = 0;
    for (const auto& l : read_csv(dir_ / congestion / "links.csv")) {
      link_payload += std::stoll(l.at("payload_bytes"));
      link_wire += std::stoll(l.at("wire_bytes"));
      link_packets += std::stoll(l.at("packets"));
    }
    EXPECT_EQ(link_payload, payload) << congestion;
    EXPECT_EQ(link_wire, wire + pauses * kPause) << congestion;
    EXPECT_EQ(link_packets, transmissions + pauses) << congestion;
    EXPECT_EQ(totals["wire_bytes"], link_wire) << congestion;
    ASSERT_FALSE(doc["checks"].empty());
    for (const auto& check : doc["checks"]) {
      EXPECT_EQ(check["equal"], true) << check.dump();
    }
  }
}

// ---------------------------------------------------------------- renumbering

/// 8 hosts on 2 leaves and 2 spines in rows; `id` maps the dense id of a node to the file's.
template <class Id>
std::string two_tiers(Id id) {
  std::string out;
  for (int i = 0; i < 12; ++i) {
    out += "node," + std::to_string(id(i)) + (i < 8 ? ",host\n" : ",switch\n");
  }
  const auto link = [&](int a, int b, const char* rest) {
    out += "link," + std::to_string(id(a)) + "," + std::to_string(id(b)) + rest;
  };
  for (int h = 0; h < 8; ++h) link(h, 8 + h / 4, ",100,1000\n");
  for (int leaf = 8; leaf < 10; ++leaf) {
    for (int spine = 10; spine < 12; ++spine) link(leaf, spine, ",100,1000\n");
  }
  return out;
}

TEST_F(Cli, RenumberingThatKeepsTheOrderKeepsTheFingerprint) {
  // Ties on purpose: equal sizes, equal starts, all into one leaf; marks are random.
  const auto flows = [](int first_id, int step) {
    std::string out = "flow_id,src,dst,size_bytes,start_ns\n";
    int id = first_id;
    for (int src = 4; src < 8; ++src) {
      for (int dst = 0; dst < 3; ++dst, id += step) {
        out += std::to_string(id) + "," + std::to_string(src) + "," + std::to_string(dst) +
               ",1500000,0\n";
      }
    }
    return out;
  };
  const auto run = [&](const std::string& name, const std::string& topology,
                       const std::string& flow_list, const std::string& seed = "3") {
    put(name + ".topo", topology);
    put(name + ".csv", flow_list);
    put(name + ".yaml", "seed: " + seed + "\nfabric: {topology: {kind: file, path: " + name +
                            ".topo}}\ntraffic: [{pattern: file, path: " + name + ".csv}]\n");
    const Outcome o = cli({"run", name + ".yaml", "-q", "--out", name});
    EXPECT_EQ(o.code, 0) << o.err;
    return fingerprint(name);
  };
  const auto dense = [](int i) { return i; };
  const auto gaps = [](int i) { return 7 + 1000 * i + i * i; };
  const std::string base = run("dense", two_tiers(dense), flows(0, 1));
  EXPECT_GT(result("dense")["totals"]["ecn_marks"].get<uint64_t>(), 0U) << "no dice in this run";
  EXPECT_EQ(run("gaps", two_tiers(gaps), flows(0, 1)), base);
  EXPECT_EQ(run("ids", two_tiers(dense), flows(17, 13)), base);
  EXPECT_EQ(run("both", two_tiers(gaps), flows(17, 13)), base);
  EXPECT_EQ(slurp(dir_ / "gaps" / "flows.csv"), slurp(dir_ / "dense" / "flows.csv"));
  // Declaring the nodes in another order of rows changes nothing, either: ids decide.
  const std::string rows = two_tiers(dense);
  const size_t second = rows.find("node,1,");
  const size_t third = rows.find("node,2,");
  EXPECT_EQ(
      run("rows", rows.substr(second, third - second) + rows.substr(0, second) + rows.substr(third),
          flows(0, 1)),
      base);
  // What does change the trajectory changes the fingerprint.
  EXPECT_NE(run("seed", two_tiers(dense), flows(0, 1), "4"), base);
  std::string other = flows(0, 1);
  other.replace(other.rfind("1500000"), 7, "1500001");
  EXPECT_NE(run("size", two_tiers(dense), other), base);
}

}  // namespace
}  // namespace trainyard::cli_test
