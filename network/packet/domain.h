// SPDX-License-Identifier: MIT
// The packet engine: queue pairs, NICs, switches and wires of one part of the network, with its
// own event queue and clock. Any number of domains can exist beside each other; nothing here is
// global or static.
//
// Layout. Ports, nodes and queue pairs have local indices in order of first use, which is also
// the order that settles events of equal time. A directed port holds the egress queue at its tail
// and the ingress accounting at its head; the reverse direction of port p is p ^ 1. Packets live
// in a pool and move by index through intrusive lists. A packet carries its position in the path
// array, so that a switch touches the packet, two ports and itself, nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "network/packet/config.h"
#include "network/packet/dcqcn.h"
#include "network/packet/telemetry.h"
#include "network/routing.h"
#include "network/topology.h"
#include "sim/event_queue.h"
#include "sim/fabric.h"

namespace trainyard {

/// One change of a sender's rate.
struct RateEvent {
  int64_t time_ps = 0;
  uint32_t qp = 0;  ///< in order of first use
  uint32_t src = 0, dst = 0;
  bool cut = false;
  int64_t rate_bps = 0, target_bps = 0;  ///< after
};

class PacketDomain {
 public:
  PacketDomain(const Topology& topology, const PacketConfig& config);

  TransferId start(const Transfer& transfer, Time at);
  [[nodiscard]] Time next_event();
  Time advance(Time limit, std::vector<Completion>& out);
  [[nodiscard]] size_t outstanding() const { return outstanding_; }
  [[nodiscard]] std::string describe_stall() const;
  void check_conservation() const;
  [[nodiscard]] const std::vector<TransferRecord>& transfers() const { return records_; }
  [[nodiscard]] std::vector<LinkRecord> links() const;
  [[nodiscard]] FabricTotals totals() const;
  [[nodiscard]] uint64_t fingerprint() const { return fingerprint_; }
  /// Kept from now on when not null.
  void record_rates(std::vector<RateEvent>* sink) { rate_sink_ = sink; }
  /// Keeps time series of links; call before anything runs.
  void record_links(Time window) { telemetry_ = std::make_unique<LinkTelemetry>(window); }
  /// Ends the series at this instant; its links are those of links().
  [[nodiscard]] LinkSeries take_link_series();

 private:
  static constexpr uint32_t kNil = 0xffffffffU;
  static constexpr int64_t kNever = INT64_MAX;

  // Order of events at one instant: new work, controller timers, arrivals, then transmitters: one
  // that falls due now chooses among all that has arrived by now. (An idle one sends the first
  // arrival at once.)
  enum Kind : uint32_t { kStart, kCut, kIncrease, kArrive, kTransmit, kTimeout };
  static constexpr uint32_t kKindShift = 29;
  static uint32_t key(Kind kind, uint32_t index) { return (kind << kKindShift) | index; }

  enum Type : uint8_t { kData, kAck, kNack, kCnp, kPause, kResume };
  enum Flag : uint8_t { kMarked = 1, kNotify = 2 };

  struct Packet {
    int64_t next_arrival;  // of the packet behind it on its wire
    int64_t seq;           // data: first byte; ACK, NACK: next byte expected
    uint32_t next;         // in its queue or wire
    uint32_t qp;
    uint32_t path;  // index into paths_ of the port it is on or queued at
    uint16_t wire;  // bytes on the wire
    uint8_t type;
    uint8_t flags;
  };
  static_assert(sizeof(Packet) == 32);

  struct List {
    uint32_t head = kNil, tail = kNil;
  };

  /// Two lines that an arrival, a departure and an admission touch; then the rest. Byte counts of
  /// buffers have 31 bits: no packet buffer comes near 2 GiB.
  struct alignas(64) Port {
    List wire, data, control;  // a NIC's `data` holds its ACKs
    int64_t busy_until = -1;
    int64_t wake = kNever;         // time of the valid kTransmit event
    uint32_t owner = 0, peer = 0;  // local nodes
    int32_t data_bytes = 0;        // queued in the data class
    int32_t peak = 0;
    bool from_host = false, paused = false, marks = false;
    bool pause_sent = false;  // ingress
    bool lossy = false;       // loss_q32 > 0
    bool sending = false;     // a NIC port: `active` of its Sender is not empty

    int64_t time_a = 0, time_b = 0;  // transmission times in use
    int32_t size_a = -1, size_b = -1;
    int64_t delay_ps = 0;
    // Ingress accounting at the head of the link (when `peer` is a switch).
    int32_t used = 0, headroom_used = 0, headroom = 0, alpha_q16 = 0;
    uint64_t packets = 0;
    int64_t bytes = 0;

    int64_t busy = 0, payload = 0;
    int64_t kmin = 0, kmax = 0;
    // Seldom touched.
    int64_t rate_bps = 0;
    uint64_t loss_q32 = 0;
    uint32_t global = 0;
    uint32_t sender = kNil;  // of a NIC port, into senders_
    uint64_t marked = 0, pauses = 0, drops = 0, loss_draws = 0;
    int64_t paused_since = 0, paused_total = 0;
  };
  static_assert(sizeof(Port) == 256);

  /// What only a NIC port has: its queue pairs with unsent data, ascending.
  struct Sender {
    std::vector<uint32_t> active;
    uint32_t last_served = kNil;
  };

  struct Node {
    uint32_t global = 0;
    bool host = false;
    int64_t shared_used = 0, pool = 0, xoff = 0;
  };

  /// One line for a NIC that looks for work, one for its pace, then the receiver's.
  struct alignas(64) QueuePair {
    // Sender.
    int64_t posted = 0, next = 0, una = 0;
    int64_t next_send = 0;
    int64_t window = 0;    // 0: none
    uint32_t forward = 0;  // first index into paths_
    uint32_t port = 0;     // NIC port of the sender
    uint32_t send_transfer = kNil, ack_transfer = kNil;
    bool controlled = false, is_active = false, rto_pending = false, increase_running = false;
    uint32_t hops = 0;

