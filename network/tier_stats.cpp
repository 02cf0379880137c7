// SPDX-License-Identifier: MIT
#include "network/tier_stats.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
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

uint32_t lower_node(const Topology& t, uint32_t from, uint32_t to) {
  return height(t, to) < height(t, from) ? to : from;
}

using Key = std::pair<std::string, std::string>;  // tier and direction

/// Links of the topology, those of each lower node too.
struct Shape {
  uint32_t links = 0;
  std::unordered_map<uint32_t, uint32_t> links_of;
};

/// Of the tiers and directions of `links`.
std::map<Key, Shape> shapes(const Topology& t, const std::vector<LinkRecord>& links) {
  std::map<Key, Shape> out;
  for (const LinkRecord& link : links) {
    out.try_emplace({link.tier, link_direction(t, link.from_node, link.to_node)});
  }
  const auto ports = static_cast<uint32_t>(2 * t.links().size());
  for (uint32_t port = 0; port < ports; ++port) {
    if (t.link_of(port).cut) continue;
    const uint32_t from = t.from(port);
    const uint32_t to = t.to(port);
    const auto it = out.find({t.tier(port), link_direction(t, from, to)});
    if (it == out.end()) continue;  // nothing came there
    ++it->second.links;
    ++it->second.links_of[lower_node(t, from, to)];
  }
  return out;
}

struct Sum {
  double total = 0, largest = 0;
  void add(double value) {
    total += value;
    largest = std::max(largest, value);
  }
};

struct Group {
  Sum bytes, queue_pairs;
};

struct Tier {
  uint32_t used = 0;
  Sum bytes, queue_pairs;
  double least_bytes = -1, least_queue_pairs = -1;  // of the links that have records
  uint32_t recorded = 0;
  std::unordered_map<uint32_t, Group> groups;  // by lower node
};

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

