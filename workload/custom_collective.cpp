// SPDX-License-Identifier: MIT
// A collective that the user wrote: Chakra traces, one per member, of SEND, RECV and COMP nodes
// (what MSCCLang programs become; ASTRA-sim's "custom" collectives). Member i of the communicator
// runs file i, whose ranks are member numbers. The k-th SEND of a pair and tag meets the k-th RECV;
// a message leaves when all that its SEND depends on is delivered. COMP nodes (reductions) carry
// dependencies and take no time, as in all other algorithms.
#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "chakra/graph.h"
#include "chakra/reader.h"
#include "sim/collective.h"
#include "sim/errors.h"
#include "sim/registry.h"
#include "workload/collective_params.h"
#include "workload/message_plan.h"
#include "workload/planned_run.h"

namespace trainyard {
namespace {

/// The messages of the traces, in an order in which none waits for a later one.
struct Program {
  uint32_t members = 0;
  struct Message {
    uint32_t src = 0, dst = 0;
    int64_t bytes = 0;
    std::vector<uint32_t> after;
  };
  std::vector<Message> messages;
  int64_t total = 0;
};

class Compiler {
 public:
  Compiler(const std::vector<chakra::RankTrace>& traces, const SourcePos& pos)
      : traces_(traces), pos_(pos) {}

  Program compile() {
    Program out;
    out.members = static_cast<uint32_t>(traces_.size());
    match();
    // Nodes in dependency order; a RECV comes after its SEND.
    std::vector<std::vector<uint32_t>> open(traces_.size());
    std::vector<std::vector<std::vector<uint32_t>>> children(traces_.size());
    done_.resize(traces_.size());
    std::deque<std::pair<uint32_t, uint32_t>> ready;
    size_t left = 0;
    for (uint32_t r = 0; r < traces_.size(); ++r) {
      const auto n = static_cast<uint32_t>(traces_[r].nodes.size());
      deps_.push_back(chakra::resolve_dependencies(traces_[r]));
      open[r].resize(n);
      children[r].resize(n);
      done_[r].resize(n);
      for (uint32_t i = 0; i < n; ++i) {
        const auto parents = deps_[r].parents(i);
        open[r][i] = static_cast<uint32_t>(parents.size());
        for (const uint32_t p : parents) children[r][p].push_back(i);
        if (traces_[r].nodes[i].type == chakra::NodeType::comm_recv) ++open[r][i];
      }
      for (uint32_t i = 0; i < n; ++i) {
        if (open[r][i] == 0) ready.emplace_back(r, i);
      }
      left += n;
    }
    const auto settle = [&](uint32_t r, uint32_t i) {
      if (--open[r][i] == 0) ready.emplace_back(r, i);
    };
    for (; !ready.empty(); --left) {
      const uint32_t r = ready.front().first;
      const uint32_t i = ready.front().second;
      ready.pop_front();
      visit(r, i, out);
      for (const uint32_t child : children[r][i]) settle(r, child);
      if (traces_[r].nodes[i].type == chakra::NodeType::comm_send) {
        const Place recv = partner_.at({r, i});
        settle(recv.first, recv.second);
      }
    }
    if (left != 0) {
      throw UserError(pos_, "collectives.custom: the messages wait for each other in a circle",
                      "check the order of SEND and RECV nodes");
    }
    return out;
  }

 private:
  using Place = std::pair<uint32_t, uint32_t>;  // rank, node

  [[noreturn]] void bad(uint32_t rank, const chakra::Node& node, const std::string& what) const {
    throw UserError({traces_[rank].file, 0},
                    "node " + std::to_string(node.id) + " ('" + node.name + "') " + what,
                    "a custom collective consists of SEND, RECV and COMP nodes");
  }

