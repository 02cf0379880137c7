// SPDX-License-Identifier: MIT
#include "faults/random_schedule.h"

#include <algorithm>
#include <string>
#include <utility>

#include "memo/stepping/hazard.h"
#include "network/topology_select.h"
#include "sim/dice.h"

namespace trainyard {
namespace {

constexpr uint32_t kDiceFailure = 300;  // purpose
constexpr size_t kMost = 100'000;

/// Parts that fail on their own, as selectors, with what tells their dice apart.
std::vector<std::pair<std::string, uint64_t>> parts(const FaultRequest& r, const Params& p) {
  const Topology& t = r.topology;
  const std::string& where = fault_where(r, p);
  const SourcePos& pos = p.origin("where").pos;
  std::vector<std::pair<std::string, uint64_t>> out;
  if (where.rfind("group:", 0) == 0) {
    // What shares a risk fails together.
    uint64_t digest = 0;
    for (const char c : where) digest = mix64(digest ^ static_cast<unsigned char>(c)) + 1;
    out.emplace_back(where, digest);
    return out;
  }
  if (p.spec("where").help.rfind("GPUs", 0) == 0 ||
      p.spec("where").help.rfind("switches", 0) == 0) {
    for (const uint32_t n : select_nodes(t, where, pos)) out.emplace_back(t.nodes()[n].name, n);
    return out;
  }
  for (const uint32_t link : select_links(t, where, pos)) {
    const uint32_t node = t.links()[link].a;
    const auto ports = t.nodes()[node].ports;
    const auto at =
        std::find_if(ports.begin(), ports.end(), [&](uint32_t port) { return port >> 1 == link; });
    out.emplace_back(t.nodes()[node].name + ":port" + std::to_string(at - ports.begin()),
                     t.nodes().size() + link);
  }
  return out;
}

}  // namespace

std::vector<Params> random_schedule(const FaultRequest& r, const Params& p, uint64_t seed,
                                    uint32_t entry) {
  if (p.is_word("mtbf", "none")) {
    if (!p.is_word("horizon", "none")) {
      throw UserError(p.origin("horizon").pos, "horizon is for faults by rate", "give mtbf, too");
    }
    return {p};
  }
  if (p.is_word("horizon", "none")) {
    throw UserError(p.origin("mtbf").pos, "mtbf needs a horizon",
                    "say up to when parts fail, for example 'horizon: 1s'");
  }
  if (p.is_word("at", "before")) {
    throw UserError(p.origin("at").pos, "what was broken before the run has no mtbf",
                    "give 'at' a time");
  }
  const Time mtbf = p.time("mtbf");
  const Time horizon = p.time("horizon");
  std::vector<Params> out;
  for (const auto& [name, object] : parts(r, p)) {
    Time at = p.time("at");
    for (uint64_t n = 0;; ++n) {
      const auto draw =
          static_cast<uint64_t>(minus_ln_q32(dice(seed, kDiceFailure + entry, object, n)));
      const auto gap = static_cast<__int128>(mtbf.ps()) * draw >> 32;
      if (gap >= (horizon - at).ps()) break;
      at += Time::ps(std::max<int64_t>(1, static_cast<int64_t>(gap)));
      Params one = p;
      one.set("where", name, p.origin("where"));
      one.set("at", std::to_string(at.ps()) + "ps", p.origin("mtbf"));
      out.push_back(std::move(one));
      if (out.size() > kMost) {
        throw UserError(
            p.origin("mtbf").pos,
            "more than " + std::to_string(kMost) + " failures are drawn before the horizon",
            "raise mtbf or lower horizon");
      }
    }
  }
  return out;
}

}  // namespace trainyard
