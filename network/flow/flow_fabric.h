// SPDX-License-Identifier: MIT
// The flow engine: messages are fluids that share links max-min fairly. No packets, queues, PFC,
// ECN, windows, congestion control or losses; bandwidth is shared at once and ideally.
//
//   route       as in the packet engine: the same queue pairs, source ports and ECMP
//   queue pair  serves its messages in order, one at a time, at its max-min fair rate
//   volume      payload and the headers of its packets
//   capacity    line rate; more where `time_resolution` rounds the time of a packet down
//   delivered   last byte out of the sender, plus cables and one packet stored and forwarded per
//               link (MessageCost::latency_ps)
//   acknowledged  delivered, plus the way back of one ACK
//   ACK load    a link over which ACKs return has 1 / (1 + w) of its rate for data, w being the
//               bits of ACK per bit of full packets: exact where the other direction is full, as in
//               a ring; elsewhere up to w too slow. ACKs never hold a flow back.
//   rate_interval  (off by default) rates are found again at once where flows begin, but where they
//               only end, at the next multiple of it. For dense traffic of many different sizes,
//               where each end moves everybody a little.
//
// Arithmetic: rates are whole bits per second. What is left of a message is counted in units of
// 1e-12 bit, so that rate x picoseconds is exact; it ends at the first picosecond at which nothing
// is left. Nothing is rounded in between, and no result depends on the order of calls at an
// instant. A flow gets at least 1 bit/s.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "network/flow/max_min.h"
#include "network/flow/message_events.h"
#include "network/flow/path_book.h"
#include "sim/event_queue.h"
#include "sim/fabric.h"

namespace trainyard {

struct FlowConfig {
  bool ack_load = true;
  /// Capacity that a flow leaves behind is handed out at the next multiple of this; 0: at once.
  int64_t rate_interval_ps = 0;
};

class FlowFabric final : public Fabric {
 public:
  FlowFabric(const Topology& topology, const PacketConfig& packet, const FlowConfig& config);

  TransferId start(const Transfer& t, Time at) override;
  [[nodiscard]] Time next_event() const override;
  Time advance(Time limit, std::vector<Completion>& out) override;
  [[nodiscard]] size_t outstanding() const override { return book_.outstanding(); }
  [[nodiscard]] std::string describe_stall() const override { return book_.describe_outstanding(); }
  void check_conservation() const override;
  [[nodiscard]] const std::vector<TransferRecord>& transfers() const override {
    return book_.records();
  }
  [[nodiscard]] std::vector<LinkRecord> links() const override { return book_.links(); }
  [[nodiscard]] FabricTotals totals() const override { return book_.totals(events_done_); }
  [[nodiscard]] uint64_t fingerprint() const override { return book_.fingerprint(); }

  /// Rates found so far, repeats included.
  [[nodiscard]] uint64_t rates_computed() const { return fair_.rates_computed(); }
  /// Of a queue pair, in order of first use, in bits per second on the wire; 0 when idle.
  [[nodiscard]] int64_t rate_bps(uint32_t qp) const { return fair_.rate(qp); }

 private:
  __extension__ typedef __int128 Wide;
  static constexpr uint32_t kNil = 0xffffffffU;
  static constexpr int64_t kNever = INT64_MAX;

  /// The sending side of a queue pair; index as in the book and as flow of the solvers.
  struct Sender {
    uint32_t head = kNil, tail = kNil;  // messages, the first is being sent
    Wide left = 0;                      // of the first, in 1e-12 bit at `since`
    int64_t since = 0, rate = 0;
    int64_t end = kNever;
    uint32_t heap = kNil;  // position in heap_
    bool fresh = false;    // began a message at this instant
  };
  struct Message {
    uint32_t qp = kNil, next = kNil;
  };

  void on_start(TransferId id);
  void on_sent(uint32_t qp);
  void begin_message(uint32_t qp);
  void settle(uint32_t qp);
  void update_rates();
  void count_acks(uint32_t qp, bool begin);
  void schedule(uint32_t qp);
  void schedule_fresh();
  void open(uint32_t qp);
  [[nodiscard]] bool earlier(uint32_t a, uint32_t b) const {
    return senders_[a].end != senders_[b].end ? senders_[a].end < senders_[b].end : a < b;
  }
  void sift_up(uint32_t at);
  void sift_down(uint32_t at);
  void heap_set(uint32_t qp);
  void heap_remove(uint32_t qp);

  const FlowConfig config_;
  PathBook book_;
  MaxMin fair_;
  const int64_t ack_weight_, data_weight_;  // bytes of ACKs and of the data that they acknowledge
  std::vector<uint32_t> ack_flows_;         // per port: senders whose ACKs return over it

  int64_t now_ = 0;
  MessageEvents events_;
  std::vector<uint32_t> heap_;  // senders by end of their message
  std::vector<Sender> senders_;
  std::vector<Message> messages_;  // by transfer
  std::vector<uint32_t> fresh_;
  bool stale_ = false;    // flows came or went at this instant
  bool came_ = false;     // flows came
  int64_t due_ = kNever;  // when capacity left behind is handed out
  uint64_t events_done_ = 0;
  Wide carried_ = 0, asked_ = 0, overshoot_ = 0;  // 1e-12 bit
};

}  // namespace trainyard
