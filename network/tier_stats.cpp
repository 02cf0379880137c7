// SPDX-License-Identifier: MIT
#include "network/tier_stats.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

namespace trainyard {
namespace {

/// How far above the hosts a node stands: kinds first, then levels where the kind has several.
std::pair<int, int> height(const Topology& t, uint32_t node) {
  const NodeKind kind = t.kind(node);
  const int rank = kind == NodeKind::host ? 0 : kind == NodeKind::spine ? 2 : 1;
  return {rank, t.nodes()[node].place.level};
}

struct Sum {
  double total = 0, largest = 0;
  uint32_t links = 0;  // that are not idle
  void add(double value) {
    total += value;
    largest = std::max(largest, value);
    ++links;
  }
};

struct Group {
  uint32_t links = 0;  // of the topology
  Sum bytes, queue_pairs;
};

struct Tier {
  uint32_t links = 0, used = 0;
  Sum bytes, queue_pairs;
  double least_bytes = -1, least_queue_pairs = -1;  // of the links that have records
  uint32_t recorded = 0;
  std::unordered_map<uint32_t, Group> groups;  // by lower node
};

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

TierLoad::Spread spread(const Tier& tier, const Sum& sum, double least, const Topology& topology,
                        Sum Group::*of) {
  TierLoad::Spread s;
  s.total = sum.total;
  const double mean = sum.total / tier.links;
  s.max_to_mean = ratio(sum.largest, mean);
  s.skew = ratio(sum.largest - (tier.recorded < tier.links ? 0 : least), mean);
  // In order of nodes: a sum of doubles depends on it.
  std::vector<uint32_t> nodes;
  nodes.reserve(tier.groups.size());
  for (const auto& [node, group] : tier.groups) nodes.push_back(node);
  std::sort(nodes.begin(), nodes.end());
  uint32_t groups = 0;
  for (const uint32_t node : nodes) {
    const Group& group = tier.groups.at(node);
    const Sum& g = group.*of;
    if (group.links < 2 || g.total <= 0) continue;
    const double mmr = g.largest / (g.total / group.links);
    ++groups;
    s.group_mean += mmr;
    if (mmr > s.group_max) {
      s.group_max = mmr;
      s.group = topology.nodes()[node].name;
    }
  }
  if (groups > 0) s.group_mean /= groups;
  return s;
}

}  // namespace

const char* link_direction(const Topology& topology, uint32_t from, uint32_t to) {
  const auto a = height(topology, from);
  const auto b = height(topology, to);
  return a < b ? "up" : b < a ? "down" : "across";
}

std::vector<TierQueueing> tier_queueing(const Topology& topology,
                                        const std::vector<LinkRecord>& links,
                                        const PacketSamples& samples) {
  std::map<std::pair<std::string, std::string>, std::vector<int64_t>> waits;
  std::vector<int64_t> whole;
  std::vector<std::vector<int64_t>*> of_link(links.size(), nullptr);
  for (const PacketSample& s : samples.packets) {
    int64_t sum = 0;
    for (size_t i = 1; i < s.hops.size(); ++i) {
      const PacketSample::Hop& hop = s.hops[i];
      auto*& list = of_link[hop.link];
      if (list == nullptr) {
        const LinkRecord& link = links[hop.link];
        list = &waits[{link.tier, link_direction(topology, link.from_node, link.to_node)}];
      }
      list->push_back(hop.queueing_ps);
      sum += hop.queueing_ps;
    }
    if (s.fate == PacketSample::Fate::delivered) whole.push_back(sum);
  }
  std::vector<TierQueueing> out;
  const auto add = [&](const std::string& tier, const std::string& direction,
                       std::vector<int64_t>& list) {
    if (list.empty()) return;
    std::sort(list.begin(), list.end());
    const auto rank = [&](size_t percent) {  // nearest
      return Time::ps(list[(list.size() * percent + 99) / 100 - 1]);
    };
    out.push_back({tier, direction, list.size(), rank(50), rank(99), Time::ps(list.back())});
  };
  for (auto& [key, list] : waits) add(key.first, key.second, list);
  add("whole path", "", whole);
  return out;
}

std::vector<TierLoad> tier_loads(const Topology& topology, const std::vector<LinkRecord>& links) {
  // Key: names of tier and direction.
  std::map<std::pair<std::string, std::string>, Tier> tiers;
  const auto lower = [&](uint32_t from, uint32_t to) {
    return height(topology, to) < height(topology, from) ? to : from;
  };
  for (const LinkRecord& link : links) {
    const char* direction = link_direction(topology, link.from_node, link.to_node);
    Tier& tier = tiers[{link.tier, direction}];
    const auto bytes = static_cast<double>(link.data_bytes);
    ++tier.recorded;
    if (tier.least_bytes < 0 || bytes < tier.least_bytes) tier.least_bytes = bytes;
    if (tier.least_queue_pairs < 0 || link.queue_pairs < tier.least_queue_pairs) {
      tier.least_queue_pairs = link.queue_pairs;
    }
    Group& group = tier.groups[lower(link.from_node, link.to_node)];
    if (link.data_bytes > 0) {
      ++tier.used;
      tier.bytes.add(bytes);
      group.bytes.add(bytes);
    }
    if (link.queue_pairs > 0) {
      tier.queue_pairs.add(link.queue_pairs);
      group.queue_pairs.add(link.queue_pairs);
    }
  }
  const auto ports = static_cast<uint32_t>(2 * topology.links().size());
  for (uint32_t port = 0; port < ports; ++port) {
    const uint32_t from = topology.from(port);
    const uint32_t to = topology.to(port);
    const auto it = tiers.find({topology.tier(port), link_direction(topology, from, to)});
    if (it == tiers.end()) continue;  // nothing came there
    ++it->second.links;
    const auto group = it->second.groups.find(lower(from, to));
    if (group != it->second.groups.end()) ++group->second.links;
  }
  std::vector<TierLoad> out;
  for (const auto& [key, tier] : tiers) {
    if (tier.used == 0) continue;
    TierLoad load;
    load.tier = key.first;
    load.direction = key.second;
    load.links = tier.links;
    load.used = tier.used;
    load.bytes = spread(tier, tier.bytes, tier.least_bytes, topology, &Group::bytes);
    load.queue_pairs =
        spread(tier, tier.queue_pairs, tier.least_queue_pairs, topology, &Group::queue_pairs);
    out.push_back(std::move(load));
  }
  return out;
}

}  // namespace trainyard
