// SPDX-License-Identifier: MIT
#include "tools/report/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/errors.h"
#include "sim/units.h"
#include "tools/report/text.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Figures = std::map<std::string, double>;

struct Side {
  Json doc;
  std::string folder;
};

Side read_side(const std::string& where) {
  fs::path file = where;
  if (fs::is_directory(file)) file /= "result.json";
  std::ifstream in(file);
  if (!in || fs::is_directory(file)) {
    throw UserError("cannot open " + file.string(),
                    "name the output folder of a run, or its result.json");
  }
  Side side;
  side.folder = file.parent_path().string();
  side.doc = Json::parse(in, nullptr, false);
  if (side.doc.is_discarded() || !side.doc.is_object() || !side.doc.contains("schema_version")) {
    throw UserError(file.string() + " is no result of a run",
                    "name the output folder of a run, or its result.json");
  }
  return side;
}

double number(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : 0;
}

std::string text(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

/// The parts of a step, from "mean_rank".
Figures parts(const Json& owner) {
  Figures out;
  const auto it = owner.find("mean_rank");
  if (it == owner.end()) return out;
  out["compute"] = number(*it, "compute_ns");
  out["host"] = number(*it, "host_ns");
  out["storage"] = number(*it, "storage_ns");
  double bubble = number(*it, "idle_ns");
  const auto each = [&](const char* what, const std::string& prefix) {
    const auto list = it->find(what);
    if (list == it->end()) return;
    for (const auto& [key, value] : list->items()) {
      const std::string dimension = key.substr(0, key.size() - 3);  // "_ns"
      const double ns = value.is_number() ? value.get<double>() : 0;
      if (prefix == "wait" && dimension == "pipeline") {
        bubble += ns;
        continue;
      }
      const std::string name = dimension == "none" ? prefix : prefix + ", " + dimension;
      out[name] += ns;
    }
  };
  each("exposed_comm", "exposed communication");
  each("wait", "wait");
  out["bubble"] = bubble;
  return out;
}

Figures kernels(const Json& doc) {
  Figures out;
  const auto it = doc.find("durations");
  if (it == doc.end() || !it->is_array()) return out;
  for (const Json& row : *it) {
    const std::string stream = text(row, "stream");
    out[text(row, "kernel") + (stream.empty() ? "" : " (" + stream + ")")] +=
        number(row, "total_ns");
  }
  return out;
}

std::vector<std::string> fields(const std::string& line) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      out.back() += c;
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      out.emplace_back();
    } else if (c != '\r') {
      out.back() += c;
    }
  }
  return out;
}

/// Of all links where links.csv lies beside the result, else of the hottest.
Figures links(const Side& side) {
  Figures out;
  std::ifstream in(fs::path(side.folder) / "links.csv");
  std::string line;
  if (in && std::getline(in, line)) {
    const auto head = fields(line);
    const auto column = [&](const char* name) {
      return static_cast<size_t>(std::find(head.begin(), head.end(), name) - head.begin());
    };
    const size_t from = column("from"), to = column("to"), busy = column("busy_ns");
    while (std::getline(in, line)) {
      const auto row = fields(line);
      if (row.size() <= std::max({from, to, busy})) continue;
      out[row[from] + " -> " + row[to]] += std::strtod(row[busy].c_str(), nullptr);
    }
    return out;
  }
  const auto it = side.doc.find("links");
  if (it == side.doc.end() || !it->contains("hottest")) return out;
  for (const Json& row : (*it)["hottest"]) {
    out[text(row, "from") + " -> " + text(row, "to")] += number(row, "busy_ns");
  }
  return out;
}

Figures totals(const Json& doc) {
  Figures out;
  const auto it = doc.find("totals");
  if (it == doc.end()) return out;
  for (const auto& [key, value] : it->items()) {
    if (value.is_number() && key != "events") out[key] = value.get<double>();
  }
  return out;
}

std::vector<Difference> differences(const Figures& a, const Figures& b, bool relative = false) {
  std::vector<Difference> out;
  Figures all = a;
  all.insert(b.begin(), b.end());
  for (const auto& entry : all) {
    const auto of = [&](const Figures& side) {
      const auto it = side.find(entry.first);
      return it == side.end() ? 0.0 : it->second;
    };
    const Difference d{entry.first, of(a), of(b)};
    if (d.a != d.b) out.push_back(d);
  }
  const auto weight = [&](const Difference& d) {
    return std::abs(d.delta()) / (relative ? std::max(d.a, d.b) : 1.0);
  };
  std::stable_sort(out.begin(), out.end(),
                   [&](const Difference& x, const Difference& y) { return weight(x) > weight(y); });
  return out;
}

