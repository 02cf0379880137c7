// SPDX-License-Identifier: MIT
// Controller-event stepping: no packets, but the decisions that packets would have led to. Between
// two decisions every sender has a constant rate and every queue grows or shrinks evenly; an event
// is what changes that.
//
//   sender      a queue pair with its DCQCN controller, the class that the packet engine uses. A
//               new rate counts from its next packet on, as pacing does.
//   NIC         queue pairs of one port share it max-min fairly below their rates; ACKs go first
//   queue       of a switch port, first in first out: a new rate that comes in when Q bits wait
//               leaves Q / line rate later; what leaves is mixed as it came in
//   marks       a packet that leaves adds -ln(1 - p) to the hazard of its flow, and one is marked
//               at the first packet boundary after the hazard has reached -ln(u); dice by flow.
//               Marks that the controller cannot tell from an earlier one are not looked for.
//   messages    the last packet of each is followed through the queues; so is its ACK
//   ACKs        take their share of the links that they return on
//   windows     a rate of window / round trip, looked at twice per round trip
//   alone       a message whose path nobody else uses has no queues to follow: it takes its time on
//               the line, and that of the ACKs of others which pass the same ports meanwhile
//
// Not modelled: see stepping_declines(); pauses and losses are noticed and reported by declined().
// Method and measured errors: docs/fast-path.md. Model: DESIGN section 6, shortcut 4.
//
// Arithmetic: integers only. Rates in bit/s, times in ps, volumes of senders in 1e-12 bit, so that
// rate x time is exact; queues in 2^20 of that.
//
//   stepped_fabric.cpp  events, senders, NICs, messages
//   stepped_queues.cpp  queues, marks, pauses
//   stepped_alone.cpp   messages that have their path to themselves
//   stepped_join.cpp    two parts of a run become one
//   stepped_setup.cpp   first use of ports and queue pairs, results
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "network/packet/config.h"
#include "network/packet/domain.h"
#include "network/packet/domain_registry.h"
#include "network/qp_key.h"
#include "network/routing.h"
#include "network/topology.h"
#include "sim/event_queue.h"
#include "sim/fabric.h"

namespace trainyard {

/// What of a configuration stepping cannot express, in words that follow "because"; none: it can be
/// tried. Whether a run stayed within its limits is told by SteppedFabric::declined().
std::optional<std::string> stepping_declines(const PacketConfig& config);

class SteppedFabric final : public Fabric {
 public:
  /// `topology` must outlive it. Nothing is set up for ports before their first use.
  /// Throws UserError where stepping_declines().
  /// `registry`: of the run that this is a part of; null: it is the whole network.
  SteppedFabric(const Topology& topology, const PacketConfig& config,
                DomainRegistry* registry = nullptr);

  TransferId start(const Transfer& t, Time at) override { return start(t, at, kNil, false); }
  /// `qp`: the queue pair, where the caller knows it from qp_of() of an earlier transfer. `quiet`:
  /// it is over with its delivery; nobody is told of its acknowledgement.
  TransferId start(const Transfer& t, Time at, uint32_t qp, bool quiet);
  /// kNil: it has not begun, or the next one of its kind may have another.
  [[nodiscard]] uint32_t qp_of(TransferId id) const {
    return config_.qps == 1 && config_.persistent_qps ? messages_[first_part_[id]].qp : kNil;
  }
  static constexpr uint32_t kNil = 0xffffffffU;
  [[nodiscard]] Time next_event() const override;
  /// Throws SimulationError where the run leaves what can be stepped, if so asked.
  Time advance(Time limit, std::vector<Completion>& out) override;
  [[nodiscard]] size_t outstanding() const override { return outstanding_; }
  [[nodiscard]] std::string describe_stall() const override;
  void check_conservation() const override;
  /// A number that was forgotten has an empty record until it is used again.
  [[nodiscard]] const std::vector<TransferRecord>& transfers() const override { return records_; }
  [[nodiscard]] std::vector<LinkRecord> links() const override;
  [[nodiscard]] FabricTotals totals() const override;
  [[nodiscard]] uint64_t fingerprint() const override { return fingerprint_; }

  /// Why this run is not to be trusted: a pause or a loss that packets would have seen. Empty: no
  /// reason is known. The run goes on as if there were no pauses.
  [[nodiscard]] const std::string& declined() const { return declined_; }
  /// Pauses are not followed, and no reason to decline, while what they would have held up on a
  /// port adds up to at most `ppm` millionths of the time since the first message.
  void tolerate_pauses(int64_t ppm) { tolerated_ppm_ = ppm; }
  /// Pauses that packets would have met and that were not followed.
  [[nodiscard]] uint64_t pauses_not_followed() const { return pauses_not_followed_; }
  /// Throws as soon as declined() has a reason.
  void stop_when_declined(bool stop) { stop_ = stop; }

