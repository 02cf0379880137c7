// SPDX-License-Identifier: MIT
// One contention domain, packet by packet or stepped from one decision of its controllers to the
// next, with the collectives that run in it. It knows ports, queue pairs, transfers and calls by
// labels: their numbers in order of declaration, so that two domains that do the same have the same
// labels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "memo/stepping/stepped_fabric.h"
#include "network/packet/domain.h"
#include "sim/collective_host.h"

namespace trainyard {

/// Something that a domain tells the rest.
struct DomainOutput {
  enum class What : uint8_t { delivered, acknowledged, done };
  Time at;
  What what = What::delivered;
  uint32_t label = 0;   ///< of the transfer, or of the call
  uint32_t member = 0;  ///< done
};

/// What bounds from below how soon a call's members are through.
struct CallInbound {
  const std::vector<int64_t>* bytes = nullptr;      ///< by member; null: not known
  std::shared_ptr<const std::vector<int64_t>> bps;  ///< of all links by which they come
};

class DomainRun {
 public:
  /// `stepped`: no packets; approximate.
  DomainRun(const Topology& topology, const PacketConfig& config, DomainRegistry& registry,
            bool stepped = false);

  // Inputs; not before the last instant processed.
  uint32_t declare(const QpIdentity& id, const QpMemory& memory) {
    return packets_ ? packets_->declare(id, memory) : stepped_->declare(id, memory);
  }
  /// `in_bps`: of all links by which it comes; 0: not known. @returns the label of the transfer.
  uint32_t start(const Transfer& transfer, Time at, int64_t in_bps = 0);
  /// @returns the label of the call. Its queue pairs have been declared.
  uint32_t open(const HostedCall& call, const CallInbound& inbound = {});
  void arrive(uint32_t call, uint32_t member, Time at);

  /// Both stepped: goes on as one with `other`, as SteppedFabric::absorb().
  void absorb(DomainRun& other);

  [[nodiscard]] Time next_event() const {
    return outputs_.empty() ? engine_next() : outputs_.front().at;
  }
  /// A lower bound of the time of the next output that somebody acts on, not below next_event().
  [[nodiscard]] int64_t no_output_before() {
    const int64_t next = next_event().ps();
    // Packets are looked at where they arrive, not where their ACKs do.
    if (!outputs_.empty() || (packets_ && !complete_at_receiver_)) return next;
    if (next >= bound_) bound_ = packets_ ? packets_->no_delivery_before() : none_through(next);
    return std::max(next, bound_);
  }
  /// Whole instants up to `limit`; stops after the first one with outputs, which are appended in
  /// order of (what, label, member). @returns the last instant processed.
  Time advance(Time limit, std::vector<DomainOutput>& out);
  /// Nothing is under way, no call is in progress.
  [[nodiscard]] bool idle() const { return calls_open_ == 0 && quiet(); }
  /// The network rests, though a call may wait for a member.
  [[nodiscard]] bool quiet() const {
    return outputs_.empty() && (packets_ ? packets_->idle() : stepped_->idle());
  }

  /// Null: stepped.
  [[nodiscard]] PacketDomain* packets() const { return packets_.get(); }
  /// Null: packets.
  [[nodiscard]] SteppedFabric* stepped() const { return stepped_.get(); }
  /// Something was left to dice.
  [[nodiscard]] bool drew_dice() const {
    return packets_ ? packets_->drew_dice() : stepped_->drew_dice();
  }
  /// To dice that no other domain has.
  [[nodiscard]] bool drew_own_dice() const {
    return packets_ ? packets_->drew_own_dice() : stepped_->drew_own_dice();
  }
  void record_trace(std::vector<TraceEntry>* sink) {
    packets_ ? packets_->record_trace(sink) : stepped_->record_trace(sink);
  }
  [[nodiscard]] uint64_t events() const {
    return packets_ ? packets_->events() : stepped_->events();
  }
  [[nodiscard]] size_t outstanding() const { return fabric_outstanding(); }
  [[nodiscard]] std::string describe_stall() const {
    return packets_ ? packets_->describe_stall() : stepped_->describe_stall();
  }
  void check_conservation() const {
    packets_ ? packets_->check_conservation() : stepped_->check_conservation();
  }
  [[nodiscard]] uint32_t qp_count() const {
    return packets_ ? packets_->qp_count() : stepped_->qp_count();
  }
  [[nodiscard]] uint32_t port_count() const {
    return packets_ ? packets_->port_count() : stepped_->port_count();
  }
  [[nodiscard]] uint32_t global_port(uint32_t port) const {
    return packets_ ? packets_->global_port(port) : stepped_->global_port(port);
  }
  [[nodiscard]] QpMemory memory_of(uint32_t qp) const {
    return packets_ ? packets_->memory_of(qp) : stepped_->memory_of(qp);
  }
  [[nodiscard]] PortTally tally(uint32_t port) const {
    return packets_ ? packets_->tally(port) : stepped_->tally(port);
  }
  [[nodiscard]] FabricTotals totals() const {
    return packets_ ? packets_->totals() : stepped_->totals();
  }
  [[nodiscard]] uint64_t fingerprint() const {
    return packets_ ? packets_->fingerprint() : stepped_->fingerprint();
  }

