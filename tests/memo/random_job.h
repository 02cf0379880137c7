// SPDX-License-Identifier: MIT
// Small random jobs, networks and configurations, and what each way of simulating makes of them.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "memo/domain_fabric.h"
#include "network/analytic/analytic_fabric.h"
#include "network/packet/packet_fabric.h"
#include "network/staged_fabric.h"
#include "sim/collective_host.h"
#include "sim/compute_model.h"
#include "sim/fault_source.h"
#include "sim/records.h"
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
  failover,      ///< NICs with two ports, or other NICs of the server, that take over
  classes,       ///< several data classes that meet at NICs, strict or DWRR
  layers         ///< layers that repeat in servers, messages between them
};

inline const char* name_of(Flavour f) {
  constexpr const char* kNames[] = {"plain",    "tight",   "simultaneous", "marks",
                                    "spraying", "faults",  "controllers",  "balancers",
                                    "failover", "classes", "layers"};
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
  const bool layers = flavour == Flavour::layers;
  if (layers) c.gpus = std::max(2U, c.gpus);
  const uint32_t hosts = c.hosts();
  c.scale_up = c.gpus > 1 && pick(4) != 0;
  if (layers) c.scale_up = true;
  for (uint32_t h = 0; h < hosts; ++h) {
    c.leaf.push_back((h + (pick(8) == 0 ? 1 : 0)) % c.leaves);
    c.delay.push_back(200 + 100 * pick(2));
  }
  const auto set = [&](const std::string& name, int64_t value) {
    c.settings.emplace_back(name, value);
  };
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
  if (flavour == Flavour::tight || (layers && pick(4) == 0)) {
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
  if (flavour == Flavour::classes) {
    const uint32_t classes = 2 + pick(3);
    set("classes", classes);
    if (pick(3) != 0) set("dwrr", 1);
    for (uint32_t i = 0; i < kMaxClasses; ++i) set("weight" + std::to_string(i), 1 + pick(4));
    set("qps", 1 + pick(2));
    if (pick(3) == 0) set("alpha", 1 << 10);
    if (pick(3) == 0) {
      set("congestion", static_cast<int64_t>(CongestionControl::dcqcn));
      marks();
    }
    c.credits = pick(2) == 0;
    // Bundles of flows that leave one host together, in all classes, again and again and from a
    // second host as well, with queue pairs that last.
    const uint32_t bundles = pick(2) * (1 + pick(3));
    for (uint32_t b = 0; b < bundles; ++b) {
      const uint32_t src = pick(hosts);
      const uint32_t n = 2 + pick(6);
      const uint32_t times = 3 + pick(5);
      const int64_t period = 1'000'000 * static_cast<int64_t>(10 + pick(90));
      const int64_t first = 1'000'000 * static_cast<int64_t>(pick(50));
      for (uint32_t i = 0; i < n; ++i) {
        const uint32_t away = 1 + pick(hosts - 1);
        const int64_t every = 1 + pick(2);
        OracleCase::Flow f;
        f.traffic_class = pick(classes);
        f.bytes = 1000 * static_cast<int64_t>(1 + pick(30));
        f.start_ps = first;
        f.period_ps = period * every;
        f.times = (times + static_cast<uint32_t>(every) - 1) / static_cast<uint32_t>(every);
        for (uint32_t twin = 0; twin < 2; ++twin) {
          f.src = (src + twin * c.gpus) % hosts;
          f.dst = (f.src + away) % hosts;
          c.flows.push_back(f);
        }
      }
    }
  }
  if (layers && pick(3) == 0) control(pick(6));
  c.direct = pick(3) == 0;

  if (layers) {
    c.by_kind = seed % 5 != 0;
    std::vector<OracleCase::Step> motif;
    const auto layer = [&] {
      OracleCase::Step s;
      s.collective = pick(3) != 0 ? 1 : 3 * pick(2);
      s.bytes = 1000 * static_cast<int64_t>(1 + pick(4));
      s.compute_ns = 1000 * static_cast<int64_t>(10 + pick(41));
      if (pick(3) == 0) s.late_rank = pick(hosts);
      s.layers = 3 + pick(6);
      motif.push_back(s);
    };
    const auto message = [&] {
      OracleCase::Step s;
      s.kind = 3;
      s.bytes = 1000 * static_cast<int64_t>(1 + pick(60));
      s.stream = 1;
      s.compute_ns = 1000 * static_cast<int64_t>(pick(5));
      if (pick(6) == 0) s.late_rank = pick(hosts);
      motif.push_back(s);
    };
    for (uint32_t n = 1 + pick(2); n > 0; --n) {
      layer();
      if (pick(6) != 0) message();
    }
    // Data parallelism, behind what comes or waited for.
    OracleCase::Step sync;
    sync.kind = 1;
    sync.collective = pick(3);
    sync.bytes = 1000 * static_cast<int64_t>(1 + pick(20));
    sync.stream = pick(2);
    sync.compute_ns = 1000;
    const uint32_t syncs = pick(3);  // never, at the end, again and again
    if (syncs == 2) motif.push_back(sync);
    for (uint32_t n = 3 + pick(4); n > 0; --n) {
      c.steps.insert(c.steps.end(), motif.begin(), motif.end());
    }
    if (syncs == 1) c.steps.push_back(sync);
    return c;
  }
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

/// op_by_op: memo without stretches.
/// The last two: the analytic engine, message by message and with collectives as a whole.
enum class Way { none, off, apart, op_by_op, memo, messages, whole };

/// As traced, and what RandomCase::late says on top of it.
class LateRanks final : public ComputeModel {
 public:
  explicit LateRanks(const std::vector<std::vector<Time>>& late) : late_(late) {}
  [[nodiscard]] Time duration(const OpGraph& graph, uint32_t op, uint32_t rank) const override {
    const Time traced = graph.ops[op].duration;
    if (rank >= late_.size() || op >= late_[rank].size()) return traced;
    return traced + late_[rank][op];
  }
  [[nodiscard]] std::optional<uint64_t> kind_of(uint32_t rank) const override {
    if (rank >= late_.size()) return 0;
    const auto& mine = late_[rank];
    const bool always = std::all_of(mine.begin(), mine.end(), [](Time t) { return t == Time(); });
    return always ? 0 : 1 + rank;
  }
  [[nodiscard]] std::string source() const override { return "trace, some late"; }

 private:
  const std::vector<std::vector<Time>>& late_;
};

struct Outcome {
  Time end;
  uint64_t timeline = 0, fabric = 0;
  uint64_t transmissions = 0, pauses = 0, marks = 0, drops = 0;
  int64_t payload = 0;
  uint64_t rate_changes = 0, reroutes = 0, retransmitted = 0, timeouts = 0, nacks = 0;
  uint64_t acks = 0, cnps = 0, pfc_frames = 0;
  std::vector<std::string> links;        ///< sorted
  std::vector<std::string> flows;        ///< in order of start
  std::vector<std::string> collectives;  ///< in the order of the records
  std::vector<std::string> ranks;
  FastPathStats stats;
  uint64_t ops_replayed = 0;
  bool conflict = false;  ///< run again without stretches
  std::string error;
  std::vector<Time> instants;  ///< at which collectives begin and end
};

/// `gpus`: who is slow or stopped when; null: nobody. With them, as in a scenario, the timeline
/// runs collectives message by message. Throws StretchConflict.
/// `threads`: 0: one, and of the rest as by default; else domains are shared out wherever they can.
inline Outcome run_once(const RandomCase& c, Way way, const FaultSource* gpus, bool stretches,
                        uint32_t threads = 0) {
  std::unique_ptr<Fabric> fabric;
  DomainFabric* domains = nullptr;
  CollectiveHost* host = nullptr;
  if (way == Way::none) {
    fabric = std::make_unique<PacketFabric>(c.topology, c.config);
  } else if (way == Way::messages || way == Way::whole) {
    auto analytic = std::make_unique<AnalyticFabric>(c.topology, c.config, AnalyticConfig{});
    if (way == Way::whole) host = analytic.get();
    fabric = std::move(analytic);
  } else {
    FastPathOptions options;
    options.partition = way != Way::off;
    options.memo = options.jumps = way == Way::memo || way == Way::op_by_op;
    options.stretches = stretches;
    if (threads > 0) {
      options.threads = threads;
      options.worth_sharing = 0;
    }
    auto owned = std::make_unique<DomainFabric>(c.topology, c.config, options);
    host = domains = owned.get();
    for (const FabricChange& change : c.changes) domains->schedule(change);
    fabric = std::move(owned);
  }
  Params collectives(collective_params());
  if (c.algorithm != "auto") collectives.set("algorithm", c.algorithm, {});
  if (c.credits) collectives.set("admission", "credits", {});
  const auto selector = make_collective_selector(collectives);
  const LateRanks compute(c.late);
  TimelineOptions options;
  options.placement.server = std::make_shared<std::vector<uint32_t>>(c.topology.servers());
  options.eager_sends = true;
  options.complete_at_receiver = c.config.complete_at_receiver;
  options.stretches = stretches;
  options.most_records = c.most_records;
  options.faults = gpus;
  if (gpus == nullptr && c.flows.empty()) options.host = host;
  StagedFabric staged(*fabric, c.flows, {}, {});
  Fabric& beneath = c.flows.empty() ? *fabric : staged;
  const auto row = [](std::string text, std::initializer_list<int64_t> values) {
    for (const int64_t v : values) text += " " + std::to_string(v);
    return text;
  };
  Outcome o;
  try {
    Timeline timeline(c.job, beneath, compute, *selector, options);
    timeline.run();
    std::vector<Completion> ignored;
    while (beneath.next_event() != Time::infinity()) beneath.advance(Time::infinity(), ignored);
    fabric->check_conservation();
    o.end = timeline.end();
    o.timeline = timeline.fingerprint();
    for (const CollectiveRecord& r : timeline.collectives()) {
      for (const Time at : {r.first_arrival, r.start, r.finish}) o.instants.push_back(at);
      o.collectives.push_back(
          row(r.group + "/" + r.name + " " + r.algorithm,
              {r.bytes, r.first_arrival.ps(), r.start.ps(), r.finish.ps(),
               static_cast<int64_t>(r.last_rank), static_cast<int64_t>(r.transfers), r.wire_payload,
               static_cast<int64_t>(r.transmissions), static_cast<int64_t>(r.cts_count),
               r.cts_p50.ps(), r.cts_p90.ps(), r.cts_p99.ps()}));
    }
    for (const RankTimes& r : timeline.rank_times()) {
      o.ranks.push_back(
          row("rank " + std::to_string(r.rank), {r.finish.ps(), r.compute.ps(), r.exposed_comm.ps(),
                                                 r.hidden_comm.ps(), r.wait.ps(), r.idle.ps()}));
    }
    o.ops_replayed = timeline.ops_replayed();
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
  if (!c.flows.empty()) {
    for (const TransferRecord& r : staged.flow_records(false)) {
      o.flows.push_back(row("flow " + std::to_string(r.src) + ">" + std::to_string(r.dst),
                            {r.start.ps(), r.delivered.ps(), r.acknowledged.ps()}));
    }
  }
  if (domains != nullptr) o.stats = domains->stats();
  return o;
}

/// As a scenario is run: where something comes near a stretch after all, without them.
inline Outcome run_case(const RandomCase& c, Way way, const FaultSource* gpus = nullptr,
                        uint32_t threads = 0) {
  try {
    return run_once(c, way, gpus, way == Way::memo, threads);
  } catch (const StretchConflict&) {
    Outcome o = run_once(c, way, gpus, false, threads);
    o.conflict = true;
    return o;
  }
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
  const auto rows = [&](const char* what, const std::vector<std::string>& x,
                        const std::vector<std::string>& y) {
    compare(what, x.size(), y.size());
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (x[i] == y[i]) continue;
      out += (out.empty() ? "" : ", ") + x[i] + " against " + y[i];
      break;
    }
  };
  rows("links", a.links, b.links);
  rows("flows", a.flows, b.flows);
  rows("collectives", a.collectives, b.collectives);
  rows("ranks", a.ranks, b.ranks);
  return out;
}

/// The fast path against one domain that holds everything.
inline std::string oracle_difference(const RandomCase& c) {
  const Outcome off = run_case(c, Way::off);
  std::string apart = difference(off, run_case(c, Way::apart));
  if (!apart.empty()) return "domains: " + apart;
  const Outcome memo = run_case(c, Way::memo);
  std::string what = difference(off, memo);
  if (!what.empty()) return "memo: " + what;
  if (memo.ops_replayed == 0 && !memo.conflict) return "";
  what = difference(off, run_case(c, Way::op_by_op));
  return what.empty() ? "" : "memo without stretches: " + what;
}

}  // namespace trainyard::test
