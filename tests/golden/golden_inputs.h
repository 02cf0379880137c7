// SPDX-License-Identifier: MIT
// The published sets without any other file: topologies by our own generators, flow lists below.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace trainyard::golden {

/// The network and flows of a set, by our own generators (docs/reproduce.md).
inline std::vector<std::string> inputs(const std::string& set,
                                       const std::filesystem::path& scratch) {
  namespace fs = std::filesystem;
  const fs::path scenarios = fs::path(TRAINYARD_SOURCE_DIR) / "scenarios" / "golden";
  const auto file = [](const fs::path& p) {
    return "traffic=[{pattern: file, path: " + p.string() + "}]";
  };
  const auto topology = [&](const std::string& path) {
    return "fabric.topology.path=" + (scenarios / path).string();
  };
  const std::string hosts = "cluster={nodes: auto, gpus_per_node: 1}";
  if (set.rfind("S1", 0) == 0) {
    int64_t bytes = 10'000'000;
    if (set == "S1-mlx-1byte") bytes = 1;
    if (set == "S1-mlx-1pkt") bytes = 1000;
    if (set == "S1-mlx-2pkt") bytes = 2000;
    std::ofstream(scratch / "one.csv") << "0,0,1," << bytes << ",0\n";
    return {topology("two-hosts.txt"), file(scratch / "one.csv")};
  }
  if (set.rfind("S2", 0) == 0) {
    return {topology("nine-hosts.txt"),
            "traffic=[{pattern: incast, dst: 8, fan_in: 8, size: 2MB}]"};
  }
  if (set.rfind("S3", 0) == 0) {
    return {topology("dumbbell.txt"), file(scenarios / "two-flows.csv")};
  }
  if (set.rfind("S4", 0) == 0) {
    return {
        "cluster={nodes: 16, gpus_per_node: 1}",
        "fabric.topology={kind: leaf-spine, leaf_radix: 8, spine_radix: 4, nic: {rate: 100Gbps}, "
        "link: {delay: 1us}, scale_up: {kind: none}}",
        file(scenarios / "permutation16.csv")};
  }
  if (set.rfind("S5", 0) == 0) {
    std::ofstream out(scratch / "all.csv");
    int id = 0;
    for (int a = 0; a < 16; ++a) {
      for (int b = 0; b < 16; ++b) {
        if (a != b) out << id++ << "," << a << "," << b << ",1000000,0\n";
      }
    }
    return {hosts,
            "fabric.topology={kind: fat-tree, k: 4, nic: {rate: 100Gbps}, link: {delay: 1us}, "
            "scale_up: {kind: none}}",
            file(scratch / "all.csv")};
  }
  return {hosts,
          "fabric.topology={kind: fat-tree, k: 8, nic: {rate: 100Gbps}, link: {delay: 1us}, "
          "scale_up: {kind: none}}",
          "traffic=[{pattern: permutation, shift: 67, size: 10MB}]"};
}

}  // namespace trainyard::golden
