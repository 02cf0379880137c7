// SPDX-License-Identifier: MIT
// Judges a trace set before anything is simulated.
//   error    cannot be simulated: data cycle, missing data parent, duplicate id, a collective that
//            a member never issues or issues with another type, size or order, unknown group,
//            receive without send, ...
//   warning  simulated after a stated repair: missing control parent (edge dropped), control edge
//            that closes a cycle (dropped), communication node on the CPU side without type and
//            size (becomes a host operation), zero bytes, unclaimed send, ...
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "chakra/trace.h"

namespace trainyard::chakra {

enum class Severity : uint8_t { warning, error };

struct Finding {
  Severity severity = Severity::warning;
  std::string code;     ///< stable short name, e.g. "missing_data_parent"
  std::string message;  ///< file, node id and name, what is wrong, what happens or what to do
  uint64_t count = 1;   ///< findings of one code in one file are folded; the message shows the first
};

/// All findings, errors first.
std::vector<Finding> validate(const TraceSet& set);

/// Counts as in the public summaries: nodes per type, edges, bytes per collective kind.
struct Summary {
  uint64_t nodes = 0, metadata = 0, mem = 0, comp = 0, send = 0, recv = 0, coll = 0, cpu_ops = 0;
  uint64_t data_edges = 0, ctrl_edges = 0;
  uint64_t missing_data_parents = 0, missing_ctrl_parents = 0;
  int64_t num_ops = 0, tensor_size = 0;
  uint64_t duration_us = 0, comp_duration_us = 0;
  int64_t bytes_send = 0, bytes_recv = 0;
  std::map<std::string, std::pair<uint64_t, int64_t>> collectives;  ///< "all_reduce" -> count, bytes
};

Summary summarise(const RankTrace& rank);
/// Sum over ranks.
Summary summarise(const TraceSet& set);

}  // namespace trainyard::chakra
