// SPDX-License-Identifier: MIT
// Reads Chakra execution traces: length-delimited protobuf records, plain or gzip (told apart by
// content, not by name), schema 0.0.4. Decoding is on the wire level, so that packed and unpacked
// dependencies, fields in any order and unknown fields all read alike.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "chakra/trace.h"

namespace trainyard::chakra {

/// What the first record says about the file; empty when there is no such record.
struct FileHeader {
  std::string version;  ///< as written
  std::string schema;   ///< metadata attribute "schema"
};

/// Streams one file: `on_node` sees every node in file order; memory does not grow with the file.
/// Throws UserError (file, and the byte offset or record number) for a file that cannot be opened,
/// is empty, is truncated, or is not a Chakra trace of a supported schema.
void read_file(const std::string& path, FileHeader& header,
               const std::function<void(Node&&)>& on_node);

/// Reads one file whole, METADATA process groups decoded.
RankTrace read_rank(const std::string& path);

/// The files of a trace set, rank 0 first. `where` is one of
///   a folder                     all `*.et` / `*.et.gz` in it, which must be one set
///   a prefix   "dir/llama"       dir/llama.{rank}.et or .et.gz
///   a pattern  "dir/llama.{rank}.et"
/// Throws UserError when nothing matches, when ranks are missing in between, or when a folder
/// holds several sets (lists their prefixes).
std::vector<std::string> find_rank_files(const std::string& where);

/// Reads a whole set: the files of `where` and the groups of `group_file`, by default
/// `comm_group.json` (or `*comm_group*.json`) beside them when it exists.
TraceSet read_set(const std::string& where, const std::string& group_file = {});

/// `{"1": [0, 1], "2": [2, 3]}`: group names to ranks, in the order of the file.
std::vector<ProcessGroup> read_group_file(const std::string& path);

}  // namespace trainyard::chakra