  // A part of a run, as PacketDomain: queue pairs and ports have local indices in order of
  // declaration.
  uint32_t declare(const QpIdentity& id, const QpMemory& memory);
  /// Goes on as one with `other`, which has no ports in common with it, was not advanced further
  /// than what comes next in either, and is of no use afterwards. Ports, queue pairs and transfers
  /// of `other` come after those that are here, in their order.
  void absorb(SteppedFabric& other);
  /// Nothing is under way, no controller waits for a cut.
  [[nodiscard]] bool idle() const;
  [[nodiscard]] uint64_t events() const { return totals_.events; }
  /// A queue was within its marking band: what came of it was left to the dice.
  [[nodiscard]] bool drew_dice() const { return drew_dice_; }
  /// By dice that no other domain has.
  [[nodiscard]] bool drew_own_dice() const { return drew_dice_ && !config_.shared_noise; }
  /// Keeps what the fingerprint is made of from now on when not null.
  void record_trace(std::vector<TraceEntry>* sink) { trace_sink_ = sink; }
  [[nodiscard]] uint32_t port_count() const { return static_cast<uint32_t>(ports_.size()); }
  [[nodiscard]] uint32_t qp_count() const { return static_cast<uint32_t>(qps_.size()); }
  [[nodiscard]] uint32_t global_port(uint32_t port) const { return ports_[port].global; }
  [[nodiscard]] QpMemory memory_of(uint32_t qp) const;
  [[nodiscard]] PortTally tally(uint32_t port) const;

  /// The transfer is over, and nobody will ask for it again: its number is free for
  /// another one.
  void forget(TransferId id);

  /// Kept from now on when not null. Queue pairs in order of first use, as in the packet engine.
  void record_rates(std::vector<RateEvent>* sink) { rate_sink_ = sink; }

 private:
  __extension__ typedef __int128 Wide;
  static constexpr int64_t kNever = INT64_MAX;
  static constexpr int64_t kPsPerSecond = 1'000'000'000'000;
  static constexpr int kBins = 256;       // of a marking band
  static constexpr int kQueueShift = 20;  // queues count in 2^20 x 1e-12 bit
  // Turns that queue pairs take at their NIC: of so many at most, rates that move by 2^-10 or more,
  // rates from a 2^-4 of the line on; packets of each until the pattern has settled, those counted
  // then, and of all of them at most.
  static constexpr size_t kTurns = 4;
  static constexpr int kRateShift = 10, kRareShift = 4;
  static constexpr int kSettled = 3, kCounted = 12, kMostTurns = 320;

  enum Kind : uint32_t {
    kStart,
    kCut,
    kIncrease,
    kBytes,
    kNotify,
    kWindow,
    kSender,
    kFront,
    kLeave,
    kPort,
    kResume,
    kArrive,
    kDelivered,
    kAcknowledged,
    kRest,
    kAcksLeave
  };
  enum class Trace : uint32_t { delivered = 1, acknowledged };
  static constexpr uint32_t kKindShift = 28;
  static_assert(kAcksLeave < 1U << (32 - kKindShift));
  static uint32_t key(Kind kind, uint32_t index) { return kind << kKindShift | index; }

  /// Rates (or times) on their way, oldest first.
  class Rates {
   public:
    [[nodiscard]] bool empty() const { return first_ == rates_.size(); }
    [[nodiscard]] int64_t front() const { return rates_[first_]; }
    void push(int64_t rate) { rates_.push_back(rate); }
    void push_in_order(int64_t time) {
      rates_.push_back(time);
      for (size_t i = rates_.size() - 1; i > first_ && rates_[i - 1] > time; --i) {
        std::swap(rates_[i - 1], rates_[i]);
      }
    }
    int64_t pop() {
      const int64_t rate = rates_[first_++];
      if (first_ == rates_.size()) {
        rates_.clear();
        first_ = 0;
      }
      return rate;
    }

   private:
    std::vector<int64_t> rates_;
    size_t first_ = 0;
  };

  /// Times of the events of one object that are in the queue, so that one that has moved to later
  /// leaves no heap of void events behind: an earlier event looks again.
  class Queued {
   public:
    /// @returns whether an event has to be pushed for this time.
    bool announce(int64_t at) {
      if (!times_.empty() && times_.back() <= at) return false;
      times_.push_back(at);
      return true;
    }
    /// The earliest has come.
    void popped() { times_.pop_back(); }

