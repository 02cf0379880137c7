// SPDX-License-Identifier: MIT
// What goes on in the domains: who is simulated, who follows, what is told when.
#include <algorithm>
#include <cmath>
#include <utility>

#include "memo/domain_fabric.h"
#include "memo/worker_pool.h"
#include "network/link_record.h"
#include "network/packet/domain_dice.h"
#include "sim/dice.h"
#include "sim/errors.h"

namespace trainyard {
namespace {

constexpr int64_t kNever = INT64_MAX;
constexpr int64_t kPast = INT64_MIN / 2;

int64_t ps_of(Time t) {
  return t == Time::infinity() ? kNever : t.ps();
}

}  // namespace

void DomainFabric::add_totals(FabricTotals& a, const FabricTotals& b) {
  a.data_packets += b.data_packets;
  a.ack_packets += b.ack_packets;
  a.cnp_packets += b.cnp_packets;
  a.pfc_frames += b.pfc_frames;
  a.ecn_marks += b.ecn_marks;
  a.pfc_pauses += b.pfc_pauses;
  a.pfc_resumes += b.pfc_resumes;
  a.drops += b.drops;
  a.retransmitted += b.retransmitted;
  a.timeouts += b.timeouts;
  a.nacks += b.nacks;
  a.payload_bytes += b.payload_bytes;
  a.rate_changes += b.rate_changes;
  a.out_of_order += b.out_of_order;
  a.pfc_refreshes += b.pfc_refreshes;
  a.watchdog_events += b.watchdog_events;
  a.reroutes += b.reroutes;
  a.cyclic_waits += b.cyclic_waits;
}

// ---------------------------------------------------------------- leaders and followers

/// Finds out how a domain with new inputs goes on: everything up to now is done, nothing more will
/// be told it at this instant.
void DomainFabric::assign(uint32_t domain) {
  if (options_.partition && options_.memo && !domains_[domain].disturbed && follow(domain)) return;
  lead(domain);
}

bool DomainFabric::follow(uint32_t domain) {
  Domain& d = domains_[domain];
  const auto* candidates = store_.find(d.hashes.back());
  if (candidates == nullptr) return false;
  const size_t pos = d.inputs.size() + d.outputs;
  for (auto it = candidates->rbegin(); it != candidates->rend(); ++it) {
    const std::shared_ptr<Episode> e = it->lock();
    if (!e) continue;
    if (pos > e->log.size() || (pos == e->log.size() && !e->open)) continue;
    // It was told as much, and no more, by the time that it had said as much.
    size_t last = pos;
    while (last > 0 && e->log[last - 1].kind != Episode::Kind::input) --last;
    if (last == 0 || e->log[last - 1].label + 1 != d.inputs.size()) continue;
    if (pos < e->log.size() && e->log[pos].kind == Episode::Kind::input &&
        d.start + e->log[pos].time_ps <= now_) {
      continue;  // its next input did not come here
    }
    if (e->open && domains_[e->followers.front()].start > d.start) continue;
    // What it has told so far need not be what this one says.
    if ((d.approximate || e->approximate) && d.outputs > 0 && d.episode != e) continue;
    d.approximate = d.approximate || e->approximate;
    d.mode = Domain::Mode::follower;
    d.episode = e;
    d.pos = pos;
    if (e->open) e->followers.push_back(domain);
    store_.used(e);
    set_pools(d, e->pools);
    schedule(domain);
    return true;
  }
  return false;
}

void DomainFabric::lead(uint32_t domain) {
  {
    Domain& d = domains_[domain];
    d.mode = Domain::Mode::leader;
    const bool steps = worth_stepping(d);
    d.approximate = d.approximate || steps;
    d.recorded = options_.partition && options_.memo && !d.disturbed && may_be_followed() &&
                 !dicey_.contains(d.hashes.back());
    if (now_ > d.start && d.again_until == 0) {
      d.again_until = now_;
      ++stats_.materialised;
    }
    d.skip = options_.stepping ? 0 : d.outputs;
    d.events_seen = 0;
    d.reached = d.start;
    DomainRegistry& registry = *this;
    d.run = std::make_unique<DomainRun>(topology_, config_, registry, steps);
    if (steps) d.run->stepped()->tolerate_pauses(options_.ignored_pauses_ppm);
    if (options_.jumps && options_.partition && !steps && !d.disturbed) {
      d.run->packets()->use_period_jumps();
    }
    d.episode = nullptr;
    if (d.recorded) {
      d.episode = std::make_shared<Episode>();
      d.episode->approximate = d.approximate;
      d.episode->followers.push_back(domain);  // the leader itself, first
      d.run->record_trace(&d.episode->trace);
    }
    leaders_.add(domain);
  }
  const std::vector<Input> inputs = domains_[domain].inputs;
  replaying_ = true;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Domain& d = domains_[domain];
    const Input& in = inputs[i];
    // Flows that begin by themselves share a round with what comes at a later instant.
    if (i == 0 || in.round != inputs[i - 1].round || in.at != inputs[i - 1].at || in.before) {
      const int64_t limit = in.before ? in.at - 1 : in.at;
      while (ps_of(d.run->next_event()) <= limit) {
        run_leader(domain, limit);
        TRAINYARD_ASSERT(d.ready.empty() || options_.stepping);
      }
    }
    feed(*d.run, in);
    if (d.disturbed) adopt_links(domain);
    if (!d.recorded) continue;
    d.episode->log.push_back({in.at - d.start, static_cast<uint32_t>(i), 0, Episode::Kind::input});
    d.episode->hashes.push_back(d.hashes[i]);
    store_.index(d.episode);
  }
  Domain& d = domains_[domain];
  for (uint32_t label = 0; label < d.links.size(); ++label) {
    TRAINYARD_ASSERT(d.run->global_port(2 * label) == 2 * d.links[label]);
  }
  while (d.skip > 0) run_leader(domain, now_);
  replaying_ = false;
  // Stepped another way than before, all may be over already.
  if (options_.stepping && d.mode == Domain::Mode::leader && d.run->idle()) end_leader(d, now_);
  clock(domain);
}

/// Which output it is, whatever the labels.
uint64_t DomainFabric::telling(const Domain& d, const DomainOutput& o) {
  const bool call = o.what == DomainOutput::What::done;
  const uint32_t id = call ? d.calls[o.label] : d.transfers[o.label];
  return static_cast<uint64_t>(o.what) << 60 | static_cast<uint64_t>(id) << 28 | o.member;
}

