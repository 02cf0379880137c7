// SPDX-License-Identifier: MIT
// Hierarchical collectives: inside servers over the scale-up switch, between servers on rails.
//
// Reduce-scatter: in every server an owner per lane collects the others' data of its share (direct
// messages); owners of a lane reduce along a ring of servers. All-gather is the way back,
// all-reduce both. Blocks go on as soon as they are there: the phases overlap. Lanes are those that
// lead through every server (see GroupLayout); further members of a server, as with 7 GPUs beside
// 8, hand their data to an owner and get the result from it. Where no lane is common, the first
// member of a server owns everything.
//
// All-to-all(v): what a member has for a rail other than its own goes to the member of its server
// that is on that rail, and from there, together with what the others sent, through its NIC to the
// receiver (NCCL's PXN). Where a server has no member on the receiver's rail, the message changes
// its rail on the other side.
#include <algorithm>
#include <utility>

#include "sim/collective.h"
#include "sim/registry.h"
#include "workload/collective_params.h"
#include "workload/group_layout.h"
#include "workload/message_plan.h"
#include "workload/planned_run.h"

namespace trainyard {
namespace {

constexpr uint32_t kNone = MessagePlan::kNone;
// Blocks of several steps of the ring share a message inside a server until it has this size.
constexpr int64_t kScaleUpMessage = 256 * 1024;
constexpr uint32_t kMaxScaleUpMessages = 8;
// With few servers blocks are large: they are cut into slices, so that the phases overlap.
constexpr int64_t kSliceBytes = 256 * 1024;
constexpr uint32_t kMaxSlices = 16;

bool reduces_only(CollectiveKind k) {
  return k == CollectiveKind::reduce_scatter || k == CollectiveKind::reduce_scatter_block;
}

/// Owners and what they are responsible for.
struct Owners {
  explicit Owners(const GroupLayout& layout) : lanes(layout.common) {
    const auto lanes_used = static_cast<uint32_t>(std::max<size_t>(1, lanes.size()));
    of.resize(layout.server_count());
    for (uint32_t s = 0; s < layout.server_count(); ++s) {
      if (lanes.empty()) of[s].push_back(layout.servers[s][0]);
      for (const uint32_t lane : lanes) of[s].push_back(layout.member_at(s, lane));
    }
    lane_of.resize(layout.members());
    for (uint32_t s = 0; s < layout.server_count(); ++s) {
      for (uint32_t i = 0; i < layout.servers[s].size(); ++i) {
        lane_of[layout.servers[s][i]] = i % lanes_used;
      }
      for (uint32_t q = 0; q < lanes_used; ++q) lane_of[of[s][q]] = q;
    }
  }
  [[nodiscard]] uint32_t count() const { return static_cast<uint32_t>(of[0].size()); }
  [[nodiscard]] bool owns(uint32_t server, uint32_t member) const {
    return of[server][lane_of[member]] == member;
  }

  const std::vector<uint32_t>& lanes;
  std::vector<std::vector<uint32_t>> of;  // by server and lane
  std::vector<uint32_t> lane_of;          // by member: the lane that looks after its shard
};

/// All-reduce, reduce-scatter, all-gather.
class Levels {
 public:
  explicit Levels(const CollectiveRequest& r)
      : r_(r),
        layout_(r),
        owners_(layout_),
        n_(layout_.members()),
        servers_(layout_.server_count()),
        plan_(n_) {}

  MessagePlan make() {
    // What is shared by all: a block of an all-reduce, a shard of a member.
    const bool shards = gathers_only() || reduces_only(r_.kind);
    const int64_t parts = shards ? n_ : int64_t{owners_.count()} * servers_;
    const int64_t smallest = gathers_only() ? r_.bytes : r_.bytes / parts;
    const uint32_t most = servers_ == 1 ? 1 : std::max(1U, kMaxSlices / servers_);
    slices_ = static_cast<uint32_t>(std::clamp<int64_t>(smallest / kSliceBytes, 1, most));
    for (slice_ = 0; slice_ < slices_; ++slice_) pass();
    return std::move(plan_);
  }

 private:
  [[nodiscard]] bool gathers_only() const { return r_.kind == CollectiveKind::all_gather; }
  [[nodiscard]] int64_t sliced(int64_t bytes) const { return part_of(bytes, slices_, slice_); }
  [[nodiscard]] int64_t shard(uint32_t m) const {
    return sliced(gathers_only() ? r_.bytes : part_of(r_.bytes, n_, m));
  }

