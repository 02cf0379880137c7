// SPDX-License-Identifier: MIT
// Controller-event stepping beside the packet engine: the same flows and rings on both, several
// seeds each. Errors are those of means over seeds; the spread of packets between seeds is printed
// beside them, for no shortcut can be held to less (DESIGN section 6, error yardstick).
//
//   bench_stepping [--only TEXT] [--seeds N] [--reference DIR]
//
// Flow completion is until the last ACK. The end is that of the last flow; of rings, the mean of
// how long each took until its last chunk was delivered. Ratio: link transmissions of packets over
// events of stepping. Sets of the published tables are run where the folder of references is found.
// Last line: one JSON object.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "memo/stepping/stepped_fabric.h"
#include "network/packet/packet_fabric.h"
#include "tools/benchmarks/golden_cases.h"
#include "tools/scenario/run.h"

namespace fs = std::filesystem;
using namespace trainyard;

namespace {

/// Ring all-reduces side by side: every rank of a ring sends chunks to the next on one queue pair,
/// and a chunk leaves when the one before it has come in.
struct Rings {
  std::vector<std::vector<uint32_t>> members;
  std::vector<int64_t> chunks;   ///< bytes, by ring
  std::vector<Time> starts;      ///< by ring
  std::vector<size_t> halves{};  ///< by ring; 1: a reduce-scatter or all-gather, 2: both
};

struct Case {
  std::string name, scenario;
  std::vector<std::string> settings;
  Rings rings{};
  bool random = true;  ///< else one seed says it all
  std::string group;   ///< "golden", "long", "random" or "ring"
};

struct Figures {
  double mean_us = 0, p99_us = 0, end_us = 0;
  double wall_s = 0;
  uint64_t transmissions = 0, events = 0, pauses = 0;
  std::string declined;
};

/// @returns how long those with most members took, mean, in us.
double run_rings(Fabric& fabric, const Rings& rings) {
  struct Role {
    size_t ring, at;
    uint32_t step;
  };
  std::vector<Role> roles;
  const auto send = [&](size_t ring, size_t at, uint32_t step, Time when) {
    const auto& m = rings.members[ring];
    Transfer t;
    t.src = m[at];
    t.dst = m[(at + 1) % m.size()];
    t.size = Bytes(rings.chunks[ring]);
    t.channel = static_cast<uint32_t>(ring);
    roles.push_back({ring, at, step});
    fabric.start(t, when);
  };
  for (size_t r = 0; r < rings.members.size(); ++r) {
    for (size_t i = 0; i < rings.members[r].size(); ++i) send(r, i, 0, rings.starts[r]);
  }
  std::vector<Completion> done;
  std::vector<Time> ends(rings.members.size());
  while (fabric.outstanding() > 0) {
    done.clear();
    fabric.advance(Time::infinity(), done);
    for (const Completion& c : done) {
      if (c.what != Completion::What::delivered) continue;
      const Role role = roles[c.id];
      ends[role.ring] = c.at;
      const size_t n = rings.members[role.ring].size();
      if (role.step + 1 < rings.halves[role.ring] * (n - 1)) {
        send(role.ring, (role.at + 1) % n, role.step + 1, c.at);
      }
    }
  }
  size_t most = 0;
  for (const auto& m : rings.members) most = std::max(most, m.size());
  double sum = 0, count = 0;
  for (size_t r = 0; r < ends.size(); ++r) {
    if (rings.members[r].size() < most) continue;
    sum += (ends[r] - rings.starts[r]).micros();
    ++count;
  }
  return sum / count;
}

void run_flows(Fabric& fabric, const std::vector<Flow>& flows) {
  for (const Flow& f : flows) {
    Transfer t;
    t.src = f.src;
    t.dst = f.dst;
    t.size = Bytes(f.bytes);
    fabric.start(t, f.start);
  }
  std::vector<Completion> done;
  while (fabric.outstanding() > 0) {
    done.clear();
    fabric.advance(Time::infinity(), done);
  }
}

Figures run(const Case& c, const Topology& topology, const PacketConfig& config,
            const std::vector<Flow>& flows, bool stepped) {
  Figures f;
  std::unique_ptr<Fabric> fabric;
  if (stepped)
    fabric = std::make_unique<SteppedFabric>(topology, config);
  else
    fabric = std::make_unique<PacketFabric>(topology, config);
  const auto began = std::chrono::steady_clock::now();
  double rings_us = 0;
  if (!c.rings.chunks.empty())
    rings_us = run_rings(*fabric, c.rings);
  else
    run_flows(*fabric, flows);
  f.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  fabric->check_conservation();
  std::vector<double> times;
  Time end;
  for (const TransferRecord& r : fabric->transfers()) {
    times.push_back((r.acknowledged - r.start).micros());
    end = std::max(end, r.delivered);
  }
  const golden::Stats s = golden::stats_of(times);
  const FabricTotals t = fabric->totals();
  f.mean_us = s.mean;
  f.p99_us = s.p99;
  f.end_us = c.rings.chunks.empty() ? end.micros() : rings_us;
  f.transmissions = t.transmissions;
  f.events = t.events;
  f.pauses = t.pfc_pauses;
  if (stepped) f.declined = static_cast<SteppedFabric&>(*fabric).declined();
  return f;
}

std::vector<Case> all_cases(const fs::path& reference) {
  const std::string root = TRAINYARD_SOURCE_DIR;
  const std::string incast = root + "/scenarios/golden/incast-dcqcn.yaml";
  const std::string plain = root + "/scenarios/bench/incast.yaml";
  std::vector<Case> cases;
  const fs::path golden = fs::path(root) / "scenarios" / "golden";
  if (fs::is_directory(reference)) {
    for (const golden::Case& g : golden::read_cases((golden / "cases.csv").string())) {
      const fs::path set = reference / g.peer / g.set;
      const bool dcqcn = g.kind == "random" || g.set.find("step") != std::string::npos ||
                         g.set.find("dflt") != std::string::npos;
      if (g.peer != "hpcc-ns3" || !dcqcn || g.set.rfind("S1", 0) == 0) continue;
      Case c{g.set, (golden / g.scenario).string(), g.settings, {}, g.kind == "random", "golden"};
      c.settings.push_back("fabric.topology.path=" + (set / "topology.txt").string());
      c.settings.push_back("traffic=[{pattern: file, path: " + (set / "flows.csv").string() + "}]");
      cases.push_back(std::move(c));
    }
  }
  const auto port = [&](int n, const std::string& size) {
    cases.push_back(
        {fmt::format("{} x {} into one port", n, size),
         incast,
         {fmt::format("cluster={{nodes: {}, gpus_per_node: 1}}", n + 1),
          "fabric.topology={kind: single-switch, scale_up: {kind: none}, nic: {rate: "
          "100Gbps}, link: {delay: 1us}}",
          "fabric.switch.buffer=1GiB",
          fmt::format("traffic=[{{pattern: incast, dst: {}, fan_in: {}, size: {}}}]", n, n, size)},
         {},
         true,
         "long"});
  };
  port(4, "400MB");
  port(8, "100MB");
  port(16, "4MB");
  port(256, "2MB");
  const auto mixed = [&](const std::string& name, const std::string& topology, int nodes,
                         const std::string& traffic, const std::string& preset) {
    cases.push_back({name,
                     plain,
                     {fmt::format("cluster={{nodes: {}, gpus_per_node: 1}}", nodes),
                      "fabric.topology=" + topology, "fabric.transport={preset: " + preset + "}",
                      "fabric.switch={buffer: 64MiB}", "traffic=" + traffic},
                     {},
                     true,
                     "random"});
  };
  const std::string clos =
      "{kind: leaf-spine, leaf_radix: 16, oversubscription: 2, scale_up: {kind: none}, nic: {rate: "
      "100Gbps}, link: {delay: 1us}}";
  mixed("permutation 20 MB, 2:1 Clos", clos, 64, "[{pattern: permutation, size: 20MB}]", "rocev2");
  mixed("permutation + incast, 2:1 Clos", clos, 64,
        "[{pattern: permutation, size: 10MB}, {pattern: incast, dst: 5, fan_in: 12, size: 5MB, "
        "start: 100us}]",
        "rocev2");
  mixed("all-to-all 1 MB, k=4 fat tree",
        "{kind: fat-tree, k: 4, scale_up: {kind: none}, nic: {rate: 100Gbps}, link: {delay: 1us}}",
        16, "[{pattern: all-to-all, size: 1MB}]", "rocev2");
  mixed("permutation 20 MB, paper order", clos, 64, "[{pattern: permutation, size: 20MB}]",
        "rocev2-paper");
  const auto rings = [&](const std::string& name, int64_t chunk, const std::string& rate) {
    Case c{name,
           plain,
           {"cluster={nodes: 32, gpus_per_node: 1}",
            "fabric.topology={kind: leaf-spine, leaf_radix: 16, scale_up: {kind: none}, nic: "
            "{rate: " +
                rate + "}, link: {delay: 1us}}",
            "fabric.transport={preset: rocev2}", "fabric.switch={buffer: 64MiB}",
            "traffic=[{pattern: permutation, size: 1MB}]"},
           {},
           true,
           "ring"};
    // Neighbours in a ring are under different leaves of eight hosts.
    c.rings.members.resize(2);
    for (uint32_t i = 0; i < 16; ++i) {
      c.rings.members[0].push_back(i % 4 * 8 + i / 4);
      c.rings.members[1].push_back(i % 4 * 8 + 4 + i / 4);
    }
    c.rings.chunks.assign(2, chunk);
    c.rings.starts.resize(2);
    c.rings.halves = {2, 2};
    cases.push_back(std::move(c));
  };
  rings("two rings, 1 MB chunks, 100G", 1'000'000, "100Gbps");
  rings("two rings, 4 MB chunks, 100G", 4'000'000, "100Gbps");
  rings("two rings, 1 MB chunks, 400G", 1'000'000, "400Gbps");
  rings("two rings, 4 MB chunks, 400G", 4'000'000, "400Gbps");
  // Each of four leaves has one link up, on which a flow of either ring goes; so has dense (c).
  const auto uplinks = [&](const std::string& name, std::vector<int64_t> chunks, Time later) {
    Case c{name,
           plain,
           {"cluster={nodes: 64, gpus_per_node: 1}",
            "fabric.topology={kind: leaf-spine, leaf_radix: 17, oversubscription: 16, scale_up: "
            "{kind: none}, nic: {rate: 400Gbps}}",
            "fabric.transport={preset: rocev2}", "traffic=[{pattern: permutation, size: 1MB}]"},
           {},
           true,
           "ring"};
    for (uint32_t r = 0; r < 2; ++r) {
      c.rings.members.emplace_back();
      for (uint32_t i = 0; i < 32; ++i) c.rings.members[r].push_back(2 * i + r);
      c.rings.starts.push_back(r == 0 ? Time() : later);
    }
    c.rings.chunks = std::move(chunks);
    c.rings.halves = {1, 1};
    cases.push_back(std::move(c));
  };
  uplinks("one uplink, 7.5 and 6.4 MB", {7'474'624, 6'427'072}, Time::us(304));
  uplinks("one uplink, 6.4 MB", {6'427'072, 6'427'072}, Time());
  // Of a rail of dense (c): the rings of the first and the last stage over four leaves of 32 hosts
  // with 16 links up, and between the stages the gradients of the embedding, by pairs.
  Case rail{"a rail of dense (c)",
            plain,
            {"cluster={nodes: 128, gpus_per_node: 1}",
             "fabric.topology={kind: leaf-spine, leaf_radix: 48, oversubscription: 2, scale_up: "
             "{kind: none}, nic: {rate: 400Gbps}}",
             "fabric.transport={preset: rocev2}", "traffic=[{pattern: permutation, size: 1MB}]"},
            {},
            true,
            "ring"};
  const auto add = [&rail](std::vector<uint32_t> members, int64_t chunk, Time start,
                           size_t halves) {
    rail.rings.members.push_back(std::move(members));
    rail.rings.chunks.push_back(chunk);
    rail.rings.starts.push_back(start);
    rail.rings.halves.push_back(halves);
  };
  std::vector<uint32_t> first, last;
  for (uint32_t i = 0; i < 32; ++i) {
    first.push_back(4 * i);
    last.push_back(4 * i + 3);
  }
  add(first, 7'474'624, Time::us(304), 1);
  add(last, 6'427'072, Time(), 1);
  for (uint32_t i = 0; i < 32; ++i) add({4 * i, 4 * i + 3}, 52'428'800, Time::us(297), 2);
  cases.push_back(std::move(rail));
  return cases;
}

double pct(double ours, double reference) {
  return 100 * (ours / reference - 1);
}

int run_all(int argc, char** argv) {
  fs::path reference = fs::path(TRAINYARD_SOURCE_DIR) / ".." / "shared" / "reference";
  if (const char* shared = std::getenv("TRAINYARD_SHARED")) {
    reference = fs::path(shared) / "reference";
  }
  std::string only;
  int seeds = 5;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--only" && i + 1 < argc)
      only = argv[++i];
    else if (a == "--seeds" && i + 1 < argc)
      seeds = std::max(1, std::stoi(argv[++i]));
    else if (a == "--reference" && i + 1 < argc)
      reference = argv[++i];
    else
      throw UserError("unknown argument " + a, "use --only TEXT, --seeds N, --reference DIR");
  }
  fmt::print("{:32} {:>5} {:>11} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>8} {:>8}  {}\n",
             "case", "seeds", "packets us", "+-mean %", "mean %", "p99 %", "end %", "+-end %",
             "transm.", "events", "ratio", "wall x", "verdict");
  struct Sum {
    int cases = 0;
    double mean = 0, worst = 0, end = 0, wall = 0, packets_wall = 0;
    uint64_t transmissions = 0, events = 0;
  };
  const std::vector<std::string> groups = {"golden", "long", "random", "ring"};
  std::vector<Sum> sums(groups.size());
  int declined_cases = 0;
  int cases = 0;
  for (const Case& c : all_cases(reference)) {
    if (c.name.find(only) == std::string::npos && c.group != only) continue;
    ++cases;
    const int runs = c.random ? seeds : 1;
    std::vector<Figures> p;
    std::vector<Figures> s;
    for (int seed = 1; seed <= runs; ++seed) {
      ScenarioOverrides overrides;
      overrides.settings = c.settings;
      overrides.settings.push_back("seed=" + std::to_string(seed));
      overrides.settings.emplace_back("output.dir=unused");
      const Scenario scenario = load_scenario(c.scenario, overrides);
      const Topology topology = build_topology(scenario, 0);
      const PacketConfig config = packet_config(scenario);
      const auto flows = build_flows(scenario, static_cast<uint32_t>(topology.hosts().size()));
      p.push_back(run(c, topology, config, flows, false));
      s.push_back(run(c, topology, config, flows, true));
    }
    const auto mean = [](const std::vector<Figures>& v, double Figures::*field) {
      double sum = 0;
      for (const Figures& f : v) sum += f.*field;
      return sum / static_cast<double>(v.size());
    };
    const double pm = mean(p, &Figures::mean_us);
    double spread = 0;
    uint64_t transmissions = 0;
    uint64_t events = 0;
    uint64_t pauses = 0;
    std::string declined;
    int declines = 0;
    for (const Figures& f : p) {
      spread += (f.mean_us - pm) * (f.mean_us - pm);
      transmissions += f.transmissions;
      pauses += f.pauses;
    }
    for (const Figures& f : s) {
      events += f.events;
      if (f.declined.empty()) continue;
      ++declines;
      declined = f.declined;
    }
    // Seeds choose routes too: what an error is worth shows seed by seed.
    double end_spread = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      const double error =
          s[i].end_us / p[i].end_us - mean(s, &Figures::end_us) / mean(p, &Figures::end_us);
      end_spread += error * error;
    }
    end_spread = runs > 1 ? 100 * std::sqrt(end_spread / (runs - 1) / runs) : 0;
    spread = runs > 1 ? 100 * std::sqrt(spread / (runs - 1) / runs) / pm : 0;
    const double mean_error = pct(mean(s, &Figures::mean_us), pm);
    const double end_error = pct(mean(s, &Figures::end_us), mean(p, &Figures::end_us));
    const double wall = mean(p, &Figures::wall_s) / mean(s, &Figures::wall_s);
    fmt::print(
        "{:32} {:>5} {:>11.2f} {:>8.2f} {:>+8.2f} {:>+8.2f} {:>+8.2f} {:>8.2f} {:>9} {:>9} "
        "{:>8.1f} "
        "{:>8.1f}  {}{}\n",
        c.name, runs, pm, spread, mean_error,
        pct(mean(s, &Figures::p99_us), mean(p, &Figures::p99_us)), end_error, end_spread,
        transmissions, events, static_cast<double>(transmissions) / static_cast<double>(events),
        wall, declines == 0 ? "holds" : fmt::format("declined {}/{}: {}", declines, runs, declined),
        pauses > 0 ? fmt::format(" ({} pauses)", pauses) : "");
    std::fflush(stdout);
    if (declines > 0) {
      ++declined_cases;
      continue;
    }
    Sum& sum = sums[static_cast<size_t>(std::find(groups.begin(), groups.end(), c.group) -
                                        groups.begin())];
    ++sum.cases;
    sum.mean += std::abs(mean_error);
    sum.worst = std::max(sum.worst, std::abs(mean_error));
    sum.end += std::abs(end_error);
    sum.wall += mean(s, &Figures::wall_s);
    sum.packets_wall += mean(p, &Figures::wall_s);
    sum.transmissions += transmissions;
    sum.events += events;
  }
  if (cases == 0) throw UserError("no case contains '" + only + "'");
  std::string json = fmt::format("{{\"cases\":{},\"declined\":{}", cases, declined_cases);
  for (size_t g = 0; g < groups.size(); ++g) {
    const Sum& s = sums[g];
    if (s.cases == 0) continue;
    json += fmt::format(
        ",\"{0}_cases\":{1},\"{0}_mean_error_pct\":{2:.3f},\"{0}_worst_error_pct\":{3:.3f},"
        "\"{0}_end_error_pct\":{4:.3f},\"{0}_event_ratio\":{5:.1f},\"{0}_wall_ratio\":{6:.1f}",
        groups[g], s.cases, s.mean / s.cases, s.worst, s.end / s.cases,
        static_cast<double>(s.transmissions) / static_cast<double>(s.events),
        s.packets_wall / s.wall);
  }
  fmt::print("{}}}\n", json);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_all(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_stepping: {}\n", e.what());
    return 2;
  }
}
