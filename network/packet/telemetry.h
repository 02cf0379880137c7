// SPDX-License-Identifier: MIT
// Time series of links, taken while a domain runs: no event, no look at anything that decides.
//
// A port is accounted when it is touched: what happened since the last touch is known (one
// transmission at a constant rate, a queue that stood still, a pause that was on or off), so all
// windows that ended in between close then. Windows are [k * w, (k + 1) * w).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/fabric.h"

namespace trainyard {

class LinkTelemetry {
 public:
  static constexpr size_t kMostRows = 2'000'000;

  explicit LinkTelemetry(Time window, size_t most_rows = kMostRows);

  /// The data class of `port` holds `bytes` from now on, because of an arrival.
  void queued(uint32_t port, int64_t now, int64_t bytes) {
    Port& p = touch(port, now);
    p.queue = bytes;
    p.queue_max = std::max(p.queue_max, bytes);
  }
  /// A transmission of `bytes` begins, `payload` of them of a message, which leaves `queue` bytes
  /// behind. The one before has ended.
  void sent(uint32_t port, int64_t now, int64_t duration, int64_t bytes, int64_t payload,
            int64_t queue) {
    Port& p = touch(port, now);
    p.bytes += p.send_bytes - p.send_counted;
    p.payload += p.send_payload - p.payload_counted;
    p.send_payload = payload;
    p.payload_counted = 0;
    p.send_begin = now;
    p.send_end = now + duration;
    p.send_bytes = bytes;
    p.send_counted = 0;
    p.queue = queue;
  }
  void paused(uint32_t port, int64_t now, bool on);

  /// Closes all windows at `now` and hands the series over, in the order of the ports, of which
  /// there are `ports`. A transmission in progress counts whole, as in LinkRecord. Call once.
  LinkSeries finish(int64_t now, size_t ports);

 private:
  struct Port {
    int64_t window = 0, end = 0;  // the open window: its index, and its end in ps
    int64_t bytes = 0, payload = 0, queue_max = 0, paused_ps = 0;
    int64_t queue = 0;
    int64_t queue_before = 0;  // at the end of the last window
    int64_t send_begin = 0, send_end = 0, send_bytes = 0, send_counted = 0;
    int64_t send_payload = 0, payload_counted = 0;  // in proportion to the bytes
    int64_t paused_since = -1;                      // counted up to here; -1: not paused
    std::vector<LinkSeries::Row> rows;
  };

  Port& touch(uint32_t port, int64_t now) {
    if (port >= ports_.size()) grow(port);
    Port& p = ports_[port];
    if (now >= p.end) advance(p, now);
    return p;
  }
  void grow(uint32_t port);
  void advance(Port& p, int64_t now);
  void count_until(Port& p, int64_t time);
  void close(Port& p);
  void coarsen();
  void double_window();

  int64_t asked_ps_, window_ps_;
  size_t most_rows_, rows_ = 0;
  int64_t latest_ = 0;
  bool finished_ = false;
  std::vector<Port> ports_;
};

}  // namespace trainyard
