// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

#include "sim/errors.h"
#include "sim/registry.h"
#include "workload/admission.h"
#include "workload/collective_params.h"
#include "workload/nccl_env.h"
#include "workload/nccl_model.h"

namespace trainyard {

namespace {

/// As in `algorithm: {KIND: NAME}`. Reduce-scatter stands for its block form, too.
constexpr std::pair<const char*, CollectiveKind> kKinds[] = {
    {"all_reduce", CollectiveKind::all_reduce}, {"all_gather", CollectiveKind::all_gather},
    {"all_to_all", CollectiveKind::all_to_all}, {"barrier", CollectiveKind::barrier},
    {"broadcast", CollectiveKind::broadcast},   {"gather", CollectiveKind::gather},
    {"reduce", CollectiveKind::reduce},         {"reduce_scatter", CollectiveKind::reduce_scatter},
    {"scatter", CollectiveKind::scatter},
};

/// What auto means, in order.
constexpr const char* kUsual[] = {"ring", "direct", "chain", "star"};

std::vector<ParamSpec> make_specs() {
  using PT = ParamType;
  std::vector<ParamSpec> specs = {
      {"algorithm",
       PT::text,
       "auto",
       "",
       "",
       {},
       "name of an algorithm (trainyard explain collective) for the collectives that it supports, "
       "or names by kind: {all_reduce: tree, all_to_all: pairwise}; auto: ring, all-to-all direct, "
       "broadcast and reduce chain, gather and scatter star",
       "DESIGN 4"},
      {"protocol",
       PT::choice,
       "auto",
       "",
       "",
       {"auto", "ll", "ll128", "simple", "tuned"},
       "calls as NCCL would run them, with its software time and this protocol; tuned: the "
       "protocol, and with algorithm auto the algorithm, that should be fastest for the call; "
       "auto: the wires alone",
       "nccl-measured 2, 3; A:F49, A:F50"},
      {"channels",
       PT::integer,
       "auto",
       "1",
       "64",
       {"auto"},
       "parallel rings, or pairs of trees; auto: one per member of a server (trees: per rail that "
       "all servers have), 1 inside a server",
       "DESIGN 4"},
      {"chunk",
       PT::bytes,
       "auto",
       "1KiB",
       "1GiB",
       {"auto"},
       "tree: piece that is passed on as a whole; auto: 256 KiB, or more so that there are at most "
       "64 a tree",
       "NCCL: half of 4 MiB / 8"},
      {"custom",
       PT::text,
       "",
       "",
       "",
       {},
       "algorithm custom: Chakra traces, one per member, as prefix, folder or pattern with {rank}",
       "formats 5.1"},
      {"custom_size",
       PT::bytes,
       "auto",
       "1B",
       "",
       {"auto"},
       "algorithm custom: bytes of the collective that the traces are written for; messages scale "
       "with the call. auto: sizes as written",
       "formats 5.1"},
      {"rebalance",
       PT::boolean,
       "false",
       "",
       "",
       {},
       "rings leave out channels whose NIC is broken all along and has another as backup; the "
       "others "
       "carry their shares",
       "B: N4 (DCR)"},
      {"cross_nic",
       PT::integer,
       "0",
       "0",
       "1",
       {},
       "1: rings may change rails between servers; 0: every other server is walked backwards so "
       "that they do not",
       "NCCL_CROSS_NIC"},
      {"window",
       PT::integer,
       "auto",
       "1",
       "1000000",
       {"auto"},
       "messages in flight per sender of a direct all-to-all; auto: all",
       "DESIGN 9.1"},
      {"admission",
       PT::choice,
       "none",
       "",
       "",
       {"none", "credits"},
       "credits: between servers a message may leave when its receiver has sent a clear-to-send",
       "S03; NCCL net_ib"},
      {"outstanding",
       PT::integer,
       "8",
       "1",
       "1000000",
       {},
       "credits: messages that a receiver has admitted and not yet received, per channel",
       "NCCL_STEPS 8"},
      {"cts_size",
       PT::bytes,
       "64B",
       "1B",
       "64KiB",
       {},
       "credits: payload of a clear-to-send message",
       "NCCL net_ib: an entry of the send FIFO is aligned to 64 bytes"},
      {"cts_class",
       PT::choice,
       "control",
       "",
       "",
       {"control", "data"},
       "credits: clear-to-send messages travel in data class 0 ahead of the data, which uses class "
       "1; or in class 1 with it",
       "B: V62"},
      {"sms",
       PT::integer,
       "auto",
       "0",
       "1024",
       {"auto"},
       "SMs (compute units) of a GPU that a collective takes while it moves, or by kind: "
       "{all_gather: 0}; n of N make compute beside it take N / (N - n) times as long, 0 (copy "
       "engines, proxies) costs none; auto: compute.overlap_slowdown",
       "DESIGN 3; A:N098"},
      {"class",
       PT::integer,
       "0",
       "0",
       "3",
       {},
       "data class in switches and NICs of all that the job sends, sends included; see "
       "fabric.switch.classes",
       "DESIGN 5"},
      {"launch",
       PT::time,
       "0us",
       "0us",
       "1s",
       {},
       "software time added to every call, from the arrival of a rank until it sends: what the "
       "host, the kernel's start and its end take where no protocol says so",
       "none: the wires alone; the files of configs/software have fitted ones"},
      {"timeout",
       PT::time,
       "30min",
       "1ms",
       "",
       {},
       "a collective that lasts longer than this fails the run",
       "NCCL default in PyTorch"},
  };
  for (const auto& kind : kKinds) {
    specs.push_back({std::string("algorithm.") + kind.first,
                     PT::text,
                     "",
                     "",
                     "",
                     {},
                     "algorithm of this kind of collective, in place of one word for all",
                     "DESIGN 4"});
  }
  for (const auto& kind : kKinds) {
    specs.push_back({std::string("sms.") + kind.first,
                     PT::integer,
                     "auto",
                     "0",
                     "1024",
                     {"auto"},
                     "SMs of this kind of collective; auto: as sms says",
                     "DESIGN 3"});
  }
  for (const ParamSpec& spec : nccl_params()) specs.push_back(spec);
  for (const ParamSpec& spec : nccl_env_params()) specs.push_back(spec);
  return specs;
}

}  // namespace

std::vector<int64_t> collective_sms(const Params& params) {
  std::vector<int64_t> sms(static_cast<size_t>(CollectiveKind::barrier) + 1, -1);
  for (const auto& kind : kKinds) {
    std::string key = std::string("sms.") + kind.first;
    if (params.is_word(key, "auto")) key = "sms";
    if (!params.is_word(key, "auto")) {
      sms[static_cast<size_t>(kind.second)] = params.integer(key);
    }
  }
  sms[static_cast<size_t>(CollectiveKind::reduce_scatter_block)] =
      sms[static_cast<size_t>(CollectiveKind::reduce_scatter)];
  return sms;
}

const std::vector<ParamSpec>& collective_params() {
  static const std::vector<ParamSpec> specs = make_specs();
  return specs;
}

namespace {

/// The algorithm that `params` name for `kind`, "auto" when none; by_kind: it is named for this
/// kind alone.
std::string wanted(const Params& params, CollectiveKind kind, bool* by_kind = nullptr) {
  if (kind == CollectiveKind::reduce_scatter_block) kind = CollectiveKind::reduce_scatter;
  for (const auto& k : kKinds) {
    if (k.second != kind) continue;
    const std::string& name = params.text(std::string("algorithm.") + k.first);
    if (by_kind != nullptr) *by_kind = !name.empty();
    if (!name.empty()) return name;
  }
  return params.text("algorithm");
}

void check_name(const Params& params, const std::string& key) {
  const std::string& name = params.text(key);
  const SourcePos pos = params.origin(key).pos;
  std::vector<std::string> known = Registry::instance().names("collective");
  if (name == "auto" || std::find(known.begin(), known.end(), name) != known.end()) return;
  std::string list = "auto";
  for (const std::string& k : known) list += ", " + k;
  throw UserError(pos, "collectives." + key + ": '" + name + "' is not one of: " + list);
}

/// An algorithm whose calls begin later.
class Later final : public CollectiveAlgorithm {
 public:
  Later(const CollectiveAlgorithm& inner, Time launch) : inner_(inner), launch_(launch) {}
  [[nodiscard]] std::string name() const override { return inner_.name(); }
  [[nodiscard]] bool supports(CollectiveKind kind) const override { return inner_.supports(kind); }
  [[nodiscard]] bool serves(const CollectiveRequest& r) const override { return inner_.serves(r); }
  [[nodiscard]] std::unique_ptr<CollectiveRun> begin(const CollectiveRequest& r) const override {
    return inner_.begin(r);
  }
  [[nodiscard]] int64_t sent_per_member(const CollectiveRequest& r) const override {
    return inner_.sent_per_member(r);
  }
  [[nodiscard]] Time delay(const CollectiveRequest& r) const override {
    return inner_.delay(r) + launch_;
  }

