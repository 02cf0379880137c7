// SPDX-License-Identifier: MIT
// Configurations of the HPCC / SimAI family: lines of `KEY value` (formats 5.3). What such a
// simulator fixes in its code (reserve, headroom rule, threshold shift, header sizes) is filled in
// from protocols 5.5 and the notes of the published tables.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "sim/registry.h"
#include "tools/lint/subject.h"

namespace trainyard {
namespace {

struct Line {
  int number = 0;
  std::vector<std::string> words;  ///< key first
};

const std::set<std::string>& known_keys() {
  static const std::set<std::string> keys = {
      // judged
      "ENABLE_QCN", "USE_DYNAMIC_PFC_THRESHOLD", "PACKET_PAYLOAD_SIZE", "CC_MODE",
      "ALPHA_RESUME_INTERVAL", "RATE_DECREASE_INTERVAL", "CLAMP_TARGET_RATE", "RP_TIMER",
      "EWMA_GAIN", "FAST_RECOVERY_TIMES", "RATE_AI", "RATE_HAI", "MIN_RATE", "ERROR_RATE_PER_LINK",
      "L2_CHUNK_SIZE", "L2_ACK_INTERVAL", "L2_BACK_TO_ZERO", "HAS_WIN", "VAR_WIN", "GLOBAL_T",
      "ACK_HIGH_PRIO", "BUFFER_SIZE", "KMAX_MAP", "KMIN_MAP", "PMAX_MAP",
      // part of the format, nothing to judge
      "DCTCP_RATE_AI", "FAST_REACT", "U_TARGET", "MI_THRESH", "INT_MULTI", "MULTI_RATE",
      "SAMPLE_FEEDBACK", "PINT_LOG_BASE", "PINT_PROB", "RATE_BOUND", "LINK_DOWN",
      "SIMULATOR_STOP_TIME", "NIC_TOTAL_PAUSE_TIME", "ENABLE_TRACE", "TOPOLOGY_FILE", "FLOW_FILE",
      "TRACE_FILE", "TRACE_OUTPUT_FILE", "FCT_OUTPUT_FILE", "PFC_OUTPUT_FILE", "QLEN_MON_FILE",
      "QLEN_MON_START", "QLEN_MON_END", "BW_MON_FILE", "RATE_MON_FILE", "CNP_MON_FILE", "MON_START",
      "MON_END", "QP_MON_INTERVAL", "QLEN_MON_INTERVAL", "BW_MON_INTERVAL", "RATE_MON_INTERVAL",
      "CNP_MON_INTERVAL"};
  return keys;
}

bool looks_like_key(const std::string& word) {
  return word.size() > 1 && word[0] >= 'A' && word[0] <= 'Z' &&
         std::all_of(word.begin(), word.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
         });
}

std::ifstream open(const std::string& path, const char* what) {
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path)) {
    throw UserError(SourcePos{path, 0}, std::string("cannot open the ") + what);
  }
  return in;
}

Line split(const std::string& text, int number) {
  Line line{number, {}};
  std::istringstream words(text.substr(0, text.find('#')));
  for (std::string w; words >> w;) line.words.push_back(w);
  return line;
}

class Conf {
 public:
  explicit Conf(const std::string& path) : path_(path) {
    std::ifstream in = open(path, "configuration");
    std::string text;
    for (int number = 1; std::getline(in, text); ++number) {
      Line line = split(text, number);
      if (line.words.empty()) continue;
      const SourcePos pos{path, number};
      const std::string key = line.words[0];
      if (!looks_like_key(key)) {
        throw UserError(pos, "'" + key + "' is no key of a HPCC / SimAI configuration",
                        "lines are 'KEY value', for example 'BUFFER_SIZE 32'");
      }
      if (known_keys().count(key) == 0) {
        throw UserError(pos, "unknown key '" + key + "'",
                        "this reads configurations of HPCC's and SimAI's ns-3 (formats 5.3)");
      }
      if (line.words.size() < 2) throw UserError(pos, key + " has no value");
      const auto [it, added] = lines_.emplace(key, std::move(line));
      if (!added) {
        throw UserError(
            pos, key + " is given twice, first in line " + std::to_string(it->second.number));
      }
    }
    if (lines_.empty()) throw UserError(SourcePos{path, 0}, "the configuration is empty");
  }

