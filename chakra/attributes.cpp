// SPDX-License-Identifier: MIT
#include "chakra/attributes.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "chakra/schema.h"

namespace trainyard::chakra {

namespace {

std::string shortened(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 40)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return text.size() > 40 ? out + "..." : out;
}

constexpr int64_t number_of(CommType type) {
  return static_cast<int64_t>(type);
}

}  // namespace

int64_t comm_type_from(CommNumbers numbers, int64_t number) {
  if (numbers == CommNumbers::v004) return number;
  constexpr std::array<CommType, 5> kOld = {CommType::all_reduce, CommType::all_to_all,
                                            CommType::all_gather, CommType::reduce_scatter,
                                            CommType::broadcast};
  // 0.0.1 counts from 1 and has no broadcast.
  const int64_t index = numbers == CommNumbers::v001 ? number - 1 : number;
  const int64_t known = numbers == CommNumbers::v001 ? 4 : 5;
  return index >= 0 && index < known ? number_of(kOld[static_cast<size_t>(index)]) : -1;
}

void NodeAttributes::bad(const Attribute& attr, const std::string& why) const {
  throw UserError(
      pos_, "node " + std::to_string(node_.id) + ": attribute " + shortened(attr.name) + " " + why,
      "write it as a whole number");
}

std::optional<int64_t> NodeAttributes::whole_number(const Attribute& attr, bool noted) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const auto note = [&](const std::string& kind) {
    if (!noted) return;
    node_.notes.push_back("attribute " + std::string(attr.name) + " is given as " + kind +
                          " instead of an integer; converted");
  };
  const Value& v = attr.value;
  switch (v.kind) {
    case Value::kSigned:
      return v.number;
    case Value::kUnsigned:
      if (v.bits > static_cast<uint64_t>(kMax)) {
        // A tag is only compared, so that any bit pattern will do.
        if (attr.name != "comm_tag") bad(attr, "exceeds 2^63 - 1");
      }
      return static_cast<int64_t>(v.bits);
    case Value::kBool:
      note("a bool");
      return v.number;
    case Value::kReal: {
      constexpr double kLimit = 9223372036854775808.0;  // 2^63
      if (!(v.real >= -kLimit && v.real < kLimit) || v.real != std::floor(v.real)) {
        bad(attr, "is " + std::to_string(v.real) + ", not a whole number");
      }
      note("a floating-point number");
      return static_cast<int64_t>(v.real);
    }
    case Value::kText: {
      int64_t number = 0;
      const char* end = v.text.data() + v.text.size();
      const auto [ptr, ec] = std::from_chars(v.text.data(), end, number);
      if (ec != std::errc() || ptr != end || v.text.empty()) {
        bad(attr, "is the string \"" + shortened(v.text) + "\"");
      }
      note("the string \"" + shortened(v.text) + "\"");
      return number;
    }
    case Value::kNone:
      return std::nullopt;
    case Value::kBoolList:
    case Value::kOther:
      break;
  }
  bad(attr, "is a list");
}

std::optional<std::string> NodeAttributes::group_name(const Attribute& attr) {
  if (attr.value.kind == Value::kNone) return std::nullopt;
  if (attr.value.kind == Value::kText) return std::string(attr.value.text);
  const std::optional<int64_t> number = whole_number(attr, false);
  if (attr.name == "pg_name") {
    node_.notes.emplace_back(
        "attribute pg_name is given as a number instead of a string; converted");
  }
  return std::to_string(*number);
}

void NodeAttributes::apply(const Attribute& attr) {
  static const std::array<std::pair<std::string_view, std::optional<int64_t> Node::*>, 7> kNumbers =
      {{{"num_ops", &Node::num_ops},
        {"tensor_size", &Node::tensor_size},
        {"comm_size", &Node::comm_size},
        {"comm_src", &Node::comm_src},
        {"comm_dst", &Node::comm_dst},
        {"comm_tag", &Node::comm_tag},
        {"stream", &Node::stream}}};
  const std::string_view name = attr.name;
  for (const auto& [known, member] : kNumbers) {
    if (name != known) continue;
    if (const auto value = whole_number(attr)) node_.*member = value;
    return;
  }
  if (name == "comm_type") {
    const std::optional<int64_t> by_name = attr.value.kind == Value::kText
                                               ? parse_comm_type(attr.value.text)
                                               : std::optional<int64_t>();
    if (by_name) {
      node_.notes.push_back("attribute comm_type is given as the string \"" +
                            std::string(attr.value.text) + "\" instead of an integer; converted");
      node_.comm_type = by_name;
    } else if (const auto value = whole_number(attr)) {
      node_.comm_type = comm_type_from(numbers_, *value);
      if (numbers_ != CommNumbers::v004 && *node_.comm_type < 0) {
        node_.notes.push_back("comm_type " + std::to_string(*value) +
                              " is no collective of the old schema; shown as -1");
      }
    }
  } else if (name == "is_cpu_op") {
    if (attr.value.kind == Value::kBool) {
      node_.is_cpu_op = attr.value.number != 0;
    } else if (attr.value.kind == Value::kText &&
               (attr.value.text == "true" || attr.value.text == "false")) {
      node_.is_cpu_op = attr.value.text == "true";
      node_.notes.emplace_back("attribute is_cpu_op is given as a string; converted");
    } else if (const auto value = whole_number(attr)) {
      node_.is_cpu_op = *value != 0;
    }
  } else if (name == "pg_name") {
    if (auto group = group_name(attr)) node_.pg_name = std::move(group);
  } else if (name == "comm_group") {  // older STAGE
    comm_group_ = group_name(attr);
  } else if (name == "involved_dim") {
    narrows_dimensions_ = attr.value.kind == Value::kBoolList && attr.value.number != 0;
  } else if (name == "tid") {  // a hint only: never a reason to refuse a trace
    const Value& v = attr.value;
    if (v.kind == Value::kSigned) node_.tid = v.number;
    if (v.kind == Value::kUnsigned && v.bits <= INT64_MAX) node_.tid = static_cast<int64_t>(v.bits);
  } else if (name == "runtime" && numbers_ == CommNumbers::v002_v003) {
    if (const auto value = whole_number(attr)) {
      if (*value < 0) bad(attr, "is negative");
      node_.duration_us = static_cast<uint64_t>(*value);
    }
  }
}

void NodeAttributes::finish() {
  if (!node_.pg_name && comm_group_) node_.pg_name = std::move(comm_group_);
  if (narrows_dimensions_ && node_.type == NodeType::comm_coll && !node_.pg_name) {
    node_.notes.emplace_back(
        "attribute involved_dim selects topology dimensions; ignored, the collective runs over all "
        "ranks");
  }
}

}  // namespace trainyard::chakra
