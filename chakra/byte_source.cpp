// SPDX-License-Identifier: MIT
#include "chakra/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "sim/errors.h"

namespace trainyard::chakra {

namespace {

constexpr size_t kBufferBytes = 64 * 1024;

// Deflate reaches 1000:1 on constant data; traces reach 16:1, text-derived ones perhaps 50:1.
// Beyond this the file is an attempt to fill the memory, or zeros.
constexpr uint64_t kMaxRatio = 200;
constexpr uint64_t kRatioCheckedFrom = 16ULL << 20;

}  // namespace

// protobuf's GzipInputStream reports the end of a cut file like a proper end and ignores what the
// file expands to, hence this one.
class InflateStream : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit InflateStream(google::protobuf::io::ZeroCopyInputStream* in)
      : in_(in), buffer_(kBufferBytes) {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&z_, MAX_WBITS + kGzipOnly) != Z_OK) error_ = "zlib cannot be initialised";
  }
  ~InflateStream() override { inflateEnd(&z_); }

  bool Next(const void** data, int* size) override {
    if (backed_up_ > 0) {
      *data = buffer_.data() + filled_ - backed_up_;
      *size = static_cast<int>(backed_up_);
      backed_up_ = 0;
      return true;
    }
    if (!error_.empty()) return false;
    z_.next_out = buffer_.data();
    z_.avail_out = static_cast<uInt>(buffer_.size());
    while (z_.avail_out == buffer_.size()) {
      if (z_.avail_in == 0 && !refill()) {
        if (!member_ended_) error_ = "the gzip data end early (file truncated?)";
        break;
      }
      if (member_ended_) {  // gzip allows several members one after the other
        inflateReset(&z_);
        member_ended_ = false;
      }
      const int rc = inflate(&z_, Z_NO_FLUSH);
      if (rc == Z_STREAM_END) {
        member_ended_ = true;
      } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
        error_ =
            std::string("broken gzip data (") + (z_.msg != nullptr ? z_.msg : "zlib error") + ")";
        break;
      }
    }
    filled_ = buffer_.size() - z_.avail_out;
    total_out_ += filled_;
    if (total_out_ > kRatioCheckedFrom && total_out_ / kMaxRatio > total_in_) {
      error_ = "the gzip data expand more than 200 times, which no trace does";
      return false;
    }
    *data = buffer_.data();
    *size = static_cast<int>(filled_);
    return filled_ > 0;
  }

  void BackUp(int count) override { backed_up_ = static_cast<size_t>(count); }

  bool Skip(int count) override {
    const void* data = nullptr;
    int size = 0;
    while (count > 0) {
      if (!Next(&data, &size)) return false;
      if (size > count) BackUp(size - count);
      count -= size;
    }
    return true;
  }

  [[nodiscard]] int64_t ByteCount() const override {
    return static_cast<int64_t>(total_out_ - backed_up_);
  }

  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  bool refill() {
    const void* data = nullptr;
    int size = 0;
    do {
      if (!in_->Next(&data, &size)) return false;
    } while (size == 0);
    z_.next_in = static_cast<Bytef*>(const_cast<void*>(data));
    z_.avail_in = static_cast<uInt>(size);
    total_in_ += static_cast<uint64_t>(size);
    return true;
  }

  google::protobuf::io::ZeroCopyInputStream* in_;
  z_stream z_{};
  std::vector<unsigned char> buffer_;
  size_t filled_ = 0, backed_up_ = 0;
  uint64_t total_in_ = 0, total_out_ = 0;
  bool member_ended_ = false;
  std::string error_;
};

ByteSource::ByteSource(const std::string& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    throw UserError(SourcePos{path, 0},
                    std::string("cannot open the trace: ") + std::strerror(errno));
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0 || S_ISDIR(info.st_mode)) {
    ::close(fd);
    throw UserError(SourcePos{path, 0}, "is a folder, not a trace file");
  }
  file_ = std::make_unique<google::protobuf::io::FileInputStream>(fd, kBufferBytes);
  file_->SetCloseOnDelete(true);
  stream_ = file_.get();

  const void* data = nullptr;
  int size = 0;
  bool gzip = false;
  if (file_->Next(&data, &size)) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    gzip = size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
    file_->BackUp(size);
  }
  if (gzip) {
    inflate_ = std::make_unique<InflateStream>(file_.get());
    stream_ = inflate_.get();
  } else if (S_ISREG(info.st_mode)) {
    size_ = static_cast<uint64_t>(info.st_size);
  }
}

ByteSource::~ByteSource() = default;

bool ByteSource::looks_like_json() const {
  const void* data = nullptr;
  int size = 0;
  do {
    if (!stream_->Next(&data, &size)) return false;
  } while (size == 0);
  std::string_view text(static_cast<const char*>(data), static_cast<size_t>(size));
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const auto skip_space = [&] {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  };
  skip_space();
  // A bracket alone may be the length of a binary record; what follows it tells.
  bool json = false;
  if (!text.empty() && (text[0] == '{' || text[0] == '[')) {
    const bool object = text[0] == '{';
    text.remove_prefix(1);
    skip_space();
    json = text.empty() ? size <= 64
                        : text[0] == (object ? '"' : '{') || text[0] == (object ? '}' : ']');
  }
  stream_->BackUp(size);
  return json;
}

void ByteSource::check() const {
  if (file_->GetErrno() != 0) {
    throw UserError(SourcePos{path_, 0},
                    std::string("cannot read: ") + std::strerror(file_->GetErrno()));
  }
  if (inflate_ != nullptr && !inflate_->error().empty()) {
    throw UserError(SourcePos{path_, 0}, inflate_->error(), "fetch or write the trace again");
  }
}

}  // namespace trainyard::chakra
