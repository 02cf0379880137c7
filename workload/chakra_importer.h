// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "chakra/trace.h"
#include "chakra/validator.h"
#include "sim/op_graph.h"

namespace trainyard {

/// Order between compute and communication kernels of a rank. Traces linked from PyTorch recordings
/// lack the event waits between CUDA streams: in them no edge leaves a kernel. The order of launch
/// (ids) stands in for it.
enum class LaunchOrder : uint8_t {
  blocking,       ///< a communication kernel waits for the compute kernels launched before it, and
                  ///< the next compute kernel waits for it: nothing overlaps, an upper bound
  after_compute,  ///< a communication kernel waits for the compute kernels launched before it (what
                  ///< c10d records); compute never waits for communication
  free            ///< only the edges of the trace and the streams: a lower bound
};

struct ChakraImportOptions {
  /// Bytes per element of comm_size and tensor_size; 1: they are bytes. 0: decide by the trace's
  /// producer (STAGE writes element counts; bf16 is assumed).
  int64_t element_bytes = 0;
  bool strict = false;                                    ///< warnings are errors
  LaunchOrder launch_order = LaunchOrder::after_compute;  ///< for kernels with streams only
};

struct ChakraImport {
  Job job;
  chakra::Summary summary;
  std::vector<chakra::Finding> findings;  ///< warnings: what was repaired
  size_t rank_classes = 0;
  int64_t element_bytes = 1;   ///< as used
  bool has_durations = false;  ///< some compute op carries a duration
  bool has_flops = false;
  bool has_streams = false;  ///< kernels carry CUDA streams
  size_t launch_edges = 0;   ///< dependencies added for LaunchOrder
};

/// Validates a trace set and turns it into a Job. Throws UserError with the first error finding.
///
/// Streams. Kernels that carry a CUDA stream run in order of id on that stream; in a rank where no
/// node says its stream, the `tid` of a kernel is its stream (old conversions wrote it there).
/// Between streams LaunchOrder applies. Otherwise compute ops of a rank run one at a time, the
/// ready one with the lowest id first, and communication runs as soon as its dependencies allow: a
/// trace without streams gives no order among collectives. Host ops run one at a time beside the
/// device.
ChakraImport import_chakra(const chakra::TraceSet& set, const std::string& name,
                           const ChakraImportOptions& options);

}  // namespace trainyard
