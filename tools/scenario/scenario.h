// SPDX-License-Identifier: MIT
// A scenario file, checked and resolved: every value is known, typed, and has an origin.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "network/packet/config.h"
#include "network/packet/observe.h"
#include "network/topology.h"
#include "sim/compute_model.h"
#include "sim/params.h"
#include "tools/scenario/config_node.h"
#include "workload/chakra_importer.h"
#include "workload/generator/training.h"

namespace trainyard {

/// A model chosen by name, with its parameters.
struct ModelChoice {
  std::string category, kind;
  Params params;
  SourcePos pos;
};

/// An entry of `faults:` that no file says. Throws UserError at `pos` for what it cannot be.
ModelChoice make_fault(const std::string& kind,
                       const std::vector<std::pair<std::string, std::string>>& values,
                       const SourcePos& pos);

/// A value of the resolved scenario and where it comes from.
struct Setting {
  std::string key, value;
  Origin origin;
  std::string source;  ///< of a default or a card: fact id or document; may be empty
};

/// "line 12", "preset rocev2.yaml:3", "command line", "default".
std::string origin_text(const Origin& origin);

/// Two NICs (or ports of them) whose cables are exchanged.
struct WiringSwap {
  std::string a, b;  ///< patterns of network/topology_select.h
  SourcePos pos;
};

/// GPUs that compute slower than others.
struct SlowEntry {
  std::string where;  ///< pattern of network/topology_select.h
  double factor = 1;  ///< on compute times
  Origin origin;
};

/// Parts of the fabric that fail together.
struct RiskGroup {
  std::string name;
  std::vector<std::string> members;  ///< patterns of network/topology_select.h
  SourcePos pos;
};

/// What the ranks of a job do: a trace or a generated workload.
struct WorkloadSpec {
  std::string chakra;  ///< prefix, folder or pattern, made relative to the scenario file
  std::optional<Training> training;  ///< a generated workload instead of a trace
  SoftwareFactors software;          ///< workload.software
  std::string group_file;
  SourcePos workload_pos;
  int64_t element_bytes = 0;
  LaunchOrder launch_order = LaunchOrder::after_compute;
  bool eager_sends = true;
  bool strict = false;
};

/// One of several jobs.
struct JobSpec {
  std::string name;
  WorkloadSpec workload;
  std::string placement = "contiguous";  ///< or "striped"; "list": `where`
  std::vector<std::string> where;        ///< patterns of network/topology_select.h
  Time start;
  uint8_t priority = 0;  ///< data class
  SourcePos pos, placement_pos;
};

struct Scenario : WorkloadSpec {
  std::string file, base_dir;
  std::string name;
  uint64_t seed = 1;

  // cluster
  uint32_t nodes = 0;  ///< 0: as many as the workload needs
  uint32_t gpus_per_node = 8, nics_per_node = 8;
  SourcePos cluster_pos;
  std::string placement = "contiguous";  ///< or "striped", "file:PATH"
  SourcePos placement_pos;
  DeviceCard device;

  // fabric
  ModelChoice topology, congestion, transport, ecmp, buffer, pfc, ecn;

  std::vector<PinnedRoute> pinned;  ///< load_balancing: pinned
  std::vector<RiskGroup> risk_groups;

  // wiring
  std::string nic_order;  ///< a file; empty: none
  SourcePos nic_order_pos;
  std::vector<WiringSwap> swaps;

  // what runs
  std::vector<JobSpec> jobs;  ///< instead of the one workload that Scenario is
  int only_job = -1;          ///< runs this one of them, where it would be beside the others
  bool interference = false;  ///< output.interference: every job alone, too
  std::vector<ModelChoice> traffic;
  std::vector<ModelChoice> faults;  ///< category "fault", see faults/step_faults.h

  ModelChoice engine;              ///< category "engine", see network/engine.h
  Time until = Time::infinity();   ///< simulation.until
  int64_t fold_from = 0;           ///< simulation.fold; 0: off
  std::string fast_path = "none";  ///< or "exact", "fast"
  bool domains = true, memo = true, period_jump = true, stretches = true, stepping = true;
  bool shared_noise = false;
  uint32_t noise_variants = 8;
  double audit_budget = 0;  ///< share of the work
  int64_t memo_limit = 0;   ///< bytes
  double ignored_pauses = 0.01;
  uint32_t threads = 1;  ///< of the fast path
  Params collectives;
  Params storage;  ///< see workload/storage.h
  SourcePos storage_pos;
  ModelChoice compute;  ///< kind "auto" is settled when the trace is read
  ModelChoice jitter;   ///< of compute times
  std::vector<SlowEntry> slow;
  double overlap_slowdown = 0;                          ///< compute.overlap_slowdown
  int64_t steps_to_target = 0;                          ///< cost.steps_to_target; 0: not given
  double gpu_hour_price = -1, kwh_price = -1, pue = 1;  ///< cost; below 0: not given

  std::string output_dir;
  bool perfetto = false;   ///< output.trace
  std::string chakra_out;  ///< output.chakra: prefix; empty: none
  Time link_window;        ///< output.telemetry.links; zero: off
  Time power_window;       ///< output.telemetry.power; zero: off
  bool pauses = false;     ///< output.telemetry.pauses
  ObserveOptions observe;  ///< output.telemetry.qp, packets, flows
  /// key -> "value    (origin)" for reports, in the order of the grammar.
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<Setting> resolved;  ///< the same, origin kept apart
  std::vector<std::string> warnings;

  [[nodiscard]] bool has_workload() const {
    return !chakra.empty() || training.has_value() || !jobs.empty();
  }
  /// Some workload reads or writes storage.
  [[nodiscard]] bool stores() const {
    for (const WorkloadSpec* w : workloads()) {
      if (w->training && w->training->stores()) return true;
    }
    return false;
  }
  /// The workloads, whether of jobs or not.
  [[nodiscard]] std::vector<const WorkloadSpec*> workloads() const {
    std::vector<const WorkloadSpec*> all;
    for (const JobSpec& job : jobs) all.push_back(&job.workload);
    if (jobs.empty() && has_workload()) all.push_back(this);
    return all;
  }
};

/// What the command line changes.
struct ScenarioOverrides {
  std::vector<std::string> settings;  ///< "key=value"
  std::string trace;                  ///< replaces workload.chakra, relative to the current folder
  std::string output_dir;
  bool fabric_only = false;  ///< accept a scenario in which nothing runs
};

/// Reads, merges presets, checks against the grammar. Throws UserError (file, line) for anything
/// unknown, contradictory or not built yet.
Scenario load_scenario(const std::string& path, const ScenarioOverrides& overrides = {});
/// The same from text; `name` stands for the file, paths are relative to its folder.
Scenario load_scenario_text(const std::string& text, const std::string& name,
                            const ScenarioOverrides& overrides = {});

/// Device cards by name, from configs/devices.
DeviceCard load_device(const std::string& name, const SourcePos& pos);
std::vector<std::string> device_names();
/// Factors of training software by name, from configs/software; "none": all 1.
SoftwareFactors load_software(const std::string& name, const SourcePos& pos);
std::vector<std::string> software_names();
/// Model cards by name, from configs/models.
ModelCard load_model_card(const std::string& name, const SourcePos& pos);
std::vector<std::string> model_names();
/// Folder of presets: $TRAINYARD_CONFIGS, or the one of the source tree.
std::string config_dir();

}  // namespace trainyard
