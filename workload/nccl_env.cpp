// SPDX-License-Identifier: MIT
#include "workload/nccl_env.h"

#include <map>
#include <string>

#include "sim/errors.h"

namespace trainyard {
namespace {

/// A name, the key it stands for, and what its values are called there; no values: as they are.
struct Name {
  const char* name;
  const char* key;
  std::vector<std::pair<const char*, const char*>> values;
  const char* help;
};

const std::vector<Name>& env_names() {
  static const std::vector<Name> all = {
      {"NCCL_ALGO",
       "algorithm",
       {{"Ring", "ring"}, {"Tree", "tree"}, {"NVLS", "nvls"}, {"NVLSTree", "nvls-tree"}},
       "collectives.algorithm"},
      {"NCCL_PROTO",
       "protocol",
       {{"LL", "ll"}, {"LL128", "ll128"}, {"Simple", "simple"}},
       "collectives.protocol"},
      {"NCCL_NVLS_ENABLE",
       "nccl.nvls",
       {{"0", "false"}, {"1", "true"}, {"2", "true"}},
       "collectives.nccl.nvls"},
      {"NCCL_CROSS_NIC",
       "cross_nic",
       {{"0", "0"}, {"1", "1"}, {"2", "0"}},
       "collectives.cross_nic; 2: NCCL keeps to rails where it can"},
      {"NCCL_MIN_NCHANNELS", "channels", {}, "collectives.channels; NCCL_MAX_NCHANNELS must agree"},
      {"NCCL_MAX_NCHANNELS", "channels", {}, "collectives.channels; NCCL_MIN_NCHANNELS must agree"},
  };
  return all;
}

const std::vector<Name>& server_names() {
  static const std::vector<Name> all = {
      {"NCCL_P2P_DISABLE",
       "scale_up.p2p_level",
       {{"0", ""}, {"1", "NVL"}},
       "1: fabric.topology.scale_up.p2p_level: NVL, for PCIe servers"},
      {"NCCL_P2P_LEVEL",
       "scale_up.p2p_level",
       {{"LOC", "NVL"},
        {"NVL", "NVL"},
        {"PIX", "PIX"},
        {"PXB", "PXB"},
        {"PHB", "PHB"},
        {"SYS", "SYS"}},
       "fabric.topology.scale_up.p2p_level, for PCIe servers; LOC is NVL there"},
      {"NCCL_SHM_DISABLE",
       "scale_up.shared_memory",
       {{"0", "true"}, {"1", "false"}},
       "fabric.topology.scale_up.shared_memory, for PCIe servers"},
  };
  return all;
}

std::string key_of(const Name& n) {
  return std::string("nccl.env.") + n.name;
}

}  // namespace

const std::vector<ParamSpec>& nccl_env_params() {
  static const std::vector<ParamSpec> specs = [] {
    std::vector<ParamSpec> all;
    std::vector<Name> names = env_names();
    names.insert(names.end(), server_names().begin(), server_names().end());
    for (const Name& n : names) {
      ParamSpec spec{key_of(n), ParamType::choice, "unset", "", "", {"unset"}, n.help, "NCCL"};
      for (const auto& value : n.values) spec.choices.emplace_back(value.first);
      if (n.values.empty()) {
        spec.type = ParamType::integer;
        spec.min = "1";
        spec.max = "64";
      }
      all.push_back(spec);
    }
    return all;
  }();
  return specs;
}

void apply_nccl_env(Params& p) {
  std::map<std::string, std::string> said;  // by key: the name that set it
  for (const Name& n : env_names()) {
    const std::string from = key_of(n);
    std::string value = p.text(from);
    if (value == "unset") continue;
    for (const auto& [theirs, ours] : n.values) {
      if (value == theirs) {
        value = ours;
        break;
      }
    }
    const Origin origin = p.origin(from);
    const Origin::Kind there = p.origin(n.key).kind;
    const bool stated = there == Origin::Kind::user || there == Origin::Kind::command_line;
    if ((stated || said.count(n.key) != 0) && p.text(n.key) != value) {
      throw UserError(
          origin.pos,
          std::string("collectives.nccl.env.") + n.name + " asks for " + n.key + ": " + value +
              ", but " +
              (said.count(n.key) != 0 ? said[n.key] : "collectives." + std::string(n.key)) +
              " says " + p.text(n.key),
          "remove one of them");
    }
    if (std::string_view(n.key) == "algorithm") {
      for (const std::string& name : p.names()) {
        if (name.rfind("algorithm.", 0) != 0 || p.text(name).empty() || p.text(name) == value) {
          continue;
        }
        const Origin::Kind kind = p.origin(name).kind;
        if (kind != Origin::Kind::user && kind != Origin::Kind::command_line) continue;
        throw UserError(origin.pos,
                        std::string("collectives.nccl.env.") + n.name + " asks for algorithm: " +
                            value + ", but collectives." + name + " says " + p.text(name),
                        "remove one of them");
      }
    }
    p.set(n.key, value, origin);
    said[n.key] = n.name;
  }
}

std::vector<std::string> apply_nccl_server_env(const Params& collectives, Params& topology) {
  std::map<std::string, std::string> said;  // by key: the name that set it
  std::vector<std::string> keys;
  for (const Name& n : server_names()) {
    const std::string from = key_of(n);
    const std::string& word = collectives.text(from);
    if (word == "unset") continue;
    const Origin origin = collectives.origin(from);
    const std::string name = "collectives.nccl.env." + std::string(n.name);
    if (!topology.has_spec("scale_up.kind") || !topology.is_word("scale_up.kind", "pcie")) {
      throw UserError(origin.pos, name + " says nothing here: servers have no PCIe",
                      "use fabric.topology.scale_up.kind: pcie, or remove it");
    }
    std::string value;
    for (const auto& [theirs, ours] : n.values) {
      if (word == theirs) value = ours;
    }
    if (value.empty()) continue;
    const Origin::Kind there = topology.origin(n.key).kind;
    const bool stated = there == Origin::Kind::user || there == Origin::Kind::command_line;
    if ((stated || said.count(n.key) != 0) && topology.text(n.key) != value) {
      throw UserError(
          origin.pos,
          name + " asks for " + n.key + ": " + value + ", but " +
              (said.count(n.key) != 0 ? said[n.key] : "fabric.topology." + std::string(n.key)) +
              " says " + topology.text(n.key),
          "remove one of them");
    }
    topology.set(n.key, value, origin);
    said[n.key] = n.name;
    keys.emplace_back(n.key);
  }
  return keys;
}

}  // namespace trainyard
