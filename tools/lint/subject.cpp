// SPDX-License-Identifier: MIT
#include "tools/lint/subject.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <unordered_map>

#include "tools/lint/formulas.h"
#include "tools/scenario/run.h"

namespace trainyard {
namespace {

bool is_scale_up(const Topology& t, const TopologyLink& l) {
  return t.nodes()[l.a].kind == NodeKind::scale_up || t.nodes()[l.b].kind == NodeKind::scale_up;
}

/// The engine's dynamic threshold of an ingress port (protocols 5.5).
double alpha_of(const PacketConfig& c, Rate nic, Rate rate) {
  int64_t alpha = c.alpha_q16;
  if (c.alpha_by_port_rate && nic.bps() > 0) {
    for (int64_t r = rate.bps(); r > nic.bps() && 2 * alpha <= 65536; r /= 2) alpha *= 2;
  }
  return static_cast<double>(alpha) / 65536;
}

/// Longest ways to one destination, by falling distance from it. Hosts do not forward.
class WaysTo {
 public:
  WaysTo(const Topology& t, const PacketConfig& c) : t_(t), config_(c) {}

  void visit(uint32_t destination, LintPaths& best) {
    ways_.assign(t_.nodes().size(), {});
    std::vector<uint32_t> order{destination};
    ways_[destination].distance = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const uint32_t v = order[i];
      if (v != destination) settle(v, destination);
      if (v != destination && t_.nodes()[v].kind == NodeKind::host) continue;
      for (const uint32_t p : t_.nodes()[v].ports) {
        const uint32_t u = t_.to(p);
        if (ways_[u].distance >= 0 || t_.nodes()[u].kind == NodeKind::scale_up) continue;
        ways_[u].distance = ways_[v].distance + 1;
        order.push_back(u);
      }
    }
    for (const uint32_t h : t_.hosts()) {
      const Way& w = ways_[h];
      if (w.distance <= 0) continue;
      best.found = true;
      best.choices = std::max(best.choices, w.choices);
      const int64_t bdp = bytes_in(w.rate, w.rtt).count();
      if (bdp < best.bdp) continue;
      best.bdp = bdp;
      best.rtt = w.rtt;
      best.rate = w.rate;
      best.switches = static_cast<uint32_t>(w.distance - 1);
    }
  }

 private:
  struct Way {
    int32_t distance = -1;
    Time rtt;
    Rate rate;
    uint32_t choices = 0;
  };

  /// All nodes nearer to the destination are settled.
  void settle(uint32_t u, uint32_t destination) {
    Way& w = ways_[u];
    uint32_t next_hops = 0;
    for (const uint32_t p : t_.nodes()[u].ports) {
      const uint32_t v = t_.to(p);
      if (ways_[v].distance != w.distance - 1) continue;
      if (v != destination && t_.nodes()[v].kind == NodeKind::host) continue;
      ++next_hops;
      const TopologyLink& l = t_.link_of(p);
      const Time rtt =
          ways_[v].rtt + l.delay * 2 +
          transmission_time(Bytes(config_.payload), l.rate, Time::ps(config_.resolution_ps));
      const Rate rate = v == destination ? l.rate : std::min(l.rate, ways_[v].rate);
      w.choices = std::max(w.choices, ways_[v].choices);
      if (rtt < w.rtt) continue;
      w.rtt = rtt;
      w.rate = rate;
    }
    if (next_hops > 1) ++w.choices;
  }

  const Topology& t_;
  const PacketConfig& config_;
  std::vector<Way> ways_;
};

/// Counts senders of other servers per receiver.
class FanIn {
 public:
  FanIn(const Topology& t, LintIncast& best) : servers_(t.servers()), best_(best) {}