  /// All phases of one slice.
  void pass() {
    block_.assign(owners_.count(), std::vector<int64_t>(servers_, 0));
    complete_.assign(servers_, std::vector<std::vector<uint32_t>>(owners_.count()));
    pieces_.clear();
    if (gathers_only() || reduces_only(r_.kind)) {
      for (uint32_t m = 0; m < n_; ++m) {
        block_[owners_.lane_of[m]][layout_.server_of[m]] += shard(m);
      }
    } else {
      const int64_t parts = int64_t{owners_.count()} * servers_;
      for (uint32_t q = 0; q < owners_.count(); ++q) {
        for (uint32_t t = 0; t < servers_; ++t) {
          block_[q][t] = sliced(part_of(r_.bytes, parts, int64_t{q} * servers_ + t));
        }
      }
    }
    for (const auto& lane : block_) {
      int64_t sum = 0;
      for (const int64_t b : lane) sum += b;
      const auto wanted =
          static_cast<uint32_t>(std::clamp<int64_t>(sum / kScaleUpMessage, 1, kMaxScaleUpMessages));
      pieces_.push_back(std::min(wanted, servers_));
    }
    if (gathers_only()) {
      hand_over();
    } else {
      reduce();
    }
    if (reduces_only(r_.kind)) {
      hand_back();
    } else {
      gather();
    }
  }
  /// Slices follow each other in either direction without waiting for the other one.
  static uint32_t inward(uint32_t q) { return 2 * q; }
  static uint32_t outward(uint32_t q) { return 2 * q + 1; }

  /// The message inside a server that holds the block of step `i` of the ring.
  [[nodiscard]] uint32_t piece_of(uint32_t q, uint32_t i) const {
    return static_cast<uint32_t>(uint64_t{i} * pieces_[q] / servers_);
  }
  /// Sums of `block(i)` over the steps i of each piece.
  template <class Block>
  std::vector<int64_t> pieces(uint32_t q, Block block) const {
    std::vector<int64_t> out(pieces_[q], 0);
    for (uint32_t i = 0; i < servers_; ++i) out[piece_of(q, i)] += block(i);
    return out;
  }

  /// To owners, and along the ring: server s ends up with the whole of block s of each lane.
  void reduce() {
    // local[s][q][piece]: messages to the owner.
    std::vector<std::vector<std::vector<std::vector<uint32_t>>>> local(servers_);
    for (uint32_t s = 0; s < servers_; ++s) {
      local[s].resize(owners_.count());
      for (uint32_t q = 0; q < owners_.count(); ++q) {
        const uint32_t owner = owners_.of[s][q];
        const auto sizes =
            pieces(q, [&](uint32_t i) { return block_[q][(s + 2 * servers_ - 1 - i) % servers_]; });
        local[s][q].resize(sizes.size());
        for (size_t piece = 0; piece < sizes.size(); ++piece) {
          for (const uint32_t m : layout_.servers[s]) {
            if (m != owner)
              local[s][q][piece].push_back(plan_.add(m, owner, sizes[piece], inward(q)));
          }
        }
      }
    }
    for (uint32_t q = 0; q < owners_.count(); ++q) {
      std::vector<uint32_t> came(servers_, kNone);
      for (uint32_t i = 0; i + 1 < servers_; ++i) {
        const std::vector<uint32_t> before = came;
        for (uint32_t s = 0; s < servers_; ++s) {
          std::vector<uint32_t> after = local[s][q][piece_of(q, i)];
          after.push_back(before[s]);
          const uint32_t next = (s + 1) % servers_;
          came[next] =
              plan_.add(owners_.of[s][q], owners_.of[next][q],
                        block_[q][(s + 2 * servers_ - 1 - i) % servers_], inward(q), after);
        }
      }
      for (uint32_t s = 0; s < servers_; ++s) {
        complete_[s][q] = local[s][q][piece_of(q, servers_ - 1)];
        complete_[s][q].push_back(came[s]);
      }
    }
  }

  /// Shards of members that own no lane go to an owner before an all-gather.
  void hand_over() {
    for (uint32_t m = 0; m < n_; ++m) {
      const uint32_t s = layout_.server_of[m];
      const uint32_t q = owners_.lane_of[m];
      if (!owners_.owns(s, m))
        complete_[s][q].push_back(plan_.add(m, owners_.of[s][q], shard(m), inward(q)));
    }
  }
  /// And come back from it after a reduce-scatter.
  void hand_back() {
    for (uint32_t m = 0; m < n_; ++m) {
      const uint32_t s = layout_.server_of[m];
      const uint32_t q = owners_.lane_of[m];
      if (!owners_.owns(s, m))
        plan_.add(owners_.of[s][q], m, shard(m), outward(q), complete_[s][q]);
    }
  }

