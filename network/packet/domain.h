// SPDX-License-Identifier: MIT
// The packet engine: queue pairs, NICs, switches and wires of one part of the network, with its
// own event queue and clock. Any number of domains can exist beside each other; nothing here is
// global or static.
//
// Layout. Ports, nodes and queue pairs have local indices in order of first use, which is also
// the order that settles events of equal time. A directed port holds the egress queues at its tail
// and the ingress accounting at its head; the reverse direction of port p is p ^ 1. Packets live
// in a pool and move by index through intrusive lists. A packet carries its position in the path
// array, so that a switch touches the packet, two ports and itself, nothing else. What only some
// configurations need (telemetry stamps, further classes, selective repeat) lies in arrays beside.
//
//   domain.cpp            events, transmission, switch buffers, endpoints: the hot path
//   domain_setup.cpp      first use of ports and queue pairs, paths
//   domain_classes.cpp    who is served next where there are several classes
//   domain_control.cpp    congestion control, pauses and their timers, watchdogs
//   domain_selective.cpp  selective repeat
//   domain_changes.cpp    links and NICs that fail, degrade and come back
//   domain_backup.cpp     traffic through a neighbour's NIC
//   domain_period.cpp     whole periods skipped
//   domain_report.cpp     records, balances, who waits for whom
//   observe_domain.cpp    what is looked at beside, with observe_*.h
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "network/packet/config.h"
#include "network/packet/dcqcn.h"
#include "network/packet/dctcp.h"
#include "network/packet/domain_registry.h"
#include "network/packet/hpcc.h"
#include "network/packet/int_hop.h"
#include "network/packet/nic_counters.h"
#include "network/packet/observe.h"
#include "network/packet/period_finder.h"
#include "network/packet/telemetry.h"
#include "network/packet/timely.h"
#include "network/qp_key.h"
#include "network/routing.h"
#include "network/topology.h"
#include "sim/event_queue.h"
#include "sim/fabric.h"
#include "sim/hash128.h"
#include "sim/observations.h"

namespace trainyard {

/// One change of a sender's rate.
struct RateEvent {
  int64_t time_ps = 0;
  uint32_t qp = 0;  ///< in order of first use
  uint32_t src = 0, dst = 0;
  bool cut = false;
  int64_t rate_bps = 0, target_bps = 0;  ///< after
};

/// One pause: who stopped whom, for how long, because of which queue.
struct PauseRecord {
  int64_t from_ps = 0, to_ps = -1;  ///< sent at the switch or NIC; to: the resume, -1: never
  uint32_t stopped = 0;             ///< directed port (of the topology) that has to stop
  uint32_t because = 0xffffffffU;   ///< egress port for which the packet that tipped it was bound
  uint8_t traffic_class = 0;
};

/// Something that happens to the fabric at a time of its own.
struct FabricChange {
  enum class Kind : uint8_t {
    link_down,     ///< both directions; what is under way or sent later is lost
    link_up,       ///< as built
    link_rate,     ///< `ends` send at value_q32 / 2^32 of the rate they were built with
    link_loss,     ///< both directions lose packets with probability value_q32 / 2^32
    link_drops,    ///< each direction loses every value_q32-th packet of `kinds`; 0: none
    receive_rate,  ///< the host at the `a` end takes data in at `rate_bps` only; 0: at line rate
    storm_on,      ///< the host at the `a` end sends pauses without end (a broken NIC)
    storm_off,
    /// Where all NIC cables of this one's host are down, other NICs of its server may carry its
    /// traffic, over a crossing of `rate_bps` (0: as fast as their ports) and `delay`. Queue pairs
    /// move when they are rerouted, and back when the own NIC is.
    backup_on,
    backup_off
  };
  Time at;
  Kind kind = Kind::link_down;
  uint32_t link = 0;  ///< of the topology
  uint64_t value_q32 = 0;
  int64_t rate_bps = 0;
  Time delay;
  enum Ends : uint8_t { both_ends, host_end, other_end };
  Ends ends = both_ends;  ///< link_rate; of a cable with one host
  bool known = false;     ///< link_down: the fabric has learnt of it already
  /// link_loss, link_drops: what is lost, a sum of these; each sum of link_drops counts on its own.
  /// Pauses survive errors unless they are named.
  enum Kinds : uint8_t { data = 1, acks = 2, nacks = 4, cnps = 8, pauses = 16, resumes = 32 };
  uint8_t kinds = data | acks | nacks | cnps;
};

class PacketDomain {
 public:
  /// `registry`: of the run that this domain is a part of; null: it is the whole network. Both
  /// must outlive it.
  PacketDomain(const Topology& topology, const PacketConfig& config,
               DomainRegistry* registry = nullptr);
  TransferId start(const Transfer& transfer, Time at);
  /// Not before the last instant processed.
  void schedule(const FabricChange& change);
  [[nodiscard]] Time next_event() const;
  Time advance(Time limit, std::vector<Completion>& out);
  [[nodiscard]] size_t outstanding() const { return outstanding_; }
  [[nodiscard]] std::string describe_stall() const;
  void check_conservation() const;
  [[nodiscard]] const std::vector<TransferRecord>& transfers();
  [[nodiscard]] std::vector<LinkRecord> links() const;
  [[nodiscard]] FabricTotals totals() const;
  [[nodiscard]] uint64_t fingerprint() const { return fingerprint_; }
  /// Kept from now on when not null.
  void record_rates(std::vector<RateEvent>* sink) { rate_sink_ = sink; }
  void record_pauses(std::vector<PauseRecord>* sink) { pause_sink_ = sink; }
  /// Keeps time series of links; call before anything runs.
  void record_links(Time window) {
    telemetry_ = std::make_unique<LinkTelemetry>(window);
    watched_ = true;
  }
  /// Ends the series at this instant; its links are those of links().
  [[nodiscard]] LinkSeries take_link_series();
  /// Looks closer at some things; call before anything runs.
  void observe(const ObserveOptions& options);
  /// Ends the observations at this instant; their links are those of links().
  [[nodiscard]] Observations take_observations();

