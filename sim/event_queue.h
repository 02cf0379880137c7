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
//   operation    small (<= 16 pending)        calendar
//   push         O(log n), binary heap        O(1); O(log n) when beyond the horizon
//   pop          O(log n)                     O(1) amortised + sort of one bucket
//   memory       16 B per event               24 B per event + 17 KiB
//
// The calendar covers 4096 buckets of 2^shift ps, 134 us at first; what lies beyond waits in a
// heap. A bitmap finds the next bucket in use. The bucket width follows the density of events. The
// bucket after the current one is taken out ahead of time (staged), so that the owner can fetch
// what its events will touch. Buckets are lists in one pool whose free nodes are reused at once,
// so that the queue of a busy engine stays in the first-level cache.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "sim/errors.h"

namespace trainyard {

struct Event {
  int64_t time_ps = 0;
  uint32_t arg = 0;  ///< free for the owner, e.g. a version that tells stale events
  uint32_t key = 0;  ///< kind and object, see above
};

class EventQueue {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] size_t size() const { return size_; }

  /// Not before the event popped last.
  [[gnu::always_inline]] void push(int64_t time_ps, uint32_t key, uint32_t arg) {
    const Event e{time_ps, arg, key};
    ++size_;
    const int64_t slot = slot_of(e);
    // Nearly all go into a bucket.
    if (static_cast<uint64_t>(slot - current_ - 1) < reach_ && slot != staged_slot_)
      into_bucket(slot, e);
    else
      push_elsewhere(e);
  }

  /// Time of the next event; only when not empty. A look changes nothing: what is pushed next may
  /// be earlier.
  [[nodiscard]] int64_t next_time() const {
    if (pos_ < work_.size()) {
      const int64_t t = work_[pos_].time_ps;
      return near_.empty() ? t : std::min(t, near_.front().time_ps);
    }
    if (!near_.empty()) return near_.front().time_ps;
    return look_ahead();
  }

  /// Removes and returns the next event; only when not empty.
  Event pop() {
    --size_;
    if (pos_ == work_.size() && near_.empty()) {
      if (buckets_.empty()) return heap_pop(far_);
      next_bucket();
    }
    if (!near_.empty() && (pos_ == work_.size() || less(near_.front(), work_[pos_]))) {
      return heap_pop(near_);
    }
    return work_[pos_++];
  }

  /// Calls `f` with every pending event, in no order.
  template <class F>
  void for_each(const F& f) const {
    for (size_t i = pos_; i < work_.size(); ++i) f(work_[i]);
    for (const Event& e : near_) f(e);
    for (const Event& e : staged_) f(e);
    for (const Event& e : far_) f(e);
    for (const uint32_t head : buckets_) {
      for (uint32_t n = head; n != kNil; n = pool_[n].next) f(pool_[n].event);
    }
  }

  /// Counts the buckets taken out so far: where it changed, staged() and current() are new.
  [[nodiscard]] uint32_t turn() const { return turn_; }
  /// Events of the bucket that probably comes next, in no order; for prefetching.
  [[nodiscard]] const std::vector<Event>& staged() const { return staged_; }
  /// Calls `f` with the events of the bucket after that one, as far as it is known; for
  /// prefetching.
  template <class F>
  void look_beyond(const F& f) const {
    if (buckets_.empty()) return;
    const int64_t slot = first_used();
    if (slot == kNoSlot) return;
    for (uint32_t n = buckets_[static_cast<size_t>(slot & (kBuckets - 1))]; n != kNil;
         n = pool_[n].next) {
      f(pool_[n].event);
    }
  }
  /// Events of the current bucket that are left, in order; for prefetching.
  [[nodiscard]] const Event* current_begin() const { return work_.data() + pos_; }
  [[nodiscard]] const Event* current_end() const { return work_.data() + work_.size(); }

 private:
  static constexpr int kFirstShift = 14, kMinShift = 9, kMaxShift = 24;
  static constexpr int64_t kBuckets = 4096;
  static constexpr size_t kWords = kBuckets / 64;
  static constexpr size_t kSmall = 16;
  static constexpr size_t kShortList = 16;
  static constexpr size_t kShortRun = 8;
  static constexpr uint32_t kReview = 4096;  // buckets taken out between looks at the width
  static constexpr uint32_t kNil = 0xffffffffU;
  static constexpr int64_t kNoSlot = INT64_MAX;

  struct Node {
    Event event;
    uint32_t next = kNil;
  };

