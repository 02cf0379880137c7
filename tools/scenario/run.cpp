// SPDX-License-Identifier: MIT
#include "tools/scenario/run.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>

#include "chakra/reader.h"
#include "faults/random_schedule.h"
#include "memo/domain_fabric.h"
#include "network/engine.h"
#include "network/packet/packet_fabric.h"
#include "network/staged_fabric.h"
#include "network/tier_stats.h"
#include "network/topology_select.h"
#include "sim/registry.h"
#include "sim/timeline.h"
#include "tools/report/text.h"
#include "tools/scenario/energy_figures.h"
#include "tools/scenario/fold.h"
#include "tools/scenario/jobs.h"
#include "tools/scenario/op_meter.h"
#include "tools/scenario/power_meter.h"
#include "tools/scenario/remembered_model.h"
#include "tools/scenario/timeline_export.h"
#include "tools/scenario/training_figures.h"
#include "tools/scenario/wiring.h"
#include "workload/chakra_importer.h"
#include "workload/collective_params.h"
#include "workload/fabric_facts.h"
#include "workload/generator/generate.h"
#include "workload/generator/grid.h"
#include "workload/placement.h"
#include "workload/storage.h"
#include "workload/traffic.h"

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

uint64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;  // Linux counts KiB
}

/// Keeps spans up to a limit, then the longest ones by raising a threshold: the picture stays
/// true to the pixel, the memory bounded.
class SpanKeeper final : public Recorder {
 public:
  SpanKeeper(size_t limit, PowerMeter& power, uint32_t ranks)
      : ops(ranks), limit_(limit), power_(power) {}
  [[nodiscard]] bool wants(Time length) const override {
    if (length >= shortest_) return true;
    ++dropped;
    return false;
  }
  void timed(uint32_t rank, const OpGraph& graph, uint32_t op, Time length) override {
    ops.add(rank, graph, op, length);
    if (exported != nullptr) exported->add(rank, op, length);
  }
  void visited(const CollectiveVisit& visit) override {
    if (keep_visits && visits.size() < 1'000'000) visits.push_back(visit);
  }
  void phase(uint32_t, Phase phase, Time begin, Time end) override {
    if (power_.on()) power_.add(phase, begin, end);
  }
  void span(const Span& s) override {
    spans.push_back(s);
    if (spans.size() < limit_) return;
    std::vector<int64_t> lengths;
    lengths.reserve(spans.size());
    for (const auto& x : spans) lengths.push_back((x.end - x.begin).ps());
    auto middle = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2);
    std::nth_element(lengths.begin(), middle, lengths.end());
    shortest_ = Time::ps(*middle + 1);
    const size_t before = spans.size();
    spans.erase(std::remove_if(spans.begin(), spans.end(),
                               [&](const Span& x) { return x.end - x.begin < shortest_; }),
                spans.end());
    dropped += before - spans.size();
  }
  std::vector<Span> spans;
  std::vector<CollectiveVisit> visits;
  bool keep_visits = false;
  mutable uint64_t dropped = 0;
  OpMeter ops;
  TimelineExport* exported = nullptr;

 private:
  size_t limit_;
  PowerMeter& power_;
  Time shortest_;
};

class ProgressGate {
 public:
  ProgressGate(const RunHooks& hooks, const Fabric& fabric, uint64_t total)
      : hooks_(hooks), fabric_(fabric), total_(total) {}
  bool operator()(Time now, uint64_t done) {
    if (!hooks_.progress) return true;
    const double wall = seconds_since(start_);
    if (wall - last_ < 0.1) return true;
    last_ = wall;
    return hooks_.progress({now, done, total_, fabric_.totals().transmissions, wall});
  }

 private:
  const RunHooks& hooks_;
  const Fabric& fabric_;
  uint64_t total_;
  double last_ = 0;
  Clock::time_point start_ = Clock::now();
};

/// What is still under way when nobody waits any more: late ACKs and pauses. A NIC that pauses
/// without end never gets quiet: a millisecond is enough for what has to balance.
void drain(Fabric& fabric, bool faulty) {
  std::vector<Completion> ignored;
  Time limit = Time::infinity();
  while (fabric.next_event() < limit) {
    if (faulty && limit == Time::infinity()) limit = fabric.next_event() + Time::ms(1);
    fabric.advance(limit, ignored);
  }
}

/// `aborted`: why the job was ended; empty: by simulation.until.
std::string cut_off(Time until, const std::string& aborted, uint64_t done, uint64_t total,
                    const char* what) {
  const std::string work =
      ", with " + std::to_string(done) + " of " + std::to_string(total) + " " + what + " done";
  if (!aborted.empty()) return aborted + work;
  return "cut off at " + print_time(until) + " by simulation.until" + work;
}

/// Runs until no flow is left that the run waits for.
void run_traffic(StagedFabric& fabric, size_t flows, Time until, const std::string& aborted,
                 ProgressGate& progress, Result& result) {
  // Large fabrics do more per simulated time; an interrupt should not wait for it.
  const int64_t ranks = std::max<int64_t>(1, result.ranks);
  const Time slice = Time::ns(std::clamp<int64_t>(12'800'000 / ranks, 1'000, 200'000));
  std::vector<Completion> none;  // of a job
  Time now;
  while (fabric.outstanding() > 0) {
    const Time next = fabric.next_event();
    if (next == Time::infinity()) throw SimulationError("hang: " + fabric.describe_stall());
    const auto done = [&] { return std::min(flows, fabric.flows_done()); };
    if (next > until) {
      result.end = until;
      result.incomplete_reason = cut_off(until, aborted, done(), flows, "flows");
      return;
    }
    now = fabric.advance(std::min(std::max(next, now) + slice, until), none);
    if (!progress(now, done())) {
      result.end = now;
      result.incomplete_reason = "interrupted at " + print_time(now);
      return;
    }
  }
  result.end = fabric.last_flow_progress();
  result.complete = true;
}

std::vector<TimedFlow> timed(const std::vector<Flow>& flows, bool beside_job) {
  std::vector<TimedFlow> out;
  for (size_t i = 0; i < flows.size(); ++i) {
    const Flow& f = flows[i];
    TimedFlow t;
    t.transfer.src = f.src;
    t.transfer.dst = f.dst;
    t.transfer.size = Bytes(f.bytes);
    // A queue pair of its own for every flow; a job numbers its channels from 0.
    t.transfer.channel = static_cast<uint32_t>(i) + (beside_job ? 0x80000000U : 0);
    t.transfer.traffic_class = f.traffic_class;
    t.start = f.start;
    t.background = f.background;
    t.repeat = f.repeat;
    t.period = f.period;
    out.push_back(t);
  }
  return out;
}

/// Records of flows, labelled, behind those of the job.
void add_flows(const StagedFabric& fabric, Result& r) {
  const auto base = static_cast<uint32_t>(r.flow_owner.size());
  uint32_t labels = 0;
  for (const bool background : {false, true}) {
    for (TransferRecord f : fabric.flow_records(background)) {
      labels = std::max(labels, f.owner + 1);
      f.owner += base;
      (background ? r.background : r.flows).push_back(f);
    }
  }
  for (uint32_t i = 0; i < labels; ++i) r.flow_owner.push_back("flow " + std::to_string(i));
}

void add_pauses(const std::vector<PauseRecord>& pauses, const Topology& topology, bool asked,
                Result& r) {
  r.pauses_asked = asked;
  const auto name = [&](uint32_t port) {
    if (port == PauseRow::kNone) return;
    r.port_names.try_emplace(port, topology.nodes()[topology.from(port)].name + " -> " +
                                       topology.nodes()[topology.to(port)].name);
  };
  for (const PauseRecord& p : pauses) {
    r.pauses.push_back({Time::ps(p.from_ps), p.to_ps < 0 ? Time::infinity() : Time::ps(p.to_ps),
                        p.stopped, p.because, p.traffic_class});
    name(p.stopped);
    name(p.because);
  }
}

