// SPDX-License-Identifier: MIT
// The kernels of one micro-batch on one rank: shapes, FLOPs and bytes of device memory.
#pragma once

#include <optional>
#include <vector>

#include "sim/op_graph.h"
#include "workload/generator/training.h"

namespace trainyard {

/// Kernels of a part of a layer; backward in two halves (see ScheduleKind::split_backward).
struct Part {
  std::vector<Kernel> forward, input, weight;
};

/// A matrix product is 2 m n k FLOPs, its backward twice that. The core of attention is
/// 2 x queries x keys x (query width + value width), half with causal, its backward 2.5 times that
/// (flash attention computes the scores again); nothing of the size of its square goes through
/// memory (A:F41). Elementwise kernels have bytes only.
class LayerWork {
 public:
  explicit LayerWork(const Training& training);

  Part norm;       ///< before a block
  Part residual;   ///< after a block
  Part qkv;        ///< projections before the core of attention
  Part core;       ///< of attention, whole
  Part core_ring;  ///< one of cp rounds of it
  Part proj;
  Part mlp;         ///< dense
  Part shared_mlp;  ///< shared experts
  Part router;      ///< with the permutation of tokens
  Part experts;     ///< with an even load
  Part combine;     ///< weighted sum of what comes back
  Part embedding;
  Part head;  ///< output layer and loss

 private:
  void gemm(Part& part, int64_t m, int64_t n, int64_t k, int64_t copies = 1,
            std::optional<Kernel::Precision> precision = {}) const;
  void mlp_of(Part& part, int64_t tokens, int64_t width, int64_t copies) const;
  static void elementwise(Part& part, int64_t forward, int64_t backward);
  [[nodiscard]] Part core_of(int64_t rounds) const;
  const Training& t_;
};

}  // namespace trainyard
