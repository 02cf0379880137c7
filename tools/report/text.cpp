// SPDX-License-Identifier: MIT
#include "tools/report/text.h"

#include <fmt/format.h>

#include <cctype>

namespace trainyard::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// Length of the well-formed sequence at `i` (Unicode table 3-7), or 0.
size_t sequence_length(std::string_view s, size_t i) {
  const auto at = [&](size_t k) -> unsigned {
    return k < s.size() ? static_cast<unsigned char>(s[k]) : 0U;
  };
  const auto tail = [&](size_t k) { return (at(k) & 0xC0U) == 0x80U; };
  const unsigned lead = at(i), second = at(i + 1);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(i + 1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned low = lead == 0xE0 ? 0xA0 : 0x80;   // overlong forms
    const unsigned high = lead == 0xED ? 0x9F : 0xBF;  // surrogates
    return second >= low && second <= high && tail(i + 2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned low = lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xF4 ? 0x8F : 0xBF;  // beyond U+10FFFF
    return second >= low && second <= high && tail(i + 2) && tail(i + 3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t n = sequence_length(text, i);
    if (n == 0) {
      out += kReplacement;
      ++i;
    } else {
      out += text.substr(i, n);
      i += n;
    }
  }
  return out;
}

std::string printable(std::string_view text) {
  std::string out = valid_utf8(text);
  std::string kept;
  kept.reserve(out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const auto c = static_cast<unsigned char>(out[i]);
    // U+0080 to U+009F steer terminals like ESC does; in UTF-8 they are C2 80 to C2 9F.
    const bool c1 = c == 0xC2 && static_cast<unsigned char>(out[i + 1]) < 0xA0;
    if (c1) ++i;
    kept += c < 0x20 || c == 0x7F || c1 ? ' ' : out[i];
  }
  return kept;
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 8);
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

size_t columns(std::string_view utf8) {
  size_t n = 0;
  for (const char c : utf8) n += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return n;
}

std::string shortened(const std::string& utf8, size_t width, std::string_view ellipsis) {
  if (columns(utf8) <= width) return utf8;
  const size_t reserve = columns(ellipsis);
  const size_t keep = width > reserve ? width - reserve : 0;
  size_t seen = 0, i = 0;
  for (; i < utf8.size(); ++i) {
    if ((static_cast<unsigned char>(utf8[i]) & 0xC0U) != 0x80U && seen++ == keep) break;
  }
  return utf8.substr(0, i) + std::string(ellipsis);
}

std::string grouped(uint64_t value) {
  std::string digits = std::to_string(value);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string counted(uint64_t count, std::string_view singular, std::string_view plural) {
  return fmt::format("{} {}", grouped(count), count == 1 ? singular : plural);
}

std::string percent(double ratio) {
  if (ratio > 0 && ratio < 0.0005) return "<0.1";
  return fmt::format("{:.1f}", ratio * 100);
}

std::string exact_ns(Time t, bool padded) {
  const bool negative = t.ps() < 0;
  uint64_t magnitude = static_cast<uint64_t>(t.ps());
  if (negative) magnitude = 0 - magnitude;  // holds for the smallest int64 too
  std::string out = fmt::format("{}{}", negative ? "-" : "", magnitude / 1000);
  const uint64_t fraction = magnitude % 1000;
  if (!padded && fraction == 0) return out;
  out += fmt::format(".{:03}", fraction);
  while (!padded && out.back() == '0') out.pop_back();
  return out;
}

TimeScale time_scale(Time largest) {
  constexpr TimeScale kScales[] = {{1'000'000'000'000, 3, "s", "s"},
                                   {1'000'000'000, 3, "ms", "ms"},
                                   {1'000'000, 3, "us", "\xC2\xB5s"},
                                   {1'000, 3, "ns", "ns"}};
  for (const TimeScale& scale : kScales) {
    if (largest.ps() >= scale.unit_ps) return scale;
  }
  return {};
}

std::string in_scale(Time t, const TimeScale& scale) {
  return fmt::format("{:.{}f}", static_cast<double>(t.ps()) / static_cast<double>(scale.unit_ps),
                     scale.decimals);
}

ByteScale byte_scale(uint64_t largest) {
  constexpr ByteScale kScales[] = {
      {1e15, 3, "PB"}, {1e12, 3, "TB"}, {1e9, 3, "GB"}, {1e6, 3, "MB"}, {1e3, 3, "KB"}};
  for (const ByteScale& scale : kScales) {
    if (static_cast<double>(largest) >= scale.unit_bytes) return scale;
  }
  return {};
}

std::string in_scale(uint64_t bytes, const ByteScale& scale) {
  return fmt::format("{:.{}f}", static_cast<double>(bytes) / scale.unit_bytes, scale.decimals);
}

std::string volume(uint64_t bytes) {
  ByteScale scale = byte_scale(bytes);
  if (scale.decimals > 0) {
    const double value = static_cast<double>(bytes) / scale.unit_bytes;
    scale.decimals = value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0;
  }
  return in_scale(bytes, scale) + scale.symbol;
}

std::string typeset(const std::string& printed) {
  size_t unit = printed.size();
  while (unit > 0 && std::isalpha(static_cast<unsigned char>(printed[unit - 1])) != 0) --unit;
  std::string number = printed.substr(0, unit), suffix = printed.substr(unit);
  while (!number.empty() && number.back() == ' ') number.pop_back();
  if (suffix == "us") suffix = "\xC2\xB5s";
  return suffix.empty() ? number : number + "\xC2\xA0" + suffix;
}

}  // namespace trainyard::report
