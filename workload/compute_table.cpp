// SPDX-License-Identifier: MIT
// Compute times from measured kernels: a CSV of shapes and times, interpolated.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <unordered_map>

#include "sim/compute_model.h"
#include "sim/errors.h"
#include "sim/registry.h"
#include "workload/roofline.h"
#include "workload/roofline_params.h"

namespace trainyard {
namespace {

using Shape = std::array<int64_t, 3>;  // m, n, k; elementwise: bytes, 0, 0

constexpr std::array<const char*, 6> kKinds{"gemm",      "gemm-fp8",           "gemm-tf32",
                                            "attention", "attention-backward", "elementwise"};

size_t kernel_kind(const Kernel& k) {
  switch (k.kind) {
    case Kernel::Kind::gemm:
      return static_cast<size_t>(k.precision);
    case Kernel::Kind::attention:
      return k.backward ? 4 : 3;
    case Kernel::Kind::elementwise:
      break;
  }
  return 5;
}

Shape shape_of(const Kernel& k) {
  if (k.kind == Kernel::Kind::elementwise) return {k.bytes, 0, 0};
  return {k.m, k.n, k.k};
}

std::string shape_text(size_t kind, const Shape& s) {
  return kind == 5 ? fmt::format("elementwise of {} bytes", s[0])
                   : fmt::format("{} m {} n {} k {}", kKinds[kind], s[0], s[1], s[2]);
}

class Table final : public ComputeModel {
 public:
  Table(const Params& p, const ComputeRequest& r)
      : card_(r.device),
        shares_(roofline_shares(p)),
        extrapolate_(p.is_word("outside", "roofline")),
        pos_(p.origin("file").pos) {
    const std::filesystem::path given(p.text("file"));
    if (given.empty()) {
      throw UserError(r.pos, "compute.model: table needs a file of measured kernels",
                      "add 'file: kernels.csv', see docs/compute.md");
    }
    path_ =
        given.is_absolute() ? given.string() : (std::filesystem::path(r.base_dir) / given).string();
    name_ = given.filename().string();
    read();
  }

  [[nodiscard]] std::optional<uint64_t> kind_of(uint32_t) const override { return 0; }
  [[nodiscard]] Time duration(const OpGraph& graph, uint32_t op, uint32_t) const override {
    const Op& o = graph.ops[op];
    if (o.flops == 0 && o.bytes == 0) return o.duration;
    const auto known = times_.find(&graph);
    Time sum;
    if (o.kernels == 0) return time_of(whole(o)).time;
    for (uint32_t i = o.first_kernel; i < o.first_kernel + o.kernels; ++i) {
      sum += known != times_.end() ? known->second[i] : time_of(graph.kernels[i]).time;
    }
    return sum;
  }

  [[nodiscard]] std::string source() const override { return "table " + name_; }

  std::vector<ComputeRemark> prepare(const Job& job) override {
    std::set<std::pair<size_t, Shape>> exact, interpolated, outside;
    const auto note = [&](const Kernel& k, const Found& f) {
      (f.how == How::exact    ? exact
       : f.how == How::inside ? interpolated
                              : outside)
          .emplace(kernel_kind(k), shape_of(k));
    };
    for (const RankProgram& rank : job.ranks) {
      const OpGraph& g = *rank.graph;
      if (!times_.try_emplace(&g).second) continue;
      held_.push_back(rank.graph);
      std::vector<Time>& times = times_[&g];
      for (const Kernel& k : g.kernels) {
        const Found f = time_of(k);
        times.push_back(f.time);
        note(k, f);
      }
      for (const Op& o : g.ops) {
        const bool works = o.kind == OpKind::compute || o.kind == OpKind::memory;
        if (!works || o.kernels > 0 || (o.flops == 0 && o.bytes == 0)) continue;
        note(whole(o), time_of(whole(o)));
      }
    }
    std::vector<ComputeRemark> remarks;
    remarks.push_back({fmt::format("measured, {}: {} shapes of this job are rows of it, {} lie "
                                   "between two rows and are interpolated linearly",
                                   name_, exact.size(), interpolated.size()),
                       false});
    if (!outside.empty()) {
      const auto& [kind, shape] = *outside.begin();
      remarks.push_back(
          {fmt::format("{} shapes lie outside of {} and take the roofline, times what the nearest "
                       "row is slower than it (compute.outside: roofline); the first: {}",
                       outside.size(), name_, shape_text(kind, shape)),
           true});
    }
    return remarks;
  }

