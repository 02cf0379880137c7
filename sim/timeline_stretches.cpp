// SPDX-License-Identifier: MIT
// Stretches of a Timeline (sim/stretch.h): layers repeat, and what they did once from one state
// they do again. The first time a stretch is written down while it runs op by op; later ones that
// begin in the same state only book what was written, when someone asks for it or it is over.
#include <algorithm>

#include "sim/dice.h"
#include "sim/timeline.h"
#include "sim/timeline_state.h"

namespace trainyard {
namespace {

constexpr size_t kMostRecords = 4096;
constexpr uint32_t kMostFailures = 2;

}  // namespace

bool Timeline::may_replay() const {
  return options_.stretches && options_.host != nullptr && options_.faults == nullptr &&
         !options_.paced();
}

/// What the ops of a stretch are and how long its computation takes on GPUs of a kind, wherever in
/// a program it is.
const Hash128& Timeline::content_of(ClassInfo& info, const Stretch& stretch, uint32_t rank,
                                    uint64_t kind) {
  const auto [it, added] = info.contents.try_emplace({stretch.first, kind});
  Hash128& h = it->second;
  if (!added) return h;
  const OpGraph& g = *ranks_[rank].graph;
  h.add(static_cast<uint64_t>(g.streams[stretch.communication].dimension));
  for (uint32_t i = stretch.first; i <= stretch.last; ++i) {
    const Op& o = g.ops[i];
    h.add(static_cast<uint64_t>(o.kind));
    if (o.kind == OpKind::collective) {
      h.add(static_cast<uint64_t>(o.collective));
      h.add_signed(o.bytes);
    } else {
      h.add_signed(compute_.duration(g, i, rank).ps());
    }
    if (i == stretch.last) break;
    h.add(static_cast<uint64_t>(g.successors_end(i) - g.successors_begin(i)));
    for (const uint32_t* next = g.successors_begin(i); next != g.successors_end(i); ++next) {
      h.add(*next - stretch.first);
    }
  }
  return h;
}

std::vector<HostedCall> Timeline::calls_of(const Stretch& stretch, uint32_t rank) const {
  const OpGraph& g = *ranks_[rank].graph;
  const uint32_t gi = job_.ranks[rank].binding.groups[stretch.group_slot];
  const Group& group = job_.groups[gi];
  std::vector<HostedCall> calls;
  for (uint32_t i = stretch.first; i <= stretch.last; ++i) {
    const Op& o = g.ops[i];
    if (o.kind != OpKind::collective) continue;
    const int64_t bytes = request_bytes(o.collective, o.bytes, group.members.size());
    if (bytes <= 0) return {};
    const CollectiveRequest request{o.collective, bytes, &group.members, options_.placement,
                                    nullptr};
    calls.push_back({&selector_.choose(request), request, gi * 64, 0, class_of(rank)});
  }
  return calls;
}

/// No other communicator and no pair of ranks has both its ends in a server in which the group has
/// several members: what it does there meets nobody. (Where that is wrong, the host says so.)
bool Timeline::alone_in_servers(uint32_t group) {
  constexpr uint32_t kSeveral = kNone - 1;
  if (!options_.placement.server) return false;
  const auto node_of = [&](uint32_t rank) { return options_.placement.node_of(rank); };
  if (server_users_.empty()) {
    server_users_.assign(1, kNone);
    const auto use = [&](uint32_t server, uint32_t who) {
      if (server >= server_users_.size()) server_users_.resize(server + 1, kNone);
      uint32_t& user = server_users_[server];
      user = user == kNone || user == who ? who : kSeveral;
    };
    std::vector<char> used(job_.groups.size(), 0);
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      const RankBinding& b = job_.ranks[r].binding;
      for (const uint32_t slot : ranks_[r].info->group_slots) used[b.groups[slot]] = 1;
      for (const uint32_t peer : b.peers) {
        if (peer != r && peer < ranks_.size() && node_of(peer) == node_of(r)) {
          use(node_of(r), kSeveral);
        }
      }
    }
    std::vector<uint32_t> servers;
    for (uint32_t g = 0; g < job_.groups.size(); ++g) {
      if (used[g] == 0) continue;
      servers.clear();
      for (const uint32_t m : job_.groups[g].members) {
        if (m < ranks_.size()) servers.push_back(node_of(m));
      }
      std::sort(servers.begin(), servers.end());
      for (size_t i = 1; i < servers.size(); ++i) {
        if (servers[i] == servers[i - 1]) use(servers[i], g);
      }
    }
  }
  const auto& members = job_.groups[group].members;
  return std::all_of(members.begin(), members.end(), [&](uint32_t m) {
    if (m >= ranks_.size()) return false;
    const uint32_t server = node_of(m);
    return server < server_users_.size() && server_users_[server] == group;
  });
}

