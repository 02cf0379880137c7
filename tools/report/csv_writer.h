// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "sim/units.h"
#include "tools/report/text.h"

namespace trainyard {

/// One table under construction; fields are quoted as RFC 4180 asks.
class Csv {
 public:
  explicit Csv(std::string_view header) : out_(header) { out_ += '\n'; }

  Csv& text(std::string_view value) {
    separate();
    const std::string clean = report::valid_utf8(value);
    if (clean.find_first_of(",\"\r\n") == std::string::npos) {
      out_ += clean;
      return *this;
    }
    out_ += '"';
    for (const char c : clean) out_.append(c == '"' ? 2 : 1, c);
    out_ += '"';
    return *this;
  }
  template <typename Integer>
  Csv& number(Integer value) {
    separate();
    fmt::format_to(std::back_inserter(out_), "{}", value);
    return *this;
  }
  /// A count that only a simulation of packets knows; empty otherwise.
  template <typename Integer>
  Csv& number_if(bool known, Integer value) {
    if (known) return number(value);
    separate();
    return *this;
  }
  /// Shortest decimal that reads back as the same double; empty when undefined.
  Csv& real(double value) {
    separate();
    if (std::isfinite(value)) fmt::format_to(std::back_inserter(out_), "{}", value);
    return *this;
  }
  Csv& time(Time t) {
    separate();
    out_ += report::exact_ns(t, true);
    return *this;
  }
  /// An instant that an interrupted run may not have reached.
  Csv& time_if(bool reached, Time t) {
    if (reached) return time(t);
    separate();
    return *this;
  }
  void end_row() {
    out_ += '\n';
    row_started_ = false;
  }
  [[nodiscard]] size_t size() const { return out_.size(); }
  /// What was written since the last call.
  std::string take() { return std::exchange(out_, std::string()); }

 private:
  void separate() {
    if (row_started_) out_ += ',';
    row_started_ = true;
  }
  std::string out_;
  bool row_started_ = false;
};

}  // namespace trainyard
