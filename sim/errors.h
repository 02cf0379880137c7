// SPDX-License-Identifier: MIT
// The two kinds of failure that leave the program, and nothing else does.
//
//   UserError        bad input: file, line, what is wrong, what to do. Exit code 2.
//   SimulationError  a model invariant broke, a deadlock, work left undone. Exit code 3.
//
// Our own bugs are asserts (TRAINYARD_ASSERT), reachable from no input.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

namespace trainyard {

/// A place in an input: file and 1-based line. `line` 0 means "the file as a whole".
struct SourcePos {
  std::string file;
  int line = 0;

  /// "file:12", "file", or "" when nothing is known.
  [[nodiscard]] std::string str() const {
    if (file.empty()) return {};
    return line > 0 ? file + ":" + std::to_string(line) : file;
  }
};

/// Bad input. `what()` is one line: "file:line: problem; remedy".
class UserError : public std::runtime_error {
 public:
  /// @param problem what is wrong, with the offending value
  /// @param remedy  what the user can do about it; may be empty
  UserError(SourcePos pos, const std::string& problem, const std::string& remedy = {})
      : std::runtime_error(format(pos, problem, remedy)), pos_(std::move(pos)) {}
  explicit UserError(const std::string& problem, const std::string& remedy = {})
      : UserError(SourcePos{}, problem, remedy) {}

  [[nodiscard]] const SourcePos& pos() const { return pos_; }

 private:
  static std::string format(const SourcePos& pos, const std::string& problem,
                            const std::string& remedy) {
    std::string text = pos.str();
    if (!text.empty()) text += ": ";
    text += problem;
    if (!remedy.empty()) text += "; " + remedy;
    return text;
  }
  SourcePos pos_;
};

/// The simulated system cannot go on: a hang, a drop in a lossless class, a broken balance.
class SimulationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] inline void assertion_failed(const char* expr, const char* file, int line) {
  std::fprintf(stderr, "trainyard: internal error: %s (%s:%d); please report it\n", expr, file,
               line);
  std::abort();
}

}  // namespace trainyard

/// Checked in every build: an invariant whose failure would make results wrong.
#define TRAINYARD_ASSERT(expr) \
  ((expr) ? static_cast<void>(0) : ::trainyard::assertion_failed(#expr, __FILE__, __LINE__))
