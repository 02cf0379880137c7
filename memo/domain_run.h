// SPDX-License-Identifier: MIT
// One contention domain, packet by packet, with the collectives that run in it. It knows ports,
// queue pairs, transfers and calls by labels: their numbers in order of declaration, so that two
// domains that do the same have the same labels.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

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

class DomainRun {
 public:
  DomainRun(const Topology& topology, const PacketConfig& config, DomainRegistry& registry);

  // Inputs; not before the last instant processed.
  uint32_t declare(const QpIdentity& id, const QpMemory& memory) {
    return domain_.declare(id, memory);
  }
  /// @returns the label of the transfer.
  uint32_t start(const Transfer& transfer, Time at);
  /// @returns the label of the call. Its queue pairs have been declared.
  uint32_t open(const HostedCall& call);
  void arrive(uint32_t call, uint32_t member, Time at);

  [[nodiscard]] Time next_event() const {
    return outputs_.empty() ? domain_.next_event() : outputs_.front().at;
  }
  /// Whole instants up to `limit`; stops after the first one with outputs, which are appended in
  /// order of (what, label, member). @returns the last instant processed.
  Time advance(Time limit, std::vector<DomainOutput>& out);
  /// Nothing is under way, no call is in progress.
  [[nodiscard]] bool idle() const {
    return calls_open_ == 0 && outputs_.empty() && domain_.idle();
  }
  /// The network rests, though a call may wait for a member.
  [[nodiscard]] bool quiet() const { return outputs_.empty() && domain_.idle(); }

  [[nodiscard]] PacketDomain& domain() { return domain_; }
  [[nodiscard]] const PacketDomain& domain() const { return domain_; }
  /// Of all calls, by label; once their messages are acknowledged.
  [[nodiscard]] std::vector<CollectiveHost::Tally> tallies();
  /// Record of the transfer with this label.
  [[nodiscard]] const TransferRecord& record(uint32_t transfer) {
    return domain_.transfers()[outer_[transfer]];
  }

 private:
  struct Call {
    HostedCall info;
    std::unique_ptr<CollectiveRun> run;
    uint32_t left = 0;  // members not through
    CollectiveHost::Tally tally;
  };
  struct Flight {  // by TransferId of the domain
    uint32_t call = kOuter;
    uint32_t label = 0;  // kOuter: of the transfer
    CollectiveSend send;
  };
  static constexpr uint32_t kOuter = 0xffffffffU;

  void apply(uint32_t call, Time at);

  const bool complete_at_receiver_;
  PacketDomain domain_;
  std::vector<Call> calls_;
  std::vector<Flight> flights_;
  std::vector<TransferId> outer_;  // label -> id
  size_t calls_open_ = 0;
  std::vector<DomainOutput> outputs_;  // at the last instant, not yet handed out
  std::vector<CollectiveSend> sends_;  // scratch
  std::vector<uint32_t> done_;
  std::vector<Completion> completions_;
};

}  // namespace trainyard