void add_observations(Observations seen, const Topology& topology, Result& r) {
  r.tier_queueing = tier_queueing(topology, r.links, seen.samples);
  const QpSeries& qps = seen.qp_series;
  if (qps.window != qps.asked) {
    r.warnings.push_back("output.telemetry.qp: windows of " + print_time(qps.asked) +
                         " would give more than " + std::to_string(QpTelemetry::kMostRows) +
                         " rows; they are " + print_time(qps.window) + " long instead");
  }
  if (seen.samples.ratio_q32 != seen.samples.asked_q32) {
    r.warnings.push_back("output.telemetry.packets: the share asked for would give more than " +
                         std::to_string(PacketTracer::kMostHops) + " hops; 1 of " +
                         std::to_string(seen.samples.asked_q32 / seen.samples.ratio_q32) +
                         " of those packets is kept instead");
  }
  r.seen = std::move(seen);
}

/// Why the fast path cannot be taken; empty: it can.
std::string fast_path_obstacle(const Scenario& s, const PacketConfig& config,
                               const RunHooks& hooks) {
  if (s.engine.kind != "packet") return "the " + s.engine.kind + " engine needs none";
  if (const auto why = fast_path_declines(config)) return *why;
  if (hooks.rates != nullptr || s.link_window > Time() || s.pauses || s.observe.any()) {
    return "telemetry is asked for";
  }
  return "";
}

class SharedModel final : public ComputeModel {
 public:
  explicit SharedModel(std::shared_ptr<ComputeModel> model) : model_(std::move(model)) {}
  [[nodiscard]] Time duration(const OpGraph& graph, uint32_t op, uint32_t rank) const override {
    return model_->duration(graph, op, rank);
  }
  [[nodiscard]] std::optional<uint64_t> kind_of(uint32_t rank) const override {
    return model_->kind_of(rank);
  }
  [[nodiscard]] std::string source() const override { return model_->source(); }

 private:
  std::shared_ptr<ComputeModel> model_;
};

/// Nominal times for healthy ops, varied ones for the others.
class HealthyModel final : public ComputeModel {
 public:
  HealthyModel(std::shared_ptr<ComputeModel> nominal, std::unique_ptr<ComputeModel> varied,
               const HealthyOps& healthy)
      : nominal_(std::move(nominal)), varied_(std::move(varied)), healthy_(healthy) {}
  [[nodiscard]] Time duration(const OpGraph& graph, uint32_t op, uint32_t rank) const override {
    const bool healthy =
        healthy_.all || (rank < healthy_.ranks.size() && healthy_.ranks[rank] != 0) ||
        (!healthy_.kernel.empty() && kernel_name(graph.name_of(op)) == healthy_.kernel);
    return (healthy ? *nominal_ : *varied_).duration(graph, op, rank);
  }
  [[nodiscard]] std::string source() const override { return nominal_->source(); }

 private:
  std::shared_ptr<ComputeModel> nominal_;
  std::unique_ptr<ComputeModel> varied_;
  const HealthyOps& healthy_;
};

bool computes(const Job& job) {
  return std::any_of(job.ranks.begin(), job.ranks.end(), [](const RankProgram& p) {
    return std::any_of(p.graph->ops.begin(), p.graph->ops.end(), [](const Op& op) {
      return op.kind == OpKind::compute || op.kind == OpKind::memory;
    });
  });
}

/// Stragglers where nothing computes are a mistake.
void check_variation(const Scenario& s, bool computes) {
  if (computes) return;
  const bool jitter = s.jitter.kind != "none";
  if (!jitter && s.slow.empty() && s.overlap_slowdown == 0) return;
  throw UserError(!s.slow.empty() ? s.slow[0].origin.pos
                  : jitter        ? s.jitter.pos
                                  : s.compute.pos,
                  std::string(!s.slow.empty() ? "compute.slow"
                              : jitter        ? "compute.jitter"
                                              : "compute.overlap_slowdown") +
                      " changes compute times, and nothing computes in this scenario",
                  "give it a workload");
}

/// What collectives take of compute beside them, by kind, in 1/2^32; empty where collectives.sms
/// says nothing.
std::vector<uint64_t> collective_shares(const Scenario& s, uint64_t overlap_q32) {
  std::vector<uint64_t> shares;
  const std::vector<int64_t> sms = collective_sms(s.collectives);
  if (std::all_of(sms.begin(), sms.end(), [](int64_t n) { return n < 0; })) return shares;
  for (const int64_t n : sms) {
    if (n > 0 && n >= s.device.sms) {
      throw UserError(
          s.collectives.origin("sms").pos,
          "collectives.sms: a collective takes " + std::to_string(n) + " SMs, " +
              (s.device.sms == 0 ? "the card of the device does not say how many there are"
                                 : "a " + s.device.name + " has " + std::to_string(s.device.sms)),
          "name a device in cluster.device, or lower it");
    }
    shares.push_back(n < 0    ? overlap_q32
                     : n == 0 ? 0
                              : (static_cast<uint64_t>(n) << 32) /
                                    static_cast<uint64_t>(s.device.sms - n));
  }
  return shares;
}

/// What was not simulated packet by packet, and how far off that is.
template <class Note>
void fast_path_notes(const FastPathStats& f, bool shared_noise, bool complete, const Note& note) {
  if (f.stepped == 0) {
    note("engine",
         "packet, with shortcuts that change no bit against one domain that holds everything "
         "(docs/fast-path.md)",
         false);
  } else {
    const double stepped = static_cast<double>(f.bytes_stepped);
    std::string text =
        "packet, of which " + std::to_string(f.stepped) +
        " contention domains were stepped from one decision of their controllers to the next, "
        "without packets: approximate. ";
    if (f.audit_n == 0) {
      text += "Not audited: nothing that was stepped fitted into the budget";
    } else {
      char figures[160];
      std::snprintf(figures, sizeof figures,
                    "Audit: %.2f %% of the stepped bytes again as packets, %llu completion times "
                    "off by %.2f %% in the mean, at most %.2f %%",
                    100.0 * static_cast<double>(f.bytes_audited) / stepped,
                    static_cast<unsigned long long>(f.audit_n), f.audit_mean_pct(),
                    f.audit_max_pct);
      text += figures;
    }
    note("engine", text + "; single collectives have measured up to 27 % off (docs/fast-path.md)",
         true);
  }
  if (f.pauses_not_followed > 0) {
    note("pauses",
         std::to_string(f.pauses_not_followed) +
             " times a queue would have made PFC pause others and was stepped on: pfc_pauses and "
             "paused times are too low (simulation.ignored_pauses: 0 simulates these as packets)",
         true);
  }
  if (f.disturbances > 0) {
    const double all = static_cast<double>(f.bytes_simulated + f.bytes_jumped + f.bytes_followed +
                                           f.bytes_stepped);
    char text[200];
    std::snprintf(text, sizeof text,
                  "while something was broken, and until all was well and at rest again, every "
                  "packet was simulated: %.2f %% of the payload",
                  all > 0 ? 100.0 * static_cast<double>(f.bytes_disturbed) / all : 0.0);
    note("faults", text, false);
  }
  if (shared_noise) {
    note("noise",
         "shared: contention domains that do the same drew the same dice, so that variance between "
         "them, and with it the maximum over many, is understated (docs/fast-path.md)",
         true);
  }
  note("tables",
       "on the fast path messages of collectives have no rows in flows.csv, and NICs and switch "
       "buffers none in theirs" +
           std::string(complete ? "" : "; what was under way at the end is not counted"),
       false);
}

