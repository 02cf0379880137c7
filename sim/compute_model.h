// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/op_graph.h"
#include "sim/params.h"

namespace trainyard {

/// What a compute model has to say about a job before it runs.
struct ComputeRemark {
  std::string text;
  bool caution = false;
};

/// How long an op takes on a device. Durations are whole picoseconds and depend on nothing but
/// the arguments, so that ranks of one class agree.
class ComputeModel {
 public:
  virtual ~ComputeModel() = default;
  [[nodiscard]] virtual Time duration(const OpGraph& graph, uint32_t op, uint32_t rank) const = 0;
  /// Ranks of one kind take equally long for an op; nothing: there is no saying.
  [[nodiscard]] virtual std::optional<uint64_t> kind_of(uint32_t rank) const {
    (void)rank;
    return std::nullopt;
  }
  /// For reports: "trace", "roofline (uncalibrated)".
  [[nodiscard]] virtual std::string source() const = 0;
  /// Called with the job that is to run. Throws UserError for an op that the model has no time for.
  virtual std::vector<ComputeRemark> prepare(const Job& job) {
    (void)job;
    return {};
  }
};

/// A device card: peak rates of one accelerator. 0: not known, or not there.
struct DeviceCard {
  std::string name;
  double tflops = 0;  ///< tensor cores, bf16 or fp16, dense
  double hbm_gbytes_per_s = 0;
  std::string source;
  int64_t memory_bytes = 0;  ///< of the device
  double fp8_tflops = 0;     ///< tensor cores, dense
  double tf32_tflops = 0;    ///< likewise
  double vector_tflops = 0;  ///< fp32 outside the tensor cores, a multiply-add counted as two
  double special_tops = 0;   ///< results of special functions (exp2, ...), 1e12 per second
  int64_t scale_up_bps = 0;  ///< of all links to the scale-up domain, per direction
  int64_t sms = 0;           ///< streaming multiprocessors or compute units
  std::string generation;    ///< family that collective libraries tell apart: "hopper", ...
  // Watts of a board by what it does.
  double tdp_watts = 0, compute_watts = 0, communication_watts = 0, idle_watts = 0;
  std::vector<std::string> unverified;  ///< keys whose value no one has checked at its source
  std::map<std::string, std::string> sources;  ///< key -> where its value comes from

  /// Peak of the tensor cores; 0 where they do not have that precision.
  [[nodiscard]] double peak_tflops(Kernel::Precision precision) const {
    switch (precision) {
      case Kernel::Precision::fp8:
        return fp8_tflops;
      case Kernel::Precision::tf32:
        return tf32_tflops;
      case Kernel::Precision::half:
        break;
    }
    return tflops;
  }
};

/// Where a compute model comes from.
struct ComputeRequest {
  const DeviceCard& device;
  std::string base_dir;  ///< folder that paths of the scenario are relative to
  SourcePos pos;
};

/// Factory of category "compute".
using ComputeFactory =
    std::function<std::unique_ptr<ComputeModel>(const Params&, const ComputeRequest&)>;

/// A share of the nominal time that varies from op to op.
class Jitter {
 public:
  virtual ~Jitter() = default;
  /// Factor on the time of an op, in 1/2^32, from 64 random bits. Integers only; mean 1.
  [[nodiscard]] virtual uint64_t factor_q32(uint64_t draw) const = 0;
};

/// Factory of category "jitter"; null: no jitter.
using JitterFactory = std::function<std::unique_ptr<Jitter>(const Params&)>;

}  // namespace trainyard
