// SPDX-License-Identifier: MIT
// What differs between two runs of a scenario, but for what they cost.
#pragma once

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "tools/report/result.h"

namespace trainyard::test {

inline std::vector<std::string> link_rows(const Result& r) {
  std::vector<std::string> rows;
  for (const LinkRecord& l : r.links) {
    if (l.packets == 0 && l.queue_pairs == 0) continue;
    std::string row = l.from + ">" + l.to;
    for (const int64_t x :
         {static_cast<int64_t>(l.packets), l.bytes, l.data_bytes, static_cast<int64_t>(l.ecn_marks),
          static_cast<int64_t>(l.pauses_received), l.paused.ps(), l.busy.ps(), l.peak_queue_bytes,
          static_cast<int64_t>(l.drops)}) {
      row += " " + std::to_string(x);
    }
    if (l.packets > 0) rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

inline std::vector<std::string> flow_rows(const std::vector<TransferRecord>& flows) {
  std::vector<std::string> rows;
  for (const TransferRecord& f : flows) {
    std::string row = std::to_string(f.src) + ">" + std::to_string(f.dst);
    for (const int64_t x : {f.bytes, f.start.ps(), f.delivered.ps(), f.acknowledged.ps(),
                            static_cast<int64_t>(f.packets), static_cast<int64_t>(f.retransmitted),
                            static_cast<int64_t>(f.transmissions), static_cast<int64_t>(f.hops),
                            static_cast<int64_t>(f.cnps)}) {
      row += " " + std::to_string(x);
    }
    rows.push_back(row);
  }
  return rows;
}

inline std::vector<std::string> collective_rows(const Result& r) {
  std::vector<std::string> rows;
  for (const CollectiveRecord& c : r.collectives) {
    std::string row = c.group + "/" + c.name + " " + c.algorithm;
    for (const int64_t x :
         {c.bytes, c.first_arrival.ps(), c.start.ps(), c.finish.ps(),
          static_cast<int64_t>(c.transfers), c.wire_payload, static_cast<int64_t>(c.transmissions),
          static_cast<int64_t>(c.cts_count), c.cts_p50.ps(), c.cts_p99.ps()}) {
      row += " " + std::to_string(x);
    }
    rows.push_back(row);
  }
  return rows;
}

inline std::string total_row(const FabricTotals& t) {
  std::string row;
  const std::pair<const char*, uint64_t> all[] = {
      {"transmissions", t.transmissions},
      {"data", t.data_packets},
      {"acks", t.ack_packets},
      {"cnps", t.cnp_packets},
      {"pfc frames", t.pfc_frames},
      {"marks", t.ecn_marks},
      {"pauses", t.pfc_pauses},
      {"resumes", t.pfc_resumes},
      {"drops", t.drops},
      {"retransmitted", t.retransmitted},
      {"timeouts", t.timeouts},
      {"nacks", t.nacks},
      {"payload", static_cast<uint64_t>(t.payload_bytes)},
      {"wire bytes", static_cast<uint64_t>(t.wire_bytes)},
      {"rate changes", t.rate_changes},
      {"out of order", t.out_of_order},
      {"refreshes", t.pfc_refreshes},
      {"watchdogs", t.watchdog_events},
      {"reroutes", t.reroutes},
      {"cyclic waits", t.cyclic_waits}};
  for (const auto& [name, value] : all) {
    if (value > 0) row += std::string(name) + " " + std::to_string(value) + "; ";
  }
  return row;
}

/// Empty: nothing.
inline std::string result_difference(const Result& a, const Result& b) {
  std::string out;
  const auto text = [&](const std::string& what, const std::string& x, const std::string& y) {
    if (x != y) out += what + ": " + x + "\n  against " + y + "\n";
  };
  const auto number = [&](const std::string& what, uint64_t x, uint64_t y) {
    text(what, std::to_string(x), std::to_string(y));
  };
  const auto rows = [&](const std::string& what, const std::vector<std::string>& x,
                        const std::vector<std::string>& y) {
    number(what + " rows", x.size(), y.size());
    size_t n = 0;
    size_t first = 0;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (x[i] != y[i] && n++ == 0) first = i;
    }
    if (n > 0) text(std::to_string(n) + " " + what + " rows, first", x[first], y[first]);
  };
  text("complete", a.complete ? "yes" : a.incomplete_reason,
       b.complete ? "yes" : b.incomplete_reason);
  number("end ps", static_cast<uint64_t>(a.end.ps()), static_cast<uint64_t>(b.end.ps()));
  number("step ps", static_cast<uint64_t>(a.step_time.ps()),
         static_cast<uint64_t>(b.step_time.ps()));
  number("fingerprint", a.fingerprint, b.fingerprint);
  text("totals", total_row(a.totals), total_row(b.totals));
  rows("link", link_rows(a), link_rows(b));
  rows("flow", flow_rows(a.flows), flow_rows(b.flows));
  rows("background", flow_rows(a.background), flow_rows(b.background));
  rows("collective", collective_rows(a), collective_rows(b));
  number("jobs", a.jobs.size(), b.jobs.size());
  for (size_t i = 0; i < std::min(a.jobs.size(), b.jobs.size()); ++i) {
    number("end of job " + a.jobs[i].name, static_cast<uint64_t>(a.jobs[i].end.ps()),
           static_cast<uint64_t>(b.jobs[i].end.ps()));
  }
  return out;
}

}  // namespace trainyard::test
