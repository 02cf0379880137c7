// SPDX-License-Identifier: MIT
// HPCC's parameters and its registration; the controller itself is in hpcc.h.
#include <cmath>

#include "network/packet/config.h"
#include "sim/registry.h"

namespace trainyard {
namespace {

using PT = ParamType;

uint64_t fixed(double value, int bits) {
  return static_cast<uint64_t>(std::llround(std::ldexp(value, bits)));
}

}  // namespace

const std::vector<ParamSpec>& hpcc_params() {
  static const std::vector<ParamSpec> specs = {
      {"target_utilisation",
       PT::real,
       "0.95",
       "0.01",
       "1",
       {},
       "utilisation of the busiest hop, queue included, that the rate steers to",
       "SIGCOMM'19 section 4; U_TARGET"},
      {"max_stage",
       PT::integer,
       "5",
       "0",
       "1000000",
       {},
       "additive rounds before a multiplicative one while below the target; 0: every round is "
       "multiplicative, as in the reference tables",
       "SIGCOMM'19 section 4; MiThresh 5 in the authors' model"},
      {"additive_increase",
       PT::rate,
       "auto",
       "0bps",
       "",
       {"auto"},
       "added in every round; auto: 10 Mb/s per 25 Gb/s of line rate",
       "authors' run.py: 10*bw/25; RATE_AI"},
      {"min_rate", PT::rate, "100Mbps", "1Kbps", "", {}, "floor of the rate", "MIN_RATE"},
      {"base_rtt",
       PT::time,
       "auto",
       "1ns",
       "1s",
       {"auto"},
       "round trip without queues; auto: of the longest pair of the fabric",
       "SIGCOMM'19 section 4; GLOBAL_T 1"},
      {"fast_reaction",
       PT::boolean,
       "true",
       "",
       "",
       {},
       "every ACK sets the rate, not only one per round trip",
       "SIGCOMM'19 section 3.2; FAST_REACT"},
      {"rate_per_hop",
       PT::boolean,
       "false",
       "",
       "",
       {},
       "one rate per hop, the least of which holds, instead of one for the busiest hop",
       "MULTI_RATE 0 in run.py"},
      {"sample_feedback",
       PT::boolean,
       "false",
       "",
       "",
       {},
       "fast reaction ignores hops with an empty queue",
       "SAMPLE_FEEDBACK 0 in run.py"},
      {"window_scaling",
       PT::boolean,
       "true",
       "",
       "",
       {},
       "window = bandwidth-delay product x rate / line rate; false: without the second factor",
       "SIGCOMM'19 section 3.2; VAR_WIN 1"},
      {"telemetry",
       PT::choice,
       "exact",
       "",
       "",
       {"exact", "quantised"},
       "what ACKs say of the switches: exact numbers, or those that survive the authors' 64-bit "
       "fields",
       "authors' int-header.h"},
      {"telemetry_unit",
       PT::integer,
       "auto",
       "1",
       "1000",
       {"auto"},
       "telemetry: quantised: multiplies the units of 128 bytes sent and 80 bytes queued; auto: "
       "line rate / 25 Gb/s",
       "authors' run.py: bw/25; INT_MULTI"},
      {"telemetry_size",
       PT::bytes,
       "42B",
       "0B",
       "256B",
       {},
       "bytes of telemetry in every data packet and every ACK",
       "authors' int-header: 5 hops of 8 bytes and a counter"},
  };
  return specs;
}

HpccParams make_hpcc_params(const Params& params) {
  HpccParams p;
  p.eta_q40 = fixed(params.real("target_utilisation"), 40);
  p.max_stage = static_cast<int>(params.integer("max_stage"));
  if (!params.is_word("additive_increase", "auto")) {
    p.additive_bps = params.rate("additive_increase").bps();
    p.additive_per_25g_bps = 0;
  }
  p.min_bps = params.rate("min_rate").bps();
  p.fast_react = params.boolean("fast_reaction");
  p.per_hop_rates = params.boolean("rate_per_hop");
  p.sample_feedback = params.boolean("sample_feedback");
  p.window_varies = params.boolean("window_scaling");
  p.quantised = params.is_word("telemetry", "quantised");
  p.int_multi = params.is_word("telemetry_unit", "auto") ? 0 : params.integer("telemetry_unit");
  return p;
}

namespace {

const RegisterModel<CongestionSetup> kHpcc{
    {"congestion", "hpcc",
     "HPCC: every ACK carries the queues and counters of the switches it saw; the sender computes "
     "rate and window that bring the busiest hop to a target utilisation.",
     "SIGCOMM'19 and the authors' ns-3 model, 9f4be2a", hpcc_params()},
    [](const Params& cc, PacketConfig& c) {
      c.congestion = CongestionControl::hpcc;
      c.hpcc = make_hpcc_params(cc);
      c.hpcc_base_rtt_ps = cc.is_word("base_rtt", "auto") ? 0 : cc.time("base_rtt").ps();
      c.header += cc.bytes("telemetry_size").count();
      c.ack_bytes += cc.bytes("telemetry_size").count();
    }};

}  // namespace
}  // namespace trainyard
