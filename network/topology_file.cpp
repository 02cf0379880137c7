// SPDX-License-Identifier: MIT
// Topology files: the white-space format shared by ASTRA-sim, HPCC and SimAI (formats 5.3) and the
// comma format of "node," and "link," rows. Told apart by content.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "network/topology.h"

namespace trainyard {
namespace {

struct Token {
  std::string text;
  int line = 0;
};

class Reader {
 public:
  Reader(std::string file, std::vector<Token> tokens)
      : file_(std::move(file)), tokens_(std::move(tokens)) {}

  [[nodiscard]] bool at_end() const { return next_ == tokens_.size(); }
  [[nodiscard]] SourcePos pos() const {
    const size_t i = std::min(next_, tokens_.size() - 1);
    return {file_, tokens_.empty() ? 0 : tokens_[i].line};
  }
  const std::string& word(const char* what) {
    if (at_end()) throw UserError(pos(), std::string("file ends where ") + what + " should be");
    return tokens_[next_++].text;
  }
  int64_t number(const char* what) {
    const SourcePos where = pos();
    const std::string& t = word(what);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), value);
    if (error != std::errc() || end != t.data() + t.size() || value < 0) {
      throw UserError(where, std::string(what) + " should be a whole number, not '" + t + "'");
    }
    return value;
  }
  template <class Parse>
  auto value(const char* what, Parse parse) {
    const SourcePos where = pos();
    const std::string& t = word(what);
    try {
      return parse(t);
    } catch (const UserError& e) {
      throw UserError(where, std::string(what) + ": " + e.what());
    }
  }

 private:
  std::string file_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
};

struct FileLink {
  int64_t a, b;
  Rate rate;
  Time delay;
  double loss;
};

double parse_error_rate(const std::string& t) {
  const double p = parse_fraction(t);
  if (!(p >= 0 && p <= 1)) throw UserError("'" + t + "' is not a probability from 0 to 1");
  return p;
}

bool is_number(const std::string& t) {
  int64_t v = 0;
  const auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), v);
  return error == std::errc() && end == t.data() + t.size();
}

/// Builds the Topology in ascending order of the file's ids.
Topology build(const std::string& file, const std::map<int64_t, NodeKind>& kinds,
               const std::vector<FileLink>& links, int64_t gpus_per_server) {
  Topology topology;
  std::map<int64_t, uint32_t> index;
  std::map<int64_t, bool> touches_host;
  for (const auto& l : links) {
    if (kinds.at(l.a) == NodeKind::host) touches_host[l.b] = true;
    if (kinds.at(l.b) == NodeKind::host) touches_host[l.a] = true;
  }
  int64_t rank = 0;
  std::map<NodeKind, int64_t> counter;
  for (const auto& [id, kind] : kinds) {
    std::string name;
    NodeKind k = kind;
    if (kind == NodeKind::host) {
      name = gpus_per_server > 0 ? "node" + std::to_string(rank / gpus_per_server) + ".gpu" +
                                       std::to_string(rank % gpus_per_server)
                                 : "host" + std::to_string(rank);
      ++rank;
    } else {
      if (kind != NodeKind::scale_up) k = touches_host[id] ? NodeKind::leaf : NodeKind::spine;
      const char* base = k == NodeKind::scale_up ? "nvswitch" : node_kind_name(k);
      name = base + std::to_string(counter[k]++);
    }
    index[id] = topology.add_node(name, k);
  }
  for (const auto& l : links) {
    topology.add_link(index[l.a], index[l.b], l.rate, l.delay, l.loss);
  }
  try {
    topology.finish();
  } catch (const UserError& e) {
    throw UserError(SourcePos{file, 0}, e.what());
  }
  return topology;
}