  void match() {
    std::map<std::tuple<uint32_t, int64_t, int64_t>, std::deque<Place>> receives;
    for (uint32_t r = 0; r < traces_.size(); ++r) {
      for (uint32_t i = 0; i < traces_[r].nodes.size(); ++i) {
        const auto& node = traces_[r].nodes[i];
        if (node.type == chakra::NodeType::comm_coll) bad(r, node, "is a collective");
        if (node.type != chakra::NodeType::comm_recv) continue;
        if (!node.comm_src) bad(r, node, "has no comm_src");
        receives[{r, *node.comm_src, node.comm_tag.value_or(0)}].emplace_back(r, i);
      }
    }
    for (uint32_t r = 0; r < traces_.size(); ++r) {
      for (uint32_t i = 0; i < traces_[r].nodes.size(); ++i) {
        const auto& node = traces_[r].nodes[i];
        if (node.type != chakra::NodeType::comm_send) continue;
        const auto ranks = static_cast<int64_t>(traces_.size());
        if (!node.comm_dst || *node.comm_dst < 0 || *node.comm_dst >= ranks ||
            *node.comm_dst == int64_t{r}) {
          bad(r, node, "has no comm_dst among the other members");
        }
        if (!node.comm_size || *node.comm_size <= 0) bad(r, node, "has no comm_size");
        const auto it = receives.find(
            {static_cast<uint32_t>(*node.comm_dst), int64_t{r}, node.comm_tag.value_or(0)});
        if (it == receives.end() || it->second.empty()) {
          bad(r, node, "is a SEND without a RECV of member " + std::to_string(*node.comm_dst));
        }
        partner_[{r, i}] = it->second.front();
        it->second.pop_front();
      }
    }
    for (const auto& [key, places] : receives) {
      if (places.empty()) continue;
      const auto [rank, node] = places.front();
      bad(rank, traces_[rank].nodes[node], "is a RECV without a SEND");
    }
  }

  /// All that `i` depends on is known: which messages are delivered when it is done?
  void visit(uint32_t r, uint32_t i, Program& out) {
    const auto& node = traces_[r].nodes[i];
    std::vector<uint32_t> after;
    for (const uint32_t p : deps_[r].parents(i)) {
      after.insert(after.end(), done_[r][p].begin(), done_[r][p].end());
    }
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    if (node.type == chakra::NodeType::comm_send) {
      const auto index = static_cast<uint32_t>(out.messages.size());
      const auto dst = static_cast<uint32_t>(*node.comm_dst);
      out.messages.push_back({r, dst, *node.comm_size, std::move(after)});
      out.total += *node.comm_size;
      done_[r][i] = {index};
      const auto [peer, recv] = partner_.at({r, i});
      done_[peer][recv] = {index};
      return;
    }
    // A RECV knows its message already and is over when its parents are, too.
    auto& done = done_[r][i];
    done.insert(done.end(), after.begin(), after.end());
  }

  const std::vector<chakra::RankTrace>& traces_;
  SourcePos pos_;
  std::vector<chakra::Dependencies> deps_;
  std::map<Place, Place> partner_;                        // of a SEND
  std::vector<std::vector<std::vector<uint32_t>>> done_;  // by rank and node: messages
};

class Custom final : public CollectiveAlgorithm {
 public:
  explicit Custom(const Params& p)
      : written_for_(p.is_word("custom_size", "auto") ? 0 : p.bytes("custom_size").count()) {
    const std::string& where = p.text("custom");
    if (where.empty()) return;
    std::vector<chakra::RankTrace> traces;
    for (const std::string& file : chakra::find_rank_files(where)) {
      traces.push_back(chakra::read_rank(file));
    }
    program_ = Compiler(traces, p.origin("custom").pos).compile();
  }
  [[nodiscard]] std::string name() const override { return "custom"; }
  [[nodiscard]] bool supports(CollectiveKind) const override { return program_.members > 1; }
  [[nodiscard]] bool serves(const CollectiveRequest& r) const override {
    return r.members->size() == program_.members && !r.sizes;
  }
  [[nodiscard]] std::unique_ptr<CollectiveRun> begin(const CollectiveRequest& r) const override {
    MessagePlan plan(program_.members);
    for (const auto& m : program_.messages) {
      plan.add(m.src, m.dst, std::max<int64_t>(1, scaled(m.bytes, r)), 0, m.after);
    }
    return std::make_unique<PlannedRun>(std::move(plan));
  }
  [[nodiscard]] int64_t sent_per_member(const CollectiveRequest& r) const override {
    return scaled(program_.total, r) / static_cast<int64_t>(r.members->size());
  }

 private:
  [[nodiscard]] int64_t scaled(int64_t bytes, const CollectiveRequest& r) const {
    if (written_for_ == 0) return bytes;
    return static_cast<int64_t>(static_cast<__int128>(bytes) * r.bytes / written_for_);
  }

  int64_t written_for_;
  Program program_;
};

const RegisterModel<CollectiveFactory> kRegistration{
    {"collective", "custom",
     "A collective written by the user as Chakra traces of SEND, RECV and COMP nodes, one per "
     "member: see collectives.custom. By kind only.",
     "ASTRA-sim custom collectives: formats 5.1; MSCCLang", collective_params()},
    [](const Params& p) { return std::make_unique<Custom>(p); }};

}  // namespace
}  // namespace trainyard
