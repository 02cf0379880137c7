// SPDX-License-Identifier: MIT
// Max-min fair rates of flows over ports, in whole bits per second, kept up to date as flows come
// and go.
//
// The allocation is what progressive filling gives: all flows rise together; a port whose fair
// share floor(free / flows still rising) is the smallest one stops its flows at that share, ports
// of equal share at once. Stated without the procedure: on every port, for every rate v found
// there, floor((capacity - sum of smaller rates) / flows at or above v) is at least v, and equal
// to v only where v is the largest rate of the port; every flow has a port where it is equal. One
// allocation alone satisfies that (by induction over rising rates), so that the rates depend on
// the set of flows and on nothing else: not on names, order of arrival or history.
//
// A change is repaired locally. The flows that it touches are filled again over what all others
// leave free; then the ports that they cross are checked against the rule above, flows that break
// it join, and it starts over. What is left satisfies the rule everywhere. Cost: the flows that
// had to move and their ports, not the whole network, nor the whole connected component.
//
// Rounding: up to n - 1 bits per second of a port with n flows stay unused.
// Model: Bertsekas and Gallager, Data Networks, section 6.5 (max-min flow control).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace trainyard {

class MaxMin {
 public:
  /// @returns the index of the new port: 0, 1, 2, ...
  uint32_t add_port(int64_t capacity_bps);
  void set_capacity(uint32_t port, int64_t capacity_bps);
  /// A flow over distinct ports, inactive at first. @returns its index: 0, 1, 2, ...
  uint32_t add_flow(const std::vector<uint32_t>& ports);
  void activate(uint32_t flow);
  void deactivate(uint32_t flow);

  /// Brings all rates up to date. @returns the active flows whose rate is another than after the
  /// last call, in no particular order; valid until the next call.
  const std::vector<uint32_t>& solve();
  /// The same from nothing, for checks.
  const std::vector<uint32_t>& solve_from_scratch();

  [[nodiscard]] int64_t rate(uint32_t flow) const { return flows_[flow].rate; }
  [[nodiscard]] bool active(uint32_t flow) const { return flows_[flow].active; }
  [[nodiscard]] size_t active_flows() const { return active_; }
  [[nodiscard]] int64_t load(uint32_t port) const { return ports_[port].sum; }  ///< sum of rates
  [[nodiscard]] uint32_t flows_on(uint32_t port) const {
    return static_cast<uint32_t>(ports_[port].members.size());
  }
  /// Rates computed so far, repeats included: what the solver's time goes into.
  [[nodiscard]] uint64_t rates_computed() const { return work_; }

 private:
  struct Member {
    uint32_t flow, hop;
    int64_t rate;  // of the flow, kept here for the checks of a port
  };
  struct Port {
    int64_t capacity = 0, sum = 0;
    int64_t level = -1;  // rate of the flows that it holds back; -1: none
    std::vector<Member> members;
    // While solving.
    std::vector<uint32_t> rising;  // flows of the repair that cross it
    int64_t free = 0;              // capacity that the repair may use
    int64_t share = -1;            // at which it stopped flows of the repair; -1: did not
    uint32_t left = 0;             // flows of the repair not stopped yet
    bool listed = false, dirty = false;
  };
  struct Flow {
    uint32_t first = 0, hops = 0;
    int64_t rate = 0, before = 0, next = 0;
    bool active = false, repaired = false, stopped = false, changed = false;
  };

  void touch(uint32_t port);
  void list(uint32_t port);
  void join(uint32_t flow);
  void fill();
  bool grow();
  void set_rate(Flow& f, int64_t rate);
  /// Largest rate of a port and how many flows have it.
  struct Top {
    int64_t rate = -1, count = 0;
    bool close = false;  ///< another rate is so close below that rounding decides
  };
  [[nodiscard]] Top top_of(const Port& p) const;
  bool join_above(Port& p, int64_t rate);
  [[nodiscard]] int64_t water_level(const Port& p);
  [[nodiscard]] int64_t stopping_share(const Port& p);
  const std::vector<uint32_t>& finish();

  std::vector<Port> ports_;
  std::vector<Flow> flows_;
  std::vector<uint32_t> path_;      // per flow its ports
  std::vector<uint32_t> position_;  // per flow and hop: index into members
  std::vector<uint32_t> dirty_;     // ports that something was changed on
  std::vector<uint32_t> listed_;    // ports of the repair
  std::vector<uint32_t> repair_;    // flows of the repair
  std::vector<uint32_t> fresh_;     // flows activated since the last solution
  std::vector<uint32_t> changed_, stop_;
  std::vector<int64_t> rates_;
  std::vector<std::pair<int64_t, uint32_t>> heap_;  // (share, port)
  size_t active_ = 0;
  uint64_t work_ = 0;
};

}  // namespace trainyard
