// SPDX-License-Identifier: MIT
#include "sim/registry.h"

namespace trainyard {

Registry& Registry::instance() {
  static Registry registry;
  return registry;
}

void Registry::add(ModelDoc doc, std::any factory) {
  auto key = std::make_pair(doc.category, doc.name);
  const bool inserted =
      models_.emplace(std::move(key), std::make_pair(std::move(doc), std::move(factory))).second;
  TRAINYARD_ASSERT(inserted);
}

const ModelDoc* Registry::find(const std::string& category, const std::string& name) const {
  const auto it = models_.find({category, name});
  return it == models_.end() ? nullptr : &it->second.first;
}

const ModelDoc& Registry::get(const std::string& category, const std::string& name,
                              const SourcePos& pos) const {
  if (const auto* doc = find(category, name)) return *doc;
  std::string known;
  for (const auto& n : names(category)) known += (known.empty() ? "" : ", ") + n;
  throw UserError(pos, "unknown " + category + " '" + name + "'", "known: " + known);
}

std::vector<const ModelDoc*> Registry::all() const {
  std::vector<const ModelDoc*> out;
  for (const auto& [key, model] : models_) out.push_back(&model.first);
  return out;
}

std::vector<std::string> Registry::names(const std::string& category) const {
  std::vector<std::string> out;
  for (const auto& [key, model] : models_) {
    if (key.first == category) out.push_back(key.second);
  }
  return out;
}

}  // namespace trainyard
