// SPDX-License-Identifier: MIT
#include "tools/scenario/jobs.h"

#include <algorithm>

#include "chakra/reader.h"
#include "network/topology_select.h"
#include "sim/errors.h"

namespace trainyard {
namespace {

/// Exchanges of several jobs, by group numbers of all of them.
class CombinedExchanges final : public Exchanges {
 public:
  void add(uint32_t first_group, std::shared_ptr<const Exchanges> of) {
    parts_.push_back({first_group, std::move(of)});
  }
  [[nodiscard]] std::shared_ptr<const std::vector<int64_t>> sizes(
      uint32_t group, uint32_t members, uint32_t exchange) const override {
    const Part& p = part(group);
    return p.of->sizes(group - p.first_group, members, exchange);
  }
  [[nodiscard]] uint64_t load_q32(uint32_t group, uint32_t members, uint32_t exchange,
                                  uint32_t member) const override {
    const Part& p = part(group);
    return p.of->load_q32(group - p.first_group, members, exchange, member);
  }

 private:
  struct Part {
    uint32_t first_group = 0;
    std::shared_ptr<const Exchanges> of;
  };
  [[nodiscard]] const Part& part(uint32_t group) const {
    auto it = std::upper_bound(parts_.begin(), parts_.end(), group,
                               [](uint32_t g, const Part& p) { return g < p.first_group; });
    TRAINYARD_ASSERT(it != parts_.begin());
    --it;
    TRAINYARD_ASSERT(it->of != nullptr);
    return *it;
  }
  std::vector<Part> parts_;  // one per job
};

class CombinedModel final : public ComputeModel {
 public:
  CombinedModel(std::vector<std::unique_ptr<ComputeModel>> models, std::vector<uint32_t> first)
      : models_(std::move(models)), first_(std::move(first)) {}
  [[nodiscard]] Time duration(const OpGraph& graph, uint32_t op, uint32_t rank) const override {
    const auto it = std::upper_bound(first_.begin(), first_.end(), rank);
    return models_[static_cast<size_t>(it - first_.begin()) - 1]->duration(graph, op, rank);
  }
  [[nodiscard]] std::optional<uint64_t> kind_of(uint32_t rank) const override {
    const auto it = std::upper_bound(first_.begin(), first_.end(), rank);
    const auto job = static_cast<uint64_t>(it - first_.begin()) - 1;
    const auto kind = models_[job]->kind_of(rank);
    if (!kind || *kind >> 48 != 0) return std::nullopt;
    return job << 48 | *kind;
  }
  /// Each once.
  [[nodiscard]] std::string source() const override {
    std::vector<std::string> seen;
    std::string all;
    for (const auto& model : models_) {
      const std::string source = model->source();
      if (std::find(seen.begin(), seen.end(), source) != seen.end()) continue;
      seen.push_back(source);
      all += (all.empty() ? "" : "; ") + source;
    }
    return all;
  }

