// SPDX-License-Identifier: MIT
// A YAML document as a tree that knows the line of every key and value, in input order.
#pragma once

#include <string>
#include <vector>

#include "sim/errors.h"
#include "sim/params.h"

namespace trainyard {

struct ConfigNode {
  enum class Kind : uint8_t { null, scalar, map, list };
  struct Entry;

  Kind kind = Kind::null;
  std::string text;  ///< scalar
  Origin origin;
  std::vector<Entry> entries;     ///< map
  std::vector<ConfigNode> items;  ///< list

  [[nodiscard]] const ConfigNode* find(const std::string& key) const;
  /// Child of a map, created when missing; turns a null node into a map.
  ConfigNode& child(const std::string& key, const Origin& where);
};

struct ConfigNode::Entry {
  std::string key;
  SourcePos key_pos;
  ConfigNode value;
};

/// Parses a YAML file. Throws UserError (file, line) for syntax errors, duplicate keys, anchors,
/// and a document that is not a map. `kind` marks where the values come from.
ConfigNode load_yaml(const std::string& path, Origin::Kind kind);
/// The same from text; `name` stands for the file in messages.
ConfigNode parse_yaml(const std::string& text, const std::string& name, Origin::Kind kind);

/// Values of `over` replace those of `base`; maps are merged key by key.
void merge(ConfigNode& base, const ConfigNode& over);

/// Applies "a.b.c=value" (value is YAML) to `root` as a command-line setting.
void apply_setting(ConfigNode& root, const std::string& assignment);

}  // namespace trainyard
