// SPDX-License-Identifier: MIT
// Ring all-reduce, all-gather and reduce-scatter over one or more channels.
//
// All-reduce of S bytes over N members and C channels: each channel cuts its share into N blocks;
// N - 1 reduce-scatter steps and N - 1 all-gather steps pass one block each to the next member.
// A member sends 2 (N - 1) / N x S bytes (A: collectives, ring). Step s of a member waits for the
// delivery of its predecessor's step s - 1.
#include <algorithm>
#include <map>
#include <utility>

#include "sim/collective.h"
#include "sim/registry.h"
#include "workload/collective_params.h"

namespace trainyard {
namespace {

/// Member orders, one per channel.
///
/// Where the members of every server are listed together and there are several per server, channel
/// c enters a server at its c-th member and leaves at the one before it; every other server is
/// walked backwards, so that a hop between servers stays on one rail (NCCL's cross-NIC rule). Of an
/// odd number of servers the last three use three rails, so that the closing hop keeps to one, too
/// (A:N117); with two members per server it cannot. Otherwise all channels follow the listed
/// order.
std::vector<std::vector<uint32_t>> ring_orders(const CollectiveRequest& r, uint32_t channels,
                                               bool keep_rails) {
  const auto& members = *r.members;
  std::vector<std::vector<uint32_t>> servers;  // member indices, in listed order
  std::map<uint32_t, size_t> seen;
  bool contiguous = true;
  for (uint32_t m = 0; m < members.size(); ++m) {
    const uint32_t node = r.placement.node_of(members[m]);
    if (m > 0 && node == r.placement.node_of(members[m - 1])) {
      servers.back().push_back(m);
      continue;
    }
    contiguous = contiguous && seen.emplace(node, servers.size()).second;
    servers.push_back({m});
  }
  size_t per_server = servers[0].size();
  for (const auto& s : servers) {
    if (s.size() != per_server) per_server = 0;
  }
  std::vector<std::vector<uint32_t>> orders(channels);
  const bool rails = contiguous && servers.size() > 1 && per_server > 1;
  for (uint32_t c = 0; c < channels; ++c) {
    for (size_t s = 0; s < servers.size(); ++s) {
      const size_t n = servers[s].size();
      for (size_t i = 0; i < n; ++i) {
        size_t at = i;
        if (rails) {
          at = (i + c) % n;
          const bool odd = servers.size() % 2 == 1 && n > 2;
          if (keep_rails && odd && s + 2 == servers.size()) {
            at = (i + c + n - 1) % n;  // from the member before the c-th to the one before that
          } else if (keep_rails && odd && s + 1 == servers.size()) {
            // Backwards from there, and over the one left out to the c-th.
            at = i + 2 < n ? (c + 2 * n - 2 - i) % n : (c + 2 * n + i + 1 - n) % n;
          } else if (keep_rails && s % 2 == 1) {
            at = (n - 1 - i + c) % n;
          }
        }
        orders[c].push_back(servers[s][at]);
      }
    }
  }
  return orders;
}

/// Channels that would go between servers by a NIC that is another's are given up, and the rest
/// carry their shares (B: N4, DCR), as long as one is left.
void leave_out_borrowed(const CollectiveRequest& r, std::vector<std::vector<uint32_t>>& orders) {
  const auto borrows = [&](const std::vector<uint32_t>& order) {
    for (size_t i = 0; i < order.size(); ++i) {
      const uint32_t from = (*r.members)[order[i]];
      const uint32_t to = (*r.members)[order[(i + 1) % order.size()]];
      if (r.placement.node_of(from) == r.placement.node_of(to)) continue;
      if (r.placement.borrows_nic(from) || r.placement.borrows_nic(to)) return true;
    }
    return false;
  };
  if (!std::all_of(orders.begin(), orders.end(), borrows)) std::erase_if(orders, borrows);
}

uint32_t channel_count(const CollectiveRequest& r, int64_t configured) {
  const auto n = static_cast<int64_t>(r.members->size());
  int64_t channels = configured;
  if (channels <= 0) {
    // One per member of a server, so that every NIC carries its share; one inside a server.
    std::map<uint32_t, int64_t> per_node;
    for (const uint32_t m : *r.members) ++per_node[r.placement.node_of(m)];
    channels = per_node.size() > 1 ? per_node.begin()->second : 1;
  }
  const int64_t smallest = r.kind == CollectiveKind::all_gather ? r.bytes : r.bytes / n;
  return static_cast<uint32_t>(std::clamp<int64_t>(channels, 1, std::max<int64_t>(1, smallest)));
}

class RingRun final : public CollectiveRun {
 public:
  RingRun(const CollectiveRequest& r, std::vector<std::vector<uint32_t>> orders)
      : kind_(r.kind),
        bytes_(r.bytes),
        n_(static_cast<uint32_t>(r.members->size())),
        channels_(static_cast<uint32_t>(orders.size())),
        steps_(r.kind == CollectiveKind::all_reduce || r.kind == CollectiveKind::barrier
                   ? 2 * (n_ - 1)
                   : n_ - 1),
        order_(std::move(orders)),
        position_(channels_, std::vector<uint32_t>(n_)),
        sent_(channels_, std::vector<uint32_t>(n_, 0)),
        received_(channels_, std::vector<uint32_t>(n_, 0)),
        here_(n_, 0),
        left_(n_, 2 * steps_ * channels_) {
    for (uint32_t c = 0; c < channels_; ++c) {
      for (uint32_t p = 0; p < n_; ++p) position_[c][order_[c][p]] = p;
    }
  }

