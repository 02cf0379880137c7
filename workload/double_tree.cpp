// SPDX-License-Identifier: MIT
#include "workload/double_tree.h"

#include <algorithm>

namespace trainyard {
namespace {

constexpr int64_t kPieceBytes = 256 * 1024;
constexpr int64_t kMaxPieces = 64, kMaxNvlsPieces = 256;
constexpr int64_t kMostMembersTimesPieces = 16384;

/// Parent of node `i` of `n` in NCCL's binary tree, or UINT32_MAX for node 0.
uint32_t binary_parent(uint32_t i, uint32_t n) {
  if (i == 0) return UINT32_MAX;
  const uint32_t bit = i & (~i + 1);
  const uint32_t up = (i ^ bit) | (bit << 1);
  return up < n ? up : i ^ bit;
}

}  // namespace

uint32_t double_tree_parent(uint32_t i, uint32_t n, uint32_t tree) {
  if (tree == 0) return binary_parent(i, n);
  if (n % 2 == 0) {
    const uint32_t up = binary_parent(n - 1 - i, n);
    return up == UINT32_MAX ? UINT32_MAX : n - 1 - up;
  }
  const uint32_t up = binary_parent((i + n - 1) % n, n);
  return up == UINT32_MAX ? UINT32_MAX : (up + 1) % n;
}

int64_t tree_pieces(int64_t bytes) {
  return std::clamp<int64_t>((bytes + kPieceBytes - 1) / kPieceBytes, 1, kMaxPieces);
}

int64_t nvls_tree_pieces(int64_t bytes, int64_t lanes, int64_t members) {
  const int64_t most = std::clamp(kMostMembersTimesPieces / members, kMaxPieces, kMaxNvlsPieces);
  // Two, one for each tree.
  return std::min(bytes,
                  std::clamp<int64_t>((bytes / lanes + kPieceBytes - 1) / kPieceBytes, 2, most));
}

}  // namespace trainyard