  /// Of all calls, by label; once their messages are acknowledged.
  [[nodiscard]] std::vector<CollectiveHost::Tally> tallies();
  /// Number of transfers started from outside.
  [[nodiscard]] size_t transfers() const { return outer_.size(); }
  /// Record of the transfer with this label.
  [[nodiscard]] const TransferRecord& record(uint32_t transfer) {
    return records()[outer_[transfer]];
  }

 private:
  struct Call {
    HostedCall info;
    std::unique_ptr<CollectiveRun> run;
    uint32_t left = 0;  // members not through
    CollectiveHost::Tally tally;
    std::vector<Time> grants;  // stepped: time from start to delivery of clear-to-send messages
    // Stepped, by member: bytes of messages that have not begun, the soonest end of those that
    // have, and whether it is through.
    std::shared_ptr<const std::vector<int64_t>> in_bps;
    std::vector<int64_t> to_come, lands;
    std::vector<char> through;
    // Likewise: the queue pair of its last message.
    struct Last {
      uint32_t dst = 0, channel = 0, traffic_class = 0, qp = SteppedFabric::kNil;
    };
    std::vector<Last> last;
  };
  struct Flight {  // by TransferId of the domain
    uint32_t call = kOuter;
    uint32_t label = 0;  // kOuter: of the transfer
    CollectiveSend send;
  };
  static constexpr uint32_t kOuter = 0xffffffffU;
  static constexpr uint32_t kNobody = 0xfffffffeU;  // forgotten

  void apply(uint32_t call, Time at);
  void put_flight(TransferId id, const Flight& flight);
  void forget(TransferId id);
  [[nodiscard]] int64_t none_through(int64_t next) const;
  [[nodiscard]] Time engine_next() const {
    return packets_ ? packets_->next_event() : stepped_->next_event();
  }
  Time engine_advance(Time limit) {
    return packets_ ? packets_->advance(limit, completions_)
                    : stepped_->advance(limit, completions_);
  }
  TransferId engine_start(const Transfer& t, Time at) {
    return packets_ ? packets_->start(t, at) : stepped_->start(t, at);
  }
  TransferId step(Call& call, const CollectiveSend& send, Time at);
  [[nodiscard]] size_t fabric_outstanding() const {
    return packets_ ? packets_->outstanding() : stepped_->outstanding();
  }
  const std::vector<TransferRecord>& records() {
    return packets_ ? packets_->transfers() : stepped_->transfers();
  }

  const bool complete_at_receiver_;
  // One of them.
  std::unique_ptr<PacketDomain> packets_;
  std::unique_ptr<SteppedFabric> stepped_;
  std::vector<Call> calls_;
  std::vector<Flight> flights_;
  std::vector<TransferId> outer_;  // label -> id
  size_t calls_open_ = 0;
  std::vector<uint32_t> open_calls_;  // stepped
  /// Stepped: transfers from outside that are not acknowledged, and when they land at the soonest.
  std::vector<std::pair<uint32_t, int64_t>> outer_open_;
  int64_t bound_ = 0;                  // no delivery before it, as known at the last look
  std::vector<DomainOutput> outputs_;  // at the last instant, not yet handed out
  std::vector<CollectiveSend> sends_;  // scratch
  std::vector<uint32_t> done_;
  std::vector<Completion> completions_;
};

}  // namespace trainyard
