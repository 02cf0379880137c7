// SPDX-License-Identifier: MIT
// Several jobs on one fabric: where they are, when they begin, what they do to each other.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/report/analysis.h"
#include "tools/report/report.h"
#include "tools/scenario/run.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Two servers of four GPUs below each of two leaves, a trunk of 2 x 100 Gb/s between them.
const char* const kFabric =
    "cluster: {nodes: 4, gpus_per_node: 2}\n"
    "fabric:\n"
    "  topology: {kind: leaf-spine, leaf_radix: 6, oversubscription: 2, nic: {rate: 100Gbps}, "
    "scale_up: {kind: none}}\n"
    "  transport: {preset: rocev2}\n"
    "  switch: {classes: 2}\n";
const char* const kWorkload =
    "workload: {model: {layers: 1, hidden: 512, heads: 8, vocab: 1024}, layout: {dp: 4}, "
    "batch: {global: 4, sequence: 128}}";

std::string job(const std::string& name, const std::string& more = "") {
  return "  - {name: " + name + ", " + more + (more.empty() ? "" : ", ") + kWorkload + "}\n";
}

class Jobs : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("trainyard_jobs_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  Scenario load(const std::string& text) {
    std::ofstream(folder_ / "s.yaml") << text;
    return load_scenario((folder_ / "s.yaml").string());
  }
  Result run(const std::string& jobs, const std::string& more = "") {
    Result r = run_scenario(load(kFabric + ("jobs:\n" + jobs) + more));
    EXPECT_TRUE(r.complete) << r.incomplete_reason;
    return r;
  }
  std::string problem(const std::string& text) {
    try {
      (void)run_scenario(load(text));
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  }
  fs::path folder_;
};

TEST_F(Jobs, OneIsTheSameAsAWorkload) {
  const Result one = run(job("only"));
  const Result plain = run_scenario(load(std::string(kFabric) + kWorkload + "\n"));
  EXPECT_EQ(plain.fingerprint, one.fingerprint);
  ASSERT_EQ(1U, one.jobs.size());
  EXPECT_EQ(plain.step_time, one.jobs[0].end);
  EXPECT_TRUE(plain.jobs.empty());
  // All figures of a training job are there, under the job.
  ASSERT_EQ(plain.training.size(), one.jobs[0].training.size());
  for (size_t i = 0; i < plain.training.size(); ++i) {
    EXPECT_EQ(plain.training[i].key, one.jobs[0].training[i].key);
    EXPECT_DOUBLE_EQ(plain.training[i].value, one.jobs[0].training[i].value);
  }
  EXPECT_EQ(plain.energy.size(), one.jobs[0].energy.size());
}

TEST_F(Jobs, ListsChooseFirst) {
  const Result r = run(job("a") + job("b", "placement: [node1, node0.gpu1, node3.gpu0]"));
  EXPECT_EQ("node0.gpu0 to node3.gpu1", r.jobs[0].gpus);
  EXPECT_EQ("node1.gpu0 to node3.gpu0", r.jobs[1].gpus);
  const std::vector<std::string> expected = {"node0.gpu0", "node2.gpu0", "node2.gpu1",
                                             "node3.gpu1", "node1.gpu0", "node1.gpu1",
                                             "node0.gpu1", "node3.gpu0"};
  EXPECT_EQ(expected, r.endpoint_names);
}

TEST_F(Jobs, TimesCountFromTheStart) {
  const Result r = run(job("a") + job("b", "start: 50ms"));
  ASSERT_EQ(2U, r.jobs.size());
  EXPECT_EQ("node0.gpu0 to node1.gpu1", r.jobs[0].gpus);
  EXPECT_EQ("node2.gpu0 to node3.gpu1", r.jobs[1].gpus);
  EXPECT_EQ(4U, r.jobs[1].first_rank);
  EXPECT_EQ(Time::ms(50), r.jobs[1].start);
  // They never meet, so that the second is the first, later.
  EXPECT_LT(r.jobs[0].end, Time::ms(50));
  EXPECT_EQ(r.jobs[0].end, r.jobs[1].end - r.jobs[1].start);
  EXPECT_EQ(r.step_time, r.jobs[1].end);
  for (const RankTimes& t : r.rank_times) {
    EXPECT_EQ(r.jobs[0].end, report::sum_of_parts(t)) << "rank " << t.rank;
  }
  for (const auto& check : report::sum_checks(r)) EXPECT_TRUE(check.holds()) << check.what;
  // Every group says whose it is.
  for (const CollectiveRecord& c : r.collectives) {
    EXPECT_TRUE(has(c.group, c.first_arrival < Time::ms(50) ? "a: " : "b: ")) << c.group;
  }
}