/// Fluids are near enough (docs/fast-path.md): messages are long, and of the queue pairs of
/// different NICs so few share a link that each sends many packets between two decisions.
bool DomainFabric::can_be_stepped(const Domain& d) const {
  constexpr uint32_t kMostSharing = 24;
  constexpr int64_t kShortest = 256 << 10;
  if (!options_.stepping || !options_.partition || d.no_stepping) return false;
  return d.payload >= kShortest * d.messages && d.most_sharing <= kMostSharing;
}

/// Domains of about the same size cost about the same.
uint64_t DomainFabric::kind_of(const Domain& d) {
  return dice(d.qps.size(), static_cast<uint32_t>(d.most_sharing), d.links.size(),
              d.transfers.size() << 32 | d.calls.size());
}

/// What stepping would cost, about, and the least to look at before judging. Windows are looked at
/// twice per round trip.
uint64_t DomainFabric::affordable(const Domain& d) const {
  const uint64_t events = 10'000 + 10 * static_cast<uint64_t>(d.messages);
  return config_.window == WindowRule::none ? events : 20 * events;
}

/// Where packets cost more: where dice decide, so that nothing recurs, or where domains like this
/// one did not repeat themselves either.
bool DomainFabric::worth_stepping(const Domain& d) const {
  constexpr uint32_t kTrials = 2;
  if (!can_be_stepped(d)) return false;
  if (d.costly || d.approximate) return true;
  const auto known = costs_.find(kind_of(d));
  return known != costs_.end() && (known->second.dice || known->second.costly >= kTrials);
}

/// A leader is simulated as packets until it is known to be costly. @returns true when it was, and
/// will be stepped.
bool DomainFabric::on_trial(uint32_t domain) {
  Domain& d = domains_[domain];
  if (!can_be_stepped(d)) return false;
  const bool drew = d.run->drew_dice();
  if (!drew && d.run->events() <= affordable(d)) return false;
  Cost& c = costs_[kind_of(d)];
  ++c.costly;
  c.dice = c.dice || drew;
  d.costly = true;
  ++stats_.trials;
  begin_anew(domain);
  return true;
}

/// It met a pause or a loss: packets after all, from its start.
void DomainFabric::stop_stepping(uint32_t domain) {
  ++stats_.stepping_stopped;
  domains_[domain].no_stepping = true;
  begin_anew(domain);
}

/// A leader is simulated from its start, in another way than before.
void DomainFabric::begin_anew(uint32_t domain) {
  if (domains_[domain].joined) {
    // With labels in order of its inputs.
    merge({domain});
    return;
  }
  Domain& d = domains_[domain];
  if (d.recorded) {
    d.run->record_trace(nullptr);
    d.episode->open = false;
    d.recorded = false;
    wake_followers(*d.episode);
  }
  d.episode = nullptr;
  d.again_until = std::max(d.again_until, now_);
  d.run.reset();
  d.ready.clear();
  leaders_.remove(domain);
  d.mode = Domain::Mode::pending;
  pending_.push_back(domain);
}

int64_t DomainFabric::leader_time(const Domain& d) const {
  if (!d.ready.empty() || d.ended) return d.ready_at;
  return ps_of(d.run->next_event());
}

/// Something about a leader's next event has changed. `tells`: it tells nothing before, where that
/// is known.
void DomainFabric::clock(uint32_t domain, std::optional<int64_t> tells) {
  if (!leaders_.has(domain)) return;
  const Domain& d = domains_[domain];
  const bool ready = !d.ready.empty() || d.ended;
  const int64_t at = leader_time(d);
  leaders_.set(domain, at, ready, ready ? at : tells ? *tells : d.run->no_output_before());
}

/// Simulates a leader up to `horizon`, or to its next output or end.
void DomainFabric::run_leader(uint32_t domain, int64_t horizon) {
  if (turns_.empty()) turns_.emplace_back();
  Turn& turn = turns_.front();
  begin_turn(turn, domain, horizon);
  turn.reached = turn.run->advance(turn.limit, turn.outputs);
  end_turn(turn);
}

/// Simulates leaders, the earliest among them, as far as nobody else tells something before, and
/// not beyond `bound`. What one of them does there means nothing to another one; what it means for
/// the rest is settled in order of (time, domain).
void DomainFabric::run_leaders(int64_t bound) {
  going_on_.clear();
  leaders_.going_on(bound, going_on_);
  const size_t n = going_on_.size();
  if (n > 1) {
    std::sort(going_on_.begin(), going_on_.end(), [](const auto& a, const auto& b) {
      return a.at != b.at ? a.at < b.at : a.domain < b.domain;
    });
  }
  if (turns_.size() < n) turns_.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t domain = going_on_[i].domain;
    begin_turn(turns_[i], domain, std::min(bound, leaders_.tells_but(domain)));
  }
  simulate_all(n);
  const uint64_t before = stats_.events;
  for (size_t i = 0; i < n; ++i) {
    Turn& turn = turns_[i];
    if (turn.failure) std::rethrow_exception(std::exchange(turn.failure, nullptr));
    end_turn(turn);
    clock(turn.domain, turn.tells);
  }
  if (n > 1) stats_.events_beside += stats_.events - before;
}

/// The first `n` turns, by several threads where that pays.
void DomainFabric::simulate_all(size_t n) {
  if (n > 1 && options_.threads > 1) {
    uint64_t expected = 0;
    for (size_t i = 0; i < n && expected < options_.worth_sharing; ++i) {
      expected += expected_events(turns_[i]);
    }
    if (expected >= options_.worth_sharing) {
      if (!workers_) workers_ = std::make_unique<WorkerPool>(options_.threads);
      homes_.clear();
      for (size_t i = 0; i < n; ++i) homes_.push_back(turns_[i].domain);
      workers_->run(homes_, [this](uint32_t i) { simulate(turns_[i]); });
      return;
    }
  }
  for (size_t i = 0; i < n; ++i) simulate(turns_[i]);
}

