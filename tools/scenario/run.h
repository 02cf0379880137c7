// SPDX-License-Identifier: MIT
// Builds what a scenario describes and runs it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "chakra/trace.h"
#include "faults/step_faults.h"
#include "network/packet/domain.h"
#include "network/topology.h"
#include "sim/collective.h"
#include "tools/report/result.h"
#include "tools/scenario/scenario.h"
#include "workload/chakra_importer.h"
#include "workload/compute_variation.h"
#include "workload/traffic.h"

namespace trainyard {

/// State of a run, for a progress line.
struct RunProgress {
  Time now;                      ///< simulated
  uint64_t done = 0, total = 0;  ///< ops, or flows in a traffic-only run
  uint64_t transmissions = 0;
  double wall_s = 0;
};

/// Ops that take as long as on a healthy GPU: neither compute.slow nor compute.jitter holds for
/// them.
struct HealthyOps {
  bool all = false;
  std::vector<char> ranks;  ///< by rank; all their ops
  std::string kernel;       ///< kernel_name() of ops, on all ranks; empty: none
};

struct RunHooks {
  /// Called a few times per second of wall time; returning false stops the run.
  std::function<bool(const RunProgress&)> progress;
  /// Filled with every rate change when not null.
  std::vector<RateEvent>* rates = nullptr;
  const HealthyOps* healthy = nullptr;
};

/// The topology of a scenario. `ranks` is what the workload needs (0: no workload); jobs know
/// theirs.
Topology build_topology(const Scenario& scenario, uint32_t ranks);

/// What a scenario's trace says, and the compute model that it settles.
struct Workload {
  ChakraImport import;
  std::unique_ptr<ComputeModel> compute;
  std::vector<ComputeRemark> remarks;  ///< of the compute model about this job
  /// Of several jobs, one after the other: figures that need no run, and where times come from.
  std::vector<std::vector<TrainingFigure>> planned;
  std::vector<std::string> compute_sources;
};

/// Reads or generates what a scenario's ranks do. Of Scenario::only_job the others do nothing.
Workload load_workload(const Scenario& scenario);

/// What compute.jitter, compute.slow and boosts of layout.unlike ask for. Throws UserError for a
/// selector that names no GPU of the job.
ComputeVariation compute_variation(const Scenario& scenario, const Topology& topology,
                                   const Job& job);

/// The flows of a scenario's traffic, collectives left out, in order of issue.
std::vector<Flow> build_flows(const Scenario& scenario, uint32_t ranks);

PacketConfig packet_config(const Scenario& scenario);

/// How the scenario's collectives run on `topology`.
std::unique_ptr<CollectiveSelector> collective_selector(const Scenario& scenario,
                                                        const Topology& topology,
                                                        const PacketConfig& config);

/// The collectives of a scenario's traffic, which run as a job; none where there is a workload.
std::vector<Params> collective_entries(const Scenario& scenario);

/// What serves the reads and writes of all jobs; null: there are none.
std::unique_ptr<Storage> build_storage(const Scenario& scenario, const Topology& topology,
                                       const Job& job);

/// The faults of a scenario, resolved. `job` null: flows only.
StepFaults build_faults(const Scenario& scenario, const Topology& topology,
                        const PacketConfig& config, const Job* job);

/// Runs to the end. A hang, a drop in a lossless class or an interrupt does not throw: the Result
/// then holds what was done so far, with `complete` false and the reason. Bad input throws
/// UserError.
Result run_scenario(const Scenario& scenario, const RunHooks& hooks = {});

}  // namespace trainyard
