// SPDX-License-Identifier: MIT
#include "tools/scenario/whatif.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "network/topology_select.h"
#include "tools/report/symptoms.h"
#include "tools/report/text.h"
#include "tools/scenario/op_meter.h"

namespace trainyard {
namespace {

/// The scenario without what slows ranks for a time.
Scenario without_slow_faults(const Scenario& s) {
  Scenario out = s;
  auto& faults = out.faults;
  faults.erase(std::remove_if(faults.begin(), faults.end(),
                              [](const ModelChoice& f) {
                                return f.kind == "gpu-slow" || f.kind == "gpu-throttle" ||
                                       f.kind == "launch-delay" || f.kind == "gc-pause";
                              }),
               faults.end());
  return out;
}

Result finished(const Scenario& s, const RunHooks& hooks, const HealthyOps& healthy) {
  RunHooks h = hooks;
  h.healthy = &healthy;
  Result r = run_scenario(s, h);
  if (!r.complete) throw SimulationError(r.incomplete_reason);
  return r;
}

}  // namespace

double WhatIf::share(const Row& row) const {
  const double lost = (step - ideal).seconds();
  return lost > 0 ? (step - row.step).seconds() / lost : 0;
}

WhatIf what_if(const Scenario& given, const WhatIfOptions& options, const RunHooks& hooks) {
  Scenario s = given;
  s.interference = false;
  const bool slow_faults = without_slow_faults(s).faults.size() != s.faults.size();
  if (s.slow.empty() && s.jitter.kind == "none" && !slow_faults) {
    throw UserError(s.compute.pos, "nothing makes a GPU slower than others in this scenario",
                    "give compute.slow or compute.jitter, or a fault gpu-slow, gpu-throttle, "
                    "launch-delay or gc-pause");
  }
  WhatIf out;
  out.name = s.name;
  const Result actual = finished(s, hooks, {});
  HealthyOps all;
  all.all = true;
  const Result ideal = finished(without_slow_faults(s), hooks, all);
  out.step = actual.step_time;
  out.ideal = ideal.step_time;
  out.p = slow_p(actual, ideal);

  const size_t ranks = actual.rank_times.size();
  const auto named = [&](uint32_t r) {
    return "rank " + std::to_string(r) + " (" + actual.endpoint_names.at(r) + ")";
  };
  if (!options.where.empty()) {
    const Topology topology = build_topology(s, static_cast<uint32_t>(ranks));
    HealthyOps some;
    some.ranks.assign(ranks, 0);
    std::string what;
    for (const std::string& pattern : options.where) {
      const SourcePos pos{"--healthy", 0};
      bool any = false;
      for (const uint32_t node : select_nodes(topology, pattern, pos)) {
        for (uint32_t r = 0; r < ranks; ++r) {
          if (topology.hosts()[r] != node) continue;
          some.ranks[r] = 1;
          any = true;
        }
      }
      if (!any) {
        throw UserError("'" + pattern + "' names no GPU of the job",
                        "write rank17, node3 or node3.gpu5");
      }
      what += (what.empty() ? "" : ", ") + pattern;
    }
    out.asked.push_back({what, finished(s, hooks, some).step_time});
  }

  std::vector<uint32_t> order(ranks);
  std::iota(order.begin(), order.end(), 0U);
  const auto excess = [&](uint32_t r) {
    return actual.rank_times[r].compute - ideal.rank_times[r].compute;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return excess(a) > excess(b); });
  for (const uint32_t r : order) out.stragglers += excess(r) > Time() ? 1 : 0;
  for (const uint32_t r : order) {
    if (out.ranks.size() == options.top || excess(r) <= Time()) break;
    HealthyOps one;
    one.ranks.assign(ranks, 0);
    one.ranks[r] = 1;
    out.ranks.push_back({named(r), finished(s, hooks, one).step_time});
  }

