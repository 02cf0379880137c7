// SPDX-License-Identifier: MIT
#include "workload/admission.h"

#include <deque>
#include <map>
#include <utility>

#include "sim/errors.h"

namespace trainyard {
namespace {

constexpr uint8_t kControlClass = 0, kDataClass = 1;

struct Terms {
  uint32_t outstanding = 1;
  int64_t cts_bytes = 64;
  uint8_t cts_class = kControlClass;
};

class AdmittedRun final : public CollectiveRun {
 public:
  AdmittedRun(std::unique_ptr<CollectiveRun> inner, const Terms& terms, const CollectiveRequest& r)
      : inner_(std::move(inner)), terms_(terms) {
    for (const uint32_t rank : *r.members) server_.push_back(r.placement.node_of(rank));
  }

  void arrived(uint32_t member, std::vector<CollectiveSend>& sends,
               std::vector<uint32_t>& done) override {
    std::vector<CollectiveReceive> coming;
    planned_ = inner_->receives(member, coming);
    std::map<uint32_t, bool> channels;
    for (const CollectiveReceive& c : coming) {
      if (server_[c.src] == server_[member]) continue;
      inboxes_[{member, c.channel}].coming.push_back(c);
      channels[c.channel] = true;
    }
    for (const auto& c : channels) grant(member, c.first, sends);
    std::vector<CollectiveSend> ready;
    inner_->arrived(member, ready, done);
    take(ready, sends);
  }

  void delivered(const CollectiveSend& send, std::vector<CollectiveSend>& sends,
                 std::vector<uint32_t>& done) override {
    if (send.clear_to_send) {
      Edge& edge = edges_[{send.dst, send.src, send.channel}];
      ++edge.credits;
      flush(edge, sends);
      return;
    }
    if (server_[send.src] != server_[send.dst]) {
      --inboxes_[{send.dst, send.channel}].open;
      grant(send.dst, send.channel, sends);
    }
    std::vector<CollectiveSend> ready;
    inner_->delivered(send, ready, done);
    take(ready, sends);
  }

 private:
  struct Edge {  // of a sender, a receiver and a channel
    uint32_t credits = 0;
    std::deque<CollectiveSend> ready;
  };
  struct Inbox {  // of a receiver and a channel
    uint32_t open = 0;
    std::deque<CollectiveReceive> coming;
  };

  void take(const std::vector<CollectiveSend>& ready, std::vector<CollectiveSend>& sends) {
    for (CollectiveSend s : ready) {
      s.traffic_class = kDataClass;
      if (server_[s.src] == server_[s.dst]) {
        sends.push_back(s);
        continue;
      }
      Edge& edge = edges_[{s.src, s.dst, s.channel}];
      edge.ready.push_back(s);
      if (!planned_) {
        inboxes_[{s.dst, s.channel}].coming.push_back({s.src, s.channel, 1});
        grant(s.dst, s.channel, sends);
      }
      flush(edge, sends);
    }
  }

  static void flush(Edge& edge, std::vector<CollectiveSend>& sends) {
    for (; edge.credits > 0 && !edge.ready.empty(); --edge.credits) {
      sends.push_back(edge.ready.front());
      edge.ready.pop_front();
    }
  }

  void grant(uint32_t member, uint32_t channel, std::vector<CollectiveSend>& sends) {
    Inbox& inbox = inboxes_[{member, channel}];
    while (inbox.open < terms_.outstanding && !inbox.coming.empty()) {
      CollectiveReceive& next = inbox.coming.front();
      CollectiveSend cts{member, next.src, terms_.cts_bytes, channel, 0};
      cts.traffic_class = terms_.cts_class;
      cts.clear_to_send = true;
      sends.push_back(cts);
      ++inbox.open;
      if (--next.count == 0) inbox.coming.pop_front();
    }
  }

  std::unique_ptr<CollectiveRun> inner_;
  Terms terms_;
  bool planned_ = false;
  std::vector<uint32_t> server_;  // by member
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Edge> edges_;
  std::map<std::pair<uint32_t, uint32_t>, Inbox> inboxes_;
};

class Admitted final : public CollectiveAlgorithm {
 public:
  Admitted(std::unique_ptr<CollectiveAlgorithm> inner, const Terms& terms)
      : inner_(std::move(inner)), terms_(terms) {}
  [[nodiscard]] std::string name() const override { return inner_->name(); }
  [[nodiscard]] bool supports(CollectiveKind k) const override { return inner_->supports(k); }
  [[nodiscard]] bool serves(const CollectiveRequest& r) const override { return inner_->serves(r); }
  [[nodiscard]] std::unique_ptr<CollectiveRun> begin(const CollectiveRequest& r) const override {
    return std::make_unique<AdmittedRun>(inner_->begin(r), terms_, r);
  }
  [[nodiscard]] int64_t sent_per_member(const CollectiveRequest& r) const override {
    return inner_->sent_per_member(r);
  }

 private:
  std::unique_ptr<CollectiveAlgorithm> inner_;
  Terms terms_;
};

}  // namespace

std::unique_ptr<CollectiveAlgorithm> admit_by_credits(std::unique_ptr<CollectiveAlgorithm> inner,
                                                      const Params& params) {
  Terms terms;
  terms.outstanding = static_cast<uint32_t>(params.integer("outstanding"));
  terms.cts_bytes = params.bytes("cts_size").count();
  terms.cts_class = params.is_word("cts_class", "control") ? kControlClass : kDataClass;
  return std::make_unique<Admitted>(std::move(inner), terms);
}

}  // namespace trainyard
