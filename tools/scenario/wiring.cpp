// SPDX-License-Identifier: MIT
#include "tools/scenario/wiring.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "network/topology_select.h"

namespace trainyard {
namespace {

struct Line {
  std::string text;
  SourcePos pos;
};

/// Lines of a file, without comments and blank ones.
std::vector<Line> read_lines(const Scenario& s, const std::string& path, const SourcePos& pos,
                             const char* what) {
  std::filesystem::path file = path;
  if (file.is_relative()) file = std::filesystem::path(s.base_dir) / file;
  std::ifstream in(file);
  if (!in || std::filesystem::is_directory(file)) {
    throw UserError(pos, std::string("cannot open ") + what + " file " + file.string(),
                    "the path is relative to the scenario file");
  }
  std::vector<Line> lines;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    line = line.substr(0, line.find('#'));
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos) continue;
    line = line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
    lines.push_back({line, {file.string(), number}});
  }
  return lines;
}

/// The host whose NIC a pattern names, and its cables: all of the NIC, or one port.
struct Nic {
  uint32_t host;
  std::vector<uint32_t> links;
};

Nic one_nic(const Topology& t, const std::string& pattern, const SourcePos& pos) {
  const auto links = select_links(t, pattern, pos);
  const auto host_of = [&](uint32_t link) {
    const TopologyLink& l = t.links()[link];
    return t.kind(l.a) == NodeKind::host ? l.a : l.b;
  };
  for (const uint32_t l : links) {
    if (t.is_nic_link(l) && host_of(l) == host_of(links[0])) continue;
    throw UserError(pos, "'" + pattern + "' is not one NIC or one of its ports",
                    "name it like node3.nic0 or node3.nic0:port1");
  }
  return {host_of(links[0]), links};
}

void apply_nic_order(Topology& t, const Scenario& s) {
  // Hosts of every server, by the name before the dot.
  std::map<std::string, std::vector<uint32_t>> servers;
  for (uint32_t n = 0; n < t.nodes().size(); ++n) {
    if (t.kind(n) != NodeKind::host) continue;
    const std::string& name = t.nodes()[n].name;
    servers[name.substr(0, name.find('.'))].push_back(n);
  }
  struct Move {
    uint32_t link, from, to;
  };
  std::map<std::string, SourcePos> given;
  std::vector<Move> moves;
  for (const Line& line : read_lines(s, s.nic_order, s.nic_order_pos, "NIC order")) {
    std::istringstream in(line.text);
    std::string pattern;
    in >> pattern;
    std::vector<uint32_t> order;
    for (std::string word; in >> word;) {
      const bool number =
          word.size() < 6 && word.find_first_not_of("0123456789") == std::string::npos;
      if (!number) throw UserError(line.pos, "'" + word + "' is not a NIC number");
      order.push_back(static_cast<uint32_t>(std::stoul(word)));
    }
    bool any = false;
    for (const auto& [name, hosts] : servers) {
      if (!matches_pattern(pattern, name)) continue;
      any = true;
      std::vector<uint32_t> sorted = order;
      std::sort(sorted.begin(), sorted.end());
      bool permutation = sorted.size() == hosts.size();
      for (uint32_t i = 0; permutation && i < sorted.size(); ++i) permutation = sorted[i] == i;
      if (!permutation) {
        throw UserError(line.pos,
                        "the order of " + name + " must name each of its NICs, 0 to " +
                            std::to_string(hosts.size() - 1) + ", once",
                        "write: " + pattern + " 1 0 2 3 ...");
      }
      const auto [before, added] = given.emplace(name, line.pos);
      if (!added) {
        throw UserError(line.pos, "the NIC order of " + name + " is given twice",
                        "the first is in line " + std::to_string(before->second.line));
      }
      // NIC i gets the cables that the plan has at NIC order[i].
      for (uint32_t i = 0; i < order.size(); ++i) {
        if (order[i] == i) continue;
        for (const uint32_t link : t.nic_links(hosts[order[i]])) {
          moves.push_back({link, hosts[order[i]], hosts[i]});
        }
      }
    }
    if (!any) {
      throw UserError(line.pos, "'" + pattern + "' matches no server",
                      "servers are called " + servers.begin()->first + " ...");
    }
  }
  for (const Move& m : moves) t.move_end(m.link, m.from, m.to);
  t.finish(t.reach());
}

}  // namespace

void apply_wiring(Topology& t, const Scenario& s) {
  if (!s.nic_order.empty()) apply_nic_order(t, s);
  for (const WiringSwap& swap : s.swaps) {
    const Nic a = one_nic(t, swap.a, swap.pos);
    const Nic b = one_nic(t, swap.b, swap.pos);
    if (a.host == b.host || a.links.size() != b.links.size()) {
      throw UserError(swap.pos,
                      "cannot swap " + swap.a + " (" + std::to_string(a.links.size()) +
                          " cables) with " + swap.b + " (" + std::to_string(b.links.size()) +
                          " cables)",
                      "name two different NICs with equally many ports");
    }
    for (size_t i = 0; i < a.links.size(); ++i) {
      t.move_end(a.links[i], a.host, b.host);
      t.move_end(b.links[i], b.host, a.host);
    }
    t.finish(t.reach());
  }
}

void apply_placement(Topology& t, const Scenario& s, uint32_t ranks) {
  if (s.placement == "contiguous") return;
  const std::vector<uint32_t> hosts = t.hosts();
  std::vector<uint32_t> order;
  if (s.placement == "striped") {
    // Round by round, the next GPU of every server.
    const auto n = static_cast<uint32_t>(hosts.size());
    for (uint32_t gpu = 0; gpu < s.gpus_per_node; ++gpu) {
      for (uint32_t r = gpu; r < n; r += s.gpus_per_node) order.push_back(hosts[r]);
    }
    t.place_ranks(order);
    return;
  }
  const std::string path = s.placement.substr(s.placement.find(':') + 1);
  std::map<std::string, uint32_t> by_name;
  for (const uint32_t h : hosts) by_name[t.nodes()[h].name] = h;
  std::map<uint32_t, SourcePos> taken;
  for (const Line& line : read_lines(s, path, s.placement_pos, "placement")) {
    const auto it = by_name.find(line.text);
    if (it == by_name.end()) {
      throw UserError(line.pos, "'" + line.text + "' is not a GPU of this fabric",
                      "write one name per line, rank 0 first: " + t.nodes()[hosts[0]].name);
    }
    const auto [before, added] = taken.emplace(it->second, line.pos);
    if (!added) {
      throw UserError(line.pos, line.text + " is given twice",
                      "the first is in line " + std::to_string(before->second.line));
    }
    order.push_back(it->second);
  }
  const size_t needed = ranks == 0 ? hosts.size() : ranks;
  if (order.size() < needed) {
    throw UserError(s.placement_pos,
                    "the placement file names " + std::to_string(order.size()) + " GPUs, " +
                        std::to_string(needed) + " ranks need one",
                    "add a line for each rank");
  }
  // GPUs without a rank of the workload keep their order.
  for (const uint32_t h : hosts) {
    if (taken.count(h) == 0) order.push_back(h);
  }
  t.place_ranks(order);
}

}  // namespace trainyard
