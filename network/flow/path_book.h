// SPDX-License-Identifier: MIT
// What the engines without packets share: queue pairs and their routes, what a message costs on
// the way, and the tally of flows and links.
//
// Queue pairs are those of the packet engine: persistent ones belong to (src, dst, channel), and
// the n-th of a pair of ranks sends from the n-th source port, so that ECMP takes the same links.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "network/packet/config.h"
#include "network/routing.h"
#include "network/topology.h"
#include "sim/fabric.h"

namespace trainyard {

/// A message on its route. Packets are counted as the packet engine would cut them, without loss.
struct MessageCost {
  int64_t packets = 0, acks = 0;
  int64_t wire = 0;      ///< bytes of its data packets, headers included
  int64_t ack_wire = 0;  ///< bytes of its ACKs
  /// From the last bit leaving the sender at the rate of the slowest link until the last bit at
  /// the receiver: cables, and one packet stored and forwarded per link beside the slowest. On a
  /// route of equal links this is what an idle packet network takes.
  int64_t latency_ps = 0;
  int64_t return_ps = 0;  ///< last ACK: cables and one ACK stored and forwarded per link
};

class PathBook {
 public:
  /// `topology` must outlive it. Of `config` it uses sizes, ACK interval, resolution, queue pairs
  /// and routing.
  PathBook(const Topology& topology, const PacketConfig& config);

  struct QueuePair {
    uint32_t src = 0, dst = 0;      // ranks
    std::vector<uint32_t> forward;  // local ports
    std::vector<uint32_t> reverse;
    int64_t slowest_bps = 0;  // carried by the slowest forward link
    int64_t delay_ps = 0, return_delay_ps = 0;
    int64_t full_store_ps = 0;       // one full packet on all forward links but the slowest
    uint64_t identity = 0;           // who it is, for the fingerprint
    uint32_t messages = 0;           // delivered so far
    uint64_t packets = 0, acks = 0;  // so far; bytes on the wire and of messages
    int64_t wire = 0, ack_wire = 0, payload = 0;
  };
  struct Port {
    uint32_t global = 0;
    int64_t rate_bps = 0;
    /// What full packets get through: the rate, or more where transmission times are rounded down
    /// to a resolution above 1 ps (ns-3's whole nanoseconds).
    int64_t carries_bps = 0;
  };

  static constexpr uint32_t kNone = 0xffffffffU;

  /// The queue pair of a transfer, opened where there is none yet.
  uint32_t queue_pair(const Transfer& t);
  /// The same, or kNone: it is to be opened.
  [[nodiscard]] uint32_t find(const Transfer& t) const;
  [[nodiscard]] MessageCost cost(uint32_t qp, int64_t bytes) const;
  [[nodiscard]] const std::vector<QueuePair>& queue_pairs() const { return qps_; }
  [[nodiscard]] const std::vector<Port>& ports() const { return ports_; }

  TransferId add(const Transfer& t, Time at);
  /// Books data and ACKs of a message on the links and in the record.
  void carry(TransferId id, uint32_t qp, const MessageCost& cost);
  void deliver(TransferId id, uint32_t qp, Time at);
  void acknowledge(TransferId id, Time at);

  /// The same for a message that has no record.
  /// @returns link transmissions of its data and ACKs.
  uint64_t carry_unrecorded(uint32_t qp, int64_t bytes, const MessageCost& cost);
  void deliver_unrecorded(uint32_t qp, int64_t bytes, Time delivered, Time acknowledged);

  [[nodiscard]] const std::vector<TransferRecord>& records() const { return records_; }
  [[nodiscard]] uint32_t channel(TransferId id) const { return channels_[id]; }
  [[nodiscard]] size_t outstanding() const { return outstanding_; }
  [[nodiscard]] std::string describe_outstanding() const;
  [[nodiscard]] std::vector<LinkRecord> links() const;
  [[nodiscard]] FabricTotals totals(uint64_t events) const;
  [[nodiscard]] uint64_t fingerprint() const { return fingerprint_; }
  /// Links against flows, bytes asked for against bytes delivered. Throws SimulationError.
  void check_conservation() const;

 private:
  uint32_t visit(uint32_t global_port);
  void route(const FlowTuple& tuple, std::vector<uint32_t>& out);
  uint64_t book(uint32_t qp, int64_t bytes, const MessageCost& cost);
  void delivered(uint32_t qp, int64_t bytes, Time at);
  void acknowledged(uint32_t src, uint32_t dst, int64_t bytes, Time at);
  struct PortSums {
    uint64_t packets = 0;
    int64_t bytes = 0, payload = 0;
  };
  [[nodiscard]] std::vector<PortSums> port_sums() const;
  [[nodiscard]] int64_t send_ps(int64_t bytes, int64_t rate_bps) const;

  const Topology& topology_;
  const PacketConfig config_;
  Routing routing_;
  SourceRoutes routes_;
  std::vector<Port> ports_;
  std::vector<QueuePair> qps_;
  std::vector<TransferRecord> records_;
  std::vector<uint32_t> channels_;
  size_t outstanding_ = 0;
  FabricTotals totals_;
  uint64_t fingerprint_ = 0;
  uint64_t unrecorded_transmissions_ = 0;  // for the balance
  int64_t unrecorded_crossed_ = 0, unrecorded_bytes_ = 0;
  std::unordered_map<uint32_t, uint32_t> port_index_;
  struct Key {
    uint32_t src, dst, channel;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const {
      return (static_cast<size_t>(k.src) << 32 ^ k.dst) * 0x9e3779b97f4a7c15ULL + k.channel;
    }
  };
  std::unordered_map<Key, uint32_t, KeyHash> qp_index_;
  std::unordered_map<uint64_t, uint32_t> pair_count_;
  std::vector<uint32_t> scratch_;
};

}  // namespace trainyard
