// SPDX-License-Identifier: MIT
// Predictions beside public nccl-tests logs: every log whose hardware is stated becomes a scenario
// (collectives: {protocol: tuned}), each of its sizes is simulated, and time and bus bandwidth are
// set against what was measured. Then the faulty logs: whether a scenario with the cause that is
// named has the same shape.
//
//   bench_nccl [--reference DIR] [--only TEXT] [--engine flow|packet] [--points FILE] [--quick]
//              [--no-packets] [--no-faulty]
//
// The flow engine is taken: it shares links among messages, and within minutes it is through with
// all logs; the analytic engine lets messages of a queue pair overtake each other, which rings over
// NVLink and NICs do not survive. A few logs are run packet by packet beside it. --quick leaves out
// what has more than a thousand ranks. --points writes all points as CSV.
//
// The logs are not part of the repository: $TRAINYARD_SHARED/reference/nccl-measured, or
// --reference. Last line: one JSON object, of the healthy logs.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "network/engine.h"
#include "sim/timeline.h"
#include "tools/scenario/run.h"
#include "tools/tables/csv_table.h"
#include "tools/tables/quantile.h"
#include "workload/fabric_facts.h"
#include "workload/placement.h"

namespace fs = std::filesystem;
using namespace trainyard;

namespace {

constexpr int64_t kSmall = 64 << 10, kLarge = 64 << 20;

/// A row of index.csv, by column.
using Row = std::map<std::string, std::string>;

std::vector<Row> read_csv(const fs::path& file) {
  const CsvTable table = CsvTable::read(file.string());
  std::vector<Row> rows;
  for (size_t i = 0; i < table.rows(); ++i) rows.push_back(table.row(i));
  return rows;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Point {
  int64_t size = 0;
  double measured_us = 0, simulated_us = 0, formula_us = 0;
  std::string algorithm;
  [[nodiscard]] double time_error() const { return simulated_us / measured_us - 1; }
  /// Of bandwidth: the other way round.
  [[nodiscard]] double rate_error() const { return measured_us / simulated_us - 1; }
};

struct Log {
  Row row;
  std::string id, op, transport, generation, device, release, launch = "processes";
  std::string collectives;                    // further keys
  std::string nccl;                           // of its block nccl
  uint32_t ranks = 0, domains = 0, gpus = 0;  // gpus: of a domain
  double nic_gbps = 0;                        // of a GPU
  double scale_up = 0;                        // GB/s of a GPU
  bool nvls = true, in_place = true;
  std::string reason;  // why it cannot be expressed
  std::vector<Point> points;
  double wall_s = 0;
};

double number(const std::string& text) {
  return text.empty() ? 0 : std::strtod(text.c_str(), nullptr);
}

const char* collective_of(const std::string& op) {
  if (op == "all_reduce") return "all-reduce";
  if (op == "all_gather") return "all-gather";
  if (op == "reduce_scatter") return "reduce-scatter";
  if (op == "alltoall" || op == "sendrecv") return "all-to-all";  // to one neighbour
  if (op == "broadcast") return "broadcast";
  if (op == "reduce") return "reduce";
  return "";
}

std::string generation_of(const std::string& gpu) {
  if (has(gpu, "V100")) return "volta";
  if (has(gpu, "A100")) return "ampere";
  if (has(gpu, "MI")) return "cdna";
  if (has(gpu, "B200") || has(gpu, "B300") || has(gpu, "RTX 6000D")) return "blackwell";
  if (has(gpu, "H100") || has(gpu, "H200") || has(gpu, "H20") || has(gpu, "H800") ||
      has(gpu, "GH200"))
    return "hopper";
  return "";
}

/// What a log ran on, as far as its row says.
Log describe(const Row& row) {
  Log l;
  l.row = row;
  l.id = row.at("id");
  l.op = row.at("op");
  const std::string &gpu = row.at("gpu"), &scale_up = row.at("scale_up"), &nic = row.at("nic"),
                    &fabric = row.at("fabric"), &env = row.at("env"), &algo = row.at("algo_proto"),
                    &version = row.at("nccl_version");
  // GH200 contains H200: the family is the same.
  l.generation = generation_of(gpu);
  l.device = has(gpu, "GB200")   ? "GB200"
             : has(gpu, "GB300") ? "GB300"
             : has(gpu, "GH200") ? "GH200"
                                 : gpu.substr(0, gpu.find_first_of("- ("));
  l.ranks = static_cast<uint32_t>(number(row.at("gpus_total")));
  const auto per_node = static_cast<uint32_t>(number(row.at("gpus_per_node")));
  l.domains = static_cast<uint32_t>(number(row.at("nodes")));
  l.gpus = per_node;
  l.scale_up = number(row.at("scale_up_GBps"));
  l.nic_gbps = number(row.at("nic_Gbps")) * number(row.at("nics_per_node")) / per_node;
  if (has(scale_up, "NVL72")) {
    // Hosts of a rack share one domain: 18 of 4, or 16 where the ranks say so.
    const bool one = has(fabric, "NVLink only") || fabric == "single node";
    l.gpus = one ? l.ranks : l.ranks % 64 == 0 ? 64 : 72;
    l.domains = l.ranks / l.gpus;
  } else if (has(scale_up, "disabled") || has(scale_up, "P2P disabled") || per_node == 1) {
    l.gpus = 1;
    l.domains = l.ranks;
  } else if (has(scale_up, "full mesh (4") && per_node == 2) {
    l.scale_up /= 3;
  }
  if (has(gpu, "MI250X")) l.scale_up = 400;  // not stated; wider than its NICs
  if (l.id == "b200-n2-ag-gke-gib") l.scale_up = 900;
  l.nvls = !has(scale_up, "mesh") && !has(env, "NVLS_ENABLE=0");

  l.transport = has(algo, "CTRAN")                                      ? "ctran"
                : has(nic, "TCPXO")                                     ? "tcpxo"
                : has(nic, "TCPX")                                      ? "tcpx"
                : has(fabric, "gIB")                                    ? "gib"
                : has(nic, "EFAv2")                                     ? "efa"
                : has(fabric, "EFA")                                    ? "efa1"
                : has(fabric, "Slingshot")                              ? "slingshot"
                : has(nic, "Pollara")                                   ? "pollara"
                : has(fabric, "RoCE") || fabric == "RDMA between racks" ? "roce"
                                                                        : "ib";
  const bool old = l.generation == "volta" || l.generation == "ampere";
  l.release = l.generation == "cdna" ? "" : nearest_nccl_release(version);
  if (l.release.empty()) l.release = old ? "2.10.3" : "2.26.2";
  if (has(row.at("notes"), "one process drives") || has(l.id, "dgx2")) l.launch = "threads";
  if (has(row.at("notes"), "torch.distributed") || l.id == "a100-n1-ar-mlbook") l.launch = "torch";

  if (has(algo, "fill one NIC first")) l.nccl = ", first_nic: 4MiB";
  const std::string wish = env + " " + algo;
  if (has(algo, "recursive doubling"))
    l.collectives = "algorithm: {all_gather: halving-doubling}, ";
  if (has(wish, "ALGO=Ring") || has(wish, "ALGO=RING")) l.collectives = "algorithm: ring, ";
  if (has(wish, "ALGO=Tree")) l.collectives = "algorithm: tree, ";
  if (has(wish, "ALGO=NVLSTree")) l.collectives = "algorithm: nvls-tree, ";

  if (l.generation.empty()) {
    l.reason = "the GPU is not stated";
  } else if (l.gpus > 1 && l.scale_up <= 0) {
    l.reason = "the scale-up rate is not stated";
  } else if (l.domains > 1 && l.nic_gbps <= 0) {
    l.reason = "the rate of the NICs is not stated";
  } else if (has(row.at("notes"), "no GPUDirect")) {
    l.reason = "no GPUDirect: data goes through host memory, whose rate is not stated";
  } else if (std::string(collective_of(l.op)).empty()) {
    l.reason = "no collective is called " + l.op;
  }
  if (has(gpu, "T4"))
    l.reason = "no GPUDirect: data goes through host memory, whose rate is not stated";
  return l;
}

void read_points(const fs::path& file, Log& l) {
  const std::vector<Row> rows = read_csv(file);
  const bool copies = l.op == "all_gather" || l.op == "reduce_scatter";
  const auto count = [&](const char* place) {
    return std::count_if(rows.begin(), rows.end(),
                         [&](const Row& r) { return r.at("in_place") == place; });
  };
  std::string take = "0";
  if (count("0") == 0 || (copies && count("1") > 0)) take = "1";
  l.in_place = take == "1";
  for (const Row& r : rows) {
    if (r.at("in_place") != take) continue;
    Point p;
    p.size = std::stoll(r.at("size_bytes"));
    p.measured_us = number(r.at("time_us"));
    if (p.size < l.ranks && l.op != "all_reduce" && l.op != "broadcast" && l.op != "reduce")
      continue;
    if (p.measured_us > 0) l.points.push_back(p);
  }
}

/// Chakra's convention of size.
int64_t bytes_of(const Log& l, int64_t size) {
  return l.op == "all_gather" ? std::max<int64_t>(1, size / l.ranks) : size;
}

std::string scenario_text(const Log& l, const std::string& engine) {
  const bool exchange = l.op == "alltoall" || l.op == "sendrecv";
  std::string text = fmt::format(
      "name: {}\ncluster: {{nodes: {}, gpus_per_node: {}}}\nfabric:\n"
      "  topology: {{kind: {}, leaf_radix: 1024, nic: {{rate: {}Mbps}}, scale_up: {{rate: "
      "{}MBps}}}}\n"
      "  transport: {{preset: rocev2, congestion: {{kind: none}}}}\n",
      l.id, l.domains, l.gpus, exchange ? "leaf-spine" : "rail-optimized",
      l.nic_gbps > 0 ? std::llround(l.nic_gbps * 1000) : 400000,
      l.scale_up > 0 ? std::llround(l.scale_up * 1000) : 450000);
  text += fmt::format(
      "collectives: {{protocol: tuned, {}nccl: {{release: {}, transport: {}, launch: {}, "
      "generation: {}, in_place: {}{}{}}}}}\n",
      l.collectives, l.release, l.transport, l.launch, l.generation, l.in_place,
      l.nvls ? "" : ", nvls: false", l.nccl);
  text += "simulation: {engine: " + engine + "}\ntraffic:\n";
  // Apart: who is through with a call early does not begin the next.
  size_t minute = 0;
  for (const Point& p : l.points) {
    text += fmt::format("  - {{pattern: collective, collective: {}, size: {}B, start: {}min}}\n",
                        collective_of(l.op), bytes_of(l, p.size), minute++);
  }
  return text;
}

/// What nccl-tests' sendrecv does: everybody sends to the next rank. Exchange i is that of point i.
class Neighbours final : public Exchanges {
 public:
  explicit Neighbours(const Log& log) : log_(log) {}
  [[nodiscard]] std::shared_ptr<const std::vector<int64_t>> sizes(
      uint32_t /*group*/, uint32_t members, uint32_t exchange) const override {
    auto all = std::make_shared<std::vector<int64_t>>(size_t{members} * members, 0);
    for (uint32_t m = 0; m < members; ++m) {
      (*all)[size_t{m} * members + (m + 1) % members] = log_.points[exchange - 1].size;
    }
    return all;
  }
  [[nodiscard]] uint64_t load_q32(uint32_t /*group*/, uint32_t /*members*/, uint32_t /*exchange*/,
                                  uint32_t /*member*/) const override {
    return uint64_t{1} << 32;
  }

 private:
  const Log& log_;
};

/// Scenarios have no key for that: the job is made here.
std::vector<CollectiveRecord> run_neighbours(const Scenario& s, const Log& l) {
  Job job = collective_job(l.id, l.ranks, collective_entries(s));
  auto graph = std::make_shared<OpGraph>(*job.ranks[0].graph);
  uint32_t next = 0;
  for (Op& op : graph->ops) {
    if (op.kind == OpKind::collective) op.exchange = ++next;
  }
  for (auto& rank : job.ranks) rank.graph = graph;
  job.exchanges = std::make_shared<Neighbours>(l);
  const Topology topology = build_topology(s, l.ranks);
  const PacketConfig config = packet_config(s);
  const auto fabric = Registry::instance().factory<EngineFactory>("engine", s.engine.kind)(
      topology, config, s.engine.params);
  const auto selector = collective_selector(s, topology, config);
  const auto compute = Registry::instance().factory<ComputeFactory>("compute", "trace")(
      Params(Registry::instance().get("compute", "trace").params), {s.device, ".", {}});
  TimelineOptions options;
  options.complete_at_receiver = config.complete_at_receiver;
  options.placement = placement_on(topology);
  options.host = dynamic_cast<CollectiveHost*>(fabric.get());
  if (options.host != nullptr && !options.host->hosts()) options.host = nullptr;
  Timeline timeline(job, *fabric, *compute, *selector, options);
  timeline.run(nullptr);
  return timeline.collectives();
}

/// The model's own sum, without messages.
void add_formula(const Scenario& s, Log& l) {
  const Topology topology = build_topology(s, l.ranks);
  FabricFacts facts = fabric_facts(topology, packet_config(s));
  const NcclModel model(s.collectives, facts);
  std::vector<uint32_t> members(l.ranks);
  std::iota(members.begin(), members.end(), 0U);
  CollectiveRequest r;
  r.members = &members;
  r.placement.server = std::make_shared<const std::vector<uint32_t>>(topology.servers());
  for (size_t k = 0; k <= static_cast<size_t>(CollectiveKind::barrier); ++k) {
    if (std::string(collective_name(static_cast<CollectiveKind>(k))) == collective_of(l.op)) {
      r.kind = static_cast<CollectiveKind>(k);
    }
  }
  for (Point& p : l.points) {
    r.bytes = bytes_of(l, p.size);
    if (l.op == "sendrecv") {
      r.sizes = Neighbours(l).sizes(0, l.ranks, static_cast<uint32_t>(&p - l.points.data()) + 1);
    }
    const std::string name = p.algorithm.substr(0, p.algorithm.find(' '));
    for (size_t i = 0; i < kProtocols; ++i) {
      const auto protocol = static_cast<Protocol>(i);
      if (p.algorithm != name + " " + protocol_name(protocol)) continue;
      if (const auto cost = model.cost(name, protocol, r)) p.formula_us = cost->total().micros();
    }
  }
}

void simulate(Log& l, const std::string& engine) {
  const auto begin = std::chrono::steady_clock::now();
  const fs::path file = fs::temp_directory_path() / fmt::format("bench_nccl_{}.yaml", getpid());
  std::ofstream(file) << scenario_text(l, engine);
  const Scenario s = load_scenario(file.string());
  fs::remove(file);
  std::vector<CollectiveRecord> calls;
  if (l.op == "sendrecv") {
    calls = run_neighbours(s, l);
  } else {
    Result r = run_scenario(s);
    if (!r.complete) throw SimulationError(l.id + ": " + r.incomplete_reason);
    calls = std::move(r.collectives);
  }
  if (calls.size() != l.points.size()) throw SimulationError(l.id + ": calls are missing");
  for (size_t i = 0; i < l.points.size(); ++i) {
    l.points[i].simulated_us = (calls[i].finish - calls[i].start).micros();
    l.points[i].algorithm = calls[i].algorithm;
  }
  add_formula(s, l);
  l.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// One size at a time, where a call has millions of messages that are remembered.
void simulate_log(Log& l, const std::string& engine) {
  if (l.ranks <= 512) {
    simulate(l, engine);
    return;
  }
  const std::vector<Point> points = std::move(l.points);
  std::vector<Point> done;
  double wall = 0;
  for (const Point& p : points) {
    l.points = {p};
    simulate(l, engine);
    done.push_back(l.points[0]);
    wall += l.wall_s;
  }
  l.points = std::move(done);
  l.wall_s = wall;
}

/// Absolute errors in percent, point by point, and the median of each log.
struct Errors {
  std::vector<double> large, small, curve, large_logs, small_logs, curve_logs;
  size_t logs = 0;
  void add(const Log& l, bool formula = false) {
    ++logs;
    std::vector<double> a, b, c;
    for (Point p : l.points) {
      if (formula) p.simulated_us = p.formula_us;
      const double e = 100 * std::fabs(p.time_error());
      c.push_back(e);
      if (p.size <= kSmall) b.push_back(e);
      if (p.size >= kLarge) a.push_back(100 * std::fabs(p.rate_error()));
    }
    const auto put = [](const std::vector<double>& from, std::vector<double>& points,
                        std::vector<double>& of_logs) {
      points.insert(points.end(), from.begin(), from.end());
      if (!from.empty()) of_logs.push_back(quantile(from, 0.5));
    };
    put(a, large, large_logs);
    put(b, small, small_logs);
    put(c, curve, curve_logs);
  }
  void print(const std::string& name) const {
    const auto cell = [](const std::vector<double>& v, double q) {
      return v.empty() ? std::string("-") : fmt::format("{:.1f}", quantile(v, q));
    };
    fmt::print("{:30} {:>5} {:>6} {:>13} {:>13} {:>13} {:>13}\n", name, logs, curve.size(),
               cell(large, 0.5) + " / " + cell(large_logs, 0.5),
               cell(large, 0.9) + " / " + cell(large_logs, 0.9),
               cell(small, 0.5) + " / " + cell(small_logs, 0.5),
               cell(curve, 0.5) + " / " + cell(curve_logs, 0.5));
  }
};

void head(const std::string& what) {
  fmt::print("\n{:30} {:>5} {:>6} {:>13} {:>13} {:>13} {:>13}\n", what, "logs", "points",
             ">=64M median", ">=64M p90", "<=64K median", "all median");
}

const char* scale_of(const Log& l) {
  if (l.domains == 1) return "one domain";
  if (l.domains == 2) return "2 domains";
  return l.domains <= 8 ? "3 to 8 domains" : "more than 8 domains";
}

bool infiniband_class(const Log& l) {
  return l.domains == 1 || l.transport == "ib" || l.transport == "roce";
}

double busbw(const Log& l, const Point& p, double us) {
  const double algbw = static_cast<double>(p.size) / us * 1e-3;
  const double n = l.ranks;
  if (l.op == "all_reduce") return algbw * 2 * (n - 1) / n;
  return l.op == "broadcast" || l.op == "reduce" || l.op == "sendrecv" ? algbw
                                                                       : algbw * (n - 1) / n;
}

/// A faulty log whose cause a scenario can say, and how.
struct Cause {
  const char* id;
  const char* text;
  void (*apply)(Log&);
};

/// Where a rate is given, it is that of other measurements (nccl-measured 2.7, 4 and 5), not of the
/// log; only 14.5 GB/s without GPUDirect was seen in the very log of one GPU and in others.
const std::vector<Cause>& causes() {
  static const std::vector<Cause> all = {
      {"h100-n2-ar-tree-1gpu4nic", "one of four NICs is used", [](Log& l) { l.nic_gbps /= 4; }},
      {"h100-n2-sendrecv-1gpu-roce-moc", "no GPUDirect: 14.5 GB/s of a NIC",
       [](Log& l) { l.nic_gbps = 116; }},
      {"h100-n2-sendrecv-4gpu-roce-moc", "no GPUDirect, and four GPUs share the NIC",
       [](Log& l) { l.nic_gbps = 116.0 / 4; }},
      {"a100pcie-n2-ar-nps", "NIC on another socket: half of its rate",
       [](Log& l) { l.nic_gbps /= 2; }},
      {"h200-n2-ar-1gpu-gke", "NIC on another PCIe root: half of its rate",
       [](Log& l) { l.nic_gbps /= 2; }},
      {"h100-n2-ar-nccltests290",
       "as without GPUDirect: 14.5 GB/s of a NIC, which NCCL's tuner does not know",
       [](Log& l) {
         l.nic_gbps = 116;
         l.collectives = "algorithm: {all_reduce: nvls-tree}, ";
       }},
      {"h100-n2-ar-ring-nccltests290", "as without GPUDirect: 14.5 GB/s of a NIC",
       [](Log& l) { l.nic_gbps = 116; }},
      {"h100-n4-ar-nccltests309b", "one queue pair of a connection: 35.5 GB/s of a NIC",
       [](Log& l) { l.nic_gbps = 298; }},
      {"h100-n8-ar-nccltests309b", "one queue pair of a connection: 35.5 GB/s of a NIC",
       [](Log& l) { l.nic_gbps = 298; }},
      {"h100-n16-ar-nccl1469-small", "nothing: the rows that are there look normal",
       [](Log& l) {
         l.nic_gbps = 400;
         l.reason.clear();
       }},
      {"h100-n2-ar-ring-4gpu-nocross", "CROSS_NIC=0: rings keep to their rails", [](Log&) {}},
  };
  return all;
}

/// Why the others are left out.
const char* unexpressed(const Log& l) {
  const std::string& fault = l.row.at("fault");
  if (has(fault, "TCP") || has(fault, "sockets")) return "the rate of kernel sockets is not stated";
  if (has(fault, "corrupts")) return "retries after corrupted data: not modelled";
  if (has(fault, "jitter") || has(fault, "stalls") || has(fault, "unstable"))
    return "what stalls is not stated";
  if (!l.reason.empty()) return "hardware is not stated";
  return "the cause is not stated";
}

void compare_faulty(const std::vector<Row>& rows, const fs::path& reference,
                    const std::string& only) {
  fmt::print("\nfaulty logs: peak bus bandwidth in GB/s and errors of time in % (medians)\n");
  fmt::print("{:32} {:>8} {:>8} {:>8} {:>7} {:>7} {:>7}  {:16} {}\n", "log", "measured", "healthy",
             "caused", "<=64K", "mid", ">=64M", "same shape", "cause");
  std::map<std::string, std::vector<std::string>> others;
  for (const Row& row : rows) {
    if (row.at("healthy") == "yes" || (!only.empty() && !has(row.at("id"), only))) continue;
    Log l = describe(row);
    const auto& all = causes();
    const auto cause =
        std::find_if(all.begin(), all.end(), [&](const Cause& c) { return l.id == c.id; });
    if (cause == all.end()) {
      others[unexpressed(l)].push_back(l.id);
      continue;
    }
    if (l.nic_gbps <= 0) l.nic_gbps = 400;
    l.reason.clear();
    read_points(reference / (l.id + ".csv"), l);
    Log healthy = l;
    simulate(healthy, "flow");
    cause->apply(l);
    simulate(l, "flow");
    double measured = 0, good = 0, bad = 0;
    std::vector<double> errors[3], curve;
    for (size_t i = 0; i < l.points.size(); ++i) {
      const Point& p = l.points[i];
      measured = std::max(measured, busbw(l, p, p.measured_us));
      good = std::max(good, busbw(l, p, healthy.points[i].simulated_us));
      bad = std::max(bad, busbw(l, p, p.simulated_us));
      errors[p.size <= kSmall ? 0 : p.size < kLarge ? 1 : 2].push_back(100 * p.time_error());
      curve.push_back(100 * std::fabs(p.time_error()));
    }
    const auto cell = [&](size_t i) {
      return errors[i].empty() ? std::string("-")
                               : fmt::format("{:+.0f}", quantile(errors[i], 0.5));
    };
    const bool large = !errors[2].empty() && std::fabs(quantile(errors[2], 0.5)) <= 25;
    const double median = quantile(curve, 0.5);
    fmt::print("{:32} {:>8.1f} {:>8.1f} {:>8.1f} {:>7} {:>7} {:>7}  {:16} {}\n", l.id, measured,
               good, bad, cell(0), cell(1), cell(2),
               std::fabs(bad / good - 1) < 0.02 ? fmt::format("as healthy, {:.0f} %", median)
               : median <= 25                   ? fmt::format("yes, {:.0f} %", median)
               : large                          ? "large only"
                                                : "no",
               cause->text);
  }
  for (const auto& [reason, ids] : others) {
    std::string list;
    for (const std::string& id : ids) list += " " + id;
    fmt::print("  {}:{}\n", reason, list);
  }
}

/// Packet by packet against the flow engine, where packets are few enough.
void compare_engines(const std::vector<Log>& logs) {
  constexpr int64_t kMost = 16 << 20;
  fmt::print("\npacket engine against flow engine, time in % (sizes up to 16 MiB)\n");
  fmt::print("{:32} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8}\n", "log", "points", "median", "least",
             "most", "flow s", "packet s");
  for (const char* id :
       {"h100-n1-ar-dgxc", "h100-n2-ar-nccltests309a", "h100-n4-ar-nccltests309a",
        "a100-n2-ar-ring-deepops", "b200-n2-rs-hgxpoc", "a100-n1-a2a-superbench"}) {
    for (const Log& log : logs) {
      if (log.id != id) continue;
      Log flow = log;
      flow.points.erase(std::remove_if(flow.points.begin(), flow.points.end(),
                                       [&](const Point& p) { return p.size > kMost; }),
                        flow.points.end());
      Log packet = flow;
      simulate(flow, "flow");
      simulate(packet, "packet");
      std::vector<double> d;
      for (size_t i = 0; i < flow.points.size(); ++i) {
        d.push_back(100 * (packet.points[i].simulated_us / flow.points[i].simulated_us - 1));
      }
      fmt::print("{:32} {:>6} {:>+8.2f} {:>+8.2f} {:>+8.2f} {:>8.2f} {:>8.2f}\n", id, d.size(),
                 quantile(d, 0.5), quantile(d, 0), quantile(d, 1), flow.wall_s, packet.wall_s);
      std::fflush(stdout);
    }
  }
}

int run(int argc, char** argv) {
  fs::path reference;
  if (const char* shared = std::getenv("TRAINYARD_SHARED")) {
    reference = fs::path(shared) / "reference" / "nccl-measured";
  }
  std::string only, engine = "auto", points;
  bool quick = false, with_faulty = true, with_packets = true;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const bool more = i + 1 < argc;
    if (a == "--reference" && more)
      reference = argv[++i];
    else if (a == "--only" && more)
      only = argv[++i];
    else if (a == "--engine" && more)
      engine = argv[++i];
    else if (a == "--quick")
      quick = true;
    else if (a == "--no-faulty")
      with_faulty = false;
    else if (a == "--no-packets")
      with_packets = false;
    else if (a == "--points" && more)
      points = argv[++i];
    else
      throw UserError("unknown argument " + a, "see the head of tools/benchmarks/nccl.cpp");
  }
  if (reference.empty() || !fs::exists(reference / "index.csv")) {
    fmt::print(
        "no logs: set TRAINYARD_SHARED, or give --reference DIR with index.csv (nccl-measured)\n");
    return 0;
  }
  std::vector<Log> logs;
  std::vector<std::pair<std::string, std::string>> left_out;
  const auto begin = std::chrono::steady_clock::now();
  fmt::print("{:36} {:>6} {:>9} {:>9} {:>9} {:>9} {:>7}  {}\n", "log", "points", "<=64K %", "mid %",
             ">=64M bw%", "all |%|", "wall s", "algorithms");
  std::ofstream out;
  if (!points.empty()) {
    out.open(points);
    if (!out) throw UserError(points + " cannot be written", "name another file for --points");
    out << "id,op,size,measured_us,simulated_us,formula_us,algorithm\n";
  }
  const std::vector<Row> index = read_csv(reference / "index.csv");
  for (const Row& row : index) {
    if (row.at("healthy") != "yes" || (!only.empty() && !has(row.at("id"), only))) continue;
    Log l = describe(row);
    if (!l.reason.empty()) {
      left_out.emplace_back(l.id, l.reason);
      continue;
    }
    if (quick && l.ranks > 1000) {
      left_out.emplace_back(l.id, "takes minutes, and --quick is given");
      continue;
    }
    read_points(reference / (l.id + ".csv"), l);
    simulate_log(l, engine != "auto" ? engine : "flow");
    std::vector<double> small, mid, large, all;
    std::vector<std::string> algorithms;
    for (const Point& p : l.points) {
      (p.size <= kSmall  ? small
       : p.size < kLarge ? mid
                         : large)
          .push_back(100 * (p.size >= kLarge ? p.rate_error() : p.time_error()));
      all.push_back(100 * std::fabs(p.time_error()));
      if (algorithms.empty() || algorithms.back() != p.algorithm) algorithms.push_back(p.algorithm);
      if (out.is_open())
        out << fmt::format("{},{},{},{},{:.3f},{:.3f},{}\n", l.id, l.op, p.size, p.measured_us,
                           p.simulated_us, p.formula_us, p.algorithm);
    }
    const auto cell = [](const std::vector<double>& v) {
      return v.empty() ? std::string("-") : fmt::format("{:+.1f}", quantile(v, 0.5));
    };
    std::string names;
    for (const std::string& a : algorithms) names += (names.empty() ? "" : ", ") + a;
    fmt::print("{:36} {:>6} {:>9} {:>9} {:>9} {:>9.1f} {:>7.2f}  {}\n", l.id, l.points.size(),
               cell(small), cell(mid), cell(large), quantile(all, 0.5), l.wall_s, names);
    std::fflush(stdout);
    logs.push_back(std::move(l));
  }
  if (!left_out.empty()) fmt::print("\nnot expressible:\n");
  for (const auto& [id, reason] : left_out) fmt::print("  {:34} {}\n", id, reason);

  const auto table = [&](const std::string& what,
                         const std::function<std::string(const Log&)>& by) {
    std::map<std::string, Errors> groups;
    for (const Log& l : logs) groups[by(l)].add(l);
    head(what + ", errors in %");
    for (const auto& [name, errors] : groups) errors.print(name);
  };
  Errors all, class_of_ib, clouds, formula;
  for (const Log& l : logs) {
    all.add(l);
    (infiniband_class(l) ? class_of_ib : clouds).add(l);
    formula.add(l, true);
  }
  table("operation", [](const Log& l) { return l.op; });
  table("device", [](const Log& l) { return l.device; });
  table("transport", [](const Log& l) { return l.domains == 1 ? "(one domain)" : l.transport; });
  table("scale", scale_of);
  head("all (points / medians of logs)");
  all.print("all");
  class_of_ib.print("NVLink, InfiniBand, RoCE");
  clouds.print("other transports");
  formula.print("formula without a fabric");
  if (with_packets) compare_engines(logs);
  if (with_faulty) compare_faulty(index, reference, only);
  fmt::print("\nwall {:.1f} s\n",
             std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  fmt::print(
      "{{\"logs\":{},\"large_busbw_median_pct\":{:.2f},\"large_busbw_p90_pct\":{:.2f},"
      "\"small_time_median_pct\":{:.2f},\"curve_median_pct\":{:.2f}}}\n",
      logs.size(), quantile(all.large, 0.5), quantile(all.large, 0.9),
      quantile(class_of_ib.small, 0.5), quantile(all.curve, 0.5));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_nccl: {}\n", e.what());
    return 2;
  }
}
