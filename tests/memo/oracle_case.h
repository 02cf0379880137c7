// SPDX-License-Identifier: MIT
// A small job with its network and configuration as plain data that can be printed in one line,
// read back, and made smaller.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "network/packet/config.h"
#include "network/packet/domain.h"
#include "network/staged_fabric.h"
#include "network/topology.h"
#include "sim/errors.h"
#include "sim/op_graph.h"

namespace trainyard::test {

/// What runs.
struct RandomCase {
  Topology topology;
  PacketConfig config;
  Job job;
  std::string algorithm = "auto";
  bool credits = false;  ///< clear-to-send messages in class 0, collectives in class 1
  std::vector<FabricChange> changes;
  std::vector<TimedFlow> flows;  ///< beside the job
  /// What ranks take longer than the program says, by rank and op; empty: nobody does.
  std::vector<std::vector<Time>> late;
  std::string text;                 ///< what it is, for messages
  size_t most_records = 1'000'000;  ///< TimelineOptions::most_records
};

inline PacketConfig base_config(CongestionControl congestion) {
  PacketConfig c = make_packet_config({Params(transport_params()), "dcqcn", Params(dcqcn_params()),
                                       "ecmp", Params(ecmp_params()), Params(buffer_params()),
                                       Params(pfc_params()), Params(ecn_params()), 1});
  c.congestion = congestion;
  return c;
}

struct OracleCase {
  static constexpr uint32_t kNobody = 999;

  // Servers with a scale-up switch and NICs, leaves and spines.
  uint32_t servers = 2, gpus = 1, leaves = 1, spines = 0;
  int64_t nic_gbps = 100;
  bool scale_up = false;
  uint32_t nic_ports = 1;             ///< further ones go to the leaves that follow
  std::vector<uint32_t> leaf, delay;  ///< by host; ns
  /// Of the configuration, by the names of oracle_settings(); the others are as in plain_config().
  std::vector<std::pair<std::string, int64_t>> settings;
  bool direct = false;   ///< algorithm, else auto
  bool credits = false;  ///< clear-to-send messages in class 0, collectives in class 1
  /// Who is late has a slower GPU and the program of the others, not one of its own.
  bool by_kind = false;

  struct Step {
    /// 0: group of the server, 1: rail, 2: all, 3: message to the next server
    uint32_t kind = 0;
    uint32_t collective = 0;  ///< of kCollectives
    int64_t bytes = 0;
    uint32_t stream = 0;
    int64_t compute_ns = 0;
    uint32_t late_rank = kNobody;
    /// 0: compute and the collective, once. Else so often compute, the collective, compute and the
    /// collective again (of an all-gather the reduce-scatter), and compute at the end.
    uint32_t layers = 0;
    bool operator==(const Step&) const = default;
  };
  std::vector<Step> steps;  ///< every rank does all of them

  struct Fault {
    uint32_t kind = 0;  ///< FabricChange::Kind
    char where =
        'n';  ///< n: NIC port b of host a; u: scale-up link of host a; t: leaf a to spine b
    uint32_t a = 0, b = 0;
    uint64_t value_q32 = 0;
    int64_t at_ps = 0;
    bool operator==(const Fault&) const = default;
  };
  std::vector<Fault> faults;

  struct Flow {  ///< messages on a queue pair that begin by themselves
    uint32_t src = 0, dst = 0, traffic_class = 0;
    int64_t bytes = 0;  ///< every third is half of it
    int64_t start_ps = 0, period_ps = 0;
    uint32_t times = 1;
    bool operator==(const Flow&) const = default;
  };
  std::vector<Flow> flows;
  bool operator==(const OracleCase&) const = default;

