// SPDX-License-Identifier: MIT
#include "tools/scenario/chaos.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "network/topology_select.h"
#include "tools/report/csv_writer.h"
#include "tools/report/text.h"

namespace trainyard {
namespace {

using Outcome = ChaosRow::Outcome;

/// Selectors of all parts that a kind of fault can hit: of cables those between switches.
std::vector<std::string> parts_of(FaultKind::Parts kind, const Topology& t, uint32_t ranks) {
  std::vector<std::string> parts;
  switch (kind) {
    case FaultKind::Parts::gpus:
      for (uint32_t r = 0; r < ranks; ++r) parts.push_back(t.nodes()[t.hosts()[r]].name);
      break;
    case FaultKind::Parts::nics:
      for (uint32_t r = 0; r < ranks; ++r) {
        if (t.nic_links(t.hosts()[r]).empty()) continue;
        parts.push_back(nic_name(t.nodes()[t.hosts()[r]].name));
      }
      break;
    case FaultKind::Parts::switches:
      for (uint32_t n = 0; n < t.nodes().size(); ++n) {
        if (t.kind(n) != NodeKind::host) parts.push_back(t.nodes()[n].name);
      }
      break;
    case FaultKind::Parts::cables:
      for (uint32_t link = 0; link < t.links().size(); ++link) {
        const std::string tier = t.tier(2 * link);
        if (tier != "scale-up" && tier.find("host") == std::string::npos) {
          parts.push_back(port_name(t, link));
        }
      }
      break;
  }
  return parts;
}

ModelChoice fault(const std::string& kind, const std::string& where, Time at,
                  const ChaosOptions& options) {
  std::vector<std::pair<std::string, std::string>> values = {
      {"where", where}, {"at", std::to_string(at.ps()) + "ps"}};
  if (!options.duration.empty()) values.emplace_back("for", options.duration);
  if (!options.abort_after.empty()) values.emplace_back("abort_after", options.abort_after);
  const bool reacts = !options.reaction.empty() &&
                      Params(Registry::instance().get("fault", kind).params).has_spec("reaction");
  if (reacts) values.emplace_back("reaction", options.reaction);
  return make_fault(kind, values, {"chaos", 0});
}

Time end_of(const Result& r) {
  return r.step_time > Time() ? r.step_time : r.end;
}

/// What must hold whatever broke; empty: it does.
std::string broken_promise(const Result& r) {
  if (!r.complete) return r.incomplete_reason.empty() ? "ended early and does not say why" : "";
  const auto left = std::count_if(r.flows.begin(), r.flows.end(), [](const TransferRecord& f) {
    return f.bytes > 0 && f.delivered <= f.start && f.hops > 0;
  });
  if (left > 0) return fmt::format("says that it is complete with {} flows not delivered", left);
  if (r.end <= Time()) return "says that it is complete and took no time";
  return {};
}

ChaosRow row_of(const ModelChoice& f, Time at, const Result& r, Time healthy) {
  ChaosRow row;
  row.kind = f.kind;
  row.where = f.params.text("where");
  row.at = at;
  row.end = end_of(r);
  row.reroutes = r.totals.reroutes;
  row.retransmissions = r.totals.retransmitted;
  row.drops = r.totals.drops;
  row.reason = broken_promise(r);
  if (!row.reason.empty()) {
    row.outcome = Outcome::violation;
  } else if (!r.complete) {
    row.outcome = Outcome::aborted;
    row.reason = r.incomplete_reason;
  } else {
    row.outcome = row.end == healthy  ? Outcome::unaffected
                  : row.end > healthy ? Outcome::slower
                                      : Outcome::faster;
  }
  return row;
}

/// Runs it; an error that no run may end with comes back as the reason of a violation. Bad input
/// is for the caller.
Result run_guarded(const Scenario& s, std::string& wrong) {
  try {
    return run_scenario(s);
  } catch (const SimulationError& e) {
    wrong = std::string("escaped: ") + e.what();
  }
  return {};
}

/// The first words of a reason, without names and numbers of this run.
std::string sort_of(const std::string& reason) {
  std::string out;
  for (const char c : reason.substr(0, reason.find_first_of(":;("))) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) {
      out += c;
    } else if (out.empty() || out.back() != '#') {
      out += '#';
    }
  }
  return out;
}

}  // namespace

const char* outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::unaffected:
      return "unaffected";
    case Outcome::slower:
      return "slower";
    case Outcome::faster:
      return "faster";
    case Outcome::aborted:
      return "aborted";
    case Outcome::violation:
      return "VIOLATION";
  }
  return "";
}

size_t Chaos::count(Outcome outcome) const {
  return static_cast<size_t>(std::count_if(
      rows.begin(), rows.end(), [&](const ChaosRow& r) { return r.outcome == outcome; }));
}

std::vector<Time> structural_events(const Result& healthy) {
  std::set<Time> times;
  for (const CollectiveRecord& c : healthy.collectives) {
    times.insert({c.first_arrival, c.start, c.finish});
  }
  for (const TransferRecord& f : healthy.flows) times.insert({f.start, f.delivered});
  times.erase(Time());
  const Time end = end_of(healthy);
  times.erase(times.lower_bound(end), times.end());
  return {times.begin(), times.end()};
}

