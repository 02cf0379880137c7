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
#include "network/staged_fabric.h"
#include "sim/registry.h"
#include "sim/timeline.h"
#include "workload/collective_params.h"

namespace trainyard::test {

struct RandomCase {
  Topology topology;
  PacketConfig config;
  Job job;
  std::string algorithm = "auto";
  bool credits = false;  ///< clear-to-send messages in class 0, collectives in class 1
  std::vector<FabricChange> changes;
  std::vector<TimedFlow> flows;  ///< beside the job
  std::string text;              ///< what it is, for messages
};

enum class Flavour {
  plain,         ///< ample buffers
  tight,         ///< dynamic thresholds near XOFF
  simultaneous,  ///< everything starts at once, again and again
  marks,         ///< DCQCN and ECN bands that queues reach
  spraying,      ///< several paths per queue pair
  faults,        ///< links go down, flap, degrade and lose packets
  classes        ///< several data classes that meet at NICs, strict or DWRR
};

inline PacketConfig base_config(CongestionControl congestion) {
  PacketConfig c = make_packet_config({Params(transport_params()), "dcqcn", Params(dcqcn_params()),
                                       "ecmp", Params(ecmp_params()), Params(buffer_params()),
                                       Params(pfc_params()), Params(ecn_params()), 1});
  c.congestion = congestion;
  return c;
}

inline RandomCase random_case(uint64_t seed, Flavour flavour) {
  std::mt19937_64 rng(seed * 7919 + static_cast<uint64_t>(flavour));
  const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(rng() % n); };
  RandomCase c;
  // Servers with a scale-up switch and NICs, leaves and spines.
  const uint32_t servers = 2 + pick(3);
  const uint32_t gpus = 1 + pick(4);
  const uint32_t leaves = 1 + pick(2);
  const uint32_t spines = leaves == 1 ? 0 : 1 + pick(2);
  const Rate nic = Rate::gbps(pick(2) == 0 ? 100 : 200);
  Topology& t = c.topology;
  const uint32_t hosts = servers * gpus;
  for (uint32_t h = 0; h < hosts; ++h) t.add_node("gpu" + std::to_string(h), NodeKind::host);
  std::vector<uint32_t> leaf;
  std::vector<uint32_t> spine;
  std::vector<uint32_t> up;
  for (uint32_t l = 0; l < leaves; ++l) {
    leaf.push_back(t.add_node("leaf" + std::to_string(l), NodeKind::leaf));
  }
  for (uint32_t s = 0; s < spines; ++s) {
    spine.push_back(t.add_node("spine" + std::to_string(s), NodeKind::spine));
  }
  const bool scale_up = gpus > 1 && pick(4) != 0;
  for (uint32_t s = 0; scale_up && s < servers; ++s) {
    up.push_back(t.add_node("nvs" + std::to_string(s), NodeKind::scale_up));
  }
  for (uint32_t h = 0; h < hosts; ++h) {
    t.add_link(h, leaf[(h + (pick(8) == 0 ? 1 : 0)) % leaves], nic, Time::ns(200 + 100 * pick(2)));
    if (scale_up) t.add_link(h, up[h / gpus], Rate::gbps(800), Time::ns(250));
  }
  for (const uint32_t l : leaf) {
    for (const uint32_t s : spine) t.add_link(l, s, nic, Time::ns(300));
  }
  t.finish();

