// SPDX-License-Identifier: MIT
#include "sim/params.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trainyard {
namespace {

using PT = ParamType;

const std::vector<ParamSpec>& specs() {
  static const std::vector<ParamSpec> list = {
      {"on", PT::boolean, "true", "", "", {}, "a switch", ""},
      {"count", PT::integer, "auto", "1", "64", {"auto"}, "a number", ""},
      {"share", PT::real, "1/8", "0.01", "1", {}, "a share", ""},
      {"delay", PT::time, "1.5us", "0ns", "1ms", {}, "a delay", ""},
      {"buffer", PT::bytes, "4MiB", "1KiB", "", {"none"}, "a buffer", ""},
      {"rate", PT::rate, "400Gbps", "1Mbps", "", {}, "a rate", ""},
      {"length", PT::length, "30m", "0m", "100km", {}, "a cable", ""},
      {"mode", PT::choice, "a", "", "", {"a", "b"}, "a choice", ""},
      {"path", PT::text, "", "", "", {}, "a text", ""},
      {"link_delay", PT::time, "auto", "0ns", "10ms", {"auto"}, "a cable's delay", ""}};
  return list;
}

std::string refusal(const std::string& name, const std::string& text) {
  Params p(specs());
  try {
    p.set(name, text, {Origin::Kind::user, {"s.yaml", 12}});
  } catch (const UserError& e) {
    EXPECT_EQ("s.yaml", e.pos().file);
    EXPECT_EQ(12, e.pos().line);
    const std::string what = e.what();
    EXPECT_EQ(0U, what.find("s.yaml:12: " + name + ": ")) << what;
    EXPECT_NE(std::string::npos, what.find(text)) << what;
    return what;
  }
  ADD_FAILURE() << name << " takes " << text;
  return {};
}

void expect_mentions(const std::string& text, const std::vector<std::string>& words) {
  for (const auto& w : words) EXPECT_NE(std::string::npos, text.find(w)) << w << " in: " << text;
}

TEST(Params, DefaultsAreTyped) {
  const Params p(specs());
  EXPECT_TRUE(p.boolean("on"));
  EXPECT_TRUE(p.is_word("count", "auto"));
  EXPECT_DOUBLE_EQ(0.125, p.real("share"));
  EXPECT_EQ(Time::ns(1500), p.time("delay"));
  EXPECT_EQ(Bytes(4 << 20), p.bytes("buffer"));
  EXPECT_EQ(Rate::gbps(400), p.rate("rate"));
  EXPECT_DOUBLE_EQ(30, p.length_m("length"));
  EXPECT_EQ("a", p.text("mode"));
  EXPECT_EQ("", p.text("path"));
  EXPECT_EQ(Origin::Kind::default_value, p.origin("rate").kind);
  ASSERT_EQ(specs().size(), p.names().size());
  for (size_t i = 0; i < specs().size(); ++i) EXPECT_EQ(specs()[i].name, p.names()[i]);
  EXPECT_TRUE(p.has_spec("rate"));
  EXPECT_FALSE(p.has_spec("Rate"));
}

TEST(Params, ValuesAndOriginsAreKept) {
  Params p(specs());
  const Origin origin{Origin::Kind::preset, {"preset.yaml", 4}};
  p.set("rate", "450GBps", origin);
  p.set("count", "64", origin);
  p.set("on", "false", origin);
  p.set("share", "25%", origin);
  p.set("path", "a b/c.csv", origin);
  p.set("mode", "b", origin);
  EXPECT_EQ(Rate::gbps(3600), p.rate("rate"));  // bytes, not bits
  EXPECT_EQ(64, p.integer("count"));
  EXPECT_FALSE(p.boolean("on"));
  EXPECT_DOUBLE_EQ(0.25, p.real("share"));
  EXPECT_EQ("a b/c.csv", p.text("path"));
  EXPECT_EQ("b", p.text("mode"));
  EXPECT_EQ(Origin::Kind::preset, p.origin("rate").kind);
  EXPECT_EQ(4, p.origin("rate").pos.line);
}

TEST(Params, RangesHoldAtBothEnds) {
  Params p(specs());
  for (const char* ok : {"1", "64"}) EXPECT_NO_THROW(p.set("count", ok, {})) << ok;
  for (const char* ok : {"0.01", "1", "100%", "1%"}) EXPECT_NO_THROW(p.set("share", ok, {})) << ok;
  for (const char* ok : {"0ns", "1ms", "1000us"}) EXPECT_NO_THROW(p.set("delay", ok, {})) << ok;
  for (const char* ok : {"1024B", "9TiB"}) EXPECT_NO_THROW(p.set("buffer", ok, {})) << ok;
  expect_mentions(refusal("count", "0"), {"1 to 64"});
  expect_mentions(refusal("count", "65"), {"1 to 64"});
  expect_mentions(refusal("count", "-3"), {"1 to 64"});
  expect_mentions(refusal("share", "0.009"), {"0.01 to 1"});
  expect_mentions(refusal("share", "101%"), {"0.01 to 1"});
  expect_mentions(refusal("delay", "1001us"), {"0ns to 1ms"});
  expect_mentions(refusal("buffer", "1000B"), {"1KiB to ..."});
  expect_mentions(refusal("rate", "999Kbps"), {"1Mbps to ..."});
  expect_mentions(refusal("length", "101km"), {"0m to 100km"});
}

TEST(Params, UnitsAndTypesAreNamed) {
  expect_mentions(refusal("delay", "5"), {"no unit", "time such as 1.5us"});
  expect_mentions(refusal("delay", "5MiB"), {"unknown unit"});
  expect_mentions(refusal("rate", "400Gb"), {"Gbps"});
  expect_mentions(refusal("buffer", "lots"), {"size such as 4MiB", "none"});
  expect_mentions(refusal("count", "1.5"), {"whole number"});
  expect_mentions(refusal("count", "3x"), {"whole number"});
  expect_mentions(refusal("count", "99999999999999999999"), {"whole number"});
  expect_mentions(refusal("on", "yes"), {"true or false"});
  expect_mentions(refusal("share", "half"), {"number"});
}

TEST(Params, WordsAndChoices) {
  Params p(specs());
  EXPECT_NO_THROW(p.set("buffer", "none", {}));
  EXPECT_TRUE(p.is_word("buffer", "none"));
  expect_mentions(refusal("mode", "c"), {"a, b"});
  expect_mentions(refusal("count", "none"), {"auto"});    // a word of another parameter
  expect_mentions(refusal("buffer", "auto"), {"none"});
}

TEST(Params, AFailedSetChangesNothing) {
  Params p(specs());
  EXPECT_THROW(p.set("delay", "2ms", {Origin::Kind::user, {}}), UserError);
  EXPECT_EQ(Time::ns(1500), p.time("delay"));
  EXPECT_EQ(Origin::Kind::default_value, p.origin("delay").kind);
}

TEST(Params, AValueThatIsNotThereIsAnError) {
  const Params p({{"n", PT::integer, "", "", "", {}, "without default", ""}});
  try {
    (void)p.integer("n");
    FAIL();
  } catch (const UserError& e) {
    expect_mentions(e.what(), {"'n'", "no value", "whole number", "default none"});
  }
}

TEST(Params, ADefaultOutsideItsRangeIsFound) {
  EXPECT_THROW(Params({{"n", PT::integer, "9", "0", "8", {}, "", ""}}), UserError);
  EXPECT_THROW(Params({{"n", PT::choice, "z", "", "", {"a"}, "", ""}}), UserError);
}

TEST(Params, CableDelayIsFiveNanosecondsPerMetre) {
  Params p(specs());
  EXPECT_EQ(Time::ns(150), p.link_delay("link_delay", "length"));
  p.set("length", "1.5m", {});
  EXPECT_EQ(Time::ps(7500), p.link_delay("link_delay", "length"));
  p.set("link_delay", "2us", {});
  EXPECT_EQ(Time::us(2), p.link_delay("link_delay", "length"));
}

TEST(Params, DescribeSaysTypeRangeWordsAndDefault) {
  EXPECT_EQ("whole number or auto, 1 to 64, default auto", describe(specs()[1]));
  EXPECT_EQ("time such as 1.5us, 0ns to 1ms, default 1.5us", describe(specs()[3]));
  EXPECT_EQ("size such as 4MiB or none, 1KiB to ..., default 4MiB", describe(specs()[4]));
  EXPECT_EQ("a, b, default a", describe(specs()[7]));
  EXPECT_EQ("text, default none", describe(specs()[8]));
}

}  // namespace
}  // namespace trainyard
