// SPDX-License-Identifier: MIT
#include "tools/scenario/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "sim/registry.h"
#include "tools/scenario/scenario_keys.h"
#include "tools/scenario/training_figures.h"
#include "workload/collective_params.h"
#include "workload/generator/layout_lint.h"
#include "workload/generator/memory.h"
#include "workload/nccl_env.h"
#include "workload/storage.h"

namespace trainyard {
namespace fs = std::filesystem;
namespace {

using Kind = ConfigNode::Kind;

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t up = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = up;
    }
  }
  return row[b.size()];
}

[[noreturn]] void unknown_key(const SourcePos& pos, const std::string& block,
                              const std::string& key, const std::vector<std::string>& known) {
  std::string best;
  size_t distance = 3;
  std::string list;
  for (const auto& k : known) {
    list += (list.empty() ? "" : ", ") + k;
    const size_t d = edit_distance(key, k);
    if (d < distance) {
      distance = d;
      best = k;
    }
  }
  throw UserError(pos, "unknown key '" + key + "'" + (block.empty() ? "" : " in " + block),
                  (best.empty() ? "" : "did you mean '" + best + "'? ") + ("known: " + list));
}

[[noreturn]] void not_built(const SourcePos& pos, const std::string& what) {
  throw UserError(pos, what + " is not built yet", "remove it from the scenario");
}

/// Keys of one map, each taken once; what is left over is unknown.
/// A list of flat maps as it would be written in one line.
std::string entries_text(const ConfigNode& list, const std::string& path) {
  std::string out;
  for (const ConfigNode& item : list.items) {
    if (item.kind != Kind::map) {
      throw UserError(item.origin.pos, path + " must be a list of blocks of keys",
                      "write '[{replica: 0, tp: 7}]'");
    }
    std::string entry;
    for (const auto& e : item.entries) {
      if (e.value.kind != Kind::scalar) {
        throw UserError(e.value.origin.pos, path + ": " + e.key + " must be one value");
      }
      entry += (entry.empty() ? "" : ", ") + e.key + ": " + e.value.text;
    }
    out += (out.empty() ? "{" : ", {") + entry + "}";
  }
  return "[" + out + "]";
}

class Block {
 public:
  Block(const ConfigNode* node, std::string path, SourcePos fallback)
      : node_(node), path_(std::move(path)), pos_(node != nullptr ? node->origin.pos : fallback) {
    if (node_ != nullptr && node_->kind == Kind::null) node_ = nullptr;
    if (node_ != nullptr && node_->kind != Kind::map) {
      throw UserError(node_->origin.pos, path_ + " must be a block of keys");
    }
  }

  const ConfigNode* take(const std::string& key) {
    known_.push_back(key);
    taken_.insert(key);
    return node_ == nullptr ? nullptr : node_->find(key);
  }
  [[nodiscard]] const ConfigNode* peek(const std::string& key) const {
    return node_ == nullptr ? nullptr : node_->find(key);
  }
  /// A key of the grammar whose feature does not exist yet.
  void refuse(const std::string& key) {
    if (const auto* n = take(key); n != nullptr) not_built(key_pos(key), full(key));
  }
  Block block(const std::string& key) { return {take(key), full(key), pos_}; }

  std::string text(const std::string& key, const std::string& fallback) {
    const auto* n = take(key);
    if (n == nullptr || n->kind == Kind::null) return fallback;
    if (n->kind != Kind::scalar) throw UserError(n->origin.pos, full(key) + " must be one value");
    return n->text;
  }
  /// One of the spec's values, checked like a model parameter.
  Params one(const ParamSpec& spec) {
    Params p({spec});
    const auto* n = take(spec.name);
    if (n != nullptr && n->kind != Kind::null) {
      if (n->kind != Kind::scalar) {
        throw UserError(n->origin.pos, full(spec.name) + " must be one value");
      }
      p.set(spec.name, n->text, n->origin);
    }
    return p;
  }
  /// A value of a device card: plain, or {value: , source: , unverified: true}.
  Params card_value(const ParamSpec& spec, const std::string& key, DeviceCard& card) {
    const auto* n = peek(spec.name);
    if (n == nullptr || n->kind != Kind::map) return one(spec);
    Block b = block(spec.name);
    ParamSpec value = spec;
    value.name = "value";
    const Params found = b.one(value);
    const Params unverified =
        b.one({"unverified", ParamType::boolean, "false", "", "", {}, "", ""});
    const std::string source = b.text("source", "");
    b.finish();
    if (!source.empty()) card.sources[key] = source;
    if (unverified.boolean("unverified")) card.unverified.push_back(key);
    Params p({spec});
    p.set(spec.name, found.text("value"), found.origin("value"));
    return p;
  }
  /// Fills `params` from all keys that are not taken; nested maps give dotted names.
  void fill(Params& params) {
    for (const auto& name : params.names()) known_.push_back(name.substr(0, name.find('.')));
    if (node_ != nullptr) fill_from(*node_, "", params);
    filled_ = true;
  }
  void finish() const {
    if (node_ == nullptr || filled_) return;
    for (const auto& e : node_->entries) {
      if (taken_.count(e.key) == 0) unknown_key(e.key_pos, path_, e.key, known_);
    }
  }

  [[nodiscard]] bool present() const { return node_ != nullptr; }
  [[nodiscard]] const SourcePos& pos() const { return pos_; }
  [[nodiscard]] std::string full(const std::string& key) const {
    return path_.empty() ? key : path_ + "." + key;
  }
  /// Where the value of `key` comes from; the default when it is not given.
  [[nodiscard]] Origin origin(const std::string& key) const {
    const auto* n = peek(key);
    return n == nullptr || n->kind == Kind::null ? Origin{} : n->origin;
  }
  [[nodiscard]] SourcePos key_pos(const std::string& key) const {
    if (node_ != nullptr) {
      for (const auto& e : node_->entries) {
        if (e.key != key) continue;
        const bool replaced = e.value.origin.kind == Origin::Kind::command_line;
        return replaced ? e.value.origin.pos : e.key_pos;
      }
    }
    return pos_;
  }

 private:
  void fill_from(const ConfigNode& map, const std::string& prefix, Params& params) {
    for (const auto& e : map.entries) {
      if (prefix.empty() && taken_.count(e.key) != 0) continue;
      const std::string name = prefix + e.key;
      const bool inner = std::any_of(params.names().begin(), params.names().end(),
                                     [&](const auto& n) { return n.rfind(name + ".", 0) == 0; });
      if (params.has_spec(name)) {
        if (e.value.kind == Kind::null) continue;
        if (e.value.kind == Kind::map && inner) {
          fill_from(e.value, name + ".", params);
          continue;
        }
        if (name == "layout.unlike" && e.value.kind == Kind::list) {
          params.set(name, entries_text(e.value, full(name)), e.value.origin);
          continue;
        }
        if (e.value.kind != Kind::scalar) {
          throw UserError(e.value.origin.pos, full(name) + " must be one value");
        }
        params.set(name, e.value.text, e.value.origin);
        continue;
      }
      if (inner && e.value.kind == Kind::map) {
        fill_from(e.value, name + ".", params);
        continue;
      }
      std::vector<std::string> known;
      if (prefix.empty()) known = known_;
      for (const auto& n : params.names()) {
        if (n.rfind(prefix, 0) != 0) continue;
        std::string rest = n.substr(prefix.size());
        rest = rest.substr(0, rest.find('.'));
        if (std::find(known.begin(), known.end(), rest) == known.end()) known.push_back(rest);
      }
      std::sort(known.begin(), known.end());
      known.erase(std::unique(known.begin(), known.end()), known.end());
      unknown_key(e.key_pos, prefix.empty() ? path_ : full(prefix.substr(0, prefix.size() - 1)),
                  e.key, known);
    }
  }

  const ConfigNode* node_;
  std::string path_;
  SourcePos pos_;
  std::vector<std::string> known_;
  std::set<std::string> taken_;
  bool filled_ = false;
};

ModelChoice read_model(Block& block, const std::string& category, const std::string& key,
                       const std::string& fallback) {
  ModelChoice m;
  m.category = category;
  m.kind = block.text(key, fallback);
  m.pos = block.present() ? block.key_pos(key) : block.pos();
  const ModelDoc& doc = Registry::instance().get(category, m.kind, m.pos);
  m.params = Params(doc.params);
  block.fill(m.params);
  m.pos = block.pos();
  return m;
}

void list_setting(Scenario& s, const std::string& key, const std::string& value,
                  const Origin& origin, const std::string& source = {}) {
  s.settings.emplace_back(key, value + "  (" + origin_text(origin) + ")");
  std::string from;
  if (origin.kind == Origin::Kind::default_value) {
    const ParamSpec* own = find_scenario_key(key);
    from = source.empty() && own != nullptr ? own->source : source;
  }
  s.resolved.push_back({key, value, origin, from});
}

