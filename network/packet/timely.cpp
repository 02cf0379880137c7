// SPDX-License-Identifier: MIT
// TIMELY's parameters and its registration; the controller itself is in timely.h.
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

namespace {

const RegisterModel<CongestionSetup> kTimely{
    {"congestion", "timely",
     "TIMELY: once per round trip the sender follows the gradient of the round-trip time.",
     "SIGCOMM'15 as in HPCC's ns-3 model, 9f4be2a", timely_params()},
    [](const Params& cc, PacketConfig& c) {
      c.congestion = CongestionControl::timely;
      c.timely = make_timely_params(cc);
    }};

}  // namespace
}  // namespace trainyard