  /// Along the ring, and to everybody inside the servers.
  void gather() {
    for (uint32_t q = 0; q < owners_.count(); ++q) {
      std::vector<std::vector<uint32_t>> came(servers_);  // by server and step of the ring
      for (uint32_t i = 0; i + 1 < servers_; ++i) {
        for (uint32_t s = 0; s < servers_; ++s) {
          const uint32_t next = (s + 1) % servers_;
          const auto after = i == 0 ? complete_[s][q] : std::vector<uint32_t>{came[s][i - 1]};
          came[next].push_back(plan_.add(owners_.of[s][q], owners_.of[next][q],
                                         block_[q][(s + servers_ - i) % servers_], outward(q),
                                         after));
        }
      }
      for (uint32_t s = 0; s < servers_; ++s) spread(q, s, came[s]);
    }
  }
  void spread(uint32_t q, uint32_t s, const std::vector<uint32_t>& came) {
    auto sizes = pieces(q, [&](uint32_t i) { return block_[q][(s + servers_ - i) % servers_]; });
    std::vector<std::vector<uint32_t>> after(sizes.size());
    after[0] = complete_[s][q];
    // Step i brings what the owner has as number i + 1.
    for (uint32_t i = 0; i < came.size(); ++i) after[piece_of(q, i + 1)].push_back(came[i]);
    const uint32_t owner = owners_.of[s][q];
    for (size_t piece = 0; piece < sizes.size(); ++piece) {
      for (const uint32_t m : layout_.servers[s]) {
        if (m == owner) continue;
        // A member does not need back what it handed over.
        const bool own = gathers_only() && piece == 0 && owners_.lane_of[m] == q;
        plan_.add(owner, m, sizes[piece] - (own ? shard(m) : 0), outward(q), after[piece]);
      }
    }
  }

