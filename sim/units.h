// SPDX-License-Identifier: MIT
// Strong units. YAML, CLI and CSV speak "400Gbps", "1.5us", "4MiB"; inside there are integers.
//
//   Time   picoseconds            int64: +-106 days
//   Bytes  bytes                  int64
//   Rate   bits per second, one direction
//
// KB = 1000 bytes, KiB = 1024 bytes. Rates written with a capital B are bytes ("450GBps").
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace trainyard {

/// A simulated instant or duration in picoseconds.
class Time {
 public:
  constexpr Time() = default;
  static constexpr Time ps(int64_t v) { return Time(v); }
  static constexpr Time ns(int64_t v) { return Time(v * 1'000); }
  static constexpr Time us(int64_t v) { return Time(v * 1'000'000); }
  static constexpr Time ms(int64_t v) { return Time(v * 1'000'000'000); }
  static constexpr Time s(int64_t v) { return Time(v * 1'000'000'000'000); }
  static constexpr Time infinity() { return Time(std::numeric_limits<int64_t>::max()); }

  [[nodiscard]] constexpr int64_t ps() const { return v_; }
  [[nodiscard]] constexpr double seconds() const { return static_cast<double>(v_) * 1e-12; }
  [[nodiscard]] constexpr double micros() const { return static_cast<double>(v_) * 1e-6; }

  constexpr auto operator<=>(const Time&) const = default;
  constexpr Time operator+(Time o) const { return Time(v_ + o.v_); }
  constexpr Time operator-(Time o) const { return Time(v_ - o.v_); }
  constexpr Time operator*(int64_t k) const { return Time(v_ * k); }
  constexpr Time& operator+=(Time o) {
    v_ += o.v_;
    return *this;
  }
  constexpr Time& operator-=(Time o) {
    v_ -= o.v_;
    return *this;
  }

 private:
  explicit constexpr Time(int64_t v) : v_(v) {}
  int64_t v_ = 0;
};

/// An amount of data in bytes.
class Bytes {
 public:
  constexpr Bytes() = default;
  explicit constexpr Bytes(int64_t v) : v_(v) {}
  [[nodiscard]] constexpr int64_t count() const { return v_; }
  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes operator+(Bytes o) const { return Bytes(v_ + o.v_); }
  constexpr Bytes operator-(Bytes o) const { return Bytes(v_ - o.v_); }
  constexpr Bytes& operator+=(Bytes o) {
    v_ += o.v_;
    return *this;
  }

 private:
  int64_t v_ = 0;
};

/// A data rate in bits per second, per direction.
class Rate {
 public:
  constexpr Rate() = default;
  static constexpr Rate bps(int64_t v) { return Rate(v); }
  static constexpr Rate gbps(int64_t v) { return Rate(v * 1'000'000'000); }
  [[nodiscard]] constexpr int64_t bps() const { return v_; }
  [[nodiscard]] constexpr double gbit() const { return static_cast<double>(v_) * 1e-9; }
  constexpr auto operator<=>(const Rate&) const = default;

 private:
  explicit constexpr Rate(int64_t v) : v_(v) {}
  int64_t v_ = 0;
};

/// Time on the wire of `bytes` at `rate`, rounded down to a multiple of `resolution`.
/// Exact 128-bit arithmetic; throws UserError when the result does not fit.
Time transmission_time(Bytes bytes, Rate rate, Time resolution = Time::ps(1));

/// Bytes that `rate` carries in `time`, rounded down.
Bytes bytes_in(Rate rate, Time time);

// Parsers accept a decimal number directly followed (or separated by blanks) by a unit and throw
// UserError that names the accepted units. A bare 0 needs no unit. Values that are not a whole
// number of picoseconds / bytes / bits per second are rounded to nearest.

/// "1.5us", "30min", "2h", "90d". Units: ps ns us ms s min h d.
Time parse_time(std::string_view text);
/// "4MiB", "400KB", "1000B". Units: B KB MB GB TB (powers of 1000), KiB MiB GiB TiB (powers of
/// 1024).
Bytes parse_bytes(std::string_view text);
/// "400Gbps", "450GBps". Units: bps Kbps Mbps Gbps Tbps, and the same with B for bytes per second.
Rate parse_rate(std::string_view text);
/// Cable length in metres from "30m", "1.5m", "2km", "50cm".
double parse_length_m(std::string_view text);
/// "1%", "0.25", "1/8": a plain number.
double parse_fraction(std::string_view text);

// Printers choose the largest unit that keeps the value >= 1 and print up to `digits` significant
// digits; exact values print exactly. `parse(print(x))` returns x whenever the print is exact.
std::string print_time(Time t, int digits = 6);
std::string print_bytes(Bytes b, int digits = 6);
std::string print_rate(Rate r, int digits = 6);

}  // namespace trainyard
