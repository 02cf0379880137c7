// SPDX-License-Identifier: MIT
// A trace set of few ranks as one of many: `factor` copies of all ranks, some of whose groups span
// the copies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "chakra/trace.h"

namespace trainyard::chakra {

struct ExpandOptions {
  uint32_t factor = 1;  ///< copies; data parallelism 2 becomes 64 with 32
  /// Groups that grow to `factor` times their members, by name. "*": those of all ranks, named or
  /// not (collectives without a group are everybody's). All others are copied with their ranks.
  std::vector<std::string> grow = {"*"};
};

/// What the calls of one kind on grown or copied groups come to. Sizes are Chakra's (Op::bytes of
/// sim/op_graph.h) summed over ranks; moved: payload that bandwidth-optimal algorithms send.
struct ExpandedTotal {
  std::string kind;  ///< "all-reduce", "send"
  bool grown = false;
  uint64_t calls_before = 0, calls = 0;  ///< counted once per rank
  int64_t size_before = 0, size = 0;
  int64_t moved_before = 0, moved = 0;
  int64_t moved_expected = 0;  ///< by the closed form, from the trace before
};

struct Expanded {
  TraceSet set;
  std::vector<ExpandedTotal> totals;  ///< by kind
};

/// Rank r of copy j becomes rank j x ranks + r, messages stay within their copy. The size of a
/// collective on a grown group follows what is parallel over data: what an all-gather gathers stays
/// as large, so that each member gives its part of the part; all other sizes stay.
/// Throws UserError where a group to grow is not there, a shard does not divide, or a grown
/// collective has no rule (gather, scatter).
Expanded expand(const TraceSet& set, const ExpandOptions& options);

}  // namespace trainyard::chakra