Chaos run_chaos(const Scenario& given, const ChaosOptions& options,
                const std::function<bool(size_t, size_t)>& tell) {
  Scenario s = given;
  s.interference = false;
  Chaos out;
  out.name = s.name;
  const Result healthy = run_scenario(s);
  if (!healthy.complete) throw SimulationError(healthy.incomplete_reason);
  out.healthy = end_of(healthy);

  // The fast path keeps no list of the messages of collectives.
  Scenario listed = s;
  listed.fast_path = "none";
  std::vector<Time> times =
      structural_events(s.fast_path == "none" ? healthy : run_scenario(listed));
  if (times.empty()) throw UserError("nothing begins or ends within the run of " + s.file);
  if (options.events > 0 && times.size() > options.events) {
    std::vector<Time> some;
    for (size_t i = 0; i < options.events; ++i) {
      some.push_back(times[(2 * i + 1) * times.size() / (2 * options.events)]);
    }
    times = std::move(some);
  }
  out.instants = times.size();

  const uint32_t ranks = s.has_workload() ? static_cast<uint32_t>(healthy.rank_times.size()) : 0;
  const Topology topology = build_topology(s, ranks);
  const bool ops = !healthy.rank_times.empty();
  std::vector<std::pair<std::string, std::string>> parts;
  const std::vector<std::string> usual = {"gpu-stop", "nic-down", "link-down", "switch-down"};
  for (const std::string& kind : options.kinds.empty() ? usual : options.kinds) {
    const FaultKind::Parts which = fault_kind(kind).parts;
    if (which == FaultKind::Parts::gpus && !ops) continue;
    for (const std::string& part : parts_of(which, topology, healthy.ranks)) {
      const bool asked =
          options.where.empty() ||
          std::any_of(options.where.begin(), options.where.end(),
                      [&](const std::string& p) { return matches_pattern(p, part); });
      if (asked) parts.emplace_back(kind, part);
    }
  }
  if (parts.empty()) {
    throw UserError("nothing in this scenario is what --kind and --where ask for",
                    "parts are node0.gpu0, node0.nic0, leaf0:port4, leaf0, node0.nvswitch");
  }
  out.parts = parts.size();
  const size_t all = parts.size() * times.size();
  for (const auto& [kind, part] : parts) {
    for (const Time at : times) {
      Scenario broken = s;
      broken.faults.push_back(fault(kind, part, at, options));
      std::string wrong;
      const Result r = run_guarded(broken, wrong);
      ChaosRow row = row_of(broken.faults.back(), at, r, out.healthy);
      if (wrong.empty() && options.oracle) {
        broken.domains = false;
        const Result whole = run_guarded(broken, wrong);
        if (wrong.empty() && (whole.fingerprint != r.fingerprint || whole.end != r.end ||
                              whole.complete != r.complete)) {
          wrong = fmt::format("ends at {}, without contention domains at {}", print_time(r.end, 9),
                              print_time(whole.end, 9));
        }
      }
      if (!wrong.empty()) {
        row.outcome = Outcome::violation;
        row.reason = wrong;
      }
      out.rows.push_back(std::move(row));
      if (tell && !tell(out.rows.size(), all)) return out;
    }
  }
  return out;
}

std::string chaos_text(const Chaos& c) {
  std::string out = report::printable(c.name) + "\n\n";
  out += fmt::format("  healthy                  {}\n", print_time(c.healthy, 6));
  out += fmt::format("  runs                     {}: {} x {}\n", c.rows.size(),
                     report::counted(c.parts, "part", "parts"),
                     report::counted(c.instants, "structural event", "structural events"));
  struct Sum {
    size_t runs = 0;
    std::map<Outcome, size_t> outcomes;
    Time worst;
  };
  std::map<std::string, Sum> kinds;
  std::map<std::string, std::pair<size_t, std::string>> reasons;
  for (const ChaosRow& r : c.rows) {
    Sum& k = kinds[r.kind];
    ++k.runs;
    ++k.outcomes[r.outcome];
    if (r.outcome == Outcome::slower) k.worst = std::max(k.worst, r.end);
    if (r.reason.empty()) continue;
    auto& [n, example] = reasons[std::string(outcome_name(r.outcome)) + ", " + sort_of(r.reason)];
    if (n++ == 0)
      example = r.kind + " of " + r.where + " at " + print_time(r.at, 6) + ": " + r.reason;
  }
  out += fmt::format("\n  {:<14} {:>7} {:>11} {:>8} {:>8} {:>8} {:>10} {:>14}\n", "", "runs",
                     "unaffected", "slower", "faster", "aborted", "VIOLATION", "worst slowdown");
  for (auto& [kind, k] : kinds) {
    out += fmt::format(
        "  {:<14} {:>7} {:>11} {:>8} {:>8} {:>8} {:>10} {:>14}\n", kind, k.runs,
        k.outcomes[Outcome::unaffected], k.outcomes[Outcome::slower], k.outcomes[Outcome::faster],
        k.outcomes[Outcome::aborted], k.outcomes[Outcome::violation],
        k.worst > Time() ? fmt::format("{:.4f}", k.worst.seconds() / c.healthy.seconds()) : "-");
  }
  if (!reasons.empty()) out += "\nWhy runs ended, with the first of each sort\n";
  for (const auto& [sort, told] : reasons) {
    out += fmt::format("  {:>6} x {}\n           {}\n", told.first, report::printable(sort),
                       report::printable(told.second));
  }
  return out;
}

std::string chaos_csv(const Chaos& c) {
  Csv csv(
      "kind,where,at_ns,outcome,end_ns,slowdown_ratio,reroutes_count,retransmissions_count,"
      "drops_count,reason");
  for (const ChaosRow& r : c.rows) {
    csv.text(r.kind).text(r.where).time(r.at).text(outcome_name(r.outcome)).time(r.end);
    csv.real(r.end.seconds() / c.healthy.seconds()).number(r.reroutes).number(r.retransmissions);
    csv.number(r.drops).text(r.reason).end_row();
  }
  return csv.take();
}

}  // namespace trainyard
