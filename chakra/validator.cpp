// SPDX-License-Identifier: MIT
#include "chakra/validator.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <tuple>
#include <unordered_map>

#include "chakra/graph.h"
#include "chakra/groups.h"
#include "chakra/schema.h"
#include "chakra/utf8.h"

namespace trainyard::chakra {

namespace {

/// Text of a trace, safe to print on one line.
std::string quoted(const std::string& text) {
  constexpr size_t kShown = 80;
  constexpr const char* kHex = "0123456789abcdef";
  const bool utf8 = is_utf8(text);
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && (!utf8 || text.size() > kShown))) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out + (text.size() > kShown ? "...\"" : "\"");
}

std::string label(const Node& node) {
  return "node " + std::to_string(node.id) + " " + quoted(node.name);
}

/// Folds findings of one code in one file; the text is made for the first one only.
class Findings {
 public:
  template <typename MakeText>
  void add(Severity severity, const char* code, const std::string& file, const MakeText& text) {
    const auto [it, inserted] = index_.try_emplace({code, file}, list_.size());
    if (inserted) {
      list_.push_back({severity, code, (file.empty() ? "" : file + ": ") + std::string(text()), 1});
      errors_ += severity == Severity::error ? 1 : 0;
    } else {
      ++list_[it->second].count;
    }
  }

  [[nodiscard]] bool any_error() const { return errors_ > 0; }

  std::vector<Finding> take() {
    for (Finding& finding : list_) {
      if (finding.count > 1) {
        finding.message += " (the first of " + std::to_string(finding.count) + " in this file)";
      }
    }
    std::stable_sort(list_.begin(), list_.end(), [](const Finding& a, const Finding& b) {
      return a.severity == Severity::error && b.severity == Severity::warning;
    });
    return std::move(list_);
  }

 private:
  std::vector<Finding> list_;
  std::map<std::pair<std::string, std::string>, size_t> index_;
  int errors_ = 0;
};

bool is_p2p(const Node& node) {
  return node.type == NodeType::comm_send || node.type == NodeType::comm_recv;
}

/// Host side of a communication call: the kernel node carries the operation.
bool is_host_comm(const Node& node) {
  if (!node.is_cpu_op) return false;
  if (node.type == NodeType::comm_coll) return !node.comm_type;
  if (node.type == NodeType::comm_send) return !node.comm_dst;
  if (node.type == NodeType::comm_recv) return !node.comm_src;
  return false;
}

/// Bytes of a message; some writers put them into tensor_size.
std::optional<int64_t> message_size(const Node& node) {
  return node.comm_size ? node.comm_size : node.tensor_size;
}

class Validation {
 public:
  explicit Validation(const TraceSet& set) : set_(set), table_(set) {}

  std::vector<Finding> run() {
    const auto n = static_cast<uint32_t>(set_.ranks.size());
    if (n == 0) {
      error("no_ranks", "", [] { return "the trace set is empty; name a set with rank 0"; });
      return findings_.take();
    }
    used_.assign(set_.groups.size(), false);
    for (uint32_t rank = 0; rank < n; ++rank) by_id_.push_back(nodes_by_id(rank));
    find_out_whether_complete();
    for (uint32_t rank = 0; rank < n; ++rank) check_rank(rank);
    check_groups();
    if (complete_) {
      // Without its groups a rank seems to lack collectives: one cause, one message.
      if (groups_known_) match_collectives();
      match_messages();
      if (!findings_.any_error()) check_deadlock();
    }
    return findings_.take();
  }

 private:
  struct Ref {
    uint32_t rank = 0;
    uint32_t node = 0;
  };

  template <typename MakeText>
  void error(const char* code, const std::string& file, const MakeText& text) {
    findings_.add(Severity::error, code, file, text);
  }
  template <typename MakeText>
  void warn(const char* code, const std::string& file, const MakeText& text) {
    findings_.add(Severity::warning, code, file, text);
  }

