// SPDX-License-Identifier: MIT
// Rules on ECN thresholds (protocols 5.4, 5.5; B:F15..F21).
#include <fmt/format.h>

#include <algorithm>

#include "tools/lint/formulas.h"
#include "tools/lint/lint.h"
#include "tools/lint/words.h"

namespace trainyard {
namespace {

using lint::size;
using lint::span;
using lint::speed;
using S = LintSeverity;

const char* const kKmin = "fabric.switch.ecn.kmin";
const char* const kKmax = "fabric.switch.ecn.kmax";

bool marks(const LintSubject& s) {
  return s.config.ecn != EcnMark::off;
}

double at_25g(int64_t bytes, Rate rate) {
  return static_cast<double>(bytes) * 25e9 / static_cast<double>(rate.bps());
}

void before_pfc(const LintSubject& s, LintFindings& out) {
  const PacketConfig& c = s.config;
  if (!marks(s) || c.pfc == PfcMode::off) return;
  for (const LintSwitchClass& w : s.switches) {
    if (w.kind == NodeKind::scale_up || w.pool <= 0) continue;
    const int n = w.ports();
    const auto pool = static_cast<double>(w.pool);
    const auto reserve = static_cast<double>(c.reserve);
    double sum = 0;  // of the marking thresholds of all egress ports
    int64_t highest = 0;
    bool known = true;
    for (const auto& [rate, ports] : w.rates) {
      const auto e = s.ecn(rate);
      known = known && e.has_value();
      if (!e) continue;
      sum += static_cast<double>(e->kmin) * ports;
      highest = std::max(highest, e->kmin);
    }
    if (!known) continue;  // ecn-scaling says so
    const double mean = sum / n;
    const bool fixed = c.pfc == PfcMode::static_threshold;
    const double xoff =
        reserve + static_cast<double>(c.xoff > 0 ? c.xoff : w.pool / n);  // fixed only
    const double bound = fixed ? xoff / n : lint::ecn_bound(pool, w.min_alpha, reserve, 1, n);
    if (mean < bound) continue;
    const auto pauses_at = [&](int active) {
      return fixed ? xoff : lint::pause_point(pool, w.min_alpha, reserve, active);
    };
    const auto threshold = static_cast<double>(highest);
    S severity = S::note;  // the paper's worst case alone
    std::string when = "when one ingress port feeds all egress ports";
    if (threshold >= pauses_at(n)) {
      severity = S::warning;
      when = fmt::format("with all {} ingress ports active, each into its own egress port", n);
    }
    if (threshold >= pauses_at(1)) when = "even with a single ingress port active";
    Finding& f = out.add(
        severity, s.at(kKmin),
        fmt::format("{}{}: pauses come before marks {}", w.example,
                    w.count > 1 ? fmt::format(" and {} more like it", w.count - 1) : std::string(),
                    when));
    f.arithmetic.push_back(fmt::format("marks begin at kmin = {} (highest of its ports; mean {})",
                                       size(highest), size(mean)));
    if (fixed) {
      f.arithmetic.push_back(
          fmt::format("worst sharing: kmin < XOFF / n = {} / {} = {}", size(xoff), n, size(bound)));
    } else {
      f.arithmetic.push_back(fmt::format(
          "worst sharing: kmin < (a P / (1 + a) + reserve) / n = ({:g} x {} / {:g} + {}) / {} = {}",
          w.min_alpha, size(w.pool), 1 + w.min_alpha, size(c.reserve), n, size(bound)));
      f.arithmetic.push_back(fmt::format(
          "an ingress port pauses at reserve + a P / (1 + k a) with k of them active: {} with 1, "
          "{} with {}",
          size(pauses_at(1)), size(pauses_at(n)), n));
    }
    int enough = 0;  // incast degree whose egress queue reaches kmin first
    for (int k = 1; k < n && enough == 0; ++k) {
      if (k * pauses_at(k) > threshold) enough = k;
    }
    f.arithmetic.push_back(
        enough > 0
            ? fmt::format("one hot egress port alone: marks first from {}-to-1 on: {} x {} "
                          "= {} in its queue",
                          enough, enough, size(pauses_at(enough)), size(enough * pauses_at(enough)))
            : fmt::format("one hot egress port alone: pauses first at any degree; {} x {} = "
                          "{} in its queue",
                          n - 1, size(pauses_at(n - 1)),
                          size((n - 1) * pauses_at(std::max(1, n - 1)))));
    f.remedy = s.conf ? "lower KMIN_MAP or raise BUFFER_SIZE"
                      : "lower fabric.switch.ecn.kmin, or raise fabric.switch.buffer or pfc.alpha";
  }
}

const RegisterModel<LintRule> kBeforePfc{
    {"lint",
     "ecn-before-pfc",
     "marking begins below the pause threshold at the worst sharing of every switch's pool",
     "B:F15; protocols 5.5 (t_ECN < beta (B - 8 n t) / (8 n (beta + 1)), generalised); pains #43",
     {}},
    before_pfc};

void reach(const LintSubject& s, LintFindings& out) {
  const PacketConfig& c = s.config;
  if (!marks(s)) return;
  for (const LintSwitchClass& w : s.switches) {
    const int others = w.ports() - 1;
    if (w.kind == NodeKind::scale_up || w.pool <= 0 || others < 1) continue;
    const double each = c.pfc == PfcMode::static_threshold
                            ? static_cast<double>(c.reserve) +
                                  static_cast<double>(c.xoff > 0 ? c.xoff : w.pool / w.ports())
                            : lint::pause_point(static_cast<double>(w.pool), w.min_alpha,
                                                static_cast<double>(c.reserve), others);
    const double most = others * each;
    for (const auto& [rate, ports] : w.rates) {
      const auto e = s.ecn(rate);
      if (!e || static_cast<double>(e->kmax) < most) continue;
      const double p = e->kmax <= e->kmin
                           ? 0
                           : e->pmax * std::max(0.0, most - static_cast<double>(e->kmin)) /
                                 static_cast<double>(e->kmax - e->kmin);
      Finding& f = out.add(
          S::warning, s.at(kKmax),
          fmt::format("{}: the queue of a {} port cannot reach kmax = {}: every other port is "
                      "{} before; marking ends at {:.3g} %",
                      w.example, speed(rate), size(e->kmax),
                      c.pfc == PfcMode::off ? "at its limit" : "paused", 100 * p));
      f.arithmetic.push_back(fmt::format("{} ports x {} = {} of a pool of {} (buffer {})", others,
                                         size(each), size(most), size(w.pool), size(c.buffer)));
      f.arithmetic.push_back(fmt::format("{:g} x ({} - {}) / ({} - {}) = {:.3g}", e->pmax,
                                         size(most), size(e->kmin), size(e->kmax), size(e->kmin),
                                         p));
      f.remedy = "lower kmax and kmin, or raise the buffer";
    }
  }
}

const RegisterModel<LintRule> kReach{
    {"lint",
     "ecn-kmax-reach",
     "kmax against the longest queue that the pool allows before all senders are paused",
     "B:F21, F23; protocols 5.5",
     {}},
    reach};

void range(const LintSubject& s, LintFindings& out) {
  if (!marks(s)) return;
  for (const Rate rate : s.marking_rates()) {
    const auto e = s.ecn(rate);
    if (!e) continue;
    if (e->kmin > e->kmax) {
      Finding& f = out.add(S::error, s.at(s.config.kmin >= 0 || s.conf ? kKmin : kKmax),
                           fmt::format("ports of {}: kmin {} is above kmax {}", speed(rate),
                                       size(e->kmin), size(e->kmax)));
      f.remedy = "set kmin and kmax together";
    }
    if (e->kmin < s.frame()) {
      Finding& f = out.add(S::warning, s.at(kKmin),
                           fmt::format("ports of {}: kmin {} is less than one frame of {}: any "
                                       "queueing is marked",
                                       speed(rate), size(e->kmin), size(s.frame())));
      f.remedy = "kmin of several frames; production uses 100 KB per 25 Gb/s";
    } else if (s.paths.found && e->kmin < s.paths.bdp / 7 && rate >= s.paths.rate) {
      Finding& f = out.add(
          S::note, s.at(kKmin),
          fmt::format("ports of {}: kmin {} is below a seventh of the bandwidth-delay product: the "
                      "port may run empty between cuts",
                      speed(rate), size(e->kmin)));
      f.arithmetic.push_back(fmt::format("{} x {} / 7 = {} / 7 = {} (DCTCP's K > C x RTT / 7)",
                                         speed(s.paths.rate), span(s.paths.rtt.ps()),
                                         size(s.paths.bdp), size(s.paths.bdp / 7)));
    }
    if (e->pmax <= 0 && e->kmin < e->kmax) {
      Finding& f = out.add(S::warning, s.at("fabric.switch.ecn.pmax"),
                           fmt::format("ports of {}: pmax 0 switches the ramp off: nothing is "
                                       "marked up to kmax {}",
                                       speed(rate), size(e->kmax)));
      f.remedy = "pmax 0.2 (production) or 0.01 (SIGCOMM'15)";
    }
  }
}

const RegisterModel<LintRule> kRange{
    {"lint",
     "ecn-range",
     "kmin <= kmax, kmin of at least a frame and a seventh of the bandwidth-delay product, pmax "
     "above 0",
     "B:F18, F19, F21; protocols 5.4; DCTCP, SIGCOMM'10",
     {}},
    range};

void missing_rates(const LintSubject& s, LintFindings& out) {
  if (!s.conf) return;
  for (const Rate rate : s.marking_rates()) {
    if (s.ecn(rate)) continue;
    Finding& f = out.add(S::error, s.at(kKmin),
                         fmt::format("the topology has switch ports of {}, which the maps do not "
                                     "name: ns-3 aborts",
                                     speed(rate)));
    f.remedy = "add the rate to KMIN_MAP, KMAX_MAP and PMAX_MAP";
  }
}

void scaling(const LintSubject& s, LintFindings& out) {
  if (!marks(s)) return;
  missing_rates(s, out);
  std::vector<LintEcn> points = s.ecn_map;
  if (!s.conf) {
    for (const Rate rate : s.marking_rates()) points.push_back(*s.ecn(rate));
  }
  if (points.size() < 2) return;
  // The scale that most rates keep is the rule, what leaves it is the exception.
  const auto same = [](double a, double b) { return a <= 1.01 * b && b <= 1.01 * a; };
  const auto rule_of = [&](auto per_25g) {
    size_t best = 0;
    double rule = 0;
    for (const LintEcn& e : points) {
      size_t n = 0;
      for (const LintEcn& o : points) n += same(per_25g(e), per_25g(o)) ? 1 : 0;
      if (n > best) {
        best = n;
        rule = per_25g(e);
      }
    }
    return rule;
  };
  struct Threshold {
    const char *name, *key;
    int64_t LintEcn::*value;
  };
  for (const Threshold& t :
       {Threshold{"kmin", kKmin, &LintEcn::kmin}, Threshold{"kmax", kKmax, &LintEcn::kmax}}) {
    const auto per_25g = [&](const LintEcn& e) { return at_25g(e.*t.value, e.rate); };
    const double rule = rule_of(per_25g);
    std::vector<std::string> lines;
    std::string rates;
    std::string falls;
    for (size_t i = 0; i < points.size(); ++i) {
      const LintEcn& e = points[i];
      if (i > 0 && e.*t.value < points[i - 1].*t.value) {
        falls +=
            fmt::format("{}{} ({}) below {} ({})", falls.empty() ? "" : ", ", size(e.*t.value),
                        speed(e.rate), size(points[i - 1].*t.value), speed(points[i - 1].rate));
      }
      if (same(per_25g(e), rule)) continue;
      rates += (rates.empty() ? "" : ", ") + speed(e.rate);
      lines.push_back(fmt::format("{}: {} is {} per 25 Gb/s, not {}; in proportion {}",
                                  speed(e.rate), size(e.*t.value), size(per_25g(e)), size(rule),
                                  size(rule * static_cast<double>(e.rate.bps()) / 25e9)));
    }
    if (lines.empty()) continue;
    Finding& f =
        falls.empty()
            ? out.add(S::warning, s.at(t.key),
                      fmt::format("{} does not scale with the port rate at {}", t.name, rates))
            : out.add(S::error, s.at(t.key),
                      fmt::format("{} falls where the port rate rises: {}", t.name, falls));
    f.arithmetic = std::move(lines);
    f.remedy = s.conf ? "scale the map with the rate"
                      : fmt::format("{}: auto, which scales with the port rate", t.key);
  }
  const double pmax = rule_of([](const LintEcn& e) { return e.pmax; });
  for (const LintEcn& e : points) {
    if (same(e.pmax, pmax)) continue;
    Finding& f = out.add(
        S::warning, s.at("fabric.switch.ecn.pmax"),
        fmt::format("pmax {:g} at {} where other rates have {:g}", e.pmax, speed(e.rate), pmax));
    f.remedy = "one pmax for all rates";
  }
}

const RegisterModel<LintRule> kScaling{
    {"lint",
     "ecn-scaling",
     "kmin and kmax in proportion to the port rate, and one pmax",
     "protocols 5.4 (Kmin = 100 KB x bw / 25G, Kmax = 400 KB x bw / 25G); B:L6+L26",
     {}},
    scaling};

void production(const LintSubject& s, LintFindings& out) {
  if (!marks(s)) return;
  if (!s.conf && s.config.kmin < 0 && s.config.kmax < 0) return;
  std::vector<std::string> lines;
  for (const Rate rate : s.marking_rates()) {
    const auto e = s.ecn(rate);
    if (!e) continue;
    const double low = at_25g(e->kmin, rate) / 100'000;
    const double high = at_25g(e->kmax, rate) / 400'000;
    if (low >= 0.5 && low <= 2 && high >= 0.5 && high <= 2) continue;
    lines.push_back(fmt::format(
        "{}: {} / {}; 100 KB and 400 KB per 25 Gb/s would be {} / {} ({:.2g}x and {:.2g}x)",
        speed(rate), size(e->kmin), size(e->kmax), size(100'000 * rate.gbit() / 25),
        size(400'000 * rate.gbit() / 25), low, high));
  }
  if (lines.empty()) return;
  Finding& f = out.add(S::note, s.at(kKmin),
                       "thresholds are more than a factor of 2 away from the production rule");
  f.arithmetic = std::move(lines);
  f.remedy = s.conf ? "compare with the buffer before changing them"
                    : "kmin: auto and kmax: auto follow the production rule";
}

const RegisterModel<LintRule> kProduction{
    {"lint",
     "ecn-production",
     "kmin and kmax against the production rule of 100 and 400 KB per 25 Gb/s",
     "protocols 5.4 (issue #21: the paper's values do not work for production)",
     {}},
    production};

void unheard(const LintSubject& s, LintFindings& out) {
  if (s.dcqcn() && !marks(s)) {
    Finding& f = out.add(S::warning, s.at("fabric.switch.ecn.mark_at"),
                         "DCQCN runs but no switch marks: senders never slow down");
    f.remedy = s.conf ? "ENABLE_QCN 1" : "mark_at: dequeue, or congestion: {kind: none}";
  }
}

const RegisterModel<LintRule> kUnheard{
    {"lint", "ecn-off", "DCQCN without marks", "protocols 5.1; B:F21", {}}, unheard};

}  // namespace
}  // namespace trainyard