   private:
    std::vector<int64_t> times_;  // latest first
  };

  /// A flow at one port of its path.
  struct Hop {
    uint32_t port = 0, qp = 0;
    int64_t in = 0;    // rate at which it arrives
    int64_t head = 0;  // rate at which what leaves now arrived
    int64_t out = 0;   // rate that the next hop was told
    Rates arriving, leaving;
    uint32_t member = kNil;  // position among the flows of its port
    uint32_t heap = kNil;
    Wide due = 0;           // hazard clock of the port at which it is marked
    bool rests = false;     // a mark would tell the controller nothing new
    int64_t resumes = 0;    // until then
    int64_t patience = -1;  // hazard left until a mark while it is not in the heap; -1: not drawn
    int64_t begins = 0;     // its first packet leaves then; 0: has left
    Wide phase = 0;         // of its packets, in 1e-12 bit, at `volume`
    Wide volume = 0;        // volume clock of the port
    uint64_t draws = 0;
  };

  struct Port {
    // What a message that is alone needs of its ports comes first, close together.
    int64_t carries = 0;    // bit/s, as sizes are rounded
    uint32_t alone = kNil;  // who sends through it alone
    bool from_host = false, to_host = false, marks = false;
    int64_t queue = 0;
    std::vector<uint32_t> members;
    int64_t in = 0;    // flows and ACKs
    int64_t acks = 0;  // of those
    // What ACKs have taken of the line by `acks_since`, in 1e-12 bit, and at what rate they do.
    Wide acked = 0;
    int64_t acks_since = 0, ack_rate = 0;
    int64_t ack_share_q40 = 0;  // of the data that they are for, in time on the link
    uint32_t nic = kNil;
    uint32_t owner = 0, peer = 0, global = 0;
    int64_t delay_ps = 0, full_ps = 0, ack_ps = 0, rate_bps = 0;
    // Tally.
    uint64_t packets = 0, marked = 0;
    int64_t bytes = 0, payload = 0;
    // Queue.
    int64_t since = 0, peak = 0;
    int64_t head = 0;              // flows, of what leaves now
    int64_t acks_head = 0;         // ACKs of the data class, likewise
    uint32_t ack_hops = kNil;      // the first of those whose ACKs pass
    uint64_t scale_q16 = 1 << 16;  // leaves over arrived, of what leaves now
    uint64_t told_q16 = 1 << 16;   // as downstream knows it
    // Marks.
    int64_t alpha_q16 = 0;
    int64_t kmin = 0, kmax = 0, bin = 0;  // queue units
    Wide hazard = 0;                      // clock: Q32 x ps
    Wide volume = 0;                      // clock: Q16 x ps
    Wide pooled = 0;                      // dithered: credit of all, Q32 x 1e-12 bit
    std::vector<uint32_t> heap;           // hops by `due`
    int64_t joined_at = -1, joined = 0;   // flows that came at one instant
    int64_t wake = kNever;
    Queued queued;
    int64_t watch = kNever;  // queue at which pauses are looked for
    // Pauses that are not followed: queue below which the one under way is over, what it has held
    // up so far in time on the line, and what those before it have.
    int64_t rearm = -1, holds = 0, held = 0;
  };

  /// ACKs of a queue pair at one port of their way. Rates are those of the data that they are for.
  struct AckHop {
    uint32_t port = 0, qp = 0;
    int64_t in = 0, head = 0, out = 0;  // as of Hop
    Rates leaving;
    bool listed = false;
    uint32_t before = kNil, after = kNil;  // among those of the port
  };

  struct Node {
    uint32_t global = 0;
    bool host = false;
    int64_t pool = 0, xoff = 0;
    std::vector<uint32_t> ports;  // egress, local
  };

  struct Nic {
    std::vector<uint32_t> active;  // queue pairs with something to send
    int64_t line = 0, acks = 0, wanted = 0;
    int64_t shared_acks = 0;           // as in the last division
    bool full = false, turns = false;  // then
  };

