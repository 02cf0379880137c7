// SPDX-License-Identifier: MIT
// What a collective takes when NCCL runs it, on top of a fabric that moves bytes.
//
//   x    = S / algbw                      all bytes at the rate that is measured in the long run
//   fill = D x / (x + D)                  the pipeline: a small message is one chunk, a large adds
//   D T    = latency + ll + x + fill - hidden
//
// latency: NCCL's own constants by release, algorithm and protocol, plus what a transport adds per
// step between domains. ll: small LL messages over several channels. hidden: steps of a ring that
// its transfer hides (nccl-measured 2.6). S bytes, D by algorithm; a domain is a scale-up domain.
//
// The messages stay the fabric's: they are widened so that links are as efficient as measured, and
// leave later by what T has beyond the time that they take when nobody else sends. So contention
// is simulated, and alone a call takes T, or what its messages take where that is longer. The sums
// are in whole picoseconds. Constants and where they come from: docs/collectives.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/collective.h"
#include "sim/params.h"
#include "workload/nccl_tuning.h"

namespace trainyard {

/// What the model has to know of a fabric. Rates are those of one GPU, per direction.
struct FabricFacts {
  int64_t nic_bps = 400'000'000'000;         ///< nominal
  int64_t scale_up_bps = 3'600'000'000'000;  ///< nominal
  int64_t nic_payload_bps = 0;               ///< of long messages, headers and ACKs off; 0: nominal
  int64_t scale_up_payload_bps = 0;          ///< likewise
  Time wire_inside, wire_between;            ///< of a message of a few bytes, alone
  Generation generation = Generation::hopper;
};

/// Parts of what a call takes; see above.
struct NcclCost {
  Time latency, ll, transfer, fill, hidden;
  Time messages;  ///< what they take alone
  /// Bytes on the wire for a million of the protocol, inside a domain and between.
  int64_t inside_ppm = 1'000'000, between_ppm = 1'000'000;

  [[nodiscard]] Time total() const { return latency + ll + transfer + fill - hidden; }
  /// From the call until its first message.
  [[nodiscard]] Time delay() const { return total() > messages ? total() - messages : Time(); }
};

/// Where the members of a call are.
struct NcclShape {
  explicit NcclShape(const CollectiveRequest& request);
  int64_t n = 0, domains = 0;
  int64_t gpus = 0;    ///< of the fullest domain
  int64_t fewest = 0;  ///< of the emptiest
};

/// Keys "nccl.*" of the `collectives` block.
const std::vector<ParamSpec>& nccl_params();

class NcclModel {
 public:
  /// Throws UserError for a release that is not known.
  NcclModel(const Params& collectives, const FabricFacts& facts);

  /// Whether NCCL would have the algorithm for this call without being asked for it.
  [[nodiscard]] bool offers(const std::string& algorithm, const CollectiveRequest& request,
                            const NcclShape& shape) const;
  /// Nothing: NCCL has no such algorithm, not with that protocol, or not for such calls.
  [[nodiscard]] std::optional<NcclCost> cost(const std::string& algorithm, Protocol protocol,
                                             const CollectiveRequest& request,
                                             const NcclShape& shape) const;
  [[nodiscard]] std::optional<NcclCost> cost(const std::string& algorithm, Protocol protocol,
                                             const CollectiveRequest& request) const {
    return cost(algorithm, protocol, request, NcclShape(request));
  }
  /// What is compared where the fastest is chosen; infinite where there is no cost().
  [[nodiscard]] Time estimate(const std::string& algorithm, Protocol protocol,
                              const CollectiveRequest& request, const NcclShape& shape) const;

 private:
  using Shape = NcclShape;
  [[nodiscard]] NcclCost ring(Protocol protocol, const CollectiveRequest& r, const Shape& s) const;
  [[nodiscard]] NcclCost tree(Protocol protocol, const CollectiveRequest& r, const Shape& s) const;
  [[nodiscard]] NcclCost nvls(const CollectiveRequest& r, const Shape& s) const;
  [[nodiscard]] NcclCost exchange(const CollectiveRequest& r, const Shape& s) const;
  [[nodiscard]] NcclCost steps(const std::string& algorithm, const CollectiveRequest& r,
                               const Shape& s) const;
  [[nodiscard]] bool switch_reduces(int64_t gpus) const;
  [[nodiscard]] Time network_fill() const;
  [[nodiscard]] int64_t scale_up(int64_t share_ppm) const;
  void launch(const Shape& s, bool grouped, NcclCost& c) const;

  enum class Launch : uint8_t { processes, threads, torch };
  NcclRelease release_;
  FabricFacts facts_;
  int64_t network_ppm_;  // of a NIC's rate
  Time hop_, call_, rendezvous_;
  int64_t ll_rate_ = 0;  // bytes per second between domains; 0: no limit
  bool nvls_ = true, fills_ = true, in_place_ = true, own_times_ = false;
  Launch launch_ = Launch::processes;
  // A transport with algorithms of its own: cost of a step; zero: NCCL's.
  Time step_all_gather_, step_all_reduce_, step_doubling_;
  int64_t first_nic_ = 0;  // bytes of a message that go over the first of two NICs
};

/// `inner` as `model` runs it; both outlive it.
std::unique_ptr<CollectiveAlgorithm> with_protocol(const CollectiveAlgorithm& inner,
                                                   const NcclModel& model, Protocol protocol);

}  // namespace trainyard