  /// Skips whole periods from now on, where the configuration lets states return
  /// (domain_period.cpp). Changes no result.
  void use_period_jumps();
  struct Jumps {
    uint64_t jumps = 0, periods = 0;
    uint64_t transmissions = 0, events_saved = 0;
    int64_t payload = 0;
  };
  [[nodiscard]] const Jumps& jumps() const { return jumps_; }

  // A part of a run. Queue pairs, ports and nodes have local indices in order of declaration.
  /// Makes a queue pair known that lasts; with a registry, before its first transfer.
  uint32_t declare(const QpIdentity& id, const QpMemory& memory);
  /// Nothing is under way and nothing will happen by itself but what idle parts age by.
  [[nodiscard]] bool idle() const {
    return outstanding_ == 0 && live_packets_ == 0 && starts_pending_ == 0 && cuts_pending_ == 0 &&
           timers_pending_ == 0 && changes_pending_ == 0;
  }
  /// No message can be delivered before this instant, as links are. Never when nothing is sent.
  [[nodiscard]] int64_t no_delivery_before() const;
  [[nodiscard]] uint64_t events() const { return totals_.events; }
  /// Every link and NIC is as it was built, and routes know it.
  [[nodiscard]] bool as_built() const;
  /// Some decision was left to the dice.
  [[nodiscard]] bool drew_dice() const { return dice_draws_ > 0; }
  /// By dice that no other domain has.
  [[nodiscard]] bool drew_own_dice() const {
    return dice_draws_ > (config_.shared_noise ? mark_draws_ : 0);
  }
  [[nodiscard]] uint32_t port_count() const { return static_cast<uint32_t>(ports_.size()); }
  [[nodiscard]] uint32_t qp_count() const { return static_cast<uint32_t>(qps_.size()); }
  [[nodiscard]] uint32_t global_port(uint32_t port) const { return ports_[port].global; }
  [[nodiscard]] QpMemory memory_of(uint32_t qp) const;
  [[nodiscard]] PortMemory memory_of_port(uint32_t port) const;
  /// A NIC port that has sent data of this class.
  [[nodiscard]] bool has_served(uint32_t port, uint32_t traffic_class) const;
  [[nodiscard]] PortTally tally(uint32_t port) const;
  /// Of its switches with a shared pool.
  void pool_use(std::vector<PoolUse>& out) const;
  /// Whether pool_use() has changed since the last call of this.
  bool take_pool_changed() { return std::exchange(pool_changed_, false); }
  /// Keeps what the fingerprint is made of from now on when not null.
  void record_trace(std::vector<TraceEntry>* sink) { trace_sink_ = sink; }

