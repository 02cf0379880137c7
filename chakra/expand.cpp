// SPDX-License-Identifier: MIT
#include "chakra/expand.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sim/errors.h"

namespace trainyard::chakra {
namespace {

// Collectives by the numbers of the schema.
enum Kind : int64_t {
  kAllReduce = 0,
  kReduce = 1,
  kAllGather = 2,
  kGather = 3,
  kScatter = 4,
  kBroadcast = 5,
  kAllToAll = 6,
  kReduceScatter = 7,
  kReduceScatterBlock = 8,
  kBarrier = 9
};

const char* kind_name(int64_t kind) {
  static const char* const names[] = {
      "all-reduce", "reduce",         "all-gather",           "gather", "scatter", "broadcast",
      "all-to-all", "reduce-scatter", "reduce-scatter-block", "barrier"};
  return kind >= 0 && kind <= kBarrier ? names[kind] : "unknown";
}

/// Payload that all members of one call together send, n members, each with `size`.
int64_t moved(int64_t kind, int64_t n, int64_t size) {
  if (n < 2) return 0;
  const auto times = [&](int64_t factor) {
    return static_cast<int64_t>(static_cast<__int128>(size) * factor);
  };
  switch (kind) {
    case kAllReduce:
      return times(2 * (n - 1));
    case kAllGather:
      return times(n * (n - 1));
    case kReduceScatter:
    case kReduceScatterBlock:
    case kAllToAll:
    case kGather:
    case kScatter:
    case kReduce:
    case kBroadcast:
      return times(n - 1);
    default:
      return 0;
  }
}

/// "1.0" is group "1".
std::string plain(const std::string& name) {
  const size_t dot = name.find('.');
  if (dot == std::string::npos || dot + 1 == name.size()) return name;
  return name.find_first_not_of('0', dot + 1) == std::string::npos ? name.substr(0, dot) : name;
}

bool is_number(const std::string& name) {
  return !name.empty() && name.size() < 10 &&
         name.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

Expanded expand(const TraceSet& set, const ExpandOptions& options) {
  const auto ranks = static_cast<uint32_t>(set.ranks.size());
  const uint32_t k = options.factor;
  if (k < 1 || ranks == 0) throw UserError("there is nothing to expand");
  if (static_cast<uint64_t>(ranks) * k > 1'000'000) {
    throw UserError(std::to_string(ranks) + " ranks x " + std::to_string(k) +
                    " are more than a million");
  }
  std::vector<ProcessGroup> groups = set.groups;
  for (ProcessGroup& g : groups) {
    if (!g.ranks.empty()) continue;
    for (uint32_t r = 0; r < ranks; ++r) g.ranks.push_back(r);
  }
  std::set<std::string> grown;
  for (const std::string& name : options.grow) {
    if (name == "*") {
      for (const ProcessGroup& g : groups) {
        if (g.ranks.size() == ranks) grown.insert(g.name);
      }
      continue;
    }
    const auto it = std::find_if(groups.begin(), groups.end(), [&](const ProcessGroup& g) {
      return g.name == name || g.name == plain(name);
    });
    if (it == groups.end()) {
      std::string known;
      for (const ProcessGroup& g : groups) {
        if (known.size() < 200) known += (known.empty() ? "" : ", ") + g.name;
      }
      throw UserError("the trace has no group '" + name + "'",
                      known.empty() ? "it has no groups: use '*'" : "known: " + known);
    }
    grown.insert(it->name);
  }

  // Names of the copies: numbers stay numbers, as readers want them.
  const bool numbers = std::all_of(groups.begin(), groups.end(),
                                   [](const ProcessGroup& g) { return is_number(g.name); });
  uint64_t next = 0;
  if (numbers) {
    for (const ProcessGroup& g : groups) next = std::max<uint64_t>(next, std::stoull(g.name) + 1);
  }
  Expanded out;
  std::vector<std::map<std::string, std::string>> name_in(k);  // copy: name -> name
  std::map<std::string, int64_t> members;                      // before
  for (const ProcessGroup& g : groups) {
    members[g.name] = static_cast<int64_t>(g.ranks.size());
    const bool grows = grown.count(g.name) == 1;
    ProcessGroup whole{g.name, {}};
    for (uint32_t j = 0; j < k; ++j) {
      std::vector<uint32_t> moved_ranks = g.ranks;
      for (uint32_t& r : moved_ranks) r += j * ranks;
      if (grows) {
        whole.ranks.insert(whole.ranks.end(), moved_ranks.begin(), moved_ranks.end());
        name_in[j][g.name] = g.name;
        continue;
      }
      const std::string name = j == 0    ? g.name
                               : numbers ? std::to_string(next++)
                                         : g.name + "." + std::to_string(j);
      name_in[j][g.name] = name;
      out.set.groups.push_back({name, std::move(moved_ranks)});
    }
    if (grows) out.set.groups.push_back(std::move(whole));
  }

  std::map<std::pair<std::string, bool>, ExpandedTotal> totals;
  for (uint32_t j = 0; j < k; ++j) {
    for (uint32_t r = 0; r < ranks; ++r) {
      RankTrace trace = set.ranks[r];
      trace.groups.clear();
      for (Node& node : trace.nodes) {
        const bool message = node.type == NodeType::comm_send || node.type == NodeType::comm_recv;
        if (message) {
          if (node.comm_src) *node.comm_src += static_cast<int64_t>(j) * ranks;
          if (node.comm_dst) *node.comm_dst += static_cast<int64_t>(j) * ranks;
          if (node.type == NodeType::comm_recv) continue;
          ExpandedTotal& t = totals[{"send", false}];
          const int64_t size = node.comm_size.value_or(0);
          t.calls += 1;
          t.size += size;
          t.moved += size;
          if (j > 0) continue;
          t.calls_before += 1;
          t.size_before += size;
          t.moved_before += size;
          t.moved_expected += size * k;
          continue;
        }
        if (node.type != NodeType::comm_coll) continue;
        const int64_t kind = node.comm_type.value_or(-1);
        int64_t n = ranks;
        bool grows = true;  // a collective of everybody
        if (node.pg_name && !node.pg_name->empty()) {
          auto it = name_in[j].find(*node.pg_name);
          if (it == name_in[j].end()) it = name_in[j].find(plain(*node.pg_name));
          if (it == name_in[j].end()) {
            throw UserError(trace.file + ": node " + std::to_string(node.id) +
                                " names the group '" + *node.pg_name + "', which is not there",
                            "give the groups with --groups");
          }
          n = members[it->first];
          grows = grown.count(it->first) == 1;
          node.pg_name = it->second;
        } else if (std::find(options.grow.begin(), options.grow.end(), "*") == options.grow.end()) {
          throw UserError(
              trace.file + ": node " + std::to_string(node.id) +
                  " is a collective of all ranks, which cannot be copied without a group",
              "let it grow: --grow '*'");
        }
        const int64_t size = node.comm_size.value_or(0);
        if (grows && k > 1) {
          if (kind == kGather || kind == kScatter || kind < 0 || kind > kBarrier) {
            throw UserError(trace.file + ": node " + std::to_string(node.id) + ": a " +
                            kind_name(kind) + " has no rule for a group that grows");
          }
          if (kind == kAllGather) {
            if (size % k != 0) {
              throw UserError(trace.file + ": node " + std::to_string(node.id) +
                                  ": an all-gather of " + std::to_string(size) +
                                  " bytes per rank does not divide among " + std::to_string(k) +
                                  " times as many ranks",
                              "choose a factor that divides it");
            }
            node.comm_size = size / k;
          }
        }
        // Every member has a node for the call: each counts its part.
        ExpandedTotal& t = totals[{kind_name(kind), grows}];
        const int64_t now = grows ? n * k : n;
        const int64_t size_now = node.comm_size.value_or(0);
        t.calls += 1;
        t.size += size_now;
        t.moved += moved(kind, now, size_now) / now;
        if (j > 0) continue;
        t.calls_before += 1;
        t.size_before += size;
        const int64_t before = moved(kind, n, size) / n;
        t.moved_before += before;
        // What a member of n sends is (n - 1) / n of the whole (once or twice), whatever n is.
        if (!grows) {
          t.moved_expected += before * k;
        } else if (n < 2) {
          t.moved_expected += k * (moved(kind, now, kind == kAllGather ? size / k : size) / now);
        } else {
          const __int128 per_member = static_cast<__int128>(moved(kind, n, size)) * (now - 1) /
                                      (static_cast<__int128>(n - 1) * now);
          t.moved_expected += static_cast<int64_t>(per_member) * k;
        }
      }
      out.set.ranks.push_back(std::move(trace));
    }
  }
  for (auto& [key, total] : totals) {
    total.kind = key.first;
    total.grown = key.second;
    out.totals.push_back(total);
  }
  return out;
}

}  // namespace trainyard::chakra
