// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "tools/report/analysis.h"
#include "tools/report/atomic_file.h"
#include "tools/report/report.h"
#include "tools/report/text.h"

namespace trainyard {
namespace {

/// One table under construction; fields are quoted as RFC 4180 asks.
class Csv {
 public:
  explicit Csv(std::string_view header) : out_(header) { out_ += '\n'; }

  Csv& text(std::string_view value) {
    separate();
    const std::string clean = report::valid_utf8(value);
    if (clean.find_first_of(",\"\r\n") == std::string::npos) {
      out_ += clean;
      return *this;
    }
    out_ += '"';
    for (const char c : clean) out_.append(c == '"' ? 2 : 1, c);
    out_ += '"';
    return *this;
  }
  template <typename Integer>
  Csv& number(Integer value) {
    separate();
    fmt::format_to(std::back_inserter(out_), "{}", value);
    return *this;
  }
  /// A count that only a simulation of packets knows; empty otherwise.
  template <typename Integer>
  Csv& number_if(bool known, Integer value) {
    if (known) return number(value);
    separate();
    return *this;
  }
  /// Shortest decimal that reads back as the same double; empty when undefined.
  Csv& real(double value) {
    separate();
    if (std::isfinite(value)) fmt::format_to(std::back_inserter(out_), "{}", value);
    return *this;
  }
  Csv& time(Time t) {
    separate();
    out_ += report::exact_ns(t, true);
    return *this;
  }
  /// An instant that an interrupted run may not have reached.
  Csv& time_if(bool reached, Time t) {
    if (reached) return time(t);
    separate();
    return *this;
  }
  void end_row() {
    out_ += '\n';
    row_started_ = false;
  }
  [[nodiscard]] size_t size() const { return out_.size(); }
  /// What was written since the last call.
  std::string take() { return std::exchange(out_, std::string()); }