/// What the engine leaves out, and how far off that is known to be.
template <class Note>
void engine_notes(const Scenario& s, const Topology& topology, const Result& r, const Note& note) {
  const std::string& engine = s.engine.kind;
  if (engine == "packet") {
    if (!r.fast_path) {
      note("engine",
           "packet: every packet on every link is simulated, no shortcut was taken; flow "
           "completion times of the public ns-3 tables are reproduced (tools/bench golden)",
           false);
    } else {
      fast_path_notes(*r.fast_path, s.shared_noise, r.complete, note);
    }
    const Params& shape = s.topology.params;
    if (shape.has_spec("scale_up.kind") && shape.is_word("scale_up.kind", "pcie")) {
      note("scale-up",
           "PCIe switches, sockets and host memory are modelled as lossless packet switches; "
           "traffic of NICs does not pass them",
           false);
    } else if (topology.count(NodeKind::scale_up) > 0) {
      note("scale-up",
           "the NVLink-class switch is modelled as a lossless packet switch, without "
           "congestion control",
           false);
    }
    return;
  }
  if (engine == "stepped") {
    note(
        "engine",
        "stepped: packets are skipped, the decisions of DCQCN kept; mean completion times measured "
        "within 3 % of packets in vendor order, 6 % in the published one (tools/bench stepping, "
        "docs/fast-path.md); a run that packets would have paused or lost something in ends with "
        "an error",
        true);
    note("not modelled",
         "PFC and losses; marks and notifications are counted as far as they could tell a "
         "controller something new",
         true);
    return;
  }
  if (engine == "flow") {
    note("engine",
         "flow: messages share links max-min fairly, at once and ideally; published flow-level "
         "models are 10-25 % off; against packets this one measured 0-6 % under PFC alone and up "
         "to 28 % too fast under DCQCN (tools/bench fidelity, docs/engines.md)",
         true);
  } else {
    note("engine",
         engine +
             ": every message has its route to itself, so that times are too short wherever links "
             "are shared, by any factor (35-99 % in the shared cases of tools/bench fidelity)",
         true);
  }
  note("not modelled",
       "packets, queues, PFC, ECN, congestion control, windows and losses; packet counts are what "
       "the sizes come to",
       true);
  const bool lossy = std::any_of(topology.links().begin(), topology.links().end(),
                                 [](const TopologyLink& l) { return l.loss_rate > 0; });
  if (lossy) note("not modelled", "the loss rates of links in the topology", true);
}

/// What was asked for and what the slowest GPU is.
template <class Note>
void variation_notes(const Scenario& s, const Result& r, const Note& note) {
  if (s.overlap_slowdown > 0) {
    note("compute times",
         "compute is slowed down by " + report::percent(s.overlap_slowdown) +
             " % wherever communication moves on the same GPU, by compute.overlap_slowdown: a "
             "figure of yours, not of a measurement here",
         true);
  }
  const std::vector<int64_t> sms = collective_sms(s.collectives);
  if (std::any_of(sms.begin(), sms.end(), [](int64_t n) { return n >= 0; })) {
    note("compute times",
         "collectives slow the compute beside them by the SMs that collectives.sms says; memory "
         "bandwidth that they take is not counted",
         true);
  }
  if ((s.jitter.kind == "none" && s.slow.empty()) || r.rank_times.empty()) return;
  std::vector<Time> sorted;
  const RankTimes* slowest = &r.rank_times[0];
  for (const RankTimes& t : r.rank_times) {
    sorted.push_back(t.compute);
    if (t.compute > slowest->compute) slowest = &t;
  }
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  std::string text = "compute times vary by compute.jitter and compute.slow; rank " +
                     std::to_string(slowest->rank) + " computes longest, " +
                     print_time(slowest->compute, 4);
  if (*middle > Time()) {
    const double ratio = slowest->compute.seconds() / middle->seconds();
    text += ", " + report::percent(ratio - 1) + " % above the median";
  }
  note("stragglers", text, false);
}

/// Values of the device's card that nobody checked at their source, as far as they were used.
template <class Note>
void device_notes(const Scenario& s, const Result& r, const Note& note) {
  std::string rates, watts;
  for (const std::string& key : s.device.unverified) {
    if (key.rfind("watts.", 0) == 0)
      watts += (watts.empty() ? "" : ", ") + key;
    else if (key != "scale_up" && key != "sms")
      rates += (rates.empty() ? "" : ", ") + key;
  }
  const bool roofline = r.compute_source.find("roofline") != std::string::npos;
  if (roofline && !rates.empty()) {
    note("presets",
         "of the card of " + s.device.name + " these are from unverified sources: " + rates, true);
  }
  const auto has_joules = [](const std::vector<TrainingFigure>& figures) {
    return std::any_of(figures.begin(), figures.end(),
                       [](const TrainingFigure& f) { return f.key == "energy_per_step_j"; });
  };
  const bool joules =
      has_joules(r.energy) || std::any_of(r.jobs.begin(), r.jobs.end(),
                                          [&](const JobResult& j) { return has_joules(j.energy); });
  if (!joules && r.power.window == Time()) return;
  note("energy",
       "GPU boards alone, at one power per state from the card of " + s.device.name +
           "; compute at its TDP is an upper bound (training measured 63-67 % of the TDP of H100 "
           "in the mean)" +
           (watts.empty() ? "" : "; from unverified sources: " + watts),
       true);
}

/// "node0.gpu0 to node3.gpu7", or those at both ends of every gap.
std::string gpu_names(const std::vector<std::string>& names, const JobPart& part) {
  if (part.ranks == 0 || part.first_rank + part.ranks > names.size()) return "";
  const std::string& first = names[part.first_rank];
  const std::string& last = names[part.first_rank + part.ranks - 1];
  return part.ranks == 1 ? first : first + " to " + last;
}

/// What is known of the jobs when they are through.
void job_figures(const Scenario& s, const Storage* storage, Result& r) {
  for (size_t i = 0; i < r.jobs.size(); ++i) {
    JobResult& j = r.jobs[i];
    const std::optional<Training>& training = s.jobs[i].workload.training;
    const std::vector<RankTimes> times(r.rank_times.begin() + j.first_rank,
                                       r.rank_times.begin() + j.first_rank + j.ranks);
    j.energy = energy_figures(s, training, j.end - j.start, times);
    if (!training) continue;
    const auto more = measured_figures(*training, s.device, j.end - j.start, times);
    j.training.insert(j.training.end(), more.begin(), more.end());
    if (storage != nullptr && training->stores()) {
      add_storage_figures(storage->job_stats(static_cast<uint32_t>(i)), j.start, times, j.training);
    }
  }
}

bool random_losses(const Scenario& s, const Topology& topology) {
  return std::any_of(
             s.faults.begin(), s.faults.end(),
             [](const ModelChoice& f) { return f.kind == "link-loss" || f.kind == "link-ber"; }) ||
         std::any_of(topology.links().begin(), topology.links().end(),
                     [](const TopologyLink& l) { return l.loss_rate > 0; });
}

