// SPDX-License-Identifier: MIT
// Routes that a sender or a controller chooses instead of the hash of ECMP: routes pinned one by
// one, and rules over the equal shortest paths. They are for data; ACKs and CNPs go back by the
// hash.
//
// A rule gives a queue pair the number of a path when it opens; it keeps the number. Paths are
// numbered by Routing::path_by_number(). While links are down the number counts among the paths
// that are left.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "network/routing.h"
#include "network/topology.h"

namespace trainyard {

enum class RouteRule : uint8_t {
  hash,         ///< ECMP
  modulo,       ///< (rank of source + rank of destination + number of the queue pair) mod paths
  round_robin,  ///< NICs and switches deal out their equal next hops as queue pairs open
  least_used    ///< the path over whose links the fewest queue pairs were sent so far
};

/// A route for queue pairs from some hosts to some hosts.
struct PinnedRoute {
  std::string from, to;  ///< hosts, as in network/topology_select.h
  int64_t qp = -1;       ///< the n-th queue pair of two ranks; -1: all
  std::vector<std::string>
      via;            ///< switches or cables on the way, in order; shortest paths between
  int64_t path = -1;  ///< or the number of an equal shortest path
  SourcePos pos;
};

struct SourceRoutesConfig {
  RouteRule rule = RouteRule::hash;  ///< for whom no route is pinned
  std::vector<PinnedRoute> pinned;   ///< the first that fits holds
};

/// Rows `from,to,qp,via` of a file: qp is a number or empty (all); via has names separated by
/// blanks, or is the number of a path. Commas in brackets do not separate. '#' begins a comment;
/// a first row "from,to,qp,via" is a heading. Throws UserError with file and line; at `pos` when
/// the file cannot be read.
std::vector<PinnedRoute> read_pinned_routes(const std::string& file, const SourcePos& pos);

class SourceRoutes {
 public:
  /// `topology` must outlive it. Throws UserError at the place of a pinned route that does not
  /// exist: unknown names, switches that no path joins, a node passed twice, a number too high.
  /// Of a route for more than 4096 pairs of hosts the first 4096 are checked, the others on use.
  SourceRoutes(const Topology& topology, const RoutingConfig& routing, SourceRoutesConfig config);

  /// Directed ports for a queue pair, appended to `path`, on the fabric as `routing` knows it:
  /// the pinned route if all its links are up, else one by the rule; by the hash where a pinned
  /// route has failed. As Routing::path() where there is none.
  void path(Routing& routing, const FlowTuple& tuple, std::vector<uint32_t>& path);

 private:
  struct Pin {
    std::vector<uint32_t> to;  // hosts, ascending
    /// Between switches: the waypoints. `port`: a cable to be crossed, in either direction.
    struct Waypoint {
      uint32_t node = UINT32_MAX, link = UINT32_MAX;
    };
    std::vector<Waypoint> via;
  };
  struct Key {
    uint64_t pair;
    uint32_t qp;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const { return k.pair * 0x9e3779b97f4a7c15ULL + k.qp; }
  };

  const std::vector<uint32_t>* pinned(const FlowTuple& tuple, uint32_t qp);
  std::vector<uint32_t> build(uint32_t pin, const FlowTuple& tuple);
  uint64_t choose(Routing& routing, const FlowTuple& tuple, uint32_t qp);

  const Topology* topology_;
  SourceRoutesConfig config_;
  std::vector<Pin> pins_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> pins_of_;  // by source host, ascending
  std::unique_ptr<Routing> as_built_;                            // null without pins
  std::map<std::pair<uint32_t, uint64_t>, std::vector<uint32_t>> built_;  // (pin, pair)
  std::unordered_map<uint32_t, uint32_t> rank_;                           // of a host, for modulo
  std::unordered_map<Key, uint64_t, KeyHash> chosen_;
  std::unordered_map<uint32_t, uint64_t> turns_;  // Routing::number_in_turn()
  std::unordered_map<uint32_t, uint32_t> used_;   // queue pairs per directed port
};

}  // namespace trainyard
