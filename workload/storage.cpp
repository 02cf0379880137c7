// SPDX-License-Identifier: MIT
#include "workload/storage.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <tuple>
#include <utility>

#include "sim/errors.h"

namespace trainyard {
namespace {

Time at_rate(int64_t bytes, int64_t bps) {
  // Rounded up to whole picoseconds.
  const auto bits = static_cast<__int128>(bytes) * 8 * 1'000'000'000'000;
  return Time::ps(static_cast<int64_t>((bits + bps - 1) / bps));
}

using Stats = std::array<StorageStats, kStorageActions>;

class QueueingStorage final : public Storage {
 public:
  explicit QueueingStorage(StorageConfig config) : c_(std::move(config)) {
    TRAINYARD_ASSERT(c_.servers > 0 && c_.piece > 0 && c_.queue > 0);
    TRAINYARD_ASSERT(c_.endpoints.empty() || c_.endpoints.size() == c_.servers);
    TRAINYARD_ASSERT(c_.job_of.empty() || c_.job_of.size() == c_.node_of.size());
    jobs_.resize(c_.job_of.empty() ? 1 : *std::max_element(c_.job_of.begin(), c_.job_of.end()) + 1);
    const uint32_t nodes =
        c_.node_of.empty() ? 0 : *std::max_element(c_.node_of.begin(), c_.node_of.end()) + 1;
    in_.resize(nodes);
    out_.resize(nodes);
    // Alone, servers share one line; on the fabric each has its own.
    servers_.resize(shared() ? c_.servers : 1);
    for (Server& s : servers_) s.idle = shared() ? 1 : c_.servers;
  }

  uint32_t submit(const StorageRequest& request, Time now) override {
    TRAINYARD_ASSERT(request.bytes > 0 && request.rank < c_.node_of.size());
    now_ = now;
    const auto id = static_cast<uint32_t>(requests_.size());
    requests_.push_back({request, request.bytes, request.bytes, now});
    count(request, [&](StorageStats& s) {
      if (s.requests++ == 0) s.first = now;
      s.bytes += request.bytes;
    });
    for (uint32_t i = 0; i < c_.queue && requests_[id].to_issue > 0; ++i) issue(id, now);
    return id;
  }

  [[nodiscard]] Time next_event() const override {
    if (!outbox_.empty() || !finished_.empty()) return now_;
    return events_.empty() ? Time::infinity() : events_.top().at;
  }

  void advance(Time now, std::vector<uint32_t>& done, std::vector<StorageMove>& moves) override {
    now_ = now;
    while (!events_.empty() && events_.top().at <= now) {
      const Event e = events_.top();
      events_.pop();
      TRAINYARD_ASSERT(e.at == now);
      step(e.piece, now);
    }
    std::sort(finished_.begin(), finished_.end());
    done = std::exchange(finished_, {});
    moves = std::exchange(outbox_, {});
  }

  void moved(uint32_t token, Time now) override {
    now_ = now;
    step(token, now);
  }

  [[nodiscard]] const std::array<StorageStats, kStorageActions>& stats() const override {
    return stats_;
  }

  [[nodiscard]] const Stats& job_stats(uint32_t job) const override { return jobs_.at(job); }

 private:
  struct Request {
    StorageRequest what;
    int64_t to_issue = 0, left = 0;
    Time begin;
  };
  /// Where a piece is: a write goes port, line, server; a read line, server, port.
  enum class At : uint8_t { port, line, server };
  struct Piece {
    uint32_t request = 0, server = 0;
    int64_t bytes = 0;
    At at = At::port;
    Time joined;  // the line
  };
  struct Server {
    uint32_t idle = 0;
    uint32_t pieces = 0;  // bound for it
    std::deque<uint32_t> line;
  };
  struct Event {
    Time at;
    uint64_t order = 0;
    uint32_t piece = 0;
    bool operator<(const Event& o) const {  // the earliest on top
      return std::tie(o.at, o.order) < std::tie(at, order);
    }
  };

  [[nodiscard]] bool shared() const { return !c_.endpoints.empty(); }
  /// In the figures of all and of the rank's job.
  template <typename Change>
  void count(const StorageRequest& request, const Change& change) {
    const auto action = static_cast<size_t>(request.action);
    change(stats_[action]);
    change(jobs_[c_.job_of.empty() ? 0 : c_.job_of[request.rank]][action]);
  }
  [[nodiscard]] bool writes(const Piece& p) const {
    return requests_[p.request].what.action == StorageAction::write;
  }

  void issue(uint32_t request, Time now) {
    Request& r = requests_[request];
    uint32_t id = 0;
    if (free_.empty()) {
      id = static_cast<uint32_t>(pieces_.size());
      pieces_.emplace_back();
    } else {
      id = free_.back();
      free_.pop_back();
    }
    Piece& p = pieces_[id];
    p = {request, 0, std::min(c_.piece, r.to_issue), At::port, {}};
    r.to_issue -= p.bytes;
    if (shared()) {
      const auto fewest =
          std::min_element(servers_.begin(), servers_.end(),
                           [](const Server& a, const Server& b) { return a.pieces < b.pieces; });
      p.server = static_cast<uint32_t>(fewest - servers_.begin());
    }
    ++servers_[p.server].pieces;
    if (writes(p)) {
      pass_port(id, now);
    } else {
      join(id, now);
    }
  }

