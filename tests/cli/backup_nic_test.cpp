// SPDX-License-Identifier: MIT
// nic-down with reaction: backup-nic: who shares whose NIC, and what it costs.
#include <map>

#include "tests/cli/cli_test_util.h"

namespace trainyard::cli_test {
namespace {

/// Two servers of eight; everybody sends to the GPU of the same number in the other server. No
/// congestion control, so that shares are those of the schedulers.
std::string pair_of_servers(const std::string& topology, const std::string& traffic) {
  return "cluster: {nodes: 2, gpus_per_node: 8}\n"
         "fabric:\n"
         "  topology: {" +
         topology +
         ", nic: {rate: 100Gbps}}\n"
         "  transport: {congestion: {kind: none}, retransmit_timeout: 100us, nack_interval: 10us,\n"
         "              load_balancing: {convergence: 0ns}}\n"
         "traffic: [" +
         traffic + "]\n";
}
const char* const kRails = "kind: rail-optimized, scale_up: {kind: nvswitch, rate: 450GBps}";
const char* const kFlat = "kind: single-switch, scale_up: {kind: none}";
const char* const kSwap = "{pattern: permutation, shift: 8, size: 4MB}";

class BackupNicCli : public CliTest {
 protected:
  Outcome run(const std::string& name, const std::string& scenario,
              const std::vector<std::string>& faults, const std::vector<std::string>& more = {}) {
    std::string text = scenario;
    if (!faults.empty()) text += "faults:\n";
    for (const auto& f : faults) text += "  - {kind: nic-down, reaction: backup-nic, " + f + "}\n";
    put(name + ".yaml", text);
    std::vector<std::string> words = {"run", name + ".yaml", "-q", "--out", name};
    words.insert(words.end(), more.begin(), more.end());
    return cli(words);
  }
  /// Completion times by sender, in ns; every byte must have arrived.
  std::map<int, double> times(const std::string& name, const std::string& scenario,
                              const std::vector<std::string>& faults,
                              const std::vector<std::string>& more = {}) {
    const Outcome o = run(name, scenario, faults, more);
    EXPECT_EQ(o.code, 0) << name << ": " << o.err;
    const auto doc = result(name);
    EXPECT_EQ(doc["flows"]["delivered_count"], doc["flows"]["flow_count"]) << name;
    for (const auto& check : doc["checks"]) {
      EXPECT_TRUE(check["equal"].get<bool>() || !check["note"].get<std::string>().empty()) << check;
    }
    std::map<int, double> by_sender;
    for (const auto& row : read_csv(dir_ / name / "flows.csv")) {
      by_sender[std::stoi(row.at("src"))] = std::stod(row.at("fct_ns"));
    }
    return by_sender;
  }
  /// Bytes that run `name` sent from a node to others, by the beginnings of their names.
  double sent(const std::string& name, const std::string& from, const std::string& to) const {
    double bytes = 0;
    for (const auto& row : read_csv(dir_ / name / "links.csv")) {
      if (row.at("from").rfind(from, 0) == 0 && row.at("to").rfind(to, 0) == 0) {
        bytes += std::stod(row.at("wire_bytes"));
      }
    }
    return bytes;
  }
};

TEST_F(BackupNicCli, TheNeighboursShareOneNic) {
  for (const char* topology : {kRails, kFlat}) {
    const std::string s = pair_of_servers(topology, kSwap);
    const auto base = times("base", s, {});
    const auto lost = times("lost", s, {"where: node0.nic4"});
    for (int gpu = 0; gpu < 16; ++gpu) {
      const bool shares = gpu % 8 == 4 || gpu % 8 == 5;  // both ways
      EXPECT_NEAR(lost.at(gpu) / base.at(gpu), shares ? 2 : 1, 0.03) << topology << " " << gpu;
    }
    // No packet took the way of the lost NIC, and its neighbour's carried twice as much.
    const std::string up = topology == kRails ? "rail" : "";
    const double once = sent("lost", "node0.gpu6", up);
    EXPECT_EQ(sent("lost", "node0.gpu4", up), 0);
    EXPECT_GT(once, 4e6);
    EXPECT_NEAR(sent("lost", "node0.gpu5", up) / once, 2, 0.01);
  }
}

TEST_F(BackupNicCli, OnRailsBothEndsMove) {
  const std::string s = pair_of_servers(kRails, kSwap);
  times("lost", s, {"where: node0.nic4"});
  EXPECT_EQ(sent("lost", "rail", "node1.gpu4"), 0);
  EXPECT_GT(sent("lost", "rail", "node1.gpu5"), 8e6);
  EXPECT_EQ(sent("lost", "rail", "spine"), 0);
  // Without rails the other end stays.
  times("flat", pair_of_servers(kFlat, kSwap), {"where: node0.nic4"});
  EXPECT_GT(sent("flat", "", "node1.gpu4"), 4e6);
  // Rails that do not meet leave no other way.
  const auto only = times(
      "only", pair_of_servers("kind: rail-only, scale_up: {kind: nvswitch, rate: 450GBps}", kSwap),
      {"where: node0.nic4"});
  EXPECT_NEAR(only.at(4) / only.at(0), 2, 0.02);
  EXPECT_NEAR(only.at(12) / only.at(0), 2, 0.02);
}

TEST_F(BackupNicCli, TheNearestThatIsLeft) {
  const std::string s = pair_of_servers(kRails, kSwap);
  const auto base = times("base", s, {});
  // Both of a pair: each goes to the next pair.
  const auto two = times("two", s, {"where: 'node0.nic[0-1]'"});
  for (int gpu = 0; gpu < 16; ++gpu) {
    EXPECT_NEAR(two.at(gpu) / base.at(gpu), gpu % 8 < 4 ? 2 : 1, 0.02) << gpu;
  }
  // Three of four: the fourth carries all.
  const auto three = times("three", s, {"where: 'node0.nic[0-2]'"});
  for (int gpu = 0; gpu < 16; ++gpu) {
    EXPECT_NEAR(three.at(gpu) / base.at(gpu), gpu % 8 < 4 ? 4 : 1, 0.04) << gpu;
  }
  // All: nothing is left.
  expect_error(run("all", s, {"where: 'node0.nic*'"}, {"--set", "fabric.transport.retry_limit=2"}),
               3, {"without progress"});
}

TEST_F(BackupNicCli, DuringATransferAndBack) {
  const std::string s = pair_of_servers(kRails, "{pattern: permutation, shift: 8, size: 16MB}");
  const auto base = times("base", s, {});
  // From 400 us to 800 us two share a NIC: the owner has half of it for so long. What was lost on
  // the cable comes again.
  const auto some = times("some", s, {"where: node0.nic4, at: 400us, for: 400us"});
  EXPECT_NEAR(some.at(5) - base.at(5), 200'000, 15'000);
  EXPECT_NEAR(some.at(4) - base.at(4), 200'000, 120'000);  // and at most one timeout
  EXPECT_GT(some.at(4), base.at(4) + 190'000);
  EXPECT_NEAR(some.at(6), base.at(6), 0.002 * base.at(6));
  const auto doc = result("some");
  EXPECT_GE(doc["totals"]["reroutes"].get<int>(), 4);  // two flows, there and back
  // The end of the first backup's own NIC: on to the next.
  const auto chain =
      times("chain", s, {"where: node0.nic4, at: 400us", "where: node0.nic5, at: 600us"});
  EXPECT_GT(chain.at(6), base.at(6) + 200'000);
  EXPECT_GT(chain.at(7), base.at(7) + 200'000);
  EXPECT_NEAR(chain.at(0), base.at(0), 0.002 * base.at(0));
}

TEST_F(BackupNicCli, TheCrossingHasARateAndADelay) {
  // Alone on the backup.
  const std::string s = pair_of_servers(kRails, "{pattern: file, path: one.csv}");
  put("one.csv", "0,4,12,4000000,0\n");
  const double base = times("base", s, {}).at(4);
  const double free = times("free", s, {"where: node0.nic4, backup_delay: 0ns"}).at(4);
  EXPECT_NEAR(free, base, 1);
  // Out of one server and into the other, since on rails both ends move.
  const double late = times("late", s, {"where: node0.nic4, backup_delay: 3us"}).at(4);
  EXPECT_NEAR(late - base, 6'000, 1);
  const double slow =
      times("slow", s, {"where: node0.nic4, backup_delay: 0ns, backup_rate: 25Gbps"}).at(4);
  EXPECT_NEAR(slow / base, 4, 0.05);
  // Into a GPU without rails: its NIC holds back what the crossing does not take, and pauses.
  const std::string in = pair_of_servers(kFlat, "{pattern: file, path: two.csv}");
  put("two.csv", "0,4,12,4000000,0\n1,3,12,4000000,0\n");
  const auto before = times("in0", in, {});
  const auto two = times("in", in, {"where: node1.nic4, backup_delay: 0ns, backup_rate: 50Gbps"});
  EXPECT_NEAR(two.at(3) / before.at(3), 2, 0.03);
  EXPECT_NEAR(two.at(4) / before.at(4), 2, 0.03);
  EXPECT_GT(result("in")["totals"]["pfc_pauses"].get<int>(), 0);
  // Two queue pairs of one GPU share its crossing.
  put("out.csv", "0,4,12,4000000,0\n1,4,13,4000000,0\n");
  const std::string out = pair_of_servers(kFlat, "{pattern: file, path: out.csv}");
  times("out", out, {"where: node0.nic4, backup_delay: 0ns, backup_rate: 50Gbps"});
  for (const auto& row : read_csv(dir_ / "out" / "flows.csv")) {
    EXPECT_NEAR(std::stod(row.at("fct_ns")) / base, 4, 0.05);
  }
}

TEST_F(BackupNicCli, APlaneThatIsLeftNeedsNoBackup) {
  const std::string s =
      pair_of_servers("kind: rail-optimized, planes: 2, scale_up: {kind: nvswitch, rate: 450GBps}",
                      "{pattern: permutation, shift: 8, size: 4MB}");
  times("port", s, {"where: 'node0.nic4:port0'"});
  const double usual = sent("port", "node0.gpu6", "plane");
  EXPECT_NEAR(sent("port", "node0.gpu5", "plane") / usual, 1, 0.01);
  EXPECT_NEAR(sent("port", "node0.gpu4", "plane") / usual, 1, 0.01);
  // Both ports: its traffic is on the neighbour's.
  times("both", s, {"where: node0.nic4"});
  EXPECT_EQ(sent("both", "node0.gpu4", "plane"), 0);
  EXPECT_NEAR(sent("both", "node0.gpu5", "plane") / usual, 2, 0.02);
}

TEST_F(BackupNicCli, ARingGoesAtTheSpeedOfItsSharedNic) {
  // Eight channels, each over a NIC of its own between the servers: with one NIC lost two share.
  const std::string s =
      pair_of_servers(kRails, "{pattern: collective, collective: all-reduce, size: 64MiB}");
  const auto time = [&](const std::string& name, const std::vector<std::string>& faults) {
    const Outcome o = run(name, s, faults, {"--set", "collectives.algorithm=ring"});
    EXPECT_EQ(o.code, 0) << o.err;
    return result(name)["end_ns"].get<double>();
  };
  const double base = time("base", {});
  const double lost = time("lost", {"where: node0.nic4"});
  EXPECT_GT(lost / base, 1.8);
  EXPECT_LT(lost / base, 2.1);
}

TEST_F(BackupNicCli, WrongUse) {
  const std::string s = pair_of_servers(kRails, kSwap);
  std::string text = s + "faults: [{kind: nic-down, where: node0.nic4, backup_rate: 10Gbps}]\n";
  put("w.yaml", text);
  expect_error(cli({"run", "w.yaml", "-q", "--out", "w"}), 2,
               {"w.yaml", "backup_rate is for 'reaction: backup-nic'"});
  put("alone.yaml",
      "cluster: {nodes: 4, gpus_per_node: 1}\n"
      "fabric: {topology: {kind: single-switch, nic: {rate: 100Gbps}}}\n"
      "traffic: [{pattern: permutation, shift: 1, size: 1MB}]\n"
      "faults: [{kind: nic-down, where: node0.nic0, reaction: backup-nic}]\n");
  expect_error(cli({"run", "alone.yaml", "-q", "--out", "w"}), 2, {"no other NIC in the server"});
}

}  // namespace
}  // namespace trainyard::cli_test
