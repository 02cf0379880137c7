// SPDX-License-Identifier: MIT
// Runs the built `trainyard` as a user would, in a scratch folder.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace trainyard::cli_test {

namespace fs = std::filesystem;

inline std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Outcome {
  int code = -1;  ///< exit code, or 128 + signal
  std::string out, err;
};

/// A program of the build started with `arguments`; its output goes to files in `scratch`.
class Process {
 public:
  Process(const std::vector<std::string>& arguments, const fs::path& scratch,
          const std::string& program = "trainyard")
      : out_(scratch / ".stdout"), err_(scratch / ".stderr") {
    std::vector<std::string> words = {TRAINYARD_BINARY_DIR "/" + program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (auto& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, out_.c_str(), flags, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, err_.c_str(), flags, 0600);
    posix_spawn_file_actions_addchdir_np(&actions, scratch.c_str());
    if (posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    EXPECT_GT(pid_, 0) << "cannot start " << argv[0];
  }
  ~Process() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }

  /// Whether the process handles `signal` itself by now.
  [[nodiscard]] bool catches(int signal) const {
    std::ifstream in("/proc/" + std::to_string(pid_) + "/status");
    std::string line;
    while (std::getline(in, line)) {
      if (line.rfind("SigCgt:", 0) != 0) continue;
      return ((std::stoull(line.substr(7), nullptr, 16) >> (signal - 1)) & 1U) != 0;
    }
    return false;
  }

  Outcome wait() {
    Outcome o;
    int status = 0;
    if (pid_ <= 0 || ::waitpid(pid_, &status, 0) != pid_) return o;
    pid_ = -1;
    o.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    o.out = slurp(out_);
    o.err = slurp(err_);
    return o;
  }

 private:
  fs::path out_, err_;
  pid_t pid_ = -1;
};

class CliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(info->test_suite_name()) + "_" + info->name();
    std::replace(name.begin(), name.end(), '/', '_');
    dir_ = fs::temp_directory_path() / ("trainyard_cli_" + std::to_string(::getpid()) + name);
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  [[nodiscard]] Outcome cli(const std::vector<std::string>& arguments) const {
    return Process(arguments, dir_).wait();
  }
  std::string put(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name, std::ios::binary) << text;
    return name;
  }
  [[nodiscard]] nlohmann::ordered_json result(const std::string& out) const {
    const std::string text = slurp(dir_ / out / "result.json");
    auto doc = nlohmann::ordered_json::parse(text, nullptr, false);
    EXPECT_FALSE(doc.is_discarded()) << "result.json in " << out << " is not JSON: " << text;
    return doc;
  }
  [[nodiscard]] std::string fingerprint(const std::string& out) const {
    const auto doc = result(out);
    return doc.contains("fingerprint") ? doc["fingerprint"].get<std::string>() : "none";
  }
  static std::string source(const std::string& path) {
    return (fs::path(TRAINYARD_SOURCE_DIR) / path).string();
  }

  fs::path dir_;
};

/// The rule of every failure: this exit code, one line on stderr, no stack.
inline void expect_error(const Outcome& o, int code, const std::vector<std::string>& parts) {
  EXPECT_EQ(o.code, code) << o.out << o.err;
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  EXPECT_TRUE(!o.err.empty() && o.err.back() == '\n') << o.err;
  EXPECT_EQ(o.err.rfind("trainyard: ", 0), 0U) << o.err;
  for (const char* never : {"terminate called", "internal error", "what():", "Aborted"}) {
    EXPECT_FALSE(has(o.err, never)) << o.err;
  }
  for (const std::string& part : parts) EXPECT_TRUE(has(o.err, part)) << part << "\n" << o.err;
}

/// Rows of a CSV file by column name. Quoted cells may hold commas.
inline std::vector<std::map<std::string, std::string>> read_csv(const fs::path& path) {
  const auto split = [](const std::string& line) {
    std::vector<std::string> cells(1);
    bool quoted = false;
    for (const char c : line) {
      if (c == '"')
        quoted = !quoted;
      else if (c == ',' && !quoted)
        cells.emplace_back();
      else
        cells.back() += c;
    }
    return cells;
  };
  std::istringstream in(slurp(path));
  std::string line;
  std::getline(in, line);
  const auto head = split(line);
  std::vector<std::map<std::string, std::string>> rows;
  while (std::getline(in, line)) {
    const auto cells = split(line);
    EXPECT_EQ(cells.size(), head.size()) << path << ": " << line;
    std::map<std::string, std::string> row;
    for (size_t i = 0; i < std::min(head.size(), cells.size()); ++i) row[head[i]] = cells[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

/// No empty file, no temporary one, and only names that the run writes.
inline void expect_whole_files(const fs::path& dir) {
  const std::vector<std::string> known = {"result.json",   "flows.csv",     "links.csv",
                                          "nics.csv",      "switches.csv",  "headroom.csv",
                                          "ranks.csv",     "report.html",   "collectives.csv",
                                          "durations.csv", "call_sizes.csv"};
  size_t count = 0;
  for (const auto& e : fs::directory_iterator(dir)) {
    ++count;
    EXPECT_TRUE(std::count(known.begin(), known.end(), e.path().filename().string()) == 1)
        << e.path();
    EXPECT_GT(e.file_size(), 0U) << e.path();
    const std::string text = slurp(e.path());
    EXPECT_EQ(text.back(), '\n') << e.path();
    if (e.path().extension() == ".csv") {
      EXPECT_FALSE(read_csv(e.path()).empty()) << e.path() << " has no row";
    }
  }
  EXPECT_GE(count, 4U) << dir;
}

}  // namespace trainyard::cli_test