 private:
  const CollectiveAlgorithm& inner_;
  Time launch_;
};

class Selector final : public CollectiveSelector {
 public:
  Selector(const Params& params, const FabricFacts& facts) {
    check_name(params, "algorithm");
    if (params.is_word("algorithm", "custom")) {
      throw UserError(params.origin("algorithm").pos,
                      "collectives.algorithm: custom traces are of one kind of collective",
                      "write 'algorithm: {all_reduce: custom}'");
    }
    for (const auto& kind : kKinds) {
      const std::string key = std::string("algorithm.") + kind.first;
      if (!params.text(key).empty()) check_name(params, key);
    }
    const bool credits = params.is_word("admission", "credits");
    if (credits && !params.is_word("window", "auto")) {
      throw UserError(params.origin("window").pos,
                      "collectives.window limits senders where admission: credits limits receivers",
                      "remove window, or use admission: none");
    }
    for (const std::string& name : Registry::instance().names("collective")) {
      auto algorithm = Registry::instance().factory<CollectiveFactory>("collective", name)(params);
      if (credits) algorithm = admit_by_credits(std::move(algorithm), params);
      algorithms_.push_back(std::move(algorithm));
    }
    for (size_t k = 0; k < kKindCount; ++k) {
      const auto kind = static_cast<CollectiveKind>(k);
      bool by_kind = false;
      const CollectiveAlgorithm* preferred = find(wanted(params, kind, &by_kind), kind);
      if (preferred == nullptr && by_kind && wanted(params, kind) != "auto") refuse(params, kind);
      if (preferred != nullptr) order_[k].push_back(preferred);
      for (const char* name : kUsual) {
        const CollectiveAlgorithm* usual = find(name, kind);
        if (usual != nullptr && usual != preferred) order_[k].push_back(usual);
      }
      tune_[k] = wanted(params, kind) == "auto";
    }
    if (const Time launch = params.time("launch"); launch > Time()) {
      if (!params.is_word("protocol", "auto")) {
        throw UserError(params.origin("launch").pos,
                        "collectives.launch is for protocol: auto, the wires alone; a protocol has "
                        "its own software time",
                        "remove one of them");
      }
      for (const auto& a : algorithms_) {
        later_[a.get()] = std::make_unique<Later>(*a, launch);
      }
    }
    if (params.is_word("protocol", "auto")) return;
    model_ = std::make_unique<NcclModel>(params, facts);
    tuned_ = params.is_word("protocol", "tuned");
    protocol_ = params.text("protocol");
    transport_ = params.text("nccl.transport");
    for (const auto& a : algorithms_) {
      for (size_t p = 0; p < kProtocols; ++p) {
        const auto protocol = static_cast<Protocol>(p);
        const bool one = params.is_word("protocol", "ll")       ? protocol == Protocol::ll
                         : params.is_word("protocol", "ll128")  ? protocol == Protocol::ll128
                         : params.is_word("protocol", "simple") ? protocol == Protocol::simple
                                                                : true;
        // Grouped sends know no other protocol than Simple, whatever is asked for.
        const bool grouped = a->name() == "direct" || a->name() == "halving-doubling";
        if (grouped ? protocol == Protocol::simple : one) {
          protocols_[a.get()][p] = with_protocol(*a, *model_, protocol);
        }
      }
    }
  }

