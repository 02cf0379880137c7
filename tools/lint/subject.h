// SPDX-License-Identifier: MIT
// What rules judge: the packet engine's configuration and the fabric, from a scenario or from a
// configuration of the HPCC / SimAI family, reduced to the few numbers that matter.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "network/packet/config.h"
#include "network/topology.h"
#include "tools/lint/finding.h"
#include "tools/scenario/scenario.h"

namespace trainyard {

/// Ingress ports of switches that are alike.
struct LintPortClass {
  std::string tier;  ///< "host-leaf", "host-leaf and leaf-spine", ...
  Rate rate;
  Time delay;
  bool scale_up = false;
  uint32_t ports = 0;
  double loss_rate = 0;  ///< the largest
};

/// Switches that are alike.
struct LintSwitchClass {
  std::string example;  ///< name of the first
  uint32_t count = 0;
  NodeKind kind = NodeKind::leaf;
  std::map<Rate, uint32_t> rates;  ///< port rate -> ports
  int64_t headrooms = 0, reserves = 0;
  int64_t pool = 0;      ///< buffer without both; may be negative
  double min_alpha = 0;  ///< smallest dynamic threshold of an ingress port, as share of the pool
  [[nodiscard]] int ports() const;
};

/// Longest way through the fabric, scale-up left out; over a sample of destinations in large ones.
struct LintPaths {
  bool found = false;
  Time rtt;   ///< as the window rule counts it: both delays and one payload per link
  Rate rate;  ///< slowest link of that way
  int64_t bdp = 0;
  uint32_t switches = 0;
  uint32_t choices = 0;  ///< nodes in a row on one way that choose among equal next hops
};

/// The largest number of ranks that send to one rank of another server at the same time.
struct LintIncast {
  uint32_t degree = 0;
  int64_t bytes = 0;  ///< that these ranks send together
  std::string what;
  std::string key;  ///< of the scenario
};

struct LintEcn {
  Rate rate;
  int64_t kmin = 0, kmax = 0;
  double pmax = 0;
};

/// The keys of a HPCC / SimAI configuration that the engine's configuration has no place for.
struct LintConf {
  bool back_to_zero = false;
  int64_t chunk = 0;      ///< bytes
  double error_rate = 0;  ///< per packet and link
};

struct LintSubject {
  std::string file;
  std::optional<LintConf> conf;  ///< set: not a scenario
  PacketConfig config;
  bool has_topology = false;
  Rate nic_rate;
  std::vector<LintPortClass> ports;
  std::vector<LintSwitchClass> switches;
  LintPaths paths;
  LintIncast incast;
  std::vector<LintEcn> ecn_map;             ///< conf: thresholds by rate, by rising rate
  std::map<std::string, LintPlace> places;  ///< by key of the scenario grammar

  /// Where a value of the scenario grammar comes from; of a conf: its own key.
  [[nodiscard]] LintPlace at(const std::string& key) const;
  /// Thresholds of a port; nothing where a conf does not name its rate.
  [[nodiscard]] std::optional<LintEcn> ecn(Rate rate) const;
  /// Rates of the switch ports that mark, rising.
  [[nodiscard]] std::vector<Rate> marking_rates() const;
  [[nodiscard]] int64_t frame() const { return config.payload + config.header; }
  [[nodiscard]] int64_t headroom(Rate rate, Time delay) const;
  [[nodiscard]] bool dcqcn() const { return config.congestion == CongestionControl::dcqcn; }

  /// Fills ports, switches and paths.
  void use(const Topology& topology);
};

/// Reads what a run would read (the trace included) and runs nothing. Throws UserError.
LintSubject lint_scenario(const Scenario& scenario);

/// True when the file looks like `KEY value` lines, not YAML. Throws UserError if it cannot be
/// read.
bool is_simai_conf(const std::string& path);
/// Reads a configuration of the HPCC / SimAI family (formats 5.3). `topology_file` may be empty.
/// Throws UserError (file, line) for anything that is not such a configuration.
LintSubject lint_simai_conf(const std::string& path, const std::string& topology_file);

}  // namespace trainyard
