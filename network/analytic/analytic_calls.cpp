// SPDX-License-Identifier: MIT
#include "network/analytic/analytic_calls.h"

#include <algorithm>
#include <utility>

#include "sim/errors.h"

namespace trainyard {
namespace {

constexpr uint32_t kWake = 0xffffffffU;  // Event::arg: the call goes on
constexpr uint32_t kUnknown = PathBook::kNone;
/// Communicators up to this size find their queue pairs in a table.
constexpr uint32_t kMostInTable = 256;

struct LaterFirst {
  template <class T>
  bool operator()(const T& a, const T& b) const {
    return a.at != b.at ? a.at > b.at : a.number > b.number;
  }
};

}  // namespace

AnalyticCalls::AnalyticCalls(PathBook& book, const PacketConfig& config)
    : book_(book), config_(config) {}

uint32_t AnalyticCalls::open(const HostedCall& what) {
  auto call = std::make_unique<Call>();
  call->what = what;
  call->run = what.algorithm->begin(what.request);
  call->members_left = static_cast<uint32_t>(what.request.members->size());
  if (call->members_left <= kMostInTable && config_.persistent_qps) {
    call->edges = &edges_[what.channel_base];
  }
  open_.push_back(std::move(call));
  sums_.emplace_back();
  return static_cast<uint32_t>(open_.size() - 1);
}

AnalyticCalls::Call& AnalyticCalls::at(uint32_t call) {
  TRAINYARD_ASSERT(call < open_.size() && open_[call] != nullptr);
  return *open_[call];
}

void AnalyticCalls::arrive(uint32_t call, uint32_t member, int64_t now) {
  Call& c = at(call);
  ++c.arrived;
  sends_.clear();
  members_done_.clear();
  c.run->arrived(member, sends_, members_done_);
  const bool all = c.arrived == c.what.request.members->size();
  if (all && c.run->all_sent()) {
    for (const uint32_t m : members_done_) tell(call, m, now);
    carry_all(call, c, now);
    close(call);
  } else {
    take(call, c, now, now);
    go_on(call, now);
  }
}

/// What the algorithm has answered at `now`. Queue pairs can be opened until `until`.
void AnalyticCalls::take(uint32_t call, Call& c, int64_t now, int64_t until) {
  for (const uint32_t m : members_done_) tell(call, m, now);
  members_done_.clear();
  for (const CollectiveSend& send : sends_) {
    const uint32_t qp = queue_pair(c, send, now <= until);
    ++outstanding_;
    if (qp == kUnknown) {
      c.later.push_back({now, send});
      continue;
    }
    const Times t = carry(call, c, send, qp, now);
    c.flying.push_back({counts(t), c.numbers++, qp, t, send});
    std::push_heap(c.flying.begin(), c.flying.end(), LaterFirst());
  }
  sends_.clear();
}

void AnalyticCalls::go_on(uint32_t call, int64_t until) {
  Call& c = at(call);
  const bool all = c.arrived == c.what.request.members->size();
  for (;;) {
    const int64_t next = c.flying.empty() ? INT64_MAX : c.flying.front().at;
    if (!c.later.empty() && c.later.front().at <= next) {
      // All of one instant: what is delivered later waits for them.
      const int64_t now = c.later.front().at;
      if (now > until) break;
      outstanding_ -= c.later.size();
      for (const Later& l : std::exchange(c.later, {})) sends_.push_back(l.send);
      take(call, c, now, until);
      continue;
    }
    if (c.flying.empty() || (!all && next > until)) break;
    std::pop_heap(c.flying.begin(), c.flying.end(), LaterFirst());
    const Flying f = std::move(c.flying.back());
    c.flying.pop_back();
    --outstanding_;
    book_.deliver_unrecorded(f.qp, f.send.bytes, Time::ps(f.times.delivered),
                             Time::ps(f.times.acknowledged));
    ++events_done_;
    c.run->delivered(f.send, sends_, members_done_);
    take(call, c, f.at, until);
  }
  if (c.members_left == 0) {
    close(call);
    return;
  }
  int64_t next = c.flying.empty() ? INT64_MAX : c.flying.front().at;
  if (!c.later.empty()) next = std::min(next, c.later.front().at);
  if (next < c.wakes) {
    c.wakes = next;
    events_.push(next, call, kWake);
  }
}

/// The last messages of a call: the members are through with the last of theirs.
void AnalyticCalls::carry_all(uint32_t call, Call& c, int64_t now) {
  const size_t n = c.what.request.members->size();
  through_.assign(n, INT64_MIN);
  const auto ends = [&](const CollectiveSend& send, uint32_t qp, const Times& t) {
    book_.deliver_unrecorded(qp, send.bytes, Time::ps(t.delivered), Time::ps(t.acknowledged));
    ++events_done_;
    through_[send.src] = std::max(through_[send.src], counts(t));
    through_[send.dst] = std::max(through_[send.dst], counts(t));
  };
  TRAINYARD_ASSERT(c.later.empty());
  outstanding_ -= c.flying.size();
  std::sort(c.flying.begin(), c.flying.end(),
            [](const Flying& a, const Flying& b) { return LaterFirst()(b, a); });
  for (const Flying& f : c.flying) ends(f.send, f.qp, f.times);
  c.flying.clear();
  for (const CollectiveSend& send : sends_) {
    const uint32_t qp = queue_pair(c, send, true);
    ends(send, qp, carry(call, c, send, qp, now));
  }
  sends_.clear();
  for (uint32_t m = 0; m < n; ++m) {
    if (through_[m] != INT64_MIN) tell(call, m, through_[m]);
  }
}

/// Of a message; kUnknown where it would have to be opened and must not.
uint32_t AnalyticCalls::queue_pair(const Call& c, const CollectiveSend& send, bool may_open) {
  const auto n = static_cast<uint32_t>(c.what.request.members->size());
  uint32_t* slot = nullptr;
  if (c.edges != nullptr && !send.clear_to_send) {
    std::vector<uint32_t>& table = *c.edges;
    const size_t i = (static_cast<size_t>(send.channel % 64) * n + send.src) * n + send.dst;
    if (i >= table.size()) {
      table.resize((static_cast<size_t>(send.channel % 64) + 1) * n * n, kUnknown);
    }
    slot = &table[i];
    if (*slot != kUnknown) return *slot;
  }
  const Transfer t = hosted_transfer(c.what, send);
  const uint32_t qp = may_open ? book_.queue_pair(t) : book_.find(t);
  if (slot != nullptr) *slot = qp;
  return qp;
}

AnalyticCalls::Times AnalyticCalls::carry(uint32_t call, Call& c, const CollectiveSend& send,
                                          uint32_t qp, int64_t now) {
  const MessageCost cost = book_.cost(qp, send.bytes);
  const uint64_t transmissions = book_.carry_unrecorded(qp, send.bytes, cost);
  const auto& q = book_.queue_pairs()[qp];
  const int64_t arrived = now + config_.send_delay_ps +
                          transmission_time(Bytes(cost.wire), Rate::bps(q.slowest_bps)).ps() +
                          cost.latency_ps;
  const Times t{arrived + config_.receive_delay_ps, arrived + cost.return_ps};
  Sums& s = sums_[call];
  s.transmissions += transmissions;
  if (send.clear_to_send) {
    ++s.grants;
    c.grants.push_back(Time::ps(t.delivered - now));
  } else {
    ++s.transfers;
    s.payload += send.bytes;
  }
  if (++messages_ <= kMostRecords) {
    TransferRecord r;
    r.src = q.src;
    r.dst = q.dst;
    r.owner = c.what.owner;
    r.bytes = send.bytes;
    r.start = Time::ps(now);
    r.delivered = Time::ps(t.delivered);
    r.acknowledged = Time::ps(t.acknowledged);
    r.packets = static_cast<uint64_t>(cost.packets);
    r.transmissions = transmissions;
    r.hops = static_cast<uint32_t>(q.forward.size());
    records_.push_back(r);
  } else if (!records_.empty()) {
    records_ = {};
  }
  return t;
}

/// `member` is through at `when`.
void AnalyticCalls::tell(uint32_t call, uint32_t member, int64_t when) {
  TRAINYARD_ASSERT(open_[call]->members_left > 0);
  --open_[call]->members_left;
  ++outstanding_;
  events_.push(when, call, member);
}

void AnalyticCalls::close(uint32_t call) {
  Call& c = at(call);
  TRAINYARD_ASSERT(c.members_left == 0 && c.flying.empty() && c.later.empty());
  if (!c.grants.empty()) set_grant_percentiles(c.grants, granted_[call]);
  open_[call].reset();
}

int64_t AnalyticCalls::next_event() const {
  return events_.empty() ? INT64_MAX : events_.next_time();
}

void AnalyticCalls::run(int64_t now) {
  while (!events_.empty() && events_.next_time() == now) {
    const Event e = events_.pop();
    if (e.arg != kWake) {
      --outstanding_;
      done_.push_back({e.key, e.arg});
    } else if (open_[e.key] != nullptr) {
      open_[e.key]->wakes = INT64_MAX;
      go_on(e.key, now);
    }
  }
}

void AnalyticCalls::take_done(std::vector<CollectiveHost::Done>& out) {
  std::sort(done_.begin(), done_.end(), [](const auto& a, const auto& b) {
    return a.call != b.call ? a.call < b.call : a.member < b.member;
  });
  out.insert(out.end(), done_.begin(), done_.end());
  done_.clear();
}

CollectiveHost::Tally AnalyticCalls::tally(uint32_t call) const {
  const Sums& s = sums_[call];
  const auto granted = granted_.find(call);
  CollectiveHost::Tally t = granted == granted_.end() ? CollectiveHost::Tally() : granted->second;
  t.transfers = s.transfers;
  t.transmissions = s.transmissions;
  t.cts_count = s.grants;
  t.payload = s.payload;
  return t;
}

}  // namespace trainyard