  c.config =
      base_config(flavour == Flavour::marks ? CongestionControl::dcqcn : CongestionControl::none);
  c.config.seed = seed;
  c.config.payload = 1000;
  c.config.header = 48;
  c.config.ack_interval = 1 + pick(3) / 2;
  c.config.buffer = 4 << 20;
  if (pick(3) == 0) c.config.window = WindowRule::bdp_pair;
  if (flavour == Flavour::tight) {
    c.config.alpha_q16 = 1 << (10 + pick(4));
    c.config.headroom_rule = HeadroomRule::fixed;
    c.config.headroom_fixed = 30'000;
    c.config.reserve = pick(2) * 2096;
    size_t ports = 0;
    for (size_t n = 0; n < t.nodes().size(); ++n) {
      ports = std::max<size_t>(ports, t.nodes()[n].ports.size());
    }
    c.config.buffer = static_cast<int64_t>(ports) * (c.config.headroom_fixed + c.config.reserve) +
                      20'000 * (1 + pick(10));
    if (pick(3) == 0) c.config.pause_quanta = 400;
  }
  if (flavour == Flavour::marks) {
    c.config.kmin = 4000;
    c.config.kmax = 40'000;
    c.config.dithered = pick(2) == 0;
  }
  if (flavour == Flavour::faults) {
    c.config.rto_ps = 300'000'000;
    c.config.nack_interval_ps = 5'000'000;
    c.config.convergence_ps = 10'000'000 * (1 + pick(10));
    const uint32_t faults = 1 + pick(3);
    for (uint32_t i = 0; i < faults; ++i) {
      FabricChange change;
      change.link = pick(static_cast<uint32_t>(t.links().size()));
      int64_t at = 1'000'000 * (1 + pick(300));
      const int64_t length = 1'000'000 * (1 + pick(200));
      const auto add = [&](FabricChange::Kind kind, uint64_t value, int64_t when) {
        change.kind = kind;
        change.value_q32 = value;
        change.at = Time::ps(when);
        c.changes.push_back(change);
      };
      using Kind = FabricChange::Kind;
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
  if (flavour == Flavour::spraying) {
    c.config.paths = PathChoice::spray;
    c.config.path_count = 4;
    c.config.round_robin = pick(2) == 0;
    c.config.recovery = LossRecovery::go_back_n;
  }
  if (flavour == Flavour::classes) {
    c.config.classes = 2 + pick(3);
    c.config.dwrr = pick(3) != 0;
    for (uint32_t& weight : c.config.weights) weight = 1 + pick(4);
    c.config.qps = 1 + pick(2);
    if (pick(3) == 0) c.config.alpha_q16 = 1 << 10;
    if (pick(3) == 0) {
      c.config.congestion = CongestionControl::dcqcn;
      c.config.kmin = 4000;
      c.config.kmax = 40'000;
    }
    c.credits = pick(2) == 0;
    // Bundles of flows that leave one host together, in all classes, again and again and from a
    // second host as well, with queue pairs that last.
    const uint32_t bundles = pick(2) * (1 + pick(3));
    uint32_t channel = 0x80000000U;
    for (uint32_t b = 0; b < bundles; ++b) {
      const uint32_t src = pick(hosts);
      const uint32_t n = 2 + pick(6);
      const uint32_t times = 3 + pick(5);
      const int64_t period = 1'000'000 * (10 + pick(90));
      const Time first = Time::ns(1000 * pick(50));
      for (uint32_t twin = 0; twin < 2; ++twin) {
        uint64_t state = seed + b;
        const auto draw = [&](uint64_t below) {
          state = state * 6364136223846793005ULL + 1442695040888963407ULL;
          return (state >> 33) % below;
        };
        for (uint32_t i = 0; i < n; ++i) {
          TimedFlow f;
          f.transfer.src = (src + twin * gpus) % hosts;
          f.transfer.dst = static_cast<uint32_t>((f.transfer.src + 1 + draw(hosts - 1)) % hosts);
          f.transfer.channel = channel++;
          f.transfer.traffic_class = static_cast<uint8_t>(draw(c.config.classes));
          const auto full = static_cast<int64_t>(1000 * (1 + draw(30)));
          const uint64_t every = 1 + draw(2);
          for (uint32_t k = 0; k < times; k += static_cast<uint32_t>(every)) {
            f.transfer.size = Bytes(full / (1 + static_cast<int64_t>(k % 3 / 2)));
            f.start = first + Time::ps(period * k);
            c.flows.push_back(f);
          }
        }
      }
    }
  }
  c.algorithm = pick(3) == 0 ? "direct" : "auto";

  // Groups: those of a server, those of equal place in a server, all.
  Job& job = c.job;
  job.name = "random";
  std::vector<uint32_t> inner(hosts);
  std::vector<uint32_t> outer(hosts);
  for (uint32_t s = 0; s < servers; ++s) {
    Group g{"server" + std::to_string(s), {}};
    for (uint32_t i = 0; i < gpus; ++i) {
      g.members.push_back(s * gpus + i);
      inner[s * gpus + i] = static_cast<uint32_t>(job.groups.size());
    }
    job.groups.push_back(g);
  }
  for (uint32_t i = 0; i < gpus; ++i) {
    Group g{"rail" + std::to_string(i), {}};
    for (uint32_t s = 0; s < servers; ++s) {
      g.members.push_back(s * gpus + i);
      outer[s * gpus + i] = static_cast<uint32_t>(job.groups.size());
    }
    job.groups.push_back(g);
  }
  const auto all = static_cast<uint32_t>(job.groups.size());
  Group everybody{"all", {}};
  for (uint32_t h = 0; h < hosts; ++h) everybody.members.push_back(h);
  job.groups.push_back(everybody);

  // One program, in which ranks may be late by themselves.
  struct Step {
    uint32_t kind;  // 0: group of the server, 1: rail, 2: all, 3: message to the next server
    CollectiveKind collective;
    int64_t bytes;
    uint32_t stream;
    int64_t compute_ns;
    uint32_t late_rank;
  };
  std::vector<Step> steps;
  const uint32_t n_steps = 3 + pick(8);
  const CollectiveKind kinds[] = {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                  CollectiveKind::reduce_scatter, CollectiveKind::all_to_all};
  const bool together = flavour == Flavour::simultaneous;
  for (uint32_t i = 0; i < n_steps; ++i) {
    if (i > 1 && pick(2) == 0) {
      steps.push_back(steps[pick(i)]);  // repeats
      continue;
    }
    Step s{};
    s.kind = together ? pick(2) : pick(8) == 0 ? 2 : pick(3) == 2 ? 3 : pick(2);
    s.collective = kinds[pick(4)];
    s.bytes = 1000 * (1 + pick(60));
    s.stream = pick(2);
    s.compute_ns = together ? 50'000 : 1000 * pick(60);
    s.late_rank = !together && pick(3) == 0 ? pick(hosts) : hosts;
    steps.push_back(s);
  }
  for (uint32_t h = 0; h < hosts; ++h) {
    auto g = std::make_shared<OpGraph>();
    g->streams = {{"compute", StreamOrder::fifo},
                  {"comm0", StreamOrder::fifo},
                  {"comm1", StreamOrder::fifo},
                  {"recv", StreamOrder::fifo}};
    uint32_t last = 0xffffffffU;
    const auto add = [&](Op op) {
      op.source_id = g->ops.size();
      op.name = g->intern("op" + std::to_string(g->ops.size()));
      g->ops.push_back(op);
      return static_cast<uint32_t>(g->ops.size() - 1);
    };
    for (const Step& s : steps) {
      Op compute;
      compute.kind = OpKind::compute;
      compute.duration = Time::ns(std::max<int64_t>(
          1, s.compute_ns + (s.late_rank == h ? 3000 + 1000 * static_cast<int64_t>(h) : 0)));
      const uint32_t before = add(compute);
      if (last != 0xffffffffU) g->add_dependency(last, before);
      if (s.kind == 3) {
        Op send;
        send.kind = OpKind::send;
        send.stream = 1 + s.stream;
        send.bytes = s.bytes;
        send.peer_slot = 0;
        g->add_dependency(before, add(send));
        Op recv = send;
        recv.kind = OpKind::recv;
        recv.stream = 3;
        recv.peer_slot = 1;
        const uint32_t r = add(recv);
        g->add_dependency(before, r);
        last = r;
        continue;
      }
      Op op;
      op.kind = OpKind::collective;
      op.collective = s.collective;
      op.bytes = s.bytes * 8;
      op.group_slot = s.kind;
      op.stream = 1 + s.stream;
      const uint32_t id = add(op);
      g->add_dependency(before, id);
      // Some are waited for, some overlap with what comes.
      last = s.stream == 0 ? id : before;
    }
    g->finish();
    RankProgram p;
    p.graph = g;
    p.binding.groups = {inner[h], outer[h], all};
    p.binding.peers = {(h + gpus) % hosts, (h + hosts - gpus) % hosts};
    job.ranks.push_back(p);
  }
  c.text = "seed " + std::to_string(seed) + " flavour " +
           std::to_string(static_cast<int>(flavour)) + ": " + std::to_string(servers) + "x" +
           std::to_string(gpus) + " on " + std::to_string(leaves) + "+" + std::to_string(spines) +
           (scale_up ? " with" : " without") + " scale-up, " + std::to_string(n_steps) + " steps";
  if (flavour == Flavour::classes) {
    c.text +=
        "; " + std::to_string(c.config.classes) + " classes" + (c.config.dwrr ? ", dwrr" : "");
    for (const uint32_t weight : c.config.weights) c.text += " " + std::to_string(weight);
    c.text += ", " + std::to_string(c.config.qps) + " queue pairs, " +
              (c.config.congestion == CongestionControl::none ? "no" : "some") + " control, " +
              (c.config.window == WindowRule::none ? "no" : "some") + " window, alpha " +
              std::to_string(c.config.alpha_q16) + (c.credits ? ", credits, " : ", ") +
              std::to_string(c.flows.size()) + " flows";
  }
  for (const FabricChange& f : c.changes) {
    c.text += "; " + std::to_string(static_cast<int>(f.kind)) + " of link " +
              std::to_string(f.link) + " at " + print_time(f.at);
  }
  return c;
}

enum class Way { none, off, apart, memo };

struct Outcome {
  Time end;
  uint64_t timeline = 0, fabric = 0;
  uint64_t transmissions = 0, pauses = 0, marks = 0, drops = 0;
  int64_t payload = 0;
  std::vector<std::string> links;  ///< sorted
  std::vector<std::string> flows;  ///< in order of start
  FastPathStats stats;
  std::string error;
};

inline Outcome run_case(const RandomCase& c, Way way) {
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
  if (c.credits) collectives.set("admission", "credits", {});
  const auto selector = make_collective_selector(collectives);
  const auto compute = Registry::instance().factory<ComputeFactory>("compute", "trace")(
      Params(), {DeviceCard(), "", {}});
  TimelineOptions options;
  options.placement.server = std::make_shared<std::vector<uint32_t>>(c.topology.servers());
  options.eager_sends = true;
  options.host = c.flows.empty() ? domains : nullptr;
  StagedFabric staged(*fabric, c.flows, {}, {});
  Fabric& beneath = c.flows.empty() ? *fabric : staged;
  Outcome o;
  try {
    Timeline timeline(c.job, beneath, *compute, *selector, options);
    timeline.run();
    std::vector<Completion> ignored;
    while (beneath.next_event() != Time::infinity()) beneath.advance(Time::infinity(), ignored);
    fabric->check_conservation();
    o.end = timeline.end();
    o.timeline = timeline.fingerprint();
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
  for (const LinkRecord& l : fabric->links()) {
    if (l.packets == 0) continue;
    o.links.push_back(l.from + ">" + l.to + " " + std::to_string(l.packets) + " " +
                      std::to_string(l.bytes) + " " + std::to_string(l.ecn_marks) + " " +
                      std::to_string(l.pauses_received) + " " + std::to_string(l.paused.ps()) +
                      " " + std::to_string(l.busy.ps()) + " " + std::to_string(l.peak_queue_bytes));
  }
  std::sort(o.links.begin(), o.links.end());
  if (!c.flows.empty()) {
    for (const TransferRecord& r : staged.flow_records(false)) {
      o.flows.push_back(std::to_string(r.src) + ">" + std::to_string(r.dst) + " from " +
                        print_time(r.start) + ": " + std::to_string(r.delivered.ps()) + " " +
                        std::to_string(r.acknowledged.ps()));
    }
  }
  if (domains != nullptr) o.stats = domains->stats();
  return o;
}

}  // namespace trainyard::test
