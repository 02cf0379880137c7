// SPDX-License-Identifier: MIT
#include "tools/scenario/degraded.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "network/topology_select.h"
#include "sim/hash128.h"
#include "tools/build_info/build_info.h"
#include "tools/report/report.h"
#include "tools/report/text.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string hex(const Hash128& h) {
  return fmt::format("{:016x}{:016x}", h.a, h.b);
}

Hash128 hash_of(const std::string& text) {
  Hash128 h;
  h.add(text.size());
  for (size_t i = 0; i < text.size(); i += 8) {
    uint64_t word = 0;
    for (size_t k = i; k < std::min(text.size(), i + 8); ++k) {
      word = word << 8 | static_cast<unsigned char>(text[k]);
    }
    h.add(word);
  }
  return h;
}

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Every setting but those that change no result, and what the files say that are named there.
std::string common_part(const Scenario& s) {
  for (const WorkloadSpec* w : s.workloads()) {
    if (!w->chakra.empty()) return {};
  }
  const BuildInfo& build = build_info();
  std::string out = fmt::format("program {} {} {}\nseed {}\n", build.version, build.commit,
                                build.build_type, s.seed);
  if (std::string_view(build.commit).find("dirty") != std::string_view::npos) {
    // A program of no commit: it is the same while its file is.
    std::error_code none;
    const fs::path self = "/proc/self/exe";
    out += fmt::format("  built {} {}\n", fs::file_size(self, none),
                       fs::last_write_time(self, none).time_since_epoch().count());
  }
  for (const auto& [key, value] : s.settings) {
    if (key == "name" || key.rfind("output.", 0) == 0 || key.rfind("faults", 0) == 0) continue;
    out += key + " = " + value + "\n";
    std::error_code ignored;
    const fs::path file = fs::path(s.base_dir) / value;
    if (!value.empty() && fs::is_regular_file(file, ignored)) {
      out += "  holds " + hex(hash_of(content_of(file))) + "\n";
    }
  }
  std::vector<fs::path> cards;
  std::error_code ignored;
  for (const auto& e : fs::recursive_directory_iterator(config_dir(), ignored)) {
    if (e.path().extension() == ".yaml") cards.push_back(e.path());
  }
  std::sort(cards.begin(), cards.end());
  std::string all;
  for (const fs::path& card : cards) {
    all += fs::relative(card, config_dir(), ignored).generic_string() + "\n" + content_of(card);
  }
  return out + "presets and cards " + hex(hash_of(all)) + "\n";
}

std::string fault_text(const ModelChoice& f) {
  std::string out = f.kind;
  for (const std::string& name : f.params.names()) out += " " + name + "=" + f.params.text(name);
  return out;
}

ModelChoice before(const std::string& kind, const std::string& where,
                   const std::string& reaction = {}) {
  std::vector<std::pair<std::string, std::string>> values = {{"at", "before"}, {"where", where}};
  if (!reaction.empty()) values.emplace_back("reaction", reaction);
  return make_fault(kind, values, {"degraded", 0});
}

}  // namespace

DegradedSteps::DegradedSteps(const Scenario& scenario, std::string folder)
    : scenario_(scenario), folder_(std::move(folder)) {
  scenario_.faults.clear();
  scenario_.interference = false;
  if (!folder_.empty()) common_ = common_part(scenario_);
}

std::string DegradedSteps::key_text(const DegradedState& state) const {
  std::vector<std::string> faults;
  for (const ModelChoice& f : state.faults) faults.push_back(fault_text(f));
  std::sort(faults.begin(), faults.end());
  std::string out = common_;
  for (const std::string& f : faults) out += "fault " + f + "\n";
  return out;
}