/// Whether nothing else is under way on the streams of the stretch that begins on `rank`.
bool Timeline::can_hold(uint32_t rank, const Stretch& stretch) const {
  const RankState& s = ranks_[rank];
  const auto& computation = s.streams[stretch.computation];
  const auto& ops = s.info->stream_ops[stretch.computation];
  return s.replay == nullptr && s.recording == nullptr && !computation.busy &&
         computation.cursor < ops.size() && ops[computation.cursor] == stretch.first_compute;
}

/// A member comes to a collective. @returns true when nobody needs to know yet.
bool Timeline::hold(uint32_t rank, uint32_t op) {
  RankState& s = ranks_[rank];
  const uint32_t gi = job_.ranks[rank].binding.groups[s.graph->ops[op].group_slot];
  const auto held = holds_.find(gi);
  const Stretch* stretch = options_.stretches ? s.info->stretch_at(op) : nullptr;
  if (held == holds_.end()) {
    if (stretch == nullptr) return false;
    auto fresh = std::make_unique<StretchHold>();
    if (!begin_hold(rank, op, *stretch, *fresh)) return false;
    holds_.emplace(gi, std::move(fresh));
  }
  StretchHold& h = *holds_.at(gi);
  const auto kind = compute_.kind_of(rank);
  if (s.info != h.info || op != h.op || !kind || !can_hold(rank, *stretch)) {
    const auto mine = std::move(holds_.at(gi));
    holds_.erase(gi);
    run_held(*mine);
    return false;
  }
  account(rank);
  h.arrivals.push_back({rank, now_});
  h.key.add(position(rank, s.graph->ops[op].group_slot));
  h.key.add_signed((now_ - h.begin).ps());
  h.key.add(content_of(*s.info, *stretch, rank, *kind));
  if (h.arrivals.size() < job_.groups[gi].members.size()) {
    wait(rank, op, 1);
    return true;
  }
  const auto mine = std::move(holds_.at(gi));
  holds_.erase(gi);
  decide(*mine);
  return true;
}

/// The first member has come.
bool Timeline::begin_hold(uint32_t rank, uint32_t op, const Stretch& stretch, StretchHold& h) {
  RankState& s = ranks_[rank];
  const uint32_t gi = job_.ranks[rank].binding.groups[stretch.group_slot];
  const auto kind = compute_.kind_of(rank);
  if (!kind || !can_hold(rank, stretch) || !alone_in_servers(gi)) return false;
  // Run one by one, its other members have to be, too.
  if (open_collectives_.contains((static_cast<uint64_t>(gi) << 32) | s.info->nth[op])) return false;
  Hash128 place = content_of(*s.info, stretch, rank, *kind);
  place.add(gi);
  auto site = sites_.find(place);
  if (site == sites_.end()) {
    const std::vector<HostedCall> calls = calls_of(stretch, rank);
    const uint32_t number =
        calls.empty() ? CollectiveHost::kNoSite : options_.host->open_site(calls);
    if (number == CollectiveHost::kNotYet) return false;
    site = sites_.emplace(place, number).first;
  }
  if (site->second == CollectiveHost::kNoSite) return false;
  const std::optional<Hash128> state = options_.host->site_state(site->second);
  if (!state) return false;
  h.group = gi;
  h.op = op;
  h.site = site->second;
  h.handle = options_.host->hold(h.site);
  h.info = s.info;
  h.begin = now_;
  h.key.add(*state);
  return true;
}

/// All members are here.
void Timeline::decide(const StretchHold& h) {
  const Group& group = job_.groups[h.group];
  const Stretch& stretch = *h.info->stretch_at(h.op);
  const auto known = stretches_.find(h.key);
  if (known != stretches_.end()) {
    replay(stretch, group, h, known->second);
    return;
  }
  uint32_t& times = recordings_[h.key];
  if (stretches_.size() < kMostRecords && times < kMostFailures) {
    times = kMostFailures;  // one at a time
    record(h.key, stretch, group, h);
  }
  run_held(h);
}

/// The host is told after all, as if it had been at once.
void Timeline::run_held(const StretchHold& h) {
  options_.host->let_go(h.handle);
  const size_t members = job_.groups[h.group].members.size();
  for (size_t i = 0; i < h.arrivals.size(); ++i) {
    const StretchHold::Arrival& a = h.arrivals[i];
    come(a.rank, h.op, a.at, i + 1 < members);
  }
}

