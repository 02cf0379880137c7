// SPDX-License-Identifier: MIT
#include "tools/scenario/timeline_export.h"

#include <filesystem>
#include <map>
#include <memory>

#include "chakra/writer.h"
#include "sim/errors.h"
#include "workload/chakra_exporter.h"

namespace trainyard {

TimelineExport::TimelineExport(const Job& job) {
  uint64_t ops = 0;
  for (const RankProgram& p : job.ranks) ops += p.graph->ops.size();
  if (ops > kMostOps) {
    throw UserError("output.chakra: " + std::to_string(ops) + " operations are more than " +
                        std::to_string(kMostOps),
                    "export a smaller job, and expand the trace");
  }
  for (const RankProgram& p : job.ranks) lengths_.emplace_back(p.graph->ops.size());
}

void TimelineExport::write(const Job& job, const std::string& prefix) const {
  // What the format has no room for goes: kernels and shares are in the durations.
  Job plain;
  plain.groups = job.groups;
  std::map<const OpGraph*, std::shared_ptr<const OpGraph>> graphs;
  for (const RankProgram& p : job.ranks) {
    auto& graph = graphs[p.graph.get()];
    if (!graph) {
      auto copy = std::make_shared<OpGraph>(*p.graph);
      for (Op& op : copy->ops) {
        op.kernels = 0;
        op.exchange = 0;
        op.duration = Time();
      }
      graph = std::move(copy);
    }
    plain.ranks.push_back({graph, p.binding});
  }
  const std::filesystem::path folder = std::filesystem::path(prefix).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) throw UserError("cannot make " + folder.string() + ": " + error.message());
  for (uint32_t r = 0; r < plain.ranks.size(); ++r) {
    chakra::RankTrace trace = export_rank(plain, r);
    for (uint32_t i = 0; i < trace.nodes.size(); ++i) {
      trace.nodes[i].duration_us =
          static_cast<uint64_t>((lengths_[r][i].ps() + 500'000) / 1'000'000);
    }
    chakra::write_rank(prefix + "." + std::to_string(r) + ".et", trace);
  }
  std::vector<chakra::ProcessGroup> groups;
  for (const Group& g : plain.groups) {
    if (g.name != "world") groups.push_back({g.name, g.members});  // readers add it
  }
  chakra::write_group_file((folder / "comm_group.json").string(), groups);
}

}  // namespace trainyard
