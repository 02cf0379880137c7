// SPDX-License-Identifier: MIT
#include "tools/tables/csv_table.h"

#include <cmath>
#include <fstream>
#include <sstream>

namespace trainyard {
namespace {

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  return fields;
}

/// Not finite: no number.
double number_of(const std::string& text) {
  std::istringstream in(text);
  double x = 0;
  return in >> x && in.eof() ? x : std::nan("");
}

}  // namespace

CsvTable CsvTable::read(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw UserError(SourcePos{path, 0}, "cannot read " + path);
  CsvTable t;
  t.path_ = path;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty() || line == "\r" || line[0] == '#') continue;
    std::vector<std::string> fields = split(line);
    if (t.columns_.empty()) {
      for (size_t i = 0; i < fields.size(); ++i) {
        if (t.columns_.emplace(fields[i], i).second) continue;
        throw UserError(SourcePos{path, number}, "column '" + fields[i] + "' is named twice");
      }
      continue;
    }
    if (fields.size() != t.columns_.size()) {
      throw UserError(SourcePos{path, number}, std::to_string(fields.size()) +
                                                   " fields where the "
                                                   "head names " +
                                                   std::to_string(t.columns_.size()));
    }
    t.rows_.push_back(std::move(fields));
    t.lines_.push_back(number);
  }
  if (t.columns_.empty()) throw UserError(SourcePos{path, 0}, path + " is empty");
  return t;
}

const std::string& CsvTable::at(size_t row, const std::string& column) const {
  static const std::string none;
  const auto it = columns_.find(column);
  return it == columns_.end() ? none : rows_[row][it->second];
}

std::map<std::string, std::string> CsvTable::row(size_t row) const {
  std::map<std::string, std::string> out;
  for (const auto& [column, i] : columns_) out[column] = rows_[row][i];
  return out;
}

double CsvTable::number(size_t row, const std::string& column) const {
  const std::string& text = at(row, column);
  const double x = number_of(text);
  if (!std::isfinite(x)) throw UserError(pos(row), column + " '" + text + "' is no number");
  return x;
}

double CsvTable::positive(size_t row, const std::string& column) const {
  const std::string& text = at(row, column);
  const double x = number_of(text);
  if (!std::isfinite(x) || x <= 0) {
    throw UserError(pos(row), column + " '" + text + "' is no number above 0");
  }
  return x;
}

}  // namespace trainyard
