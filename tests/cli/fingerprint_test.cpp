// SPDX-License-Identifier: MIT
// A few small runs with the fingerprint of their trajectory. Every build on every machine must give
// the same: debug, release, sanitizers.
#include <string>
#include <vector>

#include "tests/cli/cli_test_util.h"

namespace trainyard::cli_test {
namespace {

struct Row {
  std::string scenario, settings, fingerprint;
  int line = 0;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::istringstream in(text);
  std::string part;
  while (std::getline(in, part, separator)) out.push_back(part);
  return out;
}

std::string table() {
  return std::string(TRAINYARD_SOURCE_DIR) + "/tests/cli/fingerprints.csv";
}

std::vector<Row> rows() {
  std::vector<Row> out;
  std::ifstream in(table());
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty() || line[0] == '#' || line.rfind("scenario,", 0) == 0) continue;
    const auto cells = split(line, ',');
    Row row;
    row.line = number;
    if (cells.size() == 3) row = {cells[0], cells[1], cells[2], number};
    out.push_back(row);
  }
  return out;
}

class Fingerprints : public CliTest {};

TEST_F(Fingerprints, TrajectoriesAreTheSameInEveryBuildOnEveryMachine) {
  const auto all = rows();
  ASSERT_GE(all.size(), 8U) << "cannot read " << table();
  for (const Row& row : all) {
    const std::string place = "tests/cli/fingerprints.csv:" + std::to_string(row.line);
    ASSERT_EQ(row.fingerprint.size(), 16U) << place << ": rows are scenario,settings,fingerprint";
    std::vector<std::string> words = {"run", source(row.scenario), "--quiet", "--out", "o"};
    for (const std::string& s : split(row.settings, ';')) {
      words.emplace_back("--set");
      words.push_back(s);
    }
    const Outcome o = cli(words);
    ASSERT_EQ(o.code, 0) << place << ": " << o.err;
    EXPECT_EQ(fingerprint("o"), row.fingerprint)
        << place << ": " << row.scenario << " " << row.settings
        << "\nhas another trajectory than before. The fingerprint hashes what happened when, so "
           "it is the same for\nevery build, machine and thread count; a refactoring or a speed-up "
           "must keep it. If the change of behaviour\nis meant, compare the results with the "
           "reference tables, say so in the commit, and put the new value in the row.";
    fs::remove_all(dir_ / "o");
  }
}

TEST_F(Fingerprints, RowsDifferFromEachOther) {
  // A hash that ignored what is simulated would pass the test above.
  const auto all = rows();
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      EXPECT_NE(all[i].fingerprint, all[k].fingerprint)
          << "lines " << all[k].line << " and " << all[i].line;
    }
  }
}

}  // namespace
}  // namespace trainyard::cli_test
