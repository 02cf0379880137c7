// SPDX-License-Identifier: MIT
#include "chakra/reader.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "chakra/byte_source.h"
#include "chakra/schema.h"
#include "sim/errors.h"

namespace trainyard::chakra {

namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

constexpr uint64_t kMaxRecordBytes = 1ULL << 30;
// A run of empty records is what a zero-filled file looks like; a trace has at most a few.
constexpr int kMaxEmptyRecordsInARow = 1000;

enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Field {
  int number = 0;
  int wire = 0;
  uint64_t value = 0;      // varint and fixed kinds
  std::string_view bytes;  // length-delimited
};

/// Walks over the fields of one message in memory. Every length is checked against the bytes left.
class Message {
 public:
  explicit Message(std::string_view bytes)
      : bytes_(bytes),
        in_(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size())) {}

  /// False at the end, and at the first malformed field: see ok().
  bool next(Field& field) {
    if (!ok_ || left() == 0) return false;
    ok_ = false;
    const uint32_t tag = in_.ReadTag();
    field = {};
    field.number = WireFormatLite::GetTagFieldNumber(tag);
    field.wire = static_cast<int>(WireFormatLite::GetTagWireType(tag));
    if (field.number == 0) return false;
    switch (field.wire) {
      case kVarint:
        ok_ = in_.ReadVarint64(&field.value);
        break;
      case kFixed64:
        ok_ = in_.ReadLittleEndian64(&field.value);
        break;
      case kFixed32: {
        uint32_t value = 0;
        ok_ = in_.ReadLittleEndian32(&value);
        field.value = value;
        break;
      }
      case kBytes: {
        uint64_t size = 0;
        if (!in_.ReadVarint64(&size) || size > left()) return false;
        field.bytes = bytes_.substr(static_cast<size_t>(in_.CurrentPosition()), size);
        ok_ = in_.Skip(static_cast<int>(size));
        break;
      }
      default:  // groups: legal on the wire, used by no schema
        ok_ = WireFormatLite::SkipField(&in_, tag);
        break;
    }
    return ok_;
  }

  [[nodiscard]] bool ok() const { return ok_; }

 private:
  [[nodiscard]] size_t left() const {
    return bytes_.size() - static_cast<size_t>(in_.CurrentPosition());
  }

  std::string_view bytes_;
  CodedInputStream in_;
  bool ok_ = true;
};

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

// ---------------------------------------------------------------------------------------------
// Attributes

/// The value of an attribute, whatever its kind.
struct Value {
  enum Kind { kNone, kSigned, kUnsigned, kBool, kReal, kText, kBoolList, kOther } kind = kNone;
  int64_t number = 0;  // kSigned, kBool
  uint64_t bits = 0;   // kUnsigned
  double real = 0;
  std::string_view text;  // kText; for a list, its message
};

struct Attribute {
  std::string_view name;
  Value value;
};

Value decode_value(const Field& f) {
  Value v;
  const auto set_signed = [&](int64_t x) {
    v.kind = Value::kSigned;
    v.number = x;
  };
  const auto set_unsigned = [&](uint64_t x) {
    v.kind = Value::kUnsigned;
    v.bits = x;
  };
  const auto low32 = static_cast<uint32_t>(f.value);
  if (f.wire == kVarint) {
    switch (f.number) {
      case 7:
        set_signed(static_cast<int32_t>(low32));
        break;
      case 9:
        set_signed(static_cast<int64_t>(f.value));
        break;
      case 11:
        set_unsigned(low32);
        break;
      case 13:
        set_unsigned(f.value);
        break;
      case 15:
        set_signed(WireFormatLite::ZigZagDecode32(low32));
        break;
      case 17:
        set_signed(WireFormatLite::ZigZagDecode64(f.value));
        break;
      case 27:
        v.kind = Value::kBool;
        v.number = f.value != 0 ? 1 : 0;
        break;
      default:
        break;
    }
  } else if (f.wire == kFixed64) {
    switch (f.number) {
      case 3:
        v.kind = Value::kReal;
        v.real = std::bit_cast<double>(f.value);
        break;
      case 21:
        set_unsigned(f.value);
        break;
      case 25:
        set_signed(static_cast<int64_t>(f.value));
        break;
      default:
        break;
    }
  } else if (f.wire == kFixed32) {
    switch (f.number) {
      case 5:
        v.kind = Value::kReal;
        v.real = std::bit_cast<float>(low32);
        break;
      case 19:
        set_unsigned(low32);
        break;
      case 23:
        set_signed(static_cast<int32_t>(low32));
        break;
      default:
        break;
    }
  } else if (f.wire == kBytes) {
    if (f.number == 29 || f.number == 31) {
      v.kind = Value::kText;
      v.text = f.bytes;
    } else if (f.number == 28) {
      v.kind = Value::kBoolList;
      v.text = f.bytes;
    } else if (f.number >= 3 && f.number <= 32) {
      v.kind = Value::kOther;
    }
  }
  return v;
}

