// SPDX-License-Identifier: MIT
// Makes a case that shows something smaller while it still shows it.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/errors.h"
#include "tests/memo/oracle_case.h"

namespace trainyard::test {

/// Whether `test` says true; also when it aborts or takes longer than `seconds`. Run in a process
/// of its own.
inline bool shows_apart(const std::function<bool()>& test, unsigned seconds = 60) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(seconds);
    bool shows = true;
    try {
      shows = test();
    } catch (const UserError&) {
      shows = false;  // that is no case
    } catch (const std::exception&) {
      shows = true;
    }
    _exit(shows ? 1 : 0);
  }
  if (child < 0) return test();
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

/// Cases that are a little simpler than `c`, the boldest first.
inline std::vector<OracleCase> simpler(const OracleCase& c) {
  std::vector<OracleCase> out;
  const auto variant = [&](const auto& change) {
    OracleCase v = c;
    change(v);
    if (!(v == c)) out.push_back(std::move(v));
  };
  const auto without = [&](auto OracleCase::*list) {
    const size_t n = (c.*list).size();
    for (size_t length = std::max<size_t>(1, n / 2); n > 0; length /= 2) {
      for (size_t from = 0; from < n; from += length) {
        variant([&](OracleCase& v) {
          auto& items = v.*list;
          const auto begin = items.begin() + static_cast<std::ptrdiff_t>(from);
          items.erase(begin, begin + static_cast<std::ptrdiff_t>(std::min(length, n - from)));
        });
      }
      if (length == 1) break;
    }
  };
  without(&OracleCase::steps);
  without(&OracleCase::faults);
  without(&OracleCase::flows);
  // Hosts that go take what is about them along; the others keep their place.
  const auto shrink_hosts = [&](uint32_t servers, uint32_t gpus) {
    variant([&](OracleCase& v) {
      v.servers = servers;
      v.gpus = gpus;
      v.leaf.clear();
      v.delay.clear();
      std::vector<uint32_t> moved(c.hosts(), OracleCase::kNobody);
      for (uint32_t s = 0; s < servers; ++s) {
        for (uint32_t g = 0; g < gpus; ++g) {
          moved[s * c.gpus + g] = s * gpus + g;
          v.leaf.push_back(c.leaf[s * c.gpus + g]);
          v.delay.push_back(c.delay[s * c.gpus + g]);
        }
      }
      for (auto& s : v.steps) {
        if (s.late_rank < c.hosts()) s.late_rank = moved[s.late_rank];
      }
      for (auto& f : v.faults) {
        if (f.where != 't') f.a = moved[f.a];
      }
      std::erase_if(v.faults, [](const OracleCase::Fault& f) {
        return f.where != 't' && f.a == OracleCase::kNobody;
      });
      for (auto& f : v.flows) {
        f.src = moved[f.src];
        f.dst = moved[f.dst];
      }
      std::erase_if(v.flows, [](const OracleCase::Flow& f) {
        return f.src == OracleCase::kNobody || f.dst == OracleCase::kNobody;
      });
      if (gpus == 1) v.scale_up = false;
      std::erase_if(v.faults,
                    [&](const OracleCase::Fault& f) { return f.where == 'u' && !v.scale_up; });
    });
  };
  if (c.servers > 2) shrink_hosts(c.servers - 1, c.gpus);
  if (c.gpus > 1) shrink_hosts(c.servers, c.gpus - 1);
  if (c.spines > 1) {
    variant([&](OracleCase& v) {
      --v.spines;
      std::erase_if(v.faults,
                    [&](const OracleCase::Fault& f) { return f.where == 't' && f.b >= v.spines; });
    });
  }
  if (c.leaves > 1) {
    variant([&](OracleCase& v) {
      --v.leaves;
      if (v.leaves == 1) v.spines = 0;
      for (uint32_t& l : v.leaf) l = std::min(l, v.leaves - 1);
      std::erase_if(v.faults, [&](const OracleCase::Fault& f) {
        return f.where == 't' && (v.spines == 0 || f.a >= v.leaves);
      });
    });
  }
  if (c.nic_ports > 1) {
    variant([&](OracleCase& v) {
      --v.nic_ports;
      std::erase_if(v.faults, [&](const OracleCase::Fault& f) {
        return f.where == 'n' && f.b >= v.nic_ports;
      });
    });
  }
  if (c.scale_up) {
    variant([&](OracleCase& v) {
      v.scale_up = false;
      std::erase_if(v.faults, [](const OracleCase::Fault& f) { return f.where == 'u'; });
    });
  }
  variant([](OracleCase& v) { v.credits = false; });
  variant([](OracleCase& v) {
    v.credits = false;
    for (auto& f : v.flows) f.traffic_class = 0;
    std::erase_if(v.settings, [](const auto& setting) {
      return setting.first == "classes" || setting.first == "dwrr" ||
             setting.first.rfind("weight", 0) == 0;
    });
  });
  without(&OracleCase::settings);
  variant([](OracleCase& v) { std::fill(v.delay.begin(), v.delay.end(), 200); });
  variant([](OracleCase& v) { v.direct = false; });
  variant([](OracleCase& v) { v.by_kind = false; });
  for (size_t i = 0; i < c.flows.size(); ++i) {
    const auto flow = [&](const auto& change) {
      variant([&](OracleCase& v) { change(v.flows[i]); });
    };
    flow([](OracleCase::Flow& f) { f.times = std::max(1U, f.times / 2); });
    flow([](OracleCase::Flow& f) { f.times = std::max(1U, f.times - 1); });
    flow([](OracleCase::Flow& f) { f.bytes = 1000; });
    flow([](OracleCase::Flow& f) { f.traffic_class = 0; });
    flow([](OracleCase::Flow& f) { f.start_ps = 0; });
  }
  for (size_t i = 0; i < c.steps.size(); ++i) {
    const auto step = [&](const auto& change) {
      variant([&](OracleCase& v) { change(v.steps[i]); });
    };
    step([](OracleCase::Step& s) { s.layers /= 2; });
    step([](OracleCase::Step& s) { s.layers = std::max(1U, s.layers) - 1; });
    step([](OracleCase::Step& s) { s.bytes = 1000; });
    step([](OracleCase::Step& s) { s.bytes = std::max<int64_t>(1000, s.bytes / 2000 * 1000); });
    step([](OracleCase::Step& s) { s.bytes = std::max<int64_t>(1000, s.bytes - 1000); });
    step([](OracleCase::Step& s) { s.compute_ns = 0; });
    step([](OracleCase::Step& s) { s.compute_ns /= 2; });
    step([](OracleCase::Step& s) { s.late_rank = OracleCase::kNobody; });
    step([](OracleCase::Step& s) { s.stream = 0; });
    step([](OracleCase::Step& s) { s.collective = s.kind == 3 ? 0 : 1; });
  }
  return out;
}

struct Shrunk {
  OracleCase smallest;
  size_t tried = 0;
};

/// The smallest case found that still `shows`; `c` shows it. At most `most` looks.
inline Shrunk shrink(OracleCase c, const std::function<bool(const OracleCase&)>& shows,
                     size_t most = 600) {
  Shrunk s;
  std::set<std::string> seen;  // that did not show it
  for (bool again = true; again && s.tried < most;) {
    again = false;
    for (OracleCase& candidate : simpler(c)) {
      if (s.tried >= most) break;
      if (!seen.insert(print(candidate)).second) continue;
      ++s.tried;
      try {
        if (!shows(candidate)) continue;
      } catch (const UserError&) {
        continue;  // kmin above kmax, ...
      }
      c = std::move(candidate);
      again = true;
      break;
    }
  }
  s.smallest = std::move(c);
  return s;
}

}  // namespace trainyard::test