  [[nodiscard]] const CollectiveAlgorithm& choose(const CollectiveRequest& request) const override {
    for (const CollectiveAlgorithm* a : order_[static_cast<size_t>(request.kind)]) {
      if (a->serves(request)) return with_its_protocol(*a, request);
    }
    throw UserError(
        std::string("collective ") + collective_name(request.kind) + " is not built yet",
        "see 'trainyard explain collective'");
  }

 private:
  /// What NCCL chooses from where nothing is asked for, in order.
  [[nodiscard]] static bool candidate(const CollectiveAlgorithm& a) {
    constexpr const char* kNames[] = {"ring", "tree", "nvls", "nvls-tree", "chain", "direct"};
    return std::any_of(std::begin(kNames), std::end(kNames),
                       [&](const char* name) { return a.name() == name; });
  }

  /// What NCCL has is not run on bare wires because it was asked for in a way that NCCL has not.
  void must_have_times(const CollectiveAlgorithm& a, CollectiveKind kind) const {
    const bool all = kind == CollectiveKind::all_reduce || kind == CollectiveKind::barrier;
    const bool has =
        a.name() == "ring" || a.name() == "chain" || (all && candidate(a) && a.name() != "direct");
    if (!has) return;
    throw UserError("collectives.algorithm " + a.name() + " has no times with protocol: " +
                        protocol_ + " and nccl.transport: " + transport_,
                    "nvls and nvls-tree run with protocol simple or tuned; a transport with steps "
                    "of its own runs rings with simple; or take protocol: auto");
  }