  [[nodiscard]] bool has(const std::string& key) const { return lines_.count(key) > 0; }
  [[nodiscard]] SourcePos pos(const std::string& key) const {
    const auto it = lines_.find(key);
    return {path_, it == lines_.end() ? 0 : it->second.number};
  }
  [[nodiscard]] std::string text(const std::string& key) const {
    const auto it = lines_.find(key);
    if (it == lines_.end()) return {};
    std::string out;
    for (size_t i = 1; i < it->second.words.size(); ++i) {
      out += (out.empty() ? "" : " ") + it->second.words[i];
    }
    return out;
  }

  [[nodiscard]] double number(const std::string& key, double fallback, double min,
                              double max) const {
    if (!has(key)) return fallback;
    return one(key, word(key), min, max);
  }
  [[nodiscard]] bool flag(const std::string& key, bool fallback) const {
    return number(key, fallback ? 1 : 0, 0, 1) != 0;
  }
  /// "50Mb/s", as ns-3 writes rates; also "50Mbps".
  [[nodiscard]] int64_t rate(const std::string& key, int64_t fallback) const {
    if (!has(key)) return fallback;
    std::string t = word(key);
    if (const size_t slash = t.rfind("b/s"); slash != std::string::npos && slash + 3 == t.size()) {
      t.replace(slash, 3, "bps");
    }
    try {
      return parse_rate(t).bps();
    } catch (const UserError& e) {
      throw UserError(pos(key), key + ": " + e.what());
    }
  }
  /// "n (rate value) * n": rate in bit/s.
  [[nodiscard]] std::vector<std::pair<Rate, double>> map(const std::string& key, double max) const {
    std::vector<std::pair<Rate, double>> out;
    const auto it = lines_.find(key);
    if (it == lines_.end()) return out;
    const auto& words = it->second.words;
    const auto n = static_cast<size_t>(one(key, words[1], 1, 1000));
    if (words.size() != 2 + 2 * n) {
      throw UserError(pos(key),
                      key + " says " + std::to_string(n) + " pairs of rate and value, " +
                          std::to_string(words.size() - 2) + " words follow",
                      "write 'count', then count times 'rate in bit/s' and value");
    }
    for (size_t i = 0; i < n; ++i) {
      const auto bps = static_cast<int64_t>(one(key, words[2 + 2 * i], 1, 1e18));
      const double value = one(key, words[3 + 2 * i], 0, max);
      const bool twice = std::any_of(
          out.begin(), out.end(), [&](const auto& pair) { return pair.first == Rate::bps(bps); });
      if (twice) {
        throw UserError(pos(key), key + " names " + print_rate(Rate::bps(bps)) + " twice");
      }
      out.emplace_back(Rate::bps(bps), value);
    }
    return out;
  }

 private:
  [[nodiscard]] const std::string& word(const std::string& key) const {
    const Line& line = lines_.at(key);
    if (line.words.size() != 2) {
      throw UserError(pos(key),
                      key + " takes one value, not " + std::to_string(line.words.size() - 1));
    }
    return line.words[1];
  }
  [[nodiscard]] double one(const std::string& key, const std::string& t, double min,
                           double max) const {
    double v = 0;
    const auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), v);
    if (error != std::errc() || end != t.data() + t.size() || !(v >= min && v <= max)) {
      std::ostringstream range;
      range << min << " to " << max;
      throw UserError(pos(key), key + ": '" + t + "' is not a number from " + range.str());
    }
    return v;
  }

  std::string path_;
  std::map<std::string, Line> lines_;
};