  void flows(const std::vector<Flow>& flows, const std::string& what, const std::string& key) {
    std::vector<std::tuple<Time, uint32_t, uint32_t, int64_t>> sends;  // start, dst, src, bytes
    for (const Flow& f : flows) {
      if (servers_[f.src] != servers_[f.dst]) sends.emplace_back(f.start, f.dst, f.src, f.bytes);
    }
    std::sort(sends.begin(), sends.end());
    uint32_t degree = 0;
    int64_t bytes = 0;
    for (size_t i = 0; i < sends.size(); ++i) {
      const auto& [start, dst, src, size] = sends[i];
      const bool same =
          i > 0 && start == std::get<0>(sends[i - 1]) && dst == std::get<1>(sends[i - 1]);
      const bool same_sender = same && src == std::get<2>(sends[i - 1]);
      degree = same ? degree + (same_sender ? 0 : 1) : 1;
      bytes = same ? bytes + size : size;
      offer(degree, bytes, what, key);
    }
  }

  /// All-to-all is the collective whose members send to one at the same time.
  void job(const Job& job, int64_t window, const std::string& key) {
    std::unordered_map<const OpGraph*, std::map<uint32_t, int64_t>> slots;  // slot -> bytes
    for (uint32_t r = 0; r < job.ranks.size(); ++r) {
      const RankProgram& program = job.ranks[r];
      const auto [it, added] = slots.try_emplace(program.graph.get());
      if (added) {
        for (const Op& op : program.graph->ops) {
          if (op.kind == OpKind::collective && op.collective == CollectiveKind::all_to_all) {
            int64_t& bytes = it->second[op.group_slot];
            bytes = std::max(bytes, op.bytes);
          }
        }
      }
      for (const auto& [slot, bytes] : it->second) {
        const Group& group = job.groups[program.binding.groups[slot]];
        int64_t n = 0;
        for (const uint32_t m : group.members) n += servers_[m] == servers_[r] ? 0 : 1;
        if (window > 0) n = std::min(n, window);
        offer(static_cast<uint32_t>(n), bytes / static_cast<int64_t>(group.members.size()) * n,
              "all-to-all of " + std::to_string(group.members.size()) + " ranks", key);
      }
    }
  }

 private:
  void offer(uint32_t degree, int64_t bytes, const std::string& what, const std::string& key) {
    if (std::pair(degree, bytes) <= std::pair(best_.degree, best_.bytes)) return;
    best_.degree = degree;
    best_.bytes = bytes;
    best_.what = what;
    best_.key = key;
  }

  const std::vector<uint32_t>& servers_;
  LintIncast& best_;
};

}  // namespace

int LintSwitchClass::ports() const {
  uint32_t n = 0;
  for (const auto& [rate, count_of_rate] : rates) n += count_of_rate;
  return static_cast<int>(n);
}

LintPlace LintSubject::at(const std::string& key) const {
  const auto it = places.find(key);
  if (it != places.end()) return it->second;
  return {key, "", {}};
}

