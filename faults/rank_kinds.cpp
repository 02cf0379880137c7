// SPDX-License-Identifier: MIT
// Kinds of faults of ranks and their hosts: gpu-throttle, gpu-hang, launch-delay, gc-pause,
// process-exit, collective-skip, collective-mismatch.
#include <algorithm>
#include <string>

#include "faults/step_faults.h"
#include "network/topology_select.h"
#include "sim/dice.h"
#include "sim/registry.h"

namespace trainyard {
namespace {

using PT = ParamType;
using What = CollectiveCall::What;

constexpr uint32_t kPhaseDice = 0x67637068;  // of pauses, apart from all other dice
constexpr int kRampSteps = 64;

void need_ops(const FaultRequest& r, const char* kind) {
  if (r.has_ops) return;
  throw UserError(r.pos, std::string(kind) + " is about ops, and this scenario has flows only",
                  "give it a workload or a collective");
}

/// Ranks of the job that `where` names.
std::vector<uint32_t> job_ranks(const FaultRequest& r, const Params& p) {
  std::vector<uint32_t> ranks = fault_ranks(r, p);
  std::erase_if(ranks, [&](uint32_t rank) { return rank >= r.ranks; });
  return ranks;
}

void gpu_throttle(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  if (!r.computes) {
    throw UserError(r.pos, "gpu-throttle slows compute down, and nothing computes here",
                    "give it a workload");
  }
  const double factor = p.real("factor");
  const Time ramp = p.time("ramp");
  const auto ranks = job_ranks(r, p);
  const OpChoice compute{true, "*"};
  for (const uint32_t rank : ranks) {
    Time from = span.from;
    for (int i = 1; i < kRampSteps && ramp > Time(); ++i) {
      const Time until = std::min(span.from + Time::ps(ramp.ps() / kRampSteps * i), span.until);
      if (until <= from) continue;
      faults.ranks().slow(rank, from, until, 1 + (factor - 1) * i / kRampSteps, compute);
      from = until;
    }
    if (from < span.until) faults.ranks().slow(rank, from, span.until, factor, compute);
  }
  faults.report({span.from, span.until, "gpu-throttle", fault_ranks_name(r, p, ranks),
                 "its clock is " + p.text("factor") + " times as slow" +
                     (ramp > Time() ? ", reached within " + p.text("ramp") : "")});
}

void launch_delay(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  need_ops(r, "launch-delay");
  const auto ranks = job_ranks(r, p);
  const bool dice = p.is_word("jitter", "uniform");
  for (const uint32_t rank : ranks) {
    faults.ranks().delay_launches(rank, span.from, span.until, p.time("delay"), dice,
                                  r.config.seed);
  }
  faults.report({span.from, span.until, "launch-delay", fault_ranks_name(r, p, ranks),
                 "every op starts " + p.text("delay") + " later" + (dice ? " in the mean" : "")});
}

void gc_pause(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  need_ops(r, "gc-pause");
  const Time period = p.time("period");
  const Time pause = p.time("pause");
  if (pause >= period) {
    throw UserError(p.origin("pause").pos,
                    "pauses of " + print_time(pause) + " every " + print_time(period) +
                        " leave no time to work",
                    "lengthen the period or shorten the pause");
  }
  const auto ranks = job_ranks(r, p);
  const bool planned = p.is_word("order", "together");
  for (const uint32_t rank : ranks) {
    const auto range = static_cast<unsigned __int128>(period.ps());
    const Time phase = planned ? Time()
                               : Time::ps(static_cast<int64_t>(
                                     (range * dice(r.config.seed, kPhaseDice, rank, 0)) >> 64));
    faults.ranks().pause(rank, span.from, span.until, period, pause, phase);
  }
  faults.report({span.from, span.until, "gc-pause", fault_ranks_name(r, p, ranks),
                 "the host pauses for " + p.text("pause") + " of every " + p.text("period") +
                     (planned ? ", all together" : ", each for itself")});
}

void process_exit(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  need_ops(r, "process-exit");
  if (span.until != Time::infinity()) {
    throw UserError(p.origin("for").pos, "a process that has exited does not come back",
                    "remove 'for'; a GPU that stops for a while is gpu-stop");
  }
  const auto ranks = job_ranks(r, p);
  for (const uint32_t rank : ranks) faults.ranks().exit(rank, span.from);
  faults.report({span.from, span.until, "process-exit", fault_ranks_name(r, p, ranks),
                 "the process is gone"});
}

/// Collectives of `rank` on groups that match. Throws UserError where there are not enough.
void check_calls(const FaultRequest& r, const Params& p, const std::vector<uint32_t>& ranks,
                 int64_t nth) {
  const std::string& pattern = p.text("group");
  for (const uint32_t rank : ranks) {
    const RankProgram& program = r.job->ranks[rank];
    std::map<uint32_t, int64_t> calls;
    for (const Op& op : program.graph->ops) {
      if (op.kind != OpKind::collective) continue;
      const uint32_t group = program.binding.groups[op.group_slot];
      const Group& g = r.job->groups[group];
      if (g.members.size() > 1 && matches_pattern(pattern, g.name)) ++calls[group];
    }
    int64_t most = 0;
    for (const auto& [group, count] : calls) most = std::max(most, count);
    if (most > nth) continue;
    if (most == 0) {
      throw UserError(
          p.origin("group").pos,
          "rank " + std::to_string(rank) + " calls no collective of a group '" + pattern + "'",
          "collectives.csv of a run without the fault has the names of groups");
    }
    throw UserError(p.origin("call").pos,
                    "rank " + std::to_string(rank) + " calls at most " + std::to_string(most) +
                        " collectives of a group '" + pattern + "', and they count from 0",
                    "give a lower number");
  }
}

void gpu_hang(const FaultRequest& r, const Params& p, StepFaults& faults) {
  const FaultSpan span = fault_span(p);
  need_ops(r, "gpu-hang");
  const auto ranks = job_ranks(r, p);
  check_calls(r, p, ranks, 0);
  for (const uint32_t rank : ranks) {
    faults.ranks().hang(rank, span.from, span.until, p.text("group"));
  }
  faults.report({span.from, span.until, "gpu-hang", fault_ranks_name(r, p, ranks),
                 "enters no collective of a group '" + p.text("group") + "'"});
}

void instead(const FaultRequest& r, const Params& p, StepFaults& faults, const char* kind,
             const CollectiveCall& call, const std::string& text) {
  const FaultSpan span = fault_span(p);
  need_ops(r, kind);
  const auto ranks = job_ranks(r, p);
  const int64_t nth = p.integer("call");
  check_calls(r, p, ranks, nth);
  for (const uint32_t rank : ranks) {
    faults.ranks().call(rank, span.from, span.until, p.text("group"), static_cast<uint32_t>(nth),
                        call);
  }
  faults.report({span.from, span.until, kind, fault_ranks_name(r, p, ranks),
                 text + " call " + std::to_string(nth) + " of a group '" + p.text("group") + "'"});
}

void collective_skip(const FaultRequest& r, const Params& p, StepFaults& faults) {
  instead(r, p, faults, "collective-skip", {What::skipped}, "skips");
}

void collective_mismatch(const FaultRequest& r, const Params& p, StepFaults& faults) {
  CollectiveCall call{What::other};
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
        CollectiveKind::all_to_all, CollectiveKind::broadcast}) {
    if (p.is_word("calls", collective_name(kind))) call.kind = kind;
  }
  call.bytes = p.bytes("size").count();
  instead(r, p, faults, "collective-mismatch", call,
          "calls " + p.text("calls") + " of " + p.text("size") + " as");
}