  [[nodiscard]] const Node& at(Ref ref) const { return set_.ranks[ref.rank].nodes[ref.node]; }
  [[nodiscard]] const std::string& file(uint32_t rank) const { return set_.ranks[rank].file; }
  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(set_.ranks.size()); }
  [[nodiscard]] std::string groups_source() const {
    return set_.group_file.empty() ? "the trace's process groups" : set_.group_file;
  }

  [[nodiscard]] std::string group_label(int group) const {
    if (group == GroupTable::kAllRanks) return "all ranks";
    return "group " + quoted(set_.groups[static_cast<size_t>(group)].name);
  }

  /// Issue order: ids ascending.
  [[nodiscard]] std::vector<uint32_t> nodes_by_id(uint32_t rank) const {
    const std::vector<Node>& nodes = set_.ranks[rank].nodes;
    std::vector<uint32_t> order(nodes.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return nodes[a].id < nodes[b].id; });
    return order;
  }

  /// A single file that talks to others is one rank of a larger job: without the others there is
  /// nothing to compare it with, and saying so once is enough.
  void find_out_whether_complete() {
    if (size() != 1) return;
    const RankTrace& trace = set_.ranks[0];
    for (const Node& node : trace.nodes) {
      bool others = false;
      std::string whom;
      if (is_host_comm(node)) continue;
      if (node.type == NodeType::comm_coll) {
        const int group = table_.find(node.pg_name, 0).group;
        if (group == GroupTable::kUnknown) continue;
        if (group == GroupTable::kAllRanks ||
            set_.groups[static_cast<size_t>(group)].ranks.empty()) {
          others = node.comm_type && *node.comm_type != static_cast<int64_t>(CommType::barrier);
        } else {
          const auto& ranks = set_.groups[static_cast<size_t>(group)].ranks;
          others = std::any_of(ranks.begin(), ranks.end(), [](uint32_t r) { return r != 0; });
        }
      } else if (is_p2p(node)) {
        const auto& peer = node.type == NodeType::comm_send ? node.comm_dst : node.comm_src;
        others = peer && *peer != 0;
      }
      if (!others) continue;
      complete_ = false;
      warn("ranks_missing", trace.file, [&] {
        return "only rank 0 is here, yet " + label(node) +
               " communicates with other ranks; what they do is not checked, add their files "
               "for a full run";
      });
      return;
    }
  }

  void check_rank(uint32_t rank) {
    const RankTrace& trace = set_.ranks[rank];
    if (trace.nodes.empty()) {
      warn("no_nodes", trace.file, [] { return "no node; the rank does nothing"; });
    }
    dependencies_.push_back(resolve_dependencies(trace));
    check_dependencies(trace, dependencies_.back());
    for (uint32_t i = 0; i < trace.nodes.size(); ++i) check_node({rank, i});
  }

  void check_dependencies(const RankTrace& trace, const Dependencies& deps) {
    const auto node = [&](uint32_t i) { return label(trace.nodes[i]); };
    for (const uint32_t i : deps.duplicate_ids) {
      error("duplicate_id", trace.file, [&] {
        return node(i) +
               ": another node has this id, so that it is unclear whom its children wait "
               "for; make ids unique";
      });
    }
    for (const auto& [child, id] : deps.missing_data) {
      error("missing_data_parent", trace.file, [&, child = child, id = id] {
        return node(child) + ": data_deps names node " + std::to_string(id) +
               ", which is not in the file; it could never start";
      });
    }
    for (const auto& [child, id] : deps.missing_ctrl) {
      warn("missing_ctrl_parent", trace.file, [&, child = child, id = id] {
        return node(child) + ": ctrl_deps names node " + std::to_string(id) +
               ", which is not in the file; the edge is dropped";
      });
    }
    if (!deps.data_cycle.empty()) {
      error("data_cycle", trace.file, [&] {
        constexpr size_t kShown = 5;
        std::string text = node(deps.data_cycle[0]);
        for (size_t k = 1; k < deps.data_cycle.size() && k < kShown; ++k) {
          text += " waits for " + node(deps.data_cycle[k]);
        }
        if (deps.data_cycle.size() > kShown) {
          text += " ... (" + std::to_string(deps.data_cycle.size()) + " nodes)";
        }
        return text + " waits for " + node(deps.data_cycle[0]) +
               " through data_deps; none of them could ever start";
      });
    }
    for (const auto& [child, parent] : deps.dropped_ctrl) {
      warn("ctrl_cycle", trace.file, [&, child = child, parent = parent] {
        return node(child) + ": its control dependency on " + node(parent) +
               " closes a cycle; the edge is dropped";
      });
    }
  }

  void check_node(Ref ref) {
    const Node& node = at(ref);
    const std::string& where = file(ref.rank);
    for (const std::string& note : node.notes) {
      warn("odd_attribute", where, [&] { return label(node) + ": " + note; });
    }
    if (!is_utf8(node.name) || (node.pg_name && !is_utf8(*node.pg_name))) {
      warn("bad_utf8_name", where,
           [&] { return label(node) + ": name is not UTF-8; its bytes are shown escaped"; });
    }
    if (node.type > NodeType::comm_coll) {
      error("unknown_node_type", where, [&] {
        return label(node) + ": node type " + std::to_string(static_cast<int>(node.type)) +
               " is not known; it cannot be simulated";
      });
      return;
    }
    for (const auto& [name, value] : {std::pair{"num_ops", node.num_ops},
                                      {"tensor_size", node.tensor_size},
                                      {"comm_size", node.comm_size}}) {
      if (value && *value < 0) {
        error("negative_value", where, [&, n = name, v = *value] {
          return label(node) + ": " + n + " is " + std::to_string(v) + "; sizes cannot be negative";
        });
      }
    }
    if (node.type == NodeType::comp) check_comp(node, where);
    if ((node.type == NodeType::mem_load || node.type == NodeType::mem_store) &&
        node.tensor_size.value_or(0) == 0) {
      warn("mem_without_size", where, [&] {
        return label(node) + ": memory operation without tensor_size; it moves no bytes";
      });
    }
    if (node.type == NodeType::comm_coll) check_collective(ref);
    if (is_p2p(node)) check_p2p(ref);
  }

  void check_comp(const Node& node, const std::string& where) {
    if (node.duration_us > 0) return;
    const bool ops = node.num_ops.value_or(0) != 0;
    const bool bytes = node.tensor_size.value_or(0) != 0;
    if (!ops && !bytes) {
      // Host operations below a microsecond are normal in PyTorch traces.
      if (node.is_cpu_op) return;
      warn("comp_without_cost", where, [&] {
        return label(node) + ": neither duration nor num_ops and tensor_size; it takes no time";
      });
    } else if (ops && !bytes) {
      warn("roofline_zero_tensor", where, [&] {
        return label(node) + ": num_ops without tensor_size; memory traffic counts as zero";
      });
    }
  }

  void check_collective(Ref ref) {
    const Node& node = at(ref);
    const std::string& where = file(ref.rank);
    if (is_host_comm(node)) {
      warn("comm_on_cpu", where, [&] {
        return label(node) +
               ": collective on the CPU without comm_type; run as a host operation "
               "of its duration";
      });
      return;
    }
    if (!node.comm_type) {
      error("collective_without_type", where,
            [&] { return label(node) + ": collective without comm_type; say which one it is"; });
    } else if (comm_type_name(*node.comm_type) == nullptr) {
      error("unknown_collective", where, [&] {
        return label(node) + ": comm_type " + std::to_string(*node.comm_type) +
               " is no collective; known are 0 (all_reduce) to 9 (barrier)";
      });
    }
    const bool barrier = node.comm_type == static_cast<int64_t>(CommType::barrier);
    if (!node.comm_size && !barrier) {
      error("collective_without_size", where, [&] {
        return label(node) + ": collective without comm_size; say how many bytes it moves";
      });
    } else if (node.comm_size == 0 && !barrier) {
      warn("zero_size_collective", where,
           [&] { return label(node) + ": collective of 0 bytes; it only synchronises its group"; });
    }

    const GroupTable::Match match = table_.find(node.pg_name, ref.rank);
    if (match.group == GroupTable::kUnknown) {
      groups_known_ = false;
      error("unknown_group", where, [&] {
        const std::string text = label(node) + ": process group " + quoted(*node.pg_name);
        return set_.groups.empty()
                   ? text +
                         " is defined nowhere; give the group file of the trace (comm_group.json)"
                   : text + " is not in " + groups_source() + "; add it there";
      });
      return;
    }
    if (match.float_form) {
      warn("group_name_float", where, [&] {
        return label(node) + ": process group " + quoted(*node.pg_name) +
               " is written like a "
               "decimal number; taken as " +
               group_label(match.group);
      });
    }
    if (match.group >= 0) used_[static_cast<size_t>(match.group)] = true;
    if (!table_.contains(match.group, ref.rank)) {
      error("rank_not_in_group", where, [&] {
        return label(node) + ": rank " + std::to_string(ref.rank) + " is not a member of " +
               group_label(match.group) + " of " + groups_source() +
               ", yet issues a collective in it";
      });
      return;
    }
    collectives_[match.group][ref.rank];  // sequences are filled in issue order later
  }

  void check_p2p(Ref ref) {
    const Node& node = at(ref);
    const std::string& where = file(ref.rank);
    const bool send = node.type == NodeType::comm_send;
    const char* what = send ? "send" : "receive";
    if (is_host_comm(node)) {
      warn("comm_on_cpu", where, [&] {
        return label(node) + ": " + what +
               " on the CPU without peer; run as a host operation of "
               "its duration";
      });
      return;
    }
    const std::optional<int64_t>& own = send ? node.comm_src : node.comm_dst;
    const std::optional<int64_t>& peer = send ? node.comm_dst : node.comm_src;
    const char* own_name = send ? "comm_src" : "comm_dst";
    const char* peer_name = send ? "comm_dst" : "comm_src";
    if (!message_size(node)) {
      error("p2p_without_size", where, [&] {
        return label(node) + ": " + what + " without comm_size; say how many bytes it moves";
      });
    } else {
      if (!node.comm_size) {
        warn("p2p_size_elsewhere", where, [&] {
          return label(node) + ": " + what + " without comm_size; tensor_size is used, " +
                 std::to_string(*node.tensor_size) + " bytes";
        });
      }
      if (*message_size(node) == 0) {
        warn("zero_size_message", where, [&] {
          return label(node) + ": " + what + " of 0 bytes; it only orders the two ranks";
        });
      }
    }
    if (!peer) {
      error("p2p_without_peer", where, [&] {
        return label(node) + ": " + what + " without " + peer_name + "; say which rank it talks to";
      });
      return;
    }
    if (own && *own != ref.rank) {
      warn("p2p_foreign_side", where, [&] {
        return label(node) + ": " + own_name + " is " + std::to_string(*own) +
               " in the file of rank " + std::to_string(ref.rank) + "; taken as this rank";
      });
    }
    if (!node.comm_tag) {
      warn("p2p_without_tag", where, [&] {
        return label(node) + ": " + what +
               " without comm_tag; taken as 0, matched in order of issue";
      });
    }
    if (*peer < 0 || (complete_ && *peer >= static_cast<int64_t>(size()))) {
      error("p2p_peer_out_of_range", where, [&] {
        return label(node) + ": " + peer_name + " is " + std::to_string(*peer) +
               ", but there are " + std::to_string(size()) + " ranks";
      });
      return;
    }
    if (*peer == static_cast<int64_t>(ref.rank)) {
      warn("p2p_self", where, [&] {
        return label(node) + ": " + what + " to the own rank; it takes no network time";
      });
    }
  }

  void check_groups() {
    for (size_t g = 0; g < set_.groups.size(); ++g) {
      const ProcessGroup& group = set_.groups[g];
      std::set<uint32_t> members;
      for (const uint32_t rank : group.ranks) {
        if (!members.insert(rank).second) {
          error("group_rank_twice", set_.group_file, [&] {
            return "group " + quoted(group.name) + " lists rank " + std::to_string(rank) +
                   " twice; list every member once";
          });
        }
        if (!complete_ || rank < size()) continue;
        const auto text = [&] {
          return "group " + quoted(group.name) + " lists rank " + std::to_string(rank) +
                 ", but the trace has ranks 0 to " + std::to_string(size() - 1) +
                 (used_[g] ? "; add the missing files or correct the group"
                           : "; no collective uses it, it is ignored");
        };
        if (used_[g]) {
          error("group_rank_out_of_range", set_.group_file, text);
        } else {
          warn("unused_group_out_of_range", set_.group_file, text);
        }
      }
      for (size_t other = 0; other < g; ++other) {
        if (set_.groups[other].name != group.name) continue;
        const int index = static_cast<int>(other);
        const bool overlap =
            group.ranks.empty() || set_.groups[other].ranks.empty() ||
            std::any_of(group.ranks.begin(), group.ranks.end(),
                        [&](uint32_t rank) { return table_.contains(index, rank); });
        if (!overlap) continue;
        warn("ambiguous_group", set_.group_file, [&] {
          return "group " + quoted(group.name) +
                 " is defined twice with different members for one "
                 "rank; the first definition is used";
        });
        break;
      }
    }
  }

  [[nodiscard]] std::vector<uint32_t> members(int group) const {
    if (group >= 0 && !set_.groups[static_cast<size_t>(group)].ranks.empty()) {
      std::vector<uint32_t> ranks;
      std::set<uint32_t> seen;
      for (const uint32_t rank : set_.groups[static_cast<size_t>(group)].ranks) {
        if (rank < size() && seen.insert(rank).second) ranks.push_back(rank);
      }
      return ranks;
    }
    std::vector<uint32_t> all(size());
    for (uint32_t i = 0; i < size(); ++i) all[i] = i;
    return all;
  }

  /// The k-th collective of a group is the same operation on all members.
  void match_collectives() {
    for (uint32_t rank = 0; rank < size(); ++rank) {
      for (const uint32_t i : by_id_[rank]) {
        const Node& node = set_.ranks[rank].nodes[i];
        if (node.type != NodeType::comm_coll || is_host_comm(node)) continue;
        const int group = table_.find(node.pg_name, rank).group;
        if (group == GroupTable::kUnknown || !table_.contains(group, rank)) continue;
        collectives_[group][rank].push_back(i);
      }
    }
    for (auto& [group, sequences] : collectives_) {
      const std::vector<uint32_t> ranks = members(group);
      const uint32_t first = ranks.front();
      for (size_t m = 1; m < ranks.size(); ++m) compare(group, first, ranks[m], sequences);
    }
  }

  void compare(int group, uint32_t first, uint32_t second,
               std::map<uint32_t, std::vector<uint32_t>>& sequences) {
    const std::vector<uint32_t>& a = sequences[first];
    const std::vector<uint32_t>& b = sequences[second];
    const auto name = [](const Node& node) -> std::string {
      const char* text = node.comm_type ? comm_type_name(*node.comm_type) : nullptr;
      return text != nullptr ? text : "an unknown collective";
    };
    for (size_t k = 0; k < std::min(a.size(), b.size()); ++k) {
      const Node& x = at({first, a[k]});
      const Node& y = at({second, b[k]});
      const auto text = [&](const std::string& mine, const std::string& theirs) {
        return label(y) + " is collective " + std::to_string(k + 1) + " of " + group_label(group) +
               " on rank " + std::to_string(second) + ": " + mine + ", but rank " +
               std::to_string(first) + " has " + theirs + " (" + label(x) +
               "); all members have to issue the same in the same order";
      };
      if (x.comm_type != y.comm_type) {
        error("collective_type_mismatch", file(second), [&] { return text(name(y), name(x)); });
        return;  // what follows is shifted, too
      }
      if (x.comm_type == static_cast<int64_t>(CommType::barrier)) continue;
      if (x.comm_size != y.comm_size && x.comm_size && y.comm_size) {
        error("collective_size_mismatch", file(second), [&] {
          return text(name(y) + " of " + std::to_string(*y.comm_size) + " bytes",
                      std::to_string(*x.comm_size) + " bytes");
        });
      }
    }
    if (a.size() == b.size()) return;
    const bool second_lacks = b.size() < a.size();
    const uint32_t lacking = second_lacks ? second : first;
    const uint32_t other = second_lacks ? first : second;
    const size_t k = std::min(a.size(), b.size());
    const Node& waiting = at({other, (second_lacks ? a : b)[k]});
    error("collective_missing_on_rank", file(lacking), [&] {
      return "rank " + std::to_string(lacking) + " issues " + std::to_string(k) +
             " collectives of " + group_label(group) + ", rank " + std::to_string(other) +
             " issues " + std::to_string(std::max(a.size(), b.size())) + "; " + label(waiting) +
             " of rank " + std::to_string(other) + " would wait for ever";
    });
  }

  /// The k-th send of (source, destination, tag) goes to the k-th receive.
  void match_messages() {
    using Key = std::tuple<uint32_t, uint32_t, int64_t>;
    std::map<Key, std::pair<std::vector<Ref>, std::vector<Ref>>> channels;
    for (uint32_t rank = 0; rank < size(); ++rank) {
      for (const uint32_t i : by_id_[rank]) {
        const Node& node = set_.ranks[rank].nodes[i];
        if (!is_p2p(node) || is_host_comm(node)) continue;
        const bool send = node.type == NodeType::comm_send;
        const std::optional<int64_t>& peer = send ? node.comm_dst : node.comm_src;
        if (!peer || *peer < 0 || *peer >= static_cast<int64_t>(size())) continue;
        const auto other = static_cast<uint32_t>(*peer);
        const int64_t tag = node.comm_tag.value_or(0);
        if (send) {
          channels[{rank, other, tag}].first.push_back({rank, i});
        } else {
          channels[{other, rank, tag}].second.push_back({rank, i});
        }
      }
    }
    for (const auto& [key, lists] : channels) {
      const auto& sends = lists.first;
      const auto& receives = lists.second;
      const std::string channel = "from rank " + std::to_string(std::get<0>(key)) + " to rank " +
                                  std::to_string(std::get<1>(key)) + ", tag " +
                                  std::to_string(std::get<2>(key));
      const size_t pairs = std::min(sends.size(), receives.size());
      for (size_t k = 0; k < pairs; ++k) {
        messages_.emplace_back(sends[k], receives[k]);
        const Node& send = at(sends[k]);
        const Node& receive = at(receives[k]);
        const auto sent = message_size(send);
        const auto expected = message_size(receive);
        if (sent && expected && *sent != *expected) {
          error("p2p_size_mismatch", file(receives[k].rank), [&] {
            return label(receive) + " expects " + std::to_string(*expected) + " bytes " + channel +
                   ", but " + label(send) + " sends " + std::to_string(*sent);
          });
        }
      }
      for (size_t k = pairs; k < sends.size(); ++k) {
        warn("send_without_recv", file(sends[k].rank), [&] {
          return label(at(sends[k])) + ": no receive for this message " + channel +
                 "; it is sent and never claimed";
        });
      }
      for (size_t k = pairs; k < receives.size(); ++k) {
        error("recv_without_send", file(receives[k].rank), [&] {
          return label(at(receives[k])) + ": nobody sends this message " + channel +
                 "; it would wait for ever";
        });
      }
    }
  }

  /// Ranks that wait for each other in a circle. Members of one collective count as one node, a
  /// receive waits for its send.
  void check_deadlock() {
    std::vector<uint32_t> base(size() + 1, 0);
    for (uint32_t rank = 0; rank < size(); ++rank) {
      const size_t end = base[rank] + set_.ranks[rank].nodes.size();
      if (end > std::numeric_limits<uint32_t>::max() / 2) return;  // beyond any index
      base[rank + 1] = static_cast<uint32_t>(end);
    }
    std::vector<uint32_t> joined(base.back());
    for (uint32_t i = 0; i < joined.size(); ++i) joined[i] = i;
    for (auto& [group, sequences] : collectives_) {
      const std::vector<uint32_t> ranks = members(group);
      const std::vector<uint32_t>& first = sequences[ranks.front()];
      for (const uint32_t rank : ranks) {
        for (size_t k = 0; k < first.size(); ++k) {
          joined[base[rank] + sequences[rank][k]] = base[ranks.front()] + first[k];
        }
      }
    }
    std::vector<Dependencies::Edge> edges;
    for (uint32_t rank = 0; rank < size(); ++rank) {
      for (uint32_t i = 0; i < set_.ranks[rank].nodes.size(); ++i) {
        for (const uint32_t parent : dependencies_[rank].parents(i)) {
          edges.emplace_back(joined[base[rank] + i], joined[base[rank] + parent]);
        }
      }
    }
    for (const auto& [send, receive] : messages_) {
      edges.emplace_back(base[receive.rank] + receive.node, base[send.rank] + send.node);
    }
    std::sort(edges.begin(), edges.end());
    std::vector<size_t> offset(base.back() + size_t{1}, 0);
    std::vector<uint32_t> parents;
    parents.reserve(edges.size());
    for (const auto& [child, parent] : edges) {
      ++offset[child + 1];
      parents.push_back(parent);
    }
    for (size_t i = 0; i < base.back(); ++i) offset[i + 1] += offset[i];

    const std::vector<uint32_t> cycle = find_cycle(offset, parents);
    if (cycle.empty()) return;
    const auto name = [&](uint32_t index) {
      const auto it = std::upper_bound(base.begin(), base.end(), index);
      const auto rank = static_cast<uint32_t>(it - base.begin()) - 1;
      return label(at({rank, index - base[rank]})) + " of rank " + std::to_string(rank);
    };
    error("cross_rank_deadlock", "", [&] {
      constexpr size_t kShown = 6;
      std::string text = "ranks wait for each other: " + name(cycle[0]);
      for (size_t k = 1; k < cycle.size() && k < kShown; ++k)
        text += " waits for " + name(cycle[k]);
      if (cycle.size() > kShown) text += " ... (" + std::to_string(cycle.size()) + " nodes)";
      return text + " waits for " + name(cycle[0]) +
             "; collectives of a group are matched in order of their ids";
    });
  }

  const TraceSet& set_;
  GroupTable table_;
  Findings findings_;
  bool complete_ = true;
  bool groups_known_ = true;
  std::vector<bool> used_;  // groups that a collective names
  std::vector<std::vector<uint32_t>> by_id_;
  std::vector<Dependencies> dependencies_;
  std::map<int, std::map<uint32_t, std::vector<uint32_t>>> collectives_;  // group, rank
  std::vector<std::pair<Ref, Ref>> messages_;
};