  void arrived(uint32_t member, std::vector<CollectiveSend>& sends,
               std::vector<uint32_t>&) override {
    here_[member] = 1;
    for (uint32_t c = 0; c < channels_; ++c) {
      const uint32_t p = position_[c][member];
      pump(c, p, sends);
      pump(c, (p + n_ - 1) % n_, sends);  // the predecessor may have waited for this receiver
    }
  }

  void delivered(const CollectiveSend& send, std::vector<CollectiveSend>& sends,
                 std::vector<uint32_t>& done) override {
    const uint32_t c = send.channel;
    const uint32_t to = position_[c][send.dst];
    ++received_[c][to];
    pump(c, to, sends);
    for (const uint32_t m : {send.src, send.dst}) {
      if (--left_[m] == 0) done.push_back(m);
    }
  }

  bool receives(uint32_t member, std::vector<CollectiveReceive>& out) const override {
    for (uint32_t c = 0; c < channels_; ++c) {
      out.push_back({order_[c][(position_[c][member] + n_ - 1) % n_], c, steps_});
    }
    return true;
  }

 private:
  void pump(uint32_t c, uint32_t p, std::vector<CollectiveSend>& sends) {
    const uint32_t next = (p + 1) % n_;
    const uint32_t from = order_[c][p];
    const uint32_t to = order_[c][next];
    if (here_[from] == 0 || here_[to] == 0) return;
    uint32_t& sent = sent_[c][p];
    while (sent < steps_ && sent <= received_[c][p]) {
      sends.push_back({from, to, block(c, (p + 2 * n_ - sent % n_) % n_), c, sent});
      ++sent;
    }
  }

  /// Bytes of block `b` of channel `c`: shares differ by at most one byte and sum to the whole.
  [[nodiscard]] int64_t block(uint32_t c, uint32_t b) const {
    const bool gather = kind_ == CollectiveKind::all_gather;
    const int64_t parts = gather ? channels_ : static_cast<int64_t>(channels_) * n_;
    const int64_t i = gather ? c : static_cast<int64_t>(c) * n_ + b;
    const auto edge = [&](int64_t k) {
      return static_cast<int64_t>(static_cast<__int128>(bytes_) * k / parts);
    };
    return std::max<int64_t>(1, edge(i + 1) - edge(i));
  }

  CollectiveKind kind_;
  int64_t bytes_;
  uint32_t n_, channels_, steps_;
  std::vector<std::vector<uint32_t>> order_, position_, sent_, received_;  // [channel][position]
  std::vector<char> here_;
  std::vector<uint32_t> left_;  // sends and receives that a member still waits for
};

class Ring final : public CollectiveAlgorithm {
 public:
  explicit Ring(const Params& p)
      : channels_(p.is_word("channels", "auto") ? 0 : p.integer("channels")),
        keep_rails_(p.integer("cross_nic") != 1),
        rebalance_(p.boolean("rebalance")) {}
  [[nodiscard]] std::string name() const override { return "ring"; }
  [[nodiscard]] bool supports(CollectiveKind k) const override {
    return k == CollectiveKind::all_reduce || k == CollectiveKind::all_gather ||
           k == CollectiveKind::reduce_scatter || k == CollectiveKind::reduce_scatter_block ||
           k == CollectiveKind::barrier;
  }
  [[nodiscard]] std::unique_ptr<CollectiveRun> begin(const CollectiveRequest& r) const override {
    auto orders = ring_orders(r, channel_count(r, channels_), keep_rails_);
    if (rebalance_ && r.placement.borrows) leave_out_borrowed(r, orders);
    return std::make_unique<RingRun>(r, std::move(orders));
  }
  [[nodiscard]] int64_t sent_per_member(const CollectiveRequest& r) const override {
    const auto n = static_cast<int64_t>(r.members->size());
    if (r.kind == CollectiveKind::all_gather) return (n - 1) * r.bytes;
    const int64_t once = static_cast<int64_t>(static_cast<__int128>(r.bytes) * (n - 1) / n);
    return r.kind == CollectiveKind::all_reduce || r.kind == CollectiveKind::barrier ? 2 * once
                                                                                     : once;
  }

 private:
  int64_t channels_;
  bool keep_rails_, rebalance_;
};

const RegisterModel<CollectiveFactory> kRegistration{
    {"collective", "ring",
     "Ring all-reduce, all-gather and reduce-scatter over one or more channels, each leaving a "
     "server by another rail.",
     "A: collectives (ring); SimAI and NCCL channel rule, peers-measured", collective_params()},
    [](const Params& p) { return std::make_unique<Ring>(p); }};

}  // namespace
}  // namespace trainyard
