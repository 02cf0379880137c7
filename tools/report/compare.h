// SPDX-License-Identifier: MIT
// `trainyard compare`: where the difference between two runs comes from, out of their results.
#pragma once

#include <string>
#include <vector>

namespace trainyard {

/// One figure of both runs.
struct Difference {
  std::string name;
  double a = 0, b = 0;
  [[nodiscard]] double delta() const { return b - a; }
};

struct ComparedJob {
  std::string name;
  double a_ns = 0, b_ns = 0;      ///< from its start to its end
  std::vector<Difference> parts;  ///< as Comparison::parts
};

/// Lists are sorted: the largest change first. Nothing in them is equal on both sides.
struct Comparison {
  std::string a_name, b_name;  ///< scenarios
  std::string a_fingerprint, b_fingerprint;
  bool a_complete = true, b_complete = true;
  bool step = true;           ///< the times are those of a step; false: of traffic, to its end
  double a_ns = 0, b_ns = 0;  ///< step time, or end
  /// Mean over ranks; the changes sum to that of the step: compute, host, storage, exposed
  /// communication and waiting per parallel dimension, and the bubble (idle, or waiting for a
  /// pipeline stage).
  std::vector<Difference> parts;
  std::vector<ComparedJob> jobs;    ///< that both have
  std::vector<Difference> kernels;  ///< ns, all ranks together
  std::vector<Difference> links;    ///< ns of transmission; parallel links are one
  std::vector<Difference> totals;   ///< counts of the fabric
  struct Setting {
    std::string key, a, b;  ///< empty: not there
  };
  std::vector<Setting> settings;  ///< by key
};

/// `a`, `b`: folders of results, or their result.json. Throws UserError where they are none.
Comparison compare_results(const std::string& a, const std::string& b);

std::string comparison_text(const Comparison& comparison);
std::string comparison_json(const Comparison& comparison);

}  // namespace trainyard
