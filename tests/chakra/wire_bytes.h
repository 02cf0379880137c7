// SPDX-License-Identifier: MIT
// Protobuf messages by hand: bytes that no writer of ours produces.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard::chakra::test {

inline std::string varint(uint64_t value) {
  std::string out;
  while (value >= 0x80) {
    out += static_cast<char>((value & 0x7f) | 0x80);
    value >>= 7;
  }
  return out + static_cast<char>(value);
}

inline std::string tag(int field, int wire) {
  return varint((static_cast<uint64_t>(field) << 3) | static_cast<uint64_t>(wire));
}
inline std::string num(int field, uint64_t value) {
  return tag(field, 0) + varint(value);
}
inline std::string bytes(int field, const std::string& value) {
  return tag(field, 2) + varint(value.size()) + value;
}
inline std::string little(uint64_t value, int size) {
  std::string out;
  for (int i = 0; i < size; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}
inline std::string fixed64(int field, uint64_t value) {
  return tag(field, 1) + little(value, 8);
}
inline std::string fixed32(int field, uint32_t value) {
  return tag(field, 5) + little(value, 4);
}
inline std::string record(const std::string& message) {
  return varint(message.size()) + message;
}

/// Node field 10 with an attribute whose value field is `value`.
inline std::string attr(const std::string& name, const std::string& value) {
  return bytes(10, bytes(1, name) + value);
}
inline std::string meta() {
  return record(bytes(1, "0.0.4"));
}

}  // namespace trainyard::chakra::test
