// SPDX-License-Identifier: MIT
// A Result with a bit of everything and values that can be checked by hand.
#pragma once

#include <string>

#include "tools/report/result.h"

namespace trainyard::testing {

inline Result synthetic_result() {
  Result r;
  r.scenario_name = "two <nodes> & \"one\" switch";
  r.scenario_file = "scenarios/synthetic.yaml";
  r.version = "0.1.0";
  r.build_type = "Release";
  r.engine = "packet";
  r.seed = 7;
  r.complete = true;
  r.fingerprint = 0x00ab'12cd'34ef'5678;
  r.ranks = 4;
  r.nodes = 4;
  r.switches = 1;
  r.links_count = 20;
  r.rank_classes = 1;
  r.end = Time::ps(1'234'567'891);
  r.step_time = Time::ps(1'000'000'001);
  r.wall_s = 2;
  r.setup_wall_s = 0.25;
  r.peak_rss_bytes = 64'000'000;
  r.compute_source = "roofline (uncalibrated)";
  r.trust = {{"engine", "every packet is simulated", false},
             {"compute times", "roofline, <not> calibrated", true}};
  r.settings = {{"cluster.nodes", "4"}, {"fabric.topology.nic.rate", "400Gbps"}};
  r.warnings = {"Kmin is above the PFC threshold"};

  for (uint32_t i = 0; i < 4; ++i) {
    r.endpoint_names.push_back("node" + std::to_string(i) + ".gpu0");
    RankTimes rank;
    rank.rank = i;
    rank.finish = Time::us(990);
    rank.compute = Time::us(600);
    rank.host = Time::us(50);
    rank.exposed_comm = Time::us(200);
    rank.hidden_comm = Time::us(100);
    rank.wait = Time::us(30);
    rank.idle = Time::ps(120'000'001);  // the parts sum to the step
    r.rank_times.push_back(rank);
    for (int k = 0; k < 20; ++k) {
      const Time at = Time::us(50 * k);
      r.spans.push_back({i, Span::Kind::compute, "matmul", "compute", at, at + Time::us(30)});
      r.spans.push_back(
          {i, Span::Kind::wait, "wait", "nccl", at + Time::us(30), at + Time::us(32)});
      r.spans.push_back(
          {i, Span::Kind::collective, "all<reduce>", "nccl", at + Time::us(32), at + Time::us(48)});
    }
  }
  for (uint32_t i = 0; i < 8; ++i) {
    CollectiveRecord c;
    c.index = i;
    c.name = i == 0 ? "grads, \"bucket\" 0" : "grads <" + std::to_string(i) + ">";
    c.kind = i % 2 == 0 ? CollectiveKind::all_reduce : CollectiveKind::all_gather;
    c.algorithm = "ring";
    c.group = "world";
    c.ranks = 4;
    c.bytes = 1 << 20;
    c.first_arrival = Time::us(10);
    c.start = Time::us(12);
    c.finish = Time::us(20 + i);
    c.wait_max = Time::us(2);
    c.kernel_mean = Time::us(9);
    c.transfers = 24;
    c.wire_payload = 6 << 20;
    c.transmissions = 3072;
    c.algbw_gbytes_per_s = 131.072;
    c.busbw_gbytes_per_s = 196.608;
    r.collectives.push_back(c);
    r.flow_owner.push_back("all-reduce #" + std::to_string(i));
  }
  for (uint32_t i = 0; i < 300; ++i) {
    TransferRecord f;
    f.src = i % 4;
    f.dst = (i + 1) % 4;
    f.owner = i % 8;
    f.bytes = 4096;
    f.start = Time::ns(i);
    f.delivered = f.start + Time::ps(1001) * (300 - i);  // 300.3 ns down to 1.001 ns
    f.acknowledged = f.delivered + Time::ns(5);
    f.packets = 1;
    f.transmissions = 4;
    f.hops = 2;
    r.flows.push_back(f);
  }
  for (uint32_t i = 0; i < 40; ++i) {
    LinkRecord link;
    const std::string node = "node" + std::to_string(i / 2) + ".nic0";
    link.from = i % 2 == 0 ? node : "leaf0";
    link.to = i % 2 == 0 ? "leaf0" : node;
    link.from_node = i % 2 == 0 ? i / 2 : 20;
    link.to_node = i % 2 == 0 ? 20 : i / 2;
    link.tier = "host-leaf";
    link.rate = Rate::gbps(400);
    link.packets = 30;
    link.bytes = 63'000;
    link.data_bytes = 61'440;  // 300 flows x 4096 B x 2 hops over 40 links
    link.busy = Time::us(10 * i);
    link.pauses_received = i % 3;
    link.paused = Time::ns(100 * (i % 3));
    link.peak_queue_bytes = 1000 * i;
    r.links.push_back(link);
    r.totals.wire_bytes += link.bytes;
  }
  r.totals.events = 5000;
  r.totals.transmissions = 1200;
  r.totals.data_packets = 300;
  r.totals.ack_packets = 300;
  r.totals.pfc_pauses = 39;
  r.totals.payload_bytes = 300 * 4096;
  return r;
}

/// A run of flows only: no op, no collective.
inline Result traffic_only_result() {
  Result r = synthetic_result();
  r.step_time = Time();
  r.compute_source = "none";
  r.rank_times.clear();
  r.collectives.clear();
  r.spans.clear();
  return r;
}

}  // namespace trainyard::testing
