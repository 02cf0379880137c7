// SPDX-License-Identifier: MIT
// Every YAML example of the documentation is a scenario that loads and runs to the end.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tools/scenario/run.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

struct Example {
  std::string page, text;
  int line = 0;
};

std::vector<Example> examples() {
  std::vector<fs::path> pages{fs::path(TRAINYARD_SOURCE_DIR) / "README.md"};
  for (const auto& e : fs::directory_iterator(fs::path(TRAINYARD_SOURCE_DIR) / "docs")) {
    if (e.path().extension() == ".md") pages.push_back(e.path());
  }
  std::vector<Example> found;
  for (const auto& page : pages) {
    std::ifstream in(page);
    Example* open = nullptr;
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      if (open != nullptr && line.rfind("```", 0) == 0) {
        open = nullptr;
      } else if (open != nullptr) {
        open->text += line + "\n";
      } else if (line == "```yaml") {
        found.push_back({page.filename().string(), "", number});
        open = &found.back();
      }
    }
  }
  return found;
}

TEST(DocsExamples, EveryYamlBlockRuns) {
  const auto all = examples();
  ASSERT_GE(all.size(), 4U);
  for (const auto& e : all) {
    SCOPED_TRACE(e.page + ":" + std::to_string(e.line));
    // Beside the pages, so that their relative paths hold.
    const fs::path folder =
        fs::temp_directory_path() / ("trainyard_docs_" + std::to_string(getpid()));
    fs::create_directories(folder);
    const fs::path file = folder / "example.yaml";
    std::ofstream(file) << e.text;
    ScenarioOverrides overrides;
    if (e.text.find("chakra:") != std::string::npos) {
      overrides.trace =
          (fs::path(TRAINYARD_SOURCE_DIR) / "scenarios/generated/quickstart/quickstart").string();
    }
    const Result r = run_scenario(load_scenario(file.string(), overrides));
    EXPECT_TRUE(r.complete) << r.incomplete_reason;
    EXPECT_GT(r.totals.transmissions, 0U);
    fs::remove_all(folder);
  }
}

TEST(DocsExamples, EveryScenarioOfTheTreeLoads) {
  size_t n = 0;
  for (const auto& e :
       fs::recursive_directory_iterator(fs::path(TRAINYARD_SOURCE_DIR) / "scenarios")) {
    if (e.path().extension() != ".yaml") continue;
    SCOPED_TRACE(e.path().string());
    EXPECT_NO_THROW(load_scenario(e.path().string()));
    ++n;
  }
  EXPECT_GE(n, 12U);
}

}  // namespace
}  // namespace trainyard
