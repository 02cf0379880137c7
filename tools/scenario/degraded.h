// SPDX-License-Identifier: MIT
// Step times with something broken all along, simulated once per configuration and kept in files
// (DESIGN 7): what reliability over weeks asks for, and what one asks who compares fabrics.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/scenario/run.h"

namespace trainyard {

/// A job that goes on with these faults.
struct DegradedState {
  std::string name;
  std::vector<ModelChoice> faults;  ///< category "fault"; empty: healthy
};

struct DegradedStep {
  std::string name;
  Time step;           ///< of the job, or of the run where there is none; zero: it does not run
  std::string reason;  ///< why it does not run
  std::string key;     ///< of its file; empty: not kept
  bool cached = false;
  double wall_s = 0;  ///< that simulating it took, then
};

class DegradedSteps {
 public:
  /// @param scenario its own faults are left out
  /// @param folder   where results are kept, made when needed; empty: nowhere. A result is used
  ///                 again when all settings, the files that they name, the presets and cards and
  ///                 the program are the same. Scenarios with traces are not kept.
  DegradedSteps(const Scenario& scenario, std::string folder);
  /// A state that stops the job is an answer; throws UserError only where the healthy job cannot
  /// run either, or a state is not about this fabric.
  DegradedStep step(const DegradedState& state);

 private:
  [[nodiscard]] std::string key_text(const DegradedState& state) const;

  Scenario scenario_;
  std::string folder_, common_;  // the part of keys that all states share; empty: do not keep
};

/// Faults that stand for each class of parts of the fabric, the first GPU's: a port of its NIC
/// where it has several, its leaf, a cable from there to a spine, that spine, its plane where there
/// are several, its NIC with a backup.
std::vector<DegradedState> representative_states(const Scenario& scenario);
/// The scenario's faults, each alone and from before the run (but for those that are events).
std::vector<DegradedState> own_states(const Scenario& scenario);

struct DegradedTable {
  std::string name;
  std::vector<DegradedStep> rows;  ///< the first: healthy
};
/// Own states where the scenario has faults, else the representative ones.
/// @param tell called with the name of each state before it is looked at
DegradedTable degraded_table(const Scenario& scenario, const std::string& folder,
                             const std::function<void(const std::string&)>& tell = {});
std::string degraded_text(const DegradedTable& table);
std::string degraded_json(const DegradedTable& table);

}  // namespace trainyard
