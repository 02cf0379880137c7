// SPDX-License-Identifier: MIT
// Judges a configuration without running it. A rule is one function and one registration line in
// category "lint"; its help sentence and source are printed by `trainyard lint --list`:
//
//   const RegisterModel<LintRule> kRule{{"lint", "name", "what it checks", "source", {}}, check};
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/registry.h"
#include "tools/lint/finding.h"
#include "tools/lint/subject.h"

namespace trainyard {

/// Collects what the rules find.
class LintFindings {
 public:
  /// Rule name and source are those of the running rule. The reference is good until the next add.
  Finding& add(LintSeverity severity, LintPlace place, std::string message);

  std::vector<Finding> all;
  const ModelDoc* rule = nullptr;  ///< the running one
};

/// Factory of category "lint".
using LintRule = std::function<void(const LintSubject&, LintFindings&)>;

struct LintReport {
  static constexpr int kSchemaVersion = 1;
  std::string file, kind;
  size_t rules = 0;
  std::vector<Finding> findings;  ///< errors first, then by line
  [[nodiscard]] size_t count(LintSeverity severity) const;
};

/// Runs all rules.
LintReport run_lint(const LintSubject& subject);

std::string lint_text(const LintReport& report);
std::string lint_json(const LintReport& report);
/// All rules: name, what it checks, source.
std::string lint_rules_text();

}  // namespace trainyard
