// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sim/op_graph.h"
#include "sim/params.h"

namespace trainyard {

/// How long an op takes on a device. Durations are whole picoseconds and depend on nothing but
/// the arguments, so that ranks of one class agree.
class ComputeModel {
 public:
  virtual ~ComputeModel() = default;
  [[nodiscard]] virtual Time duration(const OpGraph& graph, uint32_t op, uint32_t rank) const = 0;
  /// For reports: "trace", "roofline (uncalibrated)".
  [[nodiscard]] virtual std::string source() const = 0;
};

/// A device card: peak rates of one accelerator. `tflops` dense, in the job's precision.
struct DeviceCard {
  std::string name;
  double tflops = 0;
  double hbm_gbytes_per_s = 0;
  std::string source;
  int64_t memory_bytes = 0;  ///< of the device; 0: not known
};

/// Factory of category "compute".
using ComputeFactory =
    std::function<std::unique_ptr<ComputeModel>(const Params&, const DeviceCard&)>;

}  // namespace trainyard
