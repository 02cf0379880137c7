// SPDX-License-Identifier: MIT
// What happens to ranks: GPUs that slow down, stop and come back, hosts that launch late, pause or
// exit, collectives called wrongly. Speeds are constant between the ends of intervals, so the end
// of an op is found by walking over them; whole picoseconds, and integers of 32 fraction bits for
// the factors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/fault_source.h"

namespace trainyard {

/// Which ops a slow-down is of.
struct OpChoice {
  bool compute_only = false;  ///< none of memory
  std::string name = "*";     ///< pattern of the op's name; * stands for any characters
};

class GpuFaults final : public FaultSource {
 public:
  /// Work takes `factor` times as long in [from, until). Factors of overlapping intervals multiply.
  void slow(uint32_t rank, Time from, Time until, double factor, const OpChoice& ops = {});
  /// Nothing runs in [from, until).
  void stop(uint32_t rank, Time from, Time until);
  /// Every op that could begin in [from, until) does so `delay` later; with `dice`, drawn from
  /// `seed`, 0 to twice that.
  void delay_launches(uint32_t rank, Time from, Time until, Time delay, bool dice, uint64_t seed);
  /// No op begins in the first `pause` of every `period` from `from` + `phase` on.
  void pause(uint32_t rank, Time from, Time until, Time period, Time pause, Time phase);
  /// The process is gone.
  void exit(uint32_t rank, Time at);
  /// At its call number `nth` of a group that matches `group`, where it comes to it in [from,
  /// until).
  void call(uint32_t rank, Time from, Time until, const std::string& group, uint32_t nth,
            const CollectiveCall& instead);
  /// At its first call of such a group from `from` on, and all later ones.
  void hang(uint32_t rank, Time from, Time until, const std::string& group);

  [[nodiscard]] bool empty() const { return ranks_.empty() && hosts_.empty(); }
  [[nodiscard]] Time end_of_op(uint32_t rank, const OpGraph& graph, uint32_t op, Time begin,
                               Time work) const override;
  [[nodiscard]] Time runs_from(uint32_t rank, Time at) const override;
  [[nodiscard]] Time launches_at(uint32_t rank, uint32_t op, Time at) const override;
  [[nodiscard]] Time exits_at(uint32_t rank) const override;
  [[nodiscard]] CollectiveCall call(uint32_t rank, const std::string& group, uint32_t nth,
                                    Time at) const override;

 private:
  static constexpr uint64_t kOne = uint64_t{1} << 32;
  struct Op {
    const OpGraph* graph;  // null: any
    uint32_t op;
  };
  struct Interval {
    Time from, until;
    uint64_t factor_q32 = kOne;  // 0: stopped
    OpChoice ops;
  };
  struct Delay {
    Time from, until, delay;
    bool dice;
    uint64_t seed;
  };
  struct Pause {
    Time from, until, period, pause, phase;
  };
  struct Call {
    Time from, until;
    std::string group;
    uint32_t nth;
    CollectiveCall instead;
  };
  struct Host {
    std::vector<Delay> delays;
    std::vector<Pause> pauses;
    std::vector<Call> calls;
    Time exit = Time::infinity();
  };
  /// Factor at `at` (0: stopped) and the next instant at which it may be another.
  [[nodiscard]] uint64_t factor_at(uint32_t rank, const Op& op, Time at, Time& until) const;

  std::map<uint32_t, std::vector<Interval>> ranks_;
  std::map<uint32_t, Host> hosts_;
};

}  // namespace trainyard
