// SPDX-License-Identifier: MIT
// Kinds of load balancing: ecmp, flowlet, spray, pinned, source-routed.
#include "network/packet/config.h"
#include "sim/registry.h"

namespace trainyard {
namespace {

using PT = ParamType;

std::vector<ParamSpec> balancing_params() {
  return {
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
       "15",
       {},
       "queue pairs per connection, each with its own source port; messages are split over them",
       "protocols 5.7"},
      {"convergence",
       PT::time,
       "10ms",
       "0ns",
       "100s",
       {},
       "from a link that fails or comes back to new routes; until then packets go the old way",
       "protocols 5.7: peers assume 0, which no fabric reaches"},
  };
}

std::vector<ParamSpec> with(std::vector<ParamSpec> specs, const std::vector<ParamSpec>& more) {
  specs.insert(specs.end(), more.begin(), more.end());
  return specs;
}

const ParamSpec kPathsParam{"paths",
                            PT::integer,
                            "16",
                            "2",
                            "255",
                            {},
                            "source ports that a queue pair uses; each is hashed as a flow",
                            "our choice"};

}  // namespace

const std::vector<ParamSpec>& ecmp_params() {
  static const std::vector<ParamSpec> specs = balancing_params();
  return specs;
}

namespace {

const ParamSpec kRuleParam{
    "rule",
    PT::choice,
    "round-robin",
    "",
    "",
    {"round-robin", "modulo", "least-used"},
    "path of a queue pair among its equal ones: round-robin: every NIC and switch deals out its "
    "equal next hops in turn as queue pairs open; modulo: (rank of source + rank of destination + "
    "number of the queue pair) mod "
    "paths; least-used: over the links that the fewest queue pairs were given so far",
    "B: R1, R4; protocols 5.7"};

/// `rule` with the hash for those that no pin names.
ParamSpec rest_param() {
  ParamSpec spec = kRuleParam;
  spec.name = "rest";
  spec.default_value = "ecmp";
  spec.choices.insert(spec.choices.begin(), "ecmp");
  spec.help = "path of queue pairs that no route names: by hash, or by a rule of source-routed";
  return spec;
}

void set_common(const PacketBlocks& blocks, PacketConfig& c) {
  const Params& lb = blocks.balancing_params;
  c.routing.hash = lb.is_word("hash", "mix64") ? EcmpHash::mix64 : EcmpHash::murmur3_tuple;
  c.routing.order =
      lb.is_word("next_hops", "cabling") ? NextHopOrder::cabling : NextHopOrder::descending_peer;
  c.routing.per_switch_seed = lb.boolean("per_switch_seed");
  c.qps = static_cast<uint32_t>(lb.integer("qps"));
  c.convergence_ps = lb.time("convergence").ps();
}

RouteRule read_rule(const std::string& word) {
  return word == "round-robin"  ? RouteRule::round_robin
         : word == "modulo"     ? RouteRule::modulo
         : word == "least-used" ? RouteRule::least_used
                                : RouteRule::hash;
}

const RegisterModel<BalancingSetup> kEcmp{
    {"load_balancing", "ecmp",
     "Each flow takes one of the shortest paths, chosen per switch by a hash.", "protocols 5.7",
     ecmp_params()},
    set_common};

const RegisterModel<BalancingSetup> kFlowlet{
    {"load_balancing", "flowlet",
     "A queue pair keeps its path while it sends; after a gap it takes another.",
     "LetFlow, NSDI'17",
     with(balancing_params(), {kPathsParam,
                               {"gap",
                                PT::time,
                                "50us",
                                "0ns",
                                "1s",
                                {},
                                "a queue pair that was silent for longer chooses anew",
                                "our choice: longer than the spread of path delays"}})},
    [](const PacketBlocks& blocks, PacketConfig& c) {
      set_common(blocks, c);
      c.paths = PathChoice::flowlet;
      c.path_count = static_cast<uint32_t>(blocks.balancing_params.integer("paths"));
      c.flowlet_gap_ps = blocks.balancing_params.time("gap").ps();
    }};

const RegisterModel<BalancingSetup> kSpray{
    {"load_balancing", "spray",
     "Every packet takes a path of its own: its source port is chosen anew. Needs loss_recovery: "
     "selective-repeat.",
     "B: S21; UET",
     with(balancing_params(), {kPathsParam,
                               {"choice",
                                PT::choice,
                                "random",
                                "",
                                "",
                                {"random", "round-robin"},
                                "how a packet's source port is chosen",
                                "B: S21"}})},
    [](const PacketBlocks& blocks, PacketConfig& c) {
      set_common(blocks, c);
      c.paths = PathChoice::spray;
      c.path_count = static_cast<uint32_t>(blocks.balancing_params.integer("paths"));
      c.round_robin = blocks.balancing_params.is_word("choice", "round-robin");
      if (c.recovery == LossRecovery::selective) return;
      throw UserError(blocks.balancing_pos,
                      "load_balancing: spray reorders packets, which loss_recovery " +
                          blocks.transport.text("loss_recovery") + " takes for losses",
                      "set fabric.transport.loss_recovery: selective-repeat");
    }};

const RegisterModel<BalancingSetup> kPinned{
    {"load_balancing", "pinned",
     "Queue pairs take the routes that a list gives them, as a controller would; the rest by "
     "hash or by rule. A route with a failed link is left to the hash once the fabric has noticed, "
     "until the link is back.",
     "B: R1, R4",
     with(balancing_params(),
          {{"routes",
            PT::text,
            "",
            "",
            "",
            {},
            "the list itself, {from, to, qp, via or path}, or a CSV file of from,to,qp,via",
            "docs/engine.md"},
           rest_param()})},
    [](const PacketBlocks& blocks, PacketConfig& c) {
      set_common(blocks, c);
      c.routes.pinned = blocks.pinned;
      c.routes.rule = read_rule(blocks.balancing_params.text("rest"));
    }};

const RegisterModel<BalancingSetup> kSourceRouted{
    {"load_balancing", "source-routed",
     "Every queue pair takes one of its equal shortest paths by a rule, without a hash.",
     "B: R1, R4; protocols 5.7", with(balancing_params(), {kRuleParam})},
    [](const PacketBlocks& blocks, PacketConfig& c) {
      set_common(blocks, c);
      c.routes.rule = read_rule(blocks.balancing_params.text("rule"));
    }};

}  // namespace
}  // namespace trainyard