TEST_F(Jobs, StripedJobsMeetOnTheTrunk) {
  const std::string both = job("a", "placement: striped") + job("b", "placement: striped");
  const Result r = run(both, "output: {interference: true}\n");
  ASSERT_EQ(2U, r.jobs.size());
  EXPECT_EQ("node0.gpu0 to node3.gpu0", r.jobs[0].gpus);
  EXPECT_EQ("node0.gpu1 to node3.gpu1", r.jobs[1].gpus);
  for (const JobResult& j : r.jobs) {
    EXPECT_GT(j.alone, Time());
    EXPECT_GT(report::slowdown(j), 0.2) << j.name;
  }
  // Alone means: as if the other had never been.
  const Result alone = run(job("a", "placement: striped"));
  EXPECT_EQ(alone.jobs[0].end, r.jobs[0].alone);
  // Reports say so.
  const std::string text = summary_text(r);
  EXPECT_TRUE(has(text, "slower by")) << text;
  const auto json = nlohmann::json::parse(result_json(r));
  EXPECT_DOUBLE_EQ(report::slowdown(r.jobs[1]), json["jobs"][1]["slowdown_ratio"].get<double>());
  EXPECT_TRUE(has(report_html(r), "Jobs on this fabric"));
}

TEST_F(Jobs, APriorityIsADataClass) {
  const Result r = run(job("first", "placement: striped, priority: 0") +
                           job("second", "placement: striped, priority: 1"),
                       "output: {interference: true}\n");
  // Strict priority: the lower class goes first.
  EXPECT_LT(report::slowdown(r.jobs[0]), 0.05);
  EXPECT_GT(report::slowdown(r.jobs[1]), 0.2);
}

TEST_F(Jobs, FastPathGivesTheSame) {
  const std::string both =
      job("a", "placement: striped") + job("b", "placement: striped, start: 10us");
  const std::string exact = "simulation: {fast_path: exact, domains: ";
  const Result fast = run(both, exact + "on}\n");
  const Result oracle = run(both, exact + "off}\n");
  ASSERT_TRUE(fast.fast_path.has_value());
  EXPECT_EQ(oracle.fingerprint, fast.fingerprint);
  EXPECT_EQ(oracle.jobs[0].end, fast.jobs[0].end);
  EXPECT_EQ(oracle.jobs[1].end, fast.jobs[1].end);
}

// ---- storage: one, of all jobs

std::string writer(const std::string& name, const std::string& more = "",
                   const std::string& every = "1") {
  return "  - {name: " + name + ", " + more + (more.empty() ? "" : ", ") +
         "workload: {model: {layers: 2, hidden: 1024, heads: 8, vocab: 8192}, layout: {dp: 4}, "
         "batch: {global: 4, sequence: 128}, checkpoint: {every: " +
         every + ", load: true}, dataset: {token_bytes: 4B}}}\n";
}

double figure(const JobResult& j, const std::string& key) {
  for (const TrainingFigure& f : j.training) {
    if (f.key == key) return f.value;
  }
  ADD_FAILURE() << j.name << " has no figure " << key;
  return -1;
}

const char* const kStorage = "storage: {servers: 1, request: 1MiB}\n";

TEST_F(Jobs, BurstsOfTwoJobsQueueBehindEachOther) {
  const Result alone = run(writer("a"), kStorage);
  const Result both = run(writer("a") + writer("b"), kStorage);
  ASSERT_EQ(2U, both.jobs.size());
  const double bytes = figure(alone.jobs[0], "checkpoint_write_bytes");
  for (const JobResult& j : both.jobs) {
    // Both moved what one does, and the one server had to write two of it.
    EXPECT_DOUBLE_EQ(bytes, figure(j, "checkpoint_write_bytes"));
    EXPECT_DOUBLE_EQ(figure(alone.jobs[0], "checkpoint_load_bytes"),
                     figure(j, "checkpoint_load_bytes"));
    EXPECT_DOUBLE_EQ(4, figure(j, "checkpoint_write_requests"));
    const double load = figure(j, "checkpoint_load_bytes") / 9.4e9;
    EXPECT_GT((j.end - j.start).seconds(), 1.9 * (load + bytes / 2.5e9)) << j.name;
    EXPECT_GT(figure(j, "checkpoint_write_queue_ratio"),
              figure(alone.jobs[0], "checkpoint_write_queue_ratio"));
    EXPECT_GT(figure(j, "time_to_ready_s"), 1.8 * figure(alone.jobs[0], "time_to_ready_s"));
  }
  // Their own servers each: as alone.
  const Result apart = run(writer("a") + writer("b"), "storage: {servers: 64, request: 1MiB}\n");
  const Result wide = run(writer("a"), "storage: {servers: 64, request: 1MiB}\n");
  EXPECT_EQ(wide.jobs[0].end, apart.jobs[0].end);
  // On other leaves packets of equal times may pass in another order.
  EXPECT_NEAR(wide.jobs[0].end.seconds(), apart.jobs[1].end.seconds(), 1e-6);
}

