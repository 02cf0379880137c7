// SPDX-License-Identifier: MIT
// Floating-point operations of a training step, by each of the conventions in use. Papers differ
// by up to a third in what they call model FLOPs: convert before comparing.
#pragma once

#include <cstdint>

#include "workload/generator/training.h"

namespace trainyard {

struct StepFlops {
  /// 6 N_matmul + 12 L h s per token: attention counted whole, no recompute. For GPT this is
  /// 72 B s L h^2 (1 + s/6h + V/12hL) (arXiv:2205.05198).
  double model = 0;
  /// The same with half of attention: what a causal mask leaves.
  double causal = 0;
  /// 6 N_matmul per token, without attention.
  double parameters_only = 0;
  /// 3 (2 N + 4 L h s) per token with all parameters, embeddings included (llm-foundry).
  double all_parameters = 0;
  /// `model` and what `recompute` does again. For GPT with full recompute this is
  /// 96 B s L h^2 (1 + s/6h + V/16Lh) (arXiv:2104.04473).
  double hardware = 0;
};

/// Of the whole job. N_matmul: attention, MLP, top-k experts, router and output layer.
StepFlops step_flops(const Training& t);
/// Weights that a token is multiplied by in a layer.
int64_t matmul_parameters(const ModelCard& m, int64_t layer);

}  // namespace trainyard
