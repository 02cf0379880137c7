// SPDX-License-Identifier: MIT
// Everything the packet engine can be told, with its self-documenting parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "network/packet/dcqcn.h"
#include "network/routing.h"
#include "sim/params.h"

namespace trainyard {

enum class PfcMode : uint8_t { dynamic_threshold, static_threshold, off };
enum class HeadroomRule : uint8_t { automatic, rate_delay, fixed };
enum class EcnMark : uint8_t { off, dequeue, enqueue };
enum class WindowRule : uint8_t { none, bdp_pair, bdp_longest, fixed };
enum class CongestionControl : uint8_t { none, dcqcn };

struct PacketConfig {
  // transport
  int64_t payload = 4096, header = 82, ack_bytes = 86, cnp_bytes = 86;
  int64_t ack_interval = 1;       ///< data packets per ACK; the end of a message always gets one
  bool ack_in_data_class = true;  ///< at switches; false: control class, strict priority
  bool ack_pausable = true;       ///< PFC on the data class stops a NIC's ACKs too
  WindowRule window = WindowRule::none;
  int64_t window_bytes = 0;
  bool window_scales = true;  ///< window x rate / line rate
  int64_t nack_interval_ps = 0, rto_ps = 0;
  int retry_limit = 7;
  bool persistent_qps = true;
  bool complete_at_receiver = true;
  int64_t resolution_ps = 1;

  CongestionControl congestion = CongestionControl::dcqcn;
  DcqcnParams dcqcn;
  bool cnp_packets = false;     ///< CNP on the wire; false: flag on the ACK
  int64_t cnp_interval_ps = 0;  ///< per QP at the receiver

  // switch
  int64_t buffer = 64 << 20;
  PfcMode pfc = PfcMode::dynamic_threshold;
  int64_t alpha_q16 = 1 << 13;     ///< dynamic threshold = free pool x alpha, Q16
  bool alpha_by_port_rate = true;  ///< doubled per doubling of port rate over NIC rate, up to 1
  int64_t reserve = 4096, xoff = 0, resume_offset = 3072, pfc_frame = 84;
  HeadroomRule headroom_rule = HeadroomRule::automatic;
  int64_t headroom_fixed = 0;
  double headroom_factor = 3;
  int64_t headroom_response_ps = 500'000;
  EcnMark ecn = EcnMark::dequeue;
  int64_t kmin = -1, kmax = -1;  ///< -1: by port rate
  uint64_t pmax_q32 = 0;

  RoutingConfig routing;
  uint64_t seed = 1;
};

/// The blocks of a scenario that describe the packet engine: category and parameters.
const std::vector<ParamSpec>& transport_params();
const std::vector<ParamSpec>& dcqcn_params();
const std::vector<ParamSpec>& ecmp_params();
const std::vector<ParamSpec>& buffer_params();
const std::vector<ParamSpec>& pfc_params();
const std::vector<ParamSpec>& ecn_params();

/// Combines checked blocks. `congestion` is "none" or "dcqcn". Throws UserError on contradictions
/// (Kmin above Kmax, payload with header above 65,535 bytes, ...).
PacketConfig make_packet_config(const Params& transport, const std::string& congestion,
                                const Params& congestion_params, const Params& ecmp,
                                const Params& buffer, const Params& pfc, const Params& ecn,
                                uint64_t seed);

}  // namespace trainyard