  struct QueuePair {
    uint32_t src = 0, dst = 0, channel = 0, nth = 0;
    uint32_t forward = 0, hops = 0;          // into hops_
    uint32_t reverse = 0, reverse_hops = 0;  // into reverse_
    uint32_t nic = 0;
    bool controlled = false, active = false, last_out = false, increase_running = false;
    bool alone = false;      // its path is its own, see stepped_alone.cpp
    uint32_t under_way = 0;  // rates between and in its hops
    int64_t line = 0;
    int64_t wanted = 0;  // by controller and window
    int64_t rate = 0;    // in use from `since` on
    int64_t since = 0;
    Wide left = 0;  // of messages from `head` on that were begun, at `since`
    Wide last = 0;  // last packet of `head`
    uint32_t head = kNil, tail = kNil;
    int64_t wake = kNever;
    Queued queued;
    uint32_t unacked = 0, latest = kNil;
    int64_t increase_next = 0, increase_wake = kNever;
    int64_t cut_wake = -1;     // of the last event
    int64_t cut_due = kNever;  // that the controller waits for
    int64_t window = 0;        // bytes; 0: none
    int64_t window_rate = 0;   // what it allows now; 0: no limit
    bool window_pending = false;
    Wide until_count = 0;  // byte counter
    int64_t bytes_wake = kNever;
    int64_t delivered_rate = 0;
    int64_t first_notify = -1, last_cnp = INT64_MIN / 2, last_ack = 0;
    Rates notices;  // when marks become known to the controller
    uint64_t dice_object = 0;
    uint64_t noise = 0;  // whom marks are drawn for
    uint32_t messages = 0;
    int64_t posted = 0;  // payload, with what was posted before this domain
    int64_t before = 0;  // that
    // Alone, in ps: since when it sends, since when its message does, how much waited then, and
    // when all that was sent is through.
    int64_t alone_front = 0, alone_since = 0, alone_waits = 0, alone_clear = 0;
    Dcqcn cc;
  };

  /// A message, or the part of one that a queue pair carries.
  struct Message {
    uint32_t record = 0, qp = kNil, next = kNil;
    uint32_t other_part = kNil;  // of the same transfer
    uint32_t channel = 0;
    uint8_t part = 0, traffic_class = 0;
    bool follows = false;  // close behind other packets
    bool quiet = false;    // see start()
    int64_t bytes = 0, packets = 0;
    uint32_t at = 0;  // hop that its last packet is at
  };

  // Events.
  void run_instant();
  void on_start(uint32_t message);
  void on_cut(uint32_t qp);
  void on_increase(uint32_t qp);
  void on_bytes(uint32_t qp);
  void on_notify(uint32_t qp, uint32_t notices);
  void on_window(uint32_t qp);
  void on_sender(uint32_t qp);
  void on_front(uint32_t hop);
  void on_leave(uint32_t hop);
  void on_acks_leave(uint32_t reverse);
  void on_port(uint32_t port);
  void on_resume(uint32_t hop);
  void on_last_packet(uint32_t message);
  void on_delivered(uint32_t message);
  void on_acknowledged(uint32_t message);

  // Senders.
  [[nodiscard]] Wide volume_of(const Message& m) const;
  [[nodiscard]] Wide last_packet_of(const Message& m) const;
  void settle(QueuePair& q, int64_t at);
  void begin(QueuePair& q, uint32_t message);
  void launch(uint32_t message);
  void schedule(uint32_t qp);
  void set_rate(uint32_t qp, int64_t rate, bool next_packet);
  void send_front(uint32_t qp, int64_t at, int64_t rate);
  void share(uint32_t nic, uint32_t changed);
  void take_turns(std::vector<std::pair<int64_t, uint32_t>>& levels, int64_t line) const;
  [[nodiscard]] int64_t allowed(const QueuePair& q) const;
  void want(uint32_t qp);
  void arm_increase(uint32_t qp, int64_t at);
  void controller_moved(uint32_t qp, bool cut);
  void count_bytes(uint32_t qp);
  void look_at_window(uint32_t qp);
  [[nodiscard]] int64_t paced(int64_t rate) const;

  // Alone.
  [[nodiscard]] bool may_be_alone(const QueuePair& q);
  [[nodiscard]] bool may_mark_alone(const QueuePair& q, int64_t waits) const;
  void start_alone(uint32_t qp);
  void begin_alone(QueuePair& q);
  void set_rate_alone(uint32_t qp);
  void on_sent_alone(uint32_t qp);
  void leave_alone(QueuePair& q);
  void join_others(uint32_t qp);
  [[nodiscard]] int64_t waits_alone(const QueuePair& q) const;
  [[nodiscard]] Wide acked(const Port& p) const;