std::string time(double ns) {
  return (ns < 0 ? "-" : "") + print_time(Time::ps(std::llround(std::abs(ns) * 1e3)), 5);
}
std::string change(double ns) {
  return (ns > 0 ? "+" : "") + time(ns);
}

std::string relative(double a, double b) {
  return a > 0 ? fmt::format("{:+.1f} %", 100 * (b / a - 1)) : "new";
}

/// "B takes 12.0 % longer: exposed communication, data +3.2ms (88 % of the change), ..."
std::string sentence(double a, double b, const std::vector<Difference>& parts) {
  if (a == b) return "both take the same time";
  std::string out = fmt::format("B takes {} {} ({} to {})", time(std::abs(b - a)),
                                b > a ? "longer" : "less", time(a), time(b));
  if (a > 0) out += fmt::format(", {}", relative(a, b));
  size_t told = 0;
  for (const Difference& p : parts) {
    if (told == 3 || std::abs(p.delta()) < 0.02 * std::abs(b - a)) break;
    out += fmt::format("{} {} {} ({:.0f} % of it)", told == 0 ? ":" : ",", p.name,
                       change(p.delta()), 100 * p.delta() / (b - a));
    ++told;
  }
  return out;
}

void table(const std::string& title, const std::vector<Difference>& rows, size_t most, bool times,
           std::string& out) {
  if (rows.empty()) return;
  out += fmt::format("\n{}{}\n", title,
                     rows.size() > most ? fmt::format(" ({} of {})", most, rows.size()) : "");
  size_t width = 4;
  for (size_t i = 0; i < std::min(most, rows.size()); ++i) {
    width = std::max(width, report::columns(rows[i].name));
  }
  width = std::min<size_t>(width, 44);
  const auto value = [&](double v) { return times ? time(v) : fmt::format("{:.6g}", v); };
  out += fmt::format("  {:{}}  {:>13}  {:>13}  {:>13}  {:>9}\n", "", width, "A", "B", "change", "");
  for (size_t i = 0; i < std::min(most, rows.size()); ++i) {
    const Difference& d = rows[i];
    const std::string name = report::shortened(report::printable(d.name), width, "...");
    out += "  " + name + std::string(width - report::columns(name), ' ');
    out += fmt::format("  {:>13}  {:>13}  {:>13}  {:>9}\n", value(d.a), value(d.b),
                       times ? change(d.delta()) : fmt::format("{:+.6g}", d.delta()),
                       relative(d.a, d.b));
  }
}

Json list(const std::vector<Difference>& rows, const char* unit) {
  Json out = Json::array();
  for (const Difference& d : rows) {
    out.push_back({{"name", d.name},
                   {std::string("a") + unit, d.a},
                   {std::string("b") + unit, d.b},
                   {std::string("change") + unit, d.delta()}});
  }
  return out;
}

}  // namespace

Comparison compare_results(const std::string& a, const std::string& b) {
  const Side x = read_side(a);
  const Side y = read_side(b);
  Comparison c;
  const auto scenario = [](const Side& s) {
    const auto it = s.doc.find("scenario");
    return it == s.doc.end() ? std::string() : text(*it, "name");
  };
  c.a_name = scenario(x);
  c.b_name = scenario(y);
  c.a_fingerprint = text(x.doc, "fingerprint");
  c.b_fingerprint = text(y.doc, "fingerprint");
  c.a_complete = x.doc.value("complete", false);
  c.b_complete = y.doc.value("complete", false);
  c.a_ns = number(x.doc, "step_time_ns");
  c.b_ns = number(y.doc, "step_time_ns");
  if (c.a_ns == 0 || c.b_ns == 0) {
    c.step = false;
    c.a_ns = number(x.doc, "end_ns");
    c.b_ns = number(y.doc, "end_ns");
  }
  const auto jobs_of = [](const Side& s) {
    std::map<std::string, Json> jobs;
    const auto it = s.doc.find("jobs");
    if (it == s.doc.end()) return jobs;
    for (const Json& job : *it) jobs[text(job, "name")] = job;
    return jobs;
  };
  const auto x_jobs = jobs_of(x);
  const auto y_jobs = jobs_of(y);
  // The mean over ranks of jobs of different lengths sums to nothing.
  if (x_jobs.empty() && y_jobs.empty() && c.step) {
    c.parts = differences(parts(x.doc), parts(y.doc));
  }
  for (const auto& entry : x_jobs) {
    const auto other = y_jobs.find(entry.first);
    if (other == y_jobs.end()) continue;
    ComparedJob job;
    job.name = entry.first;
    job.a_ns = number(entry.second, "time_ns");
    job.b_ns = number(other->second, "time_ns");
    job.parts = differences(parts(entry.second), parts(other->second));
    c.jobs.push_back(std::move(job));
  }
  c.kernels = differences(kernels(x.doc), kernels(y.doc));
  c.links = differences(links(x), links(y));
  c.totals = differences(totals(x.doc), totals(y.doc), true);

  std::map<std::string, Comparison::Setting> settings;
  const auto values = [&](const Side& s, std::string Comparison::Setting::*side) {
    const auto it = s.doc.find("settings");
    if (it == s.doc.end()) return;
    for (const auto& [key, value] : it->items()) {
      if (!value.is_string()) continue;
      // Where it comes from ("  (line 12)") is no difference.
      const std::string written = value.get<std::string>();
      settings[key].*side = written.substr(0, written.rfind("  ("));
    }
  };
  values(x, &Comparison::Setting::a);
  values(y, &Comparison::Setting::b);
  for (auto& entry : settings) {
    if (entry.second.a == entry.second.b) continue;
    entry.second.key = entry.first;
    c.settings.push_back(entry.second);
  }
  return c;
}