const char* const kWhere = "GPUs: rank17, node3.gpu5, node3.*";
const ParamSpec kGroup{
    "group",     PT::text, "*", "", "", {}, "names of the groups (communicators) that it is about",
    "our choice"};
const ParamSpec kCall{"call",
                      PT::integer,
                      "0",
                      "0",
                      "1000000000",
                      {},
                      "number of the collective in its group, from 0; nothing happens where the "
                      "rank comes to it before `at` or after `for`",
                      "our choice"};

const RegisterModel<FaultKind> kThrottle{
    {"fault", "gpu-throttle",
     "The clock of a GPU goes down: ops of compute take longer, those of memory (of a trace) do "
     "not. Kernels of a generated workload are all compute, memory-bound ones too. With a ramp it "
     "is a slow drift.",
     "C: 1.2 (XPUT)",
     fault_params(
         kWhere,
         {{"factor", PT::real, "1.2", "1", "10000", {}, "by which times grow", "our choice"},
          {"ramp",
           PT::time,
           "0ns",
           "0ns",
           "30d",
           {},
           "over which the factor rises from 1, in 64 equal steps",
           "our choice"}})},
    {FaultKind::Parts::gpus, "slow", "none", gpu_throttle}};

const RegisterModel<FaultKind> kLaunch{
    {"fault", "launch-delay", "A host launches every op of its GPU later than it could begin.",
     "C: 1.2 (CCLD)",
     fault_params(kWhere, {{"delay", PT::time, "20us", "1ns", "1d", {}, "of an op", "our choice"},
                           {"jitter",
                            PT::choice,
                            "none",
                            "",
                            "",
                            {"none", "uniform"},
                            "uniform: dice for every op, from 0 to twice the delay",
                            "our choice"}})},
    {FaultKind::Parts::gpus, "slow", "none", launch_delay}};