/// What is to be expected of a leader that goes on as it has so far.
uint64_t DomainFabric::expected_events(const Turn& turn) const {
  constexpr double kMost = 1024;  // it may stop long before its limit
  const Domain& d = domains_[turn.domain];
  const auto age = static_cast<double>(d.reached - d.start);
  if (age <= 0) return 0;
  if (turn.limit == Time::infinity()) return static_cast<uint64_t>(kMost);
  const auto span = static_cast<double>(turn.limit.ps() - d.reached);
  const double events = static_cast<double>(d.events_seen) * span / age;
  return static_cast<uint64_t>(std::clamp(events, 0.0, kMost));
}

void DomainFabric::begin_turn(Turn& turn, uint32_t domain, int64_t horizon) {
  Domain& d = domains_[domain];
  turn.domain = domain;
  turn.run = d.run.get();
  turn.outputs.clear();
  turn.again = d.again_until > 0 && ps_of(d.run->next_event()) <= d.again_until;
  if (turn.again) horizon = std::min(horizon, d.again_until);
  turn.on_probation =
      options_.stepping && d.run->packets() != nullptr && !replaying_ && can_be_stepped(d);
  turn.jumps = turn.on_probation ? d.run->packets()->jumps().jumps : 0;
  if (turn.on_probation) {
    if (d.slice == 0) d.slice = kSlice;
    const int64_t next = ps_of(d.run->next_event());
    if (next < kNever - d.slice) horizon = std::min(horizon, next + d.slice);
  }
  turn.limit = horizon == kNever ? Time::infinity() : Time::ps(horizon);
}

/// On any thread: touches nothing but the domain's run and the turn.
void DomainFabric::simulate(Turn& turn) {
  turn.tells.reset();
  try {
    turn.reached = turn.run->advance(turn.limit, turn.outputs);
    if (turn.outputs.empty()) turn.tells = turn.run->no_output_before();
  } catch (...) {
    turn.failure = std::current_exception();
  }
}

void DomainFabric::end_turn(Turn& turn) {
  const uint32_t domain = turn.domain;
  Domain& d = domains_[domain];
  d.reached = turn.reached.ps();
  const uint64_t events = d.run->events();
  stats_.events += events - d.events_seen;
  if (turn.again) stats_.events_again += events - d.events_seen;
  if (d.run->stepped() != nullptr) stats_.events_stepped += events - d.events_seen;
  d.events_seen = events;
  if (d.run->packets() != nullptr) {
    if (options_.stepping && !replaying_ && on_trial(domain)) return;
    // A period found is not cut short again so soon.
    if (turn.on_probation && d.run->packets()->jumps().jumps > turn.jumps) d.slice *= 2;
    if (options_.partition && d.run->packets()->take_pool_changed()) update_pools(domain);
  } else if (!d.run->stepped()->declined().empty() && !replaying_) {
    stop_stepping(domain);
    return;
  }
  if (d.recorded && d.run->drew_own_dice()) stop_recording(domain);
  if (d.recorded) log(d, turn.outputs);
  if (options_.stepping) {
    std::erase_if(turn.outputs,
                  [&](const DomainOutput& o) { return d.told.contains(telling(d, o)); });
  }
  if (!turn.outputs.empty()) {
    if (d.skip > 0) {
      TRAINYARD_ASSERT(d.skip >= turn.outputs.size());
      d.skip -= turn.outputs.size();
    } else {
      d.ready.insert(d.ready.end(), turn.outputs.begin(), turn.outputs.end());
      d.ready_at = std::max(turn.reached.ps(), now_);
    }
  }
  if (d.disturbed) adopt_links(domain);
  if (options_.partition && d.run->idle() && d.skip == 0 && !replaying_ &&
      (!d.disturbed || d.run->packets()->as_built())) {
    end_leader(d, std::max(turn.reached.ps(), now_));
  }
  if (d.recorded) wake_followers(*d.episode);
}

void DomainFabric::end_leader(Domain& d, int64_t at) {
  d.ended = true;
  d.ready_at = at;
  finish_episode(d);
  if (options_.stepping && d.run->packets() != nullptr) {
    if (d.run->events() > affordable(d)) ++costs_[kind_of(d)].costly;
  }
  if (!d.recorded) return;
  d.episode->log.push_back({at - d.start, 0, 0, Episode::Kind::end});
  d.episode->open = false;
  store_.keep(d.episode);
  ++stats_.episodes;
}

void DomainFabric::log(Domain& d, const std::vector<DomainOutput>& outputs) {
  for (const DomainOutput& o : outputs) {
    const auto kind = o.what == DomainOutput::What::delivered      ? Episode::Kind::delivered
                      : o.what == DomainOutput::What::acknowledged ? Episode::Kind::acknowledged
                                                                   : Episode::Kind::done;
    d.episode->log.push_back({o.at.ps() - d.start, o.label, o.member, kind});
  }
}

/// Draws decided something: what comes from now on holds for this domain only.
void DomainFabric::stop_recording(uint32_t domain) {
  Domain& d = domains_[domain];
  // Whoever begins like this need not be written down.
  for (const Hash128& h : d.hashes) dicey_.insert(h);
  ++stats_.dice_domains;
  d.run->record_trace(nullptr);
  const std::shared_ptr<Episode> e = d.episode;
  d.recorded = false;
  d.episode = nullptr;
  e->open = false;
  wake_followers(*e);
}

/// The log has grown or will grow no more.
void DomainFabric::wake_followers(Episode& e) {
  if (e.followers.size() <= 1) return;
  const std::vector<uint32_t> followers(e.followers.begin() + 1, e.followers.end());
  e.followers.resize(1);
  for (const uint32_t f : followers) {
    Domain& d = domains_[f];
    if (!d.used || d.mode != Domain::Mode::follower || d.episode.get() != &e) continue;
    if (e.open) e.followers.push_back(f);
    if (d.waiting) schedule(f);
  }
}

/// When a follower is due next. A domain that has come to the end of a log waits for its leader, or
/// has to find another way.
void DomainFabric::schedule(uint32_t domain) {
  Domain& d = domains_[domain];
  ++d.version;
  const Episode& e = *d.episode;
  d.waiting = d.pos == e.log.size() && e.open;
  if (d.pos < e.log.size()) {
    followers_.push({d.start + e.log[d.pos].time_ps, domain, d.version});
  } else if (!e.open) {
    d.mode = Domain::Mode::pending;
    pending_.push_back(domain);
  }
}

// ---------------------------------------------------------------- buffers

