// SPDX-License-Identifier: MIT
// The packet engine by contention domains (docs/fast-path.md). A domain is what is active and
// connected through links: queue pairs that share a link, in either direction, and the collectives
// that they belong to. It lives from its first message until everything in it rests. Each domain
// has an event queue and a clock of its own, and only what happens between domains and the
// timeline is ordered globally.
//
// A domain is either simulated, packet by packet (a leader), and its outside behaviour written to
// an episode, or it follows an episode whose inputs have been the same so far, at the same times
// after its start, from the same state of its idle parts. A follower whose inputs turn out to
// differ is simulated from its start up to then, which is deterministic; nothing else is ever
// stored of a state. So results are those of one domain that holds everything (`partition`
// false), bit for bit. What is left to dice is the run's own: such episodes have no followers.
//
// Domains that share no link may share a switch's buffer. Each one keeps account of how much of
// it the others could have used without changing any of its decisions; where their peaks sum to
// more, they are merged and simulated again from their starts before anything that they did
// since the last commit is told.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "memo/call_plan.h"
#include "memo/domain_run.h"
#include "memo/episode.h"
#include "memo/fast_path_stats.h"
#include "memo/leader_clock.h"
#include "network/qp_key.h"
#include "sim/collective_host.h"
#include "sim/fabric.h"

namespace trainyard {

class WorkerPool;

/// Why domains and memo cannot be used with this configuration; nothing: they can.
std::optional<std::string> fast_path_declines(const PacketConfig& config);

struct FastPathOptions {
  bool partition = true;    ///< false: one domain that holds everything (the oracle)
  bool memo = true;         ///< false: every domain is simulated
  bool jumps = true;        ///< skip whole periods of what is simulated
  bool stretches = true;    ///< with memo: follow sequences of calls as a whole
  bool joins = true;        ///< stepped domains that meet go on from where they are
  bool stepping = false;    ///< approximate: no packets where senders contend (SteppedFabric)
  double audit_budget = 0;  ///< share of the work that goes into checking what was stepped
  /// Stepped domains leave pauses out while what these would have held up on a port is at most so
  /// many millionths of the domain's time.
  int64_t ignored_pauses_ppm = 10'000;
  size_t memo_bytes = size_t{1} << 30;  ///< of ended episodes; the least recently used go first
  // Nothing that is told depends on these.
  uint32_t threads = 1;          ///< that simulate domains
  uint64_t worth_sharing = 512;  ///< events for which a thread is woken
};

class DomainFabric final : public Fabric, public CollectiveHost, private DomainRegistry {
 public:
  /// `topology` must outlive it; fast_path_declines(config) says nothing.
  DomainFabric(const Topology& topology, const PacketConfig& config,
               const FastPathOptions& options);
  ~DomainFabric() override;

  TransferId start(const Transfer& transfer, Time at) override;
  /// Not before the last instant processed. From then on until everything is as built again and
  /// at rest, one domain holds all that happens, packet by packet.
  void schedule(const FabricChange& change);
  [[nodiscard]] Time next_event() const override;
  Time advance(Time limit, std::vector<Completion>& out) override;
  [[nodiscard]] size_t outstanding() const override;
  [[nodiscard]] std::string describe_stall() const override;
  void check_conservation() const override;
  [[nodiscard]] const std::vector<TransferRecord>& transfers() const override;
  [[nodiscard]] std::vector<LinkRecord> links() const override;
  [[nodiscard]] FabricTotals totals() const override;
  [[nodiscard]] uint64_t fingerprint() const override;

  uint32_t open(const HostedCall& call) override;
  void arrive(uint32_t call, uint32_t member, Time at) override;
  void take_done(std::vector<Done>& out) override;
  [[nodiscard]] Tally tally(uint32_t call) const override;

  uint32_t open_site(const std::vector<HostedCall>& calls) override;
  std::optional<Hash128> site_state(uint32_t site) override;
  void watch(uint32_t site, Time begin) override;
  std::shared_ptr<const HostStretch> watched(uint32_t site) override;
  uint32_t hold(uint32_t site) override;
  void let_go(uint32_t hold) override;
  void replay(uint32_t hold, std::shared_ptr<const HostStretch> stretch, Time begin) override;
  void replayed(uint32_t hold) override;

  [[nodiscard]] FastPathStats stats() const;
  /// What is under way has done what it had by `at`, or by the last instant processed, and no more:
  /// domains that are ahead, or that only follow, are simulated again up to then. For a run that
  /// ends before they do. Does nothing with stepping.
  void settle(Time at);

 private:
  static constexpr uint32_t kNone = 0xffffffffU;
  static constexpr int64_t kSlice =
      5'000'000;  // ps; where cost is watched, it is so often at first

