// SPDX-License-Identifier: MIT
// Finds the files that make up a trace set, and its process groups.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "chakra/reader.h"
#include "sim/errors.h"

namespace trainyard::chakra {

namespace fs = std::filesystem;

namespace {

constexpr uintmax_t kMaxGroupFileBytes = 256U << 20;
constexpr std::string_view kRankMark = "{rank}";

struct RankedName {
  std::string prefix;
  uint32_t rank = 0;
  bool json = false;
};

bool is_digits(std::string_view text) {
  // More digits than any cluster has ranks are a date or a hash.
  return !text.empty() && text.size() <= 7 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool strip(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

bool is_group_file(std::string_view name) {
  return name.find("comm_group") != std::string_view::npos && name.ends_with(".json");
}

/// "llama.12.et.gz" is rank 12 of "llama".
std::optional<RankedName> parse_name(std::string_view name) {
  if (is_group_file(name)) return std::nullopt;
  strip(name, ".gz");
  const bool json = strip(name, ".json");
  if (!json && !strip(name, ".et") && !strip(name, ".eg")) return std::nullopt;
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || !is_digits(name.substr(dot + 1))) return std::nullopt;
  return RankedName{std::string(name.substr(0, dot)),
                    static_cast<uint32_t>(std::stoul(std::string(name.substr(dot + 1)))), json};
}

struct Listing {
  std::vector<std::string> files;    // names, sorted
  std::vector<std::string> folders;  // likewise
};

Listing list(const fs::path& folder) {
  Listing listing;
  std::error_code ec;
  fs::directory_iterator it(folder, ec);
  if (ec) {
    throw UserError(SourcePos{folder.string(), 0}, "cannot list the folder: " + ec.message());
  }
  for (const fs::directory_iterator end; it != end; it.increment(ec)) {
    std::error_code ignored;
    const bool is_folder = it->is_directory(ignored);
    (is_folder ? listing.folders : listing.files).push_back(it->path().filename().string());
    if (ec) break;
  }
  std::sort(listing.files.begin(), listing.files.end());
  std::sort(listing.folders.begin(), listing.folders.end());
  return listing;
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < names.size() && i < kShown; ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kShown) text += ", ... (" + std::to_string(names.size()) + " in all)";
  return text;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// Files by rank, without gaps, from 0.
std::vector<std::string> in_rank_order(const std::string& where, const fs::path& folder,
                                       const std::vector<std::pair<uint32_t, std::string>>& found) {
  std::map<uint32_t, std::string> by_rank;
  for (const auto& [rank, name] : found) {
    const auto [it, inserted] = by_rank.emplace(rank, name);
    if (!inserted) {
      throw UserError(
          SourcePos{where, 0},
          "rank " + std::to_string(rank) + " is there twice: " + it->second + " and " + name,
          "keep one of the two files");
    }
  }
  std::vector<std::string> files;
  for (const auto& [rank, name] : by_rank) {
    if (rank != files.size()) {
      throw UserError(SourcePos{where, 0},
                      "the file of rank " + std::to_string(files.size()) +
                          " is missing (ranks go up to " + std::to_string(by_rank.rbegin()->first) +
                          ")",
                      "add it; ranks start at 0 and have no gaps");
    }
    files.push_back((folder / name).string());
  }
  return files;
}

std::vector<std::string> by_pattern(const std::string& where) {
  const fs::path path(where);
  const std::string name = path.filename().string();
  const size_t mark = name.find(kRankMark);
  if (mark == std::string::npos || where.find(kRankMark) != where.rfind(kRankMark)) {
    throw UserError(SourcePos{where, 0}, "{rank} must stand once, in the file name",
                    "write for example traces/llama.{rank}.et");
  }
  const std::string before = name.substr(0, mark);
  const std::string after = name.substr(mark + kRankMark.size());
  const fs::path folder = folder_of(path);
  const Listing listing = list(folder);
  for (const std::string& suffix : {after, after + ".gz"}) {
    std::vector<std::pair<uint32_t, std::string>> found;
    for (const std::string& file : listing.files) {
      std::string_view middle = file;
      if (!middle.starts_with(before)) continue;
      middle.remove_prefix(before.size());
      if (!strip(middle, suffix) || !is_digits(middle)) continue;
      found.emplace_back(static_cast<uint32_t>(std::stoul(std::string(middle))), file);
    }
    if (!found.empty()) return in_rank_order(where, folder, found);
  }
  throw UserError(SourcePos{where, 0}, "no file matches this pattern",
                  "check the folder and the name");
}

using Sets = std::map<std::string, std::vector<std::pair<uint32_t, std::string>>>;

/// All sets of a folder: prefix to (rank, file name). JSON beside binary files of one prefix is the
/// same trace once more, or something else: a pattern with {rank} asks for it.
Sets sets_of(const Listing& listing) {
  Sets binary;
  Sets json;
  for (const std::string& file : listing.files) {
    if (const auto ranked = parse_name(file)) {
      (ranked->json ? json : binary)[ranked->prefix].emplace_back(ranked->rank, file);
    }
  }
  binary.merge(json);
  return binary;
}

bool all_json(const Sets::mapped_type& files) {
  return std::all_of(files.begin(), files.end(),
                     [](const auto& file) { return parse_name(file.second)->json; });
}

[[noreturn]] void nothing_in_folder(const std::string& where, const Listing& listing) {
  std::vector<std::string> unranked;
  for (const std::string& file : listing.files) {
    for (const char* ending : {".et", ".et.gz", ".eg", ".eg.gz"}) {
      if (file.ends_with(ending)) unranked.push_back(file);
    }
  }
  if (!unranked.empty()) {
    throw UserError(SourcePos{where, 0},
                    "no trace file is named {prefix}.{rank}.et; found " + some_of(unranked),
                    "rename them, rank 0 first, for example to trace.0.et");
  }
  if (!listing.folders.empty()) {
    throw UserError(SourcePos{where, 0},
                    "the folder holds no *.et, *.eg or *.json trace itself, only folders: " +
                        some_of(listing.folders),
                    "name the one that holds the trace set");
  }
  throw UserError(SourcePos{where, 0}, "the folder holds no *.et, *.eg or *.json trace",
                  "name a folder with {prefix}.{rank}.et files");
}

/// A file, a pattern with {rank} when every rank has its own, or "".
std::string find_group_file(const fs::path& folder, size_t ranks) {
  const fs::path usual = folder / "comm_group.json";
  std::error_code ec;
  if (fs::is_regular_file(usual, ec)) return usual.string();
  std::vector<std::string> found;
  for (const std::string& file : list(folder).files) {
    if (is_group_file(file)) found.push_back(file);
  }
  if (found.size() > 1) {
    // "comm_group.0.json", "run_comm_group_0.json": the number before the ending is the rank.
    std::set<std::string> patterns;
    for (const std::string& file : found) {
      std::string_view stem = file;
      strip(stem, ".json");
      const size_t digits = stem.find_last_not_of("0123456789") + 1;
      patterns.insert(is_digits(stem.substr(digits))
                          ? std::string(stem.substr(0, digits)) + "{rank}.json"
                          : file);
    }
    if (patterns.size() == 1 && found.size() == ranks) return (folder / *patterns.begin()).string();
    throw UserError(SourcePos{folder.string(), 0}, "several group files: " + some_of(found),
                    "say which one to use");
  }
  return found.empty() ? std::string() : (folder / found[0]).string();
}

std::string with_rank(std::string pattern, size_t rank) {
  return pattern.replace(pattern.find(kRankMark), kRankMark.size(), std::to_string(rank));
}

}  // namespace

std::vector<std::string> find_rank_files(const std::string& where) {
  if (where.empty()) throw UserError("no trace named", "give a folder, a prefix or a pattern");
  if (where.find(kRankMark) != std::string::npos) return by_pattern(where);

  const fs::path path(where);
  std::error_code ec;
  if (fs::is_directory(path, ec)) {
    const Listing listing = list(path);
    Sets sets = sets_of(listing);
    // Likewise for a folder: binary files are what it is about.
    if (!std::all_of(sets.begin(), sets.end(), [](const auto& s) { return all_json(s.second); })) {
      std::erase_if(sets, [](const auto& s) { return all_json(s.second); });
    }
    if (sets.size() == 1) return in_rank_order(where, path, sets.begin()->second);
    if (sets.size() > 1) {
      std::vector<std::string> prefixes;
      for (const auto& [prefix, files] : sets) prefixes.push_back(prefix);
      throw UserError(SourcePos{where, 0},
                      "the folder holds several trace sets: " + some_of(prefixes),
                      "name one, for example " + (path / prefixes[0]).string());
    }
    // "jobs/a" may be a folder of other things beside jobs/a.0.et.
    if (path.has_filename() && fs::is_directory(folder_of(path), ec)) {
      const auto beside = sets_of(list(folder_of(path)));
      if (const auto it = beside.find(path.filename().string()); it != beside.end()) {
        return in_rank_order(where, folder_of(path), it->second);
      }
    }
    nothing_in_folder(where, listing);
  }
  if (fs::exists(path, ec)) {
    const auto ranked = parse_name(path.filename().string());
    throw UserError(SourcePos{where, 0}, "is one file, not a trace set",
                    ranked ? "name the set: " + (path.parent_path() / ranked->prefix).string()
                           : "name a folder with {prefix}.{rank}.et files");
  }
  const fs::path folder = folder_of(path);
  if (!fs::is_directory(folder, ec)) {
    throw UserError(SourcePos{where, 0}, "no such file or folder", "check the path");
  }
  const auto sets = sets_of(list(folder));
  const auto it = sets.find(path.filename().string());
  if (it == sets.end()) {
    std::vector<std::string> prefixes;
    for (const auto& [prefix, files] : sets) prefixes.push_back(prefix);
    throw UserError(SourcePos{where, 0},
                    "no file " + path.filename().string() + ".{rank}.et, .eg or .json, also .gz",
                    prefixes.empty() ? "check the path" : "the folder holds " + some_of(prefixes));
  }
  return in_rank_order(where, folder, it->second);
}

std::vector<ProcessGroup> read_group_file(const std::string& path) {
  const std::string remedy = R"(write {"name": [rank, ...], ...})";
  std::error_code ec;
  if (const uintmax_t size = fs::file_size(path, ec); !ec && size > kMaxGroupFileBytes) {
    throw UserError(SourcePos{path, 0}, "the group file is larger than 256 MiB", remedy);
  }
  std::ifstream in(path, std::ios::binary);
  if (!in || fs::is_directory(path, ec)) {
    throw UserError(SourcePos{path, 0}, "cannot open the group file", "check the path");
  }
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());

