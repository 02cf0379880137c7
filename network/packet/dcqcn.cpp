// SPDX-License-Identifier: MIT
// DCQCN's parameters and its registration; the controller itself is in dcqcn.h.
#include <cmath>

#include "network/packet/config.h"
#include "sim/registry.h"

namespace trainyard {
namespace {

using PT = ParamType;

}  // namespace

const std::vector<ParamSpec>& dcqcn_params() {
  static const std::vector<ParamSpec> specs = {
      {"order",
       PT::choice,
       "vendor",
       "",
       "",
       {"vendor", "paper", "raise-first"},
       "vendor: alpha ages on a timer and cuts wait for a cut timer; paper: cut at once with the "
       "old alpha; raise-first: raise alpha (from 1/2), then cut at once",
       "protocols 5.3"},
      {"g", PT::real, "1/256", "0.000001", "1", {}, "gain of alpha", "protocols 5.2"},
      {"alpha_timer",
       PT::time,
       "auto",
       "1ns",
       "1s",
       {"auto"},
       "period of alpha's decay; auto: vendor 1us, others 55us",
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
       "period of rate increases; auto: vendor 300us, paper 55us, raise-first 60us",
       "protocols 5.2"},
      {"byte_counter",
       PT::bytes,
       "auto",
       "1B",
       "",
       {"auto", "none"},
       "a rate increase per so many sent bytes; auto: vendor none, paper 10MB, raise-first 300MB",
       "protocols 5.2"},
      {"fast_recovery_steps",
       PT::integer,
       "auto",
       "1",
       "100",
       {"auto"},
       "increase events that only return to the target; auto: vendor 1, others 5",
       "protocols 5.2"},
      {"additive_increase",
       PT::rate,
       "auto",
       "0bps",
       "",
       {"auto"},
       "additive step of the target; auto: vendor 5 Mb/s per 25 Gb/s of line rate, others 40 Mb/s",
       "protocols 5.2"},
      {"hyper_increase",
       PT::rate,
       "auto",
       "0bps",
       "",
       {"auto"},
       "hyper step of the target; auto: vendor 50 Mb/s per 25 Gb/s of line rate, others 200 Mb/s",
       "protocols 5.2"},
      {"hyper_step",
       PT::choice,
       "auto",
       "",
       "",
       {"auto", "constant", "scaled"},
       "every hyper step alike, or the i-th i times as large; auto: vendor constant, others scaled",
       "protocols 5.3"},
      {"clamp_target",
       PT::choice,
       "auto",
       "",
       "",
       {"auto", "true", "false"},
       "every cut sets the target to the current rate; auto: vendor false (only after an "
       "increase), others true",
       "protocols 5.3"},
      {"initial_alpha",
       PT::text,
       "auto",
       "",
       "",
       {},
       "alpha at the first notification, 0 to 1; auto: 1, raise-first 1/2",
       "protocols 5.3"},
      {"additive_phase",
       PT::choice,
       "auto",
       "",
       "",
       {"auto", "one-step", "by-counters"},
       "after fast recovery: one additive step and then hyper steps, or additive while one counter "
       "and hyper when both are past it; auto: one-step without a byte counter",
       "protocols 5.3"},
      {"fast_recovery_exclusive",
       PT::choice,
       "auto",
       "",
       "",
       {"auto", "true", "false"},
       "events are counted before the comparison, so that one fewer is fast recovery; auto: "
       "raise-first true, others false",
       "protocols 5.3"},
      {"qcn_leftover",
       PT::choice,
       "auto",
       "",
       "",
       {"auto", "true", "false"},
       "the first increase after a cut divides a target above 10 x rate by 8; auto: raise-first "
       "true, others false",
       "protocols 5.3"},
      {"min_rate", PT::rate, "100Mbps", "1Kbps", "", {}, "floor of the rate", "protocols 5.2"},
      {"cnp",
       PT::choice,
       "auto",
       "",
       "",
       {"auto", "ack-flag", "packet"},
       "the notification is a flag on the ACK, or a packet of its own in the control class; auto: "
       "vendor ack-flag, others packet",
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

DcqcnParams make_dcqcn_params(const Params& cc) {
  const bool vendor = cc.is_word("order", "vendor");
  const bool raise_first = cc.is_word("order", "raise-first");
  DcqcnParams d;
  if (raise_first) {
    d = dcqcn_raise_first();
  } else if (!vendor) {
    d.order = DcqcnOrder::paper;
    d.alpha_timer_ps = d.increase_timer_ps = Time::us(55).ps();
    d.byte_counter = 10'000'000;
    d.fast_recovery_steps = 5;
    d.additive_bps = 40'000'000;
    d.hyper_bps = 200'000'000;
    d.hyper_scaled = d.clamp_target = true;
  } else {
    d.additive_per_25g_bps = 5'000'000;
    d.hyper_per_25g_bps = 50'000'000;
  }
  const auto given = [&](const char* name) { return !cc.is_word(name, "auto"); };
  d.g = static_cast<uint64_t>(std::ldexp(cc.real("g"), 62));
  if (given("alpha_timer")) d.alpha_timer_ps = cc.time("alpha_timer").ps();
  if (given("cut_interval")) d.cut_timer_ps = cc.time("cut_interval").ps();
  if (given("increase_timer")) d.increase_timer_ps = cc.time("increase_timer").ps();
  if (given("byte_counter")) {
    d.byte_counter = cc.is_word("byte_counter", "none") ? 0 : cc.bytes("byte_counter").count();
  }
  if (given("fast_recovery_steps")) {
    d.fast_recovery_steps = static_cast<int>(cc.integer("fast_recovery_steps"));
  }
  if (given("additive_increase")) {
    d.additive_bps = cc.rate("additive_increase").bps();
    d.additive_per_25g_bps = 0;
  }
  if (given("hyper_increase")) {
    d.hyper_bps = cc.rate("hyper_increase").bps();
    d.hyper_per_25g_bps = 0;
  }
  if (given("hyper_step")) d.hyper_scaled = cc.is_word("hyper_step", "scaled");
  if (given("clamp_target")) d.clamp_target = cc.is_word("clamp_target", "true");
  if (given("additive_phase")) {
    d.additive_phase = cc.is_word("additive_phase", "one-step") ? DcqcnAdditive::one_step
                                                                : DcqcnAdditive::by_counters;
  }
  if (given("fast_recovery_exclusive")) {
    d.fast_recovery_exclusive = cc.is_word("fast_recovery_exclusive", "true");
  }
  if (given("qcn_leftover")) d.qcn_leftover = cc.is_word("qcn_leftover", "true");
  if (cc.text("initial_alpha") != "auto") {
    Params one({{"initial_alpha", PT::real, "1", "0", "1", {}, "", ""}});
    one.set("initial_alpha", cc.text("initial_alpha"), cc.origin("initial_alpha"));
    d.initial_alpha = static_cast<uint64_t>(std::ldexp(one.real("initial_alpha"), 62));
  }
  d.min_bps = cc.rate("min_rate").bps();
  return d;
}

namespace {

const RegisterModel<CongestionSetup> kDcqcn{
    {"congestion", "dcqcn",
     "DCQCN: RED-style marks at the switch, notifications from the receiver, multiplicative cuts "
     "and staged increases at the sender.",
     "SIGCOMM'15; vendor order as in protocols 5.3", dcqcn_params()},
    [](const Params& cc, PacketConfig& c) {
      c.congestion = CongestionControl::dcqcn;
      c.dcqcn = make_dcqcn_params(cc);
      const bool vendor = c.dcqcn.order == DcqcnOrder::vendor;
      c.cnp_packets = cc.is_word("cnp", "auto") ? !vendor : cc.is_word("cnp", "packet");
      c.cnp_interval_ps =
          cc.is_word("cnp_interval", "auto") ? Time::us(50).ps() : cc.time("cnp_interval").ps();
      c.cnp_bytes = cc.bytes("cnp_size").count();
    }};

}  // namespace
}  // namespace trainyard
