// SPDX-License-Identifier: MIT
// Attributes of a node, whatever encoding they came in, turned into the members of Node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "chakra/trace.h"
#include "sim/errors.h"

namespace trainyard::chakra {

/// The value of an attribute, whatever its kind.
struct Value {
  enum Kind { kNone, kSigned, kUnsigned, kBool, kReal, kText, kBoolList, kOther } kind = kNone;
  int64_t number = 0;  // kSigned, kBool; kBoolList: 1 when some entry is false
  uint64_t bits = 0;   // kUnsigned
  double real = 0;
  std::string_view text;  // kText

  static Value of_signed(int64_t x) {
    Value v;
    v.kind = kSigned;
    v.number = x;
    return v;
  }
  static Value of_unsigned(uint64_t x) {
    Value v;
    v.kind = kUnsigned;
    v.bits = x;
    return v;
  }
  static Value of_bool(bool x) {
    Value v;
    v.kind = kBool;
    v.number = x ? 1 : 0;
    return v;
  }
  static Value of_real(double x) {
    Value v;
    v.kind = kReal;
    v.real = x;
    return v;
  }
  static Value of_text(std::string_view x) {
    Value v;
    v.kind = kText;
    v.text = x;
    return v;
  }
  static Value of_list(Kind kind) {
    Value v;
    v.kind = kind;
    return v;
  }
};

struct Attribute {
  std::string_view name;
  Value value;
};

/// What the numbers of comm_type mean.
enum class CommNumbers : uint8_t { v001, v002_v003, v004 };

/// Collective of 0.0.4 for a number of another schema; negative when there is none.
int64_t comm_type_from(CommNumbers numbers, int64_t number);

/// Collects the attributes of one node; finish() when all are in.
class NodeAttributes {
 public:
  NodeAttributes(SourcePos pos, Node& node, CommNumbers numbers)
      : pos_(std::move(pos)), node_(node), numbers_(numbers) {}

  void apply(const Attribute& attr);
  void finish();

 private:
  std::optional<int64_t> whole_number(const Attribute& attr, bool noted = true);
  std::optional<std::string> group_name(const Attribute& attr);
  [[noreturn]] void bad(const Attribute& attr, const std::string& why) const;

  SourcePos pos_;
  Node& node_;
  CommNumbers numbers_;
  std::optional<std::string> comm_group_;
  bool narrows_dimensions_ = false;
};

}  // namespace trainyard::chakra
