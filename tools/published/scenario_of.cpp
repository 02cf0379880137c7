// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/published/published_run.h"

namespace trainyard {
namespace {

bool rack(const PublishedRun& r) {
  return r.gpu == "GB200" || r.gpu == "GB300";
}

int64_t gpus_per_node(const PublishedRun& r, int64_t gpus) {
  const int64_t n = rack(r) ? 4 : std::min<int64_t>(8, gpus);
  return gpus % n == 0 ? n : std::gcd(gpus, n);
}

std::string model_block(const PublishedRun& r) {
  std::string m = fmt::format("layers: {}, hidden: {}, heads: {}, vocab: {}, gated: {}", r.layers,
                              r.hidden, r.heads, r.vocab, r.gated);
  if (r.ffn > 0) m += fmt::format(", ffn: {}", r.ffn);
  if (r.latent) {
    const auto& l = r.latent_sizes;
    m += fmt::format(", latent: {{q_rank: {}, kv_rank: {}, nope: {}, rope: {}, value: {}}}", l[0],
                     l[1], l[2], l[3], l[4]);
  } else {
    m += fmt::format(", kv_heads: {}", r.kv_heads);
    if (r.hidden % r.heads != 0 || r.head != r.hidden / r.heads) {
      m += fmt::format(", head_size: {}", r.head);
    }
  }
  if (r.experts > 0) {
    m += fmt::format(", experts: {}, topk: {}, expert_ffn: {}", r.experts, r.topk, r.expert_ffn);
    if (r.shared_ffn > 0) m += fmt::format(", shared_ffn: {}", r.shared_ffn);
    if (r.dense_layers > 0) m += fmt::format(", dense_layers: {}", r.dense_layers);
  }
  if (!r.gated) m += ", biases: true";
  return m;
}

std::string layout_block(const PublishedRun& r, int64_t dp) {
  const bool split = r.sequence_parallel || (r.experts > 0 && r.tp > 1);
  std::string l = fmt::format("tp: {}, cp: {}, pp: {}, dp: {}, zero: {}, sequence_parallel: {}",
                              r.tp, r.cp, r.pp, dp, r.zero, split);
  if (r.cp > 1) l += ", context: " + r.context;
  if (r.experts > 0) l += fmt::format(", ep: {}, expert_tp: {}", r.ep, r.expert_tp);
  if (r.shard > 0 && r.zero > 0 && r.shard < dp * r.cp && dp % r.shard == 0 && r.ep == 1) {
    l += fmt::format(", shard: {}", r.shard);
  }
  if (!split && !r.whole_activations && r.tp > 1 && r.pp > 1) l += ", scatter_gather: true";
  if (r.heads % r.tp != 0 || r.ffn % r.tp != 0) l += ", uneven_tp: true";
  // Where a layer is short at both ends, so that embedding and output layer have stages alone.
  const int64_t stages = r.pp * (r.schedule == "interleaved" ? r.chunks : 1);
  if (r.pp > 1 && r.layers == stages - 2) {
    l += ", layers: \"0";
    for (int64_t i = 0; i < stages - 2; ++i) l += " 1";
    l += " 0\"";
  }
  return l;
}

}  // namespace

std::string engine_for(const PublishedRun& r) {
  const bool shared = r.experts > 0 || r.context == "all-to-all" || r.zero >= 2 || r.tp > 8 ||
                      (r.zero == 1 && r.pp == 1);
  return shared ? "flow, fast_path: exact" : "analytic";
}

int64_t fewest_replicas(const PublishedRun& r) {
  const int64_t base = r.tp * r.cp * r.pp;
  int64_t need = 1;
  if (r.experts > 0) need = r.ep * r.expert_tp / std::gcd(r.ep * r.expert_tp, r.tp * r.cp);
  const int64_t fill = base < 64 ? 64 / base : 0;
  const auto fits = [&](int64_t d) { return r.tp * r.cp * d % (r.ep * r.expert_tp) == 0; };
  int64_t d = std::min(r.dp, std::max({need, fill, int64_t{2}}));
  while (d < r.dp && !fits(d)) ++d;
  // Whole nodes.
  const int64_t least = d;
  while (d < r.dp && (base * d % 8 != 0 || !fits(d))) ++d;
  return base * d % 8 == 0 && fits(d) ? d : least;
}

std::string scenario_of(const PublishedRun& r, int64_t dp, int64_t microbatches,
                        const std::string& engine, double scale_up, double nic) {
  const int64_t gpus = r.tp * r.cp * r.pp * dp;
  const int64_t node = gpus_per_node(r, gpus);
  const int64_t nodes = gpus / node;
  std::string domain;
  if (node == 4) {
    int64_t most = 1;  // nodes of a rack
    for (int64_t n = 1; n <= 18; ++n) {
      if (nodes % n == 0) most = n;
    }
    domain = fmt::format(", domain: {}", 4 * most);
  }
  std::string schedule = r.schedule;
  if (schedule == "interleaved") schedule += fmt::format(", chunks: {}", r.chunks);
  std::string y = "name: " + r.id + "\n";
  y +=
      fmt::format("cluster: {{nodes: {}, gpus_per_node: {}, device: {}}}\n", nodes, node, r.device);
  y += fmt::format(
      "fabric:\n  topology: {{kind: rail-optimized, tiers: 2, leaf_radix: 128, nic: {{rate: "
      "{:.4f}Gbps}}, scale_up: {{kind: nvswitch, rate: {:.4f}GBps{}}}}}\n",
      r.nic_gbits * nic, r.scale_up_gbytes * scale_up, domain);
  y += "workload:\n  model: {" + model_block(r) + "}\n  software: " + r.software + "\n";
  y += "  layout: {" + layout_block(r, dp) + "}\n  schedule: {kind: " + schedule + "}\n";
  y += fmt::format("  batch: {{global: {}, micro: {}, sequence: {}}}\n",
                   dp * r.micro_batch * microbatches, r.micro_batch, r.sequence);
  y += "  recompute: " + r.recompute + "\n";
  if (r.recompute_share < 1) y += fmt::format("  recompute_layers: {:.4g}\n", r.recompute_share);
  y += "  precision: {compute: " + r.precision + "}\n";
  y += "  framework: " + r.framework + "\n";
  y += fmt::format("  attention: {}\n  causal: {}\n", r.scores ? "scores" : "flash", !r.scores);
  y += fmt::format("  gradients: {{overlap: {}}}\n", r.gradient_overlap || r.zero >= 2);
  if (r.tensor_overlap && r.sequence_parallel) y += "  overlap: {tensor: 4}\n";
  y += "memory: {headroom: off}\n";
  y += fmt::format("compute: {{model: fitted, ranks: {}}}\n", r.gpus);
  y += "simulation: {engine: " + engine + "}\n";
  return y;
}

}  // namespace trainyard
