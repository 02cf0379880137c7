// SPDX-License-Identifier: MIT
// Small networks, packet configurations and runs for the tests of network/.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "network/packet/packet_fabric.h"
#include "network/topology.h"
#include "sim/errors.h"
#include "sim/registry.h"

namespace trainyard::test {

// --- errors -----------------------------------------------------------------------------------

/// `what()` of the exception that `body` throws; a failed expectation when it throws none.
template <class Error, class Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

inline void expect_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
  }
}

// --- topologies -------------------------------------------------------------------------------

using Settings = std::vector<std::pair<std::string, std::string>>;

/// A registered topology with some parameters set.
inline Topology make_topology(const std::string& kind, const TopologyRequest& request,
                              const Settings& settings) {
  const auto& registry = Registry::instance();
  Params params(registry.get("topology", kind).params);
  for (const auto& [name, text] : settings) params.set(name, text, {});
  return registry.factory<TopologyFactory>("topology", kind)(request, params);
}

/// `hosts` on one switch.
inline Topology star(uint32_t hosts, Rate rate = Rate::gbps(100), Time delay = Time::us(1),
                     double loss = 0) {
  Topology t;
  for (uint32_t h = 0; h < hosts; ++h) t.add_node("host" + std::to_string(h), NodeKind::host);
  const uint32_t leaf = t.add_node("leaf0", NodeKind::leaf);
  for (uint32_t h = 0; h < hosts; ++h) t.add_link(h, leaf, rate, delay, loss);
  t.finish();
  return t;
}

/// `leaves` x `hosts_per_leaf` hosts, every leaf connected to every spine.
inline Topology two_tiers(uint32_t leaves, uint32_t hosts_per_leaf, uint32_t spines,
                          Rate rate = Rate::gbps(100), Time delay = Time::us(1)) {
  Topology t;
  const uint32_t hosts = leaves * hosts_per_leaf;
  for (uint32_t h = 0; h < hosts; ++h) t.add_node("host" + std::to_string(h), NodeKind::host);
  for (uint32_t l = 0; l < leaves; ++l) t.add_node("leaf" + std::to_string(l), NodeKind::leaf);
  for (uint32_t s = 0; s < spines; ++s) t.add_node("spine" + std::to_string(s), NodeKind::spine);
  for (uint32_t h = 0; h < hosts; ++h) t.add_link(h, hosts + h / hosts_per_leaf, rate, delay);
  for (uint32_t l = 0; l < leaves; ++l) {
    for (uint32_t s = 0; s < spines; ++s) {
      t.add_link(hosts + l, hosts + leaves + s, rate, delay);
    }
  }
  t.finish();
  return t;
}

/// Three-tier fat tree of k-port switches: k^3/4 hosts, k^2/2 edge and aggregation switches each
/// k/2 per pod, k^2/4 cores. Aggregation switch j of every pod has the cores j*k/2 .. j*k/2+k/2-1.
inline Topology fat_tree(uint32_t k) {
  const uint32_t half = k / 2;
  const uint32_t hosts = k * half * half;
  const uint32_t edges = k * half;
  Topology t;
  for (uint32_t h = 0; h < hosts; ++h) t.add_node("host" + std::to_string(h), NodeKind::host);
  for (uint32_t e = 0; e < edges; ++e) t.add_node("edge" + std::to_string(e), NodeKind::leaf);
  for (uint32_t a = 0; a < edges; ++a) t.add_node("agg" + std::to_string(a), NodeKind::spine);
  for (uint32_t c = 0; c < half * half; ++c) {
    t.add_node("core" + std::to_string(c), NodeKind::spine);
  }
  const Rate rate = Rate::gbps(100);
  const Time delay = Time::us(1);
  for (uint32_t h = 0; h < hosts; ++h) t.add_link(h, hosts + h / half, rate, delay);
  for (uint32_t e = 0; e < edges; ++e) {
    for (uint32_t j = 0; j < half; ++j) {
      t.add_link(hosts + e, hosts + edges + e / half * half + j, rate, delay);
    }
  }
  for (uint32_t a = 0; a < edges; ++a) {
    for (uint32_t j = 0; j < half; ++j) {
      t.add_link(hosts + edges + a, hosts + 2 * edges + a % half * half + j, rate, delay);
    }
  }
  t.finish();
  return t;
}

