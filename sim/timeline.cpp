// SPDX-License-Identifier: MIT
#include "sim/timeline.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "sim/dice.h"
#include "sim/errors.h"
#include "sim/timeline_state.h"

namespace trainyard {
namespace {

// Events whose key is no rank.
constexpr uint32_t kPartBegin = 0xfffffffcU;        // arg: index into Job::parts
constexpr uint32_t kEnter = 0xfffffffdU;            // arg: index into entering_
constexpr uint32_t kDelayedBegin = 0xfffffffeU;     // arg: index into delayed_
constexpr uint32_t kDelayedDelivery = 0xffffffffU;  // arg: transfer
/// Longest stretch that the fabric runs without a look at progress and interrupts: shorter for
/// larger jobs, whose microseconds cost more.
Time slice_of(size_t ranks) {
  return Time::us(std::max<int64_t>(1, 12'800 / static_cast<int64_t>(std::max<size_t>(1, ranks))));
}

}  // namespace

double busbw_factor(CollectiveKind kind, uint32_t n) {
  const double ranks = n;
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 2.0 * (ranks - 1) / ranks;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::reduce_scatter_block:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::all_to_all:
      return (ranks - 1) / ranks;
    default:
      return 1.0;
  }
}

Timeline::Timeline(const Job& job, Fabric& fabric, const ComputeModel& compute,
                   const CollectiveSelector& collectives, TimelineOptions options)
    : job_(job),
      fabric_(fabric),
      compute_(compute),
      selector_(collectives),
      options_(std::move(options)) {
  TRAINYARD_ASSERT(!options_.paced() || options_.faults == nullptr);
  TRAINYARD_ASSERT(options_.collective_overlap_q32.empty() ||
                   options_.collective_overlap_q32.size() + 1 == RankState().moving_as.size());
  ranks_.resize(job.ranks.size());
  times_.resize(job.ranks.size());
  // Slot -> the first slot that holds the same.
  const auto add_pattern = [](const std::vector<uint32_t>& slots, std::vector<uint32_t>& out) {
    for (const uint32_t held : slots) {
      out.push_back(
          static_cast<uint32_t>(std::find(slots.begin(), slots.end(), held) - slots.begin()));
    }
  };
  std::vector<uint32_t> pattern;
  for (uint32_t r = 0; r < job.ranks.size(); ++r) {
    const OpGraph* g = job.ranks[r].graph.get();
    const RankBinding& binding = job.ranks[r].binding;
    // Numbers count per group and peer: they depend on which slots hold the same (the next stage
    // of two is the previous one, too).
    pattern.clear();
    add_pattern(binding.groups, pattern);
    pattern.push_back(kNone);
    add_pattern(binding.peers, pattern);
    auto& info = classes_[{g, pattern}];
    if (!info) {
      info = std::make_unique<ClassInfo>();
      info->stream_ops.resize(g->streams.size());
      for (const Stream& stream : g->streams) info->host.push_back(stream.name == "host" ? 1 : 0);
      info->nth.resize(g->ops.size());
      std::map<uint32_t, uint32_t> per_group;
      std::map<std::tuple<uint32_t, uint64_t, bool>, uint32_t> per_peer;
      for (uint32_t i = 0; i < g->ops.size(); ++i) {
        const Op& op = g->ops[i];
        if (g->streams[op.stream].order == StreamOrder::fifo) {
          info->stream_ops[op.stream].push_back(i);
        }
        if (g->dependency_count(i) == 0) info->roots.push_back(i);
        if (op.background) ++info->background;
        if (op.kind == OpKind::storage && op.action != StorageAction::snapshot) {
          TRAINYARD_ASSERT(options_.storage != nullptr);
        }
        if (op.kind == OpKind::collective) {
          info->nth[i] = per_group[binding.groups[op.group_slot]]++;
          auto& slots = info->group_slots;
          if (std::find(slots.begin(), slots.end(), op.group_slot) == slots.end()) {
            slots.push_back(op.group_slot);
          }
        }
        if (op.kind == OpKind::send || op.kind == OpKind::recv) {
          const uint32_t peer = binding.peers[op.peer_slot];
          info->nth[i] = per_peer[{peer, op.tag, op.kind == OpKind::send}]++;
        }
      }
      if (may_replay()) info->stretches = find_stretches(*g);
    }
    RankState& s = ranks_[r];
    s.graph = g;
    s.info = info.get();
    const size_t n = g->ops.size();
    s.pages.resize((n + RankState::kPageOps - 1) / RankState::kPageOps);
    if (n % RankState::kPageOps != 0) s.pages.back().left = n % RankState::kPageOps;
    s.streams.resize(g->streams.size());
    s.left = static_cast<uint32_t>(g->ops.size());
    s.left_in_front = s.left - info->background;
    ops_total_ += s.left;
    times_[r].rank = r;
  }
  for (uint32_t p = 0; p < job.parts.size(); ++p) {
    TRAINYARD_ASSERT(job.parts[p].first_rank == part_of_.size());
    part_of_.insert(part_of_.end(), job.parts[p].ranks, p);
  }
  TRAINYARD_ASSERT(part_of_.empty() || part_of_.size() == ranks_.size());
}

Timeline::~Timeline() = default;

std::string Timeline::op_label(uint32_t rank, uint32_t op) const {
  const OpGraph& g = *ranks_[rank].graph;
  return "'" + g.name_of(op) + "' (node " + std::to_string(g.ops[op].source_id) + ")";
}

void Timeline::move(uint32_t rank, uint32_t op, int change) {
  RankState& s = ranks_[rank];
  s.moving += change;
  int16_t& n = s.moving_of[static_cast<size_t>(dimension(s, op))];
  n = static_cast<int16_t>(n + change);
  if (!options_.paced()) return;
  const Op& o = s.graph->ops[op];
  const size_t as =
      o.kind == OpKind::collective ? static_cast<size_t>(o.collective) : s.moving_as.size() - 1;
  s.moving_as[as] = static_cast<int16_t>(s.moving_as[as] + change);
  repace(rank);
}

uint64_t Timeline::pace_of(const RankState& s) const {
  const auto& own = options_.collective_overlap_q32;
  uint64_t pace = 0;
  for (size_t as = 0; as < s.moving_as.size(); ++as) {
    if (s.moving_as[as] <= 0) continue;
    pace = std::max(pace, as < own.size() ? own[as] : options_.overlap_q32);
  }
  return pace;
}

/// Rounded up.
Time Timeline::stretched(Time work, uint64_t pace) {
  if (pace == 0) return work;
  const auto product = static_cast<unsigned __int128>(work.ps()) * ((uint64_t{1} << 32) + pace);
  return Time::ps(static_cast<int64_t>((product + 0xffffffffU) >> 32));
}

void Timeline::begin_paced(uint32_t rank, uint32_t op, Time work) {
  RankState& s = ranks_[rank];
  const Time end = now_ + stretched(work, s.pace);
  s.paced.push_back({op, now_, work, now_, end});
  events_.push(end.ps(), rank, op);
}

/// Communication on `rank` begins or ends: what computes there gets slower or faster.
void Timeline::repace(uint32_t rank) {
  RankState& s = ranks_[rank];
  const uint64_t pace = pace_of(s);
  if (pace == s.pace) return;
  for (RankState::Paced& p : s.paced) {
    Time done = now_ - p.from;
    if (s.pace != 0) {
      done = Time::ps(static_cast<int64_t>((static_cast<unsigned __int128>(done.ps()) << 32) /
                                           ((uint64_t{1} << 32) + s.pace)));
    }
    p.work = p.work - std::min(p.work, done);
    p.from = now_;
    p.end = now_ + stretched(p.work, pace);
    events_.push(p.end.ps(), rank, p.op);
  }
  s.pace = pace;
}

/// Whether the event for the end of `op` still holds; then its span is told.
bool Timeline::end_paced(uint32_t rank, uint32_t op) {
  RankState& s = ranks_[rank];
  const Op& o = s.graph->ops[op];
  if (o.kind == OpKind::metadata || o.kind == OpKind::storage || s.info->host[o.stream] != 0) {
    return true;
  }
  const auto it = std::find_if(s.paced.begin(), s.paced.end(),
                               [&](const RankState::Paced& p) { return p.op == op; });
  if (it == s.paced.end() || it->end != now_) return false;
  emit(rank, op, o.kind == OpKind::memory ? Span::Kind::memory : Span::Kind::compute, it->begin,
       now_);
  s.paced.erase(it);
  return true;
}

void Timeline::wait(uint32_t rank, uint32_t op, int change) {
  RankState& s = ranks_[rank];
  s.waiting += change;
  int16_t& n = s.waiting_of[static_cast<size_t>(dimension(s, op))];
  n = static_cast<int16_t>(n + change);
}

Dimension Timeline::dimension(const RankState& s, uint32_t op) {
  return s.graph->streams[s.graph->ops[op].stream].dimension;
}

/// Books the time since the last change of what runs on `rank`.
void Timeline::account(uint32_t rank) {
  if (ranks_[rank].replay != nullptr) replay_until_now(rank);
  book(rank, now_);
}

void Timeline::book(uint32_t rank, Time now) {
  RankState& s = ranks_[rank];
  const Time from = s.since;
  const Time span = now - from;
  s.since = now;
  if (span.ps() == 0) return;
  if (recorder_ != nullptr) {
    recorder_->phase(rank,
                     s.computing > 0 ? Phase::compute
                     : s.moving > 0  ? Phase::exposed_comm
                     : s.hosting > 0 ? Phase::host
                     : s.storing > 0 ? Phase::storage
                     : s.waiting > 0 ? Phase::wait
                                     : Phase::idle,
                     from, now);
  }
  RankTimes& t = times_[rank];
  const auto first_of = [](const std::array<int16_t, kDimensions>& running) {
    for (size_t d = 1; d < kDimensions; ++d) {
      if (running[d] > 0) return d;
    }
    return size_t{0};
  };
  if (s.computing > 0) {
    t.compute += span;
    if (s.moving > 0) {
      t.hidden_comm += span;
      t.hidden_of[first_of(s.moving_of)] += span;
    }
  } else if (s.moving > 0) {
    t.exposed_comm += span;
    t.exposed_of[first_of(s.moving_of)] += span;
  } else if (s.hosting > 0) {
    t.host += span;
  } else if (s.storing > 0) {
    t.storage += span;
  } else if (s.waiting > 0) {
    t.wait += span;
    t.wait_of[first_of(s.waiting_of)] += span;
  } else {
    t.idle += span;
  }
}

void Timeline::emit(uint32_t rank, uint32_t op, Span::Kind kind, Time begin, Time end,
                    uint32_t owner, uint32_t last) {
  if (recorder_ == nullptr || end <= begin) return;
  const OpGraph& g = *ranks_[rank].graph;
  if (kind != Span::Kind::wait) recorder_->timed(rank, g, op, end - begin);
  if (!recorder_->wants(end - begin)) return;
  recorder_->span(
      {rank, kind, g.name_of(op), g.streams[g.ops[op].stream].name, begin, end, owner, last});
}

uint8_t Timeline::class_of(uint32_t rank) const {
  return part_of_.empty() ? options_.traffic_class : job_.parts[part_of_[rank]].traffic_class;
}

bool Timeline::sends_eagerly(uint32_t rank) const {
  return part_of_.empty() ? options_.eager_sends : job_.parts[part_of_[rank]].eager_sends;
}

Time Timeline::part_end(const JobPart& part) const {
  Time end = part.start;
  for (uint32_t r = part.first_rank; r < part.first_rank + part.ranks; ++r) {
    end = std::max(end, ranks_[r].left_in_front == 0 ? times_[r].finish : now_);
  }
  return end;
}

/// They do nothing before.
void Timeline::begin_ranks(uint32_t first, uint32_t count) {
  for (uint32_t r = first; r < first + count; ++r) {
    RankState& s = ranks_[r];
    s.since = now_;
    for (const uint32_t root : s.info->roots) release(r, root);
    for (uint32_t st = 0; st < s.streams.size(); ++st) try_stream(r, st);
  }
}

void Timeline::release(uint32_t rank, uint32_t op) {
  RankState& s = ranks_[rank];
  const uint32_t stream = s.graph->ops[op].stream;
  switch (s.graph->streams[stream].order) {
    case StreamOrder::free:
      begin(rank, op);
      break;
    case StreamOrder::ready:
      s.streams[stream].ready.push(op);
      break;
    case StreamOrder::fifo:
      break;
  }
}

void Timeline::try_stream(uint32_t rank, uint32_t stream) {
  RankState& s = ranks_[rank];
  auto& st = s.streams[stream];
  if (st.busy) return;
  switch (s.graph->streams[stream].order) {
    case StreamOrder::free:
      return;
    case StreamOrder::ready: {
      if (st.ready.empty()) return;
      const uint32_t op = st.ready.top();
      st.ready.pop();
      st.busy = true;
      begin(rank, op);
      return;
    }
    case StreamOrder::fifo: {
      const auto& ops = s.info->stream_ops[stream];
      if (st.cursor >= ops.size() || s.pending(ops[st.cursor]) != 0) return;
      st.busy = true;
      begin(rank, ops[st.cursor++]);
      return;
    }
  }
}

void Timeline::begin(uint32_t rank, uint32_t op) {
  const Op& o = ranks_[rank].graph->ops[op];
  const bool communicates =
      o.kind == OpKind::collective || o.kind == OpKind::send || o.kind == OpKind::recv;
  const bool launched = o.kind != OpKind::metadata && ranks_[rank].info->host[o.stream] == 0;
  if (options_.faults != nullptr && launched) {
    Time from = options_.faults->launches_at(rank, op, now_);
    if (communicates && from != Time::infinity()) {
      from = options_.faults->runs_from(rank, from);
    }
    if (from == Time::infinity()) return;  // describe_hang() says so
    if (from > now_) {
      events_.push(from.ps(), kDelayedBegin, static_cast<uint32_t>(delayed_.size()));
      delayed_.emplace_back(rank, op);
      return;
    }
  }
  begin_now(rank, op);
}

void Timeline::begin_now(uint32_t rank, uint32_t op) {
  RankState& s = ranks_[rank];
  const Op& o = s.graph->ops[op];
  switch (o.kind) {
    case OpKind::metadata:
      if (o.duration > Time())
        events_.push((now_ + o.duration).ps(), rank, op);
      else
        finished_.emplace_back(rank, op);
      return;
    case OpKind::compute:
    case OpKind::memory: {
      Time d = compute_.duration(*s.graph, op, rank);
      if (o.exchange != 0) d = scaled(d, rank, o);
      account(rank);
      if (s.recording != nullptr) write_down(rank, op, StretchEvent::begin, d);
      const bool host = s.info->host[o.stream] != 0;
      (host ? s.hosting : s.computing) += 1;
      if (options_.paced() && !host) {
        begin_paced(rank, op, d);
        return;
      }
      Time end = now_ + d;
      if (options_.faults != nullptr && !host) {
        end = options_.faults->end_of_op(rank, *s.graph, op, now_, d);
        if (end == Time::infinity()) return;  // describe_hang() says so
      }
      if (options_.faults != nullptr && host && end > options_.faults->exits_at(rank)) return;
      emit(rank, op, o.kind == OpKind::memory ? Span::Kind::memory : Span::Kind::compute, now_,
           end);
      events_.push(end.ps(), rank, op);
      return;
    }
    case OpKind::collective:
      begin_collective(rank, op);
      return;
    case OpKind::send:
    case OpKind::recv:
      begin_message(rank, op);
      return;
    case OpKind::storage:
      begin_storage(rank, op);
      return;
  }
}

void Timeline::begin_storage(uint32_t rank, uint32_t op) {
  RankState& s = ranks_[rank];
  const Op& o = s.graph->ops[op];
  const bool snapshot = o.action == StorageAction::snapshot;
  const bool others_do = o.first_member && position(rank, o.group_slot) != 0;
  if (others_do || (snapshot ? o.duration == Time() : o.bytes == 0)) {
    finished_.emplace_back(rank, op);
    return;
  }
  if (!o.background) {
    account(rank);
    ++s.storing;
  }
  if (snapshot) {
    emit(rank, op, Span::Kind::storage, now_, now_ + o.duration);
    events_.push((now_ + o.duration).ps(), rank, op);
    return;
  }
  const uint32_t request = options_.storage->submit({rank, o.action, o.bytes}, now_);
  TRAINYARD_ASSERT(request == storage_ops_.size());
  storage_ops_.push_back({rank, op, now_});
}

/// What the storage does at this instant.
void Timeline::run_storage() {
  storage_done_.clear();
  storage_moves_.clear();
  options_.storage->advance(now_, storage_done_, storage_moves_);
  for (const StorageMove& m : storage_moves_) {
    if (storage_owner_ == kNone) {
      storage_owner_ = static_cast<uint32_t>(owners_.size());
      owners_.push_back({});
    }
    Transfer t;
    t.src = m.src;
    t.dst = m.dst;
    t.size = Bytes(m.bytes);
    t.channel = 0xfffffffeU;
    t.owner = storage_owner_;
    t.traffic_class = class_of(m.rank);
    const TransferId id = fabric_.start(t, now_);
    TRAINYARD_ASSERT(id == flights_.size());
    flights_.push_back({Flight::Of::storage, m.token, 0, {}});
  }
  for (const uint32_t request : storage_done_) {
    const StorageOp& s = storage_ops_[request];
    emit(s.rank, s.op, Span::Kind::storage, s.begin, now_);
    finished_.emplace_back(s.rank, s.op);
  }
}

/// `d` is for an even exchange; some members got more than others.
Time Timeline::scaled(Time d, uint32_t rank, const Op& o) const {
  TRAINYARD_ASSERT(job_.exchanges != nullptr);
  const uint32_t group = job_.ranks[rank].binding.groups[o.group_slot];
  const auto& members = job_.groups[group].members;
  const uint64_t load = job_.exchanges->load_q32(group, static_cast<uint32_t>(members.size()),
                                                 o.exchange, position(rank, o.group_slot));
  return Time::ps(static_cast<int64_t>((static_cast<unsigned __int128>(d.ps()) * load) >> 32));
}

/// Place of `rank` among the members of its group; kNone when it is none.
uint32_t Timeline::position(uint32_t rank, uint32_t slot) const {
  const RankBinding& binding = job_.ranks[rank].binding;
  if (!binding.positions.empty()) return binding.positions[slot];
  const auto& members = job_.groups[binding.groups[slot]].members;
  const auto it = std::find(members.begin(), members.end(), rank);
  return it == members.end() ? kNone : static_cast<uint32_t>(it - members.begin());
}

void Timeline::finish(uint32_t rank, uint32_t op) {
  RankState& s = ranks_[rank];
  const Op& o = s.graph->ops[op];
  if (s.replay != nullptr || s.recording != nullptr) end_in_stretch(rank, op);
  if (o.background) {
    // A rank that has nothing else to do and goes on now was held up by it since it fell idle.
    bool held_up = false;
    for (const uint32_t* next = s.graph->successors_begin(op); next != s.graph->successors_end(op);
         ++next) {
      held_up = held_up || (s.pending(*next) == 1 && !s.graph->ops[*next].background);
    }
    if (held_up && s.idle()) {
      s.storing = 1;
      account(rank);
      s.storing = 0;
    }
  } else {
    account(rank);
    if (--s.left_in_front == 0) times_[rank].finish = now_;
    end_ = std::max(end_, now_);
  }
  if (o.kind == OpKind::compute || o.kind == OpKind::memory) {
    (s.info->host[o.stream] != 0 ? s.hosting : s.computing) -= 1;
  }
  if (o.kind == OpKind::storage && !o.background) {
    const bool others_do = o.first_member && position(rank, o.group_slot) != 0;
    const bool nothing = o.action == StorageAction::snapshot ? o.duration == Time() : o.bytes == 0;
    if (!others_do && !nothing) --s.storing;
  }
  ++ops_done_;
  fingerprint_ += dice(static_cast<uint64_t>(now_.ps()), 100, rank, op);
  --s.left;
  for (const uint32_t* next = s.graph->successors_begin(op); next != s.graph->successors_end(op);
       ++next) {
    if (--s.pending(*next) == 0) release(rank, *next);
  }
  s.done_with(op);
  if (s.graph->streams[o.stream].order != StreamOrder::free) s.streams[o.stream].busy = false;
}

void Timeline::begin_collective(uint32_t rank, uint32_t op) {
  RankState& s = ranks_[rank];
  const Op& o = s.graph->ops[op];
  const uint32_t gi = job_.ranks[rank].binding.groups[o.group_slot];
  const Group& group = job_.groups[gi];
  const uint32_t member = position(rank, o.group_slot);
  if (member == kNone) {
    throw SimulationError("rank " + std::to_string(rank) + " issues " + op_label(rank, op) +
                          " on group '" + group.name + "', of which it is no member");
  }
  if (group.members.size() == 1) {
    finished_.emplace_back(rank, op);
    return;
  }
  if (options_.faults != nullptr) {
    const CollectiveCall call = options_.faults->call(rank, group.name, s.info->nth[op], now_);
    if (call.what == CollectiveCall::What::never) return;  // describe_hang() tells who waits
    if (call.what == CollectiveCall::What::skipped) {
      ++skipped_[{rank, gi}];
      finished_.emplace_back(rank, op);
      return;
    }
  }
  if (hold(rank, op)) return;
  come(rank, op, now_, false);
}

/// A member comes to its collective, at `at`. `waits`: that it waits for others has been booked.
void Timeline::come(uint32_t rank, uint32_t op, Time at, bool waits) {
  RankState& s = ranks_[rank];
  const Op& o = s.graph->ops[op];
  const uint32_t gi = job_.ranks[rank].binding.groups[o.group_slot];
  const Group& group = job_.groups[gi];
  const uint32_t member = position(rank, o.group_slot);
  uint32_t nth = s.info->nth[op];
  CollectiveCall call;
  if (options_.faults != nullptr) {
    call = options_.faults->call(rank, group.name, nth, at);
    const auto skipped = skipped_.find({rank, gi});
    if (skipped != skipped_.end()) nth -= skipped->second;
  }
  if (call.what != CollectiveCall::What::other) call = {call.what, o.collective, o.bytes};
  const uint64_t key = (static_cast<uint64_t>(gi) << 32) | nth;
  const uint32_t slot = free_collectives_.empty() ? static_cast<uint32_t>(collectives_.size())
                                                  : free_collectives_.back();
  const auto [it, opened] = open_collectives_.emplace(key, slot);
  const uint32_t index = it->second;
  if (opened) {
    for (const uint32_t m : group.members) {
      if (m < ranks_.size()) continue;
      open_collectives_.erase(it);
      throw SimulationError("hang: " + op_label(rank, op) + " of rank " + std::to_string(rank) +
                            " waits for rank " + std::to_string(m) + " of group '" + group.name +
                            "', but the job has " + std::to_string(ranks_.size()) + " ranks");
    }
    if (free_collectives_.empty())
      collectives_.emplace_back();
    else
      free_collectives_.pop_back();
    Collective& c = collectives_[slot];
    c = {};
    c.group = gi;
    c.nth = nth;
    c.kind = call.kind;
    c.bytes = call.bytes;
    c.first_rank = rank;
    c.first_op = op;
    c.op_of.assign(group.members.size(), kNone);
    c.arrival.resize(group.members.size());
    c.kernel_total = Time();
    c.member_done.assign(group.members.size(), 0);
    CollectiveRecord& r = c.record;
    r.index = next_record_++;
    r.kind = call.kind;
    r.ranks = static_cast<uint32_t>(group.members.size());
    r.bytes = call.bytes;
    r.first_arrival = at;
    c.owner = r.owner = static_cast<uint32_t>(owners_.size());
    owners_.push_back({nullptr, r.index, call.kind});
    if (options_.faults != nullptr) open_in_order_.emplace(r.index, slot);
    const int64_t bytes = request_bytes(call.kind, call.bytes, group.members.size());
    if (bytes > 0) {
      CollectiveRequest request{call.kind, bytes, &group.members, options_.placement, nullptr};
      if (o.exchange != 0 && call.what != CollectiveCall::What::other) {
        TRAINYARD_ASSERT(job_.exchanges != nullptr && o.collective == CollectiveKind::all_to_all);
        request.sizes =
            job_.exchanges->sizes(gi, static_cast<uint32_t>(group.members.size()), o.exchange);
      }
      c.algorithm = &selector_.choose(request);
      c.delay = c.algorithm->delay(request);
      if (options_.host != nullptr) {
        c.call = options_.host->open({c.algorithm, request, gi * 64, c.owner, class_of(rank)});
        TRAINYARD_ASSERT(c.call == hosted_.size());
        hosted_.push_back(index);
      } else {
        c.run = c.algorithm->begin(request);
      }
    }
  }
  Collective& c = collectives_[index];
  if (c.kind != call.kind || c.bytes != call.bytes) {
    if (options_.faults != nullptr && options_.collective_timeout != Time::infinity()) {
      // As with a real library both wait: neither sends what the other expects.
      strangers_[key].push_back({rank, op, at, call});
      account(rank);
      wait(rank, op, 1);
      return;
    }
    throw SimulationError(
        "hang: collective number " + std::to_string(c.nth) + " of group '" + group.name + "' is " +
        collective_name(c.kind) + " of " + std::to_string(c.bytes) + " bytes on rank " +
        std::to_string(c.first_rank) + ", " + op_label(c.first_rank, c.first_op) + ", but " +
        collective_name(call.kind) + " of " + std::to_string(call.bytes) + " bytes on rank " +
        std::to_string(rank) + ", " + op_label(rank, op) +
        "; members must issue the same collectives in the same order");
  }
  TRAINYARD_ASSERT(c.op_of[member] == kNone);
  c.op_of[member] = op;
  c.arrival[member] = at;
  ++c.arrived;
  account(rank);
  if (s.recording != nullptr) write_down(rank, op, StretchEvent::arrive, Time());
  const auto n = static_cast<uint32_t>(group.members.size());
  if (c.arrived < n) {
    if (!waits) wait(rank, op, 1);
  } else {
    // The last one is here: everybody's wait ends, the transfer begins.
    c.record.start = now_;
    c.record.last_rank = rank;
    for (uint32_t m = 0; m < n; ++m) {
      const uint32_t other = group.members[m];
      if (c.member_done[m] != 0) continue;  // a root can be through before the last one comes
      if (m != member) {
        account(other);
        wait(other, c.op_of[m], -1);
        emit(other, c.op_of[m], Span::Kind::wait, c.arrival[m], now_, c.owner, rank);
      }
      move(other, c.op_of[m], 1);
      if (ranks_[other].recording != nullptr) {
        write_down(other, c.op_of[m], StretchEvent::all_here, now_ - c.arrival[m]);
      }
    }
  }
  const Time enters = at + c.delay;
  if (enters > now_) {
    auto place = static_cast<uint32_t>(entering_.size());
    if (entering_free_.empty()) {
      entering_.emplace_back();
    } else {
      place = entering_free_.back();
      entering_free_.pop_back();
    }
    entering_[place] = {index, member};
    events_.push(enters.ps(), kEnter, place);
  } else {
    enter(index, member, enters);
  }
}

/// Its messages may go from `at` on.
void Timeline::enter(uint32_t index, uint32_t member, Time at) {
  Collective& c = collectives_[index];
  const auto n = static_cast<uint32_t>(c.op_of.size());
  std::vector<CollectiveSend> sends;
  std::vector<uint32_t> done;
  if (c.call != kNone) {
    options_.host->arrive(c.call, member, at);
    return;
  }
  if (c.run) {
    c.run->arrived(member, sends, done);
  } else if (c.arrived == n) {
    for (uint32_t m = 0; m < n; ++m) done.push_back(m);
  }
  apply(index, sends, done);
}

void Timeline::apply(uint32_t index, std::vector<CollectiveSend>& sends,
                     std::vector<uint32_t>& done) {
  Collective& c = collectives_[index];
  const auto& members = job_.groups[c.group].members;
  for (const CollectiveSend& send : sends) {
    Transfer t;
    t.src = members[send.src];
    t.dst = members[send.dst];
    t.size = Bytes(send.bytes);
    // Queue pairs belong to a communicator and channel, as in NCCL.
    t.channel = c.group * 64 + send.channel % 64;
    if (send.clear_to_send) t.channel |= kGrantChannel;
    t.owner = c.owner;
    t.traffic_class =
        send.clear_to_send ? send.traffic_class : std::max(send.traffic_class, class_of(t.src));
    const TransferId id = fabric_.start(t, now_);
    TRAINYARD_ASSERT(id == flights_.size());
    CollectiveRecord& r = c.record;
    flights_.push_back({Flight::Of::collective, index, r.index, send});
    if (send.clear_to_send) {
      ++r.cts_count;
      continue;
    }
    ++r.transfers;
    r.wire_payload += send.bytes;
  }
  for (const uint32_t m : done) member_through(index, m);
}

void Timeline::member_through(uint32_t index, uint32_t m) {
  Collective& c = collectives_[index];
  const auto& members = job_.groups[c.group].members;
  const bool all_here = c.arrived == members.size();
  TRAINYARD_ASSERT(c.member_done[m] == 0 && c.op_of[m] != kNone);
  c.member_done[m] = 1;
  ++c.done;
  c.kernel_total += now_ - c.arrival[m];
  const uint32_t rank = members[m];
  account(rank);
  all_here ? move(rank, c.op_of[m], -1) : wait(rank, c.op_of[m], -1);
  if (ranks_[rank].recording != nullptr) {
    write_down(rank, c.op_of[m], StretchEvent::through, now_ - c.record.start);
    if (!all_here) ranks_[rank].recording->failed = true;
  }
  emit(rank, c.op_of[m], Span::Kind::collective, all_here ? c.record.start : c.arrival[m], now_,
       c.owner);
  if (recorder_ != nullptr && options_.host == nullptr) {
    recorder_->visited(
        {c.record.index, rank, c.arrival[m], all_here ? c.record.start : now_, now_});
  }
  finished_.emplace_back(rank, c.op_of[m]);
  if (c.done < members.size()) return;
  if (ranks_[rank].recording != nullptr) write_down(rank, c);
  close_collective(index);
}

void Timeline::close_collective(uint32_t index) {
  Collective& c = collectives_[index];
  CollectiveRecord& r = c.record;
  r.finish = now_;
  r.wait_max = r.start - r.first_arrival;
  r.kernel_mean = Time::ps(c.kernel_total.ps() / r.ranks);
  if (r.finish - r.first_arrival > options_.collective_timeout) {
    throw SimulationError(
        "collective timeout: " + std::string(collective_name(r.kind)) + " " +
        op_label(c.first_rank, c.first_op) + " of group '" + job_.groups[c.group].name + "' took " +
        print_time(r.finish - r.first_arrival) + ", of which " + print_time(r.wait_max) +
        " waiting for its last member; limit " + print_time(options_.collective_timeout));
  }
  open_collectives_.erase((static_cast<uint64_t>(c.group) << 32) | c.nth);
  if (options_.faults != nullptr) open_in_order_.erase(r.index);
  keep(c);
  c.run.reset();
  free_collectives_.push_back(index);
}

/// Whether the record at `a` goes on living when only one of two can. Which ones are kept does not
/// depend on the order in which they came: a stretch that is replayed books its own all at once.
bool Timeline::outlives(uint32_t a, uint32_t b) const {
  const CollectiveRecord& x = records_[a];
  const CollectiveRecord& y = records_[b];
  const auto key = [](const CollectiveRecord& r) {
    return std::make_tuple(r.start - r.finish, r.first_arrival, r.start);
  };
  const auto kx = key(x), ky = key(y);
  return kx != ky ? kx < ky : record_origins_[a].place() < record_origins_[b].place();
}

/// The record of a collective that is through. Far beyond most_records the shortest go.
void Timeline::keep(Collective& c) {
  CollectiveRecord& r = c.record;
  const Time length = r.finish - r.start;
  if (length < shortest_record_) {
    ++records_dropped_;
    return;
  }
  book(c);
  if (records_.size() > options_.most_records + options_.most_records / 4) drop_shortest();
}

/// Writes down what is known of a collective.
void Timeline::book(Collective& c) {
  CollectiveRecord& r = c.record;
  const double seconds = (r.finish - r.start).seconds();
  if (seconds > 0) {
    const double bytes =
        static_cast<double>(r.bytes) *
        (r.kind == CollectiveKind::all_gather ? static_cast<double>(r.ranks) : 1.0);
    r.algbw_gbytes_per_s = bytes / seconds * 1e-9;
    r.busbw_gbytes_per_s = r.algbw_gbytes_per_s * busbw_factor(r.kind, r.ranks);
  }
  r.name = ranks_[c.first_rank].graph->name_of(c.first_op);
  r.group = job_.groups[c.group].name;
  r.algorithm = c.algorithm == nullptr ? "none" : c.algorithm->name();
  records_.push_back(r);
  record_origins_.push_back({c.call, c.group, c.first_op});
}

/// Keeps the longest most_records.
void Timeline::drop_shortest() {
  const size_t most = options_.most_records;
  if (records_.size() <= most) return;
  std::vector<uint32_t> order(records_.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(most);
  std::nth_element(order.begin(), end, order.end(),
                   [&](uint32_t a, uint32_t b) { return outlives(a, b); });
  records_dropped_ += records_.size() - most;
  std::sort(order.begin(), end);
  shortest_record_ = Time::infinity();
  for (size_t i = 0; i < most; ++i) {
    const uint32_t from = order[i];  // at i or behind it
    if (from != i) {
      records_[i] = std::move(records_[from]);
      record_origins_[i] = record_origins_[from];
    }
    shortest_record_ = std::min(shortest_record_, records_[i].finish - records_[i].start);
  }
  records_.resize(most);
  record_origins_.resize(most);
}

std::vector<std::string> Timeline::owners() const {
  constexpr size_t kMost = 1'000'000;
  std::vector<std::string> names;
  names.reserve(std::min(kMost, owners_.size()));
  for (const Owner& o : owners_) {
    if (names.size() == kMost) break;
    names.push_back(o.send != nullptr
                        ? "send " + *o.send
                        : std::string(collective_name(o.kind)) + " #" + std::to_string(o.record));
  }
  return names;
}

void Timeline::begin_message(uint32_t rank, uint32_t op) {
  RankState& s = ranks_[rank];
  const Op& o = s.graph->ops[op];
  const uint32_t peer = job_.ranks[rank].binding.peers[o.peer_slot];
  const bool sending = o.kind == OpKind::send;
  const uint32_t src = sending ? rank : peer;
  const uint32_t dst = sending ? peer : rank;
  const MessageKey key{(static_cast<uint64_t>(src) << 32) | dst, o.tag, s.info->nth[op]};
  const uint32_t slot =
      free_messages_.empty() ? static_cast<uint32_t>(messages_.size()) : free_messages_.back();
  const auto [it, opened] = open_messages_.emplace(key, slot);
  const uint32_t index = it->second;
  if (opened) {
    if (free_messages_.empty())
      messages_.emplace_back();
    else
      free_messages_.pop_back();
    Message& m = messages_[slot];
    m = {};
    m.src = src;
    m.dst = dst;
    m.key = key;
  }
  Message& m = messages_[index];
  (sending ? m.send_op : m.recv_op) = op;
  (sending ? m.posted_send : m.posted_recv) = now_;
  account(rank);
  const bool both = m.send_op != kNone && m.recv_op != kNone;
  if (both) {
    const int64_t sent = ranks_[m.src].graph->ops[m.send_op].bytes;
    const int64_t expected = ranks_[m.dst].graph->ops[m.recv_op].bytes;
    if (sent != expected) {
      throw SimulationError("message " + op_label(m.src, m.send_op) + " of rank " +
                            std::to_string(m.src) + " has " + std::to_string(sent) +
                            " bytes, its receive " + op_label(m.dst, m.recv_op) + " on rank " +
                            std::to_string(m.dst) + " expects " + std::to_string(expected));
    }
  }
  if (m.delivered) {
    finished_.emplace_back(rank, op);  // an eager send was faster than its receive
    open_messages_.erase(m.key);
    free_messages_.push_back(index);
    return;
  }
  if (m.started) {
    move(rank, op, 1);
    return;
  }
  if (!both && !(sending && sends_eagerly(rank))) {
    wait(rank, op, 1);
    return;
  }
  m.started = true;
  m.start = now_;
  move(rank, op, 1);
  const Op& send = ranks_[m.src].graph->ops[m.send_op];
  if (m.src != m.dst && send.bytes != 0) m.owner = static_cast<uint32_t>(owners_.size());
  if (both) {
    const uint32_t other = sending ? m.dst : m.src;
    account(other);
    const uint32_t other_op = sending ? m.recv_op : m.send_op;
    wait(other, other_op, -1);
    move(other, other_op, 1);
    emit(other, other_op, Span::Kind::wait, sending ? m.posted_recv : m.posted_send, now_, m.owner,
         rank);
  }
  if (m.owner == kNone) {
    message_done(index);
    return;
  }
  Transfer t;
  t.src = m.src;
  t.dst = m.dst;
  t.size = Bytes(send.bytes);
  t.channel = 0xffffffffU;
  t.owner = m.owner;
  t.traffic_class = class_of(m.src);
  owners_.push_back({&ranks_[m.src].graph->name_of(m.send_op)});
  const TransferId id = fabric_.start(t, now_);
  TRAINYARD_ASSERT(id == flights_.size());
  flights_.push_back({Flight::Of::message, index, 0, {}});
}

void Timeline::message_done(uint32_t index) {
  Message& m = messages_[index];
  const auto end = [&](uint32_t rank, uint32_t op, Span::Kind kind, Time begin) {
    account(rank);
    move(rank, op, -1);
    emit(rank, op, kind, begin, now_, m.owner);
    finished_.emplace_back(rank, op);
  };
  end(m.src, m.send_op, Span::Kind::send, m.start);
  if (m.recv_op == kNone) {
    m.delivered = true;  // the receive finds it here
    return;
  }
  end(m.dst, m.recv_op, Span::Kind::recv, std::max(m.start, m.posted_recv));
  open_messages_.erase(m.key);
  free_messages_.push_back(index);
}

void Timeline::on_completion(const Completion& c) {
  const auto wanted =
      options_.complete_at_receiver ? Completion::What::delivered : Completion::What::acknowledged;
  if (c.what != wanted) return;
  const Flight& flight = flights_[c.id];
  if (flight.of == Flight::Of::message) {
    message_done(flight.index);
    return;
  }
  if (flight.of == Flight::Of::storage) {
    options_.storage->moved(flight.index, now_);
    return;
  }
  if (options_.faults != nullptr) {
    // The data is there, but the kernel that waits for it does not run.
    const uint32_t rank = job_.groups[collectives_[flight.index].group].members[flight.send.dst];
    const Time from = options_.faults->runs_from(rank, now_);
    if (from == Time::infinity()) return;
    if (from > now_) {
      events_.push(from.ps(), kDelayedDelivery, c.id);
      return;
    }
  }
  on_delivery(c.id);
}

void Timeline::on_delivery(TransferId id) {
  const Flight flight = flights_[id];
  std::vector<CollectiveSend> sends;
  std::vector<uint32_t> done;
  collectives_[flight.index].run->delivered(flight.send, sends, done);
  apply(flight.index, sends, done);
}

Time Timeline::deadline() {
  if (options_.faults == nullptr || options_.collective_timeout == Time::infinity()) {
    return Time::infinity();
  }
  if (open_in_order_.empty()) return Time::infinity();
  return collectives_[open_in_order_.begin()->second].record.first_arrival +
         options_.collective_timeout;
}

bool Timeline::run(Recorder* recorder) {
  recorder_ = recorder;
  try {
    const bool complete = run_all();
    book_collectives();
    return complete;
  } catch (...) {
    book_collectives();
    throw;
  }
}

bool Timeline::run_all() {
  const auto settle = [&] {
    // Ops that end at this instant release others, which may end at once, too. Streams look for
    // their next op when all that end together have released theirs.
    for (size_t first = 0; first < finished_.size();) {
      const size_t last = finished_.size();
      for (size_t i = first; i < last; ++i) {
        const auto [rank, op] = finished_[i];
        finish(rank, op);
      }
      for (; first < last; ++first) {
        const auto [rank, op] = finished_[first];
        const OpGraph& g = *ranks_[rank].graph;
        for (const uint32_t* next = g.successors_begin(op); next != g.successors_end(op); ++next) {
          try_stream(rank, g.ops[*next].stream);
        }
        try_stream(rank, g.ops[op].stream);
      }
    }
    finished_.clear();
  };
  if (job_.parts.empty()) begin_ranks(0, static_cast<uint32_t>(ranks_.size()));
  for (uint32_t p = 0; p < job_.parts.size(); ++p) {
    const JobPart& part = job_.parts[p];
    if (part.start > Time())
      events_.push(part.start.ps(), kPartBegin, p);
    else
      begin_ranks(part.first_rank, part.ranks);
  }
  settle();

  // A host may skip time within a stretch.
  const Time stretch = options_.host != nullptr ? Time::ms(20) : slice_of(ranks_.size());
  std::vector<Completion> completions;
  std::vector<CollectiveHost::Done> through;
  std::vector<CollectiveSend> no_sends;
  std::vector<uint32_t> member(1);
  while (ops_done_ < ops_total_) {
    const Time stores =
        options_.storage != nullptr ? options_.storage->next_event() : Time::infinity();
    const Time own =
        std::min(stores, events_.empty() ? Time::infinity() : Time::ps(events_.next_time()));
    const Time fabric_next = fabric_.next_event();
    const Time fails_at = deadline();
    const bool stuck =
        own == Time::infinity() && (fabric_next == Time::infinity() || fabric_.outstanding() == 0);
    const bool stops_first = options_.stop_at < fails_at;
    if (stops_first && (stuck || std::min(own, fabric_next) > options_.stop_at)) {
      end_ = now_ = options_.stop_at;
      return false;
    }
    if (fails_at != Time::infinity() && (stuck || now_ >= fails_at)) {
      end_ = now_ = fails_at;
      throw SimulationError("collective timeout of " + print_time(options_.collective_timeout) +
                            " at " + print_time(now_) + ": " + describe_hang());
    }
    if (stuck && release_holds()) continue;
    if (stuck) throw SimulationError(describe_hang());
    if (options_.progress && !options_.progress(now_, ops_done_)) return false;
    completions.clear();
    const Time slice = std::max(fabric_next, now_);
    const Time limit = std::min({own, fails_at, options_.stop_at,
                                 slice == Time::infinity() ? Time::infinity() : slice + stretch});
    // Also when it has nothing to do: what starts next starts after this instant of the fabric.
    if (fabric_next <= limit || own <= limit) {
      const Time reached = fabric_.advance(limit, completions);
      through.clear();
      if (options_.host != nullptr) options_.host->take_done(through);
      if (!completions.empty() || !through.empty()) {
        now_ = reached;
        for (const Completion& c : completions) on_completion(c);
        for (const CollectiveHost::Done& d : through) {
          member[0] = d.member;
          apply(hosted_[d.call], no_sends, member);
        }
        settle();
        continue;
      }
    }
    if (own > limit) {
      now_ = std::max(now_, limit);
      continue;
    }
    now_ = own;
    while (!events_.empty() && events_.next_time() == now_.ps()) {
      const Event e = events_.pop();
      if (e.key == kEnter) {
        const auto [index, number] = entering_[e.arg];
        entering_free_.push_back(e.arg);
        enter(index, number, now_);
      } else if (e.key == kDelayedBegin) {
        begin_now(delayed_[e.arg].first, delayed_[e.arg].second);
      } else if (e.key == kDelayedDelivery) {
        on_delivery(e.arg);
      } else if (e.key == kPartBegin) {
        begin_ranks(job_.parts[e.arg].first_rank, job_.parts[e.arg].ranks);
      } else if (!options_.paced() || end_paced(e.key, e.arg)) {
        finished_.emplace_back(e.key, e.arg);
      }
    }
    if (stores <= now_) run_storage();
    settle();
  }
  // A job's ranks are idle until its end, not until that of others.
  for (const JobPart& part : job_.parts) {
    now_ = part_end(part);
    for (uint32_t r = part.first_rank; r < part.first_rank + part.ranks; ++r) account(r);
  }
  now_ = end_;
  if (job_.parts.empty()) {
    for (uint32_t r = 0; r < ranks_.size(); ++r) account(r);
  }
  // Late ACKs and pauses: the last op does not wait for them, the balance of the fabric does.
  while (fabric_.outstanding() > 0) {
    if (fabric_.next_event() == Time::infinity()) throw SimulationError(fabric_.describe_stall());
    fabric_.advance(Time::infinity(), completions);
  }
  return true;
}

/// Puts the records in order, those of open collectives among them, and adds what the messages of
/// each came to; of a run that was cut off that is not known.
void Timeline::book_collectives() {
  const bool complete = ops_done_ == ops_total_ && fabric_.outstanding() == 0;
  drop_shortest();
  for (const auto& entry : open_collectives_) book(collectives_[entry.second]);
  std::vector<uint32_t> order(records_.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto key = [&](uint32_t i) {
    const CollectiveRecord& r = records_[i];
    return std::make_tuple(r.first_arrival, record_origins_[i].place(), r.start, r.index);
  };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  std::vector<CollectiveRecord> sorted;
  sorted.reserve(records_.size());
  for (const uint32_t i : order) {
    CollectiveRecord& r = sorted.emplace_back(std::move(records_[i]));
    if (!complete || record_origins_[i].call == kNone) continue;
    const CollectiveHost::Tally t = options_.host->tally(record_origins_[i].call);
    r.transfers = t.transfers;
    r.wire_payload = t.payload;
    r.transmissions = t.transmissions;
    r.cts_count = t.cts_count;
    r.cts_p50 = t.cts_p50;
    r.cts_p90 = t.cts_p90;
    r.cts_p99 = t.cts_p99;
  }
  records_ = std::move(sorted);
  if (!complete) return;
  std::unordered_map<uint32_t, CollectiveRecord*> by_index;
  if (!flights_.empty()) {
    for (CollectiveRecord& r : records_) by_index.emplace(r.index, &r);
  }
  const auto record_of = [&](uint32_t index) {
    const auto it = by_index.find(index);
    return it == by_index.end() ? nullptr : it->second;
  };
  const auto& transfers = fabric_.transfers();
  std::map<uint32_t, std::vector<Time>> grants;  // by record
  for (uint32_t id = 0; id < flights_.size(); ++id) {
    if (flights_[id].of != Flight::Of::collective) continue;
    CollectiveRecord* const r = record_of(flights_[id].record);
    if (r == nullptr) continue;
    r->transmissions += transfers[id].transmissions;
    if (flights_[id].send.clear_to_send) {
      grants[r->index].push_back(transfers[id].delivered - transfers[id].start);
    }
  }
  for (auto& entry : grants) {
    set_grant_percentiles(entry.second, *record_of(entry.first));
  }
}

std::vector<OpenCall> Timeline::open_calls() const {
  using State = OpenCall::Member::State;
  std::vector<OpenCall> calls;
  const std::map<uint64_t, uint32_t> open(open_collectives_.begin(), open_collectives_.end());
  for (const auto& entry : open) {
    const Collective& c = collectives_[entry.second];
    OpenCall& call = calls.emplace_back();
    call.group = job_.groups[c.group].name;
    call.nth = c.nth;
    const auto& members = job_.groups[c.group].members;
    const auto strangers = strangers_.find(entry.first);
    for (uint32_t m = 0; m < members.size(); ++m) {
      OpenCall::Member& member = call.members.emplace_back();
      member.rank = members[m];
      if (c.op_of[m] != kNone) {
        member.state = c.member_done[m] != 0 ? State::through : State::entered;
        member.at = c.arrival[m];
        member.op = ranks_[member.rank].graph->name_of(c.op_of[m]);
        member.kind = c.kind;
        member.bytes = c.bytes;
        continue;
      }
      if (strangers == strangers_.end()) continue;
      for (const Stranger& x : strangers->second) {
        if (x.rank != member.rank) continue;
        member.state = State::other;
        member.at = x.at;
        member.op = ranks_[x.rank].graph->name_of(x.op);
        member.kind = x.call.kind;
        member.bytes = x.call.bytes;
      }
    }
  }
  return calls;
}

std::vector<ProcessExit> Timeline::exits() const {
  std::vector<ProcessExit> exits;
  for (uint32_t r = 0; r < ranks_.size() && options_.faults != nullptr; ++r) {
    const Time at = options_.faults->exits_at(r);
    if (at <= now_ && ranks_[r].left > 0) exits.push_back({r, at});
  }
  return exits;
}

std::string Timeline::describe_hang() {
  std::string text = "hang: " + std::to_string(ops_total_ - ops_done_) + " of " +
                     std::to_string(ops_total_) + " ops cannot run";
  int shown = 0;
  if (options_.faults != nullptr) {
    uint32_t stopped = 0;
    std::string ranks;
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      if (options_.faults->exits_at(r) > now_) continue;
      if (++stopped <= 8) ranks += " " + std::to_string(r);
    }
    if (stopped > 0) {
      text += "; the process of rank" + ranks + (stopped > 8 ? " ..." : "") + " is gone";
    }
    stopped = 0;
    ranks.clear();
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      if (options_.faults->exits_at(r) <= now_) continue;
      if (ranks_[r].left == 0 || options_.faults->runs_from(r, now_) != Time::infinity()) continue;
      if (++stopped <= 8) ranks += " " + std::to_string(r);
    }
    if (stopped > 0) {
      text += "; the GPU of rank" + ranks + (stopped > 8 ? " ..." : "") + " has stopped for good";
    }
  }
  // A host counts what is open; the members that it waits for are told below.
  if (fabric_.outstanding() > 0 && options_.host == nullptr) {
    return text + ": " + fabric_.describe_stall();
  }
  const std::map<uint64_t, uint32_t> open(open_collectives_.begin(), open_collectives_.end());
  for (const auto& entry : open) {
    const Collective& c = collectives_[entry.second];
    if (++shown > 2) break;
    const Group& g = job_.groups[c.group];
    std::string here;
    std::string missing;
    for (uint32_t m = 0; m < g.members.size(); ++m) {
      (c.op_of[m] == kNone ? missing : here) += " " + std::to_string(g.members[m]);
    }
    text += "; " + std::string(collective_name(c.kind)) + " " + op_label(c.first_rank, c.first_op) +
            " of group '" + g.name + "': ranks" + here +
            (missing.empty() ? " have all entered and do not get through"
                             : " wait for ranks" + missing);
    const auto strangers = strangers_.find(entry.first);
    if (strangers == strangers_.end()) continue;
    for (const Stranger& x : strangers->second) {
      text += ", rank " + std::to_string(x.rank) + " called " + collective_name(x.call.kind) +
              " of " + std::to_string(x.call.bytes) + " bytes instead of " +
              std::to_string(c.bytes);
      break;
    }
  }
  for (const auto& [key, index] : open_messages_) {
    const Message& m = messages_[index];
    if (m.started) continue;
    if (++shown > 3) break;
    if (m.recv_op == kNone) {
      text += "; rank " + std::to_string(m.src) + " waits in " + op_label(m.src, m.send_op) +
              " for a receive on rank " + std::to_string(m.dst);
    } else if (m.send_op == kNone) {
      text += "; rank " + std::to_string(m.dst) + " waits in " + op_label(m.dst, m.recv_op) +
              " for a send of rank " + std::to_string(m.src);
    }
  }
  if (shown == 0) {
    for (uint32_t r = 0; r < ranks_.size() && shown < 3; ++r) {
      if (ranks_[r].left == 0) continue;
      RankState& s = ranks_[r];
      for (uint32_t i = 0; i < s.graph->ops.size(); ++i) {
        const RankState::Page& page = s.pages[i / RankState::kPageOps];
        if (page.left == 0 || (s.pending(i)) == 0) continue;
        text += "; rank " + std::to_string(r) + ": " + op_label(r, i) + " waits for " +
                std::to_string(s.pending(i)) + " ops";
        ++shown;
        break;
      }
    }
  }
  return text;
}

}  // namespace trainyard