/// nullopt when `bytes` is no AttributeProto.
std::optional<Attribute> decode_attribute(std::string_view bytes) {
  Attribute attr;
  Message message(bytes);
  Field f;
  while (message.next(f)) {
    if (f.number == 1 || f.number == 2) {
      if (f.wire != kBytes) return std::nullopt;
      if (f.number == 1) attr.name = f.bytes;
      continue;
    }
    const Value v = decode_value(f);
    if (v.kind != Value::kNone) attr.value = v;  // last member of a oneof wins
  }
  if (!message.ok()) return std::nullopt;
  return attr;
}

bool any_false(std::string_view bool_list) {
  Message message(bool_list);
  Field f;
  while (message.next(f)) {
    if (f.number != 1) continue;
    if (f.wire == kVarint && f.value == 0) return true;
    if (f.wire == kBytes && f.bytes.find('\0') != std::string_view::npos) return true;
  }
  return false;
}

// ---------------------------------------------------------------------------------------------
// Records

enum class Dialect { unknown, v001, v002, v003 };

/// Which old generation a field 11 (`attribute`) belongs to. There, name and declared type come
/// first, and the numbers of the values moved from one generation to the next.
Dialect old_attribute(std::string_view bytes) {
  Message message(bytes);
  Field f;
  bool name = false;
  bool type = false;
  Dialect dialect = Dialect::v003;
  while (message.next(f)) {
    if (f.number == 1) name = f.wire == kBytes && !f.bytes.empty() && printable(f.bytes);
    if (f.number == 2) type = f.wire == kVarint;
    if ((f.number == 4 && f.wire == kFixed32) || (f.number == 5 && f.wire == kVarint) ||
        (f.number == 6 && f.wire == kBytes)) {
      dialect = Dialect::v002;
    }
  }
  return message.ok() && name && type ? dialect : Dialect::unknown;
}

class Decoder {
 public:
  explicit Decoder(const std::string& path) : path_(path) {}

  /// Position of the record that is decoded next, for messages.
  void at(uint64_t record, uint64_t offset) {
    record_ = record;
    offset_ = offset;
  }

  /// Is the first record the metadata? Otherwise it is a node already.
  bool first_is_metadata(std::string_view bytes, FileHeader& header) {
    Message message(bytes);
    Field f;
    bool metadata = true;
    while (message.next(f)) {
      if (f.number == 1) {
        metadata = metadata && f.wire == kBytes;
        // An early revision kept attributes in field 1; they start with a control character.
        if (metadata && printable(f.bytes)) header.version = std::string(f.bytes);
      } else if (f.number == 2) {
        const auto attr = f.wire == kBytes ? decode_attribute(f.bytes) : std::nullopt;
        metadata = metadata && attr.has_value();
        if (attr && attr->name == "schema" && attr->value.kind == Value::kText) {
          header.schema = std::string(attr->value.text);
        }
      } else {
        metadata = false;
      }
    }
    if (!message.ok()) fail("is malformed");
    has_metadata_ = metadata;
    if (!metadata) header = {};
    return metadata;
  }

  Node node(std::string_view bytes);

