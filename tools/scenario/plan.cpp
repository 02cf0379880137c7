// SPDX-License-Identifier: MIT
#include "tools/scenario/plan.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <unordered_map>

#include "network/packet/domain.h"
#include "sim/errors.h"
#include "tools/scenario/run.h"
#include "tools/scenario/training_figures.h"
#include "workload/collective_params.h"
#include "workload/placement.h"

namespace trainyard {
namespace {

constexpr uint32_t kMessageChannel = 0xffffffffU;  // point-to-point, as in the timeline
/// A call of more messages is driven so far and scaled up.
constexpr uint64_t kMostMessages = 20'000'000;
/// Paths that are looked up where every message has a queue pair of its own.
constexpr uint64_t kMostPaths = 64;
constexpr size_t kBusiest = 10;

int64_t checked_sum(int64_t a, int64_t b) {
  int64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) throw UserError("the traffic exceeds 2^63 bytes");
  return out;
}
int64_t checked_product(int64_t a, int64_t b) {
  int64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) throw UserError("the traffic exceeds 2^63 bytes");
  return out;
}

/// Messages from one rank to another.
struct Volume {
  int64_t messages = 0, payload = 0, packets = 0, acks = 0;

  void add(const Volume& v) {
    messages = checked_sum(messages, v.messages);
    payload = checked_sum(payload, v.payload);
    packets = checked_sum(packets, v.packets);
    acks = checked_sum(acks, v.acks);
  }
  [[nodiscard]] Volume times(int64_t n) const {
    return {checked_product(messages, n), checked_product(payload, n), checked_product(packets, n),
            checked_product(acks, n)};
  }
  /// The i-th of n equal parts; the parts sum to the whole.
  [[nodiscard]] Volume part(int64_t i, int64_t n) const {
    const auto share = [&](int64_t x) {
      const auto edge = [&](int64_t k) {
        return static_cast<int64_t>(static_cast<__int128>(x) * k / n);
      };
      return edge(i + 1) - edge(i);
    };
    return {share(messages), share(payload), share(packets), share(acks)};
  }
  /// As `num` / `den` of the real thing.
  void scale(int64_t num, int64_t den) {
    for (int64_t* x : {&messages, &payload, &packets, &acks}) {
      *x = static_cast<int64_t>(static_cast<__int128>(*x) * num / den);
    }
  }
};

Volume one_message(int64_t bytes, const PacketConfig& config) {
  const int64_t packets = (bytes - 1) / config.payload + 1;
  return {1, bytes, packets, (packets - 1) / config.ack_interval + 1};
}

/// What one call of a collective sends.
struct CallPattern {
  struct Edge {
    uint32_t src, dst, channel;  // members
    Volume volume;
  };
  std::vector<Edge> edges;  // in order of first use
  Volume sum;
  std::string algorithm = "none";
  bool scaled = false;
};

/// Drives an algorithm by hand: all members arrive, every message is delivered at once.
CallPattern drive(const CollectiveRequest& request, const CollectiveSelector& selector,
                  const PacketConfig& config) {
  CallPattern out;
  const CollectiveAlgorithm& algorithm = selector.choose(request);
  out.algorithm = algorithm.name();
  const auto run = algorithm.begin(request);
  const auto n = static_cast<uint32_t>(request.members->size());
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, size_t> index;
  std::vector<CollectiveSend> sends;
  std::vector<uint32_t> done;
  std::deque<CollectiveSend> flying;
  uint64_t messages = 0;
  const auto launch = [&] {
    for (const CollectiveSend& send : sends) {
      flying.push_back(send);
      const uint32_t channel = send.channel % 64 + (send.clear_to_send ? kGrantChannel : 0);
      const auto [it, added] =
          index.emplace(std::make_tuple(send.src, send.dst, channel), out.edges.size());
      if (added) out.edges.push_back({send.src, send.dst, channel, {}});
      const Volume v = one_message(send.bytes, config);
      out.edges[it->second].volume.add(v);
      out.sum.add(v);
      ++messages;
    }
    sends.clear();
  };
  for (uint32_t m = 0; m < n; ++m) {
    run->arrived(m, sends, done);
    launch();
  }
  while (!flying.empty() && messages < kMostMessages) {
    const CollectiveSend send = flying.front();
    flying.pop_front();
    run->delivered(send, sends, done);
    launch();
  }
  if (!flying.empty()) {
    out.scaled = true;
    const int64_t whole = checked_product(algorithm.sent_per_member(request), n);
    const int64_t driven = out.sum.payload;
    out.sum = {};
    for (auto& e : out.edges) {
      e.volume.scale(std::max(whole, driven), driven);
      out.sum.add(e.volume);
    }
  } else {
    TRAINYARD_ASSERT(done.size() == n);
  }
  return out;
}

