// SPDX-License-Identifier: MIT
// Public traces: counts against their summaries, verdicts on broken ones. Skipped without them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "chakra/reader.h"
#include "chakra/validator.h"
#include "sim/errors.h"
#include "tests/chakra/chakra_test_util.h"

namespace trainyard::chakra::test {
namespace {

namespace fs = std::filesystem;

std::map<std::string, std::string> as_row(const Summary& s) {
  std::map<std::string, std::string> row = {
      {"nodes", std::to_string(s.nodes)},
      {"n_metadata", std::to_string(s.metadata)},
      {"n_comp", std::to_string(s.comp)},
      {"n_comm_send", std::to_string(s.send)},
      {"n_comm_recv", std::to_string(s.recv)},
      {"n_comm_coll", std::to_string(s.coll)},
      {"n_cpu_op", std::to_string(s.cpu_ops)},
      {"data_edges", std::to_string(s.data_edges)},
      {"ctrl_edges", std::to_string(s.ctrl_edges)},
      {"missing_data_parents", std::to_string(s.missing_data_parents)},
      {"missing_ctrl_parents", std::to_string(s.missing_ctrl_parents)},
      {"sum_num_ops", std::to_string(s.num_ops)},
      {"sum_tensor_size", std::to_string(s.tensor_size)},
      {"sum_duration_us", std::to_string(s.duration_us)},
      {"sum_comp_duration_us", std::to_string(s.comp_duration_us)},
      {"bytes_send", std::to_string(s.bytes_send)},
      {"bytes_recv", std::to_string(s.bytes_recv)}};
  for (const char* kind :
       {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"}) {
    const auto it = s.collectives.find(kind);
    const bool found = it != s.collectives.end();
    row[std::string("cnt_") + kind] = std::to_string(found ? it->second.first : 0);
    row[std::string("bytes_") + kind] = std::to_string(found ? it->second.second : 0);
  }
  return row;
}

/// Compares every column that we count; returns how many there were.
int compare(const std::map<std::string, std::string>& expected, const Summary& summary,
            const std::string& where) {
  int compared = 0;
  for (const auto& [column, value] : as_row(summary)) {
    const auto it = expected.find(column);
    if (it == expected.end() || it->second.empty()) continue;
    EXPECT_EQ(it->second, value) << where << " " << column;
    ++compared;
  }
  return compared;
}

void check_set(const std::string& folder) {
  SCOPED_TRACE(folder);
  const auto rows = read_csv(folder + "/summary.csv");
  ASSERT_FALSE(rows.empty());
  const TraceSet set = read_set(folder);
  EXPECT_EQ(rows.size(), set.ranks.size() + 1);
  int compared = 0;
  for (const auto& row : rows) {
    const std::string& rank = row.at("rank");
    if (rank == "total") {
      compared += compare(row, summarise(set), "total");
      continue;
    }
    const size_t index = std::stoul(rank);
    ASSERT_LT(index, set.ranks.size());
    EXPECT_EQ(fs::path(set.ranks[index].file).filename().string(), row.at("file"));
    compared += compare(row, summarise(set.ranks[index]), "rank " + rank);
  }
  EXPECT_GE(compared, 4 * static_cast<int>(rows.size()));
}

std::string all_messages(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& f : findings) text += "  " + f.code + ": " + f.message + "\n";
  return text;
}

class SharedTraces : public ::testing::Test {
 protected:
  void SetUp() override {
    traces_ = shared_traces();
    if (traces_.empty()) GTEST_SKIP() << kNoSharedTraces;
  }
  std::string traces_;
};

class SharedCounts : public SharedTraces, public ::testing::WithParamInterface<const char*> {};

TEST_P(SharedCounts, EqualTheSummary) {
  check_set(traces_ + "/" + GetParam());
}

TEST_P(SharedCounts, HaveNoErrors) {
  const std::vector<Finding> findings = validate(read_set(traces_ + "/" + GetParam()));
  for (const Finding& f : findings) EXPECT_EQ(Severity::warning, f.severity) << f.message;
}

INSTANTIATE_TEST_SUITE_P(
    Sets, SharedCounts,
    ::testing::Values(
        "astra-sim/microbenchmarks/all_gather/4npus_1MB",
        "astra-sim/microbenchmarks/all_gather/8npus_1MB",
        "astra-sim/microbenchmarks/all_gather/16npus_1MB",
        "astra-sim/microbenchmarks/all_reduce/4npus_1MB",
        "astra-sim/microbenchmarks/all_reduce/8npus_1MB",
        "astra-sim/microbenchmarks/all_reduce/16npus_1MB",
        "astra-sim/microbenchmarks/all_to_all/4npus_1MB",
        "astra-sim/microbenchmarks/all_to_all/8npus_1MB",
        "astra-sim/microbenchmarks/all_to_all/16npus_1MB",
        "astra-sim/microbenchmarks/reduce_scatter/4npus_1MB",
        "astra-sim/microbenchmarks/reduce_scatter/8npus_1MB",
        "astra-sim/microbenchmarks/reduce_scatter/16npus_1MB",
        "astra-sim/custom_ring_allreduce_8npus_1MB", "stage/gpt_dp8", "stage/gpt_fsdp8",
        "stage/gpt_pp4", "stage/gpt_tp4", "stage/gpt_tp8sp", "stage/llama_dp2tp2pp2",
        "stage/llama_dp4tp4pp4", "stage/moe_dp2tp2ep2", "chakra/pytorch_dlrm_v100x8",
        "chakra/pytorch_resnet50_ddp_a100x2_rank0", "chakra/pytorch_resnet50_ddp_rank0",
        "chakra/text_converter_8npus/DLRM_HybridParallel",
        "chakra/text_converter_8npus/MLP_HybridParallel_Data_Model",
        "chakra/text_converter_8npus/MLP_HybridParallel_Model_Data",
        "chakra/text_converter_8npus/MLP_ModelParallel",
        "chakra/text_converter_8npus/Resnet50_DataParallel",
        "chakra/text_converter_8npus/microAllReduce", "chakra/text_converter_8npus/microAllToAll",
        "chakra/old_schema/v0.0.1", "chakra/json_multiverse_rank0", "stage/gpt_dp2tp2_v001",
        "astra-sim-artifacts/T1D-analytical/trace", "astra-sim-artifacts/T1D-ns3/trace"));

TEST_F(SharedTraces, SeparateGroupFilesOfArtifacts) {
  for (const auto& [name, groups] : {std::pair{"T2D-ns3", 8U}, {"T3D-analytical", 12U}}) {
    const std::string base = traces_ + "/astra-sim-artifacts/" + name;
    check_set(base + "/trace");
    const TraceSet set = read_set(base + "/trace", base + "/inputs/comm_group.json");
    EXPECT_EQ(groups, set.groups.size());
    for (const Finding& f : validate(set)) EXPECT_EQ(Severity::warning, f.severity) << f.message;
  }
}

TEST_F(SharedTraces, SeparateGroupFileOfTorusTraces) {
  const std::string base = traces_ + "/astra-sim-artifacts/T2D-analytical";
  check_set(base + "/trace");
  const TraceSet set = read_set(base + "/trace", base + "/inputs/comm_group.json");
  EXPECT_EQ(8U, set.groups.size());
  uint64_t float_names = 0;
  for (const Finding& f : validate(set)) {
    EXPECT_EQ(Severity::warning, f.severity) << f.message;
    if (f.code == "group_name_float") float_names += f.count;
  }
  EXPECT_GT(float_names, 0U);
}

TEST_F(SharedTraces, DlrmHasTwoMissingControlParentsPerRank) {
  int files = 0;
  const std::vector<Finding> findings = validate(read_set(traces_ + "/chakra/pytorch_dlrm_v100x8"));
  for (const Finding& f : findings) {
    if (f.code != "missing_ctrl_parent") continue;
    ++files;
    EXPECT_EQ(2U, f.count) << f.message;
  }
  EXPECT_EQ(8, files);
}

TEST_F(SharedTraces, RankZeroOnlyWarnsOnce) {
  const TraceSet set = read_set(traces_ + "/chakra/pytorch_resnet50_ddp_a100x2_rank0");
  ASSERT_EQ(1U, set.groups.size());
  EXPECT_EQ("0", set.groups[0].name);
  EXPECT_TRUE(set.groups[0].ranks.empty());
  const std::vector<Finding> findings = validate(set);
  int missing = 0;
  for (const Finding& f : findings) missing += f.code == "ranks_missing" ? 1 : 0;
  EXPECT_EQ(1, missing) << all_messages(findings);
}

TEST_F(SharedTraces, OldResnetBecomesHostOperationsAndDropsEdges) {
  const auto findings = validate(read_set(traces_ + "/chakra/pytorch_resnet50_ddp_rank0"));
  std::map<std::string, uint64_t> counts;
  for (const Finding& f : findings) counts[f.code] += f.count;
  EXPECT_EQ(14U, counts["comm_on_cpu"]);
  EXPECT_EQ(1277U, counts["missing_ctrl_parent"]);
  EXPECT_GE(counts["ctrl_cycle"], 1U);
}

/// The graph of dialects/expected.json: what it says about a node, read from ours.
nlohmann::json as_expected(const Node& node) {
  nlohmann::json out = {{"id", node.id}, {"deps", node.data_deps}};
  EXPECT_TRUE(node.ctrl_deps.empty());
  switch (node.type) {
    case NodeType::comp:
      out["t"] = "COMP";
      out["dur"] = node.duration_us;
      break;
    case NodeType::comm_coll:
      out["t"] = "COLL";
      out["ct"] = node.comm_type == 0 ? "ALL_REDUCE" : "another";
      break;
    case NodeType::comm_send:
    case NodeType::comm_recv:
      out["t"] = node.type == NodeType::comm_send ? "SEND" : "RECV";
      out["src"] = node.comm_src.value_or(-1);
      out["dst"] = node.comm_dst.value_or(-1);
      out["tag"] = node.comm_tag.value_or(-1);
      break;
    default:
      out["t"] = node_type_name(node.type);
      break;
  }
  if (node.comm_size) out["size"] = *node.comm_size;
  return out;
}

TEST_F(SharedTraces, EveryDialectLoadsToTheOneGraph) {
  const auto expected = nlohmann::json::parse(slurp(traces_ + "/dialects/expected.json"));
  std::map<std::string, std::string> names;
  int read = 0;
  for (const auto& entry : fs::directory_iterator(traces_ + "/dialects")) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().string();
    SCOPED_TRACE(name);
    ++read;
    const TraceSet set = read_set(entry.path().string());
    ASSERT_EQ(2U, set.ranks.size());
    for (size_t rank = 0; rank < 2; ++rank) {
      auto nodes = nlohmann::json::array();
      for (const Node& node : set.ranks[rank].nodes) nodes.push_back(as_expected(node));
      std::sort(nodes.begin(), nodes.end(),
                [](const auto& a, const auto& b) { return a["id"] < b["id"]; });
      EXPECT_EQ(expected.at(std::to_string(rank)), nodes);
      names[name] = set.ranks[rank].dialect;
    }
    EXPECT_TRUE(validate(set).empty()) << all_messages(validate(set));
  }
  EXPECT_EQ(15, read);  // 14 binary encodings and one in JSON
  for (const auto& [name, dialect] : names) {
    const std::string wanted = name == "json_feeder"             ? "feeder JSON"
                               : name.starts_with("v0.0.3_uint") ? "0.0.3+uint"
                                                                 : name.substr(1, 5);
    EXPECT_EQ(wanted, dialect) << name;
  }
}

/// Sets of a folder that holds several: counts, dialect, and the verdict that `issues` implies.
void check_prefixes(const std::string& folder, const std::set<std::string>& dialects) {
  SCOPED_TRACE(folder);
  EXPECT_THROW(read_set(folder), UserError);  // holds several sets
  int sets = 0;
  for (const auto& row : read_csv(folder + "/summary.csv")) {
    if (row.at("rank") != "total") continue;
    const std::string& prefix = row.at("prefix");
    SCOPED_TRACE(prefix);
    const TraceSet set = read_set(folder + "/" + prefix);
    EXPECT_EQ(4U, set.ranks.size());
    EXPECT_GE(compare(row, summarise(set), prefix), 4);
    EXPECT_TRUE(dialects.count(set.ranks[0].dialect) == 1) << set.ranks[0].dialect;
    std::set<std::string> errors;
    std::set<std::string> all;
    for (const Finding& f : validate(set)) {
      all.insert(f.code);
      if (f.severity == Severity::error) errors.insert(f.code);
    }
    const auto issue = row.find("issues");
    const std::string issues = issue == row.end() ? "" : issue->second;
    if (issues.find("without_") != std::string::npos) {
      EXPECT_EQ(1U, errors.count("p2p_without_peer")) << issues;
    } else {
      EXPECT_TRUE(errors.empty()) << all_messages(validate(set));
    }
    if (issues.find("declared_type") != std::string::npos) {
      EXPECT_EQ(1U, all.count("odd_attribute"));
    }
    ++sets;
  }
  EXPECT_GE(sets, 14);
}

TEST_F(SharedTraces, OldGeneratorSetsRead) {
  check_prefixes(traces_ + "/chakra/old_schema/v0.0.3_uint", {"0.0.3", "0.0.3+uint"});
}

TEST_F(SharedTraces, StageInOldSchemaAndJsonIsTheSameModel) {
  const TraceSet old = read_set(traces_ + "/stage/gpt_dp2tp2_v001");
  const TraceSet json = read_set(traces_ + "/stage/gpt_dp2tp2_json");
  EXPECT_EQ("0.0.1", old.ranks.at(0).dialect);
  EXPECT_EQ("STAGE JSON", json.ranks.at(0).dialect);
  EXPECT_EQ("symbolic_tensor_network", json.ranks[0].schema);  // sizes are elements
  EXPECT_EQ(as_row(summarise(old)), as_row(summarise(json)));
  ASSERT_EQ(old.ranks.size(), json.ranks.size());
  for (size_t r = 0; r < old.ranks.size(); ++r) {
    ASSERT_EQ(old.ranks[r].nodes.size(), json.ranks[r].nodes.size());
    for (size_t i = 0; i < old.ranks[r].nodes.size(); ++i) {
      EXPECT_EQ(old.ranks[r].nodes[i].pg_name, json.ranks[r].nodes[i].pg_name);
      EXPECT_EQ(old.ranks[r].nodes[i].name, json.ranks[r].nodes[i].name);
    }
  }
  EXPECT_TRUE(validate(json).empty() || validate(json)[0].severity == Severity::warning)
      << all_messages(validate(json));
}

TEST_F(SharedTraces, JsonOfTheOldResnetIsTheSameGraph) {
  const std::string folder = traces_ + "/chakra/pytorch_resnet50_ddp_rank0";
  const TraceSet binary = read_set(folder + "/chakra");
  const TraceSet json = read_set(folder + "/chakra.{rank}.json");
  EXPECT_EQ("0.0.4", binary.ranks.at(0).dialect);
  EXPECT_EQ("feeder JSON", json.ranks.at(0).dialect);
  EXPECT_EQ(binary.ranks[0].nodes.size(), json.ranks[0].nodes.size());
  EXPECT_EQ(summarise(binary).cpu_ops, summarise(json).cpu_ops);
  EXPECT_EQ(7U, read_set(folder + "/small_chakra").ranks.at(0).nodes.size());
}

TEST_F(SharedTraces, MultiverseWarnsOfItsOddities) {
  const TraceSet set = read_set(traces_ + "/chakra/json_multiverse_rank0");
  EXPECT_EQ("JSON array", set.ranks.at(0).dialect);
  std::map<std::string, uint64_t> counts;
  for (const Finding& f : validate(set)) counts[f.code] += f.count;
  // The issues column: comm_src and comm_dst hold ids, no tags, other ranks missing.
  EXPECT_EQ(3840U, counts["p2p_without_tag"]);
  EXPECT_GE(counts["p2p_foreign_side"], 3838U);  // an id may happen to be the rank
  EXPECT_EQ(1U, counts["ranks_missing"]);
}

TEST_F(SharedTraces, RawPytorchTracesAreRefusedByName) {
  for (const char* name :
       {"hta_1.0.1_simple_add_et.json.gz", "param_1.1.0-chakra.0.0.4_resnet_2gpu_et.json.gz",
        "hta_alexnet_kineto.json.gz"}) {
    try {
      read_rank(traces_ + "/pytorch/" + name);
      ADD_FAILURE() << name << " not refused";
    } catch (const UserError& error) {
      EXPECT_NE(std::string::npos, std::string(error.what()).find("this is a ")) << error.what();
    }
  }
}

TEST_F(SharedTraces, GeneratorSetsRead) {
  check_prefixes(traces_ + "/chakra/generator_4npus", {"0.0.4"});
}

TEST_F(SharedTraces, VerdictsOnBrokenTraces) {
  const std::string folder = traces_ + "/invalid";
  int judged = 0;
  for (const auto& row : read_csv(folder + "/expected.csv")) {
    const std::string& name = row.at("case");
    if (!fs::is_directory(folder + "/" + name)) continue;
    std::string verdict = "ok";
    std::string why;
    try {
      for (const Finding& f : validate(read_set(folder + "/" + name))) {
        why += "  " + f.message + "\n";
        if (f.severity == Severity::error) verdict = "error";
        if (f.severity == Severity::warning && verdict == "ok") verdict = "warning";
      }
    } catch (const UserError& error) {
      verdict = "error";
      why = error.what();
    }
    EXPECT_EQ(row.at("expected"), verdict) << name << " (" << row.at("defect") << ")\n" << why;
    ++judged;
  }
  EXPECT_GE(judged, 36);
}

TEST_F(SharedTraces, FolderOfFoldersSaysWhatToDo) {
  try {
    read_set(traces_ + "/astra-sim/microbenchmarks");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string::npos, std::string(error.what()).find("all_gather, all_reduce"))
        << error.what();
  }
}

}  // namespace
}  // namespace trainyard::chakra::test
