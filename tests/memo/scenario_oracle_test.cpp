// SPDX-License-Identifier: MIT
// Every scenario of scenarios/ on the exact fast path against one domain that holds everything:
// fingerprints, step times, every counter of every link, flow and collective. A scenario without a
// row here fails; one that the fast path declines has its reason here. Large ones are made smaller;
// what is left of them then is what their row says. Slow rows run with tools/test --all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/memo/result_difference.h"
#include "tools/scenario/run.h"

namespace trainyard::test {
namespace {

namespace fs = std::filesystem;

struct Row {
  const char* name;      ///< of the test
  const char* scenario;  ///< below scenarios/
  std::vector<std::string> settings;
  bool slow = false;
};

/// As it is, the fast path leaves every packet of these to the packet engine.
struct Declined {
  const char* scenario;
  const char* reason;
};

const std::vector<Declined>& declined() {
  static const std::vector<Declined> all = {
      {"golden/one-flow.yaml", "queue pairs of a message each"},
      {"golden/one-flow-window.yaml", "queue pairs of a message each"},
      {"golden/incast-step.yaml", "queue pairs of a message each"},
      {"golden/incast-window.yaml", "queue pairs of a message each"},
      {"golden/incast-pfc-only.yaml", "queue pairs of a message each"},
      {"golden/incast-hpcc.yaml", "queue pairs of a message each"},
      {"golden/incast-dcqcn.yaml", "queue pairs of a message each"},
      {"golden/incast-dcqcn-slow.yaml", "queue pairs of a message each"},
      {"golden/dumbbell-step.yaml", "queue pairs of a message each"},
      {"golden/dumbbell-window.yaml", "queue pairs of a message each"},
      {"golden/dumbbell-pfc-only.yaml", "queue pairs of a message each"},
      {"bench/incast.yaml", "queue pairs of a message each"},
      {"published/spray.yaml", "selective repeat"},
      {"routes/pinned.yaml", "source routes"},
      {"validation/dual-plane.yaml", "source routes"},
      {"published/convergence.yaml", "telemetry is asked for"},
      {"published/bad-defaults.yaml", "telemetry is asked for"},
  };
  return all;
}

const std::vector<Row>& rows() {
  const std::vector<std::string> no_links = {"output.telemetry.links=off"};
  // Every flow has a queue pair of its own either way.
  const std::vector<std::string> lasting = {"fabric.transport.queue_pairs=persistent"};
  // A few layers of a few tokens.
  const std::vector<std::string> tiny = {
      "workload.model={layers: 4, hidden: 1024, heads: 16, vocab: 2048}",
      "workload.batch.sequence=64", "workload.batch.global=4"};
  const auto with = [](std::vector<std::string> a, const std::vector<std::string>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  static const std::vector<Row> all = {
      {"quickstart", "quickstart.yaml", {}},
      {"trace_on_rails", "trace-on-rails.yaml", {}},
      {"one_flow", "golden/one-flow.yaml", lasting},
      {"one_flow_window", "golden/one-flow-window.yaml", lasting},
      {"incast_step", "golden/incast-step.yaml", lasting},
      {"incast_window", "golden/incast-window.yaml", lasting},
      {"incast_pfc_only", "golden/incast-pfc-only.yaml", lasting},
      {"incast_hpcc", "golden/incast-hpcc.yaml", lasting},
      {"incast_dcqcn", "golden/incast-dcqcn.yaml", lasting},
      {"incast_dcqcn_50us", "golden/incast-dcqcn-slow.yaml", lasting},
      {"dumbbell_step", "golden/dumbbell-step.yaml", lasting},
      {"dumbbell_window", "golden/dumbbell-window.yaml", lasting},
      {"dumbbell_pfc_only", "golden/dumbbell-pfc-only.yaml", lasting},
      {"storm", "published/storm.yaml", {}},
      {"incast_64", "published/incast-64.yaml", {}},
      {"incast_1000", "published/incast-1000.yaml", {}},
      {"livelock", "published/livelock.yaml", {}},
      {"livelock_go_back_n",
       "published/livelock.yaml",
       {"fabric.transport.loss_recovery=go-back-n"}},
      {"interference_exchange", "published/interference-exchange.yaml", {}},
      {"interference_ring", "published/interference-ring.yaml", {}},
      {"interference", "published/interference.yaml", {}},
      {"convergence", "published/convergence.yaml", no_links},
      {"bad_defaults", "published/bad-defaults.yaml", no_links},
      {"slow_victim_alone", "published/victim-alone.yaml", {}, true},
      {"slow_victim", "published/victim.yaml", {}, true},
      {"slow_victim_dcqcn",
       "published/victim.yaml",
       {"fabric.transport.congestion.kind=dcqcn"},
       true},
      {"unfairness", "published/unfairness.yaml", {}},
      {"polarised", "published/polarised.yaml", {}},
      {"admission",
       "published/admission.yaml",
       {"traffic=[{pattern: collective, collective: "
        "all-to-all, size: 1MiB}]"}},
      {"slow_admission", "published/admission.yaml", {}, true},
      {"bench_incast", "bench/incast.yaml", lasting},
      {"bench_windows",
       "bench/windows.yaml",
       {"traffic=[{pattern: incast, dst: 0, fan_in: 8, size: 20MB}]"}},
      {"slow_bench_windows", "bench/windows.yaml", {}, true},
      {"bench_ring",
       "bench/ring.yaml",
       {"traffic=[{pattern: collective, collective: all-reduce, size: 256KiB}]"}},
      {"slow_bench_ring",
       "bench/ring.yaml",
       {"traffic=[{pattern: collective, collective: all-reduce, size: 16MiB}]"},
       true},
      {"dense_128", "bench/dense_128.yaml", tiny},
      {"slow_dense_128",
       "bench/dense_128.yaml",
       {"workload.model={card: gpt3-13b, layers: 8}"},
       true},
      // Leaves of eight servers instead of 64, so that rails have several.
      {"dense_1024", "bench/dense_1024.yaml",
       with(tiny, {"cluster.nodes=16", "fabric.topology.leaf_radix=16"})},
      {"slow_dense_1024",
       "bench/dense_1024.yaml",
       {"workload.model={card: gpt3-7b, layers: 4}", "workload.batch.global=32",
        "workload.batch.sequence=256"},
       true},
      {"moe_128",
       "bench/moe_128.yaml",
       {"workload.model={card: mixtral-8x7b, layers: 2, hidden: 512, ffn: 1024, vocab: 2048}",
        "workload.batch.sequence=64"}},
      {"moe_1024",
       "bench/moe_1024.yaml",
       {"cluster.nodes=16",
        "workload.model={card: mixtral-8x22b, layers: 2, hidden: 768, ffn: 1024, vocab: 2048}",
        "workload.batch.global=16", "workload.batch.sequence=64"}},
      {"slow_moe_128",
       "bench/moe_128.yaml",
       {"workload.model={card: mixtral-8x7b, layers: 4}", "workload.batch.sequence=1024"},
       true},
      {"tenants_128", "bench/tenants_128.yaml", tiny},
      {"slow_tenants_128",
       "bench/tenants_128.yaml",
       {"workload.model={card: gpt3-7b, layers: 8}"},
       true},
      // Faults earlier, because the step is shorter.
      {"faults_128", "bench/faults_128.yaml",
       with(
           tiny,
           {"faults=[{at: 20us, kind: gpu-slow, where: rank9, factor: 1.5, for: 60us}, {at: 200us, "
            "kind: link-flap, where: node5.nic2, period: 20us, duty: 30%, count: 2}, {at: 280us, "
            "kind: link-degrade, where: node3.nic1, rate: 50%, for: 30us}]"})},
      {"slow_faults_128", "bench/faults_128.yaml", {}, true},
      {"llama405b",
       "bench/llama405b.yaml",
       {"cluster.nodes=16",
        "workload.model={card: llama3-405b, layers: 4, hidden: 1024, ffn: 2048, vocab: 2048}",
        "workload.layout={tp: 8, pp: 4, dp: auto, zero: 1, order: tp-cp-ep-pp-dp, "
        "sequence_parallel: true}",
        "workload.batch={global: 4, micro: 1, sequence: 64}"}},
      {"mixtral_nic_rate",
       "validation/mixtral-nic-rate.yaml",
       {"workload.model={card: mixtral-8x22b, layers: 1, hidden: 768, ffn: 1024, vocab: 2048}",
        "workload.batch={global: 8, micro: 1, sequence: 64}"}},
      {"slow_mixtral_nic_rate",
       "validation/mixtral-nic-rate.yaml",
       {"workload.batch={global: 16, micro: 1, sequence: 1024}"},
       true},
      {"scale_up_out",
       "validation/scale-up-out.yaml",
       {"cluster.nodes=2", "workload.layout.ep=2",
        "workload.model={layers: 1, hidden: 1152, heads: 18, vocab: 2304, experts: 8, topk: 2}",
        "workload.batch={global: 4, micro: 1, sequence: 72}"}},
      {"scale_up_dense",
       "validation/scale-up-dense.yaml",
       {"workload.model={layers: 1, hidden: 1152, heads: 18, vocab: 2304}",
        "workload.batch={global: 4, micro: 1, sequence: 72}"}},
      {"zero3_against_ptdp",
       "validation/zero3-against-ptdp.yaml",
       {"cluster.nodes=2", "workload.layout.pp=2", "workload.model={card: gpt3-175b, layers: 2}",
        "workload.batch={global: 4, micro: 1, sequence: 64}"}},
  };
  return all;
}

Result run_row(const std::string& scenario, const std::vector<std::string>& settings,
               const std::vector<std::string>& more) {
  ScenarioOverrides overrides;
  overrides.settings = settings;
  overrides.settings.insert(overrides.settings.end(), more.begin(), more.end());
  return run_scenario(
      load_scenario(std::string(TRAINYARD_SOURCE_DIR) + "/scenarios/" + scenario, overrides));
}

class ScenarioOracle : public testing::TestWithParam<size_t> {};

TEST_P(ScenarioOracle, Same) {
  const Row& row = rows()[GetParam()];
  const std::string exact = "simulation.fast_path=exact";
  const Result off = run_row(row.scenario, row.settings, {exact, "simulation.domains=off"});
  const Result on = run_row(row.scenario, row.settings, {exact});
  ASSERT_TRUE(on.fast_path.has_value())
      << "declined: " << (on.warnings.empty() ? "" : on.warnings.back());
  ASSERT_TRUE(off.fast_path.has_value());
  EXPECT_EQ(result_difference(off, on), "");
  EXPECT_GT(off.totals.transmissions, 0U);
  const FastPathStats& f = *on.fast_path;
  std::printf(
      "%s: end %lld ns, %llu transmissions, %llu drops, events %llu against %llu; %llu domains, "
      "%llu "
      "followed, %llu jumps, %llu materialised, %llu merges, %llu disturbances\n",
      row.name, static_cast<long long>(off.end.ps() / 1000),
      static_cast<unsigned long long>(off.totals.transmissions),
      static_cast<unsigned long long>(off.totals.drops),
      static_cast<unsigned long long>(off.totals.events),
      static_cast<unsigned long long>(on.totals.events), static_cast<unsigned long long>(f.domains),
      static_cast<unsigned long long>(f.followed), static_cast<unsigned long long>(f.jumps),
      static_cast<unsigned long long>(f.materialised), static_cast<unsigned long long>(f.merges),
      static_cast<unsigned long long>(f.disturbances));
}

INSTANTIATE_TEST_SUITE_P(Scenarios, ScenarioOracle, testing::Range(size_t{0}, rows().size()),
                         [](const testing::TestParamInfo<size_t>& test) {
                           return std::string(rows()[test.param].name);
                         });

TEST(ScenarioOracleTable, DeclinedOnesSayWhy) {
  for (const Declined& d : declined()) {
    const Result r =
        run_row(d.scenario, {}, {"simulation.fast_path=exact", "simulation.until=1us"});
    EXPECT_FALSE(r.fast_path.has_value()) << d.scenario;
    const bool said = std::any_of(r.warnings.begin(), r.warnings.end(), [&](const std::string& w) {
      return w.find(std::string("declines: ") + d.reason) != std::string::npos;
    });
    EXPECT_TRUE(said) << d.scenario << " does not say '" << d.reason << "'";
    std::printf("declined: %s: %s\n", d.scenario, d.reason);
  }
}

TEST(ScenarioOracleTable, EveryScenarioHasARow) {
  std::set<std::string> known;
  for (const Row& r : rows()) known.insert(r.scenario);
  for (const Declined& d : declined()) known.insert(d.scenario);
  const fs::path folder = fs::path(TRAINYARD_SOURCE_DIR) / "scenarios";
  size_t found = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string name = fs::relative(entry.path(), folder).string();
    ++found;
    EXPECT_EQ(known.count(name), 1U) << name << " has no row in " << __FILE__;
    known.erase(name);
  }
  EXPECT_GT(found, 30U);
  for (const std::string& name : known) ADD_FAILURE() << "there is no scenarios/" << name;
}

}  // namespace
}  // namespace trainyard::test
