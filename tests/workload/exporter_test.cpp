// SPDX-License-Identifier: MIT
#include "workload/chakra_exporter.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "chakra/reader.h"
#include "tests/workload/on_rails.h"
#include "tests/workload/training_test_util.h"
#include "workload/chakra_importer.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using test::gpt;
using test::Settings;
using test::training;

TEST(ChakraExport, ReadBackItRunsAsBefore) {
  ModelCard moe = gpt(4, 256, 8, 1024);
  moe.experts = 4;
  moe.topk = 2;
  moe.expert_ffn = 512;
  const Settings base = {{"batch.sequence", "128"}, {"kernels", "single"}, {"steps", "2"}};
  const std::vector<std::pair<ModelCard, Settings>> cases = {
      {gpt(4, 256, 8, 1024),
       {{"layout.tp", "2"}, {"layout.pp", "2"}, {"layout.dp", "2"}, {"batch.global", "8"}}},
      {gpt(4, 256, 8, 1024), {{"layout.cp", "2"}, {"layout.dp", "2"}, {"layout.zero", "3"}}},
      {moe, {{"layout.ep", "4"}, {"layout.dp", "4"}, {"batch.global", "8"}}}};
  for (const auto& [card, settings] : cases) {
    Settings all = base;
    all.insert(all.end(), settings.begin(), settings.end());
    const Job job = generate_job(training(card, all), "j", 1).job;
    const fs::path folder =
        fs::temp_directory_path() / ("trainyard_export_" + std::to_string(getpid()));
    const uint64_t nodes = export_chakra(job, (folder / "job").string());
    const ChakraImport back = import_chakra(chakra::read_set((folder / "job").string(), ""), "j",
                                            {0, true, LaunchOrder::free});
    fs::remove_all(folder);
    EXPECT_EQ(nodes, back.summary.nodes);
    EXPECT_TRUE(back.findings.empty());
    test::OnRails first(job, "roofline");
    first.run();
    test::OnRails second(back.job, "roofline");
    second.run();
    EXPECT_EQ(first.timeline.end(), second.timeline.end());
    EXPECT_EQ(first.timeline.fingerprint(), second.timeline.fingerprint());
    EXPECT_EQ(first.fabric.fingerprint(), second.fabric.fingerprint());
  }
}

TEST(ChakraExport, SaysWhatTheFormatCannot) {
  const Settings s = {{"layout.dp", "2"}, {"batch.sequence", "128"}};
  const Job fused = generate_job(training(gpt(2, 256, 8, 1024), s), "j", 1).job;
  EXPECT_THROW(export_rank(fused, 0), UserError);
  ModelCard moe = gpt(2, 256, 8, 1024);
  moe.experts = 2;
  moe.topk = 1;
  moe.expert_ffn = 512;
  Settings skewed = s;
  skewed.insert(skewed.end(), {{"layout.ep", "2"}, {"kernels", "single"}, {"experts.sigma", "1"}});
  EXPECT_THROW(export_rank(generate_job(training(moe, skewed), "j", 1).job, 0), UserError);
}

}  // namespace
}  // namespace trainyard
