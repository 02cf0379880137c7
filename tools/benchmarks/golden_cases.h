// SPDX-License-Identifier: MIT
// The rows of scenarios/golden/cases.csv and the statistics that published tables are compared by;
// used by tools/bench golden and by tests/golden.
#pragma once

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "sim/errors.h"

namespace trainyard::golden {

/// One published set and how we run it.
struct Case {
  std::string peer, set;
  std::string kind;  ///< "exact", "step", "step-mean" or "random"
  std::string scenario;
  double tolerance_pct = 0;
  std::vector<std::string> settings;  ///< as after --set
};

inline std::vector<std::string> split(const std::string& line, char by) {
  std::vector<std::string> out;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, by);) out.push_back(field);
  return out;
}

/// All rows of cases.csv. Throws UserError (file, line) for a row that it cannot read.
inline std::vector<Case> read_cases(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw UserError("cannot open " + file);
  std::vector<Case> cases;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const auto f = split(line, ',');
    if (f.size() != 6) {
      throw UserError(SourcePos{file, number}, "cannot read row '" + line + "'",
                      "peer,set,kind,tolerance_pct,scenario,settings");
    }
    cases.push_back({f[0], f[1], f[2], f[4], std::stod(f[3]), split(f[5], ';')});
  }
  return cases;
}

struct Stats {
  double mean = 0, median = 0, p99 = 0;
};

/// Of at least one value. Median: middle or mean of the middle two; p99: nearest rank, as in the
/// published tables (docs/reproduce.md).
inline Stats stats_of(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  Stats s;
  for (const double x : v) s.mean += x / static_cast<double>(n);
  s.median = n % 2 == 1 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
  s.p99 = v[(99 * n + 99) / 100 - 1];
  return s;
}

}  // namespace trainyard::golden
