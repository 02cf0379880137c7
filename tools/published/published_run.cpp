// SPDX-License-Identifier: MIT
#include "tools/published/published_run.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>

#include "tools/tables/csv_table.h"

namespace trainyard {
namespace {

bool starts(const std::string& text, const std::string& with) {
  return text.rfind(with, 0) == 0;
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
bool one_of(const std::string& word, const std::set<std::string>& words) {
  return words.count(word) != 0;
}

struct Gpu {
  const char* name;
  const char* card;
  double peak;      ///< TFLOP/s, bf16
  double scale_up;  ///< GB/s per direction
  double nic;       ///< Gb/s of a GPU where the row does not say
};
constexpr Gpu kGpus[] = {
    {"A100", "a100-sxm", 312, 300, 200},         {"A100-40", "a100-sxm-40gb", 312, 300, 200},
    {"A800", "a800-sxm", 312, 200, 200},         {"H100", "h100-sxm", 989.4, 450, 400},
    {"H100-96", "h100-sxm-96", 989.4, 450, 400}, {"H200", "h200-sxm", 989.4, 450, 400},
    {"H800", "h800-sxm", 989.4, 200, 400},       {"B200", "b200-sxm", 2250, 900, 400},
    {"B300", "b300-sxm", 2250, 900, 800},        {"GB200", "gb200", 2500, 900, 400},
    {"GB300", "gb300", 2500, 900, 800},          {"MI325X", "mi325x", 1307.4, 448, 400}};

const Gpu* gpu_of(const std::string& text) {
  std::string name;
  if (starts(text, "A100-40")) {
    name = "A100-40";
  } else if (starts(text, "A800") || has(text, "or A800")) {
    name = "A800";
  } else if (starts(text, "A100")) {
    name = "A100";
  } else if (starts(text, "H100-96")) {
    name = "H100-96";
  } else {
    for (const char* n : {"H100", "H800", "H200", "GB200", "GB300", "B200", "B300", "MI325X"}) {
      if (name.empty() && starts(text, n)) name = n;
    }
  }
  for (const Gpu& g : kGpus) {
    if (name == g.name) return &g;
  }
  return nullptr;
}

std::string family_of(const std::string& id) {
  if (starts(id, "megascale-moe")) return "megascale-moe";
  if (starts(id, "dgxc-maxtext") || starts(id, "dgxc-paxml")) return "dgxc-jax";
  return id.substr(0, id.find('-'));
}

std::string source_of(const std::string& family) {
  if (starts(family, "mlperf")) return "mlperf";
  if (family == "sc21t1" || family == "sc21t2") return "sc21";
  if (family == "dgxc-jax") return "dgxc";
  return family;
}

/// One row as it is read.
class Reader {
 public:
  Reader(const CsvTable& table, size_t row) : t_(table), row_(row) {}

  PublishedRun read() {
    r_.id = text("id");
    r_.family = family_of(r_.id);
    r_.source = source_of(r_.family);
    r_.why_not = expressed();
    return std::move(r_);
  }

 private:
  [[nodiscard]] const std::string& text(const char* column) const { return t_.at(row_, column); }
  /// 0: not published.
  [[nodiscard]] double number(const char* column) const {
    return std::strtod(text(column).c_str(), nullptr);
  }
  [[nodiscard]] int64_t whole(const char* column) const {
    return static_cast<int64_t>(number(column));
  }
  void assume(const std::string& what) { r_.assumed.push_back(what); }

  std::string model() {
    r_.layers = whole("layers");
    r_.hidden = whole("hidden");
    r_.heads = whole("heads");
    if (r_.layers == 0 || r_.hidden == 0 || r_.heads == 0) return "model sizes not published";
    r_.kv_heads = whole("kv_heads") > 0 ? whole("kv_heads") : r_.heads;
    r_.vocab = whole("vocab");
    const std::string& name = text("model");
    static const std::regex gpt("^(GPT-|GPT3|MPT|OPT|MT-NLG|Nemotron)");
    const bool is_gpt = std::regex_search(name, gpt) && !starts(name, "GPT-OSS");
    r_.gated = !is_gpt;
    r_.head = r_.hidden / r_.heads;
    static const std::regex head_dim("head_dim ([0-9]+)");
    std::smatch m;
    const std::string& notes = text("notes");
    if (std::regex_search(notes, m, head_dim)) r_.head = std::stoll(m[1]);
    r_.value = r_.head;
    if (starts(name, "DeepSeek") || starts(name, "Kimi")) {
      r_.latent = true;
      r_.latent_sizes = {1536, 512, 128, 64, 128};
      r_.head = 192;
      r_.value = 128;
    }
    if (r_.vocab == 0) {
      r_.vocab = is_gpt ? 51200 : 32000;
      assume("vocabulary");
    }
    const int64_t ffn = whole("ffn");
    r_.ffn = ffn > 0 ? ffn : 4 * r_.hidden;
    r_.experts = whole("experts");
    if (r_.experts == 0) return "";
    r_.topk = whole("topk");
    if (r_.topk == 0) return "top-k not published";
    r_.expert_ffn = ffn;
    r_.ffn = 0;
    if (has(notes, "shared expert")) r_.shared_ffn = r_.latent ? 2048 : 8192;
    if (starts(name, "DeepSeek")) r_.dense_layers = 3, r_.ffn = 18432;
    if (starts(name, "Kimi")) r_.dense_layers = 1, r_.ffn = 18432;
    if (has(name, "Qwen2")) r_.shared_ffn = 20480;
    if ((has(r_.id, "mtp") && !has(r_.id, "womtp")) ||
        (starts(name, "DeepSeek") && has(notes, "with multi-token")) || r_.family == "deepseek") {
      assume("its module for multi-token prediction is left out");
    }
    return "";
  }

  std::string layout() {
    r_.sequence = whole("seq");
    r_.gpus = whole("gpus");
    if (r_.sequence == 0 || r_.gpus == 0) return "sequence or GPU count not published";
    r_.tp = whole("tp");
    r_.pp = whole("pp");
    if (r_.tp == 0 || r_.pp == 0) return "layout not published";
    const auto or_one = [&](const char* key) { return std::max<int64_t>(1, whole(key)); };
    r_.cp = or_one("cp");
    r_.ep = r_.experts > 0 ? or_one("ep") : 1;
    r_.dp = whole("dp") > 0 ? whole("dp") : r_.gpus / (r_.tp * r_.pp * r_.cp);
    r_.global_batch = whole("global_batch_seqs");
    if (r_.global_batch == 0) return "batch not published";
    r_.micro_batch = whole("micro_batch");
    if (r_.micro_batch == 0) {
      r_.micro_batch = 1;
      if (r_.family == "nemotron4" && has(r_.id, "15b")) r_.micro_batch = r_.global_batch / r_.dp;
      if (starts(r_.id, "mcore-h100-7.1") || starts(r_.id, "mcore-h100-16b") ||
          starts(r_.id, "mcore-h100-32b")) {
        r_.micro_batch = 2;
      }
      assume("micro-batch " + std::to_string(r_.micro_batch));
    }
    if (r_.global_batch % (r_.dp * r_.micro_batch) != 0) {
      return "batch no multiple of dp x micro-batch";
    }
    r_.microbatches = r_.global_batch / (r_.dp * r_.micro_batch);
    chunks();
    sharding();
    return "";
  }

  void chunks() {
    r_.chunks = whole("vpp");
    if (r_.chunks > 0) return;
    r_.chunks = 1;
    if (r_.pp == 1) return;
    const std::string& f = r_.family;
    const bool even = r_.layers % r_.pp == 0;
    if (f == "nemotron4" || f == "llama3") r_.chunks = 8;
    if (f == "dgxc") r_.chunks = 12;
    if (f == "mcore" && even) r_.chunks = std::max<int64_t>(1, r_.layers / r_.pp / 2);
    if (f == "mpf" && even && r_.microbatches % r_.pp == 0) {
      r_.chunks = std::max<int64_t>(1, r_.layers / r_.pp);
    }
    if (r_.chunks > 1) assume(std::to_string(r_.chunks) + " chunks per stage");
  }

  void sharding() {
    const std::string& z = text("zero_stage_or_fsdp");
    if (starts(z, "fsdp") || starts(z, "hsdp") || starts(z, "zero3") ||
        starts(z, "megatron-fsdp")) {
      r_.zero = 3;
    } else if (starts(z, "zero2")) {
      r_.zero = 2;
    } else if (starts(z, "zero1")) {
      r_.zero = 1;
    } else if (starts(z, "zero0")) {
      r_.zero = 0;
    } else {
      r_.zero = one_of(r_.family, {"sc21t1", "sc21t2", "vtrain", "korth", "mtnlg", "zb",
                                   "megascale", "flagperf"})
                    ? 0
                    : 1;
    }
    if (has(z, "SHARD_GRAD_OP") || has(z, "no reshard")) r_.zero = 2;
    if (r_.family == "automodel" && r_.pp > 1) r_.zero = 2;
    static const std::regex over("over ([0-9]+) ranks");
    std::smatch m;
    if (std::regex_search(z, m, over) && std::stoll(m[1]) < r_.dp * r_.cp) {
      r_.shard = std::stoll(m[1]);
    }
    if (starts(z, "hsdp")) r_.shard = r_.dp > 8 ? 8 : 0;
    if (has(z, "fsdp + dp")) r_.shard = std::min<int64_t>(r_.dp, has(r_.id, "5b") ? 8 : 128);
  }

  void recompute() {
    const std::string& r = text("recompute");
    r_.recompute = r == "full" ? "full" : starts(r, "selective") ? "selective" : "none";
    if (r_.family == "maxtext") r_.recompute = "selective";
    if (r_.family == "fms") {
      r_.recompute = "none";
      static const std::regex hfu("HFU ([0-9]+)");
      std::smatch m;
      const std::string& notes = text("notes");
      const double mfu = number("mfu_pct");
      if (std::regex_search(notes, m, hfu) && mfu > 0 && std::stod(m[1]) > mfu) {
        // Forward again is a third of the model's FLOPs.
        r_.recompute = "full";
        r_.recompute_share = std::clamp(3 * (std::stod(m[1]) / mfu - 1), 0.001, 1.0);
        assume("share of layers computed again, from HFU over MFU");
      }
    }
    if (r_.family == "titan" && has(r, "selective")) {
      r_.recompute = "full";
      r_.recompute_share = 0.5;
      assume("every second product computed again: as every second layer");
    }
    if (r_.recompute == "none" && !r.empty() && r != "none") assume("recompute left out: " + r);
    if (r.empty()) assume("no recompute");
  }

  /// Software of the row, as the prototype names it.
  [[nodiscard]] std::string software() const {
    const std::string& f = r_.family;
    const std::string& id = r_.id;
    if (has(id, "paddle")) return "paddle";
    static const std::regex ablation("ablation[2-7]");
    if (starts(id, "megascale-175b-megascale") || starts(id, "megascale-530b-megascale") ||
        std::regex_search(id, ablation)) {
      return "megascale";
    }
    if (starts(id, "sc21t2-zero3")) return "deepspeed-zero3";
    static const std::map<std::string, std::string> by_family = {
        {"sc21t1", "megatron-2021"},
        {"sc21t2", "megatron-2021"},
        {"bloom", "megatron-deepspeed-2022"},
        {"mtnlg", "megatron-deepspeed-2022"},
        {"vtrain", "megatron-2023"},
        {"zb", "megatron-2023"},
        {"megascale", "megatron-2023"},
        {"korth", "megatron-2022"},
        {"internevo", "internevo"},
        {"opt", "torch-fsdp"},
        {"mpt", "torch-fsdp-triton"},
        {"fms", "torch-fsdp"},
        {"titan", "torch-fsdp"},
        {"automodel", "automodel"},
        {"flagperf", "flagscale"},
        {"nanotron", "nanotron"},
        {"maxtext", "jax"},
        {"dgxc-jax", "jax"},
        {"deepseek", "deepseek"}};
    const auto it = by_family.find(f);
    return it == by_family.end() ? "megatron-core" : it->second;
  }

  void frameworks() {
    const std::string& f = r_.family;
    std::string sw = software();
    const bool megatron_core = sw == "megatron-core";
    r_.scores = one_of(sw, {"megatron-2021", "megatron-deepspeed-2022", "megatron-2022",
                            "megatron-2023", "deepspeed-zero3", "megascale", "paddle"});
    r_.sequence_parallel =
        f != "opt" && (text("seq_parallel") == "1" ||
                       (one_of(sw, {"megatron-core", "deepseek", "megascale"}) && r_.tp > 1));
    r_.tensor_overlap =
        (one_of(f, {"dgxc", "nemo2407", "bridge", "mlm", "nemolong"}) || starts(f, "mlperf")) &&
        r_.tp > 1 && r_.experts == 0;
    if (has(r_.id, "asynctp") || sw == "megascale") r_.tensor_overlap = true;
    r_.gradient_overlap = one_of(sw, {"megatron-core", "megascale", "torch-fsdp",
                                      "torch-fsdp-triton", "jax", "internevo", "automodel"});
    r_.whole_activations = one_of(f, {"bloom", "vtrain", "mtnlg"}) && r_.tp > 1;
    r_.framework = one_of(sw, {"torch-fsdp", "torch-fsdp-triton", "automodel"}) ? "fsdp"
                   : one_of(f, {"bloom", "vtrain", "mtnlg"})                    ? "deepspeed"
                                                                                : "megatron";
    if (sw == "megascale") {
      assume("its parallel block and sliding window are left out: the usual block");
    }
    static const std::regex container("NeMo container ([0-9][0-9])\\.([0-9][0-9])");
    std::smatch m;
    const std::string& notes = text("notes");
    const int64_t nemo =
        std::regex_search(notes, m, container) ? std::stoll(m[1]) * 100 + std::stoll(m[2]) : 0;
    if (megatron_core && r_.experts > 0 && nemo >= 2601) {
      sw = "megatron-core-2026";
    } else if (megatron_core && one_of(f, {"moezoo", "bridge", "mlperf5.0", "mlperf5.1", "mlm"})) {
      sw = "megatron-core-2025";
    }
    r_.software = sw;
    r_.context = f == "megascale-moe" ? "all-to-all" : f == "llama3" ? "all-gather" : "ring";
    r_.release = release(nemo);
  }

  /// Rows of a source that are compared with each other.
  [[nodiscard]] std::string release(int64_t nemo) const {
    const std::string& f = r_.family;
    const std::string& id = r_.id;
    if (f == "bloom") {
      std::string day = id;
      if (const size_t at = day.find("-rep2"); at != std::string::npos) day.erase(at, 5);
      return day.substr(day.size() - std::min<size_t>(5, day.size())) < "02-25" ? "before"
                                                                                : "after";
    }
    if (f == "bridge") return std::to_string(nemo);
    if (starts(f, "dgxc")) return text("source");
    if (starts(f, "megascale")) return software() + (has(id, "abl") ? "abl" : "");
    if (f == "moezoo") return has(id, "long") ? "long" : "x";
    if (f == "mpf") {
      for (const char* kind : {"folding", "mcore", "fsdp-ep", "fsdp", "tp-ep-dp"}) {
        if (has(id, std::string("-") + kind + "-")) return kind;
      }
      return id;
    }
    if (f == "titan") {
      return std::string(has(id, "jun") ? "jun" : "dec") + (has(id, "async") ? "async" : "") +
             (has(id, "row") ? "row" : "") + (has(id, "eager") ? "eager" : "");
    }
    return text("verified_how") + (has(id, "paddle") ? "|paddle" : "");
  }

  std::string schedule() {
    r_.schedule = r_.chunks == 1 ? "1f1b" : "interleaved";
    if (r_.family == "zb") {
      const std::string tail = r_.id.substr(r_.id.rfind("-m") + 2);
      const std::string kind = tail.substr(tail.find('-') + 1);
      r_.schedule = kind == "1f1b-i" ? "interleaved" : kind == "zb-1p" ? "split-backward" : kind;
    }
    if (r_.family == "deepseek") r_.schedule = "dualpipe";
    if (r_.pp == 1) r_.schedule = "1f1b";
    if (r_.schedule == "zb-2p" || r_.schedule == "zb-v") {
      return "schedule " + r_.schedule + ": not built yet";
    }
    return "";
  }

  std::string experts() {
    if (r_.experts == 0) return "";
    const std::string& notes = text("notes");
    const std::string& f = r_.family;
    int64_t n = r_.tp;
    static const std::regex expert("expert TP ([0-9]+)");
    std::smatch m;
    if (std::regex_search(notes, m, expert)) n = std::stoll(m[1]);
    if (has(notes, "expert TP = attention TP")) n = r_.tp;
    if (f == "mpf" && has(r_.id, "folding")) n = 1;
    if (f == "mpf" && has(r_.id, "fsdp")) n = has(r_.id, "fsdp-ep") ? 1 : r_.tp;
    if (f == "mpf" && has(r_.id, "tp-ep-dp")) n = r_.tp;
    if (f == "moezoo" || f == "bridge") n = 1;
    const int64_t stage = r_.tp * r_.cp * r_.dp;
    while (n >= 1 && stage % (n * r_.ep) != 0) n /= 2;
    if (n < 1) return "expert layout does not fit";
    r_.expert_tp = n;
    if (r_.zero == 3 && r_.ep > 1 && r_.shard > 0) return "hybrid sharding with experts";
    return "";
  }

  std::string refused() const {
    const std::string& name = text("model");
    const std::string& f = r_.family;
    if (has(r_.id, "dropless") || (f == "flagperf" && has(r_.id, "mixtral-8x7b-h100-g32"))) {
      return "routing natural, imbalance not published";
    }
    if (starts(name, "GPT-OSS")) return "sliding window and sinks in every second layer";
    if (starts(name, "Llama4")) return "MoE in every second layer";
    if (has(r_.id, "rowwise")) return "fp8 with row-wise scales: kernels without constants";
    if (f == "mpf" && has(r_.id, "-fsdp")) {
      return "micro-batch not published, and with ZeRO 3 communication counts per micro-batch";
    }
    if (f == "opt") return "FLOPs definition and step time not published";
    if (has(r_.id, "nemotron4-340b-paper-g3072")) return "figures unverified in the table";
    return "";
  }

  std::string time() {
    const double tokens = static_cast<double>(r_.global_batch * r_.sequence);
    const auto gpus = static_cast<double>(r_.gpus);
    r_.step_s = number("iteration_time_s");
    if (r_.step_s <= 0 && number("tokens_per_s_per_gpu") > 0) {
      r_.step_s = tokens / (number("tokens_per_s_per_gpu") * gpus);
    }
    if (r_.step_s > 0) return "";
    r_.from_flops = true;
    double tflops = number("tflops_per_gpu");
    if (tflops <= 0 && number("mfu_pct") > 0) {
      const double peak = r_.family == "megascale" ? 312 : r_.family == "mpf" ? 989.5 : 989;
      tflops = number("mfu_pct") / 100 * peak;
    }
    if (tflops <= 0) return "no time, throughput or FLOP rate";
    // The table's README: what printed times of the same source say about its count of FLOPs.
    double ratio = r_.family == "megascale" ? 0.98 : 1;
    if (r_.software == "megascale") ratio = 1.06;
    const bool causal = r_.family == "moezoo" || r_.family == "bridge";
    if (r_.family == "moezoo") ratio = 1;
    r_.step_s = r_.step_flops(causal) / gpus / (ratio * tflops * 1e12);
    return "";
  }

  std::string expressed() {
    const Gpu* gpu = gpu_of(text("gpu"));
    if (gpu == nullptr) return "no card of device " + text("gpu");
    r_.device = gpu->card;
    r_.gpu = gpu->name;
    r_.memory_gib = number("memory_gib");
    r_.memory_of_tensors = r_.family == "zb";
    std::string why = model();
    if (why.empty()) why = layout();
    if (!why.empty()) return why;
    std::string precision = text("precision");
    if (precision.empty()) {
      precision = r_.family == "vtrain" || r_.family == "zb" ? "fp16" : "bf16";
    }
    r_.precision = precision == "nvfp4" ? "fp4" : precision;
    frameworks();
    recompute();
    why = refused();
    if (why.empty()) why = schedule();
    if (why.empty()) why = experts();
    if (!why.empty()) return why;
    r_.nic_gbits = number("nic_Gbps_per_gpu") > 0 ? number("nic_Gbps_per_gpu") : gpu->nic;
    if (r_.family == "maxtext") r_.nic_gbits = 200;  // Google A3
    r_.scale_up_gbytes = number("scale_up_GBps") > 0 ? number("scale_up_GBps") / 2 : gpu->scale_up;
    return time();
  }

  const CsvTable& t_;
  size_t row_;
  PublishedRun r_;
};

}  // namespace

double PublishedRun::step_flops(bool causal) const {
  const auto d = [](int64_t x) { return static_cast<double>(x); };
  double qkv = d(hidden) * d(heads + 2 * kv_heads) * d(head);
  if (latent) {
    const auto [q, kv, nope, rope, v] = latent_sizes;
    qkv =
        d(hidden * q + q * heads * (nope + rope) + hidden * (kv + rope) + kv * heads * (nope + v));
  }
  const double attention = qkv + d(value * heads * hidden);
  const double matrices = gated ? 3 : 2;
  const int64_t moe_layers = experts > 0 ? layers - dense_layers : 0;
  const double dense = matrices * d(hidden * ffn);
  const double moe = d(hidden * experts) + matrices * d(hidden) * d(topk * expert_ffn + shared_ffn);
  const double n = d(layers) * attention + d(layers - moe_layers) * dense + d(moe_layers) * moe +
                   d(vocab * hidden);
  const double square = 6 * d(layers * sequence) * d(heads * (head + value));
  return (6 * n + square / (causal ? 2 : 1)) * d(global_batch * sequence);
}

double PublishedRun::dense_parameters() const {
  const auto d = [](int64_t x) { return static_cast<double>(x); };
  const double attention =
      d(hidden) * (d(heads + 2 * kv_heads) * d(head) + d(heads * value)) / d(tp);
  const double mlp = (gated ? 3 : 2) * d(hidden * (experts > 0 ? shared_ffn : ffn)) / d(tp);
  const double embedding = d(vocab * hidden) / d(tp);
  return d(layers) * (attention + mlp) / d(pp) + (pp > 1 ? 1 : 2) * embedding;
}

std::vector<PublishedRun> read_published_runs(const std::string& path) {
  const CsvTable table = CsvTable::read(path);
  for (const char* column : {"id", "gpu", "layers", "tp", "global_batch_seqs", "precision",
                             "iteration_time_s", "notes"}) {
    if (!table.has(column)) {
      throw UserError(SourcePos{path, 1}, std::string("no column '") + column + "'");
    }
  }
  std::vector<PublishedRun> out;
  for (size_t i = 0; i < table.rows(); ++i) out.push_back(Reader(table, i).read());
  return out;
}

bool fitted_source(const std::string& source) {
  // Sources by the GPU generation of most of their rows, in the order of the MD5 of their names:
  // every second one. docs/validation.md says how.
  return one_of(source, {"bloom", "deepseek", "dgxc", "flagperf", "mcore", "megascale-moe", "mlm",
                         "mlperf", "moezoo", "mpf", "mtnlg", "nemotron4", "zb"});
}

}  // namespace trainyard
