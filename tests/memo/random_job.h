// SPDX-License-Identifier: MIT
// Small random jobs, networks and configurations, and what each way of simulating makes of them.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "memo/domain_fabric.h"
#include "network/packet/packet_fabric.h"
#include "sim/fault_source.h"
#include "sim/records.h"
#include "sim/registry.h"
#include "sim/timeline.h"
#include "tests/memo/oracle_case.h"
#include "workload/collective_params.h"

namespace trainyard::test {

enum class Flavour {
  plain,         ///< ample buffers
  tight,         ///< dynamic thresholds near XOFF
  simultaneous,  ///< everything starts at once, again and again
  marks,         ///< DCQCN and ECN bands that queues reach
  spraying,      ///< several paths per queue pair
  faults,        ///< links go down, flap, degrade and lose packets
  controllers,   ///< all orders of DCQCN, HPCC, TIMELY, DCTCP
  balancers,     ///< several queue pairs, flowlets, spraying, with any controller
  failover       ///< NICs with two ports, or other NICs of the server, that take over
};

inline const char* name_of(Flavour f) {
  constexpr const char* kNames[] = {"plain",  "tight",       "simultaneous", "marks",   "spraying",
                                    "faults", "controllers", "balancers",    "failover"};
  return kNames[static_cast<size_t>(f)];
}

inline OracleCase random_oracle_case(uint64_t seed, Flavour flavour) {
  std::mt19937_64 rng(seed * 7919 + static_cast<uint64_t>(flavour));
  const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(rng() % n); };
  OracleCase c;
  const bool failover = flavour == Flavour::failover;
  c.servers = 2 + pick(3);
  c.gpus = 1 + pick(4);
  c.leaves = 1 + pick(2);
  c.spines = c.leaves == 1 ? 0 : 1 + pick(2);
  c.nic_gbps = pick(2) == 0 ? 100 : 200;
  if (failover) {
    if (seed % 2 == 0)
      c.nic_ports = 2;
    else
      c.gpus = std::max(2U, c.gpus);  // a neighbour to fall back on
  }
  const uint32_t hosts = c.hosts();
  c.scale_up = c.gpus > 1 && pick(4) != 0;
  for (uint32_t h = 0; h < hosts; ++h) {
    c.leaf.push_back((h + (pick(8) == 0 ? 1 : 0)) % c.leaves);
    c.delay.push_back(200 + 100 * pick(2));
  }
  const auto set = [&](const char* name, int64_t value) { c.settings.emplace_back(name, value); };
  const auto marks = [&] {
    set("kmin", 4000);
    set("kmax", 40'000);
  };
  // DCQCN in three orders, HPCC, TIMELY, DCTCP.
  const auto control = [&](uint32_t which) {
    if (which < 3) {
      set("congestion", static_cast<int64_t>(CongestionControl::dcqcn));
      set("order", which);
      if (which == 1) set("byte_counter", 20'000 + 20'000 * static_cast<int64_t>(pick(3)));
      set("increase_timer", 5'000'000 * static_cast<int64_t>(1 + pick(10)));
      if (pick(3) == 0) {
        set("cnp_packets", 1);
        set("cnp_interval", 10'000'000);
      }
      marks();
      set("pmax", int64_t{1} << (28 + pick(5)));
      if (pick(2) == 0) set("dithered", 1);
    } else if (which == 3) {
      set("congestion", static_cast<int64_t>(CongestionControl::hpcc));
      if (pick(4) == 0) set("hpcc_quantised", 1);
      if (pick(4) == 0) set("hpcc_per_hop", 1);
    } else if (which == 4) {
      set("congestion", static_cast<int64_t>(CongestionControl::timely));
      set("timely_low", 1'000'000 * static_cast<int64_t>(2 + pick(3)));  // rates move
    } else {
      set("congestion", static_cast<int64_t>(CongestionControl::dctcp));
      set("kmin", 20'000);
      set("kmax", 20'000);
    }
  };
  if (flavour == Flavour::marks) set("congestion", static_cast<int64_t>(CongestionControl::dcqcn));
  set("seed", static_cast<int64_t>(seed));
  set("ack_interval", 1 + pick(3) / 2);
  if (pick(3) == 0) set("window", static_cast<int64_t>(WindowRule::bdp_pair));
  if (flavour == Flavour::tight) {
    set("alpha", 1 << (10 + pick(4)));
    set("headroom", 30'000);
    const int64_t reserve = pick(2) * 2096;
    set("reserve", reserve);
    // Headroom and reserves of the largest switch, and a few packets to share.
    int64_t ports = std::max(c.scale_up ? c.gpus : 0, c.leaves);
    for (const uint32_t l : {0U, 1U}) {
      ports = std::max<int64_t>(ports, std::count(c.leaf.begin(), c.leaf.end(), l) + c.spines);
    }
    set("buffer", ports * (30'000 + reserve) + 10'000 * (1 + pick(10)));
    if (pick(3) == 0) set("pause_quanta", 400);
  }
  if (flavour == Flavour::marks) {
    marks();
    if (pick(2) == 0) set("dithered", 1);
  }
  using Kind = FabricChange::Kind;
  if (flavour == Flavour::faults || failover) {
    set("rto", 300'000'000);
    set("nack_interval", 5'000'000);
    set("convergence", 10'000'000 * static_cast<int64_t>(1 + pick(10)));
  }
  if (flavour == Flavour::faults) {
    const uint32_t per_host = 1 + (c.scale_up ? 1 : 0);
    const uint32_t faults = 1 + pick(3);
    for (uint32_t i = 0; i < faults; ++i) {
      OracleCase::Fault fault;
      const uint32_t link = pick(hosts * per_host + c.leaves * c.spines);
      if (link >= hosts * per_host) {
        fault.where = 't';
        fault.a = (link - hosts * per_host) / c.spines;
        fault.b = (link - hosts * per_host) % c.spines;
      } else {
        fault.where = link % per_host == 0 ? 'n' : 'u';
        fault.a = link / per_host;
      }
      int64_t at = 1'000'000 * static_cast<int64_t>(1 + pick(300));
      const int64_t length = 1'000'000 * static_cast<int64_t>(1 + pick(200));
      const auto add = [&](Kind kind, uint64_t value, int64_t when) {
        fault.kind = static_cast<uint32_t>(kind);
        fault.value_q32 = value;
        fault.at_ps = when;
        c.faults.push_back(fault);
      };
      switch (pick(4)) {
        case 0:  // for good, now and then
          add(Kind::link_down, 0, at);
          if (pick(6) != 0) add(Kind::link_up, 0, at + length);
          break;
        case 1:  // a flap
          for (uint32_t n = 0; n < 3; ++n, at += 2 * length) {
            add(Kind::link_down, 0, at);
            add(Kind::link_up, 0, at + length);
          }
          break;
        case 2:
          add(Kind::link_rate, uint64_t{1} << 31, at);
          add(Kind::link_rate, uint64_t{1} << 32, at + length);
          break;
        default:
          add(Kind::link_loss, uint64_t{1} << 26, at);
          add(Kind::link_loss, 0, at + length);
      }
    }
  }
  if (failover) {
    const uint32_t faults = 1 + pick(2);
    for (uint32_t i = 0; i < faults; ++i) {
      OracleCase::Fault fault;
      fault.a = pick(hosts);
      fault.b = pick(c.nic_ports);
      const int64_t at = 1'000'000 * static_cast<int64_t>(1 + pick(300));
      const int64_t length = 1'000'000 * static_cast<int64_t>(1 + pick(200));
      const auto add = [&](Kind kind, int64_t when) {
        fault.kind = static_cast<uint32_t>(kind);
        fault.at_ps = when;
        c.faults.push_back(fault);
      };
      const bool backup = c.nic_ports == 1;
      if (backup) add(Kind::backup_on, at);
      add(Kind::link_down, at);
      if (backup) add(Kind::backup_off, at + length);
      add(Kind::link_up, at + length);
    }
    if (pick(3) == 0) control(pick(6));
  }
  if (flavour == Flavour::spraying) {
    set("paths", static_cast<int64_t>(PathChoice::spray));
    set("path_count", 4);
    if (pick(2) == 0) set("round_robin", 1);
  }
  if (flavour == Flavour::controllers) control(static_cast<uint32_t>(seed % 6));
  if (flavour == Flavour::balancers) {
    switch (seed % 3) {
      case 0:
        set("qps", 2 + pick(3));
        break;
      case 1:
        set("paths", static_cast<int64_t>(PathChoice::flowlet));
        set("path_count", 2 + pick(4));
        set("gap", 1'000'000 * static_cast<int64_t>(1 + pick(20)));
        break;
      default:
        set("paths", static_cast<int64_t>(PathChoice::spray));
        set("path_count", 2 + pick(4));
        if (pick(2) == 0) set("round_robin", 1);
    }
    const uint32_t which = pick(8);
    if (which < 6) control(which);
  }
  c.direct = pick(3) == 0;

  const uint32_t n_steps = 3 + pick(8);
  const bool together = flavour == Flavour::simultaneous;
  for (uint32_t i = 0; i < n_steps; ++i) {
    if (i > 1 && pick(2) == 0) {
      c.steps.push_back(c.steps[pick(i)]);  // repeats
      continue;
    }
    OracleCase::Step s;
    s.kind = together ? pick(2) : pick(8) == 0 ? 2 : pick(3) == 2 ? 3 : pick(2);
    s.collective = pick(4);
    s.bytes = 1000 * (1 + pick(60));
    s.stream = pick(2);
    s.compute_ns = together ? 50'000 : 1000 * pick(60);
    if (!together && pick(3) == 0) s.late_rank = pick(hosts);
    c.steps.push_back(s);
  }
  return c;
}

inline RandomCase random_case(uint64_t seed, Flavour flavour) {
  RandomCase c = build(random_oracle_case(seed, flavour));
  c.text = std::string(name_of(flavour)) + " seed " + std::to_string(seed) + ": " + c.text;
  return c;
}

enum class Way { none, off, apart, memo };

struct Outcome {
  Time end;
  uint64_t timeline = 0, fabric = 0;
  uint64_t transmissions = 0, pauses = 0, marks = 0, drops = 0;
  int64_t payload = 0;
  uint64_t rate_changes = 0, reroutes = 0, retransmitted = 0, timeouts = 0, nacks = 0;
  uint64_t acks = 0, cnps = 0, pfc_frames = 0;
  std::vector<std::string> links;  ///< sorted
  FastPathStats stats;
  std::string error;
  std::vector<Time> instants;  ///< at which collectives begin and end
};

/// `gpus`: who is slow or stopped when; null: nobody. With them, as in a scenario, the timeline
/// runs collectives message by message.
inline Outcome run_case(const RandomCase& c, Way way, const FaultSource* gpus = nullptr) {
  std::unique_ptr<Fabric> fabric;
  DomainFabric* domains = nullptr;
  if (way == Way::none) {
    fabric = std::make_unique<PacketFabric>(c.topology, c.config);
  } else {
    FastPathOptions options;
    options.partition = way != Way::off;
    options.memo = options.jumps = way == Way::memo;
    auto owned = std::make_unique<DomainFabric>(c.topology, c.config, options);
    domains = owned.get();
    for (const FabricChange& change : c.changes) domains->schedule(change);
    fabric = std::move(owned);
  }
  Params collectives(collective_params());
  if (c.algorithm != "auto") collectives.set("algorithm", c.algorithm, {});
  const auto selector = make_collective_selector(collectives);
  const auto compute = Registry::instance().factory<ComputeFactory>("compute", "trace")(
      Params(), {DeviceCard(), "", {}});
  TimelineOptions options;
  options.placement.server = std::make_shared<std::vector<uint32_t>>(c.topology.servers());
  options.eager_sends = true;
  if (gpus == nullptr)
    options.host = domains;
  else
    options.faults = gpus;
  Outcome o;
  try {
    Timeline timeline(c.job, *fabric, *compute, *selector, options);
    timeline.run();
    std::vector<Completion> ignored;
    while (fabric->next_event() != Time::infinity()) fabric->advance(Time::infinity(), ignored);
    fabric->check_conservation();
    o.end = timeline.end();
    o.timeline = timeline.fingerprint();
    for (const CollectiveRecord& r : timeline.collectives()) {
      for (const Time at : {r.first_arrival, r.start, r.finish}) o.instants.push_back(at);
    }
  } catch (const SimulationError& e) {
    o.error = e.what();
    return o;
  }
  o.fabric = fabric->fingerprint();
  const FabricTotals t = fabric->totals();
  o.transmissions = t.transmissions;
  o.pauses = t.pfc_pauses;
  o.marks = t.ecn_marks;
  o.drops = t.drops;
  o.payload = t.payload_bytes;
  o.rate_changes = t.rate_changes;
  o.reroutes = t.reroutes;
  o.retransmitted = t.retransmitted;
  o.timeouts = t.timeouts;
  o.nacks = t.nacks;
  o.acks = t.ack_packets;
  o.cnps = t.cnp_packets;
  o.pfc_frames = t.pfc_frames;
  for (const LinkRecord& l : fabric->links()) {
    if (l.packets == 0) continue;
    o.links.push_back(l.from + ">" + l.to + " " + std::to_string(l.packets) + " " +
                      std::to_string(l.bytes) + " " + std::to_string(l.ecn_marks) + " " +
                      std::to_string(l.pauses_received) + " " + std::to_string(l.paused.ps()) +
                      " " + std::to_string(l.busy.ps()) + " " + std::to_string(l.peak_queue_bytes) +
                      " " + std::to_string(l.drops) + " " + std::to_string(l.data_bytes));
  }
  std::sort(o.links.begin(), o.links.end());
  if (domains != nullptr) o.stats = domains->stats();
  return o;
}

/// What differs between two ways of running a case; empty: nothing. Of several drops, which one
/// ends the run is not told apart.
inline std::string difference(const Outcome& a, const Outcome& b) {
  if (a.error.empty() != b.error.empty())
    return "error '" + a.error + "' against '" + b.error + "'";
  if (!a.error.empty()) return "";
  std::string out;
  const auto compare = [&](const char* what, const auto& x, const auto& y) {
    if (x != y) {
      out += std::string(out.empty() ? "" : ", ") + what + " " + std::to_string(x) + " against " +
             std::to_string(y);
    }
  };
  compare("end ps", a.end.ps(), b.end.ps());
  compare("fingerprint of ops", a.timeline, b.timeline);
  compare("fingerprint of packets", a.fabric, b.fabric);
  compare("transmissions", a.transmissions, b.transmissions);
  compare("payload", a.payload, b.payload);
  compare("pauses", a.pauses, b.pauses);
  compare("marks", a.marks, b.marks);
  compare("drops", a.drops, b.drops);
  compare("rate changes", a.rate_changes, b.rate_changes);
  compare("reroutes", a.reroutes, b.reroutes);
  compare("retransmitted", a.retransmitted, b.retransmitted);
  compare("timeouts", a.timeouts, b.timeouts);
  compare("nacks", a.nacks, b.nacks);
  compare("acks", a.acks, b.acks);
  compare("cnps", a.cnps, b.cnps);
  compare("pfc frames", a.pfc_frames, b.pfc_frames);
  compare("links", a.links.size(), b.links.size());
  for (size_t i = 0; i < std::min(a.links.size(), b.links.size()); ++i) {
    if (a.links[i] == b.links[i]) continue;
    out += std::string(out.empty() ? "" : ", ") + "link " + a.links[i] + " against " + b.links[i];
    break;
  }
  return out;
}

/// The fast path against one domain that holds everything.
inline std::string oracle_difference(const RandomCase& c) {
  const Outcome off = run_case(c, Way::off);
  std::string apart = difference(off, run_case(c, Way::apart));
  if (!apart.empty()) return "domains: " + apart;
  std::string memo = difference(off, run_case(c, Way::memo));
  return memo.empty() ? "" : "memo: " + memo;
}

}  // namespace trainyard::test