 private:
  enum class How : uint8_t { exact, inside, outside };
  struct Found {
    Time time;
    How how = How::exact;
  };

  Kernel whole(const Op& o) const {
    if (o.flops > 0) {
      throw UserError(pos_,
                      "an operation of the workload says FLOPs, but no shapes that could be "
                      "looked up",
                      "tables are for generated workloads (workload.model); traces have "
                      "'compute: {model: roofline}'");
    }
    return whole_op(o, Kernel::Precision::half);
  }

  void read() {
    std::ifstream in(path_);
    if (!in) throw UserError(pos_, "cannot read " + path_);
    int number = 0;
    bool header = false;
    const std::string columns = "kind,m,n,k,bytes,time_us";
    for (std::string line; std::getline(in, line);) {
      ++number;
      const SourcePos here{path_, number};
      line.erase(std::find(line.begin(), line.end(), '#'), line.end());
      line.erase(std::remove_if(line.begin(), line.end(),
                                [](char c) { return c == ' ' || c == '\t' || c == '\r'; }),
                 line.end());
      if (line.empty()) continue;
      if (!header) {
        if (line != columns) {
          throw UserError(here, "the first line must be " + columns + ", not " + line);
        }
        header = true;
        continue;
      }
      row(line, here);
    }
    if (rows_ == 0)
      throw UserError(SourcePos{path_, std::max(1, number)}, "no kernel in the table");
  }

  void row(const std::string& line, const SourcePos& here) {
    std::vector<std::string> cells;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
    if (cells.size() != 6) {
      throw UserError(here, "expected 6 cells: kind,m,n,k,bytes,time_us",
                      "cells that say nothing stay empty, their commas do not");
    }
    const auto at = std::find(kKinds.begin(), kKinds.end(), cells[0]);
    if (at == kKinds.end()) {
      throw UserError(here, "unknown kind '" + cells[0] + "'",
                      "known: gemm, gemm-fp8, gemm-tf32, attention, attention-backward, "
                      "elementwise");
    }
    const auto kind = static_cast<size_t>(at - kKinds.begin());
    const auto whole = [&](size_t i, const char* name) -> int64_t {
      int64_t v = 0;
      for (const char c : cells[i]) {
        if (c < '0' || c > '9' || v > (int64_t{1} << 55)) v = -1;
        if (v < 0) break;
        v = v * 10 + (c - '0');
      }
      if (v <= 0) throw UserError(here, std::string(name) + " must be a whole number above 0");
      return v;
    };
    Shape shape{0, 0, 0};
    if (kind == 5)
      shape[0] = whole(4, "bytes");
    else
      shape = {whole(1, "m"), whole(2, "n"), whole(3, "k")};
    int64_t time = 0;
    try {
      time = parse_time(cells[5] + "us").ps();
    } catch (const UserError&) {
      time = 0;
    }
    if (time <= 0) throw UserError(here, "time_us must be a number above 0");
    if (!tables_[kind].emplace(shape, time).second) {
      throw UserError(here, shape_text(kind, shape) + " stands here a second time");
    }
    ++rows_;
  }

  /// Linear between the two rows that differ from the shape in one dimension only and lie nearest
  /// on either side; of several dimensions the first that has them.
  [[nodiscard]] Found time_of(const Kernel& k) const {
    const size_t kind = kernel_kind(k);
    const Shape shape = shape_of(k);
    const auto& table = tables_[kind];
    if (const auto it = table.find(shape); it != table.end()) {
      return {Time::ps(it->second), How::exact};
    }
    for (size_t d = 0; d < 3; ++d) {
      const std::pair<const Shape, int64_t>*below = nullptr, *above = nullptr;
      for (const auto& row : table) {
        bool same = true;
        for (size_t e = 0; e < 3; ++e) same = same && (e == d || row.first[e] == shape[e]);
        if (!same) continue;
        const int64_t v = row.first[d];
        if (v < shape[d] && (below == nullptr || v > below->first[d])) below = &row;
        if (v > shape[d] && (above == nullptr || v < above->first[d])) above = &row;
      }
      if (below == nullptr || above == nullptr) continue;
      const __int128 rise = above->second - below->second;
      const __int128 run = above->first[d] - below->first[d];
      return {
          Time::ps(below->second + static_cast<int64_t>(rise * (shape[d] - below->first[d]) / run)),
          How::inside};
    }
    if (!extrapolate_) {
      throw UserError(pos_,
                      shape_text(kind, shape) + " is not in " + name_ +
                          ", nor between two rows that differ from it in one dimension",
                      "measure it, or set compute.outside: roofline to extrapolate");
    }
    return {outside(k, shape, table), How::outside};
  }