  void pass_port(uint32_t id, Time now) {
    Piece& p = pieces_[id];
    p.at = At::port;
    const uint32_t rank = requests_[p.request].what.rank;
    const bool write = writes(p);
    if (shared()) {
      const uint32_t server = c_.endpoints[p.server];
      outbox_.push_back({write ? rank : server, write ? server : rank, p.bytes, id, rank});
      return;
    }
    Time& free = (write ? out_ : in_)[c_.node_of[rank]];
    free = std::max(free, now) + at_rate(p.bytes, c_.client_bps);
    schedule(free, id);
  }

  void join(uint32_t id, Time now) {
    Piece& p = pieces_[id];
    p.at = At::line;
    p.joined = now;
    Server& s = servers_[p.server];
    s.line.push_back(id);
    serve(s, now);
  }

  void serve(Server& s, Time now) {
    while (s.idle > 0 && !s.line.empty()) {
      const uint32_t id = s.line.front();
      s.line.pop_front();
      --s.idle;
      Piece& p = pieces_[id];
      p.at = At::server;
      const Time end = now + c_.latency + at_rate(p.bytes, writes(p) ? c_.write_bps : c_.read_bps);
      count(requests_[p.request].what, [&](StorageStats& stats) {
        ++stats.pieces;
        stats.queue_s += (now - p.joined).seconds();
        stats.piece_s += (end - p.joined).seconds();
      });
      schedule(end, id);
    }
  }

  /// A piece got through where it is.
  void step(uint32_t id, Time now) {
    Piece& p = pieces_[id];
    if (p.at == At::server) {
      Server& s = servers_[p.server];
      ++s.idle;
      if (writes(p)) {
        finish(id, now);
      } else {
        pass_port(id, now);
      }
      serve(s, now);
      return;
    }
    TRAINYARD_ASSERT(p.at == At::port);
    if (writes(p)) {
      join(id, now);
    } else {
      finish(id, now);
    }
  }

  void finish(uint32_t id, Time now) {
    const Piece p = pieces_[id];
    --servers_[p.server].pieces;
    free_.push_back(id);
    Request& r = requests_[p.request];
    r.left -= p.bytes;
    if (r.to_issue > 0) issue(p.request, now);
    if (requests_[p.request].left > 0) return;
    count(r.what, [&](StorageStats& s) {
      s.last = std::max(s.last, now);
      s.longest = std::max(s.longest, now - r.begin);
      s.sum_s += (now - r.begin).seconds();
    });
    finished_.push_back(p.request);
  }

  void schedule(Time at, uint32_t piece) { events_.push({at, order_++, piece}); }

  StorageConfig c_;
  Time now_;
  std::vector<Request> requests_;
  std::vector<Piece> pieces_;
  std::vector<uint32_t> free_;
  std::vector<Server> servers_;
  std::vector<Time> in_, out_;  // of nodes: until when a port is busy
  std::priority_queue<Event> events_;
  uint64_t order_ = 0;
  std::vector<uint32_t> finished_;
  std::vector<StorageMove> outbox_;
  Stats stats_;
  std::vector<Stats> jobs_;
};

}  // namespace

const std::vector<ParamSpec>& storage_params() {
  using PT = ParamType;
  static const std::vector<ParamSpec> specs = {
      {"network",
       PT::choice,
       "own",
       "",
       "",
       {"own", "shared"},
       "own: a network beside the fabric, nodes have a port on it; shared: pieces travel over the "
       "fabric between GPUs and the endpoints of 'where'",
       "B: T20"},
      {"where",
       PT::text,
       "",
       "",
       "",
       {},
       "network: shared: the endpoints that are storage servers, e.g. node[16-17]; no rank of a "
       "job sits there",
       "DESIGN 9.1"},
      {"servers",
       PT::integer,
       "auto",
       "1",
       "100000",
       {"auto"},
       "how many pieces are worked on at a time; auto: 16, or as many as 'where' names",
       "our choice"},
      {"rate",
       PT::rate,
       "9.4GBps",
       "1Mbps",
       "",
       {},
       "of a server, reading",
       "B:V149: 63 nodes read 150.8 GB/s, 21.5 % of the peak, here from 16 servers"},
      {"write_rate",
       PT::rate,
       "2.5GBps",
       "1Mbps",
       "",
       {},
       "of a server, writing",
       "B:V150: 63 nodes wrote 40 GB/s, 16 % of the peak, here to 16 servers"},
      {"client",
       PT::rate,
       "400Gbps",
       "1Mbps",
       "",
       {},
       "network: own: port of a node, per direction",
       "NVIDIA DGX H100 data sheet: 400 Gb/s adapters for storage"},
      {"request",
       PT::bytes,
       "16MiB",
       "4KiB",
       "1TiB",
       {},
       "piece that a server works on at a time",
       "our choice; Lustre and NFS take 1 to 16 MiB"},
      {"queue",
       PT::integer,
       "8",
       "1",
       "1000000",
       {},
       "pieces of one rank's read or write under way at a time",
       "Lustre max_rpcs_in_flight: 8"},
      {"latency",
       PT::time,
       "0ns",
       "0ns",
       "10s",
       {},
       "time of a server for a piece besides its bytes",
       "our choice: none"},
  };
  return specs;
}

StorageConfig storage_config(const Params& p) {
  StorageConfig c;
  c.servers = p.is_word("servers", "auto") ? 16 : static_cast<uint32_t>(p.integer("servers"));
  c.read_bps = p.rate("rate").bps();
  c.write_bps = p.rate("write_rate").bps();
  c.client_bps = p.rate("client").bps();
  c.piece = p.bytes("request").count();
  c.queue = static_cast<uint32_t>(p.integer("queue"));
  c.latency = p.time("latency");
  return c;
}

std::unique_ptr<Storage> make_storage(StorageConfig config) {
  return std::make_unique<QueueingStorage>(std::move(config));
}

}  // namespace trainyard
