// SPDX-License-Identifier: MIT
// The pending events of one engine, in order of (time, key, arg).
//
// The order is total over what an event *is*, not over when it was inserted: equal times are
// settled by `key`, which the owner builds from relative order only (kind, then the rank of the
// object by first use). So a trajectory does not depend on history that a restart, a merge of two
// queues or a renumbering would change.
//
// Cost (tools/bench event_queue, hold model, one core; a binary heap beside it):
//
//   operation    small (<= 64 pending)        calendar
//   push         O(log n), binary heap        O(1); O(log n) when beyond the horizon
//   pop          O(log n)                     O(1) amortised + sort of one bucket
//   memory       16 B per event               24 B per event + 16 KiB
//   ns per hold  28 at 100 pending (heap: 35)  25 at 1,000 (51), 32 at 10,000 (85)
//
// The calendar covers 4096 buckets of 2^shift ps, 134 us at first; what lies beyond waits in a
// heap. The bucket width follows the density of events: crowded buckets are halved, empty ones
// doubled. Buckets are lists in one pool whose free nodes are reused at once, so that the queue of
// a busy engine stays in the first-level cache.
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
    if (buckets_.empty()) return far_.front().time_ps;
    return from_near() ? near_.front().time_ps : work_[pos_].time_ps;
  }

  /// The event `n` places after the next one, if it is already sorted; for prefetching.
  [[nodiscard]] const Event* ahead(size_t n) const {
    return pos_ + n < work_.size() ? &work_[pos_ + n] : nullptr;
  }

  /// Removes and returns the next event; only when not empty.
  Event pop() {
    settle();
    --size_;
    if (buckets_.empty()) return heap_pop(far_);
    if (from_near()) return heap_pop(near_);
    return work_[pos_++];
  }

 private:
  static constexpr int kFirstShift = 15, kMinShift = 10, kMaxShift = 24;
  static constexpr int64_t kBuckets = 4096;
  static constexpr size_t kSmall = 64;
  static constexpr size_t kShortList = 16;
  static constexpr uint32_t kReview = 8192;  // buckets visited between looks at the width

  static bool less(const Event& a, const Event& b) {
    if (a.time_ps != b.time_ps) return a.time_ps < b.time_ps;
    if (a.key != b.key) return a.key < b.key;
    return a.arg < b.arg;
  }
  // Function objects, so that the algorithms inline them.
  struct Less {
    bool operator()(const Event& a, const Event& b) const { return less(a, b); }
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const { return less(b, a); }
  };
  /// After settle(): is the next event in near_, not in work_?
  [[nodiscard]] bool from_near() const {
    return !near_.empty() && (pos_ == work_.size() || less(near_.front(), work_[pos_]));
  }
  [[nodiscard]] int64_t slot_of(const Event& e) const { return e.time_ps >> shift_; }
  static void heap_push(std::vector<Event>& h, const Event& e) {
    h.push_back(e);
    std::push_heap(h.begin(), h.end(), Later());
  }
  static Event heap_pop(std::vector<Event>& h) {
    std::pop_heap(h.begin(), h.end(), Later());
    const Event e = h.back();
    h.pop_back();
    return e;
  }

  void insert(const Event& e) {
    const int64_t slot = slot_of(e);
    if (slot < current_) rewind(slot);
    if (slot == current_) {
      if (work_.size() - pos_ > kShortList) {
        heap_push(near_, e);
        return;
      }
      // A short list stays sorted. New events tend to be late.
      size_t i = work_.size();
      work_.push_back(e);
      while (i > pos_ && less(e, work_[i - 1])) {
        work_[i] = work_[i - 1];
        --i;
      }
      work_[i] = e;
    } else if (slot - current_ < kBuckets) {
      into_bucket(slot, e);
    } else {
      heap_push(far_, e);
      ++far_pushes_;
    }
  }

  void into_bucket(int64_t slot, const Event& e) {
    uint32_t& head = buckets_[static_cast<size_t>(slot & (kBuckets - 1))];
    uint32_t n = free_;
    if (n != kNil) {
      free_ = pool_[n].next;
    } else {
      n = static_cast<uint32_t>(pool_.size());
      pool_.emplace_back();
    }
    pool_[n] = {e, head};
    head = n;
    ++in_buckets_;
  }

  /// A look at next_time() may have moved far ahead; new events start before that.
  void rewind(int64_t slot) {
    for (size_t i = pos_; i < work_.size(); ++i) into_bucket(current_, work_[i]);
    for (const Event& e : near_) into_bucket(current_, e);
    near_.clear();
    work_.clear();
    pos_ = 0;
    current_ = slot;
  }

  void start_calendar() {
    buckets_.assign(kBuckets, kNil);
    std::vector<Event> all;
    all.swap(far_);
    current_ = slot_of(*std::min_element(all.begin(), all.end(), Less()));
    for (const Event& e : all) insert(e);
  }

  /// Between buckets: changes their width when they hold many events, or mostly none.
  void review_width() {
    const uint64_t per_bucket_x16 = 16 * sorted_ / visited_;
    const bool short_sighted = far_pushes_ * 4 > sorted_;
    visited_ = 0;
    sorted_ = far_pushes_ = 0;
    int shift = shift_;
    if (short_sighted && shift < kMaxShift) {
      floor_shift_ = ++shift;  // too much waits in the heap: never this narrow again
    } else if (per_bucket_x16 > 16 * 8 && shift > floor_shift_) {
      --shift;
    } else if (per_bucket_x16 < 4 && shift < kMaxShift) {
      ++shift;
    }
    if (shift == shift_) return;
    std::vector<Event> all;
    all.swap(far_);
    for (uint32_t& head : buckets_) {
      for (uint32_t n = head; n != kNil; n = pool_[n].next) all.push_back(pool_[n].event);
      head = kNil;
    }
    pool_.clear();
    free_ = kNil;
    in_buckets_ = 0;
    // The slot before the first event, which the caller steps out of.
    shift_ = shift;
    current_ = slot_of(*std::min_element(all.begin(), all.end(), Less())) - 1;
    for (const Event& e : all) insert(e);
  }

  /// Makes work_[pos_] or near_.front() the next event.
  void settle() {
    if (buckets_.empty() || pos_ < work_.size() || !near_.empty()) return;
    TRAINYARD_ASSERT(size_ > 0);
    do {
      work_.clear();
      pos_ = 0;
      if (++visited_ == kReview) review_width();
      if (in_buckets_ == 0) {
        current_ = slot_of(far_.front());  // nothing nearer: skip the empty stretch
      } else {
        ++current_;
      }
      while (!far_.empty() && slot_of(far_.front()) - current_ < kBuckets) {
        insert(heap_pop(far_));
      }
      const size_t from_far = work_.size();
      // After a rewind a bucket can hold events of a later round: they stay.
      uint32_t* link = &buckets_[static_cast<size_t>(current_ & (kBuckets - 1))];
      while (*link != kNil) {
        const uint32_t n = *link;
        if (slot_of(pool_[n].event) != current_) {
          link = &pool_[n].next;
          continue;
        }
        work_.push_back(pool_[n].event);
        *link = pool_[n].next;
        pool_[n].next = free_;
        free_ = n;
      }
      in_buckets_ -= work_.size() - from_far;
      sorted_ += work_.size();
      if (work_.size() > 1) {
        std::reverse(work_.begin(), work_.end());  // lists hold the latest first
        std::sort(work_.begin(), work_.end(), Less());
      }
    } while (work_.empty());
  }

  static constexpr uint32_t kNil = 0xffffffffU;
  struct Node {
    Event event;
    uint32_t next = kNil;
  };

  std::vector<uint32_t> buckets_;  // first node of each; empty while small
  std::vector<Node> pool_;
  uint32_t free_ = kNil;
  std::vector<Event> work_;  // the current bucket, sorted from pos_
  std::vector<Event> near_;  // heap: what came into the current bucket while it was long
  std::vector<Event> far_;   // heap; the whole queue while small
  int64_t current_ = 0;      // slot that work_ holds
  int shift_ = kFirstShift;
  uint32_t visited_ = 0;  // buckets since the last review, and the events they held
  uint64_t sorted_ = 0, far_pushes_ = 0;
  int floor_shift_ = kMinShift;
  size_t pos_ = 0;
  size_t in_buckets_ = 0;
  size_t size_ = 0;
};

}  // namespace trainyard
