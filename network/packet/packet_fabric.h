// SPDX-License-Identifier: MIT
// The packet engine behind the Fabric interface.
#pragma once

#include <memory>

#include "network/packet/config.h"
#include "network/packet/domain.h"
#include "network/topology.h"
#include "sim/fabric.h"

namespace trainyard {

/// The whole network as one domain. `topology` must outlive it.
class PacketFabric final : public Fabric {
 public:
  PacketFabric(const Topology& topology, const PacketConfig& config) : domain_(topology, config) {}

  /// Not before the last instant returned by advance().
  void schedule(const FabricChange& change) { domain_.schedule(change); }

  TransferId start(const Transfer& t, Time at) override { return domain_.start(t, at); }
  [[nodiscard]] Time next_event() const override { return domain_.next_event(); }
  Time advance(Time limit, std::vector<Completion>& out) override {
    return domain_.advance(limit, out);
  }
  [[nodiscard]] size_t outstanding() const override { return domain_.outstanding(); }
  [[nodiscard]] std::string describe_stall() const override { return domain_.describe_stall(); }
  void check_conservation() const override { domain_.check_conservation(); }
  [[nodiscard]] const std::vector<TransferRecord>& transfers() const override {
    return domain_.transfers();
  }
  [[nodiscard]] std::vector<LinkRecord> links() const override { return domain_.links(); }
  [[nodiscard]] FabricTotals totals() const override { return domain_.totals(); }
  [[nodiscard]] uint64_t fingerprint() const override { return domain_.fingerprint(); }
  void record_rates(std::vector<RateEvent>* sink) { domain_.record_rates(sink); }
  void record_pauses(std::vector<PauseRecord>* sink) { domain_.record_pauses(sink); }
  void record_links(Time window) { domain_.record_links(window); }
  [[nodiscard]] LinkSeries take_link_series() { return domain_.take_link_series(); }
  /// Before anything runs.
  void observe(const ObserveOptions& options) { domain_.observe(options); }
  [[nodiscard]] Observations take_observations() { return domain_.take_observations(); }

 private:
  mutable PacketDomain domain_;  // transfers() brings its records up to date
};

}  // namespace trainyard
