// SPDX-License-Identifier: MIT
#include "network/analytic/analytic_fabric.h"

#include <algorithm>
#include <memory>

#include "network/engine.h"
#include "sim/errors.h"
#include "sim/registry.h"

namespace trainyard {

TransferId AnalyticFabric::start(const Transfer& t, Time at) {
  TRAINYARD_ASSERT(at.ps() >= now_);
  const TransferId id = book_.add(t, at);
  qp_of_.push_back(0);
  events_.start(id, at);
  return id;
}

Time AnalyticFabric::next_event() const {
  const int64_t next =
      std::min(calls_.next_event(), events_.empty() ? INT64_MAX : events_.next_time());
  return next == INT64_MAX ? Time::infinity() : Time::ps(next);
}

void AnalyticFabric::on_start(TransferId id) {
  const TransferRecord& r = book_.records()[id];
  Transfer t;
  t.src = r.src;
  t.dst = r.dst;
  t.size = Bytes(r.bytes);
  t.channel = book_.channel(id);
  const uint32_t qp = book_.queue_pair(t);
  qp_of_[id] = qp;
  const auto& q = book_.queue_pairs()[qp];
  const MessageCost cost = book_.cost(qp, r.bytes);
  book_.carry(id, qp, cost);
  int64_t begin = now_;
  if (config_.nic_serialization) {
    const uint32_t nic = q.forward[0];
    if (nic >= port_free_.size()) port_free_.resize(nic + 1, 0);
    begin = std::max(begin, port_free_[nic]);
    const Rate rate = Rate::bps(book_.ports()[nic].carries_bps);
    port_free_[nic] = begin + transmission_time(Bytes(cost.wire), rate).ps();
  }
  const int64_t beta = transmission_time(Bytes(cost.wire), Rate::bps(q.slowest_bps)).ps();
  const int64_t delivered = begin + beta + cost.latency_ps;
  events_.arrive(id, delivered, cost.return_ps);
}

Time AnalyticFabric::advance(Time limit, std::vector<Completion>& out) {
  const size_t before = out.size();
  const auto stop = [&] { return out.size() != before || calls_.any_done(); };
  for (Time next = next_event(); !stop() && next <= limit && next != Time::infinity();
       next = next_event()) {
    now_ = next.ps();
    events_done_ += events_.run(
        now_, book_, out, [&](TransferId id) { on_start(id); },
        [&](TransferId id) { return qp_of_[id]; });
    calls_.run(now_);
  }
  sort_completions(out, before);
  if (!stop() && limit != Time::infinity()) now_ = std::max(now_, limit.ps());
  return Time::ps(now_);
}

const std::vector<TransferRecord>& AnalyticFabric::transfers() const {
  if (calls_.records().empty()) return book_.records();
  all_records_ = book_.records();
  all_records_.insert(all_records_.end(), calls_.records().begin(), calls_.records().end());
  std::stable_sort(
      all_records_.begin(), all_records_.end(),
      [](const TransferRecord& a, const TransferRecord& b) { return a.start < b.start; });
  return all_records_;
}

namespace {

const std::vector<ParamSpec>& analytic_params() {
  static const std::vector<ParamSpec> specs = {
      {"nic_serialization",
       ParamType::boolean,
       "false",
       "",
       "",
       {},
       "messages that leave through one NIC port are sent one after the other; false: nothing is "
       "shared, as in astra-sim's congestion-unaware analytical network",
       "astra-sim, analytical network, congestion-unaware"},
      {"whole_collectives",
       ParamType::boolean,
       "true",
       "",
       "",
       {},
       "collectives are worked out as a whole, not message by message: the same times with less "
       "memory and time; not with nic_serialization or faults",
       "docs/engines.md"},
  };
  return specs;
}

const RegisterModel<EngineFactory> kAnalytic{
    {"engine", "analytic",
     "Alpha-beta, unaware of congestion: latency of the route plus bytes over its slowest link, "
     "whatever else is under way. No sharing of links, queues, PFC, ECN or losses; a lower bound "
     "wherever links are shared.",
     "astra-sim, analytical network, congestion-unaware; docs/engines.md", analytic_params()},
    [](const Topology& topology, const PacketConfig& config, const Params& params) {
      AnalyticConfig analytic;
      analytic.nic_serialization = params.boolean("nic_serialization");
      analytic.whole_collectives = params.boolean("whole_collectives");
      return std::make_unique<AnalyticFabric>(topology, config, analytic);
    }};

}  // namespace
}  // namespace trainyard