  struct GlobalQp {
    QpIdentity id;
    uint32_t first_port = 0, ports = 0;  // in qp_ports_: forward, then reverse
    uint32_t forward = 0;                // of them
    uint32_t memory = kNone;             // in memories_; kNone: plain
    int64_t posted = 0;
    uint64_t dice_object = 0;
    uint32_t domain = kNone, label = 0;
  };
  /// What a domain is told. Inputs of one round come together: nothing happens between them.
  struct Input {
    enum class Kind : uint8_t { transfer, open, arrive, change };
    int64_t at = 0;
    uint64_t serial = 0, round = 0;
    bool before = false;  // before what the domain does at that instant
    Kind kind = Kind::transfer;
    uint32_t id = 0;  // transfer, call or change
    uint32_t member = 0;
  };
  struct Pool {
    uint32_t node = 0;
    int64_t peak = 0, room = INT64_MAX;
  };
  struct Domain {
    bool used = false;
    int64_t start = 0;
    std::vector<Input> inputs;
    std::vector<Hash128> hashes;                  // after each of them
    std::vector<uint32_t> links;                  // by label; ports are 2 label and 2 label + 1
    std::vector<uint32_t> link_orders, qp_ranks;  // sorted
    std::unordered_map<uint32_t, uint32_t> nodes;
    std::vector<uint32_t> switches;
    std::vector<uint32_t> qps, transfers, calls;  // by label
    std::vector<Pool> pools;

    /// reserved: for a stretch that is held; nothing else may come near.
    enum class Mode : uint8_t { pending, leader, follower, reserved } mode = Mode::pending;
    std::unique_ptr<DomainRun> run;
    std::shared_ptr<Episode> episode;
    size_t pos = 0;         // entries of the log that are behind it
    uint64_t outputs = 0;   // committed
    bool recorded = false;  // leader: its log is kept up
    bool waiting = false;   // follower: for the log to grow
    uint64_t skip = 0;      // leader: outputs that were committed before it was simulated
    // With stepping. What has been told need not be what another way of simulating would tell by
    // now: kept one by one.
    std::unordered_map<uint64_t, int64_t> told;
    bool approximate = false;  // some of it was told by stepping
    bool no_stepping = false;  // it left what can be stepped
    bool disturbed = false;    // something of the fabric is not as built, or was
    bool costly = false;       // packets have been tried, see on_trial()
    bool joined = false;       // of several that were stepped: see join()
    int64_t slice = 0;         // ps; on trial it is looked at so often
    // With stepping, kept up as it grows: who shares the links beyond the NICs, and what it moves.
    struct Use {
      uint32_t nic = 0, count = 0;
      bool shared = false;  // by queue pairs of different NICs
    };
    std::unordered_map<uint32_t, Use> uses;  // by port
    uint32_t most_sharing = 0;               // queue pairs on a shared port
    int64_t payload = 0, messages = 0;
    uint64_t variant = 0;  // of the dice; with shared noise, once it has a queue pair
    uint64_t events_seen = 0;
    int64_t reached = 0;      // leader: the last instant simulated
    int64_t again_until = 0;  // what it executes up to then has been known before
    // Leader: what it has done and nobody knows yet.
    std::vector<DomainOutput> ready;
    bool ended = false;
    int64_t ready_at = 0;
    uint32_t version = 0;  // of its entry in the heap
  };
  struct Call {
    HostedCall info;
    std::shared_ptr<const CallPlan> plan;
    std::shared_ptr<const std::vector<uint32_t>> qps;
    std::vector<uint8_t> here;
    std::vector<uint32_t> order;  // members, as they came
    bool begun = false;
    uint32_t domain = kNone, label = 0;
    Tally tally;
  };

  /// What a domain, or calls of one plan, use; by labels.
  struct Parts {
    std::vector<uint32_t> qps, links;
  };
  struct PartsOf {
    const std::vector<uint32_t>& qps;
    const std::vector<uint32_t>& links;
  };
  /// Calls of a communicator that may follow each other (CollectiveHost::open_site).
  struct Site {
    uint32_t channel_base = 0;
    std::vector<uint32_t> calls;   // index of its parts
    std::vector<Parts> parts;      // by distinct plan
    std::vector<int64_t> payload;  // of a call, likewise; grants included
    Parts all;                     // of all of them
    std::vector<uint32_t> switches;
    Hash128 fixed;  // digest of what does not change
  };
  struct SiteStretch final : public HostStretch {
    struct Entry {
      int64_t start = 0, end = 0;  // of the domain, from the begin of the stretch on
      std::shared_ptr<const Episode> episode;
    };
    std::vector<Entry> entries;  // by call
    std::vector<PoolUse> pools;  // by port of the site
  };
  struct Watch {
    uint32_t site = 0;
    int64_t begin = 0;
    bool failed = false;
    std::shared_ptr<SiteStretch> stretch;
  };
  struct Hold {
    uint32_t site = 0, domain = 0;
    int64_t begin = 0;
    std::shared_ptr<const SiteStretch> stretch;  // once it is replayed
  };

