// SPDX-License-Identifier: MIT
// When everything happens: runs a Job's programs over a Fabric.
//
// Rules
//   - an op starts when its dependencies have finished and its stream lets it (StreamOrder);
//   - the k-th collective of a group on one member meets the k-th on every other (issue order);
//     a mismatch of kind or size is an error that names both ops;
//   - the k-th send of (src, dst, tag) meets the k-th recv; bytes move when both are posted, or
//     with eager sends when the send is;
//   - an op of metadata with a duration takes that long and occupies nothing;
//   - an op of storage takes what TimelineOptions::storage says; one in the background ends no
//   step;
//   - events of one instant: first the fabric's completions by transfer id, then op ends by rank,
//     then jobs that begin, then what a GPU does that was stopped until now, then storage by
//     request.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/collective.h"
#include "sim/collective_host.h"
#include "sim/compute_model.h"
#include "sim/event_queue.h"
#include "sim/fabric.h"
#include "sim/fault_source.h"
#include "sim/hash128.h"
#include "sim/op_graph.h"
#include "sim/open_call.h"
#include "sim/records.h"
#include "sim/storage.h"
#include "sim/stretch.h"

namespace trainyard {

/// Sees what happens, as it happens.
class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual void span(const Span& span) = 0;
  /// Whether a span of this length would be kept: names are not copied for those that would not.
  [[nodiscard]] virtual bool wants(Time length) const {
    (void)length;
    return true;
  }
  /// An op took so long: compute and memory from begin to end, communication without the wait for
  /// peers. Every op, also those whose spans are not wanted.
  virtual void timed(uint32_t rank, const OpGraph& graph, uint32_t op, Time length) {
    (void)rank, (void)graph, (void)op, (void)length;
  }
  /// A rank got through a collective; without a host only.
  virtual void visited(const CollectiveVisit& visit) { (void)visit; }
  /// A rank did one thing from `begin` to `end`: the parts of RankTimes, in order of time per rank.
  virtual void phase(uint32_t rank, Phase phase, Time begin, Time end) {
    (void)rank, (void)phase, (void)begin, (void)end;
  }
};

struct TimelineOptions {
  bool complete_at_receiver = true;  ///< false: a message counts when the last ACK is back
  Placement placement;
  /// A send moves its bytes as soon as it is posted; false: when its receive is posted, too. Parts
  /// of a job (Job::parts) say so themselves, and their class.
  bool eager_sends = false;
  Time collective_timeout = Time::infinity();  ///< first arrival to finish; longer fails the run
  uint8_t traffic_class = 0;                   ///< Transfer::traffic_class of all it sends
  /// Share by which compute on a rank is slower while a message or collective moves there, in
  /// 1/2^32: what is left of an op takes 1 + share times as long. 0: not at all. Not with `faults`.
  uint64_t overlap_q32 = 0;
  /// The same for collectives, by CollectiveKind: what their kernels take of a GPU. Empty: as
  /// overlap_q32. Of several at once the largest counts.
  std::vector<uint64_t> collective_overlap_q32;
  /// Whether anything slows compute down.
  [[nodiscard]] bool paced() const {
    const auto some = [](uint64_t share) { return share != 0; };
    return overlap_q32 != 0 ||
           std::any_of(collective_overlap_q32.begin(), collective_overlap_q32.end(), some);
  }
  /// GPUs that slow down or stop; null: none. A stopped GPU begins no op and takes no further part
  /// in collectives; ops on a stream called "host" run on.
  const FaultSource* faults = nullptr;
  /// Runs collectives as a whole; null: the timeline runs them message by message. Not with
  /// `faults`, which hold up single messages.
  CollectiveHost* host = nullptr;
  /// Of more collectives the longest are recorded.
  size_t most_records = 1'000'000;
  /// With `host`: stretches (sim/stretch.h) that begin in a state in which they have begun before
  /// are not run again. Throws StretchConflict where it cannot be kept up.
  bool stretches = true;
  /// Serves ops of storage; needed where there are any.
  Storage* storage = nullptr;
  /// Called now and then with the simulated time and ops done; returning false stops the run.
  std::function<bool(Time now, uint64_t ops_done)> progress;
  /// Nothing happens after this instant: run() returns false then, with end() there.
  Time stop_at = Time::infinity();
};

class Timeline {
 public:
  Timeline(const Job& job, Fabric& fabric, const ComputeModel& compute,
           const CollectiveSelector& collectives, TimelineOptions options);
  ~Timeline();

  /// Runs to the end. Throws SimulationError for a hang: who waits for whom.
  /// @returns false when `progress` stopped it.
  bool run(Recorder* recorder = nullptr);

