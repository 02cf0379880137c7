// SPDX-License-Identifier: MIT
#include "tools/report/symptoms.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tools/report/csv_writer.h"

namespace trainyard {
namespace {

using State = OpenCall::Member::State;

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

/// One thing that was seen; of what does not apply nothing is written.
struct Row {
  Time at;
  std::string symptom;
  std::optional<uint32_t> rank;
  std::string node;
  std::string group;
  std::string call, state;
  std::optional<Time> entered;
  std::string calls, bytes, hang;
};

}  // namespace

std::string truth_csv(const Result& result) {
  Csv csv("kind,component,from_ns,until_ns,manifestation,signal,what");
  for (const FaultRecord& f : result.faults) {
    csv.text(f.kind).text(f.component).time(f.at).time_if(f.until != Time::infinity(), f.until);
    csv.text(f.manifestation).text(f.signal).text(f.text).end_row();
  }
  return csv.take();
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
    rows.push_back({e.at, "process-gone", e.rank, name(e.rank), {}, {}, {}, {}, {}, {}, {}});
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
      Row row{
          at,         late ? "collective-timeout" : waits ? "collective-open" : "collective-state",
          m.rank,     name(m.rank),
          call.group, std::to_string(call.nth),
          state,      {},
          {},         {},
          verdict};
      if (came) {
        row.entered = m.at;
        row.calls = collective_name(m.kind);
        row.bytes = std::to_string(m.bytes);
      }
      rows.push_back(std::move(row));
    }
  }
  for (const NicRecord& n : result.seen.nics) {
    const auto counter = [&](const char* what, uint64_t value) {
      if (value == 0) return;
      rows.push_back({result.end,
                      what,
                      {},
                      result.links.at(n.link).from,
                      {},
                      {},
                      std::to_string(value),
                      {},
                      {},
                      {},
                      {}});
    };
    counter("nic-link-downs", n.link_downs);
    counter("nic-ack-timeouts", n.ack_timeouts);
    counter("nic-out-of-sequence", n.out_of_sequence);
  }
  if (rows.empty()) return {};
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.at < b.at; });
  Csv csv("t_ns,symptom,rank,node,group,call,state,entered_ns,calls,bytes,hang");
  for (const Row& r : rows) {
    csv.time(r.at).text(r.symptom).number_if(r.rank.has_value(), r.rank.value_or(0));
    csv.text(r.node).text(r.group).text(r.call).text(r.state);
    csv.time_if(r.entered.has_value(), r.entered.value_or(Time()));
    csv.text(r.calls).text(r.bytes).text(r.hang).end_row();
  }
  return csv.take();
}

std::string visits_csv(const Result& result) {
  if (result.visits.empty()) return {};
  Csv csv("collective,rank,entered_ns,all_here_ns,left_ns");
  for (const CollectiveVisit& v : result.visits) {
    csv.number(v.collective).number(v.rank).time(v.entered).time(v.all_here).time(v.left);
    csv.end_row();
  }
  return csv.take();
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
