// SPDX-License-Identifier: MIT
#include "chakra/reader.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "chakra/attributes.h"
#include "chakra/byte_source.h"
#include "chakra/json_reader.h"
#include "chakra/wire.h"
#include "sim/errors.h"

namespace trainyard::chakra {

namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr uint64_t kMaxRecordBytes = 1ULL << 30;
// A run of empty records is what a zero-filled file looks like; a trace has at most a few.
constexpr int kMaxEmptyRecordsInARow = 1000;
// Nodes kept back until one shows the dialect; in practice one or two are.
constexpr size_t kMaxUndecidedBytes = 64 << 20;

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

// ---------------------------------------------------------------------------------------------
// Attributes

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
      v.number = any_false(f.bytes) ? 1 : 0;
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

// The old generations: name, declared type and doc come first, and the numbers of the values moved
// from one generation to the next.

enum OldSchema : unsigned { kNoOld = 0, k002 = 1, k003 = 2, k003Uint = 4, kAnyOld = 7 };

/// The generations that a value field can belong to.
unsigned generations(const Field& f) {
  switch (f.wire) {
    case kVarint:
      switch (f.number) {
        case 4:
        case 6:
          return k003 | k003Uint;
        case 5:
          return k002;
        case 7:
        case 9:
        case 11:
        case 12:
          return k003Uint;
        case 8:  // integers of 0.0.2, bools of 0.0.3
          return f.value > 1 ? k002 : k002 | k003;
        case 10:
          return k003;
        default:
          return kAnyOld;
      }
    case kFixed32:
      switch (f.number) {
        case 4:
        case 7:
          return k002;
        case 5:
          return k003 | k003Uint;
        case 9:
          return k003;
        case 10:
          return k003Uint;
        default:
          return kAnyOld;
      }
    case kBytes:
      switch (f.number) {
        case 6:
        case 9:
          return k002;
        case 7:
        case 11:
          return k003;
        case 8:
        case 13:
          return k003Uint;
        default:
          return kAnyOld;
      }
    default:
      return kAnyOld;
  }
}

/// Generations that an attribute can belong to; kNoOld when `bytes` is no old attribute at all.
unsigned old_attribute(std::string_view bytes) {
  Message message(bytes);
  Field f;
  bool name = false;
  bool type = false;
  unsigned possible = kAnyOld;
  while (message.next(f)) {
    if (f.number == 1) {
      name = f.wire == kBytes && !f.bytes.empty() && printable(f.bytes);
    } else if (f.number == 2) {
      type = f.wire == kVarint;
    } else if (f.number >= 4) {
      possible &= generations(f);
    }
  }
  return message.ok() && name && type ? possible : kNoOld;
}

struct OldAttribute : Attribute {
  bool wrong_type = false;  ///< the declared type is not that of the value
};

OldAttribute decode_old_attribute(std::string_view bytes, unsigned schema) {
  OldAttribute attr;
  uint64_t declared = 0;
  int value_field = 0;
  const bool is_002 = schema == k002;
  const bool is_uint = schema == k003Uint;
  const int text = is_002 ? 6 : is_uint ? 8 : 7;
  const int bools = is_002 ? 0 : is_uint ? 9 : 8;
  Message message(bytes);
  Field f;
  while (message.next(f)) {
    if (f.number == 1 && f.wire == kBytes) attr.name = f.bytes;
    if (f.number == 2 && f.wire == kVarint) declared = f.value;
    if (f.number < 4) continue;
    value_field = f.number;
    if (f.number == bools && f.wire != kFixed32) {
      const bool some_false =
          f.wire == kVarint ? f.value == 0 : f.bytes.find('\0') != std::string_view::npos;
      if (attr.value.kind != Value::kBoolList) attr.value = Value::of_list(Value::kBoolList);
      if (some_false) attr.value.number = 1;
    } else if (f.wire == kFixed32 && f.number <= 5) {
      attr.value = Value::of_real(std::bit_cast<float>(static_cast<uint32_t>(f.value)));
    } else if (f.wire == kVarint && f.number == 4) {
      attr.value = Value::of_bool(f.value != 0);
    } else if (f.wire == kVarint && f.number < text) {
      attr.value = is_uint && f.number == 6 ? Value::of_unsigned(f.value)
                                            : Value::of_signed(static_cast<int64_t>(f.value));
    } else if (f.wire == kBytes && f.number == text) {
      attr.value = Value::of_text(f.bytes);
    } else {
      attr.value = Value::of_list(Value::kOther);
    }
  }
  // In all three generations the types are declared in the order of the fields, from 0 for field 4.
  attr.wrong_type = value_field != 0 && declared + 4 != static_cast<uint64_t>(value_field);
  return attr;
}

// ---------------------------------------------------------------------------------------------
// Records

enum class Dialect { unknown, v001, v002, v003, v004 };

/// What is known about the dialect of a file. Records say more or less about it.
struct Evidence {
  bool metadata = false;   ///< the file starts with metadata, which 0.0.1 and 0.0.2 lack
  unsigned old = kAnyOld;  ///< generations that all old attributes allow
  bool old_attributes = false;
  bool proto2 = false;       ///< zeros or parents one by one, which proto3 does not write
  bool late_type = false;    ///< a node type that 0.0.1 and 0.0.2 do not have
  bool early_field = false;  ///< fields 6 or 7 as numbers: 0.0.1, or times of 0.0.4
  Dialect dialect = Dialect::unknown;
};

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
    const auto take_attribute = [&](std::string_view attribute) {
      const auto take = [&](const Attribute& attr) {
        if (attr.name == "schema" && attr.value.kind == Value::kText) {
          header.schema = std::string(attr.value.text);
        }
      };
      if (const unsigned old = old_attribute(attribute); old != kNoOld) {
        seen_.old_attributes = true;
        seen_.old &= old;
        take(decode_old_attribute(attribute, (old & k003Uint) != 0 ? k003Uint : k003));
        return true;
      }
      const auto attr = decode_attribute(attribute);
      if (attr) take(*attr);
      return attr.has_value();
    };
    while (message.next(f)) {
      if (f.number == 1) {
        metadata = metadata && f.wire == kBytes;
        // Two revisions kept attributes in field 1; they start with a control character.
        if (metadata && printable(f.bytes)) {
          header.version = std::string(f.bytes);
        } else if (metadata) {
          take_attribute(f.bytes);
        }
      } else if (f.number == 2) {
        metadata = metadata && f.wire == kBytes && take_attribute(f.bytes);
      } else {
        metadata = false;
      }
    }
    if (!message.ok()) fail("is malformed");
    if (metadata) {
      seen_.metadata = true;
      decide_old();
    } else {
      header = {};
      seen_ = {};
    }
    return metadata;
  }

  /// Learns the dialect from a record. Throws for what is no node in any dialect.
  void look(std::string_view bytes);
  [[nodiscard]] bool decided() const { return seen_.dialect != Dialect::unknown; }
  /// What all records together say, when none was decisive.
  void decide_at_end();

  Node node(std::string_view bytes);

  [[nodiscard]] std::string dialect_name() const {
    switch (seen_.dialect) {
      case Dialect::v001:
        return "0.0.1";
      case Dialect::v002:
        return "0.0.2";
      case Dialect::v003:
        return seen_.old == k003Uint ? "0.0.3+uint" : "0.0.3";
      default:
        return "0.0.4";
    }
  }

  [[noreturn]] void fail(const std::string& problem) const {
    throw UserError(
        SourcePos{path_, 0},
        "record " + std::to_string(record_) + " at byte " + std::to_string(offset_) + " " + problem,
        "this is no Chakra trace, or a damaged one");
  }

 private:
  void decide_old() {
    if (!seen_.old_attributes) return;
    if (seen_.metadata || seen_.late_type) seen_.old &= k003 | k003Uint;
    if (seen_.old == kNoOld) {
      fail("has attributes of another schema generation than the records before it");
    }
    if (seen_.old == k002) seen_.dialect = Dialect::v002;
    if ((seen_.old & k002) == 0) seen_.dialect = Dialect::v003;
  }

  static bool read_ids(const Field& f, std::vector<uint64_t>& ids);
  [[nodiscard]] NodeType node_type(uint64_t number) const;
  Node node_001(std::string_view bytes);
  Node node_002(std::string_view bytes);
  Node node_004(std::string_view bytes);
  bool common(const Field& f, Node& node) const;

  const std::string& path_;
  uint64_t record_ = 0, offset_ = 0;
  Evidence seen_;
};

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