Topology read_space_format(const std::string& file, const std::vector<std::string>& lines) {
  std::vector<Token> tokens;
  size_t first_line_tokens = 0;
  std::string first_line_last;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::istringstream in(lines[i]);
    std::string t;
    const bool first = tokens.empty();
    size_t n = 0;
    while (in >> t) {
      tokens.push_back({t, static_cast<int>(i + 1)});
      ++n;
      if (first) first_line_last = t;
    }
    if (first && n > 0) first_line_tokens = n;
  }
  Reader in(file, std::move(tokens));
  if (in.at_end()) throw UserError(SourcePos{file, 0}, "the topology file is empty");
  const bool simai = first_line_tokens == 6 && !is_number(first_line_last);
  if (!simai && first_line_tokens != 3) {
    throw UserError(SourcePos{file, 1},
                    "the first line has " + std::to_string(first_line_tokens) + " fields",
                    "expected 'nodes switches links' or "
                    "'nodes gpus_per_server nvswitches switches links gpu_type'");
  }
  const int64_t nodes = in.number("number of nodes");
  int64_t gpus_per_server = 0;
  int64_t nvswitches = 0;
  if (simai) {
    gpus_per_server = in.number("GPUs per server");
    nvswitches = in.number("number of NVSwitches");
  }
  const int64_t switches = in.number("number of switches");
  const int64_t n_links = in.number("number of links");
  if (simai) in.word("GPU type");
  if (nodes < 2 || nodes > 10'000'000 || nvswitches > nodes || switches > nodes - nvswitches) {
    throw UserError(
        SourcePos{file, 1},
        "the header declares " + std::to_string(nodes) + " nodes of which " +
            (nvswitches > 0 ? std::to_string(nvswitches) + " NVSwitches and " : std::string()) +
            std::to_string(switches) + " switches",
        "the number of nodes includes the switches");
  }
  std::map<int64_t, NodeKind> kinds;  // first the switches, which are listed
  auto id_of = [&](const char* what) {
    const SourcePos where = in.pos();
    const int64_t id = in.number(what);
    if (id >= nodes) {
      throw UserError(where, std::string(what) + " " + std::to_string(id) +
                                 " is out of range: the header declares " + std::to_string(nodes) +
                                 " nodes");
    }
    return id;
  };
  const auto declare = [&](const char* what, NodeKind kind) {
    const SourcePos where = in.pos();
    const int64_t id = id_of(what);
    if (!kinds.emplace(id, kind).second) {
      throw UserError(where, std::string(what) + " " + std::to_string(id) + " is listed twice");
    }
  };
  for (int64_t i = 0; i < nvswitches; ++i) declare("NVSwitch id", NodeKind::scale_up);
  for (int64_t i = 0; i < switches; ++i) declare("switch id", NodeKind::leaf);
  std::vector<FileLink> links;
  for (int64_t i = 0; i < n_links; ++i) {
    if (in.at_end()) {
      throw UserError(in.pos(),
                      "the header declares " + std::to_string(n_links) + " links, the file has " +
                          std::to_string(i),
                      "correct the header or add the missing links");
    }
    FileLink l{};
    const SourcePos where = in.pos();
    l.a = id_of("link end");
    l.b = id_of("link end");
    if (l.a == l.b)
      throw UserError(where, "a link from node " + std::to_string(l.a) + " to itself");
    l.rate = in.value("link rate", [](const std::string& t) { return parse_rate(t); });
    if (l.rate.bps() <= 0) throw UserError(where, "a link rate must be above 0");
    l.delay = in.value("link delay", [](const std::string& t) { return parse_time(t); });
    l.loss = in.value("error rate", parse_error_rate);
    links.push_back(l);
  }
  if (!in.at_end()) {
    throw UserError(in.pos(), "text after the last of " + std::to_string(n_links) + " links",
                    "correct the number of links in line 1");
  }
  // Before memory is taken for nodes that a header only claims.
  const int64_t hosts = nodes - nvswitches - switches;
  if ((hosts + 1) / 2 > n_links) {
    throw UserError(SourcePos{file, 1}, std::to_string(hosts) + " hosts and " +
                                            std::to_string(n_links) +
                                            " links: some host has no link");
  }
  for (int64_t id = 0; id < nodes; ++id) kinds.emplace(id, NodeKind::host);
  return build(file, kinds, links, gpus_per_server);
}

