// SPDX-License-Identifier: MIT
// Reads Chakra execution traces, plain or gzip (told apart by content, not by name):
// length-delimited protobuf records of schemas 0.0.1 to 0.0.4, or JSON. Decoding is on the wire
// level, so that packed and unpacked dependencies, fields in any order and unknown fields all read
// alike; the schema is recognised from field numbers and wire types, as version strings say little.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "chakra/trace.h"

namespace trainyard::chakra {

/// What is known about the file as a whole.
struct FileHeader {
  std::string version;  ///< of the first record, as written; empty when there is none
  std::string schema;   ///< metadata attribute "schema"
  std::string dialect;  ///< see RankTrace::dialect; known once the file is read
};

/// Streams one file: `on_node` sees every node in file order; memory does not grow with the file,
/// but for at most 64 MiB of nodes that come before one that shows the dialect.
/// Throws UserError (file, and the byte, record or line) for a file that cannot be opened, is
/// empty, is truncated, or is no Chakra trace.
void read_file(const std::string& path, FileHeader& header,
               const std::function<void(Node&&)>& on_node);

/// Reads one file whole, METADATA process groups decoded.
RankTrace read_rank(const std::string& path);

/// The files of a trace set, rank 0 first. `where` is one of
///   a folder                     all its trace files, which must be one set
///   a prefix   "dir/llama"       dir/llama.{rank}.et, .eg or .json
///   a pattern  "dir/llama.{rank}.et"
/// each also with .gz. JSON counts only where there is no binary file: in the folder, or of the
/// prefix; a pattern names it. Throws UserError when nothing matches, when ranks are missing in
/// between, or when a folder holds several sets (lists their prefixes).
std::vector<std::string> find_rank_files(const std::string& where);

/// Reads a whole set: the files of `where` and the groups of `group_file`, by default
/// `comm_group.json` (or `*comm_group*.json`) beside them when it exists. Every rank may have a
/// group file of its own: `comm_group.{rank}.json`, or `group_file` with {rank} in its name.
/// Without group files the METADATA nodes count; without these every collective is of all ranks.
TraceSet read_set(const std::string& where, const std::string& group_file = {});

/// `{"1": [0, 1], "2": [2, 3]}`: group names to ranks, in the order of the file.
std::vector<ProcessGroup> read_group_file(const std::string& path);

}  // namespace trainyard::chakra
