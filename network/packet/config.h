// SPDX-License-Identifier: MIT
// Everything the packet engine can be told, with its self-documenting parameters.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "network/packet/dcqcn.h"
#include "network/packet/dctcp.h"
#include "network/packet/hpcc.h"
#include "network/packet/timely.h"
#include "network/routing.h"
#include "network/source_routes.h"
#include "sim/params.h"

namespace trainyard {

enum class PfcMode : uint8_t { dynamic_threshold, static_threshold, off };
enum class HeadroomRule : uint8_t { automatic, rate_delay, fixed };
enum class EcnMark : uint8_t { off, dequeue, enqueue };
enum class WindowRule : uint8_t { none, bdp_pair, bdp_longest, fixed };
enum class CongestionControl : uint8_t { none, dcqcn, hpcc, timely, dctcp };
enum class LossRecovery : uint8_t {
  go_back_n,  ///< from the first byte missing
  go_back_0,  ///< from the first byte of the message
  selective   ///< what is missing only; takes packets in any order
};
enum class PathChoice : uint8_t {
  per_flow,  ///< one path for a queue pair
  flowlet,   ///< a new one after a pause of the sender
  spray      ///< a new one for every packet
};
enum class WatchdogAction : uint8_t {
  drop,    ///< what is queued, and what comes until the port is restored
  forward  ///< pauses are ignored until the port is restored
};
inline constexpr uint32_t kMaxClasses = 4;
inline constexpr uint32_t kMaxQps = 15;
inline constexpr uint32_t kMaxPaths = 255;

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
  LossRecovery recovery = LossRecovery::go_back_n;
  int64_t reorder_window = 32;      ///< selective: packets overtaken before one counts as lost
  int64_t selective_window = 1024;  ///< selective: packets in flight at most
  int64_t send_delay_ps = 0;        ///< from the posting of a message to its first byte
  int64_t receive_delay_ps = 0;     ///< from the last byte in the NIC until the host sees it
  int64_t receive_bps = 0;          ///< 0: the host takes data as fast as it comes
  int64_t receive_buffer = 0;       ///< of the NIC; pauses are sent at a half, resumes at a quarter
  bool persistent_qps = true;
  bool complete_at_receiver = true;
  int64_t resolution_ps = 1;

  CongestionControl congestion = CongestionControl::dcqcn;
  DcqcnParams dcqcn;
  HpccParams hpcc;
  int64_t hpcc_base_rtt_ps = 0;  ///< 0: of the longest pair of the fabric
  TimelyParams timely;
  DctcpParams dctcp;
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
  bool dithered = false;         ///< marks by error diffusion instead of dice
  int64_t kmin = -1, kmax = -1;  ///< -1: by port rate
  uint64_t pmax_q32 = 0;
  int64_t pause_quanta = 0;  ///< of 512 bit times; 0: a pause lasts until its resume
  int64_t watchdog_ps = 0;   ///< a queue paused for so long is freed; 0: never
  int64_t watchdog_restore_ps = 0;
  WatchdogAction watchdog_action = WatchdogAction::drop;
  int64_t nic_watchdog_ps = 0;  ///< a NIC that has been pausing for so long is silenced; 0: never
  int64_t cycle_check_ps = 0;   ///< a look for cyclic waits so long after a pause; 0: never
  uint32_t classes = 1;         ///< data classes
  bool dwrr = false;            ///< among them; false: the first has strict priority, and so on
  std::array<uint32_t, kMaxClasses> weights{1, 1, 1, 1};

  RoutingConfig routing;
  SourceRoutesConfig routes;
  PathChoice paths = PathChoice::per_flow;
  uint32_t path_count = 1;   ///< flowlet, spray: paths per queue pair
  bool round_robin = false;  ///< spray: in turn instead of at random
  int64_t flowlet_gap_ps = 0;
  uint32_t qps = 1;            ///< per connection; every message is split over them
  int64_t convergence_ps = 0;  ///< from a link event to new routes
  uint64_t seed = 1;
  /// Flows draw as parts of their contention domain, so that domains that do the same draw alike
  /// (needs a registry); domains have one of so many variants, by place.
  bool shared_noise = false;
  uint32_t noise_variants = 1;
};

/// The blocks of a scenario that describe the packet engine: category and parameters.
const std::vector<ParamSpec>& transport_params();
const std::vector<ParamSpec>& ecmp_params();  ///< those that every load balancing has
const std::vector<ParamSpec>& buffer_params();
const std::vector<ParamSpec>& pfc_params();
const std::vector<ParamSpec>& ecn_params();

/// Checked blocks of a scenario.
struct PacketBlocks {
  const Params& transport;
  std::string congestion;  ///< kind
  const Params& congestion_params;
  std::string balancing;  ///< kind
  const Params& balancing_params;
  const Params& buffer;
  const Params& pfc;
  const Params& ecn;
  uint64_t seed = 1;
  SourcePos balancing_pos{};          ///< of the block
  std::vector<PinnedRoute> pinned{};  ///< load_balancing: pinned
};

/// Factories of the categories "congestion" and "load_balancing": what the parameters of a kind
/// change in a configuration that has everything else. Throw UserError on contradictions.
using CongestionSetup = std::function<void(const Params& params, PacketConfig& config)>;
using BalancingSetup = std::function<void(const PacketBlocks& blocks, PacketConfig& config)>;

/// Combines checked blocks. Throws UserError on contradictions (Kmin above Kmax, payload with
/// header above 65,535 bytes, ...).
PacketConfig make_packet_config(const PacketBlocks& blocks);

}  // namespace trainyard