  /// Queues that wait for each other in a circle: names of their directed links; empty: none.
  [[nodiscard]] std::vector<std::string> cyclic_wait() const;

 private:
  static constexpr uint32_t kNil = 0xffffffffU;
  static constexpr int64_t kNever = INT64_MAX;
  // Active queue pairs of a NIC from which on they are kept by send time, and down to which. With
  // fewer the heap costs more than a look at one after the other (docs/engine.md).
  static constexpr size_t kPacedFrom = 128, kPacedTo = 64;

  // Order of events at one instant: changes of the fabric, new work, controller timers, arrivals,
  // then transmitters: one that falls due now chooses among all that has arrived by now. (An idle
  // one sends the first arrival at once.)
  enum Kind : uint32_t { kChange, kStart, kCut, kIncrease, kArrive, kTransmit, kTimeout, kTimer };
  static constexpr uint32_t kKindShift = 29;
  static constexpr uint32_t kOrderMask = (1U << kKindShift) - 1;
  static uint32_t key(Kind kind, uint32_t order) { return (kind << kKindShift) | order; }

  // What a kTimer event is about: 4 bits of its argument, then a version that tells stale ones.
  enum TimerKind : uint32_t {
    kPauseExpires,  // index: lane
    kPauseRefresh,  // index: lane
    kWatchdog,      // index: lane
    kRestore,       // index: lane
    kServed,        // index: sender
    kCycleCheck,    // index: 0
    kReroute,       // index: 0
    kNicWatchdog,   // index: lane
    kHostSees,      // index: transfer state
  };
  static constexpr uint32_t kVersionBits = 28;
  static constexpr int kRankBits = 24;

  enum Type : uint8_t { kData, kAck, kNack, kCnp, kPause, kResume };
  // The two highest bits of a packet's flags are its class.
  enum Flag : uint8_t { kMarked = 1, kNotify = 2 };
  static constexpr int kClassShift = 6;

  struct Packet {
    int64_t next_arrival;  // of the packet behind it on its wire
    int64_t seq;           // data: first byte; ACK, NACK: next byte expected; pause: class
    uint32_t next;         // in its queue or wire
    uint32_t qp;
    uint32_t path;  // index into paths_ of the port it is on or queued at
    uint16_t wire;  // bytes on the wire
    uint8_t type;
    uint8_t flags;
  };
  static_assert(sizeof(Packet) == 32);
  static uint32_t class_of(const Packet& p) { return p.flags >> kClassShift; }

  struct List {
    uint32_t head = kNil, tail = kNil;
  };

  /// One data class of a directed port. Byte counts of buffers have 31 bits: no packet buffer
  /// comes near 2 GiB.
  struct Lane {
    List data;                            // egress; a NIC's holds its ACKs
    int32_t data_bytes = 0;               // in it
    int32_t used = 0, headroom_used = 0;  // ingress accounting at the head of the link
    bool paused = false;                  // egress: stopped by the other end
    bool pause_sent = false;              // ingress: the other end is stopped
    bool discards = false;                // egress: its watchdog throws packets away
    bool excused = false;  // ingress: full when its link failed or its sender ignored it: may lose
  };
  static_assert(sizeof(Lane) == 24);

  /// What of a lane only pauses touch.
  struct LaneState {
    int64_t paused_since = 0, paused_total = 0;
    int32_t deficit = 0;         // DWRR, bytes
    uint32_t because = kNil;     // egress port that the packet behind the last pause was bound for
    uint32_t pause_version = 0;  // egress: counts pauses and resumes received
    uint32_t sent_version = 0;   // ingress: counts pauses and resumes sent
    uint32_t record = kNil;      // of the pause in force, in pause_sink_
    bool wanted = false;         // egress: paused, were it not for its watchdog
    bool ignores = false;        // egress: its watchdog lets packets pass in spite of pauses
    bool storm = false;          // ingress: a broken NIC keeps the other end paused
    int32_t headroom_peak = 0;   // ingress
  };

