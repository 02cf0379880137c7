// SPDX-License-Identifier: MIT
// Rules on windows, acknowledgements, loss and incast (protocols 5.5, 5.6).
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

/// Bytes in flight per queue pair; 0: no window or unknown.
int64_t window_of(const LintSubject& s) {
  if (s.config.window == WindowRule::none) return 0;
  if (s.config.window == WindowRule::fixed) return s.config.window_bytes;
  return s.paths.found ? s.paths.bdp : 0;
}

void incast(const LintSubject& s, LintFindings& out) {
  const PacketConfig& c = s.config;
  if (s.incast.degree < 2 || !s.paths.found) return;
  // The last switch before the receiver: the leaf with the smallest pool.
  const LintSwitchClass* leaf = nullptr;
  for (const LintSwitchClass& w : s.switches) {
    if (w.kind != NodeKind::leaf || w.pool <= 0 || w.ports() < 2) continue;
    if (leaf == nullptr || w.pool < leaf->pool) leaf = &w;
  }
  if (leaf == nullptr) return;
  const int64_t window = window_of(s);
  const int64_t each = window > 0 ? window : s.paths.bdp;
  const auto n = static_cast<int64_t>(s.incast.degree);
  const int through = static_cast<int>(std::min<int64_t>(n, leaf->ports() - 1));
  // What the loop lets through less what leaves meanwhile; no more than there is to send.
  const auto loop = static_cast<__int128>(each) * n - s.paths.bdp;
  const auto sent = static_cast<__int128>(s.incast.bytes) * (through - 1) / through;
  const auto load = static_cast<int64_t>(std::min(loop, sent));
  const double point =
      c.pfc == PfcMode::static_threshold
          ? static_cast<double>(c.reserve) +
                static_cast<double>(c.xoff > 0 ? c.xoff : leaf->pool / leaf->ports())
          : lint::pause_point(static_cast<double>(leaf->pool), leaf->min_alpha,
                              static_cast<double>(c.reserve), through);
  if (static_cast<double>(load) <= through * point) return;
  const bool lossless = c.pfc != PfcMode::off;
  Finding& f =
      out.add(lossless ? S::note : S::warning, s.at("fabric.switch.buffer"),
              fmt::format("{}-to-1 ({}) puts {} into the queue of one port before {}; {} {}", n,
                          s.incast.what, size(load),
                          window > 0 ? "the windows close" : "the first marks are heard",
                          leaf->example, lossless ? "pauses first" : "drops first"));
  f.arithmetic = {
      loop <= sent
          ? fmt::format("{} x {} of {} - {} that leave meanwhile = {}", n,
                        window > 0 ? "a window" : "a bandwidth-delay product", size(each),
                        size(s.paths.bdp), size(load))
          : fmt::format("all that they send, {}, less the 1 / {} that leaves meanwhile = {}",
                        size(s.incast.bytes), through, size(load)),
      fmt::format("bandwidth-delay product: {} x {} = {}", speed(s.paths.rate),
                  span(s.paths.rtt.ps()), size(s.paths.bdp)),
      fmt::format("{} ingress ports x {} = {} of a pool of {}", through, size(point),
                  size(through * point), size(leaf->pool))};
  f.remedy = lossless ? "nothing if pauses are expected; else a window, a larger buffer, or fewer "
                        "senders at a time (collectives.window)"
                      : "PFC on, a window, a larger buffer, or fewer senders at a time";
}

const RegisterModel<LintRule> kIncast{
    {"lint",
     "incast-buffer",
     "N senders with a window (or a bandwidth-delay product) each against what the last switch "
     "holds before it pauses or drops",
     "protocols 5.5; B:F23",
     {}},
    incast};

