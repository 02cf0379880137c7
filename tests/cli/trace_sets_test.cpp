// SPDX-License-Identifier: MIT
// The program behind tools/trace_sets: rows, verdicts, exit codes; and the public traces by it.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "chakra/writer.h"
#include "tests/cli/cli_test_util.h"

namespace trainyard::cli_test {
namespace {

class TraceSets : public CliTest {
 protected:
  [[nodiscard]] Outcome sets(const std::vector<std::string>& arguments) const {
    return Process(arguments, dir_, "trainyard-trace-sets").wait();
  }
  /// A set of ranks that all compute for `us` and, with bytes, all-reduce.
  void write_set(const std::string& prefix, uint32_t ranks, uint64_t us, int64_t bytes,
                 const std::string& group = {}) const {
    for (uint32_t r = 0; r < ranks; ++r) {
      chakra::RankTrace t;
      chakra::Node compute;
      compute.id = 1;
      compute.name = "gemm";
      compute.type = chakra::NodeType::comp;
      compute.duration_us = us;
      t.nodes.push_back(compute);
      if (bytes > 0) {
        chakra::Node reduce;
        reduce.id = 2;
        reduce.name = "all_reduce";
        reduce.type = chakra::NodeType::comm_coll;
        reduce.data_deps = {1};
        reduce.comm_type = 0;
        reduce.comm_size = bytes;
        if (!group.empty()) reduce.pg_name = group;
        t.nodes.push_back(reduce);
      }
      const fs::path file = dir_ / (prefix + "." + std::to_string(r) + ".et");
      fs::create_directories(file.parent_path());
      chakra::write_rank(file.string(), t);
    }
  }
  static nlohmann::json last_line(const std::string& out) {
    const std::string text = out.substr(0, out.find_last_not_of('\n') + 1);
    return nlohmann::json::parse(text.substr(text.rfind('\n') + 1), nullptr, false);
  }
  /// The words of the row of a set.
  static std::vector<std::string> row(const std::string& out, const std::string& set) {
    std::istringstream in(out);
    for (std::string line; std::getline(in, line);) {
      if (line.rfind(set + " ", 0) != 0) continue;
      std::istringstream words(line);
      std::vector<std::string> all;
      for (std::string word; words >> word;) all.push_back(word);
      return all;
    }
    return {};
  }
};

TEST_F(TraceSets, OneRowPerSetWithFiguresOrTheReason) {
  write_set("t/good/a", 4, 5, 4096);
  write_set("t/good/b", 2, 7, 0);
  write_set("t/zero/z", 1, 0, 0);
  write_set("t/torus/trace/x", 4, 1, 4096, "1");
  fs::create_directories(dir_ / "t/torus/inputs");
  put("t/torus/inputs/comm_group.json", "{\"1\": [0, 1, 2, 3]}\n");
  put("t/good/noise.0.et", "this is no trace at all, only text");
  put("t/good/comm_group.0.json", "{}\n");
  const Outcome o = sets({"--traces", "t"});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_EQ(last_line(o.out),
            nlohmann::json({{"sets", 5}, {"ran", 3}, {"refused", 2}, {"failed", 0}}))
      << o.out;
  const auto a = row(o.out, "good/a");
  ASSERT_EQ(a.size(), 8U) << o.out;
  EXPECT_EQ(a[1], "4");
  EXPECT_EQ(a[2], "8");  // nodes
  EXPECT_GT(std::stod(a[3]), 0);
  EXPECT_GT(std::stod(a[4]), 5);  // computes for 5 us, then communicates
  EXPECT_EQ(a[5], std::to_string(2 * 3 * 4096));
  EXPECT_GT(std::stoull(a[6]), 0U);
  const auto b = row(o.out, "good/b");
  ASSERT_EQ(b.size(), 8U) << o.out;
  EXPECT_EQ(b[4], "7.000");
  EXPECT_EQ(b[5], "0");
  EXPECT_EQ(row(o.out, "torus/trace/x")[5], std::to_string(2 * 3 * 4096));  // its group was found
  EXPECT_TRUE(has(o.out, "refused: ")) << o.out;
  EXPECT_TRUE(has(o.out, "nothing takes any time in zero/z")) << o.out;
  EXPECT_TRUE(has(o.out, "good/noise.0.et")) << o.out;

  const Outcome only = sets({"--traces", "t", "--only", "good/b", "--markdown"});
  EXPECT_EQ(only.code, 0) << only.err;
  EXPECT_EQ(last_line(only.out)["sets"], 1);
  EXPECT_TRUE(has(only.out, "| good/b | 2 | 2 | ")) << only.out;
}

TEST_F(TraceSets, OtherEndsAreFailures) {
  write_set("t/good/a", 2, 5, 4096);
  put("t/chakra_index.csv", "folder,prefix,ranks\ngood,a,2\ngood,gone,2\n");
  const Outcome gone = sets({"--traces", "t"});
  EXPECT_EQ(gone.code, 1) << gone.out;
  EXPECT_EQ(last_line(gone.out)["failed"], 1);
  EXPECT_TRUE(has(gone.out, "FAILED: in chakra_index.csv")) << gone.out;

  fs::remove(dir_ / "t/chakra_index.csv");
  write_set("t/invalid/fine/a", 2, 5, 0);
  put("t/invalid/expected.csv", "case,ranks,expected,defect\nfine,2,error,none at all\n");
  const Outcome ran = sets({"--traces", "t"});
  EXPECT_EQ(ran.code, 1) << ran.out;
  EXPECT_TRUE(has(ran.out, "FAILED: ran, though expected.csv calls it an error")) << ran.out;

  // A program that ends in another way than trainyard does.
  const Outcome odd = sets({"--traces", "t", "--trainyard", "/bin/false", "--only", "good"});
  EXPECT_EQ(odd.code, 1) << odd.out;
  EXPECT_TRUE(has(odd.out, "FAILED: exit code 1")) << odd.out;
}

TEST_F(TraceSets, WithoutTracesItSaysSoAndSucceeds) {
  const Outcome o = sets({"--traces", "nowhere"});
  EXPECT_EQ(o.code, 0);
  EXPECT_TRUE(has(o.err, "SKIPPED")) << o.err;
  EXPECT_EQ(last_line(o.out)["sets"], 0);
  EXPECT_EQ(sets({"--fly"}).code, 2);
  fs::create_directories(dir_ / "empty");
  EXPECT_EQ(sets({"--traces", "empty"}).code, 2);
}

/// The public traces: every set runs or is refused; the broken ones as expected.csv says.
class PublicTraceSets : public TraceSets {
 protected:
  [[nodiscard]] nlohmann::json run(const std::string& only) const {
    const Outcome o = sets({"--only", only});
    EXPECT_EQ(o.code, 0) << o.out << o.err;
    return last_line(o.out);
  }
  void SetUp() override {
    TraceSets::SetUp();
    const Outcome o = sets({"--only", "dialects/v0.0.4/"});
    if (has(o.err, "SKIPPED")) {
      GTEST_SKIP() << "shared/traces not found: that every public trace set runs is unproven";
    }
  }
};

TEST_F(PublicTraceSets, DialectsRunAndBrokenOnesAreRefused) {
  const auto dialects = run("dialects/");
  EXPECT_EQ(dialects["ran"], 15);
  EXPECT_EQ(dialects["sets"], 15);
  EXPECT_EQ(run("invalid/")["sets"], 36);
}

TEST_F(PublicTraceSets, slow_EverySetRunsOrIsRefused) {
  const auto all = run("");
  EXPECT_GE(all["sets"], 120);
  EXPECT_GE(all["ran"], 85);
}

}  // namespace
}  // namespace trainyard::cli_test
