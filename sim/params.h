// SPDX-License-Identifier: MIT
// Parameters that document themselves. A model declares each parameter once, with unit, default,
// range, help and source; the scenario reader checks input against that, `trainyard explain`
// prints it, and the model reads typed values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/errors.h"
#include "sim/units.h"

namespace trainyard {

enum class ParamType : uint8_t {
  boolean,  ///< true | false
  integer,  ///< whole number
  real,     ///< number, also "1/8" and "1%"
  time,     ///< "1.5us"
  bytes,    ///< "4MiB"
  rate,     ///< "400Gbps"
  length,   ///< "30m": cable length
  choice,   ///< one of `choices`
  text      ///< free text
};

struct ParamSpec {
  std::string name;
  ParamType type = ParamType::text;
  std::string default_value;         ///< as a user would write it
  std::string min, max;              ///< same notation; empty: no bound
  std::vector<std::string> choices;  ///< ParamType::choice; for other types: words accepted beside
                                     ///< a value, e.g. "auto"
  std::string help;                  ///< one sentence
  std::string source;                ///< where the default comes from: a fact id or a document
};

/// Where a value came from.
struct Origin {
  enum class Kind : uint8_t { default_value, preset, user, command_line };
  Kind kind = Kind::default_value;
  SourcePos pos;
};

/// Checked values of one model's parameters.
class Params {
 public:
  Params() = default;
  /// All defaults of `specs`.
  explicit Params(const std::vector<ParamSpec>& specs);

  /// Parses `text` as the parameter's type, checks range and choices, stores it. Throws UserError
  /// at `origin.pos` naming the parameter, the value and what is accepted.
  void set(const std::string& name, const std::string& text, const Origin& origin);

  [[nodiscard]] bool has_spec(const std::string& name) const { return specs_.count(name) != 0; }
  /// The words a parameter holds ("auto", a choice, or the text itself).
  [[nodiscard]] const std::string& text(const std::string& name) const;
  [[nodiscard]] bool is_word(const std::string& name, const std::string& word) const {
    return text(name) == word;
  }
  [[nodiscard]] bool boolean(const std::string& name) const;
  [[nodiscard]] int64_t integer(const std::string& name) const;
  [[nodiscard]] double real(const std::string& name) const;
  [[nodiscard]] Time time(const std::string& name) const;
  [[nodiscard]] Bytes bytes(const std::string& name) const;
  [[nodiscard]] Rate rate(const std::string& name) const;
  [[nodiscard]] double length_m(const std::string& name) const;
  [[nodiscard]] const Origin& origin(const std::string& name) const;
  [[nodiscard]] const ParamSpec& spec(const std::string& name) const;
  [[nodiscard]] const std::vector<std::string>& names() const { return order_; }
  /// Delay of a link described by `delay_name` ("auto" = length x 5 ns/m) and `length_name`.
  [[nodiscard]] Time link_delay(const std::string& delay_name,
                                const std::string& length_name) const;

 private:
  struct Value {
    std::string text;
    Origin origin;
  };
  [[nodiscard]] const Value& at(const std::string& name, ParamType type) const;
  std::map<std::string, ParamSpec> specs_;
  std::map<std::string, Value> values_;
  std::vector<std::string> order_;
};

/// "time, 1ns..1s, default 50us": type, range, choices and default in words.
std::string describe(const ParamSpec& spec);

}  // namespace trainyard