void read_maps(const Conf& conf, LintSubject& s) {
  const auto kmin = conf.map("KMIN_MAP", 1e12);
  const auto kmax = conf.map("KMAX_MAP", 1e12);
  const auto pmax = conf.map("PMAX_MAP", 1);
  const auto value = [&](const std::vector<std::pair<Rate, double>>& map, const char* key,
                         Rate rate) {
    for (const auto& [r, v] : map) {
      if (r == rate) return v;
    }
    throw UserError(conf.pos(key),
                    std::string(key) + " does not name " + print_rate(rate) + ", KMIN_MAP does",
                    "name the same rates in KMIN_MAP, KMAX_MAP and PMAX_MAP");
  };
  for (const auto& [rate, low] : kmin) {
    s.ecn_map.push_back({rate, std::llround(low * 1000),
                         std::llround(value(kmax, "KMAX_MAP", rate) * 1000),
                         value(pmax, "PMAX_MAP", rate)});
  }
  if (kmax.size() != kmin.size() || pmax.size() != kmin.size()) {
    const char* key = kmax.size() != kmin.size() ? "KMAX_MAP" : "PMAX_MAP";
    throw UserError(conf.pos(key), std::string(key) + " names other rates than KMIN_MAP",
                    "name the same rates in KMIN_MAP, KMAX_MAP and PMAX_MAP");
  }
  std::sort(s.ecn_map.begin(), s.ecn_map.end(),
            [](const LintEcn& a, const LintEcn& b) { return a.rate < b.rate; });
}

Topology read_topology(const std::string& file) {
  TopologyRequest request;
  request.base_dir = ".";
  request.nodes_auto = true;
  const ModelDoc& doc = Registry::instance().get("topology", "file");
  Params params(doc.params);
  params.set("path", std::filesystem::absolute(file).string(), {});
  try {
    return Registry::instance().factory<TopologyFactory>("topology", "file")(request, params);
  } catch (const UserError& e) {
    if (!e.pos().file.empty()) throw;
    throw UserError(SourcePos{file, 0}, e.what());
  }
}

}  // namespace

bool is_simai_conf(const std::string& path) {
  std::ifstream in = open(path, "file");
  std::string text;
  for (int number = 1; std::getline(in, text); ++number) {
    const Line line = split(text, number);
    if (line.words.empty()) continue;
    return line.words.size() > 1 && looks_like_key(line.words[0]);
  }
  return false;
}