  // The JSON library keeps one of several equal keys without a word.
  std::set<std::string> seen;
  std::string twice;
  const auto watch = [&](int depth, nlohmann::ordered_json::parse_event_t event,
                         nlohmann::ordered_json& value) {
    if (depth == 1 && event == nlohmann::ordered_json::parse_event_t::key) {
      if (!seen.insert(value.get<std::string>()).second) twice = value.get<std::string>();
    }
    return true;
  };
  nlohmann::ordered_json root;
  try {
    root = nlohmann::ordered_json::parse(text, watch);
  } catch (const nlohmann::ordered_json::parse_error& error) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte, text.size()));
    throw UserError(SourcePos{path, 1 + static_cast<int>(std::count(text.begin(), end, '\n'))},
                    "the group file is not valid JSON", remedy);
  } catch (const nlohmann::ordered_json::exception&) {
    throw UserError(SourcePos{path, 0}, "the group file cannot be read as JSON", remedy);
  }
  if (!root.is_object())
    throw UserError(SourcePos{path, 0}, "the group file is not a JSON object", remedy);
  if (!twice.empty()) {
    throw UserError(SourcePos{path, 0}, "group \"" + twice + "\" is defined twice",
                    "remove one of them");
  }
  std::vector<ProcessGroup> groups;
  for (const auto& [name, ranks] : root.items()) {
    ProcessGroup group;
    group.name = name;
    if (!ranks.is_array()) {
      throw UserError(SourcePos{path, 0}, "group \"" + name + "\" is not a list of ranks", remedy);
    }
    for (const auto& rank : ranks) {
      if (!rank.is_number_unsigned() || rank.get<uint64_t>() > UINT32_MAX) {
        throw UserError(
            SourcePos{path, 0},
            "group \"" + name + "\" has a member that is no rank: " +
                rank.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace)
                    .substr(0, 40),
            remedy);
      }
      group.ranks.push_back(static_cast<uint32_t>(rank.get<uint64_t>()));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

TraceSet read_set(const std::string& where, const std::string& group_file) {
  TraceSet set;
  const std::vector<std::string> files = find_rank_files(where);
  set.group_file =
      group_file.empty() ? find_group_file(folder_of(files[0]), files.size()) : group_file;
  const bool one_each = set.group_file.find(kRankMark) != std::string::npos;
  if (!set.group_file.empty() && !one_each) set.groups = read_group_file(set.group_file);
  set.ranks.reserve(files.size());
  for (const std::string& file : files) set.ranks.push_back(read_rank(file));
  if (set.group_file.empty() || one_each) {
    // Every rank lists the groups that it knows; a name alone does not identify one.
    std::set<std::pair<std::string, std::vector<uint32_t>>> seen;
    for (size_t rank = 0; rank < files.size(); ++rank) {
      const auto groups =
          one_each ? read_group_file(with_rank(set.group_file, rank)) : set.ranks[rank].groups;
      for (const ProcessGroup& group : groups) {
        if (seen.emplace(group.name, group.ranks).second) set.groups.push_back(group);
      }
    }
  }
  return set;
}

}  // namespace trainyard::chakra
