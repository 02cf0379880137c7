// SPDX-License-Identifier: MIT
// Writes the trace of the quickstart: one training step of a small transformer on 2 nodes of
// 8 GPUs. Tensor parallelism with sequence parallelism within a node, data parallelism across.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "chakra/reader.h"
#include "chakra/schema.h"
#include "chakra/writer.h"
#include "sim/errors.h"

namespace {

using trainyard::SourcePos;
using trainyard::UserError;
using trainyard::chakra::CommType;
using trainyard::chakra::Node;
using trainyard::chakra::NodeType;
using trainyard::chakra::ProcessGroup;
using trainyard::chakra::RankTrace;

constexpr uint32_t kTp = 8;
constexpr uint32_t kDp = 2;
constexpr int kLayers = 4;
constexpr int64_t kActivationBytes = 2 << 20;
constexpr int64_t kGradientBytes = 4 << 20;

/// Appends nodes; ids count from 1.
class Builder {
 public:
  explicit Builder(RankTrace& trace) : trace_(trace) {}

  uint64_t compute(const std::string& name, uint64_t duration_us, std::vector<uint64_t> parents) {
    Node node = next(name, NodeType::comp, std::move(parents));
    node.duration_us = duration_us;
    return push(std::move(node));
  }

  uint64_t collective(const std::string& name, CommType type, int64_t bytes,
                      const std::string& group, std::vector<uint64_t> parents) {
    Node node = next(name, NodeType::comm_coll, std::move(parents));
    node.comm_type = static_cast<int64_t>(type);
    node.comm_size = bytes;
    node.pg_name = group;
    return push(std::move(node));
  }

 private:
  Node next(const std::string& name, NodeType type, std::vector<uint64_t> parents) {
    Node node;
    node.id = trace_.nodes.size() + 1;
    node.name = name;
    node.type = type;
    node.data_deps = std::move(parents);
    return node;
  }

  uint64_t push(Node node) {
    trace_.nodes.push_back(std::move(node));
    return trace_.nodes.back().id;
  }

  RankTrace& trace_;
};

RankTrace training_step(const std::string& tp, const std::string& dp) {
  constexpr int64_t kShard = kActivationBytes / kTp;
  RankTrace trace;
  trace.version = "0.0.4";
  Builder builder(trace);
  uint64_t last = builder.compute("forward.embedding", 60, {});
  for (int l = 0; l < kLayers; ++l) {
    const std::string layer = "forward.layer" + std::to_string(l) + ".";
    last = builder.collective(layer + "all_gather", CommType::all_gather, kShard, tp, {last});
    last = builder.compute(layer + "attention", 90, {last});
    last = builder.collective(layer + "reduce_scatter", CommType::reduce_scatter, kActivationBytes,
                              tp, {last});
    last = builder.compute(layer + "mlp", 110, {last});
  }
  last = builder.compute("loss", 60, {last});

  std::vector<uint64_t> reduced;
  for (int l = kLayers - 1; l >= 0; --l) {
    const std::string layer = "backward.layer" + std::to_string(l) + ".";
    const uint64_t mlp = builder.compute(layer + "mlp", 200, {last});
    last = builder.collective(layer + "all_gather", CommType::all_gather, kShard, tp, {mlp});
    const uint64_t attention = builder.compute(layer + "attention", 170, {last});
    last = builder.collective(layer + "reduce_scatter", CommType::reduce_scatter, kActivationBytes,
                              tp, {attention});
    // Needs only the gradients of this layer, so that it overlaps with the layers below.
    reduced.push_back(builder.collective("gradients.layer" + std::to_string(l) + ".all_reduce",
                                         CommType::all_reduce, kGradientBytes, dp,
                                         {mlp, attention}));
  }
  reduced.push_back(last);
  builder.compute("optimizer.step", 150, reduced);
  return trace;
}

/// The group file has a fixed name, so that it could belong to another set in the same folder.
void write_groups(const std::string& path, const std::vector<ProcessGroup>& groups) {
  std::error_code ec;
  if (std::filesystem::exists(path, ec)) {
    const std::vector<ProcessGroup> old = trainyard::chakra::read_group_file(path);
    bool same = old.size() == groups.size();
    for (size_t i = 0; same && i < old.size(); ++i) {
      same = old[i].name == groups[i].name && old[i].ranks == groups[i].ranks;
    }
    if (!same) {
      throw UserError(SourcePos{path, 0}, "the file exists and holds other groups",
                      "write the trace to a folder of its own");
    }
  }
  trainyard::chakra::write_group_file(path, groups);
}

void make(const std::string& prefix) {
  const std::filesystem::path path(prefix);
  if (!path.has_filename()) {
    throw UserError("the prefix \"" + prefix + "\" ends in a folder",
                    "append a name, for example " + prefix + "quickstart");
  }
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code ec;
  std::filesystem::create_directories(folder, ec);
  if (ec) {
    throw UserError(SourcePos{folder.string(), 0}, "cannot create the folder: " + ec.message(),
                    "choose another one");
  }

  std::vector<ProcessGroup> groups;
  for (uint32_t node = 0; node < kDp; ++node) {
    ProcessGroup group{"tp" + std::to_string(node), {}};
    for (uint32_t gpu = 0; gpu < kTp; ++gpu) group.ranks.push_back(node * kTp + gpu);
    groups.push_back(group);
  }
  for (uint32_t gpu = 0; gpu < kTp; ++gpu) {
    ProcessGroup group{"dp" + std::to_string(gpu), {}};
    for (uint32_t node = 0; node < kDp; ++node) group.ranks.push_back(node * kTp + gpu);
    groups.push_back(group);
  }
  write_groups((folder / "comm_group.json").string(), groups);
  for (uint32_t rank = 0; rank < kTp * kDp; ++rank) {
    trainyard::chakra::write_rank(
        prefix + "." + std::to_string(rank) + ".et",
        training_step("tp" + std::to_string(rank / kTp), "dp" + std::to_string(rank % kTp)));
  }
  std::printf("wrote %s.0.et to %s.%u.et and %s\n", prefix.c_str(), prefix.c_str(), kTp * kDp - 1,
              (folder / "comm_group.json").string().c_str());
}

constexpr const char* kUsage = "usage: trainyard-make-trace OUT_PREFIX";

}  // namespace

int main(int argc, char** argv) {
  const std::string argument = argc > 1 ? argv[1] : "";
  if (argc == 2 && (argument == "--help" || argument == "-h")) {
    std::printf(
        "%s\n\n"
        "Writes a 16-rank Chakra trace of one training step of a small transformer\n"
        "(8-way tensor parallel in a node, 2-way data parallel across nodes):\n"
        "OUT_PREFIX.0.et to OUT_PREFIX.15.et, and comm_group.json beside them.\n",
        kUsage);
    return 0;
  }
  if (argc != 2 || argument.empty() || argument.front() == '-') {
    std::fprintf(stderr, "trainyard-make-trace: %s; %s\n",
                 argc < 2           ? "OUT_PREFIX is missing"
                 : argc > 2         ? "too many arguments"
                 : argument.empty() ? "OUT_PREFIX is empty"
                                    : ("unknown option " + argument).c_str(),
                 kUsage);
    return 2;
  }
  try {
    make(argument);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainyard-make-trace: %s\n", error.what());
    return 2;
  }
  return 0;
}
