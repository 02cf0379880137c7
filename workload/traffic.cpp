// SPDX-License-Identifier: MIT
#include "workload/traffic.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "sim/dice.h"

namespace trainyard {
namespace {

using PT = ParamType;

const ParamSpec kSize = {"size", PT::bytes, "1MiB", "1B", "", {}, "bytes per flow", ""};
const ParamSpec kStart = {"start", PT::time, "0ns", "0ns", "30d", {}, "start of all flows", ""};

const ParamSpec kClass = {"class",
                          PT::integer,
                          "0",
                          "0",
                          "3",
                          {},
                          "data class in switches and NICs, see fabric.switch.classes",
                          "DESIGN 5"};
const ParamSpec kBackground = {"background",
                               PT::boolean,
                               "false",
                               "",
                               "",
                               {},
                               "the run does not wait for these flows, and they are reported apart",
                               "DESIGN 9.1"};
const ParamSpec kRepeat = {"repeat",
                           PT::time,
                           "false",
                           "1ns",
                           "30d",
                           {"false", "true"},
                           "background only: true starts a flow again as soon as it is done, a "
                           "time starts it so often, done or not",
                           "our choice"};

uint32_t rank_param(const TrafficRequest& r, const Params& p, const std::string& name) {
  const int64_t v = p.integer(name);
  if (v >= r.ranks) {
    throw UserError(p.origin(name).pos, name + " " + std::to_string(v) + " is out of range",
                    "the fabric has ranks 0 to " + std::to_string(r.ranks - 1));
  }
  return static_cast<uint32_t>(v);
}

std::vector<Flow> incast(const TrafficRequest& r, const Params& p) {
  const uint32_t dst = rank_param(r, p, "dst");
  const int64_t fan = p.is_word("fan_in", "auto") ? r.ranks - 1 : p.integer("fan_in");
  if (fan > r.ranks - 1) {
    throw UserError(p.origin("fan_in").pos,
                    "fan_in " + std::to_string(fan) + " needs " + std::to_string(fan + 1) +
                        " ranks, the fabric has " + std::to_string(r.ranks));
  }
  std::vector<Flow> flows;
  for (uint32_t src = 0; src < r.ranks && static_cast<int64_t>(flows.size()) < fan; ++src) {
    if (src != dst) flows.push_back({src, dst, p.bytes("size").count(), p.time("start")});
  }
  return flows;
}

std::vector<Flow> outcast(const TrafficRequest& r, const Params& p) {
  const uint32_t src = rank_param(r, p, "src");
  std::vector<Flow> flows;
  for (uint32_t dst = 0; dst < r.ranks; ++dst) {
    if (src != dst) flows.push_back({src, dst, p.bytes("size").count(), p.time("start")});
  }
  return flows;
}

std::vector<Flow> all_to_all(const TrafficRequest& r, const Params& p) {
  std::vector<Flow> flows;
  for (uint32_t src = 0; src < r.ranks; ++src) {
    for (uint32_t k = 1; k < r.ranks; ++k) {
      flows.push_back({src, (src + k) % r.ranks, p.bytes("size").count(), p.time("start")});
    }
  }
  return flows;
}

std::vector<Flow> permutation(const TrafficRequest& r, const Params& p) {
  std::vector<uint32_t> to(r.ranks);
  if (p.is_word("shift", "random")) {
    for (uint32_t i = 0; i < r.ranks; ++i) to[i] = i;
    // Fisher-Yates to one cycle (Sattolo), so that nobody sends to itself.
    for (uint32_t i = r.ranks - 1; i > 0; --i) {
      std::swap(to[i], to[dice(r.seed, 50, i, 0) % i]);
    }
  } else {
    const auto shift = static_cast<uint64_t>(p.integer("shift"));
    if (shift % r.ranks == 0) {
      throw UserError(p.origin("shift").pos,
                      "a shift of " + std::to_string(shift) + " sends every rank to itself");
    }
    for (uint32_t i = 0; i < r.ranks; ++i) to[i] = static_cast<uint32_t>((i + shift) % r.ranks);
  }
  std::vector<Flow> flows;
  for (uint32_t i = 0; i < r.ranks; ++i) {
    flows.push_back({i, to[i], p.bytes("size").count(), p.time("start")});
  }
  return flows;
}

/// Rows `flow_id,src,dst,size_bytes,start_ns`, in order of issue; a header row is skipped.
std::vector<Flow> from_file(const TrafficRequest& r, const Params& p) {
  std::filesystem::path path = p.text("path");
  if (path.empty()) throw UserError(r.pos, "traffic pattern 'file' needs a path");
  if (path.is_relative()) path = std::filesystem::path(r.base_dir) / path;
  std::ifstream in(path);
  if (!in || std::filesystem::is_directory(path)) {
    throw UserError(p.origin("path").pos, "cannot open flow file " + path.string(),
                    "the path is relative to the scenario file");
  }
  std::vector<Flow> flows;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty() || line[0] == '#' || line.rfind("flow_id", 0) == 0) continue;
    const SourcePos pos{path.string(), number};
    std::vector<int64_t> v;
    std::istringstream row(line);
    std::string field;
    while (std::getline(row, field, ',')) {
      int64_t x = 0;
      const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), x);
      if (error != std::errc() || end != field.data() + field.size() || x < 0) {
        throw UserError(pos, "'" + field + "' is not a whole number",
                        "rows are flow_id,src,dst,size_bytes,start_ns");
      }
      v.push_back(x);
    }
    if (v.size() != 5) {
      throw UserError(pos, "a row of " + std::to_string(v.size()) + " fields",
                      "rows are flow_id,src,dst,size_bytes,start_ns");
    }
    if (v[1] >= r.ranks || v[2] >= r.ranks) {
      throw UserError(pos, "rank " + std::to_string(std::max(v[1], v[2])) + " is out of range",
                      "the fabric has ranks 0 to " + std::to_string(r.ranks - 1));
    }
    if (v[1] == v[2])
      throw UserError(pos, "a flow from rank " + std::to_string(v[1]) + " to itself");
    if (v[3] == 0) throw UserError(pos, "a flow of 0 bytes");
    if (v[4] > 2'592'000'000'000'000) throw UserError(pos, "the start time is beyond 30 days");
    flows.push_back({static_cast<uint32_t>(v[1]), static_cast<uint32_t>(v[2]), v[3],
                     Time::ns(v[4]) + p.time("start")});
  }
  if (flows.empty()) throw UserError(SourcePos{path.string(), 0}, "the file holds no flow");
  return flows;
}

