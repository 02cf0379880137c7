// SPDX-License-Identifier: MIT
// What ranks saw of collectives: those that were open when a run ended, as the flight recorder of a
// communication library has them, and those that they got through.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/op_graph.h"
#include "sim/units.h"

namespace trainyard {

struct OpenCall {
  struct Member {
    enum class State : uint8_t {
      not_entered,
      entered,  ///< and not through
      through,  ///< its own part is done
      other     ///< it called something else as this number of the group
    };
    uint32_t rank = 0;
    State state = State::not_entered;
    Time at;         ///< when it came; not_entered: nothing
    std::string op;  ///< its name there
    CollectiveKind kind = CollectiveKind::all_reduce;
    int64_t bytes = 0;
  };
  std::string group;
  uint32_t nth = 0;  ///< number of the collective in its group, from 0
  std::vector<Member> members;
};

/// A rank in a collective that it got through, as its profiler has it: the launch of the kernel and
/// its end.
struct CollectiveVisit {
  uint32_t collective = 0;  ///< CollectiveRecord::index
  uint32_t rank = 0;
  Time entered;
  Time all_here;  ///< when the last member came; a root may be through before
  Time left;
};

/// What the launcher of a rank sees.
struct ProcessExit {
  uint32_t rank = 0;
  Time at;
};

}  // namespace trainyard