  [[noreturn]] void fail(const std::string& problem) const {
    throw UserError(
        SourcePos{path_, 0},
        "record " + std::to_string(record_) + " at byte " + std::to_string(offset_) + " " + problem,
        "this is no Chakra trace of schema 0.0.4, or a damaged one");
  }

 private:
  [[noreturn]] void refuse(const char* schema) const {
    throw UserError(SourcePos{path_, 0},
                    std::string("Chakra schema ") + schema +
                        " is not supported yet (seen in record " + std::to_string(record_) + ")",
                    "convert the trace to schema 0.0.4");
  }

  static bool read_ids(const Field& f, std::vector<uint64_t>& ids);
  void apply(const Attribute& attr, Node& node, std::optional<std::string>& comm_group) const;
  std::optional<int64_t> whole_number(const Attribute& attr, Node& node) const;
  std::optional<std::string> group_name(const Attribute& attr, Node& node) const;
  [[noreturn]] void bad_attribute(const Attribute& attr, const Node& node,
                                  const std::string& why) const;

  const std::string& path_;
  uint64_t record_ = 0, offset_ = 0;
  bool has_metadata_ = false;
  bool confirmed_ = false;  // a record has shown that the file is 0.0.4
};

std::string shortened(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 40)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return text.size() > 40 ? out + "..." : out;
}

void Decoder::bad_attribute(const Attribute& attr, const Node& node, const std::string& why) const {
  throw UserError(
      SourcePos{path_, 0},
      "node " + std::to_string(node.id) + ": attribute " + shortened(attr.name) + " " + why,
      "write it as a whole number");
}