/// A text file that lives as long as the object.
class TempFile {
 public:
  explicit TempFile(const std::string& text) {
    static int counter = 0;
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(::testing::TempDir()) /
            (std::string("trainyard_") + info->test_suite_name() + "_" + info->name() + "_" +
             std::to_string(getpid()) + "_" + std::to_string(++counter) + ".txt");
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TempFile() {
    std::error_code ec;
    std::filesystem::remove(path_, ec);
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline Topology load_topology(const std::string& path) {
  return make_topology("file", {}, {{"path", path}});
}
inline Topology read_topology(const std::string& text) {
  const TempFile file(text);
  return load_topology(file.path());
}

// --- configuration and runs -------------------------------------------------------------------

/// The blocks of a scenario, set by "block.name". Starts as production defaults without
/// congestion control.
class Scenario {
 public:
  Scenario() = default;
  explicit Scenario(const Settings& settings) {
    for (const auto& [name, text] : settings) set(name, text);
  }
  Scenario& set(const std::string& name, const std::string& text) {
    if (name == "congestion") {
      congestion_ = text;
      if (text != "none" && text != "dcqcn") {
        blocks_.at("cc") = Params(Registry::instance().get("congestion", text).params);
      }
      return *this;
    }
    if (name == "balancing") {
      balancing_ = text;
      blocks_.at("ecmp") = Params(Registry::instance().get("load_balancing", text).params);
      return *this;
    }
    if (name == "seed") {
      seed_ = std::stoull(text);
      return *this;
    }
    const size_t dot = name.find('.');
    blocks_.at(name.substr(0, dot)).set(name.substr(dot + 1), text, {});
    return *this;
  }
  [[nodiscard]] PacketConfig make() const {
    return make_packet_config({blocks_.at("transport"), congestion_, blocks_.at("cc"), balancing_,
                               blocks_.at("ecmp"), blocks_.at("switch"), blocks_.at("pfc"),
                               blocks_.at("ecn"), seed_});
  }

 private:
  std::map<std::string, Params> blocks_{{"transport", Params(transport_params())},
                                        {"cc", Params(dcqcn_params())},
                                        {"ecmp", Params(ecmp_params())},
                                        {"switch", Params(buffer_params())},
                                        {"pfc", Params(pfc_params())},
                                        {"ecn", Params(ecn_params())}};
  std::string congestion_ = "none", balancing_ = "ecmp";
  uint64_t seed_ = 1;
};

/// HPCC ns-3's sizes: 1000 B payload, 48 B header, 60 B ACK.
inline Scenario hpcc_sizes() {
  return Scenario(
      {{"transport.payload", "1000B"}, {"transport.header", "48B"}, {"transport.ack_size", "60B"}});
}

/// Packets of 1000 B without a header, timeouts of 100 us: figures that can be counted by hand.
inline Scenario bare(const Settings& more = {}) {
  Scenario s({{"transport.payload", "1000B"},
              {"transport.header", "0B"},
              {"transport.ack_size", "60B"},
              {"transport.retransmit_timeout", "100us"},
              {"transport.retry_limit", "100"}});
  for (const auto& [name, text] : more) s.set(name, text);
  return s;
}

struct Flow {
  uint32_t src = 0, dst = 0;
  int64_t bytes = 0;
  Time start;
  uint32_t channel = 0;
};

inline TransferId start(PacketFabric& fabric, const Flow& f) {
  Transfer t;
  t.src = f.src;
  t.dst = f.dst;
  t.size = Bytes(f.bytes);
  t.channel = f.channel;
  return fabric.start(t, f.start);
}

/// A change of one link.
inline FabricChange change(FabricChange::Kind kind, uint32_t link, int64_t at_ps,
                           uint64_t value = 0) {
  FabricChange c;
  c.kind = kind;
  c.link = link;
  c.at = Time::ps(at_ps);
  c.value_q32 = value;
  return c;
}

/// Everything of `kinds` on `link` is lost if it arrives in [from, to].
inline void lose(PacketFabric& fabric, uint32_t link, int64_t from_ps, int64_t to_ps,
                 uint8_t kinds) {
  FabricChange on = change(FabricChange::Kind::link_loss, link, from_ps, uint64_t{1} << 32);
  on.kinds = kinds;
  fabric.schedule(on);
  fabric.schedule(change(FabricChange::Kind::link_loss, link, to_ps + 1));
}

/// Runs until nothing is left to happen, timers included, and checks the balances.
inline std::vector<Completion> drain(PacketFabric& fabric) {
  std::vector<Completion> out;
  while (fabric.next_event() != Time::infinity()) fabric.advance(Time::infinity(), out);
  EXPECT_EQ(fabric.outstanding(), 0U) << fabric.describe_stall();
  fabric.check_conservation();
  const FabricTotals t = fabric.totals();
  EXPECT_EQ(t.pfc_pauses, t.pfc_resumes);
  int64_t asked = 0;
  for (const auto& r : fabric.transfers()) {
    asked += r.bytes;
    EXPECT_GT(r.delivered, r.start);
    EXPECT_GT(r.acknowledged, r.delivered);
  }
  EXPECT_EQ(t.payload_bytes, asked);
  return out;
}

struct Outcome {
  std::vector<TransferRecord> records;
  std::vector<Completion> completions;
  std::vector<RateEvent> rates;
  std::vector<LinkRecord> links;
  FabricTotals totals;
  uint64_t fingerprint = 0;
};

inline Outcome outcome_of(PacketFabric& fabric) {
  Outcome o;
  o.records = fabric.transfers();
  o.links = fabric.links();
  o.totals = fabric.totals();
  o.fingerprint = fabric.fingerprint();
  return o;
}

inline Outcome run(const Topology& topology, const PacketConfig& config,
                   const std::vector<Flow>& flows) {
  PacketFabric fabric(topology, config);
  std::vector<RateEvent> rates;
  fabric.record_rates(&rates);
  for (const Flow& f : flows) start(fabric, f);
  auto completions = drain(fabric);
  Outcome o = outcome_of(fabric);
  o.completions = std::move(completions);
  o.rates = std::move(rates);
  return o;
}

/// Flow completion time up to the last ACK.
inline int64_t fct_ps(const TransferRecord& r) {
  return (r.acknowledged - r.start).ps();
}

inline const LinkRecord& link_between(const Outcome& o, const std::string& from,
                                      const std::string& to) {
  for (const auto& l : o.links) {
    if (l.from == from && l.to == to) return l;
  }
  throw std::runtime_error("no link from " + from + " to " + to);
}

inline void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.fingerprint, b.fingerprint);
  EXPECT_EQ(a.totals.events, b.totals.events);
  EXPECT_EQ(a.totals.transmissions, b.totals.transmissions);
  EXPECT_EQ(a.totals.ecn_marks, b.totals.ecn_marks);
  ASSERT_EQ(a.records.size(), b.records.size());
  for (size_t i = 0; i < a.records.size(); ++i) {
    EXPECT_EQ(a.records[i].delivered, b.records[i].delivered) << i;
    EXPECT_EQ(a.records[i].acknowledged, b.records[i].acknowledged) << i;
    EXPECT_EQ(a.records[i].transmissions, b.records[i].transmissions) << i;
    EXPECT_EQ(a.records[i].cnps, b.records[i].cnps) << i;
  }
}

// --- shared files -----------------------------------------------------------------------------

/// A path under the shared folder (TRAINYARD_SHARED, or shared/ beside the source tree); "" when
/// it is not there.
inline std::string shared_path(const std::string& relative) {
  namespace fs = std::filesystem;
  std::vector<fs::path> places;
  if (const char* env = std::getenv("TRAINYARD_SHARED")) places.emplace_back(env);
  places.emplace_back(fs::path(TRAINYARD_SOURCE_DIR) / ".." / "shared");
  for (const fs::path& place : places) {
    std::error_code ec;
    if (fs::exists(place / relative, ec)) return (place / relative).string();
  }
  return {};
}

/// Rows of a CSV file without quotes, by column name.
inline std::vector<std::map<std::string, std::string>> read_csv(const std::string& path) {
  const auto split = [](std::string line) {
    while (!line.empty() && line.back() == '\r') line.pop_back();
    std::vector<std::string> cells;
    std::istringstream in(line);
    std::string cell;
    while (std::getline(in, cell, ',')) cells.push_back(cell);
    return cells;
  };
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  const auto header = split(line);
  std::vector<std::map<std::string, std::string>> rows;
  while (std::getline(in, line)) {
    const auto cells = split(line);
    auto& row = rows.emplace_back();
    for (size_t i = 0; i < header.size() && i < cells.size(); ++i) row[header[i]] = cells[i];
  }
  return rows;
}

}  // namespace trainyard::test
