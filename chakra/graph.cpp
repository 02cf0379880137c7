// SPDX-License-Identifier: MIT
#include "chakra/graph.h"

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>

namespace trainyard::chakra {

namespace {

struct Csr {
  std::vector<size_t> offset;
  std::vector<uint32_t> flat;
};

/// Children of every node, from (child, parent) edges.
Csr children_of(size_t nodes, const std::vector<Dependencies::Edge>& edges) {
  Csr csr;
  csr.offset.assign(nodes + 1, 0);
  for (const auto& [child, parent] : edges) ++csr.offset[parent + 1];
  for (size_t i = 0; i < nodes; ++i) csr.offset[i + 1] += csr.offset[i];
  csr.flat.resize(edges.size());
  std::vector<size_t> next(csr.offset.begin(), csr.offset.end() - 1);
  for (const auto& [child, parent] : edges) csr.flat[next[parent]++] = child;
  return csr;
}

/// Strongly connected components by Tarjan's algorithm, with an explicit stack: traces hold chains
/// of a hundred thousand nodes.
std::vector<uint32_t> components(size_t nodes, const Csr& children) {
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  std::vector<uint32_t> component(nodes, kNone);
  std::vector<uint32_t> order(nodes, kNone);
  std::vector<uint32_t> low(nodes, 0);
  std::vector<uint32_t> open;
  std::vector<std::pair<uint32_t, size_t>> path;
  uint32_t counter = 0;
  uint32_t found = 0;
  for (uint32_t root = 0; root < nodes; ++root) {
    if (order[root] != kNone) continue;
    path.emplace_back(root, children.offset[root]);
    order[root] = low[root] = counter++;
    open.push_back(root);
    while (!path.empty()) {
      auto& [node, edge] = path.back();
      if (edge < children.offset[node + 1]) {
        const uint32_t child = children.flat[edge++];
        if (order[child] == kNone) {
          order[child] = low[child] = counter++;
          open.push_back(child);
          path.emplace_back(child, children.offset[child]);
        } else if (component[child] == kNone) {
          low[node] = std::min(low[node], order[child]);
        }
        continue;
      }
      const uint32_t done = node;
      path.pop_back();
      if (!path.empty()) low[path.back().first] = std::min(low[path.back().first], low[done]);
      if (low[done] != order[done]) continue;
      uint32_t member = 0;
      do {
        member = open.back();
        open.pop_back();
        component[member] = found;
      } while (member != done);
      ++found;
    }
  }
  return component;
}

/// Control edges to leave out so that data and control edges together have no cycle.
std::vector<Dependencies::Edge> break_ctrl_cycles(const RankTrace& trace,
                                                  const std::vector<Dependencies::Edge>& data,
                                                  const std::vector<Dependencies::Edge>& ctrl) {
  const size_t n = trace.nodes.size();
  std::vector<Dependencies::Edge> all = data;
  all.insert(all.end(), ctrl.begin(), ctrl.end());
  const Csr children = children_of(n, all);

  std::vector<uint32_t> waits(n, 0);
  for (const auto& [child, parent] : all) ++waits[child];
  std::vector<uint32_t> ready;
  size_t left = n;
  const auto finish = [&](uint32_t node, const auto& on_child) {
    --left;
    for (size_t e = children.offset[node]; e < children.offset[node + 1]; ++e) {
      on_child(children.flat[e]);
    }
  };
  for (uint32_t i = 0; i < n; ++i) {
    if (waits[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    const uint32_t node = ready.back();
    ready.pop_back();
    finish(node, [&](uint32_t child) {
      if (--waits[child] == 0) ready.push_back(child);
    });
  }
  if (left == 0) return {};

  // There is a cycle. Again, now telling the edges of a node that lie on one from the others.
  const std::vector<uint32_t> component = components(n, children);
  const Csr data_children = children_of(n, data);
  const Csr ctrl_children = children_of(n, ctrl);
  std::vector<std::vector<uint32_t>> ctrl_parents(n);
  std::vector<uint32_t> hard(n, 0);  // data edges, and control edges from outside the component
  std::vector<uint32_t> soft(n, 0);  // control edges within the component
  for (const auto& [child, parent] : data) ++hard[child];
  for (const auto& [child, parent] : ctrl) {
    const bool inside = component[child] == component[parent];
    ++(inside ? soft : hard)[child];
    if (inside) ctrl_parents[child].push_back(parent);
  }
  std::vector<Dependencies::Edge> dropped;
  std::vector<bool> done(n, false);
  std::set<std::pair<uint64_t, uint32_t>> stalled;  // id, node: waits for soft edges only
  const auto update = [&](uint32_t node) {
    if (hard[node] != 0 || done[node]) return;
    if (soft[node] == 0) {
      stalled.erase({trace.nodes[node].id, node});
      ready.push_back(node);
    } else {
      stalled.insert({trace.nodes[node].id, node});
    }
  };
  for (uint32_t i = 0; i < n; ++i) update(i);
  while (!ready.empty() || !stalled.empty()) {
    if (ready.empty()) {
      const uint32_t first = stalled.begin()->second;
      for (const uint32_t parent : ctrl_parents[first]) {
        if (!done[parent]) dropped.emplace_back(first, parent);
      }
      soft[first] = 0;
      update(first);
    }
    const uint32_t node = ready.back();
    ready.pop_back();
    done[node] = true;
    for (size_t e = data_children.offset[node]; e < data_children.offset[node + 1]; ++e) {
      const uint32_t child = data_children.flat[e];
      --hard[child];
      update(child);
    }
    for (size_t e = ctrl_children.offset[node]; e < ctrl_children.offset[node + 1]; ++e) {
      const uint32_t child = ctrl_children.flat[e];
      if (done[child]) continue;  // it went first, this edge is a dropped one
      if (component[child] == component[node]) {
        if (soft[child] == 0) continue;  // likewise, not finished yet
        --soft[child];
      } else {
        --hard[child];
      }
      update(child);
    }
  }
  return dropped;
}

}  // namespace

std::vector<uint32_t> find_cycle(const std::vector<size_t>& offset,
                                 const std::vector<uint32_t>& parents) {
  const size_t n = offset.size() - 1;
  std::vector<Dependencies::Edge> edges;
  edges.reserve(parents.size());
  std::vector<uint32_t> waits(n, 0);
  for (uint32_t child = 0; child < n; ++child) {
    waits[child] = static_cast<uint32_t>(offset[child + 1] - offset[child]);
    for (size_t e = offset[child]; e < offset[child + 1]; ++e)
      edges.emplace_back(child, parents[e]);
  }
  const Csr children = children_of(n, edges);
  std::vector<uint32_t> ready;
  for (uint32_t i = 0; i < n; ++i) {
    if (waits[i] == 0) ready.push_back(i);
  }
  size_t left = n;
  while (!ready.empty()) {
    const uint32_t node = ready.back();
    ready.pop_back();
    --left;
    for (size_t e = children.offset[node]; e < children.offset[node + 1]; ++e) {
      if (--waits[children.flat[e]] == 0) ready.push_back(children.flat[e]);
    }
  }
  if (left == 0) return {};
  // Every node left waits for another one that is left: follow them until one comes again.
  uint32_t node = 0;
  while (waits[node] == 0) ++node;
  std::vector<uint32_t> path;
  std::vector<bool> seen(n, false);
  while (!seen[node]) {
    seen[node] = true;
    path.push_back(node);
    size_t e = offset[node];
    while (waits[parents[e]] == 0) ++e;
    node = parents[e];
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), node));
  return path;
}

Dependencies resolve_dependencies(const RankTrace& trace) {
  Dependencies deps;
  const auto n = static_cast<uint32_t>(trace.nodes.size());
  std::unordered_map<uint64_t, uint32_t> index;
  index.reserve(n);
  for (uint32_t i = 0; i < n; ++i) {
    if (!index.emplace(trace.nodes[i].id, i).second) deps.duplicate_ids.push_back(i);
  }

  std::vector<Dependencies::Edge> data;
  std::vector<Dependencies::Edge> ctrl;
  std::vector<size_t> data_offset = {0};
  std::vector<uint32_t> data_flat;
  std::vector<uint32_t> found;
  const auto resolve = [&](uint32_t child, const std::vector<uint64_t>& ids,
                           std::vector<Dependencies::MissingEdge>& missing) {
    found.clear();
    for (const uint64_t id : ids) {
      const auto it = index.find(id);
      if (it == index.end()) {
        missing.emplace_back(child, id);
      } else {
        found.push_back(it->second);
      }
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
  };
  for (uint32_t i = 0; i < n; ++i) {
    resolve(i, trace.nodes[i].data_deps, deps.missing_data);
    const std::vector<uint32_t> data_parents = found;
    for (const uint32_t parent : data_parents) data.emplace_back(i, parent);
    data_flat.insert(data_flat.end(), data_parents.begin(), data_parents.end());
    data_offset.push_back(data_flat.size());
    resolve(i, trace.nodes[i].ctrl_deps, deps.missing_ctrl);
    for (const uint32_t parent : found) {
      // Where both name a parent the data edge counts: it cannot be dropped.
      if (!std::binary_search(data_parents.begin(), data_parents.end(), parent)) {
        ctrl.emplace_back(i, parent);
      }
    }
  }
  deps.data_cycle = find_cycle(data_offset, data_flat);
  if (deps.data_cycle.empty()) deps.dropped_ctrl = break_ctrl_cycles(trace, data, ctrl);

  std::vector<Dependencies::Edge> dropped = deps.dropped_ctrl;
  std::sort(dropped.begin(), dropped.end());
  std::erase_if(ctrl, [&](const Dependencies::Edge& edge) {
    return std::binary_search(dropped.begin(), dropped.end(), edge);
  });
  data.insert(data.end(), ctrl.begin(), ctrl.end());
  std::sort(data.begin(), data.end());
  deps.offset.assign(n + 1, 0);
  for (const auto& [child, parent] : data) {
    ++deps.offset[child + 1];
    deps.flat.push_back(parent);
  }
  for (uint32_t i = 0; i < n; ++i) deps.offset[i + 1] += deps.offset[i];
  return deps;
}

}  // namespace trainyard::chakra
