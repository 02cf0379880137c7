// SPDX-License-Identifier: MIT
#include "sim/params.h"

#include <charconv>
#include <cmath>

namespace trainyard {
namespace {

const char* type_name(ParamType type) {
  switch (type) {
    case ParamType::boolean:
      return "true or false";
    case ParamType::integer:
      return "whole number";
    case ParamType::real:
      return "number";
    case ParamType::time:
      return "time such as 1.5us";
    case ParamType::bytes:
      return "size such as 4MiB";
    case ParamType::rate:
      return "rate such as 400Gbps";
    case ParamType::length:
      return "length such as 30m";
    case ParamType::choice:
      return "choice";
    case ParamType::text:
      return "text";
  }
  return "";
}

int64_t parse_integer(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UserError("'" + text + "' is not a whole number");
  }
  return value;
}

/// A comparable magnitude of `text` read as `type`.
double magnitude(ParamType type, const std::string& text) {
  switch (type) {
    case ParamType::integer:
      return static_cast<double>(parse_integer(text));
    case ParamType::real:
      return parse_fraction(text);
    case ParamType::time:
      return static_cast<double>(parse_time(text).ps());
    case ParamType::bytes:
      return static_cast<double>(parse_bytes(text).count());
    case ParamType::rate:
      return static_cast<double>(parse_rate(text).bps());
    case ParamType::length:
      return parse_length_m(text);
    default:
      return 0;
  }
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& w : words) out += (out.empty() ? "" : ", ") + w;
  return out;
}

bool contains(const std::vector<std::string>& words, const std::string& word) {
  for (const auto& w : words) {
    if (w == word) return true;
  }
  return false;
}

void check(const ParamSpec& spec, const std::string& text) {
  if (spec.type == ParamType::choice) {
    if (!contains(spec.choices, text)) {
      throw UserError("'" + text + "' is not one of: " + joined(spec.choices));
    }
    return;
  }
  if (contains(spec.choices, text)) return;
  if (spec.type == ParamType::text) return;
  if (spec.type == ParamType::boolean) {
    if (text != "true" && text != "false") throw UserError("'" + text + "' is not true or false");
    return;
  }
  const double value = magnitude(spec.type, text);
  if ((!spec.min.empty() && value < magnitude(spec.type, spec.min)) ||
      (!spec.max.empty() && value > magnitude(spec.type, spec.max))) {
    throw UserError("'" + text + "' is outside " + (spec.min.empty() ? "..." : spec.min) + " to " +
                    (spec.max.empty() ? "..." : spec.max));
  }
}

}  // namespace

std::string describe(const ParamSpec& spec) {
  std::string out = spec.type == ParamType::choice ? joined(spec.choices) : type_name(spec.type);
  if (spec.type != ParamType::choice && !spec.choices.empty()) {
    out += " or " + joined(spec.choices);
  }
  if (!spec.min.empty() || !spec.max.empty()) {
    out += ", " + (spec.min.empty() ? std::string("...") : spec.min) + " to " +
           (spec.max.empty() ? std::string("...") : spec.max);
  }
  out += ", default " + (spec.default_value.empty() ? std::string("none") : spec.default_value);
  return out;
}

Params::Params(const std::vector<ParamSpec>& specs) {
  for (const auto& spec : specs) {
    specs_[spec.name] = spec;
    order_.push_back(spec.name);
    if (!spec.default_value.empty()) {
      check(spec, spec.default_value);
      values_[spec.name] = {spec.default_value, {}};
    }
  }
}

void Params::set(const std::string& name, const std::string& text, const Origin& origin) {
  const auto it = specs_.find(name);
  TRAINYARD_ASSERT(it != specs_.end());
  try {
    check(it->second, text);
  } catch (const UserError& e) {
    throw UserError(origin.pos, name + ": " + e.what(), "accepted: " + describe(it->second));
  }
  values_[name] = {text, origin};
}

const Params::Value& Params::at(const std::string& name, ParamType type) const {
  const auto spec = specs_.find(name);
  TRAINYARD_ASSERT(spec != specs_.end());
  TRAINYARD_ASSERT(type == ParamType::text || spec->second.type == type);
  const auto it = values_.find(name);
  if (it == values_.end()) {
    throw UserError("parameter '" + name + "' has no value",
                    "give it one: " + describe(spec->second));
  }
  return it->second;
}

const std::string& Params::text(const std::string& name) const {
  static const std::string empty;
  const auto it = values_.find(name);
  TRAINYARD_ASSERT(specs_.count(name) != 0);
  return it == values_.end() ? empty : it->second.text;
}
bool Params::boolean(const std::string& name) const {
  return at(name, ParamType::boolean).text == "true";
}
int64_t Params::integer(const std::string& name) const {
  return parse_integer(at(name, ParamType::integer).text);
}
double Params::real(const std::string& name) const {
  return parse_fraction(at(name, ParamType::real).text);
}
Time Params::time(const std::string& name) const {
  return parse_time(at(name, ParamType::time).text);
}
Bytes Params::bytes(const std::string& name) const {
  return parse_bytes(at(name, ParamType::bytes).text);
}
Rate Params::rate(const std::string& name) const {
  return parse_rate(at(name, ParamType::rate).text);
}
double Params::length_m(const std::string& name) const {
  return parse_length_m(at(name, ParamType::length).text);
}
const Origin& Params::origin(const std::string& name) const {
  return at(name, ParamType::text).origin;
}

const ParamSpec& Params::spec(const std::string& name) const {
  const auto it = specs_.find(name);
  TRAINYARD_ASSERT(it != specs_.end());
  return it->second;
}

Time Params::link_delay(const std::string& delay_name, const std::string& length_name) const {
  if (!is_word(delay_name, "auto")) return time(delay_name);
  // Light in fibre and copper alike: about 5 ns per metre (protocols 5.5).
  return Time::ps(std::llround(length_m(length_name) * 5000.0));
}

}  // namespace trainyard