Topology read_comma_format(const std::string& file, const std::vector<std::string>& lines) {
  std::map<int64_t, NodeKind> kinds;
  std::vector<FileLink> links;
  for (size_t i = 0; i < lines.size(); ++i) {
    const SourcePos pos{file, static_cast<int>(i + 1)};
    std::vector<Token> fields;
    std::istringstream in(lines[i]);
    std::string field;
    while (std::getline(in, field, ',')) {
      while (!field.empty() && (field.back() == '\r' || field.back() == ' ')) field.pop_back();
      fields.push_back({field, pos.line});
    }
    if (fields.empty() || fields[0].text.empty() || fields[0].text[0] == '#') continue;
    const std::string kind = fields[0].text;
    const size_t n = fields.size();
    Reader row(file, std::move(fields));
    row.word("row kind");
    if (kind == "node" && n == 3) {
      const int64_t id = row.number("node id");
      const std::string& what = row.word("node kind");
      NodeKind k = NodeKind::host;
      if (what == "switch")
        k = NodeKind::leaf;
      else if (what == "nvswitch")
        k = NodeKind::scale_up;
      else if (what != "host") {
        throw UserError(pos, "unknown node kind '" + what + "'", "known: host, switch, nvswitch");
      }
      if (!kinds.emplace(id, k).second) {
        throw UserError(pos, "node " + std::to_string(id) + " is declared twice");
      }
    } else if (kind == "link" && (n == 5 || n == 6)) {
      FileLink l{};
      l.a = row.number("link end");
      l.b = row.number("link end");
      for (const int64_t id : {l.a, l.b}) {
        if (kinds.count(id) == 0) {
          throw UserError(pos, "node " + std::to_string(id) + " is not declared",
                          "add a row 'node," + std::to_string(id) + ",host' above");
        }
      }
      if (l.a == l.b)
        throw UserError(pos, "a link from node " + std::to_string(l.a) + " to itself");
      l.rate = row.value("link rate in Gbit/s",
                         [](const std::string& t) { return parse_rate(t + "Gbps"); });
      if (l.rate.bps() <= 0) throw UserError(pos, "a link rate must be above 0");
      l.delay =
          row.value("link delay in ns", [](const std::string& t) { return parse_time(t + "ns"); });
      if (n == 6) {
        l.loss = row.value("error rate", parse_error_rate);
      }
      links.push_back(l);
    } else {
      throw UserError(pos, "cannot read row '" + lines[i] + "'",
                      "expected 'node,<id>,<host|switch|nvswitch>' or "
                      "'link,<a>,<b>,<rate_gbps>,<delay_ns>[,<error rate>]'");
    }
  }
  return build(file, kinds, links, 0);
}

Topology make(const TopologyRequest& request, const Params& params) {
  std::filesystem::path path = params.text("path");
  if (path.empty()) {
    throw UserError(request.pos, "topology kind 'file' needs a path",
                    "add 'path: my_topology.txt' to the topology block");
  }
  if (path.is_relative()) path = std::filesystem::path(request.base_dir) / path;
  std::ifstream in(path);
  if (!in || std::filesystem::is_directory(path)) {
    throw UserError(params.origin("path").pos, "cannot open topology file " + path.string(),
                    "the path is relative to the scenario file");
  }
  std::vector<std::string> lines;
  std::string line;
  bool comma = false;
  while (std::getline(in, line)) {
    comma = comma || line.rfind("node,", 0) == 0 || line.rfind("link,", 0) == 0;
    lines.push_back(line);
  }
  return comma ? read_comma_format(path.string(), lines) : read_space_format(path.string(), lines);
}

const RegisterModel<TopologyFactory> kRegistration{
    {"topology",
     "file",
     "Any graph of hosts, switches and NVLink-class switches, from a text file in the ASTRA-sim / "
     "HPCC / SimAI format or in rows 'node,<id>,<kind>' and 'link,<a>,<b>,<Gbit/s>,<ns>'. Rank = "
     "position among the hosts by ascending id.",
     "formats 5.3",
     {{"path", ParamType::text, "", "", "", {}, "the file, relative to the scenario", ""}}},
    make};

}  // namespace
}  // namespace trainyard
