#pragma once
/// \file
/// How processes that share memory wait for each other: a counter that is raised at every change, and a futex for those
/// who sleep until it changes. Lies in shared memory; all zero is its first state.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tessera::comm::shm {

struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> count;     ///< changes so far
  std::atomic<std::uint32_t> sleepers;  ///< threads inside sleep(); one too many per process that was killed there

  /// After the change was stored. A system call only when somebody sleeps.
  void ring();
  /// Sleeps until `count` differs from `seen`, at most `limit`. The caller reads count, then looks whether what it waits
  /// for has happened, then sleeps: a change in between is not lost.
  void sleep(std::uint32_t seen, std::chrono::nanoseconds limit);
};

/// One turn of a spinning loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Stores of any kind, also non-temporal ones, before it are visible before any after it.
inline void publish_stores() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
  std::atomic_thread_fence(std::memory_order_release);
}

}  // namespace tessera::comm::shm
