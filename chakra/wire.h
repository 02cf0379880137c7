// SPDX-License-Identifier: MIT
// Fields of a protobuf message, one after the other, whatever its schema.
#pragma once

#include <cstdint>
#include <string_view>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

namespace trainyard::chakra {

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
    using google::protobuf::internal::WireFormatLite;
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
  google::protobuf::io::CodedInputStream in_;
  bool ok_ = true;
};

}  // namespace trainyard::chakra
