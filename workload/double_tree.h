// SPDX-License-Identifier: MIT
// NCCL's double binary tree (src/graph/trees.cc): the second tree is the first one mirrored, or
// shifted where the number of nodes is odd, so that a node is inside one and a leaf of the other.
#pragma once

#include <cstdint>

namespace trainyard {

/// Parent of `node` of `n` in `tree` 0 or 1 of the pair; UINT32_MAX for the root.
uint32_t double_tree_parent(uint32_t node, uint32_t n, uint32_t tree);

/// Pieces in which `bytes` of a tree or chain follow each other: of half of NCCL's 4 MiB buffer / 8
/// steps, and no more than hide the depth.
int64_t tree_pieces(int64_t bytes);
/// Of an NVLSTree call: as many per lane, and more where few members let messages be many.
int64_t nvls_tree_pieces(int64_t bytes, int64_t lanes, int64_t members);

}  // namespace trainyard
