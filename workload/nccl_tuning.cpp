// SPDX-License-Identifier: MIT
#include "workload/nccl_tuning.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "sim/errors.h"

namespace trainyard {
namespace {

using Version = std::tuple<int, int, int>;

constexpr Version kOwnLlOfHopper{2, 21, 5}, kOwnLlOfBlackwell{2, 26, 2};

bool parse(const std::string& text, Version& v) {
  int major = 0, minor = 0, patch = 0;
  if (std::sscanf(text.c_str(), "%d.%d.%d", &major, &minor, &patch) < 2) return false;
  v = {major, minor, patch};
  return true;
}

constexpr Time ns(int64_t v) {
  return Time::ns(v);
}

/// Up to 2.16 calls and steps were reckoned cheaper than since 2.18.
NcclRelease early(const char* name, int64_t ring_simple_net) {
  return {name,
          {{{ns(3600), ns(470), ns(2700)},
            {ns(10000), ns(1900), ns(4000)},
            {ns(8400), ns(3400), ns(ring_simple_net)}}},
          {{{ns(4400), ns(520), ns(5000)},
            {ns(4400), ns(1250), ns(8500)},
            {ns(0), ns(28000), ns(28000)}}},
          ns(0),
          ns(0)};
}

NcclRelease later(const char* name, int64_t tree_base, int64_t tree_inside, int64_t tree_net,
                  int64_t nvls, int64_t nvls_tree_net) {
  return {name,
          {{{ns(6600), ns(600), ns(2700)},
            {ns(14000), ns(1900), ns(4000)},
            {ns(8400), ns(3400), ns(14000)}}},
          {{{ns(6800), ns(600), ns(5000)},
            {ns(14000), ns(1250), ns(8500)},
            {ns(tree_base), ns(tree_inside), ns(tree_net)}}},
          ns(nvls),
          ns(nvls_tree_net)};
}

}  // namespace

const char* generation_name(Generation generation) {
  constexpr const char* kNames[] = {"volta", "ampere", "hopper", "blackwell", "cdna"};
  return kNames[static_cast<size_t>(generation)];
}

const std::vector<NcclRelease>& nccl_releases() {
  static const std::vector<NcclRelease> releases = {
      early("2.8.4", 9600),
      early("2.10.3", 9600),
      early("2.12.12", 28000),
      early("2.14.3", 9600),
      early("2.16.2", 9600),
      later("2.18.5", 0, 4000, 14000, 25000, 19000),
      later("2.19.3", 0, 28000, 28000, 23000, 14000),
      later("2.20.5", 0, 28000, 28000, 23000, 14000),
      later("2.21.5", 0, 28000, 28000, 25000, 14000),
      later("2.22.3", 0, 28000, 28000, 25000, 14000),
      later("2.23.4", 8400, 4000, 14000, 25000, 14000),
      later("2.24.3", 8400, 4000, 14000, 25000, 14000),
      later("2.26.2", 8400, 4000, 14000, 25000, 14000),
      later("2.27.7", 8400, 4000, 14000, 25000, 14000),
      later("2.28.9", 8400, 4000, 14000, 25000, 20900),
      later("2.29.7", 8400, 4000, 14000, 25000, 20900),
      later("2.30.7", 8400, 4000, 14000, 25000, 20900),
  };
  return releases;
}

const NcclRelease& nccl_release(const std::string& name) {
  std::string known;
  for (const NcclRelease& r : nccl_releases()) {
    if (r.name == name) return r;
    known += (known.empty() ? "" : ", ") + r.name;
  }
  throw UserError("NCCL release '" + name + "' is not known", "known: " + known);
}

std::string nearest_nccl_release(const std::string& version) {
  Version wanted, have;
  if (!parse(version, wanted)) return "";
  std::string best = nccl_releases().front().name;
  for (const NcclRelease& r : nccl_releases()) {
    if (parse(r.name, have) && have <= wanted) best = r.name;
  }
  return best;
}

int64_t ll_cap(const NcclRelease& release, Generation generation, int64_t domains) {
  // MB/s for one, two and more domains.
  constexpr int64_t kVolta[] = {39'000, 39'000, 20'400};
  constexpr int64_t kAmpere[] = {87'700, 22'500, 19'000};
  constexpr int64_t kHopper[] = {141'000, 45'000, 35'000};
  constexpr int64_t kBlackwell[] = {282'000, 90'000, 70'000};
  Version v;
  (void)parse(release.name, v);
  const int64_t* row = kAmpere;
  if (generation == Generation::volta) row = kVolta;
  if (generation > Generation::ampere && v >= kOwnLlOfHopper) row = kHopper;
  if (generation == Generation::blackwell && v >= kOwnLlOfBlackwell) row = kBlackwell;
  return row[std::clamp<int64_t>(domains, 1, 3) - 1] * 1'000'000;
}

int64_t channel_cap(ChannelCap cap, Generation generation, int64_t domains) {
  // MB/s for one, two and more domains; Volta, Ampere, Hopper, Blackwell.
  constexpr int64_t kCaps[4][4][3] = {
      {{20'000, 20'000, 20'000},
       {20'000, 20'000, 20'000},
       {36'700, 36'700, 36'700},
       {40'000, 40'000, 40'000}},
      {{20'000, 20'000, 20'000},
       {20'000, 20'000, 20'000},
       {36'700, 36'700, 29'000},
       {55'600, 31'670, 20'000}},
      {{26'500, 18'500, 10'000},
       {24'000, 23'600, 17'800},
       {38'700, 41'400, 36'000},
       {70'000, 42'800, 24'000}},
      {{26'500, 18'500, 10'000},
       {24'000, 23'600, 17'800},
       {57'700, 57'700, 45'500},
       {96'000, 96'000, 80'000}},
  };
  const size_t row = generation == Generation::cdna ? 2 : static_cast<size_t>(generation);
  return kCaps[static_cast<size_t>(cap)][row][std::clamp<int64_t>(domains, 1, 3) - 1] * 1'000'000;
}

int64_t tree_tenths(Protocol protocol, int64_t bytes) {
  // From 64 B on, a factor for each doubling.
  constexpr size_t kCount = 24;
  constexpr int64_t kTenths[kProtocols][kCount] = {
      {10, 10, 10, 10, 9, 8, 7, 7, 7, 7, 6, 5, 4, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10, 10},
      {10, 10, 10, 10, 10, 9, 8, 8, 8, 7, 6, 6, 6, 6, 6, 6, 8, 9, 9, 9, 9, 10, 10, 10},
      {9, 9, 9, 9, 9, 9, 9, 8, 7, 6, 6, 5, 5, 5, 5, 6, 7, 8, 7, 7, 8, 9, 9, 9}};
  size_t at = 0;
  for (int64_t b = bytes >> 7; b > 0 && at < kCount; b >>= 1) ++at;
  return at < kCount ? kTenths[static_cast<size_t>(protocol)][at] : 10;
}

}  // namespace trainyard
