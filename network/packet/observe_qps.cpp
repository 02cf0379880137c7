// SPDX-License-Identifier: MIT
#include "network/packet/observe_qps.h"

#include <algorithm>
#include <utility>

#include "sim/errors.h"

namespace trainyard {

QpTelemetry::QpTelemetry(Time window, size_t most_rows)
    : asked_ps_(window.ps()), window_ps_(window.ps()), most_rows_(most_rows) {
  TRAINYARD_ASSERT(window_ps_ > 0 && most_rows_ > 0);
}

void QpTelemetry::grow(uint32_t qp) {
  Qp fresh;
  fresh.end = window_ps_;
  qps_.resize(qp + 1, fresh);
}

/// Ends the open window. One without change leaves no row.
void QpTelemetry::close(Qp& q) {
  if (q.open.packets != 0 || q.open.rate_bps != q.rate_before) {
    q.rows.push_back(q.open);
    ++rows_;
  }
  q.rate_before = q.open.rate_bps;
  q.open = {q.open.window + 1, 0, 0, q.rate_before};
  q.end += window_ps_;
}

void QpTelemetry::advance(Qp& q, int64_t now) {
  latest_ = std::max(latest_, now);
  while (now >= q.end) {
    close(q);
    if (rows_ > most_rows_) coarsen();  // may open the window anew
    if (q.open.packets == 0 && q.open.rate_bps == q.rate_before && now >= q.end) {
      // Nothing can happen before `now`.
      q.open.window = now / window_ps_;
      q.end = (q.open.window + 1) * window_ps_;
    }
  }
}

void QpTelemetry::coarsen() {
  while (rows_ > most_rows_ && window_ps_ <= latest_) double_window();
  // One row per queue pair is the least.
  if (rows_ > most_rows_) most_rows_ = 2 * rows_;
}

/// The last row belongs to the open window.
void QpTelemetry::reopen(Qp& q) {
  const QpSeries::Row row = q.rows.back();
  q.rows.pop_back();
  --rows_;
  q.open.payload_bytes += row.payload_bytes;
  q.open.packets += row.packets;
  q.rate_before = q.rows.empty() ? 0 : q.rows.back().rate_bps;
}

void QpTelemetry::double_window() {
  window_ps_ *= 2;
  rows_ = 0;
  for (Qp& q : qps_) {
    size_t kept = 0;
    for (const QpSeries::Row& row : q.rows) {
      const int64_t window = row.window / 2;
      if (kept > 0 && q.rows[kept - 1].window == window) {
        QpSeries::Row& first = q.rows[kept - 1];
        first.payload_bytes += row.payload_bytes;
        first.packets += row.packets;
        first.rate_bps = row.rate_bps;
      } else {
        q.rows[kept] = row;
        q.rows[kept++].window = window;
      }
    }
    q.rows.resize(kept);
    rows_ += kept;
    if (finished_) continue;
    q.open.window /= 2;
    q.end = (q.open.window + 1) * window_ps_;
    if (!q.rows.empty() && q.rows.back().window == q.open.window) reopen(q);
  }
}

QpSeries QpTelemetry::finish(size_t qps) {
  if (qps > qps_.size()) grow(static_cast<uint32_t>(qps - 1));
  for (Qp& q : qps_) close(q);
  finished_ = true;
  if (rows_ > most_rows_) coarsen();
  QpSeries out;
  out.asked = Time::ps(asked_ps_);
  out.window = Time::ps(window_ps_);
  out.qps.reserve(qps_.size());
  for (Qp& q : qps_) out.qps.push_back(std::move(q.rows));
  qps_.clear();
  return out;
}

}  // namespace trainyard