  static unsigned __int128 order(const Event& e) {
    uint64_t tie = 0;
    if constexpr (std::endian::native == std::endian::little)
      std::memcpy(&tie, &e.arg, sizeof tie);  // both at once
    else
      tie = static_cast<uint64_t>(e.key) << 32 | e.arg;
    return static_cast<unsigned __int128>(static_cast<uint64_t>(e.time_ps)) << 64 | tie;
  }
  static bool less(const Event& a, const Event& b) { return order(a) < order(b); }
  struct Less {
    bool operator()(const Event& a, const Event& b) const { return less(a, b); }
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const { return less(b, a); }
  };
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

  [[gnu::noinline]] void push_elsewhere(const Event& e) {
    if (!buckets_.empty()) {
      insert(e);
      return;
    }
    heap_push(far_, e);
    if (far_.size() > kSmall) start_calendar();
  }

  void insert(const Event& e) {
    const int64_t slot = slot_of(e);
    if (slot <= current_) {
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
    } else if (slot == staged_slot_) {
      staged_.push_back(e);
    } else if (slot - current_ < kBuckets) {
      into_bucket(slot, e);
    } else {
      heap_push(far_, e);
      ++far_pushes_;
    }
  }

  void into_bucket(int64_t slot, const Event& e) {
    const auto at = static_cast<size_t>(slot & (kBuckets - 1));
    uint32_t n = free_;
    if (n != kNil) {
      free_ = pool_[n].next;
    } else {
      n = static_cast<uint32_t>(pool_.size());
      pool_.emplace_back();
    }
    pool_[n] = {e, buckets_[at]};
    buckets_[at] = n;
    used_[at / 64] |= uint64_t{1} << (at % 64);
  }

  /// The first slot after current_ whose bucket holds something.
  [[nodiscard]] int64_t first_used() const {
    const int64_t from = current_ + 1;
    const auto at = static_cast<size_t>(from & (kBuckets - 1));
    size_t word = at / 64;
    uint64_t bits = used_[word] >> (at % 64);
    if (bits != 0) return from + __builtin_ctzll(bits);
    int64_t slot = from + static_cast<int64_t>(64 - at % 64);
    for (size_t i = 0; i < kWords; ++i, slot += 64) {
      word = (word + 1) % kWords;
      bits = used_[word];
      if (bits != 0) return slot + __builtin_ctzll(bits);
    }
    return kNoSlot;
  }

  /// Appends the bucket to `out` and empties it.
  void take_bucket(int64_t slot, std::vector<Event>& out) {
    const auto at = static_cast<size_t>(slot & (kBuckets - 1));
    uint32_t n = buckets_[at];
    buckets_[at] = kNil;
    used_[at / 64] &= ~(uint64_t{1} << (at % 64));
    const auto first = static_cast<std::ptrdiff_t>(out.size());
    while (n != kNil) {
      Node& node = pool_[n];
      out.push_back(node.event);
      const uint32_t next = node.next;
      node.next = free_;
      free_ = n;
      n = next;
    }
    // The list begins with the event that came last; in the order of coming they are nearly sorted.
    std::reverse(out.begin() + first, out.end());
  }

  [[nodiscard]] int64_t look_ahead() const {
    if (buckets_.empty()) return far_.front().time_ps;
    int64_t best = INT64_MAX;
    const int64_t slot = first_used();
    if (slot < staged_slot_) {
      for (uint32_t n = buckets_[static_cast<size_t>(slot & (kBuckets - 1))]; n != kNil;
           n = pool_[n].next) {
        best = std::min(best, pool_[n].event.time_ps);
      }
      return best;
    }
    if (staged_slot_ == kNoSlot) return far_.front().time_ps;
    for (const Event& e : staged_) best = std::min(best, e.time_ps);
    return best;
  }

  void start_calendar() {
    buckets_.assign(kBuckets, kNil);
    used_.assign(kWords, 0);
    reach_ = kBuckets - 1;
    refill();
  }

  /// Puts all events into buckets of the present width; nothing is current.
  void refill() {
    std::vector<Event> all;
    all.swap(far_);
    for (uint32_t& head : buckets_) {
      for (uint32_t n = head; n != kNil; n = pool_[n].next) all.push_back(pool_[n].event);
      head = kNil;
    }
    all.insert(all.end(), staged_.begin(), staged_.end());
    staged_.clear();
    staged_slot_ = kNoSlot;
    std::fill(used_.begin(), used_.end(), 0);
    pool_.clear();
    free_ = kNil;
    current_ = slot_of(*std::min_element(all.begin(), all.end(), Less())) - 1;
    for (const Event& e : all) insert(e);
  }