/// Nothing else goes on: who waits for whom is looked up in what runs.
bool Timeline::release_holds() {
  const bool any = !holds_.empty();
  const auto held = std::move(holds_);
  holds_.clear();
  for (const auto& entry : held) run_held(*entry.second);
  if (any) options_.stretches = false;
  return any;
}

void Timeline::record(const Hash128& key, const Stretch& stretch, const Group& group,
                      const StretchHold& h) {
  const auto n = static_cast<uint32_t>(group.members.size());
  auto recording = std::make_shared<StretchRecording>();
  recording->key = key;
  recording->first = stretch.first;
  recording->last = stretch.last;
  recording->site = h.site;
  recording->members_left = n;
  recording->begin = h.begin;
  recording->record = std::make_shared<StretchRecord>();
  StretchRecord& r = *recording->record;
  r.members.resize(n);
  r.ends.resize(n);
  r.calls.resize(stretch.collectives);
  recording->calls.assign(stretch.collectives, kNone);
  const OpGraph& g = *ranks_[group.members.front()].graph;
  uint32_t calls = 0;
  for (uint32_t i = stretch.first; i <= stretch.last; ++i) {
    r.call_of.push_back(calls);
    if (g.ops[i].kind == OpKind::collective) ++calls;
  }
  for (uint32_t m = 0; m < n; ++m) {
    RankState& s = ranks_[group.members[m]];
    s.recording = recording;
    s.member = m;
  }
  options_.host->watch(h.site, h.begin);
}

// ---------------------------------------------------------------- writing down

void Timeline::write_down(uint32_t rank, uint32_t op, StretchEvent what, Time length) {
  const RankState& s = ranks_[rank];
  StretchRecording& r = *s.recording;
  if (op < r.first || op > r.last) return;
  if (op == r.first && what == StretchEvent::arrive) return;  // before it is known what comes of it
  r.record->members[s.member].push_back({now_ - r.begin, length, op - r.first, what});
}

/// A collective is through, and `rank` was the last.
void Timeline::write_down(uint32_t rank, const Collective& c) {
  StretchRecording& r = *ranks_[rank].recording;
  if (c.first_op < r.first || c.first_op > r.last) return;
  const auto& members = job_.groups[c.group].members;
  const uint32_t index = r.record->call_of[c.first_op - r.first];
  StretchRecord::Call& call = r.record->calls[index];
  call.first_arrival = c.record.first_arrival - r.begin;
  call.start = c.record.start - r.begin;
  call.finish = now_ - r.begin;
  call.kernel_mean = Time::ps(c.kernel_total.ps() / c.record.ranks);
  call.last_member = static_cast<uint32_t>(
      std::find(members.begin(), members.end(), c.record.last_rank) - members.begin());
  call.algorithm = c.algorithm;
  r.calls[index] = c.call;
}

/// An op ends on a rank that is in a stretch, or may be.
void Timeline::end_in_stretch(uint32_t rank, uint32_t op) {
  RankState& s = ranks_[rank];
  if (s.replay != nullptr) {
    replay_until_now(rank);
    StretchReplay& r = *s.replay;
    if (op != r.last) return;
    if (r.open) {
      r.open = false;
      options_.host->replayed(r.handle);
    }
    s.replay = nullptr;
    return;
  }
  const std::shared_ptr<StretchRecording> recording = s.recording;
  StretchRecording& r = *recording;
  if (op < r.first || op > r.last) return;
  if (op != r.last) {
    // That of a collective has been written down.
    if (s.graph->ops[op].kind != OpKind::collective) {
      write_down(rank, op, StretchEvent::end, Time());
    }
    return;
  }
  r.record->ends[s.member] = now_ - r.begin;
  const auto members = static_cast<uint32_t>(r.record->members.size());
  // What comes next may use the same links.
  if (r.members_left == members) r.record->host = options_.host->watched(r.site);
  s.recording = nullptr;
  if (--r.members_left > 0) return;
  if (r.failed || r.record->host == nullptr) {
    recordings_[r.key] = 1 + (r.failed ? kMostFailures : 0);
    return;
  }
  for (uint32_t i = 0; i < r.calls.size(); ++i) {
    r.record->calls[i].tally = options_.host->tally(r.calls[i]);
  }
  stretches_.emplace(r.key, r.record);
  recordings_.erase(r.key);
}

// ---------------------------------------------------------------- replay