/// Adds up who sends to whom and over which links.
class Ledger {
 public:
  Ledger(const Topology& topology, const PacketConfig& config)
      : topology_(topology),
        config_(config),
        routing_(topology, config.routing),
        routes_(topology, config.routing, config.routes),
        loads_(2 * topology.links().size()) {}

  /// Messages that share a queue pair with those of equal ranks and channel, where queue pairs
  /// last.
  void add(uint32_t src, uint32_t dst, uint32_t channel, const Volume& volume) {
    if (!config_.persistent_qps) {
      add_fresh(src, dst, volume);
      return;
    }
    const auto [it, opened] = queue_pairs_.emplace(std::make_tuple(src, dst, channel), 0);
    if (opened) it->second = open(src, dst);
    count(src, dst, volume);
    load(src, dst, it->second, volume);
  }
  /// Every message opens a queue pair.
  void add_fresh(uint32_t src, uint32_t dst, const Volume& volume) {
    count(src, dst, volume);
    const auto paths = std::min<int64_t>(volume.messages, kMostPaths);
    for (int64_t i = 0; i < paths; ++i) load(src, dst, open(src, dst), volume.part(i, paths));
    const auto rest = static_cast<uint64_t>(volume.messages - paths);
    opened_ += rest;
    opened_of_pair_[key(src, dst)] += static_cast<uint32_t>(rest);
  }
  void finish(Plan& plan) const;

 private:
  struct Load {
    int64_t payload = 0, wire = 0, transmissions = 0;
  };
  static uint64_t key(uint32_t src, uint32_t dst) {
    return (static_cast<uint64_t>(src) << 32) | dst;
  }
  uint32_t open(uint32_t src, uint32_t dst) {
    ++opened_;
    return opened_of_pair_[key(src, dst)]++;
  }
  void count(uint32_t src, uint32_t dst, const Volume& volume) {
    int64_t& bytes = pairs_[key(src, dst)];
    bytes = checked_sum(bytes, volume.payload);
    sum_.add(volume);
  }
  void load(uint32_t src, uint32_t dst, uint32_t nth, const Volume& v) {
    const uint32_t from = topology_.hosts()[src];
    const uint32_t to = topology_.hosts()[dst];
    const auto port = static_cast<uint16_t>(kSourcePortBase + nth);
    const int64_t data_wire = checked_sum(v.payload, checked_product(v.packets, config_.header));
    add_to_path({from, to, port, kDestinationPort}, v.payload, data_wire, v.packets);
    const int64_t ack_wire = checked_product(v.acks, config_.ack_bytes);
    add_to_path({to, from, kDestinationPort, port}, 0, ack_wire, v.acks);
  }
  void add_to_path(const FlowTuple& tuple, int64_t payload, int64_t wire, int64_t packets) {
    path_.clear();
    routes_.path(routing_, tuple, path_);
    for (const uint32_t p : path_) {
      Load& l = loads_[p];
      l.payload = checked_sum(l.payload, payload);
      l.wire = checked_sum(l.wire, wire);
      l.transmissions = checked_sum(l.transmissions, packets);
    }
  }

  const Topology& topology_;
  const PacketConfig& config_;
  Routing routing_;
  SourceRoutes routes_;
  std::vector<Load> loads_;                                                   // by directed port
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t> queue_pairs_;  // -> n of its pair
  std::unordered_map<uint64_t, uint32_t> opened_of_pair_;
  std::unordered_map<uint64_t, int64_t> pairs_;
  uint64_t opened_ = 0;
  Volume sum_;
  std::vector<uint32_t> path_;
};

