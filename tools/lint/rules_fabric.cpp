// SPDX-License-Identifier: MIT
// Rules on the fabric: units of rates, hashing over tiers.
#include <fmt/format.h>

#include "tools/lint/lint.h"
#include "tools/lint/words.h"

namespace trainyard {
namespace {

using lint::speed;
using S = LintSeverity;

/// The key that set a rate: a parameter of a structured fabric, or the file.
LintPlace rate_place(const LintSubject& s, const char* key) {
  const LintPlace place = s.at(key);
  if (s.conf || !place.value.empty()) return place;
  return s.at("fabric.topology.path");
}

void units(const LintSubject& s, LintFindings& out) {
  if (s.nic_rate > Rate::gbps(3200)) {
    Finding& f = out.add(
        S::warning, rate_place(s, "fabric.topology.nic.rate"),
        fmt::format("a NIC rate of {} is above 3.2 Tbps: bits or bytes?", speed(s.nic_rate)));
    f.arithmetic.push_back(
        fmt::format("{} / 8 = {}", speed(s.nic_rate), speed(s.nic_rate.bps() / 8)));
    f.remedy = "'GBps' is bytes per second, 'Gbps' bits; rates are per direction";
  }
  for (const LintPortClass& p : s.ports) {
    if (!p.scale_up || p.rate >= Rate::gbps(100)) continue;
    Finding& f = out.add(
        S::warning, rate_place(s, "fabric.topology.scale_up.rate"),
        fmt::format("a scale-up rate of {} is below 100 Gbps: bits or bytes?", speed(p.rate)));
    f.arithmetic.push_back(fmt::format("{} x 8 = {}", speed(p.rate), speed(p.rate.bps() * 8)));
    f.remedy = "'GBps' is bytes per second, 'Gbps' bits; rates are per direction";
  }
}

const RegisterModel<LintRule> kUnits{{"lint",
                                      "rate-units",
                                      "NIC rates above 3.2 Tb/s and scale-up rates below 100 Gb/s",
                                      "DESIGN 1",
                                      {}},
                                     units};

void polarisation(const LintSubject& s, LintFindings& out) {
  if (s.config.routing.per_switch_seed || s.paths.choices < 2) return;
  Finding& f = out.add(
      S::warning, s.at("fabric.transport.load_balancing.per_switch_seed"),
      fmt::format("{} nodes in a row choose by the same hash: a later tier sees only flows for "
                  "which the earlier ones chose alike, and uses part of its links",
                  s.paths.choices));
  f.remedy = "per_switch_seed: true, unless polarisation is the question";
}

const RegisterModel<LintRule> kPolarisation{
    {"lint",
     "ecmp-polarisation",
     "one hash at all switches where several tiers choose among equal next hops",
     "protocols 5.7 (ns3-rdma #19); B:W3",
     {}},
    polarisation};

}  // namespace
}  // namespace trainyard