void DomainFabric::update_pools(uint32_t domain) {
  Domain& d = domains_[domain];
  if (d.switches.empty()) return;
  std::vector<PoolUse> uses;
  d.run->packets()->pool_use(uses);
  set_pools(d, uses);
  if (!d.recorded) return;
  d.episode->pools = uses;
  for (size_t i = 1; i < d.episode->followers.size(); ++i) {
    Domain& f = domains_[d.episode->followers[i]];
    if (f.used && f.mode == Domain::Mode::follower && f.episode == d.episode) set_pools(f, uses);
  }
}

void DomainFabric::set_pools(Domain& d, const std::vector<PoolUse>& uses) {
  d.pools.clear();
  for (const PoolUse& u : uses) {
    if (u.port / 2 >= d.links.size()) continue;  // its leader has come to use more by now
    const uint32_t node = topology_.to(2 * d.links[u.port / 2] + (u.port & 1U));
    d.pools.push_back({node, u.peak, u.room});
    const auto users = switch_users_.find(node);
    if (users != switch_users_.end() && users->second.size() > 1) crowded_.push_back(node);
  }
}

bool DomainFabric::pools_fit(uint32_t node) const {
  const auto users = switch_users_.find(node);
  if (users == switch_users_.end() || users->second.size() < 2) return true;
  int64_t sum = 0;
  int64_t room = INT64_MAX;
  size_t active = 0;
  for (const uint32_t u : users->second) {
    for (const Pool& p : domains_[u].pools) {
      if (p.node != node) continue;
      sum += p.peak;
      if (p.peak > 0) ++active;
      room = std::min(room, p.room);
    }
  }
  if (active == 1 && room < 0) {
    // The only one that uses the buffer may do what it likes.
    return true;
  }
  return sum <= room;
}

/// @returns true when domains have been merged.
bool DomainFabric::settle_pools() {
  bool merged = false;
  while (!crowded_.empty()) {
    const uint32_t node = crowded_.back();
    crowded_.pop_back();
    if (pools_fit(node)) continue;
    const std::vector<uint32_t> users = switch_users_[node];
    stats_.pool_merges += users.size() - 1;
    merge(users);
    merged = true;
  }
  return merged;
}

// ---------------------------------------------------------------- time

Time DomainFabric::next_event() const {
  int64_t next = kNever;
  if (!pending_.empty() || !through_at_once_.empty()) next = now_;
  if (!future_.empty()) next = std::min(next, future_.top().at);
  auto* self = const_cast<DomainFabric*>(this);
  while (!self->followers_.empty()) {
    const Due& due = self->followers_.top();
    if (domains_[due.domain].version == due.version) {
      next = std::min(next, due.at);
      break;
    }
    self->followers_.pop();
  }
  next = std::min(next, leaders_.first().at);
  return next == kNever ? Time::infinity() : Time::ps(std::max(next, now_));
}

Time DomainFabric::advance(Time limit_time, std::vector<Completion>& out) {
  const int64_t limit = ps_of(limit_time);
  if (!through_at_once_.empty()) {
    done_.swap(through_at_once_);
    return Time::ps(now_);
  }
  if (limit <= now_) return Time::ps(now_);
  ++round_;
  const size_t before = out.size();
  std::vector<uint32_t> due;
  for (;;) {
    while (!pending_.empty()) {
      const uint32_t d = pending_.back();
      pending_.pop_back();
      assign(d);
    }
    if (!crowded_.empty() && settle_pools()) continue;
    // The earliest of all, and for the earliest leader the earliest of the others.
    while (!followers_.empty() &&
           domains_[followers_.top().domain].version != followers_.top().version) {
      followers_.pop();
    }
    const int64_t future = future_.empty() ? kNever : future_.top().at;
    const int64_t follower = followers_.empty() ? kNever : followers_.top().at;
    const LeaderClock::First first = leaders_.first();
    const int64_t next = std::min({future, follower, first.at});
    if (next > limit || next == kNever) {
      if (limit != kNever) now_ = limit;
      return Time::ps(now_);
    }
    if (future == next) {
      const uint32_t id = future_.top().id;
      const bool change = future_.top().change;
      future_.pop();
      if (change) {
        disturb(id, next);
        continue;
      }
      scratch_qps_.clear();
      queue_pairs(transfers_[id], scratch_qps_);
      const uint32_t d = domain_for(scratch_qps_, next);
      const Domain& domain = domains_[d];
      // Only a domain that does something at this instant can tell before from after.
      bool busy = false;
      if (domain.mode == Domain::Mode::leader) busy = leader_time(domain) <= next;
      if (domain.mode == Domain::Mode::follower) {
        busy = domain.pos < domain.episode->log.size() &&
               domain.start + domain.episode->log[domain.pos].time_ps <= next;
      }
      now_ = std::max(now_, busy ? next - 1 : next);
      add(d, {next, serial_++, busy ? ++round_ : round_, busy, Input::Kind::transfer, id, 0});
      continue;
    }
    if (first.at == next && !first.ready) {
      run_leaders(std::min({limit, follower, future == kNever ? kNever : future - 1}));
      continue;
    }
    // Everything has been simulated through `next`: what happened at it is told.
    due.clear();
    leaders_.due(next, due);
    std::vector<uint32_t> unfed;
    while (!followers_.empty() && followers_.top().at == next) {
      const Due entry = followers_.top();
      followers_.pop();
      const Domain& d = domains_[entry.domain];
      if (d.version != entry.version) continue;
      if (d.episode->log[d.pos].kind == Episode::Kind::input)
        unfed.push_back(entry.domain);
      else
        due.push_back(entry.domain);
    }
    std::sort(due.begin(), due.end());
    now_ = std::max(now_, next);
    for (const uint32_t d : due) commit(d, next, out);
    const bool told = out.size() != before || !done_.empty();
    if (told || next == limit) {
      for (const uint32_t f : unfed) schedule(f);
    } else {
      // Nothing is left that could lead to the input they wait for.
      for (const uint32_t f : unfed) {
        domains_[f].mode = Domain::Mode::pending;
        ++domains_[f].version;
        pending_.push_back(f);
      }
    }
    if (told) {
      std::sort(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(),
                [](const Completion& a, const Completion& b) {
                  return a.id != b.id ? a.id < b.id : a.what < b.what;
                });
      std::sort(done_.begin(), done_.end(), [](const Done& a, const Done& b) {
        return a.call != b.call ? a.call < b.call : a.member < b.member;
      });
      return Time::ps(now_);
    }
    if (due.empty() && next == limit) return Time::ps(now_);
  }
}