  /// A leader that goes on. What lies between its two ends is the domain's own business and may be
  /// done by any thread.
  struct Turn {
    uint32_t domain = 0;
    DomainRun* run = nullptr;
    Time limit;
    bool again = false, on_probation = false;
    uint64_t jumps = 0;  // before
    // What came of it.
    Time reached;
    std::vector<DomainOutput> outputs;
    std::optional<int64_t> tells;  // nothing before it; where there are no outputs
    std::exception_ptr failure;
  };

  // Registry.
  Routing& routing() override { return routing_; }
  uint32_t link_order(uint32_t link) override;
  PortMemory port_memory(uint32_t port) override;

  uint32_t queue_pair(const QpKey& key);
  void queue_pairs(const Transfer& t, std::vector<uint32_t>& out);
  void transfers_of(const HostedCall& call, const CallPlan& plan, std::vector<Transfer>& out) const;
  std::shared_ptr<const std::vector<uint32_t>> queue_pairs(const HostedCall& call,
                                                           const CallPlan* plan);
  [[nodiscard]] int64_t in_bps_of(const std::vector<uint32_t>& qps) const;
  std::shared_ptr<const std::vector<int64_t>> inbound_bps(const Call& call);
  [[nodiscard]] QpKey qp_key(const Transfer& t, uint32_t part) const;
  [[nodiscard]] uint32_t parts_of(const Transfer& t) const;
  [[nodiscard]] QpMemory memory(const GlobalQp& q) const;
  void controller_into_hash(Hash128& h, const GlobalQp& q, const AckController& c,
                            int64_t at) const;
  void move_controller(QpMemory& m, const GlobalQp& q, const std::vector<uint32_t>& links,
                       const Episode& e, int64_t end) const;
  [[nodiscard]] bool may_be_followed() const;

  // Inputs.
  void input(const Input& in, const std::vector<uint32_t>& qps);
  uint32_t domain_for(const std::vector<uint32_t>& qps, int64_t at);
  void disturb(uint32_t change, int64_t at);
  void adopt_links(uint32_t domain);
  void find_paths(GlobalQp& q);
  uint32_t new_domain(int64_t at);
  void add(uint32_t domain, const Input& in);
  void claim(Domain& d, uint32_t domain, uint32_t qp, int64_t at);
  void claim_link(Domain& d, uint32_t domain, uint32_t link);
  void node_into_hash(Domain& d, uint32_t node);
  uint64_t node_digest(uint32_t node);
  void feed(DomainRun& run, const Input& in);
  uint32_t merge(const std::vector<uint32_t>& domains);
  [[nodiscard]] bool can_join(const std::vector<uint32_t>& domains, int64_t at) const;
  uint32_t join(const std::vector<uint32_t>& domains);
  void release(uint32_t domain);

  // Going on.
  void assign(uint32_t domain);
  bool follow(uint32_t domain);
  void lead(uint32_t domain);
  void run_leader(uint32_t domain, int64_t horizon);
  void run_leaders(int64_t bound);
  void begin_turn(Turn& turn, uint32_t domain, int64_t horizon);
  static void simulate(Turn& turn);
  void simulate_all(size_t n);
  [[nodiscard]] uint64_t expected_events(const Turn& turn) const;
  void end_turn(Turn& turn);
  void log(Domain& d, const std::vector<DomainOutput>& outputs);
  [[nodiscard]] bool can_be_stepped(const Domain& d) const;
  [[nodiscard]] bool worth_stepping(const Domain& d) const;
  [[nodiscard]] static uint64_t kind_of(const Domain& d);
  [[nodiscard]] uint64_t affordable(const Domain& d) const;
  bool on_trial(uint32_t domain);
  void stop_stepping(uint32_t domain);
  void begin_anew(uint32_t domain);
  void simulate_again(uint32_t domain);
  [[nodiscard]] static uint64_t telling(const Domain& d, const DomainOutput& o);
  void end_leader(Domain& d, int64_t at);
  void audit(const Domain& d);
  bool replay(const Domain& d, DomainRun& run, uint64_t most, std::vector<DomainOutput>& outs);
  void wake_followers(Episode& e);
  void schedule(uint32_t domain);
  [[nodiscard]] int64_t leader_time(const Domain& d) const;
  void clock(uint32_t domain, std::optional<int64_t> tells = {});
  void commit(uint32_t domain, int64_t at, std::vector<Completion>& out);
  void end(uint32_t domain);
  void finish_episode(Domain& d);
  void apply_episode(Domain& d, const Episode& e, int64_t end, bool followed);
  void book_followed(const PartsOf& parts, const Episode& e, int64_t start);
  void leave_behind(const PartsOf& parts, const Episode& e, int64_t end, bool keep_losses);
  void note_for_watch(const Domain& d);
  /// All but transmissions and bytes on the wire, which are those of links.
  static void add_totals(FabricTotals& a, const FabricTotals& b);
  void port_into_hash(Hash128& h, uint32_t port) const;
  void qp_into_hash(Hash128& h, const GlobalQp& q, int64_t at) const;
  void stop_recording(uint32_t domain);
  void update_pools(uint32_t domain);
  void set_pools(Domain& d, const std::vector<PoolUse>& uses);
  [[nodiscard]] bool pools_fit(uint32_t node) const;
  bool settle_pools();

