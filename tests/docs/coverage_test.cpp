// SPDX-License-Identifier: MIT
// docs/coverage.csv keeps its promises: a line for every row of the list of what to model, and the
// tests and scenarios that it names exist.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace trainyard {
namespace {

namespace fs = std::filesystem;

struct Row {
  std::string id, name, priority, state, shown_by, reason;
};

std::vector<std::string> fields(const std::string& line) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

std::vector<Row> coverage() {
  std::ifstream in(fs::path(TRAINYARD_SOURCE_DIR) / "docs" / "coverage.csv");
  std::vector<Row> rows;
  std::string line;
  std::getline(in, line);
  EXPECT_EQ("id,name,priority,state,shown_by,reason", line);
  while (std::getline(in, line)) {
    const auto f = fields(line);
    EXPECT_EQ(6U, f.size()) << line;
    if (f.size() == 6) rows.push_back({f[0], f[1], f[2], f[3], f[4], f[5]});
  }
  return rows;
}

/// "Suite.Name" of every test in the sources.
std::set<std::string> tests() {
  std::set<std::string> out;
  const std::regex macro(R"(^TEST(_F|_P)?\((\w+),\s*(\w+)\))");
  for (const auto& e : fs::recursive_directory_iterator(fs::path(TRAINYARD_SOURCE_DIR) / "tests")) {
    if (e.path().extension() != ".cpp") continue;
    std::ifstream in(e.path());
    for (std::string line; std::getline(in, line);) {
      std::smatch m;
      if (std::regex_search(line, m, macro)) out.insert(m[2].str() + "." + m[3].str());
    }
  }
  return out;
}

TEST(Coverage, EveryLineHoldsWhatItSays) {
  const auto rows = coverage();
  ASSERT_GE(rows.size(), 100U);
  const std::set<std::string> known = tests();
  ASSERT_GE(known.size(), 500U);
  std::set<std::string> ids;
  std::map<std::string, int> states;
  for (const Row& r : rows) {
    EXPECT_TRUE(ids.insert(r.id).second) << r.id << " stands there twice";
    EXPECT_FALSE(r.name.empty()) << r.id;
    ++states[r.state];
    const bool shown = r.state == "built" || r.state == "partial";
    EXPECT_TRUE(shown || r.state == "not built") << r.id << ": " << r.state;
    EXPECT_EQ(shown, !r.shown_by.empty()) << r.id;
    EXPECT_EQ(r.state != "built", !r.reason.empty()) << r.id;
    if (r.shown_by.empty()) continue;
    const bool scenario = r.shown_by.rfind("scenarios/", 0) == 0;
    EXPECT_TRUE(scenario ? fs::exists(fs::path(TRAINYARD_SOURCE_DIR) / r.shown_by)
                         : known.count(r.shown_by) == 1)
        << r.id << ": there is no " << r.shown_by;
  }
  for (const auto& [state, count] : states) RecordProperty(state, count);
}

/// Cells of the rows of the tables between two headings of a file of facts; empty: no such file.
std::vector<std::vector<std::string>> table(const std::string& file, const std::string& from,
                                            const std::string& to) {
  std::vector<fs::path> places;
  if (const char* env = std::getenv("TRAINYARD_SHARED")) places.emplace_back(env);
  places.push_back(fs::path(TRAINYARD_SOURCE_DIR).parent_path() / "shared");
  std::vector<std::vector<std::string>> rows;
  for (const fs::path& place : places) {
    std::ifstream in(place / "facts" / file);
    bool inside = false;
    for (std::string line; std::getline(in, line);) {
      if (line.rfind(to, 0) == 0) break;
      inside = inside || line.rfind(from, 0) == 0;
      if (!inside || line.rfind("| ", 0) != 0) continue;
      std::vector<std::string> cells(1);
      for (const char c : line) {
        if (c == '|')
          cells.emplace_back();
        else
          cells.back() += c;
      }
      for (std::string& cell : cells) {
        while (!cell.empty() && cell.back() == ' ') cell.pop_back();
        cell.erase(0, cell.find_first_not_of(' '));
      }
      rows.push_back(cells);
    }
    if (!rows.empty()) break;
  }
  return rows;
}

TEST(Coverage, EveryRowOfTheListHasALine) {
  const auto rows = table("A-metrics-parallelism-collectives.md", "#", "## 2.");
  if (rows.empty()) {
    GTEST_SKIP() << "facts not found: that docs/coverage.csv leaves no row out is unproven";
  }
  std::set<std::string> listed;
  for (const Row& r : coverage()) {
    if (r.id.rfind("A:", 0) == 0) listed.insert(r.id);
  }
  std::set<std::string> wanted;
  for (const auto& cells : rows) {
    ASSERT_GE(cells.size(), 4U);
    if (cells[1].empty() || cells[1].find_first_not_of("0123456789") != std::string::npos) continue;
    ASSERT_GE(cells.size(), 6U) << cells[1];
    if (cells[5].find_first_of("MS") != std::string::npos) wanted.insert("A:" + cells[1]);
  }
  EXPECT_GT(wanted.size(), 100U);
  EXPECT_EQ(wanted, listed);
}

TEST(Coverage, FaultsOfTheNetworkAndOfTheFleetHaveLines) {
  const auto network = table("B-network-storage-observability.md", "### 2.7", "### 2.10");
  const auto fleet = table("C-failures-recovery-operations.md", "### 1.1", "### 1.4");
  if (network.empty() || fleet.empty()) {
    GTEST_SKIP() << "facts not found: that docs/coverage.csv leaves no fault out is unproven";
  }
  std::set<std::string> listed;
  size_t of_fleet = 0;
  for (const Row& r : coverage()) {
    if (r.id.rfind("B:", 0) == 0) listed.insert(r.id);
    of_fleet += r.id.rfind("C:1.", 0) == 0 ? 1 : 0;
  }
  std::set<std::string> wanted;
  for (const auto& cells : network) {
    ASSERT_GE(cells.size(), 5U);
    const std::string& asks = cells[4];
    if (asks.find("CORE") != std::string::npos || asks.find("OPT") != std::string::npos ||
        asks.find("IN:") != std::string::npos) {
      wanted.insert("B:" + cells[1]);
    }
  }
  EXPECT_EQ(wanted, listed);
  // Rows of the fleet have names only. Out of scope: tools of live processes, what happens inside
  // of kernels, what tensors hold.
  size_t of_scope = 0;
  for (const auto& cells : fleet) {
    ASSERT_GE(cells.size(), 4U);
    if (cells[1] == "Name") continue;
    const bool out = cells[3].rfind("Out", 0) == 0 || cells[3].rfind("Optional", 0) == 0;
    of_scope += out ? 0 : 1;
  }
  EXPECT_EQ(of_scope, of_fleet);
}

}  // namespace
}  // namespace trainyard
