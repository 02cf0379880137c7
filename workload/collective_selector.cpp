// SPDX-License-Identifier: MIT
#include "sim/errors.h"
#include "sim/registry.h"
#include "workload/admission.h"
#include "workload/collective_params.h"

namespace trainyard {

const std::vector<ParamSpec>& collective_params() {
  using PT = ParamType;
  static const std::vector<ParamSpec> specs = {
      {"algorithm",
       PT::choice,
       "auto",
       "",
       "",
       {"auto", "ring", "direct"},
       "algorithm where it supports the collective; auto: ring, all-to-all direct",
       "DESIGN 4"},
      {"protocol",
       PT::choice,
       "auto",
       "",
       "",
       {"auto"},
       "NCCL protocol; its software latency is not modelled yet",
       "DESIGN 9.1"},
      {"channels",
       PT::integer,
       "auto",
       "1",
       "64",
       {"auto"},
       "parallel rings; auto: one per member of a server, 1 inside a server",
       "DESIGN 4"},
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
       PT::choice,
       "auto",
       "",
       "",
       {"auto"},
       "SMs taken by communication; compute is not slowed down yet",
       "DESIGN 3"},
      {"class",
       PT::integer,
       "0",
       "0",
       "3",
       {},
       "data class in switches of all that the job sends, sends included; see "
       "fabric.switch.classes",
       "DESIGN 5"},
      {"timeout",
       PT::time,
       "30min",
       "1ms",
       "",
       {},
       "a collective that lasts longer than this fails the run",
       "NCCL default in PyTorch"},
  };
  return specs;
}

namespace {

class Selector final : public CollectiveSelector {
 public:
  explicit Selector(const Params& params) : preferred_(params.text("algorithm")) {
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
  }

  [[nodiscard]] const CollectiveAlgorithm& choose(const CollectiveRequest& request) const override {
    const CollectiveAlgorithm* found = nullptr;
    for (const auto& a : algorithms_) {
      if (!a->supports(request.kind)) continue;
      if (found == nullptr || a->name() == preferred_) found = a.get();
    }
    if (found == nullptr) {
      throw UserError(
          std::string("collective ") + collective_name(request.kind) + " is not built yet",
          "see 'trainyard explain collective'");
    }
    return *found;
  }

 private:
  std::string preferred_;
  std::vector<std::unique_ptr<CollectiveAlgorithm>> algorithms_;
};

}  // namespace

std::unique_ptr<CollectiveSelector> make_collective_selector(const Params& params) {
  return std::make_unique<Selector>(params);
}

}  // namespace trainyard
