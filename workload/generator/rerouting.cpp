// SPDX-License-Identifier: MIT
#include "workload/generator/rerouting.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/errors.h"

namespace trainyard {
namespace {

struct Worker {
  bool live = true;
  uint32_t share = 0;  // micro-batches of a step
  uint32_t inputs = 0, weights = 0, held = 0;
  uint32_t limit = 0;
  int64_t free_at = 0, ended = 0;
  std::set<std::pair<uint32_t, uint32_t>> forward, backward;  // ready: (micro-batch, replica)
};

/// Becomes ready at the end of a slot.
struct Ready {
  int64_t at = 0;
  uint32_t stage = 0, worker = 0;
  bool backward = false;
  std::pair<uint32_t, uint32_t> what;
  uint32_t step = 0;
};

}  // namespace

ReroutedSteps rerouted_steps(const Rerouting& job, uint32_t steps) {
  const uint32_t p = job.stages;
  const uint32_t n = job.replicas;
  TRAINYARD_ASSERT(p > 0 && n > 0 && job.microbatches > 0 && steps > 0);
  std::vector<std::vector<Worker>> workers(p, std::vector<Worker>(n));
  for (const auto& [replica, stage] : job.failed) {
    if (replica >= n || stage >= p) {
      throw UserError(fmt::format("worker of replica {}, stage {} is not one of {} x {}", replica,
                                  stage, n, p));
    }
    workers[stage][replica].live = false;
  }
  // Who does micro-batch (m, replica) of a stage: its own worker, or the live ones in turn.
  std::vector<std::vector<uint32_t>> owner(p);
  for (uint32_t s = 0; s < p; ++s) {
    std::vector<uint32_t> live;
    for (uint32_t r = 0; r < n; ++r) {
      if (workers[s][r].live) live.push_back(r);
    }
    if (live.empty()) {
      throw UserError(
          fmt::format("all {} workers of stage {} have failed: nobody is left who "
                      "holds its parameters",
                      n, s));
    }
    size_t turn = 0;
    for (uint32_t m = 0; m < job.microbatches; ++m) {
      for (uint32_t r = 0; r < n; ++r) {
        owner[s].push_back(workers[s][r].live ? r : live[turn++ % live.size()]);
        ++workers[s][owner[s].back()].share;
      }
    }
    for (Worker& w : workers[s]) {
      const uint32_t m = job.microbatches;
      w.limit = std::max(1U, ((p - s) * std::max(w.share, m) + m - 1) / m);
    }
  }
  const auto own = [&](uint32_t s, std::pair<uint32_t, uint32_t> what) {
    return owner[s][static_cast<size_t>(what.first) * n + what.second];
  };
  std::vector<Ready> ready;
  std::vector<uint32_t> step_of(p, 0);  // steps that a stage has ended
  const auto enter = [&](int64_t at) {
    for (uint32_t m = 0; m < job.microbatches; ++m) {
      for (uint32_t r = 0; r < n; ++r)
        ready.push_back({at, 0, own(0, {m, r}), false, {m, r}, step_of[0]});
    }
  };
  ReroutedSteps out;
  out.bubbles.assign(p, 0);
  out.executed.assign(p, 0);
  std::vector<int64_t> opens(p, 0);  // when it may begin the next one
  std::vector<int64_t> ends(steps, 0);
  enter(0);
  for (int64_t now = 0; *std::min_element(step_of.begin(), step_of.end()) < steps; ++now) {
    std::vector<Ready> later;
    for (const Ready& r : ready) {
      // A forward of the next step waits until its stage has ended this one.
      if (r.at > now || (!r.backward && (r.step > step_of[r.stage] || now < opens[r.stage]))) {
        later.push_back(r);
        continue;
      }
      Worker& w = workers[r.stage][r.worker];
      (r.backward ? w.backward : w.forward).insert(r.what);
    }
    ready = std::move(later);
    for (uint32_t s = 0; s < p; ++s) {
      for (uint32_t k = 0; k < n; ++k) {
        Worker& w = workers[s][k];
        if (!w.live || w.free_at > now || w.weights == w.share) continue;
        int64_t slots = 1;
        if (!w.backward.empty()) {
          const auto what = *w.backward.begin();
          w.backward.erase(w.backward.begin());
          --w.held;
          ++w.inputs;
          if (!job.split_backward) slots = 2, ++w.weights;
          if (s > 0)
            ready.push_back({now + slots, s - 1, own(s - 1, what), true, what, step_of[s]});
        } else if (!w.forward.empty() && w.held < w.limit) {
          const auto what = *w.forward.begin();
          w.forward.erase(w.forward.begin());
          ++w.held;
          const bool last = s + 1 == p;
          const uint32_t to = last ? s : s + 1;
          ready.push_back({now + 1, to, own(to, what), last, what, step_of[s]});
        } else if (w.weights < w.inputs) {
          ++w.weights;
        } else {
          continue;
        }
        out.executed[s] += slots;
        w.free_at = now + slots;
        if (w.weights == w.share) w.ended = w.free_at;
      }
    }
    // Stages that have ended their step: all of their workers.
    bool all = true;
    for (uint32_t s = 0; s < p; ++s) {
      int64_t end = 0;
      bool done = true;
      for (const Worker& w : workers[s]) {
        if (!w.live) continue;
        done = done && w.weights == w.share;
        end = std::max(end, w.ended);
      }
      if (done && opens[s] <= now && step_of[s] < steps) {
        ends[step_of[s]] = std::max(ends[step_of[s]], end);
        if (step_of[s]++ == 0) {
          for (const Worker& w : workers[s]) {
            if (w.live) out.bubbles[s] -= 3 * static_cast<int64_t>(w.share);
          }
        }
        opens[s] = INT64_MAX;
        if (job.staggered && step_of[s] < steps) {
          opens[s] = end;
          for (Worker& w : workers[s]) w.weights = w.inputs = 0;
          if (s == 0) enter(end);
        }
      }
      all = all && opens[s] == INT64_MAX;
    }
    if (all && !job.staggered && step_of[0] < steps) {
      for (uint32_t s = 0; s < p; ++s) {
        opens[s] = ends[step_of[0] - 1];
        for (Worker& w : workers[s]) w.weights = w.inputs = 0;
      }
      enter(opens[0]);
    }
  }
  out.first = ends[0];
  out.period = steps > 1 ? ends[steps - 1] - ends[steps - 2] : ends[0];
  for (uint32_t s = 0; s < p; ++s) {
    for (const Worker& w : workers[s]) out.bubbles[s] += w.live ? out.first : 0;
  }
  return out;
}

}  // namespace trainyard
