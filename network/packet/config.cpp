// SPDX-License-Identifier: MIT
#include "network/packet/config.h"

#include <cmath>

#include "sim/registry.h"

namespace trainyard {
namespace {
using PT = ParamType;
}

const std::vector<ParamSpec>& transport_params() {
  static const std::vector<ParamSpec> specs = {
      {"payload",
       PT::bytes,
       "4096B",
       "64B",
       "9216B",
       {},
       "payload of a full data packet",
       "RoCE path MTU of 4096"},
      {"header",
       PT::bytes,
       "82B",
       "0B",
       "256B",
       {},
       "bytes that a data packet occupies on the wire beside its payload",
       "Ethernet 38 with preamble and gap + IP 20 + UDP 8 + BTH 12 + ICRC 4"},
      {"ack_size",
       PT::bytes,
       "86B",
       "1B",
       "256B",
       {},
       "bytes of an ACK or NACK on the wire",
       "header + AETH 4"},
      {"ack_interval",
       PT::integer,
       "1",
       "1",
       "65535",
       {},
       "data packets per ACK; the last packet of a message always gets one",
       "facts peers-measured: L2_ACK_INTERVAL 1"},
      {"ack_class",
       PT::choice,
       "data",
       "",
       "",
       {"data", "control"},
       "class of ACKs in switches: with the data (queued, marked and paused with it) or strict "
       "priority",
       "peers-measured, bug 11"},
      {"ack_pausable",
       PT::boolean,
       "true",
       "",
       "",
       {},
       "PFC on the data class also stops the ACKs of a NIC",
       "protocols 5.5"},
      {"window",
       PT::bytes,
       "none",
       "1B",
       "",
       {"none", "bdp", "bdp-longest"},
       "bytes in flight per queue pair: none, the pair's bandwidth-delay product, that of the "
       "longest pair of the fabric, or a size",
       "peers-measured: window"},
      {"window_scaling",
       PT::boolean,
       "true",
       "",
       "",
       {},
       "the window shrinks with the controller's rate",
       "peers-measured: VAR_WIN"},
      {"loss_recovery",
       PT::choice,
       "go-back-n",
       "",
       "",
       {"go-back-n", "go-back-0", "selective-repeat"},
       "what the sender repeats after a loss: all from the missing packet on, the whole message, "
       "or the missing packet",
       "B: L7+L8"},
      {"reorder_window",
       PT::integer,
       "32",
       "1",
       "1000000",
       {},
       "selective-repeat: a packet is lost when one sent so many later has arrived",
       "RFC 8985 generalises 3; spraying reorders by more"},
      {"selective_window",
       PT::integer,
       "1024",
       "64",
       "65536",
       {},
       "selective-repeat: packets in flight at most, what a receiver keeps track of",
       "our choice: 4 MiB at a payload of 4096"},
      {"send_delay",
       PT::time,
       "0ns",
       "0ns",
       "1s",
       {},
       "from the posting of a message to the moment its first byte may leave (doorbell, PCIe, NIC)",
       "peers-measured: send latency; no delay is assumed"},
      {"receive_delay",
       PT::time,
       "0ns",
       "0ns",
       "1s",
       {},
       "from the last byte of a message in the NIC until the host sees it (PCIe, completion "
       "queue); "
       "ACKs leave the NIC before",
       "B: M1, network and host processing apart; no delay is assumed"},
      {"receive_rate",
       PT::rate,
       "auto",
       "1Mbps",
       "",
       {"auto"},
       "rate at which a NIC hands data to its host (a slow receiver); auto: as fast as it comes",
       "B: L13"},
      {"receive_buffer",
       PT::bytes,
       "512KiB",
       "16KiB",
       "1GiB",
       {},
       "buffer of a NIC whose receive_rate is below the line: it pauses its switch when half full "
       "and lets it go on at a quarter",
       "our choice: 40 us at 100 Gb/s"},
      {"nack_interval",
       PT::time,
       "500us",
       "0ns",
       "1s",
       {},
       "shortest time between two NACKs for one expected packet",
       "protocols 5.6"},
      {"retransmit_timeout",
       PT::time,
       "67.108864ms",
       "1us",
       "100s",
       {},
       "without progress for this long the sender goes back to the last acknowledged byte",
       "InfiniBand local ACK timeout, 4.096 us x 2^14"},
      {"retry_limit",
       PT::integer,
       "7",
       "0",
       "1000000",
       {},
       "timeouts in a row after which the transfer, and the run, fail",
       "verbs retry_cnt"},
      {"queue_pairs",
       PT::choice,
       "persistent",
       "",
       "",
       {"persistent", "per-message"},
       "messages of one channel share a queue pair and its rate, or each has a fresh one at line "
       "rate",
       "DESIGN section 5"},
      {"completion",
       PT::choice,
       "receiver",
       "",
       "",
       {"receiver", "last-ack"},
       "a message is complete when its last byte is there, or when the sender has the last ACK",
       "DESIGN section 5"},
      {"time_resolution",
       PT::time,
       "1ps",
       "1ps",
       "1us",
       {},
       "transmission times are rounded down to a multiple of this",
       "peers-measured: ns-3 truncates to 1 ns"},
  };
  return specs;
}

const std::vector<ParamSpec>& buffer_params() {
  static const std::vector<ParamSpec> specs = {
      {"buffer",
       PT::bytes,
       "64MiB",
       "1KiB",
       "1GiB",
       {},
       "shared packet buffer of a switch",
       "DESIGN 9.1"},
      {"classes",
       PT::integer,
       "1",
       "1",
       "4",
       {},
       "data classes, each with queues, pauses and buffer accounting of its own",
       "B: L2+L15"},
      {"scheduler",
       PT::choice,
       "strict",
       "",
       "",
       {"strict", "dwrr"},
       "among data classes, at switches and NICs: the lower number first, or deficit weighted "
       "round "
       "robin",
       "DESIGN section 5"},
      {"weights",
       PT::text,
       "1:1:1:1",
       "",
       "",
       {},
       "dwrr: shares of the classes, from class 0 on",
       "our choice"},
  };
  return specs;
}

const std::vector<ParamSpec>& pfc_params() {
  static const std::vector<ParamSpec> specs = {
      {"mode",
       PT::choice,
       "dynamic",
       "",
       "",
       {"dynamic", "static", "off"},
       "pause threshold: a share of the free pool, a fixed size, or no pauses (a lossy class)",
       "protocols 5.5"},
      {"alpha",
       PT::real,
       "1/8",
       "0.0001",
       "1000",
       {},
       "dynamic threshold of an ingress port = alpha x free shared pool",
       "protocols 5.5"},
      {"alpha_scaling",
       PT::choice,
       "by-port-rate",
       "",
       "",
       {"by-port-rate", "none"},
       "alpha doubles with every doubling of the port rate over the NIC rate, up to 1",
       "protocols 5.5"},
      {"reserve",
       PT::bytes,
       "4KiB",
       "0B",
       "",
       {},
       "guaranteed bytes per ingress port and class",
       "protocols 5.5"},
      {"xoff",
       PT::bytes,
       "auto",
       "1B",
       "",
       {"auto"},
       "static threshold per ingress port; auto: (buffer - headrooms - reserves) / ports",
       "protocols 5.5"},
      {"resume_offset",
       PT::bytes,
       "3KiB",
       "0B",
       "",
       {},
       "XON when the port's use is this far below the threshold",
       "protocols 5.5"},
      {"headroom",
       PT::bytes,
       "auto",
       "0B",
       "",
       {"auto", "rate-delay"},
       "bytes kept for what arrives after XOFF; auto: rate x (2 x delay + headroom_response) + 2 "
       "packets + 1 pause frame; rate-delay: headroom_factor x rate x delay",
       "protocols 5.5"},
      {"headroom_factor",
       PT::real,
       "3",
       "0",
       "100",
       {},
       "factor of headroom: rate-delay",
       "protocols 5.5"},
      {"headroom_response",
       PT::time,
       "500ns",
       "0ns",
       "1ms",
       {},
       "response time to a pause assumed by headroom: auto",
       "protocols 5.5"},
      {"pause",
       PT::choice,
       "until-resume",
       "",
       "",
       {"until-resume", "quanta"},
       "a pause lasts until its resume, or for pause_quanta and is sent again at half time",
       "protocols 5.5"},
      {"pause_quanta",
       PT::integer,
       "65535",
       "1",
       "65535",
       {},
       "length of a pause in units of 512 bit times",
       "IEEE 802.1Qbb; protocols 5.5"},
      {"watchdog",
       PT::time,
       "off",
       "1us",
       "100s",
       {"off"},
       "a switch queue paused for so long is freed",
       "B: L12 (200 ms)"},
      {"watchdog_action",
       PT::choice,
       "drop",
       "",
       "",
       {"drop", "forward"},
       "what the watchdog does: throw the queue away and all that comes, or ignore pauses",
       "B: L12"},
      {"watchdog_restore",
       PT::time,
       "200ms",
       "1us",
       "100s",
       {},
       "so long after, the port obeys pauses again",
       "B: L12"},
      {"nic_watchdog",
       PT::time,
       "off",
       "1us",
       "100s",
       {"off"},
       "a NIC that has sent pauses for so long without a break is silenced",
       "B: L12 (100 ms)"},
      {"cycle_check",
       PT::time,
       "1ms",
       "1us",
       "100s",
       {"off"},
       "a look for queues that wait for each other in a circle, so long after a pause",
       "B: L9+L10"},
      {"frame_size",
       PT::bytes,
       "84B",
       "1B",
       "256B",
       {},
       "bytes of a pause frame on the wire",
       "64-byte frame, preamble and gap"},
  };
  return specs;
}

const std::vector<ParamSpec>& ecn_params() {
  static const std::vector<ParamSpec> specs = {
      {"preset",
       PT::choice,
       "by-port-rate",
       "",
       "",
       {"by-port-rate"},
       "thresholds where kmin and kmax are auto: 100 KB and 400 KB per 25 Gb/s of port rate",
       "protocols 5.4 (production rule)"},
      {"mark_at",
       PT::choice,
       "dequeue",
       "",
       "",
       {"dequeue", "enqueue", "off"},
       "marking is decided when a packet leaves or enters the egress queue",
       "protocols 5.4"},
      {"kmin", PT::bytes, "auto", "0B", "", {"auto"}, "no marks at or below", "protocols 5.4"},
      {"kmax",
       PT::bytes,
       "auto",
       "0B",
       "",
       {"auto"},
       "every packet is marked above",
       "protocols 5.4"},
      {"pmax", PT::real, "0.2", "0", "1", {}, "marking probability at kmax", "protocols 5.4"},
      {"marking",
       PT::choice,
       "random",
       "",
       "",
       {"random", "dithered"},
       "by dice, or by error diffusion: the same mean without chance",
       "DESIGN section 5"},
  };
  return specs;
}

namespace {

/// "3:1" as weights.
std::array<uint32_t, kMaxClasses> read_weights(const Params& p) {
  std::array<uint32_t, kMaxClasses> weights{1, 1, 1, 1};
  const std::string& text = p.text("weights");
  const auto fail = [&] {
    throw UserError(p.origin("weights").pos,
                    "weights '" + text + "' are not numbers from 1 to 1000",
                    "write one per class, as in '3:1'");
  };
  size_t at = 0;
  for (size_t i = 0; at <= text.size(); ++i) {
    size_t end = text.find(':', at);
    if (end == std::string::npos) end = text.size();
    const std::string word = text.substr(at, end - at);
    if (i >= kMaxClasses || word.empty() || word.size() > 4 ||
        word.find_first_not_of("0123456789") != std::string::npos) {
      fail();
    }
    weights[i] = static_cast<uint32_t>(std::stoul(word));
    if (weights[i] < 1 || weights[i] > 1000) fail();
    at = end + 1;
  }
  return weights;
}

}  // namespace

PacketConfig make_packet_config(const PacketBlocks& blocks) {
  const Params& transport = blocks.transport;
  const Params& buffer = blocks.buffer;
  const Params& pfc = blocks.pfc;
  const Params& ecn = blocks.ecn;
  PacketConfig c;
  c.payload = transport.bytes("payload").count();
  c.header = transport.bytes("header").count();
  c.ack_bytes = transport.bytes("ack_size").count();
  c.ack_interval = transport.integer("ack_interval");
  c.ack_in_data_class = transport.is_word("ack_class", "data");
  c.ack_pausable = transport.boolean("ack_pausable");
  if (transport.is_word("window", "none"))
    c.window = WindowRule::none;
  else if (transport.is_word("window", "bdp"))
    c.window = WindowRule::bdp_pair;
  else if (transport.is_word("window", "bdp-longest"))
    c.window = WindowRule::bdp_longest;
  else {
    c.window = WindowRule::fixed;
    c.window_bytes = transport.bytes("window").count();
  }
  c.window_scales = transport.boolean("window_scaling");
  c.nack_interval_ps = transport.time("nack_interval").ps();
  c.rto_ps = transport.time("retransmit_timeout").ps();
  c.retry_limit = static_cast<int>(transport.integer("retry_limit"));
  c.persistent_qps = transport.is_word("queue_pairs", "persistent");
  c.complete_at_receiver = transport.is_word("completion", "receiver");
  c.resolution_ps = transport.time("time_resolution").ps();
  c.recovery = transport.is_word("loss_recovery", "go-back-n")   ? LossRecovery::go_back_n
               : transport.is_word("loss_recovery", "go-back-0") ? LossRecovery::go_back_0
                                                                 : LossRecovery::selective;
  c.reorder_window = transport.integer("reorder_window");
  c.selective_window = transport.integer("selective_window");
  c.send_delay_ps = transport.time("send_delay").ps();
  c.receive_delay_ps = transport.time("receive_delay").ps();
  c.receive_bps =
      transport.is_word("receive_rate", "auto") ? 0 : transport.rate("receive_rate").bps();
  c.receive_buffer = transport.bytes("receive_buffer").count();

  c.buffer = buffer.bytes("buffer").count();
  c.pfc = pfc.is_word("mode", "dynamic")  ? PfcMode::dynamic_threshold
          : pfc.is_word("mode", "static") ? PfcMode::static_threshold
                                          : PfcMode::off;
  c.alpha_q16 = std::llround(pfc.real("alpha") * 65536.0);
  c.alpha_by_port_rate = pfc.is_word("alpha_scaling", "by-port-rate");
  c.reserve = pfc.bytes("reserve").count();
  c.xoff = pfc.is_word("xoff", "auto") ? 0 : pfc.bytes("xoff").count();
  c.resume_offset = pfc.bytes("resume_offset").count();
  if (pfc.is_word("headroom", "auto"))
    c.headroom_rule = HeadroomRule::automatic;
  else if (pfc.is_word("headroom", "rate-delay"))
    c.headroom_rule = HeadroomRule::rate_delay;
  else {
    c.headroom_rule = HeadroomRule::fixed;
    c.headroom_fixed = pfc.bytes("headroom").count();
  }
  c.headroom_factor = pfc.real("headroom_factor");
  c.headroom_response_ps = pfc.time("headroom_response").ps();
  c.pfc_frame = pfc.bytes("frame_size").count();
  c.pause_quanta = pfc.is_word("pause", "quanta") ? pfc.integer("pause_quanta") : 0;
  const auto time_or_off = [&](const char* name) {
    return pfc.is_word(name, "off") ? 0 : pfc.time(name).ps();
  };
  c.watchdog_ps = time_or_off("watchdog");
  c.watchdog_restore_ps = pfc.time("watchdog_restore").ps();
  c.watchdog_action =
      pfc.is_word("watchdog_action", "drop") ? WatchdogAction::drop : WatchdogAction::forward;
  c.nic_watchdog_ps = time_or_off("nic_watchdog");
  c.cycle_check_ps = time_or_off("cycle_check");
  c.classes = static_cast<uint32_t>(buffer.integer("classes"));
  c.dwrr = buffer.is_word("scheduler", "dwrr");
  c.weights = read_weights(buffer);

  c.ecn = ecn.is_word("mark_at", "off")       ? EcnMark::off
          : ecn.is_word("mark_at", "dequeue") ? EcnMark::dequeue
                                              : EcnMark::enqueue;
  c.kmin = ecn.is_word("kmin", "auto") ? -1 : ecn.bytes("kmin").count();
  c.kmax = ecn.is_word("kmax", "auto") ? -1 : ecn.bytes("kmax").count();
  if (c.kmin >= 0 && c.kmax >= 0 && c.kmin > c.kmax) {
    throw UserError(ecn.origin("kmin").pos,
                    "kmin " + ecn.text("kmin") + " is above kmax " + ecn.text("kmax"));
  }
  c.pmax_q32 = static_cast<uint64_t>(std::ldexp(ecn.real("pmax"), 32));
  c.dithered = ecn.is_word("marking", "dithered");

  c.routing.seed = blocks.seed;
  c.seed = blocks.seed;
  const Registry& registry = Registry::instance();
  registry.factory<CongestionSetup>("congestion", blocks.congestion)(blocks.congestion_params, c);
  registry.factory<BalancingSetup>("load_balancing", blocks.balancing)(blocks, c);
  return c;
}

namespace {

struct NoFactory {};
using Doc = RegisterModel<NoFactory>;

const Doc kTransport{{"transport", "rocev2",
                      "RoCEv2 over a lossless class: queue pairs, per-QP pacing, ACK/NACK, "
                      "go-back-N with a retransmission timer.",
                      "DESIGN section 5", transport_params()},
                     {}};
const RegisterModel<CongestionSetup> kNone{
    {"congestion", "none", "Senders run at line rate; only PFC holds them back.", "pains #47", {}},
    [](const Params&, PacketConfig& config) { config.congestion = CongestionControl::none; }};
const Doc kBuffer{{"switch", "shared-buffer", "One packet buffer per switch, shared by its ports.",
                   "DESIGN section 5", buffer_params()},
                  {}};
const Doc kPfc{{"pfc", "pfc",
                "Priority flow control: per ingress port a reserve, a threshold on the shared "
                "pool, and headroom; pauses until resumed or in quanta, with watchdogs.",
                "protocols 5.5", pfc_params()},
               {}};
const Doc kEcn{{"ecn", "red", "Marks on the egress queue of the data class between kmin and kmax.",
                "protocols 5.4", ecn_params()},
               {}};

}  // namespace
}  // namespace trainyard
