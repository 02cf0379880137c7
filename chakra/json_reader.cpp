// SPDX-License-Identifier: MIT
#include "chakra/json_reader.h"

#include <google/protobuf/io/zero_copy_stream.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "chakra/attributes.h"
#include "chakra/byte_source.h"
#include "chakra/schema.h"
#include "sim/errors.h"

namespace trainyard::chakra {

namespace {

using nlohmann::json;

// Far beyond any node; the parsed form takes some 20 times the text.
constexpr size_t kMaxValueBytes = 16 << 20;
constexpr int kMaxDepth = 64;

/// Cuts a document into values, so that never more than one node is in memory.
class Scanner {
 public:
  Scanner(const std::string& path, ByteSource& source) : path_(path), source_(source) {
    if (peek() == 0xef) {  // byte order mark
      for (int i = 0; i < 3; ++i) take();
    }
  }

  /// Next byte that is no white space, not consumed; -1 at the end.
  int peek_token() {
    for (int c = peek();; c = peek()) {
      if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return c;
      take();
    }
  }

  void expect(char c) {
    if (peek_token() != static_cast<unsigned char>(c)) {
      fail(std::string("expected '") + c + "', found " + shown(peek()));
    }
    take();
  }

  /// Consumes `c` if it comes next.
  bool accept(char c) {
    if (peek_token() != static_cast<unsigned char>(c)) return false;
    take();
    return true;
  }

  /// Text of one value, without checking more than its brackets and quotes.
  std::string value() {
    std::string text;
    peek_token();
    value_line_ = line_;
    std::string open;
    do {
      const int c = peek();
      if (c < 0) fail("the document ends within a value");
      if (open.empty() && !text.empty() && (c == ',' || c == '}' || c == ']')) break;
      add(text);
      if (c == '"') {
        string_rest(text);
      } else if (c == '{' || c == '[') {
        open += c == '{' ? '}' : ']';
        if (open.size() > kMaxDepth) fail("values are nested more than 64 levels deep");
      } else if (c == '}' || c == ']') {
        if (open.empty() || open.back() != static_cast<char>(c)) {
          fail("found " + shown(c) + " where no such bracket is open");
        }
        open.pop_back();
      } else if (open.empty()) {  // a number or a word
        const int next = peek();
        if (next < 0 || next == ',' || next == '}' || next == ']' || next <= ' ') break;
        continue;
      }
      if (open.empty()) break;
    } while (true);
    return text;
  }

  [[nodiscard]] int line() const { return line_; }
  [[nodiscard]] int value_line() const { return value_line_; }

  [[noreturn]] void fail(const std::string& problem) const { fail_at(line_, problem); }
  [[noreturn]] void fail_at(int line, const std::string& problem) const {
    throw UserError(SourcePos{path_, line}, problem, "this is no Chakra trace, or a damaged one");
  }

  /// Parses what value() returned.
  [[nodiscard]] json parse(const std::string& text) const {
    try {
      return json::parse(text);
    } catch (const json::parse_error& error) {
      const auto end =
          text.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte, text.size()));
      fail_at(value_line_ + static_cast<int>(std::count(text.begin(), end, '\n')),
              "is not valid JSON");
    } catch (const json::exception&) {
      fail_at(value_line_, "holds a number beyond all bounds");
    }
  }

 private:
  static std::string shown(int c) {
    if (c < 0) return "the end of the file";
    if (c < 0x20 || c >= 0x7f) return "byte " + std::to_string(c);
    return std::string("'") + static_cast<char>(c) + "'";
  }

  int peek() {
    while (at_ == size_) {
      const void* data = nullptr;
      int size = 0;
      if (!source_.stream()->Next(&data, &size)) {
        source_.check();
        return -1;
      }
      data_ = static_cast<const unsigned char*>(data);
      at_ = 0;
      size_ = static_cast<size_t>(size);
    }
    return data_[at_];
  }

  void take() {
    if (peek() < 0) return;
    if (data_[at_] == '\n' && line_ < std::numeric_limits<int>::max()) ++line_;
    ++at_;
  }

  void add(std::string& text) {
    if (text.size() >= kMaxValueBytes) fail("a value is larger than 16 MiB, more than any node is");
    text += static_cast<char>(peek());
    take();
  }