/// Tells what a domain does at this instant.
void DomainFabric::commit(uint32_t domain, int64_t at, std::vector<Completion>& out) {
  Domain& d = domains_[domain];
  const auto tell = [&](DomainOutput::What what, uint32_t label, uint32_t member) {
    ++d.outputs;
    if (options_.stepping) {
      DomainOutput o;
      o.what = what;
      o.label = label;
      o.member = member;
      d.told.emplace(telling(d, o), at);
    }
    if (what == DomainOutput::What::done) {
      done_.push_back({d.calls[label], member});
      return;
    }
    const uint32_t id = d.transfers[label];
    if (what == DomainOutput::What::delivered) {
      records_[id].delivered = Time::ps(at);
    } else {
      records_[id].acknowledged = Time::ps(at);
      --transfers_open_;
    }
    out.push_back({Time::ps(at), id,
                   what == DomainOutput::What::delivered ? Completion::What::delivered
                                                         : Completion::What::acknowledged});
  };
  if (d.mode == Domain::Mode::leader) {
    for (const DomainOutput& o : d.ready) tell(o.what, o.label, o.member);
    d.ready.clear();
    clock(domain);
    if (d.ended) end(domain);
    return;
  }
  const std::shared_ptr<Episode> e = d.episode;
  while (d.pos < e->log.size() && d.start + e->log[d.pos].time_ps == at) {
    const Episode::Entry& entry = e->log[d.pos];
    switch (entry.kind) {
      case Episode::Kind::input:
        schedule(domain);
        return;
      case Episode::Kind::end:
        end(domain);
        return;
      case Episode::Kind::delivered:
        tell(DomainOutput::What::delivered, entry.label, 0);
        break;
      case Episode::Kind::acknowledged:
        tell(DomainOutput::What::acknowledged, entry.label, 0);
        break;
      case Episode::Kind::done:
        tell(DomainOutput::What::done, entry.label, entry.member);
        break;
    }
    ++d.pos;
  }
  schedule(domain);
}

// ---------------------------------------------------------------- ends

/// Writes down what the domain leaves behind, relative to its start and end.
void DomainFabric::finish_episode(Domain& d) {
  if (!d.episode) d.episode = std::make_shared<Episode>();
  Episode& e = *d.episode;
  const DomainRun& p = *d.run;
  p.check_conservation();
  if (d.run->stepped() != nullptr) {
    stats_.pauses_not_followed += d.run->stepped()->pauses_not_followed();
  }
  const int64_t end = d.ready_at;
  e.qps.clear();
  e.ack_controllers = 0;
  for (uint32_t label = 0; label < d.qps.size(); ++label) {
    Episode::Residue r;
    QpMemory m = p.memory_of(label);
    r.posted = m.posted - qps_[d.qps[label]].posted;
    // What can no longer make a difference is forgotten, so that what is alike looks alike.
    if (m.ack_controller)
      ++e.ack_controllers;
    else
      m.posted = 0;
    m.next_send = m.next_send <= end ? kPast : m.next_send - end;
    m.last_sent = config_.paths == PathChoice::flowlet ? m.last_sent - end : kPast;
    if (config_.paths != PathChoice::spray) m.sent_packets = 0;
    const bool recent = config_.cnp_packets && end - m.last_cnp < config_.cnp_interval_ps;
    m.last_cnp = recent ? m.last_cnp - end : kPast;
    m.last_nack = kPast;
    m.last_nack_seq = -1;
    r.plain = m.next_send == kPast && m.last_sent == kPast && m.sent_packets == 0 && !recent &&
              m.since_ack == 0 && !m.notify && !m.dcqcn.active() && !m.increase_running &&
              !m.ack_controller;
    m.increase_next -= end;
    m.dcqcn.shift(-end);
    r.memory = m;
    e.qps.push_back(r);
  }
  e.port_memory.clear();
  e.ports.clear();
  e.tx_bytes.clear();
  e.end_ps = end;
  for (uint32_t port = 0; port < p.port_count(); ++port) {
    PortMemory m;
    if (p.packets() != nullptr) m = p.packets()->memory_of_port(port);
    const PortTally t = p.tally(port);
    for (uint32_t c = 0; c < kMaxClasses; ++c) {
      uint32_t& last = m.last_served[c];
      if (p.packets() == nullptr || !p.packets()->has_served(port, c)) {
        last = PortMemory::kNobody;
        continue;
      }
      const auto it = std::lower_bound(d.qp_ranks.begin(), d.qp_ranks.end(), last);
      TRAINYARD_ASSERT(it != d.qp_ranks.end() && *it == last);
      last = qps_[last].label;  // ranks are indices
    }
    e.port_memory.push_back(m);
    e.ports.push_back(t);
    if (config_.congestion == CongestionControl::hpcc) {
      e.tx_bytes.push_back(tallies_[p.global_port(port)].bytes + t.bytes);
    }
    e.transmissions += t.packets;
  }
  for (TraceEntry& t : e.trace) t.time_ps -= d.start;
  e.transfers.clear();
  for (uint32_t label = 0; label < d.transfers.size(); ++label) {
    TransferRecord r = d.run->record(label);
    r.start = r.start - Time::ps(d.start);
    r.delivered = r.delivered - Time::ps(d.start);
    r.acknowledged = r.acknowledged - Time::ps(d.start);
    e.transfers.push_back(r);
  }
  e.calls = d.run->tallies();
  e.totals = p.totals();
  e.pools.clear();
  if (p.packets() != nullptr) p.packets()->pool_use(e.pools);
}

void DomainFabric::end(uint32_t domain) {
  Domain& d = domains_[domain];
  const bool followed = d.mode == Domain::Mode::follower;
  if (!watches_.empty()) note_for_watch(d);
  if (!followed && d.run->stepped() != nullptr && options_.audit_budget > 0) audit(d);
  apply_episode(d, *d.episode, now_, followed);
  if (!followed) fingerprint_ += d.run->fingerprint();
  if (config_.shared_noise) {
    for (const uint32_t q : d.qps) qps_[q].id.noise = 0;
  }
  if (d.disturbed) {
    // Some were opened while links were down.
    stats_.bytes_disturbed += d.episode->totals.payload_bytes;
    qp_ports_.clear();
    for (GlobalQp& q : qps_) find_paths(q);
    disturbed_ = kNone;
  }
  release(domain);
}