  /// Two lines that an arrival, a departure and an admission touch; then the rest.
  struct alignas(64) Port {
    List wire, control;
    Lane lane;  // class 0
    int64_t busy_until = -1;
    int64_t wake = kNever;          // time of the valid kTransmit event
    uint32_t peer = 0;              // local node
    uint32_t rank : kRankBits = 0;  // settles ties: order of first use in the whole run
    bool from_host : 1 = false, marks : 1 = false;
    bool lossy : 1 = false;    // loss_q32 > 0, down, or doomed > 0
    bool sending : 1 = false;  // a NIC port: `active` of its Sender is not empty

    int64_t time_a = 0, time_b = 0;  // transmission times in use
    uint16_t size_a = 0, size_b = 0;
    int32_t over = 0;  // ingress: the most that `used` was above the reserve
    int64_t delay_ps = 0;
    int32_t headroom = 0, alpha_q16 = 0;
    int64_t bytes = 0;
    uint64_t packets = 0;
    int32_t peak = 0;
    bool to_host = false, down = false;
    bool slow = false;  // into a NIC that holds data back, or still has some

    int64_t busy = 0, payload = 0;
    int64_t kmin = 0, kmax = 0;
    // Seldom touched.
    int64_t rate_bps = 0;
    uint64_t loss_q32 = 0;
    uint32_t owner = 0, global = 0;
    uint32_t sender = kNil;  // of a NIC port, into senders_
    uint32_t turn = 0;       // DWRR: class whose turn it is
    uint64_t marked = 0, pauses = 0, drops = 0, loss_draws = 0;
    uint64_t mark_credit_q32 = 0;  // dithered marking
    uint8_t loss_kinds = 15;       // bits by packet type
    bool drops_nth = false;        // drops_ has entries of it
    uint32_t doomed = 0;           // packets on the wire that were sent before the link came up
  };
  static_assert(sizeof(Port) == 256);

  /// What only a NIC port has.
  struct Sender {
    std::vector<uint32_t> active;  // queue pairs with unsent data, by class, then by rank
    std::array<uint32_t, kMaxClasses> last_served = PortMemory::nobody();  // rank, by class
    uint32_t port = kNil;
    uint8_t served = 0;  // bits of classes that have been served here; one class alone has none
    // Receive side: data that waits to be taken into the host.
    int64_t receive_bps = 0;  // 0: as fast as it comes
    List waiting;
    int64_t waiting_bytes = 0;
    bool serving = false;
    bool lends = false;  // hands data on over a crossing that is slower than its port
    bool paced = false;  // pacings_ says which of the active ones may go
    NicCounters counters;
  };
  /// Of a sender with many active queue pairs. Each is in `due` (by rank; its pace allows it, or
  /// will when the port is free) or in `later`, a heap of send times in which old entries stay
  /// behind.
  struct Pacing {
    std::vector<uint32_t> due;
    std::vector<std::pair<int64_t, uint32_t>> later;
  };

  struct Node {
    uint32_t global = 0;
    bool host = false;
    int64_t shared_used = 0, pool = 0, xoff = 0;
    int64_t peak = 0;     // of shared_used
    bool touchy = false;  // it paused somebody, or dropped for want of buffer
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
    bool is_active = false, rto_pending = false, increase_running = false;
    bool controlled : 1 = false;
    bool leaves_elsewhere : 1 = false;  // by a NIC that is not its GPU's
    uint8_t traffic_class = 0;
    uint8_t path_count = 1;  // equal-cost paths from `forward` on, `stride` apart
    uint16_t stride = 0;

    int64_t rate = 0, line = 0;
    int64_t pace_rate = -1, pace_bytes = 0, pace_time = 0;
    int64_t high_water = 0;  // highest byte ever sent, tells repeats
    int64_t rto_deadline = 0;
    uint64_t dice_object = 0;  // who the flow is, whatever else is simulated beside it
    uint64_t noise = 0;        // whom marks are drawn for, from there on
    int64_t noise_from = 0;

    uint32_t last_transfer = kNil;
    int retries = 0;
    uint32_t src = 0, dst = 0;  // ranks
    uint32_t nth = 0;           // of the flows of its pair: gives the source port
    uint32_t hops = 0;
    int64_t last_sent = 0;  // flowlets
    uint32_t flowlets = 0, path_choice = 0;
    uint64_t sent_packets = 0;  // spraying
    // What is not yet in the record of the transfer being acknowledged.
    uint32_t ack_transmissions = 0, ack_cnps = 0;
    int64_t una_best = 0;  // the furthest that una has been

