// SPDX-License-Identifier: MIT
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/report/text.h"
#include "tools/scenario/plan.h"

namespace trainyard {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t kMostMatrixRanks = 1024;
constexpr size_t kTopPairs = 1024;

std::string text(const std::string& value) {
  return report::valid_utf8(value);
}

const char* origin_kind(Origin::Kind kind) {
  switch (kind) {
    case Origin::Kind::default_value:
      return "default";
    case Origin::Kind::preset:
      return "preset";
    case Origin::Kind::user:
      return "scenario";
    case Origin::Kind::command_line:
      return "command line";
  }
  return "";
}

Json setting(const Setting& s) {
  Json out = {
      {"key", text(s.key)}, {"value", text(s.value)}, {"origin", origin_kind(s.origin.kind)}};
  if (!s.origin.pos.file.empty()) out["file"] = text(s.origin.pos.file);
  if (s.origin.pos.line > 0) out["line"] = s.origin.pos.line;
  if (!s.source.empty()) out["source_of_default"] = text(s.source);
  return out;
}

Json calls(const Plan::Calls& c, bool group) {
  Json out = {{"name", text(c.name)}};
  if (group)
    out["members"] = c.members;
  else
    out["algorithm"] = text(c.algorithm);
  out["calls"] = c.calls;
  out["messages"] = c.messages;
  out["payload_bytes"] = c.payload;
  return out;
}

Json list(const std::vector<Plan::Pair>& pairs, const char* src, const char* dst) {
  Json out = Json::array();
  for (const auto& e : pairs) {
    out.push_back({{src, e.src}, {dst, e.dst}, {"payload_bytes", e.payload}});
  }
  return out;
}

}  // namespace

std::string plan_json(const Plan& p) {
  Json doc;
  doc["schema_version"] = Plan::kSchemaVersion;
  doc["name"] = text(p.name);
  doc["file"] = text(p.file);
  doc["seed"] = p.seed;
  doc["warnings"] = Json::array();
  for (const auto& w : p.warnings) doc["warnings"].push_back(text(w));
  doc["settings"] = Json::array();
  for (const auto& s : p.settings) doc["settings"].push_back(setting(s));
  doc["fabric"] = {
      {"gpus", p.gpus}, {"servers", p.servers}, {"switches", p.switches}, {"links", p.links}};

  Json ops = Json::object();
  for (const auto& o : p.ops) ops[o.name] = o.count;
  Json kinds = Json::array();
  for (const auto& c : p.kinds) kinds.push_back(calls(c, false));
  Json groups = Json::array();
  for (const auto& c : p.groups) groups.push_back(calls(c, true));
  doc["workload"] = {
      {"ranks", p.ranks}, {"rank_classes", p.rank_classes}, {"compute_times", p.compute_source},
      {"ops", ops},       {"collectives", kinds},           {"groups", groups}};

  if (!p.training.empty()) {
    Json& training = doc["training"] = Json::object();
    for (const TrainingFigure& f : p.training) training[text(f.key)] = f.value;
  }

  Json traffic = {{"payload_bytes", p.payload}, {"inside_servers_bytes", p.inside_servers}};
  // Without servers of several GPUs there are no rails to tell apart.
  const int64_t between = p.on_one_rail + p.across_rails;
  traffic["between_servers_bytes"] = between;
  traffic["inside_servers_pair_count"] = p.pairs_inside_servers;
  traffic["on_one_rail_pair_count"] = p.has_rails ? Json(p.pairs_on_one_rail) : Json(nullptr);
  traffic["across_rails_pair_count"] = p.has_rails ? Json(p.pairs_across_rails) : Json(nullptr);
  traffic["of_rail_bytes"] = p.of_rail;
  traffic["on_one_rail_bytes"] = p.has_rails ? Json(p.on_one_rail) : Json(nullptr);
  traffic["across_rails_bytes"] = p.has_rails ? Json(p.across_rails) : Json(nullptr);
  traffic["servers"] = list(p.server_pairs, "src_server", "dst_server");
  std::vector<Plan::Pair> pairs = p.pairs;
  const bool whole = p.gpus <= kMostMatrixRanks;
  if (!whole) {
    std::stable_sort(pairs.begin(), pairs.end(),
                     [](const auto& a, const auto& b) { return a.payload > b.payload; });
    pairs.resize(std::min(pairs.size(), kTopPairs));
  }
  traffic["rank_pairs_complete"] = whole || pairs.size() == p.pairs.size();
  traffic["rank_pairs"] = list(pairs, "src_rank", "dst_rank");
  doc["traffic"] = std::move(traffic);

  Json tiers = Json::array();
  for (const auto& t : p.tiers) {
    tiers.push_back({{"tier", text(t.tier)},
                     {"directed_links", t.links},
                     {"wire_bytes", t.wire},
                     {"payload_bytes", t.payload},
                     {"link_transmissions", t.transmissions}});
  }
  Json busiest = Json::array();
  for (const auto& l : p.busiest) {
    busiest.push_back({{"from", text(l.from)},
                       {"to", text(l.to)},
                       {"tier", text(l.tier)},
                       {"rate_bits_per_s", l.rate.bps()},
                       {"wire_bytes", l.wire},
                       {"payload_bytes", l.payload},
                       {"link_transmissions", l.transmissions}});
  }
  doc["links"] = {{"tiers", tiers}, {"busiest", busiest}};
  doc["run"] = {{"engine", text(p.engine)},
                {"messages", p.messages},
                {"queue_pairs", p.queue_pairs},
                {"data_packets", p.data_packets},
                {"ack_packets", p.ack_packets},
                {"link_transmissions", p.transmissions},
                {"least_simulated_time_s", p.busiest_s},
                {"assumed_link_transmissions_per_s", Plan::kTransmissionsPerSecond},
                {"estimated_wall_time_s", p.engine == "packet" ? Json(p.wall_s) : Json(nullptr)},
                {"estimated_memory_bytes", p.memory_bytes}};
  return doc.dump(1) + "\n";
}

}  // namespace trainyard
