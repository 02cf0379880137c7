// SPDX-License-Identifier: MIT
#include "tools/lint/lint.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace trainyard {
namespace {

/// "scenario.yaml:12", of a preset the preset's file; the scenario itself for defaults.
std::string position(const LintReport& report, const Finding& f) {
  const Origin& o = f.place.origin;
  const bool placed = (o.kind == Origin::Kind::user || o.kind == Origin::Kind::preset) &&
                      o.pos.line > 0 && !o.pos.file.empty();
  return placed ? o.pos.str() : report.file;
}

std::string key_and_value(const Finding& f) {
  const LintPlace& p = f.place;
  return p.key + (p.value.empty() ? "" : ": " + p.value) + "  (" + origin_text(p.origin) + ")";
}

}  // namespace

const char* severity_name(LintSeverity severity) {
  switch (severity) {
    case LintSeverity::error:
      return "error";
    case LintSeverity::warning:
      return "warning";
    case LintSeverity::note:
      return "note";
  }
  return "";
}

Finding& LintFindings::add(LintSeverity severity, LintPlace place, std::string message) {
  Finding f;
  f.severity = severity;
  f.place = std::move(place);
  f.message = std::move(message);
  if (rule != nullptr) {
    f.rule = rule->name;
    f.source = rule->source;
  }
  all.push_back(std::move(f));
  return all.back();
}

size_t LintReport::count(LintSeverity severity) const {
  return static_cast<size_t>(std::count_if(
      findings.begin(), findings.end(), [&](const Finding& f) { return f.severity == severity; }));
}

LintReport run_lint(const LintSubject& subject) {
  LintReport report;
  report.file = subject.file;
  report.kind = subject.conf ? "HPCC / SimAI configuration" : "scenario";
  LintFindings findings;
  for (const std::string& name : Registry::instance().names("lint")) {
    findings.rule = &Registry::instance().get("lint", name);
    Registry::instance().factory<LintRule>("lint", name)(subject, findings);
    ++report.rules;
  }
  report.findings = std::move(findings.all);
  std::stable_sort(report.findings.begin(), report.findings.end(),
                   [](const Finding& a, const Finding& b) {
                     if (a.severity != b.severity) return a.severity < b.severity;
                     return a.place.origin.pos.line < b.place.origin.pos.line;
                   });
  return report;
}

std::string lint_text(const LintReport& report) {
  std::string out;
  for (const Finding& f : report.findings) {
    out += fmt::format("{}: {}: {} [{}]\n", position(report, f), severity_name(f.severity),
                       f.message, f.rule);
    out += fmt::format("    {}\n", key_and_value(f));
    for (const std::string& line : f.arithmetic) out += fmt::format("      {}\n", line);
    if (!f.remedy.empty()) out += fmt::format("    do: {}\n", f.remedy);
    out += fmt::format("    source: {}\n", f.source);
  }
  const auto counted = [](size_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  out += fmt::format("{}: {} rules, {}, {}, {}\n", report.file, report.rules,
                     counted(report.count(LintSeverity::error), "error"),
                     counted(report.count(LintSeverity::warning), "warning"),
                     counted(report.count(LintSeverity::note), "note"));
  return out;
}

std::string lint_json(const LintReport& report) {
  using nlohmann::ordered_json;
  ordered_json doc;
  doc["schema_version"] = LintReport::kSchemaVersion;
  doc["file"] = report.file;
  doc["kind"] = report.kind;
  doc["rules"] = report.rules;
  doc["errors"] = report.count(LintSeverity::error);
  doc["warnings"] = report.count(LintSeverity::warning);
  doc["notes"] = report.count(LintSeverity::note);
  doc["findings"] = ordered_json::array();
  for (const Finding& f : report.findings) {
    ordered_json j;
    j["rule"] = f.rule;
    j["severity"] = severity_name(f.severity);
    j["key"] = f.place.key;
    j["value"] = f.place.value;
    j["origin"] = origin_text(f.place.origin);
    j["file"] = f.place.origin.pos.file;
    j["line"] = f.place.origin.pos.line;
    j["message"] = f.message;
    j["arithmetic"] = f.arithmetic;
    j["remedy"] = f.remedy;
    j["source"] = f.source;
    doc["findings"].push_back(std::move(j));
  }
  return doc.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string lint_rules_text() {
  std::string out;
  for (const std::string& name : Registry::instance().names("lint")) {
    const ModelDoc& doc = Registry::instance().get("lint", name);
    out += fmt::format("{:24} {}\n{:24} source: {}\n", name, doc.help, "", doc.source);
  }
  return out;
}

}  // namespace trainyard
