// SPDX-License-Identifier: MIT
// A fabric that runs whole collectives by itself. The timeline says which members have come and is
// told which are through; the messages between stay below. What repeats can then be recognised as
// a whole, whatever its messages are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "sim/collective.h"
#include "sim/fabric.h"
#include "sim/hash128.h"
#include "sim/units.h"

namespace trainyard {

/// A call of a collective on a communicator. What it points to outlives the run.
struct HostedCall {
  const CollectiveAlgorithm* algorithm = nullptr;
  CollectiveRequest request;
  uint32_t channel_base = 0;  ///< Transfer::channel = base + channel of the message modulo 64
  uint32_t owner = 0;
  uint8_t traffic_class = 0;
};

/// The transfer that carries a message of a call.
inline Transfer hosted_transfer(const HostedCall& call, const CollectiveSend& send) {
  const auto& members = *call.request.members;
  Transfer t;
  t.src = members[send.src];
  t.dst = members[send.dst];
  t.size = Bytes(send.bytes);
  t.channel = call.channel_base + send.channel % 64;
  if (send.clear_to_send) t.channel |= kGrantChannel;
  t.owner = call.owner;
  t.traffic_class = send.clear_to_send || send.traffic_class > call.traffic_class
                        ? send.traffic_class
                        : call.traffic_class;
  return t;
}

/// What a host remembers of a stretch of calls.
class HostStretch {
 public:
  virtual ~HostStretch() = default;
};

/// Something came to use what a stretch that is replayed has for itself: the run has to be made
/// without replays.
class StretchConflict final : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override {
    return "a repeated stretch of a program was disturbed";
  }
};

/// Percentiles (nearest rank) of how long clear-to-send messages took, of which there are some;
/// `to` has cts_p50, cts_p90 and cts_p99.
template <class To>
void set_grant_percentiles(std::vector<Time>& times, To& to) {
  std::sort(times.begin(), times.end());
  const auto percentile = [&](size_t p) { return times[(times.size() * p + 99) / 100 - 1]; };
  to.cts_p50 = percentile(50);
  to.cts_p90 = percentile(90);
  to.cts_p99 = percentile(99);
}

class CollectiveHost {
 public:
  virtual ~CollectiveHost() = default;

  /// Whether collectives can be left to it, as it is configured.
  [[nodiscard]] virtual bool hosts() const { return true; }
  /// Messages of calls that Fabric::transfers() would list if each were simulated, and does not
  /// because they are too many.
  [[nodiscard]] virtual uint64_t messages_left_out() const { return 0; }

  /// @returns the number of the call: 0, 1, 2, ...
  virtual uint32_t open(const HostedCall& call) = 0;
  /// `member` has come, at the last instant returned by advance() or later; earlier only as
  /// let_go() says.
  virtual void arrive(uint32_t call, uint32_t member, Time at) = 0;

  struct Done {
    uint32_t call = 0, member = 0;
  };
  /// Members that got through at the instant at which Fabric::advance() stopped, by call and
  /// member. advance() stops for them as for completions.
  virtual void take_done(std::vector<Done>& out) = 0;

  struct Tally {
    uint64_t transfers = 0, transmissions = 0, cts_count = 0;
    int64_t payload = 0;
    Time cts_p50, cts_p90, cts_p99;
  };
  /// Of a call whose messages are all acknowledged.
  [[nodiscard]] virtual Tally tally(uint32_t call) const = 0;

  // Stretches: calls of one communicator, one after another, that are alone on their links. What
  // came of them once can be booked as a whole where they begin in the same state.

  static constexpr uint32_t kNoSite = 0xffffffffU;  ///< they are never booked as a whole
  static constexpr uint32_t kNotYet = 0xfffffffeU;  ///< ask again the next time
  /// Calls that may follow each other, the first one at hand. @returns the number of the site.
  virtual uint32_t open_site(const std::vector<HostedCall>& calls) {
    (void)calls;
    return kNoSite;
  }
  /// State now of all that the calls of a site use; nothing: it is in use.
  virtual std::optional<Hash128> site_state(uint32_t site) {
    (void)site;
    return std::nullopt;
  }
  /// From now on what the site uses is its own. @returns a number for what ends that.
  virtual uint32_t hold(uint32_t site) {
    (void)site;
    return 0;
  }
  /// The calls are made one by one, after all. arrive() may then tell what came while it was held.
  virtual void let_go(uint32_t hold) { (void)hold; }
  /// Calls of the site that are made one by one are remembered; times count from `begin`.
  virtual void watch(uint32_t site, Time begin) { (void)site, (void)begin; }
  /// What has been remembered, at the end of the last call or later; null: they cannot be booked.
  virtual std::shared_ptr<const HostStretch> watched(uint32_t site) {
    (void)site;
    return nullptr;
  }
  /// What is held does what was watched, from `begin` on; its state was the same. It is booked, and
  /// let go, by replayed().
  virtual void replay(uint32_t hold, std::shared_ptr<const HostStretch> stretch, Time begin) {
    (void)hold, (void)stretch, (void)begin;
  }
  virtual void replayed(uint32_t hold) { (void)hold; }
};

}  // namespace trainyard
