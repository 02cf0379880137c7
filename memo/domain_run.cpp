// SPDX-License-Identifier: MIT
#include "memo/domain_run.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "sim/errors.h"

namespace trainyard {
namespace {

/// Time that bytes take at a rate, rounded down.
int64_t least_ps(int64_t bytes, int64_t bps) {
  if (bps <= 0) return 0;
  return static_cast<int64_t>(static_cast<__int128>(bytes) * 8'000'000'000'000 / bps);
}

}  // namespace

DomainRun::DomainRun(const Topology& topology, const PacketConfig& config, DomainRegistry& registry,
                     bool stepped)
    : complete_at_receiver_(config.complete_at_receiver) {
  if (stepped)
    stepped_ = std::make_unique<SteppedFabric>(topology, config, &registry);
  else
    packets_ = std::make_unique<PacketDomain>(topology, config, &registry);
}

uint32_t DomainRun::start(const Transfer& transfer, Time at, int64_t in_bps) {
  bound_ = 0;
  const auto label = static_cast<uint32_t>(outer_.size());
  const TransferId id = engine_start(transfer, at);
  put_flight(id, {kOuter, label, {}});
  outer_.push_back(id);
  if (stepped_) {
    outer_open_.emplace_back(label, at.ps() + least_ps(transfer.size.count(), in_bps));
  }
  return label;
}

/// Most members send all their messages to one other: no look-up of the queue pair.
TransferId DomainRun::step(Call& c, const CollectiveSend& send, Time at) {
  const Transfer t = hosted_transfer(c.info, send);
  Call::Last& last = c.last[send.src];
  const bool same = last.qp != SteppedFabric::kNil && last.dst == send.dst &&
                    last.channel == t.channel && last.traffic_class == t.traffic_class;
  const TransferId id =
      stepped_->start(t, at, same ? last.qp : SteppedFabric::kNil, complete_at_receiver_);
  if (!same) last = {send.dst, t.channel, t.traffic_class, stepped_->qp_of(id)};
  return id;
}

void DomainRun::put_flight(TransferId id, const Flight& flight) {
  if (id == flights_.size()) {
    flights_.push_back(flight);
    return;
  }
  TRAINYARD_ASSERT(id < flights_.size() && flights_[id].call == kNobody);
  flights_[id] = flight;
}

/// Stepped: a message of a call is over. What is asked of it later is kept with the call.
void DomainRun::forget(TransferId id) {
  Flight& f = flights_[id];
  Call& c = calls_[f.call];
  const TransferRecord& r = records()[id];
  c.tally.transmissions += r.transmissions;
  if (f.send.clear_to_send) c.grants.push_back(r.delivered - r.start);
  f.call = kNobody;
  stepped_->forget(id);
}

uint32_t DomainRun::open(const HostedCall& info, const CallInbound& inbound) {
  Call c;
  c.info = info;
  c.run = info.algorithm->begin(info.request);
  c.left = static_cast<uint32_t>(info.request.members->size());
  if (stepped_) {
    if (inbound.bytes != nullptr) {
      c.in_bps = inbound.bps;
      c.to_come = *inbound.bytes;
    } else {
      c.to_come.assign(c.left, 0);
    }
    c.lands.assign(c.left, 0);
    c.through.assign(c.left, 0);
    c.last.assign(c.left, {});
    open_calls_.push_back(static_cast<uint32_t>(calls_.size()));
  }
  calls_.push_back(std::move(c));
  ++calls_open_;
  return static_cast<uint32_t>(calls_.size() - 1);
}

void DomainRun::arrive(uint32_t call, uint32_t member, Time at) {
  bound_ = 0;
  sends_.clear();
  done_.clear();
  calls_[call].run->arrived(member, sends_, done_);
  apply(call, at);
}

void DomainRun::absorb(DomainRun& o) {
  const auto calls = static_cast<uint32_t>(calls_.size());
  const auto outer = static_cast<uint32_t>(outer_.size());
  const auto ids = static_cast<TransferId>(stepped_->transfers().size());
  TRAINYARD_ASSERT(ids == flights_.size());
  stepped_->absorb(*o.stepped_);
  for (Call& c : o.calls_) {
    for (Call::Last& l : c.last) l.qp = SteppedFabric::kNil;  // has another number now
    calls_.push_back(std::move(c));
  }
  for (Flight& f : o.flights_) {
    if (f.call == kOuter)
      f.label += outer;
    else if (f.call != kNobody)
      f.call += calls;
    flights_.push_back(f);
  }
  for (const TransferId id : o.outer_) outer_.push_back(id + ids);
  for (const uint32_t c : o.open_calls_) open_calls_.push_back(c + calls);
  for (const auto& [label, lands] : o.outer_open_) outer_open_.emplace_back(label + outer, lands);
  for (DomainOutput out : o.outputs_) {
    out.label += out.what == DomainOutput::What::done ? calls : outer;
    outputs_.push_back(out);
  }
  calls_open_ += o.calls_open_;
  bound_ = 0;
}

void DomainRun::apply(uint32_t index, Time at) {
  Call& c = calls_[index];
  const auto& members = *c.info.request.members;
  for (const CollectiveSend& send : sends_) {
    const TransferId id =
        stepped_ ? step(c, send, at) : packets_->start(hosted_transfer(c.info, send), at);
    put_flight(id, {index, 0, send});
    if (stepped_ && c.in_bps) {
      c.to_come[send.dst] -= send.bytes;
      c.lands[send.dst] =
          std::max(c.lands[send.dst], at.ps() + least_ps(send.bytes, (*c.in_bps)[send.dst]));
    }
    if (send.clear_to_send) {
      ++c.tally.cts_count;
    } else {
      ++c.tally.transfers;
      c.tally.payload += send.bytes;
    }
  }
  for (const uint32_t m : done_) {
    TRAINYARD_ASSERT(c.left > 0 && m < members.size());
    outputs_.push_back({at, DomainOutput::What::done, index, m});
    if (stepped_) c.through[m] = 1;
    if (--c.left == 0) {
      if (stepped_) {
        std::erase(open_calls_, index);
        c.to_come = {};
        c.lands = {};
        c.through = {};
        c.last = {};
      }
      --calls_open_;
      c.run.reset();
    }
  }
}

/// Stepped: no member of a call is through, and no transfer from outside has come, before this.
/// Nothing happens before `next`.
int64_t DomainRun::none_through(int64_t next) const {
  int64_t bound = std::numeric_limits<int64_t>::max();
  for (const auto& transfer : outer_open_) bound = std::min(bound, transfer.second);
  for (const uint32_t index : open_calls_) {
    const Call& c = calls_[index];
    if (!c.in_bps) return next;
    for (size_t m = 0; m < c.through.size() && bound > next; ++m) {
      if (c.through[m] != 0) continue;
      int64_t soonest = c.lands[m];
      if (c.to_come[m] > 0) {
        soonest = std::max(soonest, next + least_ps(c.to_come[m], (*c.in_bps)[m]));
      }
      bound = std::min(bound, soonest);
    }
  }
  return std::max(next, bound);
}

Time DomainRun::advance(Time limit, std::vector<DomainOutput>& out) {
  const auto hand_out = [&] {
    std::sort(outputs_.begin(), outputs_.end(), [](const DomainOutput& a, const DomainOutput& b) {
      return std::tie(a.what, a.label, a.member) < std::tie(b.what, b.label, b.member);
    });
    const Time at = outputs_.front().at;
    TRAINYARD_ASSERT(packets_ || at.ps() >= bound_);  // others have relied on it
    out.insert(out.end(), outputs_.begin(), outputs_.end());
    outputs_.clear();
    return at;
  };
  if (!outputs_.empty()) return hand_out();
  for (;;) {
    completions_.clear();
    const Time now = engine_advance(limit);
    if (completions_.empty()) return now;
    for (const Completion& c : completions_) {
      const Flight flight = flights_[c.id];
      if (flight.call == kOuter) {
        if (stepped_ && c.what == Completion::What::acknowledged) {
          std::erase_if(outer_open_, [&](const auto& o) { return o.first == flight.label; });
        }
        outputs_.push_back({now,
                            c.what == Completion::What::delivered
                                ? DomainOutput::What::delivered
                                : DomainOutput::What::acknowledged,
                            flight.label, 0});
        continue;
      }
      if ((c.what == Completion::What::delivered) == complete_at_receiver_) {
        sends_.clear();
        done_.clear();
        calls_[flight.call].run->delivered(flight.send, sends_, done_);
        apply(flight.call, now);
      }
      if (stepped_ && (complete_at_receiver_ || c.what == Completion::What::acknowledged)) {
        forget(c.id);
      }
    }
    if (!outputs_.empty()) return hand_out();
    if (idle()) return now;
  }
}

std::vector<CollectiveHost::Tally> DomainRun::tallies() {
  std::vector<CollectiveHost::Tally> out;
  std::vector<std::vector<Time>> grants;
  for (const Call& c : calls_) {
    out.push_back(c.tally);
    grants.push_back(c.grants);
  }
  const auto& all = records();
  for (size_t id = 0; id < flights_.size(); ++id) {
    const Flight& f = flights_[id];
    if (f.call == kOuter || f.call == kNobody) continue;
    out[f.call].transmissions += all[id].transmissions;
    if (f.send.clear_to_send) grants[f.call].push_back(all[id].delivered - all[id].start);
  }
  for (size_t i = 0; i < grants.size(); ++i) {
    if (!grants[i].empty()) set_grant_percentiles(grants[i], out[i]);
  }
  return out;
}

}  // namespace trainyard