/// Tells `run` all that the domain was told, each at its time, and goes on to its end. @returns
/// false: it took more events than `most`.
bool DomainFabric::replay(const Domain& d, DomainRun& run, uint64_t most,
                          std::vector<DomainOutput>& outs) {
  int64_t slice = kSlice;
  const auto go_to = [&](int64_t limit) {
    while (ps_of(run.next_event()) <= limit) {
      if (run.events() > most) return false;
      const int64_t next = ps_of(run.next_event());
      const uint64_t jumps = run.packets()->jumps().jumps;
      run.advance(Time::ps(next < limit - slice ? next + slice : limit), outs);
      if (run.packets()->jumps().jumps > jumps) slice *= 2;
    }
    return true;
  };
  for (size_t i = 0; i < d.inputs.size(); ++i) {
    const Input& in = d.inputs[i];
    if (i == 0 || in.round != d.inputs[i - 1].round || in.at != d.inputs[i - 1].at || in.before) {
      if (!go_to(in.before ? in.at - 1 : in.at)) return false;
    }
    feed(run, in);
  }
  while (!run.idle() && run.next_event() != Time::infinity()) {
    if (!go_to(ps_of(run.next_event()) + slice)) return false;
  }
  return true;
}

void DomainFabric::settle(Time at) {
  if (!options_.partition || options_.stepping) return;  // one domain is never ahead
  const int64_t end = std::max(now_, ps_of(at));
  std::vector<DomainOutput> ignored;
  for (uint32_t i = 0; i < domains_.size(); ++i) {
    if (!domains_[i].used || domains_[i].mode == Domain::Mode::reserved) continue;
    // One in which something is broken is the only one, and never ahead.
    const bool ahead = domains_[i].reached > end && !domains_[i].disturbed;
    if (domains_[i].mode != Domain::Mode::leader || ahead) simulate_again(i);
    Domain& d = domains_[i];
    while (ps_of(d.run->next_event()) <= end) d.run->advance(Time::ps(end), ignored);
    stats_.events += d.run->events() - d.events_seen;
    d.events_seen = d.run->events();
    for (uint32_t label = 0; label < d.transfers.size(); ++label) {
      records_[d.transfers[label]] = d.run->record(label);
    }
  }
  now_ = end;
}

/// A domain that follows, or that is ahead, up to now; it has no followers from then on.
void DomainFabric::simulate_again(uint32_t domain) {
  {
    Domain& d = domains_[domain];
    if (d.mode == Domain::Mode::leader) {
      begin_anew(domain);
      d.ended = false;
    } else if (d.mode == Domain::Mode::follower) {
      d.mode = Domain::Mode::pending;
      ++d.version;
      pending_.push_back(domain);
    }
    d.again_until = std::max(d.again_until, now_);
  }
  std::erase(pending_, domain);
  lead(domain);
  Domain& d = domains_[domain];
  if (!d.recorded) return;
  d.run->record_trace(nullptr);
  d.recorded = false;
  d.episode->open = false;
  d.episode = nullptr;
}

/// Simulates a stepped domain again packet by packet, told the same at the same times, while the
/// budget lasts. Its idle parts still remember what they did when it began.
void DomainFabric::audit(const Domain& d) {
  if (d.joined) return;  // what it was told no longer begins where its parts did
  // In events of packets, which an event of stepping and a member that is told of cost several of.
  // Of the shortest runs it may take a little more: nobody waits for a hundredth of a second.
  constexpr double kStepped = 3.5, kTold = 10, kLeastWork = 2e6;
  const double work = static_cast<double>(stats_.events) +
                      (kStepped - 1) * static_cast<double>(stats_.events_stepped) +
                      kTold * static_cast<double>(serial_);
  const double budget = options_.audit_budget * std::max(work, kLeastWork);
  double left = budget - static_cast<double>(stats_.audit_events);
  double& too_little = costs_[kind_of(d)].audit;
  const bool dice = d.run->drew_dice();
  if (dice) {
    if (left < 1.8 * static_cast<double>(d.episode->transmissions)) return;
  } else {
    // Its packets may repeat themselves, and take much fewer events than they are: that has to be
    // tried, with at most half of all. What has been too much needs twice as much next time.
    constexpr double kLeast = 5'000;
    left = std::min(left, budget / 2 - audited_without_dice_);
    if (left < kLeast || left < 2 * too_little) return;
  }
  DomainRun run(topology_, config_, static_cast<DomainRegistry&>(*this));
  run.packets()->use_period_jumps();
  std::vector<DomainOutput> outs;
  const bool done = replay(d, run, dice ? UINT64_MAX : static_cast<uint64_t>(left), outs);
  stats_.audit_events += run.events();
  if (!dice) audited_without_dice_ += static_cast<double>(run.events());
  if (!done) {
    too_little = left;
    return;
  }
  std::unordered_map<uint64_t, int64_t> told;  // in packets
  for (const DomainOutput& o : outs) told.emplace(telling(d, o), o.at.ps());
  ++stats_.audited;
  stats_.bytes_audited += d.episode->totals.payload_bytes;
  for (const Input& in : d.inputs) {
    if (in.kind == Input::Kind::arrive) continue;
    const bool call = in.kind == Input::Kind::open;
    const auto at = std::find(d.transfers.begin(), d.transfers.end(), in.id);
    const uint32_t label =
        call ? calls_[in.id].label : static_cast<uint32_t>(at - d.transfers.begin());
    const size_t n = call ? calls_[in.id].here.size() : 1;
    for (uint32_t m = 0; m < n; ++m) {
      DomainOutput o;
      o.what = call ? DomainOutput::What::done : DomainOutput::What::delivered;
      o.label = label;
      o.member = m;
      const uint64_t which = telling(d, o);
      const auto fast = d.told.find(which);
      const auto slow = told.find(which);
      if (fast == d.told.end() || slow == told.end() || slow->second <= in.at) continue;
      const double pct = 100.0 * static_cast<double>(fast->second - slow->second) /
                         static_cast<double>(slow->second - in.at);
      ++stats_.audit_n;
      stats_.audit_sum_pct += pct;
      stats_.audit_sum_abs_pct += std::abs(pct);
      stats_.audit_sum_squares += pct * pct;
      stats_.audit_max_pct = std::max(stats_.audit_max_pct, std::abs(pct));
    }
  }
}