void list_settings(Scenario& s, const std::string& prefix, const Params& params) {
  for (const auto& name : params.names()) {
    if (!params.text(name).empty()) {
      list_setting(s, prefix + name, params.text(name), params.origin(name),
                   params.spec(name).source);
    }
  }
}

std::string relative_to(const std::string& base, const std::string& path) {
  const fs::path p(path);
  return p.is_absolute() ? path : (fs::path(base) / p).lexically_normal().string();
}

std::string slug(const std::string& name) {
  std::string out;
  for (const char c : name) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (word)
      out += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    else if (!out.empty() && out.back() != '-')
      out += '-';
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out.empty() ? "run" : out;
}

/// Sub-blocks of the preset that describe another kind than the user asks for say nothing.
void drop_other_kinds(ConfigNode& preset, const ConfigNode& user) {
  auto& entries = preset.entries;
  const auto is_other = [&](const auto& entry) {
    const ConfigNode* mine = user.find(entry.key);
    if (mine == nullptr || mine->kind != Kind::map || entry.value.kind != Kind::map) return false;
    const ConfigNode* kind = mine->find("kind");
    const ConfigNode* preset_kind = entry.value.find("kind");
    return kind != nullptr && preset_kind != nullptr && kind->text != preset_kind->text;
  };
  entries.erase(std::remove_if(entries.begin(), entries.end(), is_other), entries.end());
}

/// Puts configs/<folder>/<name>.yaml under the user's keys of `block`.
void merge_preset(ConfigNode& block, const std::string& folder, const std::string& key) {
  const ConfigNode* name = block.find(key);
  if (name == nullptr || name->kind == Kind::null) return;
  if (name->kind != Kind::scalar) {
    throw UserError(name->origin.pos, "the " + folder + " preset must be one name");
  }
  const fs::path file = fs::path(config_dir()) / folder / (name->text + ".yaml");
  std::error_code error;  // a name may be too long for the file system
  if (name->text.find('/') != std::string::npos || !fs::exists(file, error)) {
    std::string known;
    std::vector<std::string> names;
    if (fs::is_directory(file.parent_path())) {
      for (const auto& e : fs::directory_iterator(file.parent_path())) {
        if (e.path().extension() == ".yaml") names.push_back(e.path().stem().string());
      }
    }
    std::sort(names.begin(), names.end());
    for (const auto& n : names) known += (known.empty() ? "" : ", ") + n;
    throw UserError(name->origin.pos, "unknown " + folder + " preset '" + name->text + "'",
                    "known: " + known);
  }
  ConfigNode preset = load_yaml(file.string(), Origin::Kind::preset);
  drop_other_kinds(preset, block);
  merge(preset, block);
  block = std::move(preset);
}

ConfigNode software_node(const std::string& name, const SourcePos& pos) {
  const fs::path file = fs::path(config_dir()) / "software" / (name + ".yaml");
  std::error_code error;  // a name may be too long for the file system
  if (name.find('/') != std::string::npos || !fs::exists(file, error)) {
    std::string known = "none";
    for (const auto& n : software_names()) known += ", " + n;
    throw UserError(pos, "unknown software '" + name + "'",
                    "known: " + known + " (files in " + config_dir() + "/software)");
  }
  return load_yaml(file.string(), Origin::Kind::preset);
}

/// Puts `under` beneath the user's keys; lines and the place of the block stay the user's.
void merge_under(ConfigNode& mine, const ConfigNode* under) {
  if (under == nullptr) return;
  ConfigNode merged = *under;
  const Origin origin = mine.origin;
  if (mine.kind != Kind::null) merge(merged, mine);
  mine = std::move(merged);
  mine.origin = origin;
}

/// Values that workload.software gives to keys that the scenario leaves out.
void merge_software(ConfigNode& root) {
  const auto apply = [&](ConfigNode& workload, bool alone) {
    if (workload.kind != Kind::map || workload.find("model") == nullptr) return;
    const ConfigNode* name = workload.find("software");
    if (name == nullptr || name->kind != Kind::scalar || name->text == "none") return;
    const ConfigNode file = software_node(name->text, name->origin.pos);
    merge_under(workload, file.find("workload"));
    // Collectives are one block for all jobs, and theirs may differ.
    const ConfigNode* collectives = file.find("collectives");
    if (alone && collectives != nullptr) {
      merge_under(root.child("collectives", collectives->origin), collectives);
    }
  };
  // By index: root.child() may move the entries.
  for (size_t i = 0; i < root.entries.size(); ++i) {
    if (root.entries[i].key == "workload") {
      ConfigNode workload = root.entries[i].value;
      apply(workload, true);
      root.entries[i].value = std::move(workload);
    }
    if (root.entries[i].key != "jobs") continue;
    for (ConfigNode& job : root.entries[i].value.items) {
      for (auto& e : job.entries) {
        if (e.key == "workload") apply(e.value, false);
      }
    }
  }
}

void read_cluster(Block& root, Scenario& s) {
  Block b = root.block("cluster");
  s.cluster_pos = b.pos();
  const Params nodes = b.one(scenario_key("cluster.nodes"));
  if (!nodes.is_word("nodes", "auto")) s.nodes = static_cast<uint32_t>(nodes.integer("nodes"));
  const Params gpus = b.one(scenario_key("cluster.gpus_per_node"));
  s.gpus_per_node = static_cast<uint32_t>(gpus.integer("gpus_per_node"));
  const Params nics = b.one(scenario_key("cluster.nics_per_node"));
  s.nics_per_node = nics.is_word("nics_per_node", "auto")
                        ? s.gpus_per_node
                        : static_cast<uint32_t>(nics.integer("nics_per_node"));
  const std::string device = b.text("device", scenario_key("cluster.device").default_value);
  s.device = load_device(device, b.key_pos("device"));
  s.placement = b.text("placement", s.placement);
  s.placement_pos = b.key_pos("placement");
  const bool from_file = s.placement.rfind("file:", 0) == 0 && s.placement.size() > 5;
  if (s.placement != "contiguous" && s.placement != "striped" && !from_file) {
    throw UserError(s.placement_pos, "cluster.placement: '" + s.placement +
                                         "' is not one of: contiguous, striped, file:PATH");
  }
  b.finish();
  list_settings(s, "cluster.", nodes);
  list_settings(s, "cluster.", gpus);
  list_settings(s, "cluster.", nics);
  list_setting(s, "cluster.device", device, b.origin("device"));
  list_setting(s, "cluster.placement", s.placement, b.origin("placement"));
}

/// A list of names, or one. "link(a,b)" inside of brackets is two items to YAML.
std::vector<std::string> read_names(const ConfigNode& node, const std::string& what) {
  if (node.kind == Kind::scalar) return {node.text};
  std::vector<std::string> names;
  bool open = false;
  const auto bad = [&](const SourcePos& pos) {
    throw UserError(pos, what + " must be a list of names", "write [leaf0, 'link(leaf0,spine2)']");
  };
  if (node.kind != Kind::list || node.items.empty()) bad(node.origin.pos);
  for (const ConfigNode& item : node.items) {
    if (item.kind != Kind::scalar || item.text.empty()) bad(item.origin.pos);
    if (open)
      names.back() += "," + item.text;
    else
      names.push_back(item.text);
    const std::string& name = names.back();
    open = std::count(name.begin(), name.end(), '(') > std::count(name.begin(), name.end(), ')');
  }
  return names;
}

/// load_balancing: {kind: pinned, routes: [...]}: a list is taken here, a file's name is a
/// parameter of the model.
void read_route_list(Block& lb, const std::string& path, Scenario& s) {
  const ConfigNode* kind = lb.peek("kind");
  const ConfigNode* list = lb.peek("routes");
  if (kind == nullptr || kind->text != "pinned" || list == nullptr || list->kind != Kind::list) {
    return;
  }
  (void)lb.take("routes");
  for (size_t i = 0; i < list->items.size(); ++i) {
    const std::string name = path + ".routes[" + std::to_string(i) + "]";
    Block b(&list->items[i], name, list->origin.pos);
    PinnedRoute r;
    r.pos = b.pos();
    r.from = b.text("from", "");
    r.to = b.text("to", "");
    if (r.from.empty() || r.to.empty()) {
      throw UserError(r.pos, "a route needs 'from' and 'to'",
                      "write {from: node0.gpu0, to: node4.gpu0, via: [spine2]}");
    }
    const auto number = [&](const char* key) {
      const Params p =
          b.one({key, ParamType::integer, "none", "0", "1000000000", {"none"}, "", ""});
      return p.is_word(key, "none") ? int64_t{-1} : p.integer(key);
    };
    r.qp = number("qp");
    r.path = number("path");
    if (const ConfigNode* via = b.take("via"); via != nullptr)
      r.via = read_names(*via, name + ".via");
    b.finish();
    s.pinned.push_back(std::move(r));
  }
}

