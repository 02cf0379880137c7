// SPDX-License-Identifier: MIT
// Random networks, configurations, flows and faults: every flow completes, or the run fails and
// says why; the balances hold at any moment; the same seed gives the same run.
// TRAINYARD_CHAOS sets how many runs, TRAINYARD_CHAOS_SEED the first.
#include <cmath>
#include <random>

#include "tests/network/network_test_util.h"

namespace trainyard {
namespace {

using namespace test;

/// Dice of a run: the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed * 7919 + 1) {}
  uint64_t below(uint64_t n) { return engine_() % n; }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low + 1)));
  }
  bool one_in(uint64_t n) { return below(n) == 0; }
  std::string of(const std::vector<std::string>& words) { return words[below(words.size())]; }

 private:
  std::mt19937_64 engine_;
};

/// Switches in a ring, one host each.
Topology ring(uint32_t n) {
  Topology t;
  for (uint32_t h = 0; h < n; ++h) t.add_node("host" + std::to_string(h), NodeKind::host);
  for (uint32_t s = 0; s < n; ++s) t.add_node("sw" + std::to_string(s), NodeKind::leaf);
  for (uint32_t h = 0; h < n; ++h) t.add_link(h, n + h, Rate::gbps(100), Time::us(1));
  for (uint32_t s = 0; s < n; ++s) {
    t.add_link(n + s, n + (s + 1) % n, Rate::gbps(100), Time::us(1));
  }
  t.finish();
  return t;
}

struct Case {
  Topology topology;
  Scenario scenario;
  std::vector<Transfer> transfers;
  std::vector<Time> starts;
  std::vector<FabricChange> changes;
  bool go_back_0 = false, lossless = false, cyclic = false, permanent = false;
  std::string text;
};