const std::vector<std::string> kCollectives = {"all-reduce", "reduce",         "all-gather",
                                               "gather",     "scatter",        "broadcast",
                                               "all-to-all", "reduce-scatter", "barrier"};

const RegisterModel<TrafficFactory> kCollective{
    {"traffic",
     "collective",
     "A collective over all ranks, without a model: for bus bandwidth on a fabric. Several entries "
     "run one after the other.",
     "nccl-tests",
     {{"collective", PT::choice, "all-reduce", "", "", kCollectives, "which one", ""},
      {"size",
       PT::bytes,
       "1MiB",
       "1B",
       "",
       {},
       "bytes that one rank contributes (all-gather: its shard; all-to-all: its whole send buffer)",
       "formats 1.8"},
      {"start", PT::time, "0ns", "0ns", "30d", {}, "it does not begin before", ""}}},
    [](const TrafficRequest&, const Params&) -> std::vector<Flow> {
      TRAINYARD_ASSERT(false);  // runs as a job, see collective_job()
      return {};
    }};

const RegisterModel<TrafficFactory> kIncast{
    {"traffic",
     "incast",
     "Many ranks send to one.",
     "",
     {{"dst", PT::integer, "0", "0", "", {}, "receiving rank", ""},
      {"fan_in",
       PT::integer,
       "auto",
       "1",
       "",
       {"auto"},
       "number of senders, lowest ranks first; auto: all others",
       ""},
      kSize,
      kStart,
      kClass,
      kBackground,
      kRepeat}},
    incast};
