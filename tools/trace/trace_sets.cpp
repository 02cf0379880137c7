// SPDX-License-Identifier: MIT
// Every Chakra trace set below a folder through `trainyard run`: one row per set, whether it ran or
// why it was refused.
//
//   trainyard-trace-sets [--traces DIR] [--only TEXT] [--markdown] [--trainyard FILE]
//                        [--scenario FILE]
//
// A set is a prefix with a file of rank 0, or a row of chakra_index.csv. Last line: one JSON
// object. Exit 1 when a set neither ran nor was refused as bad input, or when invalid/expected.csv
// says otherwise; 0 with a message when there is no such folder.
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "chakra/reader.h"
#include "chakra/validator.h"
#include "sim/errors.h"

namespace fs = std::filesystem;
using namespace trainyard;

namespace {

/// A run that computes longer than this counts as failed.
constexpr rlim_t kMostCpuSeconds = 1800;

struct TraceSetPlace {
  std::string name;      ///< below the folder of traces
  std::string where;     ///< for --trace
  std::string groups;    ///< of workload.groups; empty: what the reader finds beside the trace
  bool missing = false;  ///< only the index knows it
};

struct Row {
  enum class Verdict { ran, refused, failed };
  Verdict verdict = Verdict::failed;
  std::string ranks = "-", nodes = "-";
  std::string why;  ///< refused or failed
  double load_ms = -1, step_us = 0, wall_s = 0;
  uint64_t bytes = 0, events = 0;
};

struct Arguments {
  fs::path traces, trainyard, scenario;
  std::string only;
  bool markdown = false;
};

std::string slurp(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The prefix when `name` is a file of rank 0, else "".
std::string prefix_of(std::string_view name, bool& json) {
  if (name.ends_with(".gz")) name.remove_suffix(3);
  for (const std::string_view end : {".0.et", ".0.eg", ".0.json"}) {
    if (!name.ends_with(end) || name.find("comm_group") != std::string_view::npos) continue;
    json = end == ".0.json";
    return std::string(name.substr(0, name.size() - end.size()));
  }
  return {};
}

/// The group file of a set that does not lie beside its traces.
std::string far_groups(const fs::path& folder) {
  if (fs::exists(folder / "comm_group.json")) return {};
  for (const char* place : {"inputs", "../inputs", ".."}) {
    const fs::path file = (folder / place / "comm_group.json").lexically_normal();
    if (fs::exists(file)) return file.string();
  }
  return {};
}

std::vector<TraceSetPlace> find_sets(const fs::path& traces) {
  // Prefix -> whether there are files of records and of JSON: two forms of one graph.
  std::map<std::string, std::pair<bool, bool>> forms;
  for (const auto& entry : fs::recursive_directory_iterator(traces)) {
    bool json = false;
    const std::string prefix = prefix_of(entry.path().filename().string(), json);
    if (prefix.empty() || !entry.is_regular_file()) continue;
    auto& [records, jsons] =
        forms[(entry.path().parent_path().lexically_relative(traces) / prefix).generic_string()];
    (json ? jsons : records) = true;
  }
  // A row of the index without files stays without a form.
  std::ifstream index(traces / "chakra_index.csv");
  std::string line;
  std::getline(index, line);
  while (std::getline(index, line)) {
    const size_t folder = line.find(',');
    if (folder == std::string::npos) continue;
    const size_t prefix = line.find(',', folder + 1);
    if (prefix == std::string::npos) continue;
    forms.try_emplace(line.substr(0, folder) + "/" + line.substr(folder + 1, prefix - folder - 1));
  }
  std::vector<TraceSetPlace> sets;
  for (const auto& [name, form] : forms) {
    const fs::path prefix = traces / name;
    const std::string groups = far_groups(prefix.parent_path());
    sets.push_back({name, prefix.string(), groups, !form.first && !form.second});
    if (form.first && form.second) {
      sets.push_back({name + ".{rank}.json", prefix.string() + ".{rank}.json", groups, false});
    }
  }
  return sets;
}

/// Runs a program with its messages in `messages`; the wait status.
int run_program(const std::vector<std::string>& words, const fs::path& messages) {
  std::vector<char*> argv;
  for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) throw UserError("cannot start a process: " + std::string(std::strerror(errno)));
  if (child == 0) {
    const rlimit cpu{kMostCpuSeconds, kMostCpuSeconds};
    setrlimit(RLIMIT_CPU, &cpu);
    const bool redirected = std::freopen(messages.c_str(), "w", stderr) != nullptr &&
                            std::freopen("/dev/null", "w", stdout) != nullptr;
    if (redirected) execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

/// The message of a refusal without the folder that all sets share.
std::string reason(const fs::path& messages, const fs::path& traces) {
  std::string text = slurp(messages);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  text = text.substr(text.rfind('\n') + 1);
  for (const std::string& drop : {std::string("trainyard: "), traces.string() + "/"}) {
    for (size_t at = text.find(drop); at != std::string::npos; at = text.find(drop, at)) {
      text.erase(at, drop.size());
    }
  }
  return text;
}

Row run_set(const TraceSetPlace& set, const Arguments& arguments, const fs::path& scratch) {
  Row row;
  if (set.missing) {
    row.why = "in chakra_index.csv, but it has no file of rank 0";
    return row;
  }
  try {
    const chakra::TraceSet read = chakra::read_set(set.where, set.groups);
    row.ranks = std::to_string(read.ranks.size());
    row.nodes = std::to_string(chakra::summarise(read).nodes);
  } catch (const UserError&) {
    // Why, the run says.
  }
  const fs::path out = scratch / "out";
  const fs::path messages = scratch / "messages";
  fs::remove_all(out);
  std::vector<std::string> words = {arguments.trainyard.string(),
                                    "run",
                                    arguments.scenario.string(),
                                    "--trace",
                                    set.where,
                                    "--quiet",
                                    "--out",
                                    out.string()};
  if (!set.groups.empty()) {
    words.emplace_back("--set");
    words.push_back("workload.groups=" + set.groups);
  }
  const auto started = std::chrono::steady_clock::now();
  const int status = run_program(words, messages);
  row.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  row.why = reason(messages, arguments.traces);
  if (WIFSIGNALED(status)) {
    row.why = fmt::format("killed by signal {}", WTERMSIG(status));
    return row;
  }
  const int code = WEXITSTATUS(status);
  if (code == 2) row.verdict = Row::Verdict::refused;
  if (code != 0 && code != 2) row.why = fmt::format("exit code {}: {}", code, row.why);
  if (code != 0) return row;
  try {
    const auto doc = nlohmann::json::parse(slurp(out / "result.json"));
    row.ranks = std::to_string(doc.at("cluster").at("ranks").get<uint32_t>());
    row.load_ms = 1e3 * doc.at("host").at("load_wall_s").get<double>();
    row.step_us = 1e-3 * doc.at("step_time_ns").get<double>();
    row.bytes = doc.at("totals").at("payload_bytes").get<uint64_t>();
    row.events = doc.at("totals").at("events").get<uint64_t>();
    row.verdict = Row::Verdict::ran;
  } catch (const nlohmann::json::exception& e) {
    row.why = "result.json: " + std::string(e.what());
  }
  return row;
}

/// Cases of invalid/expected.csv: name -> "error", "warning" or "ok".
std::map<std::string, std::string> expectations(const fs::path& traces) {
  std::map<std::string, std::string> expected;
  std::ifstream in(traces / "invalid" / "expected.csv");
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {  // case,ranks,expected,...
    const size_t first = line.find(',');
    const size_t second = first == std::string::npos ? first : line.find(',', first + 1);
    const size_t third = second == std::string::npos ? second : line.find(',', second + 1);
    if (third == std::string::npos) continue;
    expected[line.substr(0, first)] = line.substr(second + 1, third - second - 1);
  }
  return expected;
}

/// A broken trace that runs is a failure.
void expect_refusal(const TraceSetPlace& set, const std::map<std::string, std::string>& expected,
                    Row& row) {
  const fs::path folder = fs::path(set.name).parent_path();
  if (folder.parent_path() != "invalid") return;
  const auto it = expected.find(folder.filename().string());
  if (it == expected.end() || it->second != "error" || row.verdict != Row::Verdict::ran) return;
  row.verdict = Row::Verdict::failed;
  row.why = "ran, though expected.csv calls it an error";
}

std::string escaped(std::string text, bool markdown) {
  if (!markdown) return text;
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

void print_row(const std::vector<std::string>& cells, bool markdown) {
  static constexpr int kWidths[] = {74, 5, 6, 9, 14, 12, 10, 7};
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (markdown) {
      line += "| " + cells[i] + " ";
    } else if (i == 0) {
      line += fmt::format("{:{}}", cells[i], kWidths[i]);
    } else if (i < std::size(kWidths)) {
      line += fmt::format("  {:>{}}", cells[i], kWidths[i]);
    } else {
      line += "  " + cells[i];
    }
  }
  if (markdown) line += "|";
  line.erase(line.find_last_not_of(' ') + 1);
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void print_set(const TraceSetPlace& set, const Row& row, bool markdown) {
  const bool ran = row.verdict == Row::Verdict::ran;
  const auto number = [&](const std::string& text) { return ran ? text : std::string("-"); };
  std::string why = escaped(row.why, markdown);
  if (row.verdict == Row::Verdict::refused) why = "refused: " + why;
  if (row.verdict == Row::Verdict::failed) why = "FAILED: " + why;
  if (ran) why.clear();
  print_row({escaped(set.name, markdown), row.ranks, row.nodes,
             number(fmt::format("{:.1f}", row.load_ms)),
             number(fmt::format("{:.{}f}", row.step_us, row.step_us < 1 ? 6 : 3)),
             number(std::to_string(row.bytes)), number(std::to_string(row.events)),
             fmt::format("{:.3f}", row.wall_s), why},
            markdown);
}

Arguments read_arguments(int argc, char** argv) {
  const fs::path source = TRAINYARD_SOURCE_DIR;
  Arguments a;
  a.traces = source / ".." / "shared" / "traces";
  if (const char* shared = std::getenv("TRAINYARD_SHARED")) a.traces = fs::path(shared) / "traces";
  a.scenario = source / "scenarios" / "trace-on-rails.yaml";
  a.trainyard = fs::read_symlink("/proc/self/exe").parent_path() / "trainyard";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--markdown") {
      a.markdown = true;
    } else if (word == "--traces" && i + 1 < argc) {
      a.traces = argv[++i];
    } else if (word == "--only" && i + 1 < argc) {
      a.only = argv[++i];
    } else if (word == "--trainyard" && i + 1 < argc) {
      a.trainyard = argv[++i];
    } else if (word == "--scenario" && i + 1 < argc) {
      a.scenario = argv[++i];
    } else {
      throw UserError("unknown argument " + word,
                      "use --traces DIR, --only TEXT, --markdown, --trainyard FILE, "
                      "--scenario FILE");
    }
  }
  a.traces = fs::absolute(a.traces).lexically_normal();
  if (!a.traces.has_filename()) a.traces = a.traces.parent_path();
  for (const fs::path& file : {a.trainyard, a.scenario}) {
    if (!fs::is_regular_file(file)) throw UserError("no file " + file.string());
  }
  return a;
}

int run_all(const Arguments& arguments) {
  if (!fs::is_directory(arguments.traces)) {
    fmt::print(stderr,
               "trace_sets: SKIPPED, nothing was run: no public traces in {}; give their folder "
               "with --traces DIR or TRAINYARD_SHARED\n",
               arguments.traces.string());
    fmt::print("{{\"sets\":0,\"ran\":0,\"refused\":0,\"failed\":0}}\n");
    return 0;
  }
  std::string scratch_name = (fs::temp_directory_path() / "trainyard-sets-XXXXXX").string();
  if (mkdtemp(scratch_name.data()) == nullptr) {
    throw UserError("cannot make a folder " + scratch_name + ": " + std::strerror(errno));
  }
  const fs::path scratch = scratch_name;
  const auto expected = expectations(arguments.traces);
  print_row({"set", "ranks", "nodes", "load ms", "step us", "bytes moved", "events", "wall s", ""},
            arguments.markdown);
  if (arguments.markdown) {
    print_row({"---", "--:", "--:", "--:", "--:", "--:", "--:", "--:", "---"}, true);
  }
  std::map<Row::Verdict, size_t> count;
  size_t sets = 0;
  for (const TraceSetPlace& set : find_sets(arguments.traces)) {
    if (set.name.find(arguments.only) == std::string::npos) continue;
    Row row = run_set(set, arguments, scratch);
    expect_refusal(set, expected, row);
    print_set(set, row, arguments.markdown);
    ++count[row.verdict];
    ++sets;
  }
  fs::remove_all(scratch);
  const size_t failed = count[Row::Verdict::failed];
  fmt::print("{{\"sets\":{},\"ran\":{},\"refused\":{},\"failed\":{}}}\n", sets,
             count[Row::Verdict::ran], count[Row::Verdict::refused], failed);
  if (sets == 0) throw UserError("no trace set in " + arguments.traces.string());
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_all(read_arguments(argc, argv));
  } catch (const UserError& e) {
    fmt::print(stderr, "trace_sets: {}\n", e.what());
    return 2;
  } catch (const fs::filesystem_error& e) {
    fmt::print(stderr, "trace_sets: {}: {}\n", e.path1().string(), e.code().message());
    return 2;
  }
}
