// SPDX-License-Identifier: MIT
#include "network/packet/congestion_params.h"

#include <cmath>

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

const std::vector<ParamSpec>& timely_params() {
  static const std::vector<ParamSpec> specs = {
      {"alpha",
       PT::real,
       "0.875",
       "0",
       "1",
       {},
       "weight of the newest difference of round trips",
       "SIGCOMM'15 section 4; TimelyAlpha"},
      {"beta",
       PT::real,
       "0.8",
       "0",
       "1",
       {},
       "strength of multiplicative decreases",
       "SIGCOMM'15 section 5; TimelyBeta"},
      {"t_low",
       PT::time,
       "50us",
       "0ns",
       "1s",
       {},
       "below this round trip the rate always rises",
       "SIGCOMM'15 section 5; TimelyTLow"},
      {"t_high",
       PT::time,
       "500us",
       "1ns",
       "1s",
       {},
       "above this round trip the rate always falls",
       "SIGCOMM'15 section 5; TimelyTHigh"},
      {"min_rtt",
       PT::time,
       "20us",
       "1ns",
       "1s",
       {},
       "normalises the gradient",
       "SIGCOMM'15 section 5; TimelyMinRtt"},
      {"additive_increase",
       PT::rate,
       "auto",
       "0bps",
       "",
       {"auto"},
       "additive step; auto: 10 Mb/s per 10 Gb/s of line rate",
       "SIGCOMM'15 section 5; HPCC's run.py: 10*bw/10"},
      {"hyper_increase",
       PT::rate,
       "auto",
       "0bps",
       "",
       {"auto"},
       "step after hyper_after increases in a row; auto: 50 Mb/s per 10 Gb/s of line rate",
       "SIGCOMM'15 section 4.3; HPCC's run.py: 50*bw/10"},
      {"hyper_after",
       PT::integer,
       "5",
       "0",
       "1000000",
       {},
       "increases in a row before the steps grow",
       "SIGCOMM'15 section 4.3: N = 5"},
      {"min_rate", PT::rate, "100Mbps", "1Kbps", "", {}, "floor of the rate", "MIN_RATE"},
  };
  return specs;
}

const std::vector<ParamSpec>& dctcp_params() {
  static const std::vector<ParamSpec> specs = {
      {"g",
       PT::real,
       "1/16",
       "0.000001",
       "1",
       {},
       "gain of alpha, the running fraction of marks",
       "SIGCOMM'10 section 3.3; HPCC's run.py: 0.0625"},
      {"additive_increase",
       PT::rate,
       "615Mbps",
       "0bps",
       "",
       {},
       "added per round trip without a cut",
       "HPCC's run.py: a packet of 1 KB per round trip of 13 us; DCTCP_RATE_AI"},
      {"min_rate", PT::rate, "100Mbps", "1Kbps", "", {}, "floor of the rate", "MIN_RATE"},
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

TimelyParams make_timely_params(const Params& params) {
  TimelyParams p;
  p.alpha_q40 = fixed(params.real("alpha"), 40);
  p.beta_q40 = fixed(params.real("beta"), 40);
  p.t_low_ps = params.time("t_low").ps();
  p.t_high_ps = params.time("t_high").ps();
  if (p.t_low_ps > p.t_high_ps) {
    throw UserError(params.origin("t_low").pos, "t_low " + params.text("t_low") +
                                                    " is above t_high " + params.text("t_high") +
                                                    "; give a t_low of at most t_high");
  }
  p.min_rtt_ps = params.time("min_rtt").ps();
  if (!params.is_word("additive_increase", "auto")) {
    p.additive_bps = params.rate("additive_increase").bps();
    p.additive_per_10g_bps = 0;
  }
  if (!params.is_word("hyper_increase", "auto")) {
    p.hyper_bps = params.rate("hyper_increase").bps();
    p.hyper_per_10g_bps = 0;
  }
  p.hyper_after = static_cast<int>(params.integer("hyper_after"));
  p.min_bps = params.rate("min_rate").bps();
  return p;
}

DctcpParams make_dctcp_params(const Params& params) {
  DctcpParams p;
  p.g = fixed(params.real("g"), 62);
  p.additive_bps = params.rate("additive_increase").bps();
  p.min_bps = params.rate("min_rate").bps();
  return p;
}

void register_congestion_models() {
  struct NoFactory {};
  using Doc = RegisterModel<NoFactory>;
  static const Doc hpcc{{"congestion", "hpcc",
                         "HPCC: every ACK carries the queues and counters of the switches it saw; "
                         "the sender computes rate and window that bring the busiest hop to a "
                         "target utilisation.",
                         "SIGCOMM'19 and the authors' ns-3 model, 9f4be2a", hpcc_params()},
                        {}};
  static const Doc timely{{"congestion", "timely",
                           "TIMELY: once per round trip the sender follows the gradient of the "
                           "round-trip time.",
                           "SIGCOMM'15 as in HPCC's ns-3 model, 9f4be2a", timely_params()},
                          {}};
  static const Doc dctcp{{"congestion", "dctcp",
                          "DCTCP's law on rates: cuts in proportion to the fraction of marked "
                          "packets, one additive step per round trip.",
                          "SIGCOMM'10 as in HPCC's ns-3 model, 9f4be2a", dctcp_params()},
                         {}};
}

}  // namespace trainyard
