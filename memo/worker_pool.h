// SPDX-License-Identifier: MIT
// Threads that share out jobs with the caller. What is shared out lasts from microseconds on, so
// that idle threads look out for more for a while before they sleep, and give way meanwhile.
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

  /// job(0) .. job(n - 1), each once, on any thread and in any order; returns when all are done.
  /// They must not throw. At most 2^20 - 1 of them.
  void run(size_t n, const std::function<void(size_t)>& job);
  /// Somebody looks out for work: to share it costs next to nothing. Else a thread has to be woken.
  [[nodiscard]] bool awake() const { return awake_.load(std::memory_order_relaxed) > 0; }

 private:
  void serve();
  void work();

  const std::function<void(size_t)>* job_ = nullptr;  // whoever has taken one of its jobs may look
  // Round, number of jobs, next one: in one word, so that nobody takes one of a round gone by.
  std::atomic<uint64_t> next_{0};
  std::atomic<uint32_t> left_{0};
  std::atomic<uint32_t> round_{0};
  std::atomic<uint32_t> awake_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace trainyard
