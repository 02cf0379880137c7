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
#include "tools/report/atomic_file.h"
#include "tools/report/report.h"
#include "tools/report/symptoms.h"

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

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  struct stat existing = {};
  const bool exists = ::stat(path_.c_str(), &existing) == 0;
  if (exists && S_ISDIR(existing.st_mode)) fail(path_, "cannot write the file", EISDIR);
  if (exists && !S_ISREG(existing.st_mode)) {
    // A terminal or a pipe: renaming over it would replace the device by a file.
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd_ < 0) fail(path_, "cannot open for writing", errno);
    return;
  }
  target_ = path_;
  if (exists) {
    // The rename must replace the file that a link points to, not the link.
    std::error_code ignored;
    const fs::path real = fs::canonical(path_, ignored);
    if (!ignored) target_ = real.string();
  }
  static std::atomic<uint32_t> counter{0};
  temporary_ = fmt::format("{}.{}.{}.tmp", target_, ::getpid(), counter++);
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    temporary_.clear();
    fail(path_, "cannot write the file", errno);
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::string_view content) {
  if (const int error = write_fully(fd_, content); error != 0) {
    fail(path_, "cannot write the file", error);
  }
}

void AtomicFile::commit() {
  const bool device = temporary_.empty();
  // Without it, a crash of the machine soon after may leave an empty file under the final name.
  int error = !device && ::fsync(fd_) != 0 ? errno : 0;
  if (::close(std::exchange(fd_, -1)) != 0 && error == 0 && !device) error = errno;
  if (error == 0 && !device && ::rename(temporary_.c_str(), target_.c_str()) != 0) error = errno;
  if (error != 0) fail(path_, "cannot write the file", error);
  temporary_.clear();
}

void write_atomically(const std::string& path, const std::string& content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

void write_all(const Result& result, const std::string& dir) {
  const fs::path folder = dir.empty() ? fs::path(".") : fs::path(dir);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(folder.string(), "cannot create the output folder", error.value());
  if (!fs::is_directory(folder, error)) {
    fail(folder.string(), "cannot use as output folder", ENOTDIR);
  }

  const auto remove_stale = [&](const std::string& path) {
    // A file of an earlier run in the same folder would pass for one of this run.
    fs::remove(path, error);
    if (error) fail(path, "cannot remove the file of an earlier run", error.value());
  };
  const std::string series = (folder / "link_series.csv").string();
  const std::string trace = (folder / "trace.json.gz").string();
  const std::string loads = (folder / "load_series.csv").string();
  if (result.link_series.links.empty()) {
    remove_stale(series);
    remove_stale(loads);
  } else {
    write_link_series_csv(result, series);
    write_load_series_csv(result, loads);
  }
  const std::string pauses = (folder / "pauses.csv").string();
  if (result.pauses_asked)
    write_pauses_csv(result, pauses);
  else
    remove_stale(pauses);
  const auto asked = [&](bool wanted, const char* name, auto* write) {
    const std::string path = (folder / name).string();
    if (wanted)
      write(result, path);
    else
      remove_stale(path);
  };
  asked(result.seen.qp_series.window > Time(), "qps.csv", write_qps_csv);
  asked(result.seen.samples.asked_q32 > 0, "packets.csv", write_packets_csv);
  asked(result.seen.flows.asked, "switch_flows.csv", write_switch_flows_csv);
  asked(result.power.window > Time(), "power.csv", write_power_csv);
  if (result.perfetto)
    write_perfetto(result, trace);
  else
    remove_stale(trace);

  // One at a time, they may be large. result.json comes last: where it is new, everything beside it
  // is.
  const auto table = [&](bool any, const char* name, std::string (*make)(const Result&)) {
    const std::string path = (folder / name).string();
    const std::string content = any ? make(result) : "";
    if (content.empty())
      remove_stale(path);
    else
      write_atomically(path, content);
  };
  table(!result.flows.empty(), "flows.csv", flows_csv);
  table(!result.background.empty(), "background.csv", background_csv);
  table(!result.collectives.empty(), "collectives.csv", collectives_csv);
  table(!result.durations.empty(), "durations.csv", durations_csv);
  table(!result.call_sizes.empty(), "call_sizes.csv", call_sizes_csv);
  table(!result.links.empty(), "links.csv", links_csv);
  table(true, "nics.csv", nics_csv);
  table(true, "switches.csv", switches_csv);
  table(true, "headroom.csv", headroom_csv);
  table(!result.faults.empty(), "truth.csv", truth_csv);
  table(true, "symptoms.csv", symptoms_csv);
  table(true, "visits.csv", visits_csv);
  table(!result.rank_times.empty(), "ranks.csv", ranks_csv);
  table(true, "report.html", report_html);
  table(true, "result.json", result_json);
}

}  // namespace trainyard
