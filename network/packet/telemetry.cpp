// SPDX-License-Identifier: MIT
#include "network/packet/telemetry.h"

#include <utility>

#include "sim/errors.h"

namespace trainyard {

LinkTelemetry::LinkTelemetry(Time window, size_t most_rows)
    : asked_ps_(window.ps()), window_ps_(window.ps()), most_rows_(most_rows) {
  TRAINYARD_ASSERT(window_ps_ > 0 && most_rows_ > 0);
}

void LinkTelemetry::grow(uint32_t port) {
  Port fresh;
  fresh.end = window_ps_;
  ports_.resize(port + 1, fresh);
}

void LinkTelemetry::paused(uint32_t port, int64_t now, bool on) {
  Port& p = touch(port, now);
  if (p.paused_since >= 0) p.paused_ps += now - p.paused_since;
  p.paused_since = on ? now : -1;
}

/// What happened up to `time`, which is not beyond the end of the open window.
void LinkTelemetry::count_until(Port& p, int64_t time) {
  if (p.send_counted < p.send_bytes) {
    // The line carries bytes at a constant rate; whole bytes are counted as they are complete.
    const auto done = [&](int64_t all) {
      if (time >= p.send_end) return all;
      return static_cast<int64_t>(static_cast<__int128>(all) * (time - p.send_begin) /
                                  (p.send_end - p.send_begin));
    };
    const int64_t bytes = done(p.send_bytes);
    p.bytes += bytes - p.send_counted;
    p.send_counted = bytes;
    const int64_t payload = done(p.send_payload);
    p.payload += payload - p.payload_counted;
    p.payload_counted = payload;
  }
  if (p.paused_since >= 0) {
    p.paused_ps += time - p.paused_since;
    p.paused_since = time;
  }
}

/// Ends the open window. One without change leaves no row.
void LinkTelemetry::close(Port& p) {
  if (p.bytes != 0 || p.paused_ps != 0 || p.queue != p.queue_before || p.queue_max != p.queue) {
    p.rows.push_back({p.window, p.bytes, p.queue, p.queue_max, p.paused_ps, p.payload});
    ++rows_;
  }
  ++p.window;
  p.end += window_ps_;
  p.bytes = p.payload = p.paused_ps = 0;
  p.queue_before = p.queue_max = p.queue;
}

void LinkTelemetry::advance(Port& p, int64_t now) {
  latest_ = std::max(latest_, now);
  while (now >= p.end) {
    count_until(p, p.end);
    close(p);
    if (rows_ > most_rows_) coarsen();
    if (p.send_counted == p.send_bytes && p.paused_since < 0 && now >= p.end) {
      // Nothing can happen before `now`.
      p.window = now / window_ps_;
      p.end = (p.window + 1) * window_ps_;
    }
  }
}

void LinkTelemetry::coarsen() {
  while (rows_ > most_rows_ && window_ps_ <= latest_) double_window();
  // One row per link is the least.
  if (rows_ > most_rows_) most_rows_ = 2 * rows_;
}

void LinkTelemetry::double_window() {
  window_ps_ *= 2;
  rows_ = 0;
  for (Port& p : ports_) {
    size_t kept = 0;
    for (const LinkSeries::Row& row : p.rows) {
      const int64_t window = row.window / 2;
      if (kept > 0 && p.rows[kept - 1].window == window) {
        LinkSeries::Row& first = p.rows[kept - 1];
        first.bytes += row.bytes;
        first.payload_bytes += row.payload_bytes;
        first.queue_bytes = row.queue_bytes;
        first.queue_max_bytes = std::max(first.queue_max_bytes, row.queue_max_bytes);
        first.paused_ps += row.paused_ps;
      } else {
        p.rows[kept] = row;
        p.rows[kept++].window = window;
      }
    }
    p.rows.resize(kept);
    if (finished_) {
      rows_ += kept;
      continue;
    }
    p.window /= 2;
    p.end = (p.window + 1) * window_ps_;
    if (!p.rows.empty() && p.rows.back().window == p.window) {
      // The open window begins earlier now.
      const LinkSeries::Row row = p.rows.back();
      p.rows.pop_back();
      p.bytes += row.bytes;
      p.payload += row.payload_bytes;
      p.paused_ps += row.paused_ps;
      p.queue_max = std::max(p.queue_max, row.queue_max_bytes);
      p.queue_before = p.rows.empty() ? 0 : p.rows.back().queue_bytes;
    }
    rows_ += p.rows.size();
  }
}

LinkSeries LinkTelemetry::finish(int64_t now, size_t ports) {
  if (ports > ports_.size()) grow(static_cast<uint32_t>(ports - 1));
  for (Port& p : ports_) {
    if (now >= p.end) advance(p, now);
    count_until(p, now);
    p.paused_since = -1;
    if (p.send_end >= p.end) advance(p, p.send_end);
    count_until(p, std::max(now, p.send_end));
  }
  for (Port& p : ports_) close(p);
  finished_ = true;
  if (rows_ > most_rows_) coarsen();
  LinkSeries out;
  out.asked = Time::ps(asked_ps_);
  out.window = Time::ps(window_ps_);
  out.links.reserve(ports_.size());
  for (Port& p : ports_) out.links.push_back(std::move(p.rows));
  ports_.clear();
  return out;
}

}  // namespace trainyard