void Ledger::finish(Plan& plan) const {
  plan.messages = static_cast<uint64_t>(sum_.messages);
  plan.queue_pairs = opened_;
  plan.payload = sum_.payload;
  plan.data_packets = sum_.packets;
  plan.ack_packets = sum_.acks;

  // Position of each GPU in its server, whichever rank it has: its rail.
  std::vector<uint32_t> rank_of(topology_.nodes().size(), UINT32_MAX);
  for (uint32_t r = 0; r < topology_.hosts().size(); ++r) rank_of[topology_.hosts()[r]] = r;
  std::vector<uint32_t> position(topology_.hosts().size(), 0);
  std::vector<uint32_t> seen(plan.servers, 0);
  for (const uint32_t r : rank_of) {
    if (r != UINT32_MAX) position[r] = seen[plan.server_of[r]]++;
  }
  plan.has_rails = std::any_of(seen.begin(), seen.end(), [](uint32_t n) { return n > 1; });

  std::map<uint64_t, int64_t> between;
  for (const auto& [k, bytes] : pairs_) {
    const auto src = static_cast<uint32_t>(k >> 32);
    const auto dst = static_cast<uint32_t>(k);
    plan.pairs.push_back({src, dst, bytes});
    const uint32_t a = plan.server_of[src];
    const uint32_t b = plan.server_of[dst];
    between[key(a, b)] += bytes;
    if (a == b) {
      plan.inside_servers += bytes;
      ++plan.pairs_inside_servers;
    } else if (position[src] == position[dst]) {
      plan.on_one_rail += bytes;
      ++plan.pairs_on_one_rail;
      if (plan.of_rail.size() <= position[src]) plan.of_rail.resize(position[src] + 1);
      plan.of_rail[position[src]] += bytes;
    } else {
      plan.across_rails += bytes;
      ++plan.pairs_across_rails;
    }
  }
  std::sort(plan.pairs.begin(), plan.pairs.end(),
            [](const auto& x, const auto& y) { return key(x.src, x.dst) < key(y.src, y.dst); });
  for (const auto& [k, bytes] : between) {
    plan.server_pairs.push_back({static_cast<uint32_t>(k >> 32), static_cast<uint32_t>(k), bytes});
  }

  std::map<std::string, Plan::TierLoad> tiers;
  std::vector<uint32_t> order;
  const auto busy_s = [&](uint32_t port) {
    return 8.0 * static_cast<double>(loads_[port].wire) /
           static_cast<double>(topology_.link_of(port).rate.bps());
  };
  for (uint32_t port = 0; port < loads_.size(); ++port) {
    const Load& l = loads_[port];
    Plan::TierLoad& tier = tiers[topology_.tier(port)];
    ++tier.links;
    tier.payload = checked_sum(tier.payload, l.payload);
    tier.wire = checked_sum(tier.wire, l.wire);
    tier.transmissions = checked_sum(tier.transmissions, l.transmissions);
    plan.transmissions = checked_sum(plan.transmissions, l.transmissions);
    if (l.transmissions > 0) order.push_back(port);
  }
  for (auto& [name, tier] : tiers) {
    tier.tier = name;
    plan.tiers.push_back(tier);
  }
  const size_t top = std::min(kBusiest, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top), order.end(),
                    [&](uint32_t a, uint32_t b) {
                      return busy_s(a) != busy_s(b) ? busy_s(a) > busy_s(b) : a < b;
                    });
  for (size_t i = 0; i < top; ++i) {
    const uint32_t port = order[i];
    const Load& l = loads_[port];
    plan.busiest.push_back({topology_.nodes()[topology_.from(port)].name,
                            topology_.nodes()[topology_.to(port)].name, topology_.tier(port),
                            topology_.link_of(port).rate, l.payload, l.wire, l.transmissions});
  }
  if (top > 0) plan.busiest_s = busy_s(order[0]);
}

const char* op_kind_name(OpKind kind) {
  switch (kind) {
    case OpKind::compute:
      return "compute";
    case OpKind::collective:
      return "collective";
    case OpKind::send:
      return "send";
    case OpKind::recv:
      return "receive";
    case OpKind::memory:
      return "memory";
    case OpKind::metadata:
      return "metadata";
    case OpKind::storage:
      return "storage";
  }
  return "?";
}

/// Ops of a rank class that are alike, counted once per class.
struct ClassOps {
  struct Entry {
    bool send = false;  // else a collective
    CollectiveKind kind = CollectiveKind::all_reduce;
    uint32_t slot = 0;
    int64_t bytes = 0;
    uint32_t first_op = 0;
    int64_t count = 0;
  };
  std::vector<Entry> entries;  // in order of first op
  std::map<OpKind, uint64_t> kinds;
};

ClassOps class_ops(const OpGraph& graph) {
  ClassOps out;
  std::map<std::tuple<bool, CollectiveKind, uint32_t, int64_t>, size_t> index;
  for (uint32_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    ++out.kinds[op.kind];
    if (op.kind != OpKind::collective && op.kind != OpKind::send) continue;
    const bool send = op.kind == OpKind::send;
    const CollectiveKind kind = send ? CollectiveKind::all_reduce : op.collective;
    const uint32_t slot = send ? op.peer_slot : op.group_slot;
    const auto [it, added] =
        index.emplace(std::make_tuple(send, kind, slot, op.bytes), out.entries.size());
    if (added) out.entries.push_back({send, kind, slot, op.bytes, i, 0});
    ++out.entries[it->second].count;
  }
  return out;
}