 private:
  std::vector<std::unique_ptr<ComputeModel>> models_;
  std::vector<uint32_t> first_;
};

}  // namespace

Job combine_jobs(std::vector<Job> jobs, std::vector<JobPart> parts) {
  TRAINYARD_ASSERT(jobs.size() == parts.size());
  Job all;
  auto exchanges = std::make_shared<CombinedExchanges>();
  bool exchanging = false;
  for (size_t i = 0; i < jobs.size(); ++i) {
    Job& job = jobs[i];
    const auto first_rank = static_cast<uint32_t>(all.ranks.size());
    const auto first_group = static_cast<uint32_t>(all.groups.size());
    for (RankProgram& program : job.ranks) {
      for (uint32_t& group : program.binding.groups) group += first_group;
      for (uint32_t& peer : program.binding.peers) peer += first_rank;
      all.ranks.push_back(std::move(program));
    }
    for (Group& group : job.groups) {
      for (uint32_t& member : group.members) member += first_rank;
      group.name = parts[i].name + ": " + group.name;
      all.groups.push_back(std::move(group));
    }
    exchanges->add(first_group, job.exchanges);
    exchanging = exchanging || job.exchanges != nullptr;
    parts[i].first_rank = first_rank;
    parts[i].ranks = static_cast<uint32_t>(job.ranks.size());
    all.name += (all.name.empty() ? "" : ", ") + parts[i].name;
  }
  if (exchanging) all.exchanges = std::move(exchanges);
  all.parts = std::move(parts);
  return all;
}

std::unique_ptr<ComputeModel> combine_models(std::vector<std::unique_ptr<ComputeModel>> models,
                                             std::vector<uint32_t> first_rank) {
  return std::make_unique<CombinedModel>(std::move(models), std::move(first_rank));
}

std::vector<uint32_t> ranks_of_jobs(const Scenario& s) {
  std::vector<uint32_t> ranks;
  for (const JobSpec& job : s.jobs) {
    const WorkloadSpec& w = job.workload;
    ranks.push_back(w.training ? static_cast<uint32_t>(w.training->ranks)
                               : static_cast<uint32_t>(chakra::find_rank_files(w.chakra).size()));
  }
  return ranks;
}

void place_jobs(Topology& t, const Scenario& s, const std::vector<uint32_t>& ranks) {
  TRAINYARD_ASSERT(ranks.size() == s.jobs.size());
  const std::vector<uint32_t> hosts = t.hosts();
  const auto n = static_cast<uint32_t>(hosts.size());
  constexpr uint32_t kFree = 0xffffffffU;
  std::vector<uint32_t> owner(n, kFree);  // by position among the hosts
  std::vector<uint32_t> position(t.nodes().size(), kFree);
  for (uint32_t i = 0; i < n; ++i) position[hosts[i]] = i;
  std::vector<std::vector<uint32_t>> mine(s.jobs.size());
  const auto take = [&](uint32_t job, uint32_t at) {
    owner[at] = job;
    mine[job].push_back(hosts[at]);
  };
  for (uint32_t j = 0; j < s.jobs.size(); ++j) {
    const JobSpec& job = s.jobs[j];
    if (job.placement != "list") continue;
    for (const std::string& pattern : job.where) {
      for (const uint32_t node : select_nodes(t, pattern, job.placement_pos)) {
        const uint32_t at = position[node];
        if (at == kFree || mine[j].size() == ranks[j]) continue;
        if (owner[at] == j) continue;
        if (owner[at] != kFree) {
          throw UserError(job.placement_pos,
                          t.nodes()[node].name + " is given to the jobs '" +
                              s.jobs[owner[at]].name + "' and '" + job.name + "'",
                          "GPUs of jobs must be disjoint");
        }
        take(j, at);
      }
    }
    if (mine[j].size() < ranks[j]) {
      throw UserError(job.placement_pos,
                      "the placement of job '" + job.name + "' names " +
                          std::to_string(mine[j].size()) + " GPUs, its layout has " +
                          std::to_string(ranks[j]) + " ranks",
                      "list more nodes");
    }
  }
  for (uint32_t j = 0; j < s.jobs.size(); ++j) {
    const JobSpec& job = s.jobs[j];
    if (job.placement == "list") continue;
    const bool striped = job.placement == "striped";
    const uint32_t stride = striped ? s.gpus_per_node : 1;
    for (uint32_t gpu = 0; gpu < stride; ++gpu) {
      for (uint32_t at = gpu; at < n && mine[j].size() < ranks[j]; at += stride) {
        if (owner[at] == kFree) take(j, at);
      }
    }
    if (mine[j].size() < ranks[j]) {
      uint64_t sum = 0;
      for (const uint32_t r : ranks) sum += r;
      throw UserError(
          job.pos,
          "job '" + job.name + "' has " + std::to_string(ranks[j]) + " ranks and finds " +
              std::to_string(mine[j].size()) + " free GPUs",
          "the jobs need " + std::to_string(sum) + ", the cluster has " + std::to_string(n));
    }
  }
  std::vector<uint32_t> order;
  for (uint32_t j = 0; j < s.jobs.size(); ++j) {
    order.insert(order.end(), mine[j].begin(), mine[j].end());
  }
  for (uint32_t at = 0; at < n; ++at) {
    if (owner[at] == kFree) order.push_back(hosts[at]);
  }
  t.place_ranks(order);
}

}  // namespace trainyard
