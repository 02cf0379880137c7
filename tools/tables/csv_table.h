// SPDX-License-Identifier: MIT
// A CSV file by the names of its columns.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/errors.h"

namespace trainyard {

class CsvTable {
 public:
  /// Fields may be quoted, a doubled quote inside stands for one. Empty lines and lines that begin
  /// with '#' are left out. Throws UserError for a file that cannot be read, a line with more or
  /// fewer fields than the head, and a column named twice.
  static CsvTable read(const std::string& path);

  [[nodiscard]] size_t rows() const { return rows_.size(); }
  [[nodiscard]] bool has(const std::string& column) const { return columns_.count(column) != 0; }
  /// Empty where there is no such column.
  [[nodiscard]] const std::string& at(size_t row, const std::string& column) const;
  /// By column.
  [[nodiscard]] std::map<std::string, std::string> row(size_t row) const;
  /// Throws UserError, naming the place, where the field is no finite number.
  [[nodiscard]] double number(size_t row, const std::string& column) const;
  /// Likewise where it is not above 0.
  [[nodiscard]] double positive(size_t row, const std::string& column) const;
  [[nodiscard]] SourcePos pos(size_t row) const { return {path_, lines_[row]}; }

 private:
  std::string path_;
  std::map<std::string, size_t> columns_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<int> lines_;
};

}  // namespace trainyard
