// SPDX-License-Identifier: MIT
// A fabric with what happens beside a job: flows that start at times of their own, background
// traffic that goes on until the run ends, and changes of the fabric. The job sees its own
// transfers only, numbered as if it were alone.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "network/packet/domain.h"
#include "sim/fabric.h"

namespace trainyard {

/// A flow that nobody waits for but the run.
struct TimedFlow {
  Transfer transfer;  ///< `owner` is set to the index of the flow
  Time start;
  bool background = false;  ///< the run does not wait for it
  bool repeat = false;      ///< background: begins again as soon as it has been acknowledged
  Time period;              ///< background: or so often; zero: no
};

class StagedFabric final : public Fabric {
 public:
  /// `schedule` passes changes to `inner`; may be empty where there are no changes. Flows start in
  /// the order given. Both must outlive this.
  using Schedule = std::function<void(const FabricChange&)>;
  StagedFabric(Fabric& inner, const std::vector<TimedFlow>& flows,
               std::vector<FabricChange> changes, Schedule schedule);

  // The job's view. outstanding() counts its transfers and the flows that the run waits for.
  TransferId start(const Transfer& transfer, Time at) override;
  [[nodiscard]] Time next_event() const override;
  Time advance(Time limit, std::vector<Completion>& out) override;
  [[nodiscard]] size_t outstanding() const override { return outstanding_; }
  [[nodiscard]] std::string describe_stall() const override { return inner_.describe_stall(); }
  void check_conservation() const override { inner_.check_conservation(); }
  [[nodiscard]] const std::vector<TransferRecord>& transfers() const override;
  [[nodiscard]] std::vector<LinkRecord> links() const override { return inner_.links(); }
  [[nodiscard]] FabricTotals totals() const override { return inner_.totals(); }
  [[nodiscard]] uint64_t fingerprint() const override { return inner_.fingerprint(); }

  /// Records of the flows (background or not), in order of start.
  [[nodiscard]] std::vector<TransferRecord> flow_records(bool background) const;
  /// When a flow that the run waits for made progress last; zero: never.
  [[nodiscard]] Time last_flow_progress() const { return last_flow_progress_; }
  /// The last instant that advance() got to.
  [[nodiscard]] Time reached() const { return reached_; }
  [[nodiscard]] size_t flows_done() const { return flows_done_; }
  /// Some background transfer is under way or yet to come.
  [[nodiscard]] bool background_left() const { return background_left_ > 0; }

 private:
  enum class Kind : uint8_t { job, flow, background };
  struct Origin {  // of an inner transfer
    Kind kind = Kind::job;
    uint32_t index = 0;  // the job's number, or that of the flow
    bool half = false;   // delivered or acknowledged, not both
  };

  [[nodiscard]] Time next_staged() const;
  void feed(Time limit);
  void begin(uint32_t flow, Time at);
  void on_completion(const Completion& c, std::vector<Completion>& out);

  Fabric& inner_;
  const std::vector<TimedFlow>& flows_;
  std::vector<FabricChange> changes_;
  Schedule schedule_;
  size_t next_change_ = 0;
  std::vector<Origin> origins_;
  uint32_t jobs_ = 0;
  size_t outstanding_ = 0, flows_done_ = 0, background_left_ = 0;
  Time last_flow_progress_, reached_;
  std::vector<Completion> scratch_;
  std::vector<std::pair<Time, uint32_t>> periodic_;  // heap, earliest first
  mutable std::vector<TransferRecord> job_records_;
};

}  // namespace trainyard