void Timeline::replay(const Stretch& stretch, const Group& group, const StretchHold& h,
                      const std::shared_ptr<const StretchRecord>& record) {
  const auto n = static_cast<uint32_t>(group.members.size());
  auto replay = std::make_shared<StretchReplay>();
  replay->record = record;
  replay->first = stretch.first;
  replay->last = stretch.last;
  replay->begin = h.begin;
  replay->owner = static_cast<uint32_t>(owners_.size());
  replay->handle = h.handle;
  options_.host->replay(h.handle, record->host, h.begin);
  const OpGraph& g = *ranks_[group.members.front()].graph;
  for (uint32_t i = stretch.first; i <= stretch.last; ++i) {
    const Op& o = g.ops[i];
    if (o.kind != OpKind::collective) continue;
    const StretchRecord::Call& call = record->calls[record->call_of[i - stretch.first]];
    Collective c;
    c.group = job_.ranks[group.members.front()].binding.groups[stretch.group_slot];
    c.first_rank = group.members.front();
    c.first_op = i;
    c.algorithm = call.algorithm;
    CollectiveRecord& r = c.record;
    r.index = next_record_++;
    r.kind = o.collective;
    r.ranks = n;
    r.bytes = o.bytes;
    r.first_arrival = h.begin + call.first_arrival;
    r.start = h.begin + call.start;
    r.finish = h.begin + call.finish;
    r.wait_max = r.start - r.first_arrival;
    r.kernel_mean = call.kernel_mean;
    r.last_rank = group.members[call.last_member];
    r.owner = static_cast<uint32_t>(owners_.size());
    r.transfers = call.tally.transfers;
    r.wire_payload = call.tally.payload;
    r.transmissions = call.tally.transmissions;
    r.cts_count = call.tally.cts_count;
    r.cts_p50 = call.tally.cts_p50;
    r.cts_p90 = call.tally.cts_p90;
    r.cts_p99 = call.tally.cts_p99;
    owners_.push_back({nullptr, r.index, o.collective});
    keep(c);
  }
  const uint32_t ops = stretch.last - stretch.first;  // but for the last one, which is to end yet
  for (uint32_t m = 0; m < n; ++m) {
    const uint32_t rank = group.members[m];
    RankState& s = ranks_[rank];
    account(rank);
    s.replay = replay;
    s.member = m;
    s.next_step = 0;
    for (uint32_t i = stretch.first; i < stretch.last; ++i) s.done_with(i);
    s.left -= ops;
    s.left_in_front -= ops;
    ops_done_ += ops;
    ops_replayed_ += ops;
    auto& communication = s.streams[stretch.communication];
    communication.busy = false;
    communication.cursor += stretch.collectives - 1;
    auto& computation = s.streams[stretch.computation];
    computation.busy = true;
    computation.cursor += ops + 1 - stretch.collectives;
    events_.push((h.begin + record->ends[m]).ps(), rank, stretch.last);
  }
}

/// Books what a rank has done in its stretch by now, as it would have been booked op by op.
void Timeline::replay_until_now(uint32_t rank) {
  RankState& s = ranks_[rank];
  const StretchReplay& r = *s.replay;
  const auto& steps = r.record->members[s.member];
  while (s.next_step < steps.size()) {
    const StretchStep& step = steps[s.next_step];
    const Time at = r.begin + step.at;
    if (at > now_) return;
    ++s.next_step;
    const uint32_t op = r.first + step.op;
    const Op& o = s.graph->ops[op];
    book(rank, at);
    const auto call = [&] { return r.record->call_of[step.op]; };
    const auto last_member = [&] { return r.record->calls[call()].last_member; };
    switch (step.what) {
      case StretchEvent::begin:
        ++s.computing;
        emit(rank, op, o.kind == OpKind::memory ? Span::Kind::memory : Span::Kind::compute, at,
             at + step.length);
        break;
      case StretchEvent::end:
        --s.computing;
        fingerprint_ += dice(static_cast<uint64_t>(at.ps()), 100, rank, op);
        break;
      case StretchEvent::arrive:
        if (last_member() != s.member) wait(rank, op, 1);
        break;
      case StretchEvent::all_here:
        if (last_member() != s.member) {
          wait(rank, op, -1);
          const auto& members = job_.groups[job_.ranks[rank].binding.groups[o.group_slot]].members;
          emit(rank, op, Span::Kind::wait, at - step.length, at, r.owner + call(),
               members[last_member()]);
        }
        move(rank, op, 1);
        break;
      case StretchEvent::through:
        move(rank, op, -1);
        emit(rank, op, Span::Kind::collective, at - step.length, at, r.owner + call());
        fingerprint_ += dice(static_cast<uint64_t>(at.ps()), 100, rank, op);
        break;
    }
  }
}

}  // namespace trainyard