Case make_case(uint64_t seed) {
  Random r(seed);
  Case c;
  const auto set = [&](const std::string& name, const std::string& value) {
    c.scenario.set(name, value);
    c.text += name + "=" + value + " ";
  };
  switch (r.below(4)) {
    case 0:
      c.topology = star(static_cast<uint32_t>(r.between(2, 9)), Rate::gbps(r.one_in(2) ? 100 : 400),
                        Time::ns(r.between(1, 3000)));
      break;
    case 1:
      c.topology = two_tiers(static_cast<uint32_t>(r.between(2, 4)), 3,
                             static_cast<uint32_t>(r.between(1, 4)));
      // Around a link that is down a path may go up twice: that can deadlock.
      c.cyclic = true;
      break;
    case 2:
      c.topology = fat_tree(4);
      c.cyclic = true;
      break;
    default:
      c.topology = ring(static_cast<uint32_t>(r.between(3, 6)));
      c.cyclic = true;
  }
  set("seed", std::to_string(r.below(1000)));
  // Transport.
  const std::string recovery = r.of({"go-back-n", "go-back-0", "selective-repeat"});
  c.go_back_0 = recovery == "go-back-0";
  set("transport.loss_recovery", recovery);
  set("transport.payload", r.of({"4096B", "1000B", "333B"}));
  set("transport.retransmit_timeout", "2ms");
  set("transport.retry_limit", "20");
  set("transport.ack_interval", r.of({"1", "1", "4", "16"}));
  set("transport.nack_interval", r.of({"0ns", "50us", "500us"}));
  set("transport.queue_pairs", r.of({"persistent", "persistent", "per-message"}));
  set("transport.ack_class", r.of({"data", "control"}));
  set("transport.ack_pausable", r.of({"true", "false"}));
  set("transport.window", r.of({"none", "none", "bdp", "bdp-longest", "30000B"}));
  if (r.one_in(3)) set("transport.send_delay", "700ns");
  if (r.one_in(4)) set("transport.receive_rate", r.of({"10Gbps", "40Gbps"}));
  set("transport.receive_buffer", "2MiB");
  if (recovery == "selective-repeat") {
    set("transport.selective_window", r.of({"64", "100", "1024"}));
    set("transport.reorder_window", r.of({"1", "3", "32"}));
  }
  // Congestion.
  const std::string cc = r.of({"none", "dcqcn", "dcqcn", "hpcc", "timely", "dctcp"});
  set("congestion", cc);
  if (cc == "dcqcn") set("cc.order", r.of({"vendor", "paper", "raise-first"}));
  // Paths.
  std::string balancing = "ecmp";
  if (recovery == "selective-repeat" && r.one_in(2))
    balancing = "spray";
  else if (r.one_in(3))
    balancing = "flowlet";
  if (balancing != "ecmp") {
    set("balancing", balancing);
    set("ecmp.paths", r.of({"2", "5", "16"}));
    if (balancing == "spray") set("ecmp.choice", r.of({"random", "round-robin"}));
    if (balancing == "flowlet") set("ecmp.gap", r.of({"1us", "20us"}));
  }
  set("ecmp.qps", std::to_string(r.between(1, 4)));
  set("ecmp.convergence", r.of({"0ns", "20us", "400us"}));
  // Switch.
  const auto classes = static_cast<uint32_t>(r.between(1, 3));
  set("switch.classes", std::to_string(classes));
  set("switch.scheduler", r.of({"strict", "dwrr"}));
  set("switch.weights", r.of({"1:1:1", "3:1:2"}));
  set("switch.buffer", r.of({"12MiB", "32MiB"}));
  set("pfc.alpha", r.of({"1/8", "1/64", "1/512"}));
  const std::string mode = r.of({"dynamic", "dynamic", "static", "off"});
  c.lossless = mode != "off";
  set("pfc.mode", mode);
  if (r.one_in(2)) set("pfc.xoff", "20KB");
  set("pfc.pause", r.of({"until-resume", "quanta"}));
  set("pfc.pause_quanta", r.of({"2000", "65535"}));
  if (r.one_in(3)) {
    set("pfc.watchdog", r.of({"50us", "300us"}));
    set("pfc.watchdog_action", r.of({"drop", "forward"}));
    set("pfc.watchdog_restore", r.of({"20us", "300us"}));
  }
  if (r.one_in(3)) set("pfc.nic_watchdog", "100us");
  set("pfc.cycle_check", r.of({"off", "50us"}));
  set("ecn.mark_at", r.of({"off", "dequeue", "enqueue"}));
  set("ecn.marking", r.of({"random", "dithered"}));
  if (r.one_in(2)) {
    set("ecn.kmin", "10KB");
    set("ecn.kmax", "40KB");
  }
  // Flows.
  const auto hosts = static_cast<int64_t>(c.topology.hosts().size());
  const int64_t flows = r.between(2, 24);
  const bool incast = r.one_in(3);
  for (int64_t i = 0; i < flows; ++i) {
    Transfer t;
    t.dst = static_cast<uint32_t>(incast ? 0 : r.between(0, hosts - 1));
    do {
      t.src = static_cast<uint32_t>(r.between(0, hosts - 1));
    } while (t.src == t.dst);
    const int64_t most = c.go_back_0 ? 8'000 : 200'000;
    t.size = Bytes(r.one_in(4) ? r.between(1, 5'000) : r.between(1, most));
    t.channel = static_cast<uint32_t>(r.below(2));
    t.traffic_class = static_cast<uint8_t>(r.below(3));
    c.transfers.push_back(t);
    c.starts.push_back(Time::ns(r.one_in(3) ? 0 : r.between(0, 300'000)));
  }
  // Faults; all of them are over at 1 ms, most of the time.
  const auto links = static_cast<int64_t>(c.topology.links().size());
  const int64_t faults = r.between(0, 6);
  using Kind = FabricChange::Kind;
  std::string names;
  for (int64_t i = 0; i < faults; ++i) {
    FabricChange on;
    FabricChange off;
    switch (r.below(5)) {
      case 0:
        on.kind = Kind::link_down;
        off.kind = Kind::link_up;
        break;
      case 1:
        on.kind = off.kind = Kind::link_loss;
        on.value_q32 = static_cast<uint64_t>(r.between(1, 10)) << 22;  // 0.1 to 1 %
        if (r.one_in(4)) {
          on.value_q32 = uint64_t{1} << r.between(30, 32);
          // A lost resume would stop a link for ever, and a lost pause overflow its headroom.
          on.kinds = static_cast<uint8_t>(1 << r.below(4));
        }
        break;
      case 2:
        on.kind = off.kind = Kind::link_rate;
        on.value_q32 = (uint64_t{1} << 32) / static_cast<uint64_t>(r.between(1, 40));
        off.value_q32 = uint64_t{1} << 32;
        break;
      case 3:
        on.kind = Kind::storm_on;
        off.kind = Kind::storm_off;
        break;
      default:
        on.kind = off.kind = Kind::receive_rate;
        on.rate_bps = r.between(1, 50) * 1'000'000'000;
    }
    const bool at_host = on.kind >= Kind::receive_rate;
    on.link = off.link = static_cast<uint32_t>(r.between(0, (at_host ? hosts : links) - 1));
    on.at = Time::ns(r.between(0, 500'000));
    off.at = on.at + Time::ns(r.one_in(5) ? r.between(1, 1'000) : r.between(1'000, 500'000));
    c.changes.push_back(on);
    if (r.one_in(40)) {
      c.permanent = true;
      continue;
    }
    c.changes.push_back(off);
  }
  for (const auto& change : c.changes) {
    c.text += "\n  at " + std::to_string(change.at.ps()) + " kind " +
              std::to_string(static_cast<int>(change.kind)) + " link " +
              std::to_string(change.link) + " " + std::to_string(change.value_q32) + " " +
              std::to_string(change.rate_bps) + " " + std::to_string(change.kinds);
  }
  return c;
}

struct Result {
  uint64_t fingerprint = 0, events = 0;
  std::string error;
  FabricTotals totals;
};

/// `step`: looks at the network at least so often.
Result run_case(const Case& c, Time step) {
  PacketFabric fabric(c.topology, c.scenario.make());
  fabric.record_links(Time::us(10));
  std::vector<PauseRecord> pauses;
  fabric.record_pauses(&pauses);
  for (const auto& change : c.changes) fabric.schedule(change);
  for (size_t i = 0; i < c.transfers.size(); ++i) fabric.start(c.transfers[i], c.starts[i]);
  Result result;
  std::vector<Completion> out;
  try {
    Time limit = step;
    // A storm that never ends refreshes its pauses for ever.
    while (fabric.next_event() != Time::infinity() && (!c.permanent || fabric.outstanding() > 0)) {
      if (step == Time::infinity()) {
        fabric.advance(Time::infinity(), out);
        continue;
      }
      limit = std::max(limit, fabric.next_event());
      const size_t before = out.size();
      fabric.advance(limit, out);
      fabric.check_conservation();
      if (out.size() == before) limit = limit + step;
      if (fabric.totals().events > 3'000'000) {
        throw SimulationError("livelock: " + fabric.describe_stall());
      }
    }
    EXPECT_EQ(fabric.outstanding(), 0U) << fabric.describe_stall();
    EXPECT_EQ(out.size(), 2 * c.transfers.size());
    int64_t asked = 0;
    for (const auto& record : fabric.transfers()) {
      asked += record.bytes;
      EXPECT_GT(record.delivered, record.start);
      EXPECT_GT(record.acknowledged, record.delivered);
    }
    EXPECT_EQ(fabric.totals().payload_bytes, asked);
    fabric.check_conservation();
  } catch (const SimulationError& e) {
    result.error = e.what();
  }
  result.totals = fabric.totals();
  result.events = result.totals.events;
  result.fingerprint = fabric.fingerprint();
  return result;
}

struct Sum {
  int completed = 0, failed = 0;
  FabricTotals totals;
};

void run_chaos(uint64_t first, uint64_t count, Sum& sum) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case c = make_case(seed);
    const Result a = run_case(c, Time::us(37));
    if (a.error.rfind("livelock", 0) == 0) {
      ADD_FAILURE() << a.error << "\n" << c.text;  // without steps it would not end
      return;
    }
    const Result b = run_case(c, Time::infinity());
    EXPECT_EQ(a.fingerprint, b.fingerprint);
    EXPECT_EQ(a.events, b.events);
    EXPECT_EQ(a.error, b.error);
    FabricTotals& t = sum.totals;
    t.events += a.totals.events;
    t.drops += a.totals.drops;
    t.retransmitted += a.totals.retransmitted;
    t.timeouts += a.totals.timeouts;
    t.nacks += a.totals.nacks;
    t.pfc_pauses += a.totals.pfc_pauses;
    t.pfc_refreshes += a.totals.pfc_refreshes;
    t.watchdog_events += a.totals.watchdog_events;
    t.reroutes += a.totals.reroutes;
    t.cyclic_waits += a.totals.cyclic_waits;
    t.out_of_order += a.totals.out_of_order;
    t.ecn_marks += a.totals.ecn_marks;
    t.rate_changes += a.totals.rate_changes;
    if (a.error.empty()) {
      ++sum.completed;
    } else {
      ++sum.failed;
      // Legitimate ends: a deadlock in a fabric that allows one, or what never recovers. Each is
      // named.
      const auto says = [&](const char* word) { return a.error.find(word) != std::string::npos; };
      // Go-back-0 with a window below the ACK interval begins every message anew for ever.
      const bool starved = c.text.find("loss_recovery=go-back-0") != std::string::npos &&
                           c.text.find("ack_interval=1 ") == std::string::npos;
      const bool legitimate =
          says("retransmission timeouts without progress") &&
          (c.permanent || starved || (c.lossless && c.cyclic && says("deadlock")));
      EXPECT_TRUE(legitimate) << a.error << "\n" << c.text;
    }
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << c.text;
      return;
    }
  }
}

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void report(const Sum& sum) {
  const FabricTotals& t = sum.totals;
  std::printf(
      "%d completed, %d failed by name; %lu events, %lu drops, %lu repeats, %lu timeouts, %lu "
      "NACKs, %lu pauses, %lu refreshes, %lu watchdogs, %lu reroutes, %lu cyclic waits, %lu out "
      "of order, %lu marks, %lu rate changes\n",
      sum.completed, sum.failed, t.events, t.drops, t.retransmitted, t.timeouts, t.nacks,
      t.pfc_pauses, t.pfc_refreshes, t.watchdog_events, t.reroutes, t.cyclic_waits, t.out_of_order,
      t.ecn_marks, t.rate_changes);
}

TEST(Chaos, EveryFlowCompletesOrSaysWhyNot) {
  Sum sum;
  run_chaos(from_environment("TRAINYARD_CHAOS_SEED", 1), from_environment("TRAINYARD_CHAOS", 400),
            sum);
  report(sum);
  if (sum.completed + sum.failed < 400) return;
  // The cases are worth something only if all of it happens.
  EXPECT_GT(sum.completed, 10 * sum.failed);
  const FabricTotals& t = sum.totals;
  for (const uint64_t n :
       {t.drops, t.retransmitted, t.timeouts, t.nacks, t.pfc_pauses, t.pfc_refreshes,
        t.watchdog_events, t.reroutes, t.out_of_order, t.ecn_marks, t.rate_changes}) {
    EXPECT_GT(n, 0U);
  }
}

TEST(Chaos, slow_ThreeThousandRuns) {
  Sum sum;
  run_chaos(10'000, 3'000, sum);
  report(sum);
}

}  // namespace
}  // namespace trainyard
