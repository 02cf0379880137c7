// SPDX-License-Identifier: MIT
// A file written piece by piece that appears whole or not at all. Internal to tools/report.
#pragma once

#include <string>
#include <string_view>

namespace trainyard {

class AtomicFile {
 public:
  /// Opens a temporary file beside `path`. Like all of it: throws UserError (path, reason).
  explicit AtomicFile(std::string path);
  ~AtomicFile();  ///< removes what was not committed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view content);
  void commit();  ///< puts the file in its place

 private:
  std::string path_, target_, temporary_;
  int fd_ = -1;
};

}  // namespace trainyard