void rto(const LintSubject& s, LintFindings& out) {
  const PacketConfig& c = s.config;
  if (c.rto_ps == 0 || !s.paths.found) return;
  const LintPlace place = s.at("fabric.transport.retransmit_timeout");
  if (c.rto_ps <= s.paths.rtt.ps()) {
    Finding& f = out.add(S::error, place,
                         fmt::format("the retransmission timer {} is not above the round trip of "
                                     "an idle fabric, {}",
                                     span(c.rto_ps), span(s.paths.rtt.ps())));
    f.remedy = "some ms; InfiniBand's usual timer is 67.1 ms, csg-htsim's least 5 ms";
    return;
  }
  int64_t pool = 0;
  for (const LintSwitchClass& w : s.switches) {
    if (w.kind != NodeKind::scale_up) pool = std::max(pool, w.pool + w.headrooms);
  }
  if (pool <= 0) return;
  const int64_t drain = transmission_time(Bytes(pool), s.paths.rate).ps();
  const int64_t worst = drain * s.paths.switches + s.paths.rtt.ps();
  if (c.rto_ps >= worst) return;
  Finding& f = out.add(
      S::warning, place,
      fmt::format("full buffers hold a packet for longer than the retransmission timer {}: it is "
                  "sent again although nothing was lost",
                  span(c.rto_ps)));
  f.arithmetic.push_back(fmt::format("{} switches x {} pool and headroom / {} + round trip {} = {}",
                                     s.paths.switches, size(pool), speed(s.paths.rate),
                                     span(s.paths.rtt.ps()), span(worst)));
  f.remedy = fmt::format("above {}", span(worst));
}

const RegisterModel<LintRule> kRto{{"lint",
                                    "rto-delay",
                                    "retransmission timer against the round trip and the delay of "
                                    "full buffers along the longest way",
                                    "protocols 5.5, 5.6",
                                    {}},
                                   rto};

void no_timer(const LintSubject& s, LintFindings& out) {
  if (!s.conf) return;
  double rate = s.conf->error_rate;
  for (const LintPortClass& p : s.ports) rate = std::max(rate, p.loss_rate);
  if (rate <= 0) return;
  Finding& f = out.add(S::error, s.at("conf.error_rate"),
                       fmt::format("packets are lost (up to {:g} per link) and these simulators "
                                   "have no retransmission timer: a flow that loses its last "
                                   "packet or last ACK never ends",
                                   rate));
  f.remedy = "ERROR_RATE_PER_LINK 0 and no error rate in the topology, or a simulator with a timer";
}

const RegisterModel<LintRule> kNoTimer{{"lint",
                                        "loss-without-timer",
                                        "lossy links without a retransmission timer",
                                        "protocols 5.6; B:L7+L8",
                                        {}},
                                       no_timer};

void window(const LintSubject& s, LintFindings& out) {
  const PacketConfig& c = s.config;
  const LintPlace place = s.at("fabric.transport.window");
  if (c.window == WindowRule::fixed && s.paths.found && c.window_bytes < s.paths.bdp) {
    Finding& f = out.add(S::warning, place,
                         fmt::format("a window of {} keeps the longest pair below line rate: its "
                                     "bandwidth-delay product is {}",
                                     size(c.window_bytes), size(s.paths.bdp)));
    f.arithmetic.push_back(fmt::format(
        "{} x {} = {}; {} / {} = {:.0f} % of the rate", speed(s.paths.rate), span(s.paths.rtt.ps()),
        size(s.paths.bdp), size(c.window_bytes), size(s.paths.bdp),
        100.0 * static_cast<double>(c.window_bytes) / static_cast<double>(s.paths.bdp)));
    f.remedy = fmt::format("window: bdp, or at least {}B", s.paths.bdp);
  }
  const int64_t bytes = window_of(s);
  if (bytes == 0 || c.ack_interval < 2) return;
  const auto packets = [&](int64_t w) { return (w + c.payload - 1) / c.payload; };
  const LintPlace acks = s.at("fabric.transport.ack_interval");
  if (packets(bytes) < c.ack_interval) {
    Finding& f = out.add(S::error, acks,
                         fmt::format("the window closes before an ACK is due: {} packets of the "
                                     "window, one ACK per {} packets; every message waits for the "
                                     "retransmission timer",
                                     packets(bytes), c.ack_interval));
    f.arithmetic.push_back(fmt::format("{} / {} = {} packets < {}", size(bytes), size(c.payload),
                                       packets(bytes), c.ack_interval));
    f.remedy = fmt::format("an ACK interval of at most {}, or a larger window", packets(bytes));
  } else if (c.window_scales && s.dcqcn() && s.nic_rate.bps() > 0) {
    const auto least =
        static_cast<int64_t>(static_cast<__int128>(bytes) * c.dcqcn.min_bps / s.nic_rate.bps());
    if (packets(std::max<int64_t>(1, least)) >= c.ack_interval) return;
    Finding& f = out.add(
        S::warning, acks,
        fmt::format("a window that shrinks with the rate falls below the ACK interval of {} "
                    "packets: slow senders then wait for the retransmission timer",
                    c.ack_interval));
    f.arithmetic.push_back(fmt::format("{} x {} / {} = {} at the smallest rate", size(bytes),
                                       speed(c.dcqcn.min_bps), speed(s.nic_rate), size(least)));
    f.remedy = "ack_interval: 1, or window_scaling: false";
  }
}

