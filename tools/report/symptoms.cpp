// SPDX-License-Identifier: MIT
#include "tools/report/symptoms.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tools/report/text.h"

namespace trainyard {
namespace {

using State = OpenCall::Member::State;

std::string field(const std::string& value) {
  const std::string clean = report::valid_utf8(value);
  if (clean.find_first_of(",\"\r\n") == std::string::npos) return clean;
  std::string out = "\"";
  for (const char c : clean) out.append(c == '"' ? 2 : 1, c);
  return out + '"';
}

std::string time(Time t) {
  return t == Time::infinity() ? "" : report::exact_ns(t, true);
}

const char* state_name(State state) {
  switch (state) {
    case State::not_entered:
      return "not-entered";
    case State::entered:
      return "entered";
    case State::through:
      return "through";
    case State::other:
      return "called-other";
  }
  return "";
}

struct Row {
  Time at;
  std::string text;
};

}  // namespace

std::string truth_csv(const Result& result) {
  std::string out = "kind,component,from_ns,until_ns,manifestation,signal,what\n";
  for (const FaultRecord& f : result.faults) {
    out += fmt::format("{},{},{},{},{},{},{}\n", f.kind, field(f.component), time(f.at),
                       time(f.until), f.manifestation, f.signal, field(f.text));
  }
  return out;
}

std::string hang_verdict(const OpenCall& call) {
  const auto any = [&](State state) {
    return std::any_of(call.members.begin(), call.members.end(),
                       [&](const OpenCall::Member& m) { return m.state == state; });
  };
  if (any(State::not_entered)) return "not-entered";
  if (any(State::other)) return "inconsistent";
  return "hardware-fault";
}

std::string symptoms_csv(const Result& result) {
  std::vector<Row> rows;
  const auto name = [&](uint32_t rank) {
    return rank < result.endpoint_names.size() ? result.endpoint_names[rank] : "";
  };
  for (const ProcessExit& e : result.exits) {
    rows.push_back(
        {e.at, fmt::format("{},process-gone,{},{},,,,,,,", time(e.at), e.rank, name(e.rank))});
  }
  std::set<uint32_t> waiting;
  for (const OpenCall& call : result.open_calls) {
    for (const auto& m : call.members) {
      if (m.state == State::entered || m.state == State::other) waiting.insert(m.rank);
    }
  }
  for (const OpenCall& call : result.open_calls) {
    const std::string verdict = hang_verdict(call);
    for (const auto& m : call.members) {
      const bool waits = m.state == State::entered || m.state == State::other;
      const bool late = waits && result.collective_timeout != Time::infinity() &&
                        m.at + result.collective_timeout <= result.end;
      const Time at = late ? m.at + result.collective_timeout : result.end;
      std::string state = state_name(m.state);
      if (m.state == State::not_entered && waiting.count(m.rank) != 0) state += "-waits-elsewhere";
      const bool came = m.state != State::not_entered;
      rows.push_back({at, fmt::format("{},{},{},{},{},{},{},{},{},{},{}", time(at),
                                      late    ? "collective-timeout"
                                      : waits ? "collective-open"
                                              : "collective-state",
                                      m.rank, name(m.rank), field(call.group), call.nth, state,
                                      came ? time(m.at) : "", came ? collective_name(m.kind) : "",
                                      came ? std::to_string(m.bytes) : "", verdict)});
    }
  }
  for (const NicRecord& n : result.seen.nics) {
    const auto counter = [&](const char* what, uint64_t value) {
      if (value == 0) return;
      rows.push_back({result.end, fmt::format("{},{},,{},,,{},,,,", time(result.end), what,
                                              field(result.links.at(n.link).from), value)});
    };
    counter("nic-link-downs", n.link_downs);
    counter("nic-ack-timeouts", n.ack_timeouts);
    counter("nic-out-of-sequence", n.out_of_sequence);
  }
  if (rows.empty()) return {};
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.at < b.at; });
  std::string out = "t_ns,symptom,rank,node,group,call,state,entered_ns,calls,bytes,hang\n";
  for (const Row& r : rows) out += r.text + "\n";
  return out;
}

std::string visits_csv(const Result& result) {
  if (result.visits.empty()) return {};
  std::string out = "collective,rank,entered_ns,all_here_ns,left_ns\n";
  for (const CollectiveVisit& v : result.visits) {
    out += fmt::format("{},{},{},{},{}\n", v.collective, v.rank, time(v.entered), time(v.all_here),
                       time(v.left));
  }
  return out;
}

std::optional<double> slow_p(const Result& run, const Result& healthy) {
  struct Times {
    Time least = Time::infinity(), most;
  };
  // The n-th collective of a group there is the n-th here; records number them as they begin.
  const auto times = [](const Result& r) {
    std::map<uint32_t, Times> of;
    for (const CollectiveVisit& v : r.visits) {
      Times& t = of[v.collective];
      t.least = std::min(t.least, v.left - v.entered);
      t.most = std::max(t.most, v.left - v.entered);
    }
    std::vector<const CollectiveRecord*> records;
    for (const CollectiveRecord& c : r.collectives) records.push_back(&c);
    std::sort(records.begin(), records.end(),
              [](const auto* a, const auto* b) { return a->index < b->index; });
    std::map<std::string, uint32_t> count;
    std::map<std::pair<std::string, uint32_t>, Times> out;
    for (const CollectiveRecord* c : records) {
      const auto it = of.find(c->index);
      const uint32_t nth = count[c->group]++;
      if (it != of.end()) out[{c->group, nth}] = it->second;
    }
    return out;
  };
  const auto here = times(run);
  const auto base = times(healthy);
  double spread = 0;
  double over = 0;
  for (const auto& [key, t] : here) {
    const auto it = base.find(key);
    if (it == base.end()) continue;
    const Time least = it->second.least;
    if (t.most.seconds() < 1.01 * least.seconds()) continue;
    spread += (t.most - t.least).seconds();
    over += (t.most - least).seconds();
  }
  if (over <= 0) return std::nullopt;
  return spread / over;
}

}  // namespace trainyard