void trust_notes(const Scenario& s, const PacketConfig& config, const Topology& topology,
                 const ChakraImport* import, const std::vector<ComputeRemark>& remarks, Result& r) {
  auto note = [&](const std::string& topic, const std::string& text, bool caution) {
    r.trust.push_back({topic, text, caution});
  };
  if (!r.collectives.empty()) {
    if (s.collectives.is_word("protocol", "auto")) {
      note("collectives",
           "bytes, links, switches and queues only; NCCL's software latency per step is not "
           "modelled, so collectives below about 1 MiB come out too fast (collectives.protocol: "
           "tuned adds it)",
           true);
    } else {
      std::string changed;
      for (const std::string& key : s.collectives.names()) {
        if (key.rfind("nccl.", 0) != 0) continue;
        const Origin::Kind from = s.collectives.origin(key).kind;
        const bool own = from == Origin::Kind::user || from == Origin::Kind::command_line;
        const bool constant = key == "nccl.header" || key == "nccl.efficiency" ||
                              key == "nccl.hop" || key == "nccl.call" || key == "nccl.ll_rate" ||
                              key == "nccl.rendezvous" || key == "nccl.fill" ||
                              key.rfind("nccl.step_", 0) == 0;
        if (own && constant) changed += (changed.empty() ? "; changed: " : ", ") + key.substr(5);
      }
      if (s.engine.kind == "analytic" && topology.servers().back() != topology.servers().front()) {
        note("collectives",
             "the analytic engine lets messages of a queue pair overtake each other: rings over "
             "NVLink and NICs with a protocol come out several times too slow; use engine: flow",
             true);
      }
      if (s.device.generation.empty() && s.collectives.is_word("nccl.generation", "auto")) {
        note("collectives",
             "the card of " + s.device.name +
                 " names no generation: constants of hopper are taken (nccl.generation)",
             true);
      }
      note("collectives",
           "software time as NCCL takes it, by constants of release " +
               s.collectives.text("nccl.release") + " and of transport '" +
               s.collectives.text("nccl.transport") + "' (" + s.collectives.text("nccl.source") +
               changed +
               "); beside 119 public nccl-tests logs times are within 8 % (median) up to 64 KiB "
               "and bandwidths within 3 % from 64 MiB on, one in ten worse than 15 %: " +
               "docs/collectives.md; halving-doubling, pairwise and hierarchical have none",
           true);
    }
  }
  if (import != nullptr) {
    if (r.compute_source == "trace") {
      note("compute times",
           "from the trace, in whole microseconds (a property of Chakra): the total of " +
               std::to_string(import->summary.comp) + " compute ops is uncertain by up to " +
               print_time(Time::us(static_cast<int64_t>(import->summary.comp))),
           false);
    } else if (!remarks.empty()) {
      for (const ComputeRemark& m : remarks) note("compute times", m.text, m.caution);
    } else {
      note("compute times",
           "roofline of " + s.device.name +
               ", uncalibrated: real kernels are slower, so the absolute step time is a lower "
               "bound; compare designs, do not promise times",
           true);
    }
    variation_notes(s, r, note);
    if (import->element_bytes != 1) {
      note("sizes",
           "the trace counts elements; " + std::to_string(import->element_bytes) +
               " bytes each are assumed (workload.element_bytes)",
           true);
    }
    if (!import->has_streams) {
      note("order", "the trace names no streams: collectives of one rank may overlap", false);
    }
    std::map<std::string, std::pair<std::string, size_t>> by_code;
    for (const auto& f : import->findings) {
      auto& entry = by_code[f.code];
      if (entry.second++ == 0) entry.first = f.message;
    }
    for (const auto& [code, entry] : by_code) {
      const size_t more = entry.second - 1;
      note("trace",
           entry.first +
               (more > 0 ? "; likewise in " + std::to_string(more) + " more files" : std::string()),
           false);
    }
  }
  device_notes(s, r, note);
  engine_notes(s, topology, r, note);
  const bool jitters = import != nullptr && s.jitter.kind != "none";
  if (jitters) note("seed", "compute.jitter is random; this is one seed", true);
  if (!r.packets_modelled && r.totals.ecn_marks == 0) {
    if (!jitters) {
      note("seed",
           "no random draw decided anything in this run, except where the hash of ECMP chose a "
           "path",
           false);
    }
  } else if (r.totals.ecn_marks > 0 && config.pmax_q32 < (uint64_t{1} << 32)) {
    note("seed",
         "ECN marks are random: between seeds, means move by 1-2 %, single flows by tens "
         "of percent; this is one seed",
         true);
  } else if (r.totals.drops > 0 && random_losses(s, topology)) {
    note("seed", "losses are random; this is one seed", true);
  } else if (!jitters) {
    note("seed", "no random draw decided anything in this run", false);
  }
  if (!s.faults.empty()) {
    note("faults",
         std::to_string(r.faults.size()) + " of " + std::to_string(r.faults_planned) +
             " planned began before the end; what they drop is allowed, everything else is "
             "lossless as usual. They are ideal: at once, on exactly these parts, and new routes " +
             print_time(Time::ps(config.convergence_ps)) + " after a link event",
         true);
  }
  if (!r.background.empty()) {
    note("background",
         std::to_string(r.background.size()) +
             " transfers ran beside; the run did not wait for them, and those under way at its end "
             "were cut off",
         false);
  }
  if (r.jobs.size() > 1) {
    note(
        "jobs",
        "all of a job's ranks begin at its start; nobody schedules, queues or moves jobs, and each "
        "ends after its own steps" +
            std::string(s.interference ? "" : "; output.interference: true runs each alone, too"),
        false);
  }
  for (const auto& w : r.warnings) note("warning", w, true);
}

}  // namespace

Topology build_topology(const Scenario& s, uint32_t ranks) {
  const std::vector<uint32_t> job_ranks = ranks_of_jobs(s);
  if (!job_ranks.empty()) ranks = std::accumulate(job_ranks.begin(), job_ranks.end(), 0U);
  TopologyRequest request;
  request.gpus_per_node = s.gpus_per_node;
  request.nics_per_node = s.nics_per_node;
  request.nodes =
      s.nodes != 0 ? s.nodes : std::max(1U, (ranks + s.gpus_per_node - 1) / s.gpus_per_node);
  constexpr uint64_t kMostGpus = 4'000'000;
  if (static_cast<uint64_t>(request.nodes) * s.gpus_per_node > kMostGpus) {
    throw UserError(s.cluster_pos, std::to_string(request.nodes) + " nodes x " +
                                       std::to_string(s.gpus_per_node) + " GPUs are more than " +
                                       std::to_string(kMostGpus));
  }
  request.nodes_auto = s.nodes == 0;
  request.base_dir = s.base_dir;
  request.pos = s.topology.pos;
  const auto& make = Registry::instance().factory<TopologyFactory>("topology", s.topology.kind);
  Topology t = make(request, s.topology.params);
  const auto hosts = static_cast<uint32_t>(t.hosts().size());
  if (s.topology.kind == "file" && s.nodes != 0 && s.nodes * s.gpus_per_node != hosts) {
    throw UserError(s.cluster_pos,
                    "cluster says " + std::to_string(s.nodes) + " nodes x " +
                        std::to_string(s.gpus_per_node) +
                        " GPUs = " + std::to_string(s.nodes * s.gpus_per_node) +
                        ", the topology file has " + std::to_string(hosts) + " hosts",
                    "leave cluster.nodes out or correct it");
  }
  if (!s.jobs.empty()) {
    for (const RiskGroup& g : s.risk_groups) t.add_risk_group(g.name, g.members);
    apply_wiring(t, s);
    place_jobs(t, s, job_ranks);
    return t;
  }
  if (ranks > hosts) {
    throw UserError(s.workload_pos,
                    (s.training ? "the layout has " : "the trace has ") + std::to_string(ranks) +
                        " ranks, the cluster " + std::to_string(hosts) + " GPUs",
                    s.nodes != 0
                        ? std::to_string(s.nodes) + " nodes x " + std::to_string(s.gpus_per_node) +
                              " GPUs; raise cluster.nodes or leave it out"
                        : "use a larger topology");
  }
  for (const RiskGroup& g : s.risk_groups) t.add_risk_group(g.name, g.members);
  apply_wiring(t, s);
  apply_placement(t, s, ranks);
  for (const RiskGroup& g : s.risk_groups) {
    for (const std::string& member : g.members) (void)select_links(t, member, g.pos);
  }
  return t;
}