  // Queues.
  [[nodiscard]] static int64_t slope(const Port& p);
  [[nodiscard]] int64_t data_line(const Port& p) const;
  [[nodiscard]] int64_t drains_in(const Port& p, int64_t queue) const;
  [[nodiscard]] int bin_of(const Port& p, int64_t queue) const;
  /// Of what the packets that wait count beyond the fluid, in queue units.
  [[nodiscard]] int64_t offset(const Port& p) const;
  [[nodiscard]] int64_t step_to_next_bin(const Port& p, int64_t queue, int bin, int64_t slope,
                                         int64_t most) const;
  void settle(Port& p);
  void reschedule(uint32_t port);
  void set_head(uint32_t hop, int64_t rate);
  void rescale(uint32_t port, uint32_t changed);
  void tell(uint32_t hop);
  void told_receiver(uint32_t qp, int64_t rate);
  void pass_acks(uint32_t qp, uint32_t reverse, int64_t rate);
  void tell_acks(uint32_t reverse);
  [[nodiscard]] bool tells(const Port& p, AckHop& h) const;
  [[nodiscard]] static int64_t acks_of(const Port& p, int64_t data);
  void list(Port& p, uint32_t reverse);
  void unlist(Port& p, uint32_t reverse);
  [[nodiscard]] int64_t wait_ps(const Port& p, int64_t at) const;
  void draw(Hop& h);
  [[nodiscard]] Wide phase_of(const Port& p, Hop& h) const;
  [[nodiscard]] static bool moves(const Port& p, int64_t ps);
  void mark(uint32_t port, uint32_t hop, bool next);
  void announce(uint32_t qp, int64_t first, uint32_t notices);
  [[nodiscard]] int64_t next_cut(const QueuePair& q, int64_t at) const;
  [[nodiscard]] int64_t at_receiver(uint32_t hop, int64_t at) const;
  [[nodiscard]] int64_t back_at_sender(const QueuePair& q, int64_t at, bool control) const;
  void look_for_pause(uint32_t port);
  bool tolerates(Port& port, int64_t over_ps);
  void decline(const std::string& why);
  void heap_set(Port& p, uint32_t hop);
  void heap_remove(Port& p, uint32_t hop);
  void sift_up(Port& p, uint32_t at);
  void sift_down(Port& p, uint32_t at);

  // Set-up and results.
  uint32_t visit(uint32_t global_port);
  uint32_t visit_node(uint32_t global_node);
  uint32_t open_qp(const Message& m, uint32_t src, uint32_t dst);
  uint32_t make_qp(const QpIdentity& id);
  void book(const Message& m);
  void complete(const Message& m, Completion::What what);
  void acknowledge(const Message& m, int64_t at);
  void trace(const Message& m, Trace what, int64_t at);
  [[nodiscard]] int64_t send_ps(int64_t bytes, int64_t rate_bps) const;

  const Topology& topology_;
  const PacketConfig config_;
  std::unique_ptr<Routing> own_routing_;  // null: that of the registry
  Routing* routing_;
  DomainRegistry* const registry_;
  const int64_t full_bytes_;  // of a full packet on the wire
  const Wide full_;           // 1e-12 bit
  int64_t hazards_[kBins + 1];
  bool stop_ = false;

  int64_t now_ = 0;
  mutable EventQueue events_;
  std::vector<Port> ports_;
  std::vector<Node> nodes_;
  std::vector<Nic> nics_;
  std::vector<QueuePair> qps_;
  std::vector<Hop> hops_;
  std::vector<AckHop> reverse_;
  std::vector<uint32_t> path_;      // ports of hops_
  std::vector<Wide> acked_before_;  // alone, likewise: the port's clock of ACKs at `alone_since`
  std::vector<Message> messages_;
  std::vector<uint8_t> parts_left_;   // by record
  std::vector<uint32_t> first_part_;  // likewise
  std::vector<TransferRecord> records_;
  std::vector<uint32_t> free_messages_, free_records_;
  // Of those forgotten.
  uint64_t forgotten_transmissions_ = 0;
  int64_t forgotten_bytes_ = 0, forgotten_crossed_ = 0;
  std::vector<Completion>* completions_ = nullptr;
  size_t outstanding_ = 0;
  int64_t rests_at_ = 0;  // not before the last ACK is back
  std::unordered_map<uint32_t, uint32_t> port_index_, node_index_;
  std::unordered_map<QpKey, uint32_t, QpKeyHash> qp_index_;
  std::unordered_map<uint64_t, uint32_t> pair_count_;
  std::vector<uint32_t> scratch_;
  std::vector<std::pair<int64_t, uint32_t>> levels_;
  LongestPair longest_;  // without a registry

  FabricTotals totals_;
  uint64_t fingerprint_ = 0;
  Wide carried_ = 0, asked_ = 0, overshoot_ = 0;  // 1e-12 bit, by all senders
  std::string declined_;
  int64_t tolerated_ppm_ = 0, began_ = kNever;
  uint64_t pauses_not_followed_ = 0;
  std::vector<RateEvent>* rate_sink_ = nullptr;
  std::vector<TraceEntry>* trace_sink_ = nullptr;
  bool drew_dice_ = false;
};

}  // namespace trainyard
