// SPDX-License-Identifier: MIT
#include "network/topology_select.h"

#include <algorithm>

namespace trainyard {
namespace {

bool digit(char c) {
  return c >= '0' && c <= '9';
}

/// Reads digits at `i`; false when there are none or too many.
bool read_number(const std::string& s, size_t& i, uint64_t& value) {
  const size_t start = i;
  value = 0;
  while (i < s.size() && digit(s[i]) && i - start < 18) {
    value = 10 * value + static_cast<uint64_t>(s[i++] - '0');
  }
  return i > start;
}

/// Whether the list of numbers "0,4,6-7" has `n`.
bool has_number(const std::string& list, uint64_t n) {
  for (size_t i = 0; i < list.size(); ++i) {
    uint64_t low = 0;
    if (!read_number(list, i, low)) return false;
    uint64_t high = low;
    if (i < list.size() && list[i] == '-' && !read_number(list, ++i, high)) return false;
    if (n >= low && n <= high) return true;
    if (i < list.size() && list[i] != ',') return false;
  }
  return false;
}

bool match(const std::string& p, size_t i, const std::string& t, size_t j) {
  while (i < p.size()) {
    if (p[i] == '*') {
      while (i < p.size() && p[i] == '*') ++i;
      for (size_t k = j; k <= t.size(); ++k) {
        if (match(p, i, t, k)) return true;
      }
      return false;
    }
    const size_t close = p[i] == '[' ? p.find(']', i) : std::string::npos;
    if (close != std::string::npos) {
      uint64_t n = 0;
      if (!read_number(t, j, n) || !has_number(p.substr(i + 1, close - i - 1), n)) return false;
      i = close + 1;
      continue;
    }
    if (j == t.size() || p[i] != t[j]) return false;
    ++i;
    ++j;
  }
  return j == t.size();
}

/// The pattern matches the name or the parts up to one of its dots.
bool matches_parts(const std::string& pattern, const std::string& name) {
  if (matches_pattern(pattern, name)) return true;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    if (matches_pattern(pattern, name.substr(0, dot))) return true;
  }
  return false;
}

[[noreturn]] void nothing(const Topology& t, const std::string& pattern, const SourcePos& pos) {
  std::string some;
  for (const NodeKind kind :
       {NodeKind::host, NodeKind::scale_up, NodeKind::leaf, NodeKind::spine}) {
    for (uint32_t n = 0; n < t.nodes().size(); ++n) {
      if (t.kind(n) != kind) continue;
      some += (some.empty() ? "" : ", ") + t.nodes()[n].name;
      if (kind == NodeKind::host) some += ", " + nic_name(t.nodes()[n].name);
      break;
    }
  }
  throw UserError(pos, "'" + pattern + "' matches nothing in this fabric",
                  "names look like " + some);
}

void make_unique(std::vector<uint32_t>& v) {
  std::sort(v.begin(), v.end());
  v.erase(std::unique(v.begin(), v.end()), v.end());
}

/// Pods of the nodes next to a host, or of the switch itself.
bool in_pod(const Topology& t, uint32_t node, const std::string& pattern) {
  const auto fits = [&](int32_t pod) {
    return pod >= 0 && matches_pattern(pattern, "pod" + std::to_string(pod));
  };
  if (t.kind(node) != NodeKind::host) return fits(t.nodes()[node].place.pod);
  const PortList ports = t.nodes()[node].ports;
  return std::any_of(ports.begin(), ports.end(),
                     [&](uint32_t p) { return fits(t.nodes()[t.to(p)].place.pod); });
}

std::vector<uint32_t> find_nodes(const Topology& t, const std::string& pattern) {
  std::vector<uint32_t> found;
  for (uint32_t r = 0; pattern.rfind("rank", 0) == 0 && r < t.hosts().size(); ++r) {
    if (matches_pattern(pattern, "rank" + std::to_string(r))) found.push_back(t.hosts()[r]);
  }
  const bool pods = pattern.rfind("pod", 0) == 0;
  for (uint32_t n = 0; n < t.nodes().size(); ++n) {
    if (matches_parts(pattern, t.nodes()[n].name) || (pods && in_pod(t, n, pattern))) {
      found.push_back(n);
    }
  }
  make_unique(found);
  return found;
}

}  // namespace

bool matches_pattern(const std::string& pattern, const std::string& text) {
  return match(pattern, 0, text, 0);
}

std::string nic_name(const std::string& host_name) {
  const size_t at = host_name.rfind(".gpu");
  if (at == std::string::npos) return host_name + ".nic0";
  return host_name.substr(0, at) + ".nic" + host_name.substr(at + 4);
}

