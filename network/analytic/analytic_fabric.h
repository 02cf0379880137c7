// SPDX-License-Identifier: MIT
// The analytic engine: alpha-beta, unaware of congestion. A message takes the latency of its route
// plus its bytes over the slowest link of the route, whatever else is under way; messages of one
// queue pair do not wait for each other either. Collectives are worked out as a whole
// (AnalyticCalls). With `nic_serialization` the messages that leave
// through one NIC port are sent one after the other at the port's rate, in order of their start.
//
// Routes, headers, latency and the way of the ACK back are those of the flow engine
// (MessageCost). A message takes O(links of its route), once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "network/analytic/analytic_calls.h"
#include "network/flow/message_events.h"
#include "network/flow/path_book.h"
#include "sim/fabric.h"

namespace trainyard {

struct AnalyticConfig {
  bool nic_serialization = false;
  bool whole_collectives = true;
};

class AnalyticFabric final : public Fabric, public CollectiveHost {
 public:
  AnalyticFabric(const Topology& topology, const PacketConfig& packet, const AnalyticConfig& config)
      : config_(config), book_(topology, packet), calls_(book_, packet), events_(packet) {}

  TransferId start(const Transfer& t, Time at) override;
  [[nodiscard]] Time next_event() const override;
  Time advance(Time limit, std::vector<Completion>& out) override;
  [[nodiscard]] size_t outstanding() const override {
    return book_.outstanding() + calls_.outstanding();
  }
  [[nodiscard]] std::string describe_stall() const override { return book_.describe_outstanding(); }
  void check_conservation() const override { book_.check_conservation(); }
  /// Messages of calls among them, by start; or without them, where they are too many.
  [[nodiscard]] const std::vector<TransferRecord>& transfers() const override;
  [[nodiscard]] std::vector<LinkRecord> links() const override { return book_.links(); }
  [[nodiscard]] FabricTotals totals() const override {
    return book_.totals(events_done_ + calls_.events());
  }
  [[nodiscard]] uint64_t fingerprint() const override { return book_.fingerprint(); }

  /// Not where messages wait for each other at the NIC.
  [[nodiscard]] bool hosts() const override {
    return config_.whole_collectives && !config_.nic_serialization;
  }
  uint32_t open(const HostedCall& call) override { return calls_.open(call); }
  void arrive(uint32_t call, uint32_t member, Time at) override {
    calls_.arrive(call, member, at.ps());
  }
  void take_done(std::vector<Done>& out) override { calls_.take_done(out); }
  [[nodiscard]] Tally tally(uint32_t call) const override { return calls_.tally(call); }
  [[nodiscard]] uint64_t messages_left_out() const override {
    return calls_.messages() - calls_.records().size();
  }

 private:
  void on_start(TransferId id);

  const AnalyticConfig config_;
  PathBook book_;
  AnalyticCalls calls_;
  int64_t now_ = 0;
  MessageEvents events_;
  std::vector<uint32_t> qp_of_;     // by transfer
  std::vector<int64_t> port_free_;  // when a NIC port has sent what it was given
  uint64_t events_done_ = 0;
  mutable std::vector<TransferRecord> all_records_;
};

}  // namespace trainyard