namespace {

Workload load_one(const Scenario& s, const WorkloadSpec& spec, const std::string& name,
                  uint64_t seed) {
  Workload w;
  const auto make_compute = [&](const std::string& kind) {
    w.compute = Registry::instance().factory<ComputeFactory>("compute", kind)(
        s.compute.params, {s.device, s.base_dir, s.compute.pos, spec.software});
    w.remarks = w.compute->prepare(w.import.job);
    w.compute = remember_durations(std::move(w.compute));
  };
  if (spec.training) {
    GeneratedJob generated = generate_job(*spec.training, name, seed);
    w.import.job = std::move(generated.job);
    w.import.rank_classes = generated.rank_classes;
    w.import.has_flops = w.import.has_streams = true;
    if (s.compute.kind == "trace") {
      throw UserError(s.compute.pos, "compute.model: trace needs a trace, this workload has none",
                      "use 'compute: {model: roofline}'");
    }
    const std::string kind = s.compute.kind == "auto" ? "roofline" : s.compute.kind;
    make_compute(kind);
    return w;
  }
  try {
    const chakra::TraceSet set = chakra::read_set(spec.chakra, spec.group_file);
    w.import = import_chakra(set, name, {spec.element_bytes, spec.strict, spec.launch_order});
  } catch (const UserError& e) {
    // What is wrong inside a file is told by that file, what cannot be found by the scenario.
    std::error_code error;
    if (std::filesystem::is_regular_file(e.pos().file, error)) throw;
    throw UserError(spec.workload_pos, e.what());
  } catch (const std::filesystem::filesystem_error& e) {
    throw UserError(spec.workload_pos,
                    "cannot look for " + spec.chakra + ": " + e.code().message());
  }
  if (w.import.summary.nodes == 0) {
    throw UserError(spec.workload_pos, "the trace " + spec.chakra + " holds no operation");
  }
  for (uint32_t r = 0; r < w.import.job.ranks.size(); ++r) {
    for (const uint32_t peer : w.import.job.ranks[r].binding.peers) {
      if (peer < w.import.job.ranks.size()) continue;
      throw UserError(spec.workload_pos,
                      "rank " + std::to_string(r) + " talks to rank " + std::to_string(peer) +
                          ", but the trace holds " + std::to_string(w.import.job.ranks.size()) +
                          " ranks only",
                      "the traces of the other ranks are missing");
    }
  }
  std::string kind = s.compute.kind;
  if (kind == "auto") kind = w.import.has_durations || !w.import.has_flops ? "trace" : "roofline";
  if (kind == "trace" && !w.import.has_durations && w.import.has_flops) {
    throw UserError(s.compute.pos, "the trace carries FLOPs but no durations",
                    "use 'compute: {model: roofline}'");
  }
  make_compute(kind);
  return w;
}

/// A graph without ops, for the ranks of jobs that are left out.
std::shared_ptr<const OpGraph> nothing() {
  auto graph = std::make_shared<OpGraph>();
  graph->finish();
  return graph;
}

}  // namespace

Workload load_workload(const Scenario& s) {
  if (s.jobs.empty()) return load_one(s, s, s.name, s.seed);
  Workload all;
  std::vector<Job> jobs;
  std::vector<JobPart> parts;
  std::vector<std::unique_ptr<ComputeModel>> models;
  std::vector<uint32_t> first_ranks;
  uint32_t first_rank = 0;
  for (size_t i = 0; i < s.jobs.size(); ++i) {
    const JobSpec& spec = s.jobs[i];
    // Jobs draw dice of their own.
    Workload w = load_one(s, spec.workload, spec.name, s.seed + i);
    all.planned.emplace_back();
    if (spec.workload.training) {
      all.planned.back() = planned_figures(*spec.workload.training, w.import.job);
    }
    all.compute_sources.push_back(w.compute->source());
    const bool left_out = s.only_job >= 0 && static_cast<size_t>(s.only_job) != i;
    if (left_out) {
      const auto empty = nothing();
      for (RankProgram& program : w.import.job.ranks) program.graph = empty;
    }
    JobPart part;
    part.name = spec.name;
    part.start = spec.start;
    part.traffic_class = spec.priority;
    part.eager_sends = spec.workload.eager_sends;
    parts.push_back(std::move(part));
    first_ranks.push_back(first_rank);
    first_rank += static_cast<uint32_t>(w.import.job.ranks.size());
    jobs.push_back(std::move(w.import.job));
    models.push_back(std::move(w.compute));
    for (ComputeRemark& remark : w.remarks) {
      const auto same = [&](const ComputeRemark& r) { return r.text == remark.text; };
      if (std::none_of(all.remarks.begin(), all.remarks.end(), same)) {
        all.remarks.push_back(std::move(remark));
      }
    }
    ChakraImport& sum = all.import;
    sum.summary.comp += w.import.summary.comp;
    sum.findings.insert(sum.findings.end(), w.import.findings.begin(), w.import.findings.end());
    sum.rank_classes += w.import.rank_classes;
    sum.element_bytes = std::max(sum.element_bytes, w.import.element_bytes);
    sum.has_durations = sum.has_durations || w.import.has_durations;
    sum.has_flops = sum.has_flops || w.import.has_flops;
    sum.has_streams = (i == 0 || sum.has_streams) && w.import.has_streams;
  }
  all.import.job = combine_jobs(std::move(jobs), std::move(parts));
  all.compute = combine_models(std::move(models), std::move(first_ranks));
  return all;
}

ComputeVariation compute_variation(const Scenario& s, const Topology& topology, const Job& job) {
  const auto ranks = static_cast<uint32_t>(job.ranks.size());
  ComputeVariation v;
  v.seed = s.seed;
  v.jitter = Registry::instance().factory<JitterFactory>("jitter", s.jitter.kind)(s.jitter.params);
  std::vector<double> factors(ranks, 1);
  bool boosted = false;
  const auto workloads = s.workloads();
  for (size_t i = 0; i < workloads.size(); ++i) {
    if (!workloads[i]->training) continue;
    const Training& t = *workloads[i]->training;
    const uint32_t first = job.parts.empty() ? 0 : job.parts[i].first_rank;
    for (const UnlikeReplica& u : t.unlike) {
      if (u.boost == 1) continue;
      boosted = true;
      const Grid grid = dense_grid(t);
      for (uint32_t r = 0; r < static_cast<uint32_t>(t.ranks); ++r) {
        const bool here = u.stage < 0 || grid.coordinate(r, "pp") == u.stage;
        if (here && replica_of(grid, r) == u.replica) factors[first + r] = 1 / u.boost;
      }
    }
  }
  if (s.slow.empty() && !boosted) return v;
  const auto& hosts = topology.hosts();
  for (const SlowEntry& e : s.slow) {
    bool any = false;
    for (const uint32_t node : select_nodes(topology, e.where, e.origin.pos)) {
      const auto at = std::find(hosts.begin(), hosts.end(), node);
      if (at == hosts.end() || at - hosts.begin() >= static_cast<std::ptrdiff_t>(ranks)) continue;
      factors[static_cast<size_t>(at - hosts.begin())] *= e.factor;
      any = true;
    }
    if (!any) {
      throw UserError(
          e.origin.pos, "'" + e.where + "' names no GPU of the job",
          "it has ranks 0 to " + std::to_string(ranks - 1) + "; write rank17, node3 or node3.gpu5");
    }
  }
  for (const double f : factors) {
    v.slow_q32.push_back(static_cast<uint64_t>(std::llround(std::min(f, 1e6) * 4294967296.0)));
  }
  return v;
}

std::vector<Params> collective_entries(const Scenario& s) {
  std::vector<Params> entries;
  for (const ModelChoice& t : s.traffic) {
    if (t.kind != "collective") continue;
    if (s.has_workload()) {
      throw UserError(t.pos, "collectives of traffic beside a workload are not built yet",
                      "use another pattern, or a scenario of its own");
    }
    entries.push_back(t.params);
  }
  return entries;
}

