// SPDX-License-Identifier: MIT
#include "memo/worker_pool.h"

#include "sim/errors.h"

namespace trainyard {
namespace {

constexpr int kIndexBits = 20;
constexpr uint64_t kIndexMask = (uint64_t{1} << kIndexBits) - 1;
constexpr int kLooks = 100;  // before sleeping; some tens of microseconds where nobody else runs

}  // namespace

WorkerPool::WorkerPool(uint32_t threads) {
  for (uint32_t i = 1; i < threads; ++i) threads_.emplace_back([this] { serve(); });
}

WorkerPool::~WorkerPool() {
  stop_.store(true);
  round_.fetch_add(1);
  round_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void WorkerPool::run(size_t n, const std::function<void(size_t)>& job) {
  TRAINYARD_ASSERT(n > 0 && n <= kIndexMask);
  job_ = &job;
  left_.store(static_cast<uint32_t>(n), std::memory_order_relaxed);
  const uint64_t round = round_.load(std::memory_order_relaxed) + uint64_t{1};
  next_.store(round << 2 * kIndexBits | static_cast<uint64_t>(n) << kIndexBits,
              std::memory_order_release);
  round_.store(static_cast<uint32_t>(round), std::memory_order_release);
  if (awake_.load(std::memory_order_relaxed) < threads_.size()) {
    if (n > threads_.size()) {
      round_.notify_all();
    } else {
      for (size_t i = 1; i < n; ++i) round_.notify_one();
    }
  }
  work();
  uint32_t left = 0;
  for (int look = 0; (left = left_.load(std::memory_order_acquire)) > 0; ++look) {
    if (look < kLooks) {
      std::this_thread::yield();
    } else {
      left_.wait(left, std::memory_order_acquire);
    }
  }
}

/// Jobs of the present round, until there are none left.
void WorkerPool::work() {
  uint64_t next = next_.load(std::memory_order_acquire);
  while ((next & kIndexMask) < (next >> kIndexBits & kIndexMask)) {
    if (!next_.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel)) continue;
    (*job_)(static_cast<size_t>(next & kIndexMask));
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
    next = next_.load(std::memory_order_acquire);
  }
}

void WorkerPool::serve() {
  awake_.fetch_add(1);
  while (!stop_.load(std::memory_order_relaxed)) {
    const uint32_t seen = round_.load(std::memory_order_acquire);
    work();
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