void Decoder::look(std::string_view bytes) {
  if (seen_.dialect == Dialect::v004 || seen_.dialect == Dialect::v001) return;
  unsigned old = kAnyOld;
  bool old_attributes = false;
  bool new_attribute = false;
  bool packed = false;
  bool flat = false;
  Message message(bytes);
  Field f;
  while (message.next(f)) {
    const bool varint = f.wire == kVarint;
    switch (f.number) {
      case 1:
        seen_.proto2 = seen_.proto2 || (varint && f.value == 0);
        break;
      case 3:
        seen_.late_type = seen_.late_type || (varint && f.value == 7);
        break;
      case 4:
        packed = packed || f.wire == kBytes;
        seen_.proto2 = seen_.proto2 || varint;
        break;
      case 6:
      case 7:
        seen_.early_field = seen_.early_field || varint;
        break;
      case 8:
      case 9:
        flat = flat || varint;
        break;
      case 10:
        if (f.wire == kBytes) {
          const auto attr = decode_attribute(f.bytes);
          new_attribute = new_attribute || (attr && !attr->name.empty() && printable(attr->name));
        }
        flat = flat || varint;
        break;
      case 11:
        if (f.wire == kBytes) {
          if (const unsigned possible = old_attribute(f.bytes); possible != kNoOld) {
            old_attributes = true;
            old &= possible;
          }
        }
        flat = flat || varint;
        break;
      default:
        flat = flat || (varint && f.number >= 12 && f.number <= 20);
        break;
    }
  }
  if (seen_.old_attributes) {
    // Decided among the old ones, perhaps not yet which.
    if (old_attributes) {
      seen_.old &= old;
      decide_old();
    }
    return;
  }
  if (new_attribute) {
    seen_.dialect = Dialect::v004;
  } else if (old_attributes) {
    seen_.old_attributes = true;
    seen_.old = old;
    decide_old();
  } else if (flat && !seen_.metadata) {
    seen_.dialect = Dialect::v001;
  } else if (packed || (seen_.metadata && (flat || seen_.early_field))) {
    seen_.dialect = Dialect::v004;
  }
}