/// Everything that a job sends, collective by collective.
void add_job(const Scenario& s, const Job& job, const Topology& topology,
             const PacketConfig& config, Ledger& ledger, Plan& plan) {
  const auto selector = collective_selector(s, topology, config);
  const Placement placement = placement_on(topology);
  std::map<const OpGraph*, ClassOps> classes;
  // The first member of a communicator stands for all of them. Queue pairs open in the order of
  // the run as far as that is known before it: by issue order.
  struct Item {
    uint32_t first_op, rank;
    const ClassOps::Entry* entry;
  };
  std::vector<Item> items;
  std::map<OpKind, uint64_t> ops;
  for (uint32_t r = 0; r < job.ranks.size(); ++r) {
    const OpGraph* graph = job.ranks[r].graph.get();
    auto it = classes.find(graph);
    if (it == classes.end()) it = classes.emplace(graph, class_ops(*graph)).first;
    for (const auto& [kind, count] : it->second.kinds) ops[kind] += count;
    for (const auto& e : it->second.entries) {
      if (!e.send) {
        const Group& g = job.groups[job.ranks[r].binding.groups[e.slot]];
        if (g.members.empty() || g.members[0] != r) continue;
      }
      items.push_back({e.first_op, r, &e});
    }
  }
  for (const auto& [kind, count] : ops) plan.ops.push_back({op_kind_name(kind), count});
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.first_op < b.first_op; });

  std::map<std::tuple<uint32_t, CollectiveKind, int64_t>, CallPattern> patterns;
  std::map<std::string, Plan::Calls> kinds;
  std::map<uint32_t, Plan::Calls> groups;
  std::set<uint32_t> incomplete;
  bool scaled = false;
  for (const Item& item : items) {
    const ClassOps::Entry& e = *item.entry;
    const RankBinding& binding = job.ranks[item.rank].binding;
    if (e.send) {
      Plan::Calls& kind = kinds["send/receive"];
      kind.name = "send/receive";
      kind.calls += static_cast<uint64_t>(e.count);
      const uint32_t dst = binding.peers[e.slot];
      if (dst == item.rank || e.bytes <= 0 || dst >= job.ranks.size()) continue;
      const Volume v = one_message(e.bytes, config).times(e.count);
      kind.messages += static_cast<uint64_t>(v.messages);
      kind.payload = checked_sum(kind.payload, v.payload);
      ledger.add(item.rank, dst, kMessageChannel, v);
      continue;
    }
    const uint32_t gi = binding.groups[e.slot];
    const Group& group = job.groups[gi];
    const auto n = static_cast<uint32_t>(group.members.size());
    const bool whole = std::all_of(group.members.begin(), group.members.end(),
                                   [&](uint32_t m) { return m < job.ranks.size(); });
    if (!whole && incomplete.insert(gi).second) {
      plan.warnings.push_back("group '" + group.name +
                              "' names ranks that the job does not have (" +
                              std::to_string(job.ranks.size()) + " ranks): the run would hang");
    }
    const int64_t bytes = request_bytes(e.kind, e.bytes, n);
    const auto [it, added] = patterns.emplace(std::make_tuple(gi, e.kind, e.bytes), CallPattern{});
    CallPattern& pattern = it->second;
    if (added && n > 1 && bytes > 0 && whole) {
      pattern = drive({e.kind, bytes, &group.members, placement}, *selector, config);
      scaled = scaled || pattern.scaled;
    }
    const Volume v = pattern.sum.times(e.count);
    for (Plan::Calls* c : {&kinds[collective_name(e.kind)], &groups[gi]}) {
      c->calls += static_cast<uint64_t>(e.count);
      c->messages += static_cast<uint64_t>(v.messages);
      c->payload = checked_sum(c->payload, v.payload);
      c->members = n;
      if (c->algorithm.empty() || c->algorithm == "none") c->algorithm = pattern.algorithm;
    }
    kinds[collective_name(e.kind)].name = collective_name(e.kind);
    groups[gi].name = group.name;
    for (const auto& edge : pattern.edges) {
      ledger.add(group.members[edge.src], group.members[edge.dst],
                 (gi * 64 + edge.channel % 64) | (edge.channel & kGrantChannel),
                 edge.volume.times(e.count));
    }
  }
  for (auto& [name, calls] : kinds) {
    calls.members = 0;
    plan.kinds.push_back(std::move(calls));
  }
  for (auto& [index, calls] : groups) {
    calls.algorithm.clear();
    plan.groups.push_back(std::move(calls));
  }
  if (scaled) {
    plan.warnings.push_back("collectives of more than " + std::to_string(kMostMessages) +
                            " messages were counted so far and scaled up: their figures are "
                            "estimates");
  }
}