  std::map<std::string, Time> slower;
  const auto add = [&](const Result& r, int sign) {
    for (const DurationRow& d : r.durations) {
      if (d.rank < 0) slower[d.kernel] += Time::ps(sign * d.total.ps());
    }
  };
  add(actual, 1);
  add(ideal, -1);
  std::vector<std::pair<Time, std::string>> kernels;
  for (const auto& [kernel, time] : slower) kernels.emplace_back(time, kernel);
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [time, kernel] : kernels) {
    if (out.kernels.size() == options.top || time <= Time()) break;
    HealthyOps one;
    one.kernel = kernel;
    const Time step = finished(s, hooks, one).step_time;
    if (step != out.step) out.kernels.push_back({kernel, step});  // else it only waits longer
  }
  const auto by_gain = [](const WhatIf::Row& a, const WhatIf::Row& b) { return a.step < b.step; };
  std::stable_sort(out.ranks.begin(), out.ranks.end(), by_gain);
  std::stable_sort(out.kernels.begin(), out.kernels.end(), by_gain);
  return out;
}

std::string whatif_text(const WhatIf& w) {
  std::string out = report::printable(w.name) + "\n\n";
  out += fmt::format("  step time                {}\n", print_time(w.step, 6));
  out += fmt::format("  with all GPUs healthy    {}\n", print_time(w.ideal, 6));
  out += fmt::format("  S = T / T_ideal          {:.4f}, {} % of the GPU time is wasted\n",
                     w.slowdown(), report::percent(1 - 1 / w.slowdown()));
  if (w.p) {
    out +=
        fmt::format("  P (C: F2.12)             {:.2f}, near 1: compute, near 0: network\n", *w.p);
  }
  out += fmt::format("  slower than healthy      {} \n",
                     report::counted(w.stragglers, "rank", "ranks"));
  const auto table = [&](const char* title, const std::vector<WhatIf::Row>& rows) {
    if (rows.empty()) return;
    out += fmt::format("\n{}\n  {:40} {:>14} {:>9} {:>18}\n", title, "", "step time", "S",
                       "of the loss gone");
    for (const WhatIf::Row& row : rows) {
      const std::string what = report::shortened(report::printable(row.what), 40, "...");
      out += "  " + what + std::string(40 - report::columns(what), ' ') +
             fmt::format(" {:>14} {:>9.4f} {:>17.1f} %\n", print_time(row.step, 6),
                         row.step.seconds() / w.ideal.seconds(), 100 * w.share(row));
    }
  };
  table("Healthy as asked", w.asked);
  table("One rank healthy", w.ranks);
  table("One kernel healthy on all ranks", w.kernels);
  out +=
      "\nShares need not sum to 100 %: where two ranks are slow, healing one leaves the other.\n";
  return out;
}

std::string whatif_json(const WhatIf& w) {
  using Json = nlohmann::ordered_json;
  const auto list = [&](const std::vector<WhatIf::Row>& rows) {
    Json out = Json::array();
    for (const WhatIf::Row& row : rows) {
      out.push_back({{"what", row.what},
                     {"step_time_s", row.step.seconds()},
                     {"slowdown_ratio", row.step.seconds() / w.ideal.seconds()},
                     {"share_of_loss_ratio", w.share(row)}});
    }
    return out;
  };
  const Json doc = {{"schema_version", 1},
                    {"scenario", w.name},
                    {"step_time_s", w.step.seconds()},
                    {"ideal_step_time_s", w.ideal.seconds()},
                    {"slowdown_ratio", w.slowdown()},
                    {"wasted_ratio", 1 - 1 / w.slowdown()},
                    {"p_ratio", w.p ? Json(*w.p) : Json()},
                    {"slower_ranks_count", w.stragglers},
                    {"asked", list(w.asked)},
                    {"ranks", list(w.ranks)},
                    {"kernels", list(w.kernels)}};
  return doc.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace trainyard
