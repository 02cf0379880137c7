// SPDX-License-Identifier: MIT
// What a scenario would do, without running it: `trainyard plan`. Messages are those of the run;
// time is not simulated, so waiting, marks, pauses and losses are unknown here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/report/result.h"
#include "tools/scenario/scenario.h"

namespace trainyard {

struct Plan {
  static constexpr int kSchemaVersion = 1;

  std::string name, file;
  uint64_t seed = 1;
  std::vector<Setting> settings;

  // fabric
  uint32_t gpus = 0;
  uint32_t servers = 0;  ///< scale-up domains; a GPU without one counts as a server of its own
  uint32_t switches = 0, links = 0;
  std::vector<uint32_t> server_of;  ///< GPU (rank) -> server
  std::vector<std::string> endpoint_names;

  // what runs
  bool workload = false;  ///< false: traffic without a model
  uint32_t ranks = 0;     ///< of the workload; all GPUs when there is none
  uint32_t rank_classes = 0;
  std::string compute_source;
  struct Count {
    std::string name;
    uint64_t count = 0;
  };
  std::vector<Count> ops;  ///< over all ranks; flows per pattern when there is no workload
  /// Calls that share a kind (then `name` is its name) or a communicator.
  struct Calls {
    std::string name;
    std::string algorithm;  ///< of a kind; "none" where nothing moves
    uint32_t members = 0;   ///< of a communicator
    uint64_t calls = 0;     ///< collectives, each counted once
    uint64_t messages = 0;
    int64_t payload = 0;  ///< bytes that its messages carry
  };
  std::vector<Calls> kinds, groups;

  // who sends to whom
  struct Pair {
    uint32_t src = 0, dst = 0;  ///< ranks, or servers
    int64_t payload = 0;
  };
  std::vector<Pair> pairs, server_pairs;  ///< with traffic, by src, then dst
  bool has_rails = false;                 ///< some server has several GPUs
  /// Pairs of GPUs, of the same kinds as the bytes below.
  uint64_t pairs_inside_servers = 0, pairs_on_one_rail = 0, pairs_across_rails = 0;
  std::vector<int64_t> of_rail;  ///< rail -> payload between servers that stays on it
  int64_t inside_servers = 0;    ///< payload bytes
  int64_t on_one_rail = 0;       ///< between GPUs of equal position in different servers
  int64_t across_rails = 0;      ///< all other bytes between servers

  // which links that takes
  struct LinkLoad {
    std::string from, to, tier;
    Rate rate;
    int64_t payload = 0, wire = 0;  ///< bytes; `wire` with headers and ACKs
    int64_t transmissions = 0;
  };
  struct TierLoad {
    std::string tier;
    uint32_t links = 0;  ///< directed
    int64_t payload = 0, wire = 0, transmissions = 0;
  };
  std::vector<LinkLoad> busiest;  ///< directed links by falling time at line rate
  std::vector<TierLoad> tiers;
  double busiest_s = 0;  ///< busy time of the first: no run can be shorter

  // what the run costs
  std::string engine;  ///< `wall_s` is known for "packet" only
  uint64_t messages = 0;
  uint64_t queue_pairs = 0;
  int64_t payload = 0, data_packets = 0, ack_packets = 0;
  int64_t transmissions = 0;  ///< one per packet and link; without repeats, CNPs and PFC frames
  double wall_s = 0;          ///< transmissions / kTransmissionsPerSecond; 0: not known
  uint64_t memory_bytes = 0;
  std::vector<std::string> warnings;
  std::vector<TrainingFigure> training;  ///< of a generated workload

  /// Speed assumed for `wall_s`: the middle of what one core does in a release build, 1 to 15 M
  /// (short queues are fast, many small flows slow). The summary of every run ends with its own.
  static constexpr double kTransmissionsPerSecond = 5e6;
};

/// Throws UserError where run_scenario would, but for a trace in which nothing takes any time.
Plan make_plan(const Scenario& scenario);

std::string plan_text(const Plan& plan);
/// Units in the keys. The matrix between ranks is there up to 1024 GPUs, beyond that its largest
/// entries; the one between servers always is.
std::string plan_json(const Plan& plan);

}  // namespace trainyard