  /// End of the last op that is not in the background.
  [[nodiscard]] Time end() const { return end_; }
  /// The same of a part of the job.
  [[nodiscard]] Time part_end(const JobPart& part) const;
  [[nodiscard]] const std::vector<RankTimes>& rank_times() const { return times_; }
  /// In the order in which their first members came; complete after run().
  [[nodiscard]] const std::vector<CollectiveRecord>& collectives() const { return records_; }
  /// Collectives in which somebody waits: what is open when a run is cut off or hangs.
  [[nodiscard]] std::vector<OpenCall> open_calls() const;
  /// Processes that have exited by now, with TimelineOptions::faults.
  [[nodiscard]] std::vector<ProcessExit> exits() const;
  /// Collectives that were left out of collectives(), see TimelineOptions::most_records.
  [[nodiscard]] uint64_t records_dropped() const { return records_dropped_; }
  /// Labels of TransferRecord::owner; the first million of them.
  [[nodiscard]] std::vector<std::string> owners() const;
  [[nodiscard]] uint64_t ops_done() const { return ops_done_; }
  [[nodiscard]] uint64_t fingerprint() const { return fingerprint_; }
  /// Ops that were not run one by one, because their stretch had been seen before.
  [[nodiscard]] uint64_t ops_replayed() const { return ops_replayed_; }

 private:
  static constexpr uint32_t kNone = 0xffffffffU;

  struct ClassInfo;   // per OpGraph: stream lists, match numbers
  struct RankState;   // per rank: counters only
  struct Collective;  // in progress
  struct Message;     // a matched send/recv pair
  enum class StretchEvent : uint8_t;
  struct StretchStep;
  struct StretchRecord;
  struct StretchRecording;
  struct StretchReplay;
  struct StretchHold;
  struct Flight {  // per transfer
    enum class Of : uint8_t { message, collective, storage };
    Of of = Of::message;
    uint32_t index = 0;   // slot of the collective or message, the storage's token
    uint32_t record = 0;  // of a collective
    CollectiveSend send;
  };
  /// Who owns transfers: a collective by kind and number, or a send by its name.
  struct Owner {
    const std::string* send = nullptr;
    uint32_t record = 0;
    CollectiveKind kind = CollectiveKind::all_reduce;
  };
  using MessageKey = std::array<uint64_t, 3>;  // ranks, tag, number

  bool run_all();
  void keep(Collective& collective);
  void book(Collective& collective);
  void drop_shortest();
  [[nodiscard]] bool outlives(uint32_t a, uint32_t b) const;
  void begin_ranks(uint32_t first, uint32_t count);
  [[nodiscard]] uint8_t class_of(uint32_t rank) const;
  [[nodiscard]] bool sends_eagerly(uint32_t rank) const;
  void release(uint32_t rank, uint32_t op);
  void try_stream(uint32_t rank, uint32_t stream);
  void begin(uint32_t rank, uint32_t op);
  void begin_now(uint32_t rank, uint32_t op);
  void begin_collective(uint32_t rank, uint32_t op);
  void come(uint32_t rank, uint32_t op, Time at, bool waits);
  void begin_message(uint32_t rank, uint32_t op);
  void begin_storage(uint32_t rank, uint32_t op);
  void run_storage();
  void finish(uint32_t rank, uint32_t op);
  [[nodiscard]] Time scaled(Time d, uint32_t rank, const Op& o) const;
  [[nodiscard]] uint32_t position(uint32_t rank, uint32_t slot) const;
  void move(uint32_t rank, uint32_t op, int change);
  void begin_paced(uint32_t rank, uint32_t op, Time work);
  void repace(uint32_t rank);
  bool end_paced(uint32_t rank, uint32_t op);
  [[nodiscard]] static Time stretched(Time work, uint64_t pace);
  [[nodiscard]] uint64_t pace_of(const RankState& s) const;
  void wait(uint32_t rank, uint32_t op, int change);
  static Dimension dimension(const RankState& s, uint32_t op);
  void enter(uint32_t index, uint32_t member, Time at);
  void apply(uint32_t index, std::vector<CollectiveSend>& sends, std::vector<uint32_t>& done);
  void message_done(uint32_t index);
  void on_completion(const Completion& c);
  void on_delivery(TransferId id);
  /// When the collective that is open for longest fails; infinity: none, or no faults to wait for.
  Time deadline();
  void tell_host(uint32_t collective, uint32_t member);
  void book_collectives();
  void member_through(uint32_t index, uint32_t member);
  void close_collective(uint32_t index);
  void account(uint32_t rank);
  void book(uint32_t rank, Time now);
  // Stretches: timeline_stretches.cpp.
  [[nodiscard]] bool may_replay() const;
  bool hold(uint32_t rank, uint32_t op);
  [[nodiscard]] bool can_hold(uint32_t rank, const Stretch& stretch) const;
  bool begin_hold(uint32_t rank, uint32_t op, const Stretch& stretch, StretchHold& hold);
  void decide(const StretchHold& hold);
  void run_held(const StretchHold& hold);
  bool release_holds();
  void record(const Hash128& key, const Stretch& stretch, const Group& group,
              const StretchHold& hold);
  [[nodiscard]] bool alone_in_servers(uint32_t group);
  const Hash128& content_of(ClassInfo& info, const Stretch& stretch, uint32_t rank, uint64_t kind);
  std::vector<HostedCall> calls_of(const Stretch& stretch, uint32_t rank) const;
  void replay(const Stretch& stretch, const Group& group, const StretchHold& hold,
              const std::shared_ptr<const StretchRecord>& record);
  void replay_until_now(uint32_t rank);
  void write_down(uint32_t rank, uint32_t op, StretchEvent what, Time length);
  void write_down(uint32_t rank, const Collective& collective);
  void end_in_stretch(uint32_t rank, uint32_t op);
  void emit(uint32_t rank, uint32_t op, Span::Kind kind, Time begin, Time end,
            uint32_t owner = Span::kNone, uint32_t last = Span::kNone);
  [[nodiscard]] std::string describe_hang();
  [[nodiscard]] std::string op_label(uint32_t rank, uint32_t op) const;

