// SPDX-License-Identifier: MIT
// Stretches (CollectiveHost): calls of one communicator that follow each other alone on their
// links. Each is a domain of its own; a stretch that was seen is the sequence of their episodes.
#include <algorithm>
#include <unordered_set>

#include "memo/domain_fabric.h"
#include "sim/errors.h"

namespace trainyard {

uint32_t DomainFabric::open_site(const std::vector<HostedCall>& calls) {
  if (!options_.partition || !options_.memo || !options_.stretches || config_.shared_noise) {
    return kNoSite;
  }
  // The order of first use decides ties: what a later call is the first to use is not known before.
  std::vector<Transfer> at_hand, later;
  for (const HostedCall& call : calls) {
    const auto plan = plans_.plan(call);
    if (call.request.sizes || plan->edges.empty()) return kNoSite;
    transfers_of(call, *plan, &call == &calls.front() ? at_hand : later);
  }
  std::unordered_set<QpKey, QpKeyHash> first;
  for (const Transfer& t : at_hand) {
    for (uint32_t part = 0; part < parts_of(t); ++part) first.insert(qp_key(t, part));
  }
  for (const Transfer& t : later) {
    for (uint32_t part = 0; part < parts_of(t); ++part) {
      const QpKey key = qp_key(t, part);
      if (!first.contains(key) && !qp_index_.contains(key)) return kNotYet;
    }
  }
  Site site;
  site.channel_base = calls.front().channel_base;
  std::vector<const CallPlan*> plans;
  for (const HostedCall& call : calls) {
    const auto plan = plans_.plan(call);
    const auto known = std::find(plans.begin(), plans.end(), plan.get());
    site.calls.push_back(static_cast<uint32_t>(known - plans.begin()));
    site.fixed.add(plan->digest);
    if (known != plans.end()) continue;
    plans.push_back(plan.get());
    Parts& parts = site.parts.emplace_back();
    site.payload.push_back(plan->payload + plan->grants);
    const auto add = [&](uint32_t what, std::vector<uint32_t>& here, std::vector<uint32_t>& all) {
      if (std::find(here.begin(), here.end(), what) != here.end()) return;
      here.push_back(what);
      if (std::find(all.begin(), all.end(), what) == all.end()) all.push_back(what);
    };
    for (const uint32_t q : *queue_pairs(call, plan.get())) {
      add(q, parts.qps, site.all.qps);
      for (uint32_t i = 0; i < qps_[q].ports; ++i) {
        const uint32_t link = qp_ports_[qps_[q].first_port + i] / 2;
        link_order(link);
        add(link, parts.links, site.all.links);
      }
    }
  }
  // As in claim(): who is who, in which order they were first used, and what does not change.
  Hash128& h = site.fixed;
  const auto places = [&](const std::vector<uint32_t>& list, const auto& rank) {
    std::vector<uint32_t> ranks;
    for (const uint32_t x : list) ranks.push_back(rank(x));
    std::sort(ranks.begin(), ranks.end());
    for (const uint32_t x : list) {
      h.add(static_cast<uint64_t>(std::lower_bound(ranks.begin(), ranks.end(), rank(x)) -
                                  ranks.begin()));
    }
  };
  places(site.all.qps, [&](uint32_t q) { return qps_[q].id.rank; });
  places(site.all.links, [&](uint32_t l) { return link_order_[l]; });
  const auto label_of = [](const std::vector<uint32_t>& list, uint32_t what) {
    return static_cast<uint64_t>(std::find(list.begin(), list.end(), what) - list.begin());
  };
  for (const uint32_t q : site.all.qps) {
    h.add(qps_[q].ports);
    h.add(static_cast<uint64_t>(qps_[q].id.traffic_class) << 8 | qps_[q].id.part);
    for (uint32_t i = 0; i < qps_[q].ports; ++i) {
      const uint32_t port = qp_ports_[qps_[q].first_port + i];
      h.add(label_of(site.all.links, port / 2) << 1 | (port & 1U));
    }
  }
  std::vector<uint32_t> nodes;
  for (const uint32_t link : site.all.links) {
    const TopologyLink& l = topology_.links()[link];
    h.add_signed(l.rate.bps());
    h.add_signed(l.delay.ps());
    h.add(l.loss_rate > 0 ? 1 : 0);
    for (const uint32_t node : {l.a, l.b}) {
      const uint64_t label = label_of(nodes, node);
      h.add(label);
      if (label < nodes.size()) continue;
      nodes.push_back(node);
      h.add(node_digest(node));
      if (topology_.nodes()[node].kind != NodeKind::host) site.switches.push_back(node);
    }
  }
  sites_.push_back(std::move(site));
  return static_cast<uint32_t>(sites_.size() - 1);
}

std::optional<Hash128> DomainFabric::site_state(uint32_t index) {
  const Site& site = sites_[index];
  if (disturbed_ != kNone || watches_.contains(site.channel_base)) return std::nullopt;
  for (const uint32_t link : site.all.links) {
    if (link_domain_[link] != kNone) return std::nullopt;
  }
  Hash128 h = site.fixed;
  for (const uint32_t link : site.all.links) {
    for (uint32_t dir = 0; dir < 2; ++dir) port_into_hash(h, 2 * link + dir);
  }
  for (const uint32_t q : site.all.qps) qp_into_hash(h, qps_[q], now_);
  return h;
}

void DomainFabric::watch(uint32_t site, Time begin) {
  Watch w;
  w.site = site;
  w.begin = begin.ps();
  w.stretch = std::make_shared<SiteStretch>();
  watches_[sites_[site].channel_base] = std::move(w);
}

/// A domain ends: it may be one of those that are watched.
void DomainFabric::note_for_watch(const Domain& d) {
  for (const uint32_t c : d.calls) {
    const auto it = watches_.find(calls_[c].info.channel_base);
    if (it == watches_.end()) continue;
    Watch& w = it->second;
    const bool lasts = d.mode == Domain::Mode::follower || d.recorded;
    if (d.calls.size() > 1 || !d.transfers.empty() || d.disturbed || !lasts) {
      w.failed = true;
      continue;
    }
    w.stretch->entries.push_back({d.start - w.begin, now_ - w.begin, d.episode});
    // As labels of the site.
    const Site& site = sites_[w.site];
    for (const PoolUse& use : d.episode->pools) {
      if (use.port / 2 >= d.links.size()) continue;
      const auto label =
          std::find(site.all.links.begin(), site.all.links.end(), d.links[use.port / 2]) -
          site.all.links.begin();
      const auto port = static_cast<uint32_t>(2 * label) + (use.port & 1U);
      auto& pools = w.stretch->pools;
      const auto known = std::find_if(pools.begin(), pools.end(),
                                      [&](const PoolUse& p) { return p.port == port; });
      if (known == pools.end()) {
        pools.push_back({port, use.peak, use.room});
      } else {
        known->peak = std::max(known->peak, use.peak);
        known->room = std::min(known->room, use.room);
      }
    }
  }
}

std::shared_ptr<const HostStretch> DomainFabric::watched(uint32_t index) {
  const Site& site = sites_[index];
  const auto it = watches_.find(site.channel_base);
  TRAINYARD_ASSERT(it != watches_.end());
  const Watch w = std::move(it->second);
  watches_.erase(it);
  if (w.failed || w.stretch->entries.size() != site.calls.size()) return nullptr;
  // A domain may live on into what comes next.
  for (const uint32_t link : site.all.links) {
    if (link_domain_[link] != kNone) return nullptr;
  }
  for (size_t i = 0; i < site.calls.size(); ++i) {
    const Episode& e = *w.stretch->entries[i].episode;
    const Parts& parts = site.parts[site.calls[i]];
    if (e.qps.size() != parts.qps.size() || e.port_memory.size() != 2 * parts.links.size()) {
      return nullptr;
    }
  }
  return w.stretch;
}

uint32_t DomainFabric::hold(uint32_t index) {
  Hold h;
  h.site = index;
  h.domain = new_domain(now_);
  std::erase(pending_, h.domain);
  const Site& site = sites_[index];
  Domain& d = domains_[h.domain];
  d.mode = Domain::Mode::reserved;
  d.links = site.all.links;
  d.switches = site.switches;
  for (const uint32_t link : d.links) link_domain_[link] = h.domain;
  for (const uint32_t node : d.switches) switch_users_[node].push_back(h.domain);
  if (free_holds_.empty()) {
    holds_.push_back(std::move(h));
    return static_cast<uint32_t>(holds_.size() - 1);
  }
  const uint32_t place = free_holds_.back();
  free_holds_.pop_back();
  holds_[place] = std::move(h);
  return place;
}

void DomainFabric::let_go(uint32_t index) {
  release(holds_[index].domain);
  holds_[index] = {};
  free_holds_.push_back(index);
}

void DomainFabric::replay(uint32_t index, std::shared_ptr<const HostStretch> stretch, Time begin) {
  Hold& h = holds_[index];
  h.begin = begin.ps();
  h.stretch = std::static_pointer_cast<const SiteStretch>(stretch);
  set_pools(domains_[h.domain], h.stretch->pools);
}

void DomainFabric::replayed(uint32_t index) {
  const Hold r = holds_[index];
  const Site& site = sites_[r.site];
  ++stats_.stretches;
  stats_.stretch_calls += site.calls.size();
  for (size_t i = 0; i < site.calls.size(); ++i) {
    const SiteStretch::Entry& entry = r.stretch->entries[i];
    const Episode& e = *entry.episode;
    const Parts& own = site.parts[site.calls[i]];
    const PartsOf parts{own.qps, own.links};
    ++stats_.domains;
    stats_.largest_domain = std::max<uint64_t>(stats_.largest_domain, own.links.size());
    stats_.bytes_stretches += e.totals.payload_bytes;
    book_followed(parts, e, r.begin + entry.start);
    leave_behind(parts, e, r.begin + entry.end, true);
    payload_asked_ += site.payload[site.calls[i]];
    add_totals(totals_, e.totals);
  }
  let_go(index);
}

}  // namespace trainyard
