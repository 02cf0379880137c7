// SPDX-License-Identifier: MIT
// Faults inside a step: what happens to links, NICs, switches and GPUs at a given time.
//
// A kind of fault is a registered model of category "fault": a factory that turns the parameters of
// one entry of `faults:` into intervals during which parts are down, slow or lossy. Intervals may
// overlap; finish() resolves them per part and writes the changes that the engine is told:
//
//   down      while any interval lasts
//   rate      the lowest share in force
//   drops     the smallest distance in force, for each choice of packets apart
//   loss      independent of each other and of the loss that the topology has
//   receiver  the lowest rate in force
//   sender    the lowest share in force, of the cable and of the host
//   storm     while any interval lasts
//
// What was broken before the run (`at: before`) and stays so is part of the fabric: cables that are
// down, slow or lossy are damage() to the topology, as routing knows it once it has converged, and
// cost nothing to simulate. Everything else of that kind begins at zero; where it ends in the run
// the fabric has learnt of it already.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "faults/gpu_faults.h"
#include "network/packet/config.h"
#include "network/packet/domain.h"
#include "network/topology.h"
#include "sim/op_graph.h"
#include "sim/params.h"
#include "sim/records.h"

namespace trainyard {

/// What a fault is built from beside its own parameters.
struct FaultRequest {
  const Topology& topology;
  const PacketConfig& config;
  uint32_t ranks = 0;        ///< of the job; ranks beyond it do nothing
  bool has_ops = false;      ///< something runs on a timeline
  bool computes = false;     ///< and some of it is compute
  SourcePos pos;             ///< of the entry
  const Job* job = nullptr;  ///< what runs on the timeline
};

class StepFaults {
 public:
  /// Of the intervals to come: they began long before the run.
  void set_before(bool before) { before_ = before; }
  /// [from, until) of one cable; `until` infinity: until the run ends.
  void cable_down(uint32_t link, Time from, Time until);
  /// Both directions run at `share` of the rate they were built with, above 0 and up to 1.
  void cable_rate(uint32_t link, Time from, Time until, double share);
  void cable_loss(uint32_t link, Time from, Time until, double probability);
  /// Each direction loses every `every`-th packet of `kinds` (FabricChange::Kinds).
  void cable_drops(uint32_t link, Time from, Time until, uint32_t every, uint8_t kinds);
  void receiver(uint32_t link, Time from, Time until, Rate rate);
  /// The host at this cable sends at `share` of its rate; what comes to it does not change.
  void sender(uint32_t link, Time from, Time until, double share);
  void storm(uint32_t link, Time from, Time until);
  /// `host` may use other NICs of its server while its own has no cable up. Rate 0: as fast as
  /// their ports.
  void backup_nic(const Topology& topology, uint32_t host, Time from, Time until, Rate rate,
                  Time delay);
  /// For what happens to ranks.
  [[nodiscard]] GpuFaults& ranks() { return gpus_; }
  void report(FaultRecord record);
  /// The job is ended at this instant, for this reason. The earliest counts.
  void abort(Time at, std::string why);

  /// Whether something said so far happens to a fabric while it runs, which only packets can show.
  [[nodiscard]] bool happens_to_packets() const { return to_packets_; }

  /// Call once, after the last interval.
  void finish(const Topology& topology, const PacketConfig& config);
  /// In order of time.
  [[nodiscard]] const std::vector<FabricChange>& changes() const { return changes_; }
  /// What lasts for the whole run, for Topology::damage(), in order of links.
  [[nodiscard]] const std::vector<LinkDamage>& damage() const { return damage_; }
  /// Hosts whose NIC traffic goes by another NIC of their server for the whole run, ascending.
  [[nodiscard]] const std::vector<uint32_t>& borrowers() const { return borrowers_; }
  /// In order of time, then as reported.
  [[nodiscard]] const std::vector<FaultRecord>& records() const { return records_; }
  [[nodiscard]] const GpuFaults& gpus() const { return gpus_; }
  /// Infinity: nothing ends the job by decision.
  [[nodiscard]] Time abort_at() const { return abort_at_; }
  [[nodiscard]] const std::string& abort_reason() const { return abort_reason_; }

 private:
  // In the order in which those of one instant happen: a backup is known before it is needed.
  enum class What : uint8_t { backup, down, rate, sends, takes, loss, receiver, storm, drops };
  struct Interval {
    Time from, until;
    double value = 0;  // share, probability, distance; bit/s of a receiver; 1 + index in backups_
    bool before = false;
  };
  void add(What what, uint32_t link, Time from, Time until, double value, uint8_t kinds = 0);
  void resolve(What what, uint32_t link, uint8_t kinds, const std::vector<Interval>& intervals,
               const Topology& topology, const PacketConfig& config);

  std::map<std::tuple<What, uint32_t, uint8_t>, std::vector<Interval>> intervals_;
  /// Takes out of `intervals` what becomes damage.
  void build_in(What what, uint32_t link, std::vector<Interval>& intervals);

  bool before_ = false, to_packets_ = false;
  Time abort_at_ = Time::infinity();
  std::string abort_reason_;
  std::vector<LinkDamage> damage_;
  std::vector<uint32_t> borrowers_;
  std::vector<std::pair<Rate, Time>> backups_;
  std::vector<FabricChange> changes_;
  std::vector<FaultRecord> records_;
  GpuFaults gpus_;
};

/// What is registered in category "fault".
struct FaultKind {
  /// What breaks on its own: names of GPUs, of their NICs, of cables, of switches.
  enum class Parts : uint8_t { gpus, nics, cables, switches };
  Parts parts = Parts::cables;
  /// How it shows ("stop", "hang", "slow") and which signal it gives ("xid", "log", "none"), unless
  /// inject() reports otherwise (C: 1.2; the classes are our reading of it).
  std::string manifestation, signal;
  /// Adds what the parameters of one entry say.
  std::function<void(const FaultRequest&, const Params&, StepFaults&)> inject;
};
/// Throws UserError at `pos` that lists the known kinds.
const FaultKind& fault_kind(const std::string& name, const SourcePos& pos = {});

/// Parts of a kind that `where` names, as selectors of one each, with a number for its dice.
struct FaultPart {
  std::string where;
  uint64_t dice;
};
std::vector<FaultPart> fault_parts(FaultKind::Parts kind, const Topology& topology,
                                   const std::string& where, const SourcePos& pos);

/// Parameters that every kind has: at, for, where.
std::vector<ParamSpec> fault_params(const std::string& where_help,
                                    const std::vector<ParamSpec>& more);
/// Begin and end of a fault from `at` (before: zero) and `for`.
struct FaultSpan {
  Time from, until;
};
FaultSpan fault_span(const Params& params);
/// Ranks of the GPUs that `where` names; at least one is of the job. Throws UserError.
std::vector<uint32_t> fault_ranks(const FaultRequest& request, const Params& params);
/// How a record calls these.
std::string fault_ranks_name(const FaultRequest& request, const Params& params,
                             const std::vector<uint32_t>& ranks);
/// The words of a required `where`. Throws UserError when it is empty.
const std::string& fault_where(const FaultRequest& request, const Params& params);

}  // namespace trainyard
