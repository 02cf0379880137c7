// SPDX-License-Identifier: MIT
// Cost of sim/event_queue.h beside a binary heap, in the hold model: pop the next event, push one
// a random time later. Numbers go into the cost table of the header.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <queue>
#include <string>
#include <vector>

#include "sim/dice.h"
#include "sim/event_queue.h"

namespace {

using trainyard::Event;
using trainyard::EventQueue;

/// std::priority_queue with the same order.
class Heap {
 public:
  void push(int64_t time, uint32_t key, uint32_t arg) { q_.push({time, key, arg}); }
  Event pop() {
    const Event e = q_.top();
    q_.pop();
    return e;
  }

 private:
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      if (a.time_ps != b.time_ps) return a.time_ps > b.time_ps;
      if (a.key != b.key) return a.key > b.key;
      return a.arg > b.arg;
    }
  };
  std::priority_queue<Event, std::vector<Event>, Later> q_;
};

/// Delays as in a fabric: mostly one packet time or one cable, sometimes a timer.
int64_t delay(uint64_t draw) {
  if (draw % 64 == 0) return 300'000'000;
  return draw % 2 == 0 ? 83'840 : 1'083'840;
}

template <class Queue>
void hold(benchmark::State& state) {
  Queue q;
  const auto pending = static_cast<uint32_t>(state.range(0));
  for (uint32_t i = 0; i < pending; ++i) {
    q.push(static_cast<int64_t>(trainyard::dice(1, 1, i, 0) % 1'000'000), i, 0);
  }
  uint64_t n = 0;
  for (auto _ : state) {
    const Event e = q.pop();
    q.push(e.time_ps + delay(trainyard::dice(1, 2, n++, 0)), e.key, 0);
    benchmark::DoNotOptimize(e.key);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()));
}

BENCHMARK(hold<EventQueue>)->Name("calendar")->Arg(100)->Arg(1000)->Arg(10000)->Arg(100000);
BENCHMARK(hold<Heap>)->Name("binary_heap")->Arg(100)->Arg(1000)->Arg(10000)->Arg(100000);

/// The usual table, and the rates for the JSON line.
class Reporter : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const auto& run : runs) {
      std::string name = run.benchmark_name();
      for (char& c : name) c = c == '/' ? '_' : c;
      json += (json.empty() ? "{\"" : ",\"") + name + "_hold_per_s\":" +
              std::to_string(static_cast<int64_t>(run.counters.at("items_per_second").value));
    }
  }
  std::string json;
};

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  Reporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  std::printf("%s}\n", reporter.json.c_str());
  return 0;
}
