// SPDX-License-Identifier: MIT
// The readers take paths: an input becomes a file in memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "sim/errors.h"

namespace trainyard::fuzz {

/// One file in memory per process, rewritten for every input.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : fd_(memfd_create(name, 0)) {
    if (fd_ < 0) std::abort();
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void put(const uint8_t* data, size_t size) const {
    if (ftruncate(fd_, 0) != 0 || pwrite(fd_, data, size, 0) != static_cast<ssize_t>(size)) {
      std::abort();
    }
  }
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

/// Bad input may be refused, in one way only; every other exception ends the process.
template <class Read>
void refuse_or_read(Read read) {
  try {
    read();
  } catch (const UserError&) {
  }
}

}  // namespace trainyard::fuzz
