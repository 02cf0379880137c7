// SPDX-License-Identifier: MIT
// What a Timeline keeps per class, rank, collective and message. For its own sources only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "sim/collective_host.h"
#include "sim/errors.h"
#include "sim/hash128.h"
#include "sim/stretch.h"
#include "sim/timeline.h"

namespace trainyard {

/// What is the same for all ranks of a class whose bindings repeat alike.
struct Timeline::ClassInfo {
  std::vector<char> host;                         // stream -> it is the host's
  std::vector<std::vector<uint32_t>> stream_ops;  // fifo streams: ops in issue order
  std::vector<uint32_t> nth;          // collective: its number within the group; send/recv: within
                                      // (peer, tag, direction)
  std::vector<uint32_t> roots;        // ops without dependencies
  uint32_t background = 0;            // ops that no step ends with
  std::vector<uint32_t> group_slots;  // that its collectives use
  std::vector<Stretch> stretches;
  std::map<std::pair<uint32_t, uint64_t>, Hash128> contents;  // of a stretch, by kind of GPU

  /// The stretch that begins with `op`; null: none does.
  [[nodiscard]] const Stretch* stretch_at(uint32_t op) const {
    const auto it = std::lower_bound(stretches.begin(), stretches.end(), op,
                                     [](const Stretch& s, uint32_t o) { return s.first < o; });
    return it != stretches.end() && it->first == op ? &*it : nullptr;
  }
};

/// An op of computation begins or ends; a collective's member comes, sees that all are here, is
/// through.
enum class Timeline::StretchEvent : uint8_t { begin, end, arrive, all_here, through };

/// What a member of a stretch does, and when, from its begin on.
struct Timeline::StretchStep {
  Time at;
  Time length;      ///< begin: of the op; all_here: of the wait; through: since all were here
  uint32_t op = 0;  ///< first op of the stretch: 0
  StretchEvent what = StretchEvent::begin;
};

/// A stretch as it has been once, and will be whenever it begins in the same state.
struct Timeline::StretchRecord {
  struct Call {
    Time first_arrival, start, finish;
    Time kernel_mean;
    uint32_t last_member = 0;
    const CollectiveAlgorithm* algorithm = nullptr;
    CollectiveHost::Tally tally;
  };
  std::vector<std::vector<StretchStep>> members;  // without the end of the last op
  std::vector<Time> ends;                         // of the last op, by member
  std::vector<Call> calls;
  std::vector<uint32_t> call_of;  // by op
  std::shared_ptr<const HostStretch> host;
};

/// Members have come to the first collective of a stretch, and the host has not been told: when
/// all are here it is known whether it has to be.
struct Timeline::StretchHold {
  uint32_t group = 0, op = 0, site = 0, handle = 0;
  ClassInfo* info = nullptr;
  Time begin;
  Hash128 key;  // content, state and arrivals so far
  struct Arrival {
    uint32_t rank = 0;
    Time at;
  };
  std::vector<Arrival> arrivals;
};

/// One that is written down.
struct Timeline::StretchRecording {
  Hash128 key;
  uint32_t first = 0, last = 0, site = 0, members_left = 0;
  Time begin;
  bool failed = false;
  std::vector<uint32_t> calls;  // of the host
  std::shared_ptr<StretchRecord> record;
};

/// One that is replayed.
struct Timeline::StretchReplay {
  std::shared_ptr<const StretchRecord> record;
  uint32_t first = 0, last = 0;
  uint32_t handle = 0;  // of the host
  bool open = true;     // the host's part, while no member is through
  uint32_t owner = 0;   // of the first call
  Time begin;
};

struct Timeline::RankState {
  const OpGraph* graph = nullptr;
  ClassInfo* info = nullptr;
  // Unfinished dependencies per op, in pages that exist from the first look at one of their ops
  // until all of them have finished: of a long program only the part at work takes memory.
  struct Page {
    std::unique_ptr<uint32_t[]> counts;
    uint32_t left = kPageOps;
  };
  static constexpr uint32_t kPageOps = 256;
  std::vector<Page> pages;
  uint32_t& pending(uint32_t op) {
    Page& page = pages[op / kPageOps];
    if (!page.counts) {
      TRAINYARD_ASSERT(page.left > 0);
      page.counts = std::make_unique<uint32_t[]>(kPageOps);
      const uint32_t first = op / kPageOps * kPageOps;
      const auto last = std::min<size_t>(first + kPageOps, graph->ops.size());
      for (uint32_t i = first; i < last; ++i) page.counts[i - first] = graph->dependency_count(i);
    }
    return page.counts[op % kPageOps];
  }
  void done_with(uint32_t op) {
    Page& page = pages[op / kPageOps];
    if (--page.left == 0) page.counts.reset();
  }
  struct StreamState {
    uint32_t cursor = 0;  // fifo
    bool busy = false;
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  };
  std::vector<StreamState> streams;
  uint32_t left = 0, left_in_front = 0;
  // What runs now, and since when the split below holds.
  int computing = 0, hosting = 0, moving = 0, waiting = 0, storing = 0;
  [[nodiscard]] bool idle() const { return computing + hosting + moving + waiting + storing == 0; }
  std::array<int16_t, kDimensions> moving_of{}, waiting_of{};
  Time since;
  /// With TimelineOptions::paced(): compute ops under way, and how fast.
  struct Paced {
    uint32_t op = 0;
    Time begin;
    Time work;  // left at `from`, in time without company
    Time from;
    Time end;  // at the present pace; events for other times are void
  };
  std::vector<Paced> paced;
  uint64_t pace = 0;  // by how much they are slower, in 1/2^32
  // What moves: collectives by kind, then messages.
  std::array<int16_t, static_cast<size_t>(CollectiveKind::barrier) + 2> moving_as{};
  // A stretch, and which member this rank is there. What a replay has done by now is told when
  // something asks.
  std::shared_ptr<StretchReplay> replay;
  std::shared_ptr<StretchRecording> recording;
  uint32_t member = 0, next_step = 0;
};

struct Timeline::Collective {
  uint32_t group = 0, nth = 0;
  CollectiveRecord record;
  CollectiveKind kind = CollectiveKind::all_reduce;
  int64_t bytes = 0;
  uint32_t first_rank = kNone, first_op = 0;
  const CollectiveAlgorithm* algorithm = nullptr;  // null: nothing moves
  std::unique_ptr<CollectiveRun> run;
  uint32_t call = kNone;        // of the host
  std::vector<uint32_t> op_of;  // member -> op, kNone before arrival
  std::vector<Time> arrival;    // member
  Time kernel_total;            // from arrival to end, over members that are through
  std::vector<char> member_done;
  uint32_t arrived = 0, done = 0;
  uint32_t owner = 0;
  Time delay;  // of a member, from its arrival until the run hears of it
};

struct Timeline::Message {
  uint32_t src = 0, dst = 0;
  uint32_t send_op = kNone, recv_op = kNone;
  uint32_t owner = kNone;  // of its transfer
  Time posted_send, posted_recv, start;
  bool started = false, delivered = false;
  MessageKey key{};
};

}  // namespace trainyard
