// SPDX-License-Identifier: MIT
// Chaos: one run of a scenario per part of it and structural event, with that part broken at that
// instant (DESIGN 7). Every run must end: with all work done, or with an error that says why.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/scenario/run.h"

namespace trainyard {

struct ChaosOptions {
  /// Kinds of faults; empty: gpu-stop, nic-down, link-down, switch-down. Parts by kind: GPUs of the
  /// job; their NICs; cables between switches; switches, those inside of servers too.
  std::vector<std::string> kinds;
  std::vector<std::string> where;  ///< patterns of parts (see --kinds); empty: all
  std::string reaction;            ///< of the kinds that have it; empty: their default
  std::string duration;            ///< "200us"; empty: until the run ends
  std::string abort_after;         ///< "1ms"; empty: the job goes on as far as it can
  size_t events = 0;               ///< at most so many instants, evenly chosen; 0: all of them
  bool oracle = false;  ///< every run again without contention domains; both must be the same
};

struct ChaosRow {
  std::string kind, where;
  Time at;
  enum class Outcome : uint8_t { unaffected, slower, faster, aborted, violation } outcome;
  Time end;  ///< of the job, or of the run where there is none
  uint64_t reroutes = 0, retransmissions = 0, drops = 0;
  std::string reason;  ///< aborted: what the run says; violation: what is wrong
};
const char* outcome_name(ChaosRow::Outcome outcome);

struct Chaos {
  std::string name;
  Time healthy;
  size_t parts = 0, instants = 0;
  std::vector<ChaosRow> rows;
  [[nodiscard]] size_t count(ChaosRow::Outcome outcome) const;
};

/// Instants at which something begins or ends in a run: collectives (their first and last arrival
/// and their end) and flows, ascending, each once. Zero and the end of the run are not among them.
std::vector<Time> structural_events(const Result& healthy);

/// @param tell called after every run with the number done and the number of all; false: stop here
/// Throws SimulationError where the healthy run does not end, UserError where there is no such
/// part.
Chaos run_chaos(const Scenario& scenario, const ChaosOptions& options,
                const std::function<bool(size_t, size_t)>& tell = {});

std::string chaos_text(const Chaos& chaos);
/// kind, where, at_ns, outcome, end_ns, slowdown_ratio, reroutes, retransmissions, drops, reason
std::string chaos_csv(const Chaos& chaos);

}  // namespace trainyard
