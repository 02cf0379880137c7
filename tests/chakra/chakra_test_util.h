// SPDX-License-Identifier: MIT
// Helpers of the chakra tests: a scratch folder and the shared traces.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "chakra/trace.h"
#include "tests/chakra/wire_bytes.h"

namespace trainyard::chakra::test {

/// A folder of its own for every test, removed at the end.
class ScratchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(info->test_suite_name()) + "_" + info->name();
    for (char& c : name) {
      if (c == '/') c = '_';
    }
    dir_ = std::filesystem::temp_directory_path() /
           ("trainyard_" + std::to_string(::getpid()) + "_" + name);
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  [[nodiscard]] std::string path(const std::string& name) const { return (dir_ / name).string(); }

  [[nodiscard]] std::string put(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  std::filesystem::path dir_;
};

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// --- shared traces ----------------------------------------------------------------------------

constexpr const char* kNoSharedTraces = "shared/traces not found: public trace counts unproven";

/// Folder with the public traces, or "" when they are not here.
inline std::string shared_traces() {
  namespace fs = std::filesystem;
  std::vector<fs::path> places;
  if (const char* env = std::getenv("TRAINYARD_SHARED")) places.emplace_back(env);
#ifdef TRAINYARD_SOURCE_DIR
  places.emplace_back(fs::path(TRAINYARD_SOURCE_DIR) / ".." / "shared");
#endif
  for (const fs::path& place : places) {
    std::error_code ec;
    if (fs::is_directory(place / "traces", ec)) return (place / "traces").string();
  }
  return {};
}

/// Rows of a CSV file by column name; quoted cells may hold commas.
inline std::vector<std::map<std::string, std::string>> read_csv(const std::string& path) {
  const auto split = [](const std::string& line) {
    std::vector<std::string> cells(1);
    bool in_quotes = false;
    for (const char c : line) {
      if (c == '"') {
        in_quotes = !in_quotes;
      } else if (c == ',' && !in_quotes) {
        cells.emplace_back();
      } else if (c != '\r') {
        cells.back() += c;
      }
    }
    return cells;
  };
  std::istringstream in(slurp(path));
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> head = split(line);
  std::vector<std::map<std::string, std::string>> rows;
  while (std::getline(in, line)) {
    if (line.empty()) continue;
    const std::vector<std::string> cells = split(line);
    std::map<std::string, std::string> row;
    for (size_t i = 0; i < head.size() && i < cells.size(); ++i) row[head[i]] = cells[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace trainyard::chakra::test
