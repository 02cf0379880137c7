// SPDX-License-Identifier: MIT
// What changes when, as far as ranks are concerned: GPUs that slow down, stop and come back, hosts
// that launch late, pause or exit, collectives that are called wrongly or never.
// Implemented in faults/. What happens to links reaches the fabric directly.
#pragma once

#include <cstdint>
#include <string>

#include "sim/op_graph.h"
#include "sim/units.h"

namespace trainyard {

/// What a rank does where its program calls a collective.
struct CollectiveCall {
  enum class What : uint8_t {
    programmed,
    skipped,  ///< goes on as if it were through; its next call meets what the others call now
    other,    ///< calls `kind` with `bytes` instead
    never     ///< never returns from the launch
  };
  What what = What::programmed;
  CollectiveKind kind = CollectiveKind::all_reduce;
  int64_t bytes = 0;
};

class FaultSource {
 public:
  virtual ~FaultSource() = default;
  /// When an op of `rank` that begins at `begin` and takes `work` on a healthy GPU ends: it is
  /// stretched for the part that overlaps a slow-down. Infinity: never.
  [[nodiscard]] virtual Time end_of_op(uint32_t rank, const OpGraph& graph, uint32_t op, Time begin,
                                       Time work) const = 0;
  /// The first instant from `at` on at which the GPU of `rank` takes on work. Infinity: never.
  [[nodiscard]] virtual Time runs_from(uint32_t rank, Time at) const = 0;
  /// When the host of `rank` gets an op that could begin at `at` to its GPU. Infinity: never.
  [[nodiscard]] virtual Time launches_at(uint32_t rank, uint32_t op, Time at) const {
    (void)rank, (void)op;
    return at;
  }
  /// When the process of `rank` exits; its GPU stops then, too. Infinity: at its end.
  [[nodiscard]] virtual Time exits_at(uint32_t rank) const {
    (void)rank;
    return Time::infinity();
  }
  /// What `rank` does at call number `nth`, from 0, of its program on `group`, at `at`.
  [[nodiscard]] virtual CollectiveCall call(uint32_t rank, const std::string& group, uint32_t nth,
                                            Time at) const {
    (void)rank, (void)group, (void)nth, (void)at;
    return {};
  }
};

}  // namespace trainyard