namespace {

const std::string kGroup = "group:";

/// What the members of a group name, each once.
std::vector<uint32_t> select_group(
    const Topology& t, const std::string& pattern, const SourcePos& pos,
    std::vector<uint32_t> (*select)(const Topology&, const std::string&, const SourcePos&)) {
  const auto& groups = t.risk_groups();
  const auto group = groups.find(pattern.substr(kGroup.size()));
  if (group == groups.end()) {
    std::string known;
    for (const auto& [name, members] : groups) known += (known.empty() ? "" : ", ") + name;
    throw UserError(pos, "'" + pattern + "' names no shared-risk group",
                    known.empty() ? "fabric.risk_groups defines none" : "known: " + known);
  }
  std::vector<uint32_t> found;
  for (const std::string& member : group->second) {
    const auto more = select(t, member, pos);
    found.insert(found.end(), more.begin(), more.end());
  }
  make_unique(found);
  return found;
}

}  // namespace

std::vector<uint32_t> select_nodes(const Topology& t, const std::string& pattern,
                                   const SourcePos& pos) {
  if (pattern.rfind(kGroup, 0) == 0) return select_group(t, pattern, pos, select_nodes);
  auto found = find_nodes(t, pattern);
  if (found.empty()) nothing(t, pattern, pos);
  return found;
}

std::vector<uint32_t> select_links(const Topology& t, const std::string& pattern,
                                   const SourcePos& pos) {
  if (pattern.rfind(kGroup, 0) == 0) return select_group(t, pattern, pos, select_links);
  std::vector<uint32_t> found;
  if (pattern.rfind("link(", 0) == 0) {
    // A comma inside of brackets does not separate.
    int depth = 0;
    size_t split = std::string::npos;
    for (size_t i = 5; i + 1 < pattern.size(); ++i) {
      depth += pattern[i] == '[' ? 1 : pattern[i] == ']' ? -1 : 0;
      if (pattern[i] == ',' && depth == 0) split = i;
    }
    if (split == std::string::npos || pattern.back() != ')') {
      throw UserError(pos, "cannot read '" + pattern + "'", "write link(leaf0,spine2)");
    }
    const std::string a = pattern.substr(5, split - 5);
    size_t start = split + 1;
    while (start < pattern.size() && pattern[start] == ' ') ++start;
    const std::string b = pattern.substr(start, pattern.size() - 1 - start);
    std::vector<char> in_a(t.nodes().size(), 0);
    std::vector<char> in_b(t.nodes().size(), 0);
    for (const uint32_t n : select_nodes(t, a, pos)) in_a[n] = 1;
    for (const uint32_t n : select_nodes(t, b, pos)) in_b[n] = 1;
    for (uint32_t i = 0; i < t.links().size(); ++i) {
      const TopologyLink& l = t.links()[i];
      if ((in_a[l.a] && in_b[l.b]) || (in_a[l.b] && in_b[l.a])) found.push_back(i);
    }
    if (found.empty()) nothing(t, pattern, pos);
    return found;
  }
  const size_t optic = pattern.find(":optic");
  const size_t colon = optic != std::string::npos ? optic : pattern.find(":port");
  const std::string where = pattern.substr(0, colon);
  const size_t word = optic != std::string::npos ? 6 : 5;
  const std::string port = colon == std::string::npos ? "*" : pattern.substr(colon + word);
  const auto take = [&](const std::vector<uint32_t>& links) {
    for (size_t k = 0; k < links.size(); ++k) {
      const size_t number = optic != std::string::npos ? k / 2 : k;
      if (matches_pattern(port, std::to_string(number))) found.push_back(links[k]);
    }
  };
  for (const uint32_t h : t.hosts()) {
    if (matches_pattern(where, nic_name(t.nodes()[h].name))) take(t.nic_links(h));
  }
  for (const uint32_t n : find_nodes(t, where)) {
    std::vector<uint32_t> links;
    for (const uint32_t p : t.nodes()[n].ports) links.push_back(p >> 1);
    take(links);
  }
  if (found.empty()) nothing(t, pattern, pos);
  make_unique(found);
  return found;
}

std::string port_name(const Topology& t, uint32_t link) {
  const uint32_t node = t.links()[link].a;
  const auto ports = t.nodes()[node].ports;
  const auto at =
      std::find_if(ports.begin(), ports.end(), [&](uint32_t port) { return port >> 1 == link; });
  return t.nodes()[node].name + ":port" + std::to_string(at - ports.begin());
}

}  // namespace trainyard