void read_risk_groups(const ConfigNode* groups, Scenario& s) {
  if (groups == nullptr || groups->kind == Kind::null) return;
  if (groups->kind != Kind::map) {
    throw UserError(groups->origin.pos, "fabric.risk_groups must name groups and their members",
                    "write 'risk_groups: {optic17: [node3.nic5, node3.nic6]}'");
  }
  for (const auto& e : groups->entries) {
    const std::string key = "fabric.risk_groups." + e.key;
    RiskGroup g{e.key, read_names(e.value, key), e.value.origin.pos};
    std::string all;
    for (const std::string& member : g.members) {
      if (member.rfind("group:", 0) == 0) {
        throw UserError(g.pos, key + ": a group cannot hold a group", "list its members");
      }
      all += (all.empty() ? "" : ", ") + member;
    }
    list_setting(s, key, all, e.value.origin);
    s.risk_groups.push_back(std::move(g));
  }
}

void read_fabric(Block& root, Scenario& s) {
  Block fabric = root.block("fabric");
  Block topology = fabric.block("topology");
  s.topology = read_model(topology, "topology", "kind", "rail-optimized");
  list_setting(s, "fabric.topology.kind", s.topology.kind, topology.origin("kind"));
  list_settings(s, "fabric.topology.", s.topology.params);

  Block transport = fabric.block("transport");
  if (const auto* preset = transport.take("preset"); preset != nullptr) {
    list_setting(s, "fabric.transport.preset", preset->text, preset->origin);
  }
  Block congestion = transport.block("congestion");
  s.congestion = read_model(congestion, "congestion", "kind", "dcqcn");
  Block lb = transport.block("load_balancing");
  read_route_list(lb, "fabric.transport.load_balancing", s);
  s.ecmp = read_model(lb, "load_balancing", "kind", "ecmp");
  if (s.ecmp.kind == "pinned") {
    const Params& p = s.ecmp.params;
    if (!p.text("routes").empty()) {
      s.pinned =
          read_pinned_routes(relative_to(s.base_dir, p.text("routes")), p.origin("routes").pos);
    }
    if (s.pinned.empty()) {
      s.warnings.push_back("load_balancing: pinned without routes: all queue pairs go by 'rest', " +
                           p.text("rest"));
    }
  }
  // A queue pair stays in the plane of its NIC port, sprayed or not.
  if (const Params& t = s.topology.params; t.has_spec("planes")) {
    const int64_t planes = t.integer("planes"), qps = s.ecmp.params.integer("qps");
    if (qps < planes) {
      s.warnings.push_back(
          fmt::format("load_balancing: {} planes and qps: {}: a message gets at most {}/{} of the "
                      "rate of a NIC; "
                      "kind: source-routed with qps: {} uses all planes",
                      planes, qps, qps, planes, planes));
    }
  }
  s.transport.category = "transport";
  s.transport.kind = "rocev2";
  s.transport.params = Params(transport_params());
  transport.fill(s.transport.params);
  list_settings(s, "fabric.transport.", s.transport.params);
  list_setting(s, "fabric.transport.congestion.kind", s.congestion.kind, congestion.origin("kind"));
  list_settings(s, "fabric.transport.congestion.", s.congestion.params);
  list_setting(s, "fabric.transport.load_balancing.kind", s.ecmp.kind, lb.origin("kind"));
  list_settings(s, "fabric.transport.load_balancing.", s.ecmp.params);

  Block sw = fabric.block("switch");
  Block pfc = sw.block("pfc");
  Block ecn = sw.block("ecn");
  s.pfc.params = Params(pfc_params());
  pfc.fill(s.pfc.params);
  s.ecn.params = Params(ecn_params());
  ecn.fill(s.ecn.params);
  s.buffer.params = Params(buffer_params());
  sw.fill(s.buffer.params);
  list_settings(s, "fabric.switch.", s.buffer.params);
  list_settings(s, "fabric.switch.pfc.", s.pfc.params);
  list_settings(s, "fabric.switch.ecn.", s.ecn.params);
  read_risk_groups(fabric.take("risk_groups"), s);
  fabric.finish();
}

void read_wiring(Block& root, Scenario& s) {
  Block b = root.block("wiring");
  s.nic_order = b.text("nic_order", "");
  s.nic_order_pos = b.key_pos("nic_order");
  if (!s.nic_order.empty()) {
    list_setting(s, "wiring.nic_order", s.nic_order, b.origin("nic_order"));
  }
  const ConfigNode* list = b.take("swap");
  b.finish();
  if (list == nullptr || list->kind == Kind::null) return;
  const auto malformed = [](const SourcePos& pos) {
    return UserError(pos, "wiring.swap must be a list of pairs of NICs",
                     "write 'swap: [[node3.nic0, node3.nic1]]'");
  };
  if (list->kind != Kind::list) throw malformed(list->origin.pos);
  for (const ConfigNode& pair : list->items) {
    if (pair.kind != Kind::list || pair.items.size() != 2 || pair.items[0].kind != Kind::scalar ||
        pair.items[1].kind != Kind::scalar) {
      throw malformed(pair.origin.pos);
    }
    s.swaps.push_back({pair.items[0].text, pair.items[1].text, pair.origin.pos});
    list_setting(s, "wiring.swap[" + std::to_string(s.swaps.size() - 1) + "]",
                 s.swaps.back().a + " with " + s.swaps.back().b, pair.origin);
  }
}

const std::vector<ParamSpec>& model_card_params() {
  using PT = ParamType;
  const auto whole = [](const char* name, const char* fallback, const char* help) {
    return ParamSpec{name, PT::integer, fallback, "0", "1000000000", {"auto"}, help, "the card"};
  };
  const auto flag = [](const char* name, const char* help) {
    return ParamSpec{name, PT::boolean, "false", "", "", {}, help, "the card"};
  };
  static const std::vector<ParamSpec> specs = {
      whole("layers", "0", "transformer layers"),
      whole("hidden", "0", "width of the residual stream"),
      whole("ffn", "auto", "width of a dense MLP; auto: 4 x hidden"),
      whole("heads", "0", "attention heads"),
      whole("kv_heads", "auto", "heads of keys and values; auto: heads"),
      whole("head_size", "auto", "width of a head; auto: hidden / heads"),
      whole("vocab", "0", "rows of the embedding"),
      whole("positions", "0", "learned position embeddings"),
      flag("gated", "SwiGLU: three matrices in an MLP"),
      flag("biases", "linear layers and norms have biases"),
      flag("tied_embeddings", "the output layer is the input embedding"),
      whole("experts", "0", "routed experts of a layer; 0: a dense model"),
      whole("topk", "0", "experts that a token visits"),
      whole("expert_ffn", "auto", "width of an expert; auto: ffn"),
      whole("shared_ffn", "0", "width of all shared experts together"),
      whole("dense_layers", "0", "leading layers without experts"),
      whole("latent.q_rank", "0", "latent attention: rank of queries; 0: full"),
      whole("latent.kv_rank", "0", "latent attention: rank of keys and values; 0: not used"),
      whole("latent.nope", "0", "latent attention: size of a head without position"),
      whole("latent.rope", "0", "latent attention: size of a head with position"),
      whole("latent.value", "0", "latent attention: size of a head's value"),
      {"source", PT::text, "", "", "", {}, "where the values come from", ""},
  };
  return specs;
}

ModelCard model_card(const std::string& name, const Params& p) {
  const auto or_else = [&](const char* key, int64_t fallback) {
    return p.is_word(key, "auto") ? fallback : p.integer(key);
  };
  ModelCard m;
  m.name = name;
  m.layers = or_else("layers", 0);
  m.hidden = or_else("hidden", 0);
  m.ffn = or_else("ffn", 4 * m.hidden);
  m.heads = or_else("heads", 0);
  m.kv_heads = or_else("kv_heads", m.heads);
  m.head_size = or_else("head_size", m.heads > 0 ? m.hidden / m.heads : 0);
  m.vocab = or_else("vocab", 0);
  m.positions = or_else("positions", 0);
  m.gated = p.boolean("gated");
  m.biases = p.boolean("biases");
  m.tied_embeddings = p.boolean("tied_embeddings");
  m.experts = or_else("experts", 0);
  m.topk = or_else("topk", 0);
  m.expert_ffn = or_else("expert_ffn", m.ffn);
  m.shared_ffn = or_else("shared_ffn", 0);
  m.dense_layers = or_else("dense_layers", 0);
  m.latent.q_rank = or_else("latent.q_rank", 0);
  m.latent.kv_rank = or_else("latent.kv_rank", 0);
  m.latent.nope = or_else("latent.nope", 0);
  m.latent.rope = or_else("latent.rope", 0);
  m.latent.value = or_else("latent.value", 0);
  m.source = p.text("source");
  return m;
}