DegradedStep DegradedSteps::step(const DegradedState& state) {
  DegradedStep out;
  out.name = state.name;
  const std::string text = common_.empty() ? "" : key_text(state);
  fs::path file;
  if (!text.empty()) {
    out.key = hex(hash_of(text));
    file = fs::path(folder_) / (out.key + ".json");
    const Json kept = Json::parse(content_of(file), nullptr, false);
    // The whole key is compared: a file that is damaged, or of another scenario, is not used.
    if (kept.is_object() && kept.value("key", "") == text && kept.contains("step_time_ps")) {
      out.step = Time::ps(kept["step_time_ps"].get<int64_t>());
      out.reason = kept.value("reason", "");
      out.wall_s = kept.value("wall_s", 0.0);
      out.cached = true;
      return out;
    }
  }
  Scenario s = scenario_;
  s.faults = state.faults;
  try {
    const Result r = run_scenario(s);
    out.wall_s = r.wall_s;
    if (r.complete) {
      out.step = r.step_time > Time() ? r.step_time : r.end;
    } else {
      out.reason = r.incomplete_reason;
    }
  } catch (const UserError& e) {
    // Nothing but these faults can be what is wrong: the scenario without them was read and runs.
    if (state.faults.empty()) throw;
    out.reason = e.what();
  }
  if (!text.empty()) {
    fs::create_directories(folder_);
    const Json doc = {{"schema_version", 1},           {"name", out.name},
                      {"step_time_ps", out.step.ps()}, {"reason", out.reason},
                      {"wall_s", out.wall_s},          {"key", text}};
    write_atomically(file.string(), doc.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  return out;
}

std::vector<DegradedState> representative_states(const Scenario& s) {
  const auto ranks =
      s.has_workload() ? static_cast<uint32_t>(load_workload(s).import.job.ranks.size()) : 0;
  const Topology t = build_topology(s, ranks);
  const uint32_t host = t.hosts()[0];
  const std::string nic = nic_name(t.nodes()[host].name);
  const auto links = t.nic_links(host);
  std::vector<DegradedState> out;
  if (links.empty()) return out;
  if (links.size() > 1) {
    out.push_back({"one port of a NIC", {before("nic-down", nic + ":port0")}});
  }
  const TopologyLink& l = t.links()[links[0]];
  const uint32_t leaf = l.a == host ? l.b : l.a;
  const std::string leaf_name = t.nodes()[leaf].name;
  out.push_back({"a leaf", {before("switch-down", leaf_name)}});
  const auto ports = t.nodes()[leaf].ports;
  for (size_t i = 0; i < ports.size(); ++i) {
    const uint32_t above = t.to(ports[i]);
    if (t.kind(above) == NodeKind::host) continue;
    out.push_back({"a cable between leaf and spine",
                   {before("link-down", leaf_name + ":port" + std::to_string(i))}});
    out.push_back({"a spine", {before("switch-down", t.nodes()[above].name)}});
    break;
  }
  const auto plane = t.nodes()[leaf].place.plane;
  bool planes = false;
  for (uint32_t n = 0; n < t.nodes().size(); ++n) {
    planes = planes || (t.kind(n) == NodeKind::leaf && t.nodes()[n].place.plane != plane);
  }
  if (planes) {
    out.push_back({"a plane", {before("switch-down", "plane" + std::to_string(plane))}});
  }
  // Last: queue pairs that move to another NIC do so as packets, without the fast path.
  if (t.server_mates(host).size() > 1) {
    out.push_back({"a NIC, its neighbour as backup", {before("nic-down", nic, "backup-nic")}});
  }
  return out;
}

std::vector<DegradedState> own_states(const Scenario& s) {
  std::vector<DegradedState> out;
  for (const ModelChoice& given : s.faults) {
    ModelChoice f = given;
    if (f.kind != "link-flap") {
      f.params.set("at", "before", given.params.origin("at"));
      f.params.set("for", "end", given.params.origin("for"));
      f.params.set("mtbf", "none", given.params.origin("mtbf"));
      f.params.set("horizon", "none", given.params.origin("horizon"));
    }
    out.push_back({f.kind + " " + f.params.text("where"), {f}});
  }
  return out;
}

DegradedTable degraded_table(const Scenario& s, const std::string& folder,
                             const std::function<void(const std::string&)>& tell) {
  DegradedTable table;
  table.name = s.name;
  DegradedSteps steps(s, folder);
  std::vector<DegradedState> states = {{"healthy", {}}};
  for (DegradedState& state : s.faults.empty() ? representative_states(s) : own_states(s)) {
    states.push_back(std::move(state));
  }
  for (const DegradedState& state : states) {
    if (tell) tell(state.name);
    table.rows.push_back(steps.step(state));
    if (!table.rows[0].reason.empty()) throw SimulationError(table.rows[0].reason);
  }
  return table;
}

std::string degraded_text(const DegradedTable& t) {
  std::string out = report::printable(t.name) + "\n\n";
  out += fmt::format("  {:34} {:>14} {:>9} {:>12}\n", "broken all along", "step time", "slowdown",
                     "simulated in");
  for (const DegradedStep& r : t.rows) {
    const std::string what = report::shortened(report::printable(r.name), 34, "...");
    out += "  " + what + std::string(34 - report::columns(what), ' ');
    out += r.reason.empty()
               ? fmt::format(" {:>14} {:>9.4f} {:>10.2f} s{}\n", print_time(r.step, 6),
                             r.step.seconds() / t.rows[0].step.seconds(), r.wall_s,
                             r.cached ? ", kept from then" : "")
               : fmt::format(" {:>14} {:>9} {:>10.2f} s{}\n    {}\n", "stops", "-", r.wall_s,
                             r.cached ? ", kept from then" : "", report::printable(r.reason));
  }
  return out;
}

std::string degraded_json(const DegradedTable& t) {
  Json rows = Json::array();
  for (const DegradedStep& r : t.rows) {
    Json row = {{"name", r.name}, {"runs", r.reason.empty()}};
    if (r.reason.empty()) {
      row["step_time_s"] = r.step.seconds();
      row["slowdown_ratio"] = r.step.seconds() / t.rows[0].step.seconds();
    } else {
      row["reason"] = r.reason;
    }
    row["cached"] = r.cached;
    row["simulated_wall_s"] = r.wall_s;
    row["key"] = r.key;
    rows.push_back(std::move(row));
  }
  const Json doc = {{"schema_version", 1}, {"scenario", t.name}, {"states", std::move(rows)}};
  return doc.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace trainyard
