// SPDX-License-Identifier: MIT
#include "network/packet/config.h"

#include <cmath>

#include "sim/registry.h"

namespace trainyard {
namespace {
using PT = ParamType;
}

const std::vector<ParamSpec>& transport_params() {
  static const std::vector<ParamSpec> specs = {
      {"payload",
       PT::bytes,
       "4096B",
       "64B",
       "9216B",
       {},
       "payload of a full data packet",
       "RoCE path MTU of 4096"},
      {"header",
       PT::bytes,
       "82B",
       "0B",
       "256B",
       {},
       "bytes that a data packet occupies on the wire beside its payload",
       "Ethernet 38 with preamble and gap + IP 20 + UDP 8 + BTH 12 + ICRC 4"},
      {"ack_size",
       PT::bytes,
       "86B",
       "1B",
       "256B",
       {},
       "bytes of an ACK or NACK on the wire",
       "header + AETH 4"},
      {"ack_interval",
       PT::integer,
       "1",
       "1",
       "65535",
       {},
       "data packets per ACK; the last packet of a message always gets one",
       "facts peers-measured: L2_ACK_INTERVAL 1"},
      {"ack_class",
       PT::choice,
       "data",
       "",
       "",
       {"data", "control"},
       "class of ACKs in switches: with the data (queued, marked and paused with it) or strict "
       "priority",
       "peers-measured, bug 11"},
      {"ack_pausable",
       PT::boolean,
       "true",
       "",
       "",
       {},
       "PFC on the data class also stops the ACKs of a NIC",
       "protocols 5.5"},
      {"window",
       PT::bytes,
       "none",
       "1B",
       "",
       {"none", "bdp", "bdp-longest"},
       "bytes in flight per queue pair: none, the pair's bandwidth-delay product, that of the "
       "longest pair of the fabric, or a size",
       "peers-measured: window"},
      {"window_scaling",
       PT::boolean,
       "true",
       "",
       "",
       {},
       "the window shrinks with the controller's rate",
       "peers-measured: VAR_WIN"},
      {"loss_recovery",
       PT::choice,
       "go-back-n",
       "",
       "",
       {"go-back-n"},
       "what the sender repeats after a loss",
       "B: L7+L8"},
      {"nack_interval",
       PT::time,
       "500us",
       "0ns",
       "1s",
       {},
       "shortest time between two NACKs for one expected packet",
       "protocols 5.6"},
      {"retransmit_timeout",
       PT::time,
       "67.108864ms",
       "1us",
       "100s",
       {},
       "without progress for this long the sender goes back to the last acknowledged byte",
       "InfiniBand local ACK timeout, 4.096 us x 2^14"},
      {"retry_limit",
       PT::integer,
       "7",
       "0",
       "1000000",
       {},
       "timeouts in a row after which the transfer, and the run, fail",
       "verbs retry_cnt"},
      {"queue_pairs",
       PT::choice,
       "persistent",
       "",
       "",
       {"persistent", "per-message"},
       "messages of one channel share a queue pair and its rate, or each has a fresh one at line "
       "rate",
       "DESIGN section 5"},
      {"completion",
       PT::choice,
       "receiver",
       "",
       "",
       {"receiver", "last-ack"},
       "a message is complete when its last byte is there, or when the sender has the last ACK",
       "DESIGN section 5"},
      {"time_resolution",
       PT::time,
       "1ps",
       "1ps",
       "1us",
       {},
       "transmission times are rounded down to a multiple of this",
       "peers-measured: ns-3 truncates to 1 ns"},
  };
  return specs;
}

const std::vector<ParamSpec>& dcqcn_params() {
  static const std::vector<ParamSpec> specs = {
      {"order",
       PT::choice,
       "vendor",
       "",
       "",
       {"vendor", "paper"},
       "vendor: alpha ages on a timer and cuts wait for a cut timer; paper: cut at once with the "
       "old alpha",
       "protocols 5.3"},
      {"g", PT::real, "1/256", "0.000001", "1", {}, "gain of alpha", "protocols 5.2"},
      {"alpha_timer",
       PT::time,
       "auto",
       "1ns",
       "1s",
       {"auto"},
       "period of alpha's decay; auto: vendor 1us, paper 55us",
       "protocols 5.2"},
      {"cut_interval",
       PT::time,
       "auto",
       "1ns",
       "1s",
       {"auto"},
       "vendor: least time between two cuts; auto: 4us",
       "protocols 5.2"},
      {"increase_timer",
       PT::time,
       "auto",
       "1ns",
       "10s",
       {"auto"},
       "period of rate increases; auto: vendor 300us, paper 55us",
       "protocols 5.2"},
      {"byte_counter",
       PT::bytes,
       "auto",
       "1B",
       "",
       {"auto", "none"},
       "a rate increase per so many sent bytes; auto: vendor none, paper 10MB",
       "protocols 5.2"},
      {"fast_recovery_steps",
       PT::integer,
       "auto",
       "1",
       "100",
       {"auto"},
       "increase events that only return to the target; auto: vendor 1, paper 5",
       "protocols 5.2"},
      {"additive_increase",
       PT::rate,
       "auto",
       "0bps",
       "",
       {"auto"},
       "additive step of the target; auto: vendor 5 Mb/s per 25 Gb/s of line rate, paper 40 Mb/s",
       "protocols 5.2"},
      {"hyper_increase",
       PT::rate,
       "auto",
       "0bps",
       "",
       {"auto"},
       "hyper step of the target; auto: vendor 50 Mb/s per 25 Gb/s of line rate, paper 200 Mb/s",
       "protocols 5.2"},
      {"hyper_step",
       PT::choice,
       "auto",
       "",
       "",
       {"auto", "constant", "scaled"},
       "every hyper step alike, or the i-th i times as large; auto: vendor constant, paper scaled",
       "protocols 5.3"},
      {"clamp_target",
       PT::choice,
       "auto",
       "",
       "",
       {"auto", "true", "false"},
       "every cut sets the target to the current rate; auto: vendor false (only after an "
       "increase), paper true",
       "protocols 5.3"},
      {"min_rate", PT::rate, "100Mbps", "1Kbps", "", {}, "floor of the rate", "protocols 5.2"},
      {"cnp",
       PT::choice,
       "auto",
       "",
       "",
       {"auto", "ack-flag", "packet"},
       "the notification is a flag on the ACK, or a packet of its own in the control class; auto: "
       "vendor ack-flag, paper packet",
       "protocols 5.3"},
      {"cnp_interval",
       PT::time,
       "auto",
       "0ns",
       "1s",
       {"auto"},
       "least time between two CNP packets of a flow; auto: 50us",
       "protocols 5.2"},
      {"cnp_size",
       PT::bytes,
       "86B",
       "1B",
       "256B",
       {},
       "bytes of a CNP packet on the wire",
       "header + 16 reserved bytes, rounded to the ACK's size"},
  };
  return specs;
}

const std::vector<ParamSpec>& ecmp_params() {
  static const std::vector<ParamSpec> specs = {
      {"hash",
       PT::choice,
       "mix64",
       "",
       "",
       {"mix64", "murmur3-tuple"},
       "hash of addresses and ports that picks among equal next hops",
       "protocols 5.7"},
      {"next_hops",
       PT::choice,
       "cabling",
       "",
       "",
       {"cabling", "descending-peer"},
       "order of the equal next hops that the hash indexes",
       "facts reference README"},
      {"per_switch_seed",
       PT::boolean,
       "true",
       "",
       "",
       {},
       "each switch hashes differently; false polarises a multi-tier fabric",
       "protocols 5.7"},
      {"qps",
       PT::integer,
       "1",
       "1",
       "1",
       {},
       "queue pairs per connection (more than 1 is not built yet)",
       "DESIGN 9.1"},
  };
  return specs;
}

const std::vector<ParamSpec>& buffer_params() {
  static const std::vector<ParamSpec> specs = {
      {"buffer",
       PT::bytes,
       "64MiB",
       "1KiB",
       "1GiB",
       {},
       "shared packet buffer of a switch",
       "DESIGN 9.1"},
  };
  return specs;
}

const std::vector<ParamSpec>& pfc_params() {
  static const std::vector<ParamSpec> specs = {
      {"mode",
       PT::choice,
       "dynamic",
       "",
       "",
       {"dynamic", "static", "off"},
       "pause threshold: a share of the free pool, a fixed size, or no pauses (a lossy class)",
       "protocols 5.5"},
      {"alpha",
       PT::real,
       "1/8",
       "0.0001",
       "1000",
       {},
       "dynamic threshold of an ingress port = alpha x free shared pool",
       "protocols 5.5"},
      {"alpha_scaling",
       PT::choice,
       "by-port-rate",
       "",
       "",
       {"by-port-rate", "none"},
       "alpha doubles with every doubling of the port rate over the NIC rate, up to 1",
       "protocols 5.5"},
      {"reserve",
       PT::bytes,
       "4KiB",
       "0B",
       "",
       {},
       "guaranteed bytes per ingress port and class",
       "protocols 5.5"},
      {"xoff",
       PT::bytes,
       "auto",
       "1B",
       "",
       {"auto"},
       "static threshold per ingress port; auto: (buffer - headrooms - reserves) / ports",
       "protocols 5.5"},
      {"resume_offset",
       PT::bytes,
       "3KiB",
       "0B",
       "",
       {},
       "XON when the port's use is this far below the threshold",
       "protocols 5.5"},
      {"headroom",
       PT::bytes,
       "auto",
       "0B",
       "",
       {"auto", "rate-delay"},
       "bytes kept for what arrives after XOFF; auto: rate x (2 x delay + headroom_response) + 2 "
       "packets + 1 pause frame; rate-delay: headroom_factor x rate x delay",
       "protocols 5.5"},
      {"headroom_factor",
       PT::real,
       "3",
       "0",
       "100",
       {},
       "factor of headroom: rate-delay",
       "protocols 5.5"},
      {"headroom_response",
       PT::time,
       "500ns",
       "0ns",
       "1ms",
       {},
       "response time to a pause assumed by headroom: auto",
       "protocols 5.5"},
      {"frame_size",
       PT::bytes,
       "84B",
       "1B",
       "256B",
       {},
       "bytes of a pause frame on the wire",
       "64-byte frame, preamble and gap"},
  };
  return specs;
}

const std::vector<ParamSpec>& ecn_params() {
  static const std::vector<ParamSpec> specs = {
      {"preset",
       PT::choice,
       "by-port-rate",
       "",
       "",
       {"by-port-rate"},
       "thresholds where kmin and kmax are auto: 100 KB and 400 KB per 25 Gb/s of port rate",
       "protocols 5.4 (production rule)"},
      {"mark_at",
       PT::choice,
       "dequeue",
       "",
       "",
       {"dequeue", "enqueue", "off"},
       "marking is decided when a packet leaves or enters the egress queue",
       "protocols 5.4"},
      {"kmin", PT::bytes, "auto", "0B", "", {"auto"}, "no marks at or below", "protocols 5.4"},
      {"kmax",
       PT::bytes,
       "auto",
       "0B",
       "",
       {"auto"},
       "every packet is marked above",
       "protocols 5.4"},
      {"pmax", PT::real, "0.2", "0", "1", {}, "marking probability at kmax", "protocols 5.4"},
  };
  return specs;
}

PacketConfig make_packet_config(const Params& transport, const std::string& congestion,
                                const Params& cc, const Params& ecmp, const Params& buffer,
                                const Params& pfc, const Params& ecn, uint64_t seed) {
  PacketConfig c;
  c.payload = transport.bytes("payload").count();
  c.header = transport.bytes("header").count();
  c.ack_bytes = transport.bytes("ack_size").count();
  c.ack_interval = transport.integer("ack_interval");
  c.ack_in_data_class = transport.is_word("ack_class", "data");
  c.ack_pausable = transport.boolean("ack_pausable");
  if (transport.is_word("window", "none"))
    c.window = WindowRule::none;
  else if (transport.is_word("window", "bdp"))
    c.window = WindowRule::bdp_pair;
  else if (transport.is_word("window", "bdp-longest"))
    c.window = WindowRule::bdp_longest;
  else {
    c.window = WindowRule::fixed;
    c.window_bytes = transport.bytes("window").count();
  }
  c.window_scales = transport.boolean("window_scaling");
  c.nack_interval_ps = transport.time("nack_interval").ps();
  c.rto_ps = transport.time("retransmit_timeout").ps();
  c.retry_limit = static_cast<int>(transport.integer("retry_limit"));
  c.persistent_qps = transport.is_word("queue_pairs", "persistent");
  c.complete_at_receiver = transport.is_word("completion", "receiver");
  c.resolution_ps = transport.time("time_resolution").ps();

  if (congestion == "none") {
    c.congestion = CongestionControl::none;
  } else {
    c.congestion = CongestionControl::dcqcn;
    DcqcnParams& d = c.dcqcn;
    const bool vendor = cc.is_word("order", "vendor");
    d.order = vendor ? DcqcnOrder::vendor : DcqcnOrder::paper;
    d.g = static_cast<uint64_t>(std::ldexp(cc.real("g"), 62));
    auto time_or = [&](const char* name, Time v, Time p) {
      return (cc.is_word(name, "auto") ? (vendor ? v : p) : cc.time(name)).ps();
    };
    d.alpha_timer_ps = time_or("alpha_timer", Time::us(1), Time::us(55));
    d.cut_timer_ps = time_or("cut_interval", Time::us(4), Time::us(4));
    d.increase_timer_ps = time_or("increase_timer", Time::us(300), Time::us(55));
    d.byte_counter = cc.is_word("byte_counter", "none")   ? 0
                     : cc.is_word("byte_counter", "auto") ? (vendor ? 0 : 10'000'000)
                                                          : cc.bytes("byte_counter").count();
    d.fast_recovery_steps = cc.is_word("fast_recovery_steps", "auto")
                                ? (vendor ? 1 : 5)
                                : static_cast<int>(cc.integer("fast_recovery_steps"));
    if (!cc.is_word("additive_increase", "auto"))
      d.additive_bps = cc.rate("additive_increase").bps();
    else if (vendor)
      d.additive_per_25g_bps = 5'000'000;
    else
      d.additive_bps = 40'000'000;
    if (!cc.is_word("hyper_increase", "auto"))
      d.hyper_bps = cc.rate("hyper_increase").bps();
    else if (vendor)
      d.hyper_per_25g_bps = 50'000'000;
    else
      d.hyper_bps = 200'000'000;
    d.hyper_scaled =
        cc.is_word("hyper_step", "auto") ? !vendor : cc.is_word("hyper_step", "scaled");
    d.clamp_target =
        cc.is_word("clamp_target", "auto") ? !vendor : cc.is_word("clamp_target", "true");
    d.min_bps = cc.rate("min_rate").bps();
    c.cnp_packets = cc.is_word("cnp", "auto") ? !vendor : cc.is_word("cnp", "packet");
    c.cnp_interval_ps = time_or("cnp_interval", Time::us(50), Time::us(50));
    c.cnp_bytes = cc.bytes("cnp_size").count();
  }

  c.buffer = buffer.bytes("buffer").count();
  c.pfc = pfc.is_word("mode", "dynamic")  ? PfcMode::dynamic_threshold
          : pfc.is_word("mode", "static") ? PfcMode::static_threshold
                                          : PfcMode::off;
  c.alpha_q16 = std::llround(pfc.real("alpha") * 65536.0);
  c.alpha_by_port_rate = pfc.is_word("alpha_scaling", "by-port-rate");
  c.reserve = pfc.bytes("reserve").count();
  c.xoff = pfc.is_word("xoff", "auto") ? 0 : pfc.bytes("xoff").count();
  c.resume_offset = pfc.bytes("resume_offset").count();
  if (pfc.is_word("headroom", "auto"))
    c.headroom_rule = HeadroomRule::automatic;
  else if (pfc.is_word("headroom", "rate-delay"))
    c.headroom_rule = HeadroomRule::rate_delay;
  else {
    c.headroom_rule = HeadroomRule::fixed;
    c.headroom_fixed = pfc.bytes("headroom").count();
  }
  c.headroom_factor = pfc.real("headroom_factor");
  c.headroom_response_ps = pfc.time("headroom_response").ps();
  c.pfc_frame = pfc.bytes("frame_size").count();

  c.ecn = ecn.is_word("mark_at", "off")       ? EcnMark::off
          : ecn.is_word("mark_at", "dequeue") ? EcnMark::dequeue
                                              : EcnMark::enqueue;
  c.kmin = ecn.is_word("kmin", "auto") ? -1 : ecn.bytes("kmin").count();
  c.kmax = ecn.is_word("kmax", "auto") ? -1 : ecn.bytes("kmax").count();
  if (c.kmin >= 0 && c.kmax >= 0 && c.kmin > c.kmax) {
    throw UserError(ecn.origin("kmin").pos,
                    "kmin " + ecn.text("kmin") + " is above kmax " + ecn.text("kmax"));
  }
  c.pmax_q32 = static_cast<uint64_t>(std::ldexp(ecn.real("pmax"), 32));

  c.routing.hash = ecmp.is_word("hash", "mix64") ? EcmpHash::mix64 : EcmpHash::murmur3_tuple;
  c.routing.order =
      ecmp.is_word("next_hops", "cabling") ? NextHopOrder::cabling : NextHopOrder::descending_peer;
  c.routing.per_switch_seed = ecmp.boolean("per_switch_seed");
  c.routing.seed = seed;
  c.seed = seed;
  return c;
}

namespace {

struct NoFactory {};
using Doc = RegisterModel<NoFactory>;

const Doc kTransport{{"transport", "rocev2",
                      "RoCEv2 over a lossless class: queue pairs, per-QP pacing, ACK/NACK, "
                      "go-back-N with a retransmission timer.",
                      "DESIGN section 5", transport_params()},
                     {}};
const Doc kNone{
    {"congestion", "none", "Senders run at line rate; only PFC holds them back.", "pains #47", {}},
    {}};
const Doc kDcqcn{{"congestion", "dcqcn",
                  "DCQCN: RED-style marks at the switch, notifications from the receiver, "
                  "multiplicative cuts and staged increases at the sender.",
                  "SIGCOMM'15; vendor order as in protocols 5.3", dcqcn_params()},
                 {}};
const Doc kEcmp{{"load_balancing", "ecmp",
                 "Each flow takes one of the shortest paths, chosen per switch by a hash.",
                 "protocols 5.7", ecmp_params()},
                {}};
const Doc kBuffer{{"switch", "shared-buffer", "One packet buffer per switch, shared by its ports.",
                   "DESIGN section 5", buffer_params()},
                  {}};
const Doc kPfc{{"pfc", "pfc",
                "Priority flow control: per ingress port a reserve, a threshold on the shared "
                "pool, and headroom; a pause lasts until its resume.",
                "protocols 5.5", pfc_params()},
               {}};
const Doc kEcn{{"ecn", "red", "Marks on the egress queue of the data class between kmin and kmax.",
                "protocols 5.4", ecn_params()},
               {}};

}  // namespace
}  // namespace trainyard
