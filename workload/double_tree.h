// SPDX-License-Identifier: MIT
// NCCL's double binary tree (src/graph/trees.cc): the second tree is the first one mirrored, or
// shifted where the number of nodes is odd, so that a node is inside one and a leaf of the other.
#pragma once

#include <cstdint>

namespace trainyard {

/// Parent of `node` of `n` in `tree` 0 or 1 of the pair; UINT32_MAX for the root.
uint32_t double_tree_parent(uint32_t node, uint32_t n, uint32_t tree);

}  // namespace trainyard
