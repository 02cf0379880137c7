// SPDX-License-Identifier: MIT
// What a lint rule found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/params.h"

namespace trainyard {

enum class LintSeverity : uint8_t {
  error,    ///< cannot work, loses packets of a lossless class, or contradicts itself
  warning,  ///< breaks a rule of a source that is cited
  note      ///< worth knowing; nothing needs to change
};

/// A value that a rule judged: key path, the value as written, and where it comes from.
struct LintPlace {
  std::string key, value;
  Origin origin;
};

struct Finding {
  std::string rule;
  LintSeverity severity = LintSeverity::note;
  LintPlace place;
  std::string message;                  ///< one sentence
  std::vector<std::string> arithmetic;  ///< formulas with the numbers put in, one per line
  std::string remedy;                   ///< what to do
  std::string source;                   ///< fact ids
};

const char* severity_name(LintSeverity severity);

}  // namespace trainyard
