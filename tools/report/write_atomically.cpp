// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "sim/errors.h"
#include "tools/report/report.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

std::string remedy_for(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
      return "choose an output folder that you may write to, or change its permissions";
    case ENOSPC:
    case EDQUOT:
      return "free some space or choose an output folder on another disk";
    case ENOENT:
      return "create the folder first or choose another one";
    case ENOTDIR:
    case EEXIST:
      return "a part of the path is a file: rename it or choose another output folder";
    case EISDIR:
      return "a folder stands in the place of the file: move it or choose another output folder";
    default:
      return "choose another output folder";
  }
}

[[noreturn]] void fail(const std::string& path, std::string_view what, int error) {
  throw UserError(SourcePos{path, 0},
                  fmt::format("{}: {}", what, std::generic_category().message(error)),
                  remedy_for(error));
}

/// 0, or the errno of the first write that failed.
int write_fully(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    content.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

}  // namespace

void write_atomically(const std::string& path, const std::string& content) {
  struct stat existing = {};
  const bool exists = ::stat(path.c_str(), &existing) == 0;
  if (exists && S_ISDIR(existing.st_mode)) fail(path, "cannot write the file", EISDIR);
  if (exists && !S_ISREG(existing.st_mode)) {
    // A terminal or a pipe: renaming over it would replace the device by a file.
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) fail(path, "cannot open for writing", errno);
    const int error = write_fully(fd, content);
    ::close(fd);
    if (error != 0) fail(path, "cannot write", error);
    return;
  }
  std::string target = path;
  if (exists) {
    // The rename must replace the file that a link points to, not the link.
    std::error_code ignored;
    const fs::path real = fs::canonical(path, ignored);
    if (!ignored) target = real.string();
  }

  static std::atomic<uint32_t> counter{0};
  const std::string temporary = fmt::format("{}.{}.{}.tmp", target, ::getpid(), counter++);
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) fail(path, "cannot write the file", errno);
  int error = write_fully(fd, content);
  // Without it, a crash of the machine soon after may leave an empty file under the final name.
  if (error == 0 && ::fsync(fd) != 0) error = errno;
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), target.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.c_str());
    fail(path, "cannot write the file", error);
  }
}

void write_all(const Result& result, const std::string& dir) {
  const fs::path folder = dir.empty() ? fs::path(".") : fs::path(dir);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(folder.string(), "cannot create the output folder", error.value());
  if (!fs::is_directory(folder, error)) {
    fail(folder.string(), "cannot use as output folder", ENOTDIR);
  }

  // result.json comes last: where it is new, everything beside it is.
  const std::pair<const char*, std::string> files[] = {
      {"flows.csv", result.flows.empty() ? "" : flows_csv(result)},
      {"collectives.csv", result.collectives.empty() ? "" : collectives_csv(result)},
      {"links.csv", result.links.empty() ? "" : links_csv(result)},
      {"ranks.csv", result.rank_times.empty() ? "" : ranks_csv(result)},
      {"report.html", report_html(result)},
      {"result.json", result_json(result)}};
  for (const auto& [name, content] : files) {
    const std::string path = (folder / name).string();
    if (!content.empty()) {
      write_atomically(path, content);
      continue;
    }
    // A table of an earlier run in the same folder would pass for one of this run.
    fs::remove(path, error);
    if (error) fail(path, "cannot remove the file of an earlier run", error.value());
  }
}

}  // namespace trainyard
