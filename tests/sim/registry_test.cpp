// SPDX-License-Identifier: MIT
// The registry, and every model that announced itself.
#include "sim/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "network/packet/config.h"
#include "sim/collective.h"
#include "sim/compute_model.h"
#include "workload/collective_params.h"

namespace trainyard {
namespace {

using MakeNumber = std::function<int(const Params&)>;

const RegisterModel<MakeNumber> kTwo{
    {"made-up",
     "two",
     "The number two.",
     "arithmetic",
     {{"plus", ParamType::integer, "0", "0", "9", {}, "added to it", ""}}},
    [](const Params& p) { return 2 + static_cast<int>(p.integer("plus")); }};
const RegisterModel<MakeNumber> kOne{{"made-up", "one", "The number one.", "", {}},
                                     [](const Params&) { return 1; }};

TEST(Registry, FindsWhatWasAnnounced) {
  const auto& r = Registry::instance();
  EXPECT_EQ((std::vector<std::string>{"one", "two"}), r.names("made-up"));
  const ModelDoc& doc = r.get("made-up", "two");
  EXPECT_EQ("The number two.", doc.help);
  Params p(doc.params);
  p.set("plus", "5", {});
  EXPECT_EQ(7, r.factory<MakeNumber>("made-up", "two")(p));
  EXPECT_EQ(nullptr, r.find("made-up", "three"));
  EXPECT_EQ(nullptr, r.find("other", "two"));
  EXPECT_TRUE(r.names("other").empty());
}

TEST(Registry, UnknownNamesListTheKnownOnes) {
  try {
    (void)Registry::instance().factory<MakeNumber>("made-up", "three", {"s.yaml", 9});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ("s.yaml:9: unknown made-up 'three'; known: one, two", e.what());
    EXPECT_EQ(9, e.pos().line);
  }
}

TEST(Registry, AllIsSortedAndComplete) {
  std::set<std::pair<std::string, std::string>> seen;
  std::pair<std::string, std::string> last;
  for (const ModelDoc* doc : Registry::instance().all()) {
    const std::pair key{doc->category, doc->name};
    EXPECT_LT(last, key);
    last = key;
    seen.insert(key);
  }
  // What a first scenario needs; an object file that the linker dropped would be missing here.
  for (const auto& [category, name] :
       std::vector<std::pair<const char*, const char*>>{{"collective", "ring"},
                                                        {"collective", "direct"},
                                                        {"compute", "trace"},
                                                        {"compute", "roofline"},
                                                        {"topology", "rail-optimized"},
                                                        {"topology", "leaf-spine"},
                                                        {"topology", "single-switch"},
                                                        {"topology", "file"},
                                                        {"traffic", "incast"},
                                                        {"traffic", "outcast"},
                                                        {"traffic", "all-to-all"},
                                                        {"traffic", "permutation"},
                                                        {"traffic", "file"},
                                                        {"congestion", "none"},
                                                        {"congestion", "dcqcn"}}) {
    EXPECT_EQ(1U, seen.count({category, name})) << category << " " << name;
  }
}

void check_spec(const ParamSpec& spec) {
  SCOPED_TRACE(spec.name);
  EXPECT_FALSE(spec.name.empty());
  EXPECT_FALSE(spec.help.empty());
  if (spec.type == ParamType::choice) {
    EXPECT_FALSE(spec.choices.empty());
    EXPECT_FALSE(spec.default_value.empty());
  }
  // Bounds are written in the parameter's own unit and lie inside themselves.
  for (const std::string& bound : {spec.min, spec.max}) {
    if (bound.empty()) continue;
    ParamSpec at_bound = spec;
    at_bound.default_value = bound;
    EXPECT_NO_THROW(Params({at_bound})) << bound;
  }
  const std::set<std::string> words(spec.choices.begin(), spec.choices.end());
  EXPECT_EQ(spec.choices.size(), words.size());
  EXPECT_NE(std::string::npos, describe(spec).find("default")) << describe(spec);
}

void check_specs(const std::vector<ParamSpec>& specs) {
  EXPECT_NO_THROW(Params{specs});  // defaults pass their own checks
  std::set<std::string> names;
  for (const ParamSpec& spec : specs) {
    check_spec(spec);
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name << " declared twice";
  }
}

TEST(Registry, EveryModelDocumentsItself) {
  size_t models = 0;
  for (const ModelDoc* doc : Registry::instance().all()) {
    SCOPED_TRACE(doc->category + " " + doc->name);
    EXPECT_FALSE(doc->help.empty());
    check_specs(doc->params);
    ++models;
  }
  EXPECT_GE(models, 15U);
}

TEST(Registry, BlocksOfThePacketEngineDocumentThemselves) {
  for (const auto* specs : {&transport_params(), &dcqcn_params(), &ecmp_params(), &buffer_params(),
                            &pfc_params(), &ecn_params(), &collective_params()}) {
    check_specs(*specs);
    EXPECT_FALSE(specs->empty());
  }
}

TEST(Registry, CollectivesAndComputeModelsBuildFromDefaults) {
  const auto& r = Registry::instance();
  for (const std::string& name : r.names("collective")) {
    const auto a =
        r.factory<CollectiveFactory>("collective", name)(Params(r.get("collective", name).params));
    EXPECT_EQ(name, a->name());
  }
  DeviceCard card;
  card.name = "card";
  card.tflops = card.hbm_gbytes_per_s = 1;
  card.fit.gemm_half = 0.5;  // model fitted asks for a fit
  for (const std::string& name : r.names("compute")) {
    if (name == "table") continue;  // has nothing to look up without its file
    const auto m = r.factory<ComputeFactory>("compute", name)(Params(r.get("compute", name).params),
                                                              {card, "", {}});
    EXPECT_FALSE(m->source().empty());
  }
  for (const std::string& name : r.names("jitter")) {
    const auto m = r.factory<JitterFactory>("jitter", name)(Params(r.get("jitter", name).params));
    EXPECT_EQ(name == "none", m == nullptr);
  }
}

}  // namespace
}  // namespace trainyard
