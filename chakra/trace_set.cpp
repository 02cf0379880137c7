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

/// "llama.12.et.gz" is rank 12 of "llama".
std::optional<RankedName> parse_name(std::string_view name) {
  strip(name, ".gz");
  if (!strip(name, ".et")) return std::nullopt;
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || !is_digits(name.substr(dot + 1))) return std::nullopt;
  return RankedName{std::string(name.substr(0, dot)),
                    static_cast<uint32_t>(std::stoul(std::string(name.substr(dot + 1))))};
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

/// All sets of a folder: prefix to (rank, file name).
std::map<std::string, std::vector<std::pair<uint32_t, std::string>>> sets_of(
    const Listing& listing) {
  std::map<std::string, std::vector<std::pair<uint32_t, std::string>>> sets;
  for (const std::string& file : listing.files) {
    if (const auto ranked = parse_name(file)) sets[ranked->prefix].emplace_back(ranked->rank, file);
  }
  return sets;
}

[[noreturn]] void nothing_in_folder(const std::string& where, const Listing& listing) {
  std::vector<std::string> unranked;
  for (const std::string& file : listing.files) {
    if (file.ends_with(".et") || file.ends_with(".et.gz")) unranked.push_back(file);
  }
  if (!unranked.empty()) {
    throw UserError(SourcePos{where, 0},
                    "no trace file is named {prefix}.{rank}.et; found " + some_of(unranked),
                    "rename them, rank 0 first, for example to trace.0.et");
  }
  if (!listing.folders.empty()) {
    throw UserError(
        SourcePos{where, 0},
        "the folder holds no *.et or *.et.gz itself, only folders: " + some_of(listing.folders),
        "name the one that holds the trace set");
  }
  throw UserError(SourcePos{where, 0}, "the folder holds no *.et or *.et.gz",
                  "name a folder with {prefix}.{rank}.et files");
}

std::string find_group_file(const fs::path& folder) {
  const fs::path usual = folder / "comm_group.json";
  std::error_code ec;
  if (fs::is_regular_file(usual, ec)) return usual.string();
  std::vector<std::string> found;
  for (const std::string& file : list(folder).files) {
    if (file.find("comm_group") != std::string::npos && file.ends_with(".json")) {
      found.push_back(file);
    }
  }
  if (found.size() > 1) {
    throw UserError(SourcePos{folder.string(), 0}, "several group files: " + some_of(found),
                    "say which one to use");
  }
  return found.empty() ? std::string() : (folder / found[0]).string();
}

}  // namespace

std::vector<std::string> find_rank_files(const std::string& where) {
  if (where.empty()) throw UserError("no trace named", "give a folder, a prefix or a pattern");
  if (where.find(kRankMark) != std::string::npos) return by_pattern(where);

  const fs::path path(where);
  std::error_code ec;
  if (fs::is_directory(path, ec)) {
    const Listing listing = list(path);
    const auto sets = sets_of(listing);
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
                    "no file " + path.filename().string() + ".{rank}.et or .et.gz",
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
  set.group_file = group_file.empty() ? find_group_file(folder_of(files[0])) : group_file;
  if (!set.group_file.empty()) set.groups = read_group_file(set.group_file);
  set.ranks.reserve(files.size());
  for (const std::string& file : files) set.ranks.push_back(read_rank(file));
  if (set.group_file.empty()) {
    // Every rank lists the groups that it knows; a name alone does not identify one.
    std::set<std::pair<std::string, std::vector<uint32_t>>> seen;
    for (const RankTrace& rank : set.ranks) {
      for (const ProcessGroup& group : rank.groups) {
        if (seen.emplace(group.name, group.ranks).second) set.groups.push_back(group);
      }
    }
  }
  return set;
}

}  // namespace trainyard::chakra
