// SPDX-License-Identifier: MIT
// Kinds of faults of hosts: nic-down, pfc-storm, slow-receiver, pcie-downgrade, nvlink-degrade,
// gpu-slow, gpu-stop.
#include <algorithm>
#include <set>
#include <string>

#include "faults/step_faults.h"
#include "network/topology_select.h"
#include "sim/registry.h"

namespace trainyard {
namespace {

using PT = ParamType;

/// NIC cables that `where` names.
std::vector<uint32_t> nic_cables(const FaultRequest& r, const Params& p) {
  const std::string& where = fault_where(r, p);
  auto links = select_links(r.topology, where, p.origin("where").pos);
  for (const uint32_t link : links) {
    if (r.topology.is_nic_link(link)) continue;
    const TopologyLink& l = r.topology.links()[link];
    throw UserError(p.origin("where").pos,
                    "'" + where + "' names the cable " + r.topology.nodes()[l.a].name + " - " +
                        r.topology.nodes()[l.b].name + ", which is no NIC's",
                    "write node3.nic5, or node3.nic5:port1 for one of its cables");
  }
  return links;
}

void nic_down(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  const auto links = nic_cables(r, p);
  const bool stall = p.is_word("reaction", "stall");
  const bool backup = p.is_word("reaction", "backup-nic");
  for (const char* name : {"backup_rate", "backup_delay"}) {
    if (!backup && p.origin(name).kind != Origin::Kind::default_value) {
      throw UserError(p.origin(name).pos, std::string(name) + " is for 'reaction: backup-nic'",
                      "remove it, or say so");
    }
  }
  std::set<uint32_t> hosts;
  for (const uint32_t link : links) {
    const TopologyLink& l = r.topology.links()[link];
    for (const uint32_t end : {l.a, l.b}) {
      if (backup && r.topology.kind(end) == NodeKind::host) hosts.insert(end);
    }
  }
  for (const uint32_t host : hosts) {
    if (r.topology.server_mates(host).size() < 2) {
      throw UserError(p.origin("where").pos,
                      "there is no other NIC in the server of " + r.topology.nodes()[host].name,
                      "use 'reaction: failover', or more GPUs per node");
    }
    faults.backup_nic(r.topology, host, span.from, span.until,
                      p.is_word("backup_rate", "auto") ? Rate() : p.rate("backup_rate"),
                      p.time("backup_delay"));
  }
  for (const uint32_t link : links) {
    if (stall)
      faults.cable_loss(link, span.from, span.until, 1);
    else
      faults.cable_down(link, span.from, span.until);
  }
  faults.report({span.from, span.until, "nic-down", p.text("where"),
                 std::to_string(links.size()) + (links.size() == 1 ? " cable" : " cables") +
                     (stall    ? " lose everything, nobody notices"
                      : backup ? " down, other NICs of the server take over"
                               : " down"),
                 "", stall ? "none" : ""});
}

void pfc_storm(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  const auto links = nic_cables(r, p);
  if (r.config.pfc == PfcMode::off) {
    throw UserError(r.pos, "a pfc-storm needs PFC, which is off", "see fabric.switch.pfc.mode");
  }
  for (const uint32_t link : links) faults.storm(link, span.from, span.until);
  faults.report(
      {span.from, span.until, "pfc-storm", p.text("where"), "pauses its switch without end"});
}

void slow_receiver(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  for (const uint32_t link : nic_cables(r, p)) {
    faults.receiver(link, span.from, span.until, p.rate("rate"));
  }
  faults.report({span.from, span.until, "slow-receiver", p.text("where"),
                 "takes data in at " + p.text("rate")});
}

void pcie_downgrade(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  const Rate rate = p.rate("rate");
  for (const uint32_t link : nic_cables(r, p)) {
    const Rate built = r.topology.links()[link].rate;
    if (rate >= built) {
      throw UserError(p.origin("rate").pos,
                      "a pcie-downgrade to " + print_rate(rate) +
                          " slows down nothing: the cable has " + print_rate(built),
                      "give a lower rate");
    }
    faults.receiver(link, span.from, span.until, rate);
    faults.sender(link, span.from, span.until,
                  static_cast<double>(rate.bps()) / static_cast<double>(built.bps()));
  }
  faults.report({span.from, span.until, "pcie-downgrade", p.text("where"),
                 "its host sends and takes in at " + p.text("rate")});
}

/// Cables into scale-up switches at the GPUs or switches that `where` names.
void nvlink_degrade(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  const std::string& where = fault_where(r, p);
  const int64_t lost = p.integer("lost");
  const int64_t of = p.integer("of");
  if (lost >= of) {
    throw UserError(p.origin("lost").pos,
                    std::to_string(lost) + " of " + std::to_string(of) + " links leave none",
                    "use link-down on link(node3.gpu5,node3.nvswitch)");
  }
  std::set<uint32_t> cables;
  for (const uint32_t node : select_nodes(r.topology, where, p.origin("where").pos)) {
    for (const uint32_t port : r.topology.nodes()[node].ports) {
      if (r.topology.tier(port) == "scale-up") cables.insert(port >> 1);
    }
  }
  if (cables.empty()) {
    throw UserError(p.origin("where").pos, "'" + where + "' has no link of a scale-up network",
                    "write node3.gpu5, or node3.nvswitch for all GPUs behind it");
  }
  for (const uint32_t link : cables) {
    faults.cable_rate(link, span.from, span.until,
                      static_cast<double>(of - lost) / static_cast<double>(of));
  }
  faults.report({span.from, span.until, "nvlink-degrade", where,
                 std::to_string(cables.size()) + (cables.size() == 1 ? " GPU" : " GPUs") +
                     " with " + std::to_string(of - lost) + " of " + std::to_string(of) +
                     " links"});
}

/// Whether one of these ranks has an op of computation of such a name.
bool any_op(const Job& job, const std::vector<uint32_t>& ranks, const std::string& name) {
  if (name == "*") return true;
  return std::any_of(ranks.begin(), ranks.end(), [&](uint32_t rank) {
    if (rank >= job.ranks.size()) return false;
    const OpGraph& g = *job.ranks[rank].graph;
    for (uint32_t i = 0; i < g.ops.size(); ++i) {
      const OpKind kind = g.ops[i].kind;
      if ((kind == OpKind::compute || kind == OpKind::memory) &&
          matches_pattern(name, g.name_of(i))) {
        return true;
      }
    }
    return false;
  });
}

void gpu_slow(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  if (!r.computes) {
    throw UserError(r.pos, "gpu-slow slows compute down, and nothing computes in this scenario",
                    "give it a workload");
  }
  const auto ranks = fault_ranks(r, p);
  OpChoice ops;
  ops.name = p.text("ops");
  if (!any_op(*r.job, ranks, ops.name)) {
    throw UserError(p.origin("ops").pos, "no op of these ranks is called '" + ops.name + "'",
                    "durations.csv of a run without the fault has the names");
  }
  for (const uint32_t rank : ranks) {
    faults.ranks().slow(rank, span.from, span.until, p.real("factor"), ops);
  }
  faults.report({span.from, span.until, "gpu-slow", fault_ranks_name(r, p, ranks),
                 (ops.name == "*" ? "compute takes " : "'" + ops.name + "' takes ") +
                     p.text("factor") + " times as long"});
}

void gpu_stop(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  if (!r.has_ops) {
    throw UserError(r.pos, "gpu-stop stops ops, and this scenario has flows only",
                    "give it a workload or a collective");
  }
  const auto ranks = fault_ranks(r, p);
  for (const uint32_t rank : ranks) faults.ranks().stop(rank, span.from, span.until);
  faults.report(
      {span.from, span.until, "gpu-stop", fault_ranks_name(r, p, ranks), "computes nothing"});
}

const char* const kWhereNics = "NICs: node3.nic5, node[0-3].nic*; node3.nic5:port1 is one cable";
const char* const kWhereGpus = "GPUs: rank17, node3.gpu5, node3.*";

const RegisterModel<FaultKind> kNic{
    {"fault", "nic-down", "A NIC loses its cables, or one of them (node3.nic5:port1).", "DESIGN 7",
     fault_params(kWhereNics,
                  {{"reaction",
                    PT::choice,
                    "failover",
                    "",
                    "",
                    {"failover", "backup-nic", "stall"},
                    "failover: the GPU's other NIC ports take over once the fabric has noticed "
                    "(fabric.transport.load_balancing.convergence); without one traffic stalls "
                    "until the NIC is back, or until the retry limit ends the run. backup-nic: "
                    "without one, the nearest other NIC of the server takes over, which the two "
                    "GPUs then share; on rails at both ends. stall: nobody notices, what is sent "
                    "is lost",
                    "DESIGN 7; B: N1, N2, N3"},
                   {"backup_rate",
                    PT::rate,
                    "auto",
                    "1Gbps",
                    "",
                    {"auto"},
                    "at which data crosses between the GPU and the backup NIC, each way; auto: as "
                    "fast as the NIC's port, as behind one PCIe switch",
                    "141 Gb/s between PCIe roots (nccl-measured)"},
                   {"backup_delay",
                    PT::time,
                    "500ns",
                    "0ns",
                    "1ms",
                    {},
                    "of this crossing, for the first byte of a message after a rest, and again for "
                    "the last byte at the receiver",
                    "our choice"}})},
    {FaultKind::Parts::nics, "stop", "log", nic_down}};

const RegisterModel<FaultKind> kStorm{
    {"fault", "pfc-storm",
     "A broken NIC sends pauses without end: its switch may send it nothing, and the pause spreads "
     "upstream. Watchdogs (fabric.switch.pfc) end it.",
     "DESIGN 7", fault_params(kWhereNics, {})},
    {FaultKind::Parts::nics, "slow", "none", pfc_storm}};

const RegisterModel<FaultKind> kReceiver{
    {"fault", "slow-receiver",
     "A host takes data in more slowly than it comes; its NIC buffers, then pauses its switch "
     "(fabric.transport.receive_buffer).",
     "DESIGN 7",
     fault_params(kWhereNics, {{"rate",
                                PT::rate,
                                "10Gbps",
                                "1Mbps",
                                "",
                                {},
                                "at which the host takes data in",
                                "our choice"}})},
    {FaultKind::Parts::nics, "slow", "none", slow_receiver}};

const RegisterModel<FaultKind> kPcie{
    {"fault", "pcie-downgrade",
     "The PCIe link of a NIC runs at fewer lanes or a lower generation: its host sends more "
     "slowly, "
     "and what comes faster than it takes in fills the NIC's buffer and is paused.",
     "C: 1.2 (slow, no signal); DESIGN 7",
     fault_params(kWhereNics, {{"rate",
                                PT::rate,
                                "100Gbps",
                                "1Mbps",
                                "",
                                {},
                                "that PCIe is left with, each way, of a cable",
                                "our choice: about 8 lanes of the third generation are 63 Gb/s"}})},
    {FaultKind::Parts::nics, "slow", "none", pcie_downgrade}};

const RegisterModel<FaultKind> kNvlink{
    {"fault", "nvlink-degrade",
     "Some of a GPU's links into its scale-up switches are lost; `where` a scale-up switch, those "
     "of "
     "all GPUs behind it. What is left carries the rest evenly.",
     "C: 1.2 (XID 74), B: V106; DESIGN 7",
     fault_params("GPUs or scale-up switches: node3.gpu5, node3.nvswitch",
                  {{"lost", PT::integer, "1", "1", "1000", {}, "links that are down", "our choice"},
                   {"of",
                    PT::integer,
                    "18",
                    "2",
                    "1000",
                    {},
                    "links that a GPU has",
                    "H100: 18 of 25 GB/s; A100: 12; switches of a server: 4 and 6"}})},
    {FaultKind::Parts::gpus, "slow", "xid", nvlink_degrade}};

const RegisterModel<FaultKind> kSlow{
    {"fault", "gpu-slow",
     "Compute and memory ops of a GPU take longer. An op under way is stretched for the part that "
     "overlaps; factors of several faults multiply.",
     "DESIGN 7",
     fault_params(
         kWhereGpus,
         {{"factor", PT::real, "2", "1", "10000", {}, "by which times grow", "our choice"},
          {"ops",
           PT::text,
           "*",
           "",
           "",
           {},
           "only ops of such a name: 'B*' is the backward pass of generated workloads; * stands "
           "for any characters",
           "C: 1.2 (ARGUS)"}})},
    {FaultKind::Parts::gpus, "slow", "none", gpu_slow}};

const RegisterModel<FaultKind> kStop{
    {"fault", "gpu-stop",
     "A GPU does nothing: no compute, no part in collectives. Without an end the job hangs, and "
     "the "
     "run fails after collectives.timeout, saying who waits for whom.",
     "DESIGN 7", fault_params(kWhereGpus, {})},
    {FaultKind::Parts::gpus, "hang", "xid", gpu_stop}};

}  // namespace
}  // namespace trainyard