  /// Between buckets: changes their width when they hold many events, or mostly one.
  void review_width() {
    const uint64_t per_bucket_x16 = 16 * sorted_ / visited_;
    const bool short_sighted = far_pushes_ * 4 > sorted_;
    visited_ = 0;
    sorted_ = far_pushes_ = 0;
    int shift = shift_;
    if (short_sighted && shift < kMaxShift) {
      floor_shift_ = ++shift;  // too much waits in the heap: never this narrow again
    } else if (per_bucket_x16 > 16 * 3 && shift > floor_shift_) {
      --shift;
    } else if (per_bucket_x16 < 16 && shift < kMaxShift) {
      ++shift;
    }
    if (shift == shift_) return;
    shift_ = shift;
    refill();
  }

  static void insertion_sort(Event* v, size_t n) {
    for (size_t i = 1; i < n; ++i) {
      const Event e = v[i];
      size_t j = i;
      for (; j > 0 && less(e, v[j - 1]); --j) v[j] = v[j - 1];
      v[j] = e;
    }
  }

  /// Merges two neighbouring sorted parts into `out`. No branch depends on the order: where it is
  /// random the processor would guess wrong on every other event.
  static void merge(const Event* a, const Event* b, const Event* end, Event* out) {
    const Event* const middle = b;
    while (a != middle && b != end) {
      const bool second = less(*b, *a);
      const Event* const from = second ? b : a;
      *out++ = *from;
      b += second ? 1 : 0;
      a += second ? 0 : 1;
    }
    out = std::copy(a, middle, out);
    std::copy(b, end, out);
  }

  /// A bucket holds a few runs in order: what one instant has caused comes in order of its events.
  void sort(std::vector<Event>& v) {
    const size_t n = v.size();
    if (n <= kShortRun) {
      insertion_sort(v.data(), n);
      return;
    }
    runs_.clear();
    for (size_t from = 0; from < n;) {
      size_t to = from + 1;
      while (to < n && !less(v[to], v[to - 1])) ++to;
      if (to - from < kShortRun) {
        to = std::min(n, from + kShortRun);
        insertion_sort(v.data() + from, to - from);
      }
      runs_.push_back(static_cast<uint32_t>(to));
      from = to;
    }
    while (runs_.size() > 1) {
      scratch_.resize(n);
      size_t kept = 0;
      size_t from = 0;
      for (size_t i = 0; i < runs_.size(); i += 2) {
        const size_t middle = runs_[i];
        const size_t to = i + 1 < runs_.size() ? runs_[i + 1] : middle;
        merge(v.data() + from, v.data() + middle, v.data() + to, scratch_.data() + from);
        runs_[kept++] = static_cast<uint32_t>(to);
        from = to;
      }
      runs_.resize(kept);
      v.swap(scratch_);
    }
  }

  /// Makes the next bucket in use the current one, and stages the one after it.
  void next_bucket() {
    work_.clear();
    pos_ = 0;
    if (++visited_ == kReview) review_width();
    const int64_t slot = first_used();
    if (slot < staged_slot_) {
      current_ = slot;
      take_bucket(slot, work_);
    } else if (staged_slot_ != kNoSlot) {
      current_ = staged_slot_;
      work_.swap(staged_);
      staged_.clear();
      staged_slot_ = kNoSlot;
    } else {
      current_ = slot_of(far_.front());  // nothing nearer: skip the empty stretch
    }
    sort(work_);
    while (!far_.empty() && slot_of(far_.front()) - current_ < kBuckets) insert(heap_pop(far_));
    sorted_ += work_.size();
    if (staged_slot_ == kNoSlot) {
      const int64_t ahead = first_used();
      if (ahead != kNoSlot) {
        staged_slot_ = ahead;
        take_bucket(ahead, staged_);
      }
    }
    ++turn_;
  }

  std::vector<uint32_t> buckets_;  // first node of each; empty while small
  std::vector<uint64_t> used_;     // one bit per bucket
  std::vector<Node> pool_;
  uint32_t free_ = kNil;
  std::vector<Event> work_;     // the current bucket, sorted from pos_
  std::vector<Event> near_;     // heap: what came into the current bucket while it was long
  std::vector<Event> staged_;   // the bucket taken out ahead, unsorted
  std::vector<Event> scratch_;  // of a sort
  std::vector<uint32_t> runs_;
  std::vector<Event> far_;  // heap; the whole queue while small
  int64_t current_ = 0;     // slot that work_ holds
  int64_t staged_slot_ = kNoSlot;
  int shift_ = kFirstShift;
  uint32_t visited_ = 0;  // buckets since the last review, and the events they held
  uint64_t sorted_ = 0, far_pushes_ = 0;
  int floor_shift_ = kMinShift;
  uint32_t reach_ = 0;  // slots after current_ that have buckets
  size_t pos_ = 0;
  size_t size_ = 0;
  uint32_t turn_ = 0;
};

}  // namespace trainyard
