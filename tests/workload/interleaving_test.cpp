// SPDX-License-Identifier: MIT
// Several communicators per rank: whatever order ranks issue calls in, as long as there is one
// order that all of them keep stream by stream, nothing hangs and every call moves its bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "tests/workload/on_rails.h"

namespace trainyard {
namespace {

struct Call {
  uint32_t group = 0;
  CollectiveKind kind = CollectiveKind::all_reduce;
  int64_t bytes = 0;
};

/// Calls of random groups in one order for all; on each rank spread over up to three streams, a
/// group always on the same one, in any order between streams.
Job random_job(std::mt19937_64& rng, uint32_t ranks, std::vector<Call>& calls) {
  const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(rng() % n); };
  Job job;
  job.name = "random";
  std::vector<uint32_t> all(ranks);
  std::iota(all.begin(), all.end(), 0U);
  job.groups.push_back({"world", all});
  for (uint32_t g = 0; g < 5; ++g) {
    std::vector<uint32_t> members = all;
    std::shuffle(members.begin(), members.end(), rng);
    // Groups of 7 beside groups of 8, pairs, and all sizes between.
    members.resize(2 + pick(ranks - 1));
    std::sort(members.begin(), members.end());
    job.groups.push_back({"g" + std::to_string(g), members});
  }
  for (uint32_t i = 0; i < 24; ++i) {
    const CollectiveKind kinds[] = {CollectiveKind::all_reduce,     CollectiveKind::all_gather,
                                    CollectiveKind::reduce_scatter, CollectiveKind::all_to_all,
                                    CollectiveKind::broadcast,      CollectiveKind::barrier};
    calls.push_back({pick(6), kinds[pick(6)], 1 + int64_t{pick(200'000)}});
  }
  job.ranks.resize(ranks);
  for (uint32_t r = 0; r < ranks; ++r) {
    auto graph = std::make_shared<OpGraph>();
    RankBinding& binding = job.ranks[r].binding;
    for (uint32_t g = 0; g < 6; ++g) binding.groups.push_back(g);
    const uint32_t streams = 1 + pick(3);
    for (uint32_t s = 0; s < streams; ++s) {
      graph->streams.push_back({"stream " + std::to_string(s), StreamOrder::fifo, Dimension::none});
    }
    std::vector<uint32_t> stream_of(6);
    for (uint32_t& s : stream_of) s = pick(streams);
    std::vector<std::vector<const Call*>> queues(streams);
    for (const Call& c : calls) {
      const auto& m = job.groups[c.group].members;
      if (std::binary_search(m.begin(), m.end(), r)) queues[stream_of[c.group]].push_back(&c);
    }
    std::vector<size_t> next(streams);
    for (size_t left = 1; left > 0;) {
      left = 0;
      for (uint32_t s = 0; s < streams; ++s) left += queues[s].size() - next[s];
      if (left == 0) break;
      const uint32_t s = pick(streams);
      if (next[s] == queues[s].size()) continue;
      const Call& c = *queues[s][next[s]++];
      Op op;
      op.kind = OpKind::collective;
      op.stream = s;
      op.collective = c.kind;
      op.group_slot = c.group;
      op.bytes = c.bytes;
      op.name = graph->intern("call");
      op.source_id = graph->ops.size();
      graph->ops.push_back(op);
    }
    graph->finish();
    job.ranks[r].graph = graph;
  }
  return job;
}

TEST(Interleaving, AnyLegalOrderOfSeveralCommunicatorsRuns) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 rng(seed);
    std::vector<Call> calls;
    const Job job = random_job(rng, 8 + static_cast<uint32_t>(seed % 8), calls);
    test::OnRails run(job, "trace");
    ASSERT_NO_FATAL_FAILURE(run.run()) << "seed " << seed;
    ASSERT_EQ(calls.size(), run.timeline.collectives().size());
    for (const CollectiveRecord& r : run.timeline.collectives()) EXPECT_GT(r.transfers, 0U);
  }
}

}  // namespace
}  // namespace trainyard
