// SPDX-License-Identifier: MIT
// A scenario or configuration as text, and what lint says about it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tools/lint/lint.h"
#include "tools/scenario/scenario.h"

namespace trainyard::lint_test {

namespace fs = std::filesystem;

class LintTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::temp_directory_path() / ("trainyard_lint_" + std::to_string(::getpid()) + "_" +
                                        info->test_suite_name() + "_" + info->name());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  [[nodiscard]] std::string put(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name, std::ios::binary) << text;
    return (dir_ / name).string();
  }
  [[nodiscard]] LintReport scenario(const std::string& yaml) const {
    return run_lint(lint_scenario(load_scenario(put("s.yaml", yaml))));
  }
  [[nodiscard]] LintReport conf(const std::string& text, const std::string& topology = {}) const {
    return run_lint(lint_simai_conf(put("c.conf", text), topology));
  }

  fs::path dir_;
};

/// One switch with `hosts` hosts. `fabric` and `traffic` are flow-style YAML.
inline std::string one_switch(int hosts, const std::string& nic, const std::string& delay,
                              const std::string& fabric, const std::string& traffic) {
  return "cluster: {nodes: " + std::to_string(hosts) +
         ", gpus_per_node: 1}\n"
         "fabric:\n"
         "  topology: {kind: single-switch, nic: {rate: " +
         nic + "}, link: {delay: " + delay + "}, scale_up: {kind: none}}\n" + fabric +
         "traffic: [" + traffic + "]\n";
}

inline const char* const kIncast8 = "{pattern: incast, dst: 8, fan_in: 8, size: 1MB}";

inline std::vector<Finding> of_rule(const LintReport& r, const std::string& rule) {
  std::vector<Finding> out;
  std::copy_if(r.findings.begin(), r.findings.end(), std::back_inserter(out),
               [&](const Finding& f) { return f.rule == rule; });
  return out;
}

/// Message, arithmetic and remedy of all findings of a rule.
inline std::string words_of(const LintReport& r, const std::string& rule) {
  std::string out;
  for (const Finding& f : of_rule(r, rule)) {
    out += std::string(severity_name(f.severity)) + ": " + f.message + "\n";
    for (const auto& line : f.arithmetic) out += line + "\n";
    out += f.remedy + "\n";
  }
  return out;
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline bool only(const LintReport& r, const std::string& rule, LintSeverity severity) {
  const auto found = of_rule(r, rule);
  return found.size() == 1 && found[0].severity == severity;
}

}  // namespace trainyard::lint_test