std::unique_ptr<Storage> build_storage(const Scenario& s, const Topology& topology,
                                       const Job& job) {
  if (!s.stores()) return nullptr;
  const auto ranks = static_cast<uint32_t>(job.ranks.size());
  StorageConfig config = storage_config(s.storage);
  config.node_of = topology.servers();
  config.node_of.resize(ranks);
  for (size_t i = 0; i < job.parts.size(); ++i) {
    config.job_of.resize(job.parts[i].first_rank + job.parts[i].ranks, static_cast<uint32_t>(i));
  }
  if (s.storage.is_word("network", "shared")) {
    const auto& hosts = topology.hosts();
    const SourcePos& pos = s.storage.origin("where").pos;
    const std::string& where = s.storage.text("where");
    for (const uint32_t node : select_nodes(topology, where, pos)) {
      const auto at = std::find(hosts.begin(), hosts.end(), node);
      if (at == hosts.end()) continue;
      const auto endpoint = static_cast<uint32_t>(at - hosts.begin());
      if (endpoint < ranks) {
        throw UserError(pos, "'" + where + "' names the GPU of rank " + std::to_string(endpoint),
                        s.jobs.empty() ? "storage sits on nodes of its own: raise cluster.nodes, "
                                         "give layout.dp and name the nodes beyond"
                                       : "storage sits on nodes of its own: raise cluster.nodes "
                                         "and name nodes that no job is placed on");
      }
      config.endpoints.push_back(endpoint);
    }
    if (config.endpoints.empty()) throw UserError(pos, "'" + where + "' names no endpoint");
    const auto found = static_cast<uint32_t>(config.endpoints.size());
    if (!s.storage.is_word("servers", "auto") && config.servers != found) {
      throw UserError(s.storage.origin("servers").pos,
                      "'" + where + "' names " + std::to_string(found) + " endpoints, not " +
                          std::to_string(config.servers) + " servers",
                      "leave storage.servers out or correct it");
    }
    config.servers = found;
  }
  return make_storage(std::move(config));
}

StepFaults build_faults(const Scenario& s, const Topology& topology, const PacketConfig& config,
                        const Job* job) {
  StepFaults faults;
  for (const ModelChoice& f : s.faults) {
    FaultRequest request{topology, config, 0, job != nullptr, false, f.pos, job};
    if (job != nullptr) {
      request.ranks = static_cast<uint32_t>(job->ranks.size());
      request.computes = computes(*job);
    }
    const bool before = f.params.is_word("at", "before");
    faults.set_before(before);
    const auto index = static_cast<uint32_t>(&f - s.faults.data());
    const FaultKind& kind = fault_kind(f.kind, f.pos);
    for (const Params& one : random_schedule(request, kind.parts, f.params, s.seed, index)) {
      kind.inject(request, one, faults);
      if (one.is_word("abort_after", "none")) continue;
      const FaultSpan span = fault_span(one);
      const Time told = span.from + one.time("abort_after");
      if (told < span.until) {
        faults.abort(told, "the job is aborted at " + print_time(told) + ", " +
                               one.text("abort_after") + " after " + f.kind + " of " +
                               one.text("where"));
      }
    }
    if (s.engine.kind != "packet" && faults.happens_to_packets()) {
      throw UserError(f.pos,
                      "engine " + s.engine.kind + " does not model " + f.kind +
                          (before ? " as this says it" : " during a run"),
                      "it models cables that are down or slow all along ('at: before') and GPUs; "
                      "use 'simulation: {engine: packet}' for the rest");
    }
  }
  faults.finish(topology, config);
  return faults;
}

std::vector<Flow> build_flows(const Scenario& s, uint32_t ranks) {
  std::vector<Flow> flows;
  for (const ModelChoice& t : s.traffic) {
    if (t.kind == "collective") continue;
    if (ranks < 2) {
      throw UserError(t.pos,
                      "traffic needs at least 2 ranks, the fabric has " + std::to_string(ranks),
                      "raise cluster.nodes or cluster.gpus_per_node");
    }
    const TrafficRequest request{ranks, s.seed, s.base_dir, t.pos};
    const auto& make = Registry::instance().factory<TrafficFactory>("traffic", t.kind);
    auto more = make(request, t.params);
    apply_common(t.params, more);
    flows.insert(flows.end(), more.begin(), more.end());
  }
  return flows;
}

PacketConfig packet_config(const Scenario& s) {
  return make_packet_config({s.transport.params, s.congestion.kind, s.congestion.params,
                             s.ecmp.kind, s.ecmp.params, s.buffer.params, s.pfc.params,
                             s.ecn.params, s.seed, s.ecmp.pos, s.pinned});
}

