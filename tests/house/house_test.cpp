// SPDX-License-Identifier: MIT
// The order of the house (DESIGN, section 1): includes point down, sources carry their licence,
// nothing names a path of the machine that it was written on.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = TRAINYARD_SOURCE_DIR;

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Folder -> folders that it may use.
using Arrows = std::map<std::string, std::set<std::string>>;

Arrows read_arrows() {
  Arrows arrows;
  for (const std::string& line : lines_of(content_of(kRoot / "tools/cmake/arrows.txt"))) {
    const size_t colon = line.find(':');
    if (line.empty() || line[0] == '#' || colon == std::string::npos) continue;
    std::istringstream below(line.substr(colon + 1));
    auto& allowed = arrows[line.substr(0, colon)];
    for (std::string folder; below >> folder;) allowed.insert(folder);
  }
  return arrows;
}

/// What is wrong with the includes of `content`, which stands in `path` (from the root).
std::vector<std::string> bad_includes(const Arrows& arrows, const std::string& path,
                                      const std::string& content) {
  std::vector<std::string> found;
  const auto here = arrows.find(path.substr(0, path.find('/')));
  if (here == arrows.end()) return found;  // tests may use everything
  static const std::regex include(R"re(^\s*#\s*include\s*([<"])([^">]+)[">])re");
  int number = 0;
  for (const std::string& line : lines_of(content)) {
    ++number;
    std::smatch match;
    if (!std::regex_search(line, match, include)) continue;
    const std::string target = match[2];
    const std::string folder = target.substr(0, target.find('/'));
    const std::string place = path + ":" + std::to_string(number) + ": " + target;
    if (arrows.count(folder) > 0 && target != folder) {
      if (target.find("..") != std::string::npos) {
        found.push_back(place + " has a detour");
      } else if (folder != here->first && here->second.count(folder) == 0) {
        found.push_back(place + " points up or sideways");
      }
    } else if (match[1] == "\"") {
      found.push_back(place + " is not written from the root of the repository");
    }
  }
  return found;
}

/// Whether a file is source that needs a licence line.
bool is_source(const std::string& path, const std::string& content) {
  static const std::set<std::string> extensions{".h",  ".cpp", ".cu",    ".cuh",   ".py",
                                                ".sh", ".js",  ".cmake", ".proto", ".in"};
  return extensions.count(fs::path(path).extension()) > 0 ||
         fs::path(path).filename() == "CMakeLists.txt" || content.rfind("#!", 0) == 0;
}

bool has_licence_line(const std::string& content) {
  const std::vector<std::string> lines = lines_of(content);
  return std::any_of(lines.begin(), lines.begin() + std::min<std::ptrdiff_t>(std::ssize(lines), 3),
                     [](const std::string& line) {
                       return line.find("SPDX-License-Identifier: MIT") != std::string::npos;
                     });
}

/// Lines that name a home or a working folder of some machine.
std::vector<std::string> machine_paths(const std::string& path, const std::string& content) {
  // Put together here, so that this file passes its own test. A path begins at a character that
  // cannot be inside of one.
  static const std::regex absolute(std::string("(^|[^A-Za-z0-9_.~$})/-])/") +
                                   "(home|work|root|Users|tmp/[a-z]+)/");
  std::vector<std::string> found;
  int number = 0;
  for (const std::string& line : lines_of(content)) {
    ++number;
    if (std::regex_search(line, absolute)) {
      found.push_back(path + ":" + std::to_string(number) + ": " + line.substr(0, 120));
    }
  }
  return found;
}

struct File {
  std::string path;  // from the root, with '/'
  std::string content;
};

/// Text files of the repository; what git ignores and build directories are left out.
const std::vector<File>& files() {
  static const std::vector<File> all = [] {
    std::vector<File> result;
    for (auto it = fs::recursive_directory_iterator(kRoot); it != fs::end(it); ++it) {
      const std::string path = fs::relative(it->path(), kRoot).generic_string();
      const std::string name = it->path().filename().string();
      if (it->is_directory()) {
        static const std::set<std::string> skipped{".git", "build", "out", "scenarios/generated",
                                                   ".cache"};
        if (skipped.count(path) > 0 || name == "__pycache__" || name == "node_modules" ||
            fs::exists(it->path() / "CMakeCache.txt")) {
          it.disable_recursion_pending();
        }
      } else if (it->is_regular_file() && it->file_size() < 4'000'000 &&
                 name != "compile_commands.json") {
        std::string content = content_of(it->path());
        if (content.find('\0') == std::string::npos) result.push_back({path, std::move(content)});
      }
    }
    return result;
  }();
  return all;
}

std::string list(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "\n  " + line;
  return text;
}

TEST(House, SeesTheRepository) {
  EXPECT_GT(files().size(), 20U);
  EXPECT_EQ(read_arrows().size(), 8U);
}