  [[nodiscard]] uint32_t hosts() const { return servers * gpus; }
  [[nodiscard]] int64_t setting(const std::string& name, int64_t otherwise) const {
    for (const auto& [key, value] : settings) {
      if (key == name) return value;
    }
    return otherwise;
  }
};

inline constexpr std::array kCollectives = {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                            CollectiveKind::reduce_scatter,
                                            CollectiveKind::all_to_all};

inline PacketConfig plain_config() {
  PacketConfig c = base_config(CongestionControl::none);
  c.payload = 1000;
  c.header = 48;
  c.buffer = 4 << 20;
  return c;
}

struct OracleSetting {
  const char* name;
  void (*apply)(PacketConfig&, int64_t);
};

/// In the order in which they are applied.
inline const std::vector<OracleSetting>& oracle_settings() {
  using C = PacketConfig&;
  static const std::vector<OracleSetting> all = {
      {"congestion", [](C c, int64_t v) { c.congestion = static_cast<CongestionControl>(v); }},
      {"order",
       [](C c, int64_t v) {
         if (v == 2) c.dcqcn = dcqcn_raise_first();
         c.dcqcn.order = static_cast<DcqcnOrder>(v);
       }},
      {"byte_counter", [](C c, int64_t v) { c.dcqcn.byte_counter = v; }},
      {"increase_timer", [](C c, int64_t v) { c.dcqcn.increase_timer_ps = v; }},
      {"cnp_packets", [](C c, int64_t v) { c.cnp_packets = v != 0; }},
      {"cnp_interval", [](C c, int64_t v) { c.cnp_interval_ps = v; }},
      {"hpcc_quantised", [](C c, int64_t v) { c.hpcc.quantised = v != 0; }},
      {"hpcc_per_hop", [](C c, int64_t v) { c.hpcc.per_hop_rates = v != 0; }},
      {"timely_low",
       [](C c, int64_t v) {
         c.timely.t_low_ps = c.timely.min_rtt_ps = v;
         c.timely.t_high_ps = 10 * v;
       }},
      {"seed", [](C c, int64_t v) { c.seed = static_cast<uint64_t>(v); }},
      {"ack_interval", [](C c, int64_t v) { c.ack_interval = v; }},
      {"buffer", [](C c, int64_t v) { c.buffer = v; }},
      {"window", [](C c, int64_t v) { c.window = static_cast<WindowRule>(v); }},
      {"alpha", [](C c, int64_t v) { c.alpha_q16 = v; }},
      {"headroom",
       [](C c, int64_t v) {
         c.headroom_rule = HeadroomRule::fixed;
         c.headroom_fixed = v;
       }},
      {"reserve", [](C c, int64_t v) { c.reserve = v; }},
      {"pause_quanta", [](C c, int64_t v) { c.pause_quanta = v; }},
      {"kmin", [](C c, int64_t v) { c.kmin = v; }},
      {"kmax", [](C c, int64_t v) { c.kmax = v; }},
      {"pmax", [](C c, int64_t v) { c.pmax_q32 = static_cast<uint64_t>(v); }},
      {"dithered", [](C c, int64_t v) { c.dithered = v != 0; }},
      {"rto", [](C c, int64_t v) { c.rto_ps = v; }},
      {"nack_interval", [](C c, int64_t v) { c.nack_interval_ps = v; }},
      {"convergence", [](C c, int64_t v) { c.convergence_ps = v; }},
      {"paths", [](C c, int64_t v) { c.paths = static_cast<PathChoice>(v); }},
      {"path_count", [](C c, int64_t v) { c.path_count = static_cast<uint32_t>(v); }},
      {"round_robin", [](C c, int64_t v) { c.round_robin = v != 0; }},
      {"gap", [](C c, int64_t v) { c.flowlet_gap_ps = v; }},
      {"qps", [](C c, int64_t v) { c.qps = static_cast<uint32_t>(v); }},
      {"classes", [](C c, int64_t v) { c.classes = static_cast<uint32_t>(v); }},
      {"dwrr", [](C c, int64_t v) { c.dwrr = v != 0; }},
      {"weight0", [](C c, int64_t v) { c.weights[0] = static_cast<uint32_t>(v); }},
      {"weight1", [](C c, int64_t v) { c.weights[1] = static_cast<uint32_t>(v); }},
      {"weight2", [](C c, int64_t v) { c.weights[2] = static_cast<uint32_t>(v); }},
      {"weight3", [](C c, int64_t v) { c.weights[3] = static_cast<uint32_t>(v); }},
  };
  return all;
}

inline const char* oracle_case_words() {
  return "servers= gpus= leaves= spines= nic= up= ports= leaf= delay= direct= credits= kinds= set= "
         "steps= faults= flows=";
}

/// One line without commas, quotes or '#'.
inline std::string print(const OracleCase& c) {
  std::ostringstream out;
  out << "servers=" << c.servers << " gpus=" << c.gpus << " leaves=" << c.leaves
      << " spines=" << c.spines << " nic=" << c.nic_gbps << " up=" << c.scale_up
      << " ports=" << c.nic_ports << " direct=" << c.direct;
  if (c.credits) out << " credits=1";
  if (c.by_kind) out << " kinds=1";
  const auto list = [&](const char* name, const auto& values, const auto& write) {
    if (values.empty()) return;
    out << " " << name << "=";
    bool first = true;
    for (const auto& v : values) {
      if (!first) out << "/";
      first = false;
      write(v);
    }
  };
  const auto number = [&](uint32_t v) { out << v; };
  list("leaf", c.leaf, number);
  list("delay", c.delay, number);
  list("set", c.settings,
       [&](const std::pair<std::string, int64_t>& v) { out << v.first << ":" << v.second; });
  list("steps", c.steps, [&](const OracleCase::Step& s) {
    out << s.kind << ":" << s.collective << ":" << s.bytes << ":" << s.stream << ":" << s.compute_ns
        << ":" << s.late_rank;
    if (s.layers > 0) out << ":" << s.layers;
  });
  list("faults", c.faults, [&](const OracleCase::Fault& f) {
    out << f.kind << ":" << f.where << ":" << f.a << ":" << f.b << ":" << f.value_q32 << ":"
        << f.at_ps;
  });
  list("flows", c.flows, [&](const OracleCase::Flow& f) {
    out << f.src << ":" << f.dst << ":" << f.traffic_class << ":" << f.bytes << ":" << f.start_ps
        << ":" << f.period_ps << ":" << f.times;
  });
  return out.str();
}

/// Of what print() writes. Throws std::runtime_error that names the word it cannot read.
inline OracleCase parse_oracle_case(const std::string& line) {
  const auto split = [](const std::string& text, char by) {
    std::vector<std::string> parts;
    std::istringstream in(text);
    for (std::string part; std::getline(in, part, by);) parts.push_back(part);
    return parts;
  };
  OracleCase c;
  std::istringstream in(line);
  for (std::string word; in >> word;) {
    const auto fail = [&](const std::string& why) {
      throw std::runtime_error("oracle case: cannot read '" + word + "': " + why);
    };
    const size_t equals = word.find('=');
    if (equals == std::string::npos) fail(std::string("words are ") + oracle_case_words());
    const std::string name = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    const auto integer = [&](const std::string& text) -> int64_t {
      size_t used = 0;
      int64_t number = 0;
      try {
        number = std::stoll(text, &used);
      } catch (const std::exception&) {
        used = std::string::npos;
      }
      if (used != text.size()) fail("'" + text + "' is no number");
      return number;
    };
    const auto small = [&](const std::string& text) {
      return static_cast<uint32_t>(integer(text));
    };
    const auto fields = [&](const std::string& text, size_t n) {
      auto parts = split(text, ':');
      if (parts.size() != n) fail("'" + text + "' needs " + std::to_string(n) + " fields");
      return parts;
    };
    if (name == "servers") {
      c.servers = small(value);
    } else if (name == "gpus") {
      c.gpus = small(value);
    } else if (name == "leaves") {
      c.leaves = small(value);
    } else if (name == "spines") {
      c.spines = small(value);
    } else if (name == "nic") {
      c.nic_gbps = integer(value);
    } else if (name == "up") {
      c.scale_up = integer(value) != 0;
    } else if (name == "ports") {
      c.nic_ports = small(value);
    } else if (name == "direct") {
      c.direct = integer(value) != 0;
    } else if (name == "credits") {
      c.credits = integer(value) != 0;
    } else if (name == "kinds") {
      c.by_kind = integer(value) != 0;
    } else if (name == "leaf") {
      for (const auto& v : split(value, '/')) c.leaf.push_back(small(v));
    } else if (name == "delay") {
      for (const auto& v : split(value, '/')) c.delay.push_back(small(v));
    } else if (name == "set") {
      for (const auto& v : split(value, '/')) {
        const auto f = fields(v, 2);
        c.settings.emplace_back(f[0], integer(f[1]));
        const auto& known = oracle_settings();
        if (std::none_of(known.begin(), known.end(),
                         [&](const OracleSetting& s) { return f[0] == s.name; })) {
          fail("there is no setting '" + f[0] + "'");
        }
      }
    } else if (name == "steps") {
      for (const auto& v : split(value, '/')) {
        const auto f = fields(v, std::count(v.begin(), v.end(), ':') == 6 ? 7 : 6);
        c.steps.push_back({small(f[0]), small(f[1]), integer(f[2]), small(f[3]), integer(f[4]),
                           small(f[5]), f.size() > 6 ? small(f[6]) : 0});
      }
    } else if (name == "faults") {
      for (const auto& v : split(value, '/')) {
        const auto f = fields(v, 6);
        c.faults.push_back({small(f[0]), f[1][0], small(f[2]), small(f[3]),
                            static_cast<uint64_t>(integer(f[4])), integer(f[5])});
      }
    } else if (name == "flows") {
      for (const auto& v : split(value, '/')) {
        const auto f = fields(v, 7);
        c.flows.push_back({small(f[0]), small(f[1]), small(f[2]), integer(f[3]), integer(f[4]),
                           integer(f[5]), small(f[6])});
      }
    } else {
      fail(std::string("words are ") + oracle_case_words());
    }
  }
  if (c.servers == 0 || c.gpus == 0 || c.leaves == 0 || c.leaf.size() != c.hosts() ||
      c.delay.size() != c.hosts()) {
    throw std::runtime_error("oracle case: leaf= and delay= need a number for each of " +
                             std::to_string(c.hosts()) + " hosts");
  }
  return c;
}

/// One program for all ranks, in which some may be late by themselves.
/// @param late RandomCase::late
inline Job job_of(const OracleCase& c, std::vector<std::vector<Time>>& late) {
  const uint32_t hosts = c.hosts();
  late.assign(c.by_kind ? hosts : 0, {});
  // Groups: those of a server, those of equal place in a server, all.
  Job job;
  job.name = "random";
  std::vector<uint32_t> inner(hosts);
  std::vector<uint32_t> outer(hosts);
  for (uint32_t s = 0; s < c.servers; ++s) {
    Group g{"server" + std::to_string(s), {}};
    for (uint32_t i = 0; i < c.gpus; ++i) {
      g.members.push_back(s * c.gpus + i);
      inner[s * c.gpus + i] = static_cast<uint32_t>(job.groups.size());
    }
    job.groups.push_back(g);
  }
  for (uint32_t i = 0; i < c.gpus; ++i) {
    Group g{"rail" + std::to_string(i), {}};
    for (uint32_t s = 0; s < c.servers; ++s) {
      g.members.push_back(s * c.gpus + i);
      outer[s * c.gpus + i] = static_cast<uint32_t>(job.groups.size());
    }
    job.groups.push_back(g);
  }
  const auto all = static_cast<uint32_t>(job.groups.size());
  Group everybody{"all", {}};
  for (uint32_t h = 0; h < hosts; ++h) everybody.members.push_back(h);
  job.groups.push_back(everybody);

  for (uint32_t h = 0; h < hosts; ++h) {
    auto g = std::make_shared<OpGraph>();
    g->streams = {{"compute", StreamOrder::fifo},
                  {"comm0", StreamOrder::fifo},
                  {"comm1", StreamOrder::fifo},
                  {"recv", StreamOrder::fifo}};
    uint32_t last = 0xffffffffU;
    const auto add = [&](Op op) {
      op.source_id = g->ops.size();
      op.name = g->intern("op" + std::to_string(g->ops.size()));
      g->ops.push_back(op);
      return static_cast<uint32_t>(g->ops.size() - 1);
    };
    for (const OracleCase::Step& s : c.steps) {
      const auto computes = [&] {
        const Time more = Time::ns(s.late_rank == h ? 3000 + 1000 * static_cast<int64_t>(h) : 0);
        Op compute;
        compute.kind = OpKind::compute;
        compute.duration = Time::ns(std::max<int64_t>(1, s.compute_ns));
        if (!c.by_kind && s.late_rank == h) {
          compute.duration = std::max(Time::ns(1), Time::ns(s.compute_ns) + more);
        }
        const uint32_t op = add(compute);
        if (c.by_kind) {
          late[h].resize(op + 1);
          late[h][op] = more;
        }
        if (last != 0xffffffffU) g->add_dependency(last, op);
        return op;
      };
      const uint32_t before = computes();
      if (s.kind == 3) {
        Op send;
        send.kind = OpKind::send;
        send.stream = 1 + s.stream;
        send.bytes = s.bytes;
        send.peer_slot = 0;
        g->add_dependency(before, add(send));
        Op recv = send;
        recv.kind = OpKind::recv;
        recv.stream = 3;
        recv.peer_slot = 1;
        const uint32_t r = add(recv);
        g->add_dependency(before, r);
        last = r;
        continue;
      }
      Op op;
      op.kind = OpKind::collective;
      op.collective = kCollectives.at(s.collective);
      op.bytes = s.bytes * 8;
      op.group_slot = s.kind;
      op.stream = 1 + s.stream;
      if (s.layers > 0) {
        const auto members = static_cast<int64_t>(job.groups[s.kind == 0   ? inner[h]
                                                             : s.kind == 1 ? outer[h]
                                                                           : all]
                                                      .members.size());
        last = before;
        for (uint32_t i = 0; i < 2 * s.layers; ++i) {
          Op layer = op;
          if (op.collective == CollectiveKind::all_gather) {
            if (i % 2 != 0) layer.collective = CollectiveKind::reduce_scatter;
            if (i % 2 != 0) layer.bytes *= members;
          }
          const uint32_t id = add(layer);
          g->add_dependency(last, id);
          last = id;
          last = computes();
        }
        continue;
      }
      const uint32_t id = add(op);
      g->add_dependency(before, id);
      // Some are waited for, some overlap with what comes.
      last = s.stream == 0 ? id : before;
    }
    g->finish();
    RankProgram p;
    p.graph = g;
    p.binding.groups = {inner[h], outer[h], all};
    p.binding.peers = {(h + c.gpus) % hosts, (h + hosts - c.gpus) % hosts};
    job.ranks.push_back(p);
  }
  job.fold();
  return job;
}

inline RandomCase build(const OracleCase& c) {
  RandomCase r;
  Topology& t = r.topology;
  const uint32_t hosts = c.hosts();
  for (uint32_t h = 0; h < hosts; ++h) {
    t.add_node("node" + std::to_string(h / c.gpus) + ".gpu" + std::to_string(h % c.gpus),
               NodeKind::host);
  }
  std::vector<uint32_t> leaf;
  std::vector<uint32_t> spine;
  std::vector<uint32_t> up;
  for (uint32_t l = 0; l < c.leaves; ++l) {
    leaf.push_back(t.add_node("leaf" + std::to_string(l), NodeKind::leaf));
  }
  for (uint32_t s = 0; s < c.spines; ++s) {
    spine.push_back(t.add_node("spine" + std::to_string(s), NodeKind::spine));
  }
  for (uint32_t s = 0; c.scale_up && s < c.servers; ++s) {
    up.push_back(t.add_node("nvs" + std::to_string(s), NodeKind::scale_up));
  }
  const Rate nic = Rate::gbps(c.nic_gbps);
  uint32_t links = 0;
  std::vector<uint32_t> first_nic(hosts);
  std::vector<uint32_t> up_link(hosts);
  for (uint32_t h = 0; h < hosts; ++h) {
    first_nic[h] = links;
    for (uint32_t p = 0; p < c.nic_ports; ++p, ++links) {
      t.add_link(h, leaf[(c.leaf[h] + p) % c.leaves], nic, Time::ns(c.delay[h]));
    }
    up_link[h] = links;
    if (!c.scale_up) continue;
    t.add_link(h, up[h / c.gpus], Rate::gbps(800), Time::ns(250));
    ++links;
  }
  const uint32_t first_trunk = links;
  for (const uint32_t l : leaf) {
    for (const uint32_t s : spine) t.add_link(l, s, nic, Time::ns(300));
  }
  t.finish();

  r.config = plain_config();
  for (const OracleSetting& s : oracle_settings()) {
    for (const auto& [name, value] : c.settings) {
      if (name == s.name) s.apply(r.config, value);
    }
  }
  r.algorithm = c.direct ? "direct" : "auto";
  r.job = job_of(c, r.late);
  r.credits = c.credits;
  if (c.credits && r.config.classes < 2) throw UserError("credits need a class of their own");
  uint32_t channel = 0x80000000U;
  for (const OracleCase::Flow& f : c.flows) {
    if (f.src == f.dst || std::max(f.src, f.dst) >= hosts || f.traffic_class >= r.config.classes) {
      throw UserError("flows go from host to host in a class that there is");
    }
    TimedFlow flow;
    flow.transfer.src = f.src;
    flow.transfer.dst = f.dst;
    flow.transfer.channel = channel++;
    flow.transfer.traffic_class = static_cast<uint8_t>(f.traffic_class);
    for (uint32_t i = 0; i < f.times; ++i) {
      flow.transfer.size = Bytes(i % 3 == 2 ? std::max<int64_t>(1, f.bytes / 2) : f.bytes);
      flow.start = Time::ps(f.start_ps + f.period_ps * i);
      r.flows.push_back(flow);
    }
  }
  for (const OracleCase::Fault& f : c.faults) {
    FabricChange change;
    change.kind = static_cast<FabricChange::Kind>(f.kind);
    change.value_q32 = f.value_q32;
    change.at = Time::ps(f.at_ps);
    change.link = f.where == 'n'   ? first_nic[f.a] + f.b
                  : f.where == 'u' ? up_link[f.a]
                                   : first_trunk + f.a * c.spines + f.b;
    r.changes.push_back(change);
  }
  r.text = print(c);
  return r;
}

}  // namespace trainyard::test