    // Receiver.
    int64_t received = 0;
    int64_t since_ack = 0;
    uint32_t receive_transfer = kNil;
    uint32_t reverse = 0;
    int64_t last_cnp = INT64_MIN / 2;
    int64_t last_nack = INT64_MIN / 2, last_nack_seq = -1;
    // What is not yet in the record of the transfer being received.
    uint32_t receive_transmissions = 0, receive_packets = 0;
    uint32_t reverse_hops = 0;
    bool notify = false;
    bool enters_elsewhere = false;  // by a NIC that is not the receiving GPU's
    uint32_t rank = 0;              // settles ties: order of first use in the whole run
    uint32_t channel = 0;
    int64_t increase_next = 0;  // of the valid kIncrease event
    int64_t base = 0;           // posted before this domain knew it
    int64_t padding = 0;        // selective repeat: posted - bytes asked for
  };

  /// Selective repeat. A packet's number is seq / payload; a message begins at a whole number.
  struct Selective {
    std::vector<uint64_t> got, acked;  // bits of the packets in the window, by number modulo
    std::deque<uint32_t> repeat;       // numbers to send again
    int64_t highest = -1;              // highest number acknowledged
    int64_t checked = 0;               // numbers below are known to have arrived or to be repeated
  };

  /// Engine-side state of (a part of) a transfer; `end` is its last byte in the QP's sequence
  /// space.
  struct TransferState {
    int64_t end = 0, bytes = 0;
    uint32_t qp = kNil, next = kNil;
    uint32_t channel = 0;
    uint32_t record = 0;
    uint8_t traffic_class = 0;
    uint8_t part = 0;
  };

  // Events.
  int64_t run_instant();
  void prefetch();
  void on_start(uint32_t state);
  void on_cut(uint32_t qp);
  void on_increase(uint32_t qp);
  void on_arrive(uint32_t port);
  bool is_lost(Port& p, const Packet& packet);
  bool is_nth(const Port& p, const Packet& packet);
  void on_timeout(uint32_t qp);
  void on_change(uint32_t change);
  void on_timer(uint32_t rank, uint32_t arg);
  void set_timer(int64_t at, TimerKind kind, uint32_t index, uint32_t version) {
    ++timers_pending_;
    events_.push(at, key(kTimer, timer_rank(kind, index)),
                 kind << kVersionBits | (version & ((1U << kVersionBits) - 1)));
  }
  /// Timers are ordered by the rank of their port; this and its inverse.
  [[nodiscard]] uint32_t timer_rank(TimerKind kind, uint32_t index) const;
  [[nodiscard]] uint32_t timer_index(TimerKind kind, uint32_t rank) const;

  // Transmission.
  void schedule_transmit(uint32_t port, int64_t time);
  void kick(uint32_t port);
  void kick_here(uint32_t port);
  void transmit(uint32_t port);
  uint32_t take_from_switch(uint32_t port);
  uint32_t take_by_class(uint32_t port);
  uint32_t take_lane(uint32_t port, uint32_t traffic_class);
  uint32_t take_from_nic(uint32_t port);
  uint32_t take_by_class_of_nic(uint32_t port);
  uint32_t take_paced(uint32_t port);
  uint32_t send_next(uint32_t qp);
  void pace(uint32_t sender, uint32_t qp);
  void find_due(uint32_t port);
  void hand_over(uint32_t state);
  [[nodiscard]] bool has_work(uint32_t port) const;
  [[nodiscard]] int64_t nic_ready(uint32_t port) const;
  int64_t transmission_ps(Port& port, int64_t bytes) const;
  void enqueue(uint32_t port, uint32_t packet, bool control);
  void enqueue_data(Port& port, uint32_t packet);
  void discard(Port& port, uint32_t packet);
  uint32_t choose_path(QueuePair& q);

