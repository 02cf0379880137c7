// SPDX-License-Identifier: MIT
// Rules on DCQCN's timers and gains (protocols 5.1, 5.2; B:L4+L5).
#include <fmt/format.h>

#include <cmath>

#include "tools/lint/lint.h"
#include "tools/lint/words.h"

namespace trainyard {
namespace {

using lint::span;
using lint::speed;
using S = LintSeverity;

std::string key(const char* name) {
  return std::string("fabric.transport.congestion.") + name;
}

void cnp_spacing(const LintSubject& s, LintFindings& out) {
  const PacketConfig& c = s.config;
  if (!s.dcqcn() || !c.cnp_packets) return;
  const int64_t alpha = c.dcqcn.alpha_timer_ps;
  if (alpha > c.cnp_interval_ps) return;
  const double g = std::ldexp(static_cast<double>(c.dcqcn.g), -62);
  const int64_t ticks = c.cnp_interval_ps / alpha;
  const double left = std::pow(1 - g, static_cast<double>(ticks));
  Finding& f = out.add(S::warning, s.at(key("alpha_timer")),
                       fmt::format("alpha decays between the notifications of a congested flow: "
                                   "the alpha timer {} does not exceed the CNP interval {}",
                                   span(alpha), span(c.cnp_interval_ps)));
  f.arithmetic.push_back(
      fmt::format("{} / {} = {} decays between two CNPs: alpha x (1 - {:g})^{} "
                  "= alpha x {:.3f}",
                  span(c.cnp_interval_ps), span(alpha), ticks, g, ticks, left));
  f.remedy = "an alpha timer above the CNP interval (SIGCOMM'15: 55 us over 50 us)";
}

const RegisterModel<LintRule> kCnp{{"lint",
                                    "dcqcn-cnp-spacing",
                                    "alpha timer above the CNP interval where CNPs are packets",
                                    "protocols 5.1 (K must exceed N), 5.2",
                                    {}},
                                   cnp_spacing};

void timers(const LintSubject& s, LintFindings& out) {
  const PacketConfig& c = s.config;
  if (!s.dcqcn()) return;
  const bool vendor = c.dcqcn.order == DcqcnOrder::vendor;
  int64_t spacing = vendor ? c.dcqcn.cut_timer_ps : 0;
  if (c.cnp_packets) spacing = std::max(spacing, c.cnp_interval_ps);
  if (c.dcqcn.increase_timer_ps <= spacing) {
    Finding& f = out.add(
        S::warning, s.at(key("increase_timer")),
        fmt::format("rates rise faster than they can be cut: the increase timer {} does not exceed "
                    "the least time between two cuts, {}",
                    span(c.dcqcn.increase_timer_ps), span(spacing)));
    f.arithmetic.push_back(
        "SIGCOMM'15 55 us over 50 us; vendors 300 us over 4 us; SimAI 900 us over 4 us");
    f.remedy = fmt::format("an increase timer above {}", span(spacing));
  }
  if (vendor && c.dcqcn.cut_timer_ps < c.dcqcn.alpha_timer_ps) {
    Finding& f =
        out.add(S::warning, s.at(key("cut_interval")),
                fmt::format("several cuts share one alpha: the cut interval {} is below the alpha "
                            "timer {}, so alpha cannot fall between cuts",
                            span(c.dcqcn.cut_timer_ps), span(c.dcqcn.alpha_timer_ps)));
    f.arithmetic.push_back("published pairs (cut, alpha): 4 us, 1 us; 50 us, 50 us");
    f.remedy = "a cut interval of at least the alpha timer";
  }
}

const RegisterModel<LintRule> kTimers{
    {"lint",
     "dcqcn-timers",
     "increase timer above the time between cuts, cut interval not below the alpha timer",
     "protocols 5.2 (every published column)",
     {}},
    timers};

void min_rate(const LintSubject& s, LintFindings& out) {
  const int64_t least = s.config.dcqcn.min_bps;
  if (!s.dcqcn() || s.nic_rate.bps() == 0) return;
  if (least >= s.nic_rate.bps()) {
    Finding& f = out.add(S::error, s.at(key("min_rate")),
                         fmt::format("the smallest rate {} is not below the NIC rate {}: no cut "
                                     "has an effect",
                                     speed(least), speed(s.nic_rate)));
    f.remedy = "100 Mbps (ns3-rdma, SimAI) or 1 Gbps (HPCC)";
    return;
  }
  const auto total = static_cast<__int128>(least) * s.incast.degree;
  if (total <= s.nic_rate.bps()) return;
  Finding& f = out.add(
      S::warning, s.at(key("min_rate")),
      fmt::format("{} senders at their smallest rate exceed the receiver: only PFC can stop them",
                  s.incast.degree));
  f.arithmetic.push_back(fmt::format("{} x {} = {} > {} ({})", s.incast.degree, speed(least),
                                     speed(static_cast<int64_t>(total)), speed(s.nic_rate),
                                     s.incast.what));
  f.remedy = fmt::format("at most {}", speed(s.nic_rate.bps() / s.incast.degree));
}

const RegisterModel<LintRule> kMinRate{
    {"lint",
     "dcqcn-min-rate",
     "the smallest rate, times the incast degree, against the NIC rate",
     "protocols 5.2",
     {}},
    min_rate};

void borrowed(const LintSubject& s, LintFindings& out) {
  const DcqcnParams& d = s.config.dcqcn;
  if (!s.dcqcn()) return;
  std::vector<std::string> found;
  const char* place = nullptr;
  const double g = std::ldexp(static_cast<double>(d.g), -62);
  if (g >= 1.0 / 16) {
    found.push_back(
        fmt::format("g = {:g}, at least 1/16 (DCTCP's); SIGCOMM'15 settled on 1/256", g));
    place = "g";
  }
  if (d.byte_counter > 0 && d.byte_counter <= 150'000) {
    found.push_back(
        fmt::format("byte counter {}, at most 150 KB (QCN's); SIGCOMM'15 settled on 10 "
                    "MB",
                    lint::size(d.byte_counter)));
    place = "byte_counter";
  }
  if (d.increase_timer_ps >= 1'500'000'000) {
    found.push_back(
        fmt::format("increase timer {}, at least 1.5 ms (QCN's); SIGCOMM'15 settled on "
                    "55 us",
                    span(d.increase_timer_ps)));
    place = "increase_timer";
  }
  if (found.empty()) return;
  Finding& f = out.add(S::warning, s.at(key(place)),
                       "defaults borrowed from QCN and DCTCP: such sets fail to converge even with "
                       "two flows");
  f.arithmetic = std::move(found);
  f.remedy = "the values of order: paper or order: vendor";
}

const RegisterModel<LintRule> kBorrowed{
    {"lint",
     "dcqcn-borrowed-defaults",
     "gain, byte counter and increase timer left at QCN's or DCTCP's defaults",
     "B:L4+L5, F16..F20; protocols 5.2",
     {}},
    borrowed};

void flow_count(const LintSubject& s, LintFindings& out) {
  constexpr uint32_t kMostFlows = 160;
  const bool paper = s.config.dcqcn.order == DcqcnOrder::paper;
  if (!s.dcqcn() || !paper || s.incast.degree <= kMostFlows) return;
  Finding& f = out.add(
      S::note, s.at(s.incast.key),
      fmt::format("{} flows share one receiver ({}): beyond about 160 DCQCN with the paper's "
                  "parameters no longer converges (40 Gb/s; about 80 at 10 Gb/s)",
                  s.incast.degree, s.incast.what));
  f.remedy = "expect PFC to bound the queue, or limit the senders at a time";
}

const RegisterModel<LintRule> kFlowCount{{"lint",
                                          "dcqcn-flow-count",
                                          "incast degree against the known limit of convergence",
                                          "protocols 5.1 (known limit)",
                                          {}},
                                         flow_count};

}  // namespace
}  // namespace trainyard
