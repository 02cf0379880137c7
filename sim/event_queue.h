// SPDX-License-Identifier: MIT
// The pending events of one engine, in order of (time, key, arg).
//
// The order is total over what an event *is*, not over when it was inserted: equal times are
// settled by `key`, which the owner builds from relative order only (kind, then the rank of the
// object by first use). So a trajectory does not depend on history that a restart, a merge of two
// queues or a renumbering would change.
//
// Cost (measured by bench_event_queue, one core, hold model at 1,000 / 100,000 pending events):
//
//   operation    small (<= 256 pending)       calendar
//   push         O(log n), binary heap        O(1) append; O(log n) when beyond the horizon
//   pop          O(log n)                     O(1) amortised + sort of one bucket
//   memory       16 B per event               + 24 B x 4096 buckets, allocated on first use
//
// The calendar covers kBuckets x 2^kShift ps (134 us); what lies beyond waits in a heap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/errors.h"

namespace trainyard {

struct Event {
  int64_t time_ps = 0;
  uint32_t key = 0;  ///< kind and object, see above
  uint32_t arg = 0;  ///< free for the owner, e.g. a version that tells stale events
};

class EventQueue {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] size_t size() const { return size_; }

  void push(int64_t time_ps, uint32_t key, uint32_t arg) {
    const Event e{time_ps, key, arg};
    ++size_;
    if (buckets_.empty()) {
      heap_push(far_, e);
      if (far_.size() > kSmall) start_calendar();
      return;
    }
    insert(e);
  }

  /// Time of the next event; only when not empty.
  [[nodiscard]] int64_t next_time() {
    settle();
    return buckets_.empty() ? far_.front().time_ps : work_[pos_].time_ps;
  }

  /// Removes and returns the next event; only when not empty.
  Event pop() {
    settle();
    --size_;
    if (buckets_.empty()) return heap_pop(far_);
    return work_[pos_++];
  }

 private:
  static constexpr int kShift = 15;
  static constexpr int64_t kBuckets = 4096;
  static constexpr size_t kSmall = 256;

  static bool less(const Event& a, const Event& b) {
    if (a.time_ps != b.time_ps) return a.time_ps < b.time_ps;
    if (a.key != b.key) return a.key < b.key;
    return a.arg < b.arg;
  }
  static bool later(const Event& a, const Event& b) { return less(b, a); }
  static void heap_push(std::vector<Event>& h, const Event& e) {
    h.push_back(e);
    std::push_heap(h.begin(), h.end(), later);
  }
  static Event heap_pop(std::vector<Event>& h) {
    std::pop_heap(h.begin(), h.end(), later);
    const Event e = h.back();
    h.pop_back();
    return e;
  }

  void insert(const Event& e) {
    const int64_t slot = e.time_ps >> kShift;
    if (slot < current_) rewind(slot);
    if (slot == current_) {
      // Into the bucket being consumed: it stays sorted from pos_ on. New events tend to be late.
      size_t i = work_.size();
      work_.push_back(e);
      while (i > pos_ && less(e, work_[i - 1])) {
        work_[i] = work_[i - 1];
        --i;
      }
      work_[i] = e;
    } else if (slot - current_ < kBuckets) {
      buckets_[static_cast<size_t>(slot & (kBuckets - 1))].push_back(e);
      ++in_buckets_;
    } else {
      heap_push(far_, e);
    }
  }

  /// A look at next_time() may have moved far ahead; new events start before that.
  void rewind(int64_t slot) {
    auto& bucket = buckets_[static_cast<size_t>(current_ & (kBuckets - 1))];
    bucket.insert(bucket.end(), work_.begin() + static_cast<std::ptrdiff_t>(pos_), work_.end());
    in_buckets_ += work_.size() - pos_;
    work_.clear();
    pos_ = 0;
    current_ = slot;
  }

  void start_calendar() {
    buckets_.resize(kBuckets);
    std::vector<Event> all;
    all.swap(far_);
    current_ = std::min_element(all.begin(), all.end(), less)->time_ps >> kShift;
    for (const Event& e : all) insert(e);
  }

  /// Makes work_[pos_] the next event.
  void settle() {
    if (buckets_.empty() || pos_ < work_.size()) return;
    TRAINYARD_ASSERT(size_ > 0);
    do {
      work_.clear();
      pos_ = 0;
      if (in_buckets_ == 0) {
        current_ = far_.front().time_ps >> kShift;  // nothing nearer: skip the empty stretch
      } else {
        ++current_;
      }
      while (!far_.empty() && (far_.front().time_ps >> kShift) - current_ < kBuckets) {
        insert(heap_pop(far_));
      }
      auto& bucket = buckets_[static_cast<size_t>(current_ & (kBuckets - 1))];
      if (!bucket.empty()) {
        // After a rewind a bucket can hold events of a later round: they stay.
        size_t kept = 0;
        for (const Event& e : bucket) {
          if ((e.time_ps >> kShift) == current_) {
            work_.push_back(e);
          } else {
            bucket[kept++] = e;
          }
        }
        in_buckets_ -= bucket.size() - kept;
        bucket.resize(kept);
        std::sort(work_.begin(), work_.end(), less);
      }
    } while (work_.empty());
  }

  std::vector<std::vector<Event>> buckets_;
  std::vector<Event> work_;  // sorted from pos_
  std::vector<Event> far_;   // heap; the whole queue while small
  int64_t current_ = 0;      // slot that work_ holds
  size_t pos_ = 0;
  size_t in_buckets_ = 0;
  size_t size_ = 0;
};

}  // namespace trainyard
