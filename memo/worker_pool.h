// SPDX-License-Identifier: MIT
// Threads that share jobs with the caller. Rounds of jobs may be as short as some tens of
// microseconds, so that an idle thread looks out for more for a moment before it sleeps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace trainyard {

class WorkerPool {
 public:
  /// `threads` with the caller's, at least 1.
  explicit WorkerPool(uint32_t threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  using Job = std::function<void(uint32_t)>;
  /// job(i) for each index i of `homes`, once, on any thread and in any order; returns when all are
  /// done. They must not throw. At most 2^20 - 1 of them. Jobs whose homes are the same modulo the
  /// number of threads are done by the same thread, round after round, where it keeps up: what they
  /// work on is in its cache.
  void run(const std::vector<uint32_t>& homes, const Job& job);

 private:
  /// The jobs of one home.
  struct alignas(64) Share {
    std::vector<uint32_t> jobs;
    // Round, number of jobs, next one: in one word, so that nobody takes one of a round gone by.
    std::atomic<uint64_t> next{0};
  };
  void serve(size_t self);
  void work(size_t self);

  const Job* job_ = nullptr;  // whoever has taken one of its jobs may look; as at Share::jobs
  std::vector<Share> shares_;
  std::atomic<uint32_t> left_{0};
  std::atomic<uint32_t> round_{0};
  std::atomic<uint32_t> awake_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace trainyard