ConfigNode model_card_node(const std::string& name, const SourcePos& pos) {
  const fs::path file = fs::path(config_dir()) / "models" / (name + ".yaml");
  std::error_code error;  // a name may be too long for the file system
  if (name.find('/') != std::string::npos || !fs::exists(file, error)) {
    std::string known;
    for (const auto& n : model_names()) known += (known.empty() ? "" : ", ") + n;
    throw UserError(pos, "unknown model '" + name + "'",
                    "known: " + known + " (cards are files in " + config_dir() + "/models)");
  }
  return load_yaml(file.string(), Origin::Kind::preset);
}

ModelCard read_card(const ConfigNode& node, const std::string& name, const std::string& path) {
  Block b(&node, path, node.origin.pos);
  Params p(model_card_params());
  b.fill(p);
  return model_card(name, p);
}

void read_model_workload(Block& b, const ConfigNode& model, const std::string& path, int64_t gpus,
                         Scenario& s, WorkloadSpec& w) {
  w.workload_pos = b.key_pos("model");
  ModelCard card;
  if (model.kind == Kind::map) {
    // A card, with changes; or all of a model.
    ConfigNode mine = model;
    std::string name = "given in the scenario";
    ConfigNode node;
    if (const ConfigNode* base = model.find("card"); base != nullptr) {
      if (base->kind != Kind::scalar) {
        throw UserError(base->origin.pos, path + "model.card must be one name");
      }
      name = base->text + ", changed";
      node = model_card_node(base->text, base->origin.pos);
      auto& entries = mine.entries;
      entries.erase(std::remove_if(entries.begin(), entries.end(),
                                   [](const auto& e) { return e.key == "card"; }),
                    entries.end());
    } else {
      node.kind = Kind::map;
    }
    merge(node, mine);
    node.origin = model.origin;
    card = read_card(node, name, path + "model");
  } else if (model.kind == Kind::scalar) {
    card = load_model_card(model.text, model.origin.pos);
  } else {
    throw UserError(model.origin.pos, path + "model must be a name or a block of keys");
  }
  const Params sends = b.one(scenario_key("workload.sends"));
  w.eager_sends = sends.is_word("sends", "eager");
  Params params(training_params());
  b.fill(params);
  w.training = resolve_training(card, params, gpus, w.workload_pos);
  w.software = load_software(params.text("software"), params.origin("software").pos);
  const Training& t = *w.training;
  if (s.device.peak_tflops(t.gemm_precision) <= 0) {
    throw UserError(params.origin("precision.compute").pos,
                    "device " + s.device.name + " has no " +
                        (t.gemm_precision == Kernel::Precision::fp4 ? "fp4" : "fp8") +
                        " tensor cores",
                    "use bf16, or another cluster.device");
  }
  if (gpus > t.ranks) {
    s.warnings.push_back("the layout uses " + std::to_string(t.ranks) + " of " +
                         std::to_string(gpus) + " GPUs of the cluster");
  }
  list_setting(s, path + "model", card.name, model.origin, card.source);
  list_settings(s, path, params);
  list_settings(s, path, sends);
  const auto n = [](int64_t v) { return std::to_string(v); };
  list_setting(s, path.substr(0, path.size() - 1) + ", derived",
               n(t.ranks) + " ranks = tp " + n(t.tp) + " x cp " + n(t.cp) + " x pp " + n(t.pp) +
                   " x dp " + n(t.dp) + "; " + microbatch_arithmetic(t),
               {});
}

/// The block `workload` of the scenario, or of a job. `gpus`: that it may use; 0: not known.
void read_workload(Block& root, const std::string& path, int64_t gpus, Scenario& s,
                   WorkloadSpec& w) {
  Block b = root.block("workload");
  w.workload_pos = b.pos();
  for (const char* key : {"simai", "goal"}) b.refuse(key);
  if (const ConfigNode* model = b.take("model"); model != nullptr && model->kind != Kind::null) {
    read_model_workload(b, *model, path, gpus, s, w);
    return;
  }
  for (const char* key :
       {"layout", "schedule", "batch", "recompute", "recompute_layers", "steps", "precision",
        "gradients", "experts", "kernels", "dataset", "checkpoint", "software", "step_overhead"}) {
    if (b.take(key) != nullptr) {
      throw UserError(b.key_pos(key), b.full(key) + " describes a generated workload",
                      "add 'model: NAME', or remove it");
    }
  }
  const std::string chakra = b.text("chakra", "");
  if (!chakra.empty()) {
    w.workload_pos = b.key_pos("chakra");
    const ConfigNode* node = b.take("chakra");
    const bool from_user = node->origin.kind == Origin::Kind::user;
    w.chakra = from_user ? relative_to(s.base_dir, chakra) : chakra;
  }
  const std::string groups = b.text("groups", "");
  if (!groups.empty()) w.group_file = relative_to(s.base_dir, groups);
  const Params element = b.one(scenario_key("workload.element_bytes"));
  w.element_bytes = element.is_word("element_bytes", "auto") ? 0 : element.integer("element_bytes");
  const Params strict = b.one(scenario_key("workload.strict"));
  w.strict = strict.boolean("strict");
  const Params order = b.one(scenario_key("workload.launch_order"));
  w.launch_order = order.is_word("launch_order", "blocking") ? LaunchOrder::blocking
                   : order.is_word("launch_order", "free")   ? LaunchOrder::free
                                                             : LaunchOrder::after_compute;
  const Params sends = b.one(scenario_key("workload.sends"));
  w.eager_sends = sends.is_word("sends", "eager");
  b.finish();
  if (!chakra.empty()) {
    list_setting(s, path + "chakra", w.chakra, b.origin("chakra"));
    if (!groups.empty()) list_setting(s, path + "groups", w.group_file, b.origin("groups"));
    list_settings(s, path, element);
    list_settings(s, path, strict);
    list_settings(s, path, order);
    list_settings(s, path, sends);
  }
  if (b.present() && w.chakra.empty()) {
    throw UserError(b.pos(), "workload needs 'model: NAME' or 'chakra: PREFIX'",
                    "or give the trace on the command line: --trace PREFIX");
  }
}

void read_job(const ConfigNode& node, size_t number, const SourcePos& fallback, Scenario& s) {
  const std::string path = "jobs[" + std::to_string(number) + "]";
  Block b(&node, path, fallback);
  if (!b.present()) throw UserError(fallback, path + " is empty");
  JobSpec job;
  job.pos = b.pos();
  job.name = b.text("name", "job " + std::to_string(number));
  for (const JobSpec& other : s.jobs) {
    if (other.name != job.name) continue;
    throw UserError(b.key_pos("name"), "two jobs are called '" + job.name + "'",
                    "the first is in line " + std::to_string(other.pos.line));
  }
  job.placement_pos = b.key_pos("placement");
  const ConfigNode* placement = b.take("placement");
  std::string listed = job.placement;
  if (placement != nullptr && placement->kind == Kind::list) {
    job.placement = "list";
    job.where = read_names(*placement, path + ".placement");
    listed.clear();
    for (const auto& w : job.where) listed += (listed.empty() ? "" : ", ") + w;
  } else if (placement != nullptr && placement->kind != Kind::null) {
    listed = job.placement = placement->kind == Kind::scalar ? placement->text : "";
    if (listed != "contiguous" && listed != "striped") {
      throw UserError(job.placement_pos,
                      path + ".placement: '" + listed +
                          "' is not one of: contiguous, striped, "
                          "a list of nodes or GPUs",
                      "write 'placement: [node0, \"node[4-7]\"]'");
    }
  }
  const Params start = b.one(scenario_key("jobs.start"));
  job.start = start.time("start");
  const Params priority = b.one(scenario_key("jobs.priority"));
  const int64_t classes = s.buffer.params.integer("classes");
  const int64_t given = priority.is_word("priority", "auto") ? -1 : priority.integer("priority");
  if (given >= classes) {
    throw UserError(priority.origin("priority").pos,
                    path + ".priority " + priority.text("priority") +
                        " is a data class that does not exist, switches have " +
                        std::to_string(classes) + (classes == 1 ? " class" : " classes"),
                    "raise fabric.switch.classes");
  }
  job.priority = static_cast<uint8_t>(given < 0 ? 0xff : given);
  list_setting(s, path + ".name", job.name, b.origin("name"));
  list_setting(s, path + ".placement", listed, placement == nullptr ? Origin{} : placement->origin);
  list_settings(s, path + ".", start);
  list_settings(s, path + ".", priority);
  read_workload(b, path + ".workload.", 0, s, job.workload);
  if (job.workload.chakra.empty() && !job.workload.training) {
    throw UserError(job.pos, "job '" + job.name + "' has no workload",
                    "give it 'workload: {model: NAME, ...}' or '{chakra: PREFIX}'");
  }
  b.finish();
  s.jobs.push_back(std::move(job));
}

