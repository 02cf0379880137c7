// SPDX-License-Identifier: MIT
#include "tools/scenario/fold.h"

#include <algorithm>
#include <array>
#include <string>

#include "sim/errors.h"
#include "tools/report/text.h"

namespace trainyard {
namespace {

constexpr int kTries = 3;

/// a, b, c at equal distances, k more of the same distance beyond c.
struct Line {
  int64_t k = 0;
  bool straight = true;

  int64_t operator()(int64_t a, int64_t b, int64_t c) {
    if (c - b != b - a) straight = false;
    const __int128 all = static_cast<__int128>(c) + static_cast<__int128>(k) * (c - b);
    if (all > INT64_MAX || all < INT64_MIN) {
      throw UserError("the run takes longer than 106 days of simulated time");
    }
    return static_cast<int64_t>(all);
  }
  void operator()(const Time& a, const Time& b, Time& c) {
    c = Time::ps((*this)(a.ps(), b.ps(), c.ps()));
  }
  /// Counters need not be straight: acknowledgements are counted in batches.
  template <class T>
  void count(const T& a, const T& b, T& c) {
    const bool before = straight;
    c = static_cast<T>(
        (*this)(static_cast<int64_t>(a), static_cast<int64_t>(b), static_cast<int64_t>(c)));
    straight = before;
  }
};

/// `c` becomes what lies k periods behind it.
bool extend(const Result& a, const Result& b, Result& c, int64_t k) {
  Line line{k};
  if (a.rank_times.size() != c.rank_times.size() || a.links.size() != c.links.size()) return false;
  line(a.step_time, b.step_time, c.step_time);
  line(a.end, b.end, c.end);
  for (size_t r = 0; r < c.rank_times.size(); ++r) {
    const RankTimes& x = a.rank_times[r];
    const RankTimes& y = b.rank_times[r];
    RankTimes& z = c.rank_times[r];
    for (Time RankTimes::*part :
         {&RankTimes::finish, &RankTimes::compute, &RankTimes::host, &RankTimes::exposed_comm,
          &RankTimes::hidden_comm, &RankTimes::wait, &RankTimes::idle, &RankTimes::storage}) {
      line(x.*part, y.*part, z.*part);
    }
    for (size_t d = 0; d < kDimensions; ++d) {
      line(x.exposed_of[d], y.exposed_of[d], z.exposed_of[d]);
      line(x.wait_of[d], y.wait_of[d], z.wait_of[d]);
      line(x.hidden_of[d], y.hidden_of[d], z.hidden_of[d]);
    }
  }
  if (!line.straight) return false;
  for (size_t i = 0; i < c.links.size(); ++i) {
    line.count(a.links[i].packets, b.links[i].packets, c.links[i].packets);
    line.count(a.links[i].bytes, b.links[i].bytes, c.links[i].bytes);
    line.count(a.links[i].data_bytes, b.links[i].data_bytes, c.links[i].data_bytes);
    Time& busy = c.links[i].busy;
    int64_t ps = busy.ps();
    line.count(a.links[i].busy.ps(), b.links[i].busy.ps(), ps);
    busy = Time::ps(ps);
  }
  for (uint64_t FabricTotals::*n :
       {&FabricTotals::transmissions, &FabricTotals::data_packets, &FabricTotals::ack_packets,
        &FabricTotals::cnp_packets, &FabricTotals::pfc_frames, &FabricTotals::ecn_marks,
        &FabricTotals::pfc_pauses, &FabricTotals::pfc_resumes}) {
    line.count(a.totals.*n, b.totals.*n, c.totals.*n);
  }
  std::vector<TrainingFigure> sent;
  for (size_t i = 0; i < c.training.size(); ++i) {
    TrainingFigure f = c.training[i];
    const auto ends = [&](const std::string& with) {
      return f.key.size() > with.size() &&
             f.key.compare(f.key.size() - with.size(), with.size(), with) == 0;
    };
    const bool volume = ends("_sent_bytes");
    if (!volume && !ends("_calls")) continue;
    auto value = static_cast<int64_t>(f.value);
    line.count(static_cast<int64_t>(a.training[i].value), static_cast<int64_t>(b.training[i].value),
               value);
    f.value = static_cast<double>(value);
    if (volume) {
      f.text = report::volume(static_cast<uint64_t>(value)) +
               " per rank (middle stage), if bandwidth-optimal";
    }
    sent.push_back(std::move(f));
  }
  c.training = std::move(sent);
  line.count(a.totals.payload_bytes, b.totals.payload_bytes, c.totals.payload_bytes);
  line.count(a.totals.wire_bytes, b.totals.wire_bytes, c.totals.wire_bytes);
  return true;
}

Scenario shortened(const Scenario& s, int64_t microbatches, int64_t steps) {
  Scenario out = s;
  out.fold_from = 0;
  out.training->microbatches = microbatches;
  out.training->global_batch = microbatches * s.training->dp * s.training->micro_batch;
  out.training->steps = steps;
  return out;
}

}  // namespace

const char* fold_obstacle(const Scenario& s) {
  if (!s.training || !s.jobs.empty()) return "it is no single generated workload";
  if (!s.traffic.empty()) return "traffic runs beside it";
  if (!s.faults.empty()) return "faults happen at times of their own";
  if (s.until != Time::infinity()) return "it is cut off";
  if (s.jitter.kind != "none") return "compute times are drawn";
  if (s.training->expert_sigma > 0 || s.training->source_sigma > 0) return "experts are drawn";
  if (s.training->document > 0) return "documents are drawn";
  if (!s.training->unlike.empty()) return "replicas are unlike";
  if (s.training->stores()) return "storage has a queue of its own";
  if (!s.chakra_out.empty()) return "its timeline is asked for";
  if (s.link_window > Time() || s.power_window > Time() || s.pauses || s.observe.any() ||
      s.perfetto) {
    return "telemetry is asked for";
  }
  return nullptr;
}

std::optional<Result> run_folded(const Scenario& s,
                                 const std::function<Result(const Scenario&)>& run) {
  if (s.fold_from <= 0 || !s.training) return std::nullopt;
  const Training& t = *s.training;
  // Micro-batches fold within a step, then steps.
  const bool many_steps = t.steps >= s.fold_from;
  const bool many_microbatches = t.microbatches >= s.fold_from;
  if (!many_steps && !many_microbatches) return std::nullopt;
  if (fold_obstacle(s) != nullptr) return std::nullopt;
  if (many_steps && many_microbatches) {
    // One at a time: a step is folded first, and must then be alike from step to step.
    return std::nullopt;
  }
  const int64_t all = many_steps ? t.steps : t.microbatches;
  const int64_t period = many_steps ? 1 : std::max<int64_t>(1, t.pp);
  int64_t base = many_steps ? 2 : 4 * t.pp * t.vpp;
  for (int attempt = 0; attempt < kTries; ++attempt, base *= 2) {
    const int64_t first = base + (all - base) % period;
    if (first + 2 * period >= all) return std::nullopt;
    std::array<Result, 3> runs;
    for (int i = 0; i < 3; ++i) {
      const int64_t n = first + i * period;
      runs[static_cast<size_t>(i)] =
          run(shortened(s, many_steps ? t.microbatches : n, many_steps ? n : t.steps));
      if (!runs[static_cast<size_t>(i)].complete) return std::nullopt;
    }
    const int64_t simulated = first + 2 * period;
    Result& last = runs[2];
    if (!extend(runs[0], runs[1], last, (all - simulated) / period)) continue;
    last.wall_s += runs[0].wall_s + runs[1].wall_s;
    last.setup_wall_s += runs[0].setup_wall_s + runs[1].setup_wall_s;
    last.trust.push_back(
        {"folded",
         "of " + report::grouped(static_cast<uint64_t>(all)) +
             (many_steps ? " steps " : " micro-batches ") +
             report::grouped(static_cast<uint64_t>(simulated)) +
             " were simulated: the last periods are equal to the picosecond on every rank, and "
             "the others are taken to be. Tables and the fingerprint are of those simulated",
         false});
    return std::move(last);
  }
  return std::nullopt;
}

}  // namespace trainyard
