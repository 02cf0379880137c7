// SPDX-License-Identifier: MIT
// DCTCP's parameters and its registration; the controller itself is in dctcp.h.
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

DctcpParams make_dctcp_params(const Params& params) {
  DctcpParams p;
  p.g = fixed(params.real("g"), 62);
  p.additive_bps = params.rate("additive_increase").bps();
  p.min_bps = params.rate("min_rate").bps();
  return p;
}

namespace {

const RegisterModel<CongestionSetup> kDctcp{
    {"congestion", "dctcp",
     "DCTCP's law on rates: cuts in proportion to the fraction of marked packets, one additive "
     "step per round trip.",
     "SIGCOMM'10 as in HPCC's ns-3 model, 9f4be2a", dctcp_params()},
    [](const Params& cc, PacketConfig& c) {
      c.congestion = CongestionControl::dctcp;
      c.dctcp = make_dctcp_params(cc);
    }};

}  // namespace
}  // namespace trainyard
