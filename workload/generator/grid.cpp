// SPDX-License-Identifier: MIT
#include "workload/generator/grid.h"

#include "sim/errors.h"

namespace trainyard {

Grid::Grid(std::vector<std::pair<std::string, int64_t>> dimensions) {
  for (auto& [name, size] : dimensions) {
    axes_.push_back({std::move(name), size, ranks_});
    ranks_ *= size;
  }
}

const Grid::Axis& Grid::axis(const std::string& name) const {
  for (const Axis& a : axes_) {
    if (a.name == name) return a;
  }
  TRAINYARD_ASSERT(false);
}

int64_t Grid::size(const std::string& dimension) const {
  return axis(dimension).size;
}

int64_t Grid::coordinate(uint32_t rank, const std::string& dimension) const {
  const Axis& a = axis(dimension);
  return rank / a.stride % a.size;
}

uint32_t Grid::moved(uint32_t rank, const std::string& dimension, int64_t to) const {
  const Axis& a = axis(dimension);
  return static_cast<uint32_t>(rank + (to - rank / a.stride % a.size) * a.stride);
}

std::vector<std::pair<uint32_t, uint32_t>> Grid::add_groups(const std::vector<std::string>& along,
                                                            const std::string& name,
                                                            Job& job) const {
  std::vector<Axis> axes;
  int64_t members = 1;
  for (const auto& dimension : along) {
    axes.push_back(axis(dimension));
    members *= axes.back().size;
  }
  std::vector<std::pair<uint32_t, uint32_t>> of(static_cast<size_t>(ranks_));
  uint32_t n = 0;
  for (int64_t base = 0; base < ranks_; ++base) {
    bool first = true;
    for (const Axis& a : axes) first = first && base / a.stride % a.size == 0;
    if (!first) continue;
    const auto index = static_cast<uint32_t>(job.groups.size());
    Group& group = job.groups.emplace_back();
    group.name = name + std::to_string(n++);
    group.members.reserve(static_cast<size_t>(members));
    for (int64_t m = 0; m < members; ++m) {
      int64_t rank = base;
      int64_t rest = m;
      for (const Axis& a : axes) {
        rank += rest % a.size * a.stride;
        rest /= a.size;
      }
      group.members.push_back(static_cast<uint32_t>(rank));
      of[static_cast<size_t>(rank)] = {index, static_cast<uint32_t>(m)};
    }
  }
  return of;
}

Grid dense_grid(const Training& t) {
  // Sharding runs over dp (and cp with it where everything is sharded).
  const int64_t inner = t.shard >= t.cp * t.dp || t.shard < 1 ? t.dp : t.shard;
  std::vector<std::pair<std::string, int64_t>> d;
  for (const std::string& name : t.order) {
    if (name == "tp") d.emplace_back("tp", t.tp);
    if (name == "cp") d.emplace_back("cp", t.cp);
    if (name == "pp") d.emplace_back("pp", t.pp);
    if (name == "dp") {
      d.emplace_back("dps", inner);
      d.emplace_back("dpr", t.dp / inner);
    }
  }
  return Grid(std::move(d));
}

int64_t replica_of(const Grid& dense, uint32_t rank) {
  return dense.coordinate(rank, "dps") + dense.size("dps") * dense.coordinate(rank, "dpr");
}

bool takes_part(const Training& t, const Grid& dense, uint32_t rank) {
  return t.unlike.empty() || dense.coordinate(rank, "tp") <
                                 t.tp_of(replica_of(dense, rank), dense.coordinate(rank, "pp"));
}

Grid expert_grid(const Training& t) {
  std::vector<std::pair<std::string, int64_t>> d;
  for (const std::string& name : t.order) {
    if (name == "tp") d.emplace_back("tp", t.expert_tp);
    if (name == "ep") {
      d.emplace_back("ep_node", t.expert_node);
      d.emplace_back("ep_rail", t.ep / t.expert_node);
    }
    if (name == "dp") d.emplace_back("dp", t.expert_dp());
    if (name == "pp") d.emplace_back("pp", t.pp);
  }
  return Grid(std::move(d));
}

}  // namespace trainyard
