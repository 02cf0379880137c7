// SPDX-License-Identifier: MIT
#include "memo/worker_pool.h"

#include "sim/errors.h"

namespace trainyard {
namespace {

constexpr int kIndexBits = 20;
constexpr uint64_t kIndexMask = (uint64_t{1} << kIndexBits) - 1;
constexpr int kLooks = 20;  // before sleeping; who looks gives way to others

}  // namespace

WorkerPool::WorkerPool(uint32_t threads) : shares_(threads) {
  for (uint32_t i = 1; i < threads; ++i) threads_.emplace_back([this, i] { serve(i); });
}

WorkerPool::~WorkerPool() {
  stop_.store(true);
  round_.fetch_add(1);
  round_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void WorkerPool::run(const std::vector<uint32_t>& homes, const Job& job) {
  const size_t n = homes.size();
  TRAINYARD_ASSERT(n > 0 && n <= kIndexMask);
  job_ = &job;
  left_.store(static_cast<uint32_t>(n), std::memory_order_relaxed);
  for (Share& s : shares_) s.jobs.clear();
  for (uint32_t i = 0; i < n; ++i) shares_[homes[i] % shares_.size()].jobs.push_back(i);
  const uint64_t round = round_.load(std::memory_order_relaxed) + uint64_t{1};
  for (Share& s : shares_) {
    s.next.store(round << 2 * kIndexBits | static_cast<uint64_t>(s.jobs.size()) << kIndexBits,
                 std::memory_order_release);
  }
  round_.store(static_cast<uint32_t>(round), std::memory_order_release);
  if (awake_.load(std::memory_order_relaxed) < threads_.size()) {
    if (n > threads_.size()) {
      round_.notify_all();
    } else {
      for (size_t i = 1; i < n; ++i) round_.notify_one();
    }
  }
  work(0);
  uint32_t left = 0;
  for (int look = 0; (left = left_.load(std::memory_order_acquire)) > 0; ++look) {
    if (look < kLooks) {
      std::this_thread::yield();
    } else {
      left_.wait(left, std::memory_order_acquire);
    }
  }
}

/// Jobs of the present round until there are none left, its own first.
void WorkerPool::work(size_t self) {
  for (size_t i = 0; i < shares_.size(); ++i) {
    Share& s = shares_[(self + i) % shares_.size()];
    uint64_t next = s.next.load(std::memory_order_acquire);
    while ((next & kIndexMask) < (next >> kIndexBits & kIndexMask)) {
      if (!s.next.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel)) continue;
      (*job_)(s.jobs[next & kIndexMask]);
      if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
      next = s.next.load(std::memory_order_acquire);
    }
  }
}

void WorkerPool::serve(size_t self) {
  awake_.fetch_add(1);
  while (!stop_.load(std::memory_order_relaxed)) {
    const uint32_t seen = round_.load(std::memory_order_acquire);
    work(self);
    for (int look = 0; look < kLooks && round_.load(std::memory_order_relaxed) == seen; ++look) {
      std::this_thread::yield();
    }
    if (round_.load() != seen) continue;
    awake_.fetch_sub(1);
    round_.wait(seen);
    awake_.fetch_add(1);
  }
}

}  // namespace trainyard