void Decoder::decide_at_end() {
  if (decided()) return;
  if (seen_.old_attributes) {
    // Only 0.0.2 and 0.0.3 are left, and nothing tells them apart.
    seen_.dialect = Dialect::v003;
  } else if (seen_.metadata || seen_.late_type) {
    seen_.dialect = Dialect::v004;
  } else {
    seen_.dialect = seen_.proto2 || seen_.early_field ? Dialect::v001 : Dialect::v004;
  }
}

/// METADATA came in between: types of 0.0.1 and 0.0.2 are one lower.
NodeType Decoder::node_type(uint64_t number) const {
  const bool early = seen_.dialect == Dialect::v001 || seen_.dialect == Dialect::v002;
  if (early && number > 0) number = number > 6 ? 255 : number + 1;
  return static_cast<NodeType>(std::min<uint64_t>(number, 255));
}

/// Fields 1 to 3, which all dialects share.
bool Decoder::common(const Field& f, Node& node) const {
  switch (f.number) {
    case 1:
      if (f.wire != kVarint) fail("is not a node (field 1, the id, is not a number)");
      node.id = f.value;
      return true;
    case 2:
      if (f.wire != kBytes) fail("is not a node (field 2, the name, is not a string)");
      node.name.assign(f.bytes);
      return true;
    case 3:
      if (f.wire != kVarint) fail("is not a node (field 3, the type, is not a number)");
      node.type = node_type(f.value);
      return true;
    default:
      return false;
  }
}