    int64_t pace_rate = -1, pace_bytes = 0, pace_time = 0;
    int64_t high_water = 0;  // highest byte ever sent, tells repeats
    int64_t rto_deadline = 0;
    uint64_t dice_object = 0;  // who the flow is, whatever else is simulated beside it
    uint32_t last_transfer = kNil;
    int retries = 0;
    uint32_t src = 0, dst = 0;  // ranks

    // Receiver.
    int64_t received = 0;
    int64_t since_ack = 0;
    uint32_t receive_transfer = kNil;
    uint32_t reverse = 0, reverse_hops = 0;
    bool notify = false;
    int64_t last_cnp = INT64_MIN / 2;
    int64_t last_nack = INT64_MIN / 2, last_nack_seq = -1;

    Dcqcn cc;
    uint32_t increase_version = 0;
    uint32_t channel = 0;
    int64_t increase_next = 0;
  };

  /// Engine-side state of a transfer; `end` is its last byte in the QP's sequence space.
  struct TransferState {
    int64_t end = 0;
    uint32_t qp = kNil, next = kNil;
    uint32_t channel = 0;
  };

  // Events.
  void run_instant();
  void prefetch();
  void on_start(TransferId id);
  void on_cut(uint32_t qp);
  void on_increase(uint32_t qp, uint32_t version);
  void on_arrive(uint32_t port);
  void on_timeout(uint32_t qp);

  // Transmission.
  void schedule_transmit(uint32_t port, int64_t time);
  void kick(uint32_t port);
  void transmit(uint32_t port);
  uint32_t take_from_switch(uint32_t port);
  uint32_t take_from_nic(uint32_t port);
  int64_t transmission_ps(Port& port, int64_t bytes) const;
  void enqueue(uint32_t port, uint32_t packet, bool control);

  // Switch.
  bool admit(uint32_t in, uint32_t packet);
  void mark_by_queue(Port& out, uint32_t packet, int64_t queued);
  void release(uint32_t in, int32_t bytes);
  void send_pfc(uint32_t in, Type type);
  [[nodiscard]] int64_t threshold(const Port& in, const Node& n) const;
  void drop(uint32_t port, uint32_t packet);

  // Endpoints.
  void receive_data(uint32_t packet, uint32_t port);
  void receive_ack(uint32_t packet);
  void send_control(QueuePair& q, uint32_t qp, Type type, int64_t seq, bool notify);
  void notify(uint32_t qp);
  void rate_changed(uint32_t qp, bool cut);
  void arm_increase(uint32_t qp, int64_t at);
  void rewind(uint32_t qp);
  void activate(uint32_t qp);
  void complete(TransferId id, Completion::What what);

  // Set-up.
  uint32_t open_qp(const Transfer& t);
  uint32_t visit(uint32_t global_port);
  uint32_t visit_node(uint32_t global_node);
  uint32_t add_path(const FlowTuple& tuple, uint32_t& hops);
  int64_t pair_bdp(uint32_t qp) const;
  int64_t longest_bdp();

  uint32_t new_packet();
  void free_packet(uint32_t p) {
    packets_[p].next = free_;
    free_ = p;
    --live_packets_;
  }
  void append(List& list, uint32_t p) {
    packets_[p].next = kNil;
    if (list.head == kNil)
      list.head = p;
    else
      packets_[list.tail].next = p;
    list.tail = p;
  }
  uint32_t take(List& list) {
    const uint32_t p = list.head;
    list.head = packets_[p].next;
    return p;
  }
  void mix(uint32_t what, uint64_t a, uint64_t b);
  [[nodiscard]] std::string port_name(uint32_t port) const;

  const Topology& topology_;
  const PacketConfig config_;
  Routing routing_;

  int64_t now_ = 0;
  EventQueue events_;
  uint32_t turn_ = 0;  // of events_, seen last
  std::vector<Port> ports_;
  std::vector<Node> nodes_;
  std::vector<Sender> senders_;
  std::vector<QueuePair> qps_;
  std::vector<uint32_t> paths_;  // per path: local ports, then kNil
  std::vector<Packet> packets_;
  uint32_t free_ = kNil;
  uint64_t live_packets_ = 0;

  std::vector<TransferRecord> records_;
  std::vector<TransferState> states_;
  std::vector<Completion>* completions_ = nullptr;
  size_t outstanding_ = 0;

  std::unordered_map<uint32_t, uint32_t> port_index_, node_index_;  // global -> local
  struct QpKey {
    uint32_t src, dst, channel;
    bool operator==(const QpKey&) const = default;
  };
  struct QpKeyHash {
    size_t operator()(const QpKey& k) const {
      return (static_cast<size_t>(k.src) << 32 ^ k.dst) * 0x9e3779b97f4a7c15ULL + k.channel;
    }
  };
  std::unordered_map<QpKey, uint32_t, QpKeyHash> qp_index_;
  std::unordered_map<uint64_t, uint32_t> pair_count_;  // flows opened per (src, dst)
  std::vector<uint32_t> scratch_path_;
  int64_t longest_bdp_ = -1;

  FabricTotals totals_;
  // Transmissions and bytes accounted where a packet's life ends; balance against the ports.
  uint64_t ended_transmissions_ = 0;
  int64_t ended_bytes_ = 0;
  uint64_t fingerprint_ = 0;
  std::vector<RateEvent>* rate_sink_ = nullptr;
  std::unique_ptr<LinkTelemetry> telemetry_;  // null: off
};

}  // namespace trainyard