  // Switch.
  bool admit(Port& in, uint32_t packet);
  void mark_by_queue(Port& out, uint32_t packet, int64_t queued);
  void stamp(const Port& out, uint32_t packet);
  void release(uint32_t in, int32_t bytes, uint32_t traffic_class);
  void send_pause(uint32_t in, uint32_t traffic_class, uint32_t because);
  void send_resume(uint32_t in, uint32_t traffic_class);
  void send_pfc(uint32_t in, Type type, uint32_t traffic_class);
  void receive_pfc(uint32_t port, uint32_t packet);
  [[nodiscard]] int64_t pause_ps(const Port& port) const;
  void check_cycles();
  void pause_lane(uint32_t port, uint32_t traffic_class);
  void unpause_lane(uint32_t port, uint32_t traffic_class);
  void excuse(uint32_t port, uint32_t traffic_class);
  void on_watchdog(uint32_t lane);
  void on_restore(uint32_t lane);
  [[nodiscard]] int64_t threshold(const Port& in, const Node& n) const;
  void drop(uint32_t port, uint32_t packet, bool sent);
  void new_pool_peak(Node& n);
  [[noreturn]] void lossless_drop(uint32_t in, const Node& n, const Lane& lane,
                                  int64_t limit) const;

  // Endpoints.
  void deliver(uint32_t packet);
  void book_arrival(QueuePair& q, const Packet& packet);
  void receive_data(uint32_t packet);
  void receive_ack(uint32_t packet);
  void acknowledge_up_to(QueuePair& q, uint32_t qp, int64_t seq);
  void receive_in_order(QueuePair& q, int64_t bytes, int64_t payload);
  void send_control(QueuePair& q, uint32_t qp, Type type, int64_t seq, bool notify, uint32_t cause);
  void rewind(uint32_t qp, int64_t seq);
  /// Where a queue pair of this rank is, or belongs, among those of a NIC with one class.
  std::vector<uint32_t>::iterator position(std::vector<uint32_t>& active, uint32_t rank) {
    return std::lower_bound(active.begin(), active.end(), rank,
                            [this](uint32_t q, uint32_t r) { return qps_[q].rank < r; });
  }
  /// The same with several.
  std::vector<uint32_t>::iterator position(std::vector<uint32_t>& active, uint32_t traffic_class,
                                           uint32_t rank) {
    return std::lower_bound(active.begin(), active.end(), rank, [&](uint32_t q, uint32_t r) {
      const uint32_t c = qps_[q].traffic_class;
      return c < traffic_class || (c == traffic_class && qps_[q].rank < r);
    });
  }
  std::vector<uint32_t>::iterator position(std::vector<uint32_t>& active, const QueuePair& q) {
    return classes_ == 1 ? position(active, q.rank) : position(active, q.traffic_class, q.rank);
  }
  void activate(uint32_t qp);
  void deactivate(uint32_t qp);
  void complete(uint32_t state, Completion::What what);
  /// Bytes of the message in the packet that begins at `seq`.
  [[nodiscard]] int64_t payload_at(int64_t seq, uint32_t state) const {
    const TransferState& t = states_[state];
    if (selective() && seq + config_.payload == t.end) {
      return t.bytes - (t.bytes - 1) / config_.payload * config_.payload;
    }
    return std::min(config_.payload, t.end - seq);
  }
  [[nodiscard]] int64_t message_start(const QueuePair& q, uint32_t state) const;
  void serve(uint32_t sender);

  // Several classes.
  uint32_t class_of_switch(uint32_t port);
  uint32_t queue_pair_of_nic(uint32_t port);
  uint32_t next_in_class(uint32_t sender, uint32_t traffic_class);
  [[nodiscard]] int64_t next_pace(uint32_t port) const;
  template <class Size>
  uint32_t by_deficit(uint32_t port, uint32_t ready, Size size);

  // Selective repeat.
  [[nodiscard]] bool selective() const { return config_.recovery == LossRecovery::selective; }
  uint32_t next_repeat(QueuePair& q, uint32_t qp);
  bool has_repeat(const QueuePair& q, uint32_t qp);
  void receive_selective(uint32_t packet);
  void acknowledge_selective(QueuePair& q, uint32_t qp, uint32_t packet);
  void repeat_all(QueuePair& q, uint32_t qp);
  void fill_data(uint32_t packet, uint32_t qp, int64_t seq, uint32_t state);