  [[nodiscard]] Time outside(const Kernel& k, const Shape& shape,
                             const std::map<Shape, int64_t>& table) const {
    const Time roof = roofline_time(k, card_, shares_);
    const std::pair<const Shape, int64_t>* nearest = nullptr;
    double least = 0;
    for (const auto& row : table) {
      double distance = 1;  // products of ratios order like sums of logarithms
      for (size_t d = 0; d < 3; ++d) {
        if (row.first[d] == shape[d]) continue;
        const auto a = static_cast<double>(row.first[d]);
        const auto b = static_cast<double>(shape[d]);
        distance *= std::max(a, b) / std::min(a, b);
      }
      if (nearest != nullptr && distance >= least) continue;
      nearest = &row;
      least = distance;
    }
    if (nearest == nullptr) return roof;  // nothing of its kind was measured
    const Time there = roofline_time(row_kernel(k, nearest->first), card_, shares_);
    const double slower = static_cast<double>(nearest->second) / static_cast<double>(there.ps());
    return Time::ps(std::llround(static_cast<double>(roof.ps()) * slower));
  }

  /// A kernel of the row's shape, with work in proportion to that of `k`.
  static Kernel row_kernel(const Kernel& k, const Shape& row) {
    Kernel other = k;
    if (k.kind == Kernel::Kind::elementwise) {
      other.flops = scaled(k.flops, row[0], k.bytes);
      other.bytes = row[0];
      return other;
    }
    double work = 1, surfaces = 0, mine = 0;
    const std::array<double, 3> a{static_cast<double>(row[0]), static_cast<double>(row[1]),
                                  static_cast<double>(row[2])};
    const std::array<double, 3> b{static_cast<double>(k.m), static_cast<double>(k.n),
                                  static_cast<double>(k.k)};
    for (size_t d = 0; d < 3; ++d) work *= a[d] / b[d];
    surfaces = a[0] * a[1] + a[1] * a[2] + a[0] * a[2];
    mine = b[0] * b[1] + b[1] * b[2] + b[0] * b[2];
    other.flops = std::llround(static_cast<double>(k.flops) * work);
    other.special = std::llround(static_cast<double>(k.special) * work);
    other.bytes = std::llround(static_cast<double>(k.bytes) * surfaces / mine);
    return other;
  }
  static int64_t scaled(int64_t x, int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<__int128>(x) * a / std::max<int64_t>(1, b));
  }

  DeviceCard card_;
  RooflineShares shares_;
  bool extrapolate_;
  SourcePos pos_;
  std::string path_, name_;
  size_t rows_ = 0;
  std::array<std::map<Shape, int64_t>, kKinds.size()> tables_;   // -> ps
  std::unordered_map<const OpGraph*, std::vector<Time>> times_;  // by kernel; looked up only
  std::vector<std::shared_ptr<const OpGraph>> held_;             // their addresses are keys
};

std::vector<ParamSpec> table_params() {
  std::vector<ParamSpec> specs = {
      {"file",
       ParamType::text,
       "",
       "",
       "",
       {},
       "CSV of measured kernels: kind,m,n,k,bytes,time_us; relative to the scenario",
       "DESIGN 4"},
      {"outside",
       ParamType::choice,
       "error",
       "",
       "",
       {"error", "roofline"},
       "shapes that are no row and between no two: an error, or the roofline times what the "
       "nearest row is slower than it",
       "our choice: no silent extrapolation"}};
  for (const ParamSpec& roof : roofline_params()) {
    if (roof.name != "precision") specs.push_back(roof);  // shapes know theirs
  }
  return specs;
}

const RegisterModel<ComputeFactory> kTable{
    {"compute", "table",
     "A kernel takes the time that was measured for its shape; between two rows that differ in one "
     "dimension, linearly interpolated. The other parameters are the roofline's, for 'outside'.",
     "DESIGN 4", table_params()},
    [](const Params& p, const ComputeRequest& r) { return std::make_unique<Table>(p, r); }};

}  // namespace
}  // namespace trainyard
