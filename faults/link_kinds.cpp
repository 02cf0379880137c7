// SPDX-License-Identifier: MIT
// Kinds of faults of links and switches: link-down, link-flap, link-degrade, link-loss, link-ber,
// link-drop, switch-down.
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "faults/step_faults.h"
#include "network/topology_select.h"
#include "sim/registry.h"

namespace trainyard {
namespace {

using PT = ParamType;

const ParamSpec kReaction{
    "reaction",
    PT::choice,
    "reroute",
    "",
    "",
    {"reroute", "stall"},
    "reroute: traffic takes other paths once the fabric has noticed "
    "(fabric.transport.load_balancing.convergence); stall: the fabric never notices, what is sent "
    "is lost until it is over",
    "DESIGN 7"};

std::string cable_name(const Topology& t, uint32_t link) {
  const TopologyLink& l = t.links()[link];
  return t.nodes()[l.a].name + " - " + t.nodes()[l.b].name;
}

/// "leaf0 - spine2", or "link(leaf0,*): 4 cables".
std::string cables_name(const Topology& t, const std::string& where,
                        const std::vector<uint32_t>& links) {
  if (links.size() == 1) return cable_name(t, links[0]);
  return where + ": " + std::to_string(links.size()) + " cables";
}

/// A cable that loses its signal, or everything that is sent over it.
void take_down(StepFaults& faults, uint32_t link, Time from, Time until, bool noticed) {
  if (noticed)
    faults.cable_down(link, from, until);
  else
    faults.cable_loss(link, from, until, 1);
}

/// Of a record: what nobody notices gives no signal; empty: that of its kind.
std::string down_signal(const Params& p) {
  return p.is_word("reaction", "stall") ? "none" : "";
}

std::string down_text(const Params& p) {
  return p.is_word("reaction", "stall") ? "everything sent is lost, nobody notices" : "down";
}

void link_down(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  const auto& where = fault_where(r, p);
  const auto links = select_links(r.topology, where, p.origin("where").pos);
  for (const uint32_t link : links) {
    take_down(faults, link, span.from, span.until, !p.is_word("reaction", "stall"));
  }
  faults.report({span.from, span.until, "link-down", cables_name(r.topology, where, links),
                 down_text(p), "", down_signal(p)});
}

void link_flap(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  const auto& where = fault_where(r, p);
  const auto links = select_links(r.topology, where, p.origin("where").pos);
  if (p.is_word("at", "before")) {
    throw UserError(p.origin("at").pos, "a link-flap is an event of the run",
                    "give 'at' a time; use link-down or link-degrade for what is broken all along");
  }
  const Time period = p.time("period");
  const auto down = Time::ps(std::max<int64_t>(
      1, static_cast<int64_t>(static_cast<double>(period.ps()) * p.real("duty"))));
  constexpr int64_t kMost = 100'000;
  int64_t count = kMost + 1;
  if (!p.is_word("count", "auto")) {
    count = p.integer("count");
  } else if (span.until == Time::infinity()) {
    throw UserError(r.pos, "a link-flap needs 'count' or 'for'", "say how often it goes down");
  }
  if (span.until != Time::infinity()) {
    count = std::min(count, ((span.until - span.from).ps() + period.ps() - 1) / period.ps());
  }
  if (count > kMost) {
    throw UserError(r.pos, "a link-flap of " + std::to_string(count) + " times is more than " +
                               std::to_string(kMost));
  }
  for (int64_t k = 0; k < count; ++k) {
    const Time from = span.from + period * k;
    const Time until = std::min(from + down, span.until);
    for (const uint32_t link : links) {
      take_down(faults, link, from, until, !p.is_word("reaction", "stall"));
    }
    faults.report({from, until, "link-flap", cables_name(r.topology, where, links), down_text(p),
                   "", down_signal(p)});
  }
}

void link_degrade(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  const auto& where = fault_where(r, p);
  const auto links = select_links(r.topology, where, p.origin("where").pos);
  for (const uint32_t link : links) {
    faults.cable_rate(link, span.from, span.until, p.real("rate"));
  }
  faults.report({span.from, span.until, "link-degrade", cables_name(r.topology, where, links),
                 "at " + p.text("rate") + " of its rate"});
}

void link_loss(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  const auto& where = fault_where(r, p);
  const auto links = select_links(r.topology, where, p.origin("where").pos);
  for (const uint32_t link : links) {
    faults.cable_loss(link, span.from, span.until, p.real("probability"));
  }
  faults.report({span.from, span.until, "link-loss", cables_name(r.topology, where, links),
                 "loses packets with probability " + p.text("probability")});
}

/// 1 - (1 - ber)^bits by doubling: p(2n) = p(n) (2 - p(n)), p(n + 1) = p(n) + ber (1 - p(n)).
double packet_loss(double ber, int64_t bits) {
  double loss = 0;
  for (int bit = 62; bit >= 0; --bit) {
    loss *= 2 - loss;
    if ((bits >> bit & 1) != 0) loss += ber * (1 - loss);
  }
  return loss;
}

void link_ber(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  const auto& where = fault_where(r, p);
  const auto links = select_links(r.topology, where, p.origin("where").pos);
  const int64_t bytes = r.config.payload + r.config.header;
  const double loss = packet_loss(p.real("ber"), 8 * bytes);
  for (const uint32_t link : links) faults.cable_loss(link, span.from, span.until, loss);
  char text[96];
  std::snprintf(text, sizeof text, "bit error rate %s: a packet of %lld bytes is lost with %.3g",
                p.text("ber").c_str(), static_cast<long long>(bytes), loss);
  faults.report({span.from, span.until, "link-ber", cables_name(r.topology, where, links), text});
}

void link_drop(const FaultRequest& r, const Params& p, StepFaults& faults) {
  using K = FabricChange;
  static const std::map<std::string, uint8_t> kKinds = {
      {"data", K::data},
      {"acks", K::acks},
      {"nacks", K::nacks},
      {"cnps", K::cnps},
      {"pauses", K::pauses},
      {"resumes", K::resumes},
      {"all", K::data | K::acks | K::nacks | K::cnps}};
  const FaultSpan span = fault_span(p);
  const auto& where = fault_where(r, p);
  const auto links = select_links(r.topology, where, p.origin("where").pos);
  const auto every = static_cast<uint32_t>(p.integer("every"));
  for (const uint32_t link : links) {
    faults.cable_drops(link, span.from, span.until, every, kKinds.at(p.text("packets")));
  }
  faults.report(
      {span.from, span.until, "link-drop", cables_name(r.topology, where, links),
       "each direction loses every " + p.text("every") + "th packet (" + p.text("packets") + ")"});
}

void switch_down(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  const auto& where = fault_where(r, p);
  const auto nodes = select_nodes(r.topology, where, p.origin("where").pos);
  std::vector<uint32_t> links;
  for (const uint32_t n : nodes) {
    if (r.topology.kind(n) == NodeKind::host) {
      throw UserError(
          p.origin("where").pos,
          "'" + where + "' names " + r.topology.nodes()[n].name + ", which is no switch",
          "use nic-down or gpu-stop for a host");
    }
    for (const uint32_t port : r.topology.nodes()[n].ports) links.push_back(port >> 1);
  }
  for (const uint32_t link : links) {
    take_down(faults, link, span.from, span.until, !p.is_word("reaction", "stall"));
  }
  faults.report({span.from, span.until, "switch-down",
                 nodes.size() == 1 ? r.topology.nodes()[nodes[0]].name
                                   : where + ": " + std::to_string(nodes.size()) + " switches",
                 down_text(p) + " (" + std::to_string(links.size()) + " cables)", "",
                 down_signal(p)});
}

const char* const kWhereCables =
    "cables: link(leaf0,spine2), leaf3:port7, node3.nic5, or all of a node";

const RegisterModel<FaultKind> kDown{
    {"fault", "link-down",
     "A cable carries nothing, in both directions. What is on it is lost. Without another path "
     "traffic stalls until it is back, or until the retry limit ends the run.",
     "DESIGN 7", fault_params(kWhereCables, {kReaction})},
    {FaultKind::Parts::cables, "stop", "log", link_down}};

const RegisterModel<FaultKind> kFlap{
    {"fault", "link-flap", "A cable that goes down and comes back, again and again.", "DESIGN 7",
     fault_params(kWhereCables, {{"period",
                                  PT::time,
                                  "1ms",
                                  "1us",
                                  "1h",
                                  {},
                                  "from one failure to the next",
                                  "our choice"},
                                 {"duty",
                                  PT::real,
                                  "50%",
                                  "0.001",
                                  "1",
                                  {},
                                  "share of the period that it is down",
                                  "our choice"},
                                 {"count",
                                  PT::integer,
                                  "auto",
                                  "1",
                                  "100000",
                                  {"auto"},
                                  "how often it goes down; auto: until 'for' is over",
                                  ""},
                                 kReaction})},
    {FaultKind::Parts::cables, "slow", "log", link_flap}};

const RegisterModel<FaultKind> kDegrade{
    {"fault", "link-degrade",
     "A cable runs at a part of its rate, in both directions: fewer lanes, or half of a bonded "
     "pair. Routing does not notice.",
     "DESIGN 7",
     fault_params(kWhereCables, {{"rate",
                                  PT::real,
                                  "50%",
                                  "0.001",
                                  "1",
                                  {},
                                  "share of the rate that it was built with",
                                  "DESIGN 7"}})},
    {FaultKind::Parts::cables, "slow", "none", link_degrade}};

const RegisterModel<FaultKind> kLoss{
    {"fault", "link-loss",
     "A cable loses packets at random, in both directions, ACKs as often as data.", "DESIGN 7",
     fault_params(kWhereCables, {{"probability",
                                  PT::real,
                                  "0.1%",
                                  "0",
                                  "1",
                                  {},
                                  "of every packet on every passage",
                                  "our choice"}})},
    {FaultKind::Parts::cables, "slow", "none", link_loss}};

const RegisterModel<FaultKind> kDrop{
    {"fault", "link-drop",
     "A cable loses every n-th packet of a kind, without dice. Each direction counts from the "
     "beginning of the fault. A lost resume blocks the link for good where pauses last until "
     "resumed.",
     "DESIGN 7",
     fault_params(kWhereCables, {{"every",
                                  PT::integer,
                                  "1000",
                                  "1",
                                  "1000000000",
                                  {},
                                  "n: the n-th packet is lost, the 2n-th, and so on",
                                  "our choice"},
                                 {"packets",
                                  PT::choice,
                                  "data",
                                  "",
                                  "",
                                  {"data", "acks", "nacks", "cnps", "pauses", "resumes", "all"},
                                  "which packets count and are lost; all: all but pauses and "
                                  "resumes",
                                  "our choice"}})},
    {FaultKind::Parts::cables, "slow", "none", link_drop}};

const RegisterModel<FaultKind> kBer{
    {"fault", "link-ber",
     "A cable with bit errors. Any error costs the packet, so that the loss is 1 - (1 - ber)^bits "
     "of a full data packet; ACKs, which are shorter, are lost as often, which is too often. "
     "Errors are independent, after FEC.",
     "DESIGN 7",
     fault_params(kWhereCables, {{"ber",
                                  PT::real,
                                  "1e-9",
                                  "0",
                                  "0.01",
                                  {},
                                  "errors per bit, after FEC",
                                  "IEEE 802.3: 1e-12 is the limit of a healthy link"}})},
    {FaultKind::Parts::cables, "slow", "none", link_ber}};

const RegisterModel<FaultKind> kSwitch{
    {"fault", "switch-down", "All cables of a switch go down at once.", "DESIGN 7",
     fault_params("switches: leaf3, plane0.*, pod2", {kReaction})},
    {FaultKind::Parts::switches, "stop", "log", switch_down}};

}  // namespace
}  // namespace trainyard