/// A domain that began at `start` did what the episode says.
void DomainFabric::book_followed(const PartsOf& parts, const Episode& e, int64_t start) {
  ++stats_.followed;
  stats_.bytes_followed += e.totals.payload_bytes;
  if (e.approximate) stats_.bytes_followed_stepped += e.totals.payload_bytes;
  stats_.transmissions_followed += e.transmissions;
  for (const TraceEntry& t : e.trace) {
    const auto now = static_cast<uint64_t>(start + t.time_ps);
    const auto port = [&](uint32_t local) {
      return static_cast<uint64_t>(2 * link_order_[parts.links[local / 2]] + (local & 1U));
    };
    uint64_t a = 0;
    auto b = static_cast<uint64_t>(t.value);
    switch (t.what) {
      case kTraceDelivered:
      case kTraceAcked: {
        const GlobalQp& q = qps_[parts.qps[t.object]];
        a = q.dice_object;
        b = static_cast<uint64_t>(q.posted + t.value);
        break;
      }
      case kTraceRate:
        a = qps_[parts.qps[t.object]].dice_object;
        break;
      case kTracePause:
        a = port(t.object);
        break;
      default:  // kTraceDrop
        a = port(t.object);
        b = qps_[parts.qps[static_cast<size_t>(t.value)]].dice_object;
    }
    fingerprint_ += dice(now, t.what, a, b);
  }
}

/// The state of its parts at the end of an episode, and what they have done in it. `keep_losses`:
/// it has drawn none of its own.
void DomainFabric::leave_behind(const PartsOf& parts, const Episode& e, int64_t end,
                                bool keep_losses) {
  for (uint32_t label = 0; label < parts.qps.size(); ++label) {
    GlobalQp& q = qps_[parts.qps[label]];
    const Episode::Residue& r = e.qps[label];
    q.posted += r.posted;
    if (r.plain) {
      if (q.memory != kNone) free_memories_.push_back(q.memory);
      q.memory = kNone;
      continue;
    }
    if (q.memory == kNone) {
      if (free_memories_.empty()) {
        q.memory = static_cast<uint32_t>(memories_.size());
        memories_.emplace_back();
      } else {
        q.memory = free_memories_.back();
        free_memories_.pop_back();
      }
    }
    QpMemory m = r.memory;
    if (m.ack_controller && keep_losses) move_controller(m, q, parts.links, e, end);
    m.used = q.posted > 0;
    m.posted = q.posted;
    for (int64_t* t : {&m.next_send, &m.last_sent, &m.last_cnp}) {
      if (*t != kPast) *t += end;
    }
    m.increase_next += end;
    m.dcqcn.shift(end);
    memories_[q.memory] = m;
  }
  for (uint32_t label = 0; label < parts.links.size(); ++label) {
    for (uint32_t dir = 0; dir < 2; ++dir) {
      const uint32_t local = 2 * label + dir;
      const uint32_t port = 2 * parts.links[label] + dir;
      PortMemory m = e.port_memory[local];
      for (uint32_t c = 0; c < kMaxClasses; ++c) {
        uint32_t& last = m.last_served[c];
        last = last == PortMemory::kNobody ? port_memories_[port].last_served[c]
                                           : qps_[parts.qps[last]].id.rank;
      }
      if (keep_losses) m.loss_draws = port_memories_[port].loss_draws;
      port_memories_[port] = m;
      tallies_[port].add(e.ports[local]);
    }
  }
}

void DomainFabric::apply_episode(Domain& d, const Episode& e, int64_t end, bool followed) {
  const PartsOf parts{d.qps, d.links};
  ++stats_.domains;
  stats_.largest_domain = std::max<uint64_t>(stats_.largest_domain, d.links.size());
  if (followed) {
    book_followed(parts, e, d.start);
  } else {
    PacketDomain::Jumps j;
    if (d.run->packets() != nullptr) j = d.run->packets()->jumps();
    if (d.run->stepped() != nullptr) {
      ++stats_.stepped;
      stats_.bytes_stepped += e.totals.payload_bytes;
      stats_.transmissions_stepped += e.transmissions;
      // Not simulated: taken out again below.
      j.payload = e.totals.payload_bytes;
      j.transmissions = e.transmissions;
      stats_.bytes_jumped -= j.payload;
      stats_.transmissions_jumped -= j.transmissions;
    }
    stats_.jumps += j.jumps;
    stats_.bytes_jumped += j.payload;
    stats_.transmissions_jumped += j.transmissions;
    stats_.bytes_simulated += e.totals.payload_bytes - j.payload;
    stats_.transmissions_simulated += e.transmissions - j.transmissions;
  }
  leave_behind(parts, e, end, followed || d.run->packets() == nullptr);
  for (uint32_t label = 0; label < d.transfers.size(); ++label) {
    TransferRecord& r = records_[d.transfers[label]];
    const TransferRecord& from = e.transfers[label];
    r.packets = from.packets;
    r.retransmitted = from.retransmitted;
    r.transmissions = from.transmissions;
    r.hops = from.hops;
    r.cnps = from.cnps;
  }
  for (uint32_t label = 0; label < d.calls.size(); ++label) {
    Call& c = calls_[d.calls[label]];
    c.tally = e.calls[label];
    payload_asked_ += c.plan->payload + c.plan->grants;
    c.info = {};
    c.plan = nullptr;
    c.qps = nullptr;
    c.here = {};
    c.order = {};
  }
  add_totals(totals_, e.totals);
}

// ---------------------------------------------------------------- results

size_t DomainFabric::outstanding() const {
  if (options_.partition) {
    // One in which something is still broken may rest without an end.
    const bool rests = disturbed_ != kNone && domains_[disturbed_].run != nullptr &&
                       domains_[disturbed_].run->quiet();
    return transfers_open_ + domains_active_ - (rests ? 1 : 0);
  }
  if (domains_.empty()) return transfers_open_;
  const Domain& d = domains_.front();
  return transfers_open_ + (d.run != nullptr && d.run->quiet() ? 0 : 1);
}

std::string DomainFabric::describe_stall() const {
  for (const uint32_t l : leaders_.domains()) {
    if (domains_[l].run->outstanding() > 0) return domains_[l].run->describe_stall();
  }
  return "nothing is outstanding";
}