namespace {

Result run_once(const Scenario& s, const RunHooks& hooks) {
  const auto started = Clock::now();
  Result r;
  r.scenario_name = s.name;
  r.scenario_file = s.file;
  r.engine = s.engine.kind;
  r.packets_modelled = s.engine.kind == "packet";
  r.seed = s.seed;
  r.settings = s.settings;
  r.warnings = s.warnings;

  ChakraImport import;
  const bool workload = s.has_workload();
  std::unique_ptr<ComputeModel> compute;
  std::vector<ComputeRemark> remarks;
  Workload loaded;
  if (workload) {
    loaded = load_workload(s);
    import = std::move(loaded.import);
    compute = std::move(loaded.compute);
    remarks = std::move(loaded.remarks);
    r.load_wall_s = seconds_since(started);
    r.compute_source = compute->source();
    r.rank_classes = static_cast<uint32_t>(import.rank_classes);
  } else {
    r.compute_source = "none";
  }
  const auto ranks = static_cast<uint32_t>(import.job.ranks.size());
  Topology fabric_graph = build_topology(s, ranks);
  const Topology& topology = fabric_graph;
  PacketConfig config = packet_config(s);
  config.shared_noise = s.shared_noise;
  config.noise_variants = s.noise_variants;
  r.ranks = workload ? ranks : static_cast<uint32_t>(topology.hosts().size());
  r.nodes = static_cast<uint32_t>(topology.nodes().size());
  r.switches = r.nodes - topology.count(NodeKind::host);
  r.links_count = static_cast<uint32_t>(topology.links().size());
  for (const uint32_t h : topology.hosts()) r.endpoint_names.push_back(topology.nodes()[h].name);
  if (topology.nic_rate() > Rate::gbps(3200)) {
    r.warnings.push_back("a NIC rate of " + print_rate(topology.nic_rate()) +
                         " is above 3.2 Tbps: bits or bytes? ('GBps' is bytes)");
  }
  const bool pcie = s.topology.params.has_spec("scale_up.kind") &&
                    s.topology.params.is_word("scale_up.kind", "pcie");
  for (const auto& link : topology.links()) {
    if (pcie) break;
    const bool scale_up = topology.nodes()[link.a].kind == NodeKind::scale_up ||
                          topology.nodes()[link.b].kind == NodeKind::scale_up;
    if (scale_up && link.rate < Rate::gbps(100)) {
      r.warnings.push_back("a scale-up rate of " + print_rate(link.rate) +
                           " is below 100 Gbps: bits or bytes? ('GBps' is bytes)");
      break;
    }
  }

  const auto& fabric_params = s.topology.params;
  if (workload && !pcie && s.device.scale_up_bps > 0 && fabric_params.has_spec("scale_up.rate") &&
      topology.count(NodeKind::scale_up) > 0) {
    // A rate from a data sheet may be rounded.
    const Rate rate = fabric_params.rate("scale_up.rate");
    const Rate card = Rate::bps(s.device.scale_up_bps);
    if (rate.bps() / 21 > card.bps() / 20) {
      r.warnings.push_back("fabric.topology.scale_up.rate is " +
                           fabric_params.text("scale_up.rate") + ", a " + s.device.name + " has " +
                           std::to_string(card.bps() / 8'000'000'000) +
                           "GBps per direction (its card)");
    }
  }

  const auto entries = collective_entries(s);
  const bool collectives = !entries.empty();
  if (collectives) {
    import.job = collective_job(s.name, r.ranks, entries);
    compute = Registry::instance().factory<ComputeFactory>("compute", "trace")(
        Params(), {s.device, s.base_dir, {}});
  }
  const bool job = workload || collectives;
  const StepFaults faults = build_faults(s, topology, config, job ? &import.job : nullptr);
  r.faults_planned = faults.records().size();
  const Time until = std::min(s.until, faults.abort_at());
  const std::string aborted = faults.abort_at() <= s.until ? faults.abort_reason() : "";
  // What is chosen by the figures of the fabric is chosen by those it was built with.
  const auto selector = collective_selector(s, topology, config);
  fabric_graph.damage(faults.damage());

  r.complete_at_last_ack = !config.complete_at_receiver;
  const auto& make = Registry::instance().factory<EngineFactory>("engine", s.engine.kind);
  std::unique_ptr<Fabric> owned;
  const std::string declined = fast_path_obstacle(s, config, hooks);
  if (s.fast_path != "none" && !declined.empty()) {
    r.warnings.push_back("simulation.fast_path: " + s.fast_path + " declines: " + declined +
                         "; every packet is simulated");
  }
  DomainFabric* domains = nullptr;
  if (s.fast_path != "none" && declined.empty()) {
    FastPathOptions options;
    options.partition = s.domains;
    options.memo = s.memo;
    options.jumps = s.period_jump;
    options.stretches = s.stretches;
    options.stepping = s.fast_path == "fast" && s.stepping && !stepping_declines(config);
    options.audit_budget = options.stepping ? s.audit_budget : 0;
    options.ignored_pauses_ppm = std::llround(s.ignored_pauses * 1e6);
    options.memo_bytes = static_cast<size_t>(s.memo_limit);
    options.threads = s.threads;
    auto fabric = std::make_unique<DomainFabric>(topology, config, options);
    domains = fabric.get();
    owned = std::move(fabric);
  } else {
    owned = make(topology, config, s.engine.params);
  }
  Fabric& fabric = *owned;
  auto* const packet = dynamic_cast<PacketFabric*>(owned.get());  // null: another engine
  if (packet != nullptr) {
    packet->record_rates(hooks.rates);
    if (s.link_window > Time()) packet->record_links(s.link_window);
    packet->observe(s.observe);
  }
  check_variation(s, workload && computes(import.job));
  if (workload && hooks.healthy != nullptr) {
    const std::shared_ptr<ComputeModel> nominal = std::move(compute);
    compute =
        std::make_unique<HealthyModel>(nominal,
                                       vary_compute(std::make_unique<SharedModel>(nominal),
                                                    compute_variation(s, topology, import.job)),
                                       *hooks.healthy);
  } else if (workload) {
    compute = vary_compute(std::move(compute), compute_variation(s, topology, import.job));
  }
  // Flows may go to any GPU, not only to those of a workload.
  const auto hosts = static_cast<uint32_t>(topology.hosts().size());
  const std::vector<TimedFlow> flows = timed(build_flows(s, hosts), job);
  std::vector<PauseRecord> pauses;
  if (packet != nullptr && s.pauses) packet->record_pauses(&pauses);
  StagedFabric staged(fabric, flows, faults.changes(), [&](const FabricChange& change) {
    domains != nullptr ? domains->schedule(change) : packet->schedule(change);
  });
  r.setup_wall_s = seconds_since(started);
  const auto run_started = Clock::now();

  // A trace viewer zooms in, the picture of the report does not.
  PowerMeter power(s.power_window);
  SpanKeeper spans(s.perfetto ? 2'000'000 : 200'000, power,
                   static_cast<uint32_t>(import.job.ranks.size()));
  std::optional<TimelineExport> exported;
  if (!s.chakra_out.empty() && job && hooks.healthy == nullptr && s.only_job < 0) {
    spans.exported = &exported.emplace(import.job);
  }
  spans.keep_visits = !s.faults.empty() || hooks.healthy != nullptr;
  uint64_t timeline_fingerprint = 0;
  std::unique_ptr<Storage> storage;
  const bool faulty = !faults.changes().empty();
  const auto settle = [&] {
    if (!staged.background_left()) drain(fabric, faulty);
    fabric.check_conservation();
  };
  // What is still under way counts up to the end.
  const auto stop_at = [&](Time end) {
    if (domains != nullptr && s.fast_path == "exact") domains->settle(end);
  };
  if (job) {
    uint64_t ops = 0;
    for (const auto& p : import.job.ranks) ops += p.graph->ops.size();
    ProgressGate progress(hooks, fabric, ops);
    TimelineOptions options;
    options.complete_at_receiver = config.complete_at_receiver;
    options.placement = placement_on(topology);
    if (!faults.borrowers().empty()) {
      auto borrows = std::make_shared<std::vector<char>>(topology.hosts().size(), 0);
      const auto& all = faults.borrowers();
      for (size_t rank = 0; rank < borrows->size(); ++rank) {
        const bool one = std::binary_search(all.begin(), all.end(), topology.hosts()[rank]);
        (*borrows)[rank] = one ? 1 : 0;
      }
      options.placement.borrows = std::move(borrows);
    }
    options.eager_sends = s.eager_sends;
    options.most_records = 200'000;
    options.collective_timeout = s.collectives.time("timeout");
    options.traffic_class = static_cast<uint8_t>(s.collectives.integer("class"));
    if (!faults.gpus().empty()) options.faults = &faults.gpus();
    options.stop_at = faults.abort_at();
    bool cut = false;
    options.overlap_q32 = static_cast<uint64_t>(std::llround(s.overlap_slowdown * 4294967296.0));
    options.collective_overlap_q32 = collective_shares(s, options.overlap_q32);
    if (options.paced() && options.faults != nullptr) {
      throw UserError(
          options.overlap_q32 != 0 ? s.compute.pos : s.collectives.origin("sms").pos,
          "compute.overlap_slowdown and collectives.sms together with faults of GPUs are "
          "not built yet",
          "remove one of them");
    }
    storage = build_storage(s, topology, import.job);
    options.storage = storage.get();
    options.progress = [&](Time now, uint64_t done) {
      cut = now >= s.until;
      return !cut && progress(now, done);
    };
    // Alone, a job needs nobody between it and the fabric.
    const bool alone = flows.empty() && faults.changes().empty();
    Fabric& beneath = alone ? fabric : staged;
    auto* const host = dynamic_cast<CollectiveHost*>(owned.get());  // null: message by message
    if (alone && options.faults == nullptr && host != nullptr && host->hosts()) options.host = host;
    options.stretches = s.stretches;
    Timeline timeline(import.job, beneath, *compute, *selector, options);
    try {
      r.complete = timeline.run(&spans);
      if (r.complete) {
        settle();
      } else {
        const bool ended = !aborted.empty() && timeline.end() >= options.stop_at;
        r.incomplete_reason = ended ? cut_off(until, aborted, timeline.ops_done(), ops, "ops")
                              : cut ? cut_off(s.until, "", timeline.ops_done(), ops, "ops")
                                    : "interrupted after " + std::to_string(timeline.ops_done()) +
                                          " of " + std::to_string(ops) + " ops";
      }
      stop_at(Time());
    } catch (const SimulationError& e) {
      r.complete = false;
      r.incomplete_reason = e.what();
    }
    r.end = std::max(
        {timeline.end(), staged.last_flow_progress(), r.complete ? Time() : staged.reached()});
    r.step_time = timeline.end();
    r.rank_times = timeline.rank_times();
    r.ops = ops;
    r.ops_replayed = timeline.ops_replayed();
    r.collectives = timeline.collectives();
    r.visits = std::move(spans.visits);
    r.collective_timeout = options.collective_timeout;
    if (!r.complete) r.open_calls = timeline.open_calls();
    r.exits = timeline.exits();
    r.collectives_dropped = timeline.records_dropped();
    r.durations = spans.ops.take();
    r.call_sizes = call_sizes(import.job);
    r.flow_owner = timeline.owners();
    timeline_fingerprint = timeline.fingerprint();
    for (size_t i = 0; i < import.job.parts.size(); ++i) {
      const JobPart& part = import.job.parts[i];
      JobResult j;
      j.name = part.name;
      j.first_rank = part.first_rank;
      j.ranks = part.ranks;
      j.gpus = gpu_names(r.endpoint_names, part);
      j.traffic_class = part.traffic_class;
      j.start = part.start;
      j.end = timeline.part_end(part);
      j.compute_source = loaded.compute_sources[i];
      j.training = std::move(loaded.planned[i]);
      r.jobs.push_back(std::move(j));
    }
    r.flows = alone ? fabric.transfers() : staged.transfers();
    if (host != nullptr && host->messages_left_out() > 0) {
      r.warnings.push_back(
          std::to_string(host->messages_left_out()) +
          " messages of collectives are not listed one by one: flows.csv and the figures of flows "
          "are about sends only (whole_collectives: false lists them, with the memory that it "
          "takes)");
    }
  } else {
    ProgressGate progress(hooks, fabric, flows.size());
    try {
      run_traffic(staged, flows.size(), until, aborted, progress, r);
      if (r.complete) settle();
      stop_at(r.complete ? Time() : r.end);
    } catch (const SimulationError& e) {
      r.complete = false;
      r.incomplete_reason = e.what();
      r.end = std::max(r.end, staged.reached());
    }
  }
  if (!flows.empty()) add_flows(staged, r);
  for (const FaultRecord& f : faults.records()) {
    if (f.at <= r.end) r.faults.push_back(f);
  }
  r.wall_s = seconds_since(run_started);
  r.totals = fabric.totals();
  if (domains != nullptr) r.fast_path = domains->stats();
  r.links = fabric.links();
  r.tier_loads = tier_loads(topology, r.links);
  if (packet != nullptr) add_observations(packet->take_observations(), topology, r);
  add_pauses(pauses, topology, s.pauses, r);
  r.perfetto = s.perfetto;
  if (packet != nullptr) r.link_series = packet->take_link_series();
  if (r.link_series.window > Time()) {
    r.tier_series = tier_load_series(topology, r.links, r.link_series);
    add_windows(r.tier_series, r.tier_loads);
  }
  if (r.link_series.window != r.link_series.asked) {
    r.warnings.push_back("output.telemetry.links: windows of " + print_time(r.link_series.asked) +
                         " would give more than " + std::to_string(LinkTelemetry::kMostRows) +
                         " rows; they are " + print_time(r.link_series.window) + " long instead");
  }
  r.spans = std::move(spans.spans);
  r.spans_dropped = spans.dropped;
  r.fingerprint = fabric.fingerprint() + timeline_fingerprint;
  r.peak_rss_bytes = peak_rss_bytes();
  if (r.complete) {
    // A run that moved nothing where it should have, or took no time at all, is no answer.
    for (const auto& c : r.collectives) {
      if (c.bytes > 0 && c.ranks > 1 && c.transmissions == 0) {
        r.complete = false;
        r.incomplete_reason = std::string(collective_name(c.kind)) + " '" + c.name + "' of " +
                              std::to_string(c.bytes) + " bytes moved no packet";
        break;
      }
    }
    if (workload && r.end.ps() == 0) {
      throw UserError(s.workload_pos, "nothing takes any time in " + s.chakra,
                      "its nodes carry no durations, FLOPs, memory traffic or communication; is "
                      "this the trace that you meant?");
    }
    if (r.end.ps() == 0) {
      r.complete = false;
      r.incomplete_reason = "nothing took any time";
    }
  }
  if (workload && r.totals.transmissions == 0) {
    r.warnings.push_back(s.training ? "0 flows: nothing of this layout communicates"
                                    : "0 flows: no operation of the trace communicates");
  }
  if (r.complete && job && r.jobs.empty()) {
    r.energy = energy_figures(s, s.training, r.step_time, r.rank_times);
  }
  if (r.complete) job_figures(s, storage.get(), r);
  if (r.complete && exported) exported->write(import.job, s.chakra_out);
  if (power.on() && job) r.power = power.take(s.device, r.step_time);
  if (r.power.window != r.power.asked) {
    r.warnings.push_back("output.telemetry.power: windows of " + print_time(r.power.asked) +
                         " would give more than " + std::to_string(PowerSeries::kMostWindows) +
                         " rows; they are " + print_time(r.power.window) + " long instead");
  }
  if (s.training) {
    r.training = planned_figures(*s.training, import.job);
    if (r.complete) {
      const auto more = measured_figures(*s.training, s.device, r.step_time, r.rank_times);
      r.training.insert(r.training.end(), more.begin(), more.end());
      if (storage) add_storage_figures(storage->stats(), Time(), r.rank_times, r.training);
    }
  }
  trust_notes(s, config, topology, workload ? &import : nullptr, remarks, r);
  return r;
}

/// Stretches hold what they use for themselves; where that turns out wrong, without them.
Result run_safely(const Scenario& s, const RunHooks& hooks) {
  try {
    return run_once(s, hooks);
  } catch (const UserError& e) {
    // Routing finds out, when something has to go there, and knows no line.
    const auto first = std::find_if(s.faults.begin(), s.faults.end(), [](const ModelChoice& f) {
      return f.params.is_word("at", "before");
    });
    if (!e.pos().file.empty() || first == s.faults.end()) throw;
    throw UserError(first->pos, std::string("with what is broken before the run: ") + e.what(),
                    "nic-down with 'reaction: backup-nic' gives a GPU another NIC of its server");
  } catch (const StretchConflict& e) {
    Scenario without = s;
    without.stretches = false;
    Result r = run_once(without, hooks);
    r.warnings.push_back(std::string(e.what()) +
                         ": run again with simulation.stretches: off; set it to save the time");
    return r;
  }
}

}  // namespace

std::unique_ptr<CollectiveSelector> collective_selector(const Scenario& s, const Topology& topology,
                                                        const PacketConfig& config) {
  FabricFacts facts;
  if (!s.collectives.is_word("protocol", "auto")) facts = fabric_facts(topology, config);
  for (size_t g = 0; g < kGenerations; ++g) {
    const auto generation = static_cast<Generation>(g);
    if (s.device.generation == generation_name(generation)) facts.generation = generation;
  }
  return make_collective_selector(s.collectives, facts);
}

Result run_scenario(const Scenario& s, const RunHooks& hooks) {
  if (auto folded = run_folded(s, [&](const Scenario& part) { return run_safely(part, hooks); })) {
    // Figures of the whole, not of the part. What is sent has been added up already.
    const std::vector<TrainingFigure> sent = std::move(folded->training);
    folded->training = planned_figures(*s.training, {});
    const auto more =
        measured_figures(*s.training, s.device, folded->step_time, folded->rank_times);
    for (const auto* list : {&sent, &more}) {
      folded->training.insert(folded->training.end(), list->begin(), list->end());
    }
    folded->energy = energy_figures(s, s.training, folded->step_time, folded->rank_times);
    return std::move(*folded);
  }
  Result r = run_safely(s, hooks);
  if (!s.interference || !r.complete) return r;
  for (size_t i = 0; i < r.jobs.size(); ++i) {
    Scenario alone = s;
    alone.only_job = static_cast<int>(i);
    RunHooks same;
    same.progress = hooks.progress;
    same.healthy = hooks.healthy;
    const Result without = run_safely(alone, same);
    if (!without.complete) {
      r.warnings.push_back("job '" + r.jobs[i].name + "' alone: " + without.incomplete_reason);
      r.trust.push_back({"warning", r.warnings.back(), true});
      continue;
    }
    r.jobs[i].alone = without.jobs[i].end - without.jobs[i].start;
  }
  return r;
}

}  // namespace trainyard
