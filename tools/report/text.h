// SPDX-License-Identifier: MIT
// Text helpers shared by the report writers. Internal to tools/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/units.h"

namespace trainyard::report {

/// `text` with every malformed UTF-8 sequence replaced by U+FFFD, so that names taken from a trace
/// cannot make an output file unreadable.
std::string valid_utf8(std::string_view text);
/// valid_utf8, with control characters replaced by blanks: a name must not steer a terminal.
std::string printable(std::string_view text);
/// printable, escaped for HTML text and quoted attributes.
std::string escape_html(std::string_view text);
/// Code points, the width of a text of ordinary letters in columns.
size_t columns(std::string_view utf8);
/// At most `width` columns; a longer text ends in `ellipsis`.
std::string shortened(const std::string& utf8, size_t width, std::string_view ellipsis);

/// 1234567 -> "1,234,567".
std::string grouped(uint64_t value);
/// "1 flow", "2 flows", "1,234 flows".
std::string counted(uint64_t count, std::string_view singular, std::string_view plural);
/// A ratio as a percentage with one decimal and no sign: 0.1234 -> "12.3". A ratio that is not zero
/// but would print as zero says "<0.1".
std::string percent(double ratio);

/// Picoseconds / 1000 without rounding: "1.500" padded, "1.5" otherwise.
std::string exact_ns(Time t, bool padded);

/// One unit for a whole column or axis, so that its numbers compare by eye.
struct TimeScale {
  int64_t unit_ps = 1;
  int decimals = 0;
  const char* ascii = "ps";
  const char* symbol = "ps";  ///< with the micro sign
};
/// The unit that shows `largest` with a value of at least 1.
TimeScale time_scale(Time largest);
/// `t` in the unit of `scale`, without the unit, rounded to its decimals.
std::string in_scale(Time t, const TimeScale& scale);

/// A volume of traffic with four digits in a decimal unit: "25.17GB". print_bytes is for sizes,
/// which people choose as powers of two.
std::string volume(uint64_t bytes);

struct ByteScale {
  double unit_bytes = 1;
  int decimals = 0;
  const char* symbol = "B";
};
/// The decimal unit that shows `largest` with a value of at least 1, for a column of volumes.
ByteScale byte_scale(uint64_t largest);
std::string in_scale(uint64_t bytes, const ByteScale& scale);

/// What print_time and its siblings wrote, with a no-break space before the unit and a micro sign.
std::string typeset(const std::string& printed);

}  // namespace trainyard::report
