// SPDX-License-Identifier: MIT
// Configurations of the HPCC / SimAI family.
#include <cstdlib>

#include "tests/lint/lint_test_util.h"

namespace trainyard::lint_test {
namespace {

using S = LintSeverity;

// The thresholds of SimAI's published file (aliyun/SimAI cef83f9), the rest as small as it gets.
const char* const kPublishedMaps =
    "KMAX_MAP 6 25000000000 400 50000000000 800 100000000000 1600 200000000000 1200 400000000000 "
    "3200 1600000000000 2400\n"
    "KMIN_MAP 6 25000000000 100 50000000000 200 100000000000 400 200000000000 300 400000000000 "
    "800 1600000000000 600\n"
    "PMAX_MAP 6 25000000000 0.2 50000000000 0.2 100000000000 0.2 200000000000 0.8 400000000000 "
    "0.2 1600000000000 0.2\n";

std::string small(const std::string& more = {}) {
  return "ENABLE_QCN 1\nCC_MODE 1\nALPHA_RESUME_INTERVAL 1\nRP_TIMER 300\nEWMA_GAIN 0.00390625\n"
         "PACKET_PAYLOAD_SIZE 1000\nRATE_AI 50Mb/s\nMIN_RATE 100Mb/s\nBUFFER_SIZE 32\n"
         "KMAX_MAP 2 100000000000 1600 400000000000 6400\n"
         "KMIN_MAP 2 100000000000 400 400000000000 1600\n"
         "PMAX_MAP 2 100000000000 0.2 400000000000 0.2\n" +
         more;
}

void expect_published_findings(const LintReport& r) {
  const std::string words = words_of(r, "ecn-scaling");
  for (const char* part :
       {"error: kmax falls where the port rate rises: 1.2MB (200Gbps) below 1.6MB (100Gbps)",
        "error: kmin falls where the port rate rises: 300KB (200Gbps) below 400KB (100Gbps)",
        "600KB (1.6Tbps) below 800KB (400Gbps)", "in proportion 3.2MB", "in proportion 6.4MB",
        "in proportion 25.6MB", "pmax 0.8 at 200Gbps"}) {
    EXPECT_TRUE(has(words, part)) << part << "\n" << words;
  }
  EXPECT_TRUE(only(r, "pfc-headroom", S::warning));
  EXPECT_TRUE(has(words_of(r, "pfc-headroom"), "starves short cables"));
}

class LintConfTest : public LintTest {
 protected:
  void expect_refused(const std::string& text, int line, const std::string& part) const {
    SCOPED_TRACE(text);
    try {
      (void)conf(text);
      ADD_FAILURE() << "accepted";
    } catch (const UserError& e) {
      EXPECT_EQ(e.pos().line, line) << e.what();
      EXPECT_TRUE(has(e.what(), "c.conf")) << e.what();
      EXPECT_TRUE(has(e.what(), part)) << e.what();
    }
  }
  [[nodiscard]] std::string two_hosts(const std::string& rate, const std::string& delay,
                                      const std::string& loss = "0") const {
    return put("t.txt", "3 1 2\n2\n0 2 " + rate + " " + delay + " " + loss + "\n1 2 " + rate + " " +
                            delay + " " + loss + "\n");
  }
};

TEST_F(LintConfTest, PublishedThresholdsBreakTheirOwnRule) {
  const auto r = conf(std::string("ENABLE_QCN 1\nPACKET_PAYLOAD_SIZE 9000\nEWMA_GAIN 0.00390625\n"
                                  "RP_TIMER 900\nCC_MODE 1\n") +
                      kPublishedMaps);
  expect_published_findings(r);
  const auto found = of_rule(r, "ecn-scaling");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ("KMAX_MAP", found[0].place.key);
  EXPECT_EQ(6, found[0].place.origin.pos.line);
}

TEST_F(LintConfTest, AMapInProportionIsFine) {
  const auto r = conf(small());
  EXPECT_TRUE(of_rule(r, "ecn-scaling").empty()) << lint_text(r);
  EXPECT_TRUE(of_rule(r, "ecn-production").empty());
  EXPECT_EQ(r.count(S::error), 0U);
}

TEST_F(LintConfTest, ShortLinksOfATopologyAreStarved) {
  // 100 Gb/s, 9000 + 52 bytes: 2 x 9052 + 43 beside the cable.
  const std::string text = small();
  EXPECT_TRUE(only(conf(text, two_hosts("100Gbps", "15ns")), "pfc-headroom", S::error));
  EXPECT_TRUE(only(conf(text, two_hosts("100Gbps", "500ns")), "pfc-headroom", S::warning));
  EXPECT_TRUE(only(conf(text, two_hosts("100Gbps", "1us")), "pfc-headroom", S::note));
}

TEST_F(LintConfTest, ARateMissingInTheMapsIsAnError) {
  const auto r = conf(small(), two_hosts("200Gbps", "1us"));
  EXPECT_TRUE(only(r, "ecn-scaling", S::error)) << lint_text(r);
  EXPECT_TRUE(has(words_of(r, "ecn-scaling"), "200Gbps"));
}

TEST_F(LintConfTest, LossesWithoutATimer) {
  EXPECT_TRUE(of_rule(conf(small("ERROR_RATE_PER_LINK 0.0000\n")), "loss-without-timer").empty());
  EXPECT_TRUE(only(conf(small("ERROR_RATE_PER_LINK 0.0001\n")), "loss-without-timer", S::error));
  EXPECT_TRUE(
      only(conf(small(), two_hosts("100Gbps", "1us", "0.001")), "loss-without-timer", S::error));
}

TEST_F(LintConfTest, ChunksAndPackets) {
  EXPECT_TRUE(of_rule(conf(small("L2_CHUNK_SIZE 4000\n")), "loss-recovery").empty());
  EXPECT_TRUE(only(conf(small("L2_CHUNK_SIZE 4500\n")), "loss-recovery", S::note));
  EXPECT_EQ(of_rule(conf(small("L2_BACK_TO_ZERO 1\n")), "loss-recovery").size(), 1U);
}

TEST_F(LintConfTest, SparseAcksStallAWindow) {
  // Round trip 2 x (2 us + 80 ns) at 12.5 B/ns = 52,000 bytes, 52 packets.
  const std::string topology = two_hosts("100Gbps", "1us");
  const std::string window = "HAS_WIN 1\nGLOBAL_T 0\n";
  EXPECT_TRUE(
      of_rule(conf(small(window + "L2_ACK_INTERVAL 52000\n"), topology), "window-bdp").empty());
  EXPECT_TRUE(
      only(conf(small(window + "L2_ACK_INTERVAL 52001\n"), topology), "window-bdp", S::error));
}

TEST_F(LintConfTest, CodeDefaultsAreThoseOfQcn) {
  // No EWMA_GAIN and no RP_TIMER: 1/16 and 1500 us (protocols 5.2).
  const auto r = conf(
      "ENABLE_QCN 1\nKMIN_MAP 1 100000000000 400\nKMAX_MAP 1 100000000000 1600\n"
      "PMAX_MAP 1 100000000000 0.2\n");
  EXPECT_TRUE(only(r, "dcqcn-borrowed-defaults", S::warning));
  EXPECT_EQ(of_rule(r, "dcqcn-borrowed-defaults")[0].arithmetic.size(), 2U);
}

TEST_F(LintConfTest, RefusesWhatIsNoConfigurationWithItsLine) {
  expect_refused("", 0, "empty");
  expect_refused("BUFFER_SIZE 32\nfabric: {}\n", 2, "'fabric:' is no key");
  expect_refused("BUFFER_SIZE 32\n\nBUFER_SIZE 32\n", 3, "unknown key 'BUFER_SIZE'");
  expect_refused("BUFFER_SIZE\n", 1, "has no value");
  expect_refused("BUFFER_SIZE 32 33\n", 1, "takes one value, not 2");
  expect_refused("BUFFER_SIZE a lot\n", 1, "takes one value");
  expect_refused("BUFFER_SIZE much\n", 1, "'much' is not a number");
  expect_refused("BUFFER_SIZE -1\n", 1, "'-1' is not a number");
  expect_refused("EWMA_GAIN nan\n", 1, "'nan' is not a number");
  expect_refused("RATE_AI 50\n", 1, "RATE_AI");
  expect_refused("BUFFER_SIZE 32\nBUFFER_SIZE 32\n", 2, "twice, first in line 1");
  expect_refused("ENABLE_QCN 2\n", 1, "0 to 1");
  expect_refused("ENABLE_QCN 1\n", 0, "no KMIN_MAP");
  expect_refused("KMIN_MAP 2 100000000000 400\n", 1, "2 pairs");
  expect_refused("KMIN_MAP 2 25000000000 1 25000000000 2\n", 1, "twice");
  expect_refused("KMIN_MAP 1 25000000000 1\nKMAX_MAP 1 50000000000 4\nPMAX_MAP 1 25000000000 0.2\n",
                 2, "does not name 25Gbps");
  expect_refused(
      "KMIN_MAP 1 25000000000 1\nKMAX_MAP 1 25000000000 4\nPMAX_MAP 2 25000000000 0.2 "
      "50000000000 0.2\n",
      3, "names other rates");
}

TEST_F(LintConfTest, ToldApartByContent) {
  EXPECT_TRUE(is_simai_conf(put("a", "\n# comment\nENABLE_QCN 1\n")));
  EXPECT_FALSE(is_simai_conf(put("b", "# comment\nname: x\n")));
  EXPECT_FALSE(is_simai_conf(put("c", "NAME: x\n")));
  EXPECT_FALSE(is_simai_conf(put("d", "")));
  EXPECT_THROW((void)is_simai_conf((dir_ / "missing").string()), UserError);
}

// --- the published file itself -------------------------------------------------------------------

std::string shared_simai() {
  std::vector<fs::path> places;
  if (const char* env = std::getenv("TRAINYARD_SHARED")) places.emplace_back(env);
  places.emplace_back(fs::path(TRAINYARD_SOURCE_DIR) / ".." / "shared");
  for (const fs::path& place : places) {
    std::error_code error;
    if (fs::exists(place / "traces/simai/inputs/config/SimAI.conf", error)) {
      return (place / "traces/simai").string();
    }
  }
  return {};
}

TEST(LintShared, SimAIsPublishedConfiguration) {
  const std::string folder = shared_simai();
  if (folder.empty()) {
    GTEST_SKIP() << "shared/traces not found: unproven that SimAI's published configuration is "
                    "read and judged";
  }
  const std::string file = folder + "/inputs/config/SimAI.conf";
  EXPECT_TRUE(is_simai_conf(file));
  expect_published_findings(run_lint(lint_simai_conf(file, "")));
  size_t n = 0;
  for (const auto& e : fs::directory_iterator(folder + "/topo")) {
    SCOPED_TRACE(e.path().string());
    const auto r = run_lint(lint_simai_conf(file, e.path().string()));
    // NVLink-class links of 25 ns get 3 x rate x delay, less than two 9000-byte packets beside it.
    EXPECT_TRUE(has(words_of(r, "pfc-headroom"), "scale-up ports of")) << lint_text(r);
    EXPECT_TRUE(has(words_of(r, "pfc-headroom"), "error: ")) << lint_text(r);
    ++n;
  }
  EXPECT_GE(n, 5U);
}

}  // namespace
}  // namespace trainyard::lint_test