TierLoad::Spread spread(const Tier& tier, const Shape& shape, const Sum& sum, double least,
                        const Topology& topology, Sum Group::*of) {
  TierLoad::Spread s;
  s.total = sum.total;
  const double mean = sum.total / shape.links;
  s.max_to_mean = ratio(sum.largest, mean);
  s.skew = ratio(sum.largest - (tier.recorded < shape.links ? 0 : least), mean);
  // In order of nodes: a sum of doubles depends on it.
  std::vector<uint32_t> nodes;
  nodes.reserve(tier.groups.size());
  for (const auto& [node, group] : tier.groups) nodes.push_back(node);
  std::sort(nodes.begin(), nodes.end());
  uint32_t groups = 0;
  for (const uint32_t node : nodes) {
    const Sum& g = tier.groups.at(node).*of;
    const uint32_t links = shape.links_of.at(node);
    if (links < 2 || g.total <= 0) continue;
    const double mmr = g.largest / (g.total / links);
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
  std::map<Key, Tier> tiers;
  for (const LinkRecord& link : links) {
    const char* direction = link_direction(topology, link.from_node, link.to_node);
    Tier& tier = tiers[{link.tier, direction}];
    const auto bytes = static_cast<double>(link.data_bytes);
    ++tier.recorded;
    if (tier.least_bytes < 0 || bytes < tier.least_bytes) tier.least_bytes = bytes;
    if (tier.least_queue_pairs < 0 || link.queue_pairs < tier.least_queue_pairs) {
      tier.least_queue_pairs = link.queue_pairs;
    }
    Group& group = tier.groups[lower_node(topology, link.from_node, link.to_node)];
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
  const std::map<Key, Shape> all = shapes(topology, links);
  std::vector<TierLoad> out;
  for (const auto& [key, tier] : tiers) {
    if (tier.used == 0) continue;
    const Shape& shape = all.at(key);
    TierLoad load;
    load.tier = key.first;
    load.direction = key.second;
    load.links = shape.links;
    load.used = tier.used;
    load.bytes = spread(tier, shape, tier.bytes, tier.least_bytes, topology, &Group::bytes);
    load.queue_pairs = spread(tier, shape, tier.queue_pairs, tier.least_queue_pairs, topology,
                              &Group::queue_pairs);
    out.push_back(std::move(load));
  }
  return out;
}

TierLoadSeries tier_load_series(const Topology& topology, const std::vector<LinkRecord>& links,
                                const LinkSeries& series) {
  TierLoadSeries out;
  out.window = series.window;
  if (series.links.empty()) return out;
  const std::map<Key, Shape> all = shapes(topology, links);
  std::map<Key, uint32_t> index;
  std::vector<const Shape*> shape_of;
  for (const auto& [key, shape] : all) {
    index.emplace(key, static_cast<uint32_t>(shape_of.size()));
    shape_of.push_back(&shape);
    out.tiers.push_back({key.first, key.second, shape.links, {}});
  }
  struct Entry {
    uint32_t tier, group, link;
    int64_t window, bytes;
  };
  std::vector<Entry> entries;
  for (uint32_t i = 0; i < series.links.size(); ++i) {
    const LinkRecord& link = links.at(i);
    const uint32_t tier =
        index.at({link.tier, link_direction(topology, link.from_node, link.to_node)});
    const uint32_t group = lower_node(topology, link.from_node, link.to_node);
    for (const LinkSeries::Row& row : series.links[i]) {
      if (row.payload_bytes > 0) entries.push_back({tier, group, i, row.window, row.payload_bytes});
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.tier, a.window, a.group, a.link) <
           std::tie(b.tier, b.window, b.group, b.link);
  });
  for (auto first = entries.begin(); first != entries.end();) {
    const Shape& shape = *shape_of[first->tier];
    TierLoadSeries::Row row;
    row.window = first->window;
    int64_t least = INT64_MAX;
    uint32_t groups = 0;
    auto e = first;
    while (e != entries.end() && e->tier == first->tier && e->window == row.window) {
      const uint32_t group = e->group;
      int64_t total = 0;
      int64_t largest = 0;
      for (; e != entries.end() && e->tier == first->tier && e->window == row.window &&
             e->group == group;
           ++e) {
        ++row.used;
        total += e->bytes;
        largest = std::max(largest, e->bytes);
        least = std::min(least, e->bytes);
        if (e->bytes > row.max_bytes || (e->bytes == row.max_bytes && e->link < row.busiest)) {
          row.max_bytes = e->bytes;
          row.busiest = e->link;
        }
      }
      row.bytes += total;
      const uint32_t parallel = shape.links_of.at(group);
      if (parallel < 2) continue;
      const double mmr = static_cast<double>(largest) / (static_cast<double>(total) / parallel);
      ++groups;
      row.group_mean += mmr;
      if (mmr > row.group_max) {
        row.group_max = mmr;
        row.group = group;
      }
    }
    if (groups > 0) row.group_mean /= groups;
    if (row.used < shape.links) least = 0;
    const double mean = static_cast<double>(row.bytes) / shape.links;
    row.max_to_mean = static_cast<double>(row.max_bytes) / mean;
    row.skew = static_cast<double>(row.max_bytes - least) / mean;
    out.tiers[first->tier].rows.push_back(row);
    first = e;
  }
  std::erase_if(out.tiers, [](const TierLoadSeries::Tier& t) { return t.rows.empty(); });
  return out;
}

void add_windows(const TierLoadSeries& series, std::vector<TierLoad>& loads) {
  for (const TierLoadSeries::Tier& tier : series.tiers) {
    const auto load = std::find_if(loads.begin(), loads.end(), [&](const TierLoad& l) {
      return l.tier == tier.tier && l.direction == tier.direction;
    });
    if (load == loads.end()) continue;
    TierLoad::Windows& w = load->windows;
    std::vector<double> ratios;
    std::vector<double> parallel;
    double busiest = 0;
    double bytes = 0;
    for (const TierLoadSeries::Row& row : tier.rows) {
      ratios.push_back(row.max_to_mean);
      if (row.group != TierLoadSeries::kNone) parallel.push_back(row.group_max);
      busiest += static_cast<double>(row.max_bytes);
      bytes += static_cast<double>(row.bytes);
      if (row.max_to_mean > w.max) {
        w.max = row.max_to_mean;
        w.worst = series.window * row.window;
      }
    }
    const auto median = [](std::vector<double>& list) {
      std::sort(list.begin(), list.end());
      return list.empty() ? 0 : list[(list.size() + 1) / 2 - 1];
    };
    w.count = ratios.size();
    w.p50 = median(ratios);
    w.mean = ratio(busiest, bytes / tier.links);
    w.group_count = parallel.size();
    w.group_p50 = median(parallel);
    w.group_max = parallel.empty() ? 0 : parallel.back();
  }
}

}  // namespace trainyard
