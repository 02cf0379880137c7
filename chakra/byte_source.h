// SPDX-License-Identifier: MIT
// The bytes of a trace file, inflated when the file is gzip (told by its first two bytes).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>

namespace trainyard::chakra {

class InflateStream;

class ByteSource {
 public:
  /// Throws UserError when `path` cannot be opened or is a folder.
  explicit ByteSource(const std::string& path);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  [[nodiscard]] google::protobuf::io::ZeroCopyInputStream* stream() const { return stream_; }

  /// Size of a plain regular file; nullopt when the number of bytes to come is unknown.
  [[nodiscard]] std::optional<uint64_t> size() const { return size_; }

  /// Whether the content begins like a JSON document of nodes. Call before anything is read.
  [[nodiscard]] bool looks_like_json() const;

  /// Throws UserError when the stream ended because of a read error or of broken gzip data.
  void check() const;

 private:
  std::string path_;
  std::optional<uint64_t> size_;
  std::unique_ptr<google::protobuf::io::FileInputStream> file_;
  std::unique_ptr<InflateStream> inflate_;
  google::protobuf::io::ZeroCopyInputStream* stream_ = nullptr;
};

}  // namespace trainyard::chakra
