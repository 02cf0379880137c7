// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "chakra/trace.h"

namespace trainyard::chakra {

/// Writes one rank in schema 0.0.4; gzip when `path` ends in ".gz". The file appears whole or not
/// at all. Attributes are written in the kinds that MLCommons' feeder reads: num_ops, comm_size
/// and comm_type as int64, tensor_size as uint64, comm_src / comm_dst / comm_tag as int32,
/// is_cpu_op as bool, pg_name as string. Throws UserError when the file cannot be written.
void write_rank(const std::string& path, const RankTrace& trace);

/// Writes `{"name": [ranks...], ...}`.
void write_group_file(const std::string& path, const std::vector<ProcessGroup>& groups);

}  // namespace trainyard::chakra