  // Congestion control.
  void notify(uint32_t qp);
  void feed_controller(uint32_t qp, uint32_t ack);
  void set_rate(uint32_t qp, int64_t rate, int64_t target, bool cut);
  void arm_increase(uint32_t qp, int64_t at);
  [[nodiscard]] int64_t window_of(const QueuePair& q, uint32_t qp) const;

  // Set-up.
  uint32_t open_qp(const TransferState& s, uint32_t src, uint32_t dst);
  uint32_t make_qp(const QpIdentity& id);
  uint32_t visit(uint32_t global_port);
  uint32_t visit_node(uint32_t global_node);
  uint32_t add_path(const FlowTuple& tuple, uint32_t& hops);
  bool find_paths(QueuePair& q);
  bool find_paths_as_built(QueuePair& q);
  bool find_paths_between(QueuePair& q, uint32_t src_node, uint32_t dst_node, uint32_t entropy);

  // Traffic through other NICs of a server (domain_backup.cpp).
  /// How data of a GPU without a NIC gets to and from other NICs of its server.
  struct Crossing {
    int64_t rate_bps = 0;  // 0: as fast as their ports
    int64_t delay_ps = 0;
    bool open = false;    // new ways may be found over it
    int64_t free_ps = 0;  // the way out is in use until then
  };
  bool find_backup(QueuePair& q);
  [[nodiscard]] bool is_cut_off(uint32_t host) const;
  [[nodiscard]] const Crossing* crossing(uint32_t rank) const;
  void begin_crossing(QueuePair& q) const;
  void cross(QueuePair& q, int64_t bytes);
  void lend(const QueuePair& q);
  void settle_crossings();
  [[nodiscard]] int64_t intake_bps(const Sender& nic, uint32_t packet) const;
  int64_t pair_bdp(const QueuePair& q, int64_t* rtt) const;
  const LongestPair& longest();

  // Period jump.
  void period_begins(uint32_t qp);
  void period_pause(const TraceEntry& entry);
  uint64_t hash_state(Hash128& hash) const;
  void look_for_period(int64_t limit);
  void jump(int64_t limit);
  [[nodiscard]] int64_t paused_so_far(uint32_t port, uint32_t traffic_class) const;

  // Changes.
  void link_went(uint32_t port, bool up);
  void pause_again(uint32_t in);
  void reroute();
  void settle_on_path(QueuePair& q);
  void begin_controller(QueuePair& q, uint32_t qi);
  int64_t hpcc_rtt();

  // Observation.
  void watch_queued(uint32_t port, uint32_t packet);
  void watch_sent(uint32_t port, uint32_t packet, int64_t duration);
  void watch_ended(uint32_t packet, bool delivered);
  [[nodiscard]] std::vector<double> queue_pairs_by_port() const;
  /// Of the NIC port that a packet, now at its end, came in through.
  NicCounters& counters_at(const Packet& packet) {
    return senders_[ports_[paths_[packet.path] ^ 1].sender].counters;
  }

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
  [[nodiscard]] Lane& lane(uint32_t port, uint32_t c) {
    return c == 0 ? ports_[port].lane : lanes_[port * (classes_ - 1) + c - 1];
  }
  [[nodiscard]] const Lane& lane(uint32_t port, uint32_t c) const {
    return c == 0 ? ports_[port].lane : lanes_[port * (classes_ - 1) + c - 1];
  }
  [[nodiscard]] uint32_t lane_index(uint32_t port, uint32_t c) const { return port * classes_ + c; }
  /// Links that the packet has been sent on, counting that of its port.
  [[nodiscard]] uint32_t hops_done(const Packet& p) const;
  void mix(uint32_t what, uint64_t a, uint64_t b);
  /// As mix(); `object` and `value` are what a domain that does the same would have, too.
  void trace(uint32_t what, uint32_t object, int64_t value, uint64_t a, uint64_t b);
  [[nodiscard]] std::string port_name(uint32_t port) const;
  [[nodiscard]] std::string link_name(uint32_t port) const;