void add_traffic(const Scenario& s, const PacketConfig& config, Ledger& ledger, Plan& plan) {
  std::vector<Flow> flows = build_flows(s, plan.gpus);
  if (flows.empty()) return;
  if (std::any_of(flows.begin(), flows.end(),
                  [](const Flow& f) { return f.repeat || f.period > Time(); })) {
    plan.warnings.emplace_back("background flows that repeat are counted once");
  }
  plan.ops.push_back({"flows", flows.size()});
  // Queue pairs open in the order of start.
  std::stable_sort(flows.begin(), flows.end(),
                   [](const Flow& a, const Flow& b) { return a.start < b.start; });
  for (const Flow& f : flows) ledger.add_fresh(f.src, f.dst, one_message(f.bytes, config));
}

/// What a run of this size needs: what this process holds by now (fabric, routes, trace), and the
/// records of every message.
uint64_t memory_estimate(const Plan& plan) {
  constexpr uint64_t kPerMessage = 250;    // records of fabric, timeline and report
  constexpr uint64_t kPerQueuePair = 500;  // sender, receiver, paths, packets in flight
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024 + plan.messages * kPerMessage +
         plan.queue_pairs * kPerQueuePair;
}

}  // namespace

Plan make_plan(const Scenario& s) {
  Plan plan;
  plan.name = s.name;
  plan.file = s.file;
  plan.seed = s.seed;
  plan.settings = s.resolved;
  Setting& card = plan.settings.emplace_back();
  card.key = "cluster.device, from its card";
  card.value =
      fmt::format("{} TFLOP/s, {} GB/s of memory", s.device.tflops, s.device.hbm_gbytes_per_s) +
      (s.device.unverified.empty()
           ? ""
           : fmt::format("; {} values from unverified sources", s.device.unverified.size()));
  card.origin.kind = Origin::Kind::preset;
  card.origin.pos = {config_dir() + "/devices/" + s.device.name + ".yaml", 1};
  card.source = s.device.source;
  plan.warnings = s.warnings;
  plan.workload = s.has_workload();
  Workload loaded;
  if (plan.workload) {
    loaded = load_workload(s);
    plan.rank_classes = static_cast<uint32_t>(loaded.import.rank_classes);
    plan.compute_source = loaded.compute->source();
    plan.ranks = static_cast<uint32_t>(loaded.import.job.ranks.size());
  } else {
    plan.compute_source = "none";
  }
  if (s.training) plan.training = planned_figures(*s.training, loaded.import.job);
  const Topology topology = build_topology(s, plan.ranks);
  const PacketConfig config = packet_config(s);
  plan.gpus = static_cast<uint32_t>(topology.hosts().size());
  // Selectors that match nothing are errors here, too.
  if (plan.workload) (void)compute_variation(s, topology, loaded.import.job);
  if (!plan.workload) plan.ranks = plan.gpus;
  plan.switches = static_cast<uint32_t>(topology.nodes().size()) - topology.count(NodeKind::host);
  plan.links = static_cast<uint32_t>(topology.links().size());
  plan.server_of = topology.servers();
  for (const uint32_t server : plan.server_of) plan.servers = std::max(plan.servers, server + 1);
  for (const uint32_t h : topology.hosts()) {
    plan.endpoint_names.push_back(topology.nodes()[h].name);
  }

  Ledger ledger(topology, config);
  const auto entries = collective_entries(s);
  const bool collectives = !entries.empty();
  if (collectives) {
    loaded.import.job = collective_job(s.name, plan.ranks, entries);
  }
  if (plan.workload || collectives) add_job(s, loaded.import.job, topology, config, ledger, plan);
  add_traffic(s, config, ledger, plan);
  (void)build_faults(s, topology, config,
                     plan.workload || collectives ? &loaded.import.job : nullptr);
  if (!s.faults.empty()) {
    plan.warnings.emplace_back("faults are not planned for: the figures are those without them");
  }
  ledger.finish(plan);
  if (plan.messages == 0) plan.warnings.emplace_back("nothing communicates");
  plan.engine = s.engine.kind;
  if (plan.engine == "packet") {
    plan.wall_s = static_cast<double>(plan.transmissions) / Plan::kTransmissionsPerSecond;
  }
  plan.memory_bytes = memory_estimate(plan);
  return plan;
}

}  // namespace trainyard