void read_jobs(Block& root, Scenario& s) {
  const ConfigNode* list = root.take("jobs");
  if (list == nullptr || list->kind == Kind::null) return;
  if (list->kind != Kind::list || list->items.empty()) {
    throw UserError(list->origin.pos, "jobs must be a list",
                    "write 'jobs:' and below it '- {name: a, workload: {...}}'");
  }
  if (root.peek("workload") != nullptr) {
    throw UserError(root.key_pos("workload"), "workload and jobs exclude each other",
                    "make the workload one of the jobs");
  }
  if (s.placement != "contiguous") {
    throw UserError(s.placement_pos, "cluster.placement is for a single workload",
                    "give each of the jobs its 'placement'");
  }
  for (size_t i = 0; i < list->items.size(); ++i) {
    read_job(list->items[i], i, list->origin.pos, s);
  }
}

/// Refuses a layout that does not fit into the device.
void check_memory(const WorkloadSpec& w, const std::string& path, const Params& headroom,
                  const Params& communicator, Scenario& s) {
  for (const auto& text : layout_warnings(*w.training, s.gpus_per_node)) {
    s.warnings.push_back(text);
  }
  const auto fullest = fullest_replica(*w.training);
  const Training& t = fullest.first;
  const int64_t stage = fullest.second;
  const int64_t buffers = communicators(t) * communicator.bytes("communicator").count();
  const int64_t need = stage_memory(t, stage).total() + buffers;
  std::string arithmetic =
      t.pp > 1 ? "stage " + std::to_string(stage) + ": " + memory_arithmetic(t, stage)
               : memory_arithmetic(t, stage);
  if (buffers > 0) {
    arithmetic += " and " + std::to_string(communicators(t)) + " communicators of " +
                  communicator.text("communicator") + ", together " + print_bytes(Bytes(need), 4);
  }
  list_setting(s, path + "memory, derived", arithmetic, {});
  const bool off = headroom.is_word("headroom", "off");
  const auto usable = static_cast<int64_t>(static_cast<double>(s.device.memory_bytes) *
                                           (off ? 1.0 : 1.0 - headroom.real("headroom")));
  if (s.device.memory_bytes == 0 || need <= usable) return;
  const std::string problem = "out of memory: " + arithmetic + ", more than the " +
                              print_bytes(Bytes(usable), 4) + " that " + s.device.name +
                              (off ? " has" : " has less memory.headroom");
  if (off) {
    s.warnings.push_back(problem);
    return;
  }
  throw UserError(
      w.workload_pos, problem,
      "raise layout.tp, pp or zero, lower batch.micro, or recompute; 'memory: {headroom: "
      "off}' runs it all the same");
}

void read_memory(Block& root, Scenario& s) {
  Block b = root.block("memory");
  const Params headroom = b.one(scenario_key("memory.headroom"));
  const Params communicator = b.one(scenario_key("memory.communicator"));
  b.finish();
  list_settings(s, "memory.", headroom);
  list_settings(s, "memory.", communicator);
  bool any = false;
  for (const JobSpec& job : s.jobs) {
    if (!job.workload.training) continue;
    any = true;
    check_memory(job.workload, job.name + ": ", headroom, communicator, s);
  }
  if (s.training) {
    any = true;
    check_memory(s, "", headroom, communicator, s);
  }
  if (!any && b.present()) {
    throw UserError(b.pos(), "memory is known for generated workloads only",
                    "remove it, or give 'workload: {model: NAME}'");
  }
}

void read_storage(Block& root, Scenario& s) {
  Block b = root.block("storage");
  s.storage = Params(storage_params());
  b.fill(s.storage);
  s.storage_pos = b.pos();
  if (!s.stores()) {
    if (!b.present()) return;
    throw UserError(b.pos(),
                    s.jobs.empty()
                        ? "storage serves generated workloads, and this one has no use for it"
                        : "storage serves generated workloads, and no job has a use for it",
                    "set workload.dataset.token_bytes, workload.checkpoint.every or load");
  }
  const bool shared = s.storage.is_word("network", "shared");
  if (shared && s.storage.text("where").empty()) {
    throw UserError(b.pos(), "storage on the fabric needs to know its endpoints",
                    "write 'where: node[16-17]', beyond the nodes of the job");
  }
  if (!shared && !s.storage.text("where").empty()) {
    throw UserError(s.storage.origin("where").pos,
                    "storage.where says where storage sits on the fabric",
                    "add 'network: shared', or remove it");
  }
  list_settings(s, "storage.", s.storage);
}

void read_traffic(Block& root, Scenario& s) {
  const ConfigNode* list = root.take("traffic");
  if (list == nullptr || list->kind == Kind::null) return;
  if (list->kind != Kind::list) {
    throw UserError(list->origin.pos, "traffic must be a list",
                    "write 'traffic:' and below it '- {pattern: incast, size: 1MiB}'");
  }
  for (size_t i = 0; i < list->items.size(); ++i) {
    Block b(&list->items[i], "traffic[" + std::to_string(i) + "]", list->origin.pos);
    if (!b.present())
      throw UserError(list->origin.pos, "traffic[" + std::to_string(i) + "] is empty");
    const std::string pattern = b.text("pattern", "");
    if (pattern.empty()) {
      std::string known;
      for (const auto& n : Registry::instance().names("traffic")) {
        known += (known.empty() ? "" : ", ") + n;
      }
      throw UserError(b.pos(), "a traffic entry needs a pattern", "known: " + known);
    }
    s.traffic.push_back(read_model(b, "traffic", "pattern", pattern));
    list_setting(s, "traffic[" + std::to_string(i) + "].pattern", pattern, b.origin("pattern"));
    list_settings(s, "traffic[" + std::to_string(i) + "].", s.traffic.back().params);
  }
}

Origin jitter_origin(const Block& compute) {
  const ConfigNode* jitter = compute.peek("jitter");
  const ConfigNode* kind = jitter == nullptr ? nullptr : jitter->find("kind");
  return kind == nullptr ? Origin{} : kind->origin;
}

void read_jitter(Block& compute, Scenario& s) {
  Block b = compute.block("jitter");
  if (b.present() && b.peek("sigma") != nullptr && b.peek("kind") == nullptr) {
    throw UserError(b.pos(), "compute.jitter needs a kind", "known: lognormal, normal, none");
  }
  s.jitter = read_model(b, "jitter", "kind", "none");
}

void read_slow(Block& compute, Scenario& s) {
  const ConfigNode* list = compute.take("slow");
  if (list == nullptr || list->kind == Kind::null) return;
  if (list->kind != Kind::list) {
    throw UserError(list->origin.pos, "compute.slow must be a list",
                    "write 'slow: [{where: rank17, factor: 1.1}]'");
  }
  for (size_t i = 0; i < list->items.size(); ++i) {
    const std::string path = "compute.slow[" + std::to_string(i) + "]";
    Block b(&list->items[i], path, list->origin.pos);
    if (!b.present()) throw UserError(list->origin.pos, path + " is empty");
    SlowEntry e;
    e.origin = list->items[i].origin;
    e.where = b.text("where", "");
    if (e.where.empty()) {
      throw UserError(b.pos(), path + " needs 'where'", "write rank17, node3 or node[0-3].gpu5");
    }
    if (b.peek("factor") == nullptr) {
      throw UserError(b.pos(), path + " needs 'factor'",
                      "1.1 makes compute take 1.1 times as long");
    }
    e.factor = b.one({"factor", ParamType::real, "1", "0.1", "1000", {}, "", ""}).real("factor");
    b.finish();
    s.slow.push_back(e);
  }
}

void read_cost(Block& root, Scenario& s) {
  Block b = root.block("cost");
  const Params gpu = b.one(scenario_key("cost.gpu_hour"));
  const Params energy = b.one(scenario_key("cost.energy_kwh"));
  const Params pue = b.one(scenario_key("cost.pue"));
  const Params target = b.one(scenario_key("cost.steps_to_target"));
  b.finish();
  if (!gpu.is_word("gpu_hour", "none")) s.gpu_hour_price = gpu.real("gpu_hour");
  if (!energy.is_word("energy_kwh", "none")) s.kwh_price = energy.real("energy_kwh");
  s.pue = pue.real("pue");
  if (!target.is_word("steps_to_target", "none")) {
    s.steps_to_target = target.integer("steps_to_target");
  }
  for (const Params* p : {&gpu, &energy, &pue, &target}) list_settings(s, "cost.", *p);
}