  void string_rest(std::string& text) {
    for (bool escaped = false;;) {
      const int c = peek();
      if (c < 0) fail("the document ends within a string");
      if (c == '\n') fail("a string does not end on its line");
      add(text);
      if (!escaped && c == '"') return;
      escaped = !escaped && c == '\\';
    }
  }

  const std::string& path_;
  ByteSource& source_;
  const unsigned char* data_ = nullptr;
  size_t at_ = 0, size_ = 0;
  int line_ = 1, value_line_ = 1;
};

/// "dataDeps", "data_deps" and "DataDeps" are one key.
std::string folded(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c >= 'A' && c <= 'Z') {
      out += static_cast<char>(c - 'A' + 'a');
    } else if (c != '_') {
      out += c;
    }
  }
  return out;
}

class NodeReader {
 public:
  NodeReader(const std::string& path, int line) : path_(path), line_(line) {}

  Node read(const json& object);
  /// The value of a member "int64Val", "stringVal", ... of an attribute.
  Value proto_value(const std::string& kind, const json& value);

  [[noreturn]] void fail(const std::string& problem) const {
    throw UserError(SourcePos{path_, line_}, "node " + std::to_string(id_) + ": " + problem,
                    "this is no Chakra trace, or a damaged one");
  }

 private:
  std::optional<uint64_t> number(const json& value) const;
  uint64_t natural(const json& value, const char* what) const;
  void read_ids(const json& list, std::vector<uint64_t>& ids, const char* what) const;
  NodeType node_type(const json& value) const;
  Value plain_value(std::string_view name, const json& value);
  void attribute(const json& object, NodeAttributes& attributes);

  const std::string& path_;
  int line_;
  uint64_t id_ = 0;
};

/// Numbers also as strings ("12") and as whole reals (12.0).
std::optional<uint64_t> NodeReader::number(const json& value) const {
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  if (value.is_number_float()) {
    const auto real = value.get<double>();
    if (real >= 0 && real < 9007199254740992.0 &&
        real == static_cast<double>(static_cast<uint64_t>(real))) {
      return static_cast<uint64_t>(real);
    }
  }
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    uint64_t result = 0;
    const char* end = text.data() + text.size();
    const auto [ptr, ec] = std::from_chars(text.data(), end, result);
    if (ec == std::errc() && ptr == end && !text.empty()) return result;
  }
  return std::nullopt;
}

uint64_t NodeReader::natural(const json& value, const char* what) const {
  const auto result = number(value);
  if (!result) fail(std::string(what) + " is no whole number from 0 to 2^64 - 1");
  return *result;
}

void NodeReader::read_ids(const json& list, std::vector<uint64_t>& ids, const char* what) const {
  if (list.is_null()) return;
  if (!list.is_array()) fail(std::string(what) + " is no list of ids");
  ids.reserve(list.size());
  for (const json& id : list) ids.push_back(natural(id, what));
}

NodeType NodeReader::node_type(const json& value) const {
  if (const auto type = number(value)) {
    return static_cast<NodeType>(std::min<uint64_t>(*type, 255));
  }
  // Names of the schema, of STAGE, and without their common ending.
  constexpr std::array<std::pair<std::string_view, NodeType>, 11> kNames = {
      {{"invalid", NodeType::invalid},
       {"metadata", NodeType::metadata},
       {"memload", NodeType::mem_load},
       {"memstore", NodeType::mem_store},
       {"comp", NodeType::comp},
       {"commsend", NodeType::comm_send},
       {"commrecv", NodeType::comm_recv},
       {"commcoll", NodeType::comm_coll},
       {"collcomm", NodeType::comm_coll},
       {"sendcomm", NodeType::comm_send},
       {"recvcomm", NodeType::comm_recv}}};
  if (!value.is_string()) fail("the node type is neither a number nor a name");
  std::string name = folded(value.get_ref<const std::string&>());
  if (name.ends_with("node")) name.resize(name.size() - 4);
  for (const auto& [known, type] : kNames) {
    if (name == known) return type;
  }
  fail("the node type is not known: " +
       value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 40));
}

