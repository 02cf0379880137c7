// SPDX-License-Identifier: MIT
// Flow lists of patterns and files.
#include "workload/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/errors.h"
#include "tests/chakra/chakra_test_util.h"

namespace trainyard {
namespace {

using Settings = std::map<std::string, std::string>;

std::vector<Flow> flows(const std::string& pattern, uint32_t ranks, const Settings& settings = {},
                        uint64_t seed = 1, const std::string& base = {}) {
  const auto& r = Registry::instance();
  Params params(r.get("traffic", pattern).params);
  Origin origin{Origin::Kind::user, {"s.yaml", 7}};
  for (const auto& [name, value] : settings) {
    params.set(name, value, origin);
    ++origin.pos.line;
  }
  return r.factory<TrafficFactory>("traffic", pattern)({ranks, seed, base, {"s.yaml", 3}}, params);
}

std::string refusal(const std::string& pattern, uint32_t ranks, const Settings& settings,
                    const std::string& base = {}) {
  try {
    (void)flows(pattern, ranks, settings, 1, base);
  } catch (const UserError& e) {
    return e.what();
  }
  ADD_FAILURE() << "not refused";
  return {};
}

void expect_mentions(const std::string& text, const std::vector<std::string>& words) {
  for (const auto& w : words) EXPECT_NE(std::string::npos, text.find(w)) << w << " in: " << text;
}

using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;
Pairs pairs(const std::vector<Flow>& list) {
  Pairs out;
  for (const Flow& f : list) out.emplace_back(f.src, f.dst);
  return out;
}

TEST(Traffic, Incast) {
  const auto all = flows("incast", 4, {{"dst", "2"}, {"size", "5KB"}, {"start", "3us"}});
  EXPECT_EQ((Pairs{{0, 2}, {1, 2}, {3, 2}}), pairs(all));
  for (const Flow& f : all) {
    EXPECT_EQ(5000, f.bytes);
    EXPECT_EQ(Time::us(3), f.start);
  }
  EXPECT_EQ((Pairs{{1, 0}, {2, 0}}), pairs(flows("incast", 9, {{"fan_in", "2"}})));
  EXPECT_EQ(1 << 20, flows("incast", 2)[0].bytes);
}

TEST(Traffic, IncastErrorsSayWhere) {
  expect_mentions(refusal("incast", 4, {{"dst", "4"}}), {"s.yaml:7", "dst 4", "0 to 3"});
  expect_mentions(refusal("incast", 4, {{"dst", "0"}, {"fan_in", "4"}}),
                  {"s.yaml:8", "fan_in 4", "5 ranks", "has 4"});
  expect_mentions(refusal("incast", 4, {{"fan_in", "0"}}), {"s.yaml:7", "fan_in", "'0'"});
  expect_mentions(refusal("incast", 4, {{"dst", "-1"}}), {"s.yaml:7", "dst", "'-1'"});
  expect_mentions(refusal("incast", 4, {{"size", "0B"}}), {"s.yaml:7", "size"});
  expect_mentions(refusal("incast", 4, {{"size", "5"}}), {"s.yaml:7", "size", "no unit"});
}

TEST(Traffic, Outcast) {
  EXPECT_EQ((Pairs{{1, 0}, {1, 2}, {1, 3}}), pairs(flows("outcast", 4, {{"src", "1"}})));
  expect_mentions(refusal("outcast", 4, {{"src", "9"}}), {"s.yaml:7", "src 9", "0 to 3"});
}

TEST(Traffic, AllToAll) {
  const auto list = flows("all-to-all", 5, {{"size", "7B"}});
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (const Flow& f : list) {
    EXPECT_NE(f.src, f.dst);
    EXPECT_EQ(7, f.bytes);
    EXPECT_TRUE(seen.emplace(f.src, f.dst).second);
  }
  EXPECT_EQ(20U, seen.size());
  for (uint32_t r = 0; r < 5; ++r) EXPECT_EQ((r + 1) % 5, list[4 * r].dst);  // rotated
}

TEST(Traffic, PermutationByShift) {
  EXPECT_EQ((Pairs{{0, 3}, {1, 4}, {2, 0}, {3, 1}, {4, 2}}),
            pairs(flows("permutation", 5, {{"shift", "3"}})));
  EXPECT_EQ((Pairs{{0, 1}, {1, 2}, {2, 0}}), pairs(flows("permutation", 3, {{"shift", "4"}})));
  for (const char* shift : {"5", "10"}) {
    expect_mentions(refusal("permutation", 5, {{"shift", shift}}), {"s.yaml:7", shift, "itself"});
  }
}

TEST(Traffic, RandomPermutationIsOneCycleOfTheSeed) {
  std::set<Pairs> different;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto list = flows("permutation", 16, {}, seed);
    ASSERT_EQ(16U, list.size());
    EXPECT_EQ(pairs(list), pairs(flows("permutation", 16, {}, seed)));
    different.insert(pairs(list));
    std::map<uint32_t, uint32_t> to;
    for (const Flow& f : list) to[f.src] = f.dst;
    uint32_t at = 0;
    size_t length = 0;
    do {
      at = to[at];
      ++length;
    } while (at != 0 && length <= 16);
    EXPECT_EQ(16U, length) << "seed " << seed;  // everybody sends once and receives once
  }
  EXPECT_EQ(20U, different.size());
}

class TrafficFile : public chakra::test::ScratchTest {
 protected:
  std::string refused(const std::string& text) {
    (void)put("f.csv", text);
    return refusal("file", 4, {{"path", "f.csv"}}, dir_.string());
  }
};

TEST_F(TrafficFile, RowsInOrder) {
  (void)put("f.csv",
            "flow_id,src,dst,size_bytes,start_ns\n"
            "# a comment\n"
            "0,3,1,4096,250\r\n"
            "\n"
            "1,0,2,1,0\n");
  for (const std::string& where : {std::string("f.csv"), path("f.csv")}) {
    const auto list = flows("file", 4, {{"path", where}}, 1, dir_.string());
    ASSERT_EQ(2U, list.size());
    EXPECT_EQ(3U, list[0].src);
    EXPECT_EQ(1U, list[0].dst);
    EXPECT_EQ(4096, list[0].bytes);
    EXPECT_EQ(Time::ns(250), list[0].start);
    EXPECT_EQ(1, list[1].bytes);
    EXPECT_EQ(Time(), list[1].start);
  }
}

TEST_F(TrafficFile, ErrorsSayTheLine) {
  const std::string ok = "0,1,2,100,0\n";
  const std::string where = path("f.csv");
  expect_mentions(refused(ok + "1,x,2,100,0\n"), {where + ":2", "'x'", "flow_id,src,dst"});
  expect_mentions(refused(ok + ok + "1,0,2,1.5,0\n"), {where + ":3", "'1.5'"});
  expect_mentions(refused("1,0,2,-4,0\n"), {where + ":1", "'-4'"});
  expect_mentions(refused("1,0,2,100\n"), {where + ":1", "4 fields"});
  expect_mentions(refused("1,0,2,100,0,9\n"), {where + ":1", "6 fields"});
  expect_mentions(refused(ok + "1,0,4,100,0\n"), {where + ":2", "rank 4", "0 to 3"});
  expect_mentions(refused(ok + "1,3,3,100,0\n"), {where + ":2", "rank 3 to itself"});
  expect_mentions(refused(ok + "1,0,3,0,0\n"), {where + ":2", "0 bytes"});
  expect_mentions(refused(ok + "1,0,3,10,9999999999999999\n"), {where + ":2", "30 days"});
  expect_mentions(refused(ok + "1,0,3,99999999999999999999,0\n"), {where + ":2"});
  expect_mentions(refused("# nothing\n"), {where, "no flow"});
}

TEST_F(TrafficFile, MissingFileSaysWhere) {
  expect_mentions(refusal("file", 4, {{"path", "none.csv"}}, dir_.string()),
                  {"s.yaml:7", path("none.csv")});
  expect_mentions(refusal("file", 4, {{"path", "."}}, dir_.string()), {"s.yaml:7", "cannot open"});
  expect_mentions(refusal("file", 4, {}, dir_.string()), {"s.yaml:3", "needs a path"});
}

}  // namespace
}  // namespace trainyard