void read_faults(Block& root, Scenario& s) {
  const ConfigNode* list = root.take("faults");
  if (list == nullptr || list->kind == Kind::null) return;
  if (list->kind != Kind::list) {
    throw UserError(list->origin.pos, "faults must be a list",
                    "write 'faults:' and below it '- {at: 1ms, kind: link-down, where: ...}'");
  }
  for (size_t i = 0; i < list->items.size(); ++i) {
    const std::string path = "faults[" + std::to_string(i) + "]";
    Block b(&list->items[i], path, list->origin.pos);
    if (!b.present()) throw UserError(list->origin.pos, path + " is empty");
    const std::string kind = b.text("kind", "");
    if (kind.empty()) {
      std::string known;
      for (const auto& n : Registry::instance().names("fault")) {
        known += (known.empty() ? "" : ", ") + n;
      }
      throw UserError(b.pos(), "a fault needs a kind", "known: " + known);
    }
    s.faults.push_back(read_model(b, "fault", "kind", kind));
    list_setting(s, path + ".kind", kind, b.origin("kind"));
    list_settings(s, path + ".", s.faults.back().params);
  }
}

/// Data classes exist, and only background traffic repeats.
void check_traffic(const Scenario& s) {
  const int64_t classes = s.buffer.params.integer("classes");
  const auto check_class = [&](const Params& p) {
    if (p.integer("class") < classes) return;
    throw UserError(p.origin("class").pos,
                    "class " + p.text("class") + " does not exist, switches have " +
                        std::to_string(classes) + (classes == 1 ? " class" : " classes"),
                    "raise fabric.switch.classes");
  };
  check_class(s.collectives);
  bool foreground = s.has_workload();
  for (const ModelChoice& t : s.traffic) {
    const bool background = t.kind != "collective" && t.params.boolean("background");
    foreground = foreground || !background;
    if (t.kind == "collective") continue;
    check_class(t.params);
    if (!background && !t.params.is_word("repeat", "false")) {
      throw UserError(t.params.origin("repeat").pos, "traffic that repeats would never end",
                      "add 'background: true': the run then ends with the rest");
    }
  }
  if (!foreground && !s.traffic.empty()) {
    throw UserError(s.traffic[0].pos, "all traffic is in the background: the run would end at once",
                    "add a workload, or traffic without 'background: true'");
  }
}

void read_simulation(Block& root, Scenario& s) {
  Block b = root.block("simulation");
  const std::string engine = b.text("engine", "packet");
  if (engine == "ns3") not_built(b.key_pos("engine"), "simulation.engine: " + engine);
  if (Registry::instance().find("engine", engine) == nullptr) {
    std::string known;
    for (const auto& n : Registry::instance().names("engine")) {
      known += (known.empty() ? "" : ", ") + n;
    }
    throw UserError(b.key_pos("engine"), "unknown engine '" + engine + "'",
                    "known: " + known + " (ns3 is not built yet)");
  }
  const std::string fast = b.text("fast_path", "none");
  if (fast != "none" && fast != "exact" && fast != "fast") {
    throw UserError(b.key_pos("fast_path"), "unknown fast_path '" + fast + "'",
                    "known: none, exact, fast");
  }
  s.fast_path = fast;
  const Params domains = b.one(scenario_key("simulation.domains"));
  s.domains = domains.is_word("domains", "on");
  const Params memo = b.one(scenario_key("simulation.memo"));
  s.memo = memo.is_word("memo", "on");
  const Params jumps = b.one(scenario_key("simulation.period_jump"));
  s.period_jump = jumps.is_word("period_jump", "on");
  const Params stretches = b.one(scenario_key("simulation.stretches"));
  s.stretches = stretches.is_word("stretches", "on");
  const Params stepping = b.one(scenario_key("simulation.stepping"));
  s.stepping = stepping.is_word("stepping", "on");
  const Params noise = b.one(scenario_key("simulation.noise"));
  s.shared_noise = noise.is_word("noise", "shared");
  if (s.shared_noise && (fast == "none" || !s.domains)) {
    throw UserError(b.key_pos("noise"), "noise: shared numbers flows within contention domains",
                    "set simulation.fast_path to exact or fast, with domains: on");
  }
  const Params variants = b.one(scenario_key("simulation.noise_variants"));
  s.noise_variants = static_cast<uint32_t>(variants.integer("noise_variants"));
  const Params memo_limit = b.one(scenario_key("simulation.memo_limit"));
  s.memo_limit = memo_limit.bytes("memo_limit").count();
  const Params pauses = b.one(scenario_key("simulation.ignored_pauses"));
  s.ignored_pauses = pauses.real("ignored_pauses");
  Block audit_block = b.block("audit");
  const Params audit = audit_block.one(scenario_key("simulation.audit.budget"));
  s.audit_budget = audit.real("budget");
  audit_block.finish();
  const Params seeds = b.one(scenario_key("simulation.seeds"));
  if (seeds.integer("seeds") > 1) not_built(b.key_pos("seeds"), "simulation.seeds above 1");
  const Params threads = b.one(scenario_key("simulation.threads"));
  // More than one have not paid yet where nobody asked for them: docs/fast-path.md.
  s.threads =
      threads.is_word("threads", "auto") ? 1 : static_cast<uint32_t>(threads.integer("threads"));
  const Params until = b.one(scenario_key("simulation.until"));
  if (!until.is_word("until", "none")) s.until = until.time("until");
  const Params fold = b.one(scenario_key("simulation.fold"));
  s.fold_from = fold.is_word("fold", "off") ? 0 : fold.integer("fold");
  s.engine = read_model(b, "engine", "engine", "packet");
  list_setting(s, "simulation.engine", engine, b.origin("engine"));
  list_settings(s, "simulation.", s.engine.params);
  list_setting(s, "simulation.fast_path", fast, b.origin("fast_path"));
  for (const Params* p :
       {&domains, &memo, &jumps, &stretches, &stepping, &noise, &variants, &memo_limit, &pauses}) {
    list_settings(s, "simulation.", *p);
  }
  list_settings(s, "simulation.audit.", audit);
  list_settings(s, "simulation.", seeds);
  list_settings(s, "simulation.", threads);
  list_settings(s, "simulation.", until);
  list_settings(s, "simulation.", fold);
}

}  // namespace

std::string origin_text(const Origin& o) {
  switch (o.kind) {
    case Origin::Kind::default_value:
      return "default";
    case Origin::Kind::preset:
      return "preset " + fs::path(o.pos.file).filename().string() + ":" +
             std::to_string(o.pos.line);
    case Origin::Kind::user:
      return "line " + std::to_string(o.pos.line);
    case Origin::Kind::command_line:
      return "command line";
  }
  return "";
}

ModelChoice make_fault(const std::string& kind,
                       const std::vector<std::pair<std::string, std::string>>& values,
                       const SourcePos& pos) {
  ModelChoice f{"fault", kind, Params(Registry::instance().get("fault", kind, pos).params), pos};
  for (const auto& [key, value] : values) {
    f.params.set(key, value, {Origin::Kind::command_line, pos});
  }
  return f;
}

