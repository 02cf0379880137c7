// SPDX-License-Identifier: MIT
// A job on a rail-optimized fabric of default parameters, packet by packet.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "network/packet/packet_fabric.h"
#include "sim/registry.h"
#include "sim/timeline.h"
#include "workload/collective_params.h"

namespace trainyard::test {

inline const DeviceCard kH100 = [] {
  DeviceCard card;
  card.name = "H100";
  card.tflops = 989.4;
  card.hbm_gbytes_per_s = 3350;
  return card;
}();

inline std::unique_ptr<ComputeModel> make_compute(const std::string& kind,
                                                  const std::string& efficiency = "1") {
  const auto& r = Registry::instance();
  Params params(r.get("compute", kind).params);
  if (params.has_spec("efficiency")) params.set("efficiency", efficiency, {});
  return r.factory<ComputeFactory>("compute", kind)(params, {kH100, "", {}});
}

class AllSpans final : public Recorder {
 public:
  void span(const Span& s) override { all.push_back(s); }
  std::vector<Span> all;
};

/// `job` must outlive it.
class OnRails {
 public:
  OnRails(const Job& job, const std::string& compute, uint32_t gpus_per_node = 8)
      : topology_(make_topology(static_cast<uint32_t>(job.ranks.size()), gpus_per_node)),
        fabric(topology_,
               make_packet_config({Params(transport_params()), "dcqcn", Params(dcqcn_params()),
                                   "ecmp", Params(ecmp_params()), Params(buffer_params()),
                                   Params(pfc_params()), Params(ecn_params()), 1})),
        compute_(make_compute(compute)),
        selector_(make_collective_selector(Params(collective_params()))),
        timeline(job, fabric, *compute_, *selector_, options(topology_)) {}

  /// Runs to the end and checks that everything balances.
  void run() {
    ASSERT_TRUE(timeline.run(&spans));
    std::vector<Completion> ignored;
    while (fabric.next_event() != Time::infinity()) fabric.advance(Time::infinity(), ignored);
    fabric.check_conservation();
    EXPECT_EQ(0U, fabric.outstanding());
    EXPECT_EQ(0U, fabric.totals().drops);
    for (const RankTimes& t : timeline.rank_times()) {
      EXPECT_EQ(timeline.end(), t.compute + t.exposed_comm + t.host + t.wait + t.idle)
          << "rank " << t.rank;
    }
  }

  /// The only span of that name on a rank that is no wait.
  [[nodiscard]] Span span(uint32_t rank, const std::string& name) const {
    Span found;
    int n = 0;
    for (const Span& s : spans.all) {
      if (s.rank != rank || s.name != name || s.kind == Span::Kind::wait) continue;
      found = s;
      ++n;
    }
    EXPECT_EQ(1, n) << "spans '" << name << "' on rank " << rank;
    return found;
  }

 private:
  static Topology make_topology(uint32_t ranks, uint32_t gpus) {
    const auto& r = Registry::instance();
    TopologyRequest request;
    request.gpus_per_node = request.nics_per_node = gpus;
    request.nodes = std::max(1U, (ranks + gpus - 1) / gpus);
    return r.factory<TopologyFactory>("topology", "rail-optimized")(
        request, Params(r.get("topology", "rail-optimized").params));
  }
  static TimelineOptions options(const Topology& t) {
    TimelineOptions o;
    o.placement.server = std::make_shared<std::vector<uint32_t>>(t.servers());
    return o;
  }
  Topology topology_;

 public:
  PacketFabric fabric;

 private:
  std::unique_ptr<ComputeModel> compute_;
  std::unique_ptr<CollectiveSelector> selector_;

 public:
  AllSpans spans;
  Timeline timeline;
};

/// Folder with the shared files, or "" when they are not here.
inline std::string shared_folder() {
  namespace fs = std::filesystem;
  std::vector<fs::path> places;
  if (const char* env = std::getenv("TRAINYARD_SHARED")) places.emplace_back(env);
  places.emplace_back(fs::path(TRAINYARD_SOURCE_DIR) / ".." / "shared");
  for (const fs::path& place : places) {
    std::error_code ec;
    if (fs::is_directory(place / "traces", ec)) return place.string();
  }
  return {};
}

}  // namespace trainyard::test
