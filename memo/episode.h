// SPDX-License-Identifier: MIT
// What happened in a contention domain from idle to idle, as seen from outside, and what it left
// behind. Times are relative to the start of the domain, parts are named by labels, so that it
// holds for every domain with the same inputs.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "memo/domain_run.h"
#include "sim/hash128.h"

namespace trainyard {

struct Episode {
  enum class Kind : uint8_t { input, delivered, acknowledged, done, end };
  struct Entry {
    int64_t time_ps = 0;
    uint32_t label = 0;   ///< input: how many there were before it
    uint32_t member = 0;  ///< done
    Kind kind = Kind::input;
  };
  std::vector<Entry> log;       ///< in order of time
  std::vector<Hash128> hashes;  ///< after each input

  bool approximate = false;  ///< stepped

  /// Still being written by a domain that is simulated. A log that is neither open nor ends with
  /// `end` is true as far as it goes.
  bool open = true;
  std::vector<uint32_t> followers;  ///< domains, some of which may have left; while open

  // At the end.
  struct Residue {
    /// Times are relative to the end; of its ack_controller, and then `posted`, as in the domain
    /// that was simulated, see end_ps.
    QpMemory memory;
    bool plain = true;   ///< only `posted` counts
    int64_t posted = 0;  ///< in this episode
  };
  std::vector<Residue> qps;
  /// last_served: label of the queue pair, where the port has sent data of the class.
  std::vector<PortMemory> port_memory;
  std::vector<PortTally> ports;
  int64_t end_ps = 0;             ///< of the domain that was simulated
  std::vector<int64_t> tx_bytes;  ///< sent by its ports since the run began; HPCC only
  std::vector<PoolUse> pools;
  std::vector<TraceEntry> trace;
  std::vector<TransferRecord> transfers;  ///< of transfers from outside
  std::vector<CollectiveHost::Tally> calls;
  FabricTotals totals;
  uint64_t transmissions = 0;
  size_t ack_controllers = 0;  ///< among `qps`

  [[nodiscard]] size_t bytes() const {
    return sizeof(Episode) + log.capacity() * sizeof(Entry) + hashes.capacity() * 48 +
           qps.capacity() * sizeof(Residue) + port_memory.capacity() * sizeof(PortMemory) +
           ports.capacity() * sizeof(PortTally) + trace.capacity() * sizeof(TraceEntry) +
           transfers.capacity() * sizeof(TransferRecord) + tx_bytes.capacity() * sizeof(int64_t) +
           ack_controllers * sizeof(AckController) +
           calls.capacity() * sizeof(CollectiveHost::Tally);
  }
};

/// Episodes by the hashes of their prefixes. Holds at most `limit` bytes of ended episodes; the
/// one used least recently goes first.
class EpisodeStore {
 public:
  explicit EpisodeStore(size_t limit) : limit_(limit) {}

  /// Makes the prefix of `e` that ends with its last input findable.
  void index(const std::shared_ptr<Episode>& e);
  /// Episodes with this prefix, newest last; null: none.
  [[nodiscard]] const std::vector<std::weak_ptr<Episode>>* find(const Hash128& prefix) const;
  void used(const std::shared_ptr<Episode>& e);
  /// `e` has ended: it counts from now on, and others may have to go.
  void keep(const std::shared_ptr<Episode>& e);
  [[nodiscard]] size_t bytes() const { return bytes_; }
  [[nodiscard]] uint64_t evicted() const { return evicted_; }

 private:
  void forget_prefixes();

  const size_t limit_;
  size_t bytes_ = 0;
  uint64_t evicted_ = 0, clock_ = 0;
  std::unordered_map<Hash128, std::vector<std::weak_ptr<Episode>>, Hash128Hash> index_;
  struct Kept {
    std::shared_ptr<Episode> episode;
    uint64_t last_use = 0;
    size_t bytes = 0;
  };
  std::unordered_map<const Episode*, Kept> kept_;
};

}  // namespace trainyard