  const Topology& topology_;
  const PacketConfig config_;
  const uint32_t classes_;
  const bool stamps_;                     // data packets carry IntHops
  const bool heeds_marks_;                // the controller lives on marks
  bool carries_;                          // a data packet's answer takes something over from it
  bool watched_ = false;                  // telemetry_ or observer_ is there
  std::unique_ptr<Routing> own_routing_;  // null: that of the registry
  Routing* routing_;
  DomainRegistry* const registry_;  // null: this domain is the whole network
  SourceRoutes routes_;

  int64_t now_ = 0;
  EventQueue events_;
  uint32_t turn_ = 0;  // of events_, seen last
  std::vector<Port> ports_;
  std::vector<Lane> lanes_;             // of the classes beyond the first
  std::vector<LaneState> lane_states_;  // of all classes
  std::vector<Node> nodes_;
  std::vector<Sender> senders_;
  std::vector<Pacing> pacings_;  // by sender; shorter where no later one has needed it
  std::vector<QueuePair> qps_;
  std::vector<uint32_t> paths_;  // per path: local ports, kNil, number of ports
  std::vector<Packet> packets_;
  uint32_t free_ = kNil;
  uint64_t live_packets_ = 0;

  // One per queue pair, for the controller in use.
  std::vector<Dcqcn> dcqcn_;
  std::vector<Hpcc> hpcc_;
  std::vector<Timely> timely_;
  std::vector<Dctcp> dctcp_;
  std::vector<Selective> selective_;
  int64_t selective_window_ = 0;  // packets
  // One per packet of the pool, where used.
  struct Stamps {
    IntHop hops[Hpcc::kMaxHops];
    int n = 0;
  };
  std::vector<Stamps> stamps_of_;
  std::vector<int64_t> tx_before_;      // by port, for stamps: sent before this domain
  std::vector<int64_t> sent_at_;        // TIMELY: when the data packet was sent; on its ACK too
  std::vector<int64_t> selective_ack_;  // number that an ACK of selective repeat is about

  std::vector<TransferRecord> records_;
  std::vector<TransferState> states_;
  std::vector<uint8_t> parts_left_;  // per record, with several queue pairs per connection:
                                     // 4 bits not delivered, 4 bits not acknowledged
  std::vector<Completion>* completions_ = nullptr;
  size_t outstanding_ = 0;

  std::unordered_map<uint32_t, uint32_t> port_index_, node_index_;  // global -> local
  std::unordered_map<uint32_t, uint32_t> rank_index_;               // even rank -> local
  std::unordered_map<QpKey, uint32_t, QpKeyHash> qp_index_;
  std::unordered_map<uint64_t, uint32_t> pair_count_;  // flows opened per (src, dst)
  std::vector<uint32_t> scratch_path_;
  LongestPair longest_;  // without a registry

  /// Every n-th packet of some kinds on a port is lost.
  struct NthDrop {
    uint32_t port;
    uint8_t kinds;
    uint64_t every, seen;
  };
  std::vector<NthDrop> drops_;
  std::vector<FabricChange> changes_;
  struct LinkNews {
    int64_t at_ps;
    uint32_t link;
    bool up;
  };
  std::vector<uint32_t> known_down_;
  std::unordered_map<uint32_t, Crossing> crossings_;  // by host
  std::deque<LinkNews> unlearnt_;  // link events that routes do not follow yet, in order
  bool cycle_check_pending_ = false;
  uint32_t starts_pending_ = 0, cuts_pending_ = 0, timers_pending_ = 0, changes_pending_ = 0;
  uint64_t dice_draws_ = 0, mark_draws_ = 0;
  bool pool_changed_ = false;
  std::unique_ptr<PeriodFinder> period_;  // null: off
  uint32_t period_anchor_ = kNil;
  Jumps jumps_;
  int64_t checked_payload_ = -1;  // delivered at the last look for cyclic waits

  FabricTotals totals_;
  // Transmissions and bytes accounted where a packet's life ends; balance against the ports.
  uint64_t ended_transmissions_ = 0;
  int64_t ended_bytes_ = 0;
  uint64_t fingerprint_ = 0;
  std::vector<RateEvent>* rate_sink_ = nullptr;
  std::vector<PauseRecord>* pause_sink_ = nullptr;
  std::vector<TraceEntry>* trace_sink_ = nullptr;
  std::unique_ptr<LinkTelemetry> telemetry_;  // null: off
  std::unique_ptr<Observer> observer_;        // null: off
};

}  // namespace trainyard
