// SPDX-License-Identifier: MIT
// Every pluggable model announces itself here with one line next to its implementation:
//
//   static const RegisterModel<CollectiveFactory> ring{{"collective", "ring", "...", {params}},
//   make};
//
// The scenario reader resolves names, `trainyard explain` prints what was announced, and an
// unknown name lists the known ones.
#pragma once

#include <any>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/params.h"

namespace trainyard {

struct ModelDoc {
  std::string category;  ///< "topology", "congestion", "collective", "compute", ...
  std::string name;      ///< as written in a scenario
  std::string help;      ///< what it models, one or two sentences
  std::string source;    ///< paper, standard or fact id
  std::vector<ParamSpec> params;
};

class Registry {
 public:
  static Registry& instance();

  void add(ModelDoc doc, std::any factory);
  /// nullptr when unknown.
  [[nodiscard]] const ModelDoc* find(const std::string& category, const std::string& name) const;
  /// Throws UserError at `pos` that lists the known names.
  [[nodiscard]] const ModelDoc& get(const std::string& category, const std::string& name,
                                    const SourcePos& pos = {}) const;
  template <class Factory>
  [[nodiscard]] const Factory& factory(const std::string& category, const std::string& name,
                                       const SourcePos& pos = {}) const {
    (void)get(category, name, pos);
    const auto* f = std::any_cast<Factory>(&models_.at({category, name}).second);
    TRAINYARD_ASSERT(f != nullptr);
    return *f;
  }
  /// All models, by category, then name.
  [[nodiscard]] std::vector<const ModelDoc*> all() const;
  [[nodiscard]] std::vector<std::string> names(const std::string& category) const;

 private:
  std::map<std::pair<std::string, std::string>, std::pair<ModelDoc, std::any>> models_;
};

/// Constructing one registers a model. `Factory` is the category's factory type.
template <class Factory>
struct RegisterModel {
  RegisterModel(ModelDoc doc, Factory factory) {
    Registry::instance().add(std::move(doc), std::any(std::move(factory)));
  }
};

}  // namespace trainyard