  const Topology& topology_;
  const PacketConfig config_;
  const FastPathOptions options_;
  Routing routing_;
  std::unique_ptr<Routing> as_built_;  // made when routes have been lost
  CallPlanBook plans_;
  EpisodeStore store_;

  int64_t now_ = 0;
  uint64_t serial_ = 0, round_ = 0;
  bool replaying_ = false;

  std::vector<uint32_t> link_order_, link_domain_, link_label_;
  uint32_t links_used_ = 0;
  std::vector<uint32_t> links_in_order_;
  std::vector<PortTally> tallies_;
  std::vector<PortMemory> port_memories_;

  std::vector<GlobalQp> qps_;
  std::vector<uint32_t> qp_ports_;
  std::vector<QpMemory> memories_;
  std::vector<uint32_t> free_memories_;
  std::unordered_map<QpKey, uint32_t, QpKeyHash> qp_index_;
  std::unordered_map<uint64_t, uint32_t> pair_count_;
  /// Queue pairs of the communicators, by channel base and plan.
  struct PlanQps {
    const CallPlan* plan;
    std::shared_ptr<const std::vector<uint32_t>> qps;
    std::shared_ptr<const std::vector<int64_t>> in_bps;  // by member, when asked for
  };
  std::unordered_map<uint32_t, std::vector<PlanQps>> plan_qps_;

  std::vector<Transfer> transfers_;
  mutable std::vector<TransferRecord> records_;
  size_t transfers_open_ = 0;
  std::vector<Call> calls_;
  std::vector<Done> done_;
  std::vector<Done> through_at_once_;  // of calls without messages; not yet told

  std::vector<Site> sites_;
  std::unordered_map<uint32_t, Watch> watches_;  // by channel base
  std::vector<Hold> holds_;
  std::vector<uint32_t> free_holds_;
  uint32_t late_call_ = kNone;  // the last one that was told what came before now_
  int64_t late_at_ = 0;

  std::vector<Domain> domains_;
  std::vector<uint32_t> free_domains_;
  std::vector<uint32_t> pending_;
  LeaderClock leaders_;
  size_t domains_active_ = 0;
  struct Due {
    int64_t at;
    uint32_t domain, version;
    bool operator>(const Due& o) const { return at != o.at ? at > o.at : domain > o.domain; }
  };
  std::priority_queue<Due, std::vector<Due>, std::greater<>> followers_;
  struct Future {
    int64_t at;
    uint64_t serial;
    uint32_t id;          // of the transfer, or of the change
    bool change = false;  // comes first at its instant
    bool operator>(const Future& o) const {
      if (at != o.at) return at > o.at;
      return change != o.change ? o.change : serial > o.serial;
    }
  };
  std::priority_queue<Future, std::vector<Future>, std::greater<>> future_;
  std::vector<FabricChange> changes_;
  uint32_t disturbed_ = kNone;  // the domain
  std::unordered_map<uint32_t, std::vector<uint32_t>> switch_users_;
  std::vector<uint32_t> crowded_;  // switches whose users have to be looked at
  std::unordered_set<Hash128, Hash128Hash> dicey_;
  /// With stepping: domains of about the same size as packets.
  struct Cost {
    uint32_t costly = 0;  // times
    bool dice = false;
    double audit = 0;  // events that were not enough
  };
  std::unordered_map<uint64_t, Cost> costs_;
  double audited_without_dice_ = 0;  // events
  std::unordered_map<uint32_t, uint64_t> node_digests_;

  FabricTotals totals_;  // of ended domains; transmissions and bytes are those of tallies_
  uint64_t fingerprint_ = 0;
  int64_t payload_asked_ = 0;  // of ended calls
  FastPathStats stats_;
  std::vector<uint32_t> scratch_qps_, scratch_domains_, scratch_path_;
  std::vector<Turn> turns_;
  std::vector<LeaderClock::First> going_on_;
  std::vector<uint32_t> homes_;          // scratch
  std::unique_ptr<WorkerPool> workers_;  // made when there is work for them
  mutable std::vector<Tally> oracle_tallies_;
};

}  // namespace trainyard