TEST(House, IncludesPointDown) {
  const Arrows arrows = read_arrows();
  std::vector<std::string> found;
  for (const File& file : files()) {
    const std::string extension = fs::path(file.path).extension();
    if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".in") {
      continue;
    }
    const auto bad = bad_includes(arrows, file.path, file.content);
    found.insert(found.end(), bad.begin(), bad.end());
  }
  EXPECT_TRUE(found.empty()) << list(found);
}

TEST(House, SourcesCarryTheirLicence) {
  std::vector<std::string> found;
  for (const File& file : files()) {
    if (is_source(file.path, file.content) && !has_licence_line(file.content)) {
      found.push_back(file.path);
    }
  }
  EXPECT_TRUE(found.empty()) << "no SPDX line in the first three lines of:" << list(found);
}

TEST(House, NoPathsOfAMachine) {
  std::vector<std::string> found;
  for (const File& file : files()) {
    const auto bad = machine_paths(file.path, file.content);
    found.insert(found.end(), bad.begin(), bad.end());
  }
  EXPECT_TRUE(found.empty()) << list(found);
}

// The checks themselves, on made-up files.

TEST(HouseCheck, RefusesIncludesUpAndSideways) {
  const Arrows arrows = read_arrows();
  const auto bad = [&](const char* path, const char* line) {
    return bad_includes(arrows, path, std::string("// a comment\n") + line + "\n").size();
  };
  EXPECT_EQ(bad("sim/a.cpp", "#include \"network/topology.h\""), 1U);
  EXPECT_EQ(bad("sim/a.h", "  #  include <network/topology.h>"), 1U);
  EXPECT_EQ(bad("network/a.cpp", "#include \"chakra/reader.h\""), 1U);
  EXPECT_EQ(bad("network/deep/er/a.cpp", "#include \"tools/report/report.h\""), 1U);
  EXPECT_EQ(bad("chakra/a.cpp", "#include \"network/topology.h\""), 1U);
  EXPECT_EQ(bad("faults/a.cpp", "#include \"gpu_replay/plan.h\""), 1U);
  EXPECT_EQ(bad("gpu_replay/a.cpp", "#include \"faults/hazard.h\""), 1U);
  EXPECT_EQ(bad("workload/a.cpp", "#include \"faults/hazard.h\""), 1U);
  EXPECT_EQ(bad("sim/a.cpp", "#include \"../network/topology.h\""), 1U);
  EXPECT_EQ(bad("sim/a.cpp", "#include \"sim/../network/topology.h\""), 1U);
  EXPECT_EQ(bad("sim/a.cpp", "#include \"units.h\""), 1U);
}

TEST(HouseCheck, AcceptsIncludesDown) {
  const Arrows arrows = read_arrows();
  const auto good = [&](const char* path, const char* line) {
    return bad_includes(arrows, path, line).empty();
  };
  EXPECT_TRUE(good("sim/a.cpp", "#include \"sim/units.h\""));
  EXPECT_TRUE(good("sim/a.cpp", "#include <vector>"));
  EXPECT_TRUE(good("network/a.cpp", "#include \"sim/units.h\""));
  EXPECT_TRUE(good("network/a.cpp", "#include <boost/graph/adjacency_list.hpp>"));
  EXPECT_TRUE(good("workload/a.cpp", "#include \"chakra/trace.h\""));
  EXPECT_TRUE(good("tools/cli/a.cpp", "#include \"faults/hazard.h\""));
  EXPECT_TRUE(good("tests/sim/a_test.cpp", "#include \"tools/report/report.h\""));
  EXPECT_TRUE(good("sim/a.cpp", "// #include \"network/topology.h\" would point up"));
}

TEST(HouseCheck, WantsTheLicenceAtTheTop) {
  const std::string line = std::string("// SPDX-License-") + "Identifier: MIT\n";
  EXPECT_TRUE(has_licence_line(line + "int a;\n"));
  EXPECT_TRUE(has_licence_line("#!/bin/sh\n" + line));
  EXPECT_FALSE(has_licence_line("int a;\n"));
  EXPECT_FALSE(has_licence_line("\n\n\n\n" + line));
  EXPECT_FALSE(has_licence_line(""));
  EXPECT_TRUE(is_source("tools/run", "#!/usr/bin/env bash\n"));
  EXPECT_TRUE(is_source("sim/CMakeLists.txt", ""));
  EXPECT_FALSE(is_source("docs/a.md", "text"));
}

TEST(HouseCheck, FindsPathsOfAMachine) {
  const std::string slash = "/";
  const auto count = [](const std::string& line) { return machine_paths("a", line).size(); };
  EXPECT_EQ(count("see " + slash + "home/me/a.txt"), 1U);
  EXPECT_EQ(count("\"" + slash + "work/main\""), 1U);
  EXPECT_EQ(count(slash + "root/x"), 1U);
  EXPECT_EQ(count("-I" + slash + "home/me"), 0U);  // inside of a word; too many false alarms
  EXPECT_EQ(count("${root}/work/x"), 0U);
  EXPECT_EQ(count("network/work/x and a /workload/ path"), 0U);
}

}  // namespace