Value NodeReader::plain_value(std::string_view name, const json& value) {
  if (value.is_boolean()) return Value::of_bool(value.get<bool>());
  if (value.is_number_unsigned()) return Value::of_unsigned(value.get<uint64_t>());
  if (value.is_number_integer()) return Value::of_signed(value.get<int64_t>());
  if (value.is_number_float()) {
    if (const auto whole = number(value)) return Value::of_unsigned(*whole);
    return Value::of_real(value.get<double>());
  }
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (name == "pg_name") return Value::of_text(text);
    int64_t signed_number = 0;
    const char* end = text.data() + text.size();
    const auto [ptr, ec] = std::from_chars(text.data(), end, signed_number);
    if (ec == std::errc() && ptr == end && !text.empty()) return Value::of_signed(signed_number);
    if (const auto whole = number(value)) return Value::of_unsigned(*whole);
    if (name == "comm_type") {
      if (const auto type = parse_comm_type(text)) return Value::of_signed(*type);
    }
    return Value::of_text(text);
  }
  if (value.is_array()) {
    Value list = Value::of_list(Value::kOther);
    if (!value.empty() && value[0].is_boolean()) {
      list.kind = Value::kBoolList;
      list.number =
          std::any_of(value.begin(), value.end(), [](const json& v) { return v == false; }) ? 1 : 0;
    }
    return list;
  }
  return value.is_null() ? Value() : Value::of_list(Value::kOther);
}

Value NodeReader::proto_value(const std::string& kind, const json& value) {
  if (kind.ends_with("list")) {
    if (value.is_object() && value.contains("values")) return plain_value({}, value["values"]);
    return plain_value({}, value.is_array() ? value : json::array());
  }
  if (kind == "stringval" || kind == "bytesval") {
    return value.is_string() ? Value::of_text(value.get_ref<const std::string&>()) : Value();
  }
  if ((kind == "doubleval" || kind == "floatval") && value.is_number()) {
    return Value::of_real(value.get<double>());
  }
  return plain_value({}, value);
}

void NodeReader::attribute(const json& object, NodeAttributes& attributes) {
  if (!object.is_object()) fail("an attribute is no object");
  Attribute attr;
  for (const auto& [key, value] : object.items()) {
    if (key == "name") {
      if (!value.is_string()) fail("the name of an attribute is no string");
      attr.name = value.get_ref<const std::string&>();
      continue;
    }
    const std::string kind = folded(key);
    if (kind.ends_with("val") || kind.ends_with("list")) attr.value = proto_value(kind, value);
  }
  attributes.apply(attr);
}

Node NodeReader::read(const json& object) {
  if (!object.is_object()) fail("is no JSON object");
  Node node;
  if (!object.empty() &&
      std::none_of(object.items().begin(), object.items().end(), [](const auto& i) {
        const std::string key = folded(i.key());
        return key == "id" || key == "name" || key == "type" || key == "nodetype";
      })) {
    fail("the object has neither id nor name nor type, so that it is no node");
  }
  if (const auto id = std::find_if(object.items().begin(), object.items().end(),
                                   [](const auto& item) { return folded(item.key()) == "id"; });
      id != object.items().end()) {
    node.id = id_ = natural(id.value(), "the id");
  }
  constexpr std::array<std::string_view, 14> kPlain = {
      "is_cpu_op", "num_ops", "tensor_size", "comm_type", "comm_size",    "comm_src", "comm_dst",
      "comm_tag",  "pg_name", "comm_group",  "stream",    "involved_dim", "tid",      "runtime"};
  NodeAttributes attributes(SourcePos{path_, line_}, node, CommNumbers::v004);
  const json* inputs = nullptr;
  for (const auto& [key, value] : object.items()) {
    const std::string name = folded(key);
    if (name == "name") {
      if (!value.is_string()) fail("the name is no string");
      node.name = value.get<std::string>();
    } else if (name == "type" || name == "nodetype") {
      node.type = node_type(value);
    } else if (name == "ctrldeps") {
      read_ids(value, node.ctrl_deps, "ctrl_deps");
    } else if (name == "datadeps") {
      read_ids(value, node.data_deps, "data_deps");
    } else if (name == "durationmicros" || name == "runtime") {
      node.duration_us = natural(value, "the duration");
    } else if (name == "attr") {
      if (!value.is_array()) fail("attr is no list");
      for (const json& one : value) attribute(one, attributes);
    } else if (name == "attrs" || name == "rfid") {
      fail("is a node of a raw PyTorch execution trace; link and convert it with Chakra's tools");
    } else if (name == "inputs") {
      inputs = &value;
    } else {
      for (const std::string_view known : kPlain) {
        if (name == folded(known)) attributes.apply({known, plain_value(known, value)});
      }
    }
  }
  attributes.finish();
  if (node.type == NodeType::metadata && inputs != nullptr && inputs->is_object() &&
      inputs->contains("values") && (*inputs)["values"].is_string()) {
    node.inputs = (*inputs)["values"].get<std::string>();
  }
  return node;
}

