// SPDX-License-Identifier: MIT
// Public traces: counts against their summaries, verdicts on broken ones. Skipped without them.
#include <gtest/gtest.h>

#include <filesystem>
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
    ::testing::Values("astra-sim/microbenchmarks/all_gather/4npus_1MB",
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
                      "astra-sim/custom_ring_allreduce_8npus_1MB", "stage/gpt_dp8",
                      "stage/gpt_fsdp8", "stage/gpt_pp4", "stage/gpt_tp4", "stage/gpt_tp8sp",
                      "stage/llama_dp2tp2pp2", "stage/llama_dp4tp4pp4", "stage/moe_dp2tp2ep2",
                      "chakra/pytorch_dlrm_v100x8", "chakra/pytorch_resnet50_ddp_a100x2_rank0",
                      "chakra/pytorch_resnet50_ddp_rank0",
                      "chakra/text_converter_8npus/DLRM_HybridParallel",
                      "chakra/text_converter_8npus/MLP_HybridParallel_Data_Model",
                      "chakra/text_converter_8npus/MLP_ModelParallel",
                      "chakra/text_converter_8npus/Resnet50_DataParallel",
                      "chakra/text_converter_8npus/microAllReduce",
                      "chakra/text_converter_8npus/microAllToAll"));

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

TEST_F(SharedTraces, EveryDialectOfSchema004ReadsAlike) {
  int read = 0;
  int refused = 0;
  for (const auto& entry : fs::directory_iterator(traces_ + "/dialects")) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("v0.0.")) continue;
    SCOPED_TRACE(name);
    if (!name.starts_with("v0.0.4")) {
      try {
        read_set(entry.path().string());
        ADD_FAILURE() << "not refused";
      } catch (const UserError& error) {
        const std::string text = error.what();
        EXPECT_NE(std::string::npos, text.find("schema " + name.substr(1, 5))) << text;
        EXPECT_NE(std::string::npos, text.find("is not supported yet")) << text;
      }
      ++refused;
      continue;
    }
    ++read;
    const TraceSet set = read_set(entry.path().string());
    ASSERT_EQ(2U, set.ranks.size());
    for (uint32_t rank = 0; rank < 2; ++rank) {
      std::map<uint64_t, const Node*> nodes;
      for (const Node& node : set.ranks[rank].nodes) nodes[node.id] = &node;
      ASSERT_EQ(4U, nodes.size());
      EXPECT_EQ(NodeType::comp, nodes[10]->type);
      EXPECT_EQ(5U, nodes[10]->duration_us);
      EXPECT_EQ(NodeType::comm_coll, nodes[11]->type);
      EXPECT_EQ(0, nodes[11]->comm_type);
      EXPECT_EQ(1048576, nodes[11]->comm_size);
      EXPECT_EQ(std::vector<uint64_t>{10}, nodes[11]->data_deps);
      EXPECT_EQ(rank == 0 ? NodeType::comm_send : NodeType::comm_recv, nodes[12]->type);
      EXPECT_EQ(4096, nodes[12]->comm_size);
      EXPECT_EQ(0, nodes[12]->comm_src);
      EXPECT_EQ(1, nodes[12]->comm_dst);
      EXPECT_EQ(7, nodes[12]->comm_tag);
      EXPECT_EQ((std::vector<uint64_t>{12, 10}), nodes[13]->data_deps);
    }
    EXPECT_TRUE(validate(set).empty()) << all_messages(validate(set));
  }
  EXPECT_EQ(9, read);
  EXPECT_EQ(5, refused);
}

TEST_F(SharedTraces, OldSchemasAreRefusedByName) {
  int files = 0;
  for (const char* folder :
       {"chakra/old_schema/v0.0.1", "chakra/old_schema/v0.0.3_uint", "stage/gpt_dp2tp2_v001"}) {
    for (const auto& entry : fs::directory_iterator(traces_ + "/" + folder)) {
      const std::string ext = entry.path().extension().string();
      if (ext != ".et" && ext != ".eg") continue;
      ++files;
      SCOPED_TRACE(entry.path().string());
      try {
        read_rank(entry.path().string());
        ADD_FAILURE() << "not refused";
      } catch (const UserError& error) {
        EXPECT_NE(std::string::npos, std::string(error.what()).find("is not supported yet"))
            << error.what();
      }
    }
  }
  EXPECT_GT(files, 70);
}

TEST_F(SharedTraces, GeneratorSetsRead) {
  const std::string folder = traces_ + "/chakra/generator_4npus";
  EXPECT_THROW(read_set(folder), UserError);  // holds several sets
  std::set<std::string> prefixes;
  for (const auto& row : read_csv(folder + "/summary.csv")) prefixes.insert(row.at("prefix"));
  EXPECT_GE(prefixes.size(), 10U);
  for (const auto& row : read_csv(folder + "/summary.csv")) {
    if (row.at("rank") != "total") continue;
    const TraceSet set = read_set(folder + "/" + row.at("prefix"));
    EXPECT_EQ(4U, set.ranks.size());
    compare(row, summarise(set), row.at("prefix"));
  }
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