Node Decoder::node(std::string_view bytes) {
  switch (seen_.dialect) {
    case Dialect::v001:
      return node_001(bytes);
    case Dialect::v002:
    case Dialect::v003:
      return node_002(bytes);
    default:
      return node_004(bytes);
  }
}

Node Decoder::node_001(std::string_view bytes) {
  Node node;
  std::optional<uint64_t> comm_type;
  std::optional<uint64_t> communicator;
  std::optional<uint64_t> location;
  bool some_dim_off = false;
  Message message(bytes);
  Field f;
  while (message.next(f)) {
    if (common(f, node)) continue;
    if (f.number == 4) {
      if (!read_ids(f, node.data_deps)) fail("has a malformed list of parents");
    } else if (f.number == 14) {
      some_dim_off = some_dim_off || (f.wire == kVarint && f.value == 0) ||
                     (f.wire == kBytes && f.bytes.find('\0') != std::string_view::npos);
    } else if (f.wire == kVarint) {
      switch (f.number) {
        case 5:
          location = f.value;
          break;
        case 7:
          node.duration_us = f.value;
          break;
        case 13:
          comm_type = f.value;
          break;
        case 15:
          communicator = f.value;
          break;
        default:
          break;
      }
    }
  }
  if (!message.ok()) fail("is malformed");

  NodeAttributes attributes(SourcePos{path_, 0}, node, CommNumbers::v001);
  const bool comm = node.type == NodeType::comm_coll || node.type == NodeType::comm_send ||
                    node.type == NodeType::comm_recv;
  Message again(bytes);
  while (again.next(f)) {
    if (f.wire != kVarint) continue;
    const Value value = Value::of_unsigned(f.value);
    switch (f.number) {
      case 6:
        attributes.apply({"tensor_size", value});
        break;
      case 12:
        attributes.apply({"num_ops", value});
        break;
      case 16:
        attributes.apply({"comm_src", value});
        break;
      case 17:
        attributes.apply({"comm_dst", value});
        break;
      case 18:
        attributes.apply({"comm_size", value});
        break;
      case 19:
        attributes.apply({"comm_tag", value});
        break;
      default:
        break;
    }
  }
  // 0 means "none" here.
  if (comm_type.value_or(0) != 0 && comm) {
    attributes.apply({"comm_type", Value::of_unsigned(*comm_type)});
  }
  if (communicator && comm) attributes.apply({"comm_group", Value::of_unsigned(*communicator)});
  if (some_dim_off) {
    Value dims = Value::of_list(Value::kBoolList);
    dims.number = 1;
    attributes.apply({"involved_dim", dims});
  }
  const bool memory = node.type == NodeType::mem_load || node.type == NodeType::mem_store;
  if (memory && location == 1U) {
    node.notes.emplace_back(
        "tensor_loc says local memory; later schemas have no such mark, it is ignored");
  }
  attributes.finish();
  return node;
}