const RegisterModel<TrafficFactory> kOutcast{
    {"traffic",
     "outcast",
     "One rank sends to all others.",
     "",
     {{"src", PT::integer, "0", "0", "", {}, "sending rank", ""},
      kSize,
      kStart,
      kClass,
      kBackground,
      kRepeat}},
    outcast};
const RegisterModel<TrafficFactory> kAllToAll{{"traffic",
                                               "all-to-all",
                                               "Every rank sends to every other, in rotated order.",
                                               "",
                                               {kSize, kStart, kClass, kBackground, kRepeat}},
                                              all_to_all};
const RegisterModel<TrafficFactory> kPermutation{
    {"traffic",
     "permutation",
     "Every rank sends to one other and receives from one.",
     "",
     {{"shift",
       PT::integer,
       "random",
       "1",
       "",
       {"random"},
       "rank r sends to r + shift; random: one random cycle by the seed",
       ""},
      kSize,
      kStart,
      kClass,
      kBackground,
      kRepeat}},
    permutation};
const RegisterModel<TrafficFactory> kFile{
    {"traffic",
     "file",
     "Flows from a CSV file: flow_id,src,dst,size_bytes,start_ns.",
     "",
     {{"path", PT::text, "", "", "", {}, "the file, relative to the scenario", ""},
      {"start", PT::time, "0ns", "0ns", "30d", {}, "added to the start of every row", ""},
      kClass,
      kBackground,
      kRepeat}},
    from_file};

}  // namespace

void apply_common(const Params& params, std::vector<Flow>& flows) {
  for (Flow& f : flows) {
    f.traffic_class = static_cast<uint8_t>(params.integer("class"));
    f.background = params.boolean("background");
    f.repeat = params.is_word("repeat", "true");
    if (!f.repeat && !params.is_word("repeat", "false")) f.period = params.time("repeat");
  }
}

Job collective_job(const std::string& name, uint32_t ranks, const std::vector<Params>& entries) {
  auto graph = std::make_shared<OpGraph>();
  graph->streams = {{"communication", StreamOrder::fifo}, {"clock", StreamOrder::free}};
  for (const Params& entry : entries) {
    Op op;
    op.kind = OpKind::collective;
    op.source_id = graph->ops.size();
    for (uint8_t k = 0; k <= static_cast<uint8_t>(CollectiveKind::barrier); ++k) {
      if (entry.text("collective") == collective_name(static_cast<CollectiveKind>(k))) {
        op.collective = static_cast<CollectiveKind>(k);
      }
    }
    op.bytes = op.collective == CollectiveKind::barrier ? 0 : entry.bytes("size").count();
    op.name = graph->intern(entry.text("collective") + " " + entry.text("size"));
    if (entry.time("start") > Time()) {
      Op clock;
      clock.kind = OpKind::metadata;
      clock.source_id = graph->ops.size();
      clock.stream = 1;
      clock.duration = entry.time("start");
      clock.name = graph->intern("start of " + entry.text("collective"));
      graph->ops.push_back(clock);
      op.source_id = graph->ops.size();
      graph->add_dependency(static_cast<uint32_t>(graph->ops.size() - 1),
                            static_cast<uint32_t>(graph->ops.size()));
    }
    graph->ops.push_back(op);
  }
  graph->finish();
  Job job;
  job.name = name;
  job.groups.push_back({"world", {}});
  for (uint32_t r = 0; r < ranks; ++r) {
    job.groups[0].members.push_back(r);
    job.ranks.push_back({graph, {{0}, {}}});
  }
  return job;
}

}  // namespace trainyard
