// SPDX-License-Identifier: MIT
// The JSON forms of Chakra traces:
//   JSON stream   protobuf-JSON objects one after the other: metadata, then nodes (chakra_jsonizer)
//   JSON array    the same objects in one array
//   feeder JSON   {"workload_graph": [...]} of the Chakra feeder
//   STAGE JSON    {"nodes": [...]} of STAGE's JSON backend
// Keys in camelCase or snake_case, numbers also as strings, enums as numbers or names.
#pragma once

#include <functional>
#include <string>

#include "chakra/reader.h"

namespace trainyard::chakra {

class ByteSource;

/// As read_file() does. Memory holds one node at a time. Throws UserError with file and line.
void read_json(const std::string& path, ByteSource& source, FileHeader& header,
               const std::function<void(Node&&)>& on_node);

}  // namespace trainyard::chakra
