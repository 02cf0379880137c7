// SPDX-License-Identifier: MIT
// Memory and FLOPs against the formulas, and against published tables where they are at hand.
#include "workload/generator/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/workload/on_rails.h"
#include "tests/workload/training_test_util.h"
#include "workload/generator/flops.h"

namespace trainyard {
namespace {

using test::gpt;
using test::Settings;
using test::training;

double gb(int64_t bytes) {
  return static_cast<double>(bytes) * 1e-9;
}

// A:F16, A:F17
TEST(Memory, ZeroDividesTheState) {
  for (const auto& [dp, zero, per_parameter] : {std::tuple{1, 0, 16.0},
                                                {64, 1, 4 + 12.0 / 64},
                                                {64, 2, 2 + 14.0 / 64},
                                                {64, 3, 16.0 / 64},
                                                {1024, 3, 16.0 / 1024}}) {
    const Training t = training("gpt3-7b", {{"layout.dp", std::to_string(dp)},
                                            {"layout.zero", std::to_string(zero)},
                                            {"precision.compute", "fp16"}});
    int64_t parameters = 0;
    for (int64_t u = 0; u < t.units(); ++u) parameters += t.dense_on_rank(u);
    const StageMemory m = stage_memory(t, 0);
    EXPECT_NEAR(per_parameter,
                static_cast<double>(m.parameters + m.gradients + m.optimizer) /
                    static_cast<double>(parameters),
                1e-6);
  }
}

// A:F21 to A:F25, bytes per layer over s b h.
TEST(Memory, ActivationsOfALayer) {
  const auto per_sbh = [](const ModelCard& m, Settings s) {
    s.insert(s.end(), {{"layout.dp", "1"}, {"attention", "scores"}});
    const Training t = training(m, s);
    return static_cast<double>(layer_activations(t, 0)) /
           static_cast<double>(2048 * m.hidden * t.micro_batch);
  };
  const ModelCard g = gpt(96, 12288, 96);
  EXPECT_DOUBLE_EQ(34 + 80, per_sbh(g, {}));  // F22
  EXPECT_NEAR(2.869e9, (34 + 80) * 2048.0 * 12288, 0.001e9);
  EXPECT_DOUBLE_EQ(10 + 24 / 8.0 + 80 / 8.0,
                   per_sbh(g, {{"layout.tp", "8"}, {"layout.sequence_parallel", "false"}}));  // F21
  EXPECT_DOUBLE_EQ((34 + 80) / 8.0, per_sbh(g, {{"layout.tp", "8"}}));                        // F23
  EXPECT_DOUBLE_EQ(34 / 8.0, per_sbh(g, {{"layout.tp", "8"}, {"recompute", "selective"}}));   // F24
  EXPECT_DOUBLE_EQ(2.0, per_sbh(g, {{"recompute", "full"}}));
  EXPECT_NEAR(0.702, 1 - per_sbh(g, {{"recompute", "selective"}}) / per_sbh(g, {}), 0.0005);  // F25
  const ModelCard mt = gpt(105, 20480, 128);
  EXPECT_NEAR(0.653, 1 - per_sbh(mt, {{"recompute", "selective"}}) / per_sbh(mt, {}), 0.0005);
}

TEST(Memory, GPipeHoldsAllMicrobatchesAnd1F1BThoseOfTheStagesBehind) {
  const auto held = [](const char* kind, int64_t stage) {
    const Training t = training(
        gpt(8, 1024, 16),
        {{"layout.pp", "4"}, {"layout.dp", "1"}, {"batch.global", "16"}, {"schedule.kind", kind}});
    return static_cast<double>(stage_activations(t, stage)) /
           static_cast<double>(layer_activations(t, 0));
  };
  EXPECT_DOUBLE_EQ(2 * 16, held("gpipe", 0));
  EXPECT_DOUBLE_EQ(2 * 4, held("1f1b", 0));
  EXPECT_DOUBLE_EQ(2 * 1, held("1f1b", 3));
  EXPECT_DOUBLE_EQ(2 * 4, held("split-backward", 3));
}

// ---- FLOPs

TEST(Flops, GptFormsOfTheTwoPapers) {
  for (const auto& [layers, hidden, heads] : {std::tuple{48, 6144, 64}, {96, 12288, 96}}) {
    Settings s = {{"layout.dp", "1"}, {"batch.global", "64"}, {"recompute", "full"}};
    const StepFlops f = step_flops(training(gpt(layers, hidden, heads), s));
    const double l = layers;
    const double h = hidden;
    const double common = 64.0 * 2048 * l * h * h;
    EXPECT_NEAR(1, f.model / (72 * common * (1 + 2048 / (6 * h) + 51200 / (12 * h * l))), 1e-12);
    EXPECT_NEAR(1, f.hardware / (96 * common * (1 + 2048 / (6 * h) + 51200 / (16 * l * h))), 1e-12);
    // A:F26: selective recompute costs s / 6h of the layers.
    s.back().second = "selective";
    const StepFlops again = step_flops(training(gpt(layers, hidden, heads), s));
    EXPECT_NEAR(2048 / (6 * h) / 3, (again.hardware - again.model) / (72 * common), 1e-12);
  }
}

// The ops carry what the formula counts: forward, two halves of backward, causal attention with the
// 2.5-fold backward of flash attention.
TEST(Flops, OpsCarryTheFlopsOfTheFormula) {
  for (const char* recompute : {"none", "full"}) {
    const ModelCard m = load_model_card("llama3-8b", {});
    const Training t = training(m, {{"layout.tp", "2"},
                                    {"layout.pp", "2"},
                                    {"layout.dp", "1"},
                                    {"batch.global", "4"},
                                    {"recompute", recompute}});
    const GeneratedJob g = generate_job(t, "j", 1);
    double sum = 0;
    for (const auto& rank : g.job.ranks) {
      for (const Op& op : rank.graph->ops) sum += static_cast<double>(op.flops);
    }
    const StepFlops f = step_flops(t);
    const double attention = 4.0 * 2048 * 32 * 12 * 4096 * 2048;  // whole, forward and backward
    const double padding = 4.0 * 2048 * 6 * static_cast<double>(t.padded_vocab() - m.vocab) * 4096;
    const bool full = t.recompute == Recompute::full;
    // Forward 1/3 of it, backward 2.5/3 instead of 2/3, halved; again forward.
    const double causal = attention * (1 + 2.5 + (full ? 1 : 0)) / 3 / 2;
    const double whole = attention * (full ? 4.0 : 3.0) / 3;
    EXPECT_NEAR(1, sum / (f.hardware - whole + causal + padding), 1e-12);
  }
}

// ---- published tables

using Row = std::map<std::string, std::string>;

std::vector<Row> read_csv(const std::string& path) {
  std::vector<Row> rows;
  std::ifstream in(path);
  std::vector<std::string> head;
  std::string line;
  while (std::getline(in, line)) {
    std::vector<std::string> cells(1);
    bool quoted = false;
    for (const char c : line) {
      if (c == '"') {
        quoted = !quoted;
      } else if (c == ',' && !quoted) {
        cells.emplace_back();
      } else if (c != '\r') {
        cells.back() += c;
      }
    }
    if (head.empty()) {
      head = cells;
      continue;
    }
    Row& row = rows.emplace_back();
    for (size_t i = 0; i < std::min(head.size(), cells.size()); ++i) row[head[i]] = cells[i];
  }
  return rows;
}

std::string published(const char* name) {
  const std::string shared = test::shared_folder();
  return shared.empty() ? "" : shared + "/reference/published-runs/" + name;
}

/// The model of a row of dense GPT-like or Llama-like shape.
ModelCard card_of(const Row& row) {
  const auto n = [&](const char* key) { return std::atoll(row.at(key).c_str()); };
  // GPT models whose vocabulary is not printed have that of GPT-2; figures of the recomputation
  // paper are of layers alone.
  const bool layers_only = row.at("id").rfind("korth", 0) == 0;
  const int64_t vocab = n("vocab") > 0 ? n("vocab") : layers_only ? 1 : 50257;
  ModelCard m = gpt(n("layers"), n("hidden"), n("heads"), vocab);
  m.ffn = n("ffn");
  m.kv_heads = n("kv_heads") > 0 ? n("kv_heads") : m.heads;
  if (m.ffn != 4 * m.hidden) {
    m.gated = true;
    m.biases = m.tied_embeddings = false;
  }
  return m;
}

Training training_of(const Row& row) {
  // The recomputation paper precedes flash attention.
  const bool scores = row.at("id").rfind("korth", 0) == 0;
  Settings s = {{"attention", scores ? "scores" : "flash"}};
  const auto put = [&](const char* key, const char* column, const char* fallback) {
    const std::string& value = row.at(column);
    s.emplace_back(key, value.empty() ? fallback : value);
  };
  put("layout.tp", "tp", "1");
  put("layout.pp", "pp", "1");
  put("layout.cp", "cp", "1");
  put("layout.dp", "dp", "1");
  put("batch.sequence", "seq", "2048");
  put("batch.micro", "micro_batch", "1");
  put("batch.global", "global_batch_seqs", "auto");
  put("recompute", "recompute", "none");
  put("layout.sequence_parallel", "seq_parallel", "0");
  s.back().second = s.back().second == "1" ? "true" : "false";
  if (std::atoi(row.at("vpp").c_str()) > 1) {
    s.emplace_back("schedule.kind", "interleaved");
    s.emplace_back("schedule.chunks", row.at("vpp"));
  }
  if (row.at("precision") == "fp16" && !scores) s.emplace_back("precision.compute", "fp16");
  const std::string& zero = row.at("zero_stage_or_fsdp");
  s.emplace_back("layout.zero", zero.rfind("fsdp", 0) == 0 ? "3" : "1");
  return training(card_of(row), s);
}

/// A quantity of arXiv:2205.05198 by our formulas, in its unit.
double of_the_paper(const Row& row) {
  const Training t = training_of(row);
  if (row.at("quantity") == "activations") {
    return static_cast<double>(stage_activations(t, 0)) / 1073741824;
  }
  if (row.at("quantity") == "activations relative to baseline") {
    Training base = t;
    base.recompute = Recompute::none;
    base.sequence_parallel = false;
    return 100 * static_cast<double>(stage_activations(t, 0)) /
           static_cast<double>(stage_activations(base, 0));
  }
  const auto h = static_cast<double>(t.model.hidden);
  const double layers = 12 * h * h * static_cast<double>(t.model.layers);
  return layers / static_cast<double>(t.tp * t.pp) *
         static_cast<double>(t.parameter_bytes + 4 + t.optimizer_bytes) / 1073741824;
}

// arXiv:2205.05198 figures 1 and 7: the paper's own memory model. Layers only.
TEST(PublishedMemory, ActivationsOfTheRecomputationPaper) {
  const std::string path = published("memory.csv");
  if (path.empty()) GTEST_SKIP() << "published-runs/memory.csv is not here";
  int n = 0;
  for (const Row& row : read_csv(path)) {
    if (row.at("id").rfind("korth", 0) != 0) continue;
    SCOPED_TRACE(row.at("id"));
    const double value = std::atof(row.at("value").c_str());
    const double ours = of_the_paper(row);
    // Percentages are read from a figure.
    const double tolerance = row.at("unit") == "%" ? 0.015 : 0.001;
    EXPECT_NEAR(1, ours / value, tolerance) << ours << " against " << value;
    ++n;
  }
  EXPECT_GE(n, 28);
}

// Device memory as a driver reports it, see device_memory(): both of its constants come from
// elsewhere, none was fitted to these rows.
TEST(PublishedMemory, MedianErrorOfAllRowsWithAKnownConfiguration) {
  const std::string path = published("memory.csv");
  if (path.empty()) GTEST_SKIP() << "published-runs/memory.csv is not here";
  std::map<std::string, std::vector<double>> errors;
  for (const Row& row : read_csv(path)) {
    const std::string family = row.at("id").substr(0, row.at("id").find('-'));
    if (family != "korth" && family != "flagperf" && family != "internevo") continue;
    const double value = std::atof(row.at("value").c_str());
    if (family == "korth") {
      errors["korth"].push_back(std::abs(of_the_paper(row) / value - 1));
      continue;
    }
    Row changed = row;
    // FSDP ranks that do not divide the layers of a pipeline evenly, ... are as printed.
    const Training t = training_of(changed);
    const std::string& stage = row.at("pipeline_stage");
    const int64_t at = stage.empty() ? fullest_stage(t) : std::atoll(stage.c_str());
    const double ours = gb(device_memory(stage_memory(t, at).total()));
    RecordProperty(row.at("id"), std::to_string(ours) + " against " + row.at("value"));
    if (std::getenv("TRAINYARD_SHOW") != nullptr) {
      std::printf("%-42s %7.2f %7.2f  %+.0f %%\n", row.at("id").c_str(), ours, value,
                  100 * (ours / value - 1));
    }
    errors[family].push_back(std::abs(ours / value - 1));
  }
  // DeepSeek-V3 on 256 GPUs with bf16 moments (mcoremoe rows).
  const Training v3 = training("deepseek-v3", {{"layout.pp", "4"},
                                               {"schedule.kind", "interleaved"},
                                               {"schedule.chunks", "4"},
                                               {"layout.ep", "64"},
                                               {"layout.dp", "64"},
                                               {"precision.optimizer", "8B"},
                                               {"batch.sequence", "4096"},
                                               {"batch.global", "8192"}});
  const StageMemory at = stage_memory(v3, fullest_stage(v3));
  const std::map<std::string, double> parts = {
      {"activations, no recompute", gb(at.activations + at.logits)},
      {"main weights + optimizer state", gb(at.optimizer)},
      {"weights and gradients", gb(at.parameters + at.gradients)},
      {"total, no recompute", gb(at.total())}};
  for (const Row& row : read_csv(path)) {
    const auto it = parts.find(row.at("quantity"));
    if (it == parts.end() || row.at("id").rfind("mcoremoe", 0) != 0) continue;
    const double value = std::atof(row.at("value").c_str());
    if (std::getenv("TRAINYARD_SHOW") != nullptr) {
      std::printf("%-42s %7.2f %7.2f  %+.0f %%\n", row.at("id").c_str(), it->second, value,
                  100 * (it->second / value - 1));
    }
    errors["mcoremoe"].push_back(std::abs(it->second / value - 1));
  }
  std::vector<double> all;
  for (auto& [family, list] : errors) {
    all.insert(all.end(), list.begin(), list.end());
    std::sort(list.begin(), list.end());
    std::printf("%s: %zu rows, median error %.1f %%, largest %.1f %%\n", family.c_str(),
                list.size(), 100 * list[list.size() / 2], 100 * list.back());
  }
  std::sort(all.begin(), all.end());
  std::printf("all: %zu rows, median error %.1f %%\n", all.size(), 100 * all[all.size() / 2]);
  EXPECT_GE(all.size(), 68U);
  EXPECT_LE(all[all.size() / 2], 0.05);
}

// README of the published runs, table "FLOPs definition": r by family, dense models.
TEST(PublishedRuns, FlopsByTheConventionOfEachSource) {
  const std::string path = published("runs.csv");
  if (path.empty()) GTEST_SKIP() << "published-runs/runs.csv is not here";
  std::map<std::string, std::vector<double>> ratio;
  for (const Row& row : read_csv(path)) {
    const std::string family = row.at("id").substr(0, row.at("id").find('-'));
    if (!row.at("experts").empty() || row.at("vocab").empty()) continue;
    const double time = std::atof(row.at("iteration_time_s").c_str());
    const double tflops = std::atof(row.at("tflops_per_gpu").c_str());
    const double gpus = std::atof(row.at("gpus").c_str());
    if (time <= 0 || tflops <= 0 || row.at("global_batch_seqs").empty()) continue;
    if (family != "korth" && family != "sc21t1" && family != "bloom" && family != "mtnlg" &&
        family != "nemo2407" && family != "primus") {
      continue;
    }
    Row known = row;
    known["tp"] = known["pp"] = known["cp"] = known["dp"] = known["micro_batch"] = "1";
    known["vpp"] = "";
    known["recompute"] =
        family == "sc21t1" || family == "bloom" || family == "mtnlg" ? "full" : "none";
    const StepFlops f = step_flops(training_of(known));
    const bool hardware = known["recompute"] == "full";
    ratio[family].push_back((hardware ? f.hardware : f.model) / time / gpus * 1e-12 / tflops);
  }
  for (auto& [family, list] : ratio) {
    std::sort(list.begin(), list.end());
    std::printf("%s: %zu rows, median ratio %.3f\n", family.c_str(), list.size(),
                list[list.size() / 2]);
    EXPECT_NEAR(1, list[list.size() / 2], 0.03) << family;
  }
  EXPECT_GE(ratio.size(), 4U);
}

}  // namespace
}  // namespace trainyard
