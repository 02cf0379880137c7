// SPDX-License-Identifier: MIT
// A Chakra execution trace as read: one rank, nodes in file order, nothing repaired yet.
// Whatever the file's dialect, node types and collectives are those of chakra/et_def.proto
// (MLCommons Chakra 0.0.4).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainyard::chakra {

enum class NodeType : uint8_t {
  invalid = 0,
  metadata = 1,
  mem_load = 2,
  mem_store = 3,
  comp = 4,
  comm_send = 5,
  comm_recv = 6,
  comm_coll = 7
};

const char* node_type_name(NodeType type);

/// A node. Attributes that Trainyard uses are decoded, from any scalar kind; others are skipped.
/// An attribute that is absent, or present without a value, is nullopt.
struct Node {
  uint64_t id = 0;
  std::string name;
  NodeType type = NodeType::invalid;
  std::vector<uint64_t> ctrl_deps, data_deps;  ///< ids of parents, as written
  uint64_t duration_us = 0;                    ///< whole microseconds (a property of the format)

  bool is_cpu_op = false;
  std::optional<int64_t> num_ops;      ///< FLOPs
  std::optional<int64_t> tensor_size;  ///< bytes (STAGE writes elements)
  std::optional<int64_t> comm_type;    ///< collective, enum of the schema
  std::optional<int64_t> comm_size;    ///< bytes (STAGE writes elements)
  std::optional<int64_t> comm_src, comm_dst, comm_tag;
  std::optional<std::string> pg_name;  ///< process group; "1.0" is kept as written
  std::optional<int64_t> stream;       ///< CUDA stream of a kernel
  std::optional<int64_t> tid;          ///< thread; in old conversions the stream of a kernel
  std::string inputs;                  ///< inputs.values, kept for METADATA nodes only
  std::vector<std::string> notes;      ///< oddities met while reading, for the validator
};

/// A process group: name and members, in the order listed.
struct ProcessGroup {
  std::string name;
  std::vector<uint32_t> ranks;  ///< empty: all ranks
};

/// One rank's trace.
struct RankTrace {
  std::string file;
  std::string version;  ///< as written in the first record
  std::string schema;   ///< metadata attribute "schema", e.g. "symbolic_tensor_network" (STAGE)
  std::string dialect;  ///< encoding that was found: "0.0.1", "0.0.3+uint", "0.0.4", "STAGE JSON"
  std::vector<Node> nodes;
  std::vector<ProcessGroup> groups;  ///< from METADATA nodes
};

/// All ranks of a job.
struct TraceSet {
  std::vector<RankTrace> ranks;      ///< index = rank
  std::vector<ProcessGroup> groups;  ///< of comm_group.json, or of the METADATA nodes
  std::string group_file;            ///< path, or "" when the groups came from elsewhere
};

}  // namespace trainyard::chakra
