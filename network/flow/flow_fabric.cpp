// SPDX-License-Identifier: MIT
#include "network/flow/flow_fabric.h"

#include <algorithm>
#include <memory>

#include "network/engine.h"
#include "sim/errors.h"
#include "sim/registry.h"

namespace trainyard {
namespace {

constexpr int64_t kPsPerSecond = 1'000'000'000'000;

}  // namespace

FlowFabric::FlowFabric(const Topology& topology, const PacketConfig& packet,
                       const FlowConfig& config)
    : config_(config),
      book_(topology, packet),
      // ACKs take at most half of a link.
      ack_weight_(
          std::min(packet.ack_bytes, (packet.payload + packet.header) * packet.ack_interval)),
      data_weight_((packet.payload + packet.header) * packet.ack_interval),
      events_(packet) {}

TransferId FlowFabric::start(const Transfer& t, Time at) {
  TRAINYARD_ASSERT(at.ps() >= now_);
  const TransferId id = book_.add(t, at);
  messages_.emplace_back();
  events_.start(id, at);
  return id;
}

Time FlowFabric::next_event() const {
  int64_t next = heap_.empty() ? kNever : std::min(due_, senders_[heap_[0]].end);
  if (!events_.empty()) next = std::min(next, events_.next_time());
  return next == kNever ? Time::infinity() : Time::ps(next);
}

Time FlowFabric::advance(Time limit, std::vector<Completion>& out) {
  const size_t before = out.size();
  while (out.size() == before) {
    const Time next = next_event();
    if (next == Time::infinity() || next > limit) break;
    now_ = next.ps();
    // New work and messages that end first, so that rates are found once per instant.
    events_done_ += events_.run(
        now_, book_, out, [&](TransferId id) { on_start(id); },
        [&](TransferId id) { return messages_[id].qp; });
    while (!heap_.empty() && senders_[heap_[0]].end == now_) {
      ++events_done_;
      on_sent(heap_[0]);
    }
    if (due_ <= now_) {
      due_ = kNever;
      came_ = stale_ = true;
    }
    if (stale_) update_rates();
  }
  sort_completions(out, before);
  if (out.size() == before && limit != Time::infinity()) now_ = std::max(now_, limit.ps());
  return Time::ps(now_);
}

void FlowFabric::open(uint32_t qp) {
  senders_.emplace_back();
  const auto& q = book_.queue_pairs()[qp];
  for (size_t p = ack_flows_.size(); p < book_.ports().size(); ++p) {
    fair_.add_port(book_.ports()[p].carries_bps);
    ack_flows_.push_back(0);
  }
  fair_.add_flow(q.forward);
}

void FlowFabric::on_start(TransferId id) {
  const TransferRecord& r = book_.records()[id];
  Transfer t;
  t.src = r.src;
  t.dst = r.dst;
  t.size = Bytes(r.bytes);
  t.channel = book_.channel(id);
  const uint32_t qp = book_.queue_pair(t);
  if (qp == senders_.size()) open(qp);
  messages_[id].qp = qp;
  Sender& s = senders_[qp];
  if (s.head != kNil) {
    messages_[s.tail].next = id;
    s.tail = id;
    return;
  }
  s.head = s.tail = id;
  came_ = true;
  fair_.activate(qp);
  if (config_.ack_load) count_acks(qp, true);
  begin_message(qp);
}

void FlowFabric::begin_message(uint32_t qp) {
  Sender& s = senders_[qp];
  const MessageCost cost = book_.cost(qp, book_.records()[s.head].bytes);
  s.left = static_cast<Wide>(cost.wire) * 8 * kPsPerSecond;
  s.since = now_;
  asked_ += s.left;
  if (!s.fresh) {
    s.fresh = true;
    fresh_.push_back(qp);
  }
  stale_ = true;
}

/// Books what was sent since the rate last changed.
void FlowFabric::settle(uint32_t qp) {
  Sender& s = senders_[qp];
  const Wide sent = static_cast<Wide>(s.rate) * (now_ - s.since);
  s.left -= sent;
  carried_ += sent;
  s.since = now_;
}

/// The last byte of a message has left.
void FlowFabric::on_sent(uint32_t qp) {
  settle(qp);
  Sender& s = senders_[qp];
  TRAINYARD_ASSERT(s.left <= 0 && s.left > -static_cast<Wide>(s.rate));
  overshoot_ -= s.left;
  s.left = 0;
  const TransferId id = s.head;
  const MessageCost cost = book_.cost(qp, book_.records()[id].bytes);
  book_.carry(id, qp, cost);
  events_.arrive(id, now_ + cost.latency_ps, cost.return_ps);
  heap_remove(qp);
  s.head = messages_[id].next;
  if (s.head != kNil) {
    begin_message(qp);
    return;
  }
  s.tail = kNil;
  s.rate = 0;
  fair_.deactivate(qp);
  if (config_.ack_load) count_acks(qp, false);
  stale_ = true;
}

/// ACKs begin or end to return over the links of a flow's way back.
void FlowFabric::count_acks(uint32_t qp, bool begin) {
  for (const uint32_t p : book_.queue_pairs()[qp].reverse) {
    if (begin ? ack_flows_[p]++ != 0 : --ack_flows_[p] != 0) continue;
    const int64_t line = book_.ports()[p].carries_bps;
    const Wide shared = static_cast<Wide>(line) * data_weight_ / (data_weight_ + ack_weight_);
    fair_.set_capacity(p, begin ? static_cast<int64_t>(shared) : line);
  }
}

void FlowFabric::update_rates() {
  stale_ = false;
  if (config_.rate_interval_ps > 0 && !came_) {
    if (due_ == kNever) due_ = (now_ / config_.rate_interval_ps + 1) * config_.rate_interval_ps;
    schedule_fresh();
    return;
  }
  came_ = false;
  due_ = kNever;
  for (const uint32_t qp : fair_.solve()) {
    settle(qp);
    schedule(qp);
  }
  schedule_fresh();
}

/// Next messages of queue pairs whose rate did not change.
void FlowFabric::schedule_fresh() {
  for (const uint32_t qp : fresh_) {
    Sender& s = senders_[qp];
    s.fresh = false;
    if (s.head != kNil && s.heap == kNil) schedule(qp);
  }
  fresh_.clear();
}

void FlowFabric::schedule(uint32_t qp) {
  Sender& s = senders_[qp];
  s.rate = std::max<int64_t>(1, fair_.rate(qp));
  const Wide ps = (s.left + s.rate - 1) / s.rate;
  if (ps > kNever - 1 - now_) {
    throw UserError("a message of rank " + std::to_string(book_.queue_pairs()[qp].src) +
                    " would take longer than the clock counts (106 days)");
  }
  s.end = now_ + static_cast<int64_t>(ps);
  heap_set(qp);
}

void FlowFabric::sift_up(uint32_t at) {
  const uint32_t qp = heap_[at];
  while (at > 0) {
    const uint32_t parent = (at - 1) / 4;
    if (!earlier(qp, heap_[parent])) break;
    heap_[at] = heap_[parent];
    senders_[heap_[at]].heap = at;
    at = parent;
  }
  heap_[at] = qp;
  senders_[qp].heap = at;
}

void FlowFabric::sift_down(uint32_t at) {
  const uint32_t qp = heap_[at];
  const auto n = static_cast<uint32_t>(heap_.size());
  while (4 * at + 1 < n) {
    uint32_t best = 4 * at + 1;
    for (uint32_t c = best + 1; c < std::min(n, 4 * at + 5); ++c) {
      if (earlier(heap_[c], heap_[best])) best = c;
    }
    if (!earlier(heap_[best], qp)) break;
    heap_[at] = heap_[best];
    senders_[heap_[at]].heap = at;
    at = best;
  }
  heap_[at] = qp;
  senders_[qp].heap = at;
}

void FlowFabric::heap_set(uint32_t qp) {
  if (senders_[qp].heap == kNil) {
    heap_.push_back(qp);
    sift_up(static_cast<uint32_t>(heap_.size() - 1));
    return;
  }
  sift_up(senders_[qp].heap);
  sift_down(senders_[qp].heap);
}

void FlowFabric::heap_remove(uint32_t qp) {
  const uint32_t at = senders_[qp].heap;
  senders_[qp].heap = kNil;
  senders_[qp].end = kNever;
  const uint32_t last = heap_.back();
  heap_.pop_back();
  if (last == qp) return;
  heap_[at] = last;
  senders_[last].heap = at;
  sift_up(at);
  sift_down(senders_[last].heap);
}

void FlowFabric::check_conservation() const {
  book_.check_conservation();
  const auto fail = [](const std::string& what) {
    throw SimulationError("conservation broken: " + what + "; please report this scenario");
  };
  Wide left = 0;
  for (const Sender& s : senders_) left += s.left;
  // A message ends at a whole picosecond: it may send up to that much too long.
  if (carried_ + left != asked_ + overshoot_) fail("volume sent and asked for");
  for (uint32_t p = 0; p < ack_flows_.size(); ++p) {
    const int64_t line = book_.ports()[p].carries_bps;
    // A flow of less than 1 bit/s is served at 1.
    if (fair_.load(p) > line) fail("a link carries more than its rate");
    if (fair_.active_flows() == 0 && (fair_.load(p) != 0 || ack_flows_[p] != 0)) {
      fail("an idle link carries something");
    }
  }
}

namespace {

const std::vector<ParamSpec>& flow_params() {
  static const std::vector<ParamSpec> specs = {
      {"ack_load",
       ParamType::boolean,
       "true",
       "",
       "",
       {},
       "ACKs take capacity from the links that they return on, as in the packet engine",
       "DESIGN section 6.1: a ring NIC carries 105.7 % of its data with ACKs"},
      {"rate_interval",
       ParamType::time,
       "0ns",
       "0ns",
       "1s",
       {},
       "capacity that a flow leaves behind is handed out at the next multiple of this; 0: at once, "
       "exactly; more is faster where tens of thousands of flows of different sizes meet",
       "docs/engines.md"},
  };
  return specs;
}

const RegisterModel<EngineFactory> kFlow{
    {"engine", "flow",
     "Messages are fluids that share links max-min fairly (progressive filling) over the routes of "
     "the packet engine. No queues, PFC, ECN, windows, congestion control or losses. Published "
     "flow-level models are 10-25 % off; tools/bench fidelity measures this one.",
     "Bertsekas and Gallager, Data Networks, 6.5; docs/engines.md", flow_params()},
    [](const Topology& topology, const PacketConfig& config, const Params& params) {
      FlowConfig flow;
      flow.ack_load = params.boolean("ack_load");
      flow.rate_interval_ps = params.time("rate_interval").ps();
      return std::make_unique<FlowFabric>(topology, config, flow);
    }};

}  // namespace
}  // namespace trainyard