TEST_F(Jobs, BurstsApartInTimeAreAsAlone) {
  const Result alone = run(writer("a"), kStorage);
  const Time later = Time::ms(500);
  ASSERT_LT(alone.jobs[0].end, later);
  const Result both = run(writer("a") + writer("b", "start: 500ms"), kStorage);
  EXPECT_EQ(alone.jobs[0].end, both.jobs[0].end);
  EXPECT_EQ(alone.jobs[0].end, both.jobs[1].end - both.jobs[1].start);
  for (const JobResult& j : both.jobs) {
    ASSERT_EQ(alone.jobs[0].training.size(), j.training.size());
    for (size_t i = 0; i < j.training.size(); ++i) {
      EXPECT_EQ(alone.jobs[0].training[i].key, j.training[i].key);
      EXPECT_NEAR(alone.jobs[0].training[i].value, j.training[i].value,
                  1e-9 * std::abs(j.training[i].value))
          << j.training[i].key;  // time_to_ready_s counts from the job's start
    }
  }
}

TEST_F(Jobs, OneOfThemStores) {
  const Result r = run(job("quiet") + writer("loud"), kStorage);
  for (const TrainingFigure& f : r.jobs[0].training) EXPECT_NE("checkpoint_write_bytes", f.key);
  EXPECT_GT(figure(r.jobs[1], "checkpoint_write_bytes"), 0);
  // Nothing to do with each other: as it is without company.
  EXPECT_EQ(run(job("quiet")).jobs[0].end, r.jobs[0].end);
}

TEST_F(Jobs, StorageOnTheFabricIsSharedToo) {
  const std::string fabric =
      "cluster: {nodes: 5, gpus_per_node: 2}\n"
      "fabric:\n"
      "  topology: {kind: leaf-spine, leaf_radix: 8, oversubscription: 1, nic: {rate: 100Gbps}, "
      "scale_up: {kind: none}}\n"
      "  switch: {classes: 2}\n";
  const std::string rest =
      "storage: {network: shared, where: node4, rate: 100GBps, write_rate: 100GBps}\n"
      "simulation: {engine: flow}\noutput: {interference: true}\n";
  const Result r =
      run_scenario(load(fabric + "jobs:\n" + writer("a", "priority: 0") + writer("b") + rest));
  ASSERT_TRUE(r.complete) << r.incomplete_reason;
  for (const JobResult& j : r.jobs) {
    // The two NICs of the storage node take both jobs' checkpoints.
    EXPECT_GT((j.end - j.start).seconds(), figure(j, "checkpoint_write_bytes") * 2 / 25e9);
    EXPECT_GT(report::slowdown(j), 0.3) << j.name;
  }
  const std::string refused = problem(fabric + "jobs:\n" + writer("a") + writer("b") +
                                      "storage: {network: shared, where: node3}\n");
  EXPECT_TRUE(has(refused, "no job is placed on")) << refused;
}

TEST_F(Jobs, Refused) {
  const std::string fabric = kFabric;
  const auto expect = [&](const std::string& text, const std::string& part) {
    EXPECT_TRUE(has(problem(text), part)) << problem(text);
  };
  expect(fabric + "jobs:\n" + job("a") + job("a"), "two jobs are called 'a'");
  expect(fabric + "jobs:\n" + job("a") + job("b") + job("c"),
         "job 'c' has 4 ranks and finds 0 free GPUs");
  expect(fabric + "jobs:\n" + job("a", "placement: [node0, node1]") +
             job("b", "placement: [node1, node2]"),
         "node1.gpu0 is given to the jobs 'a' and 'b'");
  expect(fabric + "jobs:\n" + job("a", "placement: [node0]"),
         "names 2 GPUs, its layout has 4 ranks");
  expect(fabric + "jobs:\n" + job("a", "placement: [node9]"), "node9");
  expect(fabric + "jobs:\n" + job("a", "placement: random"), "contiguous, striped");
  expect(fabric + "jobs:\n" + job("a", "priority: 2"), "data class that does not exist");
  expect(fabric + "jobs:\n" + job("a") + kWorkload, "workload and jobs exclude each other");
  expect(fabric + "jobs: [{name: a}]\n", "job 'a' has no workload");
  expect(fabric + "jobs: []\n", "jobs must be a list");
  expect(fabric + "jobs:\n" + job("a") + "storage: {servers: 4}\n", "no job has a use for it");
  expect(fabric + kWorkload + "\noutput: {interference: true}\n", "output.interference needs jobs");
  expect(fabric + "jobs:\n" +
             "  - {name: a, workload: {model: {layers: 1, hidden: 512, heads: 8, vocab: 1024}, "
             "batch: {global: 4, sequence: 128}}}\n",
         "dp");
}

}  // namespace
}  // namespace trainyard