std::string config_dir() {
  if (const char* dir = std::getenv("TRAINYARD_CONFIGS"); dir != nullptr && *dir != '\0')
    return dir;
  return TRAINYARD_CONFIG_DIR;
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  const fs::path dir = fs::path(config_dir()) / "devices";
  if (fs::is_directory(dir)) {
    for (const auto& e : fs::directory_iterator(dir)) {
      if (e.path().extension() == ".yaml") names.push_back(e.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> software_names() {
  std::vector<std::string> names;
  const fs::path dir = fs::path(config_dir()) / "software";
  if (fs::is_directory(dir)) {
    for (const auto& e : fs::directory_iterator(dir)) {
      if (e.path().extension() == ".yaml") names.push_back(e.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

SoftwareFactors load_software(const std::string& name, const SourcePos& pos) {
  SoftwareFactors f;
  if (name == "none") return f;
  const ConfigNode root = software_node(name, pos);
  Block b(&root, "", root.origin.pos);
  f.name = name;
  f.source = b.text("source", "");
  b.take("workload");  // merged beneath the scenario's before it was read
  b.take("collectives");
  Block factors = b.block("factors");
  const auto real = [](Block& block, const char* key) {
    return block.one({key, ParamType::real, "1", "0.01", "100", {}, "", ""}).real(key);
  };
  const auto time = [&](const char* key) {
    return factors.one({key, ParamType::time, "0ns", "0ns", "1s", {}, "", ""}).time(key);
  };
  f.kernels = real(factors, "kernels");
  f.elementwise = real(factors, "elementwise");
  f.scores = real(factors, "scores");
  f.optimizer = real(factors, "optimizer");
  Block attention = factors.block("attention");
  f.attention_ampere = real(attention, "ampere");
  f.attention_hopper = real(attention, "hopper");
  f.attention_blackwell = real(attention, "blackwell");
  attention.finish();
  f.host = time("host");
  f.host_experts = time("host_experts");
  factors.finish();
  b.finish();
  return f;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  const fs::path dir = fs::path(config_dir()) / "models";
  if (fs::is_directory(dir)) {
    for (const auto& e : fs::directory_iterator(dir)) {
      if (e.path().extension() == ".yaml") names.push_back(e.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

ModelCard load_model_card(const std::string& name, const SourcePos& pos) {
  return read_card(model_card_node(name, pos), name, "");
}

namespace {

DeviceFit read_fit(Block& b) {
  DeviceFit f;
  const auto real = [](Block& block, const char* key, const char* least, const char* most) {
    return block.one({key, ParamType::real, least, least, most, {}, "", ""}).real(key);
  };
  Block gemm = b.block("gemm");
  f.gemm_half = real(gemm, "half", "0.01", "1");
  f.gemm_fp8 = real(gemm, "fp8", "0", "1");
  f.gemm_fp8_blocks = real(gemm, "mxfp8", "0", "1");
  f.gemm_fp4 = real(gemm, "fp4", "0", "1");
  gemm.finish();
  f.gemm_columns = real(b, "gemm_columns", "0", "100000");
  f.gemm_inner = real(b, "gemm_inner", "0", "100000");
  f.grouped = real(b, "grouped", "0.01", "2");
  f.attention = real(b, "attention", "0.01", "1");
  f.attention_backward = real(b, "attention_backward", "0.01", "2");
  f.attention_queries = real(b, "attention_queries", "0", "100000");
  f.attention_head64 = real(b, "attention_head64", "0.01", "2");
  f.unfused = real(b, "unfused", "0.01", "2");
  f.unfused_misaligned = real(b, "unfused_misaligned", "1", "100");
  f.memory = real(b, "memory", "0.01", "1");
  Block cast = b.block("cast");
  f.cast = real(cast, "fp8", "0", "100");
  f.cast_blocks = real(cast, "mxfp8", "0", "100");
  cast.finish();
  f.launch = b.one({"launch", ParamType::time, "0ns", "0ns", "1ms", {}, "", ""}).time("launch");
  f.straggle = real(b, "straggle", "0", "1");
  f.source = b.text("source", "");
  Block r = b.block("residuals");
  const auto count = [&](const char* key) {
    return r.one({key, ParamType::integer, "0", "0", "1000000000", {}, "", ""}).integer(key);
  };
  f.rows = count("rows");
  f.heldout_rows = count("heldout_rows");
  f.median_pct = real(r, "median_pct", "0", "1000000");
  f.p90_pct = real(r, "p90_pct", "0", "1000000");
  f.heldout_median_pct = real(r, "heldout_median_pct", "0", "1000000");
  f.heldout_p90_pct = real(r, "heldout_p90_pct", "0", "1000000");
  r.finish();
  b.finish();
  for (const char* key : {"gemm", "grouped", "attention", "attention_backward", "attention_head64",
                          "unfused", "unfused_misaligned", "memory", "source"}) {
    if (b.peek(key) == nullptr) {
      throw UserError(b.pos(), std::string("fit needs ") + key,
                      "'trainyard calibrate' writes the whole block");
    }
  }
  return f;
}

}  // namespace

DeviceCard load_device(const std::string& name, const SourcePos& pos) {
  const fs::path file = fs::path(config_dir()) / "devices" / (name + ".yaml");
  std::error_code error;  // a name may be too long for the file system
  if (name.find('/') != std::string::npos || !fs::exists(file, error)) {
    std::string known;
    for (const auto& n : device_names()) known += (known.empty() ? "" : ", ") + n;
    throw UserError(pos, "unknown device '" + name + "'",
                    "known: " + known + " (cards are files in " + config_dir() + "/devices)");
  }
  const ConfigNode root = load_yaml(file.string(), Origin::Kind::preset);
  Block b(&root, "", SourcePos{file.string(), 1});
  DeviceCard card;
  card.name = name;
  const auto needed = [&](const char* key) {
    return b.card_value({key, ParamType::real, "", "0.001", "1000000", {}, "", ""}, key, card)
        .real(key);
  };
  const auto real = [&](Block& block, const std::string& prefix, const char* key) {
    return block
        .card_value({key, ParamType::real, "0", "0", "1000000", {}, "", ""}, prefix + key, card)
        .real(key);
  };
  card.tflops = needed("tflops");
  card.hbm_gbytes_per_s = needed("hbm_gbytes_per_s");
  card.fp8_tflops = real(b, "", "fp8_tflops");
  card.fp4_tflops = real(b, "", "fp4_tflops");
  card.tf32_tflops = real(b, "", "tf32_tflops");
  card.vector_tflops = real(b, "", "vector_tflops");
  card.special_tops = real(b, "", "special_tops");
  card.memory_bytes =
      b.card_value({"memory", ParamType::bytes, "0B", "0B", "", {}, "", ""}, "memory", card)
          .bytes("memory")
          .count();
  card.scale_up_bps =
      b.card_value({"scale_up", ParamType::rate, "0bps", "0bps", "", {}, "", ""}, "scale_up", card)
          .rate("scale_up")
          .bps();
  card.sms = b.card_value({"sms", ParamType::integer, "0", "0", "100000", {}, "", ""}, "sms", card)
                 .integer("sms");
  card.generation = b.text("generation", "");
  if (bool known = card.generation.empty(); !known) {
    std::string all;
    for (size_t g = 0; g < kGenerations; ++g) {
      const char* const one = generation_name(static_cast<Generation>(g));
      known = known || card.generation == one;
      all += std::string(g == 0 ? "" : ", ") + one;
    }
    if (!known) {
      throw UserError(b.key_pos("generation"), "unknown generation '" + card.generation + "'",
                      "known: " + all);
    }
  }
  Block watts = b.block("watts");
  card.tdp_watts = real(watts, "watts.", "tdp");
  card.compute_watts = real(watts, "watts.", "compute");
  card.communication_watts = real(watts, "watts.", "communication");
  card.idle_watts = real(watts, "watts.", "idle");
  watts.finish();
  Block fit = b.block("fit");
  if (fit.present()) card.fit = read_fit(fit);
  card.source = b.text("source", "");
  b.finish();
  if (watts.present()) {
    const auto [least, most] = std::minmax(
        {card.compute_watts, card.communication_watts, card.idle_watts, card.tdp_watts});
    if (least <= 0 || most > card.tdp_watts) {
      throw UserError(watts.pos(),
                      "watts needs tdp, compute, communication and idle, none above tdp");
    }
  }
  return card;
}

namespace {

Scenario read_scenario(ConfigNode root, const std::string& path,
                       const ScenarioOverrides& overrides) {
  for (const auto& setting : overrides.settings) apply_setting(root, setting);
  const Origin cli{Origin::Kind::command_line, {"--trace", 0}};
  if (!overrides.trace.empty()) {
    ConfigNode& chakra = root.child("workload", cli).child("chakra", cli);
    chakra.kind = Kind::scalar;
    chakra.text = overrides.trace;
    chakra.origin = cli;
  }
  // Presets go under what the user wrote; lines survive on both sides.
  for (auto& e : root.entries) {
    for (auto& f : e.value.entries) {
      if (f.value.kind != Kind::map) continue;
      if (e.key == "fabric" && f.key == "transport") merge_preset(f.value, "transport", "preset");
      if (e.key == "collectives" && f.key == "nccl") merge_preset(f.value, "nccl", "transport");
    }
  }
  merge_software(root);

  Scenario s;
  s.file = path;
  s.base_dir = fs::path(path).parent_path().string();
  if (s.base_dir.empty()) s.base_dir = ".";
  Block b(&root, "", SourcePos{path, 1});
  s.name = b.text("name", fs::path(path).stem().string());
  const Params seed = b.one(scenario_key("seed"));
  s.seed = static_cast<uint64_t>(seed.integer("seed"));
  list_setting(s, "name", s.name, b.origin("name"));
  list_settings(s, "", seed);
  for (const char* key : {"reliability", "check", "sweep", "solve"}) {
    b.refuse(key);
  }
  read_cluster(b, s);
  read_fabric(b, s);
  read_wiring(b, s);
  if (const ConfigNode* jobs = b.peek("jobs"); jobs == nullptr || jobs->kind == Kind::null) {
    read_workload(b, "workload.", static_cast<int64_t>(s.nodes) * s.gpus_per_node, s, s);
  }
  read_jobs(b, s);
  read_memory(b, s);
  read_storage(b, s);
  read_traffic(b, s);
  read_faults(b, s);

  Block collectives = b.block("collectives");
  s.collectives = Params(collective_params());
  collectives.fill(s.collectives);
  if (const std::string& custom = s.collectives.text("custom"); !custom.empty()) {
    const Origin& origin = s.collectives.origin("custom");
    if (origin.kind == Origin::Kind::user) {
      s.collectives.set("custom", relative_to(s.base_dir, custom), Origin(origin));
    }
  }
  apply_nccl_env(s.collectives);
  for (const std::string& key : apply_nccl_server_env(s.collectives, s.topology.params)) {
    const std::string name = "fabric.topology." + key;
    const auto same = [&](const auto& setting) { return setting.first == name; };
    s.settings.erase(std::remove_if(s.settings.begin(), s.settings.end(), same), s.settings.end());
    const auto resolved = [&](const auto& setting) { return setting.key == name; };
    s.resolved.erase(std::remove_if(s.resolved.begin(), s.resolved.end(), resolved),
                     s.resolved.end());
    list_setting(s, name, s.topology.params.text(key), s.topology.params.origin(key));
  }
  if (!s.collectives.is_word("protocol", "auto") && s.topology.params.has_spec("scale_up.kind") &&
      s.topology.params.is_word("scale_up.kind", "pcie")) {
    throw UserError(s.collectives.origin("protocol").pos,
                    "collectives.protocol has no constants for PCIe servers: they were fitted to "
                    "NVLink and xGMI",
                    "use protocol: auto, the wires alone");
  }
  make_collective_selector(s.collectives);  // refuses what it does not know
  if (s.collectives.is_word("protocol", "auto")) {
    for (const std::string& key : s.collectives.names()) {
      if (key.rfind("nccl.", 0) != 0) continue;
      // Names of the environment stand for other keys, which may count; one does not.
      if (key.rfind("nccl.env.", 0) == 0 && key != "nccl.env.NCCL_NVLS_ENABLE") continue;
      const Origin::Kind from = s.collectives.origin(key).kind;
      if (from == Origin::Kind::default_value) continue;
      s.warnings.push_back("collectives." + key +
                           " says nothing with collectives.protocol: auto, the wires alone; "
                           "protocol: tuned runs collectives as NCCL would");
      break;
    }
  }
  for (JobSpec& job : s.jobs) {
    if (job.priority == 0xff) {
      job.priority = static_cast<uint8_t>(s.collectives.integer("class"));
    }
  }
  list_settings(s, "collectives.", s.collectives);
  check_traffic(s);

  Block compute = b.block("compute");
  read_jitter(compute, s);
  read_slow(compute, s);
  const Params overlap = compute.one(scenario_key("compute.overlap_slowdown"));
  s.overlap_slowdown = overlap.real("overlap_slowdown");
  s.compute.category = "compute";
  s.compute.kind = compute.text("model", "auto");
  s.compute.pos = compute.present() ? compute.key_pos("model") : compute.pos();
  if (s.compute.kind == "auto") {
    // Settled by the trace; parameters of the roofline may already be given.
    s.compute.params = Params(Registry::instance().get("compute", "roofline").params);
  } else {
    s.compute.params =
        Params(Registry::instance().get("compute", s.compute.kind, s.compute.pos).params);
  }
  compute.fill(s.compute.params);
  list_setting(s, "compute.model", s.compute.kind, compute.origin("model"));
  list_settings(s, "compute.", s.compute.params);
  list_setting(s, "compute.jitter.kind", s.jitter.kind, jitter_origin(compute));
  list_settings(s, "compute.jitter.", s.jitter.params);
  for (size_t i = 0; i < s.slow.size(); ++i) {
    list_setting(s, "compute.slow[" + std::to_string(i) + "]",
                 s.slow[i].where + " x " + fmt::format("{}", s.slow[i].factor), s.slow[i].origin);
  }
  list_settings(s, "compute.", overlap);
  read_cost(b, s);
  read_simulation(b, s);

  Block output = b.block("output");
  const std::string dir = output.text("dir", "out/" + slug(s.name));
  s.output_dir = overrides.output_dir.empty() ? dir : overrides.output_dir;
  const Params trace = output.one(scenario_key("output.trace"));
  const Params chakra_out = output.one(scenario_key("output.chakra"));
  s.chakra_out = chakra_out.text("chakra");
  const Params interference = output.one(scenario_key("output.interference"));
  s.interference = interference.boolean("interference");
  if (s.interference && s.jobs.empty()) {
    throw UserError(interference.origin("interference").pos, "output.interference needs jobs",
                    "remove it, or write the workload as one of 'jobs:'");
  }
  s.perfetto = trace.text("trace") == "perfetto";
  Block telemetry = output.block("telemetry");
  const Params windows = telemetry.one(scenario_key("output.telemetry.links"));
  if (!windows.is_word("links", "off")) s.link_window = windows.time("links");
  if (s.link_window > Time() && s.engine.kind != "packet") {
    throw UserError(windows.origin("links").pos,
                    "the " + s.engine.kind + " engine keeps no time series of links",
                    "remove output.telemetry.links or use 'simulation: {engine: packet}'");
  }
  const bool one_path = s.ecmp.kind != "flowlet" && s.ecmp.kind != "spray";
  if (s.engine.kind != "packet" &&
      (!one_path || (s.engine.kind != "stepped" && s.ecmp.params.integer("qps") > 1))) {
    // A wrong route is worse than none: these engines give a connection one path.
    throw UserError(s.ecmp.pos,
                    "the " + s.engine.kind +
                        " engine gives a connection one path: load_balancing ecmp, pinned or "
                        "source-routed, with qps: 1",
                    "use 'simulation: {engine: packet}' or set that");
  }
  const Params pauses = telemetry.one(scenario_key("output.telemetry.pauses"));
  s.pauses = pauses.boolean("pauses");
  if (s.pauses && s.engine.kind != "packet") {
    throw UserError(pauses.origin("pauses").pos, "the " + s.engine.kind + " engine has no pauses",
                    "remove output.telemetry.pauses or use 'simulation: {engine: packet}'");
  }
  const Params qp = telemetry.one(scenario_key("output.telemetry.qp"));
  if (!qp.is_word("qp", "off")) s.observe.qp_window = qp.time("qp");
  const Params packets = telemetry.one(scenario_key("output.telemetry.packets"));
  if (!packets.is_word("packets", "off")) {
    s.observe.sample_q32 =
        static_cast<uint64_t>(std::llround(std::ldexp(packets.real("packets"), 32)));
  }
  const Params power = telemetry.one(scenario_key("output.telemetry.power"));
  if (!power.is_word("power", "off")) s.power_window = power.time("power");
  const Params switch_flows = telemetry.one(scenario_key("output.telemetry.flows"));
  s.observe.flows = switch_flows.boolean("flows");
  s.observe.seed = s.seed;
  if (s.observe.any() && s.engine.kind != "packet") {
    const char* key = s.observe.qp_window > Time() ? "qp"
                      : s.observe.sample_q32 > 0   ? "packets"
                                                   : "flows";
    throw UserError(
        telemetry.key_pos(key), "the " + s.engine.kind + " engine has no packets",
        std::string("remove output.telemetry.") + key + " or use 'simulation: {engine: packet}'");
  }
  telemetry.finish();
  output.finish();
  list_settings(s, "output.", trace);
  list_settings(s, "output.", chakra_out);
  list_settings(s, "output.", interference);
  list_settings(s, "output.telemetry.", windows);
  list_settings(s, "output.telemetry.", pauses);
  list_settings(s, "output.telemetry.", qp);
  list_settings(s, "output.telemetry.", packets);
  list_settings(s, "output.telemetry.", switch_flows);
  list_settings(s, "output.telemetry.", power);
  b.finish();

  if (!s.has_workload() && s.traffic.empty() && !overrides.fabric_only) {
    throw UserError(SourcePos{path, 0}, "nothing to simulate",
                    "add 'workload: {chakra: PREFIX}' or '{model: NAME}', a traffic list, or "
                    "--trace PREFIX");
  }
  return s;
}

}  // namespace

Scenario load_scenario(const std::string& path, const ScenarioOverrides& overrides) {
  return read_scenario(load_yaml(path, Origin::Kind::user), path, overrides);
}

Scenario load_scenario_text(const std::string& text, const std::string& name,
                            const ScenarioOverrides& overrides) {
  return read_scenario(parse_yaml(text, name, Origin::Kind::user), name, overrides);
}

}  // namespace trainyard
