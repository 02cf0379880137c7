// SPDX-License-Identifier: MIT
#include "workload/protocol.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace trainyard {
namespace {

struct Steps {
  Time base, inside, between;
};

/// By protocol; zero base: there is no such protocol for it.
using Constants = std::array<Steps, kProtocols>;

const Constants kRing = {{{Time::ns(6600), Time::ns(600), Time::ns(2700)},
                          {Time::ns(14000), Time::ns(1900), Time::ns(4000)},
                          {Time::ns(8400), Time::ns(3400), Time::ns(14000)}}};
const Constants kTree = {{{Time::ns(6800), Time::ns(600), Time::ns(5000)},
                          {Time::ns(14000), Time::ns(1250), Time::ns(8500)},
                          {Time::ns(8400), Time::ns(4000), Time::ns(14000)}}};
constexpr int64_t kNvlsNs = 25000;

/// Servers, and members of the fullest one.
std::pair<int64_t, int64_t> shape(const CollectiveRequest& r) {
  std::map<uint32_t, int64_t> members;
  int64_t most = 0;
  for (const uint32_t m : *r.members) most = std::max(most, ++members[r.placement.node_of(m)]);
  return {static_cast<int64_t>(members.size()), most};
}

int64_t log2_of(int64_t n) {
  int64_t log = 0;
  while (n > 1) n /= 2, ++log;
  return log;
}

class ProtocolRun final : public CollectiveRun {
 public:
  ProtocolRun(std::unique_ptr<CollectiveRun> inner, Protocol protocol)
      : inner_(std::move(inner)), protocol_(protocol) {}
  void arrived(uint32_t member, std::vector<CollectiveSend>& sends,
               std::vector<uint32_t>& done) override {
    const size_t first = sends.size();
    inner_->arrived(member, sends, done);
    widen(sends, first);
  }
  void delivered(const CollectiveSend& send, std::vector<CollectiveSend>& sends,
                 std::vector<uint32_t>& done) override {
    const size_t first = sends.size();
    inner_->delivered(send, sends, done);
    widen(sends, first);
  }
  bool receives(uint32_t member, std::vector<CollectiveReceive>& out) const override {
    return inner_->receives(member, out);
  }

 private:
  void widen(std::vector<CollectiveSend>& sends, size_t first) const {
    for (size_t i = first; i < sends.size(); ++i) {
      if (!sends[i].clear_to_send) sends[i].bytes = protocol_bytes(protocol_, sends[i].bytes);
    }
  }
  std::unique_ptr<CollectiveRun> inner_;
  Protocol protocol_;
};

class WithProtocol final : public CollectiveAlgorithm {
 public:
  WithProtocol(const CollectiveAlgorithm& inner, Protocol protocol)
      : inner_(inner), protocol_(protocol) {}
  [[nodiscard]] std::string name() const override {
    return inner_.name() + " " + protocol_name(protocol_);
  }
  [[nodiscard]] bool supports(CollectiveKind k) const override { return inner_.supports(k); }
  [[nodiscard]] bool serves(const CollectiveRequest& r) const override { return inner_.serves(r); }
  [[nodiscard]] std::unique_ptr<CollectiveRun> begin(const CollectiveRequest& r) const override {
    return std::make_unique<ProtocolRun>(inner_.begin(r), protocol_);
  }
  [[nodiscard]] int64_t sent_per_member(const CollectiveRequest& r) const override {
    return protocol_bytes(protocol_, inner_.sent_per_member(r));
  }
  [[nodiscard]] Time floor(const CollectiveRequest& r) const override {
    return protocol_latency(protocol_, inner_.name(), r);
  }

 private:
  const CollectiveAlgorithm& inner_;
  Protocol protocol_;
};

}  // namespace

const char* protocol_name(Protocol protocol) {
  switch (protocol) {
    case Protocol::ll:
      return "LL";
    case Protocol::ll128:
      return "LL128";
    case Protocol::simple:
      break;
  }
  return "Simple";
}

int64_t protocol_bytes(Protocol protocol, int64_t payload) {
  switch (protocol) {
    case Protocol::ll:
      return (payload + 3) / 4 * 8;
    case Protocol::ll128:
      return payload + (payload + 119) / 120 * 8;
    case Protocol::simple:
      break;
  }
  return payload;
}

Time protocol_latency(Protocol protocol, const std::string& algorithm, const CollectiveRequest& r) {
  const auto n = static_cast<int64_t>(r.members->size());
  const auto [servers, most] = shape(r);
  if (algorithm == "nvls") return Time::ns(kNvlsNs);
  if (algorithm == "tree") {
    const Steps& s = kTree[static_cast<size_t>(protocol)];
    return s.base + (s.inside * (most - 1) + s.between * log2_of(servers)) * 2;
  }
  if (algorithm != "ring" && algorithm != "chain") return {};
  const Steps& s = kRing[static_cast<size_t>(protocol)];
  const bool twice = algorithm == "ring" &&
                     (r.kind == CollectiveKind::all_reduce || r.kind == CollectiveKind::barrier);
  const int64_t steps = twice ? 2 * (n - 1) : n - 1;
  const int64_t between = servers == 1 ? 0 : std::min(steps, twice ? 2 * servers : servers - 1);
  return s.base + s.inside * (steps - between) + s.between * between;
}

std::unique_ptr<CollectiveAlgorithm> with_protocol(const CollectiveAlgorithm& inner,
                                                   Protocol protocol) {
  return std::make_unique<WithProtocol>(inner, protocol);
}

double protocol_estimate(Protocol protocol, const CollectiveAlgorithm& algorithm,
                         const CollectiveRequest& r, double nic_bps, double scale_up_bps) {
  const auto [servers, most] = shape(r);
  const double between = nic_bps * static_cast<double>(most);
  double bps = servers == 1 ? scale_up_bps : std::min(scale_up_bps, between);
  // Against a ring: what the packet engine gives for 64 MiB (docs/collectives.md).
  if (algorithm.name() == "tree") bps *= servers == 2 ? 1.2 : 0.85;
  const int64_t payload = algorithm.sent_per_member(r);
  bps *= static_cast<double>(payload) /
         static_cast<double>(std::max<int64_t>(1, protocol_bytes(protocol, payload)));
  // The tuner caps LL, for Hopper at so many GB/s on one, two and more servers (nccl-measured 3).
  if (protocol == Protocol::ll)
    bps = std::min(bps, 8e9 * (servers == 1 ? 141 : servers == 2 ? 45 : 35));
  return protocol_latency(protocol, algorithm.name(), r).seconds() +
         static_cast<double>(payload) * 8 / bps;
}

}  // namespace trainyard
