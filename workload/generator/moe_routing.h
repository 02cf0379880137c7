// SPDX-License-Identifier: MIT
// Which tokens go to which experts: loads drawn anew for every layer and step, and the
// all-to-all(v) sizes that follow.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "sim/exchange.h"

namespace trainyard {

struct MoeRoutingConfig {
  uint64_t seed = 1;
  uint32_t experts = 0, topk = 0;
  uint32_t layers = 0, microbatches = 0;
  int64_t tokens = 0;       ///< that one member routes per micro-batch and layer
  int64_t token_bytes = 0;  ///< of a token in dispatch
  int64_t combine_bytes = 0;
  /// Loads are log-normal: exp(sigma z), the same for all senders, times exp(source_sigma z) of
  /// each sender and micro-batch. Both 0: even.
  double sigma = 0, source_sigma = 0;
  double capacity = 0;  ///< tokens that a sender may give an expert, over the even share; 0: any
};

/// Exchange numbers: see exchange().
class MoeRouting final : public Exchanges {
 public:
  explicit MoeRouting(const MoeRoutingConfig& config);
  /// The number of an exchange: dispatch (to the experts) or combine (back). Gradients take the
  /// same ways. Throws UserError when a job has more than 2^31.
  [[nodiscard]] uint32_t exchange(uint32_t step, uint32_t microbatch, uint32_t layer,
                                  bool combine) const;
  [[nodiscard]] std::shared_ptr<const std::vector<int64_t>> sizes(uint32_t group, uint32_t members,
                                                                  uint32_t exchange) const override;
  [[nodiscard]] uint64_t load_q32(uint32_t group, uint32_t members, uint32_t exchange,
                                  uint32_t member) const override;
  /// Tokens from sender to expert, row-major by sender.
  [[nodiscard]] std::vector<int64_t> tokens(uint32_t group, uint32_t members,
                                            uint32_t exchange) const;

 private:
  struct Cached {
    std::shared_ptr<const std::vector<int64_t>> sizes;  // of tokens
    std::vector<uint64_t> load_q32;
  };
  const Cached& cached(uint32_t group, uint32_t members, uint32_t exchange) const;

  MoeRoutingConfig config_;
  int64_t sigma_q32_, source_sigma_q32_;  // times log2(e)
  mutable std::mutex mutex_;
  mutable std::map<std::pair<uint64_t, uint64_t>, Cached> cache_;
};

/// 2^x for x in 1/2^32, result in 1/2^32. Integers only: the same on every machine.
uint64_t exp2_q32(int64_t x_q32);

/// Standard normal deviate in 1/2^32: the sum of twelve uniform ones less six.
int64_t normal_q32(uint64_t seed, uint32_t purpose, uint64_t object, uint64_t counter);

}  // namespace trainyard