void DomainFabric::check_conservation() const {
  // Every domain has been checked at its end.
  for (const uint32_t l : leaders_.domains()) domains_[l].run->check_conservation();
  if (transfers_open_ > 0) return;
  int64_t asked = 0;
  for (const Transfer& t : transfers_) asked += t.size.count();
  asked += payload_asked_;
  for (const Call& c : calls_) asked += c.begun && c.plan ? c.plan->payload + c.plan->grants : 0;
  const int64_t delivered = totals().payload_bytes;
  if (delivered != asked) {
    throw SimulationError(
        "conservation broken: bytes asked for and delivered: " + std::to_string(asked) +
        " against " + std::to_string(delivered) + "; please report this scenario");
  }
}

CollectiveHost::Tally DomainFabric::tally(uint32_t call) const {
  const Call& c = calls_[call];
  // The one domain of an unpartitioned run never ends, nor need a disturbed one.
  const uint32_t lasting = options_.partition ? disturbed_ : 0;
  if (!c.begun || !c.plan || c.domain != lasting) return c.tally;
  if (oracle_tallies_.size() != domains_[lasting].calls.size()) {
    oracle_tallies_ = domains_[lasting].run->tallies();
  }
  return oracle_tallies_[c.label];
}

const std::vector<TransferRecord>& DomainFabric::transfers() const {
  const uint32_t lasting = options_.partition ? disturbed_ : domains_.empty() ? kNone : 0;
  if (lasting != kNone) {
    const Domain& d = domains_[lasting];
    for (uint32_t label = 0; d.run != nullptr && label < d.transfers.size(); ++label) {
      records_[d.transfers[label]] = d.run->record(label);
    }
  }
  if (!options_.partition) return records_;
  if (!options_.stepping) {
    const_cast<DomainFabric*>(this)->settle(Time::ps(now_));
    return records_;
  }
  // Near enough: of domains under way as far as they have been looked at.
  for (const Domain& d : domains_) {
    if (!d.used || d.mode == Domain::Mode::pending) continue;
    DomainRun* run = d.run.get();
    if (d.mode == Domain::Mode::follower && d.episode->open) {
      run = domains_[d.episode->followers.front()].run.get();
    }
    for (uint32_t label = 0; label < d.transfers.size(); ++label) {
      TransferRecord& r = records_[d.transfers[label]];
      const TransferRecord* from = nullptr;
      if (run != nullptr && label < run->transfers()) from = &run->record(label);
      if (run == nullptr && label < d.episode->transfers.size())
        from = &d.episode->transfers[label];
      if (from == nullptr) continue;
      r.packets = from->packets;
      r.retransmitted = from->retransmitted;
      r.transmissions = from->transmissions;
      r.hops = from->hops;
      r.cnps = from->cnps;
    }
  }
  return records_;
}

std::vector<LinkRecord> DomainFabric::links() const {
  std::vector<PortTally> sums(2 * links_in_order_.size());
  for (size_t i = 0; i < links_in_order_.size(); ++i) {
    for (uint32_t dir = 0; dir < 2; ++dir)
      sums[2 * i + dir] = tallies_[2 * links_in_order_[i] + dir];
  }
  for (const uint32_t l : leaders_.domains()) {
    const Domain& d = domains_[l];
    for (uint32_t port = 0; port < d.run->port_count(); ++port) {
      const uint32_t global = d.run->global_port(port);
      sums[2 * link_order_[global / 2] + (global & 1U)].add(d.run->tally(port));
    }
  }
  // Queue pairs as they are assigned; one that sprays counts in parts.
  std::vector<double> queue_pairs(sums.size());
  const uint32_t paths = config_.paths == PathChoice::per_flow ? 1 : config_.path_count;
  for (const GlobalQp& q : qps_) {
    for (uint32_t i = 0; i < q.forward; ++i) {
      const uint32_t port = qp_ports_[q.first_port + i];
      if (link_order_[port / 2] == kNone) continue;
      queue_pairs[2 * link_order_[port / 2] + (port & 1U)] += 1.0 / paths;
    }
  }
  std::vector<LinkRecord> out;
  for (size_t i = 0; i < sums.size(); ++i) {
    const uint32_t port = 2 * links_in_order_[i / 2] + static_cast<uint32_t>(i & 1U);
    const PortTally& t = sums[i];
    LinkRecord r = link_record(topology_, port, topology_.link_of(port).rate);
    r.packets = t.packets;
    r.bytes = t.bytes;
    r.data_bytes = t.payload;
    r.ecn_marks = t.marked;
    r.pauses_received = t.pauses;
    r.paused = Time::ps(t.paused);
    r.busy = Time::ps(t.busy);
    r.peak_queue_bytes = t.peak;
    r.drops = t.drops;
    r.queue_pairs = queue_pairs[i];
    out.push_back(std::move(r));
  }
  return out;
}

FabricTotals DomainFabric::totals() const {
  FabricTotals t = totals_;
  t.transmissions = 0;
  t.wire_bytes = 0;
  t.events = stats_.events;
  for (const uint32_t link : links_in_order_) {
    for (uint32_t dir = 0; dir < 2; ++dir) {
      t.transmissions += tallies_[2 * link + dir].packets;
      t.wire_bytes += tallies_[2 * link + dir].bytes;
    }
  }
  for (const uint32_t l : leaders_.domains()) {
    const FabricTotals own = domains_[l].run->totals();
    add_totals(t, own);
    t.transmissions += own.transmissions;
    t.wire_bytes += own.wire_bytes;
  }
  return t;
}

uint64_t DomainFabric::fingerprint() const {
  uint64_t sum = fingerprint_;
  for (const uint32_t l : leaders_.domains()) sum += domains_[l].run->fingerprint();
  return sum;
}

FastPathStats DomainFabric::stats() const {
  FastPathStats s = stats_;
  s.evicted = store_.evicted();
  s.memo_bytes = store_.bytes();
  s.stepping = options_.stepping;
  if (options_.partition && disturbed_ != kNone && domains_[disturbed_].run != nullptr) {
    const FabricTotals t = domains_[disturbed_].run->totals();
    s.bytes_simulated += t.payload_bytes;
    s.bytes_disturbed += t.payload_bytes;
    s.transmissions_simulated += t.transmissions;
  }
  return s;
}

}  // namespace trainyard