  const Job& job_;
  Fabric& fabric_;
  const ComputeModel& compute_;
  const CollectiveSelector& selector_;
  TimelineOptions options_;
  Recorder* recorder_ = nullptr;

  Time now_, end_;
  EventQueue events_;
  /// By graph and which slots of a binding hold the same group or peer.
  std::map<std::pair<const OpGraph*, std::vector<uint32_t>>, std::unique_ptr<ClassInfo>> classes_;
  std::vector<RankState> ranks_;
  std::vector<uint32_t> part_of_;  // by rank; empty without parts
  // Slots are used again when what they held is through.
  std::vector<Collective> collectives_;
  std::vector<Message> messages_;
  std::vector<uint32_t> free_collectives_, free_messages_;
  std::unordered_map<uint64_t, uint32_t> open_collectives_;
  std::map<MessageKey, uint32_t> open_messages_;
  std::map<uint32_t, uint32_t> open_in_order_;  // with faults: record -> slot
  std::vector<Flight> flights_;
  std::vector<uint32_t> hosted_;  // slot of each call of the host
  struct StorageOp {
    uint32_t rank = 0, op = 0;
    Time begin;
  };
  std::vector<StorageOp> storage_ops_;  // by request
  std::vector<uint32_t> storage_done_;
  std::vector<StorageMove> storage_moves_;
  uint32_t storage_owner_ = 0xffffffffU;
  std::vector<RankTimes> times_;
  std::vector<CollectiveRecord> records_;  // of those that are through
  struct Origin {
    uint32_t call = kNone;  // of the host
    uint32_t group = 0, first_op = 0;
    [[nodiscard]] std::pair<uint32_t, uint32_t> place() const { return {group, first_op}; }
  };
  std::vector<Origin> record_origins_;  // likewise
  uint32_t next_record_ = 0;
  /// Members that called something else than the first caller, by collective as in
  /// open_collectives_.
  struct Stranger {
    uint32_t rank = 0, op = 0;
    Time at;
    CollectiveCall call;
  };
  std::map<uint64_t, std::vector<Stranger>> strangers_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> skipped_;  // calls, by rank and group
  uint64_t records_dropped_ = 0;
  Time shortest_record_;
  std::vector<Owner> owners_;
  std::vector<std::pair<uint32_t, uint32_t>> finished_;  // ops that end at this instant
  std::vector<std::pair<uint32_t, uint32_t>> delayed_;   // ops that wait for their stopped GPU
  std::vector<std::pair<uint32_t, uint32_t>> entering_;  // collective, member: software time runs
  std::vector<uint32_t> entering_free_;
  uint64_t ops_done_ = 0, ops_total_ = 0, ops_replayed_ = 0;
  uint64_t fingerprint_ = 0;
  std::map<uint32_t, std::unique_ptr<StretchHold>> holds_;  // by group
  /// By server: the only group with several members there, kNone - 1 for several; when asked.
  std::vector<uint32_t> server_users_;
  std::unordered_map<Hash128, std::shared_ptr<const StretchRecord>, Hash128Hash> stretches_;
  std::unordered_map<Hash128, uint32_t, Hash128Hash> recordings_;  // under way or failed: times
  std::unordered_map<Hash128, uint32_t, Hash128Hash> sites_;       // kNone: no site
};

}  // namespace trainyard
