// SPDX-License-Identifier: MIT
#include "tools/scenario/config_node.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <fstream>
#include <sstream>

namespace trainyard {

const ConfigNode* ConfigNode::find(const std::string& key) const {
  for (const Entry& e : entries) {
    if (e.key == key) return &e.value;
  }
  return nullptr;
}

ConfigNode& ConfigNode::child(const std::string& key, const Origin& where) {
  if (kind == Kind::null) kind = Kind::map;
  for (Entry& e : entries) {
    if (e.key == key) return e.value;
  }
  entries.push_back({key, where.pos, {}});
  entries.back().value.origin = where;
  return entries.back().value;
}

namespace {

/// Builds the tree from parser events: YAML::Node would drop duplicate keys silently.
class Builder final : public YAML::EventHandler {
 public:
  Builder(std::string file, Origin::Kind kind) : file_(std::move(file)), kind_(kind) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    no_anchor(mark, anchor);
    place(make(mark, ConfigNode::Kind::null));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { no_anchor(mark, 1); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    no_anchor(mark, anchor);
    if (!stack_.empty() && stack_.back().node.kind == ConfigNode::Kind::map &&
        !stack_.back().has_key) {
      Level& level = stack_.back();
      for (const auto& e : level.node.entries) {
        if (e.key == value) {
          throw UserError(
              pos(mark), "key '" + value + "' is given twice",
              "the first is in line " + std::to_string(e.key_pos.line) + "; keep one of them");
        }
      }
      level.key = value;
      level.key_pos = pos(mark);
      level.has_key = true;
      return;
    }
    ConfigNode n = make(mark, ConfigNode::Kind::scalar);
    n.text = value;
    // A plain empty scalar or ~ is null; quoted text ("!" tag) is text.
    if (tag != "!" && (value.empty() || value == "~" || value == "null")) {
      n.kind = ConfigNode::Kind::null;
    }
    place(std::move(n));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    no_anchor(mark, anchor);
    open(mark, ConfigNode::Kind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    no_anchor(mark, anchor);
    open(mark, ConfigNode::Kind::map);
  }
  void OnMapEnd() override { close(); }

  ConfigNode root;

 private:
  struct Level {
    ConfigNode node;
    std::string key;
    SourcePos key_pos;
    bool has_key = false;
  };
  static constexpr size_t kMaxDepth = 64;

  [[nodiscard]] SourcePos pos(const YAML::Mark& mark) const { return {file_, mark.line + 1}; }
  ConfigNode make(const YAML::Mark& mark, ConfigNode::Kind kind) const {
    ConfigNode n;
    n.kind = kind;
    n.origin = {kind_, pos(mark)};
    return n;
  }
  void no_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0) {
      throw UserError(pos(mark), "anchors and aliases are not supported", "write the value out");
    }
  }
  void open(const YAML::Mark& mark, ConfigNode::Kind kind) {
    if (stack_.size() >= kMaxDepth) throw UserError(pos(mark), "nested deeper than 64 levels");
    if (!stack_.empty() && stack_.back().node.kind == ConfigNode::Kind::map &&
        !stack_.back().has_key) {
      throw UserError(pos(mark), "a key must be a plain word");
    }
    stack_.push_back({make(mark, kind), {}, {}, false});
  }
  void close() {
    ConfigNode n = std::move(stack_.back().node);
    stack_.pop_back();
    place(std::move(n));
  }
  void place(ConfigNode n) {
    if (stack_.empty()) {
      root = std::move(n);
      return;
    }
    Level& level = stack_.back();
    if (level.node.kind == ConfigNode::Kind::map) {
      if (!level.has_key) throw UserError(n.origin.pos, "a key must be a plain word");
      // The parser notices an absent value at the next word only.
      if (n.kind == ConfigNode::Kind::null) n.origin.pos = level.key_pos;
      level.node.entries.push_back({level.key, level.key_pos, std::move(n)});
      level.has_key = false;
    } else {
      level.node.items.push_back(std::move(n));
    }
  }

  std::string file_;
  Origin::Kind kind_;
  std::vector<Level> stack_;
};

ConfigNode parse(const std::string& text, const std::string& name, Origin::Kind kind,
                 bool map_only) {
  // yaml-cpp closes an open quote by itself when the text ends in a line break.
  std::istringstream in(text.substr(0, text.find_last_not_of(" \t\r\n") + 1));
  Builder builder(name, kind);
  try {
    YAML::Parser parser(in);
    const bool any = parser.HandleNextDocument(builder);
    if (any) {
      Builder rest(name, kind);
      if (parser.HandleNextDocument(rest) && rest.root.kind != ConfigNode::Kind::null) {
        throw UserError(rest.root.origin.pos, "a second document in one file",
                        "keep one scenario per file");
      }
    }
  } catch (const YAML::Exception& e) {
    throw UserError(SourcePos{name, e.mark.line + 1}, "not valid YAML: " + e.msg);
  }
  if (map_only && builder.root.kind != ConfigNode::Kind::map) {
    throw UserError(SourcePos{name, 1}, "expected 'key: value' lines",
                    "see scenarios/quickstart.yaml for an example");
  }
  return std::move(builder.root);
}

}  // namespace

ConfigNode load_yaml(const std::string& path, Origin::Kind kind) {
  std::ifstream in(path, std::ios::binary);
  // The first read tells a folder (an error) from an empty file (the end).
  if (in) in.peek();
  if (!in.is_open() || in.bad()) {
    throw UserError("cannot read " + path, "check the path and the permissions");
  }
  std::ostringstream text;
  if (!in.eof()) text << in.rdbuf();
  if (in.bad() || text.fail()) {
    throw UserError("cannot read " + path, "check the path and the permissions");
  }
  return parse_yaml(text.str(), path, kind);
}

ConfigNode parse_yaml(const std::string& text, const std::string& name, Origin::Kind kind) {
  return parse(text, name, kind, true);
}

void merge(ConfigNode& base, const ConfigNode& over) {
  if (base.kind == ConfigNode::Kind::map && over.kind == ConfigNode::Kind::map) {
    for (const auto& e : over.entries) {
      bool found = false;
      for (auto& b : base.entries) {
        if (b.key != e.key) continue;
        merge(b.value, e.value);
        b.key_pos = e.key_pos;
        found = true;
      }
      if (!found) base.entries.push_back(e);
    }
    base.origin = over.origin;
    return;
  }
  base = over;
}

void apply_setting(ConfigNode& root, const std::string& assignment) {
  const size_t eq = assignment.find('=');
  if (eq == std::string::npos || eq == 0) {
    throw UserError("--set " + assignment + ": expected key=value",
                    "for example --set fabric.switch.buffer=32MiB");
  }
  const std::string label = "--set " + assignment;
  const Origin origin{Origin::Kind::command_line, {label, 0}};
  ConfigNode value = parse(assignment.substr(eq + 1), label, Origin::Kind::command_line, false);
  value.origin = origin;
  ConfigNode* node = &root;
  std::istringstream path(assignment.substr(0, eq));
  std::string key;
  while (std::getline(path, key, '.')) {
    if (key.empty()) throw UserError(label + ": an empty key");
    if (node->kind != ConfigNode::Kind::map && node->kind != ConfigNode::Kind::null) {
      throw UserError(label + ": '" + key + "' is below a plain value");
    }
    node = &node->child(key, origin);
  }
  *node = std::move(value);
}

}  // namespace trainyard
