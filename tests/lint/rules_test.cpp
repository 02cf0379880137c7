// SPDX-License-Identifier: MIT
// Every rule fires on a scenario that breaks it, with the numbers put in, and is silent on one that
// does not.
#include <set>

#include "tests/lint/lint_test_util.h"

namespace trainyard::lint_test {
namespace {

using S = LintSeverity;

class LintRules : public LintTest {
 protected:
  /// Nine hosts of 100 Gb/s at 1 us on one switch, eight of them send to one.
  [[nodiscard]] LintReport nine(const std::string& transport, const std::string& sw,
                                const std::string& traffic = kIncast8) const {
    return scenario(one_switch(9, "100Gbps", "1us",
                               "  transport: {" + transport + "}\n  switch: {" + sw + "}\n",
                               traffic));
  }
};

TEST_F(LintRules, HeadroomShortOfTheWireIsAnError) {
  // 2 x 1 us x 12.5 B/ns + 2 x 4178 + 84
  const auto r = nine("", "pfc: {headroom: 33439B}");
  ASSERT_TRUE(only(r, "pfc-headroom", S::error)) << lint_text(r);
  const Finding f = of_rule(r, "pfc-headroom")[0];
  EXPECT_EQ("fabric.switch.pfc.headroom", f.place.key);
  EXPECT_EQ("33439B", f.place.value);
  EXPECT_EQ(5, f.place.origin.pos.line);
  EXPECT_TRUE(has(f.remedy, "39690B")) << f.remedy;
  for (const char* part : {"100Gbps x (2 x 1us + 500ns) + 2 x 4.178KB", "3 x 100Gbps x 1us",
                           "(301 + 2.16 x 200 m) x 100", "(B:F14)"}) {
    EXPECT_TRUE(has(words_of(r, "pfc-headroom"), part)) << part;
  }
  EXPECT_EQ(r.count(S::error), 1U);
}

TEST_F(LintRules, HeadroomWithoutResponseIsAWarningThenANoteThenSilence) {
  EXPECT_TRUE(only(nine("", "pfc: {headroom: 33440B}"), "pfc-headroom", S::warning));
  EXPECT_TRUE(only(nine("", "pfc: {headroom: 39689B}"), "pfc-headroom", S::warning));
  EXPECT_TRUE(only(nine("", "pfc: {headroom: 39690B}"), "pfc-headroom", S::note));
  // mlx5: (301 + 432) x 100 + 2.72 x 4178
  EXPECT_TRUE(only(nine("", "pfc: {headroom: 84663B}"), "pfc-headroom", S::note));
  EXPECT_TRUE(of_rule(nine("", "pfc: {headroom: 84664B}"), "pfc-headroom").empty());
  EXPECT_TRUE(of_rule(nine("", "pfc: {mode: off, headroom: 1KB}"), "pfc-headroom").empty());
}

TEST_F(LintRules, RateTimesDelayStarvesShortCables) {
  const auto at = [&](const std::string& delay) {
    return scenario(
        one_switch(9, "400Gbps", delay, "  switch: {pfc: {headroom: rate-delay}}\n", kIncast8));
  };
  EXPECT_TRUE(only(at("15ns"), "pfc-headroom", S::error));     // 3 m
  EXPECT_TRUE(only(at("500ns"), "pfc-headroom", S::warning));  // 100 m
  EXPECT_TRUE(only(at("1us"), "pfc-headroom", S::note));
}

TEST_F(LintRules, PoolIsWhatPortsLeave) {
  const std::string headroom = ", pfc: {headroom: 50KB}";
  const auto none = nine("", "buffer: 480KB" + headroom);
  ASSERT_TRUE(only(none, "pfc-pool", S::error)) << lint_text(none);
  EXPECT_EQ("fabric.switch.buffer", of_rule(none, "pfc-pool")[0].place.key);
  const auto half = nine("", "buffer: 880KB" + headroom);
  ASSERT_TRUE(only(half, "pfc-pool", S::warning)) << lint_text(half);
  EXPECT_TRUE(has(words_of(half, "pfc-pool"), "51 %"));
  EXPECT_TRUE(of_rule(nine("", "buffer: 920KB" + headroom), "pfc-pool").empty());
}

TEST_F(LintRules, StaticXoffOfAllPortsFitsTheBuffer) {
  // (2,000,000 - 9 x 54,096) / 9 = 168,126
  const auto with = [&](const std::string& xoff) {
    return nine("", "buffer: 2MB, pfc: {mode: static, headroom: 50KB, xoff: " + xoff + "}");
  };
  EXPECT_TRUE(only(with("168127B"), "pfc-static-xoff", S::error));
  EXPECT_TRUE(has(words_of(with("168127B"), "pfc-static-xoff"), "168126B"));
  EXPECT_TRUE(of_rule(with("168126B"), "pfc-static-xoff").empty());
  EXPECT_TRUE(of_rule(with("auto"), "pfc-static-xoff").empty());
  EXPECT_TRUE(only(with("3072B"), "pfc-static-xoff", S::warning));  // never resumes before empty
}

TEST_F(LintRules, ResumeOffsetHoldsAFrame) {
  EXPECT_TRUE(only(nine("", "pfc: {resume_offset: 4177B}"), "pfc-resume", S::note));
  EXPECT_TRUE(of_rule(nine("", "pfc: {resume_offset: 4178B}"), "pfc-resume").empty());
}

TEST_F(LintRules, MarksBeforePausesAtTheWorstSharing) {
  // Pool 2,000,000 - 9 x 54,096 = 1,513,136; alpha 1/8.
  const auto with = [&](const std::string& kmin) {
    return nine("", "buffer: 2MB, pfc: {headroom: 50KB}, ecn: {kmax: 1MB, kmin: " + kmin + "}");
  };
  // (P/8 / 1.125 + 4096) / 9 = 19,136
  EXPECT_TRUE(of_rule(with("19135B"), "ecn-before-pfc").empty());
  EXPECT_TRUE(only(with("19137B"), "ecn-before-pfc", S::note));
  // all nine active: 4096 + P/8 / (1 + 9/8) = 93,104
  EXPECT_TRUE(only(with("93103B"), "ecn-before-pfc", S::note));
  EXPECT_TRUE(only(with("93105B"), "ecn-before-pfc", S::warning));
  EXPECT_TRUE(has(words_of(with("93105B"), "ecn-before-pfc"), "all 9 ingress ports active"));
  // one: 4096 + P/8 / 1.125 = 172,222
  EXPECT_TRUE(has(words_of(with("172223B"), "ecn-before-pfc"), "single ingress port"));
  EXPECT_TRUE(has(words_of(with("172223B"), "ecn-before-pfc"), "from 2-to-1 on"));
  EXPECT_TRUE(of_rule(nine("", "buffer: 2MB, ecn: {mark_at: off}"), "ecn-before-pfc").empty());
}

TEST_F(LintRules, StaticThresholdHasItsOwnBound) {
  const auto with = [&](const std::string& kmin) {
    return nine("",
                "buffer: 2MB, pfc: {mode: static, headroom: 50KB, xoff: 86KB}, "
                "ecn: {kmax: 1MB, kmin: " +
                    kmin + "}");
  };
  // (86,000 + 4096) / 9 = 10,010.7
  EXPECT_TRUE(of_rule(with("10010B"), "ecn-before-pfc").empty());
  EXPECT_TRUE(only(with("10011B"), "ecn-before-pfc", S::note));
  EXPECT_TRUE(only(with("90097B"), "ecn-before-pfc", S::warning));
}

TEST_F(LintRules, KmaxIsWithinReach) {
  // eight others: 8 x (4096 + P/8 / 2) = 789,336
  const auto with = [&](const std::string& kmax) {
    return nine("", "buffer: 2MB, pfc: {headroom: 50KB}, ecn: {kmin: 10KB, kmax: " + kmax + "}");
  };
  EXPECT_TRUE(of_rule(with("789335B"), "ecn-kmax-reach").empty());
  ASSERT_TRUE(only(with("1568672B"), "ecn-kmax-reach", S::warning));
  // 0.2 x (789,336 - 10,000) / (1,568,672 - 10,000) = 10 %
  EXPECT_TRUE(has(words_of(with("1568672B"), "ecn-kmax-reach"), "marking ends at 10 %"));
}

TEST_F(LintRules, ThresholdsInRange) {
  const auto swapped = nine("", "ecn: {kmin: 2MB}");  // kmax by port rate: 1.6 MB
  ASSERT_TRUE(only(swapped, "ecn-range", S::error)) << lint_text(swapped);
  EXPECT_TRUE(only(nine("", "ecn: {kmin: 4177B, kmax: 1MB}"), "ecn-range", S::warning));
  EXPECT_TRUE(only(nine("", "ecn: {pmax: 0}"), "ecn-range", S::warning));
  EXPECT_TRUE(of_rule(nine("", "ecn: {kmin: 1MB, kmax: 1MB, pmax: 0}"), "ecn-range").empty());
  // Round trip 2 x (2 x 1 us + 327.68 ns) at 12.5 B/ns: 58,192; a seventh is 8313.
  EXPECT_TRUE(only(nine("", "ecn: {kmin: 8312B, kmax: 1MB}"), "ecn-range", S::note));
  EXPECT_TRUE(of_rule(nine("", "ecn: {kmin: 8314B, kmax: 1MB}"), "ecn-range").empty());
}

TEST_F(LintRules, ThresholdsFollowThePortRate) {
  const auto with = [&](const std::string& ecn, const std::string& link) {
    return scenario(
        "cluster: {nodes: 8, gpus_per_node: 1}\n"
        "fabric:\n"
        "  topology: {kind: leaf-spine, leaf_radix: 8, nic: {rate: 100Gbps}, link: {rate: " +
        link + "}, scale_up: {kind: none}}\n  switch: {ecn: {" + ecn +
        "}}\n"
        "traffic: [{pattern: permutation}]\n");
  };
  EXPECT_TRUE(of_rule(with("preset: by-port-rate", "200Gbps"), "ecn-scaling").empty());
  EXPECT_TRUE(of_rule(with("kmin: 400KB, kmax: 1600KB", "100Gbps"), "ecn-scaling").empty());
  const auto r = with("kmin: 400KB, kmax: 1600KB", "200Gbps");
  ASSERT_EQ(of_rule(r, "ecn-scaling").size(), 2U) << lint_text(r);
  EXPECT_EQ(r.count(S::error), 0U);
  EXPECT_TRUE(has(words_of(r, "ecn-scaling"),
                  "200Gbps: 400KB is 50KB per 25 Gb/s, not 100KB; in proportion 800KB"));
}

TEST_F(LintRules, ProductionRule) {
  EXPECT_TRUE(only(nine("", "ecn: {kmin: 5KB, kmax: 200KB}"), "ecn-production", S::note));
  EXPECT_TRUE(of_rule(nine("", "ecn: {kmin: 300KB, kmax: 1MB}"), "ecn-production").empty());
  EXPECT_TRUE(of_rule(nine("", ""), "ecn-production").empty());
}

TEST_F(LintRules, SomebodyMustMark) {
  EXPECT_TRUE(only(nine("", "ecn: {mark_at: off}"), "ecn-off", S::warning));
  const auto none = nine("congestion: {kind: none}", "ecn: {mark_at: off}");
  EXPECT_TRUE(of_rule(none, "ecn-off").empty());
  EXPECT_TRUE(only(none, "pfc-only", S::note));
}

TEST_F(LintRules, AlphaTimerExceedsTheCnpInterval) {
  const auto with = [&](const std::string& cc) {
    return nine("congestion: {kind: dcqcn, " + cc + "}", "");
  };
  const char* rule = "dcqcn-cnp-spacing";
  EXPECT_TRUE(of_rule(with("order: paper"), rule).empty());
  EXPECT_TRUE(only(with("order: paper, alpha_timer: 50us"), rule, S::warning));
  EXPECT_TRUE(of_rule(with("order: paper, alpha_timer: 50001ns"), rule).empty());
  EXPECT_TRUE(of_rule(with("order: vendor"), rule).empty());  // flags on ACKs
  const auto packets = with("order: vendor, cnp: packet");
  EXPECT_TRUE(only(packets, rule, S::warning));
  // (255/256)^50
  EXPECT_TRUE(has(words_of(packets, rule), "= alpha x 0.822")) << words_of(packets, rule);
}

TEST_F(LintRules, CutsKeepUpWithIncreases) {
  const auto with = [&](const std::string& cc) {
    return nine("congestion: {kind: dcqcn, " + cc + "}", "");
  };
  EXPECT_TRUE(of_rule(with("order: vendor"), "dcqcn-timers").empty());
  EXPECT_TRUE(of_rule(with("order: paper"), "dcqcn-timers").empty());
  EXPECT_TRUE(only(with("order: vendor, increase_timer: 4us"), "dcqcn-timers", S::warning));
  EXPECT_TRUE(only(with("order: paper, increase_timer: 50us"), "dcqcn-timers", S::warning));
  EXPECT_TRUE(only(with("order: vendor, alpha_timer: 5us"), "dcqcn-timers", S::warning));
}

TEST_F(LintRules, SmallestRate) {
  const auto with = [&](const std::string& rate) {
    return nine("congestion: {kind: dcqcn, min_rate: " + rate + "}", "");
  };
  EXPECT_TRUE(of_rule(with("12.5Gbps"), "dcqcn-min-rate").empty());
  EXPECT_TRUE(only(with("12.6Gbps"), "dcqcn-min-rate", S::warning));
  EXPECT_TRUE(only(with("100Gbps"), "dcqcn-min-rate", S::error));
}

TEST_F(LintRules, BorrowedDefaults) {
  const auto with = [&](const std::string& cc) {
    return nine("congestion: {kind: dcqcn, order: paper, " + cc + "}", "");
  };
  const char* rule = "dcqcn-borrowed-defaults";
  EXPECT_TRUE(of_rule(with("g: 1/256"), rule).empty());
  EXPECT_TRUE(only(with("g: 1/16"), rule, S::warning));
  EXPECT_TRUE(only(with("byte_counter: 150KB"), rule, S::warning));
  const auto qcn = with("g: 1/16, byte_counter: 150KB, increase_timer: 1.5ms");
  ASSERT_EQ(of_rule(qcn, rule).size(), 1U);
  EXPECT_EQ(of_rule(qcn, rule)[0].arithmetic.size(), 3U);
}

TEST_F(LintRules, ManyFlowsOnOneReceiver) {
  const auto with = [&](int senders) {
    return scenario(one_switch(senders + 1, "100Gbps", "1us",
                               "  transport: {congestion: {kind: dcqcn, order: paper}}\n",
                               "{pattern: incast}"));
  };
  EXPECT_TRUE(of_rule(with(160), "dcqcn-flow-count").empty());
  EXPECT_TRUE(only(with(161), "dcqcn-flow-count", S::note));
}

TEST_F(LintRules, IncastAgainstTheBuffer) {
  const auto with = [&](const std::string& transport, const std::string& sw) {
    return nine("congestion: {kind: none}, " + transport,
                "buffer: 1MB, ecn: {mark_at: off}, pfc: {" + sw + "}");
  };
  // A bandwidth-delay product is 58,192: 7 x 58,192 = 407,344 in the queue. Pool 1,000,000 -
  // 9 x (39,690 + 4096) = 605,926: 8 x (4096 + P/8 / 2) = 335,731.
  const auto bdp = with("window: bdp", "headroom: auto");
  ASSERT_TRUE(only(bdp, "incast-buffer", S::note)) << lint_text(bdp);
  EXPECT_TRUE(has(words_of(bdp, "incast-buffer"), "407.3KB"));
  EXPECT_TRUE(has(words_of(bdp, "incast-buffer"), "335.7KB"));
  EXPECT_TRUE(of_rule(with("window: 40KB", "headroom: auto"), "incast-buffer").empty());
  EXPECT_TRUE(only(with("window: bdp", "mode: off, alpha: 1/16"), "incast-buffer", S::warning));
}

TEST_F(LintRules, IncastCountsNoMoreThanIsSent) {
  // 8 x 48,000 = 384,000, of which 7/8 stay: 336,000 > 335,731.
  const auto with = [&](const std::string& size) {
    return nine("congestion: {kind: none}", "buffer: 1MB, ecn: {mark_at: off}",
                "{pattern: incast, dst: 8, fan_in: 8, size: " + size + "}");
  };
  ASSERT_TRUE(only(with("48000B"), "incast-buffer", S::note));
  EXPECT_TRUE(has(words_of(with("48000B"), "incast-buffer"), "all that they send, 384KB"));
  EXPECT_TRUE(of_rule(with("47900B"), "incast-buffer").empty());
}

TEST_F(LintRules, AllToAllIsAnIncastOfItsGroup) {
  const auto with = [&](const std::string& window) {
    return scenario(
        "cluster: {nodes: 4, gpus_per_node: 4}\n"
        "fabric: {topology: {kind: rail-optimized}, switch: {buffer: 2MiB}}\n"
        "collectives: {window: " +
        window + "}\ntraffic: [{pattern: collective, collective: all-to-all, size: 64MiB}]\n");
  };
  // 12 of the 16 ranks are on other servers.
  EXPECT_TRUE(has(words_of(with("auto"), "incast-buffer"), "12-to-1 (all-to-all of 16 ranks)"))
      << lint_text(with("auto"));
  EXPECT_TRUE(of_rule(with("2"), "incast-buffer").empty()) << lint_text(with("2"));
}

TEST_F(LintRules, TimerOutlivesFullBuffers) {
  const auto with = [&](const std::string& rto) {
    return nine("retransmit_timeout: " + rto, "buffer: 64MB");
  };
  EXPECT_TRUE(of_rule(with("6ms"), "rto-delay").empty());  // 64 MB at 100 Gb/s: 5.12 ms
  EXPECT_TRUE(only(with("5ms"), "rto-delay", S::warning));
  EXPECT_TRUE(only(with("4.6us"), "rto-delay", S::error));  // round trip 4.655 us
}

TEST_F(LintRules, WindowsAndAcks) {
  EXPECT_TRUE(of_rule(nine("window: 58192B", ""), "window-bdp").empty());
  const auto half = nine("window: 29096B", "");
  ASSERT_TRUE(only(half, "window-bdp", S::warning));
  EXPECT_TRUE(has(words_of(half, "window-bdp"), "50 % of the rate"));
  // 58,192 / 4096: 15 packets.
  EXPECT_TRUE(
      of_rule(nine("window: bdp, window_scaling: false, ack_interval: 15", ""), "window-bdp")
          .empty());
  EXPECT_TRUE(only(nine("window: bdp, ack_interval: 16", ""), "window-bdp", S::error));
  EXPECT_TRUE(only(nine("window: bdp, ack_interval: 2", ""), "window-bdp", S::warning));
}

TEST_F(LintRules, AcksOfOneClass) {
  EXPECT_TRUE(of_rule(nine("", ""), "ack-class").empty());
  EXPECT_TRUE(only(nine("ack_pausable: false", ""), "ack-class", S::note));
  EXPECT_TRUE(only(nine("ack_class: control", ""), "ack-class", S::note));
  EXPECT_TRUE(of_rule(nine("ack_class: control, ack_pausable: false", ""), "ack-class").empty());
}

TEST_F(LintRules, OneHashOverTiers) {
  // Two leaves over two aggregation switches over two cores, twice: leaf, aggregation and
  // core choose.
  const std::string file = put("three-tiers.txt",
                               "14 10 20\n4 5 6 7 8 9 10 11 12 13\n"
                               "0 4 100Gbps 1us 0\n1 5 100Gbps 1us 0\n2 6 100Gbps 1us 0\n"
                               "3 7 100Gbps 1us 0\n"
                               "4 8 100Gbps 1us 0\n4 9 100Gbps 1us 0\n5 8 100Gbps 1us 0\n"
                               "5 9 100Gbps 1us 0\n6 10 100Gbps 1us 0\n6 11 100Gbps 1us 0\n"
                               "7 10 100Gbps 1us 0\n7 11 100Gbps 1us 0\n"
                               "8 12 100Gbps 1us 0\n8 13 100Gbps 1us 0\n9 12 100Gbps 1us 0\n"
                               "9 13 100Gbps 1us 0\n10 12 100Gbps 1us 0\n10 13 100Gbps 1us 0\n"
                               "11 12 100Gbps 1us 0\n11 13 100Gbps 1us 0\n");
  const auto with = [&](const std::string& topology, const std::string& seed) {
    return scenario("cluster: {gpus_per_node: 1}\nfabric:\n  topology: {" + topology +
                    "}\n  transport: {load_balancing: {per_switch_seed: " + seed +
                    "}}\ntraffic: [{pattern: permutation}]\n");
  };
  const auto three = with("kind: file, path: " + file, "false");
  ASSERT_TRUE(only(three, "ecmp-polarisation", S::warning)) << lint_text(three);
  EXPECT_TRUE(has(words_of(three, "ecmp-polarisation"), "3 nodes in a row"));
  EXPECT_TRUE(of_rule(with("kind: file, path: " + file, "true"), "ecmp-polarisation").empty());
}

TEST_F(LintRules, BitsOrBytes) {
  const auto with = [&](const std::string& nic, const std::string& scale_up) {
    return scenario(
        "cluster: {nodes: 2, gpus_per_node: 2}\nfabric:\n  topology: {kind: "
        "rail-optimized, nic: {rate: " +
        nic + "}, scale_up: {rate: " + scale_up + "}}\ntraffic: [{pattern: permutation}]\n");
  };
  EXPECT_TRUE(of_rule(with("3200Gbps", "100Gbps"), "rate-units").empty());
  const auto nic = with("3201Gbps", "450GBps");
  ASSERT_TRUE(only(nic, "rate-units", S::warning));
  EXPECT_EQ("fabric.topology.nic.rate", of_rule(nic, "rate-units")[0].place.key);
  const auto scale_up = with("400Gbps", "99Gbps");
  ASSERT_TRUE(only(scale_up, "rate-units", S::warning));
  EXPECT_EQ("fabric.topology.scale_up.rate", of_rule(scale_up, "rate-units")[0].place.key);
}

TEST_F(LintRules, NamesOriginsOfPresetsAndDefaults) {
  const auto r = nine("preset: rocev2-whole-ns", "pfc: {headroom: 1KB}");
  const auto ack = of_rule(r, "ack-class");
  ASSERT_EQ(ack.size(), 1U);
  EXPECT_EQ(Origin::Kind::preset, ack[0].place.origin.kind);
  const std::string text = lint_text(r);
  EXPECT_TRUE(has(text, "rocev2-whole-ns.yaml:6: note: ")) << text;
  EXPECT_TRUE(has(text, "s.yaml:5: error: ")) << text;
  EXPECT_TRUE(has(text, "(preset rocev2-whole-ns.yaml:6)")) << text;
}

TEST_F(LintRules, EveryRuleHasASourceAndFindingsCarryIt) {
  const auto& registry = Registry::instance();
  const auto names = registry.names("lint");
  EXPECT_GE(names.size(), 20U);
  for (const auto& name : names) {
    EXPECT_FALSE(registry.get("lint", name).source.empty()) << name;
    EXPECT_TRUE(has(lint_rules_text(), name));
  }
  const auto r = nine("window: 1KB", "buffer: 100KB, pfc: {headroom: 1KB}, ecn: {kmin: 2MB}");
  EXPECT_EQ(r.rules, names.size());
  ASSERT_GE(r.findings.size(), 4U);
  for (size_t i = 0; i < r.findings.size(); ++i) {
    const Finding& f = r.findings[i];
    EXPECT_EQ(registry.get("lint", f.rule).source, f.source);
    EXPECT_FALSE(f.message.empty());
    if (i > 0) {
      EXPECT_LE(r.findings[i - 1].severity, f.severity);
    }
  }
}

TEST(LintScenarios, ShippedOnesHaveNoErrors) {
  size_t n = 0;
  for (const auto& e :
       fs::recursive_directory_iterator(fs::path(TRAINYARD_SOURCE_DIR) / "scenarios")) {
    if (e.path().extension() != ".yaml") continue;
    SCOPED_TRACE(e.path().string());
    const auto report = run_lint(lint_scenario(load_scenario(e.path().string())));
    EXPECT_EQ(report.count(S::error), 0U) << lint_text(report);
    ++n;
  }
  EXPECT_GE(n, 12U);
}

TEST(LintScenarios, QuickstartHasNoWarningEither) {
  const auto report = run_lint(lint_scenario(
      load_scenario((fs::path(TRAINYARD_SOURCE_DIR) / "scenarios/quickstart.yaml").string())));
  EXPECT_EQ(report.count(S::error) + report.count(S::warning), 0U) << lint_text(report);
}

}  // namespace
}  // namespace trainyard::lint_test