const RegisterModel<FaultKind> kGc{
    {"fault", "gc-pause",
     "The host of a rank pauses (garbage collection): no op begins; what runs goes on.",
     "C: F7.69, F7.70",
     fault_params(
         kWhere,
         {{"period", PT::time, "1s", "1us", "30d", {}, "from one pause to the next", "our choice"},
          {"pause", PT::time, "100ms", "1ns", "1d", {}, "length of a pause", "our choice"},
          {"order",
           PT::choice,
           "apart",
           "",
           "",
           {"apart", "together"},
           "apart: each rank's pauses begin at an offset of their own, by dice; together: at the "
           "same instants (planned garbage collection)",
           "C: F7.70"}})},
    {FaultKind::Parts::gpus, "slow", "none", gc_pause}};

const RegisterModel<FaultKind> kExit{
    {"fault", "process-exit",
     "A host has a fatal error and the process of its rank is gone: nothing more of it runs, on "
     "GPU or host; what its NIC has taken over is still sent.",
     "C: 4.4 (AEGIS)", fault_params(kWhere, {})},
    {FaultKind::Parts::gpus, "stop", "log", process_exit}};

const RegisterModel<FaultKind> kHang{
    {"fault", "gpu-hang",
     "A rank never gets into a collective, while its host and all that does not depend on it go "
     "on.",
     "C: 1.2 (CCLD, not entered)", fault_params(kWhere, {kGroup})},
    {FaultKind::Parts::gpus, "hang", "none", gpu_hang}};

const RegisterModel<FaultKind> kSkip{
    {"fault", "collective-skip",
     "A rank skips a collective: its next call meets what the others call now.",
     "C: 1.2 (CCLD, not entered), 4.4", fault_params(kWhere, {kGroup, kCall})},
    {FaultKind::Parts::gpus, "hang", "none", collective_skip}};

const RegisterModel<FaultKind> kMismatch{
    {"fault", "collective-mismatch", "A rank calls another collective than its peers.",
     "C: 1.2 (CCLD, inconsistent)",
     fault_params(kWhere,
                  {kGroup,
                   kCall,
                   {"calls",
                    PT::choice,
                    "all-gather",
                    "",
                    "",
                    {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"},
                    "what it calls",
                    "our choice"},
                   {"size", PT::bytes, "1MiB", "0", "", {}, "with how much", "our choice"}})},
    {FaultKind::Parts::gpus, "hang", "none", collective_mismatch}};

}  // namespace
}  // namespace trainyard