std::string comparison_text(const Comparison& c) {
  std::string out;
  out += fmt::format("A: {}, fingerprint {}{}\n", report::printable(c.a_name), c.a_fingerprint,
                     c.a_complete ? "" : ", INCOMPLETE");
  out += fmt::format("B: {}, fingerprint {}{}\n", report::printable(c.b_name), c.b_fingerprint,
                     c.b_complete ? "" : ", INCOMPLETE");
  if (c.a_fingerprint == c.b_fingerprint) out += "The same trajectory.\n";
  out += "\n" + sentence(c.a_ns, c.b_ns, c.parts) + "\n";
  table(c.step ? "Parts of the step, mean over ranks" : "Parts", c.parts, 20, true, out);
  for (const ComparedJob& job : c.jobs) {
    out += "\nJob " + report::printable(job.name) + ": " + sentence(job.a_ns, job.b_ns, job.parts) +
           "\n";
    table("Parts of its step, mean over its ranks", job.parts, 20, true, out);
  }
  table("Kernels and calls, all ranks together", c.kernels, 12, true, out);
  table("Links by time of transmission", c.links, 10, true, out);
  table("Counts of the fabric", c.totals, 12, false, out);
  if (!c.settings.empty()) {
    out += "\nSettings that differ\n";
    for (const auto& s : c.settings) {
      out += fmt::format("  {}: {} -> {}\n", report::printable(s.key),
                         s.a.empty() ? "(none)" : report::printable(s.a),
                         s.b.empty() ? "(none)" : report::printable(s.b));
    }
  }
  return out;
}

std::string comparison_json(const Comparison& c) {
  nlohmann::ordered_json doc;
  doc["schema_version"] = 1;
  const auto side = [](const std::string& name, const std::string& fingerprint, bool complete,
                       double ns) {
    return nlohmann::ordered_json{
        {"scenario", name}, {"fingerprint", fingerprint}, {"complete", complete}, {"time_ns", ns}};
  };
  doc["a"] = side(c.a_name, c.a_fingerprint, c.a_complete, c.a_ns);
  doc["b"] = side(c.b_name, c.b_fingerprint, c.b_complete, c.b_ns);
  doc["times_are"] = c.step ? "step" : "end";
  doc["change_ns"] = c.b_ns - c.a_ns;
  doc["explanation"] = sentence(c.a_ns, c.b_ns, c.parts);
  doc["parts"] = list(c.parts, "_ns");
  auto& jobs = doc["jobs"] = nlohmann::ordered_json::array();
  for (const ComparedJob& job : c.jobs) {
    jobs.push_back({{"name", job.name},
                    {"a_ns", job.a_ns},
                    {"b_ns", job.b_ns},
                    {"parts", list(job.parts, "_ns")}});
  }
  doc["kernels"] = list(c.kernels, "_ns");
  doc["links"] = list(c.links, "_ns");
  doc["totals"] = list(c.totals, "");
  auto& settings = doc["settings"] = nlohmann::ordered_json::array();
  for (const auto& s : c.settings) settings.push_back({{"key", s.key}, {"a", s.a}, {"b", s.b}});
  return doc.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace trainyard