/// Metadata of the stream form: it has a version or attributes, and nothing of a node.
bool is_metadata(const json& object) {
  if (!object.is_object()) return false;
  return std::all_of(object.items().begin(), object.items().end(), [](const auto& item) {
    return item.key() == "version" || item.key() == "attr";
  });
}

void read_metadata(const std::string& path, int line, const json& object, FileHeader& header) {
  if (object.contains("version") && object["version"].is_string()) {
    header.version = object["version"].get<std::string>();
  }
  if (!object.contains("attr") || !object["attr"].is_array()) return;
  NodeReader reader(path, line);
  for (const json& attr : object["attr"]) {
    if (!attr.is_object() || attr.value("name", json()) != json("schema")) continue;
    for (const auto& [key, value] : attr.items()) {
      if (folded(key) == "stringval" && value.is_string()) header.schema = value.get<std::string>();
    }
  }
}

class Document {
 public:
  Document(const std::string& path, ByteSource& source, FileHeader& header,
           const std::function<void(Node&&)>& on_node)
      : path_(path), in_(path, source), header_(header), on_node_(on_node) {}

  void read() {
    if (in_.accept('[')) {
      header_.dialect = "JSON array";
      elements();
      if (in_.peek_token() >= 0) in_.fail("something follows the closing bracket of the array");
      return;
    }
    if (container()) {
      if (in_.peek_token() >= 0) in_.fail("something follows the closing brace of the document");
      return;
    }
    header_.dialect = "JSON stream";
    while (in_.peek_token() >= 0) {
      if (in_.peek_token() != '{') in_.fail("expected an object, a node");
      element(in_.value());
    }
  }

 private:
  /// The elements of an array whose bracket is consumed.
  void elements() {
    if (in_.accept(']')) return;
    do {
      if (in_.peek_token() != '{') in_.fail("expected an object, a node");
      element(in_.value());
    } while (in_.accept(','));
    in_.expect(']');
  }

  void element(const std::string& text) { element(in_.parse(text), in_.value_line()); }

  void element(const json& object, int line) {
    if (first_ && is_metadata(object)) {
      read_metadata(path_, line, object, header_);
    } else {
      on_node_(NodeReader(path_, line).read(object));
    }
    first_ = false;
  }

  /// Reads the first object of the file. True when it held all the nodes; otherwise it was the
  /// first of a stream.
  bool container() {
    const int line = in_.line();
    json members = json::object();
    size_t kept = 0;
    bool found = false;
    in_.expect('{');
    if (!in_.accept('}')) {
      do {
        if (in_.peek_token() != '"') in_.fail("expected a key in quotes");
        const json key = in_.parse(in_.value());
        const auto& name = key.get_ref<const std::string&>();
        in_.expect(':');
        if (name == "traceEvents" || name == "schemaVersion") {
          in_.fail("this is a Kineto profile, not a Chakra trace");
        }
        if ((name == "workload_graph" || name == "workloadGraph" || name == "nodes") &&
            in_.peek_token() == '[') {
          if (found) in_.fail("a second list of nodes");
          if (members.contains("schema") && members.contains("pid")) {
            in_.fail(
                "this is a raw PyTorch execution trace; link and convert it with Chakra's tools");
          }
          found = true;
          first_ = false;
          header_.dialect = name == "nodes" ? "STAGE JSON" : "feeder JSON";
          // Its sizes are elements, as in STAGE's binary traces, which say so in their metadata.
          if (name == "nodes") header_.schema = "symbolic_tensor_network";
          in_.accept('[');
          elements();
          continue;
        }
        const std::string text = in_.value();
        kept += text.size();
        if (kept > kMaxValueBytes) in_.fail("an object is larger than 16 MiB");
        members[name] = in_.parse(text);
      } while (in_.accept(','));
      in_.expect('}');
    }
    if (!found) element(members, line);
    return found;
  }

  const std::string& path_;
  Scanner in_;
  FileHeader& header_;
  const std::function<void(Node&&)>& on_node_;
  bool first_ = true;
};

}  // namespace

void read_json(const std::string& path, ByteSource& source, FileHeader& header,
               const std::function<void(Node&&)>& on_node) {
  Document(path, source, header, on_node).read();
}

}  // namespace trainyard::chakra