std::optional<int64_t> Decoder::whole_number(const Attribute& attr, Node& node) const {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const auto note = [&](const std::string& kind) {
    node.notes.push_back("attribute " + std::string(attr.name) + " is given as " + kind +
                         " instead of an integer; converted");
  };
  const Value& v = attr.value;
  switch (v.kind) {
    case Value::kSigned:
      return v.number;
    case Value::kUnsigned:
      if (v.bits > static_cast<uint64_t>(kMax)) {
        // A tag is only compared, so that any bit pattern will do.
        if (attr.name != "comm_tag") bad_attribute(attr, node, "exceeds 2^63 - 1");
      }
      return static_cast<int64_t>(v.bits);
    case Value::kBool:
      note("a bool");
      return v.number;
    case Value::kReal: {
      constexpr double kLimit = 9223372036854775808.0;  // 2^63
      if (!(v.real >= -kLimit && v.real < kLimit) || v.real != std::floor(v.real)) {
        bad_attribute(attr, node, "is " + std::to_string(v.real) + ", not a whole number");
      }
      note("a floating-point number");
      return static_cast<int64_t>(v.real);
    }
    case Value::kText: {
      if (attr.name == "comm_type") {
        if (const auto type = parse_comm_type(v.text)) {
          note("the string \"" + std::string(v.text) + "\"");
          return type;
        }
      }
      int64_t number = 0;
      const char* end = v.text.data() + v.text.size();
      const auto [ptr, ec] = std::from_chars(v.text.data(), end, number);
      if (ec != std::errc() || ptr != end || v.text.empty()) {
        bad_attribute(attr, node, "is the string \"" + shortened(v.text) + "\"");
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
  bad_attribute(attr, node, "is a list");
}

std::optional<std::string> Decoder::group_name(const Attribute& attr, Node& node) const {
  if (attr.value.kind == Value::kNone) return std::nullopt;
  if (attr.value.kind == Value::kText) return std::string(attr.value.text);
  Node scratch;  // its note says "instead of an integer", which would be wrong here
  scratch.id = node.id;
  const std::optional<int64_t> number = whole_number(attr, scratch);
  if (attr.name == "pg_name") {
    node.notes.emplace_back(
        "attribute pg_name is given as a number instead of a string; converted");
  }
  return std::to_string(*number);
}

void Decoder::apply(const Attribute& attr, Node& node,
                    std::optional<std::string>& comm_group) const {
  const std::string_view name = attr.name;
  const auto number = [&](std::optional<int64_t>& field) {
    if (const auto value = whole_number(attr, node)) field = value;
  };
  if (name == "num_ops") {
    number(node.num_ops);
  } else if (name == "tensor_size") {
    number(node.tensor_size);
  } else if (name == "comm_type") {
    number(node.comm_type);
  } else if (name == "comm_size") {
    number(node.comm_size);
  } else if (name == "comm_src") {
    number(node.comm_src);
  } else if (name == "comm_dst") {
    number(node.comm_dst);
  } else if (name == "comm_tag") {
    number(node.comm_tag);
  } else if (name == "stream") {
    number(node.stream);
  } else if (name == "is_cpu_op") {
    if (attr.value.kind == Value::kBool) {
      node.is_cpu_op = attr.value.number != 0;
    } else if (attr.value.kind == Value::kText &&
               (attr.value.text == "true" || attr.value.text == "false")) {
      node.is_cpu_op = attr.value.text == "true";
      node.notes.emplace_back("attribute is_cpu_op is given as a string; converted");
    } else if (const auto value = whole_number(attr, node)) {
      node.is_cpu_op = *value != 0;
    }
  } else if (name == "pg_name") {
    if (auto group = group_name(attr, node)) node.pg_name = std::move(group);
  } else if (name == "comm_group") {  // older STAGE
    comm_group = group_name(attr, node);
  }
}

bool Decoder::read_ids(const Field& f, std::vector<uint64_t>& ids) {
  if (f.wire == kVarint) {
    ids.push_back(f.value);
    return true;
  }
  if (f.wire != kBytes) return false;
  CodedInputStream in(reinterpret_cast<const uint8_t*>(f.bytes.data()),
                      static_cast<int>(f.bytes.size()));
  while (static_cast<size_t>(in.CurrentPosition()) < f.bytes.size()) {
    uint64_t id = 0;
    if (!in.ReadVarint64(&id)) return false;
    ids.push_back(id);
  }
  return true;
}

Node Decoder::node(std::string_view bytes) {
  Node node;
  std::optional<std::string> comm_group;
  std::string_view inputs;
  std::vector<Attribute> attributes;
  bool zero_id = false;
  bool plain_parent = false;
  bool narrows_dimensions = false;
  Dialect old = Dialect::unknown;
  // In the old schemas these numbers hold other things, so that what looks malformed is reported
  // only once the schema is known.
  std::string problem;

  Message message(bytes);
  Field f;
  while (message.next(f)) {
    switch (f.number) {
      case 1:
        if (f.wire != kVarint) fail("is not a node (field 1, the id, is not a number)");
        node.id = f.value;
        zero_id = f.value == 0;
        break;
      case 2:
        if (f.wire != kBytes) fail("is not a node (field 2, the name, is not a string)");
        node.name.assign(f.bytes);
        break;
      case 3:
        if (f.wire != kVarint) fail("is not a node (field 3, the type, is not a number)");
        node.type = static_cast<NodeType>(std::min<uint64_t>(f.value, 255));
        break;
      case 4:
        if (!read_ids(f, node.ctrl_deps)) problem = "has a malformed list of control dependencies";
        if (f.wire == kVarint) plain_parent = true;
        if (f.wire == kBytes) confirmed_ = true;
        break;
      case 5:
        if (!read_ids(f, node.data_deps)) problem = "has a malformed list of data dependencies";
        break;
      case 6:
        break;
      case 7:
        if (f.wire == kVarint) node.duration_us = f.value;
        break;
      case 8:
        if (f.wire == kBytes) {
          inputs = f.bytes;
        } else if (f.wire == kVarint) {
          old = Dialect::v001;
        }
        break;
      case 10:
        if (f.wire == kBytes) {
          if (auto attr = decode_attribute(f.bytes)) {
            if (!attr->name.empty()) confirmed_ = true;
            attributes.push_back(*attr);
          } else {
            problem = "has a malformed attribute";
          }
          break;
        }
        [[fallthrough]];
      default:
        if (f.wire == kBytes && f.number == 11 && old == Dialect::unknown) {
          old = old_attribute(f.bytes);
        } else if (f.wire == kVarint && f.number <= 20) {
          old = Dialect::v001;
        }
        break;
    }
  }
  if (!confirmed_) {
    if (old == Dialect::v001) refuse("0.0.1");
    if (old == Dialect::v002) refuse("0.0.2");
    if (old == Dialect::v003) refuse("0.0.3");
    // proto2 writes zeros, and parents one by one; proto3 does neither. Metadata came after 0.0.2.
    if (!has_metadata_ && message.ok() && (zero_id || plain_parent)) refuse("0.0.1");
  }
  if (!message.ok()) fail("is malformed");
  if (!problem.empty()) fail(problem);

  for (const Attribute& attr : attributes) {
    apply(attr, node, comm_group);
    if (attr.name == "involved_dim" && attr.value.kind == Value::kBoolList) {
      narrows_dimensions = any_false(attr.value.text);
    }
  }
  if (!node.pg_name && comm_group) node.pg_name = std::move(comm_group);
  if (narrows_dimensions && node.type == NodeType::comm_coll && !node.pg_name) {
    node.notes.emplace_back(
        "attribute involved_dim selects topology dimensions; ignored, the collective runs over all "
        "ranks");
  }
  if (node.type == NodeType::metadata && !inputs.empty()) {
    Message info(inputs);
    while (info.next(f)) {
      if (f.number == 1 && f.wire == kBytes) node.inputs.assign(f.bytes);
    }
  }
  return node;
}

// ---------------------------------------------------------------------------------------------
// Framing

/// Reads one record after the other. Memory follows the bytes that really come, not what a length
/// promises.
class Framing {
 public:
  explicit Framing(const std::string& path) : path_(path), source_(path) {}

  /// False at a proper end of the file.
  bool next() {
    // CodedInputStream counts in int: a fresh one per record has no limit on the file.
    CodedInputStream in(source_.stream());
    const void* data = nullptr;
    int size = 0;
    if (!in.GetDirectBufferPointer(&data, &size)) {
      source_.check();
      return false;
    }
    offset_ = position_;
    ++record_;
    uint64_t length = 0;
    if (!in.ReadVarint64(&length)) {
      source_.check();
      fail("starts with a broken length");
    }
    position_ += static_cast<uint64_t>(in.CurrentPosition());
    if (length > kMaxRecordBytes) {
      fail("claims " + std::to_string(length) + " bytes, more than any record has");
    }
    if (source_.size() && length > *source_.size() - std::min(*source_.size(), position_)) {
      fail("claims " + std::to_string(length) + " bytes, but only " +
           std::to_string(*source_.size() - std::min(*source_.size(), position_)) +
           " are left in the file");
    }
    buffer_.clear();
    while (buffer_.size() < length) {
      if (!in.GetDirectBufferPointer(&data, &size)) {
        source_.check();
        fail("is cut off: " + std::to_string(buffer_.size()) + " of " + std::to_string(length) +
             " bytes are there");
      }
      const size_t take = std::min<size_t>(static_cast<size_t>(size), length - buffer_.size());
      buffer_.append(static_cast<const char*>(data), take);
      in.Skip(static_cast<int>(take));
    }
    position_ += length;
    empty_run_ = length == 0 ? empty_run_ + 1 : 0;
    if (empty_run_ > kMaxEmptyRecordsInARow) {
      fail("is one of more than " + std::to_string(kMaxEmptyRecordsInARow) +
           " empty records in a row");
    }
    return true;
  }

  [[nodiscard]] std::string_view bytes() const { return buffer_; }
  [[nodiscard]] uint64_t record() const { return record_; }
  [[nodiscard]] uint64_t offset() const { return offset_; }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw UserError(
        SourcePos{path_, 0},
        "record " + std::to_string(record_) + " at byte " + std::to_string(offset_) + " " + problem,
        "the file is truncated, or no Chakra trace");
  }

  const std::string& path_;
  ByteSource source_;
  std::string buffer_;
  uint64_t record_ = 0, offset_ = 0, position_ = 0;
  int empty_run_ = 0;
};

// ---------------------------------------------------------------------------------------------
// Process groups of METADATA nodes

using nlohmann::json;

bool groups_from(const json& list, std::vector<ProcessGroup>& groups) {
  if (!list.is_array()) return false;
  for (const json& item : list) {
    if (!item.is_object() || !item.contains("pg_name")) return false;
    ProcessGroup group;
    const json& name = item["pg_name"];
    if (name.is_string()) {
      group.name = name.get<std::string>();
    } else if (name.is_number_integer()) {
      group.name = name.dump();
    } else {
      return false;
    }
    if (item.contains("ranks") && !item["ranks"].is_null()) {
      if (!item["ranks"].is_array()) return false;
      for (const json& rank : item["ranks"]) {
        if (!rank.is_number_unsigned() || rank.get<uint64_t>() > UINT32_MAX) return false;
        group.ranks.push_back(static_cast<uint32_t>(rank.get<uint64_t>()));
      }
    }
    groups.push_back(std::move(group));
  }
  return true;
}

/// The text is JSON within a one-element list in Python notation; other writers leave out the
/// outer list or escape the inner quotes.
bool parse_process_groups(const std::string& text, std::vector<ProcessGroup>& groups) {
  const size_t begin = text.find("[{");
  const size_t end = text.rfind("}]");
  if (begin == std::string::npos || end == std::string::npos || end < begin) {
    return text.find_first_not_of("[]'\" ") == std::string::npos;  // no group at all
  }
  std::string inner = text.substr(begin, end + 2 - begin);
  json list = json::parse(inner, nullptr, false);
  if (list.is_discarded()) {
    std::string plain;
    for (size_t i = 0; i < inner.size(); ++i) {
      if (inner[i] == '\\' && i + 1 < inner.size()) ++i;
      plain += inner[i];
    }
    list = json::parse(plain, nullptr, false);
  }
  std::vector<ProcessGroup> found;
  if (list.is_discarded() || !groups_from(list, found)) return false;
  for (ProcessGroup& group : found) groups.push_back(std::move(group));
  return true;
}

}  // namespace

const char* node_type_name(NodeType type) {
  switch (type) {
    case NodeType::invalid:
      return "INVALID";
    case NodeType::metadata:
      return "METADATA";
    case NodeType::mem_load:
      return "MEM_LOAD";
    case NodeType::mem_store:
      return "MEM_STORE";
    case NodeType::comp:
      return "COMP";
    case NodeType::comm_send:
      return "COMM_SEND";
    case NodeType::comm_recv:
      return "COMM_RECV";
    case NodeType::comm_coll:
      return "COMM_COLL";
  }
  return "unknown";
}

void read_file(const std::string& path, FileHeader& header,
               const std::function<void(Node&&)>& on_node) {
  header = {};
  Framing framing(path);
  Decoder decoder(path);
  if (!framing.next()) {
    throw UserError(SourcePos{path, 0}, "the file is empty", "write the trace again");
  }
  decoder.at(framing.record(), framing.offset());
  if (!decoder.first_is_metadata(framing.bytes(), header)) on_node(decoder.node(framing.bytes()));
  while (framing.next()) {
    decoder.at(framing.record(), framing.offset());
    on_node(decoder.node(framing.bytes()));
  }
}

RankTrace read_rank(const std::string& path) {
  RankTrace trace;
  trace.file = path;
  FileHeader header;
  read_file(path, header, [&](Node&& node) {
    if (node.type == NodeType::metadata && !node.inputs.empty() &&
        !parse_process_groups(node.inputs, trace.groups)) {
      if (node.name.find("process_group") != std::string::npos) {
        node.notes.emplace_back(
            "the list of process groups cannot be read; ignored, collectives of these groups will "
            "be reported as unknown");
      }
    }
    trace.nodes.push_back(std::move(node));
  });
  trace.version = header.version;
  trace.schema = header.schema;
  return trace;
}

}  // namespace trainyard::chakra