const RegisterModel<LintRule> kWindow{
    {"lint",
     "window-bdp",
     "window against the bandwidth-delay product and the ACK interval",
     "DESIGN 5; pains #45 (sparse ACKs)",
     {}},
    window};

void ack_class(const LintSubject& s, LintFindings& out) {
  const PacketConfig& c = s.config;
  if (c.pfc == PfcMode::off || c.ack_in_data_class == c.ack_pausable) return;
  Finding& f =
      c.ack_in_data_class
          ? out.add(S::note, s.at("fabric.transport.ack_pausable"),
                    "NICs send ACKs while their class is paused, switches queue and pause them "
                    "with the data: the receiver's NIC breaks the pause that it was sent")
          : out.add(S::note, s.at("fabric.transport.ack_class"),
                    "switches send ACKs first, but NICs hold them while the data is paused");
  f.remedy = c.ack_in_data_class
                 ? "ack_pausable: true, or ack_class: control; as it is it follows HPCC's and "
                   "SimAI's ACK_HIGH_PRIO 1"
                 : "ack_pausable: false";
  if (s.conf) f.remedy = "ACK_HIGH_PRIO 0 treats hosts and switches alike";
}

const RegisterModel<LintRule> kAckClass{{"lint",
                                         "ack-class",
                                         "ACKs belong to one class at hosts and switches",
                                         "protocols 5.5; peers-measured 11",
                                         {}},
                                        ack_class};

void recovery(const LintSubject& s, LintFindings& out) {
  if (!s.conf) return;
  if (s.conf->chunk > 0 && s.config.payload % s.conf->chunk != 0 &&
      s.conf->chunk % s.config.payload != 0) {
    Finding& f = out.add(
        s.conf->back_to_zero ? S::warning : S::note, s.at("conf.chunk"),
        fmt::format("neither of payload {} and chunk {} is a multiple of the other: a go-back to a "
                    "chunk lands inside a packet",
                    size(s.config.payload), size(s.conf->chunk)));
    f.arithmetic.push_back(fmt::format(
        "{} mod {} = {}", std::max(s.config.payload, s.conf->chunk),
        std::min(s.config.payload, s.conf->chunk),
        std::max(s.config.payload, s.conf->chunk) % std::min(s.config.payload, s.conf->chunk)));
    f.remedy = "L2_CHUNK_SIZE a multiple of PACKET_PAYLOAD_SIZE";
  }
  if (s.conf->back_to_zero) {
    Finding& f = out.add(S::warning, s.at("fabric.transport.loss_recovery"),
                         "go-back-0 starts a chunk again after every loss");
    f.remedy = "L2_BACK_TO_ZERO 0";
  }
}

const RegisterModel<LintRule> kRecovery{{"lint",
                                         "loss-recovery",
                                         "chunks of the loss recovery against packets; go-back-0",
                                         "protocols 5.6",
                                         {}},
                                        recovery};

}  // namespace
}  // namespace trainyard
