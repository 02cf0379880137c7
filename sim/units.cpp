// SPDX-License-Identifier: MIT
#include "sim/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "sim/errors.h"

namespace trainyard {
namespace {

using Uint128 = unsigned __int128;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr uint64_t kPsPerSecond = 1'000'000'000'000;

struct Unit {
  std::string_view name;
  uint64_t factor;  // in base units: ps, bytes, bits per second
  bool decimal;     // factor is a power of ten
};

// Largest first: the printers go through them in this order.
constexpr std::array<Unit, 8> kTimeUnits{{{"d", 86'400 * kPsPerSecond, false},
                                          {"h", 3'600 * kPsPerSecond, false},
                                          {"min", 60 * kPsPerSecond, false},
                                          {"s", kPsPerSecond, true},
                                          {"ms", 1'000'000'000, true},
                                          {"us", 1'000'000, true},
                                          {"ns", 1'000, true},
                                          {"ps", 1, true}}};
constexpr std::array<Unit, 9> kByteUnits{{{"TiB", uint64_t{1} << 40, false},
                                          {"TB", 1'000'000'000'000, true},
                                          {"GiB", uint64_t{1} << 30, false},
                                          {"GB", 1'000'000'000, true},
                                          {"MiB", uint64_t{1} << 20, false},
                                          {"MB", 1'000'000, true},
                                          {"KiB", uint64_t{1} << 10, false},
                                          {"KB", 1'000, true},
                                          {"B", 1, true}}};
constexpr std::array<Unit, 10> kRateUnits{{{"Tbps", 1'000'000'000'000, true},
                                           {"Gbps", 1'000'000'000, true},
                                           {"Mbps", 1'000'000, true},
                                           {"Kbps", 1'000, true},
                                           {"bps", 1, true},
                                           {"TBps", 8'000'000'000'000, false},
                                           {"GBps", 8'000'000'000, false},
                                           {"MBps", 8'000'000, false},
                                           {"KBps", 8'000, false},
                                           {"Bps", 8, false}}};
// Rates print in bits: the bytes' half of the table is for parsing only.
constexpr std::span<const Unit> kPrintedRateUnits(kRateUnits.data(), 5);

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && is_blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_blank(s.back())) s.remove_suffix(1);
  return s;
}

/// A decimal number as written, and what follows it.
struct Number {
  std::string digits;     // significant digits, most significant first; "" is zero
  int scale = 0;          // value = digits * 10^-scale
  std::string_view text;  // the number's own characters
  std::string_view rest;  // after blanks
};

/// Splits `text` into a number and the rest. Throws UserError that says what `what` looks like.
Number scan_number(std::string_view text, std::string_view what, const std::string& remedy) {
  const std::string_view s = trim(text);
  if (s.empty()) throw UserError(fmt::format("empty {}", what), remedy);
  if (s.front() == '-') {
    throw UserError(fmt::format("{} \"{}\" is negative", what, s), remedy);
  }
  Number n;
  size_t i = 0;
  bool any_digit = false;
  bool point = false;
  for (; i < s.size(); ++i) {
    const char c = s[i];
    if (c == '.' && !point) {
      point = true;
    } else if (is_digit(c)) {
      any_digit = true;
      if (point) ++n.scale;
      if (!n.digits.empty() || c != '0') n.digits += c;
    } else {
      break;
    }
  }
  if (!any_digit) {
    throw UserError(fmt::format("{} \"{}\" does not begin with a number", what, s), remedy);
  }
  // An exponent only when digits follow it.
  if (i < s.size() && (s[i] == 'e' || s[i] == 'E')) {
    size_t j = i + 1;
    const bool minus = j < s.size() && s[j] == '-';
    if (j < s.size() && (s[j] == '-' || s[j] == '+')) ++j;
    if (j < s.size() && is_digit(s[j])) {
      int exponent = 0;
      for (; j < s.size() && is_digit(s[j]); ++j) {
        exponent = std::min(exponent * 10 + (s[j] - '0'), 9'999);
      }
      n.scale += minus ? exponent : -exponent;
      i = j;
    }
  }
  n.text = s.substr(0, i);
  n.rest = trim(s.substr(i));
  return n;
}

/// digits * factor * 10^-scale, rounded to nearest (halves up); nullopt when above int64.
/// Long multiplication on the digits: exact for any number of them.
std::optional<int64_t> scaled(const Number& n, uint64_t factor) {
  if (n.digits.empty()) return 0;
  std::string product;  // least significant first
  uint64_t carry = 0;
  for (auto digit = n.digits.rbegin(); digit != n.digits.rend(); ++digit) {
    carry += static_cast<uint64_t>(*digit - '0') * factor;
    product += static_cast<char>('0' + carry % 10);
    carry /= 10;
  }
  for (; carry > 0; carry /= 10) product += static_cast<char>('0' + carry % 10);

  const auto length = static_cast<int>(product.size());
  if (length - n.scale > 19) return std::nullopt;  // int64 has at most 19 digits
  uint64_t value = 0;
  for (int i = length - 1; i >= n.scale; --i) {  // a negative scale appends zeros
    value =
        value * 10 + (i >= 0 ? static_cast<uint64_t>(product[static_cast<size_t>(i)] - '0') : 0);
  }
  if (n.scale > 0 && n.scale <= length && product[static_cast<size_t>(n.scale - 1)] >= '5') {
    ++value;
  }
  if (value > static_cast<uint64_t>(kMax)) return std::nullopt;
  return static_cast<int64_t>(value);
}

template <size_t N>
std::string accepted(const std::array<Unit, N>& units) {
  std::string text = "use a number with one of the units";
  for (const Unit& u : units) text += fmt::format(" {}", u.name);
  return text;
}

template <size_t N>
int64_t parse_with_units(std::string_view text, std::string_view what,
                         const std::array<Unit, N>& units) {
  const Number n = scan_number(text, what, accepted(units));
  if (n.rest.empty()) {
    if (n.digits.empty()) return 0;  // a bare 0 needs no unit
    throw UserError(fmt::format("{} \"{}\" has no unit", what, trim(text)), accepted(units));
  }
  for (const Unit& u : units) {
    if (u.name != n.rest) continue;
    const std::optional<int64_t> value = scaled(n, u.factor);
    // The largest int64 stands for infinity.
    if (!value || *value == kMax) {
      throw UserError(fmt::format("{} \"{}\" is too large: at most {}{}", what, trim(text),
                                  kMax - 1,
                                  std::find_if(units.begin(), units.end(), [](const Unit& v) {
                                    return v.factor == 1;
                                  })->name));
    }
    return *value;
  }
  throw UserError(fmt::format("unknown unit \"{}\" in {} \"{}\"", n.rest, what, trim(text)),
                  accepted(units));
}

/// The number as a double; from_chars rounds correctly and knows no locale.
double to_double(const Number& n, std::string_view what, const std::string& remedy) {
  // from_chars wants a digit before the point.
  const std::string text = n.text.front() == '.' ? "0" + std::string(n.text) : std::string(n.text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UserError(fmt::format("{} \"{}\" is out of range", what, n.text), remedy);
  }
  return value;
}

/// value / unit when that has at most `digits` significant decimal digits.
std::optional<std::string> exact_quotient(uint64_t value, uint64_t unit, int digits) {
  std::string text = fmt::format("{}", value / unit);
  uint64_t remainder = value % unit;
  if (remainder == 0) {
    if (static_cast<int>(text.find_last_not_of('0')) >= digits) return std::nullopt;
    return text;
  }
  auto left = digits - static_cast<int>(text.size());
  text += '.';
  for (; remainder > 0; --left) {
    if (left <= 0) return std::nullopt;
    const Uint128 tenfold = static_cast<Uint128>(remainder) * 10;
    text += static_cast<char>('0' + static_cast<int>(tenfold / unit));
    remainder = static_cast<uint64_t>(tenfold % unit);
  }
  return text;
}

/// Largest unit first. Units that are no powers of ten are taken only where they print exactly,
/// and, beside a decimal one of the same size (KiB, KB), only where they print shorter.
std::string print_with_units(int64_t signed_value, int digits, std::span<const Unit> units) {
  digits = std::clamp(digits, 1, 19);
  const std::string sign = signed_value < 0 ? "-" : "";
  const uint64_t value = signed_value < 0 ? 0 - static_cast<uint64_t>(signed_value)
                                          : static_cast<uint64_t>(signed_value);
  for (size_t i = 0; i < units.size(); ++i) {
    if (value < units[i].factor) continue;
    std::optional<std::string> text = exact_quotient(value, units[i].factor, digits);
    if (!text) continue;
    const Unit* unit = &units[i];
    // KiB is followed by KB: within a factor of 1.1 they are one size.
    if (!unit->decimal && i + 1 < units.size() && units[i + 1].factor > unit->factor / 2) {
      std::optional<std::string> other = exact_quotient(value, units[i + 1].factor, digits);
      if (other && other->size() <= text->size()) {
        text = other;
        unit = &units[i + 1];
      }
    }
    return sign + *text + std::string(unit->name);
  }
  // Not exact. Round the value itself first, so that 999.9999ns becomes 1us and not 1000ns.
  uint64_t step = 1;
  for (uint64_t v = value; v >= 10; v /= 10) step *= 10;
  for (int i = 1; i < digits && step > 1; ++i) step /= 10;
  const uint64_t rounded = (value / step + (value % step >= step - step / 2 ? 1 : 0)) * step;
  for (const Unit& u : units) {
    if (!u.decimal || rounded < u.factor) continue;
    return sign + exact_quotient(rounded, u.factor, 20).value() + std::string(u.name);
  }
  TRAINYARD_ASSERT(false && "every table of units ends with a factor of 1");
  return {};
}

}  // namespace

Time transmission_time(Bytes bytes, Rate rate, Time resolution) {
  TRAINYARD_ASSERT(resolution.ps() > 0);
  if (bytes.count() < 0) {
    throw UserError(fmt::format("{} bytes cannot be sent", bytes.count()), "use 0 or more");
  }
  if (rate.bps() <= 0) {
    throw UserError(fmt::format("a rate of {}bps moves nothing", rate.bps()), "use a rate above 0");
  }
  const Uint128 bits = static_cast<Uint128>(bytes.count()) * 8;
  const Uint128 ps = bits * kPsPerSecond / static_cast<Uint128>(rate.bps());
  if (ps >= static_cast<Uint128>(kMax)) {
    throw UserError(fmt::format("{} at {} take longer than the clock reaches (106 days)",
                                print_bytes(bytes), print_rate(rate)),
                    "use fewer bytes or a higher rate");
  }
  const auto whole = static_cast<int64_t>(ps);
  return Time::ps(whole - whole % resolution.ps());
}

Bytes bytes_in(Rate rate, Time time) {
  TRAINYARD_ASSERT(rate.bps() >= 0 && time.ps() >= 0);
  const Uint128 bytes = static_cast<Uint128>(rate.bps()) * static_cast<Uint128>(time.ps()) /
                        (8 * static_cast<Uint128>(kPsPerSecond));
  if (bytes > static_cast<Uint128>(kMax)) {
    throw UserError(fmt::format("{} for {} is more data than can be counted", print_rate(rate),
                                print_time(time)),
                    "use a lower rate or a shorter time");
  }
  return Bytes(static_cast<int64_t>(bytes));
}

Time parse_time(std::string_view text) {
  return Time::ps(parse_with_units(text, "time", kTimeUnits));
}

Bytes parse_bytes(std::string_view text) {
  return Bytes(parse_with_units(text, "size", kByteUnits));
}

Rate parse_rate(std::string_view text) {
  return Rate::bps(parse_with_units(text, "rate", kRateUnits));
}

double parse_length_m(std::string_view text) {
  const std::string remedy = "use a number with one of the units m cm km";
  const Number n = scan_number(text, "length", remedy);
  const double value = to_double(n, "length", remedy);
  if (n.rest == "m" || (n.rest.empty() && n.digits.empty())) return value;
  if (n.rest == "cm") return value / 100;
  if (n.rest == "km") return value * 1000;
  if (n.rest.empty()) {
    throw UserError(fmt::format("length \"{}\" has no unit", trim(text)), remedy);
  }
  throw UserError(fmt::format("unknown unit \"{}\" in length \"{}\"", n.rest, trim(text)), remedy);
}

double parse_fraction(std::string_view text) {
  const std::string remedy = "use a number such as 0.25, 1/8 or 1%";
  const Number n = scan_number(text, "number", remedy);
  const double value = to_double(n, "number", remedy);
  if (n.rest.empty()) return value;
  if (n.rest == "%") return value / 100;
  if (n.rest.front() == '/') {
    const Number below = scan_number(n.rest.substr(1), "divisor", remedy);
    const double divisor = to_double(below, "divisor", remedy);
    if (below.digits.empty()) {
      throw UserError(fmt::format("\"{}\" divides by zero", trim(text)), remedy);
    }
    if (below.rest.empty()) return value / divisor;
  }
  throw UserError(fmt::format("\"{}\" is not a plain number", trim(text)), remedy);
}

std::string print_time(Time t, int digits) {
  if (t.ps() == 0) return "0s";
  if (t == Time::infinity()) return "infinity";
  return print_with_units(t.ps(), digits, kTimeUnits);
}

std::string print_bytes(Bytes b, int digits) {
  if (b.count() == 0) return "0B";
  return print_with_units(b.count(), digits, kByteUnits);
}

std::string print_rate(Rate r, int digits) {
  if (r.bps() == 0) return "0bps";
  return print_with_units(r.bps(), digits, kPrintedRateUnits);
}

}  // namespace trainyard
