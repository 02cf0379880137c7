// SPDX-License-Identifier: MIT
#include "network/staged_fabric.h"

#include <algorithm>

namespace trainyard {

StagedFabric::StagedFabric(Fabric& inner, const std::vector<TimedFlow>& flows,
                           std::vector<FabricChange> changes, Schedule schedule)
    : inner_(inner), flows_(flows), changes_(std::move(changes)), schedule_(std::move(schedule)) {
  std::stable_sort(changes_.begin(), changes_.end(),
                   [](const FabricChange& a, const FabricChange& b) { return a.at < b.at; });
  for (uint32_t i = 0; i < flows_.size(); ++i) begin(i, flows_[i].start);
}

/// Changes and periodic flows up to `limit` become events of the fabric, and no others: what is due
/// after the end of a run never happens.
void StagedFabric::feed(Time limit) {
  for (; next_change_ < changes_.size() && changes_[next_change_].at <= limit; ++next_change_) {
    schedule_(changes_[next_change_]);
  }
  while (!periodic_.empty() && periodic_.front().first <= limit) {
    std::pop_heap(periodic_.begin(), periodic_.end(), std::greater<>());
    const auto [at, flow] = periodic_.back();
    periodic_.pop_back();
    begin(flow, at);
  }
}

void StagedFabric::begin(uint32_t flow, Time at) {
  const TimedFlow& f = flows_[flow];
  Transfer t = f.transfer;
  t.owner = flow;
  const TransferId id = inner_.start(t, at);
  TRAINYARD_ASSERT(id == origins_.size());
  origins_.push_back({f.background ? Kind::background : Kind::flow, flow, false});
  if (f.background)
    ++background_left_;
  else
    ++outstanding_;
  if (f.background && f.period > Time()) {
    periodic_.emplace_back(at + f.period, flow);
    std::push_heap(periodic_.begin(), periodic_.end(), std::greater<>());
  }
}

TransferId StagedFabric::start(const Transfer& transfer, Time at) {
  feed(at);
  const TransferId id = inner_.start(transfer, at);
  TRAINYARD_ASSERT(id == origins_.size());
  origins_.push_back({Kind::job, jobs_, false});
  ++outstanding_;
  return jobs_++;
}

Time StagedFabric::next_staged() const {
  Time next = Time::infinity();
  if (next_change_ < changes_.size()) next = changes_[next_change_].at;
  if (!periodic_.empty()) next = std::min(next, periodic_.front().first);
  return next;
}

Time StagedFabric::next_event() const {
  const Time next = inner_.next_event();
  return outstanding_ == 0 ? next : std::min(next, next_staged());
}

Time StagedFabric::advance(Time limit, std::vector<Completion>& out) {
  const size_t before = out.size();
  for (;;) {
    Time to = limit;
    if (const Time staged = next_staged(); staged <= limit && staged != Time::infinity()) {
      if (staged <= inner_.next_event()) {
        feed(staged);
        to = staged;
      } else {
        to = staged - Time::ps(1);
      }
    }
    scratch_.clear();
    const Time now = inner_.advance(to, scratch_);
    reached_ = now == Time::infinity() ? reached_ : now;
    for (const Completion& c : scratch_) on_completion(c, out);
    if (out.size() != before || (scratch_.empty() && to == limit)) return now;
    // Nobody waits any more: background traffic could go on for ever.
    if (outstanding_ == 0 && (limit == Time::infinity() || jobs_ == 0)) return now;
  }
}

void StagedFabric::on_completion(const Completion& c, std::vector<Completion>& out) {
  Origin& origin = origins_[c.id];
  const bool over = origin.half;  // the second of two, whichever that is
  origin.half = true;
  switch (origin.kind) {
    case Kind::job:
      if (over) --outstanding_;
      out.push_back({c.at, origin.index, c.what});
      return;
    case Kind::flow:
      last_flow_progress_ = c.at;
      if (!over) return;
      --outstanding_;
      ++flows_done_;
      return;
    case Kind::background:
      if (!over) return;
      --background_left_;
      if (flows_[origin.index].repeat) begin(origin.index, c.at);
      return;
  }
}

const std::vector<TransferRecord>& StagedFabric::transfers() const {
  const auto& all = inner_.transfers();
  job_records_.clear();
  job_records_.reserve(jobs_);
  for (size_t i = 0; i < all.size(); ++i) {
    if (origins_[i].kind == Kind::job) job_records_.push_back(all[i]);
  }
  return job_records_;
}

std::vector<TransferRecord> StagedFabric::flow_records(bool background) const {
  const auto& all = inner_.transfers();
  const Kind kind = background ? Kind::background : Kind::flow;
  std::vector<TransferRecord> out;
  for (size_t i = 0; i < all.size(); ++i) {
    if (origins_[i].kind == kind) out.push_back(all[i]);
  }
  return out;
}

}  // namespace trainyard