  const CollectiveRequest& r_;
  GroupLayout layout_;
  Owners owners_;
  uint32_t n_, servers_;
  uint32_t slices_ = 1, slice_ = 0;
  // Of this slice.
  std::vector<std::vector<int64_t>> block_;  // by lane and server
  std::vector<uint32_t> pieces_;             // by lane: messages of a pair inside a server
  // By server and lane: messages after which the owner has the whole of the block of its server.
  std::vector<std::vector<std::vector<uint32_t>>> complete_;
  MessagePlan plan_;
};

/// How `from` reaches `to`, in another server: the member that relays, or kNone.
struct Relay {
  uint32_t near = kNone;  ///< of the sender's server
  uint32_t far = kNone;   ///< of the receiver's server
};
Relay relay(const GroupLayout& layout, uint32_t from, uint32_t to) {
  Relay out;
  if (layout.rail_of[from] == layout.rail_of[to]) return out;
  out.near = layout.on_rail_of(to, layout.server_of[from]);
  if (out.near == kNone) out.far = layout.on_rail_of(from, layout.server_of[to]);
  return out;
}

MessagePlan exchange_plan(const CollectiveRequest& r) {
  const GroupLayout layout(r);
  const uint32_t servers = layout.server_count();
  MessagePlan plan(layout.members());
  const auto& of = layout.servers;
  for (const auto& server : of) {
    for (size_t k = 1; k < server.size(); ++k) {
      for (size_t i = 0; i < server.size(); ++i) {
        const uint32_t to = server[(i + k) % server.size()];
        plan.add(server[i], to, exchange_share(r, server[i], to), 0);
      }
    }
  }
  for (uint32_t shift = 1; shift < servers; ++shift) {
    for (uint32_t s = 0; s < servers; ++s) {
      const auto& here = of[s];
      const auto& there = of[(s + shift) % servers];
      // Inside the server: one message from each member to each relay.
      std::vector<std::pair<uint32_t, uint32_t>> relays;  // relay and receiver
      std::vector<std::vector<uint32_t>> after(there.size());
      std::vector<int64_t> gathered(there.size(), 0);
      std::vector<uint32_t> relay_of(there.size(), kNone);
      for (size_t j = 0; j < there.size(); ++j) relay_of[j] = layout.on_rail_of(there[j], s);
      for (size_t k = 0; k < here.size(); ++k) {
        // Rotated, so that no relay is everybody's first.
        for (size_t i = 0; i < here.size(); ++i) {
          const uint32_t from = here[i];
          const uint32_t via = here[(i + k) % here.size()];
          int64_t bytes = 0;
          for (size_t j = 0; j < there.size(); ++j) {
            const bool aggregated =
                relay_of[j] == via &&
                (via == from || layout.rail_of[from] != layout.rail_of[there[j]]);
            if (aggregated) bytes += exchange_share(r, from, there[j]);
          }
          const uint32_t message = via == from ? kNone : plan.add(from, via, bytes, 1);
          for (size_t j = 0; j < there.size(); ++j) {
            const bool aggregated =
                relay_of[j] == via &&
                (via == from || layout.rail_of[from] != layout.rail_of[there[j]]);
            const int64_t share = aggregated ? exchange_share(r, from, there[j]) : 0;
            if (share == 0) continue;
            gathered[j] += share;
            after[j].push_back(message);
          }
        }
      }
      // Between servers: each receiver hears its relay.
      for (size_t j = 0; j < there.size(); ++j) {
        if (relay_of[j] != kNone) plan.add(relay_of[j], there[j], gathered[j], 0, after[j]);
      }
      // What has no relay on this side, or is on the rail without being the relay.
      for (size_t k = 0; k < there.size(); ++k) {
        for (size_t i = 0; i < here.size(); ++i) {
          const uint32_t from = here[i];
          const uint32_t to = there[(i + k) % there.size()];
          const Relay via = relay(layout, from, to);
          if (via.near != kNone || layout.on_rail_of(to, s) == from) continue;
          const int64_t bytes = exchange_share(r, from, to);
          if (via.far == kNone) {
            plan.add(from, to, bytes, 2);
          } else {
            const uint32_t first = plan.add(from, via.far, bytes, 2);
            plan.add(via.far, to, bytes, 3, {first});
          }
        }
      }
    }
  }
  return plan;
}

class Hierarchical final : public CollectiveAlgorithm {
 public:
  [[nodiscard]] std::string name() const override { return "hierarchical"; }
  [[nodiscard]] bool supports(CollectiveKind k) const override {
    return k == CollectiveKind::all_reduce || k == CollectiveKind::all_gather || reduces_only(k) ||
           k == CollectiveKind::all_to_all || k == CollectiveKind::barrier;
  }
  [[nodiscard]] std::unique_ptr<CollectiveRun> begin(const CollectiveRequest& r) const override {
    return std::make_unique<PlannedRun>(r.kind == CollectiveKind::all_to_all ? exchange_plan(r)
                                                                             : Levels(r).make());
  }
  [[nodiscard]] int64_t sent_per_member(const CollectiveRequest& r) const override {
    const auto n = static_cast<int64_t>(r.members->size());
    if (r.kind == CollectiveKind::all_gather) return (n - 1) * r.bytes;
    const GroupLayout layout(r);
    if (r.kind == CollectiveKind::all_to_all) {
      // Relayed bytes count twice.
      __int128 sum = 0;
      for (uint32_t from = 0; from < n; ++from) {
        for (uint32_t to = 0; to < n; ++to) {
          if (from == to) continue;
          const bool inside = layout.server_of[from] == layout.server_of[to];
          const Relay via = inside ? Relay{} : relay(layout, from, to);
          const bool twice = via.near != kNone || via.far != kNone;
          sum += static_cast<__int128>(exchange_share(r, from, to)) * (twice ? 2 : 1);
        }
      }
      return static_cast<int64_t>(sum / n);
    }
    const __int128 once = static_cast<__int128>(r.bytes) * (n - 1);
    if (!reduces_only(r.kind)) return static_cast<int64_t>(2 * once / n);
    // Handing back the shards of members that own no lane costs beside the optimum.
    const auto lanes = static_cast<int64_t>(std::max<size_t>(1, layout.common.size()));
    const int64_t others = n - lanes * layout.server_count();
    return static_cast<int64_t>((once + static_cast<__int128>(r.bytes) * others / n) / n);
  }
};

const RegisterModel<CollectiveFactory> kRegistration{
    {"collective", "hierarchical",
     "Inside servers over the scale-up switch, between servers on rails: all-reduce, "
     "reduce-scatter, all-gather; all-to-all(v) relayed by the member on the receiver's rail "
     "(PXN).",
     "DESIGN 4; NCCL PXN; B: rail-only", collective_params()},
    [](const Params&) { return std::make_unique<Hierarchical>(); }};

}  // namespace
}  // namespace trainyard
