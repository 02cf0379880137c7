// SPDX-License-Identifier: MIT
// Rules on PFC: headroom, pool, thresholds (protocols 5.5; B:F14, F15).
#include <fmt/format.h>

#include "tools/lint/formulas.h"
#include "tools/lint/lint.h"
#include "tools/lint/words.h"

namespace trainyard {
namespace {

using lint::size;
using lint::span;
using lint::speed;
using S = LintSeverity;

const char* const kHeadroom = "fabric.switch.pfc.headroom";

std::string own_rule(const LintSubject& s) {
  switch (s.config.headroom_rule) {
    case HeadroomRule::fixed:
      return "a fixed size";
    case HeadroomRule::rate_delay:
      return fmt::format("{:g} x rate x delay", s.config.headroom_factor);
    case HeadroomRule::automatic:
      return "auto";
  }
  return "";
}

/// Without a fabric only the break-even cable of a rate x delay rule is known.
void headroom_without_fabric(const LintSubject& s, LintFindings& out) {
  if (s.config.headroom_rule != HeadroomRule::rate_delay || s.ecn_map.empty()) return;
  Finding& f = out.add(S::warning, s.at(kHeadroom),
                       "headroom of " + own_rule(s) +
                           " starves short cables: frames and response time do not shrink with "
                           "the cable");
  f.arithmetic.push_back(
      "needed: rate x (2 x delay + 500ns response) + 2 frames + pause frame; covered by " +
      own_rule(s) + " only from a delay of 500ns + (2 frames + pause frame) / rate on:");
  for (const LintEcn& e : s.ecn_map) {
    const Time least = lint::headroom_hpcc_break_even(e.rate, s.frame(), s.config.pfc_frame,
                                                      Time::ps(lint::kResponsePs));
    f.arithmetic.push_back(fmt::format("{}: 500ns + (2 x {} + {}) / {} = {}, a cable of {:.0f} m",
                                       speed(e.rate), size(s.frame()), size(s.config.pfc_frame),
                                       speed(e.rate), span(least.ps()),
                                       static_cast<double>(least.ps()) / 5000));
  }
  f.remedy = "add 2 frames and the response time to the rule; give the topology to see each port";
}

void headroom(const LintSubject& s, LintFindings& out) {
  const PacketConfig& c = s.config;
  if (c.pfc == PfcMode::off) return;
  if (!s.has_topology) headroom_without_fabric(s, out);
  for (const LintPortClass& p : s.ports) {
    // The response of NVLink-class flow control is that of its model: none.
    const int64_t response = p.scale_up                                   ? 0
                             : c.headroom_rule == HeadroomRule::automatic ? c.headroom_response_ps
                                                                          : lint::kResponsePs;
    const int64_t has = s.headroom(p.rate, p.delay);
    const int64_t wire = lint::headroom_need(p.rate, p.delay, s.frame(), c.pfc_frame, Time());
    const int64_t need =
        lint::headroom_need(p.rate, p.delay, s.frame(), c.pfc_frame, Time::ps(response));
    const int64_t mlx5 = lint::headroom_mlx5(p.rate, p.delay, s.frame());
    const std::string who = fmt::format("{} {} port{} of {}, {}", p.ports, p.tier,
                                        p.ports == 1 ? "" : "s", speed(p.rate), span(p.delay.ps()));
    S severity = S::note;
    std::string message;
    if (has < wire) {
      severity = S::error;
      message = fmt::format(
          "{}: a headroom of {} can lose packets of a lossless class: {} may arrive after a pause",
          who, size(has), size(wire));
    } else if (has < need) {
      severity = S::warning;
      message = fmt::format(
          "{}: a headroom of {} suffices for a pause without delay ({}) but not "
          "for a response time of {} ({})",
          who, size(has), size(wire), span(response), size(need));
    } else if (!p.scale_up && has < mlx5) {
      message = fmt::format(
          "{}: a headroom of {} covers the cable, two frames and {} of response; "
          "the Linux mlx5 driver would reserve {}",
          who, size(has), span(response), size(mlx5));
    } else {
      continue;
    }
    Finding& f = out.add(severity, s.at(kHeadroom), message);
    f.arithmetic = {fmt::format("here ({}): {}", own_rule(s), size(has)),
                    fmt::format("needed: {} x (2 x {} + {}) + 2 x {} frame + {} pause frame = {}",
                                speed(p.rate), span(p.delay.ps()), span(response), size(s.frame()),
                                size(c.pfc_frame), size(need)),
                    fmt::format("HPCC, SimAI: 3 x {} x {} = {}", speed(p.rate), span(p.delay.ps()),
                                size(lint::headroom_hpcc(p.rate, p.delay)))};
    if (!p.scale_up) {
      f.arithmetic.push_back(fmt::format("Linux mlx5: (301 + 2.16 x {} m) x {:g} + 2.72 x {} = {}",
                                         p.delay.ps() / 5000, p.rate.gbit(), s.frame(),
                                         size(mlx5)));
    }
    f.arithmetic.push_back(
        fmt::format("bandwidth x round trip + MTU (B:F14): {} x 2 x {} + {} = {}", speed(p.rate),
                    span(p.delay.ps()), size(s.frame()),
                    size(lint::headroom_textbook(p.rate, p.delay, s.frame()))));
    f.remedy = severity == S::note
                   ? "nothing in a simulation; on hardware leave room in the buffer for the "
                     "driver's figure"
               : s.conf ? "a longer cable, a smaller payload, or a rule with frames and response"
                        : fmt::format("set {}: auto, or at least {}B", kHeadroom, need);
  }
}

const RegisterModel<LintRule> kHeadroomRule{
    {"lint",
     "pfc-headroom",
     "headroom of every class of ports against what can arrive after a pause: the cable both ways, "
     "two frames, the pause frame, the response time",
     "protocols 5.5; B:F14",
     {}},
    headroom};

void pool(const LintSubject& s, LintFindings& out) {
  const PacketConfig& c = s.config;
  for (const LintSwitchClass& w : s.switches) {
    const std::string who =
        fmt::format("{}{}", w.example,
                    w.count > 1 ? fmt::format(" and {} more like it", w.count - 1) : std::string());
    const std::string sum =
        fmt::format("buffer {} - headrooms {} - reserves {} x {} = {}", size(c.buffer),
                    size(w.headrooms), w.ports(), size(c.reserve), size(w.pool));
    if (w.pool <= 0) {
      Finding& f = out.add(S::error, s.at("fabric.switch.buffer"),
                           fmt::format("{}: nothing of the buffer is left for the shared pool of "
                                       "{} ports",
                                       who, w.ports()));
      f.arithmetic.push_back(sum);
      f.remedy = "a larger buffer, fewer ports per switch, or shorter cables";
    } else if (2 * w.headrooms > c.buffer) {
      Finding& f = out.add(
          S::warning, s.at("fabric.switch.buffer"),
          fmt::format("{}: headroom takes {:.0f} % of the buffer", who,
                      100.0 * static_cast<double>(w.headrooms) / static_cast<double>(c.buffer)));
      f.arithmetic.push_back(sum);
      f.remedy = "a larger buffer, fewer ports per switch, or shorter cables";
    }
  }
}

const RegisterModel<LintRule> kPoolRule{
    {"lint",
     "pfc-pool",
     "what headrooms and reserves of all ports leave of a switch's buffer",
     "protocols 5.5; B:L20+L21 (headroom growth)",
     {}},
    pool};

void static_xoff(const LintSubject& s, LintFindings& out) {
  const PacketConfig& c = s.config;
  if (c.pfc != PfcMode::static_threshold) return;
  const LintPlace place = s.at("fabric.switch.pfc.xoff");
  for (const LintSwitchClass& w : s.switches) {
    if (w.pool <= 0) continue;
    const int64_t most = w.pool / w.ports();
    const int64_t xoff = c.xoff > 0 ? c.xoff : most;
    if (xoff > most) {
      Finding& f = out.add(S::error, place,
                           fmt::format("{}: {} ports below a static XOFF of {} may hold more than "
                                       "the buffer",
                                       w.example, w.ports(), size(xoff)));
      f.arithmetic.push_back(
          fmt::format("largest: (buffer {} - headrooms {} - reserves {}) / {} ports = {}",
                      size(c.buffer), size(w.headrooms), size(w.reserves), w.ports(), size(most)));
      f.remedy = fmt::format("at most {}B, or auto", most);
    }
    if (c.resume_offset >= xoff) {
      Finding& f = out.add(S::warning, s.at("fabric.switch.pfc.resume_offset"),
                           fmt::format("{}: a paused port resumes only when it is empty: the "
                                       "offset {} is not below XOFF {}",
                                       w.example, size(c.resume_offset), size(xoff)));
      f.remedy = "an offset of two frames";
    }
  }
}

const RegisterModel<LintRule> kXoffRule{{"lint",
                                         "pfc-static-xoff",
                                         "a static XOFF of all ports together against the buffer",
                                         "protocols 5.5 (XOFF <= (B - 8 n t) / (8 n))",
                                         {}},
                                        static_xoff};

void resume(const LintSubject& s, LintFindings& out) {
  const PacketConfig& c = s.config;
  if (c.pfc == PfcMode::off || c.resume_offset >= s.frame()) return;
  Finding& f =
      out.add(S::note, s.at("fabric.switch.pfc.resume_offset"),
              fmt::format("XON follows XOFF after less than one frame: {} < {}; a port may pause "
                          "and resume for every packet",
                          size(c.resume_offset), size(s.frame())));
  f.arithmetic.push_back(
      fmt::format("SIGCOMM'15: two frames = {}; Mellanox: one = {}; HPCC, SimAI: "
                  "3 KiB (three of its 1000-byte packets)",
                  size(2 * s.frame()), size(s.frame())));
  f.remedy = fmt::format("two frames: {}B", 2 * s.frame());
}

const RegisterModel<LintRule> kResumeRule{
    {"lint", "pfc-resume", "distance of XON from XOFF against one frame", "protocols 5.5", {}},
    resume};

void pfc_only(const LintSubject& s, LintFindings& out) {
  if (s.dcqcn() || s.config.pfc == PfcMode::off) return;
  if (s.conf) return;  // other controllers than DCQCN may run there
  Finding& f = out.add(S::note, s.at("fabric.transport.congestion.kind"),
                       "PFC alone holds senders back: it shares unfairly and stops flows that do "
                       "not cross the hot port");
  f.arithmetic = {"4 senders, 1 receiver: one flow takes 20 Gbps (B:V49)",
                  "a flow off the congested path falls from 10 to 4.5 Gbps (B:V50)"};
  f.remedy = "congestion: {kind: dcqcn}, unless PFC alone is the question";
}

const RegisterModel<LintRule> kPfcOnlyRule{
    {"lint", "pfc-only", "no congestion control beside PFC", "B:V49, V50, V51; pains #47", {}},
    pfc_only};

}  // namespace
}  // namespace trainyard
