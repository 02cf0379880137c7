// SPDX-License-Identifier: MIT
#include "workload/generator/volume.h"

namespace trainyard {

std::array<DimensionVolume, kDimensions> dimension_volumes(const Job& job, uint32_t rank) {
  std::array<DimensionVolume, kDimensions> out;
  const RankProgram& program = job.ranks[rank];
  for (const Op& op : program.graph->ops) {
    if (op.kind != OpKind::collective && op.kind != OpKind::send) continue;
    const Dimension d = program.graph->streams[op.stream].dimension;
    DimensionVolume& v = out[static_cast<size_t>(d)];
    if (op.kind == OpKind::send) {
      ++v.calls;
      v.bytes += op.bytes;
      v.sent += op.bytes;
      continue;
    }
    const Group& group = job.groups[program.binding.groups[op.group_slot]];
    const auto n = static_cast<int64_t>(group.members.size());
    if (n < 2) continue;
    ++v.calls;
    v.bytes += op.bytes;
    switch (op.collective) {
      case CollectiveKind::all_reduce:
        v.sent += static_cast<int64_t>(static_cast<__int128>(op.bytes) * 2 * (n - 1) / n);
        break;
      case CollectiveKind::all_gather:
        v.sent += op.bytes * (n - 1);
        break;
      default:
        v.sent += static_cast<int64_t>(static_cast<__int128>(op.bytes) * (n - 1) / n);
        break;
    }
  }
  return out;
}

}  // namespace trainyard