Node Decoder::node_002(std::string_view bytes) {
  Node node;
  std::vector<std::string_view> encoded;
  Message message(bytes);
  Field f;
  while (message.next(f)) {
    if (common(f, node)) continue;
    if (f.number == 4 && !read_ids(f, node.data_deps)) fail("has a malformed list of parents");
    if (f.number == 5 && f.wire == kBytes) node.inputs.assign(f.bytes);
    if (f.number == 11 && f.wire == kBytes) encoded.push_back(f.bytes);
  }
  if (!message.ok()) fail("is malformed");
  if (node.type != NodeType::metadata) node.inputs.clear();
  const unsigned schema = seen_.dialect == Dialect::v002 ? k002
                          : (seen_.old & k003) != 0      ? k003
                                                         : k003Uint;
  NodeAttributes attributes(SourcePos{path_, 0}, node, CommNumbers::v002_v003);
  for (const std::string_view one : encoded) {
    if (old_attribute(one) == kNoOld) fail("has a malformed attribute");
    const OldAttribute attr = decode_old_attribute(one, schema);
    if (attr.wrong_type) {
      node.notes.push_back("attribute " + std::string(attr.name) +
                           " declares another type than its value has; the value counts");
    }
    attributes.apply(attr);
  }
  attributes.finish();
  return node;
}

Node Decoder::node_004(std::string_view bytes) {
  Node node;
  std::string_view inputs;
  std::vector<Attribute> encoded;
  Message message(bytes);
  Field f;
  while (message.next(f)) {
    if (common(f, node)) continue;
    switch (f.number) {
      case 4:
        if (!read_ids(f, node.ctrl_deps)) fail("has a malformed list of control dependencies");
        break;
      case 5:
        if (!read_ids(f, node.data_deps)) fail("has a malformed list of data dependencies");
        break;
      case 7:
        if (f.wire == kVarint) node.duration_us = f.value;
        break;
      case 8:
        if (f.wire == kBytes) inputs = f.bytes;
        break;
      case 10:
        if (f.wire == kBytes) {
          const auto attr = decode_attribute(f.bytes);
          if (!attr) fail("has a malformed attribute");
          encoded.push_back(*attr);
        }
        break;
      default:
        break;
    }
  }
  if (!message.ok()) fail("is malformed");
  NodeAttributes attributes(SourcePos{path_, 0}, node, CommNumbers::v004);
  for (const Attribute& attr : encoded) attributes.apply(attr);
  attributes.finish();
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
  Framing(const std::string& path, ByteSource& source) : path_(path), source_(source) {}

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
  ByteSource& source_;
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
  ByteSource source(path);
  if (source.looks_like_json()) {
    read_json(path, source, header, on_node);
    return;
  }
  Framing framing(path, source);
  Decoder decoder(path);
  if (!framing.next()) {
    throw UserError(SourcePos{path, 0}, "the file is empty", "write the trace again");
  }
  decoder.at(framing.record(), framing.offset());
  bool more = !decoder.first_is_metadata(framing.bytes(), header) || framing.next();

  // Types of nodes depend on the dialect, and the first nodes need not show it.
  struct Waiting {
    uint64_t record, offset;
    std::string bytes;
  };
  std::vector<Waiting> waiting;
  size_t waiting_bytes = 0;
  const auto decode_waiting = [&] {
    decoder.decide_at_end();
    for (const Waiting& w : waiting) {
      decoder.at(w.record, w.offset);
      on_node(decoder.node(w.bytes));
    }
    waiting = {};
  };
  for (; more; more = framing.next()) {
    decoder.at(framing.record(), framing.offset());
    const bool decided_before = decoder.decided();
    decoder.look(framing.bytes());
    if (!decoder.decided() && waiting_bytes < kMaxUndecidedBytes) {
      waiting.push_back({framing.record(), framing.offset(), std::string(framing.bytes())});
      waiting_bytes += framing.bytes().size() + sizeof(Waiting);
      continue;
    }
    if (!decided_before) decode_waiting();
    decoder.at(framing.record(), framing.offset());
    on_node(decoder.node(framing.bytes()));
  }
  decode_waiting();
  header.dialect = decoder.dialect_name();
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
  trace.dialect = header.dialect;
  return trace;
}

}  // namespace trainyard::chakra
