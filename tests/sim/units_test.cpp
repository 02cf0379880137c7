// SPDX-License-Identifier: MIT
#include "sim/units.h"

#include <gtest/gtest.h>

#include "sim/dice.h"
#include "sim/errors.h"

namespace trainyard {
namespace {

template <typename F>
std::string error_of(F f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Units, ParsesTimesExactly) {
  EXPECT_EQ(parse_time("0.0005ms").ps(), 500'000);
  EXPECT_EQ(parse_time("0.000025ms").ps(), 25'000);
  EXPECT_EQ(parse_time("1.5us").ps(), 1'500'000);
  EXPECT_EQ(parse_time("1.5 us").ps(), 1'500'000);
  EXPECT_EQ(parse_time("  7\tns ").ps(), 7'000);
  EXPECT_EQ(parse_time("30min"), Time::s(1'800));
  EXPECT_EQ(parse_time("2h"), Time::s(7'200));
  EXPECT_EQ(parse_time("90d"), Time::s(7'776'000));
  EXPECT_EQ(parse_time("0.001ns").ps(), 1);
  EXPECT_EQ(parse_time(".5us").ps(), 500'000);
  EXPECT_EQ(parse_time("5.us").ps(), 5'000'000);
  EXPECT_EQ(parse_time("1e3ns").ps(), 1'000'000);
  EXPECT_EQ(parse_time("2.5e-3ms").ps(), 2'500'000);
  EXPECT_EQ(parse_time("0").ps(), 0);
  EXPECT_EQ(parse_time("0.0").ps(), 0);
  // 2^63 - 2 ps: a double would be off by hundreds.
  EXPECT_EQ(parse_time("9223372036854775806ps").ps(), 9'223'372'036'854'775'806);
  EXPECT_EQ(parse_time("9223372.036854775806s").ps(), 9'223'372'036'854'775'806);
  EXPECT_EQ(parse_time("0000000000000000000000000000000000001ps").ps(), 1);
  EXPECT_EQ(parse_time("1.0000000000000000000000000000000000000000s"), Time::s(1));
}

TEST(Units, RoundsToNearest) {
  EXPECT_EQ(parse_time("0.4ps").ps(), 0);
  EXPECT_EQ(parse_time("0.5ps").ps(), 1);
  EXPECT_EQ(parse_time("1.4999999999999999999999ps").ps(), 1);
  EXPECT_EQ(parse_time("0.05ps").ps(), 0);
  EXPECT_EQ(parse_time("0.00000000000000000000000000000000001us").ps(), 0);
  EXPECT_EQ(parse_bytes("0.3KiB").count(), 307);  // 307.2
}

TEST(Units, ParsesBytesAndRates) {
  EXPECT_EQ(parse_bytes("4MiB").count(), 4'194'304);
  EXPECT_EQ(parse_bytes("400KB").count(), 400'000);
  EXPECT_EQ(parse_bytes("1000B").count(), 1'000);
  EXPECT_EQ(parse_bytes("1.5KiB").count(), 1'536);
  EXPECT_EQ(parse_bytes("1TiB").count(), 1'099'511'627'776);
  EXPECT_EQ(parse_rate("400Gbps").bps(), 400'000'000'000);
  EXPECT_EQ(parse_rate("450GBps").bps(), 3'600'000'000'000);
  EXPECT_EQ(parse_rate("2880Gbps").bps(), 2'880'000'000'000);
  EXPECT_EQ(parse_rate("3.2Tbps").bps(), 3'200'000'000'000);
  EXPECT_EQ(parse_rate("1Bps").bps(), 8);
  EXPECT_EQ(parse_rate("0").bps(), 0);
}

TEST(Units, ParsesLengthsAndFractions) {
  EXPECT_EQ(parse_length_m("30m"), 30.0);
  EXPECT_EQ(parse_length_m("1.5 m"), 1.5);
  EXPECT_EQ(parse_length_m("2km"), 2000.0);
  EXPECT_EQ(parse_length_m("50cm"), 0.5);
  EXPECT_EQ(parse_length_m("0"), 0.0);
  EXPECT_EQ(parse_fraction("1%"), 0.01);
  EXPECT_EQ(parse_fraction("0.25"), 0.25);
  EXPECT_EQ(parse_fraction("1/8"), 0.125);
  EXPECT_EQ(parse_fraction(" 1 / 8 "), 0.125);
  EXPECT_EQ(parse_fraction("1e-12"), 1e-12);
  EXPECT_EQ(parse_fraction(".5"), 0.5);
  EXPECT_EQ(parse_fraction("3"), 3.0);
}

TEST(Units, UnknownUnitListsTheAcceptedOnes) {
  const std::string time = error_of([] { parse_time("5 parsec"); });
  for (const char* unit : {"\"parsec\"", " ps", " ns", " us", " ms", " s", " min", " h", " d"}) {
    EXPECT_TRUE(contains(time, unit)) << time;
  }
  const std::string rate = error_of([] { parse_rate("400gbps"); });
  EXPECT_TRUE(contains(rate, "Gbps") && contains(rate, "GBps") && contains(rate, "Bps")) << rate;
  const std::string bytes = error_of([] { parse_bytes("4Mib"); });
  EXPECT_TRUE(contains(bytes, "MiB") && contains(bytes, "KB") && contains(bytes, "TiB")) << bytes;
  EXPECT_TRUE(contains(error_of([] { parse_length_m("3ft"); }), "km"));
}

TEST(Units, RefusesWhatIsNoValue) {
  for (const char* text : {"", " ", "us", "-5us", "-0", "5", "abc", ".", "1.5.5us", "1,5us", "+1us",
                           "infus", "nanus", "0x10us", "5us5"}) {
    EXPECT_THROW(parse_time(text), UserError) << text;
  }
  EXPECT_TRUE(contains(error_of([] { parse_time("-5us"); }), "negative"));
  EXPECT_TRUE(contains(error_of([] { parse_time("5"); }), "no unit"));
  EXPECT_THROW(parse_bytes("-1B"), UserError);
  EXPECT_THROW(parse_rate("-1Gbps"), UserError);
  EXPECT_THROW(parse_length_m("5"), UserError);
  EXPECT_THROW(parse_length_m("-5m"), UserError);
  for (const char* text : {"", "1/0", "1/", "1/-2", "-1%", "50%%", "1/8/2", "x", "1e999"}) {
    EXPECT_THROW(parse_fraction(text), UserError) << text;
  }
}

TEST(Units, OverflowIsRefused) {
  EXPECT_TRUE(contains(error_of([] { parse_time("107d"); }), "too large"));
  EXPECT_THROW(parse_time("9223372036854775807ps"), UserError);  // stands for infinity
  EXPECT_THROW(parse_time("99999999999999999999999999ps"), UserError);
  EXPECT_THROW(parse_time("1e400s"), UserError);
  EXPECT_THROW(parse_bytes("9000000000TiB"), UserError);
  EXPECT_THROW(parse_rate("10000000TBps"), UserError);
}

TEST(Units, TransmissionTime) {
  // 1048 bytes at 400 Gb/s: 8384 bits x 2.5 ps.
  EXPECT_EQ(transmission_time(Bytes(1048), Rate::gbps(400)).ps(), 20'960);
  EXPECT_EQ(transmission_time(Bytes(1048), Rate::gbps(400), Time::ns(1)).ps(), 20'000);
  EXPECT_EQ(transmission_time(Bytes(1), Rate::bps(3)).ps(), 2'666'666'666'666);
  EXPECT_EQ(transmission_time(Bytes(0), Rate::gbps(1)).ps(), 0);
  // 10^15 bytes x 8 x 10^12 needs 93 bits.
  EXPECT_EQ(transmission_time(Bytes(1'000'000'000'000'000), Rate::gbps(8'000)), Time::s(1'000));
  EXPECT_THROW(transmission_time(Bytes(1), Rate::bps(0)), UserError);
  EXPECT_THROW(transmission_time(Bytes(-1), Rate::gbps(1)), UserError);
  EXPECT_THROW(transmission_time(Bytes(int64_t{1} << 62), Rate::bps(1)), UserError);
}

TEST(Units, BytesIn) {
  EXPECT_EQ(bytes_in(Rate::gbps(400), Time::us(1)).count(), 50'000);
  EXPECT_EQ(bytes_in(Rate::bps(8), Time::ms(999)).count(), 0);
  EXPECT_EQ(bytes_in(Rate::gbps(400), Time::s(1'000'000)).count(), 50'000'000'000'000'000);
  EXPECT_THROW(bytes_in(Rate::bps(std::numeric_limits<int64_t>::max()), Time::s(9'000'000)),
               UserError);
}

TEST(Units, Prints) {
  EXPECT_EQ(print_time(Time::ps(0)), "0s");
  EXPECT_EQ(print_time(Time::ps(1)), "1ps");
  EXPECT_EQ(print_time(Time::ps(1'500'000)), "1.5us");
  EXPECT_EQ(print_time(Time::ps(1'234'567)), "1.23457us");
  EXPECT_EQ(print_time(Time::ps(1'234'567), 7), "1.234567us");
  EXPECT_EQ(print_time(Time::ps(1'234'567), 3), "1.23us");
  EXPECT_EQ(print_time(Time::ps(999'999'999)), "1ms");  // not 1000us
  EXPECT_EQ(print_time(Time::ps(-1'500)), "-1.5ns");
  EXPECT_EQ(print_time(Time::s(90)), "1.5min");
  EXPECT_EQ(print_time(Time::s(100)), "100s");  // 1.66... min would not be exact
  EXPECT_EQ(print_time(Time::s(7'776'000)), "90d");
  EXPECT_EQ(print_time(Time::infinity()), "infinity");
  EXPECT_EQ(print_bytes(Bytes(0)), "0B");
  EXPECT_EQ(print_bytes(Bytes(4'194'304)), "4MiB");
  EXPECT_EQ(print_bytes(Bytes(4'000'000)), "4MB");
  EXPECT_EQ(print_bytes(Bytes(64'000)), "64KB");  // not 62.5KiB
  EXPECT_EQ(print_bytes(Bytes(1'536)), "1.5KiB");
  EXPECT_EQ(print_bytes(Bytes(1'000)), "1KB");
  EXPECT_EQ(print_bytes(Bytes(1'234'567)), "1.23457MB");
  EXPECT_EQ(print_rate(Rate::gbps(400)), "400Gbps");
  EXPECT_EQ(print_rate(Rate::gbps(3'600)), "3.6Tbps");
  EXPECT_EQ(print_rate(Rate::bps(0)), "0bps");
  EXPECT_EQ(print_time(Time::ps(std::numeric_limits<int64_t>::min())), "-9223370s");
}

TEST(Units, PrintedValuesParseBack) {
  for (uint64_t i = 0; i < 20'000; ++i) {
    // Values of all magnitudes; 19 digits print every int64 exactly.
    const uint64_t draw = dice(5, 0, 0, i);
    const auto v = static_cast<int64_t>(draw >> (1 + (draw & 63) % 62));
    if (v == std::numeric_limits<int64_t>::max()) continue;
    EXPECT_EQ(parse_time(print_time(Time::ps(v), 19)).ps(), v);
    EXPECT_EQ(parse_bytes(print_bytes(Bytes(v), 19)).count(), v);
    EXPECT_EQ(parse_rate(print_rate(Rate::bps(v), 19)).bps(), v);
    // Six digits: within half a unit of the sixth.
    const double back = static_cast<double>(parse_bytes(print_bytes(Bytes(v))).count());
    EXPECT_NEAR(back, static_cast<double>(v), static_cast<double>(v) * 5.1e-6);
  }
}

}  // namespace
}  // namespace trainyard
