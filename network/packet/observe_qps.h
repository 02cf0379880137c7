// SPDX-License-Identifier: MIT
// Time series of queue pairs: what they sent and the rate that their controller allowed. Like
// LinkTelemetry a queue pair is accounted when it is touched; windows are [k * w, (k + 1) * w).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/observations.h"

namespace trainyard {

class QpTelemetry {
 public:
  static constexpr size_t kMostRows = 2'000'000;

  explicit QpTelemetry(Time window, size_t most_rows = kMostRows);

  /// A data packet of `qp` begins to leave; its controller allows `rate_bps`.
  void sent(uint32_t qp, int64_t now, int64_t payload, int64_t rate_bps) {
    Qp& q = touch(qp, now);
    q.open.payload_bytes += payload;
    ++q.open.packets;
    q.open.rate_bps = rate_bps;
  }
  void rate(uint32_t qp, int64_t now, int64_t rate_bps) { touch(qp, now).open.rate_bps = rate_bps; }

  /// Closes all windows and hands the series over, one per queue pair of `qps`. Call once.
  QpSeries finish(size_t qps);

 private:
  struct Qp {
    QpSeries::Row open;       // the open window
    int64_t end = 0;          // of it, in ps
    int64_t rate_before = 0;  // at the end of the last window
    std::vector<QpSeries::Row> rows;
  };
  Qp& touch(uint32_t qp, int64_t now) {
    if (qp >= qps_.size()) grow(qp);
    Qp& q = qps_[qp];
    if (now >= q.end) advance(q, now);
    return q;
  }
  void grow(uint32_t qp);
  void advance(Qp& q, int64_t now);
  void close(Qp& q);
  void reopen(Qp& q);
  void coarsen();
  void double_window();

  int64_t asked_ps_, window_ps_;
  size_t most_rows_, rows_ = 0;
  int64_t latest_ = 0;
  bool finished_ = false;
  std::vector<Qp> qps_;
};

}  // namespace trainyard