std::optional<LintEcn> LintSubject::ecn(Rate rate) const {
  if (conf) {
    for (const LintEcn& e : ecn_map) {
      if (e.rate == rate) return e;
    }
    return std::nullopt;
  }
  const double per_25g = static_cast<double>(rate.bps()) / 25e9;
  return LintEcn{rate, config.kmin >= 0 ? config.kmin : std::llround(100'000 * per_25g),
                 config.kmax >= 0 ? config.kmax : std::llround(400'000 * per_25g),
                 std::ldexp(static_cast<double>(config.pmax_q32), -32)};
}

std::vector<Rate> LintSubject::marking_rates() const {
  std::set<Rate> rates;
  for (const LintPortClass& p : ports) {
    if (!p.scale_up) rates.insert(p.rate);
  }
  if (!has_topology) {
    for (const LintEcn& e : ecn_map) rates.insert(e.rate);
  }
  return {rates.begin(), rates.end()};
}

int64_t LintSubject::headroom(Rate rate, Time delay) const {
  if (config.pfc == PfcMode::off) return 0;
  switch (config.headroom_rule) {
    case HeadroomRule::fixed:
      return config.headroom_fixed;
    case HeadroomRule::rate_delay:
      return static_cast<int64_t>(
          std::floor(static_cast<double>(bytes_in(rate, delay).count()) * config.headroom_factor));
    case HeadroomRule::automatic:
      return lint::headroom_need(rate, delay, frame(), config.pfc_frame,
                                 Time::ps(config.headroom_response_ps));
  }
  return 0;
}

void LintSubject::use(const Topology& t) {
  has_topology = true;
  nic_rate = t.nic_rate();
  using PortKey = std::tuple<bool, Rate, Time>;
  std::map<PortKey, std::pair<LintPortClass, std::set<std::string>>> classes;
  for (uint32_t port = 0; port < 2 * t.links().size(); ++port) {
    if (t.nodes()[t.to(port)].kind == NodeKind::host) continue;
    const TopologyLink& l = t.link_of(port);
    const bool scale_up = is_scale_up(t, l);
    auto& [c, tiers] = classes[{scale_up, l.rate, l.delay}];
    tiers.insert(t.tier(port));
    c.rate = l.rate;
    c.delay = l.delay;
    c.scale_up = scale_up;
    c.loss_rate = std::max(c.loss_rate, l.loss_rate);
    ++c.ports;
  }
  for (auto& [key, entry] : classes) {
    auto& [c, tiers] = entry;
    for (const auto& tier : tiers) c.tier += (c.tier.empty() ? "" : " and ") + tier;
    ports.push_back(std::move(c));
  }

  using SwitchKey = std::pair<NodeKind, std::map<std::pair<Rate, Time>, uint32_t>>;
  std::map<SwitchKey, LintSwitchClass> kinds;
  for (size_t i = 0; i < t.nodes().size(); ++i) {
    const TopologyNode n = t.nodes()[i];
    if (n.kind == NodeKind::host) continue;
    SwitchKey key{n.kind, {}};
    for (const uint32_t p : n.ports) {
      const TopologyLink& l = t.link_of(p);
      ++key.second[{l.rate, l.delay}];
    }
    LintSwitchClass& s = kinds[key];
    if (s.count++ > 0) continue;
    s.example = n.name;
    s.kind = n.kind;
    s.min_alpha = 1e9;
    for (const auto& [link, count] : key.second) {
      s.rates[link.first] += count;
      s.headrooms += headroom(link.first, link.second) * count;
      s.reserves += config.reserve * count;
      s.min_alpha = std::min(s.min_alpha, alpha_of(config, nic_rate, link.first));
    }
    s.pool = config.buffer - s.headrooms - s.reserves;
  }
  for (auto& [key, s] : kinds) switches.push_back(std::move(s));

  constexpr size_t kMostDestinations = 32;
  WaysTo ways(t, config);
  const auto& hosts = t.hosts();
  const size_t step = std::max<size_t>(1, hosts.size() / kMostDestinations);
  for (size_t i = 0; i < hosts.size(); i += step) ways.visit(hosts[i], paths);
}

LintSubject lint_scenario(const Scenario& s) {
  LintSubject subject;
  subject.file = s.file;
  for (const Setting& setting : s.resolved) {
    subject.places[setting.key] = {setting.key, setting.value, setting.origin};
  }
  subject.config = packet_config(s);
  Workload workload;
  if (s.has_workload()) workload = load_workload(s);
  const Topology topology =
      build_topology(s, static_cast<uint32_t>(workload.import.job.ranks.size()));
  subject.use(topology);

  FanIn fan_in(topology, subject.incast);
  const auto hosts = static_cast<uint32_t>(topology.hosts().size());
  const int64_t window =
      s.collectives.is_word("window", "auto") ? 0 : s.collectives.integer("window");
  const auto entries = collective_entries(s);
  if (s.has_workload()) {
    fan_in.job(workload.import.job, window, s.training ? "workload.model" : "workload.chakra");
  }
  if (!entries.empty()) {
    fan_in.job(collective_job(s.name, hosts, entries), window, "traffic[0].pattern");
  }
  const auto flows = build_flows(s, hosts);
  if (!flows.empty()) {
    fan_in.flows(flows, s.traffic.size() == 1 ? s.traffic[0].kind : "all patterns together",
                 "traffic[0].pattern");
  }
  return subject;
}

}  // namespace trainyard
