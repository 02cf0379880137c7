// SPDX-License-Identifier: MIT
// trainyard run | compare | whatif | chaos | degraded | plan | lint | topo | trace | calibrate |
// explain | version
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>

#include "chakra/expand.h"
#include "chakra/reader.h"
#include "chakra/validator.h"
#include "chakra/writer.h"
#include "network/topology_summary.h"
#include "sim/registry.h"
#include "tools/build_info/build_info.h"
#include "tools/calibrate/calibrate.h"
#include "tools/lint/lint.h"
#include "tools/report/compare.h"
#include "tools/report/report.h"
#include "tools/scenario/chaos.h"
#include "tools/scenario/degraded.h"
#include "tools/scenario/plan.h"
#include "tools/scenario/run.h"
#include "tools/scenario/scenario.h"
#include "tools/scenario/scenario_keys.h"
#include "tools/scenario/whatif.h"
#include "workload/chakra_exporter.h"
#include "workload/generator/generate.h"

namespace trainyard {
namespace {

constexpr int kOk = 0;
constexpr int kFindings = 1;  ///< of lint
constexpr int kUserError = 2;
constexpr int kSimulationError = 3;
constexpr int kInterrupted = 130;

volatile std::sig_atomic_t g_interrupted = 0;

extern "C" void on_signal(int) {
  if (g_interrupted != 0) std::_Exit(kInterrupted);  // a second Ctrl-C does not wait
  g_interrupted = 1;
}

/// Errors take one line, even where the input that they quote has several.
void print_error(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  fmt::print(stderr, "trainyard: {}\n", text);
}

struct RunArguments {
  std::string scenario;
  ScenarioOverrides overrides;
  bool quiet = false;
  std::string json;
};

void print_progress(const RunProgress& p) {
  const double share =
      p.total == 0 ? 0 : static_cast<double>(p.done) / static_cast<double>(p.total);
  std::string eta = "--";
  if (share > 0.01) eta = fmt::format("{:.0f} s", p.wall_s * (1 - share) / share);
  fmt::print(stderr, "\r{:>10} simulated  {:5.1f} %  {:.1f} M transmissions  {:.1f} s  ETA {}   ",
             print_time(p.now, 4), 100 * share, static_cast<double>(p.transmissions) / 1e6,
             p.wall_s, eta);
  std::fflush(stderr);
}

int run(const RunArguments& arguments) {
  const Scenario scenario = load_scenario(arguments.scenario, arguments.overrides);
  // Fail before the work, not after it, when results could not be kept.
  std::error_code error;
  std::filesystem::create_directories(scenario.output_dir, error);
  if (error || access(scenario.output_dir.c_str(), W_OK) != 0) {
    throw UserError("cannot write to output folder " + scenario.output_dir + ": " +
                        (error ? error.message() : "no permission"),
                    "choose another with --out DIR or output.dir");
  }
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  const bool show = !arguments.quiet && isatty(fileno(stderr)) != 0;
  bool shown = false;
  RunHooks hooks;
  hooks.progress = [&](const RunProgress& p) {
    if (show) {
      print_progress(p);
      shown = true;
    }
    return g_interrupted == 0;
  };
  Result result = run_scenario(scenario, hooks);
  if (shown) fmt::print(stderr, "\r{:90}\r", "");
  const BuildInfo& build = build_info();
  result.version =
      *build.commit == '\0' ? build.version : fmt::format("{} ({})", build.version, build.commit);
  result.build_type = build.build_type;
  write_all(result, scenario.output_dir);
  if (!arguments.quiet) fmt::print("{}", summary_text(result));
  fmt::print("report: {}/report.html\n", scenario.output_dir);
  if (std::fflush(stdout) != 0)
    throw UserError("cannot write to standard output: the disk is full?");
  if (result.complete) return kOk;
  print_error(scenario.file + ": " + result.incomplete_reason);
  return g_interrupted != 0 ? kInterrupted : kSimulationError;
}

int plan(const RunArguments& arguments) {
  const Plan p = make_plan(load_scenario(arguments.scenario, arguments.overrides));
  if (!arguments.json.empty()) write_atomically(arguments.json, plan_json(p));
  fmt::print("{}", plan_text(p));
  if (!arguments.json.empty()) fmt::print("json: {}\n", arguments.json);
  if (std::fflush(stdout) != 0)
    throw UserError("cannot write to standard output: the disk is full?");
  return kOk;
}

struct LintArguments {
  bool simai = false, strict = false, json = false, list = false;
  std::string topology;
};

int lint(const RunArguments& arguments, const LintArguments& how) {
  if (how.list) {
    fmt::print("{}", lint_rules_text());
    return kOk;
  }
  if (arguments.scenario.empty()) {
    throw UserError("lint needs a scenario or a configuration", "see trainyard lint --help");
  }
  const bool conf = how.simai || is_simai_conf(arguments.scenario);
  if (conf && !(arguments.overrides.settings.empty() && arguments.overrides.trace.empty())) {
    throw UserError("--set and --trace are for scenarios, " + arguments.scenario +
                    " is a HPCC / SimAI configuration");
  }
  if (!conf && !how.topology.empty()) {
    throw UserError("--topology is for HPCC / SimAI configurations",
                    "a scenario names its file: 'topology: {kind: file, path: FILE}'");
  }
  const LintReport report =
      run_lint(conf ? lint_simai_conf(arguments.scenario, how.topology)
                    : lint_scenario(load_scenario(arguments.scenario, arguments.overrides)));
  fmt::print("{}", how.json ? lint_json(report) : lint_text(report));
  if (std::fflush(stdout) != 0)
    throw UserError("cannot write to standard output: the disk is full?");
  const bool failed = report.count(LintSeverity::error) > 0 ||
                      (how.strict && report.count(LintSeverity::warning) > 0);
  return failed ? kFindings : kOk;
}

int compare(const std::string& a, const std::string& b, bool json) {
  const Comparison c = compare_results(a, b);
  fmt::print("{}", json ? comparison_json(c) : comparison_text(c));
  if (std::fflush(stdout) != 0)
    throw UserError("cannot write to standard output: the disk is full?");
  return kOk;
}

int whatif(const RunArguments& arguments, const WhatIfOptions& options, bool json) {
  const WhatIf w = what_if(load_scenario(arguments.scenario, arguments.overrides), options);
  fmt::print("{}", json ? whatif_json(w) : whatif_text(w));
  if (std::fflush(stdout) != 0)
    throw UserError("cannot write to standard output: the disk is full?");
  return kOk;
}

int chaos(const RunArguments& arguments, const ChaosOptions& options, const std::string& csv) {
  const bool live = isatty(STDERR_FILENO) != 0 && !arguments.quiet;
  const Chaos c = run_chaos(load_scenario(arguments.scenario, arguments.overrides), options,
                            [&](size_t done, size_t all) {
                              if (live) fmt::print(stderr, "\r{} of {} runs", done, all);
                              return g_interrupted == 0;
                            });
  if (live) fmt::print(stderr, "\n");
  if (!csv.empty()) write_atomically(csv, chaos_csv(c));
  fmt::print("{}", chaos_text(c));
  if (!csv.empty()) fmt::print("rows: {}\n", csv);
  if (std::fflush(stdout) != 0)
    throw UserError("cannot write to standard output: the disk is full?");
  if (g_interrupted != 0) return kInterrupted;
  return c.count(ChaosRow::Outcome::violation) > 0 ? kSimulationError : kOk;
}

int degraded(const RunArguments& arguments, std::string folder, bool keep) {
  const Scenario s = load_scenario(arguments.scenario, arguments.overrides);
  if (folder.empty()) folder = s.output_dir + "/degraded";
  const bool live = isatty(STDERR_FILENO) != 0;
  const DegradedTable t =
      degraded_table(s, keep ? folder : std::string(), [&](const std::string& name) {
        if (live) fmt::print(stderr, "simulating: {}\n", name);
      });
  if (!arguments.json.empty()) write_atomically(arguments.json, degraded_json(t));
  fmt::print("{}", degraded_text(t));
  if (!arguments.json.empty()) fmt::print("json: {}\n", arguments.json);
  if (std::fflush(stdout) != 0)
    throw UserError("cannot write to standard output: the disk is full?");
  return kOk;
}

int topo(const RunArguments& arguments) {
  ScenarioOverrides overrides = arguments.overrides;
  overrides.fabric_only = true;
  const Scenario s = load_scenario(arguments.scenario, overrides);
  uint32_t ranks = 0;
  if (!s.chakra.empty()) ranks = static_cast<uint32_t>(chakra::find_rank_files(s.chakra).size());
  const Topology t = build_topology(s, ranks);
  fmt::print("{}: {} topology\n{}", s.file, s.topology.kind, fabric_text(t));
  return kOk;
}

int trace_info(const std::string& where, const std::string& groups) {
  const chakra::TraceSet set = chakra::read_set(where, groups);
  const chakra::Summary s = chakra::summarise(set);
  fmt::print("{}: {} ranks, {} nodes\n", where, set.ranks.size(), s.nodes);
  auto row = [](const char* name, auto value) { fmt::print("  {:22} {}\n", name, value); };
  row("dialect", set.ranks[0].dialect);
  row("compute", s.comp);
  row("of these on the host", s.cpu_ops);
  row("send", s.send);
  row("receive", s.recv);
  row("collective", s.coll);
  row("memory", s.mem);
  row("data edges", s.data_edges);
  row("control edges", s.ctrl_edges);
  row("FLOPs", s.num_ops);
  row("durations", print_time(Time::us(static_cast<int64_t>(s.duration_us))));
  for (const auto& [kind, count_bytes] : s.collectives) {
    row(kind.c_str(),
        fmt::format("{} nodes, {} bytes as written", count_bytes.first, count_bytes.second));
  }
  row("bytes sent", s.bytes_send);
  row("groups", set.groups.size());
  if (!set.group_file.empty()) row("group file", set.group_file);
  if (s.coll + s.send == 0) fmt::print("  warning: no node communicates\n");
  return kOk;
}

int trace_validate(const std::string& where, const std::string& groups) {
  const chakra::TraceSet set = chakra::read_set(where, groups);
  const auto findings = chakra::validate(set);
  size_t errors = 0;
  for (const auto& f : findings) {
    const bool error = f.severity == chakra::Severity::error;
    errors += error ? 1 : 0;
    fmt::print("{}: {}: {}\n", error ? "error" : "warning", f.code, f.message);
  }
  fmt::print("{}: {} ranks, {} errors, {} warnings\n", where, set.ranks.size(), errors,
             findings.size() - errors);
  return errors > 0 ? kUserError : kOk;
}

/// The workload that a scenario generates, as a Chakra trace.
int trace_export(const std::string& scenario, const std::vector<std::string>& settings,
                 const std::string& prefix) {
  ScenarioOverrides overrides;
  overrides.settings = settings;
  const Scenario s = load_scenario(scenario, overrides);
  if (!s.training) {
    throw UserError(s.workload_pos, "only generated workloads are exported",
                    "give 'workload: {model: NAME, kernels: single}'");
  }
  const Job job = generate_job(*s.training, s.name, s.seed).job;
  const uint64_t nodes = export_chakra(job, prefix);
  fmt::print("{}: {} ranks, {} nodes; read it with 'launch_order: free'\n", prefix,
             job.ranks.size(), nodes);
  return kOk;
}

/// A trace set of few ranks as one of many.
int trace_expand(const std::string& where, const std::string& groups, const std::string& prefix,
                 const chakra::ExpandOptions& options) {
  const chakra::TraceSet set = chakra::read_set(where, groups);
  const chakra::Expanded e = chakra::expand(set, options);
  const std::filesystem::path folder = std::filesystem::path(prefix).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  for (size_t r = 0; r < e.set.ranks.size(); ++r) {
    chakra::write_rank(fmt::format("{}.{}.et", prefix, r), e.set.ranks[r]);
  }
  chakra::write_group_file((folder / "comm_group.json").string(), e.set.groups);
  fmt::print("{}: {} ranks from {}, {} groups from {}\n", prefix, e.set.ranks.size(),
             set.ranks.size(), e.set.groups.size(), set.groups.size());
  fmt::print("  {:20} {:6} {:>9} {:>9} {:>16} {:>16} {:>16}\n", "kind", "groups", "calls", "before",
             "bytes moved", "before", "closed form");
  bool equal = true;
  for (const chakra::ExpandedTotal& t : e.totals) {
    fmt::print("  {:20} {:6} {:>9} {:>9} {:>16} {:>16} {:>16}\n", t.kind,
               t.grown ? "grown" : "copied", t.calls, t.calls_before, t.moved, t.moved_before,
               t.moved_expected);
    equal = equal && t.moved == t.moved_expected;
  }
  if (!equal) throw SimulationError("bytes moved are not those of the closed form");
  return kOk;
}

/// Blocks of a scenario, then models.
std::vector<const ModelDoc*> everything_documented() {
  std::vector<const ModelDoc*> docs;
  for (const ModelDoc& block : scenario_blocks()) docs.push_back(&block);
  for (const ModelDoc* model : Registry::instance().all()) docs.push_back(model);
  return docs;
}

int explain(const std::string& name) {
  const std::vector<const ModelDoc*> docs = everything_documented();
  size_t found = 0;
  for (const ModelDoc* doc : docs) {
    if (!name.empty() && doc->name != name && doc->category != name) continue;
    ++found;
    if (name.empty()) {
      fmt::print("{:16} {:16} {}\n", doc->category, doc->name, doc->help);
      continue;
    }
    fmt::print("{} ({})\n  {}\n", doc->name, doc->category, doc->help);
    if (!doc->source.empty()) fmt::print("  source: {}\n", doc->source);
    for (const ParamSpec& p : doc->params) {
      fmt::print("    {:22} {}\n", p.name, describe(p));
      fmt::print("    {:22} {}{}\n", "", p.help,
                 p.source.empty() ? "" : fmt::format(" [{}]", p.source));
    }
    fmt::print("\n");
  }
  if (found == 0) {
    // Perhaps a parameter, or a key with its block: "cluster.nodes".
    for (const ModelDoc* doc : docs) {
      for (const ParamSpec& p : doc->params) {
        const bool key = doc->category == "scenario" && doc->name + "." + p.name == name;
        if (p.name != name && !key) continue;
        ++found;
        fmt::print("{} of {} ({})\n  {}\n  {}{}\n", p.name, doc->name, doc->category, describe(p),
                   p.help, p.source.empty() ? "" : fmt::format(" [{}]", p.source));
      }
    }
  }
  if (found == 0) {
    std::string blocks;
    std::string models;
    for (const ModelDoc* doc : docs) {
      std::string& list = doc->category == "scenario" ? blocks : models;
      list += (list.empty() ? "" : ", ") + doc->name;
    }
    throw UserError("nothing is called '" + name + "'",
                    "known blocks: " + blocks + "; known models: " + models);
  }
  return kOk;
}

int version() {
  const BuildInfo& build = build_info();
  fmt::print("trainyard {}{}\n", build.version,
             *build.commit == '\0' ? "" : fmt::format(" ({})", build.commit));
  fmt::print("  build     {}, {}\n", build.build_type, build.compiler);
  std::string engines;
  for (const auto& name : Registry::instance().names("engine")) {
    engines += (engines.empty() ? "" : ", ") + name;
  }
  fmt::print("  engines   {} (ns3 is not built yet)\n", engines);
  fmt::print("  licence   MIT; libraries: see THIRD_PARTY.md\n");
  return kOk;
}

int main_checked(int argc, char** argv) {
  CLI::App app{"Packet-level simulator for LLM training clusters"};
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "help of all commands");
  RunArguments arguments;
  auto overrides = [&](CLI::App* cmd) {
    cmd->add_option("--set", arguments.overrides.settings,
                    "key=value, for example --set fabric.switch.buffer=32MiB")
        ->allow_extra_args(false);
    cmd->add_option("--trace", arguments.overrides.trace,
                    "Chakra trace: a prefix, folder or pattern with {rank}");
  };
  auto scenario_options = [&](CLI::App* cmd) {
    cmd->add_option("scenario", arguments.scenario, "scenario file (YAML)")->required();
    overrides(cmd);
  };
  CLI::App* run_cmd = app.add_subcommand("run", "run a scenario and write its report");
  scenario_options(run_cmd);
  run_cmd->add_option("--out", arguments.overrides.output_dir, "output folder");
  run_cmd->add_flag("-q,--quiet", arguments.quiet, "no progress, no summary");
  CLI::App* compare_cmd =
      app.add_subcommand("compare", "say where the difference between two runs comes from");
  std::string a;
  std::string b;
  bool compare_json = false;
  compare_cmd->add_option("A", a, "output folder of a run, or its result.json")->required();
  compare_cmd->add_option("B", b, "another")->required();
  compare_cmd->add_flag("--json", compare_json, "everything that differs, as JSON");
  CLI::App* whatif_cmd = app.add_subcommand(
      "whatif", "run again with stragglers healthy: what each slow rank and kernel costs");
  scenario_options(whatif_cmd);
  WhatIfOptions whatif_options;
  bool whatif_json = false;
  whatif_cmd
      ->add_option("--healthy", whatif_options.where,
                   "GPUs to heal together, for example rank17 or node3 (may be repeated)")
      ->allow_extra_args(false);
  whatif_cmd->add_option("--top", whatif_options.top,
                         "ranks and kernels that are healed one by one (8)");
  whatif_cmd->add_flag("--json", whatif_json, "as JSON");
  CLI::App* chaos_cmd = app.add_subcommand(
      "chaos", "break every part at every structural event, one run each: how each of them ends");
  scenario_options(chaos_cmd);
  ChaosOptions chaos_options;
  std::string chaos_rows;
  chaos_cmd
      ->add_option("--kind", chaos_options.kinds,
                   "gpu-stop, nic-down, link-down, switch-down (default: all; may be repeated)")
      ->allow_extra_args(false);
  chaos_cmd
      ->add_option("--where", chaos_options.where,
                   "only parts that match, for example leaf* or node0.gpu* (may be repeated)")
      ->allow_extra_args(false);
  chaos_cmd->add_option("--events", chaos_options.events,
                        "at so many structural events, evenly chosen (default: all)");
  chaos_cmd->add_option("--reaction", chaos_options.reaction,
                        "of the kinds that have it (trainyard explain nic-down)");
  chaos_cmd->add_option("--for", chaos_options.duration,
                        "how long a part is broken (default: until the run ends)");
  chaos_cmd->add_option("--abort-after", chaos_options.abort_after,
                        "end the job so long after (default: it goes on as far as it can)");
  chaos_cmd->add_flag("--oracle", chaos_options.oracle,
                      "every run again with 'simulation.domains: off'; both must be the same");
  chaos_cmd->add_option("--csv", chaos_rows, "write one row per run to this file");
  chaos_cmd->add_flag("-q,--quiet", arguments.quiet, "no progress");
  CLI::App* degraded_cmd = app.add_subcommand(
      "degraded",
      "step times with a NIC, a leaf, a plane, ... broken all along, kept for next time");
  scenario_options(degraded_cmd);
  std::string kept;
  bool forget = false;
  degraded_cmd->add_option("--cache", kept, "where results are kept (OUT/degraded)");
  degraded_cmd->add_flag("--no-cache", forget, "simulate all of it, keep nothing");
  degraded_cmd->add_option("--json", arguments.json, "also write the table to this file");
  CLI::App* plan_cmd =
      app.add_subcommand("plan", "resolve a scenario and say what a run would move and cost");
  scenario_options(plan_cmd);
  plan_cmd->add_option("--json", arguments.json, "also write the plan to this file");
  CLI::App* lint_cmd = app.add_subcommand(
      "lint", "judge PFC, ECN, DCQCN and buffers of a scenario by arithmetic, without running it");
  LintArguments lint_arguments;
  lint_cmd->add_option("file", arguments.scenario,
                       "scenario (YAML), or a HPCC / SimAI configuration (KEY value lines)");
  overrides(lint_cmd);
  lint_cmd->add_flag("--simai", lint_arguments.simai,
                     "the file is a HPCC / SimAI configuration (otherwise told by its content)");
  lint_cmd->add_option("--topology", lint_arguments.topology,
                       "topology file of a HPCC / SimAI configuration");
  lint_cmd->add_flag("--strict", lint_arguments.strict, "warnings fail, too");
  lint_cmd->add_flag("--json", lint_arguments.json, "findings as JSON");
  lint_cmd->add_flag("--list", lint_arguments.list, "the rules and their sources");
  CLI::App* topo_cmd = app.add_subcommand("topo", "build the fabric of a scenario and count it");
  scenario_options(topo_cmd);
  CLI::App* trace_cmd = app.add_subcommand("trace", "look at Chakra traces");
  trace_cmd->require_subcommand(1);
  std::string where;
  std::string groups;
  CLI::App* info_cmd = trace_cmd->add_subcommand("info", "counts of a trace set");
  CLI::App* validate_cmd = trace_cmd->add_subcommand("validate", "what is wrong with a trace set");
  for (CLI::App* cmd : {info_cmd, validate_cmd}) {
    cmd->add_option("trace", where, "prefix, folder or pattern with {rank}")->required();
    cmd->add_option("--groups", groups, "comm_group.json (default: the one beside the trace)");
  }
  std::string prefix;
  std::vector<std::string> export_settings;
  CLI::App* export_cmd =
      trace_cmd->add_subcommand("export", "write a scenario's generated workload as a trace");
  export_cmd->add_option("scenario", where, "scenario file")->required();
  export_cmd->add_option("prefix", prefix, "files are PREFIX.{rank}.et")->required();
  export_cmd->add_option("--set", export_settings, "KEY=VALUE: change a key of the scenario");
  chakra::ExpandOptions expand_options;
  CLI::App* expand_cmd = trace_cmd->add_subcommand(
      "expand", "copies of all ranks of a trace, with some groups spanning the copies");
  expand_cmd->add_option("trace", where, "prefix, folder or pattern with {rank}")->required();
  expand_cmd->add_option("prefix", prefix, "files are PREFIX.{rank}.et")->required();
  expand_cmd->add_option("--factor", expand_options.factor, "copies")->required();
  std::vector<std::string> grow;
  expand_cmd
      ->add_option("--grow", grow,
                   "a group that spans the copies, by name; '*' (the default): those of all ranks")
      ->allow_extra_args(false);
  expand_cmd->add_option("--groups", groups, "comm_group.json (default: the one beside the trace)");
  CLI::App* calibrate_cmd =
      app.add_subcommand("calibrate", "fit the constants of a device card to measured steps (CSV)");
  CalibrateOptions calibrate_options;
  calibrate_cmd
      ->add_option("csv", calibrate_options.csv,
                   "measured steps: scenario, time_s; source, weight, half, ... (docs/compute.md)")
      ->required();
  calibrate_cmd->add_option("--device", calibrate_options.device,
                            "the card that all scenarios must have");
  calibrate_cmd->add_option("--priors", calibrate_options.priors,
                            "what constants are held to (configs/calibration/priors.yaml)");
  calibrate_cmd
      ->add_option("--heldout", calibrate_options.heldout,
                   "a source that takes no part in the fit (may be repeated)")
      ->allow_extra_args(false);
  std::string card_out;
  calibrate_cmd->add_option("--out", card_out, "write the card with its new fit here");
  calibrate_cmd->add_option("--rounds", calibrate_options.rounds,
                            "simulations of every step on the way (2)");
  std::string name;
  CLI::App* explain_cmd =
      app.add_subcommand("explain", "models and parameters: meaning, unit, default, source");
  explain_cmd->add_option("name", name,
                          "a model, a category, a block of the scenario or a parameter");
  CLI::App* version_cmd = app.add_subcommand("version", "what this binary is");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // help
    const CLI::App* at = trace_cmd->parsed() ? trace_cmd : &app;
    const auto words = at->remaining();
    if (at->get_subcommands().empty() && !words.empty()) {
      std::string known;
      for (const CLI::App* c : at->get_subcommands([](const CLI::App*) { return true; })) {
        known += (known.empty() ? "" : ", ") + c->get_name();
      }
      throw UserError("unknown command or option '" + words.front() + "'", "commands: " + known);
    }
    throw UserError(e.what(), "see trainyard --help");
  }
  if (run_cmd->parsed()) return run(arguments);
  if (compare_cmd->parsed()) return compare(a, b, compare_json);
  if (whatif_cmd->parsed()) return whatif(arguments, whatif_options, whatif_json);
  if (degraded_cmd->parsed()) return degraded(arguments, kept, !forget);
  if (chaos_cmd->parsed()) return chaos(arguments, chaos_options, chaos_rows);
  if (plan_cmd->parsed()) return plan(arguments);
  if (lint_cmd->parsed()) return lint(arguments, lint_arguments);
  if (topo_cmd->parsed()) return topo(arguments);
  if (info_cmd->parsed()) return trace_info(where, groups);
  if (validate_cmd->parsed()) return trace_validate(where, groups);
  if (export_cmd->parsed()) return trace_export(where, export_settings, prefix);
  if (expand_cmd->parsed()) {
    if (!grow.empty()) expand_options.grow = grow;
    return trace_expand(where, groups, prefix, expand_options);
  }
  if (calibrate_cmd->parsed()) {
    const Calibration calibration = calibrate(calibrate_options);
    print_calibration(calibration,
                      std::cout);  // first: a path that cannot be written loses nothing
    if (!card_out.empty()) write_card(calibration.card, card_out);
    return kOk;
  }
  if (explain_cmd->parsed()) return explain(name);
  if (version_cmd->parsed()) return version();
  return kUserError;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  try {
    return trainyard::main_checked(argc, argv);
  } catch (const trainyard::UserError& e) {
    trainyard::print_error(e.what());
    return trainyard::kUserError;
  } catch (const trainyard::SimulationError& e) {
    trainyard::print_error(e.what());
    return trainyard::kSimulationError;
  } catch (const std::filesystem::filesystem_error& e) {
    trainyard::print_error(e.path1().string() + ": " + e.code().message());
    return trainyard::kUserError;
  } catch (const std::bad_alloc&) {
    trainyard::print_error("out of memory");
    return trainyard::kSimulationError;
  } catch (const std::exception& e) {
    trainyard::print_error("internal error: " + std::string(e.what()) + "; please report it");
    return trainyard::kSimulationError;
  }
}
