// SPDX-License-Identifier: MIT
#include "sim/errors.h"
#include "sim/registry.h"
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
       {"none"},
       "receiver-driven admission (credits are not built yet)",
       "DESIGN 4"},
      {"sms",
       PT::choice,
       "auto",
       "",
       "",
       {"auto"},
       "SMs taken by communication; compute is not slowed down yet",
       "DESIGN 3"},
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
    for (const std::string& name : Registry::instance().names("collective")) {
      algorithms_.push_back(
          Registry::instance().factory<CollectiveFactory>("collective", name)(params));
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
