// SPDX-License-Identifier: MIT
// Time and memory to build fabrics of 131,072 endpoints and to find the paths of random flows.
//
//   rails   rail-optimized, 16,384 servers of 8 GPUs, three tiers of 128-port switches
//   planes  leaf-spine, 8 planes of 512-port switches in two tiers (B:F8, B:F9)
//   tree    fat-tree k = 82, the smallest that has room
//
//   bench_fabric [--flows N] [--only NAME] [--nodes N]     last line: one JSON object
//
// Every case runs in a process of its own, so that its peak of memory is its own.
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "network/routing.h"
#include "sim/dice.h"

using namespace trainyard;

namespace {

struct Case {
  std::string name, kind;
  std::vector<std::pair<std::string, std::string>> settings;
};

struct Figures {
  uint64_t hosts = 0, nodes = 0, links = 0, hops = 0, hash = 0, table_bytes = 0;
  double build_s = 0, route_s = 0, build_cpu_s = 0, route_cpu_s = 0;
};

double now_s(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Wall and processor time since the start.
class Stopwatch {
 public:
  void stop(double& wall_s, double& cpu_s) const {
    wall_s = now_s(CLOCK_MONOTONIC) - wall_;
    cpu_s = now_s(CLOCK_PROCESS_CPUTIME_ID) - cpu_;
  }

 private:
  double wall_ = now_s(CLOCK_MONOTONIC), cpu_ = now_s(CLOCK_PROCESS_CPUTIME_ID);
};

Figures measure(const Case& c, uint32_t nodes, uint64_t flows) {
  Figures f;
  const Stopwatch building;
  Params params(Registry::instance().get("topology", c.kind).params);
  for (const auto& [name, value] : c.settings) params.set(name, value, {});
  TopologyRequest request;
  request.nodes = nodes;
  const Topology t =
      Registry::instance().factory<TopologyFactory>("topology", c.kind)(request, params);
  building.stop(f.build_s, f.build_cpu_s);
  f.hosts = t.hosts().size();
  f.nodes = t.nodes().size();
  f.links = t.links().size();
  const Stopwatch routed;
  Routing routing(t, {});
  std::vector<uint32_t> path;
  for (uint64_t i = 0; i < flows; ++i) {
    const uint32_t src = t.hosts()[dice(1, 0, i, 0) % f.hosts];
    const uint32_t dst = t.hosts()[dice(1, 1, i, 0) % f.hosts];
    if (src == dst) continue;
    path.clear();
    routing.path({src, dst, static_cast<uint16_t>(kSourcePortBase + i % 7), kDestinationPort},
                 path);
    f.hops += path.size();
    for (const uint32_t p : path) f.hash = mix64(f.hash ^ p);
  }
  routed.stop(f.route_s, f.route_cpu_s);
  f.table_bytes = routing.table_bytes();
  return f;
}

int run(int argc, char** argv) {
  uint64_t flows = 1'000'000;
  uint32_t nodes = 16'384;
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string a = argv[i];
    if (a == "--flows")
      flows = std::strtoull(argv[i + 1], nullptr, 10);
    else if (a == "--only")
      only = argv[i + 1];
    else if (a == "--nodes")
      nodes = static_cast<uint32_t>(std::strtoul(argv[i + 1], nullptr, 10));
    else
      throw UserError("unknown argument " + a,
                      "use --flows N, --only rails|planes|tree, --nodes N");
  }
  const std::vector<Case> cases = {
      {"rails", "rail-optimized", {{"leaf_radix", "128"}, {"tiers", "3"}}},
      {"planes", "leaf-spine", {{"leaf_radix", "512"}, {"planes", "8"}, {"nic.rate", "800Gbps"}}},
      {"tree", "fat-tree", {{"k", "82"}}}};
  fmt::print("{:8} {:>10} {:>8} {:>8} {:>15} {:>15} {:>10} {:>8}  {}\n", "case", "endpoints",
             "nodes", "cables", "build s (cpu)", "route s (cpu)", "tables MiB", "RSS MiB", "paths");
  std::string json = fmt::format("\"flows\":{}", flows);
  for (const Case& c : cases) {
    if (!only.empty() && only != c.name) continue;
    std::fflush(stdout);
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) throw UserError("cannot open a pipe");
    const pid_t child = fork();
    if (child < 0) throw UserError("cannot start a process");
    if (child == 0) {
      try {
        const Figures f = measure(c, nodes, flows);
        std::_Exit(write(pipe_ends[1], &f, sizeof f) == sizeof f ? 0 : 1);
      } catch (const std::exception& e) {
        fmt::print(stderr, "bench_fabric: {}: {}\n", c.name, e.what());
        std::_Exit(2);
      }
    }
    Figures f;
    close(pipe_ends[1]);
    const bool got = read(pipe_ends[0], &f, sizeof f) == sizeof f;
    close(pipe_ends[0]);
    int status = 0;
    rusage usage{};
    wait4(child, &status, 0, &usage);
    if (!got || status != 0) throw UserError(c.name + " did not finish");
    const double rss = static_cast<double>(usage.ru_maxrss) / 1024;  // Linux counts KiB
    const auto times = [](double wall, double cpu) {
      return fmt::format("{:.2f} ({:.2f})", wall, cpu);
    };
    fmt::print("{:8} {:>10} {:>8} {:>8} {:>15} {:>15} {:>10.1f} {:>8.1f}  {:016x}\n", c.name,
               f.hosts, f.nodes, f.links, times(f.build_s, f.build_cpu_s),
               times(f.route_s, f.route_cpu_s),
               static_cast<double>(f.table_bytes) / (1024.0 * 1024.0), rss, f.hash);
    json += fmt::format(
        ",\"{0}_endpoints\":{1},\"{0}_build_s\":{2:.3f},\"{0}_build_cpu_s\":{3:.3f},"
        "\"{0}_route_s\":{4:.3f},\"{0}_route_cpu_s\":{5:.3f},\"{0}_rss_mib\":{6:.1f}",
        c.name, f.hosts, f.build_s, f.build_cpu_s, f.route_s, f.route_cpu_s, rss);
  }
  fmt::print("{{{}}}\n", json);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_fabric: {}\n", e.what());
    return 2;
  }
}
