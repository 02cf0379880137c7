// SPDX-License-Identifier: MIT
// The documented keys of a scenario are those that the reader knows.
#include "tools/scenario/scenario_keys.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "tools/scenario/scenario.h"
#include "workload/generator/training.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class ScenarioKeys : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() /
           ("trainyard_keys_" + std::to_string(::getpid()) + "_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  [[nodiscard]] Scenario load(const std::string& text,
                              const std::vector<std::string>& settings = {}) const {
    std::ofstream(dir_ / "s.yaml") << text;
    ScenarioOverrides overrides;
    overrides.settings = settings;
    return load_scenario((dir_ / "s.yaml").string(), overrides);
  }
  /// The error of reading it, "" when there is none.
  [[nodiscard]] std::string problem(const std::string& text,
                                    const std::vector<std::string>& settings = {}) const {
    try {
      (void)load(text, settings);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  }

  fs::path dir_;
};

const char* const kTraffic = "traffic: [{pattern: incast, size: 64KiB}]\n";
const char* const kTrace = "workload: {chakra: t}\n";
const char* const kModel =
    "cluster: {nodes: 1}\n"
    "workload: {model: {layers: 4, hidden: 64, heads: 8, vocab: 128}, layout: {pp: 2}}\n";

const char* const kStorage =
    "cluster: {nodes: 2}\n"
    "workload: {model: {layers: 4, hidden: 64, heads: 8, vocab: 128}, layout: {dp: 8}, "
    "checkpoint: {load: true}}\n";

/// A scenario in which the key stands.
const char* home(const std::string& key, const char* otherwise) {
  const std::string inner = key.rfind("workload.", 0) == 0 ? key.substr(9) : "";
  for (const ParamSpec& spec : training_params()) {
    if (spec.name == inner) return kModel;
  }
  if (key.rfind("storage.", 0) == 0) return kStorage;
  return key.rfind("memory.", 0) == 0 ? kModel : otherwise;
}

/// Keys of the entries of a list: tests of their own.
bool is_list(const ModelDoc& block) {
  return block.name == "traffic" || block.name == "faults" || block.name == "jobs";
}

/// A setting and what it cannot stand without.
std::vector<std::string> setting(const std::string& key, const std::string& word) {
  std::vector<std::string> out = {key + "=" + word};
  if (key == "storage.network" && word == "shared") out.emplace_back("storage.where=node1");
  if (key == "simulation.noise" && word == "shared") {
    out.emplace_back("simulation.fast_path=exact");
  }
  if (word == "fp4") out.emplace_back("cluster.device=b200-sxm");
  if (word == "greedy") out.emplace_back("workload.batch.document=64");
  if (word.rfind("dualpipe", 0) == 0) out.emplace_back("workload.batch.global=16");
  return out;
}

std::string full_key(const ModelDoc& block, const ParamSpec& key) {
  return block.name == "scenario" ? key.name : block.name + "." + key.name;
}

TEST_F(ScenarioKeys, EachHasHelpAndSourceAndAnAcceptedDefault) {
  std::set<std::string> seen;
  for (const ModelDoc& block : scenario_blocks()) {
    EXPECT_EQ(block.category, "scenario");
    EXPECT_FALSE(block.help.empty()) << block.name;
    EXPECT_NO_THROW(Params{block.params}) << block.name;
    for (const ParamSpec& key : block.params) {
      const std::string full = full_key(block, key);
      EXPECT_TRUE(seen.insert(full).second) << full << " twice";
      EXPECT_FALSE(key.help.empty()) << full;
      EXPECT_FALSE(key.source.empty()) << full;
      ASSERT_NE(find_scenario_key(full), nullptr) << full;
      EXPECT_EQ(find_scenario_key(full)->help, key.help);
      EXPECT_EQ(scenario_key(full).name, full.substr(full.rfind('.') + 1));
    }
  }
  EXPECT_GE(seen.size(), 25U);
  EXPECT_EQ(find_scenario_key("fabric.transport.payload"), nullptr);  // of a model
  EXPECT_EQ(find_scenario_key("flux"), nullptr);
}

TEST_F(ScenarioKeys, DefaultsOfTheReaderAreTheDocumentedOnes) {
  size_t checked = 0;
  for (const char* text : {kTraffic, kTrace, kModel, kStorage}) {
    const Scenario s = load(text);
    for (const Setting& x : s.resolved) {
      if (x.origin.kind != Origin::Kind::default_value) continue;
      const ParamSpec* key = find_scenario_key(x.key);
      if (key == nullptr || key->default_value.empty()) continue;
      ++checked;
      EXPECT_EQ(x.value, key->default_value) << x.key;
      EXPECT_EQ(x.source, key->source) << x.key;
    }
  }
  EXPECT_GE(checked, 30U);
}

TEST_F(ScenarioKeys, EveryKeyWithADefaultIsListedAmongTheSettings) {
  std::set<std::string> listed;
  for (const char* text : {kTraffic, kTrace, kModel, kStorage}) {
    for (const Setting& x : load(text).resolved) listed.insert(x.key);
  }
  for (const ModelDoc& block : scenario_blocks()) {
    for (const ParamSpec& key : block.params) {
      if (key.default_value.empty() || is_list(block)) continue;
      EXPECT_EQ(listed.count(full_key(block, key)), 1U) << full_key(block, key);
    }
  }
}

TEST_F(ScenarioKeys, EveryDocumentedKeyIsKnownToTheReader) {
  for (const ModelDoc& block : scenario_blocks()) {
    for (const ParamSpec& key : block.params) {
      if (is_list(block)) continue;
      const std::string full = full_key(block, key);
      // A neighbour that does not exist: the message lists what does.
      const size_t dot = full.rfind('.');
      const std::string beside = dot == std::string::npos ? "" : full.substr(0, dot + 1);
      const std::string m = problem(home(full, kTraffic), {beside + "fluxcapacitor=1"});
      EXPECT_TRUE(has(m, "unknown key 'fluxcapacitor'")) << full << ": " << m;
      EXPECT_TRUE(has(m.substr(m.find("known: ")), full.substr(beside.size())))
          << full << ": " << m;
    }
  }
}

TEST_F(ScenarioKeys, WordsAreAcceptedAndOthersRefused) {
  size_t words = 0;
  for (const ModelDoc& block : scenario_blocks()) {
    for (const ParamSpec& key : block.params) {
      if (is_list(block)) continue;
      const std::string full = full_key(block, key);
      for (const std::string& word : key.choices) {
        EXPECT_EQ(problem(home(full, kTrace), setting(full, word)), "") << full << " = " << word;
        ++words;
      }
      if (key.type == ParamType::text) continue;
      EXPECT_TRUE(has(problem(home(full, kTrace), {full + "=nonsense"}), "nonsense")) << full;
    }
  }
  EXPECT_GE(words, 14U);
  EXPECT_TRUE(has(problem(kTraffic, {"cluster.nodes=0"}), "1 to 1000000"));
}

}  // namespace
}  // namespace trainyard