LintSubject lint_simai_conf(const std::string& path, const std::string& topology_file) {
  const Conf conf(path);
  LintSubject s;
  s.file = path;
  LintConf extra;
  PacketConfig& c = s.config;
  // Fixed by the code of these simulators.
  c.header = 52;
  c.ack_bytes = 60;
  c.pfc_frame = 43;
  c.resolution_ps = 1000;
  c.persistent_qps = false;
  c.complete_at_receiver = false;
  c.headroom_rule = HeadroomRule::rate_delay;
  c.headroom_factor = 3;
  c.rto_ps = 0;  // there is no retransmission timer (protocols 5.6)

  c.payload = static_cast<int64_t>(conf.number("PACKET_PAYLOAD_SIZE", 1000, 1, 65000));
  extra.chunk = static_cast<int64_t>(conf.number("L2_CHUNK_SIZE", 4000, 0, 1e12));
  extra.back_to_zero = conf.flag("L2_BACK_TO_ZERO", false);
  extra.error_rate = conf.number("ERROR_RATE_PER_LINK", 0, 0, 1);
  // The interval counts bytes; 1 means every packet.
  const auto interval = static_cast<int64_t>(conf.number("L2_ACK_INTERVAL", 1, 0, 1e12));
  c.ack_interval = std::max<int64_t>(1, (interval + c.payload - 1) / c.payload);
  c.ack_pausable = !conf.flag("ACK_HIGH_PRIO", false);
  c.window = !conf.flag("HAS_WIN", false)  ? WindowRule::none
             : conf.flag("GLOBAL_T", true) ? WindowRule::bdp_longest
                                           : WindowRule::bdp_pair;
  c.window_scales = conf.flag("VAR_WIN", false);

  const auto mode = static_cast<int>(conf.number("CC_MODE", 1, 0, 100));
  c.congestion = mode == 1 ? CongestionControl::dcqcn : CongestionControl::none;
  DcqcnParams& d = c.dcqcn;
  const auto us = [&](const char* key, double fallback) {
    return static_cast<int64_t>(conf.number(key, fallback, 1e-3, 1e9) * 1e6);
  };
  d.alpha_timer_ps = us("ALPHA_RESUME_INTERVAL", 55);
  d.cut_timer_ps = us("RATE_DECREASE_INTERVAL", 4);
  d.increase_timer_ps = us("RP_TIMER", 1500);
  d.g = static_cast<uint64_t>(std::ldexp(conf.number("EWMA_GAIN", 1.0 / 16, 1e-9, 1), 62));
  d.fast_recovery_steps = static_cast<int>(conf.number("FAST_RECOVERY_TIMES", 5, 1, 1000));
  d.clamp_target = conf.flag("CLAMP_TARGET_RATE", false);
  d.additive_bps = conf.rate("RATE_AI", 5'000'000);
  d.hyper_bps = conf.rate("RATE_HAI", 50'000'000);
  d.min_bps = conf.rate("MIN_RATE", 100'000'000);

  c.buffer = static_cast<int64_t>(conf.number("BUFFER_SIZE", 12, 1e-3, 1e6) * 1024 * 1024);
  c.pfc = PfcMode::dynamic_threshold;
  if (!conf.flag("USE_DYNAMIC_PFC_THRESHOLD", true)) c.alpha_by_port_rate = false;
  c.ecn = conf.flag("ENABLE_QCN", false) ? EcnMark::dequeue : EcnMark::off;
  read_maps(conf, s);
  if (c.ecn != EcnMark::off && s.ecn_map.empty()) {
    throw UserError(SourcePos{path, 0}, "ENABLE_QCN is on but there is no KMIN_MAP",
                    "add KMIN_MAP, KMAX_MAP and PMAX_MAP");
  }

  const std::pair<const char*, const char*> keys[] = {
      {"fabric.transport.payload", "PACKET_PAYLOAD_SIZE"},
      {"fabric.transport.ack_interval", "L2_ACK_INTERVAL"},
      {"fabric.transport.ack_pausable", "ACK_HIGH_PRIO"},
      {"fabric.transport.window", "HAS_WIN"},
      {"fabric.transport.loss_recovery", "L2_BACK_TO_ZERO"},
      {"fabric.transport.congestion.kind", "CC_MODE"},
      {"fabric.transport.congestion.g", "EWMA_GAIN"},
      {"fabric.transport.congestion.alpha_timer", "ALPHA_RESUME_INTERVAL"},
      {"fabric.transport.congestion.cut_interval", "RATE_DECREASE_INTERVAL"},
      {"fabric.transport.congestion.increase_timer", "RP_TIMER"},
      {"fabric.transport.congestion.min_rate", "MIN_RATE"},
      {"fabric.switch.buffer", "BUFFER_SIZE"},
      {"fabric.switch.ecn.mark_at", "ENABLE_QCN"},
      {"fabric.switch.ecn.kmin", "KMIN_MAP"},
      {"fabric.switch.ecn.kmax", "KMAX_MAP"},
      {"fabric.switch.ecn.pmax", "PMAX_MAP"},
      {"conf.chunk", "L2_CHUNK_SIZE"},
      {"conf.error_rate", "ERROR_RATE_PER_LINK"},
  };
  for (const auto& [ours, theirs] : keys) {
    const auto kind = conf.has(theirs) ? Origin::Kind::user : Origin::Kind::default_value;
    s.places[ours] = {theirs, conf.text(theirs), {kind, conf.pos(theirs)}};
  }
  const auto built_in = [&](const char* ours, const char* name, const char* value) {
    s.places[ours] = {name, value, {Origin::Kind::default_value, {path, 0}}};
  };
  built_in("fabric.switch.pfc.headroom", "headroom", "3 x rate x delay, in the simulator's code");
  built_in("fabric.switch.pfc.alpha", "threshold shift", "3, in the simulator's code");
  built_in("fabric.switch.pfc.resume_offset", "resume offset", "3 KiB, in the simulator's code");
  built_in("fabric.topology.nic.rate", "topology file", topology_file.c_str());
  built_in("fabric.topology.scale_up.rate", "topology file", topology_file.c_str());
  s.conf = extra;
  if (!topology_file.empty()) s.use(read_topology(topology_file));
  return s;
}

}  // namespace trainyard