  /// The fastest of what the model knows; `usual` as it is, where that is nothing.
  [[nodiscard]] const CollectiveAlgorithm& with_its_protocol(const CollectiveAlgorithm& usual,
                                                             const CollectiveRequest& r) const {
    if (const auto it = later_.find(&usual); it != later_.end()) return *it->second;
    if (model_ == nullptr) return usual;
    const NcclShape shape(r);
    const CollectiveAlgorithm* best = &usual;
    Time least = Time::infinity();
    const auto consider = [&](const CollectiveAlgorithm& a) {
      if (!a.supports(r.kind) || !a.serves(r)) return;
      const auto& wrapped = protocols_.at(&a);
      for (size_t p = 0; p < kProtocols; ++p) {
        if (wrapped[p] == nullptr) continue;
        const Time estimate = model_->estimate(a.name(), static_cast<Protocol>(p), r, shape);
        if (estimate >= least) continue;
        best = wrapped[p].get();
        least = estimate;
      }
    };
    consider(usual);
    if (!tuned_ || !tune_[static_cast<size_t>(r.kind)]) {
      if (best == &usual) must_have_times(usual, r.kind);
      return *best;
    }
    for (const auto& a : algorithms_) {
      if (a.get() != &usual && candidate(*a) && model_->offers(a->name(), r, shape)) consider(*a);
    }
    return *best;
  }

  static constexpr size_t kKindCount = static_cast<size_t>(CollectiveKind::barrier) + 1;

  [[nodiscard]] const CollectiveAlgorithm* find(const std::string& name,
                                                CollectiveKind kind) const {
    for (const auto& a : algorithms_) {
      if (a->name() == name && a->supports(kind)) return a.get();
    }
    return nullptr;
  }

  [[noreturn]] void refuse(const Params& params, CollectiveKind kind) const {
    std::string list = "auto";
    for (const auto& a : algorithms_) {
      if (a->supports(kind)) list += ", " + a->name();
    }
    const char* word = "";
    for (const auto& k : kKinds) {
      if (k.second == kind) word = k.first;
    }
    const std::string key = std::string("algorithm.") + word;
    const bool custom = params.text(key) == "custom";
    throw UserError(params.origin(key).pos,
                    "collectives." + key + ": '" + params.text(key) + "' is no algorithm for it",
                    custom ? "give the traces of it as collectives.custom" : "use one of: " + list);
  }

  std::vector<std::unique_ptr<CollectiveAlgorithm>> algorithms_;
  std::vector<const CollectiveAlgorithm*> order_[kKindCount];  // what to try
  bool tune_[kKindCount] = {};                                 // no algorithm is asked for
  bool tuned_ = false;
  std::string protocol_, transport_;
  std::unique_ptr<NcclModel> model_;
  std::map<const CollectiveAlgorithm*, std::array<std::unique_ptr<CollectiveAlgorithm>, kProtocols>>
      protocols_;  // looked up only

  // With collectives.launch: looked up only.
  std::map<const CollectiveAlgorithm*, std::unique_ptr<Later>> later_;
};

}  // namespace

std::unique_ptr<CollectiveSelector> make_collective_selector(const Params& params,
                                                             const FabricFacts& facts) {
  return std::make_unique<Selector>(params, facts);
}

}  // namespace trainyard
