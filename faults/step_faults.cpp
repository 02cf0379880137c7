// SPDX-License-Identifier: MIT
#include "faults/step_faults.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "network/topology_select.h"
#include "sim/dice.h"
#include "sim/registry.h"

namespace trainyard {

void StepFaults::add(What what, uint32_t link, Time from, Time until, double value, uint8_t kinds) {
  const bool built_in = before_ && until == Time::infinity() &&
                        (what == What::down || what == What::rate || what == What::loss);
  to_packets_ = to_packets_ || !built_in || what == What::loss;
  intervals_[{what, link, kinds}].push_back({from, until, value, before_});
}

void StepFaults::cable_down(uint32_t link, Time from, Time until) {
  add(What::down, link, from, until, 1);
}
void StepFaults::cable_rate(uint32_t link, Time from, Time until, double share) {
  add(What::rate, link, from, until, share);
}
void StepFaults::cable_loss(uint32_t link, Time from, Time until, double probability) {
  add(What::loss, link, from, until, probability);
}
void StepFaults::cable_drops(uint32_t link, Time from, Time until, uint32_t every, uint8_t kinds) {
  add(What::drops, link, from, until, every, kinds);
}
void StepFaults::sender(uint32_t link, Time from, Time until, double share) {
  add(What::sends, link, from, until, share);
}
void StepFaults::receiver(uint32_t link, Time from, Time until, Rate rate) {
  add(What::receiver, link, from, until, static_cast<double>(rate.bps()));
}
void StepFaults::storm(uint32_t link, Time from, Time until) {
  add(What::storm, link, from, until, 1);
}

void StepFaults::backup_nic(const Topology& topology, uint32_t host, Time from, Time until,
                            Rate rate, Time delay) {
  backups_.emplace_back(rate, delay);
  add(What::backup, topology.nic_links(host).at(0), from, until,
      static_cast<double>(backups_.size()));
}

void StepFaults::resolve(What what, uint32_t link, uint8_t kinds,
                         const std::vector<Interval>& intervals, const Topology& topology,
                         const PacketConfig& config) {
  using Kind = FabricChange::Kind;
  std::vector<Time> edges;
  for (const Interval& i : intervals) {
    edges.push_back(i.from);
    if (i.until != Time::infinity()) edges.push_back(i.until);
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  const double built_loss = topology.links()[link].loss_rate;
  const bool share = what == What::rate || what == What::sends || what == What::takes;
  double before = share ? 1 : 0;  // nothing wrong
  for (const Time at : edges) {
    double value = share ? 1 : 0;
    bool known = false;
    for (const Interval& i : intervals) {
      if (at < i.from || at >= i.until) continue;
      known = known || (i.before && i.from == at);
      switch (what) {
        case What::down:
        case What::storm:
          value = 1;
          break;
        case What::backup:
          value = std::max(value, i.value);
          break;
        case What::rate:
        case What::sends:
        case What::takes:
          value = std::min(value, i.value);
          break;
        case What::loss:
          value = 1 - (1 - value) * (1 - i.value);
          break;
        case What::receiver:
        case What::drops:
          value = value == 0 ? i.value : std::min(value, i.value);
          break;
      }
    }
    if (value == before) continue;
    before = value;
    FabricChange change;
    change.at = at;
    change.link = link;
    change.known = known;
    switch (what) {
      case What::down:
        change.kind = value > 0 ? Kind::link_down : Kind::link_up;
        break;
      case What::backup:
        change.kind = value > 0 ? Kind::backup_on : Kind::backup_off;
        if (value > 0) {
          const auto& [rate, delay] = backups_[static_cast<size_t>(value) - 1];
          change.rate_bps = rate.bps();
          change.delay = delay;
        }
        break;
      case What::storm:
        change.kind = value > 0 ? Kind::storm_on : Kind::storm_off;
        break;
      case What::rate:
      case What::sends:
      case What::takes:
        change.kind = Kind::link_rate;
        change.ends = what == What::rate    ? FabricChange::both_ends
                      : what == What::sends ? FabricChange::host_end
                                            : FabricChange::other_end;
        change.value_q32 = static_cast<uint64_t>(std::ldexp(value, 32));
        break;
      case What::loss:
        change.kind = Kind::link_loss;
        change.value_q32 =
            static_cast<uint64_t>(std::ldexp(1 - (1 - value) * (1 - built_loss), 32));
        break;
      case What::drops:
        change.kind = Kind::link_drops;
        change.value_q32 = static_cast<uint64_t>(value);
        change.kinds = kinds;
        break;
      case What::receiver:
        change.kind = Kind::receive_rate;
        change.rate_bps = value > 0 ? static_cast<int64_t>(value) : config.receive_bps;
        break;
    }
    changes_.push_back(change);
  }
}

void StepFaults::report(FaultRecord record) {
  const FaultKind& kind = fault_kind(record.kind);
  if (record.manifestation.empty()) record.manifestation = kind.manifestation;
  if (record.signal.empty()) record.signal = kind.signal;
  if (before_) record.text += ", since before the run";
  records_.push_back(std::move(record));
}

void StepFaults::abort(Time at, std::string why) {
  if (at >= abort_at_) return;
  abort_at_ = at;
  abort_reason_ = std::move(why);
}

void StepFaults::build_in(What what, uint32_t link, std::vector<Interval>& intervals) {
  if (what != What::down && what != What::rate && what != What::loss) return;
  const auto stays = [](const Interval& i) { return i.before && i.until == Time::infinity(); };
  if (!std::all_of(intervals.begin(), intervals.end(), stays)) return;
  LinkDamage d;
  d.link = link;
  for (const Interval& i : intervals) {
    d.down = d.down || what == What::down;
    if (what == What::rate) d.rate_share = std::min(d.rate_share, i.value);
    if (what == What::loss) d.loss_rate = 1 - (1 - d.loss_rate) * (1 - i.value);
  }
  damage_.push_back(d);
  intervals.clear();
}

void StepFaults::finish(const Topology& topology, const PacketConfig& config) {
  // Queue pairs of a host with a backup NIC move within the run, and back.
  std::set<uint32_t> with_backup;
  for (const auto& [key, intervals] : intervals_) {
    if (std::get<0>(key) != What::backup) continue;
    const TopologyLink& l = topology.links()[std::get<1>(key)];
    const uint32_t host = topology.kind(l.a) == NodeKind::host ? l.a : l.b;
    const bool stays = std::any_of(intervals.begin(), intervals.end(), [](const Interval& i) {
      return i.before && i.until == Time::infinity();
    });
    if (stays) borrowers_.push_back(host);
    for (const uint32_t link : topology.nic_links(host)) with_backup.insert(link);
  }
  std::sort(borrowers_.begin(), borrowers_.end());
  // Where the ends of a cable may differ, each has its own course.
  std::vector<std::pair<uint32_t, std::vector<Interval>>> both;
  for (const auto& [key, intervals] : intervals_) {
    if (std::get<0>(key) != What::sends) continue;
    const auto rate = intervals_.find({What::rate, std::get<1>(key), 0});
    if (rate != intervals_.end()) both.emplace_back(std::get<1>(key), rate->second);
  }
  for (const auto& [link, intervals] : both) {
    intervals_.erase({What::rate, link, 0});
    for (const What what : {What::sends, What::takes}) {
      auto& own = intervals_[{what, link, 0}];
      own.insert(own.end(), intervals.begin(), intervals.end());
    }
  }
  for (auto& [key, intervals] : intervals_) {
    const uint32_t link = std::get<1>(key);
    if (!with_backup.contains(link)) build_in(std::get<0>(key), link, intervals);
  }
  std::stable_sort(damage_.begin(), damage_.end(),
                   [](const LinkDamage& a, const LinkDamage& b) { return a.link < b.link; });
  // Nothing more can happen to a cable that is not there.
  for (const LinkDamage& d : damage_) {
    if (!d.down) continue;
    std::erase_if(intervals_, [&](const auto& i) {
      return std::get<1>(i.first) == d.link && std::get<0>(i.first) != What::backup;
    });
  }
  for (const auto& [key, intervals] : intervals_) {
    resolve(std::get<0>(key), std::get<1>(key), std::get<2>(key), intervals, topology, config);
  }
  intervals_.clear();
  std::stable_sort(changes_.begin(), changes_.end(),
                   [](const FabricChange& a, const FabricChange& b) { return a.at < b.at; });
  std::stable_sort(records_.begin(), records_.end(),
                   [](const FaultRecord& a, const FaultRecord& b) { return a.at < b.at; });
}

std::vector<ParamSpec> fault_params(const std::string& where_help,
                                    const std::vector<ParamSpec>& more) {
  using PT = ParamType;
  std::vector<ParamSpec> specs = {
      {"at",
       PT::time,
       "0ns",
       "0ns",
       "30d",
       {"before"},
       "when it begins; before: long before the run, the fabric has learnt of it",
       "DESIGN 9.1"},
      {"where", PT::text, "", "", "", {}, where_help, "DESIGN 9.1"},
      {"for",
       PT::time,
       "end",
       "1ns",
       "30d",
       {"end"},
       "how long it lasts; end: until the run ends",
       "DESIGN 9.1"},
      {"mtbf",
       PT::time,
       "none",
       "1ns",
       "100d",
       {"none"},
       "every part that `where` names fails at random instants after `at`, so long apart on the "
       "mean "
       "(exponential; drawn from the seed); none: once, at `at`",
       "DESIGN 7"},
      {"horizon",
       PT::time,
       "none",
       "1ns",
       "30d",
       {"none"},
       "with mtbf: no failure begins later",
       "DESIGN 7"},
      {"abort_after",
       PT::time,
       "none",
       "0ns",
       "30d",
       {"none"},
       "the job is ended so long after it begins, unless it is over by then: what a framework does "
       "that is told of a failure; none: the job goes on as far as it can",
       "DESIGN 7"}};
  specs.insert(specs.end(), more.begin(), more.end());
  return specs;
}

FaultSpan fault_span(const Params& params) {
  const Time from = params.is_word("at", "before") ? Time() : params.time("at");
  return {from, params.is_word("for", "end") ? Time::infinity() : from + params.time("for")};
}

const std::string& fault_where(const FaultRequest& request, const Params& params) {
  const std::string& where = params.text("where");
  if (where.empty()) {
    throw UserError(request.pos, "a fault needs 'where'",
                    "name a part, for example link(leaf0,spine2), node3.nic5 or rank17");
  }
  return where;
}

const FaultKind& fault_kind(const std::string& name, const SourcePos& pos) {
  return Registry::instance().factory<FaultKind>("fault", name, pos);
}

std::vector<FaultPart> fault_parts(FaultKind::Parts kind, const Topology& t,
                                   const std::string& where, const SourcePos& pos) {
  std::vector<FaultPart> out;
  if (where.rfind("group:", 0) == 0) {
    // What shares a risk fails together.
    uint64_t digest = 0;
    for (const char c : where) digest = mix64(digest ^ static_cast<unsigned char>(c)) + 1;
    return {{where, digest}};
  }
  if (kind == FaultKind::Parts::gpus || kind == FaultKind::Parts::switches) {
    std::vector<uint32_t> nodes = select_nodes(t, where, pos);
    // "node3" names its scale-up switch, too.
    const auto is_host = [&](uint32_t n) { return t.kind(n) == NodeKind::host; };
    if (kind == FaultKind::Parts::gpus && std::any_of(nodes.begin(), nodes.end(), is_host)) {
      std::erase_if(nodes, [&](uint32_t n) { return !is_host(n); });
    }
    for (const uint32_t n : nodes) out.push_back({t.nodes()[n].name, n});
    return out;
  }
  for (const uint32_t link : select_links(t, where, pos)) {
    out.push_back({port_name(t, link), t.nodes().size() + link});
  }
  return out;
}

std::vector<uint32_t> fault_ranks(const FaultRequest& r, const Params& p) {
  const std::string& where = fault_where(r, p);
  std::vector<uint32_t> ranks;
  for (const uint32_t node : select_nodes(r.topology, where, p.origin("where").pos)) {
    const auto& hosts = r.topology.hosts();
    const auto at = std::find(hosts.begin(), hosts.end(), node);
    if (at != hosts.end()) ranks.push_back(static_cast<uint32_t>(at - hosts.begin()));
  }
  if (ranks.empty()) {
    throw UserError(p.origin("where").pos, "'" + where + "' names no GPU",
                    "write rank17 or node3.gpu5");
  }
  const bool any =
      std::any_of(ranks.begin(), ranks.end(), [&](uint32_t rank) { return rank < r.ranks; });
  if (!any) {
    throw UserError(p.origin("where").pos, "'" + where + "' names no GPU of the job",
                    "it has ranks 0 to " + std::to_string(r.ranks - 1));
  }
  return ranks;
}

std::string fault_ranks_name(const FaultRequest& r, const Params& p,
                             const std::vector<uint32_t>& ranks) {
  if (ranks.size() > 1) return p.text("where") + ": " + std::to_string(ranks.size()) + " GPUs";
  return "rank " + std::to_string(ranks[0]) + " (" +
         r.topology.nodes()[r.topology.hosts()[ranks[0]]].name + ")";
}

}  // namespace trainyard
