// SPDX-License-Identifier: MIT
#include "workload/planned_run.h"

#include <utility>

namespace trainyard {

PlannedRun::PlannedRun(MessagePlan plan) : plan_(std::move(plan)) {
  plan_.finish();
  const uint32_t n = plan_.members();
  const auto& messages = plan_.messages();
  const auto count = static_cast<uint32_t>(messages.size());
  here_.assign(n, 0);
  left_.assign(n, 0);
  held_.resize(n);
  open_.resize(count);
  ready_.assign(count, 0);
  ahead_gone_.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    ++left_[messages[i].src];
    ++left_[messages[i].dst];
    open_[i] = plan_.waits_for(i);
    ahead_gone_[i] = plan_.first_on_edge(i) ? 1 : 0;
    if (open_[i] == 0) held_[messages[i].src].push_back(i);
  }
  for (uint32_t m = 0; m < n; ++m) silent_.push_back(left_[m] == 0 ? 1 : 0);
}

void PlannedRun::arrived(uint32_t member, std::vector<CollectiveSend>& sends,
                         std::vector<uint32_t>& done) {
  here_[member] = 1;
  const bool all = ++n_here_ == plan_.members();
  if (all) {
    // Who neither sends nor receives is done when everybody is here.
    for (uint32_t m = 0; m < plan_.members(); ++m) {
      if (silent_[m] != 0) done.push_back(m);
    }
  }
  if (!plan_.together()) {
    release(member, sends);
  } else if (all) {
    for (uint32_t m = 0; m < plan_.members(); ++m) release(m, sends);
  }
}

void PlannedRun::release(uint32_t member, std::vector<CollectiveSend>& sends) {
  const std::vector<uint32_t> held = std::exchange(held_[member], {});
  for (const uint32_t i : held) unblock(i, sends);
}

/// `i` waits for no message any more.
void PlannedRun::unblock(uint32_t i, std::vector<CollectiveSend>& sends) {
  const auto& m = plan_.messages()[i];
  if (here_[m.src] == 0 || here_[m.dst] == 0) {
    held_[here_[m.src] == 0 ? m.src : m.dst].push_back(i);
    return;
  }
  ready_[i] = 1;
  if (ahead_gone_[i] != 0) launch(i, sends);
}

void PlannedRun::launch(uint32_t i, std::vector<CollectiveSend>& sends) {
  for (;;) {
    const auto& m = plan_.messages()[i];
    sends.push_back({m.src, m.dst, m.bytes, m.channel, i});
    i = plan_.next_on_edge(i);
    if (i == MessagePlan::kNone) return;
    ahead_gone_[i] = 1;
    if (ready_[i] == 0) return;
  }
}

void PlannedRun::delivered(const CollectiveSend& send, std::vector<CollectiveSend>& sends,
                           std::vector<uint32_t>& done) {
  const uint32_t i = send.token;
  for (uint32_t k = plan_.first_after(i); k < plan_.first_after(i + 1); ++k) {
    const uint32_t next = plan_.after()[k];
    if (--open_[next] == 0) unblock(next, sends);
  }
  for (const uint32_t m : {send.src, send.dst}) {
    if (--left_[m] == 0) done.push_back(m);
  }
}

bool PlannedRun::receives(uint32_t member, std::vector<CollectiveReceive>& out) const {
  // In the order of the plan no message waits for a later one, so that rooms in this order never
  // wait for each other.
  for (const auto& m : plan_.messages()) {
    if (m.dst != member) continue;
    if (!out.empty() && out.back().src == m.src && out.back().channel == m.channel) {
      ++out.back().count;
    } else {
      out.push_back({m.src, m.channel, 1});
    }
  }
  return true;
}

}  // namespace trainyard