/// Garbage may hold any numbers: sums stop at the limit instead of wrapping.
void add_to(int64_t& sum, int64_t value) {
  if (__builtin_add_overflow(sum, value, &sum)) {
    sum = value < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
  }
}

void add_to(uint64_t& sum, uint64_t value) {
  if (__builtin_add_overflow(sum, value, &sum)) sum = std::numeric_limits<uint64_t>::max();
}

}  // namespace

std::vector<Finding> validate(const TraceSet& set) {
  return Validation(set).run();
}

Summary summarise(const RankTrace& rank) {
  Summary s;
  s.nodes = rank.nodes.size();
  std::set<uint64_t> ids;
  for (const Node& node : rank.nodes) ids.insert(node.id);
  for (const Node& node : rank.nodes) {
    s.cpu_ops += node.is_cpu_op ? 1 : 0;
    s.data_edges += node.data_deps.size();
    s.ctrl_edges += node.ctrl_deps.size();
    for (const uint64_t id : node.data_deps) s.missing_data_parents += ids.count(id) == 0 ? 1 : 0;
    for (const uint64_t id : node.ctrl_deps) s.missing_ctrl_parents += ids.count(id) == 0 ? 1 : 0;
    add_to(s.num_ops, node.num_ops.value_or(0));
    // A message size that stands in tensor_size counts as such, as in the public summaries.
    if (!is_p2p(node) || node.comm_size) add_to(s.tensor_size, node.tensor_size.value_or(0));
    add_to(s.duration_us, node.duration_us);
    switch (node.type) {
      case NodeType::metadata:
        ++s.metadata;
        break;
      case NodeType::mem_load:
      case NodeType::mem_store:
        ++s.mem;
        break;
      case NodeType::comp:
        ++s.comp;
        add_to(s.comp_duration_us, node.duration_us);
        break;
      case NodeType::comm_send:
        ++s.send;
        add_to(s.bytes_send, message_size(node).value_or(0));
        break;
      case NodeType::comm_recv:
        ++s.recv;
        add_to(s.bytes_recv, message_size(node).value_or(0));
        break;
      case NodeType::comm_coll:
        ++s.coll;
        if (node.comm_type && comm_type_name(*node.comm_type) != nullptr) {
          auto& [count, bytes] = s.collectives[comm_type_name(*node.comm_type)];
          ++count;
          add_to(bytes, node.comm_size.value_or(0));
        }
        break;
      case NodeType::invalid:
        break;
    }
  }
  return s;
}

Summary summarise(const TraceSet& set) {
  Summary total;
  for (const RankTrace& rank : set.ranks) {
    const Summary s = summarise(rank);
    for (const auto member :
         {&Summary::nodes, &Summary::metadata, &Summary::mem, &Summary::comp, &Summary::send,
          &Summary::recv, &Summary::coll, &Summary::cpu_ops, &Summary::data_edges,
          &Summary::ctrl_edges, &Summary::missing_data_parents, &Summary::missing_ctrl_parents,
          &Summary::duration_us, &Summary::comp_duration_us}) {
      add_to(total.*member, s.*member);
    }
    for (const auto member :
         {&Summary::num_ops, &Summary::tensor_size, &Summary::bytes_send, &Summary::bytes_recv}) {
      add_to(total.*member, s.*member);
    }
    for (const auto& [kind, sums] : s.collectives) {
      auto& [count, bytes] = total.collectives[kind];
      count += sums.first;
      add_to(bytes, sums.second);
    }
  }
  return total;
}

}  // namespace trainyard::chakra
