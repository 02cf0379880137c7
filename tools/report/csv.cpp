// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>

#include "tools/report/analysis.h"
#include "tools/report/atomic_file.h"
#include "tools/report/csv_writer.h"
#include "tools/report/report.h"
#include "tools/report/text.h"

namespace trainyard {
namespace {

/// Of more flows the slowest.
constexpr size_t kMostFlowRows = 1'000'000;

std::string transfers_csv(const Result& result, const std::vector<TransferRecord>& flows) {
  Csv csv(
      "flow_id,owner,src,dst,size_bytes,start_ns,delivered_ns,acknowledged_ns,fct_ns,hops,packets,"
      "retransmitted,link_transmissions,cnps,src_node,dst_node");
  for (const size_t i : report::slowest(result, flows, kMostFlowRows)) {
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
      "algbw_gbytes_per_s,busbw_gbytes_per_s,cts_count,cts_p50_ns,cts_p90_ns,cts_p99_ns,"
      "kernel_mean_ns");
  for (const CollectiveRecord& c : result.collectives) {
    csv.number(c.index).text(c.name).text(collective_name(c.kind)).text(c.algorithm).text(c.group);
    csv.number(c.ranks).number(c.bytes).time(c.first_arrival).time(c.start).time(c.finish);
    csv.time(c.finish - c.start).time(c.wait_max).number(c.transfers).number(c.wire_payload);
    csv.number(c.transmissions).real(c.algbw_gbytes_per_s).real(c.busbw_gbytes_per_s);
    const bool admitted = c.cts_count > 0;
    csv.number(c.cts_count).time_if(admitted, c.cts_p50).time_if(admitted, c.cts_p90);
    csv.time_if(admitted, c.cts_p99).time(c.kernel_mean).end_row();
  }
  return csv.take();
}

std::string durations_csv(const Result& result) {
  Csv csv("kernel,stream,rank,count,p50_ns,p99_ns,total_ns");
  for (const DurationRow& d : result.durations) {
    csv.text(d.kernel).text(d.stream);
    csv.number_if(d.rank >= 0, d.rank).number(d.count).time(d.p50).time(d.p99).time(d.total);
    csv.end_row();
  }
  return csv.take();
}

std::string call_sizes_csv(const Result& result) {
  Csv csv("dimension,kind,from_bytes,to_bytes,calls,size_bytes");
  for (const CallSizeRow& c : result.call_sizes) {
    csv.text(dimension_name(c.dimension)).text(c.kind).number(c.from_bytes);
    csv.number(c.from_bytes == 0 ? 0 : 2 * c.from_bytes - 1).number(c.calls).number(c.bytes);
    csv.end_row();
  }
  return csv.take();
}

std::string links_csv(const Result& result) {
  Csv csv(
      "link_id,from,to,from_node,to_node,tier,rate_bps,utilisation_ratio,busy_ns,packets,"
      "wire_bytes,payload_bytes,ecn_marks,pauses_received,paused_ns,peak_queue_bytes,drops,"
      "queue_pairs");
  for (size_t i = 0; i < result.links.size(); ++i) {
    const LinkRecord& link = result.links[i];
    csv.number(i).text(link.from).text(link.to).number(link.from_node).number(link.to_node);
    csv.text(link.tier).number(link.rate.bps()).real(report::utilisation(link, result));
    csv.time(link.busy).number(link.packets).number(link.bytes).number(link.data_bytes);
    const bool known = result.packets_modelled;
    csv.number_if(known, link.ecn_marks).number_if(known, link.pauses_received);
    csv.time_if(known, link.paused).number_if(known, link.peak_queue_bytes);
    csv.number_if(known, link.drops).real(link.queue_pairs).end_row();
  }
  return csv.take();
}

std::string ranks_csv(const Result& result) {
  Csv csv(
      "rank,node,finish_ns,compute_ns,host_ns,exposed_comm_ns,wait_ns,idle_ns,sum_ns,"
      "hidden_comm_ns,total_comm_ns,storage_ns");
  for (const RankTimes& rank : result.rank_times) {
    csv.number(rank.rank).text(report::endpoint_name(result, rank.rank)).time(rank.finish);
    csv.time(rank.compute).time(rank.host).time(rank.exposed_comm).time(rank.wait);
    csv.time(rank.idle).time(report::sum_of_parts(rank)).time(rank.hidden_comm);
    csv.time(rank.exposed_comm + rank.hidden_comm).time(rank.storage).end_row();
  }
  return csv.take();
}

void write_link_series_csv(const Result& result, const std::string& path) {
  AtomicFile file(path);
  Csv csv(
      "link_from,link_to,t_ns,bytes,queue_bytes,queue_max_bytes,paused_ns,link_id,payload_bytes");
  const LinkSeries& series = result.link_series;
  for (size_t i = 0; i < series.links.size() && i < result.links.size(); ++i) {
    for (const LinkSeries::Row& row : series.links[i]) {
      csv.text(result.links[i].from).text(result.links[i].to).time(series.window * row.window);
      csv.number(row.bytes).number(row.queue_bytes).number(row.queue_max_bytes);
      csv.time(Time::ps(row.paused_ps)).number(i);  // parallel links share names
      csv.number(row.payload_bytes).end_row();
      if (csv.size() > (1U << 20)) file.write(csv.take());
    }
  }
  file.write(csv.take());
  file.commit();
}

void write_load_series_csv(const Result& result, const std::string& path) {
  AtomicFile file(path);
  Csv csv(
      "tier,direction,t_ns,link_count,used_link_count,payload_bytes,mean_bytes,max_bytes,"
      "max_to_mean_ratio,skew_ratio,busiest_link_id,parallel_mean_ratio,parallel_worst_ratio,"
      "parallel_worst_node");
  const TierLoadSeries& series = result.tier_series;
  for (const TierLoadSeries::Tier& tier : series.tiers) {
    for (const TierLoadSeries::Row& row : tier.rows) {
      csv.text(tier.tier).text(tier.direction).time(series.window * row.window);
      csv.number(tier.links).number(row.used).number(row.bytes);
      csv.real(static_cast<double>(row.bytes) / tier.links).number(row.max_bytes);
      csv.real(row.max_to_mean).real(row.skew).number(row.busiest);
      if (row.group == TierLoadSeries::kNone) {
        csv.text("").text("").text("").end_row();
      } else {
        csv.real(row.group_mean).real(row.group_max).number(row.group).end_row();
      }
      if (csv.size() > (1U << 20)) file.write(csv.take());
    }
  }
  file.write(csv.take());
  file.commit();
}

std::string nics_csv(const Result& result) {
  if (result.seen.nics.empty()) return {};
  Csv csv(
      "node,link_id,to,tier,out_of_sequence,ack_timeouts,nacks_sent,nacks_received,cnps_sent,"
      "cnps_received,pauses_sent,pauses_received,link_downs,receive_buffer_peak_bytes");
  for (const NicRecord& n : result.seen.nics) {
    const LinkRecord& link = result.links.at(n.link);
    csv.text(link.from).number(n.link).text(link.to).text(link.tier).number(n.out_of_sequence);
    csv.number(n.ack_timeouts).number(n.nacks_sent).number(n.nacks_received).number(n.cnps_sent);
    csv.number(n.cnps_received).number(n.pauses_sent).number(n.pauses_received);
    csv.number(n.link_downs).number(n.receive_buffer_peak_bytes).end_row();
  }
  return csv.take();
}

std::string switches_csv(const Result& result) {
  if (result.seen.switches.empty()) return {};
  Csv csv("switch,node,pool_bytes,pool_peak_bytes,pool_peak_ratio");
  for (const SwitchRecord& s : result.seen.switches) {
    csv.text(s.name).number(s.node).number(s.pool_bytes).number(s.pool_peak_bytes);
    csv.real(report::pool_ratio(s)).end_row();
  }
  return csv.take();
}

std::string headroom_csv(const Result& result) {
  if (result.seen.headrooms.empty()) return {};
  Csv csv("switch,from,link_id,class,headroom_bytes,peak_bytes,peak_ratio");
  for (const HeadroomRecord& h : result.seen.headrooms) {
    const LinkRecord& link = result.links.at(h.link);
    csv.text(link.to).text(link.from).number(h.link).number(h.traffic_class);
    csv.number(h.headroom_bytes).number(h.peak_bytes);
    csv.real(static_cast<double>(h.peak_bytes) / static_cast<double>(h.headroom_bytes)).end_row();
  }
  return csv.take();
}

void write_qps_csv(const Result& result, const std::string& path) {
  AtomicFile file(path);
  Csv csv("qp,src,dst,channel,source_port,class,t_ns,payload_bytes,packets,rate_bps");
  const QpSeries& series = result.seen.qp_series;
  for (size_t i = 0; i < series.qps.size(); ++i) {
    const QpRecord& q = result.seen.qps.at(i);
    for (const QpSeries::Row& row : series.qps[i]) {
      csv.number(i).number(q.src).number(q.dst).number(q.channel).number(q.source_port);
      csv.number(static_cast<uint32_t>(q.traffic_class)).time(series.window * row.window);
      csv.number(row.payload_bytes).number(row.packets).number(row.rate_bps).end_row();
      if (csv.size() > (1U << 20)) file.write(csv.take());
    }
  }
  file.write(csv.take());
  file.commit();
}

void write_packets_csv(const Result& result, const std::string& path) {
  AtomicFile file(path);
  Csv csv(
      "packet,qp,src,dst,seq,payload_bytes,sent_ns,fate,delivered_ns,receiver_wait_ns,hop,"
      "link_from,link_to,link_id,queueing_ns,line_ns");
  static constexpr const char* kFates[] = {"under way", "delivered", "lost"};
  const auto& packets = result.seen.samples.packets;
  for (size_t i = 0; i < packets.size(); ++i) {
    const PacketSample& s = packets[i];
    const QpRecord& q = result.seen.qps.at(s.qp);
    const bool delivered = s.fate == PacketSample::Fate::delivered;
    for (size_t h = 0; h < s.hops.size(); ++h) {
      const PacketSample::Hop& hop = s.hops[h];
      const LinkRecord& link = result.links.at(hop.link);
      csv.number(i).number(s.qp).number(q.src).number(q.dst).number(s.seq);
      csv.number(s.payload_bytes).time(Time::ps(s.sent_ps));
      csv.text(kFates[static_cast<size_t>(s.fate)]);
      csv.time_if(delivered, Time::ps(s.delivered_ps));
      csv.time_if(delivered, Time::ps(s.receiver_wait_ps));
      csv.number(h).text(link.from).text(link.to).number(hop.link);
      csv.time(Time::ps(hop.queueing_ps)).time(Time::ps(hop.line_ps)).end_row();
    }
    if (csv.size() > (1U << 20)) file.write(csv.take());
  }
  file.write(csv.take());
  file.commit();
}

void write_switch_flows_csv(const Result& result, const std::string& path) {
  AtomicFile file(path);
  Csv csv(
      "switch,in_link_id,out_link_id,from,to,qp,src,dst,channel,source_port,direction,packets,"
      "wire_bytes,first_ns,last_ns");
  for (const SwitchFlowRecord& f : result.seen.flows.rows) {
    const LinkRecord& in = result.links.at(f.in_link);
    const LinkRecord& out = result.links.at(f.out_link);
    const QpRecord& q = result.seen.qps.at(f.qp);
    csv.text(out.from).number(f.in_link).number(f.out_link).text(in.from).text(out.to);
    csv.number(f.qp).number(q.src).number(q.dst).number(q.channel).number(q.source_port);
    csv.text(f.control ? "back" : "data").number(f.packets).number(f.bytes);
    csv.time(Time::ps(f.first_ps)).time(Time::ps(f.last_ps)).end_row();
    if (csv.size() > (1U << 20)) file.write(csv.take());
  }
  file.write(csv.take());
  file.commit();
}

void write_power_csv(const Result& result, const std::string& path) {
  AtomicFile file(path);
  Csv csv(
      "begin_ns,end_ns,watts,compute_ranks,exposed_comm_ranks,host_ranks,wait_ranks,idle_ranks,"
      "storage_ranks");
  const PowerSeries& power = result.power;
  for (size_t i = 0; i < power.rows.size(); ++i) {
    const PowerSeries::Row& row = power.rows[i];
    const Time begin = power.window * static_cast<int64_t>(i);
    const Time end = std::min(power.end, begin + power.window);
    csv.time(begin).time(end).real(row.watts);
    for (const int64_t ps : row.phase_ps) {
      csv.real(static_cast<double>(ps) / static_cast<double>((end - begin).ps()));
    }
    csv.end_row();
    if (csv.size() > (1U << 20)) file.write(csv.take());
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