 private:
  void separate() {
    if (row_started_) out_ += ',';
    row_started_ = true;
  }
  std::string out_;
  bool row_started_ = false;
};

std::string transfers_csv(const Result& result, const std::vector<TransferRecord>& flows) {
  Csv csv(
      "flow_id,owner,src,dst,size_bytes,start_ns,delivered_ns,acknowledged_ns,fct_ns,hops,packets,"
      "retransmitted,link_transmissions,cnps,src_node,dst_node");
  for (size_t i = 0; i < flows.size(); ++i) {
    const TransferRecord& flow = flows[i];
    const bool delivered = report::was_delivered(flow);
    csv.number(i).text(report::owner_name(result, flow.owner)).number(flow.src).number(flow.dst);
    csv.number(flow.bytes).time(flow.start).time_if(delivered, flow.delivered);
    csv.time_if(report::was_acknowledged(flow), flow.acknowledged);
    const auto fct = report::completion_time(result, flow);
    csv.time_if(fct.has_value(), fct.value_or(Time())).number(flow.hops).number(flow.packets);
    csv.number_if(result.packets_modelled, flow.retransmitted).number(flow.transmissions);
    csv.number_if(result.packets_modelled, flow.cnps);
    csv.text(report::endpoint_name(result, flow.src));
    csv.text(report::endpoint_name(result, flow.dst)).end_row();
  }
  return csv.take();
}

}  // namespace

std::string flows_csv(const Result& result) {
  return transfers_csv(result, result.flows);
}

std::string background_csv(const Result& result) {
  return transfers_csv(result, result.background);
}

std::string collectives_csv(const Result& result) {
  Csv csv(
      "collective_id,name,kind,algorithm,group,ranks,size_bytes,first_arrival_ns,start_ns,"
      "finish_ns,time_ns,wait_max_ns,transfers,wire_payload_bytes,link_transmissions,"
      "algbw_gbytes_per_s,busbw_gbytes_per_s,cts_count,cts_p50_ns,cts_p90_ns,cts_p99_ns");
  for (const CollectiveRecord& c : result.collectives) {
    csv.number(c.index).text(c.name).text(collective_name(c.kind)).text(c.algorithm).text(c.group);
    csv.number(c.ranks).number(c.bytes).time(c.first_arrival).time(c.start).time(c.finish);
    csv.time(c.finish - c.start).time(c.wait_max).number(c.transfers).number(c.wire_payload);
    csv.number(c.transmissions).real(c.algbw_gbytes_per_s).real(c.busbw_gbytes_per_s);
    const bool admitted = c.cts_count > 0;
    csv.number(c.cts_count).time_if(admitted, c.cts_p50).time_if(admitted, c.cts_p90);
    csv.time_if(admitted, c.cts_p99).end_row();
  }
  return csv.take();
}

std::string links_csv(const Result& result) {
  Csv csv(
      "link_id,from,to,from_node,to_node,tier,rate_bps,utilisation_ratio,busy_ns,packets,"
      "wire_bytes,payload_bytes,ecn_marks,pauses_received,paused_ns,peak_queue_bytes,drops");
  for (size_t i = 0; i < result.links.size(); ++i) {
    const LinkRecord& link = result.links[i];
    csv.number(i).text(link.from).text(link.to).number(link.from_node).number(link.to_node);
    csv.text(link.tier).number(link.rate.bps()).real(report::utilisation(link, result));
    csv.time(link.busy).number(link.packets).number(link.bytes).number(link.data_bytes);
    const bool known = result.packets_modelled;
    csv.number_if(known, link.ecn_marks).number_if(known, link.pauses_received);
    csv.time_if(known, link.paused).number_if(known, link.peak_queue_bytes);
    csv.number_if(known, link.drops).end_row();
  }
  return csv.take();
}

std::string ranks_csv(const Result& result) {
  Csv csv(
      "rank,node,finish_ns,compute_ns,host_ns,exposed_comm_ns,wait_ns,idle_ns,sum_ns,"
      "hidden_comm_ns,total_comm_ns");
  for (const RankTimes& rank : result.rank_times) {
    csv.number(rank.rank).text(report::endpoint_name(result, rank.rank)).time(rank.finish);
    csv.time(rank.compute).time(rank.host).time(rank.exposed_comm).time(rank.wait);
    csv.time(rank.idle).time(report::sum_of_parts(rank)).time(rank.hidden_comm);
    csv.time(rank.exposed_comm + rank.hidden_comm).end_row();
  }
  return csv.take();
}

void write_link_series_csv(const Result& result, const std::string& path) {
  AtomicFile file(path);
  Csv csv("link_from,link_to,t_ns,bytes,queue_bytes,queue_max_bytes,paused_ns,link_id");
  const LinkSeries& series = result.link_series;
  for (size_t i = 0; i < series.links.size() && i < result.links.size(); ++i) {
    for (const LinkSeries::Row& row : series.links[i]) {
      csv.text(result.links[i].from).text(result.links[i].to).time(series.window * row.window);
      csv.number(row.bytes).number(row.queue_bytes).number(row.queue_max_bytes);
      csv.time(Time::ps(row.paused_ps)).number(i).end_row();  // parallel links share names
      if (csv.size() > (1U << 20)) file.write(csv.take());
    }
  }
  file.write(csv.take());
  file.commit();
}

void write_pauses_csv(const Result& result, const std::string& path) {
  AtomicFile file(path);
  Csv csv("from_ns,to_ns,stopped_link,because_link,class");
  for (const PauseRow& p : result.pauses) {
    const bool ended = p.to != Time::infinity();
    csv.time(p.from).time_if(ended, ended ? p.to : Time());
    csv.text(result.port_names.at(p.stopped));
    csv.text(p.because == PauseRow::kNone ? "" : result.port_names.at(p.because));
    csv.number(static_cast<uint32_t>(p.traffic_class)).end_row();
    if (csv.size() > (1U << 20)) file.write(csv.take());
  }
  file.write(csv.take());
  file.commit();
}

}  // namespace trainyard
