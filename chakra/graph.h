// SPDX-License-Identifier: MIT
// Dependencies of one rank, resolved from ids to indices and made acyclic where a stated repair
// allows it. The validator reports what happened here; whoever runs the trace uses `parents`.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "chakra/trace.h"

namespace trainyard::chakra {

/// Indices are positions in RankTrace::nodes. With duplicate ids the first node counts.
struct Dependencies {
  using Edge = std::pair<uint32_t, uint32_t>;         // child, parent
  using MissingEdge = std::pair<uint32_t, uint64_t>;  // child, id of the parent

  std::vector<uint32_t> duplicate_ids;  ///< nodes whose id an earlier node has
  std::vector<MissingEdge> missing_data, missing_ctrl;
  std::vector<Edge> dropped_ctrl;    ///< control edges that close a cycle
  std::vector<uint32_t> data_cycle;  ///< one cycle of data edges: each waits for the next; or empty

  /// Parents that a node waits for: data and remaining control edges, each once, ascending.
  [[nodiscard]] std::span<const uint32_t> parents(uint32_t node) const {
    return {flat.data() + offset[node], offset[node + 1] - offset[node]};
  }
  std::vector<size_t> offset;
  std::vector<uint32_t> flat;
};

/// Which control edges are dropped is a fixed rule. Nodes finish in dependency order; when none is
/// left that could, the node of the smallest id that only waits for control edges of its own cycle
/// goes first, and its edges that are still open are the dropped ones. Only edges that lie on a
/// cycle are ever dropped.
Dependencies resolve_dependencies(const RankTrace& trace);

/// One cycle of a graph given as parents (CSR), each node waiting for the next; empty if acyclic.
std::vector<uint32_t> find_cycle(const std::vector<size_t>& offset,
                                 const std::vector<uint32_t>& parents);

}  // namespace trainyard::chakra
