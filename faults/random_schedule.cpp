// SPDX-License-Identifier: MIT
#include "faults/random_schedule.h"

#include <algorithm>
#include <string>
#include <utility>

#include "memo/stepping/hazard.h"
#include "sim/dice.h"

namespace trainyard {
namespace {

constexpr uint32_t kDiceFailure = 300;  // purpose
constexpr size_t kMost = 100'000;

}  // namespace

std::vector<Params> random_schedule(const FaultRequest& r, FaultKind::Parts kind, const Params& p,
                                    uint64_t seed, uint32_t entry) {
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
  for (const auto& [name, object] :
       fault_parts(kind, r.topology, fault_where(r, p), p.origin("where").pos)) {
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
