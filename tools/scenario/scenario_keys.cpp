// SPDX-License-Identifier: MIT
#include "tools/scenario/scenario_keys.h"

#include <algorithm>

#include "sim/errors.h"
#include "workload/generator/training.h"

namespace trainyard {
namespace {

using PT = ParamType;

/// A trace or a generated workload.
std::vector<ParamSpec> workload_keys(std::vector<ParamSpec> keys) {
  const auto& more = training_params();
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

std::vector<ModelDoc> all_blocks() {
  const auto block = [](const char* name, const char* help, std::vector<ParamSpec> keys) {
    return ModelDoc{"scenario", name, help, "docs/scenario.md", std::move(keys)};
  };
  return {
      block("scenario", "keys of a scenario that stand in no block",
            {{"name",
              PT::text,
              "",
              "",
              "",
              {},
              "title of the run; the file's name without one",
              "DESIGN 9.1"},
             {"seed",
              PT::integer,
              "1",
              "0",
              "",
              {},
              "seed of all dice; equal scenario and seed give equal results",
              "DESIGN 2"}}),
      block(
          "cluster", "the servers and who sits where; what connects them is in fabric",
          {{"nodes",
            PT::integer,
            "auto",
            "1",
            "1000000",
            {"auto"},
            "servers; auto takes as many as the trace has ranks for, or the topology file hosts",
            "DESIGN 9.1"},
           {"gpus_per_node",
            PT::integer,
            "8",
            "1",
            "1024",
            {},
            "GPUs of a server",
            "NVIDIA HGX H100 data sheet: 8 GPUs on a baseboard"},
           {"nics_per_node",
            PT::integer,
            "auto",
            "1",
            "1024",
            {"auto"},
            "NICs of a server; auto gives each GPU one",
            "NVIDIA DGX H100 data sheet: a 400 Gb/s NIC for each of 8 GPUs"},
           {"device",
            PT::text,
            "h100-sxm",
            "",
            "",
            {},
            "card of the GPU, a file in configs/devices",
            "DESIGN 9.1"},
           {"placement",
            PT::text,
            "contiguous",
            "",
            "",
            {},
            "contiguous: rank r sits on the r-th GPU, server by server; striped: on the first GPU "
            "of every server, then the second; file:PATH: as listed",
            "DESIGN 9.1"}}),
      block("wiring", "deviations from the wiring of the topology kind, as data",
            {{"nic_order",
              PT::text,
              "",
              "",
              "",
              {},
              "file that says which rail's leaf each NIC of a server is cabled to",
              "DESIGN 9.1"}}),
      block("fabric",
            "network and transport; the rest of each inner block is the chosen model's, see "
            "explain topology, transport, congestion, load_balancing, switch, pfc, ecn",
            {{"topology.kind",
              PT::text,
              "rail-optimized",
              "",
              "",
              {},
              "model of the network, see explain topology",
              "DESIGN 9.1"},
             {"transport.preset",
              PT::text,
              "",
              "",
              "",
              {},
              "values from a file in configs/transport, put under those that are given here",
              "DESIGN 9.1"},
             {"transport.congestion.kind",
              PT::text,
              "dcqcn",
              "",
              "",
              {},
              "congestion control, see explain congestion",
              "protocols 5.2"},
             {"transport.load_balancing.kind",
              PT::text,
              "ecmp",
              "",
              "",
              {},
              "which of several equal paths, see explain load_balancing",
              "protocols 5.7"}}),
      block(
          "workload", "what the ranks do: generated from a model, or from a Chakra trace",
          workload_keys(
              {{"model",
                PT::text,
                "",
                "",
                "",
                {},
                "card of a model, a file in configs/models; or {card: NAME, layers: 4, ...}, a "
                "card "
                "with changes",
                "DESIGN 9.1"},
               {"chakra",
                PT::text,
                "",
                "",
                "",
                {},
                "the trace: a prefix, a folder, or a pattern with {rank}",
                "formats 1.2"},
               {"groups",
                PT::text,
                "",
                "",
                "",
                {},
                "the file of communicators; without one, comm_group.json beside the trace",
                "formats 1.9"},
               {"element_bytes",
                PT::integer,
                "auto",
                "1",
                "16",
                {"auto"},
                "bytes of an element where the trace counts elements; auto is 2 (bf16) for traces "
                "of STAGE, else 1",
                "formats 3.10"},
               {"strict",
                PT::boolean,
                "false",
                "",
                "",
                {},
                "refuse traces that would only get a warning",
                "formats 1.10"},
               {"launch_order",
                PT::choice,
                "after_compute",
                "",
                "",
                {"blocking", "after_compute", "free"},
                "order between GPU streams that PyTorch traces lack: a collective waits for the "
                "compute kernels launched before it (after_compute), compute waits for "
                "collectives, "
                "too (blocking), or nothing is added (free)",
                "formats 2.4"},
               {"sends",
                PT::choice,
                "eager",
                "",
                "",
                {"eager", "rendezvous"},
                "a send moves its bytes when it is posted (eager), or when its receive is, too "
                "(rendezvous)",
                "formats 1.8"}})),
      block("traffic",
            "a list of patterns, alone or beside a workload; the other keys are those of the "
            "pattern",
            {{"pattern",
              PT::text,
              "",
              "",
              "",
              {},
              "who sends to whom, see explain traffic; every entry needs one",
              "DESIGN 9.1"}}),
      block("faults",
            "a list of what breaks during the run, and when; the other keys are those of the kind",
            {{"kind",
              PT::text,
              "",
              "",
              "",
              {},
              "what happens, see explain fault; every entry needs one",
              "DESIGN 9.1"}}),
      block("memory", "what a GPU must hold, for generated workloads",
            {{"headroom",
              PT::real,
              "5%",
              "0",
              "90%",
              {"off"},
              "share of the device's memory that a layout must leave, for context, communication "
              "buffers and fragmentation; a layout that does not is refused; off: it is run with a "
              "warning",
              "A: 1.4 #42, #128"}}),
      block("compute", "how long compute takes; the other keys are those of the model",
            {{"model",
              PT::text,
              "auto",
              "",
              "",
              {},
              "see explain compute; auto takes the durations of the trace where it has them, else "
              "its FLOPs by the roofline",
              "DESIGN 4"}}),
      block("simulation", "how the answer is computed",
            {{"engine",
              PT::choice,
              "packet",
              "",
              "",
              {"packet", "flow", "analytic", "stepped"},
              "packet simulates every packet on every link; flow shares links max-min fairly; "
              "analytic gives every message its route alone; stepped keeps the decisions of DCQCN "
              "and skips the packets; see explain engine",
              "DESIGN 5"},
             {"fast_path",
              PT::choice,
              "none",
              "",
              "",
              {"none", "exact"},
              "shortcuts through time; none takes no shortcut, exact only those that change no bit "
              "of the result (docs/fast-path.md)",
              "DESIGN 6"},
             {"domains",
              PT::choice,
              "on",
              "",
              "",
              {"on", "off"},
              "fast_path: simulate what shares no link apart; off: one domain holds everything, "
              "the oracle of the fast path",
              "DESIGN 6"},
             {"memo",
              PT::choice,
              "on",
              "",
              "",
              {"on", "off"},
              "fast_path: let a domain follow an earlier one that began alike and was told alike",
              "DESIGN 6"},
             {"period_jump",
              PT::choice,
              "on",
              "",
              "",
              {"on", "off"},
              "fast_path: skip whole periods where the state of a domain returns",
              "DESIGN 6"},
             {"memo_limit",
              PT::bytes,
              "1GiB",
              "1MiB",
              "1TiB",
              {},
              "fast_path: memory for ended episodes; the one used least recently goes first",
              "DESIGN 6"},
             {"seeds",
              PT::integer,
              "1",
              "1",
              "1000000",
              {},
              "runs with different seeds",
              "DESIGN 9.1"},
             {"threads",
              PT::integer,
              "auto",
              "1",
              "4096",
              {"auto"},
              "threads that compute; results do not depend on it",
              "DESIGN 2"},
             {"until",
              PT::time,
              "none",
              "1ns",
              "30d",
              {"none"},
              "simulated time at which the run is cut off; results up to then are written, and the "
              "run fails unless it was complete",
              "our choice: some runs have no end (B: V55)"}}),
      block("output", "what is written where",
            {{"dir",
              PT::text,
              "",
              "",
              "",
              {},
              "folder of the results; out/ and the scenario's name without one",
              "DESIGN 9.1"},
             {"trace",
              PT::choice,
              "none",
              "",
              "",
              {"none", "perfetto"},
              "perfetto writes trace.json.gz, for ui.perfetto.dev",
              "DESIGN 9"},
             {"telemetry.links",
              PT::time,
              "off",
              "1ns",
              "1h",
              {"off"},
              "length of the windows of link_series.csv, the time series of links",
              "DESIGN 9.1"},
             {"telemetry.pauses",
              PT::boolean,
              "false",
              "",
              "",
              {},
              "writes pauses.csv: who stopped whom, from when to when, because of which queue",
              "DESIGN 5: pause-provenance graph"},
             {"telemetry.qp",
              PT::time,
              "off",
              "1ns",
              "1h",
              {"off"},
              "length of the windows of qps.csv, the time series of queue pairs",
              "DESIGN 9.1; B: M7"},
             {"telemetry.packets",
              PT::real,
              "off",
              "1/1000000000",
              "1",
              {"off"},
              "share of the data packets that are followed hop by hop into packets.csv",
              "B: M8"},
             {"telemetry.flows",
              PT::boolean,
              "false",
              "",
              "",
              {},
              "writes switch_flows.csv: what every switch passed on, by queue pair and ports",
              "B: M8"}}),
  };
}

}  // namespace

const std::vector<ModelDoc>& scenario_blocks() {
  static const std::vector<ModelDoc> blocks = all_blocks();
  return blocks;
}

const ModelDoc* find_scenario_block(const std::string& block) {
  for (const ModelDoc& doc : scenario_blocks()) {
    if (doc.name == block) return &doc;
  }
  return nullptr;
}

const ParamSpec* find_scenario_key(const std::string& key) {
  const size_t dot = key.find('.');
  const ModelDoc* doc =
      find_scenario_block(dot == std::string::npos ? "scenario" : key.substr(0, dot));
  if (doc == nullptr) return nullptr;
  const std::string name = dot == std::string::npos ? key : key.substr(dot + 1);
  const auto it = std::find_if(doc->params.begin(), doc->params.end(),
                               [&](const ParamSpec& p) { return p.name == name; });
  return it == doc->params.end() ? nullptr : &*it;
}

ParamSpec scenario_key(const std::string& key) {
  const ParamSpec* found = find_scenario_key(key);
  TRAINYARD_ASSERT(found != nullptr);
  ParamSpec spec = *found;
  spec.name = key.substr(key.rfind('.') + 1);
  return spec;
}

}  // namespace trainyard
